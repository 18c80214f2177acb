"""Requests that are opened: any status is an answer, its body is read piece by piece, its connection serves again."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from mantyx_sync.errors import MantyxNetworkError, MantyxProtocolError, MantyxTimeoutError
from mantyx_sync.transport.answers import Opened
from mantyx_sync.transport.body import Release
from mantyx_sync.transport.cutoff import CutOff
from mantyx_sync.transport.http import HttpTransport

from .wire import Peer, Script, WireServer, chunk, head, stream_head, transport, unused_port

pytestmark = pytest.mark.usefixtures("no_leaks")


def open_at(client: HttpTransport, path: str = "/rpc", release: Release | None = None, **options: Any) -> Opened:
    settings: dict[str, Any] = {"headers": {}, "connect_timeout": 10.0, "read_timeout": 10.0}
    settings.update(options)
    return client.open("POST", client.base.join(path), data=b"{}", release=release or Release(), **settings)


def serving(count: int, *parts: bytes) -> Script:
    """Answer so many requests on one connection with the same bytes."""

    def script(peer: Peer) -> None:
        for _ in range(count):
            peer.request()
            peer.send(*parts)
        peer.stay()

    return script


FRAMINGS = {
    "a length": (head(content_type="application/json", content_length=8), b'{"a": 1}'),
    "chunks": (head(content_type="application/json", transfer_encoding="chunked"), chunk(b'{"a": 1}'), b"0\r\n\r\n"),
}


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("how", ["read_all", "read"])
def test_a_connection_whose_body_was_read_to_its_end_serves_the_next_request(framing: str, how: str) -> None:
    with WireServer(serving(3, *FRAMINGS[framing])) as server:
        client = transport(server.url)
        for _ in range(3):
            answer = open_at(client)
            if how == "read_all":
                body = answer.read_all(100)
            else:
                body = b"".join(iter(answer.read, b""))
                answer.close()
            assert body == b'{"a": 1}'
        client.close()
    assert [request.connection for request in server.requests] == [0, 0, 0]


def test_a_connection_whose_body_was_not_read_to_its_end_serves_nobody() -> None:
    def unfinished(peer: Peer) -> None:
        peer.request()
        peer.send(stream_head(), chunk(b"data: 1\n\n"))
        peer.stay()

    with WireServer(unfinished, serving(1, *FRAMINGS["a length"])) as server:
        client = transport(server.url)
        answer = open_at(client)
        assert answer.read() == b"data: 1\n\n"
        answer.close()
        assert open_at(client).read_all(100) == b'{"a": 1}'
        client.close()
    assert [request.connection for request in server.requests] == [0, 1]


@pytest.mark.parametrize("status", [202, 307, 404, 503])
def test_any_status_is_an_answer(status: int) -> None:
    parts = (head(status, content_type="Text/Plain; charset=x", content_length=2, location="http://127.0.0.2/"), b"no")
    with WireServer(serving(1, *parts)) as server:
        client = transport(server.url)
        answer = open_at(client)
        assert (answer.status, answer.media_type, answer.headers["LOCATION"]) == (
            status,
            "text/plain",
            "http://127.0.0.2/",
        )
        assert answer.read_all(2) == b"no"
        client.close()


def test_the_query_travels_and_is_in_no_message() -> None:
    with WireServer(serving(1, head(content_length=3), b"abc")) as server:
        client = transport(server.url)
        url = client.base.site + "/rpc?key=hidden"
        answer = client.open("GET", url, headers={}, connect_timeout=5, read_timeout=5, release=Release())
        with pytest.raises(MantyxProtocolError, match="larger than 2 bytes") as caught:
            answer.read_all(2)
        client.close()
    assert server.requests[0].target == "/rpc?key=hidden"
    assert "hidden" not in str(caught.value) + repr(answer)


def test_a_url_of_another_origin_is_refused_before_anything_is_sent() -> None:
    client = transport(f"http://127.0.0.1:{unused_port()}")
    with pytest.raises(MantyxProtocolError, match="another origin"):
        client.open("GET", "http://127.0.0.2/", headers={}, connect_timeout=5, read_timeout=5, release=Release())
    client.close()


def test_a_refused_connection_was_not_sent() -> None:
    client = transport(f"http://127.0.0.1:{unused_port()}")
    with pytest.raises(MantyxNetworkError) as caught:
        open_at(client)
    assert caught.value.sent is False
    client.close()


CUT = {
    "the head": (b"HTTP/1.1 200 OK\r\nContent-Ty",),
    "a body of known length": (head(content_length=10), b"half"),
    "a chunked body": (head(transfer_encoding="chunked"), b"5\r\nhal"),
}


@pytest.mark.parametrize("what", CUT)
def test_an_answer_cut_in_the_middle_is_a_network_error_and_may_have_been_sent(what: str) -> None:
    def script(peer: Peer) -> None:
        peer.request()
        peer.send(*CUT[what])

    with WireServer(script) as server:
        client = transport(server.url)
        with pytest.raises(MantyxNetworkError) as caught:
            open_at(client).read_all(100)
        client.close()
    assert caught.value.sent is None


def test_silence_is_a_time_out() -> None:
    def half(peer: Peer) -> None:
        peer.request()
        peer.send(head(content_length=10), b"half")
        peer.stay()

    with WireServer(half) as server:
        client = transport(server.url)
        with pytest.raises(MantyxTimeoutError):
            open_at(client, read_timeout=0.1).read_all(100)
        client.close()


@pytest.mark.parametrize("is_answered", [False, True])
def test_a_deadline_ends_the_wait_although_bytes_trickle_in(is_answered: bool) -> None:
    stop = threading.Event()

    def pings(peer: Peer) -> None:
        peer.request()
        if is_answered:
            peer.send(stream_head())
        while not stop.wait(0.02):
            peer.send(chunk(b": ping\n\n") if is_answered else b"")

    with WireServer(pings) as server:
        client = transport(server.url)
        with CutOff(time.monotonic() + 0.2) as cut_off, pytest.raises(MantyxNetworkError):
            open_at(client, release=cut_off.release).read_all(1_000_000)
        assert cut_off.release.called
        stop.set()
        client.close()
