"""The agent's stream: a thread that connects, reads, hands calls on, and connects again (spacefix, "Events")."""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from typing import TYPE_CHECKING, Callable

from ..errors import (
    MantyxAuthError,
    MantyxError,
    MantyxForbiddenError,
    MantyxNetworkError,
    MantyxProtocolError,
    MantyxRateLimitError,
    MantyxTimeoutError,
)
from ..transport.bell import Bell
from ..transport.body import BodyBroken, BodyIdle, Release
from ..transport.http import encode_json
from ..transport.sse import FrameDecoder, FrameTooLarge
from .delivery import Connection
from .errors import SpaceFixRegistrationError
from .events import CallEvent, Malformed, Ready, read_event
from .reconnect import ReconnectPolicy, Trouble
from .stream_release import StreamRelease

if TYPE_CHECKING:
    from ..transport.answers import Opened
    from .calls import Calls
    from .registration import Registration

__all__ = ["Link", "LinkEvents"]

log = logging.getLogger(__name__)

READY_TIMEOUT_S = 30.0
"""How long a stream may be open without the `ready` that is to come at once."""

_MIN_RENEWAL_S = 1.0
"""Connections that were ended to register anew begin no faster than this: each costs the project an attempt."""


class LinkEvents:
    """What a link tells; an agent's hooks are called from here. None of it may raise."""

    def connected(self, connection: Connection) -> None:
        """`ready` arrived."""

    def disconnected(self, connection: Connection, reason: str, error: MantyxError | None, lost_calls: int) -> None:
        """A stream that was ready has ended."""

    def failed(self, error: MantyxError) -> None:
        """An attempt to connect failed."""

    def ended(self) -> None:
        """The thread ends: there will be no connection any more."""


