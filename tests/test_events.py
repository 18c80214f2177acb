"""Events: every type of the protocol decoded, older and odd shapes normalised, malformed fields named."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle

import pytest

from mantyx_sync import events
from mantyx_sync.errors import MantyxProtocolError
from mantyx_sync.events import (
    DELTA_TYPES,
    NO_SEQ,
    TERMINAL_TYPES,
    AssistantDelta,
    AssistantMessage,
    AssistantToolCall,
    CancelledEvent,
    ErrorEvent,
    LocalToolCall,
    LocalToolResultIn,
    LoopDetected,
    ModelFallback,
    ResultEvent,
    RunEvent,
    SupervisorReview,
    TaskPlanEvent,
    ThinkingDelta,
    ToolBudgetExceeded,
    ToolCall,
    ToolFile,
    ToolFiles,
    ToolResultEvent,
    decode,
    read_envelope,
)
from mantyx_sync.values import (
    RunModelInfo,
    StructuredOutputInfo,
    TaskPlan,
    TaskPlanStep,
    TaskPlanTransition,
    TokenUsage,
)

USAGE = {
    "tokens": {"inputTokens": 1283, "cachedTokens": 512, "reasoningTokens": 96, "outputTokens": 240},
    "turns": 3,
    "model": {
        "id": "platform:demo",
        "provider": "openai",
        "vendorModelId": "gpt-5.4-mini",
        "reasoningEffort": "low",
    },
    "structuredOutput": {
        "schemaRequested": True,
        "schemaEnforced": True,
        "enforcementMechanism": "native_schema",
        "unconstrainedFallbackOccurred": False,
    },
}
READ_USAGE = {
    "tokens": TokenUsage(1283, 512, 96, 240),
    "turns": 3,
    "model": RunModelInfo("platform:demo", "openai", "gpt-5.4-mini", "low"),
    "structured_output": StructuredOutputInfo(True, True, "native_schema", False),
}

KNOWN = [
    ("assistant_delta", AssistantDelta, {"text": "Héllo 😀"}, {"text": "Héllo 😀"}),
    ("assistant_delta", AssistantDelta, {}, {"text": ""}),
    ("assistant_delta", AssistantDelta, {"text": None}, {"text": ""}),
    ("thinking_delta", ThinkingDelta, {"text": "Hm"}, {"text": "Hm"}),
    (
        "tool_call",
        ToolCall,
        {"toolUseId": "tu_a", "name": "search", "input": {"q": "x"}},
        {"tool_use_id": "tu_a", "name": "search", "input": {"q": "x"}},
    ),
    (
        "tool_result",
        ToolResultEvent,
        {"toolUseId": "tu_a", "name": "search", "result": "..."},
        {"tool_use_id": "tu_a", "name": "search", "result": "...", "ok": None, "summary": None},
    ),
    (
        "tool_result",
        ToolResultEvent,
        {"toolUseId": "tu_a", "name": "search", "ok": False, "summary": "timed out"},
        {"tool_use_id": "tu_a", "ok": False, "summary": "timed out", "result": None},
    ),
    (
        "local_tool_call",
        LocalToolCall,
        {"toolUseId": "tu_x", "name": "total", "args": {"amount": 42}},
        {"tool_use_id": "tu_x", "name": "total", "args": {"amount": 42}, "kind": "local"},
    ),
    ("local_tool_call", LocalToolCall, {"toolUseId": "t", "name": "n", "args": None}, {"args": {}}),
    ("local_tool_call", LocalToolCall, {"toolUseId": "t", "name": "n", "args": '{"a":'}, {"args": '{"a":'}),
    ("local_tool_call", LocalToolCall, {"toolUseId": "t", "name": "n", "args": [1]}, {"args": [1]}),
    ("local_tool_call", LocalToolCall, {"toolUseId": "t", "name": "n"}, {"args": {}}),
    (
        "local_tool_call",
        LocalToolCall,
        {
            "toolUseId": "tu_y",
            "name": "hr",
            "args": {"message": "PTO?"},
            "kind": "a2a_local",
            "agentCard": {"name": "HR", "url": "https://hr/a2a"},
        },
        {"kind": "a2a_local", "agent_card": {"name": "HR", "url": "https://hr/a2a"}},
    ),
    (
        "local_tool_call",
        LocalToolCall,
        {
            "toolUseId": "tu_z",
            "name": "fs_read",
            "args": {"path": "/x"},
            "kind": "mcp_local",
            "mcpServer": "fs",
            "mcpToolName": "fs_read",
            "mcpServerInfo": {"name": "server"},
            "agentRunId": "run_9",
        },
        {
            "mcp_server": "fs",
            "mcp_tool_name": "fs_read",
            "mcp_server_info": {"name": "server"},
            "agent_run_id": "run_9",
        },
    ),
    (
        "local_tool_result_in",
        LocalToolResultIn,
        {"toolUseId": "tu_x", "output": "42", "files": [{"filename": "a.png"}]},
        {"tool_use_id": "tu_x", "output": "42", "error": None, "files": ({"filename": "a.png"},)},
    ),
    ("local_tool_result_in", LocalToolResultIn, {"toolUseId": "t", "result": "42"}, {"output": "42"}),
    ("local_tool_result_in", LocalToolResultIn, {"toolUseId": "t", "error": "no"}, {"error": "no"}),
    (
        "assistant_message",
        AssistantMessage,
        {
            "text": "Here",
            "turn": 0,
            "finishReason": "tool_use",
            "toolCalls": [{"id": "c", "name": "search", "input": {"q": 1}}],
        },
        {
            "text": "Here",
            "turn": 0,
            "finish_reason": "tool_use",
            "tool_calls": (AssistantToolCall("c", "search", {"q": 1}),),
        },
    ),
    (
        "assistant_message",
        AssistantMessage,
        {"text": "Hi", "turn": 1.0, "finishReason": None},
        {"turn": 1, "finish_reason": None, "tool_calls": ()},
    ),
    (
        "loop_detected",
        LoopDetected,
        {"consecutiveCount": 3, "hardCutoff": False, "tools": ["recall"]},
        {"consecutive_count": 3, "hard_cutoff": False, "tools": ("recall",)},
    ),
    (
        "tool_budget_exceeded",
        ToolBudgetExceeded,
        {"tool": "recall", "maxCalls": 4, "callIndex": 5},
        {"tool": "recall", "max_calls": 4, "call_index": 5},
    ),
    (
        "supervisor",
        SupervisorReview,
        {"action": "redirect", "reason": "r", "redirect": "do", "llmCalls": 7, "phase": "reasoning"},
        {"action": "redirect", "reason": "r", "redirect": "do", "llm_calls": 7, "phase": "reasoning"},
    ),
    (
        "supervisor",
        SupervisorReview,
        {"action": "on_track", "reason": "r", "llmCalls": 5, "model": USAGE["model"]},
        {"redirect": None, "phase": "turn_boundary", "model": READ_USAGE["model"]},
    ),
    (
        "task_plan",
        TaskPlanEvent,
        {"brief": "b", "steps": [{"title": "one", "status": "done"}, {"title": "two"}]},
        {
            "plan": TaskPlan(steps=(TaskPlanStep("one", "done"), TaskPlanStep("two", "pending")), brief="b"),
            "transition": None,
        },
    ),
    (
        "task_plan",
        TaskPlanEvent,
        {
            "v": 2,
            "planId": "p1",
            "revision": 3,
            "mode": "auto",
            "source": "model",
            "transition": {"kind": "advance", "stepId": "s1"},
            "transitionIndex": 1,
            "transitionCount": 2,
            "plan": {"brief": "b", "steps": [{"id": "s1", "title": "one", "status": "blocked"}]},
        },
        {
            "plan": TaskPlan((TaskPlanStep("one", "blocked", "s1"),), "b", "p1", 3, "auto", "model", 2),
            "transition": TaskPlanTransition("advance", "s1"),
            "transition_index": 1,
            "transition_count": 2,
        },
    ),
    ("task_plan", TaskPlanEvent, {}, {"plan": None}),
    (
        "tool_files",
        ToolFiles,
        {
            "name": "chart",
            "files": [{"filename": "a.png", "mimeType": "image/png", "sizeBytes": 7, "url": "https://x/a"}],
        },
        {"name": "chart", "files": (ToolFile("a.png", "image/png", 7, None, "https://x/a"),)},
    ),
    (
        "model_fallback",
        ModelFallback,
        {"errorClass": "overloaded", "model": "b", "primaryModelId": "a", "fallbackModelId": "b"},
        {"error_class": "overloaded", "model": "b", "primary_model_id": "a", "fallback_model_id": "b"},
    ),
    (
        "result",
        ResultEvent,
        {"ok": True, "text": "Done", **USAGE},
        {"ok": True, "text": "Done", "subtype": None, "error": None, "plan": None, **READ_USAGE},
    ),
    (
        "result",
        ResultEvent,
        {"subtype": "success", "text": "t", "plan": {"brief": "b", "steps": []}},
        {"subtype": "success", "plan": TaskPlan((), "b"), "tokens": None, "turns": None, "model": None},
    ),
    (
        "result",
        ResultEvent,
        {"subtype": "error_local_tool_timeout", "error": "late", "text": None},
        {"subtype": "error_local_tool_timeout", "error": "late", "text": ""},
    ),
    (
        "result",
        ResultEvent,
        {"text": "", "tokens": None, "model": {"id": "", "provider": ""}},
        {"tokens": None, "model": None},
    ),
    (
        "result",
        ResultEvent,
        {"tokens": {"inputTokens": -5, "cachedTokens": 1.7, "reasoningTokens": None}},
        {"tokens": TokenUsage(0, 1, 0, 0)},
    ),
    (
        "error",
        ErrorEvent,
        {
            "error": "cut",
            "code": "truncation",
            "errorClass": "truncation",
            "finishReason": "max_tokens",
            "partialText": '{"a',
            "retryable": False,
            "apiStatus": 529,
            "apiCode": "overloaded_error",
            **USAGE,
        },
        {
            "error": "cut",
            "code": "truncation",
            "error_class": "truncation",
            "finish_reason": "max_tokens",
            "partial_text": '{"a',
            "retryable": False,
            "api_status": 529,
            "api_code": "overloaded_error",
            **READ_USAGE,
        },
    ),
    ("error", ErrorEvent, {"error": "x", "apiCode": 42}, {"api_code": "42"}),
    (
        "error",
        ErrorEvent,
        {"error": {"message": "limit", "type": "overloaded"}},
        {"error": "limit", "code": "overloaded", "error_class": None},
    ),
    ("error", ErrorEvent, {"message": "limit"}, {"error": "limit"}),
    ("error", ErrorEvent, {}, {"error": "", "code": None}),
    ("cancelled", CancelledEvent, {"reason": "user"}, {"reason": "user"}),
    ("cancelled", CancelledEvent, None, {"reason": None}),
]


def ids(case) -> str:
    return case if isinstance(case, str) else ""


@pytest.mark.parametrize(("kind", "cls", "data", "attributes"), KNOWN, ids=ids)
def test_known_type_is_decoded_to_its_class(kind, cls, data, attributes) -> None:
    envelope = {"seq": 7, "type": kind, "data": data}
    event = decode(envelope)
    assert type(event) is cls
    assert (event.seq, event.type, event.data, event.raw) == (7, kind, data or {}, envelope)
    assert {name: getattr(event, name) for name in attributes} == attributes
    assert event.is_terminal == (kind in TERMINAL_TYPES)


def test_table_covers_every_known_type() -> None:
    assert {kind for kind, *_ in KNOWN} == set(events._TYPES)
    assert {cls for _, cls, *_ in KNOWN} == set(RunEvent.__subclasses__())
    assert set(events._TYPES) >= TERMINAL_TYPES | DELTA_TYPES


@pytest.mark.parametrize(("kind", "cls", "data", "attributes"), KNOWN, ids=ids)
def test_decoding_fills_what_the_constructor_would(kind, cls, data, attributes) -> None:
    event = decode({"seq": 7, "type": kind, "data": data})
    filled = {f.name: event.__dict__[f.name] for f in dataclasses.fields(event)}
    assert event.__dict__ == filled
    assert cls(**filled) == event


@pytest.mark.parametrize(("kind", "cls", "data", "attributes"), KNOWN, ids=ids)
def test_event_pickles_copies_and_hashes(kind, cls, data, attributes) -> None:
    event = decode({"seq": 7, "type": kind, "data": data})
    for again in (pickle.loads(pickle.dumps(event)), copy.deepcopy(event), dataclasses.replace(event)):
        assert again == event
        assert type(again) is cls
    assert dataclasses.replace(event, seq=8) != event
    assert hash(event) == hash(copy.deepcopy(event))


@pytest.mark.parametrize(("kind", "cls", "data", "attributes"), KNOWN, ids=ids)
def test_unknown_fields_stay_reachable(kind, cls, data, attributes) -> None:
    event = decode({"seq": 7, "type": kind, "data": {**(data or {}), "brandNew": [1]}, "extra": True})
    assert event.data["brandNew"] == [1]
    assert event.raw["extra"] is True


def test_event_cannot_be_changed() -> None:
    event = decode({"seq": 1, "type": "assistant_delta", "data": {"text": "a"}})
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.seq = 2


@pytest.mark.parametrize("data", [{"x": 1}, {}, None, "text", [1]])
def test_unknown_type_arrives_as_a_plain_event(data) -> None:
    envelope = {"seq": 2, "type": "brand.new", "data": data}
    event = decode(envelope)
    assert type(event) is RunEvent
    assert event.data == (data if isinstance(data, dict) else {})
    assert event.raw is envelope
    assert not event.is_terminal


@pytest.mark.parametrize(
    ("kind", "data", "complaint"),
    [
        ("assistant_delta", {"text": 5}, "field 'text' is a number, must be a string"),
        ("assistant_delta", {"text": ["a"]}, "field 'text' is an array, must be a string"),
        ("assistant_delta", "hello", "got a string, must be an object"),
        ("assistant_delta", [], "got an array, must be an object"),
        ("local_tool_call", {"name": "n"}, "field 'toolUseId' is missing, must be a string"),
        ("local_tool_call", {"toolUseId": None}, "field 'toolUseId' is null, must be a string"),
        ("local_tool_call", {"toolUseId": "t"}, "field 'name' is missing, must be a string"),
        (
            "local_tool_call",
            {"toolUseId": "t", "name": "n", "agentCard": "x"},
            "field 'agentCard' is a string, must be an object",
        ),
        ("local_tool_result_in", {"output": "x"}, "field 'toolUseId' is missing, must be a string"),
        ("assistant_message", {"turn": True}, "field 'turn' is a boolean, must be an integer"),
        ("assistant_message", {"turn": 1.5}, "field 'turn' is a number, must be an integer"),
        ("assistant_message", {"toolCalls": {}}, "field 'toolCalls' is an object, must be an array"),
        ("assistant_message", {"toolCalls": [1]}, "toolCalls[0]: got a number, must be an object"),
        ("loop_detected", {"tools": ["a", 1]}, "field 'tools' is an array, must be an array of strings"),
        ("result", {"text": {"a": 1}}, "field 'text' is an object, must be a string"),
        ("result", {"tokens": "many"}, "field 'tokens' is a string, must be an object"),
        (
            "result",
            {"tokens": {"inputTokens": "7"}},
            "tokens: field 'inputTokens' is a string, must be a number",
        ),
        ("error", {"error": 5}, "field 'error' is a number, must be a string"),
        ("error", {"retryable": "no"}, "field 'retryable' is a string, must be a boolean"),
        ("task_plan", {"steps": "x"}, "field 'steps' is a string, must be an array"),
        ("cancelled", {"reason": {}}, "field 'reason' is an object, must be a string"),
    ],
)
def test_malformed_field_is_named(kind, data, complaint) -> None:
    with pytest.raises(MantyxProtocolError) as caught:
        decode({"seq": 9, "type": kind, "data": data})
    assert str(caught.value) == f"event '{kind}' (seq 9): {complaint}"


def test_message_of_a_malformed_field_does_not_quote_the_model() -> None:
    with pytest.raises(MantyxProtocolError) as caught:
        decode({"seq": 9, "type": "result", "data": {"text": {"MARKER": "MARKER"}}})
    assert "MARKER" not in str(caught.value)


def test_envelope_is_taken_as_it_is() -> None:
    payload = {"seq": 3, "type": "assistant_delta", "data": {"text": "a"}}
    assert read_envelope(payload, None, None) is payload
    assert read_envelope(payload, "error", "99") is payload


@pytest.mark.parametrize(
    ("payload", "name", "event_id", "expected"),
    [
        # the event: line was stripped, or agrees
        ({"seq": 1, "type": "x", "data": {}}, "", "1", (1, "x", {})),
        ({"seq": 1, "type": "cancelled", "data": None}, "cancelled", None, (1, "cancelled", {})),
        ({"seq": 1, "type": "cancelled"}, None, None, (1, "cancelled", {})),
        # seq in other forms
        ({"seq": 4.0, "type": "x", "data": {}}, None, None, (4, "x", {})),
        ({"seq": "4", "type": "x", "data": {}}, None, None, (4, "x", {})),
        ({"type": "x", "data": {}}, None, "5", (5, "x", {})),
        ({"seq": None, "type": "x", "data": {}}, None, "5", (5, "x", {})),
        ({"seq": True, "type": "x", "data": {}}, None, None, (NO_SEQ, "x", {})),
        ({"seq": 1.5, "type": "x", "data": {}}, None, None, (NO_SEQ, "x", {})),
        ({"seq": float("nan"), "type": "x", "data": {}}, None, None, (NO_SEQ, "x", {})),
        ({"type": "x", "data": {}}, None, "abc", (NO_SEQ, "x", {})),
        ({"type": "x", "data": {}}, None, "-3", (NO_SEQ, "x", {})),
        ({"type": "x", "data": {}}, None, "٣", (NO_SEQ, "x", {})),
        ({"type": "x", "data": {}}, None, "9" * 5000, (NO_SEQ, "x", {})),
        ({"type": "x", "data": {}}, None, "", (NO_SEQ, "x", {})),
        # older servers: the bare payload
        ({"text": "a"}, "assistant_delta", "8", (8, "assistant_delta", {"text": "a"})),
        ({"reason": "user"}, "cancelled", "8", (8, "cancelled", {"reason": "user"})),
        ({}, "cancelled", "8", (8, "cancelled", {})),
        (
            {"error": {"message": "limit", "type": "overloaded"}},
            "error",
            None,
            (NO_SEQ, "error", {"error": {"message": "limit", "type": "overloaded"}}),
        ),
        ({"error": "text"}, None, None, (NO_SEQ, "error", {"error": "text"})),
        ({"error": "text"}, "message", "2", (2, "error", {"error": "text"})),
        # a payload may have a `type` of its own
        (
            {"type": "overloaded", "message": "m"},
            "error",
            "2",
            (2, "error", {"type": "overloaded", "message": "m"}),
        ),
        ({"seq": 6, "data": {"text": "a"}}, "assistant_delta", None, (6, "assistant_delta", {"text": "a"})),
        # session histories: the payload's fields beside the envelope's
        ({"seq": 2, "type": "user_message", "text": "hi"}, None, None, (2, "user_message", {"text": "hi"})),
        ({"type": "run_completed", "score": 1}, None, None, (NO_SEQ, "run_completed", {"score": 1})),
        # nothing says what it is
        ({"x": 1}, None, None, (NO_SEQ, "message", {"x": 1})),
        ({"type": 5, "data": {"a": 1}}, "x", "3", (3, "x", {"a": 1})),
        ({"type": "", "x": 1}, "named", "3", (3, "named", {"type": "", "x": 1})),
    ],
)
def test_other_shapes_become_envelopes(payload, name, event_id, expected) -> None:
    before = copy.deepcopy(payload)
    found = read_envelope(payload, name, event_id)
    assert found is not None
    assert (found["seq"], found["type"], found["data"]) == expected
    assert repr(payload) == repr(before)


@pytest.mark.parametrize("payload", [None, True, 5, 1.5, "text", [], [{"type": "x"}]])
def test_what_is_not_an_object_is_no_event(payload) -> None:
    assert read_envelope(payload, "assistant_delta", "1") is None


def test_envelope_keeps_fields_it_does_not_know() -> None:
    found = read_envelope({"type": "x", "data": {}, "ts": 5}, None, "1")
    assert found == {"seq": 1, "type": "x", "data": {}, "ts": 5}


@pytest.mark.parametrize(
    ("event", "shown"),
    [
        (decode({"seq": 3, "type": "assistant_delta", "data": {"text": "a"}}), "AssistantDelta(seq=3, text='a')"),
        (decode({"seq": 3, "type": "new", "data": {"a": 1}}), "RunEvent(seq=3, type='new', data={'a': 1})"),
        (decode({"seq": 3, "type": "cancelled", "data": {}}), "CancelledEvent(seq=3)"),
    ],
)
def test_repr_is_short(event, shown) -> None:
    assert repr(event) == shown


def test_text_and_user_message_of_plain_events() -> None:
    message = RunEvent(seq=1, type="user_message", data={"text": "hi"})
    assert (message.text, message.user_message()) == ("hi", {"text": "hi"})
    assert (RunEvent(1, "x").text, RunEvent(1, "x").user_message()) == ("", None)
    assert RunEvent(1, "x", {"text": 5}).text == ""


def test_plan_reads_like_the_object_it_came_from() -> None:
    data = {"brief": "b", "steps": [{"title": "one", "status": "done"}]}
    plan = decode({"seq": 1, "type": "task_plan", "data": data}).plan
    assert plan["steps"][0]["title"] == "one"
    assert plan.get("brief") == "b"
    assert plan.get("planId") is None
    assert "steps" in plan
    assert dict(plan) == data
    assert [step["status"] for step in plan.steps] == ["done"]
    assert json.loads(json.dumps(dict(plan.steps[0]))) == {"title": "one", "status": "done"}
