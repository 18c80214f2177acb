"""Waking a thread that waits with a time limit, and a queue whose time limit can be trusted. Does no I/O.

`queue.SimpleQueue.get(timeout=…)` of CPython waits for ever when its time is over before the wait has begun, as
happens to a short time-out on a busy machine. And setting a `threading.Event` takes a lock, which the garbage
collector must not: it runs inside any line of code, perhaps one that holds that lock.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from typing import Generic, TypeVar

__all__ = ["Bell", "Inbox", "Signal"]

ItemT = TypeVar("ItemT")

# Ctrl-C is noticed between slices: a wait on a lock is not interrupted on Windows, nor where the system hands the
# signal to another thread.
_SLICE_S = 0.25


def _may_be_interrupted() -> bool:
    return threading.get_ident() == threading.main_thread().ident


class Bell:
    """Ends the wait of one thread, now or when it begins. Any thread may ring, the garbage collector as well."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def ring(self) -> None:
        """End the wait; ringing again before it begins changes nothing. Does not block."""
        with contextlib.suppress(RuntimeError):  # it was rung already
            self._lock.release()

    def wait(self, timeout: float) -> bool:
        """Wait until it is rung, at most `timeout` seconds; tell whether it was. For one thread at a time."""
        return self._lock.acquire(timeout=max(0.0, min(timeout, threading.TIMEOUT_MAX)))


class Signal:
    """A flag that one thread waits for, and that the garbage collector may set."""

    def __init__(self) -> None:
        self._is_set = False
        self._bell = Bell()

    def set(self) -> None:
        """Set the flag for good; end the wait."""
        self._is_set = True
        self._bell.ring()

    def is_set(self) -> bool:
        """Tell whether the flag is set."""
        return self._is_set

    def wait(self, timeout: float) -> None:
        """Wait until the flag is set, at most `timeout` seconds. For one thread at a time."""
        if not self._is_set:
            self._bell.wait(timeout)


class Inbox(Generic[ItemT]):
    """A queue with one taker: as quick as `SimpleQueue`, which it is while nobody waits with a time limit."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[ItemT] = queue.SimpleQueue()
        self._bell = Bell()
        self._is_bell_wanted = False

    def put(self, item: ItemT) -> None:
        """Add an item. Does not block; any thread may call it."""
        self._queue.put(item)
        if self._is_bell_wanted:
            self._bell.ring()

    def is_empty(self) -> bool:
        """Tell whether there is nothing to take right now."""
        return self._queue.empty()

    def get(self, deadline: float | None = None) -> ItemT:
        """Take the next item; blocks until there is one.

        Raises:
            TimeoutError: There was none until `deadline` (monotonic clock).
        """
        if deadline is None and not _may_be_interrupted():
            return self._queue.get()
        self._is_bell_wanted = True
        try:
            while True:
                # Looked at after asking for the bell: an item that comes now rings it.
                try:
                    return self._queue.get_nowait()
                except queue.Empty:
                    pass
                left = _SLICE_S if deadline is None else deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError
                self._bell.wait(min(left, _SLICE_S))
        finally:
            self._is_bell_wanted = False
