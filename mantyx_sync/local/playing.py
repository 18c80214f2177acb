"""One answer of a recording, while it is being played."""

from __future__ import annotations

import json
import math
import time
from typing import Callable, Iterable, Mapping, Optional, Protocol

from mantyx_sync.local.answers import Answer, KnownAnswer, Later, NoAnswer, RelayedResponse
from mantyx_sync.local.frames import PieceLog
from mantyx_sync.local.loop import Timer
from mantyx_sync.local.playback import Plan, Step
from mantyx_sync.local.recording import BROKEN, COMPLETE, NO_ANSWER

__all__ = ["PATIENCE_S", "Playing", "Stage"]

PATIENCE_S = 30.0
"""How much longer than then a client may take to leave or to cancel, in real time."""


class Stage(Protocol):
    """What an answer needs of the server that plays it."""

    def pause(self, gap: float) -> float:
        """Return how long a recorded pause is now, in seconds."""
        ...

    def arrived(self, number: int) -> float | None:
        """Return when a recorded request came, on the monotonic clock; `None` if it has not yet."""
        ...

    def hopeless(self, numbers: Iterable[int]) -> str | None:
        """Return why requests that a stream waits for will not come; `None` while they may."""
        ...

    def overdue(self, numbers: Iterable[int]) -> str | None:
        """Return what a stream has waited for in vain; `None` if that may take any time."""
        ...

    def forget(self, playing: Playing) -> None:
        """Take notice that an answer is over."""
        ...

    def call_at(self, when: float, function: Callable[[], None]) -> Timer:
        """Have a function called on the socket loop's thread."""
        ...

    def grown(self, log: PieceLog) -> None:
        """Tell the socket loop that there is more to send."""
        ...


class Playing:
    """One answer that is being played. Everything happens on the socket loop's thread."""

    def __init__(self, stage: Stage, plan: Plan, log_id: str) -> None:
        self._stage = stage
        self._plan = plan
        self._log = PieceLog(log_id, self._left)
        self._steps = [*plan.steps, plan.last]
        self._next = 0
        self._before = time.monotonic()
        self._timer: Optional[Timer] = None
        self._has_begun = False
        self._tail = b""
        self._is_over = False

    @property
    def missing(self) -> list[int]:
        """The requests that the next step still waits for."""
        if self._is_over or not self._has_begun:
            return []
        return [number for number in self._steps[self._next].needs if self._stage.arrived(number) is None]

    def begin(self) -> Answer:
        """Return the answer, or a promise of it where it came later."""
        pause = self._stage.pause(self._plan.head_gap)
        if self._plan.status is None and self._plan.end != NO_ANSWER:
            # Its client had left before the answer came; this one will, too.
            never = Later(self._left)
            self._lose_patience(self._plan.head_gap, lambda: never.give(self._answer()))
            return never
        if pause <= 0:
            return self._answer()
        later = Later(self._left)
        self._timer = self._stage.call_at(time.monotonic() + pause, lambda: later.give(self._answer()))
        return later

    def _answer(self) -> KnownAnswer:
        plan = self._plan
        if plan.status is None:
            self._over()
            return NoAnswer()
        self._before = time.monotonic()
        self._has_begun = True
        self.go_on()
        return RelayedResponse(plan.status, tuple(map(self._header, plan.headers)), self._log, self._length())

    def _header(self, pair: tuple[str, str]) -> tuple[str, str]:
        """Return a header as it was, but for a pause that it asks the client to make."""
        name, value = pair
        if name.lower() == "retry-after" and value.isascii() and value.isdigit() and len(value) < 10:
            return name, str(math.ceil(self._stage.pause(int(value))))
        return pair

    def _length(self) -> int | None:
        if not self._plan.is_sized:
            return None
        size = sum(len(step.data) for step in self._plan.steps)
        return size if self._plan.end == COMPLETE else max(self._plan.length or 0, size + 1)

    def go_on(self) -> None:
        """Send what may be sent by now."""
        if not self._has_begun or self._is_over:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while not self._is_over:
            step = self._steps[self._next]
            missing = self.missing
            if missing:
                why = self._stage.hopeless(missing)
                if why is not None:
                    self._fail(why)
                else:
                    self._lose_patience(step.gap, self._overdue)
                return
            due = self._due(step)
            if due > time.monotonic():
                self._timer = self._stage.call_at(due, self.go_on)
                return
            self._before = due
            self._next += 1
            if self._next < len(self._steps):
                self._send(step.data)
            else:
                self._end()

    def _due(self, step: Step) -> float:
        came = [self._stage.arrived(number) or 0.0 for number in step.needs]
        return max([self._before, *came]) + self._stage.pause(step.gap)

    def _send(self, data: bytes) -> None:
        self._tail = (self._tail + data)[-4:]
        self._log.frames.append(data)
        self._stage.grown(self._log)

    def _end(self) -> None:
        self._is_over = True
        if self._plan.end in (COMPLETE, BROKEN):
            self._log.end("fin" if self._plan.end == BROKEN else None)
            self._stage.grown(self._log)
        else:  # its client had left: it stays open until this one does
            self._lose_patience(self._plan.last.gap, self._forsaken)

    def _lose_patience(self, also: float, function: Callable[[], None]) -> None:
        """Have a function called if nothing happens for long: a client that does otherwise than then is not to hang."""
        self._timer = self._stage.call_at(time.monotonic() + also + PATIENCE_S, function)

    def _overdue(self) -> None:
        why = self._stage.overdue(self.missing)
        if why is not None:
            self._fail(f"{self._plan.title} {why}")

    def _forsaken(self) -> None:
        if any(name.lower() == "content-type" and "event-stream" in value for name, value in self._plan.headers):
            self._fail(f"{self._plan.title} ends here: when it was recorded, its client had left")
        else:
            self._log.end("fin")
            self._stage.grown(self._log)

    def _fail(self, why: str) -> None:
        """End a stream that would wait for ever, since what it waits for has come and was not what was recorded."""
        if self._tail and not self._tail.endswith((b"\n\n", b"\r\r", b"\n\r\n")):
            self._send(b"\n\n")
        self._send(_error_frame(self._plan, why))
        self._is_over = True
        self._log.end()
        self._stage.grown(self._log)

    def _left(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._over()

    def _over(self) -> None:
        self._is_over = True
        self._stage.forget(self)


def _error_frame(plan: Plan, why: str) -> bytes:
    seq = plan.last_seq + 1
    if "/eval-runs/" in plan.title:
        event: Mapping[str, object] = {"seq": seq, "type": "run_error", "error": why}
    else:
        data = {"error": why, "errorClass": "unknown", "code": "replay_mismatch", "retryable": False}
        event = {"seq": seq, "type": "error", "data": data}
    return f"id: {seq}\nevent: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
