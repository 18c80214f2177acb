"""Evals (http §3): data sets, runs over them, and running one to its end with its local tools answered."""

from __future__ import annotations

import contextlib
import contextvars
import logging
import threading
import time
from typing import Callable, Mapping

from .api import WorkspaceAPI
from .checks import callbacks, seconds, text, whole_number
from .errors import MantyxError, MantyxNetworkError, MantyxProtocolError, MantyxTimeoutError
from .eval_results import (
    EvalDatasetDetail,
    EvalDatasetList,
    EvalRunAccepted,
    EvalRunCompare,
    EvalRunDetail,
    EvalRunEvent,
    EvalRunList,
)
from .eval_specs import EvalRunSpec
from .eval_stream import EvalRunStream, eval_path, get_eval_run
from .opened_tools import Keeper, OpenedTools, open_tools
from .progress import Progress, ProgressTo, Reporting
from .reader import SNAPSHOT_TIMEOUT_S, FollowSettings, decode_or_keep, tool_call_of
from .recovery import may_exist
from .roster import Roster
from .run_events import ABORT_TIMEOUT_S, deadline_after
from .tools.calls import RunToolCalls
from .tools.deadlines import Deadlines
from .tools.executor import ToolExecutor
from .transport.bell import Inbox
from .transport.retry import Repeat
from .transport.url import Query, segment

__all__ = ["Evals"]

log = logging.getLogger(__name__)

CHECK_S = 15.0
"""How often the record of an eval is looked at while its stream is silent about its end."""
LAG_S = 10.0
"""How long an eval's record may lag behind its stream."""
TAIL_S = 1.0
"""How long a stream may lag behind the record of an eval that has ended, where somebody wants its events."""
JOIN_S = 1.0

OnEvent = Callable[[EvalRunEvent], None]


