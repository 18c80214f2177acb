"""From a tool call that arrives to its one answer: run the handler, make the answer's text, hand it to be posted.

Knows no HTTP: how an answer reaches the server is a function it is given.
"""

from __future__ import annotations

import contextvars
import logging
import threading
import time
from enum import Enum
from typing import Any, Callable, Dict

from ..errors import ToolError
from ..events import LocalToolCall
from ..limits import LOCAL_TOOL_TIMEOUT_S, MAX_TOOL_RESULT_BYTES
from ..timing import CallTimes
from .context import ToolContext
from .deadlines import Deadlines
from .executor import Place, ToolExecutor
from .handling import close_old_connections, failure_text
from .ledger import Ledger
from .registry import Answerer, Registry

__all__ = ["Delivery", "RunToolCalls", "ToolResultBody"]

log = logging.getLogger(__name__)

ToolResultBody = Dict[str, Any]
"""Body of the tool-result POST (wire §5)."""

SETTLE_S = 1.0
"""Quiet time on an open connection after which a replayed log counts as read to its end."""

# The platform gives a call up before that: a handler that hangs must not keep a lost stream from being reported.
_BUSY_S = LOCAL_TOOL_TIMEOUT_S + 60.0


class Delivery(Enum):
    """What became of a posted answer."""

    ACCEPTED = "accepted"
    UNWANTED = "unwanted"
    """The server has an answer already or the run is over: a normal end (wire §5, §13)."""
    REFUSED = "refused"
    """The server will never take this body."""
    LOST = "lost"
    """It did not reach the server."""


class RunToolCalls:
    """Answer the tool calls of one run, each exactly once, on the executor's threads.

    `start` and `answered` are called by the thread that reads the run; nothing here blocks it.
    """

    def __init__(
        self,
        run_id: str,
        registry: Registry,
        executor: ToolExecutor,
        deadlines: Deadlines,
        post: Callable[[str, ToolResultBody], Delivery],
        *,
        hold: bool = False,
    ) -> None:
        """Prepare to answer; handlers see the context variables of the code that calls this.

        Args:
            post: Deliver an answer to the run with the given id; blocks until the server has it or never will.
            hold: The run may have a past: note calls, and run only those still open once its log has been read.
        """
        self.run_id = run_id
        self._registry = registry
        self._executor = executor
        self._deadlines = deadlines
        self._post = post
        self._context = contextvars.copy_context()
        self._ledger: Ledger[LocalToolCall] = Ledger(hold=hold)
        self._lock = threading.Lock()
        self._at_work: dict[str, _Work] = {}
        self.times: dict[str, CallTimes] = {}
        """When what happened to each call, by tool use id; others may read it at any time."""
        self._is_closed = False
        self.is_cancelled = False
        self._busy_until = 0.0
        self._post_refusal: Callable[[ToolResultBody], bool] | None = None
        self._take_back_settling: Callable[[], None] = lambda: None

    @property
    def is_busy(self) -> bool:
        """True while a handler runs or an answer is on its way that the run may still wait for."""
        return self._ledger.is_busy and time.monotonic() < self._busy_until

    @property
    def undelivered(self) -> tuple[str, ...]:
        """The tool use ids whose answer could not be delivered."""
        return self._ledger.undelivered

    def start(self, call: LocalToolCall) -> None:
        """Run the tool of a call that arrived, unless it was seen before. Once surrendered, answer it, which blocks."""
        if self._ledger.admit(call.tool_use_id, call):
            if self._post_refusal is None:
                self._begin(call)
            else:
                self.surrender(self._post_refusal)

    def answered(self, tool_use_id: str) -> None:
        """Note that the server reported the call's answer."""
        times = self.times.get(tool_use_id)
        if times is not None and times.ended is not None and times.answered is None:
            times.answered = time.monotonic()  # its word to whoever delivers may come behind the end of the run
        self._ledger.answered(tool_use_id)

    def settle_soon(self) -> None:
        """Note that a part of the log arrived: held calls start when no more arrives for a moment."""
        if self._ledger.is_holding:
            self._take_back_settling()
            self._take_back_settling = self._deadlines.add(time.monotonic() + SETTLE_S, self._settle)

    def settle_what_is_held(self) -> None:
        """Note that reading the log goes on: there may be nothing more of it behind calls that are held."""
        if self._ledger.has_held:
            self.settle_soon()

    def unsettle(self) -> None:
        """Note that the log is not being read: until that goes on, silence does not mean its end."""
        self._take_back_settling()

    def cancel(self) -> None:
        """Tell handlers, and those of later calls, that the run is being cancelled. Answers are still posted."""
        with self._lock:
            self.is_cancelled = True
            works = list(self._at_work.values())
        for work in works:
            work.cancel()

    def close(self) -> None:
        """The run is over or given up: tell handlers to stop, wait for none, answer nothing any more."""
        self._take_back_settling()
        with self._lock:
            self._is_closed = True
            works, self._at_work = list(self._at_work.values()), {}
            # What the old one kept open may be needed by nobody else. Let go of behind the lock.
            _old, self._registry = self._registry, Registry()
        for work in works:
            work.abandon()

    def surrender(self, post: Callable[[ToolResultBody], bool]) -> None:
        """Answer every call at work, and all that still come, in place of their handlers: the run is given up. Blocks.

        A server ends a cancelled run once its calls are answered, or after minutes (wire §9).

        Args:
            post: Deliver an answer; false if it could not be, and no other is worth trying.
        """
        self._post_refusal = post
        waiting = self._ledger.claim_all()
        goes_on = True
        for tool_use_id in waiting:
            goes_on = goes_on and post({"toolUseId": tool_use_id, "error": "the run was given up"})
            self._ledger.close(tool_use_id, delivered=goes_on)

    def _settle(self) -> None:
        for call in self._ledger.settle():
            self._begin(call)

    def _begin(self, call: LocalToolCall) -> None:
        work = _Work(self, call, self._registry.find(call))
        with self._lock:
            if self._is_closed:
                return
            self._at_work[call.tool_use_id] = work
            now = time.monotonic()
            self._busy_until = now + _BUSY_S
            self.times[call.tool_use_id] = CallTimes(call.name, call.kind, now)
        work.begin(self._executor, self._context.copy())

    def deliver(self, call: LocalToolCall, body: ToolResultBody) -> None:
        """Post the one answer of a call whose right to answer was claimed. Blocks."""
        delivery = Delivery.LOST
        times = self.times[call.tool_use_id]
        times.ended, times.failed = time.monotonic(), "error" in body
        try:
            delivery = self._post(call.agent_run_id or self.run_id, {"toolUseId": call.tool_use_id, **body})
            if delivery is Delivery.REFUSED:
                # Something about the result is beyond what the server takes; the run must not hang for that.
                error = {"error": f"the result of {call.name} was refused by the server"}
                delivery = self._post(call.agent_run_id or self.run_id, {"toolUseId": call.tool_use_id, **error})
        finally:
            delivered = delivery in (Delivery.ACCEPTED, Delivery.UNWANTED)
            if delivery is Delivery.ACCEPTED and times.answered is None:
                times.answered = time.monotonic()
            self._ledger.close(call.tool_use_id, delivered=delivered)
            with self._lock:
                self._at_work.pop(call.tool_use_id, None)
            if delivery is Delivery.UNWANTED:
                log.info("%s: the server wants no answer any more", self.describe(call))
            elif not delivered and not self._is_closed:
                log.warning("%s: the answer could not be delivered", self.describe(call))

    def claim(self, call: LocalToolCall) -> bool:
        """Take the right to answer the call; false if it was answered, timed out or given up."""
        return not self._is_closed and self._ledger.claim(call.tool_use_id)

    def context_for(self, call: LocalToolCall, timeout: float | None) -> ToolContext:
        """Make what a handler can ask about its call."""
        return ToolContext(
            run_id=call.agent_run_id or self.run_id,
            tool_use_id=call.tool_use_id,
            name=call.name,
            deadline=None if timeout is None else time.monotonic() + min(timeout, threading.TIMEOUT_MAX),
        )

    def describe(self, call: LocalToolCall) -> str:
        """Name a call in log lines and messages."""
        return f"tool {call.name!r} (run {self.run_id}, tool use {call.tool_use_id})"

    @property
    def has_tools(self) -> bool:
        """True if there may be calls to answer here."""
        return bool(self._registry.names)

    @property
    def known_names(self) -> str:
        """The tools that can be called, for the model to read."""
        return self._registry.names

    def run_soon(self, job: Callable[[], None]) -> None:
        """Run a job that takes no place: it must not wait behind handlers."""
        self._executor.run_now(self._context.copy(), job)

    def watch(self, at: float, action: Callable[[], None]) -> Callable[[], None]:
        """Call `action` at a time on the monotonic clock; returns what takes that back."""
        return self._deadlines.add(at, action)


class _Work:
    """One call at work: its handler against its time-out, whichever answers first."""

    def __init__(self, calls: RunToolCalls, call: LocalToolCall, answerer: Answerer | None) -> None:
        self._calls = calls
        self._call = call
        self._answerer = answerer
        self._place: Place | None = None
        self._context: ToolContext | None = None
        self._is_abandoned = False

    def begin(self, executor: ToolExecutor, context: contextvars.Context) -> None:
        answerer = self._answerer
        if answerer is None:
            known = self._calls.known_names
            text = f"no tool named {self._call.name!r} is offered here" + (f"; there are: {known}" if known else "")
            log.warning("%s: no such tool in this process", self._calls.describe(self._call))
            self._calls.run_soon(lambda: self._answer({"error": text}))
        else:
            self._place = executor.submit(context, self._run, limiter=answerer.limiter, limit=answerer.max_concurrency)

    def cancel(self) -> None:
        if self._context is not None:
            self._context.cancelled.set()

    def abandon(self) -> None:
        self._is_abandoned = True
        self.cancel()
        if self._place is not None:
            self._place.give_up()

    def _run(self) -> None:
        answerer = self._answerer
        if answerer is None:
            return
        self._context = context = self._calls.context_for(self._call, answerer.timeout)
        if self._is_abandoned:  # looked at behind the line above: who abandons sets this, then tells the context
            return
        if self._calls.is_cancelled:
            context.cancelled.set()
        self._calls.times[self._call.tool_use_id].begun = time.monotonic()
        take_back: Callable[[], None] | None = None
        if context.deadline is not None:
            take_back = self._calls.watch(context.deadline, lambda: self._time_out(answerer.timeout or 0.0))
        try:
            body = _handle(answerer, self._call, context, self._calls.describe(self._call))
        except BaseException:  # a log filter that raises, an error without a text: the run must not wait for that
            body = {"error": f"{self._call.name} failed"}
        finally:
            if take_back is not None:
                take_back()
        self._answer(body)

    def _time_out(self, timeout: float) -> None:
        if not self._calls.claim(self._call):
            return
        log.warning("%s: no result after %g s; its thread is left to itself", self._calls.describe(self._call), timeout)
        self.abandon()
        body = {"error": f"{self._call.name} did not finish within {timeout:g} seconds"}
        self._calls.run_soon(lambda: self._calls.deliver(self._call, body))

    def _answer(self, body: ToolResultBody) -> None:
        if self._calls.claim(self._call):
            self._calls.deliver(self._call, body)


def _handle(answerer: Answerer, call: LocalToolCall, context: ToolContext, where: str) -> ToolResultBody:
    """Run the handler and turn whatever happens into the body of an answer."""
    close_old_connections()
    try:
        result = answerer.answer(call, context)
        size = len(result.result.encode("utf-8", "surrogatepass"))
        if size > MAX_TOOL_RESULT_BYTES:
            raise ToolError(
                f"the result of {call.name} is {size} bytes; at most {MAX_TOOL_RESULT_BYTES} can be returned. "
                "Ask for less at a time."
            )
        body: ToolResultBody = {"result": result.result}
        if result.files:
            body["files"] = [file.to_wire() for file in result.files]
        return body
    except BaseException as error:
        return {"error": failure_text(error, call.name, where, log)}
    finally:
        close_old_connections()
