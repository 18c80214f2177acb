"""Many runs at once: a bounded number of them under way, results in order or as they come, nothing left behind."""

from __future__ import annotations

import contextlib
import contextvars
import itertools
import queue
import threading
import time
from dataclasses import dataclass
from typing import Any, Callable, Generic, Iterable, Iterator, Mapping, TypeVar

from .errors import MantyxConfigError, MantyxError
from .results import RunResult
from .run import Run
from .spec import RunSpec, build_spec
from .transport.bell import Inbox
from .workspace import Workspace

__all__ = ["Launcher", "MapProgress", "run_many"]

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class MapProgress:
    """How far `MantyxClient.map` is. `total` is `None` while the items are not all read."""

    done: int
    failed: int
    total: int | None


class _Worker(Generic[ItemT, ResultT]):
    """What the threads share."""

    def __init__(self, run_one: Callable[[ItemT], ResultT]) -> None:
        self.run_one = run_one
        self.todo: queue.SimpleQueue[tuple[int, ItemT] | None] = queue.SimpleQueue()
        self.finished: Inbox[tuple[int, ResultT | BaseException]] = Inbox()

    def work(self) -> None:
        while True:
            task = self.todo.get()
            if task is None:
                return
            index, item = task
            try:
                outcome: ResultT | BaseException = self.run_one(item)
            except BaseException as error:  # handed to the caller, whatever it is
                outcome = error
            self.finished.put((index, outcome))
            del task, item, outcome


class Launcher:
    """The runs of one `map`: started on its threads, given up together."""

    def __init__(
        self, workspace: Workspace, fields: Mapping[str, Any], timeout: float | None, output_type: Any
    ) -> None:
        self._workspace = workspace
        self._fields = dict(fields)
        self._timeout = timeout
        self._output_type = output_type
        self._lock = threading.Lock()
        self._runs: set[Run] = set()
        self._stopped = threading.Event()

    def run(self, item: str | Mapping[str, Any] | RunSpec) -> RunResult:
        """Run an agent for one item. Blocks; called by several threads."""
        if self._stopped.is_set():
            raise MantyxError("the loop over the runs was left", code="closed")
        run = self._workspace.create(self._spec(item), self._timeout, wants_events=False, output_type=self._output_type)
        with self._lock:
            self._runs.add(run)
        try:
            if self._stopped.is_set():
                run.abort()
            return self._workspace.complete(run)
        finally:
            with self._lock:
                self._runs.discard(run)

    def abort_all(self) -> None:
        """Cancel every run that goes on, all at the same time: each may take most of a second."""
        self._stopped.set()
        with self._lock:
            runs = list(self._runs)
        # Ended by `abort` within a second; daemons, since nothing is lost with them.
        threads = [threading.Thread(target=run.abort, name="mantyx-map-abort", daemon=True) for run in runs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(1.0)

    def _spec(self, item: str | Mapping[str, Any] | RunSpec) -> RunSpec:
        if isinstance(item, RunSpec):
            if self._fields:
                raise TypeError("give specs or the fields of every run, not both")
            return item
        if isinstance(item, str):
            return build_spec({**self._fields, "prompt": item}, purpose="run")
        if isinstance(item, Mapping):
            return build_spec({**self._fields, **item}, purpose="run")
        raise MantyxConfigError(f"items: got {type(item).__name__}, must be prompts, mappings or specs")


def run_many(
    items: Iterable[ItemT],
    run_one: Callable[[ItemT], ResultT],
    abort_all: Callable[[], None],
    *,
    max_workers: int,
    as_completed: bool = False,
    return_errors: bool = False,
    progress: Callable[[MapProgress], None] | None = None,
) -> Iterator[ResultT | BaseException]:
    """Call `run_one` for each item on threads, at most `max_workers` at once, and yield what comes of it.

    Items are read as they are needed, and no further ahead than `max_workers` beyond what was yielded.

    Args:
        abort_all: Ends what is under way, so that the threads return soon. Called when the loop is left early.
        as_completed: Yield results as they come instead of in the order of the items.
        return_errors: Yield errors in place of results; otherwise the first one ends everything and is raised.
        progress: Called on the calling thread after each item.

    Raises:
        MantyxConfigError: `max_workers` is not allowed.
    """
    if type(max_workers) is not int or not 1 <= max_workers <= 1000:
        raise MantyxConfigError(f"max_workers: got {max_workers!r}, must be a whole number from 1 to 1000")
    return _loop(items, _Worker(run_one), abort_all, max_workers, as_completed, return_errors, progress)


def _loop(
    items: Iterable[ItemT],
    worker: _Worker[ItemT, ResultT],
    abort_all: Callable[[], None],
    max_workers: int,
    as_completed: bool,
    return_errors: bool,
    progress: Callable[[MapProgress], None] | None,
) -> Iterator[ResultT | BaseException]:
    numbered = enumerate(items)
    waiting: dict[int, ResultT | BaseException] = {}  # finished ahead of their turn
    threads: list[threading.Thread] = []
    read = done = failed = 0
    is_read_out = False
    turn = 0
    try:
        while True:
            # Ahead of what was yielded by the number of threads: enough to keep them busy, and no more.
            for index, item in itertools.islice(numbered, max(0, turn + 2 * max_workers - read)):
                read += 1
                worker.todo.put((index, item))
                if len(threads) < max_workers and len(threads) < read - done:
                    context = contextvars.copy_context()
                    # Owned by this loop, which ends it with a `None` and joins it; a daemon, so that a run that
                    # hangs does not keep the interpreter alive.
                    thread = threading.Thread(
                        target=context.run, args=(worker.work,), name=f"mantyx-map-{len(threads)}", daemon=True
                    )
                    threads.append(thread)
                    thread.start()
            is_read_out = read < turn + 2 * max_workers
            if done == read:
                return
            index, outcome = worker.finished.get()
            done += 1
            if isinstance(outcome, BaseException):
                failed += 1
                if not return_errors or not isinstance(outcome, Exception):
                    raise outcome
            if progress is not None:
                progress(MapProgress(done, failed, read if is_read_out else None))
            if as_completed:
                turn += 1
                yield outcome
            else:
                waiting[index] = outcome
                while turn in waiting:
                    turn += 1
                    yield waiting.pop(turn - 1)
    finally:
        while not worker.todo.empty():  # what has not begun does not begin
            with contextlib.suppress(queue.Empty):
                worker.todo.get_nowait()
        for _ in threads:
            worker.todo.put(None)
        if done < read:
            abort_all()
        until = time.monotonic() + 1.0
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
