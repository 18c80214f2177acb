"""One answer of an agent, event by event, however it comes: streamed, in one piece, or by asking for the task."""

from __future__ import annotations

import logging
import time
from collections import deque
from types import TracebackType
from typing import Any, Callable, Deque, Dict, Tuple

from ...errors import cut
from ...tools.cancellation import Cancellation
from ..dialects import Operation
from ..objects import ArtifactUpdate, Event, Message, StatusUpdate, Task
from ..reading import WrongObject, read_event, read_task
from ..rpc import METHOD_NOT_FOUND, UNSUPPORTED_OPERATION
from .allowance import Allowance
from .connection import Connection
from .errors import (
    A2ACancelled,
    A2AConnectionError,
    A2AError,
    A2AProtocolError,
    A2ARequestError,
    A2AStatusError,
    A2ATaskError,
    A2ATimeoutError,
)
from .event_reader import EventReader, StreamBroken
from .folding import Fold
from .questions import Questions, is_same_question
from .replies import A2AReply, reply_to

__all__ = ["A2AStream", "poll_delay"]

log = logging.getLogger(__name__)

FIRST_POLL_S = 0.5
LAST_POLL_S = 5.0
POLL_TIMEOUT_S = 30.0
MAX_FAILED_POLLS = 5
STALE_PATIENCE_S = 30.0
"""How long a question that was answered is taken for the old one when it is still there."""
CANCEL_TIMEOUT_S = 2.0
INTERRUPT_CANCEL_TIMEOUT_S = 0.5


def poll_delay(attempt: int) -> float:
    """Return the seconds to wait before asking for a task, `attempt` 0 being the first time (a2a §4.3)."""
    return min(LAST_POLL_S, FIRST_POLL_S * 1.5 ** min(attempt, 16))


