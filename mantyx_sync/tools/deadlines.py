"""Call a function when a time has come, for any number of times at once, with one thread while there are any."""

from __future__ import annotations

import heapq
import itertools
import logging
import os
import threading
import time
from typing import Callable, List, Tuple

__all__ = ["Deadlines"]

log = logging.getLogger(__name__)

_Entry = Tuple[float, int, Callable[[], None]]


class Deadlines:
    """Tool time-outs. The thread is made for the first deadline and ends with the last: nobody has to stop it."""

    def __init__(self) -> None:
        self._watches: dict[int, _Watch] = {}  # by process

    def add(self, at: float, action: Callable[[], None]) -> Callable[[], None]:
        """Call `action` at `at` (monotonic clock) on the watching thread; it must not block.

        Returns:
            A function that takes the deadline back.
        """
        # No thread survives a fork, and a lock may be held by one: the child makes its own.
        watch = self._watches.get(os.getpid())
        if watch is None:
            watch = self._watches.setdefault(os.getpid(), _Watch())
        return watch.add(at, action)


class _Watch:
    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._heap: List[_Entry] = []
        self._order = itertools.count()
        self._watcher: threading.Thread | None = None

    def add(self, at: float, action: Callable[[], None]) -> Callable[[], None]:
        entry = (at, next(self._order), action)
        with self._condition:
            heapq.heappush(self._heap, entry)
            try:
                if self._watcher is None:
                    self._start()
                elif self._heap[0] is entry:
                    self._condition.notify()
            except BaseException:  # Ctrl-C: nobody would take it back
                self._drop(entry)
                raise
        return lambda: self._remove(entry)

    def _start(self) -> None:
        # Owned by this object; ends by itself when the last deadline is gone, and dies with the process.
        watcher = threading.Thread(target=self._watch, name="mantyx-deadlines", daemon=True)
        try:
            watcher.start()
            self._watcher = watcher  # not if Ctrl-C came between: one that was started finds that it is not wanted
        except RuntimeError as error:  # the interpreter is ending, or there are too many threads
            log.info("no thread to watch deadlines: %s", error)

    def _remove(self, entry: _Entry) -> None:
        with self._condition:
            self._drop(entry)

    def _drop(self, entry: _Entry) -> None:
        if entry in self._heap:
            self._heap.remove(entry)
            heapq.heapify(self._heap)
            if not self._heap:
                self._condition.notify()

    def _watch(self) -> None:
        while True:
            with self._condition:
                if self._watcher is not threading.current_thread():
                    return
                if not self._heap:
                    self._watcher = None
                    return
                left = self._heap[0][0] - time.monotonic()
                if left > 0:
                    self._condition.wait(min(left, threading.TIMEOUT_MAX))
                    continue
                action = heapq.heappop(self._heap)[2]
            try:
                action()
            except Exception:
                log.exception("an action at its deadline failed")
