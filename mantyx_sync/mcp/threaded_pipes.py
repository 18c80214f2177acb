"""Pipes that block, each with a thread of its own to do it: for Windows, where they cannot be polled."""

from __future__ import annotations

import os
import threading
import time
from typing import Callable, Optional

from ..transport.bell import Bell, Inbox
from .pipes import MAX_POSTED_BYTES, READ_BYTES, SLICE_S, Descriptor, Outlet, Piece

__all__ = ["ThreadedInlet", "ThreadedOutlet"]


class ThreadedInlet:
    """An `Inlet` for systems that cannot poll pipes: a thread of its own blocks in the reads."""

    def __init__(self, pipe: Descriptor, name: str) -> None:
        """Take the pipe; `name` is the thread's."""
        self._pipe = pipe
        self._inbox: Inbox[Optional[bytes]] = Inbox()
        self._is_over = False
        # Owned by this object. Nothing wakes it but the end of the output, which comes when the last process that
        # holds the pipe ends; a daemon, as one outside of the server's group may hold it for ever.
        self._thread = threading.Thread(target=self._pump, args=(pipe.number,), name=name, daemon=True)
        self._thread.start()

    def _pump(self, number: int) -> None:
        while True:
            try:
                data = os.read(number, READ_BYTES)
            except OSError:
                data = b""
            self._inbox.put(data)
            if not data:
                return

    def read(
        self,
        timeout: Optional[float] = None,
        outlet: Optional[Outlet] = None,  # noqa: ARG002
    ) -> Optional[bytes]:
        if self._is_over:
            return b""
        try:
            data = self._inbox.get(None if timeout is None else time.monotonic() + timeout)
        except TimeoutError:
            return None
        self._is_over = data == b""
        return data

    def wake(self) -> None:
        self._inbox.put(None)

    def close(self) -> None:
        self._thread.join(SLICE_S)
        if not self._thread.is_alive():  # else its read would get the bytes of another file
            self._pipe.close()

    def forget(self) -> None:
        self._pipe.close()


class ThreadedOutlet:
    """An `Outlet` for systems that cannot poll pipes: a thread of its own blocks in the writes."""

    def __init__(self, pipe: Descriptor, name: str) -> None:
        """Take the pipe; `name` is the thread's."""
        self._pipe = pipe
        self._inbox: Inbox[Optional[_Parcel]] = Inbox()
        self._posted_bytes = 0
        self._is_closed = False
        # Owned by this object; ends when it is closed, and a write that blocks ends with the server.
        self._thread = threading.Thread(target=self._pump, args=(pipe.number,), name=name, daemon=True)
        self._thread.start()

    def _pump(self, number: int) -> None:
        while True:
            parcel = self._inbox.get()
            if parcel is None or self._is_closed:
                break
            try:
                while parcel.claim() and not parcel.piece.is_done:
                    parcel.piece.write_to(number)
            except OSError:
                break
            self._posted_bytes -= parcel.piece.size if parcel.piece.is_posted else 0
            parcel.bell.ring()
        self._is_closed = True
        self._pipe.close()

    def write(self, piece: Piece, deadline: Optional[float], is_given_up: Callable[[], bool]) -> bool:
        parcel = _Parcel(piece)
        try:
            self._inbox.put(parcel)
            while not piece.is_done:
                if self._is_closed:
                    raise BrokenPipeError
                left = SLICE_S if deadline is None else min(SLICE_S, deadline - time.monotonic())
                if left <= 0 or is_given_up():
                    return False
                parcel.bell.wait(left)
            return True
        finally:
            parcel.drop()

    def post(self, data: bytes) -> bool:
        if self._is_closed or self._posted_bytes > MAX_POSTED_BYTES:
            return False
        self._posted_bytes += len(data)
        self._inbox.put(_Parcel(Piece(data, is_posted=True)))
        return True

    def close(self) -> None:
        self._is_closed = True
        self._inbox.put(None)

    def forget(self) -> None:
        self._pipe.close()


class _Parcel:
    def __init__(self, piece: Piece) -> None:
        self.piece = piece
        self.bell = Bell()
        self._lock = threading.Lock()
        self._is_dropped = False

    def claim(self) -> bool:
        """Have it written, unless its caller has left; from now on it counts as begun."""
        with self._lock:
            self.piece.is_claimed = not self._is_dropped
            return self.piece.is_claimed

    def drop(self) -> None:
        """Take it back, unless it was begun."""
        with self._lock:
            self._is_dropped = not self.piece.is_claimed
