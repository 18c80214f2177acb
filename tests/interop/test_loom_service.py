"""The Loom client, worker and bridge against the stand-in as a process, over real connections in both MCP eras."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest

from mantyx_sync import MantyxAuthError, MantyxClient, MantyxError, MantyxNetworkError, MantyxTimeoutError
from mantyx_sync.local import LocalServer, ScriptedModel, ToolUse
from mantyx_sync.loom import (
    LoomClient,
    LoomDiscoveryError,
    LoomInstanceChanged,
    LoomInvalidRequest,
    LoomWorker,
    MantyxExecutor,
    run_and_wait,
)
from mantyx_sync.mcp import McpSessionGone
from tests.waiting import wait_until

from ..loom_double.engine import TOOLS
from ..loom_double.scenarios import (
    FAULTS,
    MISHAPS,
    OPERATIONS,
    OTHERS,
    STEPS,
    a_result_that_is_too_large,
    check_operation,
    check_step,
    started,
)
from ..loom_double.table import TABLE
from .loom_double import ROOT, Double, OverHttp, double
from .peers import python_of

DEADLINE_S = 30.0
ERAS = [("mcp-new", "handshake"), ("mcp-new", "stateless"), ("mcp-old", "handshake")]
NEW_ERAS = ERAS[:2]


def named(era: tuple[str, str]) -> str:
    return "-".join(era)


@pytest.fixture(scope="module")
def doubles() -> Iterator[Callable[[str], Double]]:
    """Start a stand-in for each environment that is asked for, once."""
    running: dict[str, Double] = {}
    with contextlib.ExitStack() as stack:

        def started_once(environment: str) -> Double:
            if environment not in running:
                running[environment] = stack.enter_context(double(environment))
            return running[environment]

        yield started_once


@pytest.fixture
def stand_in(doubles: Callable[[str], Double], request: pytest.FixtureRequest) -> tuple[Double, str]:
    environment, mode = request.param
    return doubles(environment), mode


@pytest.fixture
def service(stand_in: tuple[Double, str], no_leaks: None) -> Iterator[OverHttp]:
    connected = OverHttp(*stand_in)
    with connected.client:
        yield connected


# ------------------------------------------------------------------------------------------- every tool


@pytest.mark.parametrize("stand_in", ERAS, ids=named, indirect=True)
@pytest.mark.parametrize("tool", TABLE)
def test_every_tool_answers_and_refuses(service: OverHttp, tool: str) -> None:
    TABLE[tool](service.client)
    assert tool in {name for name, _ in service.calls}


def test_every_tool_by_a_stdio_proxy() -> None:
    assert set(TABLE) == set(TOOLS)
    command = [python_of("mcp-new"), "-m", "tests.loom_double.server", "--stdio"]
    with LoomClient.connect(command=command, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, timeout=20) as client:
        assert client.entry == "stdio"
        for check in TABLE.values():
            check(client)


@pytest.mark.parametrize("stand_in", ERAS, ids=named, indirect=True)
@pytest.mark.parametrize("arguments", [{}, {"runId": 7}, {"runId": "RUN-1", "more": 1}])
def test_arguments_that_do_not_fit_and_tools_that_are_not_there_are_invalid_requests(
    service: OverHttp, arguments: dict[str, Any]
) -> None:
    for tool in ("get_run", "no_such_tool"):
        with pytest.raises(LoomInvalidRequest) as caught:
            service.client._caller.ask(tool, arguments)
        assert caught.value.payload is None


@pytest.mark.parametrize("stand_in", ERAS, ids=named, indirect=True)
def test_a_form_that_this_client_does_not_have_is_unavailable(service: OverHttp) -> None:
    run = started(service, "ask")
    for form in ("asks", "fails"):
        service.wish(form=form)
        found = service.client.interact(run.run_id, run.pending_action.id)
        assert (found.status, found.action) == ("unavailable", run.pending_action)


# ------------------------------------------------------------------------------------------- the connection


@pytest.mark.parametrize("stand_in", ERAS, ids=named, indirect=True)
def test_sessions_are_closed(service: OverHttp) -> None:
    before = service.double.wish()["sessions"]
    for _ in range(3):
        with service.double.connect(mode="handshake") as client:
            client.status()
    assert service.double.wish()["sessions"] == before


@pytest.mark.parametrize("stand_in", NEW_ERAS[:1], ids=named, indirect=True)
def test_an_operation_stays_with_its_entry(service: OverHttp) -> None:
    operation = service.client.prepare_run("code", "x")
    other = LoomClient.connect(url=f"{service.double.url}/codex", token=service.double.token)
    with other, pytest.raises(MantyxError, match="was made for the entry '/mcp', this client uses '/mcp/codex'"):
        other.submit(operation)
    assert service.effects("run") == []


def test_a_wrong_token_is_an_auth_error_that_does_not_show_it(doubles: Callable[[str], Double]) -> None:
    with pytest.raises(MantyxAuthError) as caught:
        LoomClient.connect(url=doubles("mcp-new").url, token="t0p-s3cret")
    assert "t0p-s3cret" not in f"{caught.value!r} {vars(caught.value)}"


@pytest.mark.parametrize("stand_in", NEW_ERAS, ids=named, indirect=True)
@pytest.mark.parametrize("status", [502, 503])
def test_an_operation_at_a_host_that_shuts_down_is_asked_about(service: OverHttp, status: int) -> None:
    service.wish(refuse={"tool": "run", "status": status})
    assert service.client.run("code", "x").is_accepted
    assert len(service.effects("run")) == 1


@pytest.mark.parametrize("stand_in", NEW_ERAS, ids=named, indirect=True)
def test_an_operation_that_was_not_answered_in_time_is_asked_about(service: OverHttp) -> None:
    client = service.client.within(0.5)
    service.wish(slow={"tool": "run", "seconds": 0.8})
    assert client.submit(client.prepare_run("code", "x"), timeout=15).is_accepted
    assert len(service.effects("run")) == 1


@pytest.mark.parametrize("stand_in", NEW_ERAS[:1], ids=named, indirect=True)
def test_what_changes_something_is_not_repeated_when_the_session_is_over_and_what_asks_is(service: OverHttp) -> None:
    service.forget_sessions()
    assert service.client.list_runs() is not None
    service.forget_sessions()
    with pytest.raises(McpSessionGone):
        service.client.mirror_export("6b1f6f0e-8d3a-4c7e-9a51-2f0c8f6d7e11", "/p")
    assert service.effects("export") == []
    assert service.client.status().instance_id == service.double.instance_id


def test_a_proxy_that_dies_is_started_again_and_nothing_is_repeated_unasked(tmp_path: Path) -> None:
    # Its engine dies with it: to the client that is a restarted service.
    command = [sys.executable, "-m", "tests.loom_double.proxy", "run", str(tmp_path / "died")]
    command.insert(3, "--die-at")
    with LoomClient.connect(command=command, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, timeout=20) as client:
        with pytest.raises(LoomInstanceChanged):
            client.run("code", "x")
        assert client.list_runs() == ()
        assert client.run("code", "x").is_accepted


# ------------------------------------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize("stand_in", NEW_ERAS, ids=named, indirect=True)
@pytest.mark.parametrize("mishap", MISHAPS)
@pytest.mark.parametrize("tool", OPERATIONS)
def test_an_operation_is_applied_once_at_most_when(service: OverHttp, tool: str, mishap: str) -> None:
    is_handshake = service.client._caller.mcp._mcp.server.era.value == "handshake"  # type: ignore[attr-defined]
    check_operation(service, tool, MISHAPS[mishap], is_handshake)


@pytest.mark.parametrize("stand_in", NEW_ERAS, ids=named, indirect=True)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("step", STEPS)
def test_a_task_has_each_effect_once_at_most_when(service: OverHttp, tmp_path: Path, step: str, fault: str) -> None:
    check_step(service, tmp_path / "store", step, fault)


@pytest.mark.parametrize("stand_in", NEW_ERAS, ids=named, indirect=True)
@pytest.mark.parametrize("scenario", [*OTHERS, a_result_that_is_too_large], ids=lambda scenario: scenario.__name__)
def test_what_else_can_go_wrong(service: OverHttp, tmp_path: Path, scenario: Callable[[OverHttp, Path], None]) -> None:
    scenario(service, tmp_path / "store")


# ------------------------------------------------------------------------------------------- discovery


def write_files(root: Path, service: Double) -> None:
    folder = root / ".intloom"
    folder.mkdir(mode=0o700, exist_ok=True)
    (root / "intloom.yaml").touch()
    common = {"version": 1, "projectRoot": str(root), "storage": "file"}
    connection = {**common, "port": service.port, "token": service.token}
    running = {
        **common,
        "pid": service.pid,
        "instanceId": service.instance_id,
        "url": service.url,
        "startedAt": "2026-11-29T10:00:00.000Z",
    }
    for name, body in (("connection.json", connection), ("service.json", running)):
        path = folder / name
        path.touch(mode=0o600)
        path.write_text(json.dumps(body))


def test_a_project_leads_to_its_service_and_to_no_other(tmp_path: Path) -> None:
    root = Path(os.path.realpath(tmp_path))
    inner = root / "a" / "b"
    inner.mkdir(parents=True)
    with double("mcp-new", "--project", str(root)) as service:
        write_files(root, service)
        with LoomClient.connect(inner) as client:
            assert client.status().instance_id == service.instance_id
            operation = client.prepare_run("code", "x")
            service.wish(restart=True)
            with pytest.raises(LoomInstanceChanged):
                client.submit(operation).require_accepted()
        with pytest.raises(LoomDiscoveryError, match=r"is not the one of .*: its instanceId is another"):
            LoomClient.connect(inner)
        write_files(root, service)
        with LoomClient.connect(inner) as client:
            assert client.status().instance_id == service.instance_id
    with pytest.raises(LoomDiscoveryError, match="no Loom service answers") as caught:
        LoomClient.connect(inner)
    assert caught.value.code == "offline"


# ------------------------------------------------------------------------------------------- the bridge


@pytest.mark.parametrize("stand_in", NEW_ERAS, ids=named, indirect=True)
def test_mantyx_runs_do_a_workflow_of_three_tasks_with_questions_between_them(
    service: OverHttp, tmp_path: Path
) -> None:
    result = json.dumps({"outcome": "ready"})
    scripts = iter(
        [
            [[ToolUse("echo", {"word": "plan"})], [result]],
            [[result]],
            [[ToolUse("finish", {"word": "ok"})], [result]],
        ]
    )
    model = ScriptedModel(lambda _request: next(scripts))
    with LocalServer(model) as server, MantyxClient(**server.client_settings()) as client:
        worker = LoomWorker(service.client, MantyxExecutor(client), store=tmp_path, loom_name="three")
        thread = threading.Thread(target=worker.run_forever)
        thread.start()
        try:
            run = run_and_wait(
                service.client,
                "three",
                "2.4",
                on_action=lambda run, action: {"when": "Monday", "note": "no"} if action.questions else True,
                timeout=60,
            )
        finally:
            worker.stop()
            thread.join(20)
    assert run.status == "completed"
    assert service.effects("complete") == [{"outcome": "ready"}] * 3
    assert (service.effects("echo"), service.effects("finish")) == ([{"word": "plan"}], [{"word": "ok"}])


# ------------------------------------------------------------------------------------------- death of a worker

DOING = """
import os, signal, sys

