"""Agents under load: a thousand calls at once, streams that break under them, many agents in one process.

The embedded gateway sends the calls and counts the answers. By default the figures are small; with `MANTYX_INTEROP`
set they are those of the promise (issue: SpaceFix, 3).
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import threading
import time
from typing import Any, Iterator

import pytest

from mantyx_sync import tool
from mantyx_sync.local import AgentConnection, GatewayPlan, GatewayProject, LocalGateway
from mantyx_sync.local.faults import cut
from mantyx_sync.spacefix import Agent, link
from mantyx_sync.spacefix.reconnect import ReconnectPolicy
from tests.gateway_client import MCP_ACCEPT, Wire, ask, bearer, read_reply

pytestmark = pytest.mark.usefixtures("no_leaks")

IS_FULL = bool(os.environ.get("MANTYX_INTEROP"))
CALLS = 1000 if IS_FULL else 250
CUTS = 20 if IS_FULL else 3
WORKERS = 16
DISCONNECTED = "Agent disconnected before returning a result."
LOST = {DISCONNECTED, "No agent connected"}
# The first delay is a second at most, as each stream was ready; connecting and a busy machine come on top.
BACK_WITHIN_S = 5.0


@pytest.fixture
def gateway() -> Iterator[LocalGateway]:
    with LocalGateway(plan=GatewayPlan(max_connects_per_minute=1000)) as running:
        yield running


@pytest.fixture
def project(gateway: LocalGateway) -> GatewayProject:
    return gateway.add_project("load")


def requested(number: int) -> dict[str, Any]:
    params = {"name": "echo", "arguments": {"number": number}}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


def test_calls_written_back_to_back_are_each_answered_once(gateway: LocalGateway, project: GatewayProject) -> None:
    ran: collections.Counter[int] = collections.Counter()
    at_work = most = 0
    lock = threading.Lock()

    @tool
    def echo(number: int) -> str:
        nonlocal at_work, most
        with lock:
            ran[number] += 1
            at_work += 1
            most = max(most, at_work)
        threading.Event().wait(0.001)
        with lock:
            at_work -= 1
        return f"echo {number}"

    with Agent(tools=[echo], url=gateway.url, agent_key=project.agent_key, workers=WORKERS).start() as agent:
        agent.wait_ready()
        batch = [requested(number) for number in range(CALLS)]
        answer = ask(gateway, f"/mcp/{project.id}", batch, {**MCP_ACCEPT, **bearer(project.client_key)})
        gateway.wait_until(lambda: all(entry.outcome for entry in gateway.log))
    messages = [json.loads(part.split("data: ", 1)[1]) for part in answer.text.split("\n\n") if part]
    texts = {message["id"]: message["result"]["content"][0]["text"] for message in messages}
    assert len(messages) == CALLS
    assert texts == {number: f"echo {number}" for number in range(CALLS)}
    assert ran == dict.fromkeys(range(CALLS), 1)
    assert {entry.outcome for entry in gateway.log} == {"ok"}
    assert sum(request.route == "result" for request in gateway.requests) == CALLS
    assert 1 < most <= WORKERS


class Caller(threading.Thread):
    """A client that calls without a pause until it is told to stop, and keeps what it was answered."""

    def __init__(self, gateway: LocalGateway, project: GatewayProject, start: int) -> None:
        super().__init__(name="caller")
        self.numbers = iter(range(start, start + 1_000_000))
        self.gateway, self.project = gateway, project
        self.stop = threading.Event()
        self.answers: dict[int, list[str]] = {}
        self.problem: BaseException | None = None

    def run(self) -> None:
        try:
            with Wire(self.gateway) as wire:
                while not self.stop.is_set():
                    self.call(wire, next(self.numbers))
        except BaseException as problem:
            self.problem = problem

    def call(self, wire: Wire, number: int) -> None:
        headers = {**MCP_ACCEPT, **bearer(self.project.client_key)}
        wire.post(f"/mcp/{self.project.id}", requested(number), headers)
        reply = read_reply(wire)
        if reply.status == 503:  # nobody was connected: the client waits a little and goes on
            self.answers[number] = [reply.json["error"]["message"][: len("No agent connected")]]
            self.stop.wait(0.02)
            return
        parts = [part for part in reply.text.split("\n\n") if part]
        messages = [json.loads(part.split("data: ", 1)[1]) for part in parts]
        self.answers[number] = [message["result"]["content"][0]["text"] for message in messages]


def served(gateway: LocalGateway, agent: AgentConnection) -> int:
    """How many calls an agent has answered."""
    return sum(entry.connection_id == agent.id and entry.outcome == "ok" for entry in gateway.log)


def test_every_call_ends_once_while_the_stream_is_cut_under_load(
    gateway: LocalGateway, project: GatewayProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not IS_FULL:  # the documented delays take a second for each cut
        monkeypatch.setattr(link, "ReconnectPolicy", lambda: ReconnectPolicy(first=0.1))
    ran: collections.Counter[int] = collections.Counter()
    lock = threading.Lock()

    @tool
    def echo(number: int) -> str:
        with lock:
            ran[number] += 1
        threading.Event().wait(0.002)
        return f"echo {number}"

    callers = [Caller(gateway, project, start * 1_000_000) for start in range(8)]
    with contextlib.ExitStack() as stack:
        agent = stack.enter_context(Agent(tools=[echo], url=gateway.url, agent_key=project.agent_key).start())
        agent.wait_ready()
        for caller in callers:
            stack.callback(caller.join, 10)
            stack.callback(caller.stop.set)
            caller.start()
        for number in range(CUTS):
            (connection,) = gateway.wait_for_agents()
            gateway.wait_until(lambda agent=connection: not agent.is_live or served(gateway, agent) > 0)
            if number % 2 == 0:
                if number + 1 < CUTS:  # the next stream breaks by itself, within a frame
                    gateway.faults.add(cut(4000 + 17 * number, how=("end", "rst", "fin")[number % 3]), route="connect")
                gateway.cut(connection, "rst" if number % 4 else "fin")
            gateway.wait_until(lambda gone=connection: not gone.is_live)
            lost_at = time.monotonic()
            gateway.wait_for_agents()
            assert time.monotonic() - lost_at < BACK_WITHIN_S
        (last,) = gateway.wait_for_agents()
        gateway.wait_until(lambda: served(gateway, last) > 20)
    assert [caller.problem for caller in callers] == [None] * len(callers)
    answers = {number: answer for caller in callers for number, answer in caller.answers.items()}
    outcomes: collections.Counter[str] = collections.Counter()
    for number, answer in answers.items():
        (text,) = answer  # exactly one
        outcomes[text if text in LOST else "ok"] += 1
        assert text in LOST or text == f"echo {number}"
    assert outcomes["ok"] > 20
    assert outcomes[DISCONNECTED] > 0
    assert max(ran.values()) == 1
    sent = [entry for entry in gateway.log if entry.call_id is not None]
    assert {entry.outcome for entry in sent} == {"ok", "lost"}
    assert agent.status().state == "stopped"


def test_many_agents_of_one_process_share_a_pool(gateway: LocalGateway, project: GatewayProject) -> None:
    @tool
    def echo(number: int) -> str:
        return f"echo {number}"

    before = set(threading.enumerate())
    with contextlib.ExitStack() as stack:
        for _ in range(32):
            stack.enter_context(Agent(tools=[echo], url=gateway.url, agent_key=project.agent_key).start())
        gateway.wait_for_agents(32)
        batch = [requested(number) for number in range(320)]
        answer = ask(gateway, f"/mcp/{project.id}", batch, {**MCP_ACCEPT, **bearer(project.client_key)})
        own = [thread for thread in threading.enumerate() if thread not in before]
        of_pool = [thread for thread in own if thread.name.startswith(("mantyx-tool", "mantyx-deadlines"))]
        assert answer.text.count("event: message") == 320
        assert answer.text.count('"text":"echo ') == 320
        calls = collections.Counter(entry.connection_id for entry in gateway.log)
        assert sorted(calls.values()) == [10] * 32  # in turn
        assert len(of_pool) <= WORKERS + 1  # and the one that watches their deadlines
        assert len(own) - len(of_pool) <= 2 * 32, sorted(thread.name for thread in own)
