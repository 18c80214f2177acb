"""The embedded gateway as MCP clients meet it: keys, eras, listings, calls, routing, time-outs and traces."""

from __future__ import annotations

import base64
import json
import re
import threading
from typing import Any

import pytest

from mantyx_sync.local import GatewayProject, LocalGateway
from tests import gateway_client
from tests.gateway_client import (
    MCP_ACCEPT,
    REGISTRATION,
    Asking,
    FakeAgent,
    Reply,
    Timer,
    ask,
    bearer,
    call,
    connected,
    request,
)

pytestmark = pytest.mark.usefixtures("no_leaks")

META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
VALID = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


clock, gateway = gateway_client.clock, gateway_client.gateway  # fixtures


@pytest.fixture
def project(gateway: LocalGateway) -> GatewayProject:
    return gateway.add_project("orders", instructions="Ask for the order's id.")


def post(gateway: LocalGateway, project: GatewayProject, body: Any, key: str | None = None, **headers: str) -> Reply:
    given = {**MCP_ACCEPT, **bearer(key or project.client_key)}
    return ask(
        gateway,
        f"/mcp/{project.id}",
        body,
        {**given, **{name.replace("_", "-"): text for name, text in headers.items()}},
    )


def stateless(
    gateway: LocalGateway,
    project: GatewayProject,
    method: str,
    params: Any = None,
    meta: Any = META,
    **headers: str | None,
) -> Asking:
    """Send a request of the stateless revision."""
    params = dict(params or {})
    name = params.get("uri" if method == "resources/read" else "name")
    if meta is not None:
        params["_meta"] = meta
    given = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method, **({"Mcp-Name": name} if name else {})}
    given.update({name.replace("_", "-"): text for name, text in headers.items()})  # type: ignore[misc]
    return Asking(gateway, project, method, params, headers=given)


def text_of(reply: Reply) -> Any:
    (block,) = reply.message["result"]["content"]
    return block["text"]


# -------------------------------------------------------------------------------------- who is let in


def test_client_and_full_keys_of_the_project_are_for_clients(gateway: LocalGateway, project: GatewayProject) -> None:
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    for key in (project.client_key, project.full_key):
        assert post(gateway, project, ping, key).message == {"result": {}, "jsonrpc": "2.0", "id": 1}
    other = gateway.add_project()
    for key, status, message in [
        (project.agent_key, 403, "This is an agent key. Clients connect with a client key."),
        (other.client_key, 403, "This key belongs to another project."),
        ("nope", 401, "Invalid API key."),
    ]:
        refused = post(gateway, project, ping, key)
        assert (refused.status, refused.json) == (
            status,
            {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": message}},
        )
    assert 'error="invalid_token"' in refused.headers["www-authenticate"]


def test_a_suspended_project_is_closed_to_clients_until_it_is_resumed(
    gateway: LocalGateway, project: GatewayProject
) -> None:
    gateway.suspend_account(project.account, "unpaid invoice")
    refused = request(gateway, project, "ping")
    assert (refused.status, refused.text) == (
        403,
        '{"jsonrpc":"2.0","id":null,"error":{"code":-32003,"message":"This project is suspended: unpaid invoice"}}',
    )
    gateway.resume(project)
    assert request(gateway, project, "ping").status == 200


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT"])
def test_there_are_no_sessions_to_listen_to_or_to_end(
    gateway: LocalGateway, project: GatewayProject, method: str
) -> None:
    refused = ask(gateway, f"/mcp/{project.id}", b"", bearer(project.client_key), method=method)
    assert (refused.status, refused.headers["allow"]) == (405, "POST")
    assert refused.json["error"]["message"] == "Method not allowed."


LEGACY = {"MCP-Protocol-Version": "2025-11-25"}


@pytest.mark.parametrize(
    ("body", "headers", "status", "code"),
    [
        (b"{bad", {}, 400, -32700),
        (b"[]", {}, 400, -32600),
        (b"{}", {}, 400, -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', {}, 400, -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', {}, 400, -32600),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', {}, 400, -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":5}', {}, 400, -32600),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', LEGACY, 400, -32600),
        (b'[{"jsonrpc":"2.0","id":1,"method":"initialize"},{"jsonrpc":"2.0","method":"x"}]', {}, 400, -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping"}', {"Content-Type": "text/plain"}, 415, -32000),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping"}', {"Accept": "application/json"}, 406, -32000),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping"}', {"Accept": "text/event-stream"}, 406, -32000),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping"}', {"MCP-Protocol-Version": "2031-01-01"}, 400, -32022),
        (b" " * (4 * 1024 * 1024 + 1), {}, 413, -32000),
    ],
)
def test_what_is_no_request_is_refused_before_anything_runs(
    gateway: LocalGateway, project: GatewayProject, body: bytes, headers: dict[str, str], status: int, code: int
) -> None:
    refused = ask(gateway, f"/mcp/{project.id}", body, {**MCP_ACCEPT, **bearer(project.client_key), **headers})
    assert (refused.status, refused.json["id"], refused.json["error"]["code"]) == (status, None, code)


