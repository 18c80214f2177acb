"""The command line in a real pseudo-terminal, in more ways than the quick suite has time for."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from mantyx_sync import MantyxClient
from mantyx_sync.local import LocalServer, ModelRequest, Pause, RuleModel, ScriptedModel, ToolUse

from ..cli_calls import Stop, serving
from ..terminal import ROOT, program
from ..waiting import wait_until

if sys.platform == "win32":
    pytest.skip("needs a pseudo-terminal", allow_module_level=True)

pytestmark = pytest.mark.usefixtures("no_leaks")

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(
        "import time\n"
        "def get_order(order_id: str) -> str:\n    'Look up an order.'\n    print('looking up')\n    return 'shipped'\n"
        "def stuck() -> str:\n    'Take for ever.'\n    print('stuck')\n    time.sleep(600)\n    return 'x'\n"
    )
    return tmp_path


@pytest.mark.parametrize(
    ("env", "redraws"), [({"NO_COLOR": "1"}, True), ({"TERM": "dumb"}, False)], ids=["no colour", "dumb"]
)
def test_colours_and_redrawing_can_be_declined(shop: Path, env: dict[str, str], redraws: bool) -> None:
    with serving([[ToolUse("get_order", {"order_id": "17"})], ["It was shipped."]]) as server:
        arguments = ["run", "Where?", "--tool", "shop:get_order"]
        with program(arguments, env={**server.environment(), **env}, cwd=shop) as run:
            assert run.ends() == 0
        text = run.raw.decode()
        assert not _COLOUR.search(text)
        assert ("\x1b" in text) is redraws
        assert "It was shipped." in run.display.lines


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_the_end_of_the_process_or_of_the_terminal_cancels_the_run(number: int, code: int) -> None:
    stop = Stop()
    with serving(stop) as server, program(["run", "Where?"], env=server.environment()) as run:
        run.until_shown("It was")
        if number == signal.SIGHUP:
            run.hang_up()
        else:
            run.process.send_signal(number)
        assert run.ends() == code
        wait_until(lambda: server.runs[0].status == "cancelled")


def test_into_a_pipe_goes_no_escape_while_the_terminal_shows_progress(shop: Path) -> None:
    with serving([["Let me look.", ToolUse("get_order", {"order_id": "17"})], ["It was shipped."]]) as server:
        arguments = ["run", "Where?", "--tool", "shop:get_order", "--json"]
        with program(arguments, env=server.environment(), cwd=shop, stdout=subprocess.PIPE) as run:
            assert run.ends() == 0
            assert run.process.stdout is not None
            with run.process.stdout as out:
                found = json.loads(out.read())
        assert found["text"] == "It was shipped."
        assert b"\x1b[J" in run.raw
        assert b"shipped." not in run.raw


def test_ctrl_c_leaves_an_attached_run_to_itself() -> None:
    stop = Stop()
    with serving(stop) as server, MantyxClient(**server.client_settings()) as client:
        run_id = client.request("POST", "/agent-runs", json={"systemPrompt": "x", "prompt": "Where?"})["runId"]
        with program(["attach", run_id], env=server.environment()) as attached:
            attached.until_shown("It was")
            attached.type("\x03")
            assert attached.ends() == 130
            assert f"run {run_id} goes on" in "".join(attached.display.lines)
        assert server.run(run_id).status == "running"


def test_a_reader_of_nothing_yet_that_goes_away_cancels_the_run(tmp_path: Path) -> None:
    stop = Stop()
    with serving(stop) as server:
        arguments = ["run", "Where?", "--no-stream"]
        with program(arguments, env=server.environment(), stdout=subprocess.PIPE) as run:
            assert run.process.stdout is not None
            run.until_shown("writing")
            run.process.stdout.close()
            assert run.ends() == 141
            assert run.display.lines == [], "nothing is said"
        wait_until(lambda: server.runs[0].status == "cancelled")


def test_ctrl_c_does_not_wait_for_a_tool_that_is_stuck(shop: Path) -> None:
    with serving([[ToolUse("stuck", {})], ["Done."]]) as server:
        with program(["run", "Well?", "--tool", "shop:stuck"], env=server.environment(), cwd=shop) as run:
            run.until(lambda: "stuck" in run.display.lines)
            pressed = time.monotonic()
            run.type("\x03")
            assert run.ends() == 130
            assert time.monotonic() - pressed < 2.0
        wait_until(lambda: server.runs[0].status == "cancelled")


def test_ctrl_c_while_a_run_is_being_created_leaves_none_behind() -> None:
    from mantyx_sync.local.faults import hold_answer

    answered = threading.Event()
    with serving(Stop()) as server:
        fault = server.faults.add(hold_answer(answered), route="create")
        with program(["run", "Where?"], env=server.environment()) as run:
            assert fault.struck.wait(20)
            wait_until(lambda: bool(server.runs))
            run.type("\x03")
            threading.Timer(0.2, answered.set).start()
            assert run.ends() == 130
        wait_until(lambda: server.runs[0].status == "cancelled")


@pytest.mark.parametrize("presses", ["\x03", "\x03\x03", "\x03\x03\x03"], ids=len)
def test_ctrl_c_leaves_no_run_whenever_and_however_often_it_is_pressed(shop: Path, presses: str) -> None:
    for moment in ("1 s", "Let me", "stuck", "waiting for"):
        script = [["Let me look.", ToolUse("stuck", {})], ["Done."]]
        arguments = ["run", "Well?", "--tool", "shop:stuck"]
        with serving(script) as server, program(arguments, env=server.environment(), cwd=shop) as run:
            run.until_shown(moment)
            run.type(presses)
            assert run.ends() == 130
            text = run.raw.decode()
            assert "Traceback" not in text
            assert "may still be going" not in text
            assert not re.search("[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]", "".join(run.display.lines)), "the block is gone"
            assert run.display.column == 0
            wait_until(lambda server=server: server.runs[0].status == "cancelled", "the run goes on")  # type: ignore[misc]


def test_ctrl_c_while_an_mcp_server_does_not_answer_ends_both(tmp_path: Path) -> None:
    script = tmp_path / "server.py"
    script.write_text(
        f"import os, sys, time\nopen({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    )
    with serving(Stop()) as server:
        command = f"'{sys.executable}' '{script}'"
        with program(["run", "Where?", "--mcp", command], env=server.environment()) as run:
            pid_file = tmp_path / "pid"
            run.until(lambda: pid_file.exists() and bool(pid_file.read_text()))
            pressed = time.monotonic()
            run.type("\x03")
            assert run.ends() == 130
            assert time.monotonic() - pressed < 5.0
            assert "Traceback" not in run.raw.decode()
        pid = int(pid_file.read_text())
        wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the server's program goes on")
        assert not server.runs


def test_a_run_that_is_stopped_and_taken_up_again_goes_on() -> None:
    go, reached = threading.Event(), threading.Event()
    script = [["One ", Pause(go, reached), "two."]]
    with serving(script) as server, program(["run", "Well?"], env=server.environment()) as run:
        run.until(reached.is_set)
        run.process.send_signal(signal.SIGSTOP)
        stat = Path(f"/proc/{run.process.pid}/stat")
        wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", "it is not stopped")
        run.process.send_signal(signal.SIGCONT)
        go.set()
        assert run.ends() == 0
        assert "two." in "".join(run.display.lines)


def test_ctrl_c_ends_the_programs_of_mcp_servers(tmp_path: Path) -> None:
    """A server's process is in a group of its own: the key does not reach it, we end it."""
    script = tmp_path / "server.py"
    script.write_text(
        f"import os, runpy, sys\nopen({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n"
        f"sys.argv = ['mcp_tools.py', 'serve']\nrunpy.run_path({str(ROOT / 'examples' / 'mcp_tools.py')!r}, "
        "run_name='__main__')\n"
    )
    with serving(Stop()) as server:
        command = f"'{sys.executable}' '{script}'"
        with program(["run", "Where?", "--mcp", command], env=server.environment()) as run:
            run.until_shown("It was")
            run.type("\x03")
            assert run.ends() == 130
        pid = int((tmp_path / "pid").read_text())
        wait_until(lambda: not Path(f"/proc/{pid}").exists())


