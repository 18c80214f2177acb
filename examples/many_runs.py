"""Run an agent for each item of a list, four at once, with progress, and go on where one of them fails.

python examples/many_runs.py
"""

import sys

from account import connect

from mantyx_sync import MantyxError, Progress, tool

PRICES = {"hose": 25.0, "rake": 18.5, "shovel": 22.0, "bucket": 6.0}


@tool(read_only=True)
def get_price(item: str) -> float:
    """Look up the price of one item.

    Args:
        item: The name of the item, in double quotes.
    """
    return PRICES[item]


def show(progress: Progress) -> None:
    print(f"{progress.done} of {progress.total} done, {progress.failed} failed", file=sys.stderr)


def main() -> None:
    prompts = [f'What is the price of "{item}"?' for item in PRICES]
    with connect() as client:
        answers = client.map(
            prompts,
            system_prompt="You know the prices of a small shop. Use the tools.",
            tools=[get_price],
            max_workers=4,
            timeout=60,
            return_errors=True,
            progress=show,
        )
        for prompt, answer in zip(prompts, answers):
            print(prompt, "->", f"failed: {answer}" if isinstance(answer, MantyxError) else answer.text)


if __name__ == "__main__":
    main()
