"""The threads that run handlers: places, limits, and nothing that keeps a process or a client alive."""

from __future__ import annotations

import concurrent.futures
import contextvars
import gc
import os
import threading
import weakref
from typing import Callable, Iterator

import pytest

from mantyx_sync.tools import executor as executor_module
from mantyx_sync.tools.executor import Place, ToolExecutor
from mantyx_sync.tools.line import Line
from tests.processes import Child
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("no_leaks")

DEADLINE_S = 10.0


class Gate:
    """Jobs that wait until they are let go, and count themselves."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.lock = threading.Lock()
        self.running = 0
        self.most = 0
        self.finished = 0
        self.names: list[str] = []

    def job(self, name: str = "") -> Callable[[], None]:
        def run() -> None:
            with self.lock:
                self.names.append(name)
                self.running += 1
                self.most = max(self.most, self.running)
            assert self.open.wait(DEADLINE_S)
            with self.lock:
                self.running -= 1
                self.finished += 1

        return run


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open.set()


def executor_of(max_workers: int) -> ToolExecutor:
    return ToolExecutor(max_workers)


def from_daemon(action: Callable[[], object]) -> None:
    """Do what the thread that reads a run does: submit from a daemon."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            action()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(DEADLINE_S)
    assert not thread.is_alive(), "submitting blocks"
    if failures:
        raise failures[0]


def submit(pool: ToolExecutor, *jobs: Callable[[], None], **limits: object) -> list[Place]:
    places: list[Place] = []
    from_daemon(
        lambda: places.extend(
            pool.submit(contextvars.copy_context(), job, **limits)  # type: ignore[arg-type]
            for job in jobs
        )
    )
    return places


def test_no_more_jobs_run_at_once_than_there_are_places(gate: Gate) -> None:
    pool = executor_of(3)
    submit(pool, *[gate.job() for _ in range(10)])
    wait_until(lambda: gate.running == 3, "three jobs should run")
    gate.open.set()
    wait_until(lambda: gate.finished == 10, "all jobs should run")
    assert gate.most == 3
    pool.close()


def test_jobs_start_in_the_order_they_came(gate: Gate) -> None:
    pool = executor_of(1)
    submit(pool, *[gate.job(str(n)) for n in range(8)])
    gate.open.set()
    wait_until(lambda: gate.finished == 8, "all jobs should run")
    assert gate.names == [str(n) for n in range(8)]
    pool.close()


def test_a_limit_of_its_own_holds_one_kind_back_and_not_the_others(gate: Gate) -> None:
    pool, other = executor_of(4), Gate()
    submit(pool, *[gate.job() for _ in range(6)], limiter="narrow", limit=2)
    submit(pool, other.job(), other.job(), limiter="wide", limit=5)
    wait_until(lambda: gate.running == 2 and other.running == 2, "the others should pass the limited ones")
    other.open.set()
    wait_until(lambda: other.finished == 2, "they should end")
    assert gate.running == 2
    gate.open.set()
    wait_until(lambda: gate.finished == 6, "the limited ones should get their turn")
    assert gate.most == 2
    pool.close()


def test_lanes_take_turns(gate: Gate) -> None:
    pool = executor_of(1)
    submit(pool, *[gate.job(f"a{n}") for n in range(5)], lane="a")
    submit(pool, gate.job("b0"), gate.job("b1"), lane="b")
    submit(pool, gate.job("c0"), lane="c")
    gate.open.set()
    wait_until(lambda: gate.finished == 8, "all jobs should run")
    assert gate.names == ["a0", "a1", "b0", "c0", "a2", "b1", "a3", "a4"]
    pool.close()


def test_a_lane_whose_limit_is_reached_does_not_lose_its_turn() -> None:
    line: Line[str] = Line()
    for job, lane in (("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b")):
        line.add(job, lane, job[0])
    assert line.take(never, lambda job: job[0] == "b") == "b1"
    assert [line.take(never, always) for _ in range(4)] == ["a1", "b2", "a2", None]


def test_jobs_that_wait_for_their_limiter_are_not_looked_at_one_by_one() -> None:
    line: Line[int] = Line()
    for number in range(1000):
        line.add(number, None, number % 2)
    looked_at: list[int] = []

    def even(number: int) -> bool:
        looked_at.append(number)
        return number % 2 == 0

    assert [line.take(never, even) for _ in range(501)] == [*range(0, 1000, 2), None]
    assert len(looked_at) <= 2 * 501


