"""What an agent's handlers did since the last sample. Does no I/O."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Callable

__all__ = ["Window", "WindowFigures"]


@dataclass(frozen=True)
class WindowFigures:
    """Counters of one window, in the words of the protocol (spacefix, "POST /agent/telemetry").

    Attributes:
        calls: Handlers that were started in the window.
        errors: Calls that ended without success in it.
        in_flight: Handlers at work at its end.
        peak_in_flight: The most that were at work at once.
        avg_ms: What a handler took, on average over those that ended in it.
        utilization: Which part of the places was in use, from 0 to 1.
    """

    calls: int
    errors: int
    in_flight: int
    peak_in_flight: int
    avg_ms: float
    utilization: float


class Window:
    """Counts from one sample to the next, and in all. Safe to use from any thread."""

    def __init__(self, places: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin a window.

        Args:
            places: How many handlers can be at work at once.
        """
        self.calls = 0
        self.errors = 0
        self.in_flight = 0
        self._places = places
        self._clock = clock
        self._lock = threading.Lock()
        self._began_at = self._busy_until = clock()
        self._calls = self._errors = self._handled = self._peak = 0
        self._handler_s = self._busy_s = 0.0

    def began(self) -> None:
        """A handler was started."""
        with self._lock:
            self._advance()
            self.calls += 1
            self._calls += 1
            self.in_flight += 1
            self._peak = max(self._peak, self.in_flight)

    def ended(self, seconds: float) -> None:
        """A handler that took so many seconds has ended."""
        with self._lock:
            self._advance()
            self.in_flight -= 1
            self._handled += 1
            self._handler_s += seconds

    def failed(self) -> None:
        """A call ended without success."""
        with self._lock:
            self.errors += 1
            self._errors += 1

    def take(self) -> WindowFigures:
        """Return the figures of the window, and begin the next one."""
        with self._lock:
            now = self._advance()
            length = (now - self._began_at) * self._places
            figures = WindowFigures(
                calls=self._calls,
                errors=self._errors,
                in_flight=self.in_flight,
                peak_in_flight=self._peak,
                avg_ms=self._handler_s * 1000 / self._handled if self._handled else 0.0,
                utilization=min(1.0, self._busy_s / length) if length > 0 else 0.0,
            )
            self._reset(now)
        return figures

    def _advance(self) -> float:
        now = self._clock()
        self._busy_s += self.in_flight * (now - self._busy_until)
        self._busy_until = now
        return now

    def _reset(self, now: float) -> None:
        self._began_at = self._busy_until = now
        self._calls = self._errors = self._handled = 0
        self._peak = self.in_flight
        self._handler_s = self._busy_s = 0.0
