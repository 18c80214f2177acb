"""From an event that arrives to its one answer: a place in the pool, the handler, the answer, and the call's time.

The reader of the stream calls `begin`, which never blocks. Every call ends in exactly one of: an answer, the end of
its stream, or the end of its time.
"""

from __future__ import annotations

import contextvars
import logging
import threading
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING, Callable, Deque, Tuple

from ..tools.context import ToolContext
from ..tools.handling import close_old_connections, failure_text
from .answers import is_error_result
from .delivery import Connection, Courier, Delivery, Outcome
from .events import CallEvent, Malformed
from .status import CallReport
from .window import Window

if TYPE_CHECKING:
    from ..tools.deadlines import Deadlines
    from ..tools.executor import Place
    from .registration import Item
    from .trace import Tracer
    from .workers import WorkerPool

__all__ = ["Calls", "inside_handler_of"]

log = logging.getLogger(__name__)

SHUTTING_DOWN = "this agent is shutting down; call again"

_serving: contextvars.ContextVar[Work | None] = contextvars.ContextVar("mantyx_spacefix_serving", default=None)
"""The call whose handler the current code runs in."""


def inside_handler_of(calls: Calls) -> bool:
    """Tell whether the current code runs in a handler of an agent's."""
    work = _serving.get()
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
        self._workers = workers
        self._courier = courier
        self._tracer = tracer
        self._report = report
        self._call_timeout = call_timeout
        # What waits for a place is told a little before the gateway stops listening.
        self._patience = call_timeout - min(1.0, call_timeout / 10)
        self._context = contextvars.copy_context()
        self._lock = threading.Lock()
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
        with self._lock:
            if self._open.setdefault((id(connection), event.id), work) is not work:
                return
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
            with self._lock:
                self._open[id(connection), event.id] = work
            work.refuse(f"the call cannot be read: {event.reason}")

    def lose(self, connection: Connection) -> int:
        """The stream of a connection has ended: have its handlers know, and run none any more.

        Returns:
            How many calls were not answered.
        """
        connection.end()
        with self._lock:
            works = [work for work in self._open.values() if work.connection is connection]
        return sum(work.lose() for work in works)

    def refuse_more(self) -> None:
        """Run no handler for calls that arrive from now on, nor for those that wait for a place."""
        with self._lock:
            self._is_stopping = True
            waiting = [work for work in self._open.values() if not work.is_started]
        for work in waiting:
            work.refuse(f"{work.event.name}: {SHUTTING_DOWN}")

    def when_answered(self, action: Callable[[], None]) -> None:
        """Call `action` once the calls that are open now have ended, that of the calling handler aside. Once."""
        with self._lock:
            awaited = set(self._open.values())
            awaited.discard(_serving.get())  # of an agent that is stopped by its own handler
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
        with self._lock:
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


