"""How an agent's answer reaches an MCP client (spacefix, "How the result reaches the client"). Does no I/O."""

from __future__ import annotations

from typing import Any, Mapping

from mantyx_sync.local.gateway_json import to_json
from mantyx_sync.local.gateway_registration import RegisteredPrompt, RegisteredResource

__all__ = ["prompt_result", "read_result", "tool_error", "tool_result"]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else to_json(value)


def tool_result(value: Any) -> dict[str, Any]:
    """Wrap what a tool returned: a result with `content` is passed through untouched, all else is one text block."""
    if isinstance(value, dict) and isinstance(value.get("content"), list):
        return value
    return {"content": [{"type": "text", "text": _text(value)}]}


def tool_error(message: str) -> dict[str, Any]:
    """Tell of a failure where the model reads it."""
    return {"content": [{"type": "text", "text": message}], "isError": True}


def read_result(value: Any, resource: RegisteredResource) -> dict[str, Any]:
    """Wrap what a resource holds, under the type it was registered with."""
    return {"contents": [{"uri": resource.uri, "mimeType": resource.mime_type, "text": _text(value)}]}


def prompt_result(value: Any, prompt: RegisteredPrompt) -> Mapping[str, Any]:
    """Wrap what a prompt came to: a result with `messages` is passed through, all else is one message of the user."""
    if isinstance(value, dict) and isinstance(value.get("messages"), list):
        return value
    message = {"role": "user", "content": {"type": "text", "text": _text(value)}}
    return {**({} if prompt.description is None else {"description": prompt.description}), "messages": [message]}
