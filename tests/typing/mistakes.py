"""Typical mistakes: mypy --strict and pyright must each refuse every line that says so, and no other."""

from __future__ import annotations

from typing import Dict

from mantyx_sync import (
    LoopDetection,
    MantyxAPIError,
    MantyxClient,
    MantyxOAuthClient,
    RunSpec,
    ToolResultFile,
    define_local_tool,
    input_file,
    mantyx_mcp,
    mantyx_tool,
    plan_only,
    tool,
)


@tool
def get_order(order_id: str) -> Dict[str, str]:
    """Look up one order."""
    return {"id": order_id}


def settings() -> None:
    MantyxClient("mantyx_key")  # error: settings have names
    MantyxClient(api_key=17)  # error: not a text
    MantyxClient(api_key="k", workspace="acme")  # error: no such setting
    MantyxClient(api_key="k", timeout="5")  # error: not a number
    MantyxOAuthClient(client_id="a")  # error: the secret is missing


def runs(client: MantyxClient) -> None:
    client.run_agent("Where is order 17?")  # error: the positional argument is a spec
    client.run_agent(promt="x")  # error: no such field
    client.run_agent(prompt=17)  # error: not a text
    client.run_agent(prompt="x", timeout="30")  # error: not a number
    client.run_agent(prompt="x", reasoning_level=0.5)  # error: a word or a whole number
    client.run_agent(prompt="x", metadata={"order": 17})  # error: values are texts
    client.run_agent(prompt="x", loop_detection=3)  # error: not a guard
    client.run_agent(prompt="x", tool_budgets={"recall": 4})  # error: not a budget
    client.run_agent(prompt="x", tools=get_order.name.upper)  # error: not a list
    client.run_agent(prompt="x", on_event=print, on_assistant_delta=17)  # error: not a function
    client.run_agent(prompt="x", messages="hello")  # error: not a list of messages
    client.stream_agent(prompt="x", on_event=print)  # error: a stream is looped over
    client.run_plan(prompt="x", steps=3)  # error: not a list
    client.map(17)  # error: not a list
    client.get_run(17)  # error: not a text
    client.submit_run_feedback("run_1", "MAYBE")  # error: UP or DOWN
    client.list_runs(50)  # error: filters have names
    client.create_agent(prompt="x")  # error: no such method
    RunSpec(promt="x")  # error: no such field


def results(client: MantyxClient) -> int:
    result = client.run_agent(prompt="x", agent_id="a")
    print(result.answer)  # error: no such attribute
    print(result.tokens.output_tokens)  # error: an old server reports none
    for event in result:  # error: a result is no stream
        print(event)
    with client.start_agent(prompt="x") as run:
        print(run.text)  # error: a run has a result
        run.result("60")  # error: not a number
    return result.text  # error: not a number


def sessions(client: MantyxClient) -> None:
    client.create_session("You help.")  # error: fields have names
    session = client.create_session(system_prompt="You help.")
    session.send(17)  # error: not a message
    session.send("Hello", supervisor="yes")  # error: not a supervisor
    client.list_sessions(limit="10")  # error: not a number
    client.resume_session()  # error: which one?
    client.get_session_events_page("s", 10)  # error: the size of a page has a name


def tools_and_options(error: MantyxAPIError) -> None:
    get_order(17)  # error: not a text
    get_order("17", "18")  # error: one parameter
    define_local_tool(name="x")  # error: who answers?
    mantyx_tool(17)  # error: not a text
    mantyx_mcp("fs", "https://example.com")  # error: arguments have names
    LoopDetection(consecutive_threshold="2")  # error: not a number
    LoopDetection(threshold=2)  # error: no such option
    plan_only(["One"])  # error: steps have a name
    input_file(17)  # error: a path or bytes
    ToolResultFile.from_bytes("x", "a.txt")  # error: not bytes
    print(error.required_scopes)  # error: of a MantyxScopeError alone


@tool(timeout="20")  # error: not a number
def slow(order_id: str) -> str:
    """Wait."""
    return order_id


async def waiting(client: MantyxClient) -> None:
    await client.run_agent(prompt="x")  # error: nothing here is awaited
