"""Task plans (wire §8.5): what a spec asks for, a default planner, and the checklist with its statuses. Pure.

Who plans is the server's choice: `LocalServer(planner=...)` takes any callable from a `PlanRequest` to a
`PlanDraft`, a sequence of titles, or None where no plan is worth it. `split_prompt` is the default.

How the checklist moves, where the documents leave it open: a round of tools that brought a result without an
error finishes the step in progress and begins the next; the last step stays in progress until the answer. A
successful end marks what is unfinished as done, a supervisor's `finalize` marks what was not begun as skipped,
a failed or cancelled run leaves the list as it was.
"""

from __future__ import annotations

import re
from dataclasses import field
from typing import Any, Callable, Mapping, Optional, Sequence, Union

from mantyx_sync.reprs import dataclass

__all__ = [
    "MIN_STEPS",
    "PlanDraft",
    "PlanRequest",
    "PlanWish",
    "Planner",
    "TaskPlan",
    "clamp_draft",
    "draft_of",
    "split_prompt",
]

MIN_STEPS = 2
MAX_STEPS = 20
MAX_STEP_CHARS = 200
MAX_BRIEF_CHARS = 200
STATUSES = ("pending", "in_progress", "done", "blocked", "skipped")


@dataclass(frozen=True)
class PlanWish:
    """The `plan` of a spec, in one shape. `mode` is `auto` or `required`."""

    mode: str = "auto"
    plan_only: bool = False
    brief: Optional[str] = None
    steps: tuple[str, ...] = ()

    @classmethod
    def from_spec(cls, value: Any) -> PlanWish | None:
        """Read `plan`; None where the run is not planned.

        A caller's own steps are required unless the mode says otherwise. `off` switches planning off whatever
        stands beside it, but never lets a plan-only run execute.
        """
        if value is None or value is False or value == "off":
            return None
        if value is True:
            return cls()
        if isinstance(value, str):
            return cls(value)
        steps = tuple(step for step in value.get("steps") or () if step.strip())
        plan_only = bool(value.get("planOnly"))
        mode = value.get("mode") or ("required" if steps else "auto")
        if mode == "off":
            if not plan_only:
                return None
            mode = "auto"
        return cls(mode, plan_only, value.get("brief") or None, steps)


@dataclass(frozen=True)
class PlanDraft:
    """Titles of the steps in order, and maybe one line that sums them up."""

    steps: Sequence[str]
    brief: Optional[str] = None


@dataclass(frozen=True)
class PlanRequest:
    """What a planner is shown: the user's request, the conversation, the names of the tools, the mode."""

    prompt: str
    messages: Sequence[Mapping[str, Any]] = ()
    tools: Sequence[str] = ()
    mode: str = "auto"
    spec: Mapping[str, Any] = field(default_factory=dict)
    run_id: str = ""


Planner = Callable[[PlanRequest], Union[PlanDraft, Sequence[str], None]]


def draft_of(wish: PlanWish, request: PlanRequest, planner: Planner) -> PlanDraft | None:
    """Make the draft of a run's plan: the caller's own, or the planner's. None where there is to be no plan.

    A caller's steps skip the planner and its minimum. With `required` there is always a plan, if only of one
    step.
    """
    if wish.steps:
        return clamp_draft(PlanDraft(wish.steps, wish.brief))
    found = planner(request)
    draft = None
    if found is not None:
        draft = clamp_draft(found if isinstance(found, PlanDraft) else PlanDraft(found))
        if wish.brief:
            draft = PlanDraft(draft.steps, _clip(wish.brief, MAX_BRIEF_CHARS))
    if draft is not None and len(draft.steps) >= (1 if wish.mode == "required" else MIN_STEPS):
        return draft
    if wish.mode == "required":
        return clamp_draft(PlanDraft([request.prompt.strip() or "Answer the request"], wish.brief))
    return None


def clamp_draft(draft: PlanDraft) -> PlanDraft:
    """Cut a draft to size: number of steps, length of titles and brief; empty titles fall out."""
    steps = [_clip(step, MAX_STEP_CHARS) for step in draft.steps if step.strip()]
    return PlanDraft(steps[:MAX_STEPS], _clip(draft.brief, MAX_BRIEF_CHARS) if draft.brief else None)


