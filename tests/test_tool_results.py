"""What a handler returns, as text and files for the model."""

from __future__ import annotations

import base64
import collections
import ipaddress
import json
import os
import sqlite3
import sys
import types
import uuid
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from fractions import Fraction
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import pytest

from mantyx_sync import limits
from mantyx_sync.errors import ToolError
from mantyx_sync.tools.function import tool
from mantyx_sync.tools.results import ToolResult, ToolResultFile, result_text, tool_result

ID = uuid.UUID(int=5)
NAN = float("nan")


class Color(Enum):
    RED = "red"


class Level(IntEnum):
    HIGH = 2


class Word(str, Enum):
    YES = "yes"


class Text(str):
    pass


class Point(NamedTuple):
    x: int
    y: Any


@dataclass
class Row:
    id: uuid.UUID
    when: datetime
    price: Decimal
    color: Color = Color.RED
    tags: frozenset = frozenset({"b", "a"})
    inner: Any = None
    secret: str = field(default="x", repr=False)


class Attrs:
    __attrs_attrs__ = (types.SimpleNamespace(name="a"),)
    a = 1


class Model2:
    def model_dump(self):
        return {"when": date(2024, 5, 1)}


class Model1:
    __fields__ = {}

    def dict(self):
        return {"a": 1}


class SqlRow:
    def _asdict(self):
        return {"a": Decimal("1.50")}


class LazyText:
    def __str__(self):
        return "translated"


LazyText.__module__, LazyText.__name__ = "django.utils.functional", "__proxy__"


class Array:
    def __init__(self, content):
        self.content = content

    def tolist(self):
        return self.content


Array.__module__ = "numpy"


class Frame:
    def to_dict(self, orient="dict"):
        return [{"a": 1, "b": NAN}] if orient == "records" else {"a": {0: 1}}


class Series:
    def to_dict(self):
        return {0: 1}


class Stamp:
    def isoformat(self):
        return "2024-05-01"


for cls in (Frame, Series, Stamp):
    cls.__module__ = "pandas.core"


def database_row():
    connection = sqlite3.connect(":memory:")
    connection.row_factory = sqlite3.Row
    row = connection.execute("select 1 as a, 'x' as b").fetchone()
    connection.close()
    return row


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        ("", ""),
        ("é\u2028\0", "é\u2028\0"),
        ("a\ud800b", "a\ufffdb"),
        (Text("sub"), "sub"),
        (None, "null"),
        (True, "true"),
        (3, "3"),
        (10**400, "1" + "0" * 400),
        (2**63, "9223372036854775808"),
        (1.5, "1.5"),
        (NAN, "null"),
        (float("-inf"), "null"),
        ({"x": NAN, "y": [float("inf")]}, '{"x": null, "y": [null]}'),
        (Decimal("0.10"), '"0.10"'),
        (Decimal("NaN"), "null"),
        (Fraction(1, 3), '"1/3"'),
        (datetime(2024, 5, 1, 12, tzinfo=timezone.utc), '"2024-05-01T12:00:00+00:00"'),
        (date(2024, 5, 1), '"2024-05-01"'),
        (time(10, 30), '"10:30:00"'),
        (timedelta(seconds=90), '"PT1M30S"'),
        (ID, f'"{ID}"'),
        (PurePosixPath("/a/b"), '"/a/b"'),
        (ipaddress.ip_address("127.0.0.1"), '"127.0.0.1"'),
        (Color.RED, '"red"'),
        (Level.HIGH, "2"),
        (Word.YES, '"yes"'),
        (b"hi", '"aGk="'),
        (bytearray(b"hi"), '"aGk="'),
        ({"b", "a"}, '["a", "b"]'),
        ({1}, "[1]"),
        ((1, "é"), '[1, "é"]'),
        (range(3), "[0, 1, 2]"),
        (collections.deque([1]), "[1]"),
        ({"a": 1}.keys(), '["a"]'),
        ({"a": 1}.values(), "[1]"),
        ({"a": 1}.items(), '[["a", 1]]'),
        (Point(1, Point(2, None)), '{"x": 1, "y": {"x": 2, "y": null}}'),
        (types.MappingProxyType({"a": 1}), '{"a": 1}'),
        (collections.OrderedDict(b=1, a=2), '{"b": 1, "a": 2}'),
        ({1: "a", (1, 2): "b", None: "c", False: "d"}, '{"1": "a", "[1, 2]": "b", "null": "c", "false": "d"}'),
        ({Color.RED: 1, ID: 2, date(2024, 5, 1): 3}, f'{{"red": 1, "{ID}": 2, "2024-05-01": 3}}'),
        (database_row(), '{"a": 1, "b": "x"}'),
        ([database_row()], '[{"a": 1, "b": "x"}]'),
        (SqlRow(), '{"a": "1.50"}'),
        (Attrs(), '{"a": 1}'),
        (Model2(), '{"when": "2024-05-01"}'),
        (Model1(), '{"a": 1}'),
        (LazyText(), '"translated"'),
        (Array([1, [NAN]]), "[1, [null]]"),
        (Array(2.5), "2.5"),
        (Frame(), '[{"a": 1, "b": null}]'),
        (Series(), '{"0": 1}'),
        (Stamp(), '"2024-05-01"'),
        (
            Row(ID, datetime(2024, 5, 1), Decimal("1.5"), inner=[Row(ID, datetime(2024, 5, 1), Decimal(2))]),
            f'{{"id": "{ID}", "when": "2024-05-01T00:00:00", "price": "1.5", "color": "red", "tags": ["a", "b"], '
            f'"inner": [{{"id": "{ID}", "when": "2024-05-01T00:00:00", "price": "2", "color": "red", '
            '"tags": ["a", "b"], "inner": null, "secret": "x"}], "secret": "x"}',
        ),
    ],
)
def test_usual_values_have_a_text(value, text):
    assert result_text(value) == text
    assert tool_result(value, "search").result == text


