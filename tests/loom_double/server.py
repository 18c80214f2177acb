"""The stand-in as a process: the official MCP package, 2.x or 1.x, serves the engine's tools over Streamable HTTP.

    python -m tests.loom_double.server [--stdio] [--port N] [--token T] [--project DIR]

Prints one line of JSON when it serves: the URL, the token, the instance and the process. Each request needs the bearer
token, a session belongs to its path and ends with a restart, and there are 64 of them at most. `POST /_test` makes
things go wrong:

    {"restart": true}                             a new instance on the same port with the same token
    {"lose": {"tool": "run", "when": "before"}}   the next such call breaks off before it is carried out, or "after"
    {"slow": {"tool": "run", "seconds": 1}}       the next such answer takes so long
    {"refuse": {"tool": "run", "status": 503}}    the next such call gets this HTTP status
    {"forget_sessions": true}                     the same instance no longer knows its sessions
    {"indeterminate": true}                       the next operation ends so
    {"pending": 0.5}                              the next operation is decided after so many seconds
    {"open_gate": true}, {"let_go": true}         gated steps go on, held tools do
    {"calm": true}                                nothing goes wrong any more, and the gate is closed again
    {"form": "asks"}                              `interact` shows a form whether or not the client has any; or "fails"

Each answers with the instance, all effects so far, the inputs of tools that are held, and the number of sessions.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import secrets
import socket
from typing import Any, Dict, Optional

import anyio.to_thread
import mcp.server.stdio
import uvicorn
from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from .engine import TOOLS, BadArguments, Engine, Refused, input_schema
from .looms import LOOMS

try:
    import mcp_types as types

    IS_NEW = True
except ImportError:  # 1.x
    import mcp.types as types

    IS_NEW = False

PATHS = ("/mcp", "/mcp/codex")
MAX_SESSIONS = 64
MAX_BODY_BYTES = 4 * 1024 * 1024


class Double:
    """The service, its faults, and its life as an ASGI application."""

    def __init__(self, token: str, project: Optional[str]) -> None:
        self.token = token
        self.url = ""
        self.engine = Engine(LOOMS)
        self.engine.about = {"projectRoot": project or "/srv/demo", "pid": os.getpid()}
        self.lose: Dict[str, str] = {}
        self.slow: Dict[str, float] = {}
        self.refuse: Dict[str, int] = {}
        self.sessions: Dict[str, str] = {}
        """The path of each session."""
        self.manager: Optional[StreamableHTTPSessionManager] = None
        self._alive = contextlib.AsyncExitStack()

    def server(self) -> Any:
        """Return an MCP server over the engine."""
        if IS_NEW:
            return Server("loom-double", version="1", on_list_tools=self._list_tools, on_call_tool=self._call_tool)
        server: Any = Server("loom-double", version="1")

        async def list_tools() -> Any:
            return [types.Tool(name=name, inputSchema=input_schema(name)) for name in TOOLS]

        async def call_tool(name: str, arguments: Any) -> Any:
            return await self._result(name, arguments, server.request_context)

        server.list_tools()(list_tools)
        server.call_tool(validate_input=False)(call_tool)
        return server

    async def _list_tools(self, _context: Any, _params: Any) -> Any:
        return types.ListToolsResult(tools=[types.Tool(name=name, inputSchema=input_schema(name)) for name in TOOLS])

    async def _call_tool(self, context: Any, params: Any) -> Any:
        return await self._result(params.name, params.arguments or {}, context)

    async def _result(self, name: str, arguments: Any, context: Any) -> Any:
        engine = self.engine
        try:
            result = await anyio.to_thread.run_sync(lambda: engine.call(name, arguments), abandon_on_cancel=True)
            if name == "interact" and engine.form == "asks":
                return await self._form(arguments["actionId"], context)
            is_error = False
        except Refused as refused:
            result, is_error = refused.payload, True
        except BadArguments as error:
            return types.CallToolResult(content=[types.TextContent(type="text", text=str(error))], isError=True)
        return _tool_result(result, is_error)

    async def _form(self, action_id: str, context: Any) -> Any:
        schema: Dict[str, Any] = {"type": "object", "properties": {"q0_answer": {"type": "string"}}}
        if IS_NEW and context.session.protocol_version >= "2026":
            params = types.ElicitRequestFormParams(message="Which day?", requestedSchema=schema)
            return types.InputRequiredResult(inputRequests={action_id: types.ElicitRequest(params=params)})
        try:
            await context.session.elicit_form("Which day?", schema, related_request_id=context.request_id)
        except Exception:
            return _tool_result(Refused("CLI_INTERACTION_UNAVAILABLE", "the form could not be shown").payload, True)
        raise RuntimeError("a client without forms answered one")

    async def begin_life(self) -> None:
        """Serve with fresh sessions from now on."""
        await self._alive.aclose()
        self._alive = contextlib.AsyncExitStack()
        self.sessions.clear()
        self.manager = StreamableHTTPSessionManager(self.server(), session_idle_timeout=None)
        await self._alive.enter_async_context(self.manager.run())

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        headers = {key.decode().lower(): value.decode() for key, value in scope["headers"]}
        if headers.get("authorization") != f"Bearer {self.token}":
            await _answer(send, 401, b"")
            return
        body = await _body(receive)
        if scope["path"] == "/_test":
            await _answer(send, 200, json.dumps(await self._control(json.loads(body or b"{}"))).encode())
        elif scope["path"] == "/_status":
            service = self.engine.call("status", {})["service"]
            await _answer(send, 200, json.dumps({**service, "url": self.url}).encode())
        elif scope["path"] in PATHS and not scope["query_string"]:
            await self._serve(scope, headers.get("mcp-session-id"), body, receive, send)
        else:
            await _answer(send, 404, b"")

    async def _serve(self, scope: Any, session: Optional[str], body: bytes, receive: Any, send: Any) -> None:
        manager = self.manager
        assert manager is not None
        method, tool = _method_and_tool(body)
        status = self._refused_with(scope["path"], session, method, tool, len(body))
        if status:
            await _answer(send, status, b"")
            return
        if tool in self.slow:
            await asyncio.sleep(self.slow.pop(tool))
        lost = self.lose.pop(tool, None)
        if lost == "before":
            await _break_off(send)
            return

        async def note_session(message: Any) -> None:
            for key, value in message.get("headers", ()):
                if key.lower() == b"mcp-session-id":
                    self.sessions[value.decode()] = scope["path"]
            await (_nowhere if lost else send)(message)

        await manager.handle_request(scope, _again(body, receive), note_session)
        if scope["method"] == "DELETE" and session is not None:
            self.sessions.pop(session, None)
        if lost:
            await _break_off(send)

    def _refused_with(self, path: str, session: Optional[str], method: str, tool: str, size: int) -> int:
        if size > MAX_BODY_BYTES:
            return 400
        if session is not None and self.sessions.get(session) != path:
            return 404
        if method == "initialize" and len(self.sessions) >= MAX_SESSIONS:
            return 503
        return self.refuse.pop(tool, 0)

    async def _control(self, wish: Dict[str, Any]) -> Any:
        if wish.get("calm"):
            for faults in (self.lose, self.slow, self.refuse):
                faults.clear()
            self.engine.be_calm()
        for name, key in (("lose", "when"), ("slow", "seconds"), ("refuse", "status")):
            if name in wish:
                getattr(self, name)[wish[name]["tool"]] = wish[name][key]
        if wish.get("indeterminate"):
            self.engine.indeterminate_next = True
        if "pending" in wish:
            self.engine.pending_for = wish["pending"]
        if "form" in wish:
            self.engine.form = wish["form"]
        if wish.get("open_gate"):
            self.engine.gate.set()
        if wish.get("let_go"):
            self.engine.hold.set()
        if wish.get("restart"):
            self.engine = self.engine.restarted()
        if wish.get("restart") or wish.get("forget_sessions"):
            lives.put_nowait(None)
            await renewed.wait()
            renewed.clear()
        return {
            "instanceId": self.engine.instance_id,
            "effects": self.engine.effects,
            "held": self.engine.held,
            "sessions": len(self.sessions),
        }


def _tool_result(body: Dict[str, Any], is_error: bool) -> Any:
    content = [types.TextContent(type="text", text=json.dumps(body))]
    return types.CallToolResult(content=content, structuredContent=body, isError=is_error)


lives: asyncio.Queue[None]
renewed: asyncio.Event


async def _live(double: Double) -> None:
    # One task begins and ends each life: the package's task groups want that.
    while True:
        await double.begin_life()
        renewed.set()
        await lives.get()


async def _body(receive: Any) -> bytes:
    parts = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


def _again(body: bytes, receive: Any) -> Any:
    is_given = False

    async def receive_again() -> Any:
        nonlocal is_given
        if not is_given:
            is_given = True
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    return receive_again


def _method_and_tool(body: bytes) -> tuple[str, str]:
    try:
        message = json.loads(body)
        method = str(message.get("method", ""))
        return method, str(message["params"]["name"]) if method == "tools/call" else ""
    except (ValueError, KeyError, TypeError, AttributeError):
        return "", ""


async def _answer(send: Any, status: int, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _break_off(send: Any) -> None:
    # A body that is shorter than announced: the server closes the connection.
    headers = [(b"content-type", b"application/json"), (b"content-length", b"1000")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"{", "more_body": False})


async def _nowhere(_message: Any) -> None:
    """Take an answer that nobody gets."""


async def _serve_http(double: Double, port: int) -> None:
    global lives, renewed
    lives, renewed = asyncio.Queue(), asyncio.Event()
    # Of protocol TCP by name: asyncio sends small packets at once on such sockets alone, others wait 40 ms for an ACK.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(128)
    double.url = f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
    living = asyncio.ensure_future(_live(double))
    await renewed.wait()
    renewed.clear()
    told = {"url": double.url, "token": double.token, "instanceId": double.engine.instance_id, "pid": os.getpid()}
    print(json.dumps(told), flush=True)
    server = uvicorn.Server(uvicorn.Config(double, log_level="critical", lifespan="off", timeout_graceful_shutdown=1))
    await server.serve(sockets=[listener])
    living.cancel()


async def _serve_stdio(double: Double) -> None:
    server = double.server()
    async with mcp.server.stdio.stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def main() -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--stdio", action="store_true")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--token", default=secrets.token_urlsafe(32))
    parser.add_argument("--project")
    options = parser.parse_args()
    double = Double(options.token, options.project)
    asyncio.run(_serve_stdio(double) if options.stdio else _serve_http(double, options.port))


if __name__ == "__main__":
    main()
