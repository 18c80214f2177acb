"""Raw sockets that speak to the embedded gateway, as an agent and as an MCP client would, byte by byte."""

from __future__ import annotations

import contextlib
import json
import socket
from dataclasses import dataclass
from typing import Any, Iterator, Mapping, Optional

import pytest

from mantyx_sync.local import GatewayProject, LocalGateway

DEADLINE_S = 10.0

REGISTRATION: dict[str, Any] = {
    "tools": [
        {
            "name": "get_order",
            "description": "Look up a single order by its id.",
            "inputSchema": {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]},
        }
    ],
    "resources": [
        {
            "uri": "orders://all",
            "name": "All orders",
            "description": "Every order",
            "mimeType": "application/json",
        }
    ],
    "prompts": [
        {
            "name": "summarise_order",
            "title": "Summarise order",
            "description": "Summarise an order.",
            "arguments": [{"name": "id", "description": "Order id", "required": True}],
        }
    ],
}
MCP_ACCEPT = {"Accept": "application/json, text/event-stream"}


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


class Timer:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Timer:
    return Timer()


@pytest.fixture
def gateway(clock: Timer) -> Iterator[LocalGateway]:
    with LocalGateway(clock=clock) as running:
        yield running


class Wire:
    """One connection: bytes out, heads and bodies in."""

    def __init__(self, gateway: LocalGateway, source: str | None = None) -> None:
        self.sock = socket.create_connection(
            ("127.0.0.1", gateway.port), timeout=DEADLINE_S, source_address=None if source is None else (source, 0)
        )
        self.buffer = b""

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def post(self, path: str, body: Any, headers: Mapping[str, str], *, method: str = "POST") -> None:
        """Send a request; a body that is not bytes goes out as compact JSON."""
        raw = body if isinstance(body, bytes) else json.dumps(body, separators=(",", ":")).encode()
        lines = [f"{method} {path} HTTP/1.1", "Host: gateway", f"Content-Length: {len(raw)}"]
        given = {"Content-Type": "application/json", **headers}
        lines += [f"{name}: {value}" for name, value in given.items() if value is not None]
        self.sock.sendall(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + raw)

    def until(self, mark: bytes) -> bytes:
        """Return the bytes up to and with `mark`."""
        while mark not in self.buffer:
            data = self.sock.recv(65536)
            if not data:
                raise EOFError(f"the connection ended before {mark!r}: {self.buffer!r}")
            self.buffer += data
        found, _, self.buffer = self.buffer.partition(mark)
        return found + mark

    def take(self, size: int) -> bytes:
        while len(self.buffer) < size:
            data = self.sock.recv(65536)
            if not data:
                raise EOFError(f"the connection ended within a body: {self.buffer!r}")
            self.buffer += data
        found, self.buffer = self.buffer[:size], self.buffer[size:]
        return found

    def chunk(self) -> bytes:
        """Return one chunk of a chunked body; empty at its end."""
        size = int(self.until(b"\r\n"), 16)
        data = self.take(size)
        self.take(2)
        return data

    def ends(self) -> bool:
        """Whether the peer has ended the connection with nothing more to say."""
        with contextlib.suppress(ConnectionResetError):
            return self.buffer == b"" and self.sock.recv(1) == b""
        return True


@dataclass
class Reply:
    """One answer, read whole."""

    head: str
    body: bytes

    @property
    def status(self) -> int:
        return int(self.head.split(" ", 2)[1])

    @property
    def headers(self) -> dict[str, str]:
        lines = self.head.split("\r\n")[1:]
        return {name.lower(): value for name, _, value in (line.partition(": ") for line in lines if line)}

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def message(self) -> Any:
        """The one JSON-RPC message of an event stream."""
        text = self.text
        assert text.startswith("event: message\ndata: ")
        assert text.endswith("\n\n")
        return json.loads(text[len("event: message\ndata: ") : -2])


