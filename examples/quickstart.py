"""Run an agent that uses two Python functions of this file, and watch what happens.

With MANTYX_API_KEY and MANTYX_WORKSPACE_SLUG set, the run happens on the platform. Without them it happens on the
embedded server, where a small rule model chooses the tools and answers from their results: no account is needed.

    python examples/quickstart.py ["Your own question"]
"""

import contextlib
import os
import sys

from mantyx_sync import MantyxClient, tool

ORDERS = {
    "17": {"status": "shipped", "item": "garden hose", "parcel": "PX-2041"},
    "18": {"status": "being packed", "item": "watering can", "parcel": None},
}
PARCELS = {"PX-2041": "with the courier, expected tomorrow"}


@tool(read_only=True)
def get_order(order_id: str) -> dict:
    """Look up one order.

    Args:
        order_id: The number printed on the receipt.
    """
    return ORDERS[order_id]


@tool(read_only=True)
def track_parcel(parcel: str) -> str:
    """Tell where a parcel is.

    Args:
        parcel: The parcel number, PX- and four digits.
    """
    return PARCELS[parcel]


def connect(stack: contextlib.ExitStack) -> MantyxClient:
    """Return a client for the platform if the environment names an account, else for an embedded server."""
    if os.environ.get("MANTYX_API_KEY") or os.environ.get("MANTYX_ACCESS_TOKEN"):
        return stack.enter_context(MantyxClient())
    from mantyx_sync.local import LocalServer

    server = stack.enter_context(LocalServer())
    print(f"(no MANTYX_API_KEY: using the embedded server at {server.url})\n")
    return stack.enter_context(MantyxClient(**server.client_settings()))


def main() -> None:
    question = sys.argv[1] if len(sys.argv) > 1 else "Where is order 17, and where is parcel PX-2041?"
    with contextlib.ExitStack() as stack:
        client = connect(stack)
        print(f"You: {question}\n")
        run = stack.enter_context(
            client.stream_agent(
                system_prompt="You help customers of a small shop. Use the tools.",
                prompt=question,
                tools=[get_order, track_parcel],
            )
        )
        for event in run:
            if event.type == "assistant_delta":
                print(event.text, end="", flush=True)
            elif event.type == "local_tool_call":
                print(f"[tool call]   {event.name}({event.args})")
            elif event.type == "local_tool_result_in":
                print(f"[tool result] {event.error or event.output}")
        result = run.result()
        print(f"\n\nrun {result.run_id}: {result.turns} turns, model {result.model and result.model.id}, ", end="")
        print(f"tokens in {result.tokens and result.tokens.input_tokens}", end="")
        print(f", out {result.tokens and result.tokens.output_tokens}")


if __name__ == "__main__":
    main()
