"""What the embedded gateway knows: projects, the agents connected to them, and the calls that went through."""

from __future__ import annotations

import collections
import threading
import time
import uuid
from dataclasses import field
from typing import TYPE_CHECKING, Any, Callable, Mapping, Optional

from mantyx_sync import limits
from mantyx_sync.local.frames import FrameLog
from mantyx_sync.local.gateway_json import to_json
from mantyx_sync.local.gateway_keys import KEY_KINDS, Key, Keyring
from mantyx_sync.local.gateway_rates import MinuteLimit
from mantyx_sync.local.gateway_registration import GatewayPlan, Registration
from mantyx_sync.reprs import dataclass

if TYPE_CHECKING:
    from mantyx_sync.local.gateway import LocalGateway

__all__ = ["AgentConnection", "AgentStream", "GatewayCall", "GatewayProject", "check_call_timeout", "frame"]

MIN_CALL_TIMEOUT_S = 1.0
MAX_CALL_TIMEOUT_S = limits.SPACEFIX_CALL_TIMEOUT_S
MAX_KEPT_SAMPLES = 1024
ACCESS = ("read", "write")


def frame(event: str, data: Any) -> bytes:
    """Write one event as the gateway does (spacefix, "Frames")."""
    return f"event: {event}\ndata: {to_json(data)}\n\n".encode()


def check_call_timeout(seconds: float) -> float:
    """Return a call timeout that a project may have. Raises `ValueError`."""
    if isinstance(seconds, bool) or not MIN_CALL_TIMEOUT_S <= seconds <= MAX_CALL_TIMEOUT_S:
        raise ValueError(
            f"call_timeout must be a number of seconds from {MIN_CALL_TIMEOUT_S:g} to {MAX_CALL_TIMEOUT_S:g}, "
            f"got {seconds!r}"
        )
    return float(seconds)


class AgentStream(FrameLog):
    """The events of one agent. It is complete once the gateway has ended it."""

    forgets = True

    def __init__(self, connection_id: str, on_left: Callable[[], None]) -> None:
        super().__init__(connection_id)
        self.has_ended = False
        self._on_left = on_left

    @property
    def is_terminal(self) -> bool:
        """Whether the gateway has ended the stream."""
        return self.has_ended

    def reader_left(self) -> None:
        """Tell the gateway that the agent's connection has ended."""
        self._on_left()


@dataclass
class GatewayCall:
    """One call as the Logs page shows it: from a client's request to its answer.

    Attributes:
        request_id: The `requestId` of the trace; for a call from the Playground one that the agent never saw.
        kind: `call`, `read` or `prompt`.
        name: The tool, the resource's uri, or the prompt.
        call_id: The id of the event; `None` if none was sent.
        connection_id: The agent that got it; `None` if none did.
        trace: The `trace` of the event; `None` for a call from the Playground.
        outcome: `ok`; `error`, as the agent reported; `timeout`; `lost`, with the stream or the gateway; `refused`
            before an agent was asked; `cached`. `None` while the call runs.
        error: What the client was told of a failure.
        span: The parts of the agent's `span` that were in range.
        duration_ms: How long the client waited; `None` while it waits.
        arguments: What the client sent.
    """

    request_id: str
    project_id: str
    kind: str
    name: str
    arguments: Any = field(default=None, repr=False)
    trace: Optional[Mapping[str, Any]] = None
    call_id: Optional[str] = None
    connection_id: Optional[str] = None
    outcome: Optional[str] = None
    error: Optional[str] = None
    span: Mapping[str, Any] = field(default_factory=dict)
    started_at: float = field(default_factory=time.time)
    duration_ms: Optional[float] = None


