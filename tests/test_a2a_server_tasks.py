"""The tasks of our A2A server: cancelling, contexts and sessions, callers, limits, the end, and real HTTP."""

from __future__ import annotations

import contextlib
import functools
import gc
import http.client
import json
import os
import socket
import struct
import textwrap
import threading
import time
import weakref
from typing import Any, Dict, Iterator, List, Mapping, Optional

import pytest

from mantyx_sync import ToolError, tool
from mantyx_sync.a2a import A2AClient, A2ARequestError, ask_caller, current_task
from mantyx_sync.a2a.objects import Message, TextPart
from mantyx_sync.a2a.server.calls import ListQuery, Refused, read_list_query
from mantyx_sync.a2a.server.task_store import TaskStore
from mantyx_sync.a2a.server.tasks import TaskRecord
from mantyx_sync.local import LocalServer, ScriptedModel, ToolUse, faults
from tests.a2a_callers import DEADLINE_S, Caller, Failed, connected, hello, make_app, message, wait
from tests.a2a_served import Held, Serve, Served, answer_text, folded, held, record_of, serving
from tests.processes import Child
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("no_leaks")

VERSIONS = ["1.0", "0.3"]


@pytest.fixture
def serve() -> Iterator[Serve]:
    with serving() as make:
        yield make


def state_of(task: Mapping[str, Any]) -> str:
    state: str = task["status"]["state"]
    return state.replace("TASK_STATE_", "").lower()


