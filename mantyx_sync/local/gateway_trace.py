"""The `trace` of an event (spacefix, "call, read, prompt"): a client's trace context, or one made for it."""

from __future__ import annotations

import re
import secrets
import time
import uuid
from typing import Any, Mapping, Optional

from mantyx_sync import limits

__all__ = ["is_traceparent", "make_trace"]

_TRACEPARENT = re.compile(r"(?!ff)([0-9a-f]{2})-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")


def make_trace(given: Mapping[str, Any]) -> dict[str, Any]:
    """Build the `trace` of an event.

    Args:
        given: What the client sent under `traceparent` and `tracestate`, in headers or in `_meta`.
    """
    traceparent, tracestate = given.get("traceparent"), given.get("tracestate")
    trace: dict[str, Any] = {}
    if isinstance(traceparent, str) and is_traceparent(traceparent):
        trace["traceparent"] = traceparent
        state = _cut(tracestate)
        if state:
            trace["tracestate"] = state
    else:
        trace["traceparent"] = f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01"
    trace["requestId"] = str(uuid.uuid4())
    trace["sentAt"] = int(time.time() * 1000)
    return trace


def is_traceparent(text: str) -> bool:
    """Tell whether a text is a valid W3C traceparent; later versions may carry more than version 00."""
    match = _TRACEPARENT.fullmatch(text)
    return match is not None and not (match.group(1) == "00" and match.group(2))


def _cut(tracestate: Any) -> Optional[str]:
    return tracestate[: limits.SPACEFIX_MAX_TRACESTATE_CHARS] if isinstance(tracestate, str) else None
