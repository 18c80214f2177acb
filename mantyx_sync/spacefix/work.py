"""One call: its handler against its time and its stream, whichever settles it first."""

from __future__ import annotations

import contextvars
import logging
import time
from typing import TYPE_CHECKING, Callable

from ..tools.context import ToolContext
from ..tools.handling import close_old_connections, failure_text
from .answers import is_error_result
from .delivery import Connection, Delivery, Outcome
from .events import CallEvent

if TYPE_CHECKING:
    from ..tools.executor import Place
    from .calls import Calls
    from .registration import Item

__all__ = ["Work", "current_work"]

log = logging.getLogger(__name__)

_serving: contextvars.ContextVar[Work | None] = contextvars.ContextVar("mantyx_spacefix_serving", default=None)
"""The call whose handler the current code runs in."""


def current_work() -> Work | None:
    """Return the call whose handler the current code runs in."""
    return _serving.get()


class Work:
    """One call: its handler against its time and its stream, whichever settles it first."""

    def __init__(self, calls: Calls, connection: Connection, event: CallEvent, item: Item | None) -> None:
        self.connection = connection
        self.event = event
        self.arrived_at = time.monotonic()
        self.deadline = self.arrived_at + calls.call_timeout
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
        pool = self.calls.workers.handlers
        context = self.calls.fresh_context()
        self._place = pool.submit(context, self._run, lane=id(self.calls), limiter=id(item), limit=item.max_concurrency)

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
        places = self.calls.workers.max_workers
        text = (
            f"{self.event.name} was not run: all {places} workers of the agent were busy for {waited:.0f} seconds. "
            "Try again later."
        )
        self._answer_soon(Outcome(error=text, inbound_ms=self._inbound_ms), "refused")

    def expire(self) -> None:
        """The gateway has given the call up."""
        if self._settle():
            limit = self.calls.call_timeout
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
        with self.calls.lock:
            is_mine, self.is_settled = not self.is_settled, True
        return is_mine

    def _run(self) -> None:
        item = self._item
        assert item is not None  # one that is not offered is refused
        with self.calls.lock:
            if self.is_settled:
                return
            self.started_at = time.monotonic()
            deadline = self.deadline if item.timeout is None else min(self.deadline, self.started_at + item.timeout)
            self._context = ToolContext(tool_use_id=self.event.id, name=self.event.name, deadline=deadline)
        _serving.set(self)
        take_back: Callable[[], None] | None = None
        if deadline < self.deadline:
            take_back = self.calls.workers.deadlines.add(deadline, self._time_out)
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
        with self.calls.tracer.span(event.kind, event.name, event.trace) as span:
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
        context = self.calls.fresh_context()
        self.calls.workers.express.submit(context, lambda: self._answer(outcome, ending), lane=id(self.calls))

    def _answer(self, outcome: Outcome, ending: str) -> None:
        delivery = Delivery.FAILED
        try:
            delivery = self.calls.courier.deliver(self.connection, self.event.id, outcome, self.deadline, self.where)
        finally:
            if delivery is not Delivery.DELIVERED:
                ending = "lost" if delivery is Delivery.LOST else "undelivered"
            elif outcome.error is not None and ending == "ok":  # it could not be sent as it was
                ending = "error"
            self.calls.close(self, outcome, ending)


def _inbound_ms(event: CallEvent) -> float | None:
    """Return how long an event took to get here, by two clocks."""
    sent_at = event.trace.sent_at if event.trace is not None else None
    return None if sent_at is None else time.time() * 1000 - sent_at
