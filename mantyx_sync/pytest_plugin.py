"""A plugin for pytest: fixtures that give a test an embedded server, a client of it, or a recording to play.

It is loaded by itself where the package is installed, and does nothing for a test that uses none of its fixtures:

- `mantyx_server`: a `ScriptedServer`; `mantyx_client`: a client of it; `mantyx_env`: `MANTYX_…` variables for code that
  makes its own client;
- `mantyx_replay`: plays the test's recording; with `--mantyx-record` it makes it, against the real account;
- `mantyx_no_leaks`: fails a test that leaves runs, streams or threads behind.

`@pytest.mark.mantyx(script=[…], faults=[…], …)` sets them up. A test whose script was not played as written, or whose
recording was not used as recorded, fails with a sentence. `unittest` classes use the fixtures through
`@pytest.mark.usefixtures`, or through an autouse fixture of their own that keeps them on `self`.
"""

from __future__ import annotations

import os
import re
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Iterator, Mapping, TypeVar, Union

import pytest

if TYPE_CHECKING:
    from mantyx_sync import MantyxClient
    from mantyx_sync.local import RecordingServer, ReplayServer, ScriptedServer
    from mantyx_sync.local.api_server import ApiServer

__all__ = ["mantyx_client", "mantyx_env", "mantyx_no_leaks", "mantyx_replay", "mantyx_server"]

T = TypeVar("T")

_MARKER = (
    "mantyx(script=, faults=, model=, recording=, ignore=, speed=, max_gap=, redact=, secrets=, **settings): sets up "
    "the fixtures mantyx_server and mantyx_replay; other keywords are arguments of mantyx_sync.local.LocalServer"
)
_OF_RECORDINGS = ("recording", "ignore", "speed", "max_gap", "redact", "secrets")
LEAK_PATIENCE_S = 3.0

