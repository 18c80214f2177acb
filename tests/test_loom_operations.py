"""How an operation of Loom is brought to its outcome: every answer of the ledger, every way to lose one (loom §5)."""

from __future__ import annotations

import json
from typing import Any, Mapping

import pytest

from mantyx_sync.errors import MantyxConfigError, MantyxNetworkError, MantyxProtocolError, MantyxTimeoutError
from mantyx_sync.loom.errors import (
    LoomIndeterminate,
    LoomInstanceChanged,
    LoomPending,
    LoomRejected,
    request_error,
)
from mantyx_sync.loom.operations import LedgerAnswer, Operation, Outcome, OutcomeStatus, Step, Submission
from mantyx_sync.loom.runs import LoomRun
from mantyx_sync.mcp import McpSessionGone
from mantyx_sync.wire import Fields

INSTANCE = "7f1d2c94-51c3-4d0e-8a1b-6f5f0c2b9e77"
RUN = {"runId": "RUN-1", "status": "running"}


def operation(tool: str = "run", **arguments: Any) -> Operation:
    return Operation(
        tool=tool, arguments=arguments or {"loomName": "release", "input": "x"}, instance_id=INSTANCE, entry="/mcp"
    )


def receipt(status: str) -> dict[str, Any]:
    return {"receipt": {"status": status}}


def ledger(body: Mapping[str, Any]) -> LedgerAnswer:
    return LedgerAnswer.read(body)


LOST = {
    "a broken connection": MantyxNetworkError("x"),
    "a time-out": MantyxTimeoutError("x"),
    "an unreadable answer": MantyxProtocolError("x"),
    "an internal error": request_error("run", "CLI_INTERNAL_ERROR", "x", retryable=True),
}


def tell(submission: Submission, error: Any) -> None:
    if hasattr(error, "server_message"):
        submission.refused(error)
    else:
        submission.lost(error)


# ------------------------------------------------------------------------------------------- clean answers


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("rejected", OutcomeStatus.REJECTED),
        ("indeterminate", OutcomeStatus.INDETERMINATE),
        ("a word of a newer service", OutcomeStatus.INDETERMINATE),
    ],
)
def test_a_receipt_decides(status: str, expected: OutcomeStatus) -> None:
    submission = Submission(operation(), is_new=True)
    assert submission.step is Step.SUBMIT
    submission.answered(receipt(status))
    assert submission.step is Step.DONE
    assert submission.outcome is not None
    assert submission.outcome.status is expected


def test_an_accepted_run_comes_with_its_view() -> None:
    submission = Submission(operation(), is_new=True)
    submission.answered({**receipt("accepted"), "run": RUN})
    outcome = submission.outcome
    assert outcome is not None
    assert outcome.require_accepted() is outcome
    assert outcome.run is not None
    assert outcome.run.run_id == "RUN-1"


def test_an_accepted_run_without_a_view_is_looked_for() -> None:
    submission = Submission(operation(), is_new=True)
    submission.answered(receipt("accepted"))
    assert submission.step is Step.FIND_RUN
    submission.lost(MantyxNetworkError("x"))
    assert submission.step is Step.FIND_RUN
    submission.found_run(LoomRun.read(Fields(RUN, "run")))
    outcome = submission.outcome
    assert outcome is not None
    assert outcome.status is OutcomeStatus.ACCEPTED
    assert outcome.run is not None


@pytest.mark.parametrize("tool", ["answer_ask", "cancel_run", "pause_run", "resume_run"])
def test_other_operations_are_accepted_without_a_run(tool: str) -> None:
    submission = Submission(operation(tool, runId="RUN-1"), is_new=True)
    submission.answered(receipt("accepted"))
    assert submission.step is Step.DONE


def test_a_pending_receipt_is_asked_about_again_and_again_and_never_submitted_again() -> None:
    submission = Submission(operation(), is_new=True)
    submission.answered(receipt("pending"))
    delays = []
    for _ in range(8):
        assert submission.step is Step.ASK
        delays.append(submission.delay)
        submission.asked(ledger({"status": "found", **receipt("pending")}))
    assert delays == sorted(delays)
    assert delays[-1] == 2.0
    submission.give_up()
    assert submission.outcome is not None
    assert submission.outcome.status is OutcomeStatus.PENDING


def test_an_answer_without_a_receipt_is_unreadable() -> None:
    with pytest.raises(MantyxProtocolError, match="no receipt"):
        Submission(operation(), is_new=True).answered({"run": RUN})


# ------------------------------------------------------------------------------------------- lost answers


