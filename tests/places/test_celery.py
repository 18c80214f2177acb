"""Celery with a real Redis and real workers: processes that are killed, limits that are met, and what comes back."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pickle
import pty
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
import uuid
from functools import partial
from pathlib import Path
from typing import Any, Callable, Iterator, Optional

import pytest

import mantyx_sync.local.routes
from mantyx_sync import (
    MantyxClient,
    MantyxRunCancelled,
    MantyxRunError,
    MantyxTimeoutError,
    RunResult,
)
from mantyx_sync.local import LocalServer, ScriptedModel, ToolUse
from mantyx_sync.local.faults import hold, hold_answer
from mantyx_sync.local.model import Pause
from mantyx_sync.recovery import IDEMPOTENCY_KEY
from tests import waiting
from tests.processes import kill_group

pytestmark = pytest.mark.filterwarnings("ignore:Call to deprecated setex:DeprecationWarning")  # Celery's own
HERE = Path(__file__).parent
ROOT = HERE.parents[1]
EXAMPLE = ROOT / "examples" / "celery_batch"
DEADLINE_S = 40.0
wait_until = partial(waiting.wait_until, deadline_s=DEADLINE_S)


def own_environment(url: str, **more: str) -> dict[str, str]:
    env = {key: value for key, value in os.environ.items() if not key.startswith(("MANTYX_", "CELERY_"))}
    path = os.pathsep.join([str(ROOT), str(EXAMPLE)])
    return {**env, "PYTHONPATH": path, "CELERY_BROKER_URL": url, "PYTHONWARNINGS": "error::ResourceWarning", **more}


# ------------------------------------------------------------- Redis, and workers


@pytest.fixture(scope="module")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start a Redis of our own, on loopback alone."""
    program = shutil.which("redis-server")
    assert program, "redis-server is missing; tests/places/setup installs it"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = tmp_path_factory.mktemp("redis")
    options = ["--bind", "127.0.0.1", "--port", str(port), "--save", "", "--appendonly", "no", "--dir", str(folder)]
    with subprocess.Popen([program, *options], stdout=subprocess.DEVNULL) as process:
        try:

            def is_up() -> bool:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as peer:
                    peer.sendall(b"PING\r\n")
                    return peer.recv(5) == b"+PONG"
                return False

            wait_until(is_up, "Redis does not start")
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def app(redis_url: str) -> Iterator[Any]:
    """Return the workers' application as this process, the producer, uses it."""
    names = ("tasks", "pace", "tests.places.celery_app")
    before, os.environ["CELERY_BROKER_URL"] = os.environ.get("CELERY_BROKER_URL"), redis_url
    try:
        from tests.places import celery_app

        yield celery_app.app
        celery_app.app.backend.result_consumer.stop()
        celery_app.app.close()
        celery_app.app.backend.client.close()
        sys.path.remove(str(EXAMPLE))
    finally:
        for name in names:
            sys.modules.pop(name, None)
        os.environ.pop("CELERY_BROKER_URL")
        if before is not None:
            os.environ["CELERY_BROKER_URL"] = before


