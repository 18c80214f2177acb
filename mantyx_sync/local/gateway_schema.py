"""Input schemas as the gateway sees them: compiled when an agent connects, checked before a call is sent.

The wording is that of the gateway's validator, Ajv: `data/id must be string`. Like the gateway, this enforces
neither `pattern` nor `patternProperties` nor `format` (spacefix, "call, read, prompt"). Where a schema closes an
object with `additionalProperties` beside `patternProperties`, that is not enforced either: without the patterns
nobody can say which properties are additional.
"""

from __future__ import annotations

from itertools import islice
from typing import Any, Callable, Iterator, Mapping, NamedTuple, Optional, Sequence, Union

from mantyx_sync.local.gateway_json import js_text, to_json
from mantyx_sync.schema import SchemaChecker

__all__ = ["InputSchema", "SchemaRefused"]

Json = Mapping[str, Any]

_TYPES = ("string", "number", "integer", "boolean", "null", "object", "array")
_NOT_ENFORCED = ("pattern", "patternProperties", "format")
# What `false` as the schema of a property becomes: jsonschema does not tell which property `false` refused.
_NEVER: Json = {"not": {}, "$comment": "boolean schema is false"}
_CLOSERS = ("additionalProperties", "unevaluatedProperties")
_SCHEMA = ("object", "boolean")
# Keyword -> what its value has to be.
_VALUE_KINDS: Mapping[str, Union[str, tuple[str, ...]]] = {
    **dict.fromkeys(("maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum", "multipleOf"), "number"),
    **dict.fromkeys(("maxLength", "minLength", "maxItems", "minItems", "maxProperties", "minProperties"), "number"),
    **dict.fromkeys(("required", "enum", "allOf", "anyOf", "oneOf", "prefixItems"), "array"),
    **dict.fromkeys(("properties", "dependencies", "dependentSchemas", "dependentRequired"), "object"),
    **dict.fromkeys(("not", "if", "then", "else", "contains", "propertyNames"), _SCHEMA),
    **dict.fromkeys(("additionalProperties", "unevaluatedProperties", "unevaluatedItems"), ("boolean", "object")),
    "items": ("object", "array", "boolean"),
    "additionalItems": ("boolean", "object"),
    "uniqueItems": "boolean",
    "nullable": "boolean",
    "$ref": "string",
}
_KINDS = ((str, "string"), (list, "array"), (dict, "object"))
_MAPS_OF_SCHEMAS = ("properties", "dependencies", "dependentSchemas", "definitions", "$defs")
_HOLDERS_OF_SCHEMAS = (
    *("allOf", "anyOf", "oneOf", "prefixItems", "items", "not", "if", "then", "else", "contains", "propertyNames"),
    *("additionalProperties", "unevaluatedProperties", "unevaluatedItems", "additionalItems"),
)
# The order in which Ajv looks at the keywords of a schema; it reports the first that fails. What holds for every
# value comes first, then what holds for numbers, strings, arrays and objects.
_FOR_ALL = ("$ref", "const", "enum", "not", "anyOf", "oneOf", "allOf", "if", "then", "else")
_BY_TYPE = {
    "number": ("maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum", "multipleOf"),
    "string": ("maxLength", "minLength"),
    "array": (
        *("maxItems", "minItems", "uniqueItems", "prefixItems", "additionalItems", "items", "contains"),
        "unevaluatedItems",
    ),
    "object": (
        *("maxProperties", "minProperties", "required", "dependentRequired", "propertyNames"),
        *("additionalProperties", "dependencies", "dependentSchemas", "properties", "unevaluatedProperties"),
    ),
}
_ORDER: dict[str, int] = {}
_TYPE_ORDER: dict[str, int] = {}
for _keyword in _FOR_ALL:
    _ORDER[_keyword] = _ORDER["if"] if _keyword in ("then", "else") else len(_ORDER)
for _type, _keywords in _BY_TYPE.items():
    _TYPE_ORDER[_type] = len(_ORDER)
    for _keyword in _keywords:
        _ORDER[_keyword] = len(_ORDER) + 1
MAX_ERRORS = 200


class SchemaRefused(Exception):
    """A schema does not compile; the message is the detail of the gateway's answer."""


class InputSchema:
    """The compiled input schema of one tool. Raises `SchemaRefused` where the gateway would refuse it."""

    def __init__(self, schema: Any, tool: str) -> None:
        if not isinstance(schema, dict):
            raise SchemaRefused("schema must be object")
        label = f"tool {tool!r}"
        try:
            _check(schema, schema)
            self._checker = SchemaChecker(_relaxed(schema), label=label, words=_words)
        except RecursionError:
            raise SchemaRefused("the schema is nested too deeply") from None
        except ValueError as problem:
            raise SchemaRefused(str(problem).removeprefix(f"{label}: ")) from None

    def complaint(self, arguments: Any) -> Optional[str]:
        """Return what is wrong with the arguments of a call, as Ajv says it, or None if they fit."""
        found = self._checker.problems(arguments)
        return found[0] if found else None


