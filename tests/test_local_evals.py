"""Evals of the embedded server, seen from a socket: cases really run, are scored, and can be followed."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
from typing import Any, Iterator, Mapping

import pytest

from mantyx_sync.local import Failure, LocalServer, ModelRequest, Pause, RuleModel, ScriptedModel, ToolUse, Usage
from mantyx_sync.local import TurnEnd as End
from mantyx_sync.local.faults import answer, cut
from mantyx_sync.local.scoring import SCORER_TYPES
from tests.plain_http import DEADLINE_S, ORDER_TOOL, request
from tests.waiting import wait_until

AGENT = {"systemPrompt": "You help."}
HELLO_SET: dict[str, Any] = {
    "id": "ds_hello",
    "name": "Hello",
    "description": "Greets.",
    "cases": [
        {
            "id": "c1",
            "name": "greets",
            "input": {"prompt": "Hi"},
            "scorers": [{"type": "contains", "value": "hello", "ignoreCase": True}],
            "tags": ["smoke"],
        },
        {"input": {"role": "user", "content": "Bye"}, "scorers": [{"type": "exact", "value": "Bye."}]},
    ],
}
GREETER = ScriptedModel(lambda request: ["Hello!" if request.prompt == "Hi" else "Farewell."])
CALL = ScriptedModel([[ToolUse("get_order", {"order_id": "17"}, "tu_1")], ["It has shipped."]])


@pytest.fixture
def server() -> Iterator[LocalServer]:
    with LocalServer(GREETER, eval_datasets=[HELLO_SET]) as running:
        yield running


def create(server: LocalServer, **body: Any) -> str:
    accepted = request(server, "POST", "/eval-runs", {"agent": AGENT, **body} if "agentId" not in body else body)
    assert accepted.status == 202, accepted
    assert accepted.json["status"] == "queued"
    return str(accepted.json["runId"])


def events(server: LocalServer, run_id: str, **headers: str) -> Iterator[dict[str, Any]]:
    """Yield the events of an eval's stream as they come."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=DEADLINE_S)
    with contextlib.closing(connection):
        path = f"/api/v1/workspaces/local/eval-runs/{run_id}/stream"
        connection.request("GET", path, headers={"Authorization": "Bearer mantyx_local", **headers})
        response = connection.getresponse()
        assert response.status == 200
        assert response.headers["Content-Type"].startswith("text/event-stream")
        with contextlib.closing(response):
            for line in iter(response.readline, b""):
                if line.startswith(b"data: "):
                    yield json.loads(line[6:])


