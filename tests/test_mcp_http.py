"""The MCP channel over Streamable HTTP, against a server on raw sockets that plays scripts (mcp-client §4)."""

from __future__ import annotations

import base64
import contextlib
import functools
import gc
import gzip
import json
import logging
import os
import pickle
import re
import signal
import threading
import time
import traceback
import weakref
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any, Callable, Iterator, Mapping, Optional

import pytest
import requests

from mantyx_sync.errors import MantyxAuthError, MantyxConfigError, MantyxError
from mantyx_sync.mcp import McpTimeoutError
from mantyx_sync.mcp.channel import Cancellation, Era, Outgoing, Waiting
from mantyx_sync.mcp.client import McpClient
from mantyx_sync.mcp.errors import (
    McpAuthError,
    McpCancelled,
    McpConnectionError,
    McpProtocolError,
    McpSessionGone,
    McpStatusError,
)
from mantyx_sync.mcp.http import HttpChannel
from tests.waiting import wait_until

from .mcp_http_server import STATELESS, Call, McpWire, text_result
from .wire import DEADLINE_S, WireServer, answer, chunk, head, stream_head, unused_port

pytestmark = pytest.mark.usefixtures("no_leaks", "plain_environment")

VERSION = "2025-11-25"


class Client:
    """The least of a client: it takes what the server sends unasked, and answers `ping` alone."""

    def __init__(self, url: str, **options: Any) -> None:
        self.got: list[Mapping[str, Any]] = []
        self.ids = count(1)
        self.channel = HttpChannel(url, self, **options)
        self.generation: Optional[int] = None

    def received(self, message: Mapping[str, Any], era: Era) -> Optional[Mapping[str, Any]]:
        self.got.append(message)
        if "id" not in message:
            return None
        if message["method"] == "ping":
            return {"jsonrpc": "2.0", "id": message["id"], "result": {}}
        error = {"code": -32601, "message": "Method not found"}
        return {"jsonrpc": "2.0", "id": message["id"], "error": error}

    def open(self) -> Client:
        response = self.channel.exchange(
            Outgoing(self.message("initialize"), Era.HANDSHAKE, may_cancel=False), within(10)
        )
        assert "result" in response, response
        self.generation = self.channel.generation
        note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        self.channel.notify(note, Era.HANDSHAKE, VERSION, None)
        self.channel.opened(Era.HANDSHAKE, VERSION)
        return self

    def message(self, method: str, params: Any = None) -> dict[str, Any]:
        message = {"jsonrpc": "2.0", "id": next(self.ids), "method": method}
        return message if params is None else {**message, "params": params}

    def ask(self, method: str, params: Any = None, waiting: Waiting | None = None) -> Mapping[str, Any]:
        request = Outgoing(self.message(method, params), Era.HANDSHAKE, version=VERSION, generation=self.generation)
        return self.channel.exchange(request, waiting or within(10))

    def call(self, tool: str, waiting: Waiting | None = None) -> str:
        response = self.ask("tools/call", {"name": tool}, waiting)
        return str(response["result"]["content"][0]["text"])

    def stateless(self, method: str, params: Any = None, waiting: Waiting | None = None, **headers: str) -> Any:
        sent = {"Mcp-Method": method, **headers}
        request = Outgoing(self.message(method, params), Era.STATELESS, headers=sent, version=STATELESS)
        return self.channel.exchange(request, waiting or within(10))


def within(seconds: float, **details: Any) -> Waiting:
    return Waiting(time.monotonic() + seconds, **details)


@contextlib.contextmanager
def opened(server: McpWire, **options: Any) -> Iterator[Client]:
    client = Client(server.url + "/mcp", **options)
    with contextlib.closing(client.channel):
        yield client.open()


@contextlib.contextmanager
def unopened(server: WireServer, path: str = "/mcp", **options: Any) -> Iterator[Client]:
    client = Client(server.url + path, **options)
    with contextlib.closing(client.channel):
        yield client


def say(text: str) -> Callable[[Call], None]:
    return lambda call: call.result(text)


def push_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "mantyx-mcp-push"]


def play(*handlers: Callable[[Call], None]) -> Callable[[Call], None]:
    """Return a handler that does something else each time; the last again and again."""
    turn = count()
    return lambda call: handlers[min(next(turn), len(handlers) - 1)](call)


# ---------------------------------------------------------------------------------------- headers


def test_every_request_of_a_session_carries_version_and_session_but_initialize_neither() -> None:
    with McpWire(tools={"t": say("hello")}) as server:
        with opened(server) as client:
            assert client.call("t") == "hello"
            wait_until(lambda: server.of("GET"), "no GET stream was asked for")
        assert [r.method for r in server.requests].count("DELETE") == 1
        assert server.ended == ["session-MARKER-1"]
        issued = "session-MARKER-1"
        expected = {("DELETE", issued), ("GET", issued), ("POST", None), ("POST", issued)}
        assert {(r.method, r.headers.get("mcp-session-id")) for r in server.requests} == expected
        for request in server.requests:
            assert request.target == "/mcp"
            assert request.headers["user-agent"].startswith("mantyx-sync/")


def test_a_server_without_sessions_gets_neither_a_get_nor_a_delete() -> None:
    with McpWire(tools={"t": say("hello")}, keeps_sessions=False) as server:
        with opened(server) as client:
            assert client.call("t") == "hello"
        assert {request.method for request in server.requests} == {"POST"}


def test_the_stateless_era_names_method_and_tool_in_headers_and_never_a_session() -> None:
    def odd(call: Call) -> None:
        call.json(call.response({}), mcp_session_id="never-send-this")

    with McpWire(methods={"tools/call": odd}) as server:
        with unopened(server) as client:
            for _ in range(2):
                extra = {"Mcp-Name": "=?base64?WsO8cmljaA==?=", "Mcp-Param-Region": "eu"}
                client.stateless("tools/call", {"name": "Zürich"}, **extra)
        for request in server.requests:
            assert request.headers["mcp-name"] == "=?base64?WsO8cmljaA==?="
            assert request.headers["mcp-param-region"] == "eu"
            assert request.json()["params"] == {"name": "Zürich"}
        assert len(server.requests) == 2


def test_a_notification_of_the_stateless_era_names_its_method() -> None:
    with McpWire() as server, unopened(server) as client:
        client.channel.notify({"jsonrpc": "2.0", "method": "notifications/x"}, Era.STATELESS, STATELESS, None)
        assert server.notes == [{"jsonrpc": "2.0", "method": "notifications/x"}]


def test_the_session_on_a_refusal_is_not_taken() -> None:
    def refuse(call: Call) -> None:
        error = {"code": -32600, "message": "Bad Request: Missing session ID"}
        call.json({"jsonrpc": "2.0", "id": None, "error": error}, 400, mcp_session_id="dead")

    with McpWire(methods={"server/discover": refuse}, tools={"t": say("hello")}) as server, unopened(server) as client:
        assert client.stateless("server/discover")["error"]["code"] == -32600
        client.open()
        assert client.call("t") == "hello"


def test_headers_of_the_caller_go_along_under_those_of_the_protocol() -> None:
    given = {
        "Authorization": "Bearer tok_MARKER",
        "X-Team": "blue",
        "user-agent": "mine/1",
        "Accept": "text/plain",
        "content-type": "text/plain",
        "Mcp-Session-Id": "mine",
        "MCP-Protocol-Version": "mine",
        "mcp-param-x": "mine",
    }
    with McpWire(tools={"t": say("hello")}) as server:
        with opened(server, headers=given) as client:
            client.call("t")
        for request in server.requests:
            assert request.headers["authorization"] == "Bearer tok_MARKER"
            assert request.headers["x-team"] == "blue"
            assert request.headers["user-agent"] == "mine/1"


