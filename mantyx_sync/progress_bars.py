"""Reporters of progress by name: the bars of tqdm and rich where they are installed, and a line of our own."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import shutil
import sys
import time
from typing import Any, Callable

from .progress import Progress
from .surroundings import is_terminal, notebook_shell

__all__ = ["LineReporter", "RichReporter", "TqdmReporter", "is_installed", "reporter_named"]

_BETWEEN_S = 0.1
"""How often is drawn at most."""
_COLUMNS = 80
_PASSING = ("servers",)
"""What is not to be seen any more once it is over."""


def is_installed(package: str) -> bool:
    """Tell whether a package can be imported, without importing it."""
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):  # something odd stands in its place
        return False


def reporter_named(name: str) -> Callable[[Progress], object] | None:
    """Return a new reporter, or `None` if `auto` finds nobody who looks: no terminal, no notebook."""
    if name == "auto":
        if not (is_terminal(sys.stderr) or notebook_shell() is not None):
            return None
        name = next(filter(is_installed, ("tqdm", "rich")), "line")
        if name == "line" and not is_terminal(sys.stderr):
            return None
    if name == "tqdm":
        return TqdmReporter()
    return RichReporter() if name == "rich" else LineReporter()


def _remark(progress: Progress) -> str:
    """Say what a bar does not show by itself."""
    failed = f"{progress.failed} failed" if progress.failed else ""
    return ", ".join(part for part in (failed, progress.note) if part)


class TqdmReporter:
    """A bar of tqdm for each kind of work; in notebooks a widget where they can be had."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._what = ""
        self._remark = ""

    def __call__(self, progress: Progress) -> None:
        """Draw it."""
        if progress.what != self._what:
            self.close()
            self._bar = _tqdm_class()(
                total=progress.total, desc=progress.what, unit="", leave=progress.what not in _PASSING, miniters=1
            )
            self._what = progress.what
        bar, remark = self._bar, _remark(progress)
        if bar.total != progress.total and not bar.disable:
            began = bar.start_t
            bar.reset(progress.total)  # so that a widget hears of it; it forgets when it began
            bar.start_t = began
        is_remarkable, self._remark = remark != self._remark, remark
        if is_remarkable:
            bar.set_postfix_str(remark, refresh=False)
        # Which draws at most ten times a second; a new remark is to be seen all the same.
        if not bar.update(progress.done - bar.n) and is_remarkable:
            bar.refresh()

    def close(self) -> None:
        """End the bar."""
        bar, self._bar, self._what, self._remark = self._bar, None, "", ""
        if bar is not None:
            bar.close()


def _tqdm_class() -> Any:
    tqdm = importlib.import_module("tqdm.auto").tqdm
    # Otherwise a thread watches all bars, and stays.
    return type("Bar", (tqdm,), {"monitor_interval": 0})


class _Pace:
    """Tells when to draw again: at once, and then every tenth of a second at most."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._next: float | None = None

    def is_due(self) -> bool:
        """Tell whether to draw now; if so, that counts as done."""
        now = self._now()
        if self._next is not None and now < self._next:
            return False
        self._next = now + _BETWEEN_S
        return True

    def forget(self) -> None:
        """Draw at once the next time."""
        self._next = None


class RichReporter:
    """A bar of rich for each kind of work."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._pace = _Pace(now)
        self._display: Any = None
        self._task: Any = None
        self._what = ""

    def __call__(self, progress: Progress) -> None:
        """Draw it."""
        state = {"completed": progress.done, "total": progress.total, "remark": _remark(progress)}
        if progress.what == self._what:
            self._display.update(self._task, **state, refresh=self._pace.is_due())
        else:
            self.close()
            self._display = _rich_display(is_transient=progress.what in _PASSING)
            self._what = progress.what
            self._display.start()
            self._task = self._display.add_task(progress.what, **state)  # draws it
            self._pace.is_due()

    def close(self) -> None:
        """Draw the bar as it is, and end it."""
        display, self._display, self._what = self._display, None, ""
        self._pace.forget()
        if display is not None:
            display.stop()


def _rich_display(is_transient: bool) -> Any:
    bars = importlib.import_module("rich.progress")
    return bars.Progress(
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        bars.TimeElapsedColumn(),
        bars.TextColumn("{task.fields[remark]}", markup=False),  # a server's name is no colour
        # In a notebook rich needs widgets to draw anew; without them it writes the end as into a file.
        console=importlib.import_module("rich.console").Console(
            stderr=True, force_jupyter=None if is_installed("ipywidgets") else False
        ),
        transient=is_transient,
        auto_refresh=False,  # or else a thread draws it, and outlives it for a moment
        # rich writes what is printed meanwhile where the bar is: not into a file that standard output goes to.
        redirect_stdout=is_terminal(sys.stdout),
    )


class LineReporter:
    """One line on standard error, which is written over."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._pace = _Pace(now)
        self._what = ""
        self._written = ""
        self._due = ""

    def __call__(self, progress: Progress) -> None:
        """Write it, unless the line was written just now: then with the next one, or at the end."""
        if progress.what != self._what:
            self.close()
            self._what = progress.what
        self._due = str(progress)
        if self._pace.is_due():
            self._write()

    def close(self) -> None:
        """Write what is due, and end the line."""
        if self._what in _PASSING:
            self._show("\r" + " " * len(self._written) + "\r")
        elif self._what:
            self._write()
            self._show("\n")
        self._what = self._written = self._due = ""
        self._pace.forget()

    def _write(self) -> None:
        width = shutil.get_terminal_size((_COLUMNS, 24)).columns - 1
        line = self._due if len(self._due) <= width else self._due[: max(0, width - 3)] + "..."
        if line != self._written:
            self._show("\r" + line.ljust(min(len(self._written), width)))
            self._written = line

    @staticmethod
    def _show(text: str) -> None:
        with contextlib.suppress(AttributeError, OSError, ValueError):  # no such stream, or nobody reads it any more
            sys.stderr.write(text)
            sys.stderr.flush()
