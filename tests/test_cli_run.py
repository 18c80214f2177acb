"""`mantyx-sync run`, `attach` and `cancel`: what goes where, what is sent, and how they exit."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest

from mantyx_sync import MantyxClient
from mantyx_sync.cli import main
from mantyx_sync.local import (
    Failure,
    LocalServer,
    Model,
    Pause,
    PlanDraft,
    ScriptedModel,
    Thinking,
    ToolUse,
    TurnEnd,
    Usage,
)
from mantyx_sync.local.faults import Effect, Fault, answer, cut, drop
from tests.waiting import wait_until

from .cli_calls import SETTINGS, Cli, use_server

ROOT = Path(__file__).parent.parent

pytestmark = pytest.mark.usefixtures("no_leaks", "plain_environment")

Serve = Callable[..., LocalServer]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    return Cli(capsys, monkeypatch)


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    started: list[LocalServer] = []

    def start(script: Any = (["It was ", "shipped."],), **settings: Any) -> LocalServer:
        model: Model = ScriptedModel(script)
        started.append(LocalServer(model, **settings).start())
        use_server(started[-1], monkeypatch)
        return started[-1]

    yield start
    for server in started:
        server.stop()


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Write a module with tools, and name it."""
    name = f"shop_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(
        "from dataclasses import dataclass\n"
        "from mantyx_sync import tool\n"
        "print('imported')\n"
        "@tool\n"
        "def get_order(order_id: str) -> str:\n"
        "    '''Look up an order.'''\n"
        "    print('looking up', order_id)\n"
        "    return 'shipped'\n"
        "def plain(x: int) -> int:\n"
        "    '''Give it back.'''\n"
        "    return x\n"
        "@tool\n"
        "def broken() -> str:\n"
        "    '''Fail.'''\n"
        "    raise KeyError('secret-of-the-handler')\n"
        "both = [get_order, plain]\n"
        "@dataclass\n"
        "class Ticket:\n"
        "    urgency: str\n"
    )
    yield name
    sys.modules.pop(name, None)


ORDER = [["Let me look. ", ToolUse("get_order", {"order_id": "17"})], ["It was ", "shipped."]]


def body(server: LocalServer, route: str = "create") -> Any:
    return next(json.loads(request.body) for request in reversed(server.requests) if request.route == route)


# ------------------------------------------------------------------------------------------- output


def test_the_answer_goes_to_standard_output_and_nothing_else_does(cli: Cli, serve: Serve, shop: str) -> None:
    serve(ORDER)
    assert cli("run", "Where is order 17?", "--tool", f"{shop}:get_order") == 0
    assert cli.out == "It was shipped.\n"
    assert cli.err.splitlines()[:2] == ["imported", "looking up 17"]
    assert 'get_order(order_id="17")' in cli.err.splitlines()[2]
    assert "Let me look" not in cli.err


def test_quiet_leaves_out_what_is_about_the_run_but_not_what_tools_print(cli: Cli, serve: Serve, shop: str) -> None:
    serve(ORDER)
    assert cli("run", "Where?", "--tool", f"{shop}:get_order", "-q") == 0
    assert (cli.out, cli.err) == ("It was shipped.\n", "imported\nlooking up 17\n")


def test_stream_writes_all_turns_and_no_stream_only_the_answer(cli: Cli, serve: Serve, shop: str) -> None:
    serve(ORDER)
    assert cli("run", "Where?", "--tool", f"{shop}:get_order", "--stream") == 0
    assert cli.out == "Let me look. \nIt was shipped.\n"
    assert cli("run", "Where?", "--tool", f"{shop}:get_order", "--no-stream") == 0
    assert cli.out == "It was shipped.\n"


def test_a_run_that_fails_prints_no_half_answer_where_it_waits_for_the_end(cli: Cli, serve: Serve) -> None:
    serve([["It was ", Failure("out of luck", error_class="server_error")]])
    assert cli("run", "Where?", "--no-stream") == 1
    assert cli.out == ""
    assert cli.err.startswith("mantyx-sync: run run_")
    assert "out of luck" in cli.err
    assert cli("run", "Where?") == 1
    assert cli.out == "It was \n"