def follow(server: LocalServer, run_id: str, results: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """Read an eval's stream to its end, answering its tool calls by tool name."""
    seen = []
    for event in events(server, run_id):
        seen.append(event)
        if event["type"] == "local_tool_call" and results is not None:
            body = {"toolUseId": event["toolUseId"], "result": results[event["name"]]}
            assert request(server, "POST", f"/agent-runs/{event['agentRunId']}/tool-results", body).status == 204
    return seen


def get(server: LocalServer, path: str) -> Any:
    found = request(server, "GET", path)
    assert found.status == 200, found
    return found.json


def evaluate(server: LocalServer, **body: Any) -> Any:
    """Run an eval to its end and return its detail."""
    run_id = create(server, **body)
    assert server.eval_run(run_id).wait(DEADLINE_S)
    return get(server, f"/eval-runs/{run_id}")


def case(prompt: str = "Hi", **fields: Any) -> dict[str, Any]:
    return {"cases": [{"input": {"prompt": prompt}, **fields}]}


# -------------------------------------------------------------------------------- data sets


def test_data_sets_are_listed_and_shown(server: LocalServer) -> None:
    evaluate(server, datasetId="ds_hello")
    (entry,) = get(server, "/eval-datasets")["datasets"]
    assert {name: entry[name] for name in ("id", "name", "description", "caseCount", "runCount")} == {
        "id": "ds_hello",
        "name": "Hello",
        "description": "Greets.",
        "caseCount": 2,
        "runCount": 1,
    }
    detail = get(server, "/eval-datasets/ds_hello")
    assert {**detail, "toolMocks": None, "cases": []} == {**entry, "toolMocks": None, "cases": []}
    first, second = detail["cases"]
    assert (first["id"], first["name"], first["tags"]) == ("c1", "greets", ["smoke"])
    assert (second["id"], second["name"], second["input"]) == ("case_2", "Case 2", {"role": "user", "content": "Bye"})
    assert request(server, "GET", "/eval-datasets/ds_none").status == 404


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        ([], "must be an object"),
        ({}, "cases must be an array of 1 to"),
        ({"cases": []}, "cases must be an array of 1 to"),
        ({"cases": [{}]}, "cases[0].input must be an object"),
        ({"cases": [{"input": {}}]}, "cases[0].input: exactly one of prompt and messages"),
        ({"cases": [{"input": {"role": "assistant", "content": "x"}}]}, "must be a user message"),
        ({"cases": [{"id": "a", "input": "x"}, {"id": "a", "input": "y"}]}, "two cases have the same id"),
        (case(tags="x"), "tags must be an array of strings"),
        (case(toolMocks=[]), "toolMocks must be an object"),
        (case(toolMocks={"t": []}), "toolMocks.t must not be empty"),
        (case(toolMocks={"t": {"error": 1}}), "toolMocks.t.error must be a string"),
        (case(scorers={}), "scorers must be an array"),
        (case(scorers=[{"type": "llm"}]), f"scorers[0].type must be one of {', '.join(SCORER_TYPES)}"),
        (case(scorers=[{"type": "exact"}]), "scorers[0].value must be a string"),
        (case(scorers=[{"type": "contains", "values": []}]), "scorers[0].value must be a string"),
        (case(scorers=[{"type": "regex", "pattern": "("}]), "scorers[0].pattern must be a regular expression"),
        (case(scorers=[{"type": "json_schema", "schema": {"type": 1}}]), "scorers[0].schema"),
        (case(scorers=[{"type": "tool_called", "tool": "t", "times": -1}]), "scorers[0].times must be an integer"),
        (case(scorers=[{"type": "exact", "value": "x", "weight": 0}]), "scorers[0].weight must be a number above 0"),
    ],
)
def test_a_data_set_that_is_none_is_refused(server: LocalServer, dataset: Any, message: str) -> None:
    refused = request(server, "POST", "/eval-runs", {"dataset": dataset, "agent": AGENT})
    assert (refused.status, refused.json["error"]) == (400, "invalid_request")
    assert message in refused.json["message"]
    assert server.eval_runs == []
    with pytest.raises(ValueError, match=r"eval_datasets\[0\]"):
        LocalServer(eval_datasets=[dataset])


def test_two_data_sets_with_one_id_are_refused() -> None:
    with pytest.raises(ValueError, match="another data set with the id 'ds_hello'"):
        LocalServer(eval_datasets=[HELLO_SET, HELLO_SET])


# ----------------------------------------------------------------------------- running and scoring


def test_cases_run_through_the_agent_loop_and_are_scored(server: LocalServer) -> None:
    detail = evaluate(server, datasetId="ds_hello")
    assert {
        name: detail[name]
        for name in ("datasetId", "datasetName", "agentId", "inlineAgent", "status", "error", "agentOverrides")
    } == {
        "datasetId": "ds_hello",
        "datasetName": "Hello",
        "agentId": None,
        "inlineAgent": True,
        "status": "succeeded",
        "error": None,
        "agentOverrides": None,
    }
    assert (detail["totalCases"], detail["completedCases"], detail["passedCases"], detail["score"]) == (2, 2, 1, 0.5)
    assert detail["inlineAgentSpec"] == detail["agentSpecSnapshot"] == AGENT
    assert detail["startedAt"] <= detail["finishedAt"] <= detail["updatedAt"]
    first, second = detail["results"]
    assert (first["caseId"], first["case"]["name"], first["finalText"]) == ("c1", "greets", "Hello!")
    assert (first["passed"], first["score"], first["error"], first["toolCalls"]) == (True, 1.0, None, [])
    assert first["latencyMs"] >= 0
    assert (second["finalText"], second["passed"], second["score"]) == ("Farewell.", False, 0.0)
    assert second["scores"] == [
        {"type": "exact", "name": "exact", "score": 0.0, "passed": False, "reason": "the answer is another text"}
    ]
    total = first["tokens"]["inputTokens"] + second["tokens"]["inputTokens"]
    assert detail["tokenUsage"]["inputTokens"] == total > 0
    assert [result["agentRunId"] for result in detail["results"]] == [run.id for run in server.runs]


