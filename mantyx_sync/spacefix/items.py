"""Resources and prompts: functions of this process that MCP clients read and ask for."""

from __future__ import annotations

from dataclasses import field
from typing import Any, Callable, Dict, List, Mapping, Optional, overload

from ..checks import refusal, shown, string, text
from ..reprs import dataclass
from ..tools.binding import Binding, FunctionBinding
from ..tools.context import ToolContext
from .answers import prompt_value, resource_value
from .handlers import call_handler, check_limits, check_name, own_name, read_handler

__all__ = ["Prompt", "Resource", "prompt", "resource"]


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
        doc = read_handler(self.handler, where)
        binding = FunctionBinding(self.handler, where, doc)
        needed = [name for name in (binding.schema or {}).get("required", ()) if name != "uri"]
        if needed:
            raise refusal(
                f"{where}: its function", f"the parameter {needed[0]!r}", "have none without a default but 'uri'"
            )
        self._set("binding", binding)
        self._set("name", own_name(self.handler) if self.name is None else self.name)
        self._set("description", doc.description if self.description is None else self.description)
        string(self.name, f"{where}: name")
        string(self.description, f"{where}: description")
        if self.mime_type is not None:
            text(self.mime_type, f"{where}: mime_type")
        check_limits(where, self.timeout, self.max_concurrency)

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
        return resource_value(call_handler(self.handler, self.binding, given, context, self.uri), self.uri)

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
        name = check_name(self.name or own_name(self.handler), "a prompt's name")
        where = f"prompt {name!r}"
        doc = read_handler(self.handler, where)
        binding = FunctionBinding(self.handler, where, doc)
        self._set("name", name)
        self._set("binding", binding)
        self._set("description", doc.description if self.description is None else self.description)
        string(self.description, f"{where}: description")
        if self.title is not None:
            string(self.title, f"{where}: title")
        self._set("arguments", _prompt_arguments(binding.schema or {}, where))
        check_limits(where, self.timeout, self.max_concurrency)

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
        return prompt_value(call_handler(self.handler, self.binding, args, context, self.name), self.name)

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)


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
    if callable(uri):
        raise refusal("a resource's uri", "a function", 'be its address: @resource("orders://all")')
    return lambda function: Resource(uri, function, name, description, mime_type, timeout, max_concurrency)


@overload
def prompt(function: Callable[..., Any]) -> Prompt: ...


@overload
def prompt(
    *,
    name: str = "",
    title: str | None = None,
    description: str | None = None,
    timeout: float | None = None,
    max_concurrency: int | None = None,
) -> Callable[[Callable[..., Any]], Prompt]: ...


def prompt(
    function: Callable[..., Any] | None = None,
    *,
    name: str = "",
    title: str | None = None,
    description: str | None = None,
    timeout: float | None = None,
    max_concurrency: int | None = None,
) -> Any:
    """Make a function a prompt: `@prompt`, or `@prompt(title="Summarise order")`. Arguments as `Prompt`."""
    if function is not None and not callable(function):
        raise refusal("prompt", shown(function), "be a function; options have names: @prompt(title=…)")

    def make(function: Callable[..., Any]) -> Prompt:
        return Prompt(function, name, title, description, timeout, max_concurrency)

    return make if function is None else make(function)


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
