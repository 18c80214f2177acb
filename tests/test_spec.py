"""Specs: what goes over the wire for each form of each field, and what is refused before anything is sent."""

from __future__ import annotations

import base64
import copy
import dataclasses
import datetime
import enum
import inspect
import json
import pickle

import pytest

from mantyx_sync import limits, spec
from mantyx_sync.errors import MantyxConfigError
from mantyx_sync.spec import (
    OMITTED,
    Budgets,
    InputFile,
    InputFileUrl,
    LoopDetection,
    Message,
    OutputSchema,
    PlanOptions,
    ReasoningTrigger,
    RunSpec,
    RunSpecArgs,
    Supervisor,
    ToolBudget,
    build_spec,
    input_file,
    input_file_attachment,
    input_file_url,
    input_file_url_attachment,
    plan_only,
    spec_signature,
)


@dataclasses.dataclass(frozen=True)
class FakeTool:
    """A tool ref as the tools floor has them."""

    name: str | None = None
    kind: str = "local"
    id: str | None = None
    wire: dict | None = None

    def to_wire(self):
        return self.wire or {"kind": self.kind, "name": self.name}


def wire(purpose="run", **kwargs):
    if purpose != "message":
        kwargs.setdefault("agent_id", "a1")
    if purpose != "session" and not {"prompt", "messages"} & kwargs.keys():
        kwargs["prompt"] = "hi"
    return build_spec(kwargs, purpose=purpose).to_wire(purpose)


def refused(**kwargs) -> str:
    with pytest.raises(MantyxConfigError) as caught:
        wire(**kwargs)
    return str(caught.value)


def b64(size: int) -> str:
    return base64.b64encode(b"x" * size).decode()


def file(size=3, **changes):
    found = {"type": "input_file", "mimeType": "application/pdf", "filename": "a.pdf", "data": b64(size)}
    return {**found, **changes}


class Word(str, enum.Enum):
    LOW = "low"


SCHEMA = {"type": "object", "properties": {"a": {"type": "number"}}}


@pytest.mark.parametrize(
    ("field", "value", "key", "expected"),
    [
        ("name", "nightly", "name", "nightly"),
        ("system_prompt", "You help.", "systemPrompt", "You help."),
        ("agent_id", "agent_1", "agentId", "agent_1"),
        ("model_id", "platform:demo", "modelId", "platform:demo"),
        ("fallback_model_id", "platform:b", "fallbackModelId", "platform:b"),
        ("reasoning_level", "medium", "reasoningLevel", "medium"),
        ("reasoning_level", 0, "reasoningLevel", 0),
        ("reasoning_level", 100, "reasoningLevel", 100),
        ("reasoning_level", Word.LOW, "reasoningLevel", "low"),
        ("tools", [], "tools", []),
        ("tools", (FakeTool("a"),), "tools", [{"kind": "local", "name": "a"}]),
        ("tools", [{"kind": "mantyx", "id": "t1"}], "tools", [{"kind": "mantyx", "id": "t1"}]),
        ("budgets", {"maxToolTurns": 32}, "budgets", {"maxToolTurns": 32}),
        ("budgets", {"max_tool_turns": 32}, "budgets", {"maxToolTurns": 32}),
        ("budgets", {}, "budgets", {}),
        (
            "budgets",
            Budgets(max_tool_turns=0, max_tool_turns_exceeded="finalize"),
            "budgets",
            {"maxToolTurns": 0, "maxToolTurnsExceeded": "finalize"},
        ),
        ("output_schema", {"schema": SCHEMA}, "outputSchema", {"schema": SCHEMA}),
        (
            "output_schema",
            OutputSchema(name="weather-1", schema=SCHEMA, enforcement="strict"),
            "outputSchema",
            {"name": "weather-1", "schema": SCHEMA, "enforcement": "strict"},
        ),
        ("output_schema", OutputSchema(SCHEMA), "outputSchema", {"schema": SCHEMA}),
        ("loop_detection", False, "loopDetection", False),
        ("loop_detection", {"consecutiveThreshold": 2}, "loopDetection", {"consecutiveThreshold": 2}),
        (
            "loop_detection",
            {"consecutive_threshold": 2, "hard_cutoff_threshold": 100},
            "loopDetection",
            {"consecutiveThreshold": 2, "hardCutoffThreshold": 100},
        ),
        ("loop_detection", LoopDetection(hard_cutoff_threshold=3), "loopDetection", {"hardCutoffThreshold": 3}),
        ("loop_detection", LoopDetection(), "loopDetection", {}),
        ("tool_budgets", {}, "toolBudgets", {}),
        ("tool_budgets", {"recall": {"maxCalls": 0}}, "toolBudgets", {"recall": {"maxCalls": 0}}),
        ("tool_budgets", {"r" * 120: {"max_calls": 1000}}, "toolBudgets", {"r" * 120: {"maxCalls": 1000}}),
        ("tool_budgets", {"recall": ToolBudget(max_calls=4)}, "toolBudgets", {"recall": {"maxCalls": 4}}),
        ("supervisor", True, "supervisor", True),
        ("supervisor", False, "supervisor", False),
        ("supervisor", {}, "supervisor", {}),
        (
            "supervisor",
            {"interval": 10, "reasoningTrigger": {"chars": 5000, "ms": 60000}},
            "supervisor",
            {"interval": 10, "reasoningTrigger": {"chars": 5000, "ms": 60000}},
        ),
        (
            "supervisor",
            {"interval": 10, "reasoningTrigger": False},
            "supervisor",
            {"interval": 10, "reasoningTrigger": False},
        ),
        (
            "supervisor",
            Supervisor(interval=100, model_id="m", reasoning_trigger=ReasoningTrigger(chars=50_000)),
            "supervisor",
            {"interval": 100, "modelId": "m", "reasoningTrigger": {"chars": 50_000}},
        ),
        ("supervisor", Supervisor(reasoning_trigger=False), "supervisor", {"reasoningTrigger": False}),
        ("plan", True, "plan", True),
        ("plan", False, "plan", False),
        ("plan", "required", "plan", "required"),
        ("plan", {"steps": ["a"], "brief": "b"}, "plan", {"steps": ["a"], "brief": "b"}),
        ("plan", {"planOnly": True}, "plan", {"planOnly": True}),
        ("plan", plan_only(), "plan", {"planOnly": True}),
        (
            "plan",
            plan_only(steps=("a", "b"), brief="c"),
            "plan",
            {"planOnly": True, "steps": ["a", "b"], "brief": "c"},
        ),
        ("plan", PlanOptions(mode="auto"), "plan", {"mode": "auto"}),
        ("metadata", {"customer": "acme"}, "metadata", {"customer": "acme"}),
        ("metadata", {}, "metadata", {}),
        ("prompt", "Hello", "prompt", "Hello"),
        ("extra_body", {"newField": {"a": [1, None]}}, "newField", {"a": [1, None]}),
        ("extra_body", {"agentId": "other"}, "agentId", "other"),
    ],
)
def test_field_goes_out_in_its_wire_form(field, value, key, expected) -> None:
    body = wire(**{field: value})
    assert body[key] == expected
    assert type(body[key]) is type(expected)
    assert body.keys() <= {"agentId", "prompt", key}
    json.dumps(body, allow_nan=False)


