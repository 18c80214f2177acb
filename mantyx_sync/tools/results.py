"""What a tool returns: text for the model, and files.

A handler may return what it has at hand. It becomes text like this:

- `str` is sent as it is (lone surrogates become U+FFFD: they have no UTF-8 form). `None` becomes `null`.
- Everything else becomes JSON: dataclasses, named tuples, database rows, pydantic and attrs objects and other
  mappings become objects; tuples, sets, ranges, deques become arrays (sets sorted where they can be); Enum
  members their value; dates and times ISO 8601; UUID, Path, Decimal their text, bytes base64 text; numpy
  scalars and arrays and pandas tables what they hold.
- NaN and the infinities become `null`: JSON has no word for them.
- Keys that are no strings become text: `1`, `true`, `null`, a date or an id as above, a tuple as a JSON array.

Anything else, a generator or an open file say, is refused with a `ToolError` that names the tool and the type.
"""

from __future__ import annotations

import base64
import collections
import collections.abc
import dataclasses
import ipaddress
import json
import math
import mimetypes
import os
import pathlib
import uuid
from dataclasses import field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Any, Callable, Dict, List, Optional, Sequence, Union

from mantyx_sync import limits
from mantyx_sync.errors import ToolError
from mantyx_sync.formats import format_duration
from mantyx_sync.reprs import dataclass
from mantyx_sync.wire import sound_text

__all__ = ["ToolResult", "ToolResultFile", "json_value", "result_text", "tool_result"]


@dataclass(frozen=True)
class ToolResultFile:
    """A file that goes to the model beside a tool's text (wire §5).

    Args:
        filename: The name the model sees.
        mime_type: One of the platform's attachment types, such as `image/png` or any `text/*`.
        data: The bytes in base64, without a `data:` prefix.
    """

    filename: str
    mime_type: str
    data: str = field(repr=False)

    @classmethod
    def from_bytes(cls, content: bytes, filename: str, mime_type: Optional[str] = None) -> ToolResultFile:
        """Make a file of bytes. The type follows from the name unless it is given.

        Raises:
            ToolError: The type is not given and cannot be told from the name.
        """
        if mime_type is None:
            mime_type = mimetypes.guess_type(filename)[0]
            if mime_type is None:
                raise ToolError(f"the type of file '{filename}' cannot be told from its name; give mime_type")
        return cls(filename, mime_type, base64.b64encode(content).decode("ascii"))

    @classmethod
    def from_path(
        cls, path: Union[str, os.PathLike[str]], filename: Optional[str] = None, mime_type: Optional[str] = None
    ) -> ToolResultFile:
        """Read a file from disk. Blocks while it is read.

        Raises:
            OSError: The file cannot be read.
            ToolError: The type is not given and cannot be told from the name.
        """
        path = pathlib.Path(path)
        return cls.from_bytes(path.read_bytes(), filename or path.name, mime_type)

    @property
    def size_bytes(self) -> int:
        """How many bytes `data` stands for."""
        return len(self.data) // 4 * 3 - self.data[-2:].count("=")

    def to_wire(self) -> Dict[str, str]:
        """Return the entry of the tool-result request."""
        return {"filename": self.filename, "mimeType": self.mime_type, "data": self.data}


@dataclass(frozen=True)
class ToolResult:
    """A tool's answer with files. Return it from a handler; plain values do where there are no files.

    Args:
        result: Text, or anything that has a JSON form. Empty if the files are the whole answer.
        files: Files for the model, at most 20 and 5 MB together.
    """

    result: Any = ""
    files: Optional[Sequence[ToolResultFile]] = None

    def to_wire(self) -> Dict[str, Any]:
        """Return `result` and `files` of the tool-result request (wire §5)."""
        wire: Dict[str, Any] = {"result": self.result}
        if self.files:
            wire["files"] = [item.to_wire() for item in self.files]
        return wire


def tool_result(value: object, tool_name: str) -> ToolResult:
    """Turn what a handler returned into text and checked files.

    Raises:
        ToolError: It has no JSON form, is larger than the platform takes, or a file is not acceptable.
    """
    if type(value) is str:
        return ToolResult(_checked_text(value, tool_name))
    if isinstance(value, ToolResultFile):
        value = ToolResult(files=[value])
    if isinstance(value, ToolResult):
        text = result_text(value.result, tool_name)
        return ToolResult(text, _checked_files(value.files, tool_name))
    return ToolResult(result_text(value, tool_name))


