"""The A2A task that the running code is at work for: how a tool finds out who asks, and hands files to them."""

from __future__ import annotations

import contextvars
from typing import Optional

from ..tools.results import ToolResultFile
from .objects import FilePart
from .tasks import TaskRecord

__all__ = ["CURRENT", "CurrentTask", "current_task"]


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


CURRENT: contextvars.ContextVar[Optional[CurrentTask]] = contextvars.ContextVar("mantyx_a2a_task", default=None)


def current_task() -> CurrentTask | None:
    """Return the A2A task that the calling code is at work for; `None` outside of one.

    For tools of an agent that an `A2AApp` serves: they run in a copy of their task's context.
    """
    return CURRENT.get()
