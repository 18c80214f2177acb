"""The A2A task that the running code is at work for: how a tool finds out who asks, and hands files to them."""

from __future__ import annotations

import contextvars
import time
from typing import Optional

from ...checks import seconds, text
from ...errors import ToolError
from ...tools.results import ToolResultFile
from ..objects import FilePart
from .tasks import TaskRecord

__all__ = ["CURRENT", "CurrentTask", "ask_caller", "current_task"]

ASK_TIMEOUT_S = 240.0  # the platform waits 300 s for the result of a tool
CATCH_UP_S = 1.0


class CurrentTask:
    """An A2A task that is being carried out, as the tools of its run see it."""

    def __init__(self, record: TaskRecord) -> None:
        """Called by the server."""
        self._record = record

    def __repr__(self) -> str:
        return f"CurrentTask({self.id!r})"

    @property
    def id(self) -> str:
        """The id of the task."""
        return self._record.id

    @property
    def context_id(self) -> str:
        """The id of the conversation that the task belongs to."""
        return self._record.context_id

    @property
    def caller(self) -> str:
        """Who asks, as `authorize` said; empty where everybody may."""
        return self._record.owner

    def share(self, *files: ToolResultFile) -> None:
        """Hand files to the caller, as an artifact of the task. What a tool returns is for the model alone.

        Does not block; after the end of the task it has no effect.
        """
        for file in files:
            if not isinstance(file, ToolResultFile):
                raise TypeError(f"share takes ToolResultFile objects, not {type(file).__name__}")
        self._record.add_files(FilePart(file.data, filename=file.filename, media_type=file.mime_type) for file in files)

    def ask(self, question: str, timeout: float = ASK_TIMEOUT_S) -> str:
        """Ask the caller something and return the answer: the task is `input-required` meanwhile. Blocks.

        Who waits for the task gets the question; the answer is a message with the task's id. The task keeps its
        place among those that run, and the time of its run goes on.

        Args:
            question: What the caller is asked.
            timeout: Seconds to wait. The platform waits for the result of a tool no longer than 300.

        Raises:
            ToolError: There was no answer in that time, the task is over, or another question is open; for the model
                to read.
        """
        text(question, "question")
        deadline = time.monotonic() + seconds(timeout, "timeout")
        self._catch_up()
        asked = self._record.ask(question)
        if asked is None:
            raise ToolError("the caller cannot be asked now: the task is over, or another question is open")
        try:
            answer = asked.get(deadline)
        except TimeoutError:
            raise ToolError("the caller did not answer in time") from None
        finally:
            self._record.withdraw(asked)
        if answer is None:
            raise ToolError("the task is over")
        return answer

    def _catch_up(self) -> None:
        """Wait until what the agent said before it called the tool has gone out: a tool may be quicker than that."""
        until = time.monotonic() + CATCH_UP_S
        while self._record.is_behind() and not self._record.is_over and time.monotonic() < until:
            self._record.ended.wait(0.005)


CURRENT: contextvars.ContextVar[Optional[CurrentTask]] = contextvars.ContextVar("mantyx_a2a_task", default=None)


def current_task() -> CurrentTask | None:
    """Return the A2A task that the calling code is at work for; `None` outside of one.

    For tools of an agent that an `A2AApp` serves: they run in a copy of their task's context.
    """
    return CURRENT.get()


def ask_caller(question: str) -> str:
    """Ask who gave you this task a question, and wait for the answer. Use it only when you cannot go on without.

    Args:
        question: The question, complete in itself.
    """
    # For the `tools` of an agent that an `A2AApp` serves. What stands above is what the model reads.
    task = current_task()
    if task is None:
        raise ToolError("there is nobody to ask")
    return task.ask(question)
