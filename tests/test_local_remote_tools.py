"""Tools asked over a network: `mcp` and `a2a` refs dialled by the embedded server, and all kinds in one run."""

from __future__ import annotations

import json
import logging
import os
import pkgutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Dict, List

import pytest

import mantyx_sync
from mantyx_sync import (
    MantyxClient,
    MantyxRunError,
    define_local_a2a,
    define_local_mcp,
    define_local_tool,
    mantyx_a2a,
    mantyx_mcp,
)
from mantyx_sync.local import LocalServer, ScriptedModel, ToolUse
from tests.a2a_agents import Agent, always, in_turn, message_v1, task_v1
from tests.mcp_http_server import Call, McpWire
from tests.waiting import wait_until
from tests.wire import DEADLINE_S

pytestmark = pytest.mark.usefixtures("no_leaks")

SERVER = str(Path(__file__).parent / "mcp_servers" / "catalog_server.py")
SAY: Dict[str, Any] = {"system_prompt": "Help.", "prompt": "Go."}
SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}


def client_of(server: LocalServer) -> MantyxClient:
    return MantyxClient(**server.client_settings())


def calling(*calls: ToolUse) -> ScriptedModel:
    return ScriptedModel([*[[call] for call in calls], "Done."])


def listing(*names: str) -> Any:
    entries = [{"name": name, "description": f"Does {name}.", "inputSchema": SCHEMA} for name in names]
    return lambda call: call.json(call.response({"tools": entries}))


def events(server: LocalServer, *kinds: str) -> List[Dict[str, Any]]:
    return [event["data"] for event in server.runs[-1].events if event["type"] in kinds]


def errors_and_results(server: LocalServer) -> List[str]:
    return [str(message["content"]) for message in server.runs[-1].conversation if message["role"] == "tool"]


# ------------------------------------------------------------------------------------------- `mcp`


def test_an_mcp_server_is_asked_by_the_embedded_server_with_prefix_filter_and_headers() -> None:
    content = [
        {"type": "text", "text": "three hits"},
        {"type": "image", "data": "QUJD", "mimeType": "image/png"},
    ]

    def find(call: Call) -> None:
        call.json(call.response({"content": content}))

    with McpWire(tools={"find.all": find}, methods={"tools/list": listing("find.all", "drop")}) as wire:
        ref = mantyx_mcp(name="web", url=wire.url, headers={"X-Key": "MARKER"}, tool_filter=["find.all"])
        seen: List[Any] = []
        model = ScriptedModel(
            [lambda asked: seen.extend(asked.tools) or [ToolUse("web_find_all", {"q": "x"})], "Done."]
        )
        with LocalServer(model) as server, client_of(server) as client:
            assert client.run_agent(**SAY, tools=[ref]).text == "Done."
            (announced,) = events(server, "tool_call")
            (result, *_) = events(server, "tool_result")
            (files,) = events(server, "tool_files")
            assert not events(server, "local_tool_call")
            assert errors_and_results(server)[0].startswith("three hits")
            wait_until(lambda: wire.ended, "the connection stays when the run is over")
    assert [(tool.name, tool.description, tool.parameters) for tool in seen] == [
        ("web_find_all", "Does find.all.", SCHEMA)
    ]
    assert (announced["name"], announced["input"]) == ("web_find_all", {"q": "x"})
    assert result["name"] == "web_find_all"
    assert result["result"].startswith("three hits")
    assert [(f["mimeType"], f["sizeBytes"]) for f in files["files"]] == [("image/png", 3)]
    assert "MARKER" in {request.headers.get("x-key") for request in wire.requests}


def test_a_call_of_it_that_fails_is_told_to_the_model() -> None:
    answers = {
        "broken": lambda call: call.json(
            call.response({"content": [{"type": "text", "text": "no disk"}], "isError": True})
        ),
        "refused": lambda call: call.status(500, b"SECRET"),
    }
    calls = [ToolUse(f"web_{name}", {"q": "x"}) for name in answers] + [ToolUse("web_broken", {})]
    wire = McpWire(tools=answers, methods={"tools/list": listing(*answers)})
    with wire, LocalServer(calling(*calls)) as server, client_of(server) as client:
        assert client.run_agent(**SAY, tools=[mantyx_mcp(name="web", url=wire.url)]).text == "Done."
        found = errors_and_results(server)
    assert "no disk" in found[0]
    assert "MCP server 'web' failed with HTTP 500" in found[1]
    assert "tool_input_invalid" in found[2]
    assert "SECRET" not in json.dumps(found)


