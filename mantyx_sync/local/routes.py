"""The MANTYX routes of the embedded server: a request in, an answer out. Knows no socket.

A handler answers at once and never blocks: the agent loop runs on other threads, and an event stream is
answered with a `StreamResponse`, which the socket loop feeds from the run's log.
"""

from __future__ import annotations

import json
import math
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Mapping, Optional, Sequence, Union
from urllib.parse import quote

from mantyx_sync import limits
from mantyx_sync.local.checks import InvalidRequest, check_spec, read_feedback, read_tool_result
from mantyx_sync.local.http import Request, Response, json_response
from mantyx_sync.local.store import Feedback, Run, RunFilter, Store, new_id

__all__ = [
    "DOCUMENTED_RATE_LIMITS",
    "Api",
    "ApiSettings",
    "Route",
    "StreamResponse",
    "match_route",
]

DOCUMENTED_RATE_LIMITS: Mapping[str, int] = {"run_starts": 120, "lifecycle": 600, "mutations": 120}
"""Requests per minute and credential, by bucket (http §1). Pass it as `rate_limits` to have them kept."""

_WINDOW_S = 60.0


@dataclass(frozen=True)
class StreamResponse:
    """Answer with a run's events after `last_seq`, for as long as the run goes on."""

    run: Run
    last_seq: int
    headers: tuple[tuple[str, str], ...] = ()


Answer = Union[Response, StreamResponse]


@dataclass(frozen=True)
class Route:
    """One route below `/api/v1/workspaces/{slug}`; `None` in `path` stands for an id."""

    name: str
    method: str
    path: tuple[Optional[str], ...]
    scope: str
    bucket: Optional[str] = None


ROUTES: tuple[Route, ...] = (
    Route("models", "GET", ("models",), "models:read"),
    Route("create", "POST", ("agent-runs",), "runs:write", "run_starts"),
    Route("list", "GET", ("agent-runs",), "runs:read"),
    Route("snapshot", "GET", ("agent-runs", None), "runs:read"),
    Route("stream", "GET", ("agent-runs", None, "stream"), "runs:read"),
    Route("tool_results", "POST", ("agent-runs", None, "tool-results"), "runs:write", "lifecycle"),
    Route("cancel", "POST", ("agent-runs", None, "cancel"), "runs:write", "lifecycle"),
    Route("feedback", "POST", ("agent-runs", None, "feedback"), "feedback:write", "lifecycle"),
)
_BY_SHAPE: dict[tuple[int, Optional[str], Optional[str]], list[Route]] = {}
for _route in ROUTES:
    _shape = (len(_route.path), _route.path[0], _route.path[2] if len(_route.path) > 2 else None)
    _BY_SHAPE.setdefault(_shape, []).append(_route)


def match_route(request: Request) -> tuple[str, Route | None, bool]:
    """Find the route of a request.

    Returns:
        The workspace's slug, the route or None, and whether the path exists with another method.
    """
    segments = request.segments
    if len(segments) < 5 or segments[:3] != ("api", "v1", "workspaces"):
        return "", None, False
    rest = segments[4:]
    candidates = _BY_SHAPE.get((len(rest), rest[0], rest[2] if len(rest) > 2 else None), ())
    for route in candidates:
        if route.method == request.method:
            return segments[3], route, False
    return segments[3], None, bool(candidates)


@dataclass
class ApiSettings:
    """What the routes are configured with; `LocalServer` documents each."""

    api_key: str
    workspace_slug: str
    tokens: Mapping[str, Sequence[str]] = field(default_factory=dict)
    allowed_agents: Mapping[str, Sequence[str]] = field(default_factory=dict)
    agents: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    models: Optional[Sequence[Mapping[str, Any]]] = None
    default_model_id: str = "local:scripted"
    rate_limits: Optional[Mapping[str, int]] = None
    clock: Callable[[], float] = time.time


class _Refused(Exception):
    def __init__(self, response: Response) -> None:
        super().__init__(response.status)
        self.response = response


def _refuse(status: int, error: str, message: str, *headers: tuple[str, str], **fields: Any) -> _Refused:
    return _Refused(json_response(status, {"error": error, "message": message, **fields}, *headers))


