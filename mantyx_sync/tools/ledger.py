"""Which tool calls of a run were seen, are at work, and have their answer: each one runs once. Does no I/O."""

from __future__ import annotations

import threading
from enum import Enum
from typing import Generic, TypeVar

__all__ = ["CallState", "Ledger"]

CallT = TypeVar("CallT")


class CallState(Enum):
    """How far a call has come."""

    HELD = "held"
    """Read from a replay; it may have its answer already."""
    AT_WORK = "at work"
    CLAIMED = "claimed"
    """Somebody is delivering its one answer."""
    DONE = "done"
    """The server has an answer, or wants none."""
    UNDELIVERED = "undelivered"


class Ledger(Generic[CallT]):
    """The tool calls of one run, by tool use id. Safe to use from any thread.

    While `hold` is on, calls are only noted: a process that attaches to a run first reads what happened before,
    and must not run a call that was answered then. `settle` ends that and returns what is still open.
    """

    def __init__(self, *, hold: bool = False) -> None:
        self._lock = threading.Lock()
        self._states: dict[str, CallState] = {}
        self._held: dict[str, CallT] = {}
        self._holding = hold
        self._open = 0

    def admit(self, tool_use_id: str, call: CallT) -> bool:
        """Note a call that arrived; true if it is to be run now."""
        with self._lock:
            if tool_use_id in self._states:
                return False
            if self._holding:
                self._states[tool_use_id] = CallState.HELD
                self._held[tool_use_id] = call
                return False
            self._states[tool_use_id] = CallState.AT_WORK
            self._open += 1
            return True

    def answered(self, tool_use_id: str) -> None:
        """Note that the server reported an answer to the call, ours or another process's."""
        with self._lock:
            self._held.pop(tool_use_id, None)
            self._finish(tool_use_id, CallState.DONE)

    def settle(self) -> list[CallT]:
        """End holding; return the held calls that nobody answered, in the order they arrived. They are to be run."""
        with self._lock:
            self._holding = False
            calls = list(self._held.values())
            for tool_use_id in self._held:
                self._states[tool_use_id] = CallState.AT_WORK
            self._open += len(calls)
            self._held.clear()
            return calls

    def claim(self, tool_use_id: str) -> bool:
        """Take the right to deliver the call's answer; true for the first who asks, and only while it has none."""
        with self._lock:
            if self._states.get(tool_use_id) is not CallState.AT_WORK:
                return False
            self._states[tool_use_id] = CallState.CLAIMED
            return True

    def claim_all(self) -> list[str]:
        """Take the right to deliver the answer of every call at work or held; return their ids. Ends holding."""
        with self._lock:
            self._holding = False
            self._open += len(self._held)
            self._held.clear()
            found = [key for key, state in self._states.items() if state in (CallState.HELD, CallState.AT_WORK)]
            for key in found:
                self._states[key] = CallState.CLAIMED
            return found

    def close(self, tool_use_id: str, *, delivered: bool) -> None:
        """Note that delivering the answer has ended."""
        with self._lock:
            self._finish(tool_use_id, CallState.DONE if delivered else CallState.UNDELIVERED)

    def _finish(self, tool_use_id: str, state: CallState) -> None:
        before = self._states.get(tool_use_id)
        if before in (CallState.AT_WORK, CallState.CLAIMED):
            self._open -= 1
        if before is not CallState.DONE:
            self._states[tool_use_id] = state

    @property
    def is_busy(self) -> bool:
        """True while a call is at work or its answer is on its way."""
        return self._open > 0

    @property
    def is_holding(self) -> bool:
        """True while calls are only noted."""
        return self._holding

    @property
    def has_held(self) -> bool:
        """True while there are calls that wait for `settle`."""
        return bool(self._held)

    @property
    def undelivered(self) -> tuple[str, ...]:
        """The tool use ids whose answer could not be delivered."""
        with self._lock:
            return tuple(key for key, state in self._states.items() if state is CallState.UNDELIVERED)
