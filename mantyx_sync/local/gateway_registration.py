"""What an agent registers: checked in the gateway's order and refused in its words. Does no I/O.

spacefix, "What the gateway checks, in order". Where two documented checks share a step, the order of the table of
errors decides: a resource is checked by itself before resources are counted.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, Mapping, Optional

from mantyx_sync import limits
from mantyx_sync.local.gateway_json import js_length, js_text, to_json
from mantyx_sync.local.gateway_schema import InputSchema, SchemaRefused
from mantyx_sync.reprs import dataclass

__all__ = [
    "FREE",
    "GatewayPlan",
    "RegisteredPrompt",
    "RegisteredResource",
    "RegisteredTool",
    "Registration",
    "Unregistrable",
]

_HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")


@dataclass(frozen=True)
class GatewayPlan:
    """What a project's plan allows; without arguments the Free plan (spacefix, "Limits")."""

    name: str = "Free"
    max_connects_per_minute: int = limits.SPACEFIX_MAX_CONNECTS_PER_MINUTE
    max_connections: int = limits.SPACEFIX_MAX_CONNECTIONS
    max_tools: int = limits.SPACEFIX_MAX_TOOLS
    max_schema_bytes: int = limits.SPACEFIX_MAX_SCHEMA_BYTES


FREE = GatewayPlan()


class Unregistrable(Exception):
    """A registration is refused with 400; the message is the body's `error`."""


@dataclass(frozen=True)
class RegisteredTool:
    """A tool of one connection."""

    name: str
    description: Optional[str]
    input_schema: Mapping[str, Any]
    annotations: Mapping[str, Any]
    checker: InputSchema = field(repr=False, compare=False)

    @property
    def is_read_only(self) -> bool:
        """Whether the agent says that the tool changes nothing; a missing hint counts as a write."""
        return self.annotations.get("readOnlyHint") is True

    def to_listing(self) -> dict[str, Any]:
        """Return the tool's entry in `tools/list`."""
        return {
            "name": self.name,
            **({} if self.description is None else {"description": self.description}),
            "inputSchema": self.input_schema,
            **({"annotations": self.annotations} if self.annotations else {}),
        }


@dataclass(frozen=True)
class RegisteredResource:
    """A resource of one connection."""

    uri: str
    name: Optional[str] = None
    description: Optional[str] = None
    mime_type: str = "application/json"

    def to_listing(self) -> dict[str, Any]:
        """Return the resource's entry in `resources/list`. Without a name of its own it goes by its uri."""
        return {
            "uri": self.uri,
            "name": self.uri if self.name is None else self.name,
            **({} if self.description is None else {"description": self.description}),
            "mimeType": self.mime_type,
        }


@dataclass(frozen=True)
class RegisteredPrompt:
    """A prompt of one connection."""

    name: str
    title: Optional[str] = None
    description: Optional[str] = None
    arguments: tuple[Mapping[str, Any], ...] = ()

    def to_listing(self) -> dict[str, Any]:
        """Return the prompt's entry in `prompts/list`."""
        return {
            "name": self.name,
            **({} if self.title is None else {"title": self.title}),
            **({} if self.description is None else {"description": self.description}),
            **({"arguments": list(self.arguments)} if self.arguments else {}),
        }


@dataclass(frozen=True)
class Registration:
    """What one connection serves, by name; resources by uri."""

    tools: Mapping[str, RegisteredTool]
    resources: Mapping[str, RegisteredResource]
    prompts: Mapping[str, RegisteredPrompt]

    @classmethod
    def read(cls, body: Any, plan: GatewayPlan) -> Registration:
        """Read the body of a connect request. Raises `Unregistrable` for the first thing that is wrong."""
        fields = body if isinstance(body, dict) else {}
        tools, resources, prompts = (
            _array(fields.get(name, default), name)
            for name, default in (("tools", None), ("resources", []), ("prompts", []))
        )
        read_prompts = [_read_prompt(entry) for entry in prompts]
        read_resources = _read_resources(resources)
        if len(tools) > plan.max_tools:
            raise Unregistrable(f"Too many tools: limit is {plan.max_tools}.")
        read_tools = [_read_tool(entry, plan) for entry in tools]
        return cls(
            # Of two with one name the later replaces the earlier, in the earlier's place.
            {tool.name: tool for tool in read_tools},
            read_resources,
            {prompt.name: prompt for prompt in read_prompts},
        )


