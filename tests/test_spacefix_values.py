"""What goes in and out of a handler: events, traces, results, figures. Nothing here needs a gateway."""

from __future__ import annotations

import datetime
import json
import re
import sys
from dataclasses import dataclass
from typing import Any, Optional

import pytest

from mantyx_sync import Message, ToolContext, ToolError, ToolResult, ToolResultFile
from mantyx_sync.spacefix import Prompt, Resource, TraceContext, current_trace, expose
from mantyx_sync.spacefix.answers import is_error_result, prompt_value, resource_value, tool_value
from mantyx_sync.spacefix.delivery import Outcome, answer_body
from mantyx_sync.spacefix.errors import SpaceFixRegistrationError, gateway_error
from mantyx_sync.spacefix.events import CallEvent, Malformed, Ready, read_event
from mantyx_sync.spacefix.telemetry import ProcessFigures, metrics
from mantyx_sync.spacefix.trace import Tracer, derived_span_id
from mantyx_sync.spacefix.window import Window

LIMITS_DIGITS = hasattr(sys, "set_int_max_str_digits")
TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

# ------------------------------------------------------------------------------------------- events


def frame(name: str, payload: object) -> str:
    return f"event: {name}\ndata: {payload if isinstance(payload, str) else json.dumps(payload)}"


def test_the_documents_call_is_read() -> None:
    event = read_event(
        'event: call\ndata: {"id":"2c37","name":"get_order","args":{"id":"1"},"trace":{"traceparent":"'
        + TRACEPARENT
        + '",'
        '"tracestate":"vendor=demo","requestId":"af76","sentAt":1793411561765}}'
    )
    assert isinstance(event, CallEvent)
    assert (event.kind, event.id, event.name, event.args) == ("call", "2c37", "get_order", {"id": "1"})
    assert event.trace is not None
    assert (event.trace.traceparent, event.trace.tracestate) == (TRACEPARENT, "vendor=demo")
    assert (event.trace.request_id, event.trace.sent_at) == ("af76", 1793411561765)


@pytest.mark.parametrize("kind", ["call", "read", "prompt"])
def test_missing_arguments_and_trace_are_fine(kind: str) -> None:
    assert read_event(frame(kind, {"id": "a", "name": "b", "new": 1})) == CallEvent(kind, "a", "b", {}, None)
    assert read_event(frame(kind, {"id": "a", "name": "b", "args": None})) == CallEvent(kind, "a", "b", {}, None)


def test_the_connection_id_is_shown_nowhere() -> None:
    event = read_event(frame("ready", {"connectionId": "marker-of-an-id"}))
    assert isinstance(event, Ready)
    assert event.connection_id == "marker-of-an-id"
    assert "marker" not in repr(event) + repr([event.connection_id])


@pytest.mark.parametrize("text", [": ping", frame("later", {"id": "a"}), "data: {}", "event: call", "id: 5", "foo: x"])
def test_comments_and_unknown_events_are_ignored(text: str) -> None:
    found = read_event(text)
    assert found is None or (isinstance(found, Malformed) and text == "event: call")


@pytest.mark.parametrize(
    ("text", "id"),
    [
        (frame("call", "{"), None),
        (frame("call", "[]"), None),
        (frame("call", "null"), None),
        (frame("call", {"name": "b"}), None),
        (frame("call", {"id": 5, "name": "b"}), None),
        (frame("call", {"id": "a"}), "a"),
        (frame("call", '{"id":"a","name":"b","args":{"n":' + "9" * 5000 + "}}"), "a"),
        (frame("call", '{"id":"a","name":"b","args":' + "[" * 100_000), "a"),
        (frame("ready", {}), None),
    ],
)
def test_events_that_cannot_be_used_say_whom_to_tell(text: str, id: Optional[str]) -> None:
    event = read_event(text)
    if isinstance(event, CallEvent):  # a Python that reads numbers of any length
        assert not LIMITS_DIGITS
        return
    assert isinstance(event, Malformed)
    assert event.id == id


