"""The A2A client against agents written by hand: answers of every kind, waiting, streams that break, errors."""

from __future__ import annotations

import base64
import json
import logging
import math
import os
import pickle
import threading
import time
import warnings
import weakref
from typing import Any, Iterator

import pytest
import requests
from requests.auth import HTTPBasicAuth

from mantyx_sync.a2a import (
    A2AAuthError,
    A2ACancelled,
    A2AClient,
    A2AConnectionError,
    A2AError,
    A2AProtocolError,
    A2ARequestError,
    A2AStatusError,
    A2ATaskError,
    A2ATimeoutError,
    Cancellation,
    DataPart,
    FilePart,
    Message,
    StatusUpdate,
    Task,
    TaskStatus,
    TextPart,
)
from mantyx_sync.a2a.client import stream as stream_module
from mantyx_sync.a2a.client.allowance import Allowance
from mantyx_sync.a2a.client.questions import Questions, is_same_question
from mantyx_sync.a2a.client.stream import poll_delay
from mantyx_sync.errors import MantyxConfigError, MantyxNetworkError, MantyxTimeoutError
from mantyx_sync.tools.results import ToolResultFile

from .a2a_agents import (
    Agent,
    Call,
    Events,
    Fail,
    Raw,
    always,
    artifact_v1,
    card_v1,
    in_turn,
    message_v1,
    status_v1,
    task_v03,
    task_v1,
    update_v1,
)
from .wire import DEADLINE_S

pytestmark = pytest.mark.usefixtures("no_leaks", "quick_polls")

WORKING = task_v1("WORKING")
DONE = task_v1("COMPLETED", "done")
ASKING = task_v1("INPUT_REQUIRED", "Which one?", "q-1")


@pytest.fixture
def quick_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_module, "FIRST_POLL_S", 0.01)
    monkeypatch.setattr(stream_module, "LAST_POLL_S", 0.02)


def ask(agent: Agent, content: Any = "hi", **options: Any) -> Any:
    with A2AClient(agent.url) as client:
        return client.send(content, **options)


# ------------------------------------------------------------------------------------------- answers


def test_a_message_is_asked_for_in_the_new_version() -> None:
    with Agent({"SendMessage": always({"message": message_v1("direct reply")})}) as agent:
        reply = ask(agent)
        assert (reply.text, reply.state, reply.context_id, reply.task_id) == ("direct reply", "completed", "c-1", None)
        assert isinstance(reply.message, Message)
        (call,) = agent.calls
        message_id = call["params"]["message"].pop("messageId")
        assert len(message_id) == 36
        assert call["params"] == {"message": {"role": "ROLE_USER", "parts": [{"text": "hi"}]}}
        assert call["jsonrpc"] == "2.0"
        assert isinstance(call["id"], str)
        headers = agent.headers_of("SendMessage")
        assert headers["A2A-Version"] == "1.0"
        assert headers["Content-Type"] == "application/json"
        assert headers["User-Agent"].startswith("mantyx-sync/")


def test_a_message_is_asked_for_in_the_old_version() -> None:
    answer = {"kind": "message", "messageId": "m", "role": "agent", "parts": [{"kind": "text", "text": "old"}]}
    with Agent({"message/send": always(answer)}, version="0.3") as agent:
        assert ask(agent, context_id="c-9").text == "old"
        (call,) = agent.calls
        del call["params"]["message"]["messageId"]
        assert call["params"] == {
            "message": {
                "kind": "message",
                "role": "user",
                "parts": [{"kind": "text", "text": "hi"}],
                "contextId": "c-9",
            },
            "configuration": {"blocking": True},
        }
        assert agent.headers_of("message/send")["A2A-Version"] == "0.3"


@pytest.mark.parametrize(
    ("version", "answer"),
    [
        ("1.0", {"task": DONE}),
        ("1.0", DONE),
        ("0.3", task_v03("completed", "done")),
        ("0.3", {"task": DONE}),
        ("1.0", task_v03("completed", "done")),
    ],
)
def test_a_task_is_read_in_whatever_form_it_comes(version: str, answer: Any) -> None:
    method = "SendMessage" if version == "1.0" else "message/send"
    with Agent({method: always(answer)}, version=version) as agent:
        reply = ask(agent)
        assert (reply.state, reply.text, reply.task_id, reply.context_id) == ("completed", "done", "t-1", "c-1")
        assert isinstance(reply.task, Task)


def test_artifacts_become_text_and_files() -> None:
    parts = [{"text": "see"}, {"raw": "YWJj", "filename": "a.txt"}, {"url": "https://x/y.pdf"}, {"data": {"n": 1}}]
    task = task_v1("COMPLETED", "status", artifacts=[{"artifactId": "a", "parts": parts}])
    with Agent({"SendMessage": always({"task": task})}) as agent:
        reply = ask(agent)
        assert reply.text == "see\n[file 'y.pdf': https://x/y.pdf]\n{\"n\":1}"
        assert [(item.filename, item.mime_type, item.data) for item in reply.files] == [("a.txt", "text/plain", "YWJj")]
        assert reply.to_tool_result().files == list(reply.files)


def test_what_is_sent_can_be_of_many_kinds() -> None:
    with Agent({"SendMessage": always({"message": message_v1("ok")})}) as agent:
        content = [
            "text",
            DataPart([1]),
            {"key": "value"},
            FilePart(url="https://x"),
            ToolResultFile.from_bytes(b"abc", "a.txt"),
        ]
        ask(agent, content, context_id="c-1", task_id="t-1", metadata={"trace": 1}, history_length=2)
        params = agent.calls[0]["params"]
        assert params["message"]["parts"] == [
            {"text": "text"},
            {"data": [1]},
            {"data": {"key": "value"}},
            {"url": "https://x"},
            {"raw": "YWJj", "filename": "a.txt", "mediaType": "text/plain"},
        ]
        assert (params["message"]["contextId"], params["message"]["taskId"]) == ("c-1", "t-1")
        assert (params["metadata"], params["configuration"]) == ({"trace": 1}, {"historyLength": 2})
        whole = Message("own-id", "user", (TextPart("x"),), metadata={"m": 1})
        ask(agent, whole, context_id="c-2")
        assert agent.calls[1]["params"]["message"] == {
            "messageId": "own-id",
            "role": "ROLE_USER",
            "parts": [{"text": "x"}],
            "contextId": "c-2",
            "metadata": {"m": 1},
        }


def test_each_message_has_an_id_of_its_own() -> None:
    with Agent({"SendMessage": always({"message": message_v1("ok")})}) as agent, A2AClient(agent.url) as client:
        for _ in range(3):
            client.send("hi")
        assert len({call["params"]["message"]["messageId"] for call in agent.calls}) == 3
        assert len({call["id"] for call in agent.calls}) == 3


