"""One client's connection to an embedded server: requests in, answers and event streams out, faults between.

Everything here runs on the socket loop's thread.
"""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import struct
import threading
import time
import zlib
from typing import TYPE_CHECKING, Callable, Optional

from mantyx_sync.local.answers import Answer, KnownAnswer, Later, NoAnswer, RelayedResponse, StreamResponse
from mantyx_sync.local.faults import NO_EFFECT, Effect
from mantyx_sync.local.frames import FrameLog, PieceLog
from mantyx_sync.local.http import BadHttp, Request, RequestParser, Response, encode_head

if TYPE_CHECKING:
    from mantyx_sync.local.loop import SocketLoop

__all__ = ["Connection"]

_log = logging.getLogger(__name__)

RECV_BYTES = 65536
# One turn of the loop gives a stream at most so much before others are served.
MAX_FRAMES_PER_WRITE = 1024
MAX_BYTES_PER_WRITE = 256 * 1024
# A client has no business sending this much while it reads a stream.
MAX_PIPELINED_BYTES = 1024 * 1024
HEARTBEAT = b": keep-alive\n\n"
_RESET = struct.pack("ii", 1, 0)


class _Stream:
    """How one event stream is being sent."""

    def __init__(self, log: FrameLog, position: int, effect: Effect) -> None:
        self.log = log
        self.position = position
        self.effect = effect
        self.framing = effect.framing or "chunked"  # or `sized`: a body of known length, sent as it is
        self.gzip = zlib.compressobj(wbits=31) if effect.gzip else None
        self.is_relayed = isinstance(log, PieceLog)
        self.sent = 0  # body bytes so far, transfer coding not counted
        self.last_write = time.monotonic()


