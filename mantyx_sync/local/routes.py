"""The routes of the embedded server: a request in, an answer out. Knows no socket.

A handler answers at once and never blocks: the agent loop runs on other threads, and an event stream is
answered with a `StreamResponse`, which the socket loop feeds from the run's log.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from typing import Any, Callable, Iterable, Mapping, Optional

from mantyx_sync.local.answers import (
    Answer,
    Refused,
    StreamResponse,
    read_body,
    read_last_seq,
    read_limit,
    read_metadata_filter,
    read_object,
    refuse,
    wants,
)
from mantyx_sync.local.checks import InvalidRequest, check_spec, read_feedback, read_tool_result
from mantyx_sync.local.eval_routes import EvalRoutes
from mantyx_sync.local.http import Request, Response, json_response
from mantyx_sync.local.oauth import OAuthServer
from mantyx_sync.local.sessions import SessionRoutes
from mantyx_sync.local.store import Feedback, Run, RunFilter, new_id
from mantyx_sync.local.workspace import Workspace

__all__ = ["DOCUMENTED_RATE_LIMITS", "ROUTES", "Api", "Route", "match_route"]

DOCUMENTED_RATE_LIMITS: Mapping[str, int] = {"run_starts": 120, "lifecycle": 600, "mutations": 120}
"""Requests per minute and credential, by bucket (http §1). Pass it as `rate_limits` to have them kept."""

_WINDOW_S = 60.0


@dataclass(frozen=True)
class Route:
    """One route; `None` in `path` stands for an id.

    The path is what follows `/api/v1/workspaces/{slug}`, or `/api` for a route without a workspace. `scope` is
    what an access token needs; a route without one sees to its own credentials.
    """

    name: str
    method: str
    path: tuple[Optional[str], ...]
    scope: Optional[str]
    bucket: Optional[str] = None
    in_workspace: bool = True


ROUTES: tuple[Route, ...] = (
    Route("models", "GET", ("models",), "models:read"),
    Route("create", "POST", ("agent-runs",), "runs:write", "run_starts"),
    Route("list", "GET", ("agent-runs",), "runs:read"),
    Route("snapshot", "GET", ("agent-runs", None), "runs:read"),
    Route("stream", "GET", ("agent-runs", None, "stream"), "runs:read"),
    Route("tool_results", "POST", ("agent-runs", None, "tool-results"), "runs:write", "lifecycle"),
    Route("cancel", "POST", ("agent-runs", None, "cancel"), "runs:write", "lifecycle"),
    Route("feedback", "POST", ("agent-runs", None, "feedback"), "feedback:write", "lifecycle"),
    Route("sessions_create", "POST", ("agent-sessions",), "sessions:write", "mutations"),
    Route("sessions_list", "GET", ("agent-sessions",), "sessions:read"),
    Route("session_get", "GET", ("agent-sessions", None), "sessions:read"),
    Route("session_end", "DELETE", ("agent-sessions", None), "sessions:write", "mutations"),
    Route("session_events", "GET", ("agent-sessions", None, "events"), "sessions:read"),
    Route("session_messages", "POST", ("agent-sessions", None, "messages"), "sessions:write", "run_starts"),
    # No document names the scopes of evals: they are taken for runs.
    Route("eval_datasets", "GET", ("eval-datasets",), "runs:read"),
    Route("eval_dataset", "GET", ("eval-datasets", None), "runs:read"),
    Route("eval_create", "POST", ("eval-runs",), "runs:write", "run_starts"),
    Route("eval_list", "GET", ("eval-runs",), "runs:read"),
    Route("eval_compare", "GET", ("eval-runs", "compare"), "runs:read"),
    Route("eval_get", "GET", ("eval-runs", None), "runs:read"),
    Route("eval_stream", "GET", ("eval-runs", None, "stream"), "runs:read"),
    Route("eval_cancel", "POST", ("eval-runs", None, "cancel"), "runs:write", "lifecycle"),
    Route("oauth_token", "POST", ("oauth", "token"), None, in_workspace=False),
    Route("oauth_revoke", "POST", ("oauth", "revoke"), None, in_workspace=False),
    Route("oauth_userinfo", "GET", ("oauth", "userinfo"), "mantyx.identity:read", in_workspace=False),
)
# By what distinguishes most: whether there is a workspace, the number of segments, and the first of them.
_BY_SHAPE: dict[tuple[bool, int, Optional[str]], list[Route]] = {}
for _route in ROUTES:
    _BY_SHAPE.setdefault((_route.in_workspace, len(_route.path), _route.path[0]), []).append(_route)


def match_route(request: Request) -> tuple[str, Route | None, bool]:
    """Find the route of a request.

    Returns:
        The workspace's slug, the route or None, and whether the path exists with another method.
    """
    segments = request.segments
    if segments[:2] == ("api", "oauth"):
        slug, in_workspace, rest = "", False, segments[1:]
    elif len(segments) >= 5 and segments[:3] == ("api", "v1", "workspaces"):
        slug, in_workspace, rest = segments[3], True, segments[4:]
    else:
        return "", None, False
    exists = False
    # A literal comes before the id it could be taken for: the table has them in this order.
    for route in _BY_SHAPE.get((in_workspace, len(rest), rest[0]), ()):
        if all(part is None or part == given for part, given in zip(route.path, rest)):
            if route.method == request.method:
                return slug, route, False
            exists = True
    return slug, None, exists


class Api:
    """All routes of one server. `handle` may be called from any thread."""

    def __init__(
        self, workspace: Workspace, oauth: OAuthServer, eval_datasets: Iterable[Mapping[str, Any]] = ()
    ) -> None:
        self.workspace = workspace
        self.settings = workspace.settings
        self.oauth = oauth
        self.sessions = SessionRoutes(workspace)
        self.evals = EvalRoutes(workspace, eval_datasets)
        self._windows: dict[tuple[str, str], tuple[float, int]] = {}
        self._lock = threading.Lock()
        sessions, evals = self.sessions, self.evals
        self._handlers: dict[str, Callable[[Request, str], Answer]] = {
            "models": self._models,
            "create": self._create,
            "list": self._list,
            "snapshot": self._snapshot,
            "stream": self._stream,
            "tool_results": self._tool_results,
            "cancel": self._cancel,
            "feedback": self._feedback,
            "sessions_create": sessions.create,
            "sessions_list": sessions.listing,
            "session_get": sessions.info,
            "session_end": sessions.end,
            "session_events": sessions.events,
            "session_messages": sessions.send,
            "eval_datasets": evals.list_datasets,
            "eval_dataset": evals.dataset,
            "eval_create": evals.create,
            "eval_list": evals.list_runs,
            "eval_compare": evals.compare,
            "eval_get": evals.detail,
            "eval_stream": evals.stream,
            "eval_cancel": evals.cancel,
            "oauth_token": lambda request, _: oauth.token(request),
            "oauth_revoke": lambda request, _: oauth.revoke(request),
            "oauth_userinfo": self._userinfo,
        }

    def handle(self, request: Request) -> Answer:
        """Answer one request. Does not block."""
        slug, route, other_method = match_route(request)
        request.route = route.name if route else ""
        rate: tuple[tuple[str, str], ...] = ()
        try:
            credential = "" if route is not None and route.scope is None else self._authenticate(request)
            if slug and slug != self.settings.workspace_slug:
                raise refuse(
                    404,
                    "workspace_not_found",
                    f"There is no workspace {slug!r} for this credential.",
                    hint=f"This credential belongs to the workspace {self.settings.workspace_slug!r}.",
                )
            if route is None:
                if other_method:
                    raise refuse(405, "method_not_allowed", f"{request.method} is not supported here.")
                raise refuse(404, "not_found", "There is no such route.")
            self._check_scope(credential, route)
            rate = self._count(credential, route)
            answer = self._handlers[route.name](request, credential)
        except Refused as refused:
            answer = refused.response
        except InvalidRequest as problem:
            answer = json_response(400, {"error": "invalid_request", "message": str(problem)})
        if rate and isinstance(answer, Response):
            return answer.with_headers(*rate)
        return answer

    # ---------------------------------------------------- who may do what

    def _authenticate(self, request: Request) -> str:
        scheme, _, credential = request.headers.get("authorization", "").partition(" ")
        credential = credential.strip()
        known = credential == self.settings.api_key or self.oauth.lookup(credential) is not None
        if scheme.lower() != "bearer" or not known:
            raise refuse(
                401,
                "unauthorized",
                "Invalid or missing API key or access token.",
                ("WWW-Authenticate", 'Bearer error="invalid_token"' if credential else "Bearer"),
            )
        return credential

    def _check_scope(self, credential: str, route: Route) -> None:
        if route.scope is None or credential == self.settings.api_key:  # a workspace key carries no scopes
            return
        token = self.oauth.lookup(credential)
        if token is not None and route.scope in token.scopes:
            return
        raise refuse(
            403,
            "insufficient_scope",
            f"The access token lacks the scope {route.scope}.",
            ("WWW-Authenticate", f'Bearer error="insufficient_scope", scope="{route.scope}"'),
            required=route.scope,
        )

    def _count(self, credential: str, route: Route) -> tuple[tuple[str, str], ...]:
        """Count a request against its bucket; returns the headers that say where the bucket stands."""
        if self.settings.rate_limits is None or route.bucket is None:
            return ()
        limit = self.settings.rate_limits.get(route.bucket)
        if limit is None:
            return ()
        now = self.settings.clock()
        with self._lock:
            started, used = self._windows.get((credential, route.bucket), (now, 0))
            if now - started >= _WINDOW_S:
                started, used = now, 0
            used += 1
            self._windows[credential, route.bucket] = (started, used)
        headers = (
            ("X-RateLimit-Limit", str(limit)),
            ("X-RateLimit-Remaining", str(max(0, limit - used))),
            ("X-RateLimit-Reset", str(math.ceil(started + _WINDOW_S))),
            ("X-RateLimit-Bucket", route.bucket),
        )
        if used > limit:
            wait = max(1, math.ceil(started + _WINDOW_S - now))
            raise refuse(
                429,
                "rate_limit_exceeded",
                f"Too many requests: {limit} a minute in the bucket {route.bucket}.",
                ("Retry-After", str(wait)),
                *headers,
                code="rate_limit_exceeded",
            )
        return headers

    # ----------------------------------------------------------- handlers

    def _run(self, request: Request) -> Run:
        run = self.workspace.store.get(request.segments[5])
        if run is None:
            raise refuse(404, "not_found", f"There is no run {request.segments[5]!r} in this workspace.")
        return run

    def _userinfo(self, _request: Request, credential: str) -> Answer:
        token = self.oauth.lookup(credential)
        if token is None:
            raise refuse(403, "forbidden", "This route needs an OAuth access token: an API key has no user.")
        slug = self.settings.workspace_slug
        user = token.app.user if token.app is not None else {"sub": "usr_local", "email": "user@example.com"}
        return json_response(200, {**user, "workspace": {"id": f"ws_{slug}", "slug": slug, "name": slug}})

    def _models(self, _request: Request, _credential: str) -> Answer:
        models = self.settings.models
        if models is None:
            provider, _, vendor = self.settings.default_model_id.partition(":")
            models = [
                {
                    "id": self.settings.default_model_id,
                    "label": f"Embedded model ({vendor or provider})",
                    "provider": provider,
                    "vendorModelId": vendor or provider,
                    "source": "platform_offering",
                    "contextWindowTokens": 128_000,
                    "pricing": None,
                }
            ]
        return json_response(200, {"models": list(models), "defaultModelId": self.settings.default_model_id})

    def _create(self, request: Request, credential: str) -> Answer:
        spec = read_object(request)
        check_spec(spec)
        run = self.workspace.make_run(self.workspace.with_agent(spec, credential))
        self.workspace.start(run)
        return json_response(202, {"runId": run.id, "streamUrl": self.workspace.path("agent-runs", run.id, "stream")})

    def _list(self, request: Request, _credential: str) -> Answer:
        limit = read_limit(request)
        wanted = RunFilter(
            status=request.first("status"),
            model_id=request.first("modelId"),
            agent_id=request.first("agentId"),
            session_id=request.first("sessionId"),
            metadata=read_metadata_filter(request),
        )
        try:
            runs, next_cursor = self.workspace.store.page(wanted, cursor=request.first("cursor"), limit=limit)
        except ValueError as error:
            raise InvalidRequest(str(error)) from None
        return json_response(
            200,
            {
                "total": self.workspace.store.count(wanted) if wants(request, "includeTotal") else None,
                "limit": limit,
                "nextCursor": next_cursor,
                "runs": [run.to_summary() for run in runs],
            },
        )

    def _snapshot(self, request: Request, _credential: str) -> Answer:
        return json_response(200, self._run(request).to_snapshot())

    def _stream(self, request: Request, _credential: str) -> Answer:
        return StreamResponse(self._run(request), read_last_seq(request))

    def _tool_results(self, request: Request, _credential: str) -> Answer:
        run = self._run(request)
        tool_use_id, answer = read_tool_result(read_body(request))
        outcome = run.answer_call(tool_use_id, answer)
        if outcome == "run_terminal":
            raise refuse(409, "run_terminal", f"The run {run.id} has already ended; the result was dropped.")
        if outcome == "unknown_tool_use":
            raise refuse(404, "unknown_tool_use", f"No call {tool_use_id!r} of the run waits for a result.")
        return Response(204)

    def _cancel(self, request: Request, _credential: str) -> Answer:
        run = self._run(request)
        if not run.is_terminal:
            run.cancel()
        return json_response(200, {"ok": True})

    def _feedback(self, request: Request, _credential: str) -> Answer:
        run = self._run(request)
        verdict, explanation, snapshot = read_feedback(read_body(request))
        first = run.feedback is None
        feedback_id = new_id("fb") if run.feedback is None else run.feedback.id
        run.feedback = Feedback(feedback_id, verdict, explanation, snapshot)
        return json_response(
            201 if first else 200,
            {"id": feedback_id, "verdict": verdict, "targetKind": "agent_run", "agentRunId": run.id},
        )