def test_options_are_sent_along() -> None:
    card = card_v1("/rpc")
    card["supportedInterfaces"][0]["tenant"] = "acme"
    methods = {"SendMessage": always({"task": WORKING}), "GetTask": always(DONE), "CancelTask": always(DONE)}
    with Agent(methods, card=card) as agent:
        client = A2AClient(
            agent.url,
            headers={"Authorization": "Bearer k"},
            accepted_output_modes=["text/plain", "image/png"],
            extensions=["https://e/1", "https://e/2"],
        )
        with client:
            client.send("hi")
            client.cancel_task("t-1", metadata={"why": "x"})
        send, get, cancel = agent.calls
        assert send["params"]["configuration"] == {"acceptedOutputModes": ["text/plain", "image/png"]}
        assert [call["params"]["tenant"] for call in agent.calls] == ["acme"] * 3
        assert get["params"] == {"tenant": "acme", "id": "t-1"}
        assert cancel["params"] == {"tenant": "acme", "id": "t-1", "metadata": {"why": "x"}}
        for method in ("SendMessage", "GetTask", "CancelTask"):
            headers = agent.headers_of(method)
            assert headers["A2A-Extensions"] == "https://e/1, https://e/2"
            assert headers["Authorization"] == "Bearer k"


@pytest.mark.parametrize(
    ("content", "options", "words"),
    [
        ([], {}, "content: got nothing"),
        ("", {}, "content: got an empty text, must say something"),
        (" \n", {}, "content: got an empty text, must say something"),
        (Message("", "user", ()), {}, "content: got a message without parts"),
        (7, {}, "content: got 7"),
        ([b"x"], {}, "content[0]: got bytes"),
        ({"a": object()}, {}, "content[0].a: got object"),
        ("x", {"context_id": ""}, "context_id: got ''"),
        ("x", {"task_id": 3}, "task_id: got 3"),
        ("x", {"metadata": "secret"}, "metadata: got a string"),
        ("x", {"metadata": {"a": float("nan")}}, "metadata.a: got nan"),
        ("x", {"history_length": -1}, "history_length: got -1"),
        ("x", {"timeout": -1}, "timeout: got -1"),
        ("x", {"on_update": 3}, "on_update: got 3"),
        ("x", {"cancelled": True}, "cancelled: got True"),
    ],
)
def test_what_cannot_be_sent_is_refused_before_anything_is(content: Any, options: Any, words: str) -> None:
    with Agent() as agent:
        with pytest.raises(MantyxConfigError) as caught:
            ask(agent, content, **options)
        assert words in str(caught.value)
        assert agent.seen == []


def test_ids_are_checked_before_anything_is_sent() -> None:
    with Agent() as agent, A2AClient(agent.url) as client:
        for call in (client.get_task, client.cancel_task, client.resubscribe):
            with pytest.raises(MantyxConfigError, match="task_id: got ''"):
                call("")
        with pytest.raises(MantyxConfigError, match="last_event_id"):
            client.resubscribe("t", last_event_id="a\nb")
        assert agent.seen == []


# ------------------------------------------------------------------------------------------- waiting


@pytest.mark.parametrize("version", ["1.0", "0.3"])
def test_a_task_that_goes_on_is_asked_for_until_it_is_over(version: str) -> None:
    task = task_v1 if version == "1.0" else task_v03
    names = ("SendMessage", "GetTask") if version == "1.0" else ("message/send", "tasks/get")
    state = (lambda s: s.upper()) if version == "1.0" else (lambda s: s)
    first = task(state("submitted"))
    methods = {
        names[0]: always({"task": first} if version == "1.0" else first),
        names[1]: in_turn(task(state("working")), task(state("working")), task(state("completed"), "at last")),
    }
    with Agent(methods, version=version) as agent:
        updates: list[Any] = []
        reply = ask(agent, on_update=updates.append)
        assert reply.text == "at last"
        assert agent.asked == [names[0], *[names[1]] * 3]
        assert agent.calls[1]["params"] == {"id": "t-1"}
        assert [update.state for update in updates] == ["submitted", "working", "completed"]


def test_polls_come_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    delays = [poll_delay(attempt) for attempt in range(40)]
    assert delays[0] == 0.5
    assert delays == sorted(delays)
    assert delays[-1] == 5.0
    assert delays[4] < 5.0


def test_polling_outlives_trouble_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mantyx_sync.a2a.client.connection.random.random", lambda: 0.0)
    trouble = [Raw(503, b"busy"), Raw(502, b"<html>"), Raw(500, b"oops")]
    with Agent({"SendMessage": always({"task": WORKING}), "GetTask": in_turn(*trouble, DONE)}) as agent:
        assert ask(agent).text == "done"


def test_trouble_counts_anew_after_an_answer() -> None:
    oops = Raw(500, b"oops")
    answers = [oops, oops, oops, oops, WORKING] * 2
    methods = {"SendMessage": always({"task": WORKING}), "GetTask": in_turn(*answers, DONE)}
    with Agent(methods) as agent, A2AClient(agent.url, max_retries=0) as client:
        assert client.send("hi").text == "done"


def test_polling_gives_up_on_a_task_that_is_gone() -> None:
    gone = Fail(-32001, "Task not found")
    with Agent({"SendMessage": always({"task": WORKING}), "GetTask": always(gone)}) as agent:
        with pytest.raises(A2ARequestError, match="-32001 TASK_NOT_FOUND") as caught:
            ask(agent)
        assert caught.value.reason == "TASK_NOT_FOUND"
        assert agent.asked == ["SendMessage", "GetTask"]


def test_polling_gives_up_where_nothing_answers_any_more() -> None:
    with Agent({"SendMessage": always({"task": WORKING}), "GetTask": always(Raw(500, b"oops"))}) as agent:
        client = A2AClient(agent.url, max_retries=0)
        with client, pytest.raises(A2AStatusError) as caught:
            client.send("hi")
        assert caught.value.status == 500
        assert agent.asked.count("GetTask") == stream_module.MAX_FAILED_POLLS


def test_a_task_with_no_id_cannot_be_followed() -> None:
    working = {"statusUpdate": {"status": status_v1("WORKING")}}
    with Agent({"SendMessage": always(working)}) as agent, pytest.raises(A2AProtocolError, match="no id"):
        ask(agent)


@pytest.mark.parametrize("streaming", [False, True])
def test_the_deadline_cancels_the_task(streaming: bool) -> None:
    def stream(call: Call) -> Events:
        def items() -> Iterator[Any]:
            yield {"task": WORKING}
            call.agent.wait(threading.Event())

        return Events(items())

    methods = {
        "SendMessage": always({"task": WORKING}),
        "SendStreamingMessage": stream,
        "GetTask": always(WORKING),
        "CancelTask": always(task_v1("CANCELED")),
    }
    with Agent(methods, streaming=streaming) as agent:
        started = time.monotonic()
        with pytest.raises(
            A2ATimeoutError, match="task t-1 was not over in the time allowed; it was cancelled"
        ) as caught:
            ask(agent, timeout=0.25)
        assert 0.2 < time.monotonic() - started < 2.0
        assert isinstance(caught.value, MantyxTimeoutError)
        assert (caught.value.task_id, caught.value.context_id) == ("t-1", "c-1")
        assert agent.calls[-1]["method"] == "CancelTask"
        assert agent.calls[-1]["params"] == {"id": "t-1"}
        agent.closing.set()


