"""Operations: what is submitted once, how a lost answer is resolved, and how it can end (loom §4, §5). Does no I/O.

`run`, `answer_ask`, `cancel_run`, `pause_run` and `resume_run` share one ledger of the service. An operation's identity
is its id together with the service instance it was made for; it is fixed, with the arguments and the entry, before
anything is sent.
"""

from __future__ import annotations

import copy
import enum
import uuid
from dataclasses import field
from typing import Any, Mapping, Optional

from ..errors import MantyxConfigError, MantyxError, MantyxProtocolError, cut
from ..mcp.errors import McpSessionGone
from ..reprs import dataclass
from ..wire import Fields
from .errors import (
    LoomBusy,
    LoomConflict,
    LoomIndeterminate,
    LoomInstanceChanged,
    LoomInvalidRequest,
    LoomNotFound,
    LoomPending,
    LoomRejected,
    LoomRequestError,
    LoomUnavailable,
)
from .runs import LoomRun, OperationReceipt

__all__ = ["LedgerAnswer", "Operation", "Outcome", "OutcomeStatus", "Step", "Submission"]

FIRST_WAIT_S = 0.1
LAST_WAIT_S = 2.0

LEDGER_TOOLS = frozenset({"run", "answer_ask", "cancel_run", "pause_run", "resume_run"})

# Refusals that say themselves that nothing was applied. Behind any other code anything may have happened.
_CLEAR_REFUSALS = (LoomInvalidRequest, LoomNotFound, LoomConflict, LoomBusy, LoomUnavailable)


