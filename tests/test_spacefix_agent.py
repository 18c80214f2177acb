"""An agent's stream against a gateway that records: connecting, hearing, losing it, and coming back."""

from __future__ import annotations

import json
import logging
import threading
import time
from email.utils import formatdate
from typing import Any

import pytest

from mantyx_sync import MantyxConfigError, MantyxError, MantyxTimeoutError, tool
from mantyx_sync.spacefix import Agent, SpaceFixRegistrationError, link
from mantyx_sync.spacefix.reconnect import ReconnectPolicy
from mantyx_sync.transport.http import HttpTransport
from tests import recording_gateway
from tests.recording_gateway import DEADLINE_S, KEY, RecordingGateway, Reply, double
from tests.waiting import wait_until
from tests.wire import unused_port

pytestmark = pytest.mark.usefixtures("no_leaks")


gateway = recording_gateway.gateway  # a fixture


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delays that are a hundredth of the documented ones."""
    monkeypatch.setattr(
        link,
        "ReconnectPolicy",
        lambda: ReconnectPolicy(first=0.01, ceiling=0.3, slow_first=0.06, slow_ceiling=0.06, spread=0.05),
    )
    monkeypatch.setattr(link, "_MIN_RENEWAL_S", 0.02)


def error(status: int, reason: str, **headers: str) -> Reply:
    return Reply(status, {"error": reason}, headers)


# ------------------------------------------------------------------------------------------- connecting


def test_the_registration_is_posted_as_documented(gateway: RecordingGateway) -> None:
    with Agent([double], **gateway.settings, app_info="shop/1.0").start() as agent:
        request = gateway.stream().request
        agent.wait_ready()
    assert request.path == "/agent/connect"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.headers["content-type"] == "application/json"
    assert request.headers["accept"] == "text/event-stream"
    assert request.headers["user-agent"].startswith("mantyx-sync/")
    assert request.headers["user-agent"].endswith(" shop/1.0")
    assert request.json == agent.check()
    assert request.json["tools"][0]["name"] == "double"


def test_url_and_key_come_from_the_environment(gateway: RecordingGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPACEFIX_URL", gateway.url + "/")
    monkeypatch.setenv("SPACEFIX_AGENT_KEY", f" {KEY}\n")
    with Agent(telemetry=False).start():
        assert gateway.stream().request.headers["authorization"] == f"Bearer {KEY}"


def test_without_a_key_it_is_not_started(gateway: RecordingGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPACEFIX_AGENT_KEY", raising=False)
    agent = Agent(url=gateway.url)
    with pytest.raises(MantyxConfigError, match="agent_key: missing; pass agent_key= or set SPACEFIX_AGENT_KEY"):
        agent.start()
    assert agent.status().state == "stopped"


def test_a_source_of_keys_is_asked_again_after_a_401(gateway: RecordingGateway) -> None:
    gateway.replies["/agent/connect"] = [error(401, "Invalid API key.")]
    keys = {"initial": "old", "unauthorized": "new"}
    settings = {**gateway.settings, "agent_key": None, "key_source": keys.__getitem__}
    with Agent(**settings).start():
        assert gateway.stream().request.headers["authorization"] == "Bearer new"


def test_starting_twice_is_starting_once(gateway: RecordingGateway) -> None:
    with Agent(**gateway.settings).start() as agent:
        gateway.stream()
        assert agent.start() is agent
        with agent:
            agent.wait_ready()
        assert agent.status().state == "stopped"
    assert len(gateway.to("/agent/connect")) == 1


def test_a_stopped_agent_can_be_started_again(gateway: RecordingGateway) -> None:
    agent = Agent([double], **gateway.settings)
    for _ in range(2):
        with agent.start():
            stream = gateway.stream()
            stream.call("double", {"x": 2}, id=stream.id)
            assert gateway.answer(stream.id)["result"] == 4
        assert stream.ended.wait(DEADLINE_S)


def test_frames_may_be_cut_anywhere_and_written_freely(gateway: RecordingGateway) -> None:
    with Agent([double], **gateway.settings).start():
        stream = gateway.stream()
        data = (
            b": ping\n\n"
            b'event: call\ndata: {"id":"a","name":"double","args":{"x":1}}\n\n'
            b': ping\r\n\r\nevent:call\r\ndata:{"id":"b","name":"double",\r\ndata: "args":{"x":2}}\r\n\r\n'
            b"event: brand.new\ndata: {}\n\nid: 5\nretry: 1\n\n"
            b'event: call\ndata: {"id":"c","name":"double","args":{"x":3},"later":true}\n\n'
        )
        for i in range(len(data)):
            stream.send(data[i : i + 1])
        answers = gateway.answers("abc")
    assert [answers[id]["result"] for id in "abc"] == [2, 4, 6]


def test_nothing_unreadable_ends_the_stream(gateway: RecordingGateway, caplog: pytest.LogCaptureFixture) -> None:
    with Agent([double], **gateway.settings).start() as agent:
        stream = gateway.stream()
        stream.send(b"event: call\ndata: {\n\nevent: call\ndata: []\n\nevent: call\ndata: \xff\n\n: \xff\n\n")
        stream.event("call", {"id": "n"})
        stream.ready()
        stream.call("double", {"x": 4}, id="d")
        assert gateway.answer("d")["result"] == 8
        assert gateway.answer("n")["error"] == "the call cannot be read: it has no name"
        assert agent.status().connects == 1
    assert "a second 'ready' on one stream is ignored" in caplog.text


ODD_VALUES = [
    "null",
    "true",
    "1e999",
    "NaN",
    f"1{'0' * 400}",
    "1" * 5000,
    '"\\ud800"',
    '""',
    "[]",
    "{}",
    "[" * 500 + "]" * 500,
]


@pytest.mark.parametrize("field", ["id", "name", "args", "trace", "traceparent", "tracestate", "requestId", "sentAt"])
def test_no_value_of_any_field_takes_the_agent_down(gateway: RecordingGateway, field: str) -> None:
    with Agent([double], **gateway.settings).start() as agent:
        stream = gateway.stream()
        for kind in ("call", "read", "prompt", "ready"):
            for place, value in enumerate(ODD_VALUES):
                fields = {"id": f'"{kind}{place}"', "name": '"double"', "args": '{"x":1}'}
                if field in fields or field == "trace":
                    fields[field] = value
                else:
                    fields["trace"] = f'{{"{field}":{value}}}'
                written = ",".join(f'"{name}":{text}' for name, text in fields.items())
                stream.send(f"event: {kind}\ndata: {{{written}}}\n\n".encode())
        stream.call("double", {"x": 2}, id="last")
        assert gateway.answer("last")["result"] == 4
        wait_until(lambda: agent.status().waiting == agent.status().in_flight == 0)
        assert agent.status().connects == 1


def test_an_event_that_we_fail_at_does_not_end_the_agent(
    gateway: RecordingGateway, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    read_event = link.read_event

    def fail(frame: str) -> Any:
        if "bad" in frame:
            raise ZeroDivisionError
        return read_event(frame)

    monkeypatch.setattr(link, "read_event", fail)
    with Agent([double], **gateway.settings).start() as agent:
        stream = gateway.stream()
        stream.call("double", {"x": 1}, id="bad")
        stream.call("double", {"x": 2}, id="good")
        assert gateway.answer("good")["result"] == 4
        assert agent.status().connects == 1
    assert "an event could not be taken" in caplog.text


def test_a_call_before_ready_is_not_run() -> None:
    with RecordingGateway(ready=False) as gateway, Agent([double], **gateway.settings).start() as agent:
        stream = gateway.stream()
        stream.call("double", {"x": 1}, id="early")
        stream.ready()
        stream.call("double", {"x": 2}, id="late")
        assert gateway.answer("late")["connectionId"] == stream.id
        agent.wait_ready()
    assert [request.json["id"] for request in gateway.to("/agent/result")] == ["late"]


# ------------------------------------------------------------------------------------------- losing it


@pytest.mark.parametrize("how", ["end", "reset"])
def test_a_stream_that_ends_is_opened_again(gateway: RecordingGateway, how: str) -> None:
    with Agent([double], **gateway.settings).start() as agent:
        for number in range(4):
            stream = gateway.stream()
            stream.call("double", {"x": number}, id=f"c{number}")
            assert gateway.answer(f"c{number}")["connectionId"] == stream.id
            getattr(stream, how)()
        gateway.stream()
        wait_until(lambda: agent.status().connects == 5)
        assert agent.status().is_healthy
        assert agent.status().failures == 0


def test_silence_is_a_dead_stream(gateway: RecordingGateway) -> None:
    gone = []
    with Agent(**gateway.settings, stream_idle_timeout=0.2, on_disconnect=gone.append).start():
        first = gateway.stream()
        sent_at = [time.monotonic()]
        while len(sent_at) < 5 and not first.ended.is_set():  # pings keep it alive
            threading.Event().wait(0.06)
            first.send(b": ping\n\n")
            sent_at.append(time.monotonic())
        longest = max(later - earlier for earlier, later in zip(sent_at, sent_at[1:]))
        assert not first.ended.is_set() or longest > 0.1  # a machine that is too busy to ping in time
        assert first.ended.wait(DEADLINE_S)
        gateway.stream()
    assert gone[0].reason == "the stream is dead: nothing arrived for 0.2 s"
    assert isinstance(gone[0].error, MantyxTimeoutError)
    assert gone[0].connected_for > 0.3 or longest > 0.1


def test_a_stream_that_never_is_ready_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "READY_TIMEOUT_S", 0.1)
    errors: list[MantyxError] = []
    with RecordingGateway(ready=False) as gateway, Agent(**gateway.settings, on_error=errors.append).start():
        first = gateway.stream()
        while not first.ended.wait(0.03):
            try:
                first.send(b": ping\n\n")
            except OSError:
                break
        gateway.stream()
    assert str(errors[0]) == "the stream brought no 'ready' for 0.1 s"


def test_stopping_ends_a_wait_for_the_gateways_headers(gateway: RecordingGateway) -> None:
    hold = threading.Event()
    original = gateway.record

    def slow(request: Any) -> Any:
        hold.wait(DEADLINE_S)
        return original(request)

    gateway.record = slow  # type: ignore[method-assign]
    agent = Agent(**gateway.settings).start()
    wait_until(lambda: agent.status().state == "connecting")
    agent.stop()
    assert agent.status().state == "stopped"
    hold.set()


# ------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (error(400, 'Invalid tool name "x y".'), SpaceFixRegistrationError),
        (Reply(413, "request entity too large"), SpaceFixRegistrationError),
        (error(415, "Content-Type must be application/json."), SpaceFixRegistrationError),
    ],
)
def test_a_refused_registration_is_not_tried_again_until_it_changes(
    gateway: RecordingGateway, reply: Reply, kind: type[MantyxError]
) -> None:
    gateway.replies["/agent/connect"] = [reply]
    errors: list[MantyxError] = []
    with Agent([double], **gateway.settings, on_error=errors.append).start() as agent:
        with pytest.raises(kind):
            agent.wait_ready()
        status = agent.status()
        assert (status.state, status.is_healthy, status.next_attempt_in) == ("refused", False, None)
        assert isinstance(status.last_error, kind)
        threading.Event().wait(0.1)
        assert len(gateway.to("/agent/connect")) == 1
        agent.update(tools=[])
        agent.wait_ready()
        assert agent.status().is_healthy
        assert agent.status().last_error is None
    assert [type(error) for error in errors] == [kind]
    assert gateway.to("/agent/connect")[1].json["tools"] == []


@pytest.mark.parametrize(
    "reply",
    [
        error(401, "Missing API key."),
        error(403, "This is a client key. Agents connect with an agent key."),
        Reply(
            403, {"jsonrpc": "2.0", "id": None, "error": {"code": -32003, "message": "This project is suspended: x"}}
        ),
        error(429, "Too many agent connections: the Free plan allows 32."),
        error(503, "Service is shutting down."),
        Reply(502, "<html><title>Bad gateway</title></html>"),
        Reply(200, "<html>Sign in</html>"),
        Reply(200, {"ok": True}),
        Reply(204),
        Reply(307, "", {"Location": "http://elsewhere.test/agent/connect"}),
        Reply(0),
    ],
    ids=lambda reply: f"{reply.status}-{reply.body!r:.30}",
)
def test_everything_else_is_tried_again(gateway: RecordingGateway, reply: Reply) -> None:
    gateway.replies["/agent/connect"] = [reply, reply]
    errors: list[MantyxError] = []
    with Agent(**gateway.settings, on_error=errors.append).start() as agent:
        gateway.stream()
        agent.wait_ready()
    assert len(errors) == 2
    assert len(gateway.to("/agent/connect")) == 3
    assert KEY not in repr(errors) + str(errors)


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_is_tried_slowly(gateway: RecordingGateway, status: int) -> None:
    gateway.replies["/agent/connect"] = [error(status, "Invalid API key.")]
    with Agent(**gateway.settings).start():
        gateway.stream()
    first, second = gateway.to("/agent/connect")
    assert second.at - first.at >= 0.03  # half of the first slow delay; the ordinary one is at most 0.01


def test_retry_after_is_waited_for(gateway: RecordingGateway, caplog: pytest.LogCaptureFixture) -> None:
    limited = error(429, "Rate limit exceeded: 60 requests per minute.", **{"Retry-After": "0.2"})
    gateway.replies["/agent/connect"] = [limited]
    with Agent(**gateway.settings).start():
        gateway.stream()
    first, second = gateway.to("/agent/connect")
    assert second.at - first.at >= 0.2
    assert "Rate limit exceeded: 60 requests per minute; connecting again in " in caplog.text


@pytest.mark.parametrize("form", ["90", "date"])
def test_the_status_says_when_it_is_tried_again(gateway: RecordingGateway, form: str) -> None:
    retry_after = formatdate(time.time() + 90, usegmt=True) if form == "date" else form
    gateway.replies["/agent/connect"] = [error(429, "Rate limit exceeded.", **{"Retry-After": retry_after})]
    with Agent(**gateway.settings).start() as agent:
        wait_until(lambda: agent.status().state == "waiting")
        status = agent.status()
    assert status.next_attempt_in is not None
    assert 60 < status.next_attempt_in < 91
    assert status.failures == 1


def test_redirects_are_refused_with_advice(gateway: RecordingGateway) -> None:
    gateway.replies["/agent/connect"] = [Reply(301, "", {"Location": "https://elsewhere.test/x?key=secret"})] * 50
    with Agent(**gateway.settings).start() as agent, pytest.raises(MantyxTimeoutError) as caught:
        agent.wait_ready(0.1)
    assert "redirects (301) to 'https://elsewhere.test'" in str(caught.value)
    assert "Set SPACEFIX_URL to the final address" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_gateway_that_nobody_serves_is_named(caplog: pytest.LogCaptureFixture) -> None:
    port = unused_port()
    with Agent(url=f"http://127.0.0.1:{port}", agent_key=KEY, telemetry=False).start() as agent:
        with pytest.raises(MantyxTimeoutError, match=rf"not ready within 0.05 s: .*127\.0\.0\.1:{port}"):
            agent.wait_ready(0.05)
        assert agent.status().state in ("waiting", "connecting")
        assert not agent.status().is_healthy
    assert KEY not in caplog.text


# ------------------------------------------------------------------------------------------- updating


def test_another_registration_is_served_by_connecting_again(gateway: RecordingGateway) -> None:
    gone: list[Any] = []
    with Agent([double], **gateway.settings, on_disconnect=gone.append).start() as agent:
        first = gateway.stream()
        agent.wait_ready()

        @agent.tool
        def triple(x: int) -> int:
            return 3 * x

        agent.update()
        agent.wait_ready()
        assert first.ended.wait(DEADLINE_S)
        second = gateway.stream()
        assert [item["name"] for item in second.request.json["tools"]] == ["double", "triple"]
        second.call("triple", {"x": 2}, id="t")
        assert gateway.answer("t")["result"] == 6
        assert agent.status().failures == 0
    assert gone[0].reason == "the agent registers anew"
    assert gone[0].error is None
    assert gone[1].reason == "the agent was stopped"


def test_an_update_while_a_connection_is_begun_is_not_missed(
    gateway: RecordingGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Late(link.Connection):
        def __init__(self, registration: Any) -> None:
            super().__init__(registration)
            if registration.tools and not updated:
                updated.append(agent)
                agent.update(tools=[])  # this connection has the old registration, and nothing to be woken by yet

    updated: list[Agent] = []
    monkeypatch.setattr(link, "Connection", Late)
    agent = Agent([double], **gateway.settings)
    with agent.start():
        agent.wait_ready()
    assert updated
    assert [request.json["tools"] for request in gateway.to("/agent/connect")] == [[]]


def test_a_registration_that_would_be_refused_changes_nothing(gateway: RecordingGateway) -> None:
    with Agent([double], **gateway.settings).start() as agent:
        stream = gateway.stream()
        agent.wait_ready()
        with pytest.raises(MantyxConfigError):
            agent.update(tools=[5])
        stream.call("double", {"x": 2}, id="d")
        assert gateway.answer("d")["result"] == 4
        assert agent.check()["tools"][0]["name"] == "double"
    assert len(gateway.to("/agent/connect")) == 1


def test_calls_at_work_are_answered_before_the_agent_registers_anew(gateway: RecordingGateway) -> None:
    go = threading.Event()
    with Agent([tool(lambda: go.wait(DEADLINE_S), name="slow")], **gateway.settings).start() as agent:
        first = gateway.stream()
        first.call("slow", id="s")
        wait_until(lambda: agent.status().in_flight == 1)
        agent.update(prompts=[])
        assert not first.ended.wait(0.1)
        go.set()
        assert gateway.answer("s") | {"span": 0} == {
            "connectionId": first.id,
            "id": "s",
            "ok": True,
            "result": True,
            "span": 0,
        }
        assert first.ended.wait(DEADLINE_S)
        gateway.stream()


def test_updates_cost_a_project_no_more_than_an_attempt_each_second(
    gateway: RecordingGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "_MIN_RENEWAL_S", 0.1)
    with Agent([double], **gateway.settings).start() as agent:
        for _ in range(3):
            agent.wait_ready()
            agent.update(tools=[])
        agent.wait_ready()
    at = [request.at for request in gateway.to("/agent/connect")]
    assert len(at) == 4
    assert at[-1] - at[0] >= 0.3 - 0.05  # when they arrived; an earlier one may have been late


def test_a_call_that_does_not_end_keeps_an_update_waiting_for_the_grace_alone(gateway: RecordingGateway) -> None:
    go = threading.Event()
    with Agent([tool(lambda: go.wait(DEADLINE_S), name="slow")], **gateway.settings).start() as agent:
        first = gateway.stream()
        first.call("slow", id="s")
        wait_until(lambda: agent.status().in_flight == 1)
        agent.update(grace=0.05)
        agent.wait_ready()
        assert first.ended.wait(DEADLINE_S)
        go.set()
    assert gateway.to("/agent/result") == []


def test_what_is_waiting_to_connect_registers_anew_at_once(
    gateway: RecordingGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "ReconnectPolicy", lambda: ReconnectPolicy(first=60.0))
    gateway.replies["/agent/connect"] = [Reply(503)]
    with Agent([double], **gateway.settings).start() as agent:
        wait_until(lambda: agent.status().state == "waiting")
        agent.update(tools=[])
        agent.wait_ready()
    assert gateway.to("/agent/connect")[1].json["tools"] == []


# ------------------------------------------------------------------------------------------- telling


def test_hooks_are_told_in_order_off_the_streams_thread(gateway: RecordingGateway) -> None:
    told: list[tuple[str, Any]] = []
    threads = set()
    block = threading.Event()

    def note(word: str) -> Any:
        def hook(value: Any) -> None:
            threads.add(threading.current_thread().name)
            told.append((word, value))
            if word == "connect":
                block.wait(DEADLINE_S)

        return hook

    hooks = {f"on_{word}": note(word) for word in ("connect", "disconnect", "call_done", "error")}
    gateway.replies["/agent/connect"] = [Reply(503, {"error": "Service is shutting down."})]
    with Agent([double], **gateway.settings, **hooks).start():
        stream = gateway.stream()
        for number in range(3):
            stream.call("double", {"x": number}, id=f"c{number}", trace={"requestId": f"r{number}"})
            gateway.answer(f"c{number}")  # though the first hook has not returned
        block.set()
    assert [word for word, _ in told] == ["error", "connect", "call_done", "call_done", "call_done", "disconnect"]
    assert not any("link" in name or "Main" in name for name in threads)
    values = dict(told)
    assert values["connect"].state == "ready"
    assert values["connect"].is_healthy
    reports = {value.call_id: value for word, value in told if word == "call_done"}
    assert sorted(reports) == ["c0", "c1", "c2"]  # each when its own post has been answered
    report = reports["c2"]
    assert (report.kind, report.name, report.call_id, report.request_id) == ("call", "double", "c2", "r2")
    assert (report.ok, report.outcome, report.error) == (True, "ok", None)
    assert report.handler_s >= 0
    assert values["disconnect"].reason == "the agent was stopped"
    assert values["disconnect"].lost_calls == 0


def test_a_hook_that_raises_does_no_harm(gateway: RecordingGateway, caplog: pytest.LogCaptureFixture) -> None:
    def fail(value: Any) -> None:
        raise ZeroDivisionError

    hooks = dict.fromkeys(["on_connect", "on_disconnect", "on_call_done", "on_error"], fail)
    with Agent([double], **gateway.settings, **hooks).start():
        stream = gateway.stream()
        stream.call("double", {"x": 1}, id="a")
        gateway.answer("a")
    assert caplog.text.count("a hook of the agent raised") == 3


def test_health_follows_what_is_heard_and_not_a_flag(gateway: RecordingGateway) -> None:
    agent = Agent([double], **gateway.settings)
    assert agent.status() == agent.status()
    assert (agent.status().state, agent.status().is_healthy) == ("stopped", False)
    with agent.start():
        stream = gateway.stream()
        agent.wait_ready()
        before = agent.status()
        assert before.is_healthy
        assert before.silent_for is not None
        assert before.connected_for is not None
        wait_until(lambda: (agent.status().silent_for or 0) > before.silent_for + 0.02)
        sent_at = time.monotonic()
        stream.send(b": ping\n\n")
        wait_until(lambda: (agent.status().silent_for or 0) <= time.monotonic() - sent_at)


def test_no_key_and_no_connection_id_is_shown(
    gateway: RecordingGateway, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    gateway.replies["/agent/connect"] = [error(401, "Invalid API key."), error(400, 'Invalid tool name "x".')]
    seen: list[Any] = []
    agent = Agent([double], **gateway.settings, on_error=seen.append, on_call_done=seen.append, on_connect=seen.append)
    with agent.start():
        with pytest.raises(SpaceFixRegistrationError) as caught:
            agent.wait_ready()
        agent.update()
        stream = gateway.stream()
        stream.call("double", {"x": "marker-of-an-argument"}, id="a")
        gateway.answer("a")
        shown = [repr(agent), repr(agent.status()), repr(vars(agent)), str(caught.value), repr(vars(caught.value))]
    shown += [caplog.text, repr(seen), *capsys.readouterr()]
    assert not [text for text in shown if KEY in text or stream.id in text or "marker-of-an-argument" in text]
    with pytest.raises(TypeError, match="an Agent cannot be pickled or copied"):
        agent.__reduce__()


def test_a_netrc_does_not_replace_the_key(
    gateway: RecordingGateway, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text("default login a password b\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with Agent([double], **gateway.settings).start():
        stream = gateway.stream()
        stream.call("double", {"x": 1}, id="a")
        gateway.answer("a")
    assert {request.headers["authorization"] for request in gateway.requests} == {f"Bearer {KEY}"}


def test_a_proxy_of_the_environment_is_used(gateway: RecordingGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", gateway.url)
    monkeypatch.delenv("no_proxy", raising=False)
    with Agent(url="http://gateway.test", agent_key=KEY, telemetry=False).start():
        wait_until(lambda: gateway.requests)
        assert gateway.requests[0].path == "http://gateway.test/agent/connect"


# ------------------------------------------------------------------------------------------- telemetry


def test_samples_are_posted_for_the_connection_that_is_ready(
    gateway: RecordingGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mantyx_sync.spacefix.service.TELEMETRY_INTERVAL_S", 0.05)
    gateway.replies["/agent/telemetry"] = [Reply(503), Reply(0)]
    failing = tool(lambda: 1 / 0, name="failing")
    with Agent([double, failing], **{**gateway.settings, "telemetry": True}).start() as agent:
        first = gateway.stream()
        first.call("double", {"x": 1}, id="a")
        first.call("failing", id="b")
        gateway.answers("ab")
        samples = gateway.wait_for("/agent/telemetry", 3)
        for post in (samples[0], gateway.to("/agent/result")[0]):
            assert post.headers["authorization"] == f"Bearer {KEY}"
            assert post.headers["content-type"] == "application/json"
        assert {sample.json["connectionId"] for sample in samples} == {first.id}
        calls = sum(sample.json["metrics"]["calls"] for sample in samples)
        errors = sum(sample.json["metrics"]["errors"] for sample in samples)
        assert (calls, errors) == (2, 1)
        assert samples[0].json["metrics"]["tools"] == 2
        first.end()
        second = gateway.stream()
        wait_until(lambda: gateway.to("/agent/telemetry")[-1].json["connectionId"] == second.id)
        agent.stop()
        count = len(gateway.to("/agent/telemetry"))
        threading.Event().wait(0.16)
        assert len(gateway.to("/agent/telemetry")) <= count + 1  # one may have been on its way


def test_no_sample_is_posted_while_there_is_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mantyx_sync.spacefix.service.TELEMETRY_INTERVAL_S", 0.01)
    with RecordingGateway(ready=False) as gateway, Agent(**{**gateway.settings, "telemetry": True}).start():
        stream = gateway.stream()
        threading.Event().wait(0.05)
        assert gateway.to("/agent/telemetry") == []
        stream.ready()
        assert gateway.wait_for("/agent/telemetry")[0].json["connectionId"] == stream.id


def test_the_documented_times_are_what_is_meant_where_nothing_is_said(
    gateway: RecordingGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    transport_open = HttpTransport.open

    def note(transport: HttpTransport, *args: Any, **options: Any) -> Any:
        waits.append(options["read_timeout"])
        return transport_open(transport, *args, **options)

    monkeypatch.setattr(HttpTransport, "open", note)
    with Agent(**gateway.settings).start() as agent:
        gateway.stream()
        assert agent._service is not None
        assert agent._service._calls.call_timeout == 30.0
    assert waits == [75.0]


def test_the_documented_interval_is_ten_seconds() -> None:
    from mantyx_sync.spacefix.service import TELEMETRY_INTERVAL_S

    assert TELEMETRY_INTERVAL_S == 10.0


def test_telemetry_can_be_switched_off(gateway: RecordingGateway) -> None:
    with Agent(**gateway.settings).start():
        gateway.stream()
        assert not [thread for thread in threading.enumerate() if "telemetry" in thread.name]
    assert json.dumps(gateway.to("/agent/telemetry")) == "[]"
