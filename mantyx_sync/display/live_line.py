"""A run on one line of a terminal: what goes on right now, and in the end how it went."""

from __future__ import annotations

from typing import IO

from mantyx_sync.display.state import RunState
from mantyx_sync.display.terminal import Glyphs, Style, can_redraw, cells, fit, glyphs_for, wants_colour, width_of
from mantyx_sync.display.wording import calls_made, duration, plural, spent, ticking

__all__ = ["Line", "final_words", "running_words"]

_NOTICE_S = 4.0
"""How long a notice takes the place of what else goes on."""
_TAIL_CHARS = 400


class Line:
    """One line of a terminal, written over again and again. It takes no more than the terminal's width."""

    def __init__(self, stream: IO[str]) -> None:
        """Write nothing yet.

        Args:
            stream: A terminal. Where it cannot write over what is there, only the last line is written.
        """
        self._stream = stream
        self._can_redraw = can_redraw(stream)
        self._style = Style(wants_colour(stream))
        self.signs: Glyphs = glyphs_for(stream)
        self._drawn = 0

    def draw(self, sign: str, words: str) -> None:
        """Write over what is there."""
        if self._can_redraw:
            self._write(self._style.cyan(sign), sign, words, "")

    def end(self, sign: str, words: str, tone: str) -> None:
        """Write the line that stays. `tone`: `good`, `bad` or `warn`."""
        colour = {"good": self._style.green, "bad": self._style.red}.get(tone, self._style.yellow)
        self._write(colour(sign), sign, words, "\n")
        self._drawn = 0

    def _write(self, coloured: str, sign: str, words: str, end: str) -> None:
        # The last column stays free: a terminal that is full to the edge goes on in the next line.
        width = width_of(self._stream) - 1
        shown = fit(self._writable(f"{sign} {words}"), width)
        used = cells(shown)
        rest = " " * max(0, min(self._drawn, width) - used)
        if shown.startswith(sign):
            shown = coloured + shown[len(sign) :]
        start = "\r" if self._can_redraw else ""
        self._stream.write(f"{start}{shown}{rest}{end or chr(8) * len(rest)}")
        self._stream.flush()
        self._drawn = used

    def _writable(self, text: str) -> str:
        """Replace what the stream's encoding has not: written as an escape it would take more than the line."""
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        try:
            return text.encode(encoding, "replace").decode(encoding)
        except LookupError:
            return text


def running_words(state: RunState, now: float) -> str:
    """Say what a run does right now. Control characters and line ends are the caller's to take out."""
    parts = [ticking(state.elapsed(now))]
    if state.plan is not None and state.plan.steps:
        done = sum(step.status in ("done", "skipped") for step in state.plan.steps)
        parts.append(f"plan {done}/{len(state.plan.steps)}")
    parts.append(_doing(state, now))
    return " · ".join(parts)


def _doing(state: RunState, now: float) -> str:
    notice = state.notices[-1] if state.notices else None
    if notice is not None and notice.is_warning and now - notice.at < _NOTICE_S:
        return notice.text
    running = state.running_tools
    if running:
        oldest = running[0]
        more = f" and {plural(len(running) - 1, 'more call')}" if len(running) > 1 else ""
        return f"calls {oldest.name}{more}, {ticking(oldest.duration(now))}"
    turn = state.turns[-1] if state.turns else None
    if turn is not None and turn.is_thinking:
        return f"thinks: {turn.thoughts.tail(_TAIL_CHARS)}"
    if turn is not None and turn.answer.length and not turn.is_complete:
        return turn.answer.tail(_TAIL_CHARS)
    return "waits for the model"


def final_words(state: RunState, run_id: str, ending: object, now: float) -> tuple[str, str]:
    """Say how a run went, and in which tone: `good`, `bad` or `warn`.

    Args:
        ending: The run's result, or the error that is raised instead of it.
    """
    kind = "lost" if state.outcome is None else state.outcome.kind
    tone = {"succeeded": "good", "cancelled": "warn"}.get(kind, "bad")
    reason = "" if state.outcome is None else state.outcome.reason
    if isinstance(ending, BaseException) and tone == "good":  # an answer that is not what was asked for
        tone, reason = "bad", str(ending) or type(ending).__name__
    failed = sum(call.state == "failed" for call in state.tools)
    warnings = sum(notice.is_warning for notice in state.notices)
    parts = [
        f"{run_id} {'done' if kind == 'succeeded' else kind}",
        duration(state.elapsed(now)),
        plural(state.turn_count, "turn") if state.turn_count else "",
        calls_made(len(state.tools), failed) if state.tools else "",
        plural(warnings, "notice") if warnings else "",
        spent(state.tokens),
        reason,
    ]
    return " · ".join(part for part in parts if part), tone
