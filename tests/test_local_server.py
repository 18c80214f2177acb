"""The embedded server seen from a socket: routes, bodies, streams, faults, and what is left after `stop`."""

from __future__ import annotations

import base64
import contextlib
import gzip
import http.client
import json
import os
import socket
import subprocess
import sys
import threading
from typing import Any, Iterator

import pytest

from mantyx_sync.local import DOCUMENTED_RATE_LIMITS, LocalServer, Pause, ScriptedModel, ToolUse
from mantyx_sync.local.api_server import proxy_exceptions
from mantyx_sync.local.faults import (
    answer,
    close_after,
    content_type,
    cut,
    drop,
    framing,
    hold,
    hold_answer,
    keep_open,
    lose_answer,
    pieces,
    rate_limited,
    replay,
    rewrite,
    silent,
)
from mantyx_sync.local.routes import ROUTES
from tests.plain_http import (
    DEADLINE_S,
    ORDER_TOOL,
    frames,
    live,
    raw_exchange,
    raw_request,
    request,
    run_to_end,
    start,
    stream,
)
from tests.waiting import wait_until

HELLO = ScriptedModel([["Hello ", "world"]])
CALL = ScriptedModel([[ToolUse("get_order", {"order_id": "17"})], ["It is on its way."]])


@pytest.fixture
def server() -> Iterator[LocalServer]:
    with LocalServer(HELLO) as running:
        yield running


def pending_call(server: LocalServer, run_id: str) -> str:
    """Wait for the run's tool call and return its id."""
    wait_until(lambda: server.run(run_id).pending_calls())
    return server.run(run_id).pending_calls()[0]


def chunked_body(raw: bytes) -> bytes:
    """Undo the chunked coding of an answer, as far as it came."""
    rest = raw.split(b"\r\n\r\n", 1)[1]
    body = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        body += rest[: int(size, 16)]
        rest = rest[int(size, 16) + 2 :]
    return body


# ------------------------------------------------------------------------- life


def test_importing_and_constructing_start_nothing() -> None:
    script = (
        "import threading, sys, os\n"
        "before = len(os.listdir('/proc/self/fd')) if os.path.isdir('/proc/self/fd') else 0\n"
        "from mantyx_sync.local import LocalServer\n"
        "server = LocalServer()\n"
        "assert threading.active_count() == 1, threading.enumerate()\n"
        "assert 'jsonschema' not in sys.modules\n"
        "after = len(os.listdir('/proc/self/fd')) if os.path.isdir('/proc/self/fd') else 0\n"
        "assert before == after\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True, timeout=60)


def test_stop_leaves_no_thread_and_no_descriptor() -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0

    threads, files = set(threading.enumerate()), descriptors()
    for _ in range(5):
        never = threading.Event()
        with LocalServer(ScriptedModel([["a", Pause(never)]])) as server:
            readers = [live(server, start(server)) for _ in range(3)]
            for reader in readers:
                assert next(reader)["type"] == "assistant_delta"
            vanished = socket.create_connection(("127.0.0.1", server.port))
            vanished.sendall(raw_request("GET", f"/agent-runs/{start(server)}/stream"))
            vanished.close()
            half = socket.create_connection(("127.0.0.1", server.port))
            half.sendall(b"POST /api")
        for reader in readers:
            with contextlib.suppress(http.client.HTTPException, OSError):
                list(reader)
        half.close()
    assert set(threading.enumerate()) == threads
    assert descriptors() == files


def test_stop_ends_a_run_that_waits_for_a_tool_result() -> None:
    with LocalServer(CALL) as server:
        run_id = start(server, tools=[ORDER_TOOL])
        pending_call(server, run_id)
    run = server.run(run_id)
    assert run.status == "failed"
    assert run.events[-1]["data"]["code"] == "worker_error"


def test_a_stopped_server_starts_again_and_remembers_its_runs() -> None:
    server = LocalServer(HELLO)
    with server:
        first = start(server)
        assert server.run(first).wait(DEADLINE_S)
    with pytest.raises(RuntimeError, match="not started"):
        _ = server.url
    with server:
        assert request(server, "GET", f"/agent-runs/{first}").json["finalText"] == "Hello world"
        assert run_to_end(server)[-1]["type"] == "result"
    server.stop()  # once more changes nothing


def test_a_program_that_forgets_to_stop_ends_all_the_same() -> None:
    script = (
        "import threading\n"
        "from mantyx_sync.local import LocalServer, ScriptedModel, Pause\n"
        "server = LocalServer(ScriptedModel([Pause(threading.Event())])).start()\n"
        "import http.client, json\n"
        "c = http.client.HTTPConnection('127.0.0.1', server.port)\n"
        "c.request('POST', '/api/v1/workspaces/local/agent-runs', json.dumps({'systemPrompt': 'x', 'prompt': 'y'}),\n"
        "          {'Authorization': 'Bearer mantyx_local'})\n"
        "assert c.getresponse().status == 202\n"
        "c.close()\n"
    )
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", script], timeout=60, capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_only_loopback_addresses_are_served() -> None:
    for host in ("0.0.0.0", "example.com", "192.168.1.4", "::"):
        with pytest.raises(ValueError, match="loopback"):
            LocalServer(HELLO, host=host)


def test_a_taken_port_is_named() -> None:
    with LocalServer() as server:
        port = int(server.url.rpartition(":")[2])
        with pytest.raises(OSError, match=rf"127\.0\.0\.1 port {port} \(port 0 takes a free one\)"):
            LocalServer(port=port).start()


def test_client_settings_name_where_and_as_whom() -> None:
    with LocalServer(HELLO, api_key="mantyx_x", workspace_slug="acme") as server:
        assert server.client_settings() == {
            "base_url": f"http://127.0.0.1:{server.port}",
            "api_key": "mantyx_x",
            "workspace_slug": "acme",
        }
        assert "acme" in repr(server)


# ------------------------------------------------------------------------- HTTP


def test_a_connection_serves_many_requests_streams_included(server: LocalServer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=DEADLINE_S)
    with contextlib.closing(connection):
        for _ in range(3):
            headers = {"Authorization": "Bearer mantyx_local"}
            body = json.dumps({"systemPrompt": "x", "prompt": "y"})
            connection.request("POST", "/api/v1/workspaces/local/agent-runs", body, headers)
            created = json.loads(connection.getresponse().read())
            connection.request("GET", created["streamUrl"], headers=headers)
            assert frames(connection.getresponse().read())[-1]["type"] == "result"
        assert server.open_connections == 1


def test_a_chunked_request_body_is_read(server: LocalServer) -> None:
    body = json.dumps({"systemPrompt": "x", "prompt": "y"}).encode()
    head = raw_request("POST", "/agent-runs", "Transfer-Encoding: chunked", "Connection: close")
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(body[i : i + 7]), body[i : i + 7]) for i in range(0, len(body), 7))
    assert b" 202 Accepted" in raw_exchange(server, head + chunks + b"0\r\n\r\n")[0]


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/2\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nA: " + b"x" * 70_000, 431),
        (b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 999999999999\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
    ],
)
def test_bytes_that_are_no_request_get_an_error_and_a_closed_connection(
    server: LocalServer, data: bytes, status: int
) -> None:
    assert raw_exchange(server, data)[0].startswith(b"HTTP/1.1 %d " % status)


