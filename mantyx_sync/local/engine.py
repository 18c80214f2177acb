"""The agent loop of the embedded server: model turns, tool calls, limits, the terminal event.

One call of `run_agent_loop` plays one run from its first turn to its terminal event, on the thread that
called it. It knows no HTTP: what it says goes into the run's log, what the client answers comes out of it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any, Mapping, Optional, Sequence

from mantyx_sync import limits
from mantyx_sync.local.arguments import check_arguments
from mantyx_sync.local.model import (
    Model,
    ModelFailure,
    ModelRequest,
    Text,
    Thinking,
    ToolDeclaration,
    ToolUse,
    TurnEnd,
    Usage,
)
from mantyx_sync.local.store import PendingCall, Run, ToolAnswer, encode_json, new_id

__all__ = ["EngineSettings", "conversation_of", "run_agent_loop", "tools_of"]

_log = logging.getLogger(__name__)

LONG_RUNNING_HINT = (
    "NOTE: This is a long-running operation. Do not call this tool again if it has already returned an "
    "intermediate or pending status."
)
TIMED_OUT = "Timed out waiting for local tool result"
MAX_AGENT_CARD_SKILLS = 12
# What a tool result event shows of a long result.
MAX_SHOWN_RESULT_CHARS = 2000


@dataclass(frozen=True)
class EngineSettings:
    """How the loop behaves where the documents leave the choice to the server."""

    local_tool_timeout: float = limits.LOCAL_TOOL_TIMEOUT_S
    # The older of two documented behaviours: a time-out ends the run instead of being told to the model.
    fail_on_local_tool_timeout: bool = False
    default_max_tool_turns: int = limits.MAX_TOOL_TURNS


@dataclass(frozen=True)
class BoundTool:
    """A tool of the spec: what the model sees, and how a call of it reaches the client."""

    declaration: ToolDeclaration
    kind: str
    event_fields: Mapping[str, Any] = field(default_factory=dict)
    read_only: bool = False


class _RunFailed(Exception):
    """Ends the loop with a terminal event that is already put together."""

    def __init__(self, event_type: str, data: dict[str, Any]) -> None:
        super().__init__(event_type)
        self.event_type = event_type
        self.data = data


class _Abandoned(Exception):
    """The server stops."""


@dataclass
class _Turn:
    """What one model call brought."""

    text: str = ""
    calls: list[ToolUse] = field(default_factory=list)
    finish_reason: Optional[str] = None
    usage: Usage = field(default_factory=Usage)
    failure: Optional[ModelFailure] = None


# ------------------------------------------------------------------ from the spec


def conversation_of(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Build the conversation a run starts with: system messages are merged after `systemPrompt` (wire §2.1.1)."""
    given = list(spec.get("messages") or [])
    system = [spec["systemPrompt"]] if spec.get("systemPrompt") else []
    system += [message["content"] for message in given if message.get("role") == "system" and message["content"]]
    conversation: list[dict[str, Any]] = []
    if system:
        conversation.append({"role": "system", "content": "\n\n".join(system)})
    conversation += [dict(message) for message in given if message.get("role") != "system"]
    if spec.get("prompt") is not None:
        conversation.append({"role": "user", "content": spec["prompt"]})
    return conversation


def tools_of(spec: Mapping[str, Any]) -> dict[str, BoundTool]:
    """Build the tools of a run, by the name the model calls them (wire §3)."""
    tools: dict[str, BoundTool] = {}
    for ref in spec.get("tools") or ():
        for tool in _bind(ref):
            tools[tool.declaration.name] = tool
    return tools


