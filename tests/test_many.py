"""Many runs at once: `MantyxClient.map` over real HTTP, and `run_many` by itself without a network."""

from __future__ import annotations

import contextvars
import gc
import inspect
import itertools
import json
import pickle
import subprocess
import sys
import threading
import time
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterator

import pytest

from mantyx_sync import (
    MantyxClient,
    MantyxConfigError,
    MantyxError,
    MantyxParseError,
    MantyxRunError,
    MantyxTimeoutError,
    RunResult,
    RunSpec,
    tool,
)
from mantyx_sync.local import Failure, LocalServer, Pause, ScriptedModel, ToolUse
from mantyx_sync.local.faults import hold_answer
from mantyx_sync.many import run_many
from mantyx_sync.progress import Progress
from tests.processes import Child, environment
from tests.scripted_runs import quick_client, quickly
from tests.waiting import wait_until
from tests.wire import DEADLINE_S

pytestmark = pytest.mark.usefixtures("no_leaks")

SAY: dict[str, Any] = {"system_prompt": "Help."}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    quickly(monkeypatch)


def nothing() -> None:
    """Stand in for `abort_all`."""


def wait_for(flag: threading.Event) -> None:
    assert flag.wait(DEADLINE_S), "the event does not come"


def map_threads() -> list[str]:
    return sorted(
        thread.name for thread in threading.enumerate() if thread.name.startswith(("mantyx-map", "mantyx-run"))
    )


class Gates:
    """Work that waits, item by item, until the test lets it go on."""

    def __init__(self, count: int) -> None:
        self.gates = [threading.Event() for _ in range(count)]
        self.started: list[int] = []
        self.at_once = self.most_at_once = 0
        self._changed = threading.Condition()

    def work(self, item: int) -> str:
        with self._changed:
            self.started.append(item)
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            self._changed.notify_all()
        wait_for(self.gates[item])
        with self._changed:
            self.at_once -= 1
        return f"done {item}"

    def wait_for_started(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.started) >= count, DEADLINE_S), f"not {count} are started"

    def open(self, *items: int) -> None:
        for item in items or range(len(self.gates)):
            self.gates[item].set()


# ------------------------------------------------------------- run_many by itself


@pytest.mark.parametrize("max_workers", [1, 2, 7, 100])
@pytest.mark.parametrize("count", [0, 1, 5, 30])
def test_results_come_in_the_order_of_the_items(count: int, max_workers: int) -> None:
    found = run_many(range(count), lambda item: item * item, nothing, max_workers=max_workers)
    assert list(found) == [item * item for item in range(count)]
    assert map_threads() == []


def test_order_holds_whichever_is_finished_first() -> None:
    gates = Gates(4)
    found = run_many(range(4), gates.work, nothing, max_workers=4)
    threading.Thread(target=lambda: (gates.wait_for_started(4), gates.open(3, 2, 1), gates.open(0))).start()
    assert list(found) == ["done 0", "done 1", "done 2", "done 3"]


def test_as_completed_yields_what_is_finished_first() -> None:
    gates = Gates(4)
    found = run_many(range(4), gates.work, nothing, max_workers=4, as_completed=True)
    order = [2, 0, 3, 1]
    seen = []
    for item in order:
        gates.open(item)
        seen.append(next(found))
    assert seen == [f"done {item}" for item in order]
    assert next(found, "the end") == "the end"


@pytest.mark.parametrize("max_workers", [1, 3])
def test_no_more_than_max_workers_are_under_way(max_workers: int) -> None:
    gates = Gates(9)
    found = run_many(range(9), gates.work, nothing, max_workers=max_workers)
    reader = threading.Thread(target=lambda: list(found))
    reader.start()
    for item in range(9):
        gates.wait_for_started(min(9, item + max_workers))
        assert gates.at_once <= max_workers
        gates.open(item)
    reader.join(DEADLINE_S)
    assert gates.most_at_once == max_workers


