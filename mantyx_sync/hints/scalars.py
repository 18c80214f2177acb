"""The types that have no parts: text, numbers, dates, ids, enumerations.

How they travel: dates and times as RFC 3339 text, a duration as ISO 8601 text, bytes as base64, a Decimal as a
number or as the text of one, an Enum as the member's value (or its name where the value is not a JSON scalar).
"""

from __future__ import annotations

import ipaddress
import math
import pathlib
import re
import uuid
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Callable, Dict, List, Optional, Tuple, Type

from mantyx_sync import formats
from mantyx_sync.hints.shape import Shape, text_shape
from mantyx_sync.mismatch import Mismatch, one_of, wrong_type

__all__ = ["choice_shape", "enum_shape", "is_scalar", "scalar_shape"]

_DECIMAL = r"^[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,6})?$"
_DECIMAL_RE = re.compile(_DECIMAL, re.ASCII)


def _to_str(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise Mismatch(wrong_type("a string", value))


def _to_int(value: Any) -> int:
    if type(value) is int:
        return value
    if isinstance(value, float) and value.is_integer():  # JSON knows numbers only: 1.0 is the integer 1
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    raise Mismatch("must be an integer" if isinstance(value, float) else wrong_type("an integer", value))


def _to_float(value: Any) -> float:
    if type(value) is float:
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise Mismatch("is out of range for a number") from None
    raise Mismatch(wrong_type("a number", value))


def _to_bool(value: Any) -> bool:
    if value is True or value is False:
        return bool(value)
    raise Mismatch(wrong_type("a boolean", value))


def _to_decimal(value: Any) -> Decimal:
    if isinstance(value, str):
        # Only finite numbers: Decimal itself would also read "NaN" and "Infinity".
        if _DECIMAL_RE.match(value) is None:
            raise Mismatch("must be a number or the text of one")
        return Decimal(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Mismatch(wrong_type("a number or the text of one", value))
    if isinstance(value, float):
        if not math.isfinite(value):
            raise Mismatch("must be a finite number")
        return Decimal(repr(value))  # the digits that were sent, not their binary neighbour
    return Decimal(value)


def _plain(schema: Dict[str, Any], convert: Callable[[Any], Any], expected: str) -> Callable[[], Shape]:
    return lambda: Shape(dict(schema), convert, expected)


def _text(schema: Dict[str, Any], expected: str, parse: Callable[[str], Any]) -> Callable[[], Shape]:
    return lambda: text_shape(schema, expected, parse)


def _path(cls: Callable[[str], Any]) -> Callable[[], Shape]:
    return _text({"format": "path"}, "a file path", cls)


_SCALARS: Dict[Any, Callable[[], Shape]] = {
    str: _plain({"type": "string"}, _to_str, "a string"),
    int: _plain({"type": "integer"}, _to_int, "an integer"),
    float: _plain({"type": "number"}, _to_float, "a number"),
    bool: _plain({"type": "boolean"}, _to_bool, "a boolean"),
    Decimal: _plain(
        {"anyOf": [{"type": "number"}, {"type": "string", "pattern": _DECIMAL}]},
        _to_decimal,
        "a number or the text of one",
    ),
    bytes: _text({"contentEncoding": "base64"}, "a base64 string", formats.parse_base64),
    bytearray: _text({"contentEncoding": "base64"}, "a base64 string", lambda t: bytearray(formats.parse_base64(t))),
    datetime: _text({"format": "date-time"}, "a date-time such as 2024-05-01T10:30:00Z", formats.parse_datetime),
    date: _text({"format": "date"}, "a date such as 2024-05-01", formats.parse_date),
    time: _text({"format": "time"}, "a time such as 10:30:00", formats.parse_time),
    timedelta: _text({"format": "duration"}, "a duration such as P1DT2H30M", formats.parse_duration),
    uuid.UUID: _text({"format": "uuid"}, "a UUID", uuid.UUID),
    ipaddress.IPv4Address: _text({"format": "ipv4"}, "an IPv4 address", ipaddress.IPv4Address),
    ipaddress.IPv6Address: _text({"format": "ipv6"}, "an IPv6 address", ipaddress.IPv6Address),
    pathlib.Path: _path(pathlib.Path),
    pathlib.PurePath: _path(pathlib.PurePath),
    pathlib.PurePosixPath: _path(pathlib.PurePosixPath),
    pathlib.PureWindowsPath: _path(pathlib.PureWindowsPath),
}


def is_scalar(hint: Any) -> bool:
    """Tell whether `scalar_shape` knows the type."""
    try:
        return hint in _SCALARS
    except TypeError:  # unhashable
        return False


def scalar_shape(hint: Any) -> Shape:
    """Return the shape of a type without parts."""
    return _SCALARS[hint]()


def choice_shape(choices: List[Tuple[Any, Any]]) -> Shape:
    """Return the shape of a fixed list of JSON scalars.

    Args:
        choices: Pairs of a JSON value and the Python value it stands for.
    """
    values = [value for value, _ in choices]
    # True == 1 in Python but not in JSON, while 1.0 == 1 in both.
    table = {(isinstance(value, bool), value): result for value, result in choices}
    problem = one_of(values)

    def convert(value: Any) -> Any:
        try:
            return table[isinstance(value, bool), value]
        except (KeyError, TypeError):  # TypeError: a list or an object came
            raise Mismatch(problem) from None

    schema: Dict[str, Any] = {"enum": values}
    kind = _common_type(values)
    if kind is not None:
        schema = {"type": kind, **schema}
    return Shape(schema, convert, problem[len("must be ") :], allows_null=None in values)


def enum_shape(cls: Type[Enum]) -> Shape:
    """Return the shape of an Enum class: its members' values, or their names if a value is no JSON scalar."""
    members = list(cls)
    by_value = all(_is_json_scalar(member.value) for member in members)
    return choice_shape([(member.value if by_value else member.name, member) for member in members])


def _is_json_scalar(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, (str, int))


def _common_type(values: List[Any]) -> Optional[str]:
    if values and all(isinstance(value, str) for value in values):
        return "string"
    if values and all(isinstance(value, int) and not isinstance(value, bool) for value in values):
        return "integer"
    return None
