"""An agent task in the hands of its executor: instructions to read, tools to call one at a time, assets (loom §8)."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from dataclasses import field
from typing import TYPE_CHECKING, Any, Callable, Mapping, NamedTuple, Optional, Tuple, TypeVar

from ..checks import closest, json_copy
from ..errors import MantyxError
from ..mcp.errors import McpCancelled
from ..reprs import dataclass
from ..schema import SchemaChecker
from ..tools.cancellation import Cancellation
from .calls import LOST
from .claims import Claim
from .errors import (
    LoomBusy,
    LoomConflict,
    LoomInvalidRequest,
    LoomNotFound,
    LoomRequestError,
    LoomTaskClosed,
    LoomTaskLost,
    request_error,
)
from .following import Pace
from .runs import LoomRun
from .store import Journal, KeptCall
from .tasks import AgentTask, AssetContent, Skill, TaskTool

if TYPE_CHECKING:
    from .client import LoomClient

__all__ = ["LoomTask", "MadeCall"]

log = logging.getLogger(__name__)

MAX_TOOL_CALLS = 256
UNREACHABLE_S = 300.0
"""How long a service may be silent before its tasks are left to be taken up later."""
LOOK_TIMEOUT_S = 10.0

T = TypeVar("T")


@dataclass(frozen=True)
class MadeCall:
    """A tool call of a task that was answered. Its effect stands."""

    tool_id: str
    input: Any = field(repr=False)
    output: Any = field(repr=False)


class _Taken(Exception):
    """An earlier attempt to hand in the task's end was taken."""


class _Standing(NamedTuple):
    """Whether the service could be asked about a task, and why the task is lost, if it is."""

    is_known: bool
    lost: Optional[LoomTaskLost] = None


