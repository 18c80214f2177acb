"""Addresses that come from an agent's card, and which of them must not be used.

A card is text of a stranger, and its endpoint an address we would send requests to from inside the user's network. So
a card that was fetched from a public address may name public addresses alone, and one from the private network no
address of this very machine (a2a §1.4).
"""

from __future__ import annotations

import ipaddress
import socket
from typing import Any, FrozenSet, Union

from ...transport.body import Release
from ...transport.url import origin_of

__all__ = ["Guard", "GuardedRelease", "guard_for", "shown_url", "zone_of", "zones_of_host"]

_ADDRESS = Union[ipaddress.IPv4Address, ipaddress.IPv6Address]
_WITH_IPV4 = tuple(
    ipaddress.IPv6Network(text) for text in ("64:ff9b::/96", "64:ff9b:1::/48", "::ffff:0:0:0/96", "::/96")
)
"""Addresses that stand for the IPv4 address in their last bytes: of NAT64 and SIIT, and the old compatible ones."""

PUBLIC, PRIVATE, LINK_LOCAL, LOOPBACK = "public", "private", "link-local", "loopback"


def shown_url(url: str) -> str:
    """Return a URL for a message: without query, which may hold a credential, and not too long."""
    shown = url.partition("?")[0].partition("#")[0]
    return shown if len(shown) <= 200 else shown[:199] + "…"


def zone_of(address: _ADDRESS) -> str:
    """Tell from how far away an address can be reached."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and int(address) > 1 and any(address in network for network in _WITH_IPV4):
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return zone_of(inner)
        if address.is_site_local:
            return PRIVATE
    if address.is_loopback or address.is_unspecified:  # 0.0.0.0 is this machine, too
        return LOOPBACK
    if address.is_link_local:
        return LINK_LOCAL
    return PUBLIC if address.is_global and not address.is_multicast else PRIVATE


def zones_of_host(host: str) -> FrozenSet[str]:
    """Return the zones of a host's addresses; blocks while a name is looked up. Empty if it has no address."""
    try:
        return frozenset({zone_of(ipaddress.ip_address(host.partition("%")[0]))})
    except ValueError:
        pass
    if host == "localhost" or host.endswith(".localhost"):
        return frozenset({LOOPBACK})
    try:
        # Takes the odd ways of writing an address too, such as 2130706433 for 127.0.0.1.
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return frozenset()
    return frozenset(zone_of(ipaddress.ip_address(str(item[4][0]).partition("%")[0])) for item in found)


_MAY_NAME = {
    PUBLIC: frozenset({PUBLIC}),
    PRIVATE: frozenset({PUBLIC, PRIVATE}),
    LINK_LOCAL: frozenset({PUBLIC, LINK_LOCAL}),
    LOOPBACK: frozenset({PUBLIC, PRIVATE, LOOPBACK}),
}


class Guard:
    """Which zones the endpoint of a card may be in."""

    def __init__(self, allowed: FrozenSet[str]) -> None:
        self._allowed = allowed

    def refused_zone(self, host: str) -> str | None:
        """Return the zone of a host that must not be used; `None` if it may be. Blocks while a name is looked up."""
        return min(zones_of_host(host) - self._allowed, default=None)

    def is_open(self, connection: Any) -> bool:
        """Tell whether an `http.client` connection leads where it may: a name can change its address meanwhile.

        Through a proxy there is nothing to see: the proxy looks the name up.
        """
        zone = _zone_of_peer(connection)
        return zone is None or zone in self._allowed


def _zone_of_peer(connection: Any) -> str | None:
    """Return the zone of what a connection leads to; `None` where that cannot be seen."""
    sock = getattr(connection, "sock", None)
    if sock is None or getattr(connection, "proxy", None) is not None:
        return None
    try:
        return zone_of(ipaddress.ip_address(str(sock.getpeername()[0]).partition("%")[0]))
    except (OSError, ValueError):  # gone already, or not of the Internet
        return None


def guard_for(card_url: str, endpoint_url: str, card_zone: str | None = None) -> Guard | None:
    """Return what a card's endpoint has to satisfy; `None` if it is at the very origin that the card came from.

    Blocks while the name of the card's host is looked up, if that is needed. A host without an address counts as
    public.

    Args:
        card_url: Where the card is from.
        endpoint_url: What it names.
        card_zone: Where the connection led that the card came over, if that was seen. What its name leads to later
            tells nothing: who wrote the card may have changed that, to have it name addresses of this network.
    """
    card, endpoint = origin_of(card_url), origin_of(endpoint_url)
    if card == endpoint or (card.host == endpoint.host and card_zone is None):
        return None
    zones = {card_zone} if card_zone is not None else zones_of_host(card.host) or {PUBLIC}
    return Guard(frozenset.intersection(*(_MAY_NAME[zone] for zone in zones)))


class _AddressRefused(ConnectionError):
    """The connection leads to an address that the card must not name; nothing was sent."""


class GuardedRelease(Release):
    """A release that looks at the connection before the request is sent on it, and keeps the socket at hand."""

    def __init__(self, guard: Guard | None = None) -> None:
        super().__init__()
        self._guard = guard
        self.has_refused = False
        self.zone: str | None = None
        """The zone of what the connection leads to, where that can be seen."""

    def watch_connection(self, connection: Any) -> None:
        """Note the connection that is about to send the request."""
        super().watch_connection(connection)
        self.zone = _zone_of_peer(connection) or self.zone
        if self._guard is not None and not self._guard.is_open(connection):
            self.has_refused = True
            raise _AddressRefused("the address is not one that this agent's card may name")

    def set_idle_timeout(self, seconds: float) -> None:
        """Have reads of the body end after `seconds` without a byte, from the next one on."""
        sock = self._socket
        if sock is not None:
            try:
                sock.settimeout(seconds)
            except (OSError, AttributeError):  # it is closed, or an adapter's own
                return
