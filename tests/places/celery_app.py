"""The application that the workers of `test_celery` run: the example's, with a few tasks more, and quick to notice.

`celery -A tests.places.celery_app worker`; the tests tell it where the server is through Redis, as the producer does.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

EXAMPLE = Path(__file__).parents[2] / "examples" / "celery_batch"
sys.path.insert(0, str(EXAMPLE))

from celery import signals  # noqa: E402
from celery.exceptions import SoftTimeLimitExceeded  # noqa: E402
from tasks import app, client, pace  # noqa: E402

from mantyx_sync import MantyxRunCancelled, MantyxRunError, MantyxTimeoutError, tool  # noqa: E402

__all__ = ["EXAMPLE", "app", "held", "leaves_nothing", "pause_after", "raises", "stubborn"]

pace.window = float(os.environ.get("TEST_RATE_WINDOW_S", "60"))
app.conf.broker_transport_options = {
    **app.conf.broker_transport_options,
    "visibility_timeout": float(os.environ.get("TEST_VISIBILITY_S", "3600")),
    "unacked_restore_interval": 1,
    "unacked_restore_throttle": 1,
}


@signals.task_prerun.connect
def note_delivery(task_id: str = "", **_: Any) -> None:
    """Have the test know which process has a task, and how often it was delivered."""
    app.backend.client.rpush(f"test:pids:{task_id}", os.getpid())


def wait_for_flag(name: str) -> None:
    while not app.backend.client.get(name):
        time.sleep(0.02)


def run(task: Any, prompt: str) -> Any:
    task_id = task.request.id  # here: handlers run on threads of their own, where Celery has no request

    @tool
    def note(n: int) -> str:
        """Note a number."""
        app.backend.client.rpush(f"test:notes:{task_id}", n)
        if n == 2 and not app.backend.client.get("test:goes_on"):
            app.backend.client.set("test:in_tool", 1)
            wait_for_flag("test:goes_on")
        return f"noted {n}"

    return client().run_agent(system_prompt="Note.", prompt=prompt, tools=[note], idempotency_key=task_id)


@app.task(bind=True)
def held(self: Any, prompt: str) -> Any:
    """Run an agent that notes numbers."""
    done = run(self, prompt)
    return {"run_id": done.run_id, "text": done.text}


@app.task(bind=True)
def pause_after(self: Any, prompt: str) -> Any:
    """As `held`, and wait for the test before the result is handed to Celery."""
    done = run(self, prompt)
    app.backend.client.set("test:run_is_over", 1)
    wait_for_flag("test:returns")
    return {"run_id": done.run_id, "text": done.text}


@app.task(bind=True)
def stubborn(self: Any, prompt: str) -> None:
    """Start a run, and ignore that the time is up."""
    client().start_agent(system_prompt="Note.", prompt=prompt, idempotency_key=self.request.id)
    while True:
        with contextlib.suppress(SoftTimeLimitExceeded):
            time.sleep(60)


@app.task
def raises(kind: str) -> None:
    errors = {
        "run": MantyxRunError("run_1", "truncation", "run run_1 failed (truncation)", error_class="truncation"),
        "cancelled": MantyxRunCancelled("run_2", reason="user"),
        "timeout": MantyxTimeoutError("run run_3 did not end in time", run_id="run_3"),
    }
    raise errors[kind]


@app.task
def leaves_nothing() -> list[str]:
    """Tell which threads of ours are left in this process."""
    until = time.monotonic() + 2
    while True:
        left = sorted(t.name for t in threading.enumerate() if t.name.startswith("mantyx-run"))
        if not left or time.monotonic() > until:
            return left
        time.sleep(0.02)