class Worker:
    """A Celery worker, in a process group of its own. Leaving the block kills what is left of it."""

    def __init__(self, url: str, folder: Path, *options: str, app: str = "tests.places.celery_app", **env: str) -> None:
        self._log = folder / f"worker-{uuid.uuid4().hex[:6]}.log"
        command = [sys.executable, "-m", "celery", "-A", app, "worker", "--loglevel", "info"]
        command += ["--without-gossip", "--without-mingle", "-n", f"{uuid.uuid4().hex}@localhost", *options]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=ROOT, env=own_environment(url, **env), start_new_session=True
            )

    def __enter__(self) -> Worker:
        wait_until(lambda: " ready." in self.log or self.process.poll() is not None, "the worker does not start")
        assert self.process.poll() is None, self.log
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def kill(self) -> None:
        """Kill the worker and all its processes, as a machine does that loses its power."""
        kill_group(self.process)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ends(self, within: float = 20.0) -> int:
        try:
            return self.process.wait(within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the worker does not end: {self.log[-2000:]}") from None


@pytest.fixture(scope="module")
def worker(redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """Return the worker that most tests share: two processes."""
    with Worker(redis_url, tmp_path_factory.mktemp("worker"), "--concurrency", "2", TEST_RATE_WINDOW_S="2") as started:
        yield started
        started.signal(signal.SIGTERM)
        assert started.ends() == 0
        log = started.log
    assert "Unclosed" not in log
    assert "ResourceWarning" not in log


@pytest.fixture(autouse=True)
def fresh(app: Any) -> Iterator[None]:
    app.backend.client.flushall()
    yield
    for flag in ("test:goes_on", "test:returns"):
        app.backend.client.set(flag, 1)


@contextlib.contextmanager
def serving(app: Any, server: LocalServer) -> Iterator[LocalServer]:
    """Have the workers use a server, as the producer does."""
    with server:
        app.backend.client.set("celery_batch:server", json.dumps(server.client_settings()))
        yield server


def pids(app: Any, task: Any) -> list[int]:
    """Return the processes a task was delivered to so far, in order."""
    return [int(pid) for pid in app.backend.client.lrange(f"test:pids:{task.id}", 0, -1)]


def notes(app: Any, task: Any) -> list[int]:
    """Return what the task's tool noted, in all deliveries."""
    return [int(n) for n in app.backend.client.lrange(f"test:notes:{task.id}", 0, -1)]


def answers(run: Any) -> list[str]:
    """Return the tool uses that the server took an answer for."""
    return [event["data"]["toolUseId"] for event in run.events if event["type"] == "local_tool_result_in"]


def starts(server: LocalServer) -> int:
    return sum(request.route == "create" for request in server.requests)


# ------------------------------------------------------------- a process is killed, at each point of a run


class Script:
    """A model that has 1 noted, stops for the test, has 2 noted and answers."""

    def __init__(self) -> None:
        self.goes_on = threading.Event()
        self.reached = threading.Event()
        first: list[Any] = [ToolUse("note", {"n": 1})]
        second: list[Any] = [Pause(self.goes_on, self.reached), ToolUse("note", {"n": 2})]
        turns = [first, second, ["All noted."]]
        self.model = ScriptedModel(lambda request: turns if request.prompt == "Go" else [["Done."]])


@pytest.mark.parametrize("window", ["before", "unanswered", "thinking", "in a tool", "over"])
def test_a_killed_process_s_task_is_done_by_another_and_paid_once(app: Any, worker: Worker, window: str) -> None:
    from tests.places import celery_app

    script, release = Script(), threading.Event()
    with serving(app, LocalServer(script.model)) as server:
        if window == "before":
            server.faults.add(hold(release), route="list")
        elif window == "unanswered":
            server.faults.add(hold_answer(release), route="create")
        redis = app.backend.client
        if window != "thinking":
            script.goes_on.set()
        if window != "in a tool":
            redis.set("test:goes_on", 1)
        task = (celery_app.pause_after if window == "over" else celery_app.held).delay("Go")
        is_there: dict[str, Callable[[], Any]] = {
            "before": lambda: any(request.route == "list" for request in server.requests),
            "unanswered": lambda: server.runs,
            "thinking": script.reached.is_set,
            "in a tool": lambda: redis.get("test:in_tool"),
            "over": lambda: redis.get("test:run_is_over"),
        }
        wait_until(is_there[window], f"the task does not get there: {worker.log[-1500:]}")
        first = pids(app, task)[0]
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: len(pids(app, task)) == 2, "the task is not delivered again")
        for flag in ("test:goes_on", "test:returns"):
            redis.set(flag, 1)
        script.goes_on.set()
        release.set()
        result = task.get(timeout=DEADLINE_S)
        assert result["text"] == "All noted."
        assert [run.id for run in server.runs] == [result["run_id"]]
        assert server.runs[0].metadata == {IDEMPOTENCY_KEY: task.id}
        assert starts(server) == 1
        assert len(answers(server.runs[0])) == len(set(answers(server.runs[0]))) == 2
        # The open call of the process that was killed is run again, since nobody knows how far it came; no other.
        assert notes(app, task) == ([1, 2, 2] if window == "in a tool" else [1, 2])
        assert pids(app, task)[1] != first


def test_a_task_that_is_delivered_again_after_its_result_was_stored_costs_nothing(app: Any, worker: Worker) -> None:
    from tests.places import celery_app

    app.backend.client.set("test:goes_on", 1)
    script = Script()
    script.goes_on.set()
    with serving(app, LocalServer(script.model)) as server:
        first = celery_app.held.apply_async(("Go",), task_id="task-1").get(timeout=DEADLINE_S)
        again = celery_app.held.apply_async(("Go",), task_id="task-1")
        wait_until(lambda: len(pids(app, again)) == 2, "the task is not delivered again")
        assert celery_app.leaves_nothing.delay().get(timeout=DEADLINE_S) == []
        assert again.get(timeout=DEADLINE_S) == first
        assert (len(server.runs), notes(app, again)) == (1, [1, 2])


def test_a_machine_that_dies_leaves_its_task_to_another_after_the_visibility_timeout(
    app: Any, redis_url: str, tmp_path: Path
) -> None:
    from tests.places import celery_app

    script = Script()
    with serving(app, LocalServer(script.model)) as server:
        with Worker(redis_url, tmp_path, "--concurrency", "1", "-Q", "other", TEST_VISIBILITY_S="2") as dies:
            task = celery_app.held.apply_async(("Go",), queue="other")
            wait_until(script.reached.is_set, "the run does not get there")
            dies.kill()
        app.backend.client.set("test:goes_on", 1)
        script.goes_on.set()
        with Worker(redis_url, tmp_path, "--concurrency", "1", "-Q", "other", TEST_VISIBILITY_S="2") as takes_over:
            assert task.get(timeout=DEADLINE_S)["run_id"] == server.runs[0].id
            takes_over.signal(signal.SIGTERM)
            assert takes_over.ends() == 0
        assert (len(server.runs), notes(app, task), len(answers(server.runs[0]))) == (1, [1, 2], 2)


# ------------------------------------------------------------- workers that are told to end


@pytest.mark.parametrize("pool", ["prefork", "threads", "gevent"])
def test_a_warm_shutdown_finishes_what_is_under_way(app: Any, redis_url: str, tmp_path: Path, pool: str) -> None:
    from tests.places import celery_app

    script = Script()
    app.backend.client.set("test:goes_on", 1)
    with serving(app, LocalServer(script.model)) as server:
        size = "12" if pool == "gevent" else "3"
        with Worker(redis_url, tmp_path, "--pool", pool, "--concurrency", size, "-Q", "other") as ends:
            others = [app.tasks["celery_batch.answer"].apply_async((f"Prompt {n}",), queue="other") for n in range(6)]
            task = celery_app.held.apply_async(("Go",), queue="other")
            wait_until(script.reached.is_set, f"the run does not get there: {ends.log[-1500:]}")
            ends.signal(signal.SIGTERM)
            wait_until(lambda: "Warm shutdown" in ends.log, "the worker hears nothing")
            assert ends.process.poll() is None
            script.goes_on.set()
            assert ends.ends() == 0, ends.log[-2000:]
        assert all(other.state in ("SUCCESS", "PENDING") for other in others), "done, or still in the queue"
        assert all(run.is_terminal for run in server.runs), "a run goes on"
        assert task.get(timeout=DEADLINE_S)["text"] == "All noted."


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_cold_shutdown_leaves_the_run_to_whoever_gets_the_task(
    app: Any, redis_url: str, tmp_path: Path, pool: str
) -> None:
    from tests.places import celery_app

    script = Script()
    with serving(app, LocalServer(script.model)) as server:
        with Worker(redis_url, tmp_path, "--pool", pool, "--concurrency", "1", "-Q", "other") as ends:
            task = celery_app.held.apply_async(("Go",), queue="other")
            wait_until(script.reached.is_set, "the run does not get there")
            ends.signal(signal.SIGQUIT)
            if pool == "threads":  # a thread cannot be stopped: the worker waits for it
                script.goes_on.set()
                app.backend.client.set("test:goes_on", 1)
            ends.ends()
        app.backend.client.set("test:goes_on", 1)
        script.goes_on.set()
        with Worker(redis_url, tmp_path, "--pool", pool, "--concurrency", "1", "-Q", "other") as takes_over:
            assert task.get(timeout=DEADLINE_S)["text"] == "All noted."
            takes_over.signal(signal.SIGTERM)
            takes_over.ends()
        assert (len(server.runs), notes(app, task), len(answers(server.runs[0]))) == (1, [1, 2], 2)


@pytest.mark.parametrize("limit", ["soft", "hard"])
def test_a_time_limit_of_celery_leaves_no_run_going(app: Any, worker: Worker, limit: str) -> None:
    from celery.exceptions import SoftTimeLimitExceeded, TimeLimitExceeded

    from tests.places import celery_app

    script = Script()
    with serving(app, LocalServer(script.model)) as server:
        hard = limit == "hard"
        test_task = celery_app.stubborn if hard else celery_app.held
        task = test_task.apply_async(("Go",), soft_time_limit=0.5, time_limit=1 if hard else 30)
        with pytest.raises(SoftTimeLimitExceeded if limit == "soft" else TimeLimitExceeded):
            task.get(timeout=DEADLINE_S)
        wait_until(lambda: server.runs[0].status == "cancelled", "the run goes on")
        assert celery_app.leaves_nothing.delay().get(timeout=DEADLINE_S) == []


def test_a_task_that_is_revoked_has_its_run_cancelled(app: Any, worker: Worker) -> None:
    from celery.exceptions import TaskRevokedError

    from tests.places import celery_app

    script = Script()
    with serving(app, LocalServer(script.model)) as server:
        task = celery_app.held.delay("Go")
        wait_until(script.reached.is_set, "the run does not get there")
        app.control.revoke(task.id, terminate=True)
        with pytest.raises(TaskRevokedError):
            task.get(timeout=DEADLINE_S)
        wait_until(lambda: server.runs[0].status == "cancelled", "the run goes on")


# ------------------------------------------------------------- many prompts


def producer(redis_url: str, *options: str, stderr: Any = subprocess.PIPE) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "produce.py", *options],
        cwd=EXAMPLE,
        env=own_environment(redis_url),
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    )


