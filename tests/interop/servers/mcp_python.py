"""An MCP server made with the official Python package, 1.x or current, that offers one of everything.

python mcp_python.py stdio
python mcp_python.py http [stateless] [json] [events] [idle=SECONDS]      prints `PORT n` once it listens
"""

from __future__ import annotations

import base64
import os
import socket
import sys
from typing import Annotated, Any

import anyio
import uvicorn
from mcp.types import CallToolResult, ContentBlock
from pydantic import BaseModel, Field, TypeAdapter

try:
    from mcp.server.mcpserver import Context, MCPServer
    from mcp.server.mcpserver.prompts.base import AssistantMessage, UserMessage

    IS_NEW = True
except ImportError:
    from mcp.server.fastmcp import Context
    from mcp.server.fastmcp import FastMCP as MCPServer
    from mcp.server.fastmcp.prompts.base import AssistantMessage, UserMessage

    IS_NEW = False

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\nnot much of a picture").decode()
WAV = base64.b64encode(b"RIFF....WAVE").decode()
BLOB = base64.b64encode(bytes(range(256))).decode()

server = MCPServer("interop", instructions="Use it well.")
notes: list[str] = []


def blocks(*data: dict[str, Any]) -> list[ContentBlock]:
    return TypeAdapter(list[ContentBlock]).validate_python(list(data))


@server.tool(title="Add two numbers")
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@server.tool(structured_output=False)
def everything() -> list[ContentBlock]:
    """Return one block of each kind."""
    return blocks(
        {"type": "text", "text": "one"},
        {"type": "image", "data": PNG, "mimeType": "image/png"},
        {"type": "audio", "data": WAV, "mimeType": "audio/wav"},
        {"type": "resource_link", "uri": "memo://text", "name": "link", "description": "a memo"},
        {"type": "resource", "resource": {"uri": "memo://inner", "mimeType": "text/plain", "text": "inner text"}},
        {"type": "resource", "resource": {"uri": "memo://blob", "mimeType": "application/x-blob", "blob": BLOB}},
        {"type": "text", "text": "two", "annotations": {"priority": 0.5, "audience": ["user"]}},
    )


@server.tool(structured_output=False)
def nothing() -> list[ContentBlock]:
    """Return no content."""
    return []


class Weather(BaseModel):
    city: str
    degrees: float


@server.tool()
def weather(city: str) -> Weather:
    """Return structured content."""
    return Weather(city=city, degrees=21.5)


@server.tool()
def misfit() -> Annotated[CallToolResult, Weather]:
    """Return structured content that is none."""
    return CallToolResult.model_validate({"content": [{"type": "text", "text": "no weather"}], "isError": True})


@server.tool()
def fail(text: str) -> str:
    """Fail."""
    raise ValueError(text)


@server.tool()
async def work(steps: int, ctx: Context) -> str:
    """Report progress."""
    for step in range(steps):
        await ctx.report_progress(step + 1, steps, f"step {step + 1}")
        await anyio.sleep(0.02)
    return "worked"


@server.tool()
async def talk(ctx: Context) -> str:
    """Log."""
    for level in ("debug", "info", "warning"):
        await ctx.log(level, f"a {level} line", logger_name="talker")
    return "talked"


@server.tool()
async def wait(seconds: float, mark: str) -> str:
    """Wait, and note when that is cancelled."""
    notes.append(f"{mark} begun")
    try:
        await anyio.sleep(seconds)
    except anyio.get_cancelled_exc_class():
        notes.append(f"{mark} cancelled")
        raise
    notes.append(f"{mark} ended")
    return "waited"


@server.tool()
async def noted(mark: str) -> bool:
    """Tell whether something was noted, within a second."""
    for _ in range(100):
        if mark in notes:
            return True
        await anyio.sleep(0.01)
    return False


@server.tool()
def echo(text: str) -> str:
    """Give back."""
    return text


@server.tool()
def large(size: int) -> str:
    """Return much."""
    return "ä" * size


@server.tool()
def die() -> str:
    """End the server."""
    os._exit(3)


class Answer(BaseModel):
    name: str


@server.tool()
async def ask(what: str, ctx: Context) -> str:
    """Ask the client."""
    session = ctx.request_context.session
    try:
        if what == "ping":
            await session.send_ping()
            return "pong"
        if what == "roots":
            found = await session.list_roots()
            return " ".join(str(root.uri) for root in found.roots)
        await ctx.elicit("your name?", Answer)
    except Exception as error:
        return f"refused: {error}"
    return "answered"


@server.tool()
async def grow(ctx: Context) -> str:
    """Offer one more tool, and say so."""
    server.add_tool(echo, name="grown")
    await ctx.request_context.session.send_tool_list_changed()
    return "grown"


@server.tool()
async def leave_off(ctx: Context) -> str:
    """Close the stream of the answer before answering."""
    await ctx.close_sse_stream()
    await anyio.sleep(0.1)
    await ctx.report_progress(1, 1)
    return "resumed"


@server.tool()
def where(
    region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})],
    depth: Annotated[int, Field(json_schema_extra={"x-mcp-header": "Depth"})] = 0,
) -> str:
    """Take an argument in a header as well."""
    return f"{region} {depth}"


@server.resource("memo://text", mime_type="text/plain", description="A memo")
def memo_text() -> str:
    return "memo: grüß dich"


@server.resource("memo://bytes", mime_type="application/octet-stream")
def memo_bytes() -> bytes:
    return bytes(range(256))


@server.resource("memo://items/{number}")
def memo_item(number: str) -> str:
    return f"item {number}"


@server.prompt(title="Greeting")
def greet(name: str) -> str:
    """Greet."""
    return f"Say hello to {name}."


@server.prompt()
def talk_over() -> list[Any]:
    picture = blocks({"type": "image", "data": PNG, "mimeType": "image/png"})[0]
    return [UserMessage("Look:"), UserMessage(content=picture), AssistantMessage("I see.")]


@server.completion()
async def complete(ref: Any, argument: Any, context: Any) -> Any:
    from mcp.types import Completion

    values = [name for name in ("Ada", "Alan", "Grace") if name.startswith(argument.value)]
    return Completion.model_validate({"values": values, "hasMore": False, "total": len(values)})


class Events:
    """An event store: what was sent can be asked for again."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []

    async def store_event(self, stream_id: str, message: Any) -> str:
        self.events.append((stream_id, message))
        return str(len(self.events))

    async def replay_events_after(self, last_event_id: str, send_callback: Any) -> Any:
        from mcp.server.streamable_http import EventMessage

        number = int(last_event_id)
        stream_id = self.events[number - 1][0]
        for at, (stream, message) in enumerate(list(self.events), start=1):
            if at > number and stream == stream_id and message is not None:
                await send_callback(EventMessage(message, str(at)))
        return stream_id


def http_app(*words: str) -> Any:
    options: dict[str, Any] = {"stateless_http": "stateless" in words, "json_response": "json" in words}
    for word in words:
        if word.startswith("idle="):
            options["session_idle_timeout"] = float(word[5:])
    if "events" in words:
        options.update(event_store=Events(), retry_interval=100)
    if IS_NEW:
        return server.streamable_http_app(**options)
    for name in ("stateless_http", "json_response", "session_idle_timeout"):
        if name in options:
            setattr(server.settings, name, options[name])
    server._event_store = options.get("event_store")
    server._retry_interval = options.get("retry_interval")
    return server.streamable_http_app()


def serve(app: Any) -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    print(f"PORT {listener.getsockname()[1]}", flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listener])


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        serve(server.sse_app() if sys.argv[1] == "sse" else http_app(*sys.argv[2:]))
