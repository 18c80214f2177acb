"""Agent cards: which interface is chosen, where cards are found, and which addresses they may name."""

from __future__ import annotations

import ipaddress
import json
import socket
import threading
from typing import Any, Optional

import pytest

from mantyx_sync.a2a import (
    A2AAuthError,
    A2ACancelled,
    A2ACardError,
    A2AClient,
    A2AConnectionError,
    A2ATimeoutError,
    AgentCard,
)
from mantyx_sync.a2a.client.addresses import (
    Guard,
    GuardedRelease,
    guard_for,
    shown_url,
    zone_of,
    zones_of_host,
)
from mantyx_sync.a2a.client.card import card_addresses
from mantyx_sync.a2a.dialects import V03, V1
from mantyx_sync.errors import MantyxConfigError
from mantyx_sync.transport.url import origin_of

from .a2a_agents import Agent, Raw, always, card_v03, card_v1, message_v1
from .wire import silent_port, unused_port

pytestmark = pytest.mark.usefixtures("no_leaks")

RPC = "https://agent.example/rpc"


def interface(version: Optional[str], url: str = RPC, binding: str = "JSONRPC", **more: Any) -> dict[str, Any]:
    return {"url": url, "protocolBinding": binding, **({"protocolVersion": version} if version else {}), **more}


def chosen(card: Any, url: str = "https://agent.example/card.json") -> tuple[str, Any]:
    endpoint = AgentCard.from_wire(card, url).endpoint()
    return endpoint.url, endpoint.dialect


# ------------------------------------------------------------------------------------------- choosing


@pytest.mark.parametrize(
    ("card", "url", "dialect"),
    [
        (card_v1(RPC), RPC, V1),
        (card_v03(RPC), RPC, V03),
        ({"name": "x", "url": RPC}, RPC, V03),
        ({"name": "x", "url": RPC, "protocolVersion": "0.2.5"}, RPC, V03),
        ({"name": "x", "url": RPC, "protocolVersion": "1.0"}, RPC, V1),
        ({"name": "x", "supportedInterfaces": [interface("1.0.0")]}, RPC, V1),
        ({"name": "x", "supportedInterfaces": [interface(None)]}, RPC, V1),
        ({"name": "x", "supportedInterfaces": [interface("0.3")]}, RPC, V03),
        ({"name": "x", "supportedInterfaces": [interface("1.0", binding="jsonrpc")]}, RPC, V1),
        # The merged card of the official package: 1.0 wins, whatever the order.
        (
            {**card_v03("https://x/old"), "supportedInterfaces": [interface("0.3", RPC + "3"), interface("1.0")]},
            RPC,
            V1,
        ),
        ({"name": "x", "supportedInterfaces": [interface(None, RPC + "0"), interface("0.3")]}, RPC, V03),
        ({"name": "x", "supportedInterfaces": [interface("0.3", RPC + "3"), interface("1.4")]}, RPC, V1),
        ({"name": "x", "supportedInterfaces": [interface("1.4", RPC + "4"), interface("1.0")]}, RPC, V1),
        ({"name": "x", "supportedInterfaces": [interface("1.0"), interface("1.0", RPC + "b")]}, RPC, V1),
        ({"name": "x", "supportedInterfaces": [interface("1.0", "g", "GRPC"), interface("1.0")]}, RPC, V1),
        ({**card_v03(RPC), "supportedInterfaces": [interface("1.0", "grpc://x", "GRPC")]}, RPC, V03),
        (
            {
                **card_v03("grpc://x"),
                "preferredTransport": "GRPC",
                "additionalInterfaces": [{"url": RPC, "transport": "JSONRPC"}],
            },
            RPC,
            V03,
        ),
        ({"name": "x", "supportedInterfaces": [interface("1.0", "/rpc")]}, RPC, V1),
        ({"name": "x", "supportedInterfaces": [interface("1.0", "rpc")]}, RPC, V1),
        ({"name": "x", "supportedInterfaces": [None, {"url": 3}, interface("1.0")], "capabilities": 7}, RPC, V1),
    ],
)  # fmt: skip
def test_the_interface_is_chosen(card: Any, url: str, dialect: Any) -> None:
    assert chosen(card) == (url, dialect)


