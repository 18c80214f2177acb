"""Many runs at once: a bounded number of them under way, results in order or as they come, nothing left behind."""

from __future__ import annotations

import atexit
import contextlib
import contextvars
import queue
import threading
import time
from collections.abc import Sized
from dataclasses import replace
from typing import Any, Callable, Generator, Generic, Iterable, Iterator, Mapping, TypeVar

from .checks import callbacks, shown, whole_number
from .errors import MantyxConfigError, MantyxError
from .opened_tools import OpenedTools
from .output import OutputType
from .progress import Progress, ProgressTo, Reporting
from .results import RunResult
from .roster import Roster
from .run import Run
from .run_events import deadline_after, is_left
from .spec import RunSpec, check_names
from .transport.bell import Inbox
from .workspace import Workspace, with_tools

__all__ = ["Launcher", "run_many"]

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


_SLICE_S = 0.25
_STOP_S = 0.7
"""How long leaving the loop waits for what is under way: with such a slice before, less than a second."""


class _Crew(Generic[ItemT, ResultT]):
    """The threads that work on the items, and what they share with the loop."""

    def __init__(
        self, run_one: Callable[[ItemT], ResultT], abort_all: Callable[[], None], max_workers: int, *, goes_on: bool
    ) -> None:
        """Start nothing yet.

        Args:
            goes_on: Errors are values: the other items are worked on all the same.
        """
        self._run_one = run_one
        self._abort_all = abort_all
        self._max_workers = max_workers
        self._goes_on = goes_on
        self._todo: queue.SimpleQueue[tuple[int, ItemT] | None] = queue.SimpleQueue()
        self._finished: Inbox[tuple[int, ResultT | BaseException]] = Inbox()
        self._threads: list[threading.Thread] = []
        self._is_over = False  # nothing more is to begin
        self._is_stopped = False
        self._under_way = 0

    @property
    def has_finished(self) -> bool:
        """True if `take` will not wait."""
        return not self._finished.is_empty()

    def give(self, index: int, item: ItemT) -> None:
        """Have an item worked on, by a new thread if there are fewer than there may be and none is idle."""
        self._todo.put((index, item))
        self._under_way += 1
        if len(self._threads) >= min(self._max_workers, self._under_way):
            return
        _crews.add(self)
        context = contextvars.copy_context()
        # Owned by this crew, whose `stop` ends it with a `None` and joins it. A daemon, so that a request which hangs
        # does not keep the interpreter alive.
        name = f"mantyx-map-{len(self._threads)}"
        thread = threading.Thread(target=context.run, args=(self._work,), name=name, daemon=True)
        self._threads.append(thread)  # first: Ctrl-C may end the wait for its start, not the thread
        thread.start()

    def take(self) -> tuple[int, ResultT | BaseException]:
        """Wait for the next item that is finished; return its index and what came of it."""
        while True:
            # In slices: Ctrl-C is not seen by a wait that is just about to begin, and by none on Windows.
            with contextlib.suppress(TimeoutError):
                finished = self._finished.get(time.monotonic() + _SLICE_S)
                self._under_way -= 1
                return finished

    def stop(self) -> None:
        """End the threads: what has not begun does not begin, what is under way is aborted. Waits for less than 1 s."""
        if self._is_stopped:  # at the end of the process, before the loop came to it
            return
        self._is_stopped = True
        self.dismiss()
        until = time.monotonic() + _STOP_S
        for thread in self._threads:
            with contextlib.suppress(RuntimeError):  # its start was interrupted; it may be about to begin
                thread.join(max(0.0, until - time.monotonic()))

    def dismiss(self) -> None:
        """Tell the threads to end, and wait for none; doing so again does no harm."""
        self._is_over = True
        for _ in self._threads:
            self._todo.put(None)
        if self._under_way:
            self._abort_all()

    def _work(self) -> None:
        while True:
            task = self._todo.get()
            if task is None:
                return
            if self._is_over:
                continue
            index, item = task
            try:
                outcome: ResultT | BaseException = self._run_one(item)
            except BaseException as error:  # handed to the caller, whatever it is
                outcome = error
                self._is_over = self._is_over or not self._goes_on
            self._finished.put((index, outcome))
            del task, item, outcome


