"""Who answers a tool call: the three kinds of client-resolved tools, told apart by `kind` (wire §4.3, §13)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterable, Mapping, Protocol

from ..events import LocalToolCall

if TYPE_CHECKING:
    from .context import ToolContext
    from .refs import LocalTool
    from .results import ToolResult

__all__ = ["Answerer", "Registry", "agent_urls"]


class Answerer(Protocol):
    """Something that can answer calls: a function, or a peer that it is passed on to."""

    @property
    def timeout(self) -> float | None:
        """Seconds a call may take; `None` leaves it to the platform's own limit."""

    @property
    def max_concurrency(self) -> int | None:
        """How many calls may run at once."""

    @property
    def limiter(self) -> object:
        """What calls are counted by for `max_concurrency`."""

    def answer(self, call: LocalToolCall, context: ToolContext) -> ToolResult:
        """Answer a call; blocks. Raises `ToolError` with a text for the model."""
        ...


class _Function:
    """A local tool as an answerer."""

    def __init__(self, tool: LocalTool) -> None:
        self._tool = tool
        self.timeout = tool.timeout
        self.max_concurrency = tool.max_concurrency
        self.limiter = id(tool)  # the tool itself holds a schema and cannot be hashed

    def answer(self, call: LocalToolCall, context: ToolContext) -> ToolResult:
        return self._tool.invoke(call.args, context)


class Registry:
    """The tools that this process answers for in one conversation, by kind and by the key that calls of it carry.

    A conversation is a run, or all runs of a session: a peer that remembers does so within one.
    """

    def __init__(self, tools: Iterable[Any] = (), *, owner: object = None) -> None:
        """List local tools and those that were resolved; others are the server's to answer.

        Args:
            owner: Kept alive as long as there may be calls to answer.
        """
        self._answerers: dict[tuple[str, str], Answerer] = {}
        self._names: dict[str, None] = {}
        self._owner = owner
        for tool in tools:
            if getattr(tool, "kind", None) == "local":
                self.add("local", tool.name, _Function(tool))
            elif callable(getattr(tool, "register", None)):
                tool.register(self)

    def add(self, kind: str, key: str, answerer: Answerer, names: Iterable[str] | None = None) -> None:
        """Let `answerer` answer calls of `kind` with `key`.

        Args:
            key: A tool's name, an MCP server's label, or the URL of an A2A agent.
            names: What the model calls its tools; `None`: as the key.
        """
        self._answerers[kind, key] = answerer
        self._names.update(dict.fromkeys((key,) if names is None else names))

    def find(self, call: LocalToolCall) -> Answerer | None:
        """Return who answers `call`, or `None`."""
        found = self._answerers.get((call.kind, (call.mcp_server if call.kind == "mcp_local" else call.name) or ""))
        if found is None and call.kind == "a2a_local":
            urls = agent_urls(call.agent_card or {})
            found = next((self._answerers[call.kind, url] for url in urls if (call.kind, url) in self._answerers), None)
        return found

    @property
    def names(self) -> str:
        """The tools that can be called, in words."""
        return ", ".join(self._names)


def agent_urls(card: Mapping[str, Any]) -> list[str]:
    """Return the addresses that an Agent Card names, in either version's form (a2a §1)."""
    interfaces = card.get("supportedInterfaces")
    entries = [card, *(interfaces if isinstance(interfaces, list) else ())]
    urls = [entry.get("url") for entry in entries if isinstance(entry, Mapping)]
    return [url for url in dict.fromkeys(urls) if isinstance(url, str) and url]
