"""MCP clients that others wrote, through the embedded gateway to our agents (issue: SpaceFix, 2).

Each client lists and calls tools, reads resources and gets prompts, all at once, with handlers that fail, raise and
hang among them; several clients do so at the same time, over two agents that take turns.
"""

from __future__ import annotations

import contextlib
import json
import threading
from dataclasses import dataclass
from typing import Any, Iterator

import pytest

from mantyx_sync import ToolError, tool
from mantyx_sync.local import GatewayProject, LocalGateway
from mantyx_sync.spacefix import Agent

from .peers import HERE, node_script, program, python_of

CLIENTS = HERE / "clients"


@dataclass(frozen=True)
class Row:
    """One client and the revision it has to end up with."""

    name: str
    environment: str
    version: str
    mode: str = "auto"

    def command(self, url: str, key: str) -> list[str]:
        if self.environment == "npm":
            sdk = node_script("sdk", "package.json")[1].rpartition("/")[0]
            return ["node", str(CLIENTS / "gateway_mcp.mjs"), sdk, url, key]
        return [python_of(self.environment), str(CLIENTS / "gateway_mcp.py"), url, key, self.mode]


ROWS = [
    Row("python, newest", "mcp-new", "2026-07-28"),
    Row("python, newest with a handshake", "mcp-new", "2025-11-25", "legacy"),
    Row("python, 1.x", "mcp-old", "2025-11-25"),
    Row("npm", "npm", "2025-11-25"),
]


@tool
def get_order(order_id: str) -> dict[str, Any]:
    """Look up one order."""
    if order_id == "nope":
        raise ToolError("No order nope. Ask the user to confirm the id.")
    return {"id": order_id, "item": "Widget é"}


@tool
def breaks() -> str:
    """Raise."""
    raise RuntimeError("a secret of the handler")


def agent(gateway: LocalGateway, project: GatewayProject, released: threading.Event) -> Agent:
    made = Agent(tools=[get_order, breaks], url=gateway.url, agent_key=project.agent_key, workers=8)

    @made.tool
    def hangs() -> str:
        """Take longer than anybody waits."""
        released.wait(30)
        return "too late"

    @made.resource("orders://all", name="All orders")
    def all_orders() -> list[dict[str, Any]]:
        return [{"id": "1"}]

    @made.resource("orders://broken", name="Broken")
    def broken() -> str:
        raise ToolError("The orders are being counted.")

    @made.prompt(title="Summarise")
    def summarise(order_id: str) -> str:
        return f"Summarise order {order_id} politely."

    @made.prompt()
    def breaking() -> str:
        raise ToolError("No prompt today.")

    return made


@pytest.fixture
def released() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def gateway() -> Iterator[LocalGateway]:
    with LocalGateway(call_timeout=2.0) as running:
        yield running


@pytest.fixture
def project(gateway: LocalGateway, released: threading.Event) -> Iterator[GatewayProject]:
    project = gateway.add_project("orders")
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(agent(gateway, project, released).start())
        stack.callback(released.set)
        gateway.wait_for_agents(2)
        yield project


def check(seen: dict[str, Any], row: Row) -> None:
    answers = seen.pop("answers")
    assert seen == {
        "version": row.version,
        "tools": ["get_order", "breaks", "hangs"],
        "resources": ["orders://all", "orders://broken"],
        "prompts": ["summarise", "breaking"],
    }
    for number in range(30):
        is_error, text = answers.pop(f"order {number}")
        assert (is_error, json.loads(text)) == (False, {"id": str(number), "item": "Widget é"})
    assert answers.pop("failing") == [True, "No order nope. Ask the user to confirm the id."]
    is_error, text = answers.pop("raising")
    assert is_error
    assert "secret" not in text
    assert answers.pop("invalid") == [
        True,
        "Input validation error: Invalid arguments for tool get_order: data/order_id must be string",
    ]
    assert answers.pop("late") == [True, 'Request for tool "hangs" timed out after 2000ms.']
    ((uri, mime_type, text),) = answers.pop("all orders")
    assert (uri, mime_type, json.loads(text)) == ("orders://all", "application/json", [{"id": "1"}])
    assert answers.pop("prompt") == [["user", "Summarise order 7 politely."]]
    for name, message in [("broken resource", "The orders are being counted."), ("broken prompt", "No prompt today.")]:
        how, text = answers.pop(name)
        assert how == "raised"
        assert message in text
    assert not answers


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_client_of_others_uses_everything_at_once(gateway: LocalGateway, project: GatewayProject, row: Row) -> None:
    with program(row.command(project.mcp_url, project.client_key)) as client:
        check(json.loads(client.line("SEEN ")), row)
    served = {entry.connection_id for entry in gateway.log if entry.name == "get_order" and entry.connection_id}
    assert len(served) == 2  # in turn


def test_all_clients_at_the_same_time_get_the_answers_to_their_own_calls(
    gateway: LocalGateway, project: GatewayProject
) -> None:
    with contextlib.ExitStack() as stack:
        running = [
            (row, stack.enter_context(program(row.command(project.mcp_url, project.client_key)))) for row in ROWS
        ]
        for row, client in running:
            check(json.loads(client.line("SEEN ")), row)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_read_only_client_of_others_is_offered_what_reads(
    gateway: LocalGateway, project: GatewayProject, row: Row
) -> None:
    project.mark_tool("get_order", "read")
    key = project.add_key("client", is_read_only=True)
    with program(row.command(project.mcp_url, key)) as client:
        seen = json.loads(client.line("SEEN "))
    assert seen["tools"] == ["get_order"]
    assert seen["answers"]["order 3"][0] is False
    assert seen["answers"]["late"][0] == "raised"
