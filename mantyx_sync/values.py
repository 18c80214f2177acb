"""Values that several messages carry: usage, the model that ran, how output was enforced, the task plan."""

from __future__ import annotations

from dataclasses import field
from typing import Any, Iterator, KeysView, Mapping

from mantyx_sync.reprs import dataclass
from mantyx_sync.views import Viewable
from mantyx_sync.wire import Fields

__all__ = [
    "RunModelInfo",
    "RunTokenUsage",
    "StructuredOutputInfo",
    "TaskPlan",
    "TaskPlanStep",
    "TaskPlanTransition",
    "TokenUsage",
    "task_plan_from_event_data",
]


@dataclass(frozen=True)
class TokenUsage:
    """Tokens of a whole run (wire §4.8.1).

    `cached_tokens` is a part of `input_tokens`, `reasoning_tokens` a part of `output_tokens`: the two totals
    cover everything that is billed.
    """

    input_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    output_tokens: int = 0

    @classmethod
    def read(cls, fields: Fields | None) -> TokenUsage | None:
        """Build it from the fields of a `tokens` object; `None` where an older server sent none."""
        if fields is None:
            return None
        return cls(
            input_tokens=fields.count("inputTokens"),
            cached_tokens=fields.count("cachedTokens"),
            reasoning_tokens=fields.count("reasoningTokens"),
            output_tokens=fields.count("outputTokens"),
        )


RunTokenUsage = TokenUsage
"""The name the platform's own package has for it."""


@dataclass(frozen=True)
class RunModelInfo:
    """The model that ran (wire §4.8.1). `id` can be given again as `model_id`."""

    id: str = ""
    provider: str = ""
    vendor_model_id: str = ""
    reasoning_effort: str | None = None

    @classmethod
    def read(cls, fields: Fields | None) -> RunModelInfo | None:
        """Build it from the fields of a `model` object.

        `None` where there is none, or where `provider` is empty: that is how older servers say "no data".
        """
        if fields is None:
            return None
        provider = fields.opt_text("provider")
        if not provider:
            return None
        return cls(
            id=fields.opt_text("id") or "",
            provider=provider,
            vendor_model_id=fields.opt_text("vendorModelId") or "",
            reasoning_effort=fields.opt_text("reasoningEffort"),
        )


@dataclass(frozen=True)
class StructuredOutputInfo:
    """How far the platform enforced the output schema (http §4)."""

    schema_requested: bool = False
    schema_enforced: bool = False
    enforcement_mechanism: str = "none"
    unconstrained_fallback_occurred: bool = False

    @classmethod
    def read(cls, fields: Fields | None) -> StructuredOutputInfo | None:
        """Build it from the fields of a `structuredOutput` object; `None` if there is none."""
        if fields is None:
            return None
        return cls(
            schema_requested=bool(fields.opt_bool("schemaRequested")),
            schema_enforced=bool(fields.opt_bool("schemaEnforced")),
            enforcement_mechanism=fields.opt_text("enforcementMechanism") or "none",
            unconstrained_fallback_occurred=bool(fields.opt_bool("unconstrainedFallbackOccurred")),
        )


class _WireView:
    """Lets a value be read as the mapping it came from: `plan["steps"][0]["title"]`.

    The platform's own package hands plans out as plain dicts with wire keys; code written for it keeps
    working.
    """

    raw: Mapping[str, Any]

    def __getitem__(self, key: str) -> Any:
        return self.raw[key]

    def __contains__(self, key: object) -> bool:
        return key in self.raw

    def __iter__(self) -> Iterator[str]:
        return iter(self.raw)

    def keys(self) -> KeysView[str]:
        """Return the wire keys, so that `dict(value)` works."""
        return self.raw.keys()

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value under a wire key, or `default`."""
        return self.raw.get(key, default)


@dataclass(frozen=True)
class TaskPlanStep(_WireView):
    """One line of a task plan. `status`: `pending`, `in_progress`, `done`, `blocked`, `skipped` or newer."""

    title: str
    status: str = "pending"
    id: str | None = None
    raw: Mapping[str, Any] = field(repr=False, compare=False, hash=False, default_factory=dict)

    @classmethod
    def read(cls, fields: Fields) -> TaskPlanStep:
        """Build it from the fields of one entry of `steps`."""
        return cls(
            title=fields.opt_text("title") or "",
            status=fields.opt_text("status") or "pending",
            id=fields.opt_text("id"),
            raw=fields.data,
        )


@dataclass(frozen=True)
class TaskPlan(Viewable, _WireView):
    """The checklist of a run (wire §4.9). Newer servers give it a `plan_id` and count its `revision`."""

    steps: tuple[TaskPlanStep, ...] = ()
    brief: str | None = None
    plan_id: str | None = None
    revision: int | None = None
    mode: str | None = None
    source: str | None = None
    v: int | None = None
    raw: Mapping[str, Any] = field(repr=False, compare=False, hash=False, default_factory=dict)

    @classmethod
    def read(cls, fields: Fields | None) -> TaskPlan | None:
        """Build it from the fields of a plan object; `None` if there is none."""
        if fields is None:
            return None
        return cls(
            steps=tuple(TaskPlanStep.read(step) for step in fields.objects("steps")),
            brief=fields.opt_text("brief"),
            plan_id=fields.opt_text("planId"),
            revision=fields.opt_int("revision"),
            mode=fields.opt_text("mode"),
            source=fields.opt_text("source"),
            v=fields.opt_int("v"),
            raw=fields.data,
        )


@dataclass(frozen=True)
class TaskPlanTransition(_WireView):
    """What changed in a plan with this event (http §4): the kind of change and the step it is about."""

    kind: str
    step_id: str | None = None
    raw: Mapping[str, Any] = field(repr=False, compare=False, hash=False, default_factory=dict)

    @classmethod
    def read(cls, fields: Fields | None) -> TaskPlanTransition | None:
        """Build it from the fields of a `transition` object; `None` if there is none."""
        if fields is None:
            return None
        return cls(kind=fields.opt_text("kind") or "", step_id=fields.opt_text("stepId"), raw=fields.data)


def task_plan_from_event_data(data: Mapping[str, Any], where: str = "task plan") -> TaskPlan | None:
    """Read the plan out of the data of a `task_plan` event (wire §4.9, http §4).

    Older servers put `brief` and `steps` at the top; newer ones may nest them under `plan` beside the plan's id
    and revision. `None` if there is neither.

    Raises:
        MantyxProtocolError: A field has the wrong type; `where` and the field are named.
    """
    nested = Fields(data, where).opt_object("plan")
    merged = {key: value for key, value in data.items() if key in _PLAN_KEYS}
    merged.update(nested or {})
    return TaskPlan.read(Fields(merged, where)) if "steps" in merged or "brief" in merged else None


_PLAN_KEYS = frozenset({"v", "planId", "revision", "mode", "source", "brief", "steps"})
