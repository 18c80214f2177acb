"""Bodies of streams: handed on when they arrive, in any coding, and released from any thread at any time."""

from __future__ import annotations

import contextlib
import io
import itertools
import math
import select
import socket
import ssl
import threading
import time
import zlib
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest
import requests
import urllib3
from requests.adapters import BaseAdapter, HTTPAdapter

from mantyx_sync.errors import MantyxError, MantyxNetworkError, MantyxProtocolError, MantyxServerError
from mantyx_sync.transport.body import Body, BodyBroken, BodyIdle, Release
from mantyx_sync.transport.http import HttpTransport
from tests.waiting import wait_until

from .wire import (
    DEADLINE_S,
    Peer,
    Script,
    WireServer,
    answer,
    chunk,
    gzipped,
    head,
    refuse,
    silent_port,
    stream_head,
    transport,
)

pytestmark = pytest.mark.usefixtures("no_leaks")

PIECES = [b"data: 1\n\n", "data: é😀\n\n".encode(), b"data: " + b"x" * 100_000 + b"\n\n", b": hb\n\n"]


def opened(client: HttpTransport, release: Release | None = None, idle: float = 10.0, connect: float = 10.0) -> Body:
    return client.open_stream(
        client.base.join("/events"),
        headers={},
        connect_timeout=connect,
        idle_timeout=idle,
        release=release or Release(),
    )


@contextlib.contextmanager
def stream(script: Script, *, idle: float = 10.0, release: Release | None = None) -> Iterator[Body]:
    with WireServer(script) as server:
        client = transport(server.url)
        body = opened(client, release, idle)
        try:
            yield body
        finally:
            body.close()
            client.close()


def read_all(body: Body) -> bytes:
    return b"".join(iter(body.read, b""))


