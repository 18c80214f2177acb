"""`define_local_a2a`: an A2A agent that a run can ask from here (wire §3.2, §4.3.2)."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional, Union

from .. import limits
from ..checks import json_copy, refusal, seconds, shown, string, whole_number
from ..errors import MantyxConfigError, MantyxTimeoutError, ToolError, ToolInputError, cut
from ..events import LocalToolCall
from ..tools.arguments import read_arguments
from ..tools.context import ToolContext
from ..tools.registry import Registry, agent_urls
from ..tools.results import ToolResult
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
    import requests

    from ..tools.resolution import Opening
    from .card import AgentCard
    from .client import A2AClient
    from .replies import A2AReply

__all__ = ["LocalA2ATool", "ResolvedA2ATool", "define_local_a2a", "failure_text", "is_local_a2a_tool"]

log = logging.getLogger(__name__)

CALL_TIMEOUT_S = 270.0
"""A little less than the platform waits, so that the model hears why."""
_BACKSTOP_S = 5.0

_VERBS = {
    "failed": "failed",
    "rejected": "rejected the task",
    "canceled": "canceled the task",
    "auth-required": "wants credentials, which cannot be given in a message",
}
_NO_TEXT = "[no text]"


@dataclass(frozen=True, eq=False)
class LocalA2ATool:
    """An A2A agent that this process asks: a recipe. Its card is read anew for each run or session it is a tool of.

    Made by `define_local_a2a`, which says what the fields mean. One may be in any number of runs, on any thread.
    """

    name: str
    agent_card_url: Optional[str] = None
    headers: Optional[Mapping[str, str]] = field(default=None, repr=False)
    agent_card: Union[AgentCard, Mapping[str, Any], None] = field(default=None, repr=False)
    description: str = field(default="", repr=False)
    client: Optional[A2AClient] = field(default=None, repr=False)
    session: Optional[requests.Session] = field(default=None, repr=False)
    timeout: float = CALL_TIMEOUT_S
    start_timeout: float = 30.0
    streaming: Union[str, bool] = "auto"
    trust_other_origin: bool = False
    max_concurrency: Optional[int] = None
    kind: str = field(default="a2a_local", init=False)

    @property
    def label(self) -> str:
        """What to call it in a sentence."""
        return f"A2A agent {self.name!r}"

    def to_wire(self) -> Dict[str, Any]:
        """Refuse: its card is read when a run or session is created.

        Raises:
            MantyxConfigError: Always.
        """
        raise MantyxConfigError(
            f"{self.label}: its card is read when a run or session is created; before that it has no wire form"
        )

    def resolve(self, opening: Opening) -> ResolvedA2ATool:
        """Read the agent's card. Blocks.

        Raises:
            A2AError: There is none that can be used, or the agent cannot be reached.
            MantyxTimeoutError: It was not there within `start_timeout`, or by the opening's deadline.
        """
        client = self.client
        if client is None:
            left = self.start_timeout
            if opening.deadline is not None:
                left = min(left, opening.deadline - time.monotonic())
            if left <= 0:
                raise MantyxTimeoutError("there was no time left to ask for its card")
            client = self.connect(left)
            opening.at_end(client.close)
        card = json_copy(client.card.raw, "agent_card")
        wire: Dict[str, Any] = {"kind": self.kind, "name": self.name}
        if self.description:
            wire["description"] = self.description
        wire["agentCard"] = card
        return ResolvedA2ATool(self, client, wire)

    def connect(self, timeout: float) -> A2AClient:
        """Make a client for it, which asks for nothing yet.

        Raises:
            MantyxConfigError: It cannot be made of what was given.
            A2AError: A card that was given cannot be used.
        """
        from .client import A2AClient

        return A2AClient(
            self.agent_card_url,
            card=self.agent_card,
            headers=self.headers,
            session=self.session,
            timeout=timeout,
            streaming=self.streaming,
            trust_other_origin=self.trust_other_origin,
        )


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
        # The client has the same limit, and says more when it is over; this one is for a client that does not return.
        self.timeout = ref.timeout + _BACKSTOP_S
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
            raise ToolError(failure_text(error, ref.label, ref.timeout)) from error
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


def failure_text(error: Exception, label: str, timeout: float) -> str:
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


def define_local_a2a(
    *,
    name: str,
    agent_card_url: Optional[str] = None,
    agent_card: Union[AgentCard, Mapping[str, Any], None] = None,
    headers: Optional[Mapping[str, str]] = None,
    description: str = "",
    client: Optional[A2AClient] = None,
    session: Optional[requests.Session] = None,
    timeout: float = CALL_TIMEOUT_S,
    start_timeout: float = 30.0,
    streaming: Union[str, bool] = "auto",
    trust_other_origin: bool = False,
    max_concurrency: Optional[int] = None,
) -> LocalA2ATool:
    """Let a run or session ask an A2A agent, from this process. Connects to nothing yet.

    The card is read before the run (or session) is created and goes out as it is. An agent that cannot be reached then
    is an error before anything is sent; later it makes the call a tool error that names it, and the run goes on. The
    calls of a run, or of all messages of a session, are one conversation with the agent. A question of the agent goes
    to the model, whose next call is the answer.

    Args:
        name: What the model calls it: 1 to 64 of `[a-zA-Z0-9_]`.
        agent_card_url: Where the card is, or an address below which it lies at a well-known path.
        agent_card: The card itself, instead of fetching it. With `agent_card_url`: where it is from.
        headers: Sent to the card's origin, such as `Authorization`, and there alone unless `trust_other_origin`.
        description: What the model reads about it, instead of the card's description and skills.
        client: An `A2AClient` of yours, to be shared. It is never closed from here.
        session: A `requests.Session` of yours: for its proxies, certificates and adapters.
        timeout: Seconds a call may take. The platform gives up after 300.
        start_timeout: Seconds to read the card; the time-out of the run counts as well.
        streaming: `"auto"` streams where the card offers it; `False` does not.
        trust_other_origin: As `A2AClient`: the card may name an endpoint elsewhere, which gets the headers too.
        max_concurrency: How many of its calls may run at once; `None` for no limit of its own.

    Raises:
        MantyxConfigError: Something of this cannot be used.
    """
    where = "define_local_a2a"
    if not isinstance(name, str) or limits.TOOL_NAME.fullmatch(name) is None:
        raise refusal(f"{where}: name", shown(name), f"match {limits.TOOL_NAME.pattern}")
    address = agent_card_url or None
    if client is not None:
        connecting = {"agent_card_url": address, "agent_card": agent_card, "headers": headers, "session": session}
        for key, value in connecting.items():
            if value is not None:
                raise MantyxConfigError(f"{where}: {key}: given with client, which has one of its own")
    elif address is None and agent_card is None:
        raise MantyxConfigError(f"{where}: agent_card_url: not given, must be given (or agent_card, or client)")
    if max_concurrency is not None:
        whole_number(max_concurrency, f"{where}: max_concurrency", 1)
    made = LocalA2ATool(
        name=name,
        agent_card_url=address,
        agent_card=json_copy(agent_card, f"{where}: agent_card") if isinstance(agent_card, Mapping) else agent_card,
        headers=None if headers is None else dict(headers),
        description=string(description or "", f"{where}: description"),
        client=client,
        session=session,
        timeout=seconds(timeout, f"{where}: timeout"),
        start_timeout=seconds(start_timeout, f"{where}: start_timeout"),
        streaming=streaming,
        trust_other_origin=bool(trust_other_origin),
        max_concurrency=max_concurrency,
    )
    if client is None:
        _check(made, where)
    return made


def is_local_a2a_tool(ref: object) -> bool:
    """Tell whether a ref is an A2A agent that this process asks."""
    return isinstance(ref, LocalA2ATool)


def _check(ref: LocalA2ATool, where: str) -> None:
    """Have the client refuse now what it would refuse when it is made for a run."""
    try:
        ref.connect(ref.start_timeout).close()
    except A2AError as error:  # of a card that was given
        raise MantyxConfigError(f"{where}: {error.message}") from error
    except MantyxConfigError as error:
        raise MantyxConfigError(f"{where}: {error.message}") from error
