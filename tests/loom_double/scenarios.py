"""What can go wrong, as one table: what happens, and what is to be seen afterwards.

The rows are run against the engine in this process (`tests/test_loom_failures.py`) and against the stand-in's process
over real HTTP in both eras (`tests/interop/test_loom_service.py`). In each of them no operation is applied twice, no
effect is repeated, and whoever called gets an outcome to act on.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Protocol, Tuple, Type

import pytest

from mantyx_sync.loom import (
    SKIP,
    LoomClient,
    LoomConflict,
    LoomError,
    LoomIndeterminate,
    LoomInstanceChanged,
    LoomInvalidRequest,
    LoomRejected,
    LoomTask,
    LoomTaskClosed,
    LoomTaskLost,
    LoomWorker,
    Operation,
    TaskFailed,
)

from .engine import MAX_RECEIPTS

ANSWERS: Any = {"when": "Tuesday", "note": SKIP}
READY = {"outcome": "ready"}


class Service(Protocol):
    """A service that things go wrong with, and a client of it."""

    client: LoomClient
    calls: List[Tuple[str, Dict[str, Any]]]
    """Tools and arguments, as they were called."""

    def before(self, tool: str, action: Callable[[], None]) -> None:
        """Do something when `tool` is called next, before it is sent."""

    def lose(self, tool: str, when: str) -> None:
        """Lose the next answer of a tool, `before` the call is carried out, or `after`."""

    def restart(self) -> None:
        """Restart the service, which ends sessions."""

    def forget_sessions(self) -> None:
        """End sessions."""

    def wish(self, **wishes: Any) -> None:
        """Let something happen: `indeterminate`, `pending`, `open_gate`, `let_go`."""

    def effects(self, kind: str) -> List[Any]:
        """What happened so far."""


def count(service: Service, tool: str) -> int:
    """How often a tool was called."""
    return sum(name == tool for name, _ in service.calls)


def started(service: Service, loom: str) -> Any:
    """Start a run that gets to its first wait."""
    run = service.client.run(loom, "x").run
    assert run is not None
    return run


# ------------------------------------------------------------------------------------------- operations


def _paused(service: Service) -> Any:
    run = started(service, "gated")
    service.client.pause_run(run.run_id)
    service.wish(open_gate=True)
    for _ in range(1000):
        run = service.client.get_run(run.run_id)
        if run.status == "paused":
            return run
        threading.Event().wait(0.01)
    raise AssertionError("the run never paused")


def _prepared(service: Service, tool: str) -> Operation:
    client = service.client
    if tool == "run":
        return client.prepare_run("code", "x")
    if tool == "answer_ask":
        run = started(service, "ask")
        return client.prepare_answer(run.run_id, run.pending_action, ANSWERS)
    if tool == "cancel_run":
        return client.prepare_cancel(started(service, "ask").run_id)
    if tool == "pause_run":
        return client.prepare_pause(started(service, "gated").run_id)
    run = _paused(service)
    return client.prepare_resume(run.run_id, run.revision)


OPERATIONS = {
    "run": "run",
    "answer_ask": "answer",
    "cancel_run": "cancel",
    "pause_run": "pause",
    "resume_run": "resume",
}
"""Operation: its effect."""


class Mishap(NamedTuple):
    """What happens to an operation, and what is to be seen."""

    happens: Callable[[Service, str], None]
    raises: Optional[Type[LoomError]]
    applied: int
    submitted: int
    asked: Tuple[str, ...] = ()
    """What was read between the first submission and the next, or the end."""


def _lose(when: str) -> Callable[[Service, str], None]:
    return lambda service, tool: service.lose(tool, when)


def _lose_and_restart(when: str) -> Callable[[Service, str], None]:
    def happens(service: Service, tool: str) -> None:
        service.lose(tool, when)
        service.before("get_operation", service.restart)

    return happens


MISHAPS: Dict[str, Mishap] = {
    "nothing goes wrong": Mishap(lambda service, tool: None, None, 1, 1),
    "the answer is lost before admission": Mishap(_lose("before"), None, 1, 2, ("get_operation",)),
    "the answer is lost after admission": Mishap(_lose("after"), None, 1, 1, ("get_operation",)),
    "the session was over": Mishap(
        lambda service, tool: service.before(tool, service.forget_sessions), None, 1, 2, ("status", "get_operation")
    ),
    "the service is restarted before": Mishap(
        lambda service, tool: service.before(tool, service.restart), LoomInstanceChanged, 0, 1
    ),
    "the answer is lost before admission, then a restart": Mishap(
        _lose_and_restart("before"), LoomInstanceChanged, 0, 1
    ),
    "the answer is lost after admission, then a restart": Mishap(_lose_and_restart("after"), LoomInstanceChanged, 1, 1),
    "the ledger is not sure": Mishap(lambda service, tool: service.wish(indeterminate=True), LoomIndeterminate, 0, 1),
    "it is decided later": Mishap(lambda service, tool: service.wish(pending=0.05), None, 1, 1, ("get_operation",)),
}


def check_operation(service: Service, tool: str, mishap: Mishap, sees_sessions: bool) -> None:
    """Submit an operation to which something happens.

    Args:
        sees_sessions: Whether the service keeps sessions: without them there is none to be over.
    """
    operation = _prepared(service, tool)
    before = len(service.effects(OPERATIONS[tool]))
    begin = len(service.calls)
    mishap.happens(service, tool)
    outcome = service.client.submit(operation, timeout=20)
    if mishap.raises is None:
        assert outcome.require_accepted().is_accepted
    else:
        with pytest.raises(mishap.raises) as caught:
            outcome.require_accepted()
        assert Operation.from_dict(caught.value.operation.to_dict()) == operation  # type: ignore[attr-defined]
    names = [name for name, _ in service.calls[begin:]]
    sent = [arguments for name, arguments in service.calls[begin:] if name == tool]
    is_seen = sees_sessions or "status" not in mishap.asked
    assert len(sent) == (mishap.submitted if is_seen else 1)
    assert all(arguments == sent[0] for arguments in sent), "a repetition is the same"
    if mishap.asked and is_seen:
        assert tuple(names[1 : 1 + len(mishap.asked)]) == mishap.asked
    if mishap.raises is LoomInstanceChanged and tool == "run":
        assert (outcome.run is not None) == (mishap.applied == 1), "a run that was created is found"
    assert len(service.effects(OPERATIONS[tool])) - before == mishap.applied
    again = service.client.resolve(operation, timeout=20)
    assert again.status is outcome.status, "another process learns the same"
    assert len(service.effects(OPERATIONS[tool])) - before == mishap.applied


# ------------------------------------------------------------------------------------------- tasks

STEPS = ("claim_agent_call", "call_agent_tool", "read_agent_asset", "complete_agent_call", "fail_agent_call")
FAULTS: Dict[str, Callable[[Service, str], None]] = {
    "the answer is lost before": _lose("before"),
    "the answer is lost after": _lose("after"),
    "the session was over": lambda service, tool: service.before(tool, service.forget_sessions),
    "the service is restarted": lambda service, tool: service.before(tool, service.restart),
}


class WrongInTask(BaseException):
    """Something that an executor asserts is not so: no worker takes that for a failure of the task."""


def strict(execute: Callable[[LoomTask], Any]) -> Callable[[LoomTask], Any]:
    """Have what an executor asserts fail the test."""

    def run(task: LoomTask) -> Any:
        try:
            return execute(task)
        except AssertionError as error:
            raise WrongInTask from error

    return run


class Work:
    """A worker at a run of the loom `release`, and how its tasks ended."""

    def __init__(self, service: Service, store: Path, loom: str = "release") -> None:
        self.service = service
        self.store = store
        self.run_id: str = started(service, loom).run_id
        self.errors: List[Optional[LoomError]] = []

    def __call__(self, execute: Callable[[LoomTask], Any]) -> bool:
        """Do one task."""
        worker = LoomWorker(
            self.service.client,
            strict(execute),
            store=self.store,
            on_done=lambda _task, error: self.errors.append(error),
        )
        return worker.run_once()

    @property
    def state(self) -> str:
        """The run's status, or why it failed."""
        run = self.service.client.get_run(self.run_id)
        return run.status if run.last_error is None else run.last_error.code

    @property
    def reason(self) -> Optional[str]:
        """Why the last task was lost."""
        assert self.errors, "no task is over"
        error = self.errors[-1]
        return error.reason if isinstance(error, LoomTaskLost) else None

    def counts(self) -> Tuple[int, int, int]:
        """How often the tool, the completion and the failure had their effects."""
        effects = self.service.effects
        return len(effects("echo")), len(effects("complete")), len(effects("fail"))


