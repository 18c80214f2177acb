"""The tools of a run: from the refs of its spec to what the model sees and how a call is answered (wire §3).

`local`, `a2a_local` and `mcp_local` tools are answered by the client. `mantyx` and `mantyx_plugin` tools are
answered here, by the functions given to `LocalServer(tools=...)`; one that was not given is not offered to the
model. `mcp` and `a2a` tools are answered by the server or agent that their ref names; see `remote_tools`.
"""

from __future__ import annotations

import base64
import functools
import inspect
import json
import logging
import re
from dataclasses import field
from typing import Any, Callable, Mapping, Optional, Sequence, Union

from mantyx_sync.local.model import ToolDeclaration
from mantyx_sync.local.remote_tools import RemoteTools, describe_card
from mantyx_sync.local.store import ToolAnswer
from mantyx_sync.reprs import dataclass

__all__ = ["BoundTool", "ServerTool", "ToolFile", "ToolOutput", "call_server_tool", "tools_of"]

_log = logging.getLogger(__name__)

LONG_RUNNING_HINT = (
    "NOTE: This is a long-running operation. Do not call this tool again if it has already returned an "
    "intermediate or pending status."
)


# ------------------------------------------------------------- tools of the server


@dataclass(frozen=True)
class ToolFile:
    """A file that a server-side tool produced: becomes part of a `tool_files` event."""

    filename: str
    mime_type: str
    data: bytes = field(repr=False)


@dataclass(frozen=True)
class ToolOutput:
    """A result with files, for a server-side tool that has some."""

    result: object = ""
    files: Sequence[ToolFile] = ()


@dataclass(frozen=True)
class ServerTool:
    """A tool that the embedded server answers itself, said in full.

    Args:
        function: Gets the arguments by keyword, on the run's thread. Returns text or any JSON value, or a
            `ToolOutput`. What it raises becomes an error for the model.
        name: What the model calls it; None takes it from the ref's id or name (`@github/search` is
            `github_search`).
        description: None is the first paragraph of the docstring.
        parameters: The JSON Schema of the arguments; None takes names and simple types from the signature.
    """

    function: Callable[..., object]
    name: Optional[str] = None
    description: Optional[str] = None
    parameters: Optional[Mapping[str, Any]] = None


ServerTools = Mapping[str, Union[ServerTool, Callable[..., object]]]

_JSON_TYPES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean", "list": "array"}


def _declare(key: str, tool: ServerTool) -> ToolDeclaration:
    name = tool.name or re.sub(r"[^A-Za-z0-9_]+", "_", key).strip("_")[:64]
    description = tool.description
    if description is None:
        description = (inspect.getdoc(tool.function) or "").split("\n\n", 1)[0]
    return ToolDeclaration(name, description, tool.parameters or _signature_schema(tool.function))


