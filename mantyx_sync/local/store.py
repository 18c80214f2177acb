"""What the embedded server remembers: runs with their event logs, tool calls in flight, feedback.

Everything is kept in memory. A run's log holds its events as encoded SSE frames, so that an event is
encoded once however many clients read it; an event's `seq` is its place in the log, counted from 1.
"""

from __future__ import annotations

import base64
import json
import secrets
import threading
import time
from dataclasses import dataclass, field
from datetime import datetime, timezone
from json.encoder import encode_basestring
from typing import Any, Callable, Iterable, Mapping, Optional, Sequence

from mantyx_sync.local.frames import FrameLog

__all__ = [
    "TERMINAL_STATUSES",
    "EventLog",
    "Feedback",
    "PendingCall",
    "Run",
    "RunFilter",
    "Store",
    "ToolAnswer",
    "decode_cursor",
    "encode_cursor",
    "encode_json",
    "new_id",
    "timestamp",
    "without_bytes",
    "without_secrets",
]

TERMINAL_STATUSES = frozenset({"succeeded", "failed", "cancelled"})
_STATUS_OF_TERMINAL = {"result": "succeeded", "error": "failed", "cancelled": "cancelled"}
PREVIEW_CHARS = 200

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def encode_json(value: Any) -> bytes:
    """Encode compactly, leaving all but control characters raw, as the platform's JavaScript does."""
    try:
        return _encode(value).encode()
    except UnicodeEncodeError:  # a lone surrogate: only its escape can travel
        return json.dumps(value, separators=(",", ":")).encode("ascii")


def timestamp(seconds: float) -> str:
    """Write a time as the platform does: ISO 8601 in UTC with milliseconds."""
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True)
class ToolAnswer:
    """What came back for one tool call: from the client, or made up by the server."""

    text: str
    is_error: bool = False
    files: tuple[Mapping[str, Any], ...] = ()


@dataclass
class PendingCall:
    """A local tool call that the client has not answered yet."""

    tool_use_id: str
    name: str
    answer: Optional[ToolAnswer] = None


@dataclass
class Feedback:
    """The last verdict on a run."""

    id: str
    verdict: str
    explanation: Optional[str] = None
    content_snapshot: Optional[str] = None


