"""How long a call may take: to its deadline, and until its caller cancels it."""

from __future__ import annotations

import math
import threading
import time
from typing import Callable, List, Tuple

from ...tools.cancellation import Cancellation
from ...transport.bell import Bell
from ...transport.body import Release

__all__ = ["Allowance", "Watch"]

SLICE_S = 0.1
"""How often a plain event is looked at; a `Cancellation` ends a wait at once."""
GRACE_S = 0.05
"""How much later than the deadline a socket's own time-out is: when it passes, so has the deadline."""
INTERRUPT_SLICE_S = 0.25
"""How soon Ctrl-C is noticed where a wait on a lock is not interrupted."""


class Allowance:
    """The deadline of a call (monotonic clock; `None`: no limit) and what cancels it.

    It holds for all exchanges of the call together and the pauses between them; a `Watch` holds one exchange to it.
    """

    def __init__(self, deadline: float | None, *cancelled: threading.Event) -> None:
        self.deadline = deadline
        self.cancelled = cancelled

    @classmethod
    def of(cls, timeout: float | None, *cancelled: threading.Event | None) -> Allowance:
        """Begin to wait `timeout` seconds from now; `None` and infinity set no limit."""
        deadline = None if timeout is None or math.isinf(timeout) else time.monotonic() + timeout
        return cls(deadline, *[item for item in cancelled if item is not None])

    def at_most(self, timeout: float) -> Allowance:
        """Return the same with a deadline that is no more than `timeout` seconds away."""
        return Allowance(time.monotonic() + min(timeout, self.left), *self.cancelled)

    @property
    def left(self) -> float:
        """Seconds that are left; infinity without a deadline."""
        return math.inf if self.deadline is None else self.deadline - time.monotonic()

    @property
    def socket_timeout(self) -> float:
        """Seconds for a wait on a socket. It ends by itself where no thread could be had to end it in time."""
        return max(self.left, 0.0) + GRACE_S

    @property
    def is_cancelled(self) -> bool:
        """True once the call is cancelled."""
        return any(item.is_set() for item in self.cancelled)

    @property
    def is_over(self) -> bool:
        """True once there is no more waiting."""
        return self.is_cancelled or self.left <= 0

    def pause(self, seconds: float) -> None:
        """Wait, at most to the deadline; cancelling ends the wait."""
        end = time.monotonic() + min(seconds, self.left)
        bell = Bell()
        take_back, others = _call_back(self.cancelled, bell.ring)
        try:
            while not self.is_cancelled:
                left = end - time.monotonic()
                if left <= 0:
                    return
                bell.wait(min(left, SLICE_S if others else INTERRUPT_SLICE_S))
        finally:
            take_back()


def _call_back(
    cancelled: Tuple[threading.Event, ...], callback: Callable[[], None]
) -> Tuple[Callable[[], None], Tuple[threading.Event, ...]]:
    """Have `callback` called by those that call back; return what takes that back, and those that do not."""
    undo: List[Callable[[], None]] = []
    others: List[threading.Event] = []
    for item in cancelled:
        if isinstance(item, Cancellation):
            undo.append(item.add(callback))
        else:
            others.append(item)

    def take_back() -> None:
        for action in undo:
            action()

    return take_back, tuple(others)


class Watch:
    """Shuts the connection of an exchange when the allowance for it is over. A context manager, for each exchange anew.

    The time-outs of a socket are for each wait: a peer that sends byte after byte never exceeds them.
    """

    def __init__(self, allowance: Allowance, release: Release) -> None:
        self._allowance = allowance
        self._release = release
        self._bell = Bell()
        self._thread: threading.Thread | None = None
        self._take_back: Callable[[], None] | None = None

    def __enter__(self) -> Watch:
        self._take_back, others = _call_back(self._allowance.cancelled, self._release)
        if self._allowance.deadline is not None or others:
            # Owned by this object: woken and joined when the exchange is over, and ends by itself at the deadline.
            self._thread = threading.Thread(target=self._run, args=(others,), name="mantyx-a2a-watch", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # there can be no more threads: each wait is bounded all the same
                self._thread = None
            except BaseException:  # Ctrl-C may end the wait for its start, not the thread
                self._bell.ring()
                raise
        return self

    def __exit__(self, *_: object) -> None:
        self._bell.ring()
        if self._take_back is not None:
            self._take_back()
        if self._thread is not None:
            self._thread.join(1.0)

    def _run(self, others: Tuple[threading.Event, ...]) -> None:
        while self._allowance.left > 0 and not any(item.is_set() for item in others):
            left = min(self._allowance.left, threading.TIMEOUT_MAX)
            if self._bell.wait(min(left, SLICE_S) if others else left):
                return
        self._release()
