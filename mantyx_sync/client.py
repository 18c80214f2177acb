"""`MantyxClient`: the front door, one short method for each thing a caller can ask of a workspace."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Generator, Iterable, Literal, Mapping, NoReturn, Sequence

from . import logs
from .checks import callbacks, shown, whole_number
from .errors import MantyxConfigError
from .eval_calls import EvalCalls
from .events import RunEvent
from .limits import MAX_FEEDBACK_CHARS
from .models import ModelCatalog
from .pages import listing_query
from .results import RunFeedback, RunPage, RunResult, RunSnapshot
from .session_calls import SessionCalls
from .settings import ClientSettings, check_timeout, hidden, read_credentials
from .spec import RunSpec, build_spec, plan_only, spec_signature
from .toolspec import read_tools

if TYPE_CHECKING:
    import requests
    from typing_extensions import Unpack

    from .oauth import TokenSource
    from .progress import ProgressTo
    from .run import Run
    from .spec import RunSpecArgs

__all__ = ["MantyxClient"]


class MantyxClient(SessionCalls, EvalCalls):
    """A MANTYX workspace, for blocking code (wire §1).

    One client serves a whole process: every method may be called from any thread, and it goes on working in the
    children of a `fork`. Making one opens no connection and starts no thread.
    """

    def __init__(
        self,
        *,
        api_key: str | None = None,
        access_token: str | None = None,
        token_source: TokenSource | None = None,
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
        progress: ProgressTo | None = None,
    ) -> None:
        """Check the settings; does no I/O.

        Args:
            api_key: Workspace API key. Without it and `access_token`: `MANTYX_API_KEY` or `MANTYX_ACCESS_TOKEN`.
            access_token: OAuth access token, instead of an API key.
            token_source: Called for the access token of each request, and for another one after a 401; made by
                `MantyxOAuthClient.refresh_token_source`, or any function of that form.
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
            progress: Told how far long work is: the MCP servers and A2A agents that any call waits for, and runs and
                eval cases where `map` and `run_eval` have no `progress` of their own. What it may be is said there.

        Raises:
            MantyxConfigError: A setting is missing or not allowed.
        """
        api_key, access_token = hidden(api_key), hidden(access_token)  # error trackers record the locals of frames
        credentials = read_credentials(api_key, access_token, token_source, workspace_slug, base_url)
        settings = ClientSettings(
            timeout=timeout,
            max_retries=max_retries,
            stream_idle_timeout=stream_idle_timeout,
            reconnect_timeout=reconnect_timeout,
            recoverable_runs=recoverable_runs,
            keep_deltas=keep_deltas,
            default_headers=default_headers or {},
            app_info=app_info,
            progress=progress,
        )
        whole_number(max_tool_workers, "max_tool_workers", 1, 10_000)
        logs.set_up()
        # Imported here, so that importing the package does not load requests and ssl: gevent wants to be first.
        from .workspace import Workspace

        self.workspace_slug = credentials.workspace_slug
        self._workspace = Workspace(credentials, settings, max_tool_workers, session)
        self.base_url = self._workspace.base_url

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

        A closed client cannot be used again, nor can its copies with other options; its runs can still be cancelled.
        Handlers at work are told to stop through their context and not waited for. MCP servers that were started for
        runs and sessions are given up to five seconds to end. Again does nothing.
        """
        self._workspace.close()

    def with_options(self, **options: Any) -> MantyxClient:
        """Return a client with other settings that shares connections, credential and tool threads with this one.

        Args:
            options: Any of `timeout`, `max_retries`, `stream_idle_timeout`, `reconnect_timeout`,
                `recoverable_runs`, `keep_deltas`, `default_headers`, `app_info`, `progress`.

        Raises:
            TypeError: An option has no such name.
            MantyxConfigError: A value is not allowed.
        """
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._workspace = self._workspace.changed(options)
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
        output_type: Any = None,
        idempotency_key: str | None = None,
        **fields: Unpack[RunSpecArgs],
    ) -> RunResult:
        """Run an agent and return its result (wire §1). Blocks until the run ends.

        Args:
            spec: A `RunSpec`; or give its fields as keyword arguments: `help(RunSpec)` tells what each is.
            timeout: Seconds for the whole run. `None` waits as long as it takes.
            on_event: Called with each event, on the calling thread.
            on_assistant_delta: Called with each piece of the assistant's text, on the calling thread.
            output_type: What the answer is to be: a dataclass, TypedDict, pydantic model, any other type that hints can
                name, or a JSON Schema. It goes out as `output_schema`; the result's `output` is the answer as such.
            idempotency_key: Your own name for this call, a task's id for example: called again with it, after the
                process was killed say, this follows the run that is there already. See `start_agent`.

        Raises:
            MantyxConfigError: The spec is not allowed; nothing was sent.
            MantyxError: An MCP server or A2A agent among the tools cannot be reached; nothing was sent.
            MantyxParseError: The answer is not of `output_type`; its text is on the error.
            MantyxRunError: The run ended in any way but success.
            MantyxTimeoutError: `timeout` passed; the run was cancelled.
            MantyxAPIError, MantyxNetworkError: The run could not be created or followed.
        """
        callbacks(on_event=on_event, on_assistant_delta=on_assistant_delta)
        wants_events = on_event is not None or on_assistant_delta is not None
        run = self._workspace.create(
            _spec(spec, fields),
            timeout,
            wants_events=wants_events,
            is_owned=True,
            output_type=output_type,
            key=idempotency_key,
        )
        return self._workspace.complete(run, on_event, on_assistant_delta)

    @spec_signature
    def run_plan(
        self,
        *,
        steps: Sequence[str] | None = None,
        brief: str | None = None,
        timeout: float | None = None,
        on_event: Callable[[RunEvent], None] | None = None,
        on_assistant_delta: Callable[[str], None] | None = None,
        idempotency_key: str | None = None,
        **fields: Unpack[RunSpecArgs],
    ) -> RunResult:
        """Have a task plan made without running the agent (wire §8.5); it is the result's `plan`. Blocks.

        Args:
            steps: Titles of a plan of your own, instead of the planner's.
            brief: One line about the objective.
            timeout: Seconds for the whole run.
            on_event: Called with each event, on the calling thread.
            on_assistant_delta: As `run_agent`.
            idempotency_key: As `start_agent`.

        Raises:
            MantyxError: As `run_agent`.
        """
        plan = plan_only(steps=steps, brief=brief)
        fields["plan"] = plan
        return self.run_agent(
            timeout=timeout,
            on_event=on_event,
            on_assistant_delta=on_assistant_delta,
            idempotency_key=idempotency_key,
            **fields,
        )

    @spec_signature
    def stream_agent(
        self,
        spec: RunSpec | None = None,
        *,
        timeout: float | None = None,
        output_type: Any = None,
        idempotency_key: str | None = None,
        **fields: Unpack[RunSpecArgs],
    ) -> Run:
        """Start a run whose events or text you loop over (wire §4). Blocks until the run is created.

        Best used in a `with` block: leaving it before the run has ended cancels the run. A stream that is dropped
        is let go of when it is collected.

        Args:
            spec: A `RunSpec`; or give its fields as keyword arguments: `help(RunSpec)` tells what each is.
            timeout: Seconds for the whole run; it is cancelled then.
            output_type: As `run_agent`.
            idempotency_key: As `start_agent`. The events of a run that was there come from its beginning.

        Raises:
            MantyxConfigError: The spec is not allowed; nothing was sent.
            MantyxAPIError, MantyxNetworkError: The run could not be created.
        """
        return self._workspace.create(
            _spec(spec, fields),
            timeout,
            wants_events=True,
            is_owned=True,
            output_type=output_type,
            key=idempotency_key,
        )

    @spec_signature
    def start_agent(
        self,
        spec: RunSpec | None = None,
        *,
        timeout: float | None = None,
        output_type: Any = None,
        idempotency_key: str | None = None,
        **fields: Unpack[RunSpecArgs],
    ) -> Run:
        """Start a run that goes on in the background, its tools included, whether or not anybody looks (wire §1).

        Blocks until the run is created.

        **With an `idempotency_key`** the server is asked first, by one more request, for a run that carries the key in
        its metadata. If one is there it is followed, as `attach_run` does it: tool calls that were answered are not run
        again. So a task that is delivered twice, since its worker was killed, pays for one run.

        - The key decides alone; what else is given is not compared.
        - A run that failed or was cancelled stands for nothing, so that trying again with its key creates another. One
          whose answer does not fit `output_type` has succeeded: take another key to have it done again.
        - `SystemExit`, which workers raise when they are told to end at once, does not cancel a run that has a key:
          whoever does the work again takes it over. Time-outs, Ctrl-C and other exceptions cancel it.
        - Two processes that call at the same instant may both find nothing, and create a run each. Two that follow one
          run both answer its tool calls.
        - Where a server lists runs without regard to metadata, its newest 2000 runs are looked through.

        Args:
            spec: A `RunSpec`; or give its fields as keyword arguments: `help(RunSpec)` tells what each is.
            timeout: Seconds for the whole run, counted for whoever waits for it.
            output_type: As `run_agent`.
            idempotency_key: Your own name for this call: 1 to 256 printable characters. It takes one of the 16 entries
                of metadata (`mantyx_sync.key`), by which `list_runs(metadata=…)` finds the run as well.

        Raises:
            MantyxConfigError: The spec is not allowed; nothing was sent.
            MantyxAPIError, MantyxNetworkError: The run could not be created, or not be looked for.
        """
        return self._workspace.create(
            _spec(spec, fields), timeout, wants_events=True, output_type=output_type, key=idempotency_key
        )

    @spec_signature
    def map(
        self,
        items: Iterable[str | Mapping[str, Any] | RunSpec],
        *,
        max_workers: int = 8,
        as_completed: bool = False,
        return_errors: bool = False,
        progress: ProgressTo | None = None,
        timeout: float | None = None,
        output_type: Any = None,
        idempotency_key: Callable[[Any], str] | None = None,
        **fields: Unpack[RunSpecArgs],
    ) -> Generator[Any, None, None]:
        """Run an agent for each item, some at once, and yield the results (wire §1).

        Runs start when the first result is asked for. Leaving the loop, an error and Ctrl-C cancel what is under way,
        and wait for that less than a second.

        Args:
            items: Prompts, mappings with fields of `RunSpec` that hold for one run, or specs. They are read on the
                calling thread as they are needed, at most `2 * max_workers` ahead of what was yielded.
            max_workers: How many runs go on at once.
            as_completed: Yield results as they come instead of in the order of the items.
            return_errors: Yield an error in place of the result of a run that failed. Otherwise the first one is
                raised.
            progress: A function: called with a `Progress` on the calling thread, at the start and after each run, but
                not for an error that is raised; before that, of servers that are started. Its `close`, if it has one,
                is called at the end, whatever ends the loop. Or `"tqdm"` or `"rich"`: a bar of theirs. Or `"auto"`: a
                bar of what is installed, or else a line on a terminal; nothing where nobody looks. `None` takes the
                client's.
            timeout: Seconds for each run.
            output_type: As `run_agent`.
            idempotency_key: Gives the key of an item's run, a different one for each; called on threads of this loop. A
                loop that is started again, after it was killed say, then follows the runs that are there, and creates
                those that are missing. `SystemExit` out of the wait for a result leaves runs that have one; see
                `start_agent`.
            fields: Fields of `RunSpec` for every run. MCP servers and A2A agents among their `tools` are connected once
                for all runs; those of one item for its run.

        Raises:
            MantyxConfigError: An argument, or a field of every run, is not allowed; nothing was sent.
            MantyxError: As `run_agent`, unless `return_errors`; likewise `TypeError` for an item of the wrong kind.
        """
        from .many import Launcher, run_many

        launcher = Launcher(self._workspace, fields, timeout, output_type, idempotency_key)
        return run_many(
            items,
            launcher.run,
            launcher.abort_all,
            max_workers=max_workers,
            as_completed=as_completed,
            return_errors=return_errors,
            progress=launcher.progress if progress is None else progress,
            before=launcher.open,
            after=launcher.close,
            on_exit=launcher.leave_on,
        )

    def attach_run(
        self, run_id: str, *, tools: Iterable[Any] = (), last_seq: int = 0, timeout: float | None = None
    ) -> Run:
        """Follow a run that exists, and with `tools` answer its calls from here on (wire §10). Sends nothing yet.

        Without `tools` calls are left to whoever started the run. MCP servers and A2A agents among them are connected
        first, until the run is over.

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
        whole_number(last_seq, "last_seq", 0)
        return self._workspace.attach(run_id, read_tools(tools), last_seq, timeout)

    def cancel_run(self, run_id: str) -> None:
        """Ask the server to cancel a run (wire §9). One request; asking twice does no harm.

        If this client follows the run, the run's handlers hear of it through their context.

        Raises:
            MantyxNotFoundError: There is no such run.
        """
        _check_run_id(run_id)
        self._workspace.cancel_run(run_id)

    def get_run(self, run_id: str) -> RunSnapshot:
        """Return what the server knows of a run (http §3). One request.

        Raises:
            MantyxNotFoundError: There is no such run.
        """
        _check_run_id(run_id)
        return self._workspace.api.get_run(run_id)

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
            status: Only runs that are `queued`, `running`, `succeeded`, `failed` or `cancelled`.
            model_id: Only runs with this model.
            agent_id: Only runs of this agent.
            metadata: Only runs whose metadata has all of these.
            include_total: Have the server count all matching runs.

        Raises:
            MantyxConfigError: `limit` or `metadata` is not allowed.
        """
        query = listing_query(
            limit=limit,
            metadata=metadata,
            include_total=include_total,
            status=status,
            model_id=model_id,
            agent_id=agent_id,
        )

        def fetch(at: str | None) -> RunPage:
            answer = self._workspace.api.request("GET", "/agent-runs", query={**query, "cursor": at})
            return RunPage.from_wire(answer.json(), fetch)

        return fetch(cursor)

    def list_models(self) -> ModelCatalog:
        """Return the models that runs can use (http §3). One request."""
        return ModelCatalog.from_wire(self._workspace.api.request("GET", "/models").json())

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
            run_id: The run.
            verdict: `UP` or `DOWN`.
            explanation: Why; at most 8,000 characters.
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
        return RunFeedback.from_wire(
            self._workspace.api.request("POST", path, body=body, repeat=Repeat.SAFE).json(), run_id
        )

    def request(
        self,
        method: str,
        path: str,
        *,
        json: object = None,
        params: Mapping[str, Any] | None = None,
        timeout: float | tuple[float, float] | None = None,
    ) -> Any:
        """Send a request to a route that has no method here, and return its decoded JSON. Blocks.

        Methods other than `GET` and `HEAD` are sent again only where they surely were not carried out.

        Args:
            method: `GET`, `POST` and so on.
            path: Below the workspace (`"/agent-runs"`), or below the base URL if it starts with `/api/`.
            json: The body.
            params: The query; `None` values are left out, lists are repeated.
            timeout: Seconds for one exchange, or (connect, read). `None` takes the client's.

        Raises:
            MantyxConfigError: An argument is not allowed, or `json` has no JSON form.
            MantyxAPIError, MantyxNetworkError, MantyxTimeoutError: As every method.
        """
        if not isinstance(method, str) or not method.isascii() or not method.isalpha():
            raise MantyxConfigError(f"method: got {shown(method)}, must be the name of an HTTP method")
        if not isinstance(path, str) or not path.startswith("/"):
            raise MantyxConfigError(f"path: got {shown(path)}, must start with a slash")
        if params is not None and not isinstance(params, Mapping):
            raise MantyxConfigError(f"params: got {shown(params)}, must be a mapping of names to values")
        if timeout is not None:
            check_timeout(timeout)
        send = self._workspace.api.transport.request if path.startswith("/api/") else self._workspace.api.request
        return send(method.upper(), path, query=params, body=json, timeout=timeout).json()


def _spec(spec: RunSpec | None, fields: Mapping[str, Any]) -> RunSpec:
    if spec is None:
        return build_spec(fields, purpose="run")
    if not isinstance(spec, RunSpec):
        raise TypeError(f"the one positional argument is a RunSpec, not {type(spec).__name__}; use prompt=…")
    if fields:
        raise TypeError("give a RunSpec or its fields, not both")
    return spec


def _check_run_id(run_id: object) -> None:
    if not isinstance(run_id, str) or not run_id:
        raise MantyxConfigError(f"run_id: got {run_id!r}, must be the id of a run")
