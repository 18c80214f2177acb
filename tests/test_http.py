"""HTTP exchanges over real sockets: what is sent, what is tried again, and what an error tells and hides."""

from __future__ import annotations

import functools
import json
import logging
import os
import pickle
import socket
import ssl
import threading
import time
import traceback
import warnings
from email.utils import formatdate
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest
import requests
from requests.adapters import HTTPAdapter
from urllib3.util.retry import Retry

from mantyx_sync.errors import (
    MantyxAPIError,
    MantyxAuthError,
    MantyxBadRequestError,
    MantyxConfigError,
    MantyxConflictError,
    MantyxError,
    MantyxNetworkError,
    MantyxNotFoundError,
    MantyxProtocolError,
    MantyxRateLimitError,
    MantyxServerError,
    MantyxTimeoutError,
)
from mantyx_sync.transport.answers import Answer
from mantyx_sync.transport.auth import BearerAuth
from mantyx_sync.transport.body import Release
from mantyx_sync.transport.http import HttpTransport, encode_json
from mantyx_sync.transport.retry import Repeat
from tests.waiting import wait_until

from .wire import (
    DEADLINE_S,
    Peer,
    Script,
    WireServer,
    answer,
    chunk,
    head,
    refuse,
    silent_port,
    stream_head,
    transport,
    unused_port,
)

pytestmark = pytest.mark.usefixtures("no_leaks", "plain_environment")


def call(url: str, method: str = "GET", *, retries: int = 2, session: Any = None, **details: Any) -> Answer:
    client = transport(url, retries=retries, session=session)
    try:
        return client.request(method, "/x", **details)
    finally:
        client.close()


def read_stream(client: HttpTransport, url: str | None = None) -> bytes:
    body = client.open_stream(
        url or client.base.join("/events"), headers={}, connect_timeout=5, idle_timeout=5, release=Release()
    )
    try:
        return body.read()
    finally:
        body.close()


def events(peer: Peer) -> None:
    """A script: answer with a stream of one event."""
    peer.request()
    peer.send(stream_head(), chunk(b"data: 1\n\n"), b"0\r\n\r\n")
    peer.stay()


# --- what is sent


def test_a_request_carries_its_body_query_and_headers() -> None:
    with WireServer(answer(b'{"ok":true}', x_request_id="req_1")) as server:
        client = transport(server.url + "/api", headers={"X-App": "mine"})
        got = client.request("POST", "/runs", query={"limit": 5, "cursor": None}, body={"text": "é"})
        assert got.json() == {"ok": True}
        assert got.status == 200
        assert got.headers["x-request-id"] == "req_1"
        client.request("GET", "/runs")
        client.request("DELETE", "/runs")
        client.request("POST", "/raw", body=b"[1]")
        client.close()
        assert server.connections == 1
    post, get, delete, raw = server.requests
    assert (post.method, post.target, post.json()) == ("POST", "/api/runs?limit=5", {"text": "é"})
    assert post.headers["authorization"] == "Bearer tok_MARKER"
    assert post.headers["content-type"] == "application/json"
    assert post.headers["accept"] == "application/json"
    assert post.headers["x-app"] == "mine"
    assert "content-length" not in get.headers
    assert "content-type" not in get.headers
    assert delete.headers["content-length"] == "0"
    assert raw.body == b"[1]"


def test_paths_are_sent_as_they_are_encoded() -> None:
    with WireServer(answer()) as server:
        client = transport(server.url)
        client.request("GET", "/runs/a%2Fb/%2E%2E/c%20d")
        client.close()
    assert server.requests[0].target == "/runs/a%2Fb/%2E%2E/c%20d"


def test_cookies_are_not_kept() -> None:
    with WireServer(answer(set_cookie="sid=1; Path=/")) as server, requests.Session() as given:
        for client in (transport(server.url), transport(server.url, session=given)):
            for _ in range(2):
                client.request("GET", "/")
            client.close()
    assert len(server.requests) == 4
    assert not any("cookie" in request.headers for request in server.requests)


