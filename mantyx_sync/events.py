"""What comes in on a run's stream: one dataclass per event type, `read_envelope` and `decode` (wire §4, http §4).

An `Envelope` is the decoded JSON of one event, `{"seq": …, "type": …, "data": …}`: it is all the reader thread
has to carry. `decode` turns it into a `RunEvent` when somebody wants to look at it.
"""

from __future__ import annotations

from dataclasses import field, fields
from typing import Any, Dict, Mapping

from mantyx_sync.errors import MantyxProtocolError
from mantyx_sync.reprs import dataclass, short_repr
from mantyx_sync.values import (
    RunModelInfo,
    StructuredOutputInfo,
    TaskPlan,
    TaskPlanTransition,
    TokenUsage,
    task_plan_from_event_data,
)
from mantyx_sync.wire import Fields, json_type

__all__ = [
    "DELTA_TYPES",
    "NO_SEQ",
    "TERMINAL_TYPES",
    "AssistantDelta",
    "AssistantMessage",
    "AssistantToolCall",
    "CancelledEvent",
    "Envelope",
    "ErrorEvent",
    "LocalToolCall",
    "LocalToolResultIn",
    "LoopDetected",
    "ModelFallback",
    "ResultEvent",
    "RunEvent",
    "SupervisorReview",
    "TaskPlanEvent",
    "ThinkingDelta",
    "ToolBudgetExceeded",
    "ToolCall",
    "ToolFile",
    "ToolFiles",
    "ToolResultEvent",
    "decode",
    "read_envelope",
]

Envelope = Dict[str, Any]

TERMINAL_TYPES = frozenset({"result", "error", "cancelled"})
DELTA_TYPES = frozenset({"assistant_delta", "thinking_delta"})
NO_SEQ = -1
"""The `seq` of an event that the server did not number: it can be neither resumed from nor recognised again."""


@dataclass(frozen=True, repr=False)
class RunEvent:
    """One event of a run's stream (wire §4). Types this version does not know arrive as this class.

    `data` is the event's payload as it came, with the wire's names; `raw` is the whole envelope.
    """

    seq: int
    type: str
    data: Mapping[str, Any] = field(default_factory=dict, hash=False)
    raw: Mapping[str, Any] = field(default_factory=dict, hash=False, compare=False)

    @property
    def is_terminal(self) -> bool:
        """True if no event follows: the run is over."""
        return self.type in TERMINAL_TYPES

    @property
    def text(self) -> str:
        """The text the event carries, or an empty string."""
        value = self.data.get("text")
        return value if isinstance(value, str) else ""

    def user_message(self) -> Mapping[str, Any] | None:
        """Return the payload if this is a `user_message` of a session's history, else `None`."""
        return self.data if self.type == "user_message" else None

    def __repr__(self) -> str:
        # Typed events repeat nothing: their attributes say what `type` and `data` would.
        hidden = ("raw",) if type(self) is RunEvent else ("raw", "type", "data")
        shown = ((f.name, getattr(self, f.name)) for f in fields(self) if f.name not in hidden)
        return short_repr(type(self).__name__, ((name, value) for name, value in shown if value is not None))

    @staticmethod
    def _read(data: Fields) -> dict[str, Any]:
        """Return every attribute that a subclass adds to these."""
        return {"text": data.opt_text("text") or ""}


@dataclass(frozen=True, repr=False)
class AssistantDelta(RunEvent):
    """A piece of the assistant's text (wire §4.1)."""

    text: str = ""  # pyright: ignore[reportIncompatibleMethodOverride]  # a field, filled by decode


@dataclass(frozen=True, repr=False)
class ThinkingDelta(RunEvent):
    """A piece of the model's reasoning (wire §4.1): progress, not a part of the answer."""

    text: str = ""  # pyright: ignore[reportIncompatibleMethodOverride]  # a field, filled by decode


