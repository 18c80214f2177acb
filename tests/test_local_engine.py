"""The agent loop of the embedded server and its models, driven by plain HTTP."""

from __future__ import annotations

import itertools
import json
import threading
from typing import Any, Iterable, Mapping

import pytest

from mantyx_sync.local import (
    Failure,
    LocalServer,
    ModelRequest,
    Pause,
    RuleModel,
    ScriptedModel,
    Thinking,
    ToolUse,
    TurnEnd,
    Usage,
)
from mantyx_sync.local.store import Run
from tests.plain_http import (
    DEADLINE_S,
    ORDER_TOOL,
    Recorder,
    answer_calls,
    live,
    local_tool,
    of_type,
    request,
    run_to_end,
    start,
    stream,
    types,
)
from tests.waiting import wait_until


def post_result(server: LocalServer, run_id: str, tool_use_id: str, **body: Any) -> int:
    path = f"/agent-runs/{run_id}/tool-results"
    return request(server, "POST", path, {"toolUseId": tool_use_id, **body}).status


# --------------------------------------------------------------------------- turns


def test_a_turn_is_deltas_then_one_message_then_the_result() -> None:
    with LocalServer(ScriptedModel([[Thinking("hm"), "Hello ", "", "world"]])) as server:
        events = run_to_end(server, reasoningLevel=1)
    assert [(event["type"], event["data"].get("text")) for event in events] == [
        ("thinking_delta", "hm"),
        ("assistant_delta", "Hello "),
        ("assistant_delta", ""),
        ("assistant_delta", "world"),
        ("assistant_message", "Hello world"),
        ("result", "Hello world"),
    ]
    assert events[4]["data"] == {"text": "Hello world", "turn": 0, "finishReason": "end_turn"}
    assert events[5]["data"]["subtype"] == "success"
    assert [event["seq"] for event in events] == [1, 2, 3, 4, 5, 6]


def test_tokens_add_up_over_turns_and_each_turn_counts() -> None:
    script = [
        [ToolUse("get_order", {"order_id": "1"}), TurnEnd("tool_use", Usage(100, 10, 50, 4))],
        ["ok", TurnEnd("end_turn", Usage(120, 5, -3, 0))],
    ]
    with LocalServer(ScriptedModel(script)) as server:
        events = answer_calls(server, start(server, tools=[ORDER_TOOL]), {"get_order": "x"})
    done = events[-1]["data"]
    assert done["tokens"] == {"inputTokens": 220, "cachedTokens": 47, "reasoningTokens": 4, "outputTokens": 15}
    assert done["turns"] == 2
    assert [message["turn"] for message in of_type(events, "assistant_message")] == [0, 1]


def test_a_tool_call_is_announced_answered_and_told_to_the_model() -> None:
    model = Recorder([["Looking.", ToolUse("get_order", {"order_id": "17"}, id="tu_1")], ["On its way."]])
    with LocalServer(model) as server:
        run_id = start(server, prompt="Where is 17?", tools=[ORDER_TOOL])
        events = answer_calls(server, run_id, {"get_order": '{"status":"shipped"}'})
    assert types(events) == [
        "assistant_delta",
        "assistant_message",
        "local_tool_call",
        "local_tool_result_in",
        "assistant_delta",
        "assistant_message",
        "result",
    ]
    assert events[1]["data"]["finishReason"] == "tool_use"
    assert events[1]["data"]["toolCalls"] == [{"id": "tu_1", "name": "get_order", "input": {"order_id": "17"}}]
    assert events[2]["data"] == {
        "toolUseId": "tu_1",
        "name": "get_order",
        "args": {"order_id": "17"},
        "kind": "local",
    }
    first, second = model.requests
    assert [dict(m) for m in first.messages] == [
        {"role": "system", "content": "You help."},
        {"role": "user", "content": "Where is 17?"},
    ]
    assert [tool.name for tool in first.tools] == ["get_order"]
    assert second.messages[-1] == {
        "role": "tool",
        "toolUseId": "tu_1",
        "name": "get_order",
        "content": '{"status":"shipped"}',
        "isError": False,
    }


