"""The endpoint for MCP clients, `POST /mcp/{project}`: Streamable HTTP without sessions, in both eras of the protocol.

The documents show a client's view in their transcripts only; where they are silent this does what the official MCP
server without sessions does. Answers come as an event stream with one `message` event, whose head is sent at once;
what can be refused before a method runs is a plain JSON error. `initialize`, `ping` and `server/discover` are
answered whether or not an agent is connected, everything else then gets 503.
"""

from __future__ import annotations

from typing import Any, Callable, Mapping, Optional, Sequence

from mantyx_sync import limits
from mantyx_sync.local.answers import Answer, StreamResponse
from mantyx_sync.local.frames import FrameLog
from mantyx_sync.local.gateway_agents import SHUTTING_DOWN, is_json, suspended
from mantyx_sync.local.gateway_json import BadJson, parse, to_json
from mantyx_sync.local.gateway_keys import Denied, Key, Keyring
from mantyx_sync.local.gateway_projects import GatewayProject, frame
from mantyx_sync.local.gateway_requests import (
    HANDSHAKE_VERSIONS,
    HEADER_MISMATCH,
    INVALID_PARAMS,
    SERVER_VERSION,
    STATELESS_VERSIONS,
    Caller,
    McpMethods,
    McpRefused,
)
from mantyx_sync.local.http import Request, Response
from mantyx_sync.local.store import new_id

__all__ = ["McpEndpoint"]

FAILED = -32000
PARSE_ERROR = -32700
INVALID_REQUEST = -32600
UNSUPPORTED_VERSION = -32022
# Arrays of messages came with this revision and went with the next.
BATCH_VERSIONS = ("2025-03-26", "2024-11-05")
# What `Mcp-Name` repeats, by method.
NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
CACHEABLE = (
    *("server/discover", "tools/list", "resources/list", "resources/templates/list", "resources/read"),
    "prompts/list",
)
_META = "io.modelcontextprotocol/"
_REFUSED = {"agent": "This is an agent key. Clients connect with a client key."}


class _Reply(FrameLog):
    """The event stream that answers a client's request; complete when each of its requests is answered."""

    def __init__(self, requests: int, on_frame: Callable[[FrameLog], None]) -> None:
        super().__init__(new_id("reply"))
        self._open = requests
        self._on_frame = on_frame

    @property
    def is_terminal(self) -> bool:
        """Whether everything was answered."""
        return self._open == 0

    def add(self, message: Mapping[str, Any]) -> None:
        """Send one response."""
        self.frames.append(frame("message", message))
        self._open -= 1
        self._on_frame(self)


class McpEndpoint:
    """Reads what MCP clients post, and writes what `McpMethods` answers.

    Args:
        on_frame: Called when a reply has something to send.
    """

    def __init__(self, keyring: Keyring, methods: McpMethods, on_frame: Callable[[FrameLog], None]) -> None:
        self._keyring = keyring
        self._methods = methods
        self._on_frame = on_frame

    def handle(self, request: Request, project_id: str, *, is_draining: bool) -> Answer:
        """Answer one request of a client."""
        try:
            key = self._admit(request, project_id)
            if is_draining:
                return _refusal(503, FAILED, SHUTTING_DOWN)
            if key.project.suspension is not None:
                return suspended(key.project.suspension)
            if request.method != "POST":
                return _refusal(405, FAILED, "Method not allowed.", ("Allow", "POST"))
            return self._post(request, key)
        except Denied as denied:
            return _refusal(denied.status, FAILED, str(denied), *denied.headers)
        except McpRefused as refused:
            return _json(refused.status, {"jsonrpc": "2.0", "id": None, "error": refused.error})

    def _admit(self, request: Request, project_id: str) -> Key:
        key = self._keyring.admit(request, _REFUSED)
        if key.project.id != project_id:
            raise Denied(403, "This key belongs to another project.")
        return key

    def _post(self, request: Request, key: Key) -> Answer:
        if not is_json(request):
            return _refusal(415, FAILED, "Unsupported Media Type: Content-Type must be application/json")
        if len(request.body) > limits.SPACEFIX_MAX_RESULT_BYTES:
            return _refusal(413, FAILED, "request entity too large")
        accept = request.headers.get("accept", "")
        if not all(_accepts(accept, kind) for kind in ("application/json", "text/event-stream")):
            wanted = "Client must accept both application/json and text/event-stream"
            return _refusal(406, FAILED, f"Not Acceptable: {wanted}")
        try:
            body = parse(request.body)
        except BadJson:
            return _refusal(400, PARSE_ERROR, "Parse error")
        version = _version(request)
        caller = Caller(key.project, key, version in STATELESS_VERSIONS, request.headers)
        messages = _messages(body, version, is_stateless=caller.is_stateless)
        requests = [message for message in messages if "method" in message and "id" in message]
        if not requests:
            return Response(202)
        if caller.is_stateless:
            _check_envelope(requests[0], request.headers)
        reply = _Reply(len(requests), self._on_frame)
        for message in requests:
            refused = self._start(message, caller, reply)
            if refused is not None and len(requests) == 1 and (caller.is_stateless or refused.status == 503):
                return _json(refused.status, {"jsonrpc": "2.0", "id": message["id"], "error": refused.error})
            if refused is not None:
                reply.add({"jsonrpc": "2.0", "id": message["id"], "error": refused.error})
        return StreamResponse(reply, content_type="text/event-stream")

    def _start(self, message: Mapping[str, Any], caller: Caller, reply: _Reply) -> McpRefused | None:
        method, request_id = message["method"], message["id"]

        def done(answer: Mapping[str, Any]) -> None:
            if "error" in answer:
                reply.add({"jsonrpc": "2.0", "id": request_id, **answer})
                return
            result = answer["result"]
            if caller.is_stateless:
                result = _stateless(result, method, caller.project)
            reply.add({"result": result, "jsonrpc": "2.0", "id": request_id})

        try:
            params = message.get("params", {})
            if not isinstance(params, dict):
                raise McpRefused(INVALID_PARAMS, "Invalid params: params must be an object")
            self._methods.start(method, params, caller, done)
        except McpRefused as refused:
            return refused
        return None


