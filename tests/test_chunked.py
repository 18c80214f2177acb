"""The chunked coding: undone the same however reads cut it, and refused when it is wrong."""

from __future__ import annotations

import time

import pytest

from mantyx_sync.transport.chunked import BadChunk, ChunkedDecoder

from .wire import chunk, chunks


def decode(coded: bytes, size: int) -> tuple[bytes, bool]:
    decoder = ChunkedDecoder()
    body = b"".join(decoder.feed(coded[at : at + size]) for at in range(0, len(coded), size))
    return body, decoder.finished


GOOD = {
    "one chunk": (b"5\r\nhello\r\n0\r\n\r\n", b"hello"),
    "several": (b"5\r\nhello\r\n1\r\n \r\n5\r\nworld\r\n0\r\n\r\n", b"hello world"),
    "line ends inside": (b"6\r\n\r\n\r\n0\n\r\n0\r\n\r\n", b"\r\n\r\n0\n"),
    "capital and padded sizes": (b"00A\r\n0123456789\r\nb \r\n0123456789a\r\n0\r\n\r\n", b"01234567890123456789a"),
    "extension": (b'5;name="v";x\r\nhello\r\n0;last\r\n\r\n', b"hello"),
    "trailers": (b"5\r\nhello\r\n0\r\nX-Sum: 1\r\nX-Other: 2\r\n\r\n", b"hello"),
    "LF alone behind a size": (b"5\nhello\r\n0\n\n", b"hello"),
    "nothing": (b"0\r\n\r\n", b""),
    "something behind the end": (b"2\r\nab\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n", b"ab"),
    "accents": (b"3\r\n\xc3\xa9\xf0\r\n3\r\n\x9f\x98\x80\r\n0\r\n\r\n", "é😀".encode()),
}


@pytest.mark.parametrize("name", GOOD)
def test_the_body_is_the_same_wherever_two_reads_end(name: str) -> None:
    coded, body = GOOD[name]
    for size in range(1, len(coded) + 1):
        assert decode(coded, size) == (body, True)
    for first in range(len(coded) + 1):
        decoder = ChunkedDecoder()
        assert decoder.feed(coded[:first]) + decoder.feed(coded[first:]) == body


BAD = {
    "no size": b"\r\nhello\r\n",
    "not a number": b"xyz\r\n",
    "negative": b"-5\r\nhello\r\n",
    "chunk too long": b"5\r\nhello!\r\n0\r\n\r\n",
    "CR not followed by LF": b"5\r\nhello\rX0\r\n\r\n",
    "LF alone behind a chunk": b"5\r\nhello\n0\r\n\r\n",
    "an HTML page": b"<html>\r\n",
}


@pytest.mark.parametrize("name", BAD)
def test_a_body_that_is_not_chunked_is_refused_wherever_reads_end(name: str) -> None:
    for size in range(1, len(BAD[name]) + 1):
        with pytest.raises(BadChunk):
            decode(BAD[name], size)


def test_a_size_line_without_end_is_refused() -> None:
    with pytest.raises(BadChunk, match="does not end"):
        decode(b"1" * 100_000, 4096)


def test_a_chunk_is_handed_on_before_it_is_complete() -> None:
    decoder = ChunkedDecoder()
    assert decoder.feed(b"a\r\n01234") == b"01234"
    assert decoder.feed(b"56") == b"56"
    assert decoder.feed(b"789\r") == b"789"
    assert not decoder.finished
    assert decoder.feed(b"\n0\r\n\r\n") == b""
    assert decoder.finished


def test_all_chunks_of_one_read_come_out_together() -> None:
    assert ChunkedDecoder().feed(chunk(b"a") + chunk(b"b") + b"5\r\nc") == b"abc"


def _seconds(total: int) -> float:
    coded = chunks(b"x" * total, 1 << 20)
    best = 9e9
    for _ in range(3):
        decoder = ChunkedDecoder()
        started = time.thread_time()
        size = sum(len(decoder.feed(coded[at : at + 4096])) for at in range(0, len(coded), 4096))
        best = min(best, time.thread_time() - started)
        assert size == total
    return best


def test_large_chunks_in_small_reads_cost_time_linear_in_their_size() -> None:
    assert _seconds(8 << 20) < 30 * _seconds(1 << 20) + 0.2
