"""The body of a streamed answer -> the results in it."""

from __future__ import annotations

import json
import logging
import re
from collections import deque
from typing import Any, Deque

from ...errors import cut
from ...transport.answers import Opened
from ...transport.body import BodyBroken, BodyIdle
from ...transport.sse import FrameDecoder, FrameTooLarge, parse_frame
from .addresses import GuardedRelease
from .allowance import Allowance, Watch
from .errors import A2AProtocolError
from .results import given_up, result_of

__all__ = ["EventReader", "StreamBroken"]

log = logging.getLogger(__name__)


_SENDABLE_ID = re.compile(r"[!-~]([ -~]{0,1022}[!-~])?")
"""Ids that go back in a header as they came. Others are of no use: what came with them is asked for anew."""


class StreamBroken(Exception):
    """The stream ended, or fell silent, before it said that it was over."""


class EventReader:
    """The results of one streamed answer. One thread reads; close it when done. `release` ends a read from any."""

    def __init__(self, opened: Opened, release: GuardedRelease, label: str, method: str, max_bytes: int) -> None:
        self.release = release
        self.last_id: str | None = None
        """The id of the last event that carried one."""
        self._label = label
        self._opened = opened
        self._method = method
        self._decoder = FrameDecoder(max_bytes)
        self._frames: Deque[str] = deque()

    def next(self, allowance: Allowance) -> Any:
        """Return the next result; `None` at the end of the body. Blocks.

        Raises:
            StreamBroken: The connection broke, fell silent, or sent what is no event stream.
            A2ARequestError: The agent reports an error.
            A2ATimeoutError, A2ACancelled: The time is over, or the call was cancelled.
        """
        while True:
            while self._frames:
                if allowance.is_over:  # a small piece may hold very many
                    raise given_up(self._label, allowance)
                result = self._read(self._frames.popleft())
                if result is not None:
                    return result
            try:
                with Watch(allowance, self.release):
                    data = self._opened.read()
            except BodyIdle as idle:
                if allowance.is_over:
                    raise given_up(self._label, allowance) from None
                raise StreamBroken(f"the stream fell silent: {idle}") from None
            except BodyBroken as broken:
                if self.release.called:
                    raise given_up(self._label, allowance) from None
                raise StreamBroken(f"the stream broke: {broken}") from None
            if not data:
                if self._decoder.eof():
                    raise StreamBroken("the stream ended in the middle of an event")
                return None
            try:
                self._frames.extend(self._decoder.feed(data))
            except FrameTooLarge as error:
                raise A2AProtocolError(f"{self._label}: {error}") from None

    def _read(self, text: str) -> Any:
        frame = parse_frame(text)
        if frame.id is not None:
            self.last_id = frame.id if _SENDABLE_ID.fullmatch(frame.id) else None
        if not frame.data:
            return None
        try:
            response = json.loads(frame.data)
        except (ValueError, RecursionError):
            if frame.event == "error":
                raise A2AProtocolError(f"{self._label}: {self._method}: {cut(frame.data)}") from None
            response = None
        if not isinstance(response, dict) or not ("result" in response or "error" in response):
            if frame.event == "error":
                return result_of({"error": response}, self._label, self._method)
            size, name = len(frame.data), (frame.event or "")[:40]
            log.warning("an event of an A2A stream was skipped: %d characters, event %r: no response", size, name)
            return None
        return result_of(response, self._label, self._method)

    def be_idle_at_most(self, seconds: float) -> None:
        """From now on, take silence of that long for a broken connection."""
        self.release.set_idle_timeout(seconds)

    def close(self) -> None:
        """Close the connection, from the thread that reads."""
        self._opened.close()
