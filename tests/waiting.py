"""Waiting until something is so that no event announces: never longer than a deadline, which fails the test."""

from __future__ import annotations

import threading
import time
from typing import Callable, TypeVar

__all__ = ["DEADLINE_S", "wait_until"]

T = TypeVar("T")

DEADLINE_S = 20.0


def wait_until(condition: Callable[[], T], why: str = "it did not come about", deadline_s: float = DEADLINE_S) -> T:
    """Wait until `condition()` is true, and return what it is; fail with `why` at the deadline."""
    pause = threading.Event()
    deadline = time.monotonic() + deadline_s
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, f"{why} (waited {deadline_s:g} s)"
        pause.wait(0.005)
