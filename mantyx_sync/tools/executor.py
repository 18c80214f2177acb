"""The threads that run tool handlers: one bounded pool per client, and no handler can eat it for good.

`ThreadPoolExecutor` gives the threads; how many calls run at once is decided here. A call that is given up (its
time is over, its run has ended) frees its place at once, although its thread cannot be stopped: the next call
gets another thread. Handlers never keep the interpreter alive: see `_let_go_of_threads`.
"""

from __future__ import annotations

import concurrent.futures.thread
import contextvars
import logging
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable

from .line import Line

__all__ = ["Place", "ToolExecutor"]

log = logging.getLogger(__name__)

_THREAD_NAME = "mantyx-tool"
_MAX_THREADS = 100_000  # never reached: places are what is counted, and threads are made as needed

_depth: contextvars.ContextVar[int] = contextvars.ContextVar("mantyx_tool_depth", default=0)
"""How many handlers the current code runs inside of."""


class Place:
    """A call's place among those that run at once."""

    def __init__(self, pool: _Pool, job: Callable[[], None], lane: object, limiter: object, limit: int | None) -> None:
        self._pool = pool
        self.job = job
        self.lane = lane
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
        self._pools: dict[tuple[int, int], _Pool] = {}  # by process and depth

    def submit(
        self,
        context: contextvars.Context,
        job: Callable[[], None],
        *,
        lane: object = None,
        limiter: object = None,
        limit: int | None = None,
    ) -> Place:
        """Run `job` in `context` as soon as there is a place. Does not block.

        Args:
            context: The job's own copy of the context that its run was started in.
            lane: Whose job it is, where several share the places: lanes take turns.
            limiter: Jobs with the same limiter run at most `limit` at once.
        """
        depth = context.get(_depth, 0)
        pool = self._pool(depth)
        place = Place(pool, _in_context(context, depth, job), lane, limiter, limit)
        pool.enter(place)
        return place

    def run_now(self, context: contextvars.Context, job: Callable[[], None]) -> None:
        """Run a short `job` at once, whatever the places are taken by. Does not block."""
        depth = context.get(_depth, 0)
        self._pool(depth).run(_in_context(context, depth, job))

    def close(self) -> None:
        """Let idle threads end, and those at work when their handler returns. Does not wait."""
        while True:
            try:
                (pid, _), pool = self._pools.popitem()
            except KeyError:  # none is left, perhaps since another thread closes as well
                return
            if pid == os.getpid():
                pool.close()

    def _pool(self, depth: int) -> _Pool:
        # After a fork a pool has no threads, and its lock may be held by one of those: the child makes its own.
        key = (os.getpid(), depth)
        pool = self._pools.get(key)
        # `setdefault` is one step, so that threads that come here at once get the same pool.
        return pool if pool is not None else self._pools.setdefault(key, _Pool(self._max_workers))


