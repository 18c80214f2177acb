"""Evals: what goes out and comes in, following a stream, and running one with its local tools answered."""

from __future__ import annotations

import contextvars
import dataclasses
import inspect
import json
import pickle
import threading
import time
from typing import Any, Callable, Iterator, Mapping

import pytest

import mantyx_sync.evals
from mantyx_sync import MantyxClient
from mantyx_sync.api import WorkspaceAPI
from mantyx_sync.errors import (
    MantyxBadRequestError,
    MantyxConfigError,
    MantyxNetworkError,
    MantyxNotFoundError,
    MantyxProtocolError,
    MantyxTimeoutError,
)
from mantyx_sync.eval_results import EvalRunCompareCase, EvalRunDetail, EvalRunEvent, EvalRunList
from mantyx_sync.eval_specs import (
    AgentEvalOverrides,
    EvalRunArgs,
    EvalRunSpec,
    InlineEvalCaseSpec,
    InlineEvalDatasetSpec,
)
from mantyx_sync.eval_stream import EvalEventReader, EvalRunStream
from mantyx_sync.evals import Evals
from mantyx_sync.local import LocalServer, ModelRequest, Pause, ScriptedModel, ToolUse
from mantyx_sync.local.faults import cut
from mantyx_sync.progress import Progress
from mantyx_sync.reader import FollowSettings
from mantyx_sync.spec import RunSpec
from mantyx_sync.tools.context import ToolContext
from mantyx_sync.tools.deadlines import Deadlines
from mantyx_sync.tools.executor import ToolExecutor
from mantyx_sync.tools.function import tool
from mantyx_sync.transport.auth import BearerAuth
from mantyx_sync.transport.retry import Backoff
from tests.waiting import wait_until
from tests.wire import DEADLINE_S, Gone, Peer, WireServer, chunk, head, stream_head, transport

pytestmark = pytest.mark.usefixtures("no_leaks")

QUICK = Backoff(0.001, 0.01)
DATASET = {
    "id": "ds",
    "name": "orders",
    "description": "About orders.",
    "toolMocks": {"clock": "noon"},
    "cases": [
        {"id": f"c{n}", "name": f"Case {n}", "input": {"prompt": f"Order {n}?"}, "tags": ["orders"]} for n in (1, 2, 3)
    ],
}
AGENT = {"systemPrompt": "Help."}


@tool
def get_order(order_id: str) -> str:
    """Look up one order."""
    return f"order {order_id} is on its way"


def asks_for_its_order(request: ModelRequest) -> list[Any]:
    """The turns of a case: look the order up, then say what came back. Each run uses the same tool use id."""
    number = request.prompt[len("Order ") : -1]
    return [ToolUse("get_order", {"order_id": number}, id="tu_1"), f"It is order {number}."]


@pytest.fixture
def bench() -> Iterator[Callable[..., Evals]]:
    """Return a function that makes `Evals` for a server."""
    opened: list[tuple[ToolExecutor, WorkspaceAPI]] = []

    def make(url: str, slug: str = "w", key: str = "k", **settings: Any) -> Evals:
        api = WorkspaceAPI(transport(url, auth=BearerAuth(key)), slug, QUICK)
        executor = ToolExecutor(16)
        opened.append((executor, api))
        return Evals(api, FollowSettings(**{"backoff": QUICK, **settings}), executor, Deadlines())

    yield make
    for executor, api in opened:
        executor.close()
        api.transport.close()


@pytest.fixture
def local(bench: Callable[..., Evals]) -> Iterator[Callable[..., tuple[LocalServer, Evals]]]:
    """Return a function that starts an embedded server and makes `Evals` for it."""
    servers: list[LocalServer] = []

    def make(model: Any = None, **settings: Any) -> tuple[LocalServer, Evals]:
        server = LocalServer(model, eval_datasets=[DATASET], agents={"ag": AGENT}, **settings)
        server.start()
        servers.append(server)
        return server, bench(server.url, server.workspace_slug, server.api_key)

    yield make
    for server in servers:
        server.stop()


def spec(**fields: Any) -> EvalRunSpec:
    if not {"dataset_id", "dataset"} & fields.keys():
        fields["dataset_id"] = "ds"
    if not {"agent_id", "agent"} & fields.keys():
        fields["agent"] = AGENT
    return EvalRunSpec(**fields)


# --------------------------------------------------------------------------------------------- what goes out


