"""A run of an eval: lets an agent answer the cases of a data set, one after the other, and scores what it said.

Each case is a real agent run; one whose tool calls need the client says so on the eval's stream, and the client
answers to the agent run (http §3). The notes name the first and the last event; those between are decided
here: `snapshot`, `run_started`, `case_started`, `local_tool_call`, `case_completed`.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from typing import Any, Callable, Iterable, Mapping, Optional

from mantyx_sync.local.eval_data import EvalCase, EvalDataset, Mocks
from mantyx_sync.local.scoring import score_case
from mantyx_sync.local.store import EventLog, Run, encode_json, new_id, timestamp, without_secrets
from mantyx_sync.local.workspace import Workspace

__all__ = ["EvalRun"]

_log = logging.getLogger(__name__)

_STATUS_OF_TERMINAL = {"run_completed": "succeeded", "run_error": "failed", "run_cancelled": "cancelled"}


class EvalRun(EventLog):
    """One eval: its state, its results so far and the log its stream is fed from.

    Safe to use from several threads. One worker thread plays it; `changed` guards what others look at.
    """

    def __init__(
        self,
        body: Mapping[str, Any],
        dataset: EvalDataset,
        spec: Mapping[str, Any],
        workspace: Workspace,
        on_event: Callable[[EventLog], None],
    ) -> None:
        super().__init__(new_id("eval"), on_event)
        self.dataset = dataset
        self.agent_id: Optional[str] = body.get("agentId")
        self.inline_agent: Optional[Mapping[str, Any]] = body.get("agent")
        self.overrides: Mapping[str, Any] = body.get("overrides") or {}
        self.spec = spec
        self.results: list[dict[str, Any]] = []
        self.error: Optional[str] = None
        self.created = self.updated = time.time()
        self.started: Optional[float] = None
        self.finished: Optional[float] = None
        self.cancelled = threading.Event()
        self.abandoned = threading.Event()
        self._workspace = workspace
        self._current: Optional[Run] = None
        self._emit("snapshot", self._progress())

    # ------------------------------------------------------------------ log

    def _progress(self) -> dict[str, Any]:
        return {
            "runId": self.id,
            "status": self.status,
            "totalCases": len(self.dataset.cases),
            "completedCases": len(self.results),
            "passedCases": sum(result["passed"] for result in self.results),
        }

    def _emit(self, event_type: str, data: Mapping[str, Any]) -> None:
        with self.changed:
            self._append(event_type, data)
        self._announce()

    def _append(self, event_type: str, data: Mapping[str, Any]) -> None:
        if self.is_terminal:
            return
        payload = encode_json({"type": event_type, **data})
        seq = len(self.frames) + 1
        self.frames.append(b"id: %d\nevent: %b\ndata: %b\n\n" % (seq, event_type.encode(), payload))
        self.updated = time.time()

    def _finish(self, event_type: str, **data: Any) -> None:
        with self.changed:
            if self.is_terminal:
                return
            status = _STATUS_OF_TERMINAL[event_type]
            self.error = data.get("error")
            self.finished = time.time()
            self._append(event_type, {**self._progress(), "status": status, "score": self.score, **data})
            self.status = status
            self.changed.notify_all()
        self._announce()

    # ---------------------------------------------------------------- control

    def cancel(self) -> None:
        """Stop after what is going on now, which is cancelled too. Repeating it changes nothing."""
        with self.changed:
            self.cancelled.set()
            run = self._current
        if run is not None:
            run.cancel()
        if self.started is None:
            self._finish("run_cancelled")

    def abandon(self) -> None:
        """End all waiting at once, because the server stops."""
        with self.changed:
            self.abandoned.set()
            run = self._current
        if run is not None:
            run.abandon()
        if self.started is None:
            self._finish("run_error", error="The server stopped.")

    # ------------------------------------------------------------------- play

    def play(self) -> None:
        """Let the agent answer every case, and score it. Blocks until the eval has ended; never raises."""
        try:
            self._play()
        except Exception as error:
            _log.exception("eval %s failed", self.id)
            self._finish("run_error", error=f"{type(error).__name__}: {error}")

    def _play(self) -> None:
        with self.changed:
            if self.is_terminal:
                return
            self.started = time.time()
            self.status = "running"
        self._emit("run_started", self._progress())
        for index, case in enumerate(self.dataset.cases):
            if not self._play_case(case, index):
                break
        if self.abandoned.is_set():
            self._finish("run_error", error="The server stopped.")
        elif self.cancelled.is_set() and len(self.results) < len(self.dataset.cases):
            self._finish("run_cancelled")
        else:
            self._finish("run_completed")

    def _play_case(self, case: EvalCase, index: int) -> bool:
        """Play one case; False if the eval is to end with it."""
        run = self._workspace.make_run({**self.spec, **case.turn()}, on_event=self._follow(case))
        mocks = {**(self.dataset.tool_mocks or {}), **(case.tool_mocks or {})}
        for name in self.overrides.get("disabledMocks") or ():
            mocks.pop(name, None)
        run.mock = Mocks(mocks)
        if self.overrides.get("llmProviderId") and self._workspace.settings.models is None:
            run.model = {**run.model, "provider": self.overrides["llmProviderId"]}
        with self.changed:
            if self.cancelled.is_set() or self.abandoned.is_set():
                return False
            self._current = run
        self._workspace.store.add(run)
        place = {"caseId": case.id, "caseName": case.name, "index": index, "agentRunId": run.id}
        self._emit("case_started", place)
        self._workspace.play(run)
        # An agent run that was cancelled alone is a case without an answer, and the eval goes on.
        if run.abandoned.is_set() or (run.status == "cancelled" and self.cancelled.is_set()):
            return False
        self._record(case, run, place)
        return True

    def _record(self, case: EvalCase, run: Run, place: Mapping[str, Any]) -> None:
        calls = _calls_of(run)
        scores: list[dict[str, Any]] = []
        score, error = 0.0, None
        if run.status == "succeeded":
            scores, score = score_case(case.scorers, run.final_text or "", calls)
        else:
            error = run.error or f"the agent run ended as {run.status}"
        result = {
            "id": new_id("evr"),
            "caseId": case.id,
            "case": case.to_wire(),
            "agentRunId": run.id,
            "finalText": run.final_text,
            "toolCalls": calls,
            "scores": scores,
            "passed": error is None and all(entry["passed"] for entry in scores),
            "score": score,
            "tokens": run.tokens,
            "latencyMs": int(((run.completed or run.created) - run.created) * 1000),
            "error": error,
            "createdAt": timestamp(time.time()),
        }
        with self.changed:
            self._current = None
            self.results.append(result)
            shown = {name: result[name] for name in ("passed", "score", "error", "finalText")}
            self._append("case_completed", {**self._progress(), **place, "resultId": result["id"], **shown})
        self._announce()

    def _follow(self, case: EvalCase) -> Callable[[EventLog], None]:
        """Return what watches the log of a case's run and passes its local tool calls on to the eval's stream."""

        lock = threading.Lock()
        followed = 0

        def follow(log: EventLog) -> None:
            nonlocal followed
            self._workspace.on_event(log)
            with lock:  # events come from the engine's thread and from the one that takes results
                fresh = log.frames[followed:]
                followed += len(fresh)
                for frame in fresh:
                    head, _, data = frame.partition(b"\ndata: ")
                    if head.endswith(b"local_tool_call"):
                        call = json.loads(data)["data"]
                        self._emit("local_tool_call", {**call, "agentRunId": log.id, "caseId": case.id})

        return follow

    # ------------------------------------------------------------------- views

    @property
    def score(self) -> float | None:
        """The mean score of the cases that are done."""
        return sum(result["score"] for result in self.results) / len(self.results) if self.results else None

    def to_summary(self) -> dict[str, Any]:
        """Build the eval's entry in a listing."""
        with self.changed:
            return {
                "id": self.id,
                "datasetId": self.dataset.id,
                "datasetName": self.dataset.name,
                "agentId": self.agent_id,
                "inlineAgent": self.inline_agent is not None,
                **{name: value for name, value in self._progress().items() if name != "runId"},
                "score": self.score,
                "tokenUsage": _sum_tokens(result["tokens"] for result in self.results),
                "error": self.error,
                "agentOverrides": dict(self.overrides) or None,
                "startedAt": timestamp(self.started) if self.started is not None else None,
                "finishedAt": timestamp(self.finished) if self.finished is not None else None,
                "createdAt": timestamp(self.created),
            }

    def to_side(self) -> dict[str, Any]:
        """Build one side of a comparison."""
        return {**self.to_summary(), "agentSpecSnapshot": without_secrets(self.spec)}

    def to_detail(self) -> dict[str, Any]:
        """Build the body of `GET /eval-runs/{id}`."""
        summary = self.to_side()
        with self.changed:
            return {
                **summary,
                "inlineAgentSpec": without_secrets(self.inline_agent) if self.inline_agent is not None else None,
                "updatedAt": timestamp(self.updated),
                "results": self.results[:],
            }


def _calls_of(run: Run) -> list[dict[str, Any]]:
    """Return the tool calls of a run with what came back for them."""
    results = {message["toolUseId"]: message for message in run.conversation if message["role"] == "tool"}
    calls = []
    for message in run.conversation:
        for call in message.get("toolCalls") or ():
            result = results.get(call["id"], {})
            calls.append(
                {
                    "toolUseId": call["id"],
                    "name": call["name"],
                    "input": call["input"],
                    "output": result.get("content"),
                    "isError": bool(result.get("isError")),
                }
            )
    return calls


def _sum_tokens(usages: Iterable[Optional[Mapping[str, int]]]) -> dict[str, int] | None:
    total: dict[str, int] = {}
    for usage in usages:
        for name, count in (usage or {}).items():
            total[name] = total.get(name, 0) + count
    return total or None