@pytest.mark.parametrize("session", ["ours", "yours"])
@pytest.mark.parametrize("entry", ["machine 127.0.0.1", "default"])
def test_a_netrc_entry_does_not_replace_the_bearer(
    entry: str, session: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text(f"{entry} login someone password else\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    with WireServer(answer(b"data: 1\n\n", content_type="text/event-stream")) as server, requests.Session() as given:
        client = transport(server.url, session=given if session == "yours" else None)
        client.request("GET", "/")
        client.request("POST", "/", body={})
        read_stream(client)
        client.close()
    assert [request.headers["authorization"] for request in server.requests] == ["Bearer tok_MARKER"] * 3


# --- proxies and certificates


@pytest.mark.parametrize("how", ["environment", "session"])
def test_proxies_are_used(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with WireServer(answer()) as proxy, requests.Session() as given:
        address = proxy.url.replace("http://", "http://user:pass@")
        if how == "environment":
            monkeypatch.setenv("HTTP_PROXY", address)
        else:
            given.proxies["http"] = address
        client = transport("http://app.example/api", session=given if how == "session" else None)
        client.request("GET", "/x")
        client.close()
    sent = proxy.requests[0]
    assert sent.target == "http://app.example/api/x"
    assert sent.headers["host"] == "app.example"
    assert sent.headers["proxy-authorization"].startswith("Basic ")
    assert sent.headers["authorization"] == "Bearer tok_MARKER"


def test_streams_go_through_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    with WireServer(events) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        client = transport("http://app.example")
        assert read_stream(client) == b"data: 1\n\n"
        client.close()


def test_hosts_in_no_proxy_are_reached_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{unused_port()}")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with WireServer(answer()) as server:
        assert call(server.url).status == 200


def test_a_session_without_trust_env_ignores_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{unused_port()}")
    with WireServer(answer()) as server, requests.Session() as given:
        given.trust_env = False
        assert call(server.url, session=given).status == 200


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_is_away_means_that_nothing_was_sent(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"{scheme}_proxy", f"http://user:MARKER@127.0.0.1:{unused_port()}")
    with pytest.raises(MantyxNetworkError) as caught:
        call(f"{scheme}://app.example", "POST", body={})
    assert caught.value.sent is False
    assert "ConnectionRefusedError" in str(caught.value)
    assert "MARKER" not in "".join(traceback.format_exception(None, caught.value, caught.value.__traceback__))


@pytest.mark.parametrize("end", ["finish", "reset"])
def test_a_proxy_that_breaks_off_behind_the_request_does_not_get_it_twice(
    end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def script(peer: Peer) -> None:
        peer.request()
        getattr(peer, end)()

    with WireServer(script) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        with pytest.raises(MantyxNetworkError) as caught:
            call("http://app.example", "POST", body={})
        assert caught.value.sent is None
    assert len(proxy.requests) == 1


def test_a_proxy_that_refuses_a_tunnel_means_that_nothing_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    with WireServer(refuse(407)) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        with pytest.raises(MantyxNetworkError) as caught:
            call("https://app.example", "POST", body={}, retries=0)
        assert caught.value.sent is False
    assert [request.method for request in proxy.requests] == ["CONNECT"]
    assert "authorization" not in proxy.requests[0].headers


def test_a_proxy_kind_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        import socks  # noqa: F401
    except ImportError:
        pass
    else:
        pytest.skip("SOCKS is installed")
    monkeypatch.setenv("HTTP_PROXY", "socks5://127.0.0.1:1")
    with pytest.raises(MantyxNetworkError, match="cannot be sent") as caught:
        call("http://app.example")
    assert caught.value.sent is False


def test_a_socks_proxy_is_used_and_a_wait_behind_it_can_be_released(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("socks")
    waiting = threading.Event()

    def script(peer: Peer) -> None:
        peer.read_exactly(3)
        peer.send(b"\x05\x00")  # no password asked for
        peer.read_exactly(10)  # connect to an IPv4 address
        peer.send(b"\x05\x00\x00\x01" + bytes(6))
        peer.request()
        peer.send(head(content_length=2), b"{}")
        peer.request()
        waiting.set()
        peer.stay()

    with WireServer(script) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url.replace("http:", "socks5:"))
        client = transport("http://192.0.2.1:8080")
        assert client.request("GET", "/x").status == 200
        release = Release()
        failures: list[BaseException] = []

        def wait() -> None:
            try:
                client.open_stream(
                    "http://192.0.2.1:8080/e", headers={}, connect_timeout=5, idle_timeout=10, release=release
                )
            except MantyxNetworkError as error:
                failures.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        assert waiting.wait(DEADLINE_S)
        release()
        thread.join(2)
        assert not thread.is_alive()
        assert failures
        client.close()


@pytest.fixture
def authority(tmp_path: Path) -> Any:
    trustme = pytest.importorskip("trustme")
    made = trustme.CA()
    made.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "other.pem"))
    return made


@pytest.fixture
def tls_server(authority: Any) -> Iterator[WireServer]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with WireServer(answer(), tls=context) as server:
        yield server


@pytest.mark.parametrize(
    ("environment", "verify", "good"),
    [
        ("ca.pem", True, True),
        ("other.pem", True, False),
        (None, True, False),
        ("other.pem", "ca.pem", True),
        ("ca.pem", "other.pem", False),
        (None, "ca.pem", True),
    ],
)
def test_a_ca_file_that_was_given_wins_over_the_environment(
    environment: str | None,
    verify: Any,
    good: bool,
    tls_server: WireServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if environment:
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / environment))
    with requests.Session() as given:
        given.verify = str(tmp_path / verify) if isinstance(verify, str) else verify
        if good:
            assert call(tls_server.url, session=given).status == 200
        else:
            with pytest.raises(MantyxNetworkError, match="SSLCertVerificationError") as caught:
                call(tls_server.url, session=given)
            assert caught.value.sent is False
            assert tls_server.connections == 1


def test_checking_can_be_switched_off_whatever_the_environment_says(
    tls_server: WireServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "other.pem"))
    with requests.Session() as given, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # urllib3 warns of unchecked certificates, rightly
        given.verify = False
        assert call(tls_server.url, session=given).status == 200


