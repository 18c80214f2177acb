"""Objects with named fields: the parameters of a function, dataclasses, TypedDicts, named tuples.

A field that has a default may be left out. Null counts as left out too, unless the field's own type has None:
models write null for "nothing" whatever the schema says.
"""

from __future__ import annotations

import copy
import difflib
from dataclasses import dataclass
from enum import Enum
from typing import Any, Callable, Dict, List, Mapping, Optional

from mantyx_sync.hints.metadata import NO_DEFAULT, is_json
from mantyx_sync.hints.shape import Shape
from mantyx_sync.mismatch import MAX_PROBLEMS, Mismatch, wrong_type

__all__ = ["Field", "Record", "object_schema", "with_default"]

_MISSING = object()


@dataclass
class Field:
    """One named field.

    `fill` is None where whatever is built fills its own default in; otherwise it makes the value to pass.
    """

    name: str
    shape: Shape
    required: bool
    fill: Optional[Callable[[], Any]] = None

    @property
    def null_is_absent(self) -> bool:
        return not self.required and not self.shape.allows_null


class Record:
    """Named fields and what is built from them.

    Args:
        fields: In the order of the source.
        build: Takes the converted fields as keywords.
        is_open: Whether unknown names are dropped instead of refused.
    """

    def __init__(self, fields: List[Field], build: Callable[..., Any], *, is_open: bool = False) -> None:
        self.fields = fields
        self.is_open = is_open
        self._build = build
        self._names = frozenset(item.name for item in fields)
        self._plan = [(item.name, item.shape.convert, item.required, item.null_is_absent, item.fill) for item in fields]

    def convert(self, value: Any) -> Any:
        """Convert a JSON object and build what it stands for."""
        if not isinstance(value, Mapping):
            raise Mismatch(wrong_type("an object", value))
        values = self.values(value)
        try:
            return self._build(**values)
        except (TypeError, ValueError) as exc:  # the class has rules of its own
            raise Mismatch(f"is not accepted: {exc}") from exc

    def values(self, value: Mapping[str, Any]) -> Dict[str, Any]:
        """Convert the fields of an object.

        Raises:
            Mismatch: For the first thing that is wrong; `problems` finds the others.
        """
        result: Dict[str, Any] = {}
        seen = 0
        for name, convert, required, null_is_absent, fill in self._plan:
            item = value.get(name, _MISSING)
            if item is not _MISSING:
                seen += 1
                if item is not None or not null_is_absent:
                    try:
                        result[name] = convert(item)
                    except Mismatch as exc:
                        raise exc.at(name) from None
                    continue
            elif required:
                raise Mismatch("is a required property").at(name)
            if fill is not None:
                result[name] = fill()
        if seen != len(value) and not self.is_open:
            raise self._unknown(next(name for name in value if name not in self._names))
        return result

    def problems(self, value: Mapping[str, Any]) -> List[str]:
        """Return a sentence for everything that is wrong with the fields of an object, up to a few."""
        found: List[str] = []
        for item in self.fields:
            given = {item.name: value[item.name]} if item.name in value else {}
            try:
                Record([item], dict).values(given)
            except Mismatch as exc:
                found.append(exc.sentence())
        if not self.is_open:
            found += [self._unknown(name).sentence() for name in value if name not in self._names]
        if len(found) > MAX_PROBLEMS:
            return [*found[:MAX_PROBLEMS], f"and {len(found) - MAX_PROBLEMS} more"]
        return found

    def _unknown(self, name: Any) -> Mismatch:
        near = difflib.get_close_matches(str(name)[:100], self._names, n=1)
        advice = f"; did you mean '{near[0]}'?" if near else ""
        return Mismatch(f"is not a known property{advice}").at(str(name))


def object_schema(fields: List[Field], *, is_open: bool = False, description: str = "") -> Dict[str, Any]:
    """Return the JSON Schema of an object with these fields."""
    schema: Dict[str, Any] = {"type": "object"}
    if description:
        schema["description"] = description
    schema["properties"] = {item.name: item.shape.schema for item in fields}
    required = [item.name for item in fields if item.required]
    if required:
        schema["required"] = required
    if not is_open:
        schema["additionalProperties"] = False
    return schema


def with_default(shape: Shape, default: Any) -> Shape:
    """Return the shape with `default` in its schema, if the default is JSON and the shape takes it."""
    value = default.value if isinstance(default, Enum) else default
    if default is NO_DEFAULT or not is_json(value) or (value is None and not shape.allows_null):
        return shape
    try:
        shape.convert(value)
    except (Mismatch, RecursionError):
        return shape
    schema = {**shape.schema, "default": copy.deepcopy(value)}
    return Shape(schema, shape.convert, shape.expected, allows_null=shape.allows_null)
