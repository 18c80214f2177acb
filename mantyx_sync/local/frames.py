"""What an event stream of the embedded servers is fed from: encoded frames, and whether more will follow."""

from __future__ import annotations

import abc

__all__ = ["FrameLog"]


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
