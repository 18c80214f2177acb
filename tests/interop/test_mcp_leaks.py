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
from tests.test_mcp_lifetimes import USES, repeat

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


PROGRAM = """
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
    program = PROGRAM.format(options=options, mark=MARK, ending=last_line)
    # Half of the fifty ends are those of servers that would not end by themselves.
    for _ in range(TIMES // 2 // AT_ONCE):
        scripts = [
            subprocess.Popen(
                [sys.executable, "-c", program],
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
