"""The command line in a real pseudo-terminal: what is redrawn, what keys and signals do, what is left at the server."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest

from mantyx_sync import MantyxClient
from mantyx_sync.local import LocalServer, ModelRequest, Pause, ScriptedModel, ToolUse

from .terminal import program

if sys.platform == "win32":
    pytest.skip("needs a pseudo-terminal", allow_module_level=True)

pytestmark = pytest.mark.usefixtures("no_leaks")

ROOT = Path(__file__).parent.parent
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")

Serve = Callable[..., LocalServer]


@pytest.fixture
def serve() -> Iterator[Serve]:
    started: list[LocalServer] = []

    def start(script: Any) -> LocalServer:
        started.append(LocalServer(ScriptedModel(script)).start())
        return started[-1]

    yield start
    for server in started:
        server.stop()


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(
        "def get_order(order_id: str) -> str:\n    'Look up an order.'\n    print('looking up')\n    return 'shipped'\n"
    )
    return tmp_path


def settings(server: LocalServer) -> dict[str, str]:
    found = server.client_settings()
    return {
        "MANTYX_BASE_URL": found["base_url"],
        "MANTYX_API_KEY": found["api_key"],
        "MANTYX_WORKSPACE_SLUG": found["workspace_slug"],
    }


def wait_for(is_so: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(1000):
        if is_so():
            return
        pause.wait(0.01)
    raise AssertionError("it did not come about")


class Stop:
    """A script that writes a word and waits: `reached` is set then, and `go` lets it go on."""

    def __init__(self) -> None:
        self.go, self.reached = threading.Event(), threading.Event()

    def __call__(self, _request: ModelRequest) -> Any:
        return [["It was ", Pause(self.go, self.reached), "shipped."]]


@pytest.mark.parametrize("columns", [40, 100])
def test_a_run_is_drawn_and_leaves_its_answer(serve: Serve, shop: Path, columns: int) -> None:
    seen, go = threading.Event(), threading.Event()
    answer = "Your order 注文は発送されました, and \x1b]0;owned\x07it will be there tomorrow, we think."
    turns = [["Let me look.", ToolUse("get_order", {"order_id": "17"})], [Pause(go, seen), answer]]
    server = serve(turns)
    arguments = ["run", "Where?", "--tool", "shop:get_order"]
    with program(arguments, columns=columns, lines=12, env=settings(server), cwd=shop) as run:
        run.until_shown("waiting for the model")
        go.set()
        assert run.ends() == 0
        lines = run.display.lines
    plain = "".join(lines).replace(" ", "")
    assert answer.replace(" ", "").replace("\x1b", "").replace("\x07", "") in plain
    assert {"Let me look.", "looking up"} <= set(lines[:3]), "the tool may be quicker than we are"
    assert any(line.startswith('✓ get_order(order_id="17")') for line in lines[1:4])
    assert "2 turns" in lines[-1]
    assert not re.search("waiting|writing|[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]", plain), "the block is gone"
    assert run.display.column == 0
    assert b"\x1b[32m" in run.raw
    assert b"\x1b]" not in run.raw


@pytest.mark.parametrize(
    ("env", "redraws"), [({"NO_COLOR": "1"}, True), ({"TERM": "dumb"}, False)], ids=["no colour", "dumb"]
)
def test_colours_and_redrawing_can_be_declined(serve: Serve, shop: Path, env: dict[str, str], redraws: bool) -> None:
    server = serve([[ToolUse("get_order", {"order_id": "17"})], ["It was shipped."]])
    arguments = ["run", "Where?", "--tool", "shop:get_order"]
    with program(arguments, env={**settings(server), **env}, cwd=shop) as run:
        assert run.ends() == 0
    text = run.raw.decode()
    assert not _COLOUR.search(text)
    assert ("\x1b" in text) is redraws
    assert "It was shipped." in run.display.lines


def test_ctrl_c_cancels_the_run_within_a_second(serve: Serve, shop: Path) -> None:
    stop = Stop()
    server = serve(stop)
    with program(["run", "Where?", "--tool", "shop:get_order"], env=settings(server), cwd=shop) as run:
        run.until_shown("It was")
        pressed = time.monotonic()
        run.type("\x03")
        assert run.ends() == 130
        assert time.monotonic() - pressed < 2.0, "a second, and what a busy machine adds"
        wait_for(lambda: server.runs[0].status == "cancelled")
        assert run.display.lines[-1].startswith(f"interrupted: run {server.runs[0].id}")
        assert "Traceback" not in run.raw.decode()
        assert run.display.column == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_the_end_of_the_process_or_of_the_terminal_cancels_the_run(serve: Serve, number: int, code: int) -> None:
    stop = Stop()
    server = serve(stop)
    with program(["run", "Where?"], env=settings(server)) as run:
        run.until_shown("It was")
        if number == signal.SIGHUP:
            run.hang_up()
        else:
            run.process.send_signal(number)
        assert run.ends() == code
        wait_for(lambda: server.runs[0].status == "cancelled")


@pytest.mark.parametrize("is_held", [False, True], ids=["streamed", "held"])
def test_a_reader_that_goes_away_cancels_the_run_quietly(serve: Serve, is_held: bool) -> None:
    stop = Stop()
    server = serve(stop)
    arguments = ["run", "Where?", *(["--no-stream"] if is_held else [])]
    with program(arguments, env=settings(server), stdout=subprocess.PIPE) as run:
        out = run.process.stdout
        assert out is not None
        run.until_shown("writing")
        assert is_held or os.read(out.fileno(), 100) == b"It was "
        out.close()
        if not is_held:
            stop.go.set()
        assert run.ends() == 141
        assert run.display.lines == [], "nothing is said"
        if is_held:
            wait_for(lambda: server.runs[0].status == "cancelled")


def test_into_a_pipe_goes_no_escape_while_the_terminal_shows_progress(serve: Serve, shop: Path) -> None:
    server = serve([["Let me look.", ToolUse("get_order", {"order_id": "17"})], ["It was shipped."]])
    arguments = ["run", "Where?", "--tool", "shop:get_order", "--json"]
    with program(arguments, env=settings(server), cwd=shop, stdout=subprocess.PIPE) as run:
        assert run.ends() == 0
        assert run.process.stdout is not None
        with run.process.stdout as out:
            found = json.loads(out.read())
    assert found["text"] == "It was shipped."
    assert b"\x1b[J" in run.raw
    assert b"shipped." not in run.raw


def test_ctrl_c_leaves_an_attached_run_to_itself(serve: Serve) -> None:
    stop = Stop()
    server = serve(stop)
    with MantyxClient(**server.client_settings()) as client:
        run_id = client.request("POST", "/agent-runs", json={"systemPrompt": "x", "prompt": "Where?"})["runId"]
        with program(["attach", run_id], env=settings(server)) as attached:
            attached.until_shown("It was")
            attached.type("\x03")
            assert attached.ends() == 130
            assert f"run {run_id} goes on" in "".join(attached.display.lines)
        assert server.run(run_id).status == "running"


def test_a_conversation_with_an_answer_that_is_stopped(serve: Serve) -> None:
    stop = Stop()

    def script(request: ModelRequest) -> Any:
        return stop(request) if request.prompt == "Where?" else [[f"You said {request.prompt!r}."]]

    server = serve(script)
    with program(["chat"], env=settings(server)) as chat:
        chat.until_shown("/help says")
        chat.type("Where?\r")
        chat.until_shown("It was")
        chat.type("\x03")
        chat.until_shown("stopped")
        chat.type("One\nTwo\r")
        chat.until_shown("Two'.")
        chat.type("/sessoin\r")
        chat.until_shown("did you mean /session?")
        chat.type("\x04")
        assert chat.ends() == 0
        [session] = server.sessions
        assert f"go on with: mantyx-sync chat --session {session.id}" in "".join(chat.display.lines)
    first, *_ = server.runs
    wait_for(lambda: first.status == "cancelled")
    assert [message["content"] for message in session.messages] == ["One\nTwo", "You said 'One\\nTwo'."]
    assert session.status == "active"
