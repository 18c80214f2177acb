"""Following a run to its end: events to the screen, the answer to standard output."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any, Optional

from ..display.state import RunState
from ..display.terminal import plain
from ..errors import MantyxError, MantyxTimeoutError
from ..events import AssistantDelta, AssistantMessage, RunEvent, ThinkingDelta
from .answer import Answer
from .detaching import StopFlag
from .exits import Stopped
from .outcomes import outcome_json
from .screen import Screen
from .showing import Look
from .streams import json_text

if TYPE_CHECKING:
    from ..results import RunResult
    from ..run import Run

__all__ = ["Follower", "Wishes"]

TICK_S = 0.1
_QUIET_TICK_S = 0.5  # where nothing moves, it is only looked whether the answer is still read
_PAINT_S = 0.03


class Wishes:
    """What is to be printed of a run."""

    def __init__(self, *, is_verbose: bool = False, is_json: bool = False, is_events: bool = False) -> None:
        self.is_verbose = is_verbose
        self.is_json = is_json
        """One JSON object at the end, instead of the answer."""
        self.is_events = is_events
        """Each event as a line of JSON, and that object as the last one."""

    @property
    def is_data(self) -> bool:
        """True if standard output carries JSON."""
        return self.is_json or self.is_events


class Follower:
    """Shows one run. `state` is what there was to see of it."""

    def __init__(self, screen: Screen, wishes: Wishes, *, is_streamed: bool, session_id: str | None = None) -> None:
        self.state = RunState()
        self._screen = screen
        self._wishes = wishes
        self._session_id = session_id
        self._answer = Answer(screen, is_streamed=is_streamed and not wishes.is_data)
        self._ended: set[int] = set()  # the places of tool calls whose end was told of
        self._notices = 0
        self._thoughts = 0
        self._steps: dict[str, str] = {}
        self._waiting: list[str] = []  # deltas that came close together are written at once
        self._painted = 0.0

    def follow(self, run: Run, stop: Optional[StopFlag] = None, deadline: float | None = None) -> RunResult:
        """Show the run until it is over, and return its result. Blocks. Ctrl-C cancels the run.

        Args:
            stop: For a run of somebody else's: says when to leave it to itself.
            deadline: On the monotonic clock; the run is left to itself then.

        Raises:
            MantyxError: As `Run.result`.
            BrokenPipeError: Nobody reads the answer; the run was cancelled.
            Stopped: `stop` said so; the run is left to itself.
        """
        screen = self._screen
        self.state.started_at = time.monotonic()
        every = TICK_S if screen.is_live or stop is not None or deadline is not None else _QUIET_TICK_S
        try:
            with contextlib.closing(run.poll(every)) as events:
                for event in events:
                    if stop is not None and stop.number is not None:
                        raise Stopped(stop.number)
                    now = time.monotonic()
                    if deadline is not None and now >= deadline:
                        raise MantyxTimeoutError(f"run {run.run_id} did not end in time; it goes on", run_id=run.run_id)
                    if event is None:
                        self._tick(now)
                    else:
                        self._take(event, now)
            result = run.result()
        except BaseException as error:
            self._flush()
            self.state.lose(error, time.monotonic())
            screen.block(())
            with contextlib.suppress(OSError):
                screen.end_line()
            if isinstance(error, MantyxError) and self._wishes.is_data:
                self._print(outcome_json(run.run_id, error, self.state, self._session_id))
            raise
        self._flush()
        screen.block(())
        if self._wishes.is_data:
            self._print(outcome_json(run.run_id, result, self.state, self._session_id))
        else:
            self._answer.finish(result.text)
        return result

    def _take(self, event: RunEvent, now: float) -> None:
        if self._wishes.is_events:
            self._print(dict(event.raw) or {"seq": event.seq, "type": event.type, "data": dict(event.data)})
        state = self.state
        state.apply(event, now)
        if isinstance(event, AssistantDelta):
            self._tell_thoughts()
            self._waiting.append(event.text)
            if now - self._painted >= _PAINT_S:
                self._flush()
                self._paint(now)
            return
        if isinstance(event, ThinkingDelta):
            if now - self._painted >= _PAINT_S:
                self._paint(now)
            return
        self._flush()
        if isinstance(event, AssistantMessage):
            self._answer.end_turn(event.text)
        elif state.running_tools or event.type in ("tool_call", "local_tool_call"):
            self._answer.end_turn()
        self._tell(now)
        if not event.is_terminal:
            self._paint(now)

    def _tick(self, now: float) -> None:
        self._flush()
        self._screen.check_reader()
        self._paint(now)

    def _flush(self) -> None:
        if self._waiting:
            text = "".join(self._waiting)
            self._waiting.clear()
            self._answer.add(text)

    def _paint(self, now: float) -> None:
        self._painted = now
        if self._screen.is_live:
            self._screen.block(self._look.block(self.state, now, self._screen.height))

    @property
    def _look(self) -> Look:
        return Look(self._screen.style, self._screen.glyphs, self._screen.width)

    # ------------------------------------------------------------------------------------------- lines that stay

    def _tell(self, now: float) -> None:
        """Write a line for each thing that is over."""
        state, look, screen = self.state, self._look, self._screen
        self._tell_thoughts()
        for place, call in enumerate(state.tools):
            if call.state != "running" and place not in self._ended:
                self._ended.add(place)
                screen.line(look.tool(call, now))
        for notice in state.notices[self._notices :]:
            if notice.is_warning or self._wishes.is_verbose:
                screen.line(look.notice(notice))
        self._notices = len(state.notices)
        if not screen.is_live and state.plan is not None:
            for place, step in enumerate(state.plan.steps):
                key = step.id or f"{place}"
                if self._steps.get(key) != step.status:
                    self._steps[key] = step.status
                    screen.line(look.step(step))

    def _tell_thoughts(self) -> None:
        """Write what the model thought, once it has thought it."""
        if not self._wishes.is_verbose:
            return
        for turn in self.state.turns[self._thoughts :]:
            if turn is self.state.turns[-1] and not (turn.is_complete or turn.answer.length or self.state.is_over):
                return
            self._thoughts += 1
            for line in turn.thinking.strip().splitlines():
                self._screen.line(self._screen.style.dim(plain(line)))

    def close(self, *, with_summary: bool = False) -> None:
        """Write what there is to say of a run that is over: its plan, and what it took."""
        state, look, screen = self.state, self._look, self._screen
        if screen.is_live and state.plan is not None and state.plan.steps:
            screen.gap()
            for line in look.plan(state.plan):
                screen.line(line)
        if with_summary:
            screen.gap()
            screen.line(look.summary(state, time.monotonic()))

    def _print(self, value: Any) -> None:
        self._screen.answer(json_text(value, self._screen.out) + "\n")
