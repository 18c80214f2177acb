"""What a link to a server holds: the line that is open, and the opening that is going on."""

from __future__ import annotations

import copy
import threading
from dataclasses import dataclass
from typing import List, Optional

from ..errors import MantyxError
from ..transport.bell import Bell
from .cancelling import wait_for
from .channel import Channel, Era, Waiting
from .incoming import Incoming
from .models import McpServerInfo

__all__ = ["Attempt", "Line", "LinkState"]


@dataclass(frozen=True)
class Line:
    """An open way to the server. A new one is made when it is opened anew."""

    channel: Channel
    incoming: Incoming
    era: Era
    version: str
    server: Optional[McpServerInfo] = None
    generation: Optional[int] = None


class Attempt:
    """One opening, and those who wait for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bells: List[Bell] = []
        self._is_over = False
        self._line: Line | None = None
        self._error: BaseException | None = None

    def finish(self, line: Line | None, error: BaseException | None = None) -> None:
        """Note how it ended; the first word counts."""
        with self._lock:
            if self._is_over:
                return
            self._line, self._error, self._is_over = line, error, True
            bells, self._bells = self._bells, []
        for bell in bells:
            bell.ring()

    def wait(self, waiting: Waiting, label: str) -> Line:
        """Wait for its end and return the line, or raise what it failed with."""
        bell = Bell()
        with self._lock:
            self._bells.append(bell)
        while not self._is_over:
            wait_for(bell, waiting, label, "was being opened")
        if self._line is None:
            assert self._error is not None
            raise _again(self._error)
        return self._line


class LinkState:
    """What belongs to one process: a fork leaves the child without its threads, and with locks as they were."""

    def __init__(self, *, is_closed: bool = False) -> None:
        self.lock = threading.Lock()
        self.channel: Channel | None = None
        self.incoming: Incoming | None = None
        self.line: Line | None = None
        self.attempt: Attempt | None = None
        self.threads: List[threading.Thread] = []
        self.is_closed = is_closed


def _again(error: BaseException) -> BaseException:
    """Return an error to raise in place of one that is kept: raising ties it to the frames of whoever waits."""
    if not isinstance(error, MantyxError):
        return error
    again = copy.copy(error)
    again.__cause__, again.__suppress_context__ = error.__cause__, True
    return again
