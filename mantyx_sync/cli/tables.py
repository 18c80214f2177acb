"""Lists on standard output: a table on a terminal, tab-separated lines for other programs, or JSON."""

from __future__ import annotations

import sys
from typing import Any, Iterable, Mapping, Optional, Sequence

from ..display.terminal import Style, cells, fit, is_terminal, plain, wants_colour, width_of
from .streams import json_text, note

__all__ = ["Table", "print_json", "print_pairs"]

_GAP = 2
_MIN_FLEXIBLE = 12


class Table:
    """Prints rows as they come, so that a long listing can be cut short by whoever reads it.

    On a terminal the first rows decide how wide the columns are, and which are shown.
    """

    def __init__(
        self, columns: Sequence[str], *, is_json: bool = False, flexible: int = -1, optional: Sequence[int] = ()
    ) -> None:
        """Print nothing yet.

        Args:
            columns: Their names; shown on a terminal.
            is_json: Print the raw object of each row instead.
            flexible: The column that is cut when a row is too wide.
            optional: Columns that are left out on a terminal that is too narrow, the first of these first.
        """
        self._columns = columns
        self._is_json = is_json
        self._flexible = range(len(columns))[flexible]
        self._optional = optional
        self._is_table = not is_json and is_terminal(sys.stdout)

    def print(self, rows: Iterable[tuple[Mapping[str, Any], Sequence[Optional[str]]]], empty: str) -> None:
        """Print rows: each the raw object and the cells.

        Args:
            empty: What is said to a person if there is none.
        """
        if not self._is_table:
            for raw, found in rows:
                if self._is_json:
                    print_json(raw)
                else:
                    print("\t".join(_one_line(cell) for cell in found), flush=True)
            return
        page: list[Sequence[Optional[str]]] = []
        widths: list[int] = []
        for _, found in rows:
            page.append(found)
            if len(page) == 50:
                widths = self._print_page(page, widths)
                page = []
        if page or widths:
            self._print_page(page, widths)
        else:
            note(empty)

    def _print_page(self, rows: Sequence[Sequence[Optional[str]]], widths: list[int]) -> list[int]:
        style = Style(wants_colour(sys.stdout))
        texts = [[plain(cell or "", one_line=True) for cell in row] for row in rows]
        if not widths:
            widths = self._widths(texts)
            print(style.dim(_row(self._columns, widths)), flush=True)
        for row in texts:
            print(_row(row, widths), flush=True)
        return widths

    def _widths(self, texts: Sequence[Sequence[str]]) -> list[int]:
        """Return the width of each column; 0 for one that is not shown."""
        widths = [max(map(cells, column)) for column in zip(self._columns, *texts)]
        for i, column in enumerate(zip(*texts)):
            if not any(column):
                widths[i] = 0
        room = width_of(sys.stdout)
        for i in self._optional:
            if self._taken(widths) + min(_MIN_FLEXIBLE, widths[self._flexible]) > room:
                widths[i] = 0
        widths[self._flexible] = min(widths[self._flexible], max(_MIN_FLEXIBLE, room - self._taken(widths)))
        return widths

    def _taken(self, widths: Sequence[int]) -> int:
        """Return what all columns but the flexible one take."""
        others = [width for i, width in enumerate(widths) if width and i != self._flexible]
        return sum(others) + _GAP * len(others)


def _row(texts: Sequence[str], widths: Sequence[int]) -> str:
    """Return a line; the last column is not filled up, and one that is too wide is cut."""
    parts = []
    for text, width in zip(texts, widths):
        if width:
            text = fit(text, width)
            parts.append(text + " " * (width - cells(text)))
    return (" " * _GAP).join(parts).rstrip()


def _one_line(text: Optional[str]) -> str:
    return "" if text is None else plain(text, one_line=True)  # also here: a listing is often piped to a pager


def print_json(raw: Mapping[str, Any]) -> None:
    """Print an object on a line of its own."""
    print(json_text(dict(raw), sys.stdout), flush=True)


def print_pairs(pairs: Iterable[tuple[str, Any]]) -> None:
    """Print what is known of one thing, a name and its value each line."""
    style = Style(wants_colour(sys.stdout))
    shown = [(name, str(value)) for name, value in pairs if value not in (None, "", {}, ())]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        print(f"{style.dim((name + ':').ljust(width + 1))} {plain(value)}")
    sys.stdout.flush()