def test_expect_continue_is_answered(server: LocalServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=DEADLINE_S) as sock:
        sock.sendall(raw_request("POST", "/agent-runs", "Content-Length: 2", "Expect: 100-continue"))
        assert sock.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(b"{}")
        assert sock.recv(1000).startswith(b"HTTP/1.1 400 ")


# ------------------------------------------------------------- who may do what


@pytest.mark.parametrize("token", [None, "", "mantyx_other"])
def test_a_wrong_credential_gets_401(server: LocalServer, token: str | None) -> None:
    refused = request(server, "GET", "/models", token=token)
    assert refused.status == 401
    assert refused.json["error"] == "unauthorized"
    assert refused.headers["www-authenticate"].startswith("Bearer")


def test_an_unknown_workspace_gets_404_with_the_right_slug_as_hint(server: LocalServer) -> None:
    refused = request(server, "GET", "/models", slug="elsewhere")
    assert refused.status == 404
    assert "'local'" in refused.json["hint"]


def test_unknown_paths_and_methods_are_told_apart(server: LocalServer) -> None:
    assert request(server, "GET", "/nowhere").status == 404
    assert request(server, "PUT", "/agent-runs").status == 405
    assert request(server, "GET", "/agent-runs/run_nope").json["error"] == "not_found"


@pytest.mark.parametrize(
    ("method", "path", "scope"),
    [
        ("GET", "/models", "models:read"),
        ("GET", "/agent-runs", "runs:read"),
        ("POST", "/agent-runs", "runs:write"),
        ("GET", "/agent-runs/r", "runs:read"),
        ("GET", "/agent-runs/r/stream", "runs:read"),
        ("POST", "/agent-runs/r/cancel", "runs:write"),
        ("POST", "/agent-runs/r/tool-results", "runs:write"),
        ("POST", "/agent-runs/r/feedback", "feedback:write"),
    ],
)
def test_an_access_token_needs_the_scope_of_the_route(method: str, path: str, scope: str) -> None:
    with LocalServer(HELLO, tokens={"mantyx_at_none": [], "mantyx_at_one": [scope]}) as server:
        refused = request(server, method, path, {}, token="mantyx_at_none")
        assert refused.status == 403
        assert refused.json["error"] == "insufficient_scope"
        assert refused.json["required"] == scope
        assert refused.headers["www-authenticate"] == f'Bearer error="insufficient_scope", scope="{scope}"'
        assert request(server, method, path, {}, token="mantyx_at_one").status != 403


def test_agents_are_known_and_may_be_kept_from_a_credential() -> None:
    agents = {"agt_1": {"systemPrompt": "Known.", "modelId": "openai:x"}, "agt_2": {"systemPrompt": "Other."}}
    with LocalServer(HELLO, agents=agents, allowed_agents={"mantyx_local": ["agt_1", "agt_3"]}) as server:
        answers = {
            agent: request(server, "POST", "/agent-runs", {"agentId": agent, "prompt": "x"})
            for agent in ("agt_1", "agt_2", "agt_3")
        }
        assert answers["agt_1"].status == 202
        assert (answers["agt_2"].status, answers["agt_2"].json["error"]) == (403, "forbidden")
        assert (answers["agt_3"].status, answers["agt_3"].json["error"]) == (404, "not_found")
        run = server.run(answers["agt_1"].json["runId"])
        assert run.wait(DEADLINE_S)
        assert run.events[-1]["data"]["model"] == {"id": "openai:x", "provider": "openai", "vendorModelId": "x"}


def test_rate_limits_count_by_bucket_and_say_where_they_stand() -> None:
    with LocalServer(HELLO, rate_limits={"run_starts": 2, "lifecycle": 600}) as server:
        body = {"systemPrompt": "x", "prompt": "y"}
        first, second, third = (request(server, "POST", "/agent-runs", body) for _ in range(3))
        assert [first.status, second.status, third.status] == [202, 202, 429]
        assert [a.headers["x-ratelimit-remaining"] for a in (first, second, third)] == ["1", "0", "0"]
        assert third.json["code"] == "rate_limit_exceeded"
        assert 1 <= int(third.headers["retry-after"]) <= 60
        assert third.headers["x-ratelimit-limit"] == "2"
        assert third.headers["x-ratelimit-bucket"] == "run_starts"
        assert int(third.headers["x-ratelimit-reset"]) > 0
        cancelled = request(server, "POST", f"/agent-runs/{first.json['runId']}/cancel")
        assert (cancelled.status, cancelled.headers["x-ratelimit-bucket"]) == (200, "lifecycle")
        assert "x-ratelimit-limit" not in request(server, "GET", "/models").headers