SCORED: list[tuple[dict[str, Any], str, bool]] = [
    ({"type": "exact", "value": "yes"}, " yes\n", True),
    ({"type": "exact", "value": "yes"}, "Yes", False),
    ({"type": "exact", "value": "yes", "ignoreCase": True}, "YES", True),
    ({"type": "contains", "value": "b"}, "abc", True),
    ({"type": "contains", "values": ["a", "c"]}, "abc", True),
    ({"type": "contains", "values": ["a", "d"]}, "abc", False),
    ({"type": "contains", "value": "B"}, "abc", False),
    ({"type": "regex", "pattern": r"\d{3}"}, "call 123", True),
    ({"type": "regex", "pattern": r"^\d{3}$"}, "call 123", False),
    ({"type": "regex", "pattern": "HELLO", "ignoreCase": True}, "hello", True),
    ({"type": "json_schema", "schema": {"type": "object", "required": ["a"]}}, '{"a": 1}', True),
    ({"type": "json_schema", "schema": {"type": "object", "required": ["a"]}}, '{"b": 1}', False),
    ({"type": "json_schema", "schema": {}}, "not JSON", False),
    ({"type": "tool_called", "tool": "get_order"}, "no tools", False),
    ({"type": "tool_called", "tool": "get_order", "times": 0}, "no tools", True),
]


@pytest.mark.parametrize(("scorer", "text", "passes"), SCORED, ids=[f"{s['type']}-{t}" for s, t, _ in SCORED])
def test_scorers_judge_the_answer(scorer: dict[str, Any], text: str, passes: bool) -> None:
    with LocalServer(ScriptedModel([text])) as server:
        (result,) = evaluate(server, dataset=case(scorers=[scorer]))["results"]
    assert (result["passed"], result["score"]) == (passes, float(passes))
    assert (result["scores"][0]["reason"] is None) == passes


def test_scores_are_weighted_and_no_scorer_asks_for_nothing_but_an_answer() -> None:
    scorers = [
        {"type": "exact", "value": "no", "weight": 3, "name": "strict"},
        {"type": "regex", "pattern": "."},
    ]
    with LocalServer(ScriptedModel(["yes"])) as server:
        (result,) = evaluate(server, dataset=case(scorers=scorers))["results"]
        assert (result["score"], result["passed"], result["scores"][0]["name"]) == (0.25, False, "strict")
        (result,) = evaluate(server, dataset=case())["results"]
        assert (result["score"], result["passed"], result["scores"]) == (1.0, True, [])


def test_a_run_that_fails_is_a_failed_case_and_the_eval_goes_on() -> None:
    model = ScriptedModel(lambda request: [[Failure("Out of order.")]] if request.prompt == "a" else ["b"])
    with LocalServer(model) as server:
        detail = evaluate(server, dataset={"cases": [{"input": "a"}, {"input": "b"}]})
    assert (detail["status"], detail["passedCases"], detail["score"]) == ("succeeded", 1, 0.5)
    first, second = detail["results"]
    assert (first["passed"], first["score"], first["scores"], first["error"]) == (False, 0.0, [], "Out of order.")
    assert second["passed"]


