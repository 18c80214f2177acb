"""Tools that live elsewhere: opened before anything is sent, once for all who share them, and closed whatever happens.

The servers here are objects of the test; `test_mcp_run.py` and `test_a2a_run.py` have real ones.
"""

from __future__ import annotations

import gc
import os
import threading
import time
from typing import Any, Callable, Dict, List, Optional

import pytest

from mantyx_sync import (
    MantyxAPIError,
    MantyxClient,
    MantyxConfigError,
    MantyxError,
    MantyxNetworkError,
    MantyxNotFoundError,
    MantyxRunError,
    MantyxTimeoutError,
    RunSpec,
    ToolError,
    define_local_tool,
)
from mantyx_sync.local import Failure, LocalServer, Pause, ScriptedModel, ToolUse
from mantyx_sync.local.faults import answer
from mantyx_sync.tools.results import ToolResult
from tests.processes import Child
from tests.waiting import wait_until
from tests.wire import DEADLINE_S

pytestmark = pytest.mark.usefixtures("no_leaks")

SAY: Dict[str, Any] = {"system_prompt": "Help.", "prompt": "Go."}


class Elsewhere:
    """A ref that has to be resolved: what an MCP server's is to a run, without a server."""

    kind = "mcp_local"

    def __init__(self, name: str = "fs", tools: Any = ("read",), **events: Any) -> None:
        self.name = name
        self.tools = tools
        self.error: Optional[BaseException] = events.get("error")
        self.before: Callable[[Any], None] = events.get("before", lambda opening: None)
        self.closing: Callable[[], None] = events.get("closing", lambda: None)
        self.opened = 0
        self.closed = 0
        self.deadlines: List[Optional[float]] = []
        self.conversations: List[Dict[str, int]] = []
        self._lock = threading.Lock()

    @property
    def is_open(self) -> bool:
        return self.closed < self.opened

    def to_wire(self) -> Dict[str, Any]:
        raise AssertionError("nobody may ask before it is resolved")

    def resolve(self, opening: Any) -> Any:
        is_closed: List[bool] = []

        def close() -> None:
            with self._lock:
                if is_closed:
                    return
                is_closed.append(True)
            self.closing()
            self.closed += 1

        with self._lock:
            self.opened += 1
            self.deadlines.append(opening.deadline)
        opening.at_end(close)
        self.before(opening)
        if self.error is not None:
            raise self.error
        return Resolved(self)


class Resolved:
    kind = "mcp_local"

    def __init__(self, ref: Elsewhere) -> None:
        self.name = ref.name
        self._ref = ref

    def to_wire(self) -> Dict[str, Any]:
        return {"kind": self.kind, "name": self.name, "tools": [{"name": name, "odd": [1]} for name in self._ref.tools]}

    def register(self, registry: Any) -> None:
        conversation: Dict[str, int] = {}
        self._ref.conversations.append(conversation)
        registry.add(self.kind, self.name, Answerer(self._ref, conversation), names=self._ref.tools)


class Answerer:
    timeout = max_concurrency = limiter = None

    def __init__(self, ref: Elsewhere, conversation: Dict[str, int]) -> None:
        self._ref = ref
        self._conversation = conversation

    def answer(self, call: Any, context: Any) -> ToolResult:
        if not self._ref.is_open:
            raise ToolError("it is closed")
        count = self._conversation[call.name] = self._conversation.get(call.name, 0) + 1
        return ToolResult(f"{call.mcp_server}.{call.mcp_tool_name} {count}")


def echo(request: Any) -> str:
    """Answer with the result of the tool, or call the first one there is."""
    last = request.messages[-1]
    return last["content"] if last["role"] == "tool" else ""


def play(asked: Any) -> List[Any]:
    return [[ToolUse(tool.name, {}) for tool in asked.tools[:1]], echo] if asked.tools else ["No tools."]


def serve(script: Any = play, **settings: Any) -> LocalServer:
    return LocalServer(ScriptedModel(script), **settings)


def client_of(server: LocalServer) -> MantyxClient:
    return MantyxClient(**server.client_settings())


def routes(server: LocalServer) -> List[str]:
    return [request.route for request in server.requests]


def wait_closed(ref: Elsewhere) -> None:
    wait_until(lambda: not ref.is_open, f"{ref.name} stays open")


# ------------------------------------------------------------------------------------------- before a run