def test_the_docstring_names_every_route() -> None:
    assert LocalServer.__doc__ is not None
    assert [route.name for route in ROUTES if f"`{route.name}`" not in LocalServer.__doc__] == []


def test_the_documented_rate_limits_are_at_hand() -> None:
    assert DOCUMENTED_RATE_LIMITS == {"run_starts": 120, "lifecycle": 600, "mutations": 120}


# --------------------------------------------------------------- create and models


def test_create_answers_202_with_a_path(server: LocalServer) -> None:
    created = request(server, "POST", "/agent-runs", {"systemPrompt": "x", "prompt": "y"})
    assert created.status == 202
    assert set(created.json) == {"runId", "streamUrl"}
    assert created.json["streamUrl"] == f"/api/v1/workspaces/local/agent-runs/{created.json['runId']}/stream"
    assert created.headers["x-request-id"]


def test_models_lists_the_catalog() -> None:
    catalog = [
        {"id": "platform:demo", "label": "Demo", "provider": "openai", "vendorModelId": "gpt-x", "pricing": None}
    ]
    with LocalServer(HELLO, models=catalog) as server:
        assert request(server, "GET", "/models").json == {"models": catalog, "defaultModelId": "platform:demo"}
        assert run_to_end(server)[-1]["data"]["model"] == {
            "id": "platform:demo",
            "provider": "openai",
            "vendorModelId": "gpt-x",
        }
        refused = request(server, "POST", "/agent-runs", {"systemPrompt": "x", "prompt": "y", "modelId": "no:pe"})
        assert refused.status == 400
        assert refused.json["error"] == "invalid_model"
        assert refused.json["candidates"] == ["platform:demo"]


def test_without_a_catalog_the_model_is_listed_and_any_id_goes(server: LocalServer) -> None:
    listed = request(server, "GET", "/models").json
    assert [entry["id"] for entry in listed["models"]] == ["local:scripted"] == [listed["defaultModelId"]]
    model = run_to_end(server, modelId="openai:gpt-5.5", reasoningLevel="low")[-1]["data"]["model"]
    assert model == {
        "id": "openai:gpt-5.5",
        "provider": "openai",
        "vendorModelId": "gpt-5.5",
        "reasoningEffort": "low",
    }


BASE64 = base64.b64encode(b"x" * 1000).decode()
FILE = {"type": "input_file", "mimeType": "text/plain", "filename": "a.txt", "data": BASE64}
LOCAL = {"kind": "local", "name": "t"}

BAD_SPECS: list[tuple[dict[str, Any], str]] = [
    ({"prompt": "x", "messages": [{"role": "user", "content": "y"}]}, "exactly one of prompt and messages"),
    ({}, "exactly one of prompt and messages"),
    ({"prompt": "x", "systemPrompt": None}, "agentId, systemPrompt or"),
    ({"prompt": 4}, "prompt must be a string"),
    ({"messages": []}, "messages must have 1 to 200"),
    ({"messages": [{"role": "user", "content": "x"}] * 201}, "messages must have 1 to 200 entries, got 201"),
    ({"messages": [{"role": "user", "content": "x" * 200_001}]}, "200001 characters, the limit is 200000"),
    ({"messages": [{"role": "robot", "content": "x"}]}, "role must be user, assistant or system"),
    ({"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]}, "must be a user"),
    ({"messages": [{"role": "user", "content": "x", "attachments": [FILE] * 21}]}, "21 entries, the limit is 20"),
    ({"messages": [{"role": "user", "content": "", "attachments": [{**FILE, "mimeType": "a/b"}]}]}, "mimeType"),
    ({"messages": [{"role": "user", "content": "", "attachments": [{**FILE, "data": "data:x"}]}]}, "base64"),
    (
        {"messages": [{"role": "user", "content": "", "attachments": [{"type": "input_file_url", "url": "http://x"}]}]},
        "https",
    ),
    (
        {"messages": [{"role": "user", "content": "", "attachments": [{**FILE, "data": "A" * (4 * 1024 * 1024)}] * 2}]},
        "the limit is 5242880",
    ),
    ({"prompt": "x", "tools": {}}, "tools must be an array"),
    ({"prompt": "x", "tools": [{"kind": "magic"}]}, "tools[0].kind"),
    ({"prompt": "x", "tools": [{"kind": "local", "name": "a b"}]}, "tools[0].name"),
    ({"prompt": "x", "tools": [{"kind": "local", "name": "a" * 65}]}, "tools[0].name"),
    ({"prompt": "x", "tools": [LOCAL, LOCAL]}, "two tools named 't'"),
    ({"prompt": "x", "tools": [{**LOCAL, "parameters": []}]}, "tools[0].parameters"),
    ({"prompt": "x", "tools": [{"kind": "a2a_local", "name": "t"}]}, "agentCard"),
    ({"prompt": "x", "tools": [{"kind": "mcp_local", "name": "t", "tools": []}]}, "1 to 64"),
    ({"prompt": "x", "reasoningLevel": 101}, "reasoningLevel"),
    ({"prompt": "x", "reasoningLevel": "extreme"}, "reasoningLevel"),
    ({"prompt": "x", "reasoningLevel": True}, "reasoningLevel"),
    ({"prompt": "x", "budgets": {"maxToolTurns": 101}}, "from 0 to 100, got 101"),
    ({"prompt": "x", "budgets": {"maxToolTurnsExceeded": "explode"}}, "finalize or error"),
    ({"prompt": "x", "outputSchema": {"schema": []}}, "outputSchema.schema"),
    ({"prompt": "x", "outputSchema": {"schema": {}, "name": "a b"}}, "outputSchema.name"),
    ({"prompt": "x", "outputSchema": {"schema": {"d": "x" * 33_000}}}, "the limit is 32768"),
    ({"prompt": "x", "loopDetection": {"consecutiveThreshold": 1}}, "from 2 to 100"),
    ({"prompt": "x", "loopDetection": {"consecutiveThreshold": 6}}, "must exceed consecutiveThreshold"),
    ({"prompt": "x", "loopDetection": True}, "loopDetection must be an object"),
    ({"prompt": "x", "toolBudgets": {f"t{i}": {"maxCalls": 1} for i in range(33)}}, "33 entries, the limit is 32"),
    ({"prompt": "x", "toolBudgets": {"x" * 121: {"maxCalls": 1}}}, "1 to 120"),
    ({"prompt": "x", "toolBudgets": {"t": {"maxCalls": 1001}}}, "from 0 to 1000"),
    ({"prompt": "x", "supervisor": {"interval": 0}}, "from 1 to 100"),
    ({"prompt": "x", "supervisor": {"reasoningTrigger": {"chars": 50_001}}}, "50000"),
    ({"prompt": "x", "plan": "maybe"}, "plan must be"),
    ({"prompt": "x", "plan": {"steps": [1]}}, "plan.steps"),
    ({"prompt": "x", "metadata": {f"k{i}": "v" for i in range(17)}}, "17 entries, the limit is 16"),
    ({"prompt": "x", "metadata": {"a b": "v"}}, "metadata key"),
    ({"prompt": "x", "metadata": {"k": "v" * 257}}, "at most 256"),
    ({"prompt": "x", "metadata": {"k": 1}}, "must be a string"),
    ({"prompt": "x", "metadata": {f"k{i}": "\u00e9" * 250 for i in range(16)}}, "the limit is 4096"),
]


@pytest.mark.parametrize(("spec", "message"), BAD_SPECS, ids=[text for _, text in BAD_SPECS])
def test_a_spec_outside_the_documented_limits_gets_400(server: LocalServer, spec: dict[str, Any], message: str) -> None:
    refused = request(server, "POST", "/agent-runs", {"systemPrompt": "x", **spec})
    assert refused.status == 400
    assert refused.json["error"] == "invalid_request"
    assert message in refused.json["message"]
    assert server.runs == []


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'"x"', b"[" * 100_000, b'{"prompt": NaN}', b"\xff{}"])
def test_a_body_that_is_no_json_object_gets_400(server: LocalServer, body: bytes) -> None:
    assert request(server, "POST", "/agent-runs", body).json["error"] == "invalid_request"


