"""How runs of the embedded server end and what they report: structured output, refusals, fallback models,
reasoning, and the tools that the server answers itself."""

from __future__ import annotations

import json
from typing import Any, Iterable, Optional

import pytest

from mantyx_sync.local import (
    Failure,
    LocalServer,
    ModelRequest,
    ScriptedModel,
    ServerTool,
    Thinking,
    ToolFile,
    ToolOutput,
    ToolUse,
    TurnEnd,
    Usage,
)
from mantyx_sync.local.conversation import Conversation
from mantyx_sync.local.modelinfo import model_info, reasoning_effort
from tests.plain_http import Recorder, answer_calls, local_tool, of_type, request, run_to_end, start, stream, types

pytestmark = pytest.mark.usefixtures("no_leaks")

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def info(enforced: bool, mechanism: str = "native_schema") -> dict[str, Any]:
    return {
        "schemaRequested": True,
        "schemaEnforced": enforced,
        "enforcementMechanism": mechanism,
        "unconstrainedFallbackOccurred": mechanism == "none",
    }


# ------------------------------------------------------------------ structured output


@pytest.mark.parametrize(
    ("text", "mechanism", "reported"),
    [
        ('{"city": "Rome"}', "native_schema", info(True)),
        ('{"city": "Rome"}', "synthetic_tool", info(True, "synthetic_tool")),
        ('{"city": 7}', "native_schema", info(False)),
        ("Rome", "native_schema", info(False)),
        ('{"city": "Rome"}', "none", info(False, "none")),
    ],
)
def test_best_effort_reports_how_far_the_answer_keeps_to_the_schema(
    text: str, mechanism: str, reported: dict[str, Any]
) -> None:
    with LocalServer(ScriptedModel([text], structured_output=mechanism)) as server:
        done = run_to_end(server, outputSchema={"schema": SCHEMA})[-1]
    assert (done["type"], done["data"]["text"]) == ("result", text)
    assert done["data"]["structuredOutput"] == reported


@pytest.mark.parametrize(
    ("text", "mechanism", "error_class", "turns"),
    [
        ('{"city": "Rome"}', "native_schema", None, 1),
        ('{"city": 7}', "native_schema", "structured_output_not_enforced", 1),
        ("Rome", "native_schema", "structured_output_not_enforced", 1),
        ('{"city": "Rome"}', "none", "structured_output_not_supported", 0),
    ],
)
def test_strict_fails_what_does_not_keep_to_the_schema(
    text: str, mechanism: str, error_class: Optional[str], turns: int
) -> None:
    with LocalServer(ScriptedModel([text], structured_output=mechanism)) as server:
        done = run_to_end(server, outputSchema={"schema": SCHEMA, "enforcement": "strict"})[-1]
    assert done["type"] == ("result" if error_class is None else "error")
    assert (done["data"].get("errorClass"), done["data"]["turns"]) == (error_class, turns)
    if error_class == "structured_output_not_enforced":
        assert done["data"]["partialText"] == text
    assert done["data"]["structuredOutput"]["schemaEnforced"] is (error_class is None)


def test_a_run_without_a_schema_reports_nothing_about_one() -> None:
    with LocalServer(ScriptedModel(["Done."])) as server:
        assert "structuredOutput" not in run_to_end(server)[-1]["data"]


def test_a_model_that_says_nothing_about_schemas_is_taken_to_ignore_them() -> None:
    class Plain:
        model_id = "local:plain"

        def complete(self, request: ModelRequest) -> Iterable[Any]:
            yield '{"city": "Rome"}'

    with LocalServer(Plain()) as server:
        done = run_to_end(server, outputSchema={"schema": SCHEMA})[-1]["data"]
    assert done["structuredOutput"] == info(False, "none")