class Evals:
    """The evals of a workspace. Safe to use from any thread; every method blocks."""

    def __init__(
        self,
        api: WorkspaceAPI,
        settings: FollowSettings,
        executor: ToolExecutor,
        deadlines: Deadlines,
        keepers: Roster[Keeper] | None = None,
        progress: ProgressTo | None = None,
    ) -> None:
        """Does nothing yet.

        Args:
            progress: Told of servers that are started, and of an eval that has nobody of its own.
        """
        self._keepers: Roster[Keeper] = Roster() if keepers is None else keepers
        self._api = api
        self._settings = settings
        self._executor = executor
        self._deadlines = deadlines
        self._progress: ProgressTo | None = progress

    def list_eval_datasets(self) -> EvalDatasetList:
        """List the data sets of the workspace. One request."""

        def fetch(cursor: str | None) -> EvalDatasetList:
            answer = self._api.request("GET", "/eval-datasets", query={"cursor": cursor})
            return EvalDatasetList.from_wire(answer.json(), fetch)

        return fetch(None)

    def get_eval_dataset(self, dataset_id: str) -> EvalDatasetDetail:
        """Return a data set with its cases. One request.

        Raises:
            MantyxNotFoundError: There is no such data set.
        """
        path = f"/eval-datasets/{segment(text(dataset_id, 'dataset_id'))}"
        return EvalDatasetDetail.from_wire(self._api.request("GET", path).json())

    def create_eval_run(self, spec: EvalRunSpec, deadline: float | None = None) -> EvalRunAccepted:
        """Start an eval and return its id. One request; MCP servers and A2A agents are asked what they offer before it.

        Nobody answers its local tools unless somebody follows it: `run_eval` does.

        Args:
            deadline: On the monotonic clock.

        Raises:
            MantyxAPIError: The server refused it.
            MantyxNetworkError, MantyxTimeoutError: No answer; the message says so if the eval may exist.
            MantyxError: A tool cannot be resolved; nothing was sent.
        """
        with Reporting(self._progress) as report:
            opened = open_tools(spec.offered_tools, deadline, self._keepers, report)
            try:
                return self._create_eval_run(_with_tools(spec, opened), deadline)
            finally:
                opened.let_go()

    def _create_eval_run(self, spec: EvalRunSpec, deadline: float | None) -> EvalRunAccepted:
        try:
            answer = self._api.request("POST", "/eval-runs", body=spec.to_wire(), deadline=deadline)
        except (MantyxNetworkError, MantyxTimeoutError) as error:
            if not may_exist(error):
                raise
            kind = MantyxTimeoutError if isinstance(error, MantyxTimeoutError) else MantyxNetworkError
            raise kind(
                f"{str(error).rstrip('.')}. Whether the eval was created is not known, so it was not tried again: "
                "look for it with list_eval_runs().",
                cause=error,
            ) from error
        return EvalRunAccepted.from_wire(answer.json())

    def list_eval_runs(
        self,
        *,
        dataset_id: str | None = None,
        agent_id: str | None = None,
        status: str | None = None,
        limit: int | None = None,
        offset: int | None = None,
    ) -> EvalRunList:
        """List eval runs, newest first. One request; looping over the page fetches the next ones.

        Args:
            limit: Runs a page.
            offset: How many runs to pass by.

        Raises:
            MantyxConfigError: `limit` or `offset` is not allowed.
        """
        for name, value, low in (("limit", limit, 1), ("offset", offset, 0)):
            if value is not None:
                whole_number(value, name, low)
        query: dict[str, str | int | None] = {
            "datasetId": dataset_id,
            "agentId": agent_id,
            "status": status,
            "limit": limit,
        }

        def fetch(at: int | None) -> EvalRunList:
            page: Query = {**query, "offset": at}
            answer = self._api.request("GET", "/eval-runs", query=page)
            return EvalRunList.from_wire(answer.json(), at or 0, lambda cursor: fetch(int(cursor)))

        return fetch(offset)

    def get_eval_run(self, run_id: str) -> EvalRunDetail:
        """Return an eval run with the results of its cases so far. One request.

        Raises:
            MantyxNotFoundError: There is no such eval run.
        """
        return get_eval_run(self._api, text(run_id, "run_id"))

    def compare_eval_runs(self, run_a: str, run_b: str) -> EvalRunCompare:
        """Compare two runs over one data set, case by case. One request.

        Raises:
            MantyxNotFoundError: One of them does not exist.
        """
        query = {"a": text(run_a, "run_a"), "b": text(run_b, "run_b")}
        return EvalRunCompare.from_wire(self._api.request("GET", "/eval-runs/compare", query=query).json())

    def cancel_eval_run(
        self, run_id: str, timeout: float | None = None, deadline: float | None = None
    ) -> dict[str, bool]:
        """Ask the server to stop an eval. One request; asking twice does no harm.

        Returns:
            `{"ok": True}`, or what the server says.

        Raises:
            MantyxNotFoundError: There is no such eval run.
        """
        path = eval_path(text(run_id, "run_id"), "/cancel")
        answer = self._api.request("POST", path, repeat=Repeat.SAFE, timeout=timeout, deadline=deadline)
        body = answer.json()
        return {"ok": bool(body.get("ok", True)) if isinstance(body, Mapping) else True}

    def stream_eval_run(self, run_id: str) -> EvalRunStream:
        """Return the events of an eval run, from its start. Sends nothing yet; looping does. Runs no tools."""
        return EvalRunStream(self._api, text(run_id, "run_id"), self._settings)

    def run_eval(
        self,
        spec: EvalRunSpec,
        *,
        on_event: OnEvent | None = None,
        progress: ProgressTo | None = None,
        timeout: float | None = None,
        poll_interval: float = 1.0,
    ) -> EvalRunDetail:
        """Run an eval to its end, its local tools answered here, and return it however it ended.

        A time-out, Ctrl-C or an error of a callback cancels the eval.

        Args:
            on_event: Called with each event, on the calling thread.
            progress: Told on the calling thread of servers, and when the eval has got further; see `progress`.
            timeout: Seconds for the whole eval. `None` waits as long as it takes.
            poll_interval: Seconds between two looks at the record, for `progress` or where there is no stream.

        Raises:
            MantyxTimeoutError: `timeout` passed; the eval was cancelled. `run_id` is on the error.
            MantyxNetworkError: The eval could not be followed to its end; it may still be going.
            MantyxAPIError: The server refused the eval, or to let it be followed.
            MantyxError: A tool cannot be resolved; nothing was sent.
        """
        callbacks(on_event=on_event)
        report = Reporting(self._progress if progress is None else progress)
        deadline = deadline_after(timeout)
        poll_interval = seconds(poll_interval, "poll_interval_s")
        with report:
            opened = open_tools(spec.offered_tools, deadline, self._keepers, report)
            try:
                report(Progress("eval cases", 0, 0, None))
                run_id = self._create_eval_run(_with_tools(spec, opened), deadline).run_id
                return self._follow(run_id, opened, deadline, on_event, report, poll_interval)
            finally:
                opened.let_go()

    def _follow(
        self,
        run_id: str,
        tools: OpenedTools,
        deadline: float | None,
        on_event: OnEvent | None,
        report: Reporting,
        poll_interval: float,
    ) -> EvalRunDetail:
        watch = _Watch(self._api, run_id, deadline, report, poll_interval)
        follower: _Follower | None = None
        try:
            follower = _Follower(
                self._api,
                run_id,
                self._settings,
                tools,
                self._executor,
                self._deadlines,
                keeps_events=on_event is not None,
            )
            follower.start()
            return watch.wait_for(follower, on_event)
        except BaseException:
            if not watch.is_lost:
                with contextlib.suppress(Exception):  # a hook of the caller's may raise whatever it likes
                    self.cancel_eval_run(run_id, ABORT_TIMEOUT_S, time.monotonic() + ABORT_TIMEOUT_S)
                    if follower is not None:
                        follower.give_up(ABORT_TIMEOUT_S)
            raise
        finally:
            if follower is not None:
                follower.close()


