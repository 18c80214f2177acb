"""Ctrl-C, signals and `close()` of another thread at awkward moments: nothing hangs, and no odd error comes of it."""

from __future__ import annotations

import _thread
import logging
import math
import signal
import threading
import time
from typing import Any, Callable

import pytest
import requests

import mantyx_sync.api
import mantyx_sync.many
from mantyx_sync import MantyxClient, MantyxNetworkError, MantyxTimeoutError, ToolContext, tool
from mantyx_sync.local import LocalServer, Pause, ScriptedModel, ToolUse
from mantyx_sync.local.faults import hold_answer
from mantyx_sync.tools.executor import ToolExecutor
from mantyx_sync.workspace import Workspace
from tests.scripted_runs import (
    SPEC,
    RunServer,
    after_result,
    call,
    delta,
    event,
    quick_client,
    result,
    stream,
    wait_for,
)
from tests.waiting import wait_until
from tests.wire import DEADLINE_S, Peer, Request, head

pytestmark = pytest.mark.usefixtures("no_leaks")


def is_ended(thread_name: str) -> bool:
    return not any(thread.name.startswith(thread_name) for thread in threading.enumerate())


def quiet() -> RunServer:
    return RunServer(stream(delta(1, "Hi"), end="stay"))


def test_closing_while_the_thread_of_a_run_is_being_started_raises_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()
    start = threading.Thread.start

    def slow_start(thread: threading.Thread) -> None:
        start(thread)
        if thread.name.startswith("mantyx-run"):
            started: Any = thread._started  # type: ignore[attr-defined]  # the moment between running and started
            started.clear()
            begun.set()
            go_on.wait(10)
            started.set()

    monkeypatch.setattr(threading.Thread, "start", slow_start)
    with quiet() as server, quick_client(server) as client:
        starter = threading.Thread(target=lambda: client.start_agent(**SPEC).close())
        starter.start()
        assert begun.wait(10)
        try:
            client.close()
        finally:
            go_on.set()
            starter.join(10)


def test_an_executor_that_two_threads_close_at_once_is_closed() -> None:
    class Emptied(dict):  # type: ignore[type-arg]
        def __bool__(self) -> bool:  # another thread takes the last pool behind this look
            return True

    executor = ToolExecutor(1)
    executor._pools = Emptied()
    executor.close()


def test_ctrl_c_between_creating_a_run_and_waiting_for_it_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Workspace, "complete", interrupted)
    with quiet() as server:
        client = quick_client(server)  # not closed before the end of the test: nothing else lets go of the run
        with pytest.raises(KeyboardInterrupt):
            client.run_agent(**SPEC)
        for thread in threading.enumerate():
            if thread.name.startswith("mantyx-run"):
                thread.join(5)
                assert not thread.is_alive()
        client.close()


@pytest.mark.parametrize("options", [{"recoverable_runs": True}, {}], ids=["recoverable", "with a key"])
def test_ctrl_c_while_the_answer_to_a_create_is_awaited_cancels_the_run_that_carries_a_mark(
    options: dict[str, Any],
) -> None:
    named = {} if options else {"idempotency_key": "job-1"}
    gate = threading.Event()
    model = ScriptedModel([[Pause(threading.Event()), "too late"]])
    with LocalServer(model) as server, MantyxClient(**server.client_settings(), **options) as client:
        server.faults.add(hold_answer(gate), route="create")

        def press() -> None:
            wait_until(lambda: server.runs)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)  # ends the wait for the answer

        watcher = threading.Thread(target=press)
        watcher.start()
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            client.run_agent(**SPEC, **named)
        watcher.join()
        assert time.monotonic() - began < 5.0
        wait_until(lambda: server.runs[0].is_terminal)
        assert [run.status for run in server.runs] == ["cancelled"]
        gate.set()


def test_ctrl_c_while_a_run_is_polled_gives_it_up() -> None:
    with quiet() as server, quick_client(server) as client:
        run = client.start_agent(**SPEC)
        polled = run.poll(0.01)
        assert next(event.text for event in polled if event is not None) == "Hi"
        assert next(polled) is None
        threading.Timer(0.05, _thread.interrupt_main).start()
        with pytest.raises(KeyboardInterrupt):
            list(polled)
        assert server.count("cancel") == 1
        assert is_ended("mantyx-run")