def test_a_batch_comes_back_whole_and_one_that_is_started_again_goes_on(
    app: Any, worker: Worker, redis_url: str
) -> None:
    with producer(redis_url, "--count", "240", "--batch", "b1") as first:
        said, told = first.communicate(timeout=90)
    lines = [json.loads(line) for line in said.splitlines()]
    assert first.returncode == 0, told
    assert sorted(line["prompt"] for line in lines) == list(range(240))
    assert len({line["run_id"] for line in lines}) == 240
    assert all("says: " in line["text"] for line in lines)
    assert "240 prompts answered, 0 failed" in told
    deliveries = app.backend.client.keys("test:pids:b1-*")
    with producer(redis_url, "--count", "243", "--batch", "b1") as second:
        said, told = second.communicate(timeout=90)
    assert second.returncode == 0, told
    again = [json.loads(line) for line in said.splitlines()]
    assert len(again) == 243
    assert {line["run_id"] for line in lines} < {line["run_id"] for line in again}
    assert len(app.backend.client.keys("test:pids:b1-*")) == len(deliveries) + 3


def test_the_producer_shows_how_far_the_batch_is_where_somebody_looks(worker: Worker, redis_url: str) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    try:
        with producer(redis_url, "--count", "30", stderr=theirs) as program:
            os.close(theirs)
            seen: list[bytes] = []

            def read() -> None:
                with contextlib.suppress(OSError):  # how a terminal ends
                    while True:
                        seen.append(os.read(ours, 4096))

            reading = threading.Thread(target=read)
            reading.start()
            program.communicate(timeout=60)
            reading.join(DEADLINE_S)
        assert program.returncode == 0
    finally:
        os.close(ours)
    shown = b"".join(seen).decode()
    assert re.search(r"30/30|30 of 30", shown), shown
    assert re.search(r"\b(\d|1\d)/30|\b(\d|1\d) of 30", shown), shown


