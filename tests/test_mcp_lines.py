"""Lines of an MCP server's stdout: which are messages, wherever they are cut and whatever stands around them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mantyx_sync.mcp.lines import LineDecoder, Unreadable

ANSWER = {"jsonrpc": "2.0", "id": 7, "result": {"content": [{"type": "text", "text": "a\u2028b\u0085c é 😀"}]}}
NOTE = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}}
PING = {"jsonrpc": "2.0", "id": "s1", "method": "ping"}


def written(value: object, encoding: str = "utf-8") -> bytes:
    return json.dumps(value, ensure_ascii=False).encode(encoding)


def read(data: bytes, max_line_bytes: int = 10_000) -> list[Any]:
    return LineDecoder(max_line_bytes).feed(data)


STREAM = written(ANSWER) + b"\r\nbanner\n\n" + written(NOTE) + b"\n \t\n" + written([PING, NOTE]) + b"\n"


@pytest.mark.parametrize("at", range(len(STREAM) + 1))
def test_a_stream_cut_anywhere_gives_the_same_messages(at: int) -> None:
    decoder = LineDecoder(10_000)
    found = decoder.feed(STREAM[:at]) + decoder.feed(STREAM[at:])
    assert [line for line in found if isinstance(line, dict)] == [ANSWER, NOTE, PING, NOTE]
    assert [line.size for line in found if isinstance(line, Unreadable)] == [len("banner")]


def test_a_stream_of_single_bytes_gives_the_same_messages() -> None:
    decoder = LineDecoder(10_000)
    found = [line for at in range(len(STREAM)) for line in decoder.feed(STREAM[at : at + 1])]
    assert [line for line in found if isinstance(line, dict)] == [ANSWER, NOTE, PING, NOTE]


@pytest.mark.parametrize(
    "line",
    [
        written(ANSWER),
        written(ANSWER) + b"\r",
        b"\xef\xbb\xbf" + written(ANSWER),
        b"  \t" + written(ANSWER) + b"   ",
        b"[" + written(ANSWER) + b"]",
        b"[null, 1, " + written(ANSWER) + b', "x", {}]',
        b"Loading: 100%" + written(ANSWER),
        b"[INFO] {ready} " + written(ANSWER),
        b'{"level": "info"} is no message' + b"\n" + written(ANSWER),
        written(ANSWER) + b"done",
        json.dumps(ANSWER, indent=None, separators=(" , ", " : ")).encode(),
    ],
)
def test_a_message_is_found_whatever_surrounds_it(line: bytes) -> None:
    assert [found for found in read(line + b"\n") if isinstance(found, dict)] == [ANSWER]


def test_two_messages_without_a_line_end_between_them_are_two() -> None:
    assert read(written(NOTE) + written(ANSWER) + b" " + written(PING) + b"\n") == [NOTE, ANSWER, PING]


@pytest.mark.parametrize("line", [b"", b"\r", b"   ", b"\t", b"\xef\xbb\xbf", b"\xef\xbb\xbf\r"])
def test_blank_lines_are_nothing(line: bytes) -> None:
    assert read(line + b"\n") == []


@pytest.mark.parametrize(
    "line",
    [
        b"Listening on http://127.0.0.1:80/",
        b"\xff\xfe{\x00",
        b"null",
        b"42",
        b'"text"',
        b"[]",
        b"[1, 2]",
        b"{}",
        b'{"level": "info", "id": 7, "msg": "x"}',
        b'{"id": 7, "method": "GET"}',
        b'{"id": 7, "result": 1}',
        b'{"jsonrpc": "1.0", "id": 7, "result": {}}',
        b"{ not json",
        b"received " + written(PING),  # the echo of a request in a log line would otherwise be answered
        b"took " + written(ANSWER) + b" in 3 ms",
        b"{" * 50,
    ],
)
def test_what_is_no_message_is_passed_over_and_answers_nothing(line: bytes) -> None:
    (found,) = read(line + b"\n")
    assert isinstance(found, Unreadable)
    assert (found.is_answer, found.id) == (False, None)
    assert found.size == len(line)


FIRST = b'{"jsonrpc": "2.0", "id": 7, "result": {"text": "'
LAST = b'{"result": {"id": 9, "text": "'
LAST_END = b'"}, "jsonrpc": "2.0", "id": 7}'


@pytest.mark.parametrize(
    ("line", "number"),
    [
        (FIRST + b"x" * 20_000 + b'"}}', 7),
        (LAST + b"x" * 20_000 + LAST_END, 7),
        (LAST + b"x" * 20_000 + b'"}, "id": "7", "jsonrpc": "2.0"}\r', 7),
        (b"\xef\xbb\xbf" + FIRST + b"x" * 20_000 + b'"}}', 7),
        (b'{"id": 7, "jsonrpc": "2.0", "result": "' + b"x" * 20_000 + b'"}', 7),
        (b'{"id": 7, "error": {"code": 1, "message": "' + b"x" * 20_000 + b'"}, "jsonrpc": "2.0"}', 7),
        (FIRST + "é".encode("latin-1") + b'"}}', 7),
        (FIRST, 7),
        (FIRST + b'"' + b"[" * 100_000, 7),
        (b'{"jsonrpc": "2.0", "result": {"id": 7}' + b" " * 20_000 + b"}", None),
    ],
)
def test_an_answer_that_cannot_be_read_still_tells_whose_it_is(line: bytes, number: int | None) -> None:
    (found,) = read(line + b"\n", 200_000 if line.endswith(b"[") else 10_000)
    assert isinstance(found, Unreadable)
    assert (found.is_answer, found.id) == (True, number)


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc": "2.0", "id": 7, "method": "sampling/createMessage", "params": "' + b"x" * 20_000 + b'"}',
        b'{"method": "sampling/createMessage", "params": "' + b"x" * 20_000 + b'", "jsonrpc": "2.0", "id": 7}',
        b'{"jsonrpc": "2.0", "method": "notifications/message", "params": "' + b"x" * 20_000 + b'"}',
        b"x" * 20_000,
        b"\n".join([b"x" * 20_000, b"y" * 20_000]),
    ],
)
def test_what_is_too_long_and_no_answer_concerns_no_call(line: bytes) -> None:
    for found in read(line + b"\n"):
        assert isinstance(found, Unreadable)
        assert (found.is_answer, found.id) == (False, None)


def test_the_line_behind_one_that_is_too_long_is_read() -> None:
    decoder = LineDecoder(2000)
    data = FIRST + b"x" * 5000 + b'"}}\n' + written(NOTE) + b"\n"
    found = [line for at in range(0, len(data), 64) for line in decoder.feed(data[at : at + 64])]
    assert isinstance(found[0], Unreadable)
    assert "longer than 2000 bytes" in found[0].why
    assert found[0].size == len(data.split(b"\n")[0])
    assert found[1:] == [NOTE]


def test_a_line_of_exactly_the_limit_is_read() -> None:
    line = written(ANSWER)
    assert read(line + b"\n", len(line)) == [ANSWER]
    assert isinstance(read(line + b"\n", len(line) - 1)[0], Unreadable)


def test_a_line_that_never_ends_is_not_kept() -> None:
    decoder = LineDecoder(100_000)
    for _ in range(1000):
        assert decoder.feed(b"x" * 10_000) == []
    assert sum(map(len, decoder._parts)) <= 20_000


def test_the_last_line_needs_no_end() -> None:
    decoder = LineDecoder(10_000)
    assert decoder.feed(written(ANSWER)) == []
    assert decoder.eof() == [ANSWER]
    assert decoder.eof() == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("NaN", None),
        ("Infinity", None),
        ('"a\tb"', "a\tb"),
        ('"\\ud800"', "\ud800"),
        ("1e400", float("inf")),
    ],
)
def test_json_that_is_a_little_wrong_is_read(text: str, value: object) -> None:
    (found,) = read(f'{{"jsonrpc": "2.0", "id": 1, "result": {{"x": {text}}}}}\n'.encode())
    assert isinstance(found, dict)
    assert found["result"]["x"] == value


def test_a_number_of_any_length_costs_no_answer() -> None:
    digits = "1" * 5000
    (found,) = read(f'{{"jsonrpc": "2.0", "id": 1, "result": {{"x": {digits}}}}}\n'.encode())
    assert isinstance(found, dict)
    assert found["result"]["x"] == digits