def test_a_certificate_for_another_host_is_refused_at_once(
    authority: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("other.example").configure_cert(context)
    with WireServer(answer(), tls=context) as server:
        with pytest.raises(MantyxNetworkError) as caught:
            call(server.url)
        assert caught.value.sent is False
        assert server.connections == 1


@pytest.mark.parametrize("name", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_a_ca_file_of_the_environment_that_is_missing_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "/nowhere/ca.pem")
    with pytest.raises(MantyxConfigError, match=f"{name}.*'/nowhere/ca.pem'"):
        call(f"https://127.0.0.1:{unused_port()}")
    with WireServer(answer()) as server:  # without TLS nobody asks for it
        assert call(server.url).status == 200


def test_a_ca_file_of_the_session_that_is_missing_is_named_at_once() -> None:
    with requests.Session() as given:
        given.verify = "/nowhere/ca.pem"
        with pytest.raises(MantyxConfigError, match=r"session\.verify.*'/nowhere/ca.pem'"):
            transport("https://h", session=given)


def test_a_server_without_tls_is_told_as_such() -> None:
    def script(peer: Peer) -> None:
        peer.read_some()
        peer.send(head(400, content_length=0))

    with WireServer(script) as server, pytest.raises(MantyxNetworkError, match="SSLError"):
        call(server.url.replace("http:", "https:"), retries=0)


# --- redirects


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("method", ["GET", "POST", "stream"])
def test_redirects_are_refused(status: int, method: str) -> None:
    with WireServer(answer()) as other:
        with WireServer(refuse(status, location=other.url + "/secret?key=MARKER")) as server:
            client = transport(server.url)
            send = (
                read_stream
                if method == "stream"
                else functools.partial(HttpTransport.request, method=method, path="/x")
            )
            with pytest.raises(MantyxProtocolError, match=r"redirects \(30\d\) to") as caught:
                send(client)
            assert f"to '{other.url}';" in str(caught.value)
            assert "MARKER" not in str(caught.value)
            client.close()
        assert len(server.requests) == 1
    assert other.connections == 0


@pytest.mark.parametrize("location", ["/login", "http://[broken", "//other.example/x", "", "x" * 5000])
def test_odd_redirect_targets_are_refused_too(location: str) -> None:
    with WireServer(refuse(302, location=location)) as server:
        with pytest.raises(MantyxProtocolError, match="redirects") as caught:
            call(server.url)
        assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("url", ["http://other.example/x", "http://evil\\@127.0.0.1/x", "https://127.0.0.1/x", "/x"])
def test_a_stream_of_another_origin_is_refused_before_anything_is_sent(url: str) -> None:
    with WireServer(events) as server:
        client = transport(server.url)
        with pytest.raises(MantyxProtocolError, match="another origin"):
            read_stream(client, url)
        client.close()
    assert server.connections == 0


# --- answers


@pytest.mark.parametrize(
    ("status", "body", "kind", "code"),
    [
        (400, b'{"error":"x"}', MantyxBadRequestError, "x"),
        (400, b"[]", MantyxBadRequestError, "http_400"),
        (400, b'{"detail":[{"loc":["body"],"msg":"bad"}]}', MantyxBadRequestError, "http_400"),
        (401, b'{"error":{"code":"bad_key","message":"no such key"}}', MantyxAuthError, "bad_key"),
        (402, b"", MantyxAPIError, "http_402"),
        (404, b"not found", MantyxNotFoundError, "http_404"),
        (409, b'{"error":"already_submitted"}', MantyxConflictError, "already_submitted"),
        (413, b"too large", MantyxAPIError, "http_413"),
        (422, b'{"code":"invalid"}', MantyxBadRequestError, "invalid"),
        (500, b"", MantyxServerError, "http_500"),
        (500, b"\xff\xfe\x00", MantyxServerError, "http_500"),
        (502, b"<html><title>Bad Gateway</title>" + b"x" * 200_000, MantyxServerError, "http_502"),
    ],
)
def test_refusals_of_any_form_are_typed_by_status(status: int, body: bytes, kind: type[Exception], code: str) -> None:
    with WireServer(answer(body, status, x_request_id="req_9")) as server:
        with pytest.raises(kind) as caught:
            call(server.url, retries=0)
        error = caught.value
        assert isinstance(error, MantyxAPIError)
        assert (error.status, error.code, error.request_id) == (status, code, "req_9")
        assert len(str(error)) < 1000


def test_a_refusal_whose_body_breaks_off_keeps_its_status() -> None:
    def script(peer: Peer) -> None:
        peer.request()
        peer.send(head(503, content_length=100, retry_after="3"), b"<html>")

    with WireServer(script) as server, pytest.raises(MantyxServerError) as caught:
        call(server.url, retries=0)
    assert (caught.value.status, caught.value.retry_after) == (503, 3.0)


@pytest.mark.parametrize("body", [b"<html>log in</html>", b"{", b'{"a":' + b"9" * 5000 + b"}", b"\xff"])
def test_a_success_that_is_not_json_is_a_protocol_error(body: bytes) -> None:
    with WireServer(answer(body, content_type="text/html")) as server:
        got = call(server.url)
        if b"999" in body and not hasattr(__import__("sys"), "get_int_max_str_digits"):
            return  # this interpreter converts integers of any length
        with pytest.raises(MantyxProtocolError, match="not JSON"):
            got.json()


@pytest.mark.parametrize("body", [b"", b"  \n"])
def test_an_empty_success_is_none(body: bytes) -> None:
    with WireServer(answer(body)) as server:
        assert call(server.url).json() is None


def test_an_answer_does_not_show_its_body() -> None:
    with WireServer(answer(b'{"access_token":"MARKER"}')) as server:
        got = call(server.url)
        assert got.json() == {"access_token": "MARKER"}
        assert "MARKER" not in repr(got)
        assert "200" in repr(got)


@pytest.mark.parametrize(
    ("kind", "status"),
    [("text/html", 200), ("application/json", 200), ("", 200), ("text/event-streams", 200), (None, 204)],
)
def test_what_is_not_an_event_stream_is_a_protocol_error(kind: str | None, status: int) -> None:
    headers = {} if kind is None else {"content_type": kind}

    def script(peer: Peer) -> None:
        peer.request()
        peer.send(head(status, content_length=0, **headers))
        peer.stay()

    with WireServer(script) as server:
        client = transport(server.url)
        with pytest.raises(MantyxProtocolError, match="not with an event stream") as caught:
            read_stream(client)
        assert caught.value.status == status
        client.close()


@pytest.mark.parametrize("kind", ["text/event-stream", "Text/Event-Stream; Charset=UTF-8", "text/event-stream;x"])
def test_event_streams_are_known_by_their_type_however_it_is_written(kind: str) -> None:
    with WireServer(answer(b"data: 1\n\n", content_type=kind)) as server:
        client = transport(server.url)
        assert read_stream(client) == b"data: 1\n\n"
        client.close()


# --- trying again


@pytest.mark.parametrize(
    ("method", "repeat", "status", "headers", "sent"),
    [
        ("GET", None, 503, {}, 3),
        ("GET", None, 500, {}, 3),
        ("GET", None, 501, {}, 1),
        ("GET", None, 429, {}, 3),
        ("GET", None, 408, {}, 3),
        ("GET", None, 409, {}, 1),
        ("GET", None, 404, {}, 1),
        ("POST", None, 429, {}, 3),
        ("POST", None, 429, {"retry_after": "0"}, 3),
        ("POST", None, 503, {}, 1),
        ("POST", None, 503, {"retry_after": "0"}, 3),
        ("POST", None, 500, {}, 1),
        ("POST", None, 400, {}, 1),
        ("POST", None, 402, {}, 1),
        ("POST", None, 422, {}, 1),
        ("POST", None, 409, {}, 1),
        ("POST", Repeat.SAFE, 502, {}, 3),
        ("DELETE", None, 502, {}, 1),
        ("DELETE", Repeat.SAFE, 502, {}, 3),
        ("GET", None, 429, {"retry_after": "3600"}, 1),
    ],
)
def test_how_often_a_refused_request_is_sent(
    method: str, repeat: Repeat | None, status: int, headers: dict[str, str], sent: int
) -> None:
    with WireServer(answer(b"{}", status, **headers)) as server:
        with pytest.raises(MantyxAPIError):
            call(server.url, method, repeat=repeat, retries=2)
        assert len(server.requests) == sent


def test_a_request_that_succeeds_at_last_is_answered() -> None:
    with WireServer(refuse(503), refuse(429), answer(b"[1]")) as server:
        assert call(server.url).json() == [1]


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("7", 7.0), (lambda: formatdate(time.time() + 7, usegmt=True), 7.0), ("soon", None), (None, None)],
)
def test_retry_after_is_on_the_error(value: Any, seconds: float | None) -> None:
    headers = {} if value is None else {"retry_after": value() if callable(value) else value}
    with WireServer(answer(b"{}", 429, **headers)) as server:
        with pytest.raises(MantyxRateLimitError) as caught:
            call(server.url, retries=0)
        if seconds is None:
            assert caught.value.retry_after is None
        else:
            assert seconds - 2 <= (caught.value.retry_after or 0) <= seconds