def test_an_error_and_files_of_a_result_reach_the_model() -> None:
    model = Recorder([[ToolUse("get_order", {"order_id": "1"})], [ToolUse("get_order", {"order_id": "2"})], "Done."])
    with LocalServer(model) as server:
        run_id = start(server, tools=[ORDER_TOOL])
        bodies = iter(
            [
                {"error": "no such order"},
                {"result": "", "files": [{"filename": "a", "mimeType": "text/plain", "data": "QQ=="}]},
            ]
        )
        events = []
        for event in live(server, run_id):
            events.append(event)
            if event["type"] == "local_tool_call":
                assert post_result(server, run_id, event["data"]["toolUseId"], **next(bodies)) == 204
    assert of_type(events, "local_tool_result_in")[0]["error"] == "no such order"
    assert (model.requests[1].messages[-1]["content"], model.requests[1].messages[-1]["isError"]) == (
        "no such order",
        True,
    )
    assert model.requests[2].messages[-1]["files"][0]["data"] == "QQ=="


def test_system_messages_are_merged_behind_the_system_prompt() -> None:
    model = Recorder(["ok"])
    messages = [
        {"role": "user", "content": "one"},
        {"role": "system", "content": "Also this."},
        {"role": "assistant", "content": "two"},
        {"role": "user", "content": "three"},
    ]
    with LocalServer(model) as server:
        run_to_end(server, messages=messages)
    asked = model.requests[0]
    assert [(m["role"], m["content"]) for m in asked.messages] == [
        ("system", "You help.\n\nAlso this."),
        ("user", "one"),
        ("assistant", "two"),
        ("user", "three"),
    ]
    assert asked.prompt == "three"


def test_what_the_model_sees_of_each_kind_of_tool_and_what_its_call_carries() -> None:
    card = {"name": "HR", "description": "Knows HR.", "url": "https://hr", "skills": [{"id": "pto", "name": "PTO"}]}
    info = {"name": "fs", "version": "1"}
    entry = {"name": "read_file", "description": "Read.", "annotations": {"readOnlyHint": True}}
    tools = [
        local_tool("wait_for", description="Waits.", longRunning=True, parameters={"type": "array"}),
        {"kind": "a2a_local", "name": "hr", "agentCard": card},
        {"kind": "mcp_local", "name": "fs", "serverInfo": info, "tools": [entry]},
    ]
    model = Recorder([[ToolUse("wait_for"), ToolUse("hr", {"message": "hi"}), ToolUse("read_file")], "ok"])
    with LocalServer(model) as server:
        events = answer_calls(server, start(server, tools=tools), {"wait_for": "", "hr": "", "read_file": ""})
    seen = {tool.name: tool for tool in model.requests[0].tools}
    assert seen["wait_for"].description.startswith("Waits.\nNOTE: This is a long-running operation.")
    assert seen["wait_for"].parameters == {"type": "object", "properties": {}}
    assert seen["hr"].description.startswith("Delegate a task to HR: Knows HR.\n- PTO")
    calls = [{k: v for k, v in call.items() if k != "toolUseId"} for call in of_type(events, "local_tool_call")]
    assert calls == [
        {"name": "wait_for", "args": {}, "kind": "local"},
        {"name": "hr", "args": {"message": "hi"}, "kind": "a2a_local", "agentCard": card},
        {
            "name": "read_file",
            "args": {},
            "kind": "mcp_local",
            "mcpServer": "fs",
            "mcpToolName": "read_file",
            "mcpServerInfo": info,
            "annotations": {"readOnlyHint": True},
        },
    ]


# ---------------------------------------------------------------- several calls at once


def test_read_only_calls_go_out_together_and_may_be_answered_in_any_order() -> None:
    model = Recorder([[ToolUse("look", {"n": n}, id=f"tu_{n}") for n in range(3)], "ok"])
    with LocalServer(model) as server:
        run_id = start(server, tools=[local_tool("look", readOnly=True)])
        reader = live(server, run_id)
        calls = list(itertools.islice((e for e in reader if e["type"] == "local_tool_call"), 3))
        for call in reversed(calls):
            use = call["data"]["toolUseId"]
            assert post_result(server, run_id, use, result=f"r{call['data']['args']['n']}") == 204
        rest = list(reader)
    assert rest[-1]["type"] == "result"
    told = [m["content"] for m in model.requests[1].messages if m["role"] == "tool"]
    assert told == ["r0", "r1", "r2"]  # in the order of the calls, whatever the order of the answers


