"""The tasks of an A2A server: in memory, bounded in number, age and size (a2a §5.10)."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from typing import Callable, List, Tuple

from ..objects import Task
from ..rpc import INTERNAL_ERROR
from .calls import ListQuery, Refused, page_token
from .tasks import TaskRecord, shortened

__all__ = ["TaskStore"]


class TaskStore:
    """The tasks of a server, by id and owner. All methods may be called from any thread."""

    def __init__(
        self,
        *,
        max_tasks: int,
        task_ttl: float,
        max_stored_bytes: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Hold nothing yet.

        Args:
            max_tasks: How many tasks are kept; the ones that ended first make room.
            task_ttl: Seconds a task is kept after it has ended.
            max_stored_bytes: What all of them may take, about.
            clock: The time that ages go by.
        """
        self._max_tasks = max_tasks
        self._task_ttl = task_ttl
        self._max_stored_bytes = max_stored_bytes
        self._clock = clock
        self._lock = threading.Lock()
        self._records: dict[str, TaskRecord] = {}
        self._by_message: dict[Tuple[str, str], TaskRecord] = {}
        self._ended: OrderedDict[str, float] = OrderedDict()  # by id, when; the first one first
        self._places = 0
        self._sizes: dict[str, int] = {}
        self._stored_bytes = 0

    def add(self, record: TaskRecord) -> TaskRecord | None:
        """Take in a task.

        Returns:
            The task that this very message of this caller began before, if there is one; the new one is not taken in.

        Raises:
            Refused: There is no room: as many tasks as are allowed are under way.
        """
        with self._lock:
            self._drop_expired()
            again = self._by_message.get((record.owner, record.message.message_id))
            if again is not None and _is_same(again, record):
                return again
            while self._ended and not self._has_room(record):
                self._drop(next(iter(self._ended)))
            if not self._has_room(record):
                raise Refused(INTERNAL_ERROR, "The agent has as many tasks under way as it takes; try again later.")
            self._records[record.id] = record
            self._by_message[record.owner, record.message.message_id] = record
            self._note_size(record)
            self._note_place(record)
            return None

    def get(self, task_id: str, owner: str) -> TaskRecord | None:
        """Return a task; `None` if there is none of that id, or it is somebody else's."""
        with self._lock:
            self._drop_expired()
            record = self._records.get(task_id)
            return record if record is not None and record.owner == owner else None

    def list(self, owner: str, query: ListQuery) -> Tuple[List[Task], str, int]:
        """Return a page of an owner's tasks, last changed first, the token of the next page, and how many match."""
        with self._lock:
            self._drop_expired()
            found = [record for record in self._records.values() if record.owner == owner]
        found = [record for record in found if _matches(record, query)]
        found.sort(key=lambda record: record.place, reverse=True)
        page = [record for record in found if query.before is None or record.place < query.before]
        shown = page[: query.page_size]
        token = page_token(shown[-1].place) if len(page) > len(shown) else ""
        tasks = [
            shortened(record.task(), query.history_length, with_artifacts=query.with_artifacts) for record in shown
        ]
        return tasks, token, len(found)

    def changed(self, record: TaskRecord) -> None:
        """Note that the status of a task has changed; one that has ended begins to age."""
        with self._lock:
            if record.id not in self._records:
                return
            self._note_place(record)
            if record.is_over and record.id not in self._ended:
                self._note_size(record)
                while self._ended and self._stored_bytes > self._max_stored_bytes:
                    self._drop(next(iter(self._ended)))
                self._ended[record.id] = self._clock()

    def _note_size(self, record: TaskRecord) -> None:
        self._stored_bytes += record.size - self._sizes.get(record.id, 0)
        self._sizes[record.id] = record.size

    def _note_place(self, record: TaskRecord) -> None:
        self._places += 1
        record.place = self._places

    def _has_room(self, record: TaskRecord) -> bool:
        return (
            len(self._records) < self._max_tasks and self._stored_bytes + record.size <= self._max_stored_bytes
        ) or not self._records

    def _drop_expired(self) -> None:
        limit = self._clock() - self._task_ttl
        while self._ended:
            task_id, ended_at = next(iter(self._ended.items()))
            if ended_at > limit:
                return
            self._drop(task_id)

    def _drop(self, task_id: str) -> None:
        del self._ended[task_id]
        record = self._records.pop(task_id)
        self._stored_bytes -= self._sizes.pop(task_id)
        key = (record.owner, record.message.message_id)
        if self._by_message.get(key) is record:
            del self._by_message[key]


def _matches(record: TaskRecord, query: ListQuery) -> bool:
    if query.context_id is not None and record.context_id != query.context_id:
        return False
    if query.state is not None and record.state != query.state:
        return False
    return query.changed_since is None or record.changed_at >= query.changed_since


def _is_same(first: TaskRecord, second: TaskRecord) -> bool:
    return first.message.parts == second.message.parts and first.named_context == second.named_context
