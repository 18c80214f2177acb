"""An MCP server as a tool of a run: connected, its catalog on the wire, its calls answered (wire §3.3, §4.3.3)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Dict, Mapping

from ..errors import MantyxConfigError, ToolError, ToolInputError, cut
from ..events import LocalToolCall
from ..schema import SchemaChecker
from ..tools.arguments import read_arguments
from ..tools.context import ToolContext
from ..tools.registry import Registry
from ..tools.resolution import BACKSTOP_S
from ..tools.results import ToolResult
from .endings import how_it_ended
from .errors import (
    McpAuthError,
    McpCancelled,
    McpConnectionError,
    McpError,
    McpInputRequired,
    McpOutputError,
    McpRequestError,
    McpStatusError,
    McpTimeoutError,
)

if TYPE_CHECKING:
    from .client import McpClient
    from .models import McpTool
    from .ref import LocalMcpServer

__all__ = ["ResolvedMcpServer", "server_failure"]

log = logging.getLogger(__name__)


class ResolvedMcpServer:
    """A connected server, with what it offered at that time. A tool ref: it says itself on the wire."""

    kind = "mcp_local"

    def __init__(
        self, ref: LocalMcpServer, client: McpClient, wire: Dict[str, Any], tools: Mapping[str, McpTool]
    ) -> None:
        """Called by `LocalMcpServer.resolve`.

        Args:
            wire: The entry of `spec.tools`.
            tools: What it offers, by what the model calls it.
        """
        self.name = ref.name
        self._wire = wire
        self._tools = tools
        self._answerer = _Answerer(ref, client, tools)

    def to_wire(self) -> Dict[str, Any]:
        """Return the entry of `spec.tools`: the catalog as the server gave it, but for names that had to change."""
        return dict(self._wire)

    def register(self, registry: Registry) -> None:
        """See `Resolved.register`."""
        registry.add(self.kind, self.name, self._answerer, names=self._tools)


class _Answerer:
    """Answers calls of one server's tools. Safe to use from any thread."""

    def __init__(self, ref: LocalMcpServer, client: McpClient, tools: Mapping[str, McpTool]) -> None:
        self._ref = ref
        self._client = client
        self._tools = tools
        self._checkers: Dict[str, SchemaChecker] = {}
        self.timeout = ref.timeout + BACKSTOP_S
        self.max_concurrency = ref.max_concurrency
        self.limiter = id(ref)

    def answer(self, call: LocalToolCall, context: ToolContext) -> ToolResult:
        ref = self._ref
        name = call.mcp_tool_name or call.name
        tool = self._tools.get(name)
        if tool is None:
            raise ToolError(f"{ref.label} offers no tool named {name!r}; there are: {', '.join(self._tools)}")
        arguments = read_arguments(call.args, name)
        problem = self._checker(name, tool).problem(arguments)
        if problem is not None:
            raise ToolInputError(f"tool {name!r}: arguments do not match its schema: {problem}")
        try:
            result = self._client.call_tool(
                tool.name,
                arguments,
                timeout=ref.timeout,
                idle_timeout=ref.idle_timeout,
                cancelled=context.cancelled,
            )
        except MantyxConfigError as error:
            raise ToolInputError(f"tool {name!r}: {error.message}") from error
        except McpError as error:
            if not isinstance(error, McpCancelled):
                log.warning("tool %r of %s (run %s): %s", name, ref.label, context.run_id, error)
            raise ToolError(server_failure(error, ref.label, ref.timeout)) from error
        return result.to_tool_result()

    def _checker(self, name: str, tool: McpTool) -> SchemaChecker:
        checker = self._checkers.get(name)
        if checker is None:
            label = f"tool {name!r} of {self._ref.label}"
            checker = self._checkers.setdefault(name, SchemaChecker(tool.input_schema, label=label, foreign=True))
        return checker


def server_failure(error: Exception, label: str, timeout: float) -> str:
    """Say to a model why a call failed: shortly, naming the server, without what a server's log may hold."""
    if isinstance(error, McpCancelled):
        return "the call was cancelled"
    if isinstance(error, McpRequestError):
        return f"{label} refused the call: {cut(error.server_message) or f'error {error.rpc_code}'}"
    if isinstance(error, McpOutputError):
        return f"{label}: the result does not fit what the tool says of its results. It was: {error.text}"
    if isinstance(error, McpAuthError):
        return f"{label} does not accept the credentials that it is given here (HTTP {error.status})"
    if isinstance(error, McpInputRequired):
        return f"{label} wants something that cannot be given here: {cut(', '.join(error.methods))}"
    if isinstance(error, McpStatusError):
        return f"{label} failed with HTTP {error.status}"
    if isinstance(error, McpTimeoutError):
        return f"{label} did not answer within {timeout:g} seconds"
    if isinstance(error, McpConnectionError):
        if error.exit_code is not None:
            what = f"{label} {how_it_ended(error.exit_code)} during the call"
        else:
            what = f"the connection to {label} failed"
        return what if error.sent is False else f"{what}; whether the call was carried out is not known"
    return f"{label} failed ({type(error).__name__})"
