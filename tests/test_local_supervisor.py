"""The run supervisor of the embedded server: when it looks, what the judge sees, what its verdict does."""

from __future__ import annotations

import threading
from typing import Any, Callable, Optional

import pytest

from mantyx_sync.local import (
    LocalServer,
    Pause,
    Review,
    ScriptedModel,
    Thinking,
    ToolUse,
    TurnEnd,
    Usage,
    Verdict,
    rule_judge,
)
from mantyx_sync.local.engine import EngineSettings, run_agent_loop
from mantyx_sync.local.store import Run
from mantyx_sync.local.supervisor import Cadence, ReasoningSpan, SupervisorSettings, read_verdict
from tests.plain_http import Recorder, answer_calls, local_tool, of_type, start, types

pytestmark = pytest.mark.usefixtures("no_leaks")


# ------------------------------------------------------------------------- pure parts


@pytest.mark.parametrize(
    ("spec", "settings"),
    [
        (None, None),
        (False, None),
        (True, SupervisorSettings(5, None, 3000, 30_000)),
        ({}, SupervisorSettings(5, None, 3000, 30_000)),
        ({"interval": 10}, SupervisorSettings(10, None, 3000, 30_000)),
        ({"modelId": "platform:demo"}, SupervisorSettings(5, "platform:demo", 3000, 30_000)),
        ({"reasoningTrigger": {"chars": 5000, "ms": 60_000}}, SupervisorSettings(5, None, 5000, 60_000)),
        ({"reasoningTrigger": {"chars": 9}}, SupervisorSettings(5, None, 9, 30_000)),
        ({"reasoningTrigger": {"ms": 9}}, SupervisorSettings(5, None, 3000, 9)),
        ({"reasoningTrigger": False}, SupervisorSettings(5, None, None, None)),
        ({"interval": 2, "reasoningTrigger": None}, SupervisorSettings(2, None, 3000, 30_000)),
    ],
)
def test_every_form_of_supervisor_is_understood(spec: Any, settings: Optional[SupervisorSettings]) -> None:
    assert SupervisorSettings.from_spec(spec) == settings


@pytest.mark.parametrize(
    ("interval", "calls", "due"),
    [
        (5, [1, 2, 3, 4, 5, 6, 9, 10], [5, 10]),
        (1, [1, 2, 3], [1, 2, 3]),
        (2, [1, 3, 4, 5, 7], [3, 5, 7]),  # calls between were turns without a tool round
        (100, [1, 99], []),
    ],
)
def test_a_review_is_due_every_interval(interval: int, calls: list[int], due: list[int]) -> None:
    cadence = Cadence(interval)
    assert [number for number in calls if cadence.due(number)] == due


@pytest.mark.parametrize(
    ("chars", "ms", "pieces", "fires"),
    [
        (10, None, [(6, 0.0), (3, 0.1), (1, 0.2), (9, 0.3), (1, 0.4)], [2, 4]),
        (None, 1000, [(1, 0.0), (1, 0.9), (1, 1.0), (1, 1.5), (1, 2.1)], [2, 4]),
        (10, 1000, [(1, 0.0), (9, 0.1), (1, 1.2)], [1, 2]),
        (10, 1000, [(50, 0.0)], [0]),
        (None, None, [(5000, 0.0), (5000, 99.0)], []),
    ],
)
def test_a_span_of_reasoning_is_reviewed_when_it_has_become_too_long(
    chars: Optional[int], ms: Optional[int], pieces: list[tuple[int, float]], fires: list[int]
) -> None:
    span = ReasoningSpan(chars, ms)
    assert [n for n, (length, now) in enumerate(pieces) if span.feed("x" * length, now)] == fires
    assert span.text == "x" * sum(length for length, _ in pieces)


def test_a_span_ends_when_the_model_says_something() -> None:
    span = ReasoningSpan(10, 1000)
    assert not span.feed("x" * 9, 0.0)
    span.end()
    assert not span.feed("x" * 9, 5.0)
    assert span.feed("x", 5.1)


