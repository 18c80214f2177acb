"""JSON-RPC as MCP uses it: messages made, told apart, read from bytes and written to them. Does no I/O.

Everything here is lenient with what comes and strict with what goes: an unknown member is ignored, an id may come
back as text, an array holds messages (2025-03-26 allowed that); nothing of the kind is ever sent.
"""

from __future__ import annotations

import json
from enum import Enum
from typing import Any, Iterator, Mapping

from ..errors import cut
from ..wire import json_type, sound_text
from .errors import McpProtocolError, McpRequestError

__all__ = [
    "HANDSHAKE_VERSIONS",
    "JSON",
    "STATELESS_VERSIONS",
    "Code",
    "Kind",
    "answer_id",
    "decode",
    "encode",
    "failure",
    "given_up",
    "kind_of_message",
    "members",
    "notification",
    "progress_id",
    "request",
    "request_error",
    "response_result",
    "success",
]

HANDSHAKE_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""The revisions opened by a handshake that we speak, newest first."""

_MAX_DIGITS = 4000

STATELESS_VERSIONS = ("2026-07-28",)
"""The stateless revisions that we speak, newest first."""


class Code:
    """Error codes that mean something to a client."""

    METHOD_NOT_FOUND = -32601
    INVALID_PARAMS = -32602
    HEADER_MISMATCH = -32020
    MISSING_CAPABILITY = -32021
    UNSUPPORTED_VERSION = -32022


class Kind(Enum):
    """What a message is."""

    REQUEST = "request"
    NOTIFICATION = "notification"
    RESPONSE = "response"


def request(request_id: int, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Make a request; empty params are left out."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "id": request_id, "method": method}
    if params:
        message["params"] = params
    return message


def notification(method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Make a notification; empty params are left out."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if params:
        message["params"] = params
    return message


def given_up(request_id: int, late_after: float | None = None) -> dict[str, Any]:
    """Make the notification that nobody waits for a request any more (mcp-client §6.5).

    Args:
        request_id: Of our request.
        late_after: After how many seconds it was given up as late; `None`: its caller cancelled it.
    """
    reason = "cancelled by the caller" if late_after is None else f"timed out after {late_after:.1f}s"
    return notification("notifications/cancelled", {"requestId": request_id, "reason": reason})


def success(request_id: Any, result: Mapping[str, Any]) -> dict[str, Any]:
    """Make the response to a server's request."""
    return {"jsonrpc": "2.0", "id": request_id, "result": result}


def failure(request_id: Any, code: int, message: str) -> dict[str, Any]:
    """Make the response that refuses a server's request."""
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message}}


def kind_of_message(message: object) -> Kind | None:
    """Tell what a value is; `None` if it is no JSON-RPC message.

    A response has `result` or `error`, whatever is in them: a malformed answer is one all the same, and fails the
    request that waits for it. Its id may be missing: servers leave it out, or make one up, in the error they send with
    an HTTP status.
    """
    if not isinstance(message, Mapping):
        return None
    method = message.get("method")
    if isinstance(method, str):
        return Kind.NOTIFICATION if message.get("id") is None else Kind.REQUEST
    if method is None and ("result" in message or "error" in message):
        return Kind.RESPONSE
    # It names a request and says nothing else, which is not much of an answer to it.
    is_empty = "method" not in message and message.get("id") is not None and message.get("jsonrpc") == "2.0"
    return Kind.RESPONSE if is_empty else None


def members(value: object) -> Iterator[Mapping[str, Any]]:
    """Yield the messages in a decoded value: itself, or those in an array; what is no message is left out."""
    for item in value if isinstance(value, list) else (value,):
        if isinstance(item, Mapping) and kind_of_message(item) is not None:
            yield item


def answer_id(message: Mapping[str, Any]) -> int | None:
    """Return the id of our request that a response names: `7`, `7.0` and `"7"` are 7. `None` if it is none of ours."""
    return _id(message.get("id"))


def progress_id(message: Mapping[str, Any]) -> int | None:
    """Return the id of our request that a progress notification names by its token, `None` if it is anything else."""
    if message.get("method") != "notifications/progress":
        return None
    params = message.get("params")
    return _id(params.get("progressToken")) if isinstance(params, Mapping) else None


def _id(value: object) -> int | None:
    if type(value) is int:
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    # Ours have few digits; text that is longer is none of ours, and could be slow to read.
    if isinstance(value, str) and len(value) < 20 and value.isascii() and value.isdigit():
        return int(value)
    return None


def encode(message: Mapping[str, Any]) -> bytes:
    """Write a message as one line of UTF-8, without its end. Lone surrogates have no form there: they become U+FFFD.

    Raises:
        McpProtocolError: It is nested too deep, as what a server wants back may be.
    """
    try:
        text = json.dumps(message, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except RecursionError:
        raise McpProtocolError(f"{message.get('method') or 'an answer'}: it is nested too deep to be sent") from None
    return sound_text(text).encode("utf-8")


def decode(data: bytes | str) -> Any:
    """Read JSON; a byte order mark is skipped.

    Servers' habits are put up with, see `JSON`.

    Raises:
        ValueError: It is not JSON, not UTF-8, or nested too deep.
    """
    text = data.decode("utf-8") if isinstance(data, bytes) else data
    if text.startswith("\ufeff"):
        text = text[1:]
    try:
        return JSON.decode(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _whole_number(digits: str) -> Any:
    # Beyond what interpreters convert, which takes the older ones that do it minutes; kept as text rather than lost.
    return int(digits) if len(digits) <= _MAX_DIGITS else digits


JSON = json.JSONDecoder(strict=False, parse_int=_whole_number, parse_constant=lambda _: None)
"""Reads what servers write.

A raw control character inside a string is taken as it is, since a tool's output may hold any; NaN and the infinities
become null, and a whole number of thousands of digits becomes text.
"""


def response_result(response: Mapping[str, Any], method: str, label: str) -> Mapping[str, Any]:
    """Return the result of a response.

    Raises:
        McpRequestError: It holds an error.
        McpProtocolError: Its result is no object.
    """
    error = response.get("error")
    if error is not None:
        raise request_error(error, method, label)
    result = response.get("result")
    if not isinstance(result, Mapping):
        raise McpProtocolError(f"{label}: the result of {method} is {json_type(result)}, must be an object")
    return result


def request_error(error: object, method: str, label: str) -> McpRequestError:
    """Make the error to raise of the `error` in a response. Its text is the server's: quoted, and cut."""
    fields = error if isinstance(error, Mapping) else {"message": error}
    code, text = fields.get("code"), fields.get("message")
    code = code if type(code) is int else 0
    text = text if isinstance(text, str) else ""
    said = f": {cut(text)}" if text.strip() else ", without a message"
    return McpRequestError(
        f"{label} refused {method} with error {code}{said}",
        method=method,
        rpc_code=code,
        server_message=text,
        data=fields.get("data"),
    )
