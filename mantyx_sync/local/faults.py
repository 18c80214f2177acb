"""Scripted faults of the embedded server: what a network and a busy server do to a client, on demand.

    server.faults.add(cut(120, how="rst"), route="stream")
    server.faults.add(rate_limited(2), route="create", times=3)

A fault waits for requests it matches and then strikes, once unless `times` says otherwise. Faults that
match the same request strike together, so `framing("close")` and `cut(9)` can be combined. The names of the
routes are in the docstring of `LocalServer`.
"""

from __future__ import annotations

import json
import threading
from dataclasses import field, fields, replace
from typing import Any, Callable, Iterable, Mapping, Optional

from mantyx_sync.local.http import Request, Response
from mantyx_sync.reprs import dataclass

__all__ = [
    "Effect",
    "Fault",
    "Faults",
    "answer",
    "close_after",
    "content_type",
    "cut",
    "drop",
    "framing",
    "hold",
    "hold_answer",
    "keep_open",
    "lose_answer",
    "pieces",
    "rate_limited",
    "replay",
    "rewrite",
    "silent",
]


@dataclass(frozen=True)
class Effect:
    """What happens to one request. The functions of this module build these; fields left alone do nothing."""

    answer: Optional[Response] = None
    wait: Optional[threading.Event] = None
    wait_answer: Optional[threading.Event] = None
    drop: Optional[str] = None
    lose: Optional[str] = None
    cut_after: Optional[int] = None
    cut_how: str = "fin"
    count: str = "body"
    silent_after: Optional[int] = None
    replay: int = 0
    framing: Optional[str] = None
    length: int = 0
    gzip: bool = False
    content_type: Optional[str] = None
    rewrite: Optional[Callable[[bytes], bytes]] = None
    piece_bytes: int = 0
    keep_open: bool = False
    close_after: bool = False

    def merged(self, other: Effect) -> Effect:
        """Combine two effects; where both say something, `other` wins."""
        changed = {
            entry.name: getattr(other, entry.name)
            for entry in fields(other)
            if getattr(other, entry.name) != entry.default
        }
        return replace(self, **changed)


NO_EFFECT = Effect()


def cut(after: int, how: str = "fin", *, count: str = "body") -> Effect:
    """End the connection once `after` bytes of the answer are out.

    Args:
        after: How many bytes get through; 0 is none.
        how: `fin` (a polite end of the connection), `rst` (a reset), or `end`, which ends the body
            correctly where it is, as a server does that is being deployed.
        count: `body` counts the bytes of the body without its transfer coding, `wire` all bytes of the
            answer, status line and headers included.
    """
    if how not in ("fin", "rst", "end"):
        raise ValueError(f"how must be fin, rst or end, got {how!r}")
    if count not in ("body", "wire"):
        raise ValueError(f"count must be body or wire, got {count!r}")
    return Effect(cut_after=after, cut_how=how, count=count)


def silent(after: int = 0) -> Effect:
    """Send `after` bytes of the body, then nothing at all, heartbeats included; the connection stays open."""
    return Effect(silent_after=after)


def answer(
    status: int, body: Any = None, *, headers: Mapping[str, str] | None = None, content_type: str | None = None
) -> Effect:
    """Answer with this instead of handling the request. A `body` that is not str or bytes is sent as JSON."""
    if body is None:
        raw = b""
    elif isinstance(body, bytes):
        raw = body
    elif isinstance(body, str):
        raw = body.encode()
        content_type = content_type or "text/plain; charset=utf-8"
    else:
        raw = json.dumps(body).encode()
    pairs = tuple((headers or {}).items())
    return Effect(answer=Response(status, raw, pairs, content_type or "application/json"))


def rate_limited(retry_after: float | str | None = 1, *, bucket: str = "run_starts", limit: int = 120) -> Effect:
    """Answer 429 with the platform's body and headers. `retry_after` may be an HTTP date, or None for no header."""
    headers = {
        "X-RateLimit-Limit": str(limit),
        "X-RateLimit-Remaining": "0",
        "X-RateLimit-Reset": "0",
        "X-RateLimit-Bucket": bucket,
    }
    if retry_after is not None:
        headers["Retry-After"] = str(retry_after)
    body = {"error": "rate_limit_exceeded", "code": "rate_limit_exceeded", "message": "Too many requests."}
    return answer(429, body, headers=headers)