def test_every_field_was_tried() -> None:
    here = test_field_goes_out_in_its_wire_form.pytestmark[0].args[1]
    tried = {field for field, *_ in here} | {"messages", "attachments"}
    assert tried == {f.name for f in dataclasses.fields(RunSpec)}


@pytest.mark.parametrize("field", [f.name for f in dataclasses.fields(RunSpec)])
@pytest.mark.parametrize("nothing", [None, OMITTED])
def test_field_that_is_not_given_is_not_sent(field, nothing) -> None:
    given = {"agent_id": "a1", "system_prompt": "s", "prompt": "hi", "messages": None, field: nothing}
    if field == "prompt":
        given["messages"] = [{"role": "user", "content": "hi"}]
    body = build_spec(given).to_wire()
    expected = {"agentId", "systemPrompt", "messages" if field == "prompt" else "prompt"}
    assert body.keys() == expected - {spec.wire_name(field)}
    assert getattr(RunSpec(**{field: nothing}), field) is OMITTED


@pytest.mark.parametrize("field", ["name", "agent_id", "system_prompt", "model_id", "fallback_model_id"])
def test_empty_name_is_left_out(field) -> None:
    body = build_spec({"agent_id": "a1", "system_prompt": "s", "prompt": "hi", field: ""}).to_wire()
    assert spec.wire_name(field) not in body


