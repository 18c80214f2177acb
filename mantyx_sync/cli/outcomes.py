"""A run as JSON: what `--json` prints of its end. Pure."""

from __future__ import annotations

import dataclasses
from typing import Any

from ..display.state import RunState
from ..errors import MantyxError, MantyxParseError, MantyxRunCancelled, MantyxRunError, MantyxTimeoutError
from ..output import read_json
from ..results import RunResult
from ..wire import wire_name

__all__ = ["outcome_json"]


def outcome_json(
    run_id: str, outcome: RunResult | MantyxError, state: RunState, session_id: str | None = None
) -> dict[str, Any]:
    """Return how a run ended, with the wire's names.

    `status` is `succeeded`, `failed`, `cancelled`, `timed_out`, `unfit` (the answer does not fit what was asked for)
    or `lost` (it could not be followed to its end). `text` is the answer, or what a failed run left of one.
    """
    found: dict[str, Any] = {"runId": run_id}
    if session_id is not None:
        found["sessionId"] = session_id
    found["status"] = _status(outcome)
    source = outcome if isinstance(outcome, (RunResult, MantyxRunError)) else state
    if isinstance(outcome, RunResult):
        found["text"] = outcome.text
        if outcome.output is not None:
            found["output"] = read_json(outcome)
    else:
        found["text"] = getattr(outcome, "partial_text", None) or getattr(outcome, "text", None) or state.text
        found["error"] = _error(outcome)
    plan = (outcome.plan if isinstance(outcome, RunResult) else None) or state.plan
    if plan is not None:
        found["plan"] = dict(plan.raw)
    found["turns"] = source.turn_count if isinstance(source, RunState) else source.turns
    model, tokens = source.model, source.tokens
    found["model"] = model.id if model is not None else None
    found["tokens"] = _named(tokens) if tokens is not None else None
    found["toolCalls"] = [
        {"toolUseId": call.tool_use_id, "name": call.name, "args": call.args, "kind": call.kind, "state": call.state}
        for call in state.tools
    ]
    return found


def _status(outcome: RunResult | MantyxError) -> str:
    if isinstance(outcome, RunResult):
        return "succeeded"
    if isinstance(outcome, MantyxRunCancelled):
        return "cancelled"
    if isinstance(outcome, MantyxTimeoutError):
        return "timed_out"
    if isinstance(outcome, MantyxParseError):
        return "unfit"
    return "failed" if isinstance(outcome, MantyxRunError) else "lost"


def _error(error: MantyxError) -> dict[str, Any]:
    names = ("code", "error_class", "finish_reason", "retryable", "status", "hint", "request_id")
    found = {wire_name(name): getattr(error, name, None) for name in names}
    return {"message": error.message, **{name: value for name, value in found.items() if value is not None}}


def _named(value: Any) -> dict[str, Any]:
    return {wire_name(field.name): getattr(value, field.name) for field in dataclasses.fields(value)}
