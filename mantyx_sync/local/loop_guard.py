"""Loop detection (wire §8.1): notice that the model makes the same batch of tool calls again and again. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Mapping, Optional, Sequence

from mantyx_sync.local.model import ToolUse

__all__ = [
    "DEFAULT_CONSECUTIVE_THRESHOLD",
    "DEFAULT_HARD_CUTOFF_THRESHOLD",
    "DUPLICATE_BATCH",
    "LOOP_CUTOFF",
    "LOOP_NUDGE",
    "LoopAlarm",
    "LoopGuard",
    "batch_signature",
]

DEFAULT_CONSECUTIVE_THRESHOLD = 3
DEFAULT_HARD_CUTOFF_THRESHOLD = 6

DUPLICATE_BATCH = "You've made this exact call before. It was not made again; its result is above."
LOOP_NUDGE = (
    "You keep making the same tool calls with the same arguments. Either deliver a final answer from what you "
    "have, or change strategy: other arguments or another tool."
)
LOOP_CUTOFF = "You kept making the same tool calls. Tools are switched off now: answer with what you have."


def batch_signature(calls: Sequence[ToolUse]) -> tuple[tuple[str, str], ...]:
    """Return what makes two batches the same: names and arguments, whatever the order of calls and of keys."""
    return tuple(sorted((call.name, _canonical(call.args)) for call in calls))


def _canonical(arguments: Any) -> str:
    return json.dumps(_plain(arguments), sort_keys=True, separators=(",", ":"), default=repr)


def _plain(value: Any) -> Any:
    """Make `1.0` and `1` alike: in JSON they are the same number."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return value


@dataclass(frozen=True)
class LoopAlarm:
    """What to do about a batch: skip it, and once per streak nudge the model, or at last cut it off."""

    count: int
    nudge: bool = False
    hard_cutoff: bool = False


class LoopGuard:
    """Counts equal batches in a row. Shown every turn that has tool calls; other turns do not exist for it."""

    def __init__(
        self, consecutive: int = DEFAULT_CONSECUTIVE_THRESHOLD, hard: int = DEFAULT_HARD_CUTOFF_THRESHOLD
    ) -> None:
        self.consecutive = consecutive
        self.hard = hard
        self._last: Optional[tuple[tuple[str, str], ...]] = None
        self._count = 0

    @classmethod
    def from_spec(cls, value: Any) -> LoopGuard | None:
        """Read `loopDetection`: None has the defaults, `false` has no guard."""
        if value is False:
            return None
        given = value or {}
        soft, hard = given.get("consecutiveThreshold"), given.get("hardCutoffThreshold")
        soft = DEFAULT_CONSECUTIVE_THRESHOLD if soft is None else soft
        hard = DEFAULT_HARD_CUTOFF_THRESHOLD if hard is None else hard
        return cls(soft, hard)

    def observe(self, calls: Sequence[ToolUse]) -> LoopAlarm | None:
        """Take in the batch of one turn; None lets it run."""
        signature = batch_signature(calls)
        self._count = self._count + 1 if signature == self._last else 1
        self._last = signature
        if self._count < self.consecutive:
            return None
        return LoopAlarm(self._count, self._count == self.consecutive, self._count >= self.hard)
