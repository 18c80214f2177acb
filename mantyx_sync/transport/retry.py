"""When to try again, and how long to wait before: pure functions of numbers. Does no I/O and reads no clock."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime

__all__ = ["Backoff", "Failure", "Reconnect", "Repeat", "RetryPolicy", "parse_retry_after"]

MIN_SERVER_RETRY_S = 0.1
MAX_SERVER_RETRY_S = 30.0


class Repeat(enum.Enum):
    """Which failures of a request allow sending it once more."""

    SAFE = "safe"
    """The request may arrive twice without harm."""
    ONCE = "once"
    """Only when it surely was not carried out: it never left, or the server says that it refused it."""


class Failure(enum.Enum):
    """How an exchange without an answer failed."""

    UNSENT = "unsent"
    """No connection was opened: the request surely did not arrive."""
    LOST = "lost"
    """The connection broke; the request may have arrived."""
    TIMED_OUT = "timed_out"
    """No answer in time; the request may have arrived."""
    REFUSED = "refused"
    """Trying again cannot help, a certificate that does not fit for example."""


@dataclass(frozen=True)
class Backoff:
    """Exponential delays with full jitter. Times in seconds."""

    base: float = 0.25
    cap: float = 20.0

    def delay(self, attempt: int, random: float) -> float:
        """Return the delay before try `attempt` (0 is the first repetition), for a `random` number in [0, 1)."""
        return min(self.cap, self.base * math.pow(2.0, min(attempt, 32))) * random


@dataclass(frozen=True)
class RetryPolicy:
    """Decide on repeating one HTTP exchange."""

    max_retries: int = 2
    backoff: Backoff = field(default_factory=Backoff)
    max_retry_after: float = 60.0
    """A server that asks for a longer pause (seconds) is not waited for: the caller decides."""

    def after_status(
        self, status: int, repeat: Repeat, attempt: int, retry_after: float | None, random: float
    ) -> float | None:
        """Return seconds to wait before sending again after an answer with `status`; `None`: do not.

        429 and 408, and 503 with `Retry-After`, mean that the server did not carry the request out, so even a
        request that must not arrive twice is repeated. 409 is never repeated: here it is a normal late answer.
        """
        not_carried_out = status in (408, 429) or (status == 503 and retry_after is not None)
        if not (not_carried_out or (repeat is Repeat.SAFE and status >= 500 and status not in (501, 505))):
            return None
        return self._delay(attempt, retry_after, random)

    def after_failure(self, failure: Failure, repeat: Repeat, attempt: int, random: float) -> float | None:
        """Return seconds to wait before sending again after no answer came; `None`: do not.

        A time-out is not repeated: the caller's patience for this exchange is used up.
        """
        if failure is Failure.UNSENT or (failure is Failure.LOST and repeat is Repeat.SAFE):
            return self._delay(attempt, None, random)
        return None

    def _delay(self, attempt: int, retry_after: float | None, random: float) -> float | None:
        if attempt >= self.max_retries or (retry_after or 0.0) > self.max_retry_after:
            return None
        delay = self.backoff.delay(attempt, random)
        # A little jitter on top, so that many clients told the same second do not come back together.
        return delay if retry_after is None else retry_after + min(delay, 0.5 * self.backoff.base)


class Reconnect:
    """How long a broken stream waits before it reconnects, and when it gives up (seconds throughout).

    The clock of giving up starts with the first failure, so a connection that breaks after a long quiet time is
    always tried again. Progress stops it at once. So does a connection on which something, if only a heartbeat, was
    heard for `settled_after`; only such a connection lets the delays start over: a server that accepts, sends a
    little and closes is not hammered.
    """

    settled_after = 5.0

    def __init__(self, give_up_after: float, now: float, backoff: Backoff | None = None) -> None:
        self._give_up_after = give_up_after
        self._backoff = backoff or Backoff()
        self._failing_since: float | None = None
        self._opened_at: float | None = None  # of the connection that has not failed yet
        self._heard_at = now
        self._brought_something = False
        self._attempt = 0
        self.server_retry: float | None = None
        """What the stream's `retry:` field asked for, in seconds; a floor for the delay."""

    @property
    def attempts(self) -> int:
        """Failures since the delays last started over."""
        return self._attempt

    def opened(self, now: float) -> None:
        """A connection was accepted."""
        self._opened_at = self._heard_at = now
        self._brought_something = False

    def heard(self, now: float) -> None:
        """Bytes arrived: the peer is alive, even if there is nothing new."""
        self._heard_at = now

    def progressed(self, now: float) -> None:
        """Something new arrived, or is on its way: the clock of giving up stops."""
        self._heard_at = now
        self._brought_something = True
        self._failing_since = None

    def failed(self, now: float, random: float, retry_after: float | None = None) -> float | None:
        """Return seconds to wait before the next connection, or `None` to give up.

        A connection that brought something new but did not last keeps part of its delay's growth.
        """
        opened_at, self._opened_at = self._opened_at, None
        if opened_at is not None:
            if self._heard_at - opened_at >= self.settled_after:
                self._attempt = 0
                self._failing_since = None
            elif self._brought_something:
                self._attempt = min(self._attempt, 2)
        if self._failing_since is None:
            self._failing_since = now
        left = self._failing_since + self._give_up_after - now
        if left <= 0:
            return None
        delay = self._backoff.delay(self._attempt, random)
        self._attempt += 1
        if self.server_retry is not None:
            delay = max(delay, min(max(self.server_retry, MIN_SERVER_RETRY_S), MAX_SERVER_RETRY_S))
        if retry_after is not None:
            delay = max(delay, retry_after)
        return min(delay, left)


def parse_retry_after(value: str | None, now: float) -> float | None:
    """Read a `Retry-After` header in either form; return seconds from `now` (POSIX time), or `None`."""
    if not value:
        return None
    value = value.strip()
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - now
        except (TypeError, ValueError, OverflowError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None
