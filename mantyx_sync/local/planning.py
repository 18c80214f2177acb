"""Let a run follow its task plan: make the plan, tell the model, tell the client what moves (wire §8.5)."""

from __future__ import annotations

import logging
from typing import Any, Mapping, Optional, Sequence

from mantyx_sync.local.conversation import Conversation
from mantyx_sync.local.outcomes import RunEnded
from mantyx_sync.local.plan import PlanDraft, Planner, PlanRequest, PlanWish, TaskPlan, draft_of
from mantyx_sync.local.store import Run, new_id

__all__ = ["PlanFollower"]

_log = logging.getLogger(__name__)

NO_PLAN = "No multi-step plan was warranted for this request."


class PlanFollower:
    """The plan of one run, or none. Emits its `task_plan` events."""

    def __init__(self, run: Run, conversation: Conversation) -> None:
        self._run = run
        self._conversation = conversation
        self._plan: Optional[TaskPlan] = None

    @property
    def current(self) -> Mapping[str, Any] | None:
        """The plan in wire form, for a judge."""
        return None if self._plan is None else self._plan.to_wire()

    def prepare(self, planner: Planner, tools: Sequence[str]) -> None:
        """Make the plan that the spec asks for and put it before the model.

        Raises:
            RunEnded: The spec wants the plan alone.
        """
        wish = PlanWish.from_spec(self._run.spec.get("plan"))
        if wish is None:
            return
        draft = self._draft(wish, planner, tools)
        if draft is not None:
            source = "caller" if wish.steps else "classifier"
            self._plan = TaskPlan(new_id("plan"), draft, mode=wish.mode, source=source)
            self._emit(self._plan.begin(execute=not wish.plan_only))
        if wish.plan_only:
            raise RunEnded("result", self._plan_only_result(wish))
        if self._plan is not None:
            self._conversation.add_plan(self._plan.to_text())

    def _draft(self, wish: PlanWish, planner: Planner, tools: Sequence[str]) -> PlanDraft | None:
        prompt = self._conversation.prompt
        messages = tuple(self._conversation.messages)
        request = PlanRequest(prompt, messages, tools, wish.mode, self._run.spec, self._run.id)
        try:
            return draft_of(wish, request, planner)
        except Exception:  # planning is an extra: the run does without it
            _log.exception("run %s: the planner raised", self._run.id, extra={"run_id": self._run.id})
            return draft_of(wish, request, lambda _: None)

    def _plan_only_result(self, wish: PlanWish) -> dict[str, Any]:
        plan: dict[str, Any] = {"steps": []}
        if wish.brief:
            plan["brief"] = wish.brief
        text = NO_PLAN
        if self._plan is not None:
            plan = self._plan.to_wire()
            text = self._plan.to_text()
        return {"subtype": "success", "ok": True, "text": text, "plan": plan}

    def tools_done(self) -> None:
        """A round of tools brought something."""
        if self._plan is not None:
            self._emit(self._plan.tools_done())

    def reviewed(self, action: str, steps: Mapping[str, str]) -> None:
        """A supervisor looked at the run."""
        if self._plan is not None:
            self._emit(self._plan.reviewed(action, steps))

    def finish(self) -> None:
        """The run succeeds."""
        if self._plan is not None:
            self._emit(self._plan.finish())

    def _emit(self, events: Sequence[Mapping[str, Any]]) -> None:
        for data in events:
            self._run.emit("task_plan", data)
