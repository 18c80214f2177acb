"""Asking the real server on behalf of a client: what `RecordingServer` is made of."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Callable, Iterator, Mapping, Optional, Protocol, Union
from urllib.parse import quote

from mantyx_sync.local.answers import Later, NoAnswer, RelayedResponse
from mantyx_sync.local.frames import PieceLog
from mantyx_sync.local.http import Request, json_response
from mantyx_sync.local.notes import Notes
from mantyx_sync.local.recording import BROKEN, CLIENT_LEFT, COMPLETE, NO_ANSWER
from mantyx_sync.local.redaction import SLUG
from mantyx_sync.local.secret_looks import is_secret_header

if TYPE_CHECKING:
    import requests

    from mantyx_sync.settings import Credentials
    from mantyx_sync.transport.answers import Opened
    from mantyx_sync.transport.body import Release
    from mantyx_sync.transport.http import HttpTransport

__all__ = ["API_KEY", "Relay", "Upstream"]

_log = logging.getLogger(__name__)

API_KEY = "recording"
"""What a client gives in place of a credential: it never sees the real one."""

CONNECT_TIMEOUT_S = 10.0
# How long the server may be silent. The client has a patience of its own, and is the one to lose it.
READ_TIMEOUT_S = 3600.0

_NOT_FORWARDED = frozenset(
    {
        "accept-encoding",
        "authorization",
        "connection",
        "content-length",
        "cookie",
        "expect",
        "host",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_NOT_PASSED_BACK = frozenset(
    {
        "alt-svc",
        "connection",
        "content-encoding",
        "content-length",
        "keep-alive",
        "proxy-authenticate",
        "strict-transport-security",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)

_CUT = "the answer has neither a length nor a body"

_Part = Union[bytes, "tuple[str, Optional[str]]"]


class Upstream:
    """The real server. Safe to use from any thread.

    Args:
        credentials: Who asks where.
        session: A `requests.Session` of the caller's.
        on_token: Is told each token that a token source gives.
    """

    def __init__(
        self, credentials: Credentials, session: requests.Session | None, on_token: Callable[[str], None]
    ) -> None:
        # Imported here: the embedded servers do without requests, and only this one asks another server.
        from mantyx_sync.transport.auth import BearerAuth, TokenAuth

        source = credentials.token_source

        def told(reason: Any) -> str:
            assert source is not None
            token = source(reason)
            if isinstance(token, str):
                on_token(token.strip())
            return token

        self._slug = credentials.workspace_slug
        self._own = _transport(
            credentials.base_url, session, TokenAuth(told) if source is not None else BearerAuth(credentials.reveal())
        )
        self._bare = _transport(credentials.base_url, session, None)

    def close(self) -> None:
        """Close idle connections."""
        self._own.close()
        self._bare.close()

    def open(self, request: Request, release: Release) -> Opened:
        """Send a request on and return the answer with its body still to come. Blocks; errors are the transport's."""
        path, _, query = request.target.partition("?")
        # A path prefix of the real server may stand in the addresses that it hands out.
        prefix = self._own.base.path
        if prefix and path.startswith(prefix + "/"):
            path = path[len(prefix) :]
        path = path.replace(f"/workspaces/{SLUG}/", f"/workspaces/{quote(self._slug, safe='')}/", 1)
        headers = {name: value for name, value in request.headers.items() if name not in _NOT_FORWARDED}
        headers["Accept-Encoding"] = "identity"
        transport = self._own
        credential = request.headers.get("authorization")
        if credential != f"Bearer {API_KEY}":
            transport = self._bare
            if credential is not None:
                headers["Authorization"] = credential
        return transport.open(
            request.method,
            transport.base.join(path) + (f"?{query}" if query else ""),
            headers=headers,
            data=request.body or None,
            connect_timeout=CONNECT_TIMEOUT_S,
            read_timeout=READ_TIMEOUT_S,
            release=release,
        )

    def as_ours(self, body: bytes) -> bytes:
        """Turn addresses at the real server into such at the one that the client asks, and the slug into its own."""
        base, slug = self._own.base.text, quote(self._slug, safe="")
        for old, new in ((f'"{base}', '"'), (f"/workspaces/{slug}/", f"/workspaces/{SLUG}/")):
            body = body.replace(old.encode(), new.encode())
            body = body.replace(old.replace("/", "\\/").encode(), new.replace("/", "\\/").encode())
        return body

    def address_as_ours(self, address: str) -> str:
        """Turn an address at the real server into one at the one that the client asks."""
        return self.as_ours(f'"{address}"'.encode("latin-1", "replace")).decode("latin-1")[1:-1]


def _transport(base_url: str, session: requests.Session | None, auth: Any) -> HttpTransport:
    from mantyx_sync.api_errors import api_error
    from mantyx_sync.transport.http import HttpTransport
    from mantyx_sync.transport.retry import RetryPolicy
    from mantyx_sync.transport.url import BaseURL

    return HttpTransport(
        BaseURL(base_url),
        auth=auth,
        make_error=api_error,
        timeout=CONNECT_TIMEOUT_S,
        retry=RetryPolicy(max_retries=0),
        headers={},
        session=session,
    )


class Grows(Protocol):
    """What has to know that there is more to send."""

    def run_changed(self, log: PieceLog) -> None:
        """Take notice."""
        ...


