"""MCP servers as tools of runs and sessions: real processes and real HTTP, against the embedded server."""

from __future__ import annotations

import json
import os
import pickle
import sys
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

import pytest

from mantyx_sync import (
    LocalMcpHttpTransport,
    LocalMcpServer,
    LocalMcpStdioTransport,
    MantyxClient,
    MantyxConfigError,
    MantyxError,
    MantyxTimeoutError,
    ToolContext,
    ToolError,
    define_local_mcp,
    define_local_tool,
    is_local_mcp_server,
)
from mantyx_sync.errors import ToolInputError
from mantyx_sync.events import decode
from mantyx_sync.local import LocalServer, ScriptedModel, ToolUse
from mantyx_sync.mcp import (
    McpAuthError,
    McpClient,
    McpConnectionError,
    McpInputRequired,
    McpOutputError,
    McpProtocolError,
    McpRequestError,
    McpResult,
    McpStatusError,
    McpText,
)
from mantyx_sync.mcp.names import model_name
from mantyx_sync.mcp.resolved import server_failure
from mantyx_sync.tools.refs import ToolRef
from mantyx_sync.tools.registry import Registry
from tests.mcp_http_server import Call, McpWire
from tests.processes import Child
from tests.waiting import wait_until
from tests.wire import DEADLINE_S

pytestmark = pytest.mark.usefixtures("no_leaks")

SERVER = str(Path(__file__).parent / "mcp_servers" / "catalog_server.py")
SAY: Dict[str, Any] = {"system_prompt": "Help.", "prompt": "Go."}