@pytest.mark.parametrize(
    ("field", "value", "complaint"),
    [
        ("name", 5, "name: got 5, must be a string"),
        ("agent_id", b"x", "agent_id: got bytes, must be a string"),
        (
            "reasoning_level",
            True,
            "reasoning_level: got True, must be one of off, low, medium, high, or an integer from 0 to 100",
        ),
        (
            "reasoning_level",
            101,
            "reasoning_level: got 101, must be one of off, low, medium, high, or an integer from 0 to 100",
        ),
        (
            "reasoning_level",
            -1,
            "reasoning_level: got -1, must be one of off, low, medium, high, or an integer from 0 to 100",
        ),
        (
            "reasoning_level",
            50.0,
            "reasoning_level: got 50.0, must be one of off, low, medium, high, or an integer from 0 to 100",
        ),
        (
            "reasoning_level",
            "High",
            "reasoning_level: got 'High', must be one of off, low, medium, high, or an integer from 0 to 100",
        ),
        ("budgets", 5, "budgets: got 5, must be a Budgets or a mapping"),
        (
            "budgets",
            {"maxToolTurns": 101},
            "budgets.max_tool_turns: got 101, must be an integer from 0 to 100",
        ),
        ("budgets", {"maxToolTurns": -1}, "budgets.max_tool_turns: got -1, must be an integer from 0 to 100"),
        ("budgets", {"maxToolTurnsExceeded": 1}, "budgets.max_tool_turns_exceeded: got 1, must be a string"),
        ("budgets", {"maxToolTurn": 1}, "budgets: unknown key 'maxToolTurn'; did you mean 'maxToolTurns'?"),
        (
            "budgets",
            {"maxToolTurns": 1, "max_tool_turns": 2},
            "budgets.max_tool_turns: given twice, as 'max_tool_turns' and in its other spelling",
        ),
        ("budgets", {5: 1}, "budgets: got the key 5, must have strings as keys"),
        (
            "output_schema",
            SCHEMA,
            'output_schema: got a JSON Schema, must hold it under "schema": {"schema": {...}}',
        ),
        ("output_schema", {}, "output_schema: the key 'schema' is missing, must be a JSON Schema"),
        (
            "output_schema",
            {"schema": [1]},
            "output_schema.schema: got list, must be a JSON Schema whose root is an object",
        ),
        (
            "output_schema",
            {"schema": None},
            "output_schema.schema: got None, must be a JSON Schema whose root is an object",
        ),
        (
            "output_schema",
            {"schema": SCHEMA, "name": "a b"},
            "output_schema.name: got 'a b', must match [a-zA-Z0-9_-]{1,64}",
        ),
        (
            "output_schema",
            {"schema": SCHEMA, "name": ""},
            "output_schema.name: got '', must match [a-zA-Z0-9_-]{1,64}",
        ),
        (
            "output_schema",
            {"schema": SCHEMA, "name": "x\n"},
            "output_schema.name: got 'x\\n', must match [a-zA-Z0-9_-]{1,64}",
        ),
        (
            "output_schema",
            {"schema": SCHEMA, "enforcement": "hard"},
            "output_schema.enforcement: got 'hard', must be one of best_effort, strict",
        ),
        (
            "output_schema",
            {"schema": {"maximum": float("nan")}},
            "output_schema.schema.maximum: got nan, must be a finite number",
        ),
        (
            "output_schema",
            {"schema": {"const": {1: 2}}},
            "output_schema.schema.const: got the key 1, must have strings as keys",
        ),
        (
            "output_schema",
            {"schema": {"enum": ["a", datetime.date(2026, 1, 1)]}},
            "output_schema.schema.enum[1]: got date, must be a JSON value",
        ),
        ("loop_detection", True, "loop_detection: got True, must be False, a LoopDetection or a mapping"),
        (
            "loop_detection",
            {"consecutiveThreshold": 1},
            "loop_detection.consecutive_threshold: got 1, must be an integer from 2 to 100",
        ),
        (
            "loop_detection",
            {"consecutiveThreshold": 101},
            "loop_detection.consecutive_threshold: got 101, must be an integer from 2 to 100",
        ),
        (
            "loop_detection",
            {"consecutiveThreshold": True},
            "loop_detection.consecutive_threshold: got True, must be an integer from 2 to 100",
        ),
        (
            "loop_detection",
            {"hardCutoffThreshold": 2},
            "loop_detection.hard_cutoff_threshold: got 2, must be an integer from 3 to 100",
        ),
        (
            "loop_detection",
            {"hardCutoffThreshold": 3.5},
            "loop_detection.hard_cutoff_threshold: got 3.5, must be an integer from 3 to 100",
        ),
        (
            "loop_detection",
            LoopDetection(3, 3),
            "loop_detection.hard_cutoff_threshold: got 3, must be greater than consecutive_threshold (3)",
        ),
        (
            "loop_detection",
            {"consecutiveThreshhold": 3},
            "loop_detection: unknown key 'consecutiveThreshhold'; did you mean 'consecutiveThreshold'?",
        ),
        ("tool_budgets", [], "tool_budgets: got list, must be a mapping from tool name to ToolBudget"),
        (
            "tool_budgets",
            {str(i): {"maxCalls": 1} for i in range(33)},
            "tool_budgets: got 33 entries, must have at most 32",
        ),
        (
            "tool_budgets",
            {"": {"maxCalls": 1}},
            "tool_budgets: got the key '', must have keys that are strings of 1 to 120 characters",
        ),
        (
            "tool_budgets",
            {"recall": {"maxCalls": 1001}},
            "tool_budgets['recall'].max_calls: got 1001, must be an integer from 0 to 1000",
        ),
        (
            "tool_budgets",
            {"recall": ToolBudget(-1)},
            "tool_budgets['recall'].max_calls: got -1, must be an integer from 0 to 1000",
        ),
        (
            "tool_budgets",
            {"recall": {}},
            "tool_budgets['recall'].max_calls: got None, must be an integer from 0 to 1000",
        ),
        ("tool_budgets", {"recall": 4}, "tool_budgets['recall']: got 4, must be a ToolBudget or a mapping"),
        ("supervisor", "on", "supervisor: got a string, must be a bool, a Supervisor or a mapping"),
        ("supervisor", {"interval": 0}, "supervisor.interval: got 0, must be an integer from 1 to 100"),
        ("supervisor", {"interval": 101}, "supervisor.interval: got 101, must be an integer from 1 to 100"),
        ("supervisor", {"modelId": 5}, "supervisor.model_id: got 5, must be a string"),
        (
            "supervisor",
            {"reasoningTrigger": True},
            "supervisor.reasoning_trigger: got True, must be False, a ReasoningTrigger or a mapping",
        ),
        (
            "supervisor",
            {"reasoningTrigger": {"chars": 50_001}},
            "supervisor.reasoning_trigger.chars: got 50001, must be an integer from 1 to 50000",
        ),
        (
            "supervisor",
            {"reasoningTrigger": {"chars": 0}},
            "supervisor.reasoning_trigger.chars: got 0, must be an integer from 1 to 50000",
        ),
        (
            "supervisor",
            Supervisor(reasoning_trigger=ReasoningTrigger(ms=600_001)),
            "supervisor.reasoning_trigger.ms: got 600001, must be an integer from 1 to 600000",
        ),
        (
            "supervisor",
            {"reasoning_trigger": {"ms": 0}},
            "supervisor.reasoning_trigger.ms: got 0, must be an integer from 1 to 600000",
        ),
        ("plan", "on", "plan: got 'on', must be one of off, auto, required"),
        ("plan", {"mode": "on"}, "plan.mode: got 'on', must be one of off, auto, required"),
        ("plan", {"planOnly": 1}, "plan.plan_only: got 1, must be a bool"),
        ("plan", {"steps": "one"}, "plan.steps: got a string, must be a list of strings"),
        ("plan", {"steps": ["one", 2]}, "plan.steps[1]: got 2, must be a string"),
        ("plan", {"brief": 1}, "plan.brief: got 1, must be a string"),
        ("plan", {"step": []}, "plan: unknown key 'step'; did you mean 'steps'?"),
        ("plan", 5, "plan: got 5, must be a bool, a mode, a PlanOptions or a mapping"),
        ("metadata", [], "metadata: got list, must be a mapping of strings"),
        (
            "metadata",
            {f"k{i}": "v" for i in range(17)},
            "metadata: got 17 entries, must have at most 16",
        ),
        (
            "metadata",
            {"a b": "v"},
            "metadata: got the key 'a b', must have keys that match [A-Za-z0-9._-]{1,64}",
        ),
        ("metadata", {"when": datetime.datetime(2026, 1, 1)}, "metadata.when: got datetime, must be a string"),
        ("metadata", {"n": 5}, "metadata.n: got 5, must be a string"),
        ("metadata", {"k": "v" * 257}, "metadata.k: got 257 characters, must have at most 256"),
        (
            "metadata",
            {f"k{i}": "é" * 256 for i in range(9)},
            "metadata: got 4681 bytes, must take at most 4096 bytes as JSON",
        ),
        ("prompt", 5, "prompt: got int, must be a string"),
        ("prompt", "", "prompt: got an empty string, must have text (or attachments)"),
        ("extra_body", [], "extra_body: got list, must be a mapping"),
        ("extra_body", {"a": {"b": {1, 2}}}, "extra_body.a.b: got set, must be a JSON value"),
        ("extra_body", {"a": float("inf")}, "extra_body.a: got inf, must be a finite number"),
    ],
)
def test_bad_value_is_refused_with_field_value_and_limit(field, value, complaint) -> None:
    assert refused(**{field: value}) == complaint


