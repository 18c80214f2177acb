"""One answer on its way to the gateway: written, kept below the size it takes, and posted until it is there."""

from __future__ import annotations

import contextlib
import enum
import logging
import random
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Iterator

from ..errors import MantyxAPIError, MantyxConfigError, MantyxError, MantyxProtocolError
from ..limits import SPACEFIX_MAX_RESULT_BYTES, SPACEFIX_MAX_SPAN_MS
from ..tools.handling import cut_text
from ..transport.body import Release
from ..transport.http import encode_json
from ..transport.retry import Backoff
from ..transport.secret import SecretBytes

if TYPE_CHECKING:
    from .registration import Registration

__all__ = ["Connection", "Courier", "Delivery", "Outcome", "answer_body"]

log = logging.getLogger(__name__)

_BACKOFF = Backoff(base=0.25, cap=4.0)
_TRY_TIMEOUT_S = 10.0
_MAX_SEEN = 1024
_TOO_LARGE = "the result is too large to be returned: {} bytes, allowed are {}. Ask for less, or for a part at a time."


class Connection:
    """One stream, as the calls that came on it know it."""

    def __init__(self, registration: Registration) -> None:
        self.registration = registration
        self.id = ""
        """What answers quote; a credential. Empty until the gateway says `ready`."""
        self.lost = threading.Event()
        """Set when the stream has ended: nobody waits for its calls any more."""
        self.ready_at = 0.0
        self.heard_at = 0.0
        self._releases: set[Release] = set()
        self._seen: dict[str, None] = {}

    def is_new(self, call_id: str) -> bool:
        """Note the id of a call; false if one of the newest calls has it.

        The gateway sends no id twice. What repeats one is on the way to it, and no handler may run twice for that.
        """
        if call_id in self._seen:
            return False
        self._seen[call_id] = None
        if len(self._seen) > _MAX_SEEN:
            del self._seen[next(iter(self._seen))]
        return True

    def end(self) -> None:
        """Note that the stream has ended, and break off the posts of its answers: the gateway ignores them."""
        self.lost.set()
        for release in list(self._releases):
            release()

    @contextlib.contextmanager
    def releasable(self) -> Iterator[Release]:
        """Lend what breaks a post off when the stream ends."""
        release = Release()
        self._releases.add(release)
        if self.lost.is_set():  # looked at behind the line above: who ends it sets this, then releases
            release()
        try:
            yield release
        finally:
            self._releases.discard(release)
            release.forget()

    def __repr__(self) -> str:
        return f"<Connection {'lost' if self.lost.is_set() else 'open'}>"


@dataclass
class Outcome:
    """How a call ended, as the gateway is told."""

    result: Any = None
    error: str | None = None
    handler_s: float | None = None
    inbound_ms: float | None = None
    span_id: str | None = None

    @property
    def span(self) -> dict[str, Any]:
        """The `span` of the answer; what is out of range is left out."""
        span: dict[str, Any] = {}
        if self.handler_s is not None:
            span["handlerMs"] = min(round(self.handler_s * 1000), SPACEFIX_MAX_SPAN_MS)
        if self.inbound_ms is not None and 0 <= self.inbound_ms <= SPACEFIX_MAX_SPAN_MS:
            span["inboundMs"] = round(self.inbound_ms)
        if self.span_id is not None:
            span["spanId"] = self.span_id
        return span


class Delivery(enum.Enum):
    """What became of an answer."""

    DELIVERED = "delivered"
    LOST = "lost"
    """Its stream had ended: the caller was told otherwise."""
    FAILED = "failed"
    """It did not reach the gateway while the call was alive, or was refused there."""


def answer_body(connection_id: str, call_id: str, outcome: Outcome) -> SecretBytes:
    """Write the body of `POST /agent/result`; what cannot be sent becomes a short failure, which `outcome` then is."""
    head = {"connectionId": connection_id, "id": call_id}
    if outcome.error is None:
        try:
            body = encode_json({**head, "ok": True, "result": outcome.result, "span": outcome.span})
        except MantyxConfigError:  # a number with more digits than Python writes, or too deep
            outcome.error = "the result holds a number or a nesting that cannot be written as JSON"
        else:
            if len(body) <= SPACEFIX_MAX_RESULT_BYTES:
                return SecretBytes(body)
            outcome.error = _TOO_LARGE.format(len(body), SPACEFIX_MAX_RESULT_BYTES)
        outcome.result = None
    outcome.error = cut_text(outcome.error)  # with a name in it of whatever length
    return SecretBytes(encode_json({**head, "ok": False, "error": outcome.error, "span": outcome.span}))


class Courier:
    """Posts answers. A post may arrive twice without harm, so it is repeated while the call can still be alive."""

    def __init__(self, post: Callable[[bytes, float, Release], None], watch: Callable[..., Callable[[], None]]) -> None:
        """Take the way to the gateway.

        Args:
            post: Posts a body within so many seconds, or raises.
            watch: Calls a function at a time on the monotonic clock; returns what takes that back.
        """
        self._post = post
        self._watch = watch

    def deliver(self, connection: Connection, call_id: str, outcome: Outcome, deadline: float, where: str) -> Delivery:
        """Post an answer; blocks until it is there, or nobody can wait for it any more.

        Args:
            deadline: When the call is over, on the monotonic clock.
            where: The call, for the log.
        """
        body = answer_body(connection.id, call_id, outcome)
        attempt = 0
        while not connection.lost.is_set():
            left = deadline - time.monotonic()
            if left <= 0:
                log.warning("%s: its answer could not be delivered in time", where)
                return Delivery.FAILED
            error = self._try(connection, body, min(left, _TRY_TIMEOUT_S), deadline)
            if error is None:
                return Delivery.DELIVERED
            status = getattr(error, "status", None)
            if status in (400, 413) and outcome.error is None:
                # Never expected, since what is sent is JSON of a size that is taken; the caller must not wait for it.
                log.warning("%s: the gateway does not take its result (%d)", where, status)
                outcome.result, outcome.error = None, "the result was refused by the gateway"
                body = answer_body(connection.id, call_id, outcome)
                continue
            if not _may_pass(error):
                log.warning("%s: its answer was refused: %s", where, error)
                return Delivery.FAILED
            delay = max(_BACKOFF.delay(attempt, random.random()), getattr(error, "retry_after", None) or 0.0)
            attempt += 1
            log.info("%s: %s; its answer is posted again in %.2f s", where, error, delay)
            connection.lost.wait(max(0.0, min(delay, deadline - time.monotonic())))
        log.warning("%s: the stream it came on has ended; its answer is dropped", where)
        return Delivery.LOST

    def _try(self, connection: Connection, body: bytes, timeout: float, deadline: float) -> MantyxError | None:
        with connection.releasable() as release:
            # The time-out is for each wait for bytes; a peer that trickles them would exceed the deadline.
            take_back = self._watch(min(deadline, time.monotonic() + 2 * timeout), release)
            try:
                self._post(body, timeout, release)
            except MantyxError as error:
                return error
            except Exception as error:  # a hook of the caller's session, or its source of keys, may raise anything
                return MantyxError(f"posting it failed with {type(error).__name__}", cause=error)
            finally:
                take_back()
        return None


def _may_pass(error: MantyxError) -> bool:
    """Tell whether the same post may be taken later."""
    if not isinstance(error, MantyxAPIError):
        return not isinstance(error, MantyxProtocolError)
    return error.status is None or error.status >= 500 or error.status in (408, 429)