class Unspeakable:
    def __str__(self):
        raise AssertionError("asked for its text")

    __repr__ = __str__


def endless_list():
    value = []
    value.append(value)
    return value


def deep_list():
    value = []
    for _ in range(100_000):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (Unspeakable, "a value of type Unspeakable, which has no JSON form"),
        (lambda: {"a": [object()]}, "a value of type object"),
        (lambda: (number for number in range(3)), "a value of type generator, which has no JSON form; return a list"),
        (lambda: Row, "the class Row"),
        (lambda: 1j, "a value of type complex"),
        (lambda: len, "a value of type builtin_function_or_method"),
        (endless_list, "contains itself"),
        (deep_list, "nested too deeply"),
        (lambda: {1: "a", "1": "b"}, "two keys become the same text"),
        (lambda: {Unspeakable(): 1}, "a value of type Unspeakable"),
    ],
)
def test_other_values_are_an_error_that_names_tool_and_type(make, said):
    with pytest.raises(ToolError) as caught:
        tool_result(make(), "search")
    assert str(caught.value).startswith("tool 'search' returned ")
    assert said in str(caught.value)


@pytest.mark.skipif(not hasattr(sys, "set_int_max_str_digits"), reason="this Python writes integers of any length")
def test_an_integer_too_long_to_be_written_is_an_error():
    with pytest.raises(ToolError, match="tool 'search' returned a value that cannot be written as JSON"):
        tool_result({"a": 10**5000}, "search")


def test_a_result_is_strict_json_whatever_is_in_it():
    def refuse(word):
        raise AssertionError(word)

    text = result_text({"a": [NAN, {"b": float("inf")}], "c": Decimal("Infinity")})
    assert json.loads(text, parse_constant=refuse) == {"a": [None, {"b": None}], "c": None}


def test_pydantic_models_are_results():
    pydantic = pytest.importorskip("pydantic")

    class Order(pydantic.BaseModel):
        number: int
        when: datetime

    assert result_text([Order(number=1, when=datetime(2024, 5, 1))]) == '[{"number": 1, "when": "2024-05-01T00:00:00"}]'


