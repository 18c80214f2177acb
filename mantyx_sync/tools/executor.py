"""The threads that run tool handlers: one bounded pool per client, and no handler can eat it for good.

`ThreadPoolExecutor` gives the threads; how many calls run at once is decided here. A call that is given up (its
time is over, its run has ended) frees its place at once, although its thread cannot be stopped: the next call
gets another thread. Handlers never keep the interpreter alive: see `_let_go_of_threads`.
"""

from __future__ import annotations

import concurrent.futures.thread
import contextvars
import os
import threading
import weakref
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable

__all__ = ["Place", "ToolExecutor"]

_MAX_THREADS = 100_000  # never reached: places are what is counted, and threads are made as needed

_depth: contextvars.ContextVar[int] = contextvars.ContextVar("mantyx_tool_depth", default=0)
"""How many handlers the current code runs inside of."""


class Place:
    """A call's place among those that run at once."""

    def __init__(self, pool: _Pool, job: Callable[[], None], limiter: object, limit: int | None) -> None:
        self._pool = pool
        self.job = job
        self.limiter = limiter
        self.limit = limit
        self.is_held = False
        self.is_over = False

    def give_up(self) -> None:
        """Free the place, or leave the line for one. Its handler, if it runs, is not waited for any more."""
        self._pool.leave(self)


class ToolExecutor:
    """Run jobs on threads, at most `max_workers` at once. Safe to use from any thread.

    Runs that are started inside a handler have places of their own, so that handlers that wait for them cannot
    starve them.
    """

    def __init__(self, max_workers: int) -> None:
        self._max_workers = max_workers
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._pools: dict[int, _Pool] = {}

    def submit(
        self,
        context: contextvars.Context,
        job: Callable[[], None],
        *,
        limiter: object = None,
        limit: int | None = None,
    ) -> Place:
        """Run `job` in `context` as soon as there is a place. Does not block.

        Args:
            context: The job's own copy of the context that its run was started in.
            limiter: Jobs with the same limiter run at most `limit` at once.
        """
        depth = context.get(_depth, 0)
        pool = self._pool(depth)
        place = Place(pool, _in_context(context, depth, job), limiter, limit)
        pool.enter(place)
        return place

    def run_now(self, context: contextvars.Context, job: Callable[[], None]) -> None:
        """Run a short `job` at once, whatever the places are taken by. Does not block."""
        depth = context.get(_depth, 0)
        self._pool(depth).run(_in_context(context, depth, job))

    def close(self) -> None:
        """Let idle threads end, and those at work when their handler returns. Does not wait."""
        with self._lock:
            pools, self._pools = list(self._pools.values()), {}
        if self._pid == os.getpid():
            for pool in pools:
                pool.close()

    def _pool(self, depth: int) -> _Pool:
        if self._pid != os.getpid():  # after fork there are no threads, and the lock may be held by none of ours
            self._lock, self._pools, self._pid = threading.Lock(), {}, os.getpid()
        with self._lock:
            if depth not in self._pools:
                self._pools[depth] = _Pool(self._max_workers)
            return self._pools[depth]


class _Pool:
    def __init__(self, max_places: int) -> None:
        self._lock = threading.Lock()
        self._max_places = max_places
        self._taken = 0
        self._taken_by: dict[object, int] = {}
        self._waiting: deque[Place] = deque()
        self._executor = ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix="mantyx-tool")
        _executors.add(self._executor)

    def enter(self, place: Place) -> None:
        with self._lock:
            if not self._take(place):
                self._waiting.append(place)
                return
        self._start(place)

    def leave(self, place: Place) -> None:
        with self._lock:
            if place.is_over:
                return
            place.is_over = True
            if not place.is_held:
                return  # still in the line; passed over when its turn comes
            self._taken -= 1
            if place.limit is not None:
                self._taken_by[place.limiter] -= 1
                if not self._taken_by[place.limiter]:
                    del self._taken_by[place.limiter]
            started = self._next_in_line()
        for waiting in started:
            self._start(waiting)

    def _next_in_line(self) -> list[Place]:
        started: list[Place] = []
        passed_over: list[Place] = []  # their limiter has no room yet
        while self._waiting and self._taken < self._max_places:
            place = self._waiting.popleft()
            if not place.is_over:
                (started if self._take(place) else passed_over).append(place)
        self._waiting.extendleft(reversed(passed_over))
        return started

    def close(self) -> None:
        self._executor.shutdown(wait=False)

    def _take(self, place: Place) -> bool:
        if self._taken >= self._max_places:
            return False
        if place.limit is not None:
            running = self._taken_by.get(place.limiter, 0)
            if running >= place.limit:
                return False
            self._taken_by[place.limiter] = running + 1
        self._taken += 1
        place.is_held = True
        return True

    def _start(self, place: Place) -> None:
        def work() -> None:
            try:
                if not place.is_over:
                    place.job()
            finally:
                self.leave(place)

        self.run(work)

    def run(self, job: Callable[[], None]) -> None:
        try:
            self._executor.submit(job)
        except RuntimeError:
            # The executor takes nothing any more: the client was closed, or the main thread has ended while another
            # one still follows a run. That run must not wait for an answer that never comes.
            threading.Thread(target=job, name="mantyx-tool-late", daemon=True).start()


def _in_context(context: contextvars.Context, depth: int, job: Callable[[], None]) -> Callable[[], None]:
    def enter() -> None:
        _depth.set(depth + 1)
        job()

    return lambda: context.run(enter)


_executors: weakref.WeakSet[ThreadPoolExecutor] = weakref.WeakSet()


def _let_go_of_threads() -> None:
    """Keep the interpreter from waiting for handlers when the main thread has ended.

    `concurrent.futures` joins every worker then, so a handler that hangs would hang the process. Our workers are
    daemon threads, since they are started by the daemon thread that reads a run; taking them off the list that is
    joined is all that is needed. Both names are private to the standard library: without them the process waits.
    """
    joined: Any = getattr(concurrent.futures.thread, "_threads_queues", None)
    if joined is None:
        return
    for executor in list(_executors):
        for thread in list(getattr(executor, "_threads", ())):
            if thread.daemon:
                joined.pop(thread, None)


# Called before concurrent.futures joins its workers: these hooks run in reverse order of registration.
_register: Any = getattr(threading, "_register_atexit", None)
if _register is not None:
    _register(_let_go_of_threads)