class Relay:
    """One exchange under way: a worker's thread asks the real server, the socket loop answers the client."""

    def __init__(self, upstream: Upstream, loop: Grows, notes: Notes, request: Request) -> None:
        from mantyx_sync.transport.body import Release

        self.later = Later(self._left)
        self._upstream = upstream
        self._loop = loop
        self._notes = notes
        self._request = request
        self._exchange = notes.begin(request)
        self._release = Release()
        self._has_left = False
        self._log = PieceLog(f"recorded-{self._exchange.number}", self._left)

    def _left(self) -> None:
        """The client is gone, or has had everything."""
        self._has_left = True
        if self._request.method in ("GET", "HEAD"):  # anything else is to arrive whatever becomes of its answer
            self._release()

    def forward(self) -> None:
        """Ask, and pass on what comes. Blocks; never raises."""
        self._notes.watch(self._release)
        try:
            self._forward()
        except Exception as error:  # a token source of the caller's may raise whatever it likes
            _log.warning("a request could not be forwarded", exc_info=True)
            self._fail(error)
        finally:
            self._notes.forget(self._release)

    def _forward(self) -> None:
        from mantyx_sync.errors import MantyxError, MantyxNetworkError

        try:
            opened = self._upstream.open(self._request, self._release)
        except MantyxError as error:
            if self._has_left or self._release.called:
                self._notes.end(self._exchange, CLIENT_LEFT)
                self.later.give(NoAnswer())
            elif isinstance(error, MantyxNetworkError) and error.sent is not False:
                self._notes.end(self._exchange, NO_ANSWER, str(error))
                self.later.give(NoAnswer())
            else:
                _log.warning("%s", error)
                self._fail(error)
            return
        try:
            self._notes.credentials_in(opened.headers)
            headers = self._passed_back(opened.headers)
            if opened.media_type == "application/json":
                self._pass_on_whole(opened, headers)
            else:
                self._pass_on(opened, headers)
        finally:
            opened.close()

    def _fail(self, error: Exception) -> None:
        """Answer in the place of a server that cannot be asked."""
        message = f"The recording server cannot ask the real one: {error}"
        answer = json_response(502, {"error": "recording_failed", "code": "recording_failed", "message": message})
        if self._exchange.status is None:
            headers = [("Content-Type", answer.content_type), ("Content-Length", str(len(answer.body)))]
            self._notes.head(self._exchange, 502, headers[:1], len(answer.body))
            self._notes.piece(self._exchange, answer.body)
            self._notes.end(self._exchange, COMPLETE)
            self.later.give(answer)
        else:
            self._notes.end(self._exchange, BROKEN, str(error))
            self._end(BROKEN)

    def _pass_on(self, opened: Opened, headers: list[tuple[str, str]]) -> None:
        is_coded = opened.headers.get("Content-Encoding") or self._request.method == "HEAD"
        length = None if is_coded else _announced(opened)
        self._notes.head(self._exchange, opened.status, headers, length)
        self.later.give(RelayedResponse(opened.status, tuple(headers), self._log, length))
        how, why = COMPLETE, None
        for part in self._parts(opened):
            if isinstance(part, tuple):
                how, why = part
                break
            self._notes.piece(self._exchange, part)
            self._log.frames.append(part)
            self._loop.run_changed(self._log)
        if not self._exchange.pieces and how == COMPLETE and self._is_cut(opened):
            how, why = BROKEN, _CUT
        self._notes.end(self._exchange, how, why)
        self._end(how)

    def _pass_on_whole(self, opened: Opened, headers: list[tuple[str, str]]) -> None:
        """Pass on JSON, which is of no use before all of it is there, and may name the real server's address."""
        pieces: list[bytes] = []
        how, why = COMPLETE, None
        for part in self._parts(opened):
            if isinstance(part, tuple):
                how, why = part
                break
            pieces.append(part)
        body = b"".join(pieces)
        if not body and how == COMPLETE and self._is_cut(opened):
            how, why = BROKEN, _CUT
        changed = self._upstream.as_ours(body)
        if changed != body:
            pieces = [changed]
        length: Optional[int] = len(changed) if how == COMPLETE else max(len(changed) + 1, _announced(opened) or 0)
        if opened.status in (204, 304) or self._request.method == "HEAD":
            length = None
        self._notes.head(self._exchange, opened.status, headers, length)
        for piece in pieces:
            self._notes.piece(self._exchange, piece)
        self._notes.end(self._exchange, how, why)
        self._log.frames.extend(pieces)
        self._log.end("fin" if how == BROKEN else None)
        self.later.give(RelayedResponse(opened.status, tuple(headers), self._log, length))

    def _is_cut(self, opened: Opened) -> bool:
        """Tell whether an answer without a body is one whose head broke off: Python takes it for a complete one."""
        return opened.status == 200 and not opened.has_known_end and self._request.method != "HEAD"

    def _end(self, how: str) -> None:
        self._log.end("fin" if how == BROKEN else None)
        self._loop.run_changed(self._log)

    def _parts(self, opened: Opened) -> Iterator[_Part]:
        """Yield what comes, and at last how it ended if not properly."""
        from mantyx_sync.transport.body import BodyBroken, BodyIdle

        if self._request.method == "HEAD":
            return
        try:
            while True:
                piece = opened.read()
                if not piece:
                    return
                yield piece
        except (BodyBroken, BodyIdle) as error:
            is_ours = self._has_left or self._release.called
            yield (CLIENT_LEFT, None) if is_ours else (BROKEN, str(error))

    def _passed_back(self, headers: Mapping[str, str]) -> list[tuple[str, str]]:
        return [
            (name, self._upstream.address_as_ours(value) if name.lower() == "location" else value)
            for name, value in headers.items()
            if name.lower() not in _NOT_PASSED_BACK and not is_secret_header(name)
        ]


def _announced(opened: Opened) -> int | None:
    text = str(opened.headers.get("Content-Length") or "")
    return int(text) if text.isascii() and text.isdigit() else None