def test_a_few_items_start_no_more_threads_than_there_is_work() -> None:
    gates = Gates(2)
    found = run_many(range(2), gates.work, nothing, max_workers=50)
    gates.open(0)
    next(found)
    assert len(map_threads()) <= 2
    gates.open()
    list(found)
    seen: set[int] = set()
    list(run_many(range(20), lambda item: seen.add(threading.get_ident()), nothing, max_workers=3))
    assert 1 <= len(seen) <= 3


@pytest.mark.parametrize("as_completed", [False, True])
def test_no_thread_is_left_once_everything_is_finished_though_nobody_asked_for_the_end(as_completed: bool) -> None:
    found = run_many([1, 2, 3], lambda item: item, nothing, max_workers=2, as_completed=as_completed)
    pairs = list(zip("abc", found))
    assert sorted(pair[1] for pair in pairs) == [1, 2, 3]
    assert map_threads() == []
    assert list(found) == []


def test_nothing_is_read_or_started_before_the_first_result_is_asked_for() -> None:
    read: list[int] = []

    def items() -> Iterator[int]:
        for item in range(3):
            read.append(item)
            yield item

    found = run_many(items(), lambda item: item, nothing, max_workers=2)
    assert (read, map_threads()) == ([], [])
    found.close()
    del found
    unread = [run_many(itertools.count(), lambda item: item, nothing, max_workers=8) for _ in range(200)]
    assert map_threads() == []
    del unread


@pytest.mark.parametrize("as_completed", [False, True])
def test_an_endless_source_is_read_no_further_ahead_than_twice_the_workers(as_completed: bool) -> None:
    read = 0

    def items() -> Iterator[int]:
        nonlocal read
        while True:
            read += 1
            yield read

    found = run_many(items(), lambda item: item, nothing, max_workers=3, as_completed=as_completed)
    for yielded in range(50):
        next(found)
        assert read <= yielded + 6
    found.close()
    assert map_threads() == []


def test_the_one_that_is_waited_for_does_not_let_the_others_run_ahead_without_bound() -> None:
    gates = Gates(100)
    gates.open(*range(1, 100))
    found = run_many(range(100), gates.work, nothing, max_workers=3)
    first: list[Any] = []
    reader = threading.Thread(target=lambda: first.append(next(found)))
    reader.start()
    gates.wait_for_started(6)
    assert sorted(gates.started) == [0, 1, 2, 3, 4, 5]
    gates.open(0)
    reader.join(DEADLINE_S)
    assert first == ["done 0"]
    found.close()


def test_a_slow_source_does_not_hold_results_back() -> None:
    finished = threading.Event()
    asked: list[int] = []

    def items() -> Iterator[int]:
        for item in range(3):
            asked.append(item)
            if item:  # by the time the source has another one, the one before is finished
                wait_for(finished)
                finished.clear()
            yield item

    def work(item: int) -> int:
        try:
            return item
        finally:
            finished.set()

    found = run_many(items(), work, nothing, max_workers=8)
    assert next(found) == 0
    assert len(asked) <= 2, "the source was read to its end first"
    assert list(found) == [1, 2]


def test_the_source_is_read_and_progress_is_told_on_the_calling_thread() -> None:
    threads = set()

    def items() -> Iterator[int]:
        threads.add(threading.current_thread())
        yield from range(3)

    def tell(progress: Progress) -> None:
        threads.add(threading.current_thread())

    list(run_many(items(), lambda item: item, nothing, max_workers=2, progress=tell))
    assert threads == {threading.current_thread()}


def fail_odd(item: int) -> int:
    if item % 2:
        raise ValueError(f"odd: {item}")
    return item


@pytest.mark.parametrize("as_completed", [False, True])
def test_errors_are_values_on_request(as_completed: bool) -> None:
    found = list(run_many(range(4), fail_odd, nothing, max_workers=2, return_errors=True, as_completed=as_completed))
    shown = [repr(each) for each in found]
    assert sorted(shown) == sorted(["0", "ValueError('odd: 1')", "2", "ValueError('odd: 3')"])
    if not as_completed:
        assert [str(each) for each in found] == ["0", "odd: 1", "2", "odd: 3"]


