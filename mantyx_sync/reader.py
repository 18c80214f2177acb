"""The background thread of a run: it follows the stream, starts tools as their calls arrive, and finds the end.

It holds no reference to the `Run` that users have in hand, so that a run nobody looks at any more can be collected.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import threading
import time
from dataclasses import dataclass, field, replace
from typing import Callable

from .api import WorkspaceAPI
from .backlog import Backlog
from .envelopes import EnvelopeReader
from .errors import (
    MantyxError,
    MantyxNetworkError,
    MantyxProtocolError,
    MantyxRunError,
    RateLimit,
)
from .events import NO_SEQ, TERMINAL_TYPES, Envelope, LocalToolCall, LocalToolResultIn, RunEvent, decode
from .lost_stream import end_without_stream
from .output import OutputType
from .results import RunResult, RunSnapshot, conclude, conclude_snapshot
from .roster import Roster
from .timing import Arrivals, RunTiming
from .tools.calls import RunToolCalls
from .tools.deadlines import Deadlines
from .tools.executor import ToolExecutor
from .tools.registry import Registry
from .transport.body import Body, Release
from .transport.retry import Backoff, Reconnect
from .transport.stream import EventStream, StreamLost

__all__ = [
    "FollowSettings",
    "RunReader",
    "decode_or_keep",
    "tool_call_of",
]

log = logging.getLogger(__name__)

SNAPSHOT_TIMEOUT_S = 10.0
JOIN_S = 1.0


@dataclass(frozen=True)
class FollowSettings:
    """How patiently a run's stream is followed; seconds and bytes."""

    idle_timeout: float = 60.0
    reconnect_timeout: float = 300.0
    max_frame_bytes: int = 64 * 1024 * 1024
    backoff: Backoff = field(default_factory=Backoff)


