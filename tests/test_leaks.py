"""Nothing is left behind: two hundred repetitions leave as many threads and descriptors as there were."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
import time
from typing import Any, Callable, Iterator

import pytest

from mantyx_sync import MantyxClient, MantyxRunError, ToolContext, tool
from mantyx_sync.local import Failure, LocalServer, ModelRequest, Pause, ScriptedModel, ToolUse
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("no_leaks")

NEVER = threading.Event()


class Counts:
    """How many threads and descriptors there are; the embedded server's threads come and go, and are left out."""

    def __init__(self) -> None:
        self.names = sorted(t.name for t in threading.enumerate() if not t.name.startswith("mantyx-local"))
        self.descriptors = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0

    def no_more_than(self, before: Counts, idle: int = 0) -> bool:
        """Compare; `idle` connections and threads of the pool may have come meanwhile."""
        spare = 2 * idle  # the embedded server holds the other ends
        return len(self.names) <= len(before.names) + idle and self.descriptors <= before.descriptors + spare

    def __repr__(self) -> str:
        return f"{len(self.names)} threads ({', '.join(self.names)}), {self.descriptors} descriptors"


@tool
def act() -> str:
    """Act."""
    return "ok"


@tool
def wait(context: ToolContext) -> str:
    """Wait until the answer is not wanted any more."""
    assert context.cancelled.wait(10)
    return "late"


def turns(request: ModelRequest) -> list[Any]:
    if request.prompt == "long":
        return [["Some text. ", "More text. ", Pause(NEVER)]]
    if request.prompt == "stuck":
        return [ToolUse("wait", {}), "Done."]
    if request.prompt == "fail":
        return [["Some text. ", Failure("no")]]
    return [["Let me act. ", ToolUse("act", {})], ["Done", "."]]


@pytest.fixture
def server() -> Iterator[LocalServer]:
    with LocalServer(ScriptedModel(turns)) as server:
        yield server


@pytest.fixture
def client(server: LocalServer) -> Iterator[MantyxClient]:
    with MantyxClient(**server.client_settings()) as client:
        yield client


def stream(client: MantyxClient, prompt: str) -> Any:
    return client.stream_agent(system_prompt="x", prompt=prompt, tools=[act, wait])


def run_to_its_end(client: MantyxClient) -> None:
    assert client.run_agent(system_prompt="x", prompt="run", tools=[act]).text == "Done."


def stream_to_its_end(client: MantyxClient) -> None:
    with stream(client, "run") as run:
        assert [event.type for event in run][-1] == "result"


def stream_to_its_end_without_with(client: MantyxClient) -> None:
    assert "".join(stream(client, "run").text_stream).endswith("Done.")


def start_and_let_it_end(client: MantyxClient) -> None:
    assert client.start_agent(system_prompt="x", prompt="run", tools=[act]).result().text == "Done."


def a_run_that_fails(client: MantyxClient) -> None:
    with pytest.raises(MantyxRunError):
        client.run_agent(system_prompt="x", prompt="fail", tools=[act])


def break_out_of_a_stream(client: MantyxClient) -> None:
    with stream(client, "long") as run:
        for _ in run:
            break


def break_out_without_with(client: MantyxClient) -> None:
    for _ in stream(client, "long"):
        break


def never_read(client: MantyxClient) -> None:
    stream(client, "long")


def never_read_in_a_cycle(client: MantyxClient) -> None:
    holder: dict[str, Any] = {"run": stream(client, "long")}
    holder["me"] = holder


def raise_in_a_callback(client: MantyxClient) -> None:
    def fail(event: object) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        client.run_agent(system_prompt="x", prompt="long", on_event=fail)


def raise_in_a_with_block(client: MantyxClient) -> None:
    with pytest.raises(ZeroDivisionError), stream(client, "long") as run:
        1 / len([event for event in [next(iter(run))] if event is None])


def time_out(client: MantyxClient) -> None:
    with pytest.raises(TimeoutError):
        client.run_agent(system_prompt="x", prompt="long", timeout=0.01)


def time_out_with_a_handler_at_work(client: MantyxClient) -> None:
    with pytest.raises(TimeoutError):
        client.run_agent(system_prompt="x", prompt="stuck", tools=[act, wait], timeout=0.02)


def close_early(client: MantyxClient) -> None:
    stream(client, "long").close()


def close_with_a_handler_at_work(client: MantyxClient) -> None:
    run = stream(client, "stuck")
    for event in run:
        if event.type == "local_tool_call":
            break
    run.close()


def cancel_and_wait(client: MantyxClient) -> None:
    with stream(client, "long") as run:
        run.cancel()
        with pytest.raises(MantyxRunError):
            run.result()


def attach_and_leave(client: MantyxClient) -> None:
    with stream(client, "long") as run:
        other = client.attach_run(run.run_id, tools=[act])
        next(iter(other))
        other.close()


def make_use_and_close_a_client(client: MantyxClient) -> None:
    with MantyxClient(base_url=client.base_url, api_key="mantyx_local", workspace_slug="local") as other:
        run_to_its_end(other)


