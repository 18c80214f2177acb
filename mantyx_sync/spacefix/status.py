"""What can be asked of an agent, and what its hooks are told: plain data."""

from __future__ import annotations

from dataclasses import field
from typing import Optional

from ..errors import MantyxError
from ..reprs import dataclass

__all__ = ["AgentStatus", "CallReport", "Disconnect"]


@dataclass(frozen=True)
class AgentStatus:
    """How an agent is, at one moment.

    Attributes:
        state: `stopped`, `connecting`, `ready`, `waiting` (to connect again), `refused` (the gateway does not take
            the registration; `update` is needed), or `stopping`.
        is_healthy: It is connected and heard of the gateway recently. For health checks.
        connected_for: Seconds since `ready` arrived; `None` while not connected.
        silent_for: Seconds since the last byte of the stream; `None` while not connected.
        next_attempt_in: Seconds until it connects again; `None` unless it is waiting.
        connects: Connections that became ready since the agent was started.
        failures: Failed attempts in a row.
        in_flight: Handlers at work.
        waiting: Calls that wait for a place.
        calls: Calls that were taken in hand since the agent was started.
        errors: How many of those ended without success.
        last_error: Why there was no connection the last time.
    """

    state: str
    is_healthy: bool = False
    connected_for: Optional[float] = None
    silent_for: Optional[float] = None
    next_attempt_in: Optional[float] = None
    connects: int = 0
    failures: int = 0
    in_flight: int = 0
    waiting: int = 0
    calls: int = 0
    errors: int = 0
    last_error: Optional[MantyxError] = None


@dataclass(frozen=True)
class CallReport:
    """What became of a call, for `on_call_done`. It holds neither arguments nor results.

    Attributes:
        kind: `call`, `read` or `prompt`.
        name: Of the tool or prompt, or the address of the resource.
        call_id: The gateway's id of it.
        request_id: What the gateway's logs list it under, if it said so.
        outcome: `ok`; `error`, the handler failed or refused; `timed_out`; `refused`, it was not run; `lost`, its
            stream ended before it was answered; `undelivered`, the answer did not reach the gateway.
        error: What the caller was told instead of a result.
        handler_s: Seconds that the handler took; `None` if it was not run.
        waited_s: Seconds that the call waited for a place.
    """

    kind: str
    name: str
    call_id: str
    request_id: Optional[str] = None
    outcome: str = "ok"
    error: Optional[str] = None
    handler_s: Optional[float] = None
    waited_s: float = 0.0

    @property
    def ok(self) -> bool:
        """True if the caller got a result."""
        return self.outcome == "ok"


@dataclass(frozen=True)
class Disconnect:
    """The end of a stream that was ready, for `on_disconnect`.

    Attributes:
        reason: Why it ended, as far as that can be told.
        connected_for: Seconds that it lasted.
        lost_calls: Calls that were not answered by then.
        error: The error behind it, if there was one.
    """

    reason: str
    connected_for: float
    lost_calls: int = 0
    error: Optional[MantyxError] = field(default=None, repr=False)
