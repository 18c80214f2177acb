"""What to send, when, and behind which requests, so that a recording is played as it happened. Does no I/O.

A stream may say what it says because of a request that came meanwhile: the result of a tool, a cancellation. Such a
request has to come again before the stream goes on. Requests that have to do with other runs do not matter, nor those
that change nothing: what runs at the same time may come in another order each time.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Callable, Iterable, Mapping, Optional, Sequence

from mantyx_sync.local.matching import without_slug
from mantyx_sync.local.recording import CLIENT_LEFT, COMPLETE, Exchange, Piece
from mantyx_sync.local.rewriting import FRAME_END, rewrite_pieces

__all__ = ["Plan", "Step", "Tape", "split_frames"]

_WITH_ID = re.compile(r"/(?:agent-runs|agent-sessions|eval-runs)/([^/]+)")
_AGENT_RUN = re.compile(rb'"agentRunId"\s*:\s*"([^"]+)"')
_WORD = re.compile(r"[\w-]+")
_STATUSES = {"result": "succeeded", "error": "failed", "cancelled": "cancelled"}
_ENDS_A_STREAM = frozenset({*_STATUSES, "run_completed", "run_error", "run_cancelled"})


@dataclass(frozen=True)
class Step:
    """A part of a body, sent `gap` seconds behind what came before it, once the requests in `needs` have come."""

    data: bytes
    gap: float
    needs: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Plan:
    """How one answer is played: its head, the steps of its body, and its end, which is a step without data."""

    status: Optional[int]
    headers: tuple[tuple[str, str], ...]
    is_sized: bool
    length: Optional[int]
    head_gap: float
    steps: tuple[Step, ...]
    end: str
    last: Step
    title: str
    last_seq: int = 0
    """The number of the newest event behind which a stream goes on."""


@dataclass(frozen=True)
class _Frame:
    seq: Optional[int]
    kind: str
    data: bytes
    piece: Piece
    envelope: Mapping[str, Any]


def split_frames(pieces: Iterable[Piece]) -> list[_Frame]:
    """Cut the body of an event stream into its complete frames, each with the piece that completed it."""
    frames: list[_Frame] = []
    open_part = bytearray()
    for piece in pieces:
        looked_at = max(0, len(open_part) - 3)  # only once: an event may be large, and come in many pieces
        open_part += piece.data
        start = 0
        for end in [found.end() for found in FRAME_END.finditer(open_part, looked_at)]:
            frames.append(_read_frame(bytes(open_part[start:end]), piece))
            start = end
        del open_part[:start]
    return frames


def _read_frame(data: bytes, piece: Piece) -> _Frame:
    seq: Optional[int] = None
    kind = ""
    payload = []
    for line in data.decode("utf-8", "replace").splitlines():
        name, _, value = line.partition(":")
        value = value[1:] if value.startswith(" ") else value
        if name == "id" and value.isascii() and value.isdigit():
            seq = int(value)
        elif name == "event":
            kind = value
        elif name == "data":
            payload.append(value)
    try:
        envelope: Any = json.loads("\n".join(payload))
    except (ValueError, RecursionError):
        envelope = None
    if isinstance(envelope, dict):
        kind = str(envelope.get("type") or kind)
        number = envelope.get("seq")
        seq = number if seq is None and isinstance(number, int) else seq
    return _Frame(seq, kind, data, piece, envelope if isinstance(envelope, dict) else {})


class Tape:
    """A recording with what in it depends on what."""

    def __init__(self, exchanges: Sequence[Exchange]) -> None:
        self.exchanges = exchanges
        self._by_number = {exchange.number: exchange for exchange in exchanges}
        self._owners: dict[str, str] = {}  # the session that a run belongs to
        for exchange in exchanges:
            if exchange.method == "POST" and exchange.path.endswith("/messages"):
                answer = exchange.answer_json()
                if isinstance(answer, dict) and isinstance(answer.get("runId"), str):
                    self._owners[answer["runId"]] = _id_in(exchange.path)
        # Looked up for each answer, of which there may be thousands.
        self._streams: dict[str, list[Exchange]] = {}
        self._changes: dict[str, list[Exchange]] = {}
        for exchange in exchanges:
            if exchange.is_stream:
                self._streams.setdefault(without_slug(exchange.path), []).append(exchange)
            if _changes_a_run(exchange):
                self._changes.setdefault(_id_in(exchange.path), []).append(exchange)

    def at(self, number: int) -> Exchange:
        """Return an exchange by its number."""
        return self._by_number[number]

    def plan(self, exchange: Exchange, renamed: Mapping[str, str]) -> Plan:
        """Return how an answer is played as it was recorded."""
        pieces = _renamed(exchange, renamed)
        steps, last = self._steps(exchange, pieces, exchange.head_at, exchange.head_order)
        return Plan(
            exchange.status,
            tuple(exchange.answer_headers),
            exchange.length is not None,
            exchange.length,
            max(0.0, (exchange.end_at if exchange.status is None else exchange.head_at) - exchange.at),
            steps,
            _end_of(exchange),
            last,
            _title(exchange),
            max((frame.seq or 0 for frame in split_frames(pieces)), default=0) if exchange.is_stream else 0,
        )

    def resumed(self, path: str, last_seq: int, renamed: Mapping[str, str]) -> Plan | None:
        """Return how a stream is played behind an event, whoever opened it how often when it was recorded.

        Its events are those of all its recorded connections. Where a server numbers none, the connection with the most
        is played from its beginning, as such servers do.
        """
        found = self._streams.get(path, [])
        if not found:
            return None
        first, final = found[0], found[-1]
        by_seq: dict[int, _Frame] = {}
        unnumbered: list[_Frame] = []
        longest = final
        for exchange in found:
            frames = split_frames(_renamed(exchange, renamed))
            for frame in frames:
                if frame.seq is not None:
                    by_seq.setdefault(frame.seq, frame)
            if len(frames) > len(unnumbered):
                unnumbered, longest = frames, exchange
        if by_seq:
            frames = [by_seq[seq] for seq in sorted(by_seq) if seq > last_seq]
        else:
            frames, final = unnumbered, longest
        pieces = [Piece(frame.data, frame.piece.at, frame.piece.order) for frame in frames]
        start = pieces[0] if pieces else Piece(b"", final.end_at, final.end_order)
        steps, last = self._steps(final, pieces, start.at, 0)
        is_over = any(frame.kind in _ENDS_A_STREAM for frame in [*by_seq.values(), *unnumbered])
        end = COMPLETE if is_over else _end_of(final)
        highest = max(by_seq, default=0)
        headers = tuple(first.answer_headers)
        return Plan(first.status, headers, False, None, 0.0, steps, end, last, _title(final), highest)

    def snapshot(self, path: str, have_come: Callable[[frozenset[int]], bool]) -> dict[str, Any] | None:
        """Return how a run stands by what was recorded of its stream; `None` if that was not, or is no run's.

        Args:
            path: The stream's.
            have_come: Tells whether requests that the run's end waits for have come.
        """
        streams = self._streams.get(path, [])
        if not streams or "/agent-runs/" not in path:
            return None
        snapshot: dict[str, Any] = {"id": _id_in(path), "status": "running", "metadata": {}}
        last = [frame for stream in streams for frame in split_frames(stream.pieces) if frame.kind in _STATUSES]
        if last:
            causes = [cause.number for cause in self._causes(streams[-1]) if cause.order < last[0].piece.order]
            if have_come(frozenset(causes)):
                snapshot.update(_outcome(last[0]))
        return snapshot

    def _steps(
        self, exchange: Exchange, pieces: Sequence[Piece], since: float, since_order: int
    ) -> tuple[tuple[Step, ...], Step]:
        causes = self._causes(exchange) if exchange.is_stream else []
        steps = []
        before = since
        for piece in [*pieces, Piece(b"", exchange.end_at, exchange.end_order)]:
            needs = [cause for cause in causes if cause.order < piece.order]
            causes = causes[len(needs) :]
            before = max([before, *(cause.at for cause in needs if cause.order > since_order)])
            steps.append(Step(piece.data, max(0.0, piece.at - before), frozenset(cause.number for cause in needs)))
            before = max(before, piece.at)
        return tuple(steps[:-1]), steps[-1]

    def _causes(self, exchange: Exchange) -> list[Exchange]:
        """Return the recorded requests that a stream may react to, in their order."""
        ids = {_id_in(exchange.path)}
        ids |= {self._owners[run_id] for run_id in ids if run_id in self._owners}
        ids |= {found.decode("utf-8", "replace") for found in _AGENT_RUN.findall(exchange.answer_body)}
        found = [change for run_id in ids for change in self._changes.get(run_id, ())]
        return sorted(found, key=lambda change: change.order)


def _changes_a_run(exchange: Exchange) -> bool:
    if exchange.status is not None and exchange.status >= 300:
        return False  # refused: nothing came of it
    if exchange.method == "DELETE":
        return True
    return exchange.method == "POST" and exchange.path.endswith(("/tool-results", "/cancel"))


def _id_in(path: str) -> str:
    found = _WITH_ID.search(path)
    return found.group(1) if found else ""


def _outcome(terminal: _Frame) -> dict[str, Any]:
    """Return what a snapshot says of a run that has ended with this event."""
    data = terminal.envelope.get("data")
    said: Mapping[str, Any] = data if isinstance(data, dict) else {}
    status = _STATUSES[terminal.kind]
    if terminal.kind == "result" and said.get("subtype", "success") != "success":
        status = "failed"
    found = {"status": status, "finalText": said.get("text", said.get("partialText")), "error": said.get("error")}
    if status == "failed":
        reason = {"errorClass": said.get("errorClass", said.get("subtype")), "finishReason": said.get("finishReason")}
        found["failureReason"] = reason
    return {**found, **{name: said.get(name) for name in ("tokens", "turns", "model", "structuredOutput", "plan")}}


def _title(exchange: Exchange) -> str:
    return f"{exchange.method} {exchange.path} (line {exchange.order})"


def _end_of(exchange: Exchange) -> str:
    """How an answer ended; a client that left when it had everything has not cut it short."""
    if exchange.end != CLIENT_LEFT or exchange.status is None:
        return exchange.end
    if exchange.is_stream:
        is_over = any(frame.kind in _ENDS_A_STREAM for frame in split_frames(exchange.pieces))
    else:
        is_over = exchange.length is not None and len(exchange.answer_body) >= exchange.length
    return COMPLETE if is_over else CLIENT_LEFT


def _renamed(exchange: Exchange, renamed: Mapping[str, str]) -> list[Piece]:
    def change(text: str) -> str:
        # By words: of a thousand runs there are a thousand names, and each answer would be looked through for each.
        return _WORD.sub(lambda found: renamed.get(found.group(), found.group()), text)

    return rewrite_pieces(exchange.pieces, change, is_stream=exchange.is_stream) if renamed else exchange.pieces
