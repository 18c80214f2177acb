"""Calls against a gateway that records: each ends in one answer, the end of its stream, or the end of its time."""

from __future__ import annotations

import contextvars
import logging
import re
import threading
import time
import traceback
from typing import Any

import pytest

from mantyx_sync import MantyxNetworkError, ToolContext, ToolError, ToolResult, ToolResultFile, tool
from mantyx_sync.spacefix import (
    Agent,
    CallReport,
    Registration,
    WorkerPool,
    current_trace,
    delivery,
    expose,
    link,
    service,
)
from mantyx_sync.spacefix.calls import Calls
from mantyx_sync.spacefix.endpoints import Endpoints
from mantyx_sync.spacefix.reconnect import ReconnectPolicy
from mantyx_sync.spacefix.trace import Span
from mantyx_sync.tools.deadlines import Deadlines
from mantyx_sync.transport.body import Release
from tests import recording_gateway
from tests.recording_gateway import DEADLINE_S, KEY, RecordingGateway, Reply, double
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("no_leaks")

TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
TRACE = {"traceparent": TRACEPARENT, "tracestate": "vendor=demo", "requestId": "r1", "sentAt": 1793411561765}


gateway = recording_gateway.gateway  # a fixture


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "ReconnectPolicy", lambda: ReconnectPolicy(first=0.01, ceiling=0.05))
    monkeypatch.setattr(delivery, "_BACKOFF", delivery.Backoff(base=0.01, cap=0.05))


def calls_of(agent: Agent) -> Calls:
    """What watches the times of a started agent's calls, to be shortened where they are not what is tested."""
    assert agent._service is not None
    return agent._service._calls


def said(answer: Any) -> Any:
    return answer["result"] if answer["ok"] else answer["error"]


# ------------------------------------------------------------------------------------------- handlers


def test_the_three_kinds_of_call_are_answered(gateway: RecordingGateway) -> None:
    agent = Agent([double], **gateway.settings)

    @agent.resource("orders://all", name="All orders")
    def all_orders() -> list[dict[str, Any]]:
        return [{"id": "1", "item": "Widget", "total": 4200}]

    @agent.prompt()
    def summarise_order(id: str) -> str:
        return f"Summarise order {id} politely"

    with agent.start():
        stream = gateway.stream()
        stream.call("orders://all", id="a", kind="read", trace=TRACE)
        stream.call("double", {"x": 4}, id="b")
        stream.call("summarise_order", {"id": "7"}, id="c", kind="prompt")
        answers = gateway.answers("abc")
    assert [said(answers[id]) for id in "abc"] == [
        [{"id": "1", "item": "Widget", "total": 4200}],
        8,
        "Summarise order 7 politely",
    ]
    assert all(answer["connectionId"] == stream.id for answer in answers.values())


def test_the_span_tells_the_dashboard_how_it_was(gateway: RecordingGateway) -> None:
    with Agent([double], **gateway.settings).start():
        stream = gateway.stream()
        now = time.time() * 1000
        stream.call("double", {"x": 1}, id="a", trace={**TRACE, "sentAt": now - 5000})
        stream.call("double", {"x": 1}, id="b", trace={**TRACE, "sentAt": now + 60_000})
        stream.call("double", {"x": 1}, id="c")
        spans = {id: answer["span"] for id, answer in gateway.answers("abc").items()}
    assert 5000 <= spans["a"]["inboundMs"] < 15_000
    assert re.fullmatch("[0-9a-f]{16}", spans["a"]["spanId"])
    assert spans["a"]["spanId"] != spans["b"]["spanId"]
    assert spans["b"].keys() == {"handlerMs", "spanId"}  # a clock that is ahead of ours
    assert spans["c"].keys() == {"handlerMs"}


