"""`ReplayServer`: what it plays, when, to whom, and what it says when it is asked for something else."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from pathlib import Path
from typing import Any, Callable, Mapping

import pytest

from mantyx_sync import (
    MantyxBadRequestError,
    MantyxClient,
    MantyxError,
    MantyxRunError,
    MantyxTimeoutError,
    define_local_tool,
    input_file,
)
from mantyx_sync.local import (
    LocalServer,
    Pause,
    RecordingError,
    RecordingServer,
    ReplayServer,
    ScriptedModel,
    ToolUse,
    playing,
)
from mantyx_sync.local import faults as of_network
from mantyx_sync.local.lookup import Requests
from mantyx_sync.local.matching import GENERATED_KEY, Asked, compare, is_path
from mantyx_sync.local.playback import Tape, split_frames
from mantyx_sync.local.recording import VERSION, Exchange, Piece, write_recording
from mantyx_sync.local.redaction import REDACTED
from mantyx_sync.recovery import RECOVERY_KEY
from tests.waiting import wait_until

from .conversations import MODEL, Tap, converse, facts, order_tool, talk
from .plain_http import DEADLINE_S, ORDER_TOOL
from .test_peer_client import PEER, PRELUDE

pytestmark = pytest.mark.usefixtures("no_leaks", "plain_environment")


def record(path: Path, do: Callable[[MantyxClient], Any], model: Any = MODEL, **options: Any) -> Any:
    """Record what a function does with a client of an embedded server."""
    faults = options.pop("faults", {})
    with LocalServer(model, **options.pop("server", {})) as server:
        for route, effects in faults.items():
            for effect in effects:
                server.faults.add(effect, route=route)
        recorder = RecordingServer(path, **server.client_settings())
        with recorder, MantyxClient(**recorder.client_settings(), **options) as client:
            return do(client)


def play(path: Path, do: Callable[[MantyxClient], Any], *, used: bool = True, **options: Any) -> Any:
    """Have a function do the same with the recording."""
    client_options = options.pop("client", {})
    with ReplayServer(path, **options) as server:
        with MantyxClient(**server.client_settings(), **client_options) as client:
            found = do(client)
        if used:
            server.assert_all_used()
    return found


def ask(client: MantyxClient, prompt: str = "Where are the orders?", tool: Any = None, **more: Any) -> str:
    tools = [order_tool() if tool is None else tool]
    return client.run_agent(system_prompt="You help.", prompt=prompt, tools=tools, **more).text


# --------------------------------------------------------------------------------------------- the truth


def test_what_a_socket_sees_is_the_same_to_the_byte(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with LocalServer(MODEL) as server, RecordingServer(path, **server.client_settings()) as recorder:
        recorded = converse(recorder.port)
    with ReplayServer(path) as replay:
        assert converse(replay.port) == recorded
        replay.assert_all_used()
    assert len(recorded) == 16
    assert b"task_plan" in recorded[1]
    assert b'"type":"error"' in b"".join(recorded)


def test_what_our_client_makes_of_it_is_the_same(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    recorded = record(path, talk)
    assert play(path, talk) == recorded
    assert play(path, talk) == recorded  # a recording can be played as often as one likes


def test_what_our_client_makes_of_a_bad_network_is_the_same(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    faults = {
        "create": [of_network.rate_limited(0)],
        "stream": [of_network.cut(150), of_network.answer(503), of_network.cut(40, how="rst")],
        "tool_results": [
            of_network.lose_answer(),
            of_network.answer(429, {"error": "x"}, headers={"Retry-After": "0"}),
        ],
    }
    recorded = record(path, ask, faults=faults)
    assert play(path, ask) == recorded == "Both have shipped. ✓"


def test_a_run_whose_creation_was_not_answered_is_found_again(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    faults = {"create": [of_network.lose_answer()]}
    recorded = record(path, ask, faults=faults, recoverable_runs=True)
    assert play(path, ask, client={"recoverable_runs": True}) == recorded
    assert GENERATED_KEY == RECOVERY_KEY


def test_the_failures_of_runs_and_requests_are_played_as_well(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"

    def fail(client: MantyxClient) -> list[Any]:
        found = []
        for call in (lambda: ask(client, "fail, please"), lambda: client.get_run("run_x"), lambda: ask(client, "Hi")):
            try:
                found.append(call())
            except MantyxError as error:
                found.append(facts(error))
        return found

    faults = {"create": [of_network.answer(403, {"error": "forbidden", "hint": "not you"})]}
    recorded = record(path, fail, faults=faults)
    assert play(path, fail) == recorded
    assert [type(entry) for entry in recorded] == [tuple, tuple, str]


def test_evals_answer_their_tools_from_a_recording(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    dataset = {
        "cases": [{"input": {"prompt": "Where are the orders?"}, "scorers": [{"type": "contains", "value": "✓"}]}]
    }

    def evaluate(client: MantyxClient) -> Any:
        detail = client.run_eval(dataset=dataset, agent={"system_prompt": "x", "tools": [order_tool()]}, timeout=20)
        return detail.status, [result.final_text for result in detail.results]

    recorded = record(path, evaluate)
    assert recorded[0] == "succeeded"
    assert play(path, evaluate, used=False) == recorded


def test_files_in_messages_and_results_are_part_of_what_is_compared(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"

    def upload(data: bytes) -> Callable[[MantyxClient], str]:
        message = {"role": "user", "content": "Read", "attachments": [input_file(data, filename="a.txt")]}
        return lambda client: client.run_agent(system_prompt="x", messages=[message]).text

    recorded = record(path, upload(b"one" * 4000))
    assert play(path, upload(b"one" * 4000)) == recorded
    with pytest.raises(MantyxBadRequestError, match=r"messages\[0\]\.attachments\[0\]\.data: recorded"):
        play(path, upload(b"two" * 4000), used=False)


# ------------------------------------------------------------------------------------- cause and effect


def test_what_followed_a_tool_result_waits_for_it(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    record(path, ask)
    with ReplayServer(path) as replay:
        tap = Tap(replay.port)
        spec = json.loads(path.read_text().splitlines()[1])["json"]
        run_id = tap.id_of(tap.ask("POST", "/agent-runs", spec))
        answer = tap.read("GET", f"/agent-runs/{run_id}/stream")
        while tap.raw[-1].count(b'"type":"local_tool_call"') < 1:
            next(answer)
        assert [line.partition(" (")[0] for line in replay.waiting_for] == [
            f"POST /agent-runs/{run_id}/tool-results"
        ] * len(replay.waiting_for)
        assert replay.waiting_for
        assert b"local_tool_result_in" not in tap.raw[-1]
        place = len(tap.raw) - 1
        results = [json.loads(line)["json"] for line in path.read_text().splitlines() if '/tool-results", "' in line]
        for result in results:
            tap.ask("POST", f"/agent-runs/{run_id}/tool-results", result)
        list(answer)
        assert tap.raw[place].endswith(b"\r\n0\r\n\r\n")
        replay.assert_all_used()


def test_results_may_come_in_another_order_than_they_did(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    both = threading.Barrier(2)
    first, second = threading.Event(), threading.Event()

    def behind(mine: threading.Event, other: threading.Event | None) -> Callable[[str], Any]:
        def answer(number: str) -> str:
            both.wait(DEADLINE_S)
            if number == "18":
                mine.set()
            elif other is not None:
                assert other.wait(DEADLINE_S)
            return number

        return answer

    turns = [[ToolUse("get_order", {"order_id": number}) for number in ("17", "18")], "Done."]
    parallel = {"name": "get_order", "description": "x", "parameters": ORDER_TOOL["parameters"], "read_only": True}

    def tool(answer: Callable[[str], Any]) -> Any:
        return define_local_tool(**parallel, execute=lambda args: answer(args["order_id"]))

    recorded = record(path, lambda client: ask(client, tool=tool(behind(first, first))), ScriptedModel(turns))
    assert play(path, lambda client: ask(client, tool=tool(behind(second, None)))) == recorded == "Done."


def test_runs_at_the_same_time_do_not_wait_for_one_another(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    prompts = [f"order {number}" for number in range(6)]

    def several(workers: int) -> Callable[[MantyxClient], list[str]]:
        def run(client: MantyxClient) -> list[str]:
            results = client.map(prompts, system_prompt="x", tools=[order_tool()], max_workers=workers)
            return [result.text for result in results]

        return run

    recorded = record(path, several(6))
    assert play(path, several(1)) == recorded
    assert play(path, several(3)) == recorded


def test_a_cancelled_run_is_cancelled_by_its_client_again(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"

    def give_up(client: MantyxClient) -> list[str]:
        texts = []
        with client.stream_agent(system_prompt="x", prompt="y") as run:
            for event in run:
                if event.type == "assistant_delta":
                    texts.append(event.text)
                    client.cancel_run(run.run_id)
                texts.append(event.type)
        return texts

    recorded = record(path, give_up, ScriptedModel([["one ", Pause(threading.Event())]]))
    assert recorded[-1] == "cancelled"
    assert play(path, give_up) == recorded


def test_a_client_that_does_not_leave_as_it_did_is_told_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playing, "PATIENCE_S", 0.05)
    stream = _exchange(1, "GET /agent-runs/r1/stream", 1, answer_headers=EVENTS, end="client_left")
    stream.pieces = [Piece(b"data: 1\n\n", 0, 1)]
    cancelled = _exchange(2, "GET /agent-runs/r2/stream", 2, answer_headers=EVENTS)
    cancelled.pieces = [Piece(b"data: 2\n\n", 0, 3), Piece(b"data: 3\n\n", 0, 6)]
    waits = _exchange(5, "GET /agent-runs/r3/stream", 7, answer_headers=EVENTS)
    waits.pieces = [Piece(b"data: 4\n\n", 0, 9)]
    recorded = [stream, cancelled, _exchange(3, "POST /agent-runs/r2/cancel", 4), waits]
    recorded.append(_exchange(4, "GET /x", 5, end="client_left", length=9))
    recorded.append(_exchange(6, "POST /agent-runs/r3/tool-results", 8))
    recorded.append(_exchange(7, "GET /y", 10, status=None, end="client_left"))
    write_recording(tmp_path / "a", recorded)
    with ReplayServer(tmp_path / "a") as replay:
        tap = Tap(replay.port)
        assert b"(line 2) ends here: when it was recorded, its client had left" in tap.ask(
            "GET", "/agent-runs/r1/stream"
        )
        said = tap.ask("GET", "/agent-runs/r2/stream")
        assert b"data: 2" in said
        assert b"data: 3" not in said
        assert b"id: 1\nevent: error\n" in said
        assert b"waits for what came here when it was recorded: POST /agent-runs/r2/cancel (line" in said
        assert tap.ask("GET", "/x").endswith(b"Content-Length: 9\r\nConnection: close\r\n\r\n")
        assert tap.ask("GET", "/y") == b""
        patient = threading.Thread(target=tap.ask, args=("GET", "/agent-runs/r3/stream"))
        patient.start()
        wait_until(lambda: replay.waiting_for != [])
        assert not threading.Event().wait(0.2)  # the result of a tool may take its time
        assert replay.waiting_for
        tap.ask("POST", "/agent-runs/r3/tool-results")
        patient.join(DEADLINE_S)
        assert tap.raw[-2].endswith(b"data: 4\n\n\r\n0\r\n\r\n")


def test_a_client_that_had_lost_patience_does_so_again(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"

    def wait(client: MantyxClient) -> str:
        with pytest.raises(MantyxTimeoutError) as caught:
            client.run_agent(system_prompt="x", prompt="y", timeout=0.4)
        return str(caught.value)

    recorded = record(path, wait, ScriptedModel([["one ", Pause(threading.Event())]]))
    assert play(path, wait, used=False) == recorded


BASE = "/api/v1/workspaces/recorded"
EVENTS = [("Content-Type", "text/event-stream")]


def _exchange(number: int, request: str, order: int, *texts: str, **fields: Any) -> Exchange:
    method, _, path = request.partition(" ")
    made = Exchange(number, method, BASE + path, order=order, status=200, head_order=order, end="complete")
    made.pieces = [Piece(text.encode(), 0.0, 0) for text in texts]
    made.end_order = 1000
    for name, value in fields.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize(
    ("request_line", "fields", "is_cause"),
    [
        ("POST /agent-runs/r1/tool-results", {}, True),
        ("POST /agent-runs/r1/tool-results", {"status": None, "end": "no_answer"}, True),
        ("POST /agent-runs/r1/tool-results", {"status": 409}, False),
        ("POST /agent-runs/r1/cancel", {}, True),
        ("POST /agent-runs/r1/feedback", {}, False),
        ("GET /agent-runs/r1", {}, False),
        ("POST /agent-runs/r2/cancel", {}, False),
        ("DELETE /agent-sessions/s1", {}, True),
        ("DELETE /agent-sessions/s2", {}, False),
        ("POST /agent-runs/inner/tool-results", {}, True),
    ],
    ids=str,
)
def test_a_stream_waits_for_what_can_have_changed_it_and_for_nothing_else(
    request_line: str, fields: Mapping[str, Any], is_cause: bool
) -> None:
    said = _exchange(1, "POST /agent-sessions/s1/messages", 1, '{"runId": "r1"}')
    stream = _exchange(2, "GET /agent-runs/r1/stream", 2, answer_headers=EVENTS)
    stream.pieces = [Piece(b'data: {"agentRunId":"inner"}\n\n', 0, 3), Piece(b"data: 2\n\n", 0, 5)]
    other = _exchange(3, request_line, 4, **fields)
    tape = Tape([said, stream, other])
    needs = [step.needs for step in tape.plan(stream, {}).steps]
    assert needs == [frozenset(), frozenset({3} if is_cause else ())]


@pytest.mark.parametrize(
    ("fields", "texts", "end"),
    [
        ({"answer_headers": EVENTS}, ['data: {"type":"assistant_delta"}\n\n'], "client_left"),
        ({"answer_headers": EVENTS}, ['data: {"type":"result"}\n\n'], "complete"),
        ({"answer_headers": EVENTS}, ["event: run_completed\ndata: {}\n\n"], "complete"),
        ({"answer_headers": EVENTS}, ['data: {"type":"result"}\n'], "client_left"),
        ({"length": 4}, ["ab", "cd"], "complete"),
        ({"length": 5}, ["ab", "cd"], "client_left"),
        ({}, ["abcd"], "client_left"),
    ],
    ids=str,
)
def test_a_client_that_left_with_everything_has_not_cut_it_short(
    fields: Mapping[str, Any], texts: list[str], end: str
) -> None:
    exchange = _exchange(1, "GET /agent-runs/r1/stream", 1, *texts, **{**fields, "end": "client_left"})
    assert Tape([exchange]).plan(exchange, {}).end == end


# ------------------------------------------------------------------------------------------- resuming


def test_a_stream_that_breaks_when_played_is_resumed(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    recorded = record(path, ask)
    whole = sum(len(piece.data) for piece in _stream_of(path).pieces)
    for after in (1, whole // 2, whole - 1):
        with ReplayServer(path) as replay, MantyxClient(**replay.client_settings()) as client:
            replay.faults.add(of_network.cut(after), route="stream")
            assert ask(client) == recorded
            replay.assert_all_used()


def test_a_run_whose_stream_keeps_breaking_can_be_asked_how_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    record(path, ask)
    with ReplayServer(path) as replay, MantyxClient(**replay.client_settings(), reconnect_timeout=0.05) as client:
        replay.faults.add(of_network.drop(), route="stream", times=None)
        run = client.start_agent(system_prompt="You help.", prompt="Where are the orders?", tools=[order_tool()])
        assert client.get_run(run.run_id).status == "running"
        with pytest.raises(MantyxError):
            run.result(timeout=DEADLINE_S)
        replay.faults.clear()
        assert client.attach_run(run.run_id, tools=[order_tool()]).result().text == "Both have shipped. ✓"
        found = client.get_run(run.run_id)
        assert (found.status, found.final_text, found.turns) == ("succeeded", "Both have shipped. ✓", 2)
        replay.assert_all_used()


def test_a_stream_can_be_read_again_behind_any_event(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    record(path, ask, faults={"stream": [of_network.cut(400), of_network.cut(500)]})
    with ReplayServer(path) as replay, MantyxClient(**replay.client_settings()) as client:
        result = client.run_agent(system_prompt="You help.", prompt="Where are the orders?", tools=[order_tool()])
        seqs = [event.seq for event in client.attach_run(result.run_id)]
        assert seqs == list(range(1, seqs[-1] + 1))
        assert [event.seq for event in client.attach_run(result.run_id, last_seq=4)] == seqs[4:]


def _stream_of(path: Path) -> Exchange:
    from mantyx_sync.local.recording import read_recording

    return next(exchange for exchange in read_recording(path) if exchange.is_stream)


# --------------------------------------------------------------------------------------------- timing


def _slow(path: Path, gap: float) -> None:
    exchange = Exchange(1, "GET", "/api/v1/workspaces/recorded/agent-runs/r/stream", order=1)
    exchange.status, exchange.head_order, exchange.head_at = 200, 2, gap
    exchange.answer_headers = [("Content-Type", "text/event-stream")]
    texts = ["data: 1\n\n", "data: 2\n\nda", "ta: 3\n\n"]
    exchange.pieces = [Piece(text.encode(), gap * (2 + at), 3 + at) for at, text in enumerate(texts)]
    exchange.end, exchange.end_at, exchange.end_order = "complete", gap * 5, 9
    write_recording(path, [exchange])


@pytest.mark.parametrize(
    ("gap", "options", "low", "high"),
    [
        (1000.0, {}, 0.0, 5.0),
        (1000.0, {"max_gap": 0.02}, 0.0, 5.0),
        (1000.0, {"max_gap": 0.02, "speed": 1}, 0.1, 6.0),
        (0.04, {"speed": 1}, 0.2, 6.0),
        (4.0, {"speed": 100}, 0.2, 6.0),
    ],
    ids=["no pauses", "no pauses, none capped", "capped", "as it was", "a hundred times as fast"],
)
def test_pauses_are_kept_left_out_or_shortened(
    tmp_path: Path, gap: float, options: Mapping[str, Any], low: float, high: float
) -> None:
    _slow(tmp_path / "a", gap)
    with ReplayServer(tmp_path / "a", **options) as replay:
        began = time.monotonic()
        answer = Tap(replay.port).ask("GET", "/agent-runs/r/stream")
        took = time.monotonic() - began
    assert answer.endswith(b"\r\n\r\n9\r\ndata: 1\n\n\r\nb\r\ndata: 2\n\nda\r\n7\r\nta: 3\n\n\r\n0\r\n\r\n")
    assert low <= took < high


@pytest.mark.parametrize(
    ("options", "asked"),
    [({}, "0"), ({"speed": 100}, "2"), ({"speed": 1}, "120"), ({"speed": 1, "max_gap": 0.5}, "1")],
    ids=["no pauses", "a hundred times as fast", "as it was", "capped"],
)
def test_a_client_is_asked_to_wait_as_long_as_other_pauses_are(
    tmp_path: Path, options: Mapping[str, Any], asked: str
) -> None:
    headers = [("Retry-After", "120"), ("X-Retry-After", "120")]
    recorded = [_exchange(1, "GET /a", 1, status=429, answer_headers=headers)]
    recorded.append(
        _exchange(2, "GET /a", 2, status=429, answer_headers=[("Retry-After", "Thu, 01 Jan 2026 00:00:00 GMT")])
    )
    write_recording(tmp_path / "a", recorded)
    with ReplayServer(tmp_path / "a", **options) as replay:
        tap = Tap(replay.port)
        assert f"\r\nRetry-After: {asked}\r\nX-Retry-After: 120\r\n".encode() in tap.ask("GET", "/a")
        assert b"\r\nRetry-After: Thu, 01 Jan 2026 00:00:00 GMT\r\n" in tap.ask("GET", "/a")


def test_events_are_found_in_any_pieces_and_in_time() -> None:
    body = b"data: 1\n\ndata: 2\r\n\r\ndata: 3\r\rdata: 4\n\r\n\ndata: 5"
    whole = [frame.data for frame in split_frames([Piece(body, 0, 0)])]
    assert b"".join(whole) == body[: body.index(b"data: 5")]
    for size in (1, 2, 3, 4, 5, 7):
        pieces = [Piece(body[at : at + size], 0, at) for at in range(0, len(body), size)]
        frames = split_frames(pieces)
        assert [frame.data for frame in frames] == whole
        ends = [sum(len(frame.data) for frame in frames[: count + 1]) for count in range(len(frames))]
        assert [frame.piece.order // size for frame in frames] == [(end - 1) // size for end in ends]
    large = [Piece(b"x" * 16_000, 0, number) for number in range(1000)]
    began = time.monotonic()
    assert len(split_frames([*large, Piece(b"\n\n", 0, 0)])) == 1
    assert time.monotonic() - began < 3  # it was minutes


def test_a_pause_ends_with_its_server_or_client(tmp_path: Path) -> None:
    _slow(tmp_path / "a", 1000.0)
    with ReplayServer(tmp_path / "a", speed=1) as replay:
        answer = threading.Thread(target=Tap(replay.port).ask, args=("GET", "/agent-runs/r/stream"))
        answer.start()
        wait_until(lambda: replay.open_connections == 1)
    answer.join(DEADLINE_S)
    assert not answer.is_alive()


# ----------------------------------------------------------------------------- what was not recorded


def test_a_different_request_is_told_what_is_different(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    record(path, ask)
    with ReplayServer(path) as replay, MantyxClient(**replay.client_settings()) as client:
        with pytest.raises(MantyxBadRequestError) as caught:
            ask(client, "Where is order 4711?", metadata={"customer": "acme"})
        why = (
            f"POST /agent-runs is not what was recorded in line 2 of {path}:\n"
            '  prompt: recorded "Where are the orders?", now "Where is order 4711?"\n'
            '  metadata: not in the recording, now {"customer": "acme"}'
        )
        assert caught.value.code == "replay_mismatch"
        assert [str(unmatched) for unmatched in replay.unmatched] == [why]
        with pytest.raises(AssertionError) as failed:
            replay.assert_all_used()
    assert str(failed.value) == why


def test_a_different_tool_result_ends_its_run_with_the_difference(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    record(path, ask)
    with ReplayServer(path) as replay, MantyxClient(**replay.client_settings()) as client:
        lost = order_tool(lambda number: "lost")
        with pytest.raises(MantyxRunError, match=r'result: recorded "\{.*shipped.*", now "lost"'):
            ask(client, tool=lost)
        assert not replay.waiting_for


def test_more_than_was_recorded_and_less_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    record(path, ask)
    with ReplayServer(path) as replay, MantyxClient(**replay.client_settings()) as client:
        with pytest.raises(
            AssertionError, match=r"recorded, but not asked for:\n  POST /agent-runs \(line 2\)\n  GET "
        ):
            replay.assert_all_used()
        ask(client)
        with pytest.raises(MantyxBadRequestError, match=r"was recorded once in .*, and has been asked for once more"):
            ask(client)
        with pytest.raises(MantyxBadRequestError, match=r"GET /models was not recorded in .*: nothing"):
            client.list_models()
        assert len(replay.unmatched) == 2


def test_places_that_may_differ_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    record(path, lambda client: ask(client, metadata={"trace": "1", "customer": "acme"}))
    tool = order_tool()

    def again(client: MantyxClient) -> str:
        return ask(client, metadata={"trace": "2", "customer": "acme"}, tool=tool)

    with pytest.raises(MantyxBadRequestError, match=r'metadata\.trace: recorded "1", now "2"'):
        play(path, again, used=False)
    play(path, again, ignore=["metadata.trace"])
    play(path, lambda client: ask(client, metadata={"customer": "acme"}), ignore=["metadata.*"])


def _asked(body: Any, **query: list[str]) -> Asked:
    return Asked("POST", "/x", query, None if body is None else ("json", body))


@pytest.mark.parametrize(
    ("recorded", "given", "differences"),
    [
        ({"a": 1, "b": [1, 2]}, {"b": [1, 2], "a": 1}, []),
        ({"a": 1}, {"a": True}, ["a: recorded 1, now true"]),
        ({"a": 1}, {"a": 1.0}, []),
        ({"a": [1]}, {"a": [1, {"b": 2}]}, ['a[1]: not in the recording, now {"b": 2}']),
        ({"a": {"b": None}}, {"a": {}}, ["a.b: missing, recorded null"]),
        ({"a": f"x{REDACTED}z"}, {"a": "xyz"}, []),
        ({"a": f"x{REDACTED}z"}, {"a": "xy"}, [f'a: recorded "x{REDACTED}z", now "xy"']),
        ({"a": REDACTED}, {"a": {"any": "thing"}}, []),
        (None, None, []),
        (None, {}, ["the body: not in the recording, now {}"]),
        ({"metadata": {GENERATED_KEY: "1"}}, {"metadata": {GENERATED_KEY: "2"}}, []),
        (
            {"a": "x" * 200 + "1"},
            {"a": "x" * 200 + "2"},
            [f'a: recorded "…{"x" * 30}1", now "…{"x" * 30}2" (from character 200)'],
        ),
    ],
    ids=str,
)
def test_requests_are_compared_by_what_they_say(recorded: Any, given: Any, differences: list[str]) -> None:
    assert compare(_asked(recorded), _asked(given)).differences == differences


def test_a_long_text_with_many_secrets_is_compared_at_once() -> None:
    recorded = _asked({"a": "x".join([REDACTED] * 40) + "end"})
    text = "yx" * 20_000
    assert not compare(recorded, _asked({"a": text + "end"})).differences
    assert compare(recorded, _asked({"a": text})).differences
    assert compare(_asked({"a": f"aa{REDACTED}aa"}), _asked({"a": "aaa"})).differences
    assert compare(_asked({"a": f"a{REDACTED}b{REDACTED}c"}), _asked({"a": "ac"})).differences


def _said(number: int, prompt: str, **metadata: str) -> Exchange:
    body = {"prompt": prompt, "metadata": metadata} if metadata else {"prompt": prompt}
    return _exchange(number, "POST /agent-runs", number, body=("json", body))


def test_each_of_thousands_is_found_at_once() -> None:
    exchanges = [_said(number, f"prompt {number}", **{GENERATED_KEY: f"key-{number}"}) for number in range(1, 3001)]
    requests = Requests(exchanges)
    began = time.monotonic()
    for number in range(3000, 0, -1):
        asked = Asked.of(_said(0, f"prompt {number}", **{GENERATED_KEY: "mine"}))
        found, comparison = requests.find(asked)
        assert (found, comparison and comparison.renamed) == (exchanges[number - 1], {f"key-{number}": "mine"})
        requests.use(exchanges[number - 1])
    assert time.monotonic() - began < 5  # comparing each with each would take minutes
    assert requests.find(asked) == (None, None)
    assert requests.of_route(asked) == exchanges
    assert all(map(requests.is_used, exchanges))


def test_the_same_request_comes_before_one_that_fits_as_well() -> None:
    exchanges = [_said(1, REDACTED), _said(2, "a"), _said(3, "a"), _said(4, "b")]
    requests = Requests(exchanges)
    order = []
    for prompt in ("a", "a", "a", "b"):
        found, _ = requests.find(Asked.of(_said(0, prompt)))
        assert found is not None
        order.append(found.number)
        requests.use(found)
    assert order == [2, 3, 1, 4]
    requests.rewind()
    assert requests.unused_of(Asked.of(exchanges[0])) == exchanges
    secret = [_exchange(1, f"GET /files/{REDACTED}", 1), _exchange(2, "GET /files/17", 2)]
    assert Requests(secret).of_route(Asked.of(secret[1])) == secret


def test_names_of_other_runs_do_not_cost_each_run_its_time() -> None:
    stream = _exchange(1, "GET /agent-runs/r/stream", 1, "data: key-7 and key-77\n\n", answer_headers=EVENTS)
    renamed = {f"key-{number}": f"new-{number}" for number in range(5000)}
    began = time.monotonic()
    for _ in range(300):
        plan = Tape([stream]).plan(stream, renamed)
    assert time.monotonic() - began < 2
    assert [step.data for step in plan.steps] == [b"data: new-7 and new-77\n\n"]


def test_a_function_that_fails_is_told_of(tmp_path: Path) -> None:
    write_recording(tmp_path / "a", [_said(1, "x")])

    def redact(text: str) -> str:
        raise LookupError("no such name")

    with ReplayServer(tmp_path / "a", redact=redact) as replay:
        assert b"POST /agent-runs: redact failed with LookupError: no such name" in Tap(replay.port).ask(
            "POST", "/agent-runs", {"prompt": "x"}
        )
        with pytest.raises(AssertionError, match="redact failed"):
            replay.assert_all_used()


def test_a_form_is_compared_by_its_fields_and_a_list_with_lists() -> None:
    form = [["a", "1"], ["b", "2"]]
    recorded = Asked("POST", "/x", {}, ("form", form))
    assert not compare(recorded, Asked("POST", "/x", {}, ("form", form[::-1]))).differences
    assert compare(recorded, Asked("POST", "/x", {}, ("form", form[:1]))).differences == ['b: missing, recorded "2"']
    assert compare(recorded, Asked("POST", "/x", {}, ("json", {"a": "1"}))).differences
    assert compare(_asked({"a": []}), _asked({"a": {}})).differences == ["a: recorded [], now {}"]


def test_a_server_that_is_started_again_plays_from_the_beginning(tmp_path: Path) -> None:
    write_recording(tmp_path / "a", [_said(1, "x")])
    replay = ReplayServer(tmp_path / "a")
    for _ in range(2):
        with replay:
            assert Tap(replay.port).ask("POST", "/agent-runs", {"prompt": "x"}).startswith(b"HTTP/1.1 200")
            assert b"400" in Tap(replay.port).ask("POST", "/agent-runs", {"prompt": "y"})
            assert (len(replay.unmatched), replay.unused) == (1, [])


@pytest.mark.parametrize("kind", ["result", "assistant_delta"])
def test_a_stream_that_is_resumed_ends_if_its_run_had(kind: str) -> None:
    texts = [f'id: 1\ndata: {{"seq": 1, "type": "x"}}\n\nid: 2\ndata: {{"seq": 2, "type": "{kind}"}}\n\n']
    stream = _exchange(1, "GET /agent-runs/r1/stream", 1, *texts, answer_headers=EVENTS, end="client_left")
    plan = Tape([stream]).resumed(f"{BASE}/agent-runs/r1/stream", 1, {})
    assert plan is not None
    assert [step.data.splitlines()[0] for step in plan.steps] == [b"id: 2"]
    assert plan.end == ("complete" if kind == "result" else "client_left")
    assert not plan.is_sized


def test_a_difference_is_told_from_the_first_that_comes_closest() -> None:
    requests = Requests([_said(1, "one", a="1", b="2"), _said(2, "two"), _said(3, "three")])
    found, comparison = requests.find(Asked.of(_said(0, "four")))
    assert (found, comparison and comparison.line) == (None, 2)


def test_a_path_may_hold_a_secret() -> None:
    recorded = f"/api/v1/workspaces/recorded/files/{REDACTED}/of-{REDACTED}"
    assert is_path(recorded, "/api/v1/workspaces/recorded/files/%5Bredacted%5D/of-17")
    assert not is_path(recorded, "/api/v1/workspaces/recorded/files/a/b/of-17")
    assert not is_path(recorded, "/api/v1/workspaces/recorded/files/a/on-17")


def test_many_differences_are_cut_short_and_the_query_counts(tmp_path: Path) -> None:
    found = compare(_asked({str(n): n for n in range(30)}, limit=["3"]), _asked({}, limit=["4"]))
    assert found.differences[0] == 'query.limit[0]: recorded "3", now "4"'
    assert str(found).endswith("and 19 more")


def test_any_workspace_and_credential_will_do(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    recorded = record(path, ask)
    with ReplayServer(path) as replay:
        client = MantyxClient(api_key="whatever", workspace_slug="my-own", base_url=replay.url)
        with client:
            assert ask(client) == recorded


# ------------------------------------------------------------------------------------ files and arguments

GOOD = (
    '{"mantyx-recording": 1, "made-by": "x"}\n'
    '{"n": 1, "request": "GET /x", "at": 0}\n'
    '{"n": 1, "status": 200, "headers": [], "at": 0}\n'
    '{"n": 1, "data": "a", "at": 0}\n'
    '{"n": 1, "end": "complete", "at": 0}\n'
    '{"end-of-recording": true}\n'
)


DAMAGED = [
    ("", "is not a recording: its first line does not begin with"),
    ("hello\n", "is not a recording: its first line does not begin with"),
    (
        GOOD.replace(": 1, ", ": 99, ", 1),
        rf"has version 99 of the format \(made by x\), and .* reads version {VERSION}",
    ),
    (GOOD[:-1], "is cut short in line 6; record it again"),
    (GOOD[:90], "is cut short in line 3; record it again"),
    ("\n".join(GOOD.split("\n")[:5]) + "\n", "has no closing line: its end is missing; record it again"),
    (GOOD.replace('{"n": 1, "end": "complete", "at": 0}\n', ""), "is damaged in line 5: exchange 1 has no end"),
    (GOOD.replace('"GET /x"', '"GET"'), "is damaged in line 2: its request is not of the form METHOD /path"),
    (GOOD.replace('{"n": 1, "data"', '{"n": 2, "data"'), "is damaged in line 4: there is no exchange 2 that"),
    (GOOD.replace('"data": "a", ', ""), "is damaged in line 4: it lacks 'base64'"),
    (GOOD.replace('"data": "a"', '"base64": "!"'), "is damaged in line 4: "),
    (GOOD.replace('"data": "a"', '"data": 3'), "is damaged in line 4: "),
    (GOOD.replace('"complete"', '"somehow"'), "is damaged in line 5: its end is 'somehow', must be one of"),
    (
        GOOD.replace('{"n": 1, "status": 200, "headers": [], "at": 0}\n', ""),
        "line 4: exchange 1 ends without an answer",
    ),
    (GOOD.replace('{"n": 1, "data": "a", "at": 0}', "oops"), "is damaged in line 4: it is no JSON"),
    (GOOD.replace('"at": 0', '"at": 1e999', 1), "is damaged in line 2: its time is inf"),
    (GOOD.replace('"status": 200', '"status": 1e999'), "is damaged in line 3: cannot convert float infinity"),
    (GOOD.replace('/x", ', '/x", "form": [["a"]], '), r"in line 2: \['a'\] is no field of a form"),
    (GOOD.replace('/x", ', '/x", "form": [["a", 1]], '), r"in line 2: \['a', 1\] is no field of a form"),
    (GOOD.replace('/x", ', '/x", "text": 5, '), "in line 2: its text is none"),
    (GOOD.replace('/x", ', '/x", "base64": "!", '), "is damaged in line 2: "),
    (GOOD + '{"n": 2}\n', "is damaged in line 7: it stands behind the closing line"),
]


@pytest.mark.parametrize(("text", "sentence"), DAMAGED, ids=[sentence[-40:] for _, sentence in DAMAGED])
def test_a_file_that_cannot_be_played_is_refused_in_a_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(text)
    with pytest.raises(RecordingError, match=sentence) as caught:
        ReplayServer(path)
    assert str(path) in str(caught.value)


def test_a_good_file_is_played_and_a_missing_one_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())  # as some editors leave it
    with ReplayServer(tmp_path / "a") as replay:
        assert replay.unused == ["GET /x (line 2)"]
    with pytest.raises(RecordingError, match="there is no recording"):
        ReplayServer(tmp_path / "b")
    (tmp_path / "c").write_bytes(b"\xff\xfe")
    with pytest.raises(RecordingError, match="is not a recording: it is not text"):
        ReplayServer(tmp_path / "c")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"speed": 0}, "speed: got 0, must be a number above 0"),
        ({"max_gap": -1}, "max_gap: got -1, must be a number of seconds"),
        ({"ignore": "metadata"}, "ignore: got 'metadata', must be a list"),
        ({"host": "0.0.0.0"}, "host must be a loopback address"),
    ],
    ids=str,
)
def test_arguments_are_checked(tmp_path: Path, options: Mapping[str, Any], sentence: str) -> None:
    (tmp_path / "a").write_text(GOOD)
    with pytest.raises(ValueError, match=sentence):
        ReplayServer(tmp_path / "a", **options)


# ------------------------------------------------------------------------------------ the platform's own


@pytest.mark.peer
@pytest.mark.skipif(not PEER, reason="MANTYX_PEER_PYTHON names no interpreter with the platform's package")
def test_the_platforms_own_client_is_recorded_and_played(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    program = PRELUDE + (
        "result = client.run_agent(system_prompt='x', prompt='Where are the orders?', tools=[order_tool])\n"
        "session = client.create_session(system_prompt='x')\n"
        "show(text=result.text, events=[(e.seq, e.type) for e in result.events], said=session.send('Hi').text)\n"
    )

    def run(settings: Mapping[str, str]) -> str:
        done = subprocess.run(
            [str(PEER), "-c", program, json.dumps(settings)], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    with LocalServer(MODEL) as server, RecordingServer(path, **server.client_settings()) as recorder:
        recorded = run(recorder.client_settings())
    with ReplayServer(path) as replay:
        assert run(replay.client_settings()) == recorded
        replay.assert_all_used()
