"""`define_local_mcp`: an MCP server whose tools a run is lent from here (wire §3.3, §4.3.3)."""

from __future__ import annotations

import time
from dataclasses import field
from typing import TYPE_CHECKING, Any, Dict, Iterable, Mapping, Optional, Sequence, Tuple, Union

from .. import limits
from ..checks import refusal, seconds, sequence, shown, string, text, whole_number
from ..errors import MantyxConfigError, cut
from ..reprs import brief, dataclass
from ..tools.resolution import CALL_TIMEOUT_S, START_TIMEOUT_S
from .errors import McpTimeoutError
from .names import model_names
from .resolved import ResolvedMcpServer

if TYPE_CHECKING:
    import requests

    from ..tools.resolution import Opening
    from .client import McpClient
    from .models import McpTool

__all__ = [
    "LocalMcpHttpTransport",
    "LocalMcpServer",
    "LocalMcpStdioTransport",
    "define_local_mcp",
    "is_local_mcp_server",
]

_FROM_URL = ("headers", "session")
_FROM_COMMAND = ("args", "env", "cwd")


@dataclass(frozen=True)
class LocalMcpHttpTransport:
    """Where a server is that speaks Streamable HTTP, as `define_local_mcp` takes it."""

    url: str
    headers: Optional[Mapping[str, str]] = field(default=None, repr=False)
    session: Optional[requests.Session] = field(default=None, repr=False)


@dataclass(frozen=True)
class LocalMcpStdioTransport:
    """What to start for a server that speaks over stdio, as `define_local_mcp` takes it.

    The repr shows the program alone: arguments and variables may hold a credential.
    """

    command: Union[str, Sequence[str]]
    args: Optional[Sequence[str]] = None
    env: Optional[Mapping[str, str]] = None
    cwd: Optional[str] = None

    def __repr__(self) -> str:
        program = self.command if isinstance(self.command, str) else next(iter(self.command), "")
        return f"{type(self).__name__}(command={brief(program, 80)}, cwd={brief(self.cwd, 80)})"