def lose_answer(how: str = "fin") -> Effect:
    """Handle the request, then end the connection without a byte of answer."""
    return Effect(lose=how)


def drop(how: str = "fin") -> Effect:
    """Read the request and end the connection without handling it."""
    return Effect(drop=how)


def hold(event: threading.Event) -> Effect:
    """Handle the request only when `event` is set."""
    return Effect(wait=event)


def hold_answer(event: threading.Event) -> Effect:
    """Handle the request at once, but answer only when `event` is set."""
    return Effect(wait_answer=event)


def replay(events: int = 1_000_000) -> Effect:
    """On a stream that resumes, send up to so many events again that come before the requested place."""
    return Effect(replay=events)


def framing(how: str = "chunked", *, gzip: bool = False, length: int = 65536) -> Effect:
    """Send a stream's body in another coding; events still go out as they happen.

    Args:
        how: `chunked`; `close`: the end of the connection is the end of the body; `length`: a body of
            exactly `length` bytes, filled up with a comment, or cut where the events are longer.
        gzip: Compress, with a flush after every write.
        length: The `Content-Length` of `how="length"`.
    """
    if how not in ("chunked", "close", "length"):
        raise ValueError(f"how must be chunked, close or length, got {how!r}")
    return Effect(framing=how, gzip=gzip, length=length)


def content_type(value: str) -> Effect:
    """Label the answer with another content type."""
    return Effect(content_type=value)


def rewrite(change: Callable[[bytes], bytes]) -> Effect:
    """Pass every SSE frame of a stream through `change`: other line ends, no event line, twice, broken."""
    return Effect(rewrite=change)


def pieces(size: int) -> Effect:
    """Send a stream in HTTP chunks of at most `size` bytes."""
    return Effect(piece_bytes=size)


def keep_open() -> Effect:
    """Leave a stream open after its terminal event."""
    return Effect(keep_open=True)


def close_after() -> Effect:
    """Answer as if the connection stayed open, then close it: a keep-alive connection that went stale."""
    return Effect(close_after=True)


@dataclass(eq=False)
class Fault:
    """An effect with the requests it is for. `struck` is set when it strikes first, `hits` counts."""

    effect: Effect
    route: Optional[str] = None
    skip: int = 0
    times: Optional[int] = 1
    when: Optional[Callable[[Request], bool]] = None
    hits: int = 0
    struck: threading.Event = field(default_factory=threading.Event, repr=False)

    def take(self, request: Request) -> bool:
        """Tell whether the fault strikes this request, and count."""
        if self.route is not None and self.route != request.route:
            return False
        if self.when is not None and not self.when(request):
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        if self.times is not None and self.hits >= self.times:
            return False
        self.hits += 1
        self.struck.set()
        return True


class Faults:
    """The faults of one server. Safe to use while the server runs."""

    def __init__(self, faults: Iterable[Fault | Effect] = ()) -> None:
        self._faults = [entry if isinstance(entry, Fault) else Fault(entry) for entry in faults]
        self._lock = threading.Lock()

    def add(
        self,
        effect: Effect,
        *,
        route: str | None = None,
        skip: int = 0,
        times: int | None = 1,
        when: Callable[[Request], bool] | None = None,
    ) -> Fault:
        """Let `effect` strike matching requests.

        Args:
            effect: What happens; see the functions of this module.
            route: Only requests of this route; None means any.
            skip: Let so many matching requests through first.
            times: Strike so often; None means always.
            when: Only requests for which this returns true.

        Returns:
            The fault, whose `hits` and `struck` tell what it did.
        """
        fault = Fault(effect, route, skip, times, when)
        with self._lock:
            self._faults.append(fault)
        return fault

    def clear(self) -> None:
        """Forget all faults; what they did to open connections stays."""
        with self._lock:
            self._faults.clear()

    def take(self, request: Request) -> Effect:
        """Return what happens to `request`."""
        if not self._faults:
            return NO_EFFECT
        effect = NO_EFFECT
        with self._lock:
            for fault in self._faults[:]:
                if fault.take(request):
                    effect = effect.merged(fault.effect)
                    if fault.times is not None and fault.hits >= fault.times:
                        self._faults.remove(fault)
        return effect