@pytest.mark.parametrize("lost", LOST)
@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ("accepted", OutcomeStatus.ACCEPTED),
        ("rejected", OutcomeStatus.REJECTED),
        ("indeterminate", OutcomeStatus.INDETERMINATE),
    ],
)
def test_a_lost_answer_is_asked_for_before_anything_is_repeated(lost: str, found: str, expected: OutcomeStatus) -> None:
    submission = Submission(operation("cancel_run", runId="RUN-1"), is_new=True)
    tell(submission, LOST[lost])
    assert submission.step is Step.ASK
    submission.asked(ledger({"status": "found", **receipt(found)}))
    assert submission.outcome is not None
    assert submission.outcome.status is expected


@pytest.mark.parametrize("lost", LOST)
def test_what_the_ledger_does_not_know_is_submitted_again_unchanged(lost: str) -> None:
    made = operation()
    before = json.dumps(made.call_arguments)
    submission = Submission(made, is_new=True)
    tell(submission, LOST[lost])
    submission.asked(ledger({"status": "not_found"}))
    assert submission.step is Step.SUBMIT
    assert json.dumps(made.call_arguments) == before
    submission.answered({**receipt("accepted"), "run": RUN})
    assert submission.outcome is not None
    assert submission.outcome.is_accepted


def test_a_request_that_surely_did_not_arrive_is_submitted_again_at_once() -> None:
    submission = Submission(operation(), is_new=True)
    submission.lost(MantyxNetworkError("refused", sent=False))
    assert submission.step is Step.SUBMIT


def test_a_ledger_that_cannot_be_asked_is_asked_again_and_nothing_is_submitted() -> None:
    submission = Submission(operation(), is_new=True)
    submission.lost(MantyxNetworkError("x"))
    for _ in range(5):
        submission.lost(MantyxNetworkError("x", sent=False))
        assert submission.step is Step.ASK
    submission.give_up()
    outcome = submission.outcome
    assert outcome is not None
    with pytest.raises(LoomPending) as caught:
        outcome.require_accepted()
    assert caught.value.operation is outcome.operation
    assert isinstance(caught.value.__cause__, MantyxNetworkError)


# ------------------------------------------------------------------------------------------- restarts


@pytest.mark.parametrize("run", [None, RUN])
def test_after_a_restart_a_run_is_looked_for_and_never_submitted_again(run: dict[str, Any] | None) -> None:
    submission = Submission(operation(), is_new=True)
    submission.lost(MantyxNetworkError("x"))
    submission.asked(ledger({"status": "instance_changed"}))
    assert submission.step is Step.FIND_RUN
    submission.found_run(None if run is None else LoomRun.read(Fields(run, "run")))
    outcome = submission.outcome
    assert outcome is not None
    assert outcome.status is OutcomeStatus.INSTANCE_CHANGED
    with pytest.raises(LoomInstanceChanged) as caught:
        outcome.require_accepted()
    assert (caught.value.run is None) == (run is None)


def test_after_a_restart_other_operations_end_as_instance_changed() -> None:
    submission = Submission(operation("answer_ask", runId="RUN-1"), is_new=True)
    submission.lost(MantyxTimeoutError("x"))
    submission.asked(ledger({"operation": {"status": "instance_changed"}}))
    assert submission.outcome is not None
    assert submission.outcome.status is OutcomeStatus.INSTANCE_CHANGED


def test_giving_up_after_a_restart_still_says_that_there_was_one() -> None:
    submission = Submission(operation(), is_new=False)
    submission.asked(ledger({"status": "instance_changed"}))
    submission.give_up()
    assert submission.outcome is not None
    assert submission.outcome.status is OutcomeStatus.INSTANCE_CHANGED


# ------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("code", ["INVALID_REQUEST", "NOT_FOUND", "CONFLICT", "BUSY", "KERNEL_UNAVAILABLE"])
def test_a_refusal_that_the_ledger_does_not_know_is_a_rejection_with_the_refusal(code: str) -> None:
    submission = Submission(operation(), is_new=True)
    submission.refused(request_error("run", code, "no", retryable=True))
    assert submission.step is Step.ASK
    submission.asked(ledger({"status": "not_found"}))
    assert submission.outcome is not None
    with pytest.raises(LoomRejected) as caught:
        submission.outcome.require_accepted()
    assert caught.value.refusal is not None
    assert caught.value.refusal.code == code


def test_the_refusal_of_a_repetition_counts_less_than_what_the_ledger_has() -> None:
    submission = Submission(operation("answer_ask", runId="RUN-1"), is_new=True)
    submission.lost(MantyxNetworkError("x"))
    submission.asked(ledger({"status": "not_found"}))
    submission.refused(request_error("answer_ask", "CONFLICT", "the action is not current"))
    submission.asked(ledger({"status": "found", **receipt("accepted")}))
    assert submission.outcome is not None
    assert submission.outcome.is_accepted
    assert submission.outcome.refusal is None


