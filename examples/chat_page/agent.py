"""The agent behind the chat page: its client, its tools, its conversations. Knows no web framework.

The views of `flask_chat` and `django_chat` call these functions and turn what they return into responses. Conversations
are kept on the MANTYX server, and nothing about them here, so that any process can answer any request. A browser has
the id of its conversation in a signed cookie.

Settings come from the environment:

    MANTYX_API_KEY, …  The account. Without it an embedded server runs in this process: have one process then.
    CHAT_ON_LEAVE      What becomes of an answer when its reader leaves: it is written to its end (`finish`, the
                       default), and found there by whoever comes back, or it is stopped (`cancel`).
    CHAT_SECRET        Signs the cookies. Without it they are good until the process ends, and for it alone.
    CHAT_HTTPS         Set it where the page is reached over https: the cookies then travel no other way.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
import secrets
import threading
from pathlib import Path
from typing import Any, Mapping

from account import connect

from mantyx_sync import MantyxClient, MantyxConfigError, MantyxNotFoundError, Run, RunEvent, RunSummary
from mantyx_sync.local import RuleModel
from mantyx_sync.web import EventStream, public_data, resume_from

from .shop import TOOLS

__all__ = [
    "HEADERS",
    "HTTPS",
    "MAX_BODY_BYTES",
    "PAGE",
    "SECRET",
    "ask",
    "conversation",
    "end_session",
    "look",
    "stop",
]

PAGE = Path(__file__).resolve().parent / "page"
"""The files that the browser loads."""
SECRET = os.environ.get("CHAT_SECRET") or secrets.token_hex(32)
ON_LEAVE: Any = os.environ.get("CHAT_ON_LEAVE", "finish")
HTTPS = bool(os.environ.get("CHAT_HTTPS"))
HEADERS = {
    "Cache-Control": "private, no-cache",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""For every response that says nothing else: the page loads its own files and talks to its own server alone."""
MAX_BODY_BYTES = 65536
"""What a browser may post: the longest message, however its characters are written."""

HEARTBEAT_S = 2.0  # within that, or twice that, a server notices that a reader has left while nothing is written
RUN_TIMEOUT_S = 300.0
WORD_PAUSE_S = 0.04  # for the eye: the embedded server's rule model would have its answer at once
SHOWN_WHOLE = ("thinking_delta", "assistant_message", "local_tool_call", "local_tool_result_in", "tool_result")
AGENT: Any = {
    "system_prompt": "You help customers of a small garden shop. Use the tools. Answer shortly, in Markdown.",
    "tools": TOOLS,
    "plan": "auto",
    "reasoning_level": "low",
    "metadata": {"app": "chat-example"},
}
MAX_CHARS = 8000
MESSAGE_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")

_making = threading.Lock()
_clients: list[MantyxClient] = []
_open = contextlib.ExitStack()
atexit.register(_open.close)


def client() -> MantyxClient:
    """Return the client of this process, made when it is first needed: after a server's fork, not before."""
    with _making:
        if not _clients:
            _clients.append(_open.enter_context(connect(RuleModel(word_delay=WORD_PAUSE_S))))
        return _clients[0]


def conversation(session_id: str | None) -> dict[str, Any]:
    """Return what a page shows when it is loaded: what was said, and the last run, which may still go on.

    The last exchange is the run's: the page has it from the run's stream, with tools and plan, whether it goes on or is
    over, and also where it failed or was stopped and so is no part of what was said.
    """
    if session_id is None:
        return {"turns": [], "run": None}
    try:
        messages = client().resume_session(session_id).history()
    except MantyxNotFoundError:  # a cookie outlives an embedded server
        return {"turns": [], "run": None}
    run = _last_run(session_id)
    last = None
    if run is not None:
        messages = messages[: int(run.metadata["turn"])]
        spec = client().get_run(run.id).spec or {}
        last = {"message": run.metadata["message"], "said": spec.get("prompt", run.input_preview)}
    turns: list[list[str]] = []
    for message in messages:
        if message["role"] == "user":
            turns.append([message["content"], ""])
        elif turns:
            turns[-1][1] = message["content"]
    return {"turns": turns, "run": last}


