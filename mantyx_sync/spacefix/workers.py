"""The threads that run handlers: one bounded pool for all agents of a process."""

from __future__ import annotations

import os
import threading

from ..checks import whole_number
from ..tools.deadlines import Deadlines
from ..tools.executor import ToolExecutor

__all__ = ["DEFAULT_WORKERS", "WorkerPool", "shared_workers"]

DEFAULT_WORKERS = 16
_EXPRESS_WORKERS = 16
_HOOK_WORKERS = 4


class WorkerPool:
    """Places for handlers, shared by the agents that are given it. Safe to use from any thread.

    Threads are made as calls arrive and end with the last agent that uses the pool. A handler that is given up, since
    its time is over, frees its place although its thread cannot be stopped: handlers that hang do not use the pool
    up for good.
    """

    def __init__(self, max_workers: int = DEFAULT_WORKERS) -> None:
        """Start nothing yet.

        Args:
            max_workers: How many handlers run at once.
        """
        self.max_workers = whole_number(max_workers, "max_workers", 1, 10_000)
        self.handlers = ToolExecutor(max_workers)
        # Short answers that no handler is needed for must not wait behind handlers; nor may each have a thread.
        self.express = ToolExecutor(_EXPRESS_WORKERS)
        self.hooks = ToolExecutor(_HOOK_WORKERS)
        self.deadlines = Deadlines()
        self._users: dict[int, _Users] = {}  # by process: no thread survives a fork, and a lock may be held by one

    def __repr__(self) -> str:
        return f"WorkerPool({self.max_workers})"

    def enter(self) -> None:
        """Note that an agent uses the pool."""
        with self._here() as users:
            users.count += 1

    def leave(self) -> None:
        """Note that an agent uses it no more; idle threads end with the last one."""
        with self._here() as users:
            users.count -= 1
            if users.count <= 0:
                for executor in (self.handlers, self.express, self.hooks):
                    executor.close()

    def _here(self) -> _Users:
        return self._users.setdefault(os.getpid(), _Users())


class _Users:
    """How many agents of one process use a pool."""

    def __init__(self) -> None:
        self.count = 0
        self._lock = threading.Lock()

    def __enter__(self) -> _Users:
        self._lock.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()


_shared = WorkerPool()


def shared_workers() -> WorkerPool:
    """Return the pool of agents that are given none of their own."""
    return _shared
