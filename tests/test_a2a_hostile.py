"""What peers must not be able to do to our A2A server and client: broken JSON, odd HTTP, secrets of other callers."""

from __future__ import annotations

import base64
import contextvars
import http.client
import io
import ipaddress
import json
import threading
import time
import zlib
from typing import Any, Dict, Iterator, List, Optional, Tuple

import pytest
import requests

from mantyx_sync import ToolError, ToolResultFile, tool
from mantyx_sync.a2a import (
    A2ACardError,
    A2AClient,
    A2AConnectionError,
    A2AProtocolError,
    A2AStatusError,
    A2ATimeoutError,
    current_task,
)
from mantyx_sync.a2a.client import addresses
from mantyx_sync.a2a.client.access import _without_credentials
from mantyx_sync.a2a.client.addresses import zone_of
from mantyx_sync.a2a.server import strict_json
from mantyx_sync.errors import MantyxAPIError, MantyxRunError
from mantyx_sync.failures import describe_failure
from mantyx_sync.local import ToolUse
from tests.a2a_agents import (
    Agent,
    Call,
    Events,
    Raw,
    always,
    artifact_v1,
    card_v1,
    in_turn,
    message_v1,
    task_v1,
    update_v1,
)
from tests.a2a_callers import Caller, Failed, message
from tests.a2a_served import Serve, answer_text, serving
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture
def serve() -> Iterator[Serve]:
    with serving() as make:
        yield make


