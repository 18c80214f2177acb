"""Turn outcomes into ratios, goals and verdicts. No I/O: text out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from tests.benchmarks.runner import Outcome
from tests.benchmarks.scenarios import Goal

__all__ = ["Line", "Section", "lines", "medians_table", "ratios_table", "to_json"]

RIVALS = ("peer", "naive", "floor")


@dataclass(frozen=True)
class Section:
    """A scenario with what came of it."""

    name: str
    title: str
    goals: Tuple[Goal, ...]
    outcomes: Mapping[str, Outcome]

    @property
    def measures(self) -> List[str]:
        found: Dict[str, None] = {}
        for outcome in self.outcomes.values():
            found.update(dict.fromkeys(outcome.samples))
        return list(found)


@dataclass(frozen=True)
class Line:
    """One measure of one scenario: ours over each rival, and the verdict where there is a goal."""

    title: str
    measure: str
    ratios: Mapping[str, str]
    ours: str
    goal: str
    verdict: str


def lines(section: Section) -> List[Line]:
    goals = {goal.measure: goal for goal in section.goals}
    ours = section.outcomes.get("ours", Outcome())
    found = []
    for measure in section.measures or list(goals):
        goal = goals.get(measure)
        mine = ours.median(measure)
        ratios = {name: _ratio_text(mine, measure, section.outcomes.get(name)) for name in RIVALS}
        bare = goal is not None and not goal.against
        found.append(
            Line(
                title=section.title,
                measure=measure,
                ratios=ratios,
                ours=f"{mine:.3g} {goal.unit}".strip() if bare and goal is not None and mine is not None else "",
                goal=_goal_text(goal) if goal is not None else "",
                verdict=_verdict(goal, section.outcomes) if goal is not None else "",
            )
        )
    return found


def _bound_of(outcome: Optional[Outcome], measure: str) -> Tuple[Optional[float], bool]:
    """A rival's median, and whether it is only what the cap lets us say: it would have been larger."""
    if outcome is None:
        return None, False
    if outcome.capped_s is not None:
        return (outcome.capped_s, True) if measure == "wall s" else (None, True)
    return outcome.median(measure), False


def _ratio_text(mine: Optional[float], measure: str, rival: Optional[Outcome]) -> str:
    theirs, capped = _bound_of(rival, measure)
    if rival is not None and rival.failure is not None:
        return "failed"
    if capped and (theirs is None or mine is None):
        return "> cap"
    if mine is None or theirs is None or theirs <= 0:
        return "-"
    return f"{'< ' if capped else ''}{mine / theirs:.3g}"


def _goal_text(goal: Goal) -> str:
    sign = ">=" if goal.at_least else "<="
    unit = f" x {goal.against}" if goal.against else f" {goal.unit}".rstrip()
    stretch = f" (stretch {goal.stretch:g})" if goal.stretch is not None else ""
    return f"{sign} {goal.bound:g}{unit}{stretch}"


def _verdict(goal: Goal, outcomes: Mapping[str, Outcome]) -> str:
    ours = outcomes.get("ours", Outcome())
    if ours.failure is not None:
        return f"NOT MET: {ours.failure[:60]}"
    if ours.capped_s is not None:
        return f"NOT MET: > {ours.capped_s:g} s"
    mine = ours.median(goal.measure)
    if mine is None:
        return "not measured"
    value, capped = mine, False
    if goal.against:
        theirs, capped = _bound_of(outcomes.get(goal.against), goal.measure)
        if theirs is None or theirs <= 0:
            return f"{goal.against} not measured"
        value = mine / theirs
    if goal.at_least:
        met = value >= goal.bound
        stretched = goal.stretch is not None and value >= goal.stretch
    else:
        met = value <= goal.bound
        stretched = goal.stretch is not None and value <= goal.stretch
    if capped and not met:
        return "cap too low to tell"
    return ("met, and the stretch" if stretched else "met") if met else "NOT MET"


def ratios_table(sections: Sequence[Section]) -> str:
    rows = [("scenario", "measure", *(f"/ {name}" for name in RIVALS), "ours", "goal", "verdict")]
    for section in sections:
        for number, line in enumerate(lines(section)):
            title = line.title if number == 0 else ""
            ratios = (line.ratios[name] for name in RIVALS)
            rows.append((title, line.measure, *ratios, line.ours, line.goal, line.verdict))
    return _table(rows)


def medians_table(sections: Sequence[Section]) -> str:
    names = ("ours", *RIVALS)
    rows: List[Tuple[str, ...]] = [("scenario", "measure", *names)]
    for section in sections:
        for number, measure in enumerate(section.measures):
            cells = [_median_text(section.outcomes.get(name), measure) for name in names]
            rows.append((section.title if number == 0 else "", measure, *cells))
    return _table(rows)


def _median_text(outcome: Optional[Outcome], measure: str) -> str:
    if outcome is None:
        return "-"
    if outcome.failure is not None:
        return "failed"
    if outcome.capped_s is not None:
        return f"> {outcome.capped_s:g} s"
    value = outcome.median(measure)
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _table(rows: Sequence[Tuple[str, ...]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    rule = "  ".join("-" * width for width in widths)
    text = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    return "\n".join([text[0], rule, *text[1:]])


def to_json(sections: Sequence[Section], versions: Mapping[str, Any]) -> Dict[str, Any]:
    """Everything, for a file: samples, medians, ratios and verdicts."""
    return {
        "versions": dict(versions),
        "scenarios": [
            {
                "name": section.name,
                "title": section.title,
                "contenders": {
                    name: {
                        "samples": outcome.samples,
                        "medians": {measure: outcome.median(measure) for measure in outcome.samples},
                        "capped_s": outcome.capped_s,
                        "failure": outcome.failure,
                    }
                    for name, outcome in section.outcomes.items()
                },
                "lines": [
                    {
                        "measure": line.measure,
                        "ours_over": dict(line.ratios),
                        "goal": line.goal,
                        "verdict": line.verdict,
                    }
                    for line in lines(section)
                ],
            }
            for section in sections
        ],
    }
