"""What goes wrong with a Loom service, split by what a caller would do next.

    LoomError
        LoomRequestError          the service refused: one subclass per code (loom §6)
            LoomInvalidRequest    INVALID_REQUEST: what was sent does not fit
            LoomNotFound          NOT_FOUND
            LoomConflict          CONFLICT: no longer current, or another's
            LoomBusy              BUSY: something else is under way, or a limit is reached
            LoomUnavailable       KERNEL_UNAVAILABLE, CLI_SERVICE_CLOSING: a loom or the service itself cannot serve
        LoomOperationError        an operation did not end as accepted
            LoomRejected          nothing was applied
            LoomIndeterminate     effects unknown: never submitted again by this package
            LoomInstanceChanged   the service was restarted: what it did with the operation cannot be asked any more
            LoomPending           not decided in the time there was
        LoomRunFailed             a run that was followed ended as failed (LoomRunCancelled if it was stopped)
        LoomTaskLost              an agent task can no longer be worked on by this worker; `reason` says why
        LoomTaskClosed            a task takes no tool calls any more: an end tool was called, or 256 were
        LoomDiscoveryError        a project's service was not found, or its files cannot be trusted

What a service says is foreign text: messages quote it, shortened. An owner token is in no message and no attribute.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Mapping

from ..errors import MantyxError, cut

if TYPE_CHECKING:
    from .operations import Operation
    from .runs import LoomRun, OperationReceipt

__all__ = [
    "LoomBusy",
    "LoomConflict",
    "LoomDiscoveryError",
    "LoomError",
    "LoomIndeterminate",
    "LoomInstanceChanged",
    "LoomInvalidRequest",
    "LoomNotFound",
    "LoomOperationError",
    "LoomPending",
    "LoomRejected",
    "LoomRequestError",
    "LoomRunCancelled",
    "LoomRunFailed",
    "LoomTaskClosed",
    "LoomTaskLost",
    "LoomUnavailable",
    "request_error",
]


class LoomError(MantyxError):
    """Base of the errors that concern a Loom service."""


class LoomRequestError(LoomError):
    """The service refused a call (loom §1.5, §6).

    `code` is the service's code (open list: unknown ones are kept as text), `server_message` its text, `retryable`
    what it says of repeating *the same* call later; it never licenses a new submission. `payload` is the error as it
    came. A refusal found before the tool ran (unknown tool, arguments that do not fit its schema) has the code
    `INVALID_REQUEST` and no payload.
    """

    def __init__(
        self,
        message: str,
        *,
        tool: str,
        code: str,
        server_message: str,
        retryable: bool,
        payload: Mapping[str, Any] | None,
    ) -> None:
        super().__init__(message, code=code)
        self.tool = tool
        self.server_message = server_message
        self.retryable = retryable
        self.payload = payload


class LoomInvalidRequest(LoomRequestError):
    """What was sent does not fit; nothing happened."""


class LoomNotFound(LoomRequestError):
    """There is no such run, loom, call, asset."""


class LoomConflict(LoomRequestError):
    """It is not current any more, another has it, or the same identity came with other content."""


class LoomBusy(LoomRequestError):
    """Something else is under way. At the 256th tool receipt of a task this is final, whatever `retryable` says."""


class LoomUnavailable(LoomRequestError):
    """A loom or the service itself cannot serve this."""


_BY_CODE: dict[str, type[LoomRequestError]] = {
    "INVALID_REQUEST": LoomInvalidRequest,
    "NOT_FOUND": LoomNotFound,
    "CONFLICT": LoomConflict,
    "BUSY": LoomBusy,
    "KERNEL_UNAVAILABLE": LoomUnavailable,
    "CLI_SERVICE_CLOSING": LoomUnavailable,
}


def request_error(
    tool: str, code: str, server_message: str, *, retryable: bool = False, payload: Mapping[str, Any] | None = None
) -> LoomRequestError:
    """Return the error for a call that the service refused."""
    kind = _BY_CODE.get(code, LoomRequestError)
    text = f"{tool}: the service refused: {code}: {cut(server_message)}"
    return kind(text, tool=tool, code=code, server_message=server_message, retryable=retryable, payload=payload)


class LoomOperationError(LoomError):
    """An operation did not end as accepted.

    `operation` can be saved and asked about again, by another process too; `receipt` is what the service last said.
    """

    def __init__(self, message: str, *, operation: Operation, receipt: OperationReceipt | None = None) -> None:
        super().__init__(message, code=self._code)
        self.operation = operation
        self.receipt = receipt

    _code = "operation_failed"


class LoomRejected(LoomOperationError):
    """Nothing was applied. A corrected request is a new operation.

    `refusal` is the service's error, if it gave one; `reason` the code of that, or of the receipt's.
    """

    _code = "rejected"

    def __init__(
        self,
        message: str,
        *,
        operation: Operation,
        receipt: OperationReceipt | None = None,
        refusal: LoomRequestError | None = None,
    ) -> None:
        super().__init__(message, operation=operation, receipt=receipt)
        self.refusal = refusal
        failure = receipt.error if receipt is not None else None
        self.reason = refusal.code if refusal is not None else failure.code if failure is not None else None


class LoomIndeterminate(LoomOperationError):
    """Its effects are unknown. It must not be submitted again, under whatever id: look, then let a person decide."""

    _code = "indeterminate"


class LoomInstanceChanged(LoomOperationError):
    """The service was restarted, and with it the ledger is gone: nobody can say what became of the operation.

    `run` is the run that an operation of kind `run` had created, if `find_run` knows it.
    """

    _code = "instance_changed"

    def __init__(self, message: str, *, operation: Operation, run: LoomRun | None = None) -> None:
        super().__init__(message, operation=operation)
        self.run = run


class LoomPending(LoomOperationError):
    """It was not decided in the time there was. Ask again later: `client.resolve(error.operation)`."""

    _code = "pending"


class LoomRunFailed(LoomError):
    """A run ended as failed (loom §7). `run` is its last view, `code` the code of its `lastError`."""

    def __init__(self, message: str, *, run: LoomRun, code: str) -> None:
        super().__init__(message, code=code)
        self.run = run


class LoomRunCancelled(LoomRunFailed):
    """A run was stopped (`RUN_STOPPED`)."""


class LoomTaskLost(LoomError):
    """An agent task can no longer be worked on here.

    `reason` is `cancelled`, `restarted` (the service), `ended` (its run failed or went
    on), `gone` (the service does not know the run), or, with the task left for a worker to take up again, `unreachable`
    (the service) or `stopped` (the worker). What its tools did is not undone.
    """

    def __init__(self, message: str, *, reason: str, run_id: str | None = None, call_id: str | None = None) -> None:
        super().__init__(message, code=f"task_{reason}")
        self.reason = reason
        self.loom_run_id = run_id
        self.call_id = call_id


class LoomTaskClosed(LoomError):
    """A task takes no tool calls any more; its result is still wanted.

    `reason` is `end_tool`, or `limit`: each task keeps 256 receipts, and that is final.
    """

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message, code=f"task_{reason}")
        self.reason = reason


class LoomDiscoveryError(LoomError):
    """A project's service was not found (`code` is `offline`), or its files cannot be trusted (`untrusted`)."""

    def __init__(self, message: str, *, code: str = "untrusted") -> None:
        super().__init__(message, code=code)
