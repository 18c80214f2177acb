"""The stand-in without a network: the engine behind the one method of an MCP client that the Loom client needs."""

from __future__ import annotations

import json
import threading
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from mantyx_sync.errors import MantyxNetworkError
from mantyx_sync.mcp.errors import McpCancelled, McpSessionGone
from mantyx_sync.mcp.results import McpResult

from .engine import BadArguments, Engine, Loom, Refused
from .looms import LOOMS


class Caller:
    """Calls the engine's tools in this process, and loses answers on demand."""

    def __init__(self, looms: Mapping[str, Loom] = LOOMS) -> None:
        self.engine = Engine(looms)
        self.calls: List[Tuple[str, Dict[str, Any]]] = []
        self._faults: List[Tuple[str, str]] = []
        self._before: List[Tuple[str, Callable[[], None]]] = []
        self._is_session_over = False
        self._lock = threading.Lock()

    def lose(self, tool: str, when: str, times: int = 1) -> None:
        """Let the next answers of `tool` be lost, `before` the engine carried the call out, or `after`."""
        with self._lock:
            self._faults += [(tool, when)] * times

    def before(self, tool: str, action: Callable[[], None]) -> None:
        """Do something when `tool` is called next, before it is carried out."""
        with self._lock:
            self._before.append((tool, action))

    def restart(self) -> None:
        """Restart the service: the same way to it, another instance."""
        self.engine = self.engine.restarted()

    def forget_session(self) -> None:
        """End the MCP session: the next call is refused unexecuted, what comes then goes over a new one."""
        self._is_session_over = True

    def count(self, tool: str) -> int:
        """How often a tool was called."""
        return sum(name == tool for name, _ in self.calls)

    def effects(self, kind: str) -> List[Any]:
        """The effects of a kind, in order."""
        return [value for name, value in self.engine.effects if name == kind]

    def call_tool(
        self,
        name: str,
        arguments: Optional[Mapping[str, Any]] = None,
        *,
        timeout: Optional[float] = None,
        cancelled: Optional[threading.Event] = None,
    ) -> McpResult:
        """Call a tool as an `McpClient` does."""
        given: Dict[str, Any] = json.loads(json.dumps(dict(arguments or {})))
        with self._lock:
            self.calls.append((name, given))
            actions = [action for tool, action in self._before if tool == name]
            self._before = [pair for pair in self._before if pair[0] != name]
        for action in actions:
            action()
        if self._is_session_over:
            self._is_session_over = False
            raise McpSessionGone(f"{name}: the server has forgotten the session (404)", status=404)
        lost = self._next_fault(name)
        if lost == "before":
            raise MantyxNetworkError(f"{name}: the connection broke")
        result = self._answer(name, given) if cancelled is None else self._wait_for(name, given, cancelled)
        if lost == "after":
            raise MantyxNetworkError(f"{name}: the connection broke")
        return result

    def _next_fault(self, tool: str) -> Optional[str]:
        with self._lock:
            for i, (name, when) in enumerate(self._faults):
                if name == tool:
                    del self._faults[i]
                    return when
        return None

    def _wait_for(self, name: str, given: Dict[str, Any], cancelled: threading.Event) -> McpResult:
        results: List[McpResult] = []
        # Goes on in the background if the caller gives up, as a service does; ends with the tool.
        thread = threading.Thread(target=lambda: results.append(self._answer(name, given)), daemon=True)
        thread.start()
        while thread.is_alive():
            thread.join(0.01)
            if cancelled.is_set() and thread.is_alive():
                raise McpCancelled(f"{name} was cancelled")
        return results[0]

    def _answer(self, name: str, given: Dict[str, Any]) -> McpResult:
        try:
            return _result(self.engine.call(name, given), is_error=False)
        except Refused as refused:
            return _result(refused.payload, is_error=True)
        except BadArguments as error:
            raw = {"content": [{"type": "text", "text": str(error)}], "isError": True}
            return McpResult.from_wire(raw, name)


def _result(body: Mapping[str, Any], *, is_error: bool) -> McpResult:
    text = json.dumps(body)
    raw = {"content": [{"type": "text", "text": text}], "structuredContent": json.loads(text), "isError": is_error}
    return McpResult.from_wire(raw, "loom")
