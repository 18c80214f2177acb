"""HTTP/1.1 as the embedded servers need it: requests from bytes, answers to bytes. Does no I/O.

Only what clients of their routes send: one request after the other on a connection, with a
`Content-Length` or chunked body. Everything else is answered with the fitting 4xx and a closed connection.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Mapping, Optional
from urllib.parse import parse_qs, unquote

__all__ = [
    "MAX_BODY_BYTES",
    "BadHttp",
    "Request",
    "RequestParser",
    "Response",
    "encode_head",
    "json_response",
]

MAX_HEAD_BYTES = 64 * 1024
# A tool result may hold 2 MB of text and 5 MB of files; JSON escapes and base64 make that a good deal more.
MAX_BODY_BYTES = 48 * 1024 * 1024

REASONS = {
    100: "Continue",
    200: "OK",
    201: "Created",
    202: "Accepted",
    204: "No Content",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    406: "Not Acceptable",
    408: "Request Timeout",
    409: "Conflict",
    413: "Payload Too Large",
    415: "Unsupported Media Type",
    422: "Unprocessable Entity",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    501: "Not Implemented",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}


class BadHttp(Exception):
    """The bytes are not a request this server can read; the connection has to close."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass
class Request:
    """One request, read whole. Header names are in lower case, path segments are decoded."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes = b""
    keep_alive: bool = True
    is_old: bool = False
    """Whether it is HTTP/1.0, which knows no chunks."""
    segments: tuple[str, ...] = ()
    query: Mapping[str, list[str]] = field(default_factory=dict)
    # Filled in by the connection and the router, so that handlers, faults and the request log can name them.
    peer: str = ""
    route: str = ""

    def first(self, name: str) -> str | None:
        """Return the first value of a query parameter."""
        values = self.query.get(name)
        return values[0] if values else None


@dataclass
class Response:
    """An answer with a body that is known whole."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    content_type: str = "application/json"

    def with_headers(self, *headers: tuple[str, str]) -> Response:
        """Return the same answer with more headers."""
        return Response(self.status, self.body, (*self.headers, *headers), self.content_type)


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


def json_response(status: int, payload: Any, *headers: tuple[str, str]) -> Response:
    """Build an answer with a JSON body."""
    text = _encode(payload)
    try:
        body = text.encode()
    except UnicodeEncodeError:  # a lone surrogate: only its escape can travel
        body = json.dumps(payload).encode("ascii")
    return Response(status, body, headers)


def encode_head(status: int, headers: list[tuple[str, str]]) -> bytes:
    """Encode status line and headers, the empty line included."""
    lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'Status')}"]
    lines += [f"{name}: {value}" for name, value in headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")


class RequestParser:
    """Turn the bytes of one connection into requests. Does no I/O."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._head: Optional[Request] = None
        self._need = 0  # body bytes still to come; -1 while a chunked body is read
        self._chunks = bytearray()
        self.wants_continue = False

    @property
    def buffered(self) -> int:
        """How many bytes wait to be read as requests."""
        return len(self._buffer)

    def feed(self, data: bytes) -> None:
        """Take bytes from the peer."""
        self._buffer += data

    def next(self) -> Request | None:
        """Return the next whole request, or None until more bytes came. Raises `BadHttp`."""
        if self._head is None:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                if len(self._buffer) > MAX_HEAD_BYTES:
                    raise BadHttp(431, "the request head is too large")
                return None
            text = self._buffer[:end].decode("latin-1")
            del self._buffer[: end + 4]
            self._head = self._read_head(text)
        if self._need < 0:
            if not self._read_chunks():
                return None
            body = bytes(self._chunks)
            self._chunks.clear()
        else:
            if len(self._buffer) < self._need:
                return None
            body = bytes(self._buffer[: self._need])
            del self._buffer[: self._need]
        request, self._head = self._head, None
        self.wants_continue = False
        request.body = body
        return request

    def _read_head(self, text: str) -> Request:
        first, _, rest = text.lstrip("\r\n").partition("\r\n")
        try:
            method, target, version = first.split(" ")
        except ValueError:
            raise BadHttp(400, "malformed request line") from None
        if not version.startswith("HTTP/1."):
            raise BadHttp(400, "only HTTP/1.1 is spoken here")
        headers: dict[str, str] = {}
        for line in rest.split("\r\n") if rest else ():
            name, colon, value = line.partition(":")
            if not colon or not name or name != name.strip():
                raise BadHttp(400, "malformed header line")
            headers[name.lower()] = value.strip()
        connection = headers.get("connection", "").lower()
        keep_alive = "close" not in connection and (version != "HTTP/1.0" or "keep-alive" in connection)
        self._need = 0
        if "transfer-encoding" in headers:
            if headers["transfer-encoding"].lower() != "chunked":
                raise BadHttp(501, "only chunked transfer coding is spoken here")
            self._need = -1
        elif "content-length" in headers:
            length = headers["content-length"]
            if not (length.isascii() and length.isdigit()):
                raise BadHttp(400, "malformed Content-Length")
            self._need = int(length)
            if self._need > MAX_BODY_BYTES:
                raise BadHttp(413, "the request body is too large")
        self.wants_continue = bool(self._need) and headers.get("expect", "").lower() == "100-continue"
        path, _, query = target.partition("?")
        return Request(
            method,
            target,
            headers,
            keep_alive=keep_alive,
            is_old=version == "HTTP/1.0",
            segments=tuple(unquote(part) for part in path.split("/") if part),
            query=parse_qs(query, keep_blank_values=True) if query else {},
        )

    def _read_chunks(self) -> bool:
        buffer = self._buffer
        while True:
            end = buffer.find(b"\r\n")
            if end < 0:
                return False
            try:
                size = int(buffer[:end].split(b";", 1)[0], 16)
            except ValueError:
                raise BadHttp(400, "malformed chunk") from None
            if size < 0 or len(self._chunks) + size > MAX_BODY_BYTES:
                raise BadHttp(413, "the request body is too large")
            if size == 0:  # trailers are read and dropped
                stop = buffer.find(b"\r\n\r\n", end)
                if stop < 0:
                    return False
                del buffer[: stop + 4]
                return True
            if len(buffer) < end + 2 + size + 2:
                return False
            self._chunks += buffer[end + 2 : end + 2 + size]
            del buffer[: end + 2 + size + 2]
