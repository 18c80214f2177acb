"""What the gateway sends on the stream (spacefix, "The event stream"): frames in, values out. Does no I/O."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Optional, Union

from ..transport.secret import Secret
from ..transport.sse import parse_frame
from .trace import TraceContext

__all__ = ["CallEvent", "Event", "Malformed", "Ready", "read_event"]

KINDS = ("call", "read", "prompt")

_ID = re.compile(r'\s*\{\s*"id"\s*:\s*"([^"\\]{1,200})"')


@dataclass(frozen=True)
class Ready:
    """The gateway took the registration; the connection id is a credential."""

    connection_id: str = field(repr=False)


@dataclass(frozen=True)
class CallEvent:
    """A tool to be called, a resource to be read, or a prompt to be made.

    Attributes:
        kind: `call`, `read` or `prompt`.
        id: What the answer quotes.
        name: Of the tool or prompt, or the address of the resource.
        args: As they came; an empty object where there were none.
        trace: Where the call belongs, if the gateway said so.
    """

    kind: str
    id: str
    name: str
    args: Any = field(default_factory=dict, repr=False)
    trace: Optional[TraceContext] = None


@dataclass(frozen=True)
class Malformed:
    """An event that cannot be used.

    Attributes:
        kind: The event's name.
        reason: What is wrong with it.
        id: The call to be told, where at least that could be read.
    """

    kind: str
    reason: str
    id: Optional[str] = None


Event = Union[Ready, CallEvent, Malformed]


def read_event(frame: str) -> Event | None:
    """Read one complete frame; `None` for comments and for events that are not known."""
    fields = parse_frame(frame)
    kind = fields.event or "message"
    if kind != "ready" and kind not in KINDS:
        return None
    text = fields.data or ""
    try:
        payload = json.loads(text)
    except (ValueError, RecursionError) as error:  # also a number with more digits than Python reads
        found = _ID.match(text)
        return Malformed(kind, f"its data cannot be read ({type(error).__name__})", found[1] if found else None)
    if not isinstance(payload, dict):
        return Malformed(kind, "its data is not an object")
    if kind == "ready":
        connection_id = payload.get("connectionId")
        if not isinstance(connection_id, str) or not connection_id:
            return Malformed(kind, "it names no connection")
        return Ready(Secret(connection_id))
    call_id, name = payload.get("id"), payload.get("name")
    if not isinstance(call_id, str) or not call_id:
        return Malformed(kind, "it has no id")
    if not isinstance(name, str):
        return Malformed(kind, "it has no name", call_id)
    args = payload.get("args")
    return CallEvent(
        kind, call_id, name, {} if args is None else args, TraceContext.from_wire(payload.get("trace"), call_id)
    )
