"""What a tool answered, and the messages of a prompt. Values only.

A result that has content never reads as empty: where no text comes out of its blocks (see `rendering`), its structured
content does, or a note that names the files.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, List, Mapping, Optional, Tuple

from ..errors import ToolError
from ..reprs import dataclass
from ..tools.results import ToolResult, ToolResultFile
from ..wire import Fields
from .content import McpContent, content_of
from .models import in_mcp_terms
from .rendering import Rendered, compact_json

__all__ = ["McpPromptMessage", "McpPromptResult", "McpResult"]


@dataclass(frozen=True)
class McpPromptMessage:
    """A message of a prompt: who says it (`user` or `assistant`), and what."""

    role: str
    content: McpContent

    @property
    def text(self) -> str:
        """The content as text for a model."""
        rendered = Rendered((self.content,))
        return rendered.text or rendered.note


@dataclass(frozen=True)
class McpPromptResult:
    """What `get_prompt` returns."""

    messages: Tuple[McpPromptMessage, ...]
    description: Optional[str] = None
    raw: Mapping[str, Any] = field(repr=False, default_factory=dict)

    @classmethod
    def from_wire(cls, result: Mapping[str, Any], where: str) -> McpPromptResult:
        """Read the result of `prompts/get`."""
        with in_mcp_terms():
            fields = Fields(result, where)
            messages = tuple(
                McpPromptMessage(message.text("role"), content_of(message.data.get("content")))
                for message in fields.objects("messages")
            )
            return cls(messages, fields.opt_text("description"), fields.data)


@dataclass(frozen=True)
class McpResult:
    """What a tool answered.

    Attributes:
        content: The blocks of its answer.
        is_error: The tool failed; the text says why, in words for the model.
        structured_content: The answer as a JSON value, if the tool gives one.
        raw: The whole result as it came.
    """

    content: Tuple[McpContent, ...] = ()
    is_error: bool = False
    structured_content: Any = field(default=None, repr=False)
    raw: Mapping[str, Any] = field(repr=False, default_factory=dict)

    @classmethod
    def from_wire(cls, result: Mapping[str, Any], where: str) -> McpResult:
        """Read the result of `tools/call`; a missing `content` is an empty one."""
        with in_mcp_terms():
            fields = Fields(result, where)
            blocks = fields.data.get("content")
            if blocks is not None and not isinstance(blocks, list):
                raise fields.wrong("content", "an array")
            return cls(
                content=tuple(content_of(block) for block in blocks or ()),
                is_error=fields.opt_bool("isError") or False,
                structured_content=fields.data.get("structuredContent"),
                raw=fields.data,
            )

    @property
    def has_structured_content(self) -> bool:
        """Whether there is structured content, which may be null."""
        return self.structured_content is not None or "structuredContent" in self.raw

    @property
    def text(self) -> str:
        """The result as text for a model: never empty if it has content."""
        return self._text(Rendered(self.content))

    @property
    def files(self) -> List[ToolResultFile]:
        """The images, sounds and binary resources that the platform takes as files of a tool result."""
        return Rendered(self.content).files

    def to_tool_result(self) -> ToolResult:
        """Return text and files, as a handler of a tool may return them.

        Raises:
            ToolError: The tool failed (`is_error`); the text is what it said.
        """
        rendered = Rendered(self.content)
        text = self._text(rendered)
        if self.is_error:
            raise ToolError(text or "the tool failed without saying why")
        return ToolResult(text, rendered.files or None)

    def _text(self, rendered: Rendered) -> str:
        if rendered.text:
            return rendered.text
        if self.has_structured_content:
            return compact_json(self.structured_content)
        return rendered.note if self.content else ""