def test_a_run_resolves_its_tools_before_it_is_created_and_sends_what_came_of_it() -> None:
    with serve() as server, client_of(server) as client:
        seen: List[List[str]] = []
        ref = Elsewhere(before=lambda opening: seen.append(routes(server)))
        result = client.run_agent(**SAY, tools=[ref, define_local_tool(name="own", execute=str)])
        assert result.text == "fs.read 1"
        assert seen == [[]]
        (sent, own) = server.runs[0].spec["tools"]
        assert sent == {"kind": "mcp_local", "name": "fs", "tools": [{"name": "read", "odd": [1]}]}
        assert own == {"kind": "local", "name": "own"}
        wait_closed(ref)
    assert ref.opened == 1


def test_several_are_resolved_at_once() -> None:
    together = threading.Barrier(3)
    refs = [Elsewhere(name, (name,), before=lambda opening: together.wait(DEADLINE_S)) for name in ("a", "b", "c")]
    with serve() as server, client_of(server) as client:
        assert client.run_agent(**SAY, tools=refs).text == "a.a 1"
        assert [tool["name"] for tool in server.runs[0].spec["tools"]] == ["a", "b", "c"]


def test_a_failure_names_the_server_keeps_its_class_sends_nothing_and_closes_what_was_opened() -> None:
    error = MantyxNetworkError("connection refused.", sent=False)
    others = [Elsewhere("one", ("a",)), Elsewhere("two", ("b",))]
    broken = Elsewhere("broken", error=error)
    with serve() as server, client_of(server) as client:
        with pytest.raises(MantyxNetworkError) as caught:
            client.run_agent(**SAY, tools=[others[0], broken, others[1]])
        assert str(caught.value) == "tools[1] (MCP server 'broken'): connection refused. Nothing was sent."
        assert caught.value.sent is False
        assert caught.value is not error
        assert caught.value.__cause__ is error
        assert routes(server) == []
        for ref in (*others, broken):
            wait_closed(ref)


def test_a_failure_of_another_kind_is_told_with_its_class() -> None:
    with serve() as server, client_of(server) as client, pytest.raises(MantyxError) as caught:
        client.run_agent(**SAY, tools=[Elsewhere(error=OSError("no such thing"))])
    assert str(caught.value) == "tools[0] (MCP server 'fs'): OSError: no such thing. Nothing was sent."
    assert caught.value.code == "tool_unavailable"


def test_one_failure_does_not_wait_for_the_others() -> None:
    gave_up = threading.Event()

    def wait(opening: Any) -> None:
        opening.at_end(gave_up.set)
        assert gave_up.wait(DEADLINE_S)

    slow = Elsewhere("slow", before=wait)
    with serve() as server, client_of(server) as client, pytest.raises(MantyxError, match="MCP server 'broken'"):
        client.run_agent(**SAY, tools=[slow, Elsewhere("broken", error=MantyxError("down"))])
    assert gave_up.is_set()
    wait_closed(slow)


def test_the_timeout_of_a_run_bounds_the_resolution() -> None:
    ref = Elsewhere(error=MantyxTimeoutError("not ready"))
    with serve() as server, client_of(server) as client:
        start = time.monotonic()
        with pytest.raises(MantyxTimeoutError, match=r"tools\[0\] \(MCP server 'fs'\): not ready"):
            client.run_agent(**SAY, tools=[ref], timeout=30)
        with pytest.raises(MantyxTimeoutError):
            client.run_agent(**SAY, tools=[ref])
    assert ref.deadlines[0] is not None
    assert start + 29 < ref.deadlines[0] < time.monotonic() + 30
    assert ref.deadlines[1] is None


def test_a_server_that_ignores_the_deadline_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mantyx_sync.opened_tools._GRACE_S", 0.0)
    gave_up = threading.Event()

    def hang(opening: Any) -> None:
        opening.at_end(gave_up.set)
        gave_up.wait(DEADLINE_S)

    with serve() as server, client_of(server) as client:
        ref = Elsewhere(before=hang)
        with pytest.raises(MantyxTimeoutError) as caught:
            client.run_agent(**SAY, tools=[Elsewhere("quick", ("a",)), ref], timeout=0.1)
        assert str(caught.value) == "tools[1] (MCP server 'fs'): not ready in time. Nothing was sent."
        assert routes(server) == []
        wait_closed(ref)


