"""Every tool of the documents' tables through the client: what comes back, and how it refuses.

Run against the engine in this process (`tests/test_loom_client.py`) and over real connections, in both eras and by a
stdio proxy (`tests/interop/test_loom_service.py`).
"""

from __future__ import annotations

import uuid
from typing import Any, Callable, Dict

import pytest

from mantyx_sync.errors import MantyxConfigError
from mantyx_sync.loom import (
    SKIP,
    Claim,
    LoomClient,
    LoomConflict,
    LoomInvalidRequest,
    LoomNotFound,
    LoomRejected,
    LoomRun,
    Operation,
    OutcomeStatus,
)

MIRROR = "6b1f6f0e-8d3a-4c7e-9a51-2f0c8f6d7e11"
READY = {"outcome": "ready"}


def started(client: LoomClient, loom: str) -> LoomRun:
    """Start a run."""
    run = client.run(loom, "x").run
    assert run is not None
    return run


def claimed(client: LoomClient) -> Claim:
    """Claim the task of a new run."""
    run = started(client, "release")
    assert run.pending_agent_call is not None
    return client.claim_agent_call(run.run_id, run.pending_agent_call.id, "mine")


def _status(client: LoomClient) -> None:
    service = client.status()
    assert str(uuid.UUID(service.instance_id)) == service.instance_id
    assert service.raw["instanceId"] == service.instance_id


def _list_looms(client: LoomClient) -> None:
    looms = {loom.loom_name: loom for loom in client.list_looms()}
    assert (looms["code"].is_ready, looms["broken"].is_ready, looms["broken"].phase) == (True, False, "load")
    assert looms["broken"].error is not None
    assert looms["broken"].error.code == "KERNEL_UNAVAILABLE"


def _run(client: LoomClient) -> None:
    outcome = client.run("code", {"any": ["JSON", 1, None]})
    assert outcome.is_accepted
    assert outcome.receipt is not None
    assert outcome.receipt.operation_id == outcome.operation.operation_id
    assert outcome.run is not None
    assert (outcome.run.status, outcome.run.loom_name) == ("completed", "code")
    with pytest.raises(LoomRejected) as caught:
        client.run("nothing", "x")
    assert isinstance(caught.value.refusal, LoomNotFound)


def _get_run(client: LoomClient) -> None:
    run = started(client, "ask")
    assert client.get_run(run.run_id) == run
    assert run.execution is not None
    assert (run.execution.source, run.execution.agent_executor) == ("agent_ide", "mcp_client")
    assert str(run.cursor) == "main/ask"
    with pytest.raises(LoomNotFound) as caught:
        client.get_run("RUN-none")
    assert caught.value.payload is not None
    assert caught.value.payload["error"]["message"] == caught.value.server_message


def _list_runs(client: LoomClient) -> None:
    run = started(client, "code")
    assert run in client.list_runs("code")
    assert run in client.list_runs()
    assert run not in client.list_runs("ask")


def _answer_ask(client: LoomClient) -> None:
    run = started(client, "ask")
    assert run.pending_action is not None
    outcome = client.answer_ask(run.run_id, run.pending_action, {"when": "Tuesday", "note": SKIP})
    assert outcome.run is not None
    assert outcome.run.status == "completed"
    with pytest.raises(LoomRejected) as caught:
        client.answer_ask(run.run_id, run.pending_action, {"when": "Monday", "note": SKIP})
    assert caught.value.reason == "CONFLICT"


def _interact(client: LoomClient) -> None:
    run = started(client, "ask")
    assert run.pending_action is not None
    found = client.interact(run.run_id, run.pending_action.id)
    assert (found.status, found.run, found.action) == ("unavailable", run, run.pending_action)
    with pytest.raises(LoomConflict):
        client.interact(run.run_id, "ASK-none")


def _cancel_run(client: LoomClient) -> None:
    run = started(client, "ask")
    outcome = client.cancel_run(run.run_id)
    assert outcome.run is not None
    assert outcome.run.is_cancelled
    assert client.cancel_run(run.run_id).run == outcome.run, "again it succeeds and changes nothing"
    with pytest.raises(LoomRejected):
        client.cancel_run("RUN-none")


