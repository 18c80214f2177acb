"""When an agent connects again (spacefix, "Reconnect and backoff"): a function of what went wrong and of chance.

Does no I/O and reads no clock. The document's rules: one second, doubled with each failure up to thirty, of which
between half and all is waited; at least what `Retry-After` asks for; back to one second when `ready` arrives.

Two things the document leaves to the agent. A key that is refused is tried slowly, from half a minute to five. And
an agent that was told of too many attempts knows that it is one of many: behind the time it was told it waits a
random part of three minutes, and more the next time, so that a fleet that was turned away together comes back below
the sixty attempts a minute that the project has.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

__all__ = ["ReconnectPolicy", "Trouble"]


class Trouble(enum.Enum):
    """Why there is no connection."""

    LOST = "lost"
    """The stream ended, nobody answered, or the gateway answered that it cannot serve now."""
    LIMITED = "limited"
    """429: too many attempts, or too many connections."""
    UNAUTHORISED = "unauthorised"
    """401 or 403: the key, or the project, is not accepted at present."""
    REFUSED = "refused"
    """400, 413, 415: the registration is not accepted, and will not be until it is another."""


@dataclass
class ReconnectPolicy:
    """Seconds to wait before the next attempt; one object for each agent. Not thread-safe: the link's own.

    Args:
        first: The delay after the first failure.
        ceiling: What the doubled delays grow to.
        slow_first: The delay after a key was refused.
        slow_ceiling: What that grows to.
        spread: What an agent that was told of too many attempts waits a random part of.
        spread_ceiling: What that grows to, doubled each time it is told again.
    """

    first: float = 1.0
    ceiling: float = 30.0
    slow_first: float = 60.0
    slow_ceiling: float = 300.0
    spread: float = 180.0
    spread_ceiling: float = 720.0

    def __post_init__(self) -> None:
        self.ready()

    def ready(self) -> None:
        """Note that the gateway said `ready`: the delays start over."""
        self.failures = 0
        """Failures in a row."""
        self._refusals = 0
        self._spread = 0.0  # above 0 once this agent was told of too many attempts

    def failed(self, trouble: Trouble, random: float, retry_after: float | None = None) -> float | None:
        """Return seconds until the next attempt; `None`: there is none before the registration changes.

        Args:
            random: In [0, 1).
            retry_after: What the gateway asked for, in seconds.
        """
        self.failures += 1
        if trouble is Trouble.REFUSED:
            return None
        first, ceiling, count = self.first, self.ceiling, self.failures
        if trouble is Trouble.UNAUTHORISED:
            self._refusals += 1
            first, ceiling, count = self.slow_first, self.slow_ceiling, self._refusals
        delay = _doubled(first, ceiling, count) * (0.5 + random / 2)
        if trouble is Trouble.LIMITED and (self._spread or retry_after is not None):
            self._spread = min(self._spread * 2, self.spread_ceiling) if self._spread else self.spread
        if retry_after is not None or self._spread:
            delay = max(delay, (retry_after or 0.0) + random * self._spread)
        return delay


def _doubled(first: float, ceiling: float, count: int) -> float:
    return float(min(ceiling, first * 2.0 ** min(count - 1, 32)))
