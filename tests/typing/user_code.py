"""Checked by mypy --strict and pyright, never run: what programs that use the package look like."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, List, Optional

import mantyx_sync as mantyx
from mantyx_sync import (
    AgentSession,
    AssistantDelta,
    InputFile,
    LocalToolCall,
    LoopDetection,
    MantyxAPIError,
    MantyxClient,
    MantyxNetworkError,
    MantyxOAuthClient,
    MantyxRunError,
    MantyxScopeError,
    MantyxTimeoutError,
    RunEvent,
    RunResult,
    RunSpec,
    Supervisor,
    ToolContext,
    ToolError,
    input_file,
    tool,
)
from mantyx_sync.local import LocalServer

if TYPE_CHECKING:
    from typing_extensions import assert_type


@dataclass
class Order:
    number: str
    weight_kg: float = 0.0


@tool
def get_order(order_id: str) -> Dict[str, str]:
    """Look up one order."""
    return {"id": order_id}


@tool(timeout=20, max_concurrency=4)
def book(orders: List[Order], *, context: ToolContext) -> Optional[str]:
    """Book a courier."""
    if not orders:
        raise ToolError("nothing to book")
    context.raise_if_cancelled()
    return orders[0].number


def plain(count: int) -> int:
    """Count."""
    return count


def runs(client: MantyxClient) -> str:
    result = client.run_agent(system_prompt="x", prompt="y", tools=[get_order, book, plain], timeout=30)
    assert_type(result, RunResult)
    assert_type(result.text, str)
    if result.tokens is not None:
        assert_type(result.tokens.output_tokens, int)
    for event in result.events:
        assert_type(event, RunEvent)
    spec = RunSpec(agent_id="a", prompt="y", metadata={"customer": "acme"})
    client.run_agent(spec)
    client.run_agent(
        agent_id="a",
        messages=[{"role": "user", "content": "Hello"}],
        attachments=[input_file(b"x", filename="a.txt")],
        reasoning_level="low",
        loop_detection=LoopDetection(consecutive_threshold=2),
        tool_budgets={"get_order": {"maxCalls": 2}},
        supervisor=Supervisor(interval=3),
        plan={"steps": ["One"]},
        budgets={"maxToolTurns": 3},
        output_schema={"schema": {"type": "object"}},
        on_event=lambda event: print(event.type),
        on_assistant_delta=print,
        extra_body={"newer": 1},
    )
    client.run_agent(prompt="y", agent_id="a", loop_detection=False, supervisor=True, reasoning_level=80, plan="auto")
    planned = client.run_plan(agent_id="a", prompt="y", steps=["One", "Two"])
    if planned.plan is not None:
        assert_type([step.title for step in planned.plan.steps], List[str])
    order: Order = client.run_agent(agent_id="a", prompt="y", output_type=Order).output
    return order.number


def streams(client: MantyxClient) -> None:
    with client.stream_agent(system_prompt="x", prompt="y") as stream:
        for text in stream.text_stream:
            assert_type(text, str)
    for event in client.stream_agent(system_prompt="x", prompt="y"):
        if isinstance(event, AssistantDelta):
            assert_type(event.text, str)
        elif isinstance(event, LocalToolCall):
            assert_type(event.name, str)
    run = client.start_agent(system_prompt="x", prompt="y")
    assert_type(run.result(timeout=60), RunResult)
    client.attach_run(run.run_id, tools=[get_order]).cancel()
    for one in client.map(["a", {"prompt": "b"}], max_workers=4, system_prompt="x", return_errors=True):
        print(one)


def sessions(client: MantyxClient) -> None:
    session = client.create_session(system_prompt="x", tools=[get_order], tool_budgets={})
    assert_type(session, AgentSession)
    assert_type(session.send("Hello", supervisor=False, metadata={"trace": "t"}).text, str)
    session.send([{"role": "user", "content": "Hello"}])
    with session.stream("And?") as stream:
        print([event.seq for event in stream])
    for summary in client.list_sessions(metadata={"customer": "acme"}, status="active", limit=10):
        assert_type(summary.session_id, str)
    assert_type(client.get_session_events_page(session.id).next_before_seq, Optional[int])
    client.resume_session(session.id, tools=[get_order]).end()


def others(client: MantyxClient) -> None:
    assert_type([model.id for model in client.list_models().models], List[str])
    for run in client.list_runs(limit=10, metadata={"a": "b"}):
        assert_type(run.id, str)
    client.submit_run_feedback("run_1", "UP", explanation="Good.")
    detail = client.run_eval(dataset_id="d", agent_id="a", tools=[get_order], progress=lambda record: None)
    assert_type([result.passed for result in detail.results], List[bool])
    client.with_options(timeout=(3.0, 10.0), max_retries=0).get_run("run_1")
    body: Any = client.request("GET", "/agent-runs", params={"limit": 1})
    print(body)


def tested() -> Optional[str]:
    with LocalServer() as server, MantyxClient(**server.client_settings()) as client:
        return client.run_agent(system_prompt="x", prompt="Hello").text


def credentials() -> MantyxClient:
    oauth = MantyxOAuthClient(client_id="a", client_secret="b")
    source = oauth.refresh_token_source(refresh_token="r")
    with MantyxClient(token_source=source, workspace_slug="acme") as client:
        client.cancel_run("run_1")
    return MantyxClient(api_key="k", workspace_slug="acme", timeout=5.0, app_info="shop/1.0")


def errors(client: MantyxClient) -> Optional[str]:
    try:
        client.run_agent(system_prompt="x", prompt="y")
    except MantyxRunError as error:
        return error.error_class or error.partial_text
    except MantyxTimeoutError as error:
        return error.run_id
    except MantyxScopeError as error:
        return ", ".join(error.required_scopes)
    except MantyxAPIError as error:
        return error.hint
    except MantyxNetworkError as error:
        return error.run_id
    return None


def migrated(client: mantyx.MantyxClient) -> None:
    city: mantyx.JsonSchema = {"type": "object"}
    said: List[mantyx.ConversationMessage] = [{"role": "user", "content": "Hello"}]
    level: mantyx.ReasoningLevel = "low"
    tags: mantyx.Metadata = {"customer": "acme"}
    result = client.run_agent(
        agent_id="a", messages=said, reasoning_level=level, metadata=tags, output_schema={"schema": city}
    )
    print(mantyx.parse_run_output(result, Order), mantyx.mantyx_tool("tool_1"))
    file: InputFile = mantyx.input_file("report.pdf")
    client.run_agent(agent_id="a", prompt="y", attachments=[file], tools=[mantyx.mantyx_plugin_tool("@slack/send")])
