"""What there is to see of a run so far, folded from its events (wire §4). Pure: times are arguments.

`RunState` is what the live view of a notebook and the lines of a terminal are drawn from. It keeps the text whole,
since that is the answer, but no delta of it; the other events it refers to are those that a `RunResult` keeps as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mantyx_sync.display.growing import Text
from mantyx_sync.display.notices import Notice, sentence_of
from mantyx_sync.errors import MantyxProtocolError, MantyxRunCancelled, MantyxTimeoutError
from mantyx_sync.events import (
    NO_SEQ,
    AssistantDelta,
    AssistantMessage,
    CancelledEvent,
    ErrorEvent,
    LocalToolCall,
    LocalToolResultIn,
    ResultEvent,
    RunEvent,
    TaskPlanEvent,
    ThinkingDelta,
    ToolCall,
    ToolFiles,
    ToolResultEvent,
    decode,
)
from mantyx_sync.values import RunModelInfo, TaskPlan, TokenUsage

__all__ = ["Outcome", "RunState", "ToolCallState", "TurnState"]


@dataclass
class TurnState:
    """One turn of the model, as far as it has come. `started` and `ended` are the caller's times."""

    started: float
    ended: float | None = None
    number: int | None = None
    answer: Text = field(default_factory=Text)
    thoughts: Text = field(default_factory=Text)
    is_complete: bool = False
    """True once the server has said that nothing is added to it."""
    first_thought: float | None = None
    last_thought: float | None = None

    @property
    def is_thinking(self) -> bool:
        """True while the last that came of it is reasoning."""
        return self.ended is None and self.thoughts.length > 0 and not self.answer.length

    def thought_for(self, now: float) -> float:
        """Return how long it reasoned, or has been reasoning until `now`."""
        if self.first_thought is None or self.last_thought is None:
            return 0.0
        return max(0.0, (now if self.is_thinking else self.last_thought) - self.first_thought)

    @property
    def text(self) -> str:
        """The text so far."""
        return str(self.answer)

    @property
    def thinking(self) -> str:
        """The reasoning so far."""
        return str(self.thoughts)


@dataclass
class ToolCallState:
    """One tool call. `state`: `running`, `done`, `failed`, or `stopped` by the end of the run; `detail` says more.

    `kind`: `local`, `a2a_local`, `mcp_local`, or `platform` for a tool that the platform runs itself. `turn` is the
    place in `RunState.turns` of the turn that called it.
    """

    tool_use_id: str | None
    name: str
    args: Any
    kind: str
    state: str
    started: float
    ended: float | None = None
    detail: str = ""
    turn: int = 0
    files: tuple[str, ...] = ()

    @property
    def was_called(self) -> bool:
        """False for a call that was turned away: it comes as a result alone."""
        return self.args is not None or self.started != self.ended

    def duration(self, now: float) -> float:
        """Return how long it took, or has been taking until `now`."""
        return max(0.0, (now if self.ended is None else self.ended) - self.started)


@dataclass(frozen=True)
class Outcome:
    """How the run ended. `kind`: `succeeded`, `failed`, `cancelled` or `lost`; `reason` is empty for a success."""

    kind: str
    reason: str = ""
    at: float = 0.0
    category: str | None = None