_crews: Roster[_Crew[Any, Any]] = Roster()


@atexit.register
def _stop_crews() -> None:
    """End loops that were left standing, while threads can still run and requests be made."""
    for crew in _crews.items():
        crew.stop()


class Launcher:
    """The runs of one `map`: started on its threads, given up together."""

    def __init__(
        self,
        workspace: Workspace,
        fields: Mapping[str, Any],
        timeout: float | None,
        output_type: Any,
        key_of: Callable[[Any], str] | None = None,
    ) -> None:
        """Check what all runs have in common.

        Raises:
            TypeError: A field has no such name.
            MantyxConfigError: A value is not allowed.
        """
        check_names(fields)
        deadline_after(timeout)
        callbacks(idempotency_key=key_of)
        self._key_of = key_of
        # What single runs have of their own is opened on threads that nobody watches.
        self._workspace = workspace.changed({"progress": None})
        self.progress: ProgressTo | None = workspace.settings.progress
        """Whom the client has for want of another."""
        self._common = RunSpec(**fields) if fields else None
        self._timeout = timeout
        # Compiled here, where the names in its hints can be looked up: in the code that calls.
        self._output = None if output_type is None else OutputType(output_type)
        self._lock = threading.Lock()
        self._runs: set[Run] = set()
        self._stopped = threading.Event()
        self._are_left = False
        self._opened = OpenedTools(())

    def open(self, report: Reporting) -> None:
        """Resolve what lives elsewhere among the tools of every run, once for all of them. Blocks.

        Args:
            report: Told of the servers.

        Raises:
            MantyxError: One cannot be resolved; nothing was sent.
        """
        if self._common is not None:
            self._opened = self._workspace.open_tools(self._common.tools, deadline_after(self._timeout), report)
            self._common = with_tools(self._common, self._opened)

    def close(self) -> None:
        """Let go of what `open` opened. Does not block."""
        self._opened.let_go()

    def run(self, item: str | Mapping[str, Any] | RunSpec) -> RunResult:
        """Run an agent for one item. Blocks; called by several threads."""
        if self._stopped.is_set():
            raise MantyxError("the loop over the runs was left", code="closed")
        run = self._workspace.create(
            self._spec(item),
            self._timeout,
            wants_events=False,
            output_type=self._output,
            key=None if self._key_of is None else self._key_of(item),
        )
        with self._lock:
            self._runs.add(run)
        try:
            if self._stopped.is_set():
                self._end(run)
            return self._workspace.complete(run)
        finally:
            with self._lock:
                self._runs.discard(run)

    def abort_all(self) -> None:
        """Have every run that goes on be cancelled by its own thread: new ones cannot start at a process's end."""
        self._stopped.set()
        with self._lock:
            runs = list(self._runs)
        for run in runs:
            self._end(run)

    def _end(self, run: Run) -> None:
        if self._are_left:
            run.let_go()
        else:
            run.have_given_up()

    def leave_on(self, error: SystemExit) -> None:
        """Have `abort_all` leave runs to the next process that have a key; see `run_events.is_left`."""
        self._are_left = is_left(error, has_key=self._key_of is not None)

    def _spec(self, item: str | Mapping[str, Any] | RunSpec) -> RunSpec:
        if isinstance(item, RunSpec):
            if self._common is not None:
                raise TypeError("give specs or the fields of every run, not both")
            return item
        if isinstance(item, str):
            own: Mapping[str, Any] = {"prompt": item}
        elif isinstance(item, Mapping):
            own = item
            check_names(own)
        else:
            raise MantyxConfigError(f"items: got {shown(item)}, must be prompts, mappings or specs")
        return replace(self._common or RunSpec(), **own)


def _nothing_before(_report: Reporting) -> None:
    pass


def _nothing_after() -> None:
    pass


def _nothing_on(_error: SystemExit) -> None:
    pass


