"""Results: how a run's end becomes a result or an error, and what listings and catalogs are read into."""

from __future__ import annotations

import pickle

import pytest

from mantyx_sync.errors import MantyxProtocolError, MantyxRunCancelled, MantyxRunError, RateLimit
from mantyx_sync.events import RunEvent, decode
from mantyx_sync.models import ModelCatalog, ModelInfo, PricingInfo
from mantyx_sync.pages import Page
from mantyx_sync.results import (
    FailureReason,
    RunFeedback,
    RunModelInfo,
    RunPage,
    RunSnapshot,
    RunTokenUsage,
    StructuredOutputInfo,
    TaskPlan,
    TaskPlanStep,
    TokenUsage,
    conclude,
    conclude_snapshot,
    task_plan_from_event_data,
)
from mantyx_sync.wire import Fields, python_name, wire_name

TOKENS = {"inputTokens": 12, "cachedTokens": 5, "reasoningTokens": 1, "outputTokens": 7}
MODEL = {"id": "platform:demo", "provider": "openai", "vendorModelId": "gpt", "reasoningEffort": "low"}
STRUCTURED = {
    "schemaRequested": True,
    "schemaEnforced": False,
    "enforcementMechanism": "synthetic_tool",
    "unconstrainedFallbackOccurred": True,
}


def event(kind, data, seq=14) -> RunEvent:
    return decode({"seq": seq, "type": kind, "data": data})


@pytest.mark.parametrize(
    "data",
    [
        {"ok": True, "text": "Done"},
        {"text": "Done"},
        {"subtype": "success", "text": "Done"},
        {"subtype": "success", "ok": True, "text": "Done"},
        {"subtype": None, "ok": None, "text": "Done"},
        {"subtype": "", "text": "Done"},
    ],
)
def test_successful_result_is_the_answer(data) -> None:
    result = conclude("run_1", event("result", data))
    assert (result.run_id, result.text, result.subtype, result.last_seq) == ("run_1", "Done", "success", 14)
    assert result.tokens is result.turns is result.model is result.plan is result.output is None
    assert result.raw == data


def test_result_carries_what_the_server_reports() -> None:
    data = {
        "text": "Done",
        "tokens": TOKENS,
        "turns": 3,
        "model": MODEL,
        "structuredOutput": STRUCTURED,
        "plan": {"brief": "b", "steps": [{"title": "one", "status": "done"}]},
    }
    limit = RateLimit(limit=120, remaining=119)
    kept = [event("assistant_message", {"text": "Done", "turn": 0}, 13)]
    result = conclude("run_1", event("result", data), kept, request_id="req_1", rate_limit=limit)
    assert result.tokens == TokenUsage(12, 5, 1, 7)
    assert result.turns == 3
    assert result.model == RunModelInfo("platform:demo", "openai", "gpt", "low")
    assert result.structured_output == StructuredOutputInfo(True, False, "synthetic_tool", True)
    assert result.plan == TaskPlan((TaskPlanStep("one", "done"),), "b")
    assert result.events == tuple(kept)
    assert (result.request_id, result.rate_limit) == ("req_1", limit)
    assert pickle.loads(pickle.dumps(result)) == result


@pytest.mark.parametrize(
    ("data", "subtype", "text"),
    [
        (
            {"subtype": "error_local_tool_timeout", "error": "late"},
            "error_local_tool_timeout",
            "run run_1 failed (error_local_tool_timeout): late",
        ),
        ({"ok": False, "error": "late"}, "error", "run run_1 failed (error): late"),
        ({"ok": False}, "error", "run run_1 failed (error)"),
        ({"subtype": "success", "ok": False, "text": "half"}, "error", "run run_1 failed (error)"),
        ({"subtype": "brand_new", "ok": True}, "brand_new", "run run_1 failed (brand_new)"),
    ],
)
def test_result_with_an_error_subtype_is_a_failure(data, subtype, text) -> None:
    with pytest.raises(MantyxRunError) as caught:
        conclude("run_1", event("result", {**data, "tokens": TOKENS, "turns": 2, "model": MODEL}))
    error = caught.value
    assert (error.run_id, error.subtype, error.code, str(error)) == ("run_1", subtype, subtype, text)
    assert (error.turns, error.tokens, error.last_seq) == (2, TokenUsage(12, 5, 1, 7), 14)
    assert error.partial_text == data.get("text")


