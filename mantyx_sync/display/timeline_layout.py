"""Where the parts of a timeline stand, in pixels of a picture of a given width. Pure: values in, values out."""

from __future__ import annotations

import math
import unicodedata
from dataclasses import dataclass
from typing import Sequence

from mantyx_sync.display.timeline_model import Bar, Mark, Moments, Part, Row

__all__ = ["Box", "Label", "Layout", "Sign", "fitted", "layout", "text_width", "ticks"]

FONT = 12.0
SMALL = 11.0
BAR = 14.0
LANE = 19.0
MAX_LANES = 8
"""How many bars stand above each other in one row; what does not fit is drawn together below them."""
_MARK_LANES = 5
_MIN_WIDTH = 3.0
_WHOLE = 5.0
_CROSS = 11.0  # room behind the bar of a failed call for its cross
_SIGN = 12.0
_PAD = 6.0
_LEAST_NAMES = 90.0  # room for the names of rows beside their bars, in pixels,
_MOST_NAMES = 0.3  # and as a share of the width

_STEPS = [
    *(base * 10.0**power for power in range(-4, 1) for base in (1, 2, 5)),
    *(10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 10800.0, 21600.0, 43200.0),
]


@dataclass(frozen=True)
class Box:
    """A rectangle. `kind` is a part's kind, or `track`; boxes of one bar share its `title` and `bar` number."""

    x: float
    y: float
    width: float
    height: float
    kind: str
    title: str = ""
    bar: int = -1


@dataclass(frozen=True)
class Label:
    """A text; `y` is its baseline. `width` is how wide it is at most."""

    x: float
    y: float
    text: str
    width: float
    kind: str = "name"
    anchor: str = "start"
    title: str = ""

    @property
    def left(self) -> float:
        """Where it begins."""
        return self.x - {"start": 0.0, "middle": self.width / 2, "end": self.width}[self.anchor]


@dataclass(frozen=True)
class Sign:
    """A small sign around a point. `kind`: `cross`, `open`, `guard`, `good`, `plan`, or a swatch of the legend."""

    x: float
    y: float
    kind: str
    title: str = ""


@dataclass(frozen=True)
class Layout:
    """A picture: what stands where."""

    width: float
    height: float
    left: float
    """Where the time axis begins; it ends at `right`."""
    right: float
    rules: tuple[float, ...]
    """Where a thin line stands at a tick of the axis, from `top` to `bottom`."""
    top: float
    bottom: float
    boxes: tuple[Box, ...]
    labels: tuple[Label, ...]
    signs: tuple[Sign, ...]
    crowded: int = 0
    """How many marks are not there, since others stand in their place."""


def layout(moments: Moments, width: float) -> Layout:
    """Place everything. A picture under 460 pixels has the names above the bars, a wider one beside them."""
    return _Layouter(moments, width).lay()


