"""Runs over a bad network and with a server that is odd: the right answer or a typed error, each tool once."""

from __future__ import annotations

import functools
import json
import logging
import os
import pickle
import subprocess
import sys
import textwrap
import threading
import time
import tracemalloc
from typing import Any, Callable

import pytest

import mantyx_sync.tools.calls
import mantyx_sync.workspace
from mantyx_sync import (
    MantyxAPIError,
    MantyxAuthError,
    MantyxError,
    MantyxForbiddenError,
    MantyxNetworkError,
    MantyxNotFoundError,
    MantyxProtocolError,
    MantyxRateLimitError,
    MantyxRunCancelled,
    MantyxRunError,
    MantyxTimeoutError,
    tool,
)
from mantyx_sync.local import LocalServer, ScriptedModel, ToolUse
from mantyx_sync.local.faults import cut, lose_answer
from mantyx_sync.reader import FollowSettings, RunReader
from mantyx_sync.transport.retry import Reconnect
from tests.scripted_runs import (
    BASE,
    RUN_ID,
    SPEC,
    RunServer,
    Script,
    after_result,
    call,
    delta,
    event,
    lost,
    quick_client,
    quickly,
    refusal,
    reply,
    result,
    snapshot,
    stream,
    wait_for,
)
from tests.waiting import wait_until
from tests.wire import DEADLINE_S, Gone, Peer, Request, WireServer, chunk, head

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    quickly(monkeypatch)


class Counted:
    """A tool that notes its calls."""

    def __init__(self) -> None:
        self.calls: list[int] = []

        @tool
        def double(n: int) -> int:
            """Double a number."""
            self.calls.append(n)
            return 2 * n

        self.tool = double


def events_of(server: RunServer, **settings: Any) -> tuple[list[Any], Any]:
    """Follow the server's run; return its events and what `result()` returned or raised."""
    with quick_client(server, **settings) as client:
        run = client.start_agent(**SPEC)
        try:
            events = list(run)
            return events, run.result(timeout=DEADLINE_S)
        except MantyxError as error:
            return [], error
        finally:
            run.close()


def seqs(events: list[Any]) -> list[int]:
    return [event.seq for event in events]


# ------------------------------------------------------------- what a stream may hold


def test_replayed_events_are_handed_out_once_and_replayed_tool_calls_run_once() -> None:
    counted = Counted()
    first = [delta(1, "a"), call(2, "t1", "double", {"n": 4}), after_result("t1"), delta(3, "b")]
    again = [delta(1, "a"), call(2, "t1", "double", {"n": 4}), delta(3, "b"), delta(4, "c")]
    # The same call under another number, as a server that lost its place would send it.
    more = [call(5, "t1", "double", {"n": 4}), result(6, "abc")]
    with RunServer(stream(*first), stream(*again, *again), stream(*more)) as server, quick_client(server) as client:
        run = client.start_agent(**SPEC, tools=[counted.tool])
        assert seqs(list(run)) == [1, 2, 3, 4, 5, 6]
        assert run.result().text == "abc"
        assert counted.calls == [4]
        assert server.tool_results == [{"toolUseId": "t1", "result": "8"}]
        places = [request.headers.get("last-event-id") for request in server.stream_requests]
        assert places == [None, "3", "4"]
        assert [request.target.partition("?")[2] for request in server.stream_requests] == [
            "",
            "lastSeq=3",
            "lastSeq=4",
        ]


def test_events_are_told_apart_by_the_number_in_their_json_when_frames_have_no_ids() -> None:
    def bare(frame: bytes) -> bytes:
        return frame[frame.index(b"data: ") :]

    first = stream(bare(delta(1, "a")), bare(delta(2, "b")))
    second = stream(bare(delta(1, "a")), bare(delta(2, "b")), bare(result(3, "ab")))
    with RunServer(first, second) as server:
        events, outcome = events_of(server)
    assert (seqs(events), outcome.text) == ([1, 2, 3], "ab")


def test_a_server_that_numbers_nothing_is_followed_and_its_tool_calls_run_once() -> None:
    counted = Counted()
    tool_call = b'event: local_tool_call\ndata: {"toolUseId": "t1", "name": "double", "args": {"n": 1}}\n\n'
    end = b'event: result\ndata: {"text": "old"}\n\n'
    first = stream(tool_call, after_result("t1"))
    with RunServer(first, stream(tool_call, end)) as server, quick_client(server) as client:
        assert client.run_agent(**SPEC, tools=[counted.tool]).text == "old"
        assert server.stream_requests[1].headers.get("last-event-id") is None
    assert counted.calls == [1]


def test_unknown_events_and_fields_are_handed_on() -> None:
    odd = event(2, "brand.new", x=[1, 2])
    with RunServer(stream(b"foo: bar\n\n", odd, event(3, "assistant_delta", text="a", extra=1), result(4))) as server:
        events, outcome = events_of(server)
    assert [(e.type, dict(e.data)) for e in events][:2] == [
        ("brand.new", {"x": [1, 2]}),
        ("assistant_delta", {"text": "a", "extra": 1}),
    ]
    assert outcome.text == "Done."


def test_a_known_event_with_a_malformed_field_is_kept_undecoded_and_the_run_goes_on() -> None:
    bad = [event(1, "assistant_delta", text=5), event(2, "local_tool_call", name="x"), event(3, "task_plan", steps=7)]
    with RunServer(stream(*bad, result(4))) as server:
        events, outcome = events_of(server)
    assert seqs(events) == [1, 2, 3, 4]
    assert events[0].data == {"text": 5}
    assert outcome.text == "Done."


@pytest.mark.parametrize("kind", ["assistant_delta", "local_tool_call", "local_tool_result_in", "new_kind"])
@pytest.mark.parametrize("data", ["5", '"text"', "[1]", "true"])
def test_an_event_whose_data_is_no_object_is_kept_without_data_and_the_run_goes_on(kind: str, data: str) -> None:
    frame = f'id: 1\ndata: {{"seq": 1, "type": "{kind}", "data": {data}}}\n\n'
    with RunServer(stream(frame.encode(), result(2))) as server:
        events, outcome = events_of(server)
    assert (events[0].type, events[0].data, events[0].text) == (kind, {}, "")
    assert outcome.text == "Done."


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (b'event: error\ndata: {"error": {"message": "limit", "type": "overloaded"}}\n\n', "limit"),
        (b'event: error\ndata: {"error": "text of the server"}\n\n', "text of the server"),
        (event(9, "error", error="it broke", errorClass="server_error"), "it broke"),
    ],
)
@pytest.mark.parametrize("before", [[], [delta(1, "Hel"), delta(2, "lo")]])
def test_an_error_inside_a_200_stream_is_raised_with_the_servers_words(
    frame: bytes, expected: str, before: list[bytes]
) -> None:
    with RunServer(stream(*before, frame, end="stay")) as server, quick_client(server) as client:
        run = client.start_agent(**SPEC)
        texts = [e.text for e in run if e.type == "assistant_delta"]
        with pytest.raises(MantyxRunError, match=expected) as caught:
            run.result()
    assert texts == ["Hel", "lo"][: len(before)]
    assert caught.value.run_id == RUN_ID


