"""A server on loopback that answers every MANTYX route with something plain and keeps what was asked, by workspace.

Each caller takes a workspace of its own (`slug`), or a `client_id` of its own for OAuth, so that the requests of many
callers, in whatever processes, are told apart.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Dict, List, Mapping, Optional, Tuple
from urllib.parse import parse_qs, urlsplit

__all__ = ["Recorder", "Sent"]

DEADLINE_S = 10.0
_PREFIX = "/api/v1/workspaces/"

_SESSION = {"id": "s1", "name": "", "status": "active", "agentSpec": {}, "messages": [], "metadata": {}}
_EVAL = {"id": "er1", "status": "succeeded", "datasetId": "d1", "totalCases": 0, "completedCases": 0, "results": []}
_ANSWERS: Dict[Tuple[str, str], Any] = {
    ("GET", "models"): {"models": [], "defaultModelId": None},
    ("GET", "agent-sessions"): {"total": 0, "limit": 50, "offset": 0, "nextCursor": None, "sessions": []},
    ("POST", "agent-sessions"): {"sessionId": "s1"},
    ("GET", "agent-sessions/*"): _SESSION,
    ("DELETE", "agent-sessions/*"): {"ok": True},
    ("GET", "agent-sessions/*/events"): {
        "sessionId": "s1",
        "total": 0,
        "events": [],
        "nextBeforeSeq": None,
        "truncated": False,
    },
    ("POST", "agent-runs/*/cancel"): {"ok": True},
    ("POST", "agent-runs/*/feedback"): {
        "id": "f1",
        "verdict": "UP",
        "targetKind": "agent_run",
        "agentRunId": "run_1",
    },
    ("GET", "eval-datasets"): {"datasets": []},
    ("GET", "eval-datasets/*"): {"id": "d1", "name": "d", "cases": []},
    ("POST", "eval-runs"): {"runId": "er1", "status": "queued", "streamUrl": None},
    ("GET", "eval-runs"): {"runs": [], "limit": 50, "offset": 0},
    ("GET", "eval-runs/*"): _EVAL,
    ("GET", "eval-runs/compare"): {"datasetId": "d1", "runA": _EVAL, "runB": _EVAL, "cases": []},
    ("POST", "eval-runs/*/cancel"): {"ok": True},
}
_CARD = {
    "protocolVersion": "0.3.0",
    "name": "Recorded",
    "description": "Answers.",
    "version": "1",
    "capabilities": {},
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [],
}
_REPLY = {"kind": "message", "messageId": "m1", "role": "agent", "parts": [{"kind": "text", "text": "12 days"}]}
_MCP = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "recorded", "version": "1"},
    },
    "tools/list": {"tools": [{"name": "read", "description": "Reads.", "inputSchema": {"type": "object"}}]},
    "tools/call": {"content": [{"type": "text", "text": "a line"}]},
}
_TOKEN = {"access_token": "mantyx_at_1", "refresh_token": "mantyx_rt_1", "token_type": "Bearer", "expires_in": 3600}


@dataclass(frozen=True)
class Sent:
    """A request of MANTYX, without its headers and with the workspace left out of its path."""

    method: str
    path: str
    query: Mapping[str, List[str]]
    body: Any


class Recorder:
    """The server. `calls` says which local tool the runs of a workspace call, and what else the event says.

    It is an A2A agent and an MCP server too, whose requests are not kept: `/agent-card.json`, `/a2a` and `/mcp`.
    """

    def __init__(self, calls: Optional[Mapping[str, Mapping[str, Any]]] = None) -> None:
        self.calls = dict(calls or {})
        self.answered: Dict[str, threading.Event] = {}
        self._requests: Dict[str, List[Sent]] = {}
        self._lock = threading.Lock()
        recorder = self

        class Handler(_Handler):
            owner = recorder

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = False  # so that closing the server waits for them
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self.base_url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def requests(self, slug: str) -> List[Sent]:
        """Return what was asked of a workspace, in order of arrival."""
        with self._lock:
            return list(self._requests.get(slug, ()))

    def record(self, slug: str, sent: Sent) -> None:
        with self._lock:
            self._requests.setdefault(slug, []).append(sent)

    def answered_for(self, slug: str) -> threading.Event:
        with self._lock:
            return self.answered.setdefault(slug, threading.Event())

    def __enter__(self) -> Recorder:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    owner: Recorder
    protocol_version = "HTTP/1.0"  # a connection for each request: nothing is left open

    def handle_any(self) -> None:
        parts = urlsplit(self.path)
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        query = parse_qs(parts.query, keep_blank_values=True)
        if parts.path in ("/agent-card.json", "/a2a", "/mcp"):
            self.answer_as_peer(parts.path, json.loads(data) if data else {})
            return
        if not parts.path.startswith(_PREFIX):
            form = {name: values[0] for name, values in parse_qs(data.decode()).items()}
            self.owner.record(form["client_id"], Sent(self.command, parts.path, query, form))
            self.reply(200, _TOKEN if parts.path.endswith("/token") else {})
            return
        slug, _, rest = parts.path[len(_PREFIX) :].partition("/")
        # Each recorder has a port of its own, which is in the card that it gives out.
        data = data.replace(self.owner.base_url.encode(), b"http://recorder")
        self.owner.record(slug, Sent(self.command, rest, query, json.loads(data) if data else None))
        self.answer(slug, rest)

    do_GET = do_POST = do_DELETE = handle_any  # the names are the base class's

    def answer_as_peer(self, path: str, message: Mapping[str, Any]) -> None:
        if path == "/agent-card.json":
            self.reply(200, {**_CARD, "url": f"{self.owner.base_url}/a2a"})
        elif path == "/a2a":
            self.reply(200, {"jsonrpc": "2.0", "id": message["id"], "result": _REPLY})
        elif self.command != "POST":
            self.reply(405, None)
        elif "id" not in message:
            self.reply(202, None)
        elif message["method"] in _MCP:
            self.reply(200, {"jsonrpc": "2.0", "id": message["id"], "result": _MCP[message["method"]]})
        else:
            error = {"code": -32601, "message": "Method not found"}
            self.reply(200, {"jsonrpc": "2.0", "id": message["id"], "error": error})

    def answer(self, slug: str, rest: str) -> None:
        words = rest.split("/")
        if rest.endswith("/stream"):
            self.stream(slug, words[0])
        elif self.command == "POST" and (rest == "agent-runs" or rest.endswith("/messages")):
            self.reply(202, {"runId": "run_1", "streamUrl": f"{_PREFIX}{slug}/agent-runs/run_1/stream"})
        elif rest.endswith("/tool-results"):
            self.reply(204, None)
            self.owner.answered_for(slug).set()
        else:
            general = "/".join(["*" if i == 1 else word for i, word in enumerate(words)])
            key = (self.command, rest)
            found = _ANSWERS.get(key, _ANSWERS.get((self.command, general)))
            self.reply(404 if found is None else 200, found if found is not None else {"error": "not_found"})

    def stream(self, slug: str, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        if kind == "eval-runs":
            self.wfile.write(b'data: {"type": "run_completed", "status": "succeeded"}\n\n')
            return
        seq = 1
        if slug in self.owner.calls:
            self.event(seq, "local_tool_call", {"toolUseId": "tu_1", **self.owner.calls[slug]})
            self.owner.answered_for(slug).wait(DEADLINE_S)
            seq += 1
        self.event(seq, "result", {"subtype": "success", "text": '{"city": "Bern"}'})

    def event(self, seq: int, event_type: str, data: Mapping[str, Any]) -> None:
        envelope = json.dumps({"seq": seq, "type": event_type, "data": data})
        self.wfile.write(f"id: {seq}\nevent: {event_type}\ndata: {envelope}\n\n".encode())
        self.wfile.flush()

    def reply(self, status: int, body: object) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass
