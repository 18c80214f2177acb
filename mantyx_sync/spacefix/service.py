"""An agent that was started: its link, its calls, its telemetry, and how they end together."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Optional

from ..errors import MantyxError, MantyxTimeoutError
from ..roster import Roster
from ..run_events import outcome_again
from .calls import Calls, inside_handler_of
from .delivery import Connection, Courier
from .link import Link, LinkEvents
from .status import AgentStatus, CallReport, Disconnect
from .telemetry import Telemetry
from .trace import Tracer

if TYPE_CHECKING:
    from .endpoints import Endpoints
    from .registration import Registration
    from .workers import WorkerPool

__all__ = ["Hooks", "Service"]

log = logging.getLogger(__name__)

TELEMETRY_INTERVAL_S = 10.0
"""What the dashboard's rate figures assume."""

MAX_WAITING_HOOKS = 10_000
"""A hook that is slower than what it is told of must not fill the memory."""

JOIN_S = 2.0
"""How long threads that were told to end are waited for."""
_SLICE_S = 0.25  # Ctrl-C is noticed between slices: not every system lets a signal interrupt a wait


@dataclass(frozen=True)
class Hooks:
    """Functions of the caller's that are told what happens; see `Agent`."""

    on_connect: Optional[Callable[[AgentStatus], None]] = None
    on_disconnect: Optional[Callable[[Disconnect], None]] = None
    on_call_done: Optional[Callable[[CallReport], None]] = None
    on_error: Optional[Callable[[MantyxError], None]] = None


class Service(LinkEvents):
    """The running part of an agent, from `start` to `stop`. It belongs to the process that started it."""

    def __init__(
        self,
        registration: Registration,
        endpoints: Endpoints,
        workers: WorkerPool,
        hooks: Hooks,
        *,
        call_timeout: float,
        idle_timeout: float,
        telemetry: bool,
        tracing: bool,
        label: str,
    ) -> None:
        """Start nothing yet; handlers see the context variables of the code that calls this."""
        self._pid = os.getpid()
        self._endpoints = endpoints
        self._workers = workers
        self._hooks = hooks
        self._idle_timeout = idle_timeout
        self._is_stopping = False
        self._freed = threading.Event()
        self._hook_lock = threading.Lock()
        self._hooks_waiting = 0
        self._is_hook_slow = False
        self._take_back: list[Callable[[], None]] = []
        courier = Courier(endpoints.post_result, workers.deadlines.add)
        self._calls = Calls(workers, courier, Tracer(enabled=tracing), self._call_done, call_timeout=call_timeout)
        self._link = Link(endpoints.connect, registration, self._calls, self, idle_timeout=idle_timeout, label=label)
        self._telemetry: Telemetry | None = None
        if telemetry:
            self._telemetry = Telemetry(
                lambda: self._link.connection,
                self._calls.window.take,
                endpoints.post_telemetry,
                interval=TELEMETRY_INTERVAL_S,
            )

    @property
    def is_here(self) -> bool:
        """False in a child of the process that started it."""
        return self._pid == os.getpid()

    @property
    def is_over(self) -> bool:
        """True once it was stopped, or its thread has ended."""
        return self._link.state == "stopped"

    def start(self) -> None:
        """Start the threads.

        Raises:
            MantyxError: There can be no more threads.
        """
        self._workers.enter()
        _services.add(self)
        try:
            if self._telemetry is not None:
                self._telemetry.thread.start()
            self._link.start()
        except RuntimeError as error:
            self._close()
            self.ended()
            raise MantyxError(f"no thread can be started for the agent ({error})", code="no_thread") from error

    # What can be asked

    def status(self) -> AgentStatus:
        """Return how things are."""
        link, window, now = self._link, self._calls.window, time.monotonic()
        connection = link.connection
        silent_for = None if connection is None else max(0.0, now - connection.heard_at)
        state = "stopping" if self._is_stopping and link.state != "stopped" else link.state
        return AgentStatus(
            state=state,
            is_healthy=state == "ready" and silent_for is not None and silent_for <= self._idle_timeout,
            connected_for=None if connection is None else max(0.0, now - connection.ready_at),
            silent_for=silent_for,
            next_attempt_in=max(0.0, link.next_attempt_at - now) if state == "waiting" else None,
            connects=link.connects,
            failures=link.failures,
            in_flight=window.in_flight,
            waiting=self._calls.waiting,
            calls=window.calls,
            errors=window.errors,
            last_error=link.last_error,
        )

    def wait_ready(self, timeout: float | None) -> None:
        """Wait until the gateway serves what is registered now; see `Agent.wait_ready`."""
        link = self._link
        deadline = None if timeout is None else time.monotonic() + timeout
        with link.changed:
            while not (link.state == "ready" and link.served is link.registration):
                if link.state == "refused" and link.served is link.registration and link.last_error is not None:
                    raise outcome_again(link.last_error)
                if link.state == "stopped" or self._is_stopping:
                    raise MantyxError("the agent was stopped before it was ready", code="stopped")
                left = _SLICE_S if deadline is None else deadline - time.monotonic()
                if left <= 0:
                    reason = f": {link.last_error}" if link.last_error is not None else ""
                    raise MantyxTimeoutError(f"the agent was not ready within {timeout:g} s{reason}")
                link.changed.wait(min(left, _SLICE_S))

    @property
    def refusal(self) -> MantyxError | None:
        """The error of a registration that the gateway did not take, where it never took one before."""
        link = self._link
        return link.last_error if link.state == "refused" and not link.connects else None

    # What can be done

    def register(self, registration: Registration, grace: float) -> None:
        """Serve another registration, by connecting again once the calls that are open now are answered."""
        self._link.register(registration)
        if self._link.connection is None:
            self._link.renew()
            return
        self._at(grace, self._link.renew)
        self._calls.when_answered(self._link.renew)

    def stop(self, grace: float) -> None:
        """Take no more calls, let those at work be answered for `grace` seconds, and end; see `Agent.stop`."""
        self._is_stopping = True
        self._calls.refuse_more()
        if grace <= 0 or self._link.connection is None:
            self._close()
        else:
            self._at(grace, self._close)
            self._calls.when_answered(self._close)
        if not self._is_own_thread():
            self._join(time.monotonic() + grace + JOIN_S)

    def _is_own_thread(self) -> bool:
        threads = [self._link.thread] + ([self._telemetry.thread] if self._telemetry is not None else [])
        return threading.current_thread() in threads or inside_handler_of(self._calls) or _in_hook.service is self

    def _join(self, deadline: float) -> None:
        threads = [self._link.thread] + ([self._telemetry.thread] if self._telemetry is not None else [])
        for thread in threads:
            while thread.ident is not None and thread.is_alive():
                left = deadline - time.monotonic()
                if left <= 0:
                    return
                thread.join(min(left, _SLICE_S))
        self._freed.wait(max(0.0, min(JOIN_S, deadline - time.monotonic())))

    def _close(self) -> None:
        """End the threads. Does not block, and may be called more than once."""
        while self._take_back:
            with contextlib.suppress(IndexError):  # another thread does the same
                self._take_back.pop()()
        self._link.stop()
        if self._telemetry is not None:
            self._telemetry.stop()

    def _at(self, seconds: float, action: Callable[[], None]) -> None:
        self._take_back.append(self._workers.deadlines.add(time.monotonic() + seconds, action))

    # What the link tells

    def connected(self, connection: Connection) -> None:  # noqa: ARG002 - the status says it all
        """Tell the hook."""
        if self._hooks.on_connect is not None:
            self._hook(self._hooks.on_connect, self.status())

    def disconnected(self, connection: Connection, reason: str, error: MantyxError | None, lost_calls: int) -> None:
        """Tell the hook."""
        connected_for = time.monotonic() - connection.ready_at
        self._hook(self._hooks.on_disconnect, Disconnect(reason, connected_for, lost_calls, error))

    def failed(self, error: MantyxError) -> None:
        """Tell the hook."""
        self._hook(self._hooks.on_error, error)

    def ended(self) -> None:
        """Free what is left, behind the last report and the last hook."""
        _services.discard(self)
        if self._telemetry is not None:
            self._telemetry.stop()
        self._calls.when_answered(lambda: self._free() if self._hooks == Hooks() else self._hook(self._free, None))

    def _free(self, _: None = None) -> None:
        self._endpoints.close()
        self._workers.leave()
        self._freed.set()

    def _call_done(self, report: CallReport) -> None:
        self._hook(self._hooks.on_call_done, report)

    def _hook(self, hook: Callable[[Any], None] | None, value: Any) -> None:
        """Have a hook called: one at a time, in order, and never on the thread that reads the stream."""
        if hook is None:
            return
        with self._hook_lock:
            is_full = self._hooks_waiting >= MAX_WAITING_HOOKS and hook != self._free
            is_news, self._is_hook_slow = is_full and not self._is_hook_slow, is_full
            self._hooks_waiting += not is_full
        if is_full:
            if is_news:
                log.warning("a hook of the agent is too slow: it is not told what comes before it has caught up")
            return

        def call() -> None:
            with self._hook_lock:
                self._hooks_waiting -= 1
            _in_hook.service = self
            try:
                hook(value)
            except Exception:
                log.exception("a hook of the agent raised")
            finally:
                _in_hook.service = None

        self._workers.hooks.submit(self._calls.fresh_context(), call, lane=id(self), limiter=id(self), limit=1)


class _InHook(threading.local):
    service: Service | None = None


_in_hook = _InHook()
_services: Roster[Service] = Roster()


@atexit.register
def _stop_services() -> None:
    """Stop the threads before the interpreter takes their world away: one that logs then would abort the process."""
    services = [service for service in _services.items() if service.is_here]
    for service in services:
        service._close()
    deadline = time.monotonic() + JOIN_S
    for service in services:
        service._join(deadline)
