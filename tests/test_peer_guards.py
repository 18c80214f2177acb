"""The platform's own Python client, unchanged, meets the guards of the embedded server's agent loop."""

from __future__ import annotations

import pytest

from mantyx_sync.local import LocalServer, ScriptedModel, Thinking, ToolUse, Verdict
from tests.test_peer_client import PEER, peer

pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif(not PEER, reason="MANTYX_PEER_PYTHON names no interpreter with the platform's package"),
]


def test_it_sees_loops_budgets_and_reviews() -> None:
    script = ScriptedModel(
        [[ToolUse("recall", {"q": n})] for n in range(3)] + [[ToolUse("recall", {"q": 9})]] * 4 + ["Done."]
    )
    with LocalServer(script, judge=lambda _: Verdict("redirect", "Stuck.", "Answer now.")) as server:
        shown = peer(
            server,
            """
            recall = define_local_tool(name="recall", execute=lambda args: "nothing")
            seen = []
            result = client.run_agent(
                system_prompt="x", prompt="y", tools=[recall],
                loop_detection={"consecutiveThreshold": 2, "hardCutoffThreshold": 4},
                tool_budgets={"recall": {"maxCalls": 2}},
                supervisor={"interval": 3, "reasoningTrigger": False},
                on_event=lambda ev: seen.append((ev.type, dict(ev.data))),
            )
            show(text=result.text, turns=result.turns,
                 loops=[d for t, d in seen if t == "loop_detected"],
                 budgets=[d for t, d in seen if t == "tool_budget_exceeded"],
                 reviews=[(d["action"], d["phase"], d["redirect"], d["llmCalls"])
                          for t, d in seen if t == "supervisor"])
            """,
        )
    assert (shown["text"], shown["turns"]) == ("Done.", 8)
    assert shown["loops"] == [
        {"consecutiveCount": 2, "hardCutoff": False, "tools": ["recall"]},
        {"consecutiveCount": 4, "hardCutoff": True, "tools": ["recall"]},
    ]
    assert [entry["callIndex"] for entry in shown["budgets"]] == [3, 4]
    assert shown["reviews"] == [
        ["redirect", "turn_boundary", "Answer now.", 3],
        ["redirect", "turn_boundary", "Answer now.", 6],
    ]


def test_its_reasoning_is_broken_off_by_a_review() -> None:
    script = ScriptedModel([[Thinking("round and round"), "never"], "Done."])
    with LocalServer(script, judge=lambda _: "finalize") as server:
        shown = peer(
            server,
            """
            events = list(client.stream_agent(system_prompt="x", prompt="y", reasoning_level="high",
                                              supervisor={"reasoningTrigger": {"chars": 5}}))
            show(types=[e.type for e in events], text=events[-1].data["text"])
            """,
        )
    assert shown["types"] == ["thinking_delta", "supervisor", "assistant_delta", "assistant_message", "result"]
    assert shown["text"] == "Done."


def test_it_follows_a_plan_and_asks_for_one_alone() -> None:
    with LocalServer(ScriptedModel(["Done."])) as server:
        shown = peer(
            server,
            """
            from mantyx import task_plan_from_event_data
            plans = []
            client.run_agent(system_prompt="x", prompt="y", plan={"steps": ["One", "Two"], "brief": "Both"},
                             on_event=lambda ev: ev.type == "task_plan"
                             and plans.append(task_plan_from_event_data(ev.data)))
            alone = client.run_plan(system_prompt="x", prompt="Read the log, then find the error.")
            declined = client.run_plan(system_prompt="x", prompt="Hello")
            show(plans=plans, alone=alone.plan, text=alone.text, turns=alone.turns, declined=declined.plan)
            """,
        )
    first, last = shown["plans"][0], shown["plans"][-1]
    assert (first["brief"], [s["status"] for s in first["steps"]]) == ("Both", ["in_progress", "pending"])
    assert [s["status"] for s in last["steps"]] == ["done", "done"]
    assert (first["planId"], first["revision"], last["revision"]) == (last["planId"], 1, 2)
    assert [s["title"] for s in shown["alone"]["steps"]] == ["Read the log", "Find the error"]
    assert (shown["turns"], shown["declined"]) == (0, {"steps": []})


STRUCTURED = """
output = {"schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}
good = client.run_agent(system_prompt="x", prompt="good", output_schema=output)
loose = client.run_agent(system_prompt="x", prompt="bad", output_schema=output)
try:
    client.run_agent(system_prompt="x", prompt="bad", output_schema={**output, "enforcement": "strict"})
except MantyxRunError as error:
    show(good=good.structured_output, loose=loose.structured_output, error_class=error.error_class,
         partial=error.partial_text, strict=error.structured_output)
"""


def test_it_reads_how_far_structured_output_was_enforced() -> None:
    script = ScriptedModel(lambda asked: ['{"city": "Rome"}' if asked.prompt == "good" else "Rome"])
    with LocalServer(script) as server:
        shown = peer(server, STRUCTURED)
    enforced = {
        "schema_requested": True,
        "schema_enforced": True,
        "enforcement_mechanism": "native_schema",
        "unconstrained_fallback_occurred": False,
    }
    loose = {**enforced, "schema_enforced": False}
    assert (shown["good"], shown["loose"], shown["strict"]) == (enforced, loose, loose)
    assert (shown["error_class"], shown["partial"]) == ("structured_output_not_enforced", "Rome")
