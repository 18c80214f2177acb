"""A caller's own key for a call: the run that carries it is followed, and no other is paid for."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from dataclasses import dataclass
from typing import Any, Callable

import pytest

import mantyx_sync.local.store
import mantyx_sync.reader
import mantyx_sync.recovery
import mantyx_sync.tools.calls
from mantyx_sync import (
    MantyxClient,
    MantyxConfigError,
    MantyxError,
    MantyxNetworkError,
    MantyxParseError,
    MantyxRunCancelled,
    MantyxRunError,
    MantyxScopeError,
    MantyxTimeoutError,
    Run,
    tool,
)
from mantyx_sync.local import LocalServer, ScriptedModel, ToolUse
from mantyx_sync.local.faults import lose_answer
from mantyx_sync.local.model import Failure, Pause
from mantyx_sync.recovery import IDEMPOTENCY_KEY, RECOVERY_KEY
from mantyx_sync.workspace import Workspace
from tests.scripted_runs import (
    RUN_ID,
    SPEC,
    RunServer,
    Script,
    call,
    event,
    lost,
    quick_client,
    quickly,
    refusal,
    reply,
    result,
    stream,
    wait_for,
)
from tests.waiting import wait_until
from tests.wire import Gone, Peer, Request

pytestmark = pytest.mark.usefixtures("no_leaks")
KEY = "task 1:änd more"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    quickly(monkeypatch)
    monkeypatch.setattr(mantyx_sync.tools.calls, "SETTLE_S", 0.05)
    monkeypatch.setattr(mantyx_sync.recovery, "_PAUSE_S", 0.01)


def client_of(server: LocalServer, **settings: Any) -> MantyxClient:
    return MantyxClient(**{**server.client_settings(), **settings})


class Counted:
    """A tool that notes its calls, and may wait in one."""

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.held = threading.Event()
        self.goes_on = threading.Event()
        self.waits_at: int | None = None

        @tool
        def double(n: int) -> int:
            """Double a number."""
            self.calls.append(n)
            if n == self.waits_at:
                self.held.set()
                self.goes_on.wait(20)
            return 2 * n

        self.tool = double


def listed(run_id: str, status: str = "succeeded", key: str | None = KEY, **more: Any) -> dict[str, Any]:
    return {"id": run_id, "status": status, "metadata": {IDEMPOTENCY_KEY: key} if key else {}, **more}


def listing(*runs: dict[str, Any], cursor: str | None = None) -> Script:
    return reply(200, {"runs": list(runs), "nextCursor": cursor})


# ------------------------------------------------------------- what is followed


def test_a_call_that_is_made_again_follows_the_run_that_ended_and_runs_no_tool(
    caplog: pytest.LogCaptureFixture,
) -> None:
    counted = Counted()
    model = ScriptedModel([[ToolUse("double", {"n": 2})], ["Four."]])
    with LocalServer(model) as server:
        for number in range(2):  # by a process of its own each
            with client_of(server) as client, caplog.at_level(logging.INFO, "mantyx_sync"):
                done = client.run_agent(**SPEC, tools=[counted.tool], metadata={"a": "b"}, idempotency_key=KEY)
            assert (done.run_id, done.text, done.turns) == (server.runs[0].id, "Four.", 2)
            assert done.timing is not None
            assert done.timing.is_whole is (number == 0)
        assert len(server.runs) == 1
        assert server.runs[0].metadata == {"a": "b", IDEMPOTENCY_KEY: KEY}
        with client_of(server) as client:
            assert [run.id for run in client.list_runs(metadata={"mantyx_sync.key": KEY})] == [server.runs[0].id]
            assert client.run_agent(**SPEC, tools=[counted.tool], idempotency_key="another").run_id != done.run_id
    assert counted.calls == [2, 2]
    assert f"run {done.run_id}: it has the key of the call" in caplog.text
    assert KEY not in caplog.text


def test_a_run_that_goes_on_is_taken_over_and_only_its_open_calls_are_run() -> None:
    counted = Counted()
    counted.waits_at = 2
    model = ScriptedModel([[ToolUse("double", {"n": 1})], [ToolUse("double", {"n": 2})], ["Six."]])
    with LocalServer(model) as server, client_of(server) as first, client_of(server) as second:
        lost_one = first.start_agent(**SPEC, tools=[counted.tool], idempotency_key=KEY)
        wait_for(counted.held, "the second call does not come")
        lost_one.close()  # as a process does that is killed: the server hears nothing
        counted.waits_at = None
        done = second.run_agent(**SPEC, tools=[counted.tool], idempotency_key=KEY)
        counted.goes_on.set()
        assert (done.text, done.run_id) == ("Six.", lost_one.run_id)
        assert len(server.runs) == 1
        assert counted.calls == [1, 2, 2]
        answers = [event for event in done.events if event.type == "local_tool_result_in"]
        assert len(answers) == 2


@pytest.mark.parametrize("ending", ["failed", "cancelled", "timed out"])
def test_a_run_that_gave_no_answer_stands_for_nothing(ending: str) -> None:
    never = threading.Event()
    reached = threading.Event()
    turns: list[Any] = [[Failure("Broken.", retryable=True)] if ending == "failed" else [Pause(never, reached)]]
    with LocalServer(ScriptedModel(lambda request: turns)) as server, client_of(server) as client:
        kind: type[MantyxError] = {"failed": MantyxRunError, "cancelled": MantyxRunCancelled}.get(
            ending, MantyxTimeoutError
        )
        run = client.start_agent(**SPEC, idempotency_key=KEY, timeout=0.1 if ending == "timed out" else None)
        if ending == "cancelled":
            wait_for(reached, "the model is not asked")
            run.cancel()
        with pytest.raises(kind):
            run.result()
        wait_until(lambda: server.runs[0].is_terminal, "the run does not end")
        turns[:] = [["Well."]]
        for _ in range(2):
            assert client.run_agent(**SPEC, idempotency_key=KEY).text == "Well."
        assert [run.status for run in server.runs] == ["failed" if ending == "failed" else "cancelled", "succeeded"]


def run_all(runs: list[dict[str, Any]], session_id: str | None = None) -> tuple[str, int]:
    """Return which run was followed where the server lists `runs`, and how many were created."""
    path = []

    def any_stream(peer: Peer, request: Request) -> None:
        path.append(request.target.split("/")[-2])
        refusal(404, "not_found")(peer, request)

    created = reply(202, {"runId": "created", "streamUrl": "/x"})
    server = RunServer(listing=[listing(*runs)], create=[created], other=[any_stream])
    with server, quick_client(server) as client:
        run = client.start_agent(**SPEC, idempotency_key=KEY)
        run.close()
        return run.run_id, server.count("create")


def test_of_several_runs_the_one_that_succeeded_counts_else_the_oldest_that_goes_on() -> None:
    newest_first = [listed("d", "running"), listed("c"), listed("b", "queued"), listed("a", "failed")]
    assert run_all(newest_first) == ("c", 0)
    assert run_all([listed("d", "running"), listed("b", "queued"), listed("a", "cancelled")]) == ("b", 0)
    assert run_all([listed("b"), listed("a")]) == ("a", 0)


def test_statuses_of_newer_servers_are_told_apart_by_whether_the_run_is_over() -> None:
    assert run_all([listed("a", "paused")]) == ("a", 0)
    assert run_all([listed("a", "expired", completedAt="2030-01-01T00:00:00Z")]) == ("created", 1)


def test_runs_of_sessions_and_with_other_keys_do_not_count() -> None:
    others = [listed("a", key="task 1"), listed("b", key=None), listed("c", sessionId="ses_1")]
    assert run_all(others) == ("created", 1)


# ------------------------------------------------------------- servers and networks that are odd


def test_a_server_that_does_not_filter_is_looked_through() -> None:
    others = [listed(f"run_{n}", key="other") for n in range(3)]
    pages = [listing(*others, cursor="2"), listing(*others, cursor="3"), listing(*others, listed(RUN_ID, "running"))]
    with RunServer(stream(result(1, "found")), listing=pages) as server, quick_client(server) as client:
        assert client.run_agent(**SPEC, idempotency_key=KEY).text == "found"
        assert server.count("create") == 0
        targets = [request.target for request in server.requests["list"]]
        assert ["cursor=" in target for target in targets] == [False, True, True]
        assert all("limit=200" in target and "metadata=mantyx_sync.key%3Atask" in target for target in targets)


def test_the_search_ends_where_a_server_lists_for_ever() -> None:
    pages = [listing(listed("x", key="other"), cursor="more")]
    with RunServer(stream(result(1, "new")), listing=pages) as server, quick_client(server) as client:
        assert client.run_agent(**SPEC, idempotency_key=KEY).text == "new"
        assert (server.count("list"), server.count("create")) == (10, 1)


@pytest.mark.parametrize("answer", [lost, refusal(500), refusal(403), reply(200, {"runs": [{"id": 1}]})])
def test_nothing_is_created_where_the_server_cannot_be_asked(answer: Script) -> None:
    with RunServer(stream(result(1)), listing=[answer]) as server, quick_client(server) as client:
        with pytest.raises(MantyxError):
            client.run_agent(**SPEC, idempotency_key=KEY)
        assert server.count("create") == 0


def test_a_token_that_may_not_list_runs_is_told_so_and_nothing_is_created() -> None:
    with LocalServer(tokens={"mantyx_at_1": ["runs:write"]}) as server:
        with client_of(server, api_key=None, access_token="mantyx_at_1") as client:
            with pytest.raises(MantyxScopeError) as caught:
                client.run_agent(**SPEC, idempotency_key=KEY)
            assert caught.value.required_scopes == ("runs:read",)
        assert server.runs == []


def test_the_time_of_a_run_bounds_the_search_too() -> None:
    def mute(peer: Peer, _: Request) -> None:
        peer.stay()
        raise Gone

    with RunServer(stream(result(1)), listing=[mute]) as server, quick_client(server) as client:
        with pytest.raises(MantyxTimeoutError):
            client.run_agent(**SPEC, idempotency_key=KEY, timeout=0.2)
        assert server.count("create") == 0


def test_a_lost_answer_to_the_create_is_found_by_the_key_and_not_taken_for_an_earlier_failure() -> None:
    failed = listed("old", "failed")
    pages = [listing(failed), listing(failed), listing(listed(RUN_ID, "running"), failed)]
    server = RunServer(stream(result(1, "found")), create=[lost], listing=pages)
    with server, quick_client(server, recoverable_runs=True) as client:
        assert client.run_agent(**SPEC, idempotency_key=KEY).text == "found"
        assert (server.count("create"), server.count("list")) == (1, 3)
        metadata = server.requests["create"][0].json()["metadata"]
        assert metadata == {IDEMPOTENCY_KEY: KEY}, "one mark is enough"
        assert RECOVERY_KEY not in metadata


def test_a_lost_answer_is_not_found_in_another_session_with_the_same_key() -> None:
    """A key counts among the runs of one session: what others create meanwhile is not taken for it."""
    others = listing(listed("other", "running", sessionId="s_2"), listed(RUN_ID, "running", sessionId=None))
    server = RunServer(stream(result(1, "found")), create=[lost], listing=[listing(), others])
    with server, quick_client(server) as client:
        assert client.run_agent(**SPEC, idempotency_key=KEY).run_id == RUN_ID


def test_a_create_that_is_lost_for_good_says_how_to_go_on() -> None:
    with RunServer(stream(result(1)), create=[lost]) as server, quick_client(server) as client:
        with pytest.raises(MantyxNetworkError, match="same idempotency_key") as caught:
            client.run_agent(**SPEC, idempotency_key=KEY)
        assert KEY not in str(caught.value)


def test_what_a_lost_answer_leads_to_may_have_had_another_process_at_its_calls() -> None:
    counted = Counted()
    script = stream(call(1, "t1", "double", {"n": 1}) + event(2, "local_tool_result_in", toolUseId="t1"), result(3))
    server = RunServer(script, create=[lost], listing=[listing(), listing(listed(RUN_ID, "running"))])
    with server, quick_client(server) as client:
        done = client.run_agent(**SPEC, tools=[counted.tool], idempotency_key=KEY)
        assert done.timing is not None
        assert done.timing.is_whole
        assert server.tool_results == []
    assert counted.calls == []


def test_a_lost_answer_to_a_message_is_found_by_a_mark_of_ours_in_its_session() -> None:
    with LocalServer(ScriptedModel(["Hi."])) as server, client_of(server, recoverable_runs=True) as client:
        session = client.create_session(system_prompt="x")
        server.faults.add(lose_answer("rst"), route="session_messages")
        assert session.send("Hello").text == "Hi."
        assert len(server.runs) == 1


def test_a_lost_answer_of_the_embedded_server_costs_no_second_run() -> None:
    counted = Counted()
    with LocalServer(ScriptedModel([[ToolUse("double", {"n": 2})], ["Four."]])) as server, client_of(server) as client:
        server.faults.add(lose_answer("rst"), route="create")
        assert client.run_agent(**SPEC, tools=[counted.tool], idempotency_key=KEY).text == "Four."
        assert len(server.runs) == 1
    assert counted.calls == [2]


def test_a_run_that_was_found_but_cannot_be_followed_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(self: Any) -> None:
        raise MantyxError("no thread", code="no_thread")

    monkeypatch.setattr(mantyx_sync.reader.RunReader, "start", no_thread)
    for runs, cancels in (((listed(RUN_ID, "running"),), 0), ((), 1)):
        with RunServer(stream(result(1)), listing=[listing(*runs)]) as server, quick_client(server) as client:
            with pytest.raises(MantyxError, match="no thread"):
                client.start_agent(**SPEC, idempotency_key=KEY)
            assert server.count("cancel") == cancels


def wait_and_be_told(run: Run) -> None:
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM)).start()
    run.result()


def loop_and_be_told(run: Run) -> None:
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM)).start()
    list(run)


def leave_the_block(run: Run) -> None:
    with run:
        sys.exit(1)


@pytest.mark.parametrize("ends", [wait_and_be_told, loop_and_be_told, leave_the_block])
@pytest.mark.parametrize("key", [KEY, None])
def test_a_process_that_is_told_to_end_leaves_a_run_with_a_key_to_the_next(
    ends: Callable[[Run], None], key: str | None
) -> None:
    """By `SystemExit` out of the wait, as a worker's signal handler raises it."""
    goes_on = threading.Event()
    with LocalServer(ScriptedModel([[Pause(goes_on), "Done."]])) as server, client_of(server) as client:
        run = client.stream_agent(**SPEC, idempotency_key=key)
        before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
        try:
            with pytest.raises(SystemExit):
                ends(run)
        finally:
            signal.signal(signal.SIGTERM, before)
        assert run.is_over
        assert [request.route for request in server.requests].count("cancel") == (0 if key else 1)
        goes_on.set()
        if key is not None:
            assert client.run_agent(**SPEC, idempotency_key=key).run_id == run.run_id
            assert len(server.runs) == 1


