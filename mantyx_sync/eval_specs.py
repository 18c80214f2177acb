"""What an eval is told: inline data sets, the agent under test, and what to change about it (http §3)."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, TypedDict, Union

from mantyx_sync.checks import NEAR_MISS, closest, json_copy, options, refusal, sequence, shown, string, text
from mantyx_sync.errors import MantyxConfigError
from mantyx_sync.guards import reasoning_level_to_wire
from mantyx_sync.reprs import bounded, brief, dataclass
from mantyx_sync.spec import OMITTED, RunSpec, build_spec
from mantyx_sync.toolspec import read_tools, tools_to_wire
from mantyx_sync.wire import python_name, wire_name

__all__ = ["AgentEvalOverrides", "EvalRunArgs", "EvalRunSpec", "InlineEvalCaseSpec", "InlineEvalDatasetSpec"]

_TURN = ("prompt", "messages", "attachments")


@dataclass(frozen=True)
class InlineEvalCaseSpec:
    """One case of an inline data set: what the agent is given, and how its answer is scored."""

    input: Mapping[str, Any]
    name: Optional[str] = None
    scorers: Optional[Sequence[Mapping[str, Any]]] = None
    tool_mocks: Optional[Mapping[str, Any]] = None
    tags: Optional[Sequence[str]] = None


@dataclass(frozen=True)
class InlineEvalDatasetSpec:
    """A data set that goes out with the eval. A case is an `InlineEvalCaseSpec` or a mapping."""

    cases: Sequence[Union[InlineEvalCaseSpec, Mapping[str, Any]]]
    name: Optional[str] = None
    tool_mocks: Optional[Mapping[str, Any]] = None


@dataclass(frozen=True)
class AgentEvalOverrides:
    """What an eval changes about the agent. `None` leaves it as it is."""

    system_prompt: Optional[str] = None
    system_prompt_append: Optional[str] = None
    model: Optional[str] = None
    llm_provider_id: Optional[str] = None
    reasoning_level: Union[str, int, None] = None
    disable_tools: Optional[bool] = None
    tool_allowlist: Optional[Sequence[str]] = None
    disabled_mocks: Optional[Sequence[str]] = None


class EvalRunArgs(TypedDict, total=False):
    """The fields of `EvalRunSpec` as keyword arguments, for type checkers and signatures."""

    dataset_id: Optional[str]
    dataset: Union[InlineEvalDatasetSpec, Mapping[str, Any], None]
    agent_id: Optional[str]
    agent: Union[RunSpec, Mapping[str, Any], None]
    tools: Optional[Iterable[Any]]
    model_id: Optional[str]
    overrides: Union[AgentEvalOverrides, Mapping[str, Any], None]
    extra_body: Optional[Mapping[str, Any]]


@dataclass(frozen=True, repr=False)
class EvalRunSpec:
    """An eval to run: one data set, one agent. Checked and copied when it is built.

    Attributes:
        dataset_id: A data set of the workspace; or `dataset`, an inline one.
        agent_id: An agent of the workspace; or `agent`, an inline one: a `RunSpec` or a mapping of its fields, in
            either spelling, without anything to say: that is what the cases are for.
        tools: Tools to offer beside the agent's own.
        model_id: The model to use instead of the agent's.
        overrides: What else to change: `AgentEvalOverrides` or a mapping.
        extra_body: Fields that this package does not know, merged over the request body as they are.
    """

    dataset_id: Optional[str] = None
    dataset: Union[InlineEvalDatasetSpec, Mapping[str, Any], None] = None
    agent_id: Optional[str] = None
    agent: Union[RunSpec, Mapping[str, Any], None] = None
    tools: Optional[Iterable[Any]] = None
    model_id: Optional[str] = None
    overrides: Union[AgentEvalOverrides, Mapping[str, Any], None] = None
    extra_body: Optional[Mapping[str, Any]] = None

    def __post_init__(self) -> None:
        for one, other in (("dataset_id", "dataset"), ("agent_id", "agent")):
            given = [name for name in (one, other) if getattr(self, name) is not None]
            if len(given) != 1:
                got = "both" if given else "neither"
                raise MantyxConfigError(f"{one} and {other}: got {got}, must be one of the two")
        for name in ("dataset_id", "agent_id", "model_id"):
            value = getattr(self, name)
            if value is not None:
                text(value, name)
        tools: Tuple[Any, ...] = () if self.tools is None else read_tools(self.tools)
        if self.agent is not None:
            self._set("agent", _agent(self.agent, tools))
        if self.dataset is not None:
            self._set("dataset", _dataset(self.dataset))
        if self.overrides is not None:
            self._set("overrides", _overrides(self.overrides))
        if self.extra_body is not None:
            if not isinstance(self.extra_body, Mapping):
                raise refusal("extra_body", shown(self.extra_body), "be a mapping")
            self._set("extra_body", json_copy(self.extra_body, "extra_body"))
        self._set("tools", tools)

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    @property
    def offered_tools(self) -> Tuple[Any, ...]:
        """All tools that go out with the eval: those of an inline agent and those given beside it."""
        if isinstance(self.agent, RunSpec):
            return () if self.agent.tools is OMITTED else tuple(self.agent.tools or ())
        return tuple(self.tools or ())

    def with_offered_tools(self, tools: Sequence[Any]) -> EvalRunSpec:
        """Return a copy that offers others in place of `offered_tools`."""
        if isinstance(self.agent, RunSpec):
            return replace(self, agent=replace(self.agent, tools=tools), tools=None)
        return replace(self, tools=tools)

    def to_wire(self) -> Dict[str, Any]:
        """Return the request body: plain JSON values that nobody else holds.

        Tools that are resolved elsewhere (A2A cards, MCP catalogs) must be resolved by now.

        Raises:
            MantyxConfigError: A tool's wire form breaks a limit.
        """
        body: Dict[str, Any] = {}
        for name in ("dataset_id", "dataset", "agent_id", "model_id", "overrides"):
            value = getattr(self, name)
            if value is not None:
                body[wire_name(name)] = json_copy(value, name)
        if isinstance(self.agent, RunSpec):
            body["agent"] = self.agent.to_wire("session")
        elif self.tools:
            body["tools"] = tools_to_wire(tuple(self.tools))
        if self.extra_body is not None:
            body.update(json_copy(self.extra_body, "extra_body"))
        return body

    def __repr__(self) -> str:
        # What the cases and prompts say stays out: specs turn up in logs.
        given = (f.name for f in fields(self) if getattr(self, f.name) not in (None, ()))
        ids = ("dataset_id", "agent_id", "model_id")
        parts = (f"{name}={brief(getattr(self, name), 40)}" if name in ids else f"{name}=…" for name in given)
        return bounded(f"EvalRunSpec({', '.join(parts)})")


def _agent(value: object, tools: Tuple[Any, ...]) -> RunSpec:
    """Return the spec of an inline agent with the tools given beside it."""
    if isinstance(value, RunSpec):
        given = {f.name: getattr(value, f.name) for f in fields(RunSpec)}
    elif isinstance(value, Mapping):
        given = _spec_fields(value)
    else:
        raise refusal("agent", shown(value), "be a RunSpec or a mapping")
    given = {name: item for name, item in given.items() if item is not OMITTED and item is not None}
    for name in _TURN:
        if name in given:
            raise MantyxConfigError(f"agent.{name}: has no place here, the cases of the data set say what is said")
    try:
        spec = build_spec(given, purpose="session")
    except MantyxConfigError as error:
        raise MantyxConfigError(f"agent.{error.message}") from error
    if not tools:
        return spec
    own: Tuple[Any, ...] = () if spec.tools is OMITTED else tuple(spec.tools or ())
    try:
        return replace(spec, tools=(*own, *tools))
    except MantyxConfigError as error:
        raise MantyxConfigError(f"{error.message} (the agent's own tools come first)") from error


def _spec_fields(value: Mapping[Any, Any]) -> Dict[str, Any]:
    """Sort the fields of an agent in either spelling; what is not known becomes its `extra_body`."""
    known = {wire_name(f.name): f.name for f in fields(RunSpec)}
    found: Dict[str, Any] = {}
    extra: Dict[str, Any] = {}
    for key, item in value.items():
        if not isinstance(key, str):
            raise refusal("agent", f"the key {shown(key)}", "have strings as keys")
        name = known.get(key, key)
        if name in found:
            raise MantyxConfigError(f"agent.{key}: given twice, as {key!r} and in its other spelling")
        if name in known.values():
            found[name] = item
            continue
        near = closest(python_name(key), known.values(), NEAR_MISS)
        if near is not None:
            raise MantyxConfigError(f"agent: unknown key {key!r}; did you mean {near!r}?")
        extra[key] = item
    if extra:
        found["extra_body"] = {**extra, **(found.get("extra_body") or {})}
    return found


def _dataset(value: object) -> Dict[str, Any]:
    found = options(value, InlineEvalDatasetSpec, "dataset")
    cases = sequence(found.get("cases"), "dataset.cases", "cases")
    if not cases:
        raise refusal("dataset.cases", "none", "have at least one case")
    found["cases"] = [_case(case, f"dataset.cases[{i}]") for i, case in enumerate(cases)]
    _check_text(found, "name", "dataset")
    _check_mapping(found, "toolMocks", "dataset")
    return json_copy(found, "dataset")  # type: ignore[no-any-return]  # a mapping like the one given


def _case(value: object, where: str) -> Dict[str, Any]:
    found = options(value, InlineEvalCaseSpec, where)
    if not isinstance(found.get("input"), Mapping):
        got = type(found["input"]).__name__ if "input" in found else "nothing"
        raise refusal(f"{where}.input", got, "be a mapping")
    _check_text(found, "name", where)
    _check_mapping(found, "toolMocks", where)
    if "tags" in found:
        found["tags"] = _texts(found["tags"], f"{where}.tags")
    if "scorers" in found:
        scorers = sequence(found["scorers"], f"{where}.scorers", "mappings")
        for i, scorer in enumerate(scorers):
            if not isinstance(scorer, Mapping):
                raise refusal(f"{where}.scorers[{i}]", shown(scorer), "be a mapping")
        found["scorers"] = list(scorers)
    return found


def _overrides(value: object) -> Dict[str, Any]:
    where = "overrides"
    found = options(value, AgentEvalOverrides, where)
    for name in ("systemPrompt", "systemPromptAppend", "model", "llmProviderId"):
        _check_text(found, name, where)
    if "reasoningLevel" in found:
        reasoning_level_to_wire(found["reasoningLevel"], f"{where}.reasoning_level")
    if "disableTools" in found and not isinstance(found["disableTools"], bool):
        raise refusal(f"{where}.disable_tools", shown(found["disableTools"]), "be a bool")
    for name in ("toolAllowlist", "disabledMocks"):
        if name in found:
            found[name] = _texts(found[name], f"{where}.{python_name(name)}")
    return json_copy(found, where)  # type: ignore[no-any-return]  # a mapping like the one given


def _check_text(found: Mapping[str, Any], name: str, where: str) -> None:
    if name in found:
        string(found[name], f"{where}.{python_name(name)}")


def _check_mapping(found: Mapping[str, Any], name: str, where: str) -> None:
    if name in found and not isinstance(found[name], Mapping):
        raise refusal(f"{where}.{python_name(name)}", shown(found[name]), "be a mapping")


def _texts(value: object, where: str) -> List[str]:
    return [string(item, f"{where}[{i}]") for i, item in enumerate(sequence(value, where, "strings"))]
