"""A worker: finds the agent tasks that runs wait for, has an executor do them, one after the other (loom §8)."""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from typing import TYPE_CHECKING, Any, Callable, Sequence, Union

from ..checks import callbacks, json_copy, refusal, sequence, shown
from ..errors import MantyxConfigError, MantyxError, cut
from ..mcp.errors import McpSessionGone
from ..transport.bell import Bell, Signal
from ..transport.signals import stop_signals
from .calls import LOST
from .errors import (
    LoomConflict,
    LoomError,
    LoomInvalidRequest,
    LoomNotFound,
    LoomRequestError,
    LoomTaskLost,
)
from .following import Pace, failure_of
from .runs import LoomRun, PendingAgentCall
from .store import Journal, TaskKey, TaskStore
from .task import LOOK_TIMEOUT_S, LoomTask

if TYPE_CHECKING:
    from .claims import Claim
    from .client import LoomClient

__all__ = ["Execute", "LoomWorker", "TaskFailed"]

log = logging.getLogger(__name__)

Execute = Callable[[LoomTask], Any]
"""Does a task: returns its result as JSON data, or raises `TaskFailed` with a text for the service."""

GRACE_S = 10.0
"""How long the task at hand may go on when a worker is stopped."""
WATCH_S = 2.0
CLAIM_S = 60.0
MAX_FAILURE_CHARS = 2000
"""Half of what the service takes, which may count otherwise."""
OLD_S = 30 * 86400.0
STOPS = "the worker stops; left to be taken up again"