def test_a_cancelled_agent_run_is_a_failed_case_and_the_eval_goes_on() -> None:
    reached = threading.Event()
    model = ScriptedModel(lambda r: [[Pause(threading.Event(), reached)]] if r.prompt == "a" else ["b"])
    with LocalServer(model) as server:
        run_id = create(server, dataset={"cases": [{"input": "a"}, {"input": "b"}]})
        assert reached.wait(DEADLINE_S)
        request(server, "POST", f"/agent-runs/{server.runs[0].id}/cancel")
        assert server.eval_run(run_id).wait(DEADLINE_S)
        detail = get(server, f"/eval-runs/{run_id}")
    assert (detail["status"], detail["passedCases"]) == ("succeeded", 1)
    assert "cancelled" in detail["results"][0]["error"]


# ------------------------------------------------------------------------------------- tools


def test_a_local_tool_call_of_a_case_is_answered_to_its_agent_run() -> None:
    scorers = [{"type": "tool_called", "tool": "get_order", "args": {"order_id": "17"}, "times": 1}]
    with LocalServer(CALL) as server:
        run_id = create(server, dataset=case(scorers=scorers), agent={**AGENT, "tools": [ORDER_TOOL]})
        seen = follow(server, run_id, {"get_order": "shipped"})
        (result,) = get(server, f"/eval-runs/{run_id}")["results"]
        agent_run = server.runs[0]
    assert [event["type"] for event in seen] == [
        "snapshot",
        "run_started",
        "case_started",
        "local_tool_call",
        "case_completed",
        "run_completed",
    ]
    assert seen[3] == {
        "type": "local_tool_call",
        "toolUseId": "tu_1",
        "name": "get_order",
        "args": {"order_id": "17"},
        "kind": "local",
        "agentRunId": agent_run.id,
        "caseId": "case_1",
    }
    assert result["toolCalls"] == [
        {
            "toolUseId": "tu_1",
            "name": "get_order",
            "input": {"order_id": "17"},
            "output": "shipped",
            "isError": False,
        }
    ]
    assert (result["passed"], result["finalText"]) == (True, "It has shipped.")


def test_the_rule_model_can_be_evaluated() -> None:
    dataset = case("Where is order 17?", scorers=[{"type": "contains", "value": "order 17 has shipped"}])
    with LocalServer(RuleModel()) as server:
        run_id = create(server, dataset=dataset, agent={**AGENT, "tools": [ORDER_TOOL]})
        last = follow(server, run_id, {"get_order": "order 17 has shipped"})[-1]
    assert (last["type"], last["status"], last["passedCases"], last["score"]) == ("run_completed", "succeeded", 1, 1.0)


@pytest.mark.parametrize(
    ("mocks", "outputs", "is_error"),
    [
        ({"get_order": "shipped"}, ["shipped", "shipped"], False),
        ({"get_order": {"result": {"state": "shipped"}}}, ['{"state":"shipped"}'] * 2, False),
        ({"get_order": {"state": "lost"}}, ['{"state":"lost"}'] * 2, False),
        ({"get_order": {"error": "no such order"}}, ["no such order"] * 2, True),
        ({"get_order": ["packed", {"result": "shipped"}]}, ["packed", "shipped"], False),
    ],
)
def test_mocked_tools_are_not_called(mocks: dict[str, Any], outputs: list[str], is_error: bool) -> None:
    call = [ToolUse("get_order", {"order_id": "17"})]
    with LocalServer(ScriptedModel([call, call, ["Done."]])) as server:
        agent = {**AGENT, "tools": [ORDER_TOOL]}
        (result,) = evaluate(server, dataset=case(toolMocks=mocks), agent=agent)["results"]
        assert [entry["output"] for entry in result["toolCalls"]] == outputs
        assert {entry["isError"] for entry in result["toolCalls"]} == {is_error}
        types = [event["type"] for event in server.runs[0].events]
        assert types.count("tool_result") == 2
        assert "local_tool_call" not in types
        assert server.runs[0].to_summary()["toolCallCount"] == 2


