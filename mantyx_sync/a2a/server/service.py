"""What can be asked of an agent that we serve, apart from HTTP and from how the versions write it (a2a §2, §5)."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, replace
from typing import Any, Dict, Mapping, Tuple

from ..dialects import Dialect
from ..objects import Message, SendParams, Task
from ..rpc import (
    PUSH_NOTIFICATION_NOT_SUPPORTED,
    TASK_NOT_CANCELABLE,
    TASK_NOT_FOUND,
    UNSUPPORTED_OPERATION,
)
from .calls import Refused, invalid_params, read_list_query, read_send, read_task_id
from .inputs import JSON, accepts, read_input
from .runner import AgentRunner, Job
from .strict_json import weight
from .task_store import TaskStore
from .tasks import Subscription, TaskRecord, shortened

__all__ = ["AgentService", "Following"]


@dataclass(frozen=True)
class Following:
    """A task that somebody follows: what its stream begins with, and what comes then."""

    record: TaskRecord
    subscription: Subscription
    first: Task

    def end(self) -> None:
        """Follow no longer; the task goes on."""
        self.record.unfollow(self.subscription)


class AgentService:
    """The tasks of one process. All methods may be called from any thread; `owner` is who calls."""

    def __init__(
        self, store: TaskStore, runner: AgentRunner, *, input_modes: Tuple[str, ...], block_timeout: float | None
    ) -> None:
        """Start nothing yet.

        Args:
            input_modes: The media types that messages may have.
            block_timeout: Seconds a send waits for its task; `None` waits as long as that takes.
        """
        self._store = store
        self._runner = runner
        self._input_modes = input_modes
        self._block_timeout = block_timeout

    def send(self, params: Mapping[str, Any], owner: str, size: int) -> Task:
        """Take on a task; return it when it is over or asks something, or at once if the caller wants that.

        Raises:
            Refused: The message cannot be taken.
        """
        send = read_send(params)
        record, _ = self._accept(send, owner, size)
        configuration = send.configuration
        if configuration.blocking is not False:
            self._wait(record)
        return shortened(record.task(), configuration.history_length)

    def stream(self, params: Mapping[str, Any], owner: str, size: int) -> Following:
        """Take on a task and follow it from its beginning.

        Raises:
            Refused: The message cannot be taken.
        """
        send = read_send(params)
        record, subscription = self._accept(send, owner, size)
        return Following(record, subscription, shortened(subscription.task, send.configuration.history_length))

    def resubscribe(self, params: Mapping[str, Any], owner: str) -> Following:
        """Follow a task that is under way.

        Raises:
            Refused: There is none of that id, or it is over.
        """
        task_id, _ = read_task_id(params)
        record = self._find(task_id, owner)
        subscription = record.follow()
        if subscription.task.is_terminal:
            state = subscription.task.state
            raise Refused(UNSUPPORTED_OPERATION, f"The task is over ({state}): ask for it instead of following it.")
        return Following(record, subscription, subscription.task)

    def get(self, params: Mapping[str, Any], owner: str) -> Task:
        """Return a task as it stands.

        Raises:
            Refused: There is none of that id.
        """
        task_id, history_length = read_task_id(params)
        return shortened(self._find(task_id, owner).task(), history_length)

    def cancel(self, params: Mapping[str, Any], owner: str) -> Task:
        """Stop the work on a task and return it, canceled. Blocks while the platform stops the run.

        Raises:
            Refused: There is none of that id, or it is over, or is so before it could be stopped.
        """
        task_id, _ = read_task_id(params)
        record = self._find(task_id, owner)
        if not record.is_over:
            self._runner.cancel(record)
            if record.state == "canceled":
                return record.task()
        raise Refused(TASK_NOT_CANCELABLE, f"The task is over ({record.state}) and cannot be canceled.")

    def list(self, params: Mapping[str, Any], owner: str, dialect: Dialect) -> Dict[str, Any]:
        """Return a page of the caller's tasks, last changed first, as it is written.

        Raises:
            Refused: A parameter is not allowed.
        """
        query = read_list_query(params)
        tasks, token, total = self._store.list(owner, query)
        return {
            "tasks": [dialect.write_task(task) for task in tasks],
            "nextPageToken": token,
            "pageSize": query.page_size,
            "totalSize": total,
        }

    def close(self, timeout: float) -> None:
        """End all tasks. Waits for their threads, `timeout` seconds at most."""
        self._runner.close(timeout)

    def _find(self, task_id: str, owner: str) -> TaskRecord:
        record = self._store.get(task_id, owner)
        if record is None:  # or somebody else's, which is not for this caller to know
            raise Refused(TASK_NOT_FOUND, "There is no such task.")
        return record

    def _accept(self, send: SendParams, owner: str, size: int) -> Tuple[TaskRecord, Subscription]:
        message = send.message
        size = max(size, weight([message.metadata, *(part.raw for part in message.parts)]))
        if send.configuration.push_notification is not None:
            raise Refused(PUSH_NOTIFICATION_NOT_SUPPORTED, "Push notifications are not supported.")
        if message.task_id is not None:
            return self._go_on(message.task_id, message, owner, size)
        given = read_input(message, self._input_modes)
        named = message.context_id
        message = replace(message, task_id=str(uuid.uuid4()), context_id=named or str(uuid.uuid4()), raw={})
        record = TaskRecord(message, owner, named_context=named, size=size, on_change=self._store.changed)
        modes = send.configuration.accepted_output_modes
        job = Job(record, given, accepts_data=not modes or accepts(modes, JSON))
        subscription = record.follow()
        again = self._store.add(record)
        if again is not None:  # sent again, since the answer was lost: the task it began is the answer
            return again, again.follow()
        try:
            self._runner.submit(job)
        except BaseException as error:
            record.finish("failed", error.message if isinstance(error, Refused) else None)
            raise
        return record, subscription

    def _go_on(self, task_id: str, message: Message, owner: str, size: int) -> Tuple[TaskRecord, Subscription]:
        """Take a message for a task that exists: the answer to what it asks."""
        record = self._find(task_id, owner)
        if message.context_id not in (None, record.context_id):
            raise invalid_params("message.contextId", "must be the context of the task, or be left out")
        if any(known.message_id == message.message_id for known in record.task().history):  # sent again
            return record, record.follow()
        if record.state == "input-required":
            given = read_input(message, self._input_modes)
            if given.attachments:
                raise invalid_params("message.parts", "must be text or data: this is the answer to a question")
            message = replace(message, task_id=task_id, context_id=record.context_id, raw={})
            subscription = record.answer(message, given.prompt, size)
            if subscription is not None:
                return record, subscription
        advice = "send a message with its contextId alone to go on with the conversation"
        if record.is_over:
            raise Refused(UNSUPPORTED_OPERATION, f"The task is over ({record.state}); {advice}.")
        raise Refused(UNSUPPORTED_OPERATION, f"The task is under way and asks for nothing; {advice}.")

    def _wait(self, record: TaskRecord) -> None:
        deadline = None if self._block_timeout is None else time.monotonic() + self._block_timeout
        # In slices, so that a signal handler which raises (a worker's time-out) ends the wait wherever it arrives.
        while not record.settled.is_set():
            left = 1.0 if deadline is None else deadline - time.monotonic()
            if left <= 0:
                return
            record.settled.wait(min(left, 1.0))