def test_output_schema_has_a_size_limit() -> None:
    fits = {"schema": {"description": "x" * (limits.MAX_OUTPUT_SCHEMA_BYTES - len('{"schema":{"description":""}}'))}}
    assert wire(output_schema=fits)["outputSchema"] == fits
    fits["schema"]["description"] += "x"
    assert refused(output_schema=fits) == "output_schema: got 32769 bytes, must take at most 32768 bytes as JSON"


def test_output_schema_may_be_a_model_class() -> None:
    class Model:
        @classmethod
        def model_json_schema(cls):
            return SCHEMA

    assert wire(output_schema={"schema": Model})["outputSchema"] == {"schema": SCHEMA}


def test_value_that_contains_itself_is_refused() -> None:
    loop: dict = {}
    loop["again"] = loop
    assert refused(extra_body=loop) == (
        "extra_body: got a value that is nested too deep or contains itself, must be JSON"
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("loop_detection", {"consecutiveThreshold": 2, "windowSize": 9}),
        ("supervisor", {"verdictStyle": {"a": 1}}),
        ("plan", {"maxDepth": 3}),
        ("budgets", {"wallClock": 5}),
        ("output_schema", {"schema": {}, "dialect": "2020-12"}),
        ("tool_budgets", {"recall": {"maxCalls": 1, "perTurn": 2}}),
    ],
)
def test_option_that_only_a_newer_server_knows_goes_out_unchanged(field, value) -> None:
    assert wire(**{field: value})[spec.wire_name(field)] == value


# -- tools


def local(name, **more):
    return {"kind": "local", "name": name, **more}


def mcp_local(name, *tools):
    return {"kind": "mcp_local", "name": name, "tools": [{"name": tool} for tool in tools]}


@pytest.mark.parametrize(
    "tool",
    [
        local("a", parameters=SCHEMA, outputSchema=SCHEMA, longRunning=True, readOnly=True, newer=1),
        {"kind": "mantyx_plugin", "name": "@plugin/tool"},
        {"kind": "a2a", "name": "hr", "agentCardUrl": "https://x", "headers": {"a": "b"}},
        {"kind": "a2a_local", "name": "hr", "agentCard": {"name": "HR", "x": [1]}},
        {"kind": "mcp", "name": "fs", "url": "https://x", "toolFilter": ["a"]},
        mcp_local("fs", "read", "write"),
        {"kind": "brand_new", "anything": 1},
    ],
)
def test_tool_given_as_a_mapping_goes_out_unchanged(tool) -> None:
    assert wire(tools=[tool])["tools"] == [tool]