@dataclass(frozen=True, repr=False)
class ToolCall(RunEvent):
    """The model called a tool that the platform runs (http §4)."""

    tool_use_id: str | None = None
    name: str | None = None
    input: Any = field(default=None, hash=False)

    @staticmethod
    def _read(data: Fields) -> dict[str, Any]:
        return {
            "tool_use_id": data.opt_text("toolUseId"),
            "name": data.opt_text("name"),
            "input": data.data.get("input"),
        }


@dataclass(frozen=True, repr=False)
class ToolResultEvent(RunEvent):
    """The platform ran a tool (wire §4.2). Either `result`, or `ok` and `summary` on newer servers."""

    tool_use_id: str | None = None
    name: str | None = None
    result: Any = field(default=None, hash=False)
    ok: bool | None = None
    summary: str | None = None

    @staticmethod
    def _read(data: Fields) -> dict[str, Any]:
        return {
            "tool_use_id": data.opt_text("toolUseId"),
            "name": data.opt_text("name"),
            "result": data.data.get("result"),
            "ok": data.opt_bool("ok"),
            "summary": data.opt_text("summary"),
        }


@dataclass(frozen=True, repr=False)
class LocalToolCall(RunEvent):
    """The model called one of our tools and waits for the answer (wire §4.3).

    `args` is whatever the model produced, usually a dict: the tool checks it. `kind` is `local`, `a2a_local` or
    `mcp_local`; the attributes after it are there for the last two. `agent_run_id` is set on the stream of an
    eval run: the result goes to that run.
    """

    tool_use_id: str = ""
    name: str = ""
    args: Any = field(default_factory=dict, hash=False)
    kind: str = "local"
    agent_card: Mapping[str, Any] | None = field(default=None, hash=False)
    mcp_server: str | None = None
    mcp_tool_name: str | None = None
    mcp_server_info: Mapping[str, Any] | None = field(default=None, hash=False)
    agent_run_id: str | None = None

    @staticmethod
    def _read(data: Fields) -> dict[str, Any]:
        args = data.data.get("args")
        return {
            "tool_use_id": data.text("toolUseId"),
            "name": data.text("name"),
            "args": {} if args is None else args,
            "kind": data.opt_text("kind") or "local",
            "agent_card": data.opt_object("agentCard"),
            "mcp_server": data.opt_text("mcpServer"),
            "mcp_tool_name": data.opt_text("mcpToolName"),
            "mcp_server_info": data.opt_object("mcpServerInfo"),
            "agent_run_id": data.opt_text("agentRunId"),
        }


@dataclass(frozen=True, repr=False)
class LocalToolResultIn(RunEvent):
    """The platform has the result of a local tool (wire §4, http §4): that call is answered."""

    tool_use_id: str = ""
    output: Any = field(default=None, hash=False)
    error: str | None = None
    files: tuple[Mapping[str, Any], ...] = field(default=(), hash=False)

    @staticmethod
    def _read(data: Fields) -> dict[str, Any]:
        # The POST calls it `result`; some servers mirror it under that name.
        output = data.data.get("output", data.data.get("result"))
        return {
            "tool_use_id": data.text("toolUseId"),
            "output": output,
            "error": _error_text(data),
            "files": tuple(file.data for file in data.objects("files")),
        }


@dataclass(frozen=True)
class AssistantToolCall:
    """One tool call of an assistant turn (wire §4.4)."""

    id: str | None = None
    name: str | None = None
    input: Any = field(default=None, hash=False)


@dataclass(frozen=True, repr=False)
class AssistantMessage(RunEvent):
    """One complete turn of the assistant (wire §4.4). `turn` counts from 0."""

    text: str = ""  # pyright: ignore[reportIncompatibleMethodOverride]  # a field, filled by decode
    turn: int | None = None
    finish_reason: str | None = None
    tool_calls: tuple[AssistantToolCall, ...] = ()

    @staticmethod
    def _read(data: Fields) -> dict[str, Any]:
        return {
            "text": data.opt_text("text") or "",
            "turn": data.opt_int("turn"),
            "finish_reason": data.opt_text("finishReason"),
            "tool_calls": tuple(
                AssistantToolCall(call.opt_text("id"), call.opt_text("name"), call.data.get("input"))
                for call in data.objects("toolCalls")
            ),
        }


