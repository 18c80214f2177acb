"""An A2A agent as a tool of a run: its card on the wire, its calls one conversation (wire §3.2, §4.3.2)."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any, Dict, Optional

from ...errors import MantyxTimeoutError, ToolError, ToolInputError, cut
from ...events import LocalToolCall
from ...tools.arguments import read_arguments
from ...tools.context import ToolContext
from ...tools.registry import Registry, agent_urls
from ...tools.resolution import BACKSTOP_S
from ...tools.results import ToolResult
from .errors import (
    A2AAuthError,
    A2ACancelled,
    A2AConnectionError,
    A2AError,
    A2ARequestError,
    A2AStatusError,
    A2ATaskError,
)

if TYPE_CHECKING:
    from .client import A2AClient
    from .ref import LocalA2ATool
    from .replies import A2AReply

__all__ = ["ResolvedA2ATool", "agent_failure"]

log = logging.getLogger(__name__)

_VERBS = {
    "failed": "failed",
    "rejected": "rejected the task",
    "canceled": "canceled the task",
    "auth-required": "wants credentials, which cannot be given in a message",
}
_NO_TEXT = "[no text]"


class ResolvedA2ATool:
    """An agent whose card has been read. A tool ref: it says itself on the wire."""

    kind = "a2a_local"

    def __init__(self, ref: LocalA2ATool, client: A2AClient, wire: Dict[str, Any]) -> None:
        """Called by `LocalA2ATool.resolve`.

        Args:
            wire: The entry of `spec.tools`.
        """
        self.name = ref.name
        self._ref = ref
        self._client = client
        self._wire = wire

    def to_wire(self) -> Dict[str, Any]:
        """Return the entry of `spec.tools`: the card as the agent gave it."""
        return dict(self._wire)

    def register(self, registry: Registry) -> None:
        """See `Resolved.register`. Each registry is a conversation of its own with the agent.

        Calls are found by the tool's name; where a call bears another name, by an address in the card it brings.
        """
        answerer = _Conversation(self._ref, self._client)
        for url in agent_urls(self._wire["agentCard"]):
            registry.add(self.kind, url, answerer, names=())
        registry.add(self.kind, self.name, answerer)


class _Conversation:
    """Answers the calls of one run, or of a session's runs: they are one conversation with the agent.

    Its `contextId` is kept, and its `taskId` while the agent waits for an answer to a question. Safe to use from any
    thread; of several calls at once one goes on with a task that waits, the others begin tasks of their own.
    """

    def __init__(self, ref: LocalA2ATool, client: A2AClient) -> None:
        self._ref = ref
        self._client = client
        self._lock = threading.Lock()
        self._context_id: Optional[str] = None
        self._task_id: Optional[str] = None
        self.timeout = ref.timeout + BACKSTOP_S
        self.max_concurrency = ref.max_concurrency
        self.limiter = id(ref)

    def answer(self, call: LocalToolCall, context: ToolContext) -> ToolResult:
        ref = self._ref
        message = read_arguments(call.args, call.name).get("message")
        if not isinstance(message, str) or not message.strip():
            raise ToolInputError(f"tool {call.name!r}: 'message' must be a text that is not empty")
        with self._lock:
            context_id, task_id, self._task_id = self._context_id, self._task_id, None
        try:
            reply = self._client.send(
                message, context_id=context_id, task_id=task_id, timeout=ref.timeout, cancelled=context.cancelled
            )
        except (A2AError, MantyxTimeoutError) as error:
            self._note_failure(error, task_id)
            if not isinstance(error, A2ACancelled):
                log.warning("tool %r (run %s): %s", call.name, context.run_id, error)
            raise ToolError(agent_failure(error, ref.label, ref.timeout)) from error
        self._note(reply.context_id, reply.task_id if reply.needs_input else None)
        return _result_of(reply, call.name)

    def _note(self, context_id: Optional[str], task_id: Optional[str]) -> None:
        with self._lock:
            self._context_id = context_id or self._context_id
            if task_id is not None:
                self._task_id = task_id

    def _note_failure(self, error: Exception, task_id: Optional[str]) -> None:
        """Keep the task that waits where the agent surely did not hear the answer; and the conversation it named."""
        was_not_heard = isinstance(error, (A2AAuthError, A2AStatusError)) or (
            isinstance(error, A2AConnectionError) and error.sent is False
        )
        self._note(getattr(error, "context_id", None), task_id if was_not_heard else None)


def _result_of(reply: A2AReply, name: str) -> ToolResult:
    result = reply.to_tool_result()
    text = result.result or ("" if result.files else _NO_TEXT)
    if reply.needs_input:
        text = (
            f"{text}\n[The agent asks this and waits. Call {name} again with the answer as message: it goes on then.]"
        )
    return ToolResult(text, result.files)


def agent_failure(error: Exception, label: str, timeout: float) -> str:
    """Say to a model why an agent gave no answer: shortly, naming it, with the reason the agent gives."""
    if isinstance(error, A2ACancelled):
        return "the call was cancelled"
    if isinstance(error, A2ATaskError):
        verb = _VERBS.get(error.state, f"ended the task as {error.state!r}")
        return f"{label} {verb}" + (f": {error.text}" if error.text.strip() else "")
    if isinstance(error, A2ARequestError):
        reason = cut(error.agent_message) or error.reason or f"error {error.rpc_code}"
        return f"{label} refused the message: {reason}"
    if isinstance(error, A2AAuthError):
        return f"{label} does not accept the credentials that it is given here (HTTP {error.status})"
    if isinstance(error, A2AStatusError):
        return f"{label} failed with HTTP {error.status}"
    if isinstance(error, MantyxTimeoutError):
        return f"{label} did not answer within {timeout:g} seconds"
    if isinstance(error, A2AConnectionError):
        what = f"the connection to {label} failed"
        return what if error.sent is False else f"{what}; whether it has the message is not known"
    return f"{label} failed ({type(error).__name__})"
