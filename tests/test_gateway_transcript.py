"""The worked transcript of the SpaceFix document, steps 2 to 9: the same requests, the same bytes back."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from typing import Any

import pytest

from mantyx_sync.local import GatewayProject, LocalGateway
from tests import gateway_client
from tests.gateway_client import (
    DEADLINE_S,
    MCP_ACCEPT,
    REGISTRATION,
    Asking,
    FakeAgent,
    Timer,
    ask,
    bearer,
    call,
    request,
)

pytestmark = pytest.mark.usefixtures("no_leaks")

PROJECT_ID = "c497f628-a625-466c-8104-8c79cda1f05d"
UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
TRACE = {
    "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    "tracestate": "vendor=demo",
}
ORDER = {"id": "1", "item": "Widget", "total": 4200}


clock, gateway = gateway_client.clock, gateway_client.gateway  # fixtures


@pytest.fixture
def project(gateway: LocalGateway) -> GatewayProject:
    return gateway.add_project("orders", project_id=PROJECT_ID)


def message(body: str) -> bytes:
    return f"event: message\ndata: {body}\n\n".encode()


def test_the_transcript_from_connecting_to_losing_the_stream(
    gateway: LocalGateway, project: GatewayProject, clock: Timer
) -> None:
    # 2. connect and register
    with FakeAgent(gateway, project.agent_key) as agent:
        assert agent.head == (
            "HTTP/1.1 200 OK\r\n"
            "Content-Type: text/event-stream\r\n"
            "Cache-Control: no-cache\r\n"
            "Connection: keep-alive\r\n"
            "X-Accel-Buffering: no\r\n"
            "Transfer-Encoding: chunked\r\n"
            "\r\n"
        )
        assert re.fullmatch(UUID, agent.id)

        # 3. list the tools, then call one with a trace context
        assert request(gateway, project, "tools/list").body == message(
            '{"result":{"tools":[{"name":"get_order","description":"Look up a single order by its id.",'
            '"inputSchema":{"type":"object","properties":{"id":{"type":"string"}},"required":["id"]}}]},'
            '"jsonrpc":"2.0","id":1}'
        )
        waiting = call(gateway, project, "get_order", {"id": "1"}, request_id=2, headers=TRACE)
        frame = agent.frame().decode()
        match = re.fullmatch(
            f'event: call\ndata: {{"id":"({UUID})","name":"get_order","args":{{"id":"1"}},'
            '"trace":{"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",'
            f'"tracestate":"vendor=demo","requestId":"{UUID}","sentAt":[0-9]{{13}}}}}}\n\n',
            frame,
        )
        assert match is not None, frame

        # 4. post the result, twice
        span = {"handlerMs": 3, "inboundMs": 2, "spanId": "b7ad6b7169203331"}
        posted = agent.answer(match[1], ORDER, span=span)
        assert (posted.status, posted.head.split("\r\n")[0], posted.body) == (204, "HTTP/1.1 204 No Content", b"")
        assert waiting.reply().body == message(
            '{"result":{"content":[{"type":"text","text":"{\\"id\\":\\"1\\",\\"item\\":\\"Widget\\",'
            '\\"total\\":4200}"}]},"jsonrpc":"2.0","id":2}'
        )
        assert agent.answer(match[1], ORDER, span=span).status == 204
        assert [(entry.outcome, entry.span) for entry in gateway.log] == [("ok", span)]

        # 5. a read, a failing call and a prompt in flight at once, answered in another order
        asked = [Asking(gateway, project, "resources/read", {"uri": "orders://all"}, request_id=3)]
        first = agent.frame().decode()
        asked.append(call(gateway, project, "get_order", {"id": "999"}, request_id=4))
        second = agent.frame().decode()
        params = {"name": "summarise_order", "arguments": {"id": "1"}}
        asked.append(Asking(gateway, project, "prompts/get", params, request_id=5))
        third = agent.frame().decode()
        events = [json.loads(text.split("data: ")[1]) for text in (first, second, third)]
        assert [text.split("\n")[0] for text in (first, second, third)] == [
            "event: read",
            "event: call",
            "event: prompt",
        ]
        assert [list(event) for event in events] == [
            ["id", "name", "trace"],
            ["id", "name", "args", "trace"],
            ["id", "name", "args", "trace"],
        ]
        assert len({event["id"] for event in events}) == 3
        posts = [
            agent.answer(events[2]["id"], "Summarise this order politely: Widget"),
            agent.answer(events[1]["id"], ok=False, error="No order 999. Ask the user to confirm the id."),
            agent.answer(events[0]["id"], [ORDER]),
        ]
        assert [post.status for post in posts] == [204, 204, 204]
        assert [waiting.reply().body for waiting in asked] == [
            message(
                '{"result":{"contents":[{"uri":"orders://all","mimeType":"application/json",'
                '"text":"[{\\"id\\":\\"1\\",\\"item\\":\\"Widget\\",\\"total\\":4200}]"}]},"jsonrpc":"2.0","id":3}'
            ),
            message(
                '{"result":{"content":[{"type":"text","text":"No order 999. Ask the user to confirm the id."}],'
                '"isError":true},"jsonrpc":"2.0","id":4}'
            ),
            message(
                '{"result":{"description":"Summarise an order.","messages":[{"role":"user","content":'
                '{"type":"text","text":"Summarise this order politely: Widget"}}]},"jsonrpc":"2.0","id":5}'
            ),
        ]
        assert call(gateway, project, "get_order", {"id": 5}, request_id=6).reply().body == message(
            '{"result":{"content":[{"type":"text","text":"Input validation error: Invalid arguments for tool '
            'get_order: data/id must be string"}],"isError":true},"jsonrpc":"2.0","id":6}'
        )

        # 6. telemetry
        metrics = json.loads(
            '{"uptime":42,"rss":81264640,"heapUsed":14120000,"heapTotal":22000000,"cpu":0.03,"eventLoopDelay":10.4,'
            '"eventLoopUtilization":0.012,"tools":1,"calls":4,"errors":1,"inFlight":0,"peakInFlight":3,"avgMs":12}'
        )
        sample = {"connectionId": agent.id, "metrics": metrics}
        assert ask(gateway, "/agent/telemetry", sample, bearer(project.agent_key)).status == 204
        (connection,) = gateway.agents()
        assert list(connection.telemetry) == [metrics]

        # 7. a time-out: no event came for the refused call, so this one is next
        project.call_timeout = 2
        waiting = call(gateway, project, "get_order", {"id": "1"}, request_id=7)
        late = agent.event()[1]["id"]
        clock.now += 2.018
        gateway.tick()
        assert waiting.reply().body == message(
            '{"result":{"content":[{"type":"text","text":"Request for tool \\"get_order\\" timed out after 2000ms."}],'
            '"isError":true},"jsonrpc":"2.0","id":7}'
        )
        assert agent.answer(late, ORDER).status == 204

        # 8. the stream is dropped with a call in flight
        waiting = call(gateway, project, "get_order", {"id": "1"}, request_id=8)
        agent.frame()
    assert waiting.reply().body == message(
        '{"result":{"content":[{"type":"text","text":"Agent disconnected before returning a result."}],'
        '"isError":true},"jsonrpc":"2.0","id":8}'
    )
    refused = request(gateway, project, "tools/list", request_id=9)
    assert (refused.status, refused.headers["content-type"]) == (503, "application/json")
    assert refused.text == (
        '{"jsonrpc":"2.0","id":9,"error":{"code":-32001,'
        '"message":"No agent connected for server \\"c497f628-a625-466c-8104-8c79cda1f05d\\"."}}'
    )


# ------------------------------------------------------------------------- 9. errors on the agent endpoints

NO_JSON_TYPE = {"Content-Type": "application/x-www-form-urlencoded"}
SAME_URI = {"tools": [], "resources": [{"uri": "a://b", "name": "one"}, {"uri": "a://b", "name": "two"}]}
NONSENSE = {"tools": [{"name": "t", "inputSchema": {"type": "nonsense"}}]}


@pytest.mark.parametrize(
    ("body", "headers", "status", "error"),
    [
        ({}, NO_JSON_TYPE, 415, "Content-Type must be application/json."),
        ({}, {}, 400, '"tools" must be an array.'),
        ({"tools": [{"name": "bad name"}]}, {}, 400, 'Invalid tool name "bad name".'),
        ({"tools": [], "prompts": [{"name": "x y"}]}, {}, 400, 'Invalid prompt "x y".'),
        (
            NONSENSE,
            {},
            400,
            'Schema for "t" is not valid JSON Schema: type must be JSONType or JSONType[]: nonsense',
        ),
        ({"tools": [], "resources": {}}, {}, 400, '"resources" must be an array.'),
        ({"tools": [], "resources": [{"name": "x"}]}, {}, 400, "Invalid resource undefined."),
        (SAME_URI, {}, 400, 'Duplicate resource "a://b".'),
        ({"tools": [], "resources": [{"uri": "a://b", "name": 5}]}, {}, 400, 'Invalid name for resource "a://b".'),
        (b"{bad", {}, 400, "Expected property name or '}' in JSON at position 1 (line 1 column 2)"),
    ],
)
def test_the_transcripts_refused_registrations(
    gateway: LocalGateway, project: GatewayProject, body: Any, headers: dict[str, str], status: int, error: str
) -> None:
    reply = ask(gateway, "/agent/connect", body, {**bearer(project.agent_key), **headers})
    assert (reply.status, reply.text) == (status, json.dumps({"error": error}, separators=(",", ":")))


def test_the_transcripts_refused_keys(gateway: LocalGateway, project: GatewayProject) -> None:
    missing = ask(gateway, "/agent/connect", REGISTRATION, {})
    assert (missing.status, missing.text) == (401, '{"error":"Missing API key."}')
    assert missing.headers["www-authenticate"] == 'Bearer realm="mcp"'
    unknown = ask(gateway, "/agent/connect", REGISTRATION, bearer("nonsense"))
    assert (unknown.status, unknown.text) == (401, '{"error":"Invalid API key."}')
    assert unknown.headers["www-authenticate"] == (
        'Bearer realm="mcp", error="invalid_token", error_description="Invalid API key."'
    )
    client = ask(gateway, "/agent/connect", REGISTRATION, bearer(project.client_key))
    assert client.text == '{"error":"This is a client key. Agents connect with an agent key."}'
    assert (client.status, "www-authenticate" in client.headers) == (403, False)
    ignored = ask(gateway, "/agent/result", {}, bearer(project.agent_key))
    assert (ignored.status, ignored.body) == (204, b"")


# ---------------------------------------------------------------------------------------------- with curl


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_alone_connects_and_answers_as_in_the_document(gateway: LocalGateway, project: GatewayProject) -> None:
    def curl(path: str, key: str, body: Any, *options: str) -> list[str]:
        accept = [part for name, value in MCP_ACCEPT.items() for part in ("-H", f"{name}: {value}")]
        return [
            *("curl", "-s", "-X", "POST", gateway.url + path, "-H", f"Authorization: Bearer {key}"),
            *("-H", "Content-Type: application/json", *accept, *options, "-d", json.dumps(body)),
        ]

    shell_a = subprocess.Popen(
        curl("/agent/connect", project.agent_key, REGISTRATION, "-N", "-i"), stdout=subprocess.PIPE
    )
    assert shell_a.stdout is not None
    try:
        lines = [shell_a.stdout.readline() for _ in range(10)]
        assert lines[:8] == [
            b"HTTP/1.1 200 OK\r\n",
            b"Content-Type: text/event-stream\r\n",
            b"Cache-Control: no-cache\r\n",
            b"Connection: keep-alive\r\n",
            b"X-Accel-Buffering: no\r\n",
            b"Transfer-Encoding: chunked\r\n",
            b"\r\n",
            b"event: ready\n",
        ]
        connection_id = json.loads(lines[8][len("data: ") :])["connectionId"]
        asked = {"jsonrpc": "2.0", "id": 2, "method": "tools/call"}
        params = {"name": "get_order", "arguments": {"id": "1"}}
        shell_b = subprocess.Popen(
            curl(f"/mcp/{project.id}", project.client_key, {**asked, "params": params}), stdout=subprocess.PIPE
        )
        assert shell_a.stdout.readline() == b"event: call\n"
        event = json.loads(shell_a.stdout.readline()[len("data: ") :])
        result = {"connectionId": connection_id, "id": event["id"], "ok": True, "result": ORDER}
        shell_c = subprocess.run(
            curl("/agent/result", project.agent_key, result, "-i"), stdout=subprocess.PIPE, timeout=DEADLINE_S
        )
        assert shell_c.stdout == b"HTTP/1.1 204 No Content\r\n\r\n"
        assert shell_b.communicate(timeout=DEADLINE_S)[0] == message(
            '{"result":{"content":[{"type":"text","text":"{\\"id\\":\\"1\\",\\"item\\":\\"Widget\\",'
            '\\"total\\":4200}"}]},"jsonrpc":"2.0","id":2}'
        )
        gateway.revoke(project.agent_key)  # the stream ends, and curl with it
        assert shell_a.wait(DEADLINE_S) == 0
    finally:
        shell_a.kill()
        shell_a.wait(DEADLINE_S)
        shell_a.stdout.close()
