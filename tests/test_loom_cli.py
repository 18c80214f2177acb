"""`mantyx-sync loom …`: what it prints, what it asks, how it exits, and how a worker is stopped."""

from __future__ import annotations

import contextlib
import io
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Iterator

import pytest

from mantyx_sync.cli import loom as commands
from mantyx_sync.cli import main
from mantyx_sync.loom import LoomClient

from .loom_double.caller import Caller
from .loom_double.pace import quick  # noqa: F401 - a fixture

ROOT = Path(__file__).parent.parent
PROXY = f"{sys.executable} -m tests.loom_double.proxy"
DEADLINE_S = 30.0


@pytest.fixture
def caller(monkeypatch: pytest.MonkeyPatch) -> Caller:
    """Have the commands talk to a service in this process."""
    made = Caller()
    monkeypatch.setattr(commands, "_connect", lambda _options: LoomClient(made, entry="/mcp", timeout=5.0))
    return made


class Terminal:
    """What a command printed and returned."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys = capsys
        self._monkeypatch = monkeypatch

    def __call__(self, *arguments: str, said: str = "") -> int:
        self._monkeypatch.setattr(sys, "stdin", io.StringIO(said))
        code = main(["loom", *arguments])
        self.out, self.err = self._capsys.readouterr()
        return code


@pytest.fixture
def loom(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Terminal:
    return Terminal(capsys, monkeypatch)


def run_id(caller: Caller, name: str) -> str:
    run = LoomClient(caller, entry="/mcp").run(name, "x").run
    assert run is not None
    return run.run_id


# ------------------------------------------------------------------------------------------- what it prints


def test_looms_are_listed_with_what_can_be_done_with_them(loom: Terminal, caller: Caller) -> None:
    assert loom("list") == 0
    assert "code\tready" in loom.out.splitlines()
    assert "broken\tnot available (load)" in loom.out.splitlines()


def test_a_run_is_followed_to_its_end(loom: Terminal, caller: Caller) -> None:
    assert loom("run", "code", "Ship 2.4") == 0
    assert loom.out == "RUN-1\tcode\tcompleted\tmain/ship\n"
    assert caller.effects("run") == ["Ship 2.4"]


def test_json_is_one_object_a_line(loom: Terminal, caller: Caller) -> None:
    run_id(caller, "code")
    run_id(caller, "many")
    assert loom("runs", "--json") == 0
    assert [json.loads(line)["loomName"] for line in loom.out.splitlines()] == ["code", "many"]
    assert loom("runs", "many") == 0
    assert loom.out.startswith("RUN-2\tmany\tcompleted")


@pytest.mark.parametrize(("given", "sent"), [(["7"], "7"), (["--json-input", '{"n": 7}'], {"n": 7})])
def test_the_input_is_a_text_or_json(loom: Terminal, caller: Caller, given: list[str], sent: Any) -> None:
    assert loom("run", "code", "--no-wait", *given) == 0
    assert caller.effects("run") == [sent]


def test_artifacts_are_listed_over_all_pages_and_shown_one_by_one(loom: Terminal, caller: Caller) -> None:
    run_id(caller, "many")
    assert loom("artifacts", "--loom", "many") == 0
    assert len(loom.out.splitlines()) == 7
    assert loom("artifacts", "ART-many-part3") == 0
    assert loom.out == "3\n"
    assert loom("artifacts", "ART-many-part3", "--json") == 0
    assert json.loads(loom.out)["revision"] == 1


def test_a_run_is_paused_resumed_and_cancelled(loom: Terminal, caller: Caller) -> None:
    run = run_id(caller, "gated")
    assert loom("pause", run) == 0
    caller.engine.gate.set()
    deadline = time.monotonic() + 10
    while caller.engine._runs[run].status != "paused":
        assert time.monotonic() < deadline
    assert loom("resume", run) == 0
    assert "completed" in loom.out
    other = run_id(caller, "ask")
    assert loom("cancel", other) == 0
    assert loom.out == f"{other}\task\tfailed\tmain/ask\tRUN_STOPPED\n"


def test_runs_of_an_earlier_service_are_marked(loom: Terminal, caller: Caller) -> None:
    run_id(caller, "ask")
    caller.restart()
    assert loom("runs") == 0
    assert loom.out == "RUN-1\task\tfailed\tmain/ask\tRUN_INTERRUPTED\thistorical\n"


# ------------------------------------------------------------------------------------------- what it asks


def test_questions_are_answered_by_number_by_text_or_not_at_all(loom: Terminal, caller: Caller) -> None:
    assert loom("run", "ask", "x", said="\n2\n\n") == 0
    assert "1) Monday" in loom.err
    assert [item.get("answer") for item in caller.effects("answer")[0]] == ["Tuesday", None]
    assert loom("run", "ask", "x", said="some day\nno hurry\n") == 0
    assert [item["answer"] for item in caller.effects("answer")[1]] == ["some day", "no hurry"]


def test_a_confirmation_that_is_refused_asks_what_is_to_change(loom: Terminal, caller: Caller) -> None:
    assert loom("run", "confirm", "x", said="perhaps\nn\nsmaller\ny\n") == 0
    assert caller.effects("answer") == [{"isConfirmed": False, "feedback": "smaller"}, {"isConfirmed": True}]


def test_the_end_of_the_input_dismisses_and_the_run_waits(loom: Terminal, caller: Caller) -> None:
    assert loom("run", "ask", "x", "--timeout", "0.5") == 1
    assert "not answered: run RUN-1 waits; `mantyx-sync loom answer RUN-1` asks again" in loom.err
    assert "run RUN-1 goes on" in loom.err
    assert caller.count("answer_ask") == 0
    assert loom("answer", "RUN-1", said="1\n\n") == 0
    assert loom.out.splitlines()[-1] == "RUN-1\task\tcompleted\tmain/after"


def test_what_a_workflow_says_cannot_command_the_terminal(loom: Terminal, caller: Caller) -> None:
    run = run_id(caller, "ask")
    question = dict(caller.engine._runs[run].action["request"][0], question="\x1b[2JWhich\x07 day?")  # type: ignore[index]
    caller.engine._runs[run].action["request"][0] = question  # type: ignore[index]
    loom("answer", run, "--timeout", "0.3")
    assert "[2JWhich day?" in loom.err
    assert "\x1b" not in loom.err


# ------------------------------------------------------------------------------------------- how it exits


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["run", "nothing", "x"], 1, "rejected, nothing was applied: NOT_FOUND: no loom nothing"),
        (["cancel", "RUN-9"], 1, "NOT_FOUND"),
        (["artifacts", "ART-9"], 2, "there is no artifact 'ART-9'"),
        (["run", "code", "--json-input", "{"], 2, "the input is not JSON"),
        (["worker", "no_such_module_here:x"], 2, "there is no module 'no_such_module_here'"),
        (["worker", "json:__name__"], 2, "must be a function of a task"),
        (["resume", "RUN-1"], 1, "not paused at this revision"),
    ],
)
def test_what_goes_wrong_is_a_sentence_and_an_exit_code(
    loom: Terminal, caller: Caller, arguments: list[str], code: int, sentence: str
) -> None:
    run_id(caller, "ask")
    assert loom(*arguments) == code
    assert sentence in loom.err
    assert "Traceback" not in loom.err


def test_a_run_that_fails_is_an_exit_code(loom: Terminal, caller: Caller) -> None:
    run = run_id(caller, "ask")
    LoomClient(caller, entry="/mcp").cancel_run(run)
    assert loom("answer", run) == 1
    assert "RUN_STOPPED" in loom.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["list", "--url", "http://127.0.0.1:1/mcp"], "--url needs the service's token in LOOM_TOKEN"),
        (["list", "--proxy", " "], "--proxy is empty"),
        (["list", "--proxy", "a 'b"], "--proxy is no command line"),
        (["list", "--project", "/"], "not a Loom project"),
        (["list", "--proxy", "/no/such/program"], "/no/such/program"),
    ],
)
def test_a_way_that_leads_nowhere_is_told(
    loom: Terminal, monkeypatch: pytest.MonkeyPatch, arguments: list[str], sentence: str
) -> None:
    monkeypatch.delenv("LOOM_TOKEN", raising=False)
    assert loom(*arguments) in (1, 2)
    assert sentence in loom.err
    assert "Traceback" not in loom.err


def test_a_token_cannot_be_given_where_others_see_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["loom", "list", "--url", "http://127.0.0.1:1/mcp", "--token", "x"])
    assert caught.value.code == 2
    assert "--token" in capsys.readouterr().err


def test_a_duration_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["loom", "worker", "m:e", "--grace", "-1"])
    assert "must be from 0 to 86400 seconds" in capsys.readouterr().err


# ------------------------------------------------------------------------------------------- processes


@contextlib.contextmanager
def process(*arguments: str, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-X", "dev", "-W", "error", "-m", "mantyx_sync", "loom", *arguments]
    env = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{options.pop('path', ROOT)}"}
    with subprocess.Popen(command, cwd=ROOT, env=env, **options) as started:
        try:
            yield started
        finally:
            if started.poll() is None:
                started.kill()


def read_until(handle: int, words: bytes) -> bytes:
    heard = b""
    deadline = time.monotonic() + DEADLINE_S
    while words not in heard:
        ready, _, _ = select.select([handle], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, heard
        piece = os.read(handle, 4096)
        assert piece, heard
        heard += piece
    return heard


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_a_dialogue_in_a_terminal() -> None:
    import pty

    ours, theirs = pty.openpty()
    try:
        with process("run", "ask", "x", "--proxy", PROXY, stdin=theirs, stdout=theirs, stderr=theirs) as started:
            read_until(ours, b"Number or answer: ")
            os.write(ours, b"2\n")
            read_until(ours, b"Answer (empty: skip): ")
            os.write(ours, b"nothing\n")
            read_until(ours, b"completed")
            assert started.wait(DEADLINE_S) == 0
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_worker_quietly(tmp_path: Path, number: int) -> None:
    (tmp_path / "doing.py").write_text("def execute(task):\n    return None\n")
    arguments = ["worker", "doing:execute", "--proxy", PROXY, "--store", str(tmp_path / "store")]
    with process(*arguments, stderr=subprocess.PIPE, path=tmp_path) as started:
        assert started.stderr is not None
        read_until(started.stderr.fileno(), b"looking for tasks\n")
        started.send_signal(number)
        assert started.wait(DEADLINE_S) == 0
        assert started.stderr.read() == b""


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
def test_ctrl_c_leaves_a_run_to_itself_and_says_how_to_come_back() -> None:
    arguments = ["run", "gated", "x", "--proxy", PROXY]
    with process(*arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as started:
        assert started.stdout is not None
        assert started.stderr is not None
        read_until(started.stdout.fileno(), b"running")
        started.send_signal(signal.SIGINT)
        assert started.wait(DEADLINE_S) == 130
        said = started.stderr.read().decode()
    assert "run RUN-1 goes on" in said
    assert "Traceback" not in said