def die():
    if not os.path.exists(sys.argv[-1] + ".died"):
        open(sys.argv[-1] + ".died", "w").close()
        os.kill(os.getpid(), signal.SIGKILL)

def execute(task):
    if where == "in a tool":
        print("calling", flush=True)
        task.call_tool("hold", {"word": "x"})
    assert task.call_tool("echo", {"word": "a"}) == {"echo": {"word": "a"}}
    if where == "after a tool":
        die()
    task.call_tool("echo", {"word": "b"})
    if where == "between result and completion":
        from mantyx_sync.loom import LoomClient
        LoomClient.complete_agent_call = lambda *_: die()
    if where == "behind the completion":
        from mantyx_sync.loom import LoomClient
        complete = LoomClient.complete_agent_call
        def complete_and_die(*given):
            complete(*given)
            die()
        LoomClient.complete_agent_call = complete_and_die
    print("working", flush=True)
    return {"outcome": "ready"}
"""
PLACES = ("in a tool", "after a tool", "between result and completion", "behind the completion")


@contextlib.contextmanager
def worker_process(service: Double, folder: Path, *more: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-X", "dev", "-W", "error", "-m", "mantyx_sync", "loom", "worker", "doing:execute"]
    command += ["--url", service.url, "--store", str(folder / "store"), *more]
    env = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}", "LOOM_TOKEN": service.token}
    with subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


@pytest.mark.parametrize("stand_in", NEW_ERAS, ids=named, indirect=True)
@pytest.mark.parametrize("where", PLACES)
def test_a_worker_that_is_killed_and_started_again_finishes_its_task_once(
    service: OverHttp, tmp_path: Path, where: str
) -> None:
    (tmp_path / "doing.py").write_text(f"where = {where!r}\n{DOING}")
    run = started(service, "release")
    held = len(service.double.wish()["held"])
    with worker_process(service.double, tmp_path) as first:
        if where == "in a tool":
            wait_until(lambda: len(service.double.wish()["held"]) > held)
            first.kill()
        assert first.wait(DEADLINE_S) == -signal.SIGKILL
    with worker_process(service.double, tmp_path) as second:
        if where == "in a tool":
            service.wish(let_go=True)
        wait_until(lambda: service.client.get_run(run.run_id).is_terminal)
        wait_until(lambda: list((tmp_path / "store").iterdir()) == [])
        second.send_signal(signal.SIGTERM)
        out, err = second.communicate(timeout=DEADLINE_S)
    assert second.returncode == 0
    assert b"Traceback" not in err
    assert service.client.get_run(run.run_id).status == "completed"
    assert service.effects("echo") == [{"word": "a"}, {"word": "b"}]
    assert service.effects("complete") == [{"outcome": "ready"}]
    assert len(service.effects("hold")) == (1 if where == "in a tool" else 0)
    assert (b"working" in out) == (where in PLACES[:2]), "what was decided is not worked on again"


@pytest.mark.parametrize("stand_in", NEW_ERAS[:1], ids=named, indirect=True)
def test_two_worker_processes_with_one_store_do_each_task_once(service: OverHttp, tmp_path: Path) -> None:
    (tmp_path / "doing.py").write_text(f"where = ''\n{DOING}")
    runs = [started(service, "release") for _ in range(6)]
    with worker_process(service.double, tmp_path) as first, worker_process(service.double, tmp_path) as second:
        wait_until(lambda: all(service.client.get_run(run.run_id).is_terminal for run in runs))
        wait_until(lambda: list((tmp_path / "store").iterdir()) == [])
        for process in (first, second):
            process.send_signal(signal.SIGTERM)
            assert process.wait(DEADLINE_S) == 0
    assert len(service.effects("complete")) == 6
    assert len(service.effects("echo")) == 12
    assert service.effects("fail") == []


@pytest.mark.parametrize("stand_in", NEW_ERAS[:1], ids=named, indirect=True)
def test_a_worker_that_is_told_to_stop_leaves_a_long_tool_to_the_next_one(service: OverHttp, tmp_path: Path) -> None:
    (tmp_path / "doing.py").write_text(f"where = 'in a tool'\n{DOING}")
    run = started(service, "release")
    held = len(service.double.wish()["held"])
    with worker_process(service.double, tmp_path, "--grace", "0") as first:
        wait_until(lambda: len(service.double.wish()["held"]) > held)
        first.send_signal(signal.SIGTERM)
        _, err = first.communicate(timeout=DEADLINE_S)
        assert first.returncode == 0, err
    assert service.client.get_run(run.run_id).status == "waiting"
    with worker_process(service.double, tmp_path) as second:
        service.wish(let_go=True)
        wait_until(lambda: service.client.get_run(run.run_id).is_terminal)
        second.send_signal(signal.SIGINT)
        assert second.wait(DEADLINE_S) == 0
    assert len(service.effects("hold")) == 1
    assert service.effects("complete") == [{"outcome": "ready"}]


# ------------------------------------------------------------------------------------------- secrets


@pytest.mark.parametrize("stand_in", NEW_ERAS, ids=named, indirect=True)
def test_no_error_of_a_task_shows_its_owner_token_not_even_by_the_locals_of_its_frames(service: OverHttp) -> None:
    import pickle
    import traceback

    run = started(service, "release")
    claim = service.client.claim_agent_call(run.run_id, run.pending_agent_call.id, "c")
    token = claim.owner_token
    fast = service.client.within(0.3)
    service.wish(slow={"tool": "call_agent_tool", "seconds": 0.6})
    service.lose("complete_agent_call", "after")
    calls: list[Callable[[], Any]] = [
        lambda: fast.call_agent_tool(claim, "t", "echo", {"word": "x"}),
        lambda: service.client.call_agent_tool(claim, "u", "nothing", {}),
        lambda: service.client.complete_agent_call(claim, {"outcome": "ready"}),
        lambda: service.client.call_agent_tool(claim, "v", "echo", {"word": "late"}),
    ]
    for call in calls:
        with pytest.raises((MantyxTimeoutError, MantyxNetworkError, MantyxError)) as caught:
            call()
        error = caught.value
        shown = "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())
        assert "ownerToken" in shown, "the walk saw nothing"
        assert token not in shown
        assert token.encode() not in pickle.dumps(error)
