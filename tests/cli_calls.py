"""Calling the command line in this process: what it printed, and how it ended."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import threading
from typing import Any, Iterator

import pytest

from mantyx_sync.cli import main
from mantyx_sync.local import LocalServer, ModelRequest, Pause, ScriptedModel

__all__ = ["SETTINGS", "Cli", "Stop", "serving", "use_server"]

SETTINGS = ("MANTYX_API_KEY", "MANTYX_ACCESS_TOKEN", "MANTYX_WORKSPACE_SLUG", "MANTYX_BASE_URL", "MANTYX_LOG")


def use_server(server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the environment name a server."""
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)


@contextlib.contextmanager
def serving(script: Any) -> Iterator[LocalServer]:
    """Run a server whose model plays a script."""
    with LocalServer(ScriptedModel(script)) as server:
        yield server


class Stop:
    """A script that writes a word and waits: `reached` is set then, and `go` lets it go on."""

    def __init__(self) -> None:
        self.go, self.reached = threading.Event(), threading.Event()

    def __call__(self, _request: ModelRequest) -> Any:
        return [["It was ", Pause(self.go, self.reached), "shipped."]]


class Cli:
    """The command line, called with arguments. `out` and `err` are what it printed last."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys = capsys
        self._monkeypatch = monkeypatch
        self.out = self.err = ""

    def __call__(self, *arguments: str, said: str | bytes | None = None) -> int:
        """Run a command; `said` is piped in."""
        given: Any = io.StringIO("") if said is None else io.StringIO(said) if isinstance(said, str) else None
        if given is None:
            assert isinstance(said, bytes)
            given = io.TextIOWrapper(io.BytesIO(said))
        self._monkeypatch.setattr(sys, "stdin", given)
        self._capsys.readouterr()
        try:
            code = main(list(arguments))
        except SystemExit as end:
            code = int(end.code or 0)
        self.out, self.err = self._capsys.readouterr()
        assert "Traceback" not in self.err
        assert "\x1b" not in self.out + self.err
        return code

    @property
    def json(self) -> Any:
        """The last line of the output as JSON."""
        return json.loads(self.out.splitlines()[-1])

    @property
    def lines(self) -> list[Any]:
        """Each line of the output as JSON."""
        return [json.loads(line) for line in self.out.splitlines()]
