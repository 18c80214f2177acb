"""The workflow engine of the stand-in: looms are scripts of steps, and the rules are those of the documents.

Standard library alone, and no import of the package under test: it runs in a process of its own, with the official MCP
package, and in the tests' process behind a caller that loses answers on demand. Every effect that a run or a tool has
is in `effects`, so that tests can count them.
"""

from __future__ import annotations

import copy
import itertools
import json
import secrets
import threading
import time
import uuid
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

MAX_RECEIPTS = 256
MAX_ASSET_BYTES = 1024 * 1024
STARTED_AT = "2026-11-29T10:00:00.000Z"


class Refused(Exception):
    """A business error."""

    def __init__(self, code: str, message: str, retryable: bool = False) -> None:
        super().__init__(message)
        self.payload = {"error": {"code": code, "message": message, "retryable": retryable}}


class BadArguments(Exception):
    """Found before the tool ran: answered as plain text."""


# ------------------------------------------------------------------------------------------- scripts


@dataclass(frozen=True)
class Code:
    """A step of the service's own: leaves an effect and, perhaps, an artifact."""

    name: str
    artifact: Any = None
    record: Optional[str] = None
    is_gated: bool = False
    """Goes on only when the test opens the gate, so that the run can be seen running."""


@dataclass(frozen=True)
class Ask:
    """Questions to a person."""

    name: str
    questions: Tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class Confirm:
    """A confirmation by a person; a refusal sends the run back to the step before."""

    name: str
    context: str


@dataclass(frozen=True)
class Tool:
    """A tool of a task. `run` gets the input; what it raises as `ValueError` is a refused input."""

    id: str
    description: str
    input_schema: Mapping[str, Any]
    run: Callable[[Any], Any]
    is_end_tool: bool = False
    is_marked: bool = True
    """Whether the task tells that it is an end tool."""
    seconds: float = 0.0
    is_held: bool = False
    """Goes on only when the test lets it go."""


@dataclass(frozen=True)
class Agent:
    """A task for an external agent."""

    name: str
    agent_id: str
    instructions: str
    output_schema: Mapping[str, Any]
    tools: Tuple[Tool, ...] = ()
    skills: Tuple[Mapping[str, Any], ...] = ()
    assets: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class Loom:
    """A workflow."""

    name: str
    steps: Tuple[Any, ...]
    is_recoverable: bool = False
    is_exclusive: bool = False
    is_broken: bool = False


# ------------------------------------------------------------------------------------------- state


@dataclass
class Receipt:
    """A tool call of a task."""

    tool_id: str
    input: Any
    done: threading.Event = field(default_factory=threading.Event)
    output: Any = None
    refusal: Optional[Refused] = None


@dataclass
class Call:
    """An agent call that a run waits for."""

    id: str
    step: Agent
    claim_id: Optional[str] = None
    owner_token: str = ""
    receipts: Dict[str, Receipt] = field(default_factory=dict)
    end: Optional[Tuple[str, Any]] = None
    is_closed: bool = False
    is_end_tool_used: bool = False


@dataclass
class Run:
    """A run."""

    id: str
    loom: Loom
    at: int = 0
    status: str = "running"
    revision: int = 1
    action: Optional[Dict[str, Any]] = None
    call: Optional[Call] = None
    closed_calls: Dict[str, Call] = field(default_factory=dict)
    error: Optional[Dict[str, Any]] = None
    is_historical: bool = False
    wants_pause: bool = False
    resumes_at: int = 0


_TEXT = {"type": "string", "minLength": 1}
_ANY: Dict[str, Any] = {}
_RUN = {"runId": _TEXT}
_PAIR = {"operationId": {"type": "string", "format": "uuid"}, "serviceInstanceId": _TEXT}
_CALL = {"runId": _TEXT, "callId": _TEXT}
_OWNED = {**_CALL, "ownerToken": _TEXT}
_FILTERS = {"loomName": _TEXT, "stageName": _TEXT}

