"""mantyx_sync, through its public face alone."""

from __future__ import annotations

import functools
import time
from typing import Any, List, Tuple

from mantyx_sync import MantyxClient, tool
from tests.benchmarks.contenders import Contender
from tests.benchmarks.plays import ping_answer
from tests.benchmarks.server import API_KEY, WORKSPACE


class Ours(Contender):
    def __init__(self, base_url: str) -> None:
        self._client = MantyxClient(api_key=API_KEY, workspace_slug=WORKSPACE, base_url=base_url)

    def run_text(self, prompt: str) -> str:
        return self._client.run_agent(system_prompt="Benchmark.", prompt=prompt).text

    def iterate(self, prompt: str, stall_s: float = 0.0) -> Tuple[int, int]:
        texts = length = 0
        with self._client.stream_agent(system_prompt="Benchmark.", prompt=prompt) as stream:
            for event in stream:
                if event.type in ("assistant_delta", "assistant_message"):
                    texts += 1
                    length += len(event.text)
                    if stall_s:
                        time.sleep(stall_s)
                        stall_s = 0.0
        return texts, length

    def arrivals(self, prompt: str) -> List[int]:
        waits = []
        with self._client.stream_agent(system_prompt="Benchmark.", prompt=prompt) as stream:
            for event in stream:
                if event.type == "assistant_delta":
                    waits.append(time.monotonic_ns() - int(event.text))
        return waits

    def run_tool(self, prompt: str, delay_s: float = 0.0) -> str:
        result = self._client.run_agent(system_prompt="Benchmark.", prompt=prompt, tools=[_ping_tool(delay_s)])
        return result.text

    def close(self) -> None:
        self._client.close()


@functools.cache  # users define a tool once
def _ping_tool(delay_s: float) -> Any:
    @tool(read_only=True)
    def ping(number: int) -> str:
        """Answer with the number.

        Args:
            number: What to answer with.
        """
        if delay_s:
            time.sleep(delay_s)
        return ping_answer(number)

    return ping


make = Ours