def test_json_is_one_object_that_tells_how_the_run_ended(cli: Cli, serve: Serve, shop: str) -> None:
    server = serve([[*ORDER[0], TurnEnd("tool_use", Usage(10, 5))], ["Shipped.", TurnEnd("stop", Usage(20, 7))]])
    assert cli("run", "Where?", "--tool", f"{shop}:get_order", "--json") == 0
    [found] = cli.lines
    assert found["runId"] == server.runs[0].id
    assert (found["status"], found["text"], found["turns"]) == ("succeeded", "Shipped.", 2)
    assert found["tokens"] == {"inputTokens": 30, "cachedTokens": 0, "reasoningTokens": 0, "outputTokens": 12}
    assert found["model"] == "local:scripted"
    [call] = found["toolCalls"]
    assert (call["name"], call["args"], call["state"]) == ("get_order", {"order_id": "17"}, "done")


def test_json_of_a_failure_holds_the_error_and_what_was_written(cli: Cli, serve: Serve) -> None:
    serve([["It was ", Failure("out of luck", error_class="rate_limit", retryable=True)]])
    assert cli("run", "Where?", "--json") == 1
    found = cli.json
    assert (found["status"], found["text"]) == ("failed", "It was ")
    assert found["error"]["errorClass"] == "rate_limit"
    assert found["error"]["retryable"] is True
    assert "out of luck" in found["error"]["message"]


def test_events_are_lines_as_they_came_and_the_outcome_is_the_last(cli: Cli, serve: Serve) -> None:
    serve()
    assert cli("run", "Where?", "--events") == 0
    *events, outcome = cli.lines
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert [event["data"]["text"] for event in events if event["type"] == "assistant_delta"] == ["It was ", "shipped."]
    assert events[-1]["type"] == "result"
    assert outcome["status"] == "succeeded"


def test_verbose_tells_the_run_what_the_model_thought_and_what_it_cost(cli: Cli, serve: Serve) -> None:
    server = serve([[Thinking("Hm, "), Thinking("let me see."), "Yes.", TurnEnd("stop", Usage(1234, 5))]])
    assert cli("run", "Well?", "-v", "--reasoning", "low") == 0
    assert cli.out == "Yes.\n"
    assert f"run {server.runs[0].id}" in cli.err
    assert "Hm, let me see." in cli.err
    assert "1,234 tokens in, 5 out" in cli.err


def test_a_plan_is_told_step_by_step(cli: Cli, serve: Serve, shop: str) -> None:
    server = serve(ORDER, planner=lambda _request: PlanDraft(("Look", "Answer")))
    assert cli("run", "Where?", "--plan", "--tool", f"{shop}:get_order") == 0
    assert body(server)["plan"] is True
    told = [line[2:] for line in cli.err.splitlines()]
    assert told.index("Look") < told.index("Answer")
    assert told.count("Look") >= 2, "once when it was begun, once when it was done"


def test_what_a_model_and_a_tool_say_cannot_command_a_terminal(cli: Cli, serve: Serve) -> None:
    serve([[ToolUse("gone\x1b[2J", {"x": "\x1b]0;owned\x07"})], ["Done."]])
    assert cli("run", "Well?", "--set", "tool_budgets={}") in (0, 1)
    assert "\x1b" not in cli.err
    assert "\x07" not in cli.err


def test_text_that_the_output_cannot_encode_is_replaced(
    cli: Cli, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    import io

    serve([["Größe \ud800 注文"]])
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="latin-1", write_through=True))
        assert main(["run", "Well?"]) == 0
    assert raw.getvalue() == "Größe ? ??\n".encode("latin-1")


def test_a_page_and_a_timeline_are_left_behind(cli: Cli, serve: Serve, tmp_path: Path) -> None:
    serve()
    assert cli("run", "Well?", "--html", "run.html", "--timeline") == 0
    assert "It was shipped." in (tmp_path / "run.html").read_text(encoding="utf-8")
    assert len(cli.err.splitlines()) > 2
    serve([[Failure("out of luck")]])
    assert cli("run", "Well?", "--html", "failed.html") == 1
    assert "out of luck" in (tmp_path / "failed.html").read_text(encoding="utf-8")


