"""What stands beside a type: texts and limits in `Annotated`, and Field-like objects in the place of a default.

Objects of pydantic and annotated-types are read by their attributes, so that neither has to be installed. What
has no meaning here is ignored, as `Annotated` asks.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Callable, Dict, Iterable, List, Tuple

from mantyx_sync.errors import MantyxConfigError
from mantyx_sync.hints.shape import Shape, json_types
from mantyx_sync.mismatch import Mismatch, constraint

__all__ = ["NO_DEFAULT", "Facets", "apply_facets", "is_field_info", "is_json", "read_default", "read_facets"]

_NUMBER_LIMITS = {
    "gt": "exclusiveMinimum",
    "ge": "minimum",
    "lt": "exclusiveMaximum",
    "le": "maximum",
    "multiple_of": "multipleOf",
}
_SIZE_LIMITS = {"min_length": "min", "max_length": "max", "min_items": "min", "max_items": "max"}
# JSON type -> the word a size limit has there.
_SIZE_WORDS = {"string": "Length", "array": "Items", "object": "Properties"}


class _NoDefault:
    def __repr__(self) -> str:
        return "<no default>"


NO_DEFAULT = _NoDefault()


@dataclass
class Facets:
    """Texts and limits found beside a type."""

    description: str = ""
    title: str = ""
    examples: List[Any] = field(default_factory=list)
    numbers: Dict[str, Any] = field(default_factory=dict)
    sizes: Dict[str, int] = field(default_factory=dict)
    pattern: str = ""


def is_field_info(value: object) -> bool:
    """Tell whether `value` is what pydantic's `Field(...)` returns (1.x, 2.x, and classes derived from it)."""
    return any(
        cls.__name__ == "FieldInfo" and cls.__module__.split(".")[0] == "pydantic" for cls in type(value).__mro__
    )


def read_default(info: Any) -> Tuple[Any, Callable[[], Any] | None]:
    """Return the default and the default factory of a Field-like object; `NO_DEFAULT` and None if it has none."""
    factory = getattr(info, "default_factory", None)
    if callable(factory):
        return NO_DEFAULT, factory
    default = getattr(info, "default", NO_DEFAULT)
    if default is Ellipsis or "Undefined" in type(default).__name__:
        default = NO_DEFAULT
    return default, None


def read_facets(items: Iterable[Any]) -> Facets:
    """Read the metadata of an `Annotated`, or a Field-like default."""
    facets = Facets()
    for item in items:
        _read_item(item, facets)
    return facets


def _read_item(item: Any, facets: Facets) -> None:
    if isinstance(item, str):
        facets.description = facets.description or item
        return
    if isinstance(item, type):
        return
    for name in ("description", "documentation"):
        text = _attribute(item, name)
        if isinstance(text, str) and text:
            facets.description = facets.description or text
    title = _attribute(item, "title")
    if isinstance(title, str):
        facets.title = facets.title or title
    examples = _attribute(item, "examples")
    if isinstance(examples, list):
        facets.examples = facets.examples or examples
    for name, keyword in _NUMBER_LIMITS.items():
        limit = _attribute(item, name)
        if isinstance(limit, (int, float, Decimal)) and not isinstance(limit, bool) and math.isfinite(limit):
            facets.numbers[keyword] = limit
    for name, end in _SIZE_LIMITS.items():
        size = _attribute(item, name)
        if isinstance(size, int) and not isinstance(size, bool):
            facets.sizes[end] = size
    for name in ("pattern", "regex"):
        pattern = _attribute(item, name)
        pattern = getattr(pattern, "pattern", pattern)  # a compiled one will do
        if isinstance(pattern, str):
            facets.pattern = pattern
    nested = _attribute(item, "metadata")
    if isinstance(nested, (list, tuple)):
        for inner in nested:
            _read_item(inner, facets)


def _attribute(item: Any, name: str) -> Any:
    try:
        return getattr(item, name, None)
    except Exception:  # metadata may be any object, with any property
        return None


