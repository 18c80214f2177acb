"""What a terminal can show: its width and colours, how wide text is there, and text that cannot command it.

Pure but for asking a stream and the environment. Starts nothing and writes nothing.
"""

from __future__ import annotations

import os
import re
import shutil
import unicodedata
from dataclasses import astuple, dataclass
from functools import lru_cache
from typing import IO, Any, Mapping, Optional

from mantyx_sync.surroundings import is_terminal

__all__ = [
    "Glyphs",
    "Style",
    "can_redraw",
    "can_write",
    "cells",
    "fit",
    "glyphs_for",
    "height_of",
    "is_terminal",
    "plain",
    "wants_colour",
    "width_of",
]

# What a terminal obeys, or what changes the direction of the text around it; halves of surrogate pairs cannot be
# written at all.
_COMMANDS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u206f\ufff9-\ufffb\ud800-\udfff]"
)
_LINE_ENDS = re.compile("\r\n|[\u2028\u2029]")
_DEFAULT_WIDTH = 80


def plain(text: str, *, one_line: bool = False) -> str:
    """Leave out of a text what a terminal would obey: it may be a model's, or a tool's.

    Works on pieces of a text as on the whole: what is left out are single characters. Their harmless rest (`[2J`)
    stays, so that nothing is hidden.

    Args:
        one_line: Put a space in place of each run of white space.
    """
    if not text.isprintable():
        text = _COMMANDS.sub("", _LINE_ENDS.sub("\n", text))
    return " ".join(text.split()) if one_line else text


def cells(text: str) -> int:
    """Return how many columns a text without line ends takes in a terminal."""
    return len(text) if text.isascii() else sum(map(_cells_of, text))


@lru_cache(maxsize=4096)
def _cells_of(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me", "Cf", "Cc"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


def fit(text: str, width: int) -> str:
    """Put a text on one line and cut it to `width` columns."""
    text = plain(text[: 8 * max(1, width) + 64], one_line=True)
    if cells(text) <= width:
        return text
    room, kept = width - 1, []
    for char in text:
        room -= _cells_of(char)
        if room < 0:
            break
        kept.append(char)
    return "".join(kept).rstrip() + ("…" if width > 0 else "")


def can_redraw(stream: Optional[IO[Any]], environment: Mapping[str, str] = os.environ) -> bool:
    """Tell whether what was written to a stream can be written over."""
    return is_terminal(stream) and environment.get("TERM", "") not in ("", "dumb")


def can_write(stream: Optional[IO[Any]], text: str) -> bool:
    """Tell whether a stream's encoding has all the signs of a text."""
    try:
        text.encode(getattr(stream, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def wants_colour(stream: Optional[IO[Any]], environment: Mapping[str, str] = os.environ) -> bool:
    """Tell whether to write colours to a stream: on terminals that have them, unless the environment says otherwise.

    `NO_COLOR` switches them off, `CLICOLOR_FORCE` and `FORCE_COLOR` on where there is no terminal.
    """
    if environment.get("NO_COLOR"):
        return False
    if any(environment.get(name, "0") not in ("", "0") for name in ("CLICOLOR_FORCE", "FORCE_COLOR")):
        return True
    return environment.get("CLICOLOR") != "0" and can_redraw(stream, environment)


def width_of(stream: Optional[IO[Any]]) -> int:
    """Return the columns of a stream's terminal, asked anew each time; 80 where there is none to ask."""
    return _size_of(stream)[0]


def height_of(stream: Optional[IO[Any]]) -> int:
    """Return the lines of a stream's terminal, asked anew each time; 24 where there is none to ask."""
    return _size_of(stream)[1]


def _size_of(stream: Optional[IO[Any]]) -> tuple[int, int]:
    if stream is not None and is_terminal(stream):
        try:
            columns, lines = os.get_terminal_size(stream.fileno())
        except (AttributeError, ValueError, OSError):
            columns = lines = 0
        if columns > 0 and lines > 0:
            return columns, lines
    found = shutil.get_terminal_size((_DEFAULT_WIDTH, 24))
    return found.columns, found.lines


@dataclass(frozen=True)
class Style:
    """Colours around text, or none. They are those of the terminal's own palette, so they suit light and dark."""

    enabled: bool

    def _with(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.enabled and text else text

    def bold(self, text: str) -> str:
        """Make text stand out."""
        return self._with("1", text)

    def dim(self, text: str) -> str:
        """Make text step back."""
        return self._with("2", text)

    def red(self, text: str) -> str:
        """For what failed."""
        return self._with("31", text)

    def green(self, text: str) -> str:
        """For what is done."""
        return self._with("32", text)

    def yellow(self, text: str) -> str:
        """For warnings."""
        return self._with("33", text)

    def cyan(self, text: str) -> str:
        """For what goes on, and for names."""
        return self._with("36", text)


@dataclass(frozen=True)
class Glyphs:
    """The signs in front of lines, each one column wide."""

    done: str
    failed: str
    warning: str
    pending: str
    active: str
    skipped: str
    dot: str
    frames: str

    def frame(self, now: float) -> str:
        """Return the picture of something that goes on, at a time in seconds."""
        return self.frames[int(now * 10) % len(self.frames)]


_SIGNS = Glyphs("✓", "✗", "!", "○", "▸", "~", "·", "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")
_ASCII_SIGNS = Glyphs("+", "x", "!", "-", ">", "-", "-", "|/-\\")


def glyphs_for(stream: Optional[IO[Any]]) -> Glyphs:
    """Return signs that a stream's encoding has."""
    return _SIGNS if can_write(stream, "".join(astuple(_SIGNS))) else _ASCII_SIGNS
