"""Standard output and standard error while a run goes on: the answer, lines about it, and a block that is redrawn.

The answer goes to standard output and everything else to standard error. Where both are one terminal, the block of
lines that is redrawn stands below whatever was written last, and what is written next goes above it.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import io
import os
import select
import sys
import threading
from types import TracebackType
from typing import IO, Any, Callable, Iterator, Sequence

from ..display.terminal import (
    Style,
    can_redraw,
    cells,
    glyphs_for,
    height_of,
    is_terminal,
    plain,
    wants_colour,
    width_of,
)

__all__ = ["Screen"]

_ERASE_BELOW = "\x1b[J"
_DOWN = "\x1bD"  # a line down in the same column, scrolling at the bottom
_SAVE, _RESTORE = "\x1b7", "\x1b8"
_MIN_WIDTH = 20
_TAB = 8
_LOG_WIDTH = 200


class Screen:
    """Where a command writes. Any thread may call its methods."""

    def __init__(self, *, is_quiet: bool = False) -> None:
        """Look what the streams are; write nothing.

        Args:
            is_quiet: Lines and the block are left out.
        """
        self.out: IO[str] = sys.stdout
        self.err: IO[str] = sys.stderr
        self.is_quiet = is_quiet
        self.shows_answer = is_terminal(self.out)
        self.is_live = not is_quiet and can_redraw(self.err)
        self.style = Style(wants_colour(self.err))
        self.glyphs = glyphs_for(self.err)
        # What the answer is written to is what the block is drawn on, so both have to make room for each other.
        self._is_shared = self.shows_answer and is_terminal(self.err) and _is_same_terminal(self.out, self.err)
        self._column = 0  # of the answer's end; where that is not on the screen, whether there is a line to end
        self._is_wrapped = False
        self._is_behind_lines = False
        self._block: list[str] = []
        self._is_drawn = False
        # Entered anew by one thread: a finalizer that logs may run inside any line of ours.
        self._lock = threading.RLock()

    @property
    def width(self) -> int:
        """Columns that a line about the run can take."""
        return max(_MIN_WIDTH, width_of(self.err)) - 1 if is_terminal(self.err) else _LOG_WIDTH

    @property
    def height(self) -> int:
        """Lines of the terminal."""
        return height_of(self.err)

    def answer(self, text: str) -> None:
        """Write a piece of the answer: on a terminal what can be read of it, elsewhere as it is.

        Raises:
            BrokenPipeError: Nobody reads it.
        """
        if not text:
            return
        with self._lock:
            if not self.shows_answer:
                self._column = 0 if text.endswith("\n") else 1
                _write(self.out, text)
                return
            text = plain(text)
            if self._is_behind_lines and text.strip():
                text = "\n" + text.lstrip("\n")  # room between what is about the answer and the answer
                self._is_behind_lines = False
            if self._is_wrapped and text.startswith("\n"):
                text = text[1:]  # the line was ended for the block's sake
            self._is_wrapped = False
            self._column = _column_after(text, self._column, max(1, width_of(self.out)))
            if not self._is_shared:
                _write(self.out, text)
                return
            self._write_above(text, self.out)

    def end_line(self) -> None:
        """Begin a new line of the answer, unless it is at the beginning of one."""
        with self._lock:
            if self._column:
                self.answer("\n")

    def line(self, text: str) -> None:
        """Write a line about the run, styled already."""
        if self.is_quiet:
            return
        with self._lock:
            if self._is_shared:
                text = f"\n{text}" if self._column else text
                self._column, self._is_wrapped, self._is_behind_lines = 0, False, True
            self._write_above(f"{text}\n", self.err)

    def gap(self) -> None:
        """Leave a line free between the answer and the lines that follow."""
        with self._lock:
            if self._is_shared and not self.is_quiet and not self._is_behind_lines:
                self.end_line()
                self.line("")

    def block(self, lines: Sequence[str]) -> None:
        """Draw the lines that are redrawn, styled and cut to the width already, in place of those drawn before."""
        if not self.is_live:
            return
        with self._lock:
            lines = list(lines[: max(1, self.height - 2)])
            if lines != self._block or (lines and not self._is_drawn):
                self._block = lines
                self._write_above("", self.err)

    def close(self) -> None:
        """Leave the screen as others expect it: without the block, at the beginning of a line."""
        with self._lock:
            self.block(())
            with contextlib.suppress(OSError, ValueError):
                self.end_line()

    def check_reader(self) -> None:
        """Notice that nobody reads the answer any more, also while there is nothing to write.

        Raises:
            BrokenPipeError: So it is.
        """
        if self.shows_answer or not hasattr(select, "poll"):
            return
        try:
            poll = select.poll()
            poll.register(self.out.fileno(), 0)
            found = poll.poll(0)
        except (AttributeError, ValueError, OSError):
            return
        if any(events & select.POLLERR for _, events in found):
            raise BrokenPipeError

    @contextlib.contextmanager
    def taking_prints(self) -> Iterator[None]:
        """Have what functions of the caller's print in the block appear among the lines, not in the answer."""
        passage = _Passage(self, self._lock)
        with self._children_to_stderr(), contextlib.redirect_stdout(passage), contextlib.redirect_stderr(passage):
            try:
                yield
            finally:
                passage.end()

    @contextlib.contextmanager
    def _children_to_stderr(self) -> Iterator[None]:
        """Have programs that functions start write to standard error too, and the answer to where it is meant to go."""
        out: Any = self.out
        is_own = sys.__stdout__ is self.out and _are_descriptors(out, 1, self.err, 2)
        if not is_own:
            yield
            return
        out.flush()
        kept = os.dup(1)
        os.dup2(2, 1)
        self.out = open(kept, "w", encoding=out.encoding, errors=out.errors, newline=None)  # noqa: SIM115 - kept open
        try:
            yield
        finally:
            os.dup2(kept, 1)
            with contextlib.suppress(OSError, ValueError):  # each piece was flushed, or has failed
                self.out.close()
            self.out = out

    def print_line(self, text: str, style: Callable[[str], str] = str) -> None:
        """Write a line that is no progress, not styled yet: also where progress is left out."""
        with self._lock:
            was_quiet, self.is_quiet = self.is_quiet, False
            try:
                self.line(style(plain(text)))
            finally:
                self.is_quiet = was_quiet

    def __enter__(self) -> Screen:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _write_above(self, text: str, stream: IO[str]) -> None:
        """Write text where the last ended and draw the block below it."""
        erase = _ERASE_BELOW if self._is_drawn else ""
        block = self._drawing()
        self._is_drawn = bool(block)
        if stream is self.err:
            self._write_about(f"{erase}{text}{block}")
        elif self._is_shared:  # in one piece, so that nothing flickers
            _write(stream, f"{erase}{text}{block}")
        else:
            self._write_about(erase)
            _write(stream, text)
            self._write_about(block)

    def _write_about(self, text: str) -> None:
        """Write what is about the run; where nobody reads that any more, the run goes on all the same."""
        with contextlib.suppress(OSError, ValueError):
            _write(self.err, text)

    def _drawing(self) -> str:
        """Return what draws the block below the cursor and brings the cursor back.

        The terminal is made to remember the place, so that no mistake about how wide a sign is there can move it.
        """
        if not self._block:
            return ""
        below, first = len(self._block), "\r\n"
        start = ""
        if self._column and self._column >= max(1, width_of(self.out)):
            start = "\r\n"  # between two lines there is no place to come back to
            self._column, self._is_wrapped = 0, True
        if not self._column:
            below, first = below - 1, "\r"
        room = _DOWN * below + (f"\x1b[{below}A" if below else "")
        return f"{start}{room}{_SAVE}{first}" + "\r\n".join(self._block) + _RESTORE


