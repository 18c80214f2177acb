"""Servers that break the protocol on purpose, and the worst of moments: limits hold all the same."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any, Dict, List

import pytest

from mantyx_sync.mcp import (
    McpCancelled,
    McpClient,
    McpConnectionError,
    McpError,
    McpLogMessage,
    McpProtocolError,
    McpRequestError,
    McpServerInfo,
    McpTimeoutError,
    http_session,
)
from mantyx_sync.mcp import incoming as incoming_module
from mantyx_sync.mcp import link as link_module
from mantyx_sync.mcp.cancelling import as_cancellation
from mantyx_sync.mcp.channel import Cancellation, Era, Waiting
from mantyx_sync.mcp.incoming import Incoming
from mantyx_sync.mcp.lines import LineDecoder
from mantyx_sync.mcp.messages import Kind, encode, kind_of_message
from mantyx_sync.mcp.names import model_name
from mantyx_sync.mcp.patience import Patience
from mantyx_sync.mcp.process import Grace
from mantyx_sync.mcp.results import McpResult
from mantyx_sync.mcp.sse_messages import SseMessages
from tests.waiting import wait_until

from .mcp_fake import FakeServer
from .mcp_http_server import Call, McpWire
from .mcp_stdio import client_of, text_of

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def calls(log: Path) -> List[Dict[str, Any]]:
    messages = [json.loads(line) for line in log.read_text().splitlines()]
    return [message for message in messages if message["method"] in ("tools/call", "notifications/cancelled")]


# ------------------------------------------------------------------------------------ limits


def test_a_call_whose_event_nobody_can_watch_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(McpError, match="nothing was sent") as caught, as_cancellation(threading.Event()):
        raise AssertionError("it is not made")
    assert caught.value.code == "no_thread"


def test_progress_that_nobody_takes_over_http_fills_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_session, "MAX_KEPT_PROGRESS", 3)
    dealings = http_session.Dealings(0, is_closed=False)
    pending = dealings.pending[7] = http_session.Pending(Patience(Waiting(), dealings.deadlines))
    for i in range(5):
        params = {"progressToken": 7, "progress": i}
        assert dealings.note_progress({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
    assert [params["progress"] for params in pending.progress] == [2, 3, 4]


def test_progress_that_comes_faster_than_it_is_taken_holds_no_call_beyond_its_deadline() -> None:
    with client_of("threads") as client:
        client.list_tools()
        began_at = time.monotonic()
        with pytest.raises(McpTimeoutError):
            # All of it would take a minute.
            client.call_tool(
                "progress",
                {"count": 3000, "ends": False},
                timeout=0.3,
                on_progress=lambda _: threading.Event().wait(0.02),
            )
        assert time.monotonic() - began_at < 2


def test_progress_that_comes_faster_than_it_is_taken_leaves_a_call_cancellable() -> None:
    with client_of("threads") as client:
        cancellation = Cancellation()
        with pytest.raises(McpCancelled):
            client.call_tool(
                "progress",
                {"count": 3000, "ends": False},
                cancelled=cancellation,
                on_progress=lambda progress: cancellation.set() if progress.progress == 3 else None,
            )


@pytest.mark.parametrize("event", [Cancellation, threading.Event])
def test_a_call_to_a_program_that_is_cancelled_beforehand_is_not_made(log: Path, event: Any) -> None:
    with client_of(f"log={log}") as client:
        client.list_tools()
        cancelled = event()
        cancelled.set()
        with pytest.raises(McpCancelled, match="it was not sent"):
            client.call_tool("echo", cancelled=cancelled)
        assert text_of(client, "echo", text="x") == "x"
    assert len(calls(log)) == 1


def test_a_call_to_a_program_whose_time_is_over_is_not_made(log: Path) -> None:
    with client_of(f"log={log}") as client:
        client.list_tools()
        with pytest.raises(McpTimeoutError, match="it was not sent"):
            client.call_tool("echo", timeout=1e-9)
        assert text_of(client, "echo", text="x") == "x"
    assert len(calls(log)) == 1


def test_a_get_stream_that_is_not_answered_holds_calls_up_once_and_none_that_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mantyx_sync.mcp.http_push.ANSWERED_S", 0.3)

    def say(call: Call) -> None:
        call.result("hello")

    wire = McpWire(tools={"t": say}, methods={"GET": lambda call: call.peer.stay()})
    with wire as server, McpClient.http(server.url, mode="handshake") as client:
        client.open()
        cancellation = Cancellation()
        cancellation.set()
        began_at = time.monotonic()
        with pytest.raises(McpCancelled):
            client.call_tool("t", cancelled=cancellation)
        assert time.monotonic() - began_at < 0.25
        for _ in range(5):
            client.call_tool("t")
        assert time.monotonic() - began_at < 1


# ------------------------------------------------------------------------------------ malformed answers


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        ({"error": "boom"}, McpRequestError, "error 0: boom"),
        ({"error": [1]}, McpRequestError, "without a message"),
        ({"error": None}, McpProtocolError, "is null, must be an object"),
        ({}, McpProtocolError, "is null, must be an object"),
        ({"result": 7}, McpProtocolError, "is a number, must be an object"),
    ],
)
def test_a_malformed_answer_fails_its_call_at_once(answer: Dict[str, Any], error: Any, words: str) -> None:
    def reply(call: Call) -> None:
        call.stream()
        call.event({"jsonrpc": "2.0", "id": call.id, **answer})
        call.peer.stay()

    wire = McpWire(tools={"t": reply}, keeps_sessions=False)
    with wire as server, McpClient.http(server.url, mode="handshake", timeout=10) as client:
        client.open()
        began_at = time.monotonic()
        with pytest.raises(error, match=words):
            client.call_tool("t")
        assert time.monotonic() - began_at < 5


@pytest.mark.parametrize("answer", ['{"error": "boom"}', '{"error": null}', "{}", '{"result": 7}'])
def test_a_malformed_answer_of_a_program_is_an_answer(answer: str) -> None:
    members = answer[1:-1]
    line = '{"jsonrpc": "2.0", "id": 7' + (", " if members else "") + members + "}"
    (found,) = LineDecoder(10**6).feed(line.encode() + b"\n")
    assert kind_of_message(found) is Kind.RESPONSE


def test_http_reads_json_as_leniently_as_stdio_does() -> None:
    stream = SseMessages(10**6)
    digits = "7" * 5000
    (message,) = stream.feed(b'data: {"jsonrpc":"2.0","id":1,"result":{"n":' + digits.encode() + b',"t":"a\tb"}}\n\n')
    assert message["result"] == {"n": digits, "t": "a\tb"}


def test_what_a_model_reads_of_structured_content_is_json_whatever_its_numbers() -> None:
    value = json.loads('{"a": 1e999, "b": [-1e999, 1.5], "c": {"d": 1}}')
    result = McpResult.from_wire({"structuredContent": value}, "test")
    assert json.loads(result.text, parse_constant=pytest.fail) == {"a": None, "b": [None, 1.5], "c": {"d": 1}}


# ------------------------------------------------------------------------------------ threads


class NoThread(threading.Thread):
    """A thread that the system does not give out, or that Ctrl-C comes in between."""

    error: BaseException = RuntimeError("can't start new thread")
    really_starts = False

    def start(self) -> None:
        if self.really_starts:
            super().start()
        raise self.error


class Interrupted(NoThread):
    error = KeyboardInterrupt()


class InterruptedLate(Interrupted):
    really_starts = True


@pytest.mark.parametrize(
    ("kind", "error"),
    [(NoThread, McpConnectionError), (Interrupted, KeyboardInterrupt), (InterruptedLate, KeyboardInterrupt)],
)
def test_an_opening_that_cannot_begin_does_not_keep_later_calls_waiting(
    kind: Any, error: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = FakeServer()
    client = server.client()
    with monkeypatch.context() as patch:
        patch.setattr(link_module.threading, "Thread", kind)
        with pytest.raises(error):
            client.open()
    assert client.open(timeout=5).protocol_version
    assert len(server.channels) == 1
    client.close()


def tell(incoming: Incoming) -> None:
    params = {"level": "info", "data": "x"}
    incoming.received({"jsonrpc": "2.0", "method": "notifications/message", "params": params}, Era.HANDSHAKE)


@pytest.mark.parametrize("kind", [NoThread, Interrupted, InterruptedLate])
def test_callbacks_go_on_after_their_thread_could_not_be_started(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: List[McpLogMessage] = []
    incoming = Incoming(on_log=heard.append)
    with monkeypatch.context() as patch:
        patch.setattr(incoming_module.threading, "Thread", kind)
        try:
            tell(incoming)
        except KeyboardInterrupt:
            assert issubclass(kind, Interrupted)
    tell(incoming)
    wait_until(lambda: len(heard) >= 1, "callbacks should run again")
    incoming.close(5)


def test_callbacks_go_on_after_one_that_exits() -> None:
    heard: List[str] = []

    def on_log(line: McpLogMessage) -> None:
        heard.append(str(line.data))
        raise SystemExit(1)

    incoming = Incoming(on_log=on_log)
    tell(incoming)
    wait_until(lambda: len(heard) == 1, "the first should run")
    tell(incoming)
    wait_until(lambda: len(heard) == 2, "the second should run as well")
    incoming.close(5)


def test_roots_may_come_from_an_iterator(tmp_path: Path) -> None:
    def answer(call: Call) -> None:
        call.stream()
        call.event({"jsonrpc": "2.0", "id": 41, "method": "roots/list"})
        call.server.wait_note(lambda note: note.get("id") == 41)
        call.result("hello")

    with McpWire(tools={"t": answer}, keeps_sessions=False) as server:
        roots = (folder for folder in [os.fspath(tmp_path)])
        with McpClient.http(server.url, mode="handshake", roots=roots) as client:
            client.call_tool("t")
        (note,) = [note for note in server.notes if note.get("id") == 41]
    assert [root["uri"] for root in note["result"]["roots"]] == [tmp_path.as_uri()]


def test_what_is_nested_beyond_measure_is_an_error_of_the_package_or_a_note() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    assert "nested too deeply" in McpResult.from_wire({"structuredContent": deep}, "test").text
    with pytest.raises(McpProtocolError, match="nested too deep"):
        encode({"method": "tools/call", "params": {"requestState": deep}})


def test_a_server_without_a_version_has_an_empty_one_on_the_wire() -> None:
    given = {"protocolVersion": "2025-11-25", "serverInfo": {"name": "x", "version": None, "vendor": "y"}}
    server = McpServerInfo.of_handshake(given, "test")
    assert server.to_wire() == {"name": "x", "version": "", "vendor": "y"}


def test_a_server_that_does_not_mind_its_input_is_asked_to_end_before_it_is_killed() -> None:
    client = client_of("ignore-eof", grace=Grace(0.05, 10.0))
    client.open()
    began_at = time.monotonic()
    client.close()
    assert time.monotonic() - began_at < 5


def test_a_shortened_name_stands_for_the_whole_name_with_its_prefix() -> None:
    tool = "x" * 70
    assert model_name(tool, "a_")[-8:] != model_name(tool)[-8:]
    assert model_name("a_" + tool) == model_name(tool, "a_")