_checks: pytest.StashKey[list[Callable[[], list[str]]]] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--mantyx-record`."""
    group = parser.getgroup("mantyx", "agent runs (mantyx-sync)")
    group.addoption(
        "--mantyx-record",
        action="store_true",
        default=False,
        help="make the recordings of tests that use mantyx_replay anew, against the account that MANTYX_API_KEY and "
        "MANTYX_WORKSPACE_SLUG name; refused where CI is set",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker; refuse to record by accident."""
    config.addinivalue_line("markers", _MARKER)
    if config.getoption("--mantyx-record") and os.environ.get("CI", "").lower() not in ("", "0", "false"):
        raise pytest.UsageError(
            "--mantyx-record would run agents on a real account, and the environment variable CI says that this is a "
            "machine for tests; record on your own, and commit the recordings"
        )


@pytest.hookimpl(trylast=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Behind a test that passed: fail it if its script or recording was not used as written."""
    # Reached by tests that did not raise alone: whatever stops a test stops pytest's own hook before this one.
    problems = [problem for check in item.stash.get(_checks, []) for problem in check()]
    if problems:
        pytest.fail("\n".join(problems), pytrace=False)


def _check_behind(request: pytest.FixtureRequest, check: Callable[[], list[str]]) -> None:
    request.node.stash.setdefault(_checks, []).append(check)


def _marked(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return the keywords of the test's `mantyx` markers; those next to the test come before those of its class."""
    found: dict[str, Any] = {}
    for marker in request.node.iter_markers("mantyx"):
        if marker.args:
            pytest.fail("mark.mantyx: takes keywords only, as in script=[…]", pytrace=False)
        found = {**marker.kwargs, **found}
    return found


# --------------------------------------------------------------------------------------- embedded server


@pytest.fixture
def mantyx_server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedServer]:
    """An embedded server of this test's own: `script` it, look at what was `sent`, add `faults`.

    `@pytest.mark.mantyx(script=[…])` is what the model says in the turns of the test's first run; `faults=[…]`,
    `model=…` and the other arguments of `LocalServer` go there as well.
    """
    from mantyx_sync.local import ScriptedServer

    settings = {name: value for name, value in _marked(request).items() if name not in _OF_RECORDINGS}
    script: Any = settings.pop("script", None)

    def make() -> ScriptedServer:
        _refuse_unknown(settings)
        server = ScriptedServer(**settings)
        if script is not None:
            server.script(*([script] if isinstance(script, str) else script))
        return server

    server = _made(make, (TypeError, ValueError), lambda error: f"mark.mantyx: {error}")
    _check_behind(request, server.script_problems)
    _reach_loopback(monkeypatch)
    with server:
        yield server


def _refuse_unknown(settings: Mapping[str, Any]) -> None:
    """Raise `ValueError` if there is no such keyword of the marker."""
    import inspect

    from mantyx_sync.checks import closest
    from mantyx_sync.local import LocalServer

    known = ["script", *_OF_RECORDINGS, *list(inspect.signature(LocalServer).parameters)]
    for name in settings:
        if name not in known:
            near = closest(name, known)
            hint = f"; did you mean {near}=?" if near else ""
            raise ValueError(f"got {name}=, must be one of {', '.join(known)}{hint}")


def _made(make: Callable[[], T], kinds: tuple[type[Exception], ...], sentence: Callable[[Exception], str]) -> T:
    """Return what `make` makes; where that fails, fail the test with a sentence and without a traceback."""
    try:
        return make()
    except kinds as error:
        text = sentence(error)
    pytest.fail(text, pytrace=False)


# -------------------------------------------------------------------------------------------- recordings


@pytest.fixture
def mantyx_replay(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Union[ReplayServer, RecordingServer]]:
    """Plays `recordings/<module>.<test>.jsonl`, beside the test's file; with `--mantyx-record` records it anew.

    The test's client is `mantyx_client`, or any other with `mantyx_replay.client_settings()` or `mantyx_env`.
    `@pytest.mark.mantyx(recording="late_order.jsonl", ignore=["metadata.trace_id"])` names the file, and takes the
    arguments of `ReplayServer` and `RecordingServer`.
    """
    options = {name: value for name, value in _marked(request).items() if name in _OF_RECORDINGS}
    path = _recording_of(request, options.pop("recording", None))
    _reach_loopback(monkeypatch)
    if request.config.getoption("--mantyx-record"):
        yield from _record(request, path, options)
    else:
        yield from _replay(request, path, options)


def _recording_of(request: pytest.FixtureRequest, name: str | None) -> Path:
    folder = Path(str(request.node.path)).parent / "recordings"
    if name is not None:
        return folder / name
    names = [request.node.path.stem]
    cls = getattr(request.node, "cls", None)
    if cls is not None:
        names.append(cls.__name__)
    return folder / (re.sub(r"[^\w.+-]+", "_", ".".join([*names, request.node.name])) + ".jsonl")


def _replay(request: pytest.FixtureRequest, path: Path, options: dict[str, Any]) -> Iterator[ReplayServer]:
    from mantyx_sync.local import RecordingError, ReplayServer

    again = f"pytest {request.node.nodeid!r} --mantyx-record"
    options = {name: value for name, value in options.items() if name != "secrets"}
    server = _made(
        lambda: ReplayServer(path, **options),
        (RecordingError, TypeError, ValueError),
        lambda error: (
            f"{error}\nTo make it, with a real account: {again}"
            if isinstance(error, RecordingError)
            else f"mark.mantyx: {error}"
        ),
    )

    def check() -> list[str]:
        try:
            server.assert_all_used()
        except AssertionError as error:
            return [f"{error}\nIf that is meant so: {again}"]
        return []

    _check_behind(request, check)
    with server:
        yield server


def _record(request: pytest.FixtureRequest, path: Path, options: dict[str, Any]) -> Iterator[RecordingServer]:
    from mantyx_sync import MantyxConfigError
    from mantyx_sync.local import RecordingServer

    wanted = {name: options[name] for name in ("secrets", "redact") if name in options}
    server = _made(
        lambda: RecordingServer(path, **wanted),
        (MantyxConfigError,),
        lambda error: f"--mantyx-record needs an account: {error}",
    )
    passed: list[bool] = []

    def check() -> list[str]:
        passed.append(True)
        return []

    _check_behind(request, check)
    with server:
        yield server
        if not passed:
            server.discard()  # what a failing test leads to is not what it is to be compared with


# ----------------------------------------------------------------------------------------------- clients


@pytest.fixture
def mantyx_client(request: pytest.FixtureRequest) -> Iterator[MantyxClient]:
    """A client of `mantyx_replay` where the test uses it, else of `mantyx_server`; closed after the test."""
    from mantyx_sync import MantyxClient

    with MantyxClient(**_server_of(request).client_settings()) as client:
        yield client


@pytest.fixture
def mantyx_env(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Set `MANTYX_BASE_URL`, `MANTYX_API_KEY` and `MANTYX_WORKSPACE_SLUG` to the test's server; returns them.

    For code that makes its own client, in this process or in one that it starts.
    """
    variables = _server_of(request).environment()
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("MANTYX_ACCESS_TOKEN", raising=False)
    return variables


def _server_of(request: pytest.FixtureRequest) -> ApiServer:
    name = "mantyx_replay" if "mantyx_replay" in request.fixturenames else "mantyx_server"
    server: ApiServer = request.getfixturevalue(name)
    return server


def _reach_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep a proxy that the environment names out of the way of this test's server."""
    from mantyx_sync.local.api_server import proxy_exceptions

    for name, value in proxy_exceptions(os.environ).items():
        monkeypatch.setenv(name, value)


# ------------------------------------------------------------------------------------------------- leaks


@pytest.fixture
def mantyx_no_leaks(request: pytest.FixtureRequest) -> None:
    """Fail a test that passed and left a run going on at `mantyx_server`, a stream open, or a thread of ours at work.

    What is about to end gets some seconds for it. Threads that wait for the next tool call do not count.
    """
    before = set(threading.enumerate())

    def check() -> list[str]:
        server = request.getfixturevalue("mantyx_server") if "mantyx_server" in request.fixturenames else None
        deadline = time.monotonic() + LEAK_PATIENCE_S
        pause = threading.Event()
        while True:
            found = _left_behind(server, before)
            if not found or time.monotonic() >= deadline:
                return found
            pause.wait(0.01)

    _check_behind(request, check)


def _left_behind(server: ScriptedServer | None, before: set[threading.Thread]) -> list[str]:
    found = [
        f"run {run.id} still goes on at the server (prompt {run.prompt[:60]!r})"
        for run in (server.sent.runs if server is not None else ())
        if run.status in ("queued", "running")
    ]
    if server is not None and server.open_streams:
        found.append(f"{server.open_streams} event streams are still open")
    ours = ("mantyx-run", "mantyx-eval", "mantyx-mcp")
    threads = sorted(t.name for t in set(threading.enumerate()) - before if t.name.startswith(ours))
    if threads:
        found.append(f"threads still at work: {', '.join(threads)}")
    return found