@pytest.mark.parametrize("broken", ["has space", "tab\there", "bell\x07", "\xe9t\xe9"])
def test_a_session_id_that_cannot_be_sent_back_is_a_fault(broken: str) -> None:
    def initialize(call: Call) -> None:
        call.json(call.response({"protocolVersion": VERSION}), mcp_session_id=broken)

    fault = pytest.raises(McpProtocolError, match="session id")
    with McpWire(methods={"initialize": initialize}) as server, unopened(server) as client, fault:
        client.open()


# ---------------------------------------------------------------------------------------- answers

NOTE = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}}


def as_stream(data: Callable[[Call], bytes], **headers: object) -> Callable[[Call], None]:
    def handler(call: Call) -> None:
        call.stream(**headers)
        call.raw(data(call))
        call.end()

    return handler


def dumped(call: Call, text: str = "hello") -> str:
    return json.dumps(call.response(text_result(text)))


def as_json(make: Callable[[Call], Any], **headers: object) -> Callable[[Call], None]:
    return lambda call: call.json(make(call), **headers)


def zipped(call: Call) -> None:
    body = gzip.compress(dumped(call).encode())
    call.status(200, body, content_type="application/json", content_encoding="gzip")


def until_close(call: Call) -> None:
    call.peer.send(head(200, content_type="text/event-stream"), f"data: {dumped(call)}\n\n".encode())
    call.peer.finish()


def in_pieces(call: Call) -> None:
    call.stream()
    for byte in f"event: message\r\ndata: {dumped(call)}\r\n\r\n".encode():
        call.raw(bytes([byte]))
    call.end()


def on_two_lines(call: Call) -> bytes:
    return ("data: " + json.dumps(call.response(text_result("hello")), indent=1).replace("\n", "\ndata: ")).encode()


ANSWERS: dict[str, Callable[[Call], None]] = {
    "json": as_json(lambda call: call.response(text_result("hello"))),
    "json with a charset": as_json(
        lambda call: call.response(text_result("hello")), content_type="Application/JSON; charset=utf-8"
    ),
    "json, its id as text": as_json(lambda call: {**call.response(text_result("hello")), "id": str(call.id)}),
    "json, an array of messages": as_json(lambda call: [NOTE, call.response(text_result("hello"))]),
    "json with a byte order mark": lambda call: call.status(
        200, b"\xef\xbb\xbf" + dumped(call).encode(), content_type="application/json"
    ),
    "json in gzip": zipped,
    "stream": as_stream(lambda call: f"event: message\ndata: {dumped(call)}\n\n".encode()),
    "stream without event names": as_stream(lambda call: f"data:{dumped(call)}\n\n".encode()),
    "stream with CRLF": as_stream(lambda call: f"event: message\r\ndata: {dumped(call)}\r\n\r\n".encode()),
    "stream with CR": as_stream(lambda call: f"event: message\rdata: {dumped(call)}\r\r".encode()),
    "stream with a byte order mark": as_stream(lambda call: f"\ufeffdata: {dumped(call)}\n\n".encode()),
    "stream, data on many lines": as_stream(lambda call: on_two_lines(call) + b"\n\n"),
    "stream, byte by byte": in_pieces,
    "stream that ends with the connection": until_close,
    "stream with comments": as_stream(lambda call: f": ping\n\n: ping\n\ndata: {dumped(call)}\n\n".encode()),
    "stream after other messages": as_stream(
        lambda call: f"data: {json.dumps(NOTE)}\n\ndata: {dumped(call)}\n\n".encode()
    ),
    "stream, an array of messages": as_stream(lambda call: f"data: [{json.dumps(NOTE)}, {dumped(call)}]\n\n".encode()),
    "stream after a priming event": as_stream(lambda call: f"id: 1\ndata:\n\nid: 2\ndata: {dumped(call)}\n\n".encode()),
    "stream after events of other kinds": as_stream(
        lambda call: (
            b"event: endpoint\ndata: /x\n\nevent: odd\n"
            + "data: {}\n\ndata: {}\n\n".format(dumped(call, "wrong"), dumped(call)).encode()
        )
    ),
    "stream after rubbish": as_stream(
        lambda call: f'data: <html>\n\ndata: 7\n\ndata: {{"a":\n\ndata: {dumped(call)}\n\n'.encode()
    ),
    "stream after foreign responses": as_stream(
        lambda call: f'data: {{"jsonrpc":"2.0","id":4711,"result":{{}}}}\n\ndata: {dumped(call)}\n\n'.encode()
    ),
}


@pytest.mark.parametrize("handler", ANSWERS.values(), ids=ANSWERS.keys())
def test_an_answer_is_read_in_every_form(handler: Callable[[Call], None]) -> None:
    with McpWire(tools={"t": handler}, keeps_sessions=False) as server, opened(server) as client:
        assert client.call("t") == "hello"
        assert client.call("t") == "hello"
        assert [message for message in client.got if message != NOTE] == []


FAULTS: dict[str, tuple[Callable[[Call], None], str]] = {
    "202": (lambda call: call.status(202), "202"),
    "204": (lambda call: call.peer.send(head(204)), "204"),
    "HTML": (lambda call: call.status(200, b"<html>", content_type="text/html"), "text/html"),
    "no type": (lambda call: call.status(200, b"{}"), "'none'"),
    "JSON that is none": (lambda call: call.status(200, b"{tok", content_type="application/json"), "not JSON"),
    "JSON of depth": (lambda call: call.status(200, b"[" * 10**5, content_type="application/json"), "not JSON"),
    "nothing": (lambda call: call.status(200, b"", content_type="application/json"), "not JSON"),
    "no response": (as_json(lambda call: NOTE), "holds no response"),
    "an empty object": (as_json(lambda call: {}), "holds no response"),
    "another's response": (as_json(lambda call: {"jsonrpc": "2.0", "id": 99, "result": {}}), "holds no response"),
}


@pytest.mark.parametrize(("handler", "told"), FAULTS.values(), ids=FAULTS.keys())
def test_an_answer_that_is_none_is_a_fault_of_the_server(handler: Callable[[Call], None], told: str) -> None:
    with McpWire(tools={"t": handler, "u": say("after")}) as server, opened(server) as client:
        with pytest.raises(McpProtocolError) as caught:
            client.call("t")
        assert told in str(caught.value)
        assert "tools/call" in str(caught.value)
        assert client.call("u") == "after"
        assert len(server.posts("tools/call")) == 2


@pytest.mark.parametrize("status", [200, 400, 404, 413, 500])
def test_a_json_rpc_error_counts_for_more_than_its_status(status: int) -> None:
    def refuse(call: Call) -> None:
        error = {"code": -32020, "message": "Header mismatch", "data": {"a": 1}}
        call.json({"jsonrpc": "2.0", "id": "server-error", "error": error}, status)

    with McpWire(tools={"t": refuse}, keeps_sessions=False) as server, opened(server) as client:
        assert client.ask("tools/call", {"name": "t"})["error"]["data"] == {"a": 1}