def test_a_call_of_several_is_answered_once_while_the_others_are_open() -> None:
    with LocalServer(ScriptedModel([[ToolUse("look", id="a"), ToolUse("look", id="b")], "ok"])) as server:
        run_id = start(server, tools=[local_tool("look", readOnly=True)])
        wait_until(lambda: server.run(run_id).pending_calls() == ["a", "b"])
        assert [post_result(server, run_id, "a", result=text) for text in ("first", "second")] == [204, 404]
        assert server.run(run_id).pending_calls() == ["b"]
        assert post_result(server, run_id, "b", result="") == 204
        mirrors = of_type(stream(server, run_id), "local_tool_result_in")
    assert [mirror["output"] for mirror in mirrors] == ["first", ""]


def test_calls_that_may_write_go_out_one_after_the_other() -> None:
    uses = [ToolUse("write", id="w1"), ToolUse("look", id="l1"), ToolUse("look", id="l2"), ToolUse("write", id="w2")]
    tools = [local_tool("write"), local_tool("look", readOnly=True)]
    with LocalServer(ScriptedModel([uses, "ok"])) as server:
        run_id = start(server, tools=tools)
        run = server.run(run_id)
        for batch in (["w1"], ["l1", "l2"], ["w2"]):
            wait_until(lambda expected=batch: run.pending_calls() == expected)
            for use in batch:
                assert post_result(server, run_id, use, result="") == 204
        assert run.wait(DEADLINE_S)
        assert run.to_snapshot()["toolCallCount"] == 4


# ------------------------------------------------------------------- calls that go wrong


def test_arguments_that_break_the_schema_never_reach_the_client() -> None:
    model = Recorder([[ToolUse("get_order", {"order_id": 17})], [ToolUse("get_order", "x")], "Sorry."])
    with LocalServer(model) as server:
        events = run_to_end(server, tools=[ORDER_TOOL])
    assert "local_tool_call" not in types(events)
    first, second = of_type(events, "tool_result")
    assert (first["name"], first["ok"]) == ("get_order", False)
    assert '"tool_input_invalid"' in first["result"]
    assert "order_id" in json.loads(first["result"])["issues"][0]
    assert "expected an object" in second["result"]
    told = model.requests[1].messages[-1]
    assert (told["role"], told["isError"], told["content"]) == ("tool", True, first["result"])
    assert events[-1]["type"] == "result"


def test_a_remote_reference_in_a_schema_is_never_fetched() -> None:
    with LocalServer(ScriptedModel([[ToolUse("t", {"x": 1})], "ok"])) as server:
        parameters = {"type": "object", "properties": {"x": {"$ref": f"{server.url}/schema.json"}}}
        events = answer_calls(server, start(server, tools=[local_tool("t", parameters=parameters)]), {"t": "fine"})
        assert not [asked for asked in server.requests if "schema.json" in asked.target]
    assert events[-1]["type"] == "result"


@pytest.mark.parametrize(
    "parameters",
    [
        {"type": "object", "properties": {"x": {"type": "no such type"}}},
        {"type": "object", "properties": {"x": {"$ref": "#/nowhere"}}},
    ],
    ids=["broken schema", "broken reference"],
)
def test_a_schema_that_cannot_be_used_checks_nothing(parameters: dict[str, Any]) -> None:
    with LocalServer(ScriptedModel([[ToolUse("t", {"x": 1})], "ok"])) as server:
        events = answer_calls(server, start(server, tools=[local_tool("t", parameters=parameters)]), {"t": "fine"})
    assert events[-1]["type"] == "result"


def test_a_tool_that_does_not_exist_is_an_error_for_the_model() -> None:
    with LocalServer(ScriptedModel([[ToolUse("nope")], "ok"])) as server:
        events = run_to_end(server)
    assert '"unknown_tool"' in of_type(events, "tool_result")[0]["result"]
    assert events[-1]["data"]["text"] == "ok"


def test_a_call_nobody_answers_times_out_and_the_model_is_told() -> None:
    gate = threading.Event()
    model = Recorder([[ToolUse("get_order", {"order_id": "1"}, id="tu_1")], ["Sorry.", Pause(gate)]])
    with LocalServer(model, local_tool_timeout=0.02) as server:
        run_id = start(server, tools=[ORDER_TOOL])
        wait_until(lambda: len(model.requests) == 2)
        assert model.requests[1].messages[-1]["content"] == "Timed out waiting for local tool result"
        assert post_result(server, run_id, "tu_1", result="late") == 404
        gate.set()
        assert server.run(run_id).wait(DEADLINE_S)
        assert post_result(server, run_id, "tu_1", result="later") == 409
        assert stream(server, run_id)[-1]["type"] == "result"


