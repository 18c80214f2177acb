"""How a process ended, in words. Does no I/O, and loads nothing that starts processes."""

from __future__ import annotations

import signal
from typing import Optional

__all__ = ["how_it_ended"]


def how_it_ended(exit_code: Optional[int]) -> str:
    """Say how a process ended, as a verb that follows its name."""
    if exit_code is None:
        return "exited"
    if exit_code >= 0:
        return f"exited with code {exit_code}"
    try:
        return f"was killed by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"was killed by signal {-exit_code}"
