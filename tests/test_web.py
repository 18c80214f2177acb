"""`mantyx_sync.web`: a run as the body of a response, whatever becomes of the browser, the run or the process."""

from __future__ import annotations

import gc
import io
import json
import logging
import signal
import sys
import threading
import types
import weakref
from typing import Any, Callable, Iterator, List, NamedTuple, Optional
from wsgiref.util import is_hop_by_hop, setup_testing_defaults
from wsgiref.validate import validator

import pytest

import mantyx_sync.web.ending
import mantyx_sync.web.finishing
import mantyx_sync.web.stream
from mantyx_sync import (
    AgentSession,
    MantyxAuthError,
    MantyxClient,
    MantyxConfigError,
    MantyxConflictError,
    MantyxNetworkError,
    MantyxNotFoundError,
    MantyxParseError,
    MantyxRateLimitError,
    MantyxRunCancelled,
    MantyxRunError,
    MantyxServerError,
    MantyxTimeoutError,
    RunEvent,
    RunSummary,
    ToolContext,
    tool,
)
from mantyx_sync.local import Failure, LocalServer, Pause, ScriptedModel, Thinking, ToolUse
from mantyx_sync.reader import decode_or_keep
from mantyx_sync.transport.sse_writing import HEARTBEAT, sse_event
from mantyx_sync.web import (
    EventStream,
    end_streams,
    end_streams_at_sigterm,
    history_events,
    public_data,
    public_error,
    resume_from,
    running_run,
)
from tests.processes import Child
from tests.scripted_runs import RUN_ID, SPEC, RunServer, delta, quick_client, quickly, refusal, reply, result, snapshot
from tests.scripted_runs import stream as played
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("no_leaks")

SECRET = "sk-live-4711"
ASK: Any = {"system_prompt": "Help.", "prompt": "Go."}


class Message(NamedTuple):
    event: Optional[str]
    id: Optional[str]
    data: Any


def read(pieces: List[bytes]) -> List[Message]:
    """Read the messages of a stream as a browser does; comments and `retry` are passed by."""
    messages = []
    for block in b"".join(pieces).decode("ascii").split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if "data" in fields:
            messages.append(Message(fields.get("event"), fields.get("id"), json.loads(fields["data"])))
    return messages


def up_to(stream: EventStream, text: bytes) -> List[bytes]:
    """Take pieces until `text` is in one."""
    pieces: List[bytes] = []
    while not pieces or text not in pieces[-1]:
        pieces.append(next(stream))
    return pieces


def no_threads(*, but: int = 0) -> bool:
    names = [thread.name for thread in threading.enumerate()]
    return sum(name.startswith(("mantyx-run", "mantyx-web")) for name in names) == but


class Platform:
    """An embedded server whose next runs play what a test says, and a client of it."""

    client: MantyxClient

    def __init__(self) -> None:
        self.turns: Any = ["Done."]
        self.server = LocalServer(model=ScriptedModel(lambda _: self.turns))

    def plays(self, *turns: Any) -> None:
        self.turns = turns

    @property
    def run(self) -> Any:
        return self.server.runs[-1]

    def start(self, **fields: Any) -> Callable[[], Any]:
        return lambda: self.client.stream_agent(**{**ASK, **fields})

    def ends(self, status: str) -> None:
        wait_until(lambda: self.run.is_terminal, "the run has ended")
        assert self.run.status == status


@pytest.fixture
def platform() -> Iterator[Platform]:
    platform = Platform()
    with platform.server, MantyxClient(**platform.server.client_settings()) as platform.client:
        yield platform


