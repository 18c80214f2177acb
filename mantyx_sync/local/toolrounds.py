"""Make the tool calls of one turn: here, or by the client; and tell the model what came back (wire §§3 to 5)."""

from __future__ import annotations

from typing import Any, Callable, Mapping, Optional, Sequence

from mantyx_sync.local.arguments import check_arguments
from mantyx_sync.local.budgets import ToolBudgets
from mantyx_sync.local.conversation import Conversation
from mantyx_sync.local.model import ToolUse
from mantyx_sync.local.outcomes import Abandoned, RunEnded
from mantyx_sync.local.store import PendingCall, Run, ToolAnswer, encode_json
from mantyx_sync.local.toolset import BoundTool

__all__ = ["ToolRounds"]

TIMED_OUT = "Timed out waiting for local tool result"
# What a tool result event shows of a long result.
MAX_SHOWN_RESULT_CHARS = 2000
MAX_SUMMARY_CHARS = 200


class ToolRounds:
    """Makes the calls of a run, turn by turn.

    Args:
        run: Where calls go out and answers come in.
        conversation: Where the model reads the results.
        tools: The tools by name.
        budgets: How often each may be called.
        timeout: Seconds a call may wait for the client.
        fail_on_timeout: End the run on that time-out instead of telling the model.
        between: Called between batches; raises to end the run.
    """

    def __init__(
        self,
        run: Run,
        conversation: Conversation,
        tools: Mapping[str, BoundTool],
        budgets: ToolBudgets,
        *,
        timeout: float,
        fail_on_timeout: bool,
        between: Callable[[], None],
    ) -> None:
        self._run = run
        self._conversation = conversation
        self._tools = tools
        self._budgets = budgets
        self._timeout = timeout
        self._fail_on_timeout = fail_on_timeout
        self._between = between

    def make(self, calls: Sequence[ToolUse]) -> bool:
        """Make the calls of one turn: read-only neighbours go out together, the others one after the other.

        Blocks until each has its result or its time is over. True if one of them succeeded.
        """
        succeeded = False
        for batch in self._batches(calls):
            self._between()
            succeeded = self._make_batch(batch) or succeeded
        return succeeded

    def refuse(self, calls: Sequence[ToolUse], error: str, message: str) -> None:
        """Answer calls that are not made, with a made-up result for each."""
        for call in calls:
            answer = _made_up(error, message)
            self._show_result(call, answer)
            self._conversation.add_result(call, answer)

    def _batches(self, calls: Sequence[ToolUse]) -> list[list[ToolUse]]:
        batches: list[list[ToolUse]] = []
        together = False
        for call in calls:
            tool = self._tools.get(call.name)
            read_only = tool is not None and tool.read_only
            if batches and together and read_only:
                batches[-1].append(call)
            else:
                batches.append([call])
            together = read_only
        return batches

    def _make_batch(self, calls: Sequence[ToolUse]) -> bool:
        answers: dict[Optional[str], ToolAnswer] = {}
        waiting: list[PendingCall] = []
        for call in calls:
            tool = self._tools.get(call.name)
            answer = self._answer_here(call, tool)
            if answer is not None or tool is None:
                answers[call.id] = answer or _made_up("unknown_tool", f"There is no tool named {call.name!r}.")
                continue
            waiting.append(self._send_out(call, tool))
        if waiting:
            self._run.wait_for_answers(waiting, self._timeout)
            if self._run.abandoned.is_set():
                raise Abandoned
        for pending in waiting:
            if pending.answer is None and self._fail_on_timeout:
                message = f"{TIMED_OUT}: {pending.name}"
                raise RunEnded("result", {"subtype": "error_local_tool_timeout", "ok": False, "error": message})
            answers[pending.tool_use_id] = pending.answer or ToolAnswer(TIMED_OUT, is_error=True)
        for call in calls:
            self._conversation.add_result(call, answers[call.id])
        return any(not answer.is_error for answer in answers.values())

    def _send_out(self, call: ToolUse, tool: BoundTool) -> PendingCall:
        assert call.id is not None
        pending = self._run.open_call(call.id, call.name)
        self._run.emit(
            "local_tool_call",
            {"toolUseId": call.id, "name": call.name, "args": call.args, "kind": tool.kind, **tool.event_fields},
        )
        return pending

    def _answer_here(self, call: ToolUse, tool: BoundTool | None) -> ToolAnswer | None:
        """Answer a call that does not go to the client; None for one that does."""
        if tool is None:
            answer = _made_up("unknown_tool", f"There is no tool named {call.name!r}.")
            self._show_result(call, answer)
            return answer
        exceeded = self._budgets.attempt(call.name)
        if exceeded is not None:
            answer = _made_up("tool_budget_exceeded", exceeded.message)
            self._show_result(call, answer)
            self._run.emit("tool_budget_exceeded", exceeded.to_event())
            return answer
        issues = check_arguments(tool.declaration.parameters, call.args)
        if issues:
            message = f"The arguments of {call.name} do not match its schema. Correct them and call it again."
            answer = _made_up("tool_input_invalid", message, issues=issues)
            self._show_result(call, answer)
            return answer
        mocked = self._run.mocked(call.name, call.args)
        if mocked is not None:
            self._announce(call)
            self._show_result(call, mocked)
            return mocked
        if tool.answer is not None:
            with self._run.changed:
                self._run.tool_call_count += 1
            self._announce(call)
            answer = tool.answer(call.args)
            self._show_result(call, answer)
            if answer.files:
                files = [{name: entry[name] for name in entry if name != "data"} for entry in answer.files]
                self._run.emit("tool_files", {"name": call.name, "files": files})
            return answer
        return None

    def _announce(self, call: ToolUse) -> None:
        self._run.emit("tool_call", {"toolUseId": call.id, "name": call.name, "input": call.args})

    def _show_result(self, call: ToolUse, answer: ToolAnswer) -> None:
        """Emit the `tool_result` of a call that the client does not answer: in both documented shapes."""
        self._run.emit(
            "tool_result",
            {
                "toolUseId": call.id,
                "name": call.name,
                "ok": not answer.is_error,
                "result": answer.text[:MAX_SHOWN_RESULT_CHARS],
                "summary": answer.text[:MAX_SUMMARY_CHARS],
            },
        )


def _made_up(error: str, message: str, **more: Any) -> ToolAnswer:
    body = {"error": error, "message": message, **more}
    return ToolAnswer(encode_json(body).decode(), is_error=True)
