"""The rows of the table: MCP servers that others wrote, each over each transport and in each era that it offers."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Iterator

import requests

from mantyx_sync.mcp.channel import Era
from mantyx_sync.mcp.client import McpClient

from .peers import HERE, node_script, program, python_of

__all__ = ["EVERYTHING", "FILESYSTEM", "PYTHON", "Row", "Server", "running"]

HANDSHAKE, STATELESS = Era.HANDSHAKE, Era.STATELESS


@dataclass(frozen=True)
class Row:
    """One server as one client meets it.

    Attributes:
        name: What the row is called.
        environment: Where the server comes from, and its version with it (see `peers.version_of`).
        kind: Which scenarios it is driven through.
        words: The server's arguments, the transport first.
        mode: The client's mode.
        era: The era they end up in.
        limits: What the server cannot do so: no fault of the client's.
            `streams`: what it sends before an answer gets lost;
            `asks`: its requests never reach a client, and whoever makes one waits for ever;
            `asks inside`: the same of a request that belongs to a call;
            `tries`: it does not even try to ask a client;
            `cancels`: it does not learn that a call was given up;
            `pushes`: it has no way to send what belongs to no call.
    """

    name: str
    environment: str
    kind: str
    words: tuple[str, ...]
    mode: str
    era: Era
    limits: frozenset[str] = frozenset()

    def can(self, what: str) -> bool:
        """Tell whether the server can do it."""
        return what not in self.limits

    @property
    def is_http(self) -> bool:
        return self.words[0] != "stdio"


@dataclass
class Server:
    """A server that runs, or that each of its clients starts."""

    row: Row
    folder: Path
    url: str = ""
    last_session: list[str] = dataclasses.field(default_factory=list)
    open: contextlib.ExitStack = dataclasses.field(default_factory=contextlib.ExitStack, repr=False)
    """Holds what outlives a client: a session of ours is ours to close."""

    def client(self, **options: Any) -> McpClient:
        """Return another client of it."""
        options.setdefault("mode", self.row.mode)
        options.setdefault("timeout", 20.0)
        if not self.row.is_http:
            return McpClient.stdio(_command(self.row, self.folder), **options)
        session = self.open.enter_context(requests.Session())
        session.hooks["response"].append(self._note_session)
        return McpClient.http(self.url, session=session, **options)

    def _note_session(self, response: requests.Response, *_: Any, **__: Any) -> None:
        if "mcp-session-id" in response.headers:
            self.last_session[:] = [response.headers["mcp-session-id"]]


@contextlib.contextmanager
def running(row: Row, folder: Path) -> Iterator[Server]:
    """Start the server of a row, if it is one that runs by itself."""
    command = _command(row, folder)  # skips what is not there
    server = Server(row, folder)
    with contextlib.ExitStack() as open_programs, server.open:
        if row.is_http and row.kind == "python":
            port = open_programs.enter_context(program(command)).line("PORT ")
            server.url = f"http://127.0.0.1:{port}/mcp"
        elif row.is_http:
            port, is_old = str(_free_port()), row.words[0] == "sse"
            running = open_programs.enter_context(program(command, env={"PORT": port}))
            running.line_on_stderr("running on port" if is_old else "listening on port")
            server.url = f"http://127.0.0.1:{port}/{'sse' if is_old else 'mcp'}"
        yield server


def _command(row: Row, folder: Path) -> list[str]:
    if row.kind == "everything":
        return [*node_script("server-everything"), *row.words]
    if row.kind == "filesystem":
        return [*node_script("server-filesystem"), os.path.realpath(folder)]
    return [python_of(row.environment), str(HERE / "servers" / "mcp_python.py"), *row.words]


def _free_port() -> int:
    # That server takes a number only, and does not tell which one 0 became.
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _rows(make: Callable[..., Row], *rows: tuple[Any, ...]) -> list[Row]:
    return [make(*row) for row in rows]


def _python(environment: str, words: str, mode: str, era: Era, *limits: str) -> Row:
    name = f"{environment} {words}, {mode}"
    return Row(name, environment, "python", tuple(words.split()), mode, era, frozenset(limits))


_ALONE = ("tries", "pushes")  # no way back from the server to the client

PYTHON = _rows(
    _python,
    ("mcp-new", "stdio", "auto", STATELESS, *_ALONE),
    ("mcp-new", "stdio", "handshake", HANDSHAKE),
    ("mcp-new", "http", "auto", STATELESS, *_ALONE),
    ("mcp-new", "http", "stateless", STATELESS, *_ALONE),
    ("mcp-new", "http", "handshake", HANDSHAKE),
    ("mcp-new", "http stateless", "auto", STATELESS, *_ALONE),
    ("mcp-new", "http stateless", "handshake", HANDSHAKE, *_ALONE),
    ("mcp-new", "http json", "auto", STATELESS, *_ALONE, "streams", "cancels"),
    ("mcp-new", "http json", "handshake", HANDSHAKE, "streams"),
    ("mcp-new", "http json stateless", "handshake", HANDSHAKE, *_ALONE, "streams", "cancels"),
    ("mcp-new", "http events", "handshake", HANDSHAKE),
    ("mcp-old", "stdio", "auto", HANDSHAKE),
    ("mcp-old", "stdio", "handshake", HANDSHAKE),
    ("mcp-old", "http", "auto", HANDSHAKE),
    ("mcp-old", "http", "handshake", HANDSHAKE),
    ("mcp-old", "http stateless", "auto", HANDSHAKE, "asks", "pushes"),
    ("mcp-old", "http json", "auto", HANDSHAKE, "streams", "asks inside"),
    ("mcp-old", "http json stateless", "auto", HANDSHAKE, "streams", "asks", "cancels", "pushes"),
    ("mcp-old", "http events", "auto", HANDSHAKE),
)


def _npm(package: str, word: str, mode: str) -> Row:
    return Row(f"{package} {word}, {mode}", f"server-{package}", package, (word,), mode, HANDSHAKE)


EVERYTHING = _rows(
    _npm,
    ("everything", "stdio", "auto"),
    ("everything", "stdio", "handshake"),
    ("everything", "streamableHttp", "auto"),
    ("everything", "streamableHttp", "handshake"),
)
FILESYSTEM = _rows(_npm, ("filesystem", "stdio", "auto"), ("filesystem", "stdio", "handshake"))
