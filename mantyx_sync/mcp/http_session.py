"""What one process knows of its dealings with a server over HTTP: the session, and the waits that go on."""

from __future__ import annotations

import re
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Deque, Dict, List, Mapping, Optional

from ..tools.deadlines import Deadlines
from ..transport.secret import Secret
from .channel import MAX_KEPT_PROGRESS, Era, Waiting
from .errors import McpConnectionError, McpProtocolError, McpSessionGone
from .messages import progress_id
from .patience import Ending, Patience

if TYPE_CHECKING:
    from .http_push import PushStream

__all__ = ["Dealings", "Pending", "Session", "headers_of"]

_SESSION_ID = re.compile(r"[\x21-\x7e]+")


class Session:
    """What `initialize` began. A server that keeps no sessions issues no id; the rest holds for it as well."""

    def __init__(self, number: int, session_id: str | None) -> None:
        self.number = number
        self.id = None if session_id is None else Secret(session_id)
        self.is_over = False
        self.version: Optional[str] = None
        self.push: Optional[PushStream] = None
        """The stream of what the server sends unasked."""

    def __repr__(self) -> str:
        return f"Session({self.number})"

    def end(self) -> None:
        """Note that the server has forgotten it. Neither blocks nor raises."""
        self.is_over = True
        push = self.push
        if push is not None:
            push.end()


class Pending:
    """A request that waits for its answer, as the threads that read something for it see it."""

    def __init__(self, patience: Patience) -> None:
        self.patience = patience
        self.progress: Deque[Mapping[str, Any]] = deque(maxlen=MAX_KEPT_PROGRESS)
        """What its thread has to pass on; most of it that thread has read itself."""


class Dealings:
    """State of one process; a child of a fork makes its own, and with it a new generation."""

    def __init__(self, number: int, is_closed: bool) -> None:
        self.number = number
        self.session: Optional[Session] = None
        self.deadlines = Deadlines()
        self.pending: Dict[int, Pending] = {}
        self.active: Dict[object, Patience] = {}
        self.senders: List[threading.Thread] = []
        """Threads that tell the server of calls that were given up."""
        self.is_closed = is_closed
        self.ends_its_streams = True
        """Whether the server ends an answer's stream with the answer, so that the connection can serve again."""
        self._lock = threading.Lock()

    def begin(self, session_id: str | None, label: str) -> Session:
        """Note that the server accepted `initialize`.

        Raises:
            McpProtocolError: The session id holds what no header can carry back.
        """
        if session_id is not None and not _SESSION_ID.fullmatch(session_id):
            raise McpProtocolError(f"{label}: the session id that it issued is not visible ASCII text")
        with self._lock:
            before = self.session
            self.number += 1
            session = self.session = Session(self.number, session_id)
        if before is not None:
            before.end()
        return session

    def session_for(self, generation: int | None, label: str) -> Session | None:
        """Return the session that a handshake request goes to.

        Raises:
            McpSessionGone: It relies on one that is over.
        """
        session = self.session
        if generation is None:
            return None if session is None or session.is_over else session
        if session is None or session.is_over or session.number != generation:
            raise McpSessionGone(f"{label}: the session is over; the request was not sent")
        return session

    def wait(self, waiting: Waiting, label: str) -> Patience:
        """Return what ends a wait that begins now, also when the channel is closed.

        Raises:
            McpConnectionError: It is closed already.
        """
        key = object()
        patience = Patience(waiting, self.deadlines, on_exit=lambda: self.active.pop(key, None))
        self.active[key] = patience
        if self.is_closed:  # looked at after noting it: `close` sees it or we see `close`
            del self.active[key]
            raise McpConnectionError(f"{label}: the client is closed", sent=False)
        return patience

    def end_waits(self) -> None:
        """End everything that goes on. Neither blocks nor raises."""
        for patience in list(self.active.values()):
            patience.end(Ending.CLOSED)

    def note_progress(self, message: Mapping[str, Any]) -> bool:
        """Hand progress to the request that it is about; false if the message is none, or no request waits for it."""
        request_id = progress_id(message)
        pending = None if request_id is None else self.pending.get(request_id)
        if pending is None:
            return False
        pending.progress.append(message["params"])
        pending.patience.heard()
        return True


def headers_of(era: Era, version: str | None, session: Session | None, has_body: bool) -> dict[str, str]:
    """Return the protocol's headers of a request (mcp-client §4), without those of the method."""
    headers = {"Accept": "text/event-stream"}
    if has_body:
        headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    if version is not None:
        headers["MCP-Protocol-Version"] = version
    if era is Era.HANDSHAKE and session is not None and session.id is not None:
        headers["Mcp-Session-Id"] = session.id
    return headers
