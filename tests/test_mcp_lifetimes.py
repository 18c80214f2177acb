"""MCP servers and the life of the process that uses them: its end, Ctrl-C, forks, greenlets. Nothing is left, ever.

The programs use servers that ignore the end of their input and SIGTERM, unless a test is about something else.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import threading
from typing import Callable

import pytest

from mantyx_sync.mcp.client import McpClient
from mantyx_sync.mcp.errors import McpConnectionError
from tests.mcp_stdio import Traces, client_of, text_of
from tests.processes import Child

pytestmark = [
    pytest.mark.usefixtures("no_leaks"),
    pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="looks for processes in /proc"),
]

PROGRAM = """
from tests.mcp_stdio import client_of, text_of, QUICK
from mantyx_sync.mcp.errors import McpError
env = {"MANTYX_TEST_MARK": os.environ["MANTYX_TEST_MARK"]}
client = client_of("ignore-eof", "ignore-term", env=env)
"""


def program(traces: Traces, code: str, first: str = "") -> Child:
    settings = {"api_key": "tok_MARKER", "workspace_slug": "w", "base_url": "http://127.0.0.1:9"}
    return Child(
        settings, PROGRAM + code, first=first, make_client=False, has_names=False, MANTYX_TEST_MARK=traces.mark
    )


# --------------------------------------------------------------------------- the interpreter's end

# What is registered earlier runs later: at that time every server has ended.
LAST = """
import atexit, sys

@atexit.register
def last():
    try:
        client.call_tool("echo", {"text": "x"}, timeout=20)
    except Exception as error:
        say("last", type(error).__name__)
"""
USE = "text_of(client, 'echo', text='x')\n"
ENDINGS = {
    "sys.exit(3)": 3,
    "threading.Thread(target=lambda: (threading.main_thread().join(), text_of(client, 'echo', text='x'))).start()": 0,
    "atexit.register(lambda: text_of(client, 'echo', text='x'))": 0,
    """
for _ in range(3):
    text_of(client_of('ignore-eof', 'ignore-term', env=env), 'echo', text='x')
kept = [client_of('ignore-eof', 'ignore-term', env=env) for _ in range(3)]
for other in kept: text_of(other, 'echo', text='x')

began = threading.Event()

def call():
    try: client.call_tool('progress', {'count': 1, 'ends': False}, on_progress=lambda _: began.set())
    except McpError: pass

threading.Thread(target=call, daemon=True).start()
assert began.wait(20)
""": 0,
}


def test_the_end_of_the_interpreter_is_the_end_of_its_servers_and_comes_soon(traces: Traces) -> None:
    with contextlib.ExitStack() as stack:
        children = [
            (stack.enter_context(program(traces, f"{USE}say('up')\n{ending}", LAST)), code)
            for ending, code in ENDINGS.items()
        ]
        for child, code in children:
            child.expect("up")
            child.expect("last McpConnectionError")
            child.ends(within=5.0, code=code)
    traces.assert_none()


def test_ctrl_c_spares_the_server_until_the_script_ends(traces: Traces) -> None:
    code = """
pid = text_of(client, "pids")
try:
    say("up")
    client.call_tool("never")
except KeyboardInterrupt:
    say("interrupted", "in time" if time.monotonic() - pressed_at < 1.0 else "late")
try:
    say("the same" if pid == text_of(client, "pids") else "another")
    client.call_tool("never")
except KeyboardInterrupt:
    sys.exit(7)
"""
    with program(traces, code) as child:
        child.expect("up")
        os.killpg(child.process.pid, signal.SIGINT)  # as a terminal does
        child.expect("interrupted in time")
        child.expect("the same")
        os.killpg(child.process.pid, signal.SIGINT)
        child.ends(code=7)
    traces.assert_none()


# --------------------------------------------------------------------------- forks

FORK = """
parents = text_of(client, "pids")
# A thread of the parent holds whatever lock it holds at the moment of the fork.
began = threading.Event()
given = {"count": 20, "pause": 0.02}
call = lambda: client.call_tool("progress", given, on_progress=lambda _: began.set())
threading.Thread(target=call, daemon=True).start()
assert began.wait(20)
child = os.fork()
if not child:
    try:
        assert client.call_tool("echo", {"text": "y"}, timeout=20).text == "y"
        assert text_of(client, "pids") != parents
        client.close()
    except BaseException:
        import traceback
        traceback.print_exc()
        os._exit(1)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