def test_the_terminal_event_ends_the_run_although_the_body_stays_open() -> None:
    with RunServer(stream(delta(1, "a"), result(2, "a"), end="stay")) as server, quick_client(server) as client:
        began = time.monotonic()
        assert client.run_agent(**SPEC).text == "a"
        assert time.monotonic() - began < 1.0
        wait_until(lambda: not threads_named("mantyx-run"), "the reader thread goes on", 1.0)


def test_what_follows_the_terminal_event_is_not_read() -> None:
    batch = result(2, "first") + delta(3, "late") + result(4, "second")
    with RunServer(stream(delta(1, "a") + batch)) as server, quick_client(server, keep_deltas=True) as client:
        run = client.start_agent(**SPEC)
        assert seqs(list(run)) == [1, 2]
        assert run.result().text == "first"
        assert seqs(list(run.result().events)) == [1, 2]


@pytest.mark.parametrize("end", ["fin", "rst", "end"])
def test_a_body_that_ends_without_a_terminal_event_is_no_result(end: str) -> None:
    streams = [
        stream(delta(1, "a"), delta(2, "b"), end=end),
        stream(end=end),
        stream(delta(3, "c"), result(4, "abc")),
    ]
    with RunServer(*streams) as server:
        events, outcome = events_of(server)
    assert ("".join(e.text for e in events[:3]), outcome.text) == ("abc", "abc")


@pytest.mark.parametrize("place", ["first", "later"])
def test_a_malformed_terminal_event_is_a_protocol_error_and_no_result(place: str) -> None:
    frames = [event(5, "result", text={"not": "text"})]
    with RunServer(stream(*([delta(1, "a")] if place == "later" else []), *frames)) as server:
        _, error = events_of(server)
    assert isinstance(error, MantyxProtocolError)
    assert "result" in str(error)


# ------------------------------------------------------------- silence and life


def test_silence_is_noticed_and_the_stream_taken_up_again_where_it_was() -> None:
    with (
        RunServer(stream(delta(1, "a"), end="stay"), stream(result(2, "a"))) as server,
        quick_client(server, stream_idle_timeout=0.2) as client,
    ):
        began = time.monotonic()
        assert client.run_agent(**SPEC, timeout=DEADLINE_S).text == "a"
        assert 0.15 < time.monotonic() - began < 5
        assert server.stream_requests[1].headers["last-event-id"] == "1"


def test_a_server_that_accepts_and_never_answers_counts_as_silent() -> None:
    def silent(peer: Peer, _: Request) -> None:
        peer.stay()
        raise Gone

    with RunServer(silent, stream(result(1))) as server, quick_client(server, stream_idle_timeout=0.2) as client:
        assert client.run_agent(**SPEC, timeout=DEADLINE_S).text == "Done."


def ticking(last: threading.Event | None, *pieces: bytes, pause: float = 0.05, count: int = 10_000) -> Script:
    """Return a stream that sends the pieces and then heartbeats until `last` is set, or `count` of them."""

    def script(peer: Peer, request: Request) -> None:
        peer.send(head(200, content_type="text/event-stream", transfer_encoding="chunked"))
        for piece in pieces:
            peer.send(chunk(piece))
        for _ in range(count):
            if (last or peer.server.closing).wait(pause) or peer.server.closing.is_set():
                break
            peer.send(chunk(b": hb\n\n"))
        else:
            raise Gone
        if last is not None and last.is_set():
            peer.send(chunk(result(9)))
        raise Gone

    return script


def test_heartbeats_are_a_sign_of_life() -> None:
    last = threading.Event()
    with RunServer(ticking(last, delta(1, "a"))) as server, quick_client(server, stream_idle_timeout=0.4) as client:
        run = client.start_agent(**SPEC)
        try:
            assert not run._reader.done.wait(1.2)
            assert server.count("stream") == 1, "heartbeats did not reset the watchdog"
            last.set()
            assert run.result(timeout=DEADLINE_S).text == "Done."
        finally:
            run.close()


def test_the_time_out_of_an_exchange_does_not_bound_a_quiet_stream() -> None:
    last = threading.Event()
    with RunServer(ticking(last, pause=0.3)) as server, quick_client(server, timeout=0.1) as client:
        run = client.start_agent(**SPEC)
        try:
            assert not run._reader.done.wait(0.8)
            last.set()
            assert run.result(timeout=DEADLINE_S).text == "Done."
            assert server.count("stream") == 1
        finally:
            run.close()


def test_quiet_connections_with_heartbeats_never_use_up_the_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reconnect, "settled_after", 0.1)
    quiet = ticking(None, pause=0.05, count=8)
    with RunServer(*[quiet] * 6, stream(result(1))) as server, quick_client(server, reconnect_timeout=0.6) as client:
        assert client.run_agent(**SPEC, timeout=DEADLINE_S).text == "Done."
        assert server.count("stream") == 7


def test_heartbeats_do_not_hide_that_the_time_of_a_run_is_over() -> None:
    with RunServer(ticking(None)) as server, quick_client(server) as client:
        began = time.monotonic()
        with pytest.raises(MantyxTimeoutError) as caught:
            client.run_agent(**SPEC, timeout=0.4)
        assert 0.3 < time.monotonic() - began < 2
        assert caught.value.run_id == RUN_ID
        assert server.count("cancel") == 1


def test_events_without_end_do_not_hide_that_the_time_of_a_run_is_over() -> None:
    def flood(peer: Peer, _: Request) -> None:
        peer.send(head(200, content_type="text/event-stream", transfer_encoding="chunked"))
        seq = 0
        while not peer.server.closing.is_set():
            peer.send(chunk(b"".join(delta(seq + i, "x") for i in range(1, 201))))
            seq += 200
        raise Gone

    pause = threading.Event()
    with RunServer(flood) as server, quick_client(server) as client:
        began = time.monotonic()
        with pytest.raises(MantyxTimeoutError):
            client.run_agent(**SPEC, timeout=0.5, on_assistant_delta=lambda _: pause.wait(0.001))
        assert time.monotonic() - began < 3
        assert server.count("cancel") == 1


