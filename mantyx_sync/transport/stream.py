"""An event stream that survives a bad network: it reconnects where it broke off, until its reader is done.

The thread that iterates does the reading. `release` may be called from any thread and ends it at once.
"""

from __future__ import annotations

import logging
import random
import time
from typing import Callable, Generic, Iterator, Protocol, TypeVar

from ..errors import MantyxError, MantyxNetworkError, MantyxProtocolError, MantyxTimeoutError
from .bell import Signal
from .body import Body, BodyBroken, BodyIdle, Release
from .retry import Reconnect
from .sse import FrameDecoder, FrameTooLarge

__all__ = ["EventStream", "Reader", "StreamLost"]

log = logging.getLogger(__name__)

ItemT = TypeVar("ItemT")

_RETRIED_STATUSES = frozenset({408, 425, 429})
_GONE_STATUSES = frozenset({204, 404, 410})


class StreamLost(Exception):
    """The stream could not be kept up. `error` tells why; `gone` that the server has none (204, 404, 410)."""

    def __init__(self, error: MantyxError, *, gone: bool = False) -> None:
        super().__init__(str(error))
        self.error = error
        self.gone = gone


class Reader(Protocol[ItemT]):
    """What turns the frames of one stream into items and knows its place in it."""

    retry_ms: int | None
    """The last `retry:` field seen."""

    def read(self, frames: list[str]) -> list[ItemT]:
        """Return what is new in `frames`, in order."""
        ...

    def resume_headers(self) -> dict[str, str]:
        """Return the headers that ask the server to go on behind what was read."""
        ...


class EventStream(Generic[ItemT]):
    """Iterate over batches of new items: one batch for each read that brought any.

    Ends when it was released. Raises `StreamLost` when it cannot be kept up: nothing new for the time that
    `reconnect` allows, or an answer that will not change (401, 403, 404, 410, not an event stream).
    """

    def __init__(
        self,
        connect: Callable[[dict[str, str], Release], Body],
        reader: Reader[ItemT],
        reconnect: Reconnect,
        *,
        max_frame_bytes: int,
        is_busy: Callable[[], bool] = lambda: False,
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        """Connect to nothing yet.

        Args:
            connect: Opens the stream with the given headers; the `Release` must end every wait inside it.
            is_busy: Tells that silence is our own doing (a tool at work), so that no time counts as lost.
            is_over: Asked after connections that brought nothing: true ends the iteration. It must not raise.
        """
        self._connect = connect
        self._reader = reader
        self._reconnect = reconnect
        self._max_frame_bytes = max_frame_bytes
        self._is_busy = is_busy
        self._is_over = is_over
        self._released = Signal()
        self._release_body = Release()
        self._barren = 0  # connections in a row that brought nothing
        self.patience: float | None = None
        """Seconds of waiting after which an empty batch is yielded; may be changed between batches. Opening a
        connection, and one that is not read off a socket of ours, may take longer."""

    def release(self) -> None:
        """End the iteration, from any thread, whatever it waits for. Does not block."""
        self._released.set()
        self._release_body()

    def __iter__(self) -> Iterator[list[ItemT]]:
        while not self._released.is_set():
            cause: Exception | None = None
            retry_after = None
            try:
                yield from self._one_connection()
                why = "the stream ended before the run did"
            except (BodyBroken, BodyIdle, FrameTooLarge, MantyxError) as error:
                cause, why, retry_after = error, str(error), getattr(error, "retry_after", None)
            if self._released.is_set():
                return
            if isinstance(cause, FrameTooLarge):
                raise StreamLost(MantyxProtocolError(why, cause=cause))
            if isinstance(cause, MantyxError) and not _may_pass(cause):
                raise StreamLost(cause, gone=cause.status in _GONE_STATUSES)
            if self._barren >= 2 and self._is_over():
                return
            now = time.monotonic()
            if self._is_busy():
                self._reconnect.progressed(now)
            delay = self._reconnect.failed(now, random.random(), retry_after)
            if delay is None:
                raise StreamLost(MantyxNetworkError(why, cause=cause))
            log.info("stream: %s; reconnecting in %.2f s", why, delay)
            until = now + delay
            while not self._released.is_set() and delay > 0:
                self._released.wait(delay if self.patience is None else min(delay, self.patience))
                delay = until - time.monotonic()
                if delay > 0 and self.patience is not None and not self._released.is_set():
                    yield []

    def _one_connection(self) -> Iterator[list[ItemT]]:
        reader, reconnect = self._reader, self._reconnect
        decoder = FrameDecoder(self._max_frame_bytes)
        self._barren += 1
        body = self._connect(reader.resume_headers(), self._release_body)
        reconnect.opened(time.monotonic())
        try:
            while True:
                data = body.read() if self.patience is None else body.poll(self.patience)
                if data is None:
                    yield []
                    continue
                if not data:
                    if decoder.eof():
                        raise BodyBroken("the stream ended in the middle of an event")
                    return
                frames = decoder.feed(data)
                items = reader.read(frames) if frames else None
                if reader.retry_ms is not None:
                    reconnect.server_retry = reader.retry_ms / 1000
                if not items:
                    reconnect.heard(time.monotonic())
                    continue
                self._barren = 0
                reconnect.progressed(time.monotonic())
                yield items
        finally:
            body.close()


def _may_pass(error: MantyxError) -> bool:
    """Tell whether the same request may succeed later."""
    if isinstance(error, MantyxProtocolError):
        return False
    if isinstance(error, (MantyxNetworkError, MantyxTimeoutError)):
        return True
    return error.status is not None and (error.status >= 500 or error.status in _RETRIED_STATUSES)
