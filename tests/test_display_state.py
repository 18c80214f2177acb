"""What there is to see of a run, folded from its events: pure, so tables of events and what is seen of them."""

from __future__ import annotations

import tracemalloc
from typing import Any, Iterable

import pytest

from mantyx_sync.display.growing import Text
from mantyx_sync.display.notices import Notice
from mantyx_sync.display.state import RunState
from mantyx_sync.errors import MantyxNetworkError, MantyxTimeoutError
from mantyx_sync.events import NO_SEQ, RunEvent, decode

SECOND = 1.0


def event(seq: int, type: str, **data: Any) -> RunEvent:
    return decode({"seq": seq, "type": type, "data": data})


def fold(*events: tuple[Any, ...], numbered: bool = True) -> RunState:
    """Apply events `(type, data)`, one each second from 1 on; `numbered` off leaves out their numbers."""
    state = RunState(0.0)
    for place, (type_, data) in enumerate(events, 1):
        state.apply(event(place if numbered else NO_SEQ, type_, **data), place * SECOND)
    return state


def said(text: str) -> tuple[str, dict[str, Any]]:
    return "assistant_delta", {"text": text}


def thought(text: str) -> tuple[str, dict[str, Any]]:
    return "thinking_delta", {"text": text}


def turn(number: int | None, text: str) -> tuple[str, dict[str, Any]]:
    return "assistant_message", {"turn": number, "text": text} if number is not None else {"text": text}


def called(tool_use_id: str, name: str = "look_up", **args: Any) -> tuple[str, dict[str, Any]]:
    return "local_tool_call", {"toolUseId": tool_use_id, "name": name, "args": args}


