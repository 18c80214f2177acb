"""`LocalGateway`: the SpaceFix gateway on this machine, for agents and MCP clients under test."""

from __future__ import annotations

import functools
import threading
import time
import uuid
from typing import Any, Callable, Iterable, Mapping, Union

from mantyx_sync import limits
from mantyx_sync.local.answers import Answer
from mantyx_sync.local.faults import Effect, Fault
from mantyx_sync.local.gateway_agents import SHUTTING_DOWN, AgentEndpoints
from mantyx_sync.local.gateway_calls import Switchboard
from mantyx_sync.local.gateway_keys import Keyring
from mantyx_sync.local.gateway_mcp import McpEndpoint
from mantyx_sync.local.gateway_projects import AgentConnection, GatewayCall, GatewayProject, check_call_timeout
from mantyx_sync.local.gateway_registration import FREE, GatewayPlan
from mantyx_sync.local.gateway_requests import Caller, McpMethods, McpRefused
from mantyx_sync.local.http import Request, Response, json_response
from mantyx_sync.local.loopback import LoopbackServer

__all__ = ["LocalGateway"]

_PLANS: Mapping[str, GatewayPlan] = {"free": FREE}
_PLAYED = {"call": ("tools/call", "name"), "read": ("resources/read", "uri"), "prompt": ("prompts/get", "name")}


