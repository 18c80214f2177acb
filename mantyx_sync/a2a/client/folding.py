"""Events of a task -> the task as it stands. Does no I/O; client and server fold alike."""

from __future__ import annotations

from dataclasses import replace
from typing import Tuple, Union

from ..objects import Artifact, ArtifactUpdate, Event, Message, Part, StatusUpdate, Task, TextPart, is_settled

__all__ = ["Fold", "apply_update"]


def apply_update(task: Task, update: Union[StatusUpdate, ArtifactUpdate]) -> Task:
    """Return the task after an update (a2a §4.3). The status of a terminal task changes no more."""
    if isinstance(update, StatusUpdate):
        if task.is_terminal:
            return task
        metadata = {**(task.metadata or {}), **update.metadata} if update.metadata else task.metadata
        return replace(
            task, status=update.status, context_id=task.context_id or update.context_id, metadata=metadata, raw={}
        )
    return replace(task, artifacts=_with(task.artifacts, update), raw={})


def _with(artifacts: Tuple[Artifact, ...], update: ArtifactUpdate) -> Tuple[Artifact, ...]:
    new = update.artifact
    for i, old in enumerate(artifacts):
        if old.artifact_id == new.artifact_id:
            if update.append:
                metadata = {**(old.metadata or {}), **new.metadata} if new.metadata else old.metadata
                new = replace(old, parts=_joined(old.parts, new.parts), metadata=metadata, raw={})
            return (*artifacts[:i], new, *artifacts[i + 1 :])
    return (*artifacts, new)


def _joined(old: Tuple[Part, ...], new: Tuple[Part, ...]) -> Tuple[Part, ...]:
    """Put parts behind others. Text goes on where it broke off: agents that stream send a few words at a time."""
    if old and new:
        last, first = old[-1], new[0]
        if isinstance(last, TextPart) and isinstance(first, TextPart) and _is_alike(last, first):
            return (*old[:-1], replace(last, text=last.text + first.text, raw={}), *new[1:])
    return old + new


def _is_alike(last: TextPart, first: TextPart) -> bool:
    return last.media_type == first.media_type and last.metadata == first.metadata


class Fold:
    """Put the events of one answer together. `task` or `message` is what they amount to."""

    def __init__(self, task: Task | None = None) -> None:
        self.task = task
        self.message: Message | None = None
        self.is_over = False
        """True once nothing more is to come: a message, a settled task, or an update that says so."""

    def feed(self, event: Event) -> None:
        """Take the next event.

        An update for a task that was not announced makes one: agents that begin with an update are in use.
        """
        if isinstance(event, Message):
            self.message = event
            self.is_over = True
            return
        if isinstance(event, Task):
            self.task = event
        else:
            task = self.task
            if task is None or (event.task_id and event.task_id != task.id):
                task = Task(id=event.task_id, context_id=event.context_id)
            self.task = apply_update(task, event)
        said_so = isinstance(event, StatusUpdate) and event.final
        self.is_over = said_so or is_settled(self.task.state)
