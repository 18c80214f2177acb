"""Frames become envelopes: each event once, in order, in whatever form the server sends it."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from mantyx_sync.envelopes import EnvelopeReader
from mantyx_sync.events import NO_SEQ
from mantyx_sync.transport.sse import FrameDecoder

ENVELOPE = {"seq": 7, "type": "assistant_delta", "data": {"text": "some data: é 😀"}}
TEXT = json.dumps(ENVELOPE, ensure_ascii=False)


def delta(seq: Any, text: str = "x") -> str:
    return "data: " + json.dumps({"seq": seq, "type": "assistant_delta", "data": {"text": text}})


def read(*frames: str) -> list[dict[str, Any]]:
    return EnvelopeReader().read(list(frames))


@pytest.mark.parametrize(
    "frame",
    [
        f"data: {TEXT}",
        f"data:{TEXT}",
        f"data:  {TEXT}",
        f"data: {TEXT} ",
        f"id: 7\ndata: {TEXT}",
        f"id: 7\nevent: assistant_delta\ndata: {TEXT}",
        f"event: assistant_delta\ndata: {TEXT}\nid: 7",
        f"data: {TEXT}\nevent: assistant_delta",
        f"event: something_else\ndata: {TEXT}",
        f"event: message\ndata: {TEXT}",
        f": comment\ndata: {TEXT}",
        f": comment with data: in it\ndata: {TEXT}",
        f"unknown: data\ndata: {TEXT}",
        f"data\ndata: {TEXT}",
        f"retry: 100\ndata: {TEXT}",
        f"id: data\ndata: {TEXT}",
        "data: " + TEXT.replace(", ", ",\ndata: ", 1),
        "data: {\ndata: " + TEXT[1:],
        "data: " + json.dumps({**ENVELOPE, "seq": "7"}),
        "data: " + json.dumps({**ENVELOPE, "seq": 7.0}),
        "id: 7\ndata: " + json.dumps({"type": "assistant_delta", "data": ENVELOPE["data"]}),
        "id: 7\nevent: assistant_delta\ndata: " + json.dumps(ENVELOPE["data"]),
        "id: 7\ndata: " + json.dumps(ENVELOPE["data"]) + "\nevent: assistant_delta",
    ],
)
def test_every_form_of_an_event_is_the_same_envelope(frame: str) -> None:
    [envelope] = read(frame)
    assert {key: envelope[key] for key in ("seq", "type", "data")} == ENVELOPE


def test_unknown_fields_and_types_are_kept() -> None:
    sent = {"seq": 1, "type": "brand.new", "data": {"x": [1, {"y": None}]}, "v": 2, "at": "today"}
    assert read("data: " + json.dumps(sent)) == [sent]


def test_what_was_read_is_not_read_again_on_any_connection() -> None:
    reader = EnvelopeReader()
    assert [e["seq"] for e in reader.read([delta(1), delta(2), delta(2), delta(3)])] == [1, 2, 3]
    assert [e["seq"] for e in reader.read([delta(2), delta(3), delta(4)])] == [4]
    assert reader.read([delta(1), f"id: 4\nevent: x\n{delta(4)}", f"event: x\n{delta('3')}"]) == []
    assert reader.last_seq == 4


def test_the_first_event_may_have_the_number_zero() -> None:
    reader = EnvelopeReader()
    assert [e["seq"] for e in reader.read([delta(0), delta(0), delta(1)])] == [0, 1]


def test_reading_on_behind_a_place_leaves_out_what_comes_before() -> None:
    reader = EnvelopeReader(last_seq=5)
    assert [e["seq"] for e in reader.read([delta(4), delta(5), delta(6)])] == [6]


def test_events_without_a_number_come_out_each_time_and_do_not_move_the_place() -> None:
    reader = EnvelopeReader()
    reader.read([delta(3)])
    bare = 'event: assistant_delta\ndata: {"text": "x"}'
    assert [e["seq"] for e in reader.read([bare, bare, delta(4)])] == [NO_SEQ, NO_SEQ, 4]
    assert reader.resume_headers() == {"Last-Event-ID": "4"}


@pytest.mark.parametrize(
    "frame",
    [
        ": ping",
        "id: 3\n: ping",
        "data:",
        "data: ",
        "data",
        "event: ping\ndata:",
        "event: ping",
        "retry: 10",
        "foo: bar",
    ],
)
def test_heartbeats_and_frames_without_data_are_no_events(frame: str, caplog: pytest.LogCaptureFixture) -> None:
    assert [e["seq"] for e in read(delta(1), frame, delta(2))] == [1, 2]
    assert not caplog.records


@pytest.mark.parametrize(
    "data",
    [
        ": PROCESSING",
        "[DONE]",
        '"marked text"',
        "null",
        "17",
        "[1, 2]",
        '{"a":',
        TEXT[:-1],
        TEXT + "}",
        TEXT + TEXT,
        "[" * 100_000,
        '{"a":' * 100_000,
    ],
)
def test_a_payload_that_is_no_event_is_skipped_with_a_warning_that_does_not_show_it(
    data: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert [e["seq"] for e in read(delta(1), f"data: {data}", delta(2))] == [1, 2]
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert data[:20] not in record.getMessage()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\u2028b\u2029c\u0085d", "a\u2028b\u2029c\u0085d"),
        ("tab\there", "tab\there"),
        ("nul\\u0000", "nul\0"),
        ("half \\ud83d", "half \ud83d"),
        ("   four leading", "   four leading"),
    ],
)
def test_odd_characters_of_a_text_arrive_as_they_are(text: str, expected: str) -> None:
    [envelope] = read('data: {"seq":1,"type":"assistant_delta","data":{"text":"' + text + '"}}')
    assert envelope["data"]["text"] == expected


def test_numbers_beyond_what_python_likes_do_not_stop_the_stream() -> None:
    huge = "9" * 5000
    sent = f'data: {{"seq":1,"type":"x","data":{{"huge":{huge},"big":{2**63},"inf":1e999,"nan":NaN}}}}'
    [envelope, after] = read(sent, delta(2))
    assert str(envelope["data"]["huge"])[:10] in ("9999999999", repr(float("inf")))
    assert envelope["data"]["big"] == 2**63
    assert after["seq"] == 2


def test_of_a_key_that_is_there_twice_the_last_counts() -> None:
    [envelope] = read('data: {"seq":1,"type":"x","data":{"a":1,"a":2}}')
    assert envelope["data"] == {"a": 2}


def test_an_error_without_an_envelope_is_an_error_event() -> None:
    [envelope] = read('event: error\ndata: {"error": {"message": "limit", "type": "overloaded"}}')
    assert (envelope["type"], envelope["data"]["error"]["message"]) == ("error", "limit")
    [envelope] = read('data: {"error": "text"}')
    assert (envelope["type"], envelope["data"]["error"]) == ("error", "text")


@pytest.mark.parametrize(
    ("frames", "header"),
    [
        ([], None),
        ([delta(4)], "4"),
        (["id: 4\n" + delta(4), ": ping"], "4"),
        (["id: 5"], "5"),
        (["id: 5\ndata:"], "5"),
        ([delta(4), "id: 9"], "9"),
        ([delta(4), 'event: x\ndata: {"text": "no number"}'], "4"),
        (["id: 5", "id"], None),
        (["id: 5", "id: a\0b"], "5"),
        (["id: 5", "id: " + "9" * 100_000], "5"),
        (["id: 5", "id: é\u2028"], "5"),
        (["id: 5", "id: a\rb"], "5"),
        (["id: cursor-17"], "cursor-17"),
        ([delta(0)], "0"),
    ],
)
def test_the_resume_header_names_the_last_usable_place(frames: list[str], header: str | None) -> None:
    reader = EnvelopeReader()
    reader.read(frames)
    assert reader.resume_headers().get("Last-Event-ID") == header


def test_the_resume_header_of_a_stream_that_goes_on_somewhere() -> None:
    assert EnvelopeReader(last_seq=12).resume_headers() == {"Last-Event-ID": "12"}
    assert EnvelopeReader().resume_headers() == {}


def test_the_retry_time_of_the_server_is_noted() -> None:
    reader = EnvelopeReader()
    reader.read([delta(1), "retry: 250", "retry: abc", "retry: -1", "retry: 1e3"])
    assert reader.retry_ms == 250


def test_the_size_of_everything_read_is_counted() -> None:
    reader = EnvelopeReader()
    reader.read(["12345", delta(1)])
    reader.read([delta(1)])
    assert reader.chars_read == 5 + 2 * len(delta(1))


def test_however_a_stream_is_cut_into_reads_the_envelopes_are_the_same() -> None:
    frames = [
        delta(1, "é 😀"),
        "retry: 5\n" + delta(2),
        ": ping",
        "id: 3\nevent: x\ndata: {}",
        "id: 9\ndata: oops",
        delta(4),
    ]
    body = "".join(frame + "\n\n" for frame in frames).encode()
    whole = read(*frames)
    assert [e["seq"] for e in whole] == [1, 2, 3, 4]
    for size in range(1, len(body) + 1):
        decoder, reader = FrameDecoder(), EnvelopeReader()
        found: list[Any] = []
        for at in range(0, len(body), size):
            found += reader.read(decoder.feed(body[at : at + size]))
        assert found == whole
        assert not decoder.eof()
