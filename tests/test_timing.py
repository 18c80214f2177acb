"""When things happened in a run: noted as they arrive, told in seconds since the run was asked for."""

from __future__ import annotations

import pickle
import threading
import time
from typing import Any

import pytest

from mantyx_sync import MantyxClient, MantyxRunError, ToolError, tool
from mantyx_sync.local import LocalServer, ScriptedModel, ToolUse
from mantyx_sync.timing import Arrivals, CallTimes, RunTiming, ToolTiming, TurnTiming
from tests.scripted_runs import (
    SPEC,
    RunServer,
    after_result,
    call,
    delta,
    quick_client,
    quickly,
    refusal,
    reply,
    result,
    snapshot,
    stream,
)
from tests.scripted_runs import event as wire_event
from tests.wire import Peer, Request


def event(kind: str) -> dict[str, Any]:
    return {"seq": 1, "type": kind, "data": {}}


def arrivals() -> Arrivals:
    return Arrivals(1000.0, 50.0, 50.5, is_whole=True)


def note(found: Arrivals, now: float, *kinds: str) -> None:
    batch = [event(kind) for kind in kinds]
    found.arrived(batch, [e for e in batch if not e["type"].endswith("_delta")], now)


def test_a_turn_is_its_first_and_last_pieces_and_its_end() -> None:
    found = arrivals()
    note(found, 51.0, "thinking_delta", "thinking_delta")
    note(found, 52.0, "thinking_delta", "assistant_delta")
    note(found, 53.0, "assistant_delta")
    note(found, 54.0, "assistant_delta", "assistant_message", "local_tool_call", "assistant_delta")
    note(found, 55.0, "assistant_delta", "assistant_message", "result")
    found.over(56.0)
    timing = found.read([])
    assert timing.turns == (TurnTiming((1.0, 2.0), (2.0, 4.0), 4.0), TurnTiming(None, (4.0, 5.0), 5.0))
    assert (timing.started_at, timing.created, timing.ended, timing.is_whole) == (1000.0, 0.5, 6.0, True)


def test_a_turn_that_was_cut_short_has_no_end() -> None:
    found = arrivals()
    note(found, 51.0, "assistant_delta")
    assert found.read([]).turns == (TurnTiming(None, (1.0, 1.0)),)
    note(found, 52.0, "error")
    assert found.read([]).turns == (TurnTiming(None, (1.0, 1.0)),)


def test_a_turn_that_was_cut_short_while_it_was_thought_about_is_there() -> None:
    found = arrivals()
    note(found, 51.0, "thinking_delta")
    note(found, 52.0, "error")
    assert found.read([]).turns == (TurnTiming((1.0, 1.0)),)


def test_a_turn_without_pieces_has_its_end_alone() -> None:
    found = arrivals()
    note(found, 51.0, "assistant_message", "assistant_message")
    assert found.read([]).turns == (TurnTiming(ended=1.0), TurnTiming(ended=1.0))


def test_what_did_not_happen_to_a_call_is_none() -> None:
    calls = [("a", CallTimes("f", "local", 51.0)), ("b", CallTimes("g", "mcp_local", 51.0, 52.0, 53.0, 54.0, True))]
    timing = arrivals().read(calls)
    assert timing.tools == (
        ToolTiming("a", "f", "local", 1.0),
        ToolTiming("b", "g", "mcp_local", 1.0, 2.0, 3.0, 4.0, True),
    )
    assert timing.tool("b") == timing.tools[1]
    assert timing.tool("c") is None


@tool
def fetch(page: int) -> str:
    """Fetch a page."""
    if page == 2:
        raise ToolError("no such page")
    return "found"


SCRIPT = [[ToolUse("fetch", {"page": 1}), ToolUse("fetch", {"page": 2})], ["Do", "ne."]]


def in_order(*times: float | None) -> bool:
    known = [moment for moment in times if moment is not None]
    return len(known) == len(times) and known == sorted(known)


@pytest.mark.usefixtures("no_leaks")
def test_a_result_tells_when_its_events_came_and_its_tools_ran() -> None:
    with LocalServer(ScriptedModel(SCRIPT)) as server, MantyxClient(**server.client_settings()) as client:
        before = time.time()
        result = client.run_agent(system_prompt="x", prompt="y", tools=[fetch])
        timing = result.timing
    assert timing is not None
    assert abs(timing.started_at - before) < 5.0
    assert len(timing.events) == len(result.events)
    assert in_order(0.0, timing.created, *timing.events, timing.ended)
    assert len(timing.turns) == 2
    assert [found.failed for found in timing.tools] == [False, True]
    for tool_timing in timing.tools:
        assert (tool_timing.name, tool_timing.kind) == ("fetch", "local")
        assert in_order(tool_timing.called, tool_timing.begun, tool_timing.ended, tool_timing.answered)
    again = pickle.loads(pickle.dumps(result))
    assert again.timing == timing
    assert again == result


