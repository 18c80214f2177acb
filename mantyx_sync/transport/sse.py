"""Bytes of a `text/event-stream` body -> complete frames -> fields. Does no I/O.

The cutting is ours: sseclient-py dispatches half a frame at the end of a body and needs quadratic time for a
large event that arrives in pieces. Given one complete frame it is right, so the fields of every frame that is
not of the plain form are read by it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["DEFAULT_MAX_FRAME_BYTES", "Frame", "FrameDecoder", "FrameTooLarge", "parse_frame"]

DEFAULT_MAX_FRAME_BYTES = 64 * 1024 * 1024
"""A frame may be this large before the stream is given up: a peer that never ends a line must not eat all memory."""

_BOM = b"\xef\xbb\xbf"
_DIGITS = re.compile(r"[0-9]+")


class FrameTooLarge(Exception):
    """The peer sent more bytes without the end of a frame than allowed."""


class Frame(NamedTuple):
    """The fields of one SSE frame. `None` means that the frame did not carry the field."""

    event: str | None
    data: str | None
    id: str | None
    retry_ms: int | None


class FrameDecoder:
    """Turn the body of a stream into complete frames.

    Costs time linear in the size of the body however it is cut into reads. Lines may end in LF, CRLF, CR or any
    mixture; frames come out with LF only. Bytes that are not UTF-8 become U+FFFD, whatever charset the server
    names: the format is UTF-8 by definition.
    """

    def __init__(self, max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._pieces: list[bytes] = []  # the open frame, LF only, not yet holding an empty line
        self._open_bytes = 0
        self._after_cr = False  # the last byte read was a CR, already taken as a line end
        self._head: bytes | None = b""  # start of the body until a byte order mark can be ruled out

    def feed(self, data: bytes) -> list[str]:
        """Return the frames that `data` completes, in wire order, without the empty line that ends each.

        Raises:
            FrameTooLarge: The open frame grew beyond `max_frame_bytes`. The decoder is of no use afterwards.
        """
        if self._head is not None:
            data = self._without_bom(data)
        if b"\r" in data or self._after_cr:
            data = self._to_lf(data)
        if not data:
            return []
        frames: list[str] = []
        if self._pieces:
            # What is kept holds no empty line, so only the new bytes are searched: a large frame that arrives in
            # many pieces is put together once and never looked through. A search for one byte is much the cheapest.
            start = self._close_frame(data, frames)
            if start == 0:
                self._keep(data)
                return frames
            data = data[start:]
            if not data:
                return frames
        end = data.rfind(b"\n\n") if b"\n" in data else -1
        if end < 0:
            self._keep(data)
            return frames
        rest = data[end + 2 :]
        if rest:
            self._keep(rest)
        text = str(memoryview(data)[:end], "utf-8", "replace")  # a slice would copy a large event once more
        if text[:1] == "\n" or text[-1:] == "\n" or "\n\n\n" in text:  # more than one empty line between two frames
            frames += [frame for frame in (part.strip("\n") for part in text.split("\n\n")) if frame]
        elif text:
            frames += text.split("\n\n")
        return frames

    def _close_frame(self, data: bytes, frames: list[str]) -> int:
        """Add the open frame to `frames` if `data` ends it; return how much of `data` that took."""
        pieces = self._pieces
        if data[0] == 10 and pieces[-1][-1] == 10:  # the empty line lies across two reads
            start = 1
        else:
            end = data.find(b"\n\n") if b"\n" in data else -1
            if end < 0:
                return 0
            pieces.append(data[:end])
            start = end + 2
        frame = str(b"".join(pieces), "utf-8", "replace").strip("\n")
        if frame:
            frames.append(frame)
        pieces.clear()
        self._open_bytes = 0
        return start

    def eof(self) -> bool:
        """End the body. True if it broke off inside a frame; that part is dropped."""
        broke_off = bool(b"".join(self._pieces).strip(b"\n")) or bool(self._head)
        self._pieces.clear()
        self._open_bytes = 0
        return broke_off

    def _keep(self, data: bytes) -> None:
        self._open_bytes += len(data)
        if self._open_bytes > self._max_frame_bytes:
            raise FrameTooLarge(
                f"an event of the stream is larger than {self._max_frame_bytes} bytes and has not ended"
            )
        self._pieces.append(data)

    def _without_bom(self, data: bytes) -> bytes:
        data = (self._head or b"") + data
        if len(data) < 3 and _BOM.startswith(data):
            self._head = data
            return b""
        self._head = None
        return data[3:] if data.startswith(_BOM) else data

    def _to_lf(self, data: bytes) -> bytes:
        # A CR ends its line at once, so that an event is not held back until the next byte; the LF of a CRLF
        # that arrives in the next read is dropped.
        if self._after_cr and data[:1] == b"\n":
            data = data[1:]
            self._after_cr = False
        if data:
            self._after_cr = data[-1] == 13
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def parse_frame(frame: str) -> Frame:
    """Read the fields of one complete frame as sseclient-py reads them.

    Beyond what that package does, an id or retry time is returned for a frame without data too (a server may send
    one so that the client can resume), an id with NUL is ignored, and only an all-digit retry time counts.
    """
    from sseclient import SSEClient

    event_id = retry = None
    for line in frame.split("\n"):
        name, _, value = line.partition(":")
        value = value[1:] if value[:1] == " " else value
        if name == "id" and "\0" not in value:
            event_id = value
        elif name == "retry" and _DIGITS.fullmatch(value):
            retry = int(value[:12])
    for event in SSEClient(iter([frame.encode("utf-8") + b"\n\n"])).events():
        return Frame(event.event, event.data, event_id, retry)
    return Frame(None, None, event_id, retry)
