"""An A2A agent for tests of the client, written by hand on `http.server`: each method answers by a function.

    def answer(call: Call) -> object:
        return {"message": {...}}           # the result; or Fail(code, …), Raw(status, …), or Events([...])

    with Agent({"SendMessage": answer}) as agent:
        A2AClient(agent.url).send("hi")

Every request is kept in `agent.seen`. Nothing sleeps: what has to wait waits on an event, and ends with the server.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Union

DEADLINE_S = 10.0

Json = Dict[str, Any]


@dataclass
class Call:
    """One JSON-RPC request as it arrived."""

    method: str
    params: Any
    headers: Mapping[str, str]
    body: Json
    agent: Agent


@dataclass
class Fail:
    """A JSON-RPC error."""

    code: int
    message: str = "no"
    data: Any = None


@dataclass
class Raw:
    """Any HTTP answer."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Events:
    """A stream. Items are results, `Fail`, or bytes that are sent as they are; after the last the body ends."""

    items: Iterable[Any]
    content_type: str = "text/event-stream"


Answer = Callable[[Call], Any]


@dataclass
class Seen:
    verb: str
    path: str
    headers: Mapping[str, str]
    body: Optional[Json]


class Agent(ThreadingHTTPServer):
    daemon_threads = False
    block_on_close = True

    def __init__(
        self,
        methods: Optional[Mapping[str, Answer]] = None,
        *,
        card: Optional[Mapping[str, Any]] = None,
        streaming: bool = False,
        version: str = "1.0",
        pages: Optional[Mapping[str, Raw]] = None,
    ) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.methods = dict(methods or {})
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.seen: List[Seen] = []
        self.closing = threading.Event()
        self.left = threading.Event()
        """Set when a client leaves in the middle of a stream."""
        self.pages: Dict[str, Raw] = dict(pages or {})
        if card is None:
            card = card_v1(self.url + "/rpc", streaming) if version == "1.0" else card_v03(self.url + "/rpc", streaming)
        if pages is None:
            self.pages["/.well-known/agent-card.json"] = Raw(body=json.dumps(card).encode())
        self.card = card
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,), name="test-agent")

    def __enter__(self) -> Agent:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self.shutdown()
        self._thread.join(DEADLINE_S)
        self.server_close()

    @property
    def calls(self) -> List[Json]:
        """The JSON-RPC requests so far."""
        return [item.body for item in self.seen if item.body is not None]

    @property
    def asked(self) -> List[str]:
        """The methods asked for so far."""
        return [call["method"] for call in self.calls]

    def headers_of(self, method: str) -> Mapping[str, str]:
        return next(item.headers for item in self.seen if item.body is not None and item.body["method"] == method)

    def wait(self, event: threading.Event) -> None:
        """Wait until the test sets `event`, or ends."""
        for _ in range(int(DEADLINE_S / 0.01)):
            if event.wait(0.01) or self.closing.is_set():
                return

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # a client that left


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Agent

    def log_message(self, format: str, *args: object) -> None:
        pass

    def setup(self) -> None:
        self.timeout = 0.2  # so that an idle connection does not outlive the server
        super().setup()

    def handle(self) -> None:
        self.close_connection = False
        while not self.close_connection and not self.server.closing.is_set():
            self.handle_one_request()

    def do_GET(self) -> None:
        self.server.seen.append(Seen("GET", self.path, dict(self.headers), None))
        self._send(self.server.pages.get(self.path.partition("?")[0], Raw(404, b"nothing here")))

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        body = json.loads(data)
        self.server.seen.append(Seen("POST", self.path, dict(self.headers), body))
        page = self.server.pages.get("POST " + self.path)
        if page is not None:
            self._send(page)
            return
        method = body["method"]
        answer = self.server.methods.get(method, lambda call: Fail(-32601, "Method not found"))
        result = answer(Call(method, body.get("params"), dict(self.headers), body, self.server))
        if isinstance(result, Raw):
            self._send(result)
        elif isinstance(result, Events):
            self._stream(result, body["id"])
        else:
            content = json.dumps(_response(result, body["id"])).encode()
            self._send(Raw(200, content, {"Content-Type": "application/json"}))

    def _send(self, answer: Raw) -> None:
        self.send_response(answer.status)
        headers = {"Content-Type": "application/json", "Content-Length": str(len(answer.body)), **answer.headers}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.body)

    def _stream(self, events: Events, request_id: Any) -> None:
        self.send_response(200)
        self.send_header("Content-Type", events.content_type)
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        for item in events.items:
            if self.server.closing.is_set():
                return
            data = item
            if not isinstance(item, bytes):
                data = b"data: " + json.dumps(_response(item, request_id)).encode() + b"\n\n"
            try:
                self.wfile.write(data)
            except OSError:
                self.server.left.set()
                return