def in_threads(*calls: Any) -> List[Any]:
    """Make calls at once; return their results or errors in the order of the calls."""
    results: List[Any] = [None] * len(calls)
    barrier = threading.Barrier(len(calls))

    def work(place: int) -> None:
        barrier.wait(DEADLINE_S)
        try:
            results[place] = calls[place]()
        except Exception as error:
            results[place] = error

    threads = [threading.Thread(target=work, args=(place,)) for place in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
        assert not thread.is_alive()
    return results


# ---------------------------------------------------------------------------------------------------- cancelling


@pytest.mark.parametrize("version", VERSIONS)
def test_cancelling_a_task_cancels_its_run(serve: Serve, version: str) -> None:
    holding, served = held(serve)
    caller = served.by(version)
    task = caller.start()
    wait(holding.reached, "the run did not begin")
    stream = caller.stream("tasks/resubscribe" if version == "0.3" else "SubscribeToTask", {"id": task["id"]})
    canceled = caller.cancel(task["id"])
    assert state_of(canceled) == "canceled"
    assert canceled["id"] == task["id"]
    (run,) = served.server.runs
    assert run.status == "cancelled"
    assert state_of(caller.get(task["id"])) == "canceled"
    last = stream.rest()[-1]
    assert state_of(last.get("statusUpdate", last)) == "canceled"
    with pytest.raises(Failed) as failed:
        caller.cancel(task["id"])
    assert failed.value.code == -32002


def test_two_that_cancel_at_once_both_get_the_canceled_task(serve: Serve) -> None:
    for _ in range(5):
        _, served = held(serve)
        task = begun(served)
        results = in_threads(*[functools.partial(served.caller.cancel, task["id"])] * 3)
        for result in results:  # one that came after the end is told so
            assert (isinstance(result, Failed) and result.code == -32002) or state_of(result) == "canceled"
        assert any(not isinstance(result, Failed) for result in results)


@pytest.mark.parametrize("outcome", ["completed", "failed", "canceled"])
def test_a_task_that_is_over_cannot_be_canceled_or_gone_on_with(serve: Serve, outcome: str) -> None:
    from mantyx_sync.local import Failure

    turns: Any = {"completed": ["Done."], "failed": [[Failure("no")]], "canceled": Held().turns}[outcome]
    caller = serve(turns).caller
    task = caller.start()
    if outcome == "canceled":
        caller.cancel(task["id"])
    wait_until(lambda: state_of(caller.get(task["id"])) == outcome)
    before = caller.get(task["id"])
    with pytest.raises(Failed) as failed:
        caller.cancel(task["id"])
    assert failed.value.code == -32002
    for more in ({}, {"contextId": task["contextId"]}):
        with pytest.raises(Failed) as failed:
            caller.send("More", taskId=task["id"], **more)
        assert failed.value.code == -32004
    assert caller.get(task["id"]) == before


def test_a_message_for_a_task_that_asks_for_nothing_is_refused(serve: Serve) -> None:
    holding, served = held(serve)
    task = served.caller.start()
    for more, code in [({}, -32004), ({"contextId": "another"}, -32602), ({"contextId": task["contextId"]}, -32004)]:
        with pytest.raises(Failed) as failed:
            served.caller.send("More", taskId=task["id"], **more)
        assert failed.value.code == code
    with pytest.raises(Failed) as failed:
        served.caller.send("More", taskId="nothing")
    assert failed.value.code == -32001
    holding.let_go.set()


def test_a_task_that_waits_for_its_turn_is_canceled_without_a_run(serve: Serve) -> None:
    holding, served = held(serve, max_running=1)
    first = served.caller.start()
    wait(holding.reached, "the run did not begin")
    second = served.caller.start()
    assert state_of(served.caller.get(second["id"])) == "submitted"
    assert state_of(served.caller.cancel(second["id"])) == "canceled"
    holding.let_go.set()
    wait(record_of(served, first).ended, "the first task did not end")
    assert len(served.server.runs) == 1


class Deaf:
    """A model that does not hear of cancelling until it is let go."""

    model_id = "local:deaf"

    def __init__(self) -> None:
        self.reached, self.let_go = threading.Event(), threading.Event()

    def complete(self, request: Any) -> Iterator[str]:
        self.reached.set()
        self.let_go.wait(DEADLINE_S)
        yield "Late."


def test_a_run_that_does_not_stop_is_left_to_itself(serve: Serve) -> None:
    model = Deaf()
    served = serve(model=model, cancel_timeout=0.05)
    task = served.caller.start()
    wait(model.reached, "the run did not begin")
    assert state_of(served.caller.cancel(task["id"])) == "canceled"
    wait_until(lambda: not task_threads())
    assert not served.server.runs[0].is_terminal  # it was not waited for
    model.let_go.set()
    wait_until(lambda: served.server.runs[0].is_terminal)
    assert state_of(served.caller.get(task["id"])) == "canceled"


def begun(served: Served) -> Dict[str, Any]:
    """Begin a task and wait until the first of its answer has arrived."""
    task = served.caller.start()
    wait_until(lambda: served.caller.get(task["id"]).get("artifacts"))
    return task


def task_threads() -> List[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("mantyx-a2a")]


def test_a_run_that_ends_before_it_is_canceled_is_completed(serve: Serve) -> None:
    holding, served = held(serve)
    task = begun(served)
    wait_for_cancel = threading.Event()
    served.server.faults.add(faults.hold(wait_for_cancel), route="cancel")
    outcomes: List[Any] = []
    canceling = threading.Thread(target=lambda: outcomes.extend(in_threads(lambda: served.caller.cancel(task["id"]))))
    canceling.start()
    holding.let_go.set()
    wait(record_of(served, task).ended, "the task did not end")
    wait_for_cancel.set()
    canceling.join(DEADLINE_S)
    assert isinstance(outcomes[0], Failed)
    assert outcomes[0].code == -32002
    assert answer_text(served.caller.get(task["id"])) == "One two."


def test_a_cancel_that_the_platform_does_not_take_leaves_the_task_going(serve: Serve) -> None:
    _, served = held(serve)
    task = begun(served)
    served.server.faults.add(faults.answer(403, {"error": "forbidden", "message": "no"}), route="cancel")
    with pytest.raises(Failed) as failed:
        served.caller.cancel(task["id"])
    assert failed.value.code == -32603
    assert state_of(served.caller.get(task["id"])) == "working"
    assert state_of(served.caller.cancel(task["id"])) == "canceled"


def test_a_task_canceled_while_its_run_is_created_is_canceled_for_real(serve: Serve) -> None:
    _, served = held(serve, contexts="stateless")
    created = threading.Event()
    served.server.faults.add(faults.hold(created), route="create")
    task = served.caller.start()
    wait_until(lambda: any(request.route == "create" for request in served.server.requests))
    outcomes: List[Any] = []
    canceling = threading.Thread(target=lambda: outcomes.append(served.caller.cancel(task["id"])))
    canceling.start()
    record = record_of(served, task)
    (service,) = served.app._services.values()
    wait(service._runner._jobs[record.id].unwanted, "the cancel did not arrive")
    created.set()
    canceling.join(DEADLINE_S)
    assert state_of(outcomes[0]) == "canceled"
    wait_until(lambda: served.server.runs[0].status == "cancelled")


def test_a_run_that_was_cancelled_elsewhere_is_a_canceled_task(serve: Serve) -> None:
    holding, served = held(serve)
    task = served.caller.start()
    wait(holding.reached, "the run did not begin")
    served.client.cancel_run(served.server.runs[0].id)
    wait(record_of(served, task).ended, "the task did not end")
    assert state_of(served.caller.get(task["id"])) == "canceled"


# ---------------------------------------------------------------------------------------------------- contexts


def heard(served: Served, which: int = -1) -> List[str]:
    """Return what the model was told in a run, but for the system prompt."""
    return [m["content"] for m in served.model.requests[which].messages if m["role"] != "system"]


@pytest.mark.parametrize("version", VERSIONS)
def test_messages_of_a_context_are_one_conversation(serve: Serve, version: str) -> None:
    served = serve(lambda request: [f"Answer to {request.prompt}."])
    caller = served.by(version)
    first = caller.send("one")
    caller.send("elsewhere")
    second = caller.send("two", contextId=first["contextId"])
    assert second["contextId"] == first["contextId"]
    assert second["id"] != first["id"]
    assert heard(served) == ["one", "Answer to one.", "two"]
    assert len(served.server.sessions) == 2
    listed = Caller(served.app).call("ListTasks", {"contextId": first["contextId"]})["tasks"]
    assert [task["id"] for task in listed] == [second["id"], first["id"]]


def test_a_context_may_be_named_by_its_caller(serve: Serve) -> None:
    served = serve()
    served.caller.send("one", contextId="mine")
    served.caller.send("two", contextId="mine")
    assert heard(served) == ["one", "Done.", "two"]


def test_a_conversation_goes_on_after_a_restart(serve: Serve) -> None:
    @tool
    def look() -> str:
        """Look."""
        return "seen"

    served = serve(tools=[look])
    context_id = served.caller.send("one")["contextId"]
    served.app.close()
    again = serve([[ToolUse("look")], ["Done."]], server=served.server, model=served.model, tools=[look])
    served.model.script = ScriptedModel([[ToolUse("look")], ["Seen."]])
    assert answer_text(again.caller.send("two", contextId=context_id)) == "Seen."
    assert heard(served, 1) == ["one", "Done.", "two"]
    (session,) = served.server.sessions
    assert context_id not in json.dumps(session.spec)


def test_agents_and_callers_do_not_share_the_conversation_of_a_context(serve: Serve) -> None:
    served = serve(authorize=lambda environ: environ["HTTP_X_CALLER"])
    elsewhere = {"public_url": "https://other.example", "authorize": lambda environ: environ["HTTP_X_CALLER"]}
    other = serve(server=served.server, model=served.model, **elsewhere)
    ann, bob = Caller(served.app, {"X-Caller": "ann"}), Caller(served.app, {"X-Caller": "bob"})
    ann.send("one", contextId="c")
    for caller in (bob, Caller(other.app, {"X-Caller": "ann"})):
        caller.send("two", contextId="c")
        assert heard(served) == ["two"]
    ann.send("three", contextId="c")
    assert heard(served) == ["one", "Done.", "three"]


def test_a_session_of_something_else_is_never_taken_up(serve: Serve) -> None:
    """A server that does not know the filter by metadata lists whatever it has."""
    served = serve()
    served.client.create_session(system_prompt="Secrets of somebody else.")
    listing = {"sessions": [session.to_summary() for session in served.server.sessions]}
    served.server.faults.add(faults.answer(200, listing), route="sessions_list")
    served.caller.send("one", contextId="c")
    assert served.model.requests[0].messages[0]["content"] == "You help."
    assert len(served.server.sessions) == 2


def test_who_may_not_list_sessions_begins_a_new_one(serve: Serve) -> None:
    served = serve()
    served.server.faults.add(
        faults.answer(403, {"error": "insufficient_scope", "message": "no"}), route="sessions_list"
    )
    assert state_of(served.caller.send("one", contextId="c")) == "completed"
    assert state_of(served.caller.send("two", contextId="c")) == "completed"
    assert heard(served) == ["one", "Done.", "two"]


def test_without_sessions_every_message_is_by_itself(serve: Serve) -> None:
    served = serve(contexts="stateless")
    first = served.caller.send("one")
    second = served.caller.send("two", contextId=first["contextId"])
    assert second["contextId"] == first["contextId"]
    assert heard(served) == ["two"]
    assert served.server.sessions == []


def test_messages_of_one_context_are_run_one_after_the_other(serve: Serve) -> None:
    holding, served = held(serve)
    first = served.caller.start("one", contextId="c")
    wait(holding.reached, "the run did not begin")
    second = served.caller.start("two", contextId="c")
    other = served.caller.start("three", contextId="d")
    wait_until(lambda: state_of(served.caller.get(other["id"])) == "working")
    assert state_of(served.caller.get(second["id"])) == "submitted"
    holding.let_go.set()
    for task in (first, second, other):
        wait(record_of(served, task).ended, "a task did not end")
        assert state_of(served.caller.get(task["id"])) == "completed"
    assert max((heard(served, i) for i in range(3)), key=len) == ["one", "One two.", "two"]


def test_a_session_that_the_platform_has_ended_or_lost_is_begun_anew(serve: Serve) -> None:
    served = serve()
    served.caller.send("one", contextId="c")
    served.client.end_session(served.server.sessions[0].id)
    assert state_of(served.caller.send("two", contextId="c")) == "completed"
    assert heard(served) == ["two"]
    served.server._api.sessions.sessions.clear()
    assert state_of(served.caller.send("three", contextId="c")) == "completed"
    assert heard(served) == ["three"]


def test_a_session_that_is_busy_elsewhere_is_waited_for(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mantyx_sync.a2a.server.runner.BUSY_PAUSES_S", (0.01,) * 500)
    holding, served = held(serve)
    holding.let_go.set()
    context_id = served.caller.send("one")["contextId"]
    holding.let_go.clear()
    session = served.client.resume_session(served.server.sessions[0].id)
    with session.stream("meanwhile") as run:
        task = served.caller.start("two", contextId=context_id)
        wait_until(lambda: sum(request.route == "session_messages" for request in served.server.requests) > 3)
        assert state_of(served.caller.get(task["id"])) == "working"
        holding.let_go.set()
        run.result()
    wait(record_of(served, task).ended, "the task did not end")
    assert state_of(served.caller.get(task["id"])) == "completed"


def test_a_session_that_stays_busy_is_a_failed_task(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mantyx_sync.a2a.server.runner.BUSY_PAUSES_S", (0.01,))
    holding, served = held(serve)
    holding.let_go.set()
    context_id = served.caller.send("one")["contextId"]
    holding.let_go.clear()
    with served.client.resume_session(served.server.sessions[0].id).stream("meanwhile"):
        task = served.caller.send("two", contextId=context_id)
    assert task["status"]["message"]["parts"] == [{"text": "The agent is still busy with the message before this one."}]


def test_a_message_that_is_sent_again_at_once_begins_one_run(serve: Serve) -> None:
    served = serve()
    send = functools.partial(served.caller.call, "SendMessage", hello())
    tasks = in_threads(*[send] * 8)
    assert len({result["task"]["id"] for result in tasks}) == 1
    assert len(served.server.runs) == 1


# ---------------------------------------------------------------------------------------------------- callers


def by_token(environ: Dict[str, Any]) -> Optional[str]:
    token = environ.get("HTTP_AUTHORIZATION", "")
    if token == "Bearer blocked":
        raise PermissionError
    return {"Bearer a": "ann", "Bearer b": "bob"}.get(token)


def test_callers_are_let_in_by_authorize(serve: Serve) -> None:
    served = serve(authorize=by_token)
    body = served.caller.envelope("SendMessage", hello())
    unknown = served.caller.post(body)
    assert unknown.status == 401
    assert unknown.headers["www-authenticate"] == "Bearer"
    assert served.caller.post(body, headers={"Authorization": "Bearer blocked"}).status == 403
    assert served.caller.request("GET", "/.well-known/agent-card.json").status == 200
    assert served.server.runs == []
    assert served.caller.post(body, headers={"Authorization": "Bearer a"}).status == 200


@pytest.mark.parametrize("version", VERSIONS)
def test_tasks_are_visible_to_the_caller_that_made_them_alone(serve: Serve, version: str) -> None:
    _, served = held(serve, authorize=by_token)
    ann = Caller(served.app, {"Authorization": "Bearer a"}, version=version)
    bob = Caller(served.app, {"Authorization": "Bearer b"}, version=version)
    task = ann.start()
    old = version == "0.3"
    for call in (
        lambda: bob.get(task["id"]),
        lambda: bob.cancel(task["id"]),
        lambda: bob.send("More", taskId=task["id"]),
        lambda: bob.stream("tasks/resubscribe" if old else "SubscribeToTask", {"id": task["id"]}),
    ):
        with pytest.raises(Failed) as failed:
            call()
        assert (failed.value.code, failed.value.message) == (-32001, "There is no such task.")
    assert bob.call("ListTasks")["tasks"] == []
    assert [t["id"] for t in ann.call("ListTasks")["tasks"]] == [task["id"]]
    assert state_of(ann.cancel(task["id"])) == "canceled"


def test_the_same_message_of_another_caller_is_another_message(serve: Serve) -> None:
    served = serve(authorize=by_token)
    params = hello()
    ann, bob = (Caller(served.app, {"Authorization": f"Bearer {c}"}) for c in "ab")
    tasks = [caller.call("SendMessage", params)["task"]["id"] for caller in (ann, bob)]
    assert len(set(tasks)) == 2


def test_an_authorize_that_returns_rubbish_is_a_mistake_that_shows(serve: Serve) -> None:
    served = serve(authorize=lambda environ: 7)
    with pytest.raises(TypeError, match="authorize must return a string or None, not int"):
        served.caller.post(served.caller.envelope("SendMessage", hello()))


# ---------------------------------------------------------------------------------------------------- listing


def test_tasks_are_listed_last_changed_first_page_by_page(serve: Serve) -> None:
    served = serve()
    ids = [served.caller.send(str(i), contextId=f"c{i % 2}")["id"] for i in range(5)]
    found, token, sizes = [], "", []
    while True:
        page = served.caller.call("ListTasks", {"pageSize": 2, **({"pageToken": token} if token else {})})
        assert (page["pageSize"], page["totalSize"]) == (2, 5)
        sizes.append(len(page["tasks"]))
        found += [task["id"] for task in page["tasks"]]
        token = page["nextPageToken"]
        if not token:
            break
    assert (found, sizes) == (ids[::-1], [2, 2, 1])


def test_a_listing_shows_what_is_asked_for(serve: Serve) -> None:
    holding, served = held(serve)
    holding.let_go.set()
    done = served.caller.send("one", contextId="c")
    holding.let_go.clear()
    working = served.caller.start("two", contextId="c")
    wait_until(lambda: state_of(served.caller.get(working["id"])) == "working")

    def ids(**params: Any) -> List[str]:
        return [task["id"] for task in served.caller.call("ListTasks", params)["tasks"]]

    assert ids() == [working["id"], done["id"]]
    assert ids(status="TASK_STATE_COMPLETED") == [done["id"]]
    assert ids(status="TASK_STATE_UNSPECIFIED") == ids()
    assert ids(contextId="d") == []
    assert ids(statusTimestampAfter=done["status"]["timestamp"]) == ids()
    assert ids(statusTimestampAfter="2999-01-01T00:00:00Z") == []
    (plain,) = served.caller.call("ListTasks", {"status": "TASK_STATE_COMPLETED", "historyLength": 0})["tasks"]
    assert not {"artifacts", "history"} & plain.keys()
    (full,) = served.caller.call("ListTasks", {"status": "TASK_STATE_COMPLETED", "includeArtifacts": True})["tasks"]
    assert answer_text(full) == "One two."
    holding.let_go.set()


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"pageSize": 0}, "pageSize"),
        ({"pageSize": 101}, "pageSize"),
        ({"pageSize": True}, "pageSize"),
        ({"pageSize": "2"}, "pageSize"),
        ({"pageToken": "nonsense"}, "pageToken"),
        ({"pageToken": "é"}, "pageToken"),
        ({"pageToken": 3}, "pageToken"),
        ({"status": "TASK_STATE_SLEEPING"}, "status"),
        ({"historyLength": -1}, "historyLength"),
        ({"includeArtifacts": "yes"}, "includeArtifacts"),
        ({"contextId": 1}, "contextId"),
        ({"statusTimestampAfter": "yesterday"}, "statusTimestampAfter"),
        ({"statusTimestampAfter": "2026-01-31T12:00:00.Z"}, "statusTimestampAfter"),
    ],
)
def test_listings_that_cannot_be_are_refused(params: Dict[str, Any], field: str) -> None:
    with pytest.raises(Refused) as refused:
        read_list_query(params)
    assert refused.value.code == -32602
    assert [violation[0] for violation in refused.value.violations] == [field]


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("1970-01-01T00:00:01Z", 1.0),
        ("1970-01-01T00:00:01.5Z", 1.5),
        ("1970-01-01T00:00:01.123456789Z", 1.123456),
        ("1970-01-01T02:00:00+02:00", 0.0),
        ("1970-01-01T00:00:00", 0.0),
    ],
)
def test_times_are_read_with_any_number_of_digits(text: str, moment: float) -> None:
    assert read_list_query({"statusTimestampAfter": text}).changed_since == moment


