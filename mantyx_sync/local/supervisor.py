"""The run supervisor (wire §8.4): when a run is reviewed, what a judge sees, what its verdict does. Pure.

Who judges is the server's choice: `LocalServer(judge=...)` takes any callable from a `Review` to a `Verdict`
(or one of the words `on_track`, `redirect`, `finalize`; None is `on_track`). `rule_judge` is the default.
"""

from __future__ import annotations

import json
from dataclasses import field
from typing import Any, Callable, Mapping, Optional, Sequence, Union

from mantyx_sync.reprs import dataclass

__all__ = [
    "Cadence",
    "Judge",
    "ReasoningSpan",
    "Review",
    "SupervisorSettings",
    "Verdict",
    "read_verdict",
    "rule_judge",
]

DEFAULT_INTERVAL = 5
DEFAULT_TRIGGER_CHARS = 3000
DEFAULT_TRIGGER_MS = 30_000
ACTIONS = ("on_track", "redirect", "finalize")


@dataclass(frozen=True)
class SupervisorSettings:
    """What a spec asks for. `chars` and `ms` are None where mid-turn reviews are switched off."""

    interval: int = DEFAULT_INTERVAL
    model_id: Optional[str] = None
    chars: Optional[int] = DEFAULT_TRIGGER_CHARS
    ms: Optional[int] = DEFAULT_TRIGGER_MS

    @classmethod
    def from_spec(cls, value: Any) -> SupervisorSettings | None:
        """Read `supervisor`: None and `false` have no supervisor, `true` and `{}` the defaults."""
        if value is None or value is False:
            return None
        given: Mapping[str, Any] = {} if value is True else value
        trigger = given.get("reasoningTrigger")
        if trigger is False:
            chars, ms = None, None
        else:
            chars = _or(trigger, "chars", DEFAULT_TRIGGER_CHARS)
            ms = _or(trigger, "ms", DEFAULT_TRIGGER_MS)
        return cls(_or(given, "interval", DEFAULT_INTERVAL), given.get("modelId"), chars, ms)


def _or(holder: Mapping[str, Any] | None, name: str, default: int) -> int:
    found = (holder or {}).get(name)
    return default if found is None else int(found)


class Cadence:
    """Says at the bottom of a tool round whether `interval` model calls have passed since the last review."""

    def __init__(self, interval: int) -> None:
        self.interval = interval
        self._last = 0

    def due(self, llm_calls: int) -> bool:
        """Tell whether a review is due, and if so count from here."""
        if llm_calls - self._last < self.interval:
            return False
        self._last = llm_calls
        return True


class ReasoningSpan:
    """Watches one stretch of reasoning. Said or called things end it; a review starts the count again.

    The clock is looked at when a piece of reasoning arrives: a model that says nothing is not reviewed.
    """

    def __init__(self, chars: int | None, ms: int | None) -> None:
        self._chars = chars
        self._seconds = None if ms is None else ms / 1000
        self._pieces: list[str] = []
        self._length = 0
        self._started: Optional[float] = None

    @property
    def text(self) -> str:
        """The reasoning of this turn so far."""
        return "".join(self._pieces)

    def feed(self, text: str, now: float) -> bool:
        """Take in a piece of reasoning at a time in seconds; True if the span has become too long."""
        self._pieces.append(text)
        self._length += len(text)
        if self._started is None:
            self._started = now
        crossed = (self._chars is not None and self._length >= self._chars) or (
            self._seconds is not None and now - self._started >= self._seconds
        )
        if crossed:
            self._length, self._started = 0, now
        return crossed

    def end(self) -> None:
        """The model has begun to say or call something."""
        self._length, self._started = 0, None


@dataclass(frozen=True)
class Review:
    """What a judge is shown.

    `messages` is the conversation as the model has it. `reasoning` is what the model is thinking in the turn
    under way (phase `reasoning`), or what it thought in the turn before (`turn_boundary`). `plan` is the run's
    task plan as in a `task_plan` event, or None. `interventions` counts the verdicts that changed this run.
    """

    run_id: str
    phase: str
    llm_calls: int
    messages: Sequence[Mapping[str, Any]]
    reasoning: str = ""
    spec: Mapping[str, Any] = field(default_factory=dict)
    plan: Optional[Mapping[str, Any]] = None
    interventions: int = 0


