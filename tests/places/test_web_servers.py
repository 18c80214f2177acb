"""`mantyx_sync.web` under real web servers: pieces arrive as they come, and whoever leaves leaves nothing behind."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import urllib.parse
from typing import Any, Iterator

import pytest

from mantyx_sync.local import LocalServer, Pause, ScriptedModel, ToolUse
from tests.places.servers import APP, SERVERS, Command, Page, Served, gunicorn, until, uwsgi

_numbers = itertools.count()


class Agent:
    """The platform, with a script for each prompt."""

    def __init__(self) -> None:
        self._scripts: dict[str, Any] = {}
        self.server = LocalServer(model=ScriptedModel(lambda request: self._scripts[request.prompt]))

    def script(self, *turns: Any, **query: str) -> str:
        """Return the address at which a run with these turns is streamed."""
        prompt = f"prompt {next(_numbers)}"
        self._scripts[prompt] = turns
        return "/stream?" + urllib.parse.urlencode({"prompt": prompt, **query})

    def served(self, command: Command) -> Served:
        """Start a server whose application is pointed at this platform."""
        return Served(command, self.server.client_settings())

    def run(self, page: Page) -> Any:
        """Return the run that a page shows."""
        return self.server.run(page.last_id.partition("/")[0])


@pytest.fixture(scope="module")
def agent() -> Iterator[Agent]:
    agent = Agent()
    with agent.server:
        yield agent


@pytest.fixture(scope="module", params=SERVERS)
def served(request: pytest.FixtureRequest, agent: Agent) -> Iterator[Served]:
    with agent.served(SERVERS[request.param]) as served:
        yield served
        assert "Traceback" not in served.said, served.said


def forget(served: Served) -> None:
    """Wait until nothing of a run is left in the server's process."""
    until(lambda: not served.inside()["threads"], "the threads of runs have ended")


def test_words_arrive_before_the_end_and_tools_are_called(served: Served, agent: Agent) -> None:
    go_on = threading.Event()
    with served.open(agent.script(["One ", ToolUse("where")], ["two ", Pause(go_on), "three."])) as page:
        try:
            assert page.answer.status == 200
            assert page.answer.headers["Content-Type"] == "text/event-stream; charset=utf-8"
            page.expect('{"text":"two "}')
            assert '"ok":true' in page.text
            assert "three" not in page.text
        finally:
            go_on.set()
        text = page.rest()
    assert text.index("retry:") < text.index("event: run\n") < text.index("One ") < text.index("event: result\n")
    assert [
        event["data"]["output"][:8] for event in agent.run(page).events if event["type"] == "local_tool_result_in"
    ] == ["process "]
    forget(served)


@pytest.mark.parametrize("by_reset", [False, True], ids=["FIN", "RST"])
def test_a_browser_that_leaves_cancels_its_run(served: Served, agent: Agent, by_reset: bool) -> None:
    with served.open(agent.script(["One ", Pause(threading.Event())])) as page:
        page.expect('{"text":"One "}')
        page.leave(by_reset=by_reset)
        took = until(lambda: agent.run(page).is_terminal, "the run was cancelled")
    assert agent.run(page).status == "cancelled"
    assert took < 3.0
    forget(served)


def test_a_run_that_may_finish_does_and_the_browser_comes_back(served: Served, agent: Agent) -> None:
    go_on = threading.Event()
    turns = ["One ", Pause(go_on), ToolUse("where")], ["two."]
    with served.open(agent.script(*turns, leaving="finish")) as page:
        page.expect('{"text":"One "}')
        page.leave(by_reset=True)
        until(lambda: "mantyx-web-finish" in str(served.inside()["threads"]), "the stream was closed")
    run = agent.run(page)
    with served.open("/resume", **{"Last-Event-ID": page.last_id}) as back:
        back.expect("event: run\n")
        go_on.set()
        text = back.rest()
    assert "One " not in text.partition("assistant_message")[0]
    assert text.count("event: local_tool_call\n") == 1
    assert text.count("event: result\n") == 1
    assert run.status == "succeeded"
    assert [event["type"] for event in run.events].count("local_tool_result_in") == 1
    forget(served)


