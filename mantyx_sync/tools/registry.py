"""Who answers a tool call: the three kinds of client-resolved tools, told apart by `kind` (wire §4.3, §13)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterable, Protocol

from ..events import LocalToolCall

if TYPE_CHECKING:
    from .context import ToolContext
    from .refs import LocalTool
    from .results import ToolResult

__all__ = ["Answerer", "Registry"]


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
    """The tools that this process answers for in one run, by kind and by the key that calls of the kind carry."""

    def __init__(self, tools: Iterable[Any] = ()) -> None:
        self._answerers: dict[tuple[str, str], Answerer] = {}
        for tool in tools:
            if getattr(tool, "kind", None) == "local":
                self.add("local", tool.name, _Function(tool))

    def add(self, kind: str, key: str, answerer: Answerer) -> None:
        """Let `answerer` answer calls of `kind` with `key`: a tool's name, or an MCP server's label."""
        self._answerers[kind, key] = answerer

    def find(self, call: LocalToolCall) -> Answerer | None:
        """Return who answers `call`, or `None`."""
        key = call.mcp_server if call.kind == "mcp_local" else call.name
        return self._answerers.get((call.kind, key or ""))

    @property
    def names(self) -> str:
        """The keys that are known, in words."""
        return ", ".join(key for _, key in self._answerers)
