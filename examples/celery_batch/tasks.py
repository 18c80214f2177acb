"""The worker: a Celery task that has an agent answer one prompt, and pays for one run, however often it is delivered.

    celery -A tasks worker --concurrency 8

Redis is at `CELERY_BROKER_URL`. The runs happen on the platform if the environment names an account, else on the
embedded server that the producer started.
"""

import json
import os
import threading
from typing import Any

from celery import Celery, signals
from celery.exceptions import TimeLimitExceeded
from pace import Pace

from mantyx_sync import (
    MantyxClient,
    MantyxNetworkError,
    MantyxRateLimitError,
    MantyxRunError,
    MantyxServerError,
    tool,
)

REDIS_URL = os.environ.get("CELERY_BROKER_URL", "redis://127.0.0.1:6379/0")
SERVER_KEY = "celery_batch:server"
"""Where in Redis the producer leaves the address of its embedded server."""

app = Celery("celery_batch", broker=REDIS_URL, backend=REDIS_URL)
app.conf.update(
    # A task is taken off the queue when it is done, and put back if its process dies before: the key of its run makes
    # that cheap.
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    # What died together with its whole worker comes back after this long. Above the longest task: one that takes longer
    # is given to a second worker while the first is at work. And kombu's ten connections are too few for 32 greenlets
    # or threads that are done at the same moment.
    broker_transport_options={"visibility_timeout": 3600, "max_connections": 200},
    visibility_timeout=3600,
    # A worker that lost the broker stops what it does, since others get it anyway.
    worker_cancel_long_running_tasks_on_connection_loss=True,
    worker_prefetch_multiplier=1,
    task_soft_time_limit=900,
    task_time_limit=930,
    # JSON, both ways: nothing that comes from the queue is executed.
    task_serializer="json",
    result_serializer="json",
    accept_content=["json"],
    result_expires=24 * 3600,
    broker_connection_retry_on_startup=True,
)
pace = Pace(lambda: app.backend.client, "celery_batch:starts")

IDEMPOTENCY_KEY = "mantyx_sync.key"
"""Where a run's metadata has the key it was started with."""

PRICES = {"hose": 25.0, "rake": 18.5, "shovel": 22.0, "bucket": 6.0}


@tool(read_only=True)
def get_price(item: str) -> float:
    """Look up the price of one item.

    Args:
        item: The name of the item, in double quotes.
    """
    return PRICES[item]


_clients: dict[str, MantyxClient] = {}
_making = threading.Lock()


def client() -> MantyxClient:
    """Return this process's client; every thread uses the same one."""
    settings = "{}"  # from the environment
    if not (os.environ.get("MANTYX_API_KEY") or os.environ.get("MANTYX_ACCESS_TOKEN")):
        left = app.backend.client.get(SERVER_KEY)
        if left is None:
            raise RuntimeError("no MANTYX_API_KEY is set, and no producer has started an embedded server")
        settings = left.decode()
    with _making:
        if settings not in _clients:
            close_client()  # of an embedded server that is gone
            # The queue repeats what fails, so the client need not: each wait is in one place.
            _clients[settings] = MantyxClient(max_retries=0, app_info="celery-batch", **json.loads(settings))
        return _clients[settings]


@app.task(bind=True, name="celery_batch.answer", max_retries=5)
def answer(self: Any, prompt: str) -> dict[str, Any]:
    """Answer a prompt. The result is plain data, since JSON brings it back."""
    mantyx = client()
    try:
        while True:
            pace.wait()
            try:
                run = mantyx.start_agent(
                    system_prompt="You know the prices of a small shop. Use the tools.",
                    prompt=prompt,
                    tools=[get_price],
                    timeout=600,
                    idempotency_key=self.request.id,
                )
                break
            except MantyxRateLimitError as error:
                # Waits in its place. Put back with a countdown, a thousand tasks would end up in the workers' memory.
                pace.slow_down(error)
        result = run.result()
    except MantyxRunError as error:
        if not error.retryable:
            raise
        raise self.retry(exc=error, countdown=2**self.request.retries) from error
    except (MantyxNetworkError, MantyxServerError) as error:  # whatever became of the run, its key finds it
        raise self.retry(exc=error, countdown=2**self.request.retries) from error
    return {"run_id": result.run_id, "text": result.text}


def cancel_runs(task_id: str) -> None:
    """Cancel what a task has going: nobody is left who would."""
    for run in client().list_runs(metadata={IDEMPOTENCY_KEY: task_id}, status="running"):
        client().cancel_run(run.id)


@signals.task_revoked.connect  # app.control.revoke(task_id, terminate=True), in the worker's main process
def on_revoked(request: Any = None, terminated: bool = False, **_: Any) -> None:
    if terminated:
        cancel_runs(request.id)


@signals.task_failure.connect
def on_failure(task_id: str = "", exception: object = None, **_: Any) -> None:
    if isinstance(exception, TimeLimitExceeded):  # the hard one: its process was killed (Celery tells this since 5.7)
        cancel_runs(task_id)


@signals.worker_process_shutdown.connect  # of each process of a prefork pool
@signals.worker_shutdown.connect
def close_client(**_: Any) -> None:
    """Let go of connections. A run that is still followed here goes on, for whoever gets its task."""
    while _clients:
        _clients.popitem()[1].close()