class Link:
    """Keeps one stream open in a thread of its own, until it is stopped. Safe to use from any thread."""

    def __init__(
        self,
        connect: Callable[[bytes, Release], Opened],
        registration: Registration,
        calls: Calls,
        events: LinkEvents,
        *,
        idle_timeout: float,
        label: str = "",
        policy: ReconnectPolicy | None = None,
    ) -> None:
        """Start nothing yet.

        Args:
            connect: Registers and returns the stream, or raises.
            idle_timeout: Seconds of silence behind which a stream counts as dead.
            label: Of the agent, for the log and the thread's name.
        """
        self.state = "connecting"
        self.connection: Connection | None = None
        """The one that is ready."""
        self.last_error: MantyxError | None = None
        self.connects = 0
        self.next_attempt_at = 0.0
        self.changed = threading.Condition()
        """Notified when `state` or `served` changes."""
        self.served: Registration | None = None
        """What the gateway took last, or refused."""
        self._connect = connect
        self._registration = registration
        self._calls = calls
        self._events = events
        self._idle_timeout = idle_timeout
        self._policy = policy or ReconnectPolicy()
        self._label = f"agent {label}" if label else "agent"
        self._bell = Bell()
        self._release = StreamRelease()
        self._attempt: Connection | None = None  # the last one, ready or not
        self._is_stopped = False
        # Owned by the agent: `stop` wakes it, wherever it waits, and the agent joins it. A daemon: what a call of a
        # process that ends would have brought is lost with the process.
        name = f"mantyx-spacefix-link-{label}" if label else "mantyx-spacefix-link"
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def failures(self) -> int:
        """Failed attempts in a row."""
        return self._policy.failures

    @property
    def registration(self) -> Registration:
        """What is, or will be, registered."""
        return self._registration

    def start(self) -> None:
        """Start the thread.

        Raises:
            RuntimeError: There can be no more threads.
        """
        self.thread.start()

    def stop(self) -> None:
        """Have the stream and the thread end. Does not block."""
        self._is_stopped = True
        self._release()
        self._bell.ring()

    def register(self, registration: Registration) -> None:
        """Have another registration sent with the next connection; `renew` makes that now."""
        self._registration = registration

    def renew(self) -> None:
        """End the stream, if it does not serve the registration already, and connect again. Does not block."""
        if self._attempt is None or self._attempt.registration is not self._registration:
            self._release()
            self._bell.ring()

    def _must_end(self) -> bool:
        return self._is_stopped

    def _run(self) -> None:
        try:
            while not self._must_end():
                self._once()
        except BaseException as error:  # a bug of ours: the agent must not look alive
            log.exception("%s: its thread has failed", self._label)
            self.last_error = MantyxError(f"the agent's thread failed: {type(error).__name__}", cause=error)
        finally:
            self._calls.end()
            self._enter("stopped")
            self._events.ended()

    def _once(self) -> None:
        """Make one connection, serve it to its end, and wait as long as is due."""
        began_at = time.monotonic()
        self._attempt = connection = Connection(self._registration)
        # A new one each time: once called it stays called. Who stops us sets the flag first, then calls it.
        self._release = release = StreamRelease()
        if self._must_end() or self._registration is not connection.registration:  # `renew` had no release of ours yet
            return
        self._enter("connecting")
        error = self._serve(connection, release)
        was_ready = bool(connection.id)
        lost_calls = self._calls.lose(connection)
        self.connection = None
        is_renewal = self._registration is not connection.registration
        if was_ready:
            reason = "the agent was stopped" if self._must_end() else str(error)
            if is_renewal and not self._must_end():
                reason = "the agent registers anew"
            wanted = self._must_end() or is_renewal
            self._events.disconnected(connection, reason, None if wanted else error, lost_calls)
        if self._must_end():
            return
        if is_renewal:
            log.info("%s: connecting again for another registration", self._label)
            self._wait(began_at + _MIN_RENEWAL_S - time.monotonic())
            return
        self.last_error = error
        trouble = _trouble(error)
        delay = self._policy.failed(trouble, random.random(), getattr(error, "retry_after", None))
        if not was_ready:
            self._events.failed(error)
        said = str(error).rstrip(".")  # the gateway's words are sentences
        if delay is None:
            log.error("%s: %s. It is not tried again before the registration changes.", self._label, said)
            self._enter("refused", connection.registration)
            self._wait(math.inf, connection.registration)
            return
        level = logging.INFO if trouble is Trouble.LOST else logging.WARNING
        log.log(level, "%s: %s; connecting again in %.1f s", self._label, said, delay)
        self.next_attempt_at = time.monotonic() + delay
        self._enter("waiting")
        self._wait(delay, connection.registration)

    def _serve(self, connection: Connection, release: StreamRelease) -> MantyxError:
        """Connect and read until the stream ends; return why it did."""
        try:
            opened = self._connect(encode_json(connection.registration.to_wire()), release)
        except MantyxError as error:
            return error
        except Exception as error:  # a hook of the caller's session, or its source of keys, may raise whatever it likes
            log.warning("%s: connecting failed", self._label, exc_info=True)
            return MantyxError(f"connecting failed with {type(error).__name__}", cause=error)
        try:
            return self._read(connection, opened)
        finally:
            # Shut, not only closed: a copy of the descriptor in a child of a fork would keep the stream open.
            release()
            opened.close()

    def _read(self, connection: Connection, opened: Opened) -> MantyxError:
        decoder = FrameDecoder()
        opened_at = time.monotonic()
        while True:
            try:
                data = opened.read()
                frames = decoder.feed(data)
            except BodyIdle as idle:
                return MantyxTimeoutError(
                    f"the stream is dead: nothing arrived for {self._idle_timeout:g} s", cause=idle
                )
            except BodyBroken as broken:
                return MantyxNetworkError(f"the stream broke: {broken}", cause=broken)
            except FrameTooLarge as large:
                return MantyxProtocolError(str(large), cause=large)
            if not data:
                return MantyxNetworkError("the gateway ended the stream")
            connection.heard_at = time.monotonic()
            self._take_all(connection, frames)
            del data, frames  # error trackers record the locals of frames, such as those of the error to come
            if not connection.id and connection.heard_at - opened_at > READY_TIMEOUT_S:
                return MantyxProtocolError(f"the stream brought no 'ready' for {READY_TIMEOUT_S:g} s")

    def _take_all(self, connection: Connection, frames: list[str]) -> None:
        for frame in frames:
            try:
                self._take(connection, frame)
            except Exception:  # a bug of ours; one event is lost then, not the agent
                log.exception("%s: an event could not be taken", self._label)

    def _take(self, connection: Connection, frame: str) -> None:
        """Do what one frame asks for. Never blocks."""
        event = read_event(frame)
        if isinstance(event, CallEvent):
            if connection.id:
                self._calls.begin(connection, event)
            else:
                log.warning("%s: a call before 'ready' is ignored", self._label)
        elif isinstance(event, Ready):
            self._ready(connection, event)
        elif isinstance(event, Malformed):
            log.warning("%s: an event %r is ignored: %s", self._label, event.kind, event.reason)
            if connection.id:
                self._calls.begin_malformed(connection, event)

    def _ready(self, connection: Connection, event: Ready) -> None:
        if connection.id:
            log.warning("%s: a second 'ready' on one stream is ignored", self._label)
            return
        connection.id = event.connection_id
        connection.ready_at = time.monotonic()
        self._policy.ready()
        self.last_error = None
        self.connects += 1
        self.connection = connection
        log.info("%s: ready, serving %s", self._label, connection.registration.summary)
        self._enter("ready", connection.registration)
        self._events.connected(connection)

    def _wait(self, seconds: float, registered: Registration | None = None) -> None:
        """Wait until the time is over, the end has come, or there is another registration than `registered`."""
        until = time.monotonic() + seconds
        while not self._must_end():
            left = until - time.monotonic()
            if left <= 0 or (registered is not None and self._registration is not registered):
                return
            self._bell.wait(left)

    def _enter(self, state: str, served: Registration | None = None) -> None:
        with self.changed:
            self.state = state
            if served is not None:
                self.served = served
            self.changed.notify_all()


def _trouble(error: MantyxError) -> Trouble:
    if isinstance(error, SpaceFixRegistrationError):
        return Trouble.REFUSED
    if isinstance(error, (MantyxAuthError, MantyxForbiddenError)):
        return Trouble.UNAUTHORISED
    if isinstance(error, MantyxRateLimitError):
        return Trouble.LIMITED
    return Trouble.LOST
