"""What A2A peers say to each other: parts, messages, artifacts, tasks and their updates (a2a §3).

The objects belong to no version of the protocol. `reading` makes them of what either version sends, `wire_v1` and
`wire_v03` write them. States are written as in 0.3 (`"input-required"`), roles `"user"` and `"agent"`.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import field
from datetime import datetime, timezone
from typing import Any, Iterable, Mapping, Optional, Tuple, Union

from mantyx_sync.reprs import dataclass

__all__ = [
    "ACTIVE_STATES",
    "INTERRUPTED_STATES",
    "TERMINAL_STATES",
    "Artifact",
    "ArtifactUpdate",
    "DataPart",
    "Event",
    "FilePart",
    "Message",
    "Part",
    "SendConfiguration",
    "SendParams",
    "StatusUpdate",
    "Task",
    "TaskStatus",
    "TextPart",
    "UnknownPart",
    "format_timestamp",
    "is_settled",
    "joined_text",
    "normal_state",
]

ACTIVE_STATES = frozenset({"submitted", "working", "unknown"})
INTERRUPTED_STATES = frozenset({"input-required", "auth-required"})
TERMINAL_STATES = frozenset({"completed", "failed", "canceled", "rejected"})

Json = Mapping[str, Any]


def normal_state(text: str) -> str:
    """Return a task's state in the one spelling used here: `TASK_STATE_INPUT_REQUIRED` becomes `input-required`.

    A state that no version knows is kept; like `unknown` it counts as one in which the work goes on.
    """
    state = text.strip().upper()
    state = state[len("TASK_STATE_") :] if state.startswith("TASK_STATE_") else state
    state = state.lower().replace("_", "-")
    if state == "cancelled":  # agents that spell it so are in use
        return "canceled"
    return "unknown" if state in ("", "unspecified") else state


def is_settled(state: str) -> bool:
    """Tell whether nothing more happens to a task in this state unless its caller acts."""
    return state in TERMINAL_STATES or state in INTERRUPTED_STATES


def format_timestamp(moment: float) -> str:
    """Write a POSIX time as A2A has it: ISO 8601, UTC, milliseconds."""
    text = datetime.fromtimestamp(moment, timezone.utc).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


@dataclass(frozen=True)
class TextPart:
    """A piece of text."""

    text: str
    media_type: str | None = None
    metadata: Json | None = field(default=None, repr=False)
    raw: Json = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True)
class FilePart:
    """A file: its bytes in base64 (`data`), or where it is (`url`)."""

    data: str | None = field(default=None, repr=False)
    url: str | None = None
    filename: str | None = None
    media_type: str | None = None
    metadata: Json | None = field(default=None, repr=False)
    raw: Json = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def from_bytes(cls, content: bytes, filename: str | None = None, media_type: str | None = None) -> FilePart:
        """Make a part of bytes."""
        return cls(base64.b64encode(content).decode("ascii"), filename=filename, media_type=media_type)

    def content(self) -> bytes | None:
        """Return the file's bytes; `None` if only its address is known.

        Raises:
            ValueError: The base64 is damaged.
        """
        if self.data is None:
            return None
        # What is allowed on the wire: either alphabet, with or without padding.
        text = self.data.replace("-", "+").replace("_", "/").rstrip("=")
        try:
            return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
        except (binascii.Error, ValueError):
            raise ValueError("not base64") from None


@dataclass(frozen=True)
class DataPart:
    """A JSON value: any in 1.0, an object in 0.3."""

    data: Any
    media_type: str | None = None
    metadata: Json | None = field(default=None, repr=False)
    raw: Json = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True)
class UnknownPart:
    """A part of a kind that is not known here, kept as it came."""

    raw: Json = field(repr=False)


Part = Union[TextPart, FilePart, DataPart, UnknownPart]


def joined_text(parts: Iterable[Part]) -> str:
    """Return the text parts, one after the other on lines of their own."""
    return "\n".join(part.text for part in parts if isinstance(part, TextPart))


@dataclass(frozen=True)
class Message:
    """One message. `role` is `"user"` or `"agent"`, and empty where the peer left it out."""

    message_id: str
    role: str
    parts: Tuple[Part, ...] = field(repr=False)
    context_id: str | None = None
    task_id: str | None = None
    metadata: Json | None = field(default=None, repr=False)
    extensions: Tuple[str, ...] = ()
    reference_task_ids: Tuple[str, ...] = ()
    raw: Json = field(default_factory=dict, repr=False, compare=False)

    @property
    def text(self) -> str:
        """The text parts, joined by newlines."""
        return joined_text(self.parts)


@dataclass(frozen=True)
class TaskStatus:
    """Where a task stands. `state` is one of the words above, or one that is not known here."""

    state: str = "unknown"
    message: Message | None = None
    timestamp: str | None = None
    raw: Json = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True)
class Artifact:
    """Something a task produced."""

    artifact_id: str
    parts: Tuple[Part, ...] = field(repr=False)
    name: str | None = None
    description: str | None = None
    metadata: Json | None = field(default=None, repr=False)
    extensions: Tuple[str, ...] = ()
    raw: Json = field(default_factory=dict, repr=False, compare=False)

    @property
    def text(self) -> str:
        """The text parts, joined by newlines."""
        return joined_text(self.parts)


@dataclass(frozen=True)
class Task:
    """A piece of work that a peer has taken on."""

    id: str
    context_id: str | None = None
    status: TaskStatus = field(default_factory=TaskStatus)
    artifacts: Tuple[Artifact, ...] = ()
    history: Tuple[Message, ...] = field(default=(), repr=False)
    metadata: Json | None = field(default=None, repr=False)
    raw: Json = field(default_factory=dict, repr=False, compare=False)

    @property
    def state(self) -> str:
        """The state of the status."""
        return self.status.state

    @property
    def is_terminal(self) -> bool:
        """True if the task is over for good."""
        return self.state in TERMINAL_STATES

    @property
    def is_settled(self) -> bool:
        """True if the task is over, or waits for its caller."""
        return is_settled(self.state)


@dataclass(frozen=True)
class StatusUpdate:
    """A task's status has changed. `final` exists in 0.3 alone: nothing follows on this stream."""

    task_id: str
    status: TaskStatus
    context_id: str | None = None
    final: bool = False
    metadata: Json | None = field(default=None, repr=False)
    raw: Json = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True)
class ArtifactUpdate:
    """An artifact of a task, or with `append` more parts of one that was sent before."""

    task_id: str
    artifact: Artifact
    context_id: str | None = None
    append: bool = False
    last_chunk: bool = False
    metadata: Json | None = field(default=None, repr=False)
    raw: Json = field(default_factory=dict, repr=False, compare=False)


Event = Union[Task, Message, StatusUpdate, ArtifactUpdate]
"""What a send answers, and what a stream carries."""


@dataclass(frozen=True)
class SendConfiguration:
    """How the sender wants to be answered. `blocking` is `None` where it did not say."""

    accepted_output_modes: Tuple[str, ...] = ()
    history_length: int | None = None
    blocking: bool | None = None
    push_notification: Json | None = field(default=None, repr=False)
    raw: Json = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True)
class SendParams:
    """The parameters of a send, streamed or not."""

    message: Message
    configuration: SendConfiguration = field(default_factory=SendConfiguration)
    metadata: Json | None = field(default=None, repr=False)
    tenant: Optional[str] = None
