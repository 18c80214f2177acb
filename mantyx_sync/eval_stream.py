"""Following the stream of an eval (http §3): its events once each, over any number of connections."""

from __future__ import annotations

import contextlib
import logging
import time
from types import TracebackType
from typing import Callable, Generator, Iterator, NoReturn

from .api import WorkspaceAPI
from .envelopes import EnvelopeReader
from .errors import MantyxError
from .eval_results import EvalRunDetail, EvalRunEvent
from .events import NO_SEQ, Envelope
from .lost_stream import end_without_stream
from .reader import SNAPSHOT_TIMEOUT_S, FollowSettings
from .transport.body import Body, Release
from .transport.retry import Reconnect
from .transport.stream import EventStream, StreamLost
from .transport.url import segment

__all__ = ["EvalEventReader", "EvalRunStream", "eval_path", "get_eval_run"]

log = logging.getLogger(__name__)


def eval_path(run_id: str, rest: str = "") -> str:
    """Return a path of an eval run, below the workspace."""
    return f"/eval-runs/{segment(run_id)}{rest}"


def get_eval_run(
    api: WorkspaceAPI, run_id: str, timeout: float | None = None, deadline: float | None = None
) -> EvalRunDetail:
    """Return the record of an eval run (http §3). One request; blocks."""
    answer = api.request("GET", eval_path(run_id), timeout=timeout, deadline=deadline)
    return EvalRunDetail.from_wire(answer.json())


class EvalEventReader:
    """Read the frames of an eval's stream. Does no I/O.

    Numbered events are recognised by their number when they are replayed. Where a server numbers none, a connection
    that begins as the first one did is taken for a replay for as long as it goes on like it.
    """

    def __init__(self) -> None:
        self.retry_ms: int | None = None
        self._envelopes = EnvelopeReader()
        self._seen: list[int] = []
        self._replayed_to: int | None = None

    def connected(self) -> None:
        """A connection was opened: a replay may follow."""
        self._replayed_to = 0

    def resume_headers(self) -> dict[str, str]:
        """Return the headers that ask the server to go on behind what was read."""
        return self._envelopes.resume_headers()

    def read(self, frames: list[str]) -> list[EvalRunEvent]:
        """Return the events in `frames` that were not read before."""
        found = self._envelopes.read(frames)
        self.retry_ms = self._envelopes.retry_ms
        return [EvalRunEvent.read(e) for e in found if e["seq"] != NO_SEQ or self._is_new(e)]

    def _is_new(self, envelope: Envelope) -> bool:
        mark = hash((envelope["type"], repr(envelope["data"])))
        at = self._replayed_to
        if at is not None and at < len(self._seen) and self._seen[at] == mark:
            self._replayed_to = at + 1
            return False
        self._replayed_to = None
        self._seen.append(mark)
        return True


class EvalRunStream:
    """The events of an eval run, the last one `run_completed`, `run_error` or `run_cancelled`.

    Loop over it once; reading happens on the thread that does. `close()` may be called from any thread. Leaving a
    `with` block closes it; the eval itself goes on.
    """

    def __init__(
        self,
        api: WorkspaceAPI,
        run_id: str,
        settings: FollowSettings,
        is_busy: Callable[[], bool] = lambda: False,
    ) -> None:
        """Connect to nothing yet.

        Args:
            is_busy: Tells that silence is our own doing, so that no time counts as lost.
        """
        self.run_id = run_id
        record: list[EvalRunDetail] = []

        def is_over() -> bool:
            with contextlib.suppress(MantyxError):
                record[:] = [get_eval_run(api, run_id, SNAPSHOT_TIMEOUT_S)]
            return bool(record) and record[0].is_terminal

        reader = EvalEventReader()
        url = api.transport.base.join(api.prefix + eval_path(run_id, "/stream"))

        def connect(headers: dict[str, str], release: Release) -> Body:
            body = api.open_stream(url, headers, settings.idle_timeout, release)
            reader.connected()
            return body

        self._stream: EventStream[EvalRunEvent] = EventStream(
            connect,
            reader,
            Reconnect(settings.reconnect_timeout, time.monotonic(), settings.backoff),
            max_frame_bytes=settings.max_frame_bytes,
            is_busy=is_busy,
            is_over=is_over,
        )
        # A function's generator, not a method's: what is dropped is to be let go of at once, so without cycles.
        self._batches = _read(api, run_id, self._stream, record)
        self._current: Iterator[EvalRunEvent] = iter(())

    def __repr__(self) -> str:
        return f"<EvalRunStream {self.run_id}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("an EvalRunStream cannot be pickled or copied: pass its run_id on and follow the eval there")

    def __iter__(self) -> Iterator[EvalRunEvent]:
        return self

    def __next__(self) -> EvalRunEvent:
        """Return the next event. Blocks.

        An eval that is over although its stream does not say so gets its last event from its record.

        Raises:
            MantyxNetworkError: The stream could not be kept up; `run_id` is on the error.
            MantyxAPIError, MantyxOAuthError: The server refused it.
        """
        while True:
            for event in self._current:
                return event
            self._current = iter(next(self._batches))

    def batches(self) -> Iterator[list[EvalRunEvent]]:
        """Yield the events as they arrive together; instead of looping over this object."""
        return self._batches

    def close(self) -> None:
        """End the iteration, whatever it waits for. May be called from any thread; does not block."""
        self._stream.release()

    def __enter__(self) -> EvalRunStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
        with contextlib.suppress(ValueError):  # another thread is inside: it finds the stream released
            self._batches.close()


def _read(
    api: WorkspaceAPI, run_id: str, stream: EventStream[EvalRunEvent], record: list[EvalRunDetail]
) -> Generator[list[EvalRunEvent], None, None]:
    try:
        with contextlib.closing(iter(stream)) as batches:  # type: ignore[type-var]  # a generator
            for batch in batches:
                end = next((i for i, event in enumerate(batch) if event.is_terminal), None)
                if end is not None:
                    yield batch[: end + 1]
                    return
                yield batch
    except StreamLost as lost:
        yield [_end_in_record(api, run_id, lost)]
        return
    if record and record[0].is_terminal:
        yield [EvalRunEvent.of_record(record[0])]


def _end_in_record(api: WorkspaceAPI, run_id: str, lost: StreamLost) -> EvalRunEvent:
    def look() -> EvalRunEvent | None:
        record = get_eval_run(api, run_id, SNAPSHOT_TIMEOUT_S)
        return EvalRunEvent.of_record(record) if record.is_terminal else None

    return end_without_stream(
        lost,
        look,
        f"eval run {run_id}",
        run_id,
        f". The eval may still be going: follow it again with stream_eval_run({run_id!r}), ask for it with "
        "get_eval_run, or stop it with cancel_eval_run.",
    )
