"""What an MCP server says it has: itself, tools, resources, prompts, completions. Values only.

All of it is foreign text: nothing here trusts it, fetches it or shows it unshortened in an error.
"""

from __future__ import annotations

import contextlib
import dataclasses
from dataclasses import field
from typing import Any, Iterator, Mapping, Optional, Tuple

from ..errors import MantyxProtocolError
from ..reprs import dataclass
from ..wire import Fields
from .channel import Era
from .errors import McpError, McpProtocolError

__all__ = [
    "McpCompletion",
    "McpLogMessage",
    "McpProgress",
    "McpPrompt",
    "McpPromptArgument",
    "McpResource",
    "McpResourceTemplate",
    "McpServerInfo",
    "McpTool",
    "in_mcp_terms",
]

SERVER_INFO = "io.modelcontextprotocol/serverInfo"
"""Where a stateless server names itself, in the `_meta` of its results."""


@contextlib.contextmanager
def in_mcp_terms() -> Iterator[None]:
    """Raise what is wrong with a field as a `McpProtocolError`."""
    try:
        yield
    except McpError:
        raise
    except MantyxProtocolError as error:
        raise McpProtocolError(error.message) from None


@dataclass(frozen=True)
class McpServerInfo:
    """A server, as it presents itself.

    Attributes:
        name: Its name; empty if it gave none. For display: nothing vouches for it.
        version: Its version; empty if it gave none.
        title: A name for people, if it has one.
        instructions: How it wants to be used, in words for a model; foreign text.
        protocol_version: The protocol revision spoken with it.
        era: `Era.HANDSHAKE` or `Era.STATELESS`.
        capabilities: What it offers; the keys `tools`, `resources`, `prompts`, `logging`, `completions` are known.
        raw: Its whole answer.
    """

    name: str
    version: str
    title: Optional[str] = None
    instructions: Optional[str] = field(default=None, repr=False)
    protocol_version: str = ""
    era: Era = Era.HANDSHAKE
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    raw: Mapping[str, Any] = field(repr=False, default_factory=dict)

    @classmethod
    def of_handshake(cls, result: Mapping[str, Any], label: str) -> McpServerInfo:
        """Read the result of `initialize`."""
        with in_mcp_terms():
            fields = Fields(result, f"{label}: initialize")
            return cls._read(fields, fields.opt_fields("serverInfo"), fields.text("protocolVersion"), Era.HANDSHAKE)

    @classmethod
    def of_discovery(cls, result: Mapping[str, Any], version: str, label: str) -> McpServerInfo:
        """Read the result of `server/discover`."""
        with in_mcp_terms():
            fields = Fields(result, f"{label}: server/discover")
            meta = fields.opt_fields("_meta")
            return cls._read(fields, meta.opt_fields(SERVER_INFO) if meta else None, version, Era.STATELESS)

    @classmethod
    def _read(cls, fields: Fields, named: Fields | None, version: str, era: Era) -> McpServerInfo:
        named = named or Fields({}, fields.where)
        return cls(
            name=named.opt_text("name") or "",
            version=named.opt_text("version") or "",
            title=named.opt_text("title"),
            instructions=fields.opt_text("instructions"),
            protocol_version=version,
            era=era,
            capabilities=fields.opt_object("capabilities") or {},
            raw=fields.data,
        )

    def with_version(self, version: str) -> McpServerInfo:
        """Return the same server, spoken to in another version."""
        return dataclasses.replace(self, protocol_version=version)

    def to_wire(self) -> dict[str, Any]:
        """Return what the server calls itself, verbatim (`serverInfo`); at least `name` and `version`."""
        meta = self.raw.get("_meta")
        given = self.raw.get("serverInfo") or (meta.get(SERVER_INFO) if isinstance(meta, Mapping) else None)
        return {**(given if isinstance(given, Mapping) else {}), "name": self.name, "version": self.version}


@dataclass(frozen=True)
class McpTool:
    """A tool of a server.

    Attributes:
        name: Its name, unique in the server, case-sensitive; usually but not surely of `[A-Za-z0-9_.-]`.
        description: What it does, in words for a model.
        input_schema: JSON Schema of its arguments.
        title: A name for people.
        output_schema: JSON Schema of its structured content, if it declares one.
        annotations: Hints such as `readOnlyHint`; untrusted.
        raw: The entry as the server gave it.
    """

    name: str
    description: Optional[str] = field(default=None, repr=False)
    input_schema: Mapping[str, Any] = field(repr=False, default_factory=dict)
    title: Optional[str] = None
    output_schema: Optional[Mapping[str, Any]] = field(default=None, repr=False)
    annotations: Mapping[str, Any] = field(default_factory=dict, repr=False)
    raw: Mapping[str, Any] = field(repr=False, default_factory=dict)

    @classmethod
    def from_wire(cls, data: object, where: str) -> McpTool:
        """Read one entry of `tools/list`."""
        with in_mcp_terms():
            fields = Fields(data, where)
            name = fields.text("name")
            schema = fields.opt_object("inputSchema")
            if not name or schema is None:
                raise fields.wrong("inputSchema", "an object") if name else fields.wrong("name", "a non-empty string")
            return cls(
                name=name,
                description=fields.opt_text("description"),
                input_schema=schema,
                title=fields.opt_text("title"),
                output_schema=fields.opt_object("outputSchema"),
                annotations=fields.opt_object("annotations") or {},
                raw=fields.data,
            )

    @property
    def display_name(self) -> str:
        """The name to show to people: `title`, else the annotations' title, else `name`."""
        hinted = self.annotations.get("title")
        return self.title or (hinted if isinstance(hinted, str) else "") or self.name

    def to_wire(self) -> dict[str, Any]:
        """Return the entry verbatim."""
        return dict(self.raw) or {"name": self.name, "inputSchema": dict(self.input_schema)}