class _Layouter:
    def __init__(self, moments: Moments, width: float) -> None:
        self._moments = moments
        self._width = width
        self._is_narrow = width < 460
        longest = max([text_width(row.label, FONT) for row in moments.rows], default=0.0)
        self._left = _PAD if self._is_narrow else min(max(longest + _PAD + 11, _LEAST_NAMES), width * _MOST_NAMES)
        self._right = width - _PAD - _CROSS
        self._total = moments.total if moments.total > 0 else 1.0
        self._y = 0.0
        self._boxes: list[Box] = []
        self._labels: list[Label] = []
        self._signs: list[Sign] = []
        self._bars = 0
        self._crowded = 0

    def lay(self) -> Layout:
        found = ticks(self._total, max(2, int((self._right - self._left) / 72)))
        self._y = 18.0
        for second, text in found:
            self._axis_label(self._x(second), text)
        self._y += 6
        top = self._y
        self._y += 4
        for row in self._moments.rows:
            self._row(row)
        plans = [mark for mark in self._moments.marks if mark.kind == "plan"]
        guards = [mark for mark in self._moments.marks if mark.kind != "plan"]
        self._mark_row("guards", guards)
        self._mark_row("plan", plans)
        bottom = self._y
        self._legend()
        return Layout(
            width=self._width,
            height=math.ceil(self._y + 4),
            left=self._left,
            right=self._right,
            rules=tuple(self._x(second) for second, _ in found),
            top=top,
            bottom=bottom,
            boxes=tuple(self._boxes),
            labels=tuple(self._labels),
            signs=tuple(self._signs),
            crowded=self._crowded,
        )

    def _x(self, second: float) -> float:
        share = min(1.0, max(0.0, second / self._total))
        return round(self._left + share * (self._right - self._left), 2)

    def _axis_label(self, x: float, text: str) -> None:
        width = text_width(text, SMALL)
        anchor, at = "middle", x
        if x - width / 2 < self._left - (0 if self._is_narrow else 8):
            anchor = "start"
        if x + width / 2 > self._width - 1:
            anchor, at = "end", min(x, self._width - 1)
        self._labels.append(Label(at, self._y - 4, text, width, "axis", anchor))

    def _name(self, name: str, height: float) -> None:
        """Put a row's name beside its first lane, or on a line of its own."""
        if self._is_narrow:
            self._y += 17
            room, x, y = self._width - 2 * _PAD, _PAD, self._y - 5
        else:
            room, x, y = self._left - _PAD - 10, _PAD, self._y + height / 2 + 4
        text = fitted(name, room, FONT)
        self._labels.append(Label(x, y, text, text_width(text, FONT), "name", title=name if text != name else ""))

    # ------------------------------------------------------------------------------------------- bars

    def _row(self, row: Row) -> None:
        self._name(row.label, BAR)
        # A turn begins when the one before has ended, however thin that is drawn.
        lanes = self._packed(row.bars, 4.0 if row.is_model else 0.5)
        for lane in lanes:
            for bar in lane:
                self._bar(bar, row)
            self._y += LANE
        self._y += 5

    def _packed(self, bars: Sequence[Bar], tolerance: float) -> list[list[Bar]]:
        """Put bars that would overlap by more than `tolerance` pixels in lanes below each other."""
        lanes: list[list[Bar]] = []
        ends: list[float] = []
        over: list[Bar] = []
        for bar in sorted(bars, key=lambda one: one.start):
            start, end = self._x(bar.start), self._end(bar)
            free = next((i for i, taken in enumerate(ends) if taken <= start + tolerance), None)
            if free is not None:
                lanes[free].append(bar)
                ends[free] = end
            elif len(lanes) < MAX_LANES:
                lanes.append([bar])
                ends.append(end)
            else:
                over.append(bar)
        if over:
            failed = sum(bar.is_failed for bar in over)
            calls = sum(bar.calls for bar in over)
            title = f"{calls:,} more calls at the same time" + (f", {failed:,} failed" if failed else "")
            parts = (Part("run", over[0].start, max(bar.end for bar in over)),)
            lanes.append([Bar(parts, title, f"{calls:,} more", failed > 0, calls=calls)])
        return lanes

    def _end(self, bar: Bar) -> float:
        end = max(self._x(bar.end), self._x(bar.start) + _MIN_WIDTH)
        return end + (_CROSS + 2 if bar.is_failed or bar.is_open else 0.0)

    def _bar(self, bar: Bar, row: Row) -> None:
        self._bars += 1
        start = self._x(bar.start)
        end = max(self._x(bar.end), start + _MIN_WIDTH)
        parts = bar.parts
        if end - start < _WHOLE:  # so thin a bar has one colour: that of what was done
            done = [part for part in parts if part.kind in ("run", "think", "text")]
            kind = done[-1].kind if done else parts[0].kind
            parts = (Part(kind, bar.start, bar.end),)
        for i, part in enumerate(parts):
            is_last = i == len(parts) - 1
            left = start if i == 0 else self._x(part.start)
            right = end if is_last else self._x(part.end)
            if right - left < 0.4 and len(parts) > 1:
                continue
            kind = part.kind
            if kind == "run" and (bar.is_failed or bar.calls > 1):
                kind = "many" if bar.calls > 1 else "bad"
            left = min(left, right - 0.4)
            if is_last and right - left > 4:
                right -= 1  # so that the next call, which may begin at once, is seen to be another
            self._boxes.append(Box(left, self._y, round(right - left, 2), BAR, kind, bar.title, self._bars))
        middle = self._y + BAR / 2
        if bar.is_failed:
            self._signs.append(Sign(end + _CROSS / 2 + 1, middle, "cross", bar.title))
        elif bar.is_open:
            self._signs.append(Sign(end + _CROSS / 2, middle, "open", bar.title))
        if bar.label:
            self._inside(bar, row, start, end)

    def _inside(self, bar: Bar, row: Row, start: float, end: float) -> None:
        """Number a turn inside its waiting part, where there is room for it."""
        part = bar.parts[0]
        right = self._x(part.end) if row.is_model else end
        width = text_width(bar.label, SMALL)
        if right - start >= width + 6:
            self._labels.append(Label(start + 3, self._y + BAR / 2 + 4, bar.label, width, "inside", title=bar.title))

    # ------------------------------------------------------------------------------------------- marks

    def _mark_row(self, name: str, marks: Sequence[Mark]) -> None:
        if not marks:
            return
        self._name(name, BAR)
        ends: list[float] = []
        top = self._y
        for mark in sorted(marks, key=lambda one: one.at):
            x = self._x(mark.at)
            width = text_width(mark.label, SMALL)
            is_left = x + _SIGN / 2 + 3 + width > self._width - 1
            left = x - _SIGN / 2 - (3 + width if is_left else 0)
            right = x + _SIGN / 2 + (0 if is_left else 3 + width)
            lane = next((i for i, taken in enumerate(ends) if taken + 6 <= left), None)
            has_label = lane is not None or len(ends) < _MARK_LANES
            if lane is None and has_label:
                lane = len(ends)
                ends.append(0.0)
            elif lane is None:  # a sign without its words still stands at its time, if there is room for that
                lane = next((i for i, taken in enumerate(ends) if taken + 2 <= x - _SIGN / 2), None)
                left, right = x - _SIGN / 2, x + _SIGN / 2
            if lane is None:
                self._crowded += 1
                continue
            ends[lane] = right
            y = top + lane * LANE + BAR / 2
            self._signs.append(Sign(x, y, mark.kind, mark.title))
            if has_label:
                at = x - _SIGN / 2 - 3 if is_left else x + _SIGN / 2 + 3
                anchor = "end" if is_left else "start"
                self._labels.append(Label(at, y + 4, mark.label, width, "mark", anchor, mark.title))
        self._y = top + len(ends) * LANE + 5

    # ------------------------------------------------------------------------------------------- legend

    def _legend(self) -> None:
        kinds = {box.kind for box in self._boxes} | {sign.kind for sign in self._signs}
        if "bad" in kinds or "many" not in kinds:
            kinds.discard("cross")  # which is explained already
        x, self._y = _PAD, self._y + 18
        for kind, words in _LEGEND:
            if kind not in kinds:
                continue
            width = text_width(words, SMALL)
            if x > _PAD and x + 26 + width > self._width:
                x, self._y = _PAD, self._y + 18
            self._signs.append(Sign(x + 6, self._y - 4, f"key-{kind}"))
            wide = 26 if kind == "bad" else 18
            self._labels.append(Label(x + wide, self._y, words, width, "axis"))
            x += wide + width + 12


