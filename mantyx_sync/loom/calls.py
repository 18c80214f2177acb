"""The tools of a Loom service as calls on values: one MCP call each, a result object back.

What only asks may be sent twice, what changes something never is: not even when the MCP session was over, because the
cause may be a restart of the service (loom §1.4). Refusals found by the MCP layer become the same errors as the
service's own (loom §1.5), and answers that say nothing of what happened count as lost.
"""

from __future__ import annotations

import logging
import threading
import uuid
from typing import TYPE_CHECKING, Any, Mapping, Protocol

from ..checks import refusal, shown
from ..errors import MantyxNetworkError, MantyxProtocolError, MantyxTimeoutError
from ..mcp.errors import McpOutputError, McpRequestError, McpSessionGone, McpStatusError
from .envelope import read_result, without
from .errors import request_error

if TYPE_CHECKING:
    from ..mcp.results import McpResult

__all__ = ["LOST", "Caller", "ToolCaller", "identity", "name", "unique_id"]

log = logging.getLogger(__name__)

LOST = (MantyxNetworkError, MantyxTimeoutError, MantyxProtocolError)
"""What a call raises whose answer was lost: whether it had its effect is not known."""

MAX_IDENTITY_CHARS = 512
MAX_NAME_CHARS = 1024

_NOT_TAKEN = (400, 413)
"""HTTP statuses of a body that is no request, or is too large."""


class ToolCaller(Protocol):
    """What of an `McpClient` is needed here; one that was made with `repeat_after_session_end=False`."""

    def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        cancelled: threading.Event | None = None,
    ) -> McpResult:
        """Call a tool; blocks."""
        ...


class Caller:
    """Calls tools of one service. Safe to use from any thread."""

    def __init__(self, mcp: ToolCaller, timeout: float) -> None:
        self.mcp = mcp
        self.timeout = timeout

    def ask(self, tool: str, arguments: Mapping[str, Any], *, timeout: float | None = None) -> Mapping[str, Any]:
        """Call a tool that changes nothing; what is `None` in `arguments` is left out. Blocks.

        Raises:
            LoomRequestError: The service refused.
            MantyxNetworkError, MantyxTimeoutError, MantyxProtocolError: There was no answer, or none to be used.
        """
        given = {key: value for key, value in arguments.items() if value is not None}
        try:
            return self.act(tool, given, timeout=timeout)
        except McpSessionGone as error:
            log.info("%s: asked again: %s", tool, error)
            return self.act(tool, given, timeout=timeout)

    def act(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        timeout: float | None = None,
        cancelled: threading.Event | None = None,
    ) -> Mapping[str, Any]:
        """Call a tool once, with these arguments as they are. Blocks.

        Args:
            cancelled: Setting it ends the wait; the service goes on with the call.

        Raises:
            LoomRequestError: The service refused.
            McpSessionGone: The session was over and nothing was executed; another one is open with the next call.
            MantyxNetworkError, MantyxTimeoutError, MantyxProtocolError: The answer was lost; the call may have had its
                effect.
            McpCancelled: `cancelled` was set; likewise.
        """
        secret = arguments.get("ownerToken")
        more = {} if cancelled is None else {"cancelled": cancelled}
        try:
            result = self.mcp.call_tool(tool, arguments, timeout=self.timeout if timeout is None else timeout, **more)
        except McpRequestError as error:  # the tool is unknown, or its arguments do not fit its schema
            refused = request_error(tool, "INVALID_REQUEST", without(error.server_message, secret))
            raise refused from (None if secret else error)
        except McpOutputError as error:  # how a service declares its results is no reason to lose one
            result = error.result
        except McpStatusError as error:
            if error.status in _NOT_TAKEN:
                raise request_error(tool, "INVALID_REQUEST", f"HTTP {error.status}") from error
            if error.status is not None and error.status >= 500:
                raise MantyxNetworkError(f"{tool}: the service answered with HTTP {error.status}") from error
            raise
        return read_result(tool, result, secret)


def identity(value: object, where: str) -> str:
    """Return an id as the agent tools take it: 1 to 512 characters, not blank."""
    if not isinstance(value, str) or not value.strip() or len(value) > MAX_IDENTITY_CHARS:
        raise refusal(where, shown(value), f"be 1 to {MAX_IDENTITY_CHARS} characters, not blank")
    return value


def name(value: object, where: str) -> str:
    """Return a name as the artifact tools take it: 1 to 1024 characters, not blank, without control characters."""
    if (
        not isinstance(value, str)
        or not value.strip()
        or len(value) > MAX_NAME_CHARS
        or any(ord(char) < 32 or ord(char) == 127 for char in value)
    ):
        raise refusal(
            where, shown(value), f"be 1 to {MAX_NAME_CHARS} characters, not blank, none of them a control character"
        )
    return value


def unique_id(value: object, where: str) -> str:
    """Return a UUID in its usual spelling."""
    try:
        if isinstance(value, (str, uuid.UUID)):
            return str(uuid.UUID(str(value)))
    except ValueError:
        pass
    raise refusal(where, shown(value), "be a UUID")
