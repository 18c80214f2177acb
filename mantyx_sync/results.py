"""How a run ended: its result, or the error that `conclude` raises; and what the server tells about runs."""

from __future__ import annotations

from dataclasses import field
from typing import Any, Callable, Mapping, NoReturn, Sequence

from mantyx_sync.errors import MantyxRunCancelled, MantyxRunError, RateLimit
from mantyx_sync.events import (
    AssistantMessage,
    CancelledEvent,
    ErrorEvent,
    ResultEvent,
    RunEvent,
    TaskPlanEvent,
    decode,
)
from mantyx_sync.pages import Page
from mantyx_sync.reprs import dataclass
from mantyx_sync.timing import RunTiming
from mantyx_sync.values import (
    RunModelInfo,
    RunTokenUsage,
    StructuredOutputInfo,
    TaskPlan,
    TaskPlanStep,
    TaskPlanTransition,
    TokenUsage,
    task_plan_from_event_data,
)
from mantyx_sync.views import Timed, Viewable
from mantyx_sync.wire import Fields

__all__ = [
    "FailureReason",
    "RunFeedback",
    "RunFeedbackResult",
    "RunModelInfo",
    "RunPage",
    "RunResult",
    "RunSnapshot",
    "RunSummary",
    "RunTokenUsage",
    "StructuredOutputInfo",
    "TaskPlan",
    "TaskPlanStep",
    "TaskPlanTransition",
    "TokenUsage",
    "conclude",
    "conclude_snapshot",
    "task_plan_from_event_data",
]

_MAX_REASON = 2000


@dataclass(frozen=True)
class RunResult(Timed):
    """A run that succeeded.

    `text` is the final answer. `output` is that text parsed, where the caller asked for a type or schema.
    `tokens`, `turns` and `model` are `None` where the server does not report them. `events` are those that were
    kept, `timing` tells when they came. `raw` is the payload of the terminal event, or the snapshot if the run
    ended while nobody watched.
    """

    run_id: str
    text: str
    events: tuple[RunEvent, ...] = field(repr=False, default=())
    tokens: TokenUsage | None = None
    turns: int | None = None
    model: RunModelInfo | None = None
    structured_output: StructuredOutputInfo | None = None
    plan: TaskPlan | None = None
    output: Any = field(default=None, hash=False)
    subtype: str = "success"
    last_seq: int | None = None
    request_id: str | None = field(repr=False, default=None)
    rate_limit: RateLimit | None = field(repr=False, default=None)
    timing: RunTiming | None = field(repr=False, compare=False, hash=False, default=None)
    raw: Mapping[str, Any] = field(repr=False, compare=False, hash=False, default_factory=dict)


def conclude(
    run_id: str,
    terminal: RunEvent,
    events: Sequence[RunEvent] = (),
    *,
    request_id: str | None = None,
    rate_limit: RateLimit | None = None,
) -> RunResult:
    """Turn a run's terminal event into its result (wire §4.8, http §4). Does no I/O.

    Args:
        run_id: The run.
        terminal: Its `result`, `error` or `cancelled` event.
        events: The events that were kept; they become `RunResult.events`.
        request_id: Of the request that started the run.
        rate_limit: From the answer to that request.

    Raises:
        MantyxRunError: The run ended without success: an `error` event, or a `result` with an error subtype or
            with `ok` false.
        MantyxRunCancelled: The run was cancelled.
        ValueError: `terminal` is not a terminal event.
    """
    if type(terminal) is RunEvent:
        terminal = decode({"seq": terminal.seq, "type": terminal.type, "data": terminal.data})
    if isinstance(terminal, CancelledEvent):
        raise MantyxRunCancelled(run_id, reason=terminal.reason, last_seq=terminal.seq, raw=terminal.data)
    if isinstance(terminal, ErrorEvent):
        _fail(
            run_id,
            terminal.error_class or terminal.code or "error",
            terminal.error,
            error_class=terminal.error_class,
            finish_reason=terminal.finish_reason,
            partial_text=terminal.partial_text,
            retryable=terminal.retryable,
            tokens=terminal.tokens,
            turns=terminal.turns,
            model=terminal.model,
            api_status=terminal.api_status,
            api_code=terminal.api_code,
            structured_output=terminal.structured_output,
            last_seq=terminal.seq,
            raw=terminal.data,
        )
    if not isinstance(terminal, ResultEvent):
        raise ValueError(f"run {run_id}: event {terminal.type!r} does not end a run")
    # The wire page says `ok: true` and no subtype, the newer server a subtype and no `ok`; both mean success.
    subtype = terminal.subtype or ("error" if terminal.ok is False else "success")
    if subtype == "success" and terminal.ok is False:
        subtype = "error"
    if subtype == "cancelled":
        raise MantyxRunCancelled(run_id, last_seq=terminal.seq, raw=terminal.data)
    if subtype != "success":
        _fail(
            run_id,
            subtype,
            terminal.error,
            partial_text=terminal.text or None,
            tokens=terminal.tokens,
            turns=terminal.turns,
            model=terminal.model,
            structured_output=terminal.structured_output,
            last_seq=terminal.seq,
            raw=terminal.data,
        )
    return RunResult(
        run_id=run_id,
        text=_last_message(events) if terminal.data.get("text") is None else terminal.text,
        events=tuple(events),
        tokens=terminal.tokens,
        turns=terminal.turns,
        model=terminal.model,
        structured_output=terminal.structured_output,
        plan=terminal.plan or _last_plan(events),
        last_seq=terminal.seq,
        request_id=request_id,
        rate_limit=rate_limit,
        raw=terminal.data,
    )