def _with_tools(spec: EvalRunSpec, opened: OpenedTools) -> EvalRunSpec:
    return spec.with_offered_tools(opened.refs) if opened.has_servers else spec


class _Watch:
    """The caller's side of an eval that is run: callbacks, the record, the end."""

    def __init__(
        self,
        api: WorkspaceAPI,
        run_id: str,
        deadline: float | None,
        report: Reporting,
        poll_interval: float,
    ) -> None:
        self._api = api
        self._run_id = run_id
        self._deadline = deadline
        self._report = report
        self._poll_interval = poll_interval
        self._told: Progress | None = None
        self.is_lost = False
        """True once the eval cannot be followed: it may go on, so it is left alone."""

    def wait_for(self, follower: _Follower, on_event: OnEvent | None) -> EvalRunDetail:
        check_every = self._poll_interval if self._report.is_wanted else CHECK_S
        next_check = time.monotonic() + (0.0 if self._report.is_wanted else check_every)
        ended: EvalRunDetail | None = None
        while True:
            left = TAIL_S if ended is not None else self._time_left()
            try:
                event = follower.events.get(min(time.monotonic() + left, next_check))
            except TimeoutError:
                if time.monotonic() < next_check:
                    continue
                if ended is not None:
                    return ended
                record = self._look()
                next_check = time.monotonic() + check_every
                if record is not None and record.is_terminal:
                    if on_event is None:
                        return record
                    ended, next_check = record, time.monotonic() + TAIL_S
                continue
            if event is None:
                break
            if on_event is not None:
                on_event(event)
        if ended is not None:
            return ended
        if follower.error is None:
            return self._final_record()
        if follower.has_tools or not isinstance(follower.error, MantyxNetworkError):
            self.is_lost = isinstance(follower.error, MantyxError)
            raise follower.error
        log.info("eval run %s: its stream is not to be had, so its record is asked for", self._run_id)
        return self._poll(follower.error)

    def _final_record(self) -> EvalRunDetail:
        """Return the record of an eval whose stream has ended."""
        until = time.monotonic() + LAG_S
        while True:
            record = self._read()
            if record.is_terminal:
                return record
            if time.monotonic() >= until:
                self.is_lost = True
                raise MantyxProtocolError(
                    f"eval run {self._run_id}: its stream has ended, but its record says {record.status!r}",
                    run_id=self._run_id,
                )
            threading.Event().wait(min(self._poll_interval, self._time_left()))

    def _poll(self, lost: MantyxError) -> EvalRunDetail:
        failures = 0
        while True:
            record = self._look()
            failures = failures + 1 if record is None else 0
            if record is not None and record.is_terminal:
                return record
            if failures > 3:
                self.is_lost = True
                raise lost
            threading.Event().wait(min(self._poll_interval, self._time_left()))

    def _look(self) -> EvalRunDetail | None:
        """Return the record, or `None` if it is not to be had now."""
        try:
            record = self._fetch(SNAPSHOT_TIMEOUT_S)
        except MantyxError as error:
            self._time_left()
            log.info("eval run %s: its record is not to be had now: %s", self._run_id, error)
            return None
        return self._tell(record)

    def _read(self) -> EvalRunDetail:
        try:
            record = self._fetch()
        except MantyxTimeoutError:
            self._time_left()
            raise
        return self._tell(record)

    def _fetch(self, timeout: float | None = None) -> EvalRunDetail:
        return get_eval_run(self._api, self._run_id, timeout, self._deadline)

    def _tell(self, record: EvalRunDetail) -> EvalRunDetail:
        failed = max(0, record.completed_cases - record.passed_cases)
        progress = Progress("eval cases", record.completed_cases, failed, record.total_cases or None, record.status)
        if progress != self._told:
            self._told = progress
            self._report(progress)
        return record

    def _time_left(self) -> float:
        """Return the seconds that are left, at most an hour.

        Raises:
            MantyxTimeoutError: There are none.
        """
        left = 3600.0 if self._deadline is None else self._deadline - time.monotonic()
        if left <= 0:
            raise MantyxTimeoutError(
                f"eval run {self._run_id} did not end in time and was cancelled", run_id=self._run_id
            )
        return min(left, 3600.0)


