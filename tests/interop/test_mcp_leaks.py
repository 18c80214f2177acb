"""Fifty repetitions of every way in which the use of an MCP server over stdio can end: nothing is left of any.

The servers have a child of their own that holds their pipes. The quick form is `tests/test_mcp_lifetimes.py`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Callable

import pytest

from tests.mcp_stdio import MARK, Traces, client_of, text_of
from tests.test_mcp_lifetimes import GREENLETS, USES, program, repeat

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="looks for processes in /proc")

ROOT = Path(__file__).parent.parent.parent
TIMES = 50
AT_ONCE = 5


def interrupt_a_call(env: dict[str, str]) -> None:
    """Press Ctrl-C while a call waits; the block ends by it."""
    main = threading.get_ident()
    with contextlib.suppress(KeyboardInterrupt), client_of("child=plain", env=env) as client:
        text_of(client, "echo", text="x")
        timer = threading.Timer(0.05, signal.pthread_kill, (main, signal.SIGINT))
        timer.start()
        try:
            client.call_tool("never", timeout=20)
        finally:
            timer.join()


def end_a_stubborn_family(env: dict[str, str]) -> None:
    """Close a server that ignores the end of its input and SIGTERM, and has a child that does so too."""
    with client_of("ignore-eof", "ignore-term", "child=stubborn", env=env) as client:
        text_of(client, "echo", text="x")


@pytest.mark.parametrize("use", [*USES, end_a_stubborn_family], ids=lambda use: use.__name__)
def test_fifty_repetitions_leave_nothing(use: Callable[[dict[str, str]], None]) -> None:
    def several(env: dict[str, str]) -> None:
        threads = [threading.Thread(target=use, args=(env,)) for _ in range(AT_ONCE)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)

    repeat(several, TIMES // AT_ONCE)


def test_fifty_times_ctrl_c_leaves_nothing() -> None:
    repeat(interrupt_a_call, TIMES)


SCRIPT = """
import os, sys
from tests.mcp_stdio import client_of, text_of
client = client_of("child=plain"{options}, env={{"{mark}": os.environ["{mark}"]}})
text_of(client, "echo", text="x")
try:
    print("up", flush=True)
    {ending}
except KeyboardInterrupt:
    sys.exit(7)
"""
ENDINGS = {
    "the script ends": ("pass", 0),
    "it exits": ("sys.exit(5)", 5),
    "it fails": ("raise SystemExit('no')", 1),
    "ctrl-c": ("client.call_tool('never')", 7),
}


@pytest.mark.parametrize("options", ["", ", 'ignore-eof', 'ignore-term'"], ids=["willing", "stubborn"])
@pytest.mark.parametrize("ending", ENDINGS)
def test_fifty_interpreters_that_forget_to_close_leave_nothing(ending: str, options: str) -> None:
    traces = Traces()
    last_line, code = ENDINGS[ending]
    script_text = SCRIPT.format(options=options, mark=MARK, ending=last_line)
    for _ in range(TIMES // AT_ONCE):
        scripts = [
            subprocess.Popen(
                [sys.executable, "-c", script_text],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT), MARK: traces.mark},
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            for _ in range(AT_ONCE)
        ]
        for script in scripts:
            assert script.stdout is not None
            with script.stdout:
                assert script.stdout.readline() == b"up\n"
                if ending == "ctrl-c":
                    threading.Event().wait(0.05)  # it is in the call by then, most of the time
                    os.killpg(script.pid, signal.SIGINT)
            assert script.wait(20) == code
    traces.assert_none(within=3.0)


def test_a_killed_script_leaves_no_server_that_reads() -> None:
    traces = Traces()
    code = "willing = client_of(env=env)\ntext_of(willing, 'echo', text='x')\nsay('up')\ntime.sleep(600)"
    with program(traces, code) as child:
        child.expect("up")
        child.process.kill()
        child.ends(code=-signal.SIGKILL)
    traces.assert_none(within=3.0)


def test_a_pool_of_processes_has_a_server_each() -> None:
    traces = Traces()
    code = """
import json, multiprocessing
client = client_of(env=env)
(mine,) = json.loads(text_of(client, "pids"))

def work(number):
    return text_of(client, "pids")

with multiprocessing.get_context("fork").Pool(2) as pool:
    pids = {pid for answer in pool.map(work, range(8)) for pid in json.loads(answer)}
    say(mine in pids, 1 <= len(pids) <= 2)
    pool.close()
    pool.join()
"""
    with program(traces, code) as child:
        child.expect("False True")
        child.ends()
    traces.assert_none(within=3.0)


@pytest.mark.skipif(sys.version_info < (3, 10), reason="gevent is not installed for the tests of this version")
def test_gevent_may_patch_after_our_import() -> None:
    pytest.importorskip("gevent")
    traces = Traces()
    patch = "import warnings; warnings.simplefilter('ignore')\nfrom gevent import monkey; monkey.patch_all()\n"
    with program(traces, patch + GREENLETS) as child:
        child.expect("True True")
        child.expect("3")
        child.expect("forked")
        child.ends()
    traces.assert_none(within=3.0)
