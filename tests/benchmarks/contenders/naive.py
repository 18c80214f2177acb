"""What a user writes by hand in an afternoon with requests and sseclient-py: no reconnects, no limits."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, Iterator, List, Tuple

import requests
import sseclient

from tests.benchmarks.contenders import Contender
from tests.benchmarks.plays import ping_answer
from tests.benchmarks.server import API_KEY, WORKSPACE


class Naive(Contender):
    def __init__(self, base_url: str) -> None:
        self._runs = f"{base_url}/api/v1/workspaces/{WORKSPACE}/agent-runs"
        self._session = requests.Session()
        self._session.headers["Authorization"] = f"Bearer {API_KEY}"

    def _create(self, prompt: str) -> str:
        response = self._session.post(self._runs, json={"systemPrompt": "Benchmark.", "prompt": prompt})
        response.raise_for_status()
        return str(response.json()["runId"])

    def _events(self, run_id: str) -> Iterator[Dict[str, Any]]:
        with self._session.get(f"{self._runs}/{run_id}/stream", stream=True) as response:
            response.raise_for_status()
            for frame in sseclient.SSEClient(response.iter_content(chunk_size=None)).events():
                event = json.loads(frame.data)
                yield event
                if event["type"] in ("result", "error", "cancelled"):
                    return

    def run_text(self, prompt: str) -> str:
        for event in self._events(self._create(prompt)):
            if event["type"] == "result":
                return str(event["data"]["text"])
        raise RuntimeError("the stream ended without a result")

    def iterate(self, prompt: str, stall_s: float = 0.0) -> Tuple[int, int]:
        texts = length = 0
        for event in self._events(self._create(prompt)):
            if event["type"] in ("assistant_delta", "assistant_message"):
                texts += 1
                length += len(event["data"]["text"])
                if stall_s:
                    time.sleep(stall_s)
                    stall_s = 0.0
        return texts, length

    def arrivals(self, prompt: str) -> List[int]:
        waits = []
        for event in self._events(self._create(prompt)):
            if event["type"] == "assistant_delta":
                waits.append(time.monotonic_ns() - int(event["data"]["text"]))
        return waits

    def run_tool(self, prompt: str, delay_s: float = 0.0) -> str:
        run_id = self._create(prompt)

        def answer(call: Dict[str, Any]) -> None:
            if delay_s:
                time.sleep(delay_s)
            body = {"toolUseId": call["toolUseId"], "result": ping_answer(call["args"]["number"])}
            self._session.post(f"{self._runs}/{run_id}/tool-results", json=body).raise_for_status()

        with ThreadPoolExecutor() as pool:
            for event in self._events(run_id):
                if event["type"] == "local_tool_call":
                    pool.submit(answer, event["data"])
                elif event["type"] == "result":
                    return str(event["data"]["text"])
        raise RuntimeError("the stream ended without a result")

    def close(self) -> None:
        self._session.close()


make = Naive
