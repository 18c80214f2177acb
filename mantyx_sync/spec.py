"""What goes out: `RunSpec`, the one list of everything a run can be told (wire §2, http §4).

Every call that starts a run takes these fields as keyword arguments: `RunSpecArgs` types them, `build_spec` turns
them into a checked spec, `spec_signature` shows them in `help()`. Wire names follow by `wire_name`.
"""

from __future__ import annotations

import inspect
from dataclasses import fields, replace
from enum import Enum
from typing import (
    Any,
    Callable,
    Collection,
    Dict,
    Iterable,
    List,
    Literal,
    Mapping,
    Optional,
    Sequence,
    TypedDict,
    TypeVar,
    Union,
    overload,
)

from mantyx_sync import guards, limits
from mantyx_sync.checks import closest, json_bytes, json_copy, refusal, shown
from mantyx_sync.errors import MantyxConfigError
from mantyx_sync.guards import (
    Budgets,
    BudgetsInput,
    LoopDetection,
    LoopDetectionInput,
    OutputSchema,
    OutputSchemaInput,
    PlanInput,
    PlanOptions,
    ReasoningTrigger,
    RunBudgets,
    Supervisor,
    SupervisorInput,
    ToolBudget,
    ToolBudgetsInput,
    plan_only,
)
from mantyx_sync.messages import (
    Attachment,
    InputFile,
    InputFileUrl,
    Message,
    MessageInput,
    attachments_to_wire,
    input_file,
    input_file_attachment,
    input_file_url,
    input_file_url_attachment,
    messages_to_wire,
    with_attachments,
)
from mantyx_sync.reprs import bounded, brief, dataclass
from mantyx_sync.toolspec import read_tools, tools_to_wire
from mantyx_sync.wire import python_name, wire_name

Purpose = Literal["run", "session", "message"]

__all__ = [
    "OMITTED",
    "Budgets",
    "InputFile",
    "InputFileUrl",
    "LoopDetection",
    "Message",
    "Omitted",
    "OutputSchema",
    "PlanOptions",
    "ReasoningTrigger",
    "RunBudgets",
    "RunSpec",
    "RunSpecArgs",
    "Supervisor",
    "ToolBudget",
    "build_spec",
    "check_names",
    "input_file",
    "input_file_attachment",
    "input_file_url",
    "input_file_url_attachment",
    "plan_only",
    "show_arguments",
    "spec_signature",
    "wire_name",
]

F = TypeVar("F", bound=Callable[..., Any])


class Omitted(Enum):
    """The type of `OMITTED`."""

    OMITTED = "OMITTED"

    def __bool__(self) -> Literal[False]:
        return False

    def __repr__(self) -> str:
        return "OMITTED"

    __str__ = __repr__


OMITTED = Omitted.OMITTED
"""The value of a field that was not given: nothing is sent for it and the platform's default holds."""


class RunSpecArgs(TypedDict, total=False):
    """The fields of `RunSpec` as keyword arguments, for `Unpack`."""

    name: Optional[str]
    agent_id: Optional[str]
    system_prompt: Optional[str]
    model_id: Optional[str]
    fallback_model_id: Optional[str]
    reasoning_level: Union[str, int, None]
    tools: Optional[Iterable[Any]]
    budgets: Optional[BudgetsInput]
    output_schema: Optional[OutputSchemaInput]
    loop_detection: Optional[LoopDetectionInput]
    tool_budgets: Optional[ToolBudgetsInput]
    supervisor: Optional[SupervisorInput]
    plan: Optional[PlanInput]
    metadata: Optional[Mapping[str, str]]
    prompt: Optional[str]
    messages: Optional[Sequence[MessageInput]]
    attachments: Optional[Sequence[Attachment]]
    extra_body: Optional[Mapping[str, Any]]