def test_a_spec_at_the_limits_is_taken(server: LocalServer) -> None:
    spec = {
        "systemPrompt": "x",
        "messages": [
            {"role": "system", "content": "s"},
            {"role": "user", "content": "u", "attachments": [FILE] * 20},
        ],
        "tools": [
            {"kind": "mantyx", "id": "tool_1"},
            {"kind": "mantyx_plugin", "name": "@p/t"},
            {"kind": "a2a", "name": "a", "agentCardUrl": "https://x", "headers": {"X-Key": "s3cret"}},
            {"kind": "mcp", "name": "m", "url": "https://x"},
            {"kind": "mcp_local", "name": "fs", "tools": [{"name": f"t{i}"} for i in range(64)]},
        ],
        "reasoningLevel": 100,
        "budgets": {"maxToolTurns": 100, "maxToolTurnsExceeded": "error"},
        "outputSchema": {"name": "out-put", "schema": {"type": "object"}, "enforcement": "strict"},
        "loopDetection": False,
        "toolBudgets": {},
        "supervisor": {"interval": 100, "modelId": "m", "reasoningTrigger": False},
        "plan": {"planOnly": True, "brief": "b", "steps": ["one"]},
        "metadata": {"k.A-_1": "v" * 256},
        "somethingNewer": {"x": 1},
    }
    created = request(server, "POST", "/agent-runs", spec)
    assert created.status == 202, created.body
    shown = request(server, "GET", f"/agent-runs/{created.json['runId']}").json["spec"]
    assert "s3cret" not in json.dumps(shown)
    assert BASE64 not in json.dumps(shown)
    assert shown["somethingNewer"] == {"x": 1}


# ------------------------------------------------------------------------ streams


def test_a_stream_replays_the_log_to_every_reader(server: LocalServer) -> None:
    run_id = start(server)
    first = stream(server, run_id)
    assert [event["seq"] for event in first] == [1, 2, 3, 4]
    assert stream(server, run_id) == first == server.run(run_id).events


@pytest.mark.parametrize(
    ("query", "header", "seqs"),
    [
        ("", "2", [3, 4]),
        ("?lastSeq=3", None, [4]),
        ("?lastSeq=1", "3", [4]),
        ("?lastSeq=3", "1", [4]),
        ("?lastSeq=x", None, [1, 2, 3, 4]),
        ("", "4", []),
        ("", "99", []),
    ],
)
def test_a_stream_resumes_after_the_last_seq(
    server: LocalServer, query: str, header: str | None, seqs: list[int]
) -> None:
    run_id = start(server)
    assert server.run(run_id).wait(DEADLINE_S)
    headers = {} if header is None else {"Last-Event-ID": header}
    assert [event["seq"] for event in stream(server, run_id, query, **headers)] == seqs


def test_events_arrive_while_the_run_goes_on() -> None:
    gate = threading.Event()
    with LocalServer(ScriptedModel([["one", Pause(gate), "two"]])) as server:
        reader = live(server, start(server))
        assert next(reader)["data"] == {"text": "one"}
        gate.set()
        assert [event["type"] for event in reader] == ["assistant_delta", "assistant_message", "result"]