def test_frames_are_parsed_liberally() -> None:
    assert read_event('event:call\ndata:{"id":"a",\ndata:"name":"b"}') == CallEvent("call", "a", "b")


# ------------------------------------------------------------------------------------------- traces


def test_a_span_id_is_derived_that_the_dashboard_can_show() -> None:
    found = derived_span_id(TRACEPARENT, "call-1")
    assert found == derived_span_id(TRACEPARENT, "call-1")
    assert found != derived_span_id(TRACEPARENT, "call-2")
    assert re.fullmatch("[0-9a-f]{16}", found or "")


@pytest.mark.parametrize(
    "traceparent",
    [
        None,
        "",
        "00-x",
        TRACEPARENT.upper(),
        TRACEPARENT + "-more",
        "ff" + TRACEPARENT[2:],
        "00-" + "0" * 32 + "-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-" + "0" * 16 + "-01",
        5,
    ],
)
def test_without_a_valid_traceparent_there_is_no_span_id(traceparent: Any) -> None:
    trace = TraceContext.from_wire({"traceparent": traceparent, "sentAt": True, "requestId": 5}, "c")
    assert trace is not None
    assert (trace.span_id, trace.trace_id, trace.parent_id, trace.headers()) == (None, None, None, {})
    assert (trace.sent_at, trace.request_id) == (None, None)


def test_later_versions_of_a_traceparent_are_followed() -> None:
    trace = TraceContext.from_wire({"traceparent": "cc" + TRACEPARENT[2:] + "-what-comes"}, "c")
    assert trace is not None
    assert trace.trace_id == "4bf92f3577b34da6a3ce929d0e0e4736"


def test_a_handler_can_continue_the_trace() -> None:
    trace = TraceContext.from_wire({"traceparent": TRACEPARENT, "tracestate": "a=b"}, "c")
    assert trace is not None
    assert trace.parent_id == "00f067aa0ba902b7"
    assert trace.headers() == {
        "traceparent": f"00-4bf92f3577b34da6a3ce929d0e0e4736-{trace.span_id}-01",
        "tracestate": "a=b",
    }


@pytest.mark.parametrize(("flags", "passed_on"), [("00", "00"), ("01", "01"), ("02", "02"), ("ff", "03"), ("fc", "00")])
def test_flags_that_nobody_knows_yet_are_not_passed_on(flags: str, passed_on: str) -> None:
    trace = TraceContext.from_wire({"traceparent": TRACEPARENT[:-2] + flags}, "c")
    assert trace is not None
    assert trace.headers()["traceparent"].endswith(f"-{passed_on}")


@pytest.mark.parametrize("tracestate", ["a=b\r\nX-Evil: 1", "a=é", "a=\ud800", ""])
def test_a_tracestate_that_no_header_takes_is_not_passed_on(tracestate: str) -> None:
    trace = TraceContext.from_wire({"traceparent": TRACEPARENT, "tracestate": tracestate}, "c")
    assert trace is not None
    assert list(trace.headers()) == ["traceparent"]


@pytest.mark.parametrize("sent_at", [10**400, -(10**400), float("nan"), float("inf"), True, "1", None])
def test_a_time_that_is_none_is_left_out(sent_at: Any) -> None:
    trace = TraceContext.from_wire({"sentAt": sent_at}, "c")
    assert trace is not None
    assert trace.sent_at is None


def test_the_trace_is_at_hand_inside_the_span_alone() -> None:
    trace = TraceContext.from_wire({"traceparent": TRACEPARENT}, "c")
    assert current_trace() is None
    with Tracer(enabled=False).span("call", "f", trace) as span:
        assert current_trace() is trace
        assert trace is not None
        assert span.span_id == trace.span_id
        span.failed("x")
    assert current_trace() is None


def test_a_call_without_a_trace_has_no_span_id() -> None:
    with Tracer(enabled=False).span("call", "f", None) as span:
        assert (current_trace(), span.span_id) == (None, None)


