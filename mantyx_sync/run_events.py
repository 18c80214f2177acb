"""The caller's side of a run's events: from the background reader's queue, or from the server's log behind a gap."""

from __future__ import annotations

import contextlib
import copy
import logging
import threading
import time
from typing import Callable, Iterator, cast

from .api import WorkspaceAPI
from .backlog import Gap
from .checks import seconds
from .envelopes import EnvelopeReader
from .errors import MantyxError, MantyxParseError, MantyxRunError, MantyxTimeoutError
from .events import TERMINAL_TYPES, Envelope, RunEvent
from .reader import RunReader, decode_or_keep
from .tools.deadlines import Deadlines
from .transport.stream import StreamLost

__all__ = ["ABORT_TIMEOUT_S", "RunEvents", "abort", "deadline_after", "is_left", "outcome_again", "timed_out"]

log = logging.getLogger(__name__)

ABORT_TIMEOUT_S = 0.4
"""How long a run that is given up (Ctrl-C, a time-out) may keep its caller to connect, and again for the answer."""


def abort(
    api: WorkspaceAPI, reader: RunReader, error: BaseException | None = None, timeout: float | None = None
) -> bool:
    """Give a run up: ask the server to cancel it, wait for that less than a second, and free everything.

    Tells whether no run goes on that nobody meant to: it has ended, is left on purpose, or the server was told.

    Args:
        timeout: Seconds to connect, and again for the answer; if there are tools, half as long to answer calls that
            are at work, and again for the end of the run, which may be waiting for a call that is under way. `None`
            takes the run's own, else `ABORT_TIMEOUT_S`.
        error: What ended the wait; see `is_left`.
    """
    if not reader.is_followed_here:
        return True
    timeout = timeout or reader.abort_timeout or ABORT_TIMEOUT_S
    is_wanted = (not reader.done.is_set() or reader.was_let_go) and not is_left(error, has_key=reader.has_key)
    try:
        if is_wanted and not reader.was_told:
            has_tools = reader.calls.has_tools
            api.give_up_run(reader.run_id, [reader.calls], timeout, timeout)
            reader.was_told = True
            if has_tools:  # a call may be under way to us; without its answer the run would not end
                reader.done.wait(min(timeout / 2, threading.TIMEOUT_MAX))
    except Exception as failure:  # a hook or token source of the caller's may raise whatever it likes
        why = failure if isinstance(failure, MantyxError) else type(failure).__name__
        log.info("run %s: the server could not be asked to cancel it: %s", reader.run_id, why)
    finally:  # also when Ctrl-C is pressed again meanwhile
        reader.close(join=0.2)
    return reader.was_told or not is_wanted


def is_left(error: BaseException | None, *, has_key: bool) -> bool:
    """Tell whether a run goes on although `error` ended the wait for it.

    It does on `SystemExit`, as workers raise it when they are told to end, if it has a key of the caller's: whoever
    does the work again takes it over.
    """
    return has_key and isinstance(error, SystemExit)


def outcome_again(error: BaseException) -> BaseException:
    """Return an error to raise in place of a run's own, which is kept.

    Raising an error ties it to the frames of whoever calls, and so to the run, and so to the client: kept by what
    stands by to free a run that is dropped, none of them would ever be dropped.
    """
    if not isinstance(error, MantyxError):  # something of ours is broken: its traceback is what counts
        return error
    again = copy.copy(error)
    again.__cause__, again.__suppress_context__ = error.__cause__, True
    return again


def timed_out(api: WorkspaceAPI, reader: RunReader) -> MantyxTimeoutError:
    """Give a run up whose time is over; return the error that says so."""
    last_seq = reader.last_seq
    how = "and was cancelled" if abort(api, reader) else "and may go on: the server could not be asked to cancel it"
    return MantyxTimeoutError(
        f"run {reader.run_id} did not end in time {how} (last seq {last_seq})",
        run_id=reader.run_id,
        last_seq=last_seq,
    )


