"""A flag that can be waited for and that tells at once whoever asked to be told."""

from __future__ import annotations

import threading
from typing import Any, Callable, List

from ..checks import refusal, shown

__all__ = ["Cancellation", "checked_event"]


class Cancellation(threading.Event):
    """A `threading.Event` that calls back: code that polls works with it, and so does a wait on a socket.

    Setting it runs the callbacks on the thread that sets it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._guard = threading.Lock()
        self._callbacks: List[Callable[[], object]] = []

    def set(self) -> None:
        """Cancel. Again changes nothing."""
        super().set()
        with self._guard:
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def add(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Have `callback` run when it is set: at once, on this thread, if it is set already.

        It must neither block nor raise. Returns a function that takes it back.
        """
        with self._guard:
            if not self.is_set():
                self._callbacks.append(callback)
                return lambda: self._take_back(callback)
        callback()
        return lambda: None

    def _take_back(self, callback: Callable[[], object]) -> None:
        with self._guard:
            if callback in self._callbacks:
                self._callbacks.remove(callback)


def checked_event(given: Any, where: str) -> threading.Event | None:
    """Return what a call was given to cancel it: a `Cancellation`, or anything that is looked at like an event.

    Events of `multiprocessing` and of gevent are none of `threading`, and good enough.

    Raises:
        MantyxConfigError: It is neither.
    """
    if given is None or callable(getattr(given, "is_set", None)):
        return given  # type: ignore[no-any-return]  # it is used as one
    raise refusal(where, shown(given), "be a Cancellation or a threading.Event")