# ---------------------------------------------------------------------------------------------------- limits


def test_more_tasks_than_can_run_wait_in_the_order_in_which_they_came(serve: Serve) -> None:
    holding, served = held(serve, max_running=2)
    tasks = [served.caller.start(str(i)) for i in range(5)]
    wait_until(lambda: len(served.server.runs) == 2)
    assert [state_of(served.caller.get(task["id"])) for task in tasks] == 2 * ["working"] + 3 * ["submitted"]
    assert len(task_threads()) == 2
    holding.let_go.set()
    for task in tasks:
        wait(record_of(served, task).ended, "a task did not end")
    told = [run.spec["prompt"] for run in served.server.runs]
    assert sorted(told[:2]) == ["0", "1"]
    assert sorted(told[2:]) == ["2", "3", "4"]
    wait_until(lambda: not task_threads())


def test_when_no_more_tasks_can_be_kept_messages_are_refused(serve: Serve) -> None:
    holding, served = held(serve, max_tasks=2)
    tasks = [served.caller.start() for _ in range(2)]
    with pytest.raises(Failed, match="try again later") as failed:
        served.caller.start()
    assert failed.value.code == -32603
    holding.let_go.set()
    for task in tasks:
        wait(record_of(served, task).ended, "a task did not end")
    third = served.caller.send()
    assert state_of(third) == "completed"
    gone = [t["id"] for t in tasks if t["id"] not in [x["id"] for x in served.caller.call("ListTasks")["tasks"]]]
    assert len(gone) == 1
    with pytest.raises(Failed) as failed:
        served.caller.get(gone[0])
    assert failed.value.code == -32001


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def stored(store: TaskStore, name: str, size: int = 1) -> TaskRecord:
    said = Message(name, "user", (TextPart("x"),), "c", name)
    record = TaskRecord(said, "", size=size, on_change=store.changed)
    store.add(record)
    return record