def test_a_task_that_cannot_be_cancelled_is_told_of() -> None:
    methods = {"SendMessage": always({"task": WORKING}), "GetTask": always(WORKING), "CancelTask": always(Fail(-32002))}
    with Agent(methods) as agent, pytest.raises(A2ATimeoutError, match=r"look with get_task\('t-1'\)"):
        ask(agent, timeout=0.1)


def test_the_deadline_holds_while_the_answer_is_awaited() -> None:
    never = threading.Event()

    def hang(call: Call) -> Any:
        call.agent.wait(never)
        return Raw(500)

    with Agent({"SendMessage": hang}) as agent:
        started = time.monotonic()
        with pytest.raises(A2ATimeoutError, match="no answer in the time allowed; the agent may be at work"):
            ask(agent, timeout=0.2)
        assert time.monotonic() - started < 2.0
        assert agent.asked == ["SendMessage"]
        never.set()


def test_the_deadline_holds_although_bytes_trickle_in() -> None:
    def trickle(call: Call) -> Events:
        def items() -> Iterator[bytes]:
            while not call.agent.closing.wait(0.02):
                yield b": still here\n\n"

        return Events(items())

    with Agent({"SendStreamingMessage": trickle}, streaming=True) as agent:
        with pytest.raises(A2ATimeoutError):
            ask(agent, timeout=0.2)
        agent.closing.set()


def test_half_an_answer_at_the_deadline_is_a_timeout() -> None:
    def half(call: Call) -> Events:
        def items() -> Iterator[bytes]:
            yield b'{"jsonrpc": "2.0", "result": '
            call.agent.closing.wait(DEADLINE_S)

        return Events(items(), "application/json")

    with Agent({"SendMessage": half}) as agent:
        with pytest.raises(A2ATimeoutError):
            ask(agent, timeout=0.1)
        agent.closing.set()


@pytest.mark.parametrize("kind", [threading.Event, Cancellation])
@pytest.mark.parametrize("streaming", [False, True])
def test_cancelling_ends_the_wait(kind: Any, streaming: bool) -> None:
    cancelled = kind()
    told, never = threading.Event(), threading.Event()

    def stream(call: Call) -> Events:
        def items() -> Iterator[Any]:
            yield {"task": WORKING}
            told.wait(DEADLINE_S)  # the client has read it
            cancelled.set()
            call.agent.wait(never)

        return Events(items())

    def get(call: Call) -> Any:
        cancelled.set()
        call.agent.wait(never)
        return WORKING

    methods = {
        "SendMessage": always({"task": WORKING}),
        "SendStreamingMessage": stream,
        "GetTask": get,
        "CancelTask": always(task_v1("CANCELED")),
    }
    with Agent(methods, streaming=streaming) as agent:
        started = time.monotonic()
        with pytest.raises(A2ACancelled) as caught:
            ask(agent, cancelled=cancelled, on_update=lambda event: told.set())
        assert time.monotonic() - started < 2.0
        assert caught.value.task_id == "t-1"
        assert agent.asked[-1] == "CancelTask"
        never.set()


def test_what_is_cancelled_already_is_not_sent() -> None:
    cancelled = threading.Event()
    cancelled.set()
    with Agent({"SendMessage": always({"task": DONE})}) as agent:
        with pytest.raises(A2ACancelled):
            ask(agent, cancelled=cancelled)
        assert agent.asked == []


def test_anything_that_can_be_looked_at_like_an_event_cancels_and_nothing_else_is_taken() -> None:
    class Done:
        def is_set(self) -> bool:
            return True

    with Agent({"SendMessage": always({"task": DONE})}) as agent:
        with pytest.raises(A2ACancelled):
            ask(agent, cancelled=Done())
        with pytest.raises(MantyxConfigError, match="cancelled: got 7, must be a Cancellation or"):
            ask(agent, cancelled=7)
        assert agent.asked == []


def test_a_pause_ends_with_a_plain_event_soon_and_with_a_cancellation_at_once() -> None:
    for event in (threading.Event(), Cancellation()):
        allowance = Allowance.of(60.0, event)
        timer = threading.Timer(0.02, event.set)
        timer.start()
        started = time.monotonic()
        allowance.pause(30.0)
        assert time.monotonic() - started < 2.0
        assert allowance.is_over
        timer.join()


# ------------------------------------------------------------------------------------------- streams

STREAM = [
    {"task": task_v1("SUBMITTED")},
    update_v1("WORKING"),
    artifact_v1("Hel"),
    artifact_v1("lo", append=True),
    update_v1("COMPLETED"),
]


def test_an_agent_that_streams_is_asked_for_a_stream() -> None:
    with Agent({"SendStreamingMessage": always(Events(STREAM))}, streaming=True) as agent:
        updates: list[Any] = []
        reply = ask(agent, on_update=updates.append)
        assert reply.text == "Hello"
        assert [type(update).__name__ for update in updates] == [
            "Task",
            "StatusUpdate",
            "ArtifactUpdate",
            "ArtifactUpdate",
            "StatusUpdate",
        ]
        assert agent.asked == ["SendStreamingMessage"]
        headers = agent.headers_of("SendStreamingMessage")
        assert "text/event-stream" in headers["Accept"]
        assert headers["Accept-Encoding"] == "identity"


def test_a_stream_in_the_old_version() -> None:
    events = [
        task_v03("submitted"),
        {"kind": "status-update", "taskId": "t-1", "contextId": "c-1", "final": False, "status": {"state": "working"}},
        {
            "kind": "artifact-update",
            "taskId": "t-1",
            "contextId": "c-1",
            "append": False,
            "lastChunk": False,
            "artifact": {"artifactId": "a", "parts": [{"kind": "text", "text": "x"}]},
        },
        {"kind": "status-update", "taskId": "t-1", "contextId": "c-1", "final": True, "status": {"state": "completed"}},
    ]
    with Agent({"message/stream": always(Events(events))}, version="0.3", streaming=True) as agent:
        assert ask(agent).text == "x"


def test_streaming_can_be_declined() -> None:
    with Agent({"SendMessage": always({"task": DONE})}, streaming=True) as agent:
        with A2AClient(agent.url, streaming=False) as client:
            assert client.send("hi").text == "done"
        assert agent.asked == ["SendMessage"]