def test_retry_after_is_waited_for() -> None:
    with WireServer(refuse(429, retry_after="0.2"), answer()) as server:
        started = time.monotonic()
        call(server.url, "POST", body={})
        assert 0.2 <= time.monotonic() - started < 2


def test_a_deadline_is_not_waited_over() -> None:
    with WireServer(answer(b"{}", 429, retry_after="5")) as server:
        started = time.monotonic()
        with pytest.raises(MantyxRateLimitError):
            call(server.url, deadline=time.monotonic() + 1)
        assert time.monotonic() - started < 0.9
        assert len(server.requests) == 1


def test_a_deadline_that_has_passed_sends_nothing() -> None:
    with WireServer(answer()) as server:
        with pytest.raises(MantyxTimeoutError, match=r"^[A-Z]+ .*: no time left"):
            call(server.url, deadline=time.monotonic())
        assert server.connections == 0


def test_a_stop_ends_the_wait_between_two_tries() -> None:
    stop = threading.Event()
    with WireServer(answer(b"{}", 429, retry_after="30")) as server:
        timer = threading.Timer(0.1, stop.set)
        timer.start()
        started = time.monotonic()
        with pytest.raises(MantyxRateLimitError):
            call(server.url, stop=stop)
        assert time.monotonic() - started < 3
        assert len(server.requests) == 1
        timer.join()


def test_the_retries_of_a_given_adapter_do_not_multiply_with_ours() -> None:
    port = unused_port()
    tries = []

    class Counting(HTTPAdapter):
        def send(self, *args: Any, **kwargs: Any) -> requests.Response:
            tries.append(1)
            return super().send(*args, **kwargs)

    with requests.Session() as given:
        given.mount("http://", Counting(max_retries=Retry(total=2, connect=2, backoff_factor=0.0)))
        with pytest.raises(MantyxNetworkError) as caught:
            call(f"http://127.0.0.1:{port}", session=given)
        assert caught.value.sent is False
    assert len(tries) == 1


