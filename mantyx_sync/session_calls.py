"""What a client can ask about sessions (http §3): the part of `MantyxClient` that is about them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterable, Mapping

from .spec import build_spec, spec_signature
from .toolspec import read_tools

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .events import RunEvent
    from .session import AgentSession
    from .session_info import SessionEventsPage, SessionInfo, SessionPage
    from .spec import RunSpecArgs
    from .workspace import Workspace

__all__ = ["SessionCalls"]


class SessionCalls:
    """Sessions of the workspace. Every method blocks for one request and may be called from any thread."""

    _workspace: Workspace

    @spec_signature(purpose="session")
    def create_session(self, **fields: Unpack[RunSpecArgs]) -> AgentSession:
        """Create a session: a conversation that the server keeps (wire §2.2).

        MCP servers and A2A agents among its tools are connected first, and stay so until it is ended or closed.

        Args:
            fields: Fields of `RunSpec`; they are the session's defaults, which a message may override.

        Raises:
            MantyxConfigError: The spec is not allowed; nothing was sent.
            MantyxError: A server among the tools cannot be reached; nothing was sent.
        """
        from .session import create_session

        return create_session(self._workspace, build_spec(fields, purpose="session"))

    def resume_session(self, session_id: str, *, tools: Iterable[Any] | None = None) -> AgentSession:
        """Take up a session that exists, in another process too.

        Args:
            tools: The tools that this process answers for; they go out with each message, as the session's own may
                be others. `None` leaves the session's tools alone, with nobody here to answer for local ones. MCP
                servers and A2A agents among them are connected now, and stay so until it is ended or closed.

        Raises:
            MantyxNotFoundError: There is no such session.
            MantyxError: A server among the tools cannot be reached.
        """
        from .session import resume_session

        return resume_session(self._workspace, session_id, None if tools is None else read_tools(tools))

    def get_session_info(self, session_id: str) -> SessionInfo:
        """Return a session with its spec and conversation.

        Raises:
            MantyxNotFoundError: There is no such session.
        """
        from .session import get_info

        return get_info(self._workspace, session_id)

    def list_sessions(
        self,
        *,
        metadata: Mapping[str, str] | None = None,
        status: str | None = None,
        limit: int | None = None,
        offset: int | None = None,
        cursor: str | None = None,
        include_total: bool = False,
    ) -> SessionPage:
        """List sessions, last used first; looping over the page fetches the next ones.

        Args:
            metadata: Only sessions whose metadata has all of these.
            status: `active` or `ended`.
            limit: Sessions a page, 1 to 200.
            offset: How many sessions to pass by.
            cursor: Where to go on, from an earlier page's `next_cursor`.
            include_total: Have the server count all matching sessions.

        Raises:
            MantyxConfigError: `limit` or `offset` is not allowed.
        """
        from .session import list_sessions

        return list_sessions(
            self._workspace,
            metadata=metadata,
            status=status,
            limit=limit,
            offset=offset,
            cursor=cursor,
            include_total=include_total,
        )

    def get_session_events(
        self, session_id: str, *, full: bool = False, last_messages: int | None = None
    ) -> list[RunEvent]:
        """Return a session's conversation as events, oldest first.

        Args:
            full: All of it.
            last_messages: Only the last ones, at most 500. Without either, what the server gives by itself.

        Raises:
            MantyxNotFoundError: There is no such session.
        """
        from .session import get_events

        return get_events(self._workspace, session_id, full=full, last_messages=last_messages)

    def get_session_events_page(
        self, session_id: str, *, last_messages: int = 100, before_seq: int | None = None
    ) -> SessionEventsPage:
        """Return a part of a session's conversation as events; its `pages_back()` walks on to the beginning.

        Args:
            last_messages: Messages a page, at most 500.
            before_seq: Only those before this event.

        Raises:
            MantyxNotFoundError: There is no such session.
        """
        from .session import get_events_page

        return get_events_page(self._workspace, session_id, last_messages=last_messages, before_seq=before_seq)

    def end_session(self, session_id: str) -> None:
        """End a session; its run, if one goes on, is cancelled by the server.

        Raises:
            MantyxNotFoundError: There is no such session.
        """
        from .session import end_session

        end_session(self._workspace, session_id)