@pytest.mark.parametrize(
    ("status", "headers", "retry_after"),
    [
        *((status, {}, None) for status in (400, 406, 413, 421, 500)),
        (429, {"retry_after": 7}, 7.0),
        (503, {"retry_after": 2}, 2.0),
    ],
)
def test_a_status_without_a_json_rpc_error_is_told_with_the_start_of_its_body(
    status: int, headers: dict[str, object], retry_after: float | None
) -> None:
    def refuse(call: Call) -> None:
        call.status(status, b"<h1>too much</h1>" + b"x" * 10_000, content_type="text/html", **headers)

    with McpWire(tools={"t": refuse}) as server, opened(server) as client:
        with pytest.raises(McpStatusError) as caught:
            client.call("t")
        error = caught.value
        assert (error.status, error.retry_after) == (status, retry_after)
        assert f"HTTP {status}: <h1>too much</h1>" in str(error)
        assert len(str(error)) < 400
        assert len(server.posts("tools/call")) == 1


@pytest.mark.parametrize("status", [401, 403])
def test_a_server_that_wants_other_credentials_says_so_and_the_session_goes_on(status: int) -> None:
    def refuse(call: Call) -> None:
        challenge = 'Bearer error="insufficient_scope", scope="files:read"'
        error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32001, "message": "session unauthorized"}}
        call.json(error, status, www_authenticate=challenge)

    with McpWire(tools={"t": play(refuse, say("hello"))}) as server, opened(server) as client:
        with pytest.raises(McpAuthError) as caught:
            client.call("t")
        assert isinstance(caught.value, MantyxAuthError)
        assert caught.value.status == status
        assert caught.value.www_authenticate == 'Bearer error="insufficient_scope", scope="files:read"'
        assert 'scope="files:read"' in str(caught.value)
        assert client.call("t") == "hello"
        assert len(server.sessions) == 1


def test_a_server_that_cannot_be_reached_is_named_and_nothing_was_sent() -> None:
    client = Client(f"http://127.0.0.1:{unused_port()}/mcp?key=MARKER")
    with contextlib.closing(client.channel), pytest.raises(McpConnectionError) as caught:
        client.open()
    assert caught.value.sent is False
    assert "http://127.0.0.1" in str(caught.value)
    assert "MARKER" not in str(caught.value)


@pytest.mark.parametrize(
    "begin",
    [b"", b"HTTP/1.1 200 O", b"HTTP/1.1 200 OK\r\nContent-Type: text/event",
     head(200, content_type="application/json", content_length=10), stream_head()],
    ids=["nothing", "half a status", "half a head", "no body", "no event"],
)  # fmt: skip
@pytest.mark.parametrize("end", ["fin", "reset"])
def test_a_connection_that_breaks_fails_the_call_at_once_and_it_is_not_sent_again(begin: bytes, end: str) -> None:
    def breaks(call: Call) -> None:
        if begin:
            call.peer.send(begin)
        if end == "reset":
            call.peer.reset()
        else:
            call.peer.finish()

    with McpWire(tools={"t": breaks, "u": say("after")}) as server, opened(server) as client:
        with pytest.raises(McpConnectionError) as caught:
            client.call("t")
        assert caught.value.sent is None
        assert client.call("u") == "after"
        assert len(server.posts("tools/call")) == 2


def test_calls_use_their_connection_again_after_a_stream_too() -> None:
    def streamed(call: Call) -> None:
        call.stream()
        call.result("hello")

    with McpWire(tools={"t": streamed, "u": say("hello")}, keeps_sessions=False) as server, opened(server) as client:
        for name in "tutu":
            assert client.call(name) == "hello"
        assert server.connections == 1


def test_a_stream_that_stays_open_behind_the_response_holds_nothing_up() -> None:
    def lasting(call: Call) -> None:
        call.stream()
        call.event(call.response(text_result("hello")))
        call.peer.stay()

    with McpWire(tools={"t": lasting}, keeps_sessions=False) as server, opened(server) as client:
        start = time.monotonic()
        for _ in range(30):
            assert client.call("t") == "hello"
        assert time.monotonic() - start < 1.4  # it is waited for once, not 30 times


# ---------------------------------------------------------------------------------------- sessions


def forgotten(status: int = 404, text: str = "Session not found") -> Callable[[Call], None]:
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": text}}
    return lambda call: call.json(error, status)


@pytest.mark.parametrize(
    ("status", "text"), [(404, "Session not found"), (400, "Bad Request: No valid session ID provided")]
)
def test_a_forgotten_session_is_told_and_initialize_begins_another(status: int, text: str) -> None:
    with McpWire(tools={"t": play(forgotten(status, text), say("hello"))}) as server, opened(server) as client:
        before = client.channel.generation
        with pytest.raises(McpSessionGone) as caught:
            client.call("t")
        assert caught.value.status == status
        assert "not executed" in str(caught.value)
        assert client.channel.generation == before
        # what relies on it is not even sent
        sent = len(server.requests)
        with pytest.raises(McpSessionGone):
            client.call("t")
        with pytest.raises(McpSessionGone):
            client.channel.notify(NOTE, Era.HANDSHAKE, VERSION, None)
        assert len(server.requests) == sent
        client.open()
        assert client.channel.generation > before
        assert client.call("t") == "hello"
        assert [r.headers.get("mcp-session-id") for r in server.posts("tools/call")] == [
            "session-MARKER-1",
            "session-MARKER-2",
        ]


def test_late_word_of_an_old_session_does_not_end_the_new_one() -> None:
    held = threading.Event()

    def late(call: Call) -> None:
        call.peer.wait(held)
        forgotten()(call)

    with McpWire(tools={"late": late, "now": play(forgotten(), say("hello"))}) as server, opened(server) as client:
        with ThreadPoolExecutor() as pool:
            waiting = pool.submit(client.call, "late")
            wait_until(lambda: server.posts("tools/call"), "the call does not go out")
            with pytest.raises(McpSessionGone):
                client.call("now")
            client.open()
            held.set()
            with pytest.raises(McpSessionGone):
                waiting.result(DEADLINE_S)
        assert client.call("now") == "hello"


def test_a_session_that_was_replaced_is_left_and_gets_no_more_calls() -> None:
    with McpWire(tools={"t": say("hello")}, methods={"GET": push_stream()}) as server, opened(server) as client:
        wait_until(lambda: len(server.of("GET")) == 1, "no GET stream was asked for")
        before = client.generation
        client.open()
        wait_until(lambda: len(server.of("GET")) == 2, "no second GET stream was asked for")
        wait_until(lambda: len(push_threads()) == 1, "the first GET stream stays open", 3.0)
        client.generation, sent = before, len(server.requests)
        with pytest.raises(McpSessionGone):
            client.call("t")
        assert len(server.requests) == sent


def test_five_calls_that_lose_their_session_at_once_begin_one_new_session_and_go_out_once_more() -> None:
    together = threading.Barrier(5, timeout=DEADLINE_S)

    def call_of(call: Call) -> None:
        if call.request.headers["mcp-session-id"] == "session-MARKER-1":
            together.wait()
            forgotten()(call)
        else:
            call.result("hello")

    methods = {"tools/list": as_json(lambda call: call.response({"tools": []}))}
    with McpWire(tools={"t": call_of}, methods=methods) as server:
        with McpClient.http(server.url + "/mcp", mode="handshake") as client, ThreadPoolExecutor(5) as pool:
            client.open()
            calls = [pool.submit(client.call_tool, "t") for _ in range(5)]
            assert [call.result(DEADLINE_S).text for call in calls] == ["hello"] * 5
        assert len(server.posts("initialize")) == 2
        assert len(server.posts("tools/call")) == 10
        assert server.ended == ["session-MARKER-2"]


