"""The contenders: the same five tasks, each done the way its users would do it."""

from __future__ import annotations

import importlib
from typing import List, Tuple

__all__ = ["NAMES", "Contender", "load"]

NAMES = ("ours", "peer", "naive", "floor")


class Contender:
    """What a scenario asks of a contender. One instance serves many runs and, for `run_tool`, many threads."""

    def __init__(self, base_url: str) -> None:
        raise NotImplementedError

    def run_text(self, prompt: str) -> str:
        """Run to the end and return the final text only."""
        raise NotImplementedError

    def iterate(self, prompt: str, stall_s: float = 0.0) -> Tuple[int, int]:
        """Look at every event; return how many texts came and their length. Pause `stall_s` after the first."""
        raise NotImplementedError

    def arrivals(self, prompt: str) -> List[int]:
        """Return for each delta, in nanoseconds, how long after its stamp it reached the caller."""
        raise NotImplementedError

    def run_tool(self, prompt: str, delay_s: float = 0.0) -> str:
        """Run with the tool `ping(number)`, which takes `delay_s`, and return the final text."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


def load(name: str, base_url: str) -> Contender:
    """Import a contender's module, and with it the library it stands for, and make one."""
    module = importlib.import_module(f"tests.benchmarks.contenders.{name}")
    contender: Contender = module.make(base_url)
    return contender
