"""The platform's own Python package (`mantyx-sdk`), its synchronous client."""

from __future__ import annotations

import functools
import time
from typing import Any, Dict, List, Tuple

from mantyx import MantyxClient, define_local_tool

from tests.benchmarks.contenders import Contender
from tests.benchmarks.plays import ping_answer
from tests.benchmarks.server import API_KEY, WORKSPACE


class Peer(Contender):
    def __init__(self, base_url: str) -> None:
        self._client = MantyxClient(api_key=API_KEY, workspace_slug=WORKSPACE, base_url=base_url)

    def run_text(self, prompt: str) -> str:
        return str(self._client.run_agent(system_prompt="Benchmark.", prompt=prompt).text)

    def iterate(self, prompt: str, stall_s: float = 0.0) -> Tuple[int, int]:
        texts = length = 0
        for event in self._client.stream_agent(system_prompt="Benchmark.", prompt=prompt):
            if event.type in ("assistant_delta", "assistant_message"):
                texts += 1
                length += len(event.text)
                if stall_s:
                    time.sleep(stall_s)
                    stall_s = 0.0
        return texts, length

    def arrivals(self, prompt: str) -> List[int]:
        waits = []
        for event in self._client.stream_agent(system_prompt="Benchmark.", prompt=prompt):
            if event.type == "assistant_delta":
                waits.append(time.monotonic_ns() - int(event.text))
        return waits

    def run_tool(self, prompt: str, delay_s: float = 0.0) -> str:
        result = self._client.run_agent(system_prompt="Benchmark.", prompt=prompt, tools=[_ping_tool(delay_s)])
        return str(result.text)

    def close(self) -> None:
        self._client.close()


@functools.cache  # users define a tool once
def _ping_tool(delay_s: float) -> Any:
    def ping(args: Dict[str, Any]) -> str:
        if delay_s:
            time.sleep(delay_s)
        return ping_answer(args["number"])

    schema = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
    return define_local_tool(name="ping", parameters=schema, execute=ping, read_only=True)


make = Peer
