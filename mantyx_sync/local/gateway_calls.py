"""The calls of the embedded gateway: who gets one, how it ends, and what its client is then told.

Every call is sent to one agent, once (spacefix, "Timeouts and delivery guarantees"), and ends in exactly one way: by
the agent's answer, by its time-out, or with the stream it went out on.
"""

from __future__ import annotations

import collections
import re
import threading
import time
import uuid
from dataclasses import dataclass
from typing import Any, Callable, Mapping, Optional

from mantyx_sync import limits
from mantyx_sync.local.gateway_json import to_json
from mantyx_sync.local.gateway_keys import Key
from mantyx_sync.local.gateway_projects import AgentConnection, GatewayCall, GatewayProject, frame
from mantyx_sync.local.gateway_registration import Registration
from mantyx_sync.local.loop import SocketLoop, Timer

__all__ = ["DISCONNECTED", "Outcome", "Switchboard"]

DISCONNECTED = "Agent disconnected before returning a result."
TOOL_FAILED = "Tool failed."
_WHAT = {"call": "tool", "read": "resource", "prompt": "prompt"}
_SPAN_ID = re.compile(r"[0-9a-f]{16}")
MAX_KEPT_CALLS = 16_384
MAX_CACHED = 1024


@dataclass(frozen=True)
class Outcome:
    """How a call ended: with a value, or with a message for its caller."""

    ok: bool
    value: Any = None
    error: str = ""


Settle = Callable[[Outcome], None]


@dataclass(eq=False)
class _Pending:
    """A call that an agent has not answered."""

    record: GatewayCall
    agent: AgentConnection
    settle: Settle
    started: float
    timer: Optional[Timer] = None
    cache_as: Optional[tuple[str, str]] = None


