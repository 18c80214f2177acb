"""One request over HTTP, from its POST to its response, over broken streams and around what comes in between."""

from __future__ import annotations

import contextlib
import logging
import time
from typing import Any, Mapping

from ..errors import MantyxError, MantyxNetworkError, MantyxProtocolError, cut
from ..transport.answers import Opened
from ..transport.body import BodyBroken, BodyIdle
from ..transport.retry import parse_retry_after
from ..transport.sse import FrameDecoder, FrameTooLarge, parse_frame
from .channel import Era, Outgoing, Waiting
from .errors import McpConnectionError, McpProtocolError, McpSessionGone, McpStatusError, McpTimeoutError
from .http_peer import HttpPeer
from .http_session import Pending, Session, headers_of
from .messages import Kind, answer_id, kind_of_message
from .patience import Patience
from .sse_messages import SseMessages, decode_body

__all__ = ["Exchange"]

log = logging.getLogger(__name__)

MAX_BARREN = 2
"""Attempts in a row to go on with a broken stream that may bring nothing new."""
LEFTOVER_S = 0.05
"""How long the end of a stream is waited for behind the response: it frees the connection for the next request."""
RECOGNISE_S = 3.0
"""How long to look whether a server that refused `initialize` speaks the transport that is no more."""

_SHOWN_BODY = 200
_OLD_TRANSPORT_STATUSES = frozenset({400, 404, 405})
# Servers of the TypeScript package's examples say 400 where the specification wants 404.
_SESSION_CODES = frozenset({-32000, -32001, -32600})