def test_a_flood_of_text_is_drawn_whole_and_in_time() -> None:
    words = [f"word{number} " if number % 9 else f"word{number}\n" for number in range(20_000)]
    with serving([words]) as server, program(["run", "Well?"], columns=60, env=server.environment()) as run:
        begun = time.monotonic()
        assert run.ends() == 0
        took = time.monotonic() - begun
    assert "".join("".join(words).split()) in "".join("".join(run.display.lines).split())
    assert took < 15.0


def read_anew(run: Any) -> None:
    """Forget what was written, and read until another number of seconds is shown."""

    def seconds_shown() -> list[str]:
        return re.findall(r"[\d.]+(?= s)", " ".join(run.display.lines))

    before = seconds_shown()
    run.raw = b""
    run.until(lambda: seconds_shown() != before)


def test_the_window_can_be_made_narrower_meanwhile() -> None:
    import fcntl
    import struct
    import termios

    go, reached = threading.Event(), threading.Event()
    tools = [ToolUse("a_tool_with_a_name_that_is_long", {"with": "arguments that are longer"})]
    script = [["One.", *tools], [Pause(go, reached), "Two."]]
    with serving(script) as server, program(["run", "Well?"], columns=100, env=server.environment()) as run:
        run.until(reached.is_set)
        fcntl.ioctl(run._ours, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 30, 0, 0))
        for _ in range(3):  # what was on its way when the window changed is as wide as it was: the last one counts
            read_anew(run)
        go.set()
        assert run.ends() == 0
        lines = re.sub(r"\x1b(\[[0-9;]*[A-Za-z]|[78D])", "", run.raw.decode()).splitlines()
        assert any(line.endswith("…") for line in lines)
        wide = [line for line in lines if len(line) > 30]
        assert all(line.startswith("  ") for line in wide), "but for the reason of a failure, which has two lines"


