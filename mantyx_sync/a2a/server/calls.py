"""What callers ask of our A2A server: bytes -> checked calls, and the refusals that become JSON-RPC errors (a2a §5).

Does no I/O. Which version is spoken follows from the method's name, as both are served at one URL; the
`A2A-Version` header is looked at only for a version that nobody here speaks.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any, Dict, Mapping, NoReturn, Tuple, Union

from ..dialects import V03, V1, Dialect, Operation, operation_of
from ..objects import ACTIVE_STATES, INTERRUPTED_STATES, TERMINAL_STATES, SendParams, UnknownPart, normal_state
from ..reading import WrongObject, read_send_params
from ..rpc import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    VERSION_NOT_SUPPORTED,
    write_error,
)
from . import strict_json

__all__ = [
    "Call",
    "ListQuery",
    "Refused",
    "invalid_params",
    "page_token",
    "read_call",
    "read_list_query",
    "read_send",
    "read_task_id",
    "write_failure",
    "write_success",
]

RequestId = Union[str, int, None]

MAX_ID_CHARS = 1024
"""Ids of callers are kept with tasks, so their length is bounded."""
DEFAULT_PAGE_SIZE = 50
MAX_PAGE_SIZE = 100

_STATES = ACTIVE_STATES | INTERRUPTED_STATES | TERMINAL_STATES


class Refused(Exception):
    """A call that is not carried out: the error of its JSON-RPC response."""

    def __init__(self, code: int, message: str, violations: Tuple[Tuple[str, str], ...] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.violations = violations
        self.dialect: Dialect = V1
        self.request_id: RequestId = None

    def about(self, dialect: Dialect, request_id: RequestId) -> Refused:
        """Say whose refusal this is."""
        self.dialect, self.request_id = dialect, request_id
        return self


def invalid_params(where: str, problem: str) -> Refused:
    """Return the refusal of a parameter: `message.role is required`."""
    return Refused(INVALID_PARAMS, f"Invalid parameters: {where} {problem}", ((where, problem),))


@dataclass(frozen=True)
class Call:
    """A request that could be read."""

    request_id: RequestId
    dialect: Dialect
    operation: Operation
    params: Mapping[str, Any] = field(repr=False)


def read_call(body: bytes, version: str) -> Call:
    """Read the envelope of a request.

    Args:
        body: The body of the HTTP request.
        version: The `A2A-Version` header; empty where there is none.

    Raises:
        Refused: It is no JSON-RPC request, or of a method or version that is not served.
    """
    assumed = V1 if version.strip()[:1] not in ("", "0") else V03  # without a header a caller speaks 0.3
    try:
        wire = strict_json.loads(body)
    except ValueError:
        problem = "The body is not JSON in UTF-8, or is nested too deeply."
        raise Refused(PARSE_ERROR, problem).about(assumed, None) from None
    request_id = wire.get("id") if isinstance(wire, dict) else None
    if isinstance(request_id, bool) or not isinstance(request_id, (str, int, type(None))):
        raise Refused(INVALID_REQUEST, "The request's id must be a string, a whole number or null.").about(
            assumed, None
        )

    def refuse(code: int, message: str, dialect: Dialect = assumed) -> NoReturn:
        raise Refused(code, message).about(dialect, request_id)

    if not isinstance(wire, dict):
        refuse(INVALID_REQUEST, "The request must be a JSON object; batches are not served.")
    if wire.get("jsonrpc") != "2.0":
        refuse(INVALID_REQUEST, "The request's jsonrpc must be '2.0'.")
    method = wire.get("method")
    if not isinstance(method, str) or not method:
        refuse(INVALID_REQUEST, "The request's method must be a non-empty string.")
    known = operation_of(method)
    if known is None:
        refuse(METHOD_NOT_FOUND, f"There is no method {method[:80]!r}.")
    dialect, operation = known
    # A caller of 1.0 without a header, or with that of 0.3, is served all the same: its method says what it speaks.
    if dialect is V1 and version.strip() and version.strip().partition(".")[0] not in ("0", "1"):
        refuse(VERSION_NOT_SUPPORTED, f"A2A version {version.strip()[:40]!r} is not supported; 1.0 and 0.3 are.", V1)
    params = wire.get("params")
    if params is None:
        params = {}
    if not isinstance(params, dict):
        raise invalid_params("params", "must be an object").about(dialect, request_id)
    return Call(request_id, dialect, operation, params)


def read_send(params: Mapping[str, Any]) -> SendParams:
    """Read the parameters of a send.

    Raises:
        Refused: The message is not one that a caller can send; the field is named.
    """
    try:
        send = read_send_params(params)
    except WrongObject as wrong:
        raise invalid_params(wrong.field, wrong.problem) from None
    message = send.message
    if not message.role:
        raise invalid_params("message.role", "is required")
    if message.role != "user":
        wanted = "ROLE_USER (in 0.3: user)"
        raise invalid_params("message.role", f"must be {wanted}")
    if not message.message_id:
        raise invalid_params("message.messageId", "is required")
    ids = {"messageId": message.message_id, "contextId": message.context_id, "taskId": message.task_id}
    for name, value in ids.items():
        if value is not None and len(value) > MAX_ID_CHARS:
            raise invalid_params(f"message.{name}", f"must have at most {MAX_ID_CHARS} characters")
    if not message.parts:
        raise invalid_params("message.parts", "must have at least one part")
    for i, part in enumerate(message.parts):
        if isinstance(part, UnknownPart):
            raise invalid_params(f"message.parts[{i}]", "must have text, a file or data")
    return send


def read_task_id(params: Mapping[str, Any]) -> Tuple[str, int | None]:
    """Read the parameters of what is asked about one task: its id, and how much of its history to show.

    Raises:
        Refused: A parameter is missing or of a wrong type.
    """
    task_id = params.get("id")
    if task_id is None or task_id == "":
        raise invalid_params("id", "is required")
    if not isinstance(task_id, str):
        raise invalid_params("id", "must be a string")
    return task_id, _whole(params, "historyLength", 0)


@dataclass(frozen=True)
class ListQuery:
    """Which tasks to list, and how. `before` is the place that a page token stands for."""

    context_id: str | None = None
    state: str | None = None
    changed_since: float | None = None
    before: int | None = None
    page_size: int = DEFAULT_PAGE_SIZE
    history_length: int | None = None
    with_artifacts: bool = False


def read_list_query(params: Mapping[str, Any]) -> ListQuery:
    """Read the parameters of `ListTasks`.

    Raises:
        Refused: A parameter is of a wrong type or outside its range.
    """
    texts: Dict[str, str] = {}
    for name in ("contextId", "status", "pageToken", "statusTimestampAfter"):
        value = params.get(name)
        if value is not None and not isinstance(value, str):
            raise invalid_params(name, "must be a string")
        texts[name] = value or ""
    state = normal_state(texts["status"])
    if state not in _STATES:
        raise invalid_params("status", "must be a task state such as TASK_STATE_WORKING")
    with_artifacts = params.get("includeArtifacts")
    if with_artifacts is not None and not isinstance(with_artifacts, bool):
        raise invalid_params("includeArtifacts", "must be true or false")
    page_size = _whole(params, "pageSize", 1, MAX_PAGE_SIZE)
    return ListQuery(
        context_id=texts["contextId"] or None,
        state=None if state == "unknown" else state,
        changed_since=_moment(texts["statusTimestampAfter"]) if texts["statusTimestampAfter"] else None,
        before=_place(texts["pageToken"]) if texts["pageToken"] else None,
        page_size=DEFAULT_PAGE_SIZE if page_size is None else page_size,
        history_length=_whole(params, "historyLength", 0),
        with_artifacts=bool(with_artifacts),
    )


def page_token(place: int) -> str:
    """Return the token for the page behind `place`."""
    return base64.urlsafe_b64encode(f"before:{place}".encode()).decode("ascii")


def _place(token: str) -> int:
    try:
        word, _, number = base64.urlsafe_b64decode(token.encode("ascii")).decode("ascii").partition(":")
        if word == "before" and number.isdigit() and len(number) < 20:
            return int(number)
    except (ValueError, binascii.Error):
        pass
    raise invalid_params("pageToken", "must be the nextPageToken of an earlier answer")


def _moment(text: str) -> float:
    """Read an ISO 8601 time with any number of digits behind the second, as a POSIX time."""
    head, dot, rest = text.partition(".")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    zone = rest[len(digits) :] if dot else ""
    written = head + zone
    written = written[:-1] + "+00:00" if written[-1:] in ("Z", "z") else written
    try:
        moment = datetime.fromisoformat(written)
        if dot and not digits:
            raise ValueError
        moment += timedelta(microseconds=int(digits[:6].ljust(6, "0")) if digits else 0)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=timezone.utc)
        return moment.timestamp()
    except (ValueError, OverflowError):
        raise invalid_params("statusTimestampAfter", "must be a time such as 2026-01-31T12:00:00Z") from None


def _whole(params: Mapping[str, Any], name: str, low: int, high: int | None = None) -> int | None:
    value = params.get(name)
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():  # JSON has one kind of number
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < low or (high is not None and value > high):
        allowed = f"{low} or above" if high is None else f"from {low} to {high}"
        raise invalid_params(name, f"must be a whole number {allowed}")
    return value


def write_success(call: Call, result: Mapping[str, Any]) -> Dict[str, Any]:
    """Write the response of a call that was carried out."""
    return {"jsonrpc": "2.0", "id": call.request_id, "result": result}


def write_failure(refused: Refused) -> Dict[str, Any]:
    """Write the response of a call that was refused."""
    error = write_error(refused.dialect, refused.code, refused.message, refused.violations)
    return {"jsonrpc": "2.0", "id": refused.request_id, "error": error}
