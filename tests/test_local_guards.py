"""Loop detection and tool budgets of the embedded server: the state machines as tables, the rest over HTTP."""

from __future__ import annotations

import json
from typing import Any, Optional

import pytest

from mantyx_sync.local import LocalServer, ScriptedModel, ToolUse
from mantyx_sync.local.budgets import DEFAULT_BUDGETS, ToolBudgets
from mantyx_sync.local.loop_guard import LOOP_CUTOFF, LOOP_NUDGE, LoopGuard, batch_signature
from tests.plain_http import Recorder, answer_calls, local_tool, of_type, request, start, types

pytestmark = pytest.mark.usefixtures("no_leaks")

A, B = ToolUse("a", {"x": 1}), ToolUse("b", {})


# ---------------------------------------------------------------------- signatures


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ([A, B], [B, A], True),
        ([ToolUse("t", {"x": 1, "y": 2})], [ToolUse("t", {"y": 2, "x": 1})], True),
        (
            [ToolUse("t", {"x": {"a": [1, {"p": 1, "q": 2}]}})],
            [ToolUse("t", {"x": {"a": [1, {"q": 2, "p": 1}]}})],
            True,
        ),
        ([ToolUse("t", {"x": 1})], [ToolUse("t", {"x": 1.0})], True),
        ([ToolUse("t", {}, id="tu_1")], [ToolUse("t", {}, id="tu_2")], True),
        ([ToolUse("t", {"x": 1})], [ToolUse("t", {"x": 2})], False),
        ([ToolUse("t", {"x": 1})], [ToolUse("t", {"x": "1"})], False),
        ([ToolUse("t", {"x": 1})], [ToolUse("t", {"x": True})], False),
        ([ToolUse("t", {"x": [1, 2]})], [ToolUse("t", {"x": [2, 1]})], False),
        ([ToolUse("t", {})], [ToolUse("u", {})], False),
        ([A], [A, A], False),
        ([A, A, B], [A, B, B], False),
        ([ToolUse("t", "no json")], [ToolUse("t", "no json")], True),
    ],
)
def test_two_batches_are_alike_whatever_the_order_of_calls_and_keys(
    one: list[ToolUse], other: list[ToolUse], same: bool
) -> None:
    assert (batch_signature(one) == batch_signature(other)) is same


# ---------------------------------------------------------------------- loop guard


def watch(guard: LoopGuard, batches: str) -> list[Optional[str]]:
    """Show a guard one batch per letter; say what it thought of each."""
    seen: list[Optional[str]] = []
    for letter in batches:
        alarm = guard.observe([ToolUse(letter)])
        if alarm is None:
            seen.append(None)
        else:
            word = "hard" if alarm.hard_cutoff else "nudge" if alarm.nudge else "skip"
            seen.append(f"{word}{alarm.count}")
    return seen


@pytest.mark.parametrize(
    ("spec", "batches", "expected"),
    [
        (None, "aaaaaa", [None, None, "nudge3", "skip4", "skip5", "hard6"]),
        ({}, "aaa", [None, None, "nudge3"]),
        ({"consecutiveThreshold": 2, "hardCutoffThreshold": 3}, "aaa", [None, "nudge2", "hard3"]),
        ({"consecutiveThreshold": 2}, "aaaaaa", [None, "nudge2", "skip3", "skip4", "skip5", "hard6"]),
        ({"hardCutoffThreshold": 4}, "aaaa", [None, None, "nudge3", "hard4"]),
        (None, "aabaab", [None] * 6),
        (None, "ababab", [None] * 6),
        (None, "aaabaaa", [None, None, "nudge3", None, None, None, "nudge3"]),
        ({"consecutiveThreshold": None, "hardCutoffThreshold": None}, "aaa", [None, None, "nudge3"]),
    ],
)
def test_the_guard_counts_equal_batches_in_a_row(spec: Any, batches: str, expected: list[Optional[str]]) -> None:
    guard = LoopGuard.from_spec(spec)
    assert guard is not None
    assert watch(guard, batches) == expected


def test_false_switches_the_guard_off() -> None:
    assert LoopGuard.from_spec(False) is None


# ------------------------------------------------------------------------- budgets


@pytest.mark.parametrize(
    ("spec", "caps"),
    [
        (None, dict(DEFAULT_BUDGETS)),
        ({}, {}),
        ({"mine": {"maxCalls": 2}}, {**DEFAULT_BUDGETS, "mine": 2}),
        ({"recall": {"maxCalls": 8}, "traverse": {"maxCalls": 0}}, {**DEFAULT_BUDGETS, "recall": 8, "traverse": 0}),
    ],
)
def test_caller_budgets_lie_over_the_defaults(spec: Any, caps: dict[str, int]) -> None:
    assert ToolBudgets.from_spec(spec).caps == caps