@pytest.mark.parametrize(
    ("tools", "complaint"),
    [
        ("search", "tools: got a string, must be a list of tools"),
        ({"kind": "local", "name": "a"}, "tools: got dict, must be a list of tools"),
        (FakeTool("a"), "tools: got FakeTool, must be a list of tools: [tool]"),
        (len, "tools: got builtin_function_or_method, must be a list of tools: [tool]"),
        ([5], "tools[0]: got 5, must be a tool, a function or a mapping with 'kind'"),
        ([{"name": "a"}], "tools[0].kind: got None, must be a non-empty string"),
        ([{"kind": "mantyx"}], "tools[0].id: got None, must be a non-empty string"),
        ([{"kind": "mantyx_plugin", "name": ""}], "tools[0].name: got '', must be a non-empty string"),
        ([{"kind": "a2a", "name": "hr"}], "tools[0].agentCardUrl: got None, must be a non-empty string"),
        ([{"kind": "mcp", "name": "fs"}], "tools[0].url: got None, must be a non-empty string"),
        ([local("read file")], "tools[0].name: got 'read file', must match [a-zA-Z0-9_]{1,64}"),
        ([local("é")], "tools[0].name: got 'é', must match [a-zA-Z0-9_]{1,64}"),
        ([local("a\n")], "tools[0].name: got 'a\\n', must match [a-zA-Z0-9_]{1,64}"),
        ([FakeTool("a.b")], "tools[0].name: got 'a.b', must match [a-zA-Z0-9_]{1,64}"),
        ([FakeTool("n" * 65)], f"tools[0].name: got '{'n' * 65}', must match [a-zA-Z0-9_]{{1,64}}"),
        ([local("a", parameters=[])], "tools[0].parameters: got list, must be an object"),
        ([local("a", parameters={"x": {1}})], "tools[0].parameters.x: got set, must be a JSON value"),
        ([{"kind": "a2a_local", "name": "hr"}], "tools[0].agentCard: got None, must be an object"),
        ([mcp_local("fs")], "tools[0].tools: got 0 tools, must be a list of 1 to 64 tools"),
        (
            [mcp_local("fs", *(f"t{i}" for i in range(65)))],
            "tools[0].tools: got 65 tools, must be a list of 1 to 64 tools",
        ),
        ([mcp_local("fs", "a/b")], "tools[0].tools[0].name: got 'a/b', must match [a-zA-Z0-9_]{1,64}"),
        ([FakeTool("a"), local("b"), FakeTool("a")], "tools[2]: a tool named 'a' is already there as tools[0]"),
        ([local("a"), mcp_local("fs", "b", "a")], "tools[1]: a tool named 'a' is already there as tools[0]"),
        ([mcp_local("x", "a"), mcp_local("y", "a")], "tools[1]: a tool named 'a' is already there as tools[0]"),
        ([mcp_local("x", "a", "a")], "tools[0]: a tool named 'a' is there twice"),
        (
            [{"kind": "mcp", "name": "fs", "url": "https://x"}, mcp_local("fs", "a")],
            "tools[1]: an MCP server named 'fs' is already there as tools[0]",
        ),
        (
            [{"kind": "mantyx", "id": "t1"}, FakeTool(kind="mantyx", id="t1")],
            "tools[1]: the mantyx tool 't1' is already there as tools[0]",
        ),
    ],
)
def test_bad_tools_are_refused(tools, complaint) -> None:
    assert refused(tools=tools) == complaint


def test_tools_of_different_kinds_may_share_a_label() -> None:
    tools = [local("fs"), mcp_local("fs", "a"), {"kind": "mantyx", "id": "fs"}]
    assert wire(tools=tools)["tools"] == tools


def test_plain_function_is_a_tool() -> None:
    def get_order(order_id: str) -> str:
        """Look up one order."""
        return order_id

    built = build_spec({"agent_id": "a", "prompt": "hi", "tools": [get_order]})
    assert built.tools[0].name == "get_order"
    (sent,) = built.to_wire()["tools"]
    assert (sent["kind"], sent["name"], sent["description"]) == ("local", "get_order", "Look up one order.")
    assert sent["parameters"]["required"] == ["order_id"]


def test_what_was_said_is_not_in_the_refusal() -> None:
    for kwargs in (
        {"messages": "MARKER"},
        {"messages": ["MARKER"]},
        {"messages": [{"role": "user", "content": ["MARKER"]}]},
        {"messages": [user("MARKER" * 100_000)]},
        {"prompt": ["MARKER"]},
        {"prompt": b"MARKER"},
        {"attachments": "MARKER"},
        {"attachments": ["MARKER"]},
        {"attachments": [file(data="MARKER!")]},
        {"attachments": [{"type": "input_file_url", "url": "http://u:MARKER@x"}]},
        {"metadata": {"k": "MARKER" * 100}},
    ):
        assert "MARKER" not in refused(**kwargs)


def test_what_a_server_offers_is_checked_once_it_is_known() -> None:
    catalog = FakeTool("fs", kind="mcp_local", wire=mcp_local("fs", "read"))
    built = build_spec({"agent_id": "a", "prompt": "hi", "tools": [FakeTool("read"), catalog]})
    assert built.tools == (FakeTool("read"), catalog)
    with pytest.raises(MantyxConfigError, match=r"tools\[1\]: a tool named 'read' is already there"):
        built.to_wire()


# -- messages and attachments


def user(content="hi", **more):
    return {"role": "user", "content": content, **more}


def assistant(content="ok"):
    return {"role": "assistant", "content": content}


def system(content="be kind"):
    return {"role": "system", "content": content}


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([user()], [user()]),
        ((Message("user", "hi"),), [user()]),
        ([system(), user(), assistant(), user("more")], [system(), user(), assistant(), user("more")]),
        ([user(), system()], [user(), system()]),
        ([user(newer=[1])], [user(newer=[1])]),
        ([user("x" * limits.MAX_MESSAGE_CHARS)], [user("x" * limits.MAX_MESSAGE_CHARS)]),
        ([user()] * limits.MAX_MESSAGES, [user()] * limits.MAX_MESSAGES),
        (
            [Message("user", "hi", [InputFile("a.pdf", "application/pdf", b64(3))])],
            [user(attachments=[file()])],
        ),
        # what a session's history has on earlier messages is metadata
        (
            [user(attachments=[{"type": "input_file", "filename": "a", "size": 5}]), user()],
            [user(attachments=[{"type": "input_file", "filename": "a", "size": 5}]), user()],
        ),
    ],
)
def test_messages_go_out_in_their_wire_form(messages, expected) -> None:
    assert wire(messages=messages) == {"agentId": "a1", "messages": expected}


