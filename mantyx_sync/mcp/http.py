"""The channel to an MCP server over Streamable HTTP, in both eras (mcp-client §4).

Each request is a POST of its own, read by the thread that waits for it, so one call never holds up another. Only what
a server sends to a session unasked needs a thread: the GET stream's, one for each session.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, Mapping

from ..checks import whole_number
from ..errors import MantyxError
from .channel import DEFAULT_MAX_MESSAGE_BYTES, Era, Outgoing, Receiver, Waiting
from .errors import McpCancelled, McpConnectionError, McpSessionGone, McpTimeoutError
from .http_endpoint import Endpoint
from .http_exchange import Exchange
from .http_peer import HttpPeer
from .http_push import PushStream
from .http_session import Dealings, Session, headers_of
from .messages import given_up
from .patience import Ending, Patience

if TYPE_CHECKING:
    import requests

__all__ = ["HttpChannel"]

log = logging.getLogger(__name__)

NOTIFY_S = 30.0
"""How long handing over a notification may take if the caller sets no deadline."""
CANCEL_S = 1.0
"""How long telling the server that a call was given up may take."""
DELETE_S = 2.0
"""How long telling the server that a session is over may take."""


class HttpChannel:
    """A `Channel` over HTTP. Any thread may use it; a child of a fork begins anew.

    Proxies and CA files hold as `requests` has them: those of the environment (with `NO_PROXY`), or of the session
    that was given. Cookies and `.netrc` are not used. Left to the garbage collector it frees its sockets and its
    thread, but does not tell the server; `close` does.
    """

    def __init__(
        self,
        url: str,
        receiver: Receiver,
        *,
        headers: Mapping[str, str] | None = None,
        session: requests.Session | None = None,
        connect_timeout: float = 10.0,
        max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES,
    ) -> None:
        """Check what was given; nothing is sent yet.

        Args:
            url: The server's endpoint. A query is allowed and shown nowhere.
            receiver: Takes what the server sends unasked; held by a weak reference.
            headers: Sent with every request; those of the protocol go first.
            session: Its proxies, CA files, client certificates, adapters, headers and `auth` are used.
            connect_timeout: Seconds to open a connection.
            max_message_bytes: Larger messages of the server are a protocol error.

        Raises:
            MantyxConfigError: One of them cannot be used.
        """
        self._max_message_bytes = whole_number(max_message_bytes, "max_message_bytes", 1024)
        self._endpoint = Endpoint(url, headers=headers, session=session, connect_timeout=connect_timeout)
        self._receiver: weakref.ref[Receiver] = weakref.ref(receiver)
        self._peers: dict[int, HttpPeer] = {}  # by process: no thread, lock or session survives a fork
        self._is_closed = False
        weakref.finalize(self, _let_go, self._peers)

    def __repr__(self) -> str:
        return f"HttpChannel({self._endpoint!r})"

    @property
    def label(self) -> str:
        """What to call the server in a sentence: scheme, host and path."""
        return self._endpoint.label

    @property
    def generation(self) -> int:
        """Number of the session in use; `initialize` begins a new one, a fork as well."""
        return self._peer().dealings.number

    def exchange(self, request: Outgoing, waiting: Waiting) -> Mapping[str, Any]:
        """Send a request and return its response (see `Channel`). Blocks; nothing is sent twice."""
        peer = self._peer()
        dealings = peer.dealings
        session = None
        with dealings.wait(waiting, peer.label) as patience:
            if request.era is Era.HANDSHAKE and request.message["method"] != "initialize":
                session = dealings.session_for(request.generation, peer.label)
            exchange = Exchange(peer, request, waiting, session, patience)
            try:
                return exchange.response()
            except McpSessionGone:
                raise
            except (McpConnectionError, McpTimeoutError) as error:
                if patience.is_late:
                    patience.end(Ending.DEADLINE)
                if patience.ended_by is None:
                    raise
                is_sent = getattr(error, "sent", None) is not False
                if is_sent:
                    self._tell_given_up(peer, request, session, patience)
                raise _given_up(request, waiting, patience, peer.label, is_sent) from error.__cause__
            except MantyxError:
                raise
            except BaseException:  # Ctrl-C
                self._tell_given_up(peer, request, session, patience)
                raise

    def notify(self, message: Mapping[str, Any], era: Era, version: str | None, deadline: float | None) -> None:
        """Send a notification (see `Channel`). A refusal other than 401, 403 or a session's end is only logged."""
        peer = self._peer()
        session = peer.dealings.session if era is Era.HANDSHAKE else None
        waiting = Waiting(time.monotonic() + NOTIFY_S if deadline is None else deadline)
        what = f"{peer.label}: {message.get('method')}"
        with peer.dealings.wait(waiting, peer.label) as patience:
            if session is not None and session.is_over:
                raise McpSessionGone(f"{what}: the session is over; it was not sent")
            try:
                opened = peer.deliver(message, era, version, session, patience)
            except McpTimeoutError:
                raise McpTimeoutError(f"{what}: not handed over in time") from None
            except McpConnectionError:
                if patience.ended_by is Ending.DEADLINE:
                    raise McpTimeoutError(f"{what}: not handed over in time") from None
                raise
        unauthorized = peer.auth_error(opened)
        if unauthorized is not None:
            raise unauthorized
        if opened.status == 404 and session is not None and session.id is not None:
            session.end()
            raise McpSessionGone(f"{what}: the server has forgotten the session (404)", status=404)
        if opened.status >= 400:
            log.info("%s: the server answered %d", what, opened.status)

    def opened(self, era: Era, version: str | None) -> None:
        """Open the GET stream if a session id was issued: without one, a server may keep it open for ever, silent."""
        peer = self._peer()
        session = peer.dealings.session
        if era is Era.HANDSHAKE and session is not None and session.id is not None and session.push is None:
            session.push = PushStream(peer, session, version)
            if session.is_over:  # meanwhile
                session.push.end()
            session.push.start()
            session.version = version

    def close(self) -> None:
        """End every wait, the GET stream and the session; close the connections. Blocks a few seconds at most."""
        peer = self._peer()
        dealings = peer.dealings
        if dealings.is_closed:
            return
        session = dealings.session
        for sender in list(dealings.senders):
            sender.join(CANCEL_S)
        self._is_closed = dealings.is_closed = True
        dealings.end_waits()
        if session is not None:
            if session.push is not None:
                session.push.join()
            if session.id is not None and not session.is_over:
                session.is_over = True
                self._delete(peer, session)
        self._endpoint.close()

    # ------------------------------------------------------------------------------------

    def _peer(self) -> HttpPeer:
        pid = os.getpid()
        peer = self._peers.get(pid)
        if peer is None:
            number = max((other.dealings.number + 1 for other in list(self._peers.values())), default=0)
            dealings = Dealings(number, is_closed=self._is_closed)
            peer = HttpPeer(self._endpoint, dealings, self._receiver, self._max_message_bytes)
            peer = self._peers.setdefault(pid, peer)
        return peer

    def _tell_given_up(self, peer: HttpPeer, request: Outgoing, session: Session | None, patience: Patience) -> None:
        """Have the server stop (mcp-client §6.5). In the stateless era closing the answer has done that."""
        if request.era is not Era.HANDSHAKE or not request.may_cancel or patience.ended_by is Ending.CLOSED:
            return
        senders = peer.dealings.senders
        is_late = patience.ended_by in (Ending.DEADLINE, Ending.IDLE)
        message = given_up(request.message["id"], patience.waited if is_late else None)
        # Not on this thread, whose time is over. Ends by itself within CANCEL_S, joined by close(); a daemon, since
        # at exit it is of no use.
        sender = threading.Thread(
            target=_send_quietly,
            args=(peer, message, request.version, session),
            name="mantyx-mcp-given-up",
            daemon=True,
        )
        senders[:] = [other for other in senders if other.is_alive()] + [sender]
        try:
            sender.start()
        except RuntimeError:  # the interpreter is ending, or there are too many threads
            senders.remove(sender)

    def _delete(self, peer: HttpPeer, session: Session) -> None:
        headers = headers_of(Era.HANDSHAKE, session.version, session, has_body=False)
        waiting = Waiting(time.monotonic() + DELETE_S)
        with contextlib.suppress(MantyxError), Patience(waiting, peer.dealings.deadlines) as patience:
            opened = self._endpoint.open("DELETE", headers, None, patience.left, patience.release)
            log.debug("%s: session ended (%d)", peer.label, opened.status)
            opened.close()


