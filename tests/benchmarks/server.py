"""The scenario server: plays runs over HTTP on loopback, lean enough not to be what is measured.

One thread, one selector, ready-made bytes, standard library only. It knows the routes of a run (create, stream,
tool results, cancel, snapshot) and resumes a stream honestly after `lastSeq` or `Last-Event-ID`.
`python -m tests.benchmarks.server` prints its port and ends when its standard input does.
"""

from __future__ import annotations

import heapq
import itertools
import json
import re
import selectors
import socket
import sys
import time
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Optional, Tuple

from tests.benchmarks.plays import LAST_CHUNK, Play, body, chunk, frame, ping_answer, result_frame

__all__ = ["API_KEY", "WORKSPACE", "ScenarioServer"]

API_KEY = "mantyx_benchmark"
WORKSPACE = "benchmark"

_PREFIX = f"/api/v1/workspaces/{WORKSPACE}/agent-runs"
_CONTENT_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)", re.IGNORECASE)
_LAST_EVENT_ID = re.compile(rb"\r\nlast-event-id:[ \t]*(\d+)", re.IGNORECASE)
_LAST_SEQ = re.compile(rb"[?&]lastSeq=(\d+)")
_BEARER = re.compile(rb"\r\nauthorization:[ \t]*bearer[ \t]+" + API_KEY.encode() + rb"[ \t]*\r\n", re.IGNORECASE)
_NO_CONTENT = b"HTTP/1.1 204 No Content\r\n\r\n"
_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    b"Cache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n"
)
_REASONS = {200: "OK", 202: "Accepted", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 409: "Conflict"}


def _answer(status: int, payload: Any) -> bytes:
    text = json.dumps(payload).encode()
    head = f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: application/json\r\nContent-Length: {len(text)}"
    return head.encode() + b"\r\n\r\n" + text


