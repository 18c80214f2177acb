"""When things happened in a run, as this process saw them. Does no I/O and reads no clock: times are given to it."""

from __future__ import annotations

from typing import Iterable, Optional, Sequence, Tuple

from mantyx_sync.events import Envelope
from mantyx_sync.reprs import dataclass

__all__ = ["Arrivals", "CallTimes", "RunTiming", "Span", "ToolTiming", "TurnTiming"]

Span = Tuple[float, float]
"""From when to when, in seconds since the start of the run."""


@dataclass(frozen=True)
class TurnTiming:
    """When a turn's text arrived: its first and its last piece. `ended` is the arrival of the whole turn.

    A server that sends no pieces leaves both spans `None`; a turn that was cut short has no `ended`.
    """

    thinking: Optional[Span] = None
    text: Optional[Span] = None
    ended: Optional[float] = None


@dataclass(frozen=True)
class ToolTiming:
    """One tool call that this process answered, or was to answer.

    `called`: the call arrived. `begun` and `ended`: the handler ran, so until `begun` the call waited for a place.
    `answered`: the server has the result. What did not happen, or not yet, is `None`.
    """

    tool_use_id: str
    name: str
    kind: str
    called: float
    begun: Optional[float] = None
    ended: Optional[float] = None
    answered: Optional[float] = None
    failed: bool = False


@dataclass(frozen=True)
class RunTiming:
    """When what happened in a run, on this process's clock; kept as `RunResult.timing` and `Run.timing`.

    `started_at` is the time at which the run was asked for, in seconds since 1970; all others are seconds since then.
    `events` has one entry for each of `RunResult.events`. `ended` is `None` while the run goes on. A run that was
    attached to was followed from its middle: `is_whole` is false, and what had happened before counts as arriving when
    its log was read.
    """

    started_at: float
    created: float = 0.0
    events: Tuple[float, ...] = ()
    turns: Tuple[TurnTiming, ...] = ()
    tools: Tuple[ToolTiming, ...] = ()
    ended: Optional[float] = None
    is_whole: bool = True

    def tool(self, tool_use_id: str) -> ToolTiming | None:
        """Return the times of a call that this process answered."""
        return next((tool for tool in self.tools if tool.tool_use_id == tool_use_id), None)


@dataclass
class CallTimes:
    """The times of one call so far, on the monotonic clock. Each is written once, by whichever thread is there."""

    name: str
    kind: str
    called: float
    begun: float | None = None
    ended: float | None = None
    answered: float | None = None
    failed: bool = False


class Arrivals:
    """Notes when the events of a run arrive; written by the thread that reads the run, read by any."""

    def __init__(self, started_at: float, started: float, created: float, *, is_whole: bool) -> None:
        """Note the start.

        Args:
            started_at: When the run was asked for, in seconds since 1970.
            started: The same moment on the monotonic clock, by which all other times are given.
            created: When it was known to exist.
            is_whole: False for a run that was not asked for here.
        """
        self._started_at = started_at
        self._started = started
        self._created = created
        self._is_whole = is_whole
        self._kept: list[float] = []
        self._turns: list[TurnTiming] = []
        self._thinking: Span | None = None
        self._text: Span | None = None
        self._ended: float | None = None

    def arrived(self, batch: Sequence[Envelope], notable: Sequence[Envelope], now: float) -> None:
        """Note a batch of events; `notable` are those in it that are no deltas, the same objects.

        Deltas are not looked at one by one: a run has too many of them, and those of a batch arrived together.
        """
        at = now - self._started
        if notable:
            self._cross_turns(batch, notable, at)
        else:
            self._pieces(batch, at)

    def kept(self, count: int, now: float) -> None:
        """Note that so many of the events are kept for the result."""
        self._kept.extend([now - self._started] * count)

    def over(self, now: float) -> None:
        """Note the end of the run."""
        self._ended = now - self._started

    def read(self, calls: Iterable[tuple[str, CallTimes]]) -> RunTiming:
        """Return everything noted so far, with the times of the tool calls by their ids."""
        turns = tuple(self._turns)
        if self._thinking or self._text:
            turns += (TurnTiming(self._thinking, self._text),)
        return RunTiming(
            started_at=self._started_at,
            created=self._created - self._started,
            events=tuple(self._kept),
            turns=turns,
            tools=tuple(self._tool(tool_use_id, times) for tool_use_id, times in calls),
            ended=self._ended,
            is_whole=self._is_whole,
        )

    def _cross_turns(self, batch: Sequence[Envelope], notable: Sequence[Envelope], at: float) -> None:
        deltas: list[Envelope] = []
        rest = iter(notable)
        following = next(rest)
        for envelope in batch:
            if envelope is not following:
                deltas.append(envelope)
                continue
            if envelope["type"] == "assistant_message":
                self._pieces(deltas, at)
                deltas = []
                self._turns.append(TurnTiming(self._thinking, self._text, at))
                self._thinking = self._text = None
            following = next(rest, envelope)
        self._pieces(deltas, at)

    def _pieces(self, deltas: Sequence[Envelope], at: float) -> None:
        # Thinking comes before text: the two ends tell what there is between them.
        for delta in deltas[:1], deltas[-1:]:
            if delta and delta[0]["type"] == "thinking_delta":
                self._thinking = (self._thinking[0] if self._thinking else at, at)
            elif delta:
                self._text = (self._text[0] if self._text else at, at)

    def _tool(self, tool_use_id: str, times: CallTimes) -> ToolTiming:
        def since(moment: float | None) -> float | None:
            return None if moment is None else moment - self._started

        return ToolTiming(
            tool_use_id=tool_use_id,
            name=times.name,
            kind=times.kind,
            called=times.called - self._started,
            begun=since(times.begun),
            ended=since(times.ended),
            answered=since(times.answered),
            failed=times.failed,
        )