@dataclass(frozen=True, eq=False)
class LocalMcpServer:
    """An MCP server that this process reaches: a recipe, connected anew for each run or session that it is a tool of.

    Made by `define_local_mcp`, which says what the fields mean. One may be in any number of runs, on any thread.
    """

    name: str
    http: Optional[LocalMcpHttpTransport] = None
    stdio: Optional[LocalMcpStdioTransport] = None
    client: Optional[McpClient] = field(default=None, repr=False)
    tool_filter: Optional[Tuple[str, ...]] = None
    prefix: str = ""
    timeout: float = CALL_TIMEOUT_S
    idle_timeout: Optional[float] = None
    start_timeout: float = START_TIMEOUT_S
    max_concurrency: Optional[int] = None
    kind: str = field(default="mcp_local", init=False)

    @property
    def label(self) -> str:
        """What to call it in a sentence."""
        return f"MCP server {self.name!r}"

    def to_wire(self) -> Dict[str, Any]:
        """Refuse: what goes out is known only once the server has been asked.

        Raises:
            MantyxConfigError: Always.
        """
        raise MantyxConfigError(
            f"{self.label}: asked what it offers when a run or session is created; it has no wire form before"
        )

    def resolve(self, opening: Opening) -> ResolvedMcpServer:
        """Connect, and read what the server offers. Blocks.

        Raises:
            McpError: It cannot be reached, or does not answer as it should.
            McpTimeoutError: It was not ready within `start_timeout`, or by the opening's deadline.
            MantyxConfigError: What it offers cannot be used.
        """
        until = time.monotonic() + self.start_timeout
        if opening.deadline is not None:
            until = min(until, opening.deadline)
        left = until - time.monotonic()
        if left <= 0:
            raise McpTimeoutError("there was no time left to start it")
        client = self.client
        if client is None:
            client = self.connect(left)
            opening.at_end(client.close)
        server = client.open(timeout=left)
        chosen = self._choose(client.list_tools(refresh=True, timeout=max(0.001, until - time.monotonic())))
        names = model_names((tool.name for tool in chosen), self.prefix, "what it offers")
        wire: Dict[str, Any] = {"kind": self.kind, "name": self.name}
        server_info = server.to_wire()
        if server_info.get("name"):
            wire["serverInfo"] = server_info
        wire["tools"] = [{**tool.to_wire(), "name": name} for name, tool in zip(names, chosen)]
        return ResolvedMcpServer(self, client, wire, dict(zip(names, chosen)))

    def connect(self, start_timeout: float) -> McpClient:
        """Make a client for it, which is open once it is used.

        Raises:
            MantyxConfigError: It cannot be made of what was given.
        """
        from .client import McpClient

        options: Dict[str, Any] = {"timeout": self.timeout, "start_timeout": start_timeout}
        http, stdio = self.http, self.stdio
        if http is not None and stdio is None:
            return McpClient.http(http.url, headers=http.headers, session=http.session, **options)
        if stdio is None or http is not None:
            raise MantyxConfigError("http, stdio and client: must be one of the three")
        return McpClient.stdio(stdio.command, stdio.args or (), env=stdio.env, cwd=stdio.cwd, **options)

    def _choose(self, tools: Iterable[McpTool]) -> Sequence[McpTool]:
        offered = {tool.name: tool for tool in tools}
        if self.tool_filter is not None:
            missing = [name for name in self.tool_filter if name not in offered]
            if missing:
                there = ", ".join(map(repr, offered)) or "none"
                raise MantyxConfigError(
                    f"tool_filter: it has no tool {', '.join(map(repr, missing))}; its tools are {cut(there)}"
                )
            offered = {name: tool for name, tool in offered.items() if name in self.tool_filter}
        if not offered:
            raise MantyxConfigError("it offers no tools")
        if len(offered) > limits.MAX_MCP_TOOLS:
            raise MantyxConfigError(
                f"it offers {len(offered)} tools, and at most {limits.MAX_MCP_TOOLS} of one server can be in a run; "
                "choose with tool_filter="
            )
        return list(offered.values())