def listed(store: TaskStore) -> List[str]:
    return [task.id for task in store.list("", ListQuery())[0]]


def test_tasks_are_kept_for_their_time_after_they_ended() -> None:
    clock = Clock()
    store = TaskStore(max_tasks=10, task_ttl=5.0, max_stored_bytes=100, clock=clock)
    first, second = stored(store, "1"), stored(store, "2")
    first.finish("completed")
    clock.now = 100.0
    assert listed(store) == ["2"]
    assert store.get("1", "") is None
    second.finish("failed")
    clock.now = 104.9
    assert listed(store) == ["2"]
    clock.now = 105.0
    assert listed(store) == []
    assert store._by_message == {}
    assert (store._stored_bytes, store._sizes) == (0, {})


def test_tasks_take_so_much_memory_and_no_more() -> None:
    store = TaskStore(max_tasks=10, task_ttl=5.0, max_stored_bytes=100, clock=Clock())
    for name in "123":
        stored(store, name, 30).finish("completed")
    assert listed(store) == ["3", "2", "1"]
    fourth = stored(store, "4", 50)
    assert listed(store) == ["4", "3"]
    fourth.complete([TextPart("y" * 40)])
    assert listed(store) == ["4"]
    stored(store, "5", 10)
    with pytest.raises(Refused, match="as many tasks under way as it takes"):
        stored(store, "6", 95)


