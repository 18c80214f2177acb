"""What a server sends unasked: its requests, its log, its word that a list has changed.

A client without the capabilities behind them refuses requests with "Method not found"; `ping` is answered always,
`roots/list` if there are roots. Callbacks run one at a time, in order, on a thread that exists while there is work for
it: the threads that read from the server never run the caller's code, so a callback may use the client.
"""

from __future__ import annotations

import collections
import contextvars
import logging
import threading
from typing import Any, Callable, Deque, Mapping, Sequence

from ..errors import cut
from .channel import Era
from .errors import McpProtocolError
from .messages import Code, Kind, failure, kind_of_message, success
from .models import McpLogMessage

__all__ = ["Callbacks", "Incoming"]

log = logging.getLogger(__name__)

MAX_WAITING = 10_000
"""How many calls may wait for the callbacks' thread. A server that logs faster than they run loses lines."""


class Callbacks:
    """Runs callbacks in order on a thread of their own, in a copy of the maker's context."""

    def __init__(self) -> None:
        self._context = contextvars.copy_context()
        self._lock = threading.Lock()
        self._waiting: Deque[Callable[[], None]] = collections.deque()
        self._thread: threading.Thread | None = None
        """The one that may take calls: one that finds another here leaves."""
        self._is_running = False
        self._is_closed = False

    def put(self, call: Callable[[], None]) -> bool:
        """Have `call` run soon; tell whether it will be. Does not block."""
        with self._lock:
            if self._is_closed or len(self._waiting) >= MAX_WAITING:
                return False
            self._waiting.append(call)
            return self._is_running or self._start()

    def close(self, timeout: float) -> None:
        """Run no further callback; wait for the one that runs, at most `timeout` seconds."""
        with self._lock:
            self._is_closed = True
            self._waiting.clear()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)

    def _start(self) -> bool:
        # Started and owned by this object; it ends by itself when nothing waits, and `close` joins it.
        # A daemon: a callback that hangs must not keep the interpreter, and there is nothing to save.
        thread = self._thread = threading.Thread(target=self._run, name="mantyx-mcp-callbacks", daemon=True)
        try:
            thread.start()
            self._is_running = True
        except RuntimeError:  # there are too many threads, or the interpreter is ending
            self._thread = None
            self._waiting.clear()
        finally:
            if not self._is_running:  # Ctrl-C: whether it was started is not known, so it is told to leave
                self._thread = None
        return self._is_running

    def _run(self) -> None:
        while True:
            with self._lock:
                if self._thread is not threading.current_thread():
                    return
                if not self._waiting:
                    self._is_running = False
                    return
                call = self._waiting.popleft()
            try:
                self._context.run(call)
            except BaseException:  # `sys.exit` as well: it means this thread, which goes on for the next call
                log.warning("a callback of an MCP client raised", exc_info=True)


class Incoming:
    """Takes what a server sends unasked; see `channel.Receiver`. Any thread may call it; it does not block.

    Args:
        roots: What `roots/list` is answered with; `None` refuses it.
        on_log: Takes the server's log lines.
        on_tools_changed: Called without arguments when the server says that its tools have changed.
    """

    def __init__(
        self,
        *,
        roots: Sequence[Mapping[str, Any]] | None = None,
        on_log: Callable[[McpLogMessage], object] | None = None,
        on_tools_changed: Callable[[], object] | None = None,
    ) -> None:
        self.label = "MCP server"
        """The server, for the log."""
        self._roots = None if roots is None else [dict(root) for root in roots]
        self._on_log = on_log
        self._on_tools_changed = on_tools_changed
        self._callbacks = Callbacks()
        self.tool_changes = 0
        """Grows each time the server says that its tools have changed."""

    def received(self, message: Mapping[str, Any], era: Era) -> Mapping[str, Any] | None:
        """Take a notification or a request; return the response to a request of the handshake era."""
        kind = kind_of_message(message)
        if kind is Kind.REQUEST:
            if era is Era.HANDSHAKE:
                return self._answer(message)
            log.debug("%s: sent the request %s, which has no place here", self.label, cut(message["method"], 80))
        elif kind is Kind.NOTIFICATION:
            params = message.get("params")
            self._note(message["method"], params if isinstance(params, Mapping) else {})
        return None

    def close(self, timeout: float) -> None:
        """Run no further callbacks; wait for the one that runs."""
        self._callbacks.close(timeout)

    def _answer(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        method, request_id = message["method"], message["id"]
        if method == "ping":
            return success(request_id, {})
        if method == "roots/list" and self._roots is not None:
            return success(request_id, {"roots": self._roots})
        log.debug("%s: asked for %s, which is refused", self.label, cut(method, 80))
        return failure(request_id, Code.METHOD_NOT_FOUND, "Method not found")

    def _note(self, method: str, params: Mapping[str, Any]) -> None:
        if method == "notifications/tools/list_changed":
            self.tool_changes += 1
            if self._on_tools_changed is not None:
                self._put(self._on_tools_changed)
        elif method == "notifications/message":
            self._note_log(params)
        # Whatever else it may be is of no use to us: progress of a request that is over, `cancelled` for one of the
        # server's own requests, the acknowledgement of a subscription, or a notification yet to be invented.

    def _note_log(self, params: Mapping[str, Any]) -> None:
        try:
            line = McpLogMessage.from_wire(params)
        except McpProtocolError as error:
            log.debug("%s: %s", self.label, error)
            return
        # What it says may be a tool's arguments or result: that is for the callback alone.
        log.debug("%s: logged a line at level %s", self.label, cut(line.level, 20))
        on_log = self._on_log
        if on_log is not None:
            self._put(lambda: on_log(line))

    def _put(self, call: Callable[[], object]) -> None:
        if not self._callbacks.put(lambda: _ignore(call())):
            log.debug("%s: a notification was dropped: too many wait for their callback", self.label)


def _ignore(_: object) -> None:
    """Drop what a callback returns."""