def test_the_time_out_of_a_call_may_end_the_run() -> None:
    script = ScriptedModel([[ToolUse("get_order", {"order_id": "1"})]])
    with LocalServer(script, local_tool_timeout=0.02, fail_on_local_tool_timeout=True) as server:
        run_id = start(server, tools=[ORDER_TOOL])
        done = stream(server, run_id)[-1]
        snapshot = request(server, "GET", f"/agent-runs/{run_id}").json
    assert (done["type"], done["data"]["subtype"]) == ("result", "error_local_tool_timeout")
    assert done["data"]["error"]
    assert snapshot["status"] == "failed"
    assert snapshot["error"] == done["data"]["error"]


# -------------------------------------------------------------------------- limits


@pytest.mark.parametrize("maximum", [0, 2])
def test_at_the_turn_limit_the_model_gets_one_turn_without_tools(maximum: int) -> None:
    model = Recorder([[ToolUse("t")]] * maximum + [[ToolUse("t")], "That is all."])
    with LocalServer(model) as server:
        budgets = {"maxToolTurns": maximum, "maxToolTurnsExceeded": "finalize"}
        events = answer_calls(server, start(server, tools=[local_tool("t")], budgets=budgets), {"t": ""})
    assert len(of_type(events, "local_tool_call")) == maximum
    assert "budget" in of_type(events, "tool_result")[0]["result"]
    assert [len(asked.tools) for asked in model.requests] == [1] * (maximum + 1) + [0]
    assert events[-1]["data"]["text"] == "That is all."


def test_the_turn_limit_may_end_the_run() -> None:
    with LocalServer(ScriptedModel([["a", ToolUse("t")], ["b", ToolUse("t")]])) as server:
        budgets = {"maxToolTurns": 1, "maxToolTurnsExceeded": "error"}
        events = answer_calls(server, start(server, tools=[local_tool("t")], budgets=budgets), {"t": ""})
        status = server.runs[0].status
    assert (events[-1]["type"], events[-1]["data"]["subtype"]) == ("result", "error_max_tool_turns")
    assert events[-1]["data"]["partialText"] == "b"
    assert (events[-1]["data"]["turns"], status) == (2, "failed")


# ---------------------------------------------------------------------- cancellation


def test_a_cancelled_run_ends_between_its_turns() -> None:
    reached, gate = threading.Event(), threading.Event()
    model = Recorder([["one", lambda _: (reached.set(), gate.wait(DEADLINE_S), ToolUse("t"))[2]], "two"])
    with LocalServer(model) as server:
        run_id = start(server, tools=[local_tool("t")])
        assert reached.wait(DEADLINE_S)
        request(server, "POST", f"/agent-runs/{run_id}/cancel")
        assert not server.run(run_id).is_terminal
        gate.set()
        events = stream(server, run_id)
    assert types(events) == ["assistant_delta", "assistant_message", "cancelled"]
    assert events[-1]["data"]["reason"] == "user"
    assert len(model.requests) == 1


def test_a_cancelled_run_still_takes_the_results_of_calls_in_flight() -> None:
    with LocalServer(ScriptedModel([[ToolUse("t", id="a"), ToolUse("t", id="b")], "never"])) as server:
        run_id = start(server, tools=[local_tool("t")])
        run = server.run(run_id)
        wait_until(lambda: run.pending_calls() == ["a"])
        request(server, "POST", f"/agent-runs/{run_id}/cancel")
        assert post_result(server, run_id, "a", result="") == 204
        events = stream(server, run_id)
    assert types(events)[-3:] == ["local_tool_call", "local_tool_result_in", "cancelled"]  # and no call of b
    assert [call["toolUseId"] for call in of_type(events, "local_tool_call")] == ["a"]


def test_a_paused_script_ends_when_its_run_is_cancelled() -> None:
    reached = threading.Event()
    with LocalServer(ScriptedModel([["one", Pause(threading.Event(), reached), "two"]])) as server:
        run_id = start(server)
        assert reached.wait(DEADLINE_S)
        request(server, "POST", f"/agent-runs/{run_id}/cancel")
        assert types(stream(server, run_id)) == ["assistant_delta", "assistant_message", "cancelled"]


