"""Waiting until a signal asks a process to end, with the handlers of others restored afterwards."""

from __future__ import annotations

import contextlib
import signal
import threading
from types import FrameType
from typing import Any, Callable, Iterator, Optional

from .bell import Bell

__all__ = ["StopRequest", "stop_signals"]

_SLICE_S = 0.25  # where the system hands a signal to another thread, its handler runs between slices


class StopRequest:
    """Whether a signal has asked for the end, and a wait that one ends."""

    def __init__(self, on_stop: Optional[Callable[[], None]] = None) -> None:
        self.number: int | None = None
        """The signal that came."""
        self.is_urgent = False
        """Set once the second signal has done its work: those that follow change nothing."""
        self._on_stop = on_stop
        self._bell = Bell()

    def wait(self) -> None:
        """Wait a moment; shorter if a signal comes."""
        self._bell.wait(_SLICE_S)

    def note(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the form of a signal's handler
        """Handle a signal."""
        if self.is_urgent:
            return
        if self.number is not None:
            raise KeyboardInterrupt  # whoever asks twice does not want to wait
        self.number = number
        self._bell.ring()
        if self._on_stop is not None:
            self._on_stop()


@contextlib.contextmanager
def stop_signals(on_stop: Optional[Callable[[], None]] = None) -> Iterator[StopRequest]:
    """Notice SIGTERM and SIGINT in the block instead of what they did before; the second one interrupts.

    Off the main thread, where Python has no handlers of signals, only the wait is of use.

    Args:
        on_stop: Called in the handler, inside any line of code: it takes no lock.
    """
    request = StopRequest(on_stop)
    previous: list[tuple[int, Any]] = []
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            handler = signal.getsignal(number)
            if handler is not None:  # one that was not installed from Python could not be put back
                previous.append((number, handler))
                signal.signal(number, request.note)
    try:
        yield request
    finally:
        for restored, handler in previous:
            signal.signal(restored, handler)