class RunState:
    """What there is to see of a run so far. Feed it events in order; one thread at a time.

    `turns`, `tools` and `notices` are in order of arrival. `version` grows with every change that shows.
    """

    def __init__(self, started_at: float | None = None) -> None:
        """Begin with nothing.

        Args:
            started_at: When the run began, on the clock of the caller's other times. `None`: with its first event.
        """
        self.started_at = started_at
        self.turns: list[TurnState] = []
        self.tools: list[ToolCallState] = []
        self.notices: list[Notice] = []
        self.plan: TaskPlan | None = None
        self.outcome: Outcome | None = None
        self.tokens: TokenUsage | None = None
        self.model: RunModelInfo | None = None
        self.turn_count: int | None = None
        """How many turns the run took, as its end says."""
        self.final_text: str | None = None
        """The text of the run's end: the answer, or what a failed run left of one."""
        self.last_seq = 0
        self.version = 0
        self._by_id: dict[str, ToolCallState] = {}
        self._has_tool_since_text = False

    @property
    def text(self) -> str:
        """The answer so far: the last turn's text, and after the end the text that the run ended with."""
        if self.final_text is not None:
            return self.final_text
        return next((turn.text for turn in reversed(self.turns) if turn.answer.length), "")

    @property
    def thinking(self) -> str:
        """The last turn's reasoning so far."""
        return self.turns[-1].thinking if self.turns else ""

    @property
    def is_over(self) -> bool:
        """True once the run has ended or was lost."""
        return self.outcome is not None

    @property
    def running_tools(self) -> list[ToolCallState]:
        """The calls that wait for their answer, the oldest first."""
        return [call for call in self.tools if call.state == "running"]

    def elapsed(self, now: float) -> float:
        """Return for how long the run has been going, or went."""
        if self.started_at is None:
            return 0.0
        return max(0.0, (now if self.outcome is None else self.outcome.at) - self.started_at)

    def apply(self, event: RunEvent, at: float) -> None:
        """Take in the next event. One that was taken in before changes nothing; nor does an unknown type.

        Args:
            event: The event, typed or not.
            at: When it arrived: seconds on any clock, the same for all calls.
        """
        if self.started_at is None:
            self.started_at = at
        if event.seq != NO_SEQ:
            if event.seq <= self.last_seq:
                return
            self.last_seq = event.seq
        if self.outcome is not None:
            return  # the first end is the end
        if type(event) is RunEvent:  # of a session's history, say
            event = _typed(event)
        if isinstance(event, AssistantDelta):
            if event.text:
                self._open_turn(at).answer.add(event.text)
                self.version += 1
        elif isinstance(event, ThinkingDelta):
            if event.text:
                turn = self._open_turn(at)
                turn.thoughts.add(event.text)
                turn.first_thought = at if turn.first_thought is None else turn.first_thought
                turn.last_thought = at
                self.version += 1
        else:
            self._apply_rare(event, at)
            self.version += 1

    def lose(self, error: BaseException, at: float) -> None:
        """Note that the run ends here without a terminal event: it timed out, was lost, or was given up."""
        if self.outcome is None:
            if isinstance(error, (KeyboardInterrupt, GeneratorExit, MantyxRunCancelled, MantyxTimeoutError)):
                reasons = {KeyboardInterrupt: "interrupted", MantyxTimeoutError: "it did not end in time"}
                self._end(Outcome("cancelled", reasons.get(type(error), ""), at))
            else:
                self._end(Outcome("lost", str(error) or type(error).__name__, at, type(error).__name__))
            self.version += 1

    def _apply_rare(self, event: RunEvent, at: float) -> None:
        if isinstance(event, AssistantMessage):
            self._complete_turn(event, at)
        elif isinstance(event, LocalToolCall):
            self._call(event.tool_use_id, event.name, event.args, event.kind, at)
        elif isinstance(event, ToolCall):
            self._call(event.tool_use_id, event.name or "", event.input, "platform", at)
        elif isinstance(event, LocalToolResultIn):
            names = tuple(str(file.get("filename") or "file") for file in event.files)
            self._answer(event.tool_use_id, None, event.error is not None, event.error or "", at, names)
        elif isinstance(event, ToolResultEvent):
            self._answer(event.tool_use_id, event.name, event.ok is False, event.summary or "", at)
        elif isinstance(event, ToolFiles):
            self._add_files(event)
        elif isinstance(event, TaskPlanEvent):
            self._take_plan(event.plan)
        elif event.is_terminal:
            self._take_end(event, at)
        else:
            found = sentence_of(event)
            if found is not None:
                self.notices.append(Notice(event.type, found[0], at, found[1], max(0, len(self.turns) - 1)))

    # ------------------------------------------------------------------------------------------- turns

    def _open_turn(self, at: float) -> TurnState:
        """Return the turn that text is added to, a new one behind a complete one or behind tool calls."""
        last = self.turns[-1] if self.turns else None
        if last is not None and not last.is_complete:
            if not self._has_tool_since_text:
                return last
            last.ended = at
        elif self._has_tool_since_text:  # the model speaks again, so it had its answers, seen or not
            for call in self.running_tools:
                call.state, call.ended = "done", at
        self._has_tool_since_text = False
        self.turns.append(TurnState(at))
        return self.turns[-1]

    def _complete_turn(self, event: AssistantMessage, at: float) -> None:
        turn = next((t for t in reversed(self.turns) if t.number is not None and t.number == event.turn), None)
        if turn is None:
            if not self.turns or self.turns[-1].is_complete:
                self.turns.append(TurnState(at))
            self._join_split_turn(event.text)
            turn = self.turns[-1]
            turn.number, turn.ended, turn.is_complete = event.turn, at, True
        if event.text and event.text != turn.text:
            turn.answer = Text(event.text)  # deltas may have been missed; the message is whole

    def _join_split_turn(self, text: str) -> None:
        """Make one turn of two if the text went on behind a tool call of the same turn after all."""
        if len(self.turns) < 2 or self.turns[-2].is_complete or not self.turns[-2].answer.length:
            return
        before, last = self.turns[-2:]
        if text == before.text + last.text:
            last.answer, last.started = Text(text), before.started
            last.thoughts = Text(before.thinking + last.thinking)
            last.first_thought = last.first_thought if before.first_thought is None else before.first_thought
            last.last_thought = before.last_thought if last.last_thought is None else last.last_thought
            del self.turns[-2]
            for call in self.tools:
                call.turn = min(call.turn, len(self.turns) - 1)

    # ------------------------------------------------------------------------------------------- tools

    def _call(self, tool_use_id: str | None, name: str, args: Any, kind: str, at: float) -> None:
        if tool_use_id and tool_use_id in self._by_id:
            return  # sent again
        if not self.turns:
            self.turns.append(TurnState(at))
        call = ToolCallState(tool_use_id, name or "tool", args, kind, "running", at, turn=len(self.turns) - 1)
        self.tools.append(call)
        if tool_use_id:
            self._by_id[tool_use_id] = call
        self._has_tool_since_text = True

    def _answer(
        self,
        tool_use_id: str | None,
        name: str | None,
        is_failed: bool,
        detail: str,
        at: float,
        files: tuple[str, ...] = (),
    ) -> None:
        call = self._by_id.get(tool_use_id) if tool_use_id else self._oldest_running(name)
        if call is None:  # its call was not seen: an older server, or a stream taken up in the middle
            self._call(tool_use_id, name or "tool", None, "platform" if name else "local", at)
            call = self.tools[-1]
        if call.state == "running":
            call.state, call.ended, call.detail = ("failed" if is_failed else "done"), at, detail
        call.files = call.files or files

    def _oldest_running(self, name: str | None) -> ToolCallState | None:
        return next((c for c in self.tools if c.state == "running" and c.kind == "platform" and c.name == name), None)

    def _add_files(self, event: ToolFiles) -> None:
        call = next((c for c in reversed(self.tools) if event.name is None or c.name == event.name), None)
        if call is not None:
            call.files += tuple(file.filename or "file" for file in event.files)

    # ------------------------------------------------------------------------------------------- plan, end

    def _take_plan(self, plan: TaskPlan | None) -> None:
        old = self.plan
        if plan is None:
            return
        is_same = old is not None and plan.plan_id is not None and plan.plan_id == old.plan_id
        if is_same and old is not None and old.revision is not None and (plan.revision or 0) < old.revision:
            return
        self.plan = plan

    def _take_end(self, event: RunEvent, at: float) -> None:
        if isinstance(event, CancelledEvent):
            self._end(Outcome("cancelled", event.reason or "", at))
            return
        if isinstance(event, ErrorEvent):
            self._take_usage(event)
            self.final_text = event.partial_text
            category = event.error_class or event.code
            self._end(Outcome("failed", event.error or category or "error", at, category))
            return
        if isinstance(event, ResultEvent):
            self._take_usage(event)
            self._take_plan(event.plan)
            subtype = event.subtype or ("error" if event.ok is False else "success")
            if event.data.get("text") is not None:
                self.final_text = event.text
            if subtype == "cancelled":
                self._end(Outcome("cancelled", event.error or "", at))
            elif subtype != "success" or event.ok is False:
                category = "error" if subtype == "success" else subtype
                self._end(Outcome("failed", event.error or category, at, category))
            else:
                self._end(Outcome("succeeded", "", at))
            return
        # A terminal event whose fields are not what they should be: the run is over all the same.
        kind = "cancelled" if event.type == "cancelled" else "failed" if event.type == "error" else "succeeded"
        self.final_text = event.text or None
        self._end(Outcome(kind, "the server's last event could not be read" if kind == "failed" else "", at))

    def _take_usage(self, event: ResultEvent | ErrorEvent) -> None:
        self.tokens, self.model, self.turn_count = event.tokens, event.model, event.turns

    def _end(self, outcome: Outcome) -> None:
        self.outcome = outcome
        if self.turns and self.turns[-1].ended is None:
            self.turns[-1].ended = outcome.at
        for call in self.running_tools:
            call.ended = outcome.at
            if outcome.kind == "succeeded":
                call.state = "done"  # the model went on, so it had its answer; the mirror of it was not seen
            else:
                call.state, call.detail = "stopped", "the run ended first"


def _typed(event: RunEvent) -> RunEvent:
    """Decode an event that came undecoded; one that cannot be, or is of an unknown type, stays as it is."""
    try:
        return decode({"seq": event.seq, "type": event.type, "data": event.data})
    except MantyxProtocolError:
        return event