@pytest.mark.parametrize("answer", [Fail(-32601), Fail(-32004), Events([Fail(-32601)])])
def test_an_agent_that_does_not_stream_after_all_is_asked_plainly(answer: Any) -> None:
    methods = {"SendStreamingMessage": always(answer), "SendMessage": always({"task": DONE})}
    with Agent(methods, streaming=True) as agent, A2AClient(agent.url) as client:
        for _ in range(2):
            assert client.send("hi").text == "done"
        assert agent.asked == ["SendStreamingMessage", "SendMessage", "SendMessage"]
        first, second = agent.calls[:2]
        assert first["params"] == second["params"]


def test_an_agent_that_streams_although_its_card_says_no_is_understood() -> None:
    with Agent({"SendMessage": always(Events(STREAM))}) as agent:
        assert ask(agent).text == "Hello"


def test_an_error_on_a_stream_that_may_come_from_the_work_is_not_asked_again() -> None:
    methods = {"SendStreamingMessage": always(Events([Fail(-32004)])), "SendMessage": always({"task": DONE})}
    with Agent(methods, streaming=True) as agent:
        with pytest.raises(A2ARequestError, match="UNSUPPORTED_OPERATION"):
            ask(agent)
        assert agent.asked == ["SendStreamingMessage"]


def test_an_error_in_mid_stream_is_raised() -> None:
    methods = {"SendStreamingMessage": always(Events([{"task": WORKING}, Fail(-32603, "fell over")]))}
    with Agent(methods, streaming=True) as agent, pytest.raises(A2ARequestError, match="fell over"):
        ask(agent)


@pytest.mark.parametrize(
    "answer",
    [{"task": DONE}, {"message": message_v1("done")}, Events([{"message": message_v1("done")}, update_v1("WORKING")])],
)
def test_a_stream_may_be_one_answer(answer: Any) -> None:
    with Agent({"SendStreamingMessage": always(answer)}, streaming=True) as agent:
        assert ask(agent).text == "done"


@pytest.mark.parametrize(
    "items",
    [
        [{"task": WORKING}],
        [{"task": WORKING}, b'data: {"jsonrpc": "2.0", "result'],
        [{"task": WORKING}, update_v1("WORKING")],
        [update_v1("WORKING")],
    ],
)
def test_a_stream_that_breaks_is_followed_by_asking_for_the_task(items: Any) -> None:
    methods = {"SendStreamingMessage": always(Events(items)), "GetTask": in_turn(WORKING, DONE)}
    with Agent(methods, streaming=True) as agent:
        assert ask(agent).text == "done"
        assert agent.asked == ["SendStreamingMessage", "GetTask", "GetTask"]


def test_a_silent_stream_is_followed_by_asking_for_the_task() -> None:
    def stream(call: Call) -> Events:
        def items() -> Iterator[Any]:
            yield {"task": WORKING}
            call.agent.closing.wait(DEADLINE_S)

        return Events(items())

    with Agent({"SendStreamingMessage": stream, "GetTask": always(DONE)}, streaming=True) as agent:
        with A2AClient(agent.url, stream_idle_timeout=0.1) as client:
            assert client.send("hi", timeout=5.0).text == "done"
        agent.closing.set()


def test_a_stream_that_ends_before_anything_is_known_is_not_sent_again() -> None:
    with Agent({"SendStreamingMessage": always(Events([]))}, streaming=True) as agent:
        with pytest.raises(A2AProtocolError, match="ended before anything"):
            ask(agent)
        assert agent.asked == ["SendStreamingMessage"]
    with Agent({"SendStreamingMessage": always(Events([b"data: {"]))}, streaming=True) as agent:
        with pytest.raises(A2AConnectionError, match="the agent may be at work") as caught:
            ask(agent)
        assert caught.value.sent is None
        assert agent.asked == ["SendStreamingMessage"]


def test_final_without_a_settled_task_is_looked_into() -> None:
    final = {"kind": "status-update", "taskId": "t-1", "contextId": "c", "final": True, "status": {"state": "working"}}
    methods = {"message/stream": always(Events([final])), "tasks/get": always(task_v03("completed", "done"))}
    with Agent(methods, version="0.3", streaming=True) as agent:
        assert ask(agent).text == "done"

    def stay(call: Call) -> Events:
        def items() -> Iterator[Any]:
            yield final
            call.agent.closing.wait(DEADLINE_S)

        return Events(items())

    with Agent({**methods, "message/stream": stay}, version="0.3", streaming=True) as agent:
        assert ask(agent, timeout=5.0).text == "done"
        agent.closing.set()


@pytest.mark.parametrize(
    "noise",
    [
        b": heartbeat\n\n",
        b"data:\n\n",
        b"data: [DONE]\n\n",
        b'data: "text"\n\n',
        b"data: null\n\n",
        b"data: {}\n\n",
        b"id: 7\n\n",
        b"event: ping\ndata: {}\n\n",
        b'data: {"jsonrpc":"2.0","result":{"brandNew":{}}}\n\n',
        b"\xef\xbb\xbf",
    ],
)
def test_noise_on_a_stream_is_passed_by(noise: bytes) -> None:
    items: list[Any] = [noise, *STREAM] if noise[:1] == b"\xef" else [STREAM[0], noise, *STREAM[1:]]
    with Agent({"SendStreamingMessage": always(Events(items))}, streaming=True) as agent:
        assert ask(agent).text == "Hello"


def test_an_event_over_several_lines_is_one_event() -> None:
    text = json.dumps({"jsonrpc": "2.0", "id": "1", "result": {"message": message_v1("a\u2028b\u0085c")}}, indent=1)
    event = "event: message\r\n" + "".join(f"data: {line}\r\n" for line in text.split("\n")) + "\r\n"
    with Agent({"SendStreamingMessage": always(Events([event.encode()]))}, streaming=True) as agent:
        assert ask(agent).text == "a\u2028b\u0085c"
    raw = json.dumps({"jsonrpc": "2.0", "result": {"message": message_v1("x\u2028y é")}}, ensure_ascii=False).encode()
    pieces = [b"data: ", *[raw[i : i + 1] for i in range(len(raw))], b"\n", b"\n"]
    with Agent({"SendStreamingMessage": always(Events(pieces))}, streaming=True) as agent:
        assert ask(agent).text == "x\u2028y é"


def test_an_event_that_is_too_large_ends_the_call() -> None:
    agent = Agent({"SendStreamingMessage": always(Events([b"data: " + b"x" * 5000]))}, streaming=True)
    client = A2AClient(agent.url, max_message_bytes=2000)
    with agent, client, pytest.raises(A2AProtocolError, match="larger than"):
        client.send("hi")


def test_events_can_be_iterated_over() -> None:
    with (
        Agent({"SendStreamingMessage": always(Events(STREAM))}, streaming=True) as agent,
        A2AClient(agent.url) as client,
    ):
        with client.stream("hi") as events:
            assert agent.seen == []
            first = next(events)
            assert isinstance(first, Task)
            assert events.task == first
            rest = list(events)
            assert isinstance(rest[-1], StatusUpdate)
            assert list(events) == []
            assert events.result().text == "Hello"
        assert client.stream("hi").reply().text == "Hello"


