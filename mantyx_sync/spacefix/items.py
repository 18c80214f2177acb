"""What an agent serves: tools, resources and prompts, each with the function that answers for it.

`@tool` functions and plain functions are tools as they are; `expose` gives one of them another name, annotations or
limits for MCP clients. `resource` and `prompt` make the other two of functions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, Optional

from ..checks import closest, refusal, seconds, shown, string, text, whole_number
from ..errors import MantyxConfigError
from ..hints.docstrings import DocInfo, read_docstring
from ..limits import SPACEFIX_MAX_TITLE_CHARS, SPACEFIX_NAME
from ..tools.arguments import read_arguments
from ..tools.binding import Binding, FunctionBinding, innermost, refuse_async, too_deep
from ..tools.context import ToolContext
from ..tools.function import as_tool_ref, tool
from ..tools.refs import LocalTool
from .answers import prompt_value, resource_value, tool_value

__all__ = ["Prompt", "Resource", "ServedTool", "expose", "prompt", "resource", "served_tool"]

_ANNOTATIONS = {
    "title": "title",
    "read_only_hint": "readOnlyHint",
    "destructive_hint": "destructiveHint",
    "idempotent_hint": "idempotentHint",
    "open_world_hint": "openWorldHint",
}
NAME_RULE = "be 1 to 64 letters, digits, _ and -"


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
        name = self.name or self.tool.name
        if not isinstance(name, str) or SPACEFIX_NAME.fullmatch(name) is None:
            raise refusal("a tool's name", shown(name), NAME_RULE)
        where = f"tool {name!r}"
        self._set("name", name)
        if self.description is None:
            self._set("description", self.tool.description)
        string(self.description, f"{where}: description")
        self._set("annotations", _annotations(self.annotations, name, self.tool.read_only))
        self._set("timeout", self.tool.timeout if self.timeout is None else self.timeout)
        if self.max_concurrency is None:
            self._set("max_concurrency", self.tool.max_concurrency)
        _check_limits(where, self.timeout, self.max_concurrency)

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
        return tool_value(_call(self.tool.execute, self.tool.binding, args, context, self.name), self.name)

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)


@dataclass(frozen=True, eq=False)
class Resource:
    """Something that clients can read under an address. Made by `resource`.

    Args:
        uri: Its address, such as `orders://all`; at most 2,048 characters.
        handler: Returns the content: a string, UTF-8 bytes, or anything with a JSON form. It is called without
            arguments; a parameter named `uri` gets the address, one annotated with `ToolContext` the call's context.
        name: Shown in listings; the function's own name unless given.
        description: The function's docstring unless given.
        mime_type: Clients are told `application/json` where there is none.
        timeout: Seconds a read may take; `None` for the gateway's own limit.
        max_concurrency: How many reads may run at once; `None` for no limit of its own.

    Raises:
        MantyxConfigError: Something of this cannot be registered.
    """

    uri: str
    handler: Callable[..., Any] = field(repr=False)
    name: Optional[str] = None
    description: Optional[str] = None
    mime_type: Optional[str] = None
    timeout: Optional[float] = None
    max_concurrency: Optional[int] = None
    binding: Optional[Binding] = field(default=None, repr=False)

    def __post_init__(self) -> None:
        text(self.uri, "a resource's uri")
        where = f"resource {self.uri[:80]!r}"
        doc = _read_handler(self.handler, where)
        binding = FunctionBinding(self.handler, where, doc)
        needed = [name for name in (binding.schema or {}).get("required", ()) if name != "uri"]
        if needed:
            raise refusal(
                f"{where}: its function", f"the parameter {needed[0]!r}", "have none without a default but 'uri'"
            )
        self._set("binding", binding)
        self._set("name", _own_name(self.handler) if self.name is None else self.name)
        self._set("description", doc.description if self.description is None else self.description)
        string(self.name, f"{where}: name")
        string(self.description, f"{where}: description")
        if self.mime_type is not None:
            text(self.mime_type, f"{where}: mime_type")
        _check_limits(where, self.timeout, self.max_concurrency)

    def to_wire(self) -> Dict[str, Any]:
        """Return the entry of `resources` (spacefix, "Resource")."""
        wire: Dict[str, Any] = {"uri": self.uri}
        wire.update({"name": self.name} if self.name else {})
        wire.update({"description": self.description} if self.description else {})
        wire.update({"mimeType": self.mime_type} if self.mime_type else {})
        return wire

    def answer(self, args: object, context: ToolContext) -> Any:  # noqa: ARG002 - a read has none
        """Run the handler and return the `result` of the answer. Blocks; raises as `ServedTool.answer` does."""
        assert self.binding is not None  # set in __post_init__
        takes_uri = "uri" in (self.binding.schema or {}).get("properties", {})
        given = {"uri": self.uri} if takes_uri else {}
        return resource_value(_call(self.handler, self.binding, given, context, self.uri), self.uri)

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)


@dataclass(frozen=True, eq=False)
class Prompt:
    """A prompt that clients can ask for. Made by `prompt`.

    Its arguments are the parameters of the function; those without a default are required. Every one is a string.

    Args:
        handler: Returns a string, a list of messages, an object with `messages`, or anything with a JSON form.
        name: What clients call it; the function's own name unless given.
        title: Shown in menus.
        description: The function's docstring unless given.
        timeout: Seconds a call may take; `None` for the gateway's own limit.
        max_concurrency: How many calls may run at once; `None` for no limit of its own.

    Raises:
        MantyxConfigError: Something of this cannot be registered.
    """

    handler: Callable[..., Any] = field(repr=False)
    name: str = ""
    title: Optional[str] = None
    description: Optional[str] = None
    timeout: Optional[float] = None
    max_concurrency: Optional[int] = None
    binding: Optional[Binding] = field(default=None, repr=False)
    arguments: List[Dict[str, Any]] = field(init=False, default_factory=list, repr=False)

    def __post_init__(self) -> None:
        name = self.name or _own_name(self.handler)
        if not isinstance(name, str) or SPACEFIX_NAME.fullmatch(name) is None:
            raise refusal("a prompt's name", shown(name), NAME_RULE)
        where = f"prompt {name!r}"
        doc = _read_handler(self.handler, where)
        binding = FunctionBinding(self.handler, where, doc)
        self._set("name", name)
        self._set("binding", binding)
        self._set("description", doc.description if self.description is None else self.description)
        string(self.description, f"{where}: description")
        if self.title is not None:
            string(self.title, f"{where}: title")
        self._set("arguments", _prompt_arguments(binding.schema or {}, where))
        _check_limits(where, self.timeout, self.max_concurrency)

    def to_wire(self) -> Dict[str, Any]:
        """Return the entry of `prompts` (spacefix, "Prompt")."""
        wire: Dict[str, Any] = {"name": self.name}
        wire.update({"title": self.title} if self.title else {})
        wire.update({"description": self.description} if self.description else {})
        wire.update({"arguments": [dict(item) for item in self.arguments]} if self.arguments else {})
        return wire

    def answer(self, args: object, context: ToolContext) -> Any:
        """Run the handler and return the `result` of the answer. Blocks; raises as `ServedTool.answer` does."""
        assert self.binding is not None  # set in __post_init__
        return prompt_value(_call(self.handler, self.binding, args, context, self.name), self.name)

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
    if name is not None and (not isinstance(name, str) or SPACEFIX_NAME.fullmatch(name) is None):
        raise refusal("a tool's name", shown(name), NAME_RULE)
    inner = _local_tool(value, name, parameters)
    return ServedTool(inner, name or "", description, annotations, timeout, max_concurrency)


def served_tool(value: Any) -> ServedTool:
    """Return what an agent serves for an entry of its `tools`."""
    return value if isinstance(value, ServedTool) else expose(value)


def resource(
    uri: str,
    *,
    name: str | None = None,
    description: str | None = None,
    mime_type: str | None = None,
    timeout: float | None = None,
    max_concurrency: int | None = None,
) -> Callable[[Callable[..., Any]], Resource]:
    """Make a function a resource: `@resource("orders://all", name="All orders")`. Arguments as `Resource`."""
    return lambda function: Resource(uri, function, name, description, mime_type, timeout, max_concurrency)


def prompt(
    *,
    name: str = "",
    title: str | None = None,
    description: str | None = None,
    timeout: float | None = None,
    max_concurrency: int | None = None,
) -> Callable[[Callable[..., Any]], Prompt]:
    """Make a function a prompt: `@prompt(title="Summarise order")`. Arguments as `Prompt`."""
    return lambda function: Prompt(function, name, title, description, timeout, max_concurrency)


def characters(value: str) -> int:
    """Count characters as the gateway does: those beyond the first 65,536 code points are two."""
    return len(value.encode("utf-16-le", "surrogatepass")) // 2


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


def _call(handler: Any, binding: Binding, args: object, context: ToolContext, name: str) -> Any:
    try:
        found = args if type(args) is dict else read_arguments(args, name)
        positional, named = binding.bind(found, context, name)
    except RecursionError:
        raise too_deep(name) from None
    return handler(*positional, **named)


def _read_handler(handler: Any, where: str) -> DocInfo:
    if not callable(handler) or isinstance(handler, type):
        raise refusal(f"{where}: handler", shown(handler), "be a function")
    refuse_async(handler, where)
    found = getattr(innermost(handler), "__doc__", None)
    return read_docstring(found if isinstance(found, str) else None)


def _own_name(handler: Any) -> str:
    return str(getattr(innermost(handler), "__name__", "") or type(handler).__name__)


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


def _prompt_arguments(schema: Mapping[str, Any], where: str) -> List[Dict[str, Any]]:
    required = schema.get("required", ())
    arguments = []
    for name, property_schema in schema.get("properties", {}).items():
        if not _takes_text(property_schema, schema.get("$defs", {})):
            raise refusal(
                f"{where}: parameter {name!r}", "a hint that no text fits", "be str: every prompt argument is a string"
            )
        item: Dict[str, Any] = {"name": name}
        if isinstance(property_schema, Mapping) and property_schema.get("description"):
            item["description"] = property_schema["description"]
        if name in required:
            item["required"] = True
        arguments.append(item)
    return arguments


def _takes_text(schema: Any, definitions: Mapping[str, Any], depth: int = 0) -> bool:
    """Tell whether a schema that hints were compiled to lets some string through."""
    if not isinstance(schema, Mapping) or depth > 20:
        return True
    if "$ref" in schema:
        return _takes_text(definitions.get(schema["$ref"].rpartition("/")[2]), definitions, depth + 1)
    if "enum" in schema:
        return any(isinstance(value, str) for value in schema["enum"])
    if "const" in schema:
        return isinstance(schema["const"], str)
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            return any(_takes_text(item, definitions, depth + 1) for item in schema[keyword])
    kinds = schema.get("type", "string")
    return "string" in ([kinds] if isinstance(kinds, str) else kinds)


def _check_limits(where: str, timeout: object, max_concurrency: object) -> None:
    if timeout is not None:
        seconds(timeout, f"{where}: timeout")
    if max_concurrency is not None:
        whole_number(max_concurrency, f"{where}: max_concurrency", 1)
