"""What a process sees of us: Ctrl-C, its end, fork, gevent, asyncio, uWSGI, and nothing on standard error."""

from __future__ import annotations

import json
import os
import threading
from typing import Any, Iterator

import pytest

from mantyx_sync.local import LocalServer, ModelRequest, Pause, ScriptedModel, ToolUse
from mantyx_sync.local.faults import silent
from tests.effort import IS_THOROUGH
from tests.processes import Child
from tests.waiting import wait_until
from tests.wire import Peer, WireServer, head, stream_head

pytestmark = pytest.mark.usefixtures("no_leaks")

RUN = 'system_prompt="x", prompt="y"'
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


@pytest.fixture
def hold() -> Iterator[threading.Event]:
    """What a paused model waits for."""
    event = threading.Event()
    yield event
    event.set()


def paused(hold: threading.Event) -> ScriptedModel:
    return ScriptedModel([["Some text. ", Pause(hold), "The rest."]])


def calling(name: str = "act", **args: Any) -> ScriptedModel:
    return ScriptedModel([ToolUse(name, args), "Done."])


def cancelled_runs(server: LocalServer) -> list[str]:
    return [request.target for request in server.requests if request.route == "cancel"]


INTERRUPTED = """
except KeyboardInterrupt:
    late = time.monotonic() - pressed_at
    say("interrupted", "in time" if late < 1.0 else f"{late:.2f} s late")
"""
NOTHING_LEFT = """
say(soon_none(ours))
"""


# --------------------------------------------------------------------------- Ctrl-C


def interrupt(child: Child) -> None:
    child.press_ctrl_c()
    child.expect("interrupted in time")


@pytest.mark.parametrize(
    "waiting",
    [
        f"client.run_agent({RUN})",
        f"client.run_agent({RUN}, timeout=500)",
        f"client.run_agent({RUN}, on_event=lambda event: None)",
        f"client.start_agent({RUN}).result()",
        f"for event in client.start_agent({RUN}): pass",
        f"for text in client.stream_agent({RUN}).text_stream: pass",
        f"with client.stream_agent({RUN}) as run: run.result()",
        f"with client.stream_agent({RUN}) as run: say('waiting') or time.sleep(500)",
    ],
)
def test_ctrl_c_on_a_silent_stream_ends_the_wait_and_cancels_the_run(waiting: str) -> None:
    hold = threading.Event()
    with LocalServer(paused(hold)) as server:
        fault = server.faults.add(silent(), route="stream", times=None)
        program = f"say_when_main_waits()\ntry:\n    {waiting}{INTERRUPTED}{NOTHING_LEFT}"
        with Child(server.client_settings(), program) as child:
            assert fault.struck.wait(10)
            child.expect("waiting")
            interrupt(child)
            assert cancelled_runs(server), "the server was not asked to cancel the run"
            child.expect("[]")
            child.ends(3)
        assert len(cancelled_runs(server)) == 1


def create_only(peer: Peer) -> None:
    """Answer what creates a run, and nothing else, not even with headers."""
    while True:
        request = peer.request()
        if not request.target.endswith("/agent-runs"):
            peer.stay()
            return
        body = json.dumps({"runId": "run_1", "status": "queued"}).encode()
        peer.send(head(200, content_type="application/json", content_length=len(body)), body)


def mute(peer: Peer) -> None:
    peer.request()
    peer.stay()


def settings_of(server: WireServer) -> dict[str, str]:
    return {"base_url": server.url, "api_key": "k", "workspace_slug": "s"}


@pytest.mark.parametrize(
    "waiting",
    [
        f"client.run_agent({RUN})",
        f"for event in client.start_agent({RUN}): pass",
        f"with client.stream_agent({RUN}) as run:\n        for event in run: pass",
    ],
)
def test_ctrl_c_while_a_server_never_answers_with_headers(waiting: str) -> None:
    with WireServer(create_only) as server:
        program = f"say_when_main_waits()\ntry:\n    {waiting}{INTERRUPTED}{NOTHING_LEFT}"
        with Child(settings_of(server), program) as child:
            wait_until(lambda: any("/stream" in r.target for r in server.requests), "the stream is not asked for")
            child.expect("waiting")
            interrupt(child)  # although the cancel request is not answered either
            child.expect("[]")
            child.ends(3)
        assert [r.target for r in server.requests if r.target.endswith("/cancel")], "no cancel was attempted"
        assert len([r.target for r in server.requests if r.target.endswith("/cancel")]) == 1