@pytest.mark.parametrize(
    ("returned", "action", "steering"),
    [
        (None, "on_track", None),
        ("on_track", "on_track", None),
        ("finalize", "finalize", None),
        ("redirect", "redirect", "The judge gave no reason."),
        (Verdict("redirect", "why", "Do this."), "redirect", "Do this."),
        (Verdict("redirect", "why"), "redirect", "why"),
        (Verdict("finalize", "why", "Wrap up."), "finalize", "Wrap up."),
        (Verdict("on_track", "why", "ignored"), "on_track", None),
    ],
)
def test_a_judge_may_say_it_in_several_ways(returned: object, action: str, steering: Optional[str]) -> None:
    verdict = read_verdict(returned)
    assert (verdict.action, verdict.steering) == (action, steering)


@pytest.mark.parametrize("returned", [7, {"action": "redirect"}, "stop"])
def test_what_is_no_verdict_is_refused(returned: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        read_verdict(returned)


# ---------------------------------------------------------------------- default judge


def call_round(*calls: tuple[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": "", "toolCalls": [{"name": n, "input": a} for n, a in calls]}


def tool_result(error: bool) -> dict[str, Any]:
    return {"role": "tool", "content": "", "isError": error}


@pytest.mark.parametrize(
    ("messages", "reasoning", "interventions", "action"),
    [
        ([], "", 0, "on_track"),
        ([call_round(("a", {})), call_round(("a", {"x": 1}))], "", 0, "on_track"),
        ([call_round(("a", {}), ("b", {})), call_round(("b", {}), ("a", {}))], "", 0, "redirect"),
        ([call_round(("a", {}))] * 2, "", 1, "finalize"),
        ([tool_result(True)] * 3, "", 0, "redirect"),
        ([tool_result(True), tool_result(False), tool_result(True)], "", 0, "on_track"),
        ([], "I should check the case again. " * 3, 0, "redirect"),
        ([], "I should check one. I should check two. I should check three.", 0, "on_track"),
        ([], "I should check the case again. " * 3, 1, "finalize"),
    ],
)
def test_the_default_judge_notices_repetition_and_errors(
    messages: list[dict[str, Any]], reasoning: str, interventions: int, action: str
) -> None:
    phase = "reasoning" if reasoning else "turn_boundary"
    review = Review("run_1", phase, 5, messages, reasoning, interventions=interventions)
    assert rule_judge(review).action == action


# ------------------------------------------------------------------ cadence, over HTTP


class Judge:
    """Keeps what it was shown and answers in order, on_track at the end."""

    def __init__(self, *verdicts: Any) -> None:
        self.verdicts = list(verdicts)
        self.reviews: list[Review] = []

    def __call__(self, review: Review) -> Any:
        self.reviews.append(review)
        return self.verdicts.pop(0) if self.verdicts else None


def play(model: Any, judge: Optional[Callable[[Review], Any]], **spec: Any) -> list[dict[str, Any]]:
    with LocalServer(model, judge=judge) as server:
        run_id = start(server, tools=[local_tool("t")], **spec)
        return answer_calls(server, run_id, {"t": "fine"})


def rounds(number: int) -> list[Any]:
    return [[ToolUse("t", {"n": n})] for n in range(number)]


def test_the_supervisor_is_opt_in() -> None:
    for spec in ({}, {"supervisor": False}):
        judge = Judge("finalize")
        events = play(ScriptedModel([*rounds(6), "Done."]), judge, **spec)
        assert (judge.reviews, of_type(events, "supervisor")) == ([], [])


@pytest.mark.parametrize("supervisor", [True, {}])
def test_it_reviews_every_five_calls_and_says_so_each_time(supervisor: Any) -> None:
    judge = Judge(Verdict("on_track", "Fine."))
    events = play(ScriptedModel([*rounds(10), "Done."]), judge, supervisor=supervisor)
    reviews = of_type(events, "supervisor")
    assert [(e["action"], e["phase"], e["llmCalls"]) for e in reviews] == [
        ("on_track", "turn_boundary", 5),
        ("on_track", "turn_boundary", 10),
    ]
    assert reviews[0]["reason"] == "Fine."
    assert reviews[0]["model"] == {"id": "local:judge", "provider": "local", "vendorModelId": "judge"}
    assert "redirect" not in reviews[0]
    first = judge.reviews[0]
    assert [m["role"] for m in first.messages] == ["system", "user", *["assistant", "tool"] * 5]
    assert events[-1]["data"]["text"] == "Done."


def test_a_run_without_tool_rounds_is_not_reviewed() -> None:
    judge = Judge("finalize")
    assert of_type(play(ScriptedModel(["Done."]), judge, supervisor={"interval": 1}), "supervisor") == []


def test_a_redirect_steers_and_leaves_the_tools() -> None:
    model = Recorder([*rounds(2), "Done."])
    judge = Judge(Verdict("redirect", "Stuck.", "Answer from what you have."))
    events = play(model, judge, supervisor={"interval": 1, "modelId": "platform:demo"})
    first, second = of_type(events, "supervisor")
    assert (first["action"], first["redirect"], first["llmCalls"]) == ("redirect", "Answer from what you have.", 1)
    assert first["model"] == {"id": "platform:demo", "provider": "platform", "vendorModelId": "demo"}
    assert second["action"] == "on_track"
    told = model.requests[1].messages[-1]
    assert (told["role"], told["content"], told["steering"]) == ("user", "Answer from what you have.", True)
    assert len(model.requests[1].tools) == 1
    assert judge.reviews[1].interventions == 1


@pytest.mark.parametrize("preface", [None, "Enough evidence."])
def test_finalize_switches_the_tools_off_for_a_last_turn(preface: Optional[str]) -> None:
    model = Recorder([*rounds(1), "Done."])
    events = play(model, Judge(Verdict("finalize", "Enough.", preface)), supervisor={"interval": 1})
    assert [len(asked.tools) for asked in model.requests] == [1, 0]
    assert [e["action"] for e in of_type(events, "supervisor")] == ["finalize"]
    assert "redirect" not in of_type(events, "supervisor")[0]
    last = model.requests[1].messages[-1]
    assert (last["role"], last["content"]) == (("tool", "fine") if preface is None else ("user", preface))
    assert events[-1]["data"]["text"] == "Done."


def test_a_judge_that_raises_or_talks_nonsense_leaves_the_run_on_track(caplog: pytest.LogCaptureFixture) -> None:
    def broken(review: Review) -> Any:
        raise KeyError("oops")

    for judge in (broken, lambda review: 7):
        events = play(ScriptedModel([*rounds(1), "Done."]), judge, supervisor={"interval": 1})
        (review,) = of_type(events, "supervisor")
        assert review["action"] == "on_track"
        assert "could not review" in review["reason"]
        assert events[-1]["data"]["text"] == "Done."
    assert any("the judge raised" in record.getMessage() for record in caplog.records)


def test_the_default_judge_steps_in_by_itself() -> None:
    model = Recorder([[ToolUse("t")], [ToolUse("t")], "Done."])
    events = play(model, None, supervisor={"interval": 2}, loopDetection=False)
    assert [e["action"] for e in of_type(events, "supervisor")] == ["redirect"]
    assert model.requests[2].messages[-1]["content"].startswith("Stop repeating")


def test_a_review_moves_the_plan() -> None:
    judge = Judge(Verdict("on_track", "Half done.", steps={"step_1": "done", "step_2": "done"}))
    plan = {"steps": ["One", "Two", "Three"]}
    events = play(ScriptedModel([[ToolUse("nope")], "Done."]), judge, supervisor={"interval": 1}, plan=plan)
    assert judge.reviews[0].plan is not None
    assert judge.reviews[0].plan["steps"][0]["status"] == "in_progress"
    place = types(events).index("supervisor")
    after = events[place + 1]
    assert after["type"] == "task_plan"
    assert [step["status"] for step in after["data"]["steps"]] == ["done", "done", "in_progress"]


# ---------------------------------------------------------------- reasoning, over HTTP


def thinking(*verdicts: Any, trigger: Any, turns: list[Any], **spec: Any) -> tuple[Judge, Recorder, list[Any]]:
    judge, model = Judge(*verdicts), Recorder(turns)
    supervisor = {"reasoningTrigger": trigger}
    events = play(model, judge, supervisor=supervisor, reasoningLevel="high", **spec)
    return judge, model, events


def test_long_reasoning_is_reviewed_while_it_goes_on() -> None:
    turn = [Thinking("x" * 6), Thinking("y" * 6), Thinking("z" * 6), "Done."]
    judge, _, events = thinking("on_track", trigger={"chars": 10}, turns=[turn])
    assert types(events)[:4] == ["thinking_delta", "thinking_delta", "supervisor", "thinking_delta"]
    (review,) = of_type(events, "supervisor")
    assert (review["phase"], review["llmCalls"], review["action"]) == ("reasoning", 0, "on_track")
    assert judge.reviews[0].reasoning == "x" * 6 + "y" * 6
    assert events[-1]["data"]["turns"] == 1


def test_a_redirect_breaks_the_turn_off_and_steers_the_next() -> None:
    aborted = [Thinking("round and round"), "never said", ToolUse("t")]
    _, model, events = thinking(
        Verdict("redirect", "Overthinking.", "Just answer."), trigger={"chars": 10}, turns=[aborted, "Done."]
    )
    assert types(events) == ["thinking_delta", "supervisor", "assistant_delta", "assistant_message", "result"]
    told = model.requests[1]
    assert (told.messages[-1]["content"], len(told.tools)) == ("Just answer.", 1)
    assert [m["role"] for m in told.messages] == ["system", "user", "user"]
    done = events[-1]["data"]
    assert (done["text"], done["turns"]) == ("Done.", 2)
    assert done["tokens"]["reasoningTokens"] == 4  # what the aborted turn thought is paid for


def test_finalize_breaks_the_turn_off_and_the_next_has_no_tools() -> None:
    turns = [[Thinking("round and round")], "Done."]
    _, model, events = thinking("finalize", trigger={"chars": 10}, turns=turns)
    assert [len(asked.tools) for asked in model.requests] == [1, 0]
    assert events[-1]["data"]["text"] == "Done."


def test_the_last_turn_is_not_broken_off_again() -> None:
    turns = [[Thinking("round and round")], [Thinking("round and round"), "Done."]]
    judge, _, events = thinking("finalize", "redirect", trigger={"chars": 10}, turns=turns)
    assert (len(judge.reviews), events[-1]["data"]["text"]) == (1, "Done.")


def test_reasoning_is_reviewed_by_time_as_well() -> None:
    now = [0.0]

    def later(_: Any) -> Thinking:
        now[0] += 31.0
        return Thinking("hm")

    run = Run("run_1", {"prompt": "Hello", "supervisor": True}, model={"id": "local:scripted"})
    model = ScriptedModel([[Thinking("so"), later, "Done."]])
    run_agent_loop(run, model, EngineSettings(judge=Judge(), clock=lambda: now[0]))
    events = run.events
    assert [e["phase"] for e in of_type(events, "supervisor")] == ["reasoning"]
    assert types(events)[0] == "supervisor"  # without a reasoning level the thoughts are not shown


@pytest.mark.parametrize("trigger", [False, {"chars": 5000}])
def test_short_or_unwatched_reasoning_is_left_alone(trigger: Any) -> None:
    turn = [Thinking("x" * 4000), "Done."]
    judge, _, events = thinking("finalize", trigger=trigger, turns=[turn])
    assert (judge.reviews, of_type(events, "supervisor")) == ([], [])


def test_a_turn_that_is_broken_off_lets_go_of_what_the_model_holds() -> None:
    closed = threading.Event()

    def think() -> Any:
        try:
            yield Thinking("round and round")
            yield Thinking("never")
        finally:
            closed.set()

    kept = think()  # still referenced when the turn is over: only closing it ends it

    class Holding:
        model_id = "local:holding"

        def complete(self, request: Any) -> Any:
            return kept if request.turn == 0 else ["Done."]

    events = play(Holding(), Judge("redirect"), supervisor={"reasoningTrigger": {"chars": 5}})
    assert closed.is_set()
    assert events[-1]["data"]["text"] == "Done."


def test_what_the_model_says_between_two_thoughts_ends_the_span() -> None:
    turn = [Thinking("x" * 6), "So: ", Thinking("y" * 6), "Done."]
    judge, _, events = thinking("finalize", trigger={"chars": 10}, turns=[turn])
    assert (judge.reviews, events[-1]["data"]["text"]) == ([], "So: Done.")


def test_a_run_that_was_cancelled_meanwhile_is_not_reviewed_further() -> None:
    reached, gate = threading.Event(), threading.Event()
    script = ScriptedModel([["one", Pause(gate, reached), ToolUse("t"), TurnEnd("tool_use", Usage(1, 1))]])
    judge = Judge()
    with LocalServer(script, judge=judge) as server:
        run_id = start(server, tools=[local_tool("t")], supervisor={"interval": 1})
        assert reached.wait(10)
        server.run(run_id).cancel()
        assert server.run(run_id).wait(10)
        assert server.run(run_id).status == "cancelled"
    assert judge.reviews == []