@pytest.mark.parametrize(
    ("card", "words"),
    [
        ({"name": "x"}, "offers nothing"),
        ({"name": "x", "supportedInterfaces": [interface("1.0", binding="GRPC")]}, "offers GRPC 1.0"),
        ({"name": "x", "supportedInterfaces": [interface("2.0")]}, "offers JSONRPC 2.0"),
        ({**card_v03(RPC), "preferredTransport": "HTTP+JSON"}, "offers HTTP+JSON 0.3"),
    ],
)
def test_a_card_without_a_usable_interface_says_what_it_offers(card: Any, words: str) -> None:
    with pytest.raises(A2ACardError, match="what is needed is JSONRPC") as caught:
        chosen(card)
    assert caught.value.code == "no_interface"
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "ftp://x/y", "https://u:secret@x/", "https://a b/", "https://x:99999/", "\\\\x"]
)
def test_an_endpoint_that_is_no_http_url_is_refused(url: str) -> None:
    with pytest.raises(A2ACardError, match="its endpoint"):
        chosen({"name": "x", "supportedInterfaces": [interface("1.0", url)]})


def test_a_relative_endpoint_needs_a_card_with_an_address() -> None:
    with pytest.raises(A2ACardError, match="not an absolute"):
        AgentCard.from_wire({"name": "x", "url": "/rpc"}).endpoint()


@pytest.mark.parametrize("value", [None, [], "x", {}, {"name": ""}, {"name": 3}])
def test_what_is_no_card_is_refused(value: Any) -> None:
    with pytest.raises(A2ACardError, match="not an agent card"):
        AgentCard.from_wire(value)


def test_a_card_tells_what_the_agent_can() -> None:
    wire = card_v1(RPC, True, somethingNew=[1])
    wire["capabilities"].update(pushNotifications=True, extendedAgentCard=True)
    card = AgentCard.from_wire(wire, "https://agent.example/card.json")
    assert (card.name, card.version, card.description) == ("Test agent", "1.2.3", "Answers tests.")
    assert (card.streaming, card.push_notifications, card.extended_card) == (True, True, True)
    assert [(skill.id, skill.tags) for skill in card.skills] == [("s", ("t",))]
    assert card.raw["somethingNew"] == [1]
    assert AgentCard.from_wire({**card_v03(RPC), "supportsAuthenticatedExtendedCard": True}).extended_card
    assert not AgentCard.from_wire({"name": "x", "capabilities": {"streaming": "yes"}, "skills": 3}).streaming


# ------------------------------------------------------------------------------------------- finding


@pytest.mark.parametrize(
    ("url", "addresses"),
    [
        ("https://x/", ["https://x/", "https://x/.well-known/agent-card.json", "https://x/.well-known/agent.json"]),
        ("https://x/a/", ["https://x/a/", "https://x/a/.well-known/agent-card.json", "https://x/a/.well-known/agent.json"]),
        ("https://x/a/card.json", ["https://x/a/card.json"]),
        ("https://x/CARD.JSON?v=1", ["https://x/CARD.JSON?v=1"]),
        ("https://x/a?k=1", ["https://x/a?k=1", "https://x/a/.well-known/agent-card.json?k=1", "https://x/a/.well-known/agent.json?k=1"]),
    ],
)  # fmt: skip
def test_where_cards_are_looked_for(url: str, addresses: list[str]) -> None:
    assert card_addresses(url) == addresses


def page(card: Any) -> Raw:
    return Raw(body=json.dumps(card).encode())


