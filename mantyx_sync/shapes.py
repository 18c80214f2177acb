"""Shapes of plain mappings and values, as the wire has them (wire §2, §4; http §3): for annotations alone.

Nothing in the package needs them; they are the names under which the platform's own package has these shapes.
"""

from __future__ import annotations

from typing import Any, Dict, List, Literal, Mapping, TypedDict, Union

from .guards import PlanInput, ToolBudgetsInput

__all__ = [
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
]

JsonSchema = Dict[str, Any]
Metadata = Dict[str, str]
RunEventData = Mapping[str, Any]
ToolBudgets = ToolBudgetsInput
PlanSpec = PlanInput

MessageRole = Literal["user", "assistant", "system"]
ReasoningLevel = Union[Literal["off", "low", "medium", "high"], int]
OutputSchemaEnforcement = Literal["best_effort", "strict"]
PlanMode = Literal["off", "auto", "required"]
SessionStatus = Literal["active", "ended"]
StructuredOutputEnforcementMechanism = Literal["native_schema", "synthetic_tool", "none"]


class InputFileAttachment(TypedDict):
    """A file sent along; `data` is base64. Made by `input_file_attachment`."""

    type: Literal["input_file"]
    mimeType: str
    filename: str
    data: str


class _InputFileUrl(TypedDict):
    type: Literal["input_file_url"]
    url: str


class InputFileUrlAttachment(_InputFileUrl, total=False):
    """A file that the model's provider fetches. Made by `input_file_url_attachment`."""

    mimeType: str
    filename: str


class InputFileAttachmentMetadata(TypedDict, total=False):
    """What a session's history keeps of a file."""

    type: Literal["input_file"]
    mimeType: str
    filename: str
    size: int


InputFileUrlAttachmentMetadata = InputFileUrlAttachment
MessageAttachment = Union[InputFileAttachment, InputFileUrlAttachment]
AttachmentMetadata = Union[InputFileAttachmentMetadata, InputFileUrlAttachmentMetadata]


class _Said(TypedDict):
    role: MessageRole
    content: str


class ConversationMessage(_Said, total=False):
    """One message of a conversation."""

    attachments: List[Union[MessageAttachment, AttachmentMetadata]]


class AgentSpec(TypedDict, total=False):
    """What a session was created with."""

    name: str
    agentId: str
    systemPrompt: str
    modelId: str
    fallbackModelId: str
    activeModelId: str
    reasoningLevel: ReasoningLevel
    tools: List[Dict[str, Any]]
    budgets: Dict[str, Any]
    outputSchema: Dict[str, Any]
    loopDetection: Union[bool, Dict[str, Any]]
    toolBudgets: Dict[str, Dict[str, int]]
    supervisor: Union[bool, Dict[str, Any]]
    plan: Union[bool, str, Dict[str, Any]]
    metadata: Metadata


class RunTokenUsageWire(TypedDict, total=False):
    """`tokens` of a terminal event."""

    inputTokens: int
    cachedTokens: int
    reasoningTokens: int
    outputTokens: int


class RunModelInfoWire(TypedDict, total=False):
    """`model` of a terminal event."""

    id: str
    provider: str
    vendorModelId: str
    reasoningEffort: str


class StructuredOutputInfoData(TypedDict, total=False):
    """`structuredOutput` of a terminal event."""

    schemaRequested: bool
    schemaEnforced: bool
    enforcementMechanism: StructuredOutputEnforcementMechanism
    unconstrainedFallbackOccurred: bool


class UserMessageEventData(TypedDict, total=False):
    """Data of a `user_message` in a session's history."""

    text: str
    attachments: List[AttachmentMetadata]


class AssistantMessageEventData(TypedDict, total=False):
    """Data of an `assistant_message`."""

    text: str
    turn: int
    finishReason: str
    toolCalls: List[Dict[str, Any]]


class ResultEventData(TypedDict, total=False):
    """Data of a terminal `result`."""

    ok: bool
    subtype: str
    text: str
    error: str
    tokens: RunTokenUsageWire
    turns: int
    model: RunModelInfoWire
    structuredOutput: StructuredOutputInfoData
    plan: Dict[str, Any]


class ErrorEventData(TypedDict, total=False):
    """Data of a terminal `error`."""

    error: str
    code: str
    errorClass: str
    finishReason: str
    partialText: str
    retryable: bool
    apiStatus: int
    apiCode: str
    tokens: RunTokenUsageWire
    turns: int
    model: RunModelInfoWire
    structuredOutput: StructuredOutputInfoData
