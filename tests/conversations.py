"""Programs that talk to a server, for tests that record them and play them back: a bare socket, and our client."""

from __future__ import annotations

import json
import re
import socket
from typing import Any, Callable, Iterator

from mantyx_sync import MantyxClient, MantyxError, define_local_tool
from mantyx_sync.local import Failure, ModelRequest, ScriptedModel, ToolUse, TurnEnd, Usage

from .plain_http import DEADLINE_S, ORDER_TOOL

__all__ = ["MODEL", "Tap", "converse", "facts", "order_tool", "talk"]


def _turns(request: ModelRequest) -> list[Any]:
    """What the model says, by the prompt."""
    if "fail" in request.prompt:
        return [["Half an ", Failure("The provider is busy.", error_class="overloaded", retryable=True)]]
    if "order" in request.prompt:
        calls = [ToolUse("get_order", {"order_id": number}) for number in ("17", "18")]
        return [["Looking … ", *calls, TurnEnd("tool_use", Usage(10, 5))], ["Both have ", "shipped. ✓"]]
    return [["You said ", request.prompt, "."]]


MODEL = ScriptedModel(_turns)


class Tap:
    """A client without any cleverness: what it gets is what was on the wire, a connection for each request."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.raw: list[bytes] = []

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> bytes:
        """Make a request and return all bytes of its answer."""
        return b"".join(self.read(method, path, body, **headers))

    def read(self, method: str, path: str, body: object = None, **headers: str) -> Iterator[bytes]:
        """Make a request and yield the bytes of its answer as they come."""
        data = b"" if body is None else json.dumps(body).encode()
        lines = [f"{method} /api/v1/workspaces/recorded{path} HTTP/1.1", "Host: localhost", "Connection: close"]
        lines += ["Authorization: Bearer recording", f"Content-Length: {len(data)}", "Content-Type: application/json"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        place = len(self.raw)
        self.raw.append(b"")
        with socket.create_connection(("127.0.0.1", self._port), timeout=DEADLINE_S) as sock:
            sock.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + data)
            while True:
                try:
                    piece = sock.recv(65536)
                except ConnectionResetError:
                    piece = b""
                if not piece:
                    return
                self.raw[place] += piece
                yield piece

    def id_of(self, answer: bytes, name: str = "runId") -> str:
        """Return an id that an answer holds."""
        return str(json.loads(answer.partition(b"\r\n\r\n")[2])[name])

    def follow(self, run_id: str, **headers: str) -> bytes:
        """Read a run's stream to its end, answering the calls of its tools in the order in which they come."""
        seen, answered = b"", set()
        for piece in self.read("GET", f"/agent-runs/{run_id}/stream", **headers):
            seen += piece
            for found in re.findall(rb'"type":"local_tool_call","data":\{"toolUseId":"([^"]+)"', seen):
                if found not in answered:
                    answered.add(found)
                    result = {"toolUseId": found.decode(), "result": "It has shipped."}
                    self.ask("POST", f"/agent-runs/{run_id}/tool-results", result)
        return seen


def converse(port: int) -> list[bytes]:
    """Say a bit of everything over bare sockets; return all that came back, answer by answer."""
    tap = Tap(port)
    spec = {"systemPrompt": "You help.", "tools": [ORDER_TOOL]}
    plan = {"plan": {"enabled": True}}
    run_id = tap.id_of(tap.ask("POST", "/agent-runs", {**spec, **plan, "prompt": "1. Find order 17\n2. Find order 18"}))
    tap.follow(run_id)
    tap.ask("GET", f"/agent-runs/{run_id}")
    tap.follow(tap.id_of(tap.ask("POST", "/agent-runs", {**spec, "prompt": "fail, please"})))
    session_id = tap.id_of(tap.ask("POST", "/agent-sessions", spec), "sessionId")
    tap.follow(
        tap.id_of(tap.ask("POST", f"/agent-sessions/{session_id}/messages", {"prompt": "Where are the orders?"}))
    )
    tap.ask("DELETE", f"/agent-sessions/{session_id}")
    tap.ask("GET", "/agent-runs/run_of_nobody")
    tap.ask("POST", "/agent-runs", {"prompt": 3})
    tap.ask("GET", "/nothing/here")
    return tap.raw


def order_tool(answer: Callable[[str], Any] = lambda number: {"order": number, "status": "shipped"}) -> Any:
    """Return a tool that looks up orders."""
    return define_local_tool(
        name="get_order",
        description="Look up one order.",
        parameters=ORDER_TOOL["parameters"],
        execute=lambda args: answer(args["order_id"]),
    )


def talk(client: MantyxClient, **more: Any) -> list[Any]:
    """Do with our client what a program does; return what it saw, without what differs from time to time."""
    seen: list[Any] = []
    result = client.run_agent(system_prompt="You help.", prompt="Where are the orders?", tools=[order_tool()], **more)
    seen.append((result.run_id, result.text, result.tokens, result.turns, result.model, [e.raw for e in result.events]))
    try:
        client.run_agent(system_prompt="You help.", prompt="fail, please", **more)
    except MantyxError as error:
        seen.append(facts(error))
    session = client.create_session(system_prompt="You help.", tools=[order_tool()])
    seen.append([session.id, session.send("Hello").text, session.send("Where are the orders?").text])
    seen.append([(message["role"], message["content"]) for message in session.history()])
    session.end()
    seen.append([model.id for model in client.list_models().models])
    try:
        client.get_run("run_of_nobody")
    except MantyxError as error:
        seen.append(facts(error))
    return seen


def facts(error: MantyxError) -> tuple[Any, ...]:
    """Return what an error says that is the same each time."""
    names = ("code", "status", "hint", "run_id", "error_class", "partial_text", "retryable", "tokens", "request_id")
    return (type(error).__name__, str(error), *(getattr(error, name, None) for name in names))
