"""Serve functions, a resource, a prompt and a MANTYX agent to MCP clients through the SpaceFix gateway.

With `SPACEFIX_AGENT_KEY` (and `SPACEFIX_URL`) in the environment it serves until Ctrl-C, and logs how that goes.
Without, it starts the embedded gateway, and calls itself as an MCP client would.

    python examples/spacefix_agent.py
"""

import logging
import os
from typing import Any

from account import connect

from mantyx_sync import ToolError, tool
from mantyx_sync.mcp import McpClient
from mantyx_sync.spacefix import Agent, agent_tool, current_trace

ORDERS = {"17": {"id": "17", "item": "Rake", "state": "shipped"}, "18": {"id": "18", "item": "Hose", "state": "packed"}}


@tool(read_only=True)
def get_order(order_id: str) -> dict[str, str]:
    """Look up one order.

    Args:
        order_id: The number printed on the receipt.
    """
    trace = current_trace()  # goes with requests to other services: requests.get(…, headers=trace.headers())
    print(f"  get_order({order_id!r}), in a trace of its caller's: {trace is not None and trace.trace_id is not None}")
    if order_id not in ORDERS:
        raise ToolError(f"No order {order_id}. Ask the user to confirm the number.")
    return ORDERS[order_id]


def make_agent(support: Any, **settings: Any) -> Agent:
    agent = Agent([get_order, support], **settings)

    @agent.resource("orders://all", name="All orders")
    def all_orders() -> list[dict[str, str]]:
        """Every order."""
        return list(ORDERS.values())

    @agent.prompt(title="Summarise order")
    def summarise_order(order_id: str) -> str:
        """Have an order summarised for its customer."""
        return f"Summarise this order politely: {ORDERS[order_id]}"

    return agent


def call(client: McpClient) -> None:
    """Do what an MCP client does."""
    print("tools:", ", ".join(item.name for item in client.list_tools()))
    print("get_order 17:", client.call_tool("get_order", {"order_id": "17"}).text)
    print("get_order 99:", client.call_tool("get_order", {"order_id": "99"}).text)
    print("ask-support:", client.call_tool("ask-support", {"prompt": 'Where is order "18"?'}).text)
    print("orders://all:", client.read_resource("orders://all")[0].text)
    prompt = client.get_prompt("summarise_order", {"order_id": "18"})
    print("summarise_order:", prompt.messages[0].text)


def main() -> None:
    with connect() as mantyx:
        support = agent_tool(
            mantyx,
            name="ask-support",
            description="Ask the support agent about orders.",
            system_prompt="You help customers of a small shop. Use the tools.",
            tools=[get_order],
        )
        if os.environ.get("SPACEFIX_AGENT_KEY"):
            logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
            make_agent(support).run_forever()
            return
        from mantyx_sync.local import LocalGateway

        with LocalGateway() as gateway:
            print(f"(no SPACEFIX_AGENT_KEY: using the embedded gateway at {gateway.url})\n")
            project = gateway.add_project("shop")
            with make_agent(support, url=gateway.url, agent_key=project.agent_key) as agent:
                agent.wait_ready()
                with McpClient.http(
                    project.mcp_url, headers={"Authorization": f"Bearer {project.client_key}"}
                ) as client:
                    call(client)


if __name__ == "__main__":
    main()