def _clip(text: str, limit: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


# ---------------------------------------------------------------- default planner

_LISTED = re.compile(r"^\s*(?:\d{1,2}[.)]|[-*•])\s+(\S.*)$")
_CLAUSES = re.compile(r"(?<=[.!?])\s+|;\s+|\n+|,?\s+(?:and\s+)?then\s+|,\s+finally\s+|,\s+after that\s+")
_LINKS = re.compile(r"^(?:and|then|finally|first|next|after that|afterwards|also)[,\s]+", re.IGNORECASE)
_MIN_WORDS = 2


def split_prompt(request: PlanRequest) -> PlanDraft | None:
    """Plan by splitting the prompt into the things it lists or tells one after the other.

    Numbered or dashed lines are steps; otherwise sentences and the parts around "then" are. Questions and
    single words are no steps. It understands nothing of what is said.
    """
    lines = request.prompt.splitlines()
    listed = [match.group(1) for match in map(_LISTED.match, lines) if match]
    if len(listed) >= MIN_STEPS:
        intro = next((line.strip() for line in lines if line.strip() and not _LISTED.match(line)), "")
        return PlanDraft([_title(step) for step in listed], intro.rstrip(":") or None)
    steps = []
    for clause in _CLAUSES.split(request.prompt):
        title = _title(clause)
        if len(title.split()) >= _MIN_WORDS and not clause.rstrip().endswith("?"):
            steps.append(title)
    return PlanDraft(steps, request.prompt) if len(steps) >= MIN_STEPS else None


def _title(text: str) -> str:
    text = text.strip()
    while True:
        shorter = _LINKS.sub("", text)
        if shorter == text:
            break
        text = shorter
    text = text.rstrip(" .;,!")
    return text[:1].upper() + text[1:]


# ---------------------------------------------------------------------- checklist


class TaskPlan:
    """The checklist of one run. What changes returns the data of the `task_plan` events that tell of it.

    The events are a superset of both documented generations: `brief` and `steps` at the top, the same with id
    and revision under `plan`. One change of the list is one revision; it is told in as many events as steps
    moved, each with the whole list as it now stands, numbered by `transitionIndex` of `transitionCount`.
    """

    def __init__(self, plan_id: str, draft: PlanDraft, *, mode: str, source: str) -> None:
        self.plan_id = plan_id
        self.brief = draft.brief
        self.mode = mode
        self.source = source
        self.revision = 1
        self.titles = list(draft.steps)
        self.statuses = ["pending"] * len(self.titles)

    def to_wire(self) -> dict[str, Any]:
        """Build the plan as in `result.data.plan` and in `task_plan.data.plan`."""
        plan: dict[str, Any] = {
            "v": 2,
            "planId": self.plan_id,
            "revision": self.revision,
            "mode": self.mode,
            "source": self.source,
        }
        if self.brief:
            plan["brief"] = self.brief
        plan["steps"] = [
            {"id": _step_id(index), "title": title, "status": status}
            for index, (title, status) in enumerate(zip(self.titles, self.statuses))
        ]
        return plan

    def to_text(self) -> str:
        """Write the plan down for a reader (wire §8.5: the text of a plan-only result)."""
        listed = "\n".join(f"{number}. {title}" for number, title in enumerate(self.titles, 1))
        return f"{self.brief}\n\n{listed}" if self.brief else listed

    # ------------------------------------------------------------- changes

    def begin(self, *, execute: bool = True) -> list[dict[str, Any]]:
        """The plan stands. A plan that will be executed has its first step in progress at once."""
        if execute and self.statuses:
            self.statuses[0] = "in_progress"
        return self._events([("created", None)])

    def tools_done(self) -> list[dict[str, Any]]:
        """A round of tools brought something: on to the next step, unless this is the last."""
        current = self._current()
        following = self._next_pending()
        if current is None or following is None:
            return []
        return self._change({current: "done", following: "in_progress"})

    def reviewed(self, action: str, steps: Mapping[str, str]) -> list[dict[str, Any]]:
        """A supervisor looked at the run; `steps` are its own statuses by step id."""
        changes = {
            index: steps[_step_id(index)] for index in range(len(self.titles)) if steps.get(_step_id(index)) in STATUSES
        }
        if action == "finalize":
            pending = [index for index, status in enumerate(self.statuses) if status == "pending"]
            changes = {**dict.fromkeys(pending, "skipped"), **changes}
        after = [changes.get(index, status) for index, status in enumerate(self.statuses)]
        if action != "finalize" and "in_progress" not in after and "pending" in after:
            changes[after.index("pending")] = "in_progress"
        return self._change(changes)

    def finish(self) -> list[dict[str, Any]]:
        """The run succeeded: the answer stands for whatever was not ticked off."""
        unfinished = [i for i, status in enumerate(self.statuses) if status in ("pending", "in_progress")]
        return self._change(dict.fromkeys(unfinished, "done"))

    def _current(self) -> int | None:
        return self.statuses.index("in_progress") if "in_progress" in self.statuses else None

    def _next_pending(self) -> int | None:
        return self.statuses.index("pending") if "pending" in self.statuses else None

    def _change(self, changes: Mapping[int, str]) -> list[dict[str, Any]]:
        moved = {index: status for index, status in sorted(changes.items()) if self.statuses[index] != status}
        if not moved:
            return []
        for index, status in moved.items():
            self.statuses[index] = status
        self.revision += 1
        return self._events([(_KINDS[status], _step_id(index)) for index, status in moved.items()])

    def _events(self, transitions: Sequence[tuple[str, str | None]]) -> list[dict[str, Any]]:
        plan = self.to_wire()
        events = []
        for index, (kind, step_id) in enumerate(transitions):
            transition = {"kind": kind} if step_id is None else {"kind": kind, "stepId": step_id}
            events.append(
                {
                    **plan,
                    "transition": transition,
                    "transitionIndex": index,
                    "transitionCount": len(transitions),
                    "plan": plan,
                }
            )
        return events


_KINDS = {
    "pending": "step_reset",
    "in_progress": "step_started",
    "done": "step_done",
    "blocked": "step_blocked",
    "skipped": "step_skipped",
}


def _step_id(index: int) -> str:
    return f"step_{index + 1}"