class Connection:
    """Reads requests, lets the loop's handler answer them, and feeds a stream as its run goes on."""

    def __init__(self, loop: SocketLoop, sock: socket.socket, peer: str) -> None:
        self._loop = loop
        self._sock = sock
        self._peer = peer
        self._parser = RequestParser()
        self._out = bytearray()
        self._mask = selectors.EVENT_READ
        self._stream: Optional[_Stream] = None
        self._waiting = False  # a fault holds the request or its answer, or the answer is not known yet
        self._later: Optional[Later] = None
        self._end: Optional[str] = None  # how to end the connection once `_out` is empty
        self._muted = False
        self._keep_alive = True
        self._wire_left: Optional[int] = None
        self._wire_how = "fin"
        self._closed = False
        loop.connections.add(self)
        loop.selector.register(sock, self._mask, self._ready)

    # ------------------------------------------------------------------ I/O

    def _ready(self, mask: int) -> None:
        try:
            if mask & selectors.EVENT_WRITE:
                self._flush()
            if mask & selectors.EVENT_READ and not self._closed:
                self._read()
        except Exception:
            self.fail()

    def fail(self) -> None:
        """Give up this connection, and only this one: a test's own function raised, or ours did."""
        _log.exception("a connection of the embedded server failed")
        self.close()

    def _read(self) -> None:
        try:
            data = self._sock.recv(RECV_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:  # the client has left, or said that it will: either way it wants no more
            self.close()
            return
        self._parser.feed(data)
        if self._stream is None and not self._waiting and not self._muted:
            self._next_requests()
        elif self._parser.buffered > MAX_PIPELINED_BYTES:
            self.close()

    def _write(self, data: bytes) -> None:
        if self._closed or self._end is not None or self._muted:
            return
        if self._wire_left is not None:
            if len(data) >= self._wire_left:
                data = data[: self._wire_left]
                self._end = self._wire_how
            self._wire_left -= len(data)
        if not self._out:
            try:
                sent = self._sock.send(data)
            except BlockingIOError:
                sent = 0
            except OSError:
                self.close()
                return
            if sent == len(data):
                if self._end is not None:
                    self._finish()
                return
            data = data[sent:]
        self._out += data
        self._watch(selectors.EVENT_READ | selectors.EVENT_WRITE)

    def _flush(self) -> None:
        try:
            sent = self._sock.send(self._out)
        except BlockingIOError:
            return
        except OSError:
            self.close()
            return
        del self._out[:sent]
        if self._out:
            return
        self._watch(selectors.EVENT_READ)
        if self._end is not None:
            self._finish()
        elif self._stream is not None:
            self.pump()
        else:
            self._next_requests()

    def _watch(self, mask: int) -> None:
        if mask != self._mask:
            self._mask = mask
            self._loop.selector.modify(self._sock, mask, self._ready)

    def _finish(self) -> None:
        self.close(self._end or "fin")

    def _end_after_flush(self, how: str) -> None:
        if self._closed or self._end is not None:
            return
        self._end = how
        if not self._out:
            self._finish()

    def close(self, how: str = "fin") -> None:
        """End the connection now: `fin` or `rst`."""
        if self._closed:
            return
        self._closed = True
        self._forget_stream()
        later, self._later = self._later, None
        if later is not None:
            later.left()
        self._loop.connections.discard(self)
        self._loop.selector.unregister(self._sock)
        with contextlib.suppress(OSError):
            if how == "rst":
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            else:
                self._sock.shutdown(socket.SHUT_WR)
                # Closing with unread bytes would reset the connection and could swallow what was sent.
                self._sock.recv(RECV_BYTES)
        self._sock.close()

    def _forget_stream(self) -> None:
        if self._stream is None:
            return
        log = self._stream.log
        readers = self._loop.streams.get(log.id)
        if readers is not None:
            readers.discard(self)
            if not readers:
                del self._loop.streams[log.id]
        self._stream = None
        log.reader_left()

    # ------------------------------------------------------------- requests

    def _next_requests(self) -> None:
        while not (self._closed or self._waiting or self._muted or self._out or self._end or self._stream):
            try:
                request = self._parser.next()
            except BadHttp as problem:
                body = self._loop.refuse(problem.status, str(problem))
                self._send(body, keep_alive=False, effect=NO_EFFECT)
                return
            if request is None:
                if self._parser.wants_continue:
                    self._parser.wants_continue = False
                    self._write(b"HTTP/1.1 100 Continue\r\n\r\n")
                return
            self._begin(request)

    def _begin(self, request: Request) -> None:
        request.peer = self._peer
        request.route = self._loop.route_of(request)
        effect = self._loop.faults.take(request)
        self._loop.on_request(request)
        if effect is NO_EFFECT:
            self._answer(request, self._handle(request), effect)
        elif effect.wait is not None:
            self._hold(effect.wait, lambda: self._begin_now(request, effect))
        else:
            self._begin_now(request, effect)

    def _begin_now(self, request: Request, effect: Effect) -> None:
        if effect.drop is not None:
            self._end_after_flush(effect.drop)
            return
        answer = effect.answer if effect.answer is not None else self._handle(request)
        if effect.wait_answer is not None:
            self._hold(effect.wait_answer, lambda: self._answer(request, answer, effect))
        else:
            self._answer(request, answer, effect)

    def _handle(self, request: Request) -> Answer:
        try:
            return self._loop.handler(request)
        except Exception:
            _log.exception("%s %s failed", request.method, request.target.partition("?")[0])
            return self._loop.refuse(500, "The embedded server failed.")

    def _hold(self, event: threading.Event, then: Callable[[], None]) -> None:
        """Wait for a test's event on another thread, then go on here."""
        self._waiting = True
        loop = self._loop

        def resume() -> None:
            self._waiting = False
            try:
                then()
                if not self._closed:
                    self._next_requests()
            except Exception:
                self.fail()

        def wait() -> None:
            while not event.wait(0.02):
                if loop.stopping.is_set():
                    return
            loop.post(resume)

        loop.run_blocking(wait)

    # -------------------------------------------------------------- answers

    def _await(self, request: Request, later: Later, effect: Effect) -> None:
        """Go on with the request when its answer is known."""
        self._waiting, self._later = True, later
        loop = self._loop

        def go_on(answer: KnownAnswer) -> None:
            self._waiting, self._later = False, None
            try:
                self._answer(request, answer, effect)
                if not self._closed:
                    self._next_requests()
            except Exception:
                self.fail()

        later.then(lambda answer: loop.post(lambda: go_on(answer)))

    def _answer(self, request: Request, answer: Answer, effect: Effect) -> None:
        if isinstance(answer, Later):
            self._await(request, answer, effect)
            return
        lost = answer.how if isinstance(answer, NoAnswer) else effect.lose
        if effect.cut_after is not None and effect.count == "wire":
            self._wire_left, self._wire_how = effect.cut_after, effect.cut_how
            if self._wire_left <= 0:
                lost = lost or self._wire_how
        if lost is not None or self._closed or isinstance(answer, NoAnswer):
            if isinstance(answer, (StreamResponse, RelayedResponse)):
                answer.log.reader_left()
            self._end_after_flush(lost or "fin")
        elif isinstance(answer, StreamResponse):
            self._open_stream(request, answer, effect)
        elif isinstance(answer, RelayedResponse):
            self._open_relay(request, answer, effect)
        else:
            self._send(answer, keep_alive=request.keep_alive, effect=effect)

    def _send(self, answer: Response, *, keep_alive: bool, effect: Effect) -> None:
        headers = [*self._loop.first_headers(), *answer.headers]
        body = answer.body
        if answer.status != 204:
            headers.append(("Content-Type", effect.content_type or answer.content_type))
            headers.append(("Content-Length", str(len(body))))
        if not keep_alive:
            headers.append(("Connection", "close"))
        end = None if keep_alive and not effect.close_after else "fin"
        if effect.cut_after is not None and effect.count == "body":
            body, end = body[: effect.cut_after], effect.cut_how if effect.cut_how != "end" else "fin"
        if effect.silent_after is not None:
            body = body[: effect.silent_after]
        self._write(encode_head(answer.status, headers) + body)
        if effect.silent_after is not None:
            self._muted = True
        elif end is not None:
            self._end_after_flush(end)

    # -------------------------------------------------------------- streams

    def _open_stream(self, request: Request, answer: StreamResponse, effect: Effect) -> None:
        position = answer.last_seq
        if effect.replay:
            position = max(0, position - effect.replay)
        headers = [
            *self._loop.first_headers(),
            *answer.headers,
            ("Content-Type", effect.content_type or answer.content_type),
            ("Cache-Control", "no-cache"),
            *answer.more_headers,
        ]
        self._begin_body(request, 200, headers, _Stream(answer.log, position, effect))

    def _open_relay(self, request: Request, answer: RelayedResponse, effect: Effect) -> None:
        headers = [*self._loop.first_headers(), *answer.headers]
        if effect.content_type:
            headers = [pair for pair in headers if pair[0].lower() != "content-type"]
            headers.append(("Content-Type", effect.content_type))
        stream = _Stream(answer.log, 0, effect)
        if request.method == "HEAD" or answer.status in (204, 304):
            stream.framing = "sized"
        elif answer.length is not None:
            headers.append(("Content-Length", str(answer.length)))
            stream.framing = "sized"
        self._begin_body(request, answer.status, headers, stream)

    def _begin_body(self, request: Request, status: int, headers: list[tuple[str, str]], stream: _Stream) -> None:
        """Send the head and what there is of the body; the rest follows as its log grows."""
        effect = stream.effect
        if stream.gzip is not None:
            headers.append(("Content-Encoding", "gzip"))
        if stream.framing == "chunked" and request.is_old:
            stream.framing = "close"
        if stream.framing == "chunked":
            headers.append(("Transfer-Encoding", "chunked"))
        elif stream.framing == "length":
            headers.append(("Content-Length", str(effect.length)))
        if not request.keep_alive or stream.framing == "close":
            headers.append(("Connection", "close"))
            self._keep_alive = False
        else:
            self._keep_alive = not effect.close_after
        self._stream = stream
        self._loop.streams.setdefault(stream.log.id, set()).add(self)
        stream.log.announced = False
        head = encode_head(status, headers)
        first = self._take(stream)
        if effect.cut_after is not None or effect.silent_after is not None:
            self._write(head)
            self._push(stream, first)
        else:
            # Head and first events in one packet.
            self._write(head + self._encode(stream, first) if first else head)
        self.pump()

    def pump(self) -> None:
        """Send the events that are new, unless earlier ones still wait for the client to read."""
        stream = self._stream
        if stream is None or self._out or self._closed or self._muted or self._end is not None:
            return
        done = stream.log.is_terminal  # looked at first: what follows then sees the whole log
        payload = self._take(stream)
        if payload:
            self._push(stream, payload)
        if self._stream is not stream:
            return
        if stream.position < len(stream.log.frames):
            self._loop.run_changed(stream.log)  # the rest when the others have had their turn
        elif done and not self._out and self._end is None and not self._muted:
            self._end_stream(stream)

    def beat(self, before: float) -> None:
        """Send a comment if nothing was sent since `before`."""
        stream = self._stream
        if stream is not None and stream.last_write <= before and not self._out:
            self._push(stream, HEARTBEAT)

    def _take(self, stream: _Stream) -> bytes:
        count = 1 if stream.is_relayed else MAX_FRAMES_PER_WRITE
        frames = stream.log.frames[stream.position : stream.position + count]
        if not frames:
            return b""
        if sum(map(len, frames)) > MAX_BYTES_PER_WRITE:
            size = 0
            for number, frame in enumerate(frames, 1):  # pragma: no branch
                size += len(frame)
                if size > MAX_BYTES_PER_WRITE:
                    frames = frames[:number]
                    break
        if stream.log.forgets:
            del stream.log.frames[: len(frames)]
        else:
            stream.position += len(frames)
        change = stream.effect.rewrite
        return b"".join(frames) if change is None else b"".join([change(frame) for frame in frames])

    def _push(self, stream: _Stream, payload: bytes) -> None:
        """Send a part of the body, or as much of it as the faults let through."""
        effect = stream.effect
        if stream.gzip is not None:
            payload = stream.gzip.compress(payload) + stream.gzip.flush(zlib.Z_SYNC_FLUSH)
        how = None
        if effect.cut_after is not None and effect.count == "body":
            left = effect.cut_after - stream.sent
            if len(payload) >= left:
                payload, how = payload[:left], effect.cut_how
        if effect.silent_after is not None and stream.sent + len(payload) >= effect.silent_after:
            payload = payload[: effect.silent_after - stream.sent]
            how = "silent"
        if stream.framing == "length" and stream.sent + len(payload) >= effect.length:
            payload, how = payload[: effect.length - stream.sent], how or "end"
        if payload:
            self._write(self._encode_raw(stream, payload))
        if how == "silent":
            self._muted = True
        elif how == "end":
            self._close_body(stream)
        elif how is not None:
            self._end_after_flush(how)

    def _encode(self, stream: _Stream, payload: bytes) -> bytes:
        if stream.gzip is not None:
            payload = stream.gzip.compress(payload) + stream.gzip.flush(zlib.Z_SYNC_FLUSH)
        return self._encode_raw(stream, payload)

    def _encode_raw(self, stream: _Stream, payload: bytes) -> bytes:
        stream.sent += len(payload)
        stream.last_write = time.monotonic()
        if stream.framing != "chunked":
            return payload
        size = stream.effect.piece_bytes
        if not size:
            return b"%x\r\n%b\r\n" % (len(payload), payload)
        parts = [payload[start : start + size] for start in range(0, len(payload), size)]
        return b"".join([b"%x\r\n%b\r\n" % (len(part), part) for part in parts])

    def _end_stream(self, stream: _Stream) -> None:
        if isinstance(stream.log, PieceLog) and stream.log.broken is not None:
            self._end_after_flush(stream.log.broken)
            return
        if stream.effect.keep_open:
            return
        if stream.gzip is not None:
            tail = stream.gzip.flush(zlib.Z_FINISH)
            self._write(self._encode_raw(stream, tail))
        if stream.framing == "length":
            # A comment fills the body up to its announced length; behind a gzip stream it is zero bytes.
            filler = b":" if stream.gzip is None else b"\0"
            self._write(self._encode_raw(stream, filler * max(0, stream.effect.length - stream.sent)))
        self._close_body(stream)

    def _close_body(self, stream: _Stream) -> None:
        """End the body as its coding demands; the connection is free for the next request."""
        if stream.framing == "chunked":
            self._write(b"0\r\n\r\n")
        self._forget_stream()
        if stream.framing == "close" or not self._keep_alive:
            self._end_after_flush("fin")
        else:
            self._next_requests()
