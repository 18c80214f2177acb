"""A server that plays scripts on raw sockets: half an answer, silence or a reset, exactly when a test says so.

    def cut_short(peer: Peer) -> None:
        peer.request()
        peer.send(head(200, content_length=10), b"half")
        peer.reset()

    with WireServer(cut_short, answer(b"{}")) as server:
        ...  # the first connection to server.url plays cut_short, every later one the answer

A script is a function of the `Peer` it talks to. Each connection plays the next script, the last one plays again
for all that follow. When a script returns, its connection is closed by FIN. Nothing here sleeps; every wait ends at
a deadline and when the server is closed. An exception of a script (other than the client's leaving) fails the test
when the `with` block ends.
"""

from __future__ import annotations

import json as _json
import socket
import ssl
import struct
import threading
import time
import zlib
from typing import Any, Callable, NamedTuple

from mantyx_sync.api_errors import api_error
from mantyx_sync.transport.auth import BearerAuth
from mantyx_sync.transport.http import HttpTransport
from mantyx_sync.transport.retry import Backoff, RetryPolicy
from mantyx_sync.transport.url import BaseURL

__all__ = [
    "Gone",
    "Peer",
    "Request",
    "Script",
    "WireServer",
    "answer",
    "chunk",
    "chunks",
    "gzipped",
    "head",
    "refuse",
    "silent_port",
    "stream_head",
    "transport",
    "unused_port",
]

DEADLINE_S = 15.0


class Gone(Exception):
    """The client closed its end, or the server is being closed. It ends a script quietly."""


class Request(NamedTuple):
    """A request as it was read off the wire. Header names are in lower case."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    connection: int

    def json(self) -> Any:
        return _json.loads(self.body)


class Peer:
    """One accepted connection, as a script sees it."""

    def __init__(self, server: WireServer, sock: socket.socket, number: int) -> None:
        self.server = server
        self.number = number
        """0 for the first connection the server accepted."""
        self._socket = sock
        self._unread = b""

    def request(self) -> Request:
        """Read one whole request.

        Raises:
            Gone: The client closed the connection instead of sending one.
        """
        text = self.read_until(b"\r\n\r\n").decode("latin-1")
        first, *lines = text.split("\r\n")
        method, target, _ = first.split(" ", 2)
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
        body = self.read_exactly(int(headers.get("content-length", 0)))
        request = Request(method, target, headers, body, self.number)
        self.server.requests.append(request)
        return request

    def send(self, *pieces: bytes) -> None:
        """Send at once; several pieces in one call go out together."""
        try:
            self._socket.sendall(b"".join(pieces))
        except OSError as error:
            raise Gone from error

    def wait(self, event: threading.Event) -> None:
        """Wait until the test sets `event`."""
        deadline = time.monotonic() + DEADLINE_S
        while not event.wait(0.02):
            if self.server.closing.is_set():
                raise Gone
            assert time.monotonic() < deadline, "the test never set the event that its script waits for"

    def stay(self) -> None:
        """Say nothing more until the client closes the connection."""
        while self._receive():
            pass

    def finish(self) -> None:
        """End the sending direction by FIN; what the client sends can still be read."""
        self._socket.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Close the connection by RST."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    def read_some(self) -> bytes:
        """Read whatever comes first, if it is no HTTP."""
        return self._receive()

    def read_until(self, mark: bytes) -> bytes:
        """Return what comes before `mark`, and drop the mark."""
        while mark not in self._unread:
            self._more()
        before, _, self._unread = self._unread.partition(mark)
        return before

    def read_exactly(self, size: int) -> bytes:
        """Return the next `size` bytes."""
        while len(self._unread) < size:
            self._more()
        data, self._unread = self._unread[:size], self._unread[size:]
        return data

    def _more(self) -> None:
        data = self._receive()
        if not data:
            raise Gone
        self._unread += data

    def _receive(self) -> bytes:
        try:
            return self._socket.recv(65536)
        except OSError as error:
            raise Gone from error


Script = Callable[[Peer], None]


class WireServer:
    """Accept connections on 127.0.0.1 and let each play its script. Use it as a context manager."""

    def __init__(self, *scripts: Script, tls: ssl.SSLContext | None = None) -> None:
        self._scripts = scripts
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        self.connections = 0
        """How many connections were accepted so far."""
        self.requests: list[Request] = []
        self.closing = threading.Event()
        self._failures: list[BaseException] = []
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._accept, name="wire-accept")]
        self._threads[0].start()  # ended and joined by close()

    def __enter__(self) -> WireServer:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.close()
        if self._failures and kind is None:
            raise self._failures[0]

    @property
    def open_connections(self) -> int:
        """How many connections are open right now."""
        with self._lock:
            return len(self._sockets)

    def close(self) -> None:
        """Drop every connection and join all threads."""
        self.closing.set()
        _drop(self._listener)
        with self._lock:
            sockets = list(self._sockets)
        for sock in sockets:
            _shut(sock)
        for thread in self._threads:
            thread.join(DEADLINE_S)
            assert not thread.is_alive(), f"{thread.name} does not end"

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                number = self.connections
                self.connections += 1
                self._sockets.append(sock)
            if self.closing.is_set():
                sock.close()
                return
            sock.settimeout(DEADLINE_S)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            thread = threading.Thread(target=self._play, args=(sock, number), name=f"wire-{number}")
            self._threads.append(thread)
            thread.start()  # ended and joined by close()

    def _play(self, sock: socket.socket, number: int) -> None:
        try:
            if self._tls is not None:
                raw, sock = sock, self._tls.wrap_socket(sock, server_side=True)
                with self._lock:
                    self._sockets[self._sockets.index(raw)] = sock
            self._scripts[min(number, len(self._scripts) - 1)](Peer(self, sock, number))
        except (Gone, OSError):
            pass
        except BaseException as failure:
            self._failures.append(failure)
        finally:
            with self._lock:
                self._sockets.remove(sock)
            sock.close()


def _shut(sock: socket.socket) -> None:
    try:
        socket.socket.shutdown(sock, socket.SHUT_RDWR)
    except OSError:
        pass


def _drop(listener: socket.socket) -> None:
    _shut(listener)  # wakes accept()
    listener.close()


def head(status: int = 200, **headers: object) -> bytes:
    """Return a status line and headers; `content_type="…"` becomes `Content-Type: …`."""
    lines = [f"HTTP/1.1 {status} Whatever"]
    lines += [f"{name.replace('_', '-').title()}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def stream_head(**headers: object) -> bytes:
    """Return the head of a chunked event stream."""
    return head(200, content_type="text/event-stream", transfer_encoding="chunked", **headers)


def chunk(data: bytes) -> bytes:
    """Return `data` as one chunk of a chunked body; no data is the end of the body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def chunks(data: bytes, size: int) -> bytes:
    """Return `data` as chunks of `size` bytes, without the end of the body."""
    return b"".join(chunk(data[at : at + size]) for at in range(0, len(data), size))


