"""Server-sent events as a server writes them: the headers of such an answer, its events and its comments (PEP 3333).

Does no I/O. What is read of them is in `sse`.
"""

from __future__ import annotations

import json
import math
from typing import List, Tuple

__all__ = ["EVENT_STREAM", "HEARTBEAT", "sse_event", "sse_retry", "stream_headers"]

EVENT_STREAM = "text/event-stream"

HEARTBEAT = b": still here\n\n"
"""A comment, which readers pass by: writing it is how a server notices that its caller has gone."""


def stream_headers(charset: str | None = None) -> List[Tuple[str, str]]:
    """Return the headers of a streamed answer: a list for each, as a server may add to it.

    None of them is about the connection: those are the server's own affair.
    """
    return [
        ("Content-Type", EVENT_STREAM if charset is None else f"{EVENT_STREAM}; charset={charset}"),
        ("Cache-Control", "no-cache, no-transform"),  # no-transform: compressing would hold pieces back
        ("X-Accel-Buffering", "no"),
    ]


def sse_event(payload: object, *, event: str | None = None, event_id: str | None = None) -> bytes:
    """Write an event whose data is JSON.

    Args:
        payload: What has a JSON form.
        event: The event's name; without one it is a `message`.
        event_id: What the reader's `Last-Event-ID` says when it comes back. In both, what is not printable ASCII, such
            as the end of a line, becomes a question mark.

    Raises:
        TypeError, ValueError: `payload` has no JSON form.
    """
    # ASCII on one line: a reader that splits at any of Unicode's line ends gets it whole (field note A2A-10).
    try:
        data = json.dumps(payload, separators=(",", ":"), allow_nan=False)
    except ValueError:  # NaN and infinity, which no browser's JSON.parse takes
        data = json.dumps(_finite(payload), separators=(",", ":"), allow_nan=False)
    fields = (("id", event_id), ("event", event))
    lines = [f"{name}: {_one_line(text)}\n" for name, text in fields if text is not None]
    return f"{''.join(lines)}data: {data}\n\n".encode("ascii")


def _one_line(text: str) -> str:
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if " " <= char <= "~" else "?" for char in text)


def _finite(value: object) -> object:
    """Return the value with `None` in place of numbers that JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value


def sse_retry(seconds: float) -> bytes:
    """Write how long a reader is to wait before it comes back."""
    return f"retry: {round(seconds * 1000)}\n\n".encode("ascii")