@pytest.mark.parametrize(
    ("at", "given"),
    [
        ("/.well-known/agent-card.json", ""),
        ("/.well-known/agent.json", ""),
        ("/team/a/.well-known/agent-card.json", "/team/a"),
        ("/team/a/.well-known/agent.json", "/team/a/"),
        ("/team/a", "/team/a"),
        ("/my/card.json", "/my/card.json"),
        ("/.well-known/agent-card.json", "/.well-known/agent-card.json"),
    ],
)
def test_the_card_is_found(at: str, given: str) -> None:
    with Agent(pages={at: page({"name": "Found", "url": "/rpc"})}) as agent, A2AClient(agent.url + given) as client:
        assert client.card.name == "Found"
        assert client.card.url == agent.url + at
        assert client.card is client.card
        assert [seen.path for seen in agent.seen][-1] == at
        assert {seen.headers["A2A-Version"] for seen in agent.seen} == {"1.0"}


@pytest.mark.parametrize(
    ("first", "words"),
    [
        (Raw(404), "HTTP 404"),
        (Raw(405), "HTTP 405"),
        (Raw(200, b"<html>"), "no JSON"),
        (Raw(200, b'{"hello": 1}'), "no agent card"),
        (Raw(200, b"[]"), "no agent card"),
        (Raw(302, headers={"Location": "http://127.0.0.2/login"}), "redirects (302) to http://127.0.0.2"),
        (Raw(307, headers={"Location": "https://elsewhere.example/"}), "redirects (307) to https://elsewhere.example"),
        (Raw(301), "redirects (301)"),
    ],
)
def test_what_is_no_card_at_the_given_address_is_passed_by(first: Raw, words: str) -> None:
    pages = {"/": first}
    with Agent(pages=pages) as agent, A2AClient(agent.url, headers={"X-Key": "secret"}) as client:
        with pytest.raises(A2ACardError, match="no agent card found") as caught:
            _ = client.card
        assert caught.value.code == "card_not_found"
        assert [address for address, _ in caught.value.attempts] == [
            agent.url + "/",
            agent.url + "/.well-known/agent-card.json",
            agent.url + "/.well-known/agent.json",
        ]
        assert words in caught.value.attempts[0][1]
        assert words in str(caught.value)
        agent.pages["/.well-known/agent.json"] = page(card_v1(agent.url + "/rpc"))
        assert client.card.name == "Test agent"


def test_401_ends_the_search_and_names_credentials() -> None:
    pages = {"/": Raw(401), "/.well-known/agent-card.json": page({"name": "x", "url": "/rpc"})}
    with Agent(pages=pages) as agent, A2AClient(agent.url) as client:
        with pytest.raises(A2AAuthError, match="credentials"):
            _ = client.card
        assert len(agent.seen) == 1


def test_403_counts_only_if_there_is_no_card_elsewhere() -> None:
    with Agent(pages={"/": Raw(403)}) as agent, A2AClient(agent.url) as client:
        with pytest.raises(A2AAuthError, match="credentials") as caught:
            _ = client.card
        assert caught.value.status == 403
        agent.pages["/.well-known/agent.json"] = page(card_v1(agent.url + "/rpc"))
        assert client.card.name == "Test agent"


def test_redirects_within_the_origin_are_followed_a_few_times() -> None:
    pages = {
        "/": Raw(308, headers={"Location": "/agent/"}),
        "/agent/": Raw(307, headers={"Location": "card"}),
        "/agent/card": page({"name": "x", "url": "/rpc"}),
        "/loop": Raw(307, headers={"Location": "/loop"}),
    }
    with Agent(pages=pages) as agent:
        with A2AClient(agent.url) as client:
            assert client.card.name == "x"
        with A2AClient(agent.url + "/loop") as client, pytest.raises(A2ACardError, match="more than 3 redirects"):
            _ = client.card


def test_a_card_that_cannot_be_fetched_is_a_connection_error() -> None:
    url = f"http://127.0.0.1:{unused_port()}"
    with A2AClient(url, max_retries=0) as client, pytest.raises(A2AConnectionError, match="no connection") as caught:
        _ = client.card
    assert caught.value.sent is False


