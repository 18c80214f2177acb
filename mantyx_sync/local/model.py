"""What the embedded server runs its agent loop over: the `Model` protocol and a model that plays a script.

A model is asked once per turn. It gets the conversation so far and the tools it may call, and yields
what it says: text, thinking, tool calls, and at the end why it stopped and what it cost.
"""

from __future__ import annotations

import threading
from dataclasses import field
from typing import Any, Callable, Iterable, Iterator, Mapping, Optional, Protocol, Sequence, Union

from mantyx_sync.reprs import dataclass

__all__ = [
    "Failure",
    "Model",
    "ModelFailure",
    "ModelPart",
    "ModelRequest",
    "Pause",
    "ScriptTurn",
    "ScriptedModel",
    "Text",
    "Thinking",
    "ToolDeclaration",
    "ToolUse",
    "TurnEnd",
    "Usage",
    "play_script_turn",
]


@dataclass(frozen=True)
class Usage:
    """The tokens of one model call, in the wire's buckets (wire §4.8.1)."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
        )

    def to_wire(self) -> dict[str, int]:
        """Build the `tokens` object of a terminal event."""
        return {
            "inputTokens": max(0, self.input_tokens),
            "cachedTokens": max(0, self.cached_tokens),
            "reasoningTokens": max(0, self.reasoning_tokens),
            "outputTokens": max(0, self.output_tokens),
        }


@dataclass(frozen=True)
class ToolDeclaration:
    """One tool as the model sees it."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    output_schema: Optional[Mapping[str, Any]] = None


@dataclass(frozen=True)
class ModelRequest:
    """All a model may look at for one turn.

    `messages` are mappings with `role` (`system`, `user`, `assistant`, `tool`) and `content`. An assistant's
    may have `toolCalls` (`id`, `name`, `input`); a tool's has `toolUseId`, `name`, `isError` and maybe
    `files`; the last user message may have `attachments`. A user message with `steering` was put in by a
    guard; one to which a task plan was added has the user's own words in `asked`. On a turn where tools are
    disabled `tools` is empty. `output_schema` is the `outputSchema` the answer must fit, or None.
    `model_id` is the catalog id the run uses now. A model that waits for something should stop when
    `cancelled` or `abandoned` is set.
    """

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[ToolDeclaration]
    spec: Mapping[str, Any]
    turn: int
    run_id: str
    cancelled: threading.Event = field(repr=False, default_factory=threading.Event)
    abandoned: threading.Event = field(repr=False, default_factory=threading.Event)
    model_id: str = ""
    output_schema: Optional[Mapping[str, Any]] = None

    @property
    def prompt(self) -> str:
        """The user's last words, without what guards and plans added."""
        for message in reversed(self.messages):
            if message["role"] == "user" and not message.get("steering"):
                return str(message.get("asked", message["content"]))
        return ""


@dataclass(frozen=True)
class Text:
    """A piece of the answer: one `assistant_delta`."""

    text: str


@dataclass(frozen=True)
class Thinking:
    """A piece of reasoning: one `thinking_delta`."""

    text: str


@dataclass(frozen=True)
class ToolUse:
    """A tool call. Calls made in one turn belong to one batch."""

    name: str
    args: Any = field(default_factory=dict)
    id: Optional[str] = None


@dataclass(frozen=True)
class TurnEnd:
    """Why the model stopped, as a canonical lower-case token, and what the turn cost."""

    finish_reason: Optional[str] = None
    usage: Optional[Usage] = None


ModelPart = Union[str, Text, Thinking, ToolUse, TurnEnd]
"""What a model yields; a plain `str` is a `Text`."""


class ModelFailure(Exception):
    """A model call that failed: becomes the run's terminal `error` event (wire §4.8)."""

    def __init__(
        self,
        message: str,
        *,
        error_class: str | None = "unknown",
        code: str | None = None,
        finish_reason: str | None = None,
        retryable: bool | None = None,
        api_status: int | None = None,
        api_code: str | None = None,
        usage: Usage | None = None,
    ) -> None:
        super().__init__(message)
        self.error_class = error_class
        self.code = code
        self.finish_reason = finish_reason
        self.retryable = retryable
        self.api_status = api_status
        self.api_code = api_code
        self.usage = usage


