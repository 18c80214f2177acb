"""How a run ends: the data of its terminal event (wire §4.8), put together from what happened. Does no I/O."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Mapping, Optional

from mantyx_sync.local.arguments import schema_problems
from mantyx_sync.local.model import ModelFailure, ToolUse, Usage

__all__ = ["Abandoned", "OutputContract", "RunEnded", "Turn", "failure_data", "failure_of"]


class RunEnded(Exception):
    """Ends the loop with a terminal event; the loop adds the totals."""

    def __init__(self, event_type: str, data: Mapping[str, Any]) -> None:
        super().__init__(event_type)
        self.event_type = event_type
        self.data = data


class Abandoned(Exception):
    """The server stops."""


@dataclass
class Turn:
    """What one model call brought."""

    text: str = ""
    calls: list[ToolUse] = field(default_factory=list)
    finish_reason: Optional[str] = None
    usage: Usage = field(default_factory=Usage)
    reasoning: str = ""
    failure: Optional[ModelFailure] = None
    interrupted: bool = False  # a supervisor stepped in before the turn was over


def failure_of(turn: Turn) -> ModelFailure | None:
    """Tell why a turn that has come to its end is no answer: it failed, was cut off, refused or malformed."""
    if turn.failure is not None:
        return turn.failure
    if turn.finish_reason == "max_tokens":
        return ModelFailure(
            "Model output was truncated (stop_reason=max_tokens).",
            error_class="truncation",
            finish_reason="max_tokens",
            retryable=False,
        )
    if turn.finish_reason == "refusal":
        return ModelFailure(
            "The model refused to answer (stop_reason=refusal).",
            finish_reason="refusal",
            retryable=False,
        )
    if turn.finish_reason == "malformed_function_call" and not turn.calls:
        return ModelFailure(
            "The model made a tool call that cannot be read (stop_reason=malformed_function_call).",
            finish_reason="malformed_function_call",
            retryable=True,
        )
    return None


def failure_data(turn: Turn, failure: ModelFailure) -> dict[str, Any]:
    """Build the data of a terminal `error` event, without the totals."""
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
    return data


class OutputContract:
    """The `outputSchema` of a run: what is asked of the model, and how far the answer keeps to it (wire §7).

    `schema` is what the model is given: None once the model has rejected it and `best_effort` lets the run go on
    without. With `strict`, a model without structured output, a rejected schema and an answer that does not
    fit are failures, each with its error class (http §4).
    """

    def __init__(self, wanted: Mapping[str, Any], mechanism: str) -> None:
        self.schema: Optional[Mapping[str, Any]] = wanted
        self._wanted = wanted["schema"]
        self._strict = wanted.get("enforcement") == "strict"
        self.mechanism = mechanism
        self._enforced = mechanism != "none"

    def refuse_model(self) -> ModelFailure | None:
        """Tell whether the model may be asked at all."""
        if self.mechanism != "none" or not self._strict:
            return None
        return ModelFailure(
            "The model does not support structured output, and the schema is to be enforced strictly.",
            error_class="structured_output_not_supported",
            retryable=False,
        )

    def drop_after(self, failure: ModelFailure) -> bool:
        """Go on without the schema after the model rejected it. False if this failure ends the run."""
        if self._strict or self.schema is None or failure.error_class != "structured_output_schema_rejected":
            return False
        self.schema = None
        self.mechanism = "none"
        self._enforced = False
        return True

    def check(self, text: str) -> ModelFailure | None:
        """Look at the final answer; a failure only where the schema is strict."""
        problem = self._problem(text)
        if problem is None:
            return None
        self._enforced = False
        if not self._strict:
            return None
        return ModelFailure(
            f"The answer does not fit the output schema: {problem}.",
            error_class="structured_output_not_enforced",
            retryable=True,
        )

    def _problem(self, text: str) -> str | None:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return "it is not JSON"
        return next(iter(schema_problems(self._wanted, value)), None)

    def info(self) -> dict[str, Any]:
        """Build the `structuredOutput` of a terminal event."""
        return {
            "schemaRequested": True,
            "schemaEnforced": self._enforced,
            "enforcementMechanism": self.mechanism,
            # The model was asked without the schema, or ignores it; an answer that merely misses it is not this.
            "unconstrainedFallbackOccurred": self.mechanism == "none",
        }