def test_a_card_that_does_not_come_is_a_timeout() -> None:
    with silent_port() as port:
        with A2AClient(f"http://127.0.0.1:{port}", timeout=0.2) as client, pytest.raises(A2ATimeoutError):
            client.send("hi")
        cancelled = threading.Event()
        cancelled.set()
        with A2AClient(f"http://127.0.0.1:{port}") as client, pytest.raises(A2ACancelled):
            client.send("hi", cancelled=cancelled)


def test_a_card_that_is_too_large_is_no_card() -> None:
    pages = {"/": Raw(200, b'{"name": "' + b"x" * (4 * 1024 * 1024) + b'"}')}
    with Agent(pages=pages) as agent, A2AClient(agent.url) as client, pytest.raises(A2ACardError, match="larger than"):
        _ = client.card


def test_a_server_that_is_starting_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mantyx_sync.a2a.client.discovery.random.random", lambda: 0.0)
    with Agent() as agent:
        agent.pages["/"] = Raw(503)
        with A2AClient(agent.url) as client:
            assert client.card.name == "Test agent"
        assert [seen.path for seen in agent.seen].count("/") == 3


def test_a_card_can_be_fetched_again() -> None:
    with Agent(pages={"/": page({"name": "One", "url": "/a"})}) as agent, A2AClient(agent.url) as client:
        assert client.card.name == "One"
        agent.pages["/"] = page({"name": "Two", "url": "/b"})
        assert client.card.name == "One"
        assert client.refresh_card().name == "Two"
        assert client.card.name == "Two"
        agent.pages.clear()
        with pytest.raises(A2ACardError):
            client.refresh_card()
        assert client.card.name == "Two"


@pytest.mark.parametrize("version", ["1.0", "0.3"])
def test_a_card_that_is_given_is_not_fetched(version: str) -> None:
    method = "SendMessage" if version == "1.0" else "message/send"
    with Agent({method: always({"message": message_v1("hello")})}, version=version) as agent:
        with A2AClient(card=agent.card, headers={"X-Key": "k"}) as client:
            assert client.send("hi").text == "hello"
            assert repr(client) == f"A2AClient(card={agent.card['name']!r})"
        assert [seen.verb for seen in agent.seen] == ["POST"]
        assert agent.seen[0].headers["X-Key"] == "k"
        with A2AClient(card=AgentCard.from_wire(agent.card)) as client:
            assert client.send("hi").text == "hello"
        relative = {"name": "x", "url": "rpc", "protocolVersion": version}
        with A2AClient(agent.url + "/base/", card=relative) as client:
            assert client.send("hi").text == "hello"
        assert agent.seen[-1].path == "/base/rpc"


# ------------------------------------------------------------------------------------------- origins


def test_credentials_do_not_leave_the_card_s_origin() -> None:
    answer = always({"message": message_v1("hello")})
    with Agent({"SendMessage": answer}) as other:
        pages = {"/card.json": page(card_v1(other.url + "/rpc"))}
        with Agent(pages=pages) as agent:
            headers = {"Authorization": "Bearer secret", "X-Api-Key": "secret"}
            with A2AClient(agent.url + "/card.json", headers=headers) as client:
                assert client.send("hi").text == "hello"
            assert agent.seen[0].headers["Authorization"] == "Bearer secret"
            assert not set(other.seen[0].headers) & set(headers)
            assert other.seen[0].headers["A2A-Version"] == "1.0"
            other.methods["SendMessage"] = always(Raw(401, b'{"error": "who are you?"}'))
            client = A2AClient(agent.url + "/card.json", headers=headers)
            with client, pytest.raises(A2AAuthError, match="trust_other_origin=True sends them"):
                client.send("hi")
            other.methods["SendMessage"] = answer
            with A2AClient(agent.url + "/card.json", headers=headers, trust_other_origin=True) as client:
                assert client.send("hi").text == "hello"
            assert other.seen[-1].headers["X-Api-Key"] == "secret"


