"""The synchronous Python SDK for MANTYX agent runs: blocking calls, threads only, no event loop.

The public names are here; each is loaded from its module when it is first used, so importing the package costs
next to nothing.

Where what lies, from the top down; a module imports from below it only, and `tests/test_imports.py` sees to that:

    client session            what users call: `MantyxClient`, `AgentSession`; the routes behind them are in `api`
    run reader run_events     one run: the thread that follows it, and the loops of whoever looks
    workspace recovery many   how runs are created once, found again, and started many at a time
    evals eval_* oauth        evals, access tokens
    spec toolspec guards      what goes out; `checks` and `limits` refuse what may not
    events results values     what comes in; `timing` when, `output` as which type
    errors                    the one tree of errors
    hints tools               type hints to JSON Schema; functions as tools, and answering their calls
    transport                 HTTP and event streams, knowing nothing of MANTYX

Beside them stand the wings, which use the floors above and are loaded when they are asked for: `local` (embedded
servers), `display` (HTML, timelines, live views), `web` (streams to browsers), `cli`, `pytest_plugin`, `mcp`, `a2a`,
`spacefix`, `loom`. The floors know none of them, but for the door in `views`.

(For pytest, which warns of a package that was imported before its plugin, unless it finds: PYTEST_DONT_REWRITE.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._version import __version__ as __version__

if TYPE_CHECKING:
    from ._version import SDK_VERSION as SDK_VERSION
    from .a2a.client.ref import LocalA2ATool as LocalA2ATool
    from .a2a.client.ref import define_local_a2a as define_local_a2a
    from .a2a.client.ref import is_local_a2a_tool as is_local_a2a_tool
    from .client import MantyxClient as MantyxClient
    from .errors import MantyxAPIError as MantyxAPIError
    from .errors import MantyxAuthError as MantyxAuthError
    from .errors import MantyxBadRequestError as MantyxBadRequestError
    from .errors import MantyxConfigError as MantyxConfigError
    from .errors import MantyxConflictError as MantyxConflictError
    from .errors import MantyxError as MantyxError
    from .errors import MantyxForbiddenError as MantyxForbiddenError
    from .errors import MantyxNetworkError as MantyxNetworkError
    from .errors import MantyxNotFoundError as MantyxNotFoundError
    from .errors import MantyxOAuthError as MantyxOAuthError
    from .errors import MantyxParseError as MantyxParseError
    from .errors import MantyxProtocolError as MantyxProtocolError
    from .errors import MantyxRateLimitError as MantyxRateLimitError
    from .errors import MantyxRunCancelled as MantyxRunCancelled
    from .errors import MantyxRunError as MantyxRunError
    from .errors import MantyxScopeError as MantyxScopeError
    from .errors import MantyxServerError as MantyxServerError
    from .errors import MantyxTimeoutError as MantyxTimeoutError
    from .errors import MantyxToolError as MantyxToolError
    from .errors import RateLimit as RateLimit
    from .errors import ToolError as ToolError
    from .eval_results import EvalCase as EvalCase
    from .eval_results import EvalCaseResult as EvalCaseResult
    from .eval_results import EvalDatasetDetail as EvalDatasetDetail
    from .eval_results import EvalDatasetList as EvalDatasetList
    from .eval_results import EvalDatasetSummary as EvalDatasetSummary
    from .eval_results import EvalRunAccepted as EvalRunAccepted
    from .eval_results import EvalRunCompare as EvalRunCompare
    from .eval_results import EvalRunCompareCase as EvalRunCompareCase
    from .eval_results import EvalRunCompareSide as EvalRunCompareSide
    from .eval_results import EvalRunDetail as EvalRunDetail
    from .eval_results import EvalRunEvent as EvalRunEvent
    from .eval_results import EvalRunList as EvalRunList
    from .eval_results import EvalRunSummary as EvalRunSummary
    from .eval_specs import AgentEvalOverrides as AgentEvalOverrides
    from .eval_specs import InlineEvalCaseSpec as InlineEvalCaseSpec
    from .eval_specs import InlineEvalDatasetSpec as InlineEvalDatasetSpec
    from .eval_stream import EvalRunStream as EvalRunStream
    from .events import AssistantDelta as AssistantDelta
    from .events import AssistantMessage as AssistantMessage
    from .events import CancelledEvent as CancelledEvent
    from .events import ErrorEvent as ErrorEvent
    from .events import LocalToolCall as LocalToolCall
    from .events import LocalToolResultIn as LocalToolResultIn
    from .events import LoopDetected as LoopDetected
    from .events import ModelFallback as ModelFallback
    from .events import ResultEvent as ResultEvent
    from .events import RunEvent as RunEvent
    from .events import SupervisorReview as SupervisorReview
    from .events import TaskPlanEvent as TaskPlanEvent
    from .events import ThinkingDelta as ThinkingDelta
    from .events import ToolBudgetExceeded as ToolBudgetExceeded
    from .events import ToolCall as ToolCall
    from .events import ToolFiles as ToolFiles
    from .events import ToolResultEvent as ToolResultEvent
    from .guards import Budgets as Budgets
    from .guards import LoopDetection as LoopDetection
    from .guards import OutputSchema as OutputSchema
    from .guards import PlanOptions as PlanOptions
    from .guards import ReasoningTrigger as ReasoningTrigger
    from .guards import RunBudgets as RunBudgets
    from .guards import Supervisor as Supervisor
    from .guards import ToolBudget as ToolBudget
    from .guards import plan_only as plan_only
    from .mcp.ref import LocalMcpHttpTransport as LocalMcpHttpTransport
    from .mcp.ref import LocalMcpServer as LocalMcpServer
    from .mcp.ref import LocalMcpStdioTransport as LocalMcpStdioTransport
    from .mcp.ref import define_local_mcp as define_local_mcp
    from .mcp.ref import is_local_mcp_server as is_local_mcp_server
    from .messages import InputFile as InputFile
    from .messages import InputFileUrl as InputFileUrl
    from .messages import Message as Message
    from .messages import input_file as input_file
    from .messages import input_file_attachment as input_file_attachment
    from .messages import input_file_url as input_file_url
    from .messages import input_file_url_attachment as input_file_url_attachment
    from .models import ModelCatalog as ModelCatalog
    from .models import ModelInfo as ModelInfo
    from .models import PricingInfo as PricingInfo
    from .oauth import DEFAULT_OAUTH_BASE_URL as DEFAULT_OAUTH_BASE_URL
    from .oauth import DEFAULT_REFRESH_SKEW_S as DEFAULT_REFRESH_SKEW_S
    from .oauth import MantyxOAuthClient as MantyxOAuthClient
    from .oauth import OAuthToken as OAuthToken
    from .oauth import TokenRequestReason as TokenRequestReason
    from .oauth import TokenSource as TokenSource
    from .output import parse_run_output as parse_run_output
    from .pages import Page as Page
    from .progress import Progress as Progress
    from .results import RunFeedback as RunFeedback
    from .results import RunFeedbackResult as RunFeedbackResult
    from .results import RunModelInfo as RunModelInfo
    from .results import RunPage as RunPage
    from .results import RunResult as RunResult
    from .results import RunSnapshot as RunSnapshot
    from .results import RunSummary as RunSummary
    from .results import StructuredOutputInfo as StructuredOutputInfo
    from .results import TaskPlan as TaskPlan
    from .results import TaskPlanStep as TaskPlanStep
    from .results import TokenUsage as TokenUsage
    from .run import Run as Run
    from .session import AgentSession as AgentSession
    from .session_info import SessionEventsPage as SessionEventsPage
    from .session_info import SessionInfo as SessionInfo
    from .session_info import SessionListResult as SessionListResult
    from .session_info import SessionPage as SessionPage
    from .session_info import SessionSummary as SessionSummary
    from .settings import DEFAULT_BASE_URL as DEFAULT_BASE_URL
    from .shapes import AgentSpec as AgentSpec
    from .shapes import AssistantMessageEventData as AssistantMessageEventData
    from .shapes import AttachmentMetadata as AttachmentMetadata
    from .shapes import ConversationMessage as ConversationMessage
    from .shapes import ErrorEventData as ErrorEventData
    from .shapes import InputFileAttachment as InputFileAttachment
    from .shapes import InputFileAttachmentMetadata as InputFileAttachmentMetadata
    from .shapes import InputFileUrlAttachment as InputFileUrlAttachment
    from .shapes import InputFileUrlAttachmentMetadata as InputFileUrlAttachmentMetadata
    from .shapes import JsonSchema as JsonSchema
    from .shapes import MessageAttachment as MessageAttachment
    from .shapes import MessageRole as MessageRole
    from .shapes import Metadata as Metadata
    from .shapes import OutputSchemaEnforcement as OutputSchemaEnforcement
    from .shapes import PlanMode as PlanMode
    from .shapes import PlanSpec as PlanSpec
    from .shapes import ReasoningLevel as ReasoningLevel
    from .shapes import ResultEventData as ResultEventData
    from .shapes import RunEventData as RunEventData
    from .shapes import RunModelInfoWire as RunModelInfoWire
    from .shapes import RunTokenUsageWire as RunTokenUsageWire
    from .shapes import SessionStatus as SessionStatus
    from .shapes import StructuredOutputEnforcementMechanism as StructuredOutputEnforcementMechanism
    from .shapes import StructuredOutputInfoData as StructuredOutputInfoData
    from .shapes import ToolBudgets as ToolBudgets
    from .shapes import UserMessageEventData as UserMessageEventData
    from .spec import OMITTED as OMITTED
    from .spec import RunSpec as RunSpec
    from .tools.context import ToolContext as ToolContext
    from .tools.function import define_local_tool as define_local_tool
    from .tools.function import tool as tool
    from .tools.refs import LocalTool as LocalTool
    from .tools.refs import MantyxA2AToolRef as MantyxA2AToolRef
    from .tools.refs import MantyxMcpToolRef as MantyxMcpToolRef
    from .tools.refs import MantyxPluginToolRef as MantyxPluginToolRef
    from .tools.refs import MantyxToolRef as MantyxToolRef
    from .tools.refs import ToolRef as ToolRef
    from .tools.refs import is_local_tool as is_local_tool
    from .tools.refs import mantyx_a2a as mantyx_a2a
    from .tools.refs import mantyx_mcp as mantyx_mcp
    from .tools.refs import mantyx_plugin_tool as mantyx_plugin_tool
    from .tools.refs import mantyx_tool as mantyx_tool
    from .tools.results import ToolResult as ToolResult
    from .tools.results import ToolResultFile as ToolResultFile
    from .values import RunTokenUsage as RunTokenUsage
    from .values import TaskPlanTransition as TaskPlanTransition
    from .values import task_plan_from_event_data as task_plan_from_event_data

_NAMES = {
    "_version": ("SDK_VERSION",),
    "a2a.client.ref": ("LocalA2ATool", "define_local_a2a", "is_local_a2a_tool"),
    "client": ("MantyxClient",),
    "errors": (
        "MantyxAPIError",
        "MantyxAuthError",
        "MantyxBadRequestError",
        "MantyxConfigError",
        "MantyxConflictError",
        "MantyxError",
        "MantyxForbiddenError",
        "MantyxNetworkError",
        "MantyxNotFoundError",
        "MantyxOAuthError",
        "MantyxParseError",
        "MantyxProtocolError",
        "MantyxRateLimitError",
        "MantyxRunCancelled",
        "MantyxRunError",
        "MantyxScopeError",
        "MantyxServerError",
        "MantyxTimeoutError",
        "MantyxToolError",
        "RateLimit",
        "ToolError",
    ),
    "eval_results": (
        "EvalCase",
        "EvalCaseResult",
        "EvalDatasetDetail",
        "EvalDatasetList",
        "EvalDatasetSummary",
        "EvalRunAccepted",
        "EvalRunCompare",
        "EvalRunCompareCase",
        "EvalRunCompareSide",
        "EvalRunDetail",
        "EvalRunEvent",
        "EvalRunList",
        "EvalRunSummary",
    ),
    "eval_specs": ("AgentEvalOverrides", "InlineEvalCaseSpec", "InlineEvalDatasetSpec"),
    "eval_stream": ("EvalRunStream",),
    "events": (
        "AssistantDelta",
        "AssistantMessage",
        "CancelledEvent",
        "ErrorEvent",
        "LocalToolCall",
        "LocalToolResultIn",
        "LoopDetected",
        "ModelFallback",
        "ResultEvent",
        "RunEvent",
        "SupervisorReview",
        "TaskPlanEvent",
        "ThinkingDelta",
        "ToolBudgetExceeded",
        "ToolCall",
        "ToolFiles",
        "ToolResultEvent",
    ),
    "guards": (
        "Budgets",
        "LoopDetection",
        "OutputSchema",
        "PlanOptions",
        "ReasoningTrigger",
        "RunBudgets",
        "Supervisor",
        "ToolBudget",
        "plan_only",
    ),
    "mcp.ref": (
        "LocalMcpHttpTransport",
        "LocalMcpServer",
        "LocalMcpStdioTransport",
        "define_local_mcp",
        "is_local_mcp_server",
    ),
    "messages": (
        "InputFile",
        "InputFileUrl",
        "Message",
        "input_file",
        "input_file_attachment",
        "input_file_url",
        "input_file_url_attachment",
    ),
    "models": ("ModelCatalog", "ModelInfo", "PricingInfo"),
    "oauth": (
        "DEFAULT_OAUTH_BASE_URL",
        "DEFAULT_REFRESH_SKEW_S",
        "MantyxOAuthClient",
        "OAuthToken",
        "TokenRequestReason",
        "TokenSource",
    ),
    "output": ("parse_run_output",),
    "pages": ("Page",),
    "progress": ("Progress",),
    "results": (
        "RunFeedback",
        "RunFeedbackResult",
        "RunModelInfo",
        "RunPage",
        "RunResult",
        "RunSnapshot",
        "RunSummary",
        "StructuredOutputInfo",
        "TaskPlan",
        "TaskPlanStep",
        "TokenUsage",
    ),
    "run": ("Run",),
    "session": ("AgentSession",),
    "session_info": ("SessionEventsPage", "SessionInfo", "SessionListResult", "SessionPage", "SessionSummary"),
    "settings": ("DEFAULT_BASE_URL",),
    "shapes": (
        "AgentSpec",
        "AssistantMessageEventData",
        "AttachmentMetadata",
        "ConversationMessage",
        "ErrorEventData",
        "InputFileAttachment",
        "InputFileAttachmentMetadata",
        "InputFileUrlAttachment",
        "InputFileUrlAttachmentMetadata",
        "JsonSchema",
        "MessageAttachment",
        "MessageRole",
        "Metadata",
        "OutputSchemaEnforcement",
        "PlanMode",
        "PlanSpec",
        "ReasoningLevel",
        "ResultEventData",
        "RunEventData",
        "RunModelInfoWire",
        "RunTokenUsageWire",
        "SessionStatus",
        "StructuredOutputEnforcementMechanism",
        "StructuredOutputInfoData",
        "ToolBudgets",
        "UserMessageEventData",
    ),
    "spec": ("OMITTED", "RunSpec"),
    "tools.context": ("ToolContext",),
    "tools.function": ("define_local_tool", "tool"),
    "tools.refs": (
        "LocalTool",
        "MantyxA2AToolRef",
        "MantyxMcpToolRef",
        "MantyxPluginToolRef",
        "MantyxToolRef",
        "ToolRef",
        "is_local_tool",
        "mantyx_a2a",
        "mantyx_mcp",
        "mantyx_plugin_tool",
        "mantyx_tool",
    ),
    "tools.results": ("ToolResult", "ToolResultFile"),
    "values": ("RunTokenUsage", "TaskPlanTransition", "task_plan_from_event_data"),
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}

# Type checkers read the re-exports above.
__all__ = ["__version__", *sorted(_MODULE_OF)]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        why = ": this package is synchronous" if name.startswith("Async") else ""
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{why}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