class _Connection:
    """One socket: bytes that came, bytes that wait to go."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.inbox = bytearray()
        self.outbox: Deque[memoryview] = deque()
        self.run: Optional[_Run] = None  # the run whose live events go here


class _Run:
    """A run of the server: its play, the events so far, the calls that are open."""

    def __init__(self, run_id: str, play: Play) -> None:
        self.run_id = run_id
        self.play = play
        self.log: List[bytes] = []
        self.streams: List[_Connection] = []
        self.open_calls: Dict[str, int] = {}
        self.started = False
        self.ended = False
        self.asked = 0  # ticks sent or tool calls asked for
        self.answered = 0
        self.wrong = 0
        self.final_text: Optional[str] = None

    @property
    def next_seq(self) -> int:
        return len(self.log) + 1


class ScenarioServer:
    """Serve until `stop()`; `base_url` is good as soon as the constructor returns."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self.base_url = f"http://127.0.0.1:{self.port}"
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._wake_in, self._wake_out = socket.socketpair()
        self._selector.register(self._wake_in, selectors.EVENT_READ, self._stop_asked)
        self._stopped = False
        self._connections: Dict[int, _Connection] = {}
        self._runs: Dict[str, _Run] = {}
        self._groups: Dict[str, List[_Run]] = {}
        self._timers: List[Tuple[float, int, _Run]] = []
        self._numbers = itertools.count(1)

    def watch(self, sock: Any) -> None:
        """Stop when `sock` becomes readable, as the standard input of a child does when its parent ends."""
        self._selector.register(sock, selectors.EVENT_READ, self._stop_asked)

    def stop(self) -> None:
        """Make `serve` return. Any thread may call it."""
        self._wake_out.send(b"x")

    def serve(self) -> None:
        try:
            while not self._stopped:
                timeout = max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None
                for key, mask in self._selector.select(timeout):
                    if isinstance(key.data, _Connection):
                        self._ready(key.data, mask)
                    else:
                        key.data()
                self._tick()
        finally:
            for connection in list(self._connections.values()):
                self._drop(connection)
            for sock in (self._listener, self._wake_in, self._wake_out):
                sock.close()
            self._selector.close()

    # Sockets

    def _stop_asked(self) -> None:
        self._stopped = True

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except BlockingIOError:
                return
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = _Connection(sock)
            self._connections[sock.fileno()] = connection
            self._selector.register(sock, selectors.EVENT_READ, connection)

    def _drop(self, connection: _Connection) -> None:
        if self._connections.pop(connection.sock.fileno(), None) is None:
            return
        if connection.run is not None and connection in connection.run.streams:
            connection.run.streams.remove(connection)
        self._selector.unregister(connection.sock)
        connection.sock.close()

    def _ready(self, connection: _Connection, mask: int) -> None:
        try:
            if mask & selectors.EVENT_WRITE:
                self._flush(connection)
            if mask & selectors.EVENT_READ:
                data = connection.sock.recv(65536)
                if not data:
                    self._drop(connection)
                    return
                connection.inbox += data
                while self._take_request(connection):
                    pass
        except BlockingIOError:
            return
        except OSError:
            self._drop(connection)

    def _send(self, connection: _Connection, *parts: bytes) -> None:
        connection.outbox.extend(memoryview(part) for part in parts if part)
        self._flush(connection)

    def _flush(self, connection: _Connection) -> None:
        outbox = connection.outbox
        try:
            while outbox:
                sent = connection.sock.send(outbox[0])
                if sent == len(outbox[0]):
                    outbox.popleft()
                else:
                    outbox[0] = outbox[0][sent:]
        except BlockingIOError:
            self._selector.modify(connection.sock, selectors.EVENT_READ | selectors.EVENT_WRITE, connection)
            return
        if self._selector.get_key(connection.sock).events & selectors.EVENT_WRITE:
            self._selector.modify(connection.sock, selectors.EVENT_READ, connection)

    # HTTP

    def _take_request(self, connection: _Connection) -> bool:
        inbox = connection.inbox
        end = inbox.find(b"\r\n\r\n")
        if end < 0:
            return False
        head = bytes(inbox[: end + 2])
        match = _CONTENT_LENGTH.search(head)
        length = int(match.group(1)) if match else 0
        if len(inbox) < end + 4 + length:
            return False
        content = bytes(inbox[end + 4 : end + 4 + length])
        del inbox[: end + 4 + length]
        method, target, _ = head.split(b" ", 2)
        if _BEARER.search(head) is None:
            self._send(connection, _answer(401, {"error": "unauthorized"}))
            return True
        path = target.decode().partition("?")[0]
        run_id, _, verb = path[len(_PREFIX) + 1 :].partition("/") if path.startswith(_PREFIX) else ("", "", "?")
        route = (method.decode(), verb)
        if route == ("POST", "") and not run_id:
            self._send(connection, self._create(content))
            return True
        run = self._runs.get(run_id)
        if run is None:
            self._send(connection, _answer(404, {"error": "not_found", "message": f"no run {path}"}))
        elif route == ("GET", "stream"):
            after = _LAST_SEQ.search(target) or _LAST_EVENT_ID.search(head)
            self._open_stream(connection, run, int(after.group(1)) if after else 0)
        elif route == ("POST", "tool-results"):
            self._take_result(connection, run, content)
        elif route == ("POST", "cancel"):
            self._cancel(run)
            self._send(connection, _answer(200, {"ok": True}))
        elif route == ("GET", ""):
            self._send(connection, _answer(200, self._snapshot(run)))
        else:
            self._send(connection, _answer(404, {"error": "not_found"}))
        return True

    def _create(self, content: bytes) -> bytes:
        spec = json.loads(content)
        prompt = spec.get("prompt") or spec["messages"][-1]["content"]
        try:
            play = Play.from_prompt(prompt)
        except (TypeError, ValueError) as error:
            return _answer(400, {"error": "invalid_request", "message": str(error)})
        if not play.is_live:
            body(play)  # now, so that the time of the stream is the client's
        run_id = f"run_{next(self._numbers)}"
        self._runs[run_id] = _Run(run_id, play)
        return _answer(202, {"runId": run_id, "streamUrl": f"{_PREFIX}/{run_id}/stream"})

    def _open_stream(self, connection: _Connection, run: _Run, after: int) -> None:
        if not run.play.is_live:
            run.ended, run.final_text = True, f"last {run.play.last_seq}"
            self._send(connection, _STREAM_HEAD, body(run.play, after))
            return
        missed = b"".join([chunk(data) for data in run.log[after:]])
        if run.ended:
            self._send(connection, _STREAM_HEAD, missed, LAST_CHUNK)
            return
        connection.run = run
        run.streams.append(connection)
        self._send(connection, _STREAM_HEAD, missed)
        if run.started:
            return
        run.started = True
        if not run.play.group:
            self._begin(run)
            return
        group = self._groups.setdefault(run.play.group, [])
        group.append(run)
        if len(group) == run.play.group_size:
            del self._groups[run.play.group]
            for member in group:
                self._begin(member)

    def _take_result(self, connection: _Connection, run: _Run, content: bytes) -> None:
        answer = json.loads(content)
        if run.ended:
            self._send(connection, _answer(409, {"error": "run_terminal"}))
            return
        number = run.open_calls.pop(answer.get("toolUseId"), None)
        if number is None:
            self._send(connection, _answer(404, {"error": "unknown_tool_use"}))
            return
        self._send(connection, _NO_CONTENT)
        run.answered += 1
        run.wrong += answer.get("result") != ping_answer(number)
        events = [frame(run.next_seq, "local_tool_result_in", {**answer, "name": "ping"})]
        if run.asked < run.play.count:
            events.append(self._call(run, run.next_seq + 1))
        self._emit(run, events)
        if run.answered == run.play.count:
            self._finish(run, f"answered {run.answered} wrong {run.wrong}")

    def _snapshot(self, run: _Run) -> Dict[str, Any]:
        status = "succeeded" if run.ended else "running"
        return {"id": run.run_id, "status": status, "finalText": run.final_text, "error": None, "metadata": {}}

    # Live runs

    def _begin(self, run: _Run) -> None:
        if run.play.kind == "ticks":
            self._arm(run, time.monotonic())
            return
        first = run.next_seq
        self._emit(run, [self._call(run, first + offset) for offset in range(min(run.play.at_once, run.play.count))])

    def _call(self, run: _Run, seq: int) -> bytes:
        number = run.asked = run.asked + 1
        tool_use_id = f"tu_{number}"
        run.open_calls[tool_use_id] = number
        data = {"toolUseId": tool_use_id, "name": "ping", "args": {"number": number}, "kind": "local"}
        return frame(seq, "local_tool_call", data)

    def _emit(self, run: _Run, events: List[bytes], end: bytes = b"") -> None:
        run.log.extend(events)
        data = b"".join([chunk(event) for event in events]) + end
        for connection in list(run.streams):
            self._safely(connection, lambda one: self._send(one, data))

    def _safely(self, connection: _Connection, act: Callable[[_Connection], None]) -> None:
        # A stream its client has left must not take the request down that caused the event.
        try:
            act(connection)
        except OSError:
            self._drop(connection)

    def _finish(self, run: _Run, text: str) -> None:
        run.ended, run.final_text = True, text
        self._emit(run, [result_frame(run.next_seq, text)], LAST_CHUNK)
        self._let_go(run)

    def _cancel(self, run: _Run) -> None:
        if run.ended:
            return
        run.ended = True
        self._emit(run, [frame(run.next_seq, "cancelled", {"reason": "user"})], LAST_CHUNK)
        self._let_go(run)

    def _let_go(self, run: _Run) -> None:
        for connection in run.streams:
            connection.run = None
        run.streams.clear()
        run.open_calls.clear()

    def _arm(self, run: _Run, due: float) -> None:
        heapq.heappush(self._timers, (due, next(self._numbers), run))

    def _tick(self) -> None:
        while self._timers and self._timers[0][0] <= time.monotonic():
            due, _, run = heapq.heappop(self._timers)
            if run.ended or not run.streams:
                continue
            if run.asked == run.play.count:
                self._finish(run, f"ticks {run.asked}")
                continue
            run.asked += 1
            # The stamp is the text: every contender hands a delta's text to its caller.
            self._emit(run, [frame(run.next_seq, "assistant_delta", {"text": str(time.monotonic_ns())})])
            self._arm(run, due + run.play.interval_s)


def main() -> None:
    server = ScenarioServer()
    server.watch(sys.stdin.buffer)
    print(server.port, flush=True)
    server.serve()


if __name__ == "__main__":
    main()