def test_error_event_is_a_failure_with_its_triage_fields() -> None:
    data = {
        "error": "Model output was truncated",
        "code": "truncation",
        "errorClass": "truncation",
        "finishReason": "max_tokens",
        "partialText": '{"answer": MARKER',
        "retryable": False,
        "apiStatus": 529,
        "apiCode": "overloaded",
        "tokens": TOKENS,
        "turns": 1,
        "model": MODEL,
        "structuredOutput": STRUCTURED,
    }
    with pytest.raises(MantyxRunError) as caught:
        conclude("run_1", event("error", data))
    error = caught.value
    assert (error.subtype, error.error_class, error.finish_reason) == ("truncation", "truncation", "max_tokens")
    assert (error.retryable, error.api_status, error.api_code) == (False, 529, "overloaded")
    assert (error.partial_text, error.turns, error.last_seq) == ('{"answer": MARKER', 1, 14)
    assert error.model == RunModelInfo("platform:demo", "openai", "gpt", "low")
    assert error.structured_output == StructuredOutputInfo(True, False, "synthetic_tool", True)
    assert error.raw == data
    assert "MARKER" not in str(error)
    assert "MARKER" not in repr(error)
    assert pickle.loads(pickle.dumps(error)).__dict__ == error.__dict__


@pytest.mark.parametrize(
    ("data", "subtype"),
    [
        ({"error": "x", "errorClass": "server", "code": "error"}, "server"),
        ({"error": "x", "code": "worker_error"}, "worker_error"),
        ({"error": {"message": "limit", "type": "overloaded"}}, "overloaded"),
        ({"error": "x"}, "error"),
        ({}, "error"),
    ],
)
def test_error_event_names_its_category(data, subtype) -> None:
    with pytest.raises(MantyxRunError) as caught:
        conclude("run_1", event("error", data))
    assert caught.value.subtype == subtype
    assert caught.value.tokens is None


@pytest.mark.parametrize(
    ("kind", "data", "reason"),
    [
        ("cancelled", {"reason": "user"}, "user"),
        ("cancelled", {}, None),
        ("result", {"subtype": "cancelled"}, None),
    ],
)
def test_cancelled_run_is_its_own_error(kind, data, reason) -> None:
    with pytest.raises(MantyxRunCancelled) as caught:
        conclude("run_1", event(kind, data))
    assert (caught.value.run_id, caught.value.subtype, caught.value.reason) == ("run_1", "cancelled", reason)
    assert caught.value.last_seq == 14


def test_terminal_event_built_by_hand_is_understood() -> None:
    assert conclude("run_1", RunEvent(seq=3, type="result", data={"text": "hi"})).text == "hi"
    with pytest.raises(ValueError, match="'assistant_delta' does not end a run"):
        conclude("run_1", RunEvent(seq=3, type="assistant_delta", data={"text": "hi"}))


@pytest.mark.parametrize("data", [{}, {"text": None}])
def test_result_without_text_is_the_last_turn(data) -> None:
    kept = [
        event("assistant_message", {"text": "first", "turn": 0}, 5),
        event("assistant_message", {"text": "last", "turn": 1}, 9),
        event("task_plan", {"steps": [{"title": "one", "status": "done"}]}, 10),
    ]
    result = conclude("run_1", event("result", data), kept)
    assert result.text == "last"
    assert result.plan == TaskPlan((TaskPlanStep("one", "done"),))
    assert conclude("run_1", event("result", data)).text == ""
    assert conclude("run_1", event("result", {"text": ""}), kept).text == ""


def test_repr_of_a_result_is_short() -> None:
    shown = repr(conclude("run_1", event("result", {"text": "hi", "secretish": "MARKER"})))
    assert shown.startswith("RunResult(run_id='run_1', text='hi'")
    assert "MARKER" not in shown


SNAPSHOT = {
    "id": "run_1",
    "status": "succeeded",
    "finalText": "Done",
    "error": None,
    "failureReason": None,
    "spec": {"systemPrompt": "s"},
    "tokens": TOKENS,
    "turns": 2,
    "model": MODEL,
    "metadata": {"customer": "acme"},
    "sessionId": "s_1",
    "createdAt": "2026-01-01T00:00:00Z",
    "completedAt": "2026-01-01T00:00:09Z",
}