def read_size(body: Body, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = body.read()
        assert piece, "the body ended early"
        data += piece
    return data


def deflated(*pieces: bytes, wbits: int) -> list[bytes]:
    compressor = zlib.compressobj(wbits=wbits)
    parts = [compressor.compress(piece) + compressor.flush(zlib.Z_SYNC_FLUSH) for piece in pieces]
    return [*parts, compressor.flush()]


def coded(coding: str) -> tuple[list[bytes], dict[str, str]]:
    if coding == "plain":
        return [*PIECES, b""], {}
    if coding == "gzip":
        return gzipped(*PIECES), {"content_encoding": "gzip"}
    if coding == "gzip members":
        members = [b"".join(gzipped(piece)) for piece in PIECES]
        return [*members, b"\0\0\0"], {"content_encoding": "x-gzip"}
    wbits = zlib.MAX_WBITS if coding == "deflate" else -zlib.MAX_WBITS
    return deflated(*PIECES, wbits=wbits), {"content_encoding": "deflate"}


def sender(framing: str, coding: str, went_on: list[threading.Event]) -> Script:
    """Send each piece when the client has read the one before."""
    parts, headers = coded(coding)

    def script(peer: Peer) -> None:
        peer.request()
        if framing == "chunked":
            peer.send(stream_head(**headers))
        elif framing == "length":
            length = sum(map(len, parts))
            peer.send(head(content_type="text/event-stream", content_length=length, **headers))
        else:
            peer.send(head(content_type="text/event-stream", **headers))
        for part, event in zip(parts, [*went_on, threading.Event()]):
            peer.send(chunk(part) if framing == "chunked" and part else part)
            if event in went_on:
                peer.wait(event)
        if framing == "chunked":
            peer.send(b"0\r\n\r\n")
            peer.stay()
        elif framing == "length":
            peer.stay()

    return script


CODINGS = ["plain", "gzip", "gzip members", "deflate", "raw deflate"]


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("piece_bytes", [1, 3, 64])
def test_what_expands_is_handed_on_a_little_at_a_time(
    monkeypatch: pytest.MonkeyPatch, piece_bytes: int, coding: str
) -> None:
    monkeypatch.setattr("mantyx_sync.transport.body.MAX_PIECE_BYTES", piece_bytes)
    parts, headers = coded(coding)

    def script(peer: Peer) -> None:
        peer.request()
        peer.send(stream_head(**headers) + b"".join(chunk(part) for part in parts if part) + b"0\r\n\r\n")
        peer.stay()

    with WireServer(script) as server:
        body = opened(transport(server.url))
        pieces = list(iter(body.read, b""))
        body.close()
    assert b"".join(pieces) == b"".join(PIECES)
    assert coding == "plain" or max(map(len, pieces)) <= piece_bytes


@pytest.mark.parametrize("session", ["ours", "yours"])
@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("framing", ["chunked", "length", "close"])
def test_what_the_server_sent_is_read_before_it_sends_more(framing: str, coding: str, session: str) -> None:
    went_on = [threading.Event() for _ in PIECES]
    with WireServer(sender(framing, coding, went_on)) as server, requests.Session() as given:
        client = transport(server.url, session=given if session == "yours" else None)
        body = opened(client)
        for piece, event in zip(PIECES, went_on):
            assert read_size(body, len(piece)) == piece
            event.set()
        assert read_all(body) == b""
        body.close()
        client.close()


@pytest.mark.parametrize("coding", CODINGS)
def test_bodies_that_come_byte_by_byte_are_read_the_same(coding: str) -> None:
    parts, headers = coded(coding)

    def script(peer: Peer) -> None:
        peer.request()
        peer.send(stream_head(**headers))
        for byte in b"".join(parts)[:400]:
            peer.send(chunk(bytes([byte])))
        peer.send(chunk(b"".join(parts)[400:]), b"0\r\n\r\n")

    with stream(script) as body:
        assert read_all(body) == b"".join(PIECES)


@pytest.mark.parametrize(
    ("sent", "end"),
    [
        (stream_head() + b"5\r\nhel", "finish"),
        (stream_head() + b"5\r\nhello\r\n", "finish"),
        (stream_head() + b"5\r\nhello\r\n0\r\n", "finish"),
        (stream_head() + b"5\r\nhello\r\n", "reset"),
        (stream_head() + b"hello\r\n", "stay"),
        (head(content_type="text/event-stream", content_length=10) + b"hello", "finish"),
        (head(content_type="text/event-stream", content_length=10) + b"hello", "reset"),
        (head(content_type="text/event-stream") + b"hello", "reset"),
        (stream_head(content_encoding="gzip") + chunk(b"this is not gzip"), "stay"),
        (stream_head(content_encoding="deflate") + chunk(b"\xff\xff\xff\xff"), "stay"),
        (stream_head(content_encoding="gzip") + chunk(gzipped(b"hello")[0][:-3] + b"\xff" * 9), "stay"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_body_that_breaks_off_or_is_damaged_is_told_as_broken(sent: bytes, end: str) -> None:
    def script(peer: Peer) -> None:
        peer.request()
        peer.send(sent)
        getattr(peer, end)()

    with stream(script) as body, pytest.raises(BodyBroken):
        read_all(body)


def test_the_end_of_the_connection_ends_a_body_without_length() -> None:
    def script(peer: Peer) -> None:
        peer.request()
        peer.send(head(content_type="text/event-stream"), b"hello")

    with stream(script) as body:
        assert read_all(body) == b"hello"
        assert body.read() == b""


@pytest.mark.parametrize("coding", ["plain", "gzip"])
@pytest.mark.parametrize("framing", ["chunked", "length", "until close"])
def test_polling_hands_on_what_there_is_and_tells_when_there_is_nothing(framing: str, coding: str, either: Any) -> None:
    parts, _ = coded(coding)
    went_on = [threading.Event() for _ in parts[1:]]
    with WireServer(sender(framing, coding, went_on), tls=either) as server:
        client = transport(server.url)
        body = opened(client)
        try:
            found = b""
            for size, event in zip(itertools.accumulate(map(len, PIECES)), went_on):
                while len(found) < size:
                    found += body.poll(DEADLINE_S) or b"nothing came"
                is_complete = framing == "length" and coding == "plain" and found == b"".join(PIECES)
                assert body.poll(0.02) == (b"" if is_complete else None)
                event.set()
            assert found + b"".join(iter(lambda: body.poll(DEADLINE_S), b"")) == b"".join(PIECES)  # type: ignore[arg-type]
            assert body.poll(0.01) == b""
        finally:
            body.close()
            client.close()


def test_what_expands_is_handed_on_without_a_wait_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mantyx_sync.transport.body.MAX_PIECE_BYTES", 1000)
    parts, headers = coded("gzip")

    def script(peer: Peer) -> None:
        peer.request()
        peer.send(stream_head(**headers) + b"".join(map(chunk, parts)))
        peer.stay()

    with stream(script, idle=0.2) as body:
        found = b""
        while len(found) < sum(map(len, PIECES)):
            piece = body.poll(DEADLINE_S)
            assert piece
            assert len(piece) <= 1000
            found += piece
        assert found == b"".join(PIECES)


@pytest.mark.parametrize("piece", [b"a\r\nda", b"a", b"a\r\n"])
@pytest.mark.parametrize("with_head", [True, False])
def test_half_of_something_does_not_hold_who_polls(with_head: bool, piece: bytes) -> None:
    go = threading.Event()
    whole = chunk(b"data: 1\n\n\n")

    def script(peer: Peer) -> None:
        peer.request()
        peer.send(stream_head() + (piece if with_head else b""), b"" if with_head else piece)
        peer.wait(go)
        peer.send(whole[len(piece) :])
        peer.stay()

    with stream(script) as body:
        polled = [body.poll(0.02) for _ in range(3)]
        assert b"".join(data or b"" for data in polled) in (b"", b"da")
        assert polled[-1] is None
        go.set()
        rest = b""
        while not rest.endswith(b"\n\n\n"):
            rest += body.poll(DEADLINE_S) or b"nothing came"
        assert not rest.startswith(b"nothing")


def test_what_arrived_with_the_head_is_not_waited_for(either: Any) -> None:
    def script(peer: Peer) -> None:
        peer.request()
        peer.send(stream_head() + chunk(b"data: 1\n\n"))
        peer.stay()

    with WireServer(script, tls=either) as server:
        client = transport(server.url)
        body = opened(client)
        try:
            assert body.poll(DEADLINE_S) == b"data: 1\n\n"
            assert body.poll(0.02) is None
            assert body._socket.gettimeout() == 10.0, "a read has to wait as before"
        finally:
            body.close()
            client.close()


def test_what_comes_while_nobody_looks_is_no_silence() -> None:
    went_on = threading.Event()
    with stream(sender("chunked", "plain", [went_on, threading.Event()]), idle=0.1) as body:
        assert body.poll(DEADLINE_S) == PIECES[0]
        assert body.poll(0.01) is None
        went_on.set()
        assert select.select([body._socket], [], [], DEADLINE_S)[0]
        looked = time.monotonic()
        wait_until(lambda: time.monotonic() > looked + 0.15, "the time-out is over")  # whoever polls did other things
        looked = time.monotonic()
        assert body.poll(0.01) == PIECES[1]
        with pytest.raises(BodyIdle):
            list(iter(lambda: body.poll(0.01), b""))
        assert time.monotonic() - looked >= 0.1


def test_half_of_what_was_encrypted_together_does_not_hold_who_polls(tls: ssl.SSLContext) -> None:
    go = threading.Event()
    big = b"x" * 12_000  # more than is buffered at a time

    def script(peer: Peer) -> None:
        inward, outward = ssl.MemoryBIO(), ssl.MemoryBIO()
        secure = tls.wrap_bio(inward, outward, server_side=True)

        def carry_out(step: Callable[[], Any]) -> None:
            while True:
                try:
                    step()
                    return
                except ssl.SSLWantReadError:
                    peer.send(outward.read())
                    inward.write(peer.read_some())

        carry_out(secure.do_handshake)
        carry_out(secure.read)
        secure.write(stream_head() + chunk(PIECES[0]))
        peer.send(outward.read())
        secure.write(chunk(big))
        record = outward.read()
        peer.send(record[:10])
        peer.wait(go)
        peer.send(record[10:])
        peer.stay()

    with WireServer(script) as server:
        client = transport(server.url.replace("http:", "https:"))
        body = opened(client, idle=0.3)
        try:
            assert body.poll(DEADLINE_S) == PIECES[0]
            assert [body.poll(0.02) for _ in range(3)] == [None] * 3
            go.set()
            found = b""
            while len(found) < len(big):
                found += body.poll(DEADLINE_S) or b"nothing came"
            assert found == big
            with pytest.raises(BodyIdle):
                list(iter(lambda: body.poll(0.05), b""))
        finally:
            body.close()
            client.close()


def test_silence_counts_while_it_is_waited_for_in_small_pieces() -> None:
    with stream(sender("chunked", "plain", [threading.Event()]), idle=0.2) as body:
        read_size(body, len(PIECES[0]))
        began = time.monotonic()
        with pytest.raises(BodyIdle, match=r"no byte arrived for 0\.2 s"):
            list(iter(lambda: body.poll(0.03), b""))
        assert 0.15 < time.monotonic() - began < 2.0
    with stream(sender("chunked", "plain", [threading.Event()]), idle=0.1) as body:
        read_size(body, len(PIECES[0]))
        began = time.monotonic()
        with pytest.raises(BodyIdle):
            body.poll(DEADLINE_S)
        assert time.monotonic() - began < DEADLINE_S / 2


def test_a_release_ends_polling() -> None:
    release = Release()
    with stream(sender("chunked", "plain", [threading.Event()]), release=release) as body:
        read_size(body, len(PIECES[0]))
        releaser = threading.Timer(0.05, release)
        releaser.start()
        began = time.monotonic()
        with pytest.raises(BodyBroken, match="released"):
            body.poll(math.inf)
        assert time.monotonic() - began < DEADLINE_S / 2
        releaser.join()


@pytest.mark.parametrize("framing", ["chunked", "length", "close"])
def test_silence_is_told_as_idle(framing: str) -> None:
    with stream(sender(framing, "plain", [threading.Event()]), idle=0.15) as body:
        assert read_size(body, len(PIECES[0])) == PIECES[0]
        started = time.monotonic()
        with pytest.raises(BodyIdle, match=r"no byte arrived for 0\.15 s"):
            body.read()
        assert 0.1 < time.monotonic() - started < 2


def test_each_byte_starts_the_idle_time_over() -> None:
    def script(peer: Peer) -> None:
        peer.request()
        peer.send(stream_head())
        for _ in range(6):
            threading.Event().wait(0.25)  # the pace of a server, not a wait for something
            peer.send(chunk(b":\n\n"))
        peer.send(b"0\r\n\r\n")

    with stream(script, idle=1.0) as body:
        assert read_all(body) == b":\n\n" * 6


def test_a_coding_that_was_not_asked_for_is_a_protocol_error() -> None:
    def script(peer: Peer) -> None:
        assert peer.request().headers["accept-encoding"] == "identity"
        peer.send(stream_head(content_encoding="br"), chunk(b"x"))
        peer.stay()

    with WireServer(script) as server:
        client = transport(server.url)
        with pytest.raises(MantyxProtocolError, match="Content-Encoding 'br'"):
            opened(client)
        client.close()


# --- release


def released_while(action: Callable[[Release], object], release: Release, blocked: Callable[[], object]) -> Any:
    """Run `action` on a thread, release it when `blocked()` is true, and return what it returned or raised."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append(action(release))
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    wait_until(blocked, "the client never got that far")
    started = time.monotonic()
    release()
    assert time.monotonic() - started < 0.5
    thread.join(DEADLINE_S)
    assert not thread.is_alive(), "release() did not end the wait"
    assert time.monotonic() - started < 1.0
    return outcome[0]


def tls_context(authority: Any) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


@pytest.fixture
def tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """The server's side of TLS with a certificate that this test trusts by REQUESTS_CA_BUNDLE."""
    trustme = pytest.importorskip("trustme")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "ca.pem"))
    return tls_context(authority)


@pytest.fixture(params=["plain", "tls"])
def either(request: pytest.FixtureRequest) -> ssl.SSLContext | None:
    return request.getfixturevalue("tls") if request.param == "tls" else None


@pytest.mark.parametrize("framing", ["chunked", "length", "close"])
def test_release_ends_a_read_at_once(framing: str, either: ssl.SSLContext | None) -> None:
    with WireServer(sender(framing, "plain", [threading.Event()]), tls=either) as server:
        client = transport(server.url)
        release = Release()
        body = opened(client, release)
        assert read_size(body, len(PIECES[0])) == PIECES[0]
        error = released_while(lambda _: body.read(), release, lambda: True)
        assert isinstance(error, BodyBroken)
        assert "released" in str(error)
        with pytest.raises(BodyBroken):
            body.read()
        body.close()
        client.close()


@pytest.mark.parametrize("session", ["ours", "yours"])
@pytest.mark.parametrize("pooled", [False, True], ids=["new connection", "pooled connection"])
def test_release_ends_the_wait_for_headers_at_once(either: ssl.SSLContext | None, session: str, pooled: bool) -> None:
    def script(peer: Peer) -> None:
        if pooled:
            peer.request()
            peer.send(head(content_length=0))
        peer.request()
        peer.stay()

    with WireServer(script, tls=either) as server, requests.Session() as given:
        client = transport(server.url, session=given if session == "yours" else None)
        if pooled:
            client.request("GET", "/first")
        error = released_while(
            lambda release: opened(client, release), Release(), lambda: len(server.requests) == 1 + pooled
        )
        assert isinstance(error, MantyxNetworkError)
        assert server.connections == 1
        client.close()


def test_release_ends_the_wait_for_the_body_of_an_error() -> None:
    sent = threading.Event()

    def script(peer: Peer) -> None:
        peer.request()
        peer.send(head(503, content_type="text/html"), b"<html>")
        sent.set()
        peer.stay()

    with WireServer(script) as server:
        client = transport(server.url)
        error = released_while(lambda release: opened(client, release), Release(), sent.is_set)
        assert isinstance(error, MantyxError)
        client.close()


def test_a_release_before_the_request_ends_it(either: ssl.SSLContext | None) -> None:
    def script(peer: Peer) -> None:
        peer.request()
        peer.stay()

    with WireServer(script, tls=either) as server:
        client = transport(server.url)
        release = Release()
        release()
        started = time.monotonic()
        with pytest.raises(MantyxNetworkError):
            opened(client, release)
        assert time.monotonic() - started < 2
        client.close()


def test_a_release_while_connecting_ends_it_by_the_connect_timeout() -> None:
    with silent_port() as port:
        client = transport(f"http://127.0.0.1:{port}")
        release = Release()
        threading.Timer(0.05, release).start()
        started = time.monotonic()
        with pytest.raises(MantyxNetworkError) as caught:
            opened(client, release, connect=0.3)
        assert caught.value.sent is False
        assert time.monotonic() - started < 1.5
        client.close()


def test_a_release_does_not_disturb_a_later_request_on_the_same_connection() -> None:
    asked, released = threading.Event(), threading.Event()

    def script(peer: Peer) -> None:
        peer.request()
        peer.send(head(503, content_length=2, content_type="text/plain"), b"no")
        peer.request()
        asked.set()
        peer.wait(released)
        peer.send(head(content_length=2), b"{}")

    with WireServer(script) as server:
        client = transport(server.url)
        release = Release()
        with pytest.raises(MantyxServerError):
            opened(client, release)

        def release_in_between() -> None:
            asked.wait(DEADLINE_S)
            release()
            released.set()

        thread = threading.Thread(target=release_in_between)
        thread.start()
        assert client.request("POST", "/results", body={}).status == 200
        thread.join()
        assert server.connections == 1
        client.close()


def test_closing_a_body_closes_its_connection_at_once() -> None:
    left = threading.Event()

    def script(peer: Peer) -> None:
        peer.request()
        peer.send(stream_head(), chunk(b"data: 1\n\n"))
        peer.stay()
        left.set()

    with stream(script) as body:
        body.read()
        body.close()
        assert left.wait(2)


def test_streams_that_are_left_early_leave_no_socket_behind() -> None:
    def script(peer: Peer) -> None:
        peer.request()
        peer.send(stream_head(), chunk(b"data: 1\n\n"))
        peer.stay()

    with WireServer(script) as server:
        client = transport(server.url)
        for _ in range(50):
            body = opened(client)
            assert body.read() == b"data: 1\n\n"
            body.close()
        wait_until(lambda: not server.open_connections, "connections stay open")
        client.close()


def test_a_certificate_that_is_not_trusted_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trustme = pytest.importorskip("trustme")
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "other.pem"))
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "other.pem"))
    with WireServer(answer(), tls=tls_context(trustme.CA())) as server:
        client = transport(server.url)
        with pytest.raises(MantyxNetworkError, match="SSLCertVerificationError") as caught:
            client.request("GET", "/certificates")
        assert caught.value.sent is False
        assert server.connections == 1, "it was tried again, which cannot help"
        client.close()