@dataclass(frozen=True)
class Operation:
    """One thing to be done once. Save `to_dict()` before it is submitted, and any process can take it up.

    Attributes:
        tool: The ledger's tool.
        arguments: What is sent beside the identity, never changed.
        operation_id: A UUID.
        instance_id: The service instance it is bound to.
        entry: Where it is submitted; a repetition goes the same way.
    """

    tool: str
    arguments: Mapping[str, Any] = field(repr=False)
    instance_id: str
    entry: str = ""
    operation_id: str = field(default_factory=lambda: str(uuid.uuid4()))

    @property
    def call_arguments(self) -> dict[str, Any]:
        """The arguments of the tool call: the same at every repetition."""
        return {
            **copy.deepcopy(dict(self.arguments)),
            "operationId": self.operation_id,
            "serviceInstanceId": self.instance_id,
        }

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON data."""
        return {
            "tool": self.tool,
            "arguments": copy.deepcopy(dict(self.arguments)),
            "operationId": self.operation_id,
            "serviceInstanceId": self.instance_id,
            "entry": self.entry,
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Operation:
        """Read what `to_dict` returned.

        Raises:
            MantyxConfigError: It is something else.
        """
        try:
            fields = Fields(saved, "operation")
            tool = fields.text("tool")
            found = cls(
                tool=tool,
                arguments=copy.deepcopy(dict(fields.opt_object("arguments") or {})),
                operation_id=fields.text("operationId"),
                instance_id=fields.text("serviceInstanceId"),
                entry=fields.opt_text("entry") or "",
            )
        except MantyxProtocolError as error:
            raise MantyxConfigError(str(error)) from None
        if tool not in LEDGER_TOOLS:
            raise MantyxConfigError(f"operation: tool is {tool!r}, must be one of {', '.join(sorted(LEDGER_TOOLS))}")
        return found


class OutcomeStatus(str, enum.Enum):
    """How an operation stands."""

    ACCEPTED = "accepted"
    """Admitted; that says nothing about how the run goes on."""
    REJECTED = "rejected"
    """Not applied; a corrected request is a new operation."""
    INDETERMINATE = "indeterminate"
    """Effects unknown; never to be submitted again."""
    PENDING = "pending"
    """Not decided yet, or the service cannot be asked: ask again later."""
    INSTANCE_CHANGED = "instance_changed"
    """The service was restarted: nobody can say. Never to be submitted again."""


@dataclass(frozen=True)
class Outcome:
    """How an operation stands. `run` is the service's current view of the run, where it gave one.

    `refusal` is the error of a service that refused, `cause` what kept the service from being asked.
    """

    status: OutcomeStatus
    operation: Operation
    receipt: Optional[OperationReceipt] = None
    run: Optional[LoomRun] = None
    refusal: Optional[LoomRequestError] = field(default=None, repr=False)
    cause: Optional[MantyxError] = field(default=None, repr=False)
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def is_accepted(self) -> bool:
        """True if it was admitted."""
        return self.status is OutcomeStatus.ACCEPTED

    def require_accepted(self) -> Outcome:
        """Return this outcome if it is `accepted`.

        Raises:
            LoomRejected, LoomIndeterminate, LoomPending, LoomInstanceChanged: It is not; the class says how it stands.
        """
        operation, what = self.operation, f"{self.operation.tool} (operation {self.operation.operation_id})"
        if self.status is OutcomeStatus.ACCEPTED:
            return self
        if self.status is OutcomeStatus.REJECTED:
            why = ""
            if self.refusal is not None:
                why = f": {self.refusal.code}: {cut(self.refusal.server_message)}"
            elif self.receipt is not None and self.receipt.error is not None:
                why = f": {self.receipt.error.code}: {cut(self.receipt.error.message)}"
            raise LoomRejected(
                f"{what}: rejected, nothing was applied{why}",
                operation=operation,
                receipt=self.receipt,
                refusal=self.refusal,
            ) from self.refusal
        if self.status is OutcomeStatus.INDETERMINATE:
            raise LoomIndeterminate(
                f"{what}: its effects are unknown; it is not submitted again. Look at the run, then decide.",
                operation=operation,
                receipt=self.receipt,
            )
        if self.status is OutcomeStatus.INSTANCE_CHANGED:
            raise LoomInstanceChanged(
                f"{what}: the service was restarted, so nobody can say what became of it; it is not submitted again",
                operation=operation,
                run=self.run,
            )
        raise LoomPending(
            f"{what}: not decided yet; ask again with resolve(error.operation)",
            operation=operation,
            receipt=self.receipt,
        ) from self.cause


@dataclass(frozen=True)
class LedgerAnswer:
    """What `get_operation` said: `word` is `found`, `not_found` or `instance_changed`."""

    word: str
    receipt: Optional[OperationReceipt] = None
    run: Optional[LoomRun] = None

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> LedgerAnswer:
        """Read the answer, whose exact shape the documents leave open: a receipt means that it was found.

        Raises:
            MantyxProtocolError: It says none of the three.
        """
        fields = Fields(body, "get_operation")
        operation = body.get("operation")
        inner = Fields(operation, "get_operation: operation") if isinstance(operation, Mapping) else None
        for place in (fields, inner):
            if place is None:
                continue
            word = place.data.get("status", place.data.get("result"))
            receipt = place.opt_fields("receipt")
            run = fields.opt_fields("run")
            if receipt is not None:
                return cls("found", OperationReceipt.read(receipt), None if run is None else LoomRun.read(run))
            if word in ("not_found", "instance_changed"):
                return cls(str(word))
            if word in ("pending", "accepted", "rejected", "indeterminate"):
                return cls("found", OperationReceipt.read(place), None if run is None else LoomRun.read(run))
        raise MantyxProtocolError("get_operation: the answer says neither found, not_found nor instance_changed")


class Step(enum.Enum):
    """What is to be done next for an operation."""

    SUBMIT = "submit"
    """Make the call."""
    LOOK = "look"
    """Read the status: the service may be another one by now."""
    ASK = "ask"
    """Ask the ledger."""
    FIND_RUN = "find_run"
    """Look for the run that was created."""
    DONE = "done"


class Submission:
    """Decides, answer by answer, how an operation is brought to its outcome (loom §5.2).

    Its owner does what `step` says after `delay` seconds, and tells what came of it. Nothing is submitted again before
    the ledger said that it does not know the operation, and then with the same arguments.
    """

    def __init__(self, operation: Operation, *, is_new: bool) -> None:
        """Begin; with `is_new` false the operation may have been submitted before, so the ledger is asked first."""
        self._operation = operation
        self.step = Step.SUBMIT if is_new else Step.ASK
        self.delay = 0.0
        self.outcome: Outcome | None = None
        self._receipt: OperationReceipt | None = None
        self._refusal: LoomRequestError | None = None
        self._run: LoomRun | None = None
        self._cause: MantyxError | None = None
        self._is_instance_changed = False
        self._may_be_known = not is_new
        self._waits = 0

    def answered(self, body: Mapping[str, Any]) -> None:
        """The call came back with a result.

        Raises:
            MantyxProtocolError: It cannot be read; tell it as `lost`.
        """
        fields = Fields(body, self._operation.tool)
        run = fields.opt_fields("run")
        view = None if run is None else LoomRun.read(run)
        receipt = fields.opt_fields("receipt")
        if receipt is None:
            raise MantyxProtocolError(f"{self._operation.tool}: the answer holds no receipt")
        self._run = view
        self._by_receipt(OperationReceipt.read(receipt))

    def refused(self, error: LoomRequestError) -> None:
        """The service refused the call. Whether that is the whole truth, the ledger says."""
        payload = error.payload or {}
        receipt = payload.get("receipt")
        if isinstance(receipt, Mapping):
            self._refusal = error
            self._by_receipt(OperationReceipt.read(Fields(receipt, "receipt")))
            return
        if isinstance(error, _CLEAR_REFUSALS):
            self._refusal = error
        else:
            self._cause = error
        self._go(Step.ASK)

    def lost(self, error: MantyxError) -> None:
        """The answer was lost: a time-out, a broken connection, a lost session, something unreadable."""
        self._cause = error
        self._may_be_known = True
        if isinstance(error, McpSessionGone):
            self._wait(Step.LOOK)  # nothing was executed, but the cause may be a restart
        elif getattr(error, "sent", None) is False and self.step is Step.SUBMIT:
            self._wait(Step.SUBMIT)  # it surely did not arrive
        else:
            self._wait(Step.ASK if self.step is Step.SUBMIT else self.step)

    def looked(self, instance_id: str) -> None:
        """The service told its status."""
        if instance_id == self._operation.instance_id:
            self._go(Step.ASK)
        else:
            self._instance_changed()

    def asked(self, answer: LedgerAnswer) -> None:
        """The ledger answered."""
        if answer.word == "instance_changed":
            self._instance_changed()
        elif isinstance(self._refusal, LoomConflict) and not self._may_be_known:
            self._end(OutcomeStatus.REJECTED)  # what the ledger has under this id is something else
        elif answer.receipt is not None:
            self._run = answer.run or self._run
            self._refusal = None if answer.receipt.status != "rejected" else self._refusal
            self._by_receipt(answer.receipt)
        elif self._refusal is not None:
            self._end(OutcomeStatus.REJECTED)
        else:
            self._wait(Step.SUBMIT)

    def found_run(self, run: LoomRun | None) -> None:
        """`find_run` answered."""
        self._run = run or self._run
        self._end(OutcomeStatus.INSTANCE_CHANGED if self._is_instance_changed else OutcomeStatus.ACCEPTED)

    def give_up(self) -> None:
        """There is no more time: what is not decided stays pending."""
        if self._is_instance_changed:
            self._end(OutcomeStatus.INSTANCE_CHANGED)
        elif self._receipt is not None and self._receipt.status == "accepted":
            self._end(OutcomeStatus.ACCEPTED)
        else:
            self._end(OutcomeStatus.PENDING)

    def _instance_changed(self) -> None:
        self._receipt = None
        self._is_instance_changed = True
        if self._operation.tool == "run":
            self._go(Step.FIND_RUN)
        else:
            self._end(OutcomeStatus.INSTANCE_CHANGED)

    def _by_receipt(self, receipt: OperationReceipt) -> None:
        self._receipt = receipt
        if receipt.status == "accepted":
            if self._operation.tool == "run" and self._run is None:
                self._go(Step.FIND_RUN)
            else:
                self._end(OutcomeStatus.ACCEPTED)
        elif receipt.status == "rejected":
            self._end(OutcomeStatus.REJECTED)
        elif receipt.status == "pending":
            self._wait(Step.ASK)
        else:  # a word that a newer service may have is as uncertain as the one that says so
            self._end(OutcomeStatus.INDETERMINATE)

    def _go(self, step: Step) -> None:
        self.step, self.delay = step, 0.0

    def _wait(self, step: Step) -> None:
        self.step, self.delay = step, min(LAST_WAIT_S, FIRST_WAIT_S * 2**self._waits)
        self._waits += 1

    def _end(self, status: OutcomeStatus) -> None:
        self.step, self.delay = Step.DONE, 0.0
        self.outcome = Outcome(
            status,
            self._operation,
            receipt=self._receipt,
            run=self._run,
            refusal=self._refusal if status is OutcomeStatus.REJECTED else None,
            cause=self._cause if status is not OutcomeStatus.ACCEPTED else None,
        )
