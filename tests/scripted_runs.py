"""A server for one run whose every answer is a script: streams that break off, lost answers, refusals.

    with RunServer(stream(delta(1, "Hel"), delta(2, "lo"), result(3, "Hello"))) as server:
        client = quick_client(server)
        ...

The n-th request for the stream plays the n-th script, the last one plays again for all that follow. What was asked
of the server is in `stream_requests`, `tool_results` and so on, in order of arrival.
"""

from __future__ import annotations

import functools
import json
import threading
from dataclasses import replace
from typing import Any, Callable, Iterable, Mapping, Optional, Union

import pytest

import mantyx_sync.workspace
from mantyx_sync import MantyxClient
from mantyx_sync.reader import FollowSettings
from mantyx_sync.transport.retry import Backoff
from tests.wire import DEADLINE_S, Gone, Peer, Request, WireServer, chunk, head, stream_head

__all__ = [
    "BASE",
    "RUN_ID",
    "SPEC",
    "RunServer",
    "after_result",
    "call",
    "delta",
    "event",
    "lost",
    "quick_client",
    "quickly",
    "refusal",
    "reply",
    "result",
    "snapshot",
    "stream",
    "wait_for",
]

RUN_ID = "run_1"
BASE = "/api/v1/workspaces/w"
SPEC: dict[str, Any] = {"system_prompt": "Help.", "prompt": "Go."}
QUICK = Backoff(0.001, 0.01)

Script = Callable[[Peer, Request], None]
Piece = Union[bytes, threading.Event, Callable[["RunServer"], None]]


def event(seq: Optional[int], event_type: str, /, **data: Any) -> bytes:
    """Return the frame of one event."""
    envelope = {"seq": seq, "type": event_type, "data": data}
    return f"id: {seq}\nevent: {event_type}\ndata: {json.dumps(envelope)}\n\n".encode()


def delta(seq: int, text: str) -> bytes:
    return event(seq, "assistant_delta", text=text)


def call(seq: int, tool_use_id: str, name: str, args: Any = None, **more: Any) -> bytes:
    return event(seq, "local_tool_call", toolUseId=tool_use_id, name=name, args=args, **more)


def result(seq: int, text: str = "Done.", **more: Any) -> bytes:
    return event(seq, "result", **{"subtype": "success", "text": text, **more})


def after_result(tool_use_id: str) -> Callable[[RunServer], None]:
    """Return a piece of a stream that waits until the result of a call was posted."""
    return lambda server: server.wait_for_result(tool_use_id)


def stream(*pieces: Piece, end: str = "fin", headers: Optional[Mapping[str, str]] = None) -> Script:
    """Return the script of an event stream: each piece is sent as a chunk of its own, an event is waited for.

    Args:
        end: What follows the pieces: `fin` and `rst` cut the connection, `end` ends the body as it should be,
            `stay` is silence until the client leaves.
    """

    def script(peer: Peer, _: Request) -> None:
        peer.send(stream_head(**(headers or {})))
        for piece in pieces:
            if isinstance(piece, bytes):
                peer.send(chunk(piece))
            elif isinstance(piece, threading.Event):
                peer.wait(piece)
            else:
                piece(_owner(peer))
        if end == "stay":
            peer.stay()
        elif end == "rst":
            peer.reset()
        elif end == "end":
            peer.send(chunk(b""))
        raise Gone

    return script


def reply(status: int = 200, body: object = None, **headers: object) -> Script:
    """Return the script of one JSON answer on a connection that stays open."""

    def script(peer: Peer, _: Request) -> None:
        data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        peer.send(head(status, content_length=len(data), **{"content_type": "application/json", **headers}), data)

    return script


def refusal(status: int, code: str = "refused", **headers: object) -> Script:
    """Return the script of an error in the platform's form."""
    return reply(status, {"error": code, "message": f"message of {code}"}, **headers)


def lost(peer: Peer, _: Request) -> None:
    """Close the connection instead of answering."""
    raise Gone


def snapshot(status: str = "running", **more: Any) -> dict[str, Any]:
    return {"id": RUN_ID, "status": status, **more}


