"""Sessions: what a program sees of `AgentSession` and the client's session methods, over real HTTP."""

from __future__ import annotations

import copy
import gc
import inspect
import json
import os
import pickle
import threading
from typing import Any, Callable

import pytest

from mantyx_sync import (
    LoopDetection,
    MantyxClient,
    MantyxConfigError,
    MantyxConflictError,
    MantyxNetworkError,
    MantyxNotFoundError,
    MantyxProtocolError,
    MantyxTimeoutError,
    ToolBudget,
    input_file,
    tool,
)
from mantyx_sync.local import LocalServer, Pause, ToolUse
from mantyx_sync.local.faults import answer, hold, lose_answer
from mantyx_sync.recovery import RECOVERY_KEY
from mantyx_sync.session import AgentSession
from mantyx_sync.session_info import SessionEventsPage, SessionInfo, SessionPage
from tests.plain_http import Recorder
from tests.processes import Child
from tests.scripted_runs import quick_client, quickly
from tests.waiting import wait_until
from tests.wire import DEADLINE_S

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    quickly(monkeypatch)


@tool
def get_order(order_id: str) -> str:
    """Look up one order."""
    return f"order {order_id}"


@tool
def get_price(item: str) -> str:
    """Look up a price."""
    return f"price of {item}"


def echo(request: Any) -> str:
    """Answer a prompt with its words, and a tool's result with the result."""
    last = request.messages[-1]
    return last["content"] if last["role"] == "tool" else f"You said: {request.prompt}"


def serve(turns: Any = echo, **settings: Any) -> LocalServer:
    """Return a server whose model says the turns one after the other, whichever run asks; or calls `turns` for each."""
    rest = iter(turns if isinstance(turns, list) else ())

    def say(request: Any) -> Any:
        turn = turns if callable(turns) else next(rest)
        return turn(request) if callable(turn) else turn

    return LocalServer(Recorder([say] * 4), **settings)


def client_of(server: LocalServer, **settings: Any) -> MantyxClient:
    return quick_client(server, api_key=server.api_key, workspace_slug=server.workspace_slug, **settings)


def bodies(server: LocalServer, route: str = "session_messages") -> list[dict[str, Any]]:
    """Return what was sent to a route, in order."""
    return [json.loads(request.body) for request in server.requests if request.route == route]


def sessions_of(client: MantyxClient, count: int, **metadata: str) -> list[str]:
    """Create sessions; return their ids, the last used first, as listings have them."""
    ids = [client.create_session(system_prompt="x", metadata={"n": str(n), **metadata}).id for n in range(count)]
    return ids[::-1]


class Held:
    """A session whose first run goes on until the test lets it end."""

    def __init__(self) -> None:
        self.go, self.reached = threading.Event(), threading.Event()
        self._has_begun = False

    def turn(self, request: Any) -> Any:
        if self._has_begun:
            return "Later."
        self._has_begun = True
        return ["Begun. ", Pause(self.go, self.reached), "Ended."]

    def release(self, server: LocalServer) -> None:
        """Let the first run end, if it has not ended otherwise."""
        self.go.set()
        wait_until(lambda: server.runs[0].status != "running", "the first run does not end")


# ------------------------------------------------------------- conversation


def test_a_session_remembers_what_was_said() -> None:
    with serve() as server, client_of(server) as client:
        session = client.create_session(system_prompt="You help.", name="helper", metadata={"customer": "acme"})
        assert session.send("One?").text == "You said: One?"
        assert session.send("Two?").text == "You said: Two?"
        assert bodies(server, "sessions_create") == [
            {"systemPrompt": "You help.", "name": "helper", "metadata": {"customer": "acme"}}
        ]
        assert bodies(server) == [{"prompt": "One?"}, {"prompt": "Two?"}]
        assert [run.session_id for run in server.runs] == [session.id] * 2
        assert session.id in repr(session)
        shown = [message["content"] for message in server.model.requests[-1].messages]
    assert shown == ["You help.", "One?", "You said: One?", "Two?"]


def test_many_messages_one_after_the_other_are_never_in_each_others_way() -> None:
    with serve() as server, client_of(server) as client:
        session = client.create_session(system_prompt="x")
        for number in range(40):
            if number % 2:
                assert session.send(str(number)).text == f"You said: {number}"
            else:
                assert "".join(session.stream(str(number)).text_stream) == f"You said: {number}"