def _pause_run(client: LoomClient) -> None:
    assert client.pause_run(started(client, "gated").run_id).is_accepted
    with pytest.raises(LoomRejected) as caught:
        client.pause_run(started(client, "code").run_id)
    assert caught.value.reason == "CONFLICT"


def _resume_run(client: LoomClient) -> None:
    run = started(client, "release")
    client.pause_run(run.run_id)
    assert run.pending_agent_call is not None
    claim = client.claim_agent_call(run.run_id, run.pending_agent_call.id, "mine")
    client.complete_agent_call(claim, READY)
    paused = client.get_run(run.run_id)
    assert (paused.status, paused.is_terminal) == ("paused", False)
    with pytest.raises(LoomRejected) as caught:
        client.resume_run(run.run_id, paused.revision - 1)
    assert caught.value.reason == "CONFLICT"
    outcome = client.resume_run(run.run_id, paused.revision, scope="run", abandon_mirror=False)
    assert outcome.run is not None
    assert outcome.run.status == "completed"


def _get_operation(client: LoomClient) -> None:
    outcome = client.run("code", "x")
    answer = client.get_operation(outcome.operation)
    assert (answer.word, answer.run) == ("found", outcome.run)
    assert answer.receipt == outcome.receipt
    assert client.get_operation(client.prepare_run("code", "x")).word == "not_found"
    assert client.get_operation(_of_another_instance(outcome.operation)).word == "instance_changed"
    again = client.resolve(Operation.from_dict(outcome.operation.to_dict()))
    assert (again.status, again.run) == (OutcomeStatus.ACCEPTED, outcome.run)


def _find_run(client: LoomClient) -> None:
    outcome = client.run("code", "x")
    assert client.find_run(outcome.operation) == outcome.run
    assert client.find_run(client.prepare_run("code", "x")) is None


def _get_artifact(client: LoomClient) -> None:
    started(client, "code")
    found = client.get_artifact(loom_name="code", stage_name="build")
    assert found is not None
    assert (found.data, found.stage_name, found.raw["data"]) == ({"size": 3}, "build", {"size": 3})
    assert client.get_artifact(found.id) == found
    assert client.get_artifact("ART-none") is None
    with pytest.raises(MantyxConfigError):
        client.get_artifact("a", loom_name="b", stage_name="c")


def _list_artifacts(client: LoomClient) -> None:
    started(client, "many")
    page = client.list_artifacts(loom_name="many", limit=3)
    assert len(page.items) == 3
    assert [artifact.stage_name for artifact in page] == [f"part{i}" for i in reversed(range(7))]
    assert all(artifact.data is None for artifact in page.items)
    with pytest.raises(LoomInvalidRequest):
        client.list_artifacts(loom_name="code", cursor="other@1")


def _get_record(client: LoomClient) -> None:
    run = started(client, "code")
    record = client.get_record("REC-1")
    assert record is not None
    assert (record.data, record.loom_name) == ({"by": run.run_id}, "code")
    assert client.get_record("REC-none") is None


def _get_agent_call(client: LoomClient) -> None:
    run = started(client, "release")
    assert run.pending_agent_call is not None
    call = client.get_agent_call(run.run_id, run.pending_agent_call.id)
    assert call.pending == run.pending_agent_call
    assert call.task is not None
    assert (call.task.agent_id, call.receipts) == ("planner", ())
    with pytest.raises(LoomConflict):
        client.get_agent_call(run.run_id, "CALL-none")


def _claim_agent_call(client: LoomClient) -> None:
    claim = claimed(client)
    task = claim.task
    assert task.instructions == "Propose the order of work."
    assert [skill.assets[0].name for skill in task.skills] == ["table.csv"]
    assert "finish" in [tool.id for tool in task.tools if tool.is_end_tool]
    assert claim.owner_token not in repr(claim)
    assert client.claim_agent_call(task.run_id, task.call_id, "mine") == claim
    with pytest.raises(LoomConflict):
        client.claim_agent_call(task.run_id, task.call_id, "another")


def _call_agent_tool(client: LoomClient) -> None:
    claim = claimed(client)
    found = client.call_agent_tool(claim, "t1", "echo", {"word": "hi"})
    assert found.output == found.raw["output"] == {"echo": {"word": "hi"}}
    with pytest.raises(LoomInvalidRequest, match="ids is missing"):
        client.call_agent_tool(claim, "t2", "save_order", {})
    receipts = client.get_agent_call(claim.task.run_id, claim.task.call_id).receipts
    assert [(receipt.tool_call_id, receipt.status) for receipt in receipts] == [("t1", "completed"), ("t2", "failed")]
    with pytest.raises(LoomInvalidRequest):
        client.call_agent_tool(claim, "t3", "undeclared", {})


