"""The `tools` of a spec: what is accepted, and what has to hold for the list as a whole (wire §3)."""

from __future__ import annotations

from typing import Any, Iterator, List, Mapping, Tuple

from mantyx_sync import limits
from mantyx_sync.checks import json_copy, refusal, sequence, shown, text
from mantyx_sync.errors import MantyxConfigError

__all__ = ["check_tool_names", "read_tools", "tools_to_wire"]

# What each kind must have (wire §3). A kind that is not here is passed on: the server may be newer.
_REQUIRED = {
    "mantyx": ("id",),
    "mantyx_plugin": ("name",),
    "local": ("name",),
    "a2a": ("name", "agentCardUrl"),
    "a2a_local": ("name",),
    "mcp": ("name", "url"),
    "mcp_local": ("name",),
}
# Kinds whose `name` is what the model sees.
_MODEL_FACING = frozenset({"local", "a2a", "a2a_local"})


def read_tools(value: object, where: str = "tools") -> Tuple[Any, ...]:
    """Return the tools of a spec: tool refs as they are, mappings checked and copied, functions made into refs."""
    if callable(value) or hasattr(value, "to_wire"):
        raise refusal(where, shown(value), "be a list of tools: [tool]")
    tools = tuple(_read_tool(item, f"{where}[{i}]") for i, item in enumerate(sequence(value, where, "tools")))
    check_tool_names([_described(tool) for tool in tools], where)
    return tools


def tools_to_wire(tools: Tuple[Any, ...], where: str = "tools") -> List[dict[str, Any]]:
    """Return the wire form of tools that `read_tools` returned."""
    found = []
    for i, tool in enumerate(tools):
        here = f"{where}[{i}]"
        ref = json_copy(tool if isinstance(tool, Mapping) else tool.to_wire(), here)
        _check_ref(ref, here)
        found.append(ref)
    # Once more: what an MCP server offers is known only now.
    check_tool_names(found, where)
    return found


def check_tool_names(refs: List[dict[str, Any]], where: str) -> None:
    """Refuse two tools that the model could not tell apart, or that say the same thing twice."""
    seen: dict[object, int] = {}
    for i, ref in enumerate(refs):
        for key, what in _names(ref):
            if key in seen and seen[key] != i:
                raise MantyxConfigError(f"{where}[{i}]: {what} is already there as {where}[{seen[key]}]")
            if key in seen:
                raise MantyxConfigError(f"{where}[{i}]: {what} is there twice")
            seen[key] = i


def _names(ref: Mapping[str, Any]) -> Iterator[Tuple[object, str]]:
    """Yield what a tool ref takes up: a key to compare by, and words for it."""
    kind, name = ref.get("kind"), ref.get("name")
    if kind in _MODEL_FACING and isinstance(name, str):
        yield ("name", name), f"a tool named {name!r}"
    elif kind == "mcp_local":
        for tool in ref.get("tools") or ():
            if isinstance(tool, Mapping) and isinstance(tool.get("name"), str):
                yield ("name", tool["name"]), f"a tool named {tool['name']!r}"
        yield ("mcp", name), f"an MCP server named {name!r}"
    elif kind == "mcp":
        # The platform puts this name before the server's tool names.
        yield ("mcp", name), f"an MCP server named {name!r}"
    elif kind in ("mantyx", "mantyx_plugin"):
        key = ref.get("id") if kind == "mantyx" else name
        yield (kind, key), f"the {kind} tool {key!r}"


def _read_tool(item: object, where: str) -> Any:
    if isinstance(item, Mapping):
        ref = json_copy(item, where)
        _check_ref(ref, where)
        return ref
    if not callable(getattr(item, "to_wire", None)):
        if not callable(item):
            must = "be a tool, a function or a mapping with 'kind'"
            raise refusal(where, shown(item), must)
        # Late: reading type hints needs modules that a program without tools never loads.
        from mantyx_sync.tools.function import as_tool_ref

        item = as_tool_ref(item)
    ref = _described(item)
    if ref["kind"] in _MODEL_FACING:
        _check_name(ref["name"], f"{where}.name")
    return item


def _described(tool: Any) -> dict[str, Any]:
    """Return what can be said of a tool before it is resolved: its wire form may need a server."""
    if isinstance(tool, dict):
        return tool
    return {name: getattr(tool, name, None) for name in ("kind", "name", "id")}


def _check_ref(ref: Mapping[str, Any], where: str) -> None:
    kind = text(ref.get("kind"), f"{where}.kind")
    for key in _REQUIRED.get(kind, ()):
        text(ref.get(key), f"{where}.{key}")
    if kind in _MODEL_FACING:
        _check_name(ref["name"], f"{where}.name")
    if kind == "local":
        for key in ("parameters", "outputSchema"):
            _check_object(ref.get(key), f"{where}.{key}", optional=True)
    elif kind == "a2a_local":
        _check_object(ref.get("agentCard"), f"{where}.agentCard")
    elif kind == "mcp_local":
        tools = ref.get("tools")
        if not isinstance(tools, list) or not 1 <= len(tools) <= limits.MAX_MCP_TOOLS:
            got = f"{len(tools)} tools" if isinstance(tools, list) else shown(tools)
            raise refusal(f"{where}.tools", got, f"be a list of 1 to {limits.MAX_MCP_TOOLS} tools")
        for i, tool in enumerate(tools):
            _check_object(tool, f"{where}.tools[{i}]")
            _check_name(tool.get("name"), f"{where}.tools[{i}].name")


def _check_object(value: object, where: str, optional: bool = False) -> None:
    if not isinstance(value, Mapping) and not (optional and value is None):
        raise refusal(where, shown(value), "be an object")


def _check_name(name: object, where: str) -> None:
    if not isinstance(name, str) or not limits.TOOL_NAME.fullmatch(name):
        raise refusal(where, shown(name), f"match {limits.TOOL_NAME.pattern}")