# ------------------------------------------------------------- reconnecting, or not


@pytest.mark.parametrize(("status", "kind"), [(401, MantyxAuthError), (403, MantyxForbiddenError)])
@pytest.mark.parametrize("when", ["at once", "on reconnect"])
def test_a_refusal_that_will_not_change_is_raised_and_not_retried(status: int, kind: type, when: str) -> None:
    before = [stream(delta(1, "a"))] if when == "on reconnect" else []
    with RunServer(*before, refusal(status, "bad_key")) as server:
        _, error = events_of(server)
        assert server.count("stream") == len(before) + 1
    assert type(error) is kind
    assert (error.status, error.code, error.run_id) == (status, "bad_key", RUN_ID)


@pytest.mark.parametrize(
    "script",
    [
        reply(200, b"<html>Log in</html>", content_type="text/html"),
        reply(200, {"data": []}),
        reply(200, b"", content_type=""),
        refusal(302, location="http://elsewhere.example/"),
    ],
    ids=["a page", "json", "nothing", "redirect"],
)
def test_an_answer_that_is_no_event_stream_is_a_protocol_error_at_once(script: Script) -> None:
    with RunServer(script) as server:
        _, error = events_of(server)
        assert server.count("stream") == 1
    assert type(error) is MantyxProtocolError
    assert error.run_id == RUN_ID


def test_the_content_type_of_a_stream_is_read_without_regard_to_case_and_parameters() -> None:
    def script(peer: Peer, _: Request) -> None:
        peer.send(head(200, content_type="Text/Event-Stream; Charset=UTF-8"), result(1))
        raise Gone

    with RunServer(script) as server:
        assert events_of(server)[1].text == "Done."


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503])
def test_a_refusal_that_may_pass_is_retried(status: int) -> None:
    with RunServer(stream(delta(1, "a")), refusal(status), refusal(status), stream(result(2, "a"))) as server:
        events, outcome = events_of(server)
        assert server.count("stream") == 4
        assert server.stream_requests[3].headers["last-event-id"] == "1"
    assert (seqs(events), outcome.text) == ([1, 2], "a")


def test_a_retry_after_of_the_stream_is_kept() -> None:
    with RunServer(refusal(503, retry_after="1"), stream(result(1))) as server:
        began = time.monotonic()
        assert events_of(server)[1].text == "Done."
        assert time.monotonic() - began > 0.95


ENDED = [
    (snapshot("succeeded", finalText="kept", turns=3), None),
    (
        snapshot("failed", error="it broke", failureReason={"errorClass": "truncation"}, finalText="par"),
        MantyxRunError,
    ),
    (snapshot("cancelled"), MantyxRunCancelled),
]


@pytest.mark.parametrize(("body", "kind"), ENDED, ids=["succeeded", "failed", "cancelled"])
@pytest.mark.parametrize(
    "after",
    [
        refusal(404),
        refusal(410),
        reply(204),
        stream(end="end"),
        refusal(503),
        reply(200, b"<html>", content_type="text/html"),
    ],
    ids=["404", "410", "204", "nothing new", "503", "a page"],
)
def test_when_the_run_ended_meanwhile_its_snapshot_is_the_answer(after: Script, body: Any, kind: Any) -> None:
    streams = [stream(delta(1, "a")), after]
    with RunServer(*streams, snapshots=[reply(200, body)]) as server:
        events, outcome = events_of(server, reconnect_timeout=0.3)
    if kind is None:
        assert (outcome.text, outcome.turns, seqs(events)) == ("kept", 3, [1])
    else:
        assert type(outcome) is kind
        assert outcome.run_id == RUN_ID
    if kind is MantyxRunError:
        assert (outcome.error_class, outcome.partial_text) == ("truncation", "par")


def test_an_ended_run_is_found_although_the_first_look_at_its_snapshot_fails_later() -> None:
    snapshots = [reply(200, snapshot("succeeded", finalText="kept")), refusal(500)]
    with RunServer(stream(delta(1, "a"), end="end"), stream(end="end"), snapshots=snapshots) as server:
        assert events_of(server)[1].text == "kept"


@pytest.mark.parametrize("after", [refusal(410), reply(204)], ids=["410", "204"])
def test_a_place_that_the_server_no_longer_has_is_an_error_with_what_is_needed_to_go_on(after: Script) -> None:
    with RunServer(stream(delta(1, "a"), delta(2, "b")), after) as server:
        _, error = events_of(server)
        assert server.count("stream") == 2
    assert isinstance(error, MantyxNetworkError)
    assert error.run_id == RUN_ID
    assert error.last_seq == 2


def test_a_run_that_does_not_exist_is_not_found() -> None:
    unknown = refusal(404, "unknown_run")
    with RunServer(unknown, snapshots=[unknown]) as server, quick_client(server) as client:
        run = client.attach_run(RUN_ID)
        with pytest.raises(MantyxNotFoundError) as caught:
            run.result(timeout=DEADLINE_S)
    assert (caught.value.code, caught.value.run_id) == ("unknown_run", RUN_ID)


@pytest.mark.parametrize(
    "again",
    [stream(end="end"), refusal(503), refusal(429), lost],
    ids=["nothing new", "503", "429", "no answer"],
)
def test_without_progress_it_gives_up_and_says_how_to_go_on(again: Script) -> None:
    with RunServer(stream(delta(1, "a"), delta(2, "b")), again) as server:
        began = time.monotonic()
        _, error = events_of(server, reconnect_timeout=0.3)
        assert 0.2 < time.monotonic() - began < 3
        assert server.count("stream") > 3
    assert type(error) is MantyxNetworkError
    assert (error.run_id, error.last_seq) == (RUN_ID, 2)
    assert "attach_run('run_1', last_seq=2)" in str(error)
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.run_id, copy.last_seq) == (str(error), RUN_ID, 2)


