"""`Timeline`: a picture of a run in time, for notebooks, files and terminals. Sends no request."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Union

from mantyx_sync.display.html import Html, el, escape, facts
from mantyx_sync.display.parts import card, head, model_name, note, section_of, status_badge, token_text
from mantyx_sync.display.timeline_layout import layout
from mantyx_sync.display.timeline_model import Moments, moments_of
from mantyx_sync.display.timeline_svg import drawing, standalone
from mantyx_sync.display.timeline_text import picture
from mantyx_sync.display.wording import clock, count, duration, plural
from mantyx_sync.errors import MantyxConfigError, MantyxRunCancelled, MantyxRunError
from mantyx_sync.events import RunEvent
from mantyx_sync.reprs import brief
from mantyx_sync.timing import RunTiming
from mantyx_sync.values import RunModelInfo, TokenUsage
from mantyx_sync.views import Viewable

if TYPE_CHECKING:
    from mantyx_sync.results import RunResult
    from mantyx_sync.run import Run

__all__ = ["Timeline", "timeline_card"]

# The widths that a timeline is laid out for; which one a page shows depends on its room (see the stylesheet).
_WIDTHS = (("wide-one", 880.0), ("middle-one", 540.0), ("small-one", 340.0))
_PLAIN_WIDTH = 90


@dataclass(frozen=True)
class Timeline(Viewable):
    """A run in time: turns of the model, tool calls with their overlap, guards, plan, tokens.

    Notebooks draw it, `str()` gives a picture for terminals, `svg` one for a file, `to_html(path)` a page. It is data:
    it can be pickled, and a run that goes on moves on without it.
    """

    run_id: str
    moments: Moments = field(repr=False)
    started_at: float = field(repr=False, default=0.0)
    tokens: TokenUsage | None = field(repr=False, default=None)
    model: RunModelInfo | None = field(repr=False, default=None)

    @classmethod
    def of(cls, run: Union[RunResult, Run, MantyxRunError, Any]) -> Timeline:
        """Make the timeline of a run, of its result, or of the error it ended with. Does not block.

        Raises:
            MantyxConfigError: Nobody noted the times: the run was looked up, not followed, or its result was stored by
                a version that did not note them.
            TypeError: `run` is none of these.
        """
        events, timing = getattr(run, "events_so_far", None), getattr(run, "timing", None)
        if events is None:
            events = getattr(run, "events", None)
        run_id = getattr(run, "run_id", None)
        if not isinstance(run_id, str) or not isinstance(events, (tuple, list)):
            raise TypeError(f"timeline: got {type(run).__name__}, must be a run, its result, or its error")
        if not isinstance(timing, RunTiming):
            raise MantyxConfigError(
                f"timeline: run {run_id} was not followed here from its start to its end, so nobody noted when things "
                "happened; runs that a client starts or attaches to have a timeline"
            )
        return cls._made(run_id, tuple(events), timing, run)

    @classmethod
    def _made(cls, run_id: str, events: tuple[RunEvent, ...], timing: RunTiming, run: Any) -> Timeline:
        status = None
        if isinstance(run, MantyxRunError):
            status = "cancelled" if isinstance(run, MantyxRunCancelled) else "failed"
        elif timing.ended is not None and hasattr(run, "text"):
            status = "succeeded"
        now = time.time() - timing.started_at if timing.ended is None else None
        moments = moments_of(events, timing, now=now, status=status)
        tokens = getattr(run, "tokens", None) or moments.tokens
        return cls(run_id, moments, timing.started_at, tokens, getattr(run, "model", None))

    @property
    def heading(self) -> str:
        """The run in one line."""
        return f"Run {self.run_id}: {self.moments.summary}"

    @property
    def svg(self) -> str:
        """The picture as an SVG document of its own, light or dark as its reader prefers."""
        return standalone(layout(self.moments, 880.0), f"Timeline of run {self.run_id}", self._told(), self.heading)

    def text(self, width: int = 80) -> str:
        """Return the picture in plain text.

        Args:
            width: Columns.
        """
        return picture(self.moments, self.heading, width)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"<Timeline of run {brief(self.run_id, 60)[1:-1]}: {self.moments.summary}>"

    def _told(self) -> str:
        """Say what there is to see, for those who cannot."""
        rows = [f"{row.label}: {plural(len(row.bars), 'bar')}" for row in self.moments.rows]
        marks = [f"after {duration(mark.at)}: {mark.label}" for mark in self.moments.marks[:20]]
        return ". ".join([self.heading, *rows, *marks])


def timeline_card(timeline: Timeline) -> Html:
    """Show a timeline, in the width there is room for."""
    moments = timeline.moments
    title, told = f"Timeline of run {timeline.run_id}", timeline._told()
    layouts = [(name, layout(moments, width)) for name, width in _WIDTHS]
    pictures = [drawing(one, title, told, cls=name) for name, one in layouts]
    notes = list(moments.notes)
    crowded = max(one.crowded for _, one in layouts)
    if crowded:
        notes.append(f"{plural(crowded, 'mark')} had no room where the picture is narrow.")
    failed = f" ({moments.failed:,} failed)" if moments.failed else ""
    return card(
        head("Timeline", status_badge(moments.status), timeline.run_id),
        facts(
            [
                ("Took" if moments.status != "running" else "So far", duration(moments.total)),
                ("Turns", count(moments.turns or None)),
                ("Tool calls", f"{moments.calls:,}{failed}"),
                ("Tokens", token_text(timeline.tokens)),
                ("Model", escape(model_name(timeline.model), 120) if timeline.model else None),
                ("Started", clock(timeline.started_at) or None),
            ]
        ),
        # Where our style is taken away, drawings are as well, and leave their words: hidden there, shown by the style.
        # An attribute without a value would be dropped.
        el("div", pictures, cls="drawn", hidden="hidden"),
        el("pre", escape(timeline.text(_PLAIN_WIDTH), 20_000), cls="plain"),
        section_of([note("", escape(text, 300), "i") for text in notes]) if notes else None,
    )
