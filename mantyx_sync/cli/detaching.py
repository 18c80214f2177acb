"""Signals while a run of somebody else's is followed: they leave it to itself."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from typing import Any, Iterator

from .exits import SAME_S, stopping_signals

__all__ = ["StopFlag", "detaching"]


class StopFlag:
    """Whether a signal came."""

    def __init__(self) -> None:
        self.number: int | None = None
        self._noted_at = 0.0

    def note(self, number: int, frame: object) -> None:  # noqa: ARG002 - the form of a signal's handler
        """Handle a signal. The second one ends the process: whoever asks twice does not want to wait."""
        if self.number is None:
            self.number, self._noted_at = number, time.monotonic()
        elif time.monotonic() - self._noted_at >= SAME_S:
            os._exit(128 + number)


@contextlib.contextmanager
def detaching() -> Iterator[StopFlag]:
    """Note signals in the block instead of interrupting: an interrupted run would be cancelled."""
    flag = StopFlag()
    previous: list[tuple[signal.Signals, Any]] = []
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, *stopping_signals()):
            handler = signal.getsignal(number)
            if handler is not None and handler is not signal.SIG_IGN:
                previous.append((number, handler))
                signal.signal(number, flag.note)
    try:
        yield flag
    finally:
        for restored, handler in previous:
            signal.signal(restored, handler)