def test_opentelemetry_is_not_asked_for_by_importing_nor_by_an_agent_without_tracing() -> None:
    if "opentelemetry" in sys.modules:
        pytest.skip("loaded already")
    with Tracer(enabled=False).span("call", "f", None):
        pass
    assert "opentelemetry" not in sys.modules


def test_each_call_is_a_server_span_of_opentelemetry() -> None:
    pytest.importorskip("opentelemetry.sdk.trace", reason="needs opentelemetry-sdk")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = Tracer()
    tracer._tracer = provider.get_tracer("test")
    trace = TraceContext.from_wire({"traceparent": TRACEPARENT, "tracestate": "a=b", "requestId": "r1"}, "c")
    assert trace is not None
    with tracer.span("call", "get_order", trace) as span:
        inner = current_trace()
        span.failed("no such order")
    with tracer.span("read", "a://b", None) as rootless:
        pass
    first, second = exporter.get_finished_spans()
    own = f"{first.context.span_id:016x}"
    assert span.span_id == own != trace.span_id
    assert inner is not None
    assert inner.headers()["traceparent"] == f"00-4bf92f3577b34da6a3ce929d0e0e4736-{own}-01"
    assert f"{first.context.trace_id:032x}" == trace.trace_id
    assert f"{first.parent.span_id:016x}" == trace.parent_id
    assert (first.kind.name, first.name) == ("SERVER", "call get_order")
    assert first.attributes["spacefix.request_id"] == "r1"
    assert (first.status.status_code.name, first.status.description) == ("ERROR", "no such order")
    assert rootless.span_id == f"{second.context.span_id:016x}"
    assert second.parent is None


def test_the_api_of_opentelemetry_alone_does_not_pass_the_callers_span_off_as_ours() -> None:
    pytest.importorskip("opentelemetry.trace", reason="needs opentelemetry-api")
    from opentelemetry.trace import NoOpTracer

    tracer = Tracer()
    tracer._tracer = NoOpTracer()
    trace = TraceContext.from_wire({"traceparent": TRACEPARENT}, "c")
    assert trace is not None
    with tracer.span("call", "f", trace) as span:
        assert span.span_id == trace.span_id


# ------------------------------------------------------------------------------------------- results


@dataclass
class Row:
    id: int
    at: datetime.date


PNG = ToolResultFile.from_bytes(b"\x89PNG", "a b.png")
MP3 = ToolResultFile.from_bytes(b"ID3", "a.mp3", "audio/mpeg")
CSV = ToolResultFile.from_bytes("é,1".encode(), "a.csv", "text/csv; charset=utf-8")
LATIN = ToolResultFile.from_bytes(b"\xe9,1", "l.csv", "text/csv")
PDF = ToolResultFile.from_bytes(b"%PDF", "a.pdf")
SVG = ToolResultFile.from_bytes(b"<svg/>", "a.svg", "image/svg+xml")


