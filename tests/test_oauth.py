"""OAuth: refreshing and revoking tokens, sources that many threads share, and the one retry behind a 401."""

from __future__ import annotations

import copy
import json
import os
import pickle
import threading
import time
import traceback
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Iterable, Iterator
from urllib.parse import parse_qs

import pytest

from mantyx_sync.errors import (
    MantyxAuthError,
    MantyxConfigError,
    MantyxError,
    MantyxNetworkError,
    MantyxOAuthError,
    MantyxScopeError,
    MantyxTimeoutError,
)
from mantyx_sync.local import LocalServer, OAuthApp
from mantyx_sync.local.oauth import SCOPES
from mantyx_sync.oauth import MantyxOAuthClient, OAuthToken, RefreshTokenSource, TokenSource
from mantyx_sync.transport import flight
from mantyx_sync.transport.auth import TokenAuth
from mantyx_sync.transport.body import Release
from mantyx_sync.transport.flight import SingleFlight
from mantyx_sync.transport.http import HttpTransport
from mantyx_sync.transport.retry import Repeat
from mantyx_sync.transport.secret import Secret
from tests.waiting import wait_until
from tests.wire import DEADLINE_S, Gone, Peer, WireServer, answer, chunk, head, refuse, stream_head, transport

pytestmark = pytest.mark.usefixtures("no_leaks")

SECRET, REFRESH = "mantyx_oas_MARKER", "mantyx_rt_MARKER"
GOOD = (
    b'{"access_token": "mantyx_at_1", "refresh_token": "mantyx_rt_MARKER", "token_type": "Bearer", '
    b'"expires_in": 3600, "scope": "runs:read"}'
)


def oauth_client(url: str, **settings: Any) -> MantyxOAuthClient:
    return MantyxOAuthClient(**{"client_id": "mantyx_oa_1", "client_secret": SECRET, "base_url": url, **settings})


@pytest.fixture
def refreshes() -> Iterator[Callable[..., tuple[WireServer, MantyxOAuthClient]]]:
    """Return a function that makes a token endpoint playing scripts, and its client."""
    opened: list[Any] = []

    def make(*scripts: Any, **settings: Any) -> tuple[WireServer, MantyxOAuthClient]:
        server = WireServer(*scripts)
        client = oauth_client(server.url, **settings)
        opened.append((server, client))
        return server, client

    yield make
    for server, client in opened:
        client.close()
        server.__exit__(None)


# --------------------------------------------------------------------------------------------- refresh


def test_refresh_posts_a_form_and_reads_the_token(refreshes: Any) -> None:
    server, client = refreshes(answer(GOOD))
    before = time.time()
    token = client.refresh(refresh_token=f" {REFRESH}\n", scope=["runs:read", "models:read sessions:read"])

    assert (token.access_token, token.refresh_token, token.token_type) == ("mantyx_at_1", REFRESH, "Bearer")
    assert (token.expires_in, token.scope) == (3600, "runs:read")
    assert before + 3600 <= token.expires_at <= time.time() + 3600
    (request,) = server.requests
    assert (request.method, request.target) == ("POST", "/api/oauth/token")
    assert request.headers["content-type"] == "application/x-www-form-urlencoded"
    assert "authorization" not in request.headers
    assert {name: value for name, [value] in parse_qs(request.body.decode()).items()} == {
        "grant_type": "refresh_token",
        "refresh_token": REFRESH,
        "client_id": "mantyx_oa_1",
        "client_secret": SECRET,
        "scope": "runs:read models:read sessions:read",
    }


@pytest.mark.parametrize("scope", [None, "", "  ", []])
def test_no_scope_sends_none(refreshes: Any, scope: Any) -> None:
    server, client = refreshes(answer(GOOD))
    client.refresh(refresh_token=REFRESH, scope=scope)
    assert b"scope" not in server.requests[0].body


def test_revoke_posts_the_token(refreshes: Any) -> None:
    server, client = refreshes(answer(b""))
    assert client.revoke(token="mantyx_at_7") is None
    form = parse_qs(server.requests[0].body.decode())
    assert (server.requests[0].target, form["token"]) == ("/api/oauth/revoke", ["mantyx_at_7"])
    assert form["client_secret"] == [SECRET]


