"""Asking for runs and following them: what a program sees of `MantyxClient` and `Run`, over real HTTP."""

from __future__ import annotations

import asyncio
import gc
import inspect
import math
import pickle
import threading
import time
from typing import Any, Callable, Iterator

import pytest

import mantyx_sync.backlog
from mantyx_sync import (
    LocalToolResultIn,
    MantyxAuthError,
    MantyxBadRequestError,
    MantyxClient,
    MantyxConfigError,
    MantyxError,
    MantyxNetworkError,
    MantyxNotFoundError,
    MantyxRunCancelled,
    MantyxRunError,
    MantyxTimeoutError,
    RunSpec,
    tool,
)
from mantyx_sync.local import Failure, LocalServer, Pause, ScriptedModel, Thinking, ToolUse, TurnEnd, Usage
from mantyx_sync.local.faults import answer, hold_answer, rate_limited
from tests.scripted_runs import (
    RUN_ID,
    SPEC,
    RunServer,
    quick_client,
    quickly,
    refusal,
    reply,
    result,
    stream,
    wait_for,
)
from tests.waiting import wait_until
from tests.wire import DEADLINE_S, unused_port

pytestmark = pytest.mark.usefixtures("no_leaks")

STORY: list[Any] = [["Once ", "upon ", Thinking("hm"), "a time.", TurnEnd("end_turn", Usage(10, 4, 2, 1))]]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    quickly(monkeypatch)


@tool
def get_order(order_id: str) -> dict[str, str]:
    """Look up one order."""
    return {"order": order_id, "status": "shipped"}


def serve(*turns: Any, **settings: Any) -> LocalServer:
    return LocalServer(ScriptedModel(list(turns)), **settings)


def client_of(server: LocalServer, **settings: Any) -> MantyxClient:
    return quick_client(server, **{"api_key": server.api_key, "workspace_slug": server.workspace_slug, **settings})