def test_a_second_ctrl_c_while_a_run_is_given_up_frees_it_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with quiet() as server, quick_client(server) as client:
        run = client.start_agent(**SPEC)
        monkeypatch.setattr(mantyx_sync.api.WorkspaceAPI, "cancel_run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run.abort()
        assert is_ended("mantyx-run")


def test_giving_a_run_up_tells_whether_the_server_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    with quiet() as server, quick_client(server) as client:
        run = client.start_agent(**SPEC)
        run.abort_timeout = 2.5
        assert run.abort_timeout == 2.5
        timeouts: list[Any] = []

        def unreachable(_api: Any, _run_id: str, timeout: Any, _deadline: float) -> None:
            timeouts.append(timeout)
            raise MantyxNetworkError("the server is away")

        with monkeypatch.context() as patch:
            patch.setattr(mantyx_sync.api.WorkspaceAPI, "cancel_run", unreachable)
            assert run.abort() is False
            assert run.abort(0.1) is False
        assert timeouts == [2.5, 0.1]
        assert run.abort() is True
        assert run.abort() is True
        assert server.count("cancel") == 1, "it was told before"


def test_a_time_out_says_so_if_the_run_may_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: Any) -> None:
        raise MantyxNetworkError("the server is away")

    monkeypatch.setattr(mantyx_sync.api.WorkspaceAPI, "cancel_run", unreachable)
    words = "may go on: the server could not be asked to cancel it"
    with quiet() as server, quick_client(server) as client, pytest.raises(MantyxTimeoutError, match=words):
        client.start_agent(**SPEC).result(timeout=0.05)


def test_a_hook_that_raises_while_a_run_is_given_up_hides_no_time_out() -> None:
    def hook(response: requests.Response, **_: Any) -> None:
        if "/cancel" in response.url:
            raise LookupError

    with requests.Session() as session, quiet() as server:
        session.hooks["response"].append(hook)
        client = MantyxClient(api_key="key", workspace_slug="w", base_url=server.url, session=session)
        with pytest.raises(MantyxTimeoutError):
            client.run_agent(**SPEC, timeout=0.3)
        assert server.count("cancel") == 1
        assert is_ended("mantyx-run")


def test_a_hook_that_raises_while_an_eval_is_given_up_hides_no_ctrl_c() -> None:
    def hook(response: requests.Response, **_: Any) -> None:
        if "/cancel" in response.url:
            raise LookupError

    def interrupt(_: Any) -> None:
        raise KeyboardInterrupt

    cases = [{"name": "one", "input": {"prompt": "Hi"}, "scorers": [{"type": "contains", "value": "x"}]}]
    with requests.Session() as session, LocalServer(ScriptedModel(["Done."])) as server:
        session.hooks["response"].append(hook)
        client = MantyxClient(**server.client_settings(), session=session)
        with pytest.raises(KeyboardInterrupt):
            client.run_eval(dataset={"cases": cases}, agent={"system_prompt": "Help."}, on_event=interrupt)
        assert "eval_cancel" in [request.route for request in server.requests]


def test_ctrl_c_while_a_thread_of_map_is_being_started_ends_that_thread_too(monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def interrupted_start(thread: threading.Thread) -> None:
        start(thread)
        if thread.name.startswith("mantyx-map-1"):
            raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted_start)
    with quiet() as server, quick_client(server) as client:
        with pytest.raises(KeyboardInterrupt):
            list(client.map(["a", "b", "c"], system_prompt="Help.", max_workers=3))
        assert is_ended("mantyx-map")


def test_ctrl_c_before_a_thread_of_map_has_started_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted_start(thread: threading.Thread) -> None:
        raise KeyboardInterrupt

    with quiet() as server, quick_client(server) as client:
        results = client.map(["a", "b", "c"], system_prompt="Help.", max_workers=3)
        monkeypatch.setattr(threading.Thread, "start", interrupted_start)
        with pytest.raises(KeyboardInterrupt):
            list(results)
        monkeypatch.undo()
        assert is_ended("mantyx-map")


# ------------------------------------------------------------- tools at work when a run is given up


class AtWork:
    """Runs whose model calls a tool, twice side by side, that works until the test has ended."""

    def __init__(self) -> None:
        self.begun, self.release = threading.Event(), threading.Event()
        begun: list[str] = []

        @tool(read_only=True)  # so that the server calls for it twice at once
        def work(part: str, context: ToolContext) -> str:
            """Work."""
            begun.append(part)
            if len(begun) >= 2:
                self.begun.set()
            self.release.wait(DEADLINE_S)
            return "too late"

        self.tool = work
        self.model = ScriptedModel([[ToolUse("work", {"part": "a"}), ToolUse("work", {"part": "b"})], ["Done."]])

    def settings(self) -> dict[str, Any]:
        return {"system_prompt": "Help.", "tools": [self.tool]}