def test_connections_probe_whether_their_peer_is_there(either: ssl.SSLContext | None) -> None:
    with WireServer(answer(content_type="text/event-stream"), tls=either) as server:
        client = transport(server.url)
        release = Release()
        body = opened(client, release)
        sock = release._socket
        assert isinstance(sock, socket.socket)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        if hasattr(socket, "TCP_KEEPIDLE"):
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) <= 60
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        body.close()
        client.close()


# --- adapters that are not urllib3's


class Canned(BaseAdapter):
    """Answers without any socket, as mocking packages do."""

    def __init__(self, raw: Any, status: int = 200, **headers: str) -> None:
        super().__init__()
        self._raw, self._status, self._headers = raw, status, headers

    def send(self, request: requests.PreparedRequest, **_: Any) -> requests.Response:  # type: ignore[override]
        response = requests.Response()
        response.status_code = self._status
        response.headers["Content-Type"] = "text/event-stream"
        response.headers.update({name.replace("_", "-"): value for name, value in self._headers.items()})
        response.raw = self._raw
        response.request = request
        response.url = request.url or ""
        return response

    def close(self) -> None:
        pass


def canned(raw: Any, **headers: Any) -> HttpTransport:
    session = requests.Session()
    session.mount("http://", Canned(raw, **headers))
    return transport("http://canned.example", session=session)