def test_progress_restarts_the_patience() -> None:
    pause = threading.Event()

    def slow(seq: int) -> Script:
        def script(peer: Peer, request: Request) -> None:
            pause.wait(0.15)
            stream(delta(seq, "x"))(peer, request)

        return script

    with RunServer(*[slow(seq) for seq in range(1, 7)], stream(result(7))) as server:
        events, outcome = events_of(server, reconnect_timeout=0.4)
    assert seqs(events) == [1, 2, 3, 4, 5, 6, 7]
    assert outcome.text == "Done."


def test_a_tool_at_work_keeps_the_stream_from_being_given_up() -> None:
    go, began = threading.Event(), threading.Event()

    @tool
    def slow() -> str:
        began.set()
        wait_for(go, "the test did not let the tool go on")
        return "x"

    streams = [stream(call(1, "t1", "slow", {})), *[stream(end="end")] * 12, stream(after_result("t1"), result(2))]
    with RunServer(*streams) as server, quick_client(server, reconnect_timeout=0.1) as client:
        run = client.start_agent(**SPEC, tools=[slow])
        wait_for(began, "the tool did not start")
        wait_until(lambda: server.count("stream") > 12, "it gave up")
        assert not run._reader.done.wait(0.3)
        go.set()
        assert run.result(timeout=DEADLINE_S).text == "Done."


def test_a_tool_that_hangs_does_not_hide_that_the_stream_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mantyx_sync.tools.calls, "_BUSY_S", 0.3)
    go = threading.Event()

    @tool
    def hang() -> str:
        wait_for(go, "the test did not let the tool go on")
        return "x"

    try:
        server = RunServer(stream(call(1, "t1", "hang", {})), refusal(503))
        with server, quick_client(server, reconnect_timeout=0.2) as client:
            run = client.start_agent(**SPEC, tools=[hang])
            with pytest.raises(MantyxNetworkError, match="gave up after seq 1"):
                run.result(timeout=DEADLINE_S)
    finally:
        go.set()


def test_a_frame_beyond_all_bounds_ends_the_run_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    small = functools.partial(FollowSettings, max_frame_bytes=100_000)
    monkeypatch.setattr(mantyx_sync.workspace, "FollowSettings", small)
    with RunServer(stream(delta(1, "a"), b"data: " + b"x" * 300_000, end="stay")) as server:
        _, error = events_of(server)
    assert type(error) is MantyxProtocolError
    assert error.run_id == RUN_ID


# ------------------------------------------------------------- credentials stay home


@pytest.mark.parametrize("recoverable", [False, True])
@pytest.mark.parametrize(
    "form", ["http://{0}/x", "//{0}/x", "http://{0}@evil.example/x", "https://{0}/x", "HTTP://{0}/x"]
)
def test_a_stream_url_elsewhere_is_refused_and_nothing_is_sent_there(form: str, recoverable: bool) -> None:
    heard = threading.Event()

    def listen(peer: Peer) -> None:
        heard.set()
        peer.request()

    with WireServer(listen) as elsewhere:
        target = form.format(elsewhere.url.partition("//")[2])
        listing = reply(200, {"runs": [{"id": RUN_ID, "status": "running"}], "nextCursor": None})
        created = reply(202, {"runId": RUN_ID, "streamUrl": target})
        server = RunServer(stream(result(1)), create=[created], listing=[listing])
        with server, quick_client(server, recoverable_runs=recoverable) as client:
            with pytest.raises(MantyxProtocolError, match="origin") as caught:
                client.run_agent(**SPEC)
            assert caught.value.run_id == RUN_ID
            assert "mantyx_key" not in str(caught.value)
            assert server.count("stream") == 0
        assert not heard.is_set()


def test_an_absolute_stream_url_on_our_own_origin_is_used() -> None:
    with RunServer(stream(result(1))) as server:
        path = f"{BASE}/agent-runs/{RUN_ID}/stream?v=2"
        server._scripts["create"] = [reply(201, {"runId": RUN_ID, "streamUrl": server.url + path})]
        assert events_of(server)[1].text == "Done."
        [request] = server.stream_requests
        assert request.target == path
        assert request.headers["authorization"] == "Bearer mantyx_key"


# ------------------------------------------------------------- tool results


@pytest.mark.parametrize(
    ("answers", "posts"),
    [
        ([lost, refusal(404, "unknown_tool_use")], 2),
        ([lost, refusal(409, "run_terminal")], 2),
        ([lost, reply(204)], 2),
        ([reply(200, {})], 1),
        ([refusal(404, "unknown_tool_use")], 1),
        ([refusal(409, "run_terminal")], 1),
        ([refusal(429, retry_after="0"), reply(204)], 2),
        ([refusal(408), reply(204)], 2),
        ([refusal(500), refusal(502), refusal(503), refusal(504), refusal(500), lost, lost, reply(204)], 8),
    ],
)
def test_a_tool_result_is_posted_until_the_server_has_it(
    answers: list[Script], posts: int, caplog: pytest.LogCaptureFixture
) -> None:
    counted = Counted()

    def last_answered(server: RunServer) -> None:
        wait_until(lambda: server.count("tool_result") >= posts, "the result was not posted again")

    the_stream = stream(call(1, "t1", "double", {"n": 2}), last_answered, result(2))
    with RunServer(the_stream, tool_result=answers) as server, quick_client(server) as client:
        run = client.start_agent(**SPEC, tools=[counted.tool])
        assert run.result(timeout=DEADLINE_S).text == "Done."
        assert server.tool_results == [{"toolUseId": "t1", "result": "4"}] * posts
        assert counted.calls == [2]
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_tool_result_waits_as_long_as_the_server_asks() -> None:
    answers = [refusal(429, retry_after="1"), reply(204)]

    def second(server: RunServer) -> None:
        wait_until(lambda: server.count("tool_result") == 2, "the result was not posted again")

    the_stream = stream(call(1, "t1", "double", {"n": 2}), second, result(2))
    with RunServer(the_stream, tool_result=answers) as server, quick_client(server, max_retries=0) as client:
        began = time.monotonic()
        client.run_agent(**SPEC, tools=[Counted().tool], timeout=DEADLINE_S)
        assert time.monotonic() - began > 0.95


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_result_that_the_server_never_takes_is_replaced_by_a_short_error(status: int) -> None:
    counted = Counted()

    def second(server: RunServer) -> None:
        wait_until(lambda: server.count("tool_result") == 2, "no error was posted")

    the_stream = stream(call(1, "t1", "double", {"n": 2}), second, result(2))
    with RunServer(the_stream, tool_result=[refusal(status), reply(204)]) as server, quick_client(server) as client:
        run = client.start_agent(**SPEC, tools=[counted.tool])
        run.result(timeout=DEADLINE_S)
        assert run.undelivered_tool_results == ()
        good, bad = server.tool_results
        assert good == {"toolUseId": "t1", "result": "4"}
        assert bad["toolUseId"] == "t1"
        assert "double" in bad["error"]
        assert "result" not in bad