@pytest.mark.parametrize("key", [KEY, None])
def test_a_process_that_is_told_to_end_while_it_creates_a_run_leaves_it_too(
    monkeypatch: pytest.MonkeyPatch, key: str | None
) -> None:
    monkeypatch.setattr(Workspace, "follow", lambda *_, **__: sys.exit(1))
    with LocalServer(ScriptedModel(["Done."])) as server, client_of(server) as client:
        with pytest.raises(SystemExit):
            client.start_agent(**SPEC, idempotency_key=key)
        assert [request.route for request in server.requests].count("cancel") == (0 if key else 1)


@pytest.mark.parametrize(("error", "has_keys"), [(SystemExit, True), (SystemExit, False), (KeyboardInterrupt, True)])
def test_a_loop_that_is_told_to_end_leaves_runs_with_keys_and_no_others(
    error: type[BaseException], has_keys: bool
) -> None:
    def end(*_: Any) -> None:
        raise error

    goes_on = threading.Event()
    with LocalServer(ScriptedModel([[Pause(goes_on), "Done."]])) as server, client_of(server) as client:

        def tell() -> None:
            wait_until(lambda: [r.route for r in server.requests].count("stream") == 2, "the runs are followed")
            os.kill(os.getpid(), signal.SIGTERM)

        before, teller = signal.signal(signal.SIGTERM, end), threading.Thread(target=tell)
        teller.start()
        try:
            with pytest.raises(error):
                list(client.map(["a", "b"], system_prompt="x", idempotency_key=str if has_keys else None))
        finally:
            signal.signal(signal.SIGTERM, before)
        teller.join()
        are_left = has_keys and error is SystemExit
        assert [request.route for request in server.requests].count("cancel") == (0 if are_left else 2)
        goes_on.set()
        if are_left:
            assert len(list(client.map(["a", "b"], system_prompt="x", idempotency_key=str))) == 2
            assert len(server.runs) == 2


