"""Offer an agent to other agents over A2A, and ask it as one of them.

`A2AApp` is a WSGI application: gunicorn, waitress and uWSGI serve it, and it can be mounted beside Flask or Django.
Here it is served by its own development server, and asked by the A2A client of this package; any other that speaks
A2A 1.0 or 0.3 does as well. With `serve` it is served at port 8000 until Ctrl-C, for callers that send the header
`Authorization: Bearer secret-of-ann`.

    python examples/a2a_agent.py [serve]
"""

import sys
from typing import Any

from account import connect

from mantyx_sync import MantyxClient, tool
from mantyx_sync.a2a import A2AApp, A2AClient, current_task

ORDERS = {
    "17": {"status": "shipped", "item": "garden hose", "customer": "ann"},
    "18": {"status": "being packed", "item": "watering can", "customer": "bob"},
}
TOKENS = {"Bearer secret-of-ann": "ann"}


@tool(read_only=True)
def get_order(order_id: str) -> dict[str, Any]:
    """Look up one order of the customer who asks.

    Args:
        order_id: The number printed on the receipt.
    """
    task = current_task()  # whom this is for, as authorize said
    order = ORDERS.get(order_id)
    if order is None or task is None or order["customer"] != task.caller:
        return {"error": f"there is no order {order_id}"}
    return {"status": order["status"], "item": order["item"]}


def authorize(environ: dict[str, Any]) -> "str | None":
    """Tell who calls; nobody else is let in."""
    return TOKENS.get(environ.get("HTTP_AUTHORIZATION", ""))


def make_app(client: MantyxClient) -> A2AApp:
    """Return the WSGI application. In production it is given its public_url."""
    return A2AApp(
        client,
        name="Order desk",
        description="Knows the orders of a small shop.",
        system_prompt="You help customers of a small shop. Use the tools.",
        tools=[get_order],
        authorize=authorize,
        security_schemes={"bearer": {"type": "http", "scheme": "bearer"}},
        security=[{"bearer": []}],
    )


def main() -> None:
    with connect() as client:
        app = make_app(client)
        if "serve" in sys.argv[1:]:
            app.run(port=8000)
            return
        with app.serve() as server, A2AClient(server.url, headers={"Authorization": "Bearer secret-of-ann"}) as peer:
            print(f"{peer.card.name}: {peer.card.description}")
            reply = peer.send("Where is order 17?")
            print(f"You: Where is order 17?\nAgent ({reply.state}): {reply.text}\n")
            again = peer.send("And where is order 18?", context_id=reply.context_id)  # the conversation goes on
            print(f"You: And where is order 18?\nAgent ({again.state}): {again.text}")


if __name__ == "__main__":
    main()