class _Follower:
    """The background thread of an eval that is run: it follows the stream and starts tools as their calls arrive."""

    def __init__(
        self,
        api: WorkspaceAPI,
        run_id: str,
        settings: FollowSettings,
        tools: OpenedTools,
        executor: ToolExecutor,
        deadlines: Deadlines,
        *,
        keeps_events: bool,
    ) -> None:
        self._api = api
        self._run_id = run_id
        self._tools = tools
        self._executor = executor
        self._deadlines = deadlines
        self._keeps_events = keeps_events
        self.events: Inbox[EvalRunEvent | None] = Inbox()
        """What arrived, if events are kept; `None` when no more will."""
        self.error: BaseException | None = None
        self._stopped = threading.Event()
        self._is_given_up = False
        # By agent run: each case is one, and ids of tool calls need only be unique within it.
        self._calls: dict[str, RunToolCalls] = {}
        self._stream = EvalRunStream(api, run_id, settings, is_busy=self._is_busy)
        # Handlers see the context variables of the caller.
        context = contextvars.copy_context()
        # Owned by this object: `close` wakes it by shutting its socket and joins it. A daemon, since nothing is lost
        # when the process ends: the eval is the server's.
        self._thread = threading.Thread(
            target=lambda: context.run(self._run), name=f"mantyx-eval-{run_id}", daemon=True
        )

    @property
    def has_tools(self) -> bool:
        """True if there are tools to answer for."""
        return bool(self._tools.registry().names)

    def start(self) -> None:
        """Start the thread.

        Raises:
            MantyxError: There can be no more threads, or the interpreter is ending.
        """
        try:
            self._thread.start()
        except RuntimeError as error:
            raise MantyxError(
                f"eval run {self._run_id}: no thread can be started to follow it ({error})", code="no_thread"
            ) from error

    def give_up(self, timeout: float) -> None:
        """Answer the calls at work, and for a moment those that still come: the eval was cancelled, and waits for them.

        Args:
            timeout: Seconds of an exchange; half as long for all answers, and again for the end of the eval.
        """
        self._is_given_up = True
        self._api.surrender_calls(list(self._calls.values()), timeout, timeout / 2)
        if self.has_tools and self._thread.is_alive():
            self._thread.join(timeout / 2)

    def close(self) -> None:
        """Free the thread, the socket and the places of tools; the server is not told."""
        self._stopped.set()
        self._stream.close()
        for calls in list(self._calls.values()):
            calls.close()
        if self._thread.ident is not None:
            with contextlib.suppress(RuntimeError):  # it is being started just now, and will find itself closed
                self._thread.join(JOIN_S)

    def _is_busy(self) -> bool:
        return any(calls.is_busy for calls in list(self._calls.values()))

    def _run(self) -> None:
        try:
            with self._stream as stream:
                for batch in stream.batches():
                    # Tools first: they must not wait for the caller to look.
                    for event in batch:
                        if event.type == "local_tool_call":
                            self._start_tool(event)
                    if self._keeps_events:
                        for event in batch:
                            self.events.put(event)
        except BaseException as error:  # whatever it is: the caller must hear of it, not wait
            self.error = error
        finally:
            self._stopped.set()
            for calls in list(self._calls.values()):
                calls.close()
            self.events.put(None)

    def _start_tool(self, event: EvalRunEvent) -> None:
        call = tool_call_of(decode_or_keep(dict(event.raw)))
        agent_run = event.data.get("agentRunId")
        if call is None or not isinstance(agent_run, str) or not agent_run:
            log.warning("eval run %s: a tool call that names no agent run or no call cannot be answered", self._run_id)
            return
        calls = self._calls.get(agent_run)
        if calls is None:
            calls = self._calls[agent_run] = RunToolCalls(
                agent_run,
                self._tools.registry(),
                self._executor,
                self._deadlines,
                lambda run_id, body: self._api.post_tool_result(run_id, body, self._stopped),
            )
            if self._stopped.is_set():  # looked at behind the line above: who closes sets it, then closes all calls
                calls.close()
        if self._is_given_up:
            self._api.surrender_calls([calls], ABORT_TIMEOUT_S, ABORT_TIMEOUT_S / 2)
        calls.start(call)