@dataclass(frozen=True)
class McpResource:
    """A resource of a server, as `resources/list` shows it; `read_resource(uri)` gets what is in it."""

    uri: str
    name: str
    title: Optional[str] = None
    description: Optional[str] = field(default=None, repr=False)
    mime_type: Optional[str] = None
    size: Optional[int] = None
    raw: Mapping[str, Any] = field(repr=False, default_factory=dict)

    @classmethod
    def from_wire(cls, data: object, where: str) -> McpResource:
        """Read one entry of `resources/list`."""
        with in_mcp_terms():
            fields = Fields(data, where)
            return cls(
                uri=fields.text("uri"),
                name=fields.opt_text("name") or "",
                title=fields.opt_text("title"),
                description=fields.opt_text("description"),
                mime_type=fields.opt_text("mimeType"),
                size=fields.opt_int("size"),
                raw=fields.data,
            )


@dataclass(frozen=True)
class McpResourceTemplate:
    """A family of resources: an RFC 6570 template of their uris."""

    uri_template: str
    name: str
    title: Optional[str] = None
    description: Optional[str] = field(default=None, repr=False)
    mime_type: Optional[str] = None
    raw: Mapping[str, Any] = field(repr=False, default_factory=dict)

    @classmethod
    def from_wire(cls, data: object, where: str) -> McpResourceTemplate:
        """Read one entry of `resources/templates/list`."""
        with in_mcp_terms():
            fields = Fields(data, where)
            return cls(
                uri_template=fields.text("uriTemplate"),
                name=fields.opt_text("name") or "",
                title=fields.opt_text("title"),
                description=fields.opt_text("description"),
                mime_type=fields.opt_text("mimeType"),
                raw=fields.data,
            )


@dataclass(frozen=True)
class McpPromptArgument:
    """An argument that a prompt takes; its value is always text."""

    name: str
    description: Optional[str] = None
    required: bool = False


@dataclass(frozen=True)
class McpPrompt:
    """A prompt of a server, as `prompts/list` shows it; `get_prompt(name)` gets its messages."""

    name: str
    title: Optional[str] = None
    description: Optional[str] = field(default=None, repr=False)
    arguments: Tuple[McpPromptArgument, ...] = ()
    raw: Mapping[str, Any] = field(repr=False, default_factory=dict)

    @classmethod
    def from_wire(cls, data: object, where: str) -> McpPrompt:
        """Read one entry of `prompts/list`."""
        with in_mcp_terms():
            fields = Fields(data, where)
            return cls(
                name=fields.text("name"),
                title=fields.opt_text("title"),
                description=fields.opt_text("description"),
                arguments=tuple(
                    McpPromptArgument(
                        argument.text("name"), argument.opt_text("description"), argument.opt_bool("required") or False
                    )
                    for argument in fields.objects("arguments")
                ),
                raw=fields.data,
            )


@dataclass(frozen=True)
class McpCompletion:
    """What could stand for an argument, as `completion/complete` answers.

    Attributes:
        values: The proposals, at most 100.
        total: How many there are in all, if the server says.
        has_more: Whether there are more than those.
    """

    values: Tuple[str, ...]
    total: Optional[int] = None
    has_more: bool = False

    @classmethod
    def from_wire(cls, result: Mapping[str, Any], where: str) -> McpCompletion:
        """Read the result of `completion/complete`."""
        with in_mcp_terms():
            fields = Fields(result, where).opt_fields("completion")
            if fields is None:
                raise Fields(result, where).wrong("completion", "an object")
            return cls(fields.texts("values"), fields.opt_int("total"), fields.opt_bool("hasMore") or False)


@dataclass(frozen=True)
class McpProgress:
    """How far a request has come, in the server's own measure.

    Attributes:
        progress: Grows from notification to notification.
        total: What it grows to, if the server knows.
        message: What is being done, in words.
        method: The request it belongs to, such as `tools/call`.
        name: The tool or prompt, or the resource's uri, if the request has one.
    """

    progress: float
    total: Optional[float] = None
    message: Optional[str] = None
    method: str = ""
    name: Optional[str] = None

    @classmethod
    def from_wire(cls, params: Mapping[str, Any], method: str, name: str | None) -> McpProgress:
        """Read the params of `notifications/progress`."""
        with in_mcp_terms():
            fields = Fields(params, "notifications/progress")
            progress = fields.opt_number("progress")
            if progress is None:
                raise fields.wrong("progress", "a number")
            return cls(progress, fields.opt_number("total"), fields.opt_text("message"), method, name)


@dataclass(frozen=True)
class McpLogMessage:
    """A line of a server's log (`notifications/message`).

    Attributes:
        level: `debug`, `info`, `notice`, `warning`, `error`, `critical`, `alert` or `emergency`.
        data: What is logged; any JSON value, usually text.
        logger: The name of the server's logger, if it gave one.
    """

    level: str
    data: Any = field(repr=False)
    logger: Optional[str] = None

    @classmethod
    def from_wire(cls, params: Mapping[str, Any]) -> McpLogMessage:
        """Read the params of `notifications/message`."""
        with in_mcp_terms():
            fields = Fields(params, "notifications/message")
            return cls(fields.text("level"), fields.data.get("data"), fields.opt_text("logger"))