def test_the_model_is_given_the_schema_on_every_turn() -> None:
    model = Recorder([[ToolUse("t")], '{"city": "Rome"}'])
    with LocalServer(model) as server:
        output = {"name": "report", "schema": SCHEMA}
        answer_calls(server, start(server, tools=[local_tool("t")], outputSchema=output), {"t": ""})
    assert [asked.output_schema for asked in model.requests] == [output, output]


def test_a_truncated_answer_is_salvaged_everywhere() -> None:
    with LocalServer(ScriptedModel([['{"city": ', TurnEnd("max_tokens")]])) as server:
        run_id = start(server, outputSchema={"schema": SCHEMA})
        events = stream(server, run_id)
        snapshot = request(server, "GET", f"/agent-runs/{run_id}").json
    message, done = events[-2]["data"], events[-1]["data"]
    assert (message["text"], message["finishReason"]) == ('{"city": ', "max_tokens")
    assert (done["errorClass"], done["partialText"], done["retryable"]) == ("truncation", '{"city": ', False)
    assert done["structuredOutput"]["schemaRequested"] is True
    assert snapshot["structuredOutput"] == done["structuredOutput"]
    assert (snapshot["status"], snapshot["finalText"], snapshot["error"]) == ("failed", '{"city": ', done["error"])
    assert snapshot["failureReason"] == {"errorClass": "truncation", "finishReason": "max_tokens"}


@pytest.mark.parametrize("reason", ["refusal", "malformed_function_call"])
def test_a_refused_or_malformed_answer_is_an_error_with_its_text(reason: str) -> None:
    with LocalServer(ScriptedModel([["I will not.", TurnEnd(reason)]])) as server:
        events = run_to_end(server)
    assert types(events) == ["assistant_delta", "assistant_message", "error"]
    assert events[1]["data"]["finishReason"] == reason
    done = events[2]["data"]
    assert (done["finishReason"], done["partialText"]) == (reason, "I will not.")
    assert done["code"] == done["errorClass"] == "unknown"


# -------------------------------------------------------------------------- reasoning


@pytest.mark.parametrize(("level", "shown"), [(None, 0), ("off", 0), (0, 0), (1, 1), ("low", 1), (100, 1)])
def test_reasoning_is_shown_only_with_a_level_above_zero(level: Any, shown: int) -> None:
    with LocalServer(ScriptedModel([[Thinking("hm"), "Done."]])) as server:
        spec = {} if level is None else {"reasoningLevel": level}
        events = run_to_end(server, **spec)
    assert types(events).count("thinking_delta") == shown
    assert events[-1]["data"]["tokens"]["reasoningTokens"] == 1  # shown or not, it was paid for


@pytest.mark.parametrize(
    ("level", "effort"),
    [
        *[("off", "off"), (0, "off"), (1, "low"), ("low", "low"), (35, "low"), (36, "medium")],
        *[("medium", "medium"), (65, "medium"), (66, "high"), ("high", "high"), (100, "high")],
    ],
)
def test_the_effort_is_named_by_its_band(level: Any, effort: str) -> None:
    assert reasoning_effort(level) == effort
    assert model_info("a:b", level=level) == {
        "id": "a:b",
        "provider": "a",
        "vendorModelId": "b",
        "reasoningEffort": effort,
    }


# --------------------------------------------------------------------- fallback model


def busy(**fields: Any) -> Failure:
    return Failure("Busy.", **{"error_class": "overloaded", "usage": Usage(5, 1), **fields})


