"""One thread does what many ask for at once; the others wait for its outcome."""

from __future__ import annotations

import copy
import os
import threading
import time
from typing import Callable, Dict, Generic, Hashable, Optional, Tuple, TypeVar

from ..errors import MantyxError, MantyxTimeoutError

__all__ = ["SingleFlight"]

T = TypeVar("T")

_SLICE_S = 1.0  # on Windows a wait on a lock cannot be interrupted, so Ctrl-C is noticed between slices


class SingleFlight(Generic[T]):
    """Join calls that are under way. Safe to use from any thread, and after a fork: it has no lock.

    A child of a fork sees no flight of its parent, whose threads do not exist there.
    """

    def __init__(self, what: str) -> None:
        """Take what is done, for the message of a time-out: `refreshing the access token`."""
        self._what = what
        self._flights: Dict[Tuple[int, Hashable], _Flight[T]] = {}

    def is_under_way(self, key: Hashable = None) -> bool:
        """Tell whether a thread of this process is at it."""
        return (os.getpid(), key) in self._flights

    def do(self, action: Callable[[], T], max_wait: float, key: Hashable = None) -> T:
        """Call `action`, or wait for the thread that is calling it for the same `key`. Blocks.

        Args:
            max_wait: Seconds to wait for another thread; how long `action` itself takes is its own affair.

        Raises:
            MantyxTimeoutError: The other thread was not done in time.
            Exception: What `action` raised, here or in the other thread.
        """
        deadline = time.monotonic() + max_wait
        here = (os.getpid(), key)
        while True:
            mine: _Flight[T] = _Flight()
            try:
                # One step, so that of several threads one alone finds its own.
                flight = self._flights.setdefault(here, mine)
                if flight is mine:
                    mine.outcome = (action(),)
            except Exception as error:
                mine.error = error
                raise
            finally:  # also after a KeyboardInterrupt: those who wait then do it themselves
                if self._flights.get(here) is mine:
                    del self._flights[here]
                    mine.done.set()
            if not flight.wait_until(deadline):
                raise MantyxTimeoutError(f"another thread was not done in {max_wait:g} s with {self._what}")
            if flight.outcome is not None:
                return flight.outcome[0]
            if flight.error is not None:
                raise _again(flight.error)


class _Flight(Generic[T]):
    def __init__(self) -> None:
        self.done = threading.Event()
        self.outcome: Optional[Tuple[T]] = None
        self.error: Optional[Exception] = None

    def wait_until(self, deadline: float) -> bool:
        while not self.done.is_set():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self.done.wait(min(left, _SLICE_S))
        return True


def _again(error: Exception) -> Exception:
    """Return an error for one more thread to raise: a traceback belongs to one."""
    if not isinstance(error, MantyxError):
        return error
    again = copy.copy(error)
    again.__cause__ = error.__cause__
    return again
