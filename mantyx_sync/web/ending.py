"""When the process that serves streams is asked to end: its streams end in time, and so do their runs.

A worker that gets SIGTERM waits for the answers it is giving, and is killed when they take too long: a run whose stream
was open then would go on at the server for nobody. So each open stream looks once a second whether the end has come.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
import weakref
from types import FrameType
from typing import Any, Callable, Protocol

from ..checks import seconds
from ..errors import MantyxConfigError
from ..roster import Roster

__all__ = ["Closable", "end_streams", "end_streams_at_sigterm", "is_over", "note_open"]

MARGIN_S = 5.0
"""How long before a worker is killed its streams end: time for the runs to be cancelled and the browsers to be told."""
EXIT_S = 5.0
"""How long the end of the interpreter may wait for runs to be cancelled."""


class Closable(Protocol):
    """An open stream."""

    @property
    def is_free(self) -> bool:
        """Nothing of it is left, also not in the hands of another thread."""
        ...

    def close(self) -> None:
        """Give up its run, and free everything."""

    def let_go(self) -> None:
        """Free everything without waiting for anybody."""


_open: Roster[Closable] = Roster()
_is_registered = False
_until: list[tuple[int, float]] = []  # the process, and the time on the monotonic clock at which its streams end


def note_open(stream: Closable) -> None:
    """Have a stream closed when the interpreter exits."""
    global _is_registered
    _open.add(stream)
    if not _is_registered:  # twice would do no harm
        _is_registered = True
        # What is registered last runs first. So this comes behind the readers' own function, which ends what is to be
        # cancelled here, and behind that of `weakref`, by which urllib3 closes connections: its first finalizer sees to
        # that.
        weakref.finalize(_open, _nothing).detach()
        atexit.register(_close_open)


def _nothing() -> None:
    pass


def end_streams(grace: float = 0.0) -> None:
    """Have the open streams of this process end, and those that begin later. Does not wait; any thread may call it.

    With `on_disconnect="cancel"` their runs are cancelled, and the browser gets an `error` event with the code
    `shutting_down`; with `"finish"` the stream alone ends, and the browser comes back to another process.

    Args:
        grace: Seconds that are left to them.

    Raises:
        MantyxConfigError: `grace` is not a number of seconds.
    """
    _end_by(time.monotonic() + (seconds(grace, "grace") if grace != 0 else 0.0))


def end_streams_at_sigterm() -> None:
    """Have SIGTERM end the open streams before it does what it did before. Call it on the main thread, once.

    For servers that die of SIGTERM at once: waitress, wsgiref, the development servers. Where nothing was to be done
    at SIGTERM, it becomes a `SystemExit` on the main thread. Workers of gunicorn and of uWSGI need none of this.

    Raises:
        MantyxConfigError: This is not the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        raise MantyxConfigError("end_streams_at_sigterm: called on another thread, must be called on the main thread")
    previous: Any = signal.getsignal(signal.SIGTERM)
    if previous is None or getattr(previous, "is_of_mantyx_web", False):
        return  # not installed from Python, so it could not be called: uWSGI's, which ends the interpreter in order

    def handle(number: int, frame: FrameType | None) -> None:
        _end_by(time.monotonic())
        if callable(previous):
            previous(number, frame)
        elif previous == signal.SIG_DFL:
            sys.exit(128 + number)

    handle.is_of_mantyx_web = True  # type: ignore[attr-defined]
    signal.signal(signal.SIGTERM, handle)


def is_over(now: float) -> bool:
    """Tell whether the time of this process's streams is over; `now` is on the monotonic clock."""
    process = os.getpid()
    if not any(owner == process for owner, _ in _until):
        grace = _grace_of_gunicorn()
        if grace is None:
            return False
        _end_by(now + max(grace - MARGIN_S, grace / 2))
    return any(owner == process and now >= end for owner, end in list(_until))


def _end_by(end: float) -> None:
    # No lock, since a handler of signals calls this: adding to a list is one step for all threads.
    _until.append((os.getpid(), end))


def _grace_of_gunicorn() -> float | None:
    """Return how many seconds are left to a worker of gunicorn that was asked to end; `None` if this is none.

    Its handler of SIGTERM is a method of the worker, which notes there that it is to end. Asked for in this way, it
    needs no setting: gunicorn tells nobody else.
    """
    worker = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    if worker is None or getattr(worker, "alive", True) is not False:
        return None
    grace = getattr(getattr(worker, "cfg", None), "graceful_timeout", None)
    return float(grace) if isinstance(grace, (int, float)) else 2 * MARGIN_S


def _close_open() -> None:
    """Cancel what goes on for streams that are open."""
    _end_by(time.monotonic())
    until = time.monotonic() + EXIT_S
    streams = _open.items()
    for stream in streams:
        release: Callable[[], None] = stream.close if time.monotonic() < until else stream.let_go
        release()
    # Threads that serve are often daemons: one that is cancelling its run just now would be cut off in the middle.
    pause = threading.Event()
    while not all(stream.is_free for stream in streams) and time.monotonic() < until:
        pause.wait(0.01)