def _bind(ref: Mapping[str, Any]) -> list[BoundTool]:
    kind = ref["kind"]
    if kind == "local":
        description = ref.get("description") or ""
        if ref.get("longRunning"):
            description = f"{description}\n{LONG_RUNNING_HINT}".strip()
        output_schema = ref.get("outputSchema")
        declaration = ToolDeclaration(
            ref["name"],
            description,
            _object_schema(ref.get("parameters")),
            output_schema if _is_object_schema(output_schema) else None,
        )
        return [BoundTool(declaration, "local", read_only=bool(ref.get("readOnly")))]
    if kind == "a2a_local":
        card = ref["agentCard"]
        declaration = ToolDeclaration(
            ref["name"],
            ref.get("description") or _describe_card(card),
            {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]},
        )
        return [BoundTool(declaration, "a2a_local", {"agentCard": card})]
    if kind == "mcp_local":
        bound = []
        for entry in ref["tools"]:
            fields: dict[str, Any] = {"mcpServer": ref["name"], "mcpToolName": entry["name"]}
            if "serverInfo" in ref:
                fields["mcpServerInfo"] = ref["serverInfo"]
            if "annotations" in entry:
                fields["annotations"] = entry["annotations"]
            declaration = ToolDeclaration(
                entry["name"], entry.get("description") or "", _object_schema(entry.get("inputSchema"))
            )
            bound.append(BoundTool(declaration, "mcp_local", fields))
        return bound
    return []  # server-resolved: nothing is dialled yet


def _is_object_schema(schema: Any) -> bool:
    return isinstance(schema, Mapping) and schema.get("type") == "object"


def _object_schema(schema: Any) -> Mapping[str, Any]:
    """Other shapes are coerced to an empty object schema, as the platform does (wire §3.1)."""
    return schema if _is_object_schema(schema) else {"type": "object", "properties": {}}


def _describe_card(card: Mapping[str, Any]) -> str:
    text = f"Delegate a task to {card.get('name', 'the agent')}: {card.get('description', '')}".rstrip(": ")
    skills = [skill for skill in card.get("skills") or () if isinstance(skill, Mapping)]
    for skill in skills[:MAX_AGENT_CARD_SKILLS]:
        text += f"\n- {skill.get('name', skill.get('id', ''))}: {skill.get('description', '')}"
    return text


# ----------------------------------------------------------------------- the loop


def run_agent_loop(run: Run, model: Model, settings: EngineSettings) -> None:
    """Play a run to its terminal event. Blocks; never raises."""
    loop = _Loop(run, model, settings)
    try:
        loop.play()
    except _RunFailed as ended:
        run.finish(ended.event_type, ended.data)
    except _Abandoned:
        run.finish("error", {"error": "The server stopped.", "code": "worker_error", **loop.totals()})
    except Exception as error:
        _log.exception("run %s: the model or the loop raised", run.id, extra={"run_id": run.id})
        message = f"{type(error).__name__} in the model: {error}"
        run.finish("error", {"error": message, "code": "worker_error", "errorClass": "unknown", **loop.totals()})


