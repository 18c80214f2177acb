"""`AgentSession`: a conversation that the server keeps; each message is a run of its own (wire §2.2, §8.6)."""

from __future__ import annotations

import os
import weakref
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Mapping, NoReturn, Sequence

from .checks import callbacks, whole_number
from .errors import MantyxConfigError, MantyxConflictError, MantyxNotFoundError
from .events import RunEvent
from .limits import MAX_REPLAYED_MESSAGES
from .opened_tools import OpenedTools
from .pages import listing_query
from .reader import JOIN_S
from .results import RunResult
from .run import Run
from .run_events import deadline_after
from .session_info import SessionEventsPage, SessionInfo, SessionPage
from .spec import OMITTED, RunSpec, build_spec, plan_only, spec_signature
from .tools.registry import Registry
from .transport.url import segment
from .views import Viewable
from .wire import Fields
from .workspace import Workspace, with_tools

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .spec import RunSpecArgs

__all__ = [
    "AgentSession",
    "create_session",
    "end_session",
    "get_events",
    "get_events_page",
    "get_info",
    "list_sessions",
    "resume_session",
]


class AgentSession(Viewable):
    """A conversation with an agent. Obtained from `MantyxClient.create_session` or `resume_session`.

    One run at a time: a message that is sent while another one's run goes on, from whatever thread, is refused with
    `MantyxConflictError` before anything is sent. A stream that was closed, dropped or given up is no longer in the
    way here, though the server may be busy with it for a while. What a message overrides holds for its run alone.

    The session's MCP servers and A2A agents stay connected from its creation to `end`, `close`, the client's `close`,
    or until the session is dropped; a message after that connects anew. Those of a message's own `tools` are connected
    for its run alone.
    """

    def __init__(
        self,
        workspace: Workspace,
        session_id: str,
        tools: Sequence[Any],
        opened: OpenedTools,
        *,
        sends_tools: bool = False,
    ) -> None:
        """Called by the client.

        Args:
            tools: What this process answers for, as it was given.
            opened: The same, resolved.
            sends_tools: The session's own tools may be others, so these go out with every message.
        """
        self.id = session_id
        self._workspace = workspace
        self._tools = tools
        self._opened = opened
        self._registry = opened.registry()  # one for all messages: an A2A agent's conversation is the session
        self._sends_tools = sends_tools
        # The message that is being sent, by process: a child of a fork is not in the way of its parent's messages. A
        # dictionary, since its `setdefault` is one step for all threads, and no lock is held while we send.
        self._sending: dict[int, object] = {}
        # Weak, so that a stream which nobody holds any more is let go of, as any other.
        self._run: weakref.ref[Run] | None = None

    @property
    def run(self) -> Run | None:
        """The run of a message that goes on and is followed here; `None` if there is none, or nobody holds it."""
        run = None if self._run is None else self._run()
        return run if run is not None and run.is_followed_here and not run.is_over else None

    @property
    def tools(self) -> tuple[Any, ...]:
        """The tools that this process answers for."""
        return tuple(self._tools)

    def __repr__(self) -> str:
        return f"AgentSession({self.id!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"an AgentSession cannot be pickled or copied: it belongs to a client. Pass its id on, and "
            f"resume_session({self.id!r}, tools=…) takes it up there"
        )

    @spec_signature
    def send(
        self,
        message: str | Sequence[Any] | None = None,
        /,
        *,
        timeout: float | None = None,
        on_event: Callable[[RunEvent], None] | None = None,
        on_assistant_delta: Callable[[str], None] | None = None,
        output_type: Any = None,
        idempotency_key: str | None = None,
        **overrides: Unpack[RunSpecArgs],
    ) -> RunResult:
        """Send a message and return the result of its run. Blocks until the run ends.

        Args:
            message: What the user says, as text or as a list of messages; `prompt=` and `messages=` say the same.
            timeout: Seconds for the whole run. `None` waits as long as it takes.
            on_event: Called with each event, on the calling thread.
            on_assistant_delta: Called with each piece of the assistant's text, on the calling thread.
            output_type: As `MantyxClient.run_agent`.
            idempotency_key: As `MantyxClient.start_agent`, among the session's runs: a message is said once.
            overrides: Fields of `RunSpec` that hold for this run instead of the session's.

        Raises:
            MantyxConflictError: Another run of the session goes on, or the session has ended.
            MantyxError: As `MantyxClient.run_agent`.
        """
        callbacks(on_event=on_event, on_assistant_delta=on_assistant_delta)
        wants_events = on_event is not None or on_assistant_delta is not None
        run = self._start(
            _message(message, overrides),
            timeout,
            output_type,
            idempotency_key,
            wants_events=wants_events,
            is_owned=True,
        )
        return self._workspace.complete(run, on_event, on_assistant_delta)

    @spec_signature
    def stream(
        self,
        message: str | Sequence[Any] | None = None,
        /,
        *,
        timeout: float | None = None,
        output_type: Any = None,
        idempotency_key: str | None = None,
        **overrides: Unpack[RunSpecArgs],
    ) -> Run:
        """Send a message and return its run, to loop over. Blocks until the run is created.

        Args and errors are those of `send`; the run is used as that of `MantyxClient.stream_agent`.
        """
        return self._start(
            _message(message, overrides), timeout, output_type, idempotency_key, wants_events=True, is_owned=True
        )

    @spec_signature
    def run_plan(
        self,
        message: str | Sequence[Any] | None = None,
        /,
        *,
        steps: Sequence[str] | None = None,
        brief: str | None = None,
        timeout: float | None = None,
        on_event: Callable[[RunEvent], None] | None = None,
        on_assistant_delta: Callable[[str], None] | None = None,
        idempotency_key: str | None = None,
        **overrides: Unpack[RunSpecArgs],
    ) -> RunResult:
        """Have a task plan made for a message without running the agent (wire §8.5). Blocks.

        The plan is the result's `plan`; it does not become a part of the conversation. Args and errors are those of
        `send` and `MantyxClient.run_plan`.
        """
        overrides["plan"] = plan_only(steps=steps, brief=brief)
        return self.send(
            message,
            timeout=timeout,
            on_event=on_event,
            on_assistant_delta=on_assistant_delta,
            idempotency_key=idempotency_key,
            **overrides,
        )

    def info(self) -> SessionInfo:
        """Return the session with its spec and conversation (http §3). One request."""
        return get_info(self._workspace, self.id)

    def history(self) -> list[Mapping[str, Any]]:
        """Return the conversation: mappings with `role` and `content`. One request."""
        return list(self.info().messages)

    def events(self, *, full: bool = False, last_messages: int | None = None) -> list[RunEvent]:
        """Return the conversation as events, oldest first (http §3). One request.

        Args:
            full: All of it.
            last_messages: Only the last ones, at most 500. Without either, what the server gives by itself.
        """
        return get_events(self._workspace, self.id, full=full, last_messages=last_messages)

    def events_page(self, *, last_messages: int = 100, before_seq: int | None = None) -> SessionEventsPage:
        """Return a part of the conversation as events; its `pages_back()` walks on to the beginning. One request.

        Args:
            last_messages: Messages a page, at most 500.
            before_seq: Only those before this event.
        """
        return get_events_page(self._workspace, self.id, last_messages=last_messages, before_seq=before_seq)

    def end(self) -> None:
        """End the session; its run, if one goes on, is cancelled by the server. One request.

        Raises:
            MantyxNotFoundError: There is no such session.
        """
        try:
            end_session(self._workspace, self.id)
        except MantyxNotFoundError:
            self._opened.close(JOIN_S)
            raise
        self._opened.close(JOIN_S)

    def close(self) -> None:
        """Let go of the session's run, if one goes on, and of its MCP servers and A2A agents.

        Waits for these up to a second. The session itself goes on at the server: see `end`.
        """
        run = self.run
        if run is not None:
            run.close()
        self._opened.close(JOIN_S)

    def __enter__(self) -> AgentSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _start(
        self,
        spec: RunSpec,
        timeout: float | None,
        output_type: Any,
        key: str | None,
        *,
        wants_events: bool,
        is_owned: bool = False,
    ) -> Run:
        this, process = object(), os.getpid()
        if self._sending.setdefault(process, this) is not this:
            raise self._busy()
        try:
            if self.run is not None:
                raise self._busy()
            registry = None
            if spec.tools is OMITTED:
                registry = self._answering(deadline_after(timeout))
                if self._sends_tools:
                    spec = replace(spec, tools=self._opened.refs)
            run = self._workspace.create(
                spec,
                timeout,
                wants_events=wants_events,
                is_owned=is_owned,
                output_type=output_type,
                path=_path(self.id) + "/messages",
                purpose="message",
                registry=registry,
                key=key,
                session_id=self.id,
            )
            run.session_id = self.id
            self._run = weakref.ref(run)
            return run
        finally:
            del self._sending[process]

    def _answering(self, deadline: float | None) -> Registry:
        """Return who answers the calls of the session's own tools, connected anew where they were let go of."""
        if self._opened.is_over:
            self._opened = self._workspace.open_tools(self._tools, deadline)
            self._registry = self._opened.registry()
        self._opened.stay_here(self._workspace.keepers)
        return self._registry

    def _busy(self) -> MantyxConflictError:
        return MantyxConflictError(
            f"session {self.id}: another run of it is going on; wait for its result, or cancel it. Nothing was sent.",
            code="session_busy",
        )