@dataclass(frozen=True, repr=False)
class LoopDetected(RunEvent):
    """The loop guard stepped in (wire §4.5): a nudge, or with `hard_cutoff` the last turn without tools."""

    consecutive_count: int | None = None
    hard_cutoff: bool = False
    tools: tuple[str, ...] = ()

    @staticmethod
    def _read(data: Fields) -> dict[str, Any]:
        return {
            "consecutive_count": data.opt_int("consecutiveCount"),
            "hard_cutoff": bool(data.opt_bool("hardCutoff")),
            "tools": data.texts("tools"),
        }


@dataclass(frozen=True, repr=False)
class ToolBudgetExceeded(RunEvent):
    """A call beyond a tool's budget was turned away (wire §4.6). `call_index` counts from 1."""

    tool: str | None = None
    max_calls: int | None = None
    call_index: int | None = None

    @staticmethod
    def _read(data: Fields) -> dict[str, Any]:
        return {
            "tool": data.opt_text("tool"),
            "max_calls": data.opt_int("maxCalls"),
            "call_index": data.opt_int("callIndex"),
        }


@dataclass(frozen=True, repr=False)
class SupervisorReview(RunEvent):
    """The supervisor looked at the run (wire §4.7). `action`: `on_track`, `redirect` or `finalize`."""

    action: str | None = None
    reason: str | None = None
    redirect: str | None = None
    llm_calls: int | None = None
    phase: str = "turn_boundary"
    model: RunModelInfo | None = None

    @staticmethod
    def _read(data: Fields) -> dict[str, Any]:
        return {
            "action": data.opt_text("action"),
            "reason": data.opt_text("reason"),
            "redirect": data.opt_text("redirect"),
            "llm_calls": data.opt_int("llmCalls"),
            "phase": data.opt_text("phase") or "turn_boundary",
            "model": RunModelInfo.read(data.opt_fields("model")),
        }


@dataclass(frozen=True, repr=False)
class TaskPlanEvent(RunEvent):
    """The run's plan, new or advanced (wire §4.9). Apply by `plan.plan_id` and `plan.revision`, in `seq` order."""

    plan: TaskPlan | None = None
    transition: TaskPlanTransition | None = None
    transition_index: int | None = None
    transition_count: int | None = None

    @staticmethod
    def _read(data: Fields) -> dict[str, Any]:
        return {
            "plan": task_plan_from_event_data(data.data, data.where),
            "transition": TaskPlanTransition.read(data.opt_fields("transition")),
            "transition_index": data.opt_int("transitionIndex"),
            "transition_count": data.opt_int("transitionCount"),
        }


@dataclass(frozen=True)
class ToolFile:
    """A file that a tool of the platform produced (http §4)."""

    filename: str | None = None
    mime_type: str | None = None
    size_bytes: int | None = None
    storage_key: str | None = None
    url: str | None = None


@dataclass(frozen=True, repr=False)
class ToolFiles(RunEvent):
    """Files that a tool of the platform produced (http §4)."""

    name: str | None = None
    files: tuple[ToolFile, ...] = ()

    @staticmethod
    def _read(data: Fields) -> dict[str, Any]:
        return {
            "name": data.opt_text("name"),
            "files": tuple(
                ToolFile(
                    filename=file.opt_text("filename"),
                    mime_type=file.opt_text("mimeType"),
                    size_bytes=file.opt_int("sizeBytes"),
                    storage_key=file.opt_text("storageKey"),
                    url=file.opt_text("url"),
                )
                for file in data.objects("files")
            ),
        }


@dataclass(frozen=True, repr=False)
class ModelFallback(RunEvent):
    """The run goes on with another model (http §4). `model` is that model, as the server wrote it."""

    error_class: str | None = None
    model: Any = field(default=None, hash=False)
    primary_model_id: str | None = None
    fallback_model_id: str | None = None

    @staticmethod
    def _read(data: Fields) -> dict[str, Any]:
        return {
            "error_class": data.opt_text("errorClass"),
            "model": data.data.get("model"),
            "primary_model_id": data.opt_text("primaryModelId"),
            "fallback_model_id": data.opt_text("fallbackModelId"),
        }


