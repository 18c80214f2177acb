"""The card of a run that is going on, and the one that stays when it is over. Pure.

While a run goes on, a notebook throws the card away and puts a new one in its place several times a second: whatever
was opened in it would be closed again. So nothing in the live card opens. It shows the end of what grows, and the card
that stays has all of it, folded.
"""

from __future__ import annotations

from typing import Sequence

from mantyx_sync.display.html import Html, badge, el, escape, fold, fragment, join, one_line, prose, section
from mantyx_sync.display.parts import (
    CALL_KINDS,
    CALL_TONES,
    CallShown,
    call_list,
    card,
    failure,
    head,
    mark,
    notice_list,
    opened,
    plan_section,
    rest_note,
    status_badge,
    written_before_end,
)
from mantyx_sync.display.run_view import error_card, result_card
from mantyx_sync.display.state import RunState, ToolCallState, TurnState
from mantyx_sync.display.wording import duration, ticking
from mantyx_sync.errors import MantyxRunError
from mantyx_sync.results import RunResult

__all__ = ["final_html", "live_html"]

_TEXT_CHARS = 6000
_THOUGHT_CHARS = 420
_MAX_CALLS = 12
_MAX_NOTICES = 6
_MAX_FOLDED = 100_000
_INSTANT_S = 0.05  # thoughts that came all at once took longer than can be told
_FRAMES = "◐◓◑◒"


def live_html(state: RunState, run_id: str, now: float) -> str:
    """Return how a run looks while it goes on, as a block of HTML of a bounded size."""
    turn = state.turns[-1] if state.turns else None
    spoken = _spoken(state.turns)
    return fragment(
        card(
            head(
                "Run",
                status_badge("running"),
                run_id,
                _progress(state, now),
            ),
            _tail(spoken) if spoken is not None else None,
            _thinking(turn, now) if turn is not None else None,
            el("div", _waiting(state), cls="soft") if spoken is None and not _is_busy(state) else None,
            plan_section(state.plan),
            notice_list(state.notices, _MAX_NOTICES),
            _calls(state.tools, now),
        )
    )


def final_html(state: RunState, run_id: str, ending: RunResult | BaseException, now: float) -> str:
    """Return how a run looks when it is over: what its result or its error shows, and what the model thought.

    Args:
        ending: The result, or what ended watching it.
        now: On the clock of the state's times.
    """
    thoughts = _thoughts(state, now)
    if isinstance(ending, RunResult):
        return fragment(result_card(ending, thoughts))
    written = written_before_end(state.text)
    if isinstance(ending, MantyxRunError):
        return fragment(error_card(ending, None if ending.partial_text else written, thoughts))
    status = state.outcome.kind if state.outcome is not None else "lost"
    why = str(ending) or type(ending).__name__
    if isinstance(ending, KeyboardInterrupt):
        why = "The cell was interrupted, and the run was cancelled."
    return fragment(
        card(
            head("Run", status_badge(status), run_id, el("span", duration(state.elapsed(now)), cls="soft small end")),
            failure(why, is_cancelled=status == "cancelled"),
            written,
            plan_section(state.plan),
            notice_list(state.notices, _MAX_NOTICES),
            call_list([_shown(call, now) for call in state.tools]),
            thoughts,
        )
    )


def _progress(state: RunState, now: float) -> Html:
    turns = len(state.turns)
    turn = el("span", f"turn {turns} · ", cls="wide") if turns > 1 else None
    return el("span", turn, ticking(state.elapsed(now)), cls="soft small tight end")


def _spoken(turns: Sequence[TurnState]) -> TurnState | None:
    """Return the turn whose text is shown: the newest that has any."""
    return next((turn for turn in reversed(turns) if turn.answer.length), None)


def _is_busy(state: RunState) -> bool:
    return bool(state.tools) or any(turn.thoughts.length for turn in state.turns)


def _waiting(state: RunState) -> str:
    return "Waiting for the model." if state.last_seq or state.turns else "Waiting for the run to begin."


def _tail(turn: TurnState) -> Html:
    hidden = turn.answer.length - _TEXT_CHARS
    return join(
        [
            el("span", f"{hidden:,} characters before this are shown when the run is over", cls="cut")
            if hidden > 0
            else None,
            prose(turn.answer.tail(_TEXT_CHARS)),
        ]
    )


def _thinking(turn: TurnState, now: float) -> Html | None:
    if not turn.thoughts.length:
        return None
    if not turn.is_thinking:
        took = turn.thought_for(now)
        return el("div", "Thought." if took < _INSTANT_S else f"Thought for {duration(took)}.", cls="soft small")
    # Its last lines, at the bottom of a box of three lines.
    shown = el("div", el("div", turn.thoughts.tail(_THOUGHT_CHARS).lstrip()), cls="thought")
    return section(f"Thinking · {ticking(turn.thought_for(now))}", shown)


def _thoughts(state: RunState, now: float) -> Html | None:
    turns = [turn for turn in state.turns if turn.thoughts.length]
    if not turns:
        return None
    room = _MAX_FOLDED // len(turns)
    took = sum(turn.thought_for(now) for turn in turns)
    words = "" if took < _INSTANT_S else f" · {duration(took)}"
    parts = [prose(turn.thinking, max(1000, room)) for turn in turns[:50]]
    return fold(el("span", f"What the model thought{words}"), *(el("div", part, cls="soft") for part in parts))


def _shown(call: ToolCallState, now: float) -> CallShown:
    return CallShown(call.name, call.state, call.args, call.kind, detail=call.detail, seconds=call.duration(now))


def _calls(calls: Sequence[ToolCallState], now: float) -> Html | None:
    if not calls:
        return None
    # What goes on is always shown; of what is over, the newest.
    going = [call for call in calls if call.state == "running"][-_MAX_CALLS:]
    over = [call for call in calls if call.state != "running"]
    kept = {id(call) for call in (*going, *over[max(0, len(over) - (_MAX_CALLS - len(going))) :])}
    failed = sum(call.state == "failed" for call in calls)
    title = (
        f"Tool calls · {len(calls):,}"
        + (f", {len(going)} running" if going else "")
        + (f", {failed:,} failed" if failed else "")
    )
    return section(
        title,
        rest_note(len(calls) - len(kept), "other call"),
        el("div", [_call(call, now) for call in calls if id(call) in kept], cls="rows"),
    )


def _call(call: ToolCallState, now: float) -> Html:
    is_running = call.state == "running"
    sign = _FRAMES[int(2 * now) % len(_FRAMES)] if is_running else mark(call.state)
    args = "" if call.args is None else one_line(call.args, 200)
    words = _failure_words(call.detail) if call.state == "failed" and call.detail else "" if args == "{}" else args
    kind = CALL_KINDS.get(call.kind)
    took = ticking(call.duration(now)) if is_running else duration(call.duration(now))
    return el(
        "div",
        el("span", el("span", sign, cls="mark") if is_running else sign, cls=CALL_TONES.get(call.state, "accent")),
        el("span", escape(call.name, 80), cls="mono strong one", title=escape(call.name, 300)),
        badge(kind) if kind else None,
        el("span", escape(one_line(words, 200)), cls="mono soft one grow"),
        el("span", took if call.was_called else None, cls=f"{'accent' if is_running else 'soft'} small tight"),
        cls="row",
    )


def _failure_words(detail: str) -> str:
    """Return the sentence in what a failed call answered: the platform answers in JSON."""
    found = opened(detail)
    message = found.get("message") if isinstance(found, dict) else None
    return message if isinstance(message, str) and message else detail