def test_what_a_session_carries_does_not_leave_either() -> None:
    import requests

    with requests.Session() as session, Agent({"SendMessage": always({"message": message_v1("hello")})}) as other:
        session.headers["X-Api-Key"] = "secret"
        with Agent(pages={"/card.json": page(card_v1(other.url + "/rpc"))}) as agent:
            with A2AClient(agent.url + "/card.json", session=session) as client:
                assert client.send("hi").text == "hello"
            assert agent.seen[0].headers["X-Api-Key"] == "secret"
            assert "X-Api-Key" not in other.seen[0].headers
            assert session.headers["X-Api-Key"] == "secret"


@pytest.mark.parametrize(
    ("address", "zone"),
    [
        ("127.0.0.1", "loopback"),
        ("127.9.9.9", "loopback"),
        ("0.0.0.0", "loopback"),
        ("::1", "loopback"),
        ("::", "loopback"),
        ("::ffff:127.0.0.1", "loopback"),
        ("64:ff9b::7f00:1", "loopback"),
        ("2002:7f00:1::", "loopback"),
        ("169.254.169.254", "link-local"),
        ("fe80::1", "link-local"),
        ("10.1.2.3", "private"),
        ("172.16.0.1", "private"),
        ("192.168.1.1", "private"),
        ("100.64.0.1", "private"),
        ("fd00::1", "private"),
        ("224.0.0.1", "private"),
        ("8.8.8.8", "public"),
        ("2001:4860:4860::8888", "public"),
    ],
)
def test_addresses_have_zones(address: str, zone: str) -> None:
    assert zone_of(ipaddress.ip_address(address)) == zone
    assert zones_of_host(address) == {zone}


@pytest.mark.parametrize("host", ["localhost", "a.localhost", "2130706433", "0x7f000001", "127.1"])
def test_odd_names_of_this_machine_are_seen_through(host: str) -> None:
    assert zones_of_host(host) == {"loopback"}


def test_a_name_without_an_address_has_no_zone() -> None:
    assert zones_of_host("does-not-exist.invalid") == frozenset()


@pytest.mark.parametrize(
    ("card", "endpoint", "refused"),
    [
        ("https://8.8.8.8/", "http://127.0.0.1:1/", "loopback"),
        ("https://8.8.8.8/", "http://localhost/", "loopback"),
        ("https://8.8.8.8/", "http://2130706433/", "loopback"),
        ("https://8.8.8.8/", "http://[::1]/", "loopback"),
        ("https://8.8.8.8/", "http://[::ffff:10.0.0.1]/", "private"),
        ("https://8.8.8.8/", "http://169.254.169.254/latest", "link-local"),
        ("https://8.8.8.8/", "http://192.168.0.1/", "private"),
        ("https://does-not-exist.invalid/", "http://127.0.0.1/", "loopback"),
        ("https://8.8.8.8/", "https://1.1.1.1/", None),
        ("https://10.0.0.1/", "http://127.0.0.1/", "loopback"),
        ("https://10.0.0.1/", "http://169.254.169.254/", "link-local"),
        ("https://10.0.0.1/", "http://192.168.0.1/", None),
        ("https://10.0.0.1/", "https://8.8.8.8/", None),
        ("http://127.0.0.1:1/", "http://localhost:2/", None),
        ("http://127.0.0.1:1/", "http://10.0.0.1/", None),
        ("http://127.0.0.1:1/", "http://169.254.169.254/", "link-local"),
    ],
)
def test_a_card_names_no_address_further_inside_than_itself(card: str, endpoint: str, refused: Optional[str]) -> None:
    guard = guard_for(card, endpoint)
    assert guard is not None
    assert guard.refused_zone(origin_of(endpoint).host) == refused
    given = card_v1(endpoint)
    with A2AClient(card, card=given) as client:
        if refused is None:
            assert client.card.name == "Test agent"
        else:
            with pytest.raises(A2ACardError, match="must not name") as caught:
                client.send("hi")
            assert caught.value.code == "address_refused"
    with A2AClient(card, card=given, trust_other_origin=True) as client:
        assert client.card.name == "Test agent"


