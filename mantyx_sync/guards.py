"""Run options that are small objects: guards, plan, budgets, output schema (wire §7 and §8, http §4).

Each can be given as its dataclass or as a mapping, and has one function that checks it against the documented limits
and returns its wire form.
"""

from __future__ import annotations

import functools
from dataclasses import fields
from typing import Any, Mapping, Sequence, Type, TypeVar, Union

from mantyx_sync import limits
from mantyx_sync.checks import integer, json_bytes, json_copy, options, refusal, sequence, shown, string
from mantyx_sync.errors import MantyxConfigError
from mantyx_sync.reprs import dataclass
from mantyx_sync.wire import wire_name

__all__ = [
    "Budgets",
    "LoopDetection",
    "OutputSchema",
    "PlanOptions",
    "ReasoningTrigger",
    "RunBudgets",
    "Supervisor",
    "ToolBudget",
    "budgets_to_wire",
    "loop_detection_to_wire",
    "output_schema_to_wire",
    "plan_only",
    "plan_to_wire",
    "reasoning_level_to_wire",
    "supervisor_to_wire",
    "tool_budgets_to_wire",
]

_PLAN_MODES = ("off", "auto", "required")
_ENFORCEMENTS = ("best_effort", "strict")

T = TypeVar("T")


def _in_either_spelling(cls: Type[T]) -> Type[T]:
    """Let options be built with their wire names as well: in the platform's own package these classes are mappings."""
    names = {wire_name(f.name): f.name for f in fields(cls)}  # type: ignore[arg-type]  # a dataclass
    build: Any = cls.__init__

    @functools.wraps(build)
    def init(self: T, *args: Any, **given: Any) -> None:
        for wire, name in names.items():
            if wire in given and name not in given:
                given[name] = given.pop(wire)
        build(self, *args, **given)

    cls.__init__ = init  # type: ignore[assignment]  # takes what `build` takes
    return cls


@_in_either_spelling
@dataclass(frozen=True)
class LoopDetection:
    """When the platform steps in on repeated tool calls (wire §8.1).

    After `consecutive_threshold` equal batches of calls the model is nudged (default 3), after
    `hard_cutoff_threshold` it has to finish without tools (default 6).
    """

    consecutive_threshold: int | None = None
    hard_cutoff_threshold: int | None = None


@_in_either_spelling
@dataclass(frozen=True)
class ToolBudget:
    """How often a tool may be called in one run (wire §8.2). 0 disables the tool."""

    max_calls: int


@_in_either_spelling
@dataclass(frozen=True)
class ReasoningTrigger:
    """When a turn's reasoning is reviewed while it goes on (wire §8.4): after `chars` characters or `ms` ms."""

    chars: int | None = None
    ms: int | None = None


@_in_either_spelling
@dataclass(frozen=True)
class Supervisor:
    """A judge that reviews the run every `interval` model calls (wire §8.4).

    `reasoning_trigger=False` keeps it from reviewing in the middle of a turn.
    """

    interval: int | None = None
    model_id: str | None = None
    reasoning_trigger: ReasoningTrigger | Mapping[str, Any] | bool | None = None


@_in_either_spelling
@dataclass(frozen=True)
class PlanOptions:
    """The run's task plan (wire §8.5, http §4). With `steps`, the plan is yours; else the platform makes one."""

    mode: str | None = None
    brief: str | None = None
    steps: Sequence[str] | None = None
    plan_only: bool | None = None


@_in_either_spelling
@dataclass(frozen=True)
class Budgets:
    """Limits of the whole run (http §4). `max_tool_turns_exceeded` says what happens then, such as `finalize`."""

    max_tool_turns: int | None = None
    max_tool_turns_exceeded: str | None = None


RunBudgets = Budgets
"""The name the platform's own package has for it."""


@_in_either_spelling
@dataclass(frozen=True)
class OutputSchema:
    """The JSON Schema that the final answer must fit (wire §7). `enforcement`: `best_effort` or `strict`."""

    schema: Mapping[str, Any]
    name: str | None = None
    enforcement: str | None = None


