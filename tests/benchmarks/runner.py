"""Run scenarios: one server, one process per contender, interleaved rounds, and nothing that outlives them."""

from __future__ import annotations

import json
import os
import selectors
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from tests.benchmarks.scenarios import Scenario
from tests.benchmarks.worker import Reply, Task

__all__ = ["CACHE", "ROOT", "Outcome", "Runner", "child_environment"]

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(__file__).resolve().parent / ".cache"
_START_S = 20.0


@dataclass
class Outcome:
    """What one contender did in one scenario."""

    samples: Dict[str, List[float]] = field(default_factory=dict)
    capped_s: Optional[float] = None  # it was stopped after this long
    failure: Optional[str] = None

    def add(self, measures: Mapping[str, float]) -> None:
        for measure, value in measures.items():
            self.samples.setdefault(measure, []).append(value)

    def median(self, measure: str) -> Optional[float]:
        values = self.samples.get(measure)
        return statistics.median(values) if values else None


class _TooLong(Exception):
    """A child did not answer in time."""


class _Child:
    """A Python process that answers lines with lines."""

    def __init__(self, python: str, arguments: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            [python, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=str(ROOT),
            env=child_environment(),
        )
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._stdout, selectors.EVENT_READ)
        self._rest = b""

    @property
    def _stdout(self) -> Any:
        return self._process.stdout

    def read_line(self, timeout: float) -> str:
        deadline = time.monotonic() + timeout
        while b"\n" not in self._rest:
            if not self._selector.select(max(0.0, deadline - time.monotonic())):
                raise _TooLong
            data = os.read(self._stdout.fileno(), 65536)
            if not data:
                raise RuntimeError(f"the process ended with code {self._process.wait()}")
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode()

    def write_line(self, line: str) -> None:
        stdin: Any = self._process.stdin
        stdin.write(line.encode() + b"\n")
        stdin.flush()

    def end(self, patience_s: float = 2.0) -> None:
        """End the process: by closing its input, else by killing it."""
        try:
            self._process.stdin.close()  # type: ignore[union-attr]
            self._process.wait(patience_s)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        self._selector.close()
        self._stdout.close()


class Runner:
    """Owns the server and the contenders' processes. Use as a context manager."""

    def __init__(self, pythons: Mapping[str, str], total_s: float, say: Callable[[str], None] = lambda _: None) -> None:
        """`pythons` names each contender's interpreter; no new round starts after `total_s`."""
        self._pythons = dict(pythons)
        self._deadline = time.monotonic() + total_s
        self._say = say
        self._children: Dict[str, _Child] = {}
        self._server = _Child(sys.executable, ["-m", "tests.benchmarks.server"])
        self.base_url = f"http://127.0.0.1:{self._server.read_line(_START_S)}"
        self.versions: Dict[str, Dict[str, str]] = {}
        self.unavailable: Dict[str, str] = {}

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        for child in self._children.values():
            child.end()
        self._children.clear()
        self._server.end()

    def run(self, scenario: Scenario, share: float = 1.0) -> Dict[str, Outcome]:
        """Measure every contender in turn, round by round, within `share` of the time that is left."""
        self._say(scenario.title)
        started = time.monotonic()
        allowed = (self._deadline - started) * share
        outcomes = {name: Outcome() for name in self._pythons if name not in self.unavailable}
        if allowed <= 0:
            return outcomes
        names = list(outcomes)
        for name in names:
            self._warm_up(name, scenario, outcomes[name])
        for number in range(scenario.rounds):
            if number and time.monotonic() - started > allowed:
                break
            turn = number % len(names)
            for name in names[turn:] + names[:turn]:
                outcome = outcomes[name]
                if outcome.capped_s is None and outcome.failure is None:
                    self._measure(name, scenario, outcome)
        return outcomes

    def _warm_up(self, name: str, scenario: Scenario, outcome: Outcome) -> None:
        if scenario.fresh:
            return  # done in the process that measures
        self._attempt(name, scenario, scenario.warm_up(), outcome)

    def _measure(self, name: str, scenario: Scenario, outcome: Outcome) -> None:
        if scenario.fresh:
            self._end(name)
            if self._attempt(name, scenario, scenario.warm_up(), outcome) is None:
                return
        replies = self._attempt(name, scenario, scenario.tasks(), outcome)
        if replies is None:
            return
        outcome.failure = scenario.check(replies)
        if outcome.failure is None:
            outcome.add(scenario.measures(replies))

    def _attempt(self, name: str, scenario: Scenario, tasks: Sequence[Task], outcome: Outcome) -> Optional[List[Reply]]:
        replies = []
        deadline = time.monotonic() + scenario.cap_s
        try:
            child = self._child(name)
            for task in tasks:
                child.write_line(json.dumps(asdict(task)))
                answer = json.loads(child.read_line(deadline - time.monotonic()))
                if "failure" in answer:
                    outcome.failure = answer["failure"]
                    return None
                replies.append(Reply(**answer))
        except _TooLong:
            outcome.capped_s = scenario.cap_s
            self._end(name, patience_s=0.0)
            return None
        except (RuntimeError, OSError) as error:
            outcome.failure = str(error)
            self._end(name, patience_s=0.0)
            return None
        return replies

    def _child(self, name: str) -> _Child:
        child = self._children.get(name)
        if child is None:
            child = _Child(self._pythons[name], ["-m", "tests.benchmarks.worker", name, self.base_url])
            self._children[name] = child
            try:
                self.versions[name] = json.loads(child.read_line(_START_S))["ready"]
            except (RuntimeError, _TooLong) as error:
                self.unavailable[name] = f"its process did not start: {error}"
                raise RuntimeError(self.unavailable[name]) from error
        return child

    def _end(self, name: str, patience_s: float = 2.0) -> None:
        child = self._children.pop(name, None)
        if child is not None:
            child.end(patience_s)


def child_environment() -> Dict[str, str]:
    """The environment of every child: byte code cached, and not among the sources."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(CACHE / "pycache")
    for proxy in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        environment.pop(proxy, None)
    return environment