def test_the_sessions_tools_answer_and_its_model_sees_them_on_every_message() -> None:
    turns = [[ToolUse("get_order", {"order_id": "17"})], echo] * 2
    with serve(turns) as server, client_of(server) as client:
        session = client.create_session(system_prompt="x", tools=[get_order])
        assert session.send("17?").text == "order 17"
        assert session.stream("17?").result().text == "order 17"
        assert bodies(server) == [{"prompt": "17?"}] * 2, "the session's own tools need not go out again"


@pytest.mark.parametrize(
    ("args", "keywords", "sent"),
    [
        (("Hello",), {}, {"prompt": "Hello"}),
        ((), {"prompt": "Hello"}, {"prompt": "Hello"}),
        (([{"role": "user", "content": "Hi"}],), {}, {"messages": [{"role": "user", "content": "Hi"}]}),
        ((), {"messages": [{"role": "user", "content": "Hi"}]}, {"messages": [{"role": "user", "content": "Hi"}]}),
    ],
    ids=["text", "prompt", "messages in place", "messages"],
)
def test_a_message_is_a_text_or_several_turns(
    args: tuple[Any, ...], keywords: dict[str, Any], sent: dict[str, Any]
) -> None:
    with serve() as server, client_of(server) as client:
        session = client.create_session(system_prompt="x")
        assert session.send(*args, **keywords).text.startswith("You said: H")
        assert bodies(server) == [sent]


def test_files_go_along_with_a_message_and_leave_their_description_in_the_history() -> None:
    with serve() as server, client_of(server) as client:
        session = client.create_session(system_prompt="x")
        session.send("Read this.", attachments=[input_file(b"12345", filename="a.pdf")])
        [message] = bodies(server)[0]["messages"]
        assert message["attachments"][0]["data"] == "MTIzNDU="
        [kept] = session.history()[0]["attachments"]
        assert (kept["filename"], kept["mimeType"], kept["size"]) == ("a.pdf", "application/pdf", 5)
        assert session.events(full=True)[0].data["attachments"] == [kept]


def test_a_stream_hands_out_its_events_and_then_its_result() -> None:
    with serve() as server, client_of(server) as client:
        session = client.create_session(system_prompt="x")
        with session.stream("Hi") as run:
            events = list(run)
            assert events[-1].type == "result"
            assert [event.seq for event in events] == list(range(1, len(events) + 1))
            assert run.result().text == "You said: Hi"


def test_a_session_tells_its_tools_and_its_run_while_that_goes_on() -> None:
    held = Held()
    with serve(held.turn) as server, client_of(server) as client:
        session = client.create_session(system_prompt="x", tools=[get_order])
        assert ([ref.name for ref in session.tools], session.run) == (["get_order"], None)
        with session.stream("Hi") as run:
            assert session.run is run
            held.release(server)
            run.result()
        assert session.run is None
        assert client.resume_session(session.id).tools == ()


def test_callbacks_see_the_events_and_the_text_of_a_message() -> None:
    kinds: list[str] = []
    texts: list[str] = []
    with serve() as server, client_of(server) as client:
        session = client.create_session(system_prompt="x")
        session.send("Hi", on_event=lambda event: kinds.append(event.type), on_assistant_delta=texts.append)
    assert "".join(texts) == "You said: Hi"
    assert kinds[-1] == "result"


def test_run_plan_returns_the_plan_and_leaves_the_conversation_alone() -> None:
    with serve() as server, client_of(server) as client:
        session = client.create_session(system_prompt="x")
        found = session.run_plan("Clean up.", steps=["Sweep", "Mop"], brief="A clean flat")
        assert found.plan is not None
        assert [step.title for step in found.plan.steps] == ["Sweep", "Mop"]
        assert bodies(server)[0]["plan"] == {"planOnly": True, "steps": ["Sweep", "Mop"], "brief": "A clean flat"}
        assert [message["role"] for message in session.history()] == ["user"]
        session.send("Go on.")
        assert "plan" not in bodies(server)[1]


def test_the_time_of_a_message_bounds_its_run() -> None:
    held = Held()
    with serve(held.turn) as server, client_of(server) as client:
        session = client.create_session(system_prompt="x")
        with pytest.raises(MantyxTimeoutError) as caught:
            session.send("One", timeout=0.2)
        assert caught.value.run_id == server.runs[0].id
        wait_until(lambda: server.runs[0].status == "cancelled", "the run was left going")
        assert session.send("Two").text == "Later."