def test_the_fallback_model_goes_on_where_the_first_one_failed() -> None:
    first, second = Recorder([["Half", busy()]]), ScriptedModel(lambda _: ["never", "Done."], model_id="local:b")
    catalog = [{"id": "local:recorder"}, {"id": "other:b", "provider": "acme", "vendorModelId": "b-1"}]
    with LocalServer(first, models=catalog, other_models={"other:b": second}) as server:
        run_id = start(server, fallbackModelId="other:b", reasoningLevel="low")
        events = stream(server, run_id)
        snapshot = request(server, "GET", f"/agent-runs/{run_id}").json
    used = {"id": "other:b", "provider": "acme", "vendorModelId": "b-1", "reasoningEffort": "low"}
    assert of_type(events, "model_fallback") == [
        {
            "errorClass": "overloaded",
            "model": used,
            "primaryModelId": "local:recorder",
            "fallbackModelId": "other:b",
        }
    ]
    assert types(events) == [
        "assistant_delta",
        "model_fallback",
        "assistant_delta",
        "assistant_message",
        "result",
    ]
    done = events[-1]["data"]
    assert (done["text"], done["turns"], done["model"], snapshot["model"]) == ("Done.", 2, used, used)
    assert done["tokens"]["inputTokens"] > 5  # what failed is paid for


@pytest.mark.parametrize(
    ("failure", "falls_back"),
    [
        (busy(), True),
        (busy(error_class="rate_limit"), True),
        (busy(error_class="invalid_request"), False),
        (busy(error_class="invalid_request", retryable=True), True),
        (busy(error_class="overloaded", retryable=False), False),
        (busy(error_class="auth"), False),
    ],
)
def test_only_a_failure_that_may_pass_is_left_to_the_fallback(failure: Failure, falls_back: bool) -> None:
    model = Recorder([failure, "Done."])
    with LocalServer(model) as server:
        events = run_to_end(server, fallbackModelId="local:b")
    assert (events[-1]["type"] == "result") is falls_back
    if falls_back:
        assert [asked.model_id for asked in model.requests] == ["local:recorder", "local:b"]


def test_a_fallback_that_fails_too_ends_the_run() -> None:
    with LocalServer(ScriptedModel([busy(), busy(error_class="server")])) as server:
        events = run_to_end(server, fallbackModelId="local:b")
    assert types(events) == ["model_fallback", "error"]
    assert (events[-1]["data"]["errorClass"], events[-1]["data"]["model"]["id"]) == ("server", "local:b")


def test_a_run_may_name_another_model() -> None:
    with LocalServer(ScriptedModel(["One."]), other_models={"local:two": ScriptedModel(["Two."])}) as server:
        assert run_to_end(server, modelId="local:two")[-1]["data"]["text"] == "Two."
        assert run_to_end(server, modelId="local:three")[-1]["data"]["text"] == "One."


# ------------------------------------------------------------- tools the server answers


def add(a: int, b: int = 1, *, note: str = "") -> dict[str, Any]:
    """Add two numbers.

    More that the model does not need.
    """
    return {"sum": a + b, "note": note}


def test_tools_of_the_server_are_answered_by_it() -> None:
    model = Recorder([[ToolUse("math_add", {"a": 2, "b": 40}, id="tu_1")], "42."])
    with LocalServer(model, tools={"@math/add": add}) as server:
        run_id = start(server, tools=[{"kind": "mantyx_plugin", "name": "@math/add"}])
        events = stream(server, run_id)
        assert request(server, "GET", f"/agent-runs/{run_id}").json["toolCallCount"] == 1
    declared = model.requests[0].tools[0]
    assert (declared.name, declared.description) == ("math_add", "Add two numbers.")
    assert declared.parameters == {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}, "note": {"type": "string"}},
        "required": ["a"],
    }
    assert types(events)[1:3] == ["tool_call", "tool_result"]
    assert events[1]["data"] == {"toolUseId": "tu_1", "name": "math_add", "input": {"a": 2, "b": 40}}
    text = '{"sum": 42, "note": ""}'
    assert events[2]["data"] == {
        "toolUseId": "tu_1",
        "name": "math_add",
        "ok": True,
        "result": text,
        "summary": text,
    }
    assert model.requests[1].messages[-1]["content"] == text


