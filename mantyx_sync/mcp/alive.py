"""The servers' processes that are not yet ended: none outlives the interpreter, and no child of a fork touches them.

No step needs a lock: a fork may leave one held for ever.
"""

from __future__ import annotations

import atexit
import os
import time
from typing import Dict, Optional, Protocol

__all__ = ["ALIVE", "rest_in_child"]


class _Process(Protocol):
    @property
    def longest_end(self) -> float: ...

    def ask_to_end(self) -> None: ...

    def end_by(self, deadline: float) -> None: ...

    def forget(self) -> None: ...


class _Alive:
    def __init__(self) -> None:
        self._processes: Dict[int, _Process] = {}
        self._watched_by: Optional[int] = None
        self._is_over = False

    def add(self, process: _Process) -> bool:
        """Take a process that is about to be started; False if it must not be, because the interpreter is ending."""
        if self._is_over:
            return False
        if self._watched_by != os.getpid():
            # Not on import, when there is nothing to end yet; and multiprocessing drops what its children inherit.
            self._watched_by = os.getpid()
            atexit.register(self.end_all)
        self._processes[id(process)] = process
        return True

    def remove(self, process: _Process) -> None:
        """Let go of a process that is over."""
        self._processes.pop(id(process), None)

    def end_all(self) -> None:
        """End every process at once; blocks no longer than the slowest of them takes."""
        self._is_over = True
        processes = list(self._processes.values())
        for process in processes:
            process.ask_to_end()
        began_at = time.monotonic()
        for process in processes:
            process.end_by(began_at + process.longest_end)

    def forget_all(self) -> None:
        """Let go of all in a child of a fork: they go on, for the parent."""
        processes = list(self._processes.values())
        self._processes = {}
        self._is_over = False
        for process in processes:
            process.forget()


def rest_in_child() -> None:
    """Never return.

    For a thread that is a greenlet, and as such has survived a fork: its place is the parent, its files are closed
    here, and `threading`, which does not know it any more, would fail at its end.
    """
    while True:
        time.sleep(3600)


ALIVE = _Alive()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=ALIVE.forget_all)
