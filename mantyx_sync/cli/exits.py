"""Exit codes: what a script can tell from how a command ended.

    0    it did what it was asked
    1    it was done, and failed: the run ended without success, the answer does not fit, an eval is below its mark
    2    it was asked for in a way that cannot be: arguments, files, settings. Nothing was sent
    3    the server refused: the key, a permission, no such run, a field it does not take
    4    the server cannot be reached, fails or is overloaded: the same command may work later
    5    the time was up
    130  Ctrl-C; 143 SIGTERM, 129 SIGHUP
    141  whoever read the output went away

`loom` and `spacefix` know 0, 1 and 2 of them only.
"""

from __future__ import annotations

import math
import signal
import sys
import time

from ..errors import (
    MantyxAPIError,
    MantyxConfigError,
    MantyxError,
    MantyxNetworkError,
    MantyxOAuthError,
    MantyxRateLimitError,
    MantyxServerError,
    MantyxTimeoutError,
)

__all__ = [
    "BROKEN_PIPE",
    "EXIT_CODES",
    "FAILED",
    "INTERRUPTED",
    "OK",
    "REFUSED",
    "TIMED_OUT",
    "UNREACHABLE",
    "USAGE",
    "SAME_S",
    "Stopped",
    "Stopper",
    "code_of",
    "stopping_signals",
]

OK, FAILED, USAGE, REFUSED, UNREACHABLE, TIMED_OUT = range(6)
INTERRUPTED = 128 + signal.SIGINT
BROKEN_PIPE = 141

SAME_S = 0.5
"""Signals that follow each other faster are one."""

EXIT_CODES = """\
exit codes:
  0    done
  1    done, but failed: the run ended without success, the answer does not fit its
       schema, an eval is below its mark
  2    arguments, files or settings that cannot be used; nothing was sent
  3    refused by the server: the key, a permission, no such run, ...
  4    the server cannot be reached, fails or is overloaded: try again later
  5    the time was up
  130  Ctrl-C (143 SIGTERM, 129 SIGHUP, 141 the reader of the output went away)
"""


class Stopped(BaseException):
    """A signal asks for the end. No `Exception`: nothing on the way may take it for a failure."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def code_of(error: MantyxError) -> int:
    """Return the exit code that stands for an error."""
    if isinstance(error, MantyxTimeoutError):
        return TIMED_OUT
    if isinstance(error, MantyxConfigError):
        return USAGE
    if isinstance(error, (MantyxRateLimitError, MantyxServerError, MantyxNetworkError)):
        return UNREACHABLE
    if isinstance(error, (MantyxAPIError, MantyxOAuthError)):
        return REFUSED
    return FAILED


class Stopper:
    """Handles signals that ask for the end: interrupts what goes on.

    One that follows at once, of a key that is pressed twice, changes nothing: what the first began is being told to
    the server just then.
    """

    def __init__(self) -> None:
        self._raised_at = -math.inf

    def __call__(self, number: int, frame: object) -> None:  # noqa: ARG002 - the form of a signal's handler
        """Handle a signal.

        Raises:
            KeyboardInterrupt, Stopped: Always, but right behind another.
        """
        now = time.monotonic()
        if now - self._raised_at < SAME_S:
            return
        self._raised_at = now
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise Stopped(number)


def stopping_signals() -> tuple[signal.Signals, ...]:
    """Return the signals beside Ctrl-C's that ask a command to end."""
    if sys.platform == "win32":
        return (signal.SIGTERM,)
    return (signal.SIGTERM, signal.SIGHUP)
