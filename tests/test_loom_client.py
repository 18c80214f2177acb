"""Every tool of the Loom service through the client, results and refusals, and what a person answers (loom §3, §7)."""

from __future__ import annotations

import json
import pickle
import threading
import traceback
import uuid
from typing import Any, Callable

import pytest

from mantyx_sync.errors import MantyxConfigError, MantyxNetworkError, MantyxProtocolError, MantyxTimeoutError
from mantyx_sync.loom import (
    SKIP,
    AgentTask,
    Claim,
    Confirmation,
    LoomBusy,
    LoomClient,
    LoomConflict,
    LoomDiscoveryError,
    LoomError,
    LoomIndeterminate,
    LoomInstanceChanged,
    LoomInvalidRequest,
    LoomNotFound,
    LoomOperationError,
    LoomPending,
    LoomRejected,
    LoomRequestError,
    LoomRunCancelled,
    LoomRunFailed,
    LoomTaskClosed,
    LoomTaskLost,
    Operation,
    OutcomeStatus,
    TaskFailed,
    run_and_wait,
    wait_for_run,
)
from mantyx_sync.loom.envelope import read_result
from mantyx_sync.loom.errors import request_error
from mantyx_sync.mcp import McpClient, McpOutputError, McpRequestError, McpSessionGone, McpStatusError
from mantyx_sync.mcp.results import McpResult
from mantyx_sync.transport.secret import Secret

from .loom_double.caller import Caller
from .loom_double.engine import TOOLS
from .loom_double.pace import quick  # noqa: F401 - a fixture
from .loom_double.table import TABLE

ANSWERS = {"when": "Tuesday", "note": SKIP}
MIRROR = "6b1f6f0e-8d3a-4c7e-9a51-2f0c8f6d7e11"


@pytest.fixture
def caller() -> Caller:
    return Caller()


@pytest.fixture
def client(caller: Caller) -> LoomClient:
    return LoomClient(caller, entry="/mcp", timeout=5.0)


def started(client: LoomClient, loom: str) -> Any:
    run = client.run(loom, "x").run
    assert run is not None
    return run


# ------------------------------------------------------------------------------------------- every tool


@pytest.mark.parametrize("tool", TABLE)
def test_every_tool_answers_and_refuses(client: LoomClient, caller: Caller, tool: str) -> None:
    assert set(TABLE) == set(TOOLS)
    TABLE[tool](client)
    assert caller.count(tool) > 0


WITHOUT_IDENTITY: dict[str, Callable[[LoomClient], Any]] = {
    "mirror_restore": lambda client: client.mirror_restore(MIRROR, "/p", "all"),
    "mirror_export": lambda client: client.mirror_export(MIRROR, "/p"),
}


@pytest.mark.parametrize("tool", WITHOUT_IDENTITY)
def test_what_has_no_identity_is_never_repeated(client: LoomClient, caller: Caller, tool: str) -> None:
    caller.lose(tool, "after")
    with pytest.raises(MantyxNetworkError, match="broke"):
        WITHOUT_IDENTITY[tool](client)
    assert caller.count(tool) == 1


# ------------------------------------------------------------------------------------------- refusals

