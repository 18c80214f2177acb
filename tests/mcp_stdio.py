"""Clients of the stdio servers in `mcp_servers/`, and what is left of the processes that they start."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import Any, List, Mapping

from mantyx_sync.mcp.client import McpClient
from mantyx_sync.mcp.process import Grace
from mantyx_sync.mcp.stdio import StdioChannel

__all__ = ["QUICK", "SERVER", "Traces", "client_of", "command", "is_running", "text_of"]

SERVER = Path(__file__).parent / "mcp_servers" / "stdio_server.py"
QUICK = Grace(0.1, 0.1)
"""How long a server of a test may take to end; what is promised is twenty times as much."""

MARK = "MANTYX_TEST_MARK"


def command(*options: str) -> List[str]:
    """Return the command line of the server; see `stdio_server.py` for its options."""
    return [sys.executable, "-S", "-E", str(SERVER), *options]  # without site-packages it starts twice as fast


def client_of(
    *options: str,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    stderr: str = "keep",
    grace: Grace = QUICK,
    **settings: Any,
) -> McpClient:
    """Make a client of the server."""

    def make_channel(receiver: Any) -> Any:
        more = {"max_message_bytes": settings["max_message_bytes"]} if "max_message_bytes" in settings else {}
        return StdioChannel(command(*options), receiver, env=env, cwd=cwd, stderr=stderr, grace=grace, **more)

    settings.setdefault("mode", "stateless" if "stateless" in options else "handshake")
    return McpClient(make_channel, **settings)


def text_of(client: McpClient, tool: str, **arguments: Any) -> str:
    """Call a tool and return its text."""
    return client.call_tool(tool, arguments, timeout=20).text


def is_running(pid: int) -> bool:
    """Tell whether there is such a process; one that waits to be reaped is there only if that is our task."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            state, parent = stat.read().rpartition(")")[2].split()[:2]
    except OSError:
        return False
    return state != "Z" or int(parent) == os.getpid()


class Traces:
    """Everything that may be left behind: processes (found by a variable they all inherit), threads, descriptors."""

    def __init__(self) -> None:
        self.mark = uuid.uuid4().hex
        self.env = {MARK: self.mark}
        self.threads = set(threading.enumerate())
        self.descriptors = self._descriptors()

    def processes(self) -> List[int]:
        """Return the processes with our mark, and zombies of ours."""
        wanted, found = f"{MARK}={self.mark}".encode(), []
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) != os.getpid():
                with contextlib.suppress(OSError):
                    with open(f"/proc/{name}/environ", "rb") as environ:
                        is_marked = wanted in environ.read().split(b"\0")
                    with open(f"/proc/{name}/stat") as stat:
                        state, parent = stat.read().rpartition(")")[2].split()[:2]
                    if is_marked or (state == "Z" and int(parent) == os.getpid()):
                        found.append(int(name))
        return found

    def left(self) -> str:
        """Describe what is left; nothing, in the end."""
        words = [f"process {pid}" for pid in self.processes()]
        words += [f"thread {thread.name}" for thread in set(threading.enumerate()) - self.threads]
        words += [f"descriptor of {what}" for what in set(self._descriptors()) - set(self.descriptors)]
        return ", ".join(words)

    def assert_none(self, within: float = 0.0) -> None:
        """Fail if anything is left after that many seconds."""
        pause, deadline = threading.Event(), time.monotonic() + within
        while self.left() and time.monotonic() < deadline:
            pause.wait(0.01)
        left = self.left()
        assert not left, f"left behind: {left}"

    @staticmethod
    def _descriptors() -> List[str]:
        found = []
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                found.append(os.readlink(f"/proc/self/fd/{name}"))
        return found
