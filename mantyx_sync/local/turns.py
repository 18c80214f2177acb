"""Play one turn of the model: its parts go out as deltas while they come, and what they add up to is returned."""

from __future__ import annotations

from typing import Any, Callable, Mapping, Optional, Sequence

from mantyx_sync.local.model import Model, ModelFailure, ModelRequest, Text, Thinking, ToolUse, TurnEnd, Usage
from mantyx_sync.local.outcomes import Abandoned, Turn
from mantyx_sync.local.store import Run, new_id

__all__ = ["ReasoningWatch", "play_turn"]


class ReasoningWatch:
    """What a supervisor hangs into a turn. `thought` returns True to have the turn broken off."""

    def __init__(self, thought: Callable[[str], bool], ended: Callable[[], None]) -> None:
        self.thought = thought
        self.ended = ended


def play_turn(
    model: Model,
    request: ModelRequest,
    run: Run,
    *,
    show_thinking: bool,
    watch: ReasoningWatch | None = None,
) -> Turn:
    """Ask the model once. Blocks until its turn is over.

    Args:
        model: Who is asked.
        request: What it is asked.
        run: Where the deltas go.
        show_thinking: Emit `thinking_delta` (wire §4.1: only with a reasoning level above 0).
        watch: Looks at the reasoning while it comes.

    Raises:
        Abandoned: The server stops.
    """
    turn = Turn()
    pieces: list[str] = []
    thoughts: list[str] = []
    usage: Optional[Usage] = None
    emit_text = run.emit_text
    abandoned = run.abandoned.is_set
    parts: Any = ()
    try:
        parts = model.complete(request)
        for part in parts:
            if isinstance(part, str):
                pieces.append(part)
                emit_text("assistant_delta", part)
            elif isinstance(part, Text):
                pieces.append(part.text)
                emit_text("assistant_delta", part.text)
            elif isinstance(part, Thinking):
                thoughts.append(part.text)
                if show_thinking:
                    emit_text("thinking_delta", part.text)
                if watch is not None and watch.thought(part.text):
                    turn.interrupted = True
                    break
            elif isinstance(part, ToolUse):
                turn.calls.append(part if part.id else ToolUse(part.name, part.args, new_id("tu")))
            elif isinstance(part, TurnEnd):
                turn.finish_reason = part.finish_reason
                usage = part.usage
            if watch is not None and not isinstance(part, Thinking):
                watch.ended()
            if abandoned():
                raise Abandoned
    except ModelFailure as failure:
        turn.failure = failure
        turn.finish_reason = failure.finish_reason
        usage = failure.usage
    finally:
        # A turn that is broken off lets go of what the model holds, such as a connection, now rather than later.
        close = getattr(parts, "close", None)
        if close is not None:
            close()
    turn.text = "".join(pieces)
    turn.reasoning = "".join(thoughts)
    if turn.finish_reason is None and turn.failure is None:
        turn.finish_reason = "tool_use" if turn.calls else "end_turn"
    turn.usage = usage if usage is not None else _estimate(request.messages, turn)
    return turn


def _estimate(messages: Sequence[Mapping[str, Any]], turn: Turn) -> Usage:
    """Count four characters a token where the model does not count, or could not because it was broken off."""
    given = sum(len(message["content"]) for message in messages)
    said = len(turn.text) + sum(len(call.name) + 16 for call in turn.calls)
    reasoning = -(-len(turn.reasoning) // 4)
    return Usage(input_tokens=-(-given // 4), output_tokens=-(-said // 4) + reasoning, reasoning_tokens=reasoning)
