"""Content of MCP: the blocks of tool results and prompts, what is in resources, and what of it a model gets.

A model reads text, and gets files beside it. Text blocks, the text of embedded resources, links (name and uri) and, as
JSON, blocks of a kind that we do not know make the text, in their order. Images, audio and binary resources become
files where the platform takes their type, number and size; one that it does not take leaves a short note in the text.
Where no text comes out, the structured content does, or a note that names the files: a result that has content never
reads as empty.
"""

from __future__ import annotations

import base64
import binascii
import json
import mimetypes
import posixpath
import re
from dataclasses import dataclass, field
from typing import Any, List, Mapping, Optional, Tuple, Union
from urllib.parse import unquote, urlsplit

from .. import limits
from ..errors import ToolError
from ..tools.results import ToolResult, ToolResultFile
from ..wire import Fields
from .models import in_mcp_terms

__all__ = [
    "McpAudio",
    "McpContent",
    "McpEmbeddedResource",
    "McpImage",
    "McpPromptMessage",
    "McpPromptResult",
    "McpResourceContents",
    "McpResourceLink",
    "McpResult",
    "McpText",
    "McpUnknownContent",
    "content_of",
]

_NO_TEXT = "[no text]"
_UNSAFE = re.compile(r"[^\w.\- ]+")
_EXTENSIONS = {"audio/wav": ".wav", "audio/mpeg": ".mp3", "audio/webm": ".weba", "image/webp": ".webp"}


@dataclass(frozen=True)
class McpText:
    """Text."""

    text: str
    raw: Mapping[str, Any] = field(repr=False, default_factory=dict)


@dataclass(frozen=True)
class McpImage:
    """A picture. `data` is base64, `content` its bytes."""

    data: str = field(repr=False)
    mime_type: str
    raw: Mapping[str, Any] = field(repr=False, default_factory=dict)

    @property
    def content(self) -> bytes:
        """The decoded bytes. Raises `ValueError` if the server sent no base64."""
        return _bytes_of(self.data)


@dataclass(frozen=True)
class McpAudio:
    """Sound. `data` is base64, `content` its bytes."""

    data: str = field(repr=False)
    mime_type: str
    raw: Mapping[str, Any] = field(repr=False, default_factory=dict)

    @property
    def content(self) -> bytes:
        """The decoded bytes. Raises `ValueError` if the server sent no base64."""
        return _bytes_of(self.data)


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


@dataclass(frozen=True)
class McpPromptMessage:
    """A message of a prompt: who says it (`user` or `assistant`), and what."""

    role: str
    content: McpContent

    @property
    def text(self) -> str:
        """The content as text for a model."""
        return _Rendered((self.content,)).text or _NO_TEXT


@dataclass(frozen=True)
class McpPromptResult:
    """What `get_prompt` returns."""

    messages: Tuple[McpPromptMessage, ...]
    description: Optional[str] = None
    raw: Mapping[str, Any] = field(repr=False, default_factory=dict)

    @classmethod
    def from_wire(cls, result: Mapping[str, Any], where: str) -> McpPromptResult:
        """Read the result of `prompts/get`."""
        with in_mcp_terms():
            fields = Fields(result, where)
            messages = tuple(
                McpPromptMessage(message.text("role"), content_of(message.data.get("content")))
                for message in fields.objects("messages")
            )
            return cls(messages, fields.opt_text("description"), fields.data)


@dataclass(frozen=True)
class McpResult:
    """What a tool answered.

    Attributes:
        content: The blocks of its answer.
        is_error: The tool failed; the text says why, in words for the model.
        structured_content: The answer as a JSON value, if the tool gives one.
        raw: The whole result as it came.
    """

    content: Tuple[McpContent, ...] = ()
    is_error: bool = False
    structured_content: Any = field(default=None, repr=False)
    raw: Mapping[str, Any] = field(repr=False, default_factory=dict)

    @classmethod
    def from_wire(cls, result: Mapping[str, Any], where: str) -> McpResult:
        """Read the result of `tools/call`; a missing `content` is an empty one."""
        with in_mcp_terms():
            fields = Fields(result, where)
            blocks = fields.data.get("content")
            if blocks is not None and not isinstance(blocks, list):
                raise fields.wrong("content", "an array")
            return cls(
                content=tuple(content_of(block) for block in blocks or ()),
                is_error=fields.opt_bool("isError") or False,
                structured_content=fields.data.get("structuredContent"),
                raw=fields.data,
            )

    @property
    def has_structured_content(self) -> bool:
        """Whether there is structured content, which may be null."""
        return self.structured_content is not None or "structuredContent" in self.raw

    @property
    def text(self) -> str:
        """The result as text for a model: never empty if it has content."""
        return self._text(_Rendered(self.content))

    @property
    def files(self) -> List[ToolResultFile]:
        """The images, sounds and binary resources that the platform takes as files of a tool result."""
        return _Rendered(self.content).files

    def to_tool_result(self) -> ToolResult:
        """Return text and files, as a handler of a tool may return them.

        Raises:
            ToolError: The tool failed (`is_error`); the text is what it said.
        """
        rendered = _Rendered(self.content)
        text = self._text(rendered)
        if self.is_error:
            raise ToolError(text or "the tool failed without saying why")
        return ToolResult(text, rendered.files or None)

    def _text(self, rendered: _Rendered) -> str:
        if rendered.text:
            return rendered.text
        if self.has_structured_content:
            return _json(self.structured_content)
        if rendered.files:
            return "\n".join(f"[{item.filename}: {item.mime_type}]" for item in rendered.files)
        return _NO_TEXT if self.content else ""