def test_ctrl_c_while_a_run_is_being_created() -> None:
    program = f"try:\n    client.run_agent({RUN}){INTERRUPTED}{NOTHING_LEFT}"
    with WireServer(mute) as server, Child(settings_of(server), program) as child:
        wait_until(lambda: server.requests, "nothing is sent")
        interrupt(child)
        child.expect("[]")
        child.ends(3)


def test_the_client_is_usable_after_ctrl_c(hold: threading.Event) -> None:
    def turns(request: ModelRequest) -> list[Any]:
        return [["Some text. ", Pause(hold)]] if request.prompt == "y" else ["Done."]

    with LocalServer(ScriptedModel(turns)) as server:
        program = f"""
try:
    for event in client.stream_agent({RUN}):
        say("event")
{INTERRUPTED}
say(client.run_agent(system_prompt="x", prompt="again").text)
"""
        with Child(server.client_settings(), program) as child:
            child.expect("event")
            interrupt(child)
            child.expect("Done.")
            child.ends(3)


def test_ctrl_c_while_a_handler_works_ends_the_process_although_the_handler_never_ends() -> None:
    with LocalServer(calling()) as server:
        program = f"""
told = threading.Event()
@tool
def act(context: ToolContext) -> str:
    say("at work")
    context.cancelled.wait()
    told.set()
    time.sleep(600)

try:
    client.run_agent({RUN}, tools=[act])
{INTERRUPTED}
say("told", told.wait(5))
{NOTHING_LEFT}
"""
        with Child(server.client_settings(), program) as child:
            child.expect("at work")
            interrupt(child)
            child.expect("told True")
            child.expect("[]")
            child.ends(3)
        assert len(cancelled_runs(server)) == 1


def test_a_signal_handler_that_exits_is_let_through(hold: threading.Event) -> None:
    # gunicorn's worker does this when a request takes longer than its limit.
    with LocalServer(paused(hold)) as server:
        program = f"""
def give_up(number, frame):
    sys.exit(7)

signal.signal(signal.SIGTERM, give_up)
client.run_agent({RUN}, on_event=lambda event: say(event.type))
"""
        with Child(server.client_settings(), program) as child:
            child.expect("assistant_delta")
            child.process.terminate()
            child.ends(3, code=7)
        assert len(cancelled_runs(server)) == 1


# --------------------------------------------------------------------------- the end of a process

STUCK = """
@tool
def act() -> str:
    say("at work")
    time.sleep(600)
"""


def test_a_time_out_ends_a_process_whose_handler_sleeps_on() -> None:
    with LocalServer(calling()) as server:
        program = f"""{STUCK}
try:
    client.run_agent({RUN}, tools=[act], timeout=1)
except MantyxTimeoutError as error:
    say("timed out", bool(error.run_id))
"""
        with Child(server.client_settings(), program) as child:
            child.expect("at work")
            child.expect("timed out True")
            child.ends(3)
        assert len(cancelled_runs(server)) == 1


def test_a_tools_own_time_out_does_not_keep_the_process() -> None:
    with LocalServer(calling()) as server:
        program = f"""{STUCK.replace("@tool", "@tool(timeout=0.2)")}
say(client.run_agent({RUN}, tools=[act]).text)
"""
        with Child(server.client_settings(), program) as child:
            child.expect("at work")
            child.expect("Done.")
            child.ends(3)


def test_a_handler_that_a_users_thread_let_in_does_not_keep_the_process() -> None:
    # With one place, closing the first run starts the second one's handler: from the main thread, which is no daemon.
    with LocalServer(calling()) as server:
        program = f"""{STUCK}
client = MantyxClient(max_tool_workers=1)
first, second = client.start_agent({RUN}, tools=[act]), client.start_agent({RUN}, tools=[act])
while not second._reader.calls.is_busy or not first._reader.calls.is_busy: time.sleep(0.01)
first.close()
second.close()
first, second = client.start_agent({RUN}, tools=[act]), client.start_agent({RUN}, tools=[act])
while not second._reader.calls.is_busy or not first._reader.calls.is_busy: time.sleep(0.01)
first.close()
say("end")
"""
        with Child(server.client_settings(), program) as child:
            while child.line() != "end":
                pass
            child.ends(5)


