"""Which way a request goes, and whose credentials it carries: the card's origin gets them, others do not (a2a §1.4)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Dict, Mapping, Tuple

from ...api_errors import api_error
from ...errors import cut
from ...headers import USER_AGENT
from ...transport.auth import session_auth
from ...transport.http import HttpTransport
from ...transport.retry import RetryPolicy
from ...transport.url import BaseURL, Origin, origin_of
from .addresses import Guard, guard_for, shown_url
from .card import AgentCard
from .connection import Connection
from .errors import A2ACardError

if TYPE_CHECKING:
    import requests
    from requests.auth import AuthBase

__all__ = ["Access"]


@dataclass(frozen=True)
class Access:
    """Makes the connections of one client. Any thread may use it; only `connect` blocks, to look up a host's name."""

    headers: Mapping[str, str] = field(repr=False)
    auth: AuthBase | None
    session: requests.Session | None
    is_trusting: bool
    """The card is trusted: its endpoint gets the credentials, and may be anywhere."""
    extensions: Tuple[str, ...]
    connect_timeout: float
    idle_timeout: float
    max_message_bytes: int
    retry: RetryPolicy
    _transports: Dict[Tuple[Origin, bool], HttpTransport] = field(default_factory=dict, repr=False)

    def transport(self, origin: Origin, is_ours: bool = True) -> HttpTransport:
        """Return the way to an origin: with the caller's credentials if it is `is_ours`, otherwise without."""
        transport = self._transports.get((origin, is_ours))
        if transport is None:
            auth = None
            if is_ours:
                auth = self.auth or session_auth(self.session, self.headers)
            transport = HttpTransport(
                BaseURL(origin.site, field="url"),
                auth=auth,
                make_error=api_error,
                timeout=self.connect_timeout,
                retry=self.retry,
                headers={"User-Agent": USER_AGENT, **(self.headers if is_ours else {})},
                session=self.session if is_ours else _without_credentials(self.session),
            )
            transport = self._transports.setdefault((origin, is_ours), transport)
        return transport

    def connect(self, card: AgentCard, card_zone: str | None = None) -> Connection:
        """Return the connection to a card's endpoint; nothing is sent yet.

        Args:
            card_zone: Where the connection led that the card came over, if that was seen.

        Raises:
            A2ACardError: The card has no endpoint to use, or one that it must not name.
        """
        endpoint = card.endpoint()
        origin = origin_of(endpoint.url)
        is_ours = self.is_trusting or card.url is None or origin == origin_of(card.url)
        guard: Guard | None = None
        if card.url is not None and not self.is_trusting:
            guard = guard_for(card.url, endpoint.url, card_zone)
            if origin.host != origin_of(card.url).host:  # one host may have addresses of several zones
                _check_address(card.url, origin, guard)
        return Connection(
            self.transport(origin, is_ours),
            endpoint,
            label=f"A2A agent {cut(card.name, 60)!r} ({origin.site})",
            guard=guard,
            headers={"A2A-Extensions": ", ".join(self.extensions)} if self.extensions else None,
            is_without_credentials=not is_ours and bool(self.headers or self.auth is not None),
            connect_timeout=self.connect_timeout,
            idle_timeout=self.idle_timeout,
            max_message_bytes=self.max_message_bytes,
            retry=self.retry,
        )

    def close(self) -> None:
        """Close idle connections; later requests open new ones."""
        for transport in list(self._transports.values()):
            transport.close()


def _check_address(card_url: str, origin: Origin, guard: Guard | None) -> None:
    zone = guard.refused_zone(origin.host) if guard is not None else None
    if zone is not None:
        what = {"loopback": "this machine", "private": "the private network"}.get(zone, "the local link")
        raise A2ACardError(
            f"the agent card at {shown_url(card_url)} names the endpoint {origin.site}, an address of {what}, which a "
            "card from there must not name; nothing was sent. If that is right, pass trust_other_origin=True",
            code="address_refused",
        )


def _without_credentials(session: requests.Session | None) -> requests.Session | None:
    """Return a session with the way out of another one (adapters, proxies, CA), but with nothing secret."""
    if session is None:
        return None
    clone: Any = object.__new__(type(session))
    clone.__dict__.update(session.__dict__)
    clone.headers = {}
    clone.auth = clone.cert = None
    clone.params = {}
    return clone  # type: ignore[no-any-return]
