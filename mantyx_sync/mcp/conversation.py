"""What is said with one process of a server: which call waits for which answer, and what ends the wait."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections import deque
from typing import Any, Deque, Dict, Mapping, Optional

from ..transport.bell import Bell
from .channel import MAX_KEPT_PROGRESS, Era, Outgoing, Receiver, Waiting
from .command import ServerCommand
from .errors import McpCancelled, McpConnectionError, McpError, McpProtocolError, McpSessionGone, McpTimeoutError
from .lines import Decoded, LineDecoder, Unreadable
from .messages import Kind, answer_id, encode, given_up, kind_of_message, progress_id
from .pipes import Piece
from .process import Death, Grace, ServerProcess
from .stderr_tail import last_lines

__all__ = ["Conversation"]

log = logging.getLogger(__name__)

_SLICE_S = 0.25  # Ctrl-C is noticed between slices
_DEATH_S = 1.0
"""How long a call whose request could not be written waits to learn how the server died."""


class _Call:
    """A request that waits for its answer."""

    def __init__(self, method: str, wants_progress: bool) -> None:
        self.method = method
        self.wants_progress = wants_progress
        self.bell = Bell()
        self.progress: Deque[Mapping[str, Any]] = deque(maxlen=MAX_KEPT_PROGRESS)
        self.answer: Optional[Mapping[str, Any]] = None
        self.unreadable: Optional[str] = None
        self.death: Optional[Death] = None
        self.heard_at = self.began_at = time.monotonic()

    @property
    def waited(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self.began_at


class Conversation:
    """The messages to and from one process. Calls may be made by any thread; the process's thread reads.

    It knows nothing of the channel that it belongs to, so that a channel nobody uses any more is collected.
    """

    def __init__(
        self,
        command: ServerCommand,
        receiver: weakref.ref[Receiver],
        *,
        label: str,
        number: int,
        keep_stderr: bool,
        max_message_bytes: int,
        grace: Grace,
    ) -> None:
        """Prepare it; `number` is its generation. `process.start` starts it."""
        self.number = number
        self.process = ServerProcess(command, self, label=label, keep_stderr=keep_stderr, grace=grace)
        self._label = label
        self._receiver = receiver
        self._decoder = LineDecoder(max_message_bytes)
        self._lock = threading.Lock()
        self._calls: Dict[int, _Call] = {}
        self._era = Era.HANDSHAKE
        self._death: Optional[Death] = None
        self._has_answered = False
        self._is_noisy = False

    @property
    def is_usable(self) -> bool:
        """Whether the process is there; if it has just ended, its calls learn of that now."""
        if self._death is None and self.process.is_up:
            return True
        self.process.look()
        return False

    def set_era(self, era: Era) -> None:
        """Note how the server is spoken to."""
        self._era = era

    def exchange(self, request: Outgoing, waiting: Waiting) -> Mapping[str, Any]:
        """Send a request and wait for its answer, see `Channel.exchange`."""
        message = request.message
        piece = Piece(encode(message) + b"\n")
        call = _Call(message["method"], waiting.on_progress is not None)
        self._enter(message["id"], call)
        self._era = request.era
        cancelled = waiting.cancelled
        take_back = cancelled.add(call.bell.ring) if cancelled is not None else _nothing
        try:
            self._time_left(piece, call, waiting)  # a call that is given up beforehand is not made
            self._send(piece, call, waiting)
            return self._wait(piece, call, waiting)
        except BaseException as error:
            # Whatever made the caller leave, Ctrl-C included; but not when there is nobody to tell.
            if request.may_cancel and piece.has_begun and not (call.answer or call.unreadable or call.death):
                self._tell_given_up(message["id"], call, error)
            raise
        finally:
            take_back()
            with self._lock:
                self._calls.pop(message["id"], None)

    def notify(self, message: Mapping[str, Any], deadline: Optional[float]) -> None:
        """Send a notification, see `Channel.notify`."""
        piece, method = Piece(encode(message) + b"\n"), message["method"]
        try:
            is_written = self.process.write(piece, deadline, lambda: self._death is not None)
        except BrokenPipeError:
            is_written = False
            self._wait_for_death()
        if self._death is not None:
            raise self._died(self._death, method, sent=None if piece.has_begun else False)
        if not is_written:
            raise McpTimeoutError(f"{self._label}: {method}: the server did not read it in time")

    # ------------------------------------------------------------------------------------ on the process's thread

    def feed(self, data: bytes) -> None:
        """Take some of the process's output."""
        for line in self._decoder.feed(data):
            self._take(line)

    def over(self, death: Death) -> None:
        """Learn that the process ended: every call that waits fails."""
        for line in self._decoder.eof():
            self._take(line)
        with self._lock:
            self._death = death
            calls = list(self._calls.values())
        for call in calls:
            call.death = death
            call.bell.ring()
        if not death.is_wanted:
            log.info("%s %s", self._label, death.how)

    def _take(self, line: Decoded) -> None:
        if isinstance(line, Unreadable):
            self._note_unreadable(line)
            return
        token = progress_id(line)
        call = self._calls.get(token) if token is not None else None
        if call is not None:
            call.heard_at = time.monotonic()
            if call.wants_progress:
                call.progress.append(line["params"])
                call.bell.ring()
        elif kind_of_message(line) is Kind.RESPONSE:
            self._note_answer(line)
        else:
            self._pass_on(line)

    def _note_answer(self, message: Mapping[str, Any]) -> None:
        number = answer_id(message)
        call = self._calls.get(number) if number is not None else None
        if call is None:  # it comes too late, or answers nothing we asked
            log.debug("%s: an answer that nobody waits for", self._label)
        elif call.answer is None:
            self._has_answered = True
            call.answer = message
            call.bell.ring()

    def _note_unreadable(self, line: Unreadable) -> None:
        if line.is_answer:
            with self._lock:
                # Whose answer it is may be beyond telling: then nobody is left to wait for it in vain.
                calls = [call for number, call in self._calls.items() if line.id in (None, number)]
            for call in calls:
                call.unreadable = line.why
                call.bell.ring()
        # What it says is not shown: it may be part of a result. Servers that print do so all the time.
        level = logging.DEBUG if self._is_noisy else logging.INFO
        self._is_noisy = True
        log.log(level, "%s: a line of %d bytes on its stdout is no message: %s", self._label, line.size, line.why)

    def _pass_on(self, message: Mapping[str, Any]) -> None:
        receiver = self._receiver()
        if receiver is None:
            return
        try:
            answer = receiver.received(message, self._era)
        except Exception:
            log.exception("%s: what it sent unasked could not be taken", self._label)
            return
        if answer is not None and not self.process.post(encode(answer) + b"\n"):
            log.info("%s: an answer to it was dropped, as it does not read", self._label)

    # ------------------------------------------------------------------------------------ on a caller's thread

    def _enter(self, number: int, call: _Call) -> None:
        with self._lock:
            if self._death is None:
                self._calls[number] = call
                return
        raise self._gone(self._death, call.method)

    def _send(self, piece: Piece, call: _Call, waiting: Waiting) -> None:
        cancelled = waiting.cancelled

        def is_given_up() -> bool:
            return call.death is not None or (cancelled is not None and cancelled.is_set())

        try:
            if self.process.write(piece, waiting.deadline, is_given_up):
                return
        except BrokenPipeError:
            self._wait_for_death()
        death = self._death
        if death is None:
            raise self._given_up(piece, call, waiting, "the server did not read the request in time")
        if not piece.has_begun and not death.is_wanted:
            raise self._gone(death, call.method)

    def _wait_for_death(self) -> None:
        """Learn how a server died that does not read any more; have it ended if it did not."""
        self.process.look()
        for step in ("look", "abandon"):
            until = time.monotonic() + _DEATH_S
            while self._death is None and time.monotonic() < until:
                time.sleep(0.005)
            if self._death is None and step == "look":
                self.process.abandon("closed its input without exiting")

    def _wait(self, piece: Piece, call: _Call, waiting: Waiting) -> Mapping[str, Any]:
        while True:
            # Looked at in this order: what came before the answer, or before the end, is there by then.
            answer, unreadable, death = call.answer, call.unreadable, call.death
            while call.progress and waiting.on_progress is not None:
                waiting.on_progress(call.progress.popleft())
                if answer is None and unreadable is None and death is None:
                    self._time_left(piece, call, waiting)  # it may come faster than it is taken, and for ever
            if answer is not None:
                return answer
            if unreadable is not None:
                raise McpProtocolError(f"{self._label}: the answer to {call.method} cannot be read: {unreadable}")
            if death is not None:
                raise self._died(death, call.method, sent=None if piece.has_begun else False)
            left = self._time_left(piece, call, waiting)
            call.bell.wait(min(left, _SLICE_S))

    def _time_left(self, piece: Piece, call: _Call, waiting: Waiting) -> float:
        """Return for how long it may go on; raises if the caller gave up."""
        now, limits = time.monotonic(), [_SLICE_S]
        if waiting.deadline is not None:
            limits.append(waiting.deadline - now)
        if waiting.idle_timeout is not None:
            limits.append(call.heard_at + waiting.idle_timeout - now)
        is_cancelled = waiting.cancelled is not None and waiting.cancelled.is_set()
        if is_cancelled or min(limits) <= 0:
            why = f"no answer after {call.waited:.1f} s"
            if waiting.idle_timeout is not None and (waiting.deadline is None or waiting.deadline > now):
                why = f"no message for {waiting.idle_timeout:g} s (idle_timeout)"
            raise self._given_up(piece, call, waiting, why)
        return min(limits)

    def _given_up(self, piece: Piece, call: _Call, waiting: Waiting, why: str) -> McpError:
        what = f"{self._label}: {call.method}"
        then = "the server may have executed it" if piece.has_begun else "it was not sent"
        if waiting.cancelled is not None and waiting.cancelled.is_set():
            return McpCancelled(f"{what} was cancelled; {then}")
        return McpTimeoutError(f"{what}: {why}; {then}")

    def _gone(self, death: Death, method: str) -> McpError:
        # One that never answered anything would not after another start either; its words tell why.
        if not self._has_answered:
            return self._died(death, method, sent=False)
        return McpSessionGone(f"{self._label} {death.how} before {method} was sent")

    def _died(self, death: Death, method: str, sent: Optional[bool]) -> McpConnectionError:
        then = "the server may have executed it" if sent is None else "it was not sent"
        if death.is_wanted:
            message = f"{self._label}: {method}: the client was closed meanwhile; {then}"
        else:
            said = last_lines(death.stderr_tail)
            words = f"; the end of its stderr: {said}" if said else ""
            message = f"{self._label} {death.how} before it answered {method}{words}"
        return McpConnectionError(message, sent=sent, exit_code=death.exit_code, stderr_tail=death.stderr_tail)

    def _tell_given_up(self, number: int, call: _Call, error: BaseException) -> None:
        # Goes out behind the request, whatever is left of that.
        late_after = call.waited if isinstance(error, McpTimeoutError) else None
        self.process.post(encode(given_up(number, late_after)) + b"\n")


def _nothing(*_: object) -> None:
    """Do nothing."""