def _response(result: Any, request_id: Any) -> Json:
    if isinstance(result, Fail):
        error: Json = {"code": result.code, "message": result.message}
        if result.data is not None:
            error["data"] = result.data
        return {"jsonrpc": "2.0", "id": request_id, "error": error}
    return {"jsonrpc": "2.0", "id": request_id, "result": result}


def card_v1(url: str, streaming: bool = False, **more: Any) -> Json:
    return {
        "name": "Test agent",
        "description": "Answers tests.",
        "supportedInterfaces": [{"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
        "version": "1.2.3",
        "capabilities": {"streaming": True} if streaming else {},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "s", "name": "S", "description": "sd", "tags": ["t"]}],
        **more,
    }


def card_v03(url: str, streaming: bool = False, **more: Any) -> Json:
    return {
        "protocolVersion": "0.3.0",
        "name": "Old agent",
        "description": "Answers tests.",
        "url": url,
        "preferredTransport": "JSONRPC",
        "version": "1.0.0",
        "capabilities": {"streaming": streaming},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [],
        **more,
    }


def message_v1(text: str, **more: Any) -> Json:
    return {"messageId": "m-1", "contextId": "c-1", "role": "ROLE_AGENT", "parts": [{"text": text}], **more}


def status_v1(state: str, text: Optional[str] = None, message_id: str = "s-1") -> Json:
    status: Json = {"state": f"TASK_STATE_{state}"}
    if text is not None:
        status["message"] = {"messageId": message_id, "role": "ROLE_AGENT", "parts": [{"text": text}]}
    return status


def task_v1(state: str, text: Optional[str] = None, message_id: str = "s-1", **more: Any) -> Json:
    return {"id": "t-1", "contextId": "c-1", "status": status_v1(state, text, message_id), **more}


def task_v03(state: str, text: Optional[str] = None, **more: Any) -> Json:
    status: Json = {"state": state}
    if text is not None:
        parts = [{"kind": "text", "text": text}]
        status["message"] = {"kind": "message", "messageId": "s-1", "role": "agent", "parts": parts}
    return {"kind": "task", "id": "t-1", "contextId": "c-1", "status": status, **more}


def update_v1(state: str, text: Optional[str] = None, message_id: str = "s-1") -> Json:
    return {"statusUpdate": {"taskId": "t-1", "contextId": "c-1", "status": status_v1(state, text, message_id)}}


def artifact_v1(*texts: str, artifact_id: str = "a-1", **more: Any) -> Json:
    artifact = {"artifactId": artifact_id, "parts": [{"text": text} for text in texts]}
    return {"artifactUpdate": {"taskId": "t-1", "contextId": "c-1", "artifact": artifact, **more}}


def always(result: Any) -> Answer:
    return lambda call: result


def in_turn(*results: Any) -> Answer:
    """Answer with one after the other; the last again for ever. What is callable is called."""
    left = list(results)

    def answer(call: Call) -> Any:
        result = left.pop(0) if len(left) > 1 else left[0]
        return result(call) if callable(result) else result

    return answer


Result = Union[Json, Fail, Raw, Events]
