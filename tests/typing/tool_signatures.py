"""Checked by mypy --strict and pyright, never run: `@tool` keeps a function's signature.

A line that must be an error carries an ignore; mypy's `warn_unused_ignores` and pyright's
`reportUnnecessaryTypeIgnoreComment` then make sure that it is one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Optional

from mantyx_sync.tools.context import ToolContext
from mantyx_sync.tools.function import FunctionTool, as_tool_ref, define_local_tool, tool
from mantyx_sync.tools.refs import LocalTool, ToolRef, mantyx_a2a, mantyx_mcp, mantyx_plugin_tool, mantyx_tool
from mantyx_sync.tools.results import ToolResult, ToolResultFile

if TYPE_CHECKING:
    from typing_extensions import assert_type


@tool
def plain(order_id: str, limit: int = 3) -> Dict[str, int]:
    """Look up."""
    return {order_id: limit}


@tool(name="other", read_only=True, timeout=3.0)
def with_options(order_id: str) -> Optional[str]:
    """Look up."""
    return order_id


class Shop:
    @tool
    def method(self, count: int, context: ToolContext) -> List[int]:
        """Count."""
        return [count]

    @tool(name="renamed")
    def method_with_options(self, count: int) -> str:
        """Count."""
        return str(count)

    @staticmethod
    @tool
    def static(count: int) -> bytes:
        """Count."""
        return bytes(count)


def results(shop: Shop) -> None:
    assert_type(plain("a"), Dict[str, int])
    assert_type(plain("a", limit=4), Dict[str, int])
    assert_type(with_options("a"), Optional[str])
    assert_type(shop.method(3, ToolContext()), List[int])
    assert_type(shop.method_with_options(3), str)
    assert_type(Shop.static(3), bytes)
    assert_type(tool(len, name="length")([]), int)
    assert_type(plain.invoke({"order_id": "a"}), ToolResult)
    plain(1)  # type: ignore[arg-type]
    plain("a", "b")  # type: ignore[arg-type]
    plain("a", missing=1)  # type: ignore[call-arg]
    shop.method_with_options("x")  # type: ignore[arg-type]


def as_values(shop: Shop) -> None:
    refs: List[ToolRef] = [
        plain,
        with_options,
        shop.method,
        Shop.static,
        mantyx_tool("tool_1"),
        mantyx_plugin_tool("@plugin/tool"),
        mantyx_a2a(name="peer", agent_card_url="https://example.com/card"),
        mantyx_mcp(name="docs", url="https://example.com/mcp", tool_filter=["search"]),
        as_tool_ref(plain),
    ]
    local: LocalTool = define_local_tool(name="raw", execute=lambda arguments: str(arguments))
    bound: FunctionTool[Any, str] = shop.method_with_options
    refs += [local, bound]
    ToolResult("text", files=[ToolResultFile.from_bytes(b"x", "x.txt")])