def answered(tool_use_id: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return "local_tool_result_in", {"toolUseId": tool_use_id, **more}


def ended(text: str = "Done.", **more: Any) -> tuple[str, dict[str, Any]]:
    return "result", {"subtype": "success", "text": text, **more}


def texts(state: RunState) -> list[str]:
    return [turn.text for turn in state.turns]


# ------------------------------------------------------------- text and turns


def test_text_grows_with_its_deltas_and_thinking_beside_it() -> None:
    state = fold(thought("Hm. "), thought("Yes."), said("Hello, "), said("world"))
    assert (state.text, state.thinking) == ("Hello, world", "Hm. Yes.")
    assert state.turns[0].thought_for(99) == 1.0
    assert not state.turns[0].is_thinking
    assert fold(thought("Hm. ")).turns[0].is_thinking


def test_time_spent_thinking_runs_until_the_first_word() -> None:
    state = fold(thought("Hm. "))
    assert state.turns[0].thought_for(3.5) == 2.5
    state.apply(event(2, "assistant_delta", text="a"), 4)
    assert state.turns[0].thought_for(9) == 0.0, "nobody knows how long after its last piece it went on"


def test_each_turn_has_its_text_and_the_newest_is_the_answer_so_far() -> None:
    state = fold(said("Let me see."), turn(0, "Let me see."), called("t1"), answered("t1"), said("It is "), said("17."))
    assert texts(state) == ["Let me see.", "It is 17."]
    assert state.text == "It is 17."
    assert [t.is_complete for t in state.turns] == [True, False]


def test_text_behind_a_tool_call_is_a_new_turn_also_where_nobody_says_so() -> None:
    state = fold(said("Let me see."), called("t1"), answered("t1"), said("It is 17."))
    assert texts(state) == ["Let me see.", "It is 17."]
    assert state.tools[0].turn == 0


def test_text_that_went_on_behind_a_call_of_the_same_turn_is_one_turn_once_that_is_known() -> None:
    state = fold(thought("a"), said("One "), called("t1"), thought("b"), said("two"), turn(0, "One two"))
    assert texts(state) == ["One two"]
    assert state.turns[0].thinking == "ab"
    assert state.tools[0].turn == 0


def test_a_message_puts_right_what_the_deltas_missed() -> None:
    assert texts(fold(said("…lo"), turn(0, "Hello"))) == ["Hello"]
    assert texts(fold(turn(3, "Of a stream taken up in the middle"))) == ["Of a stream taken up in the middle"]


@pytest.mark.parametrize("numbered", [True, False])
def test_what_is_sent_again_shows_once(numbered: bool) -> None:
    events = [said("Hi"), turn(0, "Hi"), called("t1"), answered("t1"), turn(0, "Hi"), called("t1"), answered("t1")]
    state = fold(*events, numbered=numbered)
    assert (texts(state), len(state.tools)) == (["Hi"], 1)


def test_events_up_to_the_last_number_are_passed_by() -> None:
    state = RunState()
    for seq in (1, 2, 2, 1, 3, 3):
        state.apply(event(seq, "assistant_delta", text=str(seq)), float(seq))
    assert state.text == "123"
    assert state.started_at == 1.0


def test_a_run_without_deltas_shows_its_messages_and_its_end() -> None:
    assert fold(turn(0, "Let me see."), turn(1, "It is 17.")).text == "It is 17."
    state = fold(ended("All at once."))
    assert (state.text, texts(state)) == ("All at once.", [])
    assert fold(said("Streamed."), ("result", {"subtype": "success"})).text == "Streamed."


# ------------------------------------------------------------- tools


def test_a_tool_call_runs_until_its_answer_is_there() -> None:
    state = fold(called("t1", "get_order", id="17"))
    (call,) = state.running_tools
    assert (call.name, call.args, call.kind, call.state) == ("get_order", {"id": "17"}, "local", "running")
    assert call.duration(3.5) == 2.5
    state.apply(event(2, *answered("t1")[:1], **answered("t1")[1]), 4.0)
    assert (call.state, call.duration(99), state.running_tools) == ("done", 3.0, [])


def test_calls_side_by_side_end_each_by_itself_and_a_failure_says_why() -> None:
    state = fold(called("t1"), called("t2"), answered("t2", error="no such order"), answered("t1", output="x"))
    assert [(c.tool_use_id, c.state, c.detail) for c in state.tools] == [
        ("t1", "done", ""),
        ("t2", "failed", "no such order"),
    ]


def test_tools_of_the_platform_are_matched_by_id_or_else_by_name() -> None:
    state = fold(
        ("tool_call", {"name": "search", "input": {"q": 1}}),
        ("tool_call", {"name": "search", "input": {"q": 2}}),
        ("tool_call", {"toolUseId": "p3", "name": "mail"}),
        ("tool_result", {"name": "search", "ok": True, "summary": "3 hits"}),
        ("tool_result", {"toolUseId": "p3", "name": "mail", "ok": False, "summary": "refused"}),
    )
    assert [(c.kind, c.args, c.state, c.detail) for c in state.tools] == [
        ("platform", {"q": 1}, "done", "3 hits"),
        ("platform", {"q": 2}, "running", ""),
        ("platform", None, "failed", "refused"),
    ]


def test_an_answer_whose_call_was_not_seen_is_a_call_all_the_same() -> None:
    state = fold(answered("t9"), ("tool_result", {"name": "search"}))
    assert [(c.name, c.state, c.duration(9)) for c in state.tools] == [("tool", "done", 0.0), ("search", "done", 0.0)]


def test_a_model_that_speaks_again_had_its_answers_and_a_success_means_the_same() -> None:
    state = fold(turn(0, "Let me see."), called("t1"), said("It is"))
    assert [c.state for c in state.tools] == ["done"]
    assert [c.state for c in fold(called("t1"), ended()).tools] == ["done"]


@pytest.mark.parametrize("end", [("error", {"error": "broken"}), ("cancelled", {}), ended(subtype="error_max_turns")])
def test_calls_that_the_end_cuts_off_are_stopped_and_not_failed(end: tuple[str, dict[str, Any]]) -> None:
    state = fold(called("t1"), called("t2"), answered("t2"), end)
    assert [(c.state, c.ended, c.detail) for c in state.tools] == [
        ("stopped", 4.0, "the run ended first"),
        ("done", 3.0, ""),
    ]


def test_files_belong_to_the_call_that_made_them() -> None:
    state = fold(
        called("t1"),
        answered("t1", files=[{"filename": "chart.png"}, {}]),
        ("tool_call", {"name": "draw"}),
        ("tool_files", {"name": "draw", "files": [{"filename": "a.svg"}, {"sizeBytes": 3}]}),
        ("tool_files", {"name": "nobody", "files": [{"filename": "lost.svg"}]}),
    )
    assert [call.files for call in state.tools] == [("chart.png", "file"), ("a.svg", "file")]


# ------------------------------------------------------------- plan, notices


def plan(*statuses: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return "task_plan", {"steps": [{"title": f"s{i}", "status": s} for i, s in enumerate(statuses)], **more}


def statuses(state: RunState) -> list[str]:
    return [] if state.plan is None else [step.status for step in state.plan.steps]


@pytest.mark.parametrize(
    ("plans", "seen"),
    [
        ([plan("pending")], ["pending"]),
        ([plan("in_progress", "pending"), plan("done", "in_progress")], ["done", "in_progress"]),
        ([plan("done", planId="p", revision=2), plan("pending", planId="p", revision=1)], ["done"]),
        ([plan("done", planId="p", revision=2), plan("blocked", planId="p", revision=2)], ["blocked"]),
        ([plan("done", planId="p", revision=2), plan("pending", planId="q", revision=1)], ["pending"]),
        ([plan("done", planId="p", revision=2), plan("pending", revision=1)], ["pending"]),
        ([plan("done"), ("task_plan", {})], ["done"]),
        ([plan("done"), ended(plan={"steps": [{"title": "x", "status": "skipped"}]})], ["skipped"]),
    ],
)
def test_the_newest_plan_counts(plans: Iterable[tuple[str, dict[str, Any]]], seen: list[str]) -> None:
    assert statuses(fold(*plans)) == seen


@pytest.mark.parametrize(
    ("guard", "text", "is_warning"),
    [
        (
            ("loop_detected", {"consecutiveCount": 3, "tools": ["a", "b"]}),
            "The same tool calls were repeated 3 times (a, b): the model was told to try something else.",
            True,
        ),
        (
            ("loop_detected", {"hardCutoff": True}),
            "The same tool calls were repeated: the last turn is without tools.",
            True,
        ),
        (
            ("tool_budget_exceeded", {"tool": "mail", "maxCalls": 2, "callIndex": 3}),
            "Call 3 of mail was turned away, its budget is 2.",
            True,
        ),
        (("tool_budget_exceeded", {}), "A call of a tool was turned away.", True),
        (("supervisor", {"action": "on_track"}), "The supervisor finds the run on track.", False),
        (
            ("supervisor", {"action": "redirect", "reason": "off", "redirect": "Look at Q4."}),
            "The supervisor changed the run's course: Look at Q4.",
            True,
        ),
        (
            ("supervisor", {"action": "finalize", "reason": "enough"}),
            "The supervisor asked the run to finish: enough",
            True,
        ),
        (("supervisor", {"action": "pause"}), "The supervisor reviewed the run (pause).", True),
        (
            ("model_fallback", {"errorClass": "overloaded", "primaryModelId": "a", "fallbackModelId": "b"}),
            "a failed (overloaded): the run goes on with b.",
            True,
        ),
        (("model_fallback", {}), "The model failed: the run goes on with another model.", True),
    ],
)
def test_what_steps_in_is_told_in_a_sentence(guard: tuple[str, dict[str, Any]], text: str, is_warning: bool) -> None:
    assert fold(said("a"), turn(0, "a"), said("b"), guard).notices == [Notice(guard[0], text, 4.0, is_warning, 1)]


# ------------------------------------------------------------- the end


@pytest.mark.parametrize(
    ("end", "kind", "reason", "category"),
    [
        (ended(), "succeeded", "", None),
        (("result", {"text": "x", "ok": True}), "succeeded", "", None),
        (("result", {"subtype": "error_max_turns"}), "failed", "error_max_turns", "error_max_turns"),
        (("result", {"ok": False, "error": "it broke"}), "failed", "it broke", "error"),
        (("result", {"subtype": "success", "ok": False}), "failed", "error", "error"),
        (("result", {"subtype": "cancelled"}), "cancelled", "", None),
        (("error", {"error": "it broke", "errorClass": "overloaded"}), "failed", "it broke", "overloaded"),
        (("error", {}), "failed", "error", None),
        (("cancelled", {"reason": "asked for"}), "cancelled", "asked for", None),
        (("cancelled", {}), "cancelled", "", None),
    ],
)
def test_every_end_is_told_apart(end: tuple[str, Any], kind: str, reason: str, category: str | None) -> None:
    state = fold(said("Half"), end)
    assert state.outcome is not None
    assert state.is_over
    assert (state.outcome.kind, state.outcome.reason, state.outcome.category) == (kind, reason, category)
    assert state.elapsed(99) == 2.0
    state.apply(event(9, "assistant_delta", text="late"), 9)
    state.lose(ValueError("later still"), 10)
    assert (state.text, state.outcome.kind) == (end[1].get("text") or "Half", kind), "the first end is the end"


def test_the_end_tells_tokens_model_and_turns() -> None:
    state = fold(ended(tokens={"inputTokens": 3, "outputTokens": 2}, turns=4, model={"id": "m", "provider": "p"}))
    assert state.tokens is not None
    assert (state.tokens.input_tokens, state.turn_count, state.model and state.model.id) == (3, 4, "m")
    assert fold(("error", {"error": "x", "partialText": "Half an"})).text == "Half an"


@pytest.mark.parametrize(
    ("error", "kind", "reason"),
    [
        (KeyboardInterrupt(), "cancelled", "interrupted"),
        (MantyxTimeoutError("run r did not end in time"), "cancelled", "it did not end in time"),
        (MantyxNetworkError("no bytes for 60 s"), "lost", "no bytes for 60 s"),
        (ValueError(), "lost", "ValueError"),
    ],
)
def test_a_run_may_end_without_an_event(error: BaseException, kind: str, reason: str) -> None:
    state = fold(said("Half"), called("t1"))
    state.lose(error, 5.0)
    assert state.outcome is not None
    assert (state.outcome.kind, state.outcome.reason, state.tools[0].state) == (kind, reason, "stopped")


# ------------------------------------------------------------- odd events


def test_events_that_are_no_news_change_nothing() -> None:
    state = fold(said("a"), ("user_message", {"text": "hi"}), ("of_the_future", {"text": "x"}), said(""), thought(""))
    assert (state.text, state.notices, state.tools, len(state.turns)) == ("a", [], [], 1)


@pytest.mark.parametrize(
    "raw",
    [
        RunEvent(1, "assistant_delta", {"text": "undecoded"}),
        RunEvent(1, "assistant_message", {"text": "undecoded", "turn": 0}),
    ],
)
def test_events_of_a_history_need_not_be_decoded(raw: RunEvent) -> None:
    state = RunState()
    state.apply(raw, 0.0)
    assert state.text == "undecoded"


@pytest.mark.parametrize(
    "type_", ["assistant_message", "local_tool_call", "local_tool_result_in", "task_plan", "supervisor", "tool_files"]
)
def test_a_malformed_event_shows_nothing_and_breaks_nothing(type_: str) -> None:
    state = fold(said("a"))
    wrong = {"text": 1, "toolUseId": 2, "name": 3, "steps": 4, "action": 5, "files": 6}
    state.apply(RunEvent(2, type_, wrong), 2.0)
    assert (state.text, state.tools, state.plan, state.notices) == ("a", [], None, [])


@pytest.mark.parametrize(("type_", "kind"), [("result", "succeeded"), ("error", "failed"), ("cancelled", "cancelled")])
def test_a_malformed_end_is_an_end(type_: str, kind: str) -> None:
    state = RunState()
    state.apply(RunEvent(1, type_, {"subtype": 1, "error": [], "errorClass": 2, "reason": 3}), 1.0)
    assert state.outcome is not None
    assert state.outcome.kind == kind


def test_every_change_that_shows_has_a_new_version() -> None:
    state = RunState()
    versions = [state.version]
    for place, one in enumerate([said("a"), thought("b"), called("t"), answered("t"), plan("done"), ended()], 1):
        state.apply(event(place, one[0], **one[1]), 0.0)
        versions.append(state.version)
    assert sorted(set(versions)) == versions
    state.apply(event(3, *said("again")[:1], text="again"), 0.0)
    assert state.version == versions[-1]


# ------------------------------------------------------------- cost


def test_the_end_of_a_text_is_read_without_the_rest() -> None:
    text = Text("start ")
    for number in range(2000):
        text.add(f"{number} ")
    whole = str(text)
    for chars in (0, 1, 7, 300, 10**6):
        assert text.tail(chars) == (whole[-chars:] if chars else "")
    assert (len(text), text.length) == (len(whole), len(whole))
    text.add("end")
    assert text.tail(5) == "9 end"
    assert "characters" in repr(text)


def test_many_small_deltas_take_little_more_room_than_their_text() -> None:
    state, count = RunState(), 40_000
    tracemalloc.start()
    try:
        for seq in range(1, count + 1):
            state.apply(event(seq, "assistant_delta", text=f"{seq:05} "), 0.0)
        used = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(state.turns[0].answer) == 6 * count
    assert used < 2 * 6 * count, "a string for each delta would take ten times its text"
    assert state.text.endswith(" 39999 40000 ")