@pytest.mark.parametrize("status", [401, 403])
def test_a_result_that_may_not_be_posted_is_reported_as_undelivered(
    status: int, caplog: pytest.LogCaptureFixture
) -> None:
    go = threading.Event()
    counted = Counted()
    the_stream = stream(call(1, "t1", "double", {"n": 2}), go, result(2))
    with RunServer(the_stream, tool_result=[refusal(status)]) as server, quick_client(server) as client:
        run = client.start_agent(**SPEC, tools=[counted.tool])
        wait_until(lambda: run.undelivered_tool_results == ("t1",), "the loss is not reported")
        go.set()
        run.result(timeout=DEADLINE_S)
        assert server.count("tool_result") == 1
    assert "could not be delivered" in caplog.text


ARGUMENTS = [
    ("", True),
    (None, True),
    ("{}", True),
    ({}, True),
    ('{"n": 5}', False),
    ({"n": 5}, False),
    ([1], None),
    ('{"n":', None),
    ("x" * 1_000_000, None),
    ({"n": "five"}, None),
    ({"m": 1}, False),
]


@pytest.mark.parametrize(("args", "is_empty"), ARGUMENTS, ids=lambda value: repr(value)[:20])
def test_arguments_of_any_kind_are_answered_and_bad_ones_do_not_run_the_tool(args: Any, is_empty: Any) -> None:
    calls: list[Any] = []

    @tool
    def take(n: int = 0) -> int:
        """Take a number."""
        calls.append(n)
        return n

    the_stream = stream(call(1, "t1", "take", args), after_result("t1"), result(2))
    with RunServer(the_stream) as server, quick_client(server) as client:
        assert client.run_agent(**SPEC, tools=[take], timeout=DEADLINE_S).text == "Done."
        [answer] = server.tool_results
    if is_empty is None or args == {"m": 1}:
        assert calls == []
        assert "error" in answer
        assert len(answer["error"]) < 2000
    else:
        assert calls == [0 if is_empty else 5]
        assert answer["result"] == str(calls[0])


def test_one_bad_call_does_not_spoil_the_batch() -> None:
    counted = Counted()
    calls = [
        call(1, "t1", "no_such_tool", {}),
        call(2, "t2", "double", {"n": "many"}),
        call(3, "t3", "double", {"n": 3}),
        call(4, "t3", "double", {"n": 3}),
        event(5, "local_tool_call", toolUseId="t4", args={}),
        event(6, "local_tool_call", toolUseId="t5", name=7, args={}),
        call(7, "t6", "double", {"n": 6}, kind="brand_new_kind"),
    ]
    ids = ["t1", "t2", "t3", "t4", "t5", "t6"]
    the_stream = stream(b"".join(calls), *[after_result(i) for i in ids], result(9))
    with RunServer(the_stream) as server, quick_client(server) as client:
        assert client.run_agent(**SPEC, tools=[counted.tool], timeout=DEADLINE_S).text == "Done."
        answers = {body["toolUseId"]: body for body in server.tool_results}
        assert len(server.tool_results) == 6
    assert counted.calls == [3]
    assert answers["t3"] == {"toolUseId": "t3", "result": "6"}
    assert "no_such_tool" in answers["t1"]["error"]
    assert "double" in answers["t1"]["error"], "the model is told what there is"
    assert all("error" in answers[i] for i in ("t2", "t4", "t5", "t6"))


def test_a_call_answered_by_somebody_else_meanwhile_gets_no_second_answer() -> None:
    go, began = threading.Event(), threading.Event()
    finished = threading.Event()

    @tool
    def slow() -> str:
        began.set()
        wait_for(go, "the test did not let the tool go on")
        finished.set()
        return "x"

    answered = event(2, "local_tool_result_in", toolUseId="t1", output="from elsewhere")
    last = threading.Event()
    the_stream = stream(call(1, "t1", "slow", {}), began, answered, delta(3, "a"), last, result(4))
    with RunServer(the_stream) as server, quick_client(server) as client:
        run = client.start_agent(**SPEC, tools=[slow])
        events = iter(run)
        assert [next(events).seq for _ in range(3)] == [1, 2, 3]
        go.set()
        wait_for(finished, "the tool did not go on")
        last.set()
        assert [e.seq for e in events] == [4]
        assert server.count("tool_result") == 0


# ------------------------------------------------------------- creating


@pytest.mark.parametrize("status", [429, 503])
def test_a_create_that_was_refused_for_now_is_repeated_after_the_time_that_was_asked_for(status: int) -> None:
    created = reply(202, {"runId": RUN_ID})
    with RunServer(stream(result(1)), create=[refusal(status, retry_after="1"), created]) as server:
        began = time.monotonic()
        assert events_of(server)[1].text == "Done."
        assert time.monotonic() - began > 0.95
        first, second = server.requests["create"]
        assert first.body == second.body


@pytest.mark.parametrize("status", [400, 402, 404, 409, 422, 500, 502, 503, 504])
def test_a_create_that_failed_otherwise_is_not_repeated(status: int) -> None:
    with RunServer(stream(result(1)), create=[refusal(status, "why")]) as server, quick_client(server) as client:
        with pytest.raises(MantyxAPIError, match="message of why") as caught:
            client.run_agent(**SPEC)
        assert (caught.value.status, server.count("create")) == (status, 1)


def test_a_create_that_is_refused_again_and_again_is_raised_in_the_end() -> None:
    with RunServer(stream(result(1)), create=[refusal(429, "rate_limit_exceeded", retry_after="0")]) as server:
        with quick_client(server, max_retries=1) as client, pytest.raises(MantyxRateLimitError):
            client.run_agent(**SPEC)
        assert server.count("create") == 2


def test_a_retry_after_beyond_reason_is_left_to_the_caller() -> None:
    with RunServer(stream(result(1)), create=[refusal(429, "rate_limit_exceeded", retry_after="3600")]) as server:
        with quick_client(server) as client, pytest.raises(MantyxRateLimitError) as caught:
            client.run_agent(**SPEC)
        assert (server.count("create"), caught.value.retry_after) == (1, 3600)