class Held:
    """A run that goes on until the test lets it end: some text, a pause, some more text."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.reached = threading.Event()
        self.turns = [["Begun. ", Pause(self.go, self.reached), "Ended."]]


# ------------------------------------------------------------- run_agent


def test_a_run_returns_its_text_tokens_turns_and_model() -> None:
    with serve(*STORY) as server, client_of(server) as client:
        found = client.run_agent(system_prompt="Tell.", prompt="A story.", metadata={"k": "v"})
        assert found.text == "Once upon a time."
        assert found.run_id == server.runs[0].id
        assert (found.tokens.input_tokens, found.tokens.output_tokens, found.turns) == (10, 4, 1)
        assert found.model.id == "local:scripted"
        assert server.runs[0].metadata == {"k": "v"}
        assert found.last_seq == server.runs[0].last_seq


def test_a_local_tool_runs_and_its_result_reaches_the_model() -> None:
    turns = [[ToolUse("get_order", {"order_id": "17"}, id="t1")], lambda request: request.messages[-1]["content"]]
    with serve(*turns) as server, client_of(server) as client:
        found = client.run_agent(**SPEC, tools=[get_order])
        assert found.text == '{"order": "17", "status": "shipped"}'
        [ref] = server.runs[0].spec["tools"]
        assert (ref["kind"], ref["name"], ref["parameters"]["required"]) == ("local", "get_order", ["order_id"])


def test_callbacks_see_every_event_and_every_piece_of_text_on_the_calling_thread() -> None:
    events: list[Any] = []
    texts: list[str] = []
    threads: set[threading.Thread] = set()

    def on_event(event: Any) -> None:
        events.append(event)
        threads.add(threading.current_thread())

    def on_text(text: str) -> None:
        texts.append(text)
        threads.add(threading.current_thread())

    with serve(*STORY) as server, client_of(server) as client:
        client.run_agent(**SPEC, on_event=on_event, on_assistant_delta=on_text)
        assert [event.seq for event in events] == list(range(1, server.runs[0].last_seq + 1))
    assert texts == ["Once ", "upon ", "a time."]
    assert events[-1].is_terminal
    assert threads == {threading.current_thread()}


def test_the_events_of_a_result_leave_out_deltas_unless_they_were_asked_for() -> None:
    with serve(*STORY) as server, client_of(server) as client:
        kinds = [event.type for event in client.run_agent(**SPEC).events]
        assert "assistant_message" in kinds
        assert "assistant_delta" not in kinds
        all_kinds = [event.type for event in client.with_options(keep_deltas=True).run_agent(**SPEC).events]
        assert all_kinds.count("assistant_delta") == 3
        assert [kind for kind in all_kinds if not kind.endswith("_delta")] == kinds


@pytest.mark.parametrize("callback", ["on_event", "on_assistant_delta"])
def test_an_exception_in_a_callback_ends_the_run_and_comes_out(callback: str) -> None:
    held = Held()

    def fail(_: object) -> None:
        raise ZeroDivisionError("from the callback")

    with serve(*held.turns) as server, client_of(server) as client:
        with pytest.raises(ZeroDivisionError, match="from the callback"):
            client.run_agent(**SPEC, **{callback: fail})
        wait_until(lambda: server.runs[0].status == "cancelled", "the run was left going")


def test_a_failed_run_raises_with_everything_the_server_said() -> None:
    failure = Failure(
        "too long", error_class="truncation", finish_reason="max_tokens", retryable=False, usage=Usage(5, 6)
    )
    with serve(["Half a", failure]) as server, client_of(server) as client:
        with pytest.raises(MantyxRunError, match="too long") as caught:
            client.run_agent(**SPEC)
        error = caught.value
        assert error.run_id == server.runs[0].id
        assert (error.error_class, error.finish_reason, error.partial_text) == ("truncation", "max_tokens", "Half a")
        assert error.retryable is False
        assert error.model is not None
        assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_a_result_with_an_error_subtype_is_a_failure() -> None:
    frame = result(1, "", subtype="error_local_tool_timeout", error="the tool took too long")
    with RunServer(stream(frame)) as server, quick_client(server) as client:
        run = client.start_agent(**SPEC)
        with pytest.raises(MantyxRunError, match="the tool took too long") as caught:
            run.result(timeout=DEADLINE_S)
    assert caught.value.subtype == "error_local_tool_timeout"


def test_an_old_server_that_reports_no_usage_leaves_it_out() -> None:
    with RunServer(stream(result(1))) as server, quick_client(server) as client:
        found = client.run_agent(**SPEC)
    assert (found.tokens, found.turns, found.model) == (None, None, None)


def test_request_id_and_rate_limit_of_the_create_are_on_the_result() -> None:
    created = reply(202, {"runId": RUN_ID}, x_request_id="req-7", x_ratelimit_remaining="5", x_ratelimit_limit="120")
    with RunServer(stream(result(1)), create=[created]) as server, quick_client(server) as client:
        found = client.run_agent(**SPEC)
    assert found.request_id == "req-7"
    assert (found.rate_limit.remaining, found.rate_limit.limit) == (5, 120)


def test_a_spec_object_is_taken_in_place_of_its_fields() -> None:
    with serve(*STORY) as server, client_of(server) as client:
        assert client.run_agent(RunSpec(system_prompt="x", prompt="y")).text == "Once upon a time."


def test_fields_without_a_python_name_are_sent_by_extra_body() -> None:
    with RunServer(stream(result(1))) as server, quick_client(server) as client:
        client.run_agent(**SPEC, extra_body={"brandNew": {"x": 1}})
        assert server.requests["create"][0].json()["brandNew"] == {"x": 1}


@pytest.mark.parametrize("method", ["run_agent", "stream_agent", "start_agent", "run_plan"])
def test_help_shows_every_field_of_a_spec(method: str) -> None:
    names = inspect.signature(getattr(MantyxClient, method)).parameters
    assert {"system_prompt", "prompt", "tools", "loop_detection", "metadata", "timeout"} <= names.keys()
    assert "fields" not in names


# ------------------------------------------------------------- time


@pytest.mark.parametrize("callbacks", [{}, {"on_event": lambda event: None}], ids=["plain", "with a callback"])
def test_a_run_beyond_its_time_is_cancelled_and_reported(callbacks: dict[str, Any]) -> None:
    held = Held()
    with serve(*held.turns) as server, client_of(server) as client:
        began = time.monotonic()
        with pytest.raises(MantyxTimeoutError) as caught:
            client.run_agent(**SPEC, **callbacks, timeout=0.3)
        assert 0.25 < time.monotonic() - began < 1.5
        assert isinstance(caught.value, TimeoutError)
        assert caught.value.run_id == server.runs[0].id
        assert caught.value.last_seq is not None
        assert caught.value.last_seq >= 1
        wait_until(lambda: server.runs[0].status == "cancelled", "the run was left going")


def test_the_time_of_a_stream_bounds_its_loop() -> None:
    held = Held()
    with serve(*held.turns) as server, client_of(server) as client:
        texts: list[str] = []
        with client.stream_agent(**SPEC, timeout=0.3) as run, pytest.raises(MantyxTimeoutError):
            texts.extend(run.text_stream)
        assert texts == ["Begun. "]
        wait_until(lambda: server.runs[0].status == "cancelled", "the run was left going")


def test_result_gives_up_at_its_own_time_or_at_that_of_the_run_whichever_is_first() -> None:
    for whole, own in ((60.0, 0.2), (0.2, 60.0), (0.2, None)):
        held = Held()
        with serve(*held.turns) as server, client_of(server) as client:
            run = client.start_agent(**SPEC, timeout=whole)
            began = time.monotonic()
            with pytest.raises(MantyxTimeoutError):
                run.result(timeout=own)
            assert time.monotonic() - began < 2
            assert run.is_done
            wait_until(lambda server=server: server.runs[0].status == "cancelled", "the run was left going")


def test_a_run_that_ended_in_time_is_not_late_however_late_it_is_looked_at() -> None:
    with serve(*STORY) as server, client_of(server) as client:
        run = client.start_agent(**SPEC, timeout=0.2)
        wait_until(lambda: run.is_done, "the run does not end")
        threading.Event().wait(0.25)
        assert len(list(run)) == server.runs[0].last_seq
        assert run.result().text == "Once upon a time."


@pytest.mark.parametrize("timeout", [math.inf, 1e12])
def test_time_without_bound_is_no_time_out(timeout: float) -> None:
    with serve(*STORY) as server, client_of(server) as client:
        run = client.start_agent(**SPEC, timeout=timeout)
        assert len(list(run)) == server.runs[0].last_seq
        assert run.result(timeout=timeout).text == "Once upon a time."


# ------------------------------------------------------------- streams


def test_a_stream_hands_out_events_as_they_happen_and_then_its_result() -> None:
    held = Held()
    with serve(*held.turns) as server, client_of(server) as client, client.stream_agent(**SPEC) as run:
        events = iter(run)
        assert next(events).text == "Begun. "
        assert server.runs[0].status == "running"
        assert not run.is_done
        held.go.set()
        kinds = [event.type for event in events]
        assert kinds[-1] == "result"
        assert run.result().text == "Begun. Ended."
        assert run.is_done
        assert "ended" in repr(run)


def test_the_text_stream_is_the_text_and_nothing_else() -> None:
    with serve(*STORY) as server, client_of(server) as client, client.stream_agent(**SPEC) as run:
        assert list(run.text_stream) == ["Once ", "upon ", "a time."]


def test_the_text_of_a_failed_run_is_no_answer() -> None:
    with serve(["Half a", Failure("it broke")]) as server, client_of(server) as client:
        texts: list[str] = []
        with client.stream_agent(**SPEC) as run, pytest.raises(MantyxRunError, match="it broke"):
            texts.extend(run.text_stream)
        assert texts == ["Half a"]


def test_looping_over_a_failed_run_ends_with_its_error_event() -> None:
    failure = Failure("it broke")
    with serve(["Half a", failure]) as server, client_of(server) as client, client.stream_agent(**SPEC) as run:
        assert [event.type for event in run][-1] == "error"
        with pytest.raises(MantyxRunError) as caught:
            run.result()
        assert isinstance(run.error, MantyxRunError)
        assert (run.error.message, run.error.__traceback__) == (caught.value.message, None)


def test_result_after_a_part_of_the_events_passes_the_rest_by() -> None:
    with serve(*STORY) as server, client_of(server) as client, client.stream_agent(**SPEC) as run:
        for event in run:
            if event.text == "upon ":
                break
        assert run.result().text == "Once upon a time."
        assert run.result() is run.result()


def test_a_loop_that_was_left_can_be_taken_up_again() -> None:
    with serve(*STORY) as server, client_of(server) as client, client.stream_agent(**SPEC) as run:
        seqs = [next(iter(run)).seq]
        for event in run:
            seqs.append(event.seq)
            if len(seqs) == 3:
                break
        seqs += [event.seq for event in run.events]
        assert seqs == list(range(1, server.runs[0].last_seq + 1))
        assert list(run) == []
        assert list(run.text_stream) == []


def test_polling_tells_when_nothing_came_for_a_while_and_misses_nothing() -> None:
    held = Held()
    with serve(*held.turns) as server, client_of(server) as client, client.stream_agent(**SPEC) as run:
        found: list[Any] = []
        for event in run.poll(every=0.05):
            found.append(None if event is None else event.seq)
            if found[-3:] == [None, None, None]:
                held.go.set()
        assert [seq for seq in found if seq is not None] == list(range(1, server.runs[0].last_seq + 1))
        assert found[0] == 1
        assert list(run.poll(0.01)) == []
        assert run.result().text == "Begun. Ended."


def test_polling_tells_of_silence_also_while_the_log_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mantyx_sync.backlog, "MAX_EVENTS", 0)
    monkeypatch.setattr(mantyx_sync.backlog, "GRACE_S", 0.0)
    behind, go = threading.Event(), threading.Event()
    turns = ["One, ", Pause(behind), "two, ", "three, ", Pause(go), "four."]
    with serve(turns) as server, client_of(server) as client, client.stream_agent(**SPEC) as run:
        wait_until(lambda: run.last_seq == 1, "the first event is read, and none behind it is kept for the loop")
        behind.set()
        seqs: list[int | None] = [next(run).seq, next(run).seq, next(run).seq]  # those behind it come from the log
        for event in run.poll(0.02):  # the loop goes on with the time of whoever takes it up
            seqs.append(None if event is None else event.seq)
            if seqs[-3:] == [None] * 3:
                break
        go.set()
        seqs += [event.seq for event in run]
        assert [seq for seq in seqs if seq is not None] == list(range(1, server.runs[0].last_seq + 1))
        assert sum(request.route == "stream" for request in server.requests) == 2


def test_a_polled_loop_that_was_left_can_be_taken_up_by_any_other() -> None:
    held = Held()
    with serve(*held.turns) as server, client_of(server) as client, client.stream_agent(**SPEC) as run:
        seqs = [next(event.seq for event in run.poll(60.0) if event is not None)]
        assert next(iter(run.poll(0.02))) is None
        held.go.set()
        seqs.append(next(run).seq)
        seqs += [event.seq for event in run]
        assert seqs == list(range(1, server.runs[0].last_seq + 1))


@pytest.mark.parametrize("every", [1e-9, math.inf, 10**400], ids=["tiny", "infinite", "beyond a float"])
def test_polling_takes_any_time(every: float) -> None:
    with serve("Hi") as server, client_of(server) as client, client.stream_agent(**SPEC) as run:
        assert [event.type for event in run.poll(every) if event is not None][-1] == "result"


def test_polling_is_one_loop_like_any_other_and_asks_for_a_time() -> None:
    held = Held()
    with serve(*held.turns) as server, client_of(server) as client, client.stream_agent(**SPEC) as run:
        polled = run.poll(0.01)
        next(polled)
        for other in (run.poll(0.01), iter(run)):
            with pytest.raises(MantyxError, match="one loop at a time"):
                next(other)
        for every in (0, -1, math.nan, True, "1", None):
            with pytest.raises(MantyxConfigError, match="every") as caught:
                run.poll(every)  # type: ignore[arg-type]
            assert "a number of seconds above 0" in str(caught.value)
        held.go.set()
        assert [event for event in polled if event is not None][-1].is_terminal


@pytest.mark.parametrize("every", [0.02, 60.0, None])
def test_the_time_of_a_run_bounds_reading_the_log_again(monkeypatch: pytest.MonkeyPatch, every: float | None) -> None:
    monkeypatch.setattr(mantyx_sync.backlog, "MAX_EVENTS", 0)
    monkeypatch.setattr(mantyx_sync.backlog, "GRACE_S", 0.0)
    held = Held()
    with serve(*held.turns) as server, client_of(server) as client, client.stream_agent(**SPEC, timeout=0.3) as run:
        wait_until(lambda: run.last_seq > 0, "something is read, and not kept for the loop")
        with pytest.raises(MantyxTimeoutError):
            list(run if every is None else run.poll(every))
        assert run.is_over


@pytest.mark.parametrize("every", [0.02, 60.0, math.inf])
def test_the_time_of_a_run_bounds_polling_it(every: float) -> None:
    held = Held()
    with serve(*held.turns) as server, client_of(server) as client:
        with client.stream_agent(**SPEC, timeout=0.3) as run, pytest.raises(MantyxTimeoutError):
            list(run.poll(every))
        wait_until(lambda: server.runs[0].status == "cancelled", "the run was left going")


def test_polling_a_closed_run_ends_and_leaving_the_block_between_two_polls_cancels_it() -> None:
    held = Held()
    with serve(*held.turns, *held.turns) as server, client_of(server) as client:
        run = client.start_agent(**SPEC)
        for event in run.poll(0.02):
            if event is None:
                run.close()
        with client.stream_agent(**SPEC) as run:
            for event in run.poll(0.02):
                if event is None:
                    break
        wait_until(lambda: server.runs[1].status == "cancelled", "the run was left going")


def test_two_loops_at_once_are_refused() -> None:
    held = Held()
    with serve(*held.turns) as server, client_of(server) as client, client.stream_agent(**SPEC) as run:
        first = iter(run)
        next(first)
        with pytest.raises(MantyxError, match="one loop at a time"):
            next(iter(run))
        with pytest.raises(MantyxError, match="one loop at a time"):
            next(run.text_stream)
        held.go.set()
        assert list(first)[-1].is_terminal


@pytest.mark.parametrize("how", ["break", "exception", "not begun"])
def test_leaving_the_block_of_a_stream_before_its_end_cancels_the_run(how: str) -> None:
    held = Held()
    with serve(*held.turns) as server, client_of(server) as client:
        began = time.monotonic()
        try:
            with client.stream_agent(**SPEC) as run:
                wait_for(held.reached, "the run does not begin")
                if how != "not begun":
                    for _ in run:
                        if how == "exception":
                            raise ZeroDivisionError
                        break
        except ZeroDivisionError:
            assert how == "exception"
        assert time.monotonic() - began < 2
        wait_until(lambda: server.runs[0].status == "cancelled", "the run was left going")
        assert server.open_streams == 0


def test_leaving_the_block_of_a_stream_after_its_end_cancels_nothing() -> None:
    with RunServer(stream(result(1))) as server, quick_client(server) as client:
        with client.stream_agent(**SPEC) as run:
            run.result()
        assert server.count("cancel") == 0


def test_a_stream_that_is_dropped_is_let_go_of_and_the_run_goes_on() -> None:
    held = Held()
    with serve(*held.turns) as server, client_of(server) as client:
        for _ in client.stream_agent(**SPEC):
            break
        gc.collect()
        wait_until(lambda: server.open_streams == 0, "the stream is still open")
        assert server.runs[0].status == "running"
        held.go.set()


def test_a_started_run_that_is_dropped_goes_on_and_its_tools_run() -> None:
    ran = threading.Event()

    @tool
    def note() -> str:
        ran.set()
        return "x"

    held = Held()
    with serve([*held.turns[0], ToolUse("note", {})], ["Done."]) as server, client_of(server) as client:
        client.start_agent(**SPEC, tools=[note])
        gc.collect()
        held.go.set()
        wait_for(ran, "the tool of a run nobody holds did not run")
        wait_until(lambda: server.runs[0].status == "succeeded", "the run does not end")


def test_fifty_streams_left_after_their_first_event_leave_nothing_behind() -> None:
    held = Held()
    with serve(*held.turns) as server, client_of(server) as client:
        for _ in range(50):
            for _ in client.stream_agent(**SPEC):
                break
        gc.collect()
        wait_until(lambda: server.open_streams == 0, "streams are still open")
        readers = [thread.name for thread in threading.enumerate() if thread.name.startswith("mantyx-run")]
        wait_until(lambda: not any(thread.name in readers for thread in threading.enumerate()), "threads are left")
        assert client.list_models().models
        held.go.set()


def test_closing_a_run_frees_it_and_leaves_it_to_the_server() -> None:
    held = Held()
    with serve(*held.turns) as server, client_of(server) as client:
        run = client.start_agent(**SPEC)
        wait_for(held.reached, "the run does not begin")
        run.close()
        run.close()
        assert run.is_done
        assert all(event.seq <= run.last_seq for event in run)
        with pytest.raises(MantyxError, match="closed"):
            run.result()
        held.go.set()
        wait_until(lambda: server.runs[0].status == "succeeded", "closing ended the run")
        again = client.attach_run(run.run_id, last_seq=run.last_seq)
        assert again.result(timeout=DEADLINE_S).text == "Begun. Ended."


def test_closing_a_run_ends_a_loop_in_another_thread() -> None:
    held = Held()
    with serve(*held.turns) as server, client_of(server) as client:
        run = client.start_agent(**SPEC)
        seen: list[Any] = []
        looping = threading.Thread(target=lambda: seen.extend(run))
        looping.start()
        wait_for(held.reached, "the run does not begin")
        run.close()
        looping.join(DEADLINE_S)
        assert not looping.is_alive()


def test_closing_the_client_lets_go_of_its_runs() -> None:
    held = Held()
    with serve(*held.turns) as server:
        client = client_of(server)
        run = client.start_agent(**SPEC)
        wait_for(held.reached, "the run does not begin")
        client.close()
        assert run.is_done
        wait_until(lambda: server.open_connections == 0, "connections are still open")


# ------------------------------------------------------------- background runs


def test_a_started_run_ends_by_itself_and_its_events_are_there_afterwards() -> None:
    turns = [[ToolUse("get_order", {"order_id": "17"})], ["It ", "shipped."]]
    with serve(*turns) as server, client_of(server) as client:
        run = client.start_agent(**SPEC, tools=[get_order])
        wait_until(lambda: run.is_done, "the run does not end by itself")
        assert run.result(timeout=0.001).text == "It shipped."
        assert [event.seq for event in run] == list(range(1, server.runs[0].last_seq + 1))


def test_tools_start_when_their_event_arrives_and_run_side_by_side() -> None:
    both = threading.Barrier(2)

    @tool(read_only=True)
    def meet(n: int) -> int:
        both.wait(DEADLINE_S)
        return n

    turns = [[ToolUse("meet", {"n": 1}), ToolUse("meet", {"n": 2})], ["Met."]]
    with serve(*turns) as server, client_of(server) as client:
        run = client.start_agent(**SPEC, tools=[meet])
        assert run.result(timeout=DEADLINE_S).text == "Met."
        assert server.runs[0].tool_call_count == 2


def test_a_run_can_be_cancelled_and_says_so() -> None:
    held = Held()
    with serve(*held.turns) as server, client_of(server) as client:
        run = client.start_agent(**SPEC)
        wait_for(held.reached, "the run does not begin")
        run.cancel()
        run.cancel()
        with pytest.raises(MantyxRunCancelled) as caught:
            run.result(timeout=DEADLINE_S)
        assert (caught.value.run_id, caught.value.subtype) == (run.run_id, "cancelled")
        assert isinstance(caught.value, MantyxRunError)
        assert [event.type for event in run][-1] == "cancelled"
        run.cancel()
        assert run.snapshot().status == "cancelled"


def test_a_run_can_be_cancelled_by_its_id() -> None:
    held = Held()
    with serve(*held.turns) as server, client_of(server) as client:
        run = client.start_agent(**SPEC)
        client.cancel_run(run.run_id)
        with pytest.raises(MantyxRunCancelled):
            run.result(timeout=DEADLINE_S)
        with pytest.raises(MantyxNotFoundError):
            client.cancel_run("run_nobody_knows")


def test_attaching_follows_a_run_from_its_start_or_from_a_place() -> None:
    held = Held()
    with serve(*held.turns) as server, client_of(server) as client, client_of(server) as other:
        run = client.start_agent(**SPEC)
        wait_for(held.reached, "the run does not begin")
        whole = other.attach_run(run.run_id)
        rest = other.attach_run(run.run_id, last_seq=1)
        held.go.set()
        seqs = list(range(1, len(list(whole)) + 1))
        assert [event.seq for event in rest] == seqs[1:]
        assert whole.result().text == rest.result().text == run.result().text == "Begun. Ended."


def test_who_attaches_without_tools_leaves_the_calls_to_others() -> None:
    go_on, begun = threading.Event(), threading.Event()

    @tool
    def look() -> str:
        """Look."""
        begun.set()
        assert go_on.wait(DEADLINE_S)
        return "seen"

    with serve([ToolUse("look")], ["Done."]) as server, client_of(server) as client, client_of(server) as other:
        run = client.start_agent(**SPEC, tools=[look])
        wait_for(begun, "the tool does not begin")
        with other.attach_run(run.run_id) as watched:
            events = iter(watched)
            assert "local_tool_call" in [next(events).type for _ in range(2)]
            go_on.set()
            answers = [event.output for event in events if isinstance(event, LocalToolResultIn)]
        assert answers == ["seen"]
        assert run.result(timeout=DEADLINE_S).text == "Done."


def test_leaving_the_block_of_an_attached_run_cancels_it_but_dropping_it_does_not() -> None:
    held = Held()
    with serve(*held.turns) as server, client_of(server) as client:
        run = client.start_agent(**SPEC)
        client.attach_run(run.run_id)
        gc.collect()
        assert server.runs[0].status in ("queued", "running")
        with client.attach_run(run.run_id):
            pass
        with pytest.raises(MantyxRunCancelled):
            run.result(timeout=DEADLINE_S)


def test_many_threads_share_one_client() -> None:
    turns: Callable[[Any], Any] = lambda request: [  # noqa: E731 - a script made per run
        [ToolUse("get_order", {"order_id": request.prompt})],
        lambda later: later.messages[-1]["content"],
    ]
    found: dict[str, str] = {}
    with LocalServer(ScriptedModel(turns)) as server, client_of(server) as client:

        def ask(number: str) -> None:
            found[number] = client.run_agent(system_prompt="x", prompt=number, tools=[get_order]).text

        threads = [threading.Thread(target=ask, args=(str(n),)) for n in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_S)
    assert found == {str(n): f'{{"order": "{n}", "status": "shipped"}}' for n in range(20)}


def test_everything_works_under_a_running_event_loop() -> None:
    async def main() -> str:
        with serve(*STORY) as server, client_of(server) as client, client.stream_agent(**SPEC) as run:
            return "".join(run.text_stream)

    assert asyncio.run(main()) == "Once upon a time."


# ------------------------------------------------------------- other routes


def test_get_run_tells_what_the_server_knows() -> None:
    with serve(*STORY) as server, client_of(server) as client:
        run_id = client.run_agent(**SPEC).run_id
        found = client.get_run(run_id)
        assert (found.id, found.status, found.final_text) == (run_id, "succeeded", "Once upon a time.")
        assert found.is_terminal
        with pytest.raises(MantyxNotFoundError):
            client.get_run("run_nobody_knows")


def test_list_runs_walks_on_through_all_pages_one_request_at_a_time() -> None:
    with serve(*STORY) as server, client_of(server) as client:
        ids = [client.run_agent(**SPEC, metadata={"n": str(n % 2)}).run_id for n in range(7)]
        server.requests.clear()
        page = client.list_runs(limit=3, include_total=True)
        assert (len(page.items), page.total) == (3, 7)
        assert len(server.requests) == 1
        assert [run.id for run in page] == ids[::-1]
        assert len(server.requests) == 3
        assert [run.id for run in client.list_runs(limit=2, metadata={"n": "1"})] == ids[5::-2]
        assert [run.id for run in client.list_runs(status="failed")] == []
        again = client.list_runs(limit=3, cursor=page.next_cursor)
        assert [run.id for run in again.items] == ids[3:0:-1]


def test_list_models_names_the_default() -> None:
    models = [{"id": "m1", "label": "One", "provider": "p", "vendorModelId": "v1"}, {"id": "m2", "label": "Two"}]
    with (
        RunServer(stream(result(1)), other=[reply(200, {"models": models, "defaultModelId": "m2"})]) as server,
        quick_client(server) as client,
    ):
        catalog = client.list_models()
        assert [model.id for model in catalog] == ["m1", "m2"]
        assert catalog.default_model_id == "m2"


def test_feedback_is_given_and_the_last_counts() -> None:
    with serve(*STORY) as server, client_of(server) as client:
        run_id = client.run_agent(**SPEC).run_id
        first = client.submit_run_feedback(run_id, "UP", explanation="good")
        second = client.submit_run_feedback(run_id, "DOWN", content_snapshot="text")
        assert (first.verdict, second.verdict) == ("UP", "DOWN")
        assert first.id == second.id
        assert second.agent_run_id == run_id


def test_request_reaches_routes_that_have_no_method() -> None:
    echo = reply(200, {"ok": True})
    with RunServer(stream(result(1)), other=[echo]) as server, quick_client(server) as client:
        assert client.request("get", "/things", params={"a": 1, "b": ["x", "y"], "c": None}) == {"ok": True}
        assert client.request("POST", "/api/oauth/userinfo", json={"x": 1}) == {"ok": True}
        first, second = server.requests["other"]
        assert (first.method, first.target) == ("GET", "/api/v1/workspaces/w/things?a=1&b=x&b=y")
        assert (second.method, second.target, second.json()) == ("POST", "/api/oauth/userinfo", {"x": 1})
        assert second.headers["authorization"] == "Bearer mantyx_key"
        for path in ("things", "@evil.example/x", "http://evil.example/"):
            with pytest.raises(MantyxConfigError):
                client.request("GET", path)
        client.request("GET", "//evil.example/x")
        assert server.requests["other"][2].target == "/api/v1/workspaces/w//evil.example/x"


def test_an_empty_answer_is_none() -> None:
    with RunServer(stream(result(1)), other=[reply(204)]) as server, quick_client(server) as client:
        assert client.request("DELETE", "/things/1") is None


def test_a_wrong_key_is_an_auth_error_everywhere() -> None:
    with serve(*STORY) as server, client_of(server, api_key="wrong") as client:
        ways: list[Callable[[], object]] = [
            lambda: client.run_agent(**SPEC),
            client.list_models,
            client.list_runs,
            lambda: client.get_run("r"),
            lambda: client.cancel_run("r"),
            lambda: client.submit_run_feedback("r", "UP"),
        ]
        for way in ways:
            with pytest.raises(MantyxAuthError):
                way()


def test_the_servers_own_refusal_comes_through() -> None:
    with serve(*STORY) as server, client_of(server) as client:
        body = {"error": "invalid_model", "message": "No such model.", "candidates": ["local:scripted"]}
        server.faults.add(answer(400, body), route="create")
        with pytest.raises(MantyxBadRequestError, match="No such model") as caught:
            client.run_agent(**SPEC, model_id="local:scriptd")
        assert caught.value.candidates == ("local:scripted",)
        assert len(server.runs) == 0


def test_a_rate_limited_read_is_repeated() -> None:
    with serve(*STORY) as server, client_of(server) as client:
        server.faults.add(rate_limited(0), times=2)
        assert client.list_models().default_model_id == "local:scripted"


# ------------------------------------------------------------- settings


@pytest.fixture
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("API_KEY", "ACCESS_TOKEN", "WORKSPACE_SLUG", "BASE_URL"):
        monkeypatch.delenv(f"MANTYX_{name}", raising=False)


@pytest.mark.usefixtures("no_environment")
@pytest.mark.parametrize("variable", ["MANTYX_API_KEY", "MANTYX_ACCESS_TOKEN"])
def test_credential_workspace_and_address_come_from_the_environment(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve(*STORY) as server:
        monkeypatch.setenv(variable, server.api_key + "\n")
        monkeypatch.setenv("MANTYX_WORKSPACE_SLUG", server.workspace_slug)
        monkeypatch.setenv("MANTYX_BASE_URL", server.url)
        with MantyxClient() as client:
            assert client.run_agent(**SPEC).text == "Once upon a time."
            assert client.workspace_slug == server.workspace_slug
            assert client.base_url == server.url


@pytest.mark.usefixtures("no_environment")
def test_arguments_win_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with serve(*STORY) as server:
        monkeypatch.setenv("MANTYX_API_KEY", "wrong")
        monkeypatch.setenv("MANTYX_WORKSPACE_SLUG", "wrong")
        monkeypatch.setenv("MANTYX_BASE_URL", f"http://127.0.0.1:{unused_port()}")
        with MantyxClient(**server.client_settings()) as client:
            assert client.list_models().models


@pytest.mark.usefixtures("no_environment")
def test_the_platforms_own_address_is_the_default() -> None:
    assert MantyxClient(api_key="k", workspace_slug="w").base_url == "https://app.mantyx.io"


GOOD: dict[str, Any] = {"api_key": "k", "workspace_slug": "w", "base_url": "http://127.0.0.1:1"}


@pytest.mark.usefixtures("no_environment")
@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"api_key": None}, "MANTYX_API_KEY"),
        ({"api_key": ""}, "MANTYX_API_KEY"),
        ({"access_token": "t"}, "access_token"),
        ({"api_key": "two words"}, "api_key"),
        ({"api_key": "kéy"}, "api_key"),
        ({"api_key": "k\r\nX-Evil: 1"}, "api_key"),
        ({"api_key": None, "access_token": "two words"}, "access_token: holds"),
        ({"workspace_slug": None}, "workspace_slug"),
        ({"workspace_slug": " "}, "workspace_slug"),
        ({"base_url": "127.0.0.1:1"}, "base_url"),
        ({"base_url": "ftp://host"}, "base_url"),
        ({"base_url": "http://host/?x=1"}, "base_url"),
        ({"base_url": "http://user:secret@host"}, "base_url"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": None}, "timeout"),
        ({"timeout": (5.0,)}, "timeout"),
        ({"timeout": (5.0, -1.0)}, "timeout"),
        ({"timeout": "5"}, "timeout"),
        ({"timeout": math.nan}, "timeout"),
        ({"max_retries": -1}, "max_retries"),
        ({"max_retries": True}, "max_retries"),
        ({"stream_idle_timeout": 0}, "stream_idle_timeout"),
        ({"reconnect_timeout": math.inf}, "reconnect_timeout"),
        ({"max_tool_workers": 0}, "max_tool_workers"),
        ({"max_tool_workers": 1.5}, "max_tool_workers"),
        ({"default_headers": {"Authorization": "Bearer x"}}, "default_headers"),
        ({"default_headers": {"X-A": "a\r\nX-B: b"}}, "default_headers"),
        ({"default_headers": {"X A": "a"}}, "default_headers"),
        ({"default_headers": {"X-A": 5}}, "default_headers"),
        ({"default_headers": [("X-A", "a")]}, "default_headers"),
        ({"app_info": "a\nb"}, "app_info"),
    ],
)
def test_a_setting_that_cannot_be_used_is_refused_by_name(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(MantyxConfigError, match=named) as caught:
        MantyxClient(**{**GOOD, **settings})
    assert "secret" not in str(caught.value)
    assert "two words" not in str(caught.value)


ASKING: dict[str, Callable[[MantyxClient], object]] = {
    "run_agent": lambda client: client.run_agent(**SPEC),
    "stream_agent": lambda client: client.stream_agent(**SPEC),
    "attach_run": lambda client: client.attach_run("run_1"),
    "map": lambda client: next(client.map(["a"])),
    "create_session": lambda client: client.create_session(system_prompt="Help."),
    "get_run": lambda client: client.get_run("run_1"),
    "list_runs": lambda client: client.list_runs(),
    "request": lambda client: client.request("GET", "/models"),
    "list_eval_datasets": lambda client: client.list_eval_datasets(),
    "run_eval": lambda client: client.run_eval(dataset_id="d", agent_id="a"),
    "with_options": lambda client: client.with_options(max_retries=1),
}


@pytest.mark.parametrize("method", ASKING)
def test_a_closed_client_refuses_whatever_it_is_asked(method: str) -> None:
    with serve(*STORY) as server:
        client = client_of(server)
        copy = client.with_options(max_retries=1)
        client.close()
        client.close()
        for closed in (client, copy):
            with pytest.raises(MantyxError, match="the client was closed: make another one") as caught:
                ASKING[method](closed)
            assert caught.value.code == "closed"
        assert not server.requests


def test_what_a_client_made_is_closed_with_it_but_runs_can_be_cancelled() -> None:
    held = Held()
    with serve(*held.turns) as server:
        client = client_of(server)
        session = client.create_session(system_prompt="Help.")
        run = client.start_agent(**SPEC)
        wait_for(held.reached, "the run does not begin")
        client.close()
        with pytest.raises(MantyxError, match="the client was closed"):
            session.send("Hello?")
        run.cancel()
        wait_until(lambda: server.runs[0].status == "cancelled", "it was not cancelled")


def test_a_run_that_is_created_while_its_client_is_closed_is_cancelled() -> None:
    held, gate = Held(), threading.Event()
    with serve(*held.turns) as server:
        client = client_of(server)
        fault = server.faults.add(hold_answer(gate), route="create")
        errors: list[BaseException] = []

        def create() -> None:
            try:
                client.start_agent(**SPEC)
            except MantyxError as error:
                errors.append(error)

        thread = threading.Thread(target=create)
        thread.start()
        wait_for(fault.struck, "the run is not created")
        client.close()
        gate.set()
        thread.join(DEADLINE_S)
        assert [error.code for error in errors] == ["closed"]  # type: ignore[attr-defined]  # ours
        wait_until(lambda: server.runs[0].status == "cancelled", "the run was left going")


def test_with_options_changes_settings_and_shares_the_rest() -> None:
    models = reply(200, {"models": [], "defaultModelId": None})
    with RunServer(stream(result(1)), other=[models]) as server, quick_client(server, app_info="shop/1.2") as client:
        other = client.with_options(default_headers={"X-Tenant": "7"}, app_info="shop/1.3")
        client.list_models()
        other.list_models()
        first, second = server.requests["other"]
    assert "x-tenant" not in first.headers
    assert second.headers["x-tenant"] == "7"
    assert first.headers["user-agent"].endswith("shop/1.2")
    assert second.headers["user-agent"].endswith("shop/1.3")
    assert second.headers["authorization"] == "Bearer mantyx_key"
    assert first.connection == second.connection


def test_with_options_bounds_an_exchange_and_its_repetitions() -> None:
    def mute(peer: Any, _: Any) -> None:
        peer.stay()

    with RunServer(stream(result(1)), other=[mute, refusal(500)]) as server, quick_client(server) as client:
        impatient = client.with_options(timeout=(5.0, 0.2), max_retries=0)
        began = time.monotonic()
        with pytest.raises(MantyxTimeoutError):
            impatient.list_models()
        with pytest.raises(MantyxError):
            impatient.list_models()
        assert time.monotonic() - began < 2
        assert server.count("other") == 2


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"timout": 1}, TypeError),
        ({"api_key": "k"}, TypeError),
        ({"timeout": -1}, MantyxConfigError),
        ({"max_retries": "2"}, MantyxConfigError),
        ({"default_headers": None}, MantyxConfigError),
    ],
)
def test_with_options_refuses_what_is_no_option(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        MantyxClient(**GOOD).with_options(**options)


def test_neither_repr_nor_pickle_shows_the_credential() -> None:
    client = MantyxClient(**{**GOOD, "api_key": "mantyx_secret"})
    assert "mantyx_secret" not in repr(client)
    assert "mantyx_secret" not in repr(vars(client))
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(client)


def test_a_server_that_is_not_there_is_a_network_error_and_nothing_was_sent() -> None:
    with quick_client(type("Nowhere", (), {"url": f"http://127.0.0.1:{unused_port()}"})) as client:
        with pytest.raises(MantyxNetworkError) as caught:
            client.run_agent(**SPEC)
        assert caught.value.sent is False
        assert "not known" not in str(caught.value)


# ------------------------------------------------------------- bad input


@pytest.fixture
def untouched() -> Iterator[tuple[RunServer, MantyxClient]]:
    with RunServer(stream(result(1))) as server, quick_client(server) as client:
        yield server, client
        assert not any(server.requests.values()), "something was sent"


@pytest.mark.parametrize("method", ["run_agent", "stream_agent", "start_agent"])
@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({}, MantyxConfigError),
        ({"prompt": "x"}, MantyxConfigError),
        ({"system_prompt": "x"}, MantyxConfigError),
        ({**SPEC, "messages": [{"role": "user", "content": "x"}]}, MantyxConfigError),
        ({**SPEC, "promt": "x"}, TypeError),
        ({**SPEC, "timeout": 0}, MantyxConfigError),
        ({**SPEC, "timeout": -1}, MantyxConfigError),
        ({**SPEC, "timeout": "5"}, MantyxConfigError),
        ({**SPEC, "timeout": True}, MantyxConfigError),
        ({**SPEC, "timeout": math.nan}, MantyxConfigError),
        ({**SPEC, "metadata": {"bad key": "x"}}, MantyxConfigError),
        ({**SPEC, "metadata": {"k": "x" * 257}}, MantyxConfigError),
        ({**SPEC, "tools": [get_order, get_order]}, MantyxConfigError),
        ({**SPEC, "tools": get_order}, MantyxConfigError),
        ({**SPEC, "tools": [5]}, MantyxConfigError),
        ({"spec": RunSpec(system_prompt="x", prompt="y"), "prompt": "z"}, TypeError),
        ({"spec": "a prompt"}, TypeError),
    ],
)
def test_a_bad_spec_is_refused_before_anything_is_sent(
    untouched: tuple[RunServer, MantyxClient], method: str, fields: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        getattr(untouched[1], method)(**fields)


def test_metadata_that_leaves_no_room_for_the_tag_is_refused(untouched: tuple[RunServer, MantyxClient]) -> None:
    full = {f"k{n}": "v" for n in range(16)}
    with pytest.raises(MantyxConfigError, match="metadata"):
        untouched[1].with_options(recoverable_runs=True).run_agent(**SPEC, metadata=full)


@pytest.mark.parametrize(
    ("ask", "named"),
    [
        (lambda c: c.attach_run(""), "run_id"),
        (lambda c: c.attach_run(5), "run_id"),
        (lambda c: c.attach_run("r", last_seq=-1), "last_seq"),
        (lambda c: c.attach_run("r", last_seq="4"), "last_seq"),
        (lambda c: c.attach_run("r", tools=get_order), "tools"),
        (lambda c: c.attach_run("r", tools=[5]), "tools"),
        (lambda c: c.attach_run("r", timeout=0), "timeout"),
        (lambda c: c.get_run(""), "run_id"),
        (lambda c: c.get_run(None), "run_id"),
        (lambda c: c.cancel_run(""), "run_id"),
        (lambda c: c.list_runs(limit=0), "limit"),
        (lambda c: c.list_runs(limit=201), "limit"),
        (lambda c: c.list_runs(limit="5"), "limit"),
        (lambda c: c.list_runs(metadata=["a:b"]), "metadata"),
        (lambda c: c.submit_run_feedback("", "UP"), "run_id"),
        (lambda c: c.submit_run_feedback("r", "up"), "verdict"),
        (lambda c: c.submit_run_feedback("r", "UP", explanation="x" * 8001), "explanation"),
        (lambda c: c.submit_run_feedback("r", "UP", explanation=5), "explanation"),
        (lambda c: c.submit_run_feedback("r", "UP", content_snapshot=5), "content_snapshot"),
        (lambda c: c.request("GET", "things"), "path"),
    ],
)
def test_a_bad_argument_is_refused_before_anything_is_sent(
    untouched: tuple[RunServer, MantyxClient], ask: Callable[[Any], object], named: str
) -> None:
    with pytest.raises(MantyxConfigError, match=named):
        ask(untouched[1])


@pytest.mark.parametrize("timeout", [0, -1, "5", True, math.nan])
def test_a_bad_time_for_a_result_is_refused_and_leaves_the_run_alone(timeout: Any) -> None:
    held = Held()
    with serve(*held.turns) as server, client_of(server) as client:
        run = client.start_agent(**SPEC, timeout=DEADLINE_S)
        with pytest.raises(MantyxConfigError, match="timeout"):
            run.result(timeout=timeout)
        held.go.set()
        assert run.result(timeout=DEADLINE_S).text == "Begun. Ended."


def test_odd_ids_stay_one_segment_of_the_path() -> None:
    with RunServer(stream(result(1)), other=[refusal(404)]) as server, quick_client(server) as client:
        for run_id in ("../../x", "a/b", "a?b=c", "a b", "..", "é"):
            with pytest.raises(MantyxNotFoundError):
                client.get_run(run_id)
        for request in server.requests["other"]:
            assert request.target.startswith("/api/v1/workspaces/w/agent-runs/")
            assert request.target.count("/") == 6
            assert "?" not in request.target