def test_many_readers_follow_one_run() -> None:
    gate = threading.Event()
    with LocalServer(ScriptedModel([["one", Pause(gate), *["x"] * 5000]])) as server:
        run_id = start(server)
        readers = [live(server, run_id) for _ in range(5)]
        for reader in readers:
            next(reader)
        assert server.open_streams == 5
        gate.set()
        assert {len(list(reader)) for reader in readers} == {5002}


def test_a_quiet_stream_is_kept_alive_by_comments() -> None:
    gate = threading.Event()
    with LocalServer(ScriptedModel([Pause(gate)]), heartbeat=0.02) as server:
        run_id = start(server)
        with socket.create_connection(("127.0.0.1", server.port), timeout=DEADLINE_S) as sock:
            sock.sendall(raw_request("GET", f"/agent-runs/{run_id}/stream"))
            received = b""
            while received.count(b": keep-alive\n\n") < 2:
                received += sock.recv(4096)
        gate.set()


def test_a_reader_that_leaves_is_noticed_before_the_next_event() -> None:
    gate = threading.Event()
    with LocalServer(ScriptedModel([["one", Pause(gate)]])) as server:
        reader = live(server, start(server))
        next(reader)
        assert server.open_streams == 1
        reader.close()
        wait_until(lambda: server.open_streams == 0 and server.open_connections == 0)
        gate.set()


def test_a_reader_that_does_not_read_holds_up_nobody() -> None:
    big = "x" * 50_000
    with LocalServer(ScriptedModel([[big] * 200])) as server:
        run_id = start(server)
        with socket.create_connection(("127.0.0.1", server.port), timeout=DEADLINE_S) as lazy:
            lazy.sendall(raw_request("GET", f"/agent-runs/{run_id}/stream", "Connection: close"))
            assert len(stream(server, run_id)) == 202
            received = b""
            while piece := lazy.recv(1 << 20):
                received += piece
        assert len(frames(chunked_body(received))) == 202


def test_text_travels_whatever_it_is_made_of() -> None:
    text = 'é \u2028 \U0001f600 "quoted" \\ \n\r \x00 \x7f'
    with LocalServer(ScriptedModel([[text, "lone \ud800"]])) as server:
        events = run_to_end(server)
        assert events[0]["data"]["text"] == text
        assert events[1]["data"]["text"] == "lone \ud800"
        assert events[-1]["data"]["text"] == text + "lone \ud800"


# ------------------------------------------------------------------- tool results


def test_a_tool_result_is_taken_once_mirrored_and_late_ones_are_refused() -> None:
    with LocalServer(CALL) as server:
        run_id = start(server, tools=[ORDER_TOOL])
        path = f"/agent-runs/{run_id}/tool-results"
        tool_use_id = pending_call(server, run_id)
        assert request(server, "POST", path, {"toolUseId": "tu_else", "result": "x"}).json["error"] == (
            "unknown_tool_use"
        )
        accepted = request(server, "POST", path, {"toolUseId": tool_use_id, "result": "shipped"})
        assert (accepted.status, accepted.body) == (204, b"")
        again = request(server, "POST", path, {"toolUseId": tool_use_id, "result": "shipped"})
        assert again.status in (404, 409)
        assert server.run(run_id).wait(DEADLINE_S)
        late = request(server, "POST", path, {"toolUseId": tool_use_id, "result": "shipped"})
        assert (late.status, late.json["error"]) == (409, "run_terminal")
        mirrors = [e["data"] for e in stream(server, run_id) if e["type"] == "local_tool_result_in"]
        assert mirrors == [{"toolUseId": tool_use_id, "output": "shipped"}]


def test_a_second_result_of_one_call_gets_404_while_the_run_goes_on() -> None:
    gate = threading.Event()
    script = ScriptedModel([[ToolUse("get_order", {"order_id": "1"})], [Pause(gate)]])
    with LocalServer(script) as server:
        run_id = start(server, tools=[ORDER_TOOL])
        body = {"toolUseId": pending_call(server, run_id), "error": "boom"}
        statuses = [request(server, "POST", f"/agent-runs/{run_id}/tool-results", body).status for _ in range(2)]
        assert statuses == [204, 404]
        gate.set()


PNG = {"filename": "a.png", "mimeType": "image/png", "data": BASE64}

BAD_RESULTS: list[tuple[Any, str]] = [
    ([], "the body must be an object"),
    ({"result": "x"}, "toolUseId"),
    ({"toolUseId": 3, "result": "x"}, "toolUseId"),
    ({"toolUseId": "tu"}, "exactly one of result and error"),
    ({"toolUseId": "tu", "result": "x", "error": "y"}, "exactly one of result and error"),
    ({"toolUseId": "tu", "result": {"a": 1}}, "result must be a string"),
    ({"toolUseId": "tu", "result": "x" * (2 * 1024 * 1024 + 1)}, "2097153 bytes, the limit is 2097152"),
    ({"toolUseId": "tu", "error": "\u00e9" * 4097}, "8194 bytes, the limit is 8192"),
    ({"toolUseId": "tu", "result": "x", "files": [PNG] * 21}, "21 entries, the limit is 20"),
    ({"toolUseId": "tu", "result": "x", "files": [{**PNG, "mimeType": "x/y"}]}, "files[0].mimeType"),
    ({"toolUseId": "tu", "result": "x", "files": [{**PNG, "data": "%"}]}, "files[0].data"),
    ({"toolUseId": "tu", "result": "x", "files": [{**PNG, "data": "A" * 4_000_000}] * 2}, "the limit is 5242880"),
]