def test_the_mocks_of_a_case_come_before_those_of_its_data_set_and_can_be_disabled() -> None:
    dataset = {
        "toolMocks": {"get_order": "from the set"},
        "cases": [{"input": "a"}, {"input": "b", "toolMocks": {"get_order": "from the case"}}],
    }
    agent = {**AGENT, "tools": [ORDER_TOOL]}
    with LocalServer(CALL) as server:
        results = evaluate(server, dataset=dataset, agent=agent)["results"]
        assert [result["toolCalls"][0]["output"] for result in results] == ["from the set", "from the case"]
        run_id = create(server, dataset=dataset, agent=agent, overrides={"disabledMocks": ["get_order", "other"]})
        seen = follow(server, run_id, {"get_order": "for real"})
        assert [event["type"] for event in seen].count("local_tool_call") == 2
        results = get(server, f"/eval-runs/{run_id}")["results"]
        assert [result["toolCalls"][0]["output"] for result in results] == ["for real", "for real"]


# --------------------------------------------------------------------------- agents and overrides


class Recorder:
    model_id = "local:recorder"

    def __init__(self) -> None:
        self.requests: list[ModelRequest] = []

    def complete(self, request: ModelRequest) -> Iterator[Any]:
        self.requests.append(request)
        yield "ok"
        yield End("end_turn", Usage(1, 1))


SERVER_TOOLS = {
    "kind": "mcp_local",
    "name": "fs",
    "tools": [{"name": "fs_read"}, {"name": "fs_write"}],
}
KNOWN = {"systemPrompt": "Known.", "modelId": "openai:a", "tools": [ORDER_TOOL, SERVER_TOOLS]}


@pytest.mark.parametrize(
    ("overrides", "system", "model", "tools"),
    [
        ({}, "Known.", "openai:a", ["get_order", "fs_read", "fs_write", "extra"]),
        ({"systemPrompt": "Else."}, "Else.", "openai:a", ["get_order", "fs_read", "fs_write", "extra"]),
        ({"systemPromptAppend": "More."}, "Known.\n\nMore.", "openai:a", ["get_order", "fs_read", "fs_write", "extra"]),
        ({"model": "openai:b"}, "Known.", "openai:b", ["get_order", "fs_read", "fs_write", "extra"]),
        ({"disableTools": True}, "Known.", "openai:a", []),
        ({"toolAllowlist": ["extra", "fs_read"]}, "Known.", "openai:a", ["fs_read", "extra"]),
        ({"toolAllowlist": ["fs"]}, "Known.", "openai:a", ["fs_read", "fs_write"]),
        ({"toolAllowlist": []}, "Known.", "openai:a", []),
    ],
)
def test_overrides_change_the_agent_for_the_eval(
    overrides: dict[str, Any], system: str, model: str, tools: list[str]
) -> None:
    recorder = Recorder()
    with LocalServer(recorder, agents={"agt_1": KNOWN}) as server:
        extra = {"kind": "local", "name": "extra"}
        detail = evaluate(server, dataset=case(), agentId="agt_1", tools=[extra], overrides=overrides)
        run = server.runs[0]
    assert detail["agentOverrides"] == (overrides or None)
    assert (detail["agentId"], detail["inlineAgent"], detail["inlineAgentSpec"]) == ("agt_1", False, None)
    (seen,) = recorder.requests
    assert seen.messages[0]["content"] == system
    assert [tool.name for tool in seen.tools] == tools
    assert run.model["id"] == model