def _read_agent_asset(client: LoomClient) -> None:
    claim = claimed(client)
    assert client.read_agent_asset(claim, "asset_0").text == "id;size\n1;3\n"
    picture = client.read_agent_asset(claim, "asset_1")
    assert (picture.text, picture.data) == (None, b"\x89PNG\xff\x00")
    with pytest.raises(LoomNotFound):
        client.read_agent_asset(claim, "asset_9")


def _complete_agent_call(client: LoomClient) -> None:
    claim = claimed(client)
    receipt = client.complete_agent_call(claim, READY)
    assert (receipt.run_id, receipt.call_id, receipt.status) == (claim.task.run_id, claim.task.call_id, "accepted")
    assert client.complete_agent_call(claim, READY) == receipt
    with pytest.raises(LoomConflict):
        client.complete_agent_call(claim, {"outcome": "stuck"})
    assert client.get_run(claim.task.run_id).status == "completed"
    wrong = claimed(client)
    client.complete_agent_call(wrong, {"outcome": "maybe"})
    error = client.get_run(wrong.task.run_id).last_error
    assert error is not None
    assert error.code == "AGENT_OUTPUT_INVALID"


def _fail_agent_call(client: LoomClient) -> None:
    claim = claimed(client)
    assert client.fail_agent_call(claim, "no order can be found").status == "accepted"
    error = client.get_run(claim.task.run_id).last_error
    assert error is not None
    assert error.code == "STEP_EXECUTION_FAILED"
    with pytest.raises(LoomConflict):
        client.complete_agent_call(claim, READY)
    with pytest.raises(MantyxConfigError, match="1 to 4096 characters"):
        client.fail_agent_call(claim, " ")


def _mirror_list(client: LoomClient) -> None:
    assert client.mirror_list()["mirrors"][0]["mirrorId"] == MIRROR


def _mirror_inspect(client: LoomClient) -> None:
    assert client.mirror_inspect(MIRROR.upper())["mirror"]["files"] == 3
    with pytest.raises(LoomNotFound):
        client.mirror_inspect(str(uuid.uuid4()))


def _mirror_restore(client: LoomClient) -> None:
    assert client.mirror_restore(MIRROR, "/p", "all", dry_run=True) == {"restored": False, "scope": "all"}
    assert client.mirror_restore(MIRROR, "/p", "all") == {"restored": True, "scope": "all"}
    with pytest.raises(LoomNotFound):
        client.mirror_restore(str(uuid.uuid4()), "/p", "all")


def _mirror_export(client: LoomClient) -> None:
    trace = str(uuid.uuid4())
    assert client.mirror_export(trace, "/p") == {"traceId": trace, "exported": True}
    with pytest.raises(MantyxConfigError, match="trace_id"):
        client.mirror_export("no uuid", "/p")


def _of_another_instance(operation: Operation) -> Operation:
    return Operation.from_dict({**operation.to_dict(), "serviceInstanceId": str(uuid.uuid4())})


TABLE: Dict[str, Callable[[LoomClient], Any]] = {
    "status": _status,
    "list_looms": _list_looms,
    "run": _run,
    "get_run": _get_run,
    "list_runs": _list_runs,
    "answer_ask": _answer_ask,
    "interact": _interact,
    "cancel_run": _cancel_run,
    "pause_run": _pause_run,
    "resume_run": _resume_run,
    "get_operation": _get_operation,
    "find_run": _find_run,
    "get_artifact": _get_artifact,
    "list_artifacts": _list_artifacts,
    "get_record": _get_record,
    "get_agent_call": _get_agent_call,
    "claim_agent_call": _claim_agent_call,
    "call_agent_tool": _call_agent_tool,
    "read_agent_asset": _read_agent_asset,
    "complete_agent_call": _complete_agent_call,
    "fail_agent_call": _fail_agent_call,
    "mirror_list": _mirror_list,
    "mirror_inspect": _mirror_inspect,
    "mirror_restore": _mirror_restore,
    "mirror_export": _mirror_export,
}