def test_a_conflict_at_first_sight_is_about_another_operation_with_the_same_id() -> None:
    submission = Submission(operation(), is_new=True)
    submission.refused(request_error("run", "CONFLICT", "the operation has other content"))
    submission.asked(ledger({"status": "found", **receipt("accepted")}))
    assert submission.outcome is not None
    assert submission.outcome.status is OutcomeStatus.REJECTED


def test_a_session_that_was_over_has_the_status_read_before_anything_else() -> None:
    submission = Submission(operation(), is_new=True)
    submission.lost(McpSessionGone("gone", status=404))
    assert submission.step is Step.LOOK
    submission.lost(MantyxNetworkError("x"))
    assert submission.step is Step.LOOK
    submission.looked(INSTANCE)
    assert submission.step is Step.ASK
    submission.asked(ledger({"status": "not_found"}))
    assert submission.step is Step.SUBMIT


@pytest.mark.parametrize("tool", ["run", "cancel_run"])
def test_a_session_that_ended_with_the_service_is_a_changed_instance(tool: str) -> None:
    submission = Submission(operation(tool, runId="RUN-1"), is_new=True)
    submission.lost(McpSessionGone("gone", status=404))
    submission.looked("9f1d2c94-51c3-4d0e-8a1b-6f5f0c2b9e77")
    if tool == "run":
        assert submission.step is Step.FIND_RUN
        submission.found_run(None)
    assert submission.outcome is not None
    assert submission.outcome.status is OutcomeStatus.INSTANCE_CHANGED


def test_a_refusal_that_carries_a_receipt_is_decided_by_it() -> None:
    payload = {"error": {"code": "CONFLICT", "message": "x"}, **receipt("indeterminate")}
    submission = Submission(operation(), is_new=True)
    submission.refused(request_error("run", "CONFLICT", "x", payload=payload))
    assert submission.outcome is not None
    with pytest.raises(LoomIndeterminate):
        submission.outcome.require_accepted()


# ------------------------------------------------------------------------------------------- taking up


def test_a_saved_operation_is_asked_about_first() -> None:
    saved = json.loads(json.dumps(operation().to_dict()))
    taken_up = Operation.from_dict(saved)
    assert taken_up.to_dict() == saved
    assert Submission(taken_up, is_new=False).step is Step.ASK


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"tool": "get_run"}, "tool is 'get_run', must be one of"),
        ({"tool": 5}, "field 'tool' is a number, must be a string"),
        ({"operationId": None}, "field 'operationId' is null"),
        ({"arguments": []}, "field 'arguments' is an array"),
    ],
)
def test_something_else_than_a_saved_operation_is_refused(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(MantyxConfigError, match=sentence):
        Operation.from_dict({**operation().to_dict(), **change})


def test_the_arguments_of_an_operation_cannot_be_changed_from_outside() -> None:
    made = operation("answer_ask", runId="RUN-1", answer=[{"questionId": "a"}])
    made.call_arguments["answer"].append(1)
    made.to_dict()["arguments"]["answer"].append(1)
    assert made.call_arguments["answer"] == [{"questionId": "a"}]


@pytest.mark.parametrize(
    ("body", "word", "status"),
    [
        ({"status": "found", "receipt": {"status": "accepted"}}, "found", "accepted"),
        ({"operation": {"status": "found", "receipt": {"status": "pending"}}}, "found", "pending"),
        ({"result": "not_found"}, "not_found", None),
        ({"status": "rejected"}, "found", "rejected"),
        ({"operation": {"status": "instance_changed"}}, "instance_changed", None),
    ],
)
def test_the_shapes_that_a_ledger_answer_may_have(body: dict[str, Any], word: str, status: str | None) -> None:
    answer = ledger(body)
    assert answer.word == word
    assert (answer.receipt.status if answer.receipt else None) == status


@pytest.mark.parametrize("body", [{}, {"status": "maybe"}, {"operation": 1}])
def test_an_unreadable_ledger_answer_is_a_protocol_error(body: dict[str, Any]) -> None:
    with pytest.raises(MantyxProtocolError):
        ledger(body)


def test_the_five_outcomes_cannot_be_confused() -> None:
    kinds = {}
    for status in OutcomeStatus:
        try:
            Outcome(status, operation()).require_accepted()
            kinds[status] = "accepted"
        except Exception as error:
            kinds[status] = type(error).__name__
    assert len(set(kinds.values())) == 5