def result_text(value: object, tool_name: str = "") -> str:
    """Return the text that stands for a value.

    Args:
        value: What the handler returned.
        tool_name: Whose result it is, for the message.

    Raises:
        ToolError: The value has no JSON form, or is too large.
    """
    if isinstance(value, str) and not isinstance(value, Enum):
        return _checked_text(str(value), tool_name)
    plain = json_value(value, tool_name)
    try:
        text = json.dumps(plain, ensure_ascii=False, allow_nan=False)
    except RecursionError:
        raise _too_deep(tool_name) from None
    except ValueError as exc:
        # Such as an integer with more digits than Python turns into text.
        raise ToolError(f"{_label(tool_name)} returned a value that cannot be written as JSON: {exc}") from None
    return _checked_text(text, tool_name)


def json_value(value: object, tool_name: str = "") -> Any:
    """Return a value made of JSON's types alone, of whatever size.

    Args:
        value: What the handler returned.
        tool_name: Whose result it is, for the message.

    Raises:
        ToolError: The value has no JSON form.
    """
    try:
        return _plain(value)
    except _NoJson as exc:
        _close(value)
        raise ToolError(f"{_label(tool_name)} returned {exc}") from None
    except RecursionError:
        raise _too_deep(tool_name) from None
    except (TypeError, ValueError, OverflowError) as exc:
        raise ToolError(f"{_label(tool_name)} returned a value that cannot be written as JSON: {exc}") from None


def _too_deep(tool_name: str) -> ToolError:
    return ToolError(f"{_label(tool_name)} returned a value that is nested too deeply or contains itself")


class _NoJson(Exception):
    """A value without a JSON form; the text says which."""


_Convert = Callable[[Any], Any]


def _plain(value: Any) -> Any:
    """Return a value made of JSON's types alone."""
    convert = _BY_TYPE.get(type(value))
    if convert is not None:
        return convert(value)
    if value is None or value is True or value is False:
        return value
    for kind, convert in _BY_CLASS:
        if isinstance(value, kind):
            return convert(value)
    return _described(value)


def _described(value: Any) -> Any:
    """Convert an object that says by its shape what it is; nothing has to be imported to recognise it."""
    cls = type(value)
    package = (cls.__module__ or "").split(".")[0]
    if isinstance(value, type):
        raise _NoJson(f"the class {value.__qualname__}, which has no JSON form")
    if dataclasses.is_dataclass(value):
        return {item.name: _plain(getattr(value, item.name)) for item in dataclasses.fields(value)}
    if callable(getattr(cls, "model_dump", None)):  # pydantic 2
        return _plain(value.model_dump())
    if hasattr(cls, "__fields__") and callable(getattr(cls, "dict", None)):  # pydantic 1
        return _plain(value.dict())
    if hasattr(cls, "__attrs_attrs__"):
        return {item.name: _plain(getattr(value, item.name)) for item in cls.__attrs_attrs__}
    if package == "numpy" and hasattr(value, "tolist"):
        return _plain(value.tolist())
    if package in ("pandas", "polars"):
        return _plain(_table(value))
    if callable(getattr(value, "_asdict", None)):  # rows of SQLAlchemy
        return _plain(value._asdict())
    if callable(getattr(value, "keys", None)) and hasattr(value, "__getitem__"):  # rows of sqlite3, psycopg, …
        return _mapping({key: value[key] for key in value.keys()})  # noqa: SIM118 - a row iterates over its values
    if cls.__module__ == "django.utils.functional" and cls.__name__ == "__proxy__":  # a lazy translation
        return str(value)
    advice = "; return a list, or join its parts" if hasattr(cls, "__next__") else ""
    raise _NoJson(f"a value of type {cls.__qualname__}, which has no JSON form{advice}")


def _table(value: Any) -> Any:
    for name, options in (("to_dicts", {}), ("to_dict", {"orient": "records"}), ("to_dict", {}), ("to_list", {})):
        method = getattr(value, name, None)
        if callable(method):
            try:
                return method(**options)
            except TypeError:  # a column takes other options than a table
                continue
    if hasattr(value, "isoformat"):
        return value.isoformat()
    raise _NoJson(f"a value of type {type(value).__qualname__}, which has no JSON form")


def _mapping(value: Any) -> Dict[str, Any]:
    result: Dict[str, Any] = {}
    for key, item in value.items():
        text = key if type(key) is str else _key(key)
        if text in result:
            raise _NoJson(f"an object in which two keys become the same text, one of type {type(key).__qualname__}")
        result[text] = _plain(item)
    return result