def test_iterating_works_where_nothing_streams() -> None:
    methods = {"SendMessage": always({"task": WORKING}), "GetTask": always(DONE)}
    with Agent(methods) as agent, A2AClient(agent.url) as client:
        states = [event.state for event in client.stream("hi") if isinstance(event, Task)]
        assert states == ["working", "completed"]


def heartbeats(call: Call) -> Events:
    """A task that goes on and on, on a stream that is never silent."""

    def items() -> Iterator[Any]:
        yield {"task": WORKING}
        while not call.agent.closing.wait(0.01):
            yield b": beat\n\n"

    return Events(items())


def test_leaving_a_stream_leaves_the_task_alone() -> None:
    with Agent({"SendStreamingMessage": heartbeats}, streaming=True) as agent, A2AClient(agent.url) as client:
        with client.stream("hi") as events:
            next(events)
        assert agent.left.wait(DEADLINE_S)
        assert list(events) == []
        assert events.result().state == "working"
        assert agent.asked == ["SendStreamingMessage"]


def test_closing_a_stream_from_another_thread_ends_the_read() -> None:
    def stream(call: Call) -> Events:
        def items() -> Iterator[Any]:
            yield {"task": WORKING}
            call.agent.closing.wait(DEADLINE_S)

        return Events(items())

    with Agent({"SendStreamingMessage": stream}, streaming=True) as agent, A2AClient(agent.url) as client:
        events = client.stream("hi")
        next(events)
        timer = threading.Timer(0.05, events.close)
        timer.start()
        assert list(events) == []
        timer.join()
        assert agent.asked == ["SendStreamingMessage"]
        agent.closing.set()


def test_closing_ends_the_wait_for_the_answer_too() -> None:
    asked = threading.Event()

    def hang(call: Call) -> Any:
        asked.set()
        call.agent.closing.wait(DEADLINE_S)
        return Raw(500)

    with Agent({"SendMessage": hang}) as agent, A2AClient(agent.url) as client:
        events = client.stream("hi")
        thread = threading.Thread(target=lambda: asked.wait(DEADLINE_S) and events.close())
        thread.start()
        assert list(events) == []
        with pytest.raises(A2ACancelled, match="closed before"):
            events.result()
        thread.join()
        agent.closing.set()


def test_a_stream_that_is_forgotten_frees_its_connection() -> None:
    with Agent({"SendStreamingMessage": heartbeats}, streaming=True) as agent, A2AClient(agent.url) as client:
        for _ in range(5):
            client.stream("never read")
        assert agent.seen == []
        events = client.stream("hi")
        next(events)
        gone = weakref.ref(events)
        del events
        assert gone() is None, "held in a circle"
        assert agent.left.wait(DEADLINE_S)


def test_what_a_callback_raises_is_passed_on_and_leaves_the_task_alone() -> None:
    def stop(event: Any) -> None:
        raise ZeroDivisionError

    with Agent({"SendMessage": always({"task": WORKING})}) as agent:
        with pytest.raises(ZeroDivisionError):
            ask(agent, on_update=stop)
        assert agent.asked == ["SendMessage"]


def test_ctrl_c_cancels_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(self: Any, seconds: float) -> None:
        raise KeyboardInterrupt

    methods = {"SendMessage": always({"task": WORKING}), "CancelTask": always(task_v1("CANCELED"))}
    monkeypatch.setattr(Allowance, "pause", interrupt)
    with Agent(methods) as agent:
        with pytest.raises(KeyboardInterrupt):
            ask(agent)
        assert agent.asked == ["SendMessage", "CancelTask"]


# ------------------------------------------------------------------------------------------- asking back


def test_a_question_is_returned_and_answered() -> None:
    with Agent({"SendMessage": in_turn({"task": ASKING}, {"task": DONE})}) as agent, A2AClient(agent.url) as client:
        reply = client.send("book a flight")
        assert (reply.needs_input, reply.state, reply.text) == (True, "input-required", "Which one?")
        assert reply.task_id is not None
        final = client.send("that one", task_id=reply.task_id, context_id=reply.context_id)
        assert (final.needs_input, final.text) == (False, "done")
        message = agent.calls[1]["params"]["message"]
        assert (message["taskId"], message["contextId"]) == ("t-1", "c-1")
        assert message["messageId"] != agent.calls[0]["params"]["message"]["messageId"]


@pytest.mark.parametrize("streaming", [False, True])
def test_the_old_question_is_not_taken_for_the_answer(streaming: bool) -> None:
    again = Events([{"task": ASKING}, update_v1("WORKING"), {"task": DONE}])
    methods = {
        "SendMessage": always({"task": ASKING}),
        "SendStreamingMessage": in_turn(Events([{"task": ASKING}]), again),
        "GetTask": in_turn(ASKING, ASKING, WORKING, DONE),
    }
    with Agent(methods, streaming=streaming) as agent, A2AClient(agent.url) as client:
        reply = client.send("book a flight")
        assert reply.needs_input
        assert client.send("that one", task_id=reply.task_id).text == "done"
        assert agent.asked.count("GetTask") == (0 if streaming else 4)


def test_a_stream_with_nothing_but_the_old_question_is_followed_by_asking() -> None:
    methods = {
        "SendStreamingMessage": always(Events([{"task": ASKING}])),
        "GetTask": in_turn(ASKING, DONE),
    }
    with Agent(methods, streaming=True) as agent, A2AClient(agent.url) as client:
        assert client.send("book a flight").needs_input
        assert client.send("that one", task_id="t-1").text == "done"


def test_a_question_that_was_asked_for_is_known_too() -> None:
    methods = {"SendMessage": always({"task": ASKING}), "GetTask": in_turn(ASKING, ASKING, DONE)}
    with Agent(methods) as agent, A2AClient(agent.url) as client:
        assert client.get_task("t-1").state == "input-required"
        assert client.send("that one", task_id="t-1").text == "done"


def test_a_new_question_is_believed() -> None:
    second = task_v1("INPUT_REQUIRED", "And when?", "q-2")
    with Agent({"SendMessage": in_turn({"task": ASKING}, {"task": second})}) as agent, A2AClient(agent.url) as client:
        client.send("book a flight")
        assert client.send("that one", task_id="t-1").text == "And when?"
        assert agent.asked == ["SendMessage", "SendMessage"]


def test_a_question_that_stays_is_believed_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_module, "STALE_PATIENCE_S", 0.05)
    methods = {"SendMessage": always({"task": ASKING}), "GetTask": always(ASKING)}
    with Agent(methods) as agent, A2AClient(agent.url) as client:
        client.send("book a flight")
        assert client.send("that one", task_id="t-1").needs_input


