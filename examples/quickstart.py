"""Run an agent that uses two Python functions of this file, and watch what happens.

With MANTYX_API_KEY and MANTYX_WORKSPACE_SLUG set, the run happens on the platform. Without them it happens on the
embedded server, where a small rule model chooses the tools and answers from their results: no account is needed.

    python examples/quickstart.py ["Your own question"]
"""

import argparse
from typing import Any

from account import connect

from mantyx_sync import AssistantDelta, LocalToolCall, LocalToolResultIn, tool

ORDERS: dict[str, dict[str, Any]] = {
    "17": {"status": "shipped", "item": "garden hose", "parcel": "PX-2041"},
    "18": {"status": "being packed", "item": "watering can", "parcel": None},
}
PARCELS = {"PX-2041": "with the courier, expected tomorrow"}


@tool(read_only=True)
def get_order(order_id: str) -> dict[str, Any]:
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


def main() -> None:
    arguments = argparse.ArgumentParser(description="Ask about orders and parcels.")
    arguments.add_argument("question", nargs="?", default="Where is order 17, and where is parcel PX-2041?")
    question = arguments.parse_args().question
    with connect() as client:
        print(f"You: {question}\n")
        with client.stream_agent(
            system_prompt="You help customers of a small shop. Use the tools.",
            prompt=question,
            tools=[get_order, track_parcel],
        ) as run:
            for event in run:
                if isinstance(event, AssistantDelta):
                    print(event.text, end="", flush=True)
                elif isinstance(event, LocalToolCall):
                    print(f"[tool call]   {event.name}({event.args})")
                elif isinstance(event, LocalToolResultIn):
                    print(f"[tool result] {event.error or event.output}")
            result = run.result()
        print(f"\n\nrun {result.run_id}: {result.turns} turns, model {result.model and result.model.id}, ", end="")
        print(f"tokens in {result.tokens and result.tokens.input_tokens}", end="")
        print(f", out {result.tokens and result.tokens.output_tokens}")


if __name__ == "__main__":
    main()
