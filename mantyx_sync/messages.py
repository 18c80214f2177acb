"""Messages and the files attached to them (wire §2.1.1, http §4)."""

from __future__ import annotations

import base64
import binascii
import mimetypes
import os
from dataclasses import field
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from mantyx_sync import limits
from mantyx_sync.checks import json_copy, kind_of, options, refusal, sequence, shown, text
from mantyx_sync.errors import MantyxConfigError
from mantyx_sync.reprs import dataclass

__all__ = [
    "InputFile",
    "InputFileUrl",
    "Message",
    "attachments_to_wire",
    "guess_mime_type",
    "input_file",
    "input_file_attachment",
    "input_file_url",
    "input_file_url_attachment",
    "messages_to_wire",
    "with_attachments",
]

_ROLES = ("user", "assistant", "system")

# What the platform takes but not every system's table of MIME types knows.
_MIME_TYPES = {
    ".csv": "text/csv",
    ".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ".json": "application/json",
    ".m4a": "audio/mp4",
    ".md": "text/markdown",
    ".tsv": "text/tab-separated-values",
    ".wav": "audio/wav",
    ".weba": "audio/webm",
    ".webp": "image/webp",
    ".xml": "application/xml",
}


@dataclass(frozen=True)
class InputFile:
    """A file sent along with a message. `data` is base64 text; `input_file` makes one from a path or bytes."""

    filename: str
    mime_type: str
    data: str = field(repr=False)

    def to_wire(self) -> dict[str, Any]:
        """Return the attachment as it goes over the wire."""
        return {
            "type": "input_file",
            "mimeType": self.mime_type,
            "filename": self.filename,
            "data": self.data,
        }


@dataclass(frozen=True)
class InputFileUrl:
    """A file that the model's provider fetches itself; `https` only. The URL may be a secret: it is not shown."""

    url: str = field(repr=False)
    mime_type: str | None = None
    filename: str | None = None

    def to_wire(self) -> dict[str, Any]:
        """Return the attachment as it goes over the wire."""
        found = {"type": "input_file_url", "url": self.url}
        if self.mime_type is not None:
            found["mimeType"] = self.mime_type
        if self.filename is not None:
            found["filename"] = self.filename
        return found


Attachment = Union[InputFile, InputFileUrl, Mapping[str, Any]]


@dataclass(frozen=True)
class Message:
    """One message. `role`: `user`, `assistant` or `system`."""

    role: str
    content: str = field(repr=False)
    attachments: Optional[Sequence[Attachment]] = None


MessageInput = Union[Message, Mapping[str, Any]]


def input_file(
    source: str | os.PathLike[str] | bytes, *, filename: str | None = None, mime_type: str | None = None
) -> InputFile:
    """Make an attachment from a file on disk or from bytes. Reads the file at once.

    Args:
        source: A path, or the bytes themselves.
        filename: What the model sees as the name; needed with bytes, else taken from the path.
        mime_type: The type; `None` tells it from the file name.

    Raises:
        MantyxConfigError: The file is too large, or its name or type is missing or not allowed.
        OSError: The file cannot be read.
    """
    if isinstance(source, (bytes, bytearray, memoryview)):
        content = bytes(source)
        if filename is None:
            raise MantyxConfigError("input_file: bytes need a filename")
    else:
        path = os.fspath(source)
        size = os.stat(path).st_size
        if size > limits.MAX_INLINE_ATTACHMENT_BYTES:
            # Before reading: the path may lead to something that does not fit in memory.
            raise _too_large("input_file", size)
        with open(path, "rb") as file:
            content = file.read()
        filename = os.path.basename(path) if filename is None else filename
    if len(content) > limits.MAX_INLINE_ATTACHMENT_BYTES:
        raise _too_large("input_file", len(content))
    mime_type = guess_mime_type(filename) if mime_type is None else mime_type
    if mime_type is None:
        raise MantyxConfigError(f"input_file: cannot tell the type of {shown(filename)}; give mime_type")
    found = InputFile(filename, mime_type, base64.b64encode(content).decode("ascii"))
    _check_type(mime_type, "input_file.mime_type")
    return found


def input_file_url(url: str, *, mime_type: str | None = None, filename: str | None = None) -> InputFileUrl:
    """Make an attachment that the model's provider fetches from `url` (https only)."""
    found = InputFileUrl(url, mime_type, filename)
    _check_url(found.to_wire(), "input_file_url")
    return found


def input_file_attachment(*, mime_type: str, filename: str, data: str | bytes) -> dict[str, Any]:
    """Return an `input_file` attachment as a mapping; `data` is base64 text, or bytes to be encoded."""
    encoded = data if isinstance(data, str) else base64.b64encode(data).decode("ascii")
    return InputFile(filename, mime_type, encoded).to_wire()


def input_file_url_attachment(*, url: str, mime_type: str | None = None, filename: str | None = None) -> dict[str, Any]:
    """Return an `input_file_url` attachment as a mapping."""
    return InputFileUrl(url, mime_type, filename).to_wire()


def guess_mime_type(filename: str) -> str | None:
    """Tell a file's MIME type from its name; `None` if the name says nothing."""
    ending = os.path.splitext(filename)[1].lower()
    return _MIME_TYPES.get(ending) or mimetypes.guess_type(filename)[0]


