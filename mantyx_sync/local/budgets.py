"""Tool budgets (wire §8.2): how often each tool may be called in one run. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping

__all__ = ["DEFAULT_BUDGETS", "BudgetExceeded", "ToolBudgets"]

DEFAULT_BUDGETS: Mapping[str, int] = {
    "recall": 4,
    "traverse": 3,
    "hive_consult_ontology": 4,
    "hive_search_deals": 5,
    "hive_search_meetings": 5,
    "hive_search_companies": 5,
    "hive_search_people": 5,
    "hive_search_tickets": 5,
    "hive_search_conversations": 5,
    "hive_search_accounts": 5,
    "hive_search_releases": 5,
    "hive_search_issues": 5,
}
"""What applies where a spec says nothing (wire §8.2)."""


@dataclass(frozen=True)
class BudgetExceeded:
    """A call that must not run. `call_index` counts the attempts of this tool from 1."""

    tool: str
    max_calls: int
    call_index: int

    @property
    def message(self) -> str:
        """The text for the model."""
        if self.max_calls == 0:
            return f"Budget exceeded: {self.tool} is switched off for this run. Pivot to another way or finalize."
        return (
            f"Budget exceeded: {self.tool} may be called {self.max_calls} times in this run, and this was call "
            f"{self.call_index}. Pivot to another way or finalize with what you have."
        )

    def to_event(self) -> dict[str, Any]:
        """Build the data of `tool_budget_exceeded` (wire §4.6)."""
        return {"tool": self.tool, "maxCalls": self.max_calls, "callIndex": self.call_index}


class ToolBudgets:
    """Counts the attempts of each tool over a whole run; no tool shares its budget with another."""

    def __init__(self, caps: Mapping[str, int] = DEFAULT_BUDGETS) -> None:
        self.caps = caps
        self._attempts: dict[str, int] = {}

    @classmethod
    def from_spec(cls, value: Mapping[str, Any] | None) -> ToolBudgets:
        """Read `toolBudgets`: None has the defaults, `{}` has no caps, entries win over the defaults."""
        if value is None:
            return cls()
        if not value:
            return cls({})
        return cls({**DEFAULT_BUDGETS, **{name: budget["maxCalls"] for name, budget in value.items()}})

    def attempt(self, name: str) -> BudgetExceeded | None:
        """Count one attempt; None lets the call run."""
        cap = self.caps.get(name)
        if cap is None:
            return None
        index = self._attempts[name] = self._attempts.get(name, 0) + 1
        return BudgetExceeded(name, cap, index) if index > cap else None
