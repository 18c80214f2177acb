"""Tool refs: the entries of `spec.tools` (wire §3).

The four kinds the server resolves are plain data. `LocalTool` is the one this process answers itself: it carries
the handler, and `invoke` runs it on a model's arguments. The `a2a_local` and `mcp_local` kinds live with their
protocols and follow the same `ToolRef` protocol.
"""

from __future__ import annotations

import copy
import re
from dataclasses import field, fields
from typing import Any, Callable, Dict, List, Mapping, Optional, Protocol, Sequence, Type, runtime_checkable

from mantyx_sync import limits
from mantyx_sync.errors import MantyxConfigError
from mantyx_sync.hints import compile_type
from mantyx_sync.reprs import dataclass
from mantyx_sync.schema import SchemaChecker
from mantyx_sync.tools.arguments import read_arguments
from mantyx_sync.tools.binding import Binding, binding_for, refuse_async, too_deep
from mantyx_sync.tools.context import ToolContext
from mantyx_sync.tools.results import ToolResult, tool_result

__all__ = [
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
]

_PLUGIN_NAME = re.compile(r"@[^\s@/]+/[^\s@/]+")
_URL = re.compile(r"https?://[^\s/]\S*", re.IGNORECASE)


@runtime_checkable
class ToolRef(Protocol):
    """Anything that can stand in `tools=`."""

    @property
    def kind(self) -> str:
        """The word that tells the kinds apart on the wire."""
        ...

    def to_wire(self) -> Dict[str, Any]:
        """Return the entry of `spec.tools`."""
        ...


@dataclass(frozen=True, eq=False)
class LocalTool:
    """A tool that this process answers (wire §3.1). Made by `@tool` or `define_local_tool`.

    Args:
        name: What the model calls it: 1 to 64 of `[a-zA-Z0-9_]`.
        description: What the model reads about it.
        parameters: JSON Schema of an object, or a class with fields; None for any object. The attribute holds the
            JSON Schema, a copy that later changes to the original do not reach.
        output_schema: JSON Schema (or class) of what the tool returns, passed on to the model.
        long_running: Tells the model not to call again while an answer is pending.
        read_only: Calls have no side effects: the platform may send several at once.
        retain: The result is replayed to the model on later turns of the session.
        execute: The handler.
        timeout: Seconds a call may take; None for the run's own limit.
        max_concurrency: How many calls may run at once; None for no limit of its own.

    Raises:
        MantyxConfigError: Something of this cannot be used.
    """

    name: str
    description: str = ""
    parameters: Any = None
    output_schema: Any = None
    long_running: bool = False
    read_only: bool = False
    retain: bool = False
    execute: Callable[..., Any] = field(default=None, repr=False)  # type: ignore[assignment]
    timeout: Optional[float] = None
    max_concurrency: Optional[int] = None
    kind: str = field(default="local", init=False)
    binding: Optional[Binding] = field(default=None, repr=False)

    def __post_init__(self) -> None:
        label = self._label()
        _check_tool_name(self.name, "a tool's name")
        if not callable(self.execute):
            raise MantyxConfigError(f"{label}: execute must be a function, not {type(self.execute).__name__}")
        refuse_async(self.execute, label)
        if not isinstance(self.description, str):
            raise MantyxConfigError(f"{label}: description must be text, not {type(self.description).__name__}")
        _check_limits(label, self.timeout, self.max_concurrency)
        if self.binding is None or self.parameters is not self.binding.schema:
            binding = self._make_binding(label)
            self._set("binding", binding)
            self._set("parameters", binding.schema)
        self._set("output_schema", _output_schema(self.output_schema, label))

    def invoke(self, arguments: object, context: Optional[ToolContext] = None) -> ToolResult:
        """Run the handler on a model's arguments, in the calling thread, and return text and files.

        Args:
            arguments: What the model sent: an object, its JSON text, or nothing.
            context: For a handler that asks for one.

        Raises:
            ToolInputError: The arguments do not fit; the handler did not run. The text is meant for the model and
                quotes none of them.
            ToolError: The handler raised it, or what it returned cannot be sent.
            BaseException: Whatever else the handler raised, as it is.
        """
        binding = self.binding
        assert binding is not None  # set in __post_init__
        try:
            found = arguments if type(arguments) is dict else read_arguments(arguments, self.name)
            args, kwargs = binding.bind(found, context, self.name)
        except RecursionError:
            raise too_deep(self.name) from None
        return tool_result(self.execute(*args, **kwargs), self.name)

    def to_wire(self) -> Dict[str, Any]:
        """Return the entry of `spec.tools`; what is not set is left out."""
        wire: Dict[str, Any] = {"kind": self.kind, "name": self.name}
        if self.description:
            wire["description"] = self.description
        if self.parameters is not None:
            wire["parameters"] = copy.deepcopy(self.parameters)
        if self.output_schema is not None:
            wire["outputSchema"] = copy.deepcopy(self.output_schema)
        if self.long_running:
            wire["longRunning"] = True
        if self.read_only:
            wire["readOnly"] = True
        if self.retain:
            wire["retain"] = True
        return wire

    def __copy__(self) -> LocalTool:
        return self

    def __deepcopy__(self, memo: Dict[int, Any]) -> LocalTool:
        return self  # it cannot change, and its handler may hold what cannot be copied

    def __reduce__(self) -> Any:
        state = {item.name: getattr(self, item.name) for item in fields(self) if item.init}
        binding = state.pop("binding")
        state["parameters"] = binding.source  # validators hold locks; they are built again
        return _rebuild, (type(self), state)

    def _label(self) -> str:
        return f"tool '{self.name}'"

    def _make_binding(self, label: str) -> Binding:
        return binding_for(self.parameters, self.execute, label)

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)


