"""The JSON-RPC envelope of A2A and its errors (a2a §2, §3.3). Does no I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, Iterable, List, Mapping, Tuple

from .dialects import V1, Dialect

__all__ = [
    "CONTENT_TYPE_NOT_SUPPORTED",
    "EXTENDED_CARD_NOT_CONFIGURED",
    "EXTENSION_SUPPORT_REQUIRED",
    "INTERNAL_ERROR",
    "INVALID_AGENT_RESPONSE",
    "INVALID_PARAMS",
    "INVALID_REQUEST",
    "METHOD_NOT_FOUND",
    "PARSE_ERROR",
    "PUSH_NOTIFICATION_NOT_SUPPORTED",
    "REASONS",
    "TASK_NOT_CANCELABLE",
    "TASK_NOT_FOUND",
    "UNSUPPORTED_OPERATION",
    "VERSION_NOT_SUPPORTED",
    "RpcError",
    "read_error",
    "write_error",
]

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
TASK_NOT_FOUND = -32001
TASK_NOT_CANCELABLE = -32002
PUSH_NOTIFICATION_NOT_SUPPORTED = -32003
UNSUPPORTED_OPERATION = -32004
CONTENT_TYPE_NOT_SUPPORTED = -32005
INVALID_AGENT_RESPONSE = -32006
EXTENDED_CARD_NOT_CONFIGURED = -32007
EXTENSION_SUPPORT_REQUIRED = -32008
VERSION_NOT_SUPPORTED = -32009

REASONS: Mapping[int, str] = {
    INVALID_REQUEST: "INVALID_REQUEST",
    INVALID_PARAMS: "INVALID_PARAMS",
    INTERNAL_ERROR: "INTERNAL_ERROR",
    TASK_NOT_FOUND: "TASK_NOT_FOUND",
    TASK_NOT_CANCELABLE: "TASK_NOT_CANCELABLE",
    PUSH_NOTIFICATION_NOT_SUPPORTED: "PUSH_NOTIFICATION_NOT_SUPPORTED",
    UNSUPPORTED_OPERATION: "UNSUPPORTED_OPERATION",
    CONTENT_TYPE_NOT_SUPPORTED: "CONTENT_TYPE_NOT_SUPPORTED",
    INVALID_AGENT_RESPONSE: "INVALID_AGENT_RESPONSE",
    EXTENDED_CARD_NOT_CONFIGURED: "EXTENDED_AGENT_CARD_NOT_CONFIGURED",
    EXTENSION_SUPPORT_REQUIRED: "EXTENSION_SUPPORT_REQUIRED",
    VERSION_NOT_SUPPORTED: "VERSION_NOT_SUPPORTED",
}

_ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo"
_BAD_REQUEST = "type.googleapis.com/google.rpc.BadRequest"
_DOMAIN = "a2a-protocol.org"


@dataclass(frozen=True)
class RpcError:
    """The `error` of a response. `reason` is the word 1.0 sends along, or the one that belongs to the code."""

    code: int
    message: str
    reason: str | None = None
    violations: Tuple[Tuple[str, str], ...] = ()
    """What is wrong with the parameters: (field, description)."""
    data: Any = field(default=None, repr=False)


def write_error(
    dialect: Dialect, code: int, message: str, violations: Iterable[Tuple[str, str]] = ()
) -> Dict[str, Any]:
    """Write the `error` of a response: in 1.0 `data` is an array of typed objects, in 0.3 it stays empty."""
    error: Dict[str, Any] = {"code": code, "message": message}
    if dialect is not V1:
        if code == VERSION_NOT_SUPPORTED:  # a code that version does not have
            error["code"] = INTERNAL_ERROR
        return error
    reason = REASONS.get(code)
    if reason is None or code in (PARSE_ERROR, METHOD_NOT_FOUND):
        return error
    data: List[Dict[str, Any]] = [{"@type": _ERROR_INFO, "reason": reason, "domain": _DOMAIN, "metadata": {}}]
    fields = [{"field": name, "description": text} for name, text in violations]
    if fields:
        data.append({"@type": _BAD_REQUEST, "fieldViolations": fields})
    error["data"] = data
    return error


def read_error(value: object) -> RpcError:
    """Read the `error` of a response, in whatever shape it is: nothing about an error is worth failing over."""
    if not isinstance(value, Mapping):
        return RpcError(INTERNAL_ERROR, value if isinstance(value, str) else "the agent gave no reason", data=value)
    code, message, data = value.get("code"), value.get("message"), value.get("data")
    number = code if isinstance(code, int) and not isinstance(code, bool) else INTERNAL_ERROR
    reason = REASONS.get(number)
    violations = []
    for item in data if isinstance(data, list) else ():
        if not isinstance(item, Mapping):
            continue
        if isinstance(item.get("reason"), str):
            reason = item["reason"]
        fields = item.get("fieldViolations")
        for violation in fields if isinstance(fields, list) else ():
            if isinstance(violation, Mapping):
                violations.append((str(violation.get("field", "")), str(violation.get("description", ""))))
    text = message if isinstance(message, str) and message.strip() else "the agent gave no reason"
    return RpcError(number, text, reason, tuple(violations), data)
