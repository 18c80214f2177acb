"""Bodies of HTTP for our A2A server: reading those of requests, making those of answers (PEP 3333, a2a §5)."""

from __future__ import annotations

import contextlib
import json
import logging
import time
from typing import Any, Callable, Iterator, List, Mapping, Sequence, Tuple

from ...transport.sse_writing import HEARTBEAT, sse_event
from ..dialects import V1
from ..rpc import INTERNAL_ERROR
from .calls import Call, Refused, write_failure, write_success
from .inputs import JSON
from .service import Following

__all__ = [
    "EventBody",
    "TooLarge",
    "json_answer",
    "pass_by",
    "plain_answer",
    "read_body",
    "version_of",
]

Environ = Mapping[str, Any]
StartResponse = Callable[..., Any]

log = logging.getLogger(__name__)


class EventBody:
    """An iterator over the pieces of the body. The server calls `close` at its end, however that comes.

    The task as it is comes first and at once. Then the events, and a comment after each `heartbeat` seconds of
    silence: writing it is how a server notices that its caller has gone. A fault of ours ends it with an error.
    """

    def __init__(self, call: Call, following: Following, heartbeat: float) -> None:
        """Wait for nothing yet."""
        self._call = call
        self._following = following
        self._heartbeat = heartbeat
        self._has_begun = False
        self._is_over = False

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if self._is_over:
            raise StopIteration
        try:
            return self._next()
        except StopIteration:
            raise
        except Exception:
            log.exception("A2A %s: our own fault", self._call.operation.value)
            self._is_over = True
            fault = Refused(INTERNAL_ERROR, "The agent failed to answer.")
            failure = write_failure(fault.about(self._call.dialect, self._call.request_id))
            return sse_event(failure, event="error" if self._call.dialect is V1 else None)

    def _next(self) -> bytes:
        write_event = self._call.dialect.write_event
        if not self._has_begun:
            self._has_begun = True
            return self._frame(write_event(self._following.first))
        events = self._following.subscription.next(time.monotonic() + self._heartbeat)
        if events is None:
            raise StopIteration
        if not events:
            return HEARTBEAT
        return b"".join(self._frame(write_event(event)) for event in events)

    def close(self) -> None:
        """Follow the task no longer; it goes on."""
        self._following.end()

    def _frame(self, event: Mapping[str, Any]) -> bytes:
        return sse_event(write_success(self._call, event))


class TooLarge(Exception):
    """A body that is not read."""


def read_body(environ: Environ, limit: int) -> bytes:
    """Read exactly the request's body."""
    source = environ["wsgi.input"]
    if environ.get("CONTENT_LENGTH"):
        length = _length_of(environ)
        if length > limit:
            pass_by(environ)
            raise TooLarge
        return _read(source, length)
    if not environ.get("wsgi.input_terminated"):  # there is nothing, or no telling where it ends
        return b""
    body = _read(source, limit + 1)
    if len(body) > limit:
        raise TooLarge
    return body


def _length_of(environ: Environ) -> int:
    given = environ.get("CONTENT_LENGTH") or ""
    # ASCII: a superscript is a digit, too, and no number.
    return int(given) if given.isascii() and given.isdigit() and len(given) < 20 else 0


def _read(source: Any, length: int) -> bytes:
    pieces = []
    while length > 0:
        piece = source.read(min(length, 1024 * 1024))
        if not piece:  # the caller has gone in the middle: what there is will not be JSON
            break
        pieces.append(piece)
        length -= len(piece)
    return b"".join(pieces)


def pass_by(environ: Environ) -> None:
    """Read a body that nobody wants, within reason: a server that closes on unread bytes may lose our answer."""
    left = min(_length_of(environ), 16 * 1024 * 1024)
    with contextlib.suppress(OSError):
        while left > 0:
            piece = environ["wsgi.input"].read(min(left, 1024 * 1024))
            if not piece:
                return
            left -= len(piece)


def version_of(query: str) -> str:
    """Return the version that the query asks for: the header's other form."""
    for pair in query.split("&"):
        name, _, value = pair.partition("=")
        if name.lower() == "a2a-version":
            return value
    return ""


def json_answer(start_response: StartResponse, body: Mapping[str, Any], status: str = "200 OK") -> List[bytes]:
    """Begin an answer that is JSON; return its body."""
    # ASCII alone: lone halves of surrogate pairs, and line ends of Unicode that a reader might split at, are escaped.
    data = json.dumps(body, separators=(",", ":")).encode("ascii")
    start_response(status, [("Content-Type", JSON), ("Content-Length", str(len(data))), ("Cache-Control", "no-store")])
    return [data]


def plain_answer(start_response: StartResponse, status: str, headers: Sequence[Tuple[str, str]] = ()) -> List[bytes]:
    """Begin an answer without JSON-RPC; return its body, the status in words."""
    data = status.partition(" ")[2].encode("ascii") + b"\n"
    start_response(
        status, [*headers, ("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(data)))]
    )
    return [data]