def test_bad_input_is_refused_before_a_server_is_started() -> None:
    ref = Elsewhere()
    with serve() as server, client_of(server) as client:
        for wrong in ({"prompt": None}, {"prompt": "x", "messages": [{"role": "user", "content": "y"}]}):
            with pytest.raises(MantyxConfigError):
                client.run_agent(RunSpec(**{**SAY, "tools": [ref], **wrong}))
        with pytest.raises(MantyxConfigError):
            client.run_agent(**SAY, tools=[ref], timeout=0)
    assert ref.opened == 0


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ([Elsewhere("web", ("find", "read"))], "tools[1] (MCP server 'web'): the model would know one of its tools as"),
        ([define_local_tool(name="read", execute=str)], "like one of tools[0] (MCP server 'fs')"),
        ([{"kind": "mcp_local", "name": "web", "tools": [{"name": "read"}]}], "tools[1] (MCP server 'web')"),
    ],
)
def test_names_that_collide_are_reported_before_the_run_starts(others: List[Any], said: str) -> None:
    ref = Elsewhere("fs", ("list", "read"))
    with serve() as server, client_of(server) as client:
        with pytest.raises(MantyxConfigError) as caught:
            client.run_agent(**SAY, tools=[ref, *others])
        assert said in str(caught.value)
        assert "'read'" in str(caught.value)
        assert "prefix=, or leave one out with tool_filter=" in str(caught.value)
        assert routes(server) == []
        wait_closed(ref)


def test_a_ref_serves_any_number_of_runs_at_once_each_with_a_connection_of_its_own() -> None:
    ref, count = Elsewhere(), 8
    together = threading.Barrier(count)
    ref.before = lambda opening: together.wait(DEADLINE_S)
    texts: List[str] = []
    with serve() as server, client_of(server) as client:

        def work() -> None:
            texts.append(client.run_agent(**SAY, tools=[ref]).text)

        threads = [threading.Thread(target=work) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_S)
        wait_closed(ref)
    assert texts == ["fs.read 1"] * count
    assert (ref.opened, ref.closed) == (count, count)


# ------------------------------------------------------------------------------------------- after it

HANG = [Pause(threading.Event())]


def _succeeds(client: MantyxClient, ref: Elsewhere) -> None:
    assert client.run_agent(**SAY, tools=[ref]).text == "fs.read 1"


def _fails(client: MantyxClient, ref: Elsewhere) -> None:
    with pytest.raises(MantyxRunError):
        client.run_agent(system_prompt="x", prompt="fail", tools=[ref])


def _callback_raises(client: MantyxClient, ref: Elsewhere) -> None:
    def fail(event: Any) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        client.run_agent(**SAY, tools=[ref], on_event=fail)


def _block_is_left(client: MantyxClient, ref: Elsewhere) -> None:
    with client.stream_agent(system_prompt="x", prompt="hang", tools=[ref]):
        pass


def _times_out(client: MantyxClient, ref: Elsewhere) -> None:
    with pytest.raises(MantyxTimeoutError):
        client.run_agent(system_prompt="x", prompt="hang", tools=[ref], timeout=0.3)


def _is_cancelled(client: MantyxClient, ref: Elsewhere) -> None:
    run = client.start_agent(system_prompt="x", prompt="hang", tools=[ref])
    run.cancel()
    with pytest.raises(MantyxRunError):
        run.result()


def _is_closed(client: MantyxClient, ref: Elsewhere) -> None:
    client.start_agent(system_prompt="x", prompt="hang", tools=[ref]).close()


def _is_dropped(client: MantyxClient, ref: Elsewhere) -> None:
    client.stream_agent(system_prompt="x", prompt="hang", tools=[ref])
    gc.collect()


def _client_is_closed(client: MantyxClient, ref: Elsewhere) -> None:
    run = client.start_agent(system_prompt="x", prompt="hang", tools=[ref])
    client.close()
    assert not ref.is_open
    assert run.is_done


def _creation_fails(client: MantyxClient, ref: Elsewhere) -> None:
    with pytest.raises(MantyxAPIError):
        client.run_agent(system_prompt="x", prompt="x", model_id="none", tools=[ref])


ENDS = [
    _succeeds,
    _fails,
    _callback_raises,
    _block_is_left,
    _times_out,
    _is_cancelled,
    _is_closed,
    _is_dropped,
    _client_is_closed,
    _creation_fails,
]


