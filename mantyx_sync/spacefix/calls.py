"""The calls of an agent: taken from the stream, watched, and each ended in exactly one way.

The reader of the stream calls `begin`, which never blocks. A call ends with an answer, with its stream, or with its
time.
"""

from __future__ import annotations

import contextvars
import threading
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING, Callable, Deque, Tuple

from .delivery import Connection, Courier, Outcome
from .events import CallEvent, Malformed
from .status import CallReport
from .window import Window
from .work import Work, current_work

if TYPE_CHECKING:
    from ..tools.deadlines import Deadlines
    from .trace import Tracer
    from .workers import WorkerPool

__all__ = ["Calls", "inside_handler_of"]

SHUTTING_DOWN = "this agent is shutting down; call again"


def inside_handler_of(calls: Calls) -> bool:
    """Tell whether the current code runs in a handler of an agent's."""
    work = current_work()
    return work is not None and work.calls is calls


class Calls:
    """The calls of one agent, over all its connections. Safe to use from any thread."""

    def __init__(
        self,
        workers: WorkerPool,
        courier: Courier,
        tracer: Tracer,
        report: Callable[[CallReport], None],
        *,
        call_timeout: float,
    ) -> None:
        """Handlers see the context variables of the code that calls this.

        Args:
            report: Told of every call that ended; must not raise.
            call_timeout: Seconds after which the gateway gives a call up.
        """
        self.window = Window(workers.max_workers)
        self.workers = workers
        self.courier = courier
        self.tracer = tracer
        self._report = report
        self.call_timeout = call_timeout
        # What waits for a place is told before the gateway stops listening: soon enough for a thousand calls that came
        # together, each of which is told in a request of its own.
        self._patience = call_timeout - min(2.0, call_timeout / 10)
        self._context = contextvars.copy_context()
        self.lock = threading.Lock()
        self._open: dict[tuple[int, str], Work] = {}  # not yet settled, or their answer is on its way
        self._waiting = _Line(workers.deadlines, Work.lose_patience)
        self._alive = _Line(workers.deadlines, Work.expire)
        self._is_stopping = False
        self._awaited: list[tuple[set[Work], Callable[[], None]]] = []

    @property
    def waiting(self) -> int:
        """How many calls wait for a place."""
        return sum(not work.is_started and not work.is_settled for work in list(self._open.values()))

    def fresh_context(self) -> contextvars.Context:
        """Return a copy of the context that the agent was started in."""
        return self._context.copy()

    def begin(self, connection: Connection, event: CallEvent) -> None:
        """Have a call answered. Does not block; a call that was seen before is ignored."""
        item = connection.registration.find(event.kind, event.name)
        work = Work(self, connection, event, item)
        with self.lock:
            if not connection.is_new(event.id):
                return
            self._open[id(connection), event.id] = work
            is_stopping = self._is_stopping
        if is_stopping:
            work.refuse(f"{event.name}: {SHUTTING_DOWN}")
        elif item is None:
            offered = connection.registration.names(event.kind)
            work.refuse(f"{event.name} is not offered by this agent" + (f"; there are: {offered}" if offered else ""))
        else:
            self._waiting.add(work.arrived_at + self._patience, work)
            self._alive.add(work.deadline, work)
            work.enter(item)

    def begin_malformed(self, connection: Connection, event: Malformed) -> None:
        """Have the caller told that its call cannot be read."""
        if event.id is not None:
            call = CallEvent(event.kind, event.id, "")
            work = Work(self, connection, call, None)
            with self.lock:
                if not connection.is_new(event.id):
                    return
                self._open[id(connection), event.id] = work
            work.refuse(f"the call cannot be read: {event.reason}")

    def lose(self, connection: Connection) -> int:
        """The stream of a connection has ended: have its handlers know, and run none any more.

        Returns:
            How many calls were not answered.
        """
        connection.end()
        with self.lock:
            works = [work for work in self._open.values() if work.connection is connection]
        return sum(work.lose() for work in works)

    def refuse_more(self) -> None:
        """Run no handler for calls that arrive from now on, nor for those that wait for a place."""
        with self.lock:
            self._is_stopping = True
            waiting = [work for work in self._open.values() if not work.is_started]
        for work in waiting:
            work.refuse(f"{work.event.name}: {SHUTTING_DOWN}")

    def when_answered(self, action: Callable[[], None]) -> None:
        """Call `action` once the calls that are open now have ended, that of the calling handler included. Once."""
        with self.lock:
            awaited = set(self._open.values())
            if awaited:
                self._awaited.append((awaited, action))
        if not awaited:
            action()

    def end(self) -> None:
        """Nothing arrives any more: take back what watches the time."""
        self._waiting.clear()
        self._alive.clear()

    def close(self, work: Work, outcome: Outcome | None, ending: str) -> None:
        """A call is over: nobody will answer it any more."""
        with self.lock:
            if self._open.get((id(work.connection), work.event.id)) is work:
                del self._open[id(work.connection), work.event.id]
            for awaited, _ in self._awaited:
                awaited.discard(work)
            actions = [action for awaited, action in self._awaited if not awaited]
            self._awaited = [entry for entry in self._awaited if entry[0]]
        trace = work.event.trace
        error = outcome.error if outcome is not None else None
        if ending != "ok":
            self.window.failed()
        self._report(
            CallReport(
                kind=work.event.kind,
                name=work.event.name,
                call_id=work.event.id,
                request_id=trace.request_id if trace is not None else None,
                outcome=ending,
                error=error,
                handler_s=outcome.handler_s if outcome is not None else None,
                waited_s=(work.started_at or time.monotonic()) - work.arrived_at,
            )
        )
        for action in actions:
            action()


class _Line:
    """Calls whose times come in the order in which they were added, watched with one timer for all of them."""

    def __init__(self, deadlines: Deadlines, act: Callable[[Work], object]) -> None:
        self._deadlines = deadlines
        self._act = act
        self._lock = threading.Lock()
        self._entries: Deque[Tuple[float, weakref.ref[Work]]] = deque()  # whose arguments may be large: not kept
        self._take_back: Callable[[], None] | None = None

    def add(self, at: float, work: Work) -> None:
        """Have a call looked at when its time has come."""
        with self._lock:
            for _ in range(2):  # so that the line is hardly longer than the calls that are open
                if not self._entries or _is_open(self._entries[0][1]()):
                    break
                self._entries.popleft()
            self._entries.append((at, weakref.ref(work)))
            if self._take_back is None:
                self._take_back = self._deadlines.add(at, self._look)

    def clear(self) -> None:
        """Look at no call any more."""
        with self._lock:
            self._entries.clear()
            take_back, self._take_back = self._take_back, None
        if take_back is not None:
            take_back()

    def _look(self) -> None:
        due: list[Work] = []
        now = time.monotonic()
        with self._lock:
            while self._entries:
                at, reference = self._entries[0]
                work = reference()
                if work is not None and _is_open(work):
                    if at > now:
                        break
                    due.append(work)
                self._entries.popleft()
            self._take_back = self._deadlines.add(self._entries[0][0], self._look) if self._entries else None
        for work in due:
            self._act(work)


def _is_open(work: Work | None) -> bool:
    return work is not None and not work.is_settled
