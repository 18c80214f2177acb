"""What a route of the embedded server answers with, and how it reads and refuses a request. Does no I/O."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from typing import Any, Callable, Optional, Union

from mantyx_sync import limits
from mantyx_sync.local.checks import InvalidRequest
from mantyx_sync.local.frames import FrameLog, PieceLog
from mantyx_sync.local.http import Request, Response, json_response

__all__ = [
    "Answer",
    "KnownAnswer",
    "Later",
    "NoAnswer",
    "Refused",
    "RelayedResponse",
    "StreamResponse",
    "read_body",
    "read_integer",
    "read_last_seq",
    "read_limit",
    "read_metadata_filter",
    "read_object",
    "refuse",
    "wants",
]


@dataclass(frozen=True)
class StreamResponse:
    """Answer with the frames of a log after the first `last_seq`, for as long as it grows.

    `headers` come before those that every event stream has, `more_headers` after them.
    """

    log: FrameLog
    last_seq: int = 0
    headers: tuple[tuple[str, str], ...] = ()
    content_type: str = "text/event-stream; charset=utf-8"
    more_headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class RelayedResponse:
    """Answer with what somebody else said: status, headers, and a body whose pieces are sent one by one as they come.

    `headers` are all there are but those that say where the body ends. `length` announces its size; with None each
    piece is a chunk of its own.
    """

    status: int
    headers: tuple[tuple[str, str], ...]
    log: PieceLog
    length: Optional[int] = None


@dataclass(frozen=True)
class NoAnswer:
    """End the connection without a byte of answer: `fin` or `rst`."""

    how: str = "fin"


class Later:
    """An answer that is not known yet. Any thread may give it, once.

    `on_left` is called on the socket loop's thread if the client leaves before it came.
    """

    def __init__(self, on_left: Callable[[], None] | None = None) -> None:
        self._lock = threading.Lock()
        self._answer: Optional[KnownAnswer] = None
        self._then: Optional[Callable[[KnownAnswer], None]] = None
        self._on_left = on_left

    def give(self, answer: KnownAnswer) -> None:
        """Say what the answer is."""
        with self._lock:
            self._answer, then = answer, self._then
        if then is not None:
            then(answer)

    def then(self, function: Callable[[KnownAnswer], None]) -> None:
        """Have a function called with the answer, now or when it comes, on whatever thread gives it."""
        with self._lock:
            self._then, answer = function, self._answer
        if answer is not None:
            function(answer)

    def left(self) -> None:
        """Take notice that nobody waits for the answer any more."""
        if self._on_left is not None:
            self._on_left()


KnownAnswer = Union[Response, StreamResponse, RelayedResponse, NoAnswer]
Answer = Union[KnownAnswer, Later]


class Refused(Exception):
    """Ends the handling of a request with an error answer."""

    def __init__(self, response: Response) -> None:
        super().__init__(response.status)
        self.response = response


def refuse(status: int, error: str, message: str, *headers: tuple[str, str], **fields: Any) -> Refused:
    """Build a refusal in the platform's form (http §1)."""
    return Refused(json_response(status, {"error": error, "message": message, **fields}, *headers))


def read_body(request: Request) -> Any:
    """Decode a JSON body. Raises `InvalidRequest`."""
    try:
        return json.loads(request.body, parse_constant=_no_constant)
    except ValueError:
        raise InvalidRequest("the body must be JSON") from None
    except RecursionError:
        raise InvalidRequest("the body is nested too deeply") from None


def read_object(request: Request) -> dict[str, Any]:
    """Decode a JSON body that is an object. Raises `InvalidRequest`."""
    body = read_body(request)
    if not isinstance(body, dict):
        raise InvalidRequest("the body must be a JSON object")
    return body


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def read_integer(request: Request, name: str, low: int, high: int, default: int) -> int:
    """Read a number from the query. Raises `InvalidRequest`."""
    text = request.first(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 16) or not low <= int(text) <= high:
        raise InvalidRequest(f"{name} must be an integer from {low} to {high}, got {text[:60]!r}")
    return int(text)


def read_limit(request: Request) -> int:
    """Read the page size of a listing. Raises `InvalidRequest`."""
    return read_integer(request, "limit", 1, limits.MAX_PAGE_SIZE, limits.DEFAULT_PAGE_SIZE)


def read_last_seq(request: Request) -> int:
    """Read where a stream is to go on.

    Header and query may both be there, and a URL that is opened again may hold an old number: the newer one counts.
    """
    given = (request.headers.get("last-event-id"), request.first("lastSeq"))
    return max(
        (int(text) for text in given if text and text.isascii() and text.isdigit() and len(text) < 16), default=0
    )


def read_metadata_filter(request: Request) -> tuple[tuple[str, str], ...]:
    """Read the repeatable `metadata=key:value` of a listing. Raises `InvalidRequest`."""
    pairs = []
    for text in request.query.get("metadata", ()):
        key, colon, value = text.partition(":")
        if not colon or not key:
            raise InvalidRequest(f"metadata must be key:value, got {text!r}")
        pairs.append((key, value))
    return tuple(pairs)


def wants(request: Request, name: str) -> bool:
    """Tell whether a yes-or-no parameter of the query says yes."""
    return request.first(name) in ("1", "true")