class _Rendered:
    """Blocks turned into text and files."""

    def __init__(self, blocks: Tuple[McpContent, ...]) -> None:
        self.files: List[ToolResultFile] = []
        self._file_bytes = 0
        self._names: set[str] = set()
        self._lines: list[str] = []
        for block in blocks:
            self._add(block)
        self.text = "\n".join(self._lines)

    def _add(self, block: McpContent) -> None:
        if isinstance(block, McpText):
            self._add_line(block.text)
        elif isinstance(block, McpImage):
            self._add_file("image", block.data, block.mime_type)
        elif isinstance(block, McpAudio):
            self._add_file("audio", block.data, block.mime_type)
        elif isinstance(block, McpResourceLink):
            self._add_line(block.uri if block.name == block.uri else f"{block.name}: {block.uri}")
        elif isinstance(block, McpEmbeddedResource):
            resource = block.resource
            if resource.text is not None:
                self._add_line(resource.text)
            else:
                mime_type = resource.mime_type or mimetypes.guess_type(resource.uri)[0] or "application/octet-stream"
                self._add_file("resource", resource.blob or "", mime_type, resource.uri)
        else:
            self._add_line(_json(block.raw))

    def _add_line(self, line: str) -> None:
        if line:
            self._lines.append(line)

    def _add_file(self, kind: str, data: str, mime_type: str, uri: str = "") -> None:
        data = data if _is_compact(data) else "".join(data.split())
        size = _decoded_size(data)
        label = f"{kind} {uri}".strip()
        if size is None:
            self._add_line(f"[{label}: {mime_type}, left out: its data is not base64]")
        elif not limits.is_attachment_type(mime_type):
            self._add_line(f"[{label}: {mime_type}, {size} bytes, left out: files of this type are not accepted]")
        elif (
            len(self.files) >= limits.MAX_TOOL_RESULT_FILES
            or self._file_bytes + size > limits.MAX_TOOL_RESULT_FILE_BYTES
        ):
            self._add_line(f"[{label}: {mime_type}, {size} bytes, left out: too many or too large files]")
        else:
            self._file_bytes += size
            self.files.append(ToolResultFile(self._name(kind, mime_type, uri), mime_type, data))

    def _name(self, kind: str, mime_type: str, uri: str) -> str:
        base = mime_type.split(";", 1)[0].strip().lower()
        extension = _EXTENSIONS.get(base) or mimetypes.guess_extension(base) or ""
        name = _file_name(uri) or f"{kind}-{len(self.files) + 1}{extension}"
        stem, dot, ending = name.rpartition(".")
        serial = 2
        while name in self._names:
            name = f"{stem}-{serial}.{ending}" if dot else f"{ending}-{serial}"
            serial += 1
        self._names.add(name)
        return name


def _file_name(uri: str) -> str:
    """Return the last part of a uri's path as a plain file name, or nothing."""
    try:
        path = urlsplit(uri).path
    except ValueError:
        return ""
    name = _UNSAFE.sub("_", posixpath.basename(unquote(path).replace("\\", "/"))).strip(" ._")
    return name[-100:]


def _is_compact(data: str) -> bool:
    return not any(space in data for space in "\n\r \t")


def _decoded_size(data: str) -> int | None:
    """Return how many bytes the base64 text stands for, `None` if it is none."""
    try:
        return len(base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        return None


def _bytes_of(data: str) -> bytes:
    try:
        return base64.b64decode(data if _is_compact(data) else "".join(data.split()), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("the server's data is not base64") from None


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