class A2AStream:
    """The events of one answer, in order; iterate over it, or call `reply()`. Use it as a context manager.

    Nothing is sent before the first event is asked for. It ends when the task is over or waits for its caller, or with
    the one message that is the answer. A stream that breaks is no end: the task is asked for until it is settled. One
    thread at a time reads; `close()` may be called from any, and leaves the task to the agent.

    Attributes:
        task: The task as the events so far make it; `None` before it is known.
        message: The answer, if it is a message.
    """

    def __init__(
        self,
        connect: Callable[[Allowance], Connection],
        allowance: Allowance,
        *,
        operation: Operation,
        params: Callable[[Connection], Dict[str, Any]],
        may_stream: Callable[[], bool],
        no_streaming: Callable[[], None],
        questions: Questions,
        task_id: str | None = None,
        cancels: bool = True,
        last_event_id: str | None = None,
    ) -> None:
        """Take what to do; used by the client.

        Args:
            operation: `SEND` (streamed if the agent streams) or `RESUBSCRIBE`.
            params: Makes the parameters in the agent's version.
            may_stream: Tells whether the agent, which is known by then, streams.
            no_streaming: Called when it turns out that it does not.
            task_id: The task that the message, or the subscription, is for.
            cancels: Whether the agent is asked to cancel the task when the time is over.
            last_event_id: Where to resume a subscription.
        """
        self._connect = connect
        self._hangup = Cancellation()
        self._allowance = Allowance(allowance.deadline, self._hangup, *allowance.cancelled)
        self._operation = operation
        self._params = params
        self._may_stream = may_stream
        self._no_streaming = no_streaming
        self._questions = questions
        self._task_id = task_id
        self._cancels = cancels
        self._old_question = questions.of(task_id) if operation is Operation.SEND else None
        self._fold = Fold()
        self._ready: Deque[Event] = deque()
        # What to do next: functions, not methods. A circle would keep the connection of a forgotten stream open.
        self._step: Callable[[A2AStream], None] | None = A2AStream._begin
        self._connection: Connection | None = None
        self._reader: EventReader | None = None
        self._polls = self._failed_polls = 0
        self._stale_since: float | None = None
        self._is_reading = False
        self.last_event_id = last_event_id
        """The id of the last event that carried one, for agents that resume by it."""

    @property
    def task(self) -> Task | None:
        """The task as the events so far make it."""
        return self._fold.task

    @property
    def message(self) -> Message | None:
        """The answer, if it is a message."""
        return self._fold.message

    def __iter__(self) -> A2AStream:
        return self

    def __enter__(self) -> A2AStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __next__(self) -> Event:
        """Return the next event. Blocks.

        Raises:
            StopIteration: The task is settled, or the message was the answer.
            A2AError: What went wrong; at the deadline `A2ATimeoutError`, after the agent was asked to cancel.
        """
        self._is_reading = True  # before the look whether it is closed: `close` looks at them the other way round
        try:
            while not self._ready:
                if self._is_closed or self._step is None:
                    self._leave_reader()
                    raise StopIteration
                self._take_step(self._step)
        finally:
            self._is_reading = False
        return self._ready.popleft()

    def _take_step(self, step: Callable[[A2AStream], None]) -> None:
        try:
            step(self)
        except BaseException as error:
            self._step = None
            self._leave_reader()
            if isinstance(error, A2ACancelled) and self._is_closed:
                return
            told = self._told(error)
            if told is error:
                raise
            raise told from error.__cause__

    def reply(self) -> A2AReply:
        """Read to the end and return what the answer amounts to. Blocks.

        Raises:
            A2ATaskError: The task failed, was rejected or canceled, or waits for credentials.
            A2AError: As iterating.
        """
        for _ in self:
            pass
        return self.result()

    def result(self) -> A2AReply:
        """Return what the events read so far amount to.

        Raises:
            A2ATaskError: As `reply`.
            A2ACancelled: The stream was closed before there was anything.
        """
        if self.task is None and self.message is None:
            raise A2ACancelled("the stream was closed before the agent answered", task_id=self._task_id)
        reply = reply_to(self.task, self.message)
        if reply.state not in ("failed", "rejected", "canceled", "auth-required"):
            return reply
        what = "waits for credentials" if reply.state == "auth-required" else f"ended as {reply.state}"
        said = f": {cut(reply.text)}" if reply.text.strip() else ""
        raise A2ATaskError(f"{self._label}: task {reply.task_id} {what}{said}", state=reply.state, reply=reply)

    def close(self) -> None:
        """Stop reading. The agent goes on with the task. Does not block; any thread may call it."""
        self._hangup.set()
        if not self._is_reading:  # whoever reads is woken, and sees to it
            self._leave_reader()

    @property
    def _label(self) -> str:
        return self._connection.label if self._connection is not None else "the A2A agent"

    @property
    def _is_closed(self) -> bool:
        return self._hangup.is_set()

    # ------------------------------------------------------------------------------------------- steps

    def _begin(self) -> None:
        connection = self._connection = self._connect(self._allowance)
        if not self._may_stream():
            self._step = A2AStream._ask_plainly if self._operation is Operation.SEND else A2AStream._poll_at_once
            return
        operation = Operation.STREAM if self._operation is Operation.SEND else Operation.RESUBSCRIBE
        try:
            headers = {"Last-Event-ID": self.last_event_id} if self.last_event_id else None
            answer = connection.ask(operation, self._params(connection), self._allowance, headers)
        except A2ARequestError as error:
            self._do_without(error, (METHOD_NOT_FOUND, UNSUPPORTED_OPERATION))
        else:
            self._take_answer(answer)

    def _do_without(self, error: A2ARequestError, codes: Tuple[int, ...]) -> None:
        """Go on without a stream that was refused, if that can be: `codes` say that nothing has been done yet."""
        if self._operation is Operation.SEND:
            if error.rpc_code not in codes:
                raise error
            self._step = A2AStream._ask_plainly
        else:  # it is over, which agents say with various codes; or the card promised too much
            self._step = A2AStream._poll_at_once
        log.info("%s: it does not stream this (%d); asking without", self._label, error.rpc_code)

    def _ask_plainly(self) -> None:
        connection = self._connection
        assert connection is not None
        answer = connection.ask(Operation.SEND, self._params(connection), self._allowance)
        if self._may_stream():
            self._no_streaming()  # this was the second try, and it is understood
        self._take_answer(answer)

    def _take_answer(self, answer: object) -> None:
        if isinstance(answer, EventReader):
            self._reader = answer
            self._step = A2AStream._read
            return
        event = self._event(answer)
        if event is None:
            raise A2AProtocolError(f"{self._label}: the answer is neither a task nor a message")
        self._take(event)

    def _read(self) -> None:
        reader, connection = self._reader, self._connection
        assert reader is not None
        assert connection is not None
        try:
            result = reader.next(self._allowance)
        except StreamBroken as broken:
            self._leave_reader()
            if self.task is None and self._task_id is None:
                text = f"{connection.label}: {broken} before anything was known; the agent may be at work"
                raise A2AConnectionError(text, cause=broken) from None
            log.info("%s: %s; asking for the task instead", connection.label, broken)
            self._step = A2AStream._poll_at_once
            return
        except A2ARequestError as error:
            if self.task is not None:
                raise
            # Some agents begin the stream before they look whether they can give it.
            self._leave_reader()
            self._do_without(error, (METHOD_NOT_FOUND,))
            return
        self.last_event_id = reader.last_id or self.last_event_id
        if result is None:
            self._leave_reader()
            if self.task is None and self._task_id is None:
                raise A2AProtocolError(f"{connection.label}: the stream ended before anything came")
            self._step = A2AStream._poll_at_once
            return
        event = self._event(result)
        if event is None:
            log.debug("%s: an event of a kind that is not known was skipped", connection.label)
            return
        if self._is_of_another(event):
            log.warning("%s: an event of another task was skipped", connection.label)
            return
        knew_task = self.task is not None
        self._take(event)
        if self._step is not A2AStream._read:
            self._leave_reader()
        elif self.task is not None and not knew_task:
            reader.be_idle_at_most(connection.idle_timeout)

    def _poll_at_once(self) -> None:
        self._step = A2AStream._poll
        self._ask_for_task()

    def _poll(self) -> None:
        connection = self._connection
        assert connection is not None
        self._allowance.pause(poll_delay(self._polls))
        self._polls += 1
        connection.check(self._allowance)
        self._ask_for_task()

    def _ask_for_task(self) -> None:
        connection = self._connection
        task_id = (self.task.id if self.task is not None else None) or self._task_id
        assert connection is not None
        if not task_id:
            raise A2AProtocolError(f"{connection.label}: the task that goes on has no id to ask for it by")
        try:
            params = connection.tenanted({"id": task_id})
            limit = self._allowance.at_most(POLL_TIMEOUT_S)
            result = connection.call(Operation.GET, params, limit)
        except (A2AConnectionError, A2AStatusError, A2ATimeoutError) as error:
            status = error.status or 500
            self._failed_polls += 1
            if self._failed_polls >= MAX_FAILED_POLLS or (400 <= status < 500 and status not in (408, 429)):
                raise
            log.info("%s: asking for task %s failed (%s)", connection.label, task_id, type(error).__name__)
            return
        self._failed_polls = 0
        task = self._task(result)
        if task.id != task_id:
            raise A2AProtocolError(f"{connection.label}: asked for task {task_id}, it answered with another one")
        self._take_polled(task)

    def _take_polled(self, task: Task) -> None:
        old = self.task
        self._fold.feed(task)
        if self._is_settled():
            self._end()
        if old is None or task != old:
            self._ready.append(task)

    # ------------------------------------------------------------------------------------------- events

    def _event(self, result: object) -> Event | None:
        try:
            return read_event(result)
        except WrongObject as error:
            raise self._wrong(error) from None

    def _task(self, result: object) -> Task:
        try:
            event = read_event(result)
            return event if isinstance(event, Task) else read_task(result)
        except WrongObject as error:
            raise self._wrong(error) from None

    def _wrong(self, error: WrongObject) -> A2AProtocolError:
        return A2AProtocolError(f"{self._label}: the answer does not follow the protocol: {error}")

    def _take(self, event: Event) -> None:
        """Take an event of the answer itself, and decide how to go on."""
        self._fold.feed(event)
        self._ready.append(event)
        if self._fold.message is not None or self._is_settled():
            self._end()
        elif self._reader is None or (isinstance(event, StatusUpdate) and event.final):
            self._step = A2AStream._poll if self._reader is None else A2AStream._poll_at_once

    def _is_of_another(self, event: Event) -> bool:
        if self.task is None or not isinstance(event, (StatusUpdate, ArtifactUpdate)):
            return False
        return event.task_id not in ("", self.task.id)

    def _is_settled(self) -> bool:
        task = self.task
        if task is None or not task.is_settled:
            return False
        if self._old_question is None or not is_same_question(self._old_question, task.status):
            return True
        # The question that this message answers: not the agent's answer yet, unless it stays (a2a §4.4).
        now = time.monotonic()
        if self._stale_since is None:
            self._stale_since = now
        return now - self._stale_since >= STALE_PATIENCE_S

    def _end(self) -> None:
        self._step = None
        if self.task is not None:
            self._questions.note(self.task)

    def _leave_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def _told(self, error: BaseException) -> BaseException:
        """Return the error to raise, which knows the task. If the caller waits no longer, the agent is told to stop."""
        task, connection = self.task, self._connection
        if connection is None:
            return error
        if task is None or not task.id:
            if isinstance(error, A2ATimeoutError) and self._operation is Operation.SEND:
                return A2ATimeoutError(f"{error.message}; the agent may be at work", task_id=self._task_id)
            return error
        if isinstance(error, (A2ACancelled, A2AConnectionError)):
            error.task_id = task.id
        is_given_up = isinstance(error, (A2ATimeoutError, A2ACancelled)) or not isinstance(error, Exception)
        if not is_given_up or task.is_terminal:
            return error
        is_stopped = self._cancels and self._cancel(connection, task.id, isinstance(error, Exception))
        if not isinstance(error, A2ATimeoutError):
            return error
        what = "it was cancelled" if is_stopped else f"it may go on: look with get_task({task.id!r})"
        text = f"{connection.label}: task {task.id} was not over in the time allowed; {what}"
        return A2ATimeoutError(text, task_id=task.id, context_id=task.context_id, cause=error.__cause__)

    def _cancel(self, connection: Connection, task_id: str, has_time: bool) -> bool:
        limit = Allowance.of(CANCEL_TIMEOUT_S if has_time else INTERRUPT_CANCEL_TIMEOUT_S)
        try:
            connection.call(Operation.CANCEL, connection.tenanted({"id": task_id}), limit)
        except A2AError as failure:
            log.info("%s: task %s could not be cancelled (%s)", connection.label, task_id, type(failure).__name__)
            return False
        return True
