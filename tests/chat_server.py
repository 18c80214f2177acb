"""A small chat-completions server on loopback that plays answers written down beforehand."""

from __future__ import annotations

import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable, Iterator, Optional, Union

Line = Union[dict[str, Any], str, bytes, Callable[[], object]]


class Reply:
    """One answer: `lines` are chunks (objects become `data:` lines), raw lines, or functions called on the way."""

    def __init__(
        self,
        *lines: Line,
        status: int = 200,
        body: Optional[str] = None,
        content_type: str = "text/event-stream",
        done: bool = True,
    ) -> None:
        self.lines = lines
        self.status = status
        self.body = body
        self.content_type = content_type
        self.done = done


def delta(finish: Optional[str] = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def call(index: int, name: str = "", arguments: Any = "", call_id: Optional[str] = None) -> dict[str, Any]:
    function = {"arguments": arguments, **({"name": name} if name else {})}
    entry = {"index": index, "function": function, **({"id": call_id, "type": "function"} if call_id else {})}
    return delta(tool_calls=[entry])


def usage(prompt: int, completion: int, **details: Any) -> dict[str, Any]:
    return {"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion, **details}}


class ChatServer:
    """Answers in order; keeps the requests: path, headers in lower case, decoded body."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies)
        self.requests: list[tuple[str, dict[str, str], Any]] = []
        self.url = ""
        self.gone = threading.Event()
        """Set when the client went away in the middle of an answer."""

    @property
    def bodies(self) -> list[Any]:
        return [body for _, _, body in self.requests]


@contextlib.contextmanager
def chat_server(*replies: Reply) -> Iterator[ChatServer]:
    chat = ChatServer(*replies)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            chat.requests.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
            reply = chat.replies.pop(0)
            self.close_connection = True
            self.send_response(reply.status)
            self.send_header("Content-Type", reply.content_type)
            if reply.body is not None:
                data = reply.body.encode()
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
                return
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            try:
                for line in reply.lines:
                    self._line(line)
                if reply.done:
                    self._line("data: [DONE]")
                self.wfile.write(b"0\r\n\r\n")
            except OSError:
                chat.gone.set()

        def _line(self, line: Line) -> None:
            if callable(line):
                line()
                return
            if isinstance(line, dict):
                line = "data: " + json.dumps(line)
            data = (line.encode() if isinstance(line, str) else line) + b"\n\n"
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
            self.wfile.flush()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = False  # close waits for what is being answered
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), name="chat-server")
    thread.start()
    chat.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield chat
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