def test_a_task_that_is_over_stays_as_it_is() -> None:
    store = TaskStore(max_tasks=10, task_ttl=5.0, max_stored_bytes=100)
    record = stored(store, "1")
    assert record.start()
    record.write("a")
    assert record.finish("canceled")
    before = record.task()
    record.write("b")
    record.say("c")
    record.complete([TextPart("d")])
    assert not record.finish("failed", "e")
    assert not record.start()
    assert record.task() == before


def test_a_server_without_threads_left_refuses_and_goes_on(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    served = serve()
    start = threading.Thread.start

    def no_thread(self: threading.Thread) -> None:
        if self.name.startswith("mantyx-a2a"):
            raise RuntimeError("can't start new thread")
        start(self)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        with pytest.raises(Failed) as failed:
            served.caller.send()
    assert failed.value.code == -32603
    assert state_of(served.caller.send()) == "completed"


# ---------------------------------------------------------------------------------------------------- the end


def test_closing_ends_tasks_runs_and_streams_and_refuses_what_comes_then(serve: Serve) -> None:
    holding, served = held(serve, max_running=1)
    task = served.caller.start()
    wait(holding.reached, "the run did not begin")
    waiting = served.caller.start()
    streams = [served.caller.stream("SubscribeToTask", {"id": t["id"]}) for t in (task, waiting)]
    records = [record_of(served, t) for t in (task, waiting)]
    served.app.close()
    assert task_threads() == []
    for stream, record in zip(streams, records):
        last = stream.rest()[-1]["statusUpdate"]["status"]
        assert last["state"] == "TASK_STATE_FAILED"
        assert last["message"]["parts"][0]["text"] == "The agent was shut down before the task was done."
        assert record.state == "failed"
    wait_until(lambda: served.server.runs[0].status == "cancelled")
    assert len(served.server.runs) == 1
    with pytest.raises(Failed, match="shut down") as failed:
        served.caller.send()
    assert failed.value.code == -32603
    served.app.close()


def test_an_app_and_its_streams_are_collected(serve: Serve) -> None:
    server = serve().server
    client = connected(server)
    app = make_app(client)
    Caller(app).send()
    wait_until(lambda: not task_threads())
    gone = weakref.ref(app)
    del app
    gc.collect()
    assert gone() is None
    client.close()


# What a child begins with that asks an app of its own.
ASKING = """
from mantyx_sync.a2a import A2AApp
import io, json
app = A2AApp(client, name="n", description="d", public_url="https://x.example", system_prompt="s")

def ask(method, params):
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    environ = {"REQUEST_METHOD": "POST", "PATH_INFO": "/", "CONTENT_TYPE": "application/json",
               "CONTENT_LENGTH": str(len(body)), "wsgi.input": io.BytesIO(body)}
    return json.loads(b"".join(app(environ, lambda *a: None)))["result"]
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_an_app_made_before_a_fork_works_in_the_children() -> None:
    program = """
        def send(text):
            part = {"text": text}
            return ask("SendMessage", {"message": {"messageId": text, "role": "ROLE_USER", "parts": [part]}})["task"]

        say(send("a")["status"]["state"])
        for _ in range(2):
            pid = os.fork()
            if not pid:
                say(send("b")["status"]["state"], ask("ListTasks", {})["totalSize"])
                app.close()
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
        say(send("c")["status"]["state"], ask("ListTasks", {})["totalSize"])
    """
    with LocalServer() as server, Child(server.client_settings(), ASKING + textwrap.dedent(program)) as child:
        child.expect("TASK_STATE_COMPLETED")
        child.expect("TASK_STATE_COMPLETED 1")
        child.expect("TASK_STATE_COMPLETED 1")
        child.expect("TASK_STATE_COMPLETED 2")
        child.ends()


def test_an_interpreter_that_ends_with_tasks_under_way_ends_quietly_and_cancels_their_runs() -> None:
    program = """
        configuration = {"returnImmediately": True}
        message = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
        task = ask("SendMessage", {"message": message, "configuration": configuration})["task"]
        while "artifacts" not in ask("GetTask", {"id": task["id"]}):
            time.sleep(0.005)
        say("working")
    """
    model = ScriptedModel(Held().turns)
    with LocalServer(model) as server, Child(server.client_settings(), ASKING + textwrap.dedent(program)) as child:
        child.expect("working")
        child.ends()
        assert server.runs[0].cancelled.is_set()


# ---------------------------------------------------------------------------------------------------- over HTTP


def post(url: str, method: str, params: Any) -> http.client.HTTPConnection:
    host = url.partition("://")[2]
    connection = http.client.HTTPConnection(host, timeout=DEADLINE_S)
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    connection.request("POST", "/", body, {"Content-Type": "application/json"})
    return connection


def test_an_app_can_be_served_by_itself(serve: Serve) -> None:
    served = serve([["One ", "two."]], public_url=None)
    with served.app.serve() as server:
        assert served.app.url == server.url + "/"
        with contextlib.closing(post(server.url, "SendMessage", hello())) as connection:
            answer = json.loads(connection.getresponse().read())
        assert answer_text(answer["result"]["task"]) == "One two."
        with contextlib.closing(post(server.url, "SendStreamingMessage", hello())) as connection:
            response = connection.getresponse()
            assert response.headers["Content-Type"] == "text/event-stream"
            text = response.read().decode()
            assert text.count("data: ") >= 4
    assert task_threads() == []


def test_a_stream_arrives_piece_by_piece_over_http(serve: Serve) -> None:
    holding, served = held(serve)
    with (
        served.app.serve() as server,
        contextlib.closing(post(server.url, "SendStreamingMessage", hello())) as connection,
    ):
        response = connection.getresponse()
        lines = [response.readline() for _ in range(6)]
        assert b'"One "' in lines[4]
        holding.let_go.set()
        assert b"TASK_STATE_COMPLETED" in response.read()


def test_callers_that_vanish_leave_nothing_behind(serve: Serve) -> None:
    holding, served = held(serve, heartbeat=0.02)
    with served.app.serve() as server:
        task = served.caller.start()
        wait(holding.reached, "the run did not begin")
        record = record_of(served, task)
        connections = [subscribed(server.url, task["id"]) for _ in range(20)]
        assert len(record._followers.items()) == 20
        for connection in connections:  # a reset, not an orderly end
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()
        wait_until(lambda: not record._followers.items())
        holding.let_go.set()
        wait(record.ended, "the task did not end")
        assert answer_text(served.caller.get(task["id"])) == "One two."


def subscribed(url: str, task_id: str) -> socket.socket:
    """Follow a task on a connection of one's own; return when the first event is there."""
    params = {"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": task_id}}
    body = json.dumps(params).encode()
    connection = socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=DEADLINE_S)
    head = (
        f"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    connection.sendall(head.encode() + body)
    received = b""
    while b"data: " not in received:
        piece = connection.recv(65536)
        assert piece
        received += piece
    return connection


def test_a_server_is_closed_whatever_its_callers_do(serve: Serve) -> None:
    _, served = held(serve)
    with served.app.serve() as server:
        silent = socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=DEADLINE_S)
        streaming = post(server.url, "SendStreamingMessage", hello())
        waiting = post(server.url, "SendMessage", hello())
        streaming.getresponse().readline()
        wait_until(lambda: len(served.server.runs) == 2)
        began = time.monotonic()
    assert time.monotonic() - began < 3.0
    assert "FAILED" in waiting.getresponse().read().decode()
    for connection in (silent, streaming, waiting):
        connection.close()
    assert task_threads() == []