# ------------------------------------------------------------- with everything else that a run can be


def test_a_message_is_said_once_in_its_session() -> None:
    echo: Callable[[Any], Any] = lambda request: f"You said: {request.prompt}"  # noqa: E731
    with LocalServer(ScriptedModel([echo])) as server, client_of(server) as client:
        one, other = (client.create_session(system_prompt="x", metadata={"k": "v"}) for _ in range(2))
        client.run_agent(**SPEC, idempotency_key=KEY)
        first = one.send("Hello", idempotency_key=KEY)
        again = client.resume_session(one.id).send("Hello", idempotency_key=KEY)
        assert (again.run_id, again.text) == (first.run_id, "You said: Hello")
        with one.stream("Hello", idempotency_key=KEY) as run:
            assert "".join(run.text_stream) == "You said: Hello"
        assert len(one.history()) == 2
        assert other.send("Bye", idempotency_key=KEY).text == "You said: Bye", "the key is the session's"
        assert len(server.runs) == 3


def test_a_message_is_found_where_the_server_does_not_say_whose_a_run_is(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = mantyx_sync.local.store.Run.to_summary
    monkeypatch.setattr(
        mantyx_sync.local.store.Run,
        "to_summary",
        lambda run: {name: value for name, value in whole(run).items() if name != "sessionId"},
    )
    with LocalServer() as server, client_of(server) as client:
        session = client.create_session(system_prompt="x")
        assert len({session.send("Hello", idempotency_key=KEY).run_id for _ in range(2)}) == 1


def test_an_open_call_of_a_session_is_answered_by_its_own_tools() -> None:
    counted = Counted()
    counted.waits_at = 3
    model = ScriptedModel([[ToolUse("double", {"n": 3})], ["Six."]])
    with LocalServer(model) as server, client_of(server) as first, client_of(server) as second:
        session = first.create_session(system_prompt="x", tools=[counted.tool])
        run = session.stream("Go", idempotency_key=KEY)
        wait_for(counted.held, "the call does not come")
        run.close()
        counted.waits_at = None
        taken_up = second.resume_session(session.id, tools=[counted.tool])
        assert taken_up.send("Go", idempotency_key=KEY).text == "Six."
        counted.goes_on.set()
        taken_up.close()
        assert len(server.runs) == 1


@dataclass
class Answer:
    n: int


def test_the_answer_is_read_as_the_type_and_one_that_does_not_fit_is_not_asked_for_again() -> None:
    texts = ['{"n": 1}', '{"n": "many"}']
    model = ScriptedModel(lambda request: [[texts[int(request.prompt)]]], structured_output="none")
    with LocalServer(model) as server, client_of(server) as client:
        for _ in range(2):
            done = client.run_agent(system_prompt="x", prompt="0", output_type=Answer, idempotency_key="0")
            assert done.output == Answer(1)
            with pytest.raises(MantyxParseError):
                client.run_agent(system_prompt="x", prompt="1", output_type=Answer, idempotency_key="1")
        assert len(server.runs) == 2


def test_a_plan_is_made_once() -> None:
    with LocalServer() as server, client_of(server) as client:
        plans = [
            client.run_plan(system_prompt="x", prompt="Go", steps=["One", "Two"], idempotency_key=KEY).plan
            for _ in range(2)
        ]
        assert plans[0] == plans[1]
        assert plans[0] is not None
        session = client.create_session(system_prompt="x")
        for _ in range(2):
            assert session.run_plan("Go", steps=["One"], idempotency_key=KEY).plan is not None
        assert len(server.runs) == 2


def test_the_events_of_a_run_that_was_found_come_from_its_beginning() -> None:
    with LocalServer(ScriptedModel([["Hel", "lo"]])) as server, client_of(server) as client:
        with client.stream_agent(**SPEC, idempotency_key=KEY) as run:
            first = [(event.seq, event.type) for event in run]
        texts: list[str] = []
        client.run_agent(**SPEC, idempotency_key=KEY, on_assistant_delta=texts.append)
        with client.stream_agent(**SPEC, idempotency_key=KEY) as run:
            assert [(event.seq, event.type) for event in run] == first
        assert "".join(texts) == "Hello"
        assert len(server.runs) == 1


def test_a_loop_that_is_started_again_pays_for_what_is_missing() -> None:
    prompts = [str(n) for n in range(6)]
    echo: Callable[[Any], Any] = lambda request: request.prompt  # noqa: E731
    with LocalServer(ScriptedModel([echo])) as server, client_of(server) as client:

        def texts(items: list[str]) -> list[str]:
            found = client.map(items, system_prompt="x", max_workers=3, idempotency_key=lambda item: f"batch/{item}")
            return [done.text for done in found]

        assert texts(prompts[:4]) == prompts[:4]
        assert texts(prompts) == prompts
        assert len(server.runs) == 6
        keys = {run.metadata[IDEMPOTENCY_KEY] for run in server.runs}
        assert keys == {f"batch/{n}" for n in range(6)}
        with pytest.raises(MantyxConfigError, match="idempotency_key: got ''"):
            list(client.map(["x"], system_prompt="x", idempotency_key=lambda item: ""))
        with pytest.raises(MantyxConfigError, match="idempotency_key: got 'batch', must be a function"):
            client.map(["x"], system_prompt="x", idempotency_key="batch")  # type: ignore[arg-type]


# ------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("", "got ''"),
        (" a", "got ' a'"),
        ("a\n", "printable"),
        ("\ud800", "printable"),
        ("x" * 257, "got 257 characters"),
        (7, "got 7"),
        (b"a", "got bytes"),
    ],
    ids=["empty", "space", "newline", "surrogate", "long", "number", "bytes"],
)
def test_what_is_no_key_is_refused_before_anything_is_sent(key: Any, words: str) -> None:
    with RunServer(stream(result(1))) as server, quick_client(server) as client:
        with pytest.raises(MantyxConfigError, match=words):
            client.run_agent(**SPEC, idempotency_key=key)
        assert server.count("list") == server.count("create") == 0


def test_the_longest_key_is_taken() -> None:
    key = "ä" * 256
    with LocalServer() as server, client_of(server) as client:
        for _ in range(2):
            client.run_agent(**SPEC, idempotency_key=key)
        assert len(server.runs) == 1


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"metadata": {str(n): "x" for n in range(16)}}, "with idempotency_key at most 15"),
        ({"metadata": {str(n): "x" * 256 for n in range(15)}}, "with what idempotency_key adds"),
        ({"metadata": {"mantyx_sync.key": "other"}}, "metadata.mantyx_sync.key: given together"),
        ({"extra_body": {"metadata": ["x"]}}, "metadata: got list, must be a mapping"),
    ],
    ids=["entries", "bytes", "given", "list"],
)
def test_metadata_that_has_no_place_for_the_key_is_refused(more: dict[str, Any], words: str) -> None:
    before = repr(more)
    with RunServer(stream(result(1))) as server, quick_client(server) as client:
        with pytest.raises(MantyxConfigError, match=words):
            client.run_agent(**SPEC, **more, idempotency_key="x" * 256)
        assert server.count("list") == server.count("create") == 0
    assert repr(more) == before