def run_many(
    items: Iterable[ItemT],
    run_one: Callable[[ItemT], ResultT],
    abort_all: Callable[[], None],
    *,
    max_workers: int,
    as_completed: bool = False,
    return_errors: bool = False,
    progress: ProgressTo | None = None,
    before: Callable[[Reporting], None] = _nothing_before,
    after: Callable[[], None] = _nothing_after,
    on_exit: Callable[[SystemExit], None] = _nothing_on,
) -> Generator[ResultT | BaseException, None, None]:
    """Call `run_one` for each item on threads, at most `max_workers` at once, and yield what comes of it.

    Items are read on the calling thread, never further ahead of what was yielded than twice `max_workers`; those of a
    source without a length one by one, as long as nothing is there to be yielded.

    Args:
        abort_all: Ends what is under way, so that the threads return soon. Does not block, starts no thread. Called
            when the loop is left early.
        as_completed: Yield results as they come instead of in the order of the items.
        return_errors: Yield errors in place of results; otherwise the first one ends everything and is raised.
        progress: Told on the calling thread of the start and of each item that is over; see `progress`.
        before: Called when the first result is asked for; may report as well.
        after: Called once that has begun and nothing is under way any more.
        on_exit: Called before `abort_all` where the wait for a result ends by `SystemExit`.

    Raises:
        MantyxConfigError: `max_workers`, `items` or `progress` is not allowed.
    """
    whole_number(max_workers, "max_workers", 1, 1000)
    if isinstance(items, (str, bytes, Mapping, RunSpec)) or not isinstance(items, Iterable):
        raise MantyxConfigError(
            f"items: got {type(items).__name__}, must be a list or generator of prompts, mappings or specs"
        )
    report = Reporting(progress)
    crew = _Crew(run_one, abort_all, max_workers, goes_on=return_errors)
    total = len(items) if isinstance(items, Sized) else None
    loop = _loop(iter(items), total, crew, 2 * max_workers, as_completed, return_errors, report, on_exit)
    return _between(before, loop, after, report)


def _between(
    before: Callable[[Reporting], None],
    loop: Generator[ResultT, None, None],
    after: Callable[[], None],
    report: Reporting,
) -> Generator[ResultT, None, None]:
    try:
        with report:
            before(report)
            yield from loop
    finally:
        after()


def _loop(
    items: Iterator[ItemT],
    total: int | None,
    crew: _Crew[ItemT, ResultT],
    ahead: int,
    as_completed: bool,
    return_errors: bool,
    report: Reporting,
    on_exit: Callable[[SystemExit], None],
) -> Generator[ResultT | BaseException, None, None]:
    waiting: dict[int, ResultT | BaseException] = {}  # finished ahead of their turn
    read = done = failed = turn = 0
    is_read_out = False
    is_at_hand = total is not None
    outcome: ResultT | BaseException | None = None
    try:
        report(Progress("runs", 0, 0, total))
        while True:
            # As far ahead as it may be, but a source that is not at hand, and maybe slow, must not hold back what is
            # finished: of that, one for each that was yielded, which keeps the lead.
            is_due = True
            while is_due and not is_read_out and read < turn + ahead:
                try:
                    item = next(items)
                except StopIteration:
                    is_read_out, total = True, read
                else:
                    crew.give(read, item)
                    read += 1
                    del item
                is_due = is_at_hand or not crew.has_finished
            if done == read:
                return
            index, outcome = crew.take()
            done += 1
            if isinstance(outcome, BaseException):
                failed += 1
                if not return_errors or not isinstance(outcome, Exception):
                    raise outcome
            is_last = is_read_out and done == read
            if is_last:
                crew.stop()  # here, since a loop that knows the number of items, as zip's, never asks for the end
            report(Progress("runs", done, failed, total))
            if is_last:
                report.close()  # here for the same reason
            waiting[turn if as_completed else index] = outcome
            while turn in waiting:
                turn += 1
                yield waiting.pop(turn - 1)
    except SystemExit as error:
        on_exit(error)
        raise
    finally:
        outcome = None  # an error that is raised from here would hold itself in a cycle
        try:
            crew.stop()
        finally:  # Ctrl-C may have come before or while it was stopped, here or in the loop
            crew.dismiss()