@dataclass(frozen=True)
class FailureReason:
    """Why a run failed, in the platform's categories (wire §4.8)."""

    error_class: str | None = None
    finish_reason: str | None = None

    @classmethod
    def read(cls, fields: Fields | None) -> FailureReason | None:
        """Build it from the fields of a `failureReason` object; `None` if there is none."""
        if fields is None:
            return None
        return cls(fields.opt_text("errorClass"), fields.opt_text("finishReason"))


@dataclass(frozen=True)
class RunSnapshot(Viewable):
    """What the server knows of a run right now: `GET /agent-runs/{id}` (http §3).

    `status` is `queued`, `running`, `succeeded`, `failed`, `cancelled` or a newer word. `final_text` of a failed
    run is what the model had written, usually cut short.
    """

    id: str
    status: str
    final_text: str | None = field(repr=False, default=None)
    error: str | None = None
    failure_reason: FailureReason | None = None
    tokens: TokenUsage | None = None
    turns: int | None = None
    model: RunModelInfo | None = None
    structured_output: StructuredOutputInfo | None = None
    plan: TaskPlan | None = None
    session_id: str | None = None
    metadata: Mapping[str, Any] = field(hash=False, default_factory=dict)
    created_at: str | None = None
    completed_at: str | None = None
    spec: Mapping[str, Any] | None = field(repr=False, hash=False, default=None)
    raw: Mapping[str, Any] = field(repr=False, compare=False, hash=False, default_factory=dict)

    @classmethod
    def from_wire(cls, body: object, run_id: str | None = None) -> RunSnapshot:
        """Read the answer of `GET /agent-runs/{id}`; `run_id` stands in for an id the body lacks.

        Raises:
            MantyxProtocolError: A field is missing or of the wrong type; it is named.
        """
        fields = Fields(body, "run snapshot" if run_id is None else f"snapshot of run {run_id}")
        found = fields.opt_text("id") or fields.opt_text("runId") or run_id
        return cls(
            id=fields.text("id") if found is None else found,
            status=fields.text("status"),
            final_text=fields.opt_text("finalText"),
            error=fields.opt_text("error"),
            failure_reason=FailureReason.read(fields.opt_fields("failureReason")),
            tokens=TokenUsage.read(fields.opt_fields("tokens")),
            turns=fields.opt_int("turns"),
            model=RunModelInfo.read(fields.opt_fields("model")),
            structured_output=StructuredOutputInfo.read(fields.opt_fields("structuredOutput")),
            plan=TaskPlan.read(fields.opt_fields("plan")),
            session_id=fields.opt_text("sessionId"),
            metadata=fields.opt_object("metadata") or {},
            created_at=fields.opt_text("createdAt"),
            completed_at=fields.opt_text("completedAt"),
            spec=fields.opt_object("spec"),
            raw=fields.data,
        )

    @property
    def is_terminal(self) -> bool:
        """True if the run is over. A status we do not know counts as over once the server says when it ended."""
        if self.status in ("succeeded", "failed", "cancelled"):
            return True
        return self.status not in ("queued", "running") and self.completed_at is not None


def conclude_snapshot(
    snapshot: RunSnapshot, *, request_id: str | None = None, rate_limit: RateLimit | None = None
) -> RunResult | None:
    """Turn a run's snapshot into its result; `None` if the run is still going. Does no I/O.

    Raises:
        MantyxRunError: The run failed.
        MantyxRunCancelled: The run was cancelled.
    """
    if not snapshot.is_terminal:
        return None
    if snapshot.status == "cancelled":
        raise MantyxRunCancelled(snapshot.id, raw=snapshot.raw)
    if snapshot.status != "succeeded":
        reason = snapshot.failure_reason or FailureReason()
        _fail(
            snapshot.id,
            reason.error_class or ("error" if snapshot.status == "failed" else snapshot.status),
            snapshot.error,
            error_class=reason.error_class,
            finish_reason=reason.finish_reason,
            partial_text=snapshot.final_text,
            tokens=snapshot.tokens,
            turns=snapshot.turns,
            model=snapshot.model,
            structured_output=snapshot.structured_output,
            raw=snapshot.raw,
        )
    return RunResult(
        run_id=snapshot.id,
        text=snapshot.final_text or "",
        tokens=snapshot.tokens,
        turns=snapshot.turns,
        model=snapshot.model,
        structured_output=snapshot.structured_output,
        plan=snapshot.plan,
        request_id=request_id,
        rate_limit=rate_limit,
        raw=snapshot.raw,
    )


