"""The embedded gateway as agents meet it: registration, keys, limits, results, telemetry, and the end of a stream."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from mantyx_sync.local import GatewayPlan, GatewayProject, LocalGateway
from mantyx_sync.local.faults import cut, hold_answer, lose_answer, silent
from mantyx_sync.local.gateway_registration import FREE, Registration, Unregistrable
from tests import gateway_client
from tests.gateway_client import (
    REGISTRATION,
    FakeAgent,
    Timer,
    Wire,
    ask,
    bearer,
    call,
    connected,
    read_reply,
    request,
)
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("no_leaks")


clock, gateway = gateway_client.clock, gateway_client.gateway  # fixtures


@pytest.fixture
def project(gateway: LocalGateway) -> GatewayProject:
    return gateway.add_project("orders")


def connect(gateway: LocalGateway, project: GatewayProject, body: Any, **headers: str) -> Any:
    return ask(gateway, "/agent/connect", body, {**bearer(project.agent_key), **headers})


def tool_named(name: Any, **fields: Any) -> dict[str, Any]:
    return {"tools": [{"name": name, **fields}]}


# ------------------------------------------------------------------------------------------ registration

LONG_URI = "a://" + "x" * 2045


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ([], '"tools" must be an array.'),
        ({"tools": None}, '"tools" must be an array.'),
        ({"tools": [], "resources": None}, '"resources" must be an array.'),
        ({"tools": [], "prompts": "x"}, '"prompts" must be an array.'),
        # the three arrays in this order, before anything in them
        ({"tools": [5], "resources": 5, "prompts": 5}, '"resources" must be an array.'),
        # prompts before resources before tools
        ({"tools": [5], "resources": [5], "prompts": [5]}, 'Invalid prompt "undefined".'),
        ({"tools": [5], "resources": [5], "prompts": []}, "Invalid resource undefined."),
        ({"tools": [], "prompts": [{"name": "p", "arguments": {}}]}, 'Invalid prompt "p".'),
        ({"tools": [], "prompts": [{"name": "p", "arguments": None}]}, 'Invalid prompt "p".'),
        ({"tools": [], "prompts": [{"name": "x" * 65}]}, f'Invalid prompt "{"x" * 65}".'),
        ({"tools": [], "prompts": [{"name": ["a", 1]}]}, 'Invalid prompt "a,1".'),
        ({"tools": [], "resources": [{"uri": ""}]}, "Invalid resource ."),
        ({"tools": [], "resources": [{"uri": 5}]}, "Invalid resource 5."),
        ({"tools": [], "resources": [None]}, "Invalid resource undefined."),
        ({"tools": [], "resources": [{"uri": LONG_URI}]}, f"Invalid resource {LONG_URI}."),
        ({"tools": [], "resources": [{"uri": "a:", "name": None}]}, 'Invalid name for resource "a:".'),
        ({"tools": [], "resources": [{"uri": f"a:{i}"} for i in range(1001)]}, "Too many resources: limit is 1000."),
        ({"tools": [{"name": f"t{i}"} for i in range(257)]}, "Too many tools: limit is 256."),
        (tool_named(""), 'Invalid tool name "".'),
        (tool_named("é"), 'Invalid tool name "é".'),
        (tool_named("a.b"), 'Invalid tool name "a.b".'),
        (tool_named("x" * 65), f'Invalid tool name "{"x" * 65}".'),
        (tool_named({}), 'Invalid tool name "[object Object]".'),
        ({"tools": [None]}, 'Invalid tool name "undefined".'),
        (tool_named("t", inputSchema={"description": "x" * 65_519}), 'Schema for "t" exceeds 65536 bytes.'),
        (tool_named("t", inputSchema=5), 'Schema for "t" is not valid JSON Schema: schema must be object'),
        (
            tool_named("t", inputSchema={"required": 1}),
            'Schema for "t" is not valid JSON Schema: required value must be ["array"]',
        ),
        (
            tool_named("get_order", annotations={"readOnlyHint": "yes"}),
            'Annotation "readOnlyHint" for "get_order" must be true or false.',
        ),
        (
            tool_named("t", annotations={"idempotentHint": None}),
            'Annotation "idempotentHint" for "t" must be true or false.',
        ),
        (
            tool_named("t", annotations={"title": "x" * 201}),
            'Annotation "title" for "t" must be a string of at most 200 characters.',
        ),
        (tool_named("t", annotations=[]), 'Annotations for "t" must be an object.'),
    ],
)
def test_a_registration_is_refused_for_the_first_thing_that_is_wrong(body: Any, error: str) -> None:
    with pytest.raises(Unregistrable) as caught:
        Registration.read(body, FREE)
    assert str(caught.value) == error


def test_a_registration_at_every_limit_is_taken() -> None:
    registration = Registration.read(
        {
            "tools": [{"name": f"t{i}"} for i in range(255)]
            + [{"name": "-_" + "x" * 62, "inputSchema": {"description": "x" * 65_518}}],
            "resources": [{"uri": f"a:{i}"} for i in range(999)] + [{"uri": LONG_URI[:-1]}],
            "prompts": [{"name": "p" * 64, "arguments": []}],
        },
        FREE,
    )
    assert [len(registration.tools), len(registration.resources), len(registration.prompts)] == [256, 1000, 1]


def test_of_two_tools_with_one_name_the_later_replaces_the_earlier() -> None:
    tools = [{"name": "a", "description": "old"}, {"name": "b"}, {"name": "a", "description": "new"}]
    registration = Registration.read({"tools": tools}, FREE)
    assert [(tool.name, tool.description) for tool in registration.tools.values()] == [("a", "new"), ("b", None)]


def test_what_is_not_documented_is_dropped_and_what_is_missing_is_filled_in() -> None:
    hints = {"title": "Get", "readOnlyHint": True, "openWorldHint": False, "color": "red"}
    registration = Registration.read(
        {
            "tools": [{"name": "t", "annotations": hints, "icons": []}],
            "resources": [{"uri": "a:b", "size": 5}],
            "prompts": [{"name": "p", "arguments": [{"name": "x", "type": "string"}, 5]}],
        },
        FREE,
    )
    assert registration.tools["t"].to_listing() == {
        "name": "t",
        "inputSchema": {"type": "object"},
        "annotations": {"title": "Get", "readOnlyHint": True, "openWorldHint": False},
    }
    listing = {"uri": "a:b", "name": "a:b", "mimeType": "application/json"}
    assert registration.resources["a:b"].to_listing() == listing
    assert registration.prompts["p"].to_listing() == {"name": "p", "arguments": [{"name": "x"}]}


# ----------------------------------------------------------------------------------- checks in their order


def test_each_check_comes_before_the_next(gateway: LocalGateway, clock: Timer) -> None:
    plan = GatewayPlan(name="Tiny", max_connects_per_minute=3, max_connections=1)
    project = gateway.add_project(plan=plan)
    wrong_type = {"Content-Type": "text/plain"}
    gateway.suspend(project, "unpaid")
    # The key before the suspension, the suspension before the rate limit and the type.
    assert ask(gateway, "/agent/connect", b"{bad", {**bearer("nope"), **wrong_type}).status == 401
    for _ in range(5):
        refused = connect(gateway, project, b"{bad", **wrong_type)
        assert (refused.status, refused.text) == (
            403,
            '{"jsonrpc":"2.0","id":null,"error":{"code":-32003,"message":"This project is suspended: unpaid"}}',
        )
    gateway.resume(project)
    # A failed attempt spends one of the attempts a minute.
    large = b'{"tools":"' + b"x" * (512 * 1024) + b'"'
    assert connect(gateway, project, b"{bad", **wrong_type).status == 415
    refused = connect(gateway, project, large)
    assert (refused.status, refused.text) == (413, '{"error":"request entity too large"}')
    with FakeAgent(gateway, project.agent_key):
        limited = connect(gateway, project, b"{bad", **wrong_type)
        assert (limited.status, limited.text) == (429, '{"error":"Rate limit exceeded: 3 requests per minute."}')
        assert limited.headers["retry-after"] == "60"
        clock.now += 59.5
        assert connect(gateway, project, {}).headers["retry-after"] == "1"
        clock.now += 0.5
        # What was registered is looked at before the connections are counted.
        assert connect(gateway, project, tool_named("a b")).status == 400
        capped = connect(gateway, project, REGISTRATION)
        assert (capped.status, capped.text) == (
            429,
            '{"error":"Too many agent connections: the Tiny plan allows 1."}',
        )
        assert "retry-after" not in capped.headers


def test_a_registration_of_exactly_512_kb_is_read(gateway: LocalGateway, project: GatewayProject) -> None:
    body = json.dumps({"tools": "x"}).encode()
    assert connect(gateway, project, body + b" " * (512 * 1024 - len(body))).status == 400
    assert connect(gateway, project, body + b" " * (512 * 1024 - len(body) + 1)).status == 413


@pytest.mark.parametrize(
    ("content_type", "is_json"),
    [
        ("application/json", True),
        ("Application/JSON; charset=utf-8", True),
        ("application/jsonp", False),
        ("application/vnd.api+json", False),
        ("", False),
    ],
)
@pytest.mark.parametrize("path", ["connect", "result", "telemetry"])
def test_bodies_have_to_be_labelled_as_json(
    gateway: LocalGateway, project: GatewayProject, path: str, content_type: str, is_json: bool
) -> None:
    headers = {**bearer(project.agent_key), "Content-Type": content_type}
    reply = ask(gateway, f"/agent/{path}", {}, headers)
    assert (reply.status == 415) is not is_json
    assert is_json or reply.text == '{"error":"Content-Type must be application/json."}'


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/agent/connect", 405), ("POST", "/agent/nothing", 404), ("GET", "/", 404), ("POST", "/agent", 404)],
)
def test_what_is_not_there_is_said_to_be_missing(gateway: LocalGateway, method: str, path: str, status: int) -> None:
    assert ask(gateway, path, {}, {}, method=method).status == status


def test_a_request_that_is_no_http_gets_an_error_in_the_gateways_form(gateway: LocalGateway) -> None:
    with Wire(gateway) as wire:
        wire.sock.sendall(b"nonsense\r\n\r\n")
        reply = read_reply(wire)
    assert (reply.status, list(reply.json)) == (400, ["error"])


# ------------------------------------------------------------------------------------------------- keys


@pytest.mark.parametrize(
    ("header", "error"),
    [
        (None, "Missing API key."),
        ("", "Missing API key."),
        ("Bearer", "Missing API key."),
        ("Bearer ", "Missing API key."),
        ("bearer {key}", "Missing API key."),
        ("Basic {key}", "Missing API key."),
        ("{key}", "Missing API key."),
        ("Bearer nope", "Invalid API key."),
    ],
)
def test_the_key_has_to_be_sent_as_documented(
    gateway: LocalGateway, project: GatewayProject, header: str | None, error: str
) -> None:
    headers = {} if header is None else {"Authorization": header.format(key=project.agent_key)}
    for path in ("connect", "result", "telemetry"):
        reply = ask(gateway, f"/agent/{path}", {}, headers)
        assert (reply.status, reply.json) == (401, {"error": error})


def test_only_rejected_keys_count_towards_the_budget_of_an_address(
    gateway: LocalGateway, project: GatewayProject, clock: Timer
) -> None:
    for _ in range(40):
        assert ask(gateway, "/agent/result", {}, {}).status == 401
        assert ask(gateway, "/agent/result", {}, bearer(project.agent_key)).status == 204
        assert ask(gateway, "/agent/result", {}, bearer(project.client_key)).status == 403
    for number in range(30):
        clock.now += 0.5
        assert ask(gateway, "/agent/result", {}, bearer(f"no{number}")).status == 401
    limited = ask(gateway, "/agent/telemetry", {}, bearer("no"))
    assert (limited.status, limited.text) == (429, '{"error":"Too many failed authentication attempts."}')
    assert limited.headers["retry-after"] == "46"
    # A key that works, and another address, are not held responsible.
    assert ask(gateway, "/agent/result", {}, bearer(project.full_key)).status == 204
    assert ask(gateway, "/agent/result", {}, bearer("no"), source="127.0.0.2").status == 401
    clock.now += 46
    assert ask(gateway, "/agent/connect", {}, bearer("no")).status == 401


def test_revoking_a_key_ends_the_streams_that_were_opened_with_it(
    gateway: LocalGateway, project: GatewayProject
) -> None:
    second = project.add_key("agent")
    with FakeAgent(gateway, project.agent_key) as first, FakeAgent(gateway, second) as other:
        gateway.revoke(project.agent_key)
        assert first.stream_ended()
        assert [agent.id for agent in gateway.agents()] == [other.id]
        assert connect(gateway, project, REGISTRATION).json == {"error": "Invalid API key."}


def test_a_key_that_expires_ends_its_streams(gateway: LocalGateway, project: GatewayProject, clock: Timer) -> None:
    key = project.add_key("agent", expires_in=60)
    with FakeAgent(gateway, key) as agent:
        clock.now += 60
        gateway.tick()
        while True:  # pings that were due as well
            try:
                assert agent.frame() == b": ping\n\n"
            except EOFError:
                break
        assert gateway.agents() == []
    assert ask(gateway, "/agent/connect", REGISTRATION, bearer(key)).status == 401


def test_rotating_a_key_gives_the_project_a_new_one(gateway: LocalGateway, project: GatewayProject) -> None:
    old = project.agent_key
    with connected(gateway, project) as agent:
        new = gateway.rotate(old)
        assert agent.stream_ended()
    assert (new != old, project.agent_key) == (True, new)
    assert ask(gateway, "/agent/result", {}, bearer(old)).status == 401
    assert ask(gateway, "/agent/result", {}, bearer(new)).status == 204
    with pytest.raises(KeyError):
        gateway.revoke("never made")


# ------------------------------------------------------------------------------- what ends a stream, in words

ENDINGS = {
    "Agent disconnected before returning a result.": lambda gateway, project: gateway.cut(gateway.agents()[0], "rst"),
    "Key revoked.": lambda gateway, project: gateway.revoke(project.agent_key),
    "Key rotated.": lambda gateway, project: gateway.rotate(project.agent_key),
    "Key expired.": lambda gateway, project: gateway.expire(project.agent_key),
    "Project deleted.": lambda gateway, project: gateway.delete(project),
    "Account deleted.": lambda gateway, project: gateway.delete_account(project.account),
    "Project suspended.": lambda gateway, project: gateway.suspend(project),
    "Account suspended.": lambda gateway, project: gateway.suspend_account(project.account),
}


@pytest.mark.parametrize("message", ENDINGS)
def test_calls_under_way_end_with_the_reason_their_stream_did(
    gateway: LocalGateway, project: GatewayProject, message: str
) -> None:
    bystander = gateway.add_project(account="another")
    with connected(gateway, project) as agent, connected(gateway, bystander) as untouched:
        waiting = [call(gateway, project, "get_order", {"id": "1"}) for _ in range(2)]
        reading = call(gateway, bystander, "get_order", {"id": "1"})
        events = [agent.event(), agent.event(), untouched.event()]
        ENDINGS[message](gateway, project)
        for asked in waiting:
            result = asked.reply().message["result"]
            assert result == {"content": [{"type": "text", "text": message}], "isError": True}
        assert untouched.answer(events[2][1]["id"], "fine").status == 204
        assert reading.reply().message["result"]["content"][0]["text"] == "fine"
    assert sorted(entry.outcome or "" for entry in gateway.log) == ["lost", "lost", "ok"]


def test_a_shut_down_lets_calls_finish_and_takes_no_new_ones(gateway: LocalGateway, project: GatewayProject) -> None:
    with connected(gateway, project) as agent:
        waiting = call(gateway, project, "get_order", {"id": "1"})
        call_id = agent.event()[1]["id"]
        stopping = threading.Thread(target=gateway.shutdown)
        stopping.start()
        try:
            gateway.wait_until(lambda: gateway.is_draining)
            refused = connect(gateway, project, REGISTRATION)
            assert (refused.status, refused.text) == (503, '{"error":"Service is shutting down."}')
            assert request(gateway, project, "tools/list").status == 503
            sample = {"connectionId": agent.id, "metrics": {"uptime": 1}}
            assert ask(gateway, "/agent/telemetry", sample, bearer(project.agent_key)).status == 204
            assert agent.answer(call_id, "done").status == 204
            assert waiting.reply().message["result"]["content"][0]["text"] == "done"
            assert agent.stream_ended()
        finally:
            stopping.join(10)


def test_a_shut_down_that_waits_no_longer_fails_the_calls(gateway: LocalGateway, project: GatewayProject) -> None:
    with connected(gateway, project) as agent:
        waiting = call(gateway, project, "get_order", {"id": "1"})
        agent.event()
        gateway.shutdown(drain=0)
        assert waiting.reply().message["result"]["content"][0]["text"] == "Service is shutting down."
        assert agent.stream_ended()


def test_a_gateway_that_is_started_again_is_where_it_was_and_knows_its_projects(
    gateway: LocalGateway, project: GatewayProject
) -> None:
    url = gateway.url
    with connected(gateway, project):
        gateway.stop()
    gateway.start()
    assert (gateway.url, gateway.agents()) == (url, [])
    with connected(gateway, project):
        assert request(gateway, project, "tools/list").status == 200


# ------------------------------------------------------------------------------------- results, telemetry


def test_results_that_fit_no_call_are_ignored_with_204(gateway: LocalGateway, project: GatewayProject) -> None:
    other = gateway.add_project()
    with connected(gateway, project) as agent, connected(gateway, other) as foreign:
        waiting = call(gateway, project, "get_order", {"id": "1"})
        call_id = agent.event()[1]["id"]
        right = {"connectionId": agent.id, "id": call_id, "ok": True, "result": "right"}
        for key, body in [
            (project.agent_key, {}),
            (project.agent_key, []),
            (project.agent_key, {**right, "connectionId": "nope"}),
            (project.agent_key, {**right, "connectionId": foreign.id}),
            (project.agent_key, {**right, "id": "nope"}),
            (project.agent_key, {**right, "id": 5}),
            (other.agent_key, right),
            (other.agent_key, {**right, "connectionId": foreign.id}),
        ]:
            reply = ask(gateway, "/agent/result", body, bearer(key))
            assert (reply.status, reply.body, "content-type" in reply.headers) == (204, b"", False)
        assert gateway.log[0].outcome is None
        # Another key of the project may answer.
        assert ask(gateway, "/agent/result", right, bearer(project.full_key)).status == 204
        assert agent.answer(call_id, "again", ok=False).status == 204
        assert waiting.reply().message["result"]["content"][0]["text"] == "right"


def test_a_result_that_cannot_be_read_leaves_the_call_open(gateway: LocalGateway, project: GatewayProject) -> None:
    with connected(gateway, project) as agent:
        waiting = call(gateway, project, "get_order", {"id": "1"})
        call_id = agent.event()[1]["id"]
        large = agent.answer(call_id, "x" * (4 * 1024 * 1024))
        assert (large.status, large.text) == (413, '{"error":"request entity too large"}')
        malformed = ask(gateway, "/agent/result", b'{"id"', bearer(project.agent_key))
        assert (malformed.status, malformed.json) == (
            400,
            {"error": "Expected ':' after property name in JSON at position 5 (line 1 column 6)"},
        )
        assert gateway.log[0].outcome is None
        padding = 4 * 1024 * 1024 - len(
            json.dumps({"connectionId": agent.id, "id": call_id, "ok": True, "result": ""}, separators=(",", ":"))
        )
        assert agent.answer(call_id, "x" * padding).status == 204  # exactly 4 MB
        assert len(waiting.reply().message["result"]["content"][0]["text"]) == padding


@pytest.mark.parametrize(
    ("span", "kept"),
    [
        ({"handlerMs": 0, "inboundMs": 3_600_000, "spanId": "b7ad6b7169203331"}, "handlerMs inboundMs spanId"),
        ({"handlerMs": 2.5, "inboundMs": -1, "spanId": "B7AD6B7169203331"}, "handlerMs"),
        ({"handlerMs": 3_600_001, "inboundMs": "2", "spanId": "b7ad6b716920333"}, ""),
        ({"handlerMs": True, "inboundMs": None, "spanId": 5, "other": 1}, ""),
        ([], ""),
        ("x", ""),
        (None, ""),
    ],
)
def test_parts_of_a_span_that_are_out_of_range_are_dropped(
    gateway: LocalGateway, project: GatewayProject, span: Any, kept: str
) -> None:
    with connected(gateway, project) as agent:
        waiting = call(gateway, project, "get_order", {"id": "1"})
        assert agent.answer(agent.event()[1]["id"], "fine", span=span).status == 204
        assert waiting.reply().message["result"]["content"][0]["text"] == "fine"
    assert gateway.log[0].span == {name: span[name] for name in kept.split()}


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"error": "Ask again."}, "Ask again."),
        ({}, "Tool failed."),
        ({"error": 5}, "Tool failed."),
    ],
)
@pytest.mark.parametrize("ok", [False, None, 1, "true"])
def test_anything_but_true_is_a_failure(
    gateway: LocalGateway, project: GatewayProject, ok: Any, fields: dict[str, Any], text: str
) -> None:
    with connected(gateway, project) as agent:
        waiting = call(gateway, project, "get_order", {"id": "1"})
        agent.answer(agent.event()[1]["id"], "ignored", ok=ok, **fields)
        assert waiting.reply().message["result"] == {"content": [{"type": "text", "text": text}], "isError": True}
    assert [(entry.outcome, entry.error) for entry in gateway.log] == [("error", text)]


def test_samples_are_kept_for_live_connections_of_the_project(gateway: LocalGateway, project: GatewayProject) -> None:
    other = gateway.add_project()
    with connected(gateway, project) as agent:
        for key, body in [
            (project.agent_key, {"connectionId": agent.id, "metrics": {"uptime": 1.5, "rss": "x", "cpu": True}}),
            (project.agent_key, {"connectionId": agent.id}),
            (other.agent_key, {"connectionId": agent.id, "metrics": {"uptime": 9}}),
            (project.agent_key, {"connectionId": "nope", "metrics": {"uptime": 9}}),
            (project.agent_key, b"{bad"),
            (project.agent_key, []),
        ]:
            assert ask(gateway, "/agent/telemetry", body, bearer(key)).status == 204
        assert ask(gateway, "/agent/telemetry", b" " * (4 * 1024 * 1024 + 1), bearer(project.agent_key)).status == 413
        (connection,) = gateway.agents(project)
        names = "uptime rss heapUsed heapTotal cpu eventLoopDelay eventLoopUtilization tools calls errors inFlight"
        zeros = dict.fromkeys([*names.split(), "peakInFlight", "avgMs"], 0)
        assert list(connection.telemetry) == [{**zeros, "uptime": 1.5}, zeros]


# ------------------------------------------------------------------------------------- the stream itself


def test_a_ping_goes_out_every_25_seconds_whatever_else_does(
    gateway: LocalGateway, project: GatewayProject, clock: Timer
) -> None:
    with connected(gateway, project) as agent:
        for _ in range(3):
            clock.now += 24
            gateway.tick()
            call(gateway, project, "get_order", {"id": "1"}).wire.sock.close()
            assert agent.event()[0] == "call"
            clock.now += 1
            gateway.tick()
            assert agent.frame() == b": ping\n\n"


def test_an_idle_stream_keeps_nothing_that_was_sent(gateway: LocalGateway, project: GatewayProject) -> None:
    with connected(gateway, project) as agent:
        (connection,) = gateway.agents()
        for _ in range(20):
            waiting = call(gateway, project, "get_order", {"id": "1"})
            agent.answer(agent.event()[1]["id"], "x")
            waiting.reply()
        assert (connection.stream.frames, connection.in_flight) == ([], 0)


def test_faults_of_the_connect_route_shape_the_stream(gateway: LocalGateway, project: GatewayProject) -> None:
    gateway.faults.add(cut(100, how="rst"), route="connect")
    with FakeAgent(gateway, project.agent_key) as agent:
        waiting = call(gateway, project, "get_order", {"id": "1"})
        with pytest.raises((EOFError, ConnectionError)):
            agent.frame()
        text = waiting.reply().message["result"]["content"][0]["text"]
        assert text == "Agent disconnected before returning a result."
    gateway.faults.add(silent(100), route="connect")
    with FakeAgent(gateway, project.agent_key):
        call(gateway, project, "get_order", {"id": "1"}).wire.sock.close()
        gateway.wait_until(lambda: len(gateway.log) == 2)
        assert len(gateway.agents()) == 1  # half open: the gateway does not know


def test_an_agent_whose_connection_ends_before_its_stream_begins_is_forgotten(
    gateway: LocalGateway, project: GatewayProject
) -> None:
    gateway.faults.add(lose_answer(), route="connect")
    with Wire(gateway) as wire:
        wire.post("/agent/connect", REGISTRATION, bearer(project.agent_key))
        assert wire.ends()
    assert gateway.agents() == []
    release = threading.Event()
    fault = gateway.faults.add(hold_answer(release), route="connect")
    with Wire(gateway) as wire:
        wire.post("/agent/connect", REGISTRATION, bearer(project.agent_key))
        assert fault.struck.wait(10)
        gateway.wait_for_agents()
    wait_until(lambda: gateway.open_connections == 0)
    release.set()
    gateway.wait_until(lambda: gateway.agents() == [])