class TaskFailed(LoomError):
    """Raised by an executor that gives its task up: the text goes to the service, and the run fails."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="task_failed")


class LoomWorker:
    """Does the agent tasks of a service with an executor of the caller's.

    A claim id, each tool call and the result are stored before they are sent. So a worker that is started again, after
    a crash too, takes its task up: the executor runs anew, tool calls with the same input get their kept output, and a
    result that was decided is handed in again.

    One thread works at a time; start several workers for several tasks at once. They may share a store.
    """

    def __init__(
        self,
        client: LoomClient,
        execute: Execute,
        *,
        agents: Union[str, Sequence[str], None] = None,
        loom_name: str | None = None,
        store: TaskStore | str | os.PathLike[str] | None = None,
        on_task: Callable[[LoomTask], None] | None = None,
        on_done: Callable[[LoomTask, LoomError | None], None] | None = None,
    ) -> None:
        """Take what is needed; nothing is asked yet.

        Args:
            execute: Does a task: returns its result, or raises `TaskFailed`. Another exception fails the task as well,
                and its text does not leave the process.
            agents: Only tasks of this agent, or of these (ids); `None` takes all.
            loom_name: Only runs of this loom.
            store: Where claims are kept: a folder, `None` for the user's state folder (see `TaskStore`).
            on_task: Called when a task was claimed.
            on_done: Called when a task is over, with the error if it did not end well.
        """
        callbacks(execute=execute, on_task=on_task, on_done=on_done)
        if execute is None:
            raise refusal("execute", shown(execute), "be a function")
        self._client = client
        self._execute = execute
        self._agents = None
        if agents is not None:
            self._agents = {agents} if isinstance(agents, str) else set(sequence(agents, "agents", "agent ids"))
        self._loom_name = loom_name
        self._store = store if isinstance(store, TaskStore) else TaskStore(store)
        self._on_task = on_task
        self._on_done = on_done
        self._stopped = Signal()
        self._stop_at = math.inf
        self._watch: _Watch | None = None
        self._is_swept = False
        self._not_ours: set[TaskKey] = set()
        """Tasks that others have, or that are over for us: not tried again."""

    # ------------------------------------------------------------------ running

    def run_forever(self, *, grace: float = GRACE_S) -> None:
        """Do tasks until SIGTERM, Ctrl-C, or `stop` from another thread. Blocks.

        A signal stops it as `stop(grace)` does, a second one at once; it returns then, and what signals did before is
        restored. Off the main thread, which alone can take signals, `stop` is what ends it. A service that cannot be
        reached, or refuses, is asked again and again.

        Raises:
            MantyxConfigError: The store cannot be used, or a journal in it is not to be trusted.
            MantyxAuthError: The credential is not accepted (any more).
            LoomInvalidRequest: The service has no such tools: it is another entry, or of another version.
        """
        _check_grace(grace)
        with stop_signals(lambda: self.stop(grace)):
            try:
                self._run()
            except KeyboardInterrupt:
                if not self._is_stopping:
                    raise

    def run_once(self) -> bool:
        """Do one task, if there is one; tell whether there was. Blocks.

        Raises:
            MantyxNetworkError, MantyxTimeoutError: The service cannot be reached.
            LoomRequestError: It refused.
        """
        runs = self._client.list_runs(self._loom_name)
        waiting = [(run, run.pending_agent_call) for run in runs if run.pending_agent_call is not None]
        waiting = [(run, call) for run, call in waiting if call is not None and self._is_for_us(run, call)]
        if not waiting and self._is_swept:
            return False
        instance_id = self._client.status().instance_id
        self._sweep(instance_id)
        keys = [TaskKey(instance_id, run.run_id, call.id) for run, call in waiting if call is not None]
        self._not_ours &= set(keys)  # what nobody waits for any more need not be remembered
        for key, (_run, call) in zip(keys, waiting):
            if self._is_stopping:
                return False
            if key in self._not_ours or (call is not None and call.phase == "claimed" and not self._store.has(key)):
                continue
            if self._work_on(key):
                return True
        return False

    def stop(self, grace: float = 0.0) -> None:
        """Take no more tasks; give the one at hand `grace` seconds, then break it off. Does not block.

        A task that was not finished stays claimed, and a worker with the same store takes it up again. May be called
        from any thread, from a signal's handler, and again with less grace. A worker that was stopped is done.
        """
        _check_grace(grace)
        self._stop_at = min(self._stop_at, time.monotonic() + grace)
        self._stopped.set()
        watch = self._watch
        if watch is not None:
            watch.bell.ring()

    # ------------------------------------------------------------------ inside

    @property
    def _is_stopping(self) -> bool:
        return self._stopped.is_set()

    def _run(self) -> None:
        pace = Pace()
        log.info("worker: looking for tasks")
        while not self._is_stopping:
            try:
                if self.run_once():
                    pace.changed()
                    continue
            except LoomInvalidRequest:
                raise
            except (LoomRequestError, *LOST) as error:
                log.warning("worker: the service cannot be asked (%s); trying again", type(error).__name__)
            if not self._is_stopping:
                self._stopped.wait(pace.next_delay())

    def _is_for_us(self, run: LoomRun, call: PendingAgentCall) -> bool:
        if run.is_terminal:
            return False
        if run.execution is not None and run.execution.agent_executor not in (None, "mcp_client"):
            return False
        return self._agents is None or call.agent_id in self._agents

    def _sweep(self, instance_id: str) -> None:
        """Remove, once, what is left of tasks that nobody can take up any more."""
        if self._is_swept:
            return
        for key, age in self._store.left():
            with self._store.at_work(key) as is_ours:
                if is_ours and (age > OLD_S if key.instance_id != instance_id else self._is_over(key)):
                    self._store.forget(key)
        self._is_swept = True

    def _is_over(self, key: TaskKey) -> bool:
        try:
            pending = self._client.get_run(key.run_id).pending_agent_call
        except LoomNotFound:
            return True
        return pending is None or pending.id != key.call_id

    def _work_on(self, key: TaskKey) -> bool:
        with self._store.at_work(key) as is_ours:
            if not is_ours:
                return False  # asked again: whoever has it may die
            journal = self._store.load(key) or self._store.begin(key)  # the claim id is on disk before the claim
            claim = self._claim(journal)
            if claim is None:
                self._not_ours.add(key)
                self._store.forget(key)
                return False
            task = LoomTask(self._client, claim, journal)
            log.info("task %s (run %s): claimed", key.call_id, key.run_id)
            _tell(self._on_task, task)
            error = self._do(task, journal)
            if isinstance(error, LoomTaskLost) and error.reason in ("stopped", "unreachable"):
                log.info("%s", error)
            else:
                self._not_ours.add(key)
                self._store.forget(key)
            _tell(self._on_done, task, error)
            return True

    def _claim(self, journal: Journal) -> Claim | None:
        """Claim a task; `None` if another has it or it is gone. A lost answer is asked for again with the same id."""
        pace, since = Pace(), time.monotonic()
        key = journal.key
        while True:
            try:
                return self._client.claim_agent_call(key.run_id, key.call_id, journal.claim_id)
            except (LoomConflict, LoomNotFound) as error:
                log.info("task %s: %s", key.call_id, error.code)
                return None
            except LoomRequestError as error:
                if not error.retryable or self._is_late(since):
                    raise
            except McpSessionGone:
                if self._client.status().instance_id != key.instance_id:
                    return None
                if self._is_late(since):
                    raise
            except LOST:
                if self._is_late(since):
                    raise
            self._stopped.wait(pace.next_delay())

    def _is_late(self, since: float) -> bool:
        return self._is_stopping or time.monotonic() - since > CLAIM_S

    def _do(self, task: LoomTask, journal: Journal) -> LoomError | None:
        """Run the executor, unless an earlier process knew the end, and hand that in; return what went wrong."""
        error: LoomError | None = None
        try:
            if journal.ending is None:
                value, error = self._work(task)
                task.decide("complete" if error is None else "fail", value)
            try:
                task.hand_in()
            except LoomInvalidRequest as refused:
                if journal.ending == "fail":
                    raise
                error = TaskFailed(f"the service did not take the result: {cut(refused.server_message)}")
                task.decide("fail", _reason(error))
                task.hand_in()
            return error if error is not None or journal.ending == "fail" else self._refused_result(task)
        except LoomError as failed:
            log.log(logging.INFO if task.lost_reason == "stopped" else logging.WARNING, "%s", failed)
            return failed

    def _work(self, task: LoomTask) -> tuple[Any, LoomError | None]:
        """Return the result, or the text of a failure and the error."""
        failed: LoomError
        self._watch = watch = _Watch(task, lambda: self._stop_at)
        try:
            with watch:
                task.take_up()
                result = self._execute(task)
            if task.lost_reason != "stopped":
                task.raise_if_lost()
            result = json_copy(result, "result")
            problem = task.check_result(result)
            if problem is None:
                return result, None
            failed = TaskFailed(f"the result does not fit the task's output schema: {problem}")
        except (LoomTaskLost, TaskFailed) as error:
            failed = error
        except MantyxConfigError as error:
            failed = TaskFailed(f"the executor failed: {error}")
        except Exception as error:
            log.warning("task %s: the executor raised", task.call_id, exc_info=task.lost_reason is None)
            text = f": {error.message}" if isinstance(error, MantyxError) else ""
            failed = TaskFailed(f"the executor failed with {type(error).__name__}{text}")
        finally:
            self._watch = None
        if time.monotonic() >= self._stop_at:
            task.lose("stopped", STOPS)
        task.raise_if_lost()  # whatever it ended with: it was told to
        if isinstance(failed, LoomTaskLost):
            raise failed
        return _reason(failed), failed

    def _refused_result(self, task: LoomTask) -> LoomError | None:
        """Tell, where it can be seen at once, that the service took the result and then found that it does not fit."""
        try:
            run = task.run = self._client.get_run(task.run_id)
        except MantyxError:
            return None
        if run.last_error is None or run.last_error.code != "AGENT_OUTPUT_INVALID":
            return None
        error = failure_of(run)
        log.warning("task %s: %s", task.call_id, error)
        return error


class _Watch:
    """Looks, while an executor works, whether the run still waits for its task, and whether the worker is to stop."""

    def __init__(self, task: LoomTask, stop_at: Callable[[], float]) -> None:
        self._task = task
        self._stop_at = stop_at
        self._is_over = False
        self.bell = Bell()
        # Owned by this object, which wakes it by the bell and joins it; what it asks has a short time limit.
        self._thread = threading.Thread(target=self._run, name="mantyx-loom-watch", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self.bell.ring()
        self._thread.join(2 * LOOK_TIMEOUT_S + 1.0)

    def _run(self) -> None:
        look_at = time.monotonic() + WATCH_S
        while not self._is_over:
            now = time.monotonic()
            if now >= self._stop_at():
                return self._task.lose("stopped", STOPS)
            if now >= look_at:
                self._task.look()
                if self._task.cancelled.is_set():
                    return None
                look_at = time.monotonic() + WATCH_S
            self.bell.wait(min(look_at, self._stop_at()) - now)
        return None


def _check_grace(grace: float) -> None:
    if isinstance(grace, bool) or not isinstance(grace, (int, float)) or not grace >= 0:
        raise refusal("grace", shown(grace), "be a number of seconds, 0 or above")


def _reason(error: LoomError) -> str:
    return str(error)[:MAX_FAILURE_CHARS].strip() or "the executor gave the task up"


def _tell(callback: Callable[..., None] | None, *given: Any) -> None:
    if callback is not None:
        try:
            callback(*given)
        except Exception:
            log.warning("a callback of a worker raised", exc_info=True)