@dataclass(frozen=True, repr=False)
class ResultEvent(RunEvent):
    """The run is over (wire §4.8). A `subtype` other than `success`, or `ok` false, makes it a failure."""

    text: str = ""  # pyright: ignore[reportIncompatibleMethodOverride]  # a field, filled by decode
    subtype: str | None = None
    ok: bool | None = None
    error: str | None = None
    tokens: TokenUsage | None = None
    turns: int | None = None
    model: RunModelInfo | None = None
    structured_output: StructuredOutputInfo | None = None
    plan: TaskPlan | None = None

    @staticmethod
    def _read(data: Fields) -> dict[str, Any]:
        return {
            "text": data.opt_text("text") or "",
            "subtype": data.opt_text("subtype"),
            "ok": data.opt_bool("ok"),
            "error": _error_text(data),
            "plan": TaskPlan.read(data.opt_fields("plan")),
            **_usage(data),
        }


@dataclass(frozen=True, repr=False)
class ErrorEvent(RunEvent):
    """The run failed (wire §4.8). `error` is the reason; `error_class` (or the older `code`) its category."""

    error: str = ""
    code: str | None = None
    error_class: str | None = None
    finish_reason: str | None = None
    partial_text: str | None = None
    retryable: bool | None = None
    api_status: int | None = None
    api_code: str | None = None
    tokens: TokenUsage | None = None
    turns: int | None = None
    model: RunModelInfo | None = None
    structured_output: StructuredOutputInfo | None = None

    @staticmethod
    def _read(data: Fields) -> dict[str, Any]:
        nested = data.data.get("error")
        inner = Fields(nested, data.where) if isinstance(nested, Mapping) else None
        code = data.opt_text("code")
        if code is None and inner is not None:
            code = inner.opt_text("code") or inner.opt_text("type")
        api_code = data.data.get("apiCode")
        return {
            "error": _error_text(data) or data.opt_text("message") or "",
            "code": code,
            "error_class": data.opt_text("errorClass"),
            "finish_reason": data.opt_text("finishReason"),
            "partial_text": data.opt_text("partialText"),
            "retryable": data.opt_bool("retryable"),
            "api_status": data.opt_int("apiStatus"),
            # Providers number their errors as often as they name them.
            "api_code": str(api_code) if type(api_code) is int else data.opt_text("apiCode"),
            **_usage(data),
        }


@dataclass(frozen=True, repr=False)
class CancelledEvent(RunEvent):
    """The run was cancelled (wire §4.8)."""

    reason: str | None = None

    @staticmethod
    def _read(data: Fields) -> dict[str, Any]:
        return {"reason": data.opt_text("reason")}


_TYPES: dict[str, type[RunEvent]] = {
    "assistant_delta": AssistantDelta,
    "thinking_delta": ThinkingDelta,
    "tool_call": ToolCall,
    "tool_result": ToolResultEvent,
    "local_tool_call": LocalToolCall,
    "local_tool_result_in": LocalToolResultIn,
    "assistant_message": AssistantMessage,
    "loop_detected": LoopDetected,
    "tool_budget_exceeded": ToolBudgetExceeded,
    "supervisor": SupervisorReview,
    "task_plan": TaskPlanEvent,
    "tool_files": ToolFiles,
    "model_fallback": ModelFallback,
    "result": ResultEvent,
    "error": ErrorEvent,
    "cancelled": CancelledEvent,
}
_DELTAS: dict[str, type[RunEvent]] = {name: _TYPES[name] for name in DELTA_TYPES}


