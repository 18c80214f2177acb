"""A2A agents as tools of runs and sessions: hand-written agents over real HTTP, against the embedded server."""

from __future__ import annotations

import base64
import json
import pickle
import threading
from typing import Any, Dict, List, Optional

import pytest

from mantyx_sync import (
    LocalA2ATool,
    MantyxClient,
    MantyxConfigError,
    MantyxError,
    MantyxTimeoutError,
    define_local_a2a,
    is_local_a2a_tool,
    is_local_mcp_server,
)
from mantyx_sync.a2a import A2ACardError, A2AClient, A2AConnectionError
from mantyx_sync.events import decode
from mantyx_sync.local import LocalServer, ScriptedModel, ToolUse
from mantyx_sync.tools.refs import ToolRef
from mantyx_sync.tools.registry import Registry
from tests.a2a_agents import Agent, Call, Fail, Raw, always, card_v03, card_v1, in_turn, message_v1, task_v03, task_v1
from tests.waiting import wait_until
from tests.wire import silent_port

pytestmark = pytest.mark.usefixtures("no_leaks")

SAY: Dict[str, Any] = {"system_prompt": "Help.", "prompt": "Go."}


def client_of(server: LocalServer) -> MantyxClient:
    return MantyxClient(**server.client_settings())


def asking(*messages: str, name: str = "hr") -> ScriptedModel:
    """Return a model that asks one thing after the other, and answers with the last result."""
    return ScriptedModel(
        [*[[ToolUse(name, {"message": text})] for text in messages], lambda r: r.messages[-1]["content"]]
    )


def outputs(server: LocalServer) -> List[Dict[str, Any]]:
    return [e["data"] for run in server.runs for e in run.events if e["type"] == "local_tool_result_in"]


def ask(ref: LocalA2ATool, *messages: str) -> List[Dict[str, Any]]:
    """Run an agent that asks; return what the platform got for each question."""
    with LocalServer(asking(*messages, name=ref.name)) as server, client_of(server) as client:
        client.run_agent(**SAY, tools=[ref])
        return outputs(server)


def sent(agent: Agent) -> List[Dict[str, Any]]:
    return [call["params"]["message"] for call in agent.calls if call["method"] in ("SendMessage", "message/send")]


def ids(agent: Agent) -> List[Any]:
    return [(message.get("contextId"), message.get("taskId")) for message in sent(agent)]


# ------------------------------------------------------------------------------------------- a run


@pytest.mark.parametrize("version", ["1.0", "0.3"])
def test_the_card_goes_out_as_it_is_and_the_answer_comes_back(version: str) -> None:
    task = task_v03("completed", "12 days") if version == "0.3" else {"task": task_v1("COMPLETED", "12 days")}
    with Agent({"SendMessage": always(task), "message/send": always(task)}, version=version) as agent:
        ref = define_local_a2a(name="hr", agent_card_url=agent.url, headers={"Authorization": "Bearer MARKER"})
        with LocalServer(asking("How many?")) as server, client_of(server) as client:
            assert client.run_agent(**SAY, tools=[ref]).text == "12 days"
            assert server.runs[0].spec["tools"] == [{"kind": "a2a_local", "name": "hr", "agentCard": agent.card}]
            event = next(e["data"] for e in server.runs[0].events if e["type"] == "local_tool_call")
        assert event["agentCard"] == agent.card
        assert sent(agent)[0]["parts"][0]["text"] == "How many?"
        assert {seen.headers["Authorization"] for seen in agent.seen} == {"Bearer MARKER"}


def test_a_card_that_is_given_is_not_fetched_and_a_description_overrides() -> None:
    with Agent({"SendMessage": always({"message": message_v1("Hi.")})}, pages={}) as agent:
        card = card_v1(agent.url + "/rpc")
        ref = define_local_a2a(name="hr", agent_card=card, description="Asks HR.")
        with LocalServer(asking("Hello")) as server, client_of(server) as client:
            assert client.run_agent(**SAY, tools=[ref]).text == "Hi."
            assert server.runs[0].spec["tools"] == [
                {"kind": "a2a_local", "name": "hr", "description": "Asks HR.", "agentCard": card}
            ]
        assert [seen.verb for seen in agent.seen] == ["POST"]


def test_a_client_of_ones_own_is_shared() -> None:
    with Agent({"SendMessage": always({"message": message_v1("Hi.")})}) as agent:
        mine = A2AClient(f"{agent.url}/.well-known/agent-card.json")
        ref = define_local_a2a(name="hr", client=mine)
        assert [ask(ref, "One")[0]["output"], ask(ref, "Two")[0]["output"]] == ["Hi.", "Hi."]
        assert [seen.verb for seen in agent.seen] == ["GET", "POST", "POST"], "the card is read once"
        mine.close()


