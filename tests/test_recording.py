"""`RecordingServer`: what it passes on, what it writes down, and what it must not."""

from __future__ import annotations

import base64
import gzip
import json
import os
import random
import socket
import threading
import zlib
from pathlib import Path
from typing import Any, Callable

import pytest
import requests

from mantyx_sync import (
    LoopDetection,
    MantyxClient,
    MantyxConfigError,
    MantyxOAuthClient,
    MantyxServerError,
    mantyx_mcp,
)
from mantyx_sync.local import LocalServer, OAuthApp, Pause, RecordingServer, ReplayServer, ScriptedModel
from mantyx_sync.local import faults as of_network
from mantyx_sync.local.recording import (
    BROKEN,
    CLIENT_LEFT,
    COMPLETE,
    NO_ANSWER,
    Exchange,
    Piece,
    decode_body,
    read_recording,
    write_recording,
)
from mantyx_sync.local.redaction import REDACTED, Redactor
from mantyx_sync.local.rewriting import rewrite_pieces, rewrite_words
from tests.waiting import wait_until

from .conversations import MODEL, Tap, converse, order_tool, talk
from .plain_http import start
from .wire import Peer, WireServer

pytestmark = pytest.mark.usefixtures("no_leaks", "plain_environment")


def record(path: Path, server: LocalServer, do: Callable[[MantyxClient], Any], **settings: Any) -> Any:
    """Record what a function does with a client."""
    options = settings.pop("client", {})
    recorder = RecordingServer(path, **{**server.client_settings(), **settings})
    with recorder, MantyxClient(**recorder.client_settings(), **options) as client:
        return do(client)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


# ---------------------------------------------------------------------------------------- passing on


def test_a_client_sees_what_it_would_see_at_the_real_server(tmp_path: Path) -> None:
    with LocalServer(MODEL, workspace_slug="recorded") as server:
        with MantyxClient(**server.client_settings()) as client:
            direct = talk(client)
        recorded = record(tmp_path / "a.jsonl", server, talk)
    texts = [[seen[0][1:4], seen[1][0], seen[2][1:], seen[3], seen[4], seen[5][:4]] for seen in (direct, recorded)]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("own", [False, True], ids=["", "a session of the caller's"])
def test_events_are_passed_on_while_the_run_goes_on(tmp_path: Path, own: bool) -> None:
    go_on = threading.Event()
    session = requests.Session()
    with LocalServer(ScriptedModel([["one ", Pause(go_on), "two"]])) as server:

        def follow(client: MantyxClient) -> None:
            with client.stream_agent(system_prompt="x", prompt="y") as run:
                texts = iter(run.text_stream)
                assert next(texts) == "one "
                go_on.set()
                assert list(texts) == ["two"]

        with session:
            record(tmp_path / "a.jsonl", server, follow, session=session if own else None)


def test_what_is_on_the_wire_is_what_is_recorded(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with LocalServer(MODEL) as server:
        with RecordingServer(path, **server.client_settings()) as recorder:
            raw = converse(recorder.port)
        sent = b"".join(server.runs[0].frames)
    exchanges = read_recording(path)
    stream = next(exchange for exchange in exchanges if exchange.is_stream)
    assert stream.answer_body == sent
    assert len(stream.pieces) > 2
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece.data), piece.data) for piece in stream.pieces)
    assert raw[1].endswith(b"\r\n\r\n" + chunks + b"0\r\n\r\n")
    assert [exchange.end for exchange in exchanges] == [COMPLETE] * len(raw)