def test_a_session_that_is_lost_again_at_once_fails_the_call() -> None:
    methods = {"tools/list": as_json(lambda call: call.response({"tools": []}))}
    with McpWire(tools={"t": forgotten()}, methods=methods) as server:
        with McpClient.http(server.url + "/mcp", mode="handshake") as client, pytest.raises(McpSessionGone):
            client.call_tool("t")
        assert len(server.posts("initialize")) == 2
        assert len(server.posts("tools/call")) == 2


def test_404_without_a_session_is_an_error_like_others() -> None:
    def absent(call: Call) -> None:
        call.status(404, b"Not Found", content_type="text/plain")

    with McpWire(tools={"t": absent}, keeps_sessions=False) as server, opened(server) as client:
        with pytest.raises(McpStatusError) as caught:
            client.call("t")
        assert caught.value.status == 404


def test_a_400_that_is_not_about_the_session_does_not_end_it() -> None:
    def refuse(call: Call) -> None:
        call.json({"jsonrpc": "2.0", "id": call.id, "error": {"code": -32602, "message": "bad session_name"}}, 400)

    with McpWire(tools={"t": play(refuse, say("hello"))}) as server, opened(server) as client:
        assert client.ask("tools/call", {"name": "t"})["error"]["code"] == -32602
        assert client.call("t") == "hello"


@pytest.mark.parametrize("status", [200, 204, 400, 404, 405, 500])
def test_closing_accepts_whatever_the_server_says_to_delete(status: int) -> None:
    handler = (lambda call: call.status(status)) if status != 204 else (lambda call: call.peer.send(head(204)))
    with McpWire(methods={"DELETE": handler}) as server:
        with opened(server):
            pass
        assert len(server.of("DELETE")) == 1


def test_closing_does_not_wait_for_a_server_that_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mantyx_sync.mcp.http.DELETE_S", 0.1)
    with McpWire(methods={"DELETE": lambda call: call.peer.stay()}) as server:
        with opened(server):
            start = time.monotonic()
        assert time.monotonic() - start < 1.5
        assert len(server.of("DELETE")) == 1


@pytest.mark.parametrize("status", [200, 202, 204, 400, 500])
def test_a_notification_is_handed_over_whatever_the_server_says_but_401(status: int) -> None:
    body = b'{"x": 1}' if status == 200 else b""
    handler = (lambda call: call.status(status, body)) if status != 204 else (lambda call: call.peer.send(head(204)))
    refused = {"notifications/y": lambda call: call.status(401)}
    with McpWire(methods={"notifications/x": handler, **refused}) as server, opened(server) as client:
        client.channel.notify({"jsonrpc": "2.0", "method": "notifications/x"}, Era.HANDSHAKE, VERSION, None)
        with pytest.raises(McpAuthError):
            client.channel.notify({"jsonrpc": "2.0", "method": "notifications/y"}, Era.HANDSHAKE, VERSION, None)


def test_a_notification_that_is_not_taken_in_time_ends_at_its_deadline() -> None:
    methods = {"notifications/x": lambda call: call.peer.stay()}
    note = {"jsonrpc": "2.0", "method": "notifications/x"}
    late = pytest.raises(McpTimeoutError, match="notifications/x")
    with McpWire(methods=methods) as server, opened(server) as client, late:
        client.channel.notify(note, Era.HANDSHAKE, VERSION, time.monotonic() + 0.1)


# ---------------------------------------------------------------------------------------- redirects


@pytest.mark.parametrize("status", [307, 308])
def test_redirects_within_the_origin_are_followed_with_body_and_method(status: int) -> None:
    with McpWire(tools={"t": say("hello")}) as server:
        plain = server._post

        def post(call: Call) -> None:
            if call.request.target == "/mcp":
                call.status(status, location="/mcp/")
            else:
                plain(call)

        server._post = post  # type: ignore[method-assign]
        with opened(server) as client:
            assert client.call("t") == "hello"
        asked_twice = [r.json()["method"] for r in server.of("POST") if r.target == "/mcp"]
        # 308 is for good, 307 is not
        assert asked_twice == (
            ["initialize", "notifications/initialized", "tools/call"] if status == 307 else ["initialize"]
        )


def test_redirects_without_end_are_given_up() -> None:
    redirect = {"initialize": lambda call: call.status(307, location="/mcp?again")}
    with McpWire(methods=redirect) as server, unopened(server) as client:
        with pytest.raises(McpProtocolError, match="more than 3 times"):
            client.open()
        assert len(server.requests) == 4


@pytest.mark.parametrize("status", [300, 301, 302, 303, 304, 307, 308])
def test_other_redirects_are_refused_and_nothing_leaves_the_origin(status: int) -> None:
    with WireServer(answer(b"{}")) as elsewhere:
        target = elsewhere.url.replace("//", "//user:pass_MARKER@") + "/steal?token=MARKER"
        where = "/other" if status in (300, 301, 302, 303, 304) else target
        methods = {"initialize": lambda call: call.peer.send(head(status, content_length=0, location=where))}
        with McpWire(methods=methods) as server, unopened(server, headers={"X-Api-Key": "key_MARKER"}) as client:
            with pytest.raises(McpProtocolError) as caught:
                client.open()
            shown = server.url if where == "/other" else elsewhere.url
            assert f"({status}) to {shown}." in str(caught.value)
            assert "MARKER" not in str(caught.value)
            assert len(server.requests) == 1
        assert elsewhere.connections == 0


# ---------------------------------------------------------------------------------------- what comes unasked


