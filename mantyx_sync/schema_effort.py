"""What checking a value against a schema of another party may cost: no such schema holds a program up.

Both the schema and the value may be made to keep the checker busy for ever: expressions that backtrack (`re` lets no
other thread run meanwhile), references that double at each level, long arrays of unique objects. What would take too
long is not checked, which says nothing against the value: whoever made the schema can check it himself.
"""

from __future__ import annotations

import contextlib
import functools
import time
from contextvars import ContextVar
from typing import Any, Callable, Iterator, Mapping

__all__ = ["MAX_SECONDS", "Exhausted", "limited", "patience"]

MAX_SECONDS = 2.0
"""How long one check may take."""

_MAX_STEPS = 10.0**7
"""About how many steps of the expression engine one search may take: less than a second."""
_MAX_DOUBLINGS = 23
_MAX_DEGREE = 25
_SHORT_ARRAY = 100
_MANY = 10
"""A repetition of more than that is as good as one without end."""

_OF_NAMES = ("patternProperties", "additionalProperties", "unevaluatedProperties")


class Exhausted(Exception):
    """The check has taken too long."""


_until: ContextVar[float] = ContextVar("mantyx_schema_until", default=float("inf"))


@contextlib.contextmanager
def patience() -> Iterator[None]:
    """Give a check on this thread `MAX_SECONDS` from here on."""
    before = _until.set(time.monotonic() + MAX_SECONDS)
    try:
        yield
    finally:
        _until.reset(before)


def limited(keyword: str, check: Callable[..., Any]) -> Callable[..., Iterator[Any]]:
    """Return the check of a keyword, made to give up in time."""

    def within_limits(validator: Any, limit: Any, value: Any, schema: Any) -> Iterator[Any]:
        if time.monotonic() > _until.get():
            raise Exhausted
        if keyword == "pattern" and isinstance(value, str) and not _is_quick(limit, len(value)):
            return
        if keyword in _OF_NAMES and isinstance(value, Mapping) and not _are_quick(schema, value):
            return
        if keyword == "uniqueItems" and isinstance(value, list) and len(value) > _SHORT_ARRAY:
            if len({_hashable(item) for item in value}) == len(value):
                return
            value = [0, 0]  # as wrong, and seen to be at once
        yield from check(validator, limit, value, schema) or ()

    return within_limits


def _are_quick(schema: Any, value: Mapping[str, Any]) -> bool:
    patterns = schema.get("patternProperties") if isinstance(schema, Mapping) else None
    if not isinstance(patterns, Mapping):
        return True
    longest = max(map(len, value), default=0)
    return all(_is_quick(pattern, longest) for pattern in patterns)


def _is_quick(pattern: object, length: int) -> bool:
    degree = _degree(pattern) if isinstance(pattern, str) else 0.0
    if degree == float("inf"):
        return length <= _MAX_DOUBLINGS
    # A search begins anew at each character.
    return degree <= _MAX_DEGREE and float(length) ** (degree + 1) <= _MAX_STEPS


@functools.lru_cache(maxsize=256)
def _degree(pattern: str) -> float:
    """Return which power of a text's length a search takes at most; infinite where each letter may double it."""
    parser = _parser()
    try:
        return _cost(parser.parse(pattern))
    except Exception:  # no expression: the check itself says so
        return 0.0


def _parser() -> Any:
    try:
        from re import _parser as parser  # type: ignore[attr-defined,unused-ignore]
    except ImportError:  # before Python 3.11
        import sre_parse as parser
    return parser


def _cost(items: Any) -> float:
    total = 0.0
    for op, argument in items:
        name = str(op)
        if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            low, high, inner = argument
            if int(high) <= 1:
                total += _cost(inner)
            elif _is_of_one_form(inner):
                total += 1.0 if int(high) - int(low) > _MANY else 0.0
            else:
                return float("inf")
        elif name == "BRANCH":
            total += max((_cost(branch) for branch in argument[1]), default=0.0)
        else:
            total += sum(_cost(inner) for inner in _subpatterns(argument))
    return total


def _is_of_one_form(items: Any) -> bool:
    """Tell whether what is repeated has one length: there is one way then to divide a text into repetitions."""
    low, high = items.getwidth()
    return bool(low == high) and not _has_choice(items)


def _has_choice(items: Any) -> bool:
    return any(str(op) == "BRANCH" or any(map(_has_choice, _subpatterns(argument))) for op, argument in items)


def _subpatterns(argument: Any) -> Iterator[Any]:
    if hasattr(argument, "getwidth"):
        yield argument
    elif isinstance(argument, (tuple, list)):
        for part in argument:
            yield from _subpatterns(part)


def _hashable(value: Any) -> Any:
    """Return what is equal for equal JSON values; `1` and `1.0` are, `1` and `true` are not."""
    if isinstance(value, Mapping):
        return ("{", frozenset((key, _hashable(item)) for key, item in value.items()))
    if isinstance(value, (list, tuple)):
        return ("[", tuple(map(_hashable, value)))
    return (isinstance(value, bool), value)