class LoomTask:
    """What an executor works on. Its methods block and may be called from any thread; tools run one at a time.

    Attributes:
        cancelled: Set when the task was lost or the worker stops: end soon.
        run: The run as it was last seen.
    """

    def __init__(self, client: LoomClient, claim: Claim, journal: Journal) -> None:
        self._client = client
        self._looker = client.within(LOOK_TIMEOUT_S)
        self._claim = claim
        self._journal = journal
        self._serial = threading.Lock()  # held while a tool runs: that is what makes calls serial
        self._past = [call for call in journal.calls if not call.is_spent]
        self._closed_by: str | None = None
        self._lost: LoomTaskLost | None = None
        self._output = _checker(claim.task)
        self._may_be_ended = journal.ending is not None
        self.cancelled = Cancellation()
        self.run: Optional[LoomRun] = None

    def __repr__(self) -> str:
        return f"LoomTask(run_id={self.run_id!r}, call_id={self.call_id!r}, agent_id={self.agent_id!r})"

    @property
    def raw(self) -> AgentTask:
        """The task as the service handed it out."""
        return self._claim.task

    @property
    def run_id(self) -> str:
        """The run that waits for it."""
        return self._claim.task.run_id

    @property
    def call_id(self) -> str:
        """The agent call."""
        return self._claim.task.call_id

    @property
    def agent_id(self) -> Optional[str]:
        """The agent it is for."""
        return self._claim.task.agent_id

    @property
    def instructions(self) -> str:
        """What is to be done."""
        return self._claim.task.instructions

    @property
    def skills(self) -> Tuple[Skill, ...]:
        """Knowledge that comes with it."""
        return self._claim.task.skills

    @property
    def tools(self) -> Tuple[TaskTool, ...]:
        """The tools that may be called."""
        return self._claim.task.tools

    @property
    def output_schema(self) -> Optional[Mapping[str, Any]]:
        """The JSON Schema (draft 7) of the result; `None` if anything will do."""
        return self._claim.task.output_schema

    @property
    def are_tools_closed(self) -> bool:
        """True once an end tool was called, or 256 calls were made: only the result is wanted then."""
        return self._closed_by is not None or len(self._journal.calls) >= MAX_TOOL_CALLS

    @property
    def made_calls(self) -> Tuple[MadeCall, ...]:
        """The tool calls that were answered so far, also those that an earlier process made before it died."""
        made = [call for call in self._journal.calls if call.is_answered]
        return tuple(MadeCall(call.tool_id, call.input, call.output) for call in made)

    @property
    def lost_reason(self) -> Optional[str]:
        """The `reason` of the `LoomTaskLost` that the task's methods raise; `None` while it is ours."""
        return None if self._lost is None else self._lost.reason

    def raise_if_lost(self) -> None:
        """Return at once while the task is ours.

        Raises:
            LoomTaskLost: It is not any more.
        """
        if self._lost is not None:
            raise LoomTaskLost(str(self._lost), reason=self._lost.reason, run_id=self.run_id, call_id=self.call_id)

    def check_result(self, result: Any) -> str | None:
        """Return why `result` does not fit the task's output schema; `None` if it does. Sends nothing."""
        return None if self._output is None else self._output.problem(result)

    def call_tool(self, tool_id: str, input: Any = None) -> Any:  # noqa: A002 - its name in the protocol
        """Call a declared tool and return its output. Blocks; a second thread waits for the first.

        A lost answer is asked for again with the same id, so that the effect is not repeated. A task that is taken up
        after a crash gets the kept output of a call that an earlier process made with the same input.

        Raises:
            LoomInvalidRequest: The input does not fit, or there is no such tool; a correction is a new call.
            LoomTaskClosed: No tool can be called any more; hand in the result.
            LoomTaskLost: The task, or its whole run, is over; or the worker stops.
        """
        given = json_copy(input, "input")
        with self._serial:
            self.raise_if_lost()
            tool = self._declared(tool_id)
            call = self._take_past(tool_id, given)
            if call is None:
                call = self._note_new(tool_id, given)
            if not call.is_answered:
                self._ask_for(call)
            if tool.is_end_tool:
                self._closed_by = tool_id
            return call.output

    def read_asset(self, asset_id: str) -> AssetContent:
        """Read a file that one of the skills declares; at most 1 MiB. Blocks.

        Raises:
            LoomInvalidRequest, LoomNotFound: It is too large, or not declared.
            LoomTaskLost: The task is over.
        """
        self.raise_if_lost()
        return self._until_answered(lambda: self._client.read_agent_asset(self._claim, asset_id))

    # ------------------------------------------------------------------ for the worker

    def take_up(self) -> None:
        """Find out what became of the tool call that an earlier process did not see the end of. Blocks.

        It is asked for again only if the service knows its id: then that runs nothing. One that never arrived is left
        to the executor, which may want it no more; if it does, it goes under its id.
        """
        try:
            left = [call for call in self._past if not call.is_answered]
            if left:
                view = self._until_answered(lambda: self._client.get_agent_call(self.run_id, self.call_id))
                known = {receipt.tool_call_id for receipt in view.receipts}
                for call in left:
                    if call.tool_call_id in known:
                        self._ask_for(call)
        except (LoomRequestError, LoomTaskClosed) as error:
            log.info("task %s: %s", self.call_id, error)
        self._past = [call for call in self._past if not call.is_spent]
        ends = {tool.id for tool in self.tools if tool.is_end_tool}
        self._closed_by = next((call.tool_id for call in self._past if call.is_answered and call.tool_id in ends), None)

    def decide(self, ending: str, value: Any) -> None:
        """Fix how the task ends, before the service is told: after a crash the same end is handed in."""
        self._journal.note_ending(ending, value)

    def hand_in(self) -> None:
        """Tell the service how the task ends, until it has taken that. Blocks.

        Raises:
            LoomInvalidRequest: It cannot take it, as what is too large.
            LoomTaskLost: The task is over; or the service cannot be reached.
        """
        client, value = self._client, self._journal.value
        tell: Callable[[Claim, Any], Any] = client.complete_agent_call
        if self._journal.ending == "fail":
            tell = client.fail_agent_call
        with contextlib.suppress(_Taken):
            self._until_answered(lambda: tell(self._claim, value), is_end=True)

    def lose(self, reason: str, why: str) -> None:
        """Note that the task is not ours any more; its executor hears of it."""
        if self._lost is None:
            self._lost = self._lost_as(reason, why)
        self.cancelled.set()

    def look(self) -> None:
        """See whether the run still waits for this call; loses the task if not. Blocks some seconds at most."""
        lost = self._standing().lost
        if lost is not None:
            self._lost = self._lost or lost
            self.cancelled.set()

    # ------------------------------------------------------------------ inside

    def _declared(self, tool_id: str) -> TaskTool:
        for tool in self.tools:
            if tool.id == tool_id:
                return tool
        near = closest(str(tool_id), [tool.id for tool in self.tools])
        hint = f"; did you mean {near!r}?" if near else ""
        # What the service would answer: that spares a request.
        raise request_error("call_agent_tool", "INVALID_REQUEST", f"the task declares no tool {str(tool_id)!r}{hint}")

    def _take_past(self, tool_id: str, given: Any) -> KeptCall | None:
        for i, call in enumerate(self._past):
            if call.tool_id == tool_id and _is_same(call.input, given):
                return self._past.pop(i)
        return None

    def _note_new(self, tool_id: str, given: Any) -> KeptCall:
        if self._closed_by is not None:
            raise LoomTaskClosed(
                f"task {self.call_id}: {self._closed_by} closed its tools; hand in the result", reason="end_tool"
            )
        if len(self._journal.calls) >= MAX_TOOL_CALLS:
            raise self._at_limit()
        return self._journal.note_call(tool_id, given)  # before it is sent: after a crash its id asks for its outcome

    def _ask_for(self, call: KeptCall) -> None:
        try:
            output = self._until_answered(
                lambda: self._client.call_agent_tool(
                    self._claim, call.tool_call_id, call.tool_id, call.input, cancelled=self.cancelled
                )
            )
        except LoomBusy as error:  # nothing runs: so it is the limit, and that is final
            self._journal.note_spent(call)
            raise self._at_limit() from error
        except LoomConflict as error:  # though the task is ours: so an end tool was called that was not marked as one
            self._journal.note_spent(call)
            self._closed_by = "an end tool"
            raise LoomTaskClosed(
                f"task {self.call_id}: its tools are closed ({error.server_message}); hand in the result",
                reason="end_tool",
            ) from error
        except LoomRequestError:
            self._journal.note_spent(call)
            raise
        self._journal.note_output(call, output.output)

    def _at_limit(self) -> LoomTaskClosed:
        return LoomTaskClosed(
            f"task {self.call_id}: {MAX_TOOL_CALLS} tool calls were made, which is the limit; hand in the result",
            reason="limit",
        )

    def _until_answered(self, send: Callable[[], T], *, is_end: bool = False) -> T:
        """Send the same call until the service answers it; return the answer.

        Args:
            is_end: It hands in the task's end: tried at least once, though the worker stops.

        Raises:
            LoomRequestError: The service refused, and the task is still ours.
            LoomTaskLost: It is not.
            _Taken: As the run shows, an earlier attempt to hand in the end was taken.
        """
        pace, heard_at = Pace(), time.monotonic()
        while True:
            cause: Exception
            try:
                return send()
            except LoomInvalidRequest:
                raise
            except McpCancelled:
                self.raise_if_lost()
                raise
            except LoomRequestError as error:
                standing = self._standing()
                if standing.lost is not None and is_end and self._may_be_ended and standing.lost.reason == "ended":
                    raise _Taken from error  # nobody but us can have ended it
                if standing.is_known and not self._is_passing(error, is_end):
                    self._lose_by(standing, error)
                    raise
                cause = error
            except LOST as error:
                standing = self._standing()  # the status is read before anything is sent again
                self._may_be_ended |= is_end and getattr(error, "sent", None) is not False
                if is_end and standing.lost is not None and standing.lost.reason in ("ended", "cancelled"):
                    standing = _Standing(True)  # perhaps by what was sent: sent again, it is answered as before
                cause = error
            self._lose_by(standing, cause)
            if self.cancelled.is_set():
                self.raise_if_lost()
            if standing.is_known:
                heard_at = time.monotonic()
            elif time.monotonic() - heard_at > UNREACHABLE_S:
                self.lose("unreachable", f"the service did not answer for {UNREACHABLE_S:g} s; left to be taken up")
                self.raise_if_lost()
            log.info("task %s: %s; sending the same again", self.call_id, type(cause).__name__)
            self.cancelled.wait(pace.next_delay())

    def _is_passing(self, error: LoomRequestError, is_end: bool) -> bool:
        """Tell whether the same call may be answered otherwise later."""
        if is_end or not isinstance(error, LoomBusy):
            return error.retryable or isinstance(error, LoomBusy)
        try:
            receipts = self._looker.get_agent_call(self.run_id, self.call_id).receipts
        except MantyxError:
            return True
        return len(receipts) < MAX_TOOL_CALLS or any(receipt.status == "running" for receipt in receipts)

    def _lose_by(self, standing: _Standing, cause: Exception) -> None:
        if standing.lost is not None:
            self._lost = self._lost or standing.lost
            self.cancelled.set()
            lost = self._lost
            raise LoomTaskLost(str(lost), reason=lost.reason, run_id=self.run_id, call_id=self.call_id) from cause

    def _standing(self) -> _Standing:
        """Ask whether the task is still ours."""
        try:
            if self._looker.status().instance_id != self._journal.key.instance_id:
                return _Standing(True, self._lost_as("restarted", "the service was restarted, which ends tasks"))
            run = self.run = self._looker.get_run(self.run_id)
        except LoomNotFound:
            return _Standing(True, self._lost_as("gone", "its run is gone"))
        except MantyxError as error:
            log.info("task %s: cannot look after it: %s", self.call_id, type(error).__name__)
            return _Standing(False)
        pending = run.pending_agent_call
        if pending is not None and pending.id == self.call_id and not run.is_terminal:
            return _Standing(True)
        if run.is_cancelled:
            return _Standing(True, self._lost_as("cancelled", "its run was cancelled"))
        code = f" with {run.last_error.code}" if run.last_error is not None else ""
        how = f"its run ended as {run.status}{code}" if run.is_terminal else "its run no longer waits for it"
        return _Standing(True, self._lost_as("ended", how))

    def _lost_as(self, reason: str, why: str) -> LoomTaskLost:
        text = f"task {self.call_id} (run {self.run_id}): {why}"
        return LoomTaskLost(text, reason=reason, run_id=self.run_id, call_id=self.call_id)


def _checker(task: AgentTask) -> SchemaChecker | None:
    if task.output_schema is None:
        return None
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", **task.output_schema}
    return SchemaChecker(schema, label=f"the result of task {task.call_id}", foreign=True)


def _is_same(one: Any, other: Any) -> bool:
    """Compare JSON values as the service does: 1 and 1.0 are one number, true is not 1 (loom §4)."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_is_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_is_same, one, other))
    return bool(one == other)
