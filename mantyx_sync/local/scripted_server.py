"""`ScriptedServer`: an embedded server for tests that tells what was sent, and whether all went as written."""

from __future__ import annotations

from typing import Any, Sequence

from mantyx_sync.local.model import Model, ScriptTurn, Usage
from mantyx_sync.local.rules import RuleModel
from mantyx_sync.local.scripts import PromptFilter, RunScripts
from mantyx_sync.local.server import LocalServer

__all__ = ["ScriptedServer"]


class ScriptedServer(LocalServer):
    """A `LocalServer` whose model plays a script for each run. What the fixture `mantyx_server` is.

        with ScriptedServer() as server, MantyxClient(**server.client_settings()) as client:
            server.script([ToolUse("get_order", {"order_id": "17"})], "It was shipped.")
            …
            assert server.sent.run.prompt == "Where is order 17?"
            server.assert_scripts_used()

    Until a script is added, runs are played by the `RuleModel`. `server.sent` tells what the program sent; faults are
    added to `server.faults`.

    Args:
        model: A model in place of the scripts.
        settings: Arguments of `LocalServer`.
    """

    def __init__(self, model: Model | None = None, **settings: Any) -> None:
        self.scripts = RunScripts(otherwise=RuleModel())
        super().__init__(self.scripts if model is None else model, **settings)

    def script(
        self,
        *turns: ScriptTurn,
        prompt: PromptFilter | None = None,
        tools: Sequence[str] | None = None,
        times: int | None = 1,
        usage: Usage | None = None,
    ) -> None:
        """Write down what the model says in the turns of one run; see `RunScripts.add` for the arguments.

        Raises:
            ValueError: There is no turn, or `times` is below 1.
        """
        self.scripts.add(*turns, prompt=prompt, tools=tools, times=times, usage=usage)

    def script_problems(self) -> list[str]:
        """Return what did not go as written, a sentence each."""
        return self.scripts.problems(self._unfinished())

    def assert_scripts_used(self) -> None:
        """Check that every script was played to its end, and that there was one for every run.

        Raises:
            AssertionError: It was not so; the text says what was different.
        """
        self.scripts.assert_used_up(self._unfinished())

    def _unfinished(self) -> list[str]:
        return [run.id for run in self.runs if not run.is_terminal]
