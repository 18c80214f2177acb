"""One message to the server, and what the server sends unasked: what requests and the GET stream have in common."""

from __future__ import annotations

import contextlib
import logging
import weakref
from typing import Any, Mapping

from ..errors import MantyxError, MantyxNetworkError, MantyxTimeoutError, cut
from ..transport.answers import Opened
from ..transport.secret import SecretBytes
from .channel import Era, Receiver
from .errors import McpAuthError
from .http_endpoint import Endpoint
from .http_session import Dealings, Session, headers_of
from .messages import encode
from .patience import Patience

__all__ = ["HttpPeer"]

log = logging.getLogger(__name__)

RESPOND_S = 10.0
"""How long handing over the answer to a server's request may take."""

_MAX_TEXT_BYTES = 64 * 1024


class HttpPeer:
    """A server's address, this process's dealings with it, and who takes what it sends unasked.

    Threads that live longer than a call hold this and not the channel, which can be collected meanwhile.
    """

    def __init__(
        self, endpoint: Endpoint, dealings: Dealings, receiver: weakref.ref[Receiver], max_message_bytes: int
    ) -> None:
        self.endpoint = endpoint
        self.dealings = dealings
        self.max_message_bytes = max_message_bytes
        self._receiver = receiver

    @property
    def label(self) -> str:
        """What to call the server in a sentence."""
        return self.endpoint.label

    def post(
        self,
        message: Mapping[str, Any],
        era: Era,
        version: str | None,
        session: Session | None,
        patience: Patience,
        more_headers: Mapping[str, str] | None = None,
    ) -> Opened:
        """POST one message and return the answer once its headers are there.

        Raises:
            McpConnectionError, McpTimeoutError, McpProtocolError: As `Endpoint.open`.
        """
        headers = headers_of(era, version, session, has_body=True)
        headers.update(more_headers or {})
        return self.endpoint.open("POST", headers, SecretBytes(encode(message)), patience.left, patience.release)

    def deliver(
        self, message: Mapping[str, Any], era: Era, version: str | None, session: Session | None, patience: Patience
    ) -> Opened:
        """POST a notification or a response, for which there is no answer, and return the (closed) answer.

        Raises:
            McpConnectionError, McpTimeoutError, McpProtocolError: As `Endpoint.open`.
        """
        method = message.get("method")
        more = {"Mcp-Method": str(method)} if era is Era.STATELESS and method else None
        opened = self.post(message, era, version, session, patience, more)
        if opened.media_type == "text/event-stream":  # there is nothing to come on it
            opened.close()
        else:
            with contextlib.suppress(MantyxError):  # the status is what counts
                opened.read_all(_MAX_TEXT_BYTES)
        return opened

    def take(
        self, message: Mapping[str, Any], era: Era, version: str | None, session: Session | None, patience: Patience
    ) -> None:
        """Pass on what answers no request of ours; POST the answer if it is a request of the server."""
        receiver = self._receiver()
        if self.dealings.note_progress(message) or receiver is None:
            return
        with patience.busy():
            response = receiver.received(message, era)
        if response is None or era is not Era.HANDSHAKE:
            return
        try:
            with patience.inner(RESPOND_S) as inner:
                status = self.deliver(response, era, version, session, inner).status
        except (MantyxNetworkError, MantyxTimeoutError) as error:
            log.info("%s: the answer to its request could not be handed over (%s)", self.label, type(error).__name__)
        else:
            if status >= 400:
                log.info("%s did not take the answer to its request (%d)", self.label, status)

    def auth_error(self, opened: Opened) -> McpAuthError | None:
        """Return the error of an answer that asks for other credentials, `None` if it does not."""
        status = opened.status
        if status not in (401, 403):
            return None
        challenge = opened.headers.get("WWW-Authenticate")
        text = "credentials are missing or were not accepted" if status == 401 else "the credentials do not allow this"
        quoted = f" (WWW-Authenticate: {cut(challenge)})" if challenge else ""
        return McpAuthError(f"{self.label}: {status}, {text}{quoted}", status=status, www_authenticate=challenge)

    def start_of(self, opened: Opened) -> bytes:
        """Read what may be of use of the body of an error, and close it."""
        return opened.read_start(self.max_message_bytes if "json" in opened.media_type else _MAX_TEXT_BYTES)