# ------------------------------------------------------------- overrides

OVERRIDES: list[tuple[str, Any, Any]] = [
    ("reasoning_level", 7, 7),
    ("model_id", "m2", "m2"),
    ("fallback_model_id", "m3", "m3"),
    ("budgets", {"maxToolTurns": 3}, {"maxToolTurns": 3}),
    ("output_schema", {"schema": {"type": "object"}}, {"schema": {"type": "object"}}),
    ("loop_detection", False, False),
    ("loop_detection", LoopDetection(2, 4), {"consecutiveThreshold": 2, "hardCutoffThreshold": 4}),
    ("tool_budgets", {}, {}),
    ("tool_budgets", {"get_order": ToolBudget(1)}, {"get_order": {"maxCalls": 1}}),
    ("supervisor", False, False),
    ("supervisor", {"interval": 3}, {"interval": 3}),
    ("plan", False, False),
    ("metadata", {"turn": "1"}, {"turn": "1"}),
    ("extra_body", {"brandNew": 1}, 1),
]


@pytest.mark.parametrize(("name", "value", "sent"), OVERRIDES)
def test_an_override_goes_out_with_its_message_and_does_not_stick(name: str, value: Any, sent: Any) -> None:
    words = name.split("_")
    wire = "brandNew" if name == "extra_body" else words[0] + "".join(word.title() for word in words[1:])
    with serve() as server, client_of(server) as client:
        session = client.create_session(
            system_prompt="x", reasoning_level="low", loop_detection=LoopDetection(5, 9), metadata={"of": "session"}
        )
        session.send("One", **{name: value})
        session.send("Two")
        assert bodies(server) == [{"prompt": "One", wire: sent}, {"prompt": "Two"}]
        first, second = (run.spec for run in server.runs)
        if name not in ("metadata", "extra_body"):
            assert first[wire] == sent
        assert second["reasoningLevel"] == "low"
        assert second["loopDetection"] == {"consecutiveThreshold": 5, "hardCutoffThreshold": 9}
        assert server.runs[1].metadata == {"of": "session"}
        assert "brandNew" not in second


def test_the_tools_of_a_message_stand_for_the_sessions_once() -> None:
    turns = [
        [ToolUse("get_price", {"item": "pen"})],
        echo,
        [ToolUse("get_order", {"order_id": "17"})],
        echo,
    ]
    with serve(turns) as server, client_of(server) as client:
        session = client.create_session(system_prompt="x", tools=[get_order])
        assert session.send("pen?", tools=[get_price]).text == "price of pen"
        assert session.send("17?").text == "order 17"
        assert [[ref["name"] for ref in run.spec["tools"]] for run in server.runs] == [["get_price"], ["get_order"]]
        assert "tools" not in bodies(server)[1]


@pytest.mark.parametrize(
    ("args", "keywords", "error", "words"),
    [
        ((), {}, MantyxConfigError, "prompt: not given"),
        (("a",), {"prompt": "b"}, MantyxConfigError, "prompt: given twice"),
        (("a",), {"messages": [{"role": "user", "content": "b"}]}, MantyxConfigError, "messages"),
        (("a",), {"reasoning_level": 101}, MantyxConfigError, "reasoning_level"),
        (("a",), {"supervizor": False}, TypeError, "did you mean 'supervisor'"),
        ((17,), {}, MantyxConfigError, "messages"),
        (("a",), {"timeout": 0}, MantyxConfigError, "timeout"),
        (("a",), {"output_type": object()}, MantyxConfigError, "output_type"),
        (("a",), {"output_type": int, "output_schema": {"schema": {}}}, MantyxConfigError, "output_schema"),
    ],
)
def test_a_message_that_is_not_allowed_is_refused_and_nothing_is_sent(
    args: tuple[Any, ...], keywords: dict[str, Any], error: type[Exception], words: str
) -> None:
    with serve() as server, client_of(server) as client:
        session = client.create_session(system_prompt="x")
        for call in (session.send, session.stream):
            with pytest.raises(error, match=words):
                call(*args, **keywords)
        assert bodies(server) == []
        assert session.send("works").text == "You said: works", "a refused message is in nobody's way"