@pytest.mark.parametrize(
    ("expires_in", "lifetime"),
    [(b"120", 120), (b'"120"', 120), (b"null", 3600), (b'"soon"', 3600), (b"-5", 0), (b"1e400", 3600), (b"9.9", 9)],
)
def test_a_lifetime_is_read_in_any_form(refreshes: Any, expires_in: bytes, lifetime: int) -> None:
    _, client = refreshes(answer(b'{"access_token": "a", "expires_in": %b}' % expires_in))
    token = client.refresh(refresh_token=REFRESH)
    assert token.expires_in == lifetime
    assert (token.refresh_token, token.scope, token.token_type) == (None, None, "Bearer")


@pytest.mark.parametrize(
    ("status", "body", "word", "description"),
    [
        (400, b'{"error": "invalid_grant", "error_description": "revoked"}', "invalid_grant", "revoked"),
        (401, b'{"error": "invalid_client"}', "invalid_client", None),
        (403, b"<html><title>Denied</title></html>", "http_403", "POST /api/oauth/token: 403 http_403: Denied"),
        (400, b"[]", "http_400", "POST /api/oauth/token: 400 http_400: []"),
        (200, b"<html>log in", "invalid_response", "the token endpoint's answer holds no access token"),
        (200, b"[1]", "invalid_response", "the token endpoint's answer holds no access token"),
        (200, b'{"access_token": 5}', "invalid_response", "the token endpoint's answer holds no access token"),
    ],
)
def test_a_refusal_is_an_oauth_error(refreshes: Any, status: int, body: bytes, word: str, description: str) -> None:
    server, client = refreshes(answer(body, status, x_request_id="req_1"))
    with pytest.raises(MantyxOAuthError) as caught:
        client.refresh(refresh_token=REFRESH)
    error = caught.value
    assert (error.oauth_error, error.oauth_error_description, error.status) == (word, description, status)
    assert (error.code, error.request_id) == (word, "req_1")
    assert len(server.requests) == 1


def test_a_refresh_that_the_server_could_not_answer_is_repeated(refreshes: Any) -> None:
    def lost(peer: Peer) -> None:
        peer.request()
        raise Gone

    server, client = refreshes(lost, refuse(503), answer(GOOD))
    assert client.refresh(refresh_token=REFRESH).access_token == "mantyx_at_1"
    assert len(server.requests) == 3


def test_the_timeout_bounds_a_call_with_its_repetitions(refreshes: Any) -> None:
    def silent(peer: Peer) -> None:
        peer.request()
        peer.stay()

    _, client = refreshes(refuse(503), silent, timeout=0.3)
    started = time.monotonic()
    with pytest.raises(MantyxTimeoutError):
        client.refresh(refresh_token=REFRESH)
    assert time.monotonic() - started < 3


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: oauth_client("http://127.0.0.1:1", client_id=""), "client_id"),
        (lambda: oauth_client("http://127.0.0.1:1", client_secret=" "), "client_secret"),
        (lambda: oauth_client("127.0.0.1"), "base_url"),
        (lambda: oauth_client("http://127.0.0.1:1", timeout=0), "timeout"),
        (lambda: oauth_client("http://127.0.0.1:1", timeout=(1, 2)), "timeout"),
        (lambda: oauth_client("http://127.0.0.1:1", max_retries=-1), "max_retries"),
        (lambda: oauth_client("http://127.0.0.1:1").refresh(refresh_token=""), "refresh_token"),
        (lambda: oauth_client("http://127.0.0.1:1").refresh(refresh_token="r", scope=5), "scope"),  # type: ignore[arg-type]
        (lambda: oauth_client("http://127.0.0.1:1").refresh(refresh_token="r", scope=[5]), "scope"),  # type: ignore[list-item]
        (lambda: oauth_client("http://127.0.0.1:1").revoke(token=None), "token"),  # type: ignore[arg-type]
        (lambda: oauth_client("http://127.0.0.1:1").refresh_token_source(refresh_token=None), "refresh_token"),  # type: ignore[arg-type]
        (lambda: source_of([], refresh_skew_s=-1), "refresh_skew_s"),
        (lambda: source_of([], initial_token="mantyx_at_1"), "initial_token"),
        (lambda: TokenAuth("mantyx_at_1"), "token_source"),  # type: ignore[arg-type]
    ],
)
def test_bad_input_is_refused_in_a_sentence_and_nothing_is_sent(call: Callable[[], Any], named: str) -> None:
    with pytest.raises(MantyxConfigError, match=f"^{named}: "):
        call()


