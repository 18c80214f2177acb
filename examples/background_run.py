"""Start a run that goes on in the background, do something else, and take it up elsewhere by its id.

The id is all that another process needs, a Celery task or the next web request for example: `attach_run` follows the
run from there. Give it the tools as well, and it answers the calls that nobody has answered.

    python examples/background_run.py
"""

from typing import Any

from account import connect

from mantyx_sync import ToolContext, tool

STOCK = {"hose": 4, "watering can": 0}


@tool(read_only=True, timeout=30)
def count_stock(item: str, context: ToolContext) -> dict[str, Any]:
    """Count how many pieces of an item are in stock.

    Args:
        item: The name of the item, in double quotes.
    """
    context.raise_if_cancelled()  # worth asking now and then in a tool that takes long
    return {"item": item, "in_stock": STOCK.get(item, 0)}


def main() -> None:
    with connect() as client:
        run = client.start_agent(
            system_prompt="You keep the stock of a small shop. Use the tools.",
            prompt='How many pieces of "hose" are in stock?',
            tools=[count_stock],
            metadata={"order": "17"},
        )
        print(f"started {run.run_id}; tools run whether or not anybody looks")
        print("… the program goes on with something else …")
        print(f"answer: {run.result(timeout=60).text}\n")

        # From here on as another process would do it, which has but the run's id, or what it was tagged with.
        found = next(iter(client.list_runs(metadata={"order": "17"}, limit=1)))
        print(f"found {found.id}: {found.status}")
        same = client.attach_run(found.id, tools=[count_stock])
        print("its events:", ", ".join(event.type for event in same if event.type != "assistant_delta"))
        print(f"the same answer: {same.result().text}")


if __name__ == "__main__":
    main()