def cut_answer(peer: Peer, _: Request) -> None:
    peer.send(head(202, content_type="application/json", content_length=100), b'{"runId": "run')
    raise Gone


def cut_head(peer: Peer, _: Request) -> None:
    peer.send(b"HTTP/1.1 202 Accepted\r\nContent-Ty")
    raise Gone


def mute(peer: Peer, _: Request) -> None:
    peer.stay()
    raise Gone


LOST_ANSWERS = [lost, cut_answer, cut_head, mute]


@pytest.mark.parametrize("answer", LOST_ANSWERS)
def test_a_create_whose_answer_was_lost_is_not_repeated_and_the_error_says_so(answer: Script) -> None:
    with RunServer(stream(result(1)), create=[answer]) as server, quick_client(server, timeout=0.3) as client:
        with pytest.raises((MantyxNetworkError, MantyxTimeoutError)) as caught:
            client.run_agent(**SPEC)
        assert server.count("create") == 1
        assert server.count("list") == 0
        text = str(caught.value)
        assert "not known" in text
        assert "recoverable_runs=True" in text
        assert getattr(caught.value, "sent", None) is not False


@pytest.mark.parametrize("answer", [*LOST_ANSWERS, refusal(502), refusal(504)])
def test_a_recoverable_run_is_found_and_followed_when_the_answer_to_its_create_was_lost(answer: Script) -> None:
    counted = Counted()

    def listed(peer: Peer, request: Request) -> None:
        tag = server.requests["create"][0].json()["metadata"]["mantyx_sync.run"]
        assert f"mantyx_sync.run%3A{tag}" in request.target
        run = {"id": RUN_ID, "status": "running", "metadata": {"a": "b", "mantyx_sync.run": tag}}
        reply(200, {"runs": [run], "nextCursor": None})(peer, request)

    the_stream = stream(call(1, "t1", "double", {"n": 2}), after_result("t1"), result(2, "found"))
    server = RunServer(the_stream, create=[answer], listing=[refusal(500), listed])
    with server, quick_client(server, timeout=0.3, recoverable_runs=True) as client:
        outcome = client.run_agent(**SPEC, tools=[counted.tool], metadata={"a": "b"})
        assert (outcome.text, outcome.run_id, counted.calls) == ("found", RUN_ID, [2])
        assert server.count("create") == 1
        assert server.requests["create"][0].json()["metadata"]["a"] == "b"


def test_a_recoverable_run_is_not_mistaken_for_another_where_the_server_does_not_filter() -> None:
    other = {"id": "run_of_somebody_else", "status": "running", "metadata": {"mantyx_sync.run": "another tag"}}
    plain = {"id": "run_without_metadata", "status": "running"}
    listing = [reply(200, {"runs": [other, plain], "nextCursor": None})]
    server = RunServer(stream(result(1)), create=[lost], listing=listing)
    with server, quick_client(server, recoverable_runs=True) as client:
        with pytest.raises(MantyxNetworkError, match="list_runs") as caught:
            client.run_agent(**SPEC, timeout=0.5)
        tag = server.requests["create"][0].json()["metadata"]["mantyx_sync.run"]
        assert tag in str(caught.value)
        assert server.count("stream") == server.count("other") == 0


def test_a_recoverable_run_is_tagged_anew_each_time_and_the_callers_metadata_is_left_alone() -> None:
    metadata = {"a": "b"}
    with RunServer(stream(result(1))) as server, quick_client(server, recoverable_runs=True) as client:
        for _ in range(2):
            client.run_agent(**SPEC, metadata=metadata)
        first, second = [request.json()["metadata"] for request in server.requests["create"]]
    assert metadata == {"a": "b"}
    assert first["mantyx_sync.run"] != second["mantyx_sync.run"]
    assert first["a"] == second["a"] == "b"


def test_the_time_of_a_run_bounds_its_creation_too() -> None:
    with RunServer(stream(result(1)), create=[mute]) as server, quick_client(server) as client:
        began = time.monotonic()
        with pytest.raises(MantyxTimeoutError):
            client.run_agent(**SPEC, timeout=0.3)
        assert time.monotonic() - began < 2


def test_a_create_answer_without_a_run_is_a_protocol_error() -> None:
    server = RunServer(stream(result(1)), create=[reply(202, {"ok": True})])
    with server, quick_client(server) as client, pytest.raises(MantyxProtocolError, match="runId"):
        client.run_agent(**SPEC)


def test_a_redirect_is_refused_naming_its_target_and_nothing_was_created() -> None:
    moved = refusal(301, location="https://elsewhere.example/api?secret=1")
    with (
        RunServer(stream(result(1)), create=[moved]) as server,
        quick_client(server, recoverable_runs=True) as client,
    ):
        with pytest.raises(MantyxProtocolError, match=r"https://elsewhere\.example") as caught:
            client.run_agent(**SPEC)
        assert "not known" not in str(caught.value)
        assert "secret" not in str(caught.value)
        assert (server.count("create"), server.count("list")) == (1, 0)


# ------------------------------------------------------------- attaching


@pytest.fixture
def settles_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mantyx_sync.tools.calls, "SETTLE_S", 0.2)


@pytest.mark.usefixtures("settles_soon")
def test_attaching_runs_open_calls_and_leaves_answered_ones_alone() -> None:
    counted = Counted()
    log = [
        delta(1, "a"),
        call(2, "t1", "double", {"n": 1}),
        event(3, "local_tool_result_in", toolUseId="t1", output="2"),
        call(4, "t2", "double", {"n": 2}),
        call(5, "t3", "double", {"n": 3}),
        event(6, "local_tool_result_in", toolUseId="t2", error="timed out"),
    ]
    with RunServer(stream(*log, after_result("t3"), result(7))) as server, quick_client(server) as client:
        run = client.attach_run(RUN_ID, tools=[counted.tool])
        assert seqs(list(run)) == [1, 2, 3, 4, 5, 6, 7]
        assert server.tool_results == [{"toolUseId": "t3", "result": "6"}]
        assert server.count("create") == 0
    assert counted.calls == [3]