def read_reply(wire: Wire) -> Reply:
    """Read an answer whose body ends."""
    head = wire.until(b"\r\n\r\n").decode("latin-1")
    reply = Reply(head, b"")
    if reply.headers.get("transfer-encoding") == "chunked":
        while True:
            piece = wire.chunk()
            if not piece:
                break
            reply.body += piece
    else:
        reply.body = wire.take(int(reply.headers.get("content-length", "0")))
    return reply


def ask(
    gateway: LocalGateway,
    path: str,
    body: Any,
    headers: Mapping[str, str],
    *,
    method: str = "POST",
    source: str | None = None,
) -> Reply:
    """Send one request on a connection of its own."""
    with Wire(gateway, source) as wire:
        wire.post(path, body, headers, method=method)
        return read_reply(wire)


class FakeAgent:
    """An agent made by hand: a stream it reads frame by frame, and answers it posts."""

    def __init__(self, gateway: LocalGateway, key: str, registration: Any = REGISTRATION) -> None:
        self.gateway = gateway
        self.key = key
        self.wire = Wire(gateway)
        self.wire.post("/agent/connect", registration, bearer(key))
        self.head = self.wire.until(b"\r\n\r\n").decode("latin-1")
        self.frames = b""
        ready = self.frame()
        assert ready.startswith(b"event: ready\n"), ready
        self.id = json.loads(ready.split(b"data: ", 1)[1])["connectionId"]

    def __enter__(self) -> FakeAgent:
        return self

    def __exit__(self, *_: object) -> None:
        self.wire.sock.close()

    def frame(self) -> bytes:
        """Return the next frame or comment with its blank line."""
        while b"\n\n" not in self.frames:
            piece = self.wire.chunk()
            if not piece:
                raise EOFError("the stream has ended")
            self.frames += piece
        found, _, self.frames = self.frames.partition(b"\n\n")
        return found + b"\n\n"

    def event(self) -> tuple[str, dict[str, Any]]:
        """Return the next event's name and data."""
        name, data = self.frame().decode().rstrip("\n").split("\n")
        return name[len("event: ") :], json.loads(data[len("data: ") :])

    def stream_ended(self) -> bool:
        """Whether the gateway ends the stream properly, with nothing more on it."""
        with contextlib.suppress(EOFError):
            return self.frame() == b""
        return True

    def answer(self, call_id: str, result: Any = None, **fields: Any) -> Reply:
        """Post a result; `ok` is true unless said otherwise."""
        body = {"connectionId": self.id, "id": call_id, "ok": True, "result": result, **fields}
        return ask(self.gateway, "/agent/result", body, bearer(self.key))


class Asking:
    """One request of an MCP client under way."""

    def __init__(
        self,
        gateway: LocalGateway,
        project: GatewayProject,
        method: str,
        params: Any = None,
        *,
        request_id: Any = 1,
        key: str | None = None,
        headers: Optional[Mapping[str, str]] = None,
    ) -> None:
        message = {"jsonrpc": "2.0", "id": request_id, "method": method}
        if params is not None:
            message["params"] = params
        self.wire = Wire(gateway)
        given = {**MCP_ACCEPT, **bearer(key or project.client_key), **(headers or {})}
        self.wire.post(f"/mcp/{project.id}", message, given)

    def reply(self) -> Reply:
        """Wait for the answer."""
        with self.wire:
            return read_reply(self.wire)


def request(gateway: LocalGateway, project: GatewayProject, method: str, params: Any = None, **options: Any) -> Reply:
    """Send an MCP request and wait for its answer."""
    return Asking(gateway, project, method, params, **options).reply()


def call(gateway: LocalGateway, project: GatewayProject, name: str, arguments: Any, **options: Any) -> Asking:
    """Call a tool and do not wait."""
    return Asking(gateway, project, "tools/call", {"name": name, "arguments": arguments}, **options)


@contextlib.contextmanager
def connected(gateway: LocalGateway, project: GatewayProject, registration: Any = REGISTRATION) -> Iterator[FakeAgent]:
    """Connect an agent by hand, and have it gone from the gateway afterwards."""
    with FakeAgent(gateway, project.agent_key, registration) as agent:
        yield agent
