"""`define_local_a2a`: an A2A agent that a run can ask from here (wire §3.2, §4.3.2)."""

from __future__ import annotations

import time
from dataclasses import field
from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional, Union

from ... import limits
from ...checks import json_copy, refusal, shown, string, whole_number
from ...errors import MantyxConfigError, MantyxTimeoutError
from ...reprs import dataclass
from ...tools.resolution import CALL_TIMEOUT_S, START_TIMEOUT_S
from .errors import A2AError
from .given import checked_timeout
from .resolved import ResolvedA2ATool

if TYPE_CHECKING:
    import requests

    from ...tools.resolution import Opening
    from .card import AgentCard
    from .client import A2AClient

__all__ = ["LocalA2ATool", "define_local_a2a", "is_local_a2a_tool"]


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
    start_timeout: float = START_TIMEOUT_S
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
        left = self.start_timeout
        if opening.deadline is not None:
            left = min(left, opening.deadline - time.monotonic())
        if left <= 0:
            raise MantyxTimeoutError("there was no time left to ask for its card")
        client = self.client
        if client is None:
            client = self.connect(left)
            opening.at_end(client.close)
        card = json_copy(client.open(timeout=left).raw, "agent_card")
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
    start_timeout: float = START_TIMEOUT_S,
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
        timeout=checked_timeout(timeout, f"{where}: timeout"),
        start_timeout=checked_timeout(start_timeout, f"{where}: start_timeout"),
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