def test_a_handler_sees_its_trace_its_context_and_the_variables_of_whoever_started_the_agent(
    gateway: RecordingGateway,
) -> None:
    tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="none")
    seen: dict[str, Any] = {}

    @tool
    def look(context: ToolContext) -> str:
        seen.update(trace=current_trace(), context=context, remaining=context.remaining)
        return tenant.get()

    tenant.set("t1")
    with Agent([look], **gateway.settings).start():
        tenant.set("t2")
        stream = gateway.stream()
        stream.call("look", id="a", trace=TRACE)
        assert said(gateway.answer("a")) == "t1"
        assert seen["trace"].request_id == "r1"
        assert seen["trace"].headers()["tracestate"] == "vendor=demo"
        assert seen["trace"].span_id == gateway.answer("a")["span"]["spanId"]
        assert (seen["context"].name, seen["context"].tool_use_id) == ("look", "a")
        assert 25 < seen["remaining"] <= 30
        stream.call("look", id="b")
        gateway.answer("b")
        assert seen["trace"] is None


def test_failures_are_told_in_words_without_traces(gateway: RecordingGateway, caplog: pytest.LogCaptureFixture) -> None:
    def fail(error: BaseException) -> Any:
        def handler() -> None:
            raise error

        return handler

    errors: list[tuple[BaseException, str]] = [
        (ToolError("No order 999. Ask the user to confirm the id."), "No order 999. Ask the user to confirm the id."),
        (ToolError(""), "t1 failed"),
        (ToolError("é" * 9000), "é" * 4094 + " …"),
        (ValueError("postgres://user:marker@host"), "t3 failed with ValueError"),
        (SystemExit(3), "t4 failed"),
        (KeyboardInterrupt(), "t5 failed"),
        (RecursionError("marker"), "t6 failed with RecursionError"),
    ]
    tools = [tool(fail(error), name=f"t{place}") for place, (error, _) in enumerate(errors)]
    with Agent(tools, **gateway.settings).start() as agent:
        stream = gateway.stream()
        for place in range(len(errors)):
            stream.call(f"t{place}", id=str(place))
        answers = gateway.answers(str(place) for place in range(len(errors)))
        assert agent.status().is_healthy
        wait_until(lambda: agent.status().errors == len(errors))
    assert [said(answers[str(place)]) for place in range(len(errors))] == [text for _, text in errors]
    assert not any(answer["ok"] for answer in answers.values())
    assert "marker" not in str(answers)
    assert "Traceback" in caplog.text  # for the developer


@pytest.mark.parametrize(
    ("name", "args", "kind", "message"),
    [
        ("double", {"x": "1"}, "call", "tool 'double': arguments do not match its schema: 'x' must be an integer"),
        ("double", {}, "call", "'x' is a required property"),
        ("double", [1], "call", "tool 'double': its arguments must be an object, not an array"),
        ("gone", {}, "call", "gone is not offered by this agent; there are: double, free"),
        ("a://b", None, "read", "a://b is not offered by this agent"),
        ("double", {}, "prompt", "double is not offered by this agent"),
        ("free", None, "call", "{}"),
        ("free", '{"a": 1}', "call", "{'a': 1}"),
    ],
)
def test_arguments_that_do_not_fit_are_told(
    gateway: RecordingGateway, name: str, args: Any, kind: str, message: str
) -> None:
    free = expose(lambda **given: str(given), name="free", parameters={"type": "object"})
    with Agent([double, free], **gateway.settings).start():
        gateway.stream().call(name, args, id="a", kind=kind)
        assert message in said(gateway.answer("a"))


def test_files_reach_the_client_as_blocks(gateway: RecordingGateway) -> None:
    picture = ToolResultFile.from_bytes(b"\x89PNG", "plot.png")
    plot = tool(lambda: ToolResult("see", [picture]), name="plot")
    with Agent([plot], **gateway.settings).start():
        gateway.stream().call("plot", id="a")
        assert said(gateway.answer("a")) == {
            "content": [
                {"type": "text", "text": "see"},
                {"type": "image", "data": picture.data, "mimeType": "image/png"},
            ]
        }


def test_a_result_that_is_too_large_or_has_no_json_form_is_a_short_failure(gateway: RecordingGateway) -> None:
    large = tool(lambda: "x" * (5 * 1024 * 1024), name="large")
    odd = tool(lambda: object(), name="odd")
    reports: list[CallReport] = []
    with Agent([large, odd], **gateway.settings, on_call_done=reports.append).start():
        stream = gateway.stream()
        stream.call("large", id="a")
        stream.call("odd", id="b")
        answers = gateway.answers("ab")
    assert said(answers["a"]).startswith("the result is too large to be returned: 5242")
    assert said(answers["b"]) == "tool 'odd' returned a value of type object, which has no JSON form"
    assert {report.outcome for report in reports} == {"error"}


