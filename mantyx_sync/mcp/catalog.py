"""What a server lists, page by page; and its tools as last listed, with what calling them takes."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple, TypeVar

from ..errors import cut
from ..schema import SchemaChecker
from ..wire import json_type
from .channel import Era, Waiting
from .errors import McpProtocolError
from .link import Link
from .link_state import Line
from .models import McpTool
from .params import BadHeaderParam, HeaderParam, header_params

__all__ = ["Catalog", "KnownTool", "list_all"]

log = logging.getLogger(__name__)

MAX_PAGES = 100
"""How many pages of a list are read; more than that is taken for a list without an end."""

_MAX_TTL_MS = 10**15
"""For ever; JSON has whole numbers that no float can hold."""

ItemT = TypeVar("ItemT")


@dataclass
class _Pages:
    items: List[Any]
    line: Line
    ttl_s: float


def list_all(
    link: Link, method: str, key: str, read: Callable[[object, str], ItemT], waiting: Waiting
) -> tuple[ItemT, ...]:
    """Return everything that a server lists under `key`, read entry by entry; a malformed entry is left out."""
    pages = _pages(link, method, key, waiting)
    return tuple(_read(pages.items, key, read, link.label))


def _pages(link: Link, method: str, key: str, waiting: Waiting) -> _Pages:
    items: List[Any] = []
    seen = set()
    cursor: Optional[str] = None
    ttl_s = float("inf")
    for _ in range(MAX_PAGES):
        # An empty string is a cursor like any other.
        result, line = link.call(method, {} if cursor is None else {"cursor": cursor}, waiting)
        page = result.get(key)
        if not isinstance(page, list):
            raise McpProtocolError(f"{link.label}: {key!r} of {method} is {json_type(page)}, must be an array")
        items.extend(page)
        ttl_s = min(ttl_s, _ttl_s(result))
        cursor = result.get("nextCursor")
        if cursor is None:
            return _Pages(items, line, ttl_s)
        if not isinstance(cursor, str):
            raise McpProtocolError(f"{link.label}: 'nextCursor' of {method} is {json_type(cursor)}, must be a string")
        if cursor in seen:
            raise McpProtocolError(f"{link.label}: {method} repeats the cursor {cut(cursor, 40)!r}: it has no end")
        seen.add(cursor)
    raise McpProtocolError(f"{link.label}: {method} has no end after {MAX_PAGES} pages")


def _ttl_s(result: Mapping[str, Any]) -> float:
    ttl = result.get("ttlMs")
    if not isinstance(ttl, (int, float)) or isinstance(ttl, bool) or not ttl > 0:
        return 0.0
    return min(ttl, _MAX_TTL_MS) / 1000.0


def _read(items: List[Any], key: str, read: Callable[[object, str], ItemT], label: str) -> List[ItemT]:
    """Read the entries; one that cannot be read costs itself, not the list."""
    found = []
    for number, item in enumerate(items):
        name = item.get("name") if isinstance(item, Mapping) else None
        shown = f"{key}[{number}]" + (f" ({cut(name, 80)!r})" if isinstance(name, str) and name else "")
        try:
            found.append(read(item, f"{label}: {shown}"))
        except McpProtocolError as error:
            log.warning("%s; it is left out", error)
    return found


@dataclass
class KnownTool:
    """A tool as last listed."""

    tool: McpTool
    params: Tuple[HeaderParam, ...] = ()
    _checker: Optional[SchemaChecker] = field(default=None, repr=False)

    def output_problem(self, has_output: bool, output: Any, label: str) -> str | None:
        """Return what is wrong with a structured content, in one sentence; `None` if it is right."""
        schema = self.tool.output_schema
        if schema is None:
            return None
        if not has_output:
            return "it has none"
        checker = self._checker
        if checker is None:
            checker = SchemaChecker(schema, label=f"{label}: tool {cut(self.tool.name, 80)!r}", foreign=True)
            self._checker = checker  # two threads may both make one: they are alike
        return checker.problem(output)


@dataclass(frozen=True)
class _Listing:
    tools: Dict[str, KnownTool]
    line: Line
    changes: int
    asked_at: float
    ttl_s: float

    def is_valid(self, line: Line) -> bool:
        """Tell whether nothing has been heard since that makes the list a wrong one."""
        return self.line is line and self.changes == line.incoming.tool_changes

    def is_fresh(self, line: Line) -> bool:
        """Tell whether the server's word is that the list is still the same one."""
        if not self.is_valid(line):
            return False
        if line.era is Era.STATELESS:
            return time.monotonic() < self.asked_at + self.ttl_s
        tools = line.server.capabilities.get("tools") if line.server is not None else None
        return isinstance(tools, Mapping) and tools.get("listChanged") is True


class Catalog:
    """The tools of a server. Any thread may use it."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._listing: _Listing | None = None

    def tools(self, waiting: Waiting, *, refresh: bool) -> tuple[McpTool, ...]:
        """Return the tools, asking the server unless its own word lets the last list be used again."""
        listing = self._listing
        line = self._link.line(waiting)
        if refresh or listing is None or not listing.is_fresh(line):
            listing = self._list(line, waiting)
        return tuple(known.tool for known in listing.tools.values())

    def known(self, name: str, waiting: Waiting, *, after: float | None = None) -> KnownTool | None:
        """Return a tool as last listed; asks the server if it was never asked, or has said that its tools changed.

        Args:
            name: The tool.
            waiting: How long to wait.
            after: Ask again, unless the list was read after that time (monotonic).
        """
        listing = self._listing
        line = self._link.line(waiting)
        if listing is None or not listing.is_valid(line) or (after is not None and listing.asked_at <= after):
            listing = self._list(line, waiting)
        return listing.tools.get(name)

    def _list(self, line: Line, waiting: Waiting) -> _Listing:
        changes, asked_at = line.incoming.tool_changes, time.monotonic()
        if line.server is not None and "tools" not in line.server.capabilities:
            pages = _Pages([], line, 0.0)
        else:
            pages = _pages(self._link, "tools/list", "tools", waiting)
        label = self._link.label
        tools: Dict[str, KnownTool] = {}
        for tool in _read(pages.items, "tools", McpTool.from_wire, label):
            if tool.name in tools:
                log.warning("%s: lists the tool %r twice; the first one counts", label, cut(tool.name, 80))
                continue
            try:
                tools[tool.name] = KnownTool(tool, self._header_params(tool, pages.line))
            except BadHeaderParam as error:
                log.warning("%s: tool %r is left out: %s", label, cut(tool.name, 80), error)
        listing = _Listing(tools, pages.line, changes, asked_at, pages.ttl_s)
        self._listing = listing
        return listing

    def _header_params(self, tool: McpTool, line: Line) -> tuple[HeaderParam, ...]:
        if line.era is Era.STATELESS and self._link.settings.sends_headers:
            return header_params(tool.input_schema)
        return ()
