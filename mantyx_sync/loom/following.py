"""Following a run to its end: a poll that backs off, and a person's answers handed in on the way (loom §7)."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, Callable, Optional

from ..checks import callbacks, seconds
from ..errors import MantyxError, MantyxNetworkError, MantyxTimeoutError
from ..transport.bell import Signal
from .answers import Answer
from .errors import (
    LoomPending,
    LoomRejected,
    LoomRequestError,
    LoomRunCancelled,
    LoomRunFailed,
    LoomUnavailable,
)
from .runs import LoomRun, PendingAction

if TYPE_CHECKING:
    from .client import LoomClient
    from .operations import Operation

__all__ = ["OnAction", "Pace", "failure_of", "run_and_wait", "wait_for_run"]

log = logging.getLogger(__name__)

OnAction = Callable[[LoomRun, PendingAction], Optional[Answer]]
"""Asks a person. Returns the answer, or `None` if the person dismissed it: the run goes on waiting."""

POLL_FIRST_S = 0.2
POLL_LAST_S = 2.0
LOST_FOR_S = 60.0
LOOK_TIMEOUT_S = 30.0


class Pace:
    """How long to wait before looking again: longer and longer while nothing changes. Does no I/O."""

    def __init__(self) -> None:
        self._next = POLL_FIRST_S

    def changed(self) -> None:
        """Something happened: look again soon."""
        self._next = POLL_FIRST_S

    def next_delay(self) -> float:
        """Return the seconds to wait now."""
        delay, self._next = self._next, min(POLL_LAST_S, self._next * 1.5)
        return delay


def run_and_wait(
    client: LoomClient,
    loom_name: str,
    input: Any,  # noqa: A002 - its name in the protocol
    *,
    on_action: OnAction | None = None,
    on_update: Callable[[LoomRun], None] | None = None,
    on_operation: Callable[[Operation], None] | None = None,
    timeout: float | None = None,
) -> LoomRun:
    """Start a loom and follow its run to its end; return the run as it ended. Blocks.

    When time is over, or Ctrl-C comes, the run goes on: it is the service's, and `wait_for_run` takes it up again.

    Args:
        on_action: Asks a person what the run waits for; each action once. Without it, or where it returns `None`, the
            run waits until somebody else answers.
        on_update: Called with the run whenever it has changed.
        on_operation: Called with the operation before it is submitted, to save it.
        timeout: Seconds in all.

    Raises:
        LoomRunFailed, LoomRunCancelled: The run did not complete.
        LoomOperationError: The run was not started or an answer not taken, or nobody knows; the class says which, and
            `operation` what it is about.
        MantyxConfigError: An answer does not fit what was asked; the run goes on waiting.
        MantyxTimeoutError: Time is over.
        MantyxNetworkError: The service could not be reached for a minute.
    """
    callbacks(on_action=on_action, on_update=on_update, on_operation=on_operation)
    deadline = None if timeout is None else time.monotonic() + seconds(timeout, "timeout")
    operation = client.prepare_run(loom_name, input)
    if on_operation is not None:
        on_operation(operation)
    outcome = client.submit(operation, timeout=timeout).require_accepted()
    if outcome.run is None:
        raise LoomPending(
            f"run (operation {operation.operation_id}): accepted, but the service does not show its run yet; "
            "ask again with resolve(error.operation)",
            operation=operation,
            receipt=outcome.receipt,
        )
    return _follow(client, outcome.run, on_action, on_update, deadline)


def wait_for_run(
    client: LoomClient,
    run_id: str,
    *,
    on_action: OnAction | None = None,
    on_update: Callable[[LoomRun], None] | None = None,
    timeout: float | None = None,
) -> LoomRun:
    """Follow a run that exists to its end; otherwise as `run_and_wait`."""
    callbacks(on_action=on_action, on_update=on_update)
    deadline = None if timeout is None else time.monotonic() + seconds(timeout, "timeout")
    return _follow(client, client.get_run(run_id), on_action, on_update, deadline)


def _follow(
    client: LoomClient,
    run: LoomRun,
    on_action: OnAction | None,
    on_update: Callable[[LoomRun], None] | None,
    deadline: float | None,
) -> LoomRun:
    pace, asked, wait = Pace(), set(), Signal()
    seen: LoomRun | None = None
    lost_since: float | None = None
    while True:
        if run != seen:
            seen = run
            pace.changed()
            if on_update is not None:
                on_update(run)
        if run.is_terminal:
            return _ended(run)
        action = run.pending_action
        if action is not None and on_action is not None and action.id not in asked:
            asked.add(action.id)
            after = _answer(client, run, action, on_action)
            if after is not None:
                run = after
                continue
        delay, left = pace.next_delay(), LOOK_TIMEOUT_S
        if deadline is not None:
            left = min(left, deadline - time.monotonic())
            if left <= 0:
                raise MantyxTimeoutError(
                    f"loom run {run.run_id}: not at its end in time (it is {run.status}); it goes on"
                )
            delay = min(delay, left)
        wait.wait(delay)
        try:
            run = client.within(max(0.1, left)).get_run(run.run_id)
            lost_since = None
        except (MantyxNetworkError, MantyxTimeoutError, LoomRequestError) as error:
            lost_since = lost_since or time.monotonic()
            if not _is_passing(error) or time.monotonic() - lost_since > LOST_FOR_S:
                raise
            log.info("loom run %s: %s; looking again", run.run_id, type(error).__name__)


def _is_passing(error: MantyxError) -> bool:
    """Tell whether looking again may help."""
    return not isinstance(error, LoomRequestError) or error.retryable or isinstance(error, LoomUnavailable)


def _answer(client: LoomClient, run: LoomRun, action: PendingAction, on_action: OnAction) -> LoomRun | None:
    """Ask a person and hand the answer in; return the run as it is then, `None` if nothing was handed in."""
    said = on_action(run, action)
    if said is None:
        log.info("loom run %s: action %s was dismissed; the run waits", run.run_id, action.id)
        return None
    try:
        outcome = client.answer_ask(run.run_id, action, said)
    except LoomRejected as rejected:
        if rejected.reason != "CONFLICT":
            raise
        log.info("loom run %s: action %s was answered by somebody else", run.run_id, action.id)
        return client.get_run(run.run_id)
    return outcome.run if outcome.run is not None else client.get_run(run.run_id)


def _ended(run: LoomRun) -> LoomRun:
    if run.status == "completed":
        return run
    raise failure_of(run)


def failure_of(run: LoomRun) -> LoomRunFailed:
    """Return the error for a run that ended without success."""
    failure = run.last_error
    code = failure.code if failure is not None else "unknown"
    kind = LoomRunCancelled if run.is_cancelled else LoomRunFailed
    at = f" at {run.cursor}" if run.cursor is not None else ""
    message = f": {failure.message}" if failure is not None and failure.message else ""
    return kind(f"loom run {run.run_id}: ended as {run.status}{at} with {code}{message}", run=run, code=code)
