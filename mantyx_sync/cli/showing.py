"""How a run looks in a terminal: its tools, its plan, what goes on, how it ended. Pure: from state to lines."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Mapping, Sequence

from ..display.notices import Notice
from ..display.state import RunState, ToolCallState
from ..display.terminal import Glyphs, Style, cells, fit, plain
from ..display.wording import calls_made, duration, plural, spent, ticking
from ..values import TaskPlan, TaskPlanStep

__all__ = ["Look", "call_text"]

MAX_RUNNING = 5
_MIN_SHOWN_S = 0.05  # what took less was read from a log, or is not worth a word
_MAX_DETAIL = 300


@dataclass(frozen=True)
class Look:
    """Turns what there is to see into lines of a width."""

    style: Style
    glyphs: Glyphs
    width: int

    def tool(self, call: ToolCallState, now: float) -> str:
        """Return the line of a tool call, running or over."""
        style, glyphs = self.style, self.glyphs
        took = call.duration(now)
        if call.state == "running":
            return self._line(style.cyan(glyphs.frame(now)), call_text(call), ticking(took))
        time = duration(took) if took >= _MIN_SHOWN_S else ""
        if call.state == "failed":
            return self._line(style.red(glyphs.failed), call_text(call), time, call.detail or "failed", is_failed=True)
        if call.state == "stopped":
            return self._line(style.dim(glyphs.dot), call_text(call), time, call.detail)
        files = f"{plural(len(call.files), 'file')}: {', '.join(call.files)}" if call.files else ""
        return self._line(style.green(glyphs.done), call_text(call), time, files)

    def notice(self, notice: Notice) -> str:
        """Return the line of something that stepped in."""
        text = plain(notice.text, one_line=True)  # not cut: it is a sentence
        if notice.is_warning:
            return self.style.yellow(f"{self.glyphs.warning} {text}")
        return self.style.dim(f"{self.glyphs.dot} {text}")

    def plan(self, plan: TaskPlan, max_lines: int = 1000) -> list[str]:
        """Return the plan as a checklist; of a long one the part around the step that is being done."""
        steps = list(plan.steps)
        lines = [self.step(step) for step in steps]
        if len(lines) > max_lines:
            current = next((i for i, step in enumerate(steps) if step.status not in ("done", "skipped")), 0)
            first = max(0, min(current - 1, len(lines) - max_lines + 1))
            done = sum(step.status in ("done", "skipped") for step in steps)
            lines = [
                "  " + self.style.dim(fit(f"{done} of {len(steps)} steps are done", self.width - 2)),
                *lines[first:],
            ]
        return lines[:max_lines]

    def step(self, step: TaskPlanStep) -> str:
        """Return the line of one step of a plan."""
        style, glyphs = self.style, self.glyphs
        if step.status == "done":
            return self._line(style.green(glyphs.done), step.title)
        if step.status == "in_progress":
            return f"{style.cyan(glyphs.active)} {style.bold(fit(step.title, self.width - 2))}"
        if step.status == "blocked":
            return self._line(style.red(glyphs.failed), f"{step.title} (blocked)")
        if step.status == "skipped":
            return style.dim(self._line(glyphs.skipped, f"{step.title} (skipped)"))
        return self._line(style.dim(glyphs.pending), step.title)

    def block(self, state: RunState, now: float, height: int) -> list[str]:
        """Return the lines that are redrawn: tools at work, the plan, what the model is doing."""
        lines: list[str] = []
        running = state.running_tools
        lines += [self.tool(call, now) for call in running[:MAX_RUNNING]]
        if len(running) > MAX_RUNNING:
            lines.append(self.style.dim(f"  and {len(running) - MAX_RUNNING} more"))
        if state.plan is not None and state.plan.steps:
            lines += self.plan(state.plan, max(3, min(12, height // 2)))
        lines.append(self.doing(state, now))
        return lines

    def doing(self, state: RunState, now: float) -> str:
        """Return the line that says what goes on."""
        sign = self.style.cyan(self.glyphs.frame(now))
        time = f"{int(state.elapsed(now))} s" if state.elapsed(now) < 60 else duration(state.elapsed(now))
        turn = state.turns[-1] if state.turns else None
        tail = ""
        if state.running_tools:
            what = f"waiting for {plural(len(state.running_tools), 'tool')}"
        elif turn is None or turn.is_complete:
            what = "waiting for the model"
        elif turn.answer.length:
            what = "writing"
        elif turn.thoughts.length:
            what, tail = "thinking", turn.thoughts.tail(4 * self.width)
        else:
            what = "waiting for the model"
        head = f"{what} {self.glyphs.dot} {time}"
        room = self.width - cells(head) - 5
        if tail and room > 12:
            return f"{sign} {self.style.dim(f'{head} {self.glyphs.dot} ' + _last(tail, room))}"
        return f"{sign} {self.style.dim(fit(head, self.width - 2))}"

    def summary(self, state: RunState, now: float) -> str:
        """Return a line about a run that is over: how long, how many turns, which model, what it cost."""
        parts = [duration(state.elapsed(now))]
        if state.turn_count:
            parts.append(plural(state.turn_count, "turn"))
        if state.tools:
            parts.append(calls_made(len(state.tools), sum(call.state == "failed" for call in state.tools)))
        parts.append(spent(state.tokens))
        if state.model is not None:
            parts.append(state.model.id)
        return self.style.dim(fit(f" {self.glyphs.dot} ".join(part for part in parts if part), self.width))

    def _line(self, sign: str, text: str, time: str = "", detail: str = "", *, is_failed: bool = False) -> str:
        """Return a line of a sign, a text that is cut first, a time, and what room is left for the detail.

        Why something failed is worth a line of its own.
        """
        style = self.style
        right = f"  {time}" if time else ""
        room = max(8, self.width - 2 - cells(right))
        text = fit(text, room)
        line = f"{sign} {text}{style.dim(right)}"
        if not detail:
            return line
        tint, left = (style.red if is_failed else style.dim), room - cells(text) - 2
        whole = fit(detail[:_MAX_DETAIL], _MAX_DETAIL)
        if cells(whole) <= left or (left >= 12 and not is_failed):
            return f"{line}  {tint(fit(whole, left))}"
        return f"{line}\n  {tint(fit(whole, 2 * self.width - 4))}" if is_failed else line


def call_text(call: ToolCallState) -> str:
    """Return a call as it would be written in Python: `get_order(order_id="17")`."""
    return f"{call.name}({_arguments(call.args)})"


def _arguments(args: Any) -> str:
    if isinstance(args, Mapping):
        return ", ".join(f"{name}={_value(value)}" for name, value in list(args.items())[:20])
    return "" if args is None else _value(args)


def _value(value: Any) -> str:
    if isinstance(value, str):
        value = value[:200]
    elif isinstance(value, (list, Mapping)) and len(value) > 20:
        return f"{type(value).__name__} of {len(value)}"
    try:
        return json.dumps(value, ensure_ascii=False, default=str)[:200]
    except (ValueError, RecursionError):
        return "…"


def _last(text: str, width: int) -> str:
    """Return the end of a text on one line."""
    line = " ".join(text.split())
    kept: Sequence[str] = line[-width:]
    while cells("".join(kept)) > width:
        kept = kept[1:]
    return fit("".join(kept), width)