@pytest.fixture(autouse=True)
def streams_may_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have what a test says of the end of the process end with the test."""
    monkeypatch.setattr(mantyx_sync.web.ending, "_until", [])


@tool
def secret_of(name: str) -> str:
    """Look a secret up."""
    return SECRET + name


# ------------------------------------------------------------------------------------------- a run to its end


def test_a_run_is_streamed_from_its_start_to_its_end(platform: Platform) -> None:
    platform.plays(["Let me see. ", ToolUse("secret_of", {"name": "private"})], ["Here ", "it is."])
    pieces = list(EventStream(platform.start(tools=[secret_of])))
    messages = read(pieces)
    assert pieces[0].startswith(b"retry: ")
    assert [message.event for message in messages] == [
        "run",
        "assistant_delta",
        "assistant_message",
        "local_tool_call",
        "local_tool_result_in",
        "assistant_delta",
        "assistant_delta",
        "assistant_message",
        "result",
    ]
    run_id = platform.run.id
    assert [message.id for message in messages] == [f"{run_id}/{number}" for number in range(9)]
    assert messages[0].data == {"runId": run_id}
    assert messages[3].data == {"toolUseId": messages[3].data["toolUseId"], "name": "secret_of", "kind": "local"}
    assert messages[4].data == {"toolUseId": messages[3].data["toolUseId"], "ok": True}
    assert messages[8].data["text"] == "Here it is."
    assert b"private" not in b"".join(pieces)
    assert SECRET.encode() not in b"".join(pieces)


def test_a_wsgi_application_may_return_it(platform: Platform) -> None:
    started: List[Any] = []

    def application(environ: Any, start_response: Any) -> EventStream:
        stream = EventStream(platform.start())
        start_response("200 OK", stream.headers)
        return stream

    environ: Any = {"QUERY_STRING": "", "wsgi.input": io.BytesIO()}
    setup_testing_defaults(environ)
    body = validator(application)(environ, lambda *given: started.append(given) or (lambda _: None))  # type: ignore[func-returns-value,arg-type,return-value]
    try:
        assert read(list(body))[-1].event == "result"
    finally:
        body.close()  # type: ignore[attr-defined]
    assert started[0][0] == "200 OK"


def test_no_header_is_about_the_connection_and_none_lets_pieces_be_kept() -> None:
    stream = EventStream(lambda: pytest.fail("nobody asked for a run"))
    names = dict(stream.headers)
    assert names == {
        "Content-Type": "text/event-stream; charset=utf-8",
        "Cache-Control": "no-cache, no-transform",
        "X-Accel-Buffering": "no",
        "Content-Encoding": "identity",
    }
    assert not any(map(is_hop_by_hop, names))
    assert stream.headers is not stream.headers, "a server may add to it"
    assert stream.media_type == "text/event-stream"


def test_a_message_of_a_session_tells_the_session(platform: Platform) -> None:
    session = platform.client.create_session(system_prompt="Help.")
    first = read(list(EventStream(lambda: session.stream("Hello."))))[0]
    assert first == ("run", f"{platform.run.id}/0", {"runId": platform.run.id, "sessionId": session.id})


def test_a_run_may_be_started_in_the_view(platform: Platform) -> None:
    stream = EventStream(platform.client.stream_agent(**ASK))
    assert read(list(stream))[-1].event == "result"
    assert repr(stream) == f"<EventStream of {platform.run.id}, over>"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"start": "now"}, "start: got a string, must be a function that returns a Run, or a Run"),
        ({"on_disconnect": "stop"}, "on_disconnect: got 'stop', must be 'cancel' or 'finish'"),
        ({"heartbeat": 0}, "heartbeat"),
        ({"finish_timeout": -1}, "finish_timeout"),
        ({"show": "some"}, "show: got 'some', must be 'public', 'all' or a function of an event"),
    ],
)
def test_bad_arguments_are_refused_before_anything_happens(arguments: Any, told: str) -> None:
    with pytest.raises(MantyxConfigError, match=told):
        EventStream(**{"start": lambda: None, **arguments})


def test_uwsgi_without_threads_is_refused_with_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uwsgi", types.SimpleNamespace(opt={b"master": True}))
    with pytest.raises(MantyxConfigError, match="enable-threads = true") as caught:
        EventStream(lambda: pytest.fail("a run was started"))
    assert caught.value.code == "threads_off"
    monkeypatch.setitem(sys.modules, "uwsgi", types.SimpleNamespace(opt={b"threads": b"2"}))
    EventStream(lambda: pytest.fail("a run was started"))


# ------------------------------------------------------------------------------------------- what is seen


def test_nothing_of_the_inside_is_seen_unless_it_is_asked_for(platform: Platform) -> None:
    platform.plays([Thinking("Hm. "), "Hello."])
    spec = {"reasoning_level": "high"}
    assert "thinking_delta" not in {message.event for message in read(list(EventStream(platform.start(**spec))))}
    everything = read(list(EventStream(platform.start(**spec), show="all")))
    assert {"thinking_delta", "assistant_delta"} <= {message.event for message in everything}
    assert everything[-1].data == platform.run.events[-1]["data"]

    def with_reasoning(event: RunEvent) -> Any:
        return event.data if event.type == "thinking_delta" else public_data(event)

    mine = read(list(EventStream(platform.start(**spec), show=with_reasoning)))
    assert Message("thinking_delta", f"{platform.run.id}/1", {"text": "Hm. "}) in mine


@pytest.mark.parametrize(
    ("kind", "data", "seen"),
    [
        ("assistant_delta", {"text": "Hi", "internal": 1}, {"text": "Hi"}),
        ("thinking_delta", {"text": SECRET}, None),
        (
            "assistant_message",
            {"text": "Hi", "turn": 0, "toolCalls": [{"id": "t", "name": "n", "input": {"key": SECRET}}, 3]},
            {"text": "Hi", "turn": 0, "toolCalls": [{"id": "t", "name": "n"}]},
        ),
        ("tool_call", {"toolUseId": "t", "name": "n", "input": SECRET}, {"toolUseId": "t", "name": "n"}),
        (
            "tool_result",
            {"toolUseId": "t", "name": "n", "ok": True, "summary": SECRET, "result": SECRET},
            {"toolUseId": "t", "name": "n", "ok": True},
        ),
        ("local_tool_result_in", {"toolUseId": "t", "error": SECRET}, {"toolUseId": "t", "ok": False}),
        ("supervisor", {"action": "redirect", "reason": SECRET, "redirect": SECRET}, {"action": "redirect"}),
        (
            "tool_files",
            {
                "name": "n",
                "files": [{"filename": "a.png", "mimeType": "image/png", "url": SECRET, "storageKey": SECRET}],
            },
            {"name": "n", "files": [{"filename": "a.png", "mimeType": "image/png"}]},
        ),
        ("tool_files", {"name": "n", "files": SECRET}, {"name": "n", "files": []}),
        ("model_fallback", {"model": SECRET}, None),
        ("something_new", {"text": SECRET}, None),
        ("task_plan", {"plan": {"steps": [{"title": "Look"}]}}, {"plan": {"steps": [{"title": "Look"}]}}),
        ("user_message", {"text": "Hi", "attachments": [{"data": SECRET}]}, {"text": "Hi", "attachments": [{}]}),
        ("result", {"subtype": "success", "text": "Hi", "model": SECRET}, {"subtype": "success", "text": "Hi"}),
        (
            "result",
            {"subtype": "error_max_turns", "text": "Hi", "error": SECRET},
            {
                "error": "The agent could not complete the task (error_max_turns).",
                "code": "error_max_turns",
                "retryable": False,
                "subtype": "error_max_turns",
                "ok": False,
            },
        ),
        (
            "error",
            {"error": f"no key {SECRET}", "errorClass": "rate_limit", "retryable": True, "partialText": SECRET},
            {"error": "The agent could not complete the task (rate_limit).", "code": "rate_limit", "retryable": True},
        ),
        (
            "error",
            {"error": "?", "errorClass": f"host {SECRET}"},
            {"error": "The agent could not complete the task.", "code": "internal_error", "retryable": False},
        ),
        ("cancelled", {"reason": "user"}, {"reason": "user"}),
    ],
)
def test_the_public_sees_what_the_table_says(kind: str, data: Any, seen: Any) -> None:
    event = decode_or_keep({"seq": 1, "type": kind, "data": data})
    assert public_data(event) == seen


def test_a_view_that_returns_no_object_ends_the_stream_with_an_error(
    platform: Platform, caplog: pytest.LogCaptureFixture
) -> None:
    platform.plays([SECRET, Pause(threading.Event())])
    messages = read(list(EventStream(platform.start(), show=lambda event: [event])))
    assert [message.event for message in messages] == ["run", "error"]
    assert messages[1].data["code"] == "internal_error"
    assert "show must return a mapping or None, not list" in caplog.text
    platform.ends("cancelled")


def test_an_end_that_the_view_makes_unwritable_is_an_error_and_not_silence(
    platform: Platform, caplog: pytest.LogCaptureFixture
) -> None:
    messages = read(list(EventStream(platform.start(), show=lambda e: {"at": {1}} if e.is_terminal else e.data)))
    assert [message.event for message in messages] == ["run", "assistant_delta", "assistant_message", "error"]
    assert messages[-1].data["code"] == "internal_error"
    assert "set is not JSON serializable" in caplog.text


@pytest.mark.parametrize(
    ("name", "written"),
    [("café", "caf?"), ("a\r\nb", "a??b"), ("x\ndata: {}\n\nid: 7", "x?data: {}??id: 7"), ("\u2028\0", "??")],
)
def test_what_no_line_can_hold_is_written_as_question_marks(name: str, written: str) -> None:
    strange = json.dumps({"seq": 1, "type": name, "data": {}}).encode()
    created = reply(202, {"runId": name, "streamUrl": f"/api/v1/workspaces/w/agent-runs/{RUN_ID}/stream"})
    script = played(b"data: " + strange + b"\n\n", result(2))
    with RunServer(script, create=[created]) as server, quick_client(server) as client:
        messages = read(list(EventStream(lambda: client.stream_agent(**SPEC), show="all")))
    assert [(message.event, message.id) for message in messages] == [("run", None), (written, None), ("result", None)]
    assert messages[0].data == {"runId": name}


def test_the_end_is_told_also_where_the_view_shows_nothing(platform: Platform) -> None:
    messages = read(list(EventStream(platform.start(), show=lambda _: None)))
    assert [(message.event, message.data) for message in messages[1:]] == [("result", {})]


def test_what_json_has_no_number_for_is_null_and_line_ends_are_escaped() -> None:
    frame = sse_event(
        {"a": float("nan"), "b": [float("inf"), (1.5,)], "c": "x\n\u2028\ud800é"}, event="e", event_id="r/1"
    )
    assert frame == (b'id: r/1\nevent: e\ndata: {"a":null,"b":[null,[1.5]],"c":"x\\n\\u2028\\ud800\\u00e9"}\n\n')


# ------------------------------------------------------------------------------------------- nobody reads


def test_two_hundred_streams_that_nobody_reads_open_nothing(platform: Platform) -> None:
    before = len(platform.server.requests)
    streams = [EventStream(platform.start()) for _ in range(200)]
    for stream in streams[:100]:
        next(stream)  # the headers' piece: the run comes with the second
        stream.close()
    del streams, stream
    assert len(platform.server.requests) == before
    assert no_threads()


@pytest.mark.parametrize("pieces", range(6))
def test_a_stream_that_is_closed_after_any_piece_leaves_nothing(platform: Platform, pieces: int) -> None:
    platform.plays(["One ", "two ", Pause(threading.Event())])
    count = len(platform.server.runs)
    stream = EventStream(platform.start(), heartbeat=0.01)
    for _ in range(pieces):
        next(stream)
    stream.close()
    stream.close()
    assert list(stream) == []
    assert stream.is_free
    if pieces >= 2:
        platform.ends("cancelled")
    assert len(platform.server.runs) == count + (pieces >= 2)
    assert no_threads()


def test_a_stream_that_is_dropped_frees_its_run_here(platform: Platform) -> None:
    platform.plays(["One ", Pause(threading.Event())])
    stream = EventStream(platform.start())
    up_to(stream, b"One ")
    del stream
    gc.collect()
    wait_until(no_threads, "no thread is left")
    platform.client.cancel_run(platform.run.id)


def test_closing_from_another_thread_ends_the_wait(platform: Platform) -> None:
    platform.plays(["One ", Pause(threading.Event())])
    stream = EventStream(platform.start(), heartbeat=30.0)
    up_to(stream, b"One ")
    closer = threading.Timer(0.02, stream.close)
    closer.start()
    assert list(stream) == []
    closer.join()
    platform.ends("cancelled")


def test_closing_while_the_run_is_being_started_gives_it_up(platform: Platform) -> None:
    platform.plays([Pause(threading.Event())])

    def start() -> Any:
        run = platform.start()()
        stream.close()
        assert not stream.is_free, "the run is to come"
        return run

    stream = EventStream(start)
    list(stream)
    assert stream.is_free
    platform.ends("cancelled")


def test_a_run_that_was_closed_before_is_left_alone(platform: Platform) -> None:
    """Whoever closed it left it to another process."""
    platform.plays(["One ", Pause(threading.Event())])
    run = platform.client.stream_agent(**ASK)
    run.close()
    messages = read(list(EventStream(lambda: run)))
    assert [(message.event, message.data.get("code")) for message in messages] == [("run", None), ("error", "closed")]
    assert "cancel" not in [request.route for request in platform.server.requests]


def test_a_browser_that_leaves_while_a_tool_is_at_work_ends_both(platform: Platform) -> None:
    at_work, told = threading.Event(), threading.Event()

    @tool
    def dig(context: ToolContext) -> str:
        at_work.set()
        if context.cancelled.wait(15):
            told.set()
        return "a hole"

    platform.plays([ToolUse("dig")], ["Dug."])
    stream = EventStream(platform.start(tools=[dig]))
    up_to(stream, b"event: local_tool_call")
    assert at_work.wait(15)
    stream.close()
    platform.ends("cancelled")
    assert told.wait(15)


def test_silence_is_broken_by_comments(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mantyx_sync.web.stream, "LOOK_S", 60.0)
    go_on = threading.Event()
    platform.plays(["One ", Pause(go_on), "two."])
    stream = EventStream(platform.start(), heartbeat=0.01)
    up_to(stream, b"One ")
    assert [next(stream) for _ in range(3)] == [HEARTBEAT] * 3
    go_on.set()
    rest = list(stream)
    assert read(rest)[-1].event == "result"


def test_what_is_not_shown_is_silence_too(platform: Platform) -> None:
    stop = threading.Event()

    def musing(_: Any) -> Iterator[Thinking]:
        while not stop.wait(0.001):
            yield Thinking("Hm. ")

    platform.plays([musing])
    stream = EventStream(platform.start(reasoning_level="high"), heartbeat=0.02)
    try:
        assert [next(stream) for _ in range(4)][2:] == [HEARTBEAT] * 2
    finally:
        stop.set()
        stream.close()


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit], ids=lambda kind: kind.__name__)
def test_what_ends_a_worker_passes_through_and_frees_everything(platform: Platform, kind: Any) -> None:
    platform.plays(["One ", Pause(threading.Event())])
    raised = iter([None])

    def show(event: RunEvent) -> Any:
        raise kind

    stream = EventStream(platform.start(), show=show)
    next(stream), next(stream)
    with pytest.raises(kind):
        next(stream)
    assert next(raised) is None
    platform.ends("cancelled")
    assert no_threads()
    assert list(stream) == []


def test_a_signal_that_raises_in_the_wait_frees_everything(platform: Platform) -> None:
    def killed(*_: Any) -> None:
        sys.exit(1)

    platform.plays(["One ", Pause(threading.Event())])
    previous = signal.signal(signal.SIGALRM, killed)
    try:
        stream = EventStream(platform.start(), heartbeat=30.0)
        up_to(stream, b"One ")
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(SystemExit):
            next(stream)
    finally:
        signal.signal(signal.SIGALRM, previous)
    platform.ends("cancelled")
    assert no_threads()


# ------------------------------------------------------------------------------------------- it may finish


def test_a_run_that_may_finish_does_with_its_tools_and_its_session(platform: Platform) -> None:
    go_on = threading.Event()
    platform.plays(["One ", Pause(go_on), ToolUse("secret_of", {"name": ""})], ["two."])

    session = platform.client.create_session(system_prompt="Help.", tools=[secret_of])
    kept = weakref.ref(session)

    def ask(session: AgentSession) -> EventStream:
        return EventStream(lambda: session.stream("Hello."), on_disconnect="finish")

    stream = ask(session)
    place = resume_from(read(up_to(stream, b"One "))[-1].id)
    assert place is not None
    stream.close()
    del session, stream
    gc.collect()
    assert not no_threads()
    assert kept() is not None, "its tools are connected for as long as it is there"
    back = EventStream.attach(platform.client, *place, on_disconnect="finish")
    messages = read(up_to(back, b"event: run"))
    go_on.set()
    messages += read(list(back))
    assert messages[0].id == f"{place.run_id}/{place.last_seq}"
    assert [message.event for message in messages[1:]].count("local_tool_result_in") == 1
    assert [message.id for message in messages[1:]] == [
        f"{place.run_id}/{number}" for number in range(place.last_seq + 1, len(platform.run.events) + 1)
    ]
    platform.ends("succeeded")
    wait_until(no_threads, "no thread is left")
    wait_until(lambda: gc.collect() is not None and kept() is None, "nothing is kept beyond the end")
    assert not mantyx_sync.web.finishing._left


def test_leaving_a_stream_that_was_taken_up_again_changes_nothing(platform: Platform) -> None:
    go_on = threading.Event()
    platform.plays(["One ", Pause(go_on), "two."])
    with platform.client.start_agent(**ASK) as run:
        back = EventStream.attach(platform.client, run.run_id, on_disconnect="finish")
        up_to(back, b"One ")
        back.close()
        wait_until(lambda: no_threads(but=1), "one of the two has gone")
        go_on.set()
        assert run.result().text == "One two."


def test_a_run_that_takes_too_long_to_finish_is_cancelled(platform: Platform) -> None:
    platform.plays(["One ", Pause(threading.Event())])
    stream = EventStream(platform.start(), on_disconnect="finish", finish_timeout=0.05)
    up_to(stream, b"One ")
    stream.close()
    platform.ends("cancelled")
    wait_until(no_threads, "no thread is left")


def test_only_so_many_runs_go_on_without_a_reader(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mantyx_sync.web.finishing, "MAX_LEFT", 0)
    platform.plays(["One ", Pause(threading.Event())])
    stream = EventStream(platform.start(), on_disconnect="finish")
    up_to(stream, b"One ")
    stream.close()
    platform.ends("cancelled")
    assert no_threads()


def test_a_run_is_let_go_of_where_there_can_be_no_thread(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    platform.plays(["One ", Pause(threading.Event())])
    stream = EventStream(platform.start(), on_disconnect="finish")
    up_to(stream, b"One ")

    def refused(_: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    stream.close()
    monkeypatch.undo()
    wait_until(no_threads, "no thread is left")
    assert not platform.run.is_terminal
    platform.client.cancel_run(platform.run.id)


@pytest.mark.parametrize(
    ("header", "place"),
    [
        ("run_1/7", ("run_1", 7)),
        ("run_1/0", ("run_1", 0)),
        (None, None),
        ("", None),
        ("7", None),
        ("run_1", None),
        ("run_1/", None),
        ("run_1/-1", None),
        ("run_1/7\n", None),
        ("run_1/\u0667", None),
        ("../7", None),
        ("./7", None),
        ("a/b/7", None),
        ("run 1/7", None),
        ("run_1/" + "9" * 16, None),
        ("r" * 201 + "/7", None),
        (b"run_1/7", None),
    ],
)
def test_only_what_a_stream_has_sent_is_a_place(header: Any, place: Any) -> None:
    assert resume_from(header) == place


@pytest.mark.parametrize(
    ("script", "told"),
    [
        (["One."], ("result", {"subtype": "success", "text": "One."})),
        ([Failure("no key " + SECRET, error_class="auth")], ("error", "auth")),
    ],
)
def test_a_browser_that_comes_back_after_the_end_is_told_of_it(platform: Platform, script: Any, told: Any) -> None:
    platform.plays(script)
    first = read(list(EventStream(platform.start())))
    place = resume_from(first[-1].id)
    assert place is not None
    run, last = read(list(EventStream.attach(platform.client, *place)))
    assert (run.event, last.id) == ("run", None)
    assert (last.event, last.data if last.event == "result" else last.data["code"]) == told
    assert SECRET not in str(last)


def test_a_run_that_was_cancelled_meanwhile_is_said_to_be(platform: Platform) -> None:
    platform.plays(["One ", Pause(threading.Event())])
    stream = EventStream(platform.start())
    up_to(stream, b"One ")
    platform.client.cancel_run(platform.run.id)
    assert read(list(stream))[-1].event == "cancelled"
    place = resume_from(f"{platform.run.id}/{len(platform.run.events)}")
    assert place is not None
    assert read(list(EventStream.attach(platform.client, *place)))[-1].event == "cancelled"


# ------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("error", "status", "code", "retryable", "sentence"),
    [
        (MantyxConfigError("prompt: " + SECRET), 400, "invalid_config", False, "could not take on"),
        (MantyxNotFoundError(SECRET, status=404, code="not_found"), 404, "not_found", False, "could not take on"),
        (MantyxConflictError(SECRET, status=409, code="session_busy"), 409, "session_busy", True, "still busy"),
        (
            MantyxRateLimitError(SECRET, code="rate_limit_exceeded", retry_after=3.0),
            429,
            "rate_limit_exceeded",
            True,
            "later",
        ),
        (MantyxAuthError(SECRET), 502, "unauthorized", False, "could not take on"),
        (MantyxServerError(SECRET, status=500), 503, "api_error", True, "later"),
        (MantyxNetworkError(SECRET), 502, "network", True, "failed"),
        (MantyxTimeoutError(SECRET), 504, "timeout", True, "in time"),
        (MantyxParseError(SECRET, text=SECRET), 500, "output_parse_failed", False, "form"),
        (MantyxRunError("run_1", "error_max_turns", SECRET), 502, "error_max_turns", False, "error_max_turns"),
        (MantyxRunError("run_1", "error", SECRET, retryable=True), 502, "error", True, "could not complete"),
        (MantyxRunCancelled("run_1", SECRET, retryable=True), 502, "cancelled", False, "cancelled"),
        (MantyxServerError(SECRET, code=f"<b>{SECRET}</b>"), 503, "internal_error", True, "later"),
        (KeyError(SECRET), 500, "internal_error", False, "failed"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_an_error_is_a_status_a_word_and_a_sentence(
    error: Exception, status: int, code: str, retryable: bool, sentence: str
) -> None:
    got, body = public_error(error)
    assert (got, body["code"], body["retryable"]) == (status, code, retryable)
    assert sentence in body["error"]
    assert SECRET not in json.dumps(body)
    assert body.get("retryAfter") == getattr(error, "retry_after", None)


def test_what_start_raises_is_an_error_event(platform: Platform, caplog: pytest.LogCaptureFixture) -> None:
    def busy() -> Any:
        raise MantyxConflictError(SECRET, code="session_busy")

    def broken() -> Any:
        raise LookupError(SECRET)

    with caplog.at_level(logging.WARNING, "mantyx_sync.web"):
        assert [(message.event, message.id, message.data["code"]) for message in read(list(EventStream(busy)))] == [
            ("error", None, "session_busy")
        ]
        assert [message.data["code"] for message in read(list(EventStream(broken)))] == ["internal_error"]
        assert [message.data["code"] for message in read(list(EventStream(lambda: None)))] == ["internal_error"]  # type: ignore[arg-type,return-value]
    assert "LookupError" in caplog.text
    assert "start must return a Run, not" in caplog.text


def test_a_run_that_cannot_be_followed_any_more_is_an_error_event(monkeypatch: pytest.MonkeyPatch) -> None:
    quickly(monkeypatch)
    server = RunServer(played(delta(1, "Hi"), end="rst"), refusal(500))
    with server, quick_client(server, reconnect_timeout=0.05) as client:
        messages = read(list(EventStream(lambda: client.stream_agent(**SPEC))))
    assert [message.event for message in messages] == ["run", "assistant_delta", "error"]
    assert messages[-1].data["retryable"] is True
    assert messages[-1].id is None


def test_the_time_of_a_run_holds_also_for_its_stream(platform: Platform) -> None:
    platform.plays(["One ", Pause(threading.Event())])
    last = read(list(EventStream(platform.start(timeout=0.1))))[-1]
    assert (last.event, last.data["code"]) == ("error", "timeout")
    platform.ends("cancelled")


def test_an_event_without_a_number_has_no_id() -> None:
    bare = b'event: assistant_delta\ndata: {"text": "Hi"}\n\n'
    script = played(bare, result(0), end="end")
    with RunServer(script, snapshots=[reply(200, snapshot("succeeded"))]) as server, quick_client(server) as client:
        messages = read(list(EventStream(lambda: client.stream_agent(**SPEC))))
    assert [(message.event, message.id) for message in messages] == [
        ("run", f"{RUN_ID}/0"),
        ("assistant_delta", None),
        ("result", None),
    ]


# ------------------------------------------------------------------------------------------- the process ends


def test_streams_end_when_the_process_is_told_to(platform: Platform, caplog: pytest.LogCaptureFixture) -> None:
    platform.plays(["One ", Pause(threading.Event())])
    stream = EventStream(platform.start(), heartbeat=0.02)
    up_to(stream, b"One ")
    end_streams(0.05)
    last = read(list(stream))[-1]
    assert (last.event, last.data["code"], last.data["retryable"]) == ("error", "shutting_down", True)
    platform.ends("cancelled")
    assert no_threads()
    count = len(platform.server.runs)
    assert read(list(EventStream(platform.start())))[-1].data["code"] == "shutting_down"
    assert len(platform.server.runs) == count, "a stream that begins now starts no run"
    assert not caplog.records


def test_a_stream_of_a_run_that_may_finish_just_ends_then(platform: Platform) -> None:
    go_on = threading.Event()
    platform.plays(["One ", Pause(go_on), "two."])
    stream = EventStream(platform.start(), on_disconnect="finish", heartbeat=0.02)
    up_to(stream, b"One ")
    end_streams()
    assert read(list(stream)) == []
    late = read(list(EventStream(platform.start(), on_disconnect="finish")))
    assert [message.data["code"] for message in late] == ["shutting_down"], "nothing would come back by itself"
    go_on.set()
    platform.ends("succeeded")
    wait_until(no_threads, "no thread is left")


@pytest.fixture
def sigterm() -> Iterator[None]:
    previous = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, previous)


class Worker:
    """What a worker of gunicorn does at SIGTERM."""

    def __init__(self, graceful_timeout: Any) -> None:
        self.alive = True
        self.cfg = types.SimpleNamespace(graceful_timeout=graceful_timeout)

    def handle_exit(self, *_: Any) -> None:
        self.alive = False


@pytest.mark.parametrize(("graceful_timeout", "left"), [(30, 25.0), (4, 2.0), ("?", 5.0)])
def test_gunicorn_worker_that_is_to_end_is_noticed(sigterm: None, graceful_timeout: Any, left: float) -> None:
    is_over = mantyx_sync.web.ending.is_over
    worker = Worker(graceful_timeout)
    signal.signal(signal.SIGTERM, worker.handle_exit)
    mantyx_sync.web.ending._until.append((-1, 0.0))  # of the process whose child this is
    assert not is_over(100.0)
    signal.raise_signal(signal.SIGTERM)
    assert not is_over(100.0)
    assert not is_over(100.0 + left - 0.1)
    assert is_over(100.0 + left)


def test_sigterm_ends_the_streams_and_then_does_what_it_did(sigterm: None, platform: Platform) -> None:
    seen: List[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: seen.append(number))
    end_streams_at_sigterm()
    end_streams_at_sigterm()
    platform.plays(["One ", Pause(threading.Event())])
    stream = EventStream(platform.start(), heartbeat=0.02)
    up_to(stream, b"One ")
    signal.raise_signal(signal.SIGTERM)
    assert seen == [signal.SIGTERM]
    assert read(list(stream))[-1].data["code"] == "shutting_down"


def test_sigterm_that_did_nothing_ends_the_process(sigterm: None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    end_streams_at_sigterm()
    with pytest.raises(SystemExit) as caught:
        signal.raise_signal(signal.SIGTERM)
    assert caught.value.code == 128 + signal.SIGTERM


def test_sigterm_is_for_the_main_thread_alone() -> None:
    errors: List[BaseException] = []

    def elsewhere() -> None:
        try:
            end_streams_at_sigterm()
        except MantyxConfigError as error:
            errors.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert "main thread" in str(errors[0])


def test_whatever_is_open_when_the_interpreter_ends_is_closed(platform: Platform) -> None:
    platform.plays(["One ", Pause(threading.Event())])
    unread = EventStream(platform.client.stream_agent(**ASK))
    mantyx_sync.web.ending._close_open()
    platform.ends("cancelled")
    assert unread.is_free


def test_the_end_of_the_interpreter_waits_for_a_thread_that_is_cancelling(platform: Platform) -> None:
    class Cancelling:
        is_free = False

        def close(self) -> None:
            threading.Timer(0.03, self.freed).start()

        def freed(self) -> None:
            self.is_free = True

        def let_go(self) -> None:
            raise AssertionError("there is time to close it")

    stream = Cancelling()
    mantyx_sync.web.ending.note_open(stream)
    mantyx_sync.web.ending._close_open()
    assert stream.is_free


@pytest.mark.parametrize(("leaving", "status"), [("cancel", "cancelled"), ("finish", "running")])
def test_an_interpreter_that_ends_cancels_what_its_streams_show(platform: Platform, leaving: str, status: str) -> None:
    platform.plays(["One ", Pause(threading.Event())])
    program = f"""
        from mantyx_sync.web import EventStream
        def serve():
            for piece in EventStream(lambda: client.stream_agent(system_prompt="Help.", prompt="Go."),
                                     on_disconnect={leaving!r}):
                if b"One " in piece:
                    say("streams")
        threading.Thread(target=serve, daemon=True).start()
        try:
            signal.pause()
        except KeyboardInterrupt:
            pass
    """
    with Child(platform.server.client_settings(), program) as child:
        child.expect("streams")
        child.press_ctrl_c()
        child.ends(5.0)
    if status == "running":
        assert platform.run.status == status
        platform.client.cancel_run(platform.run.id)
    else:
        platform.ends(status)


# ------------------------------------------------------------------------------------------- a page that is loaded anew


def test_a_conversation_is_told_again_as_events(platform: Platform) -> None:
    session = platform.client.create_session(system_prompt="Help.")
    platform.plays(["Hello."])
    session.send("Hi.")
    session.send("Again.")
    told = history_events(session)
    assert told["sessionId"] == session.id
    assert [(event["seq"], event["type"], event["data"]["text"]) for event in told["events"]] == [
        (1, "user_message", "Hi."),
        (2, "assistant_message", "Hello."),
        (3, "user_message", "Again."),
        (4, "assistant_message", "Hello."),
    ]
    assert told["nextBeforeSeq"] is None
    last = history_events(session, last_messages=1)
    assert [event["seq"] for event in last["events"]] == [4]
    before = history_events(session, last_messages=3, before_seq=last["nextBeforeSeq"])
    assert [event["seq"] for event in before["events"]] == [1, 2, 3]
    assert json.dumps(told)
    assert history_events(session, show=lambda _: None)["events"] == []


def test_a_run_that_starts_while_it_is_looked_for_is_found() -> None:
    class Client:
        status = "queued"

        def list_runs(self, *, status: str, **_: Any) -> list[RunSummary]:
            found = [RunSummary("run_1", status, session_id="ses_1")] if status == self.status else []
            self.status = "running"
            return found

    client: Any = Client()
    found = running_run(client, "ses_1")
    assert found is not None
    assert found.id == "run_1"


def test_the_run_that_goes_on_in_a_session_is_found(platform: Platform) -> None:
    platform.plays(["One ", Pause(threading.Event())])
    session = platform.client.create_session(system_prompt="Help.", metadata={"site": "shop"})
    assert running_run(platform.client, session.id) is None
    with session.stream("Hi.") as run:
        found = running_run(platform.client, session.id, metadata={"site": "shop"})
        assert found is not None
        assert found.id == run.run_id
        assert running_run(platform.client, session.id, metadata={"site": "other"}) is None
        assert running_run(platform.client, "ses_other") is None
