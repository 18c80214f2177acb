"""The sentence for a value that does not fit a schema: where it is, and what was expected there.

Type hints and JSON Schemas are checked by different code; a model reads the same words from both. A value is
never quoted, only its place and JSON type, because these sentences are logged.
"""

from __future__ import annotations

import json
from typing import Any, Iterable, List, Union

from mantyx_sync.wire import json_type

__all__ = [
    "MAX_PROBLEMS",
    "TOO_DEEP",
    "Mismatch",
    "PathItem",
    "constraint",
    "cut",
    "join",
    "one_of",
    "path_text",
    "wrong_type",
]

PathItem = Union[str, int]

# More than this many problems teach a model nothing new.
MAX_PROBLEMS = 5
_MAX_CHARS = 300
_MAX_KEY_CHARS = 60

TOO_DEEP = "nested too deeply to be checked"

# Keyword of JSON Schema -> what the value must do. Both checkers read the same table.
_CONSTRAINTS = {
    "minimum": "must be at least {}",
    "maximum": "must be at most {}",
    "exclusiveMinimum": "must be greater than {}",
    "exclusiveMaximum": "must be less than {}",
    "multipleOf": "must be a multiple of {}",
    "minLength": "must have at least {} characters",
    "maxLength": "must have at most {} characters",
    "pattern": "must match the pattern {}",
    "minItems": "must have at least {} items",
    "maxItems": "must have at most {} items",
    "minProperties": "must have at least {} entries",
    "maxProperties": "must have at most {} entries",
    "format": "must be a valid {}",
    "const": "must be {}",
    "uniqueItems": "must not hold the same item twice",
}


class Mismatch(Exception):
    """A value does not fit. `path` is filled from the inside out while the exception travels."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path: List[PathItem] = []

    def at(self, item: PathItem) -> Mismatch:
        """Say that the value sits under `item`, and return self."""
        self.path.append(item)
        return self

    def sentence(self) -> str:
        """Return the place and the problem: `'items[2].price' must be a number, not a string`."""
        place = path_text(reversed(self.path))
        return cut(f"{place} {self.problem}" if place else f"the value {self.problem}")


def path_text(path: Iterable[PathItem]) -> str:
    """Write a path the way a programmer would, quoted; empty for the root."""
    text = ""
    for item in path:
        if isinstance(item, int):
            text += f"[{item}]"
        else:
            key = str(item)
            text += ("." if text else "") + (key if len(key) <= _MAX_KEY_CHARS else key[:_MAX_KEY_CHARS] + "...")
    return f"'{text}'" if text else ""


def wrong_type(expected: str, value: object) -> str:
    """Say which JSON type was expected and which one came."""
    return f"must be {expected}, not {json_type(value)}"


def one_of(values: Iterable[Any]) -> str:
    """Say which values are allowed."""
    return "must be one of " + ", ".join(_json(value) for value in values)


def constraint(keyword: str, limit: Any) -> str:
    """Say what a keyword of JSON Schema asks for."""
    template = _CONSTRAINTS.get(keyword)
    if template is None:
        return f"violates '{keyword}' of the schema"
    return template.format(limit if keyword in ("format", "pattern") else _json(limit))


def join(problems: Iterable[str]) -> str:
    """Join sentences into one."""
    return "; ".join(problems)


def cut(text: str) -> str:
    """Keep a sentence short whatever the names in it are."""
    return text if len(text) <= _MAX_CHARS else text[:_MAX_CHARS] + "..."


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        return type(value).__name__
