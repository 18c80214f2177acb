"""Loom: steer workflows, and do the agent tasks they hand out.

    from mantyx_sync.loom import LoomClient, LoomWorker, run_and_wait

`LoomClient` has one method for each tool of the service, `run_and_wait` follows a run to its end, `LoomWorker` does
agent tasks with a function of yours or, with `MantyxExecutor`, with MANTYX runs.
"""

from __future__ import annotations

from .answers import SKIP, Answer, Confirmation, Interaction
from .artifacts import Artifact, Record
from .bridge import MantyxExecutor
from .claims import Claim
from .client import LoomClient
from .discovery import Discovered, discover
from .errors import (
    LoomBusy,
    LoomConflict,
    LoomDiscoveryError,
    LoomError,
    LoomIndeterminate,
    LoomInstanceChanged,
    LoomInvalidRequest,
    LoomNotFound,
    LoomOperationError,
    LoomPending,
    LoomRejected,
    LoomRequestError,
    LoomRunCancelled,
    LoomRunFailed,
    LoomTaskClosed,
    LoomTaskLost,
    LoomUnavailable,
)
from .following import run_and_wait, wait_for_run
from .operations import LedgerAnswer, Operation, Outcome, OutcomeStatus
from .runs import LoomInfo, LoomRun, OperationReceipt, PendingAction, PendingAgentCall, Question, Service
from .store import TaskStore
from .task import LoomTask, MadeCall
from .tasks import AgentCall, AgentReceipt, AgentTask, AssetContent, Skill, TaskTool, ToolOutput
from .worker import LoomWorker, TaskFailed

__all__ = [
    "SKIP",
    "AgentCall",
    "AgentReceipt",
    "AgentTask",
    "Answer",
    "Artifact",
    "AssetContent",
    "Claim",
    "Confirmation",
    "Discovered",
    "Interaction",
    "LedgerAnswer",
    "LoomBusy",
    "LoomClient",
    "LoomConflict",
    "LoomDiscoveryError",
    "LoomError",
    "LoomIndeterminate",
    "LoomInfo",
    "LoomInstanceChanged",
    "LoomInvalidRequest",
    "LoomNotFound",
    "LoomOperationError",
    "LoomPending",
    "LoomRejected",
    "LoomRequestError",
    "LoomRun",
    "LoomRunCancelled",
    "LoomRunFailed",
    "LoomTask",
    "LoomTaskClosed",
    "LoomTaskLost",
    "LoomUnavailable",
    "LoomWorker",
    "MadeCall",
    "MantyxExecutor",
    "Operation",
    "OperationReceipt",
    "Outcome",
    "OutcomeStatus",
    "PendingAction",
    "PendingAgentCall",
    "Question",
    "Record",
    "Service",
    "Skill",
    "TaskFailed",
    "TaskStore",
    "TaskTool",
    "ToolOutput",
    "discover",
    "run_and_wait",
    "wait_for_run",
]