# name: (what must be there, what may be there)
TOOLS: Dict[str, Tuple[Dict[str, Any], Dict[str, Any]]] = {
    "status": ({}, {}),
    "list_looms": ({}, {}),
    "run": ({"loomName": _TEXT, "input": _ANY, **_PAIR}, {}),
    "get_run": (_RUN, {}),
    "list_runs": ({}, {"loomName": _TEXT}),
    "answer_ask": ({**_RUN, "actionId": _TEXT, "answer": _ANY, **_PAIR}, {}),
    "interact": ({**_RUN, "actionId": _TEXT, **_PAIR}, {}),
    "cancel_run": ({**_RUN, **_PAIR}, {}),
    "pause_run": ({**_RUN, **_PAIR}, {}),
    "resume_run": (
        {**_RUN, **_PAIR, "expectedRevision": {"type": "integer"}},
        {"scope": _TEXT, "abandonMirror": {"type": "boolean"}},
    ),
    "get_operation": (_PAIR, {}),
    "find_run": (_PAIR, {}),
    "get_artifact": ({}, {"artifactId": _TEXT, **_FILTERS}),
    "list_artifacts": ({}, {**_FILTERS, "limit": {"type": "integer"}, "cursor": _TEXT}),
    "get_record": ({"recordId": _TEXT}, {}),
    "get_agent_call": (_CALL, {}),
    "claim_agent_call": ({**_CALL, "claimId": _TEXT}, {}),
    "call_agent_tool": ({**_OWNED, "toolCallId": _TEXT, "toolId": _TEXT, "input": _ANY}, {}),
    "read_agent_asset": ({**_OWNED, "assetId": _TEXT}, {}),
    "complete_agent_call": ({**_OWNED, "result": _ANY}, {}),
    "fail_agent_call": ({**_OWNED, "message": {"type": "string", "minLength": 1, "maxLength": 4096}}, {}),
    "mirror_list": ({}, {}),
    "mirror_inspect": ({"mirrorId": _TEXT}, {}),
    "mirror_restore": (
        {"mirrorId": _TEXT, "targetProject": _TEXT, "scope": _TEXT},
        {"dryRun": {"type": "boolean"}},
    ),
    "mirror_export": ({"traceId": _TEXT, "targetProject": _TEXT}, {}),
}
LEDGER = ("run", "answer_ask", "cancel_run", "pause_run", "resume_run")
_TYPES = {"string": str, "integer": int, "boolean": bool}


def input_schema(tool: str) -> Dict[str, Any]:
    """Return the closed input schema of a tool."""
    required, optional = TOOLS[tool]
    return {
        "type": "object",
        "properties": {**required, **optional},
        "required": list(required),
        "additionalProperties": False,
    }


