"""Handling signals for a while, and waiting until one asks a process to end."""

from __future__ import annotations

import contextlib
import signal
import threading
from types import FrameType
from typing import Any, Callable, Iterable, Iterator, Optional

from .bell import Bell

__all__ = ["StopRequest", "handling", "stop_signals"]

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
    with handling((signal.SIGTERM, signal.SIGINT), request.note):
        yield request


@contextlib.contextmanager
def handling(
    numbers: Iterable[signal.Signals],
    handler: Callable[[int, Optional[FrameType]], object],
    *,
    replaces: Callable[[Any], bool] = lambda _: True,
    behind: Any = None,
) -> Iterator[None]:
    """Have a handler stand in for those of some signals in the block. Does nothing off the main thread.

    Args:
        replaces: Tells of a handler that is there whether this one stands in for it. One that was not installed from
            Python, and so could not be put back, stays in any case.
        behind: What is installed behind the block. `None`: what was there before it.
    """
    previous: list[tuple[signal.Signals, Any]] = []
    if threading.current_thread() is threading.main_thread():
        for number in numbers:
            before = signal.getsignal(number)
            if before is not None and replaces(before):
                previous.append((number, before))
                signal.signal(number, handler)
    try:
        yield
    finally:
        for restored, before in previous:
            signal.signal(restored, before if behind is None else behind)
