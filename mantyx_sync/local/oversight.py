"""Have a run reviewed by its judge, between rounds of tools and in the middle of long reasoning (wire §8.4)."""

from __future__ import annotations

import logging
from typing import Any, Callable, Mapping

from mantyx_sync.local.planning import PlanFollower
from mantyx_sync.local.store import Run
from mantyx_sync.local.supervisor import (
    Cadence,
    Judge,
    ReasoningSpan,
    Review,
    SupervisorSettings,
    Verdict,
    read_verdict,
)
from mantyx_sync.local.turns import ReasoningWatch

__all__ = ["Oversight"]

_log = logging.getLogger(__name__)


class Oversight:
    """Asks the judge when it is time, and emits a `supervisor` event for every review.

    Args:
        run: The run under review.
        settings: What its spec asks for.
        judge: Who decides. One that raises leaves the run on track, and the event says so.
        model: The judge's model as events report it.
        plan: Moves with the reviews.
        clock: Seconds, for the length of reasoning.
    """

    def __init__(
        self,
        run: Run,
        settings: SupervisorSettings,
        judge: Judge,
        model: Mapping[str, Any],
        *,
        plan: PlanFollower,
        clock: Callable[[], float],
    ) -> None:
        self._run = run
        self._settings = settings
        self._judge = judge
        self._model = model
        self._plan = plan
        self._clock = clock
        self._cadence = Cadence(settings.interval)
        self._interventions = 0
        self.intervention = Verdict()
        """The verdict that broke off the last turn."""

    def review_round(self, llm_calls: int, reasoning: str) -> Verdict | None:
        """At the bottom of a tool round: review it if it is time. Returns a verdict to be carried out."""
        if not self._cadence.due(llm_calls):
            return None
        return self._review("turn_boundary", llm_calls, reasoning)

    def watch(self, llm_calls: int) -> ReasoningWatch | None:
        """Return what watches the reasoning of the next turn; None where the spec does not want that."""
        settings = self._settings
        if settings.chars is None and settings.ms is None:
            return None
        span = ReasoningSpan(settings.chars, settings.ms)

        def thought(text: str) -> bool:
            if not span.feed(text, self._clock()):
                return False
            verdict = self._review("reasoning", llm_calls, span.text)
            if verdict is None:
                return False
            self.intervention = verdict
            return True

        return ReasoningWatch(thought, span.end)

    def _review(self, phase: str, llm_calls: int, reasoning: str) -> Verdict | None:
        run = self._run
        review = Review(
            run.id,
            phase,
            llm_calls,
            tuple(run.conversation),
            reasoning,
            run.spec,
            self._plan.current,
            self._interventions,
        )
        try:
            verdict = read_verdict(self._judge(review))
        except Exception as error:
            _log.exception("run %s: the judge raised", run.id, extra={"run_id": run.id})
            verdict = Verdict(reason=f"The judge could not review the run: {type(error).__name__}.")
        run.emit("supervisor", verdict.to_event(phase, llm_calls, self._model))
        self._plan.reviewed(verdict.action, verdict.steps)
        if verdict.action == "on_track":
            return None
        self._interventions += 1
        return verdict
