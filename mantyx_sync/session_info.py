"""What the server tells about sessions (http §3): one of them, a list of them, and their history."""

from __future__ import annotations

from dataclasses import field
from typing import Any, Callable, Iterator, Mapping

from .errors import MantyxProtocolError
from .events import RunEvent, decode, read_envelope
from .pages import Page
from .reprs import dataclass
from .views import Viewable
from .wire import Fields

__all__ = ["SessionEventsPage", "SessionInfo", "SessionListResult", "SessionPage", "SessionSummary"]


@dataclass(frozen=True)
class SessionInfo(Viewable):
    """A session with its spec and its conversation. Times are ISO 8601 text; `status`: `active` or `ended`.

    `messages` are mappings with `role`, `content` and, where files were attached, `attachments` without their bytes.
    """

    id: str
    status: str
    name: str = ""
    created_at: str | None = None
    last_used_at: str | None = None
    ended_at: str | None = None
    agent_spec: Mapping[str, Any] = field(repr=False, hash=False, default_factory=dict)
    messages: tuple[Mapping[str, Any], ...] = field(repr=False, hash=False, default=())
    metadata: Mapping[str, Any] = field(hash=False, default_factory=dict)
    raw: Mapping[str, Any] = field(repr=False, compare=False, hash=False, default_factory=dict)

    @classmethod
    def from_wire(cls, body: object, session_id: str) -> SessionInfo:
        """Read the answer of `GET /agent-sessions/{id}`.

        Raises:
            MantyxProtocolError: A field is missing or of the wrong type; it is named.
        """
        fields = Fields(body, f"session {session_id}")
        return cls(
            id=fields.opt_text("id") or session_id,
            status=fields.text("status"),
            name=fields.opt_text("name") or "",
            created_at=fields.opt_text("createdAt"),
            last_used_at=fields.opt_text("lastUsedAt"),
            ended_at=fields.opt_text("endedAt"),
            agent_spec=fields.opt_object("agentSpec") or {},
            messages=tuple(message.data for message in fields.objects("messages")),
            metadata=fields.opt_object("metadata") or {},
            raw=fields.data,
        )


@dataclass(frozen=True)
class SessionSummary(Viewable):
    """One line of the list of sessions. `summary` is taken from the first prompt: sessions have no title."""

    session_id: str
    status: str = ""
    creation_date: str | None = None
    last_interaction_date: str | None = None
    summary: str = field(repr=False, default="")
    metadata: Mapping[str, Any] = field(hash=False, default_factory=dict)
    raw: Mapping[str, Any] = field(repr=False, compare=False, hash=False, default_factory=dict)

    @classmethod
    def read(cls, fields: Fields) -> SessionSummary:
        """Build it from the fields of one entry of `sessions`."""
        return cls(
            session_id=fields.text("sessionId"),
            status=fields.opt_text("status") or "",
            creation_date=fields.opt_text("creationDate"),
            last_interaction_date=fields.opt_text("lastInteractionDate"),
            summary=fields.opt_text("summary") or "",
            metadata=fields.opt_object("metadata") or {},
            raw=fields.data,
        )


@dataclass(frozen=True)
class SessionPage(Page[SessionSummary]):
    """A page of the list of sessions; looped over, it walks on into the next pages."""

    offset: int | None = None

    @classmethod
    def from_wire(cls, body: object, fetch_next: Callable[[str], SessionPage] | None = None) -> SessionPage:
        """Read the answer of `GET /agent-sessions`.

        Args:
            fetch_next: Gets the page that a cursor stands for.

        Raises:
            MantyxProtocolError: A field is missing or of the wrong type; it is named.
        """
        fields = Fields(body, "list of sessions")
        sessions = map(SessionSummary.read, fields.objects("sessions"))
        return cls.read(fields, sessions, fetch_next, offset=fields.opt_int("offset"))

    @property
    def sessions(self) -> tuple[SessionSummary, ...]:
        """The sessions of this page alone."""
        return self.items


SessionListResult = SessionPage
"""The name the platform's own package has for it."""


@dataclass(frozen=True)
class SessionEventsPage(Viewable):
    """A part of a session's conversation as events, oldest first.

    `next_before_seq` leads to the part before it, `None` at the beginning. `truncated`: the session holds more than the
    server was asked for.
    """

    session_id: str
    events: tuple[RunEvent, ...] = ()
    total: int | None = None
    next_before_seq: int | None = None
    truncated: bool = False
    raw: Mapping[str, Any] = field(repr=False, compare=False, hash=False, default_factory=dict)
    fetch_before: Callable[[int], SessionEventsPage] | None = field(repr=False, compare=False, hash=False, default=None)

    @classmethod
    def from_wire(
        cls, body: object, session_id: str, fetch_before: Callable[[int], SessionEventsPage] | None = None
    ) -> SessionEventsPage:
        """Read the answer of `GET /agent-sessions/{id}/events`.

        Args:
            fetch_before: Gets the page of events before a seq.

        Raises:
            MantyxProtocolError: A field is missing or of the wrong type; it is named.
        """
        fields = Fields(body, f"events of session {session_id}")
        envelopes = (read_envelope(frame.data, None, None) for frame in fields.objects("events"))
        return cls(
            session_id=fields.opt_text("sessionId") or session_id,
            events=tuple(decode(envelope) for envelope in envelopes if envelope is not None),
            total=fields.opt_int("total"),
            next_before_seq=fields.opt_int("nextBeforeSeq"),
            truncated=bool(fields.opt_bool("truncated")),
            raw=fields.data,
            fetch_before=fetch_before,
        )

    def previous_page(self) -> SessionEventsPage | None:
        """Fetch the page before this one; `None` if this is the first. Blocks for one request.

        Raises:
            MantyxProtocolError: The server's page does not lead further back: walking on would never end.
        """
        if self.next_before_seq is None or self.fetch_before is None:
            return None
        page = self.fetch_before(self.next_before_seq)
        if page.next_before_seq is not None and page.next_before_seq >= self.next_before_seq:
            raise MantyxProtocolError(f"session {self.session_id}: its pages of events do not lead back")
        return page

    def pages_back(self) -> Iterator[SessionEventsPage]:
        """Yield this page and those before it, fetching each when it is reached."""
        page: SessionEventsPage | None = self
        while page is not None:
            yield page
            page = page.previous_page()

    def __getstate__(self) -> dict[str, Any]:
        # The way to the other pages is a client's, which is not data: a page that was pickled stands alone.
        return {**self.__dict__, "fetch_before": None}
