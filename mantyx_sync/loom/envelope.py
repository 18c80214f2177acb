"""From the answer of a Loom tool to its result object, or to the service's refusal (loom §1.5). Does no I/O."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Mapping

from ..errors import MantyxProtocolError
from .errors import request_error

if TYPE_CHECKING:
    from ..mcp.results import McpResult

__all__ = ["read_result", "without"]


def read_result(tool: str, result: McpResult, secret: str | None = None) -> Mapping[str, Any]:
    """Return the result object of a call: structured content, else the JSON in the text.

    Args:
        secret: Left out of an error, should the service quote it there.

    Raises:
        LoomRequestError: The service refused the call, in its own form or as plain text.
        MantyxProtocolError: The answer holds no object.
    """
    content = result.structured_content
    found: Mapping[str, Any] | None = content if isinstance(content, Mapping) else _json_object(result.text)
    if not result.is_error:
        if found is None:
            raise MantyxProtocolError(f"{tool}: the service's answer holds no JSON object")
        return found
    refusal: Any = found.get("error") if found is not None else None
    if not isinstance(refusal, Mapping) or not isinstance(refusal.get("code"), str):
        # Found before the tool ran: an unknown tool, or arguments that do not fit its schema. Plain text.
        raise request_error(tool, "INVALID_REQUEST", without(result.text, secret))
    message = refusal.get("message")
    raise request_error(
        tool,
        refusal["code"],
        without(message, secret) if isinstance(message, str) else "",
        retryable=refusal.get("retryable") is True,
        payload=_json_object(without(json.dumps(dict(found or {})), secret)),
    )


def without(text: str, secret: str | None) -> str:
    """Return a text with a secret left out of it."""
    return text.replace(secret, "***") if secret else text


def _json_object(text: str) -> Mapping[str, Any] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
