"""Threads of the embedded servers for what may block."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from queue import Empty, Queue
from typing import Callable, Optional

__all__ = ["Workers"]

_log = logging.getLogger(__name__)


class Workers:
    """Threads for what may block: as many as there is work, kept a little while for the next."""

    IDLE_S = 1.0

    def __init__(self) -> None:
        # Not a SimpleQueue: its wait with a time limit may never end on a busy machine.
        self._tasks: Queue[Optional[Callable[[], None]]] = Queue()
        self._lock = threading.Lock()
        self._threads: set[threading.Thread] = set()
        self._idle = 0
        self._closed = True
        self._number = 0

    def open(self) -> None:
        """Take tasks, again if it was closed."""
        with self._lock:
            self._closed = False

    def run(self, task: Callable[[], None]) -> None:
        """Run `task` on a thread, soon. After `close` it is dropped."""
        with self._lock:
            if self._closed:
                return
            if self._idle > 0:
                self._idle -= 1
            else:
                self._number += 1
                # Owner: this object. `close` wakes it by an entry in the queue and joins it; a daemon, as
                # the loop's thread is.
                thread = threading.Thread(target=self._work, name=f"mantyx-local-run-{self._number}", daemon=True)
                self._threads.add(thread)
                thread.start()
        self._tasks.put(task)

    def _work(self) -> None:
        while True:
            try:
                task = self._tasks.get(timeout=self.IDLE_S)
            except Empty:
                with self._lock:
                    if self._idle > 0:  # otherwise a task was promised to this thread meanwhile
                        self._idle -= 1
                        self._threads.discard(threading.current_thread())
                        return
                continue
            if task is None:
                return
            try:
                task()
            except Exception:  # pragma: no cover - the tasks see to their own errors
                _log.exception("a task of the embedded server failed")
            del task
            with self._lock:
                self._idle += 1

    def close(self, timeout: float) -> None:
        """Take no more tasks, and wait for those at work, at most `timeout` seconds in all."""
        with self._lock:
            self._closed = True
            threads = list(self._threads)
            self._threads.clear()
            self._idle = 0
        for _ in threads:
            self._tasks.put(None)
        until = time.monotonic() + timeout
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
            if thread.is_alive():
                _log.warning("thread %s did not end: a model ignores that its run was abandoned", thread.name)
        # A thread that left for want of work may have left its wake-up behind.
        with contextlib.suppress(Empty):
            while True:
                self._tasks.get_nowait()