@dataclass(frozen=True)
class MantyxToolRef:
    """A tool of the workspace, by id; the platform runs it."""

    id: str
    kind: str = field(default="mantyx", init=False)

    def to_wire(self) -> Dict[str, Any]:
        """Return the entry of `spec.tools`."""
        return {"kind": self.kind, "id": self.id}


@dataclass(frozen=True)
class MantyxPluginToolRef:
    """A tool of a plugin of the platform, by name (`@plugin/tool`)."""

    name: str
    kind: str = field(default="mantyx_plugin", init=False)

    def to_wire(self) -> Dict[str, Any]:
        """Return the entry of `spec.tools`."""
        return {"kind": self.kind, "name": self.name}


@dataclass(frozen=True)
class MantyxA2AToolRef:
    """An A2A agent that the platform calls itself. `headers` are not shown in the repr."""

    name: str
    agent_card_url: str
    description: str = ""
    headers: Optional[Mapping[str, str]] = field(default=None, repr=False)
    context_id: Optional[str] = None
    kind: str = field(default="a2a", init=False)

    def to_wire(self) -> Dict[str, Any]:
        """Return the entry of `spec.tools`."""
        wire: Dict[str, Any] = {"kind": self.kind, "name": self.name, "agentCardUrl": self.agent_card_url}
        if self.description:
            wire["description"] = self.description
        if self.headers:
            wire["headers"] = dict(self.headers)
        if self.context_id is not None:
            wire["contextId"] = self.context_id
        return wire


@dataclass(frozen=True)
class MantyxMcpToolRef:
    """An MCP server that the platform calls itself. `headers` are not shown in the repr."""

    name: str
    url: str
    headers: Optional[Mapping[str, str]] = field(default=None, repr=False)
    tool_filter: Optional[Sequence[str]] = None
    kind: str = field(default="mcp", init=False)

    def to_wire(self) -> Dict[str, Any]:
        """Return the entry of `spec.tools`."""
        wire: Dict[str, Any] = {"kind": self.kind, "name": self.name, "url": self.url}
        if self.headers:
            wire["headers"] = dict(self.headers)
        if self.tool_filter is not None:
            wire["toolFilter"] = list(self.tool_filter)
        return wire


def mantyx_tool(tool_id: str) -> MantyxToolRef:
    """Refer to a tool of the workspace by its id.

    Raises:
        MantyxConfigError: The id is empty.
    """
    return MantyxToolRef(_text(tool_id, "mantyx_tool", "tool_id"))


def mantyx_plugin_tool(name: str) -> MantyxPluginToolRef:
    """Refer to a tool of an installed plugin, such as `@plugin/tool`.

    Raises:
        MantyxConfigError: The name does not have that form.
    """
    if not isinstance(name, str) or _PLUGIN_NAME.fullmatch(name) is None:
        raise MantyxConfigError(f"mantyx_plugin_tool: name must look like '@plugin/tool', got {name!r}")
    return MantyxPluginToolRef(name)


