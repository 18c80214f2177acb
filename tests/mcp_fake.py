"""An MCP server in memory: a channel that hands each request to a function, and keeps what was sent."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any, Callable, Mapping

from mantyx_sync.mcp import McpClient, McpSessionGone
from mantyx_sync.mcp.channel import Channel, Era, Outgoing, Receiver, Waiting
from mantyx_sync.mcp.errors import McpConnectionError

LABEL = "MCP server 'fake'"
MODERN, LEGACY = "2026-07-28", "2025-11-25"
META = "io.modelcontextprotocol/"


class RpcError(Exception):
    """What a handler raises to answer with a JSON-RPC error."""

    def __init__(self, code: int, message: str = "no", data: Any = None) -> None:
        super().__init__(code, message)
        self.wire = {"code": code, "message": message, **({} if data is None else {"data": data})}


@dataclass
class Asked:
    """A request that reached the server."""

    method: str
    params: Mapping[str, Any]
    request: Outgoing
    waiting: Waiting
    channel: FakeChannel

    @property
    def meta(self) -> Mapping[str, Any]:
        return self.params.get("_meta", {})

    def progress(self, **params: Any) -> None:
        assert self.waiting.on_progress is not None
        self.waiting.on_progress({"progressToken": self.request.message["id"], **params})

    def notify(self, method: str, params: Mapping[str, Any] | None = None) -> Any:
        message = {"jsonrpc": "2.0", "method": method, "params": dict(params or {})}
        return self.channel.receiver.received(message, self.request.era)

    def ask(self, method: str, request_id: Any = 1) -> Any:
        return self.channel.receiver.received({"jsonrpc": "2.0", "id": request_id, "method": method}, self.request.era)


Handler = Callable[[Asked], Any]


@dataclass
class FakeServer:
    """Plays a server. `on` holds a handler for each method; it returns a result, or raises."""

    eras: tuple[Era, ...] = (Era.STATELESS,)
    capabilities: Mapping[str, Any] = field(
        default_factory=lambda: {"tools": {}, "resources": {}, "prompts": {}, "logging": {}, "completions": {}}
    )
    tools: list[Any] = field(default_factory=lambda: [tool("add")])
    on: dict[str, Handler] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    notified: list[Mapping[str, Any]] = field(default_factory=list)
    opened: list[tuple[Era, str | None]] = field(default_factory=list)
    channels: list[FakeChannel] = field(default_factory=list)

    def client(self, **options: Any) -> McpClient:
        return McpClient(self.connect, **{"sends_headers": True, **options})

    def connect(self, receiver: Receiver) -> Channel:
        channel = FakeChannel(self, receiver)
        self.channels.append(channel)
        return channel

    def methods(self) -> list[str]:
        return [asked.method for asked in self.asked]

    def calls(self, method: str = "tools/call") -> list[Asked]:
        return [asked for asked in self.asked if asked.method == method]

    def answer(self, asked: Asked) -> Any:
        handler = self.on.get(asked.method)
        if handler is not None:
            return handler(asked)
        if asked.method == "server/discover":
            if Era.STATELESS not in self.eras:
                raise RpcError(-32601, "Method not found")
            return discovery(capabilities=self.capabilities)
        if asked.method == "initialize":
            if Era.HANDSHAKE not in self.eras:
                raise RpcError(-32022, "old", {"supported": [MODERN], "requested": LEGACY})
            return handshake(capabilities=self.capabilities)
        if asked.method == "tools/list":
            return {"tools": self.tools}
        if asked.method == "tools/call":
            return {"content": [{"type": "text", "text": f"{asked.params['name']} ran"}]}
        if asked.method in ("ping", "logging/setLevel"):
            return {}
        raise RpcError(-32601, "Method not found")


class FakeChannel:
    """The channel of a `FakeServer`. `lose` ends its session."""

    def __init__(self, server: FakeServer, receiver: Receiver) -> None:
        self.server = server
        self.receiver = receiver
        self.label = LABEL
        self.generation = 1
        self.is_lost = False
        self.closings = 0
        self.lock = threading.Lock()

    @property
    def is_closed(self) -> bool:
        return self.closings > 0

    def lose(self) -> None:
        """Have the session or process be gone."""
        self.is_lost = True

    def exchange(self, request: Outgoing, waiting: Waiting) -> Mapping[str, Any]:
        message = request.message
        if self.is_closed:
            raise McpConnectionError(f"{LABEL}: closed", sent=False)
        if request.generation is None:
            with self.lock:
                if self.is_lost:
                    self.is_lost, self.generation = False, self.generation + 1
        elif self.is_lost or request.generation != self.generation:
            raise McpSessionGone(f"{LABEL}: the session is over")
        asked = Asked(message["method"], message.get("params", {}), request, waiting, self)
        self.server.asked.append(asked)
        try:
            result = self.server.answer(asked)
        except RpcError as error:
            return {"jsonrpc": "2.0", "id": message["id"], "error": error.wire}
        return {"jsonrpc": "2.0", "id": message["id"], "result": result}

    def notify(self, message: Mapping[str, Any], era: Era, version: str | None, deadline: float | None) -> None:
        self.server.notified.append(message)

    def opened(self, era: Era, version: str | None) -> None:
        self.server.opened.append((era, version))

    def close(self) -> None:
        self.closings += 1


def tool(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "description": f"The {name}.", "inputSchema": {"type": "object"}, **fields}


def discovery(versions: Any = (MODERN,), **fields: Any) -> dict[str, Any]:
    return {
        "resultType": "complete",
        "supportedVersions": list(versions) if isinstance(versions, tuple) else versions,
        "capabilities": {"tools": {}},
        "instructions": "be kind",
        "_meta": {f"{META}serverInfo": {"name": "fake", "version": "1.2"}},
        **fields,
    }


def handshake(version: Any = LEGACY, **fields: Any) -> dict[str, Any]:
    return {
        "protocolVersion": version,
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "fake", "version": "1.2"},
        "instructions": "be kind",
        **fields,
    }