# ------------------------------------------------------------------- compiling


def _check(schema: Any, root: Json) -> None:
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        raise SchemaRefused("schema must be object or boolean")
    if "type" in schema:
        named = schema["type"]
        if any(name not in _TYPES for name in (named if isinstance(named, list) else [named])):
            raise SchemaRefused(f"type must be JSONType or JSONType[]: {js_text(named)}")
    for keyword, value in schema.items():
        kinds = _VALUE_KINDS.get(keyword)
        if kinds is not None and _kind(value) not in ((kinds,) if isinstance(kinds, str) else kinds):
            raise SchemaRefused(f"{keyword} value must be {to_json([kinds] if isinstance(kinds, str) else kinds)}")
        if keyword == "enum" and not value:
            raise SchemaRefused("enum must have non-empty array")
        if keyword == "$ref" and not _resolves(value, root):
            raise SchemaRefused(f"can't resolve reference {value} from id {root.get('$id', '#')}")
    for inner in _inner_schemas(schema):
        _check(inner, root)


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float)):
        return "number"
    return next((name for kind, name in _KINDS if isinstance(value, kind)), "null")


def _inner_schemas(schema: Json) -> Iterator[Any]:
    for keyword, value in schema.items():
        if keyword in _MAPS_OF_SCHEMAS and isinstance(value, dict):
            # `dependencies` may hold lists of property names as well.
            yield from (inner for inner in value.values() if keyword != "dependencies" or not isinstance(inner, list))
        elif keyword in _HOLDERS_OF_SCHEMAS:
            yield from value if isinstance(value, list) else [value]


def _resolves(reference: str, root: Json) -> bool:
    """Tell whether a reference leads somewhere inside the document; nothing else is looked at."""
    base, _, place = reference.partition("#")
    if base and base != root.get("$id"):
        return False
    if place and not place.startswith("/"):  # an anchor
        return any(f'"{name}":{to_json(place)}' in to_json(root) for name in ("$anchor", "$dynamicAnchor"))
    node: Any = root
    for step in place.split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(node, list) and step.isdigit() and int(step) < len(node):
            node = node[int(step)]
        elif isinstance(node, dict) and step in node:
            node = node[step]
        else:
            return False
    return isinstance(node, (dict, bool))


