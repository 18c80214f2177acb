"""What several commands need: arguments that are durations, and a log for a person to read."""

from __future__ import annotations

import argparse
import logging

__all__ = ["log_to_stderr", "seconds"]


def seconds(text: str) -> float:
    """Read a duration."""
    value = float(text)  # argparse says what is wrong
    if not 0 <= value <= 86_400:
        raise argparse.ArgumentTypeError(f"got {text!r}, must be from 0 to 86400 seconds")
    return value


def log_to_stderr(level: int) -> None:
    """Show what the package logs, unless the caller's module has set logging up."""
    logger = logging.getLogger("mantyx_sync")
    if logging.getLogger().handlers or any(type(handler) is not logging.NullHandler for handler in logger.handlers):
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(level)