def test_a_session_is_created_without_anything_said() -> None:
    with serve() as server, client_of(server) as client:
        with pytest.raises(MantyxConfigError, match="prompt: a session is created without"):
            client.create_session(system_prompt="x", prompt="y")
        with pytest.raises(MantyxConfigError, match="agent_id: not given"):
            client.create_session(name="x")
        assert not server.requests


@pytest.mark.parametrize("method", ["send", "stream", "run_plan"])
def test_help_shows_every_field_a_message_may_have(method: str) -> None:
    names = inspect.signature(getattr(AgentSession, method)).parameters
    assert {"message", "tools", "loop_detection", "metadata", "timeout", "attachments"} <= names.keys()
    assert "overrides" not in names
    assert "prompt" not in inspect.signature(MantyxClient.create_session).parameters


# ------------------------------------------------------------- resume


def test_a_session_is_taken_up_by_its_id_with_tools_bound_anew() -> None:
    turns = [[ToolUse("get_order", {"order_id": "1"})], echo, [ToolUse("get_order", {"order_id": "2"})], echo]
    with serve(turns) as server:
        with client_of(server) as client:
            session_id = client.create_session(system_prompt="x", tools=[get_order]).id

        @tool(name="get_order")
        def newer(order_id: str) -> str:
            """Look up one order."""
            return f"newer {order_id}"

        with client_of(server) as client:
            session = client.resume_session(session_id, tools=[newer])
            assert session.send("1?").text == "newer 1"
            assert session.stream("2?").result().text == "newer 2"
            sent = bodies(server)
            assert [[ref["name"] for ref in body["tools"]] for body in sent] == [["get_order"]] * 2


def test_a_session_is_taken_up_in_another_process() -> None:
    turns = ["Welcome.", [ToolUse("whoami", {})], echo]
    with serve(turns) as server, client_of(server) as client:
        session = client.create_session(system_prompt="x")
        session.send("Hello")
        program = f"""
            @tool
            def whoami() -> str:
                "Tell the process."
                return str(os.getpid())

            session = client.resume_session({session.id!r}, tools=[whoami])
            say(len(session.history()))
            say(session.send("Who?").text == str(os.getpid()))
            client.close()
        """
        with Child(server.client_settings(), program) as child:
            child.expect("2")
            child.expect("True")
            child.ends()
        assert len(session.history()) == 4


@pytest.mark.parametrize("tools", [None, []], ids=["None", "empty"])
def test_a_session_taken_up_without_tools_leaves_its_own_alone(tools: Any) -> None:
    with serve() as server, client_of(server) as client:
        session_id = client.create_session(system_prompt="x", tools=[get_order]).id
        client.resume_session(session_id, tools=tools).send("Hi")
        assert bodies(server) == [{"prompt": "Hi"}]
        assert [ref["name"] for ref in server.runs[0].spec["tools"]] == ["get_order"]


def test_a_session_that_is_not_there_is_not_found() -> None:
    with serve() as server, client_of(server) as client:
        for call in (
            client.resume_session,
            client.get_session_info,
            client.get_session_events,
            client.get_session_events_page,
            client.end_session,
        ):
            with pytest.raises(MantyxNotFoundError) as caught:
                call("ses/../none")
            assert caught.value.status == 404
        assert {request.target.rpartition("agent-sessions/")[2].partition("/")[0] for request in server.requests} == {
            "ses%2F..%2Fnone"
        }


@pytest.mark.parametrize("session_id", ["", None, 17])
def test_what_is_no_session_id_is_refused_before_anything_is_sent(session_id: Any) -> None:
    with serve() as server, client_of(server) as client:
        for call in (client.resume_session, client.get_session_info, client.get_session_events, client.end_session):
            with pytest.raises(MantyxConfigError, match="session_id"):
                call(session_id)
        assert not server.requests


# ------------------------------------------------------------- looking back


def test_info_tells_spec_times_and_conversation() -> None:
    with serve() as server, client_of(server) as client:
        session = client.create_session(system_prompt="Be kind.", name="n", metadata={"k": "v"}, tools=[get_order])
        session.send("Hi")
        info = session.info()
        assert (info.id, info.name, info.status, info.ended_at) == (session.id, "n", "active", None)
        assert info.metadata == {"k": "v"}
        assert info.agent_spec["systemPrompt"] == "Be kind."
        assert info.created_at is not None
        assert info.last_used_at is not None
        assert info.created_at <= info.last_used_at
        assert [(m["role"], m["content"]) for m in info.messages] == [("user", "Hi"), ("assistant", "You said: Hi")]
        assert session.history() == list(info.messages)
        assert "Be kind" not in repr(info)
        assert pickle.loads(pickle.dumps(info)) == info