@dataclass(frozen=True)
class Verdict:
    """What the judge decided.

    `redirect` is the steering message for the model; without one a redirect says the reason. With `finalize` it
    is a preface. `steps` maps ids of the task plan's steps to new statuses. `model` replaces what the
    event reports as the judge's model.
    """

    action: str = "on_track"
    reason: str = ""
    redirect: Optional[str] = None
    steps: Mapping[str, str] = field(default_factory=dict)
    model: Optional[Mapping[str, Any]] = None

    def __post_init__(self) -> None:
        if self.action not in ACTIONS:
            raise ValueError(f"action must be one of {', '.join(ACTIONS)}, got {self.action!r}")

    @property
    def steering(self) -> str | None:
        """The user message that goes into the conversation, if any."""
        if self.action == "redirect":
            return self.redirect or self.reason or "Change your approach."
        return self.redirect if self.action == "finalize" else None

    def to_event(self, phase: str, llm_calls: int, model: Mapping[str, Any]) -> dict[str, Any]:
        """Build the data of a `supervisor` event (wire §4.7)."""
        data: dict[str, Any] = {"action": self.action, "phase": phase, "reason": self.reason}
        if self.action == "redirect":
            data["redirect"] = self.steering
        return {**data, "llmCalls": llm_calls, "model": dict(self.model or model)}


Judge = Callable[[Review], Union[Verdict, str, None]]


def read_verdict(value: object) -> Verdict:
    """Take what a judge returned. Raises `TypeError` or `ValueError` for anything that is no verdict."""
    if value is None:
        return Verdict(reason="The judge saw nothing to change.")
    if isinstance(value, str):
        return Verdict(value, "The judge gave no reason.")
    if isinstance(value, Verdict):
        return value
    raise TypeError(f"a judge returns a Verdict, a word or None, not {type(value).__name__}")


# ------------------------------------------------------------------ default judge

MAX_REPEATS = 2
MAX_ERRORS_IN_A_ROW = 3
REPEATED_LINES = 3


def rule_judge(review: Review) -> Verdict:
    """Judge by three rules; it understands nothing of what is said.

    It steps in when the last rounds of tool calls were equal, when the last three tool results were errors, or
    when the reasoning says the same line three times. The first time it redirects, after that it finalizes.
    """
    problem = _repeats_itself(review.reasoning) if review.phase == "reasoning" else _goes_in_circles(review.messages)
    if problem is None:
        return Verdict(reason="No repetition and no series of errors.")
    reason, advice = problem
    if review.interventions > 0:
        return Verdict("finalize", f"{reason} An earlier review changed nothing.")
    return Verdict("redirect", reason, advice)


def _repeats_itself(reasoning: str) -> tuple[str, str] | None:
    seen: dict[str, int] = {}
    for line in reasoning.replace(". ", ".\n").splitlines():
        line = line.strip()
        if len(line) >= 12:
            seen[line] = seen.get(line, 0) + 1
    if max(seen.values(), default=0) < REPEATED_LINES:
        return None
    return (
        "The reasoning repeats itself.",
        "Your reasoning repeats itself. Commit to the straightforward way and go on.",
    )


def _goes_in_circles(messages: Sequence[Mapping[str, Any]]) -> tuple[str, str] | None:
    rounds = [
        sorted((call["name"], json.dumps(call["input"], sort_keys=True, default=repr)) for call in m["toolCalls"])
        for m in messages
        if m.get("toolCalls")
    ]
    if len(rounds) >= MAX_REPEATS and all(batch == rounds[-1] for batch in rounds[-MAX_REPEATS:]):
        return (
            "The last rounds made the same tool calls.",
            "Stop repeating the same calls: answer from the results you have, or try something else.",
        )
    results = [m for m in messages if m["role"] == "tool"][-MAX_ERRORS_IN_A_ROW:]
    if len(results) == MAX_ERRORS_IN_A_ROW and all(m.get("isError") for m in results):
        return (
            f"The last {MAX_ERRORS_IN_A_ROW} tool calls failed.",
            "Your last tool calls failed. Read what they said and change your approach, or say what is missing.",
        )
    return None