def test_the_default_budgets_are_the_documented_ones() -> None:
    fives = ["deals", "meetings", "companies", "people", "tickets", "conversations", "accounts", "releases", "issues"]
    assert {
        "recall": 4,
        "traverse": 3,
        "hive_consult_ontology": 4,
        **{f"hive_search_{name}": 5 for name in fives},
    } == DEFAULT_BUDGETS


@pytest.mark.parametrize(("cap", "attempts", "refused"), [(0, 2, [1, 2]), (1, 3, [2, 3]), (3, 3, []), (3, 4, [4])])
def test_attempts_past_the_cap_are_refused_with_their_number(cap: int, attempts: int, refused: list[int]) -> None:
    budgets = ToolBudgets({"t": cap})
    found = [budgets.attempt("t") for _ in range(attempts)]
    assert [e.to_event() for e in found if e] == [{"tool": "t", "maxCalls": cap, "callIndex": n} for n in refused]
    assert budgets.attempt("free") is None


def test_budgets_are_not_pooled() -> None:
    budgets = ToolBudgets({"a": 1, "b": 1})
    assert [budgets.attempt(name) is None for name in "abab"] == [True, True, False, False]


# ----------------------------------------------------------------- loops, over HTTP


def play(model: Any, names: str = "t", **spec: Any) -> list[dict[str, Any]]:
    with LocalServer(model) as server:
        run_id = start(server, tools=[local_tool(name) for name in names.split()], **spec)
        return answer_calls(server, run_id, dict.fromkeys(names.split(), "fine"))


def test_a_model_that_repeats_itself_is_nudged_and_may_pivot() -> None:
    model = Recorder([[ToolUse("t", {"q": 1})]] * 3 + [[ToolUse("t", {"q": 2})], "Done."])
    events = play(model)
    assert of_type(events, "loop_detected") == [{"consecutiveCount": 3, "hardCutoff": False, "tools": ["t"]}]
    assert [call["args"]["q"] for call in of_type(events, "local_tool_call")] == [1, 1, 2]
    skipped = of_type(events, "tool_result")
    assert len(skipped) == 1
    assert (skipped[0]["ok"], json.loads(skipped[0]["result"])["error"]) == (False, "duplicate_tool_calls")
    assert "exact call before" in skipped[0]["result"]
    place = types(events).index("loop_detected")
    assert types(events)[place - 1] == "tool_result"  # the result came before the event
    told = model.requests[3].messages[-2:]
    assert [(m["role"], m["content"]) for m in told][1] == ("user", LOOP_NUDGE)
    assert (told[0]["role"], told[0]["isError"]) == ("tool", True)
    assert [len(asked.tools) for asked in model.requests] == [1] * 5
    assert events[-1]["data"]["text"] == "Done."
    assert events[-1]["data"]["turns"] == 5


def test_a_model_that_goes_on_repeating_itself_has_to_finish_without_tools() -> None:
    model = Recorder([[ToolUse("t"), ToolUse("u")], [ToolUse("u"), ToolUse("t")]] * 3 + ["That is all."])
    events = play(model, "t u")
    assert of_type(events, "loop_detected") == [
        {"consecutiveCount": 3, "hardCutoff": False, "tools": ["t", "u"]},
        {"consecutiveCount": 6, "hardCutoff": True, "tools": ["u", "t"]},
    ]
    assert len(of_type(events, "local_tool_call")) == 4  # the first two batches
    assert len(of_type(events, "tool_result")) == 8  # and four that were skipped
    assert [len(asked.tools) for asked in model.requests] == [2] * 6 + [0]
    assert model.requests[-1].messages[-1]["content"] == LOOP_CUTOFF
    assert [m["content"] for m in model.requests[-1].messages].count(LOOP_NUDGE) == 1
    done = events[-1]
    assert (done["type"], done["data"]["text"], done["data"]["turns"]) == ("result", "That is all.", 7)


def test_thresholds_are_the_specs() -> None:
    script = ScriptedModel([[ToolUse("t")]] * 4 + ["Done."])
    events = play(script, loopDetection={"consecutiveThreshold": 2, "hardCutoffThreshold": 4})
    found = [(e["consecutiveCount"], e["hardCutoff"]) for e in of_type(events, "loop_detected")]
    assert found == [(2, False), (4, True)]