@pytest.mark.parametrize("end", ENDS)
def test_what_was_opened_for_a_run_is_closed_however_it_ends(end: Callable[[MantyxClient, Elsewhere], None]) -> None:
    def script(asked: Any) -> Any:
        return {"fail": [Failure("x")], "hang": [HANG]}.get(asked.prompt) or play(asked)

    ref = Elsewhere()
    with serve(script, models=[{"id": "local:scripted"}]) as server, client_of(server) as client:
        end(client, ref)
        wait_closed(ref)
    assert ref.opened == 1


def test_a_server_that_takes_its_time_to_end_delays_no_result_but_a_client_waits_for_it() -> None:
    go_on = threading.Event()

    def closing() -> None:
        assert go_on.wait(DEADLINE_S)

    ref = Elsewhere(closing=closing)
    with serve() as server:
        client = client_of(server)
        assert client.run_agent(**SAY, tools=[ref]).text == "fs.read 1"
        assert ref.is_open
        threading.Timer(0.05, go_on.set).start()
        client.close()
        assert not ref.is_open


def test_a_server_that_cannot_be_closed_is_logged_and_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise ValueError("stuck")

    others = Elsewhere("other", ("a",))
    with serve() as server, client_of(server) as client:
        assert client.run_agent(**SAY, tools=[Elsewhere(closing=fail), others]).text == "fs.read 1"
        wait_closed(others)
    assert "MCP server 'fs': closing it failed" in caplog.text


# ------------------------------------------------------------------------------------------- sessions


def test_a_session_resolves_once_and_stays_connected_until_it_ends() -> None:
    ref = Elsewhere()
    with serve() as server, client_of(server) as client:
        session = client.create_session(system_prompt="Help.", tools=[ref])
        assert [session.send("One").text, session.send("Two").text] == ["fs.read 1", "fs.read 2"]
        assert (ref.opened, ref.is_open, len(ref.conversations)) == (1, True, 1)
        session.end()
        assert not ref.is_open
        assert session.info().status == "ended"


def test_a_message_with_tools_of_its_own_resolves_them_for_its_run() -> None:
    ref, own = Elsewhere(), Elsewhere("web", ("find",))
    with serve() as server, client_of(server) as client:
        session = client.create_session(system_prompt="Help.", tools=[ref])
        assert session.send("One", tools=[own]).text == "web.find 1"
        wait_closed(own)
        assert session.send("Two", tools=[own, ref]).text == "web.find 1"
        wait_until(lambda: ref.closed == 1, "the message's own connection stays open")
        assert session.send("Three").text == "fs.read 1"
        session.close()
    assert (ref.opened, own.opened) == (2, 2)
    assert (ref.closed, own.closed) == (2, 2)


@pytest.mark.parametrize("end", ["close", "leave", "drop", "client"])
def test_a_session_that_is_let_go_of_closes_its_servers(end: str) -> None:
    ref = Elsewhere()
    with serve() as server, client_of(server) as client:
        session = client.create_session(system_prompt="Help.", tools=[ref])
        session.send("One")
        if end == "close":
            session.close()
        elif end == "leave":
            with session:
                pass
        elif end == "drop":
            del session
            gc.collect()
        else:
            client.close()
        wait_closed(ref)


def test_a_message_after_that_connects_anew() -> None:
    ref = Elsewhere()
    with serve() as server, client_of(server) as client:
        session = client.create_session(system_prompt="Help.", tools=[ref])
        session.close()
        assert session.send("One").text == "fs.read 1"
        assert (ref.opened, ref.is_open) == (2, True)
        session.close()
        assert not ref.is_open


def test_a_dropped_session_stays_connected_for_its_run_that_goes_on() -> None:
    start, ref = threading.Event(), Elsewhere()
    script = [lambda asked: [ToolUse("read", {})] if start.wait(DEADLINE_S) else [], echo]
    with serve(script) as server, client_of(server) as client:
        run = client.create_session(system_prompt="Help.", tools=[ref]).stream("One")
        gc.collect()
        assert ref.is_open
        start.set()
        assert run.result().text == "fs.read 1"
        wait_closed(ref)


def test_a_session_that_cannot_be_created_closes_what_it_opened() -> None:
    ref = Elsewhere()
    with serve() as server, client_of(server) as client:
        server.faults.add(answer(400, {"error": "bad"}), route="sessions_create")
        with pytest.raises(MantyxAPIError):
            client.create_session(system_prompt="Help.", tools=[ref])
        wait_closed(ref)
        with pytest.raises(MantyxNotFoundError):
            client.resume_session("none", tools=[ref])
    assert ref.opened == 1, "a session that does not exist needs no servers"