class EventLog(FrameLog):
    """A status and the events that led to it, as encoded frames.

    `changed` guards status and frames and is notified when waiting may be over.
    """

    def __init__(self, log_id: str, on_event: Callable[[EventLog], None] | None = None) -> None:
        super().__init__(log_id)
        self.status = "queued"
        self.changed = threading.Condition(threading.Lock())
        self._on_event = on_event

    @property
    def is_terminal(self) -> bool:
        """Whether the terminal event is in the log."""
        return self.status in TERMINAL_STATUSES

    @property
    def last_seq(self) -> int:
        """The seq of the newest event, 0 before the first."""
        return len(self.frames)

    @property
    def events(self) -> list[dict[str, Any]]:
        """The log, decoded: what stands in the frames' `data` lines."""
        return [json.loads(frame.split(b"\ndata: ", 1)[1]) for frame in list(self.frames)]

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end. False if `timeout` seconds passed first."""
        with self.changed:
            return self.changed.wait_for(lambda: self.is_terminal, timeout)

    def _announce(self) -> None:
        if self._on_event is not None:
            self._on_event(self)


class Run(EventLog):
    """One run: its spec, its state and its log. Safe to use from several threads.

    The engine's thread appends events and waits for tool results, the socket loop reads frames and
    delivers results; `changed` guards both.
    """

    def __init__(
        self,
        run_id: str,
        spec: Mapping[str, Any],
        *,
        model: Mapping[str, Any],
        session_id: str | None = None,
        on_event: Callable[[EventLog], None] | None = None,
    ) -> None:
        super().__init__(run_id, on_event)
        self.spec = spec
        self.model = model
        self.session_id = session_id
        self.metadata: Mapping[str, str] = spec.get("metadata") or {}
        # What was said before this run, retained tool results included (set by a session).
        self.history: Sequence[Mapping[str, Any]] = ()
        # The conversation as the loop keeps it, from the system message on; the loop appends to this list.
        self.conversation: list[dict[str, Any]] = []
        # Makes up the result of a call, or returns None to have it made for real (set by an eval).
        self.mock: Optional[Callable[[str, Any], Optional[ToolAnswer]]] = None
        # Called once with the final status and the terminal event's data, before anybody can see them:
        # whoever sees the end of a session's run may send the next message.
        self.on_finish: Optional[Callable[[Run, str, Mapping[str, Any]], None]] = None
        # `cancelled`: the client asked for it. `abandoned`: the server stops and nothing is waited for.
        self.cancelled = threading.Event()
        self.abandoned = threading.Event()
        self.final_text: Optional[str] = None
        self.error: Optional[str] = None
        self.failure_reason: Optional[dict[str, Any]] = None
        self.tokens: Optional[Mapping[str, int]] = None
        self.turns: Optional[int] = None
        self.plan: Optional[Mapping[str, Any]] = None
        self.structured_output: Optional[Mapping[str, Any]] = None
        self.tool_call_count = 0
        self.feedback: Optional[Feedback] = None
        self.created = time.time()
        self.completed: Optional[float] = None
        self._pending: dict[str, PendingCall] = {}
        self._ending = False

    # ------------------------------------------------------------------ log

    def emit(self, event_type: str, data: Mapping[str, Any]) -> int:
        """Append an event and return its seq, or 0 if the run has already ended."""
        encoded = encode_json(data)
        with self.changed:
            seq = self._append(event_type, encoded)
        self._announce()
        return seq

    def emit_text(self, event_type: str, text: str) -> None:
        """Append an `assistant_delta` or `thinking_delta`: the hot path of a stream."""
        try:
            encoded = ('{"text":' + encode_basestring(text) + "}").encode()
        except UnicodeEncodeError:
            encoded = encode_json({"text": text})
        with self.changed:
            self._append(event_type, encoded)
        if not self.announced:
            self._announce()

    def finish(self, event_type: str, data: Mapping[str, Any]) -> bool:
        """Append the terminal event and set the state that goes with it. False if there was one already."""
        encoded = encode_json(data)
        status = _STATUS_OF_TERMINAL[event_type]
        if event_type == "result" and data.get("subtype", "success") != "success":
            status = "failed"
        with self.changed:
            if self.is_terminal or self._ending:
                return False
            self._ending = True
        try:
            if self.on_finish is not None:
                self.on_finish(self, status, data)
        finally:
            self._finish_now(event_type, encoded, status, data)
        self._announce()
        return True

    def _finish_now(self, event_type: str, encoded: bytes, status: str, data: Mapping[str, Any]) -> None:
        with self.changed:
            self._append(event_type, encoded)
            self.completed = time.time()
            self.tokens = data.get("tokens", self.tokens)
            self.turns = data.get("turns", self.turns)
            self.plan = data.get("plan")
            self.structured_output = data.get("structuredOutput")
            if status == "succeeded":
                self.final_text = data.get("text")
            elif status == "failed":
                self.final_text = data.get("partialText", data.get("text"))
                self.error = data.get("error")
                self.failure_reason = {
                    "errorClass": data.get("errorClass", data.get("subtype")),
                    "finishReason": data.get("finishReason"),
                }
            self._pending.clear()
            self.status = status
            self.changed.notify_all()

    def _append(self, event_type: str, encoded: bytes) -> int:
        if self.status in TERMINAL_STATUSES:  # nothing follows a terminal event
            return 0
        seq = len(self.frames) + 1
        self.frames.append(
            b'id: %d\nevent: %b\ndata: {"seq":%d,"type":"%b","data":%b}\n\n'
            % (seq, event_type.encode(), seq, event_type.encode(), encoded)
        )
        return seq

    # ----------------------------------------------------------- tool calls

    def mocked(self, name: str, arguments: Any) -> ToolAnswer | None:
        """Return the made-up result of a call, or None where the call is to be made."""
        answer = None if self.mock is None else self.mock(name, arguments)
        if answer is not None:
            with self.changed:
                self.tool_call_count += 1
        return answer

    def open_call(self, tool_use_id: str, name: str) -> PendingCall:
        """Note a call before its event goes out, so that no answer can come too early."""
        call = PendingCall(tool_use_id, name)
        with self.changed:
            self._pending[tool_use_id] = call
            self.tool_call_count += 1
        return call

    def answer_call(self, tool_use_id: str, answer: ToolAnswer) -> str:
        """Take the client's result for a call (wire §5).

        Returns:
            `accepted`, `run_terminal` or `unknown_tool_use`. A call takes one answer only.
        """
        mirror: dict[str, Any] = {"toolUseId": tool_use_id, "error" if answer.is_error else "output": answer.text}
        if answer.files:
            mirror["files"] = without_bytes(answer.files)
        encoded = encode_json(mirror)
        with self.changed:
            if self.is_terminal:
                return "run_terminal"
            call = self._pending.pop(tool_use_id, None)
            if call is None:
                return "unknown_tool_use"
            self._append("local_tool_result_in", encoded)
            call.answer = answer
            self.changed.notify_all()
        self._announce()
        return "accepted"

    def wait_for_answers(self, calls: Iterable[PendingCall], timeout: float) -> None:
        """Wait until each of `calls` is answered; what is still open after `timeout` seconds is closed."""
        waiting = list(calls)
        deadline = time.monotonic() + timeout
        with self.changed:
            while not self.abandoned.is_set() and any(call.answer is None for call in waiting):
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                self.changed.wait(left)
            for call in waiting:
                self._pending.pop(call.tool_use_id, None)

    def pending_calls(self) -> list[str]:
        """The ids of the tool calls that wait for the client."""
        with self.changed:
            return list(self._pending)

    # ------------------------------------------------------------- control

    def cancel(self) -> None:
        """Ask the run to stop; the engine looks between turns (wire §9). Repeating it changes nothing."""
        with self.changed:
            self.cancelled.set()
            self.changed.notify_all()

    def abandon(self) -> None:
        """End all waiting at once, because the server stops."""
        with self.changed:
            self.abandoned.set()
            self.changed.notify_all()

    # --------------------------------------------------------------- views

    def to_snapshot(self) -> dict[str, Any]:
        """Build the body of `GET /agent-runs/{id}`."""
        with self.changed:
            return {
                **self._to_entry(),
                "spec": without_secrets(self.spec),
                "finalText": self.final_text,
                "failureReason": self.failure_reason,
                "model": self.model if self.is_terminal else None,
                "plan": self.plan,
                "structuredOutput": self.structured_output,
            }

    def to_summary(self) -> dict[str, Any]:
        """Build the run's entry in a listing."""
        with self.changed:
            return {
                **self._to_entry(),
                "inputPreview": _last_user_text(self.spec)[:PREVIEW_CHARS],
                "outputPreview": self.final_text[:PREVIEW_CHARS] if self.final_text else None,
                "durationMs": int((self.completed - self.created) * 1000) if self.completed else None,
            }

    def _to_entry(self) -> dict[str, Any]:
        """What snapshot and listing both tell. Called with the lock held."""
        done = self.is_terminal
        return {
            "id": self.id,
            "sessionId": self.session_id,
            "status": self.status,
            "specName": self.spec.get("name"),
            "agentId": self.spec.get("agentId"),
            "modelId": self.spec.get("modelId"),
            "error": self.error,
            "tokens": self.tokens if done else None,
            "turns": self.turns if done else None,
            "toolCallCount": self.tool_call_count,
            "metadata": dict(self.metadata),
            "createdAt": timestamp(self.created),
            "completedAt": timestamp(self.completed) if self.completed else None,
        }


