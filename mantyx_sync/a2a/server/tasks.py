"""A task that an A2A server has taken on: what became of it, and who follows it (a2a §3, §5).

Whoever follows a task has a queue of its own, so that a follower that has gone, or is slow, is in nobody's way.
"""

from __future__ import annotations

import threading
import time
import uuid
from dataclasses import replace
from typing import Callable, Iterable, List, Sequence, Tuple

from ...roster import Roster
from ...transport.bell import Inbox
from ..objects import (
    TERMINAL_STATES,
    Artifact,
    ArtifactUpdate,
    DataPart,
    Event,
    FilePart,
    Message,
    Part,
    StatusUpdate,
    Task,
    TaskStatus,
    TextPart,
    format_timestamp,
    is_settled,
)
from .strict_json import weight

__all__ = ["Question", "Subscription", "TaskRecord", "shortened"]

ANSWER = "answer"
"""The id of the artifact that holds what the agent says."""


def shortened(task: Task, history_length: int | None, *, with_artifacts: bool = True) -> Task:
    """Return a task with the last `history_length` messages of its history; `None` leaves all of them."""
    if history_length is not None:
        task = replace(task, history=task.history[len(task.history) - history_length :] if history_length else ())
    return task if with_artifacts else replace(task, artifacts=())


class Subscription:
    """What happens to a task from one moment on: first the task as it was, then each update. For one reader.

    It ends with the task, and also when the task asks its caller something.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        """The task at that moment."""
        self._inbox: Inbox[Event | None] = Inbox()
        self._is_over = task.is_settled

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


def _size_of(part: Part) -> int:
    """Tell about how much memory a part takes."""
    if isinstance(part, TextPart):
        return len(part.text)
    if isinstance(part, FilePart):
        return len(part.data or part.url or "")
    return weight(part.data) if isinstance(part, DataPart) else 0


def _joined(first: Event, second: Event) -> Event:
    assert isinstance(first, ArtifactUpdate)
    assert isinstance(second, ArtifactUpdate)
    text = first.artifact.text + second.artifact.text
    return replace(first, artifact=replace(first.artifact, parts=(TextPart(text),)))


class Question:
    """What a task asks its caller, until the answer comes."""

    def __init__(self) -> None:
        self._inbox: Inbox[str | None] = Inbox()

    def put(self, text: str | None) -> None:
        """Give the answer; `None` if none will come. Does not block."""
        self._inbox.put(text)

    def get(self, deadline: float) -> str | None:
        """Wait for the answer; `None` if none will come, since nobody wants the task any more.

        Raises:
            TimeoutError: There was none until `deadline` (monotonic clock).
        """
        return self._inbox.get(deadline)


class TaskRecord:
    """One task. All methods may be called from any thread; none blocks or does I/O.

    A task that is over stays as it is: whatever is reported later has no effect.
    """

    def __init__(
        self,
        message: Message,
        owner: str,
        *,
        named_context: str | None = None,
        size: int = 0,
        on_change: Callable[[TaskRecord], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Begin as `submitted`.

        Args:
            message: What the caller said, with the ids of task and context filled in.
            owner: Whose task this is.
            named_context: The context that the caller named, if it named one.
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
        self.named_context = named_context
        self.size = size
        self.ended = threading.Event()
        """Set for good when the task is over."""
        self.settled = threading.Event()
        """Set while nothing happens unless the caller acts: the task is over, or asks something."""
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
        self._question: Question | None = None
        self.is_behind: Callable[[], bool] = lambda: False
        """Tells whether the run has said things that are not reported yet."""
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
        with self._lock:
            if self.is_over:
                return
            if self._status.state == "input-required":  # it was said before the question; a tool may be quicker
                self._history = (*self._history, self._message(text))
                return
            self._change_status("working", text)
        self._on_change(self)

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
            self._note_size(given)
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
            self._note_size(whole)
            self._publish(self._answer(whole, append=False, last_chunk=True))
        self.finish("completed")

    def finish(self, state: str, text: str | None = None) -> bool:
        """End the task in a terminal state, with a message if `text` is given. False if it was over before."""
        return self._set_status(state, text)

    # What it asks its caller

    def ask(self, text: str) -> Question | None:
        """Ask the caller something; streams and waiting sends end with the question.

        Returns:
            Where the answer will be; `None` if the task is over, or asks something already.
        """
        question = Question()
        with self._lock:
            if self.is_over or self._question is not None:
                return None
            self._question = question
        self._set_status("input-required", text)
        return question

    def answer(self, message: Message, text: str, size: int = 0) -> Subscription | None:
        """Give the caller's answer, which takes `size` bytes; follow what comes of it. `None` if nothing is asked."""
        with self._lock:
            question, self._question = self._question, None
            if question is None or self._status.state != "input-required":
                self._question = question
                return None
            self._change_status("working", None)
            self._history = (*self._history, message)
            self.size += size
            subscription = Subscription(self._snapshot())
            self._followers.add(subscription)
        self._on_change(self)
        question.put(text)
        return subscription

    def drop_question(self) -> None:
        """Have who waits for an answer wait no longer."""
        question = self._question
        if question is not None:
            question.put(None)

    def withdraw(self, question: Question) -> None:
        """Go on without the answer, if it has not come."""
        with self._lock:
            is_open = self._question is question
            if is_open:
                self._question = None
        if is_open:
            self._set_status("working", None)

    def _answer(self, parts: Tuple[Part, ...], *, append: bool, last_chunk: bool = False) -> ArtifactUpdate:
        return ArtifactUpdate(self.id, Artifact(ANSWER, parts, name=ANSWER), self.context_id, append, last_chunk)

    def _set_status(self, state: str, text: str | None) -> bool:
        with self._lock:
            if self.is_over:
                return False
            self._change_status(state, text)
        self._on_change(self)
        return True

    def _change_status(self, state: str, text: str | None) -> None:
        """Change the status. Called with the lock held."""
        message = None if text is None else self._message(text)
        if self._status.message is not None:  # what was said before is history now
            self._history = (*self._history, self._status.message)
        self.changed_at = self._clock()
        self._status = TaskStatus(state, message, format_timestamp(self.changed_at))
        is_last = is_settled(state)
        self._publish(StatusUpdate(self.id, self._status, self.context_id, final=is_last))
        if not is_last:
            self.settled.clear()
            return
        if state in TERMINAL_STATES:
            self.ended.set()
            self.drop_question()
        self.settled.set()
        for follower in self._followers.items():
            follower.put(None)
            self._followers.discard(follower)

    def _note_size(self, parts: Iterable[Part]) -> None:
        """Count what is kept from now on. Called with the lock held."""
        self.size += sum(_size_of(part) for part in parts)

    def _message(self, text: str) -> Message:
        message = Message(str(uuid.uuid4()), "agent", (TextPart(text),), self.context_id, self.id)
        self._note_size(message.parts)
        return message

    # Who follows it

    def follow(self) -> Subscription:
        """Return what happens from now on."""
        with self._lock:
            subscription = Subscription(self._snapshot())
            if not subscription.task.is_settled:
                self._followers.add(subscription)
            return subscription

    def unfollow(self, subscription: Subscription) -> None:
        """Stop adding to a subscription."""
        self._followers.discard(subscription)

    def _publish(self, event: Event) -> None:
        for follower in self._followers.items():
            follower.put(event)
