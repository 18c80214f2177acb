"""JSON as the gateway reads and writes it: what JavaScript makes of a text, and its parser's own error messages.

The gateway answers malformed bodies with the message of its JSON parser (spacefix, "Errors on connect"), which by
its wording is V8's. Numbers are what JavaScript makes of them: `4200.0` is 4200, an integer beyond 2**53 loses its
last digits, and what is too large for a double comes out as null. So an argument arrives at an agent, and a result
at a client, as it would through the real gateway.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any, Optional

__all__ = ["BadJson", "js_length", "js_text", "parse", "to_json"]

_SPACE = re.compile(r"[ \t\n\r]*")
_NUMBER_CHARS = "0123456789"
_ESCAPES = '"\\/bfnrt'
_LITERALS = {"t": "true", "f": "false", "n": "null"}
# How much of the text around an unexpected character is quoted, on either side.
_CONTEXT = 10
_SAFE_DIGITS = 15

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


class BadJson(Exception):
    """A text is not JSON; the message is the one V8 has for it."""


def parse(body: bytes) -> Any:
    """Read a request body. An empty one is an empty object, as for the gateway's body parser. Raises `BadJson`."""
    text = body.decode("utf-8-sig", "replace")
    if not text:
        return {}
    start = _skip(text, 0)
    if text[start : start + 1] not in ("{", "[", ""):  # neither scalars nor literals are bodies
        raise BadJson(_unexpected(text, start))
    try:
        return json.loads(text, parse_float=_number, parse_int=_integer, parse_constant=_no_constant)
    except RecursionError:
        raise BadJson("The body is nested too deeply") from None
    except ValueError:
        raise BadJson(_complaint(text)) from None


def to_json(value: Any) -> str:
    """Write a value as `JSON.stringify` does."""
    text = _encode(value)
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate: only its escape can travel
        return json.dumps(value, separators=(",", ":"))
    return text


def js_length(text: str) -> int:
    """Return the length of a string in UTF-16 units, which is how the gateway counts characters."""
    return len(text) + sum(char > "\uffff" for char in text)


_MISSING = object()


def js_text(value: Any = _MISSING) -> str:
    """Write a value as JavaScript does inside a template string; called without one: `undefined`."""
    if value is _MISSING:
        return "undefined"
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return "[object Object]"
    if isinstance(value, list):
        return ",".join("" if item is None else js_text(item) for item in value)
    return to_json(value)


def _number(text: str) -> Optional[float]:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        return None
    return _integer(text) if value.is_integer() and abs(value) < 1e21 else value


def _integer(text: str) -> Any:
    if len(text) <= _SAFE_DIGITS and text.lstrip("-").isdigit():
        return int(text)
    value = float(text)
    if value in (float("inf"), float("-inf")):
        return None
    # JavaScript writes the shortest digits that tell the double from its neighbours, then zeros.
    return int(Decimal(repr(value))) if abs(value) < 1e21 else value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


# ------------------------------------------------------------------ what V8 says


class _Stop(Exception):
    """Found: the message."""


def _complaint(text: str) -> str:
    """Say what is wrong with a text that is not JSON."""
    try:
        _scan(text)
    except _Stop as stop:
        return str(stop)
    return "Unexpected end of JSON input"  # pragma: no cover - what Python refuses, the scanner refuses


def _at(text: str, position: int, message: str) -> _Stop:
    before = text[:position]
    lines = re.split(r"\r\n|\r|\n", before)
    return _Stop(
        f"{message} JSON at position {js_length(before)} (line {len(lines)} column {js_length(lines[-1]) + 1})"
    )


def _unexpected(text: str, position: int) -> str:
    if position >= len(text):
        return "Unexpected end of JSON input"
    char = text[position]
    if len(text) <= 2 * _CONTEXT:
        return f"Unexpected token '{char}', \"{text}\" is not valid JSON"
    start, end = max(0, position - _CONTEXT), position + _CONTEXT
    before = "..." if position >= _CONTEXT else ""
    after = "..." if position < len(text) - _CONTEXT else ""
    return f"Unexpected token '{char}', {before}\"{text[start:end]}\"{after} is not valid JSON"


def _default(text: str, position: int) -> _Stop:
    char = text[position : position + 1]
    if char == '"':
        return _at(text, position, "Unexpected string in")
    if char and char in _NUMBER_CHARS + "-":
        return _at(text, position, "Unexpected number in")
    return _Stop(_unexpected(text, position))


