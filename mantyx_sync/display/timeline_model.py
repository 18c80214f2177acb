"""What a run's timeline shows, as values in seconds: turns, tool calls, marks. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Iterable, Sequence

from mantyx_sync.display.html import one_line
from mantyx_sync.display.run_view import Story, story_of
from mantyx_sync.display.state import ToolCallState
from mantyx_sync.display.wording import calls_made, duration, plural, spent
from mantyx_sync.events import RunEvent, TaskPlanEvent
from mantyx_sync.timing import RunTiming, ToolTiming
from mantyx_sync.values import TaskPlan, TokenUsage

__all__ = ["MAX_BARS", "Bar", "Mark", "Moments", "Part", "Row", "moments_of"]

MAX_BARS = 240
"""How many tool calls are drawn one by one; beyond, calls that follow each other are drawn together."""
MAX_TOOLS = 12
"""How many tools have a row of their own."""
MAX_MARKS = 60
MAX_TURNS = 240

_GUARDS = {
    "loop_detected": "loop",
    "tool_budget_exceeded": "budget",
    "supervisor": "supervisor",
    "model_fallback": "fallback",
}


@dataclass(frozen=True)
class Part:
    """A piece of a bar. `kind`: `wait`, `think`, `text` of a turn; `queue`, `run`, `post` of a tool call."""

    kind: str
    start: float
    end: float


@dataclass(frozen=True)
class Bar:
    """A turn, a tool call, or several calls drawn together (`calls`). `is_open`: it had not ended."""

    parts: tuple[Part, ...]
    title: str
    label: str = ""
    is_failed: bool = False
    is_open: bool = False
    calls: int = 1

    @property
    def start(self) -> float:
        """When it begins."""
        return self.parts[0].start

    @property
    def end(self) -> float:
        """When it ends."""
        return max(part.end for part in self.parts)


@dataclass(frozen=True)
class Row:
    """The turns, or the calls of one tool."""

    label: str
    bars: tuple[Bar, ...]
    is_model: bool = False


@dataclass(frozen=True)
class Mark:
    """Something that happened at one moment. `kind`: `guard`, `good` (a review that found nothing) or `plan`."""

    at: float
    kind: str
    label: str
    title: str


@dataclass(frozen=True)
class Moments:
    """A run in time. All times are seconds since it was asked for."""

    total: float
    status: str
    rows: tuple[Row, ...] = ()
    marks: tuple[Mark, ...] = ()
    turns: int = 0
    calls: int = 0
    failed: int = 0
    tokens: TokenUsage | None = None
    notes: tuple[str, ...] = ()
    """What a reader should know of the picture: what was drawn together, or was not seen."""

    @property
    def summary(self) -> str:
        """The run in one line."""
        said = [f"{self.status} {'after' if self.status == 'running' else 'in'} {duration(self.total)}"]
        if self.turns:
            said.append(plural(self.turns, "turn"))
        said += [calls_made(self.calls, self.failed), spent(self.tokens)]
        return ", ".join(part for part in said if part)


def moments_of(
    events: Sequence[RunEvent], timing: RunTiming, *, now: float | None = None, status: str | None = None
) -> Moments:
    """Lay a run's events out in time.

    Args:
        events: Those that were kept.
        timing: When they came.
        now: For a run that goes on: the present, in seconds since it was asked for.
        status: How it ended, where no event says so.
    """
    story = story_of(events, timing)
    outcome = story.state.outcome
    total = _total(timing, now)
    local_times = {tool.tool_use_id: tool for tool in timing.tools}
    calls = [_tool_bar(call, local_times.get(call.tool_use_id or ""), total) for call in story.state.tools]
    if not calls and timing.tools:  # its events were not kept
        calls = [(tool.name, _local_bar(tool, total, tool.failed, "")) for tool in timing.tools]
    turns = _turn_bars(timing, total, [bar for _, bar in calls])
    rows, notes = _tool_rows(calls)
    marks = _marks(story, events, timing)
    if not timing.is_whole:
        notes.insert(0, "Followed from its middle: what had happened before stands where it was learned of.")
    if len(marks) > MAX_MARKS:
        notes.append(f"{plural(len(marks) - MAX_MARKS, 'later mark')} not drawn.")
    return Moments(
        total=total,
        status=status or (outcome.kind if outcome is not None else "running" if timing.ended is None else "ended"),
        rows=((Row("model", tuple(turns), True), *rows) if turns else tuple(rows)),
        marks=tuple(marks[:MAX_MARKS]),
        turns=story.state.turn_count if story.state.turn_count is not None else len(timing.turns),
        calls=len(calls),
        failed=sum(bar.is_failed for _, bar in calls),
        tokens=story.state.tokens,
        notes=tuple(notes),
    )


def _total(timing: RunTiming, now: float | None) -> float:
    known = [timing.created, *timing.events, timing.ended, now if timing.ended is None else None]
    for turn in timing.turns:
        known += [*(turn.thinking or ()), *(turn.text or ()), turn.ended]
    if timing.ended is None:
        for tool in timing.tools:
            known += [tool.called, tool.begun, tool.ended, tool.answered]
    found = [moment for moment in known if moment is not None and math.isfinite(moment)]
    return max(found, default=0.0)


# ------------------------------------------------------------------------------------------- turns


def _turn_bars(timing: RunTiming, total: float, calls: Sequence[Bar]) -> list[Bar]:
    bars: list[Bar] = []
    since = min(timing.created, total)
    ends = sorted((call.end, call.start) for call in calls)
    for number, turn in enumerate(timing.turns[:MAX_TURNS], 1):
        spans = [span for span in (turn.thinking, turn.text) if span is not None]
        end = (
            turn.ended
            if turn.ended is not None
            else total
            if timing.ended is None
            else max([span[1] for span in spans], default=total)
        )
        first = min([span[0] for span in spans], default=end)
        # The model is asked again once the last answer to its calls is there.
        start = max([since, *(done for done, called in ends if since <= called and done <= first)])
        start, end = min(start, first), max(first, end)
        parts = [Part("wait", start, first)]
        words = [f"first piece after {duration(first - start)}" if spans else f"took {duration(end - start)}"]
        if turn.thinking is not None:
            stop = turn.text[0] if turn.text is not None else turn.thinking[1]
            parts.append(Part("think", turn.thinking[0], max(turn.thinking[0], stop)))
            words.append(f"thought for {duration(stop - turn.thinking[0])}")
        if turn.text is not None:
            parts.append(Part("text", turn.text[0], max(turn.text[1], turn.text[0])))
            words.append(f"wrote for {duration(turn.text[1] - turn.text[0])}")
        if parts[-1].end < end:
            parts.append(Part("wait", parts[-1].end, end))
        bars.append(Bar(tuple(parts), f"Turn {number}: {', '.join(words)}", str(number), is_open=turn.ended is None))
        since = end
    return bars


# ------------------------------------------------------------------------------------------- tool calls


def _tool_bar(call: ToolCallState, local: ToolTiming | None, total: float) -> tuple[str, Bar]:
    args = "" if call.args is None else f" {one_line(call.args, 120)}"
    is_failed = call.state == "failed"
    if local is not None:
        return call.name, _local_bar(local, total, is_failed, args)
    end = total if call.ended is None else call.ended
    took = "not answered yet" if call.ended is None else f"took {duration(end - call.started)}"
    state = "failed, " if is_failed else ""
    part = Part("run", call.started, max(call.started, end))
    is_open = call.ended is None or call.state == "stopped"
    return call.name, Bar((part,), f"{call.name}{args}: {state}{took}", is_failed=is_failed, is_open=is_open)


def _local_bar(tool: ToolTiming, total: float, is_failed: bool, args: str) -> Bar:
    called = min(tool.called, total)
    begun = called if tool.begun is None and tool.ended is not None else tool.begun
    parts: tuple[Part, ...]
    if begun is None:
        end = total if tool.answered is None else tool.answered
        words = "waited for a place" if tool.answered is None else "was answered without running"
        parts = (Part("queue", called, max(called, end)),)
    else:
        ended = tool.ended if tool.ended is not None else total if tool.answered is None else tool.answered
        parts = (Part("queue", called, max(called, begun)), Part("run", max(called, begun), max(begun, ended)))
        words = f"ran for {duration(ended - begun)}" if tool.ended is not None else "was running"
        if begun - called >= 0.001:
            words = f"waited {duration(begun - called)} for a place, {words}"
        if tool.ended is not None and tool.answered is not None:
            parts += (Part("post", ended, max(ended, tool.answered)),)
            words += f", answer posted in {duration(tool.answered - ended)}"
    state = "failed, " if is_failed or tool.failed else ""
    return Bar(
        parts,
        f"{tool.name}{args}: {state}{words}",
        is_failed=is_failed or tool.failed,
        is_open=tool.ended is None and tool.answered is None,
    )


def _tool_rows(calls: Sequence[tuple[str, Bar]]) -> tuple[list[Row], list[str]]:
    by_tool: dict[str, list[Bar]] = {}
    for name, bar in calls:
        by_tool.setdefault(name, []).append(bar)
    notes: list[str] = []
    own = list(by_tool)
    if len(own) > MAX_TOOLS:
        # Those that are called most keep a row of their own.
        kept = set(sorted(own, key=lambda name: -len(by_tool[name]))[: MAX_TOOLS - 1])
        others = [bar for name in own if name not in kept for bar in by_tool[name]]
        notes.append(f"{plural(len(own) - len(kept), 'tool')} share the last row.")
        by_tool = {name: bars for name, bars in by_tool.items() if name in kept}
        by_tool["other tools"] = sorted(others, key=lambda bar: bar.start)
    together = math.ceil(len(calls) / MAX_BARS)
    if together > 1:
        notes.append(f"{len(calls):,} tool calls: up to {together:,} that follow each other are drawn as one bar.")
    rows = []
    for name, bars in by_tool.items():
        label = name if len(bars) == 1 else f"{name} ×{len(bars):,}"  # noqa: RUF001  (times, not the letter)
        rows.append(Row(label, tuple(_grouped(name, bars, together))))
    return rows, notes


def _grouped(name: str, bars: Sequence[Bar], together: int) -> Iterable[Bar]:
    if together < 2:
        yield from bars
        return
    for at in range(0, len(bars), together):
        some = bars[at : at + together]
        failed = sum(bar.is_failed for bar in some)
        start, end = some[0].start, max(bar.end for bar in some)
        title = f"{plural(len(some), 'call')} of {name}: {duration(end - start)} in all"
        yield Bar(
            (Part("run", start, end),),
            title + (f", {failed} failed" if failed else ""),
            is_failed=failed > 0,
            is_open=any(bar.is_open for bar in some),
            calls=len(some),
        )


# ------------------------------------------------------------------------------------------- marks


def _marks(story: Story, events: Sequence[RunEvent], timing: RunTiming) -> list[Mark]:
    if len(timing.events) != len(events):
        return []  # nobody knows which time belongs to which event
    marks = [
        Mark(notice.at, "guard" if notice.is_warning else "good", _GUARDS.get(notice.kind, notice.kind), notice.text)
        for notice in story.state.notices
    ]
    before: TaskPlan | None = None
    for at, event in zip(timing.events, events):
        if isinstance(event, TaskPlanEvent) and event.plan is not None:
            found = _plan_mark(event.plan, before, at)
            before = event.plan
            if found is not None:
                marks.append(found)
    return sorted(marks, key=lambda mark: mark.at)


def _plan_mark(plan: TaskPlan, before: TaskPlan | None, at: float) -> Mark | None:
    """Say what changed in a plan; `None` if nothing that shows did."""
    steps = plural(len(plan.steps), "step")
    if before is None:
        return Mark(at, "plan", f"plan, {steps}", "Plan: " + one_line("; ".join(s.title for s in plan.steps), 300))
    old = {step.id or step.title: step.status for step in before.steps}
    changed = [step for step in plan.steps if old.get(step.id or step.title) != step.status]
    if not changed:
        return None
    done = sum(step.status == "done" for step in plan.steps)
    words = "; ".join(f"{step.title}: {step.status.replace('_', ' ')}" for step in changed)
    return Mark(at, "plan", f"{done}/{len(plan.steps)} done", one_line(words, 300))