class Stdio:
    """Makes refs of the hand-written stdio server, and reads what its processes noted."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def log(self, name: str = "fs") -> Path:
        return self._folder / f"{name}.log"

    def arguments(self, name: str, *tools: str) -> List[str]:
        return ["-S", "-E", SERVER, name, str(self.log(name)), *tools]

    def __call__(self, *tools: str, name: str = "fs", **options: Any) -> LocalMcpServer:
        return define_local_mcp(name=name, command=sys.executable, args=self.arguments(name, *tools), **options)

    def lines(self, name: str = "fs") -> List[str]:
        return self.log(name).read_text().splitlines() if self.log(name).exists() else []

    def pids(self, name: str = "fs") -> List[int]:
        return [int(line.split()[1]) for line in self.lines(name) if line.startswith("started ")]

    def calls(self, name: str = "fs") -> List[Dict[str, Any]]:
        messages = [json.loads(line) for line in self.lines(name) if line.startswith("{")]
        return [message["params"] for message in messages if message.get("method") == "tools/call"]

    def notified(self, method: str, name: str = "fs") -> bool:
        return any(line.startswith("{") and json.loads(line).get("method") == method for line in self.lines(name))

    def wait_gone(self, name: str = "fs") -> None:
        for pid in self.pids(name):
            wait_until(lambda pid=pid: not exists(pid), f"process {pid} of {name} stays")  # type: ignore[misc]


def exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def stdio(tmp_path: Path) -> Stdio:
    return Stdio(tmp_path)


def calling(*calls: ToolUse) -> ScriptedModel:
    """Return a model that makes the calls one after the other, and answers with all results."""
    return ScriptedModel([*[[call] for call in calls], results])


def results(request: Any) -> str:
    return " | ".join(m["content"] for m in request.messages if m["role"] == "tool")


def client_of(server: LocalServer) -> MantyxClient:
    return MantyxClient(**server.client_settings())


def outputs(server: LocalServer) -> List[Dict[str, Any]]:
    return [e["data"] for run in server.runs for e in run.events if e["type"] == "local_tool_result_in"]


def run_calls(refs: Any, *calls: ToolUse, **spec: Any) -> List[Dict[str, Any]]:
    """Run an agent that makes the calls; return what the platform got for each."""
    with LocalServer(calling(*calls)) as server, client_of(server) as client:
        client.run_agent(**{**SAY, "tools": refs if isinstance(refs, list) else [refs], **spec})
        return outputs(server)


# ------------------------------------------------------------------------------------------- a run


def test_the_catalog_goes_out_verbatim_the_call_comes_back_and_the_process_ends(stdio: Stdio) -> None:
    ref = stdio("read_echo", "other", env={"FOO": "bar"})
    with LocalServer(calling(ToolUse("read_echo", {"text": "hé"}))) as server, client_of(server) as client:
        assert client.run_agent(**SAY, tools=[ref]).text == "hé"
        (sent,) = server.runs[0].spec["tools"]
        event = next(e["data"] for e in server.runs[0].events if e["type"] == "local_tool_call")
    entry = {
        "description": "The tool other.",
        "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
    }
    assert sent["serverInfo"] == {"name": "fs-server", "version": "1.0", "vendor": "tests"}
    assert sent["tools"][1] == {"name": "other", **entry, "annotations": {"x": 1}}
    assert (event["mcpServer"], event["mcpToolName"], event["mcpServerInfo"]) == ("fs", "read_echo", sent["serverInfo"])
    assert stdio.lines()[-1] == "ended", "it was not given the time to end by itself"
    assert not any(exists(pid) for pid in stdio.pids()), "the client does not wait for it"


def test_two_runs_have_a_process_each_and_a_session_has_one_for_all_messages(stdio: Stdio) -> None:
    ref = stdio("pid")
    script = ScriptedModel(lambda asked: [[ToolUse("pid", {})], lambda request: request.messages[-1]["content"]])
    with LocalServer(script) as server, client_of(server) as client:
        runs = [client.run_agent(**SAY, tools=[ref]).text for _ in range(2)]
        session = client.create_session(system_prompt="Help.", tools=[ref])
        messages = [session.send("Go.").text for _ in range(2)]
        assert exists(int(messages[0]))
        session.end()
        assert not exists(int(messages[0]))
    assert len({*runs, *messages}) == 3
    assert list(map(str, stdio.pids())) == [*runs, messages[0]]


def test_a_client_of_ones_own_is_shared_and_stays_open(stdio: Stdio) -> None:
    with McpClient.stdio(sys.executable, stdio.arguments("fs", "pid")) as mine:
        ref = define_local_mcp(name="fs", client=mine)
        first = run_calls(ref, ToolUse("pid", {}))
        second = run_calls(ref, ToolUse("pid", {}))
        assert first[0]["output"] == second[0]["output"] == mine.call_tool("pid").text
        assert len(stdio.pids()) == 1
    stdio.wait_gone()


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, ["read.echo", "db-query_echo"]),
        ({"prefix": "fs_"}, ["fs_read_echo", "fs_db_query_echo"]),
        ({"prefix": True}, ["fs_read_echo", "fs_db_query_echo"]),
        ({"prefix": "db"}, ["dbread_echo", "db_query_echo"]),
        ({"prefix": False, "tool_filter": ["db-query_echo"]}, ["db_query_echo"]),
    ],
)
def test_names_that_had_to_change_lead_to_the_real_tool(
    stdio: Stdio, options: Dict[str, Any], names: List[str]
) -> None:
    names = [name.replace(".", "_").replace("-", "_") for name in names]
    found = run_calls(
        stdio("read.echo", "db-query_echo", **options), *[ToolUse(name, {"text": name}) for name in names]
    )
    assert [result["output"] for result in found] == names
    assert [call["name"] for call in stdio.calls()] == ["read.echo", "db-query_echo"][-len(names) :]


def test_long_names_stay_apart_whatever_their_order() -> None:
    one, two = "x" * 70 + "a", "x" * 70 + "b"
    names = [model_name(one), model_name(two), model_name(one, "fs_")]
    assert len(set(names)) == 3
    assert all(len(name) == 64 for name in names)
    assert names[0] == model_name(one)
    assert model_name("y" * 64) == "y" * 64
    assert model_name("日本", "fs_") == "fs___"


@pytest.mark.parametrize(
    ("tools", "options", "said"),
    [
        ([], {}, "it offers no tools"),
        (["a.b", "a-b"], {}, "two of its tools, 'a.b' and 'a-b', as 'a_b'; leave one out with tool_filter="),
        (["read"], {"tool_filter": ["raed"]}, "tool_filter: it has no tool 'raed'; its tools are 'read'"),
        ([f"t{i}" for i in range(65)], {}, "it offers 65 tools, and at most 64 of one server"),
    ],
)
def test_a_catalog_that_cannot_be_used_is_refused_before_anything_is_sent(
    stdio: Stdio, tools: List[str], options: Dict[str, Any], said: str
) -> None:
    with LocalServer() as server, client_of(server) as client:
        with pytest.raises(MantyxConfigError) as caught:
            client.run_agent(**SAY, tools=[stdio(*tools, **options)])
        assert str(caught.value).startswith("tools[0] (MCP server 'fs'): ")
        assert said in str(caught.value)
        assert not server.requests
    stdio.wait_gone()


def test_a_filter_makes_a_large_catalog_fit_and_tells_servers_apart(stdio: Stdio) -> None:
    many = stdio(*[f"t{i}" for i in range(65)], tool_filter=[f"t{i}" for i in range(64)])
    other = stdio("t0", "t64", name="other", tool_filter=["t64"])
    found = run_calls([many, other], ToolUse("t0", {}), ToolUse("t64", {}))
    assert [result["output"] for result in found] == ["this is t0", "this is t64"]
    assert [call["name"] for call in stdio.calls("other")] == ["t64"]


# ------------------------------------------------------------------------------------------- what goes wrong


def test_a_missing_program_is_named_and_nothing_is_sent() -> None:
    ref = define_local_mcp(name="fs", command="no-such-mcp-server")
    with LocalServer() as server, client_of(server) as client:
        with pytest.raises(McpConnectionError, match=r"tools\[0\] \(MCP server 'fs'\): .*no-such-mcp-server"):
            client.run_agent(**SAY, tools=[ref])
        assert not server.requests


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("fail", "the disk is full"),
        ("refuse", "MCP server 'fs' refused the call: no such file"),
        (
            "die",
            "MCP server 'fs' exited with code 3 during the call; whether the call was carried out is not known",
        ),
    ],
)
def test_a_call_that_fails_is_an_error_for_the_model_and_the_run_goes_on(stdio: Stdio, name: str, error: str) -> None:
    found = run_calls(stdio(name, "echo"), ToolUse(name, {}), ToolUse("echo", {"text": "still here"}))
    assert [result.get("error") for result in found] == [error, None]
    assert found[1]["output"] == "still here"
    assert "hunter2" not in json.dumps(found)
    assert len(stdio.pids()) == (2 if name == "die" else 1)


def test_arguments_are_checked_here(stdio: Stdio, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mantyx_sync.tools.calls.SETTLE_S", 0.05)
    broken = json.dumps(
        {"name": "odd_echo", "inputSchema": {"type": "object", "properties": {"a": {"type": "nonsense"}}}}
    )
    strict = json.dumps({"name": "echo", "inputSchema": {"type": "object", "required": ["text"]}})
    with (
        LocalServer(calling(ToolUse("echo", {}), ToolUse("odd_echo", {"a": 1}))) as server,
        client_of(server) as client,
    ):
        # The platform checks them too, and would not pass these on.
        run_id = client.request("POST", "/agent-runs", json={"prompt": "x", "systemPrompt": "y", "tools": [
            {"kind": "mcp_local", "name": "fs", "tools": [{"name": "echo"}, {"name": "odd_echo"}]},
        ]})["runId"]  # fmt: skip
        client.attach_run(run_id, tools=[stdio(strict, broken)]).result()
        found = outputs(server)
    assert found[0]["error"] == "tool 'echo': arguments do not match its schema: 'text' is a required property"
    assert found[1]["output"] == "None", "a schema that is none checks nothing"
    assert [call["name"] for call in stdio.calls()] == ["odd_echo"]


def test_a_call_that_takes_too_long_is_cancelled_at_the_server(stdio: Stdio) -> None:
    found = run_calls(stdio("never", timeout=0.2), ToolUse("never", {}))
    assert found[0]["error"] == "MCP server 'fs' did not answer within 0.2 seconds"
    assert stdio.notified("notifications/cancelled")


def test_a_run_that_is_cancelled_cancels_its_call(stdio: Stdio) -> None:
    with LocalServer(calling(ToolUse("never", {}))) as server, client_of(server) as client:
        run = client.start_agent(**SAY, tools=[stdio("never")])
        wait_until(stdio.calls, "the call does not come")
        run.cancel()
        with pytest.raises(MantyxError):
            run.result()
        assert outputs(server)[0]["error"] == "the call was cancelled"
    assert stdio.notified("notifications/cancelled")


def test_the_end_of_a_run_frees_a_call_that_hangs(stdio: Stdio) -> None:
    with LocalServer(calling(ToolUse("never", {}))) as server, client_of(server) as client:
        with client.stream_agent(**SAY, tools=[stdio("never")]):
            wait_until(stdio.calls, "the call does not come")
        stdio.wait_gone()


def test_files_are_handed_on_and_those_beyond_the_limits_named(stdio: Stdio) -> None:
    found = run_calls(stdio("picture", "huge", "odd"), *[ToolUse(name, {}) for name in ("picture", "huge", "odd")])
    assert found[0]["output"] == "a picture"
    assert [file["mimeType"] for file in found[0]["files"]] == ["image/png"]
    assert len(found[1]["files"]) == 1
    assert "2097152 bytes, left out: too many or too large files" in found[1]["output"]
    assert "application/zip" in found[1]["output"]
    assert found[2]["output"] == '{"n":1}'


def test_a_server_that_does_not_start_in_time_is_named(tmp_path: Path) -> None:
    silent = [sys.executable, "-S", "-E", "-c", "import sys; sys.stdin.read()"]
    ref = define_local_mcp(name="slow", command=silent, start_timeout=0.3)
    with LocalServer() as server, client_of(server) as client:
        with pytest.raises(MantyxTimeoutError, match=r"tools\[0\] \(MCP server 'slow'\)"):
            client.run_agent(**SAY, tools=[ref])
        assert not server.requests


# ------------------------------------------------------------------------------------------- HTTP


def catalog(*names: str) -> Callable[[Call], None]:
    return lambda call: call.json(
        call.response({"tools": [{"name": n, "inputSchema": {"type": "object"}} for n in names]})
    )


def test_a_server_over_http_gets_its_headers_and_is_told_when_the_session_is_over() -> None:
    methods = {"tools/list": catalog("find")}
    with McpWire(tools={"find": lambda call: call.result("found")}, methods=methods) as wire:
        ref = define_local_mcp(name="web", url=wire.url, headers={"Authorization": "Bearer MARKER"})
        assert run_calls(ref, ToolUse("find", {}))[0]["output"] == "found"
        wait_until(lambda: wire.ended, "the session is not ended")
        assert {request.headers["authorization"] for request in wire.requests} == {"Bearer MARKER"}
        assert "MARKER" not in repr(ref)


def test_credentials_that_are_refused_are_an_error_before_the_run_and_a_tool_error_in_it() -> None:
    def refuse(call: Call) -> None:
        call.status(401, b"MARKER", www_authenticate="Bearer")

    with McpWire(methods={"initialize": refuse, "server/discover": refuse}) as wire:
        with pytest.raises(McpAuthError) as caught:
            run_calls(define_local_mcp(name="web", url=wire.url), ToolUse("find", {}))
        assert "tools[0] (MCP server 'web')" in str(caught.value)
        assert caught.value.www_authenticate == "Bearer"
    with McpWire(tools={"find": refuse}, methods={"tools/list": catalog("find")}) as wire:
        found = run_calls(define_local_mcp(name="web", url=wire.url), ToolUse("find", {}))
        assert found[0]["error"] == "MCP server 'web' does not accept the credentials that it is given here (HTTP 401)"


# ------------------------------------------------------------------------------------------- definitions


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"name": "a b", "url": "http://x"}, "define_local_mcp: name: got 'a b', must match [a-zA-Z0-9_]{1,64}"),
        ({"name": "a"}, "url, command and client: got none of them, must be one of the three"),
        ({"name": "a", "url": "http://x", "command": "y"}, "got url and command, must be one of the three"),
        ({"name": "a", "url": "http://x", "env": {}}, "env: given with url, goes with command alone"),
        ({"name": "a", "command": "x", "headers": {}}, "headers: given with command, goes with url alone"),
        ({"name": "a", "url": "ftp://x"}, "define_local_mcp: url: got 'ftp://x'"),
        ({"name": "a", "url": "http://x", "headers": {"X": "a\nb"}}, "define_local_mcp: headers"),
        ({"name": "a", "url": "http://x", "headers": "X"}, "define_local_mcp: headers: got 'X', must be a mapping"),
        ({"name": "a", "command": "x", "args": "y"}, "define_local_mcp: args: got a string, must be a list of strings"),
        ({"name": "a", "command": ["x", 1]}, "define_local_mcp: command[1]: got 1"),
        ({"name": "a", "command": "x", "env": {"A": 1}}, "define_local_mcp: env"),
        ({"name": "a", "url": "http://x", "prefix": "a-"}, "define_local_mcp: prefix: got 'a-', must match"),
        ({"name": "a", "url": "http://x", "tool_filter": []}, "tool_filter: got an empty list, must name at least one"),
        ({"name": "a", "url": "http://x", "tool_filter": "a"}, "tool_filter: got a string, must be a list of strings"),
        ({"name": "a", "url": "http://x", "timeout": 0}, "timeout: got 0, must be a number of seconds above 0"),
        ({"name": "a", "url": "http://x", "max_concurrency": 0}, "max_concurrency: got 0"),
    ],
)
def test_a_definition_that_cannot_be_used_is_refused(given: Dict[str, Any], said: str) -> None:
    with pytest.raises(MantyxConfigError) as caught:
        define_local_mcp(**given)
    assert said in str(caught.value)


def test_a_definition_is_a_tool_ref_that_starts_nothing_shows_no_secret_and_pickles(stdio: Stdio) -> None:
    env, command = {"KEY": "MARKER"}, [sys.executable, "--key=MARKER"]
    ref = define_local_mcp(name="fs", command=command, env=env, prefix=True)
    assert isinstance(ref, ToolRef)
    assert is_local_mcp_server(ref)
    assert not is_local_mcp_server(define_local_tool(name="fs", execute=str))
    assert "MARKER" not in repr(ref)
    assert f"command={sys.executable!r}" in repr(ref)
    env.clear()
    again = pickle.loads(pickle.dumps(ref))
    assert (again.stdio, again.prefix, again.kind) == (ref.stdio, "fs_", "mcp_local")
    assert again.stdio.env == {"KEY": "MARKER"}
    with pytest.raises(MantyxConfigError, match="it has no wire form before"):
        ref.to_wire()


# ------------------------------------------------------------------------------------------- processes


def program(stdio: Stdio, rest: str) -> str:
    return f"ref = define_local_mcp(name='fs', command={[sys.executable, *stdio.arguments('fs', 'never')]!r})\n" + rest


def test_ctrl_c_in_a_call_ends_the_run_and_the_server(stdio: Stdio) -> None:
    rest = """
