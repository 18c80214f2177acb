"""A synchronous MCP client: stdio and Streamable HTTP, handshake and stateless revisions, threads only.

with McpClient.stdio(["my-server", "--flag"]) as client:
    for tool in client.list_tools():
        print(tool.name, tool.description)
    print(client.call_tool("add", {"a": 1, "b": 2}).text)
"""

from __future__ import annotations

from ..tools.cancellation import Cancellation
from .channel import Era
from .client import McpClient
from .content import (
    McpAudio,
    McpContent,
    McpEmbeddedResource,
    McpImage,
    McpResourceContents,
    McpResourceLink,
    McpText,
    McpUnknownContent,
)
from .errors import (
    McpAuthError,
    McpCancelled,
    McpConnectionError,
    McpError,
    McpInputRequired,
    McpOutputError,
    McpProtocolError,
    McpRequestError,
    McpSessionGone,
    McpStatusError,
    McpTimeoutError,
    McpVersionError,
)
from .models import (
    McpCompletion,
    McpLogMessage,
    McpProgress,
    McpPrompt,
    McpPromptArgument,
    McpResource,
    McpResourceTemplate,
    McpServerInfo,
    McpTool,
)
from .results import McpPromptMessage, McpPromptResult, McpResult

__all__ = [
    "Cancellation",
    "Era",
    "McpAudio",
    "McpAuthError",
    "McpCancelled",
    "McpClient",
    "McpCompletion",
    "McpConnectionError",
    "McpContent",
    "McpEmbeddedResource",
    "McpError",
    "McpImage",
    "McpInputRequired",
    "McpLogMessage",
    "McpOutputError",
    "McpProgress",
    "McpPrompt",
    "McpPromptArgument",
    "McpPromptMessage",
    "McpPromptResult",
    "McpProtocolError",
    "McpRequestError",
    "McpResource",
    "McpResourceContents",
    "McpResourceLink",
    "McpResourceTemplate",
    "McpResult",
    "McpServerInfo",
    "McpSessionGone",
    "McpStatusError",
    "McpText",
    "McpTimeoutError",
    "McpTool",
    "McpUnknownContent",
    "McpVersionError",
]