LoopDetectionInput = Union[LoopDetection, Mapping[str, Any], bool]
ToolBudgetsInput = Mapping[str, Union[ToolBudget, Mapping[str, Any]]]
SupervisorInput = Union[Supervisor, Mapping[str, Any], bool]
PlanInput = Union[PlanOptions, Mapping[str, Any], str, bool]
BudgetsInput = Union[Budgets, Mapping[str, Any]]
OutputSchemaInput = Union[OutputSchema, Mapping[str, Any]]


def plan_only(*, steps: Sequence[str] | None = None, brief: str | None = None) -> PlanOptions:
    """Return a plan that ends the run once the plan stands (wire §8.5).

    Args:
        steps: Titles of the steps, if you know them; `None` lets the platform find them.
        brief: One line that says what the plan is for.
    """
    return PlanOptions(plan_only=True, steps=steps, brief=brief)


def loop_detection_to_wire(value: object, where: str = "loop_detection") -> Any:
    """Check `loop_detection` (wire §8.1): `False`, a `LoopDetection` or a mapping."""
    if value is False:
        return False
    found = options(value, LoopDetection, where, "False, ")
    soft, hard = found.get("consecutiveThreshold"), found.get("hardCutoffThreshold")
    if soft is not None:
        name = f"{where}.consecutive_threshold"
        integer(soft, name, limits.MIN_CONSECUTIVE_THRESHOLD, limits.MAX_LOOP_THRESHOLD)
    if hard is not None:
        name = f"{where}.hard_cutoff_threshold"
        integer(hard, name, limits.MIN_HARD_CUTOFF_THRESHOLD, limits.MAX_LOOP_THRESHOLD)
    if soft is not None and hard is not None and hard <= soft:
        raise refusal(f"{where}.hard_cutoff_threshold", shown(hard), f"be greater than consecutive_threshold ({soft})")
    return json_copy(found, where)


def tool_budgets_to_wire(value: object, where: str = "tool_budgets") -> dict[str, Any]:
    """Check `tool_budgets` (wire §8.2): a mapping from tool name to `ToolBudget` or `{"maxCalls": n}`."""
    if not isinstance(value, Mapping):
        raise refusal(where, shown(value), "be a mapping from tool name to ToolBudget")
    if len(value) > limits.MAX_TOOL_BUDGETS:
        raise refusal(where, f"{len(value)} entries", f"have at most {limits.MAX_TOOL_BUDGETS}")
    result = {}
    for name, budget in value.items():
        if not isinstance(name, str) or not 1 <= len(name) <= limits.MAX_TOOL_BUDGET_KEY_CHARS:
            must = f"have keys that are strings of 1 to {limits.MAX_TOOL_BUDGET_KEY_CHARS} characters"
            raise refusal(where, f"the key {shown(name)}", must)
        here = f"{where}[{name!r}]"
        found = options(budget, ToolBudget, here)
        integer(found.get("maxCalls"), f"{here}.max_calls", 0, limits.MAX_TOOL_CALLS)
        result[name] = json_copy(found, here)
    return result


def supervisor_to_wire(value: object, where: str = "supervisor") -> Any:
    """Check `supervisor` (wire §8.4): a bool, a `Supervisor` or a mapping."""
    if isinstance(value, bool):
        return value
    found = options(value, Supervisor, where, "a bool, ")
    if "interval" in found:
        integer(found["interval"], f"{where}.interval", 1, limits.MAX_SUPERVISOR_INTERVAL)
    if "modelId" in found:
        string(found["modelId"], f"{where}.model_id")
    trigger = found.get("reasoningTrigger")
    if trigger is not None and trigger is not False:
        here = f"{where}.reasoning_trigger"
        trigger = options(trigger, ReasoningTrigger, here, "False, ")
        if "chars" in trigger:
            integer(trigger["chars"], f"{here}.chars", 1, limits.MAX_REASONING_TRIGGER_CHARS)
        if "ms" in trigger:
            integer(trigger["ms"], f"{here}.ms", 1, limits.MAX_REASONING_TRIGGER_MS)
        found["reasoningTrigger"] = trigger
    return json_copy(found, where)