def check_step(service: Service, store: Path, step: str, fault: str) -> None:
    """Do a task to one step of which something happens."""
    work = Work(service, store)
    is_failure = step == "fail_agent_call"

    def execute(task: LoomTask) -> Any:
        assert task.call_tool("echo", {"word": "hi"}) == {"echo": {"word": "hi"}}
        assert task.read_asset("asset_0").text == "id;size\n1;3\n"
        if is_failure:
            raise TaskFailed("no order can be found")
        return READY

    FAULTS[fault](service, step)
    work(execute)
    sent = [arguments for name, arguments in service.calls if name == step]
    assert all(arguments == sent[0] for arguments in sent), "a repetition is the same"
    if fault != "the service is restarted":
        assert work.state == ("STEP_EXECUTION_FAILED" if is_failure else "completed")
        assert work.counts() == (1, 0, 1) if is_failure else (1, 1, 0)
        assert [type(error) for error in work.errors] == [TaskFailed if is_failure else type(None)]
    else:
        assert work.state == "RUN_INTERRUPTED"
        assert work.counts()[1:] == (0, 0)
        assert len(sent) == 1 or step == "read_agent_asset"  # which may be repeated
        if step != "claim_agent_call":
            assert work.reason == "restarted"
    assert not work(execute), "nothing is left to do"
    assert list(store.iterdir()) == []