class _Passage(io.TextIOBase):
    """What `print` writes to meanwhile: whole lines are passed on to the screen."""

    def __init__(self, screen: Screen, lock: threading.RLock) -> None:
        self._screen = screen
        self._rest: list[str] = []  # of the line that has not ended
        self._lock = lock  # that of the screen: two would wait for each other
        self.buffer = _PassageBytes(self)

    @property
    def encoding(self) -> str:  # type: ignore[override]  # typeshed has a variable
        """The encoding of where it ends up."""
        return getattr(self._screen.err, "encoding", None) or "utf-8"

    def writable(self) -> bool:
        """Tell that it can be written to."""
        return True

    def fileno(self) -> int:
        """Return the descriptor of standard error: what a child process inherits."""
        return self._screen.err.fileno()

    def write(self, text: str) -> int:
        """Take a piece of text."""
        with self._lock:
            *lines, rest = text.split("\n")
            for line in lines:
                self._add(line)
                self._pass_on()
            if rest:
                self._add(rest)
        return len(text)

    def end(self) -> None:
        """Pass on what is no whole line."""
        with self._lock:
            if self._rest:
                self._pass_on()

    def _add(self, text: str) -> None:
        """Add to the line. What a progress bar writes over is forgotten."""
        if text and self._rest and self._rest[-1].endswith("\r"):
            self._rest.clear()
        *over, last = text.rstrip("\r").split("\r")
        if over:
            self._rest.clear()
        self._rest.append(f"{last}\r" if text.endswith("\r") else last)

    def _pass_on(self) -> None:
        line = "".join(self._rest)
        self._rest.clear()
        self._screen.print_line(line)


class _PassageBytes(io.RawIOBase):
    """The same for those who write bytes."""

    def __init__(self, passage: _Passage) -> None:
        self._passage = passage
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def writable(self) -> bool:
        """Tell that it can be written to."""
        return True

    def write(self, data: Any) -> int:
        """Take a piece of text in UTF-8."""
        given = bytes(data)
        self._passage.write(self._decoder.decode(given))
        return len(given)


def _write(stream: IO[str], text: str) -> None:
    if not text:
        return
    try:
        stream.write(text)
    except UnicodeEncodeError:  # an old encoding, or half of a surrogate pair
        encoding = getattr(stream, "encoding", None) or "ascii"
        stream.write(text.encode(encoding, "replace").decode(encoding))
    try:
        stream.flush()
    except OSError as error:
        if error.errno == errno.EIO:  # the window of the terminal was closed
            raise BrokenPipeError(error.errno, error.strerror) from error
        raise


def _are_descriptors(out: IO[Any], number: int, err: IO[Any], err_number: int) -> bool:
    try:
        return out.fileno() == number and err.fileno() == err_number
    except (AttributeError, ValueError, OSError):
        return False


def _is_same_terminal(one: IO[Any], other: IO[Any]) -> bool:
    try:
        return os.fstat(one.fileno()).st_rdev == os.fstat(other.fileno()).st_rdev
    except (AttributeError, ValueError, OSError):
        return False


def _column_after(text: str, column: int, width: int) -> int:
    """Return the column behind a text; `width` itself where the next sign would begin a line."""
    *_, last = text.rpartition("\n")
    if len(last) != len(text):
        column = 0
    if last.isascii() and "\t" not in last:
        column += len(last)
        return column if column <= width else (column - 1) % width + 1
    for char in last:
        wide = _TAB - column % _TAB if char == "\t" else cells(char)
        column = wide if column + wide > width and char != "\t" else min(width, column + wide)
    return column
