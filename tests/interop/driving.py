"""What the scenarios of all MCP servers use."""

from __future__ import annotations

from typing import Any, Callable

from mantyx_sync.mcp.client import McpClient
from mantyx_sync.mcp.errors import McpRequestError

from .mcp_rows import Server

__all__ = ["Scenario", "refusal_of", "text_of"]

Scenario = Callable[[McpClient, Server], None]


def text_of(client: McpClient, name: str, **arguments: Any) -> str:
    """Call a tool, which has to succeed, and return its text."""
    result = client.call_tool(name, arguments)
    assert not result.is_error, result.text
    return result.text


def refusal_of(client: McpClient, name: str, **arguments: Any) -> str:
    """Call a tool, which has to fail, and return what is said: as a result, or as an error of the protocol."""
    try:
        result = client.call_tool(name, arguments)
    except McpRequestError as error:
        return f"{error.rpc_code} {error}"
    assert result.is_error, result.text
    return result.text