def test_the_calls_of_a_run_are_one_conversation_and_another_run_is_another() -> None:
    answer = always({"message": message_v1("Hi.", contextId="c-9")})
    with Agent({"SendMessage": answer}) as agent:
        ref = define_local_a2a(name="hr", agent_card_url=agent.url)
        ask(ref, "One", "Two")
        ask(ref, "Three")
        assert ids(agent) == [(None, None), ("c-9", None), (None, None)]


def test_the_messages_of_a_session_are_one_conversation() -> None:
    answer = always({"message": message_v1("Hi.", contextId="c-9")})
    model = ScriptedModel(lambda asked: [[ToolUse("hr", {"message": asked.prompt})], "Done."])
    with Agent({"SendMessage": answer}) as agent, LocalServer(model) as server, client_of(server) as client:
        session = client.create_session(
            system_prompt="x", tools=[define_local_a2a(name="hr", agent_card_url=agent.url)]
        )
        for text in ("One", "Two"):
            session.send(text)
        session.end()
        assert ids(agent) == [(None, None), ("c-9", None)]


def test_a_question_of_the_agent_goes_to_the_model_whose_next_call_is_the_answer() -> None:
    answer = in_turn(
        {"task": task_v1("INPUT_REQUIRED", "Which year?")},
        {"task": task_v1("COMPLETED", "12 days", "s-2")},
        {"task": task_v1("COMPLETED", "nothing new", "s-3")},
    )
    with Agent({"SendMessage": answer}) as agent:
        found = ask(define_local_a2a(name="hr", agent_card_url=agent.url), "Days?", "2026", "And now?")
        assert ids(agent) == [(None, None), ("c-1", "t-1"), ("c-1", None)]
    question, *others = [result["output"] for result in found]
    assert question.startswith("Which year?\n[The agent asks this and waits. Call hr again with the answer as message")
    assert others == ["12 days", "nothing new"]


def test_files_are_handed_on_and_links_and_what_is_beyond_the_limits_are_named() -> None:
    def raw(size: int) -> str:
        return base64.b64encode(bytes(size)).decode()

    parts: List[Any] = [
        {"text": "See these."},
        {"raw": raw(3), "filename": "a.png", "mediaType": "image/png"},
        {"raw": raw(6 << 20), "filename": "b.png", "mediaType": "image/png"},
        {"url": "https://x.example/c.pdf", "filename": "c.pdf"},
        {"data": {"n": 1}},
    ]
    artifacts = [{"artifactId": "a", "parts": parts}]
    with Agent({"SendMessage": always({"task": task_v1("COMPLETED", artifacts=artifacts)})}) as agent:
        (found,) = ask(define_local_a2a(name="hr", agent_card_url=agent.url), "Files?")
    assert [file["filename"] for file in found["files"]] == ["a.png"]
    for words in ("See these.", "'b.png' (6291456 bytes) is left out", "https://x.example/c.pdf", '{"n":1}'):
        assert words in found["output"]


def test_calls_are_found_by_name_and_else_by_the_cards_address() -> None:
    with Agent({"SendMessage": always({"message": message_v1("Hi.")})}) as agent, A2AClient(agent.url) as mine:
        resolved = define_local_a2a(name="hr", client=mine).resolve(_Opening())
        registry = Registry([resolved])

        def find(name: str, card: Optional[Dict[str, Any]] = None) -> Any:
            data = {"toolUseId": "t", "name": name, "kind": "a2a_local", "agentCard": card}
            return registry.find(decode({"seq": 1, "type": "local_tool_call", "data": data}))

        by_name = find("hr")
        assert by_name is not None
        assert find("renamed", card_v1(agent.url + "/rpc")) is by_name
        assert find("renamed", card_v03(agent.url + "/rpc")) is by_name
        assert find("hr", card_v1("http://elsewhere")) is by_name
        assert find("renamed", card_v1("http://elsewhere")) is None
        assert registry.names == "hr"


def test_a_client_of_yours_is_waited_for_no_longer_than_the_start_may_take() -> None:
    with silent_port() as port, A2AClient(f"http://127.0.0.1:{port}") as client:
        ref = define_local_a2a(name="hr", client=client, start_timeout=0.2)
        with pytest.raises(MantyxTimeoutError):
            ref.resolve(_Opening())


class _Opening:
    deadline = None

    def at_end(self, close: Any) -> None:
        raise AssertionError("what is not ours is not closed")