def client_of(server: LocalServer) -> MantyxClient:
    return quick_client(server, api_key=server.api_key, workspace_slug=server.workspace_slug)


def loop_then_leave(client: MantyxClient, work: AtWork) -> None:
    with client.stream_agent(**work.settings(), prompt="Hi"):
        wait_for(work.begun, "the tool does not start")


def run_out_of_time(client: MantyxClient, work: AtWork) -> None:
    run = client.start_agent(**work.settings(), prompt="Hi")
    wait_for(work.begun, "the tool does not start")
    with pytest.raises(MantyxTimeoutError):
        run.result(timeout=0.05)


def leave_a_map(client: MantyxClient, work: AtWork) -> None:
    def interrupt() -> None:
        wait_for(work.begun, "the tool does not start")
        _thread.interrupt_main()

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        list(client.map(["Hi"], **work.settings()))
    thread.join()


def leave_an_eval(client: MantyxClient, work: AtWork) -> None:
    def interrupt(event: Any) -> None:
        if event.type == "local_tool_call":
            wait_for(work.begun, "the tool does not start")
            raise KeyboardInterrupt

    cases = [{"name": "one", "input": {"prompt": "Hi"}, "scorers": [{"type": "contains", "value": "x"}]}]
    with pytest.raises(KeyboardInterrupt):
        client.run_eval(
            dataset={"cases": cases}, agent={"system_prompt": "Help."}, tools=[work.tool], on_event=interrupt
        )


@pytest.mark.parametrize("give_up", [loop_then_leave, run_out_of_time, leave_a_map, leave_an_eval])
def test_a_run_that_is_given_up_ends_on_the_server_although_its_tools_are_at_work(
    give_up: Callable[[MantyxClient, AtWork], None],
) -> None:
    """The server waits for calls that are under way before it ends a cancelled run (wire §9): they are answered."""
    work = AtWork()
    with LocalServer(work.model) as server:
        with client_of(server) as client:
            began = time.monotonic()
            give_up(client, work)
            assert time.monotonic() - began < 3.0
            run = server.runs[0]
            assert run.wait(DEADLINE_S), "the run was left going"
            assert run.status == "cancelled"
            answers = [event for event in run.events if event["type"] == "local_tool_result_in"]
            work.release.set()
        assert len(answers) == 2


def after_cancel(server: RunServer) -> None:
    wait_until(lambda: server.count("cancel"), "nobody cancels the run")


def test_a_call_that_was_under_way_when_its_run_is_given_up_is_answered_too() -> None:
    called: list[str] = []

    @tool
    def work(part: str) -> str:
        """Work."""
        called.append(part)
        return part

    late = [
        delta(1, "Hi"),
        after_cancel,
        call(2, "t1", "work", {"part": "a"}),
        after_result("t1"),
        event(3, "cancelled"),
    ]
    with RunServer(stream(*late)) as server, quick_client(server) as client:
        run = client.start_agent(**SPEC, tools=[work])
        wait_until(lambda: run.last_seq == 1, "the run does not begin")
        run.abort(timeout=2.0)
        assert server.tool_results == [{"toolUseId": "t1", "error": "the run was given up"}]
        assert called == []
        assert run.last_seq == 3, "it ended before it was let go of"


def test_a_call_that_was_under_way_when_a_map_is_left_is_answered_too() -> None:
    @tool
    def work(part: str) -> str:
        """Work."""
        raise AssertionError("nobody waits for it")

    def interrupt(_: RunServer) -> None:
        _thread.interrupt_main()

    late = [delta(1, "Hi"), interrupt, after_cancel, call(2, "t1", "work", {"part": "a"}), after_result("t1")]
    with RunServer(stream(*late, event(3, "cancelled"))) as server, quick_client(server) as client:
        with pytest.raises(KeyboardInterrupt):
            list(client.map(["Hi"], system_prompt="Help.", tools=[work]))
        assert server.tool_results == [{"toolUseId": "t1", "error": "the run was given up"}]
        assert server.count("cancel") == 1
        assert is_ended("mantyx-map")


def test_giving_up_a_run_without_tools_waits_for_nothing_more_than_the_answer() -> None:
    with quiet() as server, quick_client(server) as client:
        run = client.start_agent(**SPEC)
        wait_until(lambda: run.last_seq == 1, "the run does not begin")
        began = time.monotonic()
        run.abort(timeout=30.0)
        assert time.monotonic() - began < 5.0
        assert server.count("cancel") == 1


