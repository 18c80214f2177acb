"""How often something may happen in a minute. Does no I/O; the time is an argument."""

from __future__ import annotations

import collections
import math
from typing import Optional

__all__ = ["MinuteLimit"]

_MINUTE_S = 60.0


class MinuteLimit:
    """At most `limit` in any minute. Not safe to use from several threads at once."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._times: collections.deque[float] = collections.deque()

    def is_idle(self, now: float) -> bool:
        """Whether nothing was counted in the last minute."""
        self._forget(now)
        return not self._times

    def take(self, now: float) -> Optional[int]:
        """Count one, unless the limit is reached: then count nothing and return the whole seconds to wait."""
        self._forget(now)
        if len(self._times) < self.limit:
            self._times.append(now)
            return None
        oldest = self._times[0] if self._times else now
        return max(1, math.ceil(oldest + _MINUTE_S - now))

    def _forget(self, now: float) -> None:
        while self._times and self._times[0] <= now - _MINUTE_S:
            self._times.popleft()
