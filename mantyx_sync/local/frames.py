"""What an event stream of the embedded servers is fed from: encoded frames, and whether more will follow."""

from __future__ import annotations

import abc
from typing import Callable, Optional

__all__ = ["FrameLog", "PieceLog"]


class FrameLog(abc.ABC):
    """Encoded SSE frames in the order they are to be sent. Readers come and go; `frames` may grow from any thread.

    A subclass says when the log is complete. With `forgets`, frames are dropped once they are sent: for a log that
    has one reader and no end, such as the stream of an agent that stays for days.
    """

    forgets = False

    def __init__(self, log_id: str) -> None:
        self.id = log_id
        self.frames: list[bytes] = []
        # True while the socket loop already knows that there is something to send.
        self.announced = False

    @property
    @abc.abstractmethod
    def is_terminal(self) -> bool:
        """Whether the log is complete; a stream that has sent it all then ends."""

    def reader_left(self) -> None:  # noqa: B027 - a hook: most logs need not know
        """Take notice, on the socket loop's thread, that a stream fed from this log has ended, whoever ended it."""


class PieceLog(FrameLog):
    """A body that comes from elsewhere, in pieces that are sent as they are; it has one reader.

    `end` may be called from any thread, once everything is in `frames`; the socket loop has to be told of either.
    """

    forgets = True

    def __init__(self, log_id: str, on_left: Callable[[], None] | None = None) -> None:
        super().__init__(log_id)
        self.broken: Optional[str] = None
        """How the connection ends, `fin` or `rst`, where the body does not come to its proper end."""
        self._is_complete = False
        self._on_left = on_left

    @property
    def is_terminal(self) -> bool:
        """Whether all there will be is in `frames`."""
        return self._is_complete

    def end(self, broken: str | None = None) -> None:
        """Say that nothing follows: the body is complete, or breaks off."""
        self.broken = broken
        self._is_complete = True

    def reader_left(self) -> None:
        """Pass on that the client is gone."""
        if self._on_left is not None:
            self._on_left()