@pytest.mark.parametrize(
    ("messages", "complaint"),
    [
        ("hi", "messages: got a string, must be a list of messages"),
        (user(), "messages: got dict, must be a list of messages"),
        ([], "messages: got an empty list, must have at least one message"),
        ([user()] * 201, "messages: got 201 messages, must have at most 200"),
        (["hi"], "messages[0]: got a string, must be a Message or a mapping"),
        (
            [{"role": "tool", "content": "x"}],
            "messages[0].role: got 'tool', must be one of user, assistant, system",
        ),
        ([{"content": "x"}], "messages[0].role: got None, must be one of user, assistant, system"),
        ([{"role": "user"}], "messages[0].content: got None, must be a string"),
        ([user(["x"])], "messages[0].content: got list, must be a string"),
        ([user("x" * 200_001)], "messages[0].content: got 200001 characters, must have at most 200000"),
        (
            [user(), assistant()],
            "messages: got 'assistant' as the last message, must end with a user message (system messages aside)",
        ),
        (
            [user(), assistant(), system()],
            "messages: got 'assistant' as the last message, must end with a user message (system messages aside)",
        ),
        (
            [system()],
            "messages: got system messages alone, must end with a user message (system messages aside)",
        ),
        ([user(attachment=[])], "messages[0]: unknown key 'attachment'; did you mean 'attachments'?"),
        (
            [user(), user(attachments=[{"type": "file"}])],
            "messages[1].attachments[0].type: got 'file', must be one of input_file, input_file_url",
        ),
    ],
)
def test_bad_messages_are_refused(messages, complaint) -> None:
    assert refused(messages=messages) == complaint


TYPES = "audio mp4/mpeg/wav/webm, image jpeg/png/webp/gif, PDF, DOCX, JSON, XML or text/*"


@pytest.mark.parametrize(
    ("attachments", "complaint"),
    [
        ("a.pdf", "attachments: got a string, must be a list of attachments"),
        ([file()] * 21, "attachments: got 21 attachments, must have at most 20"),
        (
            ["a.pdf"],
            "attachments[0]: got a string, must be made by input_file() or input_file_url(), or a mapping",
        ),
        ([{}], "attachments[0].type: got None, must be one of input_file, input_file_url"),
        (
            [file(mimeType="application/zip")],
            f"attachments[0].mime_type: got 'application/zip', must be a type the platform takes: {TYPES}",
        ),
        ([file(mimeType=None)], "attachments[0].mime_type: got None, must be a non-empty string"),
        ([file(filename="")], "attachments[0].filename: got '', must be a non-empty string"),
        (
            [file(data=b"abc")],
            "attachments[0].data: got bytes, must be base64 text (input_file() encodes bytes)",
        ),
        ([file(data=None)], "attachments[0].data: got None, must be base64 text"),
        ([file(data="not base64!")], "attachments[0].data: got a string that is not base64, must be base64 text"),
        ([file(data="abc")], "attachments[0].data: got a string that is not base64, must be base64 text"),
        (
            [file(data="data:application/pdf;base64,eHh4")],
            "attachments[0].data: got a data: URL, must be the base64 text alone",
        ),
        (
            [file(data=b64(5_242_881))],
            "attachments: got 5242881 bytes of files, must be at most 5242880 bytes in all",
        ),
        (
            [file(data=b64(6_000_000))],
            "attachments[0].data: got 6000000 bytes of files, must be at most 5242880 bytes in all",
        ),
        (
            [file(data=b64(3_000_000)), file(data=b64(3_000_000))],
            "attachments: got 6000000 bytes of files, must be at most 5242880 bytes in all",
        ),
        (
            [{"type": "input_file_url", "url": "http://x/a.png"}],
            "attachments[0].url: got a string, must be an https:// URL",
        ),
        ([{"type": "input_file_url"}], "attachments[0].url: got None, must be an https:// URL"),
        (
            [{"type": "input_file_url", "url": "https://x", "mimeType": "video/mp4"}],
            f"attachments[0].mime_type: got 'video/mp4', must be a type the platform takes: {TYPES}",
        ),
        (
            [{"type": "input_file_url", "url": "https://x", "mimetype": "image/png"}],
            "attachments[0]: unknown key 'mimetype'; did you mean 'mime_type'?",
        ),
    ],
)
def test_bad_attachments_are_refused(attachments, complaint) -> None:
    assert refused(attachments=attachments) == complaint


def test_attachments_turn_a_prompt_into_a_message() -> None:
    url = InputFileUrl("https://x/a.png", mime_type="image/png")
    body = wire(prompt="What is this?", attachments=[url, file()])
    expected = [{"type": "input_file_url", "url": "https://x/a.png", "mimeType": "image/png"}, file()]
    assert body == {"agentId": "a1", "messages": [user("What is this?", attachments=expected)]}
    assert wire(prompt="", attachments=[url])["messages"][0]["content"] == ""
    assert wire(prompt="hi", attachments=[]) == {"agentId": "a1", "prompt": "hi"}


def test_attachments_go_on_the_last_user_message() -> None:
    body = wire(messages=[user("a"), assistant(), user("b", attachments=[file(1)]), system()], attachments=[file(2)])
    assert [m.get("attachments") for m in body["messages"]] == [None, None, [file(1), file(2)], None]
    many = [file(1)] * 15
    with pytest.raises(MantyxConfigError, match="got 30 attachments, must have at most 20"):
        wire(messages=[user("b", attachments=many)], attachments=many)