@pytest.mark.parametrize(
    "text", ["x" * (limits.MAX_TOOL_RESULT_BYTES + 1), "é" * (limits.MAX_TOOL_RESULT_BYTES // 2 + 1)]
)
def test_a_result_larger_than_the_platform_takes_is_an_error(text):
    assert tool_result(text[:-1], "search").result == text[:-1]
    for value in (text, [text], ToolResult(text)):
        with pytest.raises(ToolError, match="the result of tool 'search' is too large: "):
            tool_result(value, "search")


# Files


def file(content=b"hi", name="a.txt", mime_type="text/plain"):
    return ToolResultFile.from_bytes(content, name, mime_type)


def test_files_go_beside_the_text():
    result = tool_result(ToolResult({"n": 1}, files=[file()]), "chart")
    assert result.to_wire() == {
        "result": '{"n": 1}',
        "files": [{"filename": "a.txt", "mimeType": "text/plain", "data": "aGk="}],
    }
    assert tool_result(ToolResult("text"), "chart").to_wire() == {"result": "text"}
    assert tool_result(ToolResult(files=(file(),)), "chart").result == ""
    assert tool_result(file(), "chart").files == [file()]


def test_a_file_comes_from_disk_with_its_type(tmp_path):
    path = tmp_path / "chart.png"
    path.write_bytes(b"\x89PNG")
    made = ToolResultFile.from_path(path)
    assert (made.filename, made.mime_type) == ("chart.png", "image/png")
    assert base64.b64decode(made.data) == b"\x89PNG"
    renamed = ToolResultFile.from_path(os.fspath(path), filename="other", mime_type="text/plain")
    assert (renamed.filename, renamed.mime_type) == ("other", "text/plain")
    with pytest.raises(FileNotFoundError):
        ToolResultFile.from_path(Path(tmp_path) / "missing.txt")


def test_a_file_of_unknown_type_needs_one():
    with pytest.raises(ToolError, match="give mime_type"):
        ToolResultFile.from_bytes(b"", "file.unknown-kind")


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ([file()] * 21, "returned 21 files, allowed are 20"),
        ([file(b"x" * (limits.MAX_TOOL_RESULT_FILE_BYTES // 2 + 1))] * 2, "returned files of 5242882 bytes"),
        ([file(mime_type="application/zip")], "of type 'application/zip', which is not accepted"),
        (
            [ToolResultFile("a.txt", "text/plain", "data:text/plain;base64,aGk=")],
            "'a.txt' whose data has a data: prefix",
        ),
        ([ToolResultFile("a.txt", "text/plain", "not base64!")], "'a.txt' whose data is not base64"),
        ([ToolResultFile("a.txt", "text/plain", None)], "is not base64"),
        ([ToolResultFile("", "text/plain", "aGk=")], "without a name"),
        ([ToolResultFile("a.txt", None, "aGk=")], "without a name or a type"),
        (["a.txt"], "a str among its files"),
    ],
)
def test_files_that_the_platform_refuses_are_an_error(files, said):
    with pytest.raises(ToolError) as caught:
        tool_result(ToolResult("text", files), "chart")
    assert str(caught.value).startswith("tool 'chart' returned ")
    assert said in str(caught.value)


def test_files_within_the_limits_are_accepted():
    content = b"x" * (limits.MAX_TOOL_RESULT_FILE_BYTES // 20)
    assert len(tool_result(ToolResult("", [file(content)] * 20), "chart").files) == 20


def test_a_repr_does_not_show_the_bytes():
    assert "aGk=" not in repr(ToolResult("text", [file()]))


def test_a_tool_answers_with_what_its_function_returns():
    @tool
    def chart(title: str) -> ToolResult:
        return ToolResult(title, [file()])

    assert chart.invoke({"title": "t"}) == ToolResult("t", [file()])


@pytest.mark.parametrize("content", [b"", b"a", b"ab", b"abc", b"abcd"])
def test_a_file_knows_its_size(content: bytes) -> None:
    assert ToolResultFile.from_bytes(content, "a.txt").size_bytes == len(content)