def test_a_page_that_cannot_be_written_costs_no_run_or_fails_behind_it(
    cli: Cli, serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve()
    for place, sentence in (
        ("no/such/folder.html", "--html: there is no folder 'no/such'"),
        (str(tmp_path), "must be a file to write"),
        ("", "--html: got '', must be a file to write"),
    ):
        assert cli("run", "Well?", "--html", place) == 2
        assert cli("attach", "run_1", "--html", place) == 2
        assert sentence in cli.err
    assert not server.requests

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("mantyx_sync.Run.to_html", full)
    assert cli("run", "Well?", "--html", "run.html") == 1
    assert "--html: 'run.html' cannot be written: No space left on device" in cli.err
    serve([[Failure("out of luck")]])
    assert cli("run", "Well?", "--html", "run.html") == 1
    assert "No space left on device" in cli.err
    assert "out of luck" in cli.err


# ------------------------------------------------------------------------------------------- input


@pytest.mark.parametrize(
    ("arguments", "said", "prompt"),
    [
        (["Well?"], None, "Well?"),
        (["-"], "From a pipe\n", "From a pipe"),
        ([], "From a pipe\n", "From a pipe"),
        (["Review:", "-"], "a\nb\n", "Review:\n\na\nb"),
        (["Review:", "-q", "-"], b"\xef\xbb\xbfGr\xc3\xb6\xc3\x9fe\n", "Review:\n\nGröße"),
        (["-q", "Two", "parts"], None, "Two\n\nparts"),
    ],
)
def test_the_prompt_is_an_argument_or_piped_in(
    cli: Cli, serve: Serve, arguments: list[str], said: str | bytes | None, prompt: str
) -> None:
    server = serve()
    assert cli("run", *arguments, said=said) == 0
    assert body(server)["prompt"] == prompt


def test_every_field_of_a_run_can_be_told(cli: Cli, serve: Serve, tmp_path: Path, shop: str) -> None:
    (tmp_path / "told.txt").write_text("You help customers.\n")
    (tmp_path / "spec.json").write_text(json.dumps({"toolBudgets": {"a": {"maxCalls": 1}}, "name": "from the file"}))
    (tmp_path / "note.md").write_text("# Note")
    server = serve()
    code = cli(
        *("run", "Well?", "-s", "@told.txt", "-m", "local:scripted", "--reasoning", "30"),
        *("--metadata", "customer=acme", "--metadata", "a.b=c=d", "--spec", "spec.json", "--file", "note.md"),
        *("--set", "loop-detection=false", "--set", 'name="from here"', "--set", "fallback_model_id=local:other"),
        *("--plan-step", "One", "--plan-step", "Two", "--tool", f"{shop}:both"),
    )
    assert code == 0
    sent = body(server)
    assert sent["systemPrompt"] == "You help customers."
    assert (sent["modelId"], sent["fallbackModelId"], sent["reasoningLevel"]) == ("local:scripted", "local:other", 30)
    assert sent["metadata"] == {"customer": "acme", "a.b": "c=d"}
    assert (sent["toolBudgets"], sent["loopDetection"], sent["name"]) == ({"a": {"maxCalls": 1}}, False, "from here")
    assert sent["plan"] == {"steps": ["One", "Two"]}
    assert [tool["name"] for tool in sent["tools"]] == ["get_order", "plain"]
    assert sent["messages"][0]["content"] == "Well?"
    assert sent["messages"][0]["attachments"][0]["filename"] == "note.md"


def test_a_run_is_told_something_also_without_a_system_prompt(cli: Cli, serve: Serve, tmp_path: Path) -> None:
    server = serve(agents={"agent_7": {"systemPrompt": "You are seven."}})
    assert cli("run", "Well?") == 0
    assert body(server)["systemPrompt"] == "You are a helpful assistant."
    assert cli("run", "Well?", "--agent", "agent_7") == 0
    assert "systemPrompt" not in body(server)
    said = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Well?"}]
    (tmp_path / "spec.json").write_text(json.dumps({"messages": said}))
    assert cli("run", "--spec", "spec.json") == 0
    assert "systemPrompt" not in body(server)
    assert body(server)["messages"] == said


def test_a_module_alone_offers_what_is_marked_as_a_tool(cli: Cli, serve: Serve, shop: str) -> None:
    server = serve()
    assert cli("run", "Well?", "--tool", shop) == 0
    assert [tool["name"] for tool in body(server)["tools"]] == ["get_order", "broken"]


def test_a_tool_that_raises_is_told_with_its_place_and_the_run_goes_on(
    cli: Cli, serve: Serve, shop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # those of the test's own
    serve([[ToolUse("broken", {})], ["Never mind."]])
    assert cli("run", "Well?", "--tool", f"{shop}:broken") == 0
    assert cli.out == "Never mind.\n"
    [warning] = [line for line in cli.err.splitlines() if line.startswith("warning: ")]
    assert "the handler raised: KeyError: 'secret-of-the-handler'" in warning
    assert f"{shop}.py, line 15)" in warning


def test_tools_of_an_mcp_server_are_offered(cli: Cli, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve([[ToolUse("mountain_height", {"mountain": "Eiger"})], ["High."]])
    program = f"'{sys.executable}' '{ROOT / 'examples' / 'mcp_tools.py'}' serve"
    monkeypatch.setenv("SHOWN", "1")
    assert cli("run", "How high?", "--mcp", program, "--mcp", f"again={program}", "--mcp-env", "SHOWN") == 2
    assert "tools[1] (MCP server 'again')" in cli.err
    assert cli("run", "How high?", "--mcp", program) == 0
    [ref] = body(server)["tools"]
    assert (ref["kind"], ref["name"]) == ("mcp_local", "mcp_tools")
    assert 'mountain_height(mountain="Eiger")' in cli.err


@pytest.mark.parametrize("place", ["schema.json", "wrapped.json", "{shop}:Ticket"])
def test_an_answer_is_checked_against_a_schema_or_a_type(
    cli: Cli, serve: Serve, shop: str, tmp_path: Path, place: str
) -> None:
    schema = {"type": "object", "properties": {"urgency": {"type": "string"}}, "required": ["urgency"]}
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    (tmp_path / "wrapped.json").write_text(json.dumps({"schema": schema, "name": "ticket"}))
    place = place.format(shop=shop)
    server = serve(lambda request: [['{"urgency": ', '"high"}']] if request.prompt == "Late!" else [["Sorry."]])
    assert cli("run", "Late!", "--output-schema", place, "--json") == 0
    assert cli.json["output"] == {"urgency": "high"}
    assert body(server)["outputSchema"]["schema"]["required"] == ["urgency"]
    assert cli("run", "Late!", "--output-schema", place) == 0
    assert cli.out == '{"urgency": "high"}\n'
    assert cli("run", "No", "--output-schema", place) == 1
    assert cli.out == "", "what does not fit is not handed on"
    assert "the answer is not JSON" in cli.err
    assert cli("run", "No", "--output-schema", place, "--json") == 1
    assert (cli.json["status"], cli.json["text"]) == ("unfit", "Sorry.")


# ------------------------------------------------------------------------------------------- sessions


def test_a_session_is_begun_and_gone_on_with(cli: Cli, serve: Serve, shop: str) -> None:
    server = serve([["Hello."]])
    assert cli("run", "I am Ada.", "--new-session", "-s", "Be kind.", "--tool", f"{shop}:plain") == 0
    [session] = server.sessions
    assert cli.out == "Hello.\n"
    assert f"--session {session.id}" in cli.err
    assert cli("run", "Who am I?", "--session", session.id, "--reasoning", "low", "--json") == 0
    assert cli.json["sessionId"] == session.id
    assert [message["content"] for message in session.messages] == ["I am Ada.", "Hello.", "Who am I?", "Hello."]
    assert body(server, "session_messages")["reasoningLevel"] == "low"
    assert session.status == "active"
    assert cli("run", "Who am I?", "--session", session.id, "-s", "Be rude.") == 2
    assert cli("run", "Who am I?", "--session", session.id, "--set", "systemPrompt=Be rude.") == 2
    assert "have no place beside --session" in cli.err
    assert cli("run", "Who am I?", "--session", "ses_none") == 3


# ------------------------------------------------------------------------------------------- exits


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["run"], 'there is no prompt: give it as an argument in quotes ("…"), or pipe it in'),
        (["run", "-"], "-: nothing came on standard input"),
        (["run", "-", "-"], "standard input can be read only once"),
        (["run", "x", "--tool", "nowhere:x"], "there is no module 'nowhere' in "),
        (["run", "x", "--tool", "json:loads.x"], "module 'json' has no 'loads.x'"),
        (["run", "x", "--tool", "json"], "the module has no function marked with @tool; name one: json:function"),
        (["run", "x", "--tool", "json:__name__"], "is of type str, must be a function, a tool or a list of them"),
        (["run", "x", "--tool", "json:JSONDecoder"], "is a class, must be a function"),
        (["run", "x", "--tool", "shop.py:f"], "give the module's name, not its file"),
        (["run", "x", "--mcp", ""], "is empty, must be a command line or an address"),
        (["run", "x", "--mcp", "a 'b"], "is no command line"),
        (["run", "x", "--mcp", "/no/such/program"], "/no/such/program"),
        (["run", "x", "--mcp-env", "HOME"], "--mcp-env needs --mcp"),
        (["run", "x", "--mcp", "a", "--mcp-env", "NO_SUCH_VARIABLE"], "there is no such variable"),
        (["run", "x", "--spec", "none.json"], "--spec: 'none.json' cannot be read: No such file"),
        (["run", "x", "-s", "@none.txt"], "--system-prompt: 'none.txt' cannot be read"),
        (["run", "x", "--set", "tool_bugets={}"], "a run has no field 'tool_bugets'; did you mean 'tool_budgets'?"),
        (["run", "x", "--set", "budgets={"], "--set budgets: the value is not JSON"),
        (["run", "x", "--set", "budgets"], "must be of the form KEY=VALUE"),
        (["run", "x", "--reasoning", "max"], "reasoning_level: got 'max', must be one of off, low, medium, high"),
        (["run", "x", "--reasoning", "101"], "reasoning_level: got 101"),
        (["run", "x", "--no-plan", "--plan-only"], "--no-plan has no place beside --plan-step and --plan-only"),
        (["run", "x", "--output-schema", "none.json"], "--output-schema: 'none.json' cannot be read"),
        (["run", "x", "--file", "none.pdf"], "--file: 'none.pdf' cannot be read"),
        (["run", "x", "--timeout", "0"], "must be above 0 seconds"),
        (["run", "x", "--timeout", "soon"], "argument --timeout: got 'soon', must be a number of seconds"),
        (["run", "x", "--session", "a", "--new-session"], "not allowed with argument"),
        (["run", "x", "--local", "--workspace", "a"], "--workspace has no place beside --local"),
        (["run", "x", "--tols", "a"], "there is no option --tols; did you mean --tool?"),
        (["run", "x", "--api-key-file", "none"], "--api-key-file: 'none' cannot be read: No such file"),
        (["run", "x", "--workspace", ""], "--workspace is empty"),
        (["run", "x", "--base-url="], "--base-url is empty"),
        (["run", "x", "--agent", ""], "--agent is empty"),
        (["run", "x", "-m", ""], "--model is empty"),
        (["run", "x", "-s", ""], "--system-prompt is empty"),
        (["run", "x", "--plan-step", " "], "--plan-step is empty, must be the title of a step"),
        (["run", "x", "--tool", ""], "--tool '' is not of the form module:name"),
        (["run", "x", "--tool", "sys:meta_path.nothing"], "module 'sys' has no 'meta_path.nothing'"),
        (["run", "x", "--mcp", "http://["], "url: got 'http://[', must be an absolute URL"),
        (["run", "x", "--set", "messages=1"], "messages: got 1, must be a list"),
        (["run", "x", "--set", "tools=5", "--tool", "os:getcwd"], "tools: got int, must be a list of tools"),
        (["run", "x", "--set", f"budgets={'[' * 100_000}"], "--set budgets: the value is n"),
        (["run", "x\udcff"], "the prompt is no text in the encoding of this terminal"),
        (["run", "x", "-q", "--bo", "--", "y"], "there is no option --bo"),
        (["run", "x", "--tim", "5"], "there is no option --tim; did you mean --timeout?"),
        (["attach", "run_1", "--last-seq", "x"], "argument --last-seq: got 'x', must be a whole number, 0 or more"),
        (["runs", "--limit", "x"], "argument --limit: got 'x', must be a whole number, 1 or more"),
        (["evals", "run", "--dataset", "a", "--min-passed", "x%"], "got 'x%', must be a number"),
        (["evals", "run", "--dataset", "a", "--min-passed", "nan"], "got 'nan', must be from 0 to 1"),
        (["replay", "x", "--speed", "fast"], "argument --speed: got 'fast', must be a number above 0"),
        (["attach"], "the following arguments are required: RUN"),
        (["attach", "run_1", "--last-seq", "-2"], "argument --last-seq: got '-2', must be 0 or more"),
        (["cancel", "run_1", "and more", "--odd"], "there is no option --odd"),
        (["rnu", "x"], "there is no command 'rnu'; did you mean 'run'?"),
        (["xyzzy"], "there is no command 'xyzzy' (there are: run, "),
    ],
)
def test_a_mistake_is_a_sentence_and_nothing_is_sent(
    cli: Cli, serve: Serve, arguments: list[str], sentence: str
) -> None:
    server = serve()
    assert cli(*arguments) == (2 if "/no/such/program" not in arguments else 4)
    assert sentence in cli.err
    assert cli.out == ""
    assert not server.requests


