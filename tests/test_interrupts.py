"""Ctrl-C, signals and `close()` of another thread at awkward moments: nothing hangs, and no odd error comes of it."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from mantyx_sync.tools.executor import ToolExecutor
from tests.scripted_runs import SPEC, RunServer, delta, quick_client, stream

pytestmark = pytest.mark.usefixtures("no_leaks")


def test_closing_while_the_thread_of_a_run_is_being_started_raises_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()
    start = threading.Thread.start

    def slow_start(thread: threading.Thread) -> None:
        start(thread)
        if thread.name.startswith("mantyx-run"):
            started: Any = thread._started  # type: ignore[attr-defined]  # the moment between running and started
            started.clear()
            begun.set()
            go_on.wait(10)
            started.set()

    monkeypatch.setattr(threading.Thread, "start", slow_start)
    with RunServer(stream(delta(1, "Hi"), end="stay")) as server, quick_client(server) as client:
        starter = threading.Thread(target=lambda: client.start_agent(**SPEC).close())
        starter.start()
        assert begun.wait(10)
        try:
            client.close()
        finally:
            go_on.set()
            starter.join(10)


def test_an_executor_that_two_threads_close_at_once_is_closed() -> None:
    class Emptied(dict):  # type: ignore[type-arg]
        def __bool__(self) -> bool:  # another thread takes the last pool behind this look
            return True

    executor = ToolExecutor(1)
    executor._pools = Emptied()
    executor.close()