def decode(envelope: Mapping[str, Any]) -> RunEvent:
    """Turn an envelope into a typed event. Does no I/O; any thread may call it.

    Args:
        envelope: What `read_envelope` returned.

    Raises:
        MantyxProtocolError: A field of a known event type is missing or of the wrong type; the message names
            the event's type, its seq and the field.
    """
    kind = envelope["type"]
    delta = _DELTAS.get(kind)
    if delta is not None:
        # The hot path, thousands of times a second. The `__init__` of a frozen dataclass costs twice as much
        # as this, since it must go round its own `__setattr__` for every field: hence instances are filled
        # directly, here and in `_decode_any`.
        data = envelope["data"]
        text = data.get("text", "") if type(data) is dict else None
        if type(text) is str:
            event = _new(delta)
            attributes = event.__dict__
            attributes["seq"] = envelope["seq"]
            attributes["type"] = kind
            attributes["data"] = data
            attributes["raw"] = envelope
            attributes["text"] = text
            return event
    return _decode_any(envelope)


_new = object.__new__


def _decode_any(envelope: Mapping[str, Any]) -> RunEvent:
    seq, kind, data = envelope["seq"], envelope["type"], envelope["data"]
    cls = _TYPES.get(kind)
    if cls is None:
        return RunEvent(seq, kind, data if isinstance(data, Mapping) else {}, envelope)
    found = Fields({} if data is None else data, f"event {kind!r} (seq {seq})")
    event = _new(cls)
    event.__dict__.update(cls._read(found), seq=seq, type=kind, data=found.data, raw=envelope)
    return event


def read_envelope(payload: object, event_name: str | None, event_id: str | None) -> Envelope | None:
    """Give a decoded JSON value the form of an envelope (wire §4, http §4). Never raises.

    Servers send the envelope itself. Older ones send the bare payload, with the frame's `event:` naming its
    type and `id:` giving its seq; session histories put the payload's fields beside `seq` and `type`.

    Args:
        payload: The JSON value of the frame's data.
        event_name: The frame's `event:`; empty, `None` or `message` mean that it has none.
        event_id: The frame's `id:`, for an event whose JSON has no `seq`.

    Returns:
        `{"seq": int, "type": str, "data": …}`, with `seq` at `NO_SEQ` if there is no number to be found; the
        payload itself if it has that form. `None` if the value is not an object, so no event.
    """
    if type(payload) is not dict:
        return None
    kind, data, seq = payload.get("type"), payload.get("data"), payload.get("seq")
    if type(kind) is str and type(seq) is int and type(data) is dict:
        return payload
    name = event_name if event_name and event_name != "message" else None
    number = _seq(seq, event_id)
    if isinstance(kind, str) and kind and ("data" in payload or "seq" in payload or name in (None, kind)):
        if "data" not in payload:
            data = {key: value for key, value in payload.items() if key not in ("seq", "type")}
        return {**payload, "seq": number, "type": kind, "data": {} if data is None else data}
    if name is None:
        name = "error" if "error" in payload else "message"
    if isinstance(data, dict) and payload.keys() <= {"seq", "type", "data"}:
        return {"seq": number, "type": name, "data": data}
    return {"seq": number, "type": name, "data": payload}


def _seq(value: object, event_id: str | None) -> int:
    """Return the seq as the JSON has it, else as the frame's id has it, else `NO_SEQ`."""
    if type(value) is int:
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    for text in (value, event_id):
        # Long strings of digits are refused by int(), and no run has that many events.
        if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) <= 18:
            return int(text)
    return NO_SEQ


def _usage(data: Fields) -> dict[str, Any]:
    """Return what terminal events say about cost and enforcement (wire §4.8.1)."""
    return {
        "tokens": TokenUsage.read(data.opt_fields("tokens")),
        "turns": data.opt_int("turns"),
        "model": RunModelInfo.read(data.opt_fields("model")),
        "structured_output": StructuredOutputInfo.read(data.opt_fields("structuredOutput")),
    }


def _error_text(data: Fields) -> str | None:
    """Return the `error` of a payload: text, or an object that has its text in `message`."""
    value = data.data.get("error")
    if isinstance(value, Mapping):
        inner = Fields(value, f"{data.where}: error")
        return inner.opt_text("message") or inner.opt_text("code") or inner.opt_text("type") or "error"
    if value is not None and not isinstance(value, str):
        raise MantyxProtocolError(f"{data.where}: field 'error' is {json_type(value)}, must be a string")
    return value
