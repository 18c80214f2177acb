"""A terminal for tests: a screen that draws what is written to it, and a real pseudo-terminal with a program in it."""

from __future__ import annotations

import contextlib
import os
import re
import select
import struct
import subprocess
import sys
import time
import unicodedata
from pathlib import Path
from typing import Any, Callable, Iterator, Sequence

__all__ = ["Display", "Program", "program"]

ROOT = Path(__file__).parent.parent
DEADLINE_S = 20.0
_SEQUENCE = re.compile(r"\x1b(?:\[([?0-9;]*)([A-Za-z])|([78DM]))")


class Display:
    """Draws text and the few sequences that we write; any other sequence is an error."""

    def __init__(self, columns: int = 80, lines: int = 24) -> None:
        self.columns, self.height = columns, lines
        self.history: list[str] = []
        self._lines = [[" "] * columns for _ in range(lines)]
        self.row = self.column = 0
        self._is_wrapping = False
        self._saved = (0, 0)
        self._rest = ""

    @property
    def lines(self) -> list[str]:
        """All lines that were ever scrolled away, and those on the screen, down to the last that is not empty."""
        found = [*self.history, *("".join(line).rstrip() for line in self._lines)]
        while found and not found[-1]:
            found.pop()
        return found

    def feed(self, text: str) -> None:
        """Draw a piece of text."""
        text, self._rest = self._rest + text, ""
        at = 0
        while at < len(text):
            if text[at] == "\x1b":
                found = _SEQUENCE.match(text, at)
                if found is None:
                    assert len(text) - at < 12, f"a sequence that is not ours: {text[at : at + 12]!r}"
                    self._rest = text[at:]
                    return
                self._obey(found)
                at = found.end()
            else:
                self._put(text[at])
                at += 1

    def _obey(self, found: re.Match[str]) -> None:
        given, letter, short = found.groups()
        number = int(given) if given and given.isdigit() else 1
        if short == "7":
            self._saved = (self.row, self.column)
        elif short == "8":
            self.row, self.column = self._saved
            self._is_wrapping = False
        elif short == "D":
            self._down()
        elif letter == "A":
            self.row = max(0, self.row - number)
            self._is_wrapping = False
        elif letter == "J":
            self._lines[self.row][self.column :] = [" "] * (self.columns - self.column)
            for row in range(self.row + 1, self.height):
                self._lines[row] = [" "] * self.columns
        elif letter == "K":
            self._lines[self.row][self.column :] = [" "] * (self.columns - self.column)
        else:
            assert letter in ("m", "h", "l"), f"a sequence that is not ours: {found.group()!r}"

    def _put(self, char: str) -> None:
        if char == "\n":
            self._is_wrapping = False
            self._down()
        elif char == "\r":
            self.column, self._is_wrapping = 0, False
        elif char == "\b":
            self.column = max(0, self.column - 1)
        elif char == "\t":
            self.column = min(self.columns - 1, self.column // 8 * 8 + 8)
        elif char >= " ":
            wide = 2 if unicodedata.east_asian_width(char) in "WF" else 0 if unicodedata.combining(char) else 1
            if self._is_wrapping or self.column + wide > self.columns:
                self._down()
                self.column, self._is_wrapping = 0, False
            if wide:
                self._lines[self.row][self.column : self.column + wide] = [char, *[""] * (wide - 1)]
                self.column += wide
            if self.column >= self.columns:
                self.column, self._is_wrapping = self.columns - 1, True
        else:
            assert char in "\x07", f"a control character that is not ours: {char!r}"

    def _down(self) -> None:
        if self.row == self.height - 1:
            self.history.append("".join(self._lines.pop(0)).rstrip())
            self._lines.append([" "] * self.columns)
        else:
            self.row += 1


class Program:
    """A program in a pseudo-terminal. `raw` is all it wrote, `display` what that looks like."""

    def __init__(self, process: subprocess.Popen[bytes], ours: int, columns: int, lines: int) -> None:
        self.process = process
        self.raw = b""
        self.display = Display(columns, lines)
        self._ours = ours

    def until(self, is_so: Callable[[], bool]) -> None:
        """Read until something is so."""
        deadline = time.monotonic() + DEADLINE_S
        while not is_so():
            assert time.monotonic() < deadline, self.display.lines
            assert self.read(0.05) or self.process.poll() is None or is_so(), self.display.lines

    def until_shown(self, text: str) -> None:
        """Read until a text is on the screen."""
        self.until(lambda: any(text in line for line in self.display.lines))

    def until_asked(self) -> None:
        """Read until there is a prompt with nothing typed yet."""
        self.until(lambda: self.display.lines[-1:] == [">"])

    def read(self, timeout: float) -> bool:
        """Read what there is, waiting for it; tell whether there was any."""
        try:
            if not select.select([self._ours], [], [], timeout)[0]:
                return False
            data = os.read(self._ours, 65536)
        except OSError:  # the other end is closed
            return False
        self.raw += data
        self.display.feed(data.decode("utf-8", "replace"))
        return bool(data)

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._ours, text.encode())

    def hang_up(self) -> None:
        """Close the terminal's window."""
        os.close(self._ours)
        self._ours = -1

    def ends(self) -> int:
        """Wait for the end of the program and return its exit code."""
        deadline = time.monotonic() + DEADLINE_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.display.lines
            if self._ours >= 0:
                self.read(0.05)
            else:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(0.05)
        while self._ours >= 0 and self.read(0.0):
            pass
        return int(self.process.returncode)

    def close(self) -> None:
        """End it, if it has not ended."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if self._ours >= 0:
            os.close(self._ours)


@contextlib.contextmanager
def program(
    arguments: Sequence[str],
    *,
    columns: int = 80,
    lines: int = 24,
    env: dict[str, str] | None = None,
    cwd: Path = ROOT,
    **streams: Any,
) -> Iterator[Program]:
    """Start the command line in a pseudo-terminal of a size; `stdin=`, `stdout=` or `stderr=` take one from it."""
    import fcntl
    import pty
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8"}
    for name in ("NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "FORCE_COLOR", "COLUMNS", "LINES"):
        environment.pop(name, None)
    started = None
    try:
        # The keys that make signals work in the session of the terminal alone.
        start = f"import os,fcntl,termios\nfcntl.ioctl({theirs}, termios.TIOCSCTTY, 0)\nos.close({theirs})\n"
        start += "from mantyx_sync.cli import main\nraise SystemExit(main())"
        process = subprocess.Popen(
            [sys.executable, "-c", start, *arguments],
            env={**environment, **(env or {})},
            cwd=cwd,
            start_new_session=True,
            pass_fds=[theirs],
            **{"stdin": theirs, "stdout": theirs, "stderr": theirs, **streams},
        )
        os.close(theirs)
        theirs = -1
        started = Program(process, ours, columns, lines)
        yield started
    finally:
        if theirs >= 0:
            os.close(theirs)
        if started is not None:
            started.close()
        else:
            os.close(ours)