@pytest.mark.parametrize(
    ("fields", "body"),
    [
        ({"dataset_id": "ds", "agent_id": "ag"}, {"datasetId": "ds", "agentId": "ag"}),
        (
            {"dataset_id": "ds", "agent_id": "ag", "model_id": "m", "tools": [], "extra_body": {"newer": [1]}},
            {"datasetId": "ds", "agentId": "ag", "modelId": "m", "newer": [1]},
        ),
        (
            {
                "dataset": InlineEvalDatasetSpec(
                    [
                        InlineEvalCaseSpec({"prompt": "Hi"}),
                        InlineEvalCaseSpec({"prompt": "Ho"}, "ho", [{"type": "exact"}], {"clock": 1}, ("a", "b")),
                        {"input": {}, "tool_mocks": {}, "newer": 1, "name": None},
                    ],
                    name="inline",
                    tool_mocks={"clock": 12},
                ),
                "agent_id": "ag",
            },
            {
                "dataset": {
                    "cases": [
                        {"input": {"prompt": "Hi"}},
                        {
                            "input": {"prompt": "Ho"},
                            "name": "ho",
                            "scorers": [{"type": "exact"}],
                            "toolMocks": {"clock": 1},
                            "tags": ["a", "b"],
                        },
                        {"input": {}, "toolMocks": {}, "newer": 1},
                    ],
                    "name": "inline",
                    "toolMocks": {"clock": 12},
                },
                "agentId": "ag",
            },
        ),
        (
            {"dataset": {"cases": [{"input": {"prompt": "Hi"}}], "toolMocks": {}}, "agent_id": "ag"},
            {"dataset": {"cases": [{"input": {"prompt": "Hi"}}], "toolMocks": {}}, "agentId": "ag"},
        ),
        (
            {
                "dataset_id": "ds",
                "agent": {**AGENT, "model_id": "m", "newer": 1, "tools": [{"kind": "mantyx", "id": "t"}]},
                "tools": [{"kind": "mantyx_plugin", "name": "@a/b"}],
            },
            {
                "datasetId": "ds",
                "agent": {
                    "systemPrompt": "Help.",
                    "modelId": "m",
                    "newer": 1,
                    "tools": [{"kind": "mantyx", "id": "t"}, {"kind": "mantyx_plugin", "name": "@a/b"}],
                },
            },
        ),
        (
            {"dataset_id": "ds", "agent": RunSpec(system_prompt="Help.", supervisor=False)},
            {"datasetId": "ds", "agent": {"systemPrompt": "Help.", "supervisor": False}},
        ),
        (
            {
                "dataset_id": "ds",
                "agent_id": "ag",
                "overrides": AgentEvalOverrides("A", "B", "m", "p", "low", False, ["t"], []),
            },
            {
                "datasetId": "ds",
                "agentId": "ag",
                "overrides": {
                    "systemPrompt": "A",
                    "systemPromptAppend": "B",
                    "model": "m",
                    "llmProviderId": "p",
                    "reasoningLevel": "low",
                    "disableTools": False,
                    "toolAllowlist": ["t"],
                    "disabledMocks": [],
                },
            },
        ),
        (
            {"dataset_id": "ds", "agent_id": "ag", "overrides": {"system_prompt": "A", "reasoningLevel": 7, "new": 1}},
            {"datasetId": "ds", "agentId": "ag", "overrides": {"systemPrompt": "A", "reasoningLevel": 7, "new": 1}},
        ),
    ],
)  # fmt: skip
def test_a_spec_becomes_the_documented_body(fields: Mapping[str, Any], body: Mapping[str, Any]) -> None:
    assert EvalRunSpec(**fields).to_wire() == body


