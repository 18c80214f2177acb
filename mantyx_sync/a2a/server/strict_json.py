"""JSON of others that is to be written again: what any reader of ours can read, and no more. Does no I/O."""

from __future__ import annotations

import json
import math
from typing import Any, List, Mapping, NoReturn, Union

__all__ = ["loads", "weight"]

MAX_DEPTH = 100
"""How deeply values may be nested, as in parsers of ProtoJSON. Deeper ones could be read, and then not written."""


def loads(text: Union[str, bytes]) -> Any:
    """Decode JSON; unlike the standard library's reader it takes neither `NaN` nor a number that is infinite.

    Raises:
        ValueError: It is not JSON (bytes: in UTF-8), holds a number beyond what a double can be, or is nested too
            deeply.
    """
    try:
        text = text.decode("utf-8") if isinstance(text, bytes) else text
        value = json.loads(text, parse_constant=_no_constant, parse_float=_finite)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if text.count("[") + text.count("{") > MAX_DEPTH:
        _check_depth(value)
    return value


def weight(value: object) -> int:
    """Tell about how many bytes decoded JSON takes in memory: `[[],[],[]]` is twenty times as large as its text."""
    total, left = 0, [value]
    while left:
        item = left.pop()
        if isinstance(item, str):
            total += 49 + len(item)
        elif isinstance(item, Mapping):
            total += 64 + 100 * len(item)
            left.extend(item.values())
        elif isinstance(item, (list, tuple)):
            total += 56 + 8 * len(item)
            left.extend(item)
        else:
            total += 28
    return total


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError("a number is too large")
    return number


def _check_depth(value: object) -> None:
    level: List[Any] = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [item for item in level if isinstance(item, (dict, list))]
        if not level:
            return
        level = [child for item in level for child in (item.values() if isinstance(item, dict) else item)]
    raise ValueError("nested too deeply")
