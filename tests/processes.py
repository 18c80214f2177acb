"""Python programs in processes of their own, run with `-X dev -W error`, that talk to a server of the test.

    with Child(server.client_settings(), "print(client.run_agent(...).text)") as child:
        child.expect("Done.")
        child.ends()

The program finds `client`, `say` and the public names of the package. A child must end quietly: whatever is written
to standard error, a warning or a traceback of a thread included, fails the test.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from queue import Empty, Queue
from types import TracebackType
from typing import Any, Mapping

__all__ = ["Child", "environment", "kill_group"]

ROOT = Path(__file__).parent.parent
DEADLINE_S = 20.0

NAMES = """\
import mantyx_sync
from mantyx_sync import *
"""
PRELUDE = """\
import os, signal, sys, threading, time

def say(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\\n")  # in one piece: other threads speak too
    sys.stdout.flush()

def ours():
    "Names of our threads, the idle ones that run handlers left out."
    return sorted(t.name for t in threading.enumerate() if t.name.startswith(("mantyx-run", "mantyx-deadlines")))

def soon_none(what):
    until = time.monotonic() + 1.0
    while what() and time.monotonic() < until:
        time.sleep(0.005)
    return what()

def say_when_main_waits():
    "Say `waiting` once the main thread waits for something inside our package."
    main = threading.main_thread().ident

    def watch():
        before = None
        while True:
            frame, ours, place = sys._current_frames()[main], False, None
            while frame is not None:
                place = place or (id(frame), frame.f_lasti)
                ours = ours or frame.f_code.co_name in ("result", "take")
                frame = frame.f_back
            if ours and place == before:
                return say("waiting")
            before = place
            time.sleep(0.02)

    threading.Thread(target=watch, daemon=True).start()

def pressed(number, frame):
    global pressed_at
    pressed_at = time.monotonic()
    raise KeyboardInterrupt

signal.signal(signal.SIGINT, pressed)
"""


def environment(settings: Mapping[str, str], **more: str) -> dict[str, str]:
    """Return the environment of a child that finds our package and the server."""
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "MANTYX_API_KEY": settings["api_key"],
        "MANTYX_WORKSPACE_SLUG": settings["workspace_slug"],
        "MANTYX_BASE_URL": settings["base_url"],
        **more,
    }


def kill_group(process: subprocess.Popen[Any]) -> None:
    """Kill what is left of a process that leads a group, its children included, and wait for its end."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(DEADLINE_S)


class Child:
    """A running program. Leaving the `with` block kills what is left of it."""

    def __init__(
        self,
        settings: Mapping[str, str],
        program: str,
        *,
        first: str = "",
        make_client: bool = True,
        has_names: bool = True,
        **env: str,
    ) -> None:
        """Start `program`; `first` runs before our package is imported.

        Without `client` and the public names, a program about something else starts three times as fast.
        """
        code = first + "\n" + (NAMES if has_names else "") + PRELUDE
        code += ("client = MantyxClient()\n" if make_client else "") + textwrap.dedent(program)
        self.process = subprocess.Popen(
            [sys.executable, "-X", "dev", "-W", "error", "-c", code],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=environment(settings, **env),
            start_new_session=True,  # so that its own children can be killed with it
        )
        self._lines: Queue[str | None] = Queue()
        self._errors: list[str] = []
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self._readers = [
            threading.Thread(target=self._read_out, args=(self.process.stdout,)),
            threading.Thread(target=self._read_errors, args=(self.process.stderr,)),
        ]
        for reader in self._readers:
            reader.start()

    def _read_out(self, stream: object) -> None:
        for line in stream:  # type: ignore[attr-defined]
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def _read_errors(self, stream: object) -> None:
        self._errors.extend(stream)  # type: ignore[arg-type]

    @property
    def stderr(self) -> str:
        return "".join(self._errors)

    def line(self) -> str:
        """Return the next line the child says."""
        try:
            line = self._lines.get(timeout=DEADLINE_S)
        except Empty:
            raise AssertionError(f"the child says nothing; on stderr: {self.stderr}") from None
        if line is None:
            self.process.wait(DEADLINE_S)
            self._readers[1].join(DEADLINE_S)
            raise AssertionError(f"the child ended with {self.process.returncode}; on stderr: {self.stderr}")
        return line

    def expect(self, text: str) -> None:
        line = self.line()
        assert line == text, f"{line!r} is not {text!r}; on stderr: {self.stderr}"

    def press_ctrl_c(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def ends(self, within: float = DEADLINE_S, *, code: int = 0, stderr: str = "") -> float:
        """Wait for the end; return how long that took. It must come `within` seconds, with `code`, and quietly."""
        start = time.monotonic()
        try:
            got = self.process.wait(within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the child does not end within {within} s; on stderr: {self.stderr}") from None
        took = time.monotonic() - start
        for reader in self._readers:
            reader.join(DEADLINE_S)
        assert got == code, f"exit code {got}; on stderr: {self.stderr}"
        assert self.stderr == stderr, f"on stderr: {self.stderr}"
        return took

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        kill_group(self.process)
        for reader in self._readers:
            reader.join(DEADLINE_S)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()