@pytest.mark.usefixtures("settles_soon")
@pytest.mark.parametrize("cut_at", range(1, 7))
def test_attaching_over_a_log_that_is_cut_runs_no_answered_call(cut_at: int) -> None:
    counted = Counted()
    log = [
        call(1, "t1", "double", {"n": 1}),
        call(2, "t2", "double", {"n": 2}),
        event(3, "local_tool_result_in", toolUseId="t1", output="2"),
        event(4, "local_tool_result_in", toolUseId="t2", output="4"),
        call(5, "t3", "double", {"n": 3}),
        delta(6, "a"),
    ]
    pause = threading.Event()

    def late(peer: Peer, request: Request) -> None:
        pause.wait(0.3)  # longer than the silence after which a log counts as read to its end
        refusal(503)(peer, request)

    streams = [stream(*log[:cut_at]), late, late, stream(*log[cut_at:], after_result("t3"), result(7))]
    with RunServer(*streams) as server, quick_client(server) as client:
        run = client.attach_run(RUN_ID, tools=[counted.tool])
        assert run.result(timeout=DEADLINE_S).text == "Done."
    assert counted.calls == [3]


@pytest.mark.usefixtures("settles_soon")
def test_attaching_runs_an_open_call_after_a_reconnect_that_brings_nothing_new() -> None:
    counted = Counted()
    streams = [stream(call(1, "t1", "double", {"n": 1})), stream(after_result("t1"), result(2))]
    with RunServer(*streams) as server, quick_client(server) as client:
        assert client.attach_run(RUN_ID, tools=[counted.tool]).result(timeout=DEADLINE_S).text == "Done."
    assert counted.calls == [1]


def test_attaching_to_a_run_that_has_ended_runs_nothing() -> None:
    counted = Counted()
    the_stream = stream(call(1, "t1", "double", {"n": 1}), result(2, "over"))
    with RunServer(the_stream) as server, quick_client(server) as client:
        assert client.attach_run(RUN_ID, tools=[counted.tool]).result(timeout=DEADLINE_S).text == "over"
    assert counted.calls == []


@pytest.mark.parametrize("with_tools", [False, True])
def test_attaching_hands_out_what_is_behind_the_given_place(with_tools: bool) -> None:
    frames = [delta(1, "a"), delta(2, "b"), delta(3, "c"), result(4)]

    def log(peer: Peer, request: Request) -> None:
        stream(*frames[int(request.headers.get("last-event-id", 0)) :])(peer, request)

    with RunServer(log) as server, quick_client(server) as client:
        run = client.attach_run(RUN_ID, last_seq=2, tools=[Counted().tool] if with_tools else [])
        assert seqs(list(run)) == [3, 4]
        assert server.stream_requests[0].headers.get("last-event-id") == (None if with_tools else "2")


def test_another_process_takes_a_run_over_and_runs_only_what_is_open() -> None:
    go = threading.Event()
    model = ScriptedModel(
        [
            [ToolUse("double", {"n": 1}, id="t1"), ToolUse("stuck", {}, id="t2")],
            ["All ", "done."],
        ]
    )
    counted = Counted()
    stuck = threading.Event()

    @tool(name="stuck")
    def stuck_here() -> str:
        stuck.set()
        go.wait(DEADLINE_S)
        return "late"

    with LocalServer(model) as server:
        with quick_client(server, **keys(server)) as client:
            run = client.start_agent(**SPEC, tools=[counted.tool, stuck_here])
            wait_for(stuck, "the second tool did not start")
            wait_until(lambda: any(e["type"] == "local_tool_result_in" for e in server.runs[0].events), "no answer")
            run.close()
        go.set()
        code = """
            import json, sys
            from mantyx_sync import MantyxClient, tool
            ran = []
            @tool
            def double(n: int) -> int:
                ran.append("double")
                return 2 * n
            @tool
            def stuck() -> str:
                ran.append("stuck")
                return "here"
            settings = json.loads(sys.argv[1])
            with MantyxClient(**settings) as client:
                run = client.attach_run(sys.argv[2], tools=[double, stuck])
                print(json.dumps([run.result(timeout=20).text, ran]))
        """
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code), json.dumps(server.client_settings()), server.runs[0].id],
            capture_output=True,
            text=True,
            timeout=60,
            cwd=os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == ["All done.", ["stuck"]]
        answers = [e["data"] for e in server.runs[0].events if e["type"] == "local_tool_result_in"]
        assert sorted(answer["toolUseId"] for answer in answers) == ["t1", "t2"]
    assert counted.calls == [1]


def keys(server: LocalServer) -> dict[str, str]:
    return {"api_key": server.api_key, "workspace_slug": server.workspace_slug}


# ------------------------------------------------------------- a caller who is behind


def threads_named(prefix: str) -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(prefix)]


def logged(frames: list[Any]) -> Script:
    """Return a stream that honours `Last-Event-ID`, as a server with a log does. Frame n has the number n + 1."""

    def script(peer: Peer, request: Request) -> None:
        last = int(request.headers.get("last-event-id", 0))
        peer.send(head(200, content_type="text/event-stream", transfer_encoding="chunked"))
        pieces: list[bytes] = []
        for frame in frames[last:]:
            if isinstance(frame, bytes):
                pieces.append(frame)
                if len(pieces) < 500:
                    continue
            if pieces:
                peer.send(chunk(b"".join(pieces)))
                pieces = []
            if not isinstance(frame, bytes):
                piece, wait_for_it = frame
                peer.send(chunk(piece))
                wait_for_it(peer.server.run_server)  # type: ignore[attr-defined]
        if pieces:
            peer.send(chunk(b"".join(pieces)))
        raise Gone

    return script


def long_log(before: int, after: int) -> list[Any]:
    """Return a log with one tool call, which is waited for, among many deltas."""
    frames: list[Any] = [delta(seq, "x" * 20) for seq in range(1, before + 1)]
    frames.append((call(before + 1, "t1", "double", {"n": 1}), after_result("t1")))
    frames += [delta(seq, "y" * 20) for seq in range(before + 2, before + after + 2)]
    frames.append(result(before + after + 2))
    return frames


@pytest.mark.parametrize("before", [10, 20_000])
def test_tools_run_and_the_run_ends_while_nobody_looks_and_all_events_are_there_afterwards(before: int) -> None:
    counted = Counted()
    with RunServer(logged(long_log(before, 20_000))) as server, quick_client(server) as client:
        run = client.start_agent(**SPEC, tools=[counted.tool])
        wait_until(lambda: run.is_done, "the run does not end by itself")
        assert counted.calls == [1]
        assert run.result().text == "Done."
        assert seqs(list(run)) == list(range(1, before + 20_003))
        assert counted.calls == [1]


