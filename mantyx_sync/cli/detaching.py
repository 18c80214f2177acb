"""Signals while a run of somebody else's is followed: they leave it to itself."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import Iterator

from ..transport.signals import handling
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
    numbers = (signal.SIGINT, *stopping_signals())
    with handling(numbers, flag.note, replaces=lambda handler: handler is not signal.SIG_IGN):
        yield flag