@pytest.mark.parametrize("accept", ["*/*", "application/*, text/*", "text/event-stream;q=0.5, application/json"])
def test_wildcards_in_accept_count(gateway: LocalGateway, project: GatewayProject, accept: str) -> None:
    assert post(gateway, project, {"jsonrpc": "2.0", "id": 1, "method": "ping"}, Accept=accept).status == 200


@pytest.mark.parametrize(
    "message",
    [
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}},
        {"jsonrpc": "2.0", "id": 1, "result": {}},
        [{"jsonrpc": "2.0", "method": "notifications/initialized"}],
    ],
)
def test_messages_without_a_request_are_accepted_and_answered_with_nothing(
    gateway: LocalGateway, project: GatewayProject, message: Any
) -> None:
    accepted = post(gateway, project, message)
    assert (accepted.status, accepted.body) == (202, b"")


# --------------------------------------------------------------------------------------------- opening


@pytest.mark.parametrize(
    ("asked", "agreed"),
    [
        *((version, version) for version in ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")),
        ("2026-07-28", "2025-11-25"),
        ("1999-01-01", "2025-11-25"),
        (None, "2025-11-25"),
    ],
)
def test_initialize_agrees_on_a_version_with_or_without_agents(
    gateway: LocalGateway, project: GatewayProject, asked: str | None, agreed: str
) -> None:
    reply = request(gateway, project, "initialize", {"protocolVersion": asked, "capabilities": {}, "clientInfo": {}})
    assert reply.message["result"] == {
        "protocolVersion": agreed,
        "capabilities": {"tools": {}, "resources": {}, "prompts": {}},
        "serverInfo": {"name": "orders", "version": "1.0.0"},
        "instructions": "Ask for the order's id.",
    }
    assert "mcp-session-id" not in reply.headers
    assert reply.headers["content-type"] == "text/event-stream"


def test_discover_tells_a_stateless_client_what_it_needs(gateway: LocalGateway, project: GatewayProject) -> None:
    assert stateless(gateway, project, "server/discover").reply().message["result"] == {
        "resultType": "complete",
        "ttlMs": 0,
        "cacheScope": "private",
        "supportedVersions": ["2026-07-28"],
        "capabilities": {"tools": {}, "resources": {}, "prompts": {}},
        "instructions": "Ask for the order's id.",
        "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "orders", "version": "1.0.0"}},
    }


WITHOUT_VERSION = {name: value for name, value in META.items() if "Capabilities" in name}
WITHOUT_CAPABILITIES = {name: value for name, value in META.items() if "Version" in name}


@pytest.mark.parametrize(
    ("method", "meta", "headers", "status", "code"),
    [
        ("tools/list", None, {}, 400, -32602),
        ("tools/list", WITHOUT_VERSION, {}, 400, -32602),
        ("tools/list", WITHOUT_CAPABILITIES, {}, 400, -32602),
        ("tools/list", {**META, "io.modelcontextprotocol/protocolVersion": "2025-11-25"}, {}, 400, -32020),
        ("tools/list", META, {"Mcp_Method": "tools/call"}, 400, -32020),
        ("tools/list", META, {"Mcp_Method": None}, 400, -32020),
        ("tools/call", META, {"Mcp_Name": "other"}, 400, -32020),
        ("tools/call", META, {"Mcp_Name": None}, 400, -32020),
        ("initialize", META, {}, 404, -32601),
        ("ping", META, {}, 404, -32601),
        ("subscriptions/listen", META, {}, 404, -32601),
    ],
)
def test_a_stateless_request_has_to_carry_what_the_revision_demands(
    gateway: LocalGateway,
    project: GatewayProject,
    method: str,
    meta: Any,
    headers: dict[str, Any],
    status: int,
    code: int,
) -> None:
    params = {"name": "get_order", "arguments": {"id": "1"}} if method == "tools/call" else None
    with connected(gateway, project):
        refused = stateless(gateway, project, method, params, meta, **headers).reply()
    assert (refused.status, refused.json["error"]["code"]) == (status, code)


def test_a_stateless_client_sends_no_responses_and_no_arrays(gateway: LocalGateway, project: GatewayProject) -> None:
    modern = {"MCP-Protocol-Version": "2026-07-28"}
    assert post(gateway, project, {"jsonrpc": "2.0", "id": 1, "result": {}}, **modern).json["error"]["code"] == -32600
    assert post(gateway, project, [{"jsonrpc": "2.0", "method": "x"}], **modern).json["error"]["code"] == -32600
    assert post(gateway, project, {"jsonrpc": "2.0", "method": "notifications/x"}, **modern).status == 202


def test_arguments_that_travel_as_headers_have_to_match(gateway: LocalGateway, project: GatewayProject) -> None:
    schema = {
        "type": "object",
        "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "deep": {"type": "object", "properties": {"n": {"type": "integer", "x-mcp-header": "N"}}},
        },
    }
    region = f"=?base64?{base64.b64encode('Zürich'.encode()).decode()}?="
    params = {"name": "t", "arguments": {"region": "Zürich", "deep": {"n": 5}}}
    with connected(gateway, project, {"tools": [{"name": "t", "inputSchema": schema}]}) as agent:
        for headers in ({}, {"Mcp_Param_Region": region}, {"Mcp_Param_Region": "Zurich", "Mcp_Param_N": "5"}):
            assert stateless(gateway, project, "tools/call", params, **headers).reply().json["error"]["code"] == -32020
        asked = stateless(gateway, project, "tools/call", params, Mcp_Param_Region=region, Mcp_Param_N="5")
        agent.answer(agent.event()[1]["id"], "fine")
        assert text_of(asked.reply()) == "fine"
        plain = {"name": "t", "arguments": {}}
        assert stateless(gateway, project, "tools/call", plain, Mcp_Param_N="5").reply().status == 400