def test_snapshot_of_a_finished_run_is_its_result() -> None:
    snapshot = RunSnapshot.from_wire(SNAPSHOT)
    assert (snapshot.session_id, snapshot.metadata, snapshot.spec) == (
        "s_1",
        {"customer": "acme"},
        {"systemPrompt": "s"},
    )
    result = conclude_snapshot(snapshot, request_id="req_1")
    assert result is not None
    assert (result.run_id, result.text, result.turns, result.request_id) == ("run_1", "Done", 2, "req_1")
    assert result.tokens == TokenUsage(12, 5, 1, 7)
    assert result.last_seq is None


@pytest.mark.parametrize(
    ("status", "completed_at", "terminal"),
    [
        ("queued", None, False),
        ("running", None, False),
        ("running", "2026-01-01", False),
        ("waiting_for_tool", None, False),
        ("succeeded", None, True),
        ("failed", None, True),
        ("cancelled", None, True),
        ("expired", "2026-01-01", True),
    ],
)
def test_statuses_are_an_open_set(status, completed_at, terminal) -> None:
    snapshot = RunSnapshot.from_wire({"id": "run_1", "status": status, "completedAt": completed_at})
    assert snapshot.is_terminal is terminal
    if not terminal:
        assert conclude_snapshot(snapshot) is None


@pytest.mark.parametrize(
    ("changes", "subtype", "text"),
    [
        (
            {
                "status": "failed",
                "error": "cut",
                "failureReason": {"errorClass": "truncation", "finishReason": "max_tokens"},
            },
            "truncation",
            "run run_1 failed (truncation): cut",
        ),
        ({"status": "failed"}, "error", "run run_1 failed (error)"),
        ({"status": "expired"}, "expired", "run run_1 failed (expired)"),
    ],
)
def test_snapshot_of_a_failed_run_raises(changes, subtype, text) -> None:
    with pytest.raises(MantyxRunError) as caught:
        conclude_snapshot(RunSnapshot.from_wire({**SNAPSHOT, **changes}))
    error = caught.value
    assert (error.subtype, str(error), error.partial_text, error.turns) == (subtype, text, "Done", 2)
    reason = changes.get("failureReason") or {}
    assert (error.error_class, error.finish_reason) == (reason.get("errorClass"), reason.get("finishReason"))


def test_snapshot_of_a_cancelled_run_raises() -> None:
    with pytest.raises(MantyxRunCancelled):
        conclude_snapshot(RunSnapshot.from_wire({**SNAPSHOT, "status": "cancelled"}))


def test_snapshot_of_an_older_server_has_gaps() -> None:
    snapshot = RunSnapshot.from_wire({"status": "running"}, run_id="run_7")
    assert (snapshot.id, snapshot.tokens, snapshot.model, snapshot.failure_reason) == ("run_7", None, None, None)
    assert RunSnapshot.from_wire({"runId": "run_8", "status": "running"}).id == "run_8"
    assert RunSnapshot.from_wire({**SNAPSHOT, "failureReason": {}}).failure_reason == FailureReason()


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ([], "snapshot of run run_1: got an array, must be an object"),
        ({}, "snapshot of run run_1: field 'status' is missing, must be a string"),
        ({"status": 5}, "snapshot of run run_1: field 'status' is a number, must be a string"),
        (
            {"status": "running", "turns": "2"},
            "snapshot of run run_1: field 'turns' is a string, must be an integer",
        ),
    ],
)
def test_malformed_snapshot_is_refused_by_field(body, complaint) -> None:
    with pytest.raises(MantyxProtocolError) as caught:
        RunSnapshot.from_wire(body, run_id="run_1")
    assert str(caught.value) == complaint


@pytest.mark.parametrize(
    ("wire", "usage"),
    [
        (TOKENS, TokenUsage(12, 5, 1, 7)),
        ({}, TokenUsage()),
        ({"inputTokens": -3, "outputTokens": None}, TokenUsage()),
        ({"inputTokens": float("nan"), "outputTokens": float("inf")}, TokenUsage()),
        ({"inputTokens": 7.9, "outputTokens": 2**70}, TokenUsage(7, 0, 0, 2**70)),
    ],
)
def test_token_counts_are_clamped(wire, usage) -> None:
    assert TokenUsage.read(Fields(wire, "tokens")) == usage
    assert RunTokenUsage is TokenUsage


@pytest.mark.parametrize(
    ("data", "plan"),
    [
        ({"steps": []}, TaskPlan()),
        ({"brief": "b"}, TaskPlan(brief="b")),
        ({"plan": {"steps": [{"title": "a"}]}, "planId": "p"}, TaskPlan((TaskPlanStep("a"),), plan_id="p")),
        ({}, None),
        ({"plan": None}, None),
    ],
)
def test_plan_is_found_at_either_place(data, plan) -> None:
    assert task_plan_from_event_data(data) == plan