def test_a_caller_who_stalls_in_his_loop_keeps_no_tool_from_starting_and_misses_nothing() -> None:
    counted = Counted()
    with RunServer(logged(long_log(20_000, 20_000))) as server, quick_client(server) as client:
        run = client.start_agent(**SPEC, tools=[counted.tool])
        found: list[int] = []
        for number, item in enumerate(run):
            found.append(item.seq)
            if number == 5:
                wait_until(lambda: run.is_done, "the reader waits for a caller who stalls", 5.0)
                assert counted.calls == [1]
        assert found == list(range(1, 40_003))


def test_a_caller_who_is_slow_all_along_keeps_no_tool_from_starting_and_misses_nothing() -> None:
    started = threading.Event()
    began_at: list[float] = []

    @tool
    def double(n: int) -> int:
        began_at.append(time.monotonic())
        started.set()
        return n

    with RunServer(logged(long_log(20_000, 10))) as server, quick_client(server) as client:
        run = client.start_agent(**SPEC, tools=[double])
        began = time.monotonic()
        found: list[int] = []
        pause = threading.Event()
        for item in run:
            found.append(item.seq)
            if not started.is_set() and len(found) % 10 == 0:
                pause.wait(0.002)
        assert found == list(range(1, 20_013))
        assert began_at[0] - began < 2.5, "the tool waited for the caller"


def test_polling_tells_of_silence_behind_a_gap_as_well() -> None:
    """The reader let go, so the caller reads the log itself: there, too, it must hear that nothing comes."""
    go = threading.Event()
    frames: list[Any] = [delta(seq, "x" * 20) for seq in range(1, 10_001)]
    frames += [(delta(10_001, "y"), lambda _: wait_for(go, "nobody heard the silence")), result(10_002)]
    with RunServer(logged(frames)) as server, quick_client(server) as client:
        run = client.start_agent(**SPEC)
        wait_until(lambda: run.last_seq >= 10_001, "the reader waits for nobody")
        found: list[int] = []
        for item in run.poll(0.03):
            if item is not None:
                found.append(item.seq)
            elif found and found[-1] == 10_001:
                go.set()
        assert found == list(range(1, 10_003))
        assert server.count("stream") >= 2, "there was no gap"


def test_reading_on_from_the_log_survives_a_bad_network() -> None:
    frames = long_log(10_000, 10_000)
    whole = logged(frames)
    tries = iter(range(100))

    def cut_again_and_again(peer: Peer, request: Request) -> None:
        last = int(request.headers.get("last-event-id", 0))
        if last == 0:
            return whole(peer, request)
        number = next(tries)
        if number % 3 == 1:
            return refusal(503)(peer, request)
        peer.send(head(200, content_type="text/event-stream", transfer_encoding="chunked"))
        plain = [frame if isinstance(frame, bytes) else frame[0] for frame in frames[last : last + 3000]]
        peer.send(chunk(b"".join(plain)), b"1000\r\n" + delta(1, "half")[:20])
        raise Gone

    counted = Counted()
    with RunServer(cut_again_and_again) as server, quick_client(server) as client:
        run = client.start_agent(**SPEC, tools=[counted.tool])
        wait_until(lambda: run.is_done, "the run does not end by itself")
        assert seqs(list(run)) == list(range(1, 20_003))
        assert run.result().text == "Done."
        assert server.count("stream") > 4
    assert counted.calls == [1]


def test_a_loop_that_reads_on_from_the_log_can_be_left_and_taken_up_again() -> None:
    with RunServer(logged(long_log(10_000, 10_000))) as server, quick_client(server) as client:
        run = client.start_agent(**SPEC, tools=[Counted().tool])
        wait_until(lambda: run.is_done, "the run does not end by itself")
        found: list[int] = []
        while len(found) < 20_002:
            for item in run:
                found.append(item.seq)
                if len(found) % 3001 == 0:
                    break
        assert found == list(range(1, 20_003))
        assert list(run) == []


def test_closing_while_reading_on_from_the_log_frees_everything() -> None:
    with RunServer(logged(long_log(10_000, 100_000))) as server, quick_client(server) as client:
        run = client.start_agent(**SPEC, tools=[Counted().tool])
        wait_until(lambda: run.is_done, "the run does not end by itself")
        for item in run:
            if item.seq > 9_000:
                break
        run.close()


def test_memory_stays_bounded_over_200_000_deltas_nobody_reads() -> None:
    frames: list[Any] = [delta(seq, "some text of the assistant") for seq in range(1, 200_001)]
    frames.append(result(200_001))
    with RunServer(logged(frames)) as server, quick_client(server) as client:
        tracemalloc.start()
        try:
            run = client.start_agent(**SPEC)
            wait_until(lambda: run.is_done, "the run does not end by itself", 60)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        run.close()
    assert peak < 12 * 1024 * 1024, f"{peak / 1e6:.1f} MB for a caller who reads nothing"


# ------------------------------------------------------------- errors come through


def test_an_error_in_the_reader_reaches_the_caller_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Any, batch: Any) -> None:
        raise RuntimeError("a bug of ours")

    monkeypatch.setattr(RunReader, "_take", fail)
    with RunServer(stream(delta(1, "a"), end="stay")) as server, quick_client(server) as client:
        began = time.monotonic()
        with pytest.raises(RuntimeError, match="a bug of ours"):
            client.run_agent(**SPEC)
        with pytest.raises(RuntimeError, match="a bug of ours"):
            list(client.start_agent(**SPEC))
        assert time.monotonic() - began < 2


@pytest.mark.parametrize("how", ["loop", "text_stream", "result"])
def test_a_network_error_reaches_every_way_of_reading(how: str) -> None:
    with RunServer(stream(delta(1, "a")), refusal(401)) as server, quick_client(server) as client:
        run = client.start_agent(**SPEC)
        ways: dict[str, Callable[[], object]] = {
            "loop": lambda: list(run),
            "text_stream": lambda: list(run.text_stream),
            "result": run.result,
        }
        with pytest.raises(MantyxAuthError):
            ways[how]()


def test_a_lost_create_answer_of_the_embedded_server_is_recovered_with_its_real_filter() -> None:
    counted = Counted()
    model = ScriptedModel([[ToolUse("double", {"n": 2})], ["Four."]])
    with LocalServer(model) as server:
        server.faults.add(lose_answer("rst"), route="create")
        server.faults.add(cut(50, "rst"), route="stream")
        with quick_client(server, **keys(server), recoverable_runs=True) as client:
            assert client.run_agent(**SPEC, tools=[counted.tool]).text == "Four."
        assert len(server.runs) == 1
    assert counted.calls == [2]