@pytest.mark.parametrize(
    "options",
    [
        ("--concurrency", "2", "--max-tasks-per-child", "8"),
        ("--concurrency", "8", "--pool", "threads"),
        ("--concurrency", "32", "--pool", "gevent"),  # its worker looks for tasks every two seconds once it is full
    ],
    ids=["renewed", "threads", "gevent"],
)
def test_other_pools_and_processes_that_are_renewed_do_the_same(
    app: Any, redis_url: str, tmp_path: Path, options: tuple[str, ...]
) -> None:
    with serving(app, LocalServer()) as server:
        with Worker(redis_url, tmp_path, "-Q", "other", *options) as working:
            task = app.tasks["celery_batch.answer"]
            results = [task.apply_async(('What is the price of "hose"?',), queue="other") for _ in range(30)]
            texts = [result.get(timeout=DEADLINE_S)["text"] for result in results]
            assert all("25.0" in text for text in texts)
            working.signal(signal.SIGTERM)
            assert working.ends() == 0, working.log[-2000:]
            assert "Traceback" not in working.log
        assert len(server.runs) == 30
        assert {run.status for run in server.runs} == {"succeeded"}


def test_a_fleet_stays_at_the_limit_instead_of_running_into_it(
    app: Any, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    window, limit, prompts = 2.0, 20, 60
    monkeypatch.setattr(mantyx_sync.local.routes, "_WINDOW_S", window)
    with serving(app, LocalServer(rate_limits={"run_starts": limit})) as server:
        task = app.tasks["celery_batch.answer"]
        began = time.monotonic()
        results = [task.delay('What is the price of "hose"?') for _ in range(prompts)]
        for result in results:
            result.get(timeout=DEADLINE_S)
        took = time.monotonic() - began
        refused = starts(server) - prompts
        assert len(server.runs) == prompts
        assert 1 <= refused <= 6, f"{refused} of {starts(server)} starts were refused"
        assert took < 3 * prompts / limit * window, f"the fleet idles: {took:.1f} s"


def test_the_sizes_of_a_machine_are_measured(redis_url: str) -> None:
    options = ["--seconds", "0.05", "--each", "0.2", "--processes", "1", "--threads", "2"]
    done = subprocess.run(
        [sys.executable, "sizing.py", *options],
        cwd=EXAMPLE,
        env=own_environment(redis_url),
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines()[2:]]
    assert [row[:2] for row in rows] == [["Celery, prefork", "1"], ["Celery, threads", "2"], ["`client.map`", "2"]]
    assert [row[4] for row in rows] == ["2", "1", "1"]
    assert all(float(row[2]) > 0.5 and int(row[5]) > 5 for row in rows), rows


# ------------------------------------------------------------- what comes back


def test_errors_come_back_through_json_as_what_they_are(app: Any, worker: Worker) -> None:
    from tests.places import celery_app

    with pytest.raises(MantyxRunError) as failed:
        celery_app.raises.delay("run").get(timeout=DEADLINE_S)
    error = failed.value
    assert (error.run_id, error.subtype, str(error)) == ("run_1", "truncation", "run run_1 failed (truncation)")
    assert error.error_class is None, "what JSON does not hold; pickle does"
    with pytest.raises(MantyxRunCancelled, match="reason: user") as cancelled:
        celery_app.raises.delay("cancelled").get(timeout=DEADLINE_S)
    assert cancelled.value.run_id == "run_2"
    with pytest.raises(MantyxTimeoutError, match="run_3"):
        celery_app.raises.delay("timeout").get(timeout=DEADLINE_S)


@pytest.mark.parametrize("serializer", ["json", "pickle"])
def test_what_a_backend_keeps_of_an_error_and_of_a_result(app: Any, serializer: str) -> None:
    from celery import Celery

    other = Celery("other", backend=app.conf.result_backend, set_as_current=False)
    other.conf.update(result_serializer=serializer, accept_content=["json", "pickle"])
    error = MantyxRunError("run_1", "error", "failed", error_class="server", retryable=True)
    other.backend.store_result("t1", error, "FAILURE")
    again = other.AsyncResult("t1").result
    assert type(again) is MantyxRunError
    assert (again.run_id, again.subtype, str(again)) == ("run_1", "error", "failed")
    assert again.retryable is (True if serializer == "pickle" else None)
    if serializer == "pickle":
        other.backend.store_result("t2", RunResult("run_1", "text"), "SUCCESS")
        assert other.AsyncResult("t2").result == RunResult("run_1", "text")
        assert pickle.loads(pickle.dumps(again)).retryable
    other.backend.client.close()
    other.close()


def test_a_task_s_id_finds_its_run(app: Any, worker: Worker) -> None:
    app.backend.client.set("test:goes_on", 1)
    with serving(app, LocalServer()) as server, MantyxClient(**server.client_settings()) as client:
        task = app.tasks["celery_batch.answer"].delay('What is the price of "hose"?')
        run_id: Optional[str] = task.get(timeout=DEADLINE_S)["run_id"]
        assert [run.id for run in client.list_runs(metadata={IDEMPOTENCY_KEY: task.id})] == [run_id]