REFUSED: dict[str, tuple[Callable[[LoomClient], Any], type[LoomRequestError], str]] = {
    "an unknown run": (lambda client: client.get_run("RUN-9"), LoomNotFound, "NOT_FOUND"),
    "an unknown mirror": (lambda client: client.mirror_inspect(str(uuid.uuid4())), LoomNotFound, "NOT_FOUND"),
    "a cursor of other filters": (
        lambda client: client.list_artifacts(cursor="a@1", loom_name="code"),
        LoomInvalidRequest,
        "INVALID_REQUEST",
    ),
    "a call that is not current": (lambda client: client.get_agent_call("RUN-1", "CALL-9"), LoomNotFound, "NOT_FOUND"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_refusal_is_an_error_with_its_code_and_what_came(client: LoomClient, what: str) -> None:
    call, kind, code = REFUSED[what]
    with pytest.raises(kind) as caught:
        call(client)
    error = caught.value
    assert (error.code, error.retryable) == (code, False)
    assert error.payload is not None
    assert error.payload["error"]["message"] == error.server_message


REJECTED = {
    "an unknown loom": ("nothing", LoomNotFound),
    "a loom that does not load": ("broken", LoomRequestError),
}


@pytest.mark.parametrize("what", REJECTED)
def test_a_refused_operation_is_rejected_and_was_not_applied(client: LoomClient, caller: Caller, what: str) -> None:
    loom, kind = REJECTED[what]
    with pytest.raises(LoomRejected) as caught:
        client.run(loom, "x")
    assert isinstance(caught.value.refusal, kind)
    assert caller.engine.effects == []


def test_an_exclusive_loom_is_busy(client: LoomClient) -> None:
    started(client, "exclusive")
    with pytest.raises(LoomRejected) as caught:
        client.run("exclusive", "x")
    assert isinstance(caught.value.refusal, LoomBusy)
    assert caught.value.refusal.retryable is True


def envelope(**raw: Any) -> McpResult:
    return McpResult.from_wire(raw, "x")


def text(value: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": value}]


def test_results_are_read_from_structured_content_or_from_json_text() -> None:
    assert read_result("t", envelope(content=text('{"a": 1}'), structuredContent={"a": 2})) == {"a": 2}
    assert read_result("t", envelope(content=text('{"a": 1}'))) == {"a": 1}
    for content in (text("no JSON"), text("[1]"), []):
        with pytest.raises(MantyxProtocolError, match="no JSON object"):
            read_result("t", envelope(content=content))


@pytest.mark.parametrize(
    "raw",
    [
        {"content": text("Input validation error: 'x' is a required property"), "isError": True},
        {"content": text('{"error": "odd"}'), "isError": True},
        {"content": text('{"error": {"message": "no code"}}'), "isError": True},
        {"content": [], "isError": True},
    ],
)
def test_a_refusal_in_plain_text_is_an_invalid_request_and_no_parse_error_escapes(raw: dict[str, Any]) -> None:
    with pytest.raises(LoomInvalidRequest) as caught:
        read_result("t", envelope(**raw))
    assert (caught.value.code, caught.value.payload, caught.value.retryable) == ("INVALID_REQUEST", None, False)


def test_an_unknown_code_is_kept_as_text() -> None:
    body = {"error": {"code": "NEW_CODE", "message": "m", "retryable": True}}
    with pytest.raises(LoomRequestError) as caught:
        read_result("t", envelope(content=[], structuredContent=body, isError=True))
    assert (caught.value.code, caught.value.retryable, caught.value.payload) == ("NEW_CODE", True, body)


CONFIG: dict[str, Callable[[LoomClient], Any]] = {
    "run_id": lambda client: client.get_run(""),
    "limit": lambda client: client.list_artifacts(limit=201),
    "loomName": lambda client: client.list_artifacts(loom_name="a\nb"),
    "artifact_id, or loom_name and stage_name": lambda client: client.get_artifact("a", loom_name="b", stage_name="c"),
    "mirror_id": lambda client: client.mirror_inspect("x"),
    "input": lambda client: client.run("code", {1, 2}),
    "expected_revision": lambda client: client.resume_run("RUN-1", True),  # type: ignore[arg-type]
    "claim_id": lambda client: client.claim_agent_call("RUN-1", "CALL-1", " "),
    "call_id": lambda client: client.get_agent_call("RUN-1", "x" * 513),
    "timeout": lambda client: client.run("code", "x", timeout=0),
}


@pytest.mark.parametrize("field", CONFIG)
def test_what_cannot_be_is_refused_with_the_name_of_the_field(client: LoomClient, caller: Caller, field: str) -> None:
    with pytest.raises(MantyxConfigError, match=field):
        CONFIG[field](client)
    assert {name for name, _ in caller.calls} <= {"status"}


# ------------------------------------------------------------------------------------------- operations


def paused(client: LoomClient, caller: Caller) -> Any:
    run = started(client, "gated")
    client.pause_run(run.run_id)
    caller.engine.gate.set()
    return wait_until_paused(client, run.run_id)


def wait_until_paused(client: LoomClient, run_id: str) -> Any:
    for _ in range(500):
        run = client.get_run(run_id)
        if run.status == "paused":
            return run
        threading.Event().wait(0.01)
    raise AssertionError("the run never paused")


def test_resuming_with_an_old_revision_is_rejected(client: LoomClient, caller: Caller) -> None:
    run = paused(client, caller)
    with pytest.raises(LoomRejected) as caught:
        client.resume_run(run.run_id, run.revision - 1)
    assert isinstance(caught.value.refusal, LoomConflict)


def test_a_pending_operation_is_asked_about_until_it_is_decided(client: LoomClient, caller: Caller) -> None:
    caller.engine.pending_for = 0.2
    outcome = client.run("code", "x")
    assert outcome.run is not None
    assert (caller.count("run"), outcome.run.status) == (1, "completed")


def test_an_operation_that_is_not_decided_in_time_can_be_saved_and_taken_up(client: LoomClient, caller: Caller) -> None:
    caller.engine.pending_for = 0.5
    with pytest.raises(LoomPending) as caught:
        client.run("code", "x", timeout=0.2)
    saved = caught.value.operation.to_dict()
    outcome = LoomClient(caller, entry="/mcp").resolve(Operation.from_dict(saved), timeout=5.0)
    assert outcome.status is OutcomeStatus.ACCEPTED
    assert len(caller.effects("run")) == 1


def test_an_operation_goes_over_its_own_entry_only(caller: Caller, client: LoomClient) -> None:
    operation = client.prepare_run("code", "x")
    with pytest.raises(MantyxConfigError, match="made for the entry '/mcp'"):
        LoomClient(caller, entry="/mcp/codex").submit(operation)
    assert caller.count("run") == 0


def test_interact_hands_the_action_back_where_no_form_can_be_shown(client: LoomClient) -> None:
    run = started(client, "ask")
    found = client.interact(run.run_id, run.pending_action.id)
    assert (found.status, found.action) == ("unavailable", run.pending_action)
    assert found.run == run
    with pytest.raises(LoomConflict):
        client.interact(run.run_id, "ASK-0")


# ------------------------------------------------------------------------------------------- answers


def test_questions_are_answered_whole_and_in_the_services_form(client: LoomClient, caller: Caller) -> None:
    run = started(client, "ask")
    outcome = client.answer_ask(run.run_id, run.pending_action, {"when": "Tuesday", "note": "no"})
    assert outcome.run is not None
    assert outcome.run.status == "completed"
    assert caller.effects("answer") == [
        [
            {"questionId": "when", "isSkipped": False, "answer": "Tuesday"},
            {"questionId": "note", "isSkipped": False, "answer": "no"},
        ]
    ]


BAD_ANSWERS: dict[str, tuple[Any, str]] = {
    "a missing one": ({"when": "x"}, "'note'.*is missing"),
    "one that cannot be skipped": ({"when": SKIP, "note": SKIP}, "cannot be skipped"),
    "a blank one": ({"when": "  ", "note": SKIP}, "a blank text"),
    "an unknown one": ({"wen": "x", "note": SKIP, "when": "y"}, "did you mean 'when'"),
    "a bool": (True, "must be a mapping"),
    "a text for two": ("x", "must be a mapping"),
}


@pytest.mark.parametrize("what", BAD_ANSWERS)
def test_an_answer_that_does_not_fit_is_refused_before_it_is_sent(
    client: LoomClient, caller: Caller, what: str
) -> None:
    answer, sentence = BAD_ANSWERS[what]
    run = started(client, "ask")
    with pytest.raises(MantyxConfigError, match=sentence):
        client.answer_ask(run.run_id, run.pending_action, answer)
    assert caller.count("answer_ask") == 0


@pytest.mark.parametrize(
    ("answer", "sent"),
    [
        (True, {"isConfirmed": True}),
        (Confirmation(False, "smaller"), {"isConfirmed": False, "feedback": "smaller"}),
    ],
)
def test_a_confirmation_and_its_feedback(client: LoomClient, caller: Caller, answer: Any, sent: Any) -> None:
    run = started(client, "confirm")
    assert run.pending_action.is_confirmation
    assert run.pending_action.context == "Ship 2.4?"
    client.answer_ask(run.run_id, run.pending_action, answer)
    assert caller.effects("answer") == [sent]


# ------------------------------------------------------------------------------------------- following


def test_a_run_is_followed_to_its_end_with_a_persons_answers(client: LoomClient) -> None:
    seen: list[str] = []
    asked: list[str] = []

    def on_action(run: Any, action: Any) -> Any:
        asked.append(action.kind)
        return ANSWERS if action.questions else len(asked) > 1

    run = run_and_wait(
        client, "ask", "x", on_action=on_action, on_update=lambda run: seen.append(run.status), timeout=10
    )
    assert (run.status, asked, seen) == ("completed", ["user_ask_questions"], ["waiting", "completed"])


def test_a_refused_confirmation_is_asked_again_with_a_new_action(client: LoomClient) -> None:
    ids: list[str] = []

    def on_action(run: Any, action: Any) -> bool:
        ids.append(action.id)
        return len(ids) == 2

    assert run_and_wait(client, "confirm", "x", on_action=on_action, timeout=10).status == "completed"
    assert len(set(ids)) == 2


def test_a_dismissed_action_keeps_the_run_waiting_and_is_not_asked_again(client: LoomClient, caller: Caller) -> None:
    asked: list[str] = []

    def dismiss(run: Any, action: Any) -> None:
        asked.append(action.id)

    with pytest.raises(MantyxTimeoutError, match="it goes on"):
        run_and_wait(client, "ask", "x", on_action=dismiss, timeout=0.7)
    assert len(asked) == 1
    assert caller.count("answer_ask") == 0


def test_an_action_that_somebody_else_answered_meanwhile_is_no_failure(client: LoomClient, caller: Caller) -> None:
    other = LoomClient(caller, entry="/mcp")

    def slow(run: Any, action: Any) -> Any:
        other.answer_ask(run.run_id, action, ANSWERS)
        return ANSWERS

    assert run_and_wait(client, "ask", "x", on_action=slow, timeout=10).status == "completed"
    assert len(caller.effects("answer")) == 1


def test_a_cancelled_run_and_a_failed_one_are_told_apart(client: LoomClient, caller: Caller) -> None:
    def cancel(run: Any, action: Any) -> None:
        client.cancel_run(run.run_id)

    with pytest.raises(LoomRunCancelled) as caught:
        run_and_wait(client, "ask", "x", on_action=cancel, timeout=10)
    assert (caught.value.code, caught.value.run.is_terminal) == ("RUN_STOPPED", True)
    run = started(client, "ask")
    caller.restart()
    with pytest.raises(LoomRunFailed) as failed:
        wait_for_run(client, run.run_id, timeout=10)
    assert failed.value.code == "RUN_INTERRUPTED"
    assert not isinstance(failed.value, LoomRunCancelled)


def test_a_run_that_waits_for_a_person_may_outlive_a_restart(client: LoomClient, caller: Caller) -> None:
    run = started(client, "kept")
    caller.restart()
    after = client.get_run(run.run_id)
    assert after.pending_action == run.pending_action
    done = wait_for_run(client, run.run_id, on_action=lambda run, action: ANSWERS, timeout=10)
    assert done.status == "completed"


def test_looking_again_survives_lost_answers(client: LoomClient, caller: Caller) -> None:
    caller.lose("get_run", "after", times=3)
    caller.before("get_run", caller.engine.gate.set)
    assert run_and_wait(client, "gated", "x", timeout=20).status == "completed"


def test_the_operation_is_given_out_before_it_is_submitted(client: LoomClient, caller: Caller) -> None:
    def save(operation: Any) -> None:
        assert caller.count("run") == 0
        saved.append(operation.to_dict())

    saved: list[Any] = []
    run_and_wait(client, "code", "x", on_operation=save, timeout=10)
    assert saved[0]["tool"] == "run"


# ------------------------------------------------------------------------------------------- connecting


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"url": "http://127.0.0.1:1/mcp"}, "url and token go together"),
        ({"token": "x"}, "url and token go together"),
        ({"project": ".", "command": "x"}, "one of project, url and command"),
        ({"url": "http://127.0.0.1:1/internal/mcp", "token": "x"}, "must be an external entry"),
        ({"url": "http://127.0.0.1:1/mcp/", "token": "x"}, "must not end in a slash"),
        ({"url": "http://example.com/mcp", "token": "x"}, "must be on loopback"),
    ],
)
def test_ways_that_do_not_lead_to_a_service_are_refused(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(MantyxConfigError, match=sentence):
        LoomClient.connect(**arguments)


class Answering:
    """An MCP client that answers every call in one way, and notes what it was asked."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.calls: list[str] = []

    def call_tool(self, name: str, arguments: Any = None, **_options: Any) -> McpResult:
        self.calls.append(name)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer if isinstance(self.answer, McpResult) else envelope(**self.answer)


def test_a_result_that_does_not_fit_what_the_service_declares_is_taken_as_it_is() -> None:
    result = envelope(content=[], structuredContent={"service": {"instanceId": "i", "new": 1}})
    mismatch = McpOutputError("no", tool_name="status", result=result)
    assert LoomClient(Answering(mismatch)).status().instance_id == "i"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (McpRequestError("x", method="tools/call", rpc_code=-32602, server_message="Unknown tool"), LoomInvalidRequest),
        (McpStatusError("x", status=400), LoomInvalidRequest),
        (McpStatusError("x", status=503), MantyxNetworkError),
        (McpStatusError("x", status=404), McpStatusError),
        (MantyxTimeoutError("x"), MantyxTimeoutError),
    ],
)
def test_what_the_mcp_layer_says_becomes_what_a_caller_can_act_on(error: Exception, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        LoomClient(Answering(error)).status()


CLAIM = Claim(AgentTask("RUN-1", "CALL-1"), "c", Secret("0wner-t0ken"))


@pytest.mark.parametrize(
    "answer",
    [
        {"content": text("{'ownerToken': '0wner-t0ken'} is not of type 'string'"), "isError": True},
        {
            "content": [],
            "structuredContent": {"error": {"code": "CONFLICT", "message": "0wner-t0ken is stale", "retryable": False}},
            "isError": True,
        },
        McpRequestError("0wner-t0ken", method="tools/call", rpc_code=-32602, server_message="bad: 0wner-t0ken"),
    ],
)
def test_a_service_that_quotes_an_owner_token_does_not_bring_it_into_an_error(answer: Any) -> None:
    with pytest.raises(LoomRequestError) as caught:
        LoomClient(Answering(answer)).call_agent_tool(CLAIM, "t", "echo", {})
    error = caught.value
    assert "***" in error.server_message
    shown = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    assert "0wner-t0ken" not in shown + repr(vars(error))
    assert b"0wner-t0ken" not in pickle.dumps(error)


@pytest.mark.parametrize(
    ("raw", "output"),
    [
        ({"output": 1}, 1),
        ({"output": None, "receipt": {"output": 2}}, None),
        ({"receipt": {"status": "completed", "output": 3}}, 3),
        ({"receipt": {"status": "completed"}}, None),
    ],
)
def test_the_output_of_a_tool_is_found_beside_or_in_its_receipt(raw: dict[str, Any], output: Any) -> None:
    client = LoomClient(Answering({"content": [], "structuredContent": raw}))
    found = client.call_agent_tool(CLAIM, "t", "echo", {})
    assert (found.output, found.raw) == (output, raw)


@pytest.mark.parametrize("revision", [7, "r7", 7.5, {"at": [1]}])
def test_a_revision_goes_back_as_it_came(revision: Any) -> None:
    run = {"runId": "R", "status": "paused, says a newer service", "revision": revision}
    service = {"instanceId": "9f1d2c94-51c3-4d0e-8a1b-6f5f0c2b9e77"}
    client = LoomClient(Answering({"content": [], "structuredContent": {"run": run, "service": service}}))
    view = client.get_run("R")
    assert not view.is_terminal
    operation = client.prepare_resume("R", view.revision)
    assert operation.call_arguments["expectedRevision"] == revision


def test_a_historical_run_is_over_whatever_its_status() -> None:
    run = {"runId": "R", "status": "paused", "historical": True}
    client = LoomClient(Answering({"content": [], "structuredContent": {"run": run}}))
    with pytest.raises(LoomRunFailed) as caught:
        wait_for_run(client, "R", timeout=5)
    assert caught.value.run.historical


def test_an_mcp_client_that_repeats_by_itself_is_refused() -> None:
    with McpClient.http("http://127.0.0.1:1/mcp") as mcp, pytest.raises(MantyxConfigError, match="repeats requests"):
        LoomClient(mcp)
    with McpClient.http("http://127.0.0.1:1/mcp", repeat_after_session_end=False) as mcp:
        LoomClient(mcp, entry="/mcp")


def test_a_run_that_was_accepted_but_is_not_shown_can_be_asked_for_later(client: LoomClient, caller: Caller) -> None:
    shows = caller.engine._find_run
    caller.engine._find_run = lambda **_: {"run": None}  # type: ignore[method-assign]
    caller.engine._with_run = lambda receipt: {"receipt": receipt}  # type: ignore[method-assign]
    with pytest.raises(LoomPending, match="does not show its run yet") as caught:
        run_and_wait(client, "code", "x", timeout=10)
    caller.engine._find_run = shows  # type: ignore[method-assign]
    outcome = client.resolve(caught.value.operation)
    assert outcome.run is not None
    assert len(caller.effects("run")) == 1


def test_what_only_asks_is_asked_again_over_a_new_session(client: LoomClient, caller: Caller) -> None:
    caller.forget_session()
    assert client.list_runs() == ()
    caller.forget_session()
    with pytest.raises(McpSessionGone):
        client.mirror_export(MIRROR, "/p")
    assert caller.effects("export") == []


def test_a_client_within_another_time_limit_shares_the_session(client: LoomClient, caller: Caller) -> None:
    other = client.within(0.5)
    assert other.entry == client.entry
    other.close()
    assert client.status() == other.status()


def test_every_operation_can_be_prepared_saved_and_submitted_by_another(client: LoomClient, caller: Caller) -> None:
    run = started(client, "ask")
    paused_run = paused(client, caller)
    prepared = [
        client.prepare_run("code", "x"),
        client.prepare_pause(run.run_id),
        client.prepare_answer(run.run_id, run.pending_action, ANSWERS),
        client.prepare_resume(paused_run.run_id, paused_run.revision, scope="run"),
        client.prepare_cancel(run.run_id),
    ]
    for operation in prepared:
        saved = json.loads(json.dumps(operation.to_dict()))
        again = Operation.from_dict(saved)
        assert again == operation
        assert LoomClient(caller, entry="/mcp").submit(again).is_accepted


def test_every_error_of_the_wing_pickles_with_what_it_knows(client: LoomClient) -> None:
    operation = client.prepare_run("code", "x")
    run = started(client, "ask")
    refused = request_error("run", "BUSY", "later", retryable=True, payload={"error": {"code": "BUSY"}})
    examples: list[LoomError] = [
        LoomError("m", code="c"),
        *(request_error("t", code, "m") for code in ("INVALID_REQUEST", "NOT_FOUND", "CONFLICT", "BUSY", "NEW")),
        request_error("t", "KERNEL_UNAVAILABLE", "m"),
        LoomOperationError("m", operation=operation),
        LoomRejected("m", operation=operation, refusal=refused),
        LoomIndeterminate("m", operation=operation),
        LoomInstanceChanged("m", operation=operation, run=run),
        LoomPending("m", operation=operation),
        LoomRunFailed("m", run=run, code="c"),
        LoomRunCancelled("m", run=run, code="RUN_STOPPED"),
        LoomTaskLost("m", reason="restarted", run_id="R", call_id="C"),
        LoomTaskClosed("m", reason="limit"),
        LoomDiscoveryError("m"),
        TaskFailed("m"),
    ]
    assert {type(example) for example in examples} == subclasses(LoomError)
    for example in examples:
        again = pickle.loads(pickle.dumps(example))
        assert type(again) is type(example)
        assert str(again) == str(example)
        assert repr(vars(again)) == repr(vars(example))


def subclasses(kind: type[LoomError]) -> set[type[LoomError]]:
    return {kind}.union(*(subclasses(sub) for sub in kind.__subclasses__()))


def test_an_error_pickles_with_its_operation(client: LoomClient, caller: Caller) -> None:
    caller.engine.indeterminate_next = True
    with pytest.raises(LoomError) as caught:
        client.run("code", "x")
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is LoomIndeterminate
    assert again.operation.to_dict() == caught.value.operation.to_dict()  # type: ignore[attr-defined]
