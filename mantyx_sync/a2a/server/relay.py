"""A MANTYX run's events -> what an A2A task reports (wire §4, a2a §5.8). Does no I/O."""

from __future__ import annotations

from typing import Any, Callable, Optional, Tuple, Union
from urllib.parse import urlsplit

from ...events import AssistantDelta, AssistantMessage, RunEvent, ToolFile, ToolFiles
from ...results import RunResult
from ..objects import DataPart, FilePart, Part, TextPart
from . import strict_json
from .inputs import JSON
from .tasks import TaskRecord

__all__ = ["FetchFile", "Relay"]

FetchFile = Callable[[ToolFile], Union[str, bytes, None]]
"""From a file that a tool of the platform made to its address or its bytes; `None` keeps it from the caller."""


class Relay:
    """Report one run as one task.

    The text of a turn is the task's answer as it is written. When the turn turns out to be one that calls tools, its
    text becomes a status message instead, and the next turn begins the answer anew.
    """

    def __init__(
        self,
        record: TaskRecord,
        *,
        is_structured: bool,
        accepts_data: bool,
        fetch_file: Optional[FetchFile],
    ) -> None:
        """Report nothing yet.

        Args:
            is_structured: The answer is JSON, which is of use as a whole only.
            accepts_data: The caller takes JSON as data; otherwise it gets it as text.
            fetch_file: Where the files of the platform's tools are to be had. Without it those with an address are
                passed on by that.
        """
        self.last_seq = 0
        """The number of the last event that was reported."""
        self._record = record
        self._is_structured = is_structured
        self._accepts_data = accepts_data
        self._fetch_file = fetch_file or _address

    def feed(self, event: RunEvent) -> None:
        """Report an event of the run."""
        if isinstance(event, AssistantDelta):
            if event.text and not self._is_structured:
                self._record.write(event.text)
        elif isinstance(event, AssistantMessage):
            if event.tool_calls and event.text and not self._is_structured:
                self._record.say(event.text)
            self._record.begin_anew()  # another turn follows, or the end with the answer as a whole
        elif isinstance(event, ToolFiles):
            parts = (_file_part(file, self._fetch_file(file)) for file in event.files)
            self._record.add_files(part for part in parts if part is not None)
        self.last_seq = max(self.last_seq, event.seq)

    def conclude(self, result: RunResult) -> None:
        """Report the run's success."""
        self._record.complete(self._answer(result.text))

    def _answer(self, text: str) -> Tuple[Part, ...]:
        if self._is_structured and self._accepts_data:
            value = _object(text)
            if value is not None:
                return (DataPart(value, JSON),)
        return (TextPart(text, JSON if self._is_structured else None),)


def _object(text: str) -> Any:
    """Return the JSON object that `text` is; `None` if it is anything else: version 0.3 has no other data."""
    try:
        value = strict_json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _address(file: ToolFile) -> str | None:
    return file.url


def _file_part(file: ToolFile, found: Union[str, bytes, None]) -> FilePart | None:
    if isinstance(found, (bytes, bytearray)):
        return FilePart.from_bytes(bytes(found), file.filename, file.mime_type)
    # An address without a host is one below the platform's, which needs our credential.
    if isinstance(found, str) and urlsplit(found).scheme in ("http", "https"):
        return FilePart(url=found, filename=file.filename, media_type=file.mime_type)
    return None