# ------------------------------------------------------------------------- failures

ERROR_CLASSES = [
    "rate_limit",
    "overloaded",
    "server",
    "context_window",
    "truncation",
    "invalid_request",
    "auth",
    "timeout",
    "local_timeout",
    "upstream_deadline",
    "unknown",
    "structured_output_schema_rejected",
]


@pytest.mark.parametrize("error_class", ERROR_CLASSES)
def test_a_failed_model_call_is_the_terminal_error(error_class: str) -> None:
    failure = Failure(
        "It broke.",
        error_class=error_class,
        finish_reason="refusal",
        retryable=True,
        api_status=529,
        api_code="busy",
        usage=Usage(9, 1),
    )
    with LocalServer(ScriptedModel([["Half an ", "answer", failure]])) as server:
        run_id = start(server)
        events = stream(server, run_id)
        snapshot = request(server, "GET", f"/agent-runs/{run_id}").json
    assert types(events) == ["assistant_delta", "assistant_delta", "assistant_message", "error"]
    assert events[-1]["data"] == {
        "error": "It broke.",
        "code": error_class,
        "errorClass": error_class,
        "finishReason": "refusal",
        "partialText": "Half an answer",
        "retryable": True,
        "apiStatus": 529,
        "apiCode": "busy",
        "tokens": {"inputTokens": 9, "cachedTokens": 0, "reasoningTokens": 0, "outputTokens": 1},
        "turns": 1,
        "model": {"id": "local:scripted", "provider": "local", "vendorModelId": "scripted"},
    }
    assert snapshot["status"] == "failed"
    assert (snapshot["finalText"], snapshot["error"]) == ("Half an answer", "It broke.")
    assert snapshot["failureReason"] == {"errorClass": error_class, "finishReason": "refusal"}
    assert snapshot["tokens"]["inputTokens"] == 9


def test_a_failure_before_any_text_has_no_message_and_no_partial_text() -> None:
    with LocalServer(ScriptedModel([Failure(error_class=None, code="invalid_spec")])) as server:
        events = run_to_end(server)
    assert types(events) == ["error"]
    assert events[0]["data"]["code"] == "invalid_spec"
    assert not {"errorClass", "partialText", "finishReason", "retryable", "apiStatus"} & events[0]["data"].keys()


def test_an_answer_cut_off_by_the_output_budget_is_a_truncation() -> None:
    with LocalServer(ScriptedModel([['{"answer": ', TurnEnd("max_tokens")]])) as server:
        events = run_to_end(server)
    assert events[-2]["data"]["finishReason"] == "max_tokens"
    done = events[-1]["data"]
    assert (done["errorClass"], done["code"], done["finishReason"]) == ("truncation", "truncation", "max_tokens")
    assert done["partialText"] == events[-2]["data"]["text"] == '{"answer": '
    assert done["retryable"] is False


def test_a_model_with_a_bug_fails_the_run_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        model_id = "local:broken"

        def complete(self, request: ModelRequest) -> Iterable[Any]:
            raise KeyError("oops")

    with LocalServer(Broken()) as server:
        done = run_to_end(server)[-1]
        assert (done["type"], done["data"]["code"]) == ("error", "worker_error")
    assert any("the model or the loop raised" in record.getMessage() for record in caplog.records)


def test_nothing_follows_a_terminal_event() -> None:
    run = Run("run_1", {}, model={})
    assert run.emit("assistant_message", {"text": "a", "turn": 0}) == 1
    assert run.finish("result", {"subtype": "success", "text": "a"})
    assert run.emit("assistant_message", {"text": "b", "turn": 1}) == 0
    run.emit_text("assistant_delta", "b")
    assert not run.finish("cancelled", {"reason": "user"})
    assert (types(run.events), run.status) == (["assistant_message", "result"], "succeeded")


# ---------------------------------------------------------------------------- scripts


