"""`mantyx-sync serve`, `record` and `replay`: what they print, what they run, and how they end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mantyx_sync.cli import main, serving
from mantyx_sync.cli.exits import Stopped
from mantyx_sync.local import LocalServer, ModelRequest, RecordingServer, RunScripts, ScriptedModel, TurnEnd, Usage
from mantyx_sync.local.recording import read_recording
from mantyx_sync.local.script_files import model_of_file, script_of_json

from .plain_http import DEADLINE_S

pytestmark = pytest.mark.usefixtures("no_leaks", "plain_environment")

ROOT = Path(__file__).parent.parent
PYTHON = [sys.executable, "-S"]
# A client in any language: it knows the variables and no more.
CLIENT = """
import http.client, json, os, sys
base = os.environ["MANTYX_BASE_URL"].rpartition("//")[2]
def ask(method, path, body=None):
    connection = http.client.HTTPConnection(base, timeout=20)
    headers = {"Authorization": "Bearer " + os.environ["MANTYX_API_KEY"], "Content-Type": "application/json"}
    path = "/api/v1/workspaces/" + os.environ["MANTYX_WORKSPACE_SLUG"] + path
    connection.request(method, path, body and json.dumps(body), headers)
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    return answer.status, data.decode()
def run(prompt):
    status, data = ask("POST", "/agent-runs", {"systemPrompt": "x", "prompt": prompt})
    if status != 202:
        sys.exit(f"{status} {data}")
    return ask("GET", "/agent-runs/" + json.loads(data)["runId"] + "/stream")[1]
