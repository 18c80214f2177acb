"""A MANTYX agent as a tool of the gateway: one-shot runs that end with their call."""

from __future__ import annotations

import threading
import time
from typing import Any, Callable, Iterator

import pytest

from mantyx_sync import MantyxClient, MantyxConfigError, ToolContext, ToolError, tool
from mantyx_sync.local import Failure, LocalServer, ModelRequest, Pause, ScriptedModel, ToolUse
from mantyx_sync.spacefix import Agent, agent_tool
from tests.recording_gateway import RecordingGateway
from tests.waiting import wait_until
from tests.wire import unused_port

pytestmark = pytest.mark.usefixtures("no_leaks")

NEVER = threading.Event()


def turns(request: ModelRequest) -> list[Any]:
    if request.prompt == "long":
        return [["Some text. ", Pause(NEVER)]]
    if request.prompt == "fail":
        return [["Some text. ", Failure("marker of the provider")]]
    if request.prompt == "number":
        return ['{"value": 7}']
    return [ToolUse("look_up", {"key": "a"}), f"You asked: {request.prompt}"]


@tool
def look_up(key: str) -> str:
    """Look something up."""
    return key * 2


@pytest.fixture
def server() -> Iterator[LocalServer]:
    with LocalServer(ScriptedModel(turns)) as server:
        yield server


@pytest.fixture
def client(server: LocalServer) -> Iterator[MantyxClient]:
    with MantyxClient(**server.client_settings()) as client:
        yield client


def support(client: MantyxClient, **more: Any) -> Any:
    spec = {"system_prompt": "You help.", "tools": [look_up], "metadata": {"via": "spacefix"}, **more}
    return agent_tool(client, name="ask-support", description="Ask the support agent.", **spec)


def test_a_client_of_the_gateway_asks_and_a_run_answers(client: MantyxClient) -> None:
    with RecordingGateway() as gateway, Agent([support(client)], **gateway.settings).start():
        stream = gateway.stream()
        assert stream.request.json["tools"] == [
            {
                "name": "ask-support",
                "description": "Ask the support agent.",
                "inputSchema": {
                    "type": "object",
                    "properties": {
                        "prompt": {"type": "string", "minLength": 1, "description": "What to ask the agent."}
                    },
                    "required": ["prompt"],
                    "additionalProperties": False,
                },
            }
        ]
        stream.call("ask-support", {"prompt": "Where is it?"}, id="a")
        stream.call("ask-support", {"prompt": "When?"}, id="b")
        stream.call("ask-support", {"prompt": ""}, id="c")
        answers = gateway.answers("abc")
    assert answers["a"]["result"] == "You asked: Where is it?"
    assert answers["b"]["result"] == "You asked: When?"
    assert answers["c"]["error"].startswith("tool 'ask-support': arguments do not match its schema: 'prompt'")
    assert {run.status for run in client.list_runs(metadata={"via": "spacefix"})} == {"succeeded"}


def test_a_run_that_does_not_succeed_is_told_in_a_few_words(
    client: MantyxClient, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ToolError) as caught:
        support(client).answer({"prompt": "fail"}, ToolContext())
    assert str(caught.value).startswith("ask-support could not answer (")
    assert "marker" not in str(caught.value)
    assert "Some text" not in str(caught.value)
    assert "marker of the provider" in caplog.text  # for the developer


def test_an_answer_may_have_a_type(client: MantyxClient) -> None:
    schema = {"type": "object", "properties": {"value": {"type": "integer"}}, "required": ["value"]}
    made = support(client, output_type=schema)
    assert made.answer({"prompt": "number"}, ToolContext()) == {"value": 7}
    with pytest.raises(ToolError, match=r"ask-support cannot be asked at present \(MantyxParseError\)"):
        made.answer({"prompt": "text"}, ToolContext())


def is_cancelled(client: MantyxClient) -> Callable[[], bool]:
    return lambda: [run.status for run in client.list_runs(metadata={"via": "spacefix"})] == ["cancelled"]


def test_a_run_is_cancelled_when_its_time_is_over_and_the_caller_still_hears_of_it(client: MantyxClient) -> None:
    begun: list[Any] = []
    start_agent = client.start_agent

    def start(**options: Any) -> Any:
        begun.append(options["timeout"])
        return start_agent(**options)

    client.start_agent = start  # type: ignore[method-assign]
    with pytest.raises(ToolError, match=r"ask-support did not answer in time\. Ask for less at once\."):
        support(client).answer({"prompt": "long"}, ToolContext(deadline=time.monotonic() + 0.4))
    assert begun[0] <= 0.36  # a tenth of the time is left for telling the caller
    wait_until(is_cancelled(client))


def test_a_run_is_cancelled_with_its_call(client: MantyxClient) -> None:
    with RecordingGateway() as gateway, Agent([support(client)], **gateway.settings).start() as agent:
        stream = gateway.stream()
        stream.call("ask-support", {"prompt": "long"}, id="a")
        wait_until(lambda: [run.status for run in client.list_runs()] == ["running"])
        stream.end()
        wait_until(is_cancelled(client))
        wait_until(lambda: agent.status().in_flight == 0)
        assert gateway.to("/agent/result") == []


def test_a_call_that_is_cancelled_already_starts_no_run(client: MantyxClient) -> None:
    context = ToolContext()
    context.cancelled.set()
    with pytest.raises(ToolError, match="the call was cancelled"):
        support(client).answer({"prompt": "x"}, context)
    assert list(client.list_runs()) == []


def test_a_platform_that_cannot_be_reached_is_told_in_a_few_words() -> None:
    client = MantyxClient(api_key="k", workspace_slug="w", base_url=f"http://127.0.0.1:{unused_port()}", max_retries=0)
    with client, pytest.raises(ToolError) as caught:
        support(client).answer({"prompt": "x"}, ToolContext())
    assert str(caught.value) == "ask-support cannot be asked at present (MantyxNetworkError)"


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"client": "key"}, MantyxConfigError, "client: got a string, must be a MantyxClient"),
        ({"prompt": "x"}, MantyxConfigError, "prompt: got a text, must be left out"),
        ({"reasoning_level": "much"}, MantyxConfigError, "reasoning_level"),
        ({"sytem_prompt": "x"}, TypeError, "system_prompt"),
        ({"name": "a b"}, MantyxConfigError, "a tool's name: got 'a b', must be 1 to 64 letters, digits, _ and -"),
        ({"name": 5}, MantyxConfigError, "a tool's name: got 5, must be"),
        ({"description": ""}, MantyxConfigError, "description: got '', must be a non-empty string"),
        ({"annotations": {"readOnlyHint": 1}}, MantyxConfigError, "tool 'support': annotation 'readOnlyHint'"),
    ],
)
def test_what_is_wrong_with_the_runs_is_said_at_once(
    client: MantyxClient, change: dict[str, Any], error: type[Exception], message: str
) -> None:
    given = {"client": client, "name": "support", "description": "Ask.", "system_prompt": "x", **change}
    with pytest.raises(error) as caught:
        agent_tool(**given)
    assert message in str(caught.value)
