"""The queue between the thread that reads a run and the caller: quick, bounded, and never in the way of a tool.

Batches of envelopes go in, one item for each read of the socket. When the caller falls behind, the reader waits for
it a moment, a second in all; then, or when nobody takes anything, the reader lets go: it goes on without queueing, so
that tools start and the run ends, and the caller later reads what it missed from the server's log.
"""

from __future__ import annotations

import threading
import time
from typing import List, NamedTuple, Tuple, Union

from .events import NO_SEQ, Envelope
from .transport.bell import Inbox

__all__ = ["Backlog", "Gap"]

MAX_EVENTS = 4096
MAX_CHARS = 2 * 1024 * 1024
GRACE_S = 1.0
"""How long, over a whole run, the reader waits for a caller that is behind: what a tool call may come late by."""


class Gap(NamedTuple):
    """The reader let go behind this event: what follows is in the server's log."""

    last_seq: int


class _End:
    pass


_END = _End()
_Batch = Tuple[List[Envelope], int]


class Backlog:
    """One reader puts, one caller takes. `is_wanted` off means that nobody will take: nothing is queued."""

    def __init__(self, *, is_wanted: bool) -> None:
        self.is_wanted = is_wanted
        self.has_taker = False
        """Whether a caller is looping right now; without one the reader does not wait for room."""
        self._queue: Inbox[Union[_Batch, Gap, _End]] = Inbox()
        self._room = threading.Event()
        self._is_waiting = False
        self._has_let_go = False
        self._grace = GRACE_S
        # Each counter is written by one side only, which is why no lock is needed.
        self._events_put = self._events_taken = 0
        self._chars_put = self._chars_taken = 0

    def put(self, batch: list[Envelope], chars: int) -> None:
        """Queue a batch whose frames were `chars` long. Called by the reader; blocks only as described above."""
        if not self.is_wanted or self._has_let_go or not batch:
            return
        self._events_put += len(batch)
        self._chars_put += chars
        self._queue.put((batch, chars))
        if self._is_full():
            self._wait_for_room(batch[-1]["seq"])

    def end(self) -> None:
        """Mark that nothing follows."""
        self._queue.put(_END)

    def drop(self) -> None:
        """Nobody will take any more; a reader that waits for room goes on."""
        self.is_wanted = False
        self._room.set()

    def take(self, deadline: float | None) -> list[Envelope] | Gap | None:
        """Return the next batch, a gap, or `None` at the end. Blocks.

        Raises:
            TimeoutError: `deadline` (monotonic clock) passed.
        """
        self.has_taker = True
        item = self._queue.get(deadline)
        if isinstance(item, _End):
            self._queue.put(item)  # the end stays the end, however often it is looked at
            return None
        if isinstance(item, Gap):
            return item
        batch, chars = item
        self._events_taken += len(batch)
        self._chars_taken += chars
        if self._is_waiting:
            self._room.set()
        return batch

    def _is_full(self) -> bool:
        return self._events_put - self._events_taken > MAX_EVENTS or self._chars_put - self._chars_taken > MAX_CHARS

    def _wait_for_room(self, last_seq: int) -> None:
        if last_seq == NO_SEQ:
            return  # without numbers the log cannot be read again from here: better to use memory than to lose events
        self._is_waiting = True
        try:
            while self._is_full() and self.is_wanted:
                if not self.has_taker or self._grace <= 0:
                    self._has_let_go = True
                    self._queue.put(Gap(last_seq))
                    return
                began = time.monotonic()
                self._room.wait(self._grace)
                self._room.clear()
                self._grace -= time.monotonic() - began
        finally:
            self._is_waiting = False
