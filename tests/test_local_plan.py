"""Task plans of the embedded server: what a spec means, the default planner, the checklist, and runs over HTTP."""

from __future__ import annotations

from typing import Any, Optional

import pytest

from mantyx_sync.local import LocalServer, PlanDraft, PlanRequest, ScriptedModel, ToolUse, split_prompt
from mantyx_sync.local.plan import MAX_STEP_CHARS, MAX_STEPS, PlanWish, TaskPlan, clamp_draft, draft_of
from tests.plain_http import (
    Recorder,
    answer_calls,
    local_tool,
    of_type,
    request,
    run_to_end,
    start,
    stream,
    types,
)

pytestmark = pytest.mark.usefixtures("no_leaks")

STEPS = ["Pull the numbers", "Compare them", "Write it up"]


# ------------------------------------------------------------------ what a spec means


@pytest.mark.parametrize(
    ("plan", "wish"),
    [
        (None, None),
        (False, None),
        ("off", None),
        ({"mode": "off"}, None),
        ({"mode": "off", "steps": ["a"]}, None),
        (True, PlanWish("auto")),
        ({}, PlanWish("auto")),
        ("auto", PlanWish("auto")),
        ("required", PlanWish("required")),
        ({"mode": "required"}, PlanWish("required")),
        ({"steps": ["a", " ", "b"], "brief": "x"}, PlanWish("required", False, "x", ("a", "b"))),
        ({"steps": []}, PlanWish("auto")),
        ({"planOnly": True}, PlanWish("auto", True)),
        ({"planOnly": True, "steps": ["a"]}, PlanWish("required", True, None, ("a",))),
        ({"planOnly": True, "mode": "off"}, PlanWish("auto", True)),
    ],
)
def test_every_form_of_plan_is_understood(plan: Any, wish: Optional[PlanWish]) -> None:
    assert PlanWish.from_spec(plan) == wish


@pytest.mark.parametrize(
    ("prompt", "steps"),
    [
        ("Where is order 17?", None),
        ("Hello", None),
        ("Find the order.", None),
        (
            "Do this:\n1. pull the revenue\n2) compute deltas\n3. summarize",
            ["Pull the revenue", "Compute deltas", "Summarize"],
        ),
        ("- snapshot the schema\n- apply the migration", ["Snapshot the schema", "Apply the migration"]),
        (
            "Compare the quarters, then summarize the drivers.",
            ["Compare the quarters", "Summarize the drivers"],
        ),
        ("Pull the data. Then clean it up. Finally, plot it here.", ["Pull the data", "Clean it up", "Plot it here"]),
        ("Read the log; find the error", ["Read the log", "Find the error"]),
        ("How are you? What is new?", None),
        ("", None),
    ],
)
def test_the_default_planner_splits_what_the_prompt_lists(prompt: str, steps: Optional[list[str]]) -> None:
    draft = split_prompt(PlanRequest(prompt))
    assert (None if draft is None else list(draft.steps)) == steps


@pytest.mark.parametrize(
    ("wish", "planned", "steps"),
    [
        (PlanWish("auto"), ["a", "b"], ["a", "b"]),
        (PlanWish("auto"), ["a"], None),
        (PlanWish("auto"), None, None),
        (PlanWish("required"), ["a"], ["a"]),
        (PlanWish("required"), None, ["Do it"]),
        (PlanWish("required"), [], ["Do it"]),
        (PlanWish("required", steps=("x",)), ["a", "b"], ["x"]),
    ],
)
def test_auto_wants_two_steps_and_required_always_has_one(
    wish: PlanWish, planned: Optional[list[str]], steps: Optional[list[str]]
) -> None:
    draft = draft_of(wish, PlanRequest("Do it"), lambda _: planned)
    assert (None if draft is None else list(draft.steps)) == steps


def test_a_draft_is_cut_to_size() -> None:
    draft = clamp_draft(PlanDraft(["x" * 999, "  ", "two\nlines"] + ["y"] * 99, "b" * 999))
    assert (len(draft.steps), len(draft.steps[0])) == (MAX_STEPS, MAX_STEP_CHARS)
    assert draft.steps[1] == "two lines"
    assert draft.brief is not None
    assert len(draft.brief) < 999


# ---------------------------------------------------------------------- the checklist


def plan_of(*titles: str) -> TaskPlan:
    return TaskPlan("plan_1", PlanDraft(titles, "All of it"), mode="auto", source="classifier")


def test_a_plan_begins_with_its_first_step_in_progress_unless_nothing_runs() -> None:
    assert [e["transition"] for e in plan_of(*STEPS).begin()] == [{"kind": "created"}]
    started, shown = plan_of(*STEPS), plan_of(*STEPS)
    started.begin()
    shown.begin(execute=False)
    assert (started.statuses[0], shown.statuses[0]) == ("in_progress", "pending")