def conversation(session: AgentSession, turns: int) -> list[str]:
    for number in range(turns):
        session.send(f"m{number}")
    return [text for number in range(turns) for text in (f"m{number}", f"You said: m{number}")]


def test_the_conversation_as_events() -> None:
    with serve() as server, client_of(server) as client:
        session = client.create_session(system_prompt="x")
        texts = conversation(session, 3)
        everything = session.events(full=True)
        assert [event.text for event in everything] == texts
        assert [event.type for event in everything] == ["user_message", "assistant_message"] * 3
        assert [event.seq for event in everything] == [1, 2, 3, 4, 5, 6]
        assert [event.text for event in session.events(last_messages=2)] == texts[-2:]
        assert [event.text for event in session.events()] == texts
        assert client.get_session_events(session.id, full=True) == everything
        queries = [request.query for request in server.requests if request.route == "session_events"]
        assert queries == [{"full": ["1"]}, {"lastMessages": ["2"]}, {}, {"full": ["1"]}]


@pytest.mark.parametrize("size", [1, 2, 4, 6, 7])
def test_the_conversation_in_pages_from_its_end(size: int) -> None:
    with serve() as server, client_of(server) as client:
        session = client.create_session(system_prompt="x")
        texts = conversation(session, 3)
        pages = list(session.events_page(last_messages=size).pages_back())
        assert [len(page.events) for page in pages[:-1]] == [size] * (len(pages) - 1)
        assert [event.text for page in reversed(pages) for event in page.events] == texts
        assert {page.total for page in pages} == {6}
        assert [page.truncated for page in pages] == [True] * (len(pages) - 1) + [False]
        assert pages[-1].next_before_seq is None
        assert pages[-1].previous_page() is None
        second = client.get_session_events_page(session.id, last_messages=size, before_seq=4)
        assert [event.seq for event in second.events] == [1, 2, 3][-size:]


def test_pages_that_do_not_lead_back_end_with_an_error() -> None:
    page = {"sessionId": "s", "total": 9, "events": [], "nextBeforeSeq": 5, "truncated": True}
    with serve() as server, client_of(server) as client:
        server.faults.add(answer(200, page), route="session_events", times=None)
        with pytest.raises(MantyxProtocolError, match="do not lead back"):
            list(client.get_session_events_page("s").pages_back())


@pytest.mark.parametrize("number", [0, 501, -1, 2.0, True, "3"])
def test_a_number_of_messages_that_is_not_allowed_is_refused(number: Any) -> None:
    with serve() as server, client_of(server) as client:
        for call in (client.get_session_events, client.get_session_events_page):
            with pytest.raises(MantyxConfigError, match="last_messages: got"):
                call("s", last_messages=number)
        assert not server.requests


# ------------------------------------------------------------- listing


def test_listing_walks_through_all_pages() -> None:
    with serve() as server, client_of(server) as client:
        ids = sessions_of(client, 5)
        page = client.list_sessions(limit=2)
        assert [entry.session_id for entry in page.sessions] == ids[:2]
        assert [entry.session_id for entry in page] == ids
        assert [len(part.items) for part in page.pages()] == [2, 2, 1]
        first = page.next_cursor
        assert first is not None
        assert [entry.session_id for entry in client.list_sessions(limit=2, cursor=first).sessions] == ids[2:4]
        assert pickle.loads(pickle.dumps(page)) == page


def test_listing_by_metadata_and_status_keeps_the_filter_on_every_page() -> None:
    with serve() as server, client_of(server) as client:
        acme = sessions_of(client, 3, customer="acme:north", tier="1")
        sessions_of(client, 2, customer="other")
        client.end_session(acme[1])
        wanted = {"customer": "acme:north", "tier": "1"}
        assert [entry.session_id for entry in client.list_sessions(metadata=wanted, limit=1)] == acme
        active = client.list_sessions(metadata=wanted, status="active", limit=1)
        assert [entry.session_id for entry in active] == [acme[0], acme[2]]
        assert [entry.session_id for entry in client.list_sessions(status="ended")] == [acme[1]]
        assert list(client.list_sessions(metadata={"customer": "nobody"})) == []