_LEGEND = (
    ("wait", "waiting for the model"),
    ("think", "thinking"),
    ("text", "text"),
    ("queue", "waiting for a place"),
    ("run", "tool"),
    ("post", "answer on its way"),
    ("bad", "failed tool"),
    ("many", "several calls"),
    ("cross", "one of them failed"),
    ("open", "goes on"),
    ("guard", "guard stepped in"),
    ("good", "review, on track"),
    ("plan", "plan moved on"),
)


def ticks(total: float, limit: int) -> list[tuple[float, str]]:
    """Return where the axis of so many seconds has its ticks, and what they say; at most `limit` and one.

    Args:
        total: Seconds; above 0.
        limit: How many steps there is room for.
    """
    step = next((step for step in _STEPS if total / step <= limit), None)
    if step is None:
        step = 86400.0 * max(1, math.ceil(total / 86400.0 / limit))
    count = int(total / step * (1 + 1e-9))
    return [(i * step, _tick_text(i * step, step)) for i in range(count + 1)]


def _tick_text(second: float, step: float) -> str:
    if second == 0:
        return "0"
    if step < 0.1 or (second < 0.9995 and step < 1):
        ms = second * 1000
        return f"{ms:,.1f} ms" if step < 0.001 else f"{ms:,.0f} ms"
    if second < 60 and step < 60:
        return f"{second:.1f} s" if step < 1 else f"{second:.0f} s"
    if step < 60:
        rest = second % 60
        return f"{int(second // 60)}:{rest:04.1f} min" if step < 1 else f"{int(second // 60)}:{int(rest):02d} min"
    if step < 3600 and second < 3600:
        return f"{second / 60:.0f} min"
    if step < 86400:
        hours, minutes = divmod(int(second / 60 + 0.5), 60)
        return f"{hours}:{minutes:02d} h" if minutes or step < 3600 else f"{hours} h"
    return f"{second / 86400:,.0f} d"


def text_width(text: str, size: float) -> float:
    """Return how wide a text is at most, in any of the fonts it may be set in."""
    return round(sum(_char_width(char) for char in text) * size, 2)


def _char_width(char: str) -> float:
    if char in "ijlI.,:;'|!ft()[]/ ":
        return 0.42
    if char in "mwMW@%":
        return 0.99
    if char.isupper():
        return 0.78
    return 1.05 if unicodedata.east_asian_width(char) in "WF" or ord(char) > 0x1F000 else 0.645


def fitted(text: str, width: float, size: float) -> str:
    """Cut a text to what fits into `width`, with an ellipsis."""
    if text_width(text, size) <= width:
        return text
    room, out = width - size * 0.99, []
    for char in text:
        room -= _char_width(char) * size
        if room < 0:
            break
        out.append(char)
    return "".join(out).rstrip() + "…"
