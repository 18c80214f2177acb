"""Our MCP client and our agent, with the embedded gateway between them, in both eras of the protocol."""

from __future__ import annotations

from typing import Iterator

import pytest

from mantyx_sync import ToolError, tool
from mantyx_sync.local import GatewayProject, LocalGateway
from mantyx_sync.mcp import Era, McpAuthError, McpClient, McpRequestError
from mantyx_sync.spacefix import Agent, expose

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture
def project() -> Iterator[GatewayProject]:
    with LocalGateway() as gateway:
        project = gateway.add_project("orders", instructions="Be brief.")
        with serving(gateway, project).start():
            gateway.wait_for_agents()
            yield project


def serving(gateway: LocalGateway, project: GatewayProject) -> Agent:
    agent = Agent(url=gateway.url, agent_key=project.agent_key)

    @agent.tool
    def get_order(order_id: str) -> dict[str, str]:
        """Look up one order."""
        if order_id == "nope":
            raise ToolError("No order nope.")
        return {"id": order_id}

    @agent.resource("orders://all", name="All orders")
    def all_orders() -> str:
        return "one, two"

    @agent.prompt()
    def summarise(order_id: str) -> str:
        return f"Summarise {order_id}."

    return agent


@pytest.mark.parametrize("era", list(Era))
def test_our_client_uses_what_our_agent_serves(project: GatewayProject, era: Era) -> None:
    headers = {"Authorization": f"Bearer {project.client_key}"}
    with McpClient.http(project.mcp_url, headers=headers, mode=era.value) as client:
        assert (client.server.name, client.server.instructions, client.server.era) == ("orders", "Be brief.", era)
        assert [entry.name for entry in client.list_tools()] == ["get_order"]
        assert client.call_tool("get_order", {"order_id": "17"}).text == '{"id":"17"}'
        failed = client.call_tool("get_order", {"order_id": "nope"})
        assert (failed.is_error, failed.text) == (True, "No order nope.")
        refused = client.call_tool("get_order", {"order_id": 5})
        assert (refused.is_error, "data/order_id must be string" in refused.text) == (True, True)
        (contents,) = client.read_resource("orders://all")
        assert contents.text == "one, two"
        (message,) = client.get_prompt("summarise", {"order_id": "17"}).messages
        assert message.content.text == "Summarise 17."
        with pytest.raises(McpRequestError, match="Unknown tool"):
            client.call_tool("nope", {})


def test_our_client_is_told_that_its_key_is_not_for_clients(project: GatewayProject) -> None:
    headers = {"Authorization": f"Bearer {project.agent_key}"}
    with McpClient.http(project.mcp_url, headers=headers) as client, pytest.raises(McpAuthError):
        client.list_tools()


def test_a_tool_keeps_its_hints_on_the_way() -> None:
    @tool
    def peek() -> str:
        return "seen"

    with LocalGateway() as gateway:
        project = gateway.add_project()
        tools = [expose(peek, annotations={"readOnlyHint": True, "title": "Peek"})]
        with Agent(tools=tools, url=gateway.url, agent_key=project.agent_key).start():
            gateway.wait_for_agents()
            headers = {"Authorization": f"Bearer {project.add_key('client', is_read_only=True)}"}
            with McpClient.http(project.mcp_url, headers=headers) as client:
                (listed,) = client.list_tools()
                assert (listed.name, listed.display_name) == ("peek", "Peek")
                assert client.call_tool("peek").text == "seen"