def listing(*, runs, cursor=None, total=None):
    return {"total": total, "limit": 2, "nextCursor": cursor, "runs": runs}


def test_listing_walks_on_into_the_next_pages() -> None:
    asked = []
    bodies = {
        "c1": listing(runs=[{"id": "r3", "status": "failed", "error": "x"}], cursor="c2"),
        "c2": listing(runs=[]),
    }

    def fetch(cursor):
        asked.append(cursor)
        return RunPage.from_wire(bodies[cursor], fetch)

    first = listing(
        runs=[{"id": "r1", "status": "succeeded", "durationMs": 12.5}, {"id": "r2", "status": "new"}],
        cursor="c1",
        total=3,
    )
    page = RunPage.from_wire(first, fetch)
    assert ([run.id for run in page.items], page.total, page.limit, asked) == (["r1", "r2"], 3, 2, [])
    assert page.runs is page.items
    assert page.items[0].duration_ms == 12.5
    walk = iter(page)
    assert [next(walk).id, next(walk).id, asked] == ["r1", "r2", []]
    assert [run.id for run in walk] == ["r3"]
    assert asked == ["c1", "c2"]
    assert [len(each.items) for each in page.pages()] == [2, 1, 0]


def test_listing_that_points_at_itself_is_refused() -> None:
    page = Page(items=(1,), next_cursor="c", fetch_next=lambda cursor: Page(items=(2,), next_cursor="c"))
    walk = iter(page)
    assert next(walk) == 1
    with pytest.raises(MantyxProtocolError, match="cursor"):
        next(walk)


def test_page_pickles_without_its_way_on() -> None:
    page = Page(items=(1, 2), next_cursor="c", fetch_next=lambda cursor: Page(items=(3,)))
    again = pickle.loads(pickle.dumps(page))
    assert again == page
    assert list(again) == [1, 2]
    assert not hasattr(page, "__len__")


def test_feedback_is_read() -> None:
    body = {"id": "f1", "verdict": "UP", "targetKind": "agent_run", "agentRunId": "run_1", "more": 1}
    feedback = RunFeedback.from_wire(body)
    assert (feedback.id, feedback.verdict, feedback.target_kind, feedback.agent_run_id) == (
        "f1",
        "UP",
        "agent_run",
        "run_1",
    )
    assert feedback.raw["more"] == 1
    assert RunFeedback.from_wire({"id": "f", "verdict": "DOWN"}, "run_2").agent_run_id == "run_2"


def test_model_catalog_is_read() -> None:
    body = {
        "models": [
            {
                "id": "platform:demo",
                "label": "Demo",
                "provider": "openai",
                "vendorModelId": "gpt",
                "source": "platform_offering",
                "contextWindowTokens": 128000,
                "pricing": {"inputPer1MUsd": 1, "outputPer1MUsd": 2.5, "cacheReadPer1MUsd": None},
            },
            {"id": "provider:x", "pricing": None},
        ],
        "defaultModelId": "platform:demo",
    }
    catalog = ModelCatalog.from_wire(body)
    assert (len(catalog), catalog.default_model_id) == (2, "platform:demo")
    demo, other = catalog
    assert demo == ModelInfo(
        "platform:demo", "Demo", "openai", "gpt", "platform_offering", 128000, PricingInfo(1, 2.5, None)
    )
    assert (demo.pricing.inputPer1MUsd, demo.pricing.outputPer1MUsd, demo.pricing.cacheReadPer1MUsd) == (
        1,
        2.5,
        None,
    )
    assert (other.pricing, other.context_window_tokens, other.label) == (None, None, "")
    assert len(ModelCatalog.from_wire({})) == 0
    with pytest.raises(MantyxProtocolError, match=r"models\[0\]: field 'id' is missing"):
        ModelCatalog.from_wire({"models": [{}]})


@pytest.mark.parametrize(
    ("python", "wire"),
    [
        ("name", "name"),
        ("agent_id", "agentId"),
        ("max_tool_turns_exceeded", "maxToolTurnsExceeded"),
        ("fallback_model_id", "fallbackModelId"),
    ],
)
def test_wire_names_follow_from_python_names(python, wire) -> None:
    assert wire_name(python) == wire
    assert python_name(wire) == python
