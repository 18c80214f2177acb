"""What goes wrong with an MCP server, split by what a caller would do next.

    McpError
        McpConnectionError   it exited, or the connection failed (also a MantyxNetworkError)
        McpSessionGone       its session is over; the request was not executed (also a MantyxNetworkError)
        McpProtocolError     it answered, but not in the protocol's terms (also a MantyxProtocolError)
        McpAuthError         HTTP 401 or 403 (also a MantyxAuthError)
        McpStatusError       another HTTP status that is an error (also a MantyxAPIError)
        McpVersionError      no protocol version in common
        McpRequestError      it answered a request with a JSON-RPC error
        McpInputRequired     it asked for something a client without such capabilities cannot give
        McpOutputError       a tool's structured content does not fit the tool's own output schema
        McpTimeoutError      a deadline of the caller's passed (also a MantyxTimeoutError)
        McpCancelled         the caller cancelled

A tool that ran and failed is no error here but a result with `is_error`. What a server says is foreign text: messages
quote it, shortened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterable, Mapping

from ..errors import (
    MantyxAPIError,
    MantyxAuthError,
    MantyxError,
    MantyxNetworkError,
    MantyxProtocolError,
    MantyxTimeoutError,
)

if TYPE_CHECKING:
    from .results import McpResult

__all__ = [
    "McpAuthError",
    "McpCancelled",
    "McpConnectionError",
    "McpError",
    "McpInputRequired",
    "McpOutputError",
    "McpProtocolError",
    "McpRequestError",
    "McpSessionGone",
    "McpStatusError",
    "McpTimeoutError",
    "McpVersionError",
]


class McpError(MantyxError):
    """Base of the errors that concern an MCP server."""


class McpConnectionError(McpError, MantyxNetworkError):
    """The server exited, or the connection to it failed.

    `sent` is `False` if the request surely did not arrive, `None` if that is not known. Of a process, `exit_code` is
    the code it exited with (negative: the signal that ended it), `stderr_tail` the last lines it wrote to stderr.
    """

    def __init__(
        self,
        message: str,
        *,
        sent: bool | None = None,
        exit_code: int | None = None,
        stderr_tail: str = "",
        cause: BaseException | None = None,
    ) -> None:
        MantyxNetworkError.__init__(self, message, sent=sent, cause=cause)
        self.exit_code = exit_code
        self.stderr_tail = stderr_tail


class McpSessionGone(McpError, MantyxNetworkError):
    """The server no longer knows the session, or the process that was opened is gone; nothing was executed.

    The client opens a new one and repeats the request once. It raises this error if that happens again, or at once with
    `repeat_after_session_end=False`; the next request opens the server anew.
    """

    def __init__(self, message: str, *, status: int | None = None, cause: BaseException | None = None) -> None:
        MantyxNetworkError.__init__(self, message, sent=False, cause=cause)
        self.status = status


class McpProtocolError(McpError, MantyxProtocolError):
    """The server answered, but not in the protocol's terms."""

    def __init__(self, message: str, *, cause: BaseException | None = None) -> None:
        MantyxProtocolError.__init__(self, message, cause=cause)


class McpAuthError(McpError, MantyxAuthError):
    """The server wants other credentials: HTTP 401, or 403.

    `www_authenticate` is that header as it came: it may name the scope that is missing, or where to get a token.
    """

    def __init__(self, message: str, *, status: int = 401, www_authenticate: str | None = None) -> None:
        code = "unauthorized" if status == 401 else "forbidden"
        MantyxAuthError.__init__(self, message, status=status, code=code)
        self.www_authenticate = www_authenticate


class McpStatusError(McpError, MantyxAPIError):
    """The server answered a request with an HTTP error status that no JSON-RPC error came with.

    `status` is the status, `body` the start of the body's text, `retry_after` in seconds if the server gave it.
    """

    def __init__(self, message: str, *, status: int, body: str | None = None, retry_after: float | None = None) -> None:
        MantyxAPIError.__init__(self, message, status=status, code=f"http_{status}", body=body, retry_after=retry_after)


class McpVersionError(McpError):
    """The server speaks no protocol version that this client speaks; `supported` are those it named."""

    def __init__(self, message: str, *, supported: Iterable[str] = (), cause: BaseException | None = None) -> None:
        super().__init__(message, code="unsupported_version", cause=cause)
        self.supported = tuple(supported)


class McpRequestError(McpError):
    """The server answered a request with a JSON-RPC error.

    `method` is what was asked, `rpc_code` the error's code, `server_message` its message, `data` what came with it.
    """

    def __init__(self, message: str, *, method: str, rpc_code: int, server_message: str = "", data: Any = None) -> None:
        super().__init__(message, code="rpc_error")
        self.method = method
        self.rpc_code = rpc_code
        self.server_message = server_message
        self.data = data


class McpInputRequired(McpError):
    """The server wants input in mid-request (elicitation, sampling, roots), which this client does not give.

    `methods` are what it asked for, `raw` is its whole answer.
    """

    def __init__(self, message: str, *, methods: Iterable[str] = (), raw: Mapping[str, Any] | None = None) -> None:
        super().__init__(message, code="input_required")
        self.methods = tuple(methods)
        self.raw = raw


class McpOutputError(McpError):
    """A tool's `structuredContent` is missing or does not fit the output schema that the tool declares.

    The tool ran. `result` is its whole result, `text` the text in it.
    """

    def __init__(self, message: str, *, tool_name: str, result: McpResult) -> None:
        super().__init__(message, code="output_mismatch")
        self.tool_name = tool_name
        self.result = result

    @property
    def text(self) -> str:
        """The text of the result, as the model would have read it."""
        return self.result.text


class McpTimeoutError(McpError, MantyxTimeoutError):
    """A deadline of the caller's, or the idle time, passed; the server was told to stop, if it had been asked."""

    def __init__(self, message: str, *, cause: BaseException | None = None) -> None:
        MantyxTimeoutError.__init__(self, message, cause=cause)


class McpCancelled(McpError):
    """The caller cancelled the request; whether the server executed it is not known."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="cancelled")