# -------------------------------------------------------------------------------------------- listings


def test_listings_come_from_the_longest_connected_agent_that_is_enabled(
    gateway: LocalGateway, project: GatewayProject
) -> None:
    other = {
        "tools": [{"name": "other", "annotations": {"readOnlyHint": True}}],
        "resources": [{"uri": "a:b"}],
        "prompts": [{"name": "p"}],
    }
    with connected(gateway, project) as first, connected(gateway, project, other) as second:
        assert [agent.id for agent in gateway.agents(project)] == [first.id, second.id]
        assert request(gateway, project, "prompts/list").message["result"] == {"prompts": REGISTRATION["prompts"]}
        assert request(gateway, project, "resources/list").message["result"] == {"resources": REGISTRATION["resources"]}
        templates = request(gateway, project, "resources/templates/list")
        assert templates.message["result"] == {"resourceTemplates": []}
        gateway.disable(gateway.agents()[0])
        (tool,) = request(gateway, project, "tools/list").message["result"]["tools"]
        assert tool == {
            "name": "other",
            "inputSchema": {"type": "object"},
            "annotations": {"readOnlyHint": True},
        }
        gateway.disable(gateway.agents()[1])
        refused = request(gateway, project, "tools/list", request_id="x")
        assert (refused.status, refused.json["id"], refused.json["error"]["code"]) == (503, "x", -32001)
        gateway.enable(gateway.agents()[0])
        assert request(gateway, project, "tools/list").message["result"]["tools"] == REGISTRATION["tools"]


