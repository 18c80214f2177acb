"""Agent cards: what an agent says about itself, and which of its interfaces to use (a2a §1). Does no I/O."""

from __future__ import annotations

import re
from dataclasses import field
from typing import Any, Iterator, List, Mapping, Tuple
from urllib.parse import urlsplit

from ...errors import cut
from ...reprs import dataclass
from ...transport.url import absolute
from ..dialects import V03, V1, Dialect
from .addresses import shown_url
from .errors import A2ACardError

__all__ = ["WELL_KNOWN_PATHS", "AgentCard", "AgentInterface", "AgentSkill", "Endpoint", "card_addresses"]

WELL_KNOWN_PATHS = ("/.well-known/agent-card.json", "/.well-known/agent.json")
"""Where cards are: the name of today, and the one before 0.3."""

JSONRPC = "JSONRPC"
_VERSION = re.compile(r"v?(\d{1,4})(?:\.(\d{1,4}))?(?:[.\-+].*)?")


@dataclass(frozen=True)
class AgentInterface:
    """One way to reach an agent. `version` is `(major, minor)`, `None` where the card does not say it."""

    url: str
    binding: str
    version: Tuple[int, int] | None = None
    tenant: str | None = None


@dataclass(frozen=True)
class AgentSkill:
    """Something an agent says it can do."""

    id: str
    name: str
    description: str = ""
    tags: Tuple[str, ...] = ()
    examples: Tuple[str, ...] = ()
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True)
class Endpoint:
    """Where to send requests, in which version, and what each of them has to carry."""

    url: str
    dialect: Dialect
    tenant: str | None = None


@dataclass(frozen=True)
class AgentCard:
    """What an agent says about itself. `url` is where the card was fetched, `raw` the card as it came."""

    name: str
    description: str = ""
    version: str = ""
    interfaces: Tuple[AgentInterface, ...] = ()
    skills: Tuple[AgentSkill, ...] = ()
    streaming: bool = False
    push_notifications: bool = False
    extended_card: bool = False
    url: str | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def from_wire(cls, value: object, url: str | None = None) -> AgentCard:
        """Read a card of any version, also one that serves several at once (a2a §1.1 to §1.3).

        A card says much that we do not need: what is missing or odd there does not make it unusable.

        Raises:
            A2ACardError: It is not an object with a name.
        """
        if not isinstance(value, Mapping) or not isinstance(value.get("name"), str) or not value["name"]:
            raise A2ACardError(f"{_where(url)}: it is not an agent card (a JSON object with a name)")
        capabilities = value.get("capabilities")
        capabilities = capabilities if isinstance(capabilities, Mapping) else {}
        return cls(
            name=value["name"],
            description=_text(value, "description") or "",
            version=_text(value, "version") or "",
            interfaces=tuple(_interfaces(value)),
            skills=tuple(_skill(item) for item in _objects(value, "skills")),
            streaming=capabilities.get("streaming") is True,
            push_notifications=capabilities.get("pushNotifications") is True,
            extended_card=capabilities.get("extendedAgentCard") is True
            or value.get("supportsAuthenticatedExtendedCard") is True,
            url=url,
            raw=value,
        )

    def endpoint(self) -> Endpoint:
        """Choose the interface to use (a2a §1.4): JSON-RPC, 1.0 before a later 1.x before 0.x, in the card's order.

        Raises:
            A2ACardError: There is none; the error names what is offered.
        """
        ranked = [
            (rank, i, interface)
            for i, interface in enumerate(self.interfaces)
            for rank in [_rank(interface)]
            if rank is not None
        ]
        if not ranked:
            offered = ", ".join(sorted({_offer(interface) for interface in self.interfaces})) or "nothing"
            raise A2ACardError(
                f"{_where(self.url)}: the agent {cut(self.name, 80)!r} offers {cut(offered, 200)}; "
                "what is needed is JSONRPC in version 1.x or 0.x",
                code="no_interface",
            )
        chosen = min(ranked, key=lambda item: item[:2])[2]
        try:
            url = absolute(chosen.url, self.url)
        except ValueError as error:
            shown = cut(shown_url(chosen.url), 200)
            raise A2ACardError(f"{_where(self.url)}: its endpoint {shown!r} {error}") from None
        dialect = V03 if chosen.version is not None and chosen.version[0] == 0 else V1
        return Endpoint(url, dialect, chosen.tenant if dialect is V1 else None)


def card_addresses(url: str) -> List[str]:
    """Return where to look for the card of an agent of which a URL is known: there, then at the well-known paths."""
    site, _, query = url.partition("?")
    if urlsplit(url).path.lower().endswith(".json"):
        return [url]
    suffix = f"?{query}" if query else ""
    return [url, *(f"{site.rstrip('/')}{path}{suffix}" for path in WELL_KNOWN_PATHS)]


def _interfaces(card: Mapping[str, Any]) -> Iterator[AgentInterface]:
    for item in _objects(card, "supportedInterfaces"):
        url = _text(item, "url")
        if url:
            binding = _text(item, "protocolBinding") or _text(item, "transport") or JSONRPC
            yield AgentInterface(url, binding, _version(item.get("protocolVersion")), _text(item, "tenant") or None)
    # The form of 0.3, which a card for everybody has as well.
    version = _version(card.get("protocolVersion")) or (0, 3)
    url = _text(card, "url")
    if url:
        yield AgentInterface(url, _text(card, "preferredTransport") or JSONRPC, version)
    for item in _objects(card, "additionalInterfaces"):
        url = _text(item, "url")
        if url:
            yield AgentInterface(url, _text(item, "transport") or JSONRPC, version)


def _rank(interface: AgentInterface) -> int | None:
    """Return how much an interface is wanted, 0 most; `None` if it cannot be used."""
    if interface.binding.upper() != JSONRPC:
        return None
    if interface.version is None:
        return 3
    major, minor = interface.version
    if major == 1:
        return 0 if minor == 0 else 1
    return 2 if major == 0 else None


def _offer(interface: AgentInterface) -> str:
    version = "" if interface.version is None else " {}.{}".format(*interface.version)
    return cut(interface.binding, 40) + version


def _version(value: object) -> Tuple[int, int] | None:
    match = _VERSION.fullmatch(value.strip()) if isinstance(value, str) else None
    return None if match is None else (int(match.group(1)), int(match.group(2) or 0))


def _skill(wire: Mapping[str, Any]) -> AgentSkill:
    return AgentSkill(
        id=_text(wire, "id") or "",
        name=_text(wire, "name") or _text(wire, "id") or "",
        description=_text(wire, "description") or "",
        tags=_texts(wire, "tags"),
        examples=_texts(wire, "examples"),
        raw=wire,
    )


def _text(wire: Mapping[str, Any], key: str) -> str | None:
    value = wire.get(key)
    return value if isinstance(value, str) else None


def _texts(wire: Mapping[str, Any], key: str) -> Tuple[str, ...]:
    value = wire.get(key)
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def _objects(wire: Mapping[str, Any], key: str) -> List[Mapping[str, Any]]:
    value = wire.get(key)
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, (list, tuple)) else []


def _where(url: str | None) -> str:
    return "agent_card" if url is None else f"the agent card at {shown_url(url)}"