@dataclass(frozen=True)
class RunSummary(Viewable):
    """One line of the list of runs (http §3). Times are ISO 8601 text; `duration_ms` is in milliseconds."""

    id: str
    status: str
    session_id: str | None = None
    spec_name: str | None = None
    agent_id: str | None = None
    model_id: str | None = None
    input_preview: str | None = field(repr=False, default=None)
    output_preview: str | None = field(repr=False, default=None)
    error: str | None = None
    tokens: TokenUsage | None = None
    turns: int | None = None
    duration_ms: float | None = None
    tool_call_count: int | None = None
    metadata: Mapping[str, Any] = field(hash=False, default_factory=dict)
    created_at: str | None = None
    completed_at: str | None = None
    raw: Mapping[str, Any] = field(repr=False, compare=False, hash=False, default_factory=dict)

    @classmethod
    def read(cls, fields: Fields) -> RunSummary:
        """Build it from the fields of one entry of `runs`."""
        return cls(
            id=fields.text("id"),
            status=fields.text("status"),
            session_id=fields.opt_text("sessionId"),
            spec_name=fields.opt_text("specName"),
            agent_id=fields.opt_text("agentId"),
            model_id=fields.opt_text("modelId"),
            input_preview=fields.opt_text("inputPreview"),
            output_preview=fields.opt_text("outputPreview"),
            error=fields.opt_text("error"),
            tokens=TokenUsage.read(fields.opt_fields("tokens")),
            turns=fields.opt_int("turns"),
            duration_ms=fields.opt_number("durationMs"),
            tool_call_count=fields.opt_int("toolCallCount"),
            metadata=fields.opt_object("metadata") or {},
            created_at=fields.opt_text("createdAt"),
            completed_at=fields.opt_text("completedAt"),
            raw=fields.data,
        )


@dataclass(frozen=True)
class RunPage(Page[RunSummary]):
    """A page of the list of runs; looped over, it walks on into the next pages."""

    @classmethod
    def from_wire(cls, body: object, fetch_next: Callable[[str], RunPage] | None = None) -> RunPage:
        """Read the answer of `GET /agent-runs`.

        Args:
            body: The answer.
            fetch_next: Gets the page that a cursor stands for.

        Raises:
            MantyxProtocolError: A field is missing or of the wrong type; it is named.
        """
        fields = Fields(body, "list of runs")
        return cls.read(fields, map(RunSummary.read, fields.objects("runs")), fetch_next)

    @property
    def runs(self) -> tuple[RunSummary, ...]:
        """The runs of this page alone."""
        return self.items


@dataclass(frozen=True)
class RunFeedback:
    """Feedback as the server has it (http §3); the last one given counts. `verdict`: `UP` or `DOWN`."""

    id: str
    verdict: str
    target_kind: str
    agent_run_id: str
    raw: Mapping[str, Any] = field(repr=False, compare=False, hash=False, default_factory=dict)

    @classmethod
    def from_wire(cls, body: object, run_id: str = "") -> RunFeedback:
        """Read the answer of `POST /agent-runs/{id}/feedback`.

        Raises:
            MantyxProtocolError: A field is missing or of the wrong type; it is named.
        """
        fields = Fields(body, "feedback")
        return cls(
            id=fields.text("id"),
            verdict=fields.text("verdict"),
            target_kind=fields.opt_text("targetKind") or "",
            agent_run_id=fields.opt_text("agentRunId") or run_id,
            raw=fields.data,
        )


RunFeedbackResult = RunFeedback
"""The name the platform's own package has for it."""


def _fail(run_id: str, subtype: str, reason: str | None, **details: Any) -> NoReturn:
    message = f"run {run_id} failed ({subtype})" + (f": {reason[:_MAX_REASON]}" if reason else "")
    raise MantyxRunError(run_id, subtype, message, **details)


def _last_message(events: Sequence[RunEvent]) -> str:
    """Return the last turn's text, for a server whose `result` has none."""
    return next((e.text for e in reversed(events) if isinstance(e, AssistantMessage)), "")


def _last_plan(events: Sequence[RunEvent]) -> TaskPlan | None:
    return next((e.plan for e in reversed(events) if isinstance(e, TaskPlanEvent)), None)
