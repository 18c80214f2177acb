"""`mantyx-sync models`, `runs`, `sessions`, `evals` and `chat` from a pipe: what they print and how they exit."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any, Iterator

import pytest

from mantyx_sync import MantyxClient
from mantyx_sync.cli.tables import Table
from mantyx_sync.local import Failure, LocalServer, ModelRequest, ScriptedModel

from .cli_calls import SETTINGS, Cli, use_server

MODELS = [
    {"id": "acme:big", "label": "Big", "provider": "acme", "vendorModelId": "big", "contextWindowTokens": 200000},
    {"id": "acme:small", "label": "Small", "provider": "acme", "vendorModelId": "small"},
]
MODELS[0]["pricing"] = {"inputPer1MUsd": 3, "outputPer1MUsd": 15}
CASES = [
    {"name": "good", "input": {"prompt": "Say yes."}, "scorers": [{"type": "contains", "value": "yes"}]},
    {"name": "bad", "input": {"prompt": "Say no."}, "scorers": [{"type": "contains", "value": "yes"}]},
]


def script(request: ModelRequest) -> Any:
    if "fail" in request.prompt:
        return [[Failure("out of luck", error_class="server_error")]]
    return [["Well, ", "yes." if "no" not in request.prompt else "no."]]


@pytest.fixture
def server(no_leaks: None, plain_environment: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalServer]:
    datasets = [{"id": "ds_1", "name": "Answers", "cases": CASES}]
    agents = {"agent_7": {"systemPrompt": "You are seven."}}
    with LocalServer(ScriptedModel(script), models=MODELS, eval_datasets=datasets, agents=agents) as started:
        use_server(started, monkeypatch)
        yield started


@pytest.fixture
def client(server: LocalServer) -> Iterator[MantyxClient]:
    with MantyxClient(**server.client_settings()) as made:
        yield made


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    monkeypatch.chdir(tmp_path)
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    return Cli(capsys, monkeypatch)


@pytest.fixture(autouse=True)
def _order(cli: Cli, server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    use_server(server, monkeypatch)  # behind what `cli` took out of the environment


# ------------------------------------------------------------------------------------------- models, runs, sessions


def test_models_are_listed_with_the_default_and_what_they_cost(cli: Cli) -> None:
    assert cli("models") == 0
    assert cli.out.splitlines() == ["acme:big\tdefault\tBig\t200,000\t$3.00\t$15.00", "acme:small\t\tSmall\t\t\t"]
    assert cli("models", "--json") == 0
    assert [(model["id"], model["isDefault"]) for model in cli.lines] == [("acme:big", True), ("acme:small", False)]


def test_runs_are_listed_newest_first_up_to_a_limit(cli: Cli, client: MantyxClient, server: LocalServer) -> None:
    for number in range(25):
        client.run_agent(system_prompt="x", prompt=f"Say\t{number}.", metadata={"n": str(number % 2)})
    assert cli("runs") == 0
    assert len(cli.out.splitlines()) == 20
    first = cli.out.splitlines()[0].split("\t")
    assert len(first) == 8
    assert (first[0], first[1], first[7]) == (server.runs[-1].id, "succeeded", "Say 24.")
    assert cli("runs", "--all", "--json") == 0
    assert len(cli.lines) == 25
    assert cli("runs", "--limit", "3", "--metadata", "n=1") == 0
    assert [line.split("\t")[7] for line in cli.out.splitlines()] == ["Say 23.", "Say 21.", "Say 19."]
    assert cli("runs", "--status", "failed") == 0
    assert cli.out == ""


def test_a_run_is_shown_with_what_it_was_told_and_what_it_answered(cli: Cli, client: MantyxClient) -> None:
    tool = {"kind": "local", "name": "look", "description": "x", "parameters": {"type": "object"}}
    run = client.run_agent(system_prompt="Be kind.", prompt="Well?", metadata={"a": "b"}, tools=[tool])
    assert cli("runs", run.run_id) == 0
    shown = dict(line.split(":", 1) for line in cli.out.splitlines()[:-2])
    assert shown["status"].strip() == "succeeded"
    assert shown["system prompt"].strip() == "Be kind."
    assert shown["prompt"].strip() == "Well?"
    assert shown["tools"].strip() == "look"
    assert shown["metadata"].strip() == "a=b"
    assert cli.out.endswith("\n\nWell, yes.\n")
    assert cli("runs", run.run_id, "--text") == 0
    assert cli.out == "Well, yes.\n"
    assert cli("runs", run.run_id, "--json") == 0
    assert cli.json["finalText"] == "Well, yes."
    assert cli("runs", "run_none") == 3


def test_sessions_are_listed_shown_and_ended(cli: Cli, client: MantyxClient, server: LocalServer) -> None:
    session = client.create_session(system_prompt="Be kind.", metadata={"customer": "acme"})
    session.send("My name\nis Ada.")
    client.create_session(system_prompt="x")
    assert cli("sessions", "--metadata", "customer=acme") == 0
    [line] = cli.out.splitlines()
    cells = line.split("\t")
    assert (cells[0], cells[1], cells[4]) == (session.id, "active", "My name is Ada. Well, yes.")
    assert cli("sessions", session.id) == 0
    assert "system prompt: Be kind." in cli.out
    assert "\nuser: My name\nis Ada.\n\nassistant: Well, yes.\n" in cli.out
    assert cli("sessions", session.id, "--end") == 0
    assert cli.out == f"{session.id}\tended\n"
    assert server.session(session.id).status == "ended"
    assert cli("sessions", "--status", "ended", "--json") == 0
    assert [found["sessionId"] for found in cli.lines] == [session.id]
    assert cli("sessions", "ses_none") == 3


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["runs", "--text"], "--text needs a run"),
        (["sessions", "--end"], "--end needs a session"),
        (["runs", "--limit", "0"], "must be 1 or more"),
        (["runs", "--limit", "2", "--all"], "not allowed with argument"),
        (["runs", "--status", "done"], "there is no --status 'done' (there are: queued, running, succeeded, "),
        (["runs", "--metadata", "x"], "must be of the form KEY=VALUE"),
        (["evals", "run", "--agent", "a"], "one of the arguments --dataset --cases is required"),
        (["evals", "run", "--dataset", "a", "--min-passed", "120%"], "must be from 0 to 1"),
        (["evals", "run", "--cases", "none.json"], "--cases: 'none.json' cannot be read"),
        (
            ["evals", "run", "--dataset", "ds_1", "--agent", "agent_7", "--metadata", "a=b"],
            "metadata: cannot be changed",
        ),
        (["evals", "shwo"], "there is no command 'shwo'; did you mean 'show'?"),
        (["evals"], "the following arguments are required: COMMAND"),
        (["chat", "--spec", "spec.json"], "prompt: has no place in the spec of a chat"),
        (["chat", "--session", "a", "-s", "b"], "have no place beside --session"),
    ],
)
def test_a_mistake_is_a_sentence(
    cli: Cli, server: LocalServer, tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    (tmp_path / "spec.json").write_text('{"prompt": "x"}')
    assert cli(*arguments) == 2
    assert sentence in cli.err
    assert not server.requests


def test_a_table_is_cut_to_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    from .terminal import Display

    class Tty(io.StringIO):
        def isatty(self) -> bool:
            return True

    out = Tty()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "dumb")
    rows = [({}, ("run_1", None, "注文 " * 20)), ({}, ("run_22", "failed", "a\x1b[2J\nb"))]
    Table(("RUN", "STATUS", "PROMPT")).print(rows, "none")
    lines = out.getvalue().splitlines()
    assert lines[0] == "RUN     STATUS  PROMPT"
    assert lines[1] == "run_1           注文 注文 注文 注文 注…"
    assert lines[2] == "run_22  failed  a[2J b"
    out.truncate(0), out.seek(0)
    wide = [({}, ("run_1", "2026-11-30", "", "a prompt that is long"))]
    Table(("RUN", "CREATED", "MODEL", "PROMPT"), optional=(1,)).print(wide, "none")
    assert out.getvalue() == "RUN    CREATED     PROMPT\nrun_1  2026-11-30  a prompt that is long\n"
    out.truncate(0), out.seek(0)
    monkeypatch.setenv("COLUMNS", "24")
    Table(("RUN", "CREATED", "MODEL", "PROMPT"), optional=(1,)).print(wide, "none")
    assert out.getvalue() == "RUN    PROMPT\nrun_1  a prompt that is…\n"
    display = Display(40, 10)
    display.feed(out.getvalue().replace("\n", "\r\n"))
    assert len(display.lines) == 2, "no line is wrapped"


# ------------------------------------------------------------------------------------------- evals


def test_an_eval_is_run_and_its_mark_is_the_exit_code(cli: Cli, server: LocalServer, tmp_path: Path) -> None:
    assert cli("evals", "run", "--dataset", "ds_1", "--agent", "agent_7", "-m", "acme:small") == 1
    assert "passed:   1 of 2" in cli.out
    assert "failed\tbad\t" in cli.out
    assert {"✓ good", "✗ bad"} <= set(cli.err.splitlines())
    assert cli("evals", "run", "--dataset", "ds_1", "--agent", "agent_7", "--min-passed", "50%", "-q", "--json") == 0
    assert cli.json["passedCases"] == 1
    assert cli.err == ""
    (tmp_path / "cases.json").write_text(json.dumps(CASES[:1]))
    assert cli("evals", "run", "--cases", "cases.json", "-s", "Be kind.") == 0
    [_, second, third] = server.eval_runs
    assert cli("evals", "list") == 0
    assert cli.out.startswith(f"{third.id}\t")
    assert cli("evals", "show", second.id, "--failed") == 0
    assert "failed\tbad\t" in cli.out
    assert "good" not in cli.out
    assert cli("evals", "compare", server.eval_runs[0].id, second.id) == 0
    assert "good\tpassed" in cli.out
    assert cli("evals", "cancel", third.id) == 0
    assert cli.out == f"{third.id}\tsucceeded\n"
    assert cli("evals", "show", "eval_none") == 3


def test_data_sets_are_listed_with_their_cases(cli: Cli) -> None:
    assert cli("evals", "datasets") == 0
    assert cli.out.startswith("ds_1\t2\t0\tAnswers\t")
    assert cli("evals", "datasets", "ds_1") == 0
    assert cli.out.splitlines()[0].endswith("\tgood\tcontains\tSay yes.")


# ------------------------------------------------------------------------------------------- chat


def test_a_conversation_can_be_piped_in(cli: Cli, server: LocalServer) -> None:
    said = 'Hello\n\n"""\nTwo\nlines\n"""\n/session\n /no command\n'
    assert cli("chat", "-s", "Be kind.", said=said) == 0
    [session] = server.sessions
    messages = [message["content"] for message in session.messages if message["role"] == "user"]
    assert messages == ["Hello", "Two\nlines", "/no command"]
    assert cli.out == "Well, yes.\nWell, yes.\nWell, no.\n"
    assert f"session {session.id}, active, 4 messages" in cli.err
    assert cli.err.endswith(f"go on with: mantyx-sync chat --session {session.id}\n")
    assert cli("chat", "--session", session.id, said="More") == 0
    assert len(session.messages) == 8


def test_a_piped_conversation_ends_with_the_first_answer_that_fails(cli: Cli, server: LocalServer) -> None:
    assert cli("chat", said="Hello\nNow fail\nMore\n") == 1
    assert "out of luck" in cli.err
    [session] = server.sessions
    assert [message["content"] for message in session.messages] == ["Hello", "Well, yes."]


def test_a_session_in_which_nothing_was_said_is_ended(cli: Cli, server: LocalServer) -> None:
    assert cli("chat", said="/help\n/tools\n/models\n/plan\n/quit\nnot said\n") == 0
    assert cli.out == ""
    assert "--tool and --mcp offer some" in cli.err
    assert "acme:big  Big  (default)" in cli.err
    assert [session.status for session in server.sessions] == ["ended"]


def test_a_conversation_is_saved_as_a_page_and_another_one_begun(cli: Cli, server: LocalServer, tmp_path: Path) -> None:
    assert cli("chat", said="Hello\n/save chat.html\n/new\nHello again\n") == 0
    assert "Well, yes." in (tmp_path / "chat.html").read_text(encoding="utf-8")
    first, second = server.sessions
    assert f"the one before: mantyx-sync chat --session {first.id}" in cli.err
    assert (len(first.messages), len(second.messages)) == (2, 2)


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ("/sessoin\n", "there is no command /sessoin; did you mean /session?"),
        ("/save\n", "/save needs a file"),
        ("/save no/such/folder.html\n", "cannot be written: No such file"),
    ],
)
def test_a_command_that_cannot_be_is_told(cli: Cli, said: str, sentence: str) -> None:
    assert cli("chat", said=said) == (1 if "cannot be written" in sentence else 2)
    assert sentence in cli.err