def test_a_script_plays_the_same_for_every_run_and_may_depend_on_it() -> None:
    def choose(asked: ModelRequest) -> list[Any]:
        return [[f"You said {asked.prompt}.", lambda r: [" Turn ", str(r.turn)]]]

    with LocalServer(ScriptedModel(choose)) as server:
        texts = [run_to_end(server, prompt=word)[-1]["data"]["text"] for word in ("a", "b", "a")]
    assert texts == ["You said a. Turn 0", "You said b. Turn 0", "You said a. Turn 0"]


def test_a_script_that_is_too_short_or_holds_nonsense_fails_the_run(caplog: pytest.LogCaptureFixture) -> None:
    with LocalServer(ScriptedModel([[ToolUse("nope")]])) as server:
        assert run_to_end(server)[-1]["data"]["code"] == "script_exhausted"
    with LocalServer(ScriptedModel([[3]])) as server:  # type: ignore[list-item]
        assert "cannot hold a int" in run_to_end(server)[-1]["data"]["error"]


# ------------------------------------------------------------------------ rule model


def tool(name: str, description: str, required: Iterable[str] = (), **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return local_tool(name, description=description, parameters=schema)


STRING = {"type": "string"}
NUMBER = {"type": "number"}
ORDER = tool("get_order", "Look up one order.", ["order_id"], order_id=STRING)
WEATHER = tool(
    "get_weather",
    "Current weather of a place.",
    ["city"],
    city=STRING,
    unit={"type": "string", "enum": ["celsius", "fahrenheit"]},
)
ADD = tool("add", "Add two numbers.", ["a", "b"], a=NUMBER, b=NUMBER)
MAIL = tool("send_email", "Send an email.", ["to", "subject"], to={"type": "string", "format": "email"}, subject=STRING)
TOOLS = [ORDER, WEATHER, ADD, MAIL]


def rule_calls(prompt: str, tools: list[dict[str, Any]]) -> list[tuple[str, Mapping[str, Any]]]:
    with LocalServer(RuleModel()) as server:
        run_id = start(server, prompt=prompt, tools=tools)
        events = answer_calls(server, run_id, {ref["name"]: "fine" for ref in tools})
    assert events[-1]["type"] == "result"
    return [(call["name"], call["args"]) for call in of_type(events, "local_tool_call")]


@pytest.mark.parametrize(
    ("prompt", "calls"),
    [
        ("Where is order 17?", [("get_order", {"order_id": "17"})]),
        ("Compare orders 17 and 21.", [("get_order", {"order_id": "17"}), ("get_order", {"order_id": "21"})]),
        ("How is the weather in Berlin?", [("get_weather", {"city": "Berlin"})]),
        ("Weather for Paris in fahrenheit, please", [("get_weather", {"city": "Paris", "unit": "fahrenheit"})]),
        ("What is 2 + 40?", [("add", {"a": 2, "b": 40})]),
        ("Please add 1.5 and -3", [("add", {"a": 1.5, "b": -3})]),
        (
            'Mail ann@example.com with subject "Hi there"',
            [("send_email", {"to": "ann@example.com", "subject": "Hi there"})],
        ),
        (
            "Where is order A-17, and is it raining in Rome?",
            [("get_order", {"order_id": "A-17"}), ("get_weather", {"city": "Rome"})],
        ),
        ("Sing a song.", []),
        ("Where is my order?", []),
    ],
)
def test_the_rule_model_picks_tools_and_arguments_from_the_request(
    prompt: str, calls: list[tuple[str, Mapping[str, Any]]]
) -> None:
    assert rule_calls(prompt, TOOLS) == calls


def test_the_rule_model_uses_other_tools_when_it_is_given_others() -> None:
    stock = tool(
        "check_stock",
        "Units of an article in stock.",
        ["article", "count"],
        article=STRING,
        count={"type": "integer"},
    )
    assert rule_calls("Is article X9 in stock, count 3?", [stock]) == [("check_stock", {"article": "X9", "count": 3})]
    assert rule_calls("Where is order 17?", [WEATHER, ADD]) == []


def test_the_rule_model_changes_nothing_unless_the_request_says_so() -> None:
    cancel = tool("cancel_order", "Cancel an order.", ["order_id"], order_id=STRING)
    assert rule_calls("Where is order 17?", [cancel, ORDER]) == [("get_order", {"order_id": "17"})]
    assert rule_calls("Where is order 17?", [cancel]) == []
    assert rule_calls("Cancel order 17.", [cancel, ORDER]) == [("cancel_order", {"order_id": "17"})]


def test_the_rule_model_fills_parameters_by_type_and_name() -> None:
    event = {
        "type": "object",
        "properties": {"title": STRING, "date": {"type": "string", "format": "date"}},
        "required": ["title", "date"],
    }
    tools = [
        tool("create_event", "Create a calendar event.", ["event"], event=event),
        tool("mean", "Mean of some numbers.", ["values"], values={"type": "array", "items": NUMBER}),
        tool("roll_dice", "Roll dice.", ["count"], count={"type": "integer"}, sides={"type": "integer"}),
        tool("search_docs", "Search the documentation.", ["query"], query=STRING, exact={"type": "boolean"}),
    ]
    assert rule_calls('Create an event "Review" on 2026-05-01.', tools) == [
        ("create_event", {"event": {"title": "Review", "date": "2026-05-01"}})
    ]
    assert rule_calls("What is the mean of 3, 4.5 and 9?", tools) == [("mean", {"values": [3, 4.5, 9]})]
    assert rule_calls("Roll 3 dice with 20 sides.", tools) == [("roll_dice", {"count": 3, "sides": 20})]
    assert rule_calls("Search the documentation, not exact, for retries", tools) == [
        ("search_docs", {"query": "retries", "exact": False})
    ]


def test_the_rule_model_writes_what_the_output_schema_asks_for() -> None:
    schema = {
        "type": "object",
        "properties": {"status": STRING, "summary": STRING, "stops": {"type": "integer"}},
        "required": ["status", "summary", "stops"],
    }
    with LocalServer(RuleModel()) as server:
        run_id = start(server, prompt="Where is order 17?", tools=[ORDER], outputSchema={"schema": schema})
        events = answer_calls(server, run_id, {"get_order": '{"status": "shipped", "stops": 2}'})
    answer = json.loads(events[-1]["data"]["text"])
    assert (answer["status"], answer["stops"]) == ("shipped", 2)
    assert isinstance(answer["summary"], str)


def test_the_rule_model_answers_from_the_results_in_streamed_words() -> None:
    with LocalServer(RuleModel()) as server:
        run_id = start(server, prompt="Where is order 17?", tools=[ORDER])
        events = answer_calls(server, run_id, {"get_order": '{"status": "shipped", "eta": "Friday"}'})
    deltas = [data["text"] for data in of_type(events, "assistant_delta")]
    assert len(deltas) > 5
    assert events[-1]["data"]["text"] == "".join(deltas)
    assert events[-1]["data"]["text"] == "get_order (order_id 17) says: status is shipped, eta is Friday."
    assert events[-1]["data"]["turns"] == 2


def test_the_rule_model_feeds_one_result_into_the_next_call() -> None:
    customer = tool("get_customer", "Look up the customer of an order.", ["customer_id"], customer_id=STRING)
    with LocalServer(RuleModel()) as server:
        run_id = start(server, prompt="Who is the customer of order 17?", tools=[ORDER, customer])
        results = {"get_order": '{"customer_id": "c_5"}', "get_customer": '{"name": "Ann"}'}
        events = answer_calls(server, run_id, results)
    calls = [(call["name"], call["args"]) for call in of_type(events, "local_tool_call")]
    assert calls[0] == ("get_order", {"order_id": "17"})
    assert ("get_customer", {"customer_id": "c_5"}) in calls
    assert "name is Ann" in events[-1]["data"]["text"]


def test_the_rule_model_says_what_failed_and_what_it_lacks() -> None:
    with LocalServer(RuleModel()) as server:
        run_id = start(server, prompt="Where is order 17?", tools=[ORDER])
        for event in live(server, run_id):
            if event["type"] == "local_tool_call":
                post_result(server, run_id, event["data"]["toolUseId"], error="no such order")
        assert "did not work: no such order." in server.run(run_id).events[-1]["data"]["text"]
        assert "no order_id" in run_to_end(server, prompt="Where is my order?", tools=[ORDER])[-1]["data"]["text"]
        assert "no tools" in run_to_end(server, prompt="Hi")[-1]["data"]["text"]


def test_the_rule_model_thinks_only_when_asked_to() -> None:
    with LocalServer(RuleModel()) as server:
        assert "thinking_delta" in types(run_to_end(server, reasoningLevel="low"))
        assert "thinking_delta" not in types(run_to_end(server, reasoningLevel="off"))