SAID = Message("q-1", "agent", (TextPart("Which one?"),))
ANEW = Message("q-2", "agent", (TextPart("And when?"),))


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        (TaskStatus("input-required", SAID, "1"), TaskStatus("input-required", SAID, "1"), True),
        (TaskStatus("input-required", SAID, "1"), TaskStatus("input-required", SAID, "2"), True),
        (TaskStatus("input-required", SAID), TaskStatus("input-required", ANEW), False),
        (TaskStatus("input-required", SAID, "1"), TaskStatus("input-required", None, "1"), True),
        (TaskStatus("input-required", SAID), TaskStatus("input-required"), True),
        (TaskStatus("input-required", None, "1"), TaskStatus("input-required", None, "1"), True),
        (TaskStatus("input-required", None, "1"), TaskStatus("input-required", None, "2"), False),
        (TaskStatus("input-required"), TaskStatus("input-required"), False),
        (TaskStatus("input-required", None, "1"), TaskStatus("input-required", SAID, "1"), False),
        (TaskStatus("input-required", SAID, "1"), TaskStatus("auth-required", SAID, "1"), False),
    ],
)
def test_a_question_is_told_from_the_one_before(old: TaskStatus, new: TaskStatus, same: bool) -> None:
    assert is_same_question(old, new) is same


def test_what_agents_asked_is_not_kept_without_bounds() -> None:
    questions = Questions(max_tasks=2)
    for name in "abc":
        questions.note(Task(name, status=TaskStatus("input-required", SAID)))
    assert [questions.of(name) is not None for name in "abc"] == [False, True, True]
    questions.note(Task("c", status=TaskStatus("completed")))
    assert questions.of("c") is None


# ------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize("state", ["FAILED", "REJECTED", "CANCELED", "AUTH_REQUIRED"])
@pytest.mark.parametrize("streaming", [False, True])
def test_a_task_without_success_keeps_what_there_is(state: str, streaming: bool) -> None:
    artifact = {"artifactId": "a", "parts": [{"text": "half"}]}
    answer = {"task": task_v1(state, "disk full", artifacts=[artifact])}
    methods = {"SendMessage": always(answer), "SendStreamingMessage": always(Events([answer]))}
    with Agent(methods, streaming=streaming) as agent:
        with pytest.raises(A2ATaskError, match="disk full") as caught:
            ask(agent)
        error = caught.value
        word = state.lower().replace("_", "-")
        assert (error.state, error.text, error.task_id, error.context_id) == (word, "disk full", "t-1", "c-1")
        assert error.code == f"task_{state.lower()}"
        assert error.reply.task is not None
        assert error.reply.task.artifacts[0].text == "half"
        copy = pickle.loads(pickle.dumps(error))
        assert (copy.state, copy.reply, str(copy)) == (error.state, error.reply, str(error))


def test_a_task_that_failed_without_a_word_is_told_by_its_state() -> None:
    words = r"A2A agent 'Test agent' \(http.*\): task t-1 ended as failed$"
    with Agent({"SendMessage": always({"task": task_v1("FAILED")})}) as agent, pytest.raises(A2ATaskError, match=words):
        ask(agent)


DETAILS = [
    {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "INVALID_PARAMS", "domain": "a2a-protocol.org"},
    {
        "@type": "type.googleapis.com/google.rpc.BadRequest",
        "fieldViolations": [{"field": "message", "description": "Field is required."}],
    },
]


@pytest.mark.parametrize(
    ("message", "ends"),
    [
        ("Invalid: message: Field is required.", "INVALID_PARAMS: Invalid: message: Field is required."),
        ("Field is required.", "INVALID_PARAMS: Field is required. (message: Field is required.)"),
    ],
)
def test_a_json_rpc_error_says_nothing_twice(message: str, ends: str) -> None:
    with Agent({"SendMessage": always(Fail(-32602, message, DETAILS))}, streaming=False) as agent:
        with pytest.raises(A2ARequestError) as caught:
            ask(agent)
        assert str(caught.value).endswith(ends)


@pytest.mark.parametrize("wrap", [lambda fail: fail, lambda fail: Events([fail])])
@pytest.mark.parametrize("streaming", [False, True])
def test_a_json_rpc_error_is_typed(wrap: Any, streaming: bool) -> None:
    answer = always(wrap(Fail(-32602, "Validation failed", DETAILS)))
    with Agent({"SendMessage": answer, "SendStreamingMessage": answer}, streaming=streaming) as agent:
        with pytest.raises(A2ARequestError) as caught:
            ask(agent)
        error = caught.value
        assert (error.rpc_code, error.reason, error.code) == (-32602, "INVALID_PARAMS", "invalid_params")
        assert error.violations == (("message", "Field is required."),)
        assert (error.agent_message, error.data) == ("Validation failed", DETAILS)
        assert "Validation failed (message: Field is required.)" in str(error)
        assert pickle.loads(pickle.dumps(error)).violations == error.violations


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (Raw(401, b'{"error": {"message": "expired"}}', {"WWW-Authenticate": "Bearer"}), A2AAuthError, "expired"),
        (Raw(403, b"no"), A2AAuthError, "403"),
        (Raw(401, b'{"jsonrpc": "2.0", "error": {"code": -1, "message": "who?"}}'), A2AAuthError, "who?"),
        (Raw(503, b"<html><title>Down</title>", {"Content-Type": "text/html"}), A2AStatusError, "503"),
        (Raw(404, b"{}"), A2AStatusError, "404"),
        (Raw(400, b'{"jsonrpc": "2.0", "error": {"code": -32600, "message": "bad"}}'), A2ARequestError, "bad"),
        (Raw(200, b"<html>", {"Content-Type": "text/html"}), A2AProtocolError, "not JSON (text/html)"),
        (Raw(200, b""), A2AProtocolError, "not JSON"),
        (Raw(200, b"[]"), A2AProtocolError, "not a JSON-RPC response"),
        (Raw(200, b'{"jsonrpc": "2.0", "id": "1"}'), A2AProtocolError, "not a JSON-RPC response"),
        ({"something": 1}, A2AProtocolError, "neither a task nor a message"),
        ({"task": {"status": {}}}, A2AProtocolError, "result.task.id is required"),
        ({"task": {"id": "t", "status": {"state": 3}}}, A2AProtocolError, "result.task.status.state must be a string"),
        (
            Raw(302, headers={"Location": "https://x.example/y?token=1"}),
            A2AProtocolError,
            "to https://x.example, which",
        ),
        (Raw(307, headers={"Location": "http://127.0.0.2/rpc"}), A2AProtocolError, "to http://127.0.0.2, which is not"),
        (Events([b"event: error\ndata: overloaded\n\n"]), A2AProtocolError, "overloaded"),
        (Events([b'event: error\ndata: {"message": "limit"}\n\n']), A2ARequestError, "limit"),
    ],
)
def test_every_answer_that_is_none_has_its_error(streaming: bool, answer: Any, kind: type, words: str) -> None:
    methods = {"SendMessage": always(answer), "SendStreamingMessage": always(answer)}
    with Agent(methods, streaming=streaming) as agent:
        client = A2AClient(agent.url, headers={"X-Key": "secret"}, max_retries=0)
        with client, pytest.raises(A2AError) as caught:
            client.send("hi")
        error = caught.value
        assert type(error) is kind
        assert words in str(error)
        assert str(error).startswith("A2A agent 'Test agent'")
        assert "secret" not in str(error)
        assert "token" not in str(error)
        if isinstance(answer, Raw) and answer.status != 200:
            assert error.status == answer.status
        assert str(pickle.loads(pickle.dumps(error))) == str(error)
        assert len(agent.asked) == 1


