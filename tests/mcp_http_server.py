"""A strict MCP server over HTTP on raw sockets, that breaks the rules exactly where a test says so.

    def slow(call: Call) -> None:
        call.stream()
        call.event(call.progress(1))
        call.result("done")

    with McpWire(tools={"slow": slow}) as server:
        ...  # a channel to server.url

What a real server would refuse (a header that is missing or that does not belong there, an id used after its session)
is noted in `faults`, and fails the test when the `with` block ends.
"""

from __future__ import annotations

import json
import threading
from typing import Any, Callable, Mapping, Optional

from .wire import Peer, Request, WireServer, chunk, head, stream_head

__all__ = ["Call", "McpWire", "text_result"]

VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
STATELESS = "2026-07-28"


def text_result(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": False}


class Call:
    """One POST of the client with a JSON-RPC request, and how to answer it."""

    def __init__(self, server: McpWire, peer: Peer, request: Request) -> None:
        self.server = server
        self.peer = peer
        self.request = request
        self.message: dict[str, Any] = request.json()
        self.id = self.message.get("id")
        self._is_stream = False

    def response(self, result: Mapping[str, Any]) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": self.id, "result": result}

    def progress(self, done: float) -> dict[str, Any]:
        params = {"progressToken": self.id, "progress": done}
        return {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}

    def json(self, value: Any, status: int = 200, **headers: object) -> None:
        """Answer in JSON."""
        body = json.dumps(value).encode()
        headers = {"content_type": "application/json", "content_length": len(body), **headers}
        self.peer.send(head(status, **headers), body)

    def status(self, status: int, body: bytes = b"", **headers: object) -> None:
        """Answer with a status and any body."""
        self.peer.send(head(status, content_length=len(body), **headers), body)

    def stream(self, **headers: object) -> None:
        """Begin an answer that is an event stream."""
        self._is_stream = True
        self.peer.send(stream_head(**headers))

    def raw(self, data: bytes) -> None:
        """Send bytes of the stream."""
        self.peer.send(chunk(data))

    def event(self, message: Any, event_id: Optional[str] = None) -> None:
        """Send a message on the stream."""
        prefix = f"id: {event_id}\n" if event_id is not None else ""
        self.raw(f"event: message\n{prefix}data: {json.dumps(message)}\n\n".encode())

    def end(self) -> None:
        """End the stream, and keep the connection."""
        self.peer.send(chunk(b""))

    def result(self, text: str) -> None:
        """Answer with a text, on the stream if there is one."""
        if self._is_stream:
            self.event(self.response(text_result(text)))
            self.end()
        else:
            self.json(self.response(text_result(text)))


Handler = Callable[[Call], None]


class McpWire(WireServer):
    """Opens sessions and calls `tools` by name.

    Args:
        tools: What answers `tools/call`, by the tool's name.
        methods: What answers a method instead of the server itself. `GET` and `DELETE` are methods here too.
        keeps_sessions: Whether `initialize` issues an id.
    """

    def __init__(
        self,
        *,
        tools: Mapping[str, Handler] | None = None,
        methods: Mapping[str, Handler] | None = None,
        keeps_sessions: bool = True,
        version: str = "2025-11-25",
    ) -> None:
        self.tools = dict(tools or {})
        self.methods = dict(methods or {})
        self.keeps_sessions = keeps_sessions
        self.version = version
        self.sessions: list[str] = []
        self.ended: list[str] = []
        self.faults: list[str] = []
        self.notes: list[dict[str, Any]] = []
        """Notifications and responses of the client."""
        self.noted = threading.Condition()
        super().__init__(self._serve)

    def __exit__(self, kind: object, *rest: object) -> None:
        super().__exit__(kind, *rest)
        if kind is None:
            assert not self.faults, self.faults

    def posts(self, method: str) -> list[Request]:
        """Return the POSTs of a method."""
        return [r for r in list(self.requests) if r.method == "POST" and r.json().get("method") == method]

    def of(self, verb: str) -> list[Request]:
        """Return the requests of an HTTP method."""
        return [r for r in list(self.requests) if r.method == verb]

    def wait_note(self, wanted: Callable[[dict[str, Any]], bool], timeout: float = 10.0) -> dict[str, Any]:
        """Wait until the client has sent a notification or response like this."""
        with self.noted:
            assert self.noted.wait_for(lambda: any(map(wanted, self.notes)), timeout), self.notes
            return next(filter(wanted, self.notes))

    # ------------------------------------------------------------------------------------

    def _serve(self, peer: Peer) -> None:
        while True:
            request = peer.request()
            if request.method == "POST":
                call = Call(self, peer, request)
                self._check(request, call.message)
                self._post(call)
            else:
                self._check(request, {})
                handler = self.methods.get(request.method)
                if handler is not None:
                    handler(_Bare(self, peer, request))
                elif request.method == "DELETE":
                    self.ended.append(request.headers.get("mcp-session-id", ""))
                    peer.send(head(200, content_length=0))
                else:
                    peer.send(head(405, content_length=0, allow="POST"))

    def _post(self, call: Call) -> None:
        message = call.message
        method = message.get("method")
        handler = self.methods.get(str(method))
        if "id" not in message or method is None:
            with self.noted:
                self.notes.append(message)
                self.noted.notify_all()
            if handler is None:
                call.status(202)
                return
        if handler is not None:
            handler(call)
        elif call.request.headers.get("mcp-session-id") in self.ended:
            call.json({"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "Session not found"}}, 404)
        elif method == "initialize":
            self.initialize(call)
        elif method == "tools/call":
            self.tools[message["params"]["name"]](call)
        elif method == "ping":
            call.json(call.response({}))
        else:
            call.json({"jsonrpc": "2.0", "id": call.id, "error": {"code": -32601, "message": "Method not found"}})

    def initialize(self, call: Call) -> None:
        """Answer `initialize`, with a new session if the server keeps any."""
        headers: dict[str, object] = {}
        if self.keeps_sessions:
            self.sessions.append(f"session-MARKER-{len(self.sessions) + 1}")
            headers["mcp_session_id"] = self.sessions[-1]
        result = {"protocolVersion": self.version, "capabilities": {"tools": {}}, "serverInfo": {"name": "wire"}}
        call.json(call.response(result), **headers)

    def _check(self, request: Request, message: Mapping[str, Any]) -> None:
        headers = request.headers
        verb, method = request.method, message.get("method")
        accept = {part.strip() for part in headers.get("accept", "").split(",")}
        wanted = {"POST": {"application/json", "text/event-stream"}, "GET": {"text/event-stream"}}.get(verb, accept)
        self._expect(accept == wanted, f"{verb} {method} accepts {accept}")
        self._expect("origin" not in headers and "cookie" not in headers, f"{verb} {method} has a browser's headers")
        if verb == "POST":
            self._expect(headers.get("content-type") == "application/json", f"{method} is no JSON")
            self._expect(message.get("jsonrpc") == "2.0" and message.get("params", {}) is not None, f"{message}")
        else:
            self._expect("content-type" not in headers and not request.body, f"{verb} has a body")
        version, session = headers.get("mcp-protocol-version"), headers.get("mcp-session-id")
        if version == STATELESS:
            self._expect(session is None, f"{method} of the stateless era names a session")
            self._expect(headers.get("mcp-method") == method, f"{method} is not named in Mcp-Method")
        elif method == "initialize":
            self._expect(version is None and session is None, f"initialize has {version} {session}")
        elif verb != "GET" or session is not None or version is not None:  # else it looks for the old transport
            self._expect(version == self.version, f"{verb} {method} names version {version}")
            self._expect((session in self.sessions) == self.keeps_sessions, f"{verb} {method} names {session}")
        if version != STATELESS:
            odd = [name for name in headers if name in ("mcp-method", "mcp-name") or name.startswith("mcp-param-")]
            self._expect(not odd, f"{verb} {method} has {odd}")

    def _expect(self, condition: bool, fault: str) -> None:
        if not condition:
            self.faults.append(fault)


class _Bare(Call):
    """A GET or DELETE."""

    def __init__(self, server: McpWire, peer: Peer, request: Request) -> None:
        self.server, self.peer, self.request = server, peer, request
        self.message, self.id, self._is_stream = {}, None, False
