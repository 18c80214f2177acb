"""The producer: hand a batch of prompts to the workers, show how far they are, and print what comes back.

    python produce.py --count 1000

Without an account it starts an embedded server, and the workers use that. A batch that is given the name of an earlier
one (`--batch`) goes on with it: what was answered is not asked again.
"""

import argparse
import contextlib
import json
import os
import sys
import uuid
from typing import Any, Iterator

from celery import states
from celery.result import AsyncResult, ResultSet
from tasks import PRICES, SERVER_KEY, answer, app

from mantyx_sync import Progress
from mantyx_sync.local import LocalServer
from mantyx_sync.progress import Reporting


@contextlib.contextmanager
def somewhere_to_run() -> Iterator[None]:
    """See to it that the workers find a server, for a `with` block."""
    if os.environ.get("MANTYX_API_KEY") or os.environ.get("MANTYX_ACCESS_TOKEN"):
        yield
        return
    with LocalServer() as server:
        print(f"(no MANTYX_API_KEY: the workers use the embedded server at {server.url})", file=sys.stderr)
        app.backend.client.set(SERVER_KEY, json.dumps(server.client_settings()))
        try:
            yield
        finally:
            app.backend.client.delete(SERVER_KEY)


def submit(batch: str, prompts: list[str]) -> dict[str, int]:
    """Put the prompts that are not answered yet into the queue; return the number of each by its task's id."""
    numbers = {f"{batch}-{number}": number for number in range(len(prompts))}
    with app.producer_or_acquire() as producer:
        for task_id, number in numbers.items():
            if AsyncResult(task_id, app=app).state != states.SUCCESS:
                answer.apply_async((prompts[number],), task_id=task_id, producer=producer)
    return numbers


def collect(numbers: dict[str, int]) -> Iterator[tuple[int, Any]]:
    """Yield the number of each prompt and what came of it, as they are finished: a mapping, or an exception."""
    results = ResultSet([AsyncResult(task_id, app=app) for task_id in numbers], app=app)
    for task_id, meta in results.iter_native():
        yield numbers[task_id], meta["result"]


def main() -> int:
    parser = argparse.ArgumentParser(description="Have Celery workers answer a batch of prompts.")
    parser.add_argument("--count", type=int, default=1000, help="how many prompts")
    parser.add_argument("--batch", default=uuid.uuid4().hex[:8], help="its name; an earlier one's goes on with that")
    given = parser.parse_args()
    items = list(PRICES)
    prompts = [f'What is the price of "{items[number % len(items)]}"?' for number in range(given.count)]
    failed = 0
    with somewhere_to_run(), Reporting("auto") as report:
        numbers = submit(given.batch, prompts)
        print(f"batch {given.batch}", file=sys.stderr)
        for done, (number, outcome) in enumerate(collect(numbers), 1):
            if isinstance(outcome, Exception):
                failed += 1
                # Celery's JSON keeps an error's class and text. The task's id is the run's key, so the run is found:
                # client.list_runs(metadata={"mantyx_sync.key": f"{given.batch}-{number}"})
                line = {"prompt": number, "error": type(outcome).__name__, "message": str(outcome)}
            else:
                line = {"prompt": number, **outcome}
            print(json.dumps(line))
            report(Progress("prompts", done, failed, given.count))
    print(f"{given.count} prompts answered, {failed} failed", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