def library_response(raw: Any, **headers: str) -> urllib3.HTTPResponse:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return urllib3.HTTPResponse(body=raw, headers=named, preload_content=False)


@pytest.mark.parametrize("kind", ["plain file", "library", "library, gzip"])
def test_bodies_of_other_adapters_are_read_to_their_end(kind: str) -> None:
    content = b"".join(PIECES) * 3
    if kind == "plain file":
        client = canned(io.BytesIO(content))
    elif kind == "library":
        client = canned(library_response(io.BytesIO(content)))
    else:
        packed = io.BytesIO(b"".join(gzipped(content)))
        client = canned(library_response(packed, content_encoding="gzip"), Content_Encoding="gzip")
    body = opened(client)
    assert read_all(body) == content
    body.close()


class Failing(io.RawIOBase):
    def __init__(self, error: Exception) -> None:
        self._error = error

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, **_: Any) -> bytes:
        if size == 0:
            return b""
        raise self._error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (urllib3.exceptions.ProtocolError("gone"), BodyBroken),
        (urllib3.exceptions.DecodeError("bad"), BodyBroken),
        (urllib3.exceptions.ReadTimeoutError(None, "/", "slow"), BodyIdle),  # type: ignore[arg-type]
        (ConnectionResetError("reset"), BodyBroken),
        (socket.timeout("timed out"), BodyIdle),
        (ssl.SSLError("bad record mac"), BodyBroken),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_failures_of_other_adapters_are_told_in_our_words(error: Exception, kind: type[Exception]) -> None:
    body = opened(canned(Failing(error)))
    with pytest.raises(kind):
        body.read()
    body.close()


def test_the_text_of_an_error_of_other_adapters_is_kept() -> None:
    client = canned(io.BytesIO(b'{"error":"busy","message":"come back later"}'), status=503)
    with pytest.raises(MantyxServerError, match="come back later"):
        opened(client)


def test_refusals_carry_status_and_retry_after() -> None:
    with WireServer(refuse(503, b"<html><title>Down</title></html>", retry_after="7")) as server:
        client = transport(server.url)
        with pytest.raises(MantyxServerError, match="Down") as caught:
            opened(client)
        assert (caught.value.status, caught.value.retry_after) == (503, 7.0)
        client.close()


def test_streams_use_the_adapter_of_the_given_session() -> None:
    class Mine(HTTPAdapter):
        asked = 0

        def send(self, *args: Any, **kwargs: Any) -> requests.Response:
            Mine.asked += 1
            return super().send(*args, **kwargs)

    with WireServer(answer(b"data: 1\n\n", content_type="text/event-stream")) as server, requests.Session() as given:
        given.mount("http://", Mine())
        body = opened(transport(server.url, session=given))
        assert read_all(body) == b"data: 1\n\n"
        body.close()
    assert Mine.asked == 1