class LocalGateway(LoopbackServer):
    """Serve the SpaceFix agent protocol, and MCP to clients, over HTTP on loopback.

        with LocalGateway() as gateway:
            project = gateway.add_project("orders")
            with Agent(tools=[get_order], url=gateway.url, agent_key=project.agent_key).start():
                gateway.wait_for_agents()
                client = McpClient.http(project.mcp_url, headers={"Authorization": f"Bearer {project.client_key}"})

    Everything the protocol's document says of the gateway holds: the checks in their order and words, the frames,
    routing, time-outs, limits and what ends a stream. Times run by `clock`; after a clock of yours has moved, `tick`
    has the gateway look at it.

    **Faults** strike by route, as with `LocalServer`: `connect`, `result`, `telemetry`, `mcp`. A fault on `connect`
    shapes the agent's event stream: `cut(300)` breaks it after so many bytes, `silent(300)` leaves it half open.

    **Beyond the document**, as it says nothing: calls fail with "Key expired." where a key expired under its agent;
    a key that works is let in although other keys from its address were rejected too often; a client's key is good
    for its own project only (403 elsewhere); a prompt's `required` arguments have to be there. While the gateway
    shuts down, agents keep their streams until the calls under way have ended or the time for it is up.

    Args:
        plan: What projects may do unless `add_project` says otherwise: `free`, or a `GatewayPlan` of yours.
        call_timeout: How long clients of projects wait unless `add_project` says otherwise, 1 to 30 s.
        ping_interval: Seconds between the comments that keep a stream alive.
        host: A loopback address.
        port: The port; 0 takes a free one. A gateway that is started again listens where it did before.
        faults: Faults from the start; more can be added to `faults` later.
        clock: The time in seconds that time-outs, pings, limits and expiries go by.

    Raises:
        ValueError: An argument is not allowed.
    """

    def __init__(
        self,
        *,
        plan: str | GatewayPlan = "free",
        call_timeout: float = limits.SPACEFIX_CALL_TIMEOUT_S,
        ping_interval: float = limits.SPACEFIX_PING_S,
        host: str = "127.0.0.1",
        port: int = 0,
        faults: Iterable[Union[Fault, Effect]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(host=host, port=port, faults=faults, heartbeat=None, clock=clock)
        if ping_interval <= 0:
            raise ValueError(f"ping_interval must be a positive number of seconds, got {ping_interval!r}")
        self.clock = clock
        self._plan = _plan(plan)
        self._call_timeout = check_call_timeout(call_timeout)
        self._ping_interval = ping_interval
        self._lock = threading.RLock()
        self._projects: dict[str, GatewayProject] = {}
        self._is_draining = False
        self._keyring = Keyring(clock)
        self._board = Switchboard(self._loop, self._lock)
        self._methods = McpMethods(self._board)
        self._agent_endpoints = AgentEndpoints(self._keyring, self._board, clock, self._connected)
        self._mcp = McpEndpoint(self._keyring, self._methods, self._loop.run_changed)

    def __repr__(self) -> str:
        where = self.url if self._port is not None else "stopped"
        return f"<LocalGateway {where} projects={len(self._projects)} agents={len(self._board.agents())}>"

    # ------------------------------------------------------------- projects

    def add_project(
        self,
        name: str = "project",
        *,
        project_id: str | None = None,
        account: str = "local",
        plan: str | GatewayPlan | None = None,
        call_timeout: float | None = None,
        instructions: str | None = None,
    ) -> GatewayProject:
        """Add a project with an agent key, a client key and a full key.

        Args:
            name: What MCP clients see as the server's name.
            project_id: What stands in `/mcp/{id}`; `None` makes one.
            account: Whom it belongs to.
            plan: What it may do; `None` is the gateway's.
            call_timeout: How long its clients wait, 1 to 30 s; `None` is the gateway's.
            instructions: Told to clients that connect.

        Raises:
            ValueError: The id is taken, or an argument is not allowed.
        """
        with self._lock:
            if project_id in self._projects:
                raise ValueError(f"project_id: {project_id!r} is taken")
            project = GatewayProject(
                self,
                self._keyring,
                self._lock,
                project_id=project_id or str(uuid.uuid4()),
                name=name,
                account=account,
                plan=self._plan if plan is None else _plan(plan),
                call_timeout=self._call_timeout if call_timeout is None else call_timeout,
                instructions=instructions,
            )
            self._projects[project.id] = project
            return project

    @property
    def projects(self) -> list[GatewayProject]:
        """All projects, oldest first."""
        with self._lock:
            return list(self._projects.values())

    def delete(self, project: GatewayProject) -> None:
        """Delete a project: its streams end and its keys do not work any more."""
        self._delete([project], "Project deleted.")

    def delete_account(self, account: str) -> None:
        """Delete an account with all its projects."""
        self._delete([project for project in self.projects if project.account == account], "Account deleted.")

    def suspend(self, project: GatewayProject, reason: str = "suspended by its owner") -> None:
        """Suspend a project: its streams end, and agents and clients get 403 with the reason."""
        self._suspend([project], reason, "Project suspended.")

    def suspend_account(self, account: str, reason: str = "suspended by its owner") -> None:
        """Suspend an account with all its projects."""
        self._suspend(
            [project for project in self.projects if project.account == account], reason, "Account suspended."
        )

    def resume(self, project: GatewayProject) -> None:
        """End the suspension of a project."""
        with self._lock:
            project.suspension = None

    def _delete(self, projects: list[GatewayProject], message: str) -> None:
        with self._lock:
            for project in projects:
                self._projects.pop(project.id, None)
                for key in self._keyring.of_project(project):
                    key.is_revoked = True
                self._end_all(project, message)

    def _suspend(self, projects: list[GatewayProject], reason: str, message: str) -> None:
        with self._lock:
            for project in projects:
                project.suspension = reason
                self._end_all(project, message)

    def _end_all(self, project: GatewayProject, message: str) -> None:
        for agent in self._board.agents(project):
            self._board.end(agent, message)

    # ----------------------------------------------------------------- keys

    def revoke(self, key: str) -> None:
        """Revoke a key: streams that were opened with it end. Raises `KeyError` for a key never made here."""
        self._close_key(key, "Key revoked.")

    def expire(self, key: str) -> None:
        """Have a key expire now. Raises `KeyError` for a key never made here."""
        self._close_key(key, "Key expired.")

    def rotate(self, key: str) -> str:
        """Replace a key by a new one of its kind, and return that. Raises `KeyError` for a key never made here.

        The project's `agent_key`, `client_key` or `full_key` is the new one if it was the old one.
        """
        with self._lock:
            old = self._keyring.find(key)
            new = old.project.add_key(old.kind, is_read_only=old.is_read_only)
            for name in ("agent_key", "client_key", "full_key"):
                if getattr(old.project, name) == key:
                    setattr(old.project, name, new)
            self._close_key(key, "Key rotated.")
            return new

    def _close_key(self, text: str, message: str) -> None:
        with self._lock:
            key = self._keyring.find(text)
            key.is_revoked = True
            for agent in self._board.agents(key.project):
                if agent.key is key:
                    self._board.end(agent, message)

    # --------------------------------------------------------------- agents

    def agents(self, project: GatewayProject | None = None) -> list[AgentConnection]:
        """Return the live connections of a project, or of all: the longest connected first."""
        return self._board.agents(project)

    def wait_for_agents(
        self, count: int = 1, project: GatewayProject | None = None, timeout: float = 10.0
    ) -> list[AgentConnection]:
        """Wait until at least so many agents are connected, and return them.

        Raises:
            TimeoutError: `timeout` seconds passed first.
        """
        self.wait_until(lambda: len(self.agents(project)) >= count, timeout, f"{count} connected agents")
        return self.agents(project)

    def wait_until(self, condition: Callable[[], bool], timeout: float = 10.0, what: str = "a condition") -> None:
        """Wait until agents, calls or the log are as `condition` wants them; it is looked at after each change.

        Raises:
            TimeoutError: `timeout` seconds passed first.
        """
        with self._board.changed:
            if not self._board.changed.wait_for(condition, timeout):
                raise TimeoutError(f"waited {timeout:g} s for {what}")

    def disable(self, agent: AgentConnection) -> None:
        """Send an agent no new calls, for as long as it is connected; what runs may finish."""
        with self._lock:
            agent.is_enabled = False

    def enable(self, agent: AgentConnection) -> None:
        """Send an agent calls again."""
        with self._lock:
            agent.is_enabled = True

    def cut(self, agent: AgentConnection, how: str = "fin") -> None:
        """Break the connection of an agent as a network does: `fin` closes it within the body, `rst` resets it."""
        if how not in ("fin", "rst"):
            raise ValueError(f"how must be fin or rst, got {how!r}")

        def close() -> None:
            for connection in tuple(self._loop.streams.get(agent.id, ())):
                connection.close(how)

        self._loop.post(close)

    # ---------------------------------------------------------------- calls

    @property
    def log(self) -> list[GatewayCall]:
        """The newest calls, oldest first, those that still run included."""
        with self._lock:
            return list(self._board.log)

    def play(
        self, project: GatewayProject, name: str, arguments: Mapping[str, Any] | None = None, *, kind: str = "call"
    ) -> Mapping[str, Any]:
        """Make a call as the dashboard's Playground does, without a trace, and wait for what a client would get.

        Args:
            kind: `call`, `read` (then `name` is the uri) or `prompt`.

        Returns:
            The response's `result` or `error`, in a mapping with that one key.
        """
        if kind not in _PLAYED:
            raise ValueError(f"kind must be one of {', '.join(_PLAYED)}, got {kind!r}")
        method, named = _PLAYED[kind]
        params = {named: name, **({} if arguments is None else {"arguments": dict(arguments)})}
        answers: list[Mapping[str, Any]] = []
        try:
            with self._lock:
                self._methods.start(method, params, Caller(project), answers.append)
        except McpRefused as refused:
            return {"error": refused.error}
        # Longer than any time-out by the gateway's own clock, unless that clock is a test's.
        self.wait_until(lambda: bool(answers), limits.SPACEFIX_CALL_TIMEOUT_S * 2, f"the answer of {name!r}")
        return answers[0]

    # ------------------------------------------------------------- lifetime

    def shutdown(self, drain: float = 5.0) -> None:
        """Shut down as for a deployment, and return when it is done; the gateway can be started again.

        New agents and clients get 503. What runs may finish, with results still accepted, for `drain` seconds of
        real time; what has not then fails with "Service is shutting down.", and the streams end.
        """
        with self._board.changed:
            self._is_draining = True
            self._board.changed.notify_all()
            self._board.changed.wait_for(lambda: self._board.calls_under_way == 0, drain)
            for agent in self._board.agents():
                self._board.end(agent, SHUTTING_DOWN)
        self._flush()
        self.stop()

    def stop(self) -> None:
        """Close everything at once: streams and requests break off, calls under way are lost."""
        if self._port is not None:
            self._wanted_port = self.port
        super().stop()
        with self._lock:
            self._is_draining = False

    @property
    def is_draining(self) -> bool:
        """Whether the gateway is shutting down: nothing new is taken, what runs may finish."""
        return self._is_draining

    def tick(self) -> None:
        """Have the gateway look at its clock: what is due by now happens soon."""
        self._loop.post(_nothing)

    def _flush(self) -> None:
        """Wait until the socket loop has worked off what it was told, and had a turn to write it."""
        for _ in range(2):
            done = threading.Event()
            self._loop.post(done.set)
            done.wait(limits.SPACEFIX_CALL_TIMEOUT_S)

    # --------------------------------------------------------------- insides

    def _connected(self, agent: AgentConnection) -> None:
        self._ping_later(agent)
        if agent.key.expires_at is not None:
            self._loop.call_at(agent.key.expires_at, functools.partial(self._board.end, agent, "Key expired."))

    def _ping_later(self, agent: AgentConnection) -> None:
        def ping() -> None:
            if agent.is_live:
                self._board.ping(agent)
                self._ping_later(agent)

        self._loop.call_at(self.clock() + self._ping_interval, ping)

    def _handle(self, request: Request) -> Answer:
        with self._lock:
            route = request.route
            if route == "mcp":
                return self._mcp.handle(request, request.segments[1], is_draining=self._is_draining)
            if route and request.method != "POST":
                return json_response(405, {"error": "Method not allowed."}, ("Allow", "POST"))
            if route == "connect":
                return self._agent_endpoints.connect(request, is_draining=self._is_draining)
            if route == "result":
                return self._agent_endpoints.result(request)
            if route == "telemetry":
                return self._agent_endpoints.telemetry(request)
            return json_response(404, {"error": "Not found."})

    def _route_of(self, request: Request) -> str:
        if len(request.segments) != 2:
            return ""
        area, name = request.segments
        if area == "agent" and name in ("connect", "result", "telemetry"):
            return name
        return "mcp" if area == "mcp" else ""

    def _refuse(self, status: int, message: str) -> Response:
        return self._agent_endpoints.refuse(status, message)

    def _loop_ended(self) -> None:
        for agent in self._board.agents():
            self._board.end(agent, SHUTTING_DOWN)


def _plan(plan: str | GatewayPlan) -> GatewayPlan:
    if isinstance(plan, GatewayPlan):
        return plan
    if plan not in _PLANS:
        raise ValueError(f"plan must be one of {', '.join(_PLANS)} or a GatewayPlan, got {plan!r}")
    return _PLANS[plan]


def _nothing() -> None:
    """What `tick` posts."""
