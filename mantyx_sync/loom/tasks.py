"""Agent tasks (loom §2): what an agent is to do, with which skills and tools, and what is kept of its work."""

from __future__ import annotations

import base64
import binascii
from dataclasses import field
from typing import Any, Mapping, Optional, Tuple

from ..errors import MantyxProtocolError
from ..reprs import dataclass
from ..wire import Fields
from .runs import Cursor, PendingAgentCall

__all__ = [
    "AgentCall",
    "AgentReceipt",
    "AgentTask",
    "AssetContent",
    "Skill",
    "SkillAsset",
    "TaskTool",
    "ToolOutput",
    "ToolReceipt",
]

Raw = Mapping[str, Any]


@dataclass(frozen=True)
class SkillAsset:
    """A file of a skill, to be read by its id."""

    id: str
    name: str


@dataclass(frozen=True)
class Skill:
    """Knowledge that comes with a task."""

    name: str
    description: str = ""
    content: str = ""
    assets: Tuple[SkillAsset, ...] = ()
    raw: Raw = field(repr=False, compare=False, hash=False, default_factory=dict)

    @classmethod
    def read(cls, fields: Fields) -> Skill:
        """Build it from the fields of one entry of `skills`."""
        return cls(
            name=fields.text("name"),
            description=fields.opt_text("description") or "",
            content=fields.opt_text("content") or "",
            assets=tuple(SkillAsset(item.text("id"), item.opt_text("name") or "") for item in fields.objects("assets")),
            raw=fields.data,
        )


@dataclass(frozen=True)
class TaskTool:
    """A tool that a task declares. `input_schema` is what is sent, `output_schema` what is received."""

    id: str
    description: str = ""
    input_schema: Optional[Mapping[str, Any]] = field(repr=False, default=None)
    output_schema: Optional[Mapping[str, Any]] = field(repr=False, default=None)
    is_end_tool: bool = False
    raw: Raw = field(repr=False, compare=False, hash=False, default_factory=dict)

    @classmethod
    def read(cls, fields: Fields, end_tool: object) -> TaskTool:
        """Build it from the fields of one entry of `tools`."""
        tool_id = fields.text("id")
        marked = fields.data.get("endTool") or fields.data.get("isEndTool")
        return cls(
            id=tool_id,
            description=fields.opt_text("description") or "",
            input_schema=fields.opt_object("inputSchema"),
            output_schema=fields.opt_object("outputSchema"),
            is_end_tool=bool(marked) or tool_id == end_tool,
            raw=fields.data,
        )


@dataclass(frozen=True)
class AgentTask:
    """What an agent is to do, as `claim_agent_call` hands it out (loom §2)."""

    run_id: str
    call_id: str
    agent_id: Optional[str] = None
    cursor: Optional[Cursor] = None
    instructions: str = field(repr=False, default="")
    skills: Tuple[Skill, ...] = field(repr=False, default=())
    tools: Tuple[TaskTool, ...] = ()
    output_schema: Optional[Mapping[str, Any]] = field(repr=False, default=None)
    raw: Raw = field(repr=False, compare=False, hash=False, default_factory=dict)

    @classmethod
    def read(cls, fields: Fields) -> AgentTask:
        """Build it from the fields of `task`."""
        end_tool = fields.data.get("endToolId", fields.data.get("endTool"))
        if isinstance(end_tool, Mapping):
            end_tool = end_tool.get("id")
        return cls(
            run_id=fields.text("runId"),
            call_id=fields.text("callId"),
            agent_id=fields.opt_text("agentId"),
            cursor=Cursor.read(fields.opt_fields("cursor")),
            instructions=fields.opt_text("instructions") or "",
            skills=tuple(map(Skill.read, fields.objects("skills"))),
            tools=tuple(TaskTool.read(item, end_tool) for item in fields.objects("tools")),
            output_schema=fields.opt_object("outputSchema"),
            raw=fields.data,
        )


@dataclass(frozen=True)
class ToolReceipt:
    """That a tool call of a task is known: `status` is `running`, `completed` or `failed`."""

    tool_call_id: str
    tool_id: Optional[str] = None
    status: Optional[str] = None

    @classmethod
    def read(cls, fields: Fields) -> ToolReceipt:
        """Build it from the fields of one entry of `receipts`."""
        return cls(fields.text("toolCallId"), fields.opt_text("toolId"), fields.opt_text("status"))


@dataclass(frozen=True)
class AgentCall:
    """A view of an agent call: no outputs, no owner token."""

    pending: Optional[PendingAgentCall] = None
    task: Optional[AgentTask] = None
    receipts: Tuple[ToolReceipt, ...] = ()
    raw: Raw = field(repr=False, compare=False, hash=False, default_factory=dict)

    @classmethod
    def read(cls, fields: Fields) -> AgentCall:
        """Build it from the fields of `agentCall`."""
        task = fields.opt_fields("task")
        return cls(
            pending=PendingAgentCall.read(fields.opt_fields("pending")),
            task=None if task is None else AgentTask.read(task),
            receipts=tuple(map(ToolReceipt.read, fields.objects("receipts"))),
            raw=fields.data,
        )


@dataclass(frozen=True)
class ToolOutput:
    """What a tool of a task returned. Of a call that is repeated a service may tell less: `raw` is all it said."""

    output: Any = field(repr=False, default=None)
    raw: Raw = field(repr=False, compare=False, hash=False, default_factory=dict)

    @classmethod
    def read(cls, body: Raw) -> ToolOutput:
        """Build it from the answer, whose `output` may be in a `receipt`."""
        receipt = body.get("receipt")
        place = body if "output" in body or not isinstance(receipt, Mapping) else receipt
        return cls(place.get("output"), body)


@dataclass(frozen=True)
class AgentReceipt:
    """That the service took a task's end: how the run goes on is for `get_run` to say."""

    run_id: Optional[str] = None
    call_id: Optional[str] = None
    status: Optional[str] = None
    raw: Raw = field(repr=False, compare=False, hash=False, default_factory=dict)

    @classmethod
    def read(cls, fields: Optional[Fields], raw: Raw) -> AgentReceipt:
        """Build it from the fields of `receipt`, where there is one, and the whole answer."""
        if fields is None:
            return cls(raw=raw)
        return cls(fields.opt_text("runId"), fields.opt_text("callId"), fields.opt_text("status"), raw=raw)


@dataclass(frozen=True)
class AssetContent:
    """What `read_agent_asset` returned: `data` are its bytes, `text` its text if it is UTF-8."""

    data: bytes = field(repr=False)
    text: Optional[str] = field(repr=False, default=None)
    raw: Raw = field(repr=False, compare=False, hash=False, default_factory=dict)

    @classmethod
    def read(cls, fields: Fields) -> AssetContent:
        """Build it from the fields of the answer.

        Raises:
            MantyxProtocolError: The encoding is unknown, or the base64 is broken.
        """
        content, encoding = fields.text("content"), fields.opt_text("encoding") or "utf8"
        if encoding in ("utf8", "utf-8"):
            return cls(content.encode("utf-8", "surrogatepass"), content, fields.data)
        if encoding != "base64":
            raise MantyxProtocolError(f"{fields.where}: field 'encoding' is a word this version does not know")
        try:
            return cls(base64.b64decode(content, validate=True), None, fields.data)
        except (binascii.Error, ValueError):
            raise MantyxProtocolError(f"{fields.where}: field 'content' is not base64") from None
