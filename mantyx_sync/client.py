"""`MantyxClient`: the front door, one short method for each thing a caller can ask of a workspace."""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Iterable, Literal, Mapping, NoReturn, Sequence

from . import logs
from .errors import (
    MantyxAPIError,
    MantyxConfigError,
    MantyxError,
    api_error,
    rate_limit,
    request_id,
)
from .events import RunEvent
from .limits import MAX_FEEDBACK_CHARS, MAX_PAGE_SIZE
from .models import ModelCatalog
from .results import RunFeedback, RunPage, RunResult, RunSnapshot
from .settings import ClientSettings, read_credentials
from .spec import OMITTED, RunSpec, build_spec, plan_only, spec_signature
from .toolspec import read_tools

if TYPE_CHECKING:
    import requests
    from typing_extensions import Unpack

    from .reader import RunReader
    from .run import Run
    from .spec import RunSpecArgs
    from .transport.http import Answer

__all__ = ["MantyxClient"]


class MantyxClient:
    """A MANTYX workspace, for blocking code (wire §1).

    One client serves a whole process: every method may be called from any thread, and it goes on working in the
    children of a `fork`. Making one opens no connection and starts no thread.
    """

    def __init__(
        self,
        *,
        api_key: str | None = None,
        access_token: str | None = None,
        workspace_slug: str | None = None,
        base_url: str | None = None,
        timeout: float | tuple[float, float] = (10.0, 60.0),
        max_retries: int = 2,
        stream_idle_timeout: float = 60.0,
        reconnect_timeout: float = 300.0,
        max_tool_workers: int = 64,
        recoverable_runs: bool = False,
        keep_deltas: bool = False,
        session: requests.Session | None = None,
        default_headers: Mapping[str, str] | None = None,
        app_info: str = "",
    ) -> None:
        """Check the settings; does no I/O.

        Args:
            api_key: Workspace API key. Without it and `access_token`: `MANTYX_API_KEY` or `MANTYX_ACCESS_TOKEN`.
            access_token: OAuth access token, instead of an API key.
            workspace_slug: Without it `MANTYX_WORKSPACE_SLUG`.
            base_url: Without it `MANTYX_BASE_URL`, else the platform's own address.
            timeout: Seconds for one HTTP exchange: to connect, and for each wait for bytes of the answer; alike or
                as (connect, read). It does not bound a run: `run_agent(timeout=…)` does.
            max_retries: How often an exchange is repeated when that is safe.
            stream_idle_timeout: Seconds of silence after which a run's stream is opened anew.
            reconnect_timeout: Seconds a stream may bring nothing new before the run's snapshot decides.
            max_tool_workers: How many tool handlers run at once.
            recoverable_runs: Tag the metadata of each run, so that a run whose creation was not answered is found
                again and followed instead of being reported as lost.
            keep_deltas: Keep text deltas in `RunResult.events` as well; they take memory.
            session: Your own `requests.Session`: its adapters, proxies, CA and client certificate settings, headers
                and response hooks are used; its cookies, auth and redirect handling are not.
            default_headers: Sent with every request.
            app_info: Your application's name, for the User-Agent.

        Raises:
            MantyxConfigError: A setting is missing or not allowed.
        """
        credentials = read_credentials(api_key, access_token, workspace_slug, base_url)
        del api_key, access_token  # error trackers record the locals of frames
        settings = ClientSettings(
            timeout=timeout,
            max_retries=max_retries,
            stream_idle_timeout=stream_idle_timeout,
            reconnect_timeout=reconnect_timeout,
            recoverable_runs=recoverable_runs,
            keep_deltas=keep_deltas,
            default_headers=default_headers or {},
            app_info=app_info,
        )
        if type(max_tool_workers) is not int or not 1 <= max_tool_workers <= 10_000:
            raise MantyxConfigError(
                f"max_tool_workers: got {max_tool_workers!r}, must be a whole number from 1 to 10000"
            )
        logs.set_up()
        # Imported here, so that importing the package does not load requests and ssl: gevent wants to be first.
        from .api import WorkspaceAPI
        from .tools.deadlines import Deadlines
        from .tools.executor import ToolExecutor
        from .transport.auth import BearerAuth
        from .transport.http import HttpTransport
        from .transport.retry import RetryPolicy
        from .transport.url import BaseURL

        self.workspace_slug = credentials.workspace_slug
        base = BaseURL(credentials.base_url)
        self.base_url = base.text
        self._settings = settings
        self._executor = ToolExecutor(max_tool_workers)
        self._deadlines = Deadlines()
        # A dictionary, since unlike a WeakSet it can be listed while other threads add to it.
        self._runs: weakref.WeakValueDictionary[int, RunReader] = weakref.WeakValueDictionary()
        self._api = WorkspaceAPI(
            HttpTransport(
                base,
                auth=BearerAuth(credentials.reveal()),
                make_error=api_error,
                timeout=settings.http_timeout,
                retry=RetryPolicy(max_retries=max_retries),
                headers=settings.headers,
                session=session,
            ),
            credentials.workspace_slug,
        )

    def __repr__(self) -> str:
        return f"MantyxClient(workspace_slug={self.workspace_slug!r}, base_url={self.base_url!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a MantyxClient cannot be pickled or copied: it holds a credential and connections. Make one where it is "
            "needed (in a Celery task, for example); MANTYX_API_KEY and MANTYX_WORKSPACE_SLUG are read there"
        )

    def __enter__(self) -> MantyxClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close connections and let go of every run that is still followed. The runs go on at the server.

        Handlers at work are told to stop through their context and not waited for.
        """
        for reader in self._readers():
            reader.close()
        self._executor.close()
        self._api.transport.close()

    def with_options(self, **options: Any) -> MantyxClient:
        """Return a client with other settings that shares connections, credential and tool threads with this one.

        Args:
            options: Any of `timeout`, `max_retries`, `stream_idle_timeout`, `reconnect_timeout`,
                `recoverable_runs`, `keep_deltas`, `default_headers`, `app_info`.

        Raises:
            TypeError: An option has no such name.
            MantyxConfigError: A value is not allowed.
        """
        from .api import WorkspaceAPI
        from .transport.retry import RetryPolicy

        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        settings = other._settings = self._settings.changed(options)
        transport = self._api.transport.derive(
            timeout=settings.http_timeout,
            retry=RetryPolicy(max_retries=settings.max_retries),
            headers=settings.headers,
        )
        other._api = WorkspaceAPI(transport, self.workspace_slug)
        return other

    # Runs

    @spec_signature
    def run_agent(
        self,
        spec: RunSpec | None = None,
        *,
        timeout: float | None = None,
        on_event: Callable[[RunEvent], None] | None = None,
        on_assistant_delta: Callable[[str], None] | None = None,
        **fields: Unpack[RunSpecArgs],
    ) -> RunResult:
        """Run an agent and return its result (wire §1). Blocks until the run ends.

        Args:
            spec: A `RunSpec`; or give its fields as keyword arguments.
            timeout: Seconds for the whole run. `None` waits as long as it takes.
            on_event: Called with each event, on the calling thread.
            on_assistant_delta: Called with each piece of the assistant's text, on the calling thread.

        Raises:
            MantyxConfigError: The spec is not allowed; nothing was sent.
            MantyxRunError: The run ended in any way but success.
            MantyxTimeoutError: `timeout` passed; the run was cancelled.
            MantyxAPIError, MantyxNetworkError: The run could not be created or followed.
        """
        wants_events = on_event is not None or on_assistant_delta is not None
        with self._create(_spec(spec, fields), timeout, wants_events=wants_events) as run:
            if wants_events:
                for event in run:
                    if on_event is not None:
                        on_event(event)
                    if on_assistant_delta is not None and event.type == "assistant_delta":
                        on_assistant_delta(event.text)
            return run.result()

    @spec_signature
    def run_plan(
        self,
        *,
        steps: Sequence[str] | None = None,
        brief: str | None = None,
        timeout: float | None = None,
        on_event: Callable[[RunEvent], None] | None = None,
        **fields: Unpack[RunSpecArgs],
    ) -> RunResult:
        """Have a task plan made without running the agent (wire §8.5); it is the result's `plan`. Blocks.

        Args:
            steps: Titles of a plan of your own, instead of the planner's.
            brief: One line about the objective.
            timeout: Seconds for the whole run.
            on_event: Called with each event, on the calling thread.

        Raises:
            MantyxError: As `run_agent`.
        """
        plan = plan_only(steps=steps, brief=brief)
        fields["plan"] = plan
        return self.run_agent(timeout=timeout, on_event=on_event, **fields)

    @spec_signature
    def stream_agent(
        self, spec: RunSpec | None = None, *, timeout: float | None = None, **fields: Unpack[RunSpecArgs]
    ) -> Run:
        """Start a run whose events or text you loop over (wire §4). Blocks until the run is created.

        Best used in a `with` block: leaving it before the run has ended cancels the run. A stream that is dropped
        is let go of when it is collected.

        Args:
            spec: A `RunSpec`; or give its fields as keyword arguments.
            timeout: Seconds for the whole run; it is cancelled then.

        Raises:
            MantyxConfigError: The spec is not allowed; nothing was sent.
            MantyxAPIError, MantyxNetworkError: The run could not be created.
        """
        return self._create(_spec(spec, fields), timeout, wants_events=True, is_owned=True)

    @spec_signature
    def start_agent(
        self, spec: RunSpec | None = None, *, timeout: float | None = None, **fields: Unpack[RunSpecArgs]
    ) -> Run:
        """Start a run that goes on in the background, its tools included, whether or not anybody looks (wire §1).

        Blocks until the run is created.

        Args:
            spec: A `RunSpec`; or give its fields as keyword arguments.
            timeout: Seconds for the whole run, counted for whoever waits for it.

        Raises:
            MantyxConfigError: The spec is not allowed; nothing was sent.
            MantyxAPIError, MantyxNetworkError: The run could not be created.
        """
        return self._create(_spec(spec, fields), timeout, wants_events=True)

    def attach_run(
        self, run_id: str, *, tools: Iterable[Any] = (), last_seq: int = 0, timeout: float | None = None
    ) -> Run:
        """Follow a run that exists, and answer its tool calls from here on (wire §10). Sends nothing yet.

        With `tools`, the run's log is read from its start, so that calls which were answered before are not run
        again and those still open are. Meant for taking over: a process that is still answering goes on as well.

        Args:
            run_id: The run.
            tools: The tools of its spec that this process can answer for.
            last_seq: Events up to this one are not handed out.
            timeout: Seconds for what is left of the run.

        Raises:
            MantyxConfigError: An argument is not allowed.
        """
        _check_run_id(run_id)
        if type(last_seq) is not int or last_seq < 0:
            raise MantyxConfigError(f"last_seq: got {last_seq!r}, must be a whole number, 0 or above")
        from .reader import warn_if_threads_are_off

        warn_if_threads_are_off(stacklevel=3)
        refs = read_tools(tools)
        return self._follow(
            run_id,
            self._api.stream_url(run_id),
            refs,
            _deadline(timeout),
            wants_events=True,
            is_owned=False,
            last_seq=last_seq,
            attach=bool(refs),
        )

    def cancel_run(self, run_id: str) -> None:
        """Ask the server to cancel a run (wire §9). One request; asking twice does no harm.

        If this client follows the run, the run's handlers hear of it through their context.

        Raises:
            MantyxNotFoundError: There is no such run.
        """
        _check_run_id(run_id)
        self._api.cancel_run(run_id)
        for reader in self._readers():
            if reader.run_id == run_id:
                reader.calls.cancel()

    def get_run(self, run_id: str) -> RunSnapshot:
        """Return what the server knows of a run (http §3). One request.

        Raises:
            MantyxNotFoundError: There is no such run.
        """
        _check_run_id(run_id)
        return self._api.get_run(run_id)

    def list_runs(
        self,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        status: str | None = None,
        model_id: str | None = None,
        agent_id: str | None = None,
        metadata: Mapping[str, str] | None = None,
        include_total: bool = False,
    ) -> RunPage:
        """List runs, newest first (http §3). One request; looping over the page fetches the next ones.

        Args:
            limit: Runs a page, 1 to 200.
            cursor: Where to go on, from an earlier page's `next_cursor`.
            metadata: Only runs whose metadata has all of these.
            include_total: Have the server count all matching runs.

        Raises:
            MantyxConfigError: `limit` is not allowed.
        """
        if limit is not None and (type(limit) is not int or not 1 <= limit <= MAX_PAGE_SIZE):
            raise MantyxConfigError(f"limit: got {limit!r}, must be a whole number from 1 to {MAX_PAGE_SIZE}")
        query = {
            "limit": limit,
            "status": status,
            "modelId": model_id,
            "agentId": agent_id,
            "metadata": [f"{key}:{value}" for key, value in metadata.items()] if metadata else None,
            "includeTotal": 1 if include_total else None,
        }

        def fetch(at: str | None) -> RunPage:
            answer = self._api.request("GET", "/agent-runs", query={**query, "cursor": at})
            return RunPage.from_wire(answer.json(), fetch)

        return fetch(cursor)

    def list_models(self) -> ModelCatalog:
        """Return the models that runs can use (http §3). One request."""
        return ModelCatalog.from_wire(self._api.request("GET", "/models").json())

    def submit_run_feedback(
        self,
        run_id: str,
        verdict: Literal["UP", "DOWN"],
        *,
        explanation: str | None = None,
        content_snapshot: str | None = None,
    ) -> RunFeedback:
        """Judge a run (http §3). One request; the last verdict counts.

        Args:
            explanation: At most 8,000 characters.
            content_snapshot: The text that was judged.

        Raises:
            MantyxConfigError: The verdict or the explanation is not allowed.
            MantyxNotFoundError: There is no such run.
        """
        from .transport.retry import Repeat
        from .transport.url import segment

        _check_run_id(run_id)
        if verdict not in ("UP", "DOWN"):
            raise MantyxConfigError(f"verdict: got {verdict!r}, must be 'UP' or 'DOWN'")
        for name, text in (("explanation", explanation), ("content_snapshot", content_snapshot)):
            if text is not None and not isinstance(text, str):
                raise MantyxConfigError(f"{name}: got a {type(text).__name__}, must be a text")
        if explanation is not None and len(explanation) > MAX_FEEDBACK_CHARS:
            raise MantyxConfigError(
                f"explanation: got {len(explanation)} characters, at most {MAX_FEEDBACK_CHARS} are allowed"
            )
        body = {"verdict": verdict, "explanation": explanation, "contentSnapshot": content_snapshot}
        body = {name: value for name, value in body.items() if value is not None}
        path = f"/agent-runs/{segment(run_id)}/feedback"
        return RunFeedback.from_wire(self._api.request("POST", path, body=body, repeat=Repeat.SAFE).json(), run_id)

    def request(
        self,
        method: str,
        path: str,
        *,
        json: object = None,
        params: Mapping[str, Any] | None = None,
        timeout: float | tuple[float, float] | None = None,
    ) -> Any:
        """Send a request to a route that has no method here, and return its decoded JSON.

        Args:
            path: Below the workspace (`"/agent-runs"`), or below the base URL if it starts with `/api/`.
            json: The body.
            params: The query; `None` values are left out, lists are repeated.

        Raises:
            MantyxAPIError, MantyxNetworkError, MantyxTimeoutError: As every method.
        """
        if not path.startswith("/"):
            raise MantyxConfigError(f"path: got {path!r}, must start with a slash")
        send = self._api.transport.request if path.startswith("/api/") else self._api.request
        return send(method.upper(), path, query=params, body=json, timeout=timeout).json()

    # Making and following a run

    def _create(self, spec: RunSpec, timeout: float | None, *, wants_events: bool, is_owned: bool = False) -> Run:
        from .reader import warn_if_threads_are_off
        from .recovery import ambiguous, find_run, may_exist, tag_run
        from .run_events import ABORT_TIMEOUT_S

        warn_if_threads_are_off(stacklevel=4)
        deadline = _deadline(timeout)
        body = spec.to_wire("run")
        tag = tag_run(body) if self._settings.recoverable_runs else None
        answer: Answer | None = None
        try:
            run_id, stream_url, answer = self._api.create_run("/agent-runs", body, deadline)
        except MantyxError as error:
            if not may_exist(error):
                raise
            if tag is None:
                if isinstance(error, MantyxAPIError):
                    raise
                raise ambiguous(error, None) from error
            run_id = find_run(self._api, tag, error, deadline)
            stream_url = self._api.stream_url(run_id)
        try:
            return self._follow(
                run_id,
                stream_url,
                spec.tools or () if spec.tools is not OMITTED else (),
                deadline,
                wants_events=wants_events,
                is_owned=is_owned,
                answer=answer,
            )
        except BaseException:  # there can be no more threads, or Ctrl-C just now: nobody will follow it
            with contextlib.suppress(MantyxError):
                self._api.cancel_run(run_id, timeout=ABORT_TIMEOUT_S, deadline=time.monotonic() + ABORT_TIMEOUT_S)
            raise

    def _follow(
        self,
        run_id: str,
        stream_url: str,
        tools: Iterable[Any],
        deadline: float | None,
        *,
        wants_events: bool,
        is_owned: bool,
        last_seq: int = 0,
        attach: bool = False,
        answer: Answer | None = None,
    ) -> Run:
        from .reader import FollowSettings, RunReader
        from .run import Run
        from .tools.registry import Registry

        settings = self._settings
        request = request_id(answer.headers) if answer is not None else None
        limits = rate_limit(answer.headers) if answer is not None else None
        reader = RunReader(
            self._api,
            run_id,
            stream_url,
            FollowSettings(settings.stream_idle_timeout, settings.reconnect_timeout),
            registry=Registry(tools),
            executor=self._executor,
            deadlines=self._deadlines,
            keep_events=wants_events,
            keep_deltas=settings.keep_deltas,
            last_seq=last_seq,
            attach=attach,
            request_id=request,
            rate_limit=limits,
        )
        self._runs[id(reader)] = reader
        run = Run(
            self._api,
            reader,
            self._deadlines,
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

    def _readers(self) -> list[RunReader]:
        """The runs that are followed."""
        return [reader for reader in (reference() for reference in self._runs.valuerefs()) if reader is not None]


def _spec(spec: RunSpec | None, fields: Mapping[str, Any]) -> RunSpec:
    if spec is None:
        return build_spec(fields, purpose="run")
    if not isinstance(spec, RunSpec):
        raise TypeError(f"the one positional argument is a RunSpec, not {type(spec).__name__}; use prompt=…")
    if fields:
        raise TypeError("give a RunSpec or its fields, not both")
    return spec


def _deadline(timeout: float | None) -> float | None:
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout > 0:
        raise MantyxConfigError(f"timeout: got {timeout!r}, must be a number of seconds above 0")
    return None if timeout > threading.TIMEOUT_MAX else time.monotonic() + timeout  # no lock waits that long


def _check_run_id(run_id: object) -> None:
    if not isinstance(run_id, str) or not run_id:
        raise MantyxConfigError(f"run_id: got {run_id!r}, must be the id of a run")