def define_local_mcp(
    *,
    name: str,
    url: Optional[str] = None,
    headers: Optional[Mapping[str, str]] = None,
    command: Union[str, Sequence[str], None] = None,
    args: Optional[Sequence[str]] = None,
    env: Optional[Mapping[str, str]] = None,
    cwd: Optional[str] = None,
    client: Optional[McpClient] = None,
    session: Optional[requests.Session] = None,
    tool_filter: Optional[Sequence[str]] = None,
    prefix: Union[str, bool] = "",
    timeout: float = CALL_TIMEOUT_S,
    idle_timeout: Optional[float] = None,
    start_timeout: float = START_TIMEOUT_S,
    max_concurrency: Optional[int] = None,
) -> LocalMcpServer:
    """Lend the tools of an MCP server to a run or session, from this process. Connects to nothing yet.

    It is connected before the run (or session) is created, and let go of when that is over, whatever ended it: a
    process that was started for it ends then. A server that cannot be reached is an error before anything is sent; one
    that dies later makes the call a tool error that names it, and the run goes on.

    The catalog goes out as the server gives it. A name that MANTYX would refuse is changed: each character but letters,
    digits and `_` becomes `_`, and beyond 64 characters the first 55 and 8 hex digits remain. Two tools of one run with
    the same name are an error before it is created.

    Args:
        name: What calls name the server by, here and in logs: 1 to 64 of `[a-zA-Z0-9_]`. It is no prefix.
        url: The endpoint of a Streamable HTTP server; or else `command`, or `client`.
        headers: Sent to `url`, such as `Authorization`.
        command: The program of a stdio server, or its whole command line as a list. There is no shell.
        args: Arguments of the program.
        env: Variables for the program beside `PATH`, `HOME` and the like; the others of this process it does not see.
        cwd: The directory it runs in.
        client: An `McpClient` of yours, to be shared and kept open over many runs. It is never closed from here.
        session: A `requests.Session` of yours for `url`: for its proxies, certificates and adapters.
        tool_filter: The server's names of the tools to offer; `None` for all. At most 64 of a server can be offered.
        prefix: Put before each tool's name, unless that begins with it: `"fs_"`. True stands for `name` and `_`.
        timeout: Seconds a call may take. The platform gives up after 300.
        idle_timeout: Seconds a call may go without a word of the server; its progress counts.
        start_timeout: Seconds to connect and read the catalog; the time-out of the run counts as well.
        max_concurrency: How many of its calls may run at once; `None` for no limit of its own.

    Raises:
        MantyxConfigError: Something of this cannot be used.
    """
    where = "define_local_mcp"
    if not isinstance(name, str) or limits.TOOL_NAME.fullmatch(name) is None:
        raise refusal(f"{where}: name", shown(name), f"match {limits.TOOL_NAME.pattern}")
    ways = {"url": url, "command": command, "client": client}
    given = [way for way, value in ways.items() if value]
    if len(given) != 1:
        got = " and ".join(given) if given else "none of them"
        raise MantyxConfigError(f"{where}: url, command and client: got {got}, must be one of the three")
    way = given[0]
    belonging = {"headers": headers, "session": session, "args": args, "env": env, "cwd": cwd}
    for key, value in belonging.items():
        owner = "url" if key in _FROM_URL else "command"
        if value is not None and way != owner:
            raise MantyxConfigError(f"{where}: {key}: given with {way}, goes with {owner} alone")
    http = stdio = None
    if url:
        http = LocalMcpHttpTransport(url, _copied(headers, f"{where}: headers"), session)
    elif command:
        program = command if isinstance(command, str) else _texts(command, f"{where}: command")
        words = None if args is None else _texts(args, f"{where}: args", may_be_empty=True)
        stdio = LocalMcpStdioTransport(program, words, _copied(env, f"{where}: env"), cwd)
    if prefix is True:
        prefix = f"{name}_"
    elif prefix is False or prefix is None:
        prefix = ""
    if not isinstance(prefix, str) or (prefix and limits.TOOL_NAME.fullmatch(prefix) is None):
        raise refusal(f"{where}: prefix", shown(prefix), f"match {limits.TOOL_NAME.pattern}, or be True")
    chosen = None if tool_filter is None else _texts(tool_filter, f"{where}: tool_filter")
    if chosen == ():
        raise refusal(f"{where}: tool_filter", "an empty list", "name at least one tool")
    if max_concurrency is not None:
        whole_number(max_concurrency, f"{where}: max_concurrency", 1)
    if idle_timeout is not None:
        seconds(idle_timeout, f"{where}: idle_timeout")
    made = LocalMcpServer(
        name=name,
        http=http,
        stdio=stdio,
        client=client,
        tool_filter=chosen,
        prefix=prefix,
        timeout=seconds(timeout, f"{where}: timeout"),
        idle_timeout=idle_timeout,
        start_timeout=seconds(start_timeout, f"{where}: start_timeout"),
        max_concurrency=max_concurrency,
    )
    if client is None:
        try:
            made.connect(made.start_timeout).close()  # refuses now what it would refuse when it is made for a run
        except MantyxConfigError as error:
            raise MantyxConfigError(f"{where}: {error.message}") from error
    return made


def is_local_mcp_server(ref: object) -> bool:
    """Tell whether a ref is an MCP server that this process reaches."""
    return isinstance(ref, LocalMcpServer)


def _texts(value: object, where: str, may_be_empty: bool = False) -> Tuple[str, ...]:
    read = string if may_be_empty else text
    return tuple(read(item, f"{where}[{i}]") for i, item in enumerate(sequence(value, where, "strings")))


def _copied(value: Optional[Mapping[str, str]], where: str) -> Optional[Dict[str, str]]:
    if value is not None and not isinstance(value, Mapping):
        raise refusal(where, shown(value), "be a mapping of strings")
    return dict(value) if value else None
