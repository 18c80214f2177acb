"""MANTYX runs on behalf of A2A tasks: one thread for each that is under way, one at a time for each context.

A thread begins with its task and ends when nothing is left to do, so that an idle server has none.
"""

from __future__ import annotations

import atexit
import contextlib
import contextvars
import logging
import os
import threading
import time
import weakref
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Callable, Deque, Iterator, Tuple

from ...errors import MantyxConflictError, MantyxError, MantyxNotFoundError, MantyxRunCancelled
from ...failures import describe_failure
from ...spec import RunSpec
from ...uwsgi_threads import warn_if_threads_are_off
from ..rpc import INTERNAL_ERROR
from .calls import Refused
from .conversations import Conversations
from .current import CURRENT, CurrentTask
from .inputs import TaskInput
from .relay import FetchFile, Relay
from .tasks import TaskRecord

if TYPE_CHECKING:
    from ...client import MantyxClient
    from ...run import Run

__all__ = ["AgentRunner", "Job", "RunnerSettings"]

log = logging.getLogger(__name__)

SHUT_DOWN = "The agent was shut down before the task was done."
BUSY_PAUSES_S = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4)
"""How long a message waits, again and again, for a session that is busy with a run this process does not know."""
GIVE_UP_TIMEOUT_S = 0.5

ContextKey = Tuple[str, str]


@dataclass(frozen=True)
class RunnerSettings:
    """How tasks are carried out."""

    run_timeout: float | None
    max_running: int
    cancel_timeout: float
    output_type: Any = field(default=None, repr=False)
    is_structured: bool = False
    fetch_file: FetchFile | None = None
    describe_failure: Callable[[BaseException], str] = describe_failure


class Job:
    """What is to be done for one task."""

    def __init__(self, record: TaskRecord, given: TaskInput, *, accepts_data: bool = True) -> None:
        """Prepare it, on the thread of the caller's request: the run sees that thread's context variables.

        Args:
            accepts_data: The caller takes JSON as data.
        """
        self.record = record
        self.given = given
        self.accepts_data = accepts_data
        self.context = contextvars.copy_context()
        self.unwanted = threading.Event()
        """Nobody wants a run of it any more; looked at before and when there is one."""
        self.is_let_go = False
        """Its run is not waited for any more: the server is being closed, or it did not stop when it was told to."""
        self._lock = threading.Lock()
        self._run: Run | None = None

    @property
    def key(self) -> ContextKey:
        """The context it belongs to."""
        return (self.record.owner, self.record.context_id)

    def take(self, run: Run) -> None:
        """Note the run that was created for it; cancel it if that is what somebody asked for meanwhile."""
        with self._lock:
            self._run = run
            is_unwanted = self.unwanted.is_set()
        if self.is_let_go:
            run.let_go()
        elif is_unwanted:
            try:
                _cancel(run)
            except MantyxError as error:  # whoever cancels gives it up in the end
                log.warning("task %s: its run could not be cancelled: %s", self.record.id, error)

    def cancel_run(self) -> None:
        """Have the platform cancel the run, now or as soon as there is one. One request at most; blocks.

        Raises:
            MantyxError: The platform could not be asked.
        """
        with self._lock:
            self.unwanted.set()
            run = self._run
        if run is not None:
            _cancel(run)
        self.record.drop_question()  # a tool that waits for an answer keeps the run from ending

    def let_go(self) -> None:
        """Have its thread stop waiting for the run. Does not block."""
        with self._lock:
            self.is_let_go = True
            self.unwanted.set()
            run = self._run
        if run is not None:
            run.let_go()


def _cancel(run: Run) -> None:
    try:
        run.cancel()
    except (MantyxConflictError, MantyxNotFoundError) as error:  # it has ended just now
        log.info("run %s could not be cancelled: %s", run.run_id, error, extra={"run_id": run.run_id})