@pytest.mark.parametrize("start", ["start_agent", "stream_agent"])
@pytest.mark.parametrize("reading", ["", "next(iter(run))", "next(iter(run.text_stream))"])
def test_the_main_thread_ends_with_a_run_in_flight(start: str, reading: str, hold: threading.Event) -> None:
    with LocalServer(paused(hold)) as server:
        program = f"run = client.{start}({RUN})\n{reading}\nsay('end')"
        with Child(server.client_settings(), program) as child:
            child.expect("end")
            child.ends(3)


def test_our_threads_end_before_the_interpreter_goes_down(hold: threading.Event) -> None:
    with LocalServer(paused(hold)) as server:
        program = f"runs = [client.start_agent({RUN}) for _ in range(5)]\nsay(len(ours()))"
        # Handlers run in reverse order, so this one comes after ours.
        first = "import atexit\natexit.register(lambda: say(ours()))"
        with Child(server.client_settings(), program, first=first) as child:
            child.expect("5")
            child.expect("[]")
            child.ends(3)


def test_the_main_thread_ends_with_nothing_closed_and_idle_connections(hold: threading.Event) -> None:
    with LocalServer(calling()) as server:
        program = f"""
@tool
def act() -> str: return "ok"
other = client.with_options(max_retries=0)
for each in (client, other, MantyxClient()):
    say(each.run_agent({RUN}, tools=[act]).text)
"""
        with Child(server.client_settings(), program) as child:
            for _ in range(3):
                child.expect("Done.")
            child.ends(3)


def test_the_main_thread_ends_with_handlers_at_work_and_others_in_the_line() -> None:
    model = ScriptedModel([[ToolUse("act", {}), ToolUse("act", {})], "Done."])
    with LocalServer(model) as server:
        program = f"""{STUCK.replace("@tool", "@tool(read_only=True)")}
client = MantyxClient(max_tool_workers=1)
runs = [client.start_agent({RUN}, tools=[act]) for _ in range(3)]
"""
        with Child(server.client_settings(), program) as child:
            child.expect("at work")
            # Their ends free places, and what waits for those must neither start now nor complain.
            child.ends(15)


def test_a_users_thread_that_outlives_main_still_gets_its_tools_run(hold: threading.Event) -> None:
    started = threading.Event()
    model = ScriptedModel([["Hello. ", Pause(hold, started), ToolUse("act", {})], ToolUse("act", {}), "Done."])
    with LocalServer(model) as server:
        program = f"""
@tool
def act() -> str:
    say("called")
    return "ok"

def use():
    for event in client.stream_agent({RUN}, tools=[act]):
        if event.type == "assistant_delta": say(event.text)
    say(client.run_agent(system_prompt="x", prompt="another", tools=[act]).text)

def watch():
    import concurrent.futures.thread as futures
    while not futures._shutdown: time.sleep(0.01)  # set once nobody but other threads keeps the interpreter
    say("main is over")

threading.Thread(target=use).start()
threading.Thread(target=watch).start()
"""
        with Child(server.client_settings(), program) as child:
            assert sorted([child.line(), child.line()]) == ["Hello. ", "main is over"]
            assert started.wait(10)
            hold.set()
            child.expect("called")
            child.expect("called")
            child.expect("Done.")
            child.expect("called")
            child.expect("called")
            child.expect("Done.")
            child.ends(5)


@pytest.mark.parametrize("made", ["before", "in the handler"])
def test_a_run_started_while_the_interpreter_ends_works_or_says_why_not(made: str) -> None:
    with LocalServer(calling()) as server:
        program = f"""
import atexit
@tool
def act() -> str: return "ok"

def last():
    try:
        with client if {made == "before"} else MantyxClient() as each:
            say(each.run_agent({RUN}, tools=[act], timeout=10).text)
    except MantyxError as error:
        say("refused:", error)

atexit.register(last)
{"client = MantyxClient()" if made == "before" else ""}
{"client.run_agent(" + RUN + ", tools=[act])" if made == "before" else ""}
atexit.register(last)
"""
        with Child(server.client_settings(), program, make_client=False) as child:
            for _ in range(2):
                line = child.line()
                assert line == "Done." or ("refused:" in line and ("shutdown" in line or "was closed" in line)), line
            child.ends(5)
        assert all(run.is_terminal or run.cancelled.is_set() for run in server.runs), "a run was left behind"


