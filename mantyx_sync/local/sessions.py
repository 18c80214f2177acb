"""Sessions of the embedded server: conversations that outlive a run (wire §§2.2, 8.6, http §3).

A session holds a spec and what was said. Each message starts a run over both; when it succeeds, its turns join
the conversation. One run at a time: a message that comes earlier is refused with 409 `session_busy`, one that
comes after the end with 409 `session_ended`.
"""

from __future__ import annotations

import base64
import itertools
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Iterable, Mapping, Optional, Sequence

from mantyx_sync.local.answers import (
    Answer,
    read_integer,
    read_limit,
    read_metadata_filter,
    read_object,
    refuse,
    wants,
)
from mantyx_sync.local.checks import InvalidRequest, check_spec
from mantyx_sync.local.http import Request, json_response
from mantyx_sync.local.store import Run, decode_cursor, encode_cursor, new_id, timestamp, without_secrets
from mantyx_sync.local.workspace import Workspace

__all__ = ["MAX_EVENTS_PAGE", "RETAINED_RESULT_BYTES", "Session", "SessionRoutes"]

MAX_EVENTS_PAGE = 500
DEFAULT_EVENTS_PAGE = 100
# So much of a retained tool result is shown to later turns.
RETAINED_RESULT_BYTES = 8 * 1024
# What a message may change for its one run. The rest of its body is the turn itself, or without meaning here.
PER_MESSAGE_FIELDS = (
    "tools",
    "reasoningLevel",
    "outputSchema",
    "loopDetection",
    "toolBudgets",
    "supervisor",
    "plan",
    "modelId",
    "fallbackModelId",
    "budgets",
)
_INFORMATIVE_CHARS = 24
_MAX_SUMMARY_CHARS = 120
_CURSOR = "s1"


class Session:
    """One session: its spec, what was said, and the run in progress. Safe to use from several threads."""

    def __init__(self, session_id: str, spec: Mapping[str, Any]) -> None:
        self.id = session_id
        self.spec = spec
        self.metadata: Mapping[str, str] = spec.get("metadata") or {}
        self.status = "active"
        self.created = time.time()
        self.last_used = self.created
        self.ended: Optional[float] = None
        # The order of use in the whole server; set by `SessionRoutes`.
        self.used = 0
        self.messages: list[Mapping[str, Any]] = []
        """What was said, as the client sees it; a message's place, counted from 1, is its seq."""
        self.current: Optional[Run] = None
        self._for_model: list[Mapping[str, Any]] = []
        self._lock = threading.Lock()

    def begin(self, run: Run, turn: Sequence[Mapping[str, Any]]) -> str | None:
        """Make `run` the session's run, if it can have one now, and give it what was said before.

        Returns:
            None, or why not: `session_ended` or `session_busy`.
        """
        with self._lock:
            if self.status != "active":
                return "session_ended"
            if self.current is not None:
                return "session_busy"
            self.current = run
            self.last_used = time.time()
            run.history = tuple(self._for_model)
        run.on_finish = lambda run, status, data: self._close_turn(run, status, data, turn)
        return None

    def end(self) -> Run | None:
        """End the session and return the run that has to be cancelled, if any. Repeating it changes nothing."""
        with self._lock:
            if self.status == "active":
                self.status = "ended"
                self.ended = time.time()
            return self.current

    def _close_turn(self, run: Run, status: str, data: Mapping[str, Any], turn: Sequence[Mapping[str, Any]]) -> None:
        with self._lock:
            self.current = None
            self.last_used = time.time()
            if status != "succeeded":
                return
            said = [{k: v for k, v in message.items() if k != "attachments"} for message in turn]
            self.messages += turn
            self._for_model += said
            self._for_model += _retained(run)
            if not _is_plan_only(run.spec):  # a plan is not the answer (wire §8.5)
                reply = {"role": "assistant", "content": str(data.get("text") or "")}
                self.messages.append(reply)
                self._for_model.append(reply)

    # ---------------------------------------------------------------- views

    def to_info(self) -> dict[str, Any]:
        """Build the body of `GET /agent-sessions/{id}`."""
        with self._lock:
            return {
                "id": self.id,
                "name": self.spec.get("name") or "ephemeral",
                "status": self.status,
                "createdAt": timestamp(self.created),
                "lastUsedAt": timestamp(self.last_used),
                "endedAt": timestamp(self.ended) if self.ended is not None else None,
                "agentSpec": without_secrets(self.spec),
                "messages": self.messages[:],
                "metadata": dict(self.metadata),
            }

    def to_summary(self) -> dict[str, Any]:
        """Build the session's entry in a listing."""
        with self._lock:
            return {
                "sessionId": self.id,
                "creationDate": timestamp(self.created),
                "lastInteractionDate": timestamp(self.last_used),
                "summary": _summarize(self.messages),
                "metadata": dict(self.metadata),
                "status": self.status,
            }

    def page(self, *, size: int | None, before: int | None) -> dict[str, Any]:
        """Build the body of `GET /agent-sessions/{id}/events`: the newest `size` messages before seq `before`."""
        with self._lock:
            total = len(self.messages)
            end = total if before is None else min(total, before - 1)
            start = 0 if size is None else max(0, end - size)
            frames = [_frame(seq, message) for seq, message in enumerate(self.messages[start:end], start + 1)]
        return {
            "sessionId": self.id,
            "total": total,
            "events": frames,
            "nextBeforeSeq": start + 1 if start > 0 else None,
            "truncated": start > 0,
        }