def test_the_reasoning_level_and_the_provider_can_be_overridden() -> None:
    overrides = {"reasoningLevel": "high", "llmProviderId": "prov_1"}
    catalog = [{"id": "a:1", "provider": "a"}, {"id": "b:1", "provider": "b"}]
    with LocalServer(ScriptedModel(["ok"])) as server:
        evaluate(server, dataset=case(), modelId="x:1", overrides=overrides)
        model = server.runs[0].model
        assert (model["id"], model["provider"], model["reasoningEffort"]) == ("x:1", "prov_1", "high")
    with LocalServer(ScriptedModel(["ok"]), models=catalog) as server:
        evaluate(server, dataset=case(), overrides={"llmProviderId": "b"})
        evaluate(server, dataset=case(), overrides={"llmProviderId": "b", "model": "a:1"})
        evaluate(server, dataset=case(), modelId="b:1")
        assert [run.model["id"] for run in server.runs] == ["b:1", "a:1", "b:1"]
        refused = request(
            server, "POST", "/eval-runs", {"dataset": case(), "agent": AGENT, "overrides": {"llmProviderId": "c"}}
        )
        assert (refused.status, refused.json["error"]) == (400, "invalid_model")


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({}, 400, "exactly one of datasetId and dataset"),
        ({"datasetId": "ds_hello"}, 400, "exactly one of agentId and agent"),
        ({"datasetId": "ds_hello", "dataset": case(), "agent": AGENT}, 400, "exactly one of datasetId and dataset"),
        ({"datasetId": "ds_hello", "agentId": "a", "agent": AGENT}, 400, "exactly one of agentId and agent"),
        ({"datasetId": "ds_none", "agent": AGENT}, 404, "no data set 'ds_none'"),
        ({"datasetId": 1, "agent": AGENT}, 400, "datasetId must be a string"),
        ({"datasetId": "ds_hello", "agentId": "agt_none"}, 404, "no agent 'agt_none'"),
        ({"datasetId": "ds_hello", "agent": []}, 400, "agent must be an object"),
        ({"datasetId": "ds_hello", "agent": {}}, 400, "needs agentId, systemPrompt"),
        ({"datasetId": "ds_hello", "agent": AGENT, "tools": {}}, 400, "tools must be an array"),
        ({"datasetId": "ds_hello", "agent": AGENT, "tools": [{"kind": "magic"}]}, 400, "tools[0].kind"),
        ({"datasetId": "ds_hello", "agent": AGENT, "overrides": []}, 400, "overrides must be an object"),
        ({"datasetId": "ds_hello", "agent": AGENT, "overrides": {"model": 1}}, 400, "overrides.model must be a string"),
        ({"datasetId": "ds_hello", "agent": AGENT, "overrides": {"disableTools": 1}}, 400, "must be a boolean"),
        ({"datasetId": "ds_hello", "agent": AGENT, "overrides": {"toolAllowlist": "x"}}, 400, "array of strings"),
        ({"datasetId": "ds_hello", "agent": AGENT, "overrides": {"reasoningLevel": "x"}}, 400, "reasoningLevel"),
    ],
)
def test_an_eval_that_cannot_run_is_refused(
    server: LocalServer, body: dict[str, Any], status: int, message: str
) -> None:
    refused = request(server, "POST", "/eval-runs", body)
    assert refused.status == status
    assert message in refused.json["message"]
    assert server.eval_runs == []


# ---------------------------------------------------------------------- stream, cancel and the end


def test_a_stream_tells_the_progress_and_replays_it(server: LocalServer) -> None:
    run_id = create(server, datasetId="ds_hello")
    seen = follow(server, run_id)
    assert follow(server, run_id) == seen
    assert list(events(server, run_id, **{"Last-Event-ID": str(len(seen) - 1)})) == seen[-1:]
    assert [event["type"] for event in seen] == [
        "snapshot",
        "run_started",
        "case_started",
        "case_completed",
        "case_started",
        "case_completed",
        "run_completed",
    ]
    assert seen[0] == {
        "type": "snapshot",
        "runId": run_id,
        "status": "queued",
        "totalCases": 2,
        "completedCases": 0,
        "passedCases": 0,
    }
    assert (seen[3]["caseId"], seen[3]["completedCases"], seen[3]["passed"]) == ("c1", 1, True)
    assert (seen[6]["status"], seen[6]["completedCases"], seen[6]["score"]) == ("succeeded", 2, 0.5)


