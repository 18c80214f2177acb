"""How values read from the wire become typed attributes, and how Python names become wire names.

`Fields` reads one JSON object. A missing optional field is `None`, a field of the wrong type raises
`MantyxProtocolError` naming it; the value itself is never quoted, since it may be a model's words. Keys that
nobody reads are not an error: they stay in the `raw` of whatever is built.
"""

from __future__ import annotations

import math
from typing import Any, Mapping

from mantyx_sync.errors import MantyxProtocolError

__all__ = ["Fields", "json_type", "python_name", "sound_text", "wire_name"]


def wire_name(name: str) -> str:
    """Turn a Python name into its wire name: `max_tool_turns` -> `maxToolTurns`."""
    head, *rest = name.split("_")
    return head + "".join(word[:1].upper() + word[1:] for word in rest)


def python_name(name: str) -> str:
    """Turn a wire name into its Python name: `maxToolTurns` -> `max_tool_turns`."""
    return "".join("_" + char.lower() if char.isupper() else char for char in name)


def sound_text(text: str) -> str:
    """Return text that UTF-8 can carry: half of a surrogate pair, which JSON can spell, becomes U+FFFD."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def json_type(value: object) -> str:
    """Name the type of a value in JSON's words, for error messages."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, (int, float)):
        return "a number"
    if isinstance(value, str):
        return "a string"
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, (list, tuple)):
        return "an array"
    return type(value).__name__


class Fields:
    """Typed access to the fields of one JSON object.

    Args:
        data: The object.
        where: What it is, for error messages, such as `event 'result' (seq 14)`.
    """

    __slots__ = ("data", "where")

    def __init__(self, data: object, where: str) -> None:
        self.where = where
        if not isinstance(data, Mapping):
            raise MantyxProtocolError(f"{where}: got {json_type(data)}, must be an object")
        self.data: Mapping[str, Any] = data

    def wrong(self, key: str, expected: str) -> MantyxProtocolError:
        """Return the error for a field that is missing or of the wrong type."""
        if key not in self.data:
            return MantyxProtocolError(f"{self.where}: field {key!r} is missing, must be {expected}")
        found = json_type(self.data[key])
        return MantyxProtocolError(f"{self.where}: field {key!r} is {found}, must be {expected}")

    def text(self, key: str) -> str:
        """Return a string that must be there."""
        value = self.data.get(key)
        if not isinstance(value, str):
            raise self.wrong(key, "a string")
        return value

    def opt_text(self, key: str) -> str | None:
        """Return a string, or `None` if it is missing or null."""
        value = self.data.get(key)
        if value is not None and not isinstance(value, str):
            raise self.wrong(key, "a string")
        return value

    def opt_int(self, key: str) -> int | None:
        """Return an integer (also one written `3.0`), or `None` if it is missing or null."""
        value = self.data.get(key)
        if value is None or type(value) is int:
            return value
        if isinstance(value, float) and value.is_integer():
            return int(value)
        raise self.wrong(key, "an integer")

    def opt_number(self, key: str) -> float | None:
        """Return a number, or `None` if it is missing or null."""
        value = self.data.get(key)
        if value is None or type(value) in (int, float):
            return value
        raise self.wrong(key, "a number")

    def opt_bool(self, key: str) -> bool | None:
        """Return a boolean, or `None` if it is missing or null."""
        value = self.data.get(key)
        if value is not None and not isinstance(value, bool):
            raise self.wrong(key, "a boolean")
        return value

    def opt_object(self, key: str) -> Mapping[str, Any] | None:
        """Return an object, or `None` if it is missing or null."""
        value = self.data.get(key)
        if value is not None and not isinstance(value, Mapping):
            raise self.wrong(key, "an object")
        return value

    def opt_fields(self, key: str) -> Fields | None:
        """Return the fields of a nested object, or `None` if it is missing or null."""
        value = self.opt_object(key)
        return None if value is None else Fields(value, f"{self.where}: {key}")

    def objects(self, key: str) -> list[Fields]:
        """Return the fields of each object in an array; an empty list if it is missing or null."""
        return [Fields(item, f"{self.where}: {key}[{i}]") for i, item in enumerate(self._array(key))]

    def texts(self, key: str) -> tuple[str, ...]:
        """Return an array of strings; an empty tuple if it is missing or null."""
        values = self._array(key)
        if not all(isinstance(value, str) for value in values):
            raise self.wrong(key, "an array of strings")
        return tuple(values)

    def count(self, key: str) -> int:
        """Return a count, clamped to a whole number >= 0; 0 if it is missing or null (wire §4.8.1)."""
        value = self.data.get(key)
        if value is None:
            return 0
        if type(value) is int:
            return max(value, 0)
        if not isinstance(value, float):
            raise self.wrong(key, "a number")
        return int(value) if math.isfinite(value) and value > 0 else 0

    def _array(self, key: str) -> list[Any]:
        value = self.data.get(key)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self.wrong(key, "an array")
        return value
