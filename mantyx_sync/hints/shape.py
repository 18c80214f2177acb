"""A compiled type hint: the JSON Schema it stands for and the function that turns a JSON value into it."""

from __future__ import annotations

from typing import Any, Callable, Dict, List

from mantyx_sync.mismatch import Mismatch, wrong_type

__all__ = ["Convert", "Shape", "any_shape", "json_types", "null_shape", "text_shape"]

Convert = Callable[[Any], Any]


class Shape:
    """What became of a type hint.

    Attributes:
        schema: JSON Schema; it may refer to `#/$defs/...` of the root it will be put under.
        convert: Takes a JSON value, returns the Python value, raises `Mismatch`. It refuses what the schema
            refuses, so that no second check is needed.
        expected: What is expected, in words: "a string".
        allows_null: Whether null is one of the values.
    """

    __slots__ = ("allows_null", "convert", "expected", "schema")

    def __init__(self, schema: Dict[str, Any], convert: Convert, expected: str, *, allows_null: bool = False) -> None:
        self.schema = schema
        self.convert = convert
        self.expected = expected
        self.allows_null = allows_null


def any_shape() -> Shape:
    """Return the shape that takes every JSON value as it is."""
    return Shape({}, lambda value: value, "any value", allows_null=True)


def null_shape() -> Shape:
    """Return the shape of None."""

    def convert(value: Any) -> None:
        if value is not None:
            raise Mismatch(wrong_type("null", value))

    return Shape({"type": "null"}, convert, "null", allows_null=True)


def text_shape(schema: Dict[str, Any], expected: str, parse: Callable[[str], Any]) -> Shape:
    """Return the shape of a type that travels as a string and is read by `parse`."""

    def convert(value: Any) -> Any:
        if not isinstance(value, str):
            raise Mismatch(wrong_type(expected, value))
        try:
            return parse(value)
        except (ValueError, ArithmeticError):
            raise Mismatch(f"must be {expected}") from None

    return Shape({"type": "string", **schema}, convert, expected)


def json_types(schema: Dict[str, Any]) -> List[str]:
    """Return the JSON types a compiled schema allows, as far as it says so."""
    found = schema.get("type", [])
    types = [found] if isinstance(found, str) else list(found)
    for member in schema.get("anyOf", ()):
        types += json_types(member)
    return types