def _send_quietly(peer: HttpPeer, message: Mapping[str, Any], version: str | None, session: Session | None) -> None:
    waiting = Waiting(time.monotonic() + CANCEL_S)
    with contextlib.suppress(MantyxError), peer.dealings.wait(waiting, peer.label) as patience:
        peer.deliver(message, Era.HANDSHAKE, version, session, patience)


def _given_up(request: Outgoing, waiting: Waiting, patience: Patience, label: str, is_sent: bool) -> MantyxError:
    """Return the error of a wait that was ended from outside."""
    what = f"{label}: {request.message['method']}"
    then = "the server may have executed it" if is_sent else "it was not sent"
    reason = patience.ended_by
    if reason is Ending.CANCELLED:
        return McpCancelled(f"{what} was cancelled; {then}")
    if reason is Ending.CLOSED:
        return McpConnectionError(f"{what}: the client was closed meanwhile; {then}", sent=None if is_sent else False)
    if reason is Ending.IDLE:
        return McpTimeoutError(f"{what}: no message for {waiting.idle_timeout:g} s (idle_timeout); {then}")
    return McpTimeoutError(f"{what}: no response after {patience.waited:.1f} s; {then}")


def _let_go(peers: Mapping[int, HttpPeer]) -> None:
    """End what goes on for a channel that was collected; takes no lock and touches nothing of another process."""
    peer = peers.get(os.getpid())
    if peer is not None:
        peer.dealings.end_waits()
