"""`LocalServer`: the MANTYX agent-run API on this machine, for first steps and for tests."""

from __future__ import annotations

import atexit
import collections
import contextlib
import dataclasses
import functools
import ipaddress
import logging
import threading
import time
import weakref
from queue import Empty, Queue
from types import TracebackType
from typing import Any, Callable, Iterable, Mapping, Optional, Sequence, TypedDict, Union

from mantyx_sync import limits
from mantyx_sync.local.engine import EngineSettings, run_agent_loop
from mantyx_sync.local.evals import EvalRun
from mantyx_sync.local.faults import Effect, Fault, Faults
from mantyx_sync.local.http import Request
from mantyx_sync.local.loop import SocketLoop
from mantyx_sync.local.model import Model
from mantyx_sync.local.oauth import OAuthApp, OAuthServer
from mantyx_sync.local.plan import Planner
from mantyx_sync.local.routes import Api
from mantyx_sync.local.sessions import Session
from mantyx_sync.local.store import Run, Store
from mantyx_sync.local.supervisor import Judge
from mantyx_sync.local.toolset import ServerTools
from mantyx_sync.local.workspace import ApiSettings, Workspace

__all__ = ["LocalServer"]

_log = logging.getLogger(__name__)

MAX_KEPT_REQUESTS = 4096
MAX_KEPT_BODY_BYTES = 65536
# How long `stop` waits for the threads; only a model that ignores its request's events can use it up.
STOP_TIMEOUT_S = 10.0


class ClientSettings(TypedDict):
    """The arguments that point a `MantyxClient` at a server. A `TypedDict`, so that type checkers accept `**` of it."""

    base_url: str
    api_key: str
    workspace_slug: str


