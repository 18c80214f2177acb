"""Content of MCP: the blocks of tool results and prompts, and what is in resources. Values only."""

from __future__ import annotations

import base64
import binascii
from dataclasses import field
from typing import Any, Mapping, Optional, Union

from ..reprs import dataclass
from ..wire import Fields
from .models import in_mcp_terms

__all__ = [
    "McpAudio",
    "McpContent",
    "McpEmbeddedResource",
    "McpImage",
    "McpResourceContents",
    "McpResourceLink",
    "McpText",
    "McpUnknownContent",
    "compact_base64",
    "content_of",
]


@dataclass(frozen=True)
class McpText:
    """Text."""

    text: str
    raw: Mapping[str, Any] = field(repr=False, default_factory=dict)


@dataclass(frozen=True)
class _Media:
    data: str = field(repr=False)
    mime_type: str
    raw: Mapping[str, Any] = field(repr=False, default_factory=dict)

    @property
    def content(self) -> bytes:
        """The decoded bytes. Raises `ValueError` if the server sent no base64."""
        return _bytes_of(self.data)


@dataclass(frozen=True)
class McpImage(_Media):
    """A picture. `data` is base64, `content` its bytes."""


@dataclass(frozen=True)
class McpAudio(_Media):
    """Sound. `data` is base64, `content` its bytes."""


@dataclass(frozen=True)
class McpResourceLink:
    """A pointer to a resource; `read_resource(uri)` may get it. It is not fetched by itself."""

    uri: str
    name: str
    title: Optional[str] = None
    description: Optional[str] = field(default=None, repr=False)
    mime_type: Optional[str] = None
    raw: Mapping[str, Any] = field(repr=False, default_factory=dict)


@dataclass(frozen=True)
class McpResourceContents:
    """What is in a resource: `text`, or `blob` in base64, whose bytes are `content`."""

    uri: str
    mime_type: Optional[str] = None
    text: Optional[str] = field(default=None, repr=False)
    blob: Optional[str] = field(default=None, repr=False)
    raw: Mapping[str, Any] = field(repr=False, default_factory=dict)

    @classmethod
    def from_wire(cls, data: object, where: str) -> McpResourceContents:
        """Read one entry of a `resources/read` result, or the resource of a block."""
        with in_mcp_terms():
            fields = Fields(data, where)
            text, blob = fields.opt_text("text"), fields.opt_text("blob")
            if text is None and blob is None:
                raise fields.wrong("text", "a string, or 'blob' one")
            return cls(fields.text("uri"), fields.opt_text("mimeType"), text, blob, fields.data)

    @property
    def content(self) -> bytes:
        """The bytes: of `blob`, or of `text` in UTF-8. Raises `ValueError` if the server sent no base64."""
        if self.blob is not None:
            return _bytes_of(self.blob)
        return (self.text or "").encode("utf-8", "replace")


@dataclass(frozen=True)
class McpEmbeddedResource:
    """A resource whose content came along."""

    resource: McpResourceContents
    raw: Mapping[str, Any] = field(repr=False, default_factory=dict)


@dataclass(frozen=True)
class McpUnknownContent:
    """A block of a kind that we do not know, or one that lacks what its kind should have; `raw` is all there is."""

    type: Optional[str]
    raw: Any = field(repr=False)


McpContent = Union[McpText, McpImage, McpAudio, McpResourceLink, McpEmbeddedResource, McpUnknownContent]
"""A block of content."""


def content_of(data: object) -> McpContent:
    """Read one block. What cannot be read as its type says is kept raw: a new kind of block fails no call."""
    if not isinstance(data, Mapping):
        return McpUnknownContent(None, data)
    kind = data.get("type")
    try:
        with in_mcp_terms():
            known = _known_content(kind, Fields(data, "content"))
    except Exception:  # whatever is wrong with it, there is still the raw block
        known = None
    return known if known is not None else McpUnknownContent(kind if isinstance(kind, str) else None, data)


def _known_content(kind: object, fields: Fields) -> McpContent | None:
    raw = fields.data
    if kind == "text":
        return McpText(fields.text("text"), raw)
    if kind == "image":
        return McpImage(fields.text("data"), fields.text("mimeType"), raw)
    if kind == "audio":
        return McpAudio(fields.text("data"), fields.text("mimeType"), raw)
    if kind == "resource_link":
        uri = fields.text("uri")
        return McpResourceLink(
            uri,
            fields.opt_text("name") or uri,
            fields.opt_text("title"),
            fields.opt_text("description"),
            fields.opt_text("mimeType"),
            raw,
        )
    if kind == "resource":
        return McpEmbeddedResource(McpResourceContents.from_wire(raw.get("resource"), "resource"), raw)
    return None


def compact_base64(data: str) -> str:
    """Return base64 text without the white space that some encoders break it with."""
    return "".join(data.split()) if any(space in data for space in "\n\r \t") else data


def _bytes_of(data: str) -> bytes:
    try:
        return base64.b64decode(compact_base64(data), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("the server's data is not base64") from None