def test_rounds_of_tools_move_the_list_on_and_the_last_step_waits_for_the_answer() -> None:
    plan = plan_of(*STEPS)
    plan.begin()
    seen = []
    for _ in range(4):
        plan.tools_done()
        seen.append(plan.statuses[:])
    assert seen[0] == ["done", "in_progress", "pending"]
    assert seen[1:] == [["done", "done", "in_progress"]] * 3
    assert plan.revision == 3
    plan.finish()
    assert plan.statuses == ["done"] * 3
    assert plan.finish() == []


def test_one_change_is_one_revision_told_in_one_event_per_step() -> None:
    plan = plan_of(*STEPS)
    plan.begin()
    first, second = plan.tools_done()
    assert first["transition"] == {"kind": "step_done", "stepId": "step_1"}
    assert second["transition"] == {"kind": "step_started", "stepId": "step_2"}
    assert [(e["revision"], e["transitionIndex"], e["transitionCount"]) for e in (first, second)] == [
        (2, 0, 2),
        (2, 1, 2),
    ]
    assert first["steps"] == first["plan"]["steps"] == second["steps"]
    assert first["plan"] == {
        "v": 2,
        "planId": "plan_1",
        "revision": 2,
        "mode": "auto",
        "source": "classifier",
        "brief": "All of it",
        "steps": [
            {"id": "step_1", "title": STEPS[0], "status": "done"},
            {"id": "step_2", "title": STEPS[1], "status": "in_progress"},
            {"id": "step_3", "title": STEPS[2], "status": "pending"},
        ],
    }


@pytest.mark.parametrize(
    ("action", "steps", "after"),
    [
        ("on_track", {}, ["in_progress", "pending", "pending"]),
        ("redirect", {}, ["in_progress", "pending", "pending"]),
        ("finalize", {}, ["in_progress", "skipped", "skipped"]),
        ("on_track", {"step_1": "done"}, ["done", "in_progress", "pending"]),
        ("on_track", {"step_1": "blocked", "step_2": "done"}, ["blocked", "done", "in_progress"]),
        ("finalize", {"step_1": "done", "step_2": "done"}, ["done", "done", "skipped"]),
        ("on_track", {"step_9": "done", "step_1": "no such status"}, ["in_progress", "pending", "pending"]),
    ],
)
def test_a_review_may_move_the_list(action: str, steps: dict[str, str], after: list[str]) -> None:
    plan = plan_of(*STEPS)
    plan.begin()
    plan.reviewed(action, steps)
    assert plan.statuses == after


def test_the_end_does_not_touch_what_is_blocked_or_skipped() -> None:
    plan = plan_of(*STEPS)
    plan.begin()
    plan.reviewed("finalize", {"step_1": "blocked"})
    plan.finish()
    assert plan.statuses == ["blocked", "skipped", "skipped"]


# -------------------------------------------------------------------------- over HTTP


def statuses(event: dict[str, Any]) -> list[str]:
    return [step["status"] for step in event["steps"]]


def test_a_callers_plan_is_told_tracked_and_finished() -> None:
    model = Recorder([[ToolUse("t", {"n": 1})], [ToolUse("t", {"n": 2})], "Done."])
    with LocalServer(model) as server:
        plan = {"brief": "Compare", "steps": STEPS}
        run_id = start(server, prompt="Please compare.", tools=[local_tool("t")], plan=plan)
        events = answer_calls(server, run_id, {"t": "fine"})
    plans = of_type(events, "task_plan")
    assert types(events)[0] == "task_plan"
    assert statuses(plans[0]) == ["in_progress", "pending", "pending"]
    assert (plans[0]["brief"], plans[0]["mode"], plans[0]["source"]) == ("Compare", "required", "caller")
    assert [(statuses(e), e["revision"]) for e in plans[2::2]] == [
        (["done", "in_progress", "pending"], 2),
        (["done", "done", "in_progress"], 3),
    ]
    assert statuses(plans[-1]) == ["done", "done", "done"]
    assert len({e["planId"] for e in plans}) == 1
    assert "plan" not in events[-1]["data"]  # an executed run's result is text alone
    asked = model.requests[0]
    assert asked.messages[-1]["content"].endswith("Compare\n\n1. Pull the numbers\n2. Compare them\n3. Write it up")
    assert asked.prompt == "Please compare."


def test_failed_tools_do_not_move_the_plan() -> None:
    script = ScriptedModel([[ToolUse("nope")], "Done."])
    with LocalServer(script) as server:
        events = run_to_end(server, plan={"steps": STEPS})
    assert [statuses(e) for e in of_type(events, "task_plan")][:2] == [
        ["in_progress", "pending", "pending"],
        ["done", "done", "done"],
    ]