try:
    client.run_agent(system_prompt="x", prompt="y", tools=[ref])
except KeyboardInterrupt:
    say("interrupted", time.monotonic() - pressed_at < 1)
client.close()
say("closed")
"""
    with LocalServer(calling(ToolUse("never", {}))) as server:
        with Child(server.client_settings(), program(stdio, rest)) as child:
            wait_until(stdio.calls, "the call does not come")
            child.press_ctrl_c()
            child.expect("interrupted True")
            child.expect("closed")
            child.ends()
        assert server.runs[0].cancelled.is_set()
    assert not any(map(exists, stdio.pids()))


def test_a_process_that_ends_with_a_run_under_way_leaves_no_server(stdio: Stdio) -> None:
    rest = f"""
run = client.start_agent(system_prompt="x", prompt="y", tools=[ref])
import pathlib
while "tools/call" not in pathlib.Path({str(stdio.log())!r}).read_text():
    time.sleep(0.01)
"""
    server = LocalServer(calling(ToolUse("never", {})))
    with server, Child(server.client_settings(), program(stdio, rest)) as child:
        child.ends()
    assert stdio.calls()
    stdio.wait_gone()


def test_many_threads_use_the_tools_of_one_run_at_once(stdio: Stdio) -> None:
    count = 6
    read_only = [{"name": f"t{i}_echo", "inputSchema": {"type": "object"}} for i in range(count)]
    ref = stdio(*map(json.dumps, read_only))
    texts: List[str] = []
    script = ScriptedModel(lambda asked: [[ToolUse(f"t{i}_echo", {"text": i}) for i in range(count)], results])
    with LocalServer(script) as server, client_of(server) as client:
        session = client.create_session(system_prompt="x", tools=[ref])
        sessions = [client.resume_session(session.id, tools=[ref]) for _ in range(2)]

        def work(i: int) -> None:
            texts.append(client.run_agent(**SAY, tools=[ref]).text)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_S)
        assert texts == [" | ".join(map(str, range(count)))] * 2
        for each in (session, *sessions):
            each.close()
    stdio.wait_gone()


# ------------------------------------------------------------------------------------------- what the model is told

OUTPUT = McpOutputError("the output does not fit", tool_name="t", result=McpResult((McpText("12"),)))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (McpConnectionError("SECRET", sent=False), "the connection to MCP server 'fs' failed"),
        (
            McpConnectionError("SECRET"),
            "the connection to MCP server 'fs' failed; whether the call was carried out is not known",
        ),
        (
            McpConnectionError("SECRET", exit_code=-9, stderr_tail="SECRET", sent=False),
            "MCP server 'fs' was killed by SIGKILL during the call",
        ),
        (
            McpConnectionError("x", exit_code=-999, sent=False),
            "MCP server 'fs' was killed by signal 999 during the call",
        ),
        (McpRequestError("x", method="tools/call", rpc_code=-1), "MCP server 'fs' refused the call: error -1"),
        (McpStatusError("SECRET", status=503), "MCP server 'fs' failed with HTTP 503"),
        (
            McpInputRequired("x", methods=["roots/list"]),
            "MCP server 'fs' wants something that cannot be given here: roots/list",
        ),
        (McpProtocolError("SECRET"), "MCP server 'fs' failed (McpProtocolError)"),
        (OUTPUT, "MCP server 'fs': the result does not fit what the tool says of its results. It was: 12"),
    ],
)
def test_a_model_reads_a_short_reason_without_what_a_log_may_hold(error: Exception, said: str) -> None:
    assert server_failure(error, "MCP server 'fs'", 5.0) == said


class Lent:
    """An opening without time, or with as much as it takes."""

    def __init__(self, deadline: Optional[float] = None) -> None:
        self.deadline = deadline
        self.closers: List[Any] = []

    def at_end(self, close: Any) -> None:
        self.closers.append(close)


def test_without_time_left_nothing_is_started(stdio: Stdio) -> None:
    with pytest.raises(MantyxTimeoutError, match="no time left"):
        stdio("echo").resolve(Lent(time.monotonic() - 1))
    assert not stdio.pids()


def test_calls_that_cannot_be_made_are_refused_here(stdio: Stdio) -> None:
    lent = Lent(time.monotonic() + DEADLINE_S)
    registry = Registry([stdio("a_echo").resolve(lent)])

    def answer(name: str, args: Any) -> str:
        data = {"toolUseId": "t", "name": name, "args": args, "kind": "mcp_local", "mcpServer": "fs"}
        call: Any = decode({"seq": 1, "type": "local_tool_call", "data": data})
        answerer: Any = registry.find(call)
        return str(answerer.answer(call, ToolContext()).result)

    try:
        assert answer("a_echo", {"text": "x"}) == "x"
        with pytest.raises(ToolError, match="MCP server 'fs' offers no tool named 'b_echo'; there are: a_echo"):
            answer("b_echo", {})
        with pytest.raises(ToolInputError, match=r"tool 'a_echo': arguments\.other: got nan"):
            answer("a_echo", {"other": float("nan")})
        with pytest.raises(ToolInputError, match="must be an object"):
            answer("a_echo", [1])
    finally:
        for close in lent.closers:
            close()


def test_a_definition_by_hand_needs_one_way_to_the_server() -> None:
    both = LocalMcpServer("fs", LocalMcpHttpTransport("http://x"), LocalMcpStdioTransport("x"))
    for ref in (LocalMcpServer("fs"), both):
        with pytest.raises(MantyxConfigError, match="http, stdio and client: must be one of the three"):
            ref.resolve(Lent())
