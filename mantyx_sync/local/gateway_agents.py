"""The three endpoints for agents: connect, result, telemetry. A request in, an answer out; knows no socket."""

from __future__ import annotations

from typing import Any, Callable, Mapping

from mantyx_sync import limits
from mantyx_sync.local.answers import Answer, StreamResponse
from mantyx_sync.local.gateway_calls import Switchboard
from mantyx_sync.local.gateway_json import BadJson, parse
from mantyx_sync.local.gateway_keys import Denied, Key, Keyring
from mantyx_sync.local.gateway_projects import AgentConnection
from mantyx_sync.local.gateway_registration import Registration, Unregistrable
from mantyx_sync.local.http import Request, Response, json_response

__all__ = ["SHUTTING_DOWN", "TOO_LARGE", "AgentEndpoints", "is_json", "suspended"]

SHUTTING_DOWN = "Service is shutting down."
TOO_LARGE = "request entity too large"
METRICS = (
    *("uptime", "rss", "heapUsed", "heapTotal", "cpu", "eventLoopDelay", "eventLoopUtilization"),
    *("tools", "calls", "errors", "inFlight", "peakInFlight", "avgMs"),
)
_REFUSED = {"client": "This is a client key. Agents connect with an agent key."}
_STREAM_HEADERS = (("Connection", "keep-alive"), ("X-Accel-Buffering", "no"))


def _error(status: int, message: str, *headers: tuple[str, str]) -> Response:
    return json_response(status, {"error": message}, *headers)


def is_json(request: Request) -> bool:
    """Whether a request says that its body is JSON."""
    media_type = request.headers.get("content-type", "").partition(";")[0]
    return media_type.strip().lower() == "application/json"


def suspended(reason: str) -> Response:
    """Answer a request of a suspended project, which is shaped like JSON-RPC for agents too."""
    error = {"code": -32003, "message": f"This project is suspended: {reason}"}
    return json_response(403, {"jsonrpc": "2.0", "id": None, "error": error})


class AgentEndpoints:
    """Answers agents (spacefix, "POST /agent/connect" and the following).

    Args:
        on_connected: Called with each agent that was taken in.
    """

    def __init__(
        self,
        keyring: Keyring,
        board: Switchboard,
        clock: Callable[[], float],
        on_connected: Callable[[AgentConnection], None],
    ) -> None:
        self._keyring = keyring
        self._board = board
        self._clock = clock
        self._on_connected = on_connected

    def refuse(self, status: int, message: str) -> Response:
        """Answer a request that cannot be read."""
        return _error(status, TOO_LARGE if status == 413 else message)

    def connect(self, request: Request, *, is_draining: bool) -> Answer:
        """Register an agent, in the documented order of checks, and open its stream."""
        if is_draining:
            return _error(503, SHUTTING_DOWN)
        key = self._admit(request)
        if isinstance(key, Response):
            return key
        project = key.project
        if project.suspension is not None:
            return suspended(project.suspension)
        wait = project.connects.take(self._clock())
        if wait is not None:
            message = f"Rate limit exceeded: {project.plan.max_connects_per_minute} requests per minute."
            return _error(429, message, ("Retry-After", str(wait)))
        body = self._body(request, limits.SPACEFIX_MAX_REGISTRATION_BYTES)
        if isinstance(body, Response):
            return body
        try:
            registration = Registration.read(body, project.plan)
        except Unregistrable as problem:
            return _error(400, str(problem))
        if len(project.connections) >= project.plan.max_connections:
            plan = project.plan
            return _error(429, f"Too many agent connections: the {plan.name} plan allows {plan.max_connections}.")
        agent = self._board.connect(project, key, registration)
        self._on_connected(agent)
        return StreamResponse(agent.stream, content_type="text/event-stream", more_headers=_STREAM_HEADERS)

    def result(self, request: Request) -> Answer:
        """Take the answer of a call; whether it was used, nobody is told."""
        key = self._admit(request)
        if isinstance(key, Response):
            return key
        body = self._body(request, limits.SPACEFIX_MAX_RESULT_BYTES)
        if isinstance(body, Response):
            return body
        if isinstance(body, dict):
            self._board.answer(key.project, body)
        return Response(204)

    def telemetry(self, request: Request) -> Answer:
        """Keep a sample of a live connection. What cannot be read as one is ignored like any other."""
        key = self._admit(request)
        if isinstance(key, Response):
            return key
        body = self._body(request, limits.SPACEFIX_MAX_RESULT_BYTES)
        if isinstance(body, Response) and body.status != 400:
            return body
        if isinstance(body, dict):
            self._sample(key, body)
        return Response(204)

    def _sample(self, key: Key, body: Mapping[str, Any]) -> None:
        agent = key.project.connections.get(str(body.get("connectionId")))
        metrics = body.get("metrics")
        if agent is not None:
            given = metrics if isinstance(metrics, dict) else {}
            agent.telemetry.append({name: _figure(given.get(name)) for name in METRICS})

    def _admit(self, request: Request) -> Key | Response:
        try:
            return self._keyring.admit(request, _REFUSED)
        except Denied as denied:
            return _error(denied.status, str(denied), *denied.headers)

    def _body(self, request: Request, max_bytes: int) -> Any:
        """Read a body, or return the answer that refuses it."""
        if not is_json(request):
            return _error(415, "Content-Type must be application/json.")
        if len(request.body) > max_bytes:
            return _error(413, TOO_LARGE)
        try:
            return parse(request.body)
        except BadJson as problem:
            return _error(400, str(problem))


def _figure(value: Any) -> float:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else 0