@pytest.mark.parametrize(("body", "message"), BAD_RESULTS, ids=[text for _, text in BAD_RESULTS])
def test_a_tool_result_outside_the_rules_gets_400_and_leaves_the_call_open(body: Any, message: str) -> None:
    with LocalServer(CALL) as server:
        run_id = start(server, tools=[ORDER_TOOL])
        pending_call(server, run_id)
        refused = request(server, "POST", f"/agent-runs/{run_id}/tool-results", body)
        assert (refused.status, refused.json["error"]) == (400, "invalid_request")
        assert message in refused.json["message"]
        assert len(server.run(run_id).pending_calls()) == 1


def test_files_of_a_result_are_mirrored_without_their_bytes() -> None:
    with LocalServer(CALL) as server:
        run_id = start(server, tools=[ORDER_TOOL])
        body = {"toolUseId": pending_call(server, run_id), "result": "x" * (2 * 1024 * 1024), "files": [PNG] * 20}
        assert request(server, "POST", f"/agent-runs/{run_id}/tool-results", body).status == 204
        mirror = next(e["data"] for e in stream(server, run_id) if e["type"] == "local_tool_result_in")
        assert mirror["files"][0] == {"filename": "a.png", "mimeType": "image/png", "sizeBytes": 1000}


# ------------------------------------------------- cancel, feedback, snapshot, list


def test_cancel_may_be_repeated_and_changes_no_ended_run(server: LocalServer) -> None:
    gate = threading.Event()
    with LocalServer(ScriptedModel([["a", Pause(gate)]])) as other:
        run_id = start(other)
        answers = [request(other, "POST", f"/agent-runs/{run_id}/cancel") for _ in range(3)]
        assert [answer.status for answer in answers] == [200, 200, 200]
        assert other.run(run_id).wait(DEADLINE_S)
        assert other.run(run_id).events[-1]["data"]["reason"] == "user"
        assert request(other, "GET", f"/agent-runs/{run_id}").json["status"] == "cancelled"
    ended = start(server)
    assert server.run(ended).wait(DEADLINE_S)
    assert request(server, "POST", f"/agent-runs/{ended}/cancel").status == 200
    assert request(server, "GET", f"/agent-runs/{ended}").json["status"] == "succeeded"


def test_feedback_is_created_then_replaced(server: LocalServer) -> None:
    run_id = start(server)
    path = f"/agent-runs/{run_id}/feedback"
    first = request(server, "POST", path, {"verdict": "UP", "explanation": "x" * 8000})
    second = request(server, "POST", path, {"verdict": "DOWN"})
    assert (first.status, second.status) == (201, 200)
    assert first.json["id"] == second.json["id"]
    assert second.json == {**first.json, "verdict": "DOWN"}
    assert first.json["agentRunId"] == run_id
    for bad in ({}, {"verdict": "up"}, {"verdict": "UP", "explanation": "x" * 8001}):
        assert request(server, "POST", path, bad).status == 400


def test_a_snapshot_has_its_totals_only_at_the_end() -> None:
    gate = threading.Event()
    with LocalServer(ScriptedModel([["Hello", Pause(gate), " you"]])) as server:
        run_id = start(server, metadata={"k": "v"}, name="greeter")
        next(live(server, run_id))
        before = request(server, "GET", f"/agent-runs/{run_id}").json
        assert before["status"] == "running"
        assert [before[name] for name in ("finalText", "error", "failureReason", "tokens", "turns", "model")] == (
            [None] * 6
        )
        gate.set()
        terminal = stream(server, run_id)[-1]["data"]
        after = request(server, "GET", f"/agent-runs/{run_id}").json
        assert after["status"] == "succeeded"
        assert after["finalText"] == "Hello you"
        assert {name: after[name] for name in ("tokens", "turns", "model")} == (
            {name: terminal[name] for name in ("tokens", "turns", "model")}
        )
        assert (after["metadata"], after["specName"], after["spec"]["systemPrompt"]) == (
            {"k": "v"},
            "greeter",
            "You help.",
        )
        assert after["createdAt"] <= after["completedAt"]


def test_a_listing_pages_through_all_runs_while_new_ones_start(server: LocalServer) -> None:
    ids = [start(server) for _ in range(7)]
    seen: list[str] = []
    cursor = ""
    while True:
        page = request(server, "GET", f"/agent-runs?limit=3{cursor}").json
        seen += [run["id"] for run in page["runs"]]
        assert (page["limit"], page["total"]) == (3, None)
        start(server)
        if page["nextCursor"] is None:
            break
        cursor = f"&cursor={page['nextCursor']}"
    assert seen == ids[::-1]


def test_a_listing_filters_by_status_model_agent_and_metadata() -> None:
    with LocalServer(HELLO, agents={"agt": {"systemPrompt": "x"}}) as server:
        plain = start(server)
        tagged = start(server, metadata={"team": "a:b", "n": "1"})
        other = start(server, metadata={"team": "a:b", "n": "2"}, modelId="x:y")
        agent = start(server, agentId="agt")
        for run in server.runs:
            assert run.wait(DEADLINE_S)

        def ids(query: str) -> list[str]:
            return [run["id"] for run in request(server, "GET", f"/agent-runs?{query}").json["runs"]]

        assert ids("metadata=team:a%3Ab") == [other, tagged]
        assert ids("metadata=team:a:b&metadata=n:1") == [tagged]
        assert ids("modelId=x:y") == [other]
        assert ids("agentId=agt") == [agent]
        assert ids("status=succeeded") == [agent, other, tagged, plain]
        assert ids("status=failed") == []
        page = request(server, "GET", "/agent-runs?metadata=team:a:b&limit=1&includeTotal=1").json
        assert page["total"] == 2
        summary = page["runs"][0]
        assert (summary["inputPreview"], summary["outputPreview"], summary["turns"]) == ("Hello", "Hello world", 1)
        assert summary["durationMs"] >= 0