class _Loop:
    def __init__(self, run: Run, model: Model, settings: EngineSettings) -> None:
        self.run = run
        self.model = model
        self.settings = settings
        self.messages = conversation_of(run.spec)
        self.tools = tools_of(run.spec)
        self.usage = Usage()
        self.turns = 0
        budgets = run.spec.get("budgets") or {}
        self.max_tool_turns: int = budgets.get("maxToolTurns", settings.default_max_tool_turns)
        self.finalize_when_exceeded = budgets.get("maxToolTurnsExceeded", "finalize") == "finalize"

    def totals(self) -> dict[str, Any]:
        """The cost fields of a terminal event (wire §4.8.1)."""
        return {"tokens": self.usage.to_wire(), "turns": self.turns, "model": self.run.model}

    def play(self) -> None:
        self.run.status = "running"
        tool_turns = 0
        tools_enabled = True
        while True:
            self._stop_if_asked()
            turn = self._model_turn(tools_enabled)
            if not turn.calls:
                self._stop_if_asked()
                self._succeed(turn)
                return
            if tool_turns >= self.max_tool_turns:
                if not self.finalize_when_exceeded or not tools_enabled:
                    raise self._too_many_turns(turn)
                # The calls are not made. The model is told, and has one turn without tools to end well.
                self._refuse(turn.calls, "The tool turn budget of this run is used up. Answer with what you have.")
                tools_enabled = False
                continue
            tool_turns += 1
            self._run_tools(turn.calls)

    def _stop_if_asked(self) -> None:
        if self.run.abandoned.is_set():
            raise _Abandoned
        if self.run.cancelled.is_set():
            raise _RunFailed("cancelled", {"reason": "user", **self.totals()})

    # ----------------------------------------------------------- model turns

    def _model_turn(self, tools_enabled: bool) -> _Turn:
        declarations = [tool.declaration for tool in self.tools.values()] if tools_enabled else []
        request = ModelRequest(
            tuple(self.messages),
            declarations,
            self.run.spec,
            self.turns,
            self.run.id,
            self.run.cancelled,
            self.run.abandoned,
        )
        number = self.turns
        self.turns += 1
        turn = self._read_turn(request)
        self.usage += turn.usage
        if turn.failure is not None or turn.text or turn.calls or not self.run.cancelled.is_set():
            self._say(turn, number)
        if turn.failure is not None:
            raise self._failed(turn, turn.failure)
        if turn.finish_reason == "max_tokens":
            raise self._truncated(turn)
        return turn

    def _read_turn(self, request: ModelRequest) -> _Turn:
        turn = _Turn()
        pieces: list[str] = []
        thought = 0
        usage: Optional[Usage] = None
        emit_text = self.run.emit_text
        try:
            for part in self.model.complete(request):
                if isinstance(part, str):
                    pieces.append(part)
                    emit_text("assistant_delta", part)
                elif isinstance(part, Text):
                    pieces.append(part.text)
                    emit_text("assistant_delta", part.text)
                elif isinstance(part, Thinking):
                    thought += len(part.text)
                    emit_text("thinking_delta", part.text)
                elif isinstance(part, ToolUse):
                    turn.calls.append(part if part.id else ToolUse(part.name, part.args, new_id("tu")))
                elif isinstance(part, TurnEnd):
                    turn.finish_reason = part.finish_reason
                    usage = part.usage
                if self.run.abandoned.is_set():
                    raise _Abandoned
        except ModelFailure as failure:
            turn.failure = failure
            turn.finish_reason = failure.finish_reason
            usage = failure.usage
        turn.text = "".join(pieces)
        if turn.finish_reason is None and turn.failure is None:
            turn.finish_reason = "tool_use" if turn.calls else "end_turn"
        turn.usage = usage if usage is not None else _estimate(request.messages, turn, thought)
        return turn

    def _say(self, turn: _Turn, number: int) -> None:
        """Emit the turn's `assistant_message` (wire §4.4) and keep it in the conversation."""
        if turn.failure is not None and not turn.text and not turn.calls:
            return  # nothing was said: the turn never became a message
        data: dict[str, Any] = {"text": turn.text, "turn": number}
        if turn.finish_reason is not None:
            data["finishReason"] = turn.finish_reason
        message: dict[str, Any] = {"role": "assistant", "content": turn.text}
        if turn.calls:
            calls = [{"id": call.id, "name": call.name, "input": call.args} for call in turn.calls]
            data["toolCalls"] = message["toolCalls"] = calls
        self.run.emit("assistant_message", data)
        self.messages.append(message)

    # ---------------------------------------------------------- terminal ones

    def _succeed(self, turn: _Turn) -> None:
        self.run.finish("result", {"subtype": "success", "ok": True, "text": turn.text, **self.totals()})

    def _failed(self, turn: _Turn, failure: ModelFailure) -> _RunFailed:
        data: dict[str, Any] = {"error": str(failure), "code": failure.code or failure.error_class or "error"}
        if failure.error_class is not None:
            data["errorClass"] = failure.error_class
        if failure.finish_reason is not None:
            data["finishReason"] = failure.finish_reason
        if turn.text:
            data["partialText"] = turn.text
        if failure.retryable is not None:
            data["retryable"] = failure.retryable
        if failure.api_status is not None:
            data["apiStatus"] = failure.api_status
        if failure.api_code is not None:
            data["apiCode"] = failure.api_code
        return _RunFailed("error", {**data, **self.totals()})

    def _truncated(self, turn: _Turn) -> _RunFailed:
        return self._failed(
            turn,
            ModelFailure(
                "Model output was truncated (stop_reason=max_tokens).",
                error_class="truncation",
                finish_reason="max_tokens",
                retryable=False,
            ),
        )

    def _too_many_turns(self, turn: _Turn) -> _RunFailed:
        data: dict[str, Any] = {
            "subtype": "error_max_tool_turns",
            "ok": False,
            "error": f"The run used up its {self.max_tool_turns} tool turns.",
        }
        if turn.text:
            data["partialText"] = turn.text
        return _RunFailed("result", {**data, **self.totals()})

    # ------------------------------------------------------------- tool calls

    def _run_tools(self, calls: Sequence[ToolUse]) -> None:
        """Make the calls of one turn: read-only neighbours go out together, the others one after the other."""
        for batch in _batches(calls, self.tools):
            self._stop_if_asked()
            self._run_batch(batch)

    def _run_batch(self, calls: Sequence[ToolUse]) -> None:
        answers: dict[str, ToolAnswer] = {}
        waiting: list[PendingCall] = []
        for call in calls:
            assert call.id is not None
            tool = self.tools.get(call.name)
            problem = _refusal(call, tool)
            if problem is not None or tool is None:
                answers[call.id] = problem or ToolAnswer("", is_error=True)
                self._show_result(call, answers[call.id])
                continue
            waiting.append(self.run.open_call(call.id, call.name))
            self.run.emit(
                "local_tool_call",
                {
                    "toolUseId": call.id,
                    "name": call.name,
                    "args": call.args,
                    "kind": tool.kind,
                    **tool.event_fields,
                },
            )
        if waiting:
            self.run.wait_for_answers(waiting, self.settings.local_tool_timeout)
            if self.run.abandoned.is_set():
                raise _Abandoned
        for pending in waiting:
            if pending.answer is None and self.settings.fail_on_local_tool_timeout:
                data = {"subtype": "error_local_tool_timeout", "ok": False, "error": f"{TIMED_OUT}: {pending.name}"}
                raise _RunFailed("result", {**data, **self.totals()})
            answers[pending.tool_use_id] = pending.answer or ToolAnswer(TIMED_OUT, is_error=True)
        for call in calls:
            self._tell_model(call, answers[call.id or ""])

    def _refuse(self, calls: Sequence[ToolUse], reason: str) -> None:
        for call in calls:
            answer = ToolAnswer(reason, is_error=True)
            self._show_result(call, answer)
            self._tell_model(call, answer)

    def _show_result(self, call: ToolUse, answer: ToolAnswer) -> None:
        """Emit a `tool_result` for a result the server made up itself."""
        self.run.emit(
            "tool_result",
            {
                "toolUseId": call.id,
                "name": call.name,
                "ok": not answer.is_error,
                "result": answer.text[:MAX_SHOWN_RESULT_CHARS],
            },
        )

    def _tell_model(self, call: ToolUse, answer: ToolAnswer) -> None:
        message: dict[str, Any] = {
            "role": "tool",
            "toolUseId": call.id,
            "name": call.name,
            "content": answer.text,
            "isError": answer.is_error,
        }
        if answer.files:
            message["files"] = list(answer.files)
        self.messages.append(message)


