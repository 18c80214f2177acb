"""What steps in while a run goes on, guards, the supervisor, another model, in a sentence each (wire §8). Pure."""

from __future__ import annotations

from dataclasses import dataclass

from mantyx_sync.events import LoopDetected, ModelFallback, RunEvent, SupervisorReview, ToolBudgetExceeded

__all__ = ["Notice", "sentence_of"]


@dataclass(frozen=True)
class Notice:
    """Something that stepped in: a guard, the supervisor, another model. `is_warning` unless all is on track.

    `kind` is the event's type. `turn` is the place in `RunState.turns` of the turn it came after.
    """

    kind: str
    text: str
    at: float
    is_warning: bool = True
    turn: int = 0


def sentence_of(event: RunEvent) -> tuple[str, bool] | None:
    """Return what a guard's event means in a sentence, and whether it is a warning; `None` for other events."""
    if isinstance(event, LoopDetected):
        tools = f" ({', '.join(event.tools)})" if event.tools else ""
        times = f" {event.consecutive_count} times" if event.consecutive_count else ""
        then = "the last turn is without tools" if event.hard_cutoff else "the model was told to try something else"
        return f"The same tool calls were repeated{times}{tools}: {then}.", True
    if isinstance(event, ToolBudgetExceeded):
        limit = "" if event.max_calls is None else f", its budget is {event.max_calls}"
        index = "A call" if event.call_index is None else f"Call {event.call_index}"
        return f"{index} of {event.tool or 'a tool'} was turned away{limit}.", True
    if isinstance(event, SupervisorReview):
        words = {
            "on_track": "The supervisor finds the run on track",
            "redirect": "The supervisor changed the run's course",
            "finalize": "The supervisor asked the run to finish",
        }
        said = words.get(event.action or "", f"The supervisor reviewed the run ({event.action or 'no verdict'})")
        more = (event.redirect or event.reason) if event.action == "redirect" else event.reason
        return (f"{said}: {more}" if more else f"{said}."), event.action != "on_track"
    if isinstance(event, ModelFallback):
        instead = event.fallback_model_id or "another model"
        why = f" ({event.error_class})" if event.error_class else ""
        return f"{event.primary_model_id or 'The model'} failed{why}: the run goes on with {instead}.", True
    return None
