"""What an agent registers, checked as the gateway checks it (spacefix, "POST /agent/connect"). Does no I/O.

`check_registration` looks at a body in the gateway's order and stops where it would, so that a registration that it
takes is taken there too; what depends on the project's plan is in `PlanLimits`.
"""

from __future__ import annotations

import logging
from typing import Any, Iterable, Mapping, Union

from ..checks import json_bytes, refusal, sequence, shown, whole_number
from ..errors import MantyxConfigError
from ..limits import (
    SPACEFIX_MAX_REGISTRATION_BYTES,
    SPACEFIX_MAX_RESOURCES,
    SPACEFIX_MAX_SCHEMA_BYTES,
    SPACEFIX_MAX_TITLE_CHARS,
    SPACEFIX_MAX_TOOLS,
    SPACEFIX_MAX_URI_CHARS,
)
from ..reprs import dataclass
from ..schema import SchemaChecker
from ..wire import json_type
from .handlers import characters, check_name
from .items import Prompt, Resource
from .served import ServedTool, served_tool

__all__ = ["Item", "PlanLimits", "Registration", "check_registration", "summary"]

log = logging.getLogger(__name__)

Item = Union[ServedTool, Resource, Prompt]

_HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")


@dataclass(frozen=True)
class PlanLimits:
    """What the project's plan allows; the Free plan unless said otherwise."""

    max_tools: int = SPACEFIX_MAX_TOOLS
    max_schema_bytes: int = SPACEFIX_MAX_SCHEMA_BYTES

    def __post_init__(self) -> None:
        whole_number(self.max_tools, "max_tools", 0)
        whole_number(self.max_schema_bytes, "max_schema_bytes", 0)


class Registration:
    """The tools, resources and prompts of one connection. It does not change; calls are answered by it."""

    def __init__(
        self,
        tools: Iterable[Any] = (),
        resources: Iterable[Resource] = (),
        prompts: Iterable[Prompt] = (),
        limits: PlanLimits | None = None,
    ) -> None:
        """Take what is to be served.

        Of two tools, or two prompts, with one name the later replaces the earlier, with a warning.

        Args:
            tools: Functions, `@tool` functions, local tools, and what `expose` makes of them.

        Raises:
            MantyxConfigError: The gateway would not take it; nothing was sent.
        """
        self.limits = limits or PlanLimits()
        self.tools = _by_name("tool", [served_tool(item) for item in sequence(tools, "tools", "tools")])
        given: Any = sequence(resources, "resources", "resources")
        self.resources = tuple(_of_kind(item, Resource, "resources", "@resource(uri)") for item in given)
        given = sequence(prompts, "prompts", "prompts")
        self.prompts = _by_name("prompt", [_of_kind(item, Prompt, "prompts", "@prompt()") for item in given])
        self._by_key: dict[tuple[str, str], Item] = {
            **{("call", item.name): item for item in self.tools},
            **{("read", item.uri): item for item in self.resources},
            **{("prompt", item.name): item for item in self.prompts},
        }
        check_registration(self.to_wire(), self.limits)

    def __repr__(self) -> str:
        return f"Registration({self.summary})"

    @property
    def summary(self) -> str:
        """How much is served, in words."""
        return summary(len(self.tools), len(self.resources), len(self.prompts))

    def to_wire(self) -> dict[str, Any]:
        """Return the body of the connect request."""
        return {
            "tools": [item.to_wire() for item in self.tools],
            "resources": [item.to_wire() for item in self.resources],
            "prompts": [item.to_wire() for item in self.prompts],
        }

    def find(self, kind: str, name: str) -> Item | None:
        """Return what answers an event, or `None`."""
        return self._by_key.get((kind, name))

    def names(self, kind: str) -> str:
        """Return the names that events of a kind can carry, for whoever used another."""
        return ", ".join(name for known, name in self._by_key if known == kind)


def summary(tools: int, resources: int, prompts: int) -> str:
    """Say how much is served."""
    counts = {"tool": tools, "resource": resources, "prompt": prompts}
    return ", ".join(f"{count} {word}{'' if count == 1 else 's'}" for word, count in counts.items())


def check_registration(body: Mapping[str, Any], limits: PlanLimits | None = None) -> None:
    """Refuse what the gateway would refuse, in its order (spacefix, "What the gateway checks, in order").

    Raises:
        MantyxConfigError: The first thing that is wrong, named as the gateway names it.
    """
    limits = limits or PlanLimits()
    size = json_bytes(body)
    if size > SPACEFIX_MAX_REGISTRATION_BYTES:
        raise refusal(
            "the registration", f"{size} bytes", f"have at most {SPACEFIX_MAX_REGISTRATION_BYTES}{_largest(body)}"
        )
    tools, resources, prompts = (_array(body, name) for name in ("tools", "resources", "prompts"))
    for prompt in prompts:
        _check_prompt(prompt)
    _check_resources(resources)
    if len(tools) > limits.max_tools:
        raise refusal("tools", str(len(tools)), f"be at most {limits.max_tools} (the limit of the plan)")
    for tool in tools:
        _check_tool(tool, limits)


def _array(body: Mapping[str, Any], name: str) -> list[Any]:
    if name not in body and name != "tools":
        return []
    value = body.get(name)
    if not isinstance(value, list):
        raise refusal(name, json_type(value) if name in body else "nothing", "be an array")
    return value