class Api:
    """All routes over one store. `handle` may be called from any thread."""

    def __init__(
        self,
        settings: ApiSettings,
        store: Store,
        *,
        start_run: Callable[[Run], None],
        on_event: Callable[[Run], None],
    ) -> None:
        self.settings = settings
        self.store = store
        self._start_run = start_run
        self._on_event = on_event
        self._windows: dict[tuple[str, str], tuple[float, int]] = {}
        self._lock = threading.Lock()
        self._handlers: dict[str, Callable[[Request, str], Answer]] = {
            "models": self._models,
            "create": self._create,
            "list": self._list,
            "snapshot": self._snapshot,
            "stream": self._stream,
            "tool_results": self._tool_results,
            "cancel": self._cancel,
            "feedback": self._feedback,
        }

    def handle(self, request: Request) -> Answer:
        """Answer one request. Does not block."""
        slug, route, other_method = match_route(request)
        request.route = route.name if route else ""
        rate: tuple[tuple[str, str], ...] = ()
        try:
            credential = self._authenticate(request)
            if slug and slug != self.settings.workspace_slug:
                raise _refuse(
                    404,
                    "workspace_not_found",
                    f"There is no workspace {slug!r} for this credential.",
                    hint=f"This credential belongs to the workspace {self.settings.workspace_slug!r}.",
                )
            if route is None:
                if other_method:
                    raise _refuse(405, "method_not_allowed", f"{request.method} is not supported here.")
                raise _refuse(404, "not_found", "There is no such route.")
            self._check_scope(credential, route)
            rate = self._count(credential, route)
            answer = self._handlers[route.name](request, credential)
        except _Refused as refused:
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
        known = credential == self.settings.api_key or credential in self.settings.tokens
        if scheme.lower() != "bearer" or not known:
            raise _refuse(
                401,
                "unauthorized",
                "Invalid or missing API key or access token.",
                ("WWW-Authenticate", 'Bearer error="invalid_token"' if credential else "Bearer"),
            )
        return credential

    def _check_scope(self, credential: str, route: Route) -> None:
        scopes = self.settings.tokens.get(credential)
        if scopes is None or route.scope in scopes:  # a workspace key carries no scopes: it may do all
            return
        raise _refuse(
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
            raise _refuse(
                429,
                "rate_limit_exceeded",
                f"Too many requests: {limit} a minute in the bucket {route.bucket}.",
                ("Retry-After", str(wait)),
                *headers,
                code="rate_limit_exceeded",
            )
        return headers

    # ----------------------------------------------------------- helpers

    def _run(self, request: Request) -> Run:
        run = self.store.get(request.segments[5])
        if run is None:
            raise _refuse(404, "not_found", f"There is no run {request.segments[5]!r} in this workspace.")
        return run

    def _body(self, request: Request) -> Any:
        try:
            return json.loads(request.body, parse_constant=_no_constant)
        except ValueError:
            raise InvalidRequest("the body must be JSON") from None
        except RecursionError:
            raise InvalidRequest("the body is nested too deeply") from None

    def _agent(self, agent_id: str, credential: str) -> Mapping[str, Any]:
        allowed = self.settings.allowed_agents.get(credential)
        if allowed is not None and agent_id not in allowed:
            raise _refuse(403, "forbidden", f"This credential may not use the agent {agent_id!r}.")
        agent = self.settings.agents.get(agent_id)
        if agent is None:
            raise _refuse(404, "not_found", f"There is no agent {agent_id!r} in this workspace.")
        return agent

    def _resolve_model(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Build the `model` object of terminal events (wire §4.8.1). Raises 400 `invalid_model`."""
        model_id = spec.get("modelId") or self.settings.default_model_id
        provider, colon, vendor = model_id.partition(":")
        resolved = {
            "id": model_id,
            "provider": provider if colon else "local",
            "vendorModelId": vendor if colon else model_id,
        }
        if self.settings.models is not None:
            entries = {entry["id"]: entry for entry in self.settings.models}
            if model_id not in entries:
                raise _refuse(
                    400,
                    "invalid_model",
                    f"There is no model {model_id!r} in this workspace.",
                    candidates=sorted(entries),
                )
            for name in ("provider", "vendorModelId"):
                resolved[name] = entries[model_id].get(name, resolved[name])
        if spec.get("reasoningLevel") is not None:
            resolved["reasoningEffort"] = _reasoning_effort(spec["reasoningLevel"])
        return resolved

    # ----------------------------------------------------------- handlers

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
        spec = self._body(request)
        if not isinstance(spec, dict):
            raise InvalidRequest("the body must be a JSON object")
        check_spec(spec)
        if spec.get("agentId"):
            agent = self._agent(spec["agentId"], credential)
            spec = {**agent, **{name: value for name, value in spec.items() if value is not None}}
        run = Run(new_id("run"), spec, model=self._resolve_model(spec), on_event=self._on_event)
        self.store.add(run)
        self._start_run(run)
        return json_response(202, {"runId": run.id, "streamUrl": self._stream_path(run)})

    def _stream_path(self, run: Run) -> str:
        slug = quote(self.settings.workspace_slug, safe="")
        return f"/api/v1/workspaces/{slug}/agent-runs/{run.id}/stream"

    def _list(self, request: Request, _credential: str) -> Answer:
        limit = limits.DEFAULT_PAGE_SIZE
        text = request.first("limit")
        if text is not None:
            if not (text.isascii() and text.isdigit()) or not 1 <= int(text) <= limits.MAX_PAGE_SIZE:
                raise InvalidRequest(f"limit must be an integer from 1 to {limits.MAX_PAGE_SIZE}, got {text!r}")
            limit = int(text)
        wanted = RunFilter(
            status=request.first("status"),
            model_id=request.first("modelId"),
            agent_id=request.first("agentId"),
            metadata=read_metadata_filter(request),
        )
        try:
            runs, next_cursor = self.store.page(wanted, cursor=request.first("cursor"), limit=limit)
        except ValueError as error:
            raise InvalidRequest(str(error)) from None
        with_total = request.first("includeTotal") in ("1", "true")
        return json_response(
            200,
            {
                "total": self.store.count(wanted) if with_total else None,
                "limit": limit,
                "nextCursor": next_cursor,
                "runs": [run.to_summary() for run in runs],
            },
        )

    def _snapshot(self, request: Request, _credential: str) -> Answer:
        return json_response(200, self._run(request).to_snapshot())

    def _stream(self, request: Request, _credential: str) -> Answer:
        given = (request.headers.get("last-event-id"), request.first("lastSeq"))
        # Both may be there, and a URL that is opened again may hold an old number: the newer one counts.
        seqs = [int(text) for text in given if text and text.isascii() and text.isdigit() and len(text) < 16]
        return StreamResponse(self._run(request), max(seqs, default=0))

    def _tool_results(self, request: Request, _credential: str) -> Answer:
        run = self._run(request)
        tool_use_id, answer = read_tool_result(self._body(request))
        outcome = run.answer_call(tool_use_id, answer)
        if outcome == "run_terminal":
            raise _refuse(409, "run_terminal", f"The run {run.id} has already ended; the result was dropped.")
        if outcome == "unknown_tool_use":
            raise _refuse(404, "unknown_tool_use", f"No call {tool_use_id!r} of the run waits for a result.")
        return Response(204)

    def _cancel(self, request: Request, _credential: str) -> Answer:
        run = self._run(request)
        if not run.is_terminal:
            run.cancel()
        return json_response(200, {"ok": True})

    def _feedback(self, request: Request, _credential: str) -> Answer:
        run = self._run(request)
        verdict, explanation, snapshot = read_feedback(self._body(request))
        first = run.feedback is None
        feedback_id = new_id("fb") if run.feedback is None else run.feedback.id
        run.feedback = Feedback(feedback_id, verdict, explanation, snapshot)
        return json_response(
            201 if first else 200,
            {"id": feedback_id, "verdict": verdict, "targetKind": "agent_run", "agentRunId": run.id},
        )


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def read_metadata_filter(request: Request) -> tuple[tuple[str, str], ...]:
    """Read the repeatable `metadata=key:value` of a listing."""
    pairs = []
    for text in request.query.get("metadata", ()):
        key, colon, value = text.partition(":")
        if not colon or not key:
            raise InvalidRequest(f"metadata must be key:value, got {text!r}")
        pairs.append((key, value))
    return tuple(pairs)


def _reasoning_effort(level: Any) -> str:
    number: int = limits.REASONING_WORDS[level] if isinstance(level, str) else level
    if number <= 0:
        return "off"
    return "low" if number <= 35 else "medium" if number <= 65 else "high"