class Switchboard:
    """Connected agents and calls under way. `lock` guards them; `settle` is called with it held and must not block."""

    def __init__(self, loop: SocketLoop, lock: threading.RLock) -> None:
        self.log: collections.deque[GatewayCall] = collections.deque(maxlen=MAX_KEPT_CALLS)
        self.changed = threading.Condition(lock)
        self._loop = loop
        self._lock = lock
        self._agents: dict[str, AgentConnection] = {}
        self._pending: dict[str, _Pending] = {}
        # (project, kind, name) -> the connection that had the last turn.
        self._turns: dict[tuple[str, str, str], str] = {}
        self._cache: collections.OrderedDict[tuple[str, str, str], tuple[float, Any]] = collections.OrderedDict()

    # --------------------------------------------------------------- agents

    def connect(self, project: GatewayProject, key: Key, registration: Registration) -> AgentConnection:
        """Take an agent in; its stream begins with `ready`."""
        with self._lock:
            agent = AgentConnection(project, key, registration, lambda: self.end(agent, DISCONNECTED))
            agent.stream.frames.append(frame("ready", {"connectionId": agent.id}))
            self._agents[agent.id] = agent
            project.connections[agent.id] = agent
            self.changed.notify_all()
            return agent

    def end(self, agent: AgentConnection, message: str) -> None:
        """End a stream, and with it every call that waits for its agent. Ending it twice changes nothing."""
        with self._lock:
            if not agent.is_live:
                return
            agent.is_live = False
            del self._agents[agent.id]
            agent.project.connections.pop(agent.id, None)
            for call_id, call in list(self._pending.items()):
                if call.agent is agent:
                    self._finish(call_id, "lost", Outcome(False, error=message))
            agent.stream.has_ended = True
            self._loop.run_changed(agent.stream)
            self.changed.notify_all()

    def agents(self, project: GatewayProject | None = None) -> list[AgentConnection]:
        """Return the live connections, the longest connected first."""
        with self._lock:
            return list(self._agents.values() if project is None else project.connections.values())

    def ping(self, agent: AgentConnection) -> None:
        """Write the comment that keeps a stream alive."""
        with self._lock:
            if agent.is_live:
                agent.stream.frames.append(b": ping\n\n")
                self._loop.run_changed(agent.stream)

    @property
    def calls_under_way(self) -> int:
        """How many calls agents have not answered."""
        return len(self._pending)

    # ---------------------------------------------------------------- calls

    def lister(self, project: GatewayProject) -> AgentConnection | None:
        """Return the agent that speaks for the project in listings: the longest connected that is enabled."""
        with self._lock:
            return next((agent for agent in project.connections.values() if agent.is_enabled), None)

    def next_agent(self, project: GatewayProject, kind: str, name: str) -> AgentConnection | None:
        """Return the agent whose turn it is to get a call, which is not taken yet; `None` if none serves it."""
        with self._lock:
            serving = [
                agent for agent in project.connections.values() if agent.is_enabled and _serves(agent, kind, name)
            ]
            last = self._turns.get((project.id, kind, name))
            ids = [agent.id for agent in serving]
            if not serving:
                return None
            return serving[(ids.index(last) + 1) % len(ids) if last in ids else 0]

    def dispatch(
        self, record: GatewayCall, agent: AgentConnection, settle: Settle, *, timeout: float, cache: bool = False
    ) -> None:
        """Send a call to its agent. What becomes of it is told to `settle`, once."""
        with self._lock:
            if not agent.is_live:  # it left since it was chosen
                self._close_record(record, 0.0, "lost", DISCONNECTED)
                settle(Outcome(False, error=DISCONNECTED))
                return
            record.call_id = call_id = str(uuid.uuid4())
            record.connection_id = agent.id
            self._turns[record.project_id, record.kind, record.name] = agent.id
            event: dict[str, Any] = {"id": call_id, "name": record.name}
            if record.kind != "read":
                event["args"] = record.arguments
            if record.trace is not None:
                event["trace"] = record.trace
            pending = _Pending(record, agent, settle, time.monotonic())
            if cache:
                pending.cache_as = (record.name, to_json(record.arguments))
            self._pending[call_id] = pending
            agent.in_flight += 1
            agent.stream.frames.append(frame(record.kind, event))
            self._loop.run_changed(agent.stream)
            pending.timer = self._loop.call_at(self._loop.clock() + timeout, lambda: self._time_out(call_id, timeout))

    def refuse(self, record: GatewayCall, message: str) -> None:
        """Note a call that no agent was asked for."""
        with self._lock:
            self._close_record(record, 0.0, "refused", message)

    def note(self, record: GatewayCall) -> GatewayCall:
        """List a call in the log, to be filled in as it goes on."""
        with self._lock:
            self.log.append(record)
            self.changed.notify_all()
            return record

    def cached(self, record: GatewayCall, seconds: float) -> Outcome | None:
        """Return the kept result for a call, if one is young enough."""
        with self._lock:
            key = (record.project_id, record.name, to_json(record.arguments))
            made, value = self._cache.get(key, (0.0, None))
            if key not in self._cache or self._loop.clock() - made > seconds:
                return None
            self._close_record(record, 0.0, "cached", None)
            return Outcome(True, value)

    def answer(self, project: GatewayProject, body: Mapping[str, Any]) -> None:
        """Take the body of `/agent/result`. Whatever does not fit a call under way is ignored."""
        with self._lock:
            call_id = body.get("id")
            pending = self._pending.get(call_id) if isinstance(call_id, str) else None
            if pending is None or call_id is None:
                return
            if pending.agent.id != body.get("connectionId") or pending.agent.project is not project:
                return
            pending.record.span = _read_span(body.get("span"))
            if body.get("ok") is True:
                self._finish(call_id, "ok", Outcome(True, body.get("result")))
            else:
                error = body.get("error")
                self._finish(call_id, "error", Outcome(False, error=error if isinstance(error, str) else TOOL_FAILED))

    def _time_out(self, call_id: str, timeout: float) -> None:
        with self._lock:
            pending = self._pending.get(call_id)
            if pending is not None:
                record = pending.record
                message = f'Request for {_WHAT[record.kind]} "{record.name}" timed out after {round(timeout * 1000)}ms.'
                self._finish(call_id, "timeout", Outcome(False, error=message))

    def _finish(self, call_id: str, how: str, outcome: Outcome) -> None:
        pending = self._pending.pop(call_id)
        pending.agent.in_flight -= 1
        if pending.timer is not None:
            pending.timer.cancel()
        if outcome.ok and pending.cache_as is not None:
            self._keep(pending.record.project_id, pending.cache_as, outcome.value)
        self._close_record(pending.record, time.monotonic() - pending.started, how, outcome.error or None)
        pending.settle(outcome)

    def _keep(self, project_id: str, cache_as: tuple[str, str], value: Any) -> None:
        key = (project_id, cache_as[0], cache_as[1])
        self._cache[key] = (self._loop.clock(), value)
        self._cache.move_to_end(key)
        if len(self._cache) > MAX_CACHED:
            self._cache.popitem(last=False)

    def _close_record(self, record: GatewayCall, seconds: float, how: str, error: Optional[str]) -> None:
        record.duration_ms = seconds * 1000
        record.error = error
        record.outcome = how
        self.changed.notify_all()


def _serves(agent: AgentConnection, kind: str, name: str) -> bool:
    registration: Registration = agent.registration
    items: Mapping[str, Any] = {
        "call": registration.tools,
        "read": registration.resources,
        "prompt": registration.prompts,
    }[kind]
    return name in items


def _read_span(span: Any) -> dict[str, Any]:
    """Keep the parts of a result's `span` that are in range (spacefix, "span fields")."""
    if not isinstance(span, dict):
        return {}
    kept: dict[str, Any] = {}
    for name in ("handlerMs", "inboundMs"):
        value = span.get(name)
        if (
            isinstance(value, (int, float))
            and not isinstance(value, bool)
            and 0 <= value <= limits.SPACEFIX_MAX_SPAN_MS
        ):
            kept[name] = value
    span_id = span.get("spanId")
    if isinstance(span_id, str) and _SPAN_ID.fullmatch(span_id):
        kept["spanId"] = span_id
    return kept