def test_stateless_listings_carry_what_the_revision_adds(gateway: LocalGateway, project: GatewayProject) -> None:
    with connected(gateway, project):
        result = stateless(gateway, project, "tools/list").reply().message["result"]
        assert (result["resultType"], result["ttlMs"], result["cacheScope"]) == ("complete", 0, "private")
        assert result["tools"] == REGISTRATION["tools"]
        refused = stateless(gateway, project, "nonsense").reply()
        assert (refused.status, refused.json["error"]["code"]) == (404, -32601)
    assert stateless(gateway, project, "tools/list").reply().status == 503


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("nonsense", None, -32601),
        ("server/discover", None, -32601),
        ("logging/setLevel", {"level": "debug"}, -32601),
        ("tools/list", {"cursor": ""}, -32602),
        ("tools/list", [], -32602),
        ("tools/call", {"arguments": {}}, -32602),
        ("tools/call", {"name": "nope"}, -32602),
        ("tools/call", {"name": "get_order", "arguments": []}, -32602),
        ("tools/call", {"name": "get_order", "arguments": None}, -32602),
        ("resources/read", {}, -32602),
        ("resources/read", {"uri": "a:nope"}, -32002),
        ("prompts/get", {"name": "nope"}, -32602),
        ("prompts/get", {"name": "summarise_order"}, -32602),
        ("prompts/get", {"name": "summarise_order", "arguments": {"id": 5}}, -32602),
    ],
)
def test_a_request_that_makes_no_sense_ends_in_an_error_on_its_stream(
    gateway: LocalGateway, project: GatewayProject, method: str, params: Any, code: int
) -> None:
    with connected(gateway, project):
        reply = request(gateway, project, method, params, request_id="abc")
    assert (reply.status, reply.message["id"], reply.message["error"]["code"]) == (200, "abc", code)


def test_an_array_of_requests_is_answered_one_by_one_on_one_stream(
    gateway: LocalGateway, project: GatewayProject
) -> None:
    with connected(gateway, project) as agent:
        batch = [
            {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "tools/call",
                "params": {"name": "get_order", "arguments": {"id": "x"}},
            },
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            {"jsonrpc": "2.0", "id": 2, "method": "nonsense"},
            {"jsonrpc": "2.0", "id": 3, "method": "ping"},
        ]
        replies: list[Reply] = []
        asking = threading.Thread(
            target=lambda: replies.append(post(gateway, project, batch, MCP_Protocol_Version="2025-03-26"))
        )
        asking.start()
        agent.answer(agent.event()[1]["id"], "fine")
        asking.join(10)
    messages = [json.loads(part.split("data: ")[1]) for part in replies[0].text.split("\n\n") if part]
    assert [(message["id"], "error" in message) for message in messages] == [(2, True), (3, False), (1, False)]


# ------------------------------------------------------------------------------------ read-only clients


