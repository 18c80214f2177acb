"""The agent loop of the embedded server: model turns, tool calls, guards, the terminal event.

One call of `run_agent_loop` plays one run from its first turn to its terminal event, on the thread that
called it. It knows no HTTP: what it says goes into the run's log, what the client answers comes out of it.
The ideas live in modules of their own (`loop_guard`, `budgets`, `supervisor`, `plan`, `outcomes`,
`toolrounds`); here stands in which order they have their say.

A turn with tool calls goes through the guards in this order: the turn limit of `budgets`, loop detection, the
tool budgets; at the bottom of the round the supervisor. A guard that wants the run to end switches the tools
off for one last turn. Calls made in that turn are not answered: its text is the answer, and if there is
none the run fails with the guard's own subtype (`error_max_tool_turns`, `error_loop_detected`,
`error_supervisor_finalize`).

Where the documents are silent: a turn that a supervisor broke off, or that a fallback model repeats, counts
as a turn and with its tokens but has no `assistant_message`; a loop is nudged once per streak and its further
batches are skipped without another event; a refusal ends the run as an `error` with `finishReason`
`refusal`.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Mapping, Optional, Sequence

from mantyx_sync import limits
from mantyx_sync.local.budgets import ToolBudgets
from mantyx_sync.local.conversation import Conversation
from mantyx_sync.local.loop_guard import DUPLICATE_BATCH, LOOP_CUTOFF, LOOP_NUDGE, LoopGuard
from mantyx_sync.local.model import Model, ModelFailure, ModelRequest, ToolUse, Usage
from mantyx_sync.local.modelinfo import Catalog, model_info, reasoning_number
from mantyx_sync.local.outcomes import Abandoned, OutputContract, RunEnded, Turn, failure_data, failure_of
from mantyx_sync.local.oversight import Oversight
from mantyx_sync.local.plan import Planner, split_prompt
from mantyx_sync.local.planning import PlanFollower
from mantyx_sync.local.remote_tools import RemoteTools
from mantyx_sync.local.store import Run
from mantyx_sync.local.supervisor import Judge, SupervisorSettings, Verdict, rule_judge
from mantyx_sync.local.toolrounds import ToolRounds
from mantyx_sync.local.toolset import BoundTool, ServerTools, tools_of
from mantyx_sync.local.turns import play_turn

__all__ = ["EngineSettings", "run_agent_loop"]

_log = logging.getLogger(__name__)

TURNS_USED_UP = "The tool turn budget of this run is used up. Answer with what you have."
# The classes of failure that another model may not meet (wire §4.8), where the model does not say itself.
RETRYABLE_CLASSES = frozenset({"rate_limit", "overloaded", "server", "timeout", "upstream_deadline"})


@dataclass(frozen=True)
class EngineSettings:
    """How the loop behaves where the documents leave the choice to the server; `LocalServer` explains each."""

    local_tool_timeout: float = limits.LOCAL_TOOL_TIMEOUT_S
    # The older of two documented behaviours: a time-out ends the run instead of being told to the model.
    fail_on_local_tool_timeout: bool = False
    default_max_tool_turns: int = limits.MAX_TOOL_TURNS
    tools: ServerTools = field(default_factory=dict)
    judge: Optional[Judge] = None
    planner: Optional[Planner] = None
    other_models: Mapping[str, Model] = field(default_factory=dict)
    catalog: Catalog = None
    clock: Callable[[], float] = time.monotonic


def run_agent_loop(run: Run, model: Model, settings: EngineSettings) -> None:
    """Play a run to its terminal event. Blocks; never raises.

    Args:
        run: Its `history` is what a session said before; its `conversation` becomes the list of messages as the
            model sees them, which grows while the run goes on.
        model: Thinks for every run whose model is not among the settings' `other_models`.
        settings: The server's.
    """
    loop: Optional[_Loop] = None
    try:
        loop = _Loop(run, model, settings)
        loop.play()
    except RunEnded as ended:
        run.finish(ended.event_type, {**ended.data, **_totals(run, loop)})
    except Abandoned:
        run.finish("error", {"error": "The server stopped.", "code": "worker_error", **_totals(run, loop)})
    except Exception as error:
        _log.exception("run %s: the model or the loop raised", run.id, extra={"run_id": run.id})
        message = f"{type(error).__name__} in the model: {error}"
        data = {"error": message, "code": "worker_error", "errorClass": "unknown"}
        run.finish("error", {**data, **_totals(run, loop)})
    finally:
        if loop is not None:
            loop.close_tools()


def _totals(run: Run, loop: _Loop | None) -> dict[str, Any]:
    """Build the fields that every terminal event has (wire §4.8.1)."""
    usage = Usage() if loop is None else loop.usage
    data: dict[str, Any] = {
        "tokens": usage.to_wire(),
        "turns": 0 if loop is None else loop.turns,
        "model": run.model,
    }
    if loop is not None and loop.contract is not None:
        data["structuredOutput"] = loop.contract.info()
    return data


class _Loop:
    def __init__(self, run: Run, model: Model, settings: EngineSettings) -> None:
        spec = run.spec
        self.run = run
        self.settings = settings
        self.conversation = Conversation(spec, run.history)
        run.conversation = self.conversation.messages
        self.remote: Optional[RemoteTools] = None
        self.tools: Mapping[str, BoundTool] = {}
        self.usage = Usage()
        self.turns = 0
        self.reasoning = ""  # of the turn before

        self.model_id = str(run.model.get("id", ""))
        self.default_model = model
        self.model = settings.other_models.get(self.model_id, model)
        self.fallback_id: Optional[str] = spec.get("fallbackModelId")
        self.contract: Optional[OutputContract] = None
        if spec.get("outputSchema"):
            self.contract = OutputContract(spec["outputSchema"], _mechanism(self.model))
        self.show_thinking = reasoning_number(spec.get("reasoningLevel")) > 0

        budgets = spec.get("budgets") or {}
        given = budgets.get("maxToolTurns")
        self.max_tool_turns: int = settings.default_max_tool_turns if given is None else given
        self.finalize_when_exceeded = (budgets.get("maxToolTurnsExceeded") or "finalize") == "finalize"
        self.tool_turns = 0
        self.finalizing: Optional[str] = None  # the subtype of the failure, should the last turn bring no answer
        self.rounds: Optional[ToolRounds] = None  # these two stand once there is a call: most runs have none
        self.loop_guard: Optional[LoopGuard] = None
        self.plan = PlanFollower(run, self.conversation)
        self.oversight: Optional[Oversight] = None
        wanted = SupervisorSettings.from_spec(spec.get("supervisor"))
        if wanted is not None:
            self.oversight = Oversight(
                run,
                wanted,
                settings.judge or rule_judge,
                model_info(wanted.model_id or "local:judge", settings.catalog),
                plan=self.plan,
                clock=settings.clock,
            )

    def open_tools(self) -> None:
        """Reach what the server answers itself by asking others; and make the tools of the run."""
        spec = self.run.spec
        if any(ref["kind"] in ("mcp", "a2a") for ref in spec.get("tools") or ()):
            self.remote = RemoteTools(self.run)
            self.remote.open()
            self._stop_if_asked()
        self.tools = tools_of(spec, self.settings.tools, self.remote)

    def close_tools(self) -> None:
        """Let go of whom the tools ask."""
        if self.remote is not None:
            self.remote.close()

    def play(self) -> None:
        self.run.status = "running"
        self.open_tools()
        if "plan" in self.run.spec:
            self.plan.prepare(self.settings.planner or split_prompt, list(self.tools))
        refused = self.contract.refuse_model() if self.contract is not None else None
        if refused is not None:
            raise RunEnded("error", failure_data(Turn(), refused))
        while True:
            self._stop_if_asked()
            turn = self._model_turn()
            if turn is None:
                continue
            if not turn.calls or self.finalizing is not None:
                self._stop_if_asked()
                self._land(turn)
                return
            self._tool_round(turn)
            if self.oversight is not None and self.finalizing is None:
                self._stop_if_asked()
                verdict = self.oversight.review_round(self.turns, self.reasoning)
                if verdict is not None:
                    self._obey(verdict)

    def _stop_if_asked(self) -> None:
        if self.run.abandoned.is_set():
            raise Abandoned
        if self.run.cancelled.is_set():
            raise RunEnded("cancelled", {"reason": "user"})

    # ----------------------------------------------------------- model turns

    def _model_turn(self) -> Turn | None:
        """Ask the model; None if the turn is to be repeated, by another model or after a steering message."""
        run = self.run
        request = ModelRequest(
            tuple(self.conversation.messages),
            [tool.declaration for tool in self.tools.values()] if self.finalizing is None else [],
            run.spec,
            self.turns,
            run.id,
            run.cancelled,
            run.abandoned,
            self.model_id,
            None if self.contract is None else self.contract.schema,
        )
        number = self.turns
        self.turns += 1
        watch = None
        if self.oversight is not None and self.finalizing is None:
            watch = self.oversight.watch(number)
        turn = play_turn(self.model, request, run, show_thinking=self.show_thinking, watch=watch)
        self.usage += turn.usage
        self.reasoning = turn.reasoning
        if turn.interrupted:
            assert self.oversight is not None
            self._obey(self.oversight.intervention)
            return None
        if turn.failure is not None and self._goes_on_after(turn.failure):
            return None
        self._say(turn, number)
        failure = failure_of(turn)
        if failure is not None and (not self.run.cancelled.is_set() or turn.failure is not None):
            raise RunEnded("error", failure_data(turn, failure))
        return turn

    def _say(self, turn: Turn, number: int) -> None:
        """Emit the turn's `assistant_message` (wire §4.4) and keep it in the conversation."""
        if not turn.text and not turn.calls and (turn.failure is not None or self.run.cancelled.is_set()):
            return  # nothing was said: the turn never became a message
        data: dict[str, Any] = {"text": turn.text, "turn": number}
        if turn.finish_reason is not None:
            data["finishReason"] = turn.finish_reason
        listed = self.conversation.add_assistant(turn.text, turn.calls)
        if listed:
            data["toolCalls"] = listed
        self.run.emit("assistant_message", data)

    def _goes_on_after(self, failure: ModelFailure) -> bool:
        """Try again without the output schema, or with the fallback model. False if the failure is the end."""
        if self.run.cancelled.is_set():
            return False
        if self.contract is not None and self.contract.drop_after(failure):
            return True
        retryable = failure.retryable
        if retryable is None:
            retryable = failure.error_class in RETRYABLE_CLASSES
        if not retryable or not self.fallback_id or self.fallback_id == self.model_id:
            return False
        primary, self.model_id, self.fallback_id = self.model_id, self.fallback_id, None
        level = self.run.spec.get("reasoningLevel")
        self.run.model = model_info(self.model_id, self.settings.catalog, level)
        self.model = self.settings.other_models.get(self.model_id, self.default_model)
        if self.contract is not None and self.contract.schema is not None:
            self.contract = OutputContract(self.contract.schema, _mechanism(self.model))
            refused = self.contract.refuse_model()
            if refused is not None:
                raise RunEnded("error", failure_data(Turn(), refused))
        self.run.emit(
            "model_fallback",
            {
                "errorClass": failure.error_class or "unknown",
                "model": self.run.model,
                "primaryModelId": primary,
                "fallbackModelId": self.model_id,
            },
        )
        return True

    def _obey(self, verdict: Verdict) -> None:
        if verdict.steering is not None:
            self.conversation.steer(verdict.steering)
        if verdict.action == "finalize":
            self.finalizing = "error_supervisor_finalize"

    # ------------------------------------------------------------ tool rounds

    def _start_rounds(self) -> ToolRounds:
        spec, settings = self.run.spec, self.settings
        self.loop_guard = LoopGuard.from_spec(spec.get("loopDetection"))
        return ToolRounds(
            self.run,
            self.conversation,
            self.tools,
            ToolBudgets.from_spec(spec.get("toolBudgets")),
            timeout=settings.local_tool_timeout,
            fail_on_timeout=settings.fail_on_local_tool_timeout,
            between=self._stop_if_asked,
        )

    def _tool_round(self, turn: Turn) -> None:
        calls = turn.calls
        if self.rounds is None:
            self.rounds = self._start_rounds()
        if self.tool_turns >= self.max_tool_turns:
            if not self.finalize_when_exceeded:
                raise self._no_answer(turn, "error_max_tool_turns")
            # The calls are not made. The model is told, and has one turn without tools to end well.
            self.rounds.refuse(calls, "tool_turns_exceeded", TURNS_USED_UP)
            self.finalizing = "error_max_tool_turns"
            return
        self.tool_turns += 1
        if self._stopped_by_loop_guard(calls, self.rounds):
            return
        if self.rounds.make(calls):
            self.plan.tools_done()

    def _stopped_by_loop_guard(self, calls: Sequence[ToolUse], rounds: ToolRounds) -> bool:
        alarm = self.loop_guard.observe(calls) if self.loop_guard is not None else None
        if alarm is None:
            return False
        rounds.refuse(calls, "duplicate_tool_calls", DUPLICATE_BATCH)
        if alarm.hard_cutoff:
            self.conversation.steer(LOOP_CUTOFF)
            self.finalizing = "error_loop_detected"
        elif alarm.nudge:
            self.conversation.steer(LOOP_NUDGE)
        if alarm.hard_cutoff or alarm.nudge:
            names = list(dict.fromkeys(call.name for call in calls))
            self.run.emit(
                "loop_detected",
                {"consecutiveCount": alarm.count, "hardCutoff": alarm.hard_cutoff, "tools": names},
            )
        return True

    # ---------------------------------------------------------------- the end

    def _land(self, turn: Turn) -> None:
        if turn.calls and not turn.text:
            raise self._no_answer(turn, self.finalizing or "error_max_tool_turns")
        failure = self.contract.check(turn.text) if self.contract is not None else None
        if failure is not None:
            raise RunEnded("error", failure_data(turn, failure))
        self.plan.finish()
        raise RunEnded("result", {"subtype": "success", "ok": True, "text": turn.text})

    def _no_answer(self, turn: Turn, subtype: str) -> RunEnded:
        if subtype == "error_max_tool_turns":
            message = f"The run used up its {self.max_tool_turns} tool turns."
        else:
            message = "The run was to end without further tools, and the model called tools instead of answering."
        data: dict[str, Any] = {"subtype": subtype, "ok": False, "error": message}
        if turn.text:
            data["partialText"] = turn.text
        return RunEnded("result", data)


def _mechanism(model: Model) -> str:
    return str(getattr(model, "structured_output", "none"))
