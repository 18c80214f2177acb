"""How an agent ends: stopped, by signals, with its process, beside children of a fork, and from the command line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Iterator

import pytest

from mantyx_sync import MantyxConfigError, MantyxError, ToolContext, tool
from mantyx_sync.cli import main
from mantyx_sync.spacefix import Agent, SpaceFixRegistrationError, link
from mantyx_sync.spacefix.reconnect import ReconnectPolicy
from mantyx_sync.transport.signals import stop_signals
from tests import recording_gateway
from tests.processes import Child
from tests.recording_gateway import DEADLINE_S, KEY, RecordingGateway, Reply, double
from tests.waiting import wait_until
from tests.wire import unused_port

pytestmark = pytest.mark.usefixtures("no_leaks")

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


gateway = recording_gateway.gateway  # a fixture


class Slow:
    """A tool that works until it is let go."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.contexts: list[ToolContext] = []

        def slow(context: ToolContext) -> str:
            self.contexts.append(context)
            self.go.wait(DEADLINE_S)
            return "done"

        self.tool = tool(slow)

    def is_at_work(self) -> bool:
        return bool(self.contexts)


@pytest.fixture
def slow() -> Iterator[Slow]:
    slow = Slow()
    yield slow
    slow.go.set()


def in_background(action: Any) -> threading.Thread:
    thread = threading.Thread(target=action)
    thread.start()
    return thread


# ------------------------------------------------------------------------------------------- stopping


@pytest.mark.parametrize("way", ["stop", "close"])
def test_stopping_lets_calls_at_work_be_answered_and_takes_no_more(
    gateway: RecordingGateway, slow: Slow, way: str
) -> None:
    agent = Agent([slow.tool, double], **gateway.settings, workers=1).start()
    stream = gateway.stream()
    stream.call("slow", id="at-work")
    wait_until(slow.is_at_work)
    stream.call("double", {"x": 1}, id="in-line")
    wait_until(lambda: agent.status().waiting == 1)
    stopping = in_background(getattr(agent, way))
    assert gateway.answer("in-line")["error"] == "double: this agent is shutting down; call again"
    stream.call("double", {"x": 1}, id="new")
    assert gateway.answer("new")["error"] == "double: this agent is shutting down; call again"
    assert agent.status().state == "stopping"
    assert not agent.status().is_healthy
    assert not stream.ended.is_set()
    slow.go.set()
    assert gateway.answer("at-work")["result"] == "done"
    stopping.join(DEADLINE_S)
    assert not stopping.is_alive()
    assert stream.ended.wait(DEADLINE_S)
    assert agent.status().state == "stopped"
    assert not slow.contexts[0].cancelled.is_set()


@pytest.mark.parametrize("grace", [0, 0.1])
def test_what_is_at_work_behind_the_grace_hears_of_it_and_is_dropped(
    gateway: RecordingGateway, slow: Slow, grace: float
) -> None:
    agent = Agent([slow.tool], **gateway.settings).start()
    stream = gateway.stream()
    stream.call("slow", id="a")
    wait_until(slow.is_at_work)
    agent.stop(grace)
    assert stream.ended.wait(DEADLINE_S)
    assert slow.contexts[0].cancelled.is_set()
    assert gateway.to("/agent/result") == []


def test_stopping_a_stopped_agent_does_nothing() -> None:
    agent = Agent()
    agent.stop()
    agent.close()
    with pytest.raises(MantyxError, match="the agent is not started"):
        agent.wait_ready()
    with pytest.raises(MantyxConfigError, match="grace: got -1, must be a number of seconds, 0 or above"):
        agent.stop(-1)


def test_a_stream_that_is_lost_while_stopping_is_not_opened_again(gateway: RecordingGateway, slow: Slow) -> None:
    agent = Agent([slow.tool], **gateway.settings).start()
    stream = gateway.stream()
    stream.call("slow", id="a")
    wait_until(slow.is_at_work)
    stopping = in_background(agent.stop)
    wait_until(lambda: agent.status().state == "stopping")
    stream.end()
    stopping.join(DEADLINE_S)
    assert not stopping.is_alive()
    assert len(gateway.to("/agent/connect")) == 1