def test_the_address_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MANTYX_BASE_URL", raising=False)
    assert MantyxOAuthClient(client_id="i", client_secret="s").base_url == "https://app.mantyx.io"
    monkeypatch.setenv("MANTYX_BASE_URL", "http://127.0.0.1:1/here/")
    assert MantyxOAuthClient(client_id="i", client_secret="s").base_url == "http://127.0.0.1:1/here"


# --------------------------------------------------------------------------------------------- secrecy


def _locals_of(error: BaseException) -> str:
    ours = [
        frame
        for frame in traceback.TracebackException.from_exception(error, capture_locals=True).stack
        if "mantyx_sync" in frame.filename and "tests" not in frame.filename
    ]
    return repr([frame.locals for frame in ours])


@pytest.mark.parametrize(
    "body",
    [
        f'{{"error": "invalid_grant", "error_description": "{REFRESH} of {SECRET} was revoked"}}',
        f'{{"error": "{REFRESH}"}}',
        f'{{"message": "{SECRET}"}}',
    ],
)
def test_no_error_shows_a_secret_even_if_the_server_quotes_it(refreshes: Any, body: str) -> None:
    _, client = refreshes(answer(body.encode(), 400))
    with pytest.raises(MantyxOAuthError) as caught:
        client.refresh_token_source(refresh_token=REFRESH)()
    shown = "".join(traceback.format_exception(caught.type, caught.value, caught.value.__traceback__))
    assert "MARKER" not in shown + repr(vars(caught.value)) + _locals_of(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("secret", "said", "shown"),
    [
        ("s", "secret 's' is wrong", "secret '***' is wrong"),
        ("app-1", "unknown app-10 for app-1.", "unknown app-10 for ***."),
        ("mantyx_oas_1", "no mantyx_oas_12", "no ***2"),
    ],
)
def test_a_secret_that_is_a_part_of_other_words_leaves_them_readable(
    refreshes: Any, secret: str, said: str, shown: str
) -> None:
    _, client = refreshes(
        answer(json.dumps({"error": "invalid_client", "error_description": said}).encode(), 400), client_secret=secret
    )
    with pytest.raises(MantyxOAuthError) as caught:
        client.refresh(refresh_token=REFRESH)
    assert caught.value.oauth_error_description == shown


def test_no_frame_of_a_lost_request_shows_a_secret(refreshes: Any) -> None:
    def lost(peer: Peer) -> None:
        peer.request()
        peer.reset()

    _, client = refreshes(lost, max_retries=0)
    for call in (lambda: client.refresh(refresh_token=REFRESH), lambda: client.revoke(token=REFRESH)):
        with pytest.raises(MantyxNetworkError) as caught:
            call()
        assert "MARKER" not in _locals_of(caught.value)


def test_objects_that_hold_secrets_do_not_show_or_pickle_them() -> None:
    client = oauth_client("http://127.0.0.1:1")
    token = OAuthToken("mantyx_at_MARKER", REFRESH, "Bearer", 3600, time.time() + 3600, "runs:read")
    source = client.refresh_token_source(refresh_token=REFRESH, initial_token=token)
    for thing in (client, token, source, TokenAuth(source)):
        assert "MARKER" not in repr(thing) + repr(vars(thing)) + str(thing)
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(thing)
    assert copy.copy(token) is copy.deepcopy(token) is token
    assert f"{token.access_token}" == "mantyx_at_MARKER"


# --------------------------------------------------------------------------------------------- sources


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def token_at(clock: Clock, number: int, lifetime: int = 3600) -> OAuthToken:
    return OAuthToken(f"at_{number}", REFRESH, "Bearer", lifetime, clock.now + lifetime, None)


def source_of(
    minted: list[str], clock: Clock | None = None, *, errors: Iterable[MantyxError] = (), **settings: Any
) -> RefreshTokenSource:
    """Return a source that raises the errors first and then mints tokens; `minted` counts the tries."""
    clock, errors = clock or Clock(), list(errors)

    def mint() -> OAuthToken:
        minted.append("tried")
        if len(minted) <= len(errors):
            raise errors[len(minted) - 1]
        return token_at(clock, len(minted))

    return RefreshTokenSource(mint, clock=clock, **settings)