class Model(Protocol):
    """What the agent loop needs of a model. `complete` may be called from many threads at once.

    A model that makes its answers fit `ModelRequest.output_schema` says how in an attribute
    `structured_output`: `native_schema` or `synthetic_tool`. Without the attribute it is taken to ignore schemas.
    """

    @property
    def model_id(self) -> str:
        """The catalog id, such as `local:rule`: provider, colon, the provider's own name."""
        ...

    def complete(self, request: ModelRequest) -> Iterable[ModelPart]:
        """Play one turn. Raises `ModelFailure` to fail the run."""
        ...


# --------------------------------------------------------------------- script


@dataclass(frozen=True)
class Pause:
    """Hold the model's turn until `event` is set; `reached` is set when the script gets here.

    The wait also ends when the run is cancelled or the server stops, and the turn ends with it.
    """

    event: threading.Event
    reached: Optional[threading.Event] = None


@dataclass(frozen=True)
class Failure:
    """Fail the model call here. The fields are those of the terminal `error` event."""

    message: str = "The model call failed."
    error_class: Optional[str] = "unknown"
    code: Optional[str] = None
    finish_reason: Optional[str] = None
    retryable: Optional[bool] = None
    api_status: Optional[int] = None
    api_code: Optional[str] = None
    usage: Optional[Usage] = None


ScriptPart = Union[ModelPart, Pause, Failure, Callable[[ModelRequest], object]]
ScriptTurn = Union[ScriptPart, Iterable[ScriptPart]]
Script = Sequence[ScriptTurn]

# How often a paused script looks whether its run was ended meanwhile: two events cannot be waited for at once.
_PAUSE_POLL_S = 0.02


class ScriptedModel:
    """A model that plays turns written down beforehand, the same for every run. For tests.

        ScriptedModel([
            ["Let me look. ", ToolUse("get_order", {"order_id": "17"})],
            ["Order 17 ", "is on its way."],
        ])

    A turn is one part or an iterable of parts: `str` or `Text` (one delta each), `Thinking`, `ToolUse`,
    `Pause` (until an event is set), `Failure` (the run's terminal error), `TurnEnd` (finish reason, usage),
    or a callable that gets the `ModelRequest` and returns a part, several, or None. Where `turns` is a
    callable, it gets a run's first request and returns the turns of that run.

    Args:
        turns: The turns, or a function that returns them.
        model_id: The catalog id that the run reports.
        structured_output: How the script claims to keep to an output schema; `none` if it does not.
    """

    def __init__(
        self,
        turns: Script | Callable[[ModelRequest], Script] = ("Done.",),
        *,
        model_id: str = "local:scripted",
        structured_output: str = "native_schema",
    ) -> None:
        self.model_id = model_id
        self.structured_output = structured_output
        self._turns = turns
        self._chosen: dict[str, Script] = {}

    def complete(self, request: ModelRequest) -> Iterator[ModelPart]:
        """Play the turn whose number the request names."""
        turns = self._script(request)
        if request.turn >= len(turns):
            raise ModelFailure(
                f"the script has {len(turns)} turns and the run asked for turn {request.turn}",
                error_class="unknown",
                code="script_exhausted",
            )
        yield from play_script_turn(turns[request.turn], request)

    def _script(self, request: ModelRequest) -> Script:
        if not callable(self._turns):
            return self._turns
        if request.turn == 0 or request.run_id not in self._chosen:
            self._chosen[request.run_id] = self._turns(request)
        return self._chosen[request.run_id]


def play_script_turn(turn: object, request: ModelRequest) -> Iterator[ModelPart]:
    """Play what a script says of one turn. Raises `ModelFailure` where it says so."""
    if isinstance(turn, (str, Text, Thinking, ToolUse, TurnEnd)):
        yield turn
    elif isinstance(turn, Pause):
        if turn.reached is not None:
            turn.reached.set()
        while not turn.event.wait(_PAUSE_POLL_S):
            if request.cancelled.is_set() or request.abandoned.is_set():
                return
    elif isinstance(turn, Failure):
        raise ModelFailure(
            turn.message,
            error_class=turn.error_class,
            code=turn.code,
            finish_reason=turn.finish_reason,
            retryable=turn.retryable,
            api_status=turn.api_status,
            api_code=turn.api_code,
            usage=turn.usage,
        )
    elif callable(turn):
        yield from play_script_turn(turn(request), request)
    elif isinstance(turn, Iterable):
        for part in turn:
            if isinstance(part, str):  # the common part, without another generator
                yield part
                continue
            yield from play_script_turn(part, request)
            if isinstance(part, Pause) and (request.cancelled.is_set() or request.abandoned.is_set()):
                return
    elif turn is not None:
        raise TypeError(f"a script cannot hold a {type(turn).__name__}")
