"""A client made of `http.client` and sockets, for tests of the embedded server."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
from dataclasses import dataclass
from typing import Any, Iterable, Iterator, Mapping, Optional

from mantyx_sync.local import LocalServer, ModelRequest, ScriptedModel

DEADLINE_S = 10.0

ORDER_TOOL = {
    "kind": "local",
    "name": "get_order",
    "description": "Look up one order.",
    "parameters": {
        "type": "object",
        "properties": {"order_id": {"type": "string"}},
        "required": ["order_id"],
    },
}


class Recorder:
    """A model that keeps what it was asked and answers by a script."""

    model_id = "local:recorder"
    structured_output = "native_schema"

    def __init__(self, turns: Any) -> None:
        self.script = ScriptedModel(turns)
        self.requests: list[ModelRequest] = []

    def complete(self, request: ModelRequest) -> Iterable[Any]:
        self.requests.append(request)
        return self.script.complete(request)


def types(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in events]


def of_type(events: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [event["data"] for event in events if event["type"] == name]


def local_tool(name: str, **fields: Any) -> dict[str, Any]:
    return {"kind": "local", "name": name, **fields}


@dataclass
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def request(
    server: LocalServer,
    method: str,
    path: str,
    body: object = None,
    *,
    token: Optional[str] = "mantyx_local",
    slug: str = "local",
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """Make one request below the workspace's prefix, on a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=DEADLINE_S)
    with contextlib.closing(connection):
        sent = dict(headers or {})
        if token is not None:
            sent["Authorization"] = f"Bearer {token}"
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, f"/api/v1/workspaces/{slug}{path}", data, sent)
        response = connection.getresponse()
        return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())


def start(server: LocalServer, **spec: Any) -> str:
    """Create a run and return its id."""
    body = {"systemPrompt": "You help.", **({} if "messages" in spec else {"prompt": "Hello"}), **spec}
    answer = request(server, "POST", "/agent-runs", body)
    assert answer.status == 202, answer
    return str(answer.json["runId"])


def frames(body: bytes) -> list[dict[str, Any]]:
    """Decode the complete frames of a stream's body."""
    events = []
    for block in body.split(b"\n\n")[:-1]:
        fields = dict(line.split(b": ", 1) for line in block.split(b"\n") if not line.startswith(b":"))
        if fields:
            event = json.loads(fields[b"data"])
            assert fields[b"id"] == str(event["seq"]).encode()
            assert fields[b"event"] == event["type"].encode()
            events.append(event)
    return events


def stream(server: LocalServer, run_id: str, query: str = "", **headers: str) -> list[dict[str, Any]]:
    """Read a run's stream to its end."""
    answer = request(server, "GET", f"/agent-runs/{run_id}/stream{query}", headers=headers)
    assert answer.status == 200, answer
    return frames(answer.body)


def run_to_end(server: LocalServer, **spec: Any) -> list[dict[str, Any]]:
    """Create a run that needs nothing of us and return its events."""
    return stream(server, start(server, **spec))


def answer_calls(server: LocalServer, run_id: str, results: Mapping[str, object]) -> list[dict[str, Any]]:
    """Read a stream while answering its tool calls by tool name; returns all events."""
    events = []
    for event in live(server, run_id):
        events.append(event)
        if event["type"] == "local_tool_call":
            body = {"toolUseId": event["data"]["toolUseId"], "result": results[event["data"]["name"]]}
            assert request(server, "POST", f"/agent-runs/{run_id}/tool-results", body).status == 204
    return events


def live(server: LocalServer, run_id: str, query: str = "") -> Iterator[dict[str, Any]]:
    """Yield a stream's events as they come; closing the generator closes the connection."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=DEADLINE_S)
    with contextlib.closing(connection):
        path = f"/api/v1/workspaces/local/agent-runs/{run_id}/stream{query}"
        connection.request("GET", path, headers={"Authorization": "Bearer mantyx_local"})
        response = connection.getresponse()
        assert response.status == 200
        with contextlib.closing(response):
            block = b""
            while True:
                line = response.readline()
                if not line:
                    return
                if line == b"\n":
                    yield from frames(block + b"\n\n") if b"data:" in block else ()
                    block = b""
                else:
                    block += line


def raw_exchange(server: LocalServer, data: bytes) -> tuple[bytes, Optional[str]]:
    """Send bytes and read to the end of the connection. Returns what came, and `reset` if it ended so."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=DEADLINE_S) as sock:
        sock.sendall(data)
        received = b""
        while True:
            try:
                piece = sock.recv(65536)
            except ConnectionResetError:
                return received, "reset"
            if not piece:
                return received, None
            received += piece


def raw_request(method: str, path: str, *headers: str) -> bytes:
    """Build the bytes of a request without a body."""
    lines = [
        f"{method} /api/v1/workspaces/local{path} HTTP/1.1",
        "Host: localhost",
        "Authorization: Bearer mantyx_local",
        *headers,
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()