def test_a_redirect_within_the_origin_keeps_method_and_body() -> None:
    with Agent({"SendMessage": always({"message": message_v1("moved")})}) as agent:
        agent.pages["POST /rpc"] = Raw(307, headers={"Location": "/v2/rpc"})
        assert ask(agent).text == "moved"
        first, second = agent.seen[-2:]
        assert (first.path, second.path) == ("/rpc", "/v2/rpc")
        assert first.body == second.body


def test_a_send_whose_fate_is_unknown_is_not_repeated() -> None:
    def drop(call: Call) -> Any:
        raise ConnectionResetError

    with Agent({"SendMessage": drop}) as agent:
        with pytest.raises(A2AConnectionError, match="broke before the answer") as caught:
            ask(agent)
        assert isinstance(caught.value, MantyxNetworkError)
        assert caught.value.sent is None
        assert agent.asked == ["SendMessage"]


def test_what_was_surely_not_carried_out_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mantyx_sync.a2a.client.connection.random.random", lambda: 0.0)
    busy = Raw(503, b"", {"Retry-After": "0"})
    with Agent({"SendMessage": in_turn(busy, Raw(429), {"message": message_v1("ok")})}) as agent:
        assert ask(agent).text == "ok"
        ids = {call["params"]["message"]["messageId"] for call in agent.calls}
        assert (len(agent.asked), len(ids)) == (3, 1)


def test_an_endpoint_that_is_not_there_was_not_reached() -> None:
    with Agent() as agent:
        card = card_v1(agent.url + "/rpc")
    with A2AClient(card=card, max_retries=0) as client, pytest.raises(A2AConnectionError) as caught:
        client.send("hi")
    assert caught.value.sent is False


def test_an_answer_that_is_too_large_is_not_read() -> None:
    agent = Agent({"SendMessage": always({"message": message_v1("x" * 5000)})})
    client = A2AClient(agent.url, max_message_bytes=2000)
    with agent, client, pytest.raises(A2AProtocolError, match="larger than"):
        client.send("hi")


# ------------------------------------------------------------------------------------------- tasks


def test_a_task_can_be_asked_for_and_cancelled() -> None:
    methods = {"GetTask": always(WORKING), "CancelTask": always(task_v1("CANCELED"))}
    with Agent(methods) as agent, A2AClient(agent.url) as client:
        assert client.get_task("t-1", history_length=0).state == "working"
        assert client.cancel_task("t-1").state == "canceled"
        assert [call["params"] for call in agent.calls] == [{"id": "t-1", "historyLength": 0}, {"id": "t-1"}]


def test_no_more_of_the_history_is_returned_than_was_asked_for() -> None:
    history = [message_v1(str(n)) for n in range(3)]
    with Agent({"GetTask": always(task_v1("WORKING", history=history))}) as agent, A2AClient(agent.url) as client:
        for length, texts in ((0, []), (2, ["1", "2"]), (5, ["0", "1", "2"]), (None, ["0", "1", "2"])):
            assert [item.text for item in client.get_task("t-1", history_length=length).history] == texts


@pytest.mark.parametrize(
    ("code", "reason"), [(-32001, "TASK_NOT_FOUND"), (-32002, "TASK_NOT_CANCELABLE"), (-32004, "UNSUPPORTED_OPERATION")]
)
def test_a_task_that_cannot_be_cancelled_has_a_reason(code: int, reason: str) -> None:
    with Agent({"tasks/cancel": always(Fail(code, "no"))}, version="0.3") as agent, A2AClient(agent.url) as client:
        with pytest.raises(A2ARequestError) as caught:
            client.cancel_task("t-1")
        assert (caught.value.rpc_code, caught.value.reason, caught.value.method) == (code, reason, "tasks/cancel")


def test_a_task_that_is_none_is_a_protocol_error() -> None:
    with Agent({"GetTask": in_turn({"message": message_v1("x")}, {"id": 3})}) as agent, A2AClient(agent.url) as client:
        for _ in range(2):
            with pytest.raises(A2AProtocolError, match="does not follow the protocol"):
                client.get_task("t-1")


def test_the_extended_card_can_be_asked_for() -> None:
    with Agent({"GetExtendedAgentCard": always(card_v1("/rpc", more=1))}) as agent, A2AClient(agent.url) as client:
        assert client.get_extended_card().raw["more"] == 1


def resubscribed(agent: Agent, **options: Any) -> list[Any]:
    with A2AClient(agent.url) as client:
        return [event.state for event in client.resubscribe("t-1", **options) if isinstance(event, Task)]


def test_a_task_is_followed_again_while_it_runs() -> None:
    events = [
        b'id: 7\ndata: {"jsonrpc":"2.0","result":{"task":' + json.dumps(WORKING).encode() + b"}}\n\n",
        {"task": DONE},
    ]
    with Agent({"SubscribeToTask": always(Events(events))}, streaming=True) as agent, A2AClient(agent.url) as client:
        stream = client.resubscribe("t-1", last_event_id="3")
        assert stream.reply().text == "done"
        assert stream.last_event_id == "7"
        assert agent.calls[0]["params"] == {"id": "t-1"}
        assert agent.headers_of("SubscribeToTask")["Last-Event-ID"] == "3"


@pytest.mark.parametrize("answer", [Fail(-32004), Fail(-32601), Fail(-32602), Events([Fail(-32004)])])
def test_a_task_that_is_over_is_asked_for(answer: Any) -> None:
    with Agent({"SubscribeToTask": always(answer), "GetTask": always(DONE)}, streaming=True) as agent:
        assert resubscribed(agent) == ["completed"]


def test_a_task_of_an_agent_that_does_not_stream_is_asked_for() -> None:
    with Agent({"GetTask": in_turn(WORKING, DONE)}) as agent:
        assert resubscribed(agent) == ["working", "completed"]
        assert agent.asked == ["GetTask", "GetTask"]


def test_a_subscription_that_breaks_at_once_is_followed_by_asking() -> None:
    with Agent({"SubscribeToTask": always(Events([])), "GetTask": always(DONE)}, streaming=True) as agent:
        assert resubscribed(agent) == ["completed"]


def test_a_watcher_does_not_cancel_what_it_watches() -> None:
    with Agent({"GetTask": always(WORKING)}) as agent:
        with pytest.raises(A2ATimeoutError, match="it may go on"):
            resubscribed(agent, timeout=0.1)
        assert "CancelTask" not in agent.asked


