"""A flag that can be waited for and that tells at once whoever asked to be told."""

from __future__ import annotations

import threading
from typing import Callable, List

__all__ = ["Cancellation"]


class Cancellation(threading.Event):
    """A `threading.Event` that calls back: code that polls works with it, and so does a wait on a socket.

    Setting it runs the callbacks on the thread that sets it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._guard = threading.Lock()
        self._callbacks: List[Callable[[], None]] = []

    def set(self) -> None:
        """Cancel. Again changes nothing."""
        super().set()
        with self._guard:
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def add(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Have `callback` run when it is set: at once, on this thread, if it is set already.

        It must neither block nor raise. Returns a function that takes it back.
        """
        with self._guard:
            if not self.is_set():
                self._callbacks.append(callback)
                return lambda: self._take_back(callback)
        callback()
        return lambda: None

    def _take_back(self, callback: Callable[[], None]) -> None:
        with self._guard:
            if callback in self._callbacks:
                self._callbacks.remove(callback)
