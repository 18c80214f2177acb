"""The command line in a real pseudo-terminal: what is drawn, what keys do, what is left at the server.

More of this is in `tests/places/test_terminal.py`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from mantyx_sync.local import ModelRequest, Pause, ToolUse
from tests.waiting import wait_until

from .cli_calls import Stop, serving
from .terminal import program

if sys.platform == "win32":
    pytest.skip("needs a pseudo-terminal", allow_module_level=True)

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(
        "def get_order(order_id: str) -> str:\n    'Look up an order.'\n    print('looking up')\n    return 'shipped'\n"
    )
    return tmp_path


def test_a_run_is_drawn_and_leaves_its_answer(shop: Path) -> None:
    seen, go = threading.Event(), threading.Event()
    answer = "Your order 注文は発送されました, and \x1b]0;owned\x07it will be there tomorrow, we think."
    turns = [["Let me look.", ToolUse("get_order", {"order_id": "17"})], [Pause(go, seen), answer]]
    with serving(turns) as server:
        arguments = ["run", "Where?", "--tool", "shop:get_order"]
        with program(arguments, columns=40, lines=12, env=server.environment(), cwd=shop) as run:
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


def test_ctrl_c_cancels_the_run_within_a_second(shop: Path) -> None:
    arguments = ["run", "Where?", "--tool", "shop:get_order"]
    with serving(Stop()) as server, program(arguments, env=server.environment(), cwd=shop) as run:
        run.until_shown("It was")
        pressed = time.monotonic()
        run.type("\x03")
        assert run.ends() == 130
        assert time.monotonic() - pressed < 2.0, "a second, and what a busy machine adds"
        wait_until(lambda: server.runs[0].status == "cancelled")
        assert run.display.lines[-1].startswith(f"interrupted: run {server.runs[0].id}")
        assert "Traceback" not in run.raw.decode()
        assert run.display.column == 0


def test_a_reader_that_goes_away_cancels_the_run_quietly() -> None:
    stop = Stop()
    with serving(stop) as server:
        with program(["run", "Where?"], env=server.environment(), stdout=subprocess.PIPE) as run:
            out = run.process.stdout
            assert out is not None
            run.until_shown("writing")
            assert os.read(out.fileno(), 100) == b"It was "
            out.close()
            assert run.ends() == 141
            assert run.display.lines == [], "nothing is said"
        wait_until(lambda: server.runs[0].status == "cancelled")


def test_a_conversation_with_an_answer_that_is_stopped() -> None:
    stop = Stop()

    def script(request: ModelRequest) -> Any:
        return stop(request) if request.prompt == "Where?" else [[f"You said {request.prompt!r}."]]

    with serving(script) as server:
        with program(["chat"], env=server.environment()) as chat:
            chat.until_asked()
            chat.type("Where?\r")
            chat.until_shown("It was")
            chat.type("\x03")
            chat.until_asked()
            assert any("stopped" in line for line in chat.display.lines)
            chat.type("One\nTwo\r")  # pasted: faster than anybody types
            chat.until_shown("Two'.")
            chat.type("/sessoin\r")
            chat.until_shown("did you mean /session?")
            chat.until_asked()
            chat.type("\x04")
            assert chat.ends() == 0
            [session] = server.sessions
            assert f"go on with: mantyx-sync chat --session {session.id}" in "".join(chat.display.lines)
        first, *_ = server.runs
        wait_until(lambda: first.status == "cancelled")
        assert [message["content"] for message in session.messages] == ["One\nTwo", "You said 'One\\nTwo'."]
        assert session.status == "active"