@pytest.mark.parametrize("name", [name for name in SERVERS if not name.startswith("uWSGI")])
def test_a_server_that_is_told_to_end_leaves_no_run(name: str, agent: Agent) -> None:
    with agent.served(SERVERS[name]) as served:
        with served.open(agent.script(["One ", Pause(threading.Event())])) as page:
            page.expect('{"text":"One "}')
            if "reloader" in name:  # whose parent kills its child outright at SIGTERM; a terminal tells both
                os.killpg(served.process.pid, signal.SIGINT)
            else:
                served.process.send_signal(signal.SIGTERM)
            until(lambda: agent.run(page).is_terminal, "the run was cancelled")
            took = until(lambda: not served.processes, "the server has ended")
        assert agent.run(page).status == "cancelled"
        assert took < 3.0
        assert "Traceback" not in served.said, served.said


@pytest.mark.parametrize("name", [name for name in SERVERS if name.startswith("gunicorn")])
def test_a_run_that_may_finish_goes_on_at_the_server_when_its_worker_ends(name: str, agent: Agent) -> None:
    go_on = threading.Event()
    address = agent.script(["One ", Pause(go_on), "two."], leaving="finish")
    with agent.served(SERVERS[name]) as served, served.open(address) as page:
        page.expect('{"text":"One "}')
        served.process.send_signal(signal.SIGTERM)
        until(lambda: not served.processes, "the server has ended")
        assert "event: error" not in page.rest()
    run = agent.run(page)
    assert not run.is_terminal
    with agent.served(SERVERS[name]) as served:  # the one after it
        with served.open("/resume", **{"Last-Event-ID": page.last_id}) as back:
            back.expect("event: run\n")
            go_on.set()
            back.expect("event: result\n")
        forget(served)
    assert run.status == "succeeded"


def test_uwsgi_that_is_told_to_end_gracefully_waits_for_a_stream(agent: Agent) -> None:
    go_on = threading.Event()
    graceful = uwsgi("--threads", "8", "--hook-master-start", "unix_signal:15 gracefully_kill_them_all")
    address = agent.script(["One ", Pause(go_on), "two."])
    with agent.served(graceful) as served, served.open(address) as page:
        page.expect('{"text":"One "}')
        served.process.send_signal(signal.SIGTERM)
        until(lambda: "Gracefully killing worker" in served.said, "the worker was told")
        go_on.set()
        page.expect("event: result\n")
        until(lambda: not served.processes, "the server has ended")
    assert agent.run(page).status == "succeeded"


def test_uwsgi_without_threads_answers_with_what_is_to_be_set(agent: Agent) -> None:
    with agent.served(uwsgi("--die-on-term")) as served:
        with served.open(agent.script("Never.")) as page:
            assert page.answer.status == 503
            assert "enable-threads = true" in page.rest()
        assert served.inside()["threads"] == []


def test_a_worker_that_is_killed_for_taking_too_long_cancels_its_run(agent: Agent) -> None:
    started = len(agent.server.runs)
    with agent.served(gunicorn("--timeout", "1", f"{APP}:make_flask()")) as served:
        first = served.inside()["pid"]
        with served.open(agent.script(["One ", Pause(threading.Event())])) as page:
            page.expect('{"text":"One "}')
            until(lambda: agent.run(page).is_terminal, "the run was cancelled")
            until(lambda: first not in served.processes, "the worker has ended")
        assert agent.run(page).status == "cancelled"
        assert served.inside()["pid"] != first
        with served.open(agent.script("Fine.")) as page:
            page.expect("event: result\n")
    assert len(agent.server.runs) == started + 2


@pytest.mark.parametrize("name", ["gunicorn gthread", "gunicorn gevent", "waitress", "uWSGI with threads"])
def test_fifty_browsers_that_leave_by_reset_free_their_places(name: str, agent: Agent) -> None:
    address = agent.script(["One ", Pause(threading.Event())])
    with agent.served(SERVERS[name]) as served:
        at_once = 7  # one less than there are threads
        runs = []
        for _ in range(0, 50, at_once):
            pages = [Page(served.port, address, {}) for _ in range(at_once)]
            for page in pages:
                page.expect('{"text":"One "}')
                runs.append(agent.run(page))
            for page in pages:
                page.leave(by_reset=True)
            until(lambda: all(run.is_terminal for run in runs), "the runs were cancelled")
        assert {run.status for run in runs} == {"cancelled"}
        forget(served)
        with served.open(agent.script("Fine.")) as page:
            page.expect("event: result\n")
