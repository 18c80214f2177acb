"""The Python blocks in the README of the platform's own package run with the import line changed.

They are read at test time from the metadata of the installed package, through the interpreter that
`MANTYX_PEER_PYTHON` names, and are known here by their number and by the first call they make. Each runs against the
embedded server; what it sends is compared. `LEFT_OUT` has those that cannot run, and why.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
import types
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import pytest

import mantyx_sync
from mantyx_sync.local import LocalServer, ModelRequest, OAuthApp, ScriptedModel, ServerTool, ToolUse

PEER = os.environ.get("MANTYX_PEER_PYTHON")
HAS_PYDANTIC = importlib.util.find_spec("pydantic") is not None

pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif(not PEER, reason="MANTYX_PEER_PYTHON names no interpreter with the platform's package"),
    pytest.mark.usefixtures("no_leaks"),
]


@dataclass(frozen=True)
class Expected:
    """A block's first call, how often it asks for each route, what it prints, and patterns of its tools' results."""

    first_call: str
    routes: Dict[str, int]
    printed: str = ""
    outputs: Tuple[str, ...] = ()


RUNS: Dict[int, Expected] = {
    1: Expected("run_agent", {"create": 1, "stream": 1, "tool_results": 1}, "Done.\n", ("box-17",)),
    3: Expected("run_agent", {"create": 1, "stream": 1, "tool_results": 1}, "Done.\n", ("box-17",)),
    4: Expected(
        "list_models", {"models": 1, "create": 1, "stream": 1}, "local:scripted\tScript\nplatform:cm6abc123\tOther\n"
    ),
    5: Expected("stream_agent", {"create": 2, "stream": 2}, "Done.\nDone."),
    6: Expected(
        "create_session",
        {"sessions_create": 1, "session_messages": 2, "stream": 2, "tool_results": 2, "session_end": 1},
        "Done.\nDone.\n",
        (r"\d{4}-\d\d-\d\d",) * 2,
    ),
    7: Expected("resume_session", {"session_get": 1}),
    8: Expected("run_agent", {"create": 1, "sessions_create": 1, "session_messages": 1, "stream": 2}),
    9: Expected("list_sessions", {"sessions_list": 1, "session_events": 3}, "{session_id} What day is it? Done.\n"),
    11: Expected("mantyx_a2a", {}),
    13: Expected("mantyx_mcp", {}),
    14: Expected("run_agent", {"create": 2, "stream": 2}),
    15: Expected("run_agent", {"create": 1, "stream": 1}),
    16: Expected("define_local_tool", {}),
    17: Expected("MantyxOAuthClient", {"oauth_revoke": 1}),
}
"""The blocks that run, and what comes of it."""

VERSION = "2026.10.2"
"""Of the page whose blocks these are; another one has other blocks."""

PARTLY_ASYNC = [5]
"""Those of them that end with a loop over an async client, which is left out."""

_ASYNC = "there is no async client"

LEFT_OUT: Dict[int, Tuple[str, str, str]] = {
    2: ("AsyncMantyxClient", _ASYNC, "AsyncMantyxClient"),
    10: ("", "it shows a signature and calls nothing", ""),
    12: ("AsyncMantyxClient", _ASYNC + "; an A2A server is a WSGI app here", "AsyncMantyxClient"),
}
"""The blocks that cannot run: the first call, why, and the name whose import fails."""


@dataclass(frozen=True)
class Block:
    """One block, ready to run."""

    tree: ast.Module
    first_call: str
    needs_pydantic: bool
    is_partly_async: bool

    def run(self, names: Dict[str, Any]) -> None:
        exec(compile(self.tree, "platform readme", "exec", dont_inherit=True), names)


class _Migrated(ast.NodeTransformer):
    """Change the import lines, and nothing else but what a reader has to fill in or to leave out."""

    def visit_Module(self, node: ast.Module) -> ast.Module:
        node.body = [statement for statement in node.body if not isinstance(statement, ast.AsyncFor)]
        self.generic_visit(node)
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.ImportFrom:
        node.module = re.sub(r"^mantyx\b", "mantyx_sync", node.module or "")
        return node

    def visit_Import(self, node: ast.Import) -> ast.Import:
        for alias in node.names:
            if alias.name == "mantyx":
                alias.name, alias.asname = "mantyx_sync", alias.asname or "mantyx"
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        # "mantyx_at_…" stands for the reader's own token.
        if isinstance(node.value, str):
            node.value = node.value.replace("…", "1")
        return node

    def visit_keyword(self, node: ast.keyword) -> ast.keyword:
        # `execute=...` stands for the reader's own handler.
        if node.arg == "execute" and isinstance(node.value, ast.Constant) and node.value.value is ...:
            node.value = ast.copy_location(ast.Name("handler", ast.Load()), node.value)
        self.generic_visit(node)
        return node


def _first_call(tree: ast.Module) -> str:
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    for call in sorted(calls, key=lambda call: (call.lineno, call.col_offset)):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if name not in ("MantyxClient", "print"):
            return name
    return ""


def _block(source: str) -> Block:
    tree = ast.parse(source)
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    migrated = ast.fix_missing_locations(_Migrated().visit(tree))
    is_partly_async = any(isinstance(statement, ast.AsyncFor) for statement in ast.parse(source).body)
    return Block(migrated, _first_call(tree), "pydantic" in imported, is_partly_async)


@pytest.fixture(scope="module")
def blocks() -> Dict[int, Block]:
    assert PEER is not None
    script = (
        "import importlib.metadata, json; page = importlib.metadata.metadata('mantyx-sdk'); "
        "print(json.dumps([page['Version'], page.get_payload()]))"
    )
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    process = subprocess.run([PEER, "-c", script], capture_output=True, text=True, timeout=60, env=env)
    assert process.returncode == 0, process.stderr
    version, page = json.loads(process.stdout)
    if version != VERSION:
        pytest.skip(f"the tables here tell the blocks of mantyx-sdk {VERSION}, not of {version}")
    found: List[str] = re.findall(r"^```py(?:thon)?\s*?\n(.*?)^```\s*?$", page, re.M | re.S)
    return {number: _block(source) for number, source in enumerate(found, 1)}


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Dict[str, Any]]:
    """What a block finds: the environment, and the names that its page takes for granted."""
    file = tmp_path / "hostname"
    file.write_text("box-17")
    arguments: Dict[str, Any] = {"weather": {"city": "Bern"}, "today": {}}

    def play(asked: ModelRequest) -> List[Any]:
        """Call every tool there is once, then answer; in JSON where that is asked for."""
        calls = [ToolUse(tool.name, arguments.get(tool.name, {"path": str(file)})) for tool in asked.tools]
        answer = '{"city": "Bern", "temperature_c": 3.5}' if asked.output_schema else "Done."
        return [calls, answer] if calls else [answer]

    app = OAuthApp("mantyx_oa_1", "mantyx_oas_1", refresh_tokens=["mantyx_rt_1"])
    server = LocalServer(
        ScriptedModel(play),
        api_key="...",
        workspace_slug="acme",
        agents={"agent_cm6abc123": {"systemPrompt": "Stored."}},
        models=[{"id": "local:scripted", "label": "Script"}, {"id": "platform:cm6abc123", "label": "Other"}],
        tools={"tool_cm6abc123": ServerTool(lambda city: f"rain in {city}", name="weather")},
        tokens={"mantyx_at_1": ["runs:read", "runs:write"]},
        oauth_apps=[app],
    )
    with server:
        settings = server.client_settings()
        monkeypatch.setenv("MANTYX_API_KEY", settings["api_key"])
        monkeypatch.setenv("MANTYX_WORKSPACE_SLUG", settings["workspace_slug"])
        monkeypatch.setenv("MANTYX_BASE_URL", settings["base_url"])
        monkeypatch.setenv("MANTYX_OAUTH_CLIENT_ID", app.client_id)
        monkeypatch.setenv("MANTYX_OAUTH_CLIENT_SECRET", app.client_secret)
        module = types.ModuleType("migrated")
        monkeypatch.setitem(sys.modules, "migrated", module)  # where type hints are looked up
        client = mantyx_sync.MantyxClient()
        session = client.create_session(system_prompt="x", metadata={"customer": "acme"})
        session.send("What day is it?")
        oauth = mantyx_sync.MantyxOAuthClient(client_id=app.client_id, client_secret=app.client_secret)
        token = oauth.refresh(refresh_token="mantyx_rt_1")
        oauth.close()
        server.requests.clear()
        vars(module).update(
            os=os,
            server=server,
            client=client,
            session_id=session.id,
            define_local_tool=mantyx_sync.define_local_tool,
            TodayArgs=None,
            handler=lambda _args: "today",
            enqueue_export=lambda _dataset: {"job_id": "j", "status": "pending"},
            stored_refresh_token="mantyx_rt_1",
            token_from_sign_in=token,
        )
        yield vars(module)
        for value in [client, *vars(module).values()]:
            if isinstance(value, (mantyx_sync.MantyxClient, mantyx_sync.MantyxOAuthClient)):
                value.close()


def _run(block: Block, names: Dict[str, Any]) -> None:
    if block.needs_pydantic and not HAS_PYDANTIC:
        with pytest.raises(ModuleNotFoundError, match="pydantic"):
            block.run(names)
        pytest.skip("the block imports pydantic, which is not installed")
    block.run(names)


def test_every_block_runs_or_is_left_out_for_a_reason(blocks: Dict[int, Block]) -> None:
    known = {number: expected.first_call for number, expected in RUNS.items()}
    left_out = {number: first_call for number, (first_call, _, _) in LEFT_OUT.items()}
    assert not set(known) & set(left_out)
    assert {number: block.first_call for number, block in blocks.items()} == {**known, **left_out}
    assert [number for number in RUNS if blocks[number].is_partly_async] == PARTLY_ASYNC


@pytest.mark.parametrize("number", sorted(RUNS))
def test_the_block_runs(
    blocks: Dict[int, Block], names: Dict[str, Any], number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    expected, server = RUNS[number], names["server"]
    _run(blocks[number], names)
    assert Counter(request.route for request in server.requests) == expected.routes
    assert capsys.readouterr().out == expected.printed.format(session_id=names["session_id"])
    assert {run.status for run in server.runs} == {"succeeded"}
    results = [e["data"] for run in server.runs for e in run.events if e["type"] == "local_tool_result_in"]
    assert len(results) == len(expected.outputs)
    assert all(re.fullmatch(pattern, result["output"]) for pattern, result in zip(expected.outputs, results))


def test_the_parsed_answer_is_the_model_class(blocks: Dict[int, Block], names: Dict[str, Any]) -> None:
    _run(blocks[15], names)
    assert names["report"] == names["Weather"](city="Bern", temperature_c=3.5)


def test_the_clients_of_the_oauth_block_work_until_the_grant_is_revoked(
    blocks: Dict[int, Block], names: Dict[str, Any]
) -> None:
    blocks[17].run(names)
    call = {"system_prompt": "x", "prompt": "y"}
    assert names["one_shot"].run_agent(**call).text == "Done."
    for client in (names["client"], names["seeded"]):
        with pytest.raises(mantyx_sync.MantyxOAuthError) as caught:
            client.run_agent(**call)
        assert caught.value.oauth_error == "invalid_grant"


def test_the_blocks_about_tools_that_live_elsewhere_define_them(
    blocks: Dict[int, Block], names: Dict[str, Any]
) -> None:
    blocks[11].run(names)
    blocks[13].run(names)
    tools = [names[name] for name in ("remote_billing", "local_hr", "remote_github", "local_fs_http", "local_fs_stdio")]
    assert [tool.kind for tool in tools] == ["a2a", "a2a_local", "mcp", "mcp_local", "mcp_local"]
    assert all(isinstance(tool, mantyx_sync.ToolRef) for tool in tools)
    assert mantyx_sync.is_local_a2a_tool(names["local_hr"])
    assert names["local_fs_http"].http.url == "http://localhost:8080/mcp"
    stdio = names["local_fs_stdio"].stdio
    assert (stdio.command, list(stdio.args), stdio.env, stdio.cwd) == (
        "mcp-server-filesystem",
        ["."],
        {"FOO": "bar"},
        "/workspace",
    )


@pytest.mark.parametrize("number", sorted(LEFT_OUT))
def test_what_is_left_out_cannot_run(blocks: Dict[int, Block], names: Dict[str, Any], number: int) -> None:
    first_call, _, missing = LEFT_OUT[number]
    if not first_call:
        assert not any(isinstance(node, ast.Call) for node in ast.walk(blocks[number].tree))
        return
    with pytest.raises(ImportError, match=f"'{missing}'"):
        blocks[number].run(names)