def test_a_server_tool_may_be_said_in_full_and_return_files() -> None:
    def draw(**arguments: Any) -> ToolOutput:
        return ToolOutput("Drawn.", [ToolFile("a.png", "image/png", b"\x89PNG")])

    parameters = {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]}
    tool = ServerTool(draw, name="draw", description="Draw it.", parameters=parameters)
    model = Recorder([[ToolUse("draw", {"what": "x"})], [ToolUse("draw")], "Done."])
    with LocalServer(model, tools={"tool_7": tool}) as server:
        events = run_to_end(server, tools=[{"kind": "mantyx", "id": "tool_7"}])
    assert of_type(events, "tool_files") == [
        {"name": "draw", "files": [{"filename": "a.png", "mimeType": "image/png", "sizeBytes": 4}]}
    ]
    assert model.requests[1].messages[-1]["files"][0]["data"] == "iVBORw=="
    assert "tool_input_invalid" in of_type(events, "tool_result")[1]["result"]


@pytest.mark.parametrize("bad", [lambda: 1 / 0, lambda: object()])
def test_a_server_tool_that_fails_is_an_error_for_the_model(bad: Any) -> None:
    model = Recorder([[ToolUse("broken")], "Sorry."])
    with LocalServer(model, tools={"broken": bad}) as server:
        events = run_to_end(server, tools=[{"kind": "mantyx", "id": "broken"}])
    assert of_type(events, "tool_result")[0]["ok"] is False
    assert model.requests[1].messages[-1]["isError"] is True
    assert events[-1]["data"]["text"] == "Sorry."


def test_a_server_tool_nobody_gave_is_not_offered() -> None:
    model = Recorder(["Done."])
    with LocalServer(model) as server:
        run_to_end(server, tools=[{"kind": "mantyx", "id": "nope"}, local_tool("t")])
    assert [tool.name for tool in model.requests[0].tools] == ["t"]


def test_budgets_hold_for_server_tools_too() -> None:
    script = ScriptedModel([[ToolUse("recall", {"q": n})] for n in range(5)] + ["Done."])
    with LocalServer(script, tools={"recall": lambda q: q}) as server:
        events = run_to_end(server, tools=[{"kind": "mantyx", "id": "recall"}])
    assert len(of_type(events, "tool_call")) == 4
    assert of_type(events, "tool_budget_exceeded") == [{"tool": "recall", "maxCalls": 4, "callIndex": 5}]


# ----------------------------------------------------------------------- conversation


def test_only_the_newest_user_messages_attachments_reach_the_model() -> None:
    file = {"type": "input_file_url", "url": "https://x/a.png"}
    messages = [
        {"role": "user", "content": "one", "attachments": [file]},
        {"role": "assistant", "content": "two"},
        {"role": "user", "content": "three", "attachments": [{**file, "url": "https://x/b.png"}]},
    ]
    model = Recorder(["Done."])
    with LocalServer(model) as server:
        run_to_end(server, messages=messages)
    found = [m.get("attachments") for m in model.requests[0].messages if m["role"] == "user"]
    assert found == [None, [{**file, "url": "https://x/b.png"}]]


def test_history_stands_between_the_system_message_and_what_is_new() -> None:
    history = [
        {"role": "system", "content": "Earlier rule."},
        {"role": "user", "content": "one", "attachments": [{"type": "input_file", "filename": "a"}]},
        {"role": "assistant", "content": "two"},
    ]
    spec = {
        "systemPrompt": "Rule.",
        "messages": [{"role": "system", "content": "New rule."}, {"role": "user", "content": "three"}],
    }
    talk = Conversation(spec, history)
    assert talk.messages == [
        {"role": "system", "content": "Rule.\n\nEarlier rule.\n\nNew rule."},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "two"},
        {"role": "user", "content": "three"},
    ]
    assert talk.prompt == "three"


def test_an_error_of_a_made_up_result_is_json() -> None:
    model = Recorder([[ToolUse("nope")], "Done."])
    with LocalServer(model) as server:
        run_to_end(server)
    assert json.loads(model.requests[1].messages[-1]["content"])["error"] == "unknown_tool"