def test_exits_with_a_busy_stream_and_debug_logs_are_always_quiet() -> None:
    def chatter(request: ModelRequest) -> Iterator[str]:
        while not request.abandoned.wait(0.001) and not request.cancelled.is_set():
            yield "word "

    model = ScriptedModel(lambda request: [chatter(request)])
    program = f"""
import logging
logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
run = client.start_agent({RUN})
seen = 0
for event in run:
    seen += 1
    if seen == 200: break
logging.disable(logging.NOTSET)
say("end")
sys.exit(0)
"""
    with LocalServer(model) as server:
        for _ in range(10 if IS_THOROUGH else 3):
            children = [Child(server.client_settings(), program) for _ in range(3)]
            try:
                for child in children:
                    child.expect("end")
                    code = child.process.wait(10)
                    assert code == 0, child.stderr
                    assert "Traceback" not in child.stderr
                    assert "Fatal" not in child.stderr
                    assert "Exception ignored" not in child.stderr
            finally:
                for child in children:
                    child.__exit__(None, None, None)


def test_the_collector_may_come_by_while_a_lock_is_held() -> None:
    # It runs inside any line of code of any thread; what it calls must not wait for a lock that this thread holds.
    with LocalServer(calling()) as server:
        program = f"""
import contextlib, gc

@tool
def act(context: ToolContext) -> str:
    context.cancelled.wait()
    return "late"

run = client.stream_agent({RUN}, tools=[act])
reader = run._reader
while not reader.calls.is_busy: time.sleep(0.01)
locks = [next(iter(client._workspace.executor._pools.values()))._lock, reader.calls._lock, reader._stopped._cond]
locks += [reader.backlog._room._cond, reader._stream._release_body._lock]
if hasattr(reader._stream._released, "_cond"):  # an Event's
    locks.append(reader._stream._released._cond)
cycle = [run]
cycle.append(cycle)
del run, cycle
with contextlib.ExitStack() as stack:
    for lock in locks: stack.enter_context(lock)
    gc.collect()
say("collected")
say(reader.done.wait(5))
"""
        with Child(server.client_settings(), program) as child:
            child.expect("collected")
            child.expect("True")
            child.ends(5)


# --------------------------------------------------------------------------- fork and spawn


@needs_fork
@pytest.mark.parametrize("used_before", [True, False])
def test_parent_and_children_of_a_fork_complete_runs_with_tools(used_before: bool) -> None:
    def turns(request: ModelRequest) -> list[Any]:
        return [ToolUse("who", {"marker": request.prompt}), lambda r: str(r.messages[-1]["content"])]

    program = f"""
import warnings
warnings.filterwarnings("ignore", ".*fork", DeprecationWarning)

@tool
def who(marker: str) -> str:
    return f"{{marker}} in {{os.getpid()}}"

def use(name):
    for n in range(20):
        marker = f"{{name}}-{{n}}"
        result = client.run_agent(system_prompt="x", prompt=marker, tools=[who])
        assert result.text == f"{{marker}} in {{os.getpid()}}", result.text

if {used_before}: use("before")
children = []
for n in range(2):
    child = os.fork()
    if not child:
        use(f"child{{n}}")
        sys.exit(40 + n)
    children.append(child)
use("parent")
say([os.WEXITSTATUS(os.waitpid(child, 0)[1]) for child in children])
use("after")
"""
    with LocalServer(ScriptedModel(turns)) as server, Child(server.client_settings(), program) as child:
        child.expect("[40, 41]")
        child.ends(5)


@needs_fork
@pytest.mark.parametrize(
    "in_child",
    [
        "sys.exit(5)",
        "client.close(); sys.exit(5)",
        "run.close(); sys.exit(5)",
        "run.abort(); sys.exit(5)",
        "del run; import gc; gc.collect(); sys.exit(5)",
        "run.__exit__(None, None, None); sys.exit(5)",
    ],
)
def test_a_child_of_a_fork_does_not_disturb_its_parents_run(in_child: str, hold: threading.Event) -> None:
    started = threading.Event()
    with LocalServer(ScriptedModel([["Some text. ", Pause(hold, started), "The rest."]])) as server:
        program = f"""
import warnings
warnings.filterwarnings("ignore", ".*fork", DeprecationWarning)
run = client.stream_agent({RUN})
assert next(iter(run)).text == "Some text. "
child = os.fork()
if not child:
    {in_child}
say("child", os.WEXITSTATUS(os.waitpid(child, 0)[1]))
say(run.result().text)
"""
        with Child(server.client_settings(), program) as child:
            child.expect("child 5")
            hold.set()
            child.expect("Some text. The rest.")
            child.ends(5)
        assert len([r for r in server.requests if r.route == "stream"]) == 1, "the stream was broken"
        assert not cancelled_runs(server)