def test_a_handler_may_stop_its_agent(gateway: RecordingGateway) -> None:
    agent = Agent(**gateway.settings)

    @agent.tool
    def shut_down() -> str:
        agent.stop()
        return "good night"

    agent.start()
    stream = gateway.stream()
    stream.call("shut_down", id="a")
    wait_until(lambda: agent.status().state == "stopped")
    assert stream.ended.wait(DEADLINE_S)
    assert gateway.answer("a")["result"] == "good night"


def test_a_handler_may_have_its_agent_register_anew_and_is_answered_before(
    gateway: RecordingGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "_MIN_RENEWAL_S", 0.02)
    agent = Agent(**gateway.settings)

    @agent.tool
    def learn() -> str:
        agent.update(prompts=[])
        return "learned"

    with agent.start():
        first = gateway.stream()
        first.call("learn", id="a")
        assert gateway.answer("a") | {"span": 0} == {
            "connectionId": first.id,
            "id": "a",
            "ok": True,
            "result": "learned",
            "span": 0,
        }
        gateway.stream()


def test_a_hook_may_stop_its_agent(gateway: RecordingGateway) -> None:
    agent = Agent([double], **gateway.settings, on_call_done=lambda report: agent.stop())
    agent.start()
    gateway.stream().call("double", {"x": 1}, id="a")
    wait_until(lambda: agent.status().state == "stopped")
    assert gateway.answer("a")["result"] == 2


def test_a_wait_for_ready_ends_with_the_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "ReconnectPolicy", lambda: ReconnectPolicy(first=60.0))
    agent = Agent(url=f"http://127.0.0.1:{unused_port()}", agent_key=KEY).start()
    stopping = threading.Timer(0.05, agent.stop)
    stopping.start()
    with pytest.raises(MantyxError, match="the agent was stopped before it was ready"):
        agent.wait_ready()
    stopping.join()


def test_a_thread_that_cannot_be_started_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent(url="http://127.0.0.1:1", agent_key=KEY, telemetry=False)

    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    with pytest.raises(MantyxError, match="no thread can be started for the agent"):
        agent.start()
    monkeypatch.undo()
    assert agent.status().state == "stopped"


# ------------------------------------------------------------------------------------------- run_forever


def test_the_second_signal_interrupts_and_later_ones_change_nothing() -> None:
    with stop_signals() as request:
        signal.raise_signal(signal.SIGTERM)
        assert request.number == signal.SIGTERM
        for _ in range(2):  # the first of the two may have hit where nobody could hear of it
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
        request.is_urgent = True
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)


def test_off_the_main_thread_it_serves_until_it_is_stopped(gateway: RecordingGateway) -> None:
    agent = Agent([double], **gateway.settings)
    before = signal.getsignal(signal.SIGTERM)
    serving = in_background(agent.run_forever)
    stream = gateway.stream()
    assert signal.getsignal(signal.SIGTERM) is before
    stream.call("double", {"x": 1}, id="a")
    gateway.answer("a")
    agent.stop()
    serving.join(DEADLINE_S)
    assert not serving.is_alive()


def test_a_registration_that_was_never_taken_ends_it(gateway: RecordingGateway) -> None:
    gateway.replies["/agent/connect"] = [Reply(400, {"error": 'Invalid tool name "x".'})]
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    agent = Agent([double], **gateway.settings)
    with pytest.raises(SpaceFixRegistrationError, match='Invalid tool name "x"'):
        agent.run_forever()
    assert agent.status().state == "stopped"
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


PROGRAM = """
    from mantyx_sync import ToolContext, tool
    from mantyx_sync.spacefix import Agent
    began = threading.Event()

    def term(number, frame):
        say("restored")

    signal.signal(signal.SIGTERM, term)

    @tool
    def slow(seconds: float, context: ToolContext) -> str:
        say("at work")
        began.set()
        context.cancelled.wait(seconds)
        return "done"

    @tool
    def ping() -> None:
        pass

    agent = Agent([slow, ping], telemetry=False)
"""


def child(gateway: RecordingGateway, program: str, **env: str) -> Child:
    settings = {"api_key": "", "workspace_slug": "", "base_url": ""}
    env = {"SPACEFIX_URL": gateway.url, "SPACEFIX_AGENT_KEY": KEY, **env}
    return Child(settings, program, make_client=False, has_names=False, **env)