def test_read_only_clients_see_and_call_only_what_reads(gateway: LocalGateway, project: GatewayProject) -> None:
    tools = [
        {"name": "reads", "annotations": {"readOnlyHint": True}},
        {"name": "writes", "annotations": {"readOnlyHint": False}},
        {"name": "silent"},
    ]
    key = project.add_key("client", is_read_only=True)

    def seen() -> list[str]:
        return [tool["name"] for tool in request(gateway, project, "tools/list", key=key).message["result"]["tools"]]

    with connected(gateway, project, {"tools": tools}) as agent:
        assert seen() == ["reads"]
        assert call(gateway, project, "writes", {}, key=key).reply().message["error"]["code"] == -32602
        asked = call(gateway, project, "reads", {}, key=key)
        agent.answer(agent.event()[1]["id"], "fine")
        assert text_of(asked.reply()) == "fine"
        project.mark_tool("silent", "read")
        project.mark_tool("reads", "write")
        assert seen() == ["silent"]
        project.mark_tool("reads", None)
        assert seen() == ["reads", "silent"]
        assert len(request(gateway, project, "tools/list").message["result"]["tools"]) == 3
    with pytest.raises(ValueError, match="is_read_only"):
        project.add_key("agent", is_read_only=True)
    with pytest.raises(ValueError, match="access"):
        project.mark_tool("reads", "maybe")


# ---------------------------------------------------------------------------------------------- results


@pytest.mark.parametrize(
    ("value", "result"),
    [
        ("text", {"content": [{"type": "text", "text": "text"}]}),
        ("", {"content": [{"type": "text", "text": ""}]}),
        (None, {"content": [{"type": "text", "text": "null"}]}),
        ([1, "é"], {"content": [{"type": "text", "text": '[1,"é"]'}]}),
        ({"content": "no array"}, {"content": [{"type": "text", "text": '{"content":"no array"}'}]}),
        ({"content": [], "isError": True, "x": 1}, {"content": [], "isError": True, "x": 1}),
    ],
)
def test_what_a_tool_returned_is_wrapped_for_the_client(
    gateway: LocalGateway, project: GatewayProject, value: Any, result: Any
) -> None:
    with connected(gateway, project) as agent:
        asked = call(gateway, project, "get_order", {"id": "1"})
        agent.answer(agent.event()[1]["id"], value)
        assert asked.reply().message["result"] == result


def test_a_result_that_is_left_out_is_null(gateway: LocalGateway, project: GatewayProject) -> None:
    with connected(gateway, project) as agent:
        asked = call(gateway, project, "get_order", {"id": "1"})
        body = {"connectionId": agent.id, "id": agent.event()[1]["id"], "ok": True}
        assert ask(gateway, "/agent/result", body, bearer(project.agent_key)).status == 204
        assert text_of(asked.reply()) == "null"


def test_resources_and_prompts_are_wrapped_their_own_way(gateway: LocalGateway, project: GatewayProject) -> None:
    registration = {"tools": [], "resources": [{"uri": "a:b", "mimeType": "text/plain"}], "prompts": [{"name": "p"}]}
    own = {"description": "d", "messages": [{"role": "assistant", "content": {"type": "text", "text": "x"}}]}
    with connected(gateway, project, registration) as agent:
        for method, params, value, result in [
            ("resources/read", {"uri": "a:b"}, "text", ["a:b", "text/plain", "text"]),
            ("resources/read", {"uri": "a:b"}, {"k": 1}, ["a:b", "text/plain", '{"k":1}']),
            ("prompts/get", {"name": "p"}, "Do it.", ["Do it."]),
            ("prompts/get", {"name": "p"}, {"k": 1}, ['{"k":1}']),
            ("prompts/get", {"name": "p"}, own, own),
        ]:
            asked = Asking(gateway, project, method, params)
            event, data = agent.event()
            assert (event, "args" in data) == (("read", False) if "uri" in params else ("prompt", True))
            agent.answer(data["id"], value)
            found = asked.reply().message["result"]
            if method == "resources/read":
                (contents,) = found["contents"]
                assert [contents["uri"], contents["mimeType"], contents["text"]] == result
            elif value is own:
                assert found == own
            else:
                assert found == {"messages": [{"role": "user", "content": {"type": "text", "text": result[0]}}]}


