"""What came back for a request: complete, or with a body that is still to be read."""

from __future__ import annotations

import json
from typing import Any, Mapping, NamedTuple

from ..errors import MantyxNetworkError, MantyxProtocolError, MantyxTimeoutError
from .body import Body, BodyBroken, BodyIdle, Release
from .route import Received

__all__ = ["Answer", "Opened"]


class Answer(NamedTuple):
    """A complete answer with a status below 300."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    path: str

    def json(self) -> Any:
        """Decode the body; `None` when it is empty.

        Raises:
            MantyxProtocolError: The body is not JSON (a proxy's login page, for example).
        """
        if not self.body.strip():
            return None
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError) as error:
            kind = self.headers.get("Content-Type", "no content type")
            raise MantyxProtocolError(
                f"{self.path}: the server answered {self.status} with a body that is not JSON ({kind})"
            ) from error

    @property
    def has_known_end(self) -> bool:
        """True if the answer itself says where its body ends; otherwise that is where the connection was closed."""
        return _has_known_end(self.headers)

    def __repr__(self) -> str:
        return f"Answer({self.status}, {self.path!r}, {len(self.body)} bytes)"  # the body may be a new token


def _has_known_end(headers: Mapping[str, str]) -> bool:
    """Tell whether an answer with these headers says where its body ends."""
    return "Content-Length" in headers or "Transfer-Encoding" in headers


class Opened:
    """Status and headers of an answer, and its body piece by piece. One thread reads; close it when done."""

    def __init__(self, method: str, path: str, received: Received, release: Release) -> None:
        self.status = received.status
        self.headers = received.headers
        """Looked up without regard to case."""
        self._call = (method, path)
        self._received = received
        self._release = release
        self._body: Body | None = None

    def __repr__(self) -> str:
        return f"Opened({self.status}, {self._call[1]!r})"

    @property
    def media_type(self) -> str:
        """The content type in lower case, without parameters."""
        return str(self.headers.get("Content-Type") or "").partition(";")[0].strip().lower()

    @property
    def has_known_end(self) -> bool:
        """True if the answer itself says where its body ends; otherwise that is where the connection was closed."""
        return _has_known_end(self.headers)

    def read(self) -> bytes:
        """Return the next bytes of the body; blocks until there are some. `b""` at its end.

        Raises:
            BodyIdle: No byte arrived for the read time-out.
            BodyBroken: The connection broke, was released, or the coding is wrong.
        """
        if self._body is None:
            self._body = Body(self._received, self._release)
        return self._body.read()

    def read_all(self, max_bytes: int) -> bytes:
        """Return the whole body and close; the connection serves the next request. Blocks.

        Raises:
            MantyxTimeoutError: No byte arrived for the read time-out.
            MantyxNetworkError: The connection broke, or was released.
            MantyxProtocolError: The body is larger than `max_bytes`.
        """
        method, path = self._call
        pieces = []
        size = 0
        try:
            piece = self.read()
            while piece:
                pieces.append(piece)
                size += len(piece)
                if size > max_bytes:
                    raise MantyxProtocolError(f"{method} {path}: the answer is larger than {max_bytes} bytes")
                piece = self.read()
            if not size and self.status == 200 and not _has_known_end(self.headers):
                raise BodyBroken("the answer has neither a length nor a body")  # its head broke off, more likely
            return b"".join(pieces)
        except BodyIdle as idle:
            raise MantyxTimeoutError(f"{method} {path}: {idle}", cause=idle) from idle
        except BodyBroken as broken:
            raise MantyxNetworkError(f"{method} {path}: {broken}", cause=broken) from broken
        finally:
            self.close()

    def read_start(self, max_bytes: int) -> bytes:
        """Return the beginning of the body and close: for an error, to which what is wrong with the rest adds nothing.

        Blocks. A body that ends within `max_bytes` frees its connection for the next request.
        """
        pieces = []
        left = max_bytes
        try:
            while left > 0:
                piece = self.read()
                if not piece:
                    break
                pieces.append(piece[:left])
                left -= len(piece)
        except (BodyBroken, BodyIdle):
            pass
        finally:
            self.close()
        return b"".join(pieces)

    def close(self) -> None:
        """Close, from the thread that reads; others call the `Release`. A body that was read to its end frees its
        connection for the next request, any other costs it.
        """
        if self._body is not None:
            self._body.close()
        else:
            self._release.forget()
            self._received.close()