class AgentConnection:
    """One connected agent: its registration, its stream, and what it told of itself.

    Attributes:
        id: The `connectionId`. Like a credential: whoever knows it and a key of the project can answer for the agent.
        registration: What it serves.
        is_enabled: Whether it gets new calls.
        is_live: Whether its stream is open.
        telemetry: The samples it sent, oldest first.
        in_flight: How many calls it has not answered yet.
    """

    def __init__(
        self, project: GatewayProject, key: Key, registration: Registration, on_left: Callable[[], None]
    ) -> None:
        self.id = str(uuid.uuid4())
        self.project = project
        self.key = key
        self.registration = registration
        self.is_enabled = True
        self.is_live = True
        self.telemetry: collections.deque[Mapping[str, float]] = collections.deque(maxlen=MAX_KEPT_SAMPLES)
        self.in_flight = 0
        self.stream = AgentStream(self.id, on_left)

    def __repr__(self) -> str:
        state = "live" if self.is_live else "gone"
        return f"<AgentConnection of project {self.project.id}, {state}, {self.in_flight} calls in flight>"


class GatewayProject:
    """One project of a gateway; `LocalGateway.add_project` makes it.

    Attributes:
        id: What clients name in `/mcp/{id}`.
        name: What clients see as the server's name.
        account: Whom it belongs to; an account is suspended and deleted with all its projects.
        plan: What is allowed.
        instructions: Told to clients that connect.
        agent_key: A key for agents.
        client_key: A key for clients.
        full_key: A key for both.
        suspension: Why it is suspended; `None` if it is not.
    """

    def __init__(
        self,
        gateway: LocalGateway,
        keyring: Keyring,
        lock: threading.RLock,
        *,
        project_id: str,
        name: str,
        account: str,
        plan: GatewayPlan,
        call_timeout: float,
        instructions: Optional[str],
    ) -> None:
        self.id = project_id
        self.name = name
        self.account = account
        self.plan = plan
        self.instructions = instructions
        self.suspension: Optional[str] = None
        self.connects = MinuteLimit(plan.max_connects_per_minute)
        self.connections: dict[str, AgentConnection] = {}  # the longest connected first
        self.access: dict[str, str] = {}
        self.cache_seconds: dict[str, float] = {}
        self._call_timeout = check_call_timeout(call_timeout)
        self._gateway = gateway
        self._keyring = keyring
        self._lock = lock
        self.agent_key, self.client_key, self.full_key = (self.add_key(kind) for kind in KEY_KINDS)

    def __repr__(self) -> str:
        return f"<GatewayProject {self.id} with {len(self.connections)} agents>"

    @property
    def mcp_url(self) -> str:
        """Where MCP clients connect."""
        return f"{self._gateway.url}/mcp/{self.id}"

    @property
    def call_timeout(self) -> float:
        """Seconds a client waits for an answer, 1 to 30; calls that are on their way keep what they have."""
        return self._call_timeout

    @call_timeout.setter
    def call_timeout(self, seconds: float) -> None:
        self._call_timeout = check_call_timeout(seconds)

    def add_key(self, kind: str, *, is_read_only: bool = False, expires_in: Optional[float] = None) -> str:
        """Make one more key, and return it.

        Args:
            kind: `agent`, `client` or `full`.
            is_read_only: For clients: tools that change something are neither listed nor called.
            expires_in: Seconds by the gateway's clock after which it stops working; `None` is never.
        """
        if kind not in KEY_KINDS:
            raise ValueError(f"kind must be one of {', '.join(KEY_KINDS)}, got {kind!r}")
        if is_read_only and kind != "client":
            raise ValueError("is_read_only is for keys of the kind client")
        expires_at = None if expires_in is None else self._gateway.clock() + expires_in
        with self._lock:
            return self._keyring.make(self, kind, is_read_only=is_read_only, expires_at=expires_at).text

    def mark_tool(self, name: str, access: Optional[str]) -> None:
        """Say as the project's owner that a tool reads or writes, whatever agents hint; `None` takes it back."""
        if access is not None and access not in ACCESS:
            raise ValueError(f"access must be read, write or None, got {access!r}")
        with self._lock:
            self.access.pop(name, None)
            if access is not None:
                self.access[name] = access

    def cache_tool(self, name: str, seconds: Optional[float]) -> None:
        """Have the gateway answer repeated calls of a tool from successful results of so many seconds before.

        Arguments have to be the same. `None` ends it.
        """
        with self._lock:
            self.cache_seconds.pop(name, None)
            if seconds is not None:
                self.cache_seconds[name] = seconds