@dataclass(frozen=True, repr=False)
class RunSpec:
    """Everything a run can be told. `None` and `OMITTED` leave a field out; the platform's default holds.

    Each field is checked against the documented limits and copied when the spec is built, so a spec stands however
    the caller's lists and dicts change later. Guards, messages and the like are held in their wire form.

    Attributes:
        name: A label for the run.
        agent_id: An agent of the workspace to run.
        system_prompt: What the model is told first.
        model_id: The model; `fallback_model_id` is tried if it fails.
        reasoning_level: `off`, `low`, `medium`, `high` or 0 to 100 (wire §6).
        tools: Tool refs, functions, or mappings with `kind` (wire §3).
        budgets: Limits of the whole run.
        output_schema: JSON Schema of the final answer (wire §7).
        loop_detection: Loop guard; `False` switches it off (wire §8.1).
        tool_budgets: Calls allowed per tool; `{}` clears the platform's defaults (wire §8.2).
        supervisor: Judge of the run (wire §8.4).
        plan: Task plan (wire §8.5).
        metadata: Up to 16 strings to find the run by.
        prompt: What the user says; or else `messages`.
        messages: A whole conversation; the last one is the user's.
        attachments: Files for the last user message.
        extra_body: Fields that this package does not know, merged over the request body as they are.
    """

    name: str | Omitted | None = OMITTED
    agent_id: str | Omitted | None = OMITTED
    system_prompt: str | Omitted | None = OMITTED
    model_id: str | Omitted | None = OMITTED
    fallback_model_id: str | Omitted | None = OMITTED
    reasoning_level: str | int | Omitted | None = OMITTED
    tools: Iterable[Any] | Omitted | None = OMITTED
    budgets: BudgetsInput | Omitted | None = OMITTED
    output_schema: OutputSchemaInput | Omitted | None = OMITTED
    loop_detection: LoopDetectionInput | Omitted | None = OMITTED
    tool_budgets: ToolBudgetsInput | Omitted | None = OMITTED
    supervisor: SupervisorInput | Omitted | None = OMITTED
    plan: PlanInput | Omitted | None = OMITTED
    metadata: Mapping[str, str] | Omitted | None = OMITTED
    prompt: str | Omitted | None = OMITTED
    messages: Sequence[MessageInput] | Omitted | None = OMITTED
    attachments: Sequence[Attachment] | Omitted | None = OMITTED
    extra_body: Mapping[str, Any] | Omitted | None = OMITTED

    def __post_init__(self) -> None:
        for name, read in _READERS.items():
            value = getattr(self, name)
            if value is not OMITTED:
                value = OMITTED if value is None else read(value, name)
                object.__setattr__(self, name, value)

    def validate(self, purpose: Purpose = "run") -> None:
        """Check what no field can tell by itself: that the fields together make a run, a session or a message.

        Args:
            purpose: `run` needs somebody to run and something to say; `session` somebody to run and nothing said
                yet; `message` only something to say, since the session knows the rest.

        Raises:
            MantyxConfigError: A field is missing, or one is there that has no place here.
        """
        if purpose == "session":
            for name in _TURN:
                if getattr(self, name) is not OMITTED:
                    raise MantyxConfigError(f"{name}: a session is created without; give it to send()")
        elif self.prompt is OMITTED and self.messages is OMITTED:
            raise MantyxConfigError("prompt: not given, must be given (or messages)")
        elif self.prompt is not OMITTED and self.messages is not OMITTED:
            raise MantyxConfigError("prompt: given together with messages, must be one of the two")
        if self.prompt == "" and not self.attachments:
            raise refusal("prompt", "an empty string", "have text (or attachments)")
        if purpose != "message" and not (self.agent_id or self.system_prompt or self._has_system_message()):
            ways = "system_prompt" if purpose == "session" else "system_prompt or a system message"
            raise MantyxConfigError(f"agent_id: not given, must be given (or {ways})")

    def to_wire(self, purpose: Purpose = "run") -> dict[str, Any]:
        """Return the request body: plain JSON values that nobody else holds.

        Tools that are resolved elsewhere (A2A cards, MCP catalogs) must be resolved by now.

        Raises:
            MantyxConfigError: As `validate`; or a tool's wire form breaks a limit.
        """
        self.validate(purpose)
        body: Dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if value is OMITTED or field.name in ("tools", "extra_body", *_TURN):
                continue
            body[wire_name(field.name)] = json_copy(value, field.name)
        if self.tools is not OMITTED:
            body["tools"] = tools_to_wire(self.tools)  # type: ignore[arg-type]  # a tuple since __post_init__
        body.update(self._turn())
        if self.extra_body is not OMITTED:
            body.update(json_copy(self.extra_body, "extra_body"))
        return body

    def with_output_schema(self, output_schema: OutputSchemaInput) -> RunSpec:
        """Return a copy that asks for structured output."""
        return replace(self, output_schema=output_schema)

    def _turn(self) -> dict[str, Any]:
        """Return `prompt` or `messages`, with the attachments where they belong."""
        messages: List[Dict[str, Any]]
        if self.messages is not OMITTED:
            messages = json_copy(self.messages, "messages")
        elif self.prompt is OMITTED:
            return {}
        elif not self.attachments:
            return {"prompt": self.prompt}
        else:
            messages = messages_to_wire([{"role": "user", "content": self.prompt}], "prompt")
        if self.attachments:
            with_attachments(messages, json_copy(self.attachments, "attachments"))
        return {"messages": messages}

    def _has_system_message(self) -> bool:
        messages: Any = self.messages or ()
        return any(m["role"] == "system" and m["content"].strip() for m in messages)

    def __repr__(self) -> str:
        # What was said stays out: specs turn up in logs, and prompts must not.
        given = (f.name for f in fields(self) if getattr(self, f.name) is not OMITTED)
        shown_fields = (f"{name}={brief(getattr(self, name), 40)}" if name in _SHOWN else f"{name}=…" for name in given)
        return bounded(f"RunSpec({', '.join(shown_fields)})")


_TURN = ("prompt", "messages", "attachments")
_SHOWN = frozenset({"name", "agent_id", "model_id", "fallback_model_id", "reasoning_level"})