class LocalServer:
    """Serve the MANTYX API over HTTP on loopback, with an agent loop that really runs.

        with LocalServer() as server:
            client = MantyxClient(**server.client_settings())

    The loop does what the wire protocol says of turns, tools, structured output and reasoning, and keeps its run
    guards: loop detection, tool budgets with their default table, the supervisor, task plans. Where the
    documents are silent or disagree, the docstrings of `engine`, `plan` and `supervisor` say what this server
    does: a supervisor and a plan are opt-in, and `thinking_delta` needs a `reasoningLevel` above 0.

    Nothing starts before `start` (or the `with` block). One thread serves all connections; a run occupies
    another one while it goes on. After `stop` no thread, socket or descriptor is left. All methods may be
    called from any thread.

    **Routes**, by the names that faults and `requests` use. Runs: `models`, `create`, `list`, `snapshot`,
    `stream`, `tool_results`, `cancel`, `feedback`. Sessions: `sessions_create`, `sessions_list`, `session_get`,
    `session_events`, `session_messages`, `session_end`. Evals: `eval_datasets`, `eval_dataset`, `eval_create`,
    `eval_list`, `eval_compare`, `eval_get`, `eval_stream`, `eval_cancel`. OAuth: `oauth_token`, `oauth_revoke`,
    `oauth_userinfo`. Buckets of `rate_limits`: `create`, `session_messages` and `eval_create` are `run_starts`;
    `tool_results`, `cancel`, `feedback` and `eval_cancel` are `lifecycle`; `sessions_create` and `session_end`
    are `mutations`; what only reads, and OAuth, is not counted.

    **Sessions** run one message at a time: until a run has ended the next message gets 409 `session_busy` (with
    the `runId`), after the end of the session 409 `session_ended`. A run that fails or is cancelled leaves no
    trace in the conversation; a plan-only run leaves the user's turn alone. Results of `retain` tools are shown
    to later turns up to 8 KB each. A message may replace `tools`, `reasoningLevel`, `outputSchema`,
    `loopDetection`, `toolBudgets`, `supervisor`, `plan`, `modelId`, `fallbackModelId` and `budgets` for its one
    run; its metadata is merged over the session's.

    **OAuth** knows the `refresh_token` and `client_credentials` grants; access tokens live 3600 s of `clock`.
    The routes of evals ask for the scopes of runs.

    **Evals** play their cases one after the other, each as an agent run that `runs` lists too. A stream replays
    the log from its beginning: `snapshot`, `run_started`, for each case `case_started`, its `local_tool_call`s
    and `case_completed`, at last `run_completed`, `run_error` or `run_cancelled`. A case's input is
    `{"prompt": …}`, `{"messages": […]}` or one message; scorers are of the types `exact`, `contains`, `regex`,
    `json_schema` and `tool_called` (see `mantyx_sync.local.scoring`); a tool mock is `{"result": …}`,
    `{"error": text}`, a list of these for successive calls, or the result itself, and mocks of a case come
    before those of its data set.

    Args:
        model: What the agent thinks with; None is the `RuleModel`, which uses the tools it is given.
        api_key: The workspace API key the server accepts.
        workspace_slug: The one workspace there is.
        host: A loopback address.
        port: The port; 0 takes a free one.
        faults: Faults from the start; more can be added to `faults` later.
        local_tool_timeout: Seconds a run waits for the client's result of a tool call.
        fail_on_local_tool_timeout: End the run on that time-out instead of telling the model.
        rate_limits: Requests per minute by bucket, such as `DOCUMENTED_RATE_LIMITS`; None limits nothing.
        tokens: OAuth access tokens with their scopes; they do not expire by themselves.
        agents: Specs of the agents that `agentId` may name. The agent's prompt stands, its tools are joined by
            those of a request, and of all else the request's value counts.
        allowed_agents: For a credential, the agents it may use; a credential not listed may use all.
        models: The catalog. With it, an unknown `modelId` is refused; None accepts every id.
        oauth_apps: The applications that may ask for access tokens, with the refresh tokens users granted them.
        eval_datasets: Data sets in the form of `GET /eval-datasets/{id}`; ids and names may be left out.
        clock: The time in seconds that tokens and rate limits go by.
        heartbeat: Seconds between comments on a stream that has nothing to say.
        tools: What answers `mantyx` and `mantyx_plugin` tools, by id or by `@plugin/tool` name: a function, called
            with the model's arguments by keyword, or a `ServerTool` that says more. A tool that is not there is
            not offered to the model.
        judge: Reviews runs whose spec has a `supervisor`: from a `Review` to a `Verdict`, on the run's thread.
            None is `rule_judge`, which notices repetition and series of errors and nothing else.
        planner: Plans runs whose spec has a `plan` without steps: from a `PlanRequest` to a `PlanDraft`, to step
            titles, or to None. None is `split_prompt`, which splits the prompt into what it lists.
        other_models: Models by catalog id, for runs whose `modelId` or `fallbackModelId` names one; all else is
            for `model`.

    Raises:
        ValueError: `host` is not a loopback address, or an entry of `eval_datasets` is no data set.
    """

    def __init__(
        self,
        model: Model | None = None,
        *,
        api_key: str = "mantyx_local",
        workspace_slug: str = "local",
        host: str = "127.0.0.1",
        port: int = 0,
        faults: Iterable[Union[Fault, Effect]] | None = None,
        local_tool_timeout: float = limits.LOCAL_TOOL_TIMEOUT_S,
        fail_on_local_tool_timeout: bool = False,
        rate_limits: Mapping[str, int] | None = None,
        tokens: Mapping[str, Sequence[str]] | None = None,
        agents: Mapping[str, Mapping[str, Any]] | None = None,
        allowed_agents: Mapping[str, Sequence[str]] | None = None,
        models: Sequence[Mapping[str, Any]] | None = None,
        oauth_apps: Iterable[OAuthApp] = (),
        eval_datasets: Iterable[Mapping[str, Any]] = (),
        clock: Callable[[], float] = time.time,
        heartbeat: float = 15.0,
        tools: ServerTools | None = None,
        judge: Judge | None = None,
        planner: Planner | None = None,
        other_models: Mapping[str, Model] | None = None,
    ) -> None:
        if not _is_loopback(host):
            raise ValueError(f"host must be a loopback address such as 127.0.0.1, got {host!r}")
        if model is None:
            from mantyx_sync.local.rules import RuleModel

            model = RuleModel()
        self.model = model
        self.api_key = api_key
        self.workspace_slug = workspace_slug
        self.faults = Faults(faults or ())
        self.requests: collections.deque[Request] = collections.deque(maxlen=MAX_KEPT_REQUESTS)
        """The newest requests, oldest first, each with its `route`; of a large body the beginning."""
        self.store = Store()
        self._host = host
        self._wanted_port = port
        self._port: Optional[int] = None
        self._engine = EngineSettings(
            local_tool_timeout,
            fail_on_local_tool_timeout,
            tools=tools or {},
            judge=judge,
            planner=planner,
            other_models=other_models or {},
            catalog=models,
        )
        self._workers = _Workers()
        self._lock = threading.Lock()
        self._loop = SocketLoop(
            self._handle,
            self.faults,
            run_blocking=self._workers.run,
            heartbeat=heartbeat,
            on_request=self._note,
        )
        settings = ApiSettings(
            api_key=api_key,
            workspace_slug=workspace_slug,
            allowed_agents=allowed_agents or {},
            agents=agents or {},
            models=models,
            default_model_id=model.model_id if not models else str(models[0]["id"]),
            rate_limits=rate_limits,
            clock=clock,
        )
        workspace = Workspace(
            settings, self.store, play=self._play, spawn=self._workers.run, on_event=self._loop.run_changed
        )
        self._oauth = OAuthServer(oauth_apps, tokens or {}, clock)
        self._api = Api(workspace, self._oauth, eval_datasets)
        self._at_exit: Optional[Callable[[], None]] = None

    def __repr__(self) -> str:
        where = self.url if self._port is not None else "stopped"
        return f"<LocalServer {where} workspace={self.workspace_slug!r}>"

    # ------------------------------------------------------------- lifetime

    def start(self) -> LocalServer:
        """Listen and serve. Returns the server; starting it twice changes nothing.

        Raises:
            OSError: The port cannot be had.
        """
        with self._lock:
            if self._port is None:
                self._workers.open()
                self._port = self._loop.start(self._host, self._wanted_port)
                self._at_exit = functools.partial(_stop_at_exit, weakref.ref(self))
                atexit.register(self._at_exit)
        return self

    def stop(self) -> None:
        """Close everything: streams break off, runs in progress fail. What was logged can still be read."""
        with self._lock:
            if self._port is None:
                return
            if self._at_exit is not None:
                atexit.unregister(self._at_exit)
                self._at_exit = None
            self._loop.stop(STOP_TIMEOUT_S)
            self._api.evals.abandon()
            for run in self.store.all():
                if not run.is_terminal:
                    run.abandon()
            self._workers.close(STOP_TIMEOUT_S)
            self._port = None

    def __enter__(self) -> LocalServer:
        return self.start()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    # ------------------------------------------------------------ for clients

    @property
    def port(self) -> int:
        """The port. Raises `RuntimeError` while the server is not started."""
        if self._port is None:
            raise RuntimeError("the server is not started; call start() or use it in a with block")
        return self._port

    @property
    def url(self) -> str:
        """The base URL for a client, such as `http://127.0.0.1:40123`."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self.port}"

    def client_settings(self) -> ClientSettings:
        """Return the arguments that point a `MantyxClient` at this server."""
        return {"base_url": self.url, "api_key": self.api_key, "workspace_slug": self.workspace_slug}

    # -------------------------------------------------------------- for tests

    @property
    def runs(self) -> list[Run]:
        """All runs, oldest first."""
        return self.store.all()

    def run(self, run_id: str) -> Run:
        """Return a run with its log and state. Raises `KeyError` for an unknown id."""
        return self.store.runs[run_id]

    @property
    def sessions(self) -> list[Session]:
        """All sessions, oldest first."""
        return list(self._api.sessions.sessions.values())

    def session(self, session_id: str) -> Session:
        """Return a session with what was said. Raises `KeyError` for an unknown id."""
        return self._api.sessions.sessions[session_id]

    @property
    def eval_runs(self) -> list[EvalRun]:
        """All eval runs, oldest first."""
        return list(self._api.evals.runs.values())

    def eval_run(self, run_id: str) -> EvalRun:
        """Return an eval run with its log and results. Raises `KeyError` for an unknown id."""
        return self._api.evals.runs[run_id]

    def expire_tokens(self) -> int:
        """Let all access tokens given out so far expire, those of `tokens` too; returns how many were valid."""
        return self._oauth.expire_all()

    @property
    def open_streams(self) -> int:
        """How many event streams clients have open."""
        return sum(len(readers) for readers in tuple(self._loop.streams.values()))

    @property
    def open_connections(self) -> int:
        """How many connections clients have open, idle ones included."""
        return len(self._loop.connections)

    # --------------------------------------------------------------- insides

    def _handle(self, request: Request) -> Any:
        return self._api.handle(request)

    def _note(self, request: Request) -> None:
        if len(request.body) > MAX_KEPT_BODY_BYTES:
            request = dataclasses.replace(request, body=request.body[:MAX_KEPT_BODY_BYTES])
        self.requests.append(request)

    def _play(self, run: Run) -> None:
        run_agent_loop(run, self.model, self._engine)


def _stop_at_exit(reference: weakref.ref[LocalServer]) -> None:
    server = reference()
    if server is not None:
        server.stop()


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


class _Workers:
    """Threads for what may block: as many as there is work, kept a little while for the next."""

    IDLE_S = 1.0

    def __init__(self) -> None:
        # Not a SimpleQueue: its wait with a time limit may never end on a busy machine.
        self._tasks: Queue[Optional[Callable[[], None]]] = Queue()
        self._lock = threading.Lock()
        self._threads: set[threading.Thread] = set()
        self._idle = 0
        self._closed = True
        self._number = 0

    def open(self) -> None:
        with self._lock:
            self._closed = False

    def run(self, task: Callable[[], None]) -> None:
        """Run `task` on a thread, soon. After `close` it is dropped."""
        with self._lock:
            if self._closed:
                return
            if self._idle > 0:
                self._idle -= 1
            else:
                self._number += 1
                # Owner: this object. `close` wakes it by an entry in the queue and joins it; a daemon, as
                # the loop's thread is.
                thread = threading.Thread(target=self._work, name=f"mantyx-local-run-{self._number}", daemon=True)
                self._threads.add(thread)
                thread.start()
        self._tasks.put(task)

    def _work(self) -> None:
        while True:
            try:
                task = self._tasks.get(timeout=self.IDLE_S)
            except Empty:
                with self._lock:
                    if self._idle > 0:  # otherwise a task was promised to this thread meanwhile
                        self._idle -= 1
                        self._threads.discard(threading.current_thread())
                        return
                continue
            if task is None:
                return
            try:
                task()
            except Exception:  # pragma: no cover - the tasks see to their own errors
                _log.exception("a task of the embedded server failed")
            del task
            with self._lock:
                self._idle += 1

    def close(self, timeout: float) -> None:
        with self._lock:
            self._closed = True
            threads = list(self._threads)
            self._threads.clear()
            self._idle = 0
        for _ in threads:
            self._tasks.put(None)
        for thread in threads:
            thread.join(timeout)
            if thread.is_alive():
                _log.warning("thread %s did not end: a model ignores that its run was abandoned", thread.name)
        # A thread that left for want of work may have left its wake-up behind.
        with contextlib.suppress(Empty):
            while True:
                self._tasks.get_nowait()
