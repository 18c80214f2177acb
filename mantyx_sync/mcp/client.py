"""`McpClient`: one MCP server, for code that blocks."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, Mapping, Sequence, TypeVar

from ..checks import callbacks, json_copy, kind_of, refusal, seconds, shown, string, text
from ..errors import MantyxError, cut
from ..transport.secret import Secret
from ..wire import Fields
from .cancelling import as_cancellation
from .catalog import Catalog, KnownTool, list_all
from .channel import Channel, Era, Receiver, Waiting
from .content import McpResourceContents
from .errors import McpOutputError, McpProtocolError, McpRequestError, McpStatusError
from .incoming import Incoming
from .link import Link, LinkSettings
from .messages import Code
from .models import (
    McpCompletion,
    McpProgress,
    McpPrompt,
    McpResource,
    McpResourceTemplate,
    McpServerInfo,
    McpTool,
    in_mcp_terms,
)
from .options import McpOptionArgs, McpOptions, OnProgress, show_options
from .params import param_headers
from .results import McpPromptResult, McpResult
from .rounds import completed

if TYPE_CHECKING:
    import requests
    from typing_extensions import Unpack

__all__ = ["McpClient"]

log = logging.getLogger(__name__)

ItemT = TypeVar("ItemT")

LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


class McpClient:
    """A client of one MCP server. Make it with `McpClient.stdio(...)` or `McpClient.http(...)`.

        with McpClient.stdio(["my-server", "--flag"], env={"TOKEN": token}) as client:
            print([tool.name for tool in client.list_tools()])
            result = client.call_tool("add", {"a": 1, "b": 2}, timeout=10)
            print("failed:" if result.is_error else "answered:", result.text)

    Making one starts nothing: the server is started, or asked which protocol it speaks, when it is first needed. A
    server that has exited, or has forgotten the session, is opened anew by the next call; calls that were waiting for
    it fail at once. No request is sent twice that the server may have executed.

    Every method blocks; all may be called from many threads at once. In a child of a fork the client opens anew and
    leaves what is the parent's alone. `close()` it, or use it in a `with` statement; one that is dropped frees what it
    holds, without the server's being told.

    What goes wrong with a server is a `McpError` (see `mantyx_sync.mcp.errors`), whichever method meets it: it cannot
    be started or reached, or is lost (`McpConnectionError`, `McpSessionGone`), wants other credentials
    (`McpAuthError`), refuses a request (`McpRequestError`, `McpStatusError`) or breaks the protocol
    (`McpProtocolError`). A time limit that passes is an `McpTimeoutError`.
    """

    @show_options
    def __init__(
        self,
        make_channel: Callable[[Receiver], Channel],
        *,
        sends_headers: bool = False,
        **options: Unpack[McpOptionArgs],
    ) -> None:
        """Make a client over a channel of another kind; `stdio` and `http` are what is usually wanted.

        Args:
            make_channel: Makes a channel (see `mantyx_sync.mcp.channel`) for what takes the server's own messages.
            sends_headers: The channel sends `Outgoing.headers`, as HTTP does.
            **options: See `McpOptions`.

        Raises:
            MantyxConfigError: An option cannot be used.
        """
        maker: Any = make_channel  # an address or a command, at times
        if not callable(maker):
            what_to_use = "be a function; use McpClient.http(url) or McpClient.stdio(command)"
            raise refusal("make_channel", kind_of(maker), what_to_use)
        self._options = given = McpOptions.of(options)
        roots = given.wire_roots

        def make_incoming() -> Incoming:
            return Incoming(roots=roots, on_log=given.on_log, on_tools_changed=given.on_tools_changed)

        settings = LinkSettings(
            mode=given.mode,
            client_info=given.client_info or {},
            capabilities={} if roots is None else {"roots": {}},
            start_timeout=given.start_timeout,
            sends_headers=sends_headers,
            repeats=given.repeat_after_session_end,
        )
        self._link = Link(make_channel, make_incoming, settings)
        if given.on_log is not None:
            # A stateless server logs only if it is asked to; nobody gives a callback to hear nothing.
            self._link.set_log_level("info")
        self._catalog = Catalog(self._link)

    @classmethod
    @show_options
    def stdio(
        cls,
        command: str | Sequence[str],
        args: Sequence[str] = (),
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        stderr: str = "keep",
        **options: Unpack[McpOptionArgs],
    ) -> McpClient:
        """Make a client of a server that is a program, spoken to over its stdin and stdout (mcp-client §3).

        Args:
            command: The program, or a list of the program and its arguments. Never a shell's command line.
            args: Its arguments, after those in `command`.
            env: Variables for it, added to the few harmless ones that it gets of ours (`PATH`, `HOME` and the like).
            cwd: Its working folder.
            stderr: `"keep"` reads it and shows its end if the server dies; `"inherit"` lets it write to ours.
            **options: See `McpOptions`.

        Raises:
            MantyxConfigError: An argument cannot be used.
        """
        from .stdio import StdioChannel

        checked = McpOptions.of(options)
        options["roots"] = checked.roots  # what was given may be an iterator, which cannot be read again

        def make_channel(receiver: Receiver) -> Channel:
            return StdioChannel(
                command,
                receiver,
                args=args,
                env=env,
                cwd=cwd,
                stderr=stderr,
                max_message_bytes=checked.max_message_bytes,
            )

        return cls(make_channel, **options)

    @classmethod
    @show_options
    def http(
        cls,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        session: requests.Session | None = None,
        connect_timeout: float = 10.0,
        **options: Unpack[McpOptionArgs],
    ) -> McpClient:
        """Make a client of a server at a URL, spoken to over Streamable HTTP (mcp-client §4).

        Args:
            url: The server's one endpoint.
            headers: Sent with every request, to that origin alone, such as `Authorization`.
            session: Your own `requests.Session`: its adapters, proxies, CA and client certificate settings, headers
                and response hooks are used, and its `auth` where `headers` has no `Authorization`; its cookies and
                redirect handling are not.
            connect_timeout: Seconds that opening a connection may take; nothing but a deadline ends that earlier, so
                `close` and cancelling may take as long where a server's machine does not answer.
            **options: See `McpOptions`.

        Raises:
            MantyxConfigError: An argument cannot be used.
        """
        from .http import HttpChannel

        checked = McpOptions.of(options)
        options["roots"] = checked.roots  # what was given may be an iterator, which cannot be read again

        def make_channel(receiver: Receiver) -> Channel:
            return HttpChannel(
                url,
                receiver,
                headers=headers,
                session=session,
                connect_timeout=connect_timeout,
                max_message_bytes=checked.max_message_bytes,
            )

        return cls(make_channel, sends_headers=True, **options)

    def __enter__(self) -> McpClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<McpClient of {self._link.label}{', closed' if self._link.is_closed else ''}>"

    def open(self, *, timeout: float | None = None) -> McpServerInfo:
        """Open the server now instead of at first use, and return what it says about itself.

        Args:
            timeout: Seconds to wait; `None` is the client's `timeout`.

        Raises:
            McpVersionError: No protocol version in common.
            McpConnectionError: It cannot be started or reached.
            McpAuthError: It wants other credentials.
            McpTimeoutError: It was not open in time.
        """
        with self._waiting(timeout) as waiting:
            return self._link.describe(waiting)

    def close(self) -> None:
        """Shut the server or session down and free everything; calls that wait fail. Again does nothing.

        Blocks some seconds at most. A closed client cannot be used again.
        """
        self._link.close()

    @property
    def server(self) -> McpServerInfo:
        """What the server says about itself; opens it if need be (see `open`)."""
        return self.open()

    @property
    def repeats_after_session_end(self) -> bool:
        """The option `repeat_after_session_end`."""
        return self._options.repeat_after_session_end

    def list_tools(self, *, refresh: bool = False, timeout: float | None = None) -> tuple[McpTool, ...]:
        """Return all tools of the server, in its order (mcp-client §6.1).

        The last list is used again where the server's word allows: for as long as it said (`ttlMs`), or, of a server
        that announces changes (`listChanged`), until it has announced one. A tool that cannot be read, or that breaks
        the rules for arguments in headers, is left out with a warning in the log.

        Args:
            refresh: Ask the server in any case.
            timeout: Seconds to wait; `None` is the client's `timeout`.
        """
        with self._waiting(timeout) as waiting:
            return self._catalog.tools(waiting, refresh=refresh)

    def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        idle_timeout: float | None = None,
        on_progress: OnProgress | None = None,
        cancelled: threading.Event | None = None,
    ) -> McpResult:
        """Call a tool and return its result, which may be that it failed: look at `is_error` (mcp-client §6.2).

        The tools are listed first if they were not listed yet, or have changed: the server may want arguments in
        headers, and structured content is checked against the tool's output schema.

        Args:
            name: The tool, as `list_tools` names it.
            arguments: Its arguments, a JSON object.
            timeout: Seconds for the whole call; `None` is the client's `timeout`, infinity sets no limit.
            idle_timeout: Seconds without a message for this call; `None` is the client's `idle_timeout`.
            on_progress: Takes its progress, on this thread; it may use the client.
            cancelled: Setting it cancels the call: a `Cancellation`, or any `threading.Event`.

        Raises:
            MantyxConfigError: The arguments cannot be used; nothing was sent.
            McpRequestError: The server refused the request, for instance because it has no such tool.
            McpOutputError: The structured content does not fit the tool's output schema. `text` and `result` have it.
            McpInputRequired: The tool wants input from a person or a model, which is not supported.
            McpSessionGone: The session was over, again or with `repeat_after_session_end=False`; the tool did not run.
            McpConnectionError: The server exited or the connection broke; whether the tool ran is not known.
            McpTimeoutError: A time limit passed; the server was told to stop, if it had been asked.
            McpCancelled: `cancelled` was set; the server was told to stop, if it had been asked.
        """
        text(name, "name")
        given = _arguments(arguments)
        with self._waiting(timeout, idle_timeout, on_progress, cancelled, "tools/call", name) as waiting:
            started = time.monotonic()
            known = self._known(name, waiting)
            try:
                raw = self._call_tool(name, given, known, waiting)
            except McpRequestError as error:
                if error.rpc_code != Code.HEADER_MISMATCH:
                    raise
                # Refused unexecuted: the headers were not those that the tool wants by now.
                known = self._known(name, waiting, after=started)
                raw = self._call_tool(name, given, known, waiting)
            result = McpResult.from_wire(raw, f"{self._link.label}: tools/call")
            if known is not None and not result.is_error:
                self._check_output(known, result, waiting, started)
            return result

    def list_resources(self, *, timeout: float | None = None) -> tuple[McpResource, ...]:
        """Return all resources of the server (`resources/list`); none if it does not offer any."""
        return self._list("resources", "resources/list", "resources", McpResource.from_wire, timeout)

    def list_resource_templates(self, *, timeout: float | None = None) -> tuple[McpResourceTemplate, ...]:
        """Return all resource templates of the server (`resources/templates/list`)."""
        method, key = "resources/templates/list", "resourceTemplates"
        return self._list("resources", method, key, McpResourceTemplate.from_wire, timeout)

    def read_resource(self, uri: str, *, timeout: float | None = None) -> tuple[McpResourceContents, ...]:
        """Return what is in a resource (`resources/read`); a folder may give several parts.

        Raises:
            McpRequestError: The server refused, for instance because it has no such resource.
        """
        text(uri, "uri")
        with self._waiting(timeout, method="resources/read", name=uri) as waiting:
            result = self._completed("resources/read", {"uri": uri}, waiting)
            where = f"{self._link.label}: resources/read"
            with in_mcp_terms():
                parts = Fields(result, where).objects("contents")
            return tuple(McpResourceContents.from_wire(part.data, part.where) for part in parts)

    def list_prompts(self, *, timeout: float | None = None) -> tuple[McpPrompt, ...]:
        """Return all prompts of the server (`prompts/list`); none if it does not offer any."""
        return self._list("prompts", "prompts/list", "prompts", McpPrompt.from_wire, timeout)

    def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, *, timeout: float | None = None
    ) -> McpPromptResult:
        """Return the messages of a prompt (`prompts/get`).

        Args:
            name: The prompt, as `list_prompts` names it.
            arguments: Its arguments; values are text.
            timeout: Seconds to wait; `None` is the client's `timeout`.
        """
        text(name, "name")
        params: Dict[str, Any] = {"name": name}
        if arguments:
            params["arguments"] = _texts(arguments, "arguments")
        with self._waiting(timeout, method="prompts/get", name=name) as waiting:
            result = self._completed("prompts/get", params, waiting)
            return McpPromptResult.from_wire(result, f"{self._link.label}: prompts/get")

    def complete(
        self,
        argument: str,
        value: str,
        *,
        prompt: str | None = None,
        uri_template: str | None = None,
        context: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> McpCompletion:
        """Ask what could stand for an argument of a prompt or of a resource template (`completion/complete`).

        Args:
            argument: The argument's name.
            value: What was typed so far.
            prompt: The prompt it belongs to, or else
            uri_template: the resource template.
            context: The other arguments that are known already.
            timeout: Seconds to wait; `None` is the client's `timeout`.
        """
        if (prompt is None) == (uri_template is None):
            raise refusal("prompt", "both or neither of prompt and uri_template", "be one of the two")
        ref = {"type": "ref/resource", "uri": text(uri_template, "uri_template")} if prompt is None else {}
        params: Dict[str, Any] = {
            "ref": ref or {"type": "ref/prompt", "name": text(prompt, "prompt")},
            "argument": {"name": text(argument, "argument"), "value": string(value, "value")},
        }
        if context:
            params["context"] = {"arguments": _texts(context, "context")}
        with self._waiting(timeout) as waiting:
            result, _ = self._link.call("completion/complete", params, waiting)
        return McpCompletion.from_wire(result, f"{self._link.label}: completion/complete")

    def ping(self, *, timeout: float | None = None) -> None:
        """Return if the server answers: `ping`, or in the stateless era, which has none, `server/discover`."""
        with self._waiting(timeout) as waiting:
            is_stateless = self._link.line(waiting).era is Era.STATELESS
            self._link.call("server/discover" if is_stateless else "ping", {}, waiting)

    def set_log_level(self, level: str, *, timeout: float | None = None) -> None:
        """Ask the server for log lines of this level and above; they go to `on_log`.

        In the stateless era nothing is sent now: every request from here on says it.

        Args:
            level: `debug`, `info`, `notice`, `warning`, `error`, `critical`, `alert` or `emergency`.
            timeout: Seconds to wait; `None` is the client's `timeout`.
        """
        if level not in LOG_LEVELS:
            raise refusal("level", shown(level), f"be one of {', '.join(LOG_LEVELS)}")
        with self._waiting(timeout) as waiting:
            if self._link.line(waiting).era is Era.HANDSHAKE:
                self._link.call("logging/setLevel", {"level": level}, waiting)
        self._link.set_log_level(level)

    def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        idle_timeout: float | None = None,
        on_progress: OnProgress | None = None,
        cancelled: threading.Event | None = None,
    ) -> Dict[str, Any]:
        """Send a request that there is no method for here, and return its result as it comes.

        Args:
            method: Such as `"tasks/get"`.
            params: Its params; the `_meta` that the protocol wants is added.
            timeout: As for `call_tool`, like the others.
        """
        text(method, "method")
        if params is not None and not isinstance(params, Mapping):
            raise refusal("params", kind_of(params), "be a mapping")
        given: Dict[str, Any] = json_copy(params or {}, "params")
        with self._waiting(timeout, idle_timeout, on_progress, cancelled, method) as waiting:
            result, _ = self._link.call(method, given, waiting)
            return dict(result)

    # ------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _waiting(
        self,
        timeout: float | None,
        idle_timeout: float | None = None,
        on_progress: OnProgress | None = None,
        cancelled: threading.Event | None = None,
        method: str = "",
        name: str | None = None,
    ) -> Iterator[Waiting]:
        options = self._options
        callbacks(on_progress=on_progress)
        timeout = options.timeout if timeout is None else seconds(timeout, "timeout")
        idle_timeout = options.idle_timeout if idle_timeout is None else seconds(idle_timeout, "idle_timeout")
        deadline = None
        if timeout is not None and timeout <= threading.TIMEOUT_MAX:
            deadline = time.monotonic() + timeout
        on_progress = on_progress or (options.on_progress if method else None)
        with as_cancellation(cancelled) as cancellation:
            yield Waiting(deadline, idle_timeout, cancellation, _progress_taker(on_progress, method, name))

    def _completed(
        self, method: str, params: Mapping[str, Any], waiting: Waiting, headers: Mapping[str, str] | None = None
    ) -> Mapping[str, Any]:
        link = self._link
        return completed(
            lambda given: link.call(method, given, waiting, headers),
            params,
            waiting,
            roots=self._options.wire_roots,
            label=link.label,
            method=method,
        )

    def _list(
        self,
        capability: str,
        method: str,
        key: str,
        read: Callable[[object, str], ItemT],
        timeout: float | None,
    ) -> tuple[ItemT, ...]:
        with self._waiting(timeout) as waiting:
            server = self._link.line(waiting).server
            if server is not None and capability not in server.capabilities:
                return ()
            return list_all(self._link, method, key, read, waiting)

    def _known(self, name: str, waiting: Waiting, after: float | None = None) -> KnownTool | None:
        quiet = Waiting(waiting.deadline, waiting.idle_timeout, waiting.cancelled)
        try:
            return self._catalog.known(name, quiet, after=after)
        except (McpRequestError, McpProtocolError, McpStatusError) as error:
            # The tool may work all the same.
            log.info("%s: the tools could not be listed before a call: %s", self._link.label, error)
            return None

    def _call_tool(
        self, name: str, arguments: Mapping[str, Any], known: KnownTool | None, waiting: Waiting
    ) -> Mapping[str, Any]:
        headers = param_headers(known.params, arguments) if known is not None else None
        return self._completed("tools/call", {"name": name, "arguments": arguments}, waiting, headers)

    def _check_output(self, known: KnownTool, result: McpResult, waiting: Waiting, started: float) -> None:
        label, has_output = self._link.label, result.has_structured_content
        problem = known.output_problem(has_output, result.structured_content, label)
        if problem is not None:
            # The tool may have changed since it was listed.
            with contextlib.suppress(MantyxError):
                again = self._known(known.tool.name, waiting, after=started)
                problem = again.output_problem(has_output, result.structured_content, label) if again else problem
        if problem is not None:
            name = known.tool.name
            raise McpOutputError(
                f"{label}: the structured content of tool {cut(name, 80)!r} does not fit its output schema: {problem}. "
                "The tool ran; its result is on this error.",
                tool_name=name,
                result=result,
            )


def _progress_taker(
    on_progress: OnProgress | None, method: str, name: str | None
) -> Callable[[Mapping[str, Any]], None] | None:
    if on_progress is None:
        return None

    def take(params: Mapping[str, Any]) -> None:
        try:
            progress = McpProgress.from_wire(params, method, name)
        except McpProtocolError as error:
            log.debug("progress that cannot be read: %s", error)
            return
        try:
            on_progress(progress)
        except Exception:
            log.warning("the progress callback of an MCP call raised", exc_info=True)

    return take


def _arguments(given: object) -> Dict[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise refusal("arguments", kind_of(given), "be a mapping of names to JSON values")
    copied: Dict[str, Any] = json_copy(given, "arguments")
    # A credential among them stays hidden: error trackers record the locals of frames.
    copied.update({key: value for key, value in given.items() if isinstance(value, Secret)})
    return copied


def _texts(given: object, where: str) -> Dict[str, str]:
    if not isinstance(given, Mapping):
        raise refusal(where, kind_of(given), "be a mapping of names to strings")
    return {string(key, f"{where}: a name"): string(value, f"{where}.{key}") for key, value in given.items()}
