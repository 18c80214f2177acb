"""What a client, its sessions and its copies with other options share: the API, the tool threads, the runs followed.

Here runs are created, once, and given to a thread that follows them.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any, Callable, Iterable, Mapping

from .api import WorkspaceAPI
from .api_errors import api_error, rate_limit, request_id
from .errors import MantyxAPIError, MantyxConfigError, MantyxError
from .events import RunEvent
from .output import OutputType
from .reader import FollowSettings, RunReader, warn_if_threads_are_off
from .recovery import ambiguous, find_run, may_exist, tag_run
from .results import RunResult
from .roster import Roster
from .run import Run
from .run_events import ABORT_TIMEOUT_S, deadline_after
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

if TYPE_CHECKING:
    import requests
    from typing_extensions import Literal

    Purpose = Literal["run", "message"]

__all__ = ["Workspace"]


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
        self.api = WorkspaceAPI(
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
        self.executor = ToolExecutor(max_tool_workers)
        self.deadlines = Deadlines()
        self._readers: Roster[RunReader] = Roster()

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
        other.api = WorkspaceAPI(transport, self._slug)
        return other

    @property
    def follow_settings(self) -> FollowSettings:
        """How patiently streams are followed."""
        return FollowSettings(self.settings.stream_idle_timeout, self.settings.reconnect_timeout)

    def close(self) -> None:
        """Let go of every run that is followed, of idle threads and of connections."""
        for reader in self._readers.items():
            reader.close()
        self.executor.close()
        self.api.transport.close()

    def cancel_run(self, run_id: str) -> None:
        """Ask the server to cancel a run; its handlers in this process hear of it. One request; blocks."""
        self.api.cancel_run(run_id)
        for reader in self._readers.items():
            if reader.run_id == run_id:
                reader.calls.cancel()

    def give_up(self, run_id: str) -> None:
        """Ask the server to cancel a run that nobody follows any more; wait for that less than a second."""
        with contextlib.suppress(Exception):  # a hook or token source of the caller's may raise whatever it likes
            self.api.cancel_run(run_id, timeout=ABORT_TIMEOUT_S, deadline=time.monotonic() + ABORT_TIMEOUT_S)

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
        default_tools: Iterable[Any] = (),
    ) -> Run:
        """Create a run and follow it. Blocks until it is created.

        Args:
            output_type: As `MantyxClient.run_agent`; or an `OutputType`.
            path: The route that creates it.
            default_tools: What this process answers for where the spec names no tools.

        Raises:
            MantyxConfigError: The spec is not allowed; nothing was sent.
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
        body = spec.to_wire(purpose)
        tag = tag_run(body) if self.settings.recoverable_runs else None
        answer: Answer | None = None
        try:
            run_id, stream_url, answer = self.api.create_run(path, body, deadline)
        except MantyxError as error:
            if not may_exist(error):
                raise
            if tag is None:
                if isinstance(error, MantyxAPIError):
                    raise
                raise ambiguous(error, None) from error
            run_id = find_run(self.api, tag, error, deadline)
            stream_url = self.api.stream_url(run_id)
        tools: Any = default_tools if spec.tools is OMITTED else spec.tools
        try:
            return self.follow(
                run_id,
                stream_url,
                tools,
                deadline,
                wants_events=wants_events,
                is_owned=is_owned,
                output=output,
                answer=answer,
            )
        except BaseException:  # there can be no more threads, or Ctrl-C just now: nobody will follow it
            self.give_up(run_id)
            raise

    def attach(self, run_id: str, tools: tuple[Any, ...], last_seq: int, timeout: float | None) -> Run:
        """Follow a run that exists; see `MantyxClient.attach_run`."""
        warn_if_threads_are_off()
        return self.follow(
            run_id,
            self.api.stream_url(run_id),
            tools,
            deadline_after(timeout),
            wants_events=True,
            last_seq=last_seq,
            attach=bool(tools),
        )

    def follow(
        self,
        run_id: str,
        stream_url: str,
        tools: Iterable[Any],
        deadline: float | None,
        *,
        wants_events: bool,
        is_owned: bool = False,
        last_seq: int = 0,
        attach: bool = False,
        output: OutputType | None = None,
        answer: Answer | None = None,
    ) -> Run:
        """Start a thread that follows a run; return the run."""
        settings = self.settings
        request = request_id(answer.headers) if answer is not None else None
        limits = rate_limit(answer.headers) if answer is not None else None
        reader = RunReader(
            self.api,
            run_id,
            stream_url,
            self.follow_settings,
            registry=Registry(tools),
            executor=self.executor,
            deadlines=self.deadlines,
            keep_events=wants_events,
            keep_deltas=settings.keep_deltas,
            last_seq=last_seq,
            attach=attach,
            output=output,
            request_id=request,
            rate_limit=limits,
        )
        self._readers.add(reader)
        run = Run(
            self.api,
            reader,
            self.deadlines,
            deadline=deadline,
            is_owned=is_owned,
            request_id=request,
            rate_limit=limits,
        )
        try:
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