def standard(text: bytes) -> Any:
    """Decode JSON as readers do that follow the standard."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


# ---------------------------------------------------------------------------------------------------- JSON


@pytest.mark.parametrize("value", ["1e999", "-1e999", "NaN", "[" * 101 + "]" * 101, '{"a":' * 101 + "1" + "}" * 101])
def test_what_could_not_be_written_again_is_not_read(value: str) -> None:
    with pytest.raises(ValueError):
        strict_json.loads(value)


@pytest.mark.parametrize("value", ["1e308", "-0.0", "[" * 100 + "]" * 100, "[" + "[]," * 500 + "{}]", '"[[[["'])
def test_what_can_be_written_again_is_read(value: str) -> None:
    assert strict_json.loads(value) == json.loads(value)


@pytest.mark.parametrize("value", ["1e999", "[" * 900 + "]" * 900])
@pytest.mark.parametrize("field", ["metadata", "data"])
def test_numbers_and_depths_that_no_answer_could_hold_are_refused(serve: Serve, field: str, value: str) -> None:
    served = serve()
    given = message("x", metadata={"x": "HERE"}) if field == "metadata" else message({"data": {"x": "HERE"}})
    body = json.dumps(served.caller.envelope("SendMessage", {"message": given})).replace('"HERE"', value)
    answer = standard(served.caller.post(body.encode()).body)
    assert (answer["error"]["code"], answer["id"]) == (-32700, None)
    assert served.caller.call("ListTasks")["tasks"] == []


def test_an_answer_with_a_number_that_is_none_goes_out_as_text(serve: Serve) -> None:
    served = serve(['{"n": 1e999}'], output_schema={"schema": {"type": "object"}})
    assert answer_text(served.caller.send("x")) == '{"n": 1e999}'


# ---------------------------------------------------------------------------------------------------- HTTP


def raw_call(app: Any, **environ: Any) -> Tuple[str, bytes]:
    """Call an app as a server does that looks at nothing."""
    began: List[str] = []
    body = app(environ, lambda status, headers, exc_info=None: began.append(status))
    return began[0], b"".join(body)


@pytest.mark.parametrize("length", ["\xb2", "1\xb2", "abc", "-1", "+5", "9" * 5000])
@pytest.mark.parametrize("media_type", ["application/json", "text/plain"])
def test_a_length_that_is_no_number_is_none(serve: Serve, length: str, media_type: str) -> None:
    status, _ = raw_call(
        serve().app,
        REQUEST_METHOD="POST",
        CONTENT_TYPE=media_type,
        CONTENT_LENGTH=length,
        **{"wsgi.input": io.BytesIO(b"{}")},
    )
    assert status.startswith("200" if media_type == "application/json" else "415")


@pytest.mark.parametrize("path", ["/", "/other", "/.well-known/agent-card.json"])
def test_an_answer_to_head_has_no_body(serve: Serve, path: str) -> None:
    answer = serve().caller.request("HEAD", path)
    assert answer.body == b""  # a byte more, and the next answer on the connection begins with it
    assert int(answer.headers["content-length"]) > 0


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example", 421),
        ("evil.example:80", 421),
        ("[", 421),
        ("agents.example.com", 200),
        ("localhost:1", 200),
        ("[::1]:1", 200),
        ("127.0.0.1", 200),
        ("", 200),
    ],
)
def test_a_web_page_does_not_reach_a_server_for_development_by_its_own_name(
    serve: Serve, host: str, status: int
) -> None:
    with serve().app.serve() as server:
        connection = http.client.HTTPConnection("127.0.0.1", int(server.url.rpartition(":")[2]), timeout=10)
        connection.putrequest("GET", "/.well-known/agent-card.json", skip_host=True)
        connection.putheader("Host", host)
        connection.endheaders()
        assert connection.getresponse().status == status
        connection.close()


# ---------------------------------------------------------------------------------------------------- callers


def test_what_authorize_sets_for_one_caller_is_not_seen_for_the_next(serve: Serve) -> None:
    account: contextvars.ContextVar[Optional[str]] = contextvars.ContextVar("account", default=None)
    seen = []

    def authorize(environ: Dict[str, Any]) -> str:
        who: str = environ["HTTP_X_CALLER"]
        if who == "ann":
            account.set("the account of ann")
        return who

    def look() -> str:
        """Look at the account."""
        task = current_task()
        assert task is not None
        seen.append((task.caller, account.get()))
        return "seen"

    turns = [ToolUse("look", {}), "ok", ToolUse("look", {}), "ok"]
    app = serve(turns, tools=[tool(look)], authorize=authorize).app
    for who in ("ann", "bob"):  # one after the other, on one thread
        Caller(app, headers={"X-Caller": who}).send("x")
    assert seen == [("ann", "the account of ann"), ("bob", None)]


@pytest.mark.parametrize("kind", ["host db-1 refused", "http://10.0.0.1/", "x" * 65, "", "a\nb"])
def test_callers_are_told_the_kind_of_a_failure_only_if_it_is_a_word(kind: str) -> None:
    failure = MantyxRunError("run_1", "error", "secret", error_class=kind)
    told = describe_failure(failure)
    assert told == (
        "The agent could not complete the task." if kind else "The agent could not complete the task (error)."
    )
    refused = MantyxAPIError("secret", status=400, code=kind)
    assert describe_failure(refused) == "The agent could not take on the task."


def test_a_question_that_was_not_answered_in_time_is_open_no_more(serve: Serve) -> None:
    told = []

    def ask_twice() -> str:
        """Ask."""
        task = current_task()
        assert task is not None
        for _ in range(2):
            with pytest.raises(ToolError) as refused:
                task.ask("Which?", timeout=0.02)
            told.append(str(refused.value))
        return "never mind"

    served = serve([ToolUse("ask_twice", {}), "ok"], tools=[tool(ask_twice)])
    task = served.caller.start("x")
    wait_until(lambda: served.caller.get(task["id"])["status"]["state"] == "TASK_STATE_COMPLETED")
    assert len(told) == 2
    assert all("in time" in text for text in told)


# ---------------------------------------------------------------------------------------------------- memory


def test_files_and_answers_count_for_what_tasks_may_take(serve: Serve) -> None:
    def draw() -> str:
        """Draw."""
        task = current_task()
        assert task is not None
        task.share(ToolResultFile("a.png", "image/png", base64.b64encode(bytes(3000)).decode()))
        return "drawn"

    served = serve(
        [turn for _ in range(4) for turn in (ToolUse("draw", {}), "ok")], tools=[tool(draw)], max_stored_bytes=10_000
    )
    tasks = [served.caller.send("x") for _ in range(4)]
    assert tasks[0]["artifacts"][1]["parts"][0]["raw"]
    assert {task["id"] for task in served.caller.call("ListTasks")["tasks"]} == {task["id"] for task in tasks[2:]}


def test_a_structured_answer_counts_too(serve: Serve) -> None:
    answer = json.dumps({"text": "x" * 6000})
    served = serve([answer] * 3, output_schema={"schema": {"type": "object"}}, max_stored_bytes=10_000)
    tasks = [served.caller.send("x") for _ in range(3)]
    assert [task["id"] for task in served.caller.call("ListTasks")["tasks"]] == [tasks[-1]["id"]]


def test_an_empty_file_is_refused_before_a_run_begins(serve: Serve) -> None:
    with pytest.raises(Failed, match="not empty") as refused:
        serve().caller.send("x", {"raw": "", "filename": "x.png"})
    assert refused.value.code == -32602


# ---------------------------------------------------------------------------------------------------- client


def other_task(state: str) -> Dict[str, Any]:
    return {**task_v1(state, artifacts=[{"artifactId": "a", "parts": [{"text": "of somebody else"}]}]), "id": "t-2"}


def test_events_of_another_task_are_not_taken_for_the_answer() -> None:
    own = [{"task": task_v1("WORKING")}, artifact_v1("mine"), update_v1("COMPLETED")]
    others: List[Any] = [
        {"statusUpdate": {"taskId": "t-2", "status": {"state": "TASK_STATE_COMPLETED"}, "final": True}},
        {"artifactUpdate": {"taskId": "t-2", "artifact": {"artifactId": "a-1", "parts": [{"text": "not mine"}]}}},
    ]
    events = Events([own[0], others[0], own[1], others[1], own[2]])
    with Agent({"SendStreamingMessage": always(events)}, streaming=True) as agent, A2AClient(agent.url) as client:
        stream = client.stream("hi")
        seen = list(stream)
        reply = stream.result()
    assert (reply.task_id, reply.state, reply.text) == ("t-1", "completed", "mine")
    assert len(seen) == 3


def test_another_task_than_the_one_asked_for_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mantyx_sync.a2a.client.stream.FIRST_POLL_S", 0.01)
    methods = {"SendMessage": always({"task": task_v1("WORKING")}), "GetTask": always(other_task("COMPLETED"))}
    with Agent(methods) as agent, A2AClient(agent.url) as client, pytest.raises(A2AProtocolError, match="another"):
        client.send("hi")


@pytest.mark.parametrize("event_id", ["café", "a\vb", "  x", "x" * 5000])
def test_an_id_of_an_event_that_no_header_can_carry_is_not_kept(event_id: str) -> None:
    envelope = {"jsonrpc": "2.0", "id": "r", "result": {"task": task_v1("WORKING")}}
    events = Events([f"id: 7\n\nid: {event_id}\ndata: {json.dumps(envelope)}\n\n".encode()])
    again = Events([{"task": task_v1("COMPLETED")}])
    methods = {"SendStreamingMessage": always(events), "SubscribeToTask": always(again)}
    with Agent(methods, streaming=True) as agent, A2AClient(agent.url) as client:
        with client.stream("hi") as stream:
            next(stream)
        assert stream.last_event_id is None
        assert client.resubscribe("t-1", last_event_id=stream.last_event_id).reply().state == "completed"


@pytest.mark.parametrize("ask", [lambda client: client.get_task("t-1"), lambda client: client.cancel_task("t-1")])
def test_a_task_that_was_not_asked_for_is_not_returned(ask: Any) -> None:
    methods = {"GetTask": always(other_task("WORKING")), "CancelTask": always(other_task("CANCELED"))}
    with Agent(methods) as agent, A2AClient(agent.url) as client, pytest.raises(A2AProtocolError, match="another"):
        ask(client)


def zipped(data: bytes) -> bytes:
    compressor = zlib.compressobj(9, wbits=16 + zlib.MAX_WBITS)
    return compressor.compress(data) + compressor.flush()


def test_the_deadline_holds_while_a_stream_is_noise_that_expands_a_thousandfold(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("ERROR", "mantyx_sync")
    noise = zipped(b"data: 1\n\n" * 1_000_000)
    headers = {"Content-Encoding": "gzip", "Content-Type": "text/event-stream"}
    with Agent({"SendStreamingMessage": always(Raw(body=noise, headers=headers))}, streaming=True) as agent:
        began = time.monotonic()
        with A2AClient(agent.url) as client, pytest.raises(A2ATimeoutError):
            client.send("hi", timeout=0.2)
        assert time.monotonic() - began < 2.0


def test_an_event_that_is_nested_beyond_measure_is_passed_by() -> None:
    deep = b"data: " + b"[" * 100_000 + b"]" * 100_000 + b"\n\n"
    events = Events([{"task": task_v1("WORKING")}, deep, update_v1("COMPLETED", "done")])
    with Agent({"SendStreamingMessage": always(events)}, streaming=True) as agent, A2AClient(agent.url) as client:
        assert client.send("hi").text == "done"


def test_a_poll_that_is_not_answered_is_given_up_and_another_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mantyx_sync.a2a.client.stream.POLL_TIMEOUT_S", 0.1)
    monkeypatch.setattr("mantyx_sync.a2a.client.stream.FIRST_POLL_S", 0.01)
    done = threading.Event()

    def stall(call: Call) -> Any:
        call.agent.wait(done)
        return task_v1("WORKING")

    methods = {
        "SendMessage": always({"task": task_v1("WORKING")}),
        "GetTask": in_turn(stall, task_v1("COMPLETED", "done")),
    }
    with Agent(methods) as agent, A2AClient(agent.url, timeout=5) as client:
        assert client.send("hi").text == "done"
        done.set()


def test_an_agent_that_wants_to_be_asked_after_the_deadline_is_told_of_at_once() -> None:
    busy = Raw(429, b"{}", {"Retry-After": "60"})
    with Agent({"SendMessage": always(busy)}) as agent, A2AClient(agent.url, timeout=5) as client:
        began = time.monotonic()
        with pytest.raises(A2AStatusError, match="429"):
            client.send("hi")
        assert time.monotonic() - began < 2.0


def test_an_agent_that_refuses_to_tell_of_a_task_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mantyx_sync.a2a.client.stream.FIRST_POLL_S", 0.01)
    methods = {"SendMessage": always({"task": task_v1("WORKING")}), "GetTask": always(Raw(404, b"gone"))}
    with Agent(methods) as agent, A2AClient(agent.url, timeout=5) as client:
        with pytest.raises(A2AStatusError):
            client.send("hi")
        assert agent.asked == ["SendMessage", "GetTask"]


@pytest.mark.parametrize("trusts", [False, True])
def test_an_auth_object_stays_at_the_card_s_origin(trusts: bool) -> None:
    signed = []

    def sign(request: Any) -> Any:
        signed.append(request.url)
        return request

    with Agent({"SendMessage": always({"message": message_v1("hello")})}) as other, Agent() as agent:
        agent.pages["/card.json"] = Raw(body=json.dumps(card_v1(other.url + "/rpc")).encode())
        with A2AClient(agent.url + "/card.json", auth=sign, trust_other_origin=trusts) as client:
            assert client.send("hi").text == "hello"
        assert any(url.startswith(agent.url) for url in signed)
        assert any(url.startswith(other.url) for url in signed) is trusts


def test_of_a_session_only_the_way_out_goes_along_to_another_origin() -> None:
    with requests.Session() as session:
        session.cert, session.auth, session.verify = "/the/key.pem", ("user", "secret"), "/the/ca.pem"
        session.params, session.headers["X-Api-Key"] = {"key": "secret"}, "secret"
        bare = _without_credentials(session)
        assert bare is not None
        assert (bare.cert, bare.auth, bare.params, bare.headers) == (None, None, {}, {})
        assert (bare.verify, bare.adapters) == (session.verify, session.adapters)
        assert session.cert


# ---------------------------------------------------------------------------------------------------- addresses


@pytest.mark.parametrize(
    ("address", "zone"),
    [
        ("::127.0.0.1", "loopback"),
        ("::ffff:0:127.0.0.1", "loopback"),
        ("64:ff9b:1::127.0.0.1", "loopback"),
        ("64:ff9b:1::169.254.169.254", "link-local"),
        ("::10.0.0.1", "private"),
        ("64:ff9b::8.8.8.8", "public"),
        ("fec0::1", "private"),
        ("::1", "loopback"),
        ("::", "loopback"),
    ],
)
def test_addresses_within_addresses_are_seen_through(address: str, zone: str) -> None:
    assert zone_of(ipaddress.ip_address(address)) == zone


def card_from_outside(monkeypatch: pytest.MonkeyPatch, agent: Agent) -> None:
    """Have connections to an agent look as if they led to the Internet."""
    real, port = addresses._zone_of_peer, agent.server_address[1]
    monkeypatch.setattr(
        addresses, "_zone_of_peer", lambda connection: "public" if connection.port == port else real(connection)
    )


@pytest.mark.parametrize(("host", "words"), [("127.0.0.1", "nothing was sent"), ("localhost", "must not name")])
def test_where_a_card_is_from_is_where_it_came_from_and_not_what_its_name_leads_to_later(
    monkeypatch: pytest.MonkeyPatch, host: str, words: str
) -> None:
    with Agent() as agent, Agent({"SendMessage": always({"message": message_v1("inside")})}) as inside:
        endpoint = f"http://{host}:{inside.server_address[1]}/rpc"
        agent.pages["/.well-known/agent-card.json"] = Raw(body=json.dumps(card_v1(endpoint)).encode())
        card_from_outside(monkeypatch, agent)
        with A2AClient(agent.url, max_retries=0) as client, pytest.raises(A2ACardError, match=words) as refused:
            client.send("hi")
        assert refused.value.code == "address_refused"
        assert inside.seen == []
        with A2AClient(agent.url, trust_other_origin=True) as client:
            assert client.send("hi").text == "inside"


def test_the_origin_that_the_user_named_may_move(monkeypatch: pytest.MonkeyPatch) -> None:
    with Agent({"SendMessage": always({"message": message_v1("moved")})}) as agent:
        card_from_outside(monkeypatch, agent)
        with A2AClient(agent.url) as client:
            assert client.card.name == "Test agent"
            monkeypatch.undo()
            assert client.send("hi").text == "moved"


def test_an_address_in_disguise_is_seen_at_the_connection() -> None:
    with Agent({"SendMessage": always({"message": message_v1("inside")})}) as agent:
        card = card_v1(f"http://127%2e0%2e0%2e1:{agent.server_address[1]}/rpc")
        client = A2AClient("https://8.8.8.8/", card=card, max_retries=0)
        with client, pytest.raises((A2ACardError, A2AConnectionError)):
            client.send("hi")
        assert agent.seen == []


@pytest.mark.parametrize("where", ["metadata", "data", "a member of the part that nobody knows"])
def test_small_text_with_many_values_counts_for_the_memory_it_takes(serve: Serve, where: str) -> None:
    served = serve(max_stored_bytes=1_000_000)
    values: List[Any] = [[]] * 10_000  # 30 kB of text
    part = {"text": "x"} if where == "metadata" else {"data": values} if where == "data" else {"text": "x", "y": values}
    tasks = [
        served.caller.send(part, metadata={"y": values} if where == "metadata" else {}, contextId="c") for _ in range(3)
    ]
    assert [task["id"] for task in served.caller.call("ListTasks")["tasks"]] == [tasks[-1]["id"]]