class Engine:
    """One life of the service. `restarted` makes the next one."""

    def __init__(self, looms: Mapping[str, Loom]) -> None:
        self.instance_id = str(uuid.uuid4())
        self.looms = looms
        self.effects: List[Tuple[str, Any]] = []
        self.gate = threading.Event()
        self.hold = threading.Event()
        self.held: List[Any] = []
        """The inputs of tools that began and are, or were, held."""
        self.form: Optional[str] = None
        """What `interact` does: `fails` to show its form, or, over the wire alone, `asks` by it."""
        self.about: Dict[str, Any] = {}
        """What else the status tells."""
        self.mirrors: Dict[str, Dict[str, Any]] = {
            "6b1f6f0e-8d3a-4c7e-9a51-2f0c8f6d7e11": {"mirrorId": "6b1f6f0e-8d3a-4c7e-9a51-2f0c8f6d7e11", "files": 3}
        }
        self._lock = threading.RLock()
        self._runs: Dict[str, Run] = {}
        self._ledger: Dict[str, Tuple[str, str, Dict[str, Any]]] = {}
        self._origins: Dict[Tuple[str, str], str] = {}
        self._artifacts: Dict[Tuple[str, str], Dict[str, Any]] = {}
        self._records: Dict[str, Dict[str, Any]] = {}
        self._ids = itertools.count(1)
        self.indeterminate_next = False
        self.pending_for = 0.0

    def be_calm(self) -> None:
        """Let nothing go wrong any more."""
        self.indeterminate_next, self.pending_for, self.form = False, 0.0, None
        self.gate.clear()
        self.hold.clear()

    def restarted(self) -> Engine:
        """Return the service after a restart: a new instance, an empty ledger, tasks lost, history kept."""
        with self._lock:
            other = Engine(self.looms)
            other.effects, other.gate, other.about = self.effects, self.gate, self.about
            other.hold, other.held = self.hold, self.held
            other._origins, other._artifacts, other._records = self._origins, self._artifacts, self._records
            other._ids = self._ids
            for run in self._runs.values():
                kept = copy.copy(run)
                if run.status in ("completed", "failed"):
                    kept.is_historical = True
                elif not (run.action is not None and run.loom.is_recoverable):
                    _fail(kept, "RUN_INTERRUPTED", "the service was restarted")
                    kept.is_historical = True
                other._runs[run.id] = kept
                run.status = "failed"  # whoever still works on the old one finds it over
                run.call = None
            return other

    # ------------------------------------------------------------------ calls

    def call(self, tool: str, arguments: Mapping[str, Any]) -> Dict[str, Any]:
        """Answer a tool call; raises `Refused` or `BadArguments`."""
        self._check(tool, arguments)
        if tool in LEDGER:
            return self._operate(tool, dict(arguments))
        method = getattr(self, f"_{tool}")
        if tool == "call_agent_tool":  # takes the lock itself: tools may be slow
            return dict(method(**_snake(arguments)))
        with self._lock:
            return dict(method(**_snake(arguments)))

    def _check(self, tool: str, arguments: Mapping[str, Any]) -> None:
        if tool not in TOOLS:
            raise BadArguments(f"Unknown tool: {tool}")
        required, optional = TOOLS[tool]
        for key in required:
            if key not in arguments:
                raise BadArguments(f"Input validation error: '{key}' is a required property")
        for key, value in arguments.items():
            schema = required.get(key, optional.get(key))
            if schema is None:
                raise BadArguments(f"Input validation error: '{key}' was unexpected")
            kind = _TYPES.get(schema.get("type", ""))
            if kind is not None and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
                raise BadArguments(f"Input validation error: {value!r} is not of type '{schema['type']}'")
            if kind is str and not value.strip():
                raise BadArguments("Input validation error: '' should be non-empty")

    def _operate(self, tool: str, arguments: Dict[str, Any]) -> Dict[str, Any]:
        operation, instance = arguments.pop("operationId"), arguments.pop("serviceInstanceId")
        with self._lock:
            if instance != self.instance_id:
                raise Refused("CONFLICT", "the service instance is another one")
            content = json.dumps(_plain(arguments), sort_keys=True)
            known = self._ledger.get(operation)
            if known is not None:
                if known[:2] != (tool, content):
                    raise Refused("CONFLICT", "the operation has other content")
                return self._with_run(known[2])
            if self.indeterminate_next:
                self.indeterminate_next = False
                receipt = self._receipt(operation, "indeterminate")
                self._ledger[operation] = (tool, content, receipt)
                return {"receipt": receipt}
            if self.pending_for:
                seconds, self.pending_for = self.pending_for, 0.0
                receipt = self._receipt(operation, "pending")
                self._ledger[operation] = (tool, content, receipt)
                timer = threading.Timer(seconds, self._settle, (tool, arguments, receipt, instance))
                timer.daemon = True
                timer.start()
                return {"receipt": receipt}
            receipt = self._receipt(operation, "accepted")
            receipt["runId"] = getattr(self, f"_{tool}")(**_snake(arguments))
            self._ledger[operation] = (tool, content, receipt)
            if tool == "run":
                self._origins[operation, instance] = receipt["runId"]
            return self._with_run(receipt)

    def _settle(self, tool: str, arguments: Dict[str, Any], receipt: Dict[str, Any], instance: str) -> None:
        with self._lock:
            try:
                receipt["runId"] = getattr(self, f"_{tool}")(**_snake(arguments))
                receipt["status"] = "accepted"
                if tool == "run":
                    self._origins[receipt["operationId"], instance] = receipt["runId"]
            except Refused as refused:
                receipt.update(status="rejected", **refused.payload)

    def _receipt(self, operation: str, status: str) -> Dict[str, Any]:
        return {"operationId": operation, "serviceInstanceId": self.instance_id, "status": status}

    def _with_run(self, receipt: Dict[str, Any]) -> Dict[str, Any]:
        run = self._runs.get(receipt.get("runId", ""))
        return {"receipt": dict(receipt)} if run is None else {"receipt": dict(receipt), "run": self._view(run)}

    # ------------------------------------------------------------------ reads

    def _status(self) -> Dict[str, Any]:
        return {
            "service": {
                "version": 1,
                "instanceId": self.instance_id,
                "startedAt": STARTED_AT,
                "storage": "file",
                **self.about,
            }
        }

    def _list_looms(self) -> Dict[str, Any]:
        return {
            "looms": [
                {
                    "packageName": "demo",
                    "loomName": loom.name,
                    "isAvailable": True,
                    "readiness": {"status": "available"},
                }
                if not loom.is_broken
                else {
                    "packageName": "demo",
                    "loomName": loom.name,
                    "isAvailable": False,
                    "phase": "load",
                    "error": {"code": "KERNEL_UNAVAILABLE", "message": "does not load", "retryable": False},
                }
                for loom in self.looms.values()
            ]
        }

    def _get_run(self, run_id: str) -> Dict[str, Any]:
        return {"run": self._view(self._find(run_id))}

    def _list_runs(self, loom_name: Optional[str] = None) -> Dict[str, Any]:
        runs = [run for run in self._runs.values() if loom_name in (None, run.loom.name)]
        return {"runs": [self._view(run) for run in runs]}

    def _get_operation(self, operation_id: str, service_instance_id: str) -> Dict[str, Any]:
        if service_instance_id != self.instance_id:
            return {"status": "instance_changed"}
        known = self._ledger.get(operation_id)
        return {"status": "not_found"} if known is None else {"status": "found", **self._with_run(known[2])}

    def _find_run(self, operation_id: str, service_instance_id: str) -> Dict[str, Any]:
        run = self._runs.get(self._origins.get((operation_id, service_instance_id), ""))
        return {"run": None if run is None else self._view(run)}

    def _get_artifact(
        self, artifact_id: Optional[str] = None, loom_name: Optional[str] = None, stage_name: Optional[str] = None
    ) -> Dict[str, Any]:
        if (artifact_id is None) == (loom_name is None or stage_name is None):
            raise Refused("INVALID_REQUEST", "artifactId, or loomName and stageName")
        for place, artifact in self._artifacts.items():
            if artifact_id == artifact["id"] or place == (loom_name, stage_name):
                return {"artifact": artifact}
        return {"artifact": None}

    def _list_artifacts(
        self,
        loom_name: Optional[str] = None,
        stage_name: Optional[str] = None,
        limit: int = 50,
        cursor: Optional[str] = None,
    ) -> Dict[str, Any]:
        if not 1 <= limit <= 200:
            raise Refused("INVALID_REQUEST", "limit is 1 to 200")
        found = [
            {key: value for key, value in artifact.items() if key != "data"}
            for (loom, stage), artifact in reversed(list(self._artifacts.items()))
            if loom_name in (None, loom) and stage_name in (None, stage)
        ]
        filters = f"{loom_name}/{stage_name}"
        start = 0
        if cursor is not None:
            before, _, at = cursor.rpartition("@")
            if before != filters:
                raise Refused("INVALID_REQUEST", "the cursor belongs to other filters")
            start = int(at)
        page: Dict[str, Any] = {"data": found[start : start + limit]}
        if start + limit < len(found):
            page["nextCursor"] = f"{filters}@{start + limit}"
        return {"artifacts": page}

    def _get_record(self, record_id: str) -> Dict[str, Any]:
        return {"record": self._records.get(record_id)}

    # ------------------------------------------------------------------ operations

    def _run(self, loom_name: str, input: Any) -> str:
        loom = self.looms.get(loom_name)
        if loom is None:
            raise Refused("NOT_FOUND", f"no loom {loom_name}")
        if loom.is_broken:
            raise Refused("KERNEL_UNAVAILABLE", "the loom does not load")
        if loom.is_exclusive and any(
            run.loom is loom and run.status in ("running", "waiting") for run in self._runs.values()
        ):
            raise Refused("BUSY", "another run is active", retryable=True)
        run = Run(f"RUN-{next(self._ids)}", loom)
        self._runs[run.id] = run
        self.effects.append(("run", input))
        self._advance(run)
        return run.id

    def _answer_ask(self, run_id: str, action_id: str, answer: Any) -> str:
        run = self._find(run_id)
        if run.action is None or run.action["id"] != action_id:
            raise Refused("CONFLICT", "the action is not current")
        step = run.loom.steps[run.at]
        is_back = False
        if isinstance(step, Confirm):
            if not isinstance(answer, dict) or not isinstance(answer.get("isConfirmed"), bool):
                raise Refused("INVALID_REQUEST", "not a confirmation")
            is_back = not answer["isConfirmed"]
        else:
            _check_answers(step.questions, answer)
        self.effects.append(("answer", answer))
        run.action = None
        run.at += -1 if is_back else 1
        self._advance(run)
        return run.id

    def _interact(self, run_id: str, action_id: str, operation_id: str, service_instance_id: str) -> Dict[str, Any]:
        run = self._find(run_id)
        if run.action is None:
            return {"run": self._view(run), "interaction": "unavailable" if run.call else "none"}
        if run.action["id"] != action_id:
            raise Refused("CONFLICT", "the action is not current")
        if self.form == "fails":
            raise Refused("CLI_INTERACTION_UNAVAILABLE", "the form could not be shown")
        return {"run": self._view(run), "interaction": "unavailable"}

    def _cancel_run(self, run_id: str) -> str:
        run = self._find(run_id)
        if run.status not in ("completed", "failed"):
            self.effects.append(("cancel", run_id))
            _fail(run, "RUN_STOPPED", "the run was cancelled")
        return run.id

    def _pause_run(self, run_id: str) -> str:
        run = self._find(run_id)
        if run.status in ("completed", "failed"):
            raise Refused("CONFLICT", "the run is over")
        self.effects.append(("pause", run_id))
        run.wants_pause = True
        return run.id

    def _resume_run(
        self, run_id: str, expected_revision: int, scope: Optional[str] = None, abandon_mirror: Optional[bool] = None
    ) -> str:
        run = self._find(run_id)
        if run.status != "paused" or run.revision != expected_revision:
            raise Refused("CONFLICT", "not paused at this revision")
        self.effects.append(("resume", run_id))
        run.status = "running"
        self._advance(run)
        return run.id

    # ------------------------------------------------------------------ agent tasks

    def _get_agent_call(self, run_id: str, call_id: str) -> Dict[str, Any]:
        call = self._current_call(run_id, call_id)
        return {
            "agentCall": {
                "pending": _pending(call),
                "task": self._task(self._find(run_id), call),
                "receipts": [
                    {"toolCallId": key, "toolId": receipt.tool_id, "status": _receipt_status(receipt)}
                    for key, receipt in call.receipts.items()
                ],
            }
        }

    def _claim_agent_call(self, run_id: str, call_id: str, claim_id: str) -> Dict[str, Any]:
        call = self._current_call(run_id, call_id)
        if call.claim_id is None:
            call.claim_id, call.owner_token = claim_id, secrets.token_urlsafe(16)
            self._find(run_id).revision += 1
        elif call.claim_id != claim_id:
            raise Refused("CONFLICT", "another has claimed the call")
        return {"task": self._task(self._find(run_id), call), "ownerToken": call.owner_token}

    def _call_agent_tool(
        self,
        run_id: str,
        call_id: str,
        owner_token: str,
        tool_call_id: str,
        tool_id: str,
        input: Any,
    ) -> Dict[str, Any]:
        with self._lock:
            call = self._owned(run_id, call_id, owner_token)
            receipt = call.receipts.get(tool_call_id)
            is_new = receipt is None
            if receipt is None:
                receipt = self._new_receipt(call, tool_call_id, tool_id, input)
            elif receipt.tool_id != tool_id or not _is_same(receipt.input, input):
                raise Refused("CONFLICT", "the tool call has other content")
            tool = next(tool for tool in call.step.tools if tool.id == tool_id)
        if is_new:
            self._run_tool(run_id, call, tool, receipt)
        receipt.done.wait(60.0)
        if receipt.refusal is not None:
            raise receipt.refusal
        return {"output": receipt.output}

    def _new_receipt(self, call: Call, tool_call_id: str, tool_id: str, input: Any) -> Receipt:
        if all(tool.id != tool_id for tool in call.step.tools):
            raise Refused("INVALID_REQUEST", "the tool is not declared")
        if call.is_end_tool_used:
            raise Refused("CONFLICT", "an end tool closed the tools of this call")
        if any(not known.done.is_set() for known in call.receipts.values()):
            raise Refused("BUSY", "another tool runs", retryable=True)
        if len(call.receipts) >= MAX_RECEIPTS:
            raise Refused("BUSY", "the call keeps 256 receipts", retryable=True)
        receipt = call.receipts[tool_call_id] = Receipt(tool_id, copy.deepcopy(input))
        return receipt

    def _run_tool(self, run_id: str, call: Call, tool: Tool, receipt: Receipt) -> None:
        try:
            missing = [key for key in tool.input_schema.get("required", ()) if key not in (receipt.input or {})]
            if missing:
                raise ValueError(f"{missing[0]} is missing")
            if tool.seconds:
                deadline = time.monotonic() + tool.seconds
                while time.monotonic() < deadline and not self._is_over(run_id, call):
                    threading.Event().wait(0.02)
            if tool.is_held:
                with self._lock:
                    self.held.append(receipt.input)
                self.hold.wait(60.0)
            output = tool.run(receipt.input)
            with self._lock:
                self.effects.append((tool.id, receipt.input))
                receipt.output = output
                call.is_end_tool_used |= tool.is_end_tool
                if self._is_over(run_id, call):
                    receipt.refusal = Refused("CONFLICT", "the run is over")
        except ValueError as error:
            receipt.refusal = Refused("INVALID_REQUEST", str(error))
        except Exception:
            with self._lock:
                run = self._find(run_id)
                _fail(run, "TOOL_EXECUTION_FAILED", "a tool failed")
                receipt.refusal = Refused("CLI_INTERNAL_ERROR", "the tool failed")
        finally:
            receipt.done.set()

    def _is_over(self, run_id: str, call: Call) -> bool:
        return self._find(run_id).call is not call

    def _read_agent_asset(self, run_id: str, call_id: str, owner_token: str, asset_id: str) -> Dict[str, Any]:
        call = self._owned(run_id, call_id, owner_token)
        content = call.step.assets.get(asset_id)
        if content is None:
            raise Refused("NOT_FOUND", "the asset is not declared")
        if len(content) > MAX_ASSET_BYTES:
            raise Refused("INVALID_REQUEST", "the asset is larger than 1 MiB")
        try:
            return {"content": content.decode("utf-8"), "encoding": "utf8"}
        except UnicodeDecodeError:
            import base64

            return {"content": base64.b64encode(content).decode("ascii"), "encoding": "base64"}

    def _complete_agent_call(self, run_id: str, call_id: str, owner_token: str, result: Any) -> Dict[str, Any]:
        return self._end_call(run_id, call_id, owner_token, ("complete", result))

    def _fail_agent_call(self, run_id: str, call_id: str, owner_token: str, message: str) -> Dict[str, Any]:
        return self._end_call(run_id, call_id, owner_token, ("fail", message))

    def _end_call(self, run_id: str, call_id: str, owner_token: str, end: Tuple[str, Any]) -> Dict[str, Any]:
        run = self._find(run_id)
        answer = {"receipt": {"runId": run_id, "callId": call_id, "status": "accepted"}}
        closed = run.closed_calls.get(call_id)
        if closed is not None and closed.owner_token == owner_token and closed.end is not None:
            if closed.end[0] == end[0] and _is_same(closed.end[1], end[1]):
                return answer
            raise Refused("CONFLICT", "the call was ended otherwise")
        call = self._owned(run_id, call_id, owner_token)
        if any(not receipt.done.is_set() for receipt in call.receipts.values()):
            raise Refused("BUSY", "a tool runs", retryable=True)
        call.end, call.is_closed = end, True
        run.closed_calls[call_id] = call
        run.call = None
        self.effects.append((end[0], end[1]))
        if end[0] == "fail":
            _fail(run, "STEP_EXECUTION_FAILED", "the agent gave the task up")
        elif not _fits(end[1], call.step.output_schema):
            _fail(run, "AGENT_OUTPUT_INVALID", "the result does not fit")
        else:
            run.at += 1
            self._advance(run)
        return answer

    # ------------------------------------------------------------------ mirrors

    def _mirror_list(self) -> Dict[str, Any]:
        return {"mirrors": list(self.mirrors.values())}

    def _mirror_inspect(self, mirror_id: str) -> Dict[str, Any]:
        return {"mirror": self._mirror(mirror_id)}

    def _mirror_restore(self, mirror_id: str, target_project: str, scope: str, dry_run: bool = False) -> Dict[str, Any]:
        self._mirror(mirror_id)
        if not dry_run:
            self.effects.append(("restore", target_project))
        return {"restored": not dry_run, "scope": scope}

    def _mirror_export(self, trace_id: str, target_project: str) -> Dict[str, Any]:
        self.effects.append(("export", target_project))
        return {"traceId": trace_id, "exported": True}

    def _mirror(self, mirror_id: str) -> Dict[str, Any]:
        if mirror_id not in self.mirrors:
            raise Refused("NOT_FOUND", "no such mirror")
        return self.mirrors[mirror_id]

    # ------------------------------------------------------------------ runs

    def _find(self, run_id: str) -> Run:
        run = self._runs.get(run_id)
        if run is None:
            raise Refused("NOT_FOUND", "no such run")
        return run

    def _current_call(self, run_id: str, call_id: str) -> Call:
        run = self._find(run_id)
        if run.call is None or run.call.id != call_id:
            raise Refused("CONFLICT", "the call is not current")
        return run.call

    def _owned(self, run_id: str, call_id: str, owner_token: str) -> Call:
        call = self._current_call(run_id, call_id)
        if call.claim_id is None or call.owner_token != owner_token:
            raise Refused("CONFLICT", "the call is not yours")
        return call

    def _advance(self, run: Run) -> None:
        """Go on until the run waits, pauses or ends."""
        while True:
            run.revision += 1
            if run.wants_pause:
                run.wants_pause, run.status = False, "paused"
                return
            if run.at >= len(run.loom.steps):
                run.status = "completed"
                return
            step = run.loom.steps[run.at]
            if isinstance(step, Code):
                if step.is_gated and not self.gate.is_set():
                    run.status = "running"
                    waiter = threading.Thread(target=self._wait_at_gate, args=(run, step), daemon=True)
                    waiter.start()
                    return
                self._do_code(run, step)
                continue
            run.status = "waiting"
            if isinstance(step, Agent):
                run.call = Call(f"CALL-{next(self._ids)}", step)
            else:
                kind = "user_ask_confirmation" if isinstance(step, Confirm) else "user_ask_questions"
                request: Any = {"context": step.context} if isinstance(step, Confirm) else list(step.questions)
                run.action = {"id": f"ASK-{next(self._ids)}", "kind": kind, "request": request, "createdAt": STARTED_AT}
            return

    def _wait_at_gate(self, run: Run, step: Code) -> None:
        self.gate.wait(30.0)
        with self._lock:
            if run.status == "running" and run.loom.steps[run.at] is step:
                self._do_code(run, step)
                self._advance(run)

    def _do_code(self, run: Run, step: Code) -> None:
        self.effects.append(("code", step.name))
        if step.artifact is not None:
            place = (run.loom.name, step.name)
            revision = self._artifacts.get(place, {"revision": 0})["revision"] + 1
            self._artifacts.pop(place, None)
            self._artifacts[place] = {
                "id": f"ART-{run.loom.name}-{step.name}",
                "loomName": run.loom.name,
                "stageName": step.name,
                "revision": revision,
                "createdAt": STARTED_AT,
                "updatedAt": STARTED_AT,
                "data": step.artifact,
            }
        if step.record is not None:
            self._records[step.record] = {"id": step.record, "loomName": run.loom.name, "data": {"by": run.id}}
        run.at += 1

    def _view(self, run: Run) -> Dict[str, Any]:
        at = min(run.at, len(run.loom.steps) - 1)
        view: Dict[str, Any] = {
            "runId": run.id,
            "loomName": run.loom.name,
            "execution": {"source": "agent_ide", "agentExecutor": "mcp_client"},
            "cursor": {"stageName": "main", "stepName": run.loom.steps[at].name},
            "status": run.status,
            "revision": run.revision,
            "createdAt": STARTED_AT,
            "updatedAt": STARTED_AT,
        }
        if run.action is not None:
            view["pendingAction"] = {**run.action, "loomName": run.loom.name, "cursor": view["cursor"]}
        if run.call is not None:
            view["pendingAgentCall"] = _pending(run.call)
        if run.error is not None:
            view["lastError"] = run.error
        if run.is_historical:
            view["historical"] = True
        return view

    def _task(self, run: Run, call: Call) -> Dict[str, Any]:
        step = call.step
        return {
            "runId": run.id,
            "callId": call.id,
            "agentId": step.agent_id,
            "cursor": {"stageName": "main", "stepName": step.name},
            "instructions": step.instructions,
            "skills": list(step.skills),
            "tools": [
                {
                    "id": tool.id,
                    "description": tool.description,
                    "inputSchema": tool.input_schema,
                    "outputSchema": {},
                    **({"endTool": True} if tool.is_end_tool and tool.is_marked else {}),
                }
                for tool in step.tools
            ],
            "outputSchema": step.output_schema,
        }


