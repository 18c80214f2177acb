"""Where the programs of others are, which versions they are, and how they are started and ended.

`tests/interop/setup DIR` makes the environments; `MANTYX_INTEROP=DIR` is where the tests find them. A test that needs
one that is not there is skipped, and says so.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any, Iterator, Mapping, Sequence

import pytest

__all__ = ["HERE", "Program", "children", "node_script", "program", "python_of", "version_of", "versions"]

HERE = Path(__file__).parent
DEADLINE_S = 30.0

PYTHON_PACKAGES = {"mcp-new": "mcp", "mcp-old": "mcp", "a2a-new": "a2a-sdk", "a2a-old": "a2a-sdk"}
NODE_PACKAGES = ("server-everything", "server-filesystem", "sdk")


def _folder() -> Path:
    folder = os.environ.get("MANTYX_INTEROP")
    if not folder:
        pytest.skip("MANTYX_INTEROP does not name what tests/interop/setup made")
    return Path(folder)


def python_of(name: str) -> str:
    """Return the interpreter of an environment (`mcp-new`, `mcp-old`, `a2a-new`, `a2a-old`); skip if there is none."""
    python = _folder() / name / "bin" / "python"
    if not python.exists():
        pytest.skip(f"there is no environment {name} in MANTYX_INTEROP")
    return str(python)


def node_script(package: str, script: str = "dist/index.js") -> list[str]:
    """Return the command that runs a script of a package of the node project; skip if there is none."""
    path = _folder() / "npm" / "node_modules" / "@modelcontextprotocol" / package / script
    if not path.exists():
        pytest.skip("npm was not there when MANTYX_INTEROP was made")
    return ["node", str(path)]


def version_of(name: str) -> str:
    """Return the version of an environment's package, or of a package of the node project; skip if there is none."""
    if name in NODE_PACKAGES:
        package = Path(node_script(name, "package.json")[1])
        return str(json.loads(package.read_text(encoding="utf-8"))["version"])
    code = f"from importlib.metadata import version; print(version({PYTHON_PACKAGES[name]!r}))"
    return subprocess.run(
        [python_of(name), "-c", code], capture_output=True, text=True, check=True, timeout=DEADLINE_S
    ).stdout.strip()


def versions() -> dict[str, str]:
    """Return the versions of everything that is there."""
    found = {}
    for name in (*PYTHON_PACKAGES, *NODE_PACKAGES):
        with contextlib.suppress(pytest.skip.Exception):
            found[name] = version_of(name)
    return found


def children() -> set[int]:
    """Return the ids of the processes that are our children, dead ones that were not reaped included."""
    if not os.path.isdir("/proc/self"):
        pytest.skip("this system does not show its processes in /proc")
    found = set()
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            after_name = Path("/proc", entry, "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2]
            if int(after_name.split()[1]) == os.getpid():
                found.add(int(entry))
    return found


class Program:
    """A program that runs, and what it has said so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: queue.Queue[str | None] = queue.Queue()
        self.errors: list[str] = []
        self.said = threading.Condition()
        # Both end with the program's output, which `program` sees to.
        self.readers = [
            threading.Thread(target=self._read, name="program-stdout"),
            threading.Thread(target=self._read_errors, name="program-stderr"),
        ]
        for reader in self.readers:
            reader.start()

    def line(self, start: str = "") -> str:
        """Return the rest of the next line on its stdout that begins with `start`."""
        while True:
            line = self.lines.get(timeout=DEADLINE_S)
            assert line is not None, f"the program ended: {''.join(self.errors)[-2000:]}"
            if line.startswith(start):
                return line[len(start) :].strip()

    def line_on_stderr(self, text: str) -> str:
        """Wait for a line on its stderr that holds `text`; return it."""
        with self.said:
            found = self.said.wait_for(lambda: [line for line in self.errors if text in line], DEADLINE_S)
            assert found, f"it does not say {text!r}: {''.join(self.errors)[-2000:]}"
            return found[0]

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self.said:
                self.errors.append(line)
                self.said.notify_all()


@contextlib.contextmanager
def program(command: Sequence[str], env: Mapping[str, str] | None = None, **options: Any) -> Iterator[Program]:
    """Run a program in a process group of its own; end the whole group afterwards."""
    process = subprocess.Popen(
        list(command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, **(env or {})},
        **options,
    )
    running = Program(process)
    try:
        yield running
    finally:
        for sign in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, sign)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(2.0)
                break
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # what it left behind
        for reader in running.readers:
            reader.join(DEADLINE_S)
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            stream.close()
