"""What to call things that are known as the wire's objects only: tools of a spec, what an eval's case asks. Pure."""

from __future__ import annotations

from typing import Any, Mapping

from mantyx_sync.display.html import one_line

__all__ = ["asked", "tool_names"]


def tool_names(spec: Mapping[str, Any]) -> list[str]:
    """Return the names of the tools in a run's or session's spec, `?` for one without any."""
    tools = spec.get("tools")
    return [_tool_name(ref) for ref in tools] if isinstance(tools, (list, tuple)) else []


def _tool_name(ref: object) -> str:
    if not isinstance(ref, Mapping):
        return "?"
    found = next((ref[key] for key in ("name", "pluginTool", "id", "kind") if isinstance(ref.get(key), str)), "?")
    return one_line(found, 60)


def asked(given: Mapping[str, Any]) -> str:
    """Return what is asked in a spec, or in the input of an eval's case; where it asks in no way known, all of it."""
    for key in ("prompt", "content"):
        if isinstance(given.get(key), str):
            return str(given[key])
    messages = given.get("messages")
    if isinstance(messages, (list, tuple)) and messages and isinstance(messages[-1], Mapping):
        return one_line(messages[-1].get("content"), 4000)
    return one_line(given, 4000)