def _json(status: int, payload: Mapping[str, Any], *headers: tuple[str, str]) -> Response:
    return Response(status, to_json(payload).encode(), headers)


def _refusal(status: int, code: int, message: str, *headers: tuple[str, str]) -> Response:
    return _json(status, {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}, *headers)


def _accepts(accept: str, kind: str) -> bool:
    """Whether an `Accept` header takes a media type; wildcards count, as they come from plain HTTP clients."""
    offers = [part.partition(";")[0].strip().lower() for part in accept.split(",")]
    return any(offer in (kind, kind.split("/")[0] + "/*", "*/*") for offer in offers)


def _version(request: Request) -> Optional[str]:
    """Return the revision that the request is made in; without the header it is one of those with a handshake."""
    version = request.headers.get("mcp-protocol-version")
    if version is not None and version not in (*HANDSHAKE_VERSIONS, *STATELESS_VERSIONS):
        data = {"supported": [*STATELESS_VERSIONS, *HANDSHAKE_VERSIONS], "requested": version}
        raise McpRefused(UNSUPPORTED_VERSION, f"Unsupported protocol version: {version}", data)
    return version


def _messages(body: Any, version: Optional[str], *, is_stateless: bool) -> Sequence[Mapping[str, Any]]:
    """Return the messages of a body. Raises `McpRefused` for what is none."""
    is_batch = isinstance(body, list)
    if is_batch and (not body or not (version is None or version in BATCH_VERSIONS)):
        raise McpRefused(INVALID_REQUEST, "Invalid Request: send one message at a time")
    messages = body if is_batch else [body]
    for message in messages:
        if not isinstance(message, dict) or message.get("jsonrpc") != "2.0" or not _is_message(message):
            raise McpRefused(INVALID_REQUEST, "Invalid Request: not a JSON-RPC message")
        if is_stateless and "method" not in message:
            raise McpRefused(INVALID_REQUEST, "Invalid Request: clients send no responses")
        if is_batch and message.get("method") == "initialize":
            raise McpRefused(INVALID_REQUEST, "Invalid Request: initialize must be alone")
    return messages


def _is_message(message: Mapping[str, Any]) -> bool:
    request_id = message.get("id")
    if "id" in message and (isinstance(request_id, bool) or not isinstance(request_id, (str, int))):
        return False
    if "method" in message:
        return isinstance(message["method"], str)
    return "id" in message and ("result" in message or "error" in message)


def _check_envelope(message: Mapping[str, Any], headers: Mapping[str, str]) -> None:
    """Check what every request of the stateless revision carries: `_meta`, and the headers that repeat the body."""
    from mantyx_sync.mcp.params import header_text

    params = message.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    if not isinstance(meta, dict) or not isinstance(params, dict):
        raise McpRefused(INVALID_PARAMS, f"Invalid params: _meta with {_META}protocolVersion is required")
    if not isinstance(meta.get(f"{_META}protocolVersion"), str):
        raise McpRefused(INVALID_PARAMS, f"Invalid params: _meta lacks {_META}protocolVersion")
    if not isinstance(meta.get(f"{_META}clientCapabilities"), dict):
        raise McpRefused(INVALID_PARAMS, f"Invalid params: _meta lacks {_META}clientCapabilities")
    expected = {"mcp-protocol-version": meta[f"{_META}protocolVersion"], "mcp-method": message["method"]}
    name = params.get(NAMED_BY.get(message["method"], ""))
    if isinstance(name, str):
        expected["mcp-name"] = header_text(name)
    for header, text in expected.items():
        if headers.get(header) != text:
            raise McpRefused(HEADER_MISMATCH, f"Header mismatch: {header} does not repeat the body")


def _stateless(result: Mapping[str, Any], method: str, project: GatewayProject) -> dict[str, Any]:
    """Add what results of the stateless revision carry; what an agent passed through keeps its own."""
    info = {f"{_META}serverInfo": {"name": project.name, "version": SERVER_VERSION}}
    meta = result.get("_meta")
    return {
        "resultType": "complete",
        **({"ttlMs": 0, "cacheScope": "private"} if method in CACHEABLE else {}),
        **result,
        "_meta": {**info, **meta} if isinstance(meta, dict) else info,
    }