def _frame(seq: int, message: Mapping[str, Any]) -> dict[str, Any]:
    role = message["role"]
    known = role in ("user", "assistant")
    frame = {"seq": seq, "type": f"{role}_message" if known else "message", "text": message["content"]}
    if not known:
        frame["role"] = role
    if message.get("attachments"):
        frame["attachments"] = message["attachments"]
    return frame


def _summarize(messages: Iterable[Mapping[str, Any]]) -> str:
    """Take the first user message as a label; a very short one is joined by what follows it."""
    text = ""
    for message in messages:
        if text or message["role"] == "user":
            text = f"{text} {message['content']}".strip()
        if len(text) >= _INFORMATIVE_CHARS:
            break
    return text if len(text) <= _MAX_SUMMARY_CHARS else text[: _MAX_SUMMARY_CHARS - 1] + "…"


def _is_plan_only(spec: Mapping[str, Any]) -> bool:
    plan = spec.get("plan")
    return isinstance(plan, Mapping) and bool(plan.get("planOnly"))


def _retained(run: Run) -> list[Mapping[str, Any]]:
    """Return the calls of `retain` tools in a run with their results, as messages for later turns."""
    names = {ref.get("name") for ref in run.spec.get("tools") or () if ref.get("retain")}
    if not names:
        return []
    before = {message.get("toolUseId") for message in run.history}
    inputs = {call["id"]: call for message in run.conversation for call in message.get("toolCalls") or ()}
    kept = [
        message
        for message in run.conversation
        if message["role"] == "tool"
        and message["name"] in names
        and not message.get("isError")
        and message["toolUseId"] not in before
    ]
    if not kept:
        return []
    calls = [inputs[message["toolUseId"]] for message in kept if message["toolUseId"] in inputs]
    results: list[Mapping[str, Any]] = [
        {
            "role": "tool",
            "toolUseId": message["toolUseId"],
            "name": message["name"],
            "content": _cut(message["content"]),
            "isError": False,
        }
        for message in kept
        if message["toolUseId"] in inputs
    ]
    first: dict[str, Any] = {"role": "assistant", "content": "", "toolCalls": calls}
    return [first, *results]


def _cut(text: str) -> str:
    raw = text.encode("utf-8", "surrogatepass")
    if len(raw) <= RETAINED_RESULT_BYTES:
        return text
    return raw[:RETAINED_RESULT_BYTES].decode("utf-8", "ignore") + f"\n[cut: {len(raw)} bytes in all]"


