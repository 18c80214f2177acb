"""Measure on this machine what processes, threads and `client.map` give, on runs that wait for their model.

    python sizing.py --seconds 0.3

Needs Redis at `CELERY_BROKER_URL`. Server, Redis and workers share this machine's cores, so the absolute numbers are no
more than a lower bound; what counts is how they compare, and where each way stops growing.
"""

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any, Iterator

from celery.result import ResultSet
from tasks import SERVER_KEY, answer, app

from mantyx_sync.local import LocalServer

HERE = Path(__file__).parent
PROCESSES = (1, 2, 4, 8)
THREADS = (8, 32, 64)
MAX_TASKS = 400
MAP = """
import json, resource, sys, time
from mantyx_sync import MantyxClient
settings, workers, count = json.loads(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
with MantyxClient(**settings) as client:
    list(client.map(["warm up"] * workers, system_prompt="x", max_workers=workers))
    began = time.monotonic()
    list(client.map(["Go"] * count, system_prompt="x", max_workers=workers))
    print(count / (time.monotonic() - began))
    print(open("/proc/self/smaps_rollup").read())
"""


class WaitingModel:
    """A model that takes its time and says one word."""

    model_id = "local:waiting"

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def complete(self, request: Any) -> Iterator[str]:
        request.cancelled.wait(self.seconds)
        yield "Done."


def megabytes(rollup: str) -> float:
    """Return a process's share of memory: what it has for itself, and its part of what it shares."""
    found = re.search(r"^Pss: +(\d+) kB", rollup, re.MULTILINE)
    return int(found.group(1)) / 1024 if found else 0.0


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def memory(pid: int) -> tuple[int, float]:
    """Return how many processes a worker has, and the megabytes of each one that runs tasks."""
    everybody = [pid]
    for one in everybody:  # grows as it goes
        everybody.extend(children_of(one))
    at_work = everybody[1:] or everybody
    shares = [megabytes(Path(f"/proc/{one}/smaps_rollup").read_text()) for one in at_work]
    return len(everybody), sum(shares) / len(shares)


@contextlib.contextmanager
def worker(queue: str, *options: str) -> Iterator[int]:
    command = [sys.executable, "-m", "celery", "-A", "tasks", "worker", "-Q", queue, "-n", f"{queue}@localhost"]
    command += ["--loglevel", "error", "--without-gossip", "--without-mingle", *options]
    with subprocess.Popen(command, cwd=HERE, start_new_session=True, stdout=subprocess.DEVNULL) as process:
        try:
            yield process.pid
            process.send_signal(signal.SIGTERM)
            process.wait(30)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def through_celery(pool: str, size: int, count: int) -> tuple[float, int, float]:
    """Return runs a second, processes, and megabytes of one that runs tasks."""
    queue = f"sizing-{uuid.uuid4().hex[:8]}"

    def runs(number: int) -> None:
        results = ResultSet([answer.apply_async(("Go",), queue=queue) for _ in range(number)], app=app)
        results.join_native(timeout=120)

    with worker(queue, "--pool", pool, "--concurrency", str(size)) as pid:
        runs(2 * size)  # each process has made its client
        began = time.monotonic()
        runs(count)
        return (count / (time.monotonic() - began), *memory(pid))


def through_map(settings: Any, size: int, count: int) -> tuple[float, int, float]:
    command = [sys.executable, "-c", MAP, json.dumps(settings), str(size), str(count)]
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=120).stdout
    return float(said.splitlines()[0]), 1, megabytes(said)


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare processes, threads and client.map.")
    parser.add_argument("--seconds", type=float, default=0.3, help="how long a run waits for its model")
    parser.add_argument("--each", type=float, default=6.0, help="about how many seconds each line is measured for")
    parser.add_argument("--processes", type=int, nargs="*", default=PROCESSES, help="sizes of prefork pools")
    parser.add_argument("--threads", type=int, nargs="*", default=THREADS, help="sizes of thread pools and loops")
    given = parser.parse_args()

    def count(size: int) -> int:
        return min(MAX_TASKS, max(10, int(size * given.each / given.seconds)))

    with LocalServer(WaitingModel(given.seconds)) as server:
        app.backend.client.set(SERVER_KEY, json.dumps(server.client_settings()))
        print("| way | at once | runs/s | of what waiting allows | processes | MB each |")
        print("| --- | ---: | ---: | ---: | ---: | ---: |")

        def show(way: str, size: int, found: tuple[float, int, float]) -> None:
            rate, processes, size_mb = found
            share = rate * given.seconds / size
            print(f"| {way} | {size} | {rate:.1f} | {share:.0%} | {processes} | {size_mb:.0f} |", flush=True)

        for size in given.processes:
            show("Celery, prefork", size, through_celery("prefork", size, count(size)))
        for size in given.threads:
            show("Celery, threads", size, through_celery("threads", size, count(size)))
        for size in given.threads:
            show("`client.map`", size, through_map(server.client_settings(), size, count(size)))
        app.backend.client.delete(SERVER_KEY)


if __name__ == "__main__":
    main()