def cancelled_during_a_tool(service: Service, store: Path) -> None:
    """The run is cancelled while a tool runs: the executor hears of it and nothing more is sent."""
    work = Work(service, store)

    def execute(task: LoomTask) -> Any:
        cancel = threading.Thread(target=service.client.cancel_run, args=(work.run_id,))
        cancel.start()
        try:
            task.call_tool("long", {"word": "x"})
        finally:
            cancel.join(20)
        raise AssertionError("not reached")

    assert work(execute)
    assert (work.state, work.reason) == ("RUN_STOPPED", "cancelled")
    assert work.counts() == (0, 0, 0)


def claimed_by_another(service: Service, store: Path) -> None:
    """Another worker was quicker: the task is his, and is left alone."""
    work = Work(service, store)
    call = service.client.get_run(work.run_id).pending_agent_call
    assert call is not None
    claim = service.client.claim_agent_call(work.run_id, call.id, "another")
    assert not work(lambda task: pytest.fail("done twice"))
    with pytest.raises(LoomConflict):
        service.client.claim_agent_call(work.run_id, call.id, "a third")
    again = service.client.claim_agent_call(work.run_id, call.id, "another")
    assert (again.task, str(again.owner_token)) == (claim.task, str(claim.owner_token))
    service.client.complete_agent_call(again, READY)
    assert (work.state, work.counts()) == ("completed", (0, 1, 0))


def the_257th_call(service: Service, store: Path) -> None:
    """256 calls of tools are all that a task has; its result is taken nevertheless."""
    work = Work(service, store)

    def execute(task: LoomTask) -> Any:
        for i in range(MAX_RECEIPTS):
            task.call_tool("echo", {"word": str(i)})
        assert task.are_tools_closed
        with pytest.raises(LoomTaskClosed) as caught:
            task.call_tool("echo", {"word": "one more"})
        assert caught.value.reason == "limit"
        return READY

    assert work(execute)
    assert (work.state, work.errors) == ("completed", [None])
    assert work.counts() == (MAX_RECEIPTS, 1, 0)
    assert count(service, "call_agent_tool") == MAX_RECEIPTS


def changed_input_under_an_old_id(service: Service, store: Path) -> None:
    """A call's id belongs to its input: the same again is answered as before, another is a conflict."""
    run = started(service, "release")
    claim = service.client.claim_agent_call(run.run_id, run.pending_agent_call.id, "c")
    call = service.client.call_agent_tool
    first = call(claim, "t", "echo", {"word": "a", "n": 1})
    assert call(claim, "t", "echo", {"n": 1.0, "word": "a"}).output == first.output
    for tool, given in (("echo", {"word": "b"}), ("echo", {"word": "a", "n": True}), ("slow", {"word": "a", "n": 1})):
        with pytest.raises(LoomConflict):
            call(claim, "t", tool, given)
    assert len(service.effects("echo")) == 1