def mantyx_a2a(
    *,
    name: str,
    agent_card_url: str,
    description: str = "",
    headers: Optional[Mapping[str, str]] = None,
    context_id: Optional[str] = None,
) -> MantyxA2AToolRef:
    """Refer to an A2A agent that the platform can reach.

    Args:
        name: What the model calls it: 1 to 64 of `[a-zA-Z0-9_]`.
        agent_card_url: Where its agent card is.
        description: What the model reads about it.
        headers: Sent by the platform with each request to the agent.
        context_id: Keeps several calls in one conversation of the agent.

    Raises:
        MantyxConfigError: Something of this cannot be used.
    """
    _check_tool_name(name, "mantyx_a2a: name")
    url = _url(agent_card_url, "mantyx_a2a", "agent_card_url")
    return MantyxA2AToolRef(name, url, description or "", _headers(headers, "mantyx_a2a"), context_id)


def mantyx_mcp(
    *,
    name: str,
    url: str,
    headers: Optional[Mapping[str, str]] = None,
    tool_filter: Optional[Sequence[str]] = None,
) -> MantyxMcpToolRef:
    """Refer to an MCP server (Streamable HTTP) that the platform can reach.

    Args:
        name: Prefix of its tools' names: 1 to 64 of `[a-zA-Z0-9_]`.
        url: The server's endpoint.
        headers: Sent by the platform with each request to the server.
        tool_filter: Names of the tools to offer; None for all.

    Raises:
        MantyxConfigError: Something of this cannot be used.
    """
    _check_tool_name(name, "mantyx_mcp: name")
    if isinstance(tool_filter, str) or not all(isinstance(item, str) for item in tool_filter or ()):
        raise MantyxConfigError("mantyx_mcp: tool_filter must be a list of tool names")
    chosen: Optional[List[str]] = None if tool_filter is None else list(tool_filter)
    return MantyxMcpToolRef(name, _url(url, "mantyx_mcp", "url"), _headers(headers, "mantyx_mcp"), chosen)


def is_local_tool(ref: object) -> bool:
    """Tell whether a ref is a `LocalTool`, whose handler runs in this process."""
    return isinstance(ref, LocalTool)


def _rebuild(cls: Type[LocalTool], state: Dict[str, Any]) -> LocalTool:
    return cls(**state)


def _check_tool_name(name: object, what: str) -> None:
    if not isinstance(name, str) or limits.TOOL_NAME.fullmatch(name) is None:
        raise MantyxConfigError(f"{what} must be 1 to 64 of [a-zA-Z0-9_], got {name!r}")


def _check_limits(label: str, timeout: Optional[float], max_concurrency: Optional[int]) -> None:
    if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout > 0):
        raise MantyxConfigError(f"{label}: timeout must be a number of seconds above 0, got {timeout!r}")
    if max_concurrency is not None and (type(max_concurrency) is not int or max_concurrency < 1):
        raise MantyxConfigError(f"{label}: max_concurrency must be an integer of at least 1, got {max_concurrency!r}")


def _output_schema(given: Any, label: str) -> Optional[Dict[str, Any]]:
    if given is None:
        return None
    label = f"{label}: output_schema"
    if isinstance(given, Mapping):
        schema = SchemaChecker(given, label=label).schema
    else:
        schema = compile_type(given, label=label).schema
    if schema.get("type", "object") != "object":
        raise MantyxConfigError(f"{label} must be an object schema (type: object): other roots are dropped (wire §3.1)")
    return schema


def _text(value: object, function: str, name: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise MantyxConfigError(f"{function}: {name} must be a text that is not empty, got {value!r}")
    return value


def _url(value: object, function: str, name: str) -> str:
    text = _text(value, function, name)
    if _URL.fullmatch(text) is None:
        raise MantyxConfigError(f"{function}: {name} must be an http(s) URL without spaces")
    return text


def _headers(headers: Optional[Mapping[str, str]], function: str) -> Optional[Dict[str, str]]:
    if not headers:
        return None
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise MantyxConfigError(f"{function}: header {name!r} must be text, not {type(value).__name__}")
        if any(char in "\r\n\0" for char in name + value):
            raise MantyxConfigError(f"{function}: header {name!r} holds a line end")
    return dict(headers)