def deadline_after(timeout: float | None) -> float | None:
    """Return the time on the monotonic clock at which `timeout` seconds are over.

    Raises:
        MantyxConfigError: `timeout` is not a number above 0.
    """
    if timeout is None:
        return None
    seconds(timeout, "timeout")
    return None if timeout > threading.TIMEOUT_MAX else time.monotonic() + timeout  # no lock waits that long


class RunEvents:
    """Iterate over a run's events once; a loop that is left can be taken up by another. One thread at a time."""

    def __init__(self, api: WorkspaceAPI, reader: RunReader, deadlines: Deadlines, deadline: float | None) -> None:
        self._api = api
        self._reader = reader
        self._deadlines = deadlines
        self._deadline = deadline
        self._current: Iterator[RunEvent] = iter(())  # remembers its place when a loop is left
        self._batches: Iterator[list[Envelope]] | None = None
        self._every: float | None = None

    def __iter__(self) -> Iterator[RunEvent]:
        return cast(Iterator[RunEvent], self.polled(None))  # it never tells that nothing came

    def polled(self, every: float | None) -> Iterator[RunEvent | None]:
        """Yield the events, and `None` whenever `every` seconds pass without one. Blocks between them."""
        self._reader.check_process()
        if self._batches is None:
            self._batches = self._read_batches()
        try:
            while True:
                yield from self._current
                self._every = every
                try:
                    batch = next(self._batches, None)
                except BaseException as error:
                    if not isinstance(error, MantyxError):  # Ctrl-C, or a signal handler that raises
                        abort(self._api, self._reader, error)
                    raise
                if batch is None:
                    break
                if batch:
                    self._current = map(decode_or_keep, batch)
                else:
                    yield None
        finally:
            self._reader.backlog.has_taker = False
        outcome = self._reader.outcome
        # An answer that is not what was asked for is no matter of the events: `result` tells.
        if isinstance(outcome, BaseException) and not isinstance(outcome, (MantyxRunError, MantyxParseError)):
            if self._reader.is_closed:
                return
            raise outcome_again(outcome)

    def _read_batches(self) -> Iterator[list[Envelope]]:
        """Yield batch by batch, and an empty one whenever nothing came for the time that is asked for right now."""
        reader, deadline = self._reader, self._deadline
        while True:
            # Events that never cease must not hide that the time is over; those of a run that ended in time are due.
            if deadline is not None and time.monotonic() >= deadline and not reader.done.is_set():
                raise timed_out(self._api, reader)
            until = None if self._every is None else time.monotonic() + self._every
            is_polled = until is not None and (deadline is None or until < deadline)
            try:
                item = reader.backlog.take(until if is_polled else deadline)
            except TimeoutError:
                if not is_polled:
                    raise timed_out(self._api, self._reader) from None
                item = []
            if item is None:
                return
            if isinstance(item, Gap):
                yield from self._reread(item.last_seq)
                return
            yield item

    def _reread(self, last_seq: int) -> Iterator[list[Envelope]]:
        """Read the rest of the run from the server's log: the background reader did not keep it for us."""
        log.info("run %s: reading on from the server's log behind seq %d", self._reader.run_id, last_seq)
        stream = self._reader.open_stream(EnvelopeReader(last_seq), is_over=lambda: self._reader.done.is_set())
        take_back: Callable[[], None] = lambda: None  # noqa: E731 - stands in for the deadline's own
        if self._deadline is not None:
            take_back = self._deadlines.add(self._deadline, stream.release)
        self._reader.also_release(stream)
        try:
            with contextlib.closing(iter(stream)) as batches:  # type: ignore[type-var]  # a generator
                stream.patience = self._every
                for batch in batches:
                    yield batch
                    if batch and batch[-1]["type"] in TERMINAL_TYPES:
                        return
                    stream.patience = self._every
        except StreamLost as lost:
            raise lost.error from lost
        finally:
            take_back()
        if self._deadline is not None and time.monotonic() >= self._deadline:
            raise timed_out(self._api, self._reader)
