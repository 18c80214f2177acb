"""What goes wrong with an A2A agent, split by what a caller would do next.

    A2AError
        A2ACardError        no usable agent card, or one whose endpoint must not be used
        A2AConnectionError  the connection failed (also a MantyxNetworkError)
        A2AProtocolError    it answered, but not in the protocol's terms (also a MantyxProtocolError)
        A2AAuthError        HTTP 401 or 403 (also a MantyxAuthError)
        A2AStatusError      another HTTP status that is an error (also a MantyxAPIError)
        A2ARequestError     it answered a request with a JSON-RPC error
        A2ATaskError        the task failed, was rejected or canceled, or waits for credentials
        A2ATimeoutError     the caller's deadline passed (also a MantyxTimeoutError)
        A2ACancelled        the caller cancelled

What an agent says is foreign text: messages quote it, shortened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterable, Tuple

from ...errors import (
    MantyxAPIError,
    MantyxAuthError,
    MantyxError,
    MantyxNetworkError,
    MantyxProtocolError,
    MantyxTimeoutError,
)

if TYPE_CHECKING:
    from .replies import A2AReply

__all__ = [
    "A2AAuthError",
    "A2ACancelled",
    "A2ACardError",
    "A2AConnectionError",
    "A2AError",
    "A2AProtocolError",
    "A2ARequestError",
    "A2AStatusError",
    "A2ATaskError",
    "A2ATimeoutError",
]


class A2AError(MantyxError):
    """Base of the errors that concern an A2A agent."""


class A2ACardError(A2AError):
    """There is no agent card, or none that can be used.

    `code` is `card_not_found`, `card_invalid`, `no_interface` (the agent is not served over JSON-RPC in a version known
    here) or `address_refused` (the card names an address inside this network that it must not name). `attempts` are
    the addresses tried, each with what came of it.
    """

    def __init__(self, message: str, *, code: str = "card_invalid", attempts: Iterable[Tuple[str, str]] = ()) -> None:
        super().__init__(message, code=code)
        self.attempts = tuple(attempts)


class A2AConnectionError(A2AError, MantyxNetworkError):
    """The connection to the agent failed.

    `sent` is `False` if the request surely did not arrive, `None` if that is not known: then the agent may be at work.
    `task_id` is the task's, if it was known by then.
    """

    def __init__(
        self, message: str, *, sent: bool | None = None, task_id: str | None = None, cause: BaseException | None = None
    ) -> None:
        MantyxNetworkError.__init__(self, message, sent=sent, cause=cause)
        self.task_id = task_id


class A2AProtocolError(A2AError, MantyxProtocolError):
    """The agent answered, but not in the protocol's terms."""

    def __init__(self, message: str, *, status: int | None = None, cause: BaseException | None = None) -> None:
        MantyxProtocolError.__init__(self, message, cause=cause)
        self.status = status


class A2AAuthError(A2AError, MantyxAuthError):
    """The agent wants other credentials: HTTP 401, or 403. `www_authenticate` is that header as it came."""

    def __init__(self, message: str, *, status: int = 401, www_authenticate: str | None = None) -> None:
        code = "unauthorized" if status == 401 else "forbidden"
        MantyxAuthError.__init__(self, message, status=status, code=code)
        self.www_authenticate = www_authenticate


class A2AStatusError(A2AError, MantyxAPIError):
    """The agent, or a proxy in front of it, answered with an HTTP error status and no JSON-RPC error.

    `status` is the status, `body` what came with it, decoded or the start of its text, `retry_after` in seconds.
    """

    def __init__(self, message: str, *, status: int, body: Any = None, retry_after: float | None = None) -> None:
        MantyxAPIError.__init__(self, message, status=status, code=f"http_{status}", body=body, retry_after=retry_after)


class A2ARequestError(A2AError):
    """The agent answered a request with a JSON-RPC error (a2a §3.3).

    `method` is what was asked, `rpc_code` the error's code (-32001), `reason` its word (`TASK_NOT_FOUND`) if there is
    one, `agent_message` its message, `violations` pairs of (field, description), `data` what came with it. `status`
    is the HTTP status where it was not 200.
    """

    def __init__(
        self,
        message: str,
        *,
        method: str,
        rpc_code: int,
        reason: str | None = None,
        agent_message: str = "",
        violations: Iterable[Tuple[str, str]] = (),
        data: Any = None,
        status: int | None = None,
    ) -> None:
        super().__init__(message, code=(reason or "rpc_error").lower(), status=status)
        self.method = method
        self.rpc_code = rpc_code
        self.reason = reason
        self.agent_message = agent_message
        self.violations = tuple(violations)
        self.data = data


class A2ATaskError(A2AError):
    """The task ended without success, or waits for credentials that its caller cannot give in a message.

    `state` is `failed`, `rejected`, `canceled` or `auth-required`; `reply` holds the text, files and artifacts that
    there are all the same, `task_id` and `context_id` what to refer to.
    """

    def __init__(self, message: str, *, state: str, reply: A2AReply) -> None:
        super().__init__(message, code=f"task_{state.replace('-', '_')}")
        self.state = state
        self.reply = reply
        self.task_id = reply.task_id
        self.context_id = reply.context_id

    @property
    def text(self) -> str:
        """What the agent said about it; empty if it said nothing."""
        return self.reply.text


class A2ATimeoutError(A2AError, MantyxTimeoutError):
    """The caller's deadline passed. `task_id` and `context_id` are the task's, if it was known by then."""

    def __init__(
        self,
        message: str,
        *,
        task_id: str | None = None,
        context_id: str | None = None,
        cause: BaseException | None = None,
    ) -> None:
        MantyxTimeoutError.__init__(self, message, cause=cause)
        self.task_id = task_id
        self.context_id = context_id


class A2ACancelled(A2AError):
    """The caller cancelled, or closed the stream. `task_id` is the task's, if it was known by then."""

    def __init__(self, message: str, *, task_id: str | None = None) -> None:
        super().__init__(message, code="cancelled")
        self.task_id = task_id