def test_statuses_that_a_given_adapter_retries_are_not_retried_again() -> None:
    with WireServer(answer(b"{}", 503)) as server, requests.Session() as given:
        given.mount("http://", HTTPAdapter(max_retries=Retry(total=2, status_forcelist=[503], backoff_factor=0.0)))
        with pytest.raises(MantyxError):
            call(server.url, session=given)
        assert len(server.requests) == 3


# --- answers that do not come


def lost_in(kind: str) -> Script:
    def script(peer: Peer) -> None:
        peer.request()
        if kind == "closed before the answer":
            return
        if kind == "reset before the answer":
            peer.reset()
        elif kind == "closed in the head":
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Le")
        elif kind == "closed in the body":
            peer.send(head(content_length=10), b"{}")
        elif kind == "closed before the body":
            peer.send(head(content_length=10))
        elif kind == "reset in the body":
            peer.send(head(content_length=10), b"{}")
            peer.reset()
        elif kind == "closed in a chunk":
            peer.send(head(transfer_encoding="chunked"), b"5\r\n{}")
        elif kind == "closed before the last chunk":
            peer.send(head(transfer_encoding="chunked"), b"2\r\n{}\r\n")
        elif kind == "not HTTP":
            peer.send(b"SSH-2.0-OpenSSH_9.0\r\n\r\n")
        elif kind == "damaged gzip":
            peer.send(head(content_length=10, content_encoding="gzip"), b"0123456789")

    return script


LOST = [
    "closed before the answer",
    "reset before the answer",
    "closed in the head",
    "closed in the body",
    "closed before the body",
    "reset in the body",
    "closed in a chunk",
    "closed before the last chunk",
    "not HTTP",
    "damaged gzip",
]


@pytest.mark.parametrize("kind", LOST)
@pytest.mark.parametrize("session", ["ours", "yours"])
def test_a_lost_answer_is_asked_for_again_only_where_that_is_safe(
    kind: str, session: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "urllib3.connection")  # its warning of a broken head would keep the connection
    with WireServer(lost_in(kind), answer(b"[1]")) as server, requests.Session() as given:
        chosen = given if session == "yours" else None
        with pytest.raises(MantyxNetworkError) as caught:
            call(server.url, "POST", body={}, session=chosen)
        assert caught.value.sent is None
        assert "POST /x: the connection broke" in str(caught.value)
        assert len(server.requests) == 1
    with WireServer(lost_in(kind), answer(b"[1]")) as server, requests.Session() as given:
        chosen = given if session == "yours" else None
        assert call(server.url, "POST", body={}, repeat=Repeat.SAFE, session=chosen).json() == [1]
        assert len(server.requests) == 2


def test_a_connection_that_breaks_while_the_request_is_sent_is_a_network_error() -> None:
    def script(peer: Peer) -> None:
        peer.read_until(b"\r\n\r\n")
        peer.reset()

    with WireServer(script) as server:
        with pytest.raises(MantyxNetworkError) as caught:
            call(server.url, "POST", body=b"x" * (8 << 20))
        assert caught.value.sent is None
        assert server.connections == 1


@pytest.mark.parametrize("size", [2, 200_000])
def test_a_pooled_connection_that_the_server_closed_is_replaced(size: int) -> None:
    closed = threading.Semaphore(0)

    def once(peer: Peer) -> None:
        peer.request()
        peer.send(head(content_length=2), b"{}")
        peer.finish()
        closed.release()
        peer.stay()

    with WireServer(once, once, answer()) as server:
        client = transport(server.url, retries=0)
        for turn in range(3):
            client.request("POST", "/results", body=b"x" * size)
            assert turn == 2 or closed.acquire(timeout=DEADLINE_S)
        client.close()
        assert [request.connection for request in server.requests] == [0, 1, 2]


def test_a_server_that_never_answers_is_waited_for_once() -> None:
    def script(peer: Peer) -> None:
        peer.request()
        peer.stay()

    with WireServer(script) as server:
        started = time.monotonic()
        with pytest.raises(MantyxTimeoutError, match="GET /x: the server did not answer in time") as caught:
            call(server.url, timeout=0.3)
        assert 0.25 < time.monotonic() - started < 1.5
        assert isinstance(caught.value, TimeoutError)
        assert len(server.requests) == 1


@pytest.mark.parametrize("coding", ["length", "chunked", "close"])
def test_a_body_that_stops_coming_times_out(coding: str) -> None:
    def script(peer: Peer) -> None:
        peer.request()
        framing: dict[str, Any] = {"length": {"content_length": 9}, "chunked": {"transfer_encoding": "chunked"}}
        peer.send(head(**framing.get(coding, {})), b"2\r\n{}\r\n")
        peer.stay()

    with WireServer(script) as server:
        with pytest.raises(MantyxTimeoutError):
            call(server.url, timeout=0.2)
        assert len(server.requests) == 1


def test_the_deadline_bounds_the_wait_for_an_answer() -> None:
    def script(peer: Peer) -> None:
        peer.request()
        peer.stay()

    with WireServer(script) as server:
        started = time.monotonic()
        with pytest.raises(MantyxTimeoutError):
            call(server.url, timeout=30, deadline=time.monotonic() + 0.3)
        assert time.monotonic() - started < 1.5