# ------------------------------------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ({"task": task_v1("FAILED", "out of paper")}, "A2A agent 'hr' failed: out of paper"),
        ({"task": task_v1("REJECTED", "not my job")}, "A2A agent 'hr' rejected the task: not my job"),
        ({"task": task_v1("CANCELED")}, "A2A agent 'hr' canceled the task"),
        (
            {"task": task_v1("AUTH_REQUIRED", "sign in")},
            "A2A agent 'hr' wants credentials, which cannot be given in a message: sign in",
        ),
        (Fail(-32602, "no parts"), "A2A agent 'hr' refused the message: no parts"),
        (Raw(401, b"SECRET"), "A2A agent 'hr' does not accept the credentials that it is given here (HTTP 401)"),
        (Raw(500, b"SECRET"), "A2A agent 'hr' failed with HTTP 500"),
        (Raw(200, b"SECRET"), "A2A agent 'hr' failed (A2AProtocolError)"),
    ],
)
def test_an_agent_that_fails_is_an_error_for_the_model_and_the_run_goes_on(answer: Any, error: str) -> None:
    replies = in_turn(answer, {"message": message_v1("better")})
    with Agent({"SendMessage": replies}) as agent:
        found = ask(define_local_a2a(name="hr", agent_card_url=agent.url), "One", "Two")
    assert [found[0].get("error"), found[1].get("output")] == [error, "better"]


def test_an_answer_that_was_not_heard_still_goes_to_the_task_that_waits() -> None:
    answer = in_turn(
        {"task": task_v1("INPUT_REQUIRED", "Which year?")}, Raw(503), {"task": task_v1("COMPLETED", "12 days", "s-2")}
    )
    with Agent({"SendMessage": answer}) as agent:
        ask(define_local_a2a(name="hr", agent_card_url=agent.url), "Days?", "2026", "2026!")
        assert ids(agent) == [(None, None), ("c-1", "t-1"), ("c-1", "t-1")]


def test_an_answer_that_may_have_been_heard_is_not_followed_by_another_one() -> None:
    lost = Raw(200, b"{", {"Content-Length": "9", "Connection": "close"})
    answer = in_turn(
        {"task": task_v1("INPUT_REQUIRED", "Which year?")}, lost, {"task": task_v1("COMPLETED", "12 days", "s-2")}
    )
    with Agent({"SendMessage": answer}) as agent:
        found = ask(define_local_a2a(name="hr", agent_card_url=agent.url), "Days?", "2026", "Days in 2026?")
        assert "not known" in found[1]["error"]
        assert ids(agent) == [(None, None), ("c-1", "t-1"), ("c-1", None)]


def test_an_agent_that_is_gone_is_named_and_the_run_goes_on() -> None:
    with Agent({"SendMessage": always({"message": message_v1("Hi.")})}) as agent:
        ref = define_local_a2a(name="hr", agent_card_url=agent.url)
        gone = threading.Event()
        model = ScriptedModel([lambda asked: [ToolUse("hr", {"message": "?"})] if gone.wait(10) else [], "Done."])
        with LocalServer(model) as server, client_of(server) as client:
            run = client.start_agent(**SAY, tools=[ref])
            agent.__exit__()
            gone.set()
            assert run.result().text == "Done."
            assert outputs(server)[0]["error"] == "the connection to A2A agent 'hr' failed"


@pytest.mark.parametrize("args", [{}, {"message": 1}, {"message": " "}, {"text": "x"}])
def test_arguments_without_a_message_are_refused_here(args: Dict[str, Any]) -> None:
    with Agent() as agent, A2AClient(agent.url) as mine:
        registry = Registry([define_local_a2a(name="hr", client=mine).resolve(_Opening())])
        data = {"toolUseId": "t", "name": "hr", "kind": "a2a_local", "args": args}
        call = decode({"seq": 1, "type": "local_tool_call", "data": data})
        answerer = registry.find(call)
        assert answerer is not None
        with pytest.raises(MantyxError, match="tool 'hr': 'message' must be a text that is not empty"):
            answerer.answer(call, None)
        assert sent(agent) == []


def test_a_call_that_takes_too_long_is_an_error_and_its_task_is_cancelled() -> None:
    working = always({"task": task_v1("WORKING")})
    cancelled = always(task_v1("CANCELED"))
    methods = {"SendMessage": working, "GetTask": always(task_v1("WORKING")), "CancelTask": cancelled}
    with Agent(methods) as agent:
        (found,) = ask(define_local_a2a(name="hr", agent_card_url=agent.url, timeout=0.3), "?")
        assert found["error"] == "A2A agent 'hr' did not answer within 0.3 seconds"
        assert agent.asked[-1] == "CancelTask"