@pytest.mark.parametrize(
    ("method", "params", "name"),
    [
        ("resources/read", {"uri": "orders://all"}, 'resource "orders://all"'),
        ("prompts/get", {"name": "summarise_order", "arguments": {"id": "1"}}, 'prompt "summarise_order"'),
    ],
)
def test_failures_of_resources_and_prompts_are_json_rpc_errors(
    gateway: LocalGateway, project: GatewayProject, clock: Timer, method: str, params: Any, name: str
) -> None:
    with connected(gateway, project) as agent:
        failing, late = (Asking(gateway, project, method, params) for _ in range(2))
        agent.answer(agent.event()[1]["id"], ok=False, error="Not today.")
        agent.event()
        clock.now += 30
        gateway.tick()
        errors = {reply.message["error"]["message"] for reply in (failing.reply(), late.reply())}
        assert errors == {"Not today.", f"Request for {name} timed out after 30000ms."}


def test_a_stateless_result_keeps_what_the_agent_passed_through(gateway: LocalGateway, project: GatewayProject) -> None:
    value = {"content": [], "structuredContent": {"a": 1}, "_meta": {"mine": 1}}
    with connected(gateway, project) as agent:
        asked = stateless(gateway, project, "tools/call", {"name": "get_order", "arguments": {"id": "1"}})
        agent.answer(agent.event()[1]["id"], value)
        result = asked.reply().message["result"]
    assert (result["resultType"], result["structuredContent"], result["_meta"]["mine"]) == ("complete", {"a": 1}, 1)
    assert "ttlMs" not in result


# ---------------------------------------------------------------------------------------------- routing


def test_calls_go_round_the_agents_that_serve_the_tool(gateway: LocalGateway, project: GatewayProject) -> None:
    both = {"tools": [{"name": "a"}, {"name": "b"}]}
    with (
        FakeAgent(gateway, project.agent_key, both) as first,
        FakeAgent(gateway, project.agent_key, {"tools": [{"name": "a"}]}) as second,
        FakeAgent(gateway, project.full_key, both) as third,
    ):
        names = {first.id: 1, second.id: 2, third.id: 3}
        asked: list[Asking] = []

        def served(tool: str, times: int) -> list[int]:
            start = len(gateway.log)
            for number in range(times):
                asked.append(call(gateway, project, tool, {}))
                gateway.wait_until(lambda wanted=start + number + 1: len(gateway.log) >= wanted)
            return [names[entry.connection_id or ""] for entry in gateway.log[start:]]

        assert served("a", 5) == [1, 2, 3, 1, 2]
        assert served("b", 3) == [1, 3, 1]  # each tool's calls by themselves
        assert served("a", 1) == [3]
        gateway.disable(gateway.agents()[0])
        assert served("a", 3) == [2, 3, 2]
        assert served("b", 2) == [3, 3]
        gateway.enable(gateway.agents()[0])
        assert served("a", 2) == [3, 1]
        for waiting in asked:
            waiting.wire.sock.close()


def test_a_disabled_agent_finishes_what_it_runs(gateway: LocalGateway, project: GatewayProject) -> None:
    with connected(gateway, project) as agent:
        asked = call(gateway, project, "get_order", {"id": "1"})
        call_id = agent.event()[1]["id"]
        gateway.disable(gateway.agents()[0])
        assert agent.answer(call_id, "fine").status == 204
        assert text_of(asked.reply()) == "fine"


def test_calls_stay_in_their_project(gateway: LocalGateway, project: GatewayProject) -> None:
    other = gateway.add_project()
    with connected(gateway, other), connected(gateway, project, {"tools": [{"name": "mine"}]}):
        assert call(gateway, project, "get_order", {"id": "1"}).reply().message["error"]["code"] == -32602
        assert request(gateway, other, "tools/list").message["result"]["tools"] == REGISTRATION["tools"]