def _last_user_text(spec: Mapping[str, Any]) -> str:
    prompt = spec.get("prompt")
    if isinstance(prompt, str):
        return prompt
    for message in reversed(spec.get("messages") or []):
        if message.get("role") == "user":
            return str(message.get("content") or "")
    return ""


def without_bytes(files: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Copy the descriptions of files, leaving what is in them behind."""
    return [{name: value for name, value in entry.items() if name != "data"} for entry in files]


def without_secrets(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Copy a spec for an answer: header values of tool refs and the bytes of files stay behind."""
    shown = dict(spec)
    if spec.get("tools"):
        shown["tools"] = [
            {**ref, "headers": dict.fromkeys(ref["headers"], "***")} if ref.get("headers") else ref
            for ref in spec["tools"]
        ]
    if spec.get("messages"):
        shown["messages"] = [
            {**message, "attachments": without_bytes(message["attachments"])} if message.get("attachments") else message
            for message in spec["messages"]
        ]
    return shown


@dataclass(frozen=True)
class RunFilter:
    """What a listing asks for (http §3)."""

    status: Optional[str] = None
    model_id: Optional[str] = None
    agent_id: Optional[str] = None
    session_id: Optional[str] = None
    metadata: tuple[tuple[str, str], ...] = ()

    def accepts(self, run: Run) -> bool:
        """Tell whether `run` belongs in the listing."""
        return (
            (self.status is None or run.status == self.status)
            and (self.model_id is None or run.spec.get("modelId") == self.model_id)
            and (self.agent_id is None or run.spec.get("agentId") == self.agent_id)
            and (self.session_id is None or run.session_id == self.session_id)
            and all(run.metadata.get(key) == value for key, value in self.metadata)
        )


@dataclass
class Store:
    """All runs of one server, oldest first. Safe to use from several threads."""

    runs: dict[str, Run] = field(default_factory=dict)
    _order: list[Run] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, run: Run) -> None:
        """Keep a run."""
        with self._lock:
            self.runs[run.id] = run
            self._order.append(run)

    def get(self, run_id: str) -> Run | None:
        """Return a run by its id."""
        return self.runs.get(run_id)

    def all(self) -> list[Run]:
        """Return all runs, oldest first."""
        with self._lock:
            return self._order[:]

    def page(self, wanted: RunFilter, *, cursor: str | None, limit: int) -> tuple[list[Run], str | None]:
        """Return up to `limit` runs, newest first, and the cursor of the next page.

        Raises:
            ValueError: The cursor is not one of ours.
        """
        order = self.all()
        index = len(order) if cursor is None else decode_cursor(cursor)
        found: list[Run] = []
        # A cursor is a place in the order of creation: runs that start meanwhile do not move a page.
        while index > 0:
            index -= 1
            run = order[index] if index < len(order) else None
            if run is not None and wanted.accepts(run):
                if len(found) == limit:
                    return found, encode_cursor(index + 1)
                found.append(run)
        return found, None

    def count(self, wanted: RunFilter) -> int:
        """Count the runs a filter accepts."""
        return sum(1 for run in self.all() if wanted.accepts(run))


def new_id(prefix: str) -> str:
    """Make an id that says what it names, such as `run_1f0c…`."""
    return f"{prefix}_{secrets.token_hex(8)}"


def encode_cursor(index: int, kind: str = "c1") -> str:
    """Write a place in a listing as an opaque token. `kind` keeps the tokens of two listings apart."""
    return base64.urlsafe_b64encode(f"{kind}:{index}".encode()).decode("ascii").rstrip("=")


def decode_cursor(cursor: str, kind: str = "c1") -> int:
    """Read a token of `encode_cursor` back. Raises `ValueError`."""
    try:
        text = base64.urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4)).decode("ascii")
        given, _, index = text.partition(":")
        if given == kind and index.isdigit():
            return int(index)
    except (UnicodeError, ValueError):
        pass
    raise ValueError("cursor is not one this server gave out")