def test_a_run_that_is_cancelled_ends_its_call() -> None:
    came = threading.Event()

    def hang(call: Call) -> Any:
        came.set()
        call.agent.wait(threading.Event())
        return Fail(-32603)

    with Agent({"SendMessage": hang}) as agent, LocalServer(asking("?")) as server, client_of(server) as client:
        run = client.start_agent(**SAY, tools=[define_local_a2a(name="hr", agent_card_url=agent.url)])
        assert came.wait(10)
        run.cancel()
        with pytest.raises(MantyxError):
            run.result()
        assert outputs(server)[0]["error"] == "the call was cancelled"


def test_an_agent_that_cannot_be_reached_is_named_and_nothing_is_sent() -> None:
    with Agent(pages={}) as agent, LocalServer() as server, client_of(server) as client:
        with pytest.raises(A2ACardError, match=r"tools\[0\] \(A2A agent 'hr'\): ") as caught:
            client.run_agent(**SAY, tools=[define_local_a2a(name="hr", agent_card_url=agent.url)])
        assert caught.value.code == "card_not_found"
        agent.__exit__()
        # Refused, or out of time while trying again.
        with pytest.raises((A2AConnectionError, MantyxTimeoutError), match=r"tools\[0\] \(A2A agent 'hr'\): "):
            client.create_session(
                system_prompt="x", tools=[define_local_a2a(name="hr", agent_card_url=agent.url, start_timeout=0.5)]
            )
        assert not server.requests


# ------------------------------------------------------------------------------------------- definitions


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"name": "a b", "agent_card_url": "http://x"}, "define_local_a2a: name: got 'a b', must match"),
        ({"name": "a"}, "define_local_a2a: agent_card_url: not given, must be given (or agent_card, or client)"),
        ({"name": "a", "agent_card_url": "ftp://x"}, "define_local_a2a: url: "),
        ({"name": "a", "agent_card": {"name": ""}}, "define_local_a2a: card: "),
        ({"name": "a", "agent_card": {"name": "x"}}, "define_local_a2a: "),
        ({"name": "a", "agent_card_url": "http://x", "headers": {"X": "a\nb"}}, "define_local_a2a: headers"),
        ({"name": "a", "agent_card_url": "http://x", "streaming": "no"}, "define_local_a2a: streaming: got 'no'"),
        ({"name": "a", "agent_card_url": "http://x", "timeout": -1}, "define_local_a2a: timeout: got -1"),
        ({"name": "a", "agent_card_url": "http://x", "description": 1}, "define_local_a2a: description: got 1"),
    ],
)
def test_a_definition_that_cannot_be_used_is_refused(given: Dict[str, Any], said: str) -> None:
    with pytest.raises(MantyxConfigError) as caught:
        define_local_a2a(**given)
    assert said in str(caught.value)


def test_a_client_of_ones_own_brings_its_own_settings() -> None:
    said = "headers: given with client, which has one of its own"
    with A2AClient("http://127.0.0.1:1") as mine, pytest.raises(MantyxConfigError, match=said):
        define_local_a2a(name="a", client=mine, headers={"X": "y"})


def test_a_definition_is_a_tool_ref_that_asks_nothing_shows_no_secret_and_pickles() -> None:
    card = card_v1("http://127.0.0.1:1/rpc")
    ref = define_local_a2a(name="hr", agent_card=card, headers={"X-Key": "MARKER"})
    card.clear()
    assert isinstance(ref, ToolRef)
    assert is_local_a2a_tool(ref)
    assert not is_local_mcp_server(ref)
    assert "MARKER" not in repr(ref)
    again = pickle.loads(pickle.dumps(ref))
    assert json.loads(json.dumps(again.agent_card))["name"] == "Test agent"
    with pytest.raises(MantyxConfigError, match="before that it has no wire form"):
        ref.to_wire()


def test_a_peer_that_redirects_elsewhere_gets_no_credentials() -> None:
    with Agent() as elsewhere, Agent(pages={"/card.json": Raw(302, b"", {"Location": elsewhere.url})}) as agent:
        ref = define_local_a2a(name="hr", agent_card_url=agent.url + "/card.json", headers={"X-Key": "MARKER"})
        with LocalServer() as server, client_of(server) as client, pytest.raises(MantyxError):
            client.run_agent(**SAY, tools=[ref])
        wait_until(lambda: agent.seen, "it is not asked")
        assert elsewhere.seen == []