def test_calls_of_a_run_that_is_only_closed_stay_open_for_whoever_attaches() -> None:
    work = AtWork()
    with LocalServer(work.model) as server, client_of(server) as client:
        run = client.start_agent(**work.settings(), prompt="Hi")
        wait_for(work.begun, "the tool does not start")
        run.close()
        assert len(server.runs[0].pending_calls()) == 2
        work.release.set()
        assert client.attach_run(run.run_id, tools=[work.tool]).result(timeout=DEADLINE_S).text == "Done."


def test_giving_up_may_be_waited_for_without_end(caplog: pytest.LogCaptureFixture) -> None:
    work = AtWork()
    with LocalServer(work.model) as server, client_of(server) as client, caplog.at_level(logging.INFO, "mantyx_sync"):
        run = client.start_agent(**work.settings(), prompt="Hi")
        wait_for(work.begun, "the tool does not start")
        assert run.abort(math.inf)
        assert server.runs[0].status == "cancelled"
        work.release.set()
    assert "could not be asked" not in caplog.text


def test_giving_up_a_run_that_was_closed_cancels_it() -> None:
    work = AtWork()
    with LocalServer(work.model) as server, client_of(server) as client:
        run = client.start_agent(**work.settings(), prompt="Hi")
        wait_for(work.begun, "the tool does not start")
        run.close()
        run.abort()
        assert server.runs[0].wait(DEADLINE_S), "the run was left going"
        assert server.runs[0].status == "cancelled"
        work.release.set()


def test_answering_open_calls_takes_no_longer_than_giving_up_may() -> None:
    calls = [call(seq, f"t{seq}", "work", {"part": str(seq)}) for seq in range(1, 40)]
    work = AtWork()
    with RunServer(stream(*calls, end="stay"), tool_result=[trickling] * 99) as server, quick_client(server) as client:
        run = client.start_agent(**work.settings(), prompt="Hi")
        wait_for(work.begun, "the tool does not start")
        began = time.monotonic()
        run.abort()
        assert time.monotonic() - began < 1.0
        work.release.set()


# ------------------------------------------------------------- bad lines


def trickling(peer: Peer, request: Request) -> None:
    """Answer as slowly as a very bad line: each byte well within any time-out for one wait."""
    body = b'{"runId": "run_1"}'
    answer = head(202, content_type="application/json", content_length=len(body)) + body
    for at in range(len(answer)):
        peer.send(answer[at : at + 1])
        threading.Event().wait(0.03)


def test_the_time_of_a_run_bounds_its_creation_over_a_line_where_bytes_trickle_in() -> None:
    with RunServer(create=[trickling]) as server, quick_client(server) as client:
        started = time.monotonic()
        with pytest.raises(MantyxTimeoutError, match="not complete in time"):
            client.run_agent(**SPEC, timeout=0.3)
        assert time.monotonic() - started < 1.0


@pytest.mark.parametrize("length", [{"content_length": 100_000}, {"connection": "close"}])
def test_a_body_that_trickles_in_is_cut_off_at_the_deadline(length: Any) -> None:
    def slow_body(peer: Peer, request: Request) -> None:
        peer.send(head(202, content_type="application/json", **length), b'{"runId": "run_1"}')
        for _ in range(100):
            peer.send(b" ")
            threading.Event().wait(0.03)

    with RunServer(create=[slow_body]) as server, quick_client(server) as client:
        started = time.monotonic()
        with pytest.raises(MantyxTimeoutError, match="not complete in time"):
            client.run_agent(**SPEC, timeout=0.3)
        assert time.monotonic() - started < 1.0


def test_giving_a_run_up_takes_less_than_a_second_over_such_a_line() -> None:
    with RunServer(stream(end="stay"), cancel=[trickling]) as server, quick_client(server) as client:
        run = client.start_agent(**SPEC)
        started = time.monotonic()
        run.abort()
        assert time.monotonic() - started < 1.0
        assert server.count("cancel") == 1


@pytest.mark.parametrize("when", ["before", "while"])
def test_ctrl_c_when_map_has_finished_leaves_no_thread(when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted_stop(crew: Any) -> None:
        crew._is_stopped = when == "while"
        monkeypatch.undo()
        raise KeyboardInterrupt

    with RunServer(stream(result(1))) as server, quick_client(server) as client:
        monkeypatch.setattr(mantyx_sync.many._Crew, "stop", interrupted_stop)
        with pytest.raises(KeyboardInterrupt):
            list(client.map(["a", "b", "c"], system_prompt="Help.", max_workers=3))
        for thread in threading.enumerate():
            if thread.name.startswith("mantyx-map"):
                thread.join(5)
                assert not thread.is_alive()