class Exchange:
    """One request. Used once, by the thread that waits for the response."""

    def __init__(
        self, peer: HttpPeer, request: Outgoing, waiting: Waiting, session: Session | None, patience: Patience
    ) -> None:
        self._peer = peer
        self._request = request
        self._on_progress = waiting.on_progress
        self._session = session
        self._patience = patience
        self._id: int = request.message["id"]
        self._method = str(request.message["method"])
        self._pending = Pending(patience)
        self._what = f"{peer.label}: {self._method}"

    def response(self) -> Mapping[str, Any]:
        """Send the request and return its response. Blocks.

        Raises:
            McpConnectionError, McpSessionGone, McpAuthError, McpStatusError, McpProtocolError, McpTimeoutError: As
                `Channel.exchange`. The errors of a wait that was ended from outside are the caller's to make.
        """
        self._await_push()
        pending = self._peer.dealings.pending
        pending[self._id] = self._pending
        try:
            request = self._request
            opened = self._peer.post(
                request.message, request.era, request.version, self._session, self._patience, request.headers
            )
            found = self._read(opened)
            self._pass_progress_on()
            return found
        finally:
            pending.pop(self._id, None)

    def _await_push(self) -> None:
        push = None if self._session is None else self._session.push
        if push is not None and self._method not in ("ping", "tools/list", "logging/setLevel"):
            push.wait_answered(self._patience)

    # ------------------------------------------------------------------------------------ the answer by its status

    def _read(self, opened: Opened) -> Mapping[str, Any]:
        status = opened.status
        if status >= 400:
            return self._refused(opened)
        if self._method == "initialize":
            try:
                self._session = self._peer.dealings.begin(opened.headers.get("Mcp-Session-Id"), self._peer.label)
            except McpProtocolError:
                opened.close()
                raise
        if status in (202, 204):
            opened.close()
            raise McpProtocolError(f"{self._what}: the server answered {status}, which promises no response")
        kind = opened.media_type
        if kind == "text/event-stream":
            return self._follow(opened)
        if kind != "application/json":
            self._check_head(opened, kind)
            raise McpProtocolError(
                f"{self._what}: the server answered {status} with content type {cut(kind) or 'none'!r}, neither JSON "
                "nor an event stream"
            )
        body = self._read_all(opened, self._peer.max_message_bytes)
        try:
            messages = decode_body(body)
        except ValueError as error:
            raise McpProtocolError(f"{self._what}: the server's answer is not JSON-RPC: {error}") from None
        found = self._sift(messages)
        if found is None:
            raise McpProtocolError(f"{self._what}: the server's answer holds no response to the request")
        return found

    def _check_head(self, opened: Opened, kind: str) -> None:
        """Close an answer of another type; raises if it broke off in its head, which http.client takes for whole."""
        if any(known.startswith(kind) for known in ("application/json", "text/event-stream")):
            with contextlib.suppress(MantyxProtocolError):
                self._read_all(opened, _SHOWN_BODY)
        opened.close()

    def _read_all(self, opened: Opened, max_bytes: int) -> bytes:
        try:
            return opened.read_all(max_bytes)
        except MantyxProtocolError as error:  # larger than allowed
            raise McpProtocolError(f"{self._what}: {error.message}") from None
        except MantyxNetworkError as error:
            raise McpConnectionError(f"{self._what}: {error.message}; the server may have executed it") from error

    def _refused(self, opened: Opened) -> Mapping[str, Any]:
        """Raise the error of a refusal, or return the JSON-RPC error that came with it."""
        status, peer = opened.status, self._peer
        unauthorized = peer.auth_error(opened)
        body = peer.start_of(opened)
        if unauthorized is not None:
            raise unauthorized
        session = self._session
        error = _rpc_error(body)
        if session is not None and session.id is not None:
            message = {} if error is None else error["error"]
            is_about_session = (
                message.get("code") in _SESSION_CODES and "session" in str(message.get("message")).lower()
            )
            if status == 404 or (status == 400 and is_about_session):
                session.end()
                raise McpSessionGone(
                    f"{self._what}: the server has forgotten the session ({status}); it was not executed", status=status
                )
        if error is not None:
            return error
        if self._method == "initialize" and status in _OLD_TRANSPORT_STATUSES and self._speaks_old_transport():
            raise McpProtocolError(
                f"{peer.label} speaks HTTP+SSE, the transport of 2024-11-05, which the protocol has replaced: this "
                "client speaks Streamable HTTP and stdio. The server may offer Streamable HTTP at another address, "
                "often /mcp."
            )
        text = cut(body.decode("utf-8", "replace"), _SHOWN_BODY)
        is_wrong_place = status == 404 and self._method == "initialize"
        doubt = "; is this the address of its MCP endpoint? Many servers have it at /mcp" if is_wrong_place else ""
        retry_after = parse_retry_after(opened.headers.get("Retry-After"), time.time())
        raise McpStatusError(
            f"{self._what}: HTTP {status}" + (f": {text}" if text else "") + doubt,
            status=status,
            body=text or None,
            retry_after=retry_after,
        )

    def _speaks_old_transport(self) -> bool:
        """Tell whether a GET brings an event stream that begins with the event `endpoint` (mcp-client §8)."""
        decoder = FrameDecoder(_SHOWN_BODY * 100)
        unhelpful = contextlib.suppress(MantyxError, BodyBroken, BodyIdle, FrameTooLarge)
        with unhelpful, self._patience.inner(RECOGNISE_S) as inner:
            headers = {"Accept": "text/event-stream"}
            opened = self._peer.endpoint.open("GET", headers, None, inner.left, inner.release)
            with contextlib.closing(opened):
                data = opened.read() if opened.media_type == "text/event-stream" else b""
                while data:
                    for frame in decoder.feed(data):
                        return parse_frame(frame).event == "endpoint"
                    data = opened.read()
        return False

    # ------------------------------------------------------------------------------------ an answer that is a stream

    def _follow(self, opened: Opened) -> Mapping[str, Any]:
        """Read a stream until the response is there; go on with it where it broke off, if the server lets us."""
        messages = SseMessages(self._peer.max_message_bytes)
        barren = 0
        current: Opened | None = opened
        while True:
            before = messages.last_event_id
            found, heard = (None, False) if current is None else self._read_stream(current, messages)
            if found is not None:
                return found
            if self._patience.ended_by is not None:
                raise McpConnectionError(f"{self._what}: given up")  # the caller says what for
            barren = 0 if heard or messages.last_event_id != before else barren + 1
            can_resume = self._request.era is Era.HANDSHAKE and messages.last_event_id is not None
            if not can_resume or barren >= MAX_BARREN:
                raise McpConnectionError(
                    f"{self._what}: the stream of its answer ended before the response was there; the server may have "
                    "executed it"
                )
            log.debug("%s: the stream ended early; going on with it in %.2f s", self._what, messages.retry_s)
            self._patience.pause(messages.retry_s)
            messages.reconnected()
            current = self._resume(messages)

    def _read_stream(self, opened: Opened, messages: SseMessages) -> tuple[Mapping[str, Any] | None, bool]:
        """Read one connection; return the response, if it came, and whether any message did."""
        heard = False
        try:
            data = opened.read()
            while data:
                batch = messages.feed(data)
                heard = heard or bool(batch)
                found = self._sift(batch)
                self._pass_progress_on()
                if found is not None:
                    self._finish(opened)
                    return found, True
                data = opened.read()
        except BodyIdle as error:  # the second line of defence behind the deadline
            raise McpTimeoutError(f"{self._what}: {error}") from None
        except BodyBroken as error:
            log.debug("%s: %s", self._what, error)
        except FrameTooLarge as error:
            raise McpProtocolError(f"{self._what}: {error}") from None
        finally:
            opened.close()
        return None, heard

    def _resume(self, messages: SseMessages) -> Opened | None:
        """Ask for the rest of the stream; `None` if it may come at another try."""
        session = self._session
        headers = headers_of(Era.HANDSHAKE, self._request.version, session, has_body=False)
        headers["Last-Event-ID"] = messages.last_event_id or ""
        headers["Accept-Encoding"] = "identity"
        patience = self._patience
        try:
            opened = self._peer.endpoint.open("GET", headers, None, patience.left, patience.release)
        except McpConnectionError:
            return None
        status = opened.status
        if status == 200 and opened.media_type == "text/event-stream":
            return opened
        opened.close()
        if status in (408, 429) or status >= 500:
            return None
        if status == 404 and session is not None and session.id is not None:
            session.end()
        raise McpConnectionError(
            f"{self._what}: the stream of its answer ended early and the server does not go on with it ({status}); it "
            "may have executed the request"
        )

    def _finish(self, opened: Opened) -> None:
        """Read the end of the stream, if it is there at once, so that the connection can be used again."""
        dealings = self._peer.dealings
        if not dealings.ends_its_streams:
            return
        take_back = dealings.deadlines.add(time.monotonic() + LEFTOVER_S, self._patience.release)
        try:
            while opened.read():
                pass
        except (BodyBroken, BodyIdle):
            dealings.ends_its_streams = False
        finally:
            take_back()

    # ------------------------------------------------------------------------------------ messages

    def _sift(self, messages: list[Mapping[str, Any]]) -> Mapping[str, Any] | None:
        """Take what is not the response; return the response if it is among the messages."""
        found = None
        request = self._request
        for message in messages:
            self._patience.heard()
            if kind_of_message(message) is Kind.RESPONSE:
                if found is None and self._is_ours(message):
                    found = message
                else:
                    log.debug("%s: a response to another request was dropped", self._what)
            else:
                self._peer.take(message, request.era, request.version, self._session, self._patience)
        return found

    def _is_ours(self, response: Mapping[str, Any]) -> bool:
        # An error may come without an id that means anything: the server could not, or would not, read ours.
        answered = answer_id(response)
        return answered == self._id or (answered is None and response.get("error") is not None)

    def _pass_progress_on(self) -> None:
        progress = self._pending.progress
        while progress:
            params = progress.popleft()
            if self._on_progress is not None and self._patience.ended_by is None:
                with self._patience.busy():
                    self._on_progress(params)


def _rpc_error(body: bytes) -> Mapping[str, Any] | None:
    """Return the JSON-RPC error that a body holds."""
    try:
        messages = decode_body(body)
    except ValueError:
        return None
    for message in messages:
        error = message.get("error")
        if isinstance(error, dict) and isinstance(error.get("code"), int):
            return message
    return None
