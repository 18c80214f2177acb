"""A caller of our A2A server: plain WSGI calls in this process, each watched by `wsgiref.validate`."""

from __future__ import annotations

import io
import itertools
import json
import sys
import threading
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple
from wsgiref.util import setup_testing_defaults
from wsgiref.validate import validator

from mantyx_sync import MantyxClient
from mantyx_sync.a2a import A2AApp
from mantyx_sync.local import LocalServer
from tests.plain_http import Answer

__all__ = ["Caller", "Failed", "Stream", "connected", "hello", "make_app", "message", "wait"]

DEADLINE_S = 10.0

_numbers = itertools.count(1)


class Failed(Exception):
    """A call was answered with an error."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__(f"{error['code']}: {error['message']}")
        self.code: int = error["code"]
        self.message: str = error["message"]
        self.error = error


def wait(event: threading.Event, why: str) -> None:
    assert event.wait(DEADLINE_S), why


def message(*parts: Any, version: str = "1.0", **more: Any) -> Dict[str, Any]:
    """Return a message with a fresh id; a plain string is a text part."""
    old = version == "0.3"
    wire_parts = [({"kind": "text", "text": p} if old else {"text": p}) if isinstance(p, str) else p for p in parts]
    kind = {"kind": "message"} if old else {}
    role = "user" if old else "ROLE_USER"
    return {**kind, "messageId": f"m{next(_numbers)}", "role": role, "parts": wire_parts, **more}


def hello(**more: Any) -> Dict[str, Any]:
    """Return the parameters of a send."""
    return {"message": message("Hello", **more)}


def make_app(client: MantyxClient, **settings: Any) -> A2AApp:
    fields = {"name": "Helper", "description": "Helps.", "public_url": "https://agents.example.com", **settings}
    if "agent_id" not in fields:
        fields.setdefault("system_prompt", "You help.")
    return A2AApp(client, **fields)


class Stream:
    """A streamed answer. Reads no further than it is asked to; `close` is what a server calls at the end."""

    def __init__(self, pieces: Any, headers: Mapping[str, str]) -> None:
        self.headers = headers
        self.pieces: List[bytes] = []
        self.comments = 0
        self._body = pieces
        self._iterator = iter(pieces)
        self._ready: List[Any] = []

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        while not self._ready:
            piece = next(self._iterator)
            self.pieces.append(piece)
            assert piece.endswith(b"\n\n")
            for block in piece.split(b"\n\n")[:-1]:
                if block.startswith(b":"):
                    self.comments += 1
                    continue
                assert block.startswith(b"data: ")
                assert len(block.splitlines()) == 1
                assert len(block.decode("utf-8").splitlines()) == 1, "split at a line end of Unicode"
                response = json.loads(block[6:])
                if "error" in response:
                    raise Failed(response["error"])
                self._ready.append(response["result"])
        return self._ready.pop(0)

    def beat(self) -> None:
        """Read until the next comment."""
        before = self.comments
        while self.comments == before:
            piece = next(self._iterator)
            self.pieces.append(piece)
            self.comments += piece.startswith(b":")

    def close(self) -> None:
        self._body.close()

    def rest(self) -> List[Any]:
        """Read to the end and close."""
        try:
            return list(self)
        finally:
            self.close()


@dataclass
class Caller:
    """Calls an app as a WSGI server does."""

    app: Callable[..., Any]
    headers: Mapping[str, str] = field(default_factory=dict)
    script_name: str = ""
    version: str = "1.0"

    def open(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        headers: Optional[Mapping[str, str]] = None,
        *,
        environ: Optional[Mapping[str, Any]] = None,
    ) -> Tuple[int, Mapping[str, str], Any]:
        """Make a request; return status, headers and the body as the app returned it."""
        given: Dict[str, Any] = {
            "REQUEST_METHOD": method,
            "SCRIPT_NAME": self.script_name,
            "PATH_INFO": path.partition("?")[0],
            "QUERY_STRING": path.partition("?")[2],
            "wsgi.input": io.BytesIO(body),
            "wsgi.errors": sys.stderr,
        }
        if method == "POST":
            given["CONTENT_LENGTH"] = str(len(body))
            given["CONTENT_TYPE"] = "application/json"
        for name, value in {**self.headers, **(headers or {})}.items():
            key = name.upper().replace("-", "_")
            given[key if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{key}"] = value
        given.update(environ or {})
        setup_testing_defaults(given)
        given = {name: value for name, value in given.items() if value is not None}
        started: List[Any] = []

        def start_response(status: str, response_headers: Any, exc_info: Any = None) -> Callable[[bytes], None]:
            headers = {k.lower(): v for k, v in response_headers}
            assert "x-added" not in headers, "a list of headers is used twice"
            started.append((int(status[:3]), headers))
            response_headers.append(("X-Added", "by the server"))  # as servers may, wsgiref among them
            return lambda data: None

        pieces = validator(self.app)(given, start_response)
        assert len(started) == 1
        return (*started[0], pieces)

    def request(self, method: str, path: str, body: bytes = b"", **more: Any) -> Answer:
        """Make a request and read the answer to its end."""
        status, headers, pieces = self.open(method, path, body, **more)
        try:
            data = b"".join(pieces)
        finally:
            pieces.close()
        if "content-length" in headers and method != "HEAD":
            assert headers["content-length"] == str(len(data))
        return Answer(status, headers, data)

    def post(self, body: object, **more: Any) -> Answer:
        """Make a call with any body."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.request("POST", "/", data, **more)

    def envelope(self, method: str, params: object) -> Dict[str, Any]:
        return {"jsonrpc": "2.0", "id": f"r{next(_numbers)}", "method": method, "params": params}

    def call(self, method: str, params: object = None) -> Any:
        """Make a call; return its result or raise what it was refused with."""
        envelope = self.envelope(method, {} if params is None else params)
        answer = self.post(envelope, headers={"A2A-Version": self.version})
        assert answer.status == 200, answer
        assert answer.headers["content-type"] == "application/json", answer
        response = answer.json
        assert response["jsonrpc"] == "2.0"
        assert response["id"] == envelope["id"]
        if "error" in response:
            raise Failed(response["error"])
        return response["result"]

    def stream(self, method: str, params: object) -> Stream:
        """Make a call that is answered by a stream, and read nothing of it yet."""
        data = json.dumps(self.envelope(method, params)).encode()
        status, headers, pieces = self.open("POST", "/", data, {"A2A-Version": self.version})
        assert status == 200
        if headers["content-type"] != "text/event-stream":
            try:
                raise Failed(json.loads(b"".join(pieces))["error"])
            finally:
                pieces.close()
        assert "content-length" not in headers
        stream = Stream(pieces, headers)
        if method not in ("message/stream", "tasks/resubscribe"):
            return stream
        try:  # in 0.3 a refusal is the first and only event
            stream._ready.append(next(stream))
        except BaseException:
            stream.close()
            raise
        return stream

    def send(self, *parts: Any, configuration: Optional[Mapping[str, Any]] = None, **more: Any) -> Dict[str, Any]:
        """Send a message in the caller's version; return the task."""
        params: Dict[str, Any] = {"message": message(*(parts or ("Hello",)), version=self.version, **more)}
        if configuration is not None:
            params["configuration"] = configuration
        if self.version == "0.3":
            result: Dict[str, Any] = self.call("message/send", params)
            assert result["kind"] == "task"
            return result
        task: Dict[str, Any] = self.call("SendMessage", params)["task"]
        return task

    def start(self, *parts: Any, **more: Any) -> Dict[str, Any]:
        """Send a message and do not wait for its task."""
        at_once = {"blocking": False} if self.version == "0.3" else {"returnImmediately": True}
        return self.send(*parts, configuration=at_once, **more)

    def get(self, task_id: str, **more: Any) -> Dict[str, Any]:
        task: Dict[str, Any] = self.call("tasks/get" if self.version == "0.3" else "GetTask", {"id": task_id, **more})
        return task

    def cancel(self, task_id: str) -> Dict[str, Any]:
        task: Dict[str, Any] = self.call("tasks/cancel" if self.version == "0.3" else "CancelTask", {"id": task_id})
        return task


def connected(server: LocalServer, **settings: Any) -> MantyxClient:
    return MantyxClient(**{**server.client_settings(), **settings})
