"""What a client, its sessions and its copies with other options share: the API, the tool threads, the runs followed.

Here runs are created, once, and given to a thread that follows them.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Callable, Mapping

from .api import WorkspaceAPI
from .api_errors import api_error, rate_limit, request_id
from .errors import MantyxAPIError, MantyxConfigError, MantyxError, MantyxNetworkError
from .events import RunEvent
from .opened_tools import CLOSE_S, Keeper, OpenedTools, join_keepers, open_tools
from .output import OutputType
from .progress import Reporting
from .reader import FollowSettings, RunReader
from .recovery import Mark, ambiguous, find_keyed, find_run, key_mark, may_exist, new_mark
from .results import RunResult
from .roster import Roster
from .run import Run
from .run_events import ABORT_TIMEOUT_S, deadline_after, is_left
from .settings import ClientSettings, Credentials
from .spec import OMITTED, RunSpec
from .tools.deadlines import Deadlines
from .tools.executor import ToolExecutor
from .tools.registry import Registry
from .transport.answers import Answer
from .transport.auth import BearerAuth, TokenAuth
from .transport.http import HttpTransport
from .transport.retry import RetryPolicy
from .transport.url import BaseURL
from .uwsgi_threads import warn_if_threads_are_off

if TYPE_CHECKING:
    import requests
    from typing_extensions import Literal

    Purpose = Literal["run", "message"]

__all__ = ["Workspace", "with_tools"]

log = logging.getLogger(__name__)


def with_tools(spec: RunSpec, opened: OpenedTools) -> RunSpec:
    """Return a spec with its tools resolved."""
    return replace(spec, tools=opened.refs) if opened.has_servers else spec


def _nothing() -> None:
    pass


class Workspace:
    """The inside of a `MantyxClient`. Safe to use from any thread."""

    def __init__(
        self,
        credentials: Credentials,
        settings: ClientSettings,
        max_tool_workers: int,
        session: requests.Session | None,
    ) -> None:
        """Does no I/O and starts no thread."""
        base = BaseURL(credentials.base_url)
        source = credentials.token_source
        self.base_url = base.text
        self.settings = settings
        self._api = WorkspaceAPI(
            HttpTransport(
                base,
                auth=TokenAuth(source) if source is not None else BearerAuth(credentials.reveal()),
                make_error=api_error,
                timeout=settings.http_timeout,
                retry=RetryPolicy(max_retries=settings.max_retries),
                headers=settings.headers,
                session=session,
            ),
            credentials.workspace_slug,
        )
        self._slug = credentials.workspace_slug
        self._closed = threading.Event()  # for all that share it
        self.executor = ToolExecutor(max_tool_workers)
        self.deadlines = Deadlines()
        self._readers: Roster[RunReader] = Roster()
        self.keepers: Roster[Keeper] = Roster()

    def changed(self, options: Mapping[str, Any]) -> Workspace:
        """Return a workspace with other settings that shares everything else with this one."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.settings = self.settings.changed(options)
        transport = self.api.transport.derive(
            timeout=other.settings.http_timeout,
            retry=RetryPolicy(max_retries=other.settings.max_retries),
            headers=other.settings.headers,
        )
        other._api = WorkspaceAPI(transport, self._slug)
        return other

    @property
    def api(self) -> WorkspaceAPI:
        """The routes of the workspace.

        Raises:
            MantyxError: The client was closed.
        """
        self._check_open()
        return self._api

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise MantyxError("the client was closed: make another one, or close it later", code="closed")

    @property
    def follow_settings(self) -> FollowSettings:
        """How patiently streams are followed."""
        return FollowSettings(self.settings.stream_idle_timeout, self.settings.reconnect_timeout)

    def close(self) -> None:
        """Let go of every run that is followed, of tools that live elsewhere, of idle threads and of connections.

        What is asked for from here on is refused; what ends by itself may still say so to the server.
        """
        self._closed.set()
        for reader in self._readers.items():
            reader.close()
        keepers = self.keepers.items()
        for keeper in keepers:
            keeper.give_up()
        self.executor.close()
        self._api.transport.close()
        join_keepers(keepers, CLOSE_S)

    def cancel_run(self, run_id: str) -> None:
        """Ask the server to cancel a run; its handlers in this process hear of it. One request; blocks."""
        self.api.cancel_run(run_id)
        for reader in self._readers.items():
            if reader.run_id == run_id:
                reader.calls.cancel()

    def give_up(self, run_id: str) -> None:
        """Ask the server to cancel a run that nobody follows any more; wait for that less than a second."""
        with contextlib.suppress(Exception):  # a hook or token source of the caller's may raise whatever it likes
            self._api.cancel_run(run_id, timeout=ABORT_TIMEOUT_S, deadline=time.monotonic() + ABORT_TIMEOUT_S)

    def _give_up_marked(self, mark: Mark) -> None:
        """Ask the server to cancel the run that carries a mark, if it is found; waits for that less than a second."""
        interrupted = MantyxNetworkError("the request that creates the run was interrupted")
        with contextlib.suppress(Exception):
            self.give_up(find_run(self._api, mark, interrupted, time.monotonic() + ABORT_TIMEOUT_S))

    def create(
        self,
        spec: RunSpec,
        timeout: float | None,
        *,
        wants_events: bool,
        is_owned: bool = False,
        output_type: Any = None,
        path: str = "/agent-runs",
        purpose: Purpose = "run",
        registry: Registry | None = None,
        key: str | None = None,
        session_id: str | None = None,
    ) -> Run:
        """Create a run and follow it. Blocks until it is created, and before that until its tools are resolved.

        Args:
            output_type: As `MantyxClient.run_agent`; or an `OutputType`.
            path: The route that creates it.
            registry: Who answers calls; the owner of the tools closes them. `None`: the tools of the spec, which are
                opened for this run and closed when it is over.
            key: The caller's `idempotency_key`: a run that stands for it is followed, and none created.
            session_id: The session whose message it is.

        Raises:
            MantyxConfigError: The spec is not allowed; nothing was sent.
            MantyxError: A tool cannot be resolved; nothing was sent.
            MantyxAPIError, MantyxNetworkError, MantyxTimeoutError: The run was not created, or nobody knows.
        """
        warn_if_threads_are_off()
        deadline = deadline_after(timeout)
        output = output_type
        if output is not None and not isinstance(output, OutputType):
            output = OutputType(output)
        if output is not None:
            if spec.output_schema is not OMITTED:
                raise MantyxConfigError("output_schema: given together with output_type, must be one of the two")
            spec = spec.with_output_schema(output.to_wire())
        opened: OpenedTools | None = None
        if registry is None:
            spec.validate(purpose)  # before servers are started for it
            opened = self.open_tools(spec.tools, deadline)
            spec, registry = with_tools(spec, opened), opened.registry()
        try:
            started = time.monotonic()
            body, found, mark = spec.to_wire(purpose), None, None
            if key is not None:
                mark = key_mark(key, session_id)
            elif self.settings.recoverable_runs:
                mark = new_mark()
            if mark is not None:
                mark.put_on(body)
            if key is not None and mark is not None:
                found, mark = find_keyed(self.api, mark, deadline)
            if found is None:
                try:
                    run_id, stream_url, answer = self._post(path, body, deadline, mark)
                except BaseException as error:  # Ctrl-C: the server may be creating it just now
                    if (
                        mark is not None
                        and not isinstance(error, Exception)
                        and not is_left(error, has_key=key is not None)
                    ):
                        self._give_up_marked(mark)
                    raise
            else:
                run_id, stream_url, answer = found, self.api.stream_url(found), None
                log.info("run %s: it has the key of the call, so it is followed and none created", run_id)
            try:
                return self.follow(
                    run_id,
                    stream_url,
                    registry,
                    deadline,
                    wants_events=wants_events,
                    is_owned=is_owned,
                    output=output,
                    answer=answer,
                    started=started if found is None else None,
                    opened=opened,
                    # Found by its key, it may have a past, or be another process's: calls may be answered already.
                    attach=key is not None and answer is None,
                    has_key=key is not None,
                )
            except BaseException as error:  # there can be no more threads, or Ctrl-C just now: nobody will follow it
                if found is None and not is_left(error, has_key=key is not None):
                    self.give_up(run_id)
                raise
        except BaseException:
            if opened is not None:
                opened.let_go()
            raise

    def open_tools(self, tools: Any, deadline: float | None = None, report: Reporting | None = None) -> OpenedTools:
        """Resolve the tools of a spec that live elsewhere; see `opened_tools.open_tools`.

        Args:
            report: Whom to tell, and to leave open. `None` tells whom the client has.
        """
        self._check_open()
        tools = () if tools is OMITTED else tools
        if report is not None:
            return open_tools(tools, deadline, self.keepers, report)
        with Reporting(self.settings.progress) as report:
            opened = open_tools(tools, deadline, self.keepers, report)
            try:
                report.close()
            except BaseException:
                opened.let_go()
                raise
        return opened

    def _post(
        self, path: str, body: dict[str, Any], deadline: float | None, mark: Mark | None
    ) -> tuple[str, str, Answer | None]:
        """Create a run, once; return its id, where its stream is, and the answer unless that was lost."""
        try:
            return self.api.create_run(path, body, deadline)
        except MantyxError as error:
            if not may_exist(error):
                raise
            if mark is None:
                if isinstance(error, MantyxAPIError):
                    raise
                raise ambiguous(error, None) from error
            run_id = find_run(self.api, mark, error, deadline)
            return run_id, self.api.stream_url(run_id), None

    def attach(self, run_id: str, tools: tuple[Any, ...], last_seq: int, timeout: float | None) -> Run:
        """Follow a run that exists; see `MantyxClient.attach_run`."""
        warn_if_threads_are_off()
        deadline = deadline_after(timeout)
        opened = self.open_tools(tools, deadline)
        try:
            return self.follow(
                run_id,
                self.api.stream_url(run_id),
                opened.registry() if tools else None,
                deadline,
                wants_events=True,
                last_seq=last_seq,
                attach=bool(tools),
                opened=opened,
            )
        except BaseException:
            opened.let_go()
            raise

    def follow(
        self,
        run_id: str,
        stream_url: str,
        registry: Registry | None,
        deadline: float | None,
        *,
        wants_events: bool,
        is_owned: bool = False,
        last_seq: int = 0,
        attach: bool = False,
        output: OutputType | None = None,
        answer: Answer | None = None,
        has_key: bool = False,
        started: float | None = None,
        opened: OpenedTools | None = None,
    ) -> Run:
        """Start a thread that follows a run, and lets go of `opened` at its end; return the run.

        Args:
            answer: To the request that created it.
            started: When that was sent, on the monotonic clock.
        """
        settings = self.settings
        request = request_id(answer.headers) if answer is not None else None
        limits = rate_limit(answer.headers) if answer is not None else None
        reader = RunReader(
            self._api,
            run_id,
            stream_url,
            self.follow_settings,
            registry=registry,
            executor=self.executor,
            deadlines=self.deadlines,
            keep_events=wants_events,
            keep_deltas=settings.keep_deltas,
            last_seq=last_seq,
            attach=attach,
            output=output,
            request_id=request,
            rate_limit=limits,
            started=started,
            has_key=has_key,
            on_end=_nothing if opened is None else opened.let_go,
        )
        self._readers.add(reader)
        run = Run(
            self._api,
            reader,
            self.deadlines,
            deadline=deadline,
            is_owned=is_owned,
            request_id=request,
            rate_limit=limits,
        )
        try:
            self._check_open()  # looked at behind `add`: who closes says so first, and then closes all that are there
            reader.start()
        except BaseException:
            reader.close(join=0.0)
            raise
        return run

    def complete(
        self,
        run: Run,
        on_event: Callable[[RunEvent], None] | None = None,
        on_assistant_delta: Callable[[str], None] | None = None,
    ) -> RunResult:
        """Call back with the events of a run on this thread, and return its result. Blocks; gives up what fails."""
        with run:
            if on_event is not None or on_assistant_delta is not None:
                for event in run:
                    if on_event is not None:
                        on_event(event)
                    if on_assistant_delta is not None and event.type == "assistant_delta":
                        on_assistant_delta(event.text)
            return run.result()
