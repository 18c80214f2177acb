"""SSE frames: cut right wherever reads end, whatever the line ends, and read as sseclient-py reads them."""

from __future__ import annotations

import random
import time
from typing import Iterable, Iterator

import pytest
from sseclient import SSEClient

from mantyx_sync.envelopes import EnvelopeReader
from mantyx_sync.transport.sse import Frame, FrameDecoder, FrameTooLarge, parse_frame

BOM = b"\xef\xbb\xbf"


def decode(body: bytes, size: int | None = None, cuts: Iterable[int] = ()) -> list[str]:
    """Feed `body` in pieces of `size` bytes, or cut at the places in `cuts`."""
    decoder = FrameDecoder()
    places = list(range(size, len(body), size)) if size else sorted(cuts)
    frames = []
    for start, end in zip([0, *places], [*places, len(body)]):
        frames += decoder.feed(body[start:end])
    return frames


def pairs(length: int) -> Iterator[tuple[int, int]]:
    for first in range(length + 1):
        for second in range(first, length + 1):
            yield first, second


BODIES = {
    "accents and emoji": ('id: 1\ndata: {"t":"café 😀"}\n\n', ['id: 1\ndata: {"t":"café 😀"}']),
    "CRLF": ("data: é\r\n\r\ndata: b\r\n\r\n", ["data: é", "data: b"]),
    "CR": ("data: é\r\rdata: b\r\r", ["data: é", "data: b"]),
    "LF then CRLF": ("data: 1\n\r\ndata: 2\n\r\n", ["data: 1", "data: 2"]),
    "CRLF then LF": ("data: 1\r\n\ndata: 2\r\n\n", ["data: 1", "data: 2"]),
    "CRLF then CR": ("data: 1\r\n\rdata: 2\r\n\r", ["data: 1", "data: 2"]),
    "CR then CRLF": ("data: 1\r\r\ndata: 2\r\r\n", ["data: 1", "data: 2"]),
    "two lines of data": ("data: a\r\ndata: b\r\n\r\n", ["data: a\ndata: b"]),
    "comment between": (": hb\r\n\r\ndata: 1\n\n: hb\n\ndata: 2\n\n", [": hb", "data: 1", ": hb", "data: 2"]),
    "many empty lines": (
        "\n\n\ndata: 1\n\n\ndata: 2\n\n\n\n\r\n\r\r\ndata: 3\n\n\n",
        ["data: 1", "data: 2", "data: 3"],
    ),
    "byte order mark": ("\ufeffdata: 1\n\ndata: \ufeff2\n\n", ["data: 1", "data: \ufeff2"]),
    "byte order mark before an empty line": ("\ufeff\n\ndata: 1\n\n", ["data: 1"]),
    "two byte order marks": ("\ufeff\ufeffdata: 1\n\n", ["\ufeffdata: 1"]),
    "line ends of Unicode alone": ("data: a\u2028b\u2029c\x85d\x0b\x0c\n\n", ["data: a\u2028b\u2029c\x85d\x0b\x0c"]),
    "id without data": ("id: 5\n\nid\n\n", ["id: 5", "id"]),
    "unfinished frame": ("data: 1\n\ndata: 2\n", ["data: 1"]),
}


@pytest.mark.parametrize("name", BODIES)
def test_frames_are_the_same_wherever_two_reads_end(name: str) -> None:
    text, expected = BODIES[name]
    body = text.encode("utf-8")
    assert decode(body) == expected
    assert decode(body, size=1) == expected
    for cuts in pairs(len(body)):
        assert decode(body, cuts=cuts) == expected, cuts


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"data: a\xffb", "data: a\ufffdb"),
        (b"data: \xe2\x82", "data: \ufffd"),
        (b"data: \xf0\x9f\x98", "data: \ufffd"),
        (b"data: \xed\xa0\xbd", "data: \ufffd\ufffd\ufffd"),
    ],
)
def test_bytes_that_are_not_utf8_are_replaced_and_the_stream_goes_on(data: bytes, text: str) -> None:
    body = data + b"\n\ndata: next\n\n"
    assert decode(body) == decode(body, size=1) == [text, "data: next"]


