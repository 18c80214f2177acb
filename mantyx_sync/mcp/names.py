"""What a model calls the tools of an MCP server: names that MANTYX takes, each leading back to one tool (wire §3.3).

MCP allows names that MANTYX refuses. The rule, which depends on nothing but the name and the prefix:

1. The prefix goes before the name, unless the name begins with it already.
2. Each character but letters, digits and `_` becomes `_`: `db.query-all` is `db_query_all`.
3. Beyond 64 characters, the first 55 are kept, followed by `_` and 8 hex digits that stand for the whole name.

Two tools that get the same name are reported before a run starts.
"""

from __future__ import annotations

import hashlib
import re
from typing import Dict, Iterable

from ..errors import MantyxConfigError, cut

__all__ = ["model_name", "model_names"]

_NOT_ALLOWED = re.compile(r"[^a-zA-Z0-9_]")
_MAX_CHARS = 64
_DIGITS = 8


def model_name(tool: str, prefix: str = "") -> str:
    """Return what the model calls a tool."""
    whole = tool if tool.startswith(prefix) else prefix + tool
    name = _NOT_ALLOWED.sub("_", whole)
    if len(name) > _MAX_CHARS:
        digest = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()
        name = f"{name[: _MAX_CHARS - _DIGITS - 1]}_{digest[:_DIGITS]}"
    return name


def model_names(tools: Iterable[str], prefix: str, label: str) -> Dict[str, str]:
    """Return the tools' own names by what the model calls them, in order.

    Raises:
        MantyxConfigError: Two of them would have the same name.
    """
    found: Dict[str, str] = {}
    for tool in tools:
        name = model_name(tool, prefix)
        if name in found:
            raise MantyxConfigError(
                f"{label}: the model would know two of its tools, {cut(found[name], 80)!r} and {cut(tool, 80)!r}, as "
                f"{name!r}; leave one out with tool_filter="
            )
        found[name] = tool
    return found