def test_a_connection_that_does_not_open_in_time_was_not_sent() -> None:
    with silent_port() as port:
        started = time.monotonic()
        with pytest.raises(MantyxNetworkError, match="not sent") as caught:
            call(f"http://127.0.0.1:{port}", "POST", body={}, timeout=(0.2, 30.0), retries=1)
        assert caught.value.sent is False
        assert 0.35 < time.monotonic() - started < 2.5


def test_a_refused_connection_was_not_sent_and_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    dialled = []
    real = socket.socket.connect

    class Watched(socket.socket):
        def connect(self, address: Any) -> None:
            dialled.append(address)
            real(self, address)

    port = unused_port()
    monkeypatch.setattr(socket, "socket", Watched)
    with pytest.raises(MantyxNetworkError, match=r"could be opened \(ConnectionRefusedError\)") as caught:
        call(f"http://127.0.0.1:{port}", "POST", body={}, retries=2)
    assert caught.value.sent is False
    assert len(dialled) == 3


def test_a_host_without_address_was_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: Any, **__: Any) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(MantyxNetworkError, match="gaierror") as caught:
        call("http://nowhere.example", retries=0)
    assert caught.value.sent is False


@pytest.mark.parametrize("outer", [KeyError("unrelated"), FileNotFoundError("unrelated"), ConnectionResetError()])
def test_the_cause_that_is_named_is_not_what_the_caller_was_handling(outer: Exception) -> None:
    port = unused_port()
    try:
        raise outer
    except Exception:
        with pytest.raises(MantyxNetworkError, match="ConnectionRefusedError"):
            call(f"http://127.0.0.1:{port}", retries=0)
        with silent_port() as silent, pytest.raises(MantyxNetworkError, match="imeout"):
            call(f"http://127.0.0.1:{silent}", retries=0, timeout=0.05)


# --- threads, forks, closing


def test_many_threads_share_one_transport(caplog: pytest.LogCaptureFixture) -> None:
    """Streams hold connections while posts need some: nothing may wait for a free one, no answer may be mixed up."""
    caplog.set_level(logging.DEBUG)
    count = 40
    started, enough = threading.Barrier(count + 1), threading.Event()

    def script(peer: Peer) -> None:
        while True:
            request = peer.request()
            if request.method == "GET":
                peer.send(stream_head(), chunk(b"data: " + request.target.encode() + b"\n\n"))
                peer.wait(enough)
                return
            peer.send(head(content_length=len(request.body), set_cookie=f"c={request.target}"), request.body)

    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            body = client.open_stream(
                client.base.join(f"/{number}"), headers={}, connect_timeout=5, idle_timeout=10, release=Release()
            )
            assert body.read() == f"data: /{number}\n\n".encode()
            started.wait(DEADLINE_S)
            for turn in range(5):
                assert client.request("POST", f"/{number}", body=[number, turn]).json() == [number, turn]
            body.close()
        except BaseException as failure:
            failures.append(failure)
            started.abort()

    with WireServer(script) as server:
        client = transport(server.url, retries=0)
        threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
        for thread in threads:
            thread.start()
        started.wait(DEADLINE_S)
        for thread in threads:
            thread.join(DEADLINE_S)
        enough.set()
        client.close()
        if failures:
            raise failures[0]
        assert not any("cookie" in request.headers for request in server.requests)
        assert server.connections <= 3 * count  # a stream's connection cannot be used again
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_closed_transport_opens_new_connections() -> None:
    with WireServer(answer()) as server:
        client = transport(server.url)
        client.request("GET", "/")
        client.close()
        wait_until(lambda: server.open_connections == 0, "close() left a connection open")
        client.request("GET", "/")
        client.close()
        client.close()
        assert server.connections == 2


def test_closing_leaves_the_session_of_the_caller_open() -> None:
    with WireServer(answer()) as server, requests.Session() as given:
        client = transport(server.url, session=given)
        client.request("GET", "/")
        client.close()
        client.request("GET", "/")
        assert server.connections == 1


def test_a_derived_transport_shares_connections_but_not_settings() -> None:
    with WireServer(answer()) as server:
        client = transport(server.url, headers={"X-A": "1"})
        client.request("GET", "/")
        other = client.derive(timeout=1.0, retry=client.retry, headers={"X-B": "2"})
        other.request("GET", "/")
        client.request("GET", "/")
        client.close()
        assert server.connections == 1
    assert ["x-b" in request.headers for request in server.requests] == [False, True, False]
    assert ["x-a" in request.headers for request in server.requests] == [True, False, True]
    assert all(request.headers["authorization"] == "Bearer tok_MARKER" for request in server.requests)


class Configured(HTTPAdapter):
    """An adapter whose pool needs something that its constructor was given, as adapters with a TLS context do."""

    def __init__(self, options: list[Any]) -> None:
        self.options = options
        super().__init__()

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, socket_options=self.options, **kwargs)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("session", ["ours", "yours"])
def test_a_forked_process_does_not_share_connections_with_its_parent(session: str) -> None:
    def echo(peer: Peer) -> None:
        while True:
            request = peer.request()
            peer.send(head(content_length=len(request.body)), request.body)

    def exchange(mark: str) -> bool:
        return all(client.request("POST", "/", body=[mark, turn]).json() == [mark, turn] for turn in range(20))

    with WireServer(echo) as server, requests.Session() as given:
        given.mount("http://", Configured([]))
        client = transport(server.url, retries=0, session=given if session == "yours" else None)
        assert client.request("POST", "/", body="warm").json() == "warm"
        child = fork(lambda: exchange("child"))
        assert exchange("parent")
        assert child() == 0
        assert exchange("parent")
        client.close()
        connections = {mark: {r.connection for r in server.requests if mark in str(r.body)} for mark in MARKS}
        assert connections["parent"] == connections["warm"] == {0}
        assert connections["child"] == {1}