def check_names(kwargs: Mapping[str, Any], cls: Any = RunSpec) -> None:
    """Check that every name is a field of `RunSpec`, or of another dataclass.

    Raises:
        TypeError: One is not; the message suggests the one that was meant.
    """
    known = [f.name for f in fields(cls)]
    for name in kwargs:
        if name not in known:
            near = closest(python_name(str(name)), known)
            hint = f"; did you mean {near!r}?" if near else ""
            raise TypeError(f"unexpected keyword argument {name!r}{hint}")


def build_spec(kwargs: Mapping[str, Any], *, purpose: Purpose = "run") -> RunSpec:
    """Turn keyword arguments into a checked spec (see `RunSpec`). Sends nothing.

    Args:
        kwargs: Fields of `RunSpec` by name.
        purpose: What the spec is for, see `RunSpec.validate`.

    Raises:
        TypeError: A name is not a field; the message suggests the one that was meant.
        MantyxConfigError: A value cannot be used; the message names field, value and limit.
    """
    check_names(kwargs)
    spec = RunSpec(**kwargs)
    spec.validate(purpose)
    return spec


@overload
def spec_signature(func: F) -> F: ...
@overload
def spec_signature(*, purpose: Purpose = ..., without: Iterable[str] = ...) -> Callable[[F], F]: ...
def spec_signature(
    func: F | None = None, *, purpose: Purpose = "run", without: Iterable[str] = ()
) -> F | Callable[[F], F]:
    """Show the fields of `RunSpec` in the signature of a function that takes them as `**kwargs`.

    The function's own parameters come first, then each field as a keyword-only one. Works as `@spec_signature` and
    as `@spec_signature(purpose="session")`, which leaves out what a session is created without.
    """
    hidden = set(without) | (set(_TURN) if purpose == "session" else set())

    def show(target: F) -> F:
        return show_arguments(target, RunSpecArgs, OMITTED, hidden)

    return show if func is None else show(func)


def show_arguments(target: F, arguments: type, default: object, hidden: Collection[str] = ()) -> F:
    """Show the keys of a TypedDict in the signature of a function that takes them as `**kwargs`.

    Args:
        arguments: The TypedDict.
        default: What its keys are shown to be if they are not given.
        hidden: Keys that are not shown.
    """
    signature = inspect.signature(target)
    own = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    more = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=default,
            annotation=str(getattr(annotation, "__forward_arg__", annotation)),
        )
        for name, annotation in arguments.__annotations__.items()
        if name not in hidden and name not in signature.parameters
    ]
    full = signature.replace(parameters=[*own, *more])
    target.__signature__ = full  # type: ignore[attr-defined]  # any function takes it
    return target


def _optional_name(value: object, where: str) -> Any:
    """Read a string; an empty one means that it is left out, as with a variable of the environment not set."""
    if not isinstance(value, str):
        raise refusal(where, shown(value), "be a string")
    return str.__str__(value) or OMITTED


def _prompt(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise refusal(where, type(value).__name__, "be a string")
    return str.__str__(value)


def _metadata(value: object, where: str) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise refusal(where, shown(value), "be a mapping of strings")
    if len(value) > limits.MAX_METADATA_ENTRIES:
        raise refusal(where, f"{len(value)} entries", f"have at most {limits.MAX_METADATA_ENTRIES}")
    found = {}
    for key, item in value.items():
        if not isinstance(key, str) or not limits.METADATA_KEY.fullmatch(key):
            raise refusal(where, f"the key {shown(key)}", f"have keys that match {limits.METADATA_KEY.pattern}")
        if not isinstance(item, str):
            raise refusal(f"{where}.{key}", shown(item), "be a string")
        if len(item) > limits.MAX_METADATA_VALUE_CHARS:
            must = f"have at most {limits.MAX_METADATA_VALUE_CHARS}"
            raise refusal(f"{where}.{key}", f"{len(item)} characters", must)
        found[str.__str__(key)] = str.__str__(item)
    size = json_bytes(found)
    if size > limits.MAX_METADATA_BYTES:
        raise refusal(where, f"{size} bytes", f"take at most {limits.MAX_METADATA_BYTES} bytes as JSON")
    return found


def _extra_body(value: object, where: str) -> Any:
    if not isinstance(value, Mapping):
        raise refusal(where, shown(value), "be a mapping")
    return json_copy(value, where)


_READERS: Dict[str, Callable[[Any, str], Any]] = {
    "name": _optional_name,
    "agent_id": _optional_name,
    "system_prompt": _optional_name,
    "model_id": _optional_name,
    "fallback_model_id": _optional_name,
    "reasoning_level": guards.reasoning_level_to_wire,
    "tools": read_tools,
    "budgets": guards.budgets_to_wire,
    "output_schema": guards.output_schema_to_wire,
    "loop_detection": guards.loop_detection_to_wire,
    "tool_budgets": guards.tool_budgets_to_wire,
    "supervisor": guards.supervisor_to_wire,
    "plan": guards.plan_to_wire,
    "metadata": _metadata,
    "prompt": _prompt,
    "messages": messages_to_wire,
    "attachments": attachments_to_wire,
    "extra_body": _extra_body,
}
