"""A small application with tests: an agent answers letters to a shop, looks up orders and pays money back.

python -m pytest examples/testing                         runs its tests, without an account
python examples/testing/helpdesk.py "Where is order 17?"  asks the platform (MANTYX_API_KEY, MANTYX_WORKSPACE_SLUG)
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

from mantyx_sync import MantyxClient, MantyxError, ToolError, tool

SYSTEM_PROMPT = "You answer letters to a small shop. Look things up; never promise what the tools do not say."
LATER = "Thank you for your letter. A colleague will answer it today."


@dataclass
class Order:
    item: str
    status: str
    paid: float
    refunded: float = 0.0


@dataclass
class Reply:
    text: str
    needs_person: bool = False


@dataclass
class HelpDesk:
    """Answers letters. The client is given to it, so that a test can give it one of an embedded server."""

    client: MantyxClient
    orders: dict[str, Order] = field(
        default_factory=lambda: {"17": Order("garden hose", "shipped", 24.0), "18": Order("rake", "being packed", 18.5)}
    )
    patience: float = 60.0

    def answer(self, letter: str) -> Reply:
        """Answer a letter; where that fails, say so kindly and leave it to a person."""
        try:
            result = self.client.run_agent(
                system_prompt=SYSTEM_PROMPT,
                prompt=letter,
                tools=[tool(self.look_up), tool(self.refund)],
                timeout=self.patience,
            )
        except MantyxError as error:
            print(f"left to a person: {error}", file=sys.stderr)
            return Reply(LATER, needs_person=True)
        return Reply(result.text)

    def look_up(self, order_id: str) -> dict[str, object]:
        """Look up one order.

        Args:
            order_id: The number printed on the receipt.
        """
        order = self._order(order_id)
        return {"item": order.item, "status": order.status, "paid": order.paid, "refunded": order.refunded}

    def refund(self, order_id: str, amount: float) -> str:
        """Pay money back for an order.

        Args:
            order_id: The number printed on the receipt.
            amount: How much, in euros.
        """
        order = self._order(order_id)
        if order.refunded + amount > order.paid:
            raise ToolError(f"only {order.paid - order.refunded:.2f} euros can be paid back for order {order_id}")
        order.refunded += amount
        return f"{amount:.2f} euros will arrive within three days"

    def _order(self, order_id: str) -> Order:
        try:
            return self.orders[order_id]
        except KeyError:
            raise ToolError(f"there is no order {order_id}; ask for the number on the receipt") from None


def main(letter: str) -> None:
    """Answer one letter with a client of its own."""
    with MantyxClient() as client:
        print(HelpDesk(client).answer(letter).text)


if __name__ == "__main__":
    main(" ".join(sys.argv[1:]) or "Where is order 17?")