def test_a_conversation_on_the_embedded_server(shop: Path) -> None:
    with program(["chat", "--local", "--tool", "shop:get_order"], columns=100, cwd=shop) as chat:
        chat.until_asked()
        chat.type("/tools\r")
        chat.until_shown("get_order: Look up an order.")
        chat.type("Get order 17\r")
        chat.until_shown("says: shipped")
        chat.type('"""\rOne\rTwo\r"""\r')
        chat.until_shown("None of mine")
        chat.type("/session\r")
        chat.until_shown("4 messages")
        chat.type(f"/save {shop / 'chat.html'}\r")
        chat.until_shown("saved as")
        chat.type("/new\r")
        chat.until_shown("the one before")
        chat.type("/quit\r")
        assert chat.ends() == 0
    assert "One\nTwo" in (shop / "chat.html").read_text(encoding="utf-8")


def test_a_chat_in_which_nothing_was_said_leaves_no_session_open() -> None:
    with LocalServer(RuleModel()) as server:
        for keys in ("\x04", "\x03", "/quit\r"):
            with program(["chat"], env=server.environment()) as chat:
                chat.until_asked()
                chat.type(keys)
                assert chat.ends() == 0
                assert "go on with" not in "".join(chat.display.lines)
        assert [session.status for session in server.sessions] == ["ended"] * 3


def test_a_session_is_taken_up_with_what_was_said() -> None:
    def script(request: ModelRequest) -> Any:
        return [[f"You said {request.prompt}."]]

    with LocalServer(ScriptedModel(script)) as server, MantyxClient(**server.client_settings()) as client:
        session = client.create_session(system_prompt="x")
        for number in range(5):
            session.send(f"message {number}")
        with program(["chat", "--session", session.id], env=server.environment()) as chat:
            chat.until_asked()
            lines = chat.display.lines
            assert "… 4 earlier messages" in lines
            assert "> message 4" in lines
            assert "You said message 4." in lines
            assert "> message 1" not in lines
            chat.type("\x1b[A\r")  # the arrow key brings the last message back
            chat.until(lambda: len(server.session(session.id).messages) == 12)
            chat.until_asked()
            chat.type("\x04")
            assert chat.ends() == 0
        assert server.session(session.id).messages[-2]["content"] == "message 4"