@pytest.mark.parametrize(
    ("value", "wire"),
    [
        ("text", "text"),
        (None, None),
        (5, 5),
        (float("nan"), None),
        ([1, (2, 3)], [1, [2, 3]]),
        (Row(1, datetime.date(2026, 1, 2)), {"id": 1, "at": "2026-01-02"}),
        (
            {"content": [{"type": "text", "text": "a"}], "isError": True},
            {"content": [{"type": "text", "text": "a"}], "isError": True},
        ),
        ({"content": []}, {"content": []}),
        ({"content": [], "structuredContent": {"a": 1}}, {"content": [], "structuredContent": {"a": 1}}),
        # Rows that merely have a column of that name.
        ({"content": [], "title": "x"}, '{"content": [], "title": "x"}'),
        ({"content": ["a", "b"]}, '{"content": ["a", "b"]}'),
        ({"content": [{"text": "é"}]}, '{"content": [{"text": "é"}]}'),
        ({"content": "text", "title": "x"}, {"content": "text", "title": "x"}),
        (ToolResult("done"), "done"),
        (ToolResult({"a": 1}), '{"a": 1}'),
        (
            ToolResult("two", [PNG, MP3]),
            {
                "content": [
                    {"type": "text", "text": "two"},
                    {"type": "image", "data": PNG.data, "mimeType": "image/png"},
                    {"type": "audio", "data": MP3.data, "mimeType": "audio/mpeg"},
                ]
            },
        ),
        (
            ToolResult(files=[CSV]),
            {
                "content": [
                    {
                        "type": "resource",
                        "resource": {
                            "uri": "attachment:///a.csv",
                            "mimeType": "text/csv; charset=utf-8",
                            "text": "é,1",
                        },
                    }
                ]
            },
        ),
        (
            LATIN,
            {
                "content": [
                    {
                        "type": "resource",
                        "resource": {"uri": "attachment:///l.csv", "mimeType": "text/csv", "blob": LATIN.data},
                    }
                ]
            },
        ),
        (
            PDF,
            {
                "content": [
                    {
                        "type": "resource",
                        "resource": {"uri": "attachment:///a.pdf", "mimeType": "application/pdf", "blob": PDF.data},
                    }
                ]
            },
        ),
        (
            SVG,
            {
                "content": [
                    {
                        "type": "resource",
                        "resource": {"uri": "attachment:///a.svg", "mimeType": "image/svg+xml", "text": "<svg/>"},
                    }
                ]
            },
        ),
    ],
)
def test_what_a_tool_returns_reaches_the_client_as_meant(value: Any, wire: Any) -> None:
    assert tool_value(value, "f") == wire


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ((x for x in ()), "tool 'f' returned a value of type generator"),
        (ToolResult(files=["x"]), "tool 'f' returned a str among its files"),  # type: ignore[list-item]
        (ToolResultFile("", "a/b", ""), "tool 'f' returned a file without a name"),
        (ToolResultFile("a", "a/b", "%"), "tool 'f' returned file 'a' whose data is not base64"),
    ],
)
def test_what_cannot_be_sent_names_the_tool(value: Any, message: str) -> None:
    with pytest.raises(ToolError) as caught:
        tool_value(value, "f")
    assert message in str(caught.value)


def test_a_result_says_whether_it_is_an_error() -> None:
    assert is_error_result({"content": [], "isError": True})
    assert not any(is_error_result(value) for value in ({"isError": True}, {"content": []}, "x", None))


@pytest.mark.parametrize(("value", "wire"), [("é", "é"), (b"\xc3\xa9", "é"), ({"a": (1,)}, {"a": [1]}), (None, None)])
def test_what_a_resource_returns(value: Any, wire: Any) -> None:
    assert Resource("a://b", lambda: value, name="x").answer({}, ToolContext()) == wire


def test_a_binary_resource_is_refused() -> None:
    with pytest.raises(ToolError, match=r"resource 'a://b' is not text"):
        resource_value(b"\xff", "a://b")


def test_a_resource_may_ask_for_its_address() -> None:
    assert Resource("a://b", lambda uri: uri, name="x").answer({}, ToolContext()) == "a://b"