def test_a_signal_ends_it_behind_the_calls_at_work(gateway: RecordingGateway) -> None:
    program = (
        PROGRAM
        + """
    for _ in range(2):
        agent.run_forever()
        say("behind it")
    os.kill(os.getpid(), signal.SIGTERM)
    """
    )
    with child(gateway, program) as process:
        for number in (signal.SIGTERM, signal.SIGINT):
            stream = gateway.stream()
            stream.call("slow", {"seconds": 0.1}, id=str(number))
            process.expect("at work")
            process.process.send_signal(number)
            assert gateway.answer(str(number))["result"] == "done"
            process.expect("behind it")
            assert stream.ended.wait(DEADLINE_S)
        process.expect("restored")
        process.ends()


def test_the_second_signal_does_not_wait(gateway: RecordingGateway) -> None:
    with child(gateway, PROGRAM + "    agent.run_forever(grace=60)\n    say('over')\n") as process:
        stream = gateway.stream()
        stream.call("slow", {"seconds": 60}, id="a")
        process.expect("at work")
        process.process.send_signal(signal.SIGTERM)
        for number in range(1000):  # until the signal is noticed
            stream.call("ping", id=f"p{number}")
            if not gateway.answer(f"p{number}")["ok"]:
                break
        process.process.send_signal(signal.SIGTERM)
        process.expect("over")
        process.ends()
    assert "a" not in [request.json["id"] for request in gateway.to("/agent/result")]


def test_a_script_that_ends_takes_its_agent_along_whatever_is_at_work(gateway: RecordingGateway) -> None:
    program = (
        PROGRAM
        + """
    import logging
    logging.basicConfig(level="DEBUG", stream=open(os.devnull, "w"))
    agent.start().wait_ready()
    began.wait()
    """
    )
    with child(gateway, program) as process:
        stream = gateway.stream()
        stream.call("slow", {"seconds": 60}, id="a")
        process.expect("at work")
        process.ends()
        assert stream.ended.wait(DEADLINE_S)


# ------------------------------------------------------------------------------------------- forks


@needs_fork
def test_a_child_of_a_fork_leaves_the_parents_agent_alone(gateway: RecordingGateway) -> None:
    program = (
        PROGRAM
        + """
    import warnings
    warnings.simplefilter("ignore", DeprecationWarning)  # of a fork while there are threads
    agent.start().wait_ready()
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(writing)
        say(agent.status().state)
        agent.stop()
        os.read(reading, 1)  # lives until the parent has done with it
        with agent.start():
            agent.wait_ready()
            say("child ready")
            while not agent.status().calls:
                time.sleep(0.01)
        os._exit(0)
    os.close(reading)
    while agent.status().calls < 1:
        time.sleep(0.01)
    agent.stop()
    say("parent stopped")
    os.write(writing, b"x")
    os.waitpid(pid, 0)
    say("over")
    """
    )
    with child(gateway, program) as process:
        stream = gateway.stream()
        process.expect("stopped")
        stream.call("slow", {"seconds": 0}, id="a")
        process.expect("at work")
        gateway.answer("a")
        process.expect("parent stopped")
        # Although the child has lived since before: its copy of the stream's descriptor keeps nothing open.
        assert stream.ended.wait(DEADLINE_S)
        process.expect("child ready")
        own = gateway.stream()
        own.call("slow", {"seconds": 0}, id="b")
        process.expect("at work")
        assert gateway.answer("b")["connectionId"] == own.id
        process.expect("over")
        process.ends()


@needs_fork
def test_a_parent_that_is_killed_takes_its_stream_along_although_children_live(gateway: RecordingGateway) -> None:
    program = (
        PROGRAM
        + """
    import warnings
    warnings.simplefilter("ignore", DeprecationWarning)
    agent.start().wait_ready()
    if not os.fork():
        say("child")
        time.sleep(60)
    time.sleep(60)
    """
    )
    with child(gateway, program) as process:
        stream = gateway.stream()
        process.expect("child")
        process.process.kill()
        assert stream.ended.wait(DEADLINE_S)


# ------------------------------------------------------------------------------------------- command line