def test_a_card_may_name_its_own_host() -> None:
    assert guard_for("http://127.0.0.1:1/", "http://127.0.0.1:2/x") is None


def test_a_name_that_changes_its_address_meanwhile_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with Agent({"SendMessage": always({"message": message_v1("inside")})}) as agent:
        port = origin_of(agent.url).port
        monkeypatch.setattr("mantyx_sync.a2a.client.addresses.zones_of_host", lambda host: frozenset({"public"}))
        card = card_v1(f"http://localhost:{port}/rpc")
        with A2AClient("https://8.8.8.8/", card=card, max_retries=0) as client:
            for _ in range(2):
                with pytest.raises(A2ACardError, match="nothing was sent") as caught:
                    client.send("hi")
                assert caught.value.code == "address_refused"
        assert agent.seen == []


def test_a_proxy_is_not_taken_for_the_address() -> None:
    class Connection:
        sock = None
        proxy = None

    guard = Guard(frozenset({"public"}))
    connection: Any = Connection()
    assert guard.is_open(connection)
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as sock:
        connection.sock = sock
        assert not guard.is_open(connection)
        release = GuardedRelease(guard)
        with pytest.raises(ConnectionError):
            release.watch_connection(connection)
        assert release.has_refused
        connection.proxy = "http://proxy"
        assert guard.is_open(connection)


# ------------------------------------------------------------------------------------------- addresses


def test_no_query_is_shown() -> None:
    assert shown_url("https://x/a?token=secret#b") == "https://x/a"
    assert len(shown_url("https://x/" + "a" * 1000)) == 200


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "url: got None"),
        ({"url": ""}, "url: got a string"),
        ({"url": 3}, "url: got 3"),
        ({"url": "agent.example"}, "is not an absolute http(s) URL"),
        ({"url": "https://u:secret@x/"}, "url: it carries credentials"),
        ({"url": RPC, "headers": {"X-Key": "secret\nsecond"}}, "headers['X-Key']: got a value that no header"),
        ({"url": RPC, "headers": {"X Key": "v"}}, "must be a header name"),
        ({"url": RPC, "headers": ["X"]}, "headers: got list"),
        ({"url": RPC, "timeout": 0}, "timeout: got 0"),
        ({"url": RPC, "timeout": 1e9}, "timeout: got"),
        ({"url": RPC, "streaming": True}, "streaming: got True"),
        ({"url": RPC, "streaming": 0}, "streaming: got 0"),
        ({"url": RPC, "auth": "Bearer secret"}, "auth: got a string"),
        ({"url": RPC, "session": "x"}, "session: got str"),
        ({"url": RPC, "extensions": ["a\nb"]}, "extensions: got text"),
        ({"url": RPC, "extensions": "https://x"}, "extensions: got a string"),
        ({"url": RPC, "max_message_bytes": 1}, "max_message_bytes: got 1"),
        ({"url": RPC, "max_retries": -1}, "max_retries: got -1"),
        ({"card": "x"}, "card: got a string"),
        ({"card": {"url": RPC}}, "card: agent_card: it is not an agent card"),
        ({"card": {"name": "x", "url": RPC, "skills": object()}}, "card.skills"),
    ],
)
def test_a_setting_that_cannot_be_used_is_refused(options: Any, words: str) -> None:
    with pytest.raises(MantyxConfigError) as caught:
        A2AClient(**options)
    assert words in str(caught.value)
    assert "secret" not in str(caught.value)
    assert "secret" not in repr(caught.value)