class AgentRunner:
    """Carry out tasks. All methods may be called from any thread of the process that made it."""

    def __init__(
        self,
        client: MantyxClient,
        spec: RunSpec,
        settings: RunnerSettings,
        conversations: Conversations | None,
    ) -> None:
        """Start nothing yet.

        Args:
            spec: What every run is told, but for what the caller says.
            conversations: The sessions of contexts. Without them every message is a run by itself.
        """
        self._client = client
        self._spec = spec
        self._settings = settings
        self._conversations = conversations
        self._lock = threading.Lock()
        self._waiting: Deque[Job] = deque()
        self._running: dict[Job, threading.Thread | None] = {}  # by job; its thread, once there is one
        self._busy: set[ContextKey] = set()
        self._jobs: weakref.WeakValueDictionary[str, Job] = weakref.WeakValueDictionary()
        self._is_closed = False
        self._at_exit: Callable[[], None] | None = None

    def submit(self, job: Job) -> None:
        """Begin a job, or have it wait: for a place among those that run at once, and for its context.

        Raises:
            Refused: The server is being closed, or there can be no more threads.
        """
        warn_if_threads_are_off()
        with self._lock:
            if self._is_closed:
                raise Refused(INTERNAL_ERROR, "The agent is being shut down.")
            self._jobs[job.record.id] = job
            self._waiting.append(job)
            started = self._next_job()
        if started is None:
            return
        # Owner: this object. `close` wakes it by letting go of its run, and joins it. A daemon, since `close` runs
        # at the end of the interpreter too.
        thread = threading.Thread(target=self._work, args=(started,), name=_thread_name(started), daemon=True)
        with self._lock:
            self._running[started] = thread
        try:
            thread.start()
        except RuntimeError as error:
            with self._lock:
                self._end(started)
            started.record.finish("failed", self._describe(error))
            raise Refused(INTERNAL_ERROR, "The agent cannot take on more tasks at the moment.") from error

    def cancel(self, record: TaskRecord) -> None:
        """Stop the work on a task; return when it is over, canceled or not. Blocks, `cancel_timeout` at most.

        A run that does not stop in that time is left to itself, and the task is canceled.

        Raises:
            Refused: The platform could not be asked; the work goes on.
        """
        job = self._jobs.get(record.id)
        if job is None:  # over just now
            record.finish("canceled")
            return
        with self._lock:
            waits = job in self._waiting
            if waits:
                self._waiting.remove(job)
        if waits:
            record.finish("canceled")
            return
        try:
            job.cancel_run()
        except MantyxError as error:
            log.warning("task %s: its run could not be cancelled: %s", record.id, error)
            raise Refused(INTERNAL_ERROR, "The work could not be stopped; it goes on.") from None
        if not record.ended.wait(self._settings.cancel_timeout):
            log.warning("task %s: its run did not stop within %s s", record.id, self._settings.cancel_timeout)
            record.finish("canceled")
            job.let_go()

    def close(self, timeout: float) -> None:
        """End everything: tasks fail, their runs are cancelled. Waits for the threads, `timeout` seconds at most."""
        with self._lock:
            self._is_closed = True
            waiting = list(self._waiting)
            self._waiting.clear()
            running = dict(self._running)
            at_exit, self._at_exit = self._at_exit, None
        if at_exit is not None:
            atexit.unregister(at_exit)
        for job in [*waiting, *running]:
            job.record.finish("failed", SHUT_DOWN)
            job.let_go()
        until = time.monotonic() + timeout
        for thread in running.values():
            if thread is not None and thread is not threading.current_thread():
                with contextlib.suppress(RuntimeError):  # it is being started just now, and will find itself closed
                    thread.join(max(0.0, until - time.monotonic()))
        if self._conversations is not None:
            self._conversations.close()

    # On the threads of tasks

    def _work(self, job: Job) -> None:
        current: Job | None = job
        while current is not None:
            threading.current_thread().name = _thread_name(current)
            current.context.run(self._perform, current)
            with self._lock:
                self._end(current)
                current = None if self._is_closed else self._next_job()
                if current is not None:
                    self._running[current] = threading.current_thread()

    def _next_job(self) -> Job | None:
        """Take the first job that can begin. Called with the lock held."""
        if len(self._running) >= self._settings.max_running:
            return None
        for job in self._waiting:
            if self._conversations is None or job.key not in self._busy:
                self._waiting.remove(job)
                self._busy.add(job.key)
                self._running[job] = None
                return job
        return None

    def _end(self, job: Job) -> None:
        self._running.pop(job, None)
        self._busy.discard(job.key)

    def _perform(self, job: Job) -> None:
        """Do a job. Raises nothing, whatever happens: the thread goes on with the next one."""
        record = job.record
        CURRENT.set(CurrentTask(record))
        try:
            if not record.start():  # canceled while it waited
                return
            record.is_behind = lambda: True  # a tool may be called before we have the run in hand
            run = self._begin(job)
            if run is None:
                record.finish("canceled")
                return
            log.info("task %s: run %s", record.id, run.run_id, extra={"run_id": run.run_id})
            with self._lock:
                # Not before there is a run: what is registered last is called first, and without the connections
                # that the first request has opened, which are closed at exit as well, no run can be cancelled.
                if self._at_exit is None and not self._is_closed:
                    self._at_exit = _at_exit(self)
            try:
                self._follow(job, run)
            finally:
                if job.is_let_go:
                    self._give_up(run)
        except MantyxRunCancelled:
            record.finish("canceled")
        except MantyxError as error:
            if record.finish("failed", self._describe(error)):
                log.warning("task %s failed: %s", record.id, error, extra={"run_id": error.run_id})
        except BaseException as error:
            if record.finish("failed", self._describe(error)):
                log.exception("task %s failed", record.id)
        finally:
            self._rest(job)

    def _rest(self, job: Job) -> None:
        if self._conversations is not None:
            try:
                self._conversations.rest(*job.key)
            except Exception:
                log.exception("task %s: a session could not be let go of", job.record.id)

    def _describe(self, error: BaseException) -> str:
        try:
            return str(self._settings.describe_failure(error))
        except Exception:
            log.exception("describe_failure raised")
            return describe_failure(error)

    def _follow(self, job: Job, run: Run) -> None:
        settings = self._settings
        relay = Relay(
            job.record,
            is_structured=settings.is_structured,
            accepts_data=job.accepts_data,
            fetch_file=settings.fetch_file,
        )
        job.record.is_behind = lambda: relay.last_seq < run.last_seq
        try:
            with run:
                job.take(run)
                for event in run:
                    relay.feed(event)
                relay.conclude(run.result())
        finally:
            job.record.is_behind = lambda: False  # the record outlives the run

    def _begin(self, job: Job) -> Run | None:
        """Create the run of a job; `None` if it was canceled before there was one."""
        given, timeout, output_type = job.given, self._settings.run_timeout, self._settings.output_type
        if self._conversations is None:
            spec = replace(self._spec, prompt=given.prompt, attachments=list(given.attachments) or None)
            return self._client.stream_agent(spec, timeout=timeout, output_type=output_type)
        owner, context_id = job.key
        is_new, is_second = job.record.named_context is None, False
        for pause in self._patience(job):
            session = self._conversations.session(owner, context_id, is_new=is_new)
            try:
                return session.stream(
                    given.prompt,
                    attachments=list(given.attachments) or None,
                    timeout=timeout,
                    output_type=output_type,
                )
            except (MantyxConflictError, MantyxNotFoundError) as error:
                if isinstance(error, MantyxNotFoundError) or error.code == "session_ended":
                    # The platform has let go of the session: the conversation begins anew, once.
                    self._conversations.forget(owner, context_id)
                    if is_second:
                        raise
                    is_new = is_second = True
                elif error.code != "session_busy" or pause is None:
                    raise
                else:
                    log.info("task %s: its session is busy, waiting %s s", job.record.id, pause)
                    job.unwanted.wait(pause)
        return None

    def _patience(self, job: Job) -> Iterator[float | None]:
        for pause in (*BUSY_PAUSES_S, None):
            if job.unwanted.is_set():
                return
            yield pause

    def _give_up(self, run: Run) -> None:
        """Ask the platform to cancel a run that nobody follows any more, without waiting long."""
        with contextlib.suppress(Exception):  # a hook or token source of the caller's may raise whatever it likes
            self._client.with_options(timeout=GIVE_UP_TIMEOUT_S, max_retries=0).cancel_run(run.run_id)


def _thread_name(job: Job) -> str:
    return f"mantyx-a2a-{job.record.id[:8]}"


def _at_exit(runner: AgentRunner) -> Callable[[], None]:
    """Have a runner closed at the end of the interpreter; one that is dropped before is not kept for it."""
    weak, pid = weakref.ref(runner), os.getpid()

    def close() -> None:
        found = weak()
        if found is not None and os.getpid() == pid:
            found.close(2.0)

    atexit.register(close)
    return close
