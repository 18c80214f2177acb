"""What a person answers to a run that waits (loom §7.2). Does no I/O.

An answer is a person's: nothing here makes one up.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, Mapping, Optional, Union

from ..checks import closest, refusal, shown
from ..errors import MantyxConfigError
from ..reprs import dataclass
from ..wire import Fields
from .runs import LoomRun, PendingAction, Question

__all__ = ["SKIP", "Answer", "Confirmation", "Interaction", "Skip", "answer_to"]


class Skip:
    """Leaves out a question that may be skipped. `SKIP` is the one instance."""

    def __repr__(self) -> str:
        return "SKIP"


SKIP = Skip()


@dataclass(frozen=True)
class Confirmation:
    """The answer to a confirmation. `is_confirmed=False` asks for changes, which `feedback` describes."""

    is_confirmed: bool
    feedback: Optional[str] = None


@dataclass(frozen=True)
class Interaction:
    """What became of an action that the service was to present itself (loom §7.3).

    `status` is `answered`, `dismissed` (the run goes on waiting), `unavailable` (show `action` yourself) or `none`.
    """

    status: str
    run: Optional[LoomRun] = None
    action: Optional[PendingAction] = None
    raw: Mapping[str, Any] = field(repr=False, compare=False, hash=False, default_factory=dict)

    @classmethod
    def read(cls, fields: Fields) -> Interaction:
        """Build it from the fields of the answer."""
        run = fields.opt_fields("run")
        view = None if run is None else LoomRun.read(run)
        action = PendingAction.read(fields.opt_fields("action"))
        if action is None and view is not None:
            action = view.pending_action
        return cls(fields.opt_text("interaction") or "unavailable", view, action, fields.data)

    @classmethod
    def unavailable(cls, run: LoomRun) -> Interaction:
        """Return that it could not be presented."""
        return cls("unavailable", run, run.pending_action, {"run": run.raw})


Answer = Union[Confirmation, bool, Mapping[str, Union[str, Skip]], str]
"""A confirmation (or True, False); or for each question's id a text or `SKIP`; a text alone answers a lone question."""


def answer_to(action: PendingAction, answer: Answer) -> Any:
    """Return the value of `answer_ask` for what a person said.

    Raises:
        MantyxConfigError: It does not fit what was asked; nothing was sent.
    """
    if action.is_confirmation:
        return _confirmation(answer)
    if isinstance(answer, str) and len(action.questions) == 1:
        answer = {action.questions[0].id: answer}
    if not isinstance(answer, Mapping):
        raise refusal("answer", shown(answer), "be a mapping of question ids to texts or SKIP")
    known = {question.id for question in action.questions}
    for key in answer:
        if key not in known:
            near = closest(str(key), known)
            hint = f"; did you mean {near!r}?" if near else ""
            raise MantyxConfigError(f"answer: no question has the id {shown(key)}{hint}")
    return [_one(question, answer) for question in action.questions]


def _confirmation(answer: Answer) -> dict[str, Any]:
    if isinstance(answer, bool):
        answer = Confirmation(answer)
    if not isinstance(answer, Confirmation) or not isinstance(answer.is_confirmed, bool):
        raise refusal("answer", shown(answer), "be True, False or a Confirmation")
    if answer.feedback is None:
        return {"isConfirmed": answer.is_confirmed}
    if not isinstance(answer.feedback, str):
        raise refusal("answer.feedback", shown(answer.feedback), "be a text")
    return {"isConfirmed": answer.is_confirmed, "feedback": answer.feedback}


def _one(question: Question, answers: Mapping[str, Union[str, Skip]]) -> dict[str, Any]:
    where = f"answer[{question.id!r}]"
    if question.id not in answers:
        raise MantyxConfigError(
            f"{where}: is missing; every question is answered, or skipped with SKIP where it may be"
        )
    said = answers[question.id]
    if isinstance(said, Skip):
        if not question.is_skippable:
            raise MantyxConfigError(f"{where}: must be answered, it cannot be skipped")
        return {"questionId": question.id, "isSkipped": True}
    if not isinstance(said, str) or not said.strip():
        raise refusal(where, "a blank text" if isinstance(said, str) else shown(said), "be a text or SKIP")
    return {"questionId": question.id, "isSkipped": False, "answer": said}