def plan_to_wire(value: object, where: str = "plan") -> Any:
    """Check `plan` (wire §8.5, http §4): a bool, a mode, a `PlanOptions` or a mapping."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _one_of(value, where, _PLAN_MODES)
    found = options(value, PlanOptions, where, "a bool, a mode, ")
    if "mode" in found:
        _one_of(found["mode"], f"{where}.mode", _PLAN_MODES)
    if "brief" in found:
        string(found["brief"], f"{where}.brief")
    if "planOnly" in found and not isinstance(found["planOnly"], bool):
        raise refusal(f"{where}.plan_only", shown(found["planOnly"]), "be a bool")
    if "steps" in found:
        found["steps"] = sequence(found["steps"], f"{where}.steps", "strings")
        for i, step in enumerate(found["steps"]):
            string(step, f"{where}.steps[{i}]")
    return json_copy(found, where)


def budgets_to_wire(value: object, where: str = "budgets") -> dict[str, Any]:
    """Check `budgets` (http §4): a `Budgets` or a mapping."""
    found = options(value, Budgets, where)
    if "maxToolTurns" in found:
        integer(found["maxToolTurns"], f"{where}.max_tool_turns", 0, limits.MAX_TOOL_TURNS)
    if "maxToolTurnsExceeded" in found:
        string(found["maxToolTurnsExceeded"], f"{where}.max_tool_turns_exceeded")
    copy: dict[str, Any] = json_copy(found, where)
    return copy


def output_schema_to_wire(value: object, where: str = "output_schema") -> dict[str, Any]:
    """Check `output_schema` (wire §7): an `OutputSchema` or a mapping `{"schema": …, "name"?: …}`.

    The schema may also be a pydantic model class; its JSON Schema is what goes out.
    """
    if isinstance(value, Mapping) and "schema" not in value:
        if {"type", "properties", "$ref", "anyOf", "$defs"} & value.keys():
            raise refusal(where, "a JSON Schema", 'hold it under "schema": {"schema": {...}}')
        raise MantyxConfigError(f"{where}: the key 'schema' is missing, must be a JSON Schema")
    found = options(value, OutputSchema, where)
    schema = found.get("schema")
    if isinstance(schema, type) and callable(getattr(schema, "model_json_schema", None)):
        schema = found["schema"] = schema.model_json_schema()  # type: ignore[attr-defined]  # pydantic, unseen
    if not isinstance(schema, Mapping):
        raise refusal(f"{where}.schema", shown(schema), "be a JSON Schema whose root is an object")
    if "name" in found:
        name = found["name"]
        if not isinstance(name, str) or not limits.OUTPUT_SCHEMA_NAME.fullmatch(name):
            raise refusal(f"{where}.name", shown(name), f"match {limits.OUTPUT_SCHEMA_NAME.pattern}")
    if "enforcement" in found:
        _one_of(found["enforcement"], f"{where}.enforcement", _ENFORCEMENTS)
    copy: dict[str, Any] = json_copy(found, where)
    size = json_bytes(copy)
    if size > limits.MAX_OUTPUT_SCHEMA_BYTES:
        must = f"take at most {limits.MAX_OUTPUT_SCHEMA_BYTES} bytes as JSON"
        raise refusal(where, f"{size} bytes", must)
    return copy


def reasoning_level_to_wire(value: object, where: str = "reasoning_level") -> str | int:
    """Check `reasoning_level` (wire §6): `off`, `low`, `medium`, `high`, or an integer from 0 to 100."""
    if isinstance(value, str) and value in limits.REASONING_WORDS:
        return str.__str__(value)
    high = limits.MAX_REASONING_LEVEL
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= high:
        return int(value)
    words = ", ".join(limits.REASONING_WORDS)
    raise refusal(where, shown(value), f"be one of {words}, or an integer from 0 to {high}")


def _one_of(value: object, where: str, allowed: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in allowed:
        raise refusal(where, shown(value), f"be one of {', '.join(allowed)}")
    return str.__str__(value)