def test_what_cannot_be_reached_is_logged_and_not_offered(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(call: Call) -> None:
        call.status(401)

    with McpWire(methods={"initialize": refuse, "server/discover": refuse}) as wire, Agent(pages={}) as agent:
        refs = [mantyx_mcp(name="web", url=wire.url), mantyx_a2a(name="hr", agent_card_url=agent.url)]
        seen: List[Any] = []
        model = ScriptedModel([lambda asked: seen.append([tool.name for tool in asked.tools]) or "Done."])
        with LocalServer(model) as server, client_of(server) as client, caplog.at_level(logging.WARNING):
            assert client.run_agent(**SAY, tools=refs).text == "Done."
    assert seen == [[]]
    assert "the mcp tool 'web' is not offered: " in caplog.text
    assert "the a2a tool 'hr' is not offered: " in caplog.text


@pytest.mark.parametrize("end", ["cancel", "stop"])
@pytest.mark.parametrize("where", ["opening", "calling"])
def test_a_run_that_is_to_stop_does_not_wait_for_a_server(end: str, where: str) -> None:
    came = threading.Event()

    def hang(call: Call) -> None:
        came.set()
        call.peer.stay()

    methods = {"tools/list": hang} if where == "opening" else {"tools/list": listing("find")}
    wire = McpWire(tools={"find": hang}, methods=methods)
    with wire, LocalServer(calling(ToolUse("web_find", {"q": "x"}))) as server, client_of(server) as client:
        run = client.start_agent(**SAY, tools=[mantyx_mcp(name="web", url=wire.url)])
        assert came.wait(DEADLINE_S)
        if end == "cancel":
            run.cancel()
            with pytest.raises(MantyxRunError):
                run.result()
        else:
            server.stop()
            run.close()
        assert server.runs[0].wait(DEADLINE_S)


# ------------------------------------------------------------------------------------------- `a2a`


@pytest.mark.parametrize("context", [None, "c-7"])
def test_an_a2a_agent_is_asked_by_the_embedded_server_in_one_conversation(context: Any) -> None:
    answer = in_turn(
        {"message": message_v1("Hello.", contextId=context or "c-1")},
        {"task": task_v1("FAILED", "out of paper")},
    )
    with Agent({"SendMessage": answer}) as agent:
        ref = mantyx_a2a(name="hr", agent_card_url=agent.url, headers={"X-Key": "MARKER"}, context_id=context)
        seen: List[Any] = []
        script = [
            lambda asked: seen.extend(asked.tools) or [ToolUse("hr", {"message": "One"})],
            [ToolUse("hr", {"message": "Two"})],
            "Done.",
        ]
        with LocalServer(ScriptedModel(script)) as server, client_of(server) as client:
            assert client.run_agent(**SAY, tools=[ref]).text == "Done."
            found = errors_and_results(server)
            assert [e["name"] for e in events(server, "tool_result")][:1] == ["hr"]
        assert [call["params"]["message"].get("contextId") for call in agent.calls] == [context, context or "c-1"]
        assert agent.headers_of("SendMessage")["X-Key"] == "MARKER"
    assert seen[0].description == "Delegate a task to Test agent: Answers tests.\n- S: sd"
    assert found[0] == "Hello."
    assert "A2A agent 'hr' failed: out of paper" in found[1]


# ------------------------------------------------------------------------------------------- all together


def test_a_run_with_two_mcp_servers_an_a2a_agent_and_a_function_ends_right_though_a_server_is_killed(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"
    stdio = [sys.executable, "-S", "-E", SERVER, "files", str(log), "echo", "never"]

    def pid() -> int:
        return int(log.read_text().split("started ")[-1].split()[0])

    killer = threading.Thread(target=lambda: None)

    def in_mid_call(call: Any) -> None:
        if call.type == "local_tool_call" and call.name == "files_never":

            def wait_and_kill() -> None:
                wait_until(lambda: '"never"' in log.read_text(), "the call does not come")
                os.kill(pid(), 9)

            nonlocal killer
            killer = threading.Thread(target=wait_and_kill)
            killer.start()

    calls = [
        ToolUse("files_echo", {"text": "from a process"}),
        ToolUse("find", {"q": "x"}),
        ToolUse("hr", {"message": "days?"}),
        ToolUse("own", {}),
        ToolUse("files_never", {}),
        ToolUse("files_echo", {"text": "started again"}),
        ToolUse("find", {"q": "y"}),
    ]
    with (
        McpWire(tools={"find": lambda call: call.result("over HTTP")}, methods={"tools/list": listing("find")}) as wire,
        Agent({"SendMessage": always({"task": task_v1("COMPLETED", "12 days")})}) as agent,
    ):
        refs = [
            define_local_mcp(name="files", command=stdio, prefix=True),
            define_local_mcp(name="web", url=wire.url),
            define_local_a2a(name="hr", agent_card_url=agent.url),
            define_local_tool(name="own", execute=lambda args: "a function"),
        ]
        with LocalServer(calling(*calls)) as server, client_of(server) as client:
            result = client.run_agent(**SAY, tools=refs, on_event=in_mid_call)
            killer.join(DEADLINE_S)
            found = events(server, "local_tool_result_in")
        wait_until(lambda: wire.ended, "the session over HTTP stays")
    assert result.text == "Done."
    assert [item.get("output") for item in found] == [
        "from a process",
        "over HTTP",
        "12 days",
        "a function",
        None,
        "started again",
        "over HTTP",
    ]
    assert found[4]["error"].startswith("MCP server 'files' was killed by SIGKILL during the call")
    assert log.read_text().count('"initialize"') == 2


PROGRAM = """
import importlib, json, sys
import mantyx_sync
from mantyx_sync.local import LocalServer, ScriptedModel, ToolUse
settings = json.loads(sys.argv[1])
for name in settings["modules"]:
    importlib.import_module(name)
refs = [
    mantyx_sync.define_local_mcp(name="files", command=settings["stdio"]),
    mantyx_sync.define_local_mcp(name="web", url=settings["web"]),
    mantyx_sync.define_local_a2a(name="hr", agent_card_url=settings["agent"]),
    mantyx_sync.mantyx_mcp(name="far", url=settings["web"]),
    mantyx_sync.define_local_tool(name="own", execute=lambda args: "own"),
]
calls = [
    ToolUse("echo", {"text": "x"}), ToolUse("find", {"q": "x"}), ToolUse("hr", {"message": "x"}), ToolUse("own", {}),
    ToolUse("far_find", {"q": "x"}),
]
def answer(request):
    return " ".join(message["content"] for message in request.messages if message["role"] == "tool")
script = ScriptedModel([*[[call] for call in calls], answer])
with LocalServer(script) as server, mantyx_sync.MantyxClient(**server.client_settings()) as client:
    print(client.run_agent(system_prompt="x", prompt="y", tools=refs).text)
print(sorted(name for name in sys.modules if name.partition(".")[0] in ("asyncio", "anyio", "httpx", "mcp", "a2a")))
"""


def test_no_event_loop_is_ever_loaded(tmp_path: Path) -> None:
    modules = [
        module.name
        for module in pkgutil.walk_packages(mantyx_sync.__path__, "mantyx_sync.")
        if not module.name.endswith("__main__")
    ]
    assert len(modules) > 100
    stdio = [sys.executable, "-S", "-E", SERVER, "files", str(tmp_path / "log"), "echo"]
    wire = McpWire(tools={"find": lambda call: call.result("http")}, methods={"tools/list": listing("find")})
    with wire, Agent({"SendMessage": always({"message": message_v1("agent")})}) as agent:
        settings = {"modules": modules, "stdio": stdio, "web": wire.url, "agent": agent.url}
        done = subprocess.run(
            [sys.executable, "-X", "dev", "-W", "error", "-c", PROGRAM, json.dumps(settings)],
            env={**os.environ, "PYTHONPATH": str(Path(mantyx_sync.__file__).parent.parent)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["x http agent own http", "[]"]
    assert done.stderr == ""
