"""The synchronous Python SDK for MANTYX agent runs: blocking calls, threads only, no event loop.

The public names are here; each is loaded from its module when it is first used, so importing the package costs
next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._version import __version__ as __version__

if TYPE_CHECKING:
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
    from .guards import Supervisor as Supervisor
    from .guards import ToolBudget as ToolBudget
    from .guards import plan_only as plan_only
    from .messages import InputFile as InputFile
    from .messages import InputFileUrl as InputFileUrl
    from .messages import Message as Message
    from .messages import input_file as input_file
    from .messages import input_file_url as input_file_url
    from .models import ModelCatalog as ModelCatalog
    from .models import ModelInfo as ModelInfo
    from .models import PricingInfo as PricingInfo
    from .pages import Page as Page
    from .results import RunFeedback as RunFeedback
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
    from .tools.refs import mantyx_a2a as mantyx_a2a
    from .tools.refs import mantyx_mcp as mantyx_mcp
    from .tools.refs import mantyx_plugin_tool as mantyx_plugin_tool
    from .tools.refs import mantyx_tool as mantyx_tool
    from .tools.results import ToolResult as ToolResult
    from .tools.results import ToolResultFile as ToolResultFile

_NAMES = {
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
        "Supervisor",
        "ToolBudget",
        "plan_only",
    ),
    "messages": ("InputFile", "InputFileUrl", "Message", "input_file", "input_file_url"),
    "models": ("ModelCatalog", "ModelInfo", "PricingInfo"),
    "pages": ("Page",),
    "results": (
        "RunFeedback",
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
    "spec": ("OMITTED", "RunSpec"),
    "tools.context": ("ToolContext",),
    "tools.function": ("define_local_tool", "tool"),
    "tools.refs": (
        "LocalTool",
        "MantyxA2AToolRef",
        "MantyxMcpToolRef",
        "MantyxPluginToolRef",
        "MantyxToolRef",
        "mantyx_a2a",
        "mantyx_mcp",
        "mantyx_plugin_tool",
        "mantyx_tool",
    ),
    "tools.results": ("ToolResult", "ToolResultFile"),
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}

__all__ = ["__version__", *sorted(_MODULE_OF)]


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