@needs_fork
def test_waiting_for_a_parents_run_in_a_child_is_refused(hold: threading.Event) -> None:
    with LocalServer(paused(hold)) as server:
        program = f"""
import warnings
warnings.filterwarnings("ignore", ".*fork", DeprecationWarning)
run = client.stream_agent({RUN})
child = os.fork()
if not child:
    for wait in (run.result, lambda: list(run), lambda: list(run.text_stream)):
        try:
            wait()
        except MantyxError as error:
            assert error.code == "other_process" and "attach_run" in str(error)
        else:
            sys.exit(1)
    other = client.attach_run(run.run_id)
    say(next(iter(other)).text)
    sys.exit(5)
say("child", os.WEXITSTATUS(os.waitpid(child, 0)[1]))
"""
        with Child(server.client_settings(), program) as child:
            child.expect("Some text. ")
            child.expect("child 5")
            child.ends(5)


def test_a_spawned_process_makes_its_own_client(tmp_path: Any) -> None:
    script = tmp_path / "spawned.py"
    script.write_text(
        "import multiprocessing, sys\n"
        "from mantyx_sync import MantyxClient, tool\n"
        "@tool\n"
        "def act() -> str: return 'ok'\n"
        "def work(n):\n"
        "    return MantyxClient().run_agent(system_prompt='x', prompt=str(n), tools=[act]).text\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context('spawn').Pool(2) as pool:\n"
        "        print(pool.map(work, range(4)), flush=True)\n"
        "        pool.close()\n"
        "        pool.join()\n"
    )
    with LocalServer(calling()) as server:
        program = f"os.execv(sys.executable, [sys.executable, '-X', 'dev', '-W', 'error', {str(script)!r}])"
        with Child(server.client_settings(), program) as child:
            child.expect(str(["Done."] * 4))
            child.ends(10)


# --------------------------------------------------------------------------- gevent, uWSGI, asyncio

PATCH = "from gevent import monkey; monkey.patch_all()"
GREENLETS = """
import gevent, gevent.pool
from mantyx_sync import MantyxClient, tool
client = MantyxClient()
@tool
def act(n: int) -> str:
    return f"ran {n}"

done = []
def use(n):
    text = client.run_agent(system_prompt="x", prompt=str(n), tools=[act], timeout=30).text
    assert text == f"ran {n}", text
    with client.stream_agent(system_prompt="x", prompt=str(n), tools=[act]) as run:
        assert "".join(run.text_stream) == f"ran {n}"
    done.append(n)

pool = gevent.pool.Pool(20)
for n in range(50): pool.spawn(use, n)
pool.join(raise_error=True)
say(len(done))
"""


@pytest.mark.parametrize(
    "order",
    [
        f"{PATCH}\nimport mantyx_sync",
        f"import mantyx_sync\n{PATCH}",
        f"from mantyx_sync import MantyxClient, MantyxError, RunSpec, ToolContext, tool\n{PATCH}",
    ],
    ids=["patched first", "patched after the import", "patched after the import of names"],
)
def test_a_hundred_runs_on_twenty_greenlets(order: str, tmp_path: Any) -> None:
    pytest.importorskip("gevent")

    def turns(request: ModelRequest) -> list[Any]:
        return [ToolUse("act", {"n": int(request.prompt)}), lambda r: str(r.messages[-1]["content"])]

    script = tmp_path / "greenlets.py"
    script.write_text(f"import sys\ndef say(*words): print(*words, flush=True)\n{order}\n{GREENLETS}")
    with LocalServer(ScriptedModel(turns)) as server:
        program = f"os.execv(sys.executable, [sys.executable, {str(script)!r}])"
        with Child(server.client_settings(), program, make_client=False) as child:
            child.expect("50")
            child.ends(10)


