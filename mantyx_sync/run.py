"""`Run`: a run in the caller's hand. Events, text, the result, cancelling; one thread reads it at a time."""

from __future__ import annotations

import threading
import time
import weakref
from types import TracebackType
from typing import Generator, Iterator, NoReturn, TypeVar, cast

from .api import WorkspaceAPI
from .checks import seconds
from .errors import MantyxError, MantyxTimeoutError, RateLimit
from .events import AssistantDelta, RunEvent
from .reader import RunReader
from .results import RunResult, RunSnapshot
from .run_events import ABORT_TIMEOUT_S, RunEvents, abort, deadline_after, outcome_again, timed_out
from .timing import RunTiming
from .tools.deadlines import Deadlines
from .views import Timed

__all__ = ["Run"]

_RunT = TypeVar("_RunT", bound="Run")


class Run(Timed):
    """A run that a background thread follows. Its tools run whether or not anybody looks.

    Loop over it for its events, over `text_stream` for its text, or call `result()`. As a context manager it is
    cancelled when the block is left before the run has ended. Obtained from `MantyxClient.stream_agent`,
    `start_agent` or `attach_run`.
    """

    def __init__(
        self,
        api: WorkspaceAPI,
        reader: RunReader,
        deadlines: Deadlines,
        *,
        deadline: float | None = None,
        is_owned: bool = False,
        request_id: str | None = None,
        rate_limit: RateLimit | None = None,
    ) -> None:
        """Called by the client.

        Args:
            deadline: On the monotonic clock; the run is cancelled when it has not ended by then.
            is_owned: The run is given up when this object is collected.
        """
        self.run_id = reader.run_id
        self.session_id: str | None = None
        """The session it is a message of, where this process sent that."""
        self.request_id = request_id
        self.rate_limit = rate_limit
        self._api = api
        self._reader = reader
        self._deadline = deadline
        # Apart from this object, which must be free of cycles: what is dropped is to be let go of at once.
        self._events = RunEvents(api, reader, deadlines, deadline)
        self._reading = threading.Lock()
        if is_owned:
            weakref.finalize(self, reader.let_go).atexit = False

    def __repr__(self) -> str:
        state = "ended" if self.is_done else "closed" if self._reader.is_closed else "running"
        return f"<Run {self.run_id} {state}, last seq {self.last_seq}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Run cannot be pickled or copied: a thread of this process follows it. Pass its run_id on, and "
            "attach_run(run_id) follows it there"
        )

    @property
    def is_done(self) -> bool:
        """True once the run has ended, was lost, or was closed: `result()` will not block."""
        return self._reader.done.is_set()

    @property
    def is_over(self) -> bool:
        """True once nobody here follows the run any more: it has ended, was lost, or was closed."""
        return self.is_done or self._reader.is_closed

    @property
    def is_followed_here(self) -> bool:
        """False in a child of the process that follows the run."""
        return self._reader.is_followed_here

    @property
    def last_seq(self) -> int:
        """The number of the last event that arrived; `attach_run` can go on from there."""
        return self._reader.last_seq

    @property
    def timing(self) -> RunTiming:
        """When what happened so far, as this process saw it."""
        return self._reader.timing

    @property
    def events_so_far(self) -> tuple[RunEvent, ...]:
        """The events that are kept for the result: all that arrived, without the deltas."""
        return self._reader.events_so_far

    @property
    def error(self) -> BaseException | None:
        """What `result()` raises once the run is done: how it failed, or why it could not be followed to its end."""
        outcome = self._reader.outcome
        return outcome_again(outcome) if isinstance(outcome, BaseException) else None

    @property
    def undelivered_tool_results(self) -> tuple[str, ...]:
        """Tool use ids whose answer never reached the server."""
        return self._reader.calls.undelivered

    def __iter__(self) -> Iterator[RunEvent]:
        """Yield the run's events as they arrive, the terminal one last. Blocks between events.

        A loop that is left can be taken up again by another. A run that failed ends with its `error` event;
        `result()` raises.

        Raises:
            MantyxNetworkError: The run could not be followed to its end; `run_id` and `last_seq` are on the error.
            MantyxTimeoutError: The time-out of the run passed; it was cancelled.
        """
        return cast(Iterator[RunEvent], self._loop(None))  # it never tells that nothing came

    def poll(self, every: float) -> Generator[RunEvent | None, None, None]:
        """Yield the run's events as looping does, and `None` whenever `every` seconds pass without one.

        For what is to happen while the run is quiet: a heartbeat, a clock that is redrawn. Blocks between events for
        no longer than that, but for a moment while a lost connection is opened again. One loop at a time, this one
        included; whoever leaves it may take it up again, with or without `every`.

        Args:
            every: Seconds, above 0.

        Raises:
            MantyxConfigError: `every` is not a number above 0.
            MantyxNetworkError, MantyxTimeoutError: As looping over the run.
        """
        return self._loop(seconds(every, "every"))

    def __next__(self) -> RunEvent:
        """Return the next event; what `next()` on the run gives. Blocks and raises as looping does."""
        self._begin_loop()
        try:
            for event in self._events:
                return event
        finally:
            self._reading.release()
        raise StopIteration

    @property
    def events(self) -> Iterator[RunEvent]:
        """The run's events; the same as looping over the run."""
        return iter(self)

    @property
    def text_stream(self) -> Iterator[str]:
        """The assistant's text, piece by piece, as it arrives.

        Raises:
            MantyxRunError: After the last piece, if the run did not succeed: the text is not an answer then.
            MantyxNetworkError, MantyxTimeoutError: As looping over the run.
        """
        for event in self:
            if isinstance(event, AssistantDelta) and event.text:
                yield event.text
        if not self._reader.is_closed:
            self.result()

    def result(self, timeout: float | None = None) -> RunResult:
        """Wait for the run's terminal event and return its result (wire §4.8).

        Blocks. Local tools run as their calls arrive. Events that were not looped over are passed by.

        Args:
            timeout: Seconds to wait in all. `None` waits as long as the run takes.

        Raises:
            MantyxConfigError: `timeout` is not a number above 0.
            MantyxRunError: The run ended in any way but success.
            MantyxRunCancelled: The run was cancelled.
            MantyxTimeoutError: `timeout` passed; the run was cancelled. `run_id` is on the error.
            MantyxNetworkError: The run could not be followed to its end.
        """
        self._reader.check_process()
        deadline = self._earliest(timeout)
        self._reader.backlog.has_taker = False  # the reader need not wait for anybody now
        try:
            while not self.is_done:
                left = 1.0 if deadline is None else deadline - time.monotonic()
                if left <= 0:
                    raise timed_out(self._api, self._reader)
                # In slices: on Windows a wait on a lock cannot be interrupted.
                self._reader.woken.wait(min(left, 1.0))
                if self._reader.is_to_be_given_up and not self.is_done:
                    raise MantyxError(f"run {self.run_id} was given up", code="closed")
        except BaseException as error:
            if not isinstance(error, MantyxTimeoutError):
                abort(self._api, self._reader, error)
            raise
        outcome = self._reader.outcome
        if isinstance(outcome, RunResult):
            return outcome
        assert outcome is not None, "a run that is done has an outcome"
        raise outcome_again(outcome)

    def snapshot(self) -> RunSnapshot:
        """Return what the server knows of the run now (http §3). One request; blocks."""
        return self._api.get_run(self.run_id)

    def cancel(self) -> None:
        """Ask the server to stop the run (wire §9). One request; blocks.

        The run then ends with a `cancelled` event, unless it ended otherwise before: `result()` tells. Asking twice
        does no harm. Handlers at work hear of it through their context.
        """
        self._api.cancel_run(self.run_id)
        self._reader.calls.cancel()

    def close(self) -> None:
        """Free the thread, the socket and the places of the run's tools. The server is not told, the run goes on.

        Waits for the thread up to a second. May be called from any thread, and more than once.
        """
        self._reader.close()

    def have_given_up(self) -> None:
        """Have the thread that waits in `result` give the run up, as `abort` does. Does not block."""
        self._reader.have_given_up()

    def let_go(self) -> None:
        """Free what `close` frees without waiting for the thread to end."""
        self._reader.close(join=0.0)

    @property
    def abort_timeout(self) -> float:
        """How long giving the run up may take where nobody says: its block is left, its time is up, Ctrl-C.

        See `abort`. Whoever would rather wait than leave a run behind sets more.
        """
        return self._reader.abort_timeout or ABORT_TIMEOUT_S

    @abort_timeout.setter
    def abort_timeout(self, timeout: float) -> None:
        self._reader.abort_timeout = seconds(timeout, "abort_timeout")

    def abort(self, timeout: float | None = None) -> bool:
        """Give the run up: ask the server to cancel it, and free everything. Raises nothing if it cannot be asked.

        Returns whether the server heard of it, now or before, or the run had ended: with `False` it may go on.

        Calls whose handlers are at work are answered with an error, since the server waits for them before it ends
        the run (wire §9). A run that was closed is given up as well.

        Args:
            timeout: Seconds to wait for a connection, again for the answer, and half as long for those of the calls.
                `None` takes `abort_timeout`.

        Raises:
            MantyxConfigError: `timeout` is not a number above 0.
        """
        return abort(self._api, self._reader, timeout=None if timeout is None else seconds(timeout, "timeout"))

    def __enter__(self: _RunT) -> _RunT:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.is_done:
            self.close()
        elif not self._reader.is_closed:
            abort(self._api, self._reader, error)

    def _loop(self, every: float | None) -> Generator[RunEvent | None, None, None]:
        self._begin_loop()
        try:
            yield from self._events.polled(every)
        finally:
            self._reading.release()

    def _begin_loop(self) -> None:
        # No context manager: under Python 3.9 a loop that is left through one leaves a cycle, and what is dropped
        # would be let go of only when the collector comes by.
        if not self._reading.acquire(blocking=False):
            raise MantyxError(f"run {self.run_id} is being looped over already; one loop at a time")

    def _earliest(self, timeout: float | None) -> float | None:
        deadline = deadline_after(timeout)
        if deadline is None or (self._deadline is not None and self._deadline < deadline):
            return self._deadline
        return deadline