@pytest.mark.parametrize("waits_for", ["the model", "a tool result"])
def test_a_cancelled_eval_ends_as_cancelled(waits_for: str) -> None:
    reached = threading.Event()
    turns: list[Any] = [[Pause(threading.Event(), reached)]]
    if waits_for == "a tool result":
        turns = [[ToolUse("get_order", {"order_id": "1"})], ["Done."]]
    with LocalServer(ScriptedModel(turns), local_tool_timeout=0.05) as server:
        dataset = {"cases": [{"input": "a"}, {"input": "b"}]}
        run_id = create(server, dataset=dataset, agent={**AGENT, "tools": [ORDER_TOOL]})
        if waits_for == "the model":
            assert reached.wait(DEADLINE_S)
        else:
            wait_until(lambda: server.runs and server.runs[0].events)
        for _ in range(2):
            assert request(server, "POST", f"/eval-runs/{run_id}/cancel").json == {"ok": True}
        last = follow(server, run_id)[-1]
        assert (last["type"], last["status"]) == ("run_cancelled", "cancelled")
        detail = get(server, f"/eval-runs/{run_id}")
        assert (detail["status"], detail["results"], detail["score"]) == ("cancelled", [], None)
        assert [run.status for run in server.runs] == ["cancelled"]
        assert request(server, "POST", f"/eval-runs/{run_id}/cancel").json == {"ok": True}


def test_cancelling_a_finished_eval_changes_nothing(server: LocalServer) -> None:
    detail = evaluate(server, datasetId="ds_hello")
    request(server, "POST", f"/eval-runs/{detail['id']}/cancel")
    assert get(server, f"/eval-runs/{detail['id']}") == detail


def test_stop_ends_an_eval_that_waits() -> None:
    threads = set(threading.enumerate())
    with LocalServer(CALL) as server:
        run_id = create(server, dataset=case(), agent={**AGENT, "tools": [ORDER_TOOL]})
        wait_until(lambda: server.runs and server.runs[0].pending_calls())
    run = server.eval_run(run_id)
    assert (run.status, run.error, run.events[-1]["type"]) == ("failed", "The server stopped.", "run_error")
    assert set(threading.enumerate()) == threads


def test_a_stream_can_be_cut_and_resumed(server: LocalServer) -> None:
    run_id = create(server, datasetId="ds_hello")
    assert server.eval_run(run_id).wait(DEADLINE_S)
    whole = follow(server, run_id)
    server.faults.add(cut(len(server.eval_run(run_id).frames[0]), "end"), route="eval_stream")
    assert follow(server, run_id) == whole[:1]
    assert follow(server, run_id) == whole


# ---------------------------------------------------------------------------- lists and comparison


def test_eval_runs_are_listed_newest_first_and_filtered(server: LocalServer) -> None:
    first = evaluate(server, datasetId="ds_hello")
    second = evaluate(server, dataset=case())
    page = get(server, "/eval-runs")
    assert [entry["id"] for entry in page["runs"]] == [second["id"], first["id"]]
    assert (page["limit"], page["offset"]) == (50, 0)
    assert page["runs"][1] == {name: first[name] for name in page["runs"][1]}
    assert "results" not in page["runs"][0]

    def listed(query: str) -> list[str]:
        return [entry["id"] for entry in get(server, f"/eval-runs?{query}")["runs"]]

    assert listed("limit=1") == [second["id"]]
    assert listed("limit=1&offset=1") == [first["id"]]
    assert listed("datasetId=ds_hello") == [first["id"]]
    assert listed("status=failed") == []
    assert listed("agentId=agt_1") == []
    assert request(server, "GET", "/eval-runs?limit=0").status == 400