def _pending(call: Call) -> Dict[str, Any]:
    return {
        "id": call.id,
        "agentId": call.step.agent_id,
        "phase": "available" if call.claim_id is None else "claimed",
        "createdAt": STARTED_AT,
    }


def _receipt_status(receipt: Receipt) -> str:
    if not receipt.done.is_set():
        return "running"
    return "completed" if receipt.refusal is None else "failed"


def _fail(run: Run, code: str, message: str) -> None:
    run.status, run.action, run.call = "failed", None, None
    run.revision += 1
    run.error = {"code": code, "message": message, "retryable": False}


def _check_answers(questions: Tuple[Mapping[str, Any], ...], answer: Any) -> None:
    if not isinstance(answer, list) or sorted(str(item.get("questionId")) for item in answer) != sorted(
        question["id"] for question in questions
    ):
        raise Refused("INVALID_REQUEST", "one answer for each question")
    by_id = {question["id"]: question for question in questions}
    for item in answer:
        if item.get("isSkipped") is True:
            if "answer" in item or not by_id[item["questionId"]]["isSkippable"]:
                raise Refused("INVALID_REQUEST", "cannot be skipped")
        elif not isinstance(item.get("answer"), str) or not item["answer"].strip():
            raise Refused("INVALID_REQUEST", "an answer is a text")


def _fits(value: Any, schema: Mapping[str, Any]) -> bool:
    """Check what the scripts here use of JSON Schema: an object's required keys and enums."""
    if schema.get("type") == "object" and not isinstance(value, dict):
        return False
    properties = schema.get("properties", {})
    return all(key in value for key in schema.get("required", ())) and all(
        value[key] in rule["enum"] for key, rule in properties.items() if key in value and "enum" in rule
    )


def _is_same(one: Any, other: Any) -> bool:
    """Compare JSON values: 1 and 1.0 are one number, true is not 1."""
    return json.dumps(_plain(one), sort_keys=True) == json.dumps(_plain(other), sort_keys=True)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _snake(arguments: Mapping[str, Any]) -> Dict[str, Any]:
    return {
        "".join("_" + char.lower() if char.isupper() else char for char in key): value
        for key, value in arguments.items()
    }
