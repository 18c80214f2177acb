"""Call a function when a time has come, for any number of times at once, with one thread while there are any."""

from __future__ import annotations

import heapq
import itertools
import os
import threading
import time
from typing import Callable, List, Tuple

__all__ = ["Deadlines"]

_Entry = Tuple[float, int, Callable[[], None]]


class Deadlines:
    """Tool time-outs. The thread is made for the first deadline and ends with the last: nobody has to stop it."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._heap: List[_Entry] = []
        self._order = itertools.count()
        self._is_watched = False
        self._pid = os.getpid()

    def add(self, at: float, action: Callable[[], None]) -> Callable[[], None]:
        """Call `action` at `at` (monotonic clock) on the watching thread; it must not block.

        Returns:
            A function that takes the deadline back.
        """
        if self._pid != os.getpid():  # no thread survived the fork
            self.__init__()  # type: ignore[misc]
        entry = (at, next(self._order), action)
        with self._condition:
            heapq.heappush(self._heap, entry)
            if not self._is_watched:
                self._is_watched = True
                # Owned by this object; ends by itself when the last deadline is gone, and dies with the process.
                threading.Thread(target=self._watch, name="mantyx-deadlines", daemon=True).start()
            elif self._heap[0] is entry:
                self._condition.notify()
        return lambda: self._remove(entry)

    def _remove(self, entry: _Entry) -> None:
        with self._condition:
            if entry in self._heap:
                self._heap.remove(entry)
                heapq.heapify(self._heap)
                if not self._heap:
                    self._condition.notify()

    def _watch(self) -> None:
        while True:
            with self._condition:
                if not self._heap:
                    self._is_watched = False
                    return
                left = self._heap[0][0] - time.monotonic()
                if left > 0:
                    self._condition.wait(left)
                    continue
                action = heapq.heappop(self._heap)[2]
            action()