def _array(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise Unregistrable(f'"{name}" must be an array.')
    return value


def _text(entry: Mapping[str, Any], name: str) -> Optional[str]:
    value = entry.get(name)
    return value if isinstance(value, str) else None


def _field(entry: Any, name: str) -> str:
    """Write a field as a template string of JavaScript does, for a message about it."""
    return js_text(entry[name]) if isinstance(entry, dict) and name in entry else js_text()


def _has_name(entry: Any) -> bool:
    return isinstance(entry, dict) and limits.SPACEFIX_NAME.fullmatch(_text(entry, "name") or "") is not None


def _read_prompt(entry: Any) -> RegisteredPrompt:
    if not _has_name(entry) or not isinstance(entry.get("arguments", []), list):
        raise Unregistrable(f'Invalid prompt "{_field(entry, "name")}".')
    arguments = tuple(
        {name: argument[name] for name in ("name", "description", "required") if name in argument}
        for argument in entry.get("arguments", [])
        if isinstance(argument, dict) and isinstance(argument.get("name"), str)
    )
    return RegisteredPrompt(entry["name"], _text(entry, "title"), _text(entry, "description"), arguments)


def _read_resources(entries: list[Any]) -> dict[str, RegisteredResource]:
    found: dict[str, RegisteredResource] = {}
    for entry in entries:
        uri = _text(entry, "uri") if isinstance(entry, dict) else None
        if not uri or js_length(uri) > limits.SPACEFIX_MAX_URI_CHARS:
            raise Unregistrable(f"Invalid resource {_field(entry, 'uri')}.")
        if not isinstance(entry.get("name", ""), str):
            raise Unregistrable(f'Invalid name for resource "{uri}".')
        if uri in found:
            raise Unregistrable(f'Duplicate resource "{uri}".')
        mime_type = _text(entry, "mimeType") or "application/json"
        found[uri] = RegisteredResource(uri, _text(entry, "name"), _text(entry, "description"), mime_type)
    if len(found) > limits.SPACEFIX_MAX_RESOURCES:
        raise Unregistrable(f"Too many resources: limit is {limits.SPACEFIX_MAX_RESOURCES}.")
    return found


def _read_tool(entry: Any, plan: GatewayPlan) -> RegisteredTool:
    if not _has_name(entry):
        raise Unregistrable(f'Invalid tool name "{_field(entry, "name")}".')
    name = entry["name"]
    schema = entry.get("inputSchema")
    if schema is None:
        schema = {"type": "object"}
    if len(to_json(schema).encode("utf-8", "surrogatepass")) > plan.max_schema_bytes:
        raise Unregistrable(f'Schema for "{name}" exceeds {plan.max_schema_bytes} bytes.')
    try:
        checker = InputSchema(schema, name)
    except SchemaRefused as problem:
        raise Unregistrable(f'Schema for "{name}" is not valid JSON Schema: {problem}') from None
    return RegisteredTool(
        name, _text(entry, "description"), schema, _read_annotations(entry.get("annotations"), name), checker
    )


def _read_annotations(given: Any, tool: str) -> dict[str, Any]:
    """Keep the hints that are known, in the order in which they are documented."""
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise Unregistrable(f'Annotations for "{tool}" must be an object.')
    kept: dict[str, Any] = {}
    if "title" in given:
        title = given["title"]
        if not isinstance(title, str) or js_length(title) > limits.SPACEFIX_MAX_TITLE_CHARS:
            raise Unregistrable(
                f'Annotation "title" for "{tool}" must be a string of at most '
                f"{limits.SPACEFIX_MAX_TITLE_CHARS} characters."
            )
        kept["title"] = title
    for hint in _HINTS:
        if hint in given:
            if not isinstance(given[hint], bool):
                raise Unregistrable(f'Annotation "{hint}" for "{tool}" must be true or false.')
            kept[hint] = given[hint]
    return kept