def _relaxed(schema: Any) -> Any:
    """Copy a schema without the keywords that the gateway does not enforce."""
    if isinstance(schema, list):
        return [_relaxed(inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    dropped = (*_NOT_ENFORCED, *_CLOSERS) if "patternProperties" in schema else _NOT_ENFORCED
    copy = {}
    for keyword, value in schema.items():
        if keyword in dropped:
            continue
        if keyword in _MAPS_OF_SCHEMAS and isinstance(value, dict):
            copy[keyword] = {name: _NEVER if inner is False else _relaxed(inner) for name, inner in value.items()}
        else:
            copy[keyword] = _relaxed(value) if keyword in _HOLDERS_OF_SCHEMAS else value
    if isinstance(copy.get("dependencies"), dict):  # newer dialects know only the two keywords it became
        for name, needed in copy["dependencies"].items():
            keyword = "dependentRequired" if isinstance(needed, list) else "dependentSchemas"
            copy[keyword] = {**copy.get(keyword, {}), name: needed}
    return copy


# -------------------------------------------------------------------- checking


def _words(errors: Iterator[Any]) -> list[str]:
    """Say what Ajv says of a value: its first error, with those that led to it."""
    found = list(islice(errors, MAX_ERRORS))
    return [", ".join(_sentences(_first(found)))] if found else []


def _first(errors: Sequence[Any]) -> Any:
    seen: dict[tuple[Any, ...], int] = {}
    return min([(_place(error, seen), place, error) for place, error in enumerate(errors)])[2]


class _Step(NamedTuple):
    """One keyword on the way to the one that failed: what it was applied to, and where that lies in the value."""

    keyword: str
    child: Any
    where: tuple[Any, ...]


def _place(error: Any, seen: dict[tuple[Any, ...], int]) -> tuple[int, ...]:
    """Where in Ajv's order an error comes: by keyword, then by the order in which its children are visited."""
    place: list[int] = []
    prefix: tuple[Any, ...] = ()
    steps = _steps(error)
    for step in steps:
        # jsonschema visits children in the same order as Ajv: what was seen first comes first.
        prefix = (*prefix, step.keyword, step.child)
        rank = _type_order(error.schema) if step is steps[-1] and step.keyword == "type" else None
        place += (_ORDER.get(step.keyword, len(_ORDER)) if rank is None else rank, seen.setdefault(prefix, len(seen)))
    return tuple(place)


def _type_order(schema: Json) -> int:
    """When Ajv looks at `type`: first of all, or with the other keywords for that type if there are any."""
    named = schema["type"]
    if isinstance(named, str) and any(keyword in schema for keyword in _BY_TYPE.get(named, ())):
        return _TYPE_ORDER[named]
    return -1


def _steps(error: Any) -> list[_Step]:
    """Walk from the schema (of a branch: from there) to the keyword that failed."""
    schema_path, data_path = list(error.relative_schema_path), list(error.relative_path)
    where = tuple(error.parent.absolute_path) if error.parent is not None else ()
    steps = []
    while schema_path:
        keyword = schema_path.pop(0)
        child: Any = None
        if schema_path:
            if keyword in ("allOf", "anyOf", "oneOf", "dependencies", "dependentSchemas"):
                child = schema_path.pop(0)
            elif keyword in ("properties", "prefixItems") or (keyword == "items" and isinstance(schema_path[0], int)):
                schema_path.pop(0)
                child = data_path.pop(0)
            elif keyword in ("items", "additionalItems", *_CLOSERS, "unevaluatedItems") and data_path:
                child = data_path.pop(0)
        steps.append(_Step(str(keyword), child, where))
        if keyword in ("properties", "prefixItems", "items", "additionalItems", *_CLOSERS) and child is not None:
            where = (*where, child)
    return steps


def _sentences(error: Any) -> Iterator[str]:
    yield from _causes(error)
    yield f"{_where(error.absolute_path)} {_message(error)}"
    # What these keywords hold fails as part of the value itself. Ajv then names the keyword as well, but outside of
    # branches it stops at the first error.
    for step in reversed(_steps(error)[:-1]):
        if step.keyword in ("then", "else") and error.parent is not None:
            yield f'{_where(step.where)} must match "{step.keyword}" schema'
        elif step.keyword == "propertyNames":
            yield f"{_where(step.where)} property name must be valid"


def _causes(error: Any) -> Iterator[str]:
    """What the branches of `anyOf` and `oneOf` objected to, one error a branch."""
    branches: dict[Any, list[Any]] = {}
    for inner in error.context or ():
        branches.setdefault(inner.schema_path[0], []).append(inner)
    for found in branches.values():
        yield from _sentences(_first(found))


def _where(path: Sequence[Any]) -> str:
    return "data" + "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)


_MESSAGES: Mapping[str, Callable[[Any], str]] = {
    "type": lambda limit: f"must be {js_text(limit)}",
    "maximum": lambda limit: f"must be <= {js_text(limit)}",
    "minimum": lambda limit: f"must be >= {js_text(limit)}",
    "exclusiveMaximum": lambda limit: f"must be < {js_text(limit)}",
    "exclusiveMinimum": lambda limit: f"must be > {js_text(limit)}",
    "multipleOf": lambda limit: f"must be multiple of {js_text(limit)}",
    "maxLength": lambda limit: f"must NOT have more than {js_text(limit)} characters",
    "minLength": lambda limit: f"must NOT have fewer than {js_text(limit)} characters",
    "maxItems": lambda limit: f"must NOT have more than {js_text(limit)} items",
    "minItems": lambda limit: f"must NOT have fewer than {js_text(limit)} items",
    "maxProperties": lambda limit: f"must NOT have more than {js_text(limit)} properties",
    "minProperties": lambda limit: f"must NOT have fewer than {js_text(limit)} properties",
    "const": lambda _: "must be equal to constant",
    "enum": lambda _: "must be equal to one of the allowed values",
    "not": lambda _: "must NOT be valid",
    "anyOf": lambda _: "must match a schema in anyOf",
    "oneOf": lambda _: "must match exactly one schema in oneOf",
    "contains": lambda _: "must contain at least 1 valid item(s)",
    "additionalProperties": lambda _: "must NOT have additional properties",
    "unevaluatedProperties": lambda _: "must NOT have unevaluated properties",
    "unevaluatedItems": lambda _: "must NOT have unevaluated items",
}


def _message(error: Any) -> str:
    keyword, limit, value = error.validator, error.validator_value, error.instance
    if keyword is None or error.schema == _NEVER:
        return "boolean schema is false"
    if keyword == "required":
        missing = next((name for name in limit if name not in value), "")
        return f"must have required property '{missing}'"
    if keyword in ("dependentRequired", "dependencies"):
        return _dependency(limit, value)
    if keyword == "uniqueItems":
        later, earlier = _identical(value)
        return f"must NOT have duplicate items (items ## {earlier} and {later} are identical)"
    if keyword in ("additionalItems", "items") and isinstance(value, list):
        return f"must NOT have more than {len(error.schema.get('prefixItems', error.schema['items']))} items"
    words = _MESSAGES.get(keyword)
    return words(limit) if words else f'must pass "{keyword}" keyword validation'


def _dependency(limit: Json, value: Json) -> str:
    for name, needed in limit.items():
        if name in value and isinstance(needed, list) and any(other not in value for other in needed):
            noun = "property" if len(needed) == 1 else "properties"
            return f"must have {noun} {', '.join(needed)} when property {name} is present"
    return "must be valid"  # pragma: no cover - jsonschema saw a dependency that is not met


def _identical(items: Sequence[Any]) -> tuple[int, int]:
    for later in range(len(items) - 1, 0, -1):
        for earlier in range(later - 1, -1, -1):
            if to_json(items[later]) == to_json(items[earlier]):
                return later, earlier
    return 1, 0