def test_kept_deltas_have_their_times_too() -> None:
    with LocalServer(ScriptedModel(SCRIPT)) as server, MantyxClient(**server.client_settings()) as client:
        result = client.with_options(keep_deltas=True).run_agent(system_prompt="x", prompt="y", tools=[fetch])
    assert result.timing is not None
    assert sum(found.type == "assistant_delta" for found in result.events) == 2
    assert len(result.timing.events) == len(result.events)


def test_a_failure_has_its_events_and_times() -> None:
    model = ScriptedModel([[ToolUse("fetch", {"page": 1})]])
    with (
        LocalServer(model) as server,
        MantyxClient(**server.client_settings()) as client,
        pytest.raises(MantyxRunError) as caught,
    ):
        client.run_agent(system_prompt="x", prompt="y", tools=[fetch])
    error = pickle.loads(pickle.dumps(caught.value))
    assert error.timing == caught.value.timing
    assert [found.type for found in error.events][-1] == "error"
    assert len(error.timing.events) == len(error.events)
    assert error.timing.tools[0].name == "fetch"


@pytest.mark.usefixtures("no_leaks")
@pytest.mark.parametrize("keep_deltas", [False, True])
@pytest.mark.parametrize("status", ["", "succeeded", "failed"])
def test_every_event_has_its_time_whatever_the_network_does_and_however_the_end_is_told(
    monkeypatch: pytest.MonkeyPatch, keep_deltas: bool, status: str
) -> None:
    quickly(monkeypatch)
    pieces = [delta(1, "a"), wire_event(2, "tool_call", name="x"), delta(3, "b"), wire_event(4, "note")]
    end = refusal(404) if status else stream(*pieces[2:], result(5), delta(6, "behind"), result(7))
    server = RunServer(stream(*pieces[:2], end="rst"), stream(*pieces), end, snapshots=[reply(200, snapshot(status))])
    with server, quick_client(server, keep_deltas=keep_deltas) as client:
        run = client.start_agent(**SPEC)
        try:
            ended: Any = run.result(timeout=10)
        except MantyxRunError as error:
            ended = error
    seqs = [2, 4] + [5] * (not status)
    assert [found.seq for found in ended.events] == (sorted([1, 3, *seqs]) if keep_deltas else seqs)
    assert len(ended.timing.events) == len(ended.events)
    assert in_order(0.0, ended.timing.created, *ended.timing.events, ended.timing.ended)


@pytest.mark.usefixtures("no_leaks")
def test_an_answer_that_the_run_tells_of_is_there_although_its_own_word_comes_later() -> None:
    ended = threading.Event()

    def accept_late(peer: Peer, request: Request) -> None:
        peer.wait(ended)
        reply(204)(peer, request)

    told = wire_event(2, "local_tool_result_in", toolUseId="t1")
    script = stream(call(1, "t1", "fetch", {"page": 1}), after_result("t1"), told, result(3))
    with RunServer(script, tool_result=[accept_late]) as server, quick_client(server) as client:
        timing = client.run_agent(**SPEC, tools=[fetch]).timing
        ended.set()
    assert timing is not None
    (tool_timing,) = timing.tools
    assert in_order(tool_timing.ended, tool_timing.answered, timing.ended)


def test_a_run_that_goes_on_tells_what_was_so_far_and_one_that_was_joined_says_so() -> None:
    reached, go_on = threading.Event(), threading.Event()

    @tool
    def wait() -> str:
        """Wait."""
        reached.set()
        go_on.wait(10)
        return "waited"

    model = ScriptedModel([[ToolUse("wait", {})], ["Done."]])
    with LocalServer(model) as server, MantyxClient(**server.client_settings()) as client:
        run = client.start_agent(system_prompt="x", prompt="y", tools=[wait])
        assert reached.wait(10)
        so_far: RunTiming = run.timing
        assert so_far.ended is None
        assert so_far.tools[0].begun is not None
        assert so_far.tools[0].ended is None
        assert [found.type for found in run.events_so_far][-1] == "local_tool_call"
        go_on.set()
        whole = run.result(timeout=10).timing
        joined = client.attach_run(run.run_id).result(timeout=10).timing
    assert whole is not None
    assert joined is not None
    assert whole.is_whole
    assert not joined.is_whole
