"""The tasks an A2A server has taken on: what became of each, who follows it, and how many are kept (a2a §3, §5).

Everything is in memory, bounded in number, age and size. Whoever follows a task has a queue of its own, so that a
follower that has gone, or is slow, is in nobody's way.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import OrderedDict
from dataclasses import replace
from typing import Callable, Iterable, List, Sequence, Tuple

from ..roster import Roster
from ..transport.bell import Inbox
from .objects import (
    Artifact,
    ArtifactUpdate,
    Event,
    Message,
    Part,
    StatusUpdate,
    Task,
    TaskStatus,
    TextPart,
    format_timestamp,
)
from .requests import ListQuery, Refused, page_token
from .rpc import INTERNAL_ERROR

__all__ = ["Subscription", "TaskRecord", "TaskStore", "shortened"]

ANSWER = "answer"
"""The id of the artifact that holds what the agent says."""


def shortened(task: Task, history_length: int | None, *, with_artifacts: bool = True) -> Task:
    """Return a task with the last `history_length` messages of its history; `None` leaves all of them."""
    if history_length is not None:
        task = replace(task, history=task.history[len(task.history) - history_length :] if history_length else ())
    return task if with_artifacts else replace(task, artifacts=())


class Subscription:
    """What happens to a task from one moment on: first the task as it was, then each update. For one reader."""

    def __init__(self, task: Task) -> None:
        self.task = task
        """The task at that moment."""
        self._inbox: Inbox[Event | None] = Inbox()
        self._is_over = task.is_terminal

    def put(self, event: Event | None) -> None:
        """Add an update; `None` ends it. Does not block."""
        self._inbox.put(event)

    def next(self, deadline: float) -> List[Event] | None:
        """Return the updates that came since the last call, at least one, pieces of text joined; blocks for them.

        Returns:
            `None` when nothing more will come, an empty list when nothing came until `deadline` (monotonic clock).
        """
        if self._is_over:
            return None
        try:
            item = self._inbox.get(deadline)
        except TimeoutError:
            return []
        events: List[Event] = []
        while item is not None:
            if events and _is_piece(item) and _is_text(events[-1]):
                events[-1] = _joined(events[-1], item)
            else:
                events.append(item)
            if self._inbox.is_empty():
                return events
            item = self._inbox.get()
        self._is_over = True
        return events or None


def _is_text(event: Event) -> bool:
    return isinstance(event, ArtifactUpdate) and event.artifact.artifact_id == ANSWER and not event.last_chunk


def _is_piece(event: Event) -> bool:
    return _is_text(event) and isinstance(event, ArtifactUpdate) and event.append


def _joined(first: Event, second: Event) -> Event:
    assert isinstance(first, ArtifactUpdate)
    assert isinstance(second, ArtifactUpdate)
    text = first.artifact.text + second.artifact.text
    return replace(first, artifact=replace(first.artifact, parts=(TextPart(text),)))


class TaskRecord:
    """One task. All methods may be called from any thread; none blocks or does I/O.

    A task that is over stays as it is: whatever is reported later has no effect.
    """

    def __init__(
        self,
        message: Message,
        owner: str,
        *,
        size: int = 0,
        on_change: Callable[[TaskRecord], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Begin as `submitted`.

        Args:
            message: What the caller said, with the ids of task and context filled in.
            owner: Whose task this is.
            size: Bytes that keeping it takes, about.
            on_change: Told of each change of the status, without a lock being held.
            clock: The time of day.
        """
        assert message.task_id is not None
        assert message.context_id is not None
        self.id = message.task_id
        self.context_id = message.context_id
        self.owner = owner
        self.message = message
        self.size = size
        self.ended = threading.Event()
        self.changed_at = clock()
        self.place = 0  # where it is in listings; kept by the store
        self._clock = clock
        self._on_change = on_change
        self._lock = threading.Lock()
        self._status = TaskStatus("submitted", timestamp=format_timestamp(self.changed_at))
        self._history: Tuple[Message, ...] = (message,)
        self._text: List[str] | None = None  # the pieces of the answer
        self._is_replaced = False  # the next piece begins the answer anew
        self._final_parts: Tuple[Part, ...] | None = None
        self._files: Tuple[Artifact, ...] = ()
        # Weak: a follower that is dropped without being closed is not kept alive by the task.
        self._followers: Roster[Subscription] = Roster()

    @property
    def state(self) -> str:
        """The task's state."""
        return self._status.state

    @property
    def is_over(self) -> bool:
        """True once the task is over for good."""
        return self.ended.is_set()

    def task(self) -> Task:
        """Return the task as it stands."""
        with self._lock:
            return self._snapshot()

    def _snapshot(self) -> Task:
        parts = self._final_parts
        if parts is None and self._text is not None:
            self._text = ["".join(self._text)]
            parts = (TextPart(self._text[0]),)
        answer = () if parts is None else (Artifact(ANSWER, parts, name=ANSWER),)
        return Task(self.id, self.context_id, self._status, (*answer, *self._files), self._history)

    # What its run reports

    def start(self) -> bool:
        """Say that work has begun. False if the task is over, and there is nothing to begin."""
        return self._set_status("working", None)

    def say(self, text: str) -> None:
        """Report what the agent says on the way."""
        self._set_status("working", text)

    def begin_anew(self) -> None:
        """Have the next piece begin the answer anew: what was written so far was not it."""
        with self._lock:
            self._is_replaced = True

    def write(self, text: str) -> None:
        """Add a piece to the answer."""
        with self._lock:
            if self.is_over:
                return
            append = self._text is not None and not self._is_replaced
            if self._text is None or self._is_replaced:
                self._text = []
            self._is_replaced = False
            self._text.append(text)
            self._publish(self._answer((TextPart(text),), append=append))

    def add_files(self, parts: Iterable[Part]) -> None:
        """Add files that were made on the way, as an artifact of their own."""
        given = tuple(parts)
        with self._lock:
            if self.is_over or not given:
                return
            artifact = Artifact(f"files-{len(self._files) + 1}", given, name="files")
            self._files = (*self._files, artifact)
            self._publish(ArtifactUpdate(self.id, artifact, self.context_id, last_chunk=True))

    def complete(self, parts: Sequence[Part]) -> None:
        """End the task with its answer.

        It goes out as a whole even where all of it went out in pieces: a caller that adds up pieces has many parts,
        which it may take for so many paragraphs.
        """
        whole = tuple(parts)
        with self._lock:
            if self.is_over:
                return
            self._final_parts, self._text = whole, None
            self.size += sum(len(part.text) for part in whole if isinstance(part, TextPart))
            self._publish(self._answer(whole, append=False, last_chunk=True))
        self.finish("completed")

    def finish(self, state: str, text: str | None = None) -> bool:
        """End the task in a terminal state, with a message if `text` is given. False if it was over before."""
        return self._set_status(state, text, is_final=True)

    def _answer(self, parts: Tuple[Part, ...], *, append: bool, last_chunk: bool = False) -> ArtifactUpdate:
        return ArtifactUpdate(self.id, Artifact(ANSWER, parts, name=ANSWER), self.context_id, append, last_chunk)

    def _set_status(self, state: str, text: str | None, *, is_final: bool = False) -> bool:
        message = None
        if text is not None:
            message = Message(str(uuid.uuid4()), "agent", (TextPart(text),), self.context_id, self.id)
        with self._lock:
            if self.is_over:
                return False
            if self._status.message is not None:  # what was said before is history now
                self._history = (*self._history, self._status.message)
            self.changed_at = self._clock()
            self._status = TaskStatus(state, message, format_timestamp(self.changed_at))
            self._publish(StatusUpdate(self.id, self._status, self.context_id, final=is_final))
            if is_final:
                self.ended.set()
                for follower in self._followers.items():
                    follower.put(None)
        self._on_change(self)
        return True

    # Who follows it

    def follow(self) -> Subscription:
        """Return what happens from now on."""
        with self._lock:
            subscription = Subscription(self._snapshot())
            if not self.is_over:
                self._followers.add(subscription)
            return subscription

    def unfollow(self, subscription: Subscription) -> None:
        """Stop adding to a subscription."""
        self._followers.discard(subscription)

    def _publish(self, event: Event) -> None:
        for follower in self._followers.items():
            follower.put(event)


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

    def add(self, record: TaskRecord) -> None:
        """Take in a task.

        Raises:
            Refused: There is no room: as many tasks as are allowed are under way.
        """
        with self._lock:
            self._drop_expired()
            while self._ended and not self._has_room(record):
                self._drop(next(iter(self._ended)))
            if not self._has_room(record):
                raise Refused(INTERNAL_ERROR, "The agent has as many tasks under way as it takes; try again later.")
            self._records[record.id] = record
            self._by_message[record.owner, record.message.message_id] = record
            self._note_size(record)
            self._note_place(record)

    def get(self, task_id: str, owner: str) -> TaskRecord | None:
        """Return a task; `None` if there is none of that id, or it is somebody else's."""
        with self._lock:
            self._drop_expired()
            record = self._records.get(task_id)
            return record if record is not None and record.owner == owner else None

    def find_sent(self, owner: str, message: Message) -> TaskRecord | None:
        """Return the task that this very message began, if it was sent before: the answer to that was lost."""
        with self._lock:
            self._drop_expired()
            record = self._by_message.get((owner, message.message_id))
        if record is None or record.message.parts != message.parts:
            return None
        return record if message.context_id in (None, record.context_id) else None

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