def test_a_client_that_leaves_changes_nothing_for_the_agent(gateway: LocalGateway, project: GatewayProject) -> None:
    with connected(gateway, project) as agent:
        call(gateway, project, "get_order", {"id": "1"}).wire.sock.close()
        assert agent.answer(agent.event()[1]["id"], "fine").status == 204
    assert [entry.outcome for entry in gateway.log] == ["ok"]


def test_an_agent_that_leaves_while_it_is_chosen_gets_no_call(gateway: LocalGateway, project: GatewayProject) -> None:
    with connected(gateway, project):
        board = gateway._board
        next_agent = board.next_agent

        def leave(*args: Any) -> Any:
            chosen = next_agent(*args)
            assert chosen is not None
            board.end(chosen, "Key revoked.")
            return chosen

        board.next_agent = leave  # type: ignore[method-assign]
        answer = gateway.play(project, "get_order", {"id": "1"})
    assert answer["result"]["content"][0]["text"] == "Agent disconnected before returning a result."
    assert [(entry.outcome, entry.call_id) for entry in gateway.log] == [("lost", None)]
    assert board.calls_under_way == 0


def test_a_cached_result_is_answered_without_the_agent(
    gateway: LocalGateway, project: GatewayProject, clock: Timer
) -> None:
    project.cache_tool("get_order", 60)
    with connected(gateway, project) as agent:

        def through(arguments: Any, **answer: Any) -> Any:
            asked = call(gateway, project, "get_order", arguments)
            agent.answer(agent.event()[1]["id"], **answer)
            return text_of(asked.reply())

        assert through({"id": "1"}, ok=False, error="down") == "down"  # a failure is not kept
        assert through({"id": "1"}, result="one") == "one"
        assert text_of(call(gateway, project, "get_order", {"id": "1"}).reply()) == "one"
        assert through({"id": "2"}, result="two") == "two"
        clock.now += 61
        gateway.tick()
        assert agent.frame() == b": ping\n\n"
        agent.frames = b""
        assert through({"id": "1"}, result="newer") == "newer"
        project.cache_tool("get_order", None)
        assert through({"id": "1"}, result="newest") == "newest"
    assert [entry.outcome for entry in gateway.log] == ["error", "ok", "cached", "ok", "ok", "ok"]


def test_the_playground_calls_without_a_trace(gateway: LocalGateway, project: GatewayProject) -> None:
    assert gateway.play(project, "get_order")["error"]["code"] == -32001
    with connected(gateway, project) as agent:
        results: list[Any] = []
        playing = threading.Thread(target=lambda: results.append(gateway.play(project, "get_order", {"id": "1"})))
        playing.start()
        event, data = agent.event()
        assert (event, sorted(data)) == ("call", ["args", "id", "name"])
        agent.answer(data["id"], "fine")
        playing.join(10)
        assert results == [{"result": {"content": [{"type": "text", "text": "fine"}]}}]
        refused = gateway.play(project, "get_order", {"id": 5})
        assert "data/id must be string" in refused["result"]["content"][0]["text"]
        assert gateway.play(project, "a:nope", kind="read")["error"]["code"] == -32002
    with pytest.raises(ValueError, match="kind"):
        gateway.play(project, "x", kind="tool")


# --------------------------------------------------------------------------------------------- time-outs


@pytest.mark.parametrize("seconds", [1, 2.5, 30])
def test_a_project_decides_how_long_its_clients_wait(
    gateway: LocalGateway, project: GatewayProject, clock: Timer, seconds: float
) -> None:
    project.call_timeout = seconds
    with connected(gateway, project) as agent:
        asked = call(gateway, project, "get_order", {"id": "1"})
        call_id = agent.event()[1]["id"]
        project.call_timeout = 30  # what is under way keeps what it had
        clock.now += seconds - 0.001
        gateway.tick()
        assert gateway.log[0].outcome is None
        clock.now += 0.001
        gateway.tick()
        assert text_of(asked.reply()) == f'Request for tool "get_order" timed out after {round(seconds * 1000)}ms.'
        assert agent.answer(call_id, "late").status == 204
    assert [entry.outcome for entry in gateway.log] == ["timeout"]