def test_jobs_that_nobody_waits_for_are_dropped() -> None:
    line: Line[int] = Line()
    for number in range(6):
        line.add(number, number % 2, None)
    assert line.take(lambda number: number != 3, always) == 3
    assert line.take(never, always) == 5  # 0, 2 and 4 were gone before
    assert line.take(never, always) is None


def never(job: object) -> bool:
    return False


def always(job: object) -> bool:
    return True


def test_a_place_that_is_given_up_serves_the_next_job_although_its_thread_is_stuck(gate: Gate) -> None:
    pool, next_one = executor_of(2), threading.Event()
    stuck = submit(pool, *[gate.job() for _ in range(5)])
    wait_until(lambda: gate.running == 2, "two should be stuck")
    submit(pool, next_one.set)
    for place in reversed(stuck):  # those in the line first
        place.give_up()
        place.give_up()  # twice frees one place
    assert next_one.wait(DEADLINE_S)
    assert len(gate.names) == 2, "jobs that were given up in the line must not start"
    # both places are there again, and no more than both
    second = Gate()
    submit(pool, *[second.job() for _ in range(3)])
    wait_until(lambda: second.running == 2, "two places should be free")
    second.open.set()
    gate.open.set()
    wait_until(lambda: second.finished == 3, "all should end")
    assert second.most == 2
    pool.close()


@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt, BaseException, RecursionError])
def test_a_job_that_raises_frees_its_place(error: type[BaseException]) -> None:
    pool, done = executor_of(1), threading.Event()

    def fail() -> None:
        raise error

    submit(pool, fail, fail, done.set)
    assert done.wait(DEADLINE_S)
    pool.close()


def test_each_job_runs_in_its_own_context() -> None:
    pool, var, seen, done = executor_of(2), contextvars.ContextVar("var", default="none"), [], threading.Event()

    def note() -> None:
        seen.append(var.get())
        var.set("changed by a job")
        if len(seen) == 2:
            done.set()

    for value in ("a", "b"):
        context = contextvars.copy_context()
        context.run(var.set, value)
        from_daemon(lambda context=context: pool.submit(context, note))  # type: ignore[misc]
    assert done.wait(DEADLINE_S)
    assert sorted(seen) == ["a", "b"]
    assert var.get() == "none"
    pool.close()


def test_jobs_of_jobs_have_places_of_their_own(gate: Gate) -> None:
    pool, inner_done, outer_done = executor_of(1), threading.Event(), threading.Event()

    def outer() -> None:
        # what a run does that is started inside a handler: its reader submits in a copy of this context
        submit_in = contextvars.copy_context()
        from_daemon(lambda: pool.submit(submit_in, inner_done.set))
        assert inner_done.wait(DEADLINE_S)
        outer_done.set()

    submit(pool, outer)
    assert outer_done.wait(DEADLINE_S)
    pool.close()


def test_a_short_job_does_not_wait_for_a_place(gate: Gate) -> None:
    pool, done = executor_of(1), threading.Event()
    submit(pool, gate.job(), gate.job())
    from_daemon(lambda: pool.run_now(contextvars.copy_context(), done.set))
    assert done.wait(DEADLINE_S)
    pool.close()


def test_a_closed_executor_can_be_used_again(gate: Gate) -> None:
    pool, done = executor_of(1), threading.Event()
    submit(pool, gate.job())
    pool.close()
    submit(pool, done.set)
    assert done.wait(DEADLINE_S)
    pool.close()
    pool.close()


def test_jobs_in_the_line_of_a_closed_executor_still_run(gate: Gate) -> None:
    pool = executor_of(1)
    submit(pool, gate.job(), gate.job())
    pool.close()
    gate.open.set()
    wait_until(lambda: gate.finished == 2, "the job in the line should run on a thread of its own")


