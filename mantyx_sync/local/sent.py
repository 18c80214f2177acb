"""What a program sent to the embedded server, in the words of its tests. Does no I/O."""

from __future__ import annotations

import json
from typing import Any, Callable, Mapping, Optional, Sequence

from mantyx_sync.local.store import Run
from mantyx_sync.reprs import dataclass

__all__ = ["Sent", "SentRun", "SentToolCall"]


@dataclass(frozen=True)
class SentToolCall:
    """A call of one of the program's tools, and its answer, as far as there is one."""

    name: str
    args: Any
    output: Optional[str] = None
    """The text that the tool's result was sent as."""
    error: Optional[str] = None
    """The text that went to the model instead of a result."""
    tool_use_id: str = ""

    @property
    def is_answered(self) -> bool:
        """Whether a result or an error has come."""
        return self.output is not None or self.error is not None

    @property
    def value(self) -> Any:
        """The result, decoded where it is JSON.

        Raises:
            AssertionError: There is none; the text says what came instead.
        """
        if self.output is None:
            raise AssertionError(
                f"{self} has no result: " + ("it was not answered" if self.error is None else f"error {self.error!r}")
            )
        try:
            return json.loads(self.output)
        except ValueError:
            return self.output

    def __str__(self) -> str:
        return f"{self.name}({json.dumps(self.args, ensure_ascii=False)})"


class SentRun:
    """A run that the program started: what it asked for, and what its tools answered."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.id = run.id
        self.spec: Mapping[str, Any] = run.spec
        """The request's body; of a session's run, with what the session says."""
        self.session_id = run.session_id

    def __repr__(self) -> str:
        prompt = self.prompt if len(self.prompt) <= 60 else self.prompt[:59] + "…"
        calls = f" calls={[str(call) for call in self.tool_calls]}" if self.tool_calls else ""
        return f"<SentRun {self.id} {self.status} prompt={prompt!r} tools={list(self.tools)}{calls}>"

    @property
    def prompt(self) -> str:
        """The user's last words."""
        if isinstance(self.spec.get("prompt"), str):
            return str(self.spec["prompt"])
        said = [message for message in self.messages if message.get("role") == "user"]
        return str(said[-1].get("content", "")) if said else ""

    @property
    def messages(self) -> Sequence[Mapping[str, Any]]:
        """The messages of the request, empty where it had a prompt."""
        return self.spec.get("messages") or ()

    @property
    def system_prompt(self) -> Optional[str]:
        """The system prompt."""
        return self.spec.get("systemPrompt")

    @property
    def metadata(self) -> Mapping[str, str]:
        """The metadata; of a session's run, with those of the session."""
        return self._run.metadata

    @property
    def tools(self) -> tuple[str, ...]:
        """The names of the tools that were offered, in their order."""
        found: list[str] = []
        for ref in self.spec.get("tools") or ():
            inner = ref.get("tools") if ref.get("kind") == "mcp_local" else None
            names = [tool.get("name") for tool in inner] if inner else [ref.get("name") or ref.get("id")]
            found += [str(name) for name in names]
        return tuple(found)

    def tool(self, name: str) -> Mapping[str, Any]:
        """Return how a tool was offered: its kind, description and parameters.

        Raises:
            AssertionError: It was not.
        """
        for ref in self.spec.get("tools") or ():
            for entry in [ref, *(ref.get("tools") or ())]:
                if name in (entry.get("name"), entry.get("id")):
                    return entry  # type: ignore[no-any-return]
        raise AssertionError(f"{self!r} offers no tool {name!r}")

    @property
    def tool_calls(self) -> tuple[SentToolCall, ...]:
        """The calls of the program's tools with their answers, in the order in which the model made them."""
        calls: dict[str, SentToolCall] = {}
        for event in self._run.events:
            data = event["data"]
            if event["type"] == "local_tool_call":
                calls[data["toolUseId"]] = SentToolCall(data["name"], data["args"], tool_use_id=data["toolUseId"])
            elif event["type"] == "local_tool_result_in" and data["toolUseId"] in calls:
                call = calls[data["toolUseId"]]
                calls[call.tool_use_id] = SentToolCall(
                    call.name, call.args, data.get("output"), data.get("error"), call.tool_use_id
                )
        return tuple(calls.values())

    def tool_call(self, name: str) -> SentToolCall:
        """Return the one call of a tool.

        Raises:
            AssertionError: It was called never, or more than once.
        """
        found = [call for call in self.tool_calls if call.name == name]
        if len(found) != 1:
            how_often = f"called {len(found)} times" if found else "not called"
            raise AssertionError(f"{name!r} was {how_often}: {self!r}")
        return found[0]

    @property
    def status(self) -> str:
        """`queued`, `running`, `succeeded`, `failed` or `cancelled`."""
        return self._run.status

    @property
    def text(self) -> Optional[str]:
        """The answer, once there is one."""
        return self._run.final_text

    @property
    def error(self) -> Optional[str]:
        """Why the run failed."""
        return self._run.error


class Sent:
    """The runs that a program started at an embedded server; each look is a new one."""

    def __init__(self, runs: Callable[[], Sequence[Run]]) -> None:
        self._runs = runs

    def __repr__(self) -> str:
        return f"<Sent {list(self.runs)!r}>"

    @property
    def runs(self) -> tuple[SentRun, ...]:
        """All of them, oldest first."""
        return tuple(SentRun(run) for run in self._runs())

    @property
    def run(self) -> SentRun:
        """The one run there is.

        Raises:
            AssertionError: There is none, or more than one.
        """
        found = self.runs
        if len(found) != 1:
            listed = "".join(f"\n  {run!r}" for run in found)
            raise AssertionError(f"{len(found) or 'no'} runs were started, not one{listed}")
        return found[0]

    @property
    def last(self) -> SentRun:
        """The newest run.

        Raises:
            AssertionError: There is none.
        """
        found = self.runs
        if not found:
            raise AssertionError("no run was started")
        return found[-1]

    @property
    def prompts(self) -> tuple[str, ...]:
        """What was asked, run by run."""
        return tuple(run.prompt for run in self.runs)