def apply_facets(shape: Shape, facets: Facets, label: str) -> Shape:
    """Return the shape with texts and limits added.

    Raises:
        MantyxConfigError: The pattern is not a regular expression.
    """
    schema = dict(shape.schema)
    checks = _number_checks(facets, schema) + _text_checks(facets, schema, label)
    if facets.title:
        schema["title"] = facets.title
    if facets.description:
        schema["description"] = facets.description
    if facets.examples and is_json(facets.examples):
        schema["examples"] = facets.examples
    convert = _checked(shape.convert, checks) if checks else shape.convert
    return Shape(schema, convert, shape.expected, allows_null=shape.allows_null)


_Check = Callable[[Any, Any], bool]


def _checked(convert: Callable[[Any], Any], checks: List[Tuple[_Check, str]]) -> Callable[[Any], Any]:
    def convert_and_check(value: Any) -> Any:
        result = convert(value)
        for passes, problem in checks:
            if not passes(value, result):
                raise Mismatch(problem)
        return result

    return convert_and_check


_COMPARE: Dict[str, Callable[[Any, Any], bool]] = {
    "exclusiveMinimum": lambda value, limit: bool(value > limit),
    "minimum": lambda value, limit: bool(value >= limit),
    "exclusiveMaximum": lambda value, limit: bool(value < limit),
    "maximum": lambda value, limit: bool(value <= limit),
    "multipleOf": lambda value, limit: _is_multiple(value, limit),
}


def _number_checks(facets: Facets, schema: Dict[str, Any]) -> List[Tuple[_Check, str]]:
    checks: List[Tuple[_Check, str]] = []
    for keyword, limit in facets.numbers.items():
        schema[keyword] = _json_number(limit)

        def passes(_value: Any, result: Any, limit: Any = limit, compare: Any = _COMPARE[keyword]) -> bool:
            # The converted value is compared: a Decimal may have travelled as text.
            if isinstance(result, bool) or not isinstance(result, (int, float, Decimal)):
                return True
            return bool(compare(result, limit))

        checks.append((passes, constraint(keyword, schema[keyword])))
    return checks


def _text_checks(facets: Facets, schema: Dict[str, Any], label: str) -> List[Tuple[_Check, str]]:
    checks: List[Tuple[_Check, str]] = []
    types = json_types(schema) or ["object"]
    for end, size in facets.sizes.items():
        word = next((_SIZE_WORDS[name] for name in types if name in _SIZE_WORDS), "Length")
        schema[end + word] = size

        def fits(value: Any, _result: Any, size: int = size, least: bool = end == "min") -> bool:
            if not isinstance(value, (str, list, tuple, dict)):
                return True
            return len(value) >= size if least else len(value) <= size

        checks.append((fits, constraint(end + word, size)))
    if facets.pattern:
        try:
            search = re.compile(facets.pattern).search
        except re.error as exc:
            raise MantyxConfigError(f"{label}: the pattern is not a regular expression: {exc}") from exc
        schema["pattern"] = facets.pattern
        checks.append(
            (
                lambda value, _result: not isinstance(value, str) or search(value) is not None,
                constraint("pattern", facets.pattern),
            )
        )
    return checks


def _is_multiple(value: Any, limit: Any) -> bool:
    if not math.isfinite(value):
        return False
    try:
        if isinstance(value, int) and isinstance(limit, int):
            return value % limit == 0
        # Through the shortest decimal text: 0.3 is a multiple of 0.1 to everybody but the binary point.
        return Decimal(str(value)) % Decimal(str(limit)) == 0
    except (ArithmeticError, ValueError):  # more digits between the two than arithmetic has room for
        return False


def _json_number(limit: Any) -> Any:
    if isinstance(limit, Decimal):
        return int(limit) if limit == limit.to_integral_value() else float(limit)
    return limit


def is_json(value: object) -> bool:
    """Tell whether a value is JSON as it stands."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and is_json(item) for key, item in value.items())
    if isinstance(value, list):
        return all(is_json(item) for item in value)
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or type(value) in (str, int, bool)