"""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Any:
    """An account, as the environment names it."""
    with LocalServer(ScriptedModel([["Hello to you."]])) as running:
        monkeypatch.setenv("MANTYX_API_KEY", running.api_key)
        monkeypatch.setenv("MANTYX_WORKSPACE_SLUG", running.workspace_slug)
        monkeypatch.setenv("MANTYX_BASE_URL", running.url)
        yield running


def program(tmp_path: Path, code: str) -> list[str]:
    (tmp_path / "program.py").write_text(CLIENT + code)
    return [*PYTHON, str(tmp_path / "program.py")]


# ------------------------------------------------------------------------------------------------ serve


def test_a_program_runs_against_the_embedded_server_and_its_code_is_passed_on(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "turns.json").write_text('[["Hello ", {"text": "you"}, {"finish": "end_turn"}]]')
    code = 'print(json.loads(run("Hi").splitlines()[-2][6:])["data"]["text"], sys.argv[1:])\nsys.exit(7)'
    faults = ["--fault", "models:status=418", "--fault", "any:dropx0"]
    given = ["serve", "--script", str(tmp_path / "turns.json"), *faults, "--rate-limits", "--"]
    assert main([*given, *program(tmp_path, code), "--", "-x"]) == 7
    assert capfd.readouterr().out == "Hello you ['--', '-x']\n"


def test_a_tool_of_the_platform_is_answered_by_a_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "shop_for_serve.py").write_text(
        "def get_order(order_id):\n    return 'order ' + order_id + ' shipped'\n"
    )
    monkeypatch.chdir(tmp_path)
    turns = [[{"tool": "get_order", "args": {"order_id": "17"}}], "Done."]
    (tmp_path / "turns.json").write_text(json.dumps(turns))
    code = (
        'body = {"systemPrompt": "x", "prompt": "y", "tools": [{"kind": "mantyx", "id": "get_order"}]}\n'
        'print(ask("GET", "/agent-runs/" + json.loads(ask("POST", "/agent-runs", body)[1])["runId"] + "/stream")[1])'
    )
    given = ["serve", "--script", "turns.json", "--tool", "shop_for_serve:get_order", "--"]
    assert main([*given, *program(tmp_path, code)]) == 0
    assert "order 17 shipped" in capfd.readouterr().out


def test_a_gateway_is_served_as_well(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code = "import os; print([os.environ[name][:7] for name in sorted(os.environ) if name.startswith('SPACEFIX')])"
    assert main(["serve", "--gateway", "--", *PYTHON, "-c", code]) == 0
    keys = capfd.readouterr().out
    assert keys.count("http://") == 2
    assert keys.count("sfx_") == 2


class Server:
    """The command in a process of its own."""

    def __init__(self, *arguments: str, **env: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "mantyx_sync", *arguments],
            cwd=ROOT,
            env={**os.environ, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def variables(self) -> dict[str, str]:
        """Return what it says to a shell."""
        assert self.process.stdout is not None
        found = {}
        for _ in range(3):
            name, _, value = self.process.stdout.readline().rstrip("\n").partition("=")
            found[name.partition("export ")[2]] = value
        return found

    def ends(self, number: int) -> tuple[int, str]:
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode, errors


def test_it_serves_until_a_signal_comes(tmp_path: Path) -> None:
    served = Server("serve")
    found = served.variables()
    assert found["MANTYX_API_KEY"] == "mantyx_local"
    done = subprocess.run(
        program(tmp_path, 'print(ask("GET", "/models")[0])'),
        env={**os.environ, **found},
        capture_output=True,
        check=True,
    )
    assert done.stdout == b"200\n"
    code, errors = served.ends(signal.SIGTERM)
    assert (code, errors.count("\n")) == (0, 1), errors
    assert errors.startswith("# an embedded server at http://127.0.0.1:")


def test_a_signal_goes_to_the_program_which_decides_what_comes_of_it() -> None:
    code = "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(5))\n"
    served = Server("serve", "--", *PYTHON, "-c", code + "print('=', flush=True)\nsignal.pause()")
    assert served.process.stdout is not None
    served.process.stdout.readline()
    assert served.ends(signal.SIGTERM) == (5, "")


class Stubborn:
    """A program that only one thing ends."""

    def __init__(self, *signals: BaseException) -> None:
        self.said: list[str] = []
        self._signals = iter(signals)

    def wait(self) -> int:
        if "kill" in self.said:
            return -9
        raise next(self._signals)

    def terminate(self) -> None:
        self.said.append("terminate")

    def kill(self) -> None:
        self.said.append("kill")

    def send_signal(self, number: int) -> None:
        self.said.append(str(number))


@pytest.mark.parametrize(
    ("signals", "is_tty", "said"),
    [
        ([KeyboardInterrupt()] * 3, True, ["terminate", "kill"]),
        ([KeyboardInterrupt()] * 3, False, ["terminate", "terminate", "kill"]),
        ([Stopped(15), Stopped(1), Stopped(15)], True, ["15", "1", "kill"]),
        ([Stopped(15), KeyboardInterrupt(), KeyboardInterrupt()], True, ["15", "terminate", "kill"]),
    ],
    ids=["Ctrl-C", "Ctrl-C of a script", "SIGTERM", "both"],
)
def test_a_program_that_ignores_signals_is_ended_by_the_third(
    signals: list[BaseException], is_tty: bool, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: is_tty))
    program = Stubborn(*signals)
    assert serving._wait(program) == -9  # type: ignore[arg-type]
    assert program.said == said


# ------------------------------------------------------------------------------------- record and replay


def test_a_program_is_recorded_and_played(
    tmp_path: Path, server: LocalServer, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.jsonl"
    hello = program(tmp_path, "print(run('Hi, I am Jane Doe'))\nprint(os.environ['MANTYX_API_KEY'])\nsys.exit(3)")
    assert main(["record", str(path), "--secret", "Jane Doe", "--", *hello]) == 3
    recorded, errors = capfd.readouterr()
    assert errors == f"{path}: 2 requests recorded\n"
    assert server.api_key not in recorded
    assert "Jane Doe" not in path.read_text()
    server.stop()
    assert main(["replay", str(path), "--", *hello]) == 3
    played, errors = capfd.readouterr()
    assert played.replace("replayed", "recording") == recorded
    assert errors == ""
    other = program(tmp_path, "run('Hello')")
    assert main(["replay", str(path), "--", *other]) == 1
    assert 'prompt: recorded "Hi, I am [redacted]", now "Hello"' in capfd.readouterr().err
    assert main(["replay", str(path), "--speed", "2", "--max-gap", "0", "--", *PYTHON, "-c", "pass"]) == 0
    assert f"{path}: not asked for: POST /agent-runs (line 2), GET " in capfd.readouterr().err
    assert main(["replay", str(path), "--ignore", "prompt", "--", *program(tmp_path, "run('Any')")]) == 0


def test_recording_goes_on_until_a_signal_comes(tmp_path: Path, server: LocalServer) -> None:
    path = tmp_path / "a.jsonl"
    recorder = Server("record", str(path))
    found = recorder.variables()
    subprocess.run(program(tmp_path, 'ask("GET", "/models")'), env={**os.environ, **found}, check=True)
    code, errors = recorder.ends(signal.SIGINT)
    assert code == 0, errors
    assert errors.endswith(f"{path}: 1 request recorded\n")
    assert [exchange.status for exchange in read_recording(path)] == [200]


def test_a_signal_while_the_file_is_written_loses_nothing(
    tmp_path: Path, server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, stop = tmp_path / "a.jsonl", RecordingServer.stop

    def disturbed(self: RecordingServer) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
        stop(self)

    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(RecordingServer, "stop", disturbed)
    assert main(["record", str(path), "--", *program(tmp_path, 'ask("GET", "/models")')]) == 0
    assert len(read_recording(path)) == 1
    assert signal.getsignal(signal.SIGINT) is before


def test_nothing_is_put_in_the_place_of_a_recording(
    tmp_path: Path, server: LocalServer, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("old")
    assert main(["record", str(path), "--", *PYTHON, "-c", "pass"]) == 1
    assert f"nothing was recorded, and {path} not written" in capfd.readouterr().err
    assert main(["record", str(path), "--", "no-such-command-here"]) == 2
    assert "there is no command 'no-such-command-here'" in capfd.readouterr().err
    assert path.read_text() == "old"


# -------------------------------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["serve", "--script", "nowhere.json"], "there is no script 'nowhere.json'"),
        (["serve", "--openai", "http://x/v1"], "--openai needs the model's name: --model-name NAME"),
        (["serve", "--openai", "x", "--model-name", "y"], "base_url must be an http or https URL, got 'x'"),
        (["serve", "--model-name", "y"], "--model-name and --key-env are for --openai"),
        (["serve", "--openai", "http://x", "--model-name", "y", "--key-env", "NO_SUCH_KEY"], "NO_SUCH_KEY is not set"),
        (["serve", "--gateway", "--rate-limits"], "--rate-limits has no place beside --gateway"),
        (["serve", "--tool", "no_such_module:x"], "there is no module 'no_such_module'"),
        (["serve", "--tool", "json:__name__"], "--tool: 'json:__name__' is a str, must be a function"),
        (["replay", "nowhere.jsonl"], "there is no recording nowhere.jsonl"),
        (["record", "/nowhere/at/all/a.jsonl"], "no account is set: set MANTYX_API_KEY"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_mistake_is_told_in_a_sentence(
    arguments: list[str], sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("MANTYX_API_KEY", "MANTYX_ACCESS_TOKEN", "MANTYX_WORKSPACE_SLUG", "MANTYX_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    assert main(arguments) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["serve", "--port", "70000"], "got '70000', must be from 0 to 65535"),
        (["serve", "--fault", "strem:cut"], "there is no route 'strem'; did you mean 'stream'?"),
        (["serve", "--fault", "stream:cutt"], "there is no fault 'cutt'; did you mean 'cut'?"),
        (["serve", "--fault", "stream:cut=many"], "cut: got 'many', must be a number"),
        (["serve", "--"], "there is no command behind --"),
        (["serve", "--model", "rule", "--gateway"], "not allowed with argument"),
        (["replay", "x", "--speed", "0"], "got '0', must be above 0"),
        (["replay"], "FILE"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_arguments_that_do_not_parse_are_told_in_a_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert sentence in capsys.readouterr().err


def test_a_port_that_is_taken_is_told_of(server: LocalServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--port", str(server.port)]) == 2
    assert f"127.0.0.1 port {server.port} (port 0 takes a free one)" in capsys.readouterr().err


# ---------------------------------------------------------------------------------------- script files


def _turns(model: Any, prompt: str, count: int) -> list[list[Any]]:
    messages = [{"role": "user", "content": prompt}]
    return [list(model.complete(ModelRequest(messages, [], {}, turn, f"run {prompt}"))) for turn in range(count)]


def test_scripts_in_json_say_all_that_scripts_can_say() -> None:
    model = script_of_json(
        {"runs": [{"turns": ["For one."], "prompt": "one", "times": 1}, {"turns": [[{"thinking": "Hm."}, "Other."]]}]}
    )
    assert isinstance(model, RunScripts)
    assert _turns(model, "this one", 1) == [["For one."]]
    assert [str(part) for part in _turns(model, "another", 1)[0]] == ["Thinking(text='Hm.')", "Other."]
    parts = [{"tool": "t", "args": {"a": 1}, "id": "x"}, {"finish": "max_tokens", "usage": {"input_tokens": 3}}]
    (turn,) = _turns(script_of_json([parts]), "x", 1)
    assert (turn[0].name, turn[0].args, turn[0].id) == ("t", {"a": 1}, "x")
    assert turn[1] == TurnEnd("max_tokens", Usage(3))


def test_scripts_in_python_set_script(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("script = lambda request: [[request.prompt.upper()]]")
    assert _turns(model_of_file(tmp_path / "a.py"), "hi", 1) == [["HI"]]
    (tmp_path / "b.py").write_text("from mantyx_sync.local import RuleModel\nscript = RuleModel()")
    assert model_of_file(tmp_path / "b.py").model_id == "local:rule"
    for text, sentence in (
        ("x = 1", "it must set script to a list of turns"),
        ("x = 1\n1 / 0", "failed in line 2 with ZeroDivisionError: division by zero"),
        ("def f(:", r"failed with SyntaxError: .*line 1"),
        ("import sys\nsys.exit(3)", "failed in line 2 with SystemExit: 3"),
        ("script = []", "turns: got none"),
        ("script = ['a', ['b', 5]]", r"turns\[1\]\[1\]: got 5, must be a text, a function, or one of Text, "),
        ("script = [{'tool': 'x'}]", r"turns\[0\]: got {'tool': 'x'}, must be"),
    ):
        (tmp_path / "c.py").write_text(text)
        with pytest.raises(ValueError, match=sentence):
            model_of_file(tmp_path / "c.py")
    (tmp_path / "d.json").write_bytes(b'\xef\xbb\xbf["from an editor"]')
    assert _turns(model_of_file(tmp_path / "d.json"), "hi", 1) == [["from an editor"]]
    (tmp_path / "d.json").write_text("[")
    with pytest.raises(ValueError, match="cannot be read as JSON"):
        model_of_file(tmp_path / "d.json")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ({"a": 1}, "a script must be a list of turns, or"),
        ([3], r"\[0\]: must be a text, or an object with text, thinking, tool, failure or finish"),
        ([[{"say": "x"}]], r"\[0\]\[0\]: must be a text, or an object with"),
        ([{"tool": "x", "arguments": {}}], r"\[0\]: got 'arguments', must be one of tool, args, id"),
        ([{"text": 3}], r"\[0\]\.text: must be a text"),
        ([{"failure": {"code": "x", "why": "y"}}], r"\[0\]\.failure: got 'why', must be one of message, error_class"),
        ([{"usage": {"input_tokens": "3"}}], r"\[0\]\.usage: must be an object of numbers"),
        ([], "a script must have at least one turn"),
        ({"runs": []}, "runs: got none"),
        ({"runs": [{"turns": ["x"]}], "turns": []}, "the script: got 'turns', must be one of runs"),
        (
            {"runs": [{"turns": ["x"], "prompt": 5}]},
            r"runs\[0\]: prompt: got 5, must be a text, a pattern or a function",
        ),
        ({"runs": [{"turns": ["x"], "times": "3"}]}, r"runs\[0\]: times: got '3', must be 1 or above"),
        ({"runs": [{"turns": ["x"], "tools": "x"}]}, r"runs\[0\]: tools: got 'x', must be a list of names"),
        ([{"text": "x", "id": 1}], r"\[0\]: got 'id', must be one of text"),
        ([{"thinking": "x", "id": 1}], r"\[0\]: got 'id', must be one of thinking"),
        ([{"failure": "x", "id": 1}], r"\[0\]: got 'id', must be one of failure"),
        ([{"failure": {"retryable": "yes"}}], r"\[0\]\.failure\.retryable: got 'yes', must be true or false"),
        ([{"failure": {"api_status": True}}], r"\[0\]\.failure\.api_status: got True, must be a number"),
        ([{"failure": {"message": 5}}], r"\[0\]\.failure\.message: got 5, must be a text"),
        ([{"tool": "x", "args": "no"}], r"\[0\]\.args: got 'no', must be an object"),
        ([{"tool": "x", "id": 5}], r"\[0\]\.id: must be a text"),
        ([{"finish": 5}], r"\[0\]\.finish: must be a text"),
        ([{"usage": {"input_tokens": -1}}], r"\[0\]\.usage: must be an object of numbers, 0 or above"),
        ({"runs": [{"turns": []}]}, r"runs\[0\]: turns: got none"),
        ({"runs": [{"prompt": "x"}]}, r"runs\[0\]: must be an object with a list of turns"),
        ({"runs": [{"turns": ["x"], "time": 1}]}, r"runs\[0\]: got 'time', must be one of turns, prompt, times, tools"),
    ],
    ids=lambda value: json.dumps(value) if not isinstance(value, str) else "-",
)
def test_a_script_that_is_none_is_refused_in_a_sentence(content: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        script_of_json(content)
