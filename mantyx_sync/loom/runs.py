"""A Loom service, its looms and their runs (loom §2): frozen dataclasses, each with the raw object beside it.

Ids are opaque text. Unknown fields survive in `raw`; an absent optional field is `None` and means nothing. Where older
services say `flowName`, `loom_name` holds it.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, Mapping, Optional, Tuple

from ..reprs import dataclass
from ..wire import Fields

__all__ = [
    "Cursor",
    "Execution",
    "LoomInfo",
    "LoomRun",
    "OperationReceipt",
    "Option",
    "PendingAction",
    "PendingAgentCall",
    "Question",
    "RunFailure",
    "Service",
]

Raw = Mapping[str, Any]


def loom_name(fields: Fields) -> Optional[str]:
    """Return the name of the loom that an object belongs to."""
    name = fields.opt_text("loomName")
    return name if name is not None else fields.opt_text("flowName")


def nested(fields: Fields, key: str) -> Fields:
    """Return the fields of an object that must be there."""
    found = fields.opt_fields(key)
    if found is None:
        raise fields.wrong(key, "an object")
    return found


@dataclass(frozen=True)
class Service:
    """The running service. `instance_id` is new after each restart, though port and token stay."""

    instance_id: str
    project_root: Optional[str] = None
    pid: Optional[int] = None
    url: Optional[str] = None
    started_at: Optional[str] = None
    storage: Optional[str] = None
    raw: Raw = field(repr=False, compare=False, hash=False, default_factory=dict)

    @classmethod
    def read(cls, fields: Fields) -> Service:
        """Build it from the fields of `service`."""
        return cls(
            instance_id=fields.text("instanceId"),
            project_root=fields.opt_text("projectRoot"),
            pid=fields.opt_int("pid"),
            url=fields.opt_text("url"),
            started_at=fields.opt_text("startedAt"),
            storage=fields.opt_text("storage"),
            raw=fields.data,
        )


@dataclass(frozen=True)
class RunFailure:
    """Why a run failed, or a loom is not there. `code` is an open list of words."""

    code: str
    message: str = ""
    retryable: bool = False
    raw: Raw = field(repr=False, compare=False, hash=False, default_factory=dict)

    @classmethod
    def read(cls, fields: Optional[Fields]) -> Optional[RunFailure]:
        """Build it from the fields of an error object."""
        if fields is None:
            return None
        return cls(
            code=fields.opt_text("code") or "",
            message=fields.opt_text("message") or "",
            retryable=fields.opt_bool("retryable") or False,
            raw=fields.data,
        )


@dataclass(frozen=True)
class LoomInfo:
    """A loom of the project. `is_ready` is `None` where the service does not say; it makes no remote check."""

    loom_name: Optional[str]
    package_name: Optional[str] = None
    is_available: bool = False
    phase: Optional[str] = None
    error: Optional[RunFailure] = None
    readiness: Optional[Mapping[str, Any]] = None
    raw: Raw = field(repr=False, compare=False, hash=False, default_factory=dict)

    @classmethod
    def read(cls, fields: Fields) -> LoomInfo:
        """Build it from the fields of one entry of `looms`."""
        return cls(
            loom_name=loom_name(fields),
            package_name=fields.opt_text("packageName"),
            is_available=bool(fields.opt_bool("isAvailable")),
            phase=fields.opt_text("phase"),
            error=RunFailure.read(fields.opt_fields("error")),
            readiness=fields.opt_object("readiness"),
            raw=fields.data,
        )

    @property
    def is_ready(self) -> Optional[bool]:
        """True if the service calls it available for this entry."""
        if not self.is_available:
            return False
        status = None if self.readiness is None else self.readiness.get("status")
        return None if status is None else status == "available"


@dataclass(frozen=True)
class Cursor:
    """Where a run is: for one that ended, the last place it reached."""

    stage_name: Optional[str] = None
    step_name: Optional[str] = None

    @classmethod
    def read(cls, fields: Optional[Fields]) -> Optional[Cursor]:
        """Build it from the fields of `cursor`."""
        return None if fields is None else cls(fields.opt_text("stageName"), fields.opt_text("stepName"))

    def __str__(self) -> str:
        return f"{self.stage_name or '?'}/{self.step_name or '?'}"


@dataclass(frozen=True)
class Execution:
    """Who runs a run's agents, fixed when it was created: `agent_executor` is `mcp_client` where workers do."""

    source: Optional[str] = None
    agent_executor: Optional[str] = None

    @classmethod
    def read(cls, fields: Optional[Fields]) -> Optional[Execution]:
        """Build it from the fields of `execution`."""
        return None if fields is None else cls(fields.opt_text("source"), fields.opt_text("agentExecutor"))


@dataclass(frozen=True)
class Option:
    """An answer that a question offers. What is sent back is its `label`."""

    id: str
    label: str
    description: Optional[str] = None

    @classmethod
    def read(cls, fields: Fields) -> Option:
        """Build it from the fields of one entry of `options`."""
        return cls(fields.text("id"), fields.text("label"), fields.opt_text("description"))