def test_uwsgi_without_threads_is_said_once_before_anything_is_sent() -> None:
    with LocalServer() as server:
        program = f"""
import types, warnings
sys.modules["uwsgi"] = types.ModuleType("uwsgi")
sys.modules["uwsgi"].opt = {{b"http": b":80"}}
client = MantyxClient()
say("no warning yet")
try:
    client.run_agent({RUN})
except RuntimeWarning as warning:
    say("enable-threads" in str(warning))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    say(bool(client.run_agent({RUN}).text), len(caught))
"""
        with Child(server.client_settings(), program) as child:
            child.expect("no warning yet")
            child.expect("True")
            child.expect("True 0")
            child.ends(5)
        assert len(server.runs) == 1


@pytest.mark.parametrize("options", ['{b"enable-threads": b"true"}', '{"threads": "4"}'])
def test_uwsgi_with_threads_needs_no_warning(options: str) -> None:
    with LocalServer() as server:
        program = f"""
import types
sys.modules["uwsgi"] = types.ModuleType("uwsgi")
sys.modules["uwsgi"].opt = {options}
say(bool(client.run_agent({RUN}).text))
"""
        with Child(server.client_settings(), program) as child:
            child.expect("True")
            child.ends(5)


def test_a_warning_points_at_the_line_that_starts_the_run() -> None:
    with LocalServer() as server:
        program = f"""
import types, warnings
import mantyx_sync.uwsgi_threads as uwsgi_threads
sys.modules["uwsgi"] = types.ModuleType("uwsgi")
sys.modules["uwsgi"].opt = {{}}
def start(): client.run_agent({RUN})
def stream(): client.stream_agent({RUN}).close()
def background(): client.start_agent({RUN}).close()
def plan(): client.run_plan({RUN})
def attach(): client.attach_run(client.list_runs().items[0].id).close()
def send(): client.create_session(system_prompt="x").send("Hi")
for use in (start, stream, background, plan, attach, send):
    uwsgi_threads._has_warned = False
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        use()
    say(caught[0].filename, caught[0].lineno - use.__code__.co_firstlineno)
"""
        with Child(server.client_settings(), program) as child:
            for _ in range(6):
                child.expect("<string> 0")
            child.ends(5)


def test_blocking_calls_work_inside_a_running_event_loop_and_need_no_asyncio() -> None:
    with LocalServer(calling()) as server:
        program = f"""
@tool
def act() -> str: return "ok"
say(client.run_agent({RUN}, tools=[act]).text, "asyncio" in sys.modules)
import asyncio
async def main():
    say(client.run_agent({RUN}, tools=[act]).text)
    with client.stream_agent({RUN}, tools=[act]) as run:
        say("".join(run.text_stream))
    say(await asyncio.get_running_loop().run_in_executor(None, lambda: client.run_agent({RUN}, tools=[act]).text))
asyncio.run(main())
"""
        with Child(server.client_settings(), program) as child:
            child.expect("Done. False")
            child.expect("Done.")
            child.expect("Done.")
            child.expect("Done.")
            child.ends(5)


def test_mantyx_log_writes_our_lines_to_standard_error_and_nothing_else() -> None:
    with LocalServer() as server:
        settings = server.client_settings()
        with Child(settings, f"client.run_agent({RUN})", MANTYX_LOG="debug") as child:
            assert child.process.wait(10) == 0
            wait_until(lambda: "stream opened" in child.stderr, "our lines should be there")
        assert "urllib3" not in child.stderr
        assert settings["api_key"] not in child.stderr


def test_a_process_whose_stream_head_is_slow_is_timed_out_on_time() -> None:
    def slow(peer: Peer) -> None:
        request = peer.request()
        body = json.dumps({"runId": "run_1"}).encode()
        if request.target.endswith("/agent-runs"):
            peer.send(head(200, content_type="application/json", content_length=len(body)), body)
            slow(peer)
        elif request.target.endswith("/cancel"):
            peer.send(head(200, content_type="application/json", content_length=2), b"{}")
            slow(peer)
        else:
            peer.send(stream_head())
            peer.stay()

    with WireServer(slow) as server:
        program = f"""
start = time.monotonic()
try:
    client.run_agent({RUN}, timeout=0.5)
except MantyxTimeoutError:
    took = time.monotonic() - start
    say("in time" if took < 1.5 else took)
{NOTHING_LEFT}
"""
        with Child(settings_of(server), program) as child:
            child.expect("in time")
            child.expect("[]")
            child.ends(3)
