"""From a task or message to what a caller, or a model, does with it: text and files (a2a §4.4). Does no I/O."""

from __future__ import annotations

import base64
import json
import mimetypes
import posixpath
import re
from dataclasses import field
from typing import Iterable, List, Tuple
from urllib.parse import unquote, urlsplit

from ... import limits
from ...reprs import dataclass
from ...tools.results import ToolResult, ToolResultFile
from ..objects import DataPart, FilePart, Message, Part, Task, TextPart

__all__ = ["A2AReply", "reply_to"]

_UNSAFE_IN_NAME = re.compile(r"[\x00-\x1f\x7f/\\]")
DEFAULT_TYPE = "application/octet-stream"


@dataclass(frozen=True)
class A2AReply:
    """What an agent answered.

    Attributes:
        state: The task's state; `completed` for an answer that is a message alone.
        text: For the model: the text of the artifacts (or else of the status or last message), data as JSON, and files
            that are links by their address. When `needs_input`, the agent's question.
        files: The files that came with it. `to_tool_result` picks those that the platform takes.
        task: The task, if there is one.
        message: The message, if that was the answer.
        context_id: The conversation; pass it to `send` to go on with it.
        task_id: The task; pass it to `send` to go on with it while `needs_input`.
    """

    state: str
    text: str = field(repr=False)
    files: Tuple[ToolResultFile, ...] = field(default=(), repr=False)
    task: Task | None = field(default=None, repr=False)
    message: Message | None = field(default=None, repr=False)
    context_id: str | None = None
    task_id: str | None = None

    @property
    def needs_input(self) -> bool:
        """True if the agent asks for something and goes on when it gets it."""
        return self.state == "input-required"

    @property
    def parts(self) -> Tuple[Part, ...]:
        """The parts that `text` and `files` were made of, in order."""
        return tuple(_chosen(self.task, self.message))

    def to_tool_result(self) -> ToolResult:
        """Return text and files as a tool's answer; files the platform does not take are named in the text."""
        kept: List[ToolResultFile] = []
        notes: List[str] = []
        total = 0
        for item in self.files:
            size = item.size_bytes
            if not limits.is_attachment_type(item.mime_type):
                notes.append(
                    f"[file {item.filename!r} ({item.mime_type}, {size} bytes) is left out: its type is not accepted]"
                )
            elif len(kept) == limits.MAX_TOOL_RESULT_FILES:
                notes.append(f"[file {item.filename!r} is left out: there are too many]")
            elif total + size > limits.MAX_TOOL_RESULT_FILE_BYTES:
                notes.append(f"[file {item.filename!r} ({size} bytes) is left out: the files are too large]")
            else:
                kept.append(item)
                total += size
        text = "\n".join([*([self.text] if self.text or not notes else []), *notes])
        return ToolResult(text, kept or None)


def reply_to(task: Task | None, message: Message | None) -> A2AReply:
    """Make the reply of what an answer amounts to: a message, or a task in whatever state."""
    parts = _chosen(task, message)
    text, files = _render(parts)
    if message is not None:
        return A2AReply(
            "completed",
            text,
            files,
            task,
            message,
            message.context_id or (task.context_id if task is not None else None),
            message.task_id or (task.id if task is not None else None),
        )
    assert task is not None
    return A2AReply(task.state, text, files, task, None, task.context_id, task.id or None)


def _chosen(task: Task | None, message: Message | None) -> List[Part]:
    """Return the parts that are the answer: results are in artifacts, everything else is said in the status."""
    if message is not None:
        return list(message.parts)
    if task is None:
        return []
    said = list(task.status.message.parts) if task.status.message is not None else []
    if task.state != "completed":
        return said or (_last_said(task) if task.state == "input-required" else [])
    made = [part for artifact in task.artifacts for part in artifact.parts]
    if not made:
        return said or _last_said(task)
    if any(not isinstance(part, FilePart) or part.data is None for part in made):
        return made
    # Nothing but files: what the agent says about them belongs to it.
    return [*(said or _last_said(task)), *made]


def _last_said(task: Task) -> List[Part]:
    return next((list(item.parts) for item in reversed(task.history) if item.role == "agent"), [])


def _render(parts: Iterable[Part]) -> Tuple[str, Tuple[ToolResultFile, ...]]:
    lines: List[str] = []
    files: List[ToolResultFile] = []
    for part in parts:
        if isinstance(part, TextPart):
            lines.append(part.text)
        elif isinstance(part, DataPart):
            lines.append(json.dumps(part.data, ensure_ascii=False, separators=(",", ":")))
        elif isinstance(part, FilePart):
            made = _file(part, len(files) + 1)
            if isinstance(made, str):
                lines.append(made)
            else:
                files.append(made)
    return "\n".join(lines), tuple(files)


def _file(part: FilePart, number: int) -> ToolResultFile | str:
    """Return a file, or the line that stands for one that cannot be handed on."""
    if part.data is None:
        name = part.filename or posixpath.basename(unquote(_path_of(part.url or "")))
        words = ["file", repr(name) if name else "", f"({part.media_type})" if part.media_type else ""]
        return f"[{' '.join(word for word in words if word)}: {part.url}]"
    media_type = _media_type(part)
    name = _UNSAFE_IN_NAME.sub("_", part.filename or "").strip() or _made_up_name(media_type, number)
    try:
        content = part.content() or b""
    except ValueError:
        return f"[file {name!r} is damaged: its content is not base64]"
    return ToolResultFile(name, media_type, base64.b64encode(content).decode("ascii"))


def _media_type(part: FilePart) -> str:
    given = (part.media_type or "").strip().lower()
    if given and given != DEFAULT_TYPE:
        return part.media_type or ""
    return mimetypes.guess_type(part.filename or "")[0] or given or DEFAULT_TYPE


def _made_up_name(media_type: str, number: int) -> str:
    return f"file-{number}{mimetypes.guess_extension(media_type.partition(';')[0].strip()) or ''}"


def _path_of(url: str) -> str:
    try:
        return urlsplit(url).path
    except ValueError:
        return ""
