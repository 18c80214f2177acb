"""Our A2A app under WSGI servers of others, on top of an embedded server in this process, for the tests that ask it."""

from __future__ import annotations

import contextlib
import glob
import json
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterator

from mantyx_sync.local import Failure, LocalServer, Pause, ScriptedModel, ToolUse
from tests.processes import environment

from .peers import HERE, Program, program, python_of

__all__ = ["LINES", "ServedApp", "serving"]

LINES = "a\r\nb\rc\u2028d\u2029e\x85f\n\n"


class Script:
    """What the agent says, by what it is asked."""

    def __init__(self) -> None:
        self._gates: dict[str, threading.Event] = {}

    def let_go(self, prompt: str) -> None:
        """Let what is held by a prompt go on, now or when it gets there."""
        self._gate(prompt).set()

    def _gate(self, prompt: str) -> threading.Event:
        return self._gates.setdefault(prompt, threading.Event())

    def turns(self, request: Any) -> Any:
        prompt = request.prompt
        if prompt.startswith("hold"):
            return [["One ", Pause(self._gate(prompt)), "two."]]
        if prompt == "fail":
            return [[Failure("secret of 10.0.0.7", error_class="rate_limit")]]
        if prompt == "tool":
            return [["Let me look. ", ToolUse("look")], ["I have ", "seen."]]
        if prompt == "ask":
            asked = ToolUse("ask_caller", {"question": "Which one?"})
            return [[asked], [lambda request: f"So it is {request.messages[-1]['content']}."]]
        if prompt == "lines":
            return [[LINES]]
        if prompt == "files":
            return [[json.dumps([file["filename"] for file in request.messages[-1].get("attachments", [])])]]
        said = sum(message["role"] == "user" for message in request.messages)
        return [[f"Heard {said}: ", prompt]]


@dataclass
class ServedApp:
    """An app that callers can come to, and what is behind it."""

    url: str
    platform: LocalServer
    script: Script
    program: Program


@contextlib.contextmanager
def serving(kind: str) -> Iterator[ServedApp]:
    """Serve the app: `waitress`, `gunicorn`, beside `flask` or `django`, or by its `own` server."""
    folder = Path(python_of("a2a-new")).parent.parent
    (packages,) = glob.glob(f"{folder}/lib/python3*/site-packages")
    script = Script()
    with LocalServer(ScriptedModel(script.turns)) as platform:
        command = [sys.executable, str(HERE / "servers" / "a2a_app.py"), kind, packages]
        with program(command, environment(platform.client_settings())) as running:
            yield ServedApp(running.line("url "), platform, script, running)
