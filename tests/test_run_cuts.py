"""The stream of a run cut at every single byte: the result is the same, and each tool runs once."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from mantyx_sync import MantyxClient, tool
from mantyx_sync.local import LocalServer, ScriptedModel, ToolUse
from mantyx_sync.local.faults import cut, framing, pieces
from tests.effort import IS_THOROUGH
from tests.scripted_runs import quick_client, quickly

pytestmark = pytest.mark.usefixtures("no_leaks")

SCRIPT = [
    ["Let me é😀 ", ToolUse("add", {"a": 1, "b": 2})],
    ["Three. ", ToolUse("add", {"a": 3, "b": 4})],
    ["Sev", "en."],
]
ALL_TEXT = "Let me é😀 Three. Seven."


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    quickly(monkeypatch)
    # It logs headers that are cut short with a traceback, and pytest would keep that, and so the socket, alive.
    caplog.set_level(logging.CRITICAL, logger="urllib3.connection")


def local_client(server: LocalServer) -> MantyxClient:
    return quick_client(server, api_key=server.api_key, workspace_slug=server.workspace_slug)


class OneCutAfterAnother:
    """Run the script once for each offset, on a server and a client of its own."""

    def __init__(self, offsets: range, *effects: Any, how: str, count: str) -> None:
        self.offsets, self.effects, self.how, self.count = offsets, effects, how, count
        self.problems: list[str] = []

    def run(self) -> None:
        calls: list[tuple[int, int]] = []

        @tool
        def add(a: int, b: int) -> int:
            """Add."""
            calls.append((a, b))
            return a + b

        with LocalServer(ScriptedModel(SCRIPT)) as server, local_client(server) as client:
            for offset in self.offsets:
                del calls[:]
                server.faults.clear()
                for effect in self.effects:
                    server.faults.add(effect, route="stream", times=None)
                server.faults.add(cut(offset, self.how, count=self.count), route="stream")
                deltas: list[str] = []
                try:
                    result = client.run_agent(
                        system_prompt="Add.", prompt="Go.", tools=[add], timeout=20, on_assistant_delta=deltas.append
                    )
                    outcome = (result.text, "".join(deltas), calls[:])
                except Exception as error:
                    outcome = (repr(error), "".join(deltas), calls[:])
                if outcome != ("Seven.", ALL_TEXT, [(1, 2), (3, 4)]):
                    self.problems.append(f"cut at {offset} by {self.how}: {outcome}")
                if len(self.problems) > 5:
                    return


def stream_size(*effects: Any) -> int:
    """Return how long the stream is on the wire, or a little more."""
    with LocalServer(ScriptedModel(SCRIPT)) as server, local_client(server) as client:
        client.run_agent(system_prompt="Add.", prompt="Go.", tools=[tool(lambda_add)])
        frames = server.runs[0].frames
        return sum(len(frame) + 8 for frame in frames) + 300


def lambda_add(a: int, b: int) -> int:
    return a + b


lambda_add.__name__ = "add"


@pytest.mark.parametrize("how", ["fin", "rst", "one or the other"])
def test_a_stream_cut_at_any_byte_of_the_wire_gives_the_same_result_and_runs_each_tool_once(how: str) -> None:
    if (how == "one or the other") == IS_THOROUGH:
        pytest.skip("every byte is cut in both ways with MANTYX_THOROUGH, else in one or the other")
    ways = ("fin", "rst") if how == "one or the other" else (how, how)
    size = stream_size()
    workers = [OneCutAfterAnother(range(start, size, 2), how=way, count="wire") for start, way in enumerate(ways)]
    threads = [threading.Thread(target=worker.run) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [problem for worker in workers for problem in worker.problems] == []


@pytest.mark.parametrize(
    ("effects", "how"),
    [
        ([framing("close")], "fin"),
        ([framing("chunked", gzip=True)], "rst"),
        ([pieces(3)], "end"),
    ],
    ids=["close-delimited", "gzip", "polite end in chunks of three bytes"],
)
def test_so_does_a_body_of_another_coding_cut_at_many_places(effects: list[Any], how: str) -> None:
    workers = OneCutAfterAnother(range(0, stream_size(), 7), *effects, how=how, count="body")
    workers.run()
    assert workers.problems == []