def test_the_first_error_ends_everything_and_is_raised() -> None:
    gates = Gates(50)
    aborted = threading.Event()

    def work(item: int) -> str:
        if item == 2:
            gates.wait_for_started(2)
            raise ValueError("number 2")
        return gates.work(item)

    def abort_all() -> None:
        aborted.set()
        gates.open()

    with pytest.raises(ValueError, match="number 2"):
        list(run_many(range(50), work, abort_all, max_workers=3))
    assert aborted.is_set()
    assert sorted(gates.started) == [0, 1], "what had not begun did not begin"
    assert map_threads() == []


def test_what_is_no_exception_is_never_a_value() -> None:
    def work(item: int) -> int:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        list(run_many(range(3), work, nothing, max_workers=2, return_errors=True))


@pytest.mark.parametrize("culprit", ["items", "progress"])
def test_an_error_of_the_source_or_of_progress_comes_out_and_ends_everything(culprit: str) -> None:
    gates = Gates(3)
    gates.open(0)

    def items() -> Iterator[int]:
        yield from range(2)
        if culprit == "items":
            raise ZeroDivisionError
        yield 2

    def tell(progress: Progress) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        list(run_many(items(), gates.work, gates.open, max_workers=1, progress=tell if culprit == "progress" else None))
    assert map_threads() == []


@pytest.mark.parametrize("way", ["break", "close", "throw", "drop"])
def test_leaving_the_loop_aborts_what_is_under_way_and_starts_nothing_more(way: str) -> None:
    gates = Gates(20)
    gates.open(0)
    found = run_many(range(20), gates.work, gates.open, max_workers=2)
    if way == "break":
        for _ in found:
            break
        del found
    else:
        next(found)
        if way == "close":
            found.close()
        elif way == "throw":
            with pytest.raises(LookupError):
                found.throw(LookupError())
        else:
            del found
            gc.collect()
    assert map_threads() == []
    assert len(gates.started) <= 4, "0, and what was under way or next at that time"


def test_leaving_the_loop_does_not_wait_for_what_cannot_be_aborted() -> None:
    gates = Gates(4)
    gates.open(0)
    found = run_many(range(4), gates.work, nothing, max_workers=2)
    next(found)
    began = time.monotonic()
    found.close()
    assert time.monotonic() - began < 1.5
    gates.open()
    wait_until(lambda: map_threads() == [], "the threads do not end by themselves")
    assert len(gates.started) <= 3


def test_an_error_that_was_raised_does_not_keep_the_loop_alive() -> None:
    class Item:
        pass

    items = [Item(), Item()]
    gone = [weakref.ref(item) for item in items]

    def fail(item: Item) -> None:
        raise ValueError

    found = run_many(iter(items), fail, nothing, max_workers=1)
    with pytest.raises(ValueError):
        next(found)
    del items, found
    gc.collect()
    assert [ref() for ref in gone] == [None, None]


def test_progress_counts_what_is_done_and_what_failed() -> None:
    told: list[Progress] = []
    list(run_many(list(range(5)), fail_odd, nothing, max_workers=2, return_errors=True, progress=told.append))
    assert [progress.done for progress in told] == [0, 1, 2, 3, 4, 5]
    assert told[-1] == Progress("runs", done=5, failed=2, total=5)
    assert [progress.failed for progress in told] == sorted(progress.failed for progress in told)
    assert {progress.total for progress in told} == {5}, "a list has a length"
    assert pickle.loads(pickle.dumps(told[-1])) == told[-1]


def test_the_total_of_a_source_without_length_is_known_at_its_end() -> None:
    told: list[Progress] = []
    list(run_many(iter(range(20)), lambda item: item, nothing, max_workers=1, progress=told.append))
    totals = [progress.total for progress in told]
    assert totals[0] is None
    assert totals[-1] == 20
    assert set(totals) == {None, 20}


