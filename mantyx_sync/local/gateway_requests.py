"""The MCP methods of the embedded gateway: one request of a client in, its result, its error or a call out.

Knows neither HTTP nor sockets: `gateway_mcp` reads the requests and writes the answers.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any, Callable, Mapping, Optional

from mantyx_sync.local.gateway_calls import Outcome, Switchboard
from mantyx_sync.local.gateway_keys import Key
from mantyx_sync.local.gateway_projects import AgentConnection, GatewayCall, GatewayProject
from mantyx_sync.local.gateway_registration import RegisteredPrompt, RegisteredTool
from mantyx_sync.local.gateway_results import prompt_result, read_result, tool_error, tool_result
from mantyx_sync.local.gateway_trace import is_traceparent, make_trace

__all__ = [
    "HANDSHAKE_VERSIONS",
    "HEADER_MISMATCH",
    "INVALID_PARAMS",
    "SERVER_VERSION",
    "STATELESS_VERSIONS",
    "Caller",
    "McpMethods",
    "McpRefused",
]

HANDSHAKE_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
STATELESS_VERSIONS = ("2026-07-28",)
NO_AGENT = -32001
RESOURCE_NOT_FOUND = -32002  # up to 2025-11-25
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
HEADER_MISMATCH = -32020
SERVER_VERSION = "1.0.0"
# Nothing is ever announced on its own: there is no session that an announcement could be sent to.
CAPABILITIES: Mapping[str, Any] = {"tools": {}, "resources": {}, "prompts": {}}

Params = Mapping[str, Any]
Done = Callable[[Mapping[str, Any]], None]


class McpRefused(Exception):
    """A request ends in a JSON-RPC error. `status` is the HTTP status where the error decides about it."""

    def __init__(self, code: int, message: str, data: Any = None, *, status: int = 400) -> None:
        super().__init__(message)
        self.error = {"code": code, "message": message, **({} if data is None else {"data": data})}
        self.status = status


@dataclass(frozen=True)
class Caller:
    """Who asks, and how.

    Attributes:
        key: The client's key; `None` is the dashboard's Playground, which may see everything and sends no trace.
        is_stateless: Whether the stateless revision is spoken.
        headers: The headers of the request.
    """

    project: GatewayProject
    key: Optional[Key] = None
    is_stateless: bool = False
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def may_use(self, tool: RegisteredTool) -> bool:
        """Whether the tool is offered: to a read-only client, only what reads (by the owner's mark, or by hint)."""
        if self.key is None or not self.key.is_read_only:
            return True
        marked = self.project.access.get(tool.name)
        return tool.is_read_only if marked is None else marked == "read"

    def trace(self, params: Params) -> dict[str, Any] | None:
        """Build the trace of a call from the headers, or from `_meta`, where the stateless revision may carry it."""
        if self.key is None:
            return None
        meta = params.get("_meta")
        given = self.headers if is_traceparent(self.headers.get("traceparent", "")) else meta
        return make_trace(given if isinstance(given, Mapping) else {})


class McpMethods:
    """Answers the requests of MCP clients, with what agents registered and by asking agents."""

    def __init__(self, board: Switchboard) -> None:
        self._board = board
        self._methods: dict[str, Callable[[Params, Caller, AgentConnection, Done], None]] = {
            "tools/list": self._list_tools,
            "tools/call": self._call_tool,
            "resources/list": self._list_resources,
            "resources/templates/list": self._list_templates,
            "resources/read": self._read_resource,
            "prompts/list": self._list_prompts,
            "prompts/get": self._get_prompt,
        }

    def start(self, method: str, params: Params, caller: Caller, done: Done) -> None:
        """Begin a request. `done` is called once, now or later, with the response's `result` or `error` in a mapping.

        Raises:
            McpRefused: The request cannot be begun; `done` is not called.
        """
        opening = {"server/discover": _discover} if caller.is_stateless else {"initialize": _initialize, "ping": _ping}
        if method in opening:
            done({"result": opening[method](params, caller.project)})
            return
        if method not in self._methods:
            raise McpRefused(METHOD_NOT_FOUND, "Method not found", status=404)
        lister = self._board.lister(caller.project)
        if lister is None:
            raise McpRefused(NO_AGENT, f'No agent connected for server "{caller.project.id}".', status=503)
        if "list" in method and params.get("cursor") is not None:
            raise McpRefused(INVALID_PARAMS, "Invalid cursor")  # everything fits on one page
        self._methods[method](params, caller, lister, done)

    # ------------------------------------------------------------- listings

    def _list_tools(self, _: Params, caller: Caller, lister: AgentConnection, done: Done) -> None:
        tools = [tool.to_listing() for tool in lister.registration.tools.values() if caller.may_use(tool)]
        done({"result": {"tools": tools}})

    def _list_resources(self, _: Params, __: Caller, lister: AgentConnection, done: Done) -> None:
        done({"result": {"resources": [entry.to_listing() for entry in lister.registration.resources.values()]}})

    def _list_templates(self, _: Params, __: Caller, ___: AgentConnection, done: Done) -> None:
        done({"result": {"resourceTemplates": []}})

    def _list_prompts(self, _: Params, __: Caller, lister: AgentConnection, done: Done) -> None:
        done({"result": {"prompts": [entry.to_listing() for entry in lister.registration.prompts.values()]}})

    # ---------------------------------------------------------------- calls

    def _call_tool(self, params: Params, caller: Caller, _: AgentConnection, done: Done) -> None:
        name, arguments = _named(params, "name"), _arguments(params)
        agent = self._board.next_agent(caller.project, "call", name)
        tool = agent.registration.tools[name] if agent is not None else None
        if agent is None or tool is None or not caller.may_use(tool):
            raise McpRefused(INVALID_PARAMS, f"Unknown tool: {name}")
        if caller.is_stateless:
            _check_param_headers(tool, arguments, caller.headers)
        record = self._note("call", name, arguments, params, caller)
        complaint = tool.checker.complaint(arguments)
        if complaint is not None:
            message = f"Input validation error: Invalid arguments for tool {name}: {complaint}"
            self._board.refuse(record, message)
            done({"result": tool_error(message)})
            return

        def settle(outcome: Outcome) -> None:
            done({"result": tool_result(outcome.value) if outcome.ok else tool_error(outcome.error)})

        seconds = caller.project.cache_seconds.get(name)
        kept = None if seconds is None else self._board.cached(record, seconds)
        if kept is not None:
            settle(kept)
        else:
            self._dispatch(record, agent, caller, settle, cache=seconds is not None)

    def _read_resource(self, params: Params, caller: Caller, _: AgentConnection, done: Done) -> None:
        uri = _named(params, "uri")
        agent = self._board.next_agent(caller.project, "read", uri)
        if agent is None:
            code = INVALID_PARAMS if caller.is_stateless else RESOURCE_NOT_FOUND
            raise McpRefused(code, f"Resource {uri} not found", {"uri": uri})
        resource = agent.registration.resources[uri]

        def settle(outcome: Outcome) -> None:
            done({"result": read_result(outcome.value, resource)} if outcome.ok else _failure(outcome))

        self._dispatch(self._note("read", uri, None, params, caller), agent, caller, settle)

    def _get_prompt(self, params: Params, caller: Caller, _: AgentConnection, done: Done) -> None:
        name, arguments = _named(params, "name"), _arguments(params)
        agent = self._board.next_agent(caller.project, "prompt", name)
        if agent is None:
            raise McpRefused(INVALID_PARAMS, f"Unknown prompt: {name}")
        prompt = agent.registration.prompts[name]
        _check_prompt_arguments(prompt, arguments)

        def settle(outcome: Outcome) -> None:
            done({"result": prompt_result(outcome.value, prompt)} if outcome.ok else _failure(outcome))

        self._dispatch(self._note("prompt", name, arguments, params, caller), agent, caller, settle)

    def _note(self, kind: str, name: str, arguments: Any, params: Params, caller: Caller) -> GatewayCall:
        trace = caller.trace(params)
        request_id = str(uuid.uuid4()) if trace is None else str(trace["requestId"])
        return self._board.note(GatewayCall(request_id, caller.project.id, kind, name, arguments, trace))

    def _dispatch(
        self,
        record: GatewayCall,
        agent: AgentConnection,
        caller: Caller,
        settle: Callable[[Outcome], None],
        *,
        cache: bool = False,
    ) -> None:
        self._board.dispatch(record, agent, settle, timeout=caller.project.call_timeout, cache=cache)


def _initialize(params: Params, project: GatewayProject) -> dict[str, Any]:
    asked = params.get("protocolVersion")
    return {
        # A version it does not know is answered with the newest one that is opened like this.
        "protocolVersion": asked if asked in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[0],
        "capabilities": CAPABILITIES,
        "serverInfo": {"name": project.name, "version": SERVER_VERSION},
        **({} if project.instructions is None else {"instructions": project.instructions}),
    }


def _discover(_: Params, project: GatewayProject) -> dict[str, Any]:
    return {
        "supportedVersions": list(STATELESS_VERSIONS),
        "capabilities": CAPABILITIES,
        **({} if project.instructions is None else {"instructions": project.instructions}),
    }


def _ping(_: Params, __: GatewayProject) -> dict[str, Any]:
    return {}


def _failure(outcome: Outcome) -> dict[str, Any]:
    return {"error": {"code": INTERNAL_ERROR, "message": outcome.error}}


def _named(params: Params, name: str) -> str:
    value = params.get(name)
    if not isinstance(value, str):
        raise McpRefused(INVALID_PARAMS, f"Invalid params: {name} must be a string")
    return value


def _arguments(params: Params) -> dict[str, Any]:
    arguments = params.get("arguments", {})
    if not isinstance(arguments, dict):
        raise McpRefused(INVALID_PARAMS, "Invalid params: arguments must be an object")
    return arguments


def _check_prompt_arguments(prompt: RegisteredPrompt, arguments: Params) -> None:
    """Every argument of a prompt is a string, and those that are required have to be there."""
    for argument in prompt.arguments:
        if argument.get("required") is True and argument["name"] not in arguments:
            raise McpRefused(
                INVALID_PARAMS, f"Invalid arguments for prompt {prompt.name}: {argument['name']} is missing"
            )
    for name, value in arguments.items():
        if not isinstance(value, str):
            raise McpRefused(INVALID_PARAMS, f"Invalid arguments for prompt {prompt.name}: {name} must be a string")


def _check_param_headers(tool: RegisteredTool, arguments: Params, headers: Mapping[str, str]) -> None:
    """Refuse a call whose `Mcp-Param-*` headers do not repeat the arguments that the schema wants in headers.

    A schema that breaks the rules for these headers is ignored here: clients drop such a tool.
    """
    from mantyx_sync.mcp.params import BadHeaderParam, header_params, param_headers

    try:
        params = header_params(tool.input_schema)
    except BadHeaderParam:
        return
    expected = {name.lower(): text for name, text in param_headers(params, arguments).items()}
    for param in params:
        name = f"mcp-param-{param.header.lower()}"
        if headers.get(name) != expected.get(name):
            raise McpRefused(HEADER_MISMATCH, f"Header mismatch: Mcp-Param-{param.header} does not repeat the argument")
