"""How far long work is: what is told of it, and to whom. The work is many runs, an eval, servers that are started.

A reporter is anything that can be called with a `Progress`, always on the thread that waits for the work. One that has
a `close` is closed at the end of each call that reported to it, whatever ended that.
"""

from __future__ import annotations

import atexit
import logging
import os
from types import TracebackType
from typing import Any, Callable, Literal, Union

from .checks import refusal, shown
from .errors import MantyxConfigError
from .reprs import dataclass
from .roster import Roster

__all__ = ["Progress", "ProgressTo", "Reporting", "check_progress"]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Progress:
    """How far something is that takes its time: `what` is `runs`, `eval cases` or `servers`.

    `done` counts what is over, `failed` how many of those failed. `total` is `None` while it is not known. `note` is
    what there is to say besides, such as which server is ready.
    """

    what: str
    done: int
    failed: int
    total: int | None
    note: str = ""

    def __str__(self) -> str:
        """Say it in a line: `runs: 12 of 50, 2 failed`."""
        of = "" if self.total is None else f" of {self.total}"
        failed = f", {self.failed} failed" if self.failed else ""
        return f"{self.what}: {self.done}{of}{failed}" + (f" ({self.note})" if self.note else "")


Reporter = Callable[[Progress], object]
ProgressTo = Union[Reporter, Literal["auto", "rich", "tqdm"]]
"""What callers give: a reporter, or the name of one of ours."""

_NAMES = ("auto", "rich", "tqdm")


def check_progress(progress: object) -> None:
    """Refuse what is no reporter, and a name whose package is not installed. Loads none.

    Raises:
        MantyxConfigError: It is one of these.
    """
    if isinstance(progress, str) and progress in _NAMES:
        from .progress_bars import is_installed

        if progress != "auto" and not is_installed(progress):
            raise MantyxConfigError(
                f"progress: got {progress!r}, which is not installed: pip install {progress}, or take 'auto'"
            )
    elif progress is not None and not callable(progress):
        raise refusal("progress", shown(progress), "be a function, 'auto', 'rich' or 'tqdm'")


class Reporting:
    """What one call reports: to a reporter, or to nobody. A context manager that closes the reporter."""

    def __init__(self, progress: ProgressTo | None) -> None:
        """Show nothing yet.

        Raises:
            MantyxConfigError: As `check_progress`.
        """
        check_progress(progress)
        self._reporter: Reporter | None
        if isinstance(progress, str):
            from .progress_bars import reporter_named

            self._reporter = reporter_named(progress)
        else:
            self._reporter = progress
        self._process = os.getpid()
        self._is_open = False

    @property
    def is_wanted(self) -> bool:
        """True if somebody listens."""
        return self._reporter is not None

    def __call__(self, progress: Progress) -> None:
        """Report; what the reporter raises comes out."""
        if self._reporter is not None:
            if not self._is_open:
                self._is_open = True
                _open.add(self)
            self._reporter(progress)

    def close(self) -> None:
        """Close the reporter, if it was reported to and has a `close`; doing so again does no harm."""
        # A child of a fork leaves the terminal and the threads of its parent's reporters alone.
        if not self._is_open or self._process != os.getpid():
            return
        self._is_open = False
        _open.discard(self)
        close: Any = getattr(self._reporter, "close", None)
        if callable(close):
            close()

    def __enter__(self) -> Reporting:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.close()
        except Exception:
            if error is None:
                raise
            # What went wrong first is what the caller has to know.
            log.warning("closing the reporter of progress failed", exc_info=True)


_open: Roster[Reporting] = Roster()


@atexit.register
def _close_at_exit() -> None:
    """Close the reporters of loops that were left standing, while they can still end what they show."""
    for reporting in _open.items():
        try:
            reporting.close()
        except Exception:  # the others have theirs to end as well
            log.warning("closing the reporter of progress failed", exc_info=True)
