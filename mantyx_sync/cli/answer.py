"""The answer on standard output: as it is written, or only once it is sure to be the answer."""

from __future__ import annotations

from typing import Any, Mapping

from ..display.growing import Text
from .screen import Screen

__all__ = ["Answer", "is_sure"]


class Answer:
    """Writes the model's text. What turns before the last say is part of it only where it is written as it comes."""

    def __init__(self, screen: Screen, *, is_streamed: bool) -> None:
        """Write nothing yet.

        Args:
            is_streamed: Write text as it comes. Otherwise the final answer is written, and nothing if there is none.
        """
        self._screen = screen
        self._is_streamed = is_streamed
        self._turn = Text()
        self._is_turn_over = False

    def add(self, text: str) -> None:
        """Take a piece of the model's text."""
        if not self._is_streamed or not text:
            return
        if self._is_turn_over:
            self._begin_turn()
        self._turn.add(text)
        self._screen.answer(text)

    def end_turn(self, text: str | None = None) -> None:
        """Note that the turn is over; with its whole text, write what of it was not seen."""
        if self._is_streamed:
            if text:
                self._complete(text)
            self._is_turn_over = bool(self._turn) or self._is_turn_over

    def finish(self, text: str) -> None:
        """Take the final answer, and end its line."""
        if self._is_streamed:
            self._complete(text)
        else:
            self._screen.answer(text)
        self._screen.end_line()

    def _complete(self, text: str) -> None:
        """Write what is missing of a turn's text: the stream may have been taken up behind a part of it."""
        seen = str(self._turn)
        if text == seen or not text.strip():
            return
        if not text.startswith(seen):
            self._begin_turn()
            seen = ""
        rest = text[len(seen) :]
        self._turn.add(rest)
        self._screen.answer(rest)

    def _begin_turn(self) -> None:
        self._screen.end_line()
        self._turn, self._is_turn_over = Text(), False


def is_sure(fields: Mapping[str, Any]) -> bool:
    """Tell whether all text that a run with these fields writes is its answer: nothing makes it take a second turn."""
    return not any(fields.get(name) for name in ("tools", "agent_id", "plan", "supervisor", "extra_body"))
