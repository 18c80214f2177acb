"""`watch`: follow a run to its end and show what happens in it, in a notebook's cell or on a terminal's line."""

from __future__ import annotations

import logging
import sys
import time
from typing import Callable, Protocol

from mantyx_sync.checks import kind_of
from mantyx_sync.display.live_card import final_html, live_html
from mantyx_sync.display.live_line import Line, final_words, running_words
from mantyx_sync.display.notebook import Cell
from mantyx_sync.display.state import RunState
from mantyx_sync.display.terminal import fit
from mantyx_sync.errors import MantyxError
from mantyx_sync.results import RunResult
from mantyx_sync.run import Run
from mantyx_sync.surroundings import is_terminal, notebook_shell

__all__ = ["watch"]

log = logging.getLogger(__name__)

_TICK_S = 0.1
"""How often is looked whether to draw; nothing is drawn more often."""
_BYTES_PER_S = 250_000
"""Notebook servers drop what a kernel says beyond about a million bytes a second."""
_MAX_SHARE = 0.25
"""How much of its time a run may spend on being drawn."""
_LONG_QUIET_S = 10.0  # from where on durations are written in whole seconds
_PLAIN_CHARS = 20_000


def watch(run: Run) -> RunResult:
    """Follow a run to its end, show meanwhile what happens in it, and return its result.

        result = watch(client.stream_agent(system_prompt="…", prompt="…", tools=[…]))

    In a notebook it is a card in the cell, updated in place: the text as it is written, the end of the reasoning, the
    plan's checklist, tool calls with how long they take, what the guards did. The card that stays is that of the
    result, or of the error. In a terminal it is one line on stderr, and the last one stays. Elsewhere nothing is shown.

    Blocks; the run's tools run meanwhile. Leaving early, by Ctrl-C or by interrupting the cell, cancels the run.

    Args:
        run: From `stream_agent`, `start_agent`, `attach_run` or a session's `stream`. Events that were taken from it
            before are not shown while it goes on.

    Raises:
        TypeError: `run` is something else.
        MantyxRunError, MantyxRunCancelled, MantyxTimeoutError, MantyxNetworkError, MantyxParseError: As `run.result()`.
        MantyxError: The run is being looped over already; it goes on.
    """
    if not isinstance(run, Run):
        raise TypeError(
            f"watch: run: got {kind_of(run)}, must be a Run, which stream_agent, start_agent, attach_run and a "
            "session's stream return"
        )
    try:
        return _follow(run, _view(run.run_id))
    except BaseException as error:
        _leave(run, error)
        raise
    finally:
        if run.is_done:
            run.close()


class View(Protocol):
    """Where a run is shown."""

    ticks: tuple[float, float]
    """After how many seconds to draw again although nothing has come: in the first ten seconds, and later."""

    def draw(self, state: RunState, now: float) -> int:
        """Show it as it is; return how much that sent, in bytes."""
        ...

    def end(self, state: RunState, ending: RunResult | BaseException, now: float) -> None:
        """Show what stays."""
        ...


def _view(run_id: str) -> View | None:
    shell = notebook_shell()
    if shell is not None:
        return CellView(run_id, Cell(shell))
    return LineView(run_id, Line(sys.stderr)) if is_terminal(sys.stderr) else None


def _follow(run: Run, view: View | None, now: Callable[[], float] = time.monotonic) -> RunResult:
    began = run.timing.started_at
    state = RunState(now() - max(0.0, time.time() - began))
    painter = Painter(view, state, now)
    try:
        painter.draw()
        for event in run.poll(_TICK_S):
            if event is not None:
                state.apply(event, now())
            painter.look()
        result = run.result()
    except BaseException as error:
        _leave(run, error)  # first: drawing may be interrupted as well
        state.lose(error, now())
        painter.end(error)
        raise
    painter.end(result)
    return result


def _leave(run: Run, error: BaseException) -> None:
    """Do what leaving the run's own block does, unless it is over already or another's to end: an error of ours."""
    if not isinstance(error, MantyxError):
        run.__exit__(type(error), error, None)


class Painter:
    """Decides when to draw: soon after what happens, and never so often that drawing is in the way."""

    def __init__(self, view: View | None, state: RunState, now: Callable[[], float]) -> None:
        self._view = view
        self._state = state
        self._now = now
        self._version = -1
        self._changed_at = now()
        self._not_before = self._due = 0.0

    def look(self) -> None:
        """Draw if there is something new, or if the durations that are shown have become old."""
        if self._view is None:
            return
        now = self._now()
        if now >= self._not_before and (self._version != self._state.version or now >= self._due):
            self.draw()

    def draw(self) -> None:
        """Draw now."""
        view, state, began = self._view, self._state, self._now()
        if view is None:
            return
        if self._version != state.version:
            self._version, self._changed_at = state.version, began
        try:
            size = view.draw(state, began)
        except Exception as error:
            self._give_up(error)
            return
        took = self._now() - began
        self._not_before = began + max(_TICK_S, took / _MAX_SHARE, size / _BYTES_PER_S)
        self._due = began + view.ticks[began - self._changed_at >= _LONG_QUIET_S]

    def end(self, ending: RunResult | BaseException) -> None:
        """Draw what stays."""
        if self._view is not None:
            try:
                self._view.end(self._state, ending, self._now())
            except Exception as error:
                self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        # A closed terminal, a front end that went away: no reason to lose the run.
        log.info("the run is not shown any more: %s", type(error).__name__)
        self._view = None


class CellView:
    """A card in a notebook's cell."""

    ticks = (0.5, 1.0)

    def __init__(self, run_id: str, cell: Cell) -> None:
        self._run_id = run_id
        self._cell = cell

    def draw(self, state: RunState, now: float) -> int:
        """Replace the card."""
        html, plain = live_html(state, self._run_id, now), f"{self._run_id}: {fit(running_words(state, now), 100)}"
        self._cell.show(html, plain)
        return len(html) + len(plain)

    def end(self, state: RunState, ending: RunResult | BaseException, now: float) -> None:
        """Leave the result's card, or the error's."""
        words, _ = final_words(state, self._run_id, ending, now)
        text = ending.text if isinstance(ending, RunResult) else state.text
        plain = f"{fit(words, 200)}\n\n{text[:_PLAIN_CHARS]}" if text else fit(words, 200)
        self._cell.show(final_html(state, self._run_id, ending, now), plain)
        if isinstance(ending, RunResult):
            self._cell.stands_for(ending)


class LineView:
    """One line of a terminal."""

    ticks = (_TICK_S, _TICK_S)  # a sign in it moves

    def __init__(self, run_id: str, line: Line) -> None:
        self._run_id = run_id
        self._line = line

    def draw(self, state: RunState, now: float) -> int:
        """Write the line again."""
        self._line.draw(self._line.signs.frame(now), running_words(state, now))
        return 0

    def end(self, state: RunState, ending: RunResult | BaseException, now: float) -> None:
        """Leave a line that says how it went."""
        words, tone = final_words(state, self._run_id, ending, now)
        signs = self._line.signs
        self._line.end({"good": signs.done, "bad": signs.failed}.get(tone, signs.warning), words, tone)