def test_an_offset_passes_by_the_first_ones_once() -> None:
    with serve() as server, client_of(server) as client:
        ids = sessions_of(client, 5)
        page = client.list_sessions(limit=2, offset=1)
        assert page.offset == 1
        assert [entry.session_id for entry in page] == ids[1:]


def test_a_line_of_the_listing_has_what_the_platforms_package_has() -> None:
    with serve() as server, client_of(server) as client:
        session = client.create_session(system_prompt="x", metadata={"k": "v"})
        session.send("Where is order 17, please?")
        page = client.list_sessions(include_total=True)
        assert (page.total, page.limit, page.offset) == (1, 50, 0)
        [entry] = page.sessions
        assert entry.summary == "Where is order 17, please?"
        assert (entry.status, entry.metadata) == ("active", {"k": "v"})
        assert entry.creation_date is not None
        assert entry.last_interaction_date is not None
        assert "order 17" not in repr(page)
        assert [request.query for request in server.requests if request.route == "sessions_list"] == [
            {"includeTotal": ["1"]}
        ]


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"limit": 0}, "limit: got 0"),
        ({"limit": 201}, "limit: got 201"),
        ({"limit": True}, "limit: got True"),
        ({"offset": -1}, "offset: got -1"),
        ({"offset": 1.0}, "offset: got 1.0"),
        ({"metadata": ["k:v"]}, "metadata: got a list"),
    ],
)
def test_a_listing_that_is_not_allowed_is_refused(keywords: dict[str, Any], words: str) -> None:
    with serve() as server, client_of(server) as client:
        with pytest.raises(MantyxConfigError, match=words):
            client.list_sessions(**keywords)
        assert not server.requests


# ------------------------------------------------------------- the end


def test_a_message_after_the_end_is_refused_by_the_server() -> None:
    with serve() as server, client_of(server) as client:
        session = client.create_session(system_prompt="x")
        session.send("Hi")
        session.end()
        session.end()
        for call in (session.send, session.stream):
            with pytest.raises(MantyxConflictError) as caught:
                call("Too late")
            assert (caught.value.status, caught.value.code) == (409, "session_ended")
        info = session.info()
        assert info.status == "ended"
        assert info.ended_at is not None
        assert len(session.history()) == 2, "the history can still be read"


def test_the_end_cancels_the_run_that_goes_on() -> None:
    held = Held()
    with serve(held.turn) as server, client_of(server) as client:
        session = client.create_session(system_prompt="x")
        with session.stream("Hi") as run:
            assert held.reached.wait(DEADLINE_S)
            session.end()
            assert [event.type for event in run][-1] == "cancelled"


# ------------------------------------------------------------- one run at a time


def refused_here(call: Callable[..., Any]) -> None:
    with pytest.raises(MantyxConflictError, match="Nothing was sent") as caught:
        call("Two")
    assert caught.value.code == "session_busy"
    assert caught.value.status is None, "not the server's words"


def test_a_second_thread_is_refused_before_anything_is_sent() -> None:
    held = Held()
    texts: list[str] = []
    with serve(held.turn) as server, client_of(server) as client:
        session = client.create_session(system_prompt="x")
        first = threading.Thread(target=lambda: texts.append(session.send("One").text))
        first.start()
        try:
            assert held.reached.wait(DEADLINE_S)
            for call in (session.send, session.stream, session.run_plan):
                refused_here(call)
            assert bodies(server) == [{"prompt": "One"}]
        finally:
            held.go.set()
            first.join(DEADLINE_S)
        assert texts == ["Begun. Ended."]
        assert session.send("Three").text == "Later."


def test_a_second_thread_is_refused_while_the_first_ones_message_is_on_its_way() -> None:
    gate = threading.Event()
    with serve() as server, client_of(server) as client:
        session = client.create_session(system_prompt="x")
        fault = server.faults.add(hold(gate), route="session_messages")
        first = threading.Thread(target=session.send, args=("One",))
        first.start()
        try:
            assert fault.struck.wait(DEADLINE_S)
            refused_here(session.send)
            session.close()  # does not wait for the message
        finally:
            gate.set()
            first.join(DEADLINE_S)
        assert bodies(server) == [{"prompt": "One"}]
        assert session.send("Three").text == "You said: Three"


