"""A deadline for an exchange on this thread: its connection is shut when the time is over."""

from __future__ import annotations

import threading
import time

from .body import Release

__all__ = ["CutOff"]


class CutOff:
    """Shuts the connection of an exchange on this thread at its deadline.

    The time-outs of a socket are for each wait: a peer that sends byte after byte never exceeds them.
    """

    def __init__(self, deadline: float | None) -> None:
        self.release = Release()
        self._timer: threading.Timer | None = None
        if deadline is not None:
            # Owned by this object: ends by itself at the deadline, and is ended when the exchange is over.
            left = min(max(0.0, deadline - time.monotonic()), threading.TIMEOUT_MAX)
            self._timer = threading.Timer(left, self.release)
            self._timer.name, self._timer.daemon = "mantyx-cut-off", True

    def __enter__(self) -> CutOff:
        if self._timer is not None:
            try:
                self._timer.start()
            except RuntimeError:  # there can be no more threads: each wait is bounded all the same
                pass
            except BaseException:  # Ctrl-C may end the wait for its start, not the thread
                self._timer.cancel()
                raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.release.forget()
