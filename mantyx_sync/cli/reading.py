"""What a person types, or another program sends, message by message."""

from __future__ import annotations

import contextlib
import select
import sys
from typing import Any, Iterable

from ..display.terminal import Style, can_write, is_terminal, plain
from .loading import Unusable

__all__ = ["Reader"]

FENCE = '"""'
_MAX_REMEMBERED = 10_000
_PASTE_S = 0.03  # the lines of a pasted text follow each other faster than anybody types


class Reader:
    """Reads messages from standard input: with line editing and a history where there is a terminal."""

    def __init__(self, style: Style) -> None:
        self.is_person = is_terminal(sys.stdin)
        self._style = style
        self._edits = self.is_person and is_terminal(sys.stdout)
        self._history: Any = _line_editing() if self._edits else None

    def remember(self, messages: Iterable[str]) -> None:
        """Let earlier messages be found with the arrow keys. They are kept nowhere else."""
        for message in messages:
            if self._history is not None and "\n" not in message and len(message) <= _MAX_REMEMBERED:
                with contextlib.suppress(ValueError):  # what the locale cannot encode, or cannot be typed
                    self._history.add_history(plain(message))

    def read(self, prompt: str) -> str:
        """Return the next message. Blocks until there is one.

        A text that is pasted is one message; so is what stands between two lines of three quotation marks. Lines that
        were typed before they were asked for are messages of their own.

        Raises:
            EOFError: There are no more.
            KeyboardInterrupt: Ctrl-C.
            Unusable: It is no UTF-8 text.
        """
        is_ahead = self._is_more_there(0.0)
        line = self._line(prompt)
        if line.strip() == FENCE:
            return self._until_fence()
        lines = [line]
        while not is_ahead and self._is_more_there(_PASTE_S):
            try:
                lines.append(self._line(""))
            except EOFError:
                break
        return "\n".join(lines)

    def _until_fence(self) -> str:
        lines: list[str] = []
        while True:
            try:
                line = self._line("… " if can_write(sys.stdout, "…") else ". ")
            except EOFError:
                return "\n".join(lines)
            if line.strip() == FENCE:
                return "\n".join(lines)
            lines.append(line)

    def _line(self, prompt: str) -> str:
        try:
            return self._asked(prompt)
        except UnicodeDecodeError:
            raise Unusable("the message is no UTF-8 text") from None

    def _asked(self, prompt: str) -> str:
        if self._edits:
            return input(self._edited_prompt(prompt))
        if self.is_person and prompt:
            sys.stderr.write(self._style.cyan(prompt))
            sys.stderr.flush()
        return self._plain_line()

    @staticmethod
    def _plain_line() -> str:
        source: Any = getattr(sys.stdin, "buffer", sys.stdin)  # UTF-8, whatever the locale says, as other input
        line = source.readline()
        if not line:
            raise EOFError
        return (line.decode("utf-8-sig") if isinstance(line, bytes) else str(line)).rstrip("\r\n")

    def _edited_prompt(self, prompt: str) -> str:
        if not prompt or not self._style.enabled:
            return prompt
        if self._history is None:
            return self._style.cyan(prompt)
        # What takes no room is marked, or the line editor miscounts.
        return f"\x01\x1b[36m\x02{prompt}\x01\x1b[0m\x02"

    def _is_more_there(self, within: float) -> bool:
        if not self.is_person or sys.platform == "win32":
            return False
        with contextlib.suppress(OSError, ValueError):
            return bool(select.select([sys.stdin], [], [], within)[0])
        return False


def _line_editing() -> Any:
    """Return the module that gives `input` line editing and a history, where Python has it."""
    try:
        import readline
    except ImportError:
        return None
    return readline
