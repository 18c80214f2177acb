"""The `mcp` and `a2a` tools of a run, which this server reaches itself (wire §3, http §4).

An MCP server is asked for its catalog when the run starts; its tools go by `<name>_<tool>` (characters that a tool's
name must not have become `_`), those of `toolFilter` alone if there is one. Of an A2A agent the card is read; what the
model tells it is one conversation, the one that `contextId` names if it is given. What cannot be reached by then is
logged, and its tools are not offered: the documents do not say what else. A call that fails later is an error for the
model. Connections end with the run.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Protocol

from mantyx_sync import limits
from mantyx_sync.local.model import ToolDeclaration
from mantyx_sync.local.store import Run, ToolAnswer

if TYPE_CHECKING:
    from mantyx_sync.a2a import A2AClient
    from mantyx_sync.mcp.client import McpClient

__all__ = ["RemoteTool", "RemoteTools", "describe_card"]

_log = logging.getLogger(__name__)

START_TIMEOUT_S = 10.0
CALL_TIMEOUT_S = limits.LOCAL_TOOL_TIMEOUT_S
_SLICE_S = 0.05
MAX_AGENT_CARD_SKILLS = 12

Answer = Callable[[Mapping[str, Any]], ToolAnswer]


class RemoteTool:
    """One tool: what the model sees of it, and what answers its calls. Answering blocks, and never raises."""

    def __init__(self, declaration: ToolDeclaration, answer: Answer) -> None:
        self.declaration = declaration
        self.answer = answer


class _Peer(Protocol):
    def tools(self) -> List[RemoteTool]: ...
    def close(self) -> None: ...


class RemoteTools:
    """The servers and agents of one run. Opened and closed on the run's thread."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._stopped = _Stopped(run)
        self._peers: List[_Peer] = []
        self._found: Dict[int, List[RemoteTool]] = {}

    def open(self) -> None:
        """Reach all of them at once. Blocks until that is done, has failed, or the run is to stop."""
        threads = []
        for i, ref in enumerate(self._run.spec.get("tools") or ()):
            if ref.get("kind") in ("mcp", "a2a"):
                # Owned by this call: it ends with the opening, which has a time limit, or when `close` cuts that short.
                thread = threading.Thread(target=self._open, args=(i, ref), name=f"mantyx-remote-{i}", daemon=True)
                threads.append(thread)
                thread.start()
        for thread in threads:
            while thread.is_alive() and not self._stopped.is_set():
                thread.join(_SLICE_S)

    def of(self, index: int) -> List[RemoteTool]:
        """Return the tools of the ref at that place of the spec; none of one that could not be reached."""
        return self._found.get(index, [])

    def close(self) -> None:
        """Let go of every connection; blocks a bounded time."""
        for peer in self._peers:
            try:
                peer.close()
            except Exception:
                _log.warning("run %s: a connection could not be closed", self._run.id, exc_info=True)

    def _open(self, index: int, ref: Mapping[str, Any]) -> None:
        try:
            peer: _Peer = (_McpPeer if ref["kind"] == "mcp" else _A2APeer)(ref, self._stopped)
            self._peers.append(peer)
            self._found[index] = peer.tools()
        except Exception as error:
            _log.warning("run %s: the %s tool %r is not offered: %s", self._run.id, ref["kind"], ref.get("name"), error)


class _Stopped(threading.Event):
    """Set when the run is to stop: it was cancelled, or the server stops."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self._run = run

    def is_set(self) -> bool:
        return self._run.cancelled.is_set() or self._run.abandoned.is_set()


class _McpPeer:
    def __init__(self, ref: Mapping[str, Any], stopped: threading.Event) -> None:
        from mantyx_sync.mcp.client import McpClient

        self._label = f"MCP server {ref['name']!r}"
        self._ref = ref
        self._stopped = stopped
        self._client: McpClient = McpClient.http(ref["url"], headers=ref.get("headers"), start_timeout=START_TIMEOUT_S)

    def tools(self) -> List[RemoteTool]:
        from mantyx_sync.mcp.names import model_name

        until = time.monotonic() + START_TIMEOUT_S
        self._client.open(timeout=START_TIMEOUT_S)
        offered = self._client.list_tools(timeout=max(0.001, until - time.monotonic()))
        wanted = self._ref.get("toolFilter")
        found: Dict[str, RemoteTool] = {}
        for tool in offered:
            if wanted is not None and tool.name not in wanted:
                continue
            name = model_name(f"{self._ref['name']}_{tool.name}")
            if name in found:
                _log.warning("%s: two of its tools would be %r; the second is not offered", self._label, name)
                continue
            schema = tool.input_schema if tool.input_schema.get("type") == "object" else {"type": "object"}
            found[name] = RemoteTool(ToolDeclaration(name, tool.description or "", schema), self._answerer(tool.name))
        return list(found.values())

    def close(self) -> None:
        self._client.close()

    def _answerer(self, tool: str) -> Answer:
        return lambda arguments: self._answer(tool, arguments)

    def _answer(self, tool: str, arguments: Mapping[str, Any]) -> ToolAnswer:
        from mantyx_sync.mcp.resolved import server_failure

        try:
            result = self._client.call_tool(tool, arguments, timeout=CALL_TIMEOUT_S, cancelled=self._stopped)
            if result.is_error:
                return ToolAnswer(result.text or "the tool failed without saying why", is_error=True)
            rendered = result.to_tool_result()
            return ToolAnswer(rendered.result, files=_files(rendered.files))
        except Exception as error:
            _log.warning("%s: %s", self._label, error)
            return ToolAnswer(server_failure(error, self._label, CALL_TIMEOUT_S), is_error=True)


class _A2APeer:
    def __init__(self, ref: Mapping[str, Any], stopped: threading.Event) -> None:
        from mantyx_sync.a2a import A2AClient

        self._label = f"A2A agent {ref['name']!r}"
        self._ref = ref
        self._stopped = stopped
        self._client: A2AClient = A2AClient(
            ref["agentCardUrl"], headers=ref.get("headers"), timeout=START_TIMEOUT_S, max_retries=0
        )
        self._context_id: Optional[str] = ref.get("contextId")
        self._task_id: Optional[str] = None

    def tools(self) -> List[RemoteTool]:
        description = self._ref.get("description") or describe_card(self._client.card.raw)
        schema = {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]}
        return [RemoteTool(ToolDeclaration(self._ref["name"], description, schema), self._answer)]

    def close(self) -> None:
        self._client.close()

    def _answer(self, arguments: Mapping[str, Any]) -> ToolAnswer:
        from mantyx_sync.a2a.client.resolved import agent_failure

        task_id, self._task_id = self._task_id, None
        try:
            reply = self._client.send(
                arguments["message"],
                context_id=self._context_id,
                task_id=task_id,
                timeout=CALL_TIMEOUT_S,
                cancelled=self._stopped,
            )
            self._context_id = reply.context_id or self._context_id
            self._task_id = reply.task_id if reply.needs_input else None
            rendered = reply.to_tool_result()
            return ToolAnswer(rendered.result, files=_files(rendered.files))
        except Exception as error:
            _log.warning("%s: %s", self._label, error)
            return ToolAnswer(agent_failure(error, self._label, CALL_TIMEOUT_S), is_error=True)


def describe_card(card: Mapping[str, Any]) -> str:
    """Say to the model what an agent is for, as the platform does (wire §3.2)."""
    text = f"Delegate a task to {card.get('name', 'the agent')}: {card.get('description', '')}".rstrip(": ")
    skills = [skill for skill in card.get("skills") or () if isinstance(skill, Mapping)]
    for skill in skills[:MAX_AGENT_CARD_SKILLS]:
        text += f"\n- {skill.get('name', skill.get('id', ''))}: {skill.get('description', '')}"
    return text


def _files(files: Any) -> tuple[Mapping[str, Any], ...]:
    return tuple({**file.to_wire(), "sizeBytes": file.size_bytes} for file in files or ())
