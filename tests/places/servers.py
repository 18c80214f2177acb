"""Real web servers in processes of their own that serve `served_app`, and what a browser does with them.

with Served(SERVERS["gunicorn gthread"], settings) as served:
    with served.open("/stream?prompt=hi") as page:
        page.expect("event: result")
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Iterator, Mapping, Tuple

from tests.processes import ROOT, environment, kill_group
from tests.waiting import wait_until

__all__ = ["APP", "SERVERS", "Command", "Page", "Served", "gunicorn", "until", "uwsgi"]

DEADLINE_S = 20.0
APP = "tests.places.served_app"


Command = Tuple[str, ...]


def gunicorn(*options: str) -> Command:
    """Return the command of a gunicorn."""
    bound = ("--bind", "127.0.0.1:0", "--graceful-timeout", "3", "--log-level", "warning")
    return (sys.executable, "-m", "gunicorn", *bound, *options)


def uwsgi(*options: str) -> Command:
    """Return the command of a uWSGI."""
    program = str(Path(sys.executable).parent / "uwsgi")
    found = ("--virtualenv", sys.prefix, "--pythonpath", str(ROOT), "--module", f"{APP}:plain", "--need-app")
    return (program, "--http-socket", "127.0.0.1:0", "--master", "--disable-logging", *found, *options)


def _own(*words: str) -> Command:
    return (sys.executable, "-m", APP, *words)


SERVERS: dict[str, Command] = {
    "wsgiref": _own("wsgiref"),
    "Flask's own": _own("flask"),
    "Django's own": _own("django", "--noreload"),
    "Django's own with its reloader": _own("django"),
    "waitress": _own("waitress"),
    "gunicorn sync": gunicorn("--preload", f"{APP}:make_flask()"),
    "gunicorn gthread": gunicorn("--preload", "--threads", "8", f"{APP}:make_django()"),
    "gunicorn gevent": gunicorn("--preload", "--worker-class", "gevent", f"{APP}:make_flask()"),
    "uWSGI with threads": uwsgi("--threads", "8", "--die-on-term"),
}


def until(condition: Any, what: str, within: float = DEADLINE_S) -> float:
    """Wait for a condition; return how long it took."""
    start = time.monotonic()
    wait_until(condition, f"not yet: {what}", within)
    return time.monotonic() - start


class Served:
    """A server that runs. Leaving the `with` block kills what is left of it."""

    def __init__(self, command: Command, settings: Mapping[str, str]) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with this object
        self.process = subprocess.Popen(
            command,
            stdout=self._errors,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env=environment(settings, PYTHONUNBUFFERED="1"),
            start_new_session=True,
        )
        try:
            until(lambda: self._look_for_port() is not None, f"a port of {command}; it said: {self.said}")
        except BaseException:
            self.__exit__()
            raise
        port = self._look_for_port()
        assert port is not None
        self.port = port

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        kill_group(self.process)
        print(self.said)  # shown where a test fails
        self._errors.close()

    @property
    def said(self) -> str:
        """All that it wrote."""
        return os.pread(self._errors.fileno(), 1 << 20, 0).decode(errors="replace")

    @property
    def processes(self) -> set[int]:
        """The processes of the server that live."""
        found = set()
        for name in os.listdir("/proc"):
            with contextlib.suppress(OSError):
                if name.isdigit():
                    state, _, _, session = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()[:4]
                    if int(session) == self.process.pid and state not in "ZX":
                        found.add(int(name))
        return found

    def inside(self) -> dict[str, Any]:
        """Return what the application tells about its process."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)
        with contextlib.closing(connection):
            connection.request("GET", "/inside")
            found: dict[str, Any] = json.loads(connection.getresponse().read())
            return found

    @contextlib.contextmanager
    def open(self, path: str, **headers: str) -> Iterator[Page]:
        """Ask for a page; leaving the block closes it by FIN."""
        page = Page(self.port, path, headers)
        try:
            yield page
        finally:
            page.leave()

    def _look_for_port(self) -> int | None:
        assert self.process.poll() is None, f"the server ended: {self.said}"
        inodes = set()
        for process in self.processes:
            with contextlib.suppress(OSError):
                for entry in os.scandir(f"/proc/{process}/fd"):
                    with contextlib.suppress(OSError):
                        inodes.add(os.readlink(entry.path))
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
                return int(fields[1].partition(":")[2], 16)
        return None


class Page:
    """An answer that is being read."""

    def __init__(self, port: int, path: str, headers: Mapping[str, str]) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)
        self._connection.request("GET", path, headers={"Accept-Encoding": "gzip", **headers})
        sock = self._connection.sock
        assert isinstance(sock, socket.socket)
        self._socket = sock
        self.answer = self._connection.getresponse()
        self.text = ""

    def expect(self, text: str) -> str:
        """Read until `text` has come; return all that came so far."""
        while text not in self.text:
            piece = self.answer.read1(65536)
            assert piece, f"the stream ended without {text!r}: {self.text}"
            self.text += piece.decode()
        return self.text

    def rest(self) -> str:
        """Read to the end; return all that came."""
        while True:
            piece = self.answer.read1(65536)
            if not piece:
                return self.text
            self.text += piece.decode()

    @property
    def last_id(self) -> str:
        """The id of the last event that came whole."""
        whole = self.text.rpartition("\n\n")[0]
        return [line[4:] for line in whole.splitlines() if line.startswith("id: ")][-1]

    def leave(self, *, by_reset: bool = False) -> None:
        """Close the connection."""
        if by_reset and self._socket.fileno() >= 0:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.answer.close()
        self._connection.close()
        self._socket.close()