def test_a_frame_ends_with_a_bare_cr_at_once() -> None:
    decoder = FrameDecoder()
    assert decoder.feed(b"data: 1\r\n\r") == ["data: 1"]
    assert decoder.feed(b"\ndata: 2\r") == []
    assert decoder.feed(b"\r") == ["data: 2"]


@pytest.mark.parametrize(
    ("body", "broke_off"),
    [
        (b"", False),
        (b"data: 1\n\n", False),
        (b"data: 1\r\n\r\n", False),
        (b"data: 1\n\n\n", False),
        (b"\n", False),
        (b"data: 1\n", True),
        (b"data: 1\n\nid", True),
        (b"data: 1\n\ndata: 2\r\n", True),
        (b"\xef\xbb", True),
        (BOM, False),
    ],
)
@pytest.mark.parametrize("size", [1, None])
def test_the_end_of_the_body_tells_whether_a_frame_broke_off(body: bytes, broke_off: bool, size: int | None) -> None:
    decoder = FrameDecoder()
    for start in range(0, len(body), size or len(body) or 1):
        decoder.feed(body[start : start + (size or len(body))])
    assert decoder.eof() is broke_off


def test_a_frame_without_end_is_given_up_at_the_cap() -> None:
    decoder = FrameDecoder(max_frame_bytes=1000)
    decoder.feed(b"data: small\n\n" * 200)  # the cap is on one frame, not on the stream
    for _ in range(10):
        decoder.feed(b"x" * 100)
    with pytest.raises(FrameTooLarge, match="1000 bytes"):
        decoder.feed(b"x")


def test_line_ends_do_not_count_as_a_frame_without_end() -> None:
    decoder = FrameDecoder(max_frame_bytes=10)
    for _ in range(100):
        assert decoder.feed(b"\n") == []
    assert decoder.feed(b"data: 1\n\n") == ["data: 1"]


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        ("data: a", Frame("message", "a", None, None)),
        ("data:a", Frame("message", "a", None, None)),
        ("data:     return 1  ", Frame("message", "    return 1  ", None, None)),
        ("data: a\ndata:\ndata: b", Frame("message", "a\n\nb", None, None)),
        ("event: e\nid: 7\ndata: a", Frame("e", "a", "7", None)),
        ("data: a\nid: 7\nid: 8", Frame("message", "a", "8", None)),
        ("id: 7", Frame(None, None, "7", None)),
        ("id", Frame(None, None, "", None)),
        ("id: a\0b", Frame(None, None, None, None)),
        ("id: 4\nid: a\0b", Frame(None, None, "4", None)),
        ("retry: 250", Frame(None, None, None, 250)),
        ("retry: 0\ndata: a", Frame("message", "a", None, 0)),
        ("retry: -1", Frame(None, None, None, None)),
        ("retry: abc", Frame(None, None, None, None)),
        ("retry: 1e3", Frame(None, None, None, None)),
        ("retry: ٣", Frame(None, None, None, None)),
        ("retry:", Frame(None, None, None, None)),
        ("retry: " + "9" * 5000, Frame(None, None, None, 999999999999)),
        (": comment", Frame(None, None, None, None)),
        (": PROCESSING\ndata: a", Frame("message", "a", None, None)),
        ("foo: bar\nDATA: x\n data: y", Frame(None, None, None, None)),
        ("event: brand.new\ndata: {}", Frame("brand.new", "{}", None, None)),
        ("data: a\u2028b\x85c", Frame("message", "a\u2028b\x85c", None, None)),
        ("data: a: b", Frame("message", "a: b", None, None)),
    ],
)
def test_fields_of_a_frame(frame: str, expected: Frame) -> None:
    assert parse_frame(frame) == expected