MARKS = ("warm", "parent", "child")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_can_close_a_transport_that_its_parent_was_using() -> None:
    with WireServer(answer()) as server:
        client = transport(server.url)
        client.request("GET", "/")
        inside, leave = threading.Event(), threading.Event()

        def hold() -> None:
            with client._sessions._lock:
                inside.set()
                leave.wait(DEADLINE_S)

        thread = threading.Thread(target=hold)
        thread.start()
        inside.wait(DEADLINE_S)
        child = fork(lambda: client.close() is None and client.request("GET", "/").status == 200)
        assert child() == 0
        leave.set()
        thread.join()
        client.close()


def fork(action: Callable[[], bool]) -> Callable[[], int]:
    """Run `action` in a forked process; return a function that waits for it, 0 being success."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer interpreters warn of forking with threads, which is the point here
        pid = os.fork()
    if pid == 0:
        code = 1
        try:
            threading.Timer(DEADLINE_S, os._exit, [3]).start()
            code = 0 if action() else 2
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return lambda: os.waitpid(pid, 0)[1]


# --- sessions of the caller


def test_the_headers_of_a_given_session_are_sent() -> None:
    with WireServer(answer()) as server, requests.Session() as given:
        given.headers.update({"User-Agent": "mine/1", "X-Bytes": b"b", "Authorization": "Basic no", "Cookie": "a=b"})
        given.headers["Accept-Encoding"] = None  # type: ignore[assignment]  # how requests leaves a header out
        call(server.url, session=given)
    headers = server.requests[0].headers
    assert headers["user-agent"] == "mine/1"
    assert headers["x-bytes"] == "b"
    assert headers["authorization"] == "Bearer tok_MARKER"


def test_hooks_of_a_given_session_see_each_response() -> None:
    seen = []

    def hook(response: requests.Response, **details: Any) -> None:
        seen.append((response.status_code, response.url, sorted(details)))

    with WireServer(answer(b"[1]")) as server, requests.Session() as given:
        given.hooks["response"].append(hook)
        assert call(server.url, session=given).json() == [1]
    assert [(status, url) for status, url, _ in seen] == [(200, server.url + "/x")]
    assert {"timeout", "verify", "proxies", "stream"} <= set(seen[0][2])


def test_a_hook_may_be_a_lone_function_and_read_the_body() -> None:
    bodies = []
    with WireServer(answer(b"[1]"), answer(b'{"error":"x"}', 404)) as server, requests.Session() as given:
        given.hooks["response"] = lambda response, **_: bodies.append(response.content)  # type: ignore[assignment]
        client = transport(server.url, session=given)
        assert client.request("GET", "/x").json() == [1]
    with WireServer(answer(b'{"error":"bad_thing"}', 404)) as server, requests.Session() as given:
        given.hooks["response"] = [lambda response, **_: bodies.append(response.content)]
        with pytest.raises(MantyxNotFoundError) as caught:
            call(server.url, session=given)
        assert caught.value.code == "bad_thing"
    assert bodies == [b"[1]", b'{"error":"bad_thing"}']


def test_what_a_hook_raises_passes_and_its_connection_is_closed() -> None:
    def hook(response: requests.Response, **_: Any) -> None:
        response.raise_for_status()

    with WireServer(answer(b"{}", 503)) as server, requests.Session() as given:
        given.hooks["response"].append(hook)
        client = transport(server.url, session=given)
        with pytest.raises(requests.HTTPError):
            client.request("GET", "/x")
        wait_until(lambda: server.open_connections == 0, "the connection stays open")
        assert len(server.requests) == 1


def test_a_given_session_may_answer_by_itself() -> None:
    class Canned(requests.adapters.BaseAdapter):
        def send(self, request: requests.PreparedRequest, **_: Any) -> requests.Response:  # type: ignore[override]
            response = requests.Response()
            response.status_code = 200
            response._content = json.dumps([request.method, request.url, str(request.body)]).encode()
            return response

        def close(self) -> None:
            pass

    with requests.Session() as given:
        given.mount("http://app.example", Canned())
        got = call("http://app.example/api", "POST", body={"a": 1}, session=given)
        assert got.json() == ["POST", "http://app.example/api/x", "b'{\"a\":1}'"]


# --- what is told and what is hidden


def dump(error: BaseException) -> str:
    """Return what an error tracker would take: text, attributes, the traceback and the locals of every frame."""
    parts = []
    todo, done = [error], set()
    while todo:
        current = todo.pop()
        if id(current) in done:
            continue
        done.add(id(current))
        parts += [str(current), repr(current), repr(vars(current))]
        parts += traceback.format_exception(None, current, current.__traceback__)
        frame = current.__traceback__
        while frame is not None:
            if "tests" not in frame.tb_frame.f_code.co_filename:
                parts += [f"{name}={value!r}" for name, value in frame.tb_frame.f_locals.items()]
            frame = frame.tb_next
        todo += [other for other in (current.__cause__, current.__context__) if other is not None]
    return "\n".join(parts)


NOT_A_HEADER = {"X-Key": "MARKER\n"}
FAILURES: dict[str, Callable[[str, int], object]] = {
    "refused by the server": lambda url, _: call(url, retries=0),
    "no connection": lambda _, port: call(f"http://127.0.0.1:{port}", "POST", body={}, retries=1),
    "redirect": lambda url, _: call(url + "/redirect", retries=0),
    "lost": lambda url, _: call(url + "/lost", "POST", body={}),
    "lost again and again": lambda url, _: call(url + "/lost", retries=1),
    "timed out": lambda url, _: call(url + "/silent", timeout=0.1),
    "bad header": lambda url, _: transport(url, headers=NOT_A_HEADER).request("GET", "/"),
    "stream of another type": lambda url, _: read_stream(transport(url + "/html")),
    "stream lost": lambda url, _: read_stream(transport(url + "/lost")),
}


@pytest.mark.parametrize("name", FAILURES)
def test_the_credential_is_nowhere_but_in_the_request(name: str, caplog: pytest.LogCaptureFixture) -> None:
    def script(peer: Peer) -> None:
        request = peer.request()
        assert request.headers["authorization"] == "Bearer tok_MARKER"
        if "redirect" in request.target:
            peer.send(head(302, location="/there", content_length=0))
        elif "silent" in request.target:
            peer.stay()
        elif "html" in request.target:
            peer.send(head(content_type="text/html", content_length=0))
        elif "lost" not in request.target:
            peer.send(head(401, content_length=2), b"{}")

    caplog.set_level(logging.DEBUG)
    with WireServer(script) as server:
        with pytest.raises(MantyxError) as caught:
            FAILURES[name](server.url, unused_port())
        error = caught.value
        told = dump(error) + "\n".join(record.getMessage() + str(record.args) for record in caplog.records)
        assert "MARKER" not in told
        assert b"MARKER" not in pickle.dumps(error)
        assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_the_credential_is_not_shown_by_the_objects_that_hold_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    auth = BearerAuth("tok_MARKER")
    request = auth(requests.Request("GET", "http://h", headers={}).prepare())
    assert request.headers["Authorization"] == "Bearer tok_MARKER"
    with WireServer(answer()) as server:
        client = transport(server.url, auth=auth)
        client.request("GET", "/x", query={"q": "QUERY"})
        shown = [repr(value) for value in (auth, client, vars(auth), vars(client), request.headers, client.base)]
        shown.append(repr(vars(client._sessions)))
        client.close()
    ours = [record.getMessage() for record in caplog.records if record.name.startswith("mantyx_sync")]
    assert ours
    assert "QUERY" not in "\n".join(ours)
    assert "MARKER" not in "\n".join(shown + [record.getMessage() for record in caplog.records])
    with pytest.raises((TypeError, AttributeError, pickle.PicklingError)):
        pickle.dumps(auth)


@pytest.mark.parametrize("token", ["tok_MARKER\nX: y", "tok_MARKER\0", "tok_MARKER\u2713", "tok\r\n_MARKER", "", "  "])
def test_a_token_that_no_header_can_carry_is_refused_without_being_shown(token: str) -> None:
    with pytest.raises(MantyxConfigError) as caught:
        BearerAuth(token)
    assert "MARKER" not in dump(caught.value)


@pytest.mark.parametrize("token", ["tok_MARKER\n", " tok_MARKER", "tok_MARKER\r\n"])
def test_a_token_read_from_a_file_may_end_in_a_line_end(token: str) -> None:
    request = BearerAuth(token)(requests.Request("GET", "http://h").prepare())
    assert request.headers["Authorization"] == "Bearer tok_MARKER"


def test_a_query_is_not_in_the_text_of_an_error() -> None:
    for retries in (0, 1):
        with pytest.raises(MantyxNetworkError) as caught:
            call(f"http://127.0.0.1:{unused_port()}", query={"q": "QUERY"}, retries=retries)
        assert "QUERY" not in str(caught.value)
    with WireServer(refuse(500)) as server, pytest.raises(MantyxServerError) as refused:
        call(server.url, query={"q": "QUERY"}, retries=0)
    assert "QUERY" not in str(refused.value)


# --- request bodies


def test_numbers_that_json_lacks_are_refused_before_anything_is_sent() -> None:
    with WireServer(answer()) as server:
        with pytest.raises(ValueError, match="JSON"):
            call(server.url, "POST", body={"x": float("nan")})
        assert server.connections == 0


def test_half_a_surrogate_pair_is_sent_escaped() -> None:
    assert encode_json({"t": "é\ud83d"}) == b'{"t":"\\u00e9\\ud83d"}'
    assert encode_json({"t": "é😀"}) == '{"t":"é😀"}'.encode()


def test_a_large_body_is_sent_while_the_server_reads_slowly() -> None:
    """The time-out is on each wait, not on the whole exchange."""

    def script(peer: Peer) -> None:
        peer.read_until(b"\r\n\r\n")
        for _ in range(6):
            threading.Event().wait(0.1)  # a slow reader
            peer.read_exactly(1 << 20)
        peer.send(head(content_length=2), b"{}")

    with WireServer(script) as server:
        assert call(server.url, "POST", body=b"x" * (6 << 20), timeout=0.5).status == 200