def ping(number: Any = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": "ping"}


def test_requests_inside_an_answer_are_answered_while_it_stays_open() -> None:
    asked = [ping(3), ping("text-id"), {"jsonrpc": "2.0", "id": 0, "method": "roots/list"}]

    def answers(question: Any, note: Any) -> bool:
        return bool(note.get("id") == question["id"])

    def asks(call: Call) -> None:
        call.stream()
        for question in [{**asked[0], "id": call.id}, *asked[1:]]:  # an id of its own that equals ours
            call.event(question)
            call.server.wait_note(functools.partial(answers, question))
        call.event({"jsonrpc": "2.0", "method": "notifications/unheard-of"})
        call.result("hello")

    with McpWire(tools={"t": asks}) as server, opened(server) as client:
        assert client.call("t") == "hello"
        assert [a.get("result", a.get("error", {}).get("code")) for a in server.notes[1:]] == [{}, {}, -32601]
        assert client.got[-1]["method"] == "notifications/unheard-of"


def test_a_request_whose_answer_cannot_be_handed_over_holds_no_call_up() -> None:
    def asks(call: Call) -> None:
        call.stream()
        call.event(ping())
        call.result("hello")

    with McpWire(tools={"t": asks}) as server, opened(server) as client:
        serve = server._post
        server._post = lambda call: call.status(500) if "result" in call.message else serve(call)  # type: ignore[method-assign]
        assert client.call("t") == "hello"


def test_the_stateless_era_sends_no_responses() -> None:
    def asks(call: Call) -> None:
        call.stream()
        call.event(ping())
        call.result("hello")

    with McpWire(tools={"t": asks}) as server, unopened(server) as client:
        assert "result" in client.stateless("tools/call", {"name": "t"})
        assert [message["method"] for message in client.got] == ["ping"]
        assert server.notes == []


def push_stream(*events: Any, then: Callable[[Call], None] = lambda call: call.peer.stay()) -> Callable[[Call], None]:
    def handler(call: Call) -> None:
        call.stream()
        for event in events:
            call.event(event)
        then(call)

    return handler


def test_requests_on_the_get_stream_are_answered_and_a_call_waits_until_it_is_there() -> None:
    there = threading.Event()

    def get(call: Call) -> None:
        threading.Event().wait(0.1)
        there.set()
        call.stream()
        call.peer.wait(asked)
        call.event(ping(41))
        call.peer.stay()

    asked = threading.Event()

    def needs_client(call: Call) -> None:
        assert there.is_set(), "the call was sent before the GET stream was there"
        asked.set()
        call.server.wait_note(lambda note: note.get("id") == 41)
        call.result("hello")

    with McpWire(tools={"t": needs_client}, methods={"GET": get}) as server, opened(server) as client:
        assert client.call("t") == "hello"
        assert server.wait_note(lambda note: note.get("id") == 41)["result"] == {}


@pytest.mark.parametrize(
    "handler",
    [lambda call: call.status(405), lambda call: call.status(404), lambda call: call.status(406),
     lambda call: call.status(200, b"<html>", content_type="text/html"),
     lambda call: call.status(307, location="http://elsewhere.example/")],
    ids=["405", "404", "406", "HTML", "a redirect"],
)  # fmt: skip
def test_a_get_stream_that_is_not_offered_is_asked_for_once(handler: Callable[[Call], None]) -> None:
    with McpWire(tools={"t": say("hello")}, methods={"GET": handler}) as server, opened(server) as client:
        assert client.call("t") == "hello"
        push = client.channel._peer().dealings.session.push  # type: ignore[union-attr]
        push._thread.join(DEADLINE_S)  # type: ignore[union-attr]
        assert not push._thread.is_alive()  # type: ignore[union-attr]
        assert len(server.of("GET")) == 1
        assert client.call("t") == "hello"


def test_a_get_stream_goes_on_where_it_broke_off_and_is_given_up_after_two_failures() -> None:
    def first(call: Call) -> None:
        call.stream()
        call.raw(b"id: 7\nretry: 100\ndata: " + json.dumps(NOTE).encode() + b"\n\n")
        call.end()

    gone = [lambda call: call.peer.finish(), lambda call: call.status(503)]
    with McpWire(methods={"GET": play(first, push_stream(NOTE, then=Call.end), *gone)}) as server:
        with opened(server) as client:
            push = client.channel._peer().dealings.session.push  # type: ignore[union-attr]
            push._thread.join(DEADLINE_S)  # type: ignore[union-attr]
            assert client.got == [NOTE, NOTE]
        assert [request.headers.get("last-event-id") for request in server.of("GET")] == [None, "7", "7", "7"]


def test_the_get_stream_ends_before_the_session_is_ended() -> None:
    gone = threading.Event()

    def get(call: Call) -> None:
        call.stream()
        try:
            call.peer.stay()
        finally:
            gone.set()

    def delete(call: Call) -> None:
        assert gone.wait(DEADLINE_S)
        call.status(200)

    with McpWire(methods={"GET": get, "DELETE": delete}) as server:
        with opened(server):
            wait_until(lambda: server.of("GET"), "no GET stream was asked for")
        assert [r.method for r in server.requests][-1] == "DELETE"
        assert not push_threads()


def test_a_new_session_has_a_get_stream_of_its_own() -> None:
    with McpWire(tools={"t": play(forgotten(), say("hello"))}, methods={"GET": push_stream()}) as server:
        with opened(server) as client:
            with pytest.raises(McpSessionGone):
                client.call("t")
            client.open()
            assert client.call("t") == "hello"
            wait_until(lambda: len(server.of("GET")) == 2, "no second GET stream")
            wait_until(lambda: server.open_connections <= 2, "the first GET stream stays open", 3.0)
        assert [r.headers["mcp-session-id"] for r in server.of("GET")] == ["session-MARKER-1", "session-MARKER-2"]


# ---------------------------------------------------------------------------------------- progress


def test_progress_is_passed_on_in_order_while_the_call_goes_on() -> None:
    seen = threading.Event()
    order: list[float] = []

    def works(call: Call) -> None:
        call.stream()
        call.event(call.progress(0))
        call.peer.wait(seen)
        for number in range(1, 10_000):
            call.peer.send(chunk(f"data: {json.dumps(call.progress(number))}\n\n".encode()))
        call.result("hello")

    def note(params: Mapping[str, Any]) -> None:
        assert threading.current_thread() is threading.main_thread()
        order.append(params["progress"])
        seen.set()

    with McpWire(tools={"t": works}) as server, opened(server) as client:
        assert client.call("t", within(20, on_progress=note)) == "hello"
        assert order == list(range(10_000))
        assert client.got == []  # none of it is for the client


def test_a_progress_callback_may_call_the_server() -> None:
    def works(call: Call) -> None:
        call.stream()
        call.event(call.progress(1))
        call.result("outer")

    heard: list[str] = []
    with McpWire(tools={"t": works, "u": say("inner")}) as server, opened(server) as client:
        assert client.call("t", within(10, on_progress=lambda _: heard.append(client.call("u")))) == "outer"
        assert heard == ["inner"]


def test_progress_that_comes_on_the_get_stream_counts_for_its_call() -> None:
    going, told = threading.Event(), threading.Event()
    token: list[Any] = []

    def get(call: Call) -> None:
        call.stream()
        call.peer.wait(going)
        for number in range(4):  # silence in all is longer than the idle time
            call.event({**call.progress(number), "params": {"progressToken": str(token[0]), "progress": number}})
            threading.Event().wait(0.1)
        told.set()
        call.peer.stay()

    def works(call: Call) -> None:
        token.append(call.id)
        going.set()
        call.peer.wait(told)
        call.result("hello")

    order: list[float] = []
    with McpWire(tools={"t": works}, methods={"GET": get}) as server, opened(server) as client:
        waiting = within(10, idle_timeout=0.3, on_progress=lambda params: order.append(params["progress"]))
        assert client.call("t", waiting) == "hello"
        assert order == [0, 1, 2, 3]


def test_progress_of_nobody_goes_to_the_client() -> None:
    def works(call: Call) -> None:
        call.stream()
        call.event({**call.progress(1), "params": {"progressToken": "other", "progress": 1}})
        call.result("hello")

    with McpWire(tools={"t": works}) as server, opened(server) as client:
        assert client.call("t") == "hello"
        assert [message["method"] for message in client.got] == ["notifications/progress"]


# ---------------------------------------------------------------------------------------- giving up


def chatter(say_more: bytes) -> Callable[[Call], None]:
    """Return a handler that never answers, but sends something every 20 ms."""

    def handler(call: Call) -> None:
        call.stream()
        while not call.server.closing.wait(0.02):
            call.raw(say_more)

    return handler


def progressing(call: Call) -> None:
    call.stream()
    while not call.server.closing.wait(0.02):
        call.event(call.progress(1))


STUCK: dict[str, Callable[[Call], None]] = {
    "silent before the headers": lambda call: call.peer.stay(),
    "silent in the stream": push_stream(),
    "comments": chatter(b": ping\n\n"),
    "progress": progressing,
    "half an answer": lambda call: (
        call.peer.send(head(200, content_type="application/json", content_length=99), b"{"), call.peer.stay(),
    ),  # type: ignore[dict-item, func-returns-value]
    "half a head": lambda call: (call.peer.send(b"HTTP/1.1 200 O"), call.peer.stay()),  # type: ignore[dict-item, func-returns-value]
}  # fmt: skip


@pytest.mark.parametrize("handler", STUCK.values(), ids=STUCK.keys())
def test_a_call_ends_at_its_deadline_and_the_server_is_told_once(handler: Callable[[Call], None]) -> None:
    with McpWire(tools={"t": handler, "u": say("after")}) as server, opened(server) as client:
        start = time.monotonic()
        with pytest.raises(McpTimeoutError) as caught:
            client.call("t", within(0.2))
        assert 0.19 < time.monotonic() - start < 1.0
        assert re.search(r"tools/call: no response after 0\.\d s", str(caught.value))  # a busy machine rounds up
        told = server.wait_note(lambda note: note.get("method") == "notifications/cancelled")
        number = server.posts("tools/call")[0].json()["id"]
        assert told["params"]["requestId"] == number
        assert re.fullmatch(r"timed out after 0\.\d+s", told["params"]["reason"])
        assert client.call("u") == "after"
        assert len(server.posts("notifications/cancelled")) == 1
        assert len(server.posts("tools/call")) == 2


@pytest.mark.parametrize("name", ["comments", "silent in the stream", "silent before the headers"])
def test_a_call_ends_after_its_idle_time_though_comments_come(name: str) -> None:
    with McpWire(tools={"t": STUCK[name]}) as server, opened(server) as client:
        with pytest.raises(McpTimeoutError, match=r"no message for 0\.2 s \(idle_timeout\)"):
            client.call("t", within(30, idle_timeout=0.2))
        server.wait_note(lambda note: note.get("method") == "notifications/cancelled")


def noting(call: Call) -> None:
    call.stream()
    while not call.server.closing.wait(0.02):
        call.event(NOTE)


@pytest.mark.parametrize("handler", [progressing, noting])
def test_messages_extend_the_idle_time_but_not_the_deadline(handler: Callable[[Call], None]) -> None:
    with McpWire(tools={"t": handler}) as server, opened(server) as client:
        start = time.monotonic()
        with pytest.raises(McpTimeoutError, match="no response after"):
            client.call("t", within(0.4, idle_timeout=0.15))
        assert 0.39 < time.monotonic() - start < 1.5


def test_time_that_a_callback_takes_is_not_the_servers_silence() -> None:
    taken = threading.Event()

    def works(call: Call) -> None:
        call.stream()
        call.event(call.progress(1))
        call.peer.wait(taken)
        call.result("hello")

    def note(params: Mapping[str, Any]) -> None:
        threading.Event().wait(0.3)
        taken.set()

    with McpWire(tools={"t": works}) as server, opened(server) as client:
        assert client.call("t", within(10, idle_timeout=0.15, on_progress=note)) == "hello"


def test_opening_is_never_cancelled() -> None:
    with McpWire(methods={"initialize": lambda call: call.peer.stay()}) as server, unopened(server) as client:
        request = Outgoing(client.message("initialize"), Era.HANDSHAKE, may_cancel=False)
        with pytest.raises(McpTimeoutError):
            client.channel.exchange(request, within(0.1))
        client.channel.close()
        assert server.notes == []


def test_the_stateless_era_cancels_by_closing_the_answer() -> None:
    closed = threading.Event()

    def stuck(call: Call) -> None:
        call.stream()
        try:
            call.peer.stay()
        finally:
            closed.set()

    with McpWire(tools={"t": stuck}) as server:
        with unopened(server) as client:
            with pytest.raises(McpTimeoutError):
                client.stateless("tools/call", {"name": "t"}, within(0.1))
            assert closed.wait(DEADLINE_S)
        assert server.notes == []


def test_closing_right_after_a_call_was_given_up_still_tells_the_server_and_before_the_session_ends() -> None:
    with McpWire(tools={"t": STUCK["comments"]}) as server:
        with opened(server) as client, pytest.raises(McpTimeoutError):
            client.call("t", within(0.1))
        told = [r.json()["method"] if r.method == "POST" else r.method for r in server.requests]
        assert told[-2:] == ["notifications/cancelled", "DELETE"]


@pytest.mark.parametrize("era", [Era.HANDSHAKE, Era.STATELESS])
def test_cancelling_ends_a_call_that_is_handing_over_an_answer_to_the_server(era: Era) -> None:
    """Over HTTP in the stateless era nothing is handed over: then it ends in the stream."""
    asked = threading.Event()

    def asks(call: Call) -> None:
        call.stream()
        call.event(ping())
        asked.set()
        call.peer.stay()

    cancellation = Cancellation()

    def cancel(server: McpWire) -> None:
        assert asked.wait(DEADLINE_S)
        if era is Era.HANDSHAKE:
            wait_until(lambda: any("result" in r.json() for r in server.of("POST")), "no answer is handed over")
        cancellation.set()

    with McpWire(tools={"t": asks}) as server, opened(server) as client, ThreadPoolExecutor() as pool:
        serve = server._post
        server._post = lambda call: call.peer.stay() if "result" in call.message else serve(call)  # type: ignore[method-assign]
        pool.submit(cancel, server)
        start = time.monotonic()
        ask = client.ask if era is Era.HANDSHAKE else client.stateless
        with pytest.raises(McpCancelled):
            ask("tools/call", {"name": "t"}, within(20, cancelled=cancellation))
        assert time.monotonic() - start < 2.0


@pytest.mark.parametrize("name", ["silent before the headers", "comments"])
def test_a_call_can_be_cancelled_from_another_thread(name: str) -> None:
    with McpWire(tools={"t": STUCK[name]}) as server, opened(server) as client:
        cancellation = Cancellation()

        def cancel() -> None:
            wait_until(lambda: server.posts("tools/call"), "the call does not go out")
            cancellation.set()

        with ThreadPoolExecutor() as pool:
            pool.submit(cancel)
            with pytest.raises(McpCancelled, match="cancelled; the server may have executed it"):
                client.call("t", within(10, cancelled=cancellation))
        told = server.wait_note(lambda note: note.get("method") == "notifications/cancelled")
        assert told["params"]["reason"] == "cancelled by the caller"


def test_a_call_that_is_cancelled_beforehand_is_not_made() -> None:
    cancellation = Cancellation()
    cancellation.set()
    with McpWire(tools={"t": say("hello")}) as server, opened(server) as client:
        with pytest.raises(McpCancelled):
            client.call("t", within(10, cancelled=cancellation))
        assert client.call("t") == "hello"
        assert len(server.posts("tools/call")) == 1


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="signals go to processes here")
def test_ctrl_c_ends_a_call_and_cancels_it() -> None:
    with McpWire(tools={"t": STUCK["comments"]}) as server, opened(server) as client:
        main = threading.main_thread().ident
        assert main is not None

        def press() -> None:
            wait_until(lambda: server.posts("tools/call"), "the call does not go out")
            signal.pthread_kill(main, signal.SIGINT)

        with ThreadPoolExecutor() as pool:
            pool.submit(press)
            with pytest.raises(KeyboardInterrupt):
                client.call("t")
        server.wait_note(lambda note: note.get("method") == "notifications/cancelled")


