"""`RunScripts`: a model for tests that plays a script for each run, and tells which runs did not keep to theirs."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field
from typing import Callable, Iterable, Iterator, Mapping, Optional, Sequence, Union

from mantyx_sync.local.model import (
    Failure,
    Model,
    ModelFailure,
    ModelPart,
    ModelRequest,
    Pause,
    ScriptTurn,
    Text,
    Thinking,
    ToolUse,
    TurnEnd,
    Usage,
    play_script_turn,
)

__all__ = ["PromptFilter", "RunScripts", "check_turns"]

PromptFilter = Union[str, "re.Pattern[str]", Callable[[str], bool]]

MAX_SHOWN_CHARS = 60
_PARTS = (str, Text, Thinking, ToolUse, TurnEnd, Failure, Pause)


@dataclass(eq=False)
class _Script:
    """The turns of a run, which runs they are for, and what became of them."""

    number: int
    turns: Sequence[ScriptTurn]
    prompt: Optional[PromptFilter]
    tools: Optional[Sequence[str]]
    times: Optional[int]
    usage: Optional[Usage]
    runs: list[str] = field(default_factory=list)

    @property
    def is_open(self) -> bool:
        return self.times is None or len(self.runs) < self.times

    def fits(self, prompt: str) -> bool:
        wanted = self.prompt
        if wanted is None:
            return True
        if isinstance(wanted, str):
            return wanted in prompt
        return wanted.search(prompt) is not None if isinstance(wanted, re.Pattern) else wanted(prompt)

    def __str__(self) -> str:
        if self.prompt is None:
            return f"script {self.number}"
        shown = self.prompt.pattern if isinstance(self.prompt, re.Pattern) else self.prompt
        return f"script {self.number} (prompt={shown!r})" if isinstance(shown, str) else f"script {self.number}"


class RunScripts:
    """A model that plays the next script that fits for each run. For tests.

        scripts = RunScripts()
        scripts.add([ToolUse("get_order", {"order_id": "17"})], "It was shipped.", tools=["get_order"])
        scripts.add("I do not know.", prompt="weather")

    `problems` tells what did not go as written: a run for which there was no script, one that asked for more turns
    than its script has or ended before it had them all, tools that were not offered, scripts that no run came for.
    Safe to use from several threads.

    Args:
        otherwise: The model of runs that come while no script was ever added; None has them fail.
        model_id: The catalog id that runs report.
    """

    def __init__(self, otherwise: Model | None = None, *, model_id: str = "local:scripted") -> None:
        self.model_id = model_id
        self.structured_output = "native_schema"
        self._otherwise = otherwise
        self._lock = threading.Lock()
        self._scripts: list[_Script] = []
        self._chosen: dict[str, _Script] = {}
        self._begun: dict[str, int] = {}  # turns of each run
        self._problems: list[str] = []

    def add(
        self,
        *turns: ScriptTurn,
        prompt: PromptFilter | None = None,
        tools: Sequence[str] | None = None,
        times: int | None = 1,
        usage: Usage | None = None,
    ) -> None:
        """Add the script of a run: what the model says in its turns, one argument each.

        Args:
            turns: As those of `ScriptedModel`: a part or a list of parts each.
            prompt: Only for runs whose prompt contains this text, matches this pattern, or satisfies this function.
            tools: Names of tools that must be offered to the model.
            times: How many runs play it; None is any number.
            usage: What each turn costs, unless a `TurnEnd` of its own says so.

        Raises:
            ValueError: There is no turn, something in one is none of what a model can say, or another argument is not
                allowed.
        """
        check_turns(turns)
        if prompt is not None and not isinstance(prompt, (str, re.Pattern)) and not callable(prompt):
            raise ValueError(f"prompt: got {prompt!r}, must be a text, a pattern or a function")
        if times is not None and (not isinstance(times, int) or times < 1):
            raise ValueError(f"times: got {times!r}, must be 1 or above, or None for any number")
        if isinstance(tools, str) or not all(isinstance(name, str) for name in tools or ()):
            raise ValueError(f"tools: got {tools!r}, must be a list of names")
        with self._lock:
            self._scripts.append(_Script(len(self._scripts) + 1, turns, prompt, tools, times, usage))

    def complete(self, request: ModelRequest) -> Iterator[ModelPart]:
        """Play the next turn of a run."""
        script = self._script_of(request)
        if script is None:
            assert self._otherwise is not None
            yield from self._otherwise.complete(request)
            return
        with self._lock:
            # Not the loop's own number: a supervisor that breaks a turn off has it played again.
            turn = self._begun.get(request.run_id, 0)
            self._begun[request.run_id] = turn + 1
        if turn >= len(script.turns):
            raise self._wrong(
                f"{script} has {_counted(len(script.turns), 'turn')}, and run {request.run_id} asked for one more"
                f"{_behind(request)}"
            )
        self._check_tools(script, request)
        has_ended = False
        for part in play_script_turn(script.turns[turn], request):
            if isinstance(part, TurnEnd):
                has_ended = True
                part = TurnEnd(part.finish_reason, part.usage or script.usage)
            yield part
        if script.usage is not None and not has_ended:
            yield TurnEnd(usage=script.usage)

    def _script_of(self, request: ModelRequest) -> _Script | None:
        with self._lock:
            if request.run_id in self._chosen:
                return self._chosen[request.run_id]
            if not self._scripts and self._otherwise is not None:
                return None
            for script in self._scripts:
                if script.is_open and script.fits(request.prompt):
                    script.runs.append(request.run_id)
                    self._chosen[request.run_id] = script
                    return script
        raise self._wrong(self._why_none(request))

    def _why_none(self, request: ModelRequest) -> str:
        asked = f"run {request.run_id} ({_shortened(request.prompt)})"
        if not self._scripts:
            return f"there is no script for {asked}: none was added"
        left = [str(script) for script in self._scripts if script.is_open]
        if left:
            return f"no script fits {asked}; still to be played: {', '.join(left)}"
        return f"there is no script left for {asked}: {_counted(len(self._scripts), 'script')} had been added"

    def _check_tools(self, script: _Script, request: ModelRequest) -> None:
        offered = [tool.name for tool in request.tools]
        missing = [name for name in script.tools or () if name not in offered]
        if missing:
            names = ", ".join(offered) or "none"
            raise self._wrong(f"{script} wants the tool {missing[0]!r}, and run {request.run_id} offers {names}")

    def _wrong(self, problem: str) -> ModelFailure:
        with self._lock:
            self._problems.append(problem)
        return ModelFailure(problem, error_class="unknown", code="script_exhausted", retryable=False)

    # ------------------------------------------------------------------------------------- afterwards

    def problems(self, unfinished: Iterable[str] = ()) -> list[str]:
        """Return what did not go as written, a sentence each.

        Args:
            unfinished: Runs that still go on, of which more may be expected.
        """
        going_on = set(unfinished)
        with self._lock:
            found = list(self._problems)
            for script in self._scripts:
                if not script.runs:
                    found.append(f"{script} was not played: no run came for it")
                elif script.times is not None and len(script.runs) < script.times:
                    found.append(f"{script} was played {len(script.runs)} of {script.times} times")
                for run_id in script.runs:
                    begun = self._begun.get(run_id, 0)
                    if begun < len(script.turns) and run_id not in going_on:
                        found.append(
                            f"{script} was not used up: run {run_id} ended after {begun} of {len(script.turns)} turns"
                        )
        return found

    def assert_used_up(self, unfinished: Iterable[str] = ()) -> None:
        """Check that all went as written.

        Args:
            unfinished: As `problems`.

        Raises:
            AssertionError: It did not; the text says what was different.
        """
        problems = self.problems(unfinished)
        if problems:
            raise AssertionError("\n".join(problems))


def check_turns(turns: Sequence[object]) -> None:
    """Check that turns hold what a model can say.

    Raises:
        ValueError: They do not; the text says where.
    """
    if not turns:
        raise ValueError("turns: got none, must be what the model says in at least one turn")
    for number, turn in enumerate(turns):
        _check_part(turn, f"turns[{number}]")


def _check_part(part: object, where: str) -> None:
    if isinstance(part, (list, tuple)):
        for number, inner in enumerate(part):
            _check_part(inner, f"{where}[{number}]")
        return
    is_other = isinstance(part, Iterable) and not isinstance(part, (Mapping, bytes, set))  # looked at when it is played
    if not isinstance(part, _PARTS) and not callable(part) and not is_other and part is not None:
        names = ", ".join(kind.__name__ for kind in _PARTS[1:])
        raise ValueError(f"{where}: got {part!r}, must be a text, a function, or one of {names}")
    if isinstance(part, ToolUse) and not isinstance(part.args, Mapping):
        raise ValueError(f"{where}: ToolUse.args: got {part.args!r}, must be a dict")


def _behind(request: ModelRequest) -> str:
    last = request.messages[-1] if request.messages else {}
    if last.get("role") == "tool":
        return f": behind the result of {last.get('name')} the model is asked again, so add what it says then"
    return ""


def _shortened(text: str) -> str:
    return repr(text if len(text) <= MAX_SHOWN_CHARS else text[: MAX_SHOWN_CHARS - 1] + "…")


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