def _check_prompt(prompt: Any) -> None:
    name = prompt.get("name") if isinstance(prompt, Mapping) else None
    check_name(name, "a prompt's name")
    if not isinstance(prompt.get("arguments", []), list):
        raise refusal(f"prompt {name!r}: arguments", json_type(prompt["arguments"]), "be an array")


def _check_resources(resources: list[Any]) -> None:
    seen = set()
    for resource in resources:
        uri = resource.get("uri") if isinstance(resource, Mapping) else None
        if not isinstance(uri, str) or not 0 < characters(uri) <= SPACEFIX_MAX_URI_CHARS:
            raise refusal("a resource's uri", shown(uri), f"be a string of 1 to {SPACEFIX_MAX_URI_CHARS} characters")
        if not isinstance(resource.get("name", ""), str):
            raise refusal(f"resource {uri!r}: name", shown(resource["name"]), "be a string")
        if uri in seen:
            raise refusal("resources", f"{uri!r} twice", "have each uri once")
        seen.add(uri)
    if len(resources) > SPACEFIX_MAX_RESOURCES:
        raise refusal("resources", str(len(resources)), f"be at most {SPACEFIX_MAX_RESOURCES}")


def _check_tool(tool: Any, limits: PlanLimits) -> None:
    name = tool.get("name") if isinstance(tool, Mapping) else None
    name = check_name(name, "a tool's name")
    if "inputSchema" in tool:
        schema = tool["inputSchema"]
        size = json_bytes(schema)
        if size > limits.max_schema_bytes:
            raise refusal(f"tool {name!r}: schema", f"{size} bytes", f"have at most {limits.max_schema_bytes}")
        SchemaChecker(schema, label=f"tool {name!r}")
        _check_references(schema, name)
    _check_annotations(tool.get("annotations"), name)


def _check_annotations(annotations: Any, name: str) -> None:
    if annotations is None:
        return
    where = f"tool {name!r}: annotations"
    if not isinstance(annotations, Mapping):
        raise refusal(where, json_type(annotations), "be an object")
    title = annotations.get("title", "")
    if not isinstance(title, str) or characters(title) > SPACEFIX_MAX_TITLE_CHARS:
        got = json_type(title) if not isinstance(title, str) else f"{characters(title)} characters"
        raise refusal(f"{where}.title", got, f"be a string of at most {SPACEFIX_MAX_TITLE_CHARS} characters")
    for hint in _HINTS:
        if not isinstance(annotations.get(hint, False), bool):
            raise refusal(f"{where}.{hint}", shown(annotations[hint]), "be true or false")


def _check_references(schema: Mapping[str, Any], name: str) -> None:
    """Refuse references that lead nowhere or out of the schema: no compiler of schemas takes them.

    A schema with identifiers of its own is left to the gateway: they decide what its references mean.
    """
    references: list[str] = []
    has_ids = _collect(schema, references)
    for reference in references:
        leads_out = not reference.startswith("#") and "json-schema.org/" not in reference
        if not has_ids and (leads_out or not _resolves(schema, reference)):
            raise MantyxConfigError(
                f"tool {name!r}: the schema is not valid: the reference {shown(reference)} leads nowhere within it"
            )


def _collect(schema: Any, references: list[str]) -> bool:
    has_ids = False
    pending: list[Any] = [schema]
    while pending:
        part = pending.pop()
        if isinstance(part, list):
            pending.extend(part)
        elif isinstance(part, Mapping):
            pending.extend(value for key, value in part.items() if key not in ("const", "enum", "default", "examples"))
            has_ids = has_ids or any(isinstance(part.get(key), str) for key in ("$id", "id", "$anchor"))
            if isinstance(part.get("$ref"), str):
                references.append(part["$ref"])
    return has_ids


def _resolves(schema: Any, reference: str) -> bool:
    if not reference.startswith("#"):
        return True
    part = schema
    for token in reference[1:].split("/")[1:]:
        key = token.replace("~1", "/").replace("~0", "~")
        if isinstance(part, list) and key.isdigit() and int(key) < len(part):
            part = part[int(key)]
        elif isinstance(part, Mapping) and key in part:
            part = part[key]
        else:
            return "%" in token  # an escaped key is left to the gateway
    return True


def _largest(body: Mapping[str, Any]) -> str:
    """Name the tool that takes most of a registration that is too large."""
    found = body.get("tools")
    tools = [tool for tool in found if isinstance(tool, Mapping)] if isinstance(found, list) else []
    if not tools:
        return ""
    largest = max(tools, key=json_bytes)
    return f"; the largest tool is {shown(largest.get('name'))} with {json_bytes(largest)} bytes"


def _of_kind(item: Any, kind: type, where: str, how: str) -> Any:
    if not isinstance(item, kind):
        raise refusal(where, shown(item), f"hold {kind.__name__} objects, which {how} makes of a function")
    return item


def _by_name(word: str, items: list[Any]) -> tuple[Any, ...]:
    kept: dict[str, Any] = {}
    for item in items:
        if item.name in kept:
            log.warning("two %ss are named %r; the later one replaces the earlier", word, item.name)
            del kept[item.name]
        kept[item.name] = item
    return tuple(kept.values())
