"""What the workers of a fleet know together of the platform's limit on starting runs. Redis keeps it.

At first everybody starts runs as they please. The first 429 tells the limit and how long to wait: from then on nobody
starts one before that time, and after it starts are spread evenly over the minute, so that the fleet stays at the
limit instead of running into it. What was learned is forgotten after ten quiet minutes.
"""

import random
import time
from typing import Any, Callable

from mantyx_sync import MantyxRateLimitError

# Reserves the next place in the row, if it is no more than ARGV[1] seconds away; returns how far away it is, in
# microseconds. Redis's own clock counts, so that the clocks of the machines need not agree.
RESERVE = """
local now = redis.call('TIME')
now = now[1] * 1000000 + now[2]
local at = tonumber(redis.call('HGET', KEYS[1], 'at') or '0')
local step = tonumber(redis.call('HGET', KEYS[1], 'step') or '0')
if at < now then at = now end
if step > 0 and at - now <= tonumber(ARGV[1]) * 1000000 then
  redis.call('HSET', KEYS[1], 'at', string.format('%.0f', at + step))
end
return at - now
"""
# Nobody starts for ARGV[1] seconds; then one run every ARGV[2] seconds.
SLOW_DOWN = """
local now = redis.call('TIME')
local till = now[1] * 1000000 + now[2] + tonumber(ARGV[1]) * 1000000
local at = tonumber(redis.call('HGET', KEYS[1], 'at') or '0')
if at < till then redis.call('HSET', KEYS[1], 'at', string.format('%.0f', till)) end
redis.call('HSET', KEYS[1], 'step', string.format('%.0f', tonumber(ARGV[2]) * 1000000))
redis.call('EXPIRE', KEYS[1], 600)
"""


class Pace:
    """The row in which a fleet's runs start. Used by any thread; `redis` gives this process's Redis client."""

    def __init__(self, redis: Callable[[], Any], name: str, *, window: float = 60.0, patience: float = 1.0) -> None:
        """Ask nobody yet.

        Args:
            window: Seconds that the server's limit is for.
            patience: How many seconds ahead a place is reserved; further away, it is asked for again nearer the time.
        """
        self.redis = redis
        self.name = name
        self.window = window
        self.patience = patience

    def wait(self) -> None:
        """Wait until this caller may start a run. Blocks; a task's soft time limit ends it."""
        while True:
            away = int(self.redis().eval(RESERVE, 1, self.name, self.patience)) / 1e6
            if away <= self.patience:
                time.sleep(away)
                return
            # Those who wait for the same moment do not ask again all at once.
            time.sleep(away - self.patience * random.random())

    def slow_down(self, error: MantyxRateLimitError) -> None:
        """Note for the whole fleet what a refusal said."""
        limit = error.rate_limit.limit if error.rate_limit is not None else None
        pause = 5.0 if error.retry_after is None else error.retry_after
        self.redis().eval(SLOW_DOWN, 1, self.name, pause, self.window / limit if limit else 0.5)
