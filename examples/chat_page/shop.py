"""The tools of the chat's agent: Python functions over the orders of a small garden shop."""

from __future__ import annotations

import time
from datetime import date
from typing import Any

from mantyx_sync import ToolContext, ToolError, tool

__all__ = ["TOOLS"]

ORDERS: dict[int, dict[str, Any]] = {
    17: {"item": "garden hose", "status": "shipped", "parcel": "PX-2041"},
    18: {"item": "watering can", "status": "being packed", "delivery": "2031-04-30"},
    19: {"item": "cold frame", "status": "ready for collection"},
}
PARCELS = {"PX-2041": "with the courier, expected tomorrow before noon"}
COURIER_S = 1.2  # what the courier's web service takes to answer


@tool(read_only=True)
def get_order(order_id: int) -> dict[str, Any]:
    """Look up one order.

    Args:
        order_id: The number printed on the receipt.
    """
    return _order(order_id)


@tool(read_only=True, timeout=20)
def track_parcel(parcel: str, *, context: ToolContext) -> str:
    """Tell where a parcel is.

    Args:
        parcel: The parcel number, PX- and four digits.
    """
    until = time.monotonic() + COURIER_S
    while (left := until - time.monotonic()) > 0:
        context.raise_if_cancelled()  # the reader has pressed Stop
        time.sleep(min(left, 0.05))
    if parcel not in PARCELS:
        raise ToolError(f"The courier knows no parcel {parcel}.")
    return PARCELS[parcel]


@tool
def move_delivery(order_id: int, day: date) -> dict[str, Any]:
    """Move the delivery of an order to another day.

    Args:
        order_id: The number printed on the receipt.
        day: The new day.
    """
    order = _order(order_id)
    if "delivery" not in order:
        raise ToolError(f"Order {order_id} is {order['status']}; there is no delivery to move.")
    order["delivery"] = day.isoformat()  # visible the next time somebody asks
    return order


def _order(order_id: int) -> dict[str, Any]:
    if order_id not in ORDERS:
        raise ToolError(f"There is no order {order_id}. Ask for the number on the receipt.")
    return ORDERS[order_id]


TOOLS = [get_order, track_parcel, move_delivery]