def create_session(workspace: Workspace, spec: RunSpec) -> AgentSession:
    """Create a session; see `MantyxClient.create_session`."""
    tools: Any = () if spec.tools is OMITTED else spec.tools
    opened = workspace.open_tools(tools)
    try:
        body = with_tools(spec, opened).to_wire("session")
        answer = workspace.api.request("POST", "/agent-sessions", body=body)
        session_id = Fields(answer.json(), "new session").text("sessionId")
        return AgentSession(workspace, session_id, tools, opened)
    except BaseException:
        opened.let_go()
        raise


def resume_session(workspace: Workspace, session_id: str, tools: tuple[Any, ...] | None) -> AgentSession:
    """Take up a session that exists; see `MantyxClient.resume_session`."""
    get_info(workspace, session_id)
    opened = workspace.open_tools(tools or ())
    return AgentSession(workspace, session_id, tools or (), opened, sends_tools=bool(tools))


def get_info(workspace: Workspace, session_id: str) -> SessionInfo:
    """Return what the server knows of a session; see `MantyxClient.get_session_info`."""
    return SessionInfo.from_wire(workspace.api.request("GET", _path(session_id)).json(), session_id)


def list_sessions(
    workspace: Workspace,
    *,
    metadata: Mapping[str, str] | None,
    status: str | None,
    limit: int | None,
    offset: int | None,
    cursor: str | None,
    include_total: bool,
) -> SessionPage:
    """List sessions; see `MantyxClient.list_sessions`."""
    query = listing_query(limit=limit, metadata=metadata, include_total=include_total, status=status)
    if offset is not None:
        whole_number(offset, "offset", 0)

    def fetch(at: str | None, skipped: int | None = None) -> SessionPage:
        answer = workspace.api.request("GET", "/agent-sessions", query={**query, "cursor": at, "offset": skipped})
        return SessionPage.from_wire(answer.json(), fetch)

    return fetch(cursor, offset)