class RunReader:
    """Follow one run in a thread of its own until it ends, is lost, or is closed."""

    def __init__(
        self,
        api: WorkspaceAPI,
        run_id: str,
        stream_url: str,
        settings: FollowSettings,
        *,
        registry: Registry | None,
        executor: ToolExecutor,
        deadlines: Deadlines,
        keep_events: bool,
        keep_deltas: bool = False,
        last_seq: int = 0,
        attach: bool = False,
        output: OutputType | None = None,
        request_id: str | None = None,
        rate_limit: RateLimit | None = None,
        started: float | None = None,
        has_key: bool = False,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        """Start nothing yet.

        Args:
            registry: Who answers the run's calls. `None` leaves them to another process.
            keep_events: Queue events for a caller that will loop over them.
            keep_deltas: Keep text deltas for the result as well.
            last_seq: Events up to this one are not handed to the caller.
            attach: The run may have a past. Its whole log is read, so that calls answered then are not run again.
            started: When it was asked for, on the monotonic clock; `None` if it was not asked for here.
            has_key: A key of the caller's finds it again.
            on_end: Called once nobody follows the run any more, perhaps more than once; does not block.
        """
        self.run_id = run_id
        self.backlog = Backlog(is_wanted=keep_events)
        self.done = threading.Event()
        self.woken = threading.Event()
        """Set when it is done, and when whoever waits for that is to give the run up."""
        self.is_to_be_given_up = False
        self.outcome: RunResult | BaseException | None = None
        self.is_closed = False
        self.has_key = has_key
        self.abort_timeout: float | None = None
        self.was_told = False
        """The server knows that the run is given up."""
        self._pid = os.getpid()
        self._api = api
        self._stream_url = stream_url
        self._settings = settings
        self._keep_deltas = keep_deltas
        self._output = output
        self._kept: list[Envelope] = []
        now = time.monotonic()
        begin = now if started is None else started
        self._arrivals = Arrivals(time.time() - (now - begin), begin, now, is_whole=started is not None)
        self._others: list[EventStream[Envelope]] = []
        self._skip_to = last_seq if attach else 0
        self._request_id, self._rate_limit = request_id, rate_limit
        self._on_end = on_end
        self._envelopes = EnvelopeReader(0 if attach else last_seq)
        self._stopped = threading.Event()
        self._answers = registry is not None
        self.calls = RunToolCalls(
            run_id,
            Registry() if registry is None else registry,
            executor,
            deadlines,
            lambda agent_run_id, body: api.post_tool_result(agent_run_id, body, self._stopped),
            hold=attach,
        )
        self._last_snapshot: RunSnapshot | None = None
        self._stream = self._open_own_stream()
        # Owned by this object: `close` wakes it by shutting its socket and joins it. A daemon, since nothing is
        # lost when the process ends: the run and its log are the server's.
        self._thread = threading.Thread(target=self._run, name=f"mantyx-run-{run_id}", daemon=True)

    @property
    def last_seq(self) -> int:
        """The number of the last event read; 0 before the first."""
        return max(0, self._envelopes.last_seq)

    @property
    def events_so_far(self) -> tuple[RunEvent, ...]:
        """The events that are kept for the result."""
        return tuple(decode_or_keep(envelope) for envelope in tuple(self._kept))

    @property
    def timing(self) -> RunTiming:
        """When what happened so far."""
        return self._arrivals.read(tuple(self.calls.times.items()))

    def start(self) -> None:
        """Start the thread.

        Raises:
            MantyxError: There can be no more threads, or the interpreter is ending.
        """
        _readers.add(self)
        try:
            self._thread.start()
        except RuntimeError as error:
            raise MantyxError(
                f"run {self.run_id}: no thread can be started to follow it ({error})", code="no_thread"
            ) from error

    @property
    def is_followed_here(self) -> bool:
        """False in a child of the process that follows the run."""
        return self._pid == os.getpid()

    @property
    def was_let_go(self) -> bool:
        """True once its thread has ended although the run goes on: it was closed."""
        return isinstance(self.outcome, MantyxError) and self.outcome.code == "closed"

    def check_process(self) -> None:
        """Refuse to wait in a child of the process that follows the run: nothing ever arrives there.

        Raises:
            MantyxError: This is such a child.
        """
        if not self.is_followed_here and not self.done.is_set():
            raise MantyxError(
                f"run {self.run_id} is followed by the process that started it, not by its children; "
                f"attach_run({self.run_id!r}) follows it here",
                code="other_process",
            )

    def close(self, join: float = JOIN_S) -> None:
        """Free the thread, the socket and the places of its tools; the server is not told. Waits `join` seconds.

        Does nothing in a child of the process that follows the run: shutting the socket would end it there.
        """
        if not self.is_followed_here:
            return
        self.is_closed = True
        self._stopped.set()
        for stream in (self._stream, *self._others):
            stream.release()
        self.backlog.drop()
        self.calls.close()
        self._on_end()
        if self._thread.ident not in (None, threading.get_ident()):
            with contextlib.suppress(RuntimeError):  # it is being started just now, and will find itself closed
                self._thread.join(join)

    def have_given_up(self) -> None:
        """Have the thread that waits for the result give the run up. Does not block."""
        self.is_to_be_given_up = True
        self.woken.set()

    def let_go(self) -> None:
        """Have the thread end and free everything. Takes no lock: the garbage collector calls this."""
        if self.is_followed_here:
            self.is_closed = True
            self._stream.release()

    def also_release(self, stream: EventStream[Envelope]) -> None:
        """Release another stream of the run when this is closed."""
        self._others.append(stream)
        if self.is_closed:
            stream.release()

    def open_stream(
        self,
        envelopes: EnvelopeReader,
        is_busy: Callable[[], bool] = lambda: False,
        is_over: Callable[[], bool] = lambda: False,
        on_open: Callable[[], None] = lambda: None,
    ) -> EventStream[Envelope]:
        """Return a stream of the run's events behind the place where `envelopes` is. Opens nothing yet."""
        settings = self._settings

        def connect(headers: dict[str, str], release: Release) -> Body:
            body = self._api.open_stream(self._stream_url, headers, settings.idle_timeout, release)
            on_open()
            return body

        return EventStream(
            connect,
            envelopes,
            Reconnect(settings.reconnect_timeout, time.monotonic(), settings.backoff),
            max_frame_bytes=settings.max_frame_bytes,
            is_busy=is_busy,
            is_over=is_over,
        )

    def _open_own_stream(self) -> EventStream[Envelope]:
        # What is asked behind a broken connection is asked before the wait for the next one: the right moment to note
        # that the log is not being read, so that its silence does not count as its end.
        def is_busy() -> bool:
            self.calls.unsettle()
            return self.calls.is_busy

        def is_over() -> bool:
            self.calls.unsettle()
            return self._is_over()

        return self.open_stream(self._envelopes, is_busy, is_over, on_open=self.calls.settle_what_is_held)

    def _run(self) -> None:
        outcome: RunResult | BaseException | None = None
        try:
            try:
                outcome = self._follow()
            finally:
                self._arrivals.over(time.monotonic())
            if outcome is not None:
                outcome = replace(outcome, timing=self.timing)
                if self._output is not None:
                    outcome = replace(outcome, output=self._output.read(outcome))
        except MantyxRunError as error:
            error.events, error.timing = self.events_so_far, self.timing
            outcome = error
        except BaseException as error:  # whatever it is: the caller must hear of it, not wait
            outcome = error
        finally:
            if outcome is None:
                outcome = MantyxError(f"run {self.run_id} was closed before its end", code="closed")
            self.outcome = outcome
            self._stopped.set()
            self.done.set()
            self.woken.set()
            self.backlog.end()
            self.calls.close()
            self._on_end()
            _readers.discard(self)

    def _follow(self) -> RunResult | None:
        try:
            with contextlib.closing(iter(self._stream)) as batches:  # type: ignore[type-var]  # a generator
                chars = 0
                for batch in batches:
                    terminal = self._take(batch)
                    wanted = self._for_caller(batch)
                    self.backlog.put(wanted, self._envelopes.chars_read - chars)
                    chars = self._envelopes.chars_read
                    if terminal is not None:
                        return self._conclude(terminal)
        except StreamLost as lost:
            return self._conclude_without_end(lost)
        if self.is_closed or self._last_snapshot is None:
            return None
        return self._conclude_snapshot(self._last_snapshot)

    def _take(self, batch: list[Envelope]) -> Envelope | None:
        """Do what the events of a batch oblige us to; return the terminal one, if it is there."""
        terminal = None
        calls = self.calls
        calls.settle_soon()
        now = time.monotonic()
        kept = len(self._kept)
        for envelope in self._envelopes.notable:
            kind = envelope["type"]
            if not self._keep_deltas:
                self._kept.append(envelope)
            if kind == "local_tool_call" and self._answers:
                call = tool_call_of(decode_or_keep(envelope))
                if call is not None:
                    calls.start(call)
            elif kind == "local_tool_result_in":
                event = decode_or_keep(envelope)
                if isinstance(event, LocalToolResultIn):
                    calls.answered(event.tool_use_id)
            elif kind in TERMINAL_TYPES:
                del batch[batch.index(envelope) + 1 :]
                terminal = envelope
                break
        if self._keep_deltas:
            self._kept.extend(batch)
        self._arrivals.arrived(batch, self._envelopes.notable, now)
        self._arrivals.kept(len(self._kept) - kept, now)
        return terminal

    def _for_caller(self, batch: list[Envelope]) -> list[Envelope]:
        if self._skip_to:
            return [e for e in batch if e["seq"] == NO_SEQ or e["seq"] > self._skip_to]
        return batch

    def _conclude(self, terminal: Envelope) -> RunResult:
        events = self.events_so_far
        return conclude(self.run_id, decode(terminal), events, request_id=self._request_id, rate_limit=self._rate_limit)

    def _is_over(self) -> bool:
        """Ask whether the run ended although its stream does not say so."""
        try:
            self._last_snapshot = self._api.get_run(self.run_id, timeout=SNAPSHOT_TIMEOUT_S)
        except MantyxError:
            return False
        return self._last_snapshot.is_terminal

    def _conclude_snapshot(self, snapshot: RunSnapshot | None = None) -> RunResult | None:
        if snapshot is None:
            snapshot = self._api.get_run(self.run_id, timeout=SNAPSHOT_TIMEOUT_S)
        result = conclude_snapshot(snapshot, request_id=self._request_id, rate_limit=self._rate_limit)
        # What arrived before the stream was lost; to the end it is not all there was.
        return None if result is None else replace(result, events=self.events_so_far)

    def _conclude_without_end(self, lost: StreamLost) -> RunResult:
        """The stream is lost: the run's snapshot is the answer, or an error that says how to go on."""
        if self.is_closed:
            raise lost.error
        try:
            return end_without_stream(
                lost,
                self._conclude_snapshot,
                f"run {self.run_id}",
                self.run_id,
                f"; gave up after seq {self.last_seq}. The run may still be going: attach to it again with "
                f"attach_run({self.run_id!r}, last_seq={self.last_seq}), or cancel it.",
            )
        except (MantyxNetworkError, MantyxProtocolError) as error:
            error.last_seq = self.last_seq
            raise


def decode_or_keep(envelope: Envelope) -> RunEvent:
    """Decode an event; one whose fields are not what the specification says is kept undecoded, with a warning."""
    try:
        return decode(envelope)
    except MantyxProtocolError as error:
        log.warning("%s; the event is handed on as it is", error)
        data = envelope["data"]
        return RunEvent(envelope["seq"], envelope["type"], data if isinstance(data, dict) else {}, envelope)


def tool_call_of(event: RunEvent) -> LocalToolCall | None:
    """Return the call to answer; also of a malformed event, if it says whose answer the run waits for."""
    if isinstance(event, LocalToolCall):
        return event
    tool_use_id, name = event.data.get("toolUseId"), event.data.get("name")
    if not isinstance(tool_use_id, str) or not tool_use_id:
        return None
    shown = name if isinstance(name, str) else ""
    return LocalToolCall(event.seq, event.type, event.data, event.raw, tool_use_id, shown, kind="malformed")


_readers: Roster[RunReader] = Roster()


@atexit.register
def _close_readers() -> None:
    """Stop the threads before the interpreter takes their world away: one that logs then would abort the process."""
    readers = _readers.items()
    for reader in readers:
        reader.close(join=0)
    until = time.monotonic() + JOIN_S
    for reader in readers:
        reader.close(join=max(0.0, until - time.monotonic()))