def changed_operation_under_an_old_id(service: Service, store: Path) -> None:
    """An operation's id belongs to what it is: another with it is rejected, and the first one stands."""
    operation = service.client.prepare_run("code", "x")
    service.client.submit(operation).require_accepted()
    other = Operation.from_dict({**operation.to_dict(), "arguments": {"loomName": "code", "input": "y"}})
    with pytest.raises(LoomRejected) as caught:
        service.client.submit(other).require_accepted()
    assert caught.value.reason == "CONFLICT"
    assert service.client.submit(operation).is_accepted
    assert service.effects("run") == ["x"]


def oversize_and_unknown_assets(service: Service, store: Path) -> None:
    """An asset of more than 1 MiB is refused, one that is not declared unknown; the task goes on."""
    work = Work(service, store)

    def execute(task: LoomTask) -> Any:
        assert len(task.read_asset("asset_3").data) == 1024 * 1024
        assert (task.read_asset("asset_1").text, task.read_asset("asset_1").data[:4]) == (None, b"\x89PNG")
        with pytest.raises(LoomInvalidRequest, match="larger than 1 MiB"):
            task.read_asset("asset_2")
        return READY

    assert work(execute)
    assert (work.state, work.errors) == ("completed", [None])


def an_invalid_result(service: Service, store: Path) -> None:
    """There is one attempt: a result that does not fit is not submitted, the task is given up with the reason."""
    work = Work(service, store)
    assert work(lambda task: {"outcome": "maybe"})
    assert (work.state, work.counts()) == ("STEP_EXECUTION_FAILED", (0, 0, 1))
    assert "does not fit the task's output schema" in service.effects("fail")[0]
    assert isinstance(work.errors[0], TaskFailed)
    assert count(service, "complete_agent_call") == 0


def a_result_that_is_too_large(service: Service, store: Path) -> None:
    """What the service cannot take is given up, instead of being handed in for ever."""
    work = Work(service, store)
    assert work(lambda task: {**READY, "more": "x" * (4 * 1024 * 1024)})
    assert (work.state, work.counts()) == ("STEP_EXECUTION_FAILED", (0, 0, 1))
    assert "the service did not take the result" in service.effects("fail")[0]


def an_end_tool_that_is_not_marked(service: Service, store: Path) -> None:
    """What closes the tools is learnt from the refusal of the next call; the task is ours, its result is taken."""
    work = Work(service, store)

    def execute(task: LoomTask) -> Any:
        task.call_tool("seal", {"word": "bye"})
        for _ in range(2):
            with pytest.raises(LoomTaskClosed) as caught:
                task.call_tool("echo", {"word": "late"})
            assert caught.value.reason == "end_tool"
        return READY

    assert work(execute)
    assert (work.state, work.errors, work.counts()) == ("completed", [None], (0, 1, 0))
    assert count(service, "call_agent_tool") == 2, "what was learnt need not be learnt again"


def a_tool_that_breaks(service: Service, store: Path) -> None:
    """It ends the run; that is not reported a second time."""
    work = Work(service, store)
    assert work(lambda task: task.call_tool("broken", {"word": "x"}))
    assert (work.state, work.reason) == ("TOOL_EXECUTION_FAILED", "ended")
    assert count(service, "fail_agent_call") == count(service, "complete_agent_call") == 0


def refused_operations(service: Service, store: Path) -> None:
    """What the service refuses is rejected, with its reason, and was not applied."""
    for loom, code in (("nothing", "NOT_FOUND"), ("broken", "KERNEL_UNAVAILABLE")):
        with pytest.raises(LoomRejected) as caught:
            service.client.run(loom, "x")
        assert caught.value.reason == code
    assert service.effects("run") == []


OTHERS: Tuple[Callable[[Service, Path], None], ...] = (
    cancelled_during_a_tool,
    claimed_by_another,
    the_257th_call,
    changed_input_under_an_old_id,
    changed_operation_under_an_old_id,
    oversize_and_unknown_assets,
    an_invalid_result,
    an_end_tool_that_is_not_marked,
    a_tool_that_breaks,
    refused_operations,
)
