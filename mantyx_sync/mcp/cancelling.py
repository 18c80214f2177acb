"""Ending a call from outside: waits that a cancellation ends, and plain events used as one."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Iterator

from ..tools.cancellation import checked_event
from ..transport.bell import Bell
from .channel import Cancellation, Waiting
from .errors import McpCancelled, McpError, McpTimeoutError

__all__ = ["as_cancellation", "pause", "wait_for"]

_SLICE_S = 0.25  # Ctrl-C is noticed between slices
_POLL_S = 0.05


@contextlib.contextmanager
def as_cancellation(given: threading.Event | None) -> Iterator[Cancellation | None]:
    """Give out what a call was given to cancel it as a `Cancellation`, for as long as the call takes.

    A plain event calls nobody back, so a thread looks at it now and then meanwhile.

    Raises:
        MantyxConfigError: It is nothing that can be set.
        McpError: There is no thread to be had (`code` is `no_thread`).
    """
    if given is None or isinstance(given, Cancellation):
        yield given
        return
    checked_event(given, "cancelled")
    cancellation, over = Cancellation(), Bell()
    if given.is_set():
        cancellation.set()
        yield cancellation
        return

    def watch() -> None:
        while not over.wait(_POLL_S):
            if given.is_set():
                cancellation.set()
                return

    # Owned by this call, which wakes and joins it when it ends. A daemon: it holds nothing.
    thread = threading.Thread(target=watch, name="mantyx-mcp-cancel", daemon=True)
    try:
        try:
            thread.start()
        except RuntimeError as error:  # there are too many, or the interpreter is ending
            text = f"cancelled: no thread can be started to watch it ({error}); nothing was sent"
            raise McpError(text, code="no_thread", cause=error) from error
        yield cancellation
    finally:
        over.ring()
        if thread.ident is not None:
            thread.join(1.0)


def wait_for(bell: Bell, waiting: Waiting, label: str, what: str) -> None:
    """Wait until a bell rings, a little while at most: look afterwards whether what it is for has come.

    Raises:
        McpTimeoutError: The deadline passed.
        McpCancelled: The call was cancelled.
    """
    cancelled = waiting.cancelled
    take_back = cancelled.add(bell.ring) if cancelled is not None else _nothing
    try:
        if cancelled is not None and cancelled.is_set():
            raise McpCancelled(f"{label}: cancelled while it {what}")
        left = _SLICE_S if waiting.deadline is None else waiting.deadline - time.monotonic()
        if left <= 0:
            raise McpTimeoutError(f"{label}: the time allowed was over while it {what}")
        bell.wait(min(left, _SLICE_S))
    finally:
        take_back()


def pause(seconds: float, waiting: Waiting, label: str, what: str) -> None:
    """Wait for some seconds; raises as `wait_for` does."""
    until, bell = time.monotonic() + seconds, Bell()
    while time.monotonic() < until:
        deadline = until if waiting.deadline is None else min(until, waiting.deadline)
        try:
            wait_for(bell, Waiting(deadline, cancelled=waiting.cancelled), label, what)
        except McpTimeoutError:
            if deadline != until:
                raise
            return


def _nothing() -> None:
    """Take back what was never added."""
