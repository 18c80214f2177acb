"""A gateway that records what an agent sends and sends what a test says, written by hand from the document.

with RecordingGateway() as gateway:
    with Agent(tools=[f], **gateway.settings).start():
        stream = gateway.stream()                 # waits for the agent to connect
        stream.call("f", {"x": 1}, id="c1")
        assert gateway.answer("c1")["result"] == 2
"""

from __future__ import annotations

import json
import queue
import socket
import struct
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Iterable, Iterator, Mapping, NamedTuple, Optional, Union

import pytest

from mantyx_sync import tool

__all__ = ["RecordedRequest", "RecordingGateway", "Reply", "Stream", "double", "gateway"]

DEADLINE_S = 10.0
KEY = "sfa_marker-of-a-key"


class Reply(NamedTuple):
    """An answer to give instead of the ordinary one; status 0 closes the connection without any."""

    status: int
    body: Union[str, bytes, Mapping[str, Any]] = b""
    headers: Mapping[str, str] = {}


class RecordedRequest(NamedTuple):
    path: str
    headers: Mapping[str, str]  # lower-case names
    body: bytes
    at: float

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Stream:
    """An event stream that the gateway keeps open."""

    def __init__(self, request: RecordedRequest, connection: socket.socket) -> None:
        self.id = str(uuid.uuid4())
        self.request = request
        self.ended = threading.Event()
        """Set when the agent closed it."""
        self._socket = connection
        self._lock = threading.Lock()
        self.released = threading.Event()

    def send(self, data: bytes) -> None:
        """Send bytes of the body, as one chunk."""
        with self._lock:
            self._socket.sendall(b"%x\r\n%s\r\n" % (len(data), data))

    def event(self, name: str, payload: object) -> None:
        """Send an event in the form that the document shows."""
        self.send(f"event: {name}\ndata: {json.dumps(payload, separators=(',', ':'))}\n\n".encode())

    def ready(self) -> None:
        self.event("ready", {"connectionId": self.id})

    def call(self, name: str, args: Any = None, *, id: str, kind: str = "call", trace: Any = None) -> None:
        self.event(kind, {"id": id, "name": name, **({} if args is None else {"args": args}), **trace_field(trace)})

    def end(self) -> None:
        """End the body as a gateway that restarts does."""
        with self._lock:
            self._socket.sendall(b"0\r\n\r\n")
        self.released.set()

    def reset(self) -> None:
        """Break the connection."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.released.set()


def trace_field(trace: Any) -> dict[str, Any]:
    return {} if trace is None else {"trace": trace}


class RecordingGateway:
    """Answers on a port of its own until the `with` block ends."""

    def __init__(self, *, ready: bool = True) -> None:
        self.replies: dict[str, list[Reply]] = {"/agent/connect": [], "/agent/result": [], "/agent/telemetry": []}
        """What to answer instead of the ordinary, by path, first come first."""
        self.requests: list[RecordedRequest] = []
        self.held = threading.Event()
        """Clear it to keep posts of results waiting."""
        self.held.set()
        self._ready = ready
        self._streams: queue.Queue[Stream] = queue.Queue()
        self._open: list[Stream] = []
        self._arrived = threading.Condition()
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def settings(self) -> dict[str, Any]:
        """Arguments of an `Agent` that leave out what takes time."""
        return {"url": self.url, "agent_key": KEY, "telemetry": False}

    def __enter__(self) -> RecordingGateway:
        self._thread.start()
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], traceback: Optional[TracebackType]
    ) -> None:
        self.held.set()
        for stream in self._open:
            stream.released.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def stream(self) -> Stream:
        """Wait for the next stream that an agent opens."""
        return self._streams.get(timeout=DEADLINE_S)

    def to(self, path: str) -> list[RecordedRequest]:
        return [request for request in list(self.requests) if request.path == path]

    def wait_for(self, path: str, count: int = 1) -> list[RecordedRequest]:
        """Wait until so many requests went to a path."""
        with self._arrived:
            assert self._arrived.wait_for(lambda: len(self.to(path)) >= count, DEADLINE_S), (path, self.requests)
        return self.to(path)

    def answer(self, id: str) -> Any:
        """Wait for the answer of a call and return its body."""
        return self.answers([id])[id]

    def answers(self, ids: Iterable[str]) -> dict[str, Any]:
        wanted = set(ids)
        with self._arrived:
            assert self._arrived.wait_for(lambda: wanted <= self._answered().keys(), DEADLINE_S), (
                wanted - self._answered().keys()
            )
        found = self._answered()
        return {id: found[id] for id in wanted}

    def _answered(self) -> dict[str, Any]:
        return {body["id"]: body for body in (request.json for request in self.to("/agent/result"))}

    def record(self, request: RecordedRequest) -> Optional[Reply]:
        with self._arrived:
            self.requests.append(request)
            replies = self.replies.get(request.path)
            reply = replies.pop(0) if replies else None
            self._arrived.notify_all()
        return reply

    def opened(self, stream: Stream) -> None:
        self._open.append(stream)
        if self._ready:
            stream.ready()
        self._streams.put(stream)


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    block_on_close = True
    request_queue_size = 128

    def __init__(self, gateway: RecordingGateway) -> None:
        self.gateway = gateway
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """An agent that goes away is no error here."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server
    timeout = DEADLINE_S

    def setup(self) -> None:
        super().setup()
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        gateway = self.server.gateway
        request = RecordedRequest(self.path, headers, body, time.monotonic())
        reply = gateway.record(request)
        if self.path == "/agent/result":
            gateway.held.wait(DEADLINE_S)
        if reply is not None:
            self._reply(reply)
        elif self.path == "/agent/connect":
            self._stream(request)
        else:
            self.send_response(204)
            self.end_headers()

    def _reply(self, reply: Reply) -> None:
        if not reply.status:
            self.close_connection = True
            return
        is_json = isinstance(reply.body, Mapping)
        text = json.dumps(reply.body) if is_json else reply.body
        data = text.encode() if isinstance(text, str) else text
        self.send_response(reply.status)
        for name, value in {"Content-Type": "application/json" if is_json else "text/html", **reply.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, request: RecordedRequest) -> None:
        self.close_connection = True
        self.send_response(200)
        for name, value in (
            ("Content-Type", "text/event-stream"),
            ("Cache-Control", "no-cache"),
            ("X-Accel-Buffering", "no"),
            ("Transfer-Encoding", "chunked"),
        ):
            self.send_header(name, value)
        self.end_headers()
        stream = Stream(request, self.connection)
        # Nothing more comes from the agent: what can be read is its end.
        self.connection.settimeout(0.02)
        self.server.gateway.opened(stream)
        while not stream.released.is_set():
            try:
                if not self.connection.recv(1024):
                    break
            except socket.timeout:
                continue
            except OSError:
                break
        stream.ended.set()


@pytest.fixture
def gateway() -> Iterator[RecordingGateway]:
    with RecordingGateway() as gateway:
        yield gateway


@tool
def double(x: int) -> int:
    """Double a number."""
    return 2 * x