def test_a_task_nobody_knows_cannot_be_followed() -> None:
    unknown = always(Fail(-32001, "Task not found"))
    for streaming in (False, True):
        agent = Agent({"SubscribeToTask": unknown, "GetTask": unknown}, streaming=streaming)
        with agent, pytest.raises(A2ARequestError, match="TASK_NOT_FOUND"):
            resubscribed(agent)


# ------------------------------------------------------------------------------------------- habits


def test_many_threads_share_a_client() -> None:
    def echo(call: Call) -> Any:
        return {"message": message_v1(call.params["message"]["parts"][0]["text"])}

    replies: list[tuple[str, str]] = []
    with Agent({"SendMessage": echo}) as agent, A2AClient(agent.url) as client:

        def work(name: str) -> None:
            for i in range(5):
                replies.append((f"{name}-{i}", client.send(f"{name}-{i}").text))

        threads = [threading.Thread(target=work, args=(str(n),)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_S)
    assert len(replies) == 40
    assert all(sent == text for sent, text in replies)


def test_connections_are_used_again() -> None:
    ports = set()

    def note(call: Call) -> Any:
        ports.add(threading.get_ident())  # a connection has a thread of the server to itself
        return {"message": message_v1("ok")}

    with Agent({"SendMessage": note}) as agent, A2AClient(agent.url) as client:
        for _ in range(5):
            client.send("hi")
    assert len(ports) == 1


def test_netrc_and_cookies_are_not_used(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login wrong password wrong\ndefault login wrong password wrong\n")
    monkeypatch.setenv("NETRC", str(netrc))
    cookie = Raw(200, json.dumps({"result": {"message": message_v1("ok")}}).encode(), {"Set-Cookie": "a=b"})
    with Agent({"SendMessage": always(cookie)}) as agent:
        with A2AClient(agent.url, headers={"Authorization": "Bearer mine"}) as client:
            client.send("hi")
            client.send("hi")
        assert {seen.headers["Authorization"] for seen in agent.seen} == {"Bearer mine"}
        with A2AClient(agent.url) as client:
            client.send("hi")
        assert not any("Authorization" in seen.headers for seen in agent.seen[-3:])
        assert not any("Cookie" in seen.headers for seen in agent.seen)


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({}, "Basic " + base64.b64encode(b"user:word").decode()),
        ({"headers": {"Authorization": "Bearer mine"}}, "Bearer mine"),
        ({"auth": HTTPBasicAuth("a", "b")}, "Basic " + base64.b64encode(b"a:b").decode()),
    ],
    ids=["nothing else", "a header", "an auth object"],
)
def test_a_sessions_auth_counts_where_no_other_credential_is_given(given: Any, sent: str) -> None:
    said = {"SendMessage": always({"message": message_v1("ok")})}
    with Agent(said) as agent, requests.Session() as session:
        session.auth = ("user", "word")
        with A2AClient(agent.url, session=session, **given) as client:
            client.send("hi")
        assert {seen.headers["Authorization"] for seen in agent.seen} == {sent}
        session.auth = 7  # type: ignore[assignment]
        if not given:
            with pytest.raises(MantyxConfigError, match=r"session\.auth: got int, must be a \(user, password\) tuple"):
                A2AClient(agent.url, session=session)


@pytest.mark.parametrize("way", ["of the client", "of the call"])
def test_no_limit_is_none_for_a_client_and_infinity_for_a_call(way: str) -> None:
    said = {"SendMessage": always({"message": message_v1("ok")})}
    with Agent(said) as agent, A2AClient(agent.url, timeout=None if way == "of the client" else 0.001) as client:
        assert client.send("hi", timeout=None if way == "of the client" else math.inf).text


METHODS = {
    "open": lambda client: client.open(),
    "card": lambda client: client.card,
    "refresh_card": lambda client: client.refresh_card(),
    "get_extended_card": lambda client: client.get_extended_card(),
    "send": lambda client: client.send("hi"),
    "stream": lambda client: client.stream("hi"),
    "resubscribe": lambda client: client.resubscribe("t"),
    "get_task": lambda client: client.get_task("t"),
    "cancel_task": lambda client: client.cancel_task("t"),
}


@pytest.mark.parametrize("method", METHODS)
def test_a_closed_client_refuses_whatever_it_is_asked(method: str) -> None:
    with Agent() as agent:
        client = A2AClient(agent.url)
        client.close()
        client.close()
        with pytest.raises(A2AError, match="the client was closed: make another one") as caught:
            METHODS[method](client)
        assert caught.value.code == "closed"
        assert agent.seen == []


def test_an_auth_object_signs_each_request() -> None:
    def sign(request: Any) -> Any:
        request.headers["X-Signed"] = request.method
        return request

    with Agent({"SendMessage": always({"message": message_v1("ok")})}) as agent:
        with A2AClient(agent.url, auth=sign) as client:  # type: ignore[arg-type]  # any callable will do
            client.send("hi")
        assert [seen.headers["X-Signed"] for seen in agent.seen][-1] == "POST"


def test_a_key_is_shown_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    key = "k3y-marker"
    agent = Agent({"SendMessage": always(Raw(500, b"oops")), "GetTask": always(WORKING)})
    client = A2AClient(agent.url + "/?token=" + key, headers={"Authorization": f"Bearer {key}"})
    with agent, client:
        seen = [repr(client), repr(client._access), repr([vars(item) for item in client._access._transports.values()])]
        with pytest.raises(A2AError) as caught:
            client.send("say " + key)
        error: Any = caught.value
        seen += [str(error), repr(error), repr(vars(error))]
        frame: Any = error.__traceback__
        while frame is not None:
            names = {k: v for k, v in frame.tb_frame.f_locals.items() if k not in ("key", "content", "seen", "agent")}
            if frame.tb_frame.f_code.co_name != "test_a_key_is_shown_nowhere":
                seen.append(repr({k: v for k, v in names.items() if "header" in k or k in ("self", "opened", "error")}))
            frame = frame.tb_next
        client.get_task("t-1")
        seen.append(repr(client.stream("say " + key)))
    seen += [record.getMessage() for record in caplog.records if record.name.startswith("mantyx_sync")]
    assert len(seen) > 8
    assert not [text for text in seen if key in text]


def test_a_client_works_in_the_child_of_a_fork() -> None:
    if not hasattr(os, "fork"):
        pytest.skip("no fork here")
    with Agent({"SendMessage": always({"message": message_v1("ok")})}) as agent, A2AClient(agent.url) as client:
        client.send("hi")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of a fork while there are threads
            pid = os.fork()
        if pid == 0:
            code = 1
            try:
                code = 0 if client.send("hi").text == "ok" else 2
            finally:
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        assert status == 0
        assert client.send("hi").text == "ok"
        assert agent.asked == ["SendMessage"] * 3