def test_file_is_read_from_path_or_bytes(tmp_path) -> None:
    path = tmp_path / "Report.PDF"
    path.write_bytes(b"%PDF")
    expected = InputFile("Report.PDF", "application/pdf", base64.b64encode(b"%PDF").decode())
    assert input_file(path) == input_file(str(path)) == expected
    assert input_file(path, filename="x.csv").mime_type == "text/csv"
    assert input_file(b"a,b", filename="t.csv") == InputFile("t.csv", "text/csv", "YSxi")
    assert input_file(b"x", filename="noext", mime_type="text/plain").mime_type == "text/plain"
    assert "YSxi" not in repr(input_file(b"a,b", filename="t.csv"))
    with pytest.raises(FileNotFoundError):
        input_file(tmp_path / "gone.pdf")


@pytest.mark.parametrize(
    ("name", "mime_type"),
    [
        ("a.md", "text/markdown"),
        ("a.tsv", "text/tab-separated-values"),
        ("a.docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
        ("a.webp", "image/webp"),
        ("a.PNG", "image/png"),
        ("a.json", "application/json"),
        ("a.txt", "text/plain"),
        ("a.html", "text/html"),
    ],
)
def test_type_is_told_from_the_name(name, mime_type) -> None:
    assert input_file(b"x", filename=name).mime_type == mime_type


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: input_file(b"x"), "input_file: bytes need a filename"),
        (
            lambda: input_file(b"x", filename="noext"),
            "input_file: cannot tell the type of 'noext'; give mime_type",
        ),
        (
            lambda: input_file(b"x", filename="a.zip"),
            f"input_file.mime_type: got 'application/zip', must be a type the platform takes: {TYPES}",
        ),
        (
            lambda: input_file(b"x" * 5_242_881, filename="a.txt"),
            "input_file: got 5242881 bytes of files, must be at most 5242880 bytes in all",
        ),
        (lambda: input_file_url("ftp://x"), "input_file_url.url: got a string, must be an https:// URL"),
        (lambda: input_file_url("https://"), "input_file_url.url: got a string, must be an https:// URL"),
    ],
)
def test_file_that_cannot_be_sent_is_refused_at_once(call, complaint) -> None:
    with pytest.raises(MantyxConfigError) as caught:
        call()
    assert str(caught.value) == complaint


def test_large_file_is_refused_before_it_is_read(tmp_path) -> None:
    path = tmp_path / "big.txt"
    with path.open("wb") as sparse:
        sparse.truncate(10**12)
    with pytest.raises(MantyxConfigError, match="got 1000000000000 bytes of files"):
        input_file(path)


def test_mapping_builders_return_the_wire_form() -> None:
    assert input_file_attachment(mime_type="application/pdf", filename="a.pdf", data=b64(3)) == file()
    assert input_file_attachment(mime_type="application/pdf", filename="a.pdf", data=b"xxx") == file()
    assert input_file_url_attachment(url="https://x") == {"type": "input_file_url", "url": "https://x"}
    full = input_file_url_attachment(url="https://x", mime_type="image/png", filename="a.png")
    assert full == {"type": "input_file_url", "url": "https://x", "mimeType": "image/png", "filename": "a.png"}
    assert wire(attachments=[full])["messages"][0]["attachments"] == [full]


# -- the spec as a whole


@pytest.mark.parametrize(
    ("purpose", "kwargs", "complaint"),
    [
        ("run", {"prompt": "hi"}, "agent_id: not given, must be given (or system_prompt or a system message)"),
        (
            "run",
            {"prompt": "hi", "agent_id": "", "system_prompt": ""},
            "agent_id: not given, must be given (or system_prompt or a system message)",
        ),
        (
            "run",
            {"messages": [system("  "), user()]},
            "agent_id: not given, must be given (or system_prompt or a system message)",
        ),
        ("session", {}, "agent_id: not given, must be given (or system_prompt)"),
        ("run", {"agent_id": "a"}, "prompt: not given, must be given (or messages)"),
        ("message", {}, "prompt: not given, must be given (or messages)"),
        (
            "run",
            {"agent_id": "a", "prompt": "hi", "messages": [user()]},
            "prompt: given together with messages, must be one of the two",
        ),
        (
            "message",
            {"prompt": "hi", "messages": [user()]},
            "prompt: given together with messages, must be one of the two",
        ),
        ("run", {"agent_id": "a", "attachments": [file()]}, "prompt: not given, must be given (or messages)"),
        (
            "session",
            {"agent_id": "a", "prompt": "x"},
            "prompt: a session is created without; give it to send()",
        ),
        (
            "session",
            {"agent_id": "a", "messages": [user()]},
            "messages: a session is created without; give it to send()",
        ),
        (
            "session",
            {"agent_id": "a", "attachments": [file()]},
            "attachments: a session is created without; give it to send()",
        ),
    ],
)
def test_fields_must_fit_together(purpose, kwargs, complaint) -> None:
    with pytest.raises(MantyxConfigError) as caught:
        build_spec(kwargs, purpose=purpose)
    assert str(caught.value) == complaint