@pytest.mark.parametrize(
    ("value", "wire"),
    [
        ("text", "text"),
        ({"order": 1}, {"order": 1}),
        (5, 5),
        (["a"], {"messages": [{"role": "user", "content": {"type": "text", "text": "a"}}]}),
        (
            [Message("assistant", "a"), {"content": {"type": "image", "data": "", "mimeType": "image/png"}}],
            {
                "messages": [
                    {"role": "assistant", "content": {"type": "text", "text": "a"}},
                    {"role": "user", "content": {"type": "image", "data": "", "mimeType": "image/png"}},
                ]
            },
        ),
        (
            {"description": "d", "messages": [{"role": "user", "content": "a"}]},
            {"description": "d", "messages": [{"role": "user", "content": {"type": "text", "text": "a"}}]},
        ),
        (Message("user", "a"), {"messages": [{"role": "user", "content": {"type": "text", "text": "a"}}]}),
    ],
)
def test_what_a_prompt_returns(value: Any, wire: Any) -> None:
    assert Prompt(lambda: value, name="p").answer({}, ToolContext()) == wire


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([5], "prompt 'p' returned message 0, which is neither text nor an object"),
        (["a", {"role": "user"}], "prompt 'p' returned message 1, which is neither"),
        ([Message("system", "a")], "prompt 'p' returned message 0 of another role than user or assistant"),
    ],
)
def test_messages_that_cannot_be_sent(value: Any, message: str) -> None:
    with pytest.raises(ToolError) as caught:
        prompt_value(value, "p")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"properties": {"a": {"type": "string", "pattern": "^x+$"}}}, {"a": "xx"}, {"a": "y"}),
        ({"properties": {"a": {"type": "string", "format": "date"}}}, {"a": "2026-01-02"}, {"a": "soon"}),
        ({"patternProperties": {"^n": {"type": "integer"}}}, {"n": 1}, {"n": "1"}),
    ],
)
def test_what_the_gateway_does_not_enforce_is_enforced_here(schema: dict[str, Any], good: Any, bad: Any) -> None:
    ran = []
    made = expose(lambda **given: ran.append(given), name="f", parameters={"type": "object", **schema})
    made.answer(good, ToolContext())
    with pytest.raises(ToolError, match="tool 'f': arguments do not match its schema"):
        made.answer(bad, ToolContext())
    assert ran == [good]


# ------------------------------------------------------------------------------------------- bodies


def sent(outcome: Outcome) -> Any:
    return json.loads(answer_body("conn", "call", outcome))


def test_an_answer_has_the_form_that_the_document_shows() -> None:
    outcome = Outcome(result={"id": "1"}, handler_s=0.0031, inbound_ms=2.2, span_id="b7ad6b7169203331")
    assert answer_body("conn", "call", outcome) == (
        b'{"connectionId":"conn","id":"call","ok":true,"result":{"id":"1"},'
        b'"span":{"handlerMs":3,"inboundMs":2,"spanId":"b7ad6b7169203331"}}'
    )
    assert sent(Outcome(error="No order 999.")) == {
        "connectionId": "conn",
        "id": "call",
        "ok": False,
        "error": "No order 999.",
        "span": {},
    }


@pytest.mark.parametrize(
    ("outcome", "span"),
    [
        (Outcome(inbound_ms=-5.0), {}),
        (Outcome(inbound_ms=3_600_001.0), {}),
        (Outcome(handler_s=9999.0), {"handlerMs": 3_600_000}),
        (Outcome(handler_s=0.0, inbound_ms=0.0), {"handlerMs": 0, "inboundMs": 0}),
    ],
)
def test_what_is_out_of_range_is_left_out_of_the_span(outcome: Outcome, span: Any) -> None:
    assert sent(outcome)["span"] == span


def test_a_result_of_four_megabytes_is_sent_and_a_larger_one_becomes_a_short_failure() -> None:
    room = 4 * 1024 * 1024 - len(answer_body("conn", "call", Outcome(result="")))
    assert sent(Outcome(result="x" * room))["ok"] is True
    too_large = Outcome(result="x" * (room + 1))
    body = sent(too_large)
    assert body["ok"] is False
    assert body["error"].startswith("the result is too large to be returned: 4194305 bytes, allowed are 4194304")
    assert too_large.result is None


def test_a_number_that_python_cannot_write_becomes_a_short_failure() -> None:
    body = sent(Outcome(result=10**5000))
    assert body["ok"] is not LIMITS_DIGITS
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    assert sent(Outcome(result=nested)) | {"span": 0} == {
        "connectionId": "conn",
        "id": "call",
        "ok": False,
        "error": "the result holds a number or a nesting that cannot be written as JSON",
        "span": 0,
    }


