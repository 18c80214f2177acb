"""Tools as MCP clients see them: functions and `@tool` functions, under terms of their own where `expose` is used."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional

from ..checks import closest, refusal, shown, string
from ..errors import MantyxConfigError
from ..limits import SPACEFIX_MAX_TITLE_CHARS
from ..reprs import dataclass
from ..tools.context import ToolContext
from ..tools.function import as_tool_ref, tool
from ..tools.refs import LocalTool
from .answers import tool_value
from .handlers import call_handler, characters, check_limits, check_name

__all__ = ["ServedTool", "expose", "served_tool"]

_ANNOTATIONS = {
    "title": "title",
    "read_only_hint": "readOnlyHint",
    "destructive_hint": "destructiveHint",
    "idempotent_hint": "idempotentHint",
    "open_world_hint": "openWorldHint",
}


@dataclass(frozen=True, eq=False)
class ServedTool:
    """A tool as MCP clients see it. Made by `expose`; an `Agent` makes one of each function it is given.

    Args:
        tool: What answers.
        name: What clients call it; the tool's own name unless given.
        description: What the model reads; the tool's own unless given.
        annotations: Hints for clients: `title` and the booleans `readOnlyHint`, `destructiveHint`, `idempotentHint`,
            `openWorldHint`, also in Python's spelling. Others are dropped, as the gateway does. A tool that is
            `read_only` has `readOnlyHint` unless that is said here: only such tools are offered to read-only clients.
        timeout: Seconds a call may take; the tool's own unless given.
        max_concurrency: How many calls may run at once; the tool's own unless given.

    Raises:
        MantyxConfigError: Something of this cannot be registered.
    """

    tool: LocalTool
    name: str = ""
    description: Optional[str] = None
    annotations: Optional[Mapping[str, Any]] = None
    timeout: Optional[float] = None
    max_concurrency: Optional[int] = None

    def __post_init__(self) -> None:
        name = check_name(self.name or self.tool.name, "a tool's name")
        where = f"tool {name!r}"
        self._set("name", name)
        if self.description is None:
            self._set("description", self.tool.description)
        string(self.description, f"{where}: description")
        self._set("annotations", _annotations(self.annotations, name, self.tool.read_only))
        self._set("timeout", self.tool.timeout if self.timeout is None else self.timeout)
        if self.max_concurrency is None:
            self._set("max_concurrency", self.tool.max_concurrency)
        check_limits(where, self.timeout, self.max_concurrency)

    def to_wire(self) -> Dict[str, Any]:
        """Return the entry of `tools` (spacefix, "Tool")."""
        wire: Dict[str, Any] = {"name": self.name}
        if self.description:
            wire["description"] = self.description
        if self.tool.parameters is not None:
            wire["inputSchema"] = self.tool.parameters
        if self.annotations:
            wire["annotations"] = dict(self.annotations)
        return wire

    def answer(self, args: object, context: ToolContext) -> Any:
        """Run the handler on the arguments of a call and return the `result` of its answer. Blocks.

        They are checked against the schema once more: the gateway does not look at `pattern`, `patternProperties`
        and `format`.

        Raises:
            ToolInputError: They do not fit; the handler did not run.
            ToolError: The handler raised it, or what it returned cannot be sent.
            BaseException: Whatever else the handler raised.
        """
        assert self.tool.binding is not None  # every LocalTool has one
        return tool_value(call_handler(self.tool.execute, self.tool.binding, args, context, self.name), self.name)

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)


def expose(
    value: Any,
    *,
    name: str | None = None,
    description: str | None = None,
    annotations: Mapping[str, Any] | None = None,
    parameters: Mapping[str, Any] | None = None,
    timeout: float | None = None,
    max_concurrency: int | None = None,
) -> ServedTool:
    """Offer a function, or a tool made by `@tool` or `define_local_tool`, to MCP clients under your own terms.

    Args:
        value: The function or tool.
        name: 1 to 64 letters, digits, `_` and `-`.
        description: What the model reads about it.
        annotations: As `ServedTool`.
        parameters: A JSON Schema in place of a function's hints; a tool has its schema already.
        timeout: Seconds a call may take.
        max_concurrency: How many calls may run at once.

    Raises:
        MantyxConfigError: It is no tool, or something of this cannot be registered.
    """
    if isinstance(value, ServedTool):
        if parameters is not None:
            raise refusal("parameters", "a schema", "be left out for a tool, which has one")
        return ServedTool(
            value.tool,
            value.name if name is None else name,
            value.description if description is None else description,
            value.annotations if annotations is None else annotations,
            value.timeout if timeout is None else timeout,
            value.max_concurrency if max_concurrency is None else max_concurrency,
        )
    if name is not None:
        check_name(name, "a tool's name")
    inner = _local_tool(value, name, parameters)
    return ServedTool(inner, name or "", description, annotations, timeout, max_concurrency)


def served_tool(value: Any) -> ServedTool:
    """Return what an agent serves for an entry of its `tools`."""
    return value if isinstance(value, ServedTool) else expose(value)


def _local_tool(value: Any, name: str | None, parameters: Mapping[str, Any] | None) -> LocalTool:
    if parameters is not None:
        if isinstance(value, LocalTool):
            raise refusal("parameters", "a schema", "be left out for a tool, which has one")
        found: Any = tool(value, name=_plain_name(name), parameters=parameters)
    elif name is not None and callable(value) and not isinstance(value, (LocalTool, type)):
        found = as_tool_ref(tool(value, name=_plain_name(name)))
    else:
        found = as_tool_ref(value)
    if not isinstance(found, LocalTool):
        kind = getattr(found, "kind", type(found).__name__)
        raise refusal("tools", f"a tool of kind {kind!r}", "be functions or tools that this process answers itself")
    return found


def _plain_name(name: str | None) -> str | None:
    """Return the name of the tool within this package, where a `-` cannot be in one."""
    return None if name is None else name.replace("-", "_")


def _annotations(given: Mapping[str, Any] | None, name: str, read_only: bool) -> Dict[str, Any] | None:
    """Return the annotations that the gateway keeps."""
    if given is not None and not isinstance(given, Mapping):
        raise refusal(f"tool {name!r}: annotations", shown(given), "be a mapping")
    kept: Dict[str, Any] = {"readOnlyHint": True} if read_only else {}
    wires = set(_ANNOTATIONS.values())
    for key, value in (given or {}).items():
        wire = _ANNOTATIONS.get(key, key)
        if wire not in wires:
            near = closest(str(key), [*_ANNOTATIONS, *wires], 0.85)
            if near is not None:
                raise MantyxConfigError(f"tool {name!r}: annotations: unknown key {key!r}; did you mean {near!r}?")
            continue  # dropped by the gateway, too
        where = f"tool {name!r}: annotation {wire!r}"
        if wire == "title":
            if characters(string(value, where)) > SPACEFIX_MAX_TITLE_CHARS:
                raise refusal(where, f"{characters(value)} characters", f"have at most {SPACEFIX_MAX_TITLE_CHARS}")
        elif not isinstance(value, bool):
            raise refusal(where, shown(value), "be True or False")
        kept[wire] = value
    return kept or None