def test_what_a_module_or_a_file_does_is_a_sentence_as_well(cli: Cli, serve: Serve, tmp_path: Path) -> None:
    server = serve()
    (tmp_path / "cli_exits.py").write_text("raise SystemExit(0)")
    (tmp_path / "cli_refuses.py").write_text("def __getattr__(name):\n    raise RuntimeError('not today')\n")
    (tmp_path / "cli_empty.py").write_text("tools = []\n")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    for arguments, sentence in (
        (
            ["--tool", "cli_exits:f"],
            "importing 'cli_exits' ended with sys.exit(); put what it does as a program behind",
        ),
        (["--tool", "cli_refuses:f"], "module 'cli_refuses': taking 'f' failed with RuntimeError: not today"),
        (["--tool", "cli_empty:tools"], "--tool 'cli_empty:tools' is empty, must be a function"),
        (["--spec", "deep.json"], "--spec: 'deep.json' is n"),
        (["--output-schema", "deep.json"], "--output-schema: 'deep.json' is n"),
    ):
        assert cli("run", "x", *arguments) == 2
        assert sentence in cli.err
    assert not server.requests


def test_a_key_in_place_of_its_file_is_not_repeated(cli: Cli) -> None:
    assert cli("run", "x", "--workspace", "acme", "--api-key-file", "mk_0123456789abcdef0123") == 2
    assert "--api-key-file: the file that is named cannot be read: No such file" in cli.err
    assert "0123456789" not in cli.err