def test_two_runs_of_a_data_set_are_compared_case_by_case(server: LocalServer) -> None:
    first = evaluate(server, datasetId="ds_hello")
    second = evaluate(server, datasetId="ds_hello", overrides={"systemPromptAppend": "Be kind."})
    compared = get(server, f"/eval-runs/compare?a={first['id']}&b={second['id']}")
    assert (compared["datasetId"], compared["datasetName"]) == ("ds_hello", "Hello")
    assert (compared["runA"]["id"], compared["runB"]["id"]) == (first["id"], second["id"])
    assert compared["runB"]["agentSpecSnapshot"]["systemPrompt"] == "You help.\n\nBe kind."
    assert compared["cases"] == [
        {
            "caseId": a["caseId"],
            "caseName": a["case"]["name"],
            "caseInput": a["case"]["input"],
            "a": a,
            "b": b,
        }
        for a, b in zip(first["results"], second["results"])
    ]


def test_only_runs_of_the_same_cases_are_compared(server: LocalServer) -> None:
    inline = [
        evaluate(server, dataset=case(scorers=scorers))["id"] for scorers in ([], [{"type": "regex", "pattern": "x"}])
    ]
    other = evaluate(server, dataset=case("Else"))["id"]
    assert get(server, f"/eval-runs/compare?a={inline[0]}&b={inline[1]}")["cases"][0]["b"]["passed"] is False
    refused = request(server, "GET", f"/eval-runs/compare?a={inline[0]}&b={other}")
    assert (refused.status, refused.json["error"]) == (400, "invalid_request")
    assert request(server, "GET", f"/eval-runs/compare?a={inline[0]}").status == 400
    assert request(server, "GET", f"/eval-runs/compare?a={inline[0]}&b=eval_none").status == 404


# -------------------------------------------------------------------- scopes, limits and faults

ROUTES = [
    ("eval_datasets", "GET", "/eval-datasets", "runs:read"),
    ("eval_dataset", "GET", "/eval-datasets/ds_hello", "runs:read"),
    ("eval_create", "POST", "/eval-runs", "runs:write"),
    ("eval_list", "GET", "/eval-runs", "runs:read"),
    ("eval_compare", "GET", "/eval-runs/compare?a={0}&b={0}", "runs:read"),
    ("eval_get", "GET", "/eval-runs/{0}", "runs:read"),
    ("eval_stream", "GET", "/eval-runs/{0}/stream", "runs:read"),
    ("eval_cancel", "POST", "/eval-runs/{0}/cancel", "runs:write"),
]


@pytest.mark.parametrize(("route", "method", "path", "scope"), ROUTES)
def test_scopes_and_faults_know_the_routes_of_evals(route: str, method: str, path: str, scope: str) -> None:
    tokens = {"mantyx_at_none": ["models:read"], "mantyx_at_one": [scope]}
    with LocalServer(GREETER, eval_datasets=[HELLO_SET], tokens=tokens) as server:
        path = path.format(evaluate(server, datasetId="ds_hello")["id"])
        body = {"datasetId": "ds_hello", "agent": AGENT}
        refused = request(server, method, path, body, token="mantyx_at_none")
        assert (refused.status, refused.json["required"]) == (403, scope)
        fault = server.faults.add(answer(503, {"error": "busy"}), route=route)
        assert request(server, method, path, body, token="mantyx_at_one").status == 503
        assert request(server, method, path, body, token="mantyx_at_one").status < 300
        assert fault.hits == 1


@pytest.mark.parametrize(("method", "path"), [("GET", ""), ("GET", "/stream"), ("POST", "/cancel")])
def test_an_unknown_eval_run_gets_404(server: LocalServer, method: str, path: str) -> None:
    assert request(server, method, f"/eval-runs/eval_none{path}").json["error"] == "not_found"


def test_evals_count_into_their_buckets() -> None:
    with LocalServer(GREETER, rate_limits={"run_starts": 1, "lifecycle": 5}) as server:
        body = {"dataset": case(), "agent": AGENT}
        created = request(server, "POST", "/eval-runs", body)
        assert created.headers["x-ratelimit-bucket"] == "run_starts"
        assert request(server, "POST", "/eval-runs", body).status == 429
        cancelled = request(server, "POST", f"/eval-runs/{created.json['runId']}/cancel")
        assert cancelled.headers["x-ratelimit-bucket"] == "lifecycle"