@pytest.mark.parametrize("query", ["limit=0", "limit=201", "limit=x", "cursor=abc", "metadata=nocolon"])
def test_a_listing_refuses_what_it_cannot_read(server: LocalServer, query: str) -> None:
    assert request(server, "GET", f"/agent-runs?{query}").json["error"] == "invalid_request"


# ------------------------------------------------------------------------- faults


def read_stream_raw(server: LocalServer, run_id: str, *headers: str) -> tuple[bytes, str | None]:
    return raw_exchange(server, raw_request("GET", f"/agent-runs/{run_id}/stream", "Connection: close", *headers))


@pytest.mark.parametrize("how", ["fin", "rst"])
def test_a_stream_is_cut_at_every_byte_of_its_body(server: LocalServer, how: str) -> None:
    run_id = start(server)
    assert server.run(run_id).wait(DEADLINE_S)
    whole = b"".join(server.run(run_id).frames)
    for after in range(len(whole) + 1):
        fault = server.faults.add(cut(after, how), route="stream")
        raw, ended = read_stream_raw(server, run_id)
        assert chunked_body(raw) == whole[:after]
        assert ended == ("reset" if how == "rst" else None)
        assert fault.hits == 1
    assert read_stream_raw(server, run_id)[0].endswith(b"0\r\n\r\n")


def test_an_answer_is_cut_at_every_byte_on_the_wire(server: LocalServer) -> None:
    run_id = start(server)
    assert server.run(run_id).wait(DEADLINE_S)
    whole = read_stream_raw(server, run_id)[0]
    for after in range(0, len(whole), 7):
        server.faults.add(cut(after, count="wire"), route="stream")
        assert len(read_stream_raw(server, run_id)[0]) == after


def test_a_polite_cut_ends_the_body_as_its_coding_demands(server: LocalServer) -> None:
    run_id = start(server)
    assert server.run(run_id).wait(DEADLINE_S)
    server.faults.add(cut(30, "end"), route="stream")
    answer_ = request(server, "GET", f"/agent-runs/{run_id}/stream")
    assert answer_.body == b"".join(server.run(run_id).frames)[:30]


def test_a_silent_stream_stays_open_and_says_nothing() -> None:
    with LocalServer(HELLO, heartbeat=0.01) as server:
        run_id = start(server)
        assert server.run(run_id).wait(DEADLINE_S)
        server.faults.add(silent(20), route="stream")
        with socket.create_connection(("127.0.0.1", server.port), timeout=0.2) as sock:
            sock.sendall(raw_request("GET", f"/agent-runs/{run_id}/stream"))
            received = b""
            with contextlib.suppress(socket.timeout):
                while piece := sock.recv(4096):
                    received += piece
                pytest.fail("the connection was closed")
            assert chunked_body(received) == server.run(run_id).frames[0][:20]
        wait_until(lambda: server.open_connections == 0)


def test_lost_and_dropped_answers_differ_in_what_was_done(server: LocalServer) -> None:
    body = json.dumps({"systemPrompt": "x", "prompt": "y"}).encode()
    create = raw_request("POST", "/agent-runs", f"Content-Length: {len(body)}") + body
    for effect, runs, ended in [
        (drop(), 0, None),
        (drop("rst"), 0, "reset"),
        (lose_answer(), 1, None),
        (lose_answer("rst"), 2, "reset"),
    ]:
        server.faults.add(effect, route="create")
        assert raw_exchange(server, create) == (b"", ended)
        assert len(server.runs) == runs


def test_an_answer_can_be_made_up(server: LocalServer) -> None:
    server.faults.add(rate_limited(7), route="create", times=2)
    server.faults.add(answer(503, "<html>busy</html>", content_type="text/html"), route="models")
    body = {"systemPrompt": "x", "prompt": "y"}
    answers = [request(server, "POST", "/agent-runs", body) for _ in range(3)]
    assert [a.status for a in answers] == [429, 429, 202]
    assert answers[0].headers["retry-after"] == "7"
    assert answers[0].json["code"] == "rate_limit_exceeded"
    assert answers[0].headers["x-ratelimit-bucket"] == "run_starts"
    busy = request(server, "GET", "/models")
    assert (busy.status, busy.headers["content-type"], busy.body) == (503, "text/html", b"<html>busy</html>")


def test_faults_strike_what_they_match_and_no_more(server: LocalServer) -> None:
    fault = server.faults.add(answer(500), route="models", skip=1, times=2)
    chosen = server.faults.add(answer(502), when=lambda r: r.headers.get("x-mark") == "1", times=None)
    assert [request(server, "GET", "/models").status for _ in range(4)] == [200, 500, 500, 200]
    assert (fault.hits, fault.struck.is_set(), chosen.struck.is_set()) == (2, True, False)
    assert request(server, "GET", "/models", headers={"X-Mark": "1"}).status == 502
    server.faults.clear()
    assert request(server, "GET", "/models", headers={"X-Mark": "1"}).status == 200
    assert [r.route for r in server.requests] == ["models"] * 6