class RunServer:
    """Serve one run by scripts. Use it as a context manager; see the module."""

    def __init__(
        self,
        *streams: Script,
        create: Iterable[Script] = (),
        tool_result: Iterable[Script] = (),
        snapshots: Iterable[Script] = (),
        cancel: Iterable[Script] = (),
        listing: Iterable[Script] = (),
        other: Iterable[Script] = (),
    ) -> None:
        created = reply(202, {"runId": RUN_ID, "streamUrl": f"{BASE}/agent-runs/{RUN_ID}/stream"})
        self._scripts: dict[str, list[Script]] = {
            "stream": list(streams),
            "create": [*create, created] if not create else list(create),
            "tool_result": list(tool_result) or [reply(204)],
            "snapshot": list(snapshots) or [reply(200, snapshot())],
            "cancel": list(cancel) or [reply(200, {})],
            "list": list(listing) or [reply(200, {"runs": [], "nextCursor": None})],
            "other": list(other) or [refusal(404, "not_found")],
        }
        self.requests: dict[str, list[Request]] = {route: [] for route in self._scripts}
        self._changed = threading.Condition()
        self._wire = WireServer(self._play)
        self._wire.run_server = self  # type: ignore[attr-defined]  # how a script finds its way back
        self.url = self._wire.url

    def __enter__(self) -> RunServer:
        return self

    def __exit__(self, *error: Any) -> None:
        self._wire.__exit__(*error)

    @property
    def stream_requests(self) -> list[Request]:
        return self.requests["stream"]

    @property
    def tool_results(self) -> list[dict[str, Any]]:
        """The bodies of all tool results that were posted, repetitions included."""
        return [request.json() for request in list(self.requests["tool_result"])]

    def count(self, route: str) -> int:
        return len(self.requests[route])

    def wait_for_result(self, tool_use_id: str) -> None:
        def is_there() -> bool:
            return any(body["toolUseId"] == tool_use_id for body in self.tool_results)

        with self._changed:
            arrived = self._changed.wait_for(lambda: is_there() or self._wire.closing.is_set(), DEADLINE_S)
        if not is_there():
            assert not arrived, f"no result for {tool_use_id} was posted"
            raise Gone

    def _play(self, peer: Peer) -> None:
        while True:
            request = peer.request()
            route = _route(request)
            with self._changed:
                number = len(self.requests[route])
                self.requests[route].append(request)
                self._changed.notify_all()
            scripts = self._scripts[route]
            scripts[min(number, len(scripts) - 1)](peer, request)


def _owner(peer: Peer) -> RunServer:
    owner: RunServer = peer.server.run_server  # type: ignore[attr-defined]
    return owner


def _route(request: Request) -> str:
    path = request.target.partition("?")[0]
    run = f"{BASE}/agent-runs/{RUN_ID}"
    routes = {
        ("POST", f"{BASE}/agent-runs"): "create",
        ("GET", f"{BASE}/agent-runs"): "list",
        ("GET", run): "snapshot",
        ("GET", f"{run}/stream"): "stream",
        ("POST", f"{run}/tool-results"): "tool_result",
        ("POST", f"{run}/cancel"): "cancel",
    }
    return routes.get((request.method, path), "other")


def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let streams reconnect after milliseconds instead of seconds."""
    quick = functools.partial(FollowSettings, backoff=QUICK)
    monkeypatch.setattr(mantyx_sync.workspace, "FollowSettings", quick)


def quick_client(server: Any, **settings: Any) -> MantyxClient:
    """Return a client of `server` that waits milliseconds where it would wait seconds."""
    client = MantyxClient(**{"base_url": server.url, "api_key": "mantyx_key", "workspace_slug": "w", **settings})
    client._workspace.api._backoff = QUICK
    client._workspace.api.transport.retry = replace(client._workspace.api.transport.retry, backoff=QUICK)
    return client


def wait_for(flag: threading.Event, why: str) -> None:
    """Wait for an event; fail with `why` at the deadline."""
    assert flag.wait(DEADLINE_S), why