class Work:
    """One call: its handler against its time and its stream, whichever settles it first."""

    def __init__(self, calls: Calls, connection: Connection, event: CallEvent, item: Item | None) -> None:
        self.connection = connection
        self.event = event
        self.arrived_at = time.monotonic()
        self.deadline = self.arrived_at + calls._call_timeout
        self.started_at = 0.0
        self.is_settled = False
        self._inbound_ms = _inbound_ms(event)
        self.calls = calls
        self._item = item
        self._place: Place | None = None
        self._context: ToolContext | None = None

    @property
    def is_started(self) -> bool:
        """True once the handler has a place."""
        return self.started_at > 0

    @property
    def where(self) -> str:
        """Names the call in log lines."""
        request_id = self.event.trace.request_id if self.event.trace is not None else None
        return f"{self.event.kind} {self.event.name!r} ({'request ' + request_id if request_id else self.event.id})"

    def enter(self, item: Item) -> None:
        """Get in line for a place."""
        pool = self.calls._workers.handlers
        context = self.calls._context.copy()
        self._place = pool.submit(context, self._run, limiter=id(item), limit=item.max_concurrency)

    def refuse(self, text: str) -> None:
        """Have the caller told why the call is not run."""
        if self._settle():
            log.info("%s: refused", self.where)
            self._give_up_place()
            self._answer_soon(Outcome(error=text, inbound_ms=self._inbound_ms), "refused")

    def lose_patience(self) -> None:
        """The time of a call that still waits for a place is nearly over."""
        if self.is_started or not self._settle():
            return
        self._give_up_place()
        waited = time.monotonic() - self.arrived_at
        log.warning("%s: not run: no worker was free for %.1f s", self.where, waited)
        places = self.calls._workers.max_workers
        text = (
            f"{self.event.name} was not run: all {places} workers of the agent were busy for {waited:.0f} seconds. "
            "Try again later."
        )
        self._answer_soon(Outcome(error=text, inbound_ms=self._inbound_ms), "refused")

    def expire(self) -> None:
        """The gateway has given the call up."""
        if self._settle():
            limit = self.calls._call_timeout
            log.warning("%s: no result after %g s; its thread is left to itself", self.where, limit)
            self._abandon()
            self.calls.close(self, None, "timed_out")

    def lose(self) -> bool:
        """The stream has ended: nobody waits for an answer any more. False if the call had ended before."""
        if not self._settle():
            return False
        self.cancel()
        if not self.is_started:
            self._give_up_place()
            log.warning("%s: not run: its stream ended while it waited for a place", self.where)
        self.calls.close(self, None, "lost")
        return True

    def cancel(self) -> None:
        """Tell the handler that its answer is not wanted any more."""
        if self._context is not None:
            self._context.cancelled.set()

    def _abandon(self) -> None:
        self.cancel()
        self._give_up_place()

    def _give_up_place(self) -> None:
        if self._place is not None:
            self._place.give_up()

    def _settle(self) -> bool:
        """Take the right to end the call; false if it has ended."""
        with self.calls._lock:
            is_mine, self.is_settled = not self.is_settled, True
        return is_mine

    def _run(self) -> None:
        item = self._item
        assert item is not None  # one that is not offered is refused
        with self.calls._lock:
            if self.is_settled:
                return
            self.started_at = time.monotonic()
            deadline = self.deadline if item.timeout is None else min(self.deadline, self.started_at + item.timeout)
            self._context = ToolContext(tool_use_id=self.event.id, name=self.event.name, deadline=deadline)
        _serving.set(self)
        take_back: Callable[[], None] | None = None
        if deadline < self.deadline:
            take_back = self.calls._workers.deadlines.add(deadline, self._time_out)
        outcome = Outcome(inbound_ms=self._inbound_ms)
        self.calls.window.began()
        try:
            self._handle(item, self._context, outcome)
        except BaseException:  # a log filter that raises, an error without a text: the caller must not wait for that
            outcome.result, outcome.error = None, f"{self.event.name} failed"
        finally:
            outcome.handler_s = time.monotonic() - self.started_at
            self.calls.window.ended(outcome.handler_s)
            if take_back is not None:
                take_back()
        if self._settle():
            self._answer(outcome, "error" if outcome.error is not None or is_error_result(outcome.result) else "ok")
        elif self.connection.lost.is_set():
            log.warning("%s: finished after its stream had ended; its answer is dropped", self.where)
        else:
            log.info("%s: finished %.1f s late", self.where, time.monotonic() - deadline)

    def _handle(self, item: Item, context: ToolContext, outcome: Outcome) -> None:
        """Run the handler inside its span and note what came of it."""
        event = self.event
        with self.calls._tracer.span(event.kind, event.name, event.trace) as span:
            outcome.span_id = span.span_id
            close_old_connections()
            try:
                outcome.result = item.answer(event.args, context)
            except BaseException as error:
                outcome.error = failure_text(error, event.name, self.where, log)
                span.failed(outcome.error)
            finally:
                close_old_connections()

    def _time_out(self) -> None:
        """The tool's own time is over."""
        if self._item is None or not self._settle():
            return
        log.warning("%s: no result after %g s; its thread is left to itself", self.where, self._item.timeout)
        self._abandon()
        text = f"{self.event.name} did not finish within {self._item.timeout:g} seconds"
        handler_s = time.monotonic() - self.started_at
        self._answer_soon(Outcome(error=text, handler_s=handler_s, inbound_ms=self._inbound_ms), "timed_out")

    def _answer_soon(self, outcome: Outcome, ending: str) -> None:
        """Answer from a thread that no handler blocks."""
        context = self.calls._context.copy()
        self.calls._workers.express.submit(context, lambda: self._answer(outcome, ending))

    def _answer(self, outcome: Outcome, ending: str) -> None:
        delivery = Delivery.FAILED
        try:
            delivery = self.calls._courier.deliver(self.connection, self.event.id, outcome, self.deadline, self.where)
        finally:
            if delivery is not Delivery.DELIVERED:
                ending = "lost" if delivery is Delivery.LOST else "undelivered"
            elif outcome.error is not None and ending == "ok":  # it could not be sent as it was
                ending = "error"
            self.calls.close(self, outcome, ending)


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
                is_open = work is not None and not work.is_settled
                if is_open and at > now:
                    break
                self._entries.popleft()
                if work is not None and is_open:
                    due.append(work)
            self._take_back = self._deadlines.add(self._entries[0][0], self._look) if self._entries else None
        for work in due:
            self._act(work)


def _inbound_ms(event: CallEvent) -> float | None:
    """Return how long an event took to get here, by two clocks."""
    sent_at = event.trace.sent_at if event.trace is not None else None
    return None if sent_at is None else time.time() * 1000 - sent_at
