"""The GET stream of a session: what a server sends that belongs to no call (mcp-client §4.4).

Requests come on it as well. Nobody who does not read it can answer them, and the tool that asked would wait for ever.
"""

from __future__ import annotations

import logging
import threading
import time

from ..errors import MantyxError
from ..transport.body import BodyBroken, BodyIdle
from ..transport.sse import FrameTooLarge
from .channel import Era, Waiting
from .errors import McpConnectionError
from .http_peer import HttpPeer
from .http_session import Session, headers_of
from .messages import Kind, kind_of_message
from .patience import Ending, Patience
from .sse_messages import SseMessages

__all__ = ["PushStream"]

log = logging.getLogger(__name__)

MAX_FAILURES = 2
"""Failed connections in a row after which the stream is given up."""
SETTLED_S = 5.0
"""A connection that lasted this long did not fail, though nothing came on it: something between us cuts idle ones."""
JOIN_S = 2.0
ANSWERED_S = 1.0
"""How long calls wait at a session's beginning for the server to answer the GET."""
_SLICE_S = 0.05


class PushStream:
    """A thread that reads the stream, until it is ended or the server has had enough of it."""

    def __init__(self, peer: HttpPeer, session: Session, version: str | None) -> None:
        self._label = peer.label
        self._patience = peer.dealings.wait(Waiting(), peer.label)
        self._answered = threading.Event()
        self._awaited_until = 0.0
        # The reader belongs to the thread alone: once that has ended, nothing here holds the server's connections.
        reader = _Reader(peer, session, version, self._patience, self._answered)
        # Owned by the session: ended by it, by close() or by the collector's finalizer, which shut the connection;
        # joined by close(). A daemon, since nothing is lost at exit.
        self._thread = threading.Thread(target=reader.run, name="mantyx-mcp-push", daemon=True)

    def start(self) -> None:
        """Begin to read. Does not block."""
        self._awaited_until = time.monotonic() + ANSWERED_S
        try:
            self._thread.start()
        except RuntimeError as error:  # the interpreter is ending, or there are too many threads
            log.info("%s: no thread for what it sends unasked: %s", self._label, error)
            self._patience.__exit__()
            self._answered.set()

    def wait_answered(self, patience: Patience) -> None:
        """Wait until the server has the stream, or does not offer it: what it sends before that may be lost.

        Not for long, and once: there are servers whose answer begins with the first thing they have to say on it.
        """
        while not self._answered.is_set() and patience.ended_by is None and time.monotonic() < self._awaited_until:
            self._answered.wait(_SLICE_S)

    def end(self) -> None:
        """Have the thread end. Neither blocks nor raises."""
        self._patience.end(Ending.CLOSED)

    def join(self) -> None:
        """Wait for the end of the thread, unless it is this one."""
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(JOIN_S)


class _Reader:
    """Reads one connection after the other."""

    def __init__(
        self, peer: HttpPeer, session: Session, version: str | None, patience: Patience, answered: threading.Event
    ) -> None:
        self._peer = peer
        self._session = session
        self._version = version
        self._patience = patience
        self._answered = answered

    def run(self) -> None:
        """Read until there is nothing more to read. Does not raise."""
        try:
            with self._patience:
                self._follow()
        except Exception:
            log.exception("%s: reading what it sends unasked failed", self._peer.label)
        finally:
            self._answered.set()

    def _follow(self) -> None:
        messages = SseMessages(self._peer.max_message_bytes)
        failures = 0
        while self._patience.ended_by is None:
            began = time.monotonic()
            outcome = self._read(messages)
            if outcome is None:
                return
            failures = 0 if outcome or time.monotonic() - began >= SETTLED_S else failures + 1
            if failures >= MAX_FAILURES:
                log.debug("%s: gave up the stream of what it sends unasked", self._peer.label)
                return
            self._patience.pause(messages.retry_s)
            messages.reconnected()

    def _read(self, messages: SseMessages) -> bool | None:
        """Read one connection to its end; tell whether anything came, `None` if it is of no use to try again."""
        peer, patience = self._peer, self._patience
        headers = headers_of(Era.HANDSHAKE, self._version, self._session, has_body=False)
        headers["Cache-Control"] = "no-cache"
        headers["Accept-Encoding"] = "identity"  # what is compressed may be held back on the way
        if messages.last_event_id is not None:
            headers["Last-Event-ID"] = messages.last_event_id
        try:
            opened = peer.endpoint.open("GET", headers, None, patience.left, patience.release)
        except McpConnectionError:
            return False
        except MantyxError:  # a redirect elsewhere
            return None
        self._answered.set()
        something = False
        try:
            if opened.status != 200 or opened.media_type != "text/event-stream":
                log.debug("%s: no stream of what it sends unasked (%d)", peer.label, opened.status)
                return False if opened.status in (408, 429) or opened.status >= 500 else None
            log.debug("%s: stream of what it sends unasked opened", peer.label)
            data = opened.read()
            while data:
                for message in messages.feed(data):
                    something = True
                    if kind_of_message(message) is Kind.RESPONSE:  # to a request that was given up
                        continue
                    peer.take(message, Era.HANDSHAKE, self._version, self._session, patience)
                data = opened.read()
        except (BodyBroken, BodyIdle):
            pass
        except FrameTooLarge as error:
            log.warning("%s: %s", peer.label, error)
            return None
        finally:
            opened.close()
        return something