def test_a_token_is_kept_until_shortly_before_it_expires() -> None:
    clock, minted = Clock(), []
    source = source_of(minted, clock, refresh_skew_s=60)
    assert isinstance(source, TokenSource)
    assert (source.token, source(), source("initial")) == (None, "at_1", "at_1")
    clock.now += 3539
    assert source() == "at_1"
    clock.now += 1
    assert (source(), len(minted)) == ("at_2", 2)
    assert source.token is not None
    assert source.token.access_token == "at_2"


def test_a_token_that_was_not_accepted_is_replaced_however_good_it_looks() -> None:
    source = source_of([])
    assert (source(), source("unauthorized"), source()) == ("at_1", "at_2", "at_2")


def test_a_token_in_hand_is_used_first() -> None:
    clock, minted = Clock(), []
    source = source_of(minted, clock, initial_token=token_at(clock, 0))
    assert (source(), minted) == ("at_0", [])
    clock.now += 3600
    assert source() == "at_1"


def test_a_token_that_lives_shorter_than_the_skew_is_not_renewed_each_time() -> None:
    clock, minted = Clock(), []
    source = source_of(minted, clock, refresh_skew_s=60, initial_token=token_at(clock, 0, lifetime=30))
    assert source() == "at_0"
    clock.now += 14
    assert source() == "at_0"
    clock.now += 2
    assert source() == "at_1"


def test_an_early_refresh_that_fails_leaves_the_token_in_use() -> None:
    clock = Clock()
    minted: list[str] = []
    source = source_of(minted, clock, errors=[MantyxNetworkError("down")], initial_token=token_at(clock, 0))
    clock.now += 3550
    assert (source(), source()) == ("at_0", "at_0")
    assert len(minted) == 1, "not tried again for each request"
    clock.now += 11
    assert source() == "at_2"


def test_a_refresh_that_fails_without_a_good_token_raises() -> None:
    clock = Clock()
    source = source_of([], clock, errors=[MantyxNetworkError("down")], initial_token=token_at(clock, 0))
    clock.now += 3601
    with pytest.raises(MantyxNetworkError, match="down"):
        source()
    assert source() == "at_2"


@pytest.mark.parametrize("age", [3550, 3700])
def test_a_revoked_refresh_token_ends_the_source_without_further_requests(age: int) -> None:
    clock = Clock()
    minted: list[str] = []
    refusal = MantyxOAuthError("invalid_grant", "revoked", 400)
    source = source_of(minted, clock, errors=[refusal], initial_token=token_at(clock, 0))
    clock.now += age
    for reason in ("initial", "unauthorized", "initial"):
        with pytest.raises(MantyxOAuthError) as caught:
            source(reason)  # type: ignore[arg-type]
        assert (caught.value.oauth_error, caught.value.status) == ("invalid_grant", 400)
    assert len(minted) == 1
    assert "ended" in repr(source)


def test_another_refusal_does_not_end_the_source() -> None:
    source = source_of([], errors=[MantyxOAuthError("temporarily_unavailable", None, 400)])
    with pytest.raises(MantyxOAuthError):
        source()
    assert source() == "at_2"


def test_one_thread_refreshes_for_all() -> None:
    clock, entered, go = Clock(), threading.Event(), threading.Event()
    minted: list[int] = []

    def mint() -> OAuthToken:
        minted.append(1)
        entered.set()
        assert go.wait(DEADLINE_S)
        return token_at(clock, len(minted))

    source = RefreshTokenSource(mint, clock=clock)
    with ThreadPoolExecutor(16) as pool:
        tokens = [pool.submit(source) for _ in range(16)]
        assert entered.wait(DEADLINE_S)
        go.set()
        assert {token.result(DEADLINE_S) for token in tokens} == {"at_1"}
    assert len(minted) == 1