def test_of_many_threads_one_gets_through_at_a_time() -> None:
    ready = threading.Barrier(8)
    answers: list[str] = []
    with serve() as server, client_of(server) as client:
        session = client.create_session(system_prompt="x")

        def work() -> None:
            ready.wait(DEADLINE_S)
            try:
                answers.append(session.send("Hi").text)
            except MantyxConflictError as error:
                answers.append(error.code)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_S)
        sent = len(bodies(server))
        assert sorted(answers) == ["You said: Hi"] * sent + ["session_busy"] * (8 - sent)
        assert sent >= 1
        assert session.send("Hi").text == "You said: Hi"


def test_a_handler_or_a_callback_cannot_send_into_its_own_session() -> None:
    errors: list[str] = []

    @tool
    def ask_again() -> str:
        """Ask the same session."""
        try:
            session.send("Again?")
        except MantyxConflictError as error:
            errors.append(error.code)
        return "asked"

    with serve([[ToolUse("ask_again", {})], echo]) as server, client_of(server) as client:
        session = client.create_session(system_prompt="x", tools=[ask_again])
        assert session.send("Hi").text == "asked"
    assert errors == ["session_busy"]


def abort(run: Any) -> None:
    run.abort()


def close(run: Any) -> None:
    run.close()


def leave(run: Any) -> None:
    with run:
        next(iter(run))


@pytest.mark.parametrize("give_up", [abort, close, leave])
def test_a_stream_that_was_given_up_is_out_of_the_way(give_up: Callable[[Any], None]) -> None:
    held = Held()
    with serve(held.turn) as server, client_of(server) as client:
        session = client.create_session(system_prompt="x")
        run = session.stream("One")
        assert held.reached.wait(DEADLINE_S)
        refused_here(session.send)
        give_up(run)
        if give_up is close:  # the server was not told
            with pytest.raises(MantyxConflictError) as caught:
                session.send("Two")
            assert (caught.value.status, caught.value.code) == (409, "session_busy")
        held.release(server)
        assert session.send("Three").text == "Later."


def test_a_stream_that_nobody_holds_is_let_go_of_and_out_of_the_way() -> None:
    held = Held()
    with serve(held.turn) as server, client_of(server) as client:
        session = client.create_session(system_prompt="x")
        run = session.stream("One")
        assert held.reached.wait(DEADLINE_S)
        refused_here(session.send)
        del run
        gc.collect()
        wait_until(lambda: not any("mantyx-run" in t.name for t in threading.enumerate()), "the thread goes on")
        held.release(server)
        assert session.send("Three").text == "Later."


def test_closing_a_session_lets_go_of_its_run_and_leaves_the_session() -> None:
    held = Held()
    with serve(held.turn) as server, client_of(server) as client:
        with client.create_session(system_prompt="x") as session:
            run = session.stream("One")
            assert held.reached.wait(DEADLINE_S)
        assert run.is_over
        assert server.runs[0].status == "running"
        held.release(server)
        assert session.send("Three").text == "Later."
        session.close()
        assert session.info().status == "active"


def test_a_message_that_failed_is_out_of_the_way() -> None:
    with serve() as server, client_of(server, max_retries=0) as client:
        session = client.create_session(system_prompt="x")
        server.faults.add(answer(500, {"error": "broken"}), route="session_messages")
        with pytest.raises(Exception, match="broken"):
            session.send("One")
        assert session.send("Two").text == "You said: Two"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_the_child_of_a_fork_is_not_held_up_by_its_parents_run() -> None:
    held = Held()
    with serve(held.turn) as server:
        program = """
            session = client.create_session(system_prompt="x")
            run = session.stream("One")
            next(run)
            say("begun")
            import warnings
            warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads, from 3.12 on
            child = os.fork()
            if child == 0:
                try:
                    session.send("Two")
                except MantyxConflictError as error:
                    say(error.status)  # the server's own refusal: asked, since nobody is in the way here
                os._exit(0)
            os.waitpid(child, 0)
            say(run.is_over)
            run.abort()
            client.close()
        """
        with Child(server.client_settings(), program) as child:
            child.expect("begun")
            child.expect("409")
            child.expect("False")
            child.ends()


# ------------------------------------------------------------- what is not a value