def test_progress_is_told_before_the_result_is_handed_out() -> None:
    told: list[int] = []
    for number, _ in enumerate(
        run_many(range(3), lambda item: item, nothing, max_workers=1, progress=lambda p: told.append(p.done)), 1
    ):
        assert len(told) >= number


@pytest.mark.parametrize("max_workers", [0, -1, 1001, 2.0, True, None, "8"])
def test_a_number_of_workers_that_is_not_allowed_is_refused_at_once(max_workers: Any) -> None:
    with pytest.raises(MantyxConfigError, match="max_workers: got"):
        run_many([1], lambda item: item, nothing, max_workers=max_workers)


@pytest.mark.parametrize("items", ["a prompt", b"x", {"prompt": "x"}, RunSpec(prompt="x"), 17, None], ids=repr)
def test_what_is_not_several_items_is_refused_at_once(items: Any) -> None:
    with pytest.raises(MantyxConfigError, match=r"items: got .+, must be a list or generator of prompts"):
        run_many(items, lambda item: item, nothing, max_workers=1)


# ------------------------------------------------------------- runs


@tool
def double(number: int) -> int:
    """Double a number."""
    return 2 * number


def echo(request: Any) -> list[Any]:
    return [f"You said: {request.prompt}"]


def serve(turns: Any = echo) -> LocalServer:
    return LocalServer(ScriptedModel(turns))


def client_of(server: LocalServer, **settings: Any) -> MantyxClient:
    return quick_client(server, api_key=server.api_key, workspace_slug=server.workspace_slug, **settings)


def texts(results: Any) -> list[str]:
    return [result.text for result in results]


def of_all_runs(server: LocalServer) -> set[str]:
    return {run.status for run in server.runs}


