"""The way to one server: opened when it is first needed, once for all threads, and opened again when it was lost."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import os
import threading
import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, Mapping, Optional

from ..errors import MantyxError, cut
from .channel import Channel, Era, Outgoing, Receiver, Waiting
from .errors import McpConnectionError, McpError, McpRequestError, McpSessionGone, McpVersionError
from .incoming import Incoming
from .link_state import Attempt, Line, LinkState
from .messages import STATELESS_VERSIONS, Code, notification, request, response_result
from .models import McpServerInfo
from .opening import Initialize, Opened, Opening, Probe
from .params import header_text

__all__ = ["Link", "LinkSettings"]

log = logging.getLogger(__name__)

PROBE_TIMEOUT_S = 10.0
"""How long `server/discover` may take before the handshake is tried; at most half of the time there is."""

CLOSE_TIMEOUT_S = 10.0
"""How long `close` waits for a thread that is opening the server, or for a callback."""

_META = "io.modelcontextprotocol/"
_NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


@dataclass(frozen=True)
class LinkSettings:
    """What does not change while a client lives."""

    mode: str
    client_info: Mapping[str, Any]
    capabilities: Mapping[str, Any]
    start_timeout: float
    sends_headers: bool
    repeats: bool = True


@dataclass
class _Memory:
    """What was learned about the server; it outlives a session, a process and a fork."""

    era: Optional[Era] = None
    log_level: Optional[str] = None


class Link:
    """Send requests to one server. Any thread may use it.

    Args:
        make_channel: Makes a channel; called again after a failed opening, and in the child of a fork.
        make_incoming: Makes what takes the server's own messages.
        settings: See `LinkSettings`.
    """

    def __init__(
        self,
        make_channel: Callable[[Receiver], Channel],
        make_incoming: Callable[[], Incoming],
        settings: LinkSettings,
    ) -> None:
        self.settings = settings
        self._make_channel = make_channel
        self._make_incoming = make_incoming
        self._memory = _Memory()
        self._ids = itertools.count(1)
        self._states: Dict[int, LinkState] = {}  # by process: no thread, lock or channel survives a fork
        # Made here, although nothing is opened yet: it refuses what it was given if that cannot be used.
        channel, _ = self._channel(self._own_state())
        self.label = channel.label

    def line(self, waiting: Waiting, lost: Line | None = None) -> Line:
        """Return the open line; open it first, or wait while another thread does.

        Args:
            waiting: How long to wait.
            lost: A line that has turned out to be dead: return another one.

        Raises:
            MantyxError: The server cannot be opened; or as `wait_for` does.
        """
        state = self._own_state()
        with state.lock:
            if state.is_closed:
                what = "the client was closed: make another one, or close it later"
                raise McpError(f"{self.label}: {what}", code="closed")
            if state.line is not None and state.line is not lost:
                return state.line
            state.line = None
            if state.attempt is None:
                self._begin(state)
            attempt = state.attempt
            assert attempt is not None
        return attempt.wait(waiting, self.label)

    def call(
        self, method: str, params: Mapping[str, Any], waiting: Waiting, headers: Mapping[str, str] | None = None
    ) -> tuple[Mapping[str, Any], Line]:
        """Send a request; return its result and the line it came over.

        It is sent a second time only where the server surely did not execute it: its session was over, or it does
        not speak the version any more. With `repeats` off it is not, and what comes next opens the server anew.

        Args:
            method: Such as `tools/list`.
            params: Without the `_meta` that the era wants.
            waiting: How long to wait; with `on_progress` or `idle_timeout`, progress is asked for.
            headers: Further headers, for HTTP in the stateless era.
        """
        line, is_repeated = self.line(waiting), False
        while True:
            try:
                response = line.channel.exchange(self._outgoing(line, method, params, waiting, headers), waiting)
                return response_result(response, method, self.label), line
            except McpSessionGone as error:
                self._drop(line)
                if is_repeated or not self.settings.repeats:
                    raise
                log.info("%s: opened anew: %s", self.label, error)
            except McpRequestError as error:
                if error.rpc_code != Code.UNSUPPORTED_VERSION:
                    raise
                if is_repeated or self.settings.mode != "auto":
                    raise _other_version(error, line.version, self.label) from error
                self._memory.era = None
                if not self.settings.repeats:
                    self._drop(line)
                    what = f"{self.label}: no longer speaks version {line.version}; {method} was not executed"
                    raise McpSessionGone(what) from error
                log.info("%s: no longer speaks version %s; opened anew", self.label, line.version)
            is_repeated = True
            line = self.line(waiting, lost=line)

    def _drop(self, line: Line) -> None:
        """Have the next call open another line than this one."""
        state = self._own_state()
        with state.lock:
            if state.line is line:
                state.line = None

    def describe(self, waiting: Waiting) -> McpServerInfo:
        """Return what the server says about itself; asks for it where opening did not need to."""
        line = self.line(waiting)
        if line.server is not None:
            return line.server
        result, line = self.call("server/discover", {}, waiting)
        server = McpServerInfo.of_discovery(result, line.version, self.label)
        state = self._own_state()
        with state.lock:
            if state.line is line:
                state.line = dataclasses.replace(line, server=server)
        return server

    def set_log_level(self, level: str | None) -> None:
        """Note the level to ask log lines for: stateless in each request, else whenever a session begins."""
        self._memory.log_level = level

    def close(self) -> None:
        """Close the channel; calls that wait fail. Blocks a bounded time; again does nothing."""
        state = self._own_state()
        with state.lock:
            is_first, state.is_closed = not state.is_closed, True
            channel, incoming, attempt = state.channel, state.incoming, state.attempt
            state.line = state.attempt = None
            threads = list(state.threads)
        if not is_first:
            return
        if attempt is not None:
            attempt.finish(None, McpError(f"{self.label}: the client was closed", code="closed"))
        try:
            if channel is not None:
                channel.close()
        finally:
            deadline = time.monotonic() + CLOSE_TIMEOUT_S
            if incoming is not None:
                incoming.close(CLOSE_TIMEOUT_S)
            for thread in threads:
                if thread is not threading.current_thread():
                    thread.join(max(0.0, deadline - time.monotonic()))

    @property
    def is_closed(self) -> bool:
        """True once it was closed."""
        return self._own_state().is_closed

    def _own_state(self) -> LinkState:
        pid = os.getpid()
        state = self._states.get(pid)
        if state is None:
            # What is the parent's is kept, untouched: letting go of its channel could end the parent's server.
            is_closed = any(other.is_closed for other in list(self._states.values()))
            state = self._states.setdefault(pid, LinkState(is_closed=is_closed))
        return state

    def _begin(self, state: LinkState) -> None:
        """Start an opening; the state's lock is held."""
        attempt = state.attempt = Attempt()
        # Owned by this object. It ends with the opening, which `start_timeout` bounds, or when `close` closes the
        # channel below it; `close` joins it. On a thread of its own, because those who wait have deadlines of their
        # own: a short one must not end a slow start that others wait for. A daemon: nothing is lost at exit.
        thread = threading.Thread(target=self._open, args=(state, attempt), name="mantyx-mcp-open", daemon=True)
        state.threads = [other for other in state.threads if other.is_alive()]
        state.threads.append(thread)
        try:
            thread.start()
        except RuntimeError as error:  # there are too many, or the interpreter is ending
            state.attempt = None
            state.threads.remove(thread)
            text = f"{self.label} could not be opened: there is no thread for it ({error})"
            raise McpConnectionError(text, sent=False, cause=error) from error
        except BaseException:  # Ctrl-C: it may have been started, and finds itself unwanted
            state.attempt = None
            raise

    def _open(self, state: LinkState, attempt: Attempt) -> None:
        with state.lock:
            if state.attempt is not attempt:  # by `close`, which tells those who wait, or before anybody waited
                return
        channel: Channel | None = None
        line, failure = None, None
        try:
            channel, incoming = self._channel(state)
            line = self._opened(channel, incoming)
        except BaseException as error:  # it is raised where it is waited for
            failure = error
        with state.lock:
            is_wanted = state.attempt is attempt
            if is_wanted:
                state.attempt, state.line = None, line
                if failure is not None:
                    state.channel = None
        attempt.finish(line, failure)
        if failure is not None and is_wanted and channel is not None:
            # Half-open is of no use: the next call begins with a new process or session.
            try:
                channel.close()
            except Exception:
                log.exception("%s: its channel could not be closed", self.label)

    def _channel(self, state: LinkState) -> tuple[Channel, Incoming]:
        with state.lock:
            if state.is_closed:
                raise McpError(f"{self.label}: the client was closed", code="closed")
            if state.incoming is None:
                state.incoming = self._make_incoming()
            if state.channel is None:
                state.channel = self._make_channel(state.incoming)
                state.incoming.label = state.channel.label
            return state.channel, state.incoming

    def _opened(self, channel: Channel, incoming: Incoming) -> Line:
        if self.settings.mode == "stateless":
            channel.opened(Era.STATELESS, STATELESS_VERSIONS[0])
            return Line(channel, incoming, Era.STATELESS, STATELESS_VERSIONS[0])
        deadline = time.monotonic() + self.settings.start_timeout
        opened = self._negotiated(channel, deadline)
        self._memory.era = opened.era
        log.debug("%s: speaks version %s", self.label, opened.version)
        if opened.era is Era.STATELESS:
            channel.opened(opened.era, opened.version)
            return Line(channel, incoming, opened.era, opened.version, opened.server)
        line = Line(channel, incoming, opened.era, opened.version, opened.server, channel.generation)
        channel.notify(notification("notifications/initialized"), opened.era, opened.version, deadline)
        channel.opened(opened.era, opened.version)
        self._resume_log(line, Waiting(deadline))
        return line

    def _resume_log(self, line: Line, waiting: Waiting) -> None:
        level, server = self._memory.log_level, line.server
        if level is not None and server is not None and "logging" in server.capabilities:
            try:
                line.channel.exchange(
                    self._outgoing(line, "logging/setLevel", {"level": level}, waiting, None), waiting
                )
            except MantyxError as error:  # a log that stays silent is no reason to have no tools
                log.info("%s: its log level could not be set: %s", self.label, error)

    def _negotiated(self, channel: Channel, deadline: float) -> Opened:
        opening = Opening(self.label, self.settings.mode, self._memory.era)
        while True:
            step = opening.step
            if isinstance(step, Opened):
                return step
            until = deadline
            if isinstance(step, Probe):
                left = deadline - time.monotonic()
                until = time.monotonic() + min(PROBE_TIMEOUT_S, left / 2)
            try:
                response = channel.exchange(self._opening_request(step), Waiting(until))
            except MantyxError as error:
                opening.failed(error)
            else:
                opening.answered(response)

    def _opening_request(self, step: Probe | Initialize) -> Outgoing:
        settings = self.settings
        if isinstance(step, Probe):
            message = request(next(self._ids), "server/discover", {"_meta": self._stateless_meta(step.version)})
            headers = {"Mcp-Method": "server/discover"}
            return Outgoing(message, Era.STATELESS, headers, step.version, may_cancel=False)
        params = {
            "protocolVersion": step.version,
            "capabilities": settings.capabilities,
            "clientInfo": settings.client_info,
        }
        return Outgoing(request(next(self._ids), "initialize", params), Era.HANDSHAKE, may_cancel=False)

    def _outgoing(
        self,
        line: Line,
        method: str,
        params: Mapping[str, Any],
        waiting: Waiting,
        extra_headers: Mapping[str, str] | None,
    ) -> Outgoing:
        request_id = next(self._ids)
        meta: Dict[str, Any] = {}
        headers: Dict[str, str] = {}
        if line.era is Era.STATELESS:
            meta = self._stateless_meta(line.version)
            if self._memory.log_level is not None:
                meta[f"{_META}logLevel"] = self._memory.log_level
            if self.settings.sends_headers:
                headers["Mcp-Method"] = method
                name = params.get(_NAMED_BY.get(method, ""))
                if isinstance(name, str):
                    headers["Mcp-Name"] = header_text(name)
                headers.update(extra_headers or {})
        if waiting.on_progress is not None or waiting.idle_timeout is not None:
            meta["progressToken"] = request_id
        if meta:
            given = params.get("_meta")
            params = {**params, "_meta": {**(given if isinstance(given, Mapping) else {}), **meta}}
        return Outgoing(
            request(request_id, method, params), line.era, headers, line.version, generation=line.generation
        )

    def _stateless_meta(self, version: str) -> Dict[str, Any]:
        return {
            f"{_META}protocolVersion": version,
            f"{_META}clientInfo": self.settings.client_info,
            f"{_META}clientCapabilities": self.settings.capabilities,
        }


def _other_version(error: McpRequestError, version: str, label: str) -> McpVersionError:
    data = error.data
    supported = data.get("supported") if isinstance(data, Mapping) else None
    named = [item for item in supported if isinstance(item, str)] if isinstance(supported, list) else []
    theirs = f"supports {cut(', '.join(named), 200)}" if named else "does not say what it supports"
    return McpVersionError(f"{label} does not speak protocol version {version}; it {theirs}", supported=named)