def test_local_tools_go_out_where_the_agent_is_named_or_given() -> None:
    wire = get_order.to_wire()
    assert spec(agent_id="ag", tools=[get_order]).to_wire()["tools"] == [wire]
    inline = spec(agent={**AGENT, "tools": [get_order]}, tools=[{"kind": "mantyx", "id": "t"}])
    assert inline.to_wire()["agent"]["tools"] == [wire, {"kind": "mantyx", "id": "t"}]
    assert inline.offered_tools[0] is get_order
    assert spec(agent_id="ag").offered_tools == spec().offered_tools == ()


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({}, "dataset_id and dataset: got neither, must be one of the two"),
        ({"dataset_id": "ds", "dataset": {"cases": []}}, "dataset_id and dataset: got both, must be one of the two"),
        ({"dataset_id": "ds"}, "agent_id and agent: got neither, must be one of the two"),
        ({"dataset_id": "ds", "agent_id": "a", "agent": AGENT}, "agent_id and agent: got both, must be one of the two"),
        ({"dataset_id": "", "agent_id": "a"}, "dataset_id: got '', must be a non-empty string"),
        ({"dataset_id": "ds", "agent_id": 5}, "agent_id: got 5, must be a non-empty string"),
        ({"dataset_id": "ds", "agent_id": "a", "model_id": ""}, "model_id: got '', must be a non-empty string"),
        ({"dataset_id": "ds", "agent": "ag"}, "agent: got 'ag', must be a RunSpec or a mapping"),
        ({"dataset_id": "ds", "agent": {}}, "agent.agent_id: not given, must be given (or system_prompt)"),
        (
            {"dataset_id": "ds", "agent": {**AGENT, "prompt": "Hi"}},
            "agent.prompt: has no place here, the cases of the data set say what is said",
        ),
        (
            {"dataset_id": "ds", "agent": RunSpec(system_prompt="A", prompt="Hi")},
            "agent.prompt: has no place here, the cases of the data set say what is said",
        ),
        (
            {"dataset_id": "ds", "agent": {"sytemPrompt": "A"}},
            "agent: unknown key 'sytemPrompt'; did you mean 'system_prompt'?",
        ),
        (
            {"dataset_id": "ds", "agent": {"system_prompt": "A", "systemPrompt": "B"}},
            "agent.systemPrompt: given twice, as 'systemPrompt' and in its other spelling",
        ),
        ({"dataset_id": "ds", "agent": {**AGENT, 5: 6}}, "agent: got the key 5, must have strings as keys"),
        (
            {"dataset_id": "ds", "agent": {**AGENT, "reasoningLevel": 101}},
            "agent.reasoning_level: got 101, must be one of off, low, medium, high, or an integer from 0 to 100",
        ),
        ({"dataset": [], "agent": AGENT}, "dataset: got list, must be a InlineEvalDatasetSpec or a mapping"),
        ({"dataset": {}, "agent": AGENT}, "dataset.cases: got None, must be a list of cases"),
        ({"dataset": {"cases": []}, "agent": AGENT}, "dataset.cases: got none, must have at least one case"),
        ({"dataset": {"cases": [{}]}, "agent": AGENT}, "dataset.cases[0].input: got nothing, must be a mapping"),
        (
            {"dataset": {"cases": [{"input": "Hi"}]}, "agent": AGENT},
            "dataset.cases[0].input: got str, must be a mapping",
        ),
        (
            {"dataset": {"cases": [{"input": {}, "name": 5}]}, "agent": AGENT},
            "dataset.cases[0].name: got 5, must be a string",
        ),
        (
            {"dataset": {"cases": [{"input": {}, "scorer": []}]}, "agent": AGENT},
            "dataset.cases[0]: unknown key 'scorer'; did you mean 'scorers'?",
        ),
        (
            {"dataset": {"cases": [{"input": {}, "scorers": ["exact"]}]}, "agent": AGENT},
            "dataset.cases[0].scorers[0]: got 'exact', must be a mapping",
        ),
        (
            {"dataset": {"cases": [{"input": {}, "tags": "a"}]}, "agent": AGENT},
            "dataset.cases[0].tags: got a string, must be a list of strings",
        ),
        (
            {"dataset": {"cases": [{"input": {}, "tags": [1]}]}, "agent": AGENT},
            "dataset.cases[0].tags[0]: got 1, must be a string",
        ),
        (
            {"dataset": {"cases": [{"input": {}}], "tool_mocks": []}, "agent": AGENT},
            "dataset.tool_mocks: got list, must be a mapping",
        ),
        (
            {"dataset": {"cases": [{"input": {"at": float("nan")}}]}, "agent": AGENT},
            "dataset.cases[0].input.at: got nan, must be a finite number",
        ),
        ({"overrides": {"model": 5}}, "overrides.model: got 5, must be a string"),
        ({"overrides": {"disable_tools": "yes"}}, "overrides.disable_tools: got 'yes', must be a bool"),
        ({"overrides": {"toolAllowlist": "t"}}, "overrides.tool_allowlist: got a string, must be a list of strings"),
        ({"overrides": {"toolAlowlist": []}}, "overrides: unknown key 'toolAlowlist'; did you mean 'toolAllowlist'?"),
        (
            {"overrides": AgentEvalOverrides(reasoning_level="most")},
            "overrides.reasoning_level: got 'most', must be one of off, low, medium, high, or an integer from 0 to 100",
        ),
        ({"tools": get_order}, "tools: got FunctionTool, must be a list of tools: [tool]"),
        ({"extra_body": []}, "extra_body: got list, must be a mapping"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_in_a_sentence(fields: dict[str, Any], sentence: str) -> None:
    if fields.keys() & {"overrides", "tools", "extra_body"}:
        fields = {"dataset_id": "ds", "agent_id": "ag", **fields}
    with pytest.raises(MantyxConfigError) as caught:
        EvalRunSpec(**fields)
    assert str(caught.value) == sentence


def test_two_tools_of_one_name_are_refused_wherever_they_stand() -> None:
    with pytest.raises(MantyxConfigError, match="get_order"):
        spec(agent={**AGENT, "tools": [get_order]}, tools=[get_order])


def test_a_spec_stands_however_the_callers_lists_change_later_and_shows_no_prompt() -> None:
    case = {"input": {"prompt": "MARKER"}}
    given = spec(dataset={"cases": [case]}, agent={"systemPrompt": "MARKER"})
    case["input"]["prompt"] = "changed"
    assert given.to_wire()["dataset"]["cases"][0]["input"] == {"prompt": "MARKER"}
    assert repr(given) == "EvalRunSpec(dataset=…, agent=…)"


# --------------------------------------------------------------------------------------------- what comes in


def summary(number: int = 1, **more: Any) -> dict[str, Any]:
    return {"id": f"ev_{number}", "status": "succeeded", **more}


def test_a_record_keeps_what_it_does_not_know_and_names_what_is_wrong() -> None:
    record = EvalRunDetail.from_wire(
        summary(newer=1, results=[{"id": "r", "caseId": "c", "score": 1, "tokens": {"x": 1}}])
    )
    assert (record.raw["newer"], record.results[0].case.id, record.results[0].score) == (1, "c", 1)
    assert record.results[0].tokens == {"x": 1}
    assert (record.is_terminal, record.score, record.inline_agent) == (True, None, False)
    assert pickle.loads(pickle.dumps(record)) == record
    with pytest.raises(MantyxProtocolError, match=r"eval run: results\[0\]: field 'passed' is a string"):
        EvalRunDetail.from_wire(summary(results=[{"id": "r", "passed": "yes"}]))


@pytest.mark.parametrize(
    ("body", "asked", "cursor"),
    [
        ({"runs": [summary(1), summary(2)], "limit": 2, "offset": 0}, 0, "2"),
        ({"runs": [summary(1), summary(2)], "limit": 2}, 4, "6"),
        ({"runs": [summary(1)], "limit": 2, "offset": 2}, 2, None),
        ({"runs": [], "limit": 2, "offset": 2}, 2, None),
        ({"runs": [summary(1)], "limit": 1, "offset": 2, "total": 3}, 2, None),
        ({"runs": [summary(1)], "limit": 50, "offset": 0, "total": 3}, 0, "1"),
        ({"runs": [summary(1)]}, 0, None),
    ],
)
def test_pages_are_told_apart_by_their_offset(body: Mapping[str, Any], asked: int, cursor: str | None) -> None:
    page = EvalRunList.from_wire(body, asked)
    assert page.next_cursor == cursor
    assert [run.id for run in page.runs] == [run["id"] for run in body["runs"]]


def test_a_server_that_knows_no_offset_ends_the_walk_with_an_error() -> None:
    def fetch(_: str) -> EvalRunList:
        return EvalRunList.from_wire({"runs": [summary()], "limit": 1, "offset": 0}, 1, fetch)

    with pytest.raises(MantyxProtocolError, match="cursor that led to it"):
        list(fetch("0"))


def frame(event_type: str, seq: int | None = None, **data: Any) -> str:
    number = "" if seq is None else f"id: {seq}\n"
    return f"{number}event: {event_type}\ndata: {json.dumps({'type': event_type, **data})}"


def numbered(seq: int, case_id: str) -> str:
    return frame("case_started", seq, caseId=case_id)


A, B, C, D = (frame("case_started", caseId=name) for name in "abcd")


@pytest.mark.parametrize(
    ("connections", "read"),
    [
        ([[A, B], [A, B, C]], "abc"),
        ([[A, B], [C, D]], "abcd"),
        ([[A, A, B], [A, A, B, B]], "aabb"),
        ([[A, B], [A, C]], "abc"),
        ([[A], [A, B], [A, B, C]], "abc"),
        ([[numbered(1, "a"), numbered(2, "b")], [numbered(1, "a"), numbered(3, "c")]], "abc"),
    ],
)  # fmt: skip
def test_a_replay_comes_out_once(connections: list[list[str]], read: str) -> None:
    reader = EvalEventReader()
    found = []
    for frames in connections:
        reader.connected()
        for one in frames:
            found += reader.read([one])
    assert "".join(event.data["caseId"] for event in found) == read


def test_an_event_is_its_type_and_the_fields_beside_it() -> None:
    (event,) = EvalEventReader().read([frame("run_completed", 4, score=1.0)])
    assert (event.type, event.data, event.seq, event.is_terminal) == ("run_completed", {"score": 1.0}, 4, True)
    (event,) = EvalEventReader().read(['data: {"type": "case_started", "data": {"caseId": "c"}, "seq": 9}'])
    assert (event.data, event.seq, event.is_terminal) == ({"caseId": "c"}, 9, False)
    (event,) = EvalEventReader().read([A])
    assert event.seq is None


# --------------------------------------------------------------------------------------------- the routes


def test_data_sets_are_listed_and_shown(local: Any) -> None:
    _, evals = local()
    page = evals.list_eval_datasets()
    (dataset,) = page.datasets
    assert [found.id for found in page] == ["ds"]
    assert (dataset.name, dataset.description, dataset.case_count, dataset.run_count) == (
        "orders",
        "About orders.",
        3,
        0,
    )
    detail = evals.get_eval_dataset("ds")
    assert [case.id for case in detail.cases] == ["c1", "c2", "c3"]
    assert (detail.tool_mocks, detail.cases[0].input) == ({"clock": "noon"}, {"prompt": "Order 1?"})
    assert detail.cases[0].tags == ("orders",)
    assert detail.cases[0].created_at
    with pytest.raises(MantyxNotFoundError):
        evals.get_eval_dataset("ds/../other")


def test_runs_are_created_listed_shown_and_compared(local: Any) -> None:
    _, evals = local(ScriptedModel(lambda request: [f"{request.prompt} yes"]))
    ids = []
    for overrides in (None, AgentEvalOverrides(system_prompt_append="Be brief."), None):
        accepted = evals.create_eval_run(spec(agent_id="ag", overrides=overrides))
        assert accepted.stream_url.endswith(f"/eval-runs/{accepted.run_id}/stream")
        assert [event.type for event in evals.stream_eval_run(accepted.run_id)][-1] == "run_completed"
        ids.append(accepted.run_id)

    page = evals.list_eval_runs(dataset_id="ds", agent_id="ag", status="succeeded", limit=2)
    assert ([run.id for run in page.runs], page.limit, page.offset) == (ids[:0:-1], 2, 0)
    assert [run.id for run in page] == ids[::-1]
    assert [run.id for run in evals.list_eval_runs(offset=2)] == ids[:1]
    assert evals.list_eval_runs(status="failed").runs == ()

    detail = evals.get_eval_run(ids[1])
    assert (detail.status, detail.total_cases, detail.completed_cases, detail.passed_cases) == ("succeeded", 3, 3, 3)
    assert (detail.agent_overrides, detail.agent_id) == ({"systemPromptAppend": "Be brief."}, "ag")
    assert (detail.dataset_id, detail.dataset_name, detail.score, detail.inline_agent) == ("ds", "orders", 1, False)
    assert [result.final_text for result in detail.results] == [f"Order {n}? yes" for n in (1, 2, 3)]
    assert detail.results[0].case.name == "Case 1"
    assert detail.results[0].latency_ms is not None

    comparison = evals.compare_eval_runs(ids[0], ids[1])
    assert (comparison.run_a.id, comparison.run_b.id, comparison.dataset_id) == (ids[0], ids[1], "ds")
    assert [case.case_id for case in comparison.cases] == ["c1", "c2", "c3"]
    assert comparison.cases[0].a is not None
    assert comparison.cases[0].a["passed"] is True
    assert comparison.cases[0].change == "same"
    assert evals.cancel_eval_run(ids[0]) == {"ok": True}
    with pytest.raises(MantyxNotFoundError):
        evals.get_eval_run("ev_unknown")


@pytest.mark.parametrize(
    ("a", "b", "change"),
    [
        ({"passed": False}, {"passed": True}, "better"),
        ({"passed": True, "score": 1.0}, {"passed": False, "score": 1.0}, "worse"),
        ({"passed": True, "score": 0.5}, {"passed": True, "score": 0.75}, "better"),
        ({"passed": True, "score": None}, {"passed": True}, "same"),
        ({"passed": True}, None, "only in A"),
        (None, {"passed": True}, "only in B"),
        (None, None, ""),
    ],
)
def test_a_compared_case_tells_what_became_of_it(a: Any, b: Any, change: str) -> None:
    assert EvalRunCompareCase("c", "Case", a=a, b=b).change == change


@pytest.mark.parametrize(
    "call",
    [
        lambda evals: evals.list_eval_runs(limit=0),
        lambda evals: evals.list_eval_runs(offset=-1),
        lambda evals: evals.list_eval_runs(limit=True),
        lambda evals: evals.get_eval_run(""),
        lambda evals: evals.get_eval_dataset(None),
        lambda evals: evals.compare_eval_runs("a", ""),
        lambda evals: evals.cancel_eval_run(5),
        lambda evals: evals.stream_eval_run(""),
        lambda evals: evals.run_eval(spec(), timeout=0),
        lambda evals: evals.run_eval(spec(), poll_interval=-1),
    ],
)
def test_bad_arguments_send_nothing(bench: Any, call: Callable[[Evals], Any]) -> None:
    with pytest.raises(MantyxConfigError):
        call(bench("http://127.0.0.1:1"))


def test_an_eval_whose_creation_was_not_answered_is_not_created_twice(bench: Any) -> None:
    def lost(peer: Peer) -> None:
        peer.request()
        raise Gone

    with WireServer(lost) as server:
        with pytest.raises(MantyxNetworkError, match=r"is not known.*list_eval_runs"):
            bench(server.url).run_eval(spec())
        assert len(server.requests) == 1


# --------------------------------------------------------------------------------------------- running one


def test_run_eval_answers_local_tools_of_every_case(local: Any) -> None:
    server, evals = local(ScriptedModel(asks_for_its_order))
    events: list[EvalRunEvent] = []
    told: list[Progress] = []
    here = threading.get_ident()

    def on_event(event: EvalRunEvent) -> None:
        assert threading.get_ident() == here
        events.append(event)

    detail = evals.run_eval(spec(tools=[get_order]), on_event=on_event, progress=told.append, poll_interval=0.01)
    assert detail.status == "succeeded"
    assert [result.final_text for result in detail.results] == [f"It is order {n}." for n in (1, 2, 3)]
    # The same tool use id in each case: every call is answered nevertheless, with its own result.
    outputs = [result.tool_calls[0]["output"] for result in detail.results]
    assert outputs == [f"order {n} is on its way" for n in (1, 2, 3)]
    assert [event.type for event in events].count("local_tool_call") == 3
    assert (events[0].type, events[-1].type) == ("snapshot", "run_completed")
    assert (told[0], told[-1]) == (Progress("eval cases", 0, 0, None), Progress("eval cases", 3, 0, 3, "succeeded"))
    assert [progress.done for progress in told] == sorted(progress.done for progress in told)
    assert len(server.runs) == 3


def test_run_eval_with_an_inline_agent_and_data_set(local: Any) -> None:
    _, evals = local(ScriptedModel(asks_for_its_order))
    case = InlineEvalCaseSpec({"prompt": "Order 7?"}, scorers=[{"type": "contains", "value": "7"}])
    agent = RunSpec(system_prompt="Help.", tools=[get_order])
    detail = evals.run_eval(spec(dataset=InlineEvalDatasetSpec([case]), agent=agent))
    assert (detail.inline_agent, detail.passed_cases, detail.results[0].scores[0]["passed"]) == (True, 1, True)


def test_handlers_see_the_callers_context_and_the_agent_run(local: Any) -> None:
    server, evals = local(ScriptedModel(asks_for_its_order))
    user = contextvars.ContextVar("user", default="nobody")
    seen = []

    @tool(name="get_order")
    def look(order_id: str, context: ToolContext) -> str:
        """Look up."""
        seen.append((user.get(), context.run_id))
        return order_id

    user.set("ada")
    evals.run_eval(spec(tools=[look]))
    assert seen == [("ada", run.id) for run in server.runs]


def test_a_tool_nobody_offers_is_answered_and_the_eval_ends(local: Any) -> None:
    _, evals = local(ScriptedModel(asks_for_its_order))
    agent = {**AGENT, "tools": [{"kind": "local", "name": "get_order", "parameters": {"type": "object"}}]}
    detail = evals.run_eval(spec(agent=agent))
    assert detail.results[0].tool_calls[0]["isError"] is True


def test_a_stream_that_breaks_off_is_taken_up_again_and_tools_run_once(local: Any) -> None:
    server, evals = local(ScriptedModel(asks_for_its_order))
    calls = []

    @tool(name="get_order")
    def look(order_id: str) -> str:
        """Look up."""
        calls.append(order_id)
        return order_id

    for after in (40, 300, 700, 1100):
        server.faults.add(cut(after), route="eval_stream")
    events: list[EvalRunEvent] = []
    detail = evals.run_eval(spec(tools=[look]), on_event=events.append)
    assert detail.status == "succeeded"
    assert calls == ["1", "2", "3"]
    seqs = [event.seq for event in events]
    assert seqs == list(range(1, len(seqs) + 1))


def test_an_eval_that_is_not_over_in_time_is_cancelled(local: Any) -> None:
    reached = threading.Event()
    _, evals = local(ScriptedModel([Pause(threading.Event(), reached)]))
    with pytest.raises(MantyxTimeoutError, match="did not end in time and was cancelled") as caught:
        evals.run_eval(spec(), timeout=0.3)
    assert reached.is_set()
    assert caught.value.run_id is not None
    wait_until(lambda: evals.get_eval_run(caught.value.run_id).status == "cancelled", "it was not cancelled")


@pytest.mark.parametrize("where", ["on_event", "progress"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, MantyxProtocolError])
def test_what_a_callback_raises_cancels_the_eval_at_once(local: Any, where: str, error: type[BaseException]) -> None:
    _, evals = local(ScriptedModel([Pause(threading.Event())]))

    def raises(found: Any) -> None:
        if found == Progress("eval cases", 0, 0, None):  # there is no eval yet
            return
        raise error("enough")

    started = time.monotonic()
    with pytest.raises(error, match="enough"):
        evals.run_eval(spec(), **{where: raises})
    assert time.monotonic() - started < 2
    (run,) = evals.list_eval_runs()
    wait_until(lambda: evals.get_eval_run(run.id).status == "cancelled", "it was not cancelled")


def test_a_handler_that_hangs_is_told_when_the_eval_is_given_up(local: Any) -> None:
    _, evals = local(ScriptedModel(asks_for_its_order))
    told, begun = threading.Event(), threading.Event()

    @tool(name="get_order")
    def hang(order_id: str, context: ToolContext) -> str:
        """Look up."""
        begun.set()
        if context.cancelled.wait(DEADLINE_S):
            told.set()
        return order_id

    with pytest.raises(MantyxTimeoutError):
        evals.run_eval(spec(tools=[hang]), timeout=0.5)
    assert begun.is_set()
    assert told.wait(DEADLINE_S)


def test_a_cancelled_eval_is_returned_as_it_is(local: Any) -> None:
    _, evals = local(ScriptedModel([Pause(threading.Event())]))

    def cancel(event: EvalRunEvent) -> None:
        if event.type == "case_started":
            evals.cancel_eval_run(event.data["agentRunId"] and ids[0])
        elif event.type == "snapshot":
            ids.append(event.data["runId"])

    ids: list[str] = []
    assert evals.run_eval(spec(), on_event=cancel).status == "cancelled"


def test_a_refused_eval_is_refused(local: Any) -> None:
    _, evals = local()
    with pytest.raises(MantyxNotFoundError):
        evals.run_eval(spec(dataset_id="unknown"))
    with pytest.raises(MantyxBadRequestError):
        evals.run_eval(spec(dataset={"cases": [{"input": {"prompt": "Hi"}, "scorers": [{"type": "mind"}]}]}))


# --------------------------------------------------------------------------------------------- a lost stream

BASE = "/api/v1/workspaces/w/eval-runs"


class EvalServer:
    """Play an eval by scripts: what its stream brings, and what its record says at each look."""

    def __init__(self, *streams: Any, records: Any = (), stream_status: int = 200) -> None:
        self.streams, self.records, self.stream_status = list(streams), list(records), stream_status
        self.targets: list[str] = []
        self.results: list[tuple[str, Any]] = []
        self._lock = threading.Lock()
        self.wire = WireServer(self._play)
        self.url = self.wire.url

    def __enter__(self) -> EvalServer:
        return self

    def __exit__(self, *error: Any) -> None:
        self.wire.__exit__(*error)

    def count(self, target: str) -> int:
        return sum(found.partition("?")[0] == BASE + target for found in self.targets)

    def _next(self, items: list[Any]) -> Any:
        with self._lock:
            return items.pop(0) if len(items) > 1 else items[0]

    def _play(self, peer: Peer) -> None:
        while True:
            request = peer.request()
            path = request.target.partition("?")[0]
            self.targets.append(request.target)
            if path == BASE:
                self._json(peer, 202, {"runId": "ev_1", "status": "queued"})
            elif path.endswith("/tool-results"):
                self.results.append((path, request.json()))
                self._json(peer, 200, {})
            elif path == f"{BASE}/ev_1":
                record = self._next(self.records)
                self._json(peer, record if isinstance(record, int) else 200, record)
            elif path != f"{BASE}/ev_1/stream":
                self._json(peer, 200, {})
            elif self.stream_status != 200:
                self._json(peer, self.stream_status, {"error": "not_found"})
            else:
                pieces = self._next(self.streams)
                peer.send(stream_head())
                for piece in pieces:
                    if callable(piece):
                        piece(self, peer)
                    else:
                        peer.send(chunk(piece.encode() + b"\n\n"))
                raise Gone

    @staticmethod
    def _json(peer: Peer, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        peer.send(head(status, content_length=len(data), content_type="application/json"), data)


def stay(_: EvalServer, peer: Peer) -> None:
    peer.stay()


def until_answered(server: EvalServer, peer: Peer) -> None:
    wait_until(lambda: server.results or server.wire.closing.is_set(), "the tool call was not answered")


RUNNING, DONE = summary(status="running"), summary(status="succeeded")
CALL = {"toolUseId": "tu_1", "name": "get_order", "args": {"order_id": "1"}}


def test_a_stream_resumes_behind_the_last_number(bench: Any) -> None:
    with EvalServer([frame("snapshot", 1), frame("x", 2)], [frame("run_completed", 3)]) as server:
        with bench(server.url).stream_eval_run("ev_1") as stream:
            assert [(event.type, event.seq) for event in stream] == [("snapshot", 1), ("x", 2), ("run_completed", 3)]
            with pytest.raises(StopIteration):
                next(stream)
        assert server.targets == [f"{BASE}/ev_1/stream", f"{BASE}/ev_1/stream?lastSeq=2"]


@pytest.mark.parametrize(
    ("status", "event_type"), [("succeeded", "run_completed"), ("failed", "run_error"), ("cancelled", "run_cancelled")]
)
def test_an_eval_that_ended_in_silence_gets_its_last_event_from_its_record(
    bench: Any, status: str, event_type: str
) -> None:
    with EvalServer([A], [], records=[RUNNING, summary(status=status, error="boom")]) as server:
        first, last = bench(server.url).stream_eval_run("ev_1")
        assert first.data == {"caseId": "a"}
        assert (last.type, last.data, last.raw) == (
            event_type,
            {"runId": "ev_1", "status": status, "error": "boom"},
            {},
        )


def test_a_stream_that_is_gone_ends_with_the_record_or_an_error(bench: Any) -> None:
    with EvalServer(records=[DONE], stream_status=404) as server:
        assert [event.type for event in bench(server.url).stream_eval_run("ev_1")] == ["run_completed"]
    with EvalServer(records=[404], stream_status=404) as server, pytest.raises(MantyxNotFoundError) as caught:
        next(bench(server.url).stream_eval_run("ev_1"))
    assert caught.value.run_id == "ev_1"


def test_a_lost_stream_says_how_to_go_on(bench: Any) -> None:
    with EvalServer([], records=[RUNNING]) as server:
        stream = bench(server.url, reconnect_timeout=0.2).stream_eval_run("ev_1")
        with pytest.raises(MantyxNetworkError, match=r"may still be going.*stream_eval_run\('ev_1'\)") as caught:
            next(stream)
        assert caught.value.run_id == "ev_1"


def test_closing_a_stream_ends_a_loop_in_another_thread(bench: Any) -> None:
    with EvalServer([frame("snapshot", 1), stay]) as server:
        stream = bench(server.url).stream_eval_run("ev_1")
        assert next(stream).type == "snapshot"
        rest: list[EvalRunEvent] = []
        reader = threading.Thread(target=lambda: rest.extend(stream))
        reader.start()
        stream.close()
        reader.join(DEADLINE_S)
        assert not reader.is_alive()
        assert rest == []


def test_a_dropped_stream_frees_its_connection(bench: Any) -> None:
    with EvalServer([frame("snapshot", 1), stay]) as server:
        next(bench(server.url).stream_eval_run("ev_1"))
        wait_until(lambda: server.wire.open_connections == 0, "the connection stays open")
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(EvalRunStream(bench("http://127.0.0.1:1")._api, "ev_1", FollowSettings()))


def test_without_tools_an_eval_is_followed_by_its_record_when_there_is_no_stream(bench: Any) -> None:
    with EvalServer(records=[RUNNING, RUNNING, RUNNING, DONE], stream_status=500) as server:
        told: list[Progress] = []
        evals = bench(server.url, reconnect_timeout=0.1)
        detail = evals.run_eval(spec(), progress=told.append, poll_interval=0.01)
        assert detail.status == "succeeded"
        assert [progress.note for progress in told] == ["", "running", "succeeded"]
        assert server.count("/ev_1/cancel") == 0


def test_with_tools_a_lost_stream_is_an_error_and_the_eval_is_left_alone(bench: Any) -> None:
    with EvalServer([], records=[RUNNING]) as server:
        with pytest.raises(MantyxNetworkError, match="may still be going"):
            bench(server.url, reconnect_timeout=0.2).run_eval(spec(tools=[get_order]))
        assert server.count("/ev_1/cancel") == 0


def test_a_record_that_lags_behind_its_stream_is_waited_for(bench: Any) -> None:
    with EvalServer([frame("run_completed", 1)], records=[RUNNING, 503, DONE]) as server:
        assert bench(server.url).run_eval(spec(), poll_interval=0.01).status == "succeeded"


def test_a_record_that_never_agrees_with_its_stream_is_an_error(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mantyx_sync.evals, "LAG_S", 0.05)
    with EvalServer([frame("run_completed", 1)], records=[RUNNING]) as server:
        with pytest.raises(MantyxProtocolError, match="its record says 'running'"):
            bench(server.url).run_eval(spec(), poll_interval=0.01)
        assert server.count("/ev_1/cancel") == 0


def test_a_stream_that_lives_but_keeps_the_end_to_itself_does_not_hang_the_eval(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mantyx_sync.evals, "CHECK_S", 0.05)
    with EvalServer([frame("snapshot", 1), stay], records=[RUNNING, DONE]) as server:
        assert bench(server.url).run_eval(spec()).status == "succeeded"


@pytest.mark.parametrize("says_its_end", [True, False])
def test_events_that_come_behind_the_record_of_the_end_are_handed_out(
    bench: Any, monkeypatch: pytest.MonkeyPatch, says_its_end: bool
) -> None:
    monkeypatch.setattr(mantyx_sync.evals, "TAIL_S", DEADLINE_S if says_its_end else 0.05)
    ended = threading.Event()  # by the record, which has been looked at
    seen: list[str] = []

    def until_ended(server: EvalServer, peer: Peer) -> None:
        assert ended.wait(DEADLINE_S)

    def look(progress: Progress) -> None:
        if progress.note:
            ended.set()

    ending = frame("run_completed", 2) if says_its_end else stay
    with EvalServer([frame("snapshot", 1), until_ended, ending], records=[DONE]) as server:
        record = bench(server.url).run_eval(
            spec(), on_event=lambda event: seen.append(event.type), progress=look, poll_interval=0.01
        )
        assert record.status == "succeeded"
    assert seen[-1:] == (["run_completed"] if says_its_end else ["snapshot"])


@pytest.mark.parametrize("agent_run", [{"agentRunId": "run_7"}, {}])
def test_a_result_goes_to_the_agent_run_and_to_none_where_none_is_named(
    bench: Any, agent_run: Mapping[str, str]
) -> None:
    pieces = [frame("local_tool_call", 1, **CALL, **agent_run), *([until_answered] if agent_run else [])]
    with EvalServer([*pieces, frame("run_completed", 2)], records=[DONE]) as server:
        assert bench(server.url).run_eval(spec(tools=[get_order])).status == "succeeded"
        path = "/api/v1/workspaces/w/agent-runs/run_7/tool-results"
        body = {"toolUseId": "tu_1", "result": "order 1 is on its way"}
        assert server.results == ([(path, body)] if agent_run else [])


def test_a_malformed_call_is_answered_if_it_says_where(bench: Any) -> None:
    call = frame("local_tool_call", 1, toolUseId="tu_1", name=7, agentRunId="run_7")
    with EvalServer([call, until_answered, frame("run_completed", 2)], records=[DONE]) as server:
        bench(server.url).run_eval(spec(tools=[get_order]))
        ((path, body),) = server.results
        assert path.endswith("/agent-runs/run_7/tool-results")
        assert "no tool named" in body["error"]


# ------------------------------------------------------------------------------------------- the client


@pytest.mark.parametrize("method", [MantyxClient.create_eval_run, MantyxClient.run_eval])
def test_the_clients_methods_take_and_show_every_field(method: Callable[..., Any]) -> None:
    names = [field.name for field in dataclasses.fields(EvalRunSpec)]
    assert list(EvalRunArgs.__annotations__) == names
    assert list(inspect.signature(method).parameters)[-len(names) :] == names


def test_the_client_sends_what_it_has_no_argument_for_and_refuses_a_slip_of_the_pen() -> None:
    with LocalServer() as server, MantyxClient(**server.client_settings()) as client:
        for method in (client.create_eval_run, client.run_eval):
            with pytest.raises(TypeError, match="'modelId'; did you mean 'model_id'"):
                method(dataset={"cases": [{"input": {"prompt": "Hi"}}]}, agent=AGENT, modelId="m")
        assert not server.requests
        record = client.run_eval(
            dataset={"cases": [{"input": {"prompt": "Hi"}}]}, agent=AGENT, extra_body={"repeat": 2}, timeout=DEADLINE_S
        )
        assert record.status == "succeeded"
        assert json.loads(server.requests[0].body)["repeat"] == 2
