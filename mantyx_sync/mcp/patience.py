"""How long a request over HTTP is waited for, and what ends the wait from outside."""

from __future__ import annotations

import contextlib
import time
from enum import Enum
from typing import Callable, Iterator

from ..tools.deadlines import Deadlines
from ..transport.bell import Signal
from ..transport.body import Release
from .channel import Waiting

__all__ = ["Ending", "Patience"]

_SLICE_S = 0.25  # Ctrl-C is noticed between slices
_FOR_EVER_S = 10.0**9


class Ending(Enum):
    """What ended a wait."""

    DEADLINE = "deadline"
    IDLE = "idle"
    CANCELLED = "cancelled"
    CLOSED = "closed"


class Patience:
    """One wait of one thread: at its end the connection in use is shut, so that a read on it returns.

    The time-outs of a socket are for each read: a server that sends a comment every few seconds never exceeds them.
    Use it as a context manager around the exchange. `end` may be called from any thread, and by the garbage collector.
    """

    def __init__(self, waiting: Waiting, deadlines: Deadlines, on_exit: Callable[[], object] = lambda: None) -> None:
        self.release = Release()
        """Ends the exchange that it was given to."""
        self.ended_by: Ending | None = None
        self._waiting = waiting
        self._deadlines = deadlines
        self._on_exit = on_exit
        self._started = self._heard_at = time.monotonic()
        self._signal = Signal()
        self._child: Patience | None = None
        self._is_busy = self._is_over = False
        self._take_back: list[Callable[[], None]] = []

    def __enter__(self) -> Patience:
        try:
            self._begin()
        except BaseException:  # Ctrl-C: nothing watches a wait that did not begin
            self.__exit__()
            raise
        return self

    def _begin(self) -> None:
        waiting = self._waiting
        if waiting.deadline is not None:
            self._take_back.append(self._deadlines.add(waiting.deadline, lambda: self.end(Ending.DEADLINE)))
        if waiting.idle_timeout is not None:
            self._watch_silence(self._heard_at + waiting.idle_timeout)
        if waiting.cancelled is not None:
            self._take_back.append(waiting.cancelled.add(lambda: self.end(Ending.CANCELLED)))

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        while self._take_back:
            self._take_back.pop()()
        self.release.forget()
        self._on_exit()

    def end(self, reason: Ending) -> None:
        """End the wait. The first reason counts. Neither blocks nor raises."""
        if self.ended_by is None:
            self.ended_by = reason
        self._signal.set()
        self.release()
        child = self._child
        if child is not None:
            child.end(reason)

    def heard(self) -> None:
        """A message for this request came: it may be silent anew for its idle time."""
        self._heard_at = time.monotonic()

    @property
    def is_late(self) -> bool:
        """True once the deadline has passed, noticed or not."""
        deadline = self._waiting.deadline
        return deadline is not None and time.monotonic() >= deadline

    @property
    def waited(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self._started

    @property
    def left(self) -> float:
        """Seconds to the deadline: for the time-outs of the sockets, which are the second line of defence."""
        deadline = self._waiting.deadline
        return _FOR_EVER_S if deadline is None else max(0.001, deadline - time.monotonic())

    def pause(self, seconds: float) -> None:
        """Wait, but not beyond the end."""
        until = time.monotonic() + seconds
        while self.ended_by is None and time.monotonic() < until:
            self._signal.wait(min(_SLICE_S, until - time.monotonic()))

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        """Run code of the caller's inside: that time is not the server's silence."""
        self._is_busy = True
        try:
            yield
        finally:
            self._is_busy = False
            self.heard()

    @contextlib.contextmanager
    def inner(self, at_most: float) -> Iterator[Patience]:
        """Wait for another exchange meanwhile, at most some seconds; it ends with this one as well."""
        limit = time.monotonic() + at_most
        deadline = self._waiting.deadline
        with Patience(Waiting(limit if deadline is None else min(limit, deadline)), self._deadlines) as child:
            self._child = child
            try:
                if self.ended_by is not None:  # just before it was noted
                    child.end(self.ended_by)
                yield child
            finally:
                self._child = None

    def _watch_silence(self, at: float) -> None:
        take_back = self._deadlines.add(at, self._judge_silence)
        self._take_back.append(take_back)
        if self._is_over:  # looked at afterwards: leaving takes back what it finds
            take_back()

    def _judge_silence(self) -> None:
        limit = self._waiting.idle_timeout or 0.0
        now = time.monotonic()
        again = now + limit if self._is_busy else self._heard_at + limit
        if self._is_over:
            return
        if again > now:
            self._watch_silence(again)
        else:
            self.end(Ending.IDLE)