# ------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("reason", "item"),
    [
        ('Invalid tool name "bad name".', "bad name"),
        ('Schema for "t" is not valid JSON Schema: type must be JSONType', "t"),
        ('Annotation "readOnlyHint" for "get_order" must be true or false.', "get_order"),
        ('Duplicate resource "a://b".', "a://b"),
        ('"tools" must be an array.', None),
        ("Too many tools: limit is 256.", None),
    ],
)
def test_a_refused_registration_names_what_is_wrong(reason: str, item: Optional[str]) -> None:
    body = json.dumps({"error": reason}).encode()
    error = gateway_error(400, {}, body, method="POST", path="/agent/connect")
    assert isinstance(error, SpaceFixRegistrationError)
    assert error.item == item
    assert reason in str(error)
    assert error.status == 400


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (401, b'{"error":"Invalid API key."}', "MantyxAuthError"),
        (403, b'{"error":"This is a client key. Agents connect with an agent key."}', "MantyxForbiddenError"),
        (
            403,
            b'{"jsonrpc":"2.0","id":null,"error":{"code":-32003,"message":"This project is suspended: unpaid"}}',
            "MantyxForbiddenError",
        ),
        (429, b'{"error":"Rate limit exceeded: 60 requests per minute."}', "MantyxRateLimitError"),
        (503, b'{"error":"Service is shutting down."}', "MantyxServerError"),
        (413, b"request entity too large", "SpaceFixRegistrationError"),
        (502, b"<html><title>Bad gateway</title></html>", "MantyxServerError"),
    ],
)
def test_the_gateways_refusals_are_errors_of_the_common_tree(status: int, body: bytes, kind: str) -> None:
    error = gateway_error(status, {}, body, method="POST", path="/agent/connect")
    assert type(error).__name__ == kind
    assert error.status == status
    word = "unpaid" if b"unpaid" in body else json.loads(body)["error"] if body[:1] == b"{" else ""
    assert word in str(error)


# ------------------------------------------------------------------------------------------- figures


def test_a_window_counts_from_one_sample_to_the_next() -> None:
    now = [100.0]
    window = Window(2, clock=lambda: now[0])
    window.began()
    window.began()
    now[0] += 1.0
    window.ended(1.0)
    now[0] += 1.0
    window.failed()
    figures = window.take()
    assert (figures.calls, figures.errors, figures.in_flight, figures.peak_in_flight) == (2, 1, 1, 2)
    assert (figures.avg_ms, figures.utilization) == (1000.0, 0.75)
    now[0] += 2.0
    window.ended(4.0)
    figures = window.take()
    assert (figures.calls, figures.errors, figures.in_flight, figures.peak_in_flight) == (0, 0, 0, 1)
    assert (figures.avg_ms, figures.utilization) == (4000.0, 0.5)
    assert (window.calls, window.errors) == (2, 1)


def test_a_sample_has_the_documents_fields_and_the_processs_own_figures() -> None:
    sample = metrics(ProcessFigures().read(), Window(1).take(), tools=3, delay_ms=-1.0)
    assert list(sample) == [
        "uptime",
        "rss",
        "heapUsed",
        "heapTotal",
        "cpu",
        "eventLoopDelay",
        "eventLoopUtilization",
        "tools",
        "calls",
        "errors",
        "inFlight",
        "peakInFlight",
        "avgMs",
    ]
    assert all(isinstance(value, (int, float)) for value in sample.values())
    assert 1_000_000 < sample["rss"] < 100_000_000_000
    assert 0 < sample["heapUsed"] <= sample["heapTotal"]
    assert 0 <= sample["cpu"] <= 1
    assert sample["uptime"] > 0
    assert (sample["tools"], sample["eventLoopDelay"]) == (3, 0)


def test_a_text_of_any_length_is_a_short_failure() -> None:
    assert len(answer_body("conn", "call", Outcome(error="é" * 5_000_000))) < 10_000