def gzipped(*pieces: bytes) -> list[bytes]:
    """Return one gzip member, cut so that each part can be read to the end of its piece at once."""
    compressor = zlib.compressobj(wbits=16 + zlib.MAX_WBITS)
    parts = [compressor.compress(piece) + compressor.flush(zlib.Z_SYNC_FLUSH) for piece in pieces]
    return [*parts, compressor.flush()]


def answer(body: bytes = b"{}", status: int = 200, **headers: object) -> Script:
    """Return a script that gives every request of its connection the same answer, and keeps the connection."""
    headers.setdefault("content_type", "application/json")

    def script(peer: Peer) -> None:
        while True:
            peer.request()
            peer.send(head(status, content_length=len(body), **headers), body)

    return script


def refuse(status: int, body: bytes = b"", **headers: object) -> Script:
    """Return a script that answers one request with `status` and closes the connection."""

    def script(peer: Peer) -> None:
        peer.request()
        peer.send(head(status, content_length=len(body), connection="close", **headers), body)

    return script


def transport(url: str, *, retries: int = 2, **settings: Any) -> HttpTransport:
    """Return a transport to `url` that retries quickly, with the credential `tok_MARKER`."""
    settings.setdefault("auth", BearerAuth("tok_MARKER"))
    settings.setdefault("make_error", api_error)
    settings.setdefault("timeout", 10.0)
    settings.setdefault("retry", RetryPolicy(max_retries=retries, backoff=Backoff(base=0.01)))
    settings.setdefault("headers", {})
    return HttpTransport(BaseURL(url), **settings)


def unused_port() -> int:
    """Return a port of 127.0.0.1 that refuses connections."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class silent_port:
    """A port of 127.0.0.1 where connecting neither succeeds nor fails: its queue of connections is full."""

    def __enter__(self) -> int:
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(0)
        port: int = self._listener.getsockname()[1]
        self._fillers = [socket.socket() for _ in range(4)]
        for filler in self._fillers:
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
        return port

    def __exit__(self, *_: object) -> None:
        for filler in self._fillers:
            filler.close()
        self._listener.close()
