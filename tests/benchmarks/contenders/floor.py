"""As little as can be done in Python: a bare socket, own dechunking, `split`, the C JSON scanner.

It believes everything the server says. It is the distance to the machine, not a client.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from typing import Any, Dict, Iterator, List, Tuple

from tests.benchmarks.contenders import Contender
from tests.benchmarks.plays import ping_answer
from tests.benchmarks.server import API_KEY, WORKSPACE

_scan = json.JSONDecoder().scan_once


class _Socket:
    """A kept connection that posts small bodies or reads one stream."""

    def __init__(self, port: int) -> None:
        self._sock = socket.create_connection(("127.0.0.1", port))
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _head(self, method: str, path: str) -> str:
        return (
            f"{method} /api/v1/workspaces/{WORKSPACE}/agent-runs{path} HTTP/1.1\r\n"
            f"Host: 127.0.0.1\r\nAuthorization: Bearer {API_KEY}\r\n"
        )

    def post(self, path: str, payload: Any) -> Any:
        content = json.dumps(payload)
        self._sock.sendall(f"{self._head('POST', path)}Content-Length: {len(content)}\r\n\r\n{content}".encode())
        data = self._sock.recv(65536)
        status = data[9:12]
        if status == b"204":
            return None
        if status not in (b"200", b"202"):
            raise RuntimeError(f"{path}: {data!r}")
        return json.loads(data[data.index(b"\r\n\r\n") + 4 :])

    def events(self, run_id: str) -> Iterator[Dict[str, Any]]:
        self._sock.sendall(f"{self._head('GET', f'/{run_id}/stream')}\r\n".encode())
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._more()
        waiting = data[data.index(b"\r\n\r\n") + 4 :]  # bytes of the body that are not dechunked yet
        pieces: List[bytes] = []  # of one frame that is not complete yet
        while True:
            position, size = 0, len(waiting)
            body = []
            need = 0
            while True:
                line = waiting.find(b"\r\n", position)
                if line < 0:
                    break
                length = int(waiting[position:line], 16)
                end = line + 2 + length
                if end + 2 > size:
                    need = end + 2 - size
                    break
                body.append(waiting[line + 2 : end])
                position = end + 2
            data = b"".join(body)
            if pieces and pieces[-1].endswith(b"\n"):
                data = pieces.pop() + data  # the blank line may lie across two chunks
            cut = data.rfind(b"\n\n")
            if cut < 0:
                pieces.append(data)
            else:
                pieces.append(data[:cut])
                for text in b"".join(pieces).decode().split("\n\n"):
                    event = _scan(text, text.index("data: ") + 6)[0]
                    yield event
                    if event["type"] == "result":
                        return
                pieces = [data[cut + 2 :]]
            more = [waiting[position:], self._more()]
            need -= len(more[-1])
            while need > 0:
                more.append(self._more())
                need -= len(more[-1])
            waiting = b"".join(more)

    def _more(self) -> bytes:
        data = self._sock.recv(65536)
        if not data:
            raise RuntimeError("the stream ended without a result")
        return data

    def close(self) -> None:
        self._sock.close()


class Floor(Contender):
    def __init__(self, base_url: str) -> None:
        self._port = int(base_url.rpartition(":")[2])

    def _events(self, prompt: str) -> Iterator[Dict[str, Any]]:
        sock = _Socket(self._port)
        try:
            yield from sock.events(sock.post("", {"prompt": prompt})["runId"])
        finally:
            sock.close()

    def run_text(self, prompt: str) -> str:
        for event in self._events(prompt):
            if event["type"] == "result":
                return str(event["data"]["text"])
        raise RuntimeError("the stream ended without a result")

    def iterate(self, prompt: str, stall_s: float = 0.0) -> Tuple[int, int]:
        texts = length = 0
        for event in self._events(prompt):
            if event["type"] in ("assistant_delta", "assistant_message"):
                texts += 1
                length += len(event["data"]["text"])
                if stall_s:
                    time.sleep(stall_s)
                    stall_s = 0.0
        return texts, length

    def arrivals(self, prompt: str) -> List[int]:
        waits = []
        for event in self._events(prompt):
            if event["type"] == "assistant_delta":
                waits.append(time.monotonic_ns() - int(event["data"]["text"]))
        return waits

    def run_tool(self, prompt: str, delay_s: float = 0.0) -> str:
        reader, poster = _Socket(self._port), _Socket(self._port)
        posting = threading.Lock()
        threads = []
        try:
            run_id = poster.post("", {"prompt": prompt})["runId"]

            def answer(call: Dict[str, Any]) -> None:
                if delay_s:
                    time.sleep(delay_s)
                with posting:
                    payload = {"toolUseId": call["toolUseId"], "result": ping_answer(call["args"]["number"])}
                    poster.post(f"/{run_id}/tool-results", payload)

            for event in reader.events(run_id):
                if event["type"] == "result":
                    return str(event["data"]["text"])
                if event["type"] != "local_tool_call":
                    continue
                if delay_s:
                    threads.append(threading.Thread(target=answer, args=(event["data"],)))
                    threads[-1].start()
                else:
                    answer(event["data"])
            raise RuntimeError("the stream ended without a result")
        finally:
            for thread in threads:
                thread.join()
            reader.close()
            poster.close()

    def close(self) -> None:
        pass


make = Floor