@pytest.mark.parametrize("copying", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_session_is_not_copied_and_says_what_to_do_instead(copying: Callable[[Any], Any]) -> None:
    with serve() as server, client_of(server) as client:
        session = client.create_session(system_prompt="x")
        with pytest.raises(TypeError, match=rf"resume_session\('{session.id}'"):
            copying(session)


# ------------------------------------------------------------- lost answers


def test_a_message_whose_answer_was_lost_is_not_sent_again_and_the_error_says_so() -> None:
    with serve() as server, client_of(server) as client:
        session = client.create_session(system_prompt="x")
        server.faults.add(lose_answer(), route="session_messages")
        with pytest.raises(MantyxNetworkError, match="Whether the run was created is not known"):
            session.send("One")
        assert len(bodies(server)) == 1
        wait_until(lambda: server.runs[0].status == "succeeded", "the run does not end")
        assert session.send("Two").text == "You said: Two"
        assert [message["content"] for message in session.history()][::2] == ["One", "Two"]


def test_a_recoverable_message_is_found_and_followed_and_said_once() -> None:
    turns = [[ToolUse("get_order", {"order_id": "17"})], echo]
    with serve(turns) as server, client_of(server, recoverable_runs=True) as client:
        session = client.create_session(system_prompt="x", tools=[get_order], metadata={"k": "v"})
        server.faults.add(lose_answer(), route="session_messages")
        found = session.send("17?", metadata={"turn": "1"})
        assert found.text == "order 17"
        assert found.run_id == server.runs[0].id
        assert len(server.runs) == len(bodies(server)) == 1
        sent = bodies(server)[0]["metadata"]
        assert sent == {"turn": "1", RECOVERY_KEY: sent[RECOVERY_KEY]}
        assert session.info().metadata == {"k": "v"}, "the tag is the run's, not the session's"
        assert len(session.history()) == 2


# ------------------------------------------------------------- answers of other servers


def test_what_a_server_leaves_out_or_adds_is_no_error() -> None:
    info = SessionInfo.from_wire({"status": "paused", "new": 1}, "ses_1")
    assert (info.id, info.status, info.name, info.messages, info.raw["new"]) == ("ses_1", "paused", "", (), 1)
    page = SessionPage.from_wire({"sessions": [{"sessionId": "s", "new": 1}]})
    assert page.sessions[0].session_id == "s"
    assert page.sessions[0].raw["new"] == 1
    frames = [{"seq": 1, "type": "message", "role": "system", "text": "t"}, {"seq": 2, "type": "new_type", "x": 1}]
    events = SessionEventsPage.from_wire({"events": frames}, "ses_1")
    assert events.session_id == "ses_1"
    assert [(event.type, event.text) for event in events.events] == [("message", "t"), ("new_type", "")]
    assert events.events[0].data["role"] == "system"
    assert events.events[1].data["x"] == 1
    nested = SessionEventsPage.from_wire({"events": [{"seq": 1, "type": "user_message", "data": {"text": "t"}}]}, "s")
    assert nested.events[0].text == "t"


@pytest.mark.parametrize(
    ("read", "words"),
    [
        (lambda: SessionInfo.from_wire({"id": "s"}, "s"), "session s: .*status"),
        (lambda: SessionInfo.from_wire([], "s"), "session s"),
        (lambda: SessionInfo.from_wire({"status": "active", "messages": "x"}, "s"), "messages"),
        (lambda: SessionPage.from_wire({"sessions": [{}]}), "sessionId"),
        (lambda: SessionPage.from_wire({"sessions": 1}), "sessions"),
        (lambda: SessionEventsPage.from_wire({"events": [1]}, "s"), "events of session s"),
        (lambda: SessionEventsPage.from_wire({"events": [], "nextBeforeSeq": "1"}, "s"), "nextBeforeSeq"),
    ],
)
def test_an_answer_of_another_form_is_an_error_that_names_the_field(read: Callable[[], Any], words: str) -> None:
    with pytest.raises(MantyxProtocolError, match=words):
        read()


@pytest.mark.parametrize("body", [{}, {"sessionId": 1}, []])
def test_a_server_that_names_no_session_is_an_error(body: Any) -> None:
    with serve() as server, client_of(server) as client:
        server.faults.add(answer(201, body), route="sessions_create")
        with pytest.raises(MantyxProtocolError, match="new session"):
            client.create_session(system_prompt="x")