def make_use_and_drop_a_client(client: MantyxClient) -> None:
    run_to_its_end(MantyxClient(base_url=client.base_url, api_key="mantyx_local", workspace_slug="local"))


def make_fail_and_drop_a_client(client: MantyxClient) -> None:
    # The error holds the frames of who called; what stands by to free the run must not hold the error.
    other = MantyxClient(base_url=client.base_url, api_key="mantyx_local", workspace_slug="local")
    with pytest.raises(MantyxRunError):
        other.run_agent(system_prompt="x", prompt="fail", tools=[act])
    with pytest.raises(MantyxRunError):
        stream(other, "fail").result()


def make_and_drop_a_client(client: MantyxClient) -> None:
    MantyxClient(base_url=client.base_url, api_key="mantyx_local", workspace_slug="local")


def derive_use_and_drop(client: MantyxClient) -> None:
    run_to_its_end(client.with_options(max_retries=1))


USES: dict[Callable[[MantyxClient], None], int] = {
    run_to_its_end: 200,
    break_out_of_a_stream: 200,
    raise_in_a_callback: 200,
    time_out: 200,
    close_early: 200,
    make_and_drop_a_client: 200,
    make_use_and_drop_a_client: 200,
    never_read: 200,
    # Variations of these; a leak of any shows as well.
    stream_to_its_end: 40,
    stream_to_its_end_without_with: 40,
    start_and_let_it_end: 40,
    a_run_that_fails: 40,
    break_out_without_with: 40,
    never_read_in_a_cycle: 40,
    raise_in_a_with_block: 40,
    time_out_with_a_handler_at_work: 40,
    close_with_a_handler_at_work: 40,
    cancel_and_wait: 40,
    attach_and_leave: 40,
    make_use_and_close_a_client: 40,
    make_fail_and_drop_a_client: 40,
    derive_use_and_drop: 40,
}


@pytest.mark.parametrize("use", USES, ids=lambda use: use.__name__)
def test_repetitions_leave_nothing(
    use: Callable[[MantyxClient], None], client: MantyxClient, server: LocalServer
) -> None:
    for _ in range(3):  # what is made once and kept: connections, threads of the pool, the server's workers
        use(client)
    end_all_runs(server)
    settled(server)
    before = Counts()
    for _ in range(USES[use]):
        use(client)
    end_all_runs(server)
    settled(server)
    with contextlib.suppress(AssertionError):
        wait_until(lambda: Counts().no_more_than(before, idle=8), "", 3)
    after = Counts()
    assert after.no_more_than(before, idle=8), f"{before} before, {after} after"
    client.close()
    gc.collect()
    with contextlib.suppress(AssertionError):
        wait_until(lambda: Counts().no_more_than(before), "", 3)
    after = Counts()
    assert after.no_more_than(before), f"{before} before, {after} after"


def end_all_runs(server: LocalServer) -> None:
    """End the server's side of runs that were left without a cancel."""
    for run in server.runs:
        if not run.is_terminal:
            run.abandon()


def settled(server: LocalServer) -> None:
    gc.collect()
    wait_until(lambda: all(run.is_terminal for run in server.runs), "the server's runs should have ended")
    wait_until(lambda: server.open_streams == 0, "the server still has streams")


# --------------------------------------------------------------------------- when things are let go


def run_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("mantyx-run-")]


def test_a_dropped_stream_is_let_go_at_once_and_a_dropped_background_run_goes_on(
    client: MantyxClient, server: LocalServer
) -> None:
    gc.disable()
    try:
        run = stream(client, "long")
        next(iter(run))
        assert run_threads()
        del run
        wait_until(lambda: not run_threads(), "the thread of a dropped stream goes on", 2)
        client.start_agent(system_prompt="x", prompt="run", tools=[act])
        wait_until(lambda: all(run.is_terminal for run in server.runs[-1:]), "a dropped background run stops")
        wait_until(lambda: not run_threads(), "its thread goes on", 2)
    finally:
        gc.enable()
        end_all_runs(server)


def test_closing_waits_no_longer_than_a_second_whatever_hangs(client: MantyxClient, server: LocalServer) -> None:
    runs = [stream(client, "stuck") for _ in range(5)]
    wait_until(lambda: all(run._reader.calls.is_busy for run in runs), "the handlers should be at work")
    start = time.monotonic()
    client.close()
    assert time.monotonic() - start < 1.0
    for run in runs:
        run.close()
        run.close()
    end_all_runs(server)


def test_runs_may_start_while_the_client_is_closed_by_another_thread(client: MantyxClient, server: LocalServer) -> None:
    failures: list[BaseException] = []
    stop = threading.Event()

    def close_all_the_time() -> None:
        try:
            while not stop.is_set():
                client.close()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=close_all_the_time)
    thread.start()
    try:
        for _ in range(30):
            with contextlib.suppress(Exception):  # a run that was just closed has no result
                client.run_agent(system_prompt="x", prompt="run", tools=[act], timeout=10)
    finally:
        stop.set()
        thread.join(10)
    assert not failures
    end_all_runs(server)
