"""Measure an agent: play cases, score the answers, and change one thing to see whether it gets better.

The cases run on the server; your functions are called back for as in any run.

    python examples/evals.py
"""

from typing import Any

from account import connect

from mantyx_sync import EvalRunDetail, MantyxClient, tool

STOCK = {"hose": 4, "rake": 0}
CASES: list[dict[str, Any]] = [
    {
        "name": "in stock",
        "input": {"prompt": 'How many of the item "hose" are there?'},
        "scorers": [{"type": "contains", "value": "4"}, {"type": "tool_called", "tool": "count_stock"}],
    },
    {
        "name": "sold out",
        "input": {"prompt": 'How many of the item "rake" are there?'},
        "scorers": [{"type": "regex", "pattern": r"\b0\b|sold out"}],
    },
    {
        "name": "no such item",
        "input": {"prompt": 'How many of the item "boat" are there?'},
        "scorers": [{"type": "contains", "value": "no such item"}],
    },
]


@tool(read_only=True)
def count_stock(item: str) -> int:
    """Count how many of an item are in stock.

    Args:
        item: The item's name.
    """
    return STOCK[item]


@tool(read_only=True, name="count_stock")
def count_stock_kindly(item: str) -> str:
    """Count how many of an item are in stock.

    Args:
        item: The item's name.
    """
    return f"{STOCK[item]} in stock" if item in STOCK else "no such item"


def measure(client: MantyxClient, what: str, counting: Any) -> EvalRunDetail:
    """Play the cases with one form of the tool, and tell how that went."""
    found = client.run_eval(
        dataset={"cases": CASES},
        agent={"system_prompt": "You answer questions about the stock. Use the tools."},
        tools=[counting],
        timeout=300,
    )
    print(f"{what}: {found.passed_cases} of {found.total_cases} passed")
    for case in found.results:
        print(f"  {'passed' if case.passed else 'FAILED'}  {case.case.name}: {case.final_text}")
    return found


def main() -> None:
    with connect() as client:
        before = measure(client, "a tool that raises", count_stock)
        after = measure(client, "a tool that explains", count_stock_kindly)
        print(f"\n{(after.passed_cases or 0) - (before.passed_cases or 0):+d}")


if __name__ == "__main__":
    main()