@pytest.mark.parametrize(
    ("purpose", "kwargs"),
    [
        ("run", {"system_prompt": "s", "prompt": "hi"}),
        ("run", {"agent_id": "a", "messages": [user()]}),
        ("run", {"messages": [system(), user()]}),
        ("session", {"system_prompt": "s"}),
        ("session", {"agent_id": "a", "supervisor": False}),
        ("message", {"prompt": "hi"}),
        ("message", {"messages": [user()], "tools": []}),
    ],
)
def test_what_is_enough_is_accepted(purpose, kwargs) -> None:
    assert build_spec(kwargs, purpose=purpose).to_wire(purpose).keys() == {spec.wire_name(k) for k in kwargs}


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("promt", "; did you mean 'prompt'?"),
        ("systemPrompt", "; did you mean 'system_prompt'?"),
        ("tool", "; did you mean 'tools'?"),
        ("toolBudgets", "; did you mean 'tool_budgets'?"),
        ("xyzzy", ""),
    ],
)
def test_unknown_name_is_a_type_error_with_a_suggestion(name, suggestion) -> None:
    with pytest.raises(TypeError) as caught:
        build_spec({"agent_id": "a", name: "x"})
    assert str(caught.value) == f"unexpected keyword argument {name!r}{suggestion}"


def test_later_changes_of_the_callers_values_have_no_effect() -> None:
    given = {
        "agent_id": "a",
        "tools": [local("a", parameters={"type": "object"})],
        "budgets": {"maxToolTurns": 1},
        "output_schema": OutputSchema({"type": "object", "required": ["a"]}),
        "loop_detection": {"consecutiveThreshold": 2},
        "tool_budgets": {"recall": {"maxCalls": 1}},
        "supervisor": {"reasoningTrigger": {"ms": 1}},
        "plan": PlanOptions(steps=["a"]),
        "metadata": {"k": "v"},
        "messages": [user(attachments=[file()])],
        "attachments": [file()],
        "extra_body": {"x": {"y": [1]}},
    }
    kept = copy.deepcopy(given)
    built = build_spec(given)
    before = copy.deepcopy(built.to_wire())
    assert given == kept

    given["tools"][0]["parameters"]["type"] = "array"
    given["tools"].append(local("b"))
    given["budgets"]["maxToolTurns"] = 2
    given["output_schema"].schema["required"].append("b")
    given["loop_detection"].clear()
    given["tool_budgets"]["recall"]["maxCalls"] = 2
    given["supervisor"]["reasoningTrigger"]["ms"] = 2
    given["plan"].steps.append("b")
    given["metadata"]["k"] = "w"
    given["messages"][0]["attachments"][0]["filename"] = "b.pdf"
    given["attachments"].clear()
    given["extra_body"]["x"]["y"].append(2)
    assert built.to_wire() == before

    sent = built.to_wire()
    sent["messages"][0]["content"] = "changed"
    sent["tools"][0]["parameters"]["type"] = "changed"
    sent["x"]["y"].append(3)
    assert built.to_wire() == before


def test_spec_can_be_replaced_in_parts() -> None:
    first = build_spec(
        {
            "agent_id": "a",
            "prompt": "hi",
            "attachments": [file()],
            "plan": plan_only(steps=["a"]),
            "tools": [FakeTool("a")],
            "output_schema": OutputSchema(SCHEMA),
            "tool_budgets": {"recall": ToolBudget(1)},
            "supervisor": Supervisor(reasoning_trigger=False),
        }
    )
    again = dataclasses.replace(first)
    assert again == first
    assert again.to_wire() == first.to_wire()
    assert dataclasses.replace(first, prompt="more").to_wire()["messages"][0]["content"] == "more"
    assert pickle.loads(pickle.dumps(first)) == first


def test_repr_of_a_spec_shows_no_prompt() -> None:
    shown = repr(build_spec({"agent_id": "a1", "prompt": "MARKER", "extra_body": {"k": "MARKER"}}))
    assert shown == "RunSpec(agent_id='a1', prompt=…, extra_body=…)"


def test_omitted_is_falsy_and_one_of_a_kind() -> None:
    assert not OMITTED
    assert repr(OMITTED) == str(OMITTED) == "OMITTED"
    assert pickle.loads(pickle.dumps(OMITTED)) is OMITTED
    assert copy.deepcopy(OMITTED) is OMITTED


def test_typed_arguments_and_spec_list_the_same_fields() -> None:
    assert list(RunSpecArgs.__annotations__) == [f.name for f in dataclasses.fields(RunSpec)]
    assert set(spec._READERS) == set(RunSpecArgs.__annotations__)


def test_signature_shows_own_parameters_then_every_field() -> None:
    @spec_signature
    def run_agent(self, prompt=None, *, timeout=None, **kwargs):
        return kwargs

    shown = inspect.signature(run_agent).parameters
    names = [f.name for f in dataclasses.fields(RunSpec)]
    assert list(shown) == ["self", "prompt", "timeout", *(n for n in names if n != "prompt")]
    assert shown["tools"].kind is inspect.Parameter.KEYWORD_ONLY
    assert shown["tools"].default is OMITTED
    assert "Iterable" in str(shown["tools"].annotation)
    assert run_agent(None, tools=1) == {"tools": 1}

    class Client:
        run = run_agent

    assert next(iter(inspect.signature(Client().run).parameters)) == "prompt"


def test_signature_leaves_out_what_has_no_place() -> None:
    @spec_signature(purpose="session", without=["extra_body"])
    def create_session(**kwargs):
        return kwargs

    shown = inspect.signature(create_session).parameters
    assert not {"prompt", "messages", "attachments", "extra_body", "kwargs"} & set(shown)
    assert {"agent_id", "tools", "supervisor"} <= set(shown)
