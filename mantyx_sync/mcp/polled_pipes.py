"""Pipes that do not block, waited for by `select.poll`.

gevent replaces `poll` when it patches, so greenlets wait as well as threads do. A process outside of the server's group
that holds the other end of a pipe cannot keep us waiting: every wait can be woken.
"""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections import deque
from typing import Callable, Deque, Optional

from .pipes import MAX_POSTED_BYTES, READ_BYTES, SLICE_S, Descriptor, Outlet, Piece

__all__ = ["PolledInlet", "PolledOutlet"]


class _Wake:
    """Ends a wait in `poll`. The garbage collector may call it in the middle of anything: it waits for no lock."""

    def __init__(self) -> None:
        self.reading, self._writing = map(Descriptor, os.pipe())
        self.reading.make_non_blocking()
        self._writing.make_non_blocking()
        self._is_wanted = False
        self._guard = threading.Lock()

    def __call__(self) -> None:
        self._is_wanted = True
        # Whoever holds the guard looks again once it is free; so a wish is never lost, and nobody waits.
        while self._is_wanted and self._guard.acquire(blocking=False):
            try:
                self._is_wanted = False
                number = self._writing.number
                if number is not None:
                    os.write(number, b"\0")
            except OSError:  # full: it is awake already
                pass
            finally:
                self._guard.release()

    def clear(self) -> None:
        number = self.reading.number
        try:
            while number is not None and os.read(number, 512):
                pass
        except OSError:  # empty
            pass

    def close(self) -> None:
        with self._guard:
            self.forget()

    def forget(self) -> None:
        self._writing.close()
        self.reading.close()


class PolledInlet:
    """An `Inlet` on a pipe that can be polled."""

    def __init__(self, pipe: Descriptor) -> None:
        """Take the pipe."""
        pipe.make_non_blocking()
        self._pipe = pipe
        self._wake = _Wake()

    def read(self, timeout: Optional[float] = None, outlet: Optional[Outlet] = None) -> Optional[bytes]:
        pipe, waker = self._pipe.number, self._wake.reading.number
        if pipe is None or waker is None:
            return b""
        poll = select.poll()  # found anew each time: gevent may have replaced it since
        poll.register(pipe, select.POLLIN)
        poll.register(waker, select.POLLIN)
        left_over = outlet.left_over() if isinstance(outlet, PolledOutlet) else None
        if left_over is not None:
            poll.register(left_over, select.POLLOUT)
        ready = {number for number, _ in poll.poll(None if timeout is None else max(0, round(timeout * 1000)))}
        if left_over in ready and isinstance(outlet, PolledOutlet):
            outlet.go_on()
        if waker in ready:
            self._wake.clear()
        if pipe in ready:
            return self.read_now()
        return None

    def wake(self) -> None:
        self._wake()

    def read_now(self) -> Optional[bytes]:
        """Return what is there; `None` if that is nothing."""
        number = self._pipe.number
        try:
            return b"" if number is None else os.read(number, READ_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def close(self) -> None:
        self._pipe.close()
        self._wake.close()

    def forget(self) -> None:
        self._pipe.close()
        self._wake.forget()


class PolledOutlet:
    """An `Outlet` on a pipe that can be polled."""

    def __init__(self, pipe: Descriptor, wake: Callable[[], None]) -> None:
        """Take the pipe; `wake` gets the reading thread to look at what is left over."""
        pipe.make_non_blocking()
        self._pipe = pipe
        self._wake = wake
        self._lock = threading.Lock()  # held for writes that do not block
        self._queue: Deque[Piece] = deque()
        self._posted_bytes = 0
        self._is_left_over = False

    def write(self, piece: Piece, deadline: Optional[float], is_given_up: Callable[[], bool]) -> bool:
        try:
            with self._lock:
                self._queue.append(piece)
                self._flush()
            while not piece.is_done:
                number = self._pipe.number
                if number is None:
                    raise BrokenPipeError
                left = SLICE_S if deadline is None else min(SLICE_S, deadline - time.monotonic())
                if left <= 0 or is_given_up():
                    return False
                poll = select.poll()
                poll.register(number, select.POLLOUT)
                # Should it be closed meanwhile, and its number be another file's, the wait is cut short or long; no
                # more than that, and for a slice.
                poll.poll(round(left * 1000) + 1)
                with self._lock:
                    self._flush()
            return True
        finally:
            if not piece.is_done:
                self._leave(piece)

    def post(self, data: bytes) -> bool:
        with self._lock:
            if self._pipe.number is None or self._posted_bytes > MAX_POSTED_BYTES:
                return False
            self._queue.append(Piece(data, is_posted=True))
            self._posted_bytes += len(data)
            self._flush()
            self._is_left_over = bool(self._queue)
        if self._is_left_over:
            self._wake()
        return True

    def close(self) -> None:
        with self._lock:
            self._close()

    def forget(self) -> None:
        self._pipe.close()

    def left_over(self) -> Optional[int]:
        """Return the descriptor if there is something that nobody but the reading thread would write."""
        return self._pipe.number if self._is_left_over else None

    def go_on(self) -> None:
        """Write more of what is left over. Does not block."""
        with self._lock:
            self._flush()

    def _leave(self, piece: Piece) -> None:
        with self._lock:
            if not piece.has_begun:
                if piece in self._queue:
                    self._queue.remove(piece)
                return
            self._is_left_over = bool(self._queue)
        self._wake()

    def _flush(self) -> None:
        while self._queue:
            number, piece = self._pipe.number, self._queue[0]
            if number is None:
                return
            if _would_kill_us(number):
                self._close()
                return
            try:
                piece.write_to(number)
            except BlockingIOError:
                return
            except OSError:  # the other end is closed
                self._close()
                return
            if piece.is_done:
                self._queue.popleft()
                self._posted_bytes -= piece.size if piece.is_posted else 0
        self._is_left_over = False

    def _close(self) -> None:
        self._pipe.close()
        self._queue.clear()
        self._posted_bytes = 0
        self._is_left_over = False


def _would_kill_us(number: int) -> bool:
    """Tell whether the other end is closed, and this program one that dies of writing to such a pipe.

    The interpreter ignores that signal; command line programs often undo that, for the sake of `| head`.
    """
    if signal.getsignal(signal.SIGPIPE) != signal.SIG_DFL:
        return False
    poll = select.poll()
    poll.register(number, select.POLLOUT)
    return any(event & select.POLLERR for _, event in poll.poll(0))
