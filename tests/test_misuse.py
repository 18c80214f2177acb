"""Wrong arguments of every kind: one sentence that says what is wrong, and no error of a library's own."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest
import requests

from mantyx_sync import MantyxClient, MantyxConfigError, MantyxNetworkError, MantyxNotFoundError
from mantyx_sync.settings import ClientSettings
from mantyx_sync.transport.url import BaseURL, segment
from tests.scripted_runs import SPEC, RunServer, delta, quick_client, refusal, reply, result, stream
from tests.wire import Peer, Request, unused_port

pytestmark = pytest.mark.usefixtures("no_leaks")

HALF_A_PAIR = "\ud800"
CREDENTIALS: dict[str, Any] = {"api_key": "key", "workspace_slug": "w", "base_url": "http://127.0.0.1:9"}


@pytest.fixture
def server() -> Iterator[RunServer]:
    missing = [refusal(404, "not_found")]
    scripts: dict[str, Any] = {"snapshots": missing, "cancel": missing}
    with RunServer(stream(delta(1, "Hi"), result(2)), **scripts) as running:
        yield running


@pytest.fixture
def client(server: RunServer) -> Iterator[MantyxClient]:
    with quick_client(server) as made:
        yield made


# Text that is no Unicode


@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.get_run(HALF_A_PAIR),
        lambda client: client.cancel_run(HALF_A_PAIR),
        lambda client: client.attach_run(HALF_A_PAIR).result(timeout=10),
        lambda client: client.submit_run_feedback(HALF_A_PAIR, "UP"),
        lambda client: client.get_session_info(HALF_A_PAIR),
        lambda client: client.end_session(HALF_A_PAIR),
    ],
)
def test_an_id_that_is_no_unicode_text_is_one_that_the_server_does_not_know(ask: Callable[[MantyxClient], Any]) -> None:
    missing = [refusal(404, "not_found")]
    server = RunServer(*missing, snapshots=missing, cancel=missing)
    with server, quick_client(server) as client, pytest.raises(MantyxNotFoundError):
        ask(client)


def test_a_filter_that_is_no_unicode_text_is_sent(server: RunServer, client: MantyxClient) -> None:
    assert list(client.list_runs(status=HALF_A_PAIR, metadata={"a": HALF_A_PAIR})) == []
    assert server.requests["list"][0].target.count("%ED%A0%80") == 2


def test_a_workspace_that_is_no_unicode_text_makes_a_client() -> None:
    MantyxClient(**{**CREDENTIALS, "workspace_slug": HALF_A_PAIR}).close()
    assert segment(HALF_A_PAIR) == "%ED%A0%80"
    assert BaseURL("http://x").join("/", {"a": [HALF_A_PAIR]}) == "http://x/?a=%ED%A0%80"


# Times


@pytest.mark.parametrize("name", ["timeout", "stream_idle_timeout", "reconnect_timeout"])
@pytest.mark.parametrize("value", [10**400, 1e300, float("inf"), 10 * threading.TIMEOUT_MAX])
def test_a_time_beyond_what_clocks_can_count_is_refused(name: str, value: Any) -> None:
    with pytest.raises(MantyxConfigError, match=f"^{name}: got .+, must be at most [0-9]+ seconds$"):
        ClientSettings(**{name: value})


@pytest.mark.parametrize("value", [1e9, threading.TIMEOUT_MAX])
def test_the_longest_times_can_be_waited_for(server: RunServer, value: Any) -> None:
    options: dict[str, Any] = {"timeout": value, "stream_idle_timeout": value, "reconnect_timeout": value}
    with MantyxClient(**{**CREDENTIALS, "base_url": server.url}, **options) as client:
        assert client.run_agent(**SPEC).text == "Done."


def test_a_long_time_does_not_wrap_round_to_a_short_one() -> None:
    def slow(peer: Peer, request: Request) -> None:
        threading.Event().wait(0.9)
        reply(202, {"runId": "run_1"})(peer, request)

    def slow_stream(peer: Peer, request: Request) -> None:
        threading.Event().wait(0.9)
        stream(result(1))(peer, request)

    too_long_for_31_bits = 2**32 / 1000 + 0.5  # in milliseconds; what is left of it is half a second
    options: dict[str, Any] = {"timeout": too_long_for_31_bits, "stream_idle_timeout": too_long_for_31_bits}
    with RunServer(slow_stream, create=[slow]) as server:
        with MantyxClient(**{**CREDENTIALS, "base_url": server.url}, **options) as client:
            assert client.run_agent(**SPEC).text == "Done."
        assert len(server.stream_requests) == 1


def test_an_eval_may_be_given_any_time() -> None:
    created = reply(202, {"runId": "ev_1"})
    answers = [created, refusal(404, "not_found")]
    with RunServer(other=answers) as server, quick_client(server) as client, pytest.raises(MantyxNotFoundError):
        client.run_eval(dataset_id="d", agent_id="a", timeout=10**400, poll_interval_s=10**400)


# A session that cannot be used


@pytest.mark.parametrize("session", [0, "x", object(), requests.Session])
def test_a_session_that_is_none_is_refused(session: Any) -> None:
    with pytest.raises(MantyxConfigError, match=r"^session: got .+, must be an instance of requests\.Session$"):
        MantyxClient(**CREDENTIALS, session=session)


@pytest.mark.parametrize("pair", [False, True])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_client_certificate_that_is_missing_is_named(when: str, pair: bool, tmp_path: Path) -> None:
    path = str(tmp_path / "client.pem")
    with requests.Session() as session:
        if when == "before":
            session.cert = (path, path) if pair else path

        def use() -> None:
            client = MantyxClient(**{**CREDENTIALS, "base_url": "https://127.0.0.1:9"}, session=session)
            session.cert = (path, path) if pair else path
            client.run_agent(**SPEC)

        with pytest.raises(MantyxConfigError, match=r"^session\.cert: no file at '.+client\.pem'$"):
            use()


def test_a_session_without_an_adapter_for_the_url_means_that_nothing_was_sent() -> None:
    with requests.Session() as session:
        session.adapters.clear()
        client = MantyxClient(**CREDENTIALS, session=session)
        with pytest.raises(MantyxNetworkError, match=r"cannot be sent \(InvalidSchema\)") as caught:
            client.run_agent(**SPEC)
    assert caught.value.sent is False


def test_an_address_that_the_library_cannot_read_means_that_nothing_was_sent() -> None:
    client = MantyxClient(**{**CREDENTIALS, "base_url": "http://[v1.x]:1"})
    with pytest.raises(MantyxNetworkError, match="cannot be sent") as caught:
        client.run_agent(**SPEC)
    assert caught.value.sent is False


# Bodies


def _containing_itself() -> Any:
    value: dict[str, Any] = {}
    value["a"] = value
    return value


def _deep() -> Any:
    value: dict[str, Any] = {}
    for _ in range(100_000):
        value = {"a": value}
    return value


@pytest.mark.parametrize("body", [_containing_itself(), _deep(), {"a": float("nan")}])
def test_a_body_without_a_json_form_is_refused_before_it_is_sent(
    body: Any, server: RunServer, client: MantyxClient
) -> None:
    with pytest.raises(MantyxConfigError, match=r"^the request's body cannot be written as JSON: "):
        client.request("POST", "/agent-runs", json=body)
    assert server.count("create") == 0


def test_a_number_of_too_many_digits_is_refused_or_sent_but_no_error_of_its_own() -> None:
    created = reply(202, {"runId": "run_1"})
    with RunServer(stream(result(1)), create=[created]) as server, quick_client(server) as client:
        try:
            client.run_agent(**SPEC, extra_body={"a": 10**5000})
        except MantyxConfigError as error:
            assert "cannot be written as JSON" in str(error)  # noqa: PT017 - versions of Python differ


# Callbacks, and requests of one's own


@pytest.mark.parametrize(
    ("ask", "name"),
    [
        (lambda client: client.run_agent(**SPEC, on_event=0), "on_event"),
        (lambda client: client.run_agent(**SPEC, on_assistant_delta="print"), "on_assistant_delta"),
        (lambda client: client.run_plan(**SPEC, on_event=0), "on_event"),
        (lambda client: client.run_eval(dataset_id="d", agent_id="a", on_event=0), "on_event"),
    ],
)
def test_a_callback_that_cannot_be_called_is_refused_before_anything_is_sent(
    ask: Callable[[MantyxClient], Any], name: str, server: RunServer, client: MantyxClient
) -> None:
    with pytest.raises(MantyxConfigError, match=f"^{name}: got .+, must be a function$"):
        ask(client)
    assert not any(server.requests.values())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": None}, "method: got None, must be the name of an HTTP method"),
        ({"method": "GET /"}, "method: got 'GET /', must be the name of an HTTP method"),
        ({"path": None}, "path: got None, must start with a slash"),
        ({"path": b"/x"}, "path: got bytes, must start with a slash"),
        ({"params": -1}, "params: got -1, must be a mapping of names to values"),
        ({"timeout": 0}, "timeout: got 0, must be a number of seconds above 0"),
        ({"timeout": "x"}, "timeout: got 'x', must be a number of seconds above 0"),
        ({"timeout": (1,)}, "timeout: got (1,), must be seconds or (connect, read)"),
        ({"timeout": 10**400}, "timeout: got a huge integer, must be at most"),
    ],
)
def test_a_request_of_ones_own_that_cannot_be_is_refused(
    arguments: Any, message: str, server: RunServer, client: MantyxClient
) -> None:
    with pytest.raises(MantyxConfigError) as caught:
        client.request(**{"method": "GET", "path": "/x", **arguments})
    assert str(caught.value).startswith(message)
    assert not any(server.requests.values())


# Addresses that lead nowhere


def test_a_server_that_is_away_is_named() -> None:
    port = unused_port()
    client = MantyxClient(**{**CREDENTIALS, "base_url": f"http://127.0.0.1:{port}"}, max_retries=0)
    with pytest.raises(MantyxNetworkError, match=f"no connection to http://127.0.0.1:{port} could be opened "):
        client.list_models()


@pytest.mark.parametrize("proxy", ["http://user:secret@127.0.0.1:{port}", "http://127.0.0.1:{port}/"])
def test_a_proxy_that_is_away_is_named_without_its_password(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    port = unused_port()
    monkeypatch.setenv("http_proxy", proxy.format(port=port))
    monkeypatch.setenv("no_proxy", "")
    client = MantyxClient(**CREDENTIALS, max_retries=0)
    with pytest.raises(MantyxNetworkError, match=f" through the proxy 127.0.0.1:{port} could be") as caught:
        client.list_models()
    assert "secret" not in str(caught.value)


def test_a_proxy_that_cannot_be_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:99999")
    monkeypatch.setenv("no_proxy", "")
    client = MantyxClient(**CREDENTIALS)
    with pytest.raises(MantyxNetworkError, match=r"cannot be sent to .+ through the proxy 127\.0\.0\.1:99999"):
        client.list_models()


def test_a_client_without_settings_is_told_all_of_them_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MANTYX_API_KEY", "MANTYX_ACCESS_TOKEN", "MANTYX_WORKSPACE_SLUG"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(MantyxConfigError, match=r"api_key and workspace_slug: missing.*LocalServer"):
        MantyxClient()
    with pytest.raises(MantyxConfigError, match="workspace_slug: missing"):
        MantyxClient(api_key="k")
    with pytest.raises(MantyxConfigError, match="api_key: missing"):
        MantyxClient(workspace_slug="w")