say("the same" if text_of(client, "pids") == parents else "another")

# A child that lives on holds no end of a pipe: the server sees its input end.
patient = client_of(env=env, grace=type(QUICK)(10.0, 10.0))
text_of(patient, "echo", text="x")
child = os.fork()
if not child:
    time.sleep(600)
start = time.monotonic()
patient.close()
say("at once" if time.monotonic() - start < 5.0 else "late")
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
"""


def test_a_fork_has_a_server_of_its_own_and_leaves_its_parents_alone(traces: Traces) -> None:
    with program(traces, FORK) as child:
        child.expect("the same")
        child.expect("at once")
        child.ends()
    traces.assert_none()


# --------------------------------------------------------------------------- greenlets

GREENLETS = """
import gevent
client = client_of("threads", env=env)

def work(number):
    assert text_of(client, "slow", seconds=0.3) == "slow"
    return text_of(client, "echo", text="x" * 300_000 + str(number))[-2:]

start = time.monotonic()
found = [task.get() for task in [gevent.spawn(work, number) for number in range(10, 30)]]
say(found == [str(number) for number in range(10, 30)], time.monotonic() - start < 5.0)
try:
    text_of(client, "die")
except McpError as error:
    say(error.exit_code)
text_of(client, "echo", text="x")
child = os.fork()
if not child:
    say(text_of(client, "echo", text="forked"))
    client.close()
    os._exit(0)
os.waitpid(child, 0)
text_of(client, "echo", text="x")
"""


@pytest.mark.skipif(sys.version_info < (3, 10), reason="gevent is not installed for the tests of this version")
def test_greenlets_use_a_server(traces: Traces) -> None:
    pytest.importorskip("gevent")
    with program(traces, GREENLETS, "from gevent import monkey; monkey.patch_all()") as child:
        child.expect("True True")
        child.expect("3")
        child.expect("forked")
        child.ends()
    traces.assert_none()


# --------------------------------------------------------------------------- again and again


def use_and_close(env: dict[str, str]) -> None:
    with client_of(env=env) as client:
        text_of(client, "echo", text="x")


def fail_in_the_block(env: dict[str, str]) -> None:
    with contextlib.suppress(ZeroDivisionError), client_of("child=plain", env=env) as client:
        text_of(client, "echo", text="x")
        raise ZeroDivisionError


def close_a_stubborn_one(env: dict[str, str]) -> None:
    with client_of("ignore-eof", "ignore-term", env=env) as client:
        text_of(client, "echo", text="x")


def drop_without_closing(env: dict[str, str]) -> None:
    text_of(client_of("ignore-eof", env=env), "echo", text="x")


def die_in_a_call(env: dict[str, str]) -> None:
    with client_of(env=env) as client:
        with contextlib.suppress(McpConnectionError):
            text_of(client, "die")
        text_of(client, "echo", text="x")


def never_start(env: dict[str, str]) -> None:
    with McpClient.stdio("no-such-program", env=env) as client, contextlib.suppress(McpConnectionError):
        client.list_tools()


def give_up(env: dict[str, str]) -> None:
    with client_of(env=env) as client, contextlib.suppress(TimeoutError):
        client.call_tool("never", timeout=0.1)


USES: list[Callable[[dict[str, str]], None]] = [
    use_and_close,
    fail_in_the_block,
    close_a_stubborn_one,
    drop_without_closing,
    die_in_a_call,
    never_start,
    give_up,
]


def repeat(use: Callable[[dict[str, str]], None], times: int) -> None:
    """Use a server that many times, and fail if a process, thread or descriptor is left."""
    traces = Traces()
    for _ in range(times):
        use(traces.env)
    gc.collect()
    traces.assert_none(within=3.0)


@pytest.mark.parametrize("use", USES, ids=lambda use: use.__name__)
def test_nothing_is_left_however_it_is_used(use: Callable[[dict[str, str]], None]) -> None:
    repeat(use, 2)  # fifty times in tests/interop/test_mcp_leaks.py


def test_a_script_may_start_and_drop_many_at_once(traces: Traces) -> None:
    def work() -> None:
        use_and_close(traces.env)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    traces.assert_none()