def _key(key: Any) -> str:
    plain = _plain(key)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def _list(value: Any) -> List[Any]:
    return [_plain(item) for item in value]


def _named(value: Any) -> Any:
    """Convert a tuple; one with names becomes an object."""
    names = getattr(value, "_fields", None)
    if names is not None:
        return {name: _plain(item) for name, item in zip(names, value)}
    return [_plain(item) for item in value]


def _set(value: Any) -> List[Any]:
    items = _list(value)
    try:
        return sorted(items)  # the same set gives the same text
    except TypeError:
        return items


def _float(value: float) -> Optional[float]:
    return float(value) if math.isfinite(value) else None


def _same(value: Any) -> Any:
    return value


def _base64(value: Any) -> str:
    return base64.b64encode(value).decode("ascii")


def _decimal(value: Decimal) -> Optional[str]:
    return str(value) if value.is_finite() else None


def _isoformat(value: Any) -> str:
    return str(value.isoformat())


_BY_TYPE: Dict[type, _Convert] = {
    str: _same,
    int: _same,
    float: _float,
    dict: _mapping,
    list: _list,
    tuple: _list,
    datetime: _isoformat,
    Decimal: _decimal,
    uuid.UUID: str,
}
# In this order: a member of a `class Color(str, Enum)` is a str too, a datetime a date, a named tuple a tuple.
_BY_CLASS: List[tuple[Any, _Convert]] = [
    (Enum, lambda member: _plain(member.value)),
    (str, str),
    (int, int),
    (float, _float),
    (Decimal, _decimal),
    ((date, time), _isoformat),
    (timedelta, format_duration),
    ((uuid.UUID, pathlib.PurePath, Fraction), str),
    ((ipaddress.IPv4Address, ipaddress.IPv6Address, ipaddress.IPv4Network, ipaddress.IPv6Network), str),
    ((bytes, bytearray, memoryview), _base64),
    (tuple, _named),
    (collections.abc.Mapping, _mapping),
    ((list, range, collections.deque, collections.abc.KeysView, collections.abc.ValuesView), _list),
    (collections.abc.ItemsView, _list),
    (collections.abc.Set, _set),
]


def _checked_text(text: str, tool_name: str) -> str:
    if text.isascii():
        size = len(text)
    else:
        text = sound_text(text)
        size = len(text.encode("utf-8"))
    if size > limits.MAX_TOOL_RESULT_BYTES:
        limit = limits.MAX_TOOL_RESULT_BYTES
        raise ToolError(
            f"the result of {_label(tool_name)} is too large: {size} bytes, allowed are {limit}. "
            "Ask for less, or for a part at a time."
        )
    return text


def _checked_files(files: Optional[Sequence[ToolResultFile]], tool_name: str) -> Optional[List[ToolResultFile]]:
    if not files:
        return None
    label = _label(tool_name)
    if len(files) > limits.MAX_TOOL_RESULT_FILES:
        raise ToolError(f"{label} returned {len(files)} files, allowed are {limits.MAX_TOOL_RESULT_FILES}")
    total = 0
    for item in files:
        if not isinstance(item, ToolResultFile):
            raise ToolError(f"{label} returned a {type(item).__qualname__} among its files, not a ToolResultFile")
        name = item.filename
        if not isinstance(name, str) or not name or not isinstance(item.mime_type, str):
            raise ToolError(f"{label} returned a file without a name or a type")
        if not limits.is_attachment_type(item.mime_type):
            raise ToolError(f"{label} returned file '{name}' of type '{item.mime_type}', which is not accepted")
        try:
            total += len(base64.b64decode(item.data, validate=True))
        except (TypeError, ValueError):
            reason = "has a data: prefix" if str(item.data).startswith("data:") else "is not base64"
            raise ToolError(f"{label} returned file '{name}' whose data {reason}") from None
    if total > limits.MAX_TOOL_RESULT_FILE_BYTES:
        limit = limits.MAX_TOOL_RESULT_FILE_BYTES
        raise ToolError(f"{label} returned files of {total} bytes in all, allowed are {limit}")
    return list(files)


def _close(value: Any) -> None:
    """Close a coroutine or generator that nobody will run, so that it does not complain later."""
    close = getattr(value, "close", None)
    if callable(close) and (hasattr(value, "cr_frame") or hasattr(value, "gi_frame")):
        close()


def _label(tool_name: str) -> str:
    return f"tool '{tool_name}'" if tool_name else "the tool"
