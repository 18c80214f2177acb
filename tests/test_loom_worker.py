"""A worker under all that can happen to a task: no effect twice, no result twice, a reason for each end (loom §8)."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any, Callable

import pytest

from mantyx_sync.errors import MantyxConfigError
from mantyx_sync.loom import (
    LoomClient,
    LoomError,
    LoomInvalidRequest,
    LoomNotFound,
    LoomRunFailed,
    LoomTask,
    LoomTaskClosed,
    LoomTaskLost,
    LoomWorker,
    MadeCall,
    TaskFailed,
    TaskStore,
)
from mantyx_sync.loom import task as task_module
from mantyx_sync.loom import worker as worker_module
from mantyx_sync.loom.store import TaskKey
from mantyx_sync.mcp import McpStatusError

from .loom_double import engine as engine_module
from .loom_double.caller import Caller
from .loom_double.engine import MAX_RECEIPTS, Receipt, Refused
from .loom_double.pace import quick  # noqa: F401 - a fixture
from .loom_double.scenarios import strict

pytestmark = pytest.mark.usefixtures("no_leaks")

READY = {"outcome": "ready"}


class Bench:
    """A service, a client, a store, and a run that waits for an agent."""

    def __init__(self, folder: Path) -> None:
        self.caller = Caller()
        self.client = LoomClient(self.caller, entry="/mcp", timeout=5.0)
        self.store = TaskStore(folder / "store")
        self.errors: list[LoomError | None] = []
        run = self.client.run("release", "x").run
        assert run is not None
        self.run_id = run.run_id

    def worker(self, execute: Callable[[LoomTask], Any], **options: Any) -> LoomWorker:
        return LoomWorker(
            self.client,
            strict(execute),
            store=self.store,
            on_done=lambda _task, error: self.errors.append(error),
            **options,
        )

    def work(self, execute: Callable[[LoomTask], Any]) -> bool:
        return self.worker(execute).run_once()

    @property
    def reasons(self) -> list[str | None]:
        """Why tasks were lost, `None` for those that were not."""
        return [error.reason if isinstance(error, LoomTaskLost) else None for error in self.errors]

    @property
    def call_id(self) -> str:
        call = self.client.get_run(self.run_id).pending_agent_call
        assert call is not None
        return call.id

    def key(self, call_id: str) -> TaskKey:
        return TaskKey(self.caller.engine.instance_id, self.run_id, call_id)

    @property
    def status(self) -> str:
        return self.client.get_run(self.run_id).status

    @property
    def code(self) -> str | None:
        error = self.client.get_run(self.run_id).last_error
        return error.code if error is not None else None


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def echo(task: LoomTask, word: str = "hi") -> Any:
    return task.call_tool("echo", {"word": word})


# ------------------------------------------------------------------------------------------- the usual way


def test_a_task_is_claimed_worked_on_and_completed(bench: Bench) -> None:
    def execute(task: LoomTask) -> Any:
        assert (task.agent_id, task.instructions) == ("planner", "Propose the order of work.")
        assert task.skills[0].assets[0].name == "table.csv"
        assert [tool.id for tool in task.tools if tool.is_end_tool] == ["finish"]
        assert task.call_tool("save_order", {"ids": [1, 2]}) == {"saved": 2}
        return READY

    assert bench.work(execute)
    assert (bench.status, bench.errors) == ("completed", [None])
    assert bench.caller.effects("complete") == [READY]
    assert list(bench.store.folder.iterdir()) == []


def test_the_claim_id_is_on_disk_before_the_claim(bench: Bench) -> None:
    seen: list[Any] = []

    def look() -> None:
        name, arguments = bench.caller.calls[-1]
        assert name == "claim_agent_call"
        journal = bench.store.load(bench.key(arguments["callId"]))
        assert journal is not None
        seen.append((journal.claim_id, arguments["claimId"]))

    bench.caller.before("claim_agent_call", look)
    bench.work(lambda task: READY)
    assert seen[0][0] == seen[0][1]


def test_what_is_kept_is_for_its_owner_alone_and_holds_no_owner_token(bench: Bench) -> None:
    def execute(task: LoomTask) -> Any:
        echo(task)
        path = next(bench.store.folder.glob("*.jsonl"))
        assert path.stat().st_mode & 0o077 == 0
        token = bench.client.get_run(bench.run_id)
        assert token.pending_agent_call is not None
        text = path.read_text()
        owner = bench.caller.engine._runs[bench.run_id].call
        assert owner is not None
        assert owner.owner_token not in text + repr(task) + repr(vars(task))
        return READY

    assert bench.work(execute)
    assert bench.errors == [None]


def test_no_task_is_no_work(bench: Bench) -> None:
    bench.client.cancel_run(bench.run_id)
    assert not bench.work(lambda task: READY)


@pytest.mark.parametrize(
    ("options", "is_done"),
    [({"agents": "planner"}, True), ({"agents": ("writer",)}, False), ({"loom_name": "ask"}, False)],
)
def test_a_worker_takes_only_what_it_is_for(bench: Bench, options: dict[str, Any], is_done: bool) -> None:
    assert bench.worker(lambda task: READY, **options).run_once() is is_done


def test_assets_are_text_or_bytes_and_bounded(bench: Bench) -> None:
    def execute(task: LoomTask) -> Any:
        assert task.read_asset("asset_0").text == "id;size\n1;3\n"
        assert (task.read_asset("asset_1").text, task.read_asset("asset_1").data[:4]) == (None, b"\x89PNG")
        assert len(task.read_asset("asset_3").data) == 1024 * 1024
        with pytest.raises(LoomInvalidRequest, match="larger than 1 MiB"):
            task.read_asset("asset_2")
        with pytest.raises(LoomNotFound):
            task.read_asset("asset_9")
        return READY

    assert bench.work(execute)
    assert bench.errors == [None]


def test_a_run_of_three_tasks_is_followed_through(bench: Bench) -> None:
    run = bench.client.run("three", "x").run
    assert run is not None
    done: list[str | None] = []

    def execute(task: LoomTask) -> Any:
        done.append(task.agent_id)
        return READY

    worker = bench.worker(execute, loom_name="three")
    assert worker.run_once()
    view = bench.client.get_run(run.run_id)
    assert view.pending_action is not None
    bench.client.answer_ask(run.run_id, view.pending_action, {"when": "Monday", "note": "no"})
    assert worker.run_once()
    view = bench.client.get_run(run.run_id)
    assert view.pending_action is not None
    bench.client.answer_ask(run.run_id, view.pending_action, True)
    assert worker.run_once()
    assert (bench.client.get_run(run.run_id).status, done) == ("completed", ["planner", "writer", "checker"])


# ------------------------------------------------------------------------------------------- tools


def test_input_that_was_refused_is_corrected_under_a_new_id(bench: Bench) -> None:
    def execute(task: LoomTask) -> Any:
        with pytest.raises(LoomInvalidRequest, match="ids is missing"):
            task.call_tool("save_order", {})
        assert task.call_tool("save_order", {"ids": [1]}) == {"saved": 1}
        return READY

    assert bench.work(execute)
    ids = [arguments["toolCallId"] for name, arguments in bench.caller.calls if name == "call_agent_tool"]
    assert len(set(ids)) == 2
    assert bench.errors == [None]


def test_calls_of_several_threads_go_one_after_the_other(bench: Bench) -> None:
    def execute(task: LoomTask) -> Any:
        threads = [threading.Thread(target=task.call_tool, args=("slow", {"word": str(i)})) for i in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        return READY

    assert bench.work(execute)
    assert len(bench.caller.effects("slow")) == 3
    assert bench.caller.count("call_agent_tool") == 3
    assert bench.errors == [None]


def test_an_end_tool_closes_the_tools_and_the_result_is_still_taken(bench: Bench) -> None:
    def execute(task: LoomTask) -> Any:
        task.call_tool("finish", {"word": "bye"})
        with pytest.raises(LoomTaskClosed) as caught:
            echo(task)
        assert caught.value.reason == "end_tool"
        return READY

    assert bench.work(execute)
    assert (bench.status, bench.errors) == ("completed", [None])


def test_an_undeclared_tool_is_refused_and_the_task_goes_on(bench: Bench) -> None:
    def execute(task: LoomTask) -> Any:
        with pytest.raises(LoomInvalidRequest, match="declares no tool 'ecko'; did you mean 'echo'"):
            task.call_tool("ecko", {})
        return READY

    assert bench.work(execute)
    assert bench.errors == [None]
    assert bench.caller.count("call_agent_tool") == 0


# ------------------------------------------------------------------------------------------- ends


@pytest.mark.parametrize(
    ("result", "sentence"),
    [
        ({"outcome": "maybe"}, "does not fit the task's output schema"),
        ("ready", "does not fit"),
        (None, "does not fit"),
    ],
)
def test_a_result_that_does_not_fit_is_never_submitted(bench: Bench, result: Any, sentence: str) -> None:
    assert bench.work(lambda task: result)
    assert bench.caller.count("complete_agent_call") == 0
    assert sentence in bench.caller.effects("fail")[0]
    assert isinstance(bench.errors[0], TaskFailed)


def test_an_exception_of_the_executor_fails_the_task_without_its_text(bench: Bench) -> None:
    def execute(task: LoomTask) -> Any:
        raise ValueError("secret")

    assert bench.work(execute)
    assert bench.caller.effects("fail") == ["the executor failed with ValueError"]


@pytest.mark.parametrize("where", ["between", "during"])
def test_a_cancelled_run_stops_the_executor(bench: Bench, where: str) -> None:
    def execute(task: LoomTask) -> Any:
        cancel = threading.Thread(target=bench.client.cancel_run, args=(bench.run_id,))
        cancel.start()
        if where == "between":
            cancel.join(5)
        task.call_tool("long", {"word": "x"})
        raise AssertionError("not reached")

    assert bench.work(execute)
    lost = bench.errors[0]
    assert isinstance(lost, LoomTaskLost)
    assert lost.reason == "cancelled"
    assert bench.caller.count("complete_agent_call") == bench.caller.count("fail_agent_call") == 0


def test_a_task_that_another_worker_has_is_left_alone(bench: Bench, tmp_path: Path) -> None:
    call = bench.client.get_run(bench.run_id).pending_agent_call
    assert call is not None
    bench.client.claim_agent_call(bench.run_id, call.id, "another")
    assert not bench.work(lambda task: READY)
    assert bench.caller.count("claim_agent_call") == 1


def test_a_claim_that_comes_too_late_is_not_tried_again(bench: Bench) -> None:
    call = bench.client.get_run(bench.run_id).pending_agent_call
    assert call is not None
    bench.caller.before(
        "claim_agent_call",
        lambda: bench.caller.engine.call(
            "claim_agent_call", {"runId": bench.run_id, "callId": call.id, "claimId": "another"}
        ),
    )
    worker = bench.worker(lambda task: READY)
    assert not worker.run_once()
    assert not worker.run_once()
    assert bench.caller.count("claim_agent_call") == 1
    assert list(bench.store.folder.iterdir()) == []


def test_a_run_that_is_cancelled_behind_a_lost_claim_is_no_task(bench: Bench) -> None:
    bench.caller.lose("claim_agent_call", "after")
    bench.caller.before("claim_agent_call", lambda: bench.caller.before("claim_agent_call", cancel))

    def cancel() -> None:
        bench.client.cancel_run(bench.run_id)

    assert not bench.work(lambda task: pytest.fail("its run is over"))
    assert bench.caller.count("claim_agent_call") == 2
    assert list(bench.store.folder.iterdir()) == []


def test_two_workers_with_one_store_do_a_task_once(bench: Bench) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def execute(task: LoomTask) -> Any:
        inside.set()
        assert go_on.wait(10)
        return READY

    first = threading.Thread(target=bench.work, args=(execute,))
    first.start()
    assert inside.wait(10)
    assert not bench.work(lambda task: pytest.fail("done twice"))
    go_on.set()
    first.join(10)
    assert bench.caller.effects("complete") == [READY]


# ------------------------------------------------------------------------------------------- stopping, taking up


def test_a_stopped_worker_leaves_its_task_and_the_next_one_takes_it_up(bench: Bench) -> None:
    worker: list[LoomWorker] = []

    def interrupted(task: LoomTask) -> Any:
        echo(task)
        worker[0].stop()
        assert task.cancelled.wait(10)
        with pytest.raises(LoomTaskLost, match="left to be taken up again"):
            echo(task, "late")
        raise RuntimeError("interrupted")

    worker.append(bench.worker(interrupted))
    worker[0].run_forever()
    assert (bench.status, bench.reasons) == ("waiting", ["stopped"])

    def again(task: LoomTask) -> Any:
        assert task.made_calls == (MadeCall("echo", {"word": "hi"}, {"echo": {"word": "hi"}}),)
        assert echo(task) == {"echo": {"word": "hi"}}
        echo(task, "new")
        return READY

    assert bench.work(again)
    assert bench.caller.effects("echo") == [{"word": "hi"}, {"word": "new"}]
    assert bench.status == "completed"


def test_a_worker_that_is_stopped_with_grace_finishes_its_task(bench: Bench) -> None:
    worker: list[LoomWorker] = []

    def execute(task: LoomTask) -> Any:
        worker[0].stop(grace=30)
        echo(task)
        return READY

    worker.append(bench.worker(execute))
    worker[0].run_forever()
    assert (bench.status, bench.errors) == ("completed", [None])


def test_a_worker_ends_while_the_service_cannot_be_reached(bench: Bench) -> None:
    bench.caller.lose("list_runs", "before", times=10_000)
    worker = bench.worker(lambda task: READY)
    thread = threading.Thread(target=worker.run_forever)
    thread.start()
    worker.stop()
    thread.join(5)
    assert not thread.is_alive()


def test_a_result_that_was_decided_is_handed_in_by_the_next_worker_without_working_again(bench: Bench) -> None:
    class Died(BaseException):
        pass

    def die() -> None:
        raise Died

    bench.caller.before("complete_agent_call", die)
    with pytest.raises(Died):
        bench.work(lambda task: READY)
    assert bench.work(lambda task: pytest.fail("worked again"))
    assert (bench.status, bench.caller.effects("complete")) == ("completed", [READY])


def test_a_broken_journal_is_refused_with_its_name(bench: Bench) -> None:
    key = bench.key(bench.call_id)
    bench.store.folder.mkdir()
    journal = bench.store.begin(key)
    journal.path.write_text(journal.path.read_text() + '{"answered": "nothing that was asked"}\n')
    with pytest.raises(MantyxConfigError, match="is not the journal of a task"):
        bench.work(lambda task: READY)
    assert bench.caller.count("claim_agent_call") == 0


def died_in(bench: Bench, *, is_known: bool) -> None:
    """Leave what a worker leaves behind that died in a call of a tool, which the service knows of or does not."""
    journal = bench.store.begin(bench.key(bench.call_id))
    claim = bench.client.claim_agent_call(bench.run_id, bench.call_id, journal.claim_id)
    call = journal.note_call("echo", {"word": "hi"})
    if is_known:
        bench.client.call_agent_tool(claim, call.tool_call_id, call.tool_id, call.input)


def test_a_call_that_was_under_way_when_its_worker_died_is_asked_for_though_the_executor_wants_it_no_more(
    bench: Bench,
) -> None:
    bench.store.folder.mkdir()
    died_in(bench, is_known=True)

    def execute(task: LoomTask) -> Any:
        assert task.made_calls == (MadeCall("echo", {"word": "hi"}, {"echo": {"word": "hi"}}),)
        return READY

    assert bench.work(execute)
    assert bench.caller.effects("echo") == [{"word": "hi"}]


@pytest.mark.parametrize("is_wanted", [True, False])
def test_a_call_that_never_arrived_is_made_only_if_the_executor_wants_it_and_under_its_id(
    bench: Bench, is_wanted: bool
) -> None:
    bench.store.folder.mkdir()
    died_in(bench, is_known=False)
    kept = bench.store.load(bench.key(bench.call_id))
    assert kept is not None

    def execute(task: LoomTask) -> Any:
        assert task.made_calls == ()
        if is_wanted:
            echo(task)
        return READY

    assert bench.work(execute)
    ids = [arguments["toolCallId"] for name, arguments in bench.caller.calls if name == "call_agent_tool"]
    assert ids == ([kept.calls[0].tool_call_id] if is_wanted else [])


def test_an_end_tool_that_was_called_before_the_crash_still_closes_the_tools(bench: Bench) -> None:
    class Died(BaseException):
        pass

    def dies(task: LoomTask) -> Any:
        task.call_tool("finish", {"word": "bye"})
        raise Died

    with pytest.raises(Died):
        bench.work(dies)

    def again(task: LoomTask) -> Any:
        assert task.are_tools_closed
        with pytest.raises(LoomTaskClosed):
            echo(task)
        assert task.call_tool("finish", {"word": "bye"}) == {"echo": {"word": "bye"}}
        return READY

    assert bench.work(again)
    assert (bench.status, bench.caller.effects("finish")) == ("completed", [{"word": "bye"}])


def test_a_line_that_was_being_written_when_the_worker_died_is_dropped(bench: Bench) -> None:
    key = bench.key(bench.call_id)
    bench.store.folder.mkdir()
    journal = bench.store.begin(key)
    journal.note_call("echo", {"word": "hi"})
    whole = journal.path.read_bytes()
    for size in range(len(whole)):
        journal.path.write_bytes(whole[:size])
        found = bench.store.load(key)
        assert (found is None) == (b"\n" not in whole[:size])
        if found is not None:
            assert found.claim_id == journal.claim_id
            found.note_call("echo", {"word": "new"})
            again = bench.store.load(key)
            assert again is not None
            assert [call.input for call in again.calls] == [{"word": "new"}]


def test_services_with_the_same_ids_share_a_store_without_harm(bench: Bench, tmp_path: Path) -> None:
    other = Bench(tmp_path)
    assert (other.run_id, other.call_id) == (bench.run_id, bench.call_id)

    def execute(task: LoomTask) -> Any:
        assert other.work(lambda task: READY)
        echo(task)
        return READY

    assert bench.work(execute)
    assert (bench.status, other.status) == ("completed", "completed")


def test_what_nobody_can_take_up_any_more_is_removed(bench: Bench, tmp_path: Path) -> None:
    bench.store.folder.mkdir()
    key = bench.key(bench.call_id)
    over = bench.store.begin(key._replace(call_id="CALL-0"))
    unknown = bench.store.begin(key._replace(run_id="RUN-0"))
    recent, old = (bench.store.begin(key._replace(instance_id=name)) for name in ("a", "b"))
    os.utime(old.path, (0, 0))
    assert bench.work(lambda task: READY)
    assert [path.exists() for path in (over.path, unknown.path, recent.path, old.path)] == [False, False, True, False]


def test_a_tool_that_takes_longer_than_a_call_may_is_waited_for(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_module, "UNREACHABLE_S", 0.0)  # the service is reachable: its silence says nothing
    bench.caller.lose("call_agent_tool", "after", times=3)
    assert bench.work(lambda task: echo(task) and READY)
    assert bench.caller.effects("echo") == [{"word": "hi"}]
    assert bench.errors == [None]


def test_a_service_that_is_silent_for_long_leaves_the_task_to_be_taken_up(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_module, "UNREACHABLE_S", 0.0)
    bench.caller.lose("call_agent_tool", "after", times=2)
    bench.caller.before("call_agent_tool", lambda: bench.caller.lose("status", "before"))
    assert bench.work(echo)
    assert (bench.reasons, bench.status) == (["unreachable"], "waiting")
    assert bench.work(lambda task: echo(task) and READY)
    assert (bench.status, bench.caller.effects("echo")) == ("completed", [{"word": "hi"}])


def test_a_stopped_worker_does_not_wait_for_a_tool_and_the_next_one_gets_its_output(bench: Bench) -> None:
    worker: list[LoomWorker] = []

    def execute(task: LoomTask) -> Any:
        threading.Thread(target=stop_when_held).start()
        return task.call_tool("hold", {"word": "x"})

    def stop_when_held() -> None:
        while not bench.caller.engine.held:
            threading.Event().wait(0.01)
        worker[0].stop()

    worker.append(bench.worker(execute))
    begin = time.monotonic()
    worker[0].run_forever()
    assert time.monotonic() - begin < 20, "held for a minute"
    assert (bench.status, bench.reasons) == ("waiting", ["stopped"])
    bench.caller.engine.hold.set()
    assert bench.work(lambda task: task.call_tool("hold", {"word": "x"}) and READY)
    assert bench.caller.effects("hold") == [{"word": "x"}]
    assert bench.status == "completed"


def test_a_result_that_comes_although_the_worker_stops_is_handed_in(bench: Bench) -> None:
    worker: list[LoomWorker] = []

    def execute(task: LoomTask) -> Any:
        worker[0].stop()
        assert task.cancelled.wait(10)
        return READY

    worker.append(bench.worker(execute))
    worker[0].run_forever()
    assert (bench.status, bench.errors) == ("completed", [None])


# ------------------------------------------------------------------------------------------- odd ends


def receipts(bench: Bench) -> dict[str, Receipt]:
    call = bench.caller.engine._runs[bench.run_id].call
    assert call is not None
    return call.receipts


def test_a_service_that_has_256_receipts_of_a_task_takes_no_more_whatever_we_know(bench: Bench) -> None:
    for number in range(MAX_RECEIPTS):
        receipt = receipts(bench)[str(number)] = Receipt("echo", {})
        receipt.done.set()

    def execute(task: LoomTask) -> Any:
        with pytest.raises(LoomTaskClosed) as caught:
            echo(task)
        assert caught.value.reason == "limit"
        return READY

    assert bench.work(execute)
    assert (bench.status, bench.errors) == ("completed", [None])


def test_a_call_waits_for_a_tool_that_an_earlier_process_began(bench: Bench) -> None:
    running = receipts(bench)["of another life"] = Receipt("slow", {})

    def execute(task: LoomTask) -> Any:
        bench.caller.before("call_agent_tool", lambda: bench.caller.before("call_agent_tool", running.done.set))
        echo(task)
        return READY

    assert bench.work(execute)
    assert (bench.status, bench.caller.effects("echo")) == ("completed", [{"word": "hi"}])


def test_an_executor_that_calls_no_tools_hears_that_its_run_was_cancelled(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "WATCH_S", 0.02)

    def execute(task: LoomTask) -> Any:
        bench.client.cancel_run(bench.run_id)
        assert task.cancelled.wait(10)
        assert task.lost_reason == "cancelled"
        raise RuntimeError

    assert bench.work(execute)
    assert bench.reasons == ["cancelled"]
    assert bench.caller.count("fail_agent_call") == 0


def test_a_result_that_the_service_cannot_take_is_given_up_with_the_reason(bench: Bench) -> None:
    def refuse() -> None:
        raise McpStatusError("too large", status=400)

    bench.caller.before("complete_agent_call", refuse)
    assert bench.work(lambda task: READY)
    assert bench.caller.effects("fail") == ["the service did not take the result: HTTP 400"]
    assert isinstance(bench.errors[0], TaskFailed)


def test_an_end_that_an_earlier_process_may_have_handed_in_is_found_in_the_run(bench: Bench) -> None:
    bench.store.folder.mkdir()
    journal = bench.store.begin(bench.key(bench.call_id))
    claim = bench.client.claim_agent_call(bench.run_id, bench.call_id, journal.claim_id)
    journal.note_ending("complete", READY)

    def arrives_late() -> None:
        bench.caller.engine.call("complete_agent_call", {**claim.reference, "result": READY})
        bench.caller.engine._runs[bench.run_id].closed_calls.clear()

    bench.caller.before("complete_agent_call", arrives_late)
    assert bench.work(lambda task: pytest.fail("worked again"))
    assert (bench.status, bench.errors) == ("completed", [None])


def test_a_result_that_the_service_finds_wrong_after_all_is_told(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "_fits", lambda value, schema: False)
    assert bench.work(lambda task: READY)
    failed = bench.errors[0]
    assert isinstance(failed, LoomRunFailed)
    assert failed.code == "AGENT_OUTPUT_INVALID"


@pytest.mark.parametrize("ending", ["complete", "fail"])
def test_an_end_whose_receipt_was_dropped_is_found_in_the_run(bench: Bench, ending: str) -> None:
    def execute(task: LoomTask) -> Any:
        if ending == "fail":
            raise TaskFailed("no")
        return READY

    def drop() -> None:
        bench.caller.before(tool, bench.caller.engine._runs[bench.run_id].closed_calls.clear)

    tool = f"{ending}_agent_call"
    bench.caller.lose(tool, "after")
    bench.caller.before(tool, drop)
    assert bench.work(execute)
    assert bench.caller.count(tool) == 2
    assert [type(error) for error in bench.errors] == [type(None) if ending == "complete" else TaskFailed]
    assert len(bench.caller.effects(ending)) == 1


@pytest.mark.parametrize(
    ("raised", "text"),
    [
        (TaskFailed(" "), "the executor gave the task up"),
        (TaskFailed("x" * 9000), "x" * 2000),
        (KeyError("secret"), "the executor failed with KeyError"),
        (MantyxConfigError("model_id: got 1"), "the executor failed: model_id: got 1"),
    ],
)
def test_the_text_of_a_failure_is_one_that_the_service_takes(bench: Bench, raised: Exception, text: str) -> None:
    def execute(task: LoomTask) -> Any:
        raise raised

    assert bench.work(execute)
    assert bench.caller.effects("fail") == [text]


def test_a_result_that_is_not_json_fails_the_task(bench: Bench) -> None:
    assert bench.work(lambda task: {"outcome": {1, 2}})
    assert "result.outcome: got set" in bench.caller.effects("fail")[0]


def test_a_callback_that_raises_costs_nothing_else(bench: Bench) -> None:
    def broken(*_: Any) -> None:
        raise ValueError

    worker = LoomWorker(bench.client, lambda task: READY, store=bench.store, on_task=broken, on_done=broken)
    assert worker.run_once()
    assert bench.status == "completed"


def test_a_service_that_refuses_for_a_while_is_asked_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    refusals = [Refused("CLI_SERVICE_CLOSING", "closing"), Refused("STORAGE_ERROR", "disk")]
    listed = bench.caller.engine._list_runs

    def refuse(**arguments: Any) -> Any:
        if refusals:
            raise refusals.pop()
        return listed(**arguments)

    monkeypatch.setattr(bench.caller.engine, "_list_runs", refuse)
    worker: list[LoomWorker] = []

    def execute(task: LoomTask) -> Any:
        worker[0].stop(grace=30)
        return READY

    worker.append(bench.worker(execute))
    worker[0].run_forever()
    assert (bench.status, refusals) == ("completed", [])


def test_an_entry_without_agent_tools_is_told_at_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(engine_module.TOOLS, "claim_agent_call")
    with pytest.raises(LoomInvalidRequest, match="Unknown tool: claim_agent_call"):
        bench.worker(lambda task: READY).run_forever()


def test_a_folder_that_cannot_be_used_is_told(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    bench.store = TaskStore(tmp_path / "file" / "store")
    with pytest.raises(MantyxConfigError, match=r"store: .* cannot be used"):
        bench.work(lambda task: READY)


@pytest.mark.parametrize("grace", [-1, True, "x"])
def test_a_grace_that_is_no_duration_is_refused(bench: Bench, grace: Any) -> None:
    worker = bench.worker(lambda task: READY)
    for use in (worker.stop, lambda value: worker.run_forever(grace=value)):
        with pytest.raises(MantyxConfigError, match="grace: got"):
            use(grace)


def test_the_users_state_folder_is_where_claims_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert TaskStore().folder == tmp_path / "mantyx-sync" / "loom"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert TaskStore().folder == tmp_path / ".local" / "state" / "mantyx-sync" / "loom"
