"""What `RecordingServer` has seen so far."""

from __future__ import annotations

import dataclasses
import threading
import time
from typing import TYPE_CHECKING, Mapping
from urllib.parse import parse_qsl

from mantyx_sync.local.http import Request
from mantyx_sync.local.recording import Exchange, Piece, decode_body
from mantyx_sync.local.redaction import Redactor
from mantyx_sync.local.secret_looks import is_secret_header

if TYPE_CHECKING:
    from mantyx_sync.transport.body import Release

__all__ = ["Notes"]

_KEPT_OF_REQUESTS = ("accept", "content-type", "last-event-id")


class Notes:
    """What has happened, in its order. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._started = time.monotonic()
        self._order = 0
        self._exchanges: list[Exchange] = []
        self._releases: set[Release] = set()
        self._credentials: set[str] = set()

    def _now(self) -> tuple[float, int]:
        self._order += 1
        return time.monotonic() - self._started, self._order

    def __len__(self) -> int:
        return len(self._exchanges)

    def begin(self, request: Request) -> Exchange:
        """Note a request."""
        path, _, query = request.target.partition("?")
        finder = Redactor()
        finder.learn_headers(request.headers)
        exchange = Exchange(
            0,
            request.method,
            path,
            query=parse_qsl(query, keep_blank_values=True),
            headers={name.title(): request.headers[name] for name in _KEPT_OF_REQUESTS if name in request.headers},
            body=decode_body(request.body, request.headers),
        )
        with self._lock:
            self._credentials |= finder.learned
            exchange.number = len(self._exchanges) + 1
            exchange.at, exchange.order = self._now()
            exchange.end_at, exchange.end_order = exchange.at, exchange.order
            self._exchanges.append(exchange)
        return exchange

    def credential(self, value: str) -> None:
        """Note what is to be in no file."""
        with self._lock:
            self._credentials.add(value)

    def credentials_in(self, headers: Mapping[str, str]) -> None:
        """Note what the headers of an answer hold that is to be in no file; they themselves are not passed on."""
        finder = Redactor()
        for name, value in headers.items():
            if name.lower() == "set-cookie":
                finder.learn_secret(value.partition(";")[0].partition("=")[2].strip())
            elif is_secret_header(name):
                finder.learn_secret(value)
        with self._lock:
            self._credentials |= finder.learned

    def head(self, exchange: Exchange, status: int, headers: list[tuple[str, str]], length: int | None) -> None:
        """Note the beginning of an answer."""
        with self._lock:
            exchange.status, exchange.answer_headers, exchange.length = status, headers, length
            exchange.head_at, exchange.head_order = self._now()
            exchange.end_at, exchange.end_order = exchange.head_at, exchange.head_order

    def piece(self, exchange: Exchange, data: bytes) -> None:
        """Note a part of an answer's body."""
        with self._lock:
            at, order = self._now()
            exchange.pieces.append(Piece(data, at, order))
            exchange.end_at, exchange.end_order = at, order

    def end(self, exchange: Exchange, how: str, why: str | None = None) -> None:
        """Note the end of an answer."""
        with self._lock:
            exchange.end, exchange.why = how, why
            exchange.end_at, exchange.end_order = self._now()

    def taken(self) -> tuple[list[Exchange], set[str]]:
        """Return what has happened so far, and the credentials that clients brought along."""
        with self._lock:
            copies = [dataclasses.replace(entry, pieces=list(entry.pieces)) for entry in self._exchanges]
            return copies, set(self._credentials)

    def watch(self, release: Release) -> None:
        """Note an exchange that `release_all` is to end."""
        with self._lock:
            self._releases.add(release)

    def forget(self, release: Release) -> None:
        """Take notice that an exchange is over."""
        with self._lock:
            self._releases.discard(release)

    def release_all(self) -> None:
        """End all that is under way."""
        with self._lock:
            releases = list(self._releases)
        for release in releases:
            release()
