"""What callers give the A2A client, checked: messages, addresses, headers. Does no I/O.

Every function raises `MantyxConfigError` with a sentence that names the field; texts of messages are not shown.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any, Dict, Iterable, List, Mapping, Tuple, Union

from ...checks import json_copy, kind_of, refusal, seconds, sequence, shown
from ...errors import MantyxConfigError
from ...tools.results import ToolResultFile
from ...transport.http import MAX_WAIT_S
from ...transport.url import absolute
from ..objects import DataPart, FilePart, Message, Part, TextPart, UnknownPart
from .addresses import shown_url

__all__ = [
    "Content",
    "checked_timeout",
    "checked_url",
    "header_text",
    "identifier",
    "json_object",
    "message_of",
    "texts",
]

Content = Union[str, Part, ToolResultFile, Mapping[str, Any]]
"""What a message is made of: text, a part, a file, or a mapping that is sent as data."""


def header_text(value: str, where: str) -> str:
    """Return text that a header can carry."""
    if not isinstance(value, str) or not (value.isascii() and value.isprintable()):
        raise refusal(where, "text that no header can carry", "be printable ASCII")
    return value


def checked_url(url: object) -> str:
    """Return the address of an agent in the form it is used in. A URL with credentials is not shown."""
    if not isinstance(url, str) or not url.strip():
        raise refusal("url", kind_of(url), "be the address of an agent or its card")
    try:
        return absolute(url)
    except ValueError as error:
        told = "it" if "@" in url else shown_url(url.strip())
        raise MantyxConfigError(f"url: {told!r} {error}" if told != "it" else f"url: it {error}") from None


def checked_timeout(timeout: object, where: str) -> float:
    """Return a number of seconds above 0, which may be infinity."""
    number = seconds(timeout, where)
    if MAX_WAIT_S < number < float("inf"):
        raise refusal(where, shown(number), f"be at most {int(MAX_WAIT_S)} seconds, or math.inf for no limit")
    return number


def texts(value: object, where: str) -> Tuple[str, ...]:
    """Return a list of non-empty strings."""
    items = sequence(value, where, "strings")
    if not all(isinstance(item, str) and item for item in items):
        raise refusal(where, "something that is no text among them", "be a list of non-empty strings")
    return tuple(items)


def identifier(value: object, where: str) -> str:
    """Return an id: a non-empty string."""
    if not isinstance(value, str) or not value:
        raise refusal(where, shown(value), "be a non-empty string")
    return value


def json_object(value: object, where: str) -> Dict[str, Any]:
    """Return a deep copy of a mapping that is plain JSON."""
    if not isinstance(value, Mapping):
        raise refusal(where, kind_of(value), "be a mapping")
    copy: Dict[str, Any] = json_copy(value, where)
    return copy


def message_of(content: object, context_id: str | None, task_id: str | None) -> Message:
    """Make the message to send; its id is fresh, unless it is a whole message that has one."""
    context = None if context_id is None else identifier(context_id, "context_id")
    task = None if task_id is None else identifier(task_id, "task_id")
    if isinstance(content, Message):
        if not content.parts:
            raise refusal("content", "a message without parts", "have at least one part")
        return replace(
            content,
            message_id=content.message_id or str(uuid.uuid4()),
            role=content.role or "user",
            context_id=context or content.context_id,
            task_id=task or content.task_id,
        )
    if isinstance(content, str) and not content.strip():
        raise refusal("content", "an empty text", "say something")
    single = isinstance(content, (str, TextPart, FilePart, DataPart, UnknownPart, ToolResultFile, Mapping))
    items: Iterable[object] = [content] if single else sequence(content, "content", "parts")
    parts: List[Part] = [_part(item, i) for i, item in enumerate(items)]
    if not parts:
        raise refusal("content", "nothing", "have at least one part")
    return Message(str(uuid.uuid4()), "user", tuple(parts), context, task)


def _part(item: object, i: int) -> Part:
    if isinstance(item, str):
        return TextPart(item)
    if isinstance(item, (TextPart, FilePart, DataPart, UnknownPart)):
        return item
    if isinstance(item, ToolResultFile):
        return FilePart(data=item.data, filename=item.filename, media_type=item.mime_type)
    if isinstance(item, Mapping):
        return DataPart(json_copy(item, f"content[{i}]"))
    raise refusal(f"content[{i}]", kind_of(item), "be text, a part, a ToolResultFile or a mapping")
