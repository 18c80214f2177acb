"""Bringing an operation to its outcome: does what a `Submission` says, and tells it what came of it (loom §5.2)."""

from __future__ import annotations

import logging
import time

from ..errors import MantyxAuthError, MantyxError
from ..wire import Fields
from .calls import LOST, Caller
from .errors import LoomInvalidRequest, LoomNotFound, LoomRequestError
from .operations import LedgerAnswer, Operation, Outcome, Step, Submission
from .runs import LoomRun, Service, nested

__all__ = ["bring_about", "find_run", "pair", "read_service"]

log = logging.getLogger(__name__)


def bring_about(caller: Caller, operation: Operation, *, is_new: bool, timeout: float) -> Outcome:
    """Submit an operation, or take it up, and return how it stands. Blocks for `timeout` seconds at most.

    Raises:
        MantyxAuthError: The credential was not accepted; nothing was submitted.
    """
    submission = Submission(operation, is_new=is_new)
    deadline = time.monotonic() + timeout
    is_untouched = is_new
    while submission.outcome is None:
        left = deadline - time.monotonic() - submission.delay
        if left <= 0:
            submission.give_up()
            continue
        time.sleep(submission.delay)
        step = submission.step
        try:
            _take(caller, operation, submission, min(left, caller.timeout))
        except MantyxAuthError as error:
            if is_untouched:
                raise
            submission.lost(error)
            submission.give_up()
        except LoomRequestError as error:
            _refused(submission, step, error)
        except LOST as error:
            log.info("%s (operation %s): %s", operation.tool, operation.operation_id, type(error).__name__)
            submission.lost(error)
        except MantyxError as error:  # a wrong address, a closed client: repeating helps no more than guessing
            submission.lost(error)
            submission.give_up()
        is_untouched = False
    return submission.outcome


def _take(caller: Caller, operation: Operation, submission: Submission, timeout: float) -> None:
    if submission.step is Step.SUBMIT:
        submission.answered(caller.act(operation.tool, operation.call_arguments, timeout=timeout))
    elif submission.step is Step.LOOK:
        submission.looked(read_service(caller, timeout).instance_id)
    elif submission.step is Step.ASK:
        submission.asked(LedgerAnswer.read(caller.ask("get_operation", pair(operation), timeout=timeout)))
    else:
        submission.found_run(find_run(caller, operation, timeout))


def _refused(submission: Submission, step: Step, error: LoomRequestError) -> None:
    if step is Step.SUBMIT:
        submission.refused(error)
    elif step is Step.FIND_RUN and isinstance(error, (LoomInvalidRequest, LoomNotFound)):
        submission.found_run(None)
    else:
        submission.lost(error)
        if isinstance(error, LoomInvalidRequest):  # it has no ledger to ask
            submission.give_up()


def pair(operation: Operation) -> dict[str, str]:
    """Return what identifies an operation to the service."""
    return {"operationId": operation.operation_id, "serviceInstanceId": operation.instance_id}


def read_service(caller: Caller, timeout: float | None = None) -> Service:
    """Read the status."""
    return Service.read(nested(Fields(caller.ask("status", {}, timeout=timeout), "status"), "service"))


def find_run(caller: Caller, operation: Operation, timeout: float | None = None) -> LoomRun | None:
    """Return the run that an operation created, `None` if the service knows none."""
    found = Fields(caller.ask("find_run", pair(operation), timeout=timeout), "find_run").opt_fields("run")
    return None if found is None else LoomRun.read(found)
