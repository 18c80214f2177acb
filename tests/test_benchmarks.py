"""The benchmarks in miniature: every contender sees every event and answers every call. Never about time."""

from __future__ import annotations

import http.client
import json
import sys
import threading

import pytest

from tests.benchmarks.contenders import load
from tests.benchmarks.plays import Play, frames
from tests.benchmarks.report import Section, lines
from tests.benchmarks.runner import Outcome, Runner
from tests.benchmarks.scenarios import FULL, MINIATURE, QUICK, Goal, scenarios
from tests.benchmarks.server import API_KEY, WORKSPACE, ScenarioServer
from tests.benchmarks.worker import perform

CONTENDERS = ("ours", "naive", "floor")


@pytest.fixture(scope="module")
def server():
    server = ScenarioServer()
    thread = threading.Thread(target=server.serve, name="scenario-server")
    thread.start()
    yield server
    server.stop()
    thread.join(10)
    assert not thread.is_alive()


@pytest.mark.parametrize("scenario", scenarios(MINIATURE), ids=lambda scenario: scenario.name)
@pytest.mark.parametrize("name", CONTENDERS)
def test_contender_sees_every_event_and_answers_every_call(server, name, scenario):
    contender = load(name, server.base_url)
    try:
        replies = [perform(contender, task) for task in scenario.tasks()]
    finally:
        contender.close()
    assert scenario.check(replies) is None
    assert all(value >= 0 for value in scenario.measures(replies).values())


def test_check_notices_a_missing_event_and_a_missing_answer(server):
    contender = load("floor", server.base_url)
    for scenario in scenarios(MINIATURE):
        replies = [perform(contender, task) for task in scenario.tasks()]
        for reply in replies:
            reply.texts -= 1
            reply.length -= 1
            reply.arrivals_ns = reply.arrivals_ns[1:]
            reply.final_texts = ["answered 1 wrong 1" for _ in reply.final_texts]
        assert scenario.check(replies) is not None, scenario.name


def _request(server, method, path, body=None, headers=None, key=API_KEY):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    try:
        connection.request(
            method,
            f"/api/v1/workspaces/{WORKSPACE}/agent-runs{path}",
            json.dumps(body) if body is not None else None,
            {"Authorization": f"Bearer {key}", **(headers or {})},
        )
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def _create(server, play):
    status, content = _request(server, "POST", "", {"systemPrompt": "x", "prompt": play.prompt()})
    assert status == 202
    return json.loads(content)["runId"]


@pytest.mark.parametrize("after", [0, 1, 7, 10, 11])
@pytest.mark.parametrize("block_bytes", [0, 50])
@pytest.mark.parametrize("by_header", [True, False])
def test_stream_resumes_behind_the_last_seq(server, after, block_bytes, by_header):
    play = Play("text", count=10, block_bytes=block_bytes)
    run_id = _create(server, play)
    query = "" if by_header else f"?lastSeq={after}"
    headers = {"Last-Event-ID": str(after)} if by_header else {}
    status, content = _request(server, "GET", f"/{run_id}/stream{query}", headers=headers)
    assert status == 200
    assert content == b"".join(list(frames(play))[after:])


def test_ended_live_run_is_replayed_from_its_log(server):
    run_id = _create(server, Play("ticks", count=3, interval_s=0.0))
    _, whole = _request(server, "GET", f"/{run_id}/stream")
    _, rest = _request(server, "GET", f"/{run_id}/stream?lastSeq=2")
    assert whole.count(b"\n\n") == 4
    assert rest == b"".join(part + b"\n\n" for part in whole.split(b"\n\n")[2:-1])


def test_server_answers_as_the_protocol_says(server):
    run_id = _create(server, Play("calls", count=1))
    path = f"/{run_id}/tool-results"
    assert _request(server, "POST", path, {"toolUseId": "tu_1", "result": "pong 1"})[0] == 404
    assert _request(server, "GET", "/run_none")[0] == 404
    assert _request(server, "GET", f"/{run_id}", key="mantyx_other")[0] == 401
    assert _request(server, "POST", "", {"systemPrompt": "x", "prompt": "no play"})[0] == 400
    assert json.loads(_request(server, "GET", f"/{run_id}")[1])["status"] == "running"
    assert _request(server, "POST", f"/{run_id}/cancel")[0] == 200
    assert _request(server, "POST", path, {"toolUseId": "tu_1", "result": "pong 1"})[0] == 409


def test_runner_measures_in_processes_of_their_own_and_ends_them():
    scenario = next(one for one in scenarios(MINIATURE) if one.name == "text-event-iterate")
    with Runner({"floor": sys.executable, "naive": sys.executable}, total_s=60.0) as runner:
        processes = []
        outcomes = runner.run(scenario)
        processes = [child._process for child in (*runner._children.values(), runner._server)]
    assert {name: list(outcome.samples) for name, outcome in outcomes.items()} == {
        "floor": ["events/s", "cpu us/event"],
        "naive": ["events/s", "cpu us/event"],
    }
    assert len(processes) == 3
    assert all(process.poll() is not None for process in processes)


@pytest.mark.parametrize("size", [FULL, QUICK], ids=["full", "quick"])
def test_every_row_of_the_table_has_a_scenario_with_a_goal(size):
    found = scenarios(size)
    assert all(scenario.goals for scenario in found)
    assert len({scenario.name for scenario in found}) == len(found) == 13


LESS = Goal("wall s", "peer", 0.5, 0.25)
MORE = Goal("events/s", "peer", 3.0, 6.0, at_least=True)
BARE = Goal("growth MiB", "", 8.0, unit="MiB")


@pytest.mark.parametrize(
    ("goal", "ours", "peer", "verdict"),
    [
        (LESS, 1.0, 2.0, "met"),
        (LESS, 1.0, 4.0, "met, and the stretch"),
        (LESS, 1.1, 2.0, "NOT MET"),
        (LESS, 1.0, None, "peer not measured"),
        (MORE, 30.0, 10.0, "met"),
        (MORE, 60.0, 10.0, "met, and the stretch"),
        (MORE, 29.0, 10.0, "NOT MET"),
        (BARE, 8.0, None, "met"),
        (BARE, 8.1, 100.0, "NOT MET"),
    ],
)
def test_verdict_compares_medians_with_the_goal(goal, ours, peer, verdict):
    outcomes = {"ours": Outcome({goal.measure: [ours * 9, ours, ours]})}
    if peer is not None:
        outcomes["peer"] = Outcome({goal.measure: [peer]})
    (line,) = lines(Section("name", "title", (goal,), outcomes))
    assert line.verdict == verdict


@pytest.mark.parametrize(("ours", "verdict"), [(4.0, "met"), (6.0, "cap too low to tell")])
def test_capped_rival_counts_as_slower_than_its_cap(ours, verdict):
    outcomes = {"ours": Outcome({"wall s": [ours]}), "peer": Outcome(capped_s=10.0)}
    (line,) = lines(Section("name", "title", (LESS,), outcomes))
    assert line.ratios["peer"] == f"< {ours / 10:g}"
    assert line.verdict == verdict


def test_failure_of_ours_is_never_a_met_goal():
    outcomes = {"ours": Outcome({"wall s": [0.1]}, failure="9 of 10 texts"), "peer": Outcome({"wall s": [1.0]})}
    (line,) = lines(Section("name", "title", (LESS,), outcomes))
    assert line.verdict == "NOT MET: 9 of 10 texts"