@pytest.mark.parametrize("seconds", [0.9, 30.1, 0, -1, True, float("nan")])
def test_call_timeouts_out_of_range_are_refused(gateway: LocalGateway, project: GatewayProject, seconds: float) -> None:
    with pytest.raises(ValueError, match="call_timeout must be a number of seconds from 1 to 30"):
        project.call_timeout = seconds
    with pytest.raises(ValueError, match="call_timeout"):
        LocalGateway(call_timeout=seconds)


# ------------------------------------------------------------------------------------------------ traces


@pytest.mark.parametrize(
    ("traceparent", "is_passed_on"),
    [
        (VALID, True),
        (VALID[:-2] + "00", True),
        ("cc" + VALID[2:] + "-more", True),
        ("00" + VALID[2:] + "-more", False),
        ("ff" + VALID[2:], False),
        (VALID.upper(), False),
        (VALID.replace("4bf92f3577b34da6a3ce929d0e0e4736", "0" * 32), False),
        (VALID.replace("00f067aa0ba902b7", "0" * 16), False),
        (VALID[:-1], False),
        ("nonsense", False),
        (None, False),
    ],
)
def test_a_valid_traceparent_is_passed_on_and_any_other_replaced(
    gateway: LocalGateway, project: GatewayProject, traceparent: str | None, is_passed_on: bool
) -> None:
    headers = {"tracestate": "a=" + "x" * 600, **({} if traceparent is None else {"traceparent": traceparent})}
    with connected(gateway, project) as agent:
        call(gateway, project, "get_order", {"id": "1"}, headers=headers).wire.sock.close()
        trace = agent.event()[1]["trace"]
    if is_passed_on:
        assert trace["traceparent"] == traceparent
        assert trace["tracestate"] == "a=" + "x" * 510
    else:
        assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-01", trace["traceparent"])
        assert trace["traceparent"] != traceparent
        assert "tracestate" not in trace
    assert gateway.log[0].request_id == trace["requestId"]
    assert gateway.log[0].trace == trace


def test_a_stateless_client_may_send_its_trace_in_meta(gateway: LocalGateway, project: GatewayProject) -> None:
    params = {"name": "get_order", "arguments": {"id": "1"}}
    meta = {**META, "traceparent": VALID, "tracestate": "v=1"}
    with connected(gateway, project) as agent:
        stateless(gateway, project, "tools/call", params, meta).wire.sock.close()
        trace = agent.event()[1]["trace"]
    assert (trace["traceparent"], trace["tracestate"]) == (VALID, "v=1")


# -------------------------------------------------------------------------------------------- arguments


def test_bad_settings_are_refused_with_a_sentence(gateway: LocalGateway, project: GatewayProject) -> None:
    for settings, message in [
        ({"plan": "gold"}, "plan must be one of free or a GatewayPlan, got 'gold'"),
        ({"ping_interval": 0}, "ping_interval must be a positive number"),
        ({"host": "0.0.0.0"}, "host must be a loopback address"),
    ]:
        with pytest.raises(ValueError, match=re.escape(message)):
            LocalGateway(**settings)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="is taken"):
        gateway.add_project(project_id=project.id)
    with pytest.raises(ValueError, match="kind must be one of agent, client, full"):
        project.add_key("admin")
    with pytest.raises(TimeoutError, match="2 connected agents"):
        gateway.wait_for_agents(2, timeout=0.01)
    with pytest.raises(ValueError, match="how must be fin or rst"):
        gateway.cut(None, "end")  # type: ignore[arg-type]


def test_no_repr_shows_a_key(gateway: LocalGateway, project: GatewayProject) -> None:
    with connected(gateway, project) as agent:
        shown = repr((gateway, project, gateway.agents(), gateway.agents()[0].key))
        assert agent.id not in shown
        assert not [key for key in (project.agent_key, project.client_key, project.full_key) if key in shown]
