"""Checks on what a caller gives: each refuses with one sentence naming the field, the value and the limit.

The sentences read `loop_detection.hard_cutoff_threshold: got 3, must be greater than consecutive_threshold (3)`.
Values are shown only where they are settings; prompts, messages and file contents never are.
"""

from __future__ import annotations

import difflib
import json
import math
import sys
from dataclasses import fields
from typing import Any, Iterable, Mapping, Sequence

from mantyx_sync.errors import MantyxConfigError
from mantyx_sync.wire import wire_name

__all__ = [
    "callbacks",
    "closest",
    "integer",
    "json_bytes",
    "json_copy",
    "kind_of",
    "options",
    "refusal",
    "seconds",
    "sequence",
    "shown",
    "string",
    "text",
    "whole_number",
]

NEAR_MISS = 0.85
"""How much an unknown key has to look like a known one to be taken for a slip of the pen."""


def refusal(where: str, got: str, must: str) -> MantyxConfigError:
    """Return the error for a value that cannot be used."""
    return MantyxConfigError(f"{where}: got {got}, must {must}")


def callbacks(**given: object) -> None:
    """Refuse callbacks that cannot be called, before the run that they are for is created."""
    for name, value in given.items():
        if value is not None and not callable(value):
            raise refusal(name, shown(value), "be a function")


def shown(value: object) -> str:
    """Show a value in an error message: scalars as they are (cut short), anything else by its type."""
    if value is None or isinstance(value, (bool, int, float)):
        found = repr(value) if not isinstance(value, int) or abs(value) < 10**18 else "a huge integer"
    elif isinstance(value, str):
        found = repr(value if len(value) <= 80 else value[:79] + "…")
    else:
        found = type(value).__name__
    return found


def kind_of(value: object) -> str:
    """Show a value as `shown` does, but a string by its type alone: it may be what a user said."""
    return "a string" if isinstance(value, str) else shown(value)


def closest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the known name that `name` looks most like, if any looks like it."""
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=cutoff)
    return found[0] if found else None


def string(value: object, where: str) -> str:
    """Return `value` if it is a string."""
    if not isinstance(value, str):
        raise refusal(where, shown(value), "be a string")
    return value


def text(value: object, where: str) -> str:
    """Return `value` if it is a non-empty string."""
    if not isinstance(value, str) or not value:
        raise refusal(where, shown(value), "be a non-empty string")
    return value


def integer(value: object, where: str, low: int, high: int) -> int:
    """Return `value` if it is an integer from `low` to `high`; a bool is none."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise refusal(where, shown(value), f"be an integer from {low} to {high}")
    return int(value)


def whole_number(value: object, where: str, low: int, high: int | None = None) -> int:
    """Return `value` if it is of type `int` itself, and `low` or above, up to `high` if there is such a limit."""
    if type(value) is not int or value < low or (high is not None and value > high):
        allowed = f", {low} or above" if high is None else f" from {low} to {high}"
        raise refusal(where, shown(value), f"be a whole number{allowed}")
    return value


def seconds(value: object, where: str) -> float:
    """Return `value` if it is a number above 0; one beyond what a float holds is infinite."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise refusal(where, shown(value), "be a number of seconds above 0")
    return value if value <= sys.float_info.max else math.inf


def sequence(value: object, where: str, of: str) -> Sequence[Any]:
    """Return `value` if it is a list-like collection; a string or a mapping is none."""
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise refusal(where, kind_of(value), f"be a list of {of}")
    return tuple(value)


def json_copy(value: object, where: str) -> Any:
    """Return a deep copy of `value` made of plain JSON types alone.

    Tuples become lists, subclasses of `str`, `int`, `dict` and so on their plain values. What the caller does with
    the original afterwards has no effect on the copy.

    Raises:
        MantyxConfigError: A part of it is not JSON; the message names the place (`metadata.when`).
    """
    try:
        return _copy(value, where)
    except RecursionError:
        raise refusal(where, "a value that is nested too deep or contains itself", "be JSON") from None


def _copy(value: object, where: str) -> Any:
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return value if type(value) is str else str.__str__(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise refusal(where, repr(float(value)), "be a finite number")
        return float(value)
    if isinstance(value, Mapping):
        copy = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise refusal(where, f"the key {shown(key)}", "have strings as keys")
            copy[key if type(key) is str else str.__str__(key)] = _copy(item, f"{where}.{key}")
        return copy
    if isinstance(value, (list, tuple)):
        return [_copy(item, f"{where}[{i}]") for i, item in enumerate(value)]
    raise refusal(where, shown(value), "be a JSON value")


def json_bytes(value: object) -> int:
    """Return how many bytes of UTF-8 a plain JSON value takes, written compactly, as requests write it."""
    try:
        return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8"))
    except UnicodeEncodeError:  # half of a surrogate pair, which is sent as an escape, and everything else with it
        return len(json.dumps(value, separators=(",", ":")))


def options(value: object, cls: type, where: str, or_else: str = "") -> dict[str, Any]:
    """Give a dataclass instance or a mapping of options its wire form.

    Values are passed on as they are, for the caller to check; options that are `None` are left out. In a mapping,
    keys may be written as on the wire or as in Python. A key that is not known is passed on (the server may be newer
    than this package) unless it looks like a slip of the pen.

    Args:
        value: What the caller gave.
        cls: The dataclass whose fields are the known options.
        where: The field, for error messages.
        or_else: What else is allowed in this place, for the message: `False or `.
    """
    known = {f.name: wire_name(f.name) for f in fields(cls)}
    if isinstance(value, cls):
        found = {wire: getattr(value, name) for name, wire in known.items()}
        return {key: item for key, item in found.items() if item is not None}
    if not isinstance(value, Mapping):
        raise refusal(where, kind_of(value), f"be {or_else}a {cls.__name__} or a mapping")
    wires = set(known.values())
    result: dict[str, Any] = {}
    for key, item in value.items():
        if not isinstance(key, str):
            raise refusal(where, f"the key {shown(key)}", "have strings as keys")
        wire = known.get(key, key)
        if wire in result:
            raise MantyxConfigError(f"{where}.{key}: given twice, as {key!r} and in its other spelling")
        if wire not in wires:
            near = closest(key, [*known, *wires], NEAR_MISS)
            if near is not None:
                raise MantyxConfigError(f"{where}: unknown key {key!r}; did you mean {near!r}?")
            result[key] = json_copy(item, f"{where}.{key}")
        elif item is not None:
            result[wire] = item
    return result