class _Pool:
    def __init__(self, max_places: int) -> None:
        self._lock = threading.Lock()
        self._max_places = max_places
        self._taken = 0
        self._taken_by: dict[object, int] = {}
        self._waiting: Line[Place] = Line()
        self._executor = ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix=_THREAD_NAME)

    def enter(self, place: Place) -> None:
        with self._lock:
            if not self._take(place):
                self._waiting.add(place, place.lane, None if place.limit is None else place.limiter)
                return
        self._start(place)

    def leave(self, place: Place) -> None:
        for waiting in self._leave(place):
            self._start(waiting)

    def _leave(self, place: Place) -> list[Place]:
        """Take a place off and return those that have one now; the caller starts them."""
        with self._lock:
            if place.is_over:
                return []
            place.is_over = True
            place.job = _nothing  # it refers to the call, which refers to its place
            if not place.is_held:
                return []  # still in the line; passed over when its turn comes
            self._taken -= 1
            if place.limit is not None:
                self._taken_by[place.limiter] -= 1
                if not self._taken_by[place.limiter]:
                    del self._taken_by[place.limiter]
            return self._next_in_line()

    def _next_in_line(self) -> list[Place]:
        started: list[Place] = []
        while self._taken < self._max_places:
            place = self._waiting.take(_is_over, self._has_room)
            if place is None:
                break
            self._take(place)
            started.append(place)
        return started

    def _has_room(self, place: Place) -> bool:
        return place.limit is None or self._taken_by.get(place.limiter, 0) < place.limit

    def close(self) -> None:
        self._executor.shutdown(wait=False)

    def _take(self, place: Place) -> bool:
        if self._taken >= self._max_places or not self._has_room(place):
            return False
        if place.limit is not None:
            self._taken_by[place.limiter] = self._taken_by.get(place.limiter, 0) + 1
        self._taken += 1
        place.is_held = True
        return True

    def _start(self, place: Place) -> None:
        def work() -> None:
            mine: Place | None = place
            while mine is not None:
                try:
                    mine.job()
                except BaseException:  # jobs answer for what goes wrong in them; the next one must run whatever comes
                    log.exception("a job of the pool raised")
                # The next in line runs on this thread: it would not count as idle yet, and another would be made.
                following = self._leave(mine)
                mine = following.pop(0) if following else None
                for waiting in following:
                    self._start(waiting)

        self.run(work)

    def run(self, job: Callable[[], None]) -> None:
        job = _once(job)
        # A worker is a daemon if the thread that causes it is one; one that is not would keep the process alive.
        if threading.current_thread().daemon:
            try:
                # A new worker may be at its job before the executor has put it on the list that is joined at the end.
                with _ending.lock:
                    if not _ending.has_begun:
                        self._executor.submit(job)
                        return
            except RuntimeError:  # closed; or no thread could be started, and a later one may find the job
                pass
        # Also when the main thread has ended while another one still follows a run: the executor takes nothing any
        # more then, and the run must not wait for an answer that never comes.
        try:
            threading.Thread(target=job, name=f"{_THREAD_NAME}-late", daemon=True).start()
        except RuntimeError as error:
            log.info("no thread for a tool call: %s", error)


def _nothing() -> None:
    pass


def _is_over(place: Place) -> bool:
    return place.is_over


def _once(job: Callable[[], None]) -> Callable[[], None]:
    jobs = [job]

    def run() -> None:
        try:
            mine = jobs.pop()
        except IndexError:
            return
        mine()

    return run


def _in_context(context: contextvars.Context, depth: int, job: Callable[[], None]) -> Callable[[], None]:
    def enter() -> None:
        _depth.set(depth + 1)
        job()

    return lambda: context.run(enter)


class _Ending:
    """Whether the main thread has ended; no worker is made while that is found out."""

    def __init__(self) -> None:
        self.has_begun = False
        self.lock = threading.Lock()

    def forked(self) -> None:
        """Take another lock, in a child of a fork: a thread that is not there may hold this one."""
        self.lock = threading.Lock()


_ending = _Ending()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_ending.forked)


def _let_go_of_threads() -> None:
    """Keep the interpreter from waiting for handlers when the main thread has ended.

    `concurrent.futures` joins every worker then, so a handler that hangs would hang the process. Our workers are
    daemon threads, see `_Pool.run`; taking them off the list that is joined is all that is needed. Both names are
    private to the standard library: without them the process waits.
    """
    with _ending.lock:
        _ending.has_begun = True
    joined: Any = getattr(concurrent.futures.thread, "_threads_queues", None)
    if joined is None:
        return
    for reference in joined.keyrefs():
        thread = reference()
        if thread is not None and thread.daemon and thread.name.startswith(_THREAD_NAME):
            joined.pop(thread, None)


# Called before concurrent.futures joins its workers: these hooks run in reverse order of registration.
_register: Any = getattr(threading, "_register_atexit", None)
if _register is not None:
    _register(_let_go_of_threads)
