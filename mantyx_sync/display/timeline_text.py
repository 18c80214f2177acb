"""A timeline as plain text, for terminals and logs: ASCII but for the names. Pure."""

from __future__ import annotations

import textwrap
from typing import Sequence

from mantyx_sync.display.timeline_layout import ticks
from mantyx_sync.display.timeline_model import Bar, Mark, Moments
from mantyx_sync.display.wording import duration
from mantyx_sync.errors import cut

__all__ = ["picture"]

_CHARS = {"wait": ".", "think": "~", "text": "=", "queue": ".", "run": "#", "post": "-"}
_WORK = ("think", "text", "run")
_SIGNS = {"guard": "!", "good": "+", "plan": "*"}
_KEY = (
    (".", "waiting"),
    ("~", "thinking"),
    ("=", "text"),
    ("#", "tool"),
    ("x", "failed tool"),
    ("-", "posting"),
    (">", "goes on"),
    ("!", "guard"),
    ("+", "review"),
    ("*", "plan"),
)
_MAX_LANES = 8
_MAX_MARKS = 20


def picture(moments: Moments, heading: str, width: int = 80) -> str:
    """Draw a run in so many columns."""
    names = [row.label for row in moments.rows]
    gutter = min(max([*map(len, names), 6]), width // 4) + 2
    room = max(10, width - gutter)
    total = moments.total or 1.0
    lines = [cut(heading, 200), " " * gutter + _axis(total, room)]
    for row in moments.rows:
        lanes = _lanes(row.bars, total, room)
        for i, lane in enumerate(lanes):
            lines.append(cut(row.label, gutter - 2).ljust(gutter) + lane if i == 0 else " " * gutter + lane)
    for name, kinds in (("guards", ("guard", "good")), ("plan", ("plan",))):
        marks = [mark for mark in moments.marks if mark.kind in kinds]
        if marks:
            lines.append(name.ljust(gutter) + _signs(marks, total, room))
    drawn = "".join(lines[2:])
    key = "  ".join(f"{char}\xa0{word}" for char, word in _KEY if char in drawn)
    lines += [line.replace("\xa0", " ") for line in textwrap.wrap(key, width)]
    guards = [mark for mark in moments.marks if mark.kind == "guard"]
    lines += [cut(f"! {duration(mark.at)}: {mark.title}", width) for mark in guards[:_MAX_MARKS]]
    if len(guards) > _MAX_MARKS:
        lines.append(f"! {len(guards) - _MAX_MARKS} more")
    for text in moments.notes:
        lines += textwrap.wrap(text, width)
    return "\n".join(_printable(line).rstrip() for line in lines)


def _printable(line: str) -> str:
    return line if line.isprintable() else "".join(char if char.isprintable() else "\ufffd" for char in line)


def _column(second: float, total: float, room: int) -> int:
    return min(room - 1, max(0, int(second / total * room)))


def _axis(total: float, room: int) -> str:
    line = [" "] * room
    free = 0
    for second, text in ticks(total, max(2, room // 12)):
        at = min(_column(second, total, room), room - len(text))
        if at >= free:
            line[at : at + len(text)] = text
            free = at + len(text) + 2
    return "".join(line)


def _lanes(bars: Sequence[Bar], total: float, room: int) -> list[str]:
    lanes: list[list[str]] = []
    ends: list[float] = []
    for bar in sorted(bars, key=lambda one: one.start):
        stop = _column(bar.end, total, room)
        free = next((i for i, taken in enumerate(ends) if taken <= bar.start), None)
        if free is None:
            if len(lanes) < _MAX_LANES:
                lanes.append([" "] * room)
                ends.append(0.0)
                free = len(lanes) - 1
            else:
                free = min(range(len(ends)), key=lambda i: ends[i])  # drawn over: there is no more room
        lane = lanes[free]
        for part in sorted(bar.parts, key=lambda one: one.kind in _WORK):  # what is short is seen nevertheless
            char = "x" if bar.is_failed and part.kind == "run" else _CHARS[part.kind]
            first, last = _column(part.start, total, room), _column(part.end, total, room)
            for at in range(first, max(first, last - 1) + 1):
                lane[at] = char
        if bar.is_open:
            lane[stop] = ">"
        ends[free] = max(ends[free], bar.end)
    return ["".join(lane) for lane in lanes] or [""]


def _signs(marks: Sequence[Mark], total: float, room: int) -> str:
    line = [" "] * room
    for mark in sorted(marks, key=lambda one: one.kind == "guard"):  # a guard is seen whatever else is there
        line[_column(mark.at, total, room)] = _SIGNS[mark.kind]
    return "".join(line)