def test_closing_ends_calls_that_wait() -> None:
    with McpWire(tools={"t": STUCK["comments"], "u": STUCK["silent before the headers"]}) as server:
        client = Client(server.url + "/mcp").open()
        with ThreadPoolExecutor() as pool:
            calls = [pool.submit(client.call, name) for name in "tutu"]
            wait_until(lambda: len(server.posts("tools/call")) == 4, "the calls do not go out")
            client.channel.close()
            for each in calls:
                with pytest.raises(McpConnectionError, match="closed meanwhile"):
                    each.result(DEADLINE_S)
        client.channel.close()  # twice does no harm
        with pytest.raises(McpConnectionError, match="the client is closed") as caught:
            client.call("t")
        assert caught.value.sent is False
        assert server.posts("notifications/cancelled") == []


# ---------------------------------------------------------------------------------------- resumption


def primed(call: Call, event_id: str, retry_ms: int = 100) -> None:
    call.stream()
    call.raw(f"id: {event_id}\nretry: {retry_ms}\ndata:\n\nevent: message\ndata: half of an ev".encode())
    call.end()


def test_an_answer_goes_on_on_a_get_after_the_pause_the_server_asks_for() -> None:
    asked_at: list[float] = []
    posted: list[int] = []

    def works(call: Call) -> None:
        posted.append(call.message["id"])
        primed(call, "1", 300)
        asked_at.append(time.monotonic())

    def get(call: Call) -> None:
        asked_at.append(time.monotonic())
        call.id = posted[0]
        last = call.request.headers.get("last-event-id")
        if last is None:
            call.peer.stay()
        elif last == "1":  # it may end early again
            primed(call, "2", 100)
        else:
            assert last == "2"
            call.stream()
            call.event(call.progress(1), "3")
            call.result("hello")

    order: list[float] = []
    with McpWire(tools={"t": works}, methods={"GET": get}, keeps_sessions=False) as server, opened(server) as client:
        assert client.call("t", within(10, on_progress=lambda p: order.append(p["progress"]))) == "hello"
        assert order == [1]
        assert len(server.posts("tools/call")) == 1
        assert asked_at[1] - asked_at[0] >= 0.29
        assert asked_at[2] - asked_at[1] < 0.29