def test_ctrl_c_ends_a_server_that_runs_in_the_foreground() -> None:
    holding = Held()
    program = """
        from mantyx_sync.a2a import A2AApp
        import urllib.request
        app = A2AApp(client, name="n", description="d", system_prompt="s")

        def watch():
            while app._public_url is None:
                time.sleep(0.005)
            urllib.request.urlopen(app.url + ".well-known/agent-card.json").read()
            say("serving")

        threading.Thread(target=watch, daemon=True).start()
        sys.stderr = sys.stdout
        app.run()
        say("ended", [t.name for t in threading.enumerate() if "a2a" in t.name])
    """
    with LocalServer(ScriptedModel(holding.turns)) as server, Child(server.client_settings(), program) as child:
        where, serving_now = sorted((child.line(), child.line()))
        assert where.startswith("A2A agent 'n' is served at http://127.0.0.1:")
        assert serving_now == "serving"
        child.press_ctrl_c()
        child.expect("ended []")
        child.ends()


# ---------------------------------------------------------------------------------------------------- our own client


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("streaming", ["auto", False])
def test_our_own_client_and_server_understand_each_other(serve: Serve, version: str, streaming: Any) -> None:
    served = serve(lambda request: [["You said ", request.prompt, "."]], public_url=None)
    with served.app.serve() as server:
        card = served.app.agent_card
        card["supportedInterfaces"] = [i for i in card["supportedInterfaces"] if i["protocolVersion"] == version]
        with A2AClient(server.url, card=card, streaming=streaming) as peer:
            reply = peer.send("one")
            assert (reply.state, reply.text) == ("completed", "You said one.")
            assert peer.send("two", context_id=reply.context_id).text == "You said two."
            with pytest.raises(A2ARequestError) as raised:
                peer.cancel_task(str(reply.task_id or (reply.task and reply.task.id)))
    assert raised.value.rpc_code == -32002
    assert heard(served) == ["one", "You said one.", "two"]