def _turn_of(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the messages a body adds to its session; of files only their description is kept."""
    if body.get("messages") is None:
        return [{"role": "user", "content": body["prompt"]}]
    turn: list[Mapping[str, Any]] = []
    for message in body["messages"]:
        kept: dict[str, Any] = {"role": message["role"], "content": message["content"]}
        if message.get("attachments"):
            kept["attachments"] = [_describe_file(entry) for entry in message["attachments"]]
        turn.append(kept)
    return turn


def _describe_file(entry: Mapping[str, Any]) -> dict[str, Any]:
    names = ("type", "url", "mimeType", "filename")
    described = {name: entry[name] for name in names if entry.get(name) is not None}
    if "data" in entry:
        described["size"] = len(base64.b64decode(entry["data"]))
    return described


@dataclass
class _Listing:
    """Which sessions a listing is about (http §3)."""

    status: Optional[str] = None
    metadata: tuple[tuple[str, str], ...] = field(default=())

    def accepts(self, session: Session) -> bool:
        return (self.status is None or session.status == self.status) and all(
            session.metadata.get(key) == value for key, value in self.metadata
        )


class SessionRoutes:
    """The routes below `/agent-sessions`. A handler answers at once and never blocks."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self.sessions: dict[str, Session] = {}
        self._uses = itertools.count(1)

    def get(self, session_id: str) -> Session:
        """Return a session. Raises `Refused`: 404."""
        session = self.sessions.get(session_id)
        if session is None:
            raise refuse(404, "not_found", f"There is no session {session_id!r} in this workspace.")
        return session

    def create(self, request: Request, credential: str) -> Answer:
        """Answer `POST /agent-sessions`."""
        spec = read_object(request)
        if spec.get("prompt") is not None or spec.get("messages") is not None:
            raise InvalidRequest("a session takes neither prompt nor messages; send them to its messages route")
        check_spec(spec, needs_input=False)
        self._workspace.resolve_model(self._workspace.with_agent(spec, credential))  # refused now rather than later
        session = Session(new_id("ses"), spec)
        session.used = next(self._uses)
        self.sessions[session.id] = session
        return json_response(201, {"sessionId": session.id})

    def listing(self, request: Request, _credential: str) -> Answer:
        """Answer `GET /agent-sessions`: the most recently used come first."""
        limit = read_limit(request)
        offset = read_integer(request, "offset", 0, 10**9, 0)
        status = request.first("status")
        if status not in (None, "active", "ended"):
            raise InvalidRequest(f"status must be active or ended, got {status!r}")
        wanted = _Listing(status, read_metadata_filter(request))
        order = sorted(self.sessions.values(), key=lambda session: session.used, reverse=True)
        found = [session for session in order if wanted.accepts(session)]
        total = len(found)
        cursor = request.first("cursor")
        if cursor is not None:
            if offset:
                raise InvalidRequest("cursor and offset exclude each other")
            try:
                before = decode_cursor(cursor, _CURSOR)
            except ValueError as error:
                raise InvalidRequest(str(error)) from None
            found = [session for session in found if session.used < before]
        page = found[offset : offset + limit]
        more = len(found) > offset + limit
        return json_response(
            200,
            {
                "total": total,
                "limit": limit,
                "offset": offset,
                # A place in the order of use: a session that is used meanwhile moves to the front, others stay.
                "nextCursor": encode_cursor(page[-1].used, _CURSOR) if more and page else None,
                "sessions": [session.to_summary() for session in page],
            },
        )

    def info(self, request: Request, _credential: str) -> Answer:
        """Answer `GET /agent-sessions/{id}`."""
        return json_response(200, self.get(request.segments[5]).to_info())

    def events(self, request: Request, _credential: str) -> Answer:
        """Answer `GET /agent-sessions/{id}/events`: all, the last n, or a page before a seq."""
        session = self.get(request.segments[5])
        size = read_integer(request, "lastMessages", 1, MAX_EVENTS_PAGE, 0)
        before = read_integer(request, "beforeSeq", 1, 10**12, 0)
        if wants(request, "full") or not (size or before):
            return json_response(200, session.page(size=None, before=None))
        return json_response(200, session.page(size=size or DEFAULT_EVENTS_PAGE, before=before or None))

    def send(self, request: Request, credential: str) -> Answer:
        """Answer `POST /agent-sessions/{id}/messages`: a run of this session."""
        session = self.get(request.segments[5])
        body = read_object(request)
        check_spec(body, needs_identity=False)
        run = self._workspace.make_run(self._merge(session, body, credential), session_id=session.id)
        refused = session.begin(run, _turn_of(body))
        if refused == "session_ended":
            raise refuse(409, refused, f"The session {session.id} has ended.", code=refused)
        if refused is not None:
            raise refuse(
                409,
                refused,
                f"The session {session.id} has a run in progress; wait for its end or cancel it.",
                code=refused,
                **({"runId": current.id} if (current := session.current) is not None else {}),
            )
        session.used = next(self._uses)
        self._workspace.start(run)
        path = self._workspace.path("agent-runs", run.id, "stream")
        return json_response(202, {"runId": run.id, "streamUrl": path})

    def end(self, request: Request, _credential: str) -> Answer:
        """Answer `DELETE /agent-sessions/{id}`."""
        run = self.get(request.segments[5]).end()
        if run is not None:
            run.cancel()
        return json_response(200, {"ok": True})

    def _merge(self, session: Session, body: Mapping[str, Any], credential: str) -> Mapping[str, Any]:
        """Build the spec of one run: the session's defaults, what the message replaces, and the turn itself."""
        spec = {name: value for name, value in session.spec.items() if value is not None}
        for name in PER_MESSAGE_FIELDS:
            if body.get(name) is not None:
                spec[name] = body[name]
        metadata = {**session.metadata, **(body.get("metadata") or {})}
        if metadata:
            spec["metadata"] = metadata
            check_spec({"metadata": metadata}, needs_input=False, needs_identity=False)  # the sum has limits too
        name = "prompt" if body.get("messages") is None else "messages"
        spec[name] = body[name]
        return self._workspace.with_agent(spec, credential)