APP = """
from mantyx_sync.spacefix import Agent

def double(x: int) -> int:
    "Double a number."
    return 2 * x

agent = Agent([double], telemetry=False)

def make():
    return agent

number = 5
"""


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module of the user's in the working directory."""
    name = "spacefix_app"
    (tmp_path / f"{name}.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delenv("SPACEFIX_AGENT_KEY", raising=False)
    yield name
    for module in ("spacefix_app", "broken", "worse"):
        sys.modules.pop(module, None)


def test_an_agent_is_served_from_the_command_line(gateway: RecordingGateway, app: str) -> None:
    root = str(Path(__file__).parent.parent)
    env = {**os.environ, "PYTHONPATH": root, "SPACEFIX_URL": gateway.url, "SPACEFIX_AGENT_KEY": KEY}
    command = [sys.executable, "-X", "dev", "-W", "error", "-m", "mantyx_sync", "spacefix", "serve", f"{app}:agent"]
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        gateway.stream().call("double", {"x": 4}, id="a")
        assert gateway.answer("a")["result"] == 8
        process.send_signal(signal.SIGTERM)
        out, errors = process.communicate(timeout=DEADLINE_S)
    finally:
        process.kill()
        process.communicate()
    assert (process.returncode, out) == (0, "")
    assert "agent: ready, serving 1 tool, 0 resources, 0 prompts" in errors
    assert "Traceback" not in errors
    assert KEY not in errors


@pytest.mark.parametrize("place", ["{}", "{}:agent", "{}:make"])
def test_an_agent_is_checked_without_connecting(app: str, place: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["spacefix", "check", place.format(app)]) == 0
    out, errors = capsys.readouterr()
    assert '"name": "double"' in out
    assert errors == ""


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        (["check", "spacefix_app:agnet"], 2, "module 'spacefix_app' has no 'agnet'; did you mean 'agent'?"),
        (["check", "spacefix_app:number"], 2, "'spacefix_app:number' is of type int, not an Agent"),
        (["check", "spacefix_app:double"], 2, "'spacefix_app:double' cannot be called without arguments"),
        (["check", "nowhere:agent"], 2, "there is no module 'nowhere' in "),
        (["check", "spacefix_app.py"], 2, "give the module's name, not its file"),
        (["check", "a/b.py:agent"], 2, "'a/b.py:agent' is not of the form module:name"),
        (["check", "broken:agent"], 2, "broken.py, line 2: "),
        (["check", "worse:agent"], 2, "importing 'worse' failed with KeyError: 'x' ("),
        (["check", "missing:agent"], 2, "importing 'missing' failed with ModuleNotFoundError"),
        (["check", "refused:agent"], 2, "importing 'refused' failed with MantyxConfigError: a tool's name"),
        (["serve", "spacefix_app"], 1, "agent_key: missing; pass agent_key= or set SPACEFIX_AGENT_KEY"),
    ],
)
def test_mistakes_are_told_in_a_sentence(
    app: str, command: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("broken.py").write_text("x = 1\ny = = 2\n")
    Path("worse.py").write_text("x = {}\nx['x']\n")
    Path("missing.py").write_text("import not_installed_anywhere\n")
    Path("refused.py").write_text("from mantyx_sync.spacefix import *\nagent = Agent([expose(print, name='a b')])\n")
    assert main(["spacefix", *command]) == code
    out, errors = capsys.readouterr()
    assert message in errors
    assert errors.startswith("mantyx-sync: ")
    assert "Traceback" not in errors
    assert out == ""


def test_a_refused_registration_is_an_exit_code(
    gateway: RecordingGateway, app: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway.replies["/agent/connect"] = [Reply(400, {"error": "Too many tools: limit is 0."})]
    monkeypatch.setenv("SPACEFIX_URL", gateway.url)
    monkeypatch.setenv("SPACEFIX_AGENT_KEY", KEY)
    assert main(["spacefix", "serve", "--quiet", app]) == 1
    assert "registration (400): Too many tools: limit is 0." in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [[], ["spacefix"], ["spacefix", "serve"], ["spacefix", "serve", "a", "--grace=x"]]
)
def test_arguments_that_do_not_parse_say_what_is_missing(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage: mantyx-sync" in capsys.readouterr().err