class Held:
    """Runs that wait in the middle until the test lets them go on; those whose prompt is `go` do not."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self._reached: list[threading.Event] = []

    def turns(self, request: Any) -> list[Any]:
        if request.prompt == "go":
            return ["Gone."]
        self._reached.append(threading.Event())
        return [["Begun. ", Pause(self.go, self._reached[-1]), "Ended."]]

    def wait(self, count: int) -> None:
        wait_until(lambda: len(self._reached) >= count, f"not {count} runs have begun")
        for reached in list(self._reached):
            wait_for(reached)


def test_prompts_give_results_in_order() -> None:
    with serve() as server, client_of(server) as client:
        prompts = [str(number) for number in range(20)]
        assert texts(client.map(prompts, **SAY)) == [f"You said: {prompt}" for prompt in prompts]
        assert sorted(texts(client.map(prompts, **SAY, as_completed=True))) == sorted(
            f"You said: {prompt}" for prompt in prompts
        )
        assert list(client.map([], **SAY)) == []


def test_items_of_every_kind() -> None:
    with serve() as server, client_of(server) as client:
        items = [
            "a",
            {"prompt": "b", "metadata": {"k": "b"}, "system_prompt": "Own."},
            {"messages": [{"role": "user", "content": "c"}]},
        ]
        found = list(client.map(items, max_workers=1, **SAY, metadata={"k": "all"}, reasoning_level="low"))
        assert texts(found) == ["You said: a", "You said: b", "You said: c"]
        specs = [run.spec for run in server.runs]
        assert [spec["systemPrompt"] for spec in specs] == ["Help.", "Own.", "Help."]
        assert [spec["metadata"]["k"] for spec in specs] == ["all", "b", "all"]
        assert {spec["reasoningLevel"] for spec in specs} == {"low"}
        own = [RunSpec(system_prompt="x", prompt="d"), {"system_prompt": "y", "prompt": "e"}]
        assert texts(client.map(own)) == ["You said: d", "You said: e"]


@pytest.mark.parametrize(
    ("item", "error", "words"),
    [
        (17, MantyxConfigError, "items: got 17, must be prompts, mappings or specs"),
        (None, MantyxConfigError, "items: got None"),
        ("", MantyxConfigError, "prompt"),
        ({"promt": "x"}, TypeError, "did you mean 'prompt'"),
        ({17: "x"}, TypeError, "17"),
        ({}, MantyxConfigError, "prompt: not given"),
        (RunSpec(system_prompt="x", prompt="y"), TypeError, "not both"),
    ],
    ids=repr,
)
def test_an_item_that_is_not_allowed_is_an_error_in_its_place(item: Any, error: type[Exception], words: str) -> None:
    with serve() as server, client_of(server) as client:
        before, found, after = client.map(["a", item, "b"], **SAY, return_errors=True)
        assert (before.text, after.text) == ("You said: a", "You said: b")
        assert type(found) is error
        assert words in str(found)
        assert len(server.runs) == 2
        with pytest.raises(error):
            list(client.map([item], **SAY))


@pytest.mark.parametrize(
    ("keywords", "error", "words"),
    [
        ({"sytem_prompt": "x"}, TypeError, "did you mean 'system_prompt'"),
        ({"reasoning_level": 101}, MantyxConfigError, "reasoning_level"),
        ({"tools": [double, double]}, MantyxConfigError, "double"),
        ({"timeout": 0}, MantyxConfigError, "timeout: got 0"),
        ({"max_workers": 0}, MantyxConfigError, "max_workers: got 0"),
        ({"output_type": 17}, MantyxConfigError, "output_type"),
    ],
    ids=repr,
)
def test_what_all_runs_have_in_common_is_checked_at_once(
    keywords: dict[str, Any], error: type[Exception], words: str
) -> None:
    with serve() as server, client_of(server) as client:
        with pytest.raises(error, match=words):
            client.map(["a"], **keywords)
        assert not server.requests


def test_tools_run_in_every_run_and_see_the_callers_context() -> None:
    of_caller: contextvars.ContextVar[str] = contextvars.ContextVar("of_caller", default="?")
    seen: list[str] = []

    @tool
    def look(number: int) -> int:
        """Look."""
        seen.append(of_caller.get())
        return 2 * number

    def turns(request: Any) -> list[Any]:
        return [[ToolUse("look", {"number": int(request.prompt)})], lambda again: again.messages[-1]["content"]]

    of_caller.set("caller")
    with serve(turns) as server, client_of(server) as client:
        prompts = [str(number) for number in range(12)]
        # A generator: read once, for all runs.
        found = client.map(prompts, tools=(each for each in [look]), max_workers=4, **SAY)
        assert texts(found) == [str(2 * number) for number in range(12)]
    assert seen == ["caller"] * 12


def test_a_handler_may_map_itself() -> None:
    @tool
    def ask_both(first: str, second: str) -> str:
        """Ask two others."""
        return ", ".join(texts(client.map([first, second], **SAY)))

    def turns(request: Any) -> list[Any]:
        if request.prompt == "both":
            return [[ToolUse("ask_both", {"first": "a", "second": "b"})], lambda again: again.messages[-1]["content"]]
        return echo(request)

    with serve(turns) as server, client_of(server, max_tool_workers=1) as client:
        assert texts(client.map(["both"] * 2, tools=[ask_both], **SAY)) == ["You said: a, You said: b"] * 2


@dataclass
class Answer:
    number: int


def test_answers_are_parsed_as_the_type_that_the_calling_code_names() -> None:
    @dataclass
    class Local:
        number: int

    def turns(request: Any) -> list[Any]:
        return [json.dumps({"number": 17}) if request.prompt == "a" else "I cannot."]

    with serve(turns) as server, client_of(server) as client:
        assert [result.output for result in client.map(["a", "a"], output_type=Local, **SAY)] == [Local(17)] * 2
        good, bad = client.map(["a", "b"], output_type="Answer", return_errors=True, **SAY)
        assert good.output == Answer(17)
        assert isinstance(bad, MantyxParseError)
        assert bad.text == "I cannot."
        assert {run.spec["outputSchema"]["schema"]["required"][0] for run in server.runs} == {"number"}


def test_failed_runs_are_values_with_all_that_is_known() -> None:
    def turns(request: Any) -> list[Any]:
        return [["Half", Failure("it broke")]] if request.prompt == "bad" else echo(request)

    told: list[Progress] = []
    with serve(turns) as server, client_of(server) as client:
        found = list(client.map(["a", "bad", "b"], return_errors=True, progress=told.append, **SAY))
        assert [type(each) for each in found] == [RunResult, MantyxRunError, RunResult]
        assert found[1].partial_text == "Half"
        assert told[-1] == Progress("runs", 3, 1, 3)
        assert [str(each) for each in pickle.loads(pickle.dumps(found))] == [str(each) for each in found]
        with pytest.raises(MantyxRunError, match="it broke"):
            list(client.map(["a", "bad", "b"], **SAY))


def test_the_first_error_cancels_the_other_runs() -> None:
    held = Held()

    def turns(request: Any) -> list[Any]:
        if request.prompt == "bad":
            held.wait(2)
            return [Failure("it broke")]
        return held.turns(request)

    with serve(turns) as server, client_of(server) as client:
        began = time.monotonic()
        with pytest.raises(MantyxRunError, match="it broke"):
            list(client.map(["a", "b", "bad", "c", "d"], max_workers=3, **SAY))
        assert time.monotonic() - began < 3
        assert map_threads() == []
        assert len(server.runs) == 3
        wait_until(lambda: of_all_runs(server) == {"cancelled", "failed"}, "a run was left going")


def test_the_time_is_that_of_each_run() -> None:
    held = Held()
    with serve(held.turns) as server, client_of(server) as client:
        found = list(client.map(["a", "go", "b"], timeout=0.3, return_errors=True, **SAY))
        assert [type(each) for each in found] == [MantyxTimeoutError, RunResult, MantyxTimeoutError]
        wait_until(lambda: of_all_runs(server) == {"cancelled", "succeeded"}, "a run was left going")


@pytest.mark.parametrize("way", ["break", "close", "error in the loop"])
def test_leaving_the_loop_cancels_the_runs_that_go_on(way: str) -> None:
    held = Held()
    with serve(held.turns) as server, client_of(server) as client:
        found = client.map(["go", *"abcdefgh"], max_workers=4, **SAY)
        assert next(found).text == "Gone."
        held.wait(3)
        began = time.monotonic()
        if way == "break":
            del found
        elif way == "close":
            found.close()
        else:
            with pytest.raises(KeyError):
                found.throw(KeyError("of the loop"))
        assert time.monotonic() - began < 1
        assert map_threads() == []
        wait_until(lambda: of_all_runs(server) == {"cancelled", "succeeded"}, "a run was left going")
        assert len(server.runs) <= 5, "nothing more was started"
        assert texts(client.map(["go"], **SAY)) == ["Gone."], "the client is usable afterwards"


def test_a_run_that_is_just_being_created_when_the_loop_is_left_is_cancelled_too() -> None:
    held, gate = Held(), threading.Event()
    with serve(held.turns) as server, client_of(server) as client:
        found = client.map(["go", "b"], max_workers=2, **SAY)
        fault = server.faults.add(hold_answer(gate), route="create", when=lambda request: b'"b"' in request.body)
        assert next(found).text == "Gone."
        assert fault.struck.wait(DEADLINE_S)
        began = time.monotonic()
        found.close()
        assert time.monotonic() - began < 1.2, "closing does not wait for the server"
        gate.set()
        wait_until(lambda: map_threads() == [], "a thread was left")
        wait_until(lambda: of_all_runs(server) == {"cancelled", "succeeded"}, "the run was left going")


def test_closing_the_client_ends_the_loop() -> None:
    held = Held()
    with serve(held.turns) as server, client_of(server) as client:
        found = client.map(["a", "b"], **SAY)
        closer = threading.Thread(target=lambda: (held.wait(2), client.close()))
        closer.start()
        with pytest.raises(MantyxError, match="closed"):
            next(found)
        closer.join(DEADLINE_S)
        held.go.set()


def test_help_shows_every_field() -> None:
    names = inspect.signature(MantyxClient.map).parameters
    assert {
        "items",
        "max_workers",
        "as_completed",
        "return_errors",
        "progress",
        "system_prompt",
        "tools",
    } <= names.keys()
    assert "fields" not in names


# ------------------------------------------------------------- processes


@pytest.mark.parametrize("arguments", ["", ", as_completed=True", ", return_errors=True", ", timeout=500"])
def test_ctrl_c_cancels_every_run_and_comes_out_within_a_second(arguments: str) -> None:
    held = Held()
    with serve(held.turns) as server:
        program = f"""
            try:
                for result in client.map(["go", "a", "b", "c", "d", "e"], max_workers=4, system_prompt="x"{arguments}):
                    say(result.text)
            except KeyboardInterrupt:
                say(time.monotonic() - pressed_at < 1.0)
            say(soon_none(lambda: [t.name for t in threading.enumerate() if "mantyx-map" in t.name] + ours()))
            say(next(client.map(["go"], system_prompt="x")).text)
            client.close()
        """
        with Child(server.client_settings(), program) as child:
            child.expect("Gone.")
            held.wait(4)
            child.press_ctrl_c()
            child.expect("True")
            child.expect("[]")
            child.expect("Gone.")
            child.ends(3)
        wait_until(lambda: of_all_runs(server) == {"cancelled", "succeeded"}, "a run was left going")
        assert len(server.runs) == 6


def test_a_program_that_ends_in_the_middle_of_a_loop_ends() -> None:
    held = Held()
    with serve(held.turns) as server:
        program = """
            found = client.map(["go", "a", "b"], system_prompt="x")
            say(next(found).text)
        """
        with Child(server.client_settings(), program) as child:
            child.expect("Gone.")
            child.ends(5)
        held.go.set()


def test_a_ctrl_c_that_comes_just_before_the_wait_is_not_lost() -> None:
    held = Held()
    with serve(held.turns) as server:
        program = """
            def press():
                "Another thread gets the signal: main is not woken, as by one that comes just before its wait."
                def names(frame):
                    return [frame.f_code.co_name, *names(frame.f_back)] if frame else []
                while "take" not in names(sys._current_frames()[threading.main_thread().ident]):
                    time.sleep(0.02)
                time.sleep(0.1)
                signal.pthread_kill(threading.get_ident(), signal.SIGINT)

            signal.signal(signal.SIGINT, pressed)
            threading.Thread(target=press, daemon=True).start()
            try:
                for result in client.map(["go", "a"], system_prompt="x"):
                    say(result.text)
            except KeyboardInterrupt:
                say("interrupted")
            client.close()
        """
        with Child(server.client_settings(), program) as child:
            child.expect("Gone.")
            child.expect("interrupted")
            child.ends(3)


def test_under_gevent(tmp_path: Path) -> None:
    pytest.importorskip("gevent")
    program = tmp_path / "greenlets.py"
    program.write_text(
        "from gevent import monkey; monkey.patch_all()\n"
        "from mantyx_sync import MantyxClient\n"
        "with MantyxClient() as client:\n"
        "    print([result.text for result in client.map(['a', 'b'], system_prompt='x', max_workers=1)])\n"
        "    print(next(client.map(['a', 'b'], system_prompt='x')).text)\n"
    )
    with serve() as server:
        run = subprocess.run(
            [sys.executable, str(program)],
            env=environment(server.client_settings()),
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    assert run.stdout.splitlines() == ["['You said: a', 'You said: b']", "You said: a"], run.stderr