def _signature_schema(function: Callable[..., object]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    required = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        hint = parameter.annotation
        word = hint if isinstance(hint, str) else getattr(hint, "__name__", "")
        kind = _JSON_TYPES.get(word)
        properties[parameter.name] = {"type": kind} if kind else {}
        if parameter.default is parameter.empty:
            required.append(parameter.name)
    return {"type": "object", "properties": properties, "required": required}


def call_server_tool(tool: ServerTool, arguments: Mapping[str, Any]) -> ToolAnswer:
    """Run a server-side tool. Never raises: an exception becomes an error for the model."""
    try:
        output = tool.function(**arguments)
        if not isinstance(output, ToolOutput):
            output = ToolOutput(output)
        text = output.result if isinstance(output.result, str) else json.dumps(output.result, ensure_ascii=False)
    except Exception as error:
        _log.warning("a server-side tool raised %s", type(error).__name__)
        return ToolAnswer(f"{type(error).__name__}: {error}", is_error=True)
    files = tuple(
        {
            "filename": file.filename,
            "mimeType": file.mime_type,
            "data": base64.b64encode(file.data).decode("ascii"),
            "sizeBytes": len(file.data),
        }
        for file in output.files
    )
    return ToolAnswer(text, files=files)


# ------------------------------------------------------------------ from the spec


@dataclass(frozen=True)
class BoundTool:
    """A tool of the spec: what the model sees, and how a call of it is answered.

    `answer` is set for a tool that is answered from here; a call of any other goes to the client with `kind` and
    `event_fields`. `read_only` calls may go out together.
    """

    declaration: ToolDeclaration
    kind: str
    event_fields: Mapping[str, Any] = field(default_factory=dict)
    read_only: bool = False
    answer: Optional[Callable[[Mapping[str, Any]], ToolAnswer]] = None


def tools_of(spec: Mapping[str, Any], server_tools: ServerTools, remote: RemoteTools | None) -> dict[str, BoundTool]:
    """Build the tools of a run, by the name the model calls them (wire §3)."""
    tools: dict[str, BoundTool] = {}
    for i, ref in enumerate(spec.get("tools") or ()):
        if ref["kind"] in ("mcp", "a2a"):
            found = [] if remote is None else remote.of(i)
            bound = [BoundTool(tool.declaration, ref["kind"], answer=tool.answer) for tool in found]
        else:
            bound = _bind(ref, server_tools)
        for tool in bound:
            tools[tool.declaration.name] = tool
    return tools


def _bind(ref: Mapping[str, Any], server_tools: ServerTools) -> list[BoundTool]:
    kind = ref["kind"]
    if kind == "local":
        return [_bind_local(ref)]
    if kind == "a2a_local":
        card = ref["agentCard"]
        declaration = ToolDeclaration(
            ref["name"],
            ref.get("description") or describe_card(card),
            {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]},
        )
        return [BoundTool(declaration, kind, {"agentCard": card})]
    if kind == "mcp_local":
        return [_bind_mcp(ref, entry) for entry in ref["tools"]]
    if kind in ("mantyx", "mantyx_plugin"):
        key = ref["id"] if kind == "mantyx" else ref["name"]
        found = server_tools.get(key)
        if found is not None:
            tool = found if isinstance(found, ServerTool) else ServerTool(found)
            return [BoundTool(_declare(key, tool), kind, answer=functools.partial(call_server_tool, tool))]
    _log.warning("a %s tool that this server does not have is not offered to the model", kind)
    return []


def _bind_local(ref: Mapping[str, Any]) -> BoundTool:
    description = ref.get("description") or ""
    if ref.get("longRunning"):
        description = f"{description}\n{LONG_RUNNING_HINT}".strip()
    output_schema = ref.get("outputSchema")
    declaration = ToolDeclaration(
        ref["name"],
        description,
        _object_schema(ref.get("parameters")),
        output_schema if _is_object_schema(output_schema) else None,
    )
    return BoundTool(declaration, "local", read_only=bool(ref.get("readOnly")))


def _bind_mcp(ref: Mapping[str, Any], entry: Mapping[str, Any]) -> BoundTool:
    fields: dict[str, Any] = {"mcpServer": ref["name"], "mcpToolName": entry["name"]}
    if "serverInfo" in ref:
        fields["mcpServerInfo"] = ref["serverInfo"]
    if "annotations" in entry:
        fields["annotations"] = entry["annotations"]
    schema = _object_schema(entry.get("inputSchema"))
    return BoundTool(ToolDeclaration(entry["name"], entry.get("description") or "", schema), "mcp_local", fields)


def _is_object_schema(schema: Any) -> bool:
    return isinstance(schema, Mapping) and schema.get("type") == "object"


def _object_schema(schema: Any) -> Mapping[str, Any]:
    """Other shapes are coerced to an empty object schema, as the platform does (wire §3.1)."""
    return schema if _is_object_schema(schema) else {"type": "object", "properties": {}}