def test_without_the_guard_a_model_may_repeat_itself() -> None:
    script = ScriptedModel([[ToolUse("t")]] * 8 + ["Done."])
    events = play(script, loopDetection=False)
    assert len(of_type(events, "local_tool_call")) == 8
    assert of_type(events, "loop_detected") == []


def test_calls_in_the_last_turn_are_not_made_and_its_text_is_the_answer() -> None:
    guard = {"consecutiveThreshold": 2, "hardCutoffThreshold": 3}
    events = play(ScriptedModel([[ToolUse("t")]] * 3 + [["Fine.", ToolUse("t")]]), loopDetection=guard)
    assert (events[-1]["type"], events[-1]["data"]["text"]) == ("result", "Fine.")
    assert len(of_type(events, "local_tool_call")) == 1


def test_a_model_that_only_calls_tools_to_the_end_fails_the_run() -> None:
    guard = {"consecutiveThreshold": 2, "hardCutoffThreshold": 3}
    with LocalServer(ScriptedModel([[ToolUse("t")]] * 4)) as server:
        run_id = start(server, tools=[local_tool("t")], loopDetection=guard)
        done = answer_calls(server, run_id, {"t": ""})[-1]
        snapshot = request(server, "GET", f"/agent-runs/{run_id}").json
    assert (done["type"], done["data"]["subtype"], done["data"]["ok"]) == ("result", "error_loop_detected", False)
    assert (snapshot["status"], snapshot["error"]) == ("failed", done["data"]["error"])


def test_a_steering_message_is_not_taken_for_the_users() -> None:
    model = Recorder([[ToolUse("t")]] * 3 + ["Done."])
    play(model, prompt="Look it up.")
    assert model.requests[-1].messages[-1]["steering"] is True
    assert model.requests[-1].prompt == "Look it up."


# --------------------------------------------------------------- budgets, over HTTP


def test_a_call_past_its_budget_never_reaches_the_client() -> None:
    turns = [[ToolUse("recall", {"q": n})] for n in range(6)] + ["Done."]
    model = Recorder(turns)
    events = play(model, "recall")
    assert [call["args"]["q"] for call in of_type(events, "local_tool_call")] == [0, 1, 2, 3]
    assert of_type(events, "tool_budget_exceeded") == [
        {"tool": "recall", "maxCalls": 4, "callIndex": 5},
        {"tool": "recall", "maxCalls": 4, "callIndex": 6},
    ]
    place = types(events).index("tool_budget_exceeded")
    before = events[place - 1]
    assert (before["type"], before["data"]["ok"]) == ("tool_result", False)
    assert "Pivot" in before["data"]["result"]
    assert "finalize" in before["data"]["result"]
    assert model.requests[5].messages[-1]["content"] == before["data"]["result"]
    assert events[-1]["data"]["text"] == "Done."


@pytest.mark.parametrize(
    ("budgets", "calls", "exceeded"),
    [
        ({}, 6, 0),
        ({"recall": {"maxCalls": 5}}, 5, 1),
        ({"recall": {"maxCalls": 0}}, 0, 6),
        ({"other": {"maxCalls": 1}}, 4, 2),
    ],
)
def test_the_spec_sets_the_budgets(budgets: dict[str, Any], calls: int, exceeded: int) -> None:
    events = play(
        ScriptedModel([[ToolUse("recall", {"q": n})] for n in range(6)] + ["Done."]), "recall", toolBudgets=budgets
    )
    assert len(of_type(events, "local_tool_call")) == calls
    assert len(of_type(events, "tool_budget_exceeded")) == exceeded


def test_a_budget_counts_within_a_batch_and_each_tool_for_itself() -> None:
    batch = [ToolUse("a", {"n": n}) for n in range(2)] + [ToolUse("b", {"n": n}) for n in range(2)]
    caps = {"a": {"maxCalls": 1}, "b": {"maxCalls": 1}}
    events = play(ScriptedModel([batch, "Done."]), "a b", toolBudgets=caps)
    assert [(call["name"], call["args"]["n"]) for call in of_type(events, "local_tool_call")] == [("a", 0), ("b", 0)]
    assert [(e["tool"], e["callIndex"]) for e in of_type(events, "tool_budget_exceeded")] == [("a", 2), ("b", 2)]


def test_a_new_run_has_its_budgets_whole() -> None:
    script = ScriptedModel([[ToolUse("t")], "Done."])
    with LocalServer(script) as server:
        for _ in range(2):
            run_id = start(server, tools=[local_tool("t")], toolBudgets={"t": {"maxCalls": 1}})
            events = answer_calls(server, run_id, {"t": ""})
            assert of_type(events, "tool_budget_exceeded") == []