def _batches(calls: Sequence[ToolUse], tools: Mapping[str, BoundTool]) -> list[list[ToolUse]]:
    batches: list[list[ToolUse]] = []
    together = False
    for call in calls:
        tool = tools.get(call.name)
        read_only = tool is not None and tool.read_only
        if batches and together and read_only:
            batches[-1].append(call)
        else:
            batches.append([call])
        together = read_only
    return batches


def _refusal(call: ToolUse, tool: BoundTool | None) -> ToolAnswer | None:
    """Return the result of a call that must not reach the client, or None."""
    if tool is None:
        body = {"error": "unknown_tool", "message": f"There is no tool named {call.name!r}."}
        return ToolAnswer(encode_json(body).decode(), is_error=True)
    issues = check_arguments(tool.declaration.parameters, call.args)
    if issues:
        wrong = {
            "error": "tool_input_invalid",
            "message": f"The arguments of {call.name} do not match its schema. Correct them and call it again.",
            "issues": issues,
        }
        return ToolAnswer(encode_json(wrong).decode(), is_error=True)
    return None


def _estimate(messages: Sequence[Mapping[str, Any]], turn: _Turn, thought: int) -> Usage:
    """Count four characters a token where the model does not count."""
    given = sum(len(message["content"]) for message in messages)
    said = len(turn.text) + sum(len(call.name) + 16 for call in turn.calls)
    reasoning = -(-thought // 4)
    return Usage(input_tokens=-(-given // 4), output_tokens=-(-said // 4) + reasoning, reasoning_tokens=reasoning)