def get_events(workspace: Workspace, session_id: str, *, full: bool, last_messages: int | None) -> list[RunEvent]:
    """Return a session's conversation as events; see `MantyxClient.get_session_events`."""
    query: dict[str, Any] = {}
    if full:
        query["full"] = 1
    elif last_messages is not None:
        query["lastMessages"] = _last_messages(last_messages)
    answer = workspace.api.request("GET", _path(session_id) + "/events", query=query)
    return list(SessionEventsPage.from_wire(answer.json(), session_id).events)


def get_events_page(
    workspace: Workspace, session_id: str, *, last_messages: int, before_seq: int | None
) -> SessionEventsPage:
    """Return a part of a session's conversation; see `MantyxClient.get_session_events_page`."""
    query = {"lastMessages": _last_messages(last_messages)}

    def fetch(before: int | None) -> SessionEventsPage:
        answer = workspace.api.request("GET", _path(session_id) + "/events", query={**query, "beforeSeq": before})
        return SessionEventsPage.from_wire(answer.json(), session_id, fetch)

    return fetch(before_seq)


def end_session(workspace: Workspace, session_id: str) -> None:
    """End a session; see `MantyxClient.end_session`."""
    workspace.api.request("DELETE", _path(session_id))


def _path(session_id: str) -> str:
    if not isinstance(session_id, str) or not session_id:
        raise MantyxConfigError(f"session_id: got {session_id!r}, must be the id of a session")
    return f"/agent-sessions/{segment(session_id)}"


def _last_messages(value: int) -> int:
    return whole_number(value, "last_messages", 1, MAX_REPLAYED_MESSAGES)


def _message(message: str | Sequence[Any] | None, overrides: Mapping[str, Any]) -> RunSpec:
    fields = dict(overrides)
    if message is not None:
        name = "prompt" if isinstance(message, str) else "messages"
        if fields.get(name) is not None:
            raise MantyxConfigError(f"{name}: given twice")
        fields[name] = message
    return build_spec(fields, purpose="message")