def test_a_fault_that_raises_costs_one_connection_and_no_more(
    server: LocalServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.faults.add(drop(), when=lambda r: bool(r.headers["x-not-there"]))
    assert raw_exchange(server, raw_request("GET", "/models")) == (b"", None)
    server.faults.clear()
    server.faults.add(rewrite(lambda frame: frame[10_000].to_bytes(1, "big")), route="stream")
    run_id = start(server)
    assert server.run(run_id).wait(DEADLINE_S)
    assert raw_exchange(server, raw_request("GET", f"/agent-runs/{run_id}/stream")) == (b"", None)
    assert stream(server, run_id)[-1]["type"] == "result"
    assert [record.getMessage() for record in caplog.records] == ["a connection of the embedded server failed"] * 2


@pytest.mark.parametrize(("effect", "runs_while_held"), [(hold, 0), (hold_answer, 1)])
def test_a_request_is_held_until_the_test_says_so(server: LocalServer, effect: Any, runs_while_held: int) -> None:
    gate = threading.Event()
    fault = server.faults.add(effect(gate), route="create")
    answers: list[int] = []
    body = {"systemPrompt": "x", "prompt": "y"}
    thread = threading.Thread(target=lambda: answers.append(request(server, "POST", "/agent-runs", body).status))
    thread.start()
    assert fault.struck.wait(DEADLINE_S)
    assert request(server, "GET", "/models").status == 200  # nobody else waits
    assert (answers, len(server.runs)) == ([], runs_while_held)
    gate.set()
    thread.join(DEADLINE_S)
    assert answers == [202]


def test_stop_frees_a_request_that_is_held() -> None:
    with LocalServer(HELLO) as server:
        fault = server.faults.add(hold(threading.Event()))
        sock = socket.create_connection(("127.0.0.1", server.port), timeout=DEADLINE_S)
        sock.sendall(raw_request("GET", "/models"))
        assert fault.struck.wait(DEADLINE_S)
    assert sock.recv(10) == b""
    sock.close()


@pytest.mark.parametrize("how", ["chunked", "close", "length"])
@pytest.mark.parametrize("compressed", [False, True])
def test_a_stream_travels_in_every_framing(how: str, compressed: bool) -> None:
    gate = threading.Event()
    with LocalServer(ScriptedModel([["Hello ", Pause(gate), "world"]])) as server:
        run_id = start(server)
        server.faults.add(framing(how, gzip=compressed, length=4000), route="stream")
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=DEADLINE_S)
        with contextlib.closing(connection):
            path = f"/api/v1/workspaces/local/agent-runs/{run_id}/stream"
            connection.request("GET", path, headers={"Authorization": "Bearer mantyx_local"})
            response = connection.getresponse()
            first = response.read1(4096)  # the first event is out before the run goes on
            assert first
            gate.set()
            body = first + response.read()
            assert (response.headers["Transfer-Encoding"] == "chunked") == (how == "chunked")
            assert response.headers["Content-Length"] == ("4000" if how == "length" else None)
            response.close()
        if how == "length":
            assert len(body) == 4000
        if compressed:
            body = gzip.decompress(body)  # zero bytes behind the stream are allowed padding
        assert frames(body.rstrip(b":")) == server.run(run_id).events


def test_a_length_that_is_too_short_cuts_the_events(server: LocalServer) -> None:
    run_id = start(server)
    assert server.run(run_id).wait(DEADLINE_S)
    server.faults.add(framing("length", length=50), route="stream")
    assert request(server, "GET", f"/agent-runs/{run_id}/stream").body == b"".join(server.run(run_id).frames)[:50]


def test_the_content_type_of_a_stream_can_be_wrong(server: LocalServer) -> None:
    run_id = start(server)
    assert (
        request(server, "GET", f"/agent-runs/{run_id}/stream").headers["content-type"].startswith("text/event-stream")
    )
    server.faults.add(content_type("text/html"), route="stream")
    assert request(server, "GET", f"/agent-runs/{run_id}/stream").headers["content-type"] == "text/html"


def test_a_resumed_stream_can_replay_what_was_sent(server: LocalServer) -> None:
    run_id = start(server)
    assert server.run(run_id).wait(DEADLINE_S)
    server.faults.add(replay(2), route="stream", times=None)
    seqs = [event["seq"] for event in stream(server, run_id, **{"Last-Event-ID": "3"})]
    assert seqs == [2, 3, 4]


def test_frames_can_be_rewritten_and_cut_into_pieces(server: LocalServer) -> None:
    run_id = start(server)
    assert server.run(run_id).wait(DEADLINE_S)
    server.faults.add(rewrite(lambda frame: frame.replace(b"\n", b"\r\n")), route="stream")
    server.faults.add(pieces(3), route="stream")
    raw = read_stream_raw(server, run_id)[0]
    assert chunked_body(raw) == b"".join(server.run(run_id).frames).replace(b"\n", b"\r\n")
    assert b"\r\n\r\n3\r\n" in raw


def test_a_stream_can_stay_open_behind_its_terminal_event() -> None:
    with LocalServer(HELLO, heartbeat=0.01) as server:
        server.faults.add(keep_open(), route="stream")
        reader = live(server, start(server))
        assert [next(reader)["type"] for _ in range(4)][-1] == "result"
        assert server.open_streams == 1
        reader.close()
        wait_until(lambda: server.open_streams == 0)


def test_a_keep_alive_connection_can_go_stale(server: LocalServer) -> None:
    server.faults.add(close_after(), route="models")
    raw, _ = raw_exchange(server, raw_request("GET", "/models"))
    assert raw.startswith(b"HTTP/1.1 200 OK")
    assert b"connection: close" not in raw.lower()


def test_a_server_names_the_variables_that_point_a_program_at_it() -> None:
    with LocalServer() as server:
        assert server.environment() == {
            "MANTYX_BASE_URL": server.url,
            "MANTYX_API_KEY": "mantyx_local",
            "MANTYX_WORKSPACE_SLUG": "local",
        }


@pytest.mark.parametrize(
    ("environment", "exceptions"),
    [
        ({"NO_PROXY": "example.org"}, None),
        ({"HTTP_PROXY": "http://p"}, ("127.0.0.1", "127.0.0.1")),
        ({"all_proxy": "socks://p", "no_proxy": "example.org"}, ("127.0.0.1", "example.org,127.0.0.1")),
    ],
)
def test_proxies_are_kept_out_of_the_way_of_loopback(
    environment: dict[str, str], exceptions: tuple[str, str] | None
) -> None:
    names = ("NO_PROXY", "no_proxy")
    assert proxy_exceptions(environment) == ({} if exceptions is None else dict(zip(names, exceptions)))