def test_the_file_is_lines_that_people_can_read(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "a.jsonl"
    with LocalServer(MODEL) as server:
        record(path, server, talk)
    found = lines(path)
    assert found[0].keys() == {"mantyx-recording", "made-by"}
    assert found[1]["request"] == "POST /api/v1/workspaces/recorded/agent-runs"
    assert found[1]["json"]["prompt"] == "Where are the orders?"
    assert found[-1] == {"end-of-recording": True}
    assert "shipped. ✓" in path.read_text(encoding="utf-8")
    assert [path.name for path in path.parent.iterdir()] == ["a.jsonl"]
    times = [line["at"] for line in found[1:-1]]
    assert times == sorted(times)
    assert 0 <= times[0] <= times[-1] < 60


def test_the_address_of_a_stream_leads_back_to_the_recorder(tmp_path: Path) -> None:
    with LocalServer(MODEL) as server:
        run_id = start(server, prompt="Hello")
        absolute = f"{server.url}/api/v1/workspaces/local/agent-runs/{run_id}/stream"
        server.faults.add(of_network.answer(202, {"runId": run_id, "streamUrl": absolute}), route="create")
        text = record(tmp_path / "a.jsonl", server, lambda client: client.run_agent(system_prompt="x", prompt="y").text)
        assert str(server.port) not in (tmp_path / "a.jsonl").read_text()
    assert text == "You said Hello."


def test_broken_connections_are_passed_on_and_recorded_as_such(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with LocalServer(MODEL) as server:
        server.faults.add(of_network.rate_limited(0), route="create")
        server.faults.add(of_network.cut(150, how="rst"), route="stream")
        server.faults.add(of_network.answer(503, {"error": "busy"}), route="stream", skip=1)
        server.faults.add(of_network.lose_answer(), route="tool_results")
        result = record(
            path,
            server,
            lambda client: client.run_agent(system_prompt="x", prompt="Where are the orders?", tools=[order_tool()]),
        )
    assert result.text == "Both have shipped. ✓"
    exchanges = read_recording(path)
    statuses = [exchange.status for exchange in exchanges if exchange.path.endswith("/agent-runs")]
    assert statuses == [429, 202]
    streams = [exchange for exchange in exchanges if exchange.path.endswith("/stream")]
    assert [(stream.status, stream.end) for stream in streams][:2] == [(200, BROKEN), (503, COMPLETE)]
    assert streams[0].why
    assert streams[-1].headers["Last-Event-Id"]
    posts = [exchange for exchange in exchanges if exchange.path.endswith("/tool-results")]
    assert (posts[0].status, posts[0].end) == (None, NO_ANSWER)
    assert [post.status for post in posts[1:]].count(204) == 1


def _asked(port: int, line: str) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as sock:
        sock.sendall(
            f"{line}\r\nHost: localhost\r\nAuthorization: Bearer recording\r\nConnection: close\r\n\r\n".encode()
        )
        return b"".join(iter(lambda: sock.recv(65536), b""))


def test_odd_answers_and_clients_get_on_with_one_another(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    events = b"data: 1\n\ndata: 2\r\n\r\n"
    asked: list[tuple[str, str, bytes, bytes]] = [  # a request, what the server says, what the client gets
        ("GET /x HTTP/1.0", "stream", events, b"\r\nConnection: close\r\n\r\n" + events),
        ("GET /x HTTP/1.1", "stream", events, b"\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(events), events)),
        ("HEAD /x HTTP/1.1", "stream", events, b"text/event-stream\r\nConnection: close\r\n\r\n"),
        ("GET /x HTTP/1.1", "cut", b"Content-Type: applica", b""),
        (
            "GET /x HTTP/1.1",
            "cut",
            b"Content-Type: application/json\r\nConte",
            b"\r\nContent-Length: 1\r\nConnection: close\r\n\r\n",
        ),
        (
            "GET /x HTTP/1.1",
            "away",
            b"%b/api/v1/workspaces/local/y",
            b"\r\nLocation: /api/v1/workspaces/recorded/y\r\n",
        ),
    ]

    def play(peer: Peer) -> None:
        what, said = asked[len(ends)][1:3]
        peer.request()
        if what == "stream":
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n", said)
        elif what == "cut":
            peer.send(b"HTTP/1.1 200 OK\r\n", said)
        else:
            peer.send(b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: ", said % server.url.encode(), b"\r\n\r\n")

    ends: list[bytes] = []
    account = {"api_key": "a-key", "workspace_slug": "local"}
    with WireServer(play) as server, RecordingServer(path, **account, base_url=server.url) as recorder:
        for line, _, _, seen in asked:
            ends.append(_asked(recorder.port, line))
            assert seen in ends[-1], (line, ends[-1])
            assert not ends[-1].partition(b"\r\n\r\n")[2] or "HEAD" not in line
    assert [exchange.end for exchange in read_recording(path)] == [COMPLETE] * 3 + [BROKEN] * 2 + [COMPLETE]
    with ReplayServer(path) as replay:
        assert [_asked(replay.port, line) for line, *_ in asked] == ends
        replay.assert_all_used()


def test_a_client_that_leaves_ends_the_stream_at_the_server(tmp_path: Path) -> None:
    never, path = threading.Event(), tmp_path / "a.jsonl"
    with LocalServer(ScriptedModel([["one ", Pause(never)]])) as server:

        def leave(client: MantyxClient) -> None:
            with client.stream_agent(system_prompt="x", prompt="y") as run:
                assert next(iter(run.text_stream)) == "one "
            wait_until(lambda: server.runs[0].is_terminal and not server.open_streams)

        record(path, server, leave)
    stream = next(exchange for exchange in read_recording(path) if exchange.path.endswith("/stream"))
    assert stream.end in (CLIENT_LEFT, COMPLETE)  # it may be quicker to end than the client to leave
    assert any(exchange.path.endswith("/cancel") for exchange in read_recording(path))


def test_stopping_in_the_middle_keeps_what_has_come(tmp_path: Path) -> None:
    never, path = threading.Event(), tmp_path / "a.jsonl"
    with LocalServer(ScriptedModel([["one ", Pause(never)]])) as server:
        with RecordingServer(path, **server.client_settings()) as recorder:
            tap = Tap(recorder.port)
            run_id = tap.id_of(tap.ask("POST", "/agent-runs", {"systemPrompt": "x", "prompt": "y"}))
            answer = tap.read("GET", f"/agent-runs/{run_id}/stream")
            while b"one " not in tap.raw[-1]:
                next(answer)
            recorder.save()
            assert [exchange.end for exchange in read_recording(path)] == [COMPLETE, CLIENT_LEFT]
        assert list(answer) == []
    stream = read_recording(path)[1]
    assert stream.end == CLIENT_LEFT
    assert b"one " in stream.answer_body


def test_stopping_does_not_wait_for_a_server_that_does_not_answer(tmp_path: Path) -> None:
    never = threading.Event()
    with LocalServer(MODEL) as server:
        held = server.faults.add(of_network.hold_answer(never), route="create")
        with RecordingServer(tmp_path / "a", **server.client_settings()) as recorder:
            tap = Tap(recorder.port)
            asking = threading.Thread(
                target=tap.ask, args=("POST", "/agent-runs", {"systemPrompt": "x", "prompt": "y"})
            )
            asking.start()
            assert held.struck.wait(20)
        asking.join(20)
        assert not asking.is_alive()
    (exchange,) = read_recording(tmp_path / "a")
    assert (exchange.status, exchange.end) == (None, CLIENT_LEFT)


def test_a_server_that_cannot_be_reached_is_told_of_in_a_sentence(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        nowhere = f"http://127.0.0.1:{unused.getsockname()[1]}"
        recorder = RecordingServer(tmp_path / "a", api_key="k", workspace_slug="w", base_url=nowhere)
        with recorder, MantyxClient(**recorder.client_settings(), max_retries=0) as client:
            wanted = pytest.raises(MantyxServerError, match="The recording server cannot ask the real one")
            with wanted as caught:
                client.list_models()
    assert caught.value.status == 502
    assert [exchange.status for exchange in read_recording(tmp_path / "a")] == [502]


def test_settings_are_those_of_a_client_and_are_checked_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MANTYX_API_KEY", "MANTYX_ACCESS_TOKEN", "MANTYX_WORKSPACE_SLUG", "MANTYX_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(MantyxConfigError, match="api_key and workspace_slug: missing"):
        RecordingServer(tmp_path / "a")
    with pytest.raises(ValueError, match="secrets: got a string, must be a list"):
        RecordingServer(tmp_path / "a", api_key="k", workspace_slug="w", secrets="oops")
    with pytest.raises(OSError, match="no recording can be written to"):
        RecordingServer(tmp_path, api_key="k", workspace_slug="w").start()
    with LocalServer(MODEL) as server:
        settings = server.client_settings()
        monkeypatch.setenv("MANTYX_API_KEY", settings["api_key"])
        monkeypatch.setenv("MANTYX_WORKSPACE_SLUG", settings["workspace_slug"])
        monkeypatch.setenv("MANTYX_BASE_URL", settings["base_url"])
        with RecordingServer(tmp_path / "a") as recorder, MantyxClient(**recorder.client_settings()) as client:
            assert client.list_models().models


def test_a_file_is_replaced_at_the_end_and_not_at_all_when_discarded(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("old")
    with LocalServer(MODEL) as server:
        with RecordingServer(path, **server.client_settings()) as recorder:
            converse(recorder.port)
            assert path.read_text() == "old"
            recorder.discard()
        assert path.read_text() == "old"
        with RecordingServer(path, **server.client_settings()):
            pass
    assert len(lines(path)) == 2


# ------------------------------------------------------------------------------------------ secrets

SECRETS = {
    "key": "mantyx_9f8e7d6c5b4a39281706f5e4",
    "client secret": "mantyx_oas_5ecre7-0f-the-app",
    "refresh token": "mantyx_rt_r3fr3sh-m3",
    "tool header": "Zq7-tool-header-value-81",
    "basic password": "p4ss/w0rd+wïth",
    "query": "query-s3cr3t-value",
    "url password": "url-passw0rd",
    "short": "hu2",
    "told": "Jane Doe of Springfield",
    "bearer": "eyJhbGciOi.JIUzI1NiJ9abc.c2lnbmF0dXJl",
    "cookie": "c00kie-value-17",
}


def say_secrets(client: MantyxClient) -> None:
    """Put secrets wherever one can stand."""
    tool = mantyx_mcp(
        name="notes",
        url=f"https://user:{SECRETS['url password']}@notes.example/mcp?token={SECRETS['query']}",
        headers={"Authorization": f"Bearer {SECRETS['tool header']}", "X-Any": "plain words", "Accept": "text/plain"},
    )
    user_and_password = base64.b64encode(f"me:{SECRETS['basic password']}".encode()).decode()
    other = mantyx_mcp(
        name="more", url="http://127.0.0.1:9/", headers={"X-Authorization": f"Basic {user_and_password}"}
    )
    echo = f"My key is {SECRETS['key']}, my name {SECRETS['told']}, the header {SECRETS['tool header']}, and "
    echo += SECRETS["basic password"]
    client.run_agent(
        system_prompt=f"Use the password {SECRETS['url password']} at https://u:{SECRETS['url password']}@x.example/",
        prompt=echo,
        tools=[tool, other],
        extra_body={"api_key": SECRETS["query"], "nested": [{"password": SECRETS["short"], "ids": [1]}]},
        loop_detection=LoopDetection(consecutive_threshold=2, hard_cutoff_threshold=4),
    )
    client.run_agent(system_prompt="x", prompt=f'Bearer {SECRETS["bearer"]} {{"client_secret": "{SECRETS["query"]}"}}')
    client.request("GET", "/models", params={"access_token": SECRETS["query"], "limit": 3})


def test_no_secret_reaches_the_file_wherever_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    app = OAuthApp("mantyx_oa_app", SECRETS["client secret"], refresh_tokens=[SECRETS["refresh token"]])
    cookie = of_network.answer(
        200,
        {"models": [], "defaultModelId": "x", "hint": SECRETS["cookie"], "password": SECRETS["short"]},
        headers={"Set-Cookie": f"sid={SECRETS['cookie']}; Path=/", "X-Auth-Token": SECRETS["tool header"]},
    )
    with LocalServer(MODEL, api_key=SECRETS["key"], workspace_slug="acme-corp", oauth_apps=[app]) as server:
        server.faults.add(cookie, route="models")

        def do(client: MantyxClient) -> None:
            say_secrets(client)
            oauth = MantyxOAuthClient(
                client_id="mantyx_oa_app", client_secret=SECRETS["client secret"], base_url=client.base_url
            )
            with oauth:
                source = oauth.refresh_token_source(refresh_token=SECRETS["refresh token"])
                with MantyxClient(
                    token_source=source, workspace_slug=client.workspace_slug, base_url=client.base_url
                ) as other:
                    other.run_agent(system_prompt="x", prompt="Hello")
                    SECRETS["access token"] = source("initial")

        record(path, server, do, secrets=[SECRETS["told"]], client={"default_headers": {"X-Api-Key": "zz-header-zz-9"}})
        assert all(run.status == "succeeded" for run in server.runs)
    text = path.read_text(encoding="utf-8")
    for where, secret in SECRETS.items():
        assert secret not in text, where
        assert json.dumps(secret)[1:-1] not in text, where
    assert "acme-corp" not in text
    assert "zz-header-zz-9" not in text
    # What is none is left alone.
    assert '"ids": [1]' in text
    assert "consecutiveThreshold" in text
    with ReplayServer(path) as replay, MantyxClient(**replay.client_settings()) as client:
        say_secrets(client)


def test_a_client_never_gets_the_real_key_and_may_bring_its_own(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    own = "mantyx_at_0wn-t0ken"
    with LocalServer(MODEL, tokens={own: ["models:read"]}) as server:
        with RecordingServer(path, **server.client_settings()) as recorder:
            settings = recorder.client_settings()
            assert server.api_key not in settings.values()
            with MantyxClient(**settings) as client:
                client.list_models()
            with MantyxClient(
                access_token=own, base_url=settings["base_url"], workspace_slug=settings["workspace_slug"]
            ) as client:
                client.list_models()
        seen = [request.headers["authorization"] for request in server.requests]
    assert seen == [f"Bearer {server.api_key}", f"Bearer {own}"]
    assert own not in path.read_text()
    assert "Jane" not in repr(recorder)


def test_a_function_of_the_callers_takes_out_what_it_knows(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"

    def redact(text: str) -> str:
        return text.replace("Jane", "J.")

    with LocalServer(MODEL) as server:
        said = record(path, server, lambda c: c.run_agent(system_prompt="x", prompt="I am Jane").text, redact=redact)
    assert said == "You said I am Jane."
    assert "Jane" not in path.read_text()
    with ReplayServer(path, redact=redact) as replay, MantyxClient(**replay.client_settings()) as client:
        assert client.run_agent(system_prompt="x", prompt="I am Jane").text == "You said I am J.."
        replay.assert_all_used()


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Authorization: Bearer abc123def456", f"Authorization: Bearer {REDACTED}"),
        ("the bearer of good news", "the bearer of good news"),
        ("mantyx_plugin and mantyx_tool and mantyx_local", "mantyx_plugin and mantyx_tool and mantyx_local"),
        ('{"tokens": {"inputTokens": 3}, "nextToken": "x"}', '{"tokens": {"inputTokens": 3}, "nextToken": "x"}'),
        ('{"access_token": "abc"}', f'{{"access_token": "{REDACTED}"}}'),
        ('{"a": "{\\"apiKey\\": \\"abc\\"}"}', f'{{"a": "{{\\"apiKey\\": \\"{REDACTED}\\"}}"}}'),
        ('{"password":"pa\\"ss","a":1}', f'{{"password":"{REDACTED}","a":1}}'),
        ('{"password":"","secret":"x', f'{{"password":"","secret":"{REDACTED}'),
        ('"{\\"secret\\": \\"a\\\\\\"b\\", \\"c\\": 1}"', f'"{{\\"secret\\": \\"{REDACTED}\\", \\"c\\": 1}}"'),
        ("postgres://me:pa55@host/db", f"postgres://{REDACTED}:{REDACTED}@host/db"),
        ("https://x.example/?a=1&sig=abc&b=2", f"https://x.example/?a=1&sig={REDACTED}&b=2"),
        ('{"github_token": "abc", "eos_token": "</s>"}', f'{{"github_token": "{REDACTED}", "eos_token": "</s>"}}'),
        (
            '{"webhookSecret": "abc", "OPENAI_API_KEY":"x"}',
            f'{{"webhookSecret": "{REDACTED}", "OPENAI_API_KEY":"{REDACTED}"}}',
        ),
        ("a ghp_0123456789abcdefABCD of mine", f"a {REDACTED} of mine"),
        ("AKIAIOSFODNN7EXAMPLE", REDACTED),
        ("BEARER ABC123DEF456", f"BEARER {REDACTED}"),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----",
            f"-----BEGIN RSA PRIVATE KEY-----{REDACTED}-----END RSA PRIVATE KEY-----",
        ),
        ("/api/v1/workspaces/acme/models", "/api/v1/workspaces/recorded/models"),
        ("/api/v1/workspaces/acme-2/models of acme", "/api/v1/workspaces/acme-2/models of acme"),
    ],
)
def test_what_looks_like_a_secret_is_taken_for_one(text: str, kept: str) -> None:
    assert Redactor(slugs=["acme"]).text(text) == kept


def test_a_secret_is_found_across_the_pieces_of_an_answer() -> None:
    chance = random.Random(7)
    for _ in range(2000):
        frames = [
            f"data: {chance.choice(['a', 'bb', 's3cret!', 'xs3cret!x'])}\n\n" for _ in range(chance.randint(1, 4))
        ]
        body = "".join(frames) + chance.choice(["", "data: s3c", "data: s3cret!"])
        cuts = sorted(chance.sample(range(1, len(body)), chance.randint(0, 4)))
        parts = [body[one:two].encode() for one, two in zip([0, *cuts], [*cuts, len(body)])]
        pieces = [Piece(part, float(number), number) for number, part in enumerate(parts)]
        out = rewrite_pieces(pieces, Redactor(["s3cret!"]).text, is_stream=True)
        assert b"".join(piece.data for piece in out).decode() == body.replace("s3cret!", REDACTED)
        for frame in range(1, len(frames) + 1):  # and each event is complete when it had been
            ends = len("".join(frames[:frame]))
            was = next(number for number, cut in enumerate([*cuts, len(body)]) if cut >= ends)
            clean = len("".join(frames[:frame]).replace("s3cret!", REDACTED))
            sizes = [sum(len(p.data) for p in out if p.order <= number) for number in range(len(parts))]
            assert next(number for number, size in enumerate(sizes) if size >= clean) == was


def _cleaned(redactor: Redactor, *bodies: tuple[str, Any], pieces: list[bytes] = [], **fields: Any) -> list[Exchange]:  # noqa: B006
    exchanges = [
        Exchange(number, "POST", "/x", body=body, status=200, **fields) for number, body in enumerate(bodies, 1)
    ]
    exchanges[0].pieces = [Piece(data, 0.0, number) for number, data in enumerate(pieces)]
    for exchange in exchanges:
        redactor.learn(exchange)
    return [redactor.clean(exchange) for exchange in exchanges]


PARTS = b'--b\r\nContent-Disposition: form-data; name="client_secret"\r\n\r\ns3cret-part\r\n--b\r\n%b\r\n--b--'


@pytest.mark.parametrize(
    ("sent", "headers", "kept"),
    [
        (
            {"password": 81726354, "pin": 1234, "api_keys": ["a", 5], "secret": True},
            {},
            ("json", {"password": REDACTED, "pin": 1234, "api_keys": [REDACTED, 5], "secret": True}),
        ),
        (
            {"properties": {"password": {"type": "string"}}, "required": ["password"]},
            {},
            ("json", {"properties": {"password": {"type": "string"}}, "required": ["password"]}),
        ),
        (
            [{"name": "X-Api-Key", "value": "abc"}, {"name": "colour", "value": "red"}],
            {},
            ("json", [{"name": "X-Api-Key", "value": REDACTED}, {"name": "colour", "value": "red"}]),
        ),
        (b"client_secret=abc&a=1", {"content-type": "text/plain"}, ("text", f"client_secret={REDACTED}&a=1")),
        (
            PARTS % b"text",
            {"content-type": "multipart/form-data; boundary=b"},
            ("text", (PARTS % b"text").decode().replace("s3cret-part", REDACTED)),
        ),
        (PARTS % b"\xff", {"content-type": "multipart/form-data; boundary=b"}, ("text", REDACTED)),
        (
            gzip.compress(b'{"client_secret": "abc", "a": 1}'),
            {"content-encoding": "gzip"},
            ("json", {"client_secret": REDACTED, "a": 1}),
        ),
        (zlib.compress(b"plain"), {"content-encoding": "deflate"}, ("text", "plain")),
        (b"no gzip", {"content-encoding": "gzip"}, ("text", "no gzip")),
        (gzip.compress(b"cut short")[:-4], {"content-encoding": "gzip"}, None),
        (b"[" * 400 + b"]" * 400, {}, ("text", "[" * 400 + "]" * 400)),
    ],
    ids=[
        "numbers and lists",
        "a schema",
        "pairs",
        "a form",
        "parts",
        "binary parts",
        "gzip",
        "deflate",
        "none",
        "half of it",
        "deep",
    ],
)
def test_secrets_in_bodies_of_any_kind(sent: Any, headers: dict[str, str], kept: Any) -> None:
    body = decode_body(sent if isinstance(sent, bytes) else json.dumps(sent).encode(), headers)
    assert body is not None
    (exchange,) = _cleaned(Redactor(), body)
    assert exchange.body == (kept or ("base64", base64.b64encode(sent).decode()))


def test_a_secret_is_found_in_the_forms_it_is_written_in() -> None:
    key = "mykey/Zz91xQ+77"
    coded = [base64.b64encode(before + key.encode() + b"|end").decode() for before in (b"", b"1", b"12", b"user:")]
    coded += [text.replace("+", "-").replace("/", "_") for text in coded]
    coded += ["mykey%2FZz91xQ%2B77", "mykey%2fZz91xQ%2b77", "mykey%252FZz91xQ%252B77", key.encode().hex()]
    for text in coded:
        clean = Redactor([key]).text(f"<{text}>")
        assert REDACTED in clean
        assert len(clean) < 26, clean  # but for a few digits at either end, which others have to do with as well
    attachment = {"data": base64.b64encode(bytes(5000) + key.encode() + bytes(9)).decode()}
    exchange = _cleaned(Redactor([key]), ("json", attachment))[0]
    assert exchange.body is not None
    assert REDACTED in exchange.body[1]["data"]


def test_what_was_found_in_one_place_is_known_in_all() -> None:
    key = "s3cret-key-17"
    for where in ({"name": "X-Api-Key", "value": key}, {"api_keys": [key]}, {"password": 9876543210}):
        said = f"it is {key} or 9876543210 or 1234"
        first, second = _cleaned(Redactor(), ("json", where), ("text", said))
        assert second.body in (
            ("text", f"it is {REDACTED} or 9876543210 or 1234"),
            ("text", f"it is {key} or {REDACTED} or 1234"),
        )
        assert key not in str(first.body)
    binary = base64.b64encode(b"\xff" + key.encode()).decode()
    assert _cleaned(Redactor([key]), ("base64", binary))[0].body == ("text", REDACTED)
    assert _cleaned(Redactor(["other-key-17"]), ("base64", binary))[0].body == ("base64", binary)
    redactor = Redactor()
    redactor.learn_headers({"cookie": f"a={key}; b=short; c=another-17", "accept": "nothing-17"})
    assert redactor.learned == {key, "another-17"}
    # Too short to be looked for in base64: parts of it are in too much else.
    assert Redactor(["1234567"]).text(base64.b64encode(b"1234567").decode()) == "MTIzNDU2Nw=="
    assert Redactor(["12345678"]).text(base64.b64encode(b"12345678").decode()) == f"{REDACTED}g="


def test_a_secret_is_found_in_what_is_no_text() -> None:
    data = b"cl\xe9 invalide: s3cret-key \xff"
    (exchange,) = _cleaned(Redactor(["s3cret-key"]), ("json", {}), pieces=[data[:20], data[20:]])
    assert exchange.answer_body == b"cl\xe9 invalide: [redacted] \xff"


def _deltas(*texts: str, kind: str = "assistant_delta", ascii_only: bool = True) -> list[bytes]:
    events = [{"type": kind, "data": {"text": text}} for text in texts]
    return [f"data: {json.dumps(event, ensure_ascii=ascii_only)}\n\n".encode() for event in events]


@pytest.mark.parametrize("ascii_only", [False, True], ids=["utf-8", "ascii"])
@pytest.mark.parametrize(
    ("said", "kept"),
    [
        (["I am Ja", "ne D", "oe, é", "h?"], [f"I am {REDACTED}", "", ", é", "h?"]),
        (["Jane", " Doe", ", Jane Doe", "Jan", "e"], [REDACTED, "", f", {REDACTED}", "Jan", "e"]),
        (["", "J", "ane Doe"], ["", REDACTED, ""]),
        (["a Bearer abc", "123def"], [f"a Bearer {REDACTED}", ""]),
        (["my cat is M", "iez ü", " and yours?"], ["my cat is A CAT", " ü", " and yours?"]),
        (["nothing", " of it"], ["nothing", " of it"]),
        (["Jane Doe"], [REDACTED]),
        (["it ends", " so"], ["it ends", " so."]),
        (["all ", "gone"], ["", ""]),
    ],
    ids=["words", "twice", "empty", "a token", "the callers own", "none", "nothing else", "more", "less"],
)
def test_a_secret_is_found_in_words_over_several_events(said: list[str], kept: list[str], ascii_only: bool) -> None:
    others = [b'data: {"type": "x_delta"}\n\n', b'data: {"type": "x_delta", "data": {"text": 5}}\n\n']
    others += [b'data: {"type": "_delta2", "data": {"text": "Jane Do"}}\n\n', b"data: _delta\n\n"]
    thought = _deltas("Jane ", "thinks", kind="thinking_delta")
    frames = _deltas(*said, ascii_only=ascii_only)
    mixed = [b": hello\n\n", thought[0], frames[0], thought[1], *frames[1:], *others]
    changes = {"Miez": "A CAT", "ends so": "ends so.", "all gone": ""}

    def redact(text: str) -> str:
        for old, new in changes.items():
            text = text if new in text and new else text.replace(old, new)
        return text

    redactor = Redactor(["Jane Doe"], redact=redact)
    (exchange,) = _cleaned(redactor, ("json", {}), pieces=mixed, answer_headers=[("Content-Type", "text/event-stream")])
    wanted = _deltas(*kept, ascii_only=ascii_only)
    assert [piece.data for piece in exchange.pieces] == [*mixed[:2], wanted[0], mixed[3], *wanted[1:], *others]


def test_what_is_put_in_the_place_of_words_is_there_whole() -> None:
    chance = random.Random(8)
    for _ in range(1500):
        text = "".join(chance.choice(["s3", "cret", "s3cret", "a", "b c", "\u00e9", "", "-"]) for _ in range(8))
        cuts = sorted(chance.choices(range(len(text) + 1), k=chance.randint(0, 6)))
        frames = _deltas(*(text[one:two] for one, two in zip([0, *cuts], [*cuts, len(text)])))
        mark = chance.choice([REDACTED, "", "s"])
        pieces = [Piece(frame, 0.0, number) for number, frame in enumerate(frames)]
        out = rewrite_words(pieces, lambda words, mark=mark: words.replace("s3cret", mark), REDACTED)  # type: ignore[misc]
        assert len(out) == len(frames)
        assert "".join(json.loads(piece.data[6:])["data"]["text"] for piece in out) == text.replace("s3cret", mark)


def test_a_client_gets_no_cookies_and_a_304_has_no_length(tmp_path: Path) -> None:
    headers = {"Set-Cookie": "sid=1", "X-Auth-Token": "x", "X-Other": "y", "Content-Type": "application/json"}
    with LocalServer(MODEL) as server:
        server.faults.add(of_network.answer(304, None, headers=headers))
        with RecordingServer(tmp_path / "a", **server.client_settings()) as recorder:
            said = Tap(recorder.port).ask("GET", "/models?limit=&a=1")
    assert b"X-Other: y" in said
    assert not {b"set-cookie", b"x-auth-token", b"content-length", b"transfer-encoding"} & {
        line.partition(b":")[0].lower() for line in said.split(b"\r\n")
    }
    with ReplayServer(tmp_path / "a") as replay:
        assert b"query.limit: missing" in Tap(replay.port).ask("GET", "/models?a=1")
        assert Tap(replay.port).ask("GET", "/models?a=1&limit=") == said


def test_a_token_that_a_source_gave_is_known(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with LocalServer(MODEL) as server:
        server.faults.add(of_network.answer(403, {"error": "no", "message": f"not with {server.api_key}"}))
        with RecordingServer(
            path, token_source=lambda why: server.api_key, workspace_slug="local", base_url=server.url
        ) as recorder:
            Tap(recorder.port).ask("GET", "/models")
    assert f"not with {REDACTED}" in path.read_text()


def test_any_bytes_survive_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    datas = [b"\x00\xff\xfe", "é".encode()[:1], "é".encode()[1:], 'a\u2028b\r\n\t"\\'.encode(), b"plain"]
    exchange = Exchange(1, "POST", "/x", query=[("a", "1"), ("a", "ü")], body=("json", {"x": "\ud800"}), order=1)
    exchange.status, exchange.head_order, exchange.length, exchange.why = 200, 2, 99, "w"
    exchange.answer_headers = [("X-A", "1"), ("X-A", "2")]
    exchange.pieces = [Piece(data, 0.25, 3 + number) for number, data in enumerate(datas)]
    exchange.end, exchange.end_order = BROKEN, 50
    write_recording(path, [exchange])
    (read,) = read_recording(path)
    assert [piece.data for piece in read.pieces] == datas
    for name in ("method", "path", "query", "body", "status", "length", "answer_headers", "end", "why"):
        assert getattr(read, name) == getattr(exchange, name)


def test_a_file_may_have_a_long_name_be_a_link_and_be_written_twice_at_once(tmp_path: Path) -> None:
    exchange = Exchange(1, "GET", "/x", end_order=1)
    long = tmp_path / ("n" * 255)
    write_recording(long, [exchange])
    link = tmp_path / "link"
    link.symlink_to(long)
    threads = [threading.Thread(target=write_recording, args=(link, [exchange] * number)) for number in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert link.is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["link", long.name]
    assert long.read_text().endswith('{"end-of-recording": true}\n')


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("pipe", "it is no file"),
        ("", "it is no file"),
        ("file/a", "File exists|Not a directory"),
        ("n" * 300, "File name too long"),
        ("a\0b", "null"),
    ],
    ids=["a device", "a folder", "below a file", "too long", "no name"],
)
def test_a_path_where_no_file_can_be_is_refused_before_anything_is_asked(tmp_path: Path, name: str, why: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").touch()
    recorder = RecordingServer(f"{tmp_path}/{name}", api_key="k", workspace_slug="w", base_url="http://127.0.0.1:9")
    with pytest.raises(OSError, match=f"^no recording can be written to '.*': .*({why})"):
        recorder.start()
    assert sorted(os.listdir(tmp_path)) == ["file", "pipe"]


def test_nothing_is_left_beside_a_file_that_could_not_be_written(tmp_path: Path) -> None:
    exchange = Exchange(1, "GET", "/x", body=("json", object()))
    with pytest.raises(TypeError):
        write_recording(tmp_path / "a.jsonl", [exchange])
    assert os.listdir(tmp_path) == []