@pytest.mark.parametrize("era", [Era.HANDSHAKE, Era.STATELESS])
def test_an_answer_that_ends_early_without_an_id_is_lost_and_not_asked_for_again(era: Era) -> None:
    def works(call: Call) -> None:
        if era is Era.STATELESS:
            primed(call, "1")  # ids mean nothing there
        else:
            call.stream()
            call.event(call.progress(1))
            call.end()

    with McpWire(tools={"t": works}, keeps_sessions=False) as server, opened(server) as client:
        ask = client.ask if era is Era.HANDSHAKE else client.stateless
        with pytest.raises(McpConnectionError, match="ended before the response was there") as caught:
            ask("tools/call", {"name": "t"})
        assert caught.value.sent is None
        assert len(server.posts("tools/call")) == 1
        assert server.of("GET") == []


RESUMED: dict[str, tuple[Callable[[Call], None], int, str]] = {
    "nothing new": (push_stream(then=Call.end), 2, "ended before the response"),
    "no connection": (lambda call: call.peer.finish(), 2, "ended before the response"),
    "busy": (lambda call: call.status(503), 2, "ended before the response"),
    "refused": (lambda call: call.status(405), 1, "does not go on with it (405)"),
    "forgotten": (lambda call: call.status(404), 1, "does not go on with it (404)"),
    "JSON": (lambda call: call.json({}), 1, "does not go on with it (200)"),
}


@pytest.mark.parametrize(("handler", "tries", "told"), RESUMED.values(), ids=RESUMED.keys())
def test_an_answer_that_does_not_go_on_is_given_up(handler: Callable[[Call], None], tries: int, told: str) -> None:
    methods = {"GET": handler}
    tools = {"t": lambda call: primed(call, "1")}
    with McpWire(tools=tools, methods=methods, keeps_sessions=False) as server, opened(server) as client:
        with pytest.raises(McpConnectionError) as caught:
            client.call("t")
        assert told in str(caught.value)
        assert len(server.of("GET")) == tries
        assert len(server.posts("tools/call")) == 1


def test_a_pause_before_going_on_ends_at_the_deadline() -> None:
    tools = {"t": lambda call: primed(call, "1", 60_000)}
    with McpWire(tools=tools, keeps_sessions=False) as server, opened(server) as client:
        start = time.monotonic()
        with pytest.raises(McpTimeoutError):
            client.call("t", within(0.2))
        assert time.monotonic() - start < 1.0
        assert server.of("GET") == []


# ---------------------------------------------------------------------------------------- the transport that is no more


@pytest.mark.parametrize("status", [400, 404, 405])
def test_a_server_of_the_old_transport_is_recognised(status: int) -> None:
    def get(call: Call) -> None:
        call.stream()
        call.raw(b"event: endpoint\ndata: /message?sessionId=1\n\n")
        call.peer.stay()

    methods = {"initialize": lambda call: call.status(status, b"Cannot POST /sse"), "GET": get}
    with McpWire(methods=methods) as server, unopened(server) as client:
        with pytest.raises(McpProtocolError, match=r"speaks HTTP\+SSE, the transport of 2024-11-05") as caught:
            client.open()
        assert "often /mcp" in str(caught.value)


@pytest.mark.parametrize(
    "get",
    [lambda call: call.status(405), lambda call: call.status(200, b"<html>", content_type="text/html"),
     push_stream(NOTE), push_stream(then=Call.end), push_stream()],
    ids=["405", "HTML", "another event", "nothing", "silence"],
)  # fmt: skip
def test_a_server_that_refuses_for_another_reason_is_not_taken_for_one(
    get: Callable[[Call], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mantyx_sync.mcp.http_exchange.RECOGNISE_S", 0.1)
    methods = {"initialize": lambda call: call.status(404, b"no such page"), "GET": get}
    refused = pytest.raises(McpStatusError, match="HTTP 404: no such page; is this the address of its MCP")
    with McpWire(methods=methods) as server, unopened(server) as client, refused:
        client.open()


# ---------------------------------------------------------------------------------------- sizes


@pytest.mark.parametrize("form", ["json", "stream", "endless stream", "endless json"])
def test_an_answer_larger_than_allowed_is_refused_and_the_next_call_works(form: str) -> None:
    def large(call: Call) -> None:
        if form == "json":
            call.result("x" * 5000)
        elif form == "stream":
            call.stream()
            call.result("x" * 5000)
        else:
            kind = "application/json" if form == "endless json" else "text/event-stream"
            call.peer.send(head(200, content_type=kind, transfer_encoding="chunked"))
            while True:
                call.raw(b"data: " + b"x" * 1000)

    server = McpWire(tools={"t": large, "u": say("x" * 3000)})
    with server, opened(server, max_message_bytes=4096) as client:
        with pytest.raises(McpProtocolError, match="larger than 4096 bytes"):
            client.call("t")
        assert client.call("u") == "x" * 3000


@pytest.mark.parametrize("streamed", [False, True])
def test_large_messages_go_both_ways(streamed: bool) -> None:
    def echo(call: Call) -> None:
        if streamed:
            call.stream()
        call.result(call.message["params"]["arguments"])

    text = "é" * 2_000_000
    with McpWire(tools={"t": echo}) as server, opened(server) as client:
        response = client.ask("tools/call", {"name": "t", "arguments": text})
        assert response["result"]["content"][0]["text"] == text


# ---------------------------------------------------------------------------------------- threads, forks, ends


def test_calls_of_many_threads_do_not_hold_each_other_up() -> None:
    together = threading.Barrier(16, timeout=DEADLINE_S)

    def meets(call: Call) -> None:
        together.wait()
        call.stream()
        call.result(f"for {call.message['id']}")

    with McpWire(tools={"t": meets}) as server, opened(server) as client, ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: client.call("t"), range(32)))
        assert sorted(answers) == sorted(f"for {request.json()['id']}" for request in server.posts("tools/call"))
        assert not client.channel._peer().dealings.pending


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_child_of_a_fork_begins_anew_and_leaves_the_parents_session_alone() -> None:
    with McpWire(tools={"t": say("hello")}, methods={"GET": push_stream()}) as server:
        with opened(server) as client:
            assert client.call("t") == "hello"
            generation = client.channel.generation
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    assert client.channel.generation > generation
                    with contextlib.suppress(McpSessionGone):
                        client.call("t")
                        raise AssertionError("the child used the parent's session")
                    client.open()
                    assert client.call("t") == "hello"
                    client.channel.close()
                    code = 0
                except BaseException:
                    traceback.print_exc()
                finally:
                    os._exit(code)
            assert os.waitpid(child, 0)[1] == 0
            assert server.ended == ["session-MARKER-2"]
            assert client.channel.generation == generation
            assert client.call("t") == "hello"
            assert len(server.of("GET")) == 2
        assert server.ended == ["session-MARKER-2", "session-MARKER-1"]


