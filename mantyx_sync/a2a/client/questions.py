"""What agents asked, so that an old question is not taken for the answer to what it was told. Does no I/O."""

from __future__ import annotations

from typing import Dict

from ..objects import INTERRUPTED_STATES, Task, TaskStatus

__all__ = ["Questions", "is_same_question"]


class Questions:
    """What agents asked last, by task: a task that is told the answer may show the old question once more.

    Bounded; thread-safe.
    """

    def __init__(self, max_tasks: int = 1000) -> None:
        # Each step on a dict is whole by itself. A lock could be held by another thread at the time of a fork.
        self._asked: Dict[str, TaskStatus] = {}
        self._max_tasks = max_tasks

    def note(self, task: Task) -> None:
        """Remember what a task waits for; forget it once the task is over."""
        self._asked.pop(task.id, None)
        if task.state in INTERRUPTED_STATES:
            self._asked[task.id] = task.status
            while len(self._asked) > self._max_tasks:
                try:
                    del self._asked[next(iter(self._asked))]
                except (KeyError, StopIteration, RuntimeError):  # another thread was quicker
                    continue

    def of(self, task_id: str | None) -> TaskStatus | None:
        """Return the status with which a task asked."""
        return None if task_id is None else self._asked.get(task_id)


def is_same_question(old: TaskStatus, new: TaskStatus) -> bool:
    """Tell whether `new` is `old` once more, and no question that came after its answer.

    The official server of 0.3 takes the message out of a status that is answered, and leaves the rest.
    """
    if old.state != new.state:
        return False
    if new.message is not None:
        return old.message is not None and old.message.message_id == new.message.message_id
    return old.message is not None or (new.timestamp is not None and old.timestamp == new.timestamp)