def test_a_failed_run_leaves_its_plan_as_it_was() -> None:
    with LocalServer(ScriptedModel([])) as server:
        events = run_to_end(server, plan={"steps": STEPS})
    assert [statuses(e) for e in of_type(events, "task_plan")] == [["in_progress", "pending", "pending"]]
    assert events[-1]["type"] == "error"


@pytest.mark.parametrize("plan", [None, False, "off", {"mode": "off"}])
def test_no_plan_is_the_default(plan: Any) -> None:
    with LocalServer(ScriptedModel(["Done."])) as server:
        spec = {} if plan is None else {"plan": plan}
        assert of_type(run_to_end(server, prompt="Do one thing, then do another.", **spec), "task_plan") == []


@pytest.mark.parametrize("plan", [True, {}, "auto", {"mode": "auto"}])
def test_auto_plans_what_has_several_steps_and_nothing_else(plan: Any) -> None:
    with LocalServer(ScriptedModel(["Done."])) as server:
        events = run_to_end(server, prompt="Read the log, then find the error.", plan=plan)
        made = of_type(events, "task_plan")[0]
        assert [step["title"] for step in made["steps"]] == ["Read the log", "Find the error"]
        assert (made["mode"], made["source"]) == ("auto", "classifier")
        events = run_to_end(server, prompt="Where is order 17?", plan=plan)
    assert types(events) == ["assistant_delta", "assistant_message", "result"]


def test_required_always_plans() -> None:
    with LocalServer(ScriptedModel(["Done."])) as server:
        made = of_type(run_to_end(server, prompt="Where is order 17?", plan="required"), "task_plan")[0]
    assert ([step["title"] for step in made["steps"]], made["mode"]) == (["Where is order 17?"], "required")


def test_a_planner_of_ones_own_sees_the_request() -> None:
    asked: list[PlanRequest] = []

    def planner(request: PlanRequest) -> list[str]:
        asked.append(request)
        return ["One", "Two"]

    with LocalServer(ScriptedModel(["Done."]), planner=planner) as server:
        events = run_to_end(server, prompt="Go.", tools=[local_tool("t")], plan=True)
        run_to_end(server, plan={"steps": STEPS})
    assert [step["title"] for step in of_type(events, "task_plan")[0]["steps"]] == ["One", "Two"]
    assert len(asked) == 1  # a caller's steps are not the planner's business
    assert (asked[0].prompt, list(asked[0].tools), asked[0].mode) == ("Go.", ["t"], "auto")


def test_a_planner_that_raises_leaves_the_run_without_a_plan(caplog: pytest.LogCaptureFixture) -> None:
    def planner(request: PlanRequest) -> list[str]:
        raise KeyError("oops")

    with LocalServer(ScriptedModel(["Done."]), planner=planner) as server:
        events = run_to_end(server, plan=True)
    assert (of_type(events, "task_plan"), events[-1]["data"]["text"]) == ([], "Done.")
    assert any("the planner raised" in record.getMessage() for record in caplog.records)


# -------------------------------------------------------------------------- plan-only


def test_plan_only_ends_with_the_plan_and_asks_no_model() -> None:
    model = Recorder(["never"])
    with LocalServer(model) as server:
        run_id = start(server, plan={"planOnly": True, "brief": "Migrate", "steps": STEPS})
        events = stream(server, run_id)
        snapshot = request(server, "GET", f"/agent-runs/{run_id}").json
    assert types(events) == ["task_plan", "result"]
    done = events[-1]["data"]
    assert (done["subtype"], done["ok"], done["turns"]) == ("success", True, 0)
    assert (snapshot["status"], snapshot["plan"]) == ("succeeded", done["plan"])
    assert done["text"] == "Migrate\n\n1. Pull the numbers\n2. Compare them\n3. Write it up"
    assert done["tokens"] == {"inputTokens": 0, "cachedTokens": 0, "reasoningTokens": 0, "outputTokens": 0}
    assert done["model"]["id"] == "local:recorder"
    assert done["plan"] == events[0]["data"]["plan"]
    assert statuses(done["plan"]) == ["pending", "pending", "pending"]
    assert model.requests == []


def test_plan_only_says_when_no_plan_is_warranted() -> None:
    with LocalServer(ScriptedModel(["never"])) as server:
        events = run_to_end(server, prompt="Where is order 17?", plan={"planOnly": True})
    assert types(events) == ["result"]
    assert events[0]["data"]["plan"] == {"steps": []}
    assert "No multi-step plan" in events[0]["data"]["text"]