@pytest.mark.parametrize("frame", ["data", "data:", "event: ping\ndata:", "id: 3\n: ping", "event: ping"])
def test_a_frame_with_nothing_in_it_carries_no_data(frame: str) -> None:
    assert not parse_frame(frame).data


LINES = [
    "data: {}", "data:x", "data", "data: é😀\u2028", "data:  two", "event: e", "event:", "id: 1", "id", "id: é",
    "retry: 10", "retry: x", ": c", ":", "foo: bar", "foo", " data: x", "data : x",
]  # fmt: skip


def random_body(source: random.Random, end: str) -> bytes:
    frames = []
    for _ in range(source.randint(1, 6)):
        frames.append("".join(source.choice(LINES) + end for _ in range(source.randint(1, 4))) + end)
    return "".join(frames).encode("utf-8")


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["LF", "CRLF", "CR"])
@pytest.mark.parametrize("seed", range(20))
def test_any_body_is_read_as_sseclient_reads_it_in_one_piece(seed: int, end: str) -> None:
    source = random.Random(seed)
    for _ in range(20):
        body = random_body(source, end)
        cuts = [source.randint(0, len(body)) for _ in range(source.randint(0, 5))]
        ours = [parse_frame(frame) for frame in decode(body, cuts=cuts)]
        theirs = [(event.event, event.data) for event in SSEClient(iter([body])).events()]
        assert [(frame.event, frame.data) for frame in ours if frame.data is not None] == theirs


@pytest.mark.parametrize("seed", range(30))
def test_the_fast_reading_of_a_frame_and_sseclient_agree(seed: int) -> None:
    source = random.Random(seed)
    for number in range(1, 101):
        text = source.choice(["", "a", "é😀", "\\n", "data: x", 'q\\"', "\u2028"])
        json = f'{{"seq":{number},"type":"t","data":{{"text":"{text}","event":"data"}}}}'
        lines = source.sample(
            ["event: t", f"id: {number}", ": c", "retry: 5", "event:data", "foo", f"data:{json}", f"data: {json}"],
            source.randint(1, 8),
        )
        frame = "\n".join(lines)
        slow, fast = EnvelopeReader(), EnvelopeReader()
        expected = slow._slow(frame)
        got = fast.read([frame])
        assert got == ([] if expected is None else [expected]), frame


def _seconds(total: int, piece: int) -> float:
    body = b'id: 1\ndata: {"t":"' + b"x" * total + b'"}\n\n'
    best = 9e9
    for _ in range(3):
        decoder = FrameDecoder()
        started = time.thread_time()
        frames = [frame for at in range(0, len(body), piece) for frame in decoder.feed(body[at : at + piece])]
        best = min(best, time.thread_time() - started)
        assert [len(frame) for frame in frames] == [len(body) - 2]
    return best


def test_a_large_event_costs_time_linear_in_its_size() -> None:
    assert _seconds(8 << 20, 1024) < 30 * _seconds(1 << 20, 1024) + 0.2  # 8 times if linear, 64 if quadratic


def test_an_event_that_comes_byte_by_byte_costs_time_linear_in_its_size() -> None:
    assert _seconds(512 << 10, 1) < 30 * _seconds(64 << 10, 1) + 0.2


def test_the_size_of_the_open_event_does_not_count_for_each_read() -> None:
    """Counts the work instead of the time: bytes that are looked at, over all calls."""
    looked_at = 0

    class Counting(bytes):
        def __contains__(self, item: object) -> bool:
            nonlocal looked_at
            looked_at += len(self)
            return super().__contains__(item)  # type: ignore[arg-type, operator]

    decoder = FrameDecoder()
    decoder.feed(b"data: 1\n")
    for _ in range(1000):
        decoder.feed(Counting(b"x" * 100))
    assert looked_at <= 3 * 1000 * 100
