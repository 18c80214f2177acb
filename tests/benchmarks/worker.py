"""One contender in a process of its own, so that its CPU time and its peak of memory are its own.

`python -m tests.benchmarks.worker CONTENDER BASE_URL` reads tasks as JSON lines, answers each with one, and ends
when its standard input does.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
import time
from dataclasses import asdict, dataclass, field
from typing import Any, Dict, List, Mapping

from tests.benchmarks.contenders import Contender, load
from tests.benchmarks.plays import Play

__all__ = ["Reply", "Task", "perform"]


@dataclass(frozen=True)
class Task:
    """What a contender is to do with a play: `text`, `iterate`, `arrivals`, `tool` or `many` (runs with the tool)."""

    do: str
    play: Play
    delay_s: float = 0.0
    stall_s: float = 0.0
    runs: int = 1

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Task:
        return cls(**{**fields, "play": Play(**fields["play"])})


@dataclass
class Reply:
    """What was seen, and what it cost."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    peak_bytes: int = 0  # growth of the resident set over its size before the task
    threads: int = 0  # most threads alive at once, over those alive before the task
    final_texts: List[str] = field(default_factory=list)
    texts: int = 0
    length: int = 0
    arrivals_ns: List[int] = field(default_factory=list)


def perform(contender: Contender, task: Task) -> Reply:
    """Do one task and measure it."""
    reply = Reply()
    prompt = task.play.prompt()
    before = _memory_mark()
    threads = threading.active_count()
    wall, cpu = time.perf_counter(), time.process_time()
    if task.do == "text":
        reply.final_texts = [contender.run_text(prompt)]
    elif task.do == "iterate":
        reply.texts, reply.length = contender.iterate(prompt, task.stall_s)
    elif task.do == "arrivals":
        reply.arrivals_ns = contender.arrivals(prompt)
    elif task.do == "tool":
        reply.final_texts = [contender.run_tool(prompt, task.delay_s)]
    elif task.do == "many":
        _run_many(contender, task, reply)
    else:
        raise ValueError(f"no task {task.do!r}")
    reply.wall_s = time.perf_counter() - wall
    reply.cpu_s = time.process_time() - cpu
    reply.peak_bytes = max(0, _memory_peak() - before)
    reply.threads = max(0, reply.threads - threads)
    return reply


def _run_many(contender: Contender, task: Task, reply: Reply) -> None:
    failures: List[BaseException] = []

    def one() -> None:
        try:
            reply.final_texts.append(contender.run_tool(task.play.prompt(), task.delay_s))
        except BaseException as error:
            failures.append(error)

    callers = [threading.Thread(target=one, daemon=True) for _ in range(task.runs)]
    for caller in callers:
        caller.start()
    for caller in callers:
        while caller.is_alive():
            reply.threads = max(reply.threads, threading.active_count())
            caller.join(0.01)
    if failures:
        raise failures[0]


# Linux keeps the peak per address space and lets us set it back. `ru_maxrss` cannot be set back and may begin with
# the parent's, so elsewhere the growth is at best a lower bound.


def _memory_mark() -> int:
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except OSError:
        return _memory_peak()
    return _status_bytes("VmRSS")


def _memory_peak() -> int:
    if os.path.exists("/proc/self/status"):
        return _status_bytes("VmHWM")
    try:
        import resource
    except ImportError:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _status_bytes(name: str) -> int:
    with open("/proc/self/status") as file:
        match = re.search(rf"^{name}:\s+(\d+) kB", file.read(), re.MULTILINE)
    return int(match.group(1)) * 1024 if match else 0


def main(name: str, base_url: str) -> None:
    # Replies go to the real standard output; whatever a library prints goes to standard error.
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    logging.getLogger("urllib3").setLevel(logging.ERROR)  # a full pool is expected of the hand-written client
    contender = load(name, base_url)
    replies.write(json.dumps({"ready": _versions()}) + "\n")
    for line in sys.stdin:
        answer: Dict[str, Any]
        try:
            answer = asdict(perform(contender, Task.from_json(json.loads(line))))
        except Exception as error:
            answer = {"failure": f"{type(error).__name__}: {error}"[:500]}
        replies.write(json.dumps(answer) + "\n")
    contender.close()


def _versions() -> Dict[str, str]:
    versions = {"python": ".".join(map(str, sys.version_info[:3]))}
    for module, distribution in (("mantyx_sync", "mantyx-sync"), ("mantyx", "mantyx-sdk"), ("requests", "requests")):
        loaded = sys.modules.get(module)
        if loaded is not None:
            versions[distribution] = str(getattr(loaded, "__version__", "?"))
    return versions


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