class Elsewhere:
    """A tool that lives elsewhere, as runs see one: how often it is opened and closed is counted."""

    kind, name = "mcp_local", "elsewhere"

    def __init__(self) -> None:
        self.opened = self.closed = 0

    def resolve(self, opening: Any) -> Elsewhere:
        self.opened += 1
        opening.at_end(self._close)
        return self

    def _close(self) -> None:
        self.closed += 1

    def to_wire(self) -> Dict[str, Any]:
        look = {"name": "look", "inputSchema": {"type": "object"}}
        return {"kind": self.kind, "name": self.name, "tools": [look]}

    def register(self, registry: Any) -> None:
        """Answers nothing."""


def test_servers_of_contexts_at_rest_are_closed(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mantyx_sync.a2a.server.conversations.MAX_IDLE_SERVERS", 2)
    server = Elsewhere()
    served = serve(tools=[server])
    for context_id in ("a", "b", "a", "c", "d"):
        assert state_of(served.caller.send(contextId=context_id)) == "completed"
    assert server.opened == 4
    wait_until(lambda: server.closed == 2)
    served.caller.send("again", contextId="a")  # found again, and opened again
    assert server.opened == 5
    assert heard(served)[-1] == "again"
    assert len(heard(served)) == 5
    served.app.close()
    wait_until(lambda: server.closed == 5)


# ---------------------------------------------------------------------------------------------------- asking back


def asking(serve: Serve, **settings: Any) -> Served:
    """Serve an agent that asks which one, and then says what it was told."""
    turns = [
        ["One moment. ", ToolUse("ask_caller", {"question": "Which one?"})],
        [lambda request: f"So it is {request.messages[-1]['content']}."],
    ]
    return serve(turns, tools=[ask_caller], **settings)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_agent_can_ask_its_caller_back(serve: Serve, version: str) -> None:
    served = asking(serve)
    caller = served.by(version)
    asked = caller.send("Book it")
    assert state_of(asked).replace("_", "-") == "input-required"
    assert asked["status"]["message"]["parts"][0]["text"] == "Which one?"
    assert asked["status"]["message"]["taskId"] == asked["id"]
    done = caller.send("The red", {"kind": "text", "text": "one"} if version == "0.3" else "one", taskId=asked["id"])
    assert (done["id"], state_of(done)) == (asked["id"], "completed")
    assert answer_text(done) == "So it is The red\none."
    said = [message["parts"][0]["text"] for message in done["history"]]
    assert said == ["Book it", "One moment. ", "Which one?", "The red"]
    assert len(served.server.runs) == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_a_stream_ends_with_the_question_and_another_begins_with_the_answer(serve: Serve, version: str) -> None:
    caller = asking(serve).by(version)
    method = "message/stream" if version == "0.3" else "SendStreamingMessage"
    events = caller.stream(method, {"message": message("Book it", version=version)}).rest()
    fold = folded(events)
    assert fold.task is not None
    assert fold.task.state == "input-required"
    assert version == "1.0" or events[-1]["final"] is True
    answer = message("The red one", version=version, taskId=fold.task.id, contextId=fold.task.context_id)
    fold = folded(caller.stream(method, {"message": answer}).rest())
    assert fold.task is not None
    assert (fold.task.state, fold.task.artifacts[0].text) == ("completed", "So it is The red one.")
    again = folded(caller.stream(method, {"message": answer}).rest())  # the same once more: its task
    assert again.task is not None
    assert again.task.state == "completed"


def test_who_follows_a_task_that_asks_gets_the_question(serve: Serve) -> None:
    caller = asking(serve, cancel_timeout=300.0).caller  # a tool that waits for an answer keeps no run from ending
    asked = caller.send("Book it")
    (only,) = caller.stream("SubscribeToTask", {"id": asked["id"]}).rest()
    assert only["task"]["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert state_of(caller.cancel(asked["id"])) == "canceled"


def test_an_answer_is_taken_once_and_is_no_file(serve: Serve) -> None:
    caller = asking(serve).caller
    asked = caller.send("Book it")
    with pytest.raises(Failed) as failed:
        caller.send({"raw": "YQ==", "mediaType": "image/png"}, taskId=asked["id"])
    assert failed.value.code == -32602
    answers = in_threads(*[functools.partial(caller.send, word, taskId=asked["id"]) for word in ("red", "blue")])
    (refused,) = [answer for answer in answers if isinstance(answer, Failed)]
    assert refused.code == -32004
    (taken,) = [answer for answer in answers if not isinstance(answer, Failed)]
    assert answer_text(taken) in ("So it is red.", "So it is blue.")


def test_a_question_without_an_answer_is_told_the_model(serve: Serve) -> None:
    @tool
    def ask() -> str:
        """Ask."""
        task = current_task()
        assert task is not None
        return task.ask("Which one?", timeout=0.05)

    served = serve([[ToolUse("ask")], [lambda request: str(request.messages[-1]["content"])]], tools=[ask])
    task = served.caller.send("Book it")
    assert state_of(task) == "input_required"
    wait(record_of(served, task).ended, "the task did not end")
    assert "the caller did not answer in time" in answer_text(served.caller.get(task["id"]))
    with pytest.raises(Failed) as failed:
        served.caller.send("The red one", taskId=task["id"])
    assert failed.value.code == -32004


def test_closing_ends_a_question(serve: Serve) -> None:
    served = asking(serve)
    task = served.caller.send("Book it")
    record = record_of(served, task)
    served.app.close()
    assert record.state == "failed"


def test_outside_of_a_task_there_is_nobody_to_ask() -> None:
    with pytest.raises(ToolError, match="there is nobody to ask"):
        ask_caller("Which one?")


def test_our_own_client_is_asked_and_answers(serve: Serve) -> None:
    served = asking(serve, public_url=None)
    with served.app.serve() as server, A2AClient(server.url) as peer:
        asked = peer.send("Book it")
        assert (asked.needs_input, asked.text) == (True, "Which one?")
        done = peer.send("The red one", task_id=asked.task_id, context_id=asked.context_id)
        assert (done.needs_input, done.text) == (False, "So it is The red one.")