def test_a_resumed_session_resolves_once_and_sends_the_catalog_with_each_message() -> None:
    ref = Elsewhere()
    with serve() as server, client_of(server) as client:
        known = client.create_session(system_prompt="Help.")
        session = client.resume_session(known.id, tools=[ref])
        assert [session.send("One").text, session.send("Two").text] == ["fs.read 1", "fs.read 2"]
        assert [run.spec["tools"][0]["tools"] for run in server.runs] == [[{"name": "read", "odd": [1]}]] * 2
        assert ref.opened == 1
        session.end()
        assert not ref.is_open


def test_a_session_that_is_gone_closes_its_servers_too() -> None:
    ref = Elsewhere()
    with serve() as server, client_of(server) as client:
        session = client.create_session(system_prompt="Help.", tools=[ref])
        server.faults.add(answer(404, {"error": "not_found"}), route="session_end")
        with pytest.raises(MantyxNotFoundError):
            session.end()
        assert not ref.is_open


# ------------------------------------------------------------------------------------------- many, evals, attached


def test_many_runs_resolve_once_and_each_is_a_conversation_of_its_own() -> None:
    ref = Elsewhere()
    with serve() as server, client_of(server) as client:
        found = client.map(["a", "b", "c"], system_prompt="Help.", tools=[ref])
        assert ref.opened == 0
        assert [result.text for result in found] == ["fs.read 1"] * 3
        assert (ref.opened, len(ref.conversations)) == (1, 3)
        wait_closed(ref)


def test_an_item_with_tools_of_its_own_resolves_them_for_its_run() -> None:
    ref, own = Elsewhere(), Elsewhere("web", ("find",))
    with serve() as server, client_of(server) as client:
        items: List[Any] = ["a", {"prompt": "b", "tools": [own]}]
        assert [r.text for r in client.map(items, system_prompt="x", tools=[ref])] == ["fs.read 1", "web.find 1"]
        wait_closed(ref)
        wait_closed(own)


@pytest.mark.parametrize("way", ["left", "failed", "closed"])
def test_a_loop_over_many_runs_that_ends_early_closes_the_servers(way: str) -> None:
    ref = Elsewhere()
    with serve([Failure("x")] if way == "failed" else play) as server, client_of(server) as client:
        found = client.map(["a", "b", "c"], system_prompt="Help.", tools=[ref], max_workers=1)
        if way == "failed":
            with pytest.raises(MantyxRunError):
                list(found)
        else:
            assert next(found).text == "fs.read 1"
            assert ref.is_open
            found.close() if way == "closed" else None
        del found
        gc.collect()
        wait_closed(ref)


def test_tools_that_many_runs_share_and_that_cannot_be_resolved_are_one_error() -> None:
    with serve() as server, client_of(server) as client:
        found = client.map(["a", "b"], system_prompt="x", tools=[Elsewhere(error=MantyxError("down"))])
        with pytest.raises(MantyxError, match="MCP server 'fs'"):
            next(found)
        assert routes(server) == []


DATASET = {"cases": [{"input": {"prompt": "One"}}, {"input": {"prompt": "Two"}}]}


@pytest.mark.parametrize("inline", [True, False])
def test_an_eval_resolves_once_and_each_case_is_a_conversation_of_its_own(inline: bool) -> None:
    ref = Elsewhere()
    agent: Dict[str, Any] = {"agent": {"systemPrompt": "Help."}} if inline else {"agent_id": "stored"}
    with serve(agents={"stored": {"systemPrompt": "Help."}}) as server, client_of(server) as client:
        detail = client.run_eval(dataset=DATASET, tools=[ref], **agent)
        assert [result.final_text for result in detail.results] == ["fs.read 1"] * 2
        assert ref.opened == 1
        wait_closed(ref)


def test_an_eval_that_nobody_follows_is_told_the_catalog() -> None:
    ref = Elsewhere()
    with serve(["Done."]) as server, client_of(server) as client:
        client.create_eval_run(dataset=DATASET, agent={"system_prompt": "x", "tools": [ref]})
        wait_closed(ref)
        assert server.eval_runs[0].wait(DEADLINE_S)
        assert server.runs[0].spec["tools"][0]["tools"] == [{"name": "read", "odd": [1]}]


