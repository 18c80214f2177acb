"""What lies between the MCP client and a transport: one request and its answer, notifications, generations.

The client (`client.py`) knows JSON-RPC, versions and tools, and neither processes nor HTTP. A channel knows how a
message reaches the server and how its answer comes back, and nothing of what it means. Their agreement:

- Every method may be called from many threads at once. `exchange` blocks the thread that calls it.
- A request carries the id it is answered under. Ids are integers, and the client never uses one twice.
- A progress token is the id of the request that it belongs to. So `notifications/progress` whose `progressToken` is
  the id of a pending request belongs to that request: it extends its idle time, and its `params` go to
  `Waiting.on_progress`, called by `exchange` on the thread that waits, in order, before `exchange` returns.
- Every other message that answers nothing goes to `Receiver.received`, on whichever thread read it. In the handshake
  era what `received` returns is sent back; a channel never answers a server's request by itself.
- Generations: the number grows whenever a new process or session begins. A request made for a generation is sent
  there or not at all (`McpSessionGone`): a process that was never initialised, or a session the server has forgotten,
  gets no tool call. The client then opens anew, once for all its threads, and repeats the request once.
- After a fork, the child's first use begins a new generation and leaves the parent's process and sockets alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Callable, Mapping, Optional, Protocol

from ..tools.cancellation import Cancellation

__all__ = [
    "DEFAULT_MAX_MESSAGE_BYTES",
    "MAX_KEPT_PROGRESS",
    "Cancellation",
    "Channel",
    "Era",
    "Outgoing",
    "Receiver",
    "Waiting",
]

DEFAULT_MAX_MESSAGE_BYTES = 64 * 1024 * 1024

MAX_KEPT_PROGRESS = 100_000
"""How many notifications of progress are kept for a caller that does not keep up; the oldest are dropped."""


class Era(Enum):
    """How a server wants to be spoken to: opened by a handshake, or told everything in each request."""

    HANDSHAKE = "handshake"
    STATELESS = "stateless"


@dataclass(frozen=True)
class Outgoing:
    """A request on its way.

    Attributes:
        message: The complete JSON-RPC request; `id` is an integer.
        era: The era it is made for.
        headers: `Mcp-Method`, `Mcp-Name`, `Mcp-Param-*`, as text that a header can carry: for HTTP alone, and filled in
            the stateless era alone.
        version: What goes into `MCP-Protocol-Version` over HTTP; `None`: no such header (`initialize`).
        may_cancel: False for `initialize` and `server/discover`: they are never cancelled on the wire.
        generation: The generation it relies on. `None`: whatever there is; what is missing is started first (opening
            requests, and every request of the stateless era).
    """

    message: Mapping[str, Any] = field(repr=False)
    era: Era
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    version: Optional[str] = None
    may_cancel: bool = True
    generation: Optional[int] = None


@dataclass
class Waiting:
    """How long, and how, the caller of a request waits.

    Attributes:
        deadline: When to give up whatever happens, in the time of `time.monotonic()`; `None`: never.
        idle_timeout: Give up after that many seconds without a message for this request (its progress included).
        cancelled: Gives up when it is set.
        on_progress: Takes the `params` of each progress notification of this request, on the waiting thread. It does
            not raise, but may call the client again, and may take its time.
    """

    deadline: Optional[float] = None
    idle_timeout: Optional[float] = None
    cancelled: Optional[Cancellation] = None
    on_progress: Optional[Callable[[Mapping[str, Any]], None]] = None


class Receiver(Protocol):
    """Takes what a server sends unasked. The client is one; a channel holds it by a weak reference."""

    def received(self, message: Mapping[str, Any], era: Era) -> Optional[Mapping[str, Any]]:
        """Take a notification or a server's request; return the response to send back, if there is to be one.

        Does not block, does not raise. `None` also in the stateless era, where a client sends no responses.
        """
        ...


class Channel(Protocol):
    """A way to one server."""

    @property
    def label(self) -> str:
        """What to call the server in a sentence: `MCP server 'npx'`, `MCP server https://host/mcp`. No secrets."""
        ...

    @property
    def generation(self) -> int:
        """Number of the process or session in use; it grows with each new one, and does not fall when one ends."""
        ...

    def exchange(self, request: Outgoing, waiting: Waiting) -> Mapping[str, Any]:
        """Send a request, block until its response is there, and return that whole (with `result` or `error`).

        A call that is given up (deadline, idle time, cancelled, Ctrl-C) is cancelled on the wire as its era says,
        unless `may_cancel` is false; an answer that comes later is dropped.

        Raises:
            McpConnectionError: The server exited, the connection broke or could not be made.
            McpSessionGone: The generation is over; the server did not execute the request.
            McpAuthError: HTTP 401 or 403.
            McpStatusError: Another HTTP status from 400 on, without a JSON-RPC error in its body.
            McpProtocolError: The answer does not follow the protocol.
            McpTimeoutError: The deadline or the idle time passed.
            McpCancelled: `waiting.cancelled` was set.
        """
        ...

    def notify(self, message: Mapping[str, Any], era: Era, version: Optional[str], deadline: Optional[float]) -> None:
        """Send a notification; block until it is handed over, at most to `deadline`.

        Raises:
            McpConnectionError: It could not be sent.
            McpSessionGone: The session is over.
            McpAuthError: HTTP 401 or 403.
            McpTimeoutError: The deadline passed.
        """
        ...

    def opened(self, era: Era, version: Optional[str]) -> None:
        """Note that the server has been opened; does not block.

        Over HTTP this starts the GET stream if a session id was issued.
        """
        ...

    def close(self) -> None:
        """End the session or process and free everything; waiting calls fail. Idempotent; blocks a bounded time.

        A channel that was closed is not used again.
        """
        ...