def messages_to_wire(value: object, where: str = "messages") -> List[Dict[str, Any]]:
    """Check a list of messages and return its wire form.

    Only the last user message's attachments reach the model, so only those are checked; elsewhere they may be the
    metadata that a session's history has.
    """
    given = sequence(value, where, "messages")
    if not given:
        raise refusal(where, "an empty list", "have at least one message")
    if len(given) > limits.MAX_MESSAGES:
        raise refusal(where, f"{len(given)} messages", f"have at most {limits.MAX_MESSAGES}")
    found = []
    for i, message in enumerate(given):
        here = f"{where}[{i}]"
        wire = options(message, Message, here)
        if wire.get("role") not in _ROLES:
            raise refusal(f"{here}.role", shown(wire.get("role")), f"be one of {', '.join(_ROLES)}")
        wire["content"] = _content(wire.get("content"), f"{here}.content")
        found.append(wire)
    spoken = [i for i, wire in enumerate(found) if wire["role"] != "system"]
    if not spoken or found[spoken[-1]]["role"] != "user":
        last = f"{found[spoken[-1]]['role']!r} as the last message" if spoken else "system messages alone"
        raise refusal(where, last, "end with a user message (system messages aside)")
    for i, wire in enumerate(found):
        if "attachments" not in wire:
            continue
        here = f"{where}[{i}].attachments"
        if i == spoken[-1]:
            wire["attachments"] = attachments_to_wire(wire["attachments"], here)
        else:
            items = sequence(wire["attachments"], here, "attachments")
            wire["attachments"] = [item.to_wire() if hasattr(item, "to_wire") else item for item in items]
    copy: List[Dict[str, Any]] = json_copy(found, where)
    return copy


def with_attachments(messages: List[Dict[str, Any]], attachments: List[Dict[str, Any]]) -> None:
    """Add checked attachments to the last user message of checked messages."""
    last = next(message for message in reversed(messages) if message["role"] == "user")
    last["attachments"] = attachments_to_wire([*last.get("attachments", ()), *attachments], "attachments")


def attachments_to_wire(value: object, where: str = "attachments") -> List[Dict[str, Any]]:
    """Check a list of attachments and return its wire form: how many, which types, how many bytes in all."""
    given = sequence(value, where, "attachments")
    if len(given) > limits.MAX_ATTACHMENTS:
        raise refusal(where, f"{len(given)} attachments", f"have at most {limits.MAX_ATTACHMENTS}")
    found = []
    total = 0
    for i, attachment in enumerate(given):
        wire, size = _attachment(attachment, f"{where}[{i}]")
        found.append(wire)
        total += size
        if total > limits.MAX_INLINE_ATTACHMENT_BYTES:
            raise _too_large(where, total)
    return found


def _attachment(value: object, where: str) -> Tuple[Dict[str, Any], int]:
    """Return one attachment's wire form and the bytes it carries inline."""
    kind: object
    if isinstance(value, (InputFile, InputFileUrl)):
        wire = {key: item for key, item in value.to_wire().items() if item is not None}
        kind = wire.pop("type")
    elif isinstance(value, Mapping):
        kind = value.get("type")
        cls = {"input_file": InputFile, "input_file_url": InputFileUrl}.get(str(kind))
        if cls is None:
            raise refusal(f"{where}.type", shown(kind), "be one of input_file, input_file_url")
        wire = options({key: item for key, item in value.items() if key != "type"}, cls, where)
    else:
        must = "be made by input_file() or input_file_url(), or a mapping"
        raise refusal(where, kind_of(value), must)
    size = 0
    if kind == "input_file":
        text(wire.get("filename"), f"{where}.filename")
        _check_type(wire.get("mimeType"), f"{where}.mime_type")
        size = _decoded_size(wire.get("data"), f"{where}.data")
    else:
        _check_url(wire, where)
    copy: Dict[str, Any] = json_copy({"type": kind, **wire}, where)
    return copy, size


def _check_url(wire: Mapping[str, Any], where: str) -> None:
    url = wire.get("url")
    if not isinstance(url, str) or url[:8].lower() != "https://" or len(url) == 8:
        raise refusal(f"{where}.url", kind_of(url), "be an https:// URL")
    if wire.get("mimeType") is not None:
        _check_type(wire["mimeType"], f"{where}.mime_type")
    if wire.get("filename") is not None:
        text(wire["filename"], f"{where}.filename")


def _check_type(value: object, where: str) -> None:
    if not limits.is_attachment_type(text(value, where)):
        allowed = "audio mp4/mpeg/wav/webm, image jpeg/png/webp/gif, PDF, DOCX, JSON, XML or text/*"
        raise refusal(where, shown(value), f"be a type the platform takes: {allowed}")


def _decoded_size(value: object, where: str) -> int:
    if isinstance(value, (bytes, bytearray)):
        raise refusal(where, "bytes", "be base64 text (input_file() encodes bytes)")
    if not isinstance(value, str):
        raise refusal(where, shown(value), "be base64 text")
    if value[:5].lower() == "data:":
        raise refusal(where, "a data: URL", "be the base64 text alone")
    if len(value) > limits.MAX_INLINE_ATTACHMENT_BYTES * 4 // 3 + 4:
        raise _too_large(where, len(value) * 3 // 4)
    try:
        return len(base64.b64decode(value, validate=True))
    except (binascii.Error, ValueError):
        raise refusal(where, "a string that is not base64", "be base64 text") from None


def _too_large(where: str, size: int) -> MantyxConfigError:
    limit = limits.MAX_INLINE_ATTACHMENT_BYTES
    return refusal(where, f"{size} bytes of files", f"be at most {limit} bytes in all")


def _content(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise refusal(where, shown(value), "be a string")
    if len(value) > limits.MAX_MESSAGE_CHARS:
        raise refusal(where, f"{len(value)} characters", f"have at most {limits.MAX_MESSAGE_CHARS}")
    return str.__str__(value)
