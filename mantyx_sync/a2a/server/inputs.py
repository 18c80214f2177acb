"""What a caller's message says to the agent: parts -> a prompt and its attachments (a2a §3, wire §2.1.1). No I/O."""

from __future__ import annotations

import json
import mimetypes
from dataclasses import dataclass, field
from typing import List, Sequence, Tuple, Union

from ... import limits
from ...errors import MantyxConfigError
from ...messages import InputFile, InputFileUrl, attachments_to_wire, guess_mime_type, input_file
from ...wire import sound_text
from ..objects import DataPart, FilePart, Message, TextPart
from ..rpc import CONTENT_TYPE_NOT_SUPPORTED
from .calls import Refused, invalid_params

__all__ = ["DEFAULT_INPUT_MODES", "TaskInput", "accepts", "read_input"]

DEFAULT_INPUT_MODES: Tuple[str, ...] = (
    "text/plain",
    "text/markdown",
    "text/csv",
    "text/html",
    *sorted(limits.ATTACHMENT_TYPES),
)
"""What the platform takes: text, JSON data, and files of these types."""

JSON = "application/json"


@dataclass(frozen=True)
class TaskInput:
    """What the agent is told."""

    prompt: str = field(repr=False)
    attachments: Tuple[Union[InputFile, InputFileUrl], ...] = field(default=(), repr=False)


def accepts(modes: Sequence[str], media_type: str) -> bool:
    """Tell whether a media type is among `modes`, where `text/plain` and `text/*` stand for every text."""
    base = media_type.split(";", 1)[0].strip().lower()
    known = {mode.split(";", 1)[0].strip().lower() for mode in modes}
    kind = base.partition("/")[0]
    return base in known or f"{kind}/*" in known or "*/*" in known or (kind == "text" and "text/plain" in known)


def read_input(message: Message, modes: Sequence[str] = DEFAULT_INPUT_MODES) -> TaskInput:
    """Turn a message into what the agent is told.

    Texts follow each other on lines of their own, data as compact JSON among them. Files go along as attachments;
    one that is given by its address is not fetched here: the model's provider does, over https alone.

    Args:
        message: The message of a caller.
        modes: The media types that the agent's card promises.

    Raises:
        Refused: There is nothing in it, a type is not taken, or a limit of the platform is passed.
    """
    texts: List[str] = []
    files: List[Union[InputFile, InputFileUrl]] = []
    for i, part in enumerate(message.parts):
        where = f"message.parts[{i}]"
        if isinstance(part, TextPart):
            texts.append(sound_text(part.text))
        elif isinstance(part, DataPart):
            if not accepts(modes, JSON):
                raise _type_refused(where, JSON)
            texts.append(sound_text(json.dumps(part.data, ensure_ascii=False, separators=(",", ":"))))
        elif isinstance(part, FilePart):
            files.append(_attachment(part, where, modes, len(files) + 1))
    prompt = "\n".join(texts)
    if not prompt.strip() and not files:
        raise invalid_params("message.parts", "must say something: there is no text, data or file in them")
    if len(prompt) > limits.MAX_MESSAGE_CHARS:
        raise invalid_params("message.parts", f"must have at most {limits.MAX_MESSAGE_CHARS} characters of text")
    try:
        attachments_to_wire(files, "message.parts")
    except MantyxConfigError as error:
        raise invalid_params("message.parts", error.message.partition(": ")[2]) from None
    return TaskInput(prompt, tuple(files))


def _attachment(part: FilePart, where: str, modes: Sequence[str], number: int) -> Union[InputFile, InputFileUrl]:
    if (part.data is None) == (part.url is None):
        raise invalid_params(where, "must have a file's bytes or its address, and not both")
    media_type = part.media_type or (guess_mime_type(part.filename) if part.filename else None)
    if part.url is not None:
        if media_type is not None:
            _check_type(media_type, where, modes)
        if part.url[:8].lower() != "https://" or len(part.url) == 8:
            raise invalid_params(where, "must have an https:// address, if it has an address")
        return InputFileUrl(part.url, media_type, part.filename or None)
    if media_type is None:
        raise invalid_params(where, "must have a media type, or a file name that tells it")
    _check_type(media_type, where, modes)
    try:
        content = part.content() or b""
    except ValueError:
        raise invalid_params(where, "must have its bytes in base64") from None
    if not content:
        raise invalid_params(where, "must be a file that is not empty")
    try:
        return input_file(content, filename=part.filename or _file_name(media_type, number), mime_type=media_type)
    except MantyxConfigError as error:  # too large: types were looked at
        raise invalid_params(where, error.message.partition(": ")[2]) from None


def _check_type(media_type: str, where: str, modes: Sequence[str]) -> None:
    if not accepts(modes, media_type) or not limits.is_attachment_type(media_type):
        raise _type_refused(where, media_type)


def _type_refused(where: str, media_type: str) -> Refused:
    return Refused(CONTENT_TYPE_NOT_SUPPORTED, f"{where}: content of type {media_type[:80]!r} is not taken here")


def _file_name(media_type: str, number: int) -> str:
    return f"file-{number}{mimetypes.guess_extension(media_type.split(';', 1)[0].strip()) or ''}"
