"""From what a handler returns to the `result` of its answer (spacefix, "How the result reaches the client").

The gateway passes an object with a `content` array to the MCP client as it is, makes a string one text block, and
writes anything else as JSON into one. So:

- A `ToolResult` with files becomes content blocks: its text, then an `image`, `audio` or `resource` block a file.
- A dict that is the result of an MCP tool (`content` holds blocks) is passed through. One that merely has an entry
  `content`, a row of a table say, is sent as its JSON: passed through, it would be no valid result.
- Every other value is sent as JSON, converted as `mantyx_sync.tools.results` says.
"""

from __future__ import annotations

import base64
import json
from typing import Any, Mapping
from urllib.parse import quote

from ..errors import ToolError
from ..messages import Message
from ..tools.results import ToolResult, ToolResultFile, json_value

__all__ = ["is_error_result", "prompt_value", "resource_value", "tool_value"]

_RESULT_KEYS = frozenset({"content", "structuredContent", "isError", "_meta"})
_ROLES = ("user", "assistant")


def tool_value(value: object, name: str) -> Any:
    """Return the `result` for what a tool's handler returned.

    Raises:
        ToolError: It has no JSON form, or a file in it cannot be sent.
    """
    if isinstance(value, ToolResultFile):
        value = ToolResult(files=[value])
    if isinstance(value, ToolResult):
        text = _text_of(value.result, name)
        if not value.files:
            return text
        blocks = [{"type": "text", "text": text}] if text else []
        return {"content": blocks + [_block(file, name) for file in value.files]}
    plain = json_value(value, name)
    return _dumps(plain) if _is_mistakable(plain) else plain


def is_error_result(value: object) -> bool:
    """Tell whether a value is the result of an MCP tool that says it failed."""
    return isinstance(value, dict) and isinstance(value.get("content"), list) and value.get("isError") is True


def resource_value(value: object, name: str) -> Any:
    """Return the `result` for what a resource's handler returned: its text, or a value to be written as JSON.

    Raises:
        ToolError: It has no JSON form, or is binary.
    """
    if isinstance(value, (bytes, bytearray, memoryview)):
        try:
            return bytes(value).decode("utf-8")
        except UnicodeDecodeError:
            raise ToolError(f"resource '{name}' is not text: the gateway has no form for binary content") from None
    return json_value(value, name)


def prompt_value(value: object, name: str) -> Any:
    """Return the `result` for what a prompt's handler returned.

    A string is one message of the user. A list, or an object with a list `messages`, holds messages: strings, `Message`
    objects, or objects with `role` and `content`, where a text stands for a text block.

    Raises:
        ToolError: It has no JSON form, or a message in it cannot be sent.
    """
    if isinstance(value, Message):
        value = [value]
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return {"messages": [_message(item, name, place) for place, item in enumerate(value)]}
    if isinstance(value, Mapping) and isinstance(value.get("messages"), (list, tuple)):
        messages = [_message(item, name, place) for place, item in enumerate(value["messages"])]
        rest = {key: json_value(item, name) for key, item in value.items() if key != "messages"}
        return {**rest, "messages": messages}
    return json_value(value, name)


def _message(item: object, name: str, place: int) -> dict[str, Any]:
    where = f"prompt '{name}' returned message {place}"
    if isinstance(item, str):
        return {"role": "user", "content": {"type": "text", "text": item}}
    if isinstance(item, Message):
        if item.attachments:
            raise ToolError(f"{where} with attachments, which a prompt cannot carry")
        item = {"role": item.role, "content": item.content}
    plain = json_value(item, name)
    if not isinstance(plain, dict) or "content" not in plain:
        raise ToolError(f"{where}, which is neither text nor an object with role and content")
    if plain.get("role", "user") not in _ROLES:
        raise ToolError(f"{where} of another role than {' or '.join(_ROLES)}")
    if isinstance(plain["content"], str):
        plain["content"] = {"type": "text", "text": plain["content"]}
    return {"role": "user", **plain}


def _is_mistakable(value: object) -> bool:
    """Tell whether the gateway would take a value for the result of an MCP tool that it is not."""
    if not isinstance(value, dict) or not isinstance(value.get("content"), list):
        return False
    blocks = value["content"]
    if not blocks:
        return not value.keys() <= _RESULT_KEYS
    return not all(isinstance(block, dict) and isinstance(block.get("type"), str) for block in blocks)


def _block(file: object, name: str) -> dict[str, Any]:
    if not isinstance(file, ToolResultFile):
        raise ToolError(f"tool '{name}' returned a {type(file).__qualname__} among its files, not a ToolResultFile")
    if not isinstance(file.filename, str) or not file.filename or not isinstance(file.mime_type, str):
        raise ToolError(f"tool '{name}' returned a file without a name or a type")
    try:
        content = base64.b64decode(file.data, validate=True)
    except (TypeError, ValueError):
        raise ToolError(f"tool '{name}' returned file '{file.filename}' whose data is not base64") from None
    mime_type = file.mime_type.partition(";")[0].strip().lower()
    family = mime_type.partition("/")[0]
    if family in ("image", "audio") and mime_type != "image/svg+xml":  # which no client takes as an image
        return {"type": family, "data": file.data, "mimeType": mime_type}
    resource: dict[str, Any] = {"uri": f"attachment:///{quote(file.filename, safe='')}", "mimeType": file.mime_type}
    if family == "text" or mime_type in ("application/json", "application/xml", "image/svg+xml"):
        try:
            resource["text"] = content.decode("utf-8")
        except UnicodeDecodeError:
            resource["blob"] = file.data
    else:
        resource["blob"] = file.data
    return {"type": "resource", "resource": resource}


def _text_of(value: object, name: str) -> str:
    plain = json_value(value, name)
    return plain if isinstance(plain, str) else _dumps(plain)


def _dumps(plain: object) -> str:
    try:
        return json.dumps(plain, ensure_ascii=False)
    except (ValueError, RecursionError):
        raise ToolError("the result holds a number or a nesting that cannot be written as JSON") from None
