"""Fixtures that several test modules use."""

from __future__ import annotations

import gc
import os
import threading
import time
from typing import TYPE_CHECKING, Iterator

import pytest

if TYPE_CHECKING:
    from tests.mcp_stdio import Traces

_FD_DIR = "/proc/self/fd"


def _threads() -> set[threading.Thread]:
    return set(threading.enumerate())


def _sockets() -> set[str]:
    """Return the open sockets of this process (an empty set where the system does not tell)."""
    found = set()
    if os.path.isdir(_FD_DIR):
        for name in os.listdir(_FD_DIR):
            try:
                target = os.readlink(os.path.join(_FD_DIR, name))
            except OSError:  # closed since
                continue
            if target.startswith("socket:"):
                found.add(target)
    return found


@pytest.fixture
def no_leaks() -> Iterator[None]:
    """Fail a test after which a thread or a socket is left that was not there before it.

    Use it for a whole module with `pytestmark = pytest.mark.usefixtures("no_leaks")`. What is only waiting for
    the garbage collector does not count; what is about to end gets its time, also on a busy machine.
    """
    threads, sockets = _threads(), _sockets()
    yield
    pause = threading.Event()
    deadline = time.monotonic() + 20.0
    while True:
        new_threads, new_sockets = _threads() - threads, _sockets() - sockets
        if not new_threads and not new_sockets:
            return
        gc.collect()
        if time.monotonic() > deadline:
            break
        pause.wait(0.01)
    assert not new_threads, f"threads left behind: {sorted(thread.name for thread in new_threads)}"
    assert not new_sockets, f"sockets left behind: {sorted(new_sockets)}"


_PROXY_NAMES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NETRC")


@pytest.fixture
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no proxy, CA file or `.netrc` of this machine's in the environment."""
    for name in _PROXY_NAMES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def traces() -> Iterator[Traces]:
    """Fail a test after which a process, thread or descriptor is left."""
    from tests.mcp_stdio import Traces

    traces = Traces()
    yield traces
    gc.collect()
    traces.assert_none(within=2.0)