def ask(session_id: str | None, body: bytes) -> tuple[str, EventStream]:
    """Take a message; return the session, a new one if there was none, and the stream of the run that answers.

    The run starts when the stream is read. The page gives each message an id: posted again, since its answer was lost,
    the message is not said a second time.

    Raises:
        MantyxConfigError: There is no message in the request's body.
        MantyxError: A session could not be made.
    """
    message = _read(body)
    said, message_id = message.get("text"), message.get("id")
    if not isinstance(said, str) or not said.strip() or len(said) > MAX_CHARS:
        raise MantyxConfigError(f"text: must be 1 to {MAX_CHARS} characters", code="invalid_message")
    if not isinstance(message_id, str) or not MESSAGE_ID.fullmatch(message_id):
        raise MantyxConfigError("id: must be 1 to 64 letters, digits, - or _", code="invalid_message")
    found = session_id or client().create_session(**AGENT).id

    def start() -> Run:
        session = client().resume_session(found, tools=TOOLS)
        tags = {"chat": found, "message": message_id, "turn": str(len(session.history()))}
        return session.stream(said, metadata=tags, idempotency_key=message_id, timeout=RUN_TIMEOUT_S)

    return found, EventStream(start, on_disconnect=ON_LEAVE, heartbeat=HEARTBEAT_S, show=shown)


def look(session_id: str | None, last_event_id: str | None) -> EventStream:
    """Return the stream of a session's last run, behind the event that the browser names, or from its beginning.

    The browser says which run it means, and this is no way to read another's: only the last of its own is shown.

    Raises:
        MantyxConfigError: There is none, or another one came after it; the page starts from what was said then.
    """
    place = resume_from(last_event_id)
    run = None if session_id is None else _last_run(session_id)
    if run is None or (place is not None and place.run_id != run.id):
        raise MantyxConfigError("the conversation has gone on without this page", code="moved_on")
    # A page that looks from the beginning came later, or is a second one: its leaving stops nothing.
    on_leave: Any = "finish" if place is None else ON_LEAVE
    last_seq = 0 if place is None else place.last_seq
    return EventStream.attach(client(), run.id, last_seq, on_disconnect=on_leave, heartbeat=HEARTBEAT_S, show=shown)


def stop(session_id: str | None, body: bytes) -> None:
    """Stop the session's run, if it is the one that is meant. Its stream ends with `cancelled`. Blocks."""
    message = _read(body)
    run = None if session_id is None else _last_run(session_id)
    if run is not None and run.id == message.get("run") and run.completed_at is None:
        client().cancel_run(run.id)


def end_session(session_id: str | None) -> None:
    """End a conversation; what is being answered in it is stopped. Blocks."""
    if session_id is not None:
        with contextlib.suppress(MantyxNotFoundError):
            client().end_session(session_id)


def shown(event: RunEvent) -> Mapping[str, Any] | None:
    """Return what of an event the reader may see: here also what tools were asked and answered, and the thinking.

    They are the reader's own orders. Where tools see more than the reader may, leave it at `public_data`.
    """
    return event.data if event.type in SHOWN_WHOLE else public_data(event)


def _last_run(session_id: str) -> RunSummary | None:
    for run in client().list_runs(metadata={"chat": session_id}, limit=10).items:
        if run.metadata.get("chat") == session_id:  # looked at here too: it decides what the browser may see
            return run
    return None


def _read(body: bytes) -> Mapping[str, Any]:
    try:
        read = json.loads(body)
    except (ValueError, RecursionError):  # no JSON, or brackets in brackets without an end
        read = None
    if not isinstance(read, dict):
        raise MantyxConfigError("the body must be a JSON object", code="invalid_message")
    return read
