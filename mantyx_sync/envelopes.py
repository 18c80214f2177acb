"""Frames of a run's stream -> envelopes that are new. Does no I/O.

An envelope is the JSON object `{"seq", "type", "data"}` as the server sent it (wire §4). It stays a plain dict on its
way to the caller: most events are text deltas, and building an object for each is left to whoever looks at them.
"""

from __future__ import annotations

import json
import logging
from typing import Any, Callable

from .events import DELTA_TYPES, NO_SEQ, Envelope, read_envelope
from .transport.sse import Frame, parse_frame

__all__ = ["EnvelopeReader"]

log = logging.getLogger(__name__)


def _big_int(digits: str) -> Any:
    try:
        return int(digits)
    except ValueError:  # more digits than the interpreter converts; kept as text rather than lost
        return digits


# strict=False: a raw control character inside a string is taken as it is, a tool's output may hold any.
_scan: Callable[[str, int], Any] = json.JSONDecoder(strict=False).scan_once  # type: ignore[attr-defined]  # what raw_decode calls
_scan_slowly = json.JSONDecoder(strict=False, parse_int=_big_int).decode


class EnvelopeReader:
    """Read the frames of one run, over any number of connections; each event comes out once, in order.

    What a reconnect replays is recognised by its `seq`. `last_seq` is the place to resume from.
    """

    def __init__(self, last_seq: int = 0) -> None:
        self.last_seq = last_seq or NO_SEQ  # the first event of a run may well be number 0
        self.chars_read = 0
        """Size of all frames read so far, replays included."""
        self.retry_ms: int | None = None
        self.notable: list[Envelope] = []
        """What the last `read` returned, without the text deltas."""
        self._last_id: str | None = str(last_seq) if last_seq else None

    def resume_headers(self) -> dict[str, str]:
        """Return the header that asks the server to go on behind the last event read (wire §10)."""
        return {"Last-Event-ID": self._last_id} if self._last_id else {}

    def read(self, frames: list[str]) -> list[Envelope]:
        """Return the envelopes in `frames` that were not read before."""
        fresh: list[Envelope] = []
        self.notable = notable = []
        append, scan = fresh.append, _scan
        last = self.last_seq
        named_at = NO_SEQ  # the place at which a frame without an event named another one to resume from
        self.chars_read += sum(map(len, frames))
        for frame in frames:
            # The plain form: fields of one line each and a data line at the end, or nothing but a data line. Its
            # JSON is read in place; every other form takes the slow road through sseclient-py.
            at = frame.find("data")
            envelope: Any = None
            if frame[at - 1 : at + 6] == "\ndata: " or (at == 0 and frame[4:6] == ": "):
                try:
                    envelope, end = scan(frame, at + 6)
                except (ValueError, StopIteration, RecursionError):
                    end = -1
                if end != len(frame):
                    envelope = None
            try:
                seq, kind = envelope["seq"], envelope["type"]
                if type(seq) is not int or type(kind) is not str or type(envelope["data"]) is not dict:
                    raise KeyError
            except (TypeError, KeyError):
                named = self._last_id
                envelope = self._slow(frame)
                if envelope is None:
                    if self._last_id != named:
                        named_at = last
                    continue
                seq, kind = envelope["seq"], envelope["type"]
            if seq != NO_SEQ:
                if seq <= last:
                    continue
                self.last_seq = last = seq
            append(envelope)
            if kind not in DELTA_TYPES:
                notable.append(envelope)
        if fresh and last != named_at:
            self._last_id = str(last)
        return fresh

    def _slow(self, frame: str) -> Envelope | None:
        """Read a frame of any form; `None` if it carries no event."""
        parsed = parse_frame(frame)
        if parsed.retry_ms is not None:
            self.retry_ms = parsed.retry_ms
        if parsed.id is not None:
            self._note_id(parsed.id)
        if not parsed.data:
            return None
        try:
            payload = _scan_slowly(parsed.data)
        except (ValueError, RecursionError):
            _note_skipped(parsed, "is not JSON")
            return None
        envelope = read_envelope(payload, parsed.event, parsed.id)
        if envelope is None:
            _note_skipped(parsed, "is not an event of a run")
        return envelope

    def _note_id(self, event_id: str) -> None:
        # The id becomes a header: only what a header can carry, of a sane size, replaces the last good one.
        if not event_id:
            self._last_id = None
        elif len(event_id) <= 256 and event_id.isascii() and event_id.isprintable():
            self._last_id = event_id


def _note_skipped(frame: Frame, why: str) -> None:
    size, name = len(frame.data or ""), (frame.event or "")[:40]
    log.warning("an event of the stream was skipped: its payload (%d characters, event %r) %s", size, name, why)
