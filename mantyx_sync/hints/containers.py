"""Arrays, maps, tuples and unions of compiled hints."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from mantyx_sync.hints.shape import Shape, json_types
from mantyx_sync.mismatch import Mismatch, wrong_type

__all__ = ["array_shape", "is_key_shape", "map_shape", "tuple_shape", "union_shape"]

_INTEGER_KEY = r"^-?[0-9]{1,4000}$"


def array_shape(item: Shape, build: Optional[Callable[[List[Any]], Any]] = None, *, unique: bool = False) -> Shape:
    """Return the shape of an array.

    Args:
        item: The shape of every item.
        build: Makes the Python value from a list; None where a list is wanted.
        unique: Whether the Python value is a set. Repeated items are then merged, not refused: the schema
            asks for unique ones, and a model that repeats itself does no harm.
    """
    schema: Dict[str, Any] = {"type": "array"}
    if item.schema:
        schema["items"] = item.schema
    if unique:
        schema["uniqueItems"] = True

    def convert(value: Any) -> Any:
        if not isinstance(value, (list, tuple)):
            raise Mismatch(wrong_type("an array", value))
        items = _convert_items(item, value)
        if build is None:
            return items
        try:
            return build(items)
        except TypeError:  # an unhashable item on its way into a set
            raise Mismatch("holds an item that cannot be in a set") from None

    return Shape(schema, convert, "an array")


def tuple_shape(items: Sequence[Shape]) -> Shape:
    """Return the shape of a tuple of fixed length."""
    count = len(items)
    schema: Dict[str, Any] = {"type": "array", "minItems": count, "maxItems": count}
    if items:
        schema["prefixItems"] = [item.schema for item in items]
    expected = f"an array of {count} item{'' if count == 1 else 's'}"

    def convert(value: Any) -> Tuple[Any, ...]:
        if not isinstance(value, (list, tuple)):
            raise Mismatch(wrong_type(expected, value))
        if len(value) != count:
            raise Mismatch(f"must be {expected}, not of {len(value)}")
        result = []
        for index, (item, element) in enumerate(zip(items, value)):
            try:
                result.append(item.convert(element))
            except Mismatch as exc:
                raise exc.at(index) from None
        return tuple(result)

    return Shape(schema, convert, expected)


def is_key_shape(shape: Shape) -> bool:
    """Tell whether a shape can be the key of a map: keys of JSON objects are strings."""
    return set(json_types(shape.schema)) in ({"string"}, {"integer"})


def map_shape(key: Optional[Shape], item: Shape, build: Optional[Callable[[Dict[Any, Any]], Any]] = None) -> Shape:
    """Return the shape of an object with arbitrary keys.

    Args:
        key: The shape of the keys; None where any string will do.
        item: The shape of the values.
        build: Makes the Python value from a dict; None where a dict is wanted.
    """
    schema: Dict[str, Any] = {"type": "object"}
    if item.schema:
        schema["additionalProperties"] = item.schema
    integer_keys = key is not None and "integer" in json_types(key.schema)
    if integer_keys:
        schema["propertyNames"] = {"pattern": _INTEGER_KEY}
    elif key is not None and len(key.schema) > 1:
        schema["propertyNames"] = {name: limit for name, limit in key.schema.items() if name != "type"}

    def convert(value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise Mismatch(wrong_type("an object", value))
        result: Dict[Any, Any] = {}
        for name, element in value.items():
            try:
                python_key = name
                if key is not None:
                    python_key = key.convert(_integer(name) if integer_keys else name)
                result[python_key] = item.convert(element)
            except Mismatch as exc:
                raise exc.at(str(name)) from None
        return result if build is None else build(result)

    return Shape(schema, convert, "an object")


def union_shape(members: Sequence[Shape]) -> Shape:
    """Return the shape that takes what one of its members takes; the first that does, wins.

    Where both an integer and a number are possible, the number itself decides: 1 stays an int, 1.5 and 1.0 stay
    floats.
    """
    nullable = any(member.allows_null for member in members)
    schemas: List[Dict[str, Any]] = []
    for member in members:
        if not member.schema:
            return Shape({}, _first_that_fits(members), "any value", allows_null=True)
        nested = member.schema.get("anyOf") if set(member.schema) == {"anyOf"} else None
        schemas += [schema for schema in nested or [member.schema] if schema not in schemas]
    expected = _either(member.expected for member in members)
    convert = _first_that_fits(members)
    if any(member.schema.get("type") == "integer" for member in members):
        floats = [member for member in members if member.schema.get("type") == "number"]
        if floats:
            convert = _number_first(floats, convert)
    return Shape({"anyOf": schemas}, convert, expected, allows_null=nullable)


def _first_that_fits(members: Sequence[Shape]) -> Callable[[Any], Any]:
    serious = [member for member in members if member.schema != {"type": "null"}]
    expected = _either(member.expected for member in members)
    nullable = any(member.allows_null for member in members)

    def convert(value: Any) -> Any:
        if value is None and nullable:
            return None
        deepest: Optional[Mismatch] = None
        for member in serious:
            try:
                return member.convert(value)
            except Mismatch as exc:
                # The member that got furthest into the value is most likely the one that was meant.
                if deepest is None or len(exc.path) > len(deepest.path):
                    deepest = exc
        if deepest is not None and (len(serious) == 1 or deepest.path):
            raise deepest
        raise Mismatch(wrong_type(expected, value))

    return convert


def _number_first(floats: Sequence[Shape], otherwise: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        if isinstance(value, float):
            for shape in floats:
                try:
                    return shape.convert(value)
                except Mismatch:
                    continue
        elif isinstance(value, int) and not isinstance(value, bool):
            result = otherwise(value)
            # `Union[float, int]`: the float would have taken the integer first.
            return value if isinstance(result, float) else result
        return otherwise(value)

    return convert


def _convert_items(item: Shape, value: Sequence[Any]) -> List[Any]:
    convert = item.convert
    result: List[Any] = []  # its length tells where an item failed
    try:
        for element in value:
            result.append(convert(element))
    except Mismatch as exc:
        raise exc.at(len(result)) from None
    return result


def _integer(name: Any) -> int:
    try:
        return int(name)
    except (TypeError, ValueError):
        raise Mismatch("must have an integer as its name") from None


def _either(words: Iterable[str]) -> str:
    return " or ".join(dict.fromkeys(words))