def test_words_behind_two_dashes_are_the_prompt(cli: Cli, serve: Serve) -> None:
    server = serve()
    assert cli("run", "--", "--json") == 0
    assert body(server)["prompt"] == "--json"
    assert cli("run", "One", "-q", "--", "-two") == 0
    assert body(server)["prompt"] == "One\n\n-two"


@pytest.mark.parametrize("before", [[], ["evals"]], ids=str)
def test_a_key_is_refused_also_before_the_command(cli: Cli, before: list[str]) -> None:
    assert cli(*before, "--api-key", "mk_0123456789abcdef0123", "list") == 2
    assert "0123456789" not in cli.err


@pytest.mark.parametrize("option", ["--api-key", "--access-token", "--token"])
@pytest.mark.parametrize("command", [["run", "x"], ["models"], ["chat"]], ids=" ".join)
def test_a_key_on_the_command_line_is_refused_and_not_repeated(cli: Cli, command: list[str], option: str) -> None:
    for given in ([option, "sk_17"], [f"{option}=sk_17"]):
        assert cli(*command, *given) == 2
        assert f"{option} is refused" in cli.err
        assert "MANTYX_API_KEY" in cli.err
        assert "sk_17" not in cli.err


def test_without_an_account_the_variables_and_the_way_without_are_named(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli("run", "Hello") == 2
    for word in ("MANTYX_API_KEY", "MANTYX_WORKSPACE_SLUG", "--local"):
        assert word in cli.err
    monkeypatch.setenv("MANTYX_API_KEY", "k")
    assert cli("models") == 2
    assert "no workspace is set" in cli.err
    monkeypatch.delenv("MANTYX_API_KEY")
    assert cli("models", "--workspace", "acme") == 2
    assert "no key is set" in cli.err


def test_local_needs_no_account(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    from mantyx_sync.local import RuleModel

    monkeypatch.setattr("mantyx_sync.local.RuleModel", lambda **_: RuleModel())  # without the pauses between words
    assert cli("run", "--local", "Hello") == 0
    assert "You said: Hello" in cli.out
    assert cli("models", "--local") == 0


def test_a_key_is_read_from_a_file(cli: Cli, serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    server = serve()
    monkeypatch.setenv("MANTYX_API_KEY", "wrong")
    (tmp_path / "key").write_text(f"{server.api_key}\n")
    assert cli("run", "Hello", "--api-key-file", "key") == 0
    (tmp_path / "key").write_text("\n")
    assert cli("run", "Hello", "--api-key-file", "key") == 2
    assert "'key' is empty, must hold the key" in cli.err


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (answer(401), 3),
        (answer(403), 3),
        (answer(404), 3),
        (answer(400), 3),
        (answer(429, headers={"Retry-After": "0"}), 4),
        (answer(503, headers={"Retry-After": "0"}), 4),
        (drop(), 4),
    ],
    ids=["401", "403", "404", "400", "429", "503", "dropped"],
)
def test_a_refusal_can_be_told_from_a_server_that_is_not_there(
    cli: Cli, serve: Serve, fault: Effect, code: int
) -> None:
    serve(faults=[Fault(fault, route="create", times=None)])
    assert cli("run", "Hello") == code
    assert cli.err.startswith("mantyx-sync: ")
    assert cli.out == ""


def test_a_stream_that_breaks_is_taken_up_and_nothing_is_written_twice(cli: Cli, serve: Serve) -> None:
    server = serve([["It was ", "shipped ", "on ", "Monday."]])
    server.faults.add(cut(after=300), route="stream")
    assert cli("run", "Where?") == 0
    assert cli.out == "It was shipped on Monday.\n"


def test_a_run_whose_time_is_up_is_cancelled(cli: Cli, serve: Serve) -> None:
    server = serve([["It was ", Pause(threading.Event())]])
    assert cli("run", "Where?", "--timeout", "1", "--json") == 5
    assert "did not end in time" in cli.err
    assert cli.json["status"] == "timed_out"
    wait_until(lambda: server.runs[0].status == "cancelled")


def test_a_run_that_somebody_else_cancels_has_failed(cli: Cli, serve: Serve) -> None:
    def cancel(_request: Any) -> None:
        server.runs[0].cancel()

    server = serve([["It was ", cancel, Pause(threading.Event())]])
    assert cli("run", "Where?", "--json") == 1
    assert cli.json["status"] == "cancelled"


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_cancels_the_run_and_leaves_nothing(cli: Cli, serve: Serve, number: int, code: int) -> None:
    before = [signal.getsignal(known) for known in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    server = serve([["It was ", lambda _: os.kill(os.getpid(), number), Pause(threading.Event())]])
    assert cli("run", "Where?", "--stream") == code
    wait_until(lambda: server.runs[0].status == "cancelled")
    assert [signal.getsignal(known) for known in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before


# ------------------------------------------------------------------------------------------- attach, cancel


def test_a_run_is_attached_to_and_its_open_calls_are_answered(
    cli: Cli, serve: Serve, shop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mantyx_sync.tools.calls.SETTLE_S", 0.05)
    server = serve(ORDER)
    with MantyxClient(**server.client_settings()) as client:
        tool = {"kind": "local", "name": "get_order", "description": "x", "parameters": {"type": "object"}}
        started = client.request("POST", "/agent-runs", json={"systemPrompt": "x", "prompt": "Where?", "tools": [tool]})
    assert cli("attach", started["runId"], "--tool", f"{shop}:get_order") == 0
    assert cli.out == "It was shipped.\n"
    assert "looking up 17" in cli.err
    assert cli("attach", started["runId"], "--events", "--last-seq", "3") == 0
    assert cli.lines[0]["seq"] == 4
    assert cli.json["text"] == "It was shipped."
    assert cli("attach", "run_none") == 3


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
def test_a_signal_leaves_an_attached_run_to_itself(cli: Cli, serve: Serve) -> None:
    reached, free = threading.Event(), threading.Event()
    server = serve([["It ", Pause(free, reached), "was."]])
    with MantyxClient(**server.client_settings()) as client:
        run_id = client.request("POST", "/agent-runs", json={"systemPrompt": "x", "prompt": "Where?"})["runId"]
        assert reached.wait(10)

        def interrupt() -> None:
            wait_until(lambda: any(request.route == "stream" for request in server.requests))
            os.kill(os.getpid(), signal.SIGINT)

        watch = threading.Thread(target=interrupt)
        watch.start()
        assert cli("attach", run_id) == 130
        watch.join(10)
        assert f"run {run_id} goes on: `mantyx-sync attach {run_id}` follows it" in cli.err
        assert cli("attach", run_id, "--timeout", "0.1") == 5
        assert server.run(run_id).status == "running"
        free.set()
        assert cli("attach", run_id) == 0
        assert cli.out == "It was.\n"


def test_runs_are_cancelled_by_their_ids(cli: Cli, serve: Serve) -> None:
    reached = threading.Event()
    server = serve([["It ", Pause(threading.Event(), reached)]])
    with MantyxClient(**server.client_settings()) as client:
        run_id = client.request("POST", "/agent-runs", json={"systemPrompt": "x", "prompt": "Where?"})["runId"]
    assert reached.wait(10)
    assert cli("cancel", run_id, "--json") == 0
    assert cli.json["runId"] == run_id
    assert server.run(run_id).cancelled.is_set()
    assert cli("cancel", run_id, "run_none") == 3
    assert cli.out.startswith(f"{run_id}\t")


# ------------------------------------------------------------------------------------------- help


def test_the_command_alone_prints_its_help_and_fails(cli: Cli) -> None:
    assert cli() == 2
    assert cli.err.startswith("usage: mantyx-sync")
    assert "exit codes:" in cli.err
    assert cli("--version") == 0
    assert cli.out.startswith("mantyx-sync ")


def test_every_command_has_help_with_an_example_that_parses(cli: Cli) -> None:
    import argparse
    import shlex

    from mantyx_sync.cli.commands import _parser

    def walk(parser: argparse.ArgumentParser, words: list[str]) -> Iterator[tuple[list[str], argparse.ArgumentParser]]:
        groups = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
        if not groups:
            yield words, parser
        for name, child in (groups[0].choices if groups else {}).items():
            yield from walk(child, [*words, name])

    parser_of_all = _parser()
    commands = list(walk(parser_of_all, []))
    assert len(commands) > 20
    for words, parser in commands:
        text = parser.format_help()
        assert "\x1b" not in text
        lines = [line.strip() for line in (parser.epilog or "").splitlines() if line.startswith("  ")]
        assert any(f"mantyx-sync {' '.join(words)}" in line for line in lines), words
        for line in lines:
            start = line.index("mantyx-sync ")
            given = shlex.split(line[start:].split(" | ")[0].split(" > ")[0].split(" < ")[0].split(" || ")[0])[1:]
            parser_of_all.parse_args(given)


def test_help_loads_nothing_heavy() -> None:
    import subprocess

    code = (
        "import sys\nfrom mantyx_sync.cli import main\n"
        "try:\n main(['run', '--help'])\nexcept SystemExit: pass\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60, check=True
    )
    loaded = {name.partition(".")[0] for name in done.stderr.split()}
    assert not loaded & {"requests", "urllib3", "ssl", "asyncio", "jsonschema", "readline", "http"}
    assert not {"mantyx_sync.client", "mantyx_sync.local", "mantyx_sync.mcp"} & set(done.stderr.split())