def test_threads_go_on_with_a_good_token_while_one_renews_it_early() -> None:
    clock, entered, go = Clock(), threading.Event(), threading.Event()

    def mint() -> OAuthToken:
        entered.set()
        assert go.wait(DEADLINE_S)
        return token_at(clock, 1)

    source = RefreshTokenSource(mint, clock=clock, initial_token=token_at(clock, 0))
    clock.now += 3550
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(source)
        assert entered.wait(DEADLINE_S)
        assert source() == "at_0"
        go.set()
        assert first.result(DEADLINE_S) == "at_1"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_of_a_fork_refreshes_although_the_parent_was_at_it() -> None:
    clock, entered, go = Clock(), threading.Event(), threading.Event()
    parent = os.getpid()

    def mint() -> OAuthToken:
        if os.getpid() == parent:
            entered.set()
            assert go.wait(DEADLINE_S)
        return token_at(clock, 1 if os.getpid() == parent else 2)

    source = RefreshTokenSource(mint, clock=clock)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(source)
        assert entered.wait(DEADLINE_S)
        read, write = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # a fork beside threads is what is tried here
            child = os.fork()
        if child == 0:
            try:
                os.write(write, source().encode())
            finally:
                os._exit(0)
        os.close(write)
        with os.fdopen(read) as pipe:
            assert pipe.read() == "at_2"
        os.waitpid(child, 0)
        go.set()
        assert first.result(DEADLINE_S) == "at_1"


# --------------------------------------------------------------------------------------------- single flight


def test_who_waits_for_another_thread_waits_only_so_long() -> None:
    single: SingleFlight[int] = SingleFlight("fetching")
    entered, go = threading.Event(), threading.Event()

    def action() -> int:
        entered.set()
        assert go.wait(DEADLINE_S)
        return 1

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(single.do, action, 1.0)
        assert entered.wait(DEADLINE_S)
        with pytest.raises(MantyxTimeoutError, match=r"not done in 0\.05 s with fetching"):
            single.do(action, 0.05)
        assert single.do(lambda: 2, 1.0, key="another") == 2
        go.set()
        assert first.result(DEADLINE_S) == 1
    assert not single.is_under_way()


