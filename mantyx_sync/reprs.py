"""Short reprs: one line of bounded length, whatever an object holds. Pure.

`dataclass` is the standard library's, with such a repr; equality, pickling and all else are untouched.
"""

from __future__ import annotations

import reprlib
from dataclasses import dataclass as _dataclass
from dataclasses import fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Callable, Iterable

__all__ = ["MAX_REPR", "bounded", "brief", "dataclass", "short_repr"]

MAX_REPR = 300
"""How many characters a repr has at most."""
_MAX_VALUE = 120
_LEAST_VALUE = 12
_MAX_DEPTH = 6

if TYPE_CHECKING:
    # Type checkers know what this one does to a class.
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, **options):
        """Make a dataclass of a class, as the standard library does, with a short repr unless it has its own."""

        def made(cls):
            if "__repr__" not in cls.__dict__ and options.get("repr", True):
                cls.__repr__ = _fields_repr
            return _dataclass(cls, **{**options, "repr": False})  # it would be made in vain, which takes its time

        return made if cls is None else made(cls)


@reprlib.recursive_repr("…")
def _fields_repr(self: Any) -> str:
    shown = ((field.name, getattr(self, field.name, None)) for field in fields(self) if field.repr)
    return short_repr(type(self).__qualname__, ((name, value) for name, value in shown if value is not None))


def short_repr(name: str, pairs: Iterable[tuple[str, object]]) -> str:
    """Write `Name(field=value, …)` in at most `MAX_REPR` characters: long values are cut, then fields left out."""
    found = list(pairs)
    limit, text = _MAX_VALUE, ""
    while True:
        text = f"{name}({', '.join(f'{key}={brief(value, limit)}' for key, value in found)})"
        if len(text) <= MAX_REPR or limit <= _LEAST_VALUE:
            break
        limit //= 2
    return bounded(text)


def bounded(text: str) -> str:
    """Cut a repr that was put together to `MAX_REPR` characters."""
    return text if len(text) <= MAX_REPR else f"{text[: MAX_REPR - 2]}…{text[-1]}"


def brief(value: object, limit: int = _MAX_VALUE, depth: int = _MAX_DEPTH) -> str:
    """Write a value's repr on one line of about `limit` characters. Never raises.

    What is left out is not looked at: a long text or a large container costs no more than a short one. Containers
    deeper than `depth` are three dots.
    """
    kind = type(value)
    if kind is str:
        return _text(value, limit)  # type: ignore[arg-type]  # it is one
    if kind in (bytes, bytearray):
        size = len(value)  # type: ignore[arg-type]  # as above
        return repr(value) if 4 * size <= limit else f"<{size:,} bytes>"
    maker = _CONTAINERS.get(kind)
    try:
        if maker is not None:
            return maker(value, limit, depth - 1) if depth > 0 else "…"
        text = repr(value)
    except Exception:  # somebody else's __repr__, or a container that another thread changes meanwhile
        return f"<{kind.__name__}>"
    return _one_line(text, max(limit, _LEAST_VALUE))


def _text(value: str, limit: int) -> str:
    text = repr(value) if len(value) <= limit else ""
    if text and len(text) <= limit + 2:
        return text
    text = repr(value[:limit])  # escapes make it longer than what it shows
    while len(text) > limit + 2 and len(value) > 1:
        value = value[: max(1, len(value[:limit]) * limit // len(text))]
        text = repr(value)
    return f"{text[:-1]}…{text[-1]}"


def _one_line(text: str, limit: int) -> str:
    if len(text) > 4 * limit:
        text = text[: 4 * limit] + "…"
    # Quoted text has its line ends escaped already; these are a foreign repr's own.
    if not text.isprintable():
        text = "".join(char if char.isprintable() else "\ufffd" for char in " ".join(text.split()))
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _items(parts: Iterable[Callable[[int], str]], size: int, opening: str, closing: str, limit: int) -> str:
    out: list[str] = []
    room = limit
    for part in parts:
        if room < _LEAST_VALUE and out:
            out.append(f"… {size - len(out):,} more")
            break
        text = part(max(_LEAST_VALUE, room))
        out.append(text)
        room -= len(text) + 2
    return f"{opening}{', '.join(out)}{closing}"


def _mapping(value: Any, limit: int, depth: int) -> str:
    def pair(key: object, item: object) -> Callable[[int], str]:
        def write(room: int) -> str:
            named = brief(key, max(_LEAST_VALUE, room // 3), depth)
            return f"{named}: {brief(item, max(_LEAST_VALUE, room - len(named)), depth)}"

        return write

    return _items((pair(key, item) for key, item in value.items()), len(value), "{", "}", limit)


def _sequence(opening: str, closing: str) -> Callable[[Any, int, int], str]:
    def make(value: Any, limit: int, depth: int) -> str:
        def one(item: object) -> Callable[[int], str]:
            return lambda room: brief(item, room, depth)

        end = "," + closing if opening == "(" and len(value) == 1 else closing
        return _items((one(item) for item in value), len(value), opening, end, limit)

    return make


_CONTAINERS: dict[type, Callable[[Any, int, int], str]] = {
    dict: _mapping,
    MappingProxyType: _mapping,
    list: _sequence("[", "]"),
    tuple: _sequence("(", ")"),
    set: _sequence("set({", "})"),
    frozenset: _sequence("frozenset({", "})"),
}
