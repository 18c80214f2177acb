"""`LocalServer`: the MANTYX agent-run API on this machine, for first steps and for tests."""

from __future__ import annotations

import time
from typing import Any, Callable, Iterable, Mapping, Sequence, Union

from mantyx_sync import limits
from mantyx_sync.local.answers import Answer
from mantyx_sync.local.api_server import ApiServer, ClientSettings
from mantyx_sync.local.engine import EngineSettings, run_agent_loop
from mantyx_sync.local.evals import EvalRun
from mantyx_sync.local.faults import Effect, Fault
from mantyx_sync.local.http import Request
from mantyx_sync.local.model import Model
from mantyx_sync.local.oauth import OAuthApp, OAuthServer
from mantyx_sync.local.plan import Planner
from mantyx_sync.local.routes import Api
from mantyx_sync.local.sent import Sent
from mantyx_sync.local.sessions import Session
from mantyx_sync.local.store import Run, Store
from mantyx_sync.local.supervisor import Judge
from mantyx_sync.local.toolset import ServerTools
from mantyx_sync.local.workspace import ApiSettings, Workspace

__all__ = ["LocalServer"]


class LocalServer(ApiServer):
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

    **Tools of others**: `mcp` and `a2a` refs are dialled for real when a run starts, with the clients of this package;
    what cannot be reached is logged and not offered to the model (see `mantyx_sync.local.remote_tools`).

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
        super().__init__(host=host, port=port, faults=faults, heartbeat=heartbeat)
        if model is None:
            from mantyx_sync.local.rules import RuleModel

            model = RuleModel()
        self.model = model
        self.api_key = api_key
        self.workspace_slug = workspace_slug
        self.store = Store()
        self._answers = 0
        self._engine = EngineSettings(
            local_tool_timeout,
            fail_on_local_tool_timeout,
            tools=tools or {},
            judge=judge,
            planner=planner,
            other_models=other_models or {},
            catalog=models,
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

    def __repr__(self) -> str:
        where = self.url if self._port is not None else "stopped"
        return f"<LocalServer {where} workspace={self.workspace_slug!r}>"

    # ------------------------------------------------------------ for clients

    def client_settings(self) -> ClientSettings:
        """Return the arguments that point a `MantyxClient` at this server."""
        return {"base_url": self.url, "api_key": self.api_key, "workspace_slug": self.workspace_slug}

    # -------------------------------------------------------------- for tests

    @property
    def runs(self) -> list[Run]:
        """All runs, oldest first."""
        return self.store.all()

    @property
    def sent(self) -> Sent:
        """What was asked of the server, in the words of a test: `server.sent.run.prompt`, `.tools`, `.tool_calls`."""
        return Sent(self.store.all)

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

    # --------------------------------------------------------------- insides

    def _handle(self, request: Request) -> Answer:
        return self._api.handle(request)

    def _first_headers(self) -> list[tuple[str, str]]:
        self._answers += 1
        return [("X-Request-Id", f"req_{self._answers:06x}")]

    def _loop_ended(self) -> None:
        self._api.evals.abandon()
        for run in self.store.all():
            if not run.is_terminal:
                run.abandon()

    def _play(self, run: Run) -> None:
        run_agent_loop(run, self.model, self._engine)