def test_a_channel_that_is_dropped_frees_its_thread_and_its_sockets() -> None:
    with McpWire(tools={"t": say("hello")}, methods={"GET": push_stream()}) as server:
        client = Client(server.url + "/mcp").open()
        assert client.call("t") == "hello"
        channel = weakref.ref(client.channel)
        del client
        gc.collect()
        assert channel() is None
        wait_until(lambda: server.open_connections == 0, "a connection stays open")
        wait_until(
            lambda: not [t for t in threading.enumerate() if t.name.startswith("mantyx-mcp")], "a thread goes on"
        )


def test_an_unused_channel_does_nothing() -> None:
    with McpWire() as server:
        channel = Client(server.url + "/mcp").channel
        channel.opened(Era.HANDSHAKE, VERSION)
        channel.opened(Era.STATELESS, STATELESS)
        channel.close()
        assert server.connections == 0


# ---------------------------------------------------------------------------------------- credentials


def test_no_credential_is_shown_anywhere(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    def breaks(call: Call) -> None:
        call.status(500, b"oops")

    shown: list[str] = []
    tools = {"t": breaks, "u": lambda call: call.peer.finish(), "v": STUCK["comments"], "w": say("secret answer")}
    with McpWire(tools=tools, methods={"GET": push_stream(NOTE)}) as server:
        headers = {"Authorization": "Bearer tok_MARKER", "X-Api-Key": "key_MARKER"}
        with unopened(server, "/mcp?key=MARKER", headers=headers) as client:
            client.open()
            shown += [repr(client.channel), client.channel.label]
            endpoint = client.channel._endpoint
            peer = client.channel._peer()
            for held in (client.channel, endpoint, endpoint._transport, peer, peer.dealings, peer.dealings.session):
                shown.append(repr(vars(held)))
            for name in "tuv":
                try:
                    client.call(name, within(0.2))
                except MantyxError as error:
                    shown += [repr(error), str(error), repr(vars(error)), repr(pickle.loads(pickle.dumps(error)))]
                    trace = traceback.TracebackException.from_exception(error, capture_locals=True)
                    shown += [line for line in trace.format() if "tests/" not in line]
            client.call("w")
        assert {request.target for request in server.requests} == {"/mcp?key=MARKER"}
        server.faults.clear()
    said = "\n".join(shown) + "\n".join(r.getMessage() for r in caplog.records if r.name.startswith("mantyx"))
    assert len(shown) > 10
    assert "MARKER" not in said, [line for line in said.splitlines() if "MARKER" in line][:5]
    assert "secret answer" not in caplog.text


def test_netrc_does_not_replace_the_callers_header(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "netrc"
    file.write_text("machine 127.0.0.1 login netrc password wrong\ndefault login netrc password wrong\n")
    file.chmod(0o600)
    monkeypatch.setenv("NETRC", str(file))
    with McpWire(tools={"t": say("hello")}) as server:
        with opened(server, headers={"Authorization": "Bearer mine"}) as client:
            client.call("t")
        assert {request.headers["authorization"] for request in server.requests} == {"Bearer mine"}
        with opened(server):
            pass
        assert "authorization" not in server.requests[-1].headers


def test_a_session_of_the_callers_lends_its_settings_but_not_its_cookies() -> None:
    with McpWire(tools={"t": say("hello")}) as server, requests.Session() as session:
        session.headers["X-Team"] = "blue"
        session.auth = ("user", "word")
        session.cookies.set("jar", "cookie")
        with opened(server, session=session) as client:
            client.call("t")
        basic = "Basic " + base64.b64encode(b"user:word").decode()
        for request in server.requests:
            assert request.headers["authorization"] == basic
            assert request.headers["x-team"] == "blue"
        with opened(server, session=session, headers={"authorization": "Bearer mine"}):
            pass
        assert server.requests[-1].headers["authorization"] == "Bearer mine"


def test_the_environments_proxy_is_used_but_not_where_no_proxy_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://user:word_MARKER@127.0.0.1:{unused_port()}")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with McpWire(tools={"t": say("hello")}) as server, opened(server) as client:
        assert client.call("t") == "hello"
    client = Client("http://tools.example/mcp")
    with contextlib.closing(client.channel), pytest.raises(McpConnectionError, match="proxy") as caught:
        client.open()
    assert "MARKER" not in str(caught.value)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no URL": ({"url": None}, "url: got None, must be an absolute URL such as https://tools.example/mcp"),
    "a path": ({"url": "/mcp"}, "url: got '/mcp', must be an absolute URL"),
    "another scheme": ({"url": "ftp://host/mcp"}, "url: got 'ftp://host/mcp', must be"),
    "no host": ({"url": "https:///mcp?key=MARKER"}, "url: got 'https:///mcp', must be"),
    "a user": ({"url": "https://user:MARKER@host/mcp"}, "url: got an address with credentials"),
    "a fragment": ({"url": "https://host/mcp#x"}, "url: got 'https://host/mcp' with a fragment, must have none"),
    "headers": ({"headers": ["a"]}, "headers: got list, must be a mapping"),
    "a header's name": ({"headers": {"a b": "x"}}, "headers: got the name 'a b', must be a header name"),
    "a header's value": ({"headers": {"X-Key": "MARKER\nX: y"}}, "headers['X-Key']: got a value that no header can"),
    "a number": ({"headers": {"X-Key": 7}}, "headers['X-Key']: got a value that no header can"),
    "a session": ({"session": object()}, "session: got object, must be an instance of requests.Session"),
    "a time-out": ({"connect_timeout": 0}, "connect_timeout: got 0, must be a number of seconds above 0"),
    "a size": ({"max_message_bytes": 0}, "max_message_bytes: got 0, must be a whole number"),
}


@pytest.mark.parametrize(("given", "told"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_used_is_refused_in_one_sentence(given: dict[str, Any], told: str) -> None:
    with pytest.raises(MantyxConfigError) as caught:
        Client(**{"url": "http://127.0.0.1/mcp", **given})
    assert told in str(caught.value)
    assert "MARKER" not in str(caught.value)


def test_the_server_is_named_without_its_query() -> None:
    assert Client("http://Host.example:8000/mcp/?key=MARKER").channel.label == "MCP server http://Host.example:8000/mcp"


def test_the_server_of_these_tests_finds_fault_with_a_careless_client() -> None:
    server = McpWire()
    try:
        requests.post(server.url, json={"id": 1, "method": "ping"}, timeout=5)
        assert len(server.faults) >= 3
    finally:
        server.close()
