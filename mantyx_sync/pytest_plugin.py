"""A plugin for pytest: fixtures that give a test an embedded server, a client of it, or a recording to play.

It is loaded by itself where the package is installed, and does nothing for a test that uses none of its fixtures:

- `mantyx_server`: a `ScriptedServer`; `mantyx_client`: a client of it; `mantyx_env`: `MANTYX_…` variables for code that
  makes its own client;
- `mantyx_replay`: plays the test's recording; with `--mantyx-record` it makes it, against the real account;
- `mantyx_no_leaks`: fails a test that leaves runs, streams or threads behind.

`@pytest.mark.mantyx(script=[…], faults=[…], …)` sets them up. A test whose script was not played as written, or whose
recording was not used as recorded, fails with a sentence; one that fails otherwise has it below its error. `unittest`
classes use the fixtures through `@pytest.mark.usefixtures`, or through an autouse fixture of their own that keeps them
on `self`.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Iterator, Mapping, Optional, TypeVar, Union
from weakref import WeakKeyDictionary

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

MAX_NAME_CHARS = 100


@dataclass
class _State:
    """What is to be looked at behind a test, and what became of the test itself."""

    checks: list[Callable[[], list[str]]] = field(default_factory=list)
    leftovers: list[Callable[[], list[str]]] = field(default_factory=list)
    """Those of the checks that do not wait, and say something of a test that failed as well."""
    has_passed: bool = False


# No stashes: pytest has them from 7.0 on, and with an older one all tests would fail, those without us as well.
_states: WeakKeyDictionary[Any, _State] = WeakKeyDictionary()
_recorded: WeakKeyDictionary[Any, dict[Path, str]] = WeakKeyDictionary()
"""By session: the test that has made a recording."""


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
    # Reached by tests that did not raise alone: whatever stops a test stops pytest's own hook before this one. Those
    # of unittest leave their errors here.
    state = _states.get(item)
    if state is None or getattr(item, "_excinfo", None):
        return
    problems = [problem for check in state.checks for problem in check()]
    if problems:
        pytest.fail("\n".join(problems), pytrace=False)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Note whether the test passed; where it failed, show below its error what else was not as written."""
    outcome: Any = yield
    state = _states.get(item)
    if state is None or call.when != "call":
        return
    report = outcome.get_result()
    state.has_passed = report.passed
    if report.failed:
        text = "\n".join(problem for check in state.leftovers for problem in check())
        if text and text not in report.longreprtext:
            report.sections.append(("mantyx: not as written", text))


def _check_behind(request: pytest.FixtureRequest, check: Callable[[], list[str]], *, waits: bool = False) -> _State:
    """Have a check made behind the test, which says what is wrong."""
    state = _states.setdefault(request.node, _State())
    lists = [state.checks] if waits else [state.checks, state.leftovers]
    for one in lists:
        one.append(check)
        # A test may be run again.
        request.addfinalizer(lambda one=one: one.remove(check))  # type: ignore[misc]
    return state


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
    maker = _recorded.setdefault(request.config, {}).get(path)
    if request.config.getoption("--mantyx-record") and maker in (None, request.node.nodeid):
        yield from _record(request, path, options)
    else:  # a recording that several tests have is made by the first, and has to fit the others
        yield from _replay(request, path, options, maker)


def _recording_of(request: pytest.FixtureRequest, name: str | None) -> Path:
    file = Path(str(getattr(request.node, "path", None) or request.node.fspath))
    folder = file.parent / "recordings"
    if name is not None:
        return Path(os.path.abspath(folder / name))
    cls = getattr(request.node, "cls", None)
    names = [file.stem, *([cls.__name__] if cls is not None else []), request.node.name]
    return Path(os.path.abspath(folder / f"{_file_name('.'.join(names))}.jsonl"))


def _file_name(name: str) -> str:
    """Return a name for a file, which is another one for another test."""
    plain = re.sub(r"[^\w.+-]+", "_", name, flags=re.ASCII)
    if len(plain) <= MAX_NAME_CHARS and re.fullmatch(r"[\w.+-]+(\[[a-z0-9_.+-]+\])?", name, re.ASCII):
        return plain
    # Of parameters that are no file names, or that some systems take for the same, more is left than what is alike.
    return f"{plain[:MAX_NAME_CHARS]}-{hashlib.sha256(name.encode('utf-8', 'backslashreplace')).hexdigest()[:8]}"


def _replay(
    request: pytest.FixtureRequest, path: Path, options: dict[str, Any], maker: Optional[str]
) -> Iterator[ReplayServer]:
    from mantyx_sync.local import RecordingError, ReplayServer

    again = f"If that is meant so: pytest {request.node.nodeid!r} --mantyx-record"
    if maker is not None:
        again = f"It was made by {maker} just now; if this test is to have one of its own, give it another recording="
    options = {name: value for name, value in options.items() if name != "secrets"}
    server = _made(
        lambda: ReplayServer(path, **options),
        (RecordingError, TypeError, ValueError),
        lambda error: (
            f"{error}\nTo make it, with a real account: pytest {request.node.nodeid!r} --mantyx-record"
            if isinstance(error, RecordingError)
            else f"mark.mantyx: {error}"
        ),
    )

    def check() -> list[str]:
        try:
            server.assert_all_used()
        except AssertionError as error:
            return [f"{error}\n{again}"]
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
    state = _check_behind(request, list)
    with server:
        yield server
        if not state.has_passed:
            server.discard()  # what a failing test leads to is not what it is to be compared with
    if state.has_passed:
        _recorded[request.config][path] = request.node.nodeid


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
        names = [name for name in ("mantyx_server", "mantyx_replay") if name in request.fixturenames]
        servers = [request.getfixturevalue(name) for name in names]
        deadline = time.monotonic() + LEAK_PATIENCE_S
        pause = threading.Event()
        while True:
            found = _left_behind(servers, before)
            if not found or time.monotonic() >= deadline:
                return found
            pause.wait(0.01)

    _check_behind(request, check, waits=True)


def _left_behind(servers: list[Any], before: set[threading.Thread]) -> list[str]:
    found = [
        f"run {run.id} still goes on at the server (prompt {run.prompt[:60]!r})"
        for server in servers
        for run in (server.sent.runs if hasattr(server, "sent") else ())
        if run.status in ("queued", "running")
    ]
    open_streams = sum(server.open_streams for server in servers)
    if open_streams:
        found.append(f"{open_streams} event streams are still open")
    ours = ("mantyx-run", "mantyx-eval", "mantyx-mcp")
    threads = sorted(t.name for t in set(threading.enumerate()) - before if t.name.startswith(ours))
    if threads:
        found.append(f"threads still at work: {', '.join(threads)}")
    return found
