"""Who is next among jobs that wait for a place: in the order they came, and lane by lane. Does no I/O, takes no lock.

A lane is somebody whom the places are shared with, one agent of several for example. Lanes take turns, so a lane with
a thousand jobs in line does not keep another one's only job waiting for all of them. A job whose limiter has no room
is passed over, and costs nothing while it waits.
"""

from __future__ import annotations

import itertools
from collections import deque
from typing import Callable, Deque, Dict, Generic, Tuple, TypeVar

__all__ = ["Line"]

JobT = TypeVar("JobT")

_Queue = Deque[Tuple[int, JobT]]


class Line(Generic[JobT]):
    """Jobs that wait. Not safe to use from several threads at once."""

    def __init__(self) -> None:
        self._order = itertools.count()
        # By lane, the one whose turn it is first; then by limiter.
        self._lanes: Dict[object, Dict[object, _Queue[JobT]]] = {}

    def add(self, job: JobT, lane: object, limiter: object) -> None:
        """Put a job at the end. Jobs of the same limiter are taken in their order, whatever limits them."""
        self._lanes.setdefault(lane, {}).setdefault(limiter, deque()).append((next(self._order), job))

    def take(self, is_over: Callable[[JobT], bool], may_start: Callable[[JobT], bool]) -> JobT | None:
        """Take out the job that is next; `None` if none can start.

        Args:
            is_over: Whether nobody waits for a job any more: it is dropped.
            may_start: Whether a job may start now; the answer is the same for all jobs of its limiter.
        """
        for lane, queues in list(self._lanes.items()):
            found: _Queue[JobT] | None = None
            for limiter, queue in list(queues.items()):
                while queue and is_over(queue[0][1]):
                    queue.popleft()
                if not queue:
                    del queues[limiter]
                elif may_start(queue[0][1]) and (found is None or queue[0][0] < found[0][0]):
                    found = queue
            if not queues:
                del self._lanes[lane]
            if found is not None:
                if queues:
                    self._lanes[lane] = self._lanes.pop(lane)  # it had its turn
                return found.popleft()[1]
        return None
