"""The Loom stand-in as a process, a client of it, and the wishes of the tests."""

from __future__ import annotations

import contextlib
import json
import threading
import urllib.request
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, Tuple

from mantyx_sync.loom import LoomClient

from .peers import program, python_of

__all__ = ["Double", "OverHttp", "double"]

ROOT = Path(__file__).parent.parent.parent
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Double:
    """A running stand-in."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        self.url: str = told["url"]
        self.token: str = told["token"]
        self.instance_id: str = told["instanceId"]
        self.pid: int = told["pid"]

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1].partition("/")[0])

    def wish(self, **wishes: Any) -> Dict[str, Any]:
        """Let something happen; return what the stand-in tells of itself."""
        request = urllib.request.Request(
            self.url.replace("/mcp", "/_test"),
            data=json.dumps(wishes).encode(),
            headers={"Authorization": f"Bearer {self.token}"},
            method="POST",
        )
        with DIRECT.open(request, timeout=20) as answer:
            found: Dict[str, Any] = json.load(answer)
        self.instance_id = found["instanceId"]
        return found

    def effects(self, kind: str) -> List[Any]:
        return [value for name, value in self.wish()["effects"] if name == kind]

    def connect(self, **options: Any) -> LoomClient:
        return LoomClient.connect(url=self.url, token=self.token, **{"timeout": 20.0, **options})


@contextlib.contextmanager
def double(environment: str, *arguments: str) -> Iterator[Double]:
    """Run the stand-in on the MCP package of an environment."""
    with program([python_of(environment), "-m", "tests.loom_double.server", *arguments], cwd=ROOT) as running:
        yield Double(json.loads(running.line()))


class OverHttp:
    """A connection to a stand-in, as the rows of the tables want a service: calls are noted, and can be met."""

    def __init__(self, service: Double, mode: str) -> None:
        self.double = service
        service.wish(calm=True)
        self._begin = len(service.wish()["effects"])
        self.client = service.connect(mode=mode)
        self._mcp = self.client._caller.mcp
        self.client._caller.mcp = self
        self.calls: List[Tuple[str, Dict[str, Any]]] = []
        self._before: List[Tuple[str, Callable[[], None]]] = []
        self._lock = threading.Lock()

    def call_tool(self, name: str, arguments: Any = None, **options: Any) -> Any:
        with self._lock:
            self.calls.append((name, json.loads(json.dumps(arguments))))
            actions = [action for tool, action in self._before if tool == name]
            self._before = [pair for pair in self._before if pair[0] != name]
        for action in actions:
            action()
        return self._mcp.call_tool(name, arguments, **options)

    def before(self, tool: str, action: Callable[[], None]) -> None:
        self._before.append((tool, action))

    def lose(self, tool: str, when: str) -> None:
        self.double.wish(lose={"tool": tool, "when": when})

    def restart(self) -> None:
        self.double.wish(restart=True)

    def forget_sessions(self) -> None:
        self.double.wish(forget_sessions=True)

    def wish(self, **wishes: Any) -> None:
        self.double.wish(**wishes)

    def effects(self, kind: str) -> List[Any]:
        return [value for name, value in self.double.wish()["effects"][self._begin :] if name == kind]