@dataclass(frozen=True)
class Question:
    """One question to a person. `options` is empty for free text; free text is allowed beside options too."""

    id: str
    question: str
    description: Optional[str] = None
    options: Tuple[Option, ...] = ()
    is_skippable: bool = False
    raw: Raw = field(repr=False, compare=False, hash=False, default_factory=dict)

    @classmethod
    def read(cls, fields: Fields) -> Question:
        """Build it from the fields of one entry of `request`."""
        return cls(
            id=fields.text("id"),
            question=fields.text("question"),
            description=fields.opt_text("description"),
            options=tuple(map(Option.read, fields.objects("options"))),
            is_skippable=fields.opt_bool("isSkippable") or False,
            raw=fields.data,
        )


@dataclass(frozen=True)
class PendingAction:
    """What a run waits for a person to say: `questions`, or a confirmation of `context`."""

    id: str
    kind: str
    questions: Tuple[Question, ...] = ()
    context: Optional[str] = None
    cursor: Optional[Cursor] = None
    created_at: Optional[str] = None
    raw: Raw = field(repr=False, compare=False, hash=False, default_factory=dict)

    @classmethod
    def read(cls, fields: Optional[Fields]) -> Optional[PendingAction]:
        """Build it from the fields of `pendingAction`."""
        if fields is None:
            return None
        request = fields.data.get("request")
        asked: Tuple[Question, ...] = ()
        context = None
        if isinstance(request, list):
            asked = tuple(map(Question.read, fields.objects("request")))
        elif isinstance(request, Mapping):
            context = Fields(request, f"{fields.where}: request").opt_text("context")
        return cls(
            id=fields.text("id"),
            kind=fields.opt_text("kind") or "",
            questions=asked,
            context=context,
            cursor=Cursor.read(fields.opt_fields("cursor")),
            created_at=fields.opt_text("createdAt"),
            raw=fields.data,
        )

    @property
    def is_confirmation(self) -> bool:
        """True for a confirmation, false for questions."""
        return self.kind == "user_ask_confirmation" or (not self.questions and self.context is not None)


@dataclass(frozen=True)
class PendingAgentCall:
    """An agent task that a run waits for. `id` is the call id, `phase` is `available` or `claimed`."""

    id: str
    agent_id: Optional[str] = None
    phase: Optional[str] = None
    created_at: Optional[str] = None
    raw: Raw = field(repr=False, compare=False, hash=False, default_factory=dict)

    @classmethod
    def read(cls, fields: Optional[Fields]) -> Optional[PendingAgentCall]:
        """Build it from the fields of `pendingAgentCall`."""
        if fields is None:
            return None
        return cls(
            id=fields.text("id"),
            agent_id=fields.opt_text("agentId"),
            phase=fields.opt_text("phase"),
            created_at=fields.opt_text("createdAt"),
            raw=fields.data,
        )


Revision = Any
"""Of whatever type the service has it."""


@dataclass(frozen=True)
class LoomRun:
    """A view of a run, as it was when it was asked for (loom §2, §7).

    `status` is `running`, `waiting`, `completed`, `failed` or a word this package does not know (paused runs have
    one): unknown ones are not the end. `revision` goes back to `resume_run` exactly as it came.
    """

    run_id: str
    status: str
    loom_name: Optional[str] = None
    execution: Optional[Execution] = None
    cursor: Optional[Cursor] = None
    pending_action: Optional[PendingAction] = None
    pending_agent_call: Optional[PendingAgentCall] = None
    last_error: Optional[RunFailure] = None
    historical: bool = False
    revision: Optional[Revision] = None
    created_at: Optional[str] = None
    updated_at: Optional[str] = None
    raw: Raw = field(repr=False, compare=False, hash=False, default_factory=dict)

    @classmethod
    def read(cls, fields: Fields) -> LoomRun:
        """Build it from the fields of `run`."""
        return cls(
            run_id=fields.text("runId"),
            status=fields.text("status"),
            loom_name=loom_name(fields),
            execution=Execution.read(fields.opt_fields("execution")),
            cursor=Cursor.read(fields.opt_fields("cursor")),
            pending_action=PendingAction.read(fields.opt_fields("pendingAction")),
            pending_agent_call=PendingAgentCall.read(fields.opt_fields("pendingAgentCall")),
            last_error=RunFailure.read(fields.opt_fields("lastError")),
            historical=fields.opt_bool("historical") or False,
            revision=fields.data.get("revision"),
            created_at=fields.opt_text("createdAt"),
            updated_at=fields.opt_text("updatedAt"),
            raw=fields.data,
        )

    @property
    def is_terminal(self) -> bool:
        """True if nothing more will happen to it."""
        return self.historical or self.status in ("completed", "failed")

    @property
    def is_cancelled(self) -> bool:
        """True if it was stopped by `cancel_run`."""
        return self.last_error is not None and self.last_error.code == "RUN_STOPPED"


@dataclass(frozen=True)
class OperationReceipt:
    """What the ledger says of an operation: `pending`, `accepted`, `rejected` or `indeterminate` (loom §5)."""

    status: str
    operation_id: Optional[str] = None
    run_id: Optional[str] = None
    error: Optional[RunFailure] = None
    raw: Raw = field(repr=False, compare=False, hash=False, default_factory=dict)

    @classmethod
    def read(cls, fields: Fields) -> OperationReceipt:
        """Build it from the fields of `receipt`."""
        error = fields.data.get("error")
        return cls(
            status=fields.text("status"),
            operation_id=fields.opt_text("operationId"),
            run_id=fields.opt_text("runId"),
            error=RunFailure.read(fields.opt_fields("error")) if isinstance(error, Mapping) else None,
            raw=fields.data,
        )
