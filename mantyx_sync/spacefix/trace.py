"""The trace of a call (spacefix, "trace"): read from the event, handed to the handler, and a span for the answer.

A handler finds it with `current_trace()`. Where `opentelemetry-api` is installed and set up, each call is a server
span below the caller's, and its id goes into the answer; otherwise an id is derived from the trace context, so that
what the gateway shows and what the handler passes on to others still fit together.
"""

from __future__ import annotations

import contextlib
import contextvars
import hashlib
import logging
import math
import re
from dataclasses import field
from typing import Any, Iterator, Mapping

from mantyx_sync.reprs import dataclass

__all__ = ["Span", "TraceContext", "Tracer", "current_trace", "derived_span_id"]

log = logging.getLogger(__name__)

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")

_KNOWN_FLAGS = 0x03  # sampled; the trace id is random
_PRINTABLE = re.compile(r"[\x20-\x7e]+")

_current: contextvars.ContextVar[TraceContext | None] = contextvars.ContextVar("mantyx_spacefix_trace", default=None)


def current_trace() -> TraceContext | None:
    """Return the trace of the call that the running handler answers.

    `None` outside of a handler, and for a call without a trace, such as one from the dashboard's Playground.
    """
    return _current.get()


@dataclass(frozen=True)
class TraceContext:
    """Where a call belongs.

    Attributes:
        traceparent: The W3C trace context of whoever called, or one that the gateway made.
        tracestate: The caller's `tracestate`; `None` if there was none.
        request_id: What the gateway's logs list the request under.
        sent_at: When the gateway sent the call, in milliseconds since 1970 by its clock.
        span_id: The id of this agent's span for the call; `None` without a valid `traceparent`.
        raw: The object as it came.
    """

    traceparent: str | None = None
    tracestate: str | None = None
    request_id: str | None = None
    sent_at: float | None = None
    span_id: str | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def from_wire(cls, value: object, call_id: str) -> TraceContext | None:
        """Read the `trace` of an event; what is missing or of the wrong type is left out: a call is not lost for it."""
        if not isinstance(value, Mapping):
            return None
        traceparent = _text(value.get("traceparent"))
        return cls(
            traceparent=traceparent,
            tracestate=_text(value.get("tracestate")),
            request_id=_text(value.get("requestId")),
            sent_at=_milliseconds(value.get("sentAt")),
            span_id=derived_span_id(traceparent, call_id),
            raw=value,
        )

    @property
    def trace_id(self) -> str | None:
        """The 32 hex digits that all spans of the trace share; `None` without a valid `traceparent`."""
        found = _parse(self.traceparent)
        return None if found is None else found[1]

    @property
    def parent_id(self) -> str | None:
        """The id of the caller's span; `None` without a valid `traceparent`."""
        found = _parse(self.traceparent)
        return None if found is None else found[2]

    def headers(self) -> dict[str, str]:
        """Return the headers that continue the trace in a request of the handler's own."""
        found = _parse(self.traceparent)
        if found is None or self.span_id is None:
            return {}
        # What the other flags mean is not said yet: whoever goes on with a trace clears them.
        headers = {"traceparent": f"00-{found[1]}-{self.span_id}-{int(found[3], 16) & _KNOWN_FLAGS:02x}"}
        if self.tracestate and _PRINTABLE.fullmatch(self.tracestate):  # what whoever called sent; no header takes all
            headers["tracestate"] = self.tracestate
        return headers

    def with_span(self, span_id: str) -> TraceContext:
        """Return the same trace with another span of ours."""
        return TraceContext(self.traceparent, self.tracestate, self.request_id, self.sent_at, span_id, self.raw)


def derived_span_id(traceparent: str | None, call_id: str) -> str | None:
    """Make a span id of a trace context: the same for the same call, and 16 lowercase hex digits that are not all 0."""
    if _parse(traceparent) is None:
        return None
    digits = hashlib.sha256(f"{traceparent}/{call_id}".encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return digits if digits.strip("0") else "0000000000000001"


class Tracer:
    """Runs handlers inside spans of OpenTelemetry where it is there; asks for it when the first call arrives."""

    def __init__(self, *, enabled: bool = True) -> None:
        self._enabled = enabled
        self._tracer: Any = None

    @contextlib.contextmanager
    def span(self, kind: str, name: str, trace: TraceContext | None) -> Iterator[Span]:
        """Have the handler's trace at hand for the block, and a server span around it if OpenTelemetry is installed.

        Args:
            kind: `call`, `read` or `prompt`.
            name: Of the tool or prompt, or the address of the resource.
        """
        with self._otel_span(kind, name, trace) as span:
            token = _current.set(span.trace)
            try:
                yield span
            finally:
                _current.reset(token)

    @contextlib.contextmanager
    def _otel_span(self, kind: str, name: str, trace: TraceContext | None) -> Iterator[Span]:
        tracer = self._otel()
        if tracer is None:
            yield Span(trace, None)
            return
        from opentelemetry.trace import SpanKind  # type: ignore[import-not-found,unused-ignore]
        from opentelemetry.trace.propagation.tracecontext import (  # type: ignore[import-not-found,unused-ignore]
            TraceContextTextMapPropagator,
        )

        carrier = (
            {} if trace is None else {"traceparent": trace.traceparent or "", "tracestate": trace.tracestate or ""}
        )
        parent = TraceContextTextMapPropagator().extract({key: text for key, text in carrier.items() if text})
        attributes = {"spacefix.kind": kind, "spacefix.name": name}
        if trace is not None and trace.request_id:
            attributes["spacefix.request_id"] = trace.request_id
        with tracer.start_as_current_span(
            f"{kind} {name}",
            context=parent,
            kind=SpanKind.SERVER,
            attributes=attributes,
            record_exception=False,  # what a handler raises has been turned into an answer before it gets here
            set_status_on_exception=False,
        ) as span:
            yield Span(_with_id_of(span, trace), span)

    def _otel(self) -> Any:
        if not self._enabled:
            return None
        if self._tracer is None:
            try:
                from opentelemetry import trace as otel  # type: ignore[import-not-found,unused-ignore]
            except ImportError:
                self._enabled = False
                return None
            self._tracer = otel.get_tracer("mantyx_sync.spacefix")
        return self._tracer


class Span:
    """The span around a call. `trace` is the call's trace with the span's own id."""

    def __init__(self, trace: TraceContext | None, span: Any) -> None:
        self.trace = trace
        self.span_id = trace.span_id if trace is not None else _id_of(span)
        self._span = span

    def failed(self, error: str) -> None:
        """Mark the call as failed, with the text its caller gets."""
        if self._span is None:
            return
        from opentelemetry.trace import Status, StatusCode  # type: ignore[import-not-found,unused-ignore]

        self._span.set_status(Status(StatusCode.ERROR, error))


def _with_id_of(span: Any, trace: TraceContext | None) -> TraceContext | None:
    own = _id_of(span)
    if trace is None or own is None or own == trace.parent_id:
        return trace  # without an SDK, the API hands the caller's span on as ours
    return trace.with_span(own)


def _id_of(span: Any) -> str | None:
    context = span.get_span_context() if span is not None else None
    return f"{context.span_id:016x}" if context is not None and context.is_valid else None


def _parse(traceparent: str | None) -> tuple[str, str, str, str] | None:
    found = _TRACEPARENT.fullmatch(traceparent or "")
    if found is None:
        return None
    version, trace_id, parent_id, flags, rest = found.groups()
    if version == "ff" or (version == "00" and rest) or not trace_id.strip("0") or not parent_id.strip("0"):
        return None
    return version, trace_id, parent_id, flags


def _milliseconds(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
