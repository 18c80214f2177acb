"""Starting a run so that Ctrl-C in that moment leaves none behind."""

from __future__ import annotations

import contextlib
import contextvars
import threading
import time
from typing import TYPE_CHECKING, Callable, Iterator, Optional

from ..transport.bell import Bell

if TYPE_CHECKING:
    from ..run import Run

__all__ = ["started"]

_SLICE_S = 0.25
_PATIENCE_S = 2.0
"""For the server to hear that a run is given up: at a command line a run that is left behind is worse than a wait."""
_CONNECT_PATIENCE_S = 0.6


@contextlib.contextmanager
def started(create: Callable[[], Run], tell: Callable[[str], None], *, connects_first: bool = False) -> Iterator[Run]:
    """Give the block the run that `create` starts; one that has not ended with the block is cancelled.

    Blocks until the run is there. The request is made on a thread of its own: broken off in the middle, it would leave
    a run of which nobody knows the id. When a signal comes, its answer is waited for a moment longer, and the run
    cancelled. Another signal ends that wait.

    Args:
        tell: Says that a run may have been left behind.
        connects_first: `create` waits for servers of the caller's before it asks for the run, perhaps for long: that
            is probably what a signal breaks off.

    Raises:
        BaseException: As `create`; and what a signal's handler raises.
    """
    starting = _Starting(create, _CONNECT_PATIENCE_S if connects_first else _PATIENCE_S)
    try:
        with starting.wait() as run:
            yield run
    except BaseException:
        left = ""
        try:
            left = starting.give_up()
        except BaseException:  # the second signal
            left = starting.may_be_left()
            raise
        finally:
            if left:
                tell(left)
        raise


class _Starting:
    def __init__(self, create: Callable[[], Run], patience: float) -> None:
        self._create = create
        self._patience = patience
        self._bell = Bell()
        self._is_over = False
        self._is_given_up = False
        self._run: Optional[Run] = None
        self._error: Optional[BaseException] = None
        context = contextvars.copy_context()
        # Owned by this object: it rings when it is over, and is a daemon since a server may keep it waiting for a
        # minute, which whoever pressed Ctrl-C does not want to wait.
        self._thread = threading.Thread(target=context.run, args=(self._start,), name="mantyx-start", daemon=True)

    def wait(self) -> Run:
        """Start the thread and return the run; or raise what was raised there."""
        self._thread.start()
        while not self._is_over:
            self._bell.wait(_SLICE_S)
        self._thread.join()
        error, self._error = self._error, None
        if error is not None:
            raise error
        assert self._run is not None, "it is over without an error"
        return self._run

    def give_up(self) -> str:
        """Wait a moment for the run, and cancel it; if it comes later than that, it is cancelled then.

        Returns what is to be said of a run that may be left behind.
        """
        self._is_given_up = True
        until = time.monotonic() + self._patience
        while not self._is_over and self._thread.ident is not None and time.monotonic() < until:
            self._bell.wait(min(_SLICE_S, until - time.monotonic()))
        is_told = self._is_over and self._abort()
        return "" if is_told else self.may_be_left()

    def may_be_left(self) -> str:
        """Say which run it is that the server may not have been told of."""
        if self._run is not None:
            return f"run {self._run.run_id} may still be going: mantyx-sync cancel {self._run.run_id}"
        if self._is_over or self._thread.ident is None:
            return ""  # there is none
        return "whether a run was begun is not known: mantyx-sync runs --status running"

    def _start(self) -> None:
        try:
            run = self._create()
            run.abort_timeout = _PATIENCE_S
            self._run = run
        except BaseException as error:  # handed to who waits for it
            self._error = error
        self._is_over = True
        if self._is_given_up:  # looked at behind the line above: who gives up sets it, then looks whether it is over
            self._abort()
        self._bell.ring()

    def _abort(self) -> bool:
        """Give the run up, unless it was; tell whether the server knows."""
        return self._run is None or self._run.abort()
