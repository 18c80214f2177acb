"""Bytes of an answer over HTTP -> JSON-RPC messages. Does no I/O."""

from __future__ import annotations

import logging
from typing import Any, Mapping

from ..transport.sse import FrameDecoder, FrameTooLarge, parse_frame
from .messages import decode, members

__all__ = ["SseMessages", "decode_body"]

log = logging.getLogger(__name__)

DEFAULT_RETRY_S = 1.0
MIN_RETRY_S = 0.1
MAX_RETRY_S = 60.0
"""Between these is the pause before a stream is asked for again, whatever the server says."""

Message = Mapping[str, Any]


class SseMessages:
    """Turn the body of an event stream into messages, and know where to go on when it breaks off.

    It outlives a connection: `reconnected` starts the next body of the same stream.
    """

    def __init__(self, max_bytes: int) -> None:
        self.last_event_id: str | None = None
        """The last id seen; an event without data may carry it."""
        self.retry_s = DEFAULT_RETRY_S
        """How long the server wants a client to wait before it reconnects."""
        self._max_bytes = max_bytes
        self._decoder = FrameDecoder(max_bytes)

    def reconnected(self) -> None:
        """The next bytes are those of a new body."""
        self._decoder = FrameDecoder(self._max_bytes)

    def feed(self, data: bytes) -> list[Message]:
        """Return the messages that `data` completes, in order. What is no message is logged and left out.

        Raises:
            FrameTooLarge: One event is larger than allowed.
        """
        messages: list[Message] = []
        for text in self._decoder.feed(data):
            if len(text) > self._max_bytes:  # came whole, with one read
                raise FrameTooLarge(f"an event of the stream is larger than {self._max_bytes} bytes")
            frame = parse_frame(text)
            if frame.id is not None and "\0" not in frame.id:
                self.last_event_id = frame.id or None
            if frame.retry_ms is not None:
                self.retry_s = min(max(frame.retry_ms / 1000, MIN_RETRY_S), MAX_RETRY_S)
            if not frame.data:
                continue
            if frame.event not in (None, "", "message"):
                log.debug("an event of another kind was left out (%d characters)", len(frame.data))
                continue
            try:
                messages += decode_body(frame.data)
            except ValueError as error:
                log.warning("an event of an MCP server is not JSON-RPC and was left out: %s", error)
        return messages


def decode_body(body: str | bytes) -> list[Message]:
    """Return the messages of a JSON text: one, or those of an array (batches were part of 2025-03-26).

    Raises:
        ValueError: It is not JSON.
    """
    try:
        return list(members(decode(body)))
    except ValueError as error:
        # Its text, and the document on it, may quote what a tool returned.
        raise ValueError(f"not JSON ({type(error).__name__})") from None