def _skip(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return position if match is None else match.end()


def _scan(text: str) -> None:
    """Read a text as V8's parser does, to the character it stumbles over. Raises `_Stop`."""
    open_containers: list[str] = []
    position = 0
    while True:
        position = _skip(text, position)
        char = text[position : position + 1]
        if char == "{":
            position = _skip(text, position + 1)
            if text[position : position + 1] != "}":
                position = _scan_key(text, position, is_first=True)
                open_containers.append("{")
                continue
            position += 1
        elif char == "[":
            position = _skip(text, position + 1)
            if text[position : position + 1] != "]":
                open_containers.append("[")
                continue
            position += 1
        else:
            position = _scan_scalar(text, position)
        position = _scan_after_value(text, position, open_containers)
        if not open_containers:
            position = _skip(text, position)
            if position < len(text):
                raise _at(text, position, "Unexpected non-whitespace character after")
            return


def _scan_after_value(text: str, position: int, open_containers: list[str]) -> int:
    """Close what ends after a value; returns where the next value is to begin, or the text to end."""
    while open_containers:
        position = _skip(text, position)
        char = text[position : position + 1]
        if open_containers[-1] == "{":
            if char == ",":
                return _scan_key(text, _skip(text, position + 1), is_first=False)
            if char != "}":
                raise _at(text, position, "Expected ',' or '}' after property value in")
        else:
            if char == ",":
                return position + 1
            if char != "]":
                raise _at(text, position, "Expected ',' or ']' after array element in")
        open_containers.pop()
        position += 1
    return position


def _scan_key(text: str, position: int, *, is_first: bool) -> int:
    if text[position : position + 1] != '"':
        wanted = "property name or '}'" if is_first else "double-quoted property name"
        raise _at(text, position, f"Expected {wanted} in")
    position = _skip(text, _scan_string(text, position))
    if text[position : position + 1] != ":":
        # V8 has words of its own for the first property of an object only.
        raise _at(text, position, "Expected ':' after property name in") if is_first else _default(text, position)
    return position + 1


def _scan_scalar(text: str, position: int) -> int:
    char = text[position : position + 1]
    if char == '"':
        return _scan_string(text, position)
    if char == "-" or (char and char in _NUMBER_CHARS):
        return _scan_number(text, position)
    for wanted in _LITERALS.get(char, ""):
        if text[position : position + 1] != wanted:
            raise _default(text, position)
        position += 1
    if char not in _LITERALS:
        raise _default(text, position)
    return position


def _scan_string(text: str, position: int) -> int:
    position += 1
    while True:
        char = text[position : position + 1]
        if not char:
            raise _at(text, position, "Unterminated string in")
        if char == '"':
            return position + 1
        if char < " ":
            raise _at(text, position, "Bad control character in string literal in")
        position += 1
        if char != "\\":
            continue
        escape = text[position : position + 1]
        if not escape:
            raise _default(text, position)
        if escape == "u":
            for _ in range(4):
                position += 1
                if text[position : position + 1] not in tuple("0123456789abcdefABCDEF"):
                    raise _at(text, position, "Bad Unicode escape in")
        elif escape not in _ESCAPES:
            raise _at(text, position, "Bad escaped character in")
        position += 1


def _scan_number(text: str, position: int) -> int:
    if text[position] == "-":
        position += 1
        if text[position : position + 1] not in tuple(_NUMBER_CHARS):
            raise _at(text, position, "No number after minus sign in")
    if text[position] == "0":
        position += 1
        if text[position : position + 1] in tuple(_NUMBER_CHARS):
            raise _at(text, position, "Unexpected number in")
    else:
        position = _digits(text, position)
    if text[position : position + 1] == ".":
        position = _some_digits(text, position + 1, "Unterminated fractional number")
    if text[position : position + 1] in ("e", "E"):
        position += 1
        if text[position : position + 1] in ("+", "-"):
            position += 1
        position = _some_digits(text, position, "Exponent part is missing a number")
    return position


def _some_digits(text: str, position: int, otherwise: str) -> int:
    end = _digits(text, position)
    if end == position:
        raise _at(text, position, otherwise + " in")
    return end


def _digits(text: str, position: int) -> int:
    while text[position : position + 1] in tuple(_NUMBER_CHARS):
        position += 1
    return position
