"""What a model gets of the blocks of a result: text, and files beside it.

Text blocks, the text of embedded resources, links (name and uri) and, as JSON, blocks of a kind that we do not know
make the text, in their order. Images, audio and binary resources become files where the platform takes their type,
number and size; one that it does not take leaves a short note in the text.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import mimetypes
import posixpath
import re
from typing import Any, Iterable, List, Mapping
from urllib.parse import unquote, urlsplit

from .. import limits
from ..errors import cut
from ..tools.results import ToolResultFile
from .content import (
    McpAudio,
    McpContent,
    McpEmbeddedResource,
    McpImage,
    McpResourceLink,
    McpText,
    compact_base64,
)

__all__ = ["NO_TEXT", "Rendered", "compact_json"]

NO_TEXT = "[no text]"
"""Stands for content that has nothing to read in it."""

_UNSAFE = re.compile(r"[^\w.\- ]+")
_EXTENSIONS = {"audio/wav": ".wav", "audio/mpeg": ".mp3", "audio/webm": ".weba", "image/webp": ".webp"}


class Rendered:
    """Blocks turned into text and files."""

    def __init__(self, blocks: Iterable[McpContent]) -> None:
        self.files: List[ToolResultFile] = []
        self._file_bytes = 0
        self._names: set[str] = set()
        self._lines: list[str] = []
        for block in blocks:
            self._add(block)
        self.text = "\n".join(self._lines)

    @property
    def note(self) -> str:
        """What stands for the text if there is none: the names of the files."""
        return "\n".join(f"[{item.filename}: {item.mime_type}]" for item in self.files) or NO_TEXT

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
            self._add_line(compact_json(block.raw))

    def _add_line(self, line: str) -> None:
        if line:
            self._lines.append(line)

    def _add_file(self, kind: str, data: str, mime_type: str, uri: str = "") -> None:
        data = compact_base64(data)
        size = _decoded_size(data)
        label = f"{kind} {cut(uri, 200)}".strip()
        shown = cut(mime_type, 80) or "of no type"
        if size is None:
            self._add_line(f"[{label}: {shown}, left out: its data is not base64]")
        elif not limits.is_attachment_type(mime_type):
            self._add_line(f"[{label}: {shown}, {size} bytes, left out: files of this type are not accepted]")
        elif (
            len(self.files) >= limits.MAX_TOOL_RESULT_FILES
            or self._file_bytes + size > limits.MAX_TOOL_RESULT_FILE_BYTES
        ):
            self._add_line(f"[{label}: {shown}, {size} bytes, left out: too many or too large files]")
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


def _decoded_size(data: str) -> int | None:
    """Return how many bytes the base64 text stands for, `None` if it is none."""
    size = len(data) * 3 // 4
    if size > 2 * limits.MAX_TOOL_RESULT_FILE_BYTES:
        return size  # too large anyhow: not worth the decoding
    try:
        return len(base64.b64decode(data, validate=True))
    except (binascii.Error, ValueError):
        return None


def compact_json(value: Any) -> str:
    """Write a JSON value without spaces; an infinite number, which JSON has no word for, is null."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except RecursionError:
        return '"[nested too deeply to be shown]"'
    except ValueError:
        return json.dumps(_finite(value), ensure_ascii=False, separators=(",", ":"))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list) else value