def test_a_run_that_is_taken_over_has_its_tools_resolved_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mantyx_sync.tools.calls.SETTLE_S", 0.05)
    ref = Elsewhere()
    with serve() as server, client_of(server) as client:
        wire = Resolved(ref).to_wire()
        run_id = client.request("POST", "/agent-runs", json={"systemPrompt": "x", "prompt": "y", "tools": [wire]})[
            "runId"
        ]
        assert client.attach_run(run_id, tools=[ref]).result().text == "fs.read 1"
        assert ref.opened == 1
        wait_closed(ref)
        with pytest.raises(MantyxError, match="MCP server 'fs'"):
            client.attach_run(run_id, tools=[Elsewhere(error=MantyxError("down"))])


# ------------------------------------------------------------------------------------------- processes

PROGRAM = """
from tests.test_tool_resolution import Elsewhere
class Told(Elsewhere):
    def resolve(self, opening):
        told = []
        def tell():
            if os.getpid() not in told:
                told.append(os.getpid())
                say("closed", os.getpid() == parent)
        opening.at_end(tell)
        return super().resolve(opening)
parent = os.getpid()
"""


def test_what_is_open_is_closed_at_the_end_of_the_process() -> None:
    with serve() as server:
        program = PROGRAM + 'session = client.create_session(system_prompt="x", tools=[Told()])\nsay("open")'
        with Child(server.client_settings(), program) as child:
            child.expect("open")
            child.expect("closed True")
            child.ends()


def test_ctrl_c_ends_the_wait_for_a_server_and_closes_it() -> None:
    program = """
        def hang(opening):
            say("opening")
            gave_up = threading.Event()
            opening.at_end(gave_up.set)
            gave_up.wait(20)
        try:
            client.run_agent(system_prompt="x", prompt="y", tools=[Told(before=hang)])
        except KeyboardInterrupt:
            say("interrupted", time.monotonic() - pressed_at < 1)
            client.close()
    """
    with serve() as server:
        import textwrap

        with Child(server.client_settings(), PROGRAM + textwrap.dedent(program)) as child:
            child.expect("opening")
            child.press_ctrl_c()
            said = sorted([child.line(), child.line()])
            assert said == ["closed True", "interrupted True"]
            child.ends()
        assert routes(server) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_of_a_fork_uses_its_sessions_tools_and_closes_what_is_its_own() -> None:
    program = """
        session = client.create_session(system_prompt="x", tools=[Told()])
        say(session.send("One").text)
        child = os.fork()
        if not child:
            say(session.send("Two").text)
            session.close()
            say("left")
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        say(session.send("Three").text)
        session.close()
    """
    with serve() as server:
        import textwrap

        with Child(server.client_settings(), PROGRAM + textwrap.dedent(program)) as child:
            for line in ("fs.read 1", "fs.read 2", "closed False", "left", "fs.read 2", "closed True"):
                child.expect(line)
            child.ends()


# ------------------------------------------------------------------------------------------- odd moments


def test_a_client_that_is_closed_while_a_server_is_being_opened_ends_the_wait() -> None:
    opening, gave_up = threading.Event(), threading.Event()

    def hang(lent: Any) -> None:
        lent.at_end(gave_up.set)
        opening.set()
        assert gave_up.wait(DEADLINE_S)

    errors: List[BaseException] = []
    with serve() as server, client_of(server) as client:

        def work() -> None:
            try:
                client.run_agent(**SAY, tools=[Elsewhere(before=hang)])
            except MantyxError as error:
                errors.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        assert opening.wait(DEADLINE_S)
        client.close()
        thread.join(DEADLINE_S)
        assert routes(server) == []
    assert [getattr(error, "code", None) for error in errors] == ["closed"]


def test_without_threads_there_is_an_error_and_nothing_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def fail(thread: threading.Thread) -> None:
        if thread.name == "mantyx-tools-second":
            raise RuntimeError("can't start new thread")
        start(thread)

    first = Elsewhere("first", ("a",))
    with serve() as server, client_of(server) as client:
        monkeypatch.setattr(threading.Thread, "start", fail)
        with pytest.raises(MantyxError, match="no thread can be started to open them") as caught:
            client.run_agent(**SAY, tools=[first, Elsewhere("second", ("b",))])
        assert caught.value.code == "no_thread"
        assert routes(server) == []
        wait_closed(first)