def test_threads_never_keep_the_interpreter_alive_whoever_causes_them(gate: Gate) -> None:
    pool = executor_of(1)
    seen: list[threading.Thread] = []

    def note() -> None:
        seen.append(threading.current_thread())
        gate.job()()

    # from a thread that is no daemon, directly and by freeing a place that another job waits for
    first = pool.submit(contextvars.copy_context(), note)
    waiting = pool.submit(contextvars.copy_context(), note)
    wait_until(lambda: len(seen) == 1, "the first should run")
    first.give_up()
    wait_until(lambda: len(seen) == 2, "the second should run")
    assert all(thread.daemon for thread in seen)
    waiting.give_up()
    gate.open.set()
    pool.close()


def test_a_job_runs_once_when_its_thread_could_not_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, ran, start = executor_of(4), [], threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith("mantyx-tool_"):
            raise RuntimeError("can't start new thread")
        start(thread)

    done = threading.Event()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        submit(pool, lambda: ran.append(1))
        wait_until(lambda: ran, "the job should run on a thread of its own")
    submit(pool, done.set)  # the executor's queue still holds the first job
    assert done.wait(DEADLINE_S)
    wait_until(lambda: next(iter(pool._pools.values()))._executor._work_queue.empty(), "the queue should be empty")
    assert ran == [1]
    pool.close()


def test_no_thread_at_all_is_no_error_of_the_thread_that_reads_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, start = executor_of(1), threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith("mantyx-tool"):
            raise RuntimeError("can't create new thread at interpreter shutdown")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    submit(pool, lambda: None)
    pool.close()


def test_threads_and_pool_go_with_an_executor_that_is_dropped() -> None:
    pool, done = executor_of(4), threading.Event()
    places = submit(pool, done.set)
    assert done.wait(DEADLINE_S)
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("mantyx-tool_")]
    assert threads
    wait_until(lambda: places[0].is_over, "the place should be free")
    gc.disable()  # at once, not when the collector comes by
    try:
        gone = weakref.ref(pool)
        del pool
        assert gone() is None
        places.clear()
        wait_until(lambda: not any(thread.is_alive() for thread in threads), "its threads should end", 3)
    finally:
        gc.enable()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_of_a_fork_has_places_of_its_own(gate: Gate) -> None:
    pool = executor_of(1)
    submit(pool, gate.job())
    wait_until(lambda: gate.running == 1, "the place should be taken")
    with next(iter(pool._pools.values()))._lock:  # as if another thread were inside when the process forks
        child = os.fork()
        if not child:
            done = threading.Event()
            submit(pool, done.set)
            os._exit(0 if done.wait(5) else 1)
    _, status = os.waitpid(child, 0)
    assert os.WEXITSTATUS(status) == 0
    gate.open.set()
    pool.close()


def test_a_worker_that_is_being_made_when_the_main_thread_ends_is_not_waited_for() -> None:
    program = """
    import concurrent.futures.thread, contextvars, weakref
    from mantyx_sync.tools.executor import ToolExecutor

    class Late(weakref.WeakKeyDictionary):
        "The list of workers that are joined at the end. A new one is at its job before it is put there."
        def __setitem__(self, thread, queue):
            threading.main_thread().join(0.3)
            super().__setitem__(thread, queue)

    concurrent.futures.thread._threads_queues = Late()
    began, never = threading.Event(), threading.Event()

    def job():
        began.set()
        never.wait(60)

    pool = ToolExecutor(1)
    threading.Thread(target=lambda: pool.submit(contextvars.copy_context(), job), daemon=True).start()
    began.wait()
    """
    settings = {"api_key": "", "workspace_slug": "", "base_url": ""}
    with Child(settings, program, make_client=False, has_names=False) as child:
        child.ends()


def test_the_hook_that_lets_threads_go_is_there_and_finds_ours(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    # These names are private to the standard library: this test says when a new Python has moved them.
    pool = executor_of(1)
    submit(pool, gate.job())
    wait_until(lambda: gate.running == 1, "the job should run")
    monkeypatch.setattr(executor_module, "_ending", executor_module._Ending())
    joined = concurrent.futures.thread._threads_queues
    assert [thread for thread in joined if thread.name.startswith("mantyx-tool_")]
    with concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="other") as other:
        other.submit(int).result()
        executor_module._let_go_of_threads()
        assert not [thread for thread in joined if thread.name.startswith("mantyx-tool_")]
        assert [thread for thread in joined if thread.name.startswith("other")], "another's threads are none of ours"
    monkeypatch.undo()
    gate.open.set()
    pool.close()