def test_the_span_of_a_call_that_failed_says_so(gateway: RecordingGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    failed: list[str] = []
    monkeypatch.setattr(Span, "failed", lambda span, error: failed.append(error))
    with Agent([tool(lambda: 1 / 0, name="bad"), double], **gateway.settings).start():
        stream = gateway.stream()
        stream.call("double", {"x": 1}, id="a")
        stream.call("bad", id="b")
        gateway.answers("ab")
    assert failed == ["bad failed with ZeroDivisionError"]


# ------------------------------------------------------------------------------------------- places


def test_calls_run_at_once_and_the_reader_never_waits(gateway: RecordingGateway) -> None:
    together = threading.Barrier(8, timeout=DEADLINE_S)
    with Agent([tool(lambda: together.wait() >= 0, name="meet")], **gateway.settings).start():
        stream = gateway.stream()
        for number in range(8):
            stream.call("meet", id=str(number))
        assert all(answer["ok"] for answer in gateway.answers(map(str, range(8))).values())


def test_what_is_beyond_the_workers_waits(gateway: RecordingGateway) -> None:
    go = threading.Event()
    running: list[int] = []
    most = []

    def work(n: int) -> int:
        running.append(n)
        most.append(len(running))
        go.wait(DEADLINE_S)
        running.remove(n)
        return n

    with Agent([tool(work)], **gateway.settings, workers=3).start() as agent:
        stream = gateway.stream()
        for number in range(10):
            stream.call("work", {"n": number}, id=str(number))
        wait_until(lambda: agent.status().waiting == 7)
        assert (agent.status().in_flight, agent.status().calls) == (3, 3)
        go.set()
        answers = gateway.answers(map(str, range(10)))
    assert [answers[str(number)]["result"] for number in range(10)] == list(range(10))
    assert max(most) == 3


def test_a_call_that_waited_too_long_is_told_so_and_never_run(gateway: RecordingGateway) -> None:
    go = threading.Event()
    ran: list[str] = []
    reports: list[CallReport] = []

    def work(name: str) -> None:
        ran.append(name)
        go.wait(DEADLINE_S)

    with Agent([tool(work)], **gateway.settings, workers=1, on_call_done=reports.append).start() as agent:
        assert calls_of(agent)._patience == 28.0
        calls_of(agent)._patience = 0.1
        stream = gateway.stream()
        for name in "abc":
            stream.call("work", {"name": name}, id=name)
        answers = gateway.answers("bc")
        assert said(answers["b"]) == (
            "work was not run: all 1 workers of the agent were busy for 0 seconds. Try again later."
        )
        wait_until(lambda: len(reports) == 2)
        calls_of(agent)._patience = 28.0
        go.set()
        stream.call("work", {"name": "d"}, id="d")
        assert all(answer["ok"] for answer in gateway.answers("ad").values())
    assert ran == ["a", "d"]
    assert {report.call_id: report.outcome for report in reports[:2]} == {"b": "refused", "c": "refused"}


def test_handlers_that_hang_do_not_use_the_workers_up(gateway: RecordingGateway) -> None:
    go = threading.Event()
    cancelled: list[bool] = []

    @tool
    def hang(context: ToolContext) -> None:
        cancelled.append(context.cancelled.wait(DEADLINE_S))
        go.wait(DEADLINE_S)

    reports: list[CallReport] = []
    agent = Agent([hang, double], **gateway.settings, workers=2, call_timeout=0.2, on_call_done=reports.append)
    with agent.start():
        stream = gateway.stream()
        stream.call("hang", id="a")
        stream.call("hang", id="b")
        wait_until(lambda: len(cancelled) == len(reports) == 2)
        calls_of(agent).call_timeout = 30.0
        stream.call("double", {"x": 1}, id="c")
        assert said(gateway.answer("c")) == 2
        assert agent.status().in_flight == 2
        go.set()
    assert cancelled == [True, True]
    assert [report.outcome for report in reports] == ["timed_out", "timed_out", "ok"]
    assert [request.json["id"] for request in gateway.to("/agent/result")] == ["c"]


def test_a_tools_own_timeout_is_told_at_its_end(gateway: RecordingGateway) -> None:
    go = threading.Event()
    contexts: list[ToolContext] = []

    @tool(timeout=0.1)
    def slow(context: ToolContext) -> str:
        contexts.append(context)
        go.wait(DEADLINE_S)
        return "late"

    reports: list[CallReport] = []
    with Agent([slow], **gateway.settings, on_call_done=reports.append).start():
        stream = gateway.stream()
        stream.call("slow", id="a", trace=TRACE)
        answer = gateway.answer("a")
        assert said(answer) == "slow did not finish within 0.1 seconds"
        assert answer["span"]["handlerMs"] >= 100
        assert contexts[0].cancelled.is_set()
        go.set()
    assert [report.outcome for report in reports] == ["timed_out"]
    assert len(gateway.to("/agent/result")) == 1


def test_a_tools_own_timeout_gives_it_no_more_than_the_gateway_does(gateway: RecordingGateway) -> None:
    left: list[Any] = []

    @tool(timeout=300)
    def patient(context: ToolContext) -> None:
        left.append(context.remaining)

    with Agent([patient], **gateway.settings).start():
        gateway.stream().call("patient", id="a")
        gateway.answer("a")
    assert left[0] <= 30.0


def test_a_tool_may_have_fewer_places_than_the_pool(gateway: RecordingGateway) -> None:
    go = threading.Event()
    one = tool(lambda: go.wait(DEADLINE_S), name="one", max_concurrency=1)
    with Agent([one, double], **gateway.settings).start() as agent:
        stream = gateway.stream()
        stream.call("one", id="a")
        stream.call("one", id="b")
        stream.call("double", {"x": 1}, id="c")
        gateway.answer("c")
        assert (agent.status().in_flight, agent.status().waiting) == (1, 1)
        go.set()
        gateway.answers("ab")


def test_a_thousand_calls_written_back_to_back_are_each_answered_once(gateway: RecordingGateway) -> None:
    with Agent([double], **gateway.settings, workers=16).start() as agent:
        stream = gateway.stream()
        frames = [
            f'event: call\ndata: {{"id":"{number}","name":"double","args":{{"x":{number}}}}}\n\n'
            for number in range(1000)
        ]
        stream.send("".join(frames).encode())
        answers = gateway.answers(map(str, range(1000)))
        wait_until(lambda: agent.status().in_flight == 0)
        assert agent.status().calls == 1000
    assert all(answers[str(number)]["result"] == 2 * number for number in range(1000))
    assert len(gateway.to("/agent/result")) == 1000


def test_agents_with_one_pool_take_turns(gateway: RecordingGateway) -> None:
    pool, go = WorkerPool(1), threading.Event()
    ran: list[str] = []

    def work(name: str) -> None:
        ran.append(name)
        go.wait(DEADLINE_S)

    with Agent([tool(work)], **gateway.settings, workers=pool).start() as one:
        first = gateway.stream()
        for number in range(20):
            first.call("work", {"name": f"one {number}"}, id=f"one {number}")
        wait_until(lambda: one.status().waiting == 19)
        with Agent([tool(work)], **gateway.settings, workers=pool).start() as other:
            gateway.stream().call("work", {"name": "other"}, id="other")
            wait_until(lambda: other.status().waiting == 1)
            go.set()
            gateway.answers(["other", *(f"one {number}" for number in range(20))])
    assert ran.index("other") == 2  # behind the one at work and the one whose turn it was


def test_agents_share_the_processs_sixteen_workers_unless_told_otherwise() -> None:
    one, other = Agent(), Agent()
    assert one._workers is other._workers
    assert one._workers.max_workers == 16
    assert Agent(workers=3)._workers.max_workers == 3


def test_thirty_two_agents_share_the_pool(gateway: RecordingGateway) -> None:
    pool = WorkerPool(4)
    agents = [
        Agent([double], **{**gateway.settings, "telemetry": True}, name=f"a{number}", workers=pool)
        for number in range(32)
    ]
    for agent in agents:
        agent.start()
    streams = [gateway.stream() for _ in agents]
    for stream in streams:
        for number in range(5):
            stream.call("double", {"x": number}, id=f"{stream.id}-{number}")
    gateway.answers(f"{stream.id}-{number}" for stream in streams for number in range(5))
    names = [thread.name for thread in threading.enumerate()]
    ours = [name for name in names if name.startswith("mantyx")]
    assert sum(name.startswith("mantyx-spacefix") for name in ours) == 64
    assert sum(name.startswith("mantyx-tool") for name in ours) <= 4
    assert len(ours) <= 64 + 4 + 1  # the one that watches the time
    for agent in agents:
        agent.stop()


def test_a_hook_that_is_too_slow_is_not_told_everything(
    gateway: RecordingGateway, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(service, "MAX_WAITING_HOOKS", 5)
    go = threading.Event()
    told: list[CallReport] = []

    def hook(report: CallReport) -> None:
        go.wait(DEADLINE_S)
        told.append(report)

    with Agent([double], **gateway.settings, workers=1, on_call_done=hook).start() as agent:
        stream = gateway.stream()
        for number in range(20):
            stream.call("double", {"x": number}, id=str(number))
        gateway.answers(map(str, range(20)))
        wait_until(lambda: not calls_of(agent)._open)
        go.set()
        wait_until(lambda: len(told) >= 5)
        stream.call("double", {"x": 1}, id="last")
        wait_until(lambda: told[-1].call_id == "last")
    assert len(told) < 20
    assert caplog.text.count("a hook of the agent is too slow") == 1


# ------------------------------------------------------------------------------------------- answers


def test_an_answer_is_posted_until_the_gateway_has_it(gateway: RecordingGateway) -> None:
    gateway.replies["/agent/result"] = [Reply(503), Reply(0), Reply(500, "<html>"), Reply(408)]
    with Agent([double], **gateway.settings).start():
        gateway.stream().call("double", {"x": 1}, id="a")
        posts = gateway.wait_for("/agent/result", 5)
    assert len({post.body for post in posts}) == 1
    assert len(posts) == 5


def test_retry_after_of_a_result_is_waited_for(gateway: RecordingGateway) -> None:
    limited = Reply(429, {"error": "Too many failed authentication attempts."}, {"Retry-After": "0.3"})
    gateway.replies["/agent/result"] = [limited]
    with Agent([double], **gateway.settings).start():
        gateway.stream().call("double", {"x": 1}, id="a")
        first, second = gateway.wait_for("/agent/result", 2)
    assert second.at - first.at >= 0.3


@pytest.mark.parametrize("status", [400, 413])
def test_a_result_that_is_refused_becomes_a_short_failure(gateway: RecordingGateway, status: int) -> None:
    gateway.replies["/agent/result"] = [Reply(status, "request entity too large")]
    reports: list[CallReport] = []
    with Agent([double], **gateway.settings, on_call_done=reports.append).start():
        gateway.stream().call("double", {"x": 1}, id="a")
        first, second = gateway.wait_for("/agent/result", 2)
    assert first.json["ok"] is True
    assert second.json | {"span": 0, "connectionId": 0} == {
        "connectionId": 0,
        "id": "a",
        "ok": False,
        "error": "the result was refused by the gateway",
        "span": 0,
    }
    assert [report.outcome for report in reports] == ["error"]


@pytest.mark.parametrize("reply", [Reply(401, {"error": "Invalid API key."}), Reply(403), Reply(415), Reply(302)])
def test_an_answer_that_cannot_be_taken_is_posted_once_and_logged(
    gateway: RecordingGateway, reply: Reply, caplog: pytest.LogCaptureFixture
) -> None:
    gateway.replies["/agent/result"] = [reply]
    reports: list[CallReport] = []
    with Agent([double], **gateway.settings, on_call_done=reports.append).start():
        stream = gateway.stream()
        stream.call("double", {"x": 1}, id="a")
        wait_until(lambda: reports)
        stream.call("double", {"x": 2}, id="b")
        gateway.answer("b")
    assert [report.outcome for report in reports] == ["undelivered", "ok"]
    assert [request.json["id"] for request in gateway.to("/agent/result")] == ["a", "b"]
    assert "call 'double' (a): its answer was refused" in caplog.text


def test_an_answer_is_not_posted_when_its_call_is_over(gateway: RecordingGateway) -> None:
    gateway.replies["/agent/result"] = [Reply(503)] * 1000
    reports: list[CallReport] = []
    with Agent([double], **gateway.settings, call_timeout=0.3, on_call_done=reports.append).start():
        gateway.stream().call("double", {"x": 1}, id="a")
        wait_until(lambda: reports)
        count = len(gateway.to("/agent/result"))
        assert count > 0
        threading.Event().wait(0.1)
        assert len(gateway.to("/agent/result")) == count
    assert reports[0].outcome == "undelivered"


def test_no_error_log_or_frame_shows_the_key_or_the_connections_id(
    gateway: RecordingGateway, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(service, "TELEMETRY_INTERVAL_S", 0.02)
    errors: list[Any] = []

    def keep(made: Any) -> Any:
        def call(*args: Any) -> Any:
            try:
                return made(*args)
            except Exception as error:
                errors.append(error)
                raise

        return call

    for name in ("post_result", "post_telemetry"):
        monkeypatch.setattr(Endpoints, name, keep(getattr(Endpoints, name)))
    replies = [Reply(503), Reply(0), Reply(401), Reply(302), Reply(400, "bad")]
    gateway.replies.update({"/agent/result": list(replies), "/agent/telemetry": list(replies)})
    agent = Agent(
        [double], **{**gateway.settings, "telemetry": True}, on_disconnect=lambda gone: errors.append(gone.error)
    )
    with agent.start():
        stream = gateway.stream()
        for number in range(5):
            stream.call("double", {"x": number}, id=str(number))
        wait_until(lambda: len(errors) >= 10)
        shown = [repr(agent._service.__dict__), repr(agent.status()), repr(agent._service._link.__dict__)]  # type: ignore[union-attr]
        stream.reset()
        gateway.stream()
        wait_until(lambda: agent.status().connects == 2)
    found = [error for error in errors if error is not None]
    assert len(found) >= 11
    for error in found:
        told = traceback.TracebackException.from_exception(error, capture_locals=True)
        shown += [str(error), repr(error.__dict__), "".join(told.format())]
    for secret in (KEY, stream.id):
        assert not any(secret in text for text in [*shown, caplog.text])


def test_a_gateway_that_trickles_its_answer_does_not_hold_one_beyond_its_call() -> None:
    def trickle(body: bytes, timeout: float, release: Release) -> None:
        ended = threading.Event()
        until = time.monotonic() + DEADLINE_S
        while not release.called and time.monotonic() < until:
            ended.wait(0.005)
        raise MantyxNetworkError("released" if release.called else "nobody ended the wait")

    courier = delivery.Courier(trickle, Deadlines().add)
    began = time.monotonic()
    outcome = delivery.Outcome(result=1)
    delivered = courier.deliver(delivery.Connection(Registration()), "a", outcome, began + 0.1, "call 'f' (a)")
    assert delivered is delivery.Delivery.FAILED
    assert time.monotonic() - began < DEADLINE_S - 1.0


def test_a_post_that_begins_when_its_stream_has_ended_is_broken_off() -> None:
    connection = delivery.Connection(Registration())
    with connection.releasable() as release:
        assert not release.called
        connection.end()
        assert release.called
    with connection.releasable() as release:
        assert release.called


# ------------------------------------------------------------------------------------------- lost streams


def test_a_handler_whose_stream_is_lost_finishes_and_its_answer_is_dropped(
    gateway: RecordingGateway, caplog: pytest.LogCaptureFixture
) -> None:
    go, done = threading.Event(), threading.Event()
    contexts: list[ToolContext] = []
    reports: list[CallReport] = []
    gone: list[Any] = []

    @tool
    def slow(context: ToolContext) -> str:
        contexts.append(context)
        go.wait(DEADLINE_S)
        done.set()
        return "x"

    agent = Agent([slow, double], **gateway.settings, on_call_done=reports.append, on_disconnect=gone.append)
    with agent.start():
        first = gateway.stream()
        first.call("slow", id="a", trace=TRACE)
        wait_until(lambda: contexts)
        assert not contexts[0].cancelled.is_set()
        first.end()
        assert contexts[0].cancelled.wait(DEADLINE_S)
        second = gateway.stream()
        second.call("double", {"x": 1}, id="b")
        gateway.answer("b")
        go.set()
        assert done.wait(DEADLINE_S)
        wait_until(lambda: agent.status().in_flight == 0)
        wait_until(lambda: "finished after its stream had ended" in caplog.text)
    assert [request.json["id"] for request in gateway.to("/agent/result")] == ["b"]
    assert [report.outcome for report in reports] == ["lost", "ok"]
    assert gone[0].lost_calls == 1
    assert "call 'slow' (request r1): finished after its stream had ended; its answer is dropped" in caplog.text


def test_calls_that_wait_when_the_stream_is_lost_are_not_run(gateway: RecordingGateway) -> None:
    go = threading.Event()
    ran: list[str] = []

    def work(name: str) -> None:
        ran.append(name)
        go.wait(DEADLINE_S)

    with Agent([tool(work)], **gateway.settings, workers=1).start() as agent:
        first = gateway.stream()
        for name in "abc":
            first.call("work", {"name": name}, id=name)
        wait_until(lambda: agent.status().waiting == 2)
        first.end()
        second = gateway.stream()
        assert agent.status().waiting == 0
        second.call("work", {"name": "d"}, id="d")
        go.set()
        assert gateway.answer("d")["ok"]
    assert ran == ["a", "d"]


def test_an_answer_on_its_way_is_given_up_with_its_stream(gateway: RecordingGateway) -> None:
    gateway.held.clear()
    reports: list[CallReport] = []
    with Agent([double], **gateway.settings, on_call_done=reports.append).start():
        first = gateway.stream()
        first.call("double", {"x": 1}, id="a")
        gateway.wait_for("/agent/result")
        first.end()
        wait_until(lambda: reports)
        assert reports[0].outcome == "lost"
        gateway.held.set()
        second = gateway.stream()
        second.call("double", {"x": 2}, id="b")
        assert gateway.answer("b")["result"] == 4


def test_every_call_after_each_reconnect_is_answered(gateway: RecordingGateway) -> None:
    go = threading.Event()
    slow = tool(lambda: go.wait(DEADLINE_S), name="slow")
    with Agent([double, slow], **gateway.settings).start() as agent:
        for number in range(3):
            stream = gateway.stream()
            stream.call("slow", id=f"s{number}")
            wait_until(lambda: agent.status().in_flight)
            stream.reset()
        stream = gateway.stream()
        stream.call("double", {"x": 21}, id="last")
        assert gateway.answer("last")["result"] == 42
        go.set()


def test_the_same_id_on_one_stream_is_run_once(gateway: RecordingGateway) -> None:
    go = threading.Event()
    ran: list[int] = []
    reports: list[CallReport] = []

    def work() -> None:
        ran.append(1)
        go.wait(DEADLINE_S)

    with Agent([tool(work)], **gateway.settings, on_call_done=reports.append).start():
        stream = gateway.stream()
        stream.call("work", id="a")
        stream.call("work", id="a")
        stream.event("call", {"id": "a"})  # nor is it refused for what a later event lacks
        stream.call("nothing", id="b")
        gateway.answer("b")
        go.set()
        assert gateway.answer("a")["ok"]
        wait_until(lambda: len(reports) == 2)
        stream.call("work", id="a")  # answered long since
        stream.call("nothing", id="c")
        gateway.answer("c")
    assert ran == [1]
    assert [request.json["id"] for request in gateway.to("/agent/result")] == ["b", "a", "c"]


def test_only_the_newest_ids_of_a_stream_are_kept() -> None:
    connection = delivery.Connection(Registration())
    assert all(connection.is_new(str(number)) for number in range(5000))
    assert not connection.is_new("4999")
    assert not connection.is_new(str(5000 - delivery._MAX_SEEN))
    assert len(connection._seen) == delivery._MAX_SEEN