@pytest.mark.parametrize("error", [MantyxNetworkError("down"), KeyError("k"), KeyboardInterrupt()])
def test_who_waits_gets_the_error_of_the_other_but_not_its_interrupt(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    single: SingleFlight[int] = SingleFlight("fetching")
    entered, waits, ended = threading.Event(), threading.Event(), []
    wait = flight._Flight.wait_until

    def noted(self: Any, deadline: float) -> bool:
        if threading.current_thread() is not leader:
            waits.set()
        return wait(self, deadline)

    def fails() -> int:
        entered.set()
        assert waits.wait(DEADLINE_S)
        raise error

    def lead() -> None:
        try:
            single.do(fails, 1.0)
        except BaseException as caught:
            ended.append(caught)

    monkeypatch.setattr(flight._Flight, "wait_until", noted)
    leader = threading.Thread(target=lead)
    leader.start()
    assert entered.wait(DEADLINE_S)
    if isinstance(error, KeyboardInterrupt):
        assert single.do(lambda: 2, DEADLINE_S) == 2
    else:
        with pytest.raises(type(error)) as raised:
            single.do(lambda: 2, DEADLINE_S)
        # One of ours is raised anew: a traceback belongs to one thread.
        assert (raised.value is error) is not isinstance(error, MantyxError)
    leader.join(DEADLINE_S)
    assert ended == [error]


# --------------------------------------------------------------------------------------------- behind a 401


class Source:
    """A source of the tokens `t1`, `t2` and so on."""

    def __init__(self) -> None:
        self.number = 1
        self.asked: list[str] = []

    def __call__(self, reason: str = "initial") -> str:
        self.asked.append(reason)
        if reason == "unauthorized":
            self.number += 1
        return f"t{self.number}"


def accepting(*good: str, body: bytes = b'{"ok": true}', stream: bytes | None = None) -> Callable[[Peer], None]:
    """Return a script that answers 401 to any token but those."""

    def script(peer: Peer) -> None:
        while True:
            request = peer.request()
            if request.headers.get("authorization", "")[len("Bearer ") :] not in good:
                peer.send(head(401, content_length=2, content_type="application/json"), b"{}")
            elif stream is None:
                peer.send(head(200, content_length=len(body), content_type="application/json"), body)
            else:
                peer.send(stream_head(), chunk(stream), chunk(b""))

    return script


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_behind_a_401_the_request_goes_out_once_more_with_a_new_token(method: str) -> None:
    source = Source()
    with WireServer(accepting("t2")) as server:
        http = transport(server.url, auth=TokenAuth(source), retries=0)
        found = http.request(method, "/x", body={"a": 1} if method == "POST" else None, repeat=Repeat.ONCE)
        assert found.json() == {"ok": True}
        assert [request.headers["authorization"] for request in server.requests] == ["Bearer t1", "Bearer t2"]
        assert server.requests[0].body == server.requests[1].body
        assert server.connections == 1
        assert http.request("GET", "/x").status == 200
        assert source.asked == ["initial", "initial", "unauthorized", "initial"]
        http.close()


def test_a_stream_is_opened_once_more_with_a_new_token() -> None:
    with WireServer(accepting("t2", stream=b"data: 1\n\n")) as server:
        http = transport(server.url, auth=TokenAuth(Source()))
        body = http.open_stream(server.url + "/s", headers={}, connect_timeout=5, idle_timeout=5, release=Release())
        assert body.read() == b"data: 1\n\n"
        body.close()
        assert len(server.requests) == 2
        http.close()


def test_a_second_401_is_the_answer() -> None:
    source = Source()
    with WireServer(accepting()) as server:
        http = transport(server.url, auth=TokenAuth(source))
        with pytest.raises(MantyxAuthError):
            http.request("GET", "/x")
        assert len(server.requests) == 2
        http.close()


def test_a_source_without_another_token_costs_no_second_request() -> None:
    with WireServer(accepting()) as server:
        http = transport(server.url, auth=TokenAuth(lambda reason: "same"))
        with pytest.raises(MantyxAuthError):
            http.request("GET", "/x")
        assert len(server.requests) == 1
        http.close()


def test_a_static_credential_is_not_renewed() -> None:
    with WireServer(accepting()) as server:
        http = transport(server.url)
        with pytest.raises(MantyxAuthError):
            http.request("GET", "/x")
        assert len(server.requests) == 1
        http.close()


def test_what_the_source_raises_is_passed_on_and_the_connection_freed() -> None:
    def source(reason: str) -> str:
        if reason == "unauthorized":
            raise MantyxOAuthError("invalid_grant", "revoked", 400)
        return "t1"

    with WireServer(accepting()) as server:
        http = transport(server.url, auth=TokenAuth(source))
        with pytest.raises(MantyxOAuthError, match="invalid_grant"):
            http.request("GET", "/x")
        wait_until(lambda: server.open_connections == 0, "the connection of the refused answer stays open")
        http.close()


@pytest.mark.parametrize("token", ["", " ", None, 5, "t\nX: y", "t\u00e9"])
def test_a_source_must_return_what_a_header_can_carry(token: Any) -> None:
    with WireServer(answer()) as server:
        http = transport(server.url, auth=TokenAuth(lambda reason: token))
        with pytest.raises(MantyxConfigError, match=r"^token_source: "):
            http.request("GET", "/x")
        assert server.requests == []
        http.close()


def test_many_401s_at_once_cause_one_renewal() -> None:
    source, all_there = Source(), threading.Barrier(12)

    def script(peer: Peer) -> None:
        while True:
            request = peer.request()
            if request.headers["authorization"] == "Bearer t1":
                all_there.wait(DEADLINE_S)
                peer.send(head(401, content_length=0))
            else:
                peer.send(head(200, content_length=2, content_type="application/json"), b"{}")

    with WireServer(script) as server:
        http = transport(server.url, auth=TokenAuth(source))
        with ThreadPoolExecutor(12) as pool:
            answers = [pool.submit(http.request, "GET", "/x") for _ in range(12)]
            assert [found.result(DEADLINE_S).status for found in answers] == [200] * 12
        assert source.asked.count("unauthorized") == 1
        http.close()


def test_a_401_of_an_old_token_behind_its_renewal_causes_no_other() -> None:
    source = Source()
    auth = TokenAuth(source)

    class Request:
        headers = {"Authorization": "Bearer t1"}

    late: Any = Request()
    source("unauthorized")
    assert auth.renew(late)
    assert late.headers["Authorization"] == "Bearer t2"
    assert source.asked.count("unauthorized") == 1
    assert repr(late.headers) == "{'Authorization': '***'}"


def test_releasing_a_stream_does_not_end_the_refresh_that_others_wait_for(refreshes: Any) -> None:
    asked, go = threading.Event(), threading.Event()

    def endpoint(peer: Peer) -> None:
        peer.request()
        asked.set()
        peer.wait(go)
        peer.send(head(200, content_length=len(GOOD), content_type="application/json"), GOOD)
        peer.stay()

    tokens, client = refreshes(endpoint)
    source = client.refresh_token_source(refresh_token=REFRESH)
    release = Release()
    with WireServer(accepting("mantyx_at_1", stream=b"data: 1\n\n")) as server:
        http = transport(server.url, auth=TokenAuth(source))

        def open_stream() -> bytes:
            body = http.open_stream(server.url + "/s", headers={}, connect_timeout=5, idle_timeout=5, release=release)
            try:
                return body.read()
            finally:
                body.close()

        with ThreadPoolExecutor(2) as pool:
            stream = pool.submit(open_stream)
            assert asked.wait(DEADLINE_S)
            other = pool.submit(source)
            release()
            go.set()
            assert other.result(DEADLINE_S) == "mantyx_at_1"
            assert stream.exception(DEADLINE_S) is not None or stream.result() == b""
        assert len(tokens.requests) == 1
        http.close()


def test_secret_text_is_text() -> None:
    secret = Secret("mantyx_at_1")
    assert (secret, f"{secret}", repr(secret)) == ("mantyx_at_1", "mantyx_at_1", "'***'")


# --------------------------------------------------------------------------------------------- the embedded server


@pytest.fixture
def local() -> Iterator[tuple[LocalServer, MantyxOAuthClient]]:
    """An embedded server that knows one app with two refresh tokens, and the app's client."""
    app = OAuthApp("mantyx_oa_1", SECRET, refresh_tokens={REFRESH: SCOPES, "mantyx_rt_small": ["models:read"]})
    with LocalServer(oauth_apps=[app]) as server:
        client = oauth_client(server.url)
        yield server, client
        client.close()


def models(server: LocalServer, source: TokenSource) -> HttpTransport:
    http = transport(server.url, auth=TokenAuth(source))
    assert http.request("GET", f"/api/v1/workspaces/{server.workspace_slug}/models").json()["models"] is not None
    return http


def test_a_source_keeps_a_client_of_the_embedded_server_going(local: Any) -> None:
    server, client = local
    source = client.refresh_token_source(refresh_token=REFRESH)
    http = models(server, source)
    first = source.token
    server.expire_tokens()
    models(server, source).close()
    assert source.token.access_token != first.access_token
    assert source.token.refresh_token == REFRESH
    http.close()


def test_revoking_the_refresh_token_ends_its_source(local: Any) -> None:
    server, client = local
    source = client.refresh_token_source(refresh_token=REFRESH)
    http = models(server, source)
    client.revoke(token=REFRESH)
    for _ in range(2):
        with pytest.raises(MantyxOAuthError) as caught:
            http.request("GET", f"/api/v1/workspaces/{server.workspace_slug}/models")
        assert caught.value.oauth_error == "invalid_grant"
    tokens = [request for request in server.requests if request.route == "oauth_token"]
    assert len(tokens) == 2
    http.close()


def test_a_scope_that_is_lacking_is_named(local: Any) -> None:
    server, client = local
    http = models(server, client.refresh_token_source(refresh_token="mantyx_rt_small"))
    with pytest.raises(MantyxScopeError) as caught:
        http.request("GET", f"/api/v1/workspaces/{server.workspace_slug}/agent-runs")
    assert caught.value.required_scopes == ("runs:read",)
    with pytest.raises(MantyxOAuthError, match="invalid_scope"):
        client.refresh(refresh_token="mantyx_rt_small", scope="runs:read")
    http.close()


def test_a_wrong_secret_is_refused(local: Any) -> None:
    server, _ = local
    with oauth_client(server.url, client_secret="wrong") as client, pytest.raises(MantyxOAuthError) as caught:
        client.refresh(refresh_token=REFRESH)
    assert (caught.value.oauth_error, caught.value.status) == ("invalid_client", 401)
