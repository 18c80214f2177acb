"""Arguments of a tool that travel as headers too (`x-mcp-header`), and how text becomes a header. Does no I/O.

Proxies route by these headers, so a server refuses a call without them. They are sent over HTTP in the stateless era;
elsewhere the annotation means nothing.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from typing import Any, Iterator, Mapping, Tuple

from ..headers import HEADER_NAME

__all__ = ["BadHeaderParam", "HeaderParam", "header_params", "header_text", "param_headers"]

ANNOTATION = "x-mcp-header"

_PLAIN = re.compile(r"[\x20-\x7e]*")
_TYPES = ("string", "integer", "boolean")
_MAX_DEPTH = 64

# Keywords that hold a schema, a list of schemas, or schemas by name. `properties` is the only way to a header.
_SCHEMA = (
    "additionalItems",
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
)
_SCHEMAS = ("allOf", "anyOf", "items", "oneOf", "prefixItems")
_NAMED = ("$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties")


class BadHeaderParam(ValueError):
    """A schema breaks the rules for `x-mcp-header`; the text says how. Its tool cannot be called rightly."""


@dataclass(frozen=True)
class HeaderParam:
    """An argument that goes into the header `Mcp-Param-<header>`; `path` leads to it through nested objects."""

    header: str
    path: Tuple[str, ...]


def header_params(schema: Mapping[str, Any]) -> tuple[HeaderParam, ...]:
    """Return the arguments that a tool's input schema wants in headers.

    Raises:
        BadHeaderParam: The schema breaks the rules for them.
    """
    found: dict[str, HeaderParam] = {}
    for path, node in _annotated(schema):
        shown = ".".join(path or ())[:80] or "the root"
        header = node[ANNOTATION]
        if not path:
            raise BadHeaderParam(f"{ANNOTATION} is used outside of properties")
        if not isinstance(header, str) or not HEADER_NAME.fullmatch(header):
            raise BadHeaderParam(f"{ANNOTATION} of {shown!r} is not the name of a header")
        if node.get("type") not in _TYPES:
            raise BadHeaderParam(f"{ANNOTATION} of {shown!r}: its type must be string, integer or boolean")
        if header.lower() in found:
            raise BadHeaderParam(f"{ANNOTATION} {header[:80]!r} is used twice")
        found[header.lower()] = HeaderParam(header, path)
    return tuple(found.values())


def _annotated(schema: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...] | None, Mapping[str, Any]]]:
    """Yield each schema with the annotation, and the properties that lead to it; `None` if anything else does too."""
    left: list[tuple[Any, tuple[str, ...] | None, int]] = [(schema, (), 0)]
    while left:
        node, path, depth = left.pop()
        if not isinstance(node, Mapping):
            continue
        if depth > _MAX_DEPTH:
            raise BadHeaderParam("the schema is nested too deep")
        if ANNOTATION in node:
            yield path, node
        properties = node.get("properties")
        if isinstance(properties, Mapping):
            inside = [
                (sub, None if path is None else (*path, str(name)), depth + 1) for name, sub in properties.items()
            ]
            left.extend(reversed(inside))
        left.extend((sub, None, depth + 1) for sub in _other_schemas(node))


def _other_schemas(node: Mapping[str, Any]) -> Iterator[Any]:
    for keyword in _SCHEMA:
        yield node.get(keyword)
    for keyword in _SCHEMAS:
        subs = node.get(keyword)
        if isinstance(subs, list):
            yield from subs
    for keyword in _NAMED:
        subs = node.get(keyword)
        if isinstance(subs, Mapping):
            yield from subs.values()


def param_headers(params: Tuple[HeaderParam, ...], arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers for a call. An argument that is absent or null, or no scalar, has none."""
    headers: dict[str, str] = {}
    for param in params:
        value: Any = arguments
        for name in param.path:
            value = value.get(name) if isinstance(value, Mapping) else None
        text = _scalar_text(value)
        if text is not None:
            headers[f"Mcp-Param-{param.header}"] = header_text(text)
    return headers


def _scalar_text(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # JSON's integers may be written `3.0`
    if isinstance(value, int):
        return str(value) if abs(value) < 10**300 else None
    return value if isinstance(value, str) else None


def header_text(text: str) -> str:
    """Return text as a header's value: as it is if a header can carry it, else in base64 with its marks."""
    looks_encoded = text.startswith("=?base64?") and text.endswith("?=")
    if _PLAIN.fullmatch(text) and text == text.strip(" ") and not looks_encoded:
        return text
    encoded = base64.b64encode(text.encode("utf-8", "replace")).decode("ascii")
    return f"=?base64?{encoded}?="
