"""Deadlines: one thread while there are any, none when there are none."""

from __future__ import annotations

import logging
import os
import threading
import time

import pytest

from mantyx_sync.tools.deadlines import Deadlines
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("no_leaks")


def watchers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "mantyx-deadlines"]


def soon(seconds: float) -> float:
    return time.monotonic() + seconds


def test_actions_run_in_the_order_of_their_times_and_not_before() -> None:
    deadlines, done, order = Deadlines(), threading.Event(), []
    start = time.monotonic()

    def note(name: str) -> None:
        order.append((name, time.monotonic() - start))

    deadlines.add(start + 0.06, lambda: (note("late"), done.set()))  # type: ignore[func-returns-value]
    deadlines.add(start + 0.02, lambda: note("early"))
    deadlines.add(start + 0.04, lambda: note("middle"))
    assert done.wait(5)
    assert [name for name, _ in order] == ["early", "middle", "late"]
    assert all(at >= due for (_, at), due in zip(order, (0.02, 0.04, 0.06)))


def test_one_thread_watches_all_and_ends_with_the_last_deadline() -> None:
    deadlines = Deadlines()
    take_back = [deadlines.add(soon(60), lambda: None) for _ in range(50)]
    assert len(watchers()) == 1
    assert watchers()[0].daemon
    for each in take_back:
        each()
    wait_until(lambda: not watchers(), "the watching thread goes on without deadlines")
    # and a new one is watched again
    done = threading.Event()
    deadlines.add(soon(0), done.set)
    assert done.wait(5)


def test_a_deadline_that_was_taken_back_does_not_act() -> None:
    deadlines, acted, done = Deadlines(), threading.Event(), threading.Event()
    take_back = deadlines.add(soon(0.02), acted.set)
    take_back()
    take_back()  # twice does no harm
    deadlines.add(soon(0.04), done.set)
    assert done.wait(5)
    assert not acted.is_set()


def test_an_action_that_raises_does_not_end_the_others(caplog: pytest.LogCaptureFixture) -> None:
    deadlines, done = Deadlines(), threading.Event()

    def fail() -> None:
        raise RuntimeError("boom")

    with caplog.at_level(logging.ERROR, "mantyx_sync"):
        deadlines.add(soon(0), fail)
        deadlines.add(soon(0.01), done.set)
        assert done.wait(5)
    assert "an action at its deadline failed" in caplog.text


def test_a_time_that_is_centuries_away_is_no_error() -> None:
    Deadlines().add(soon(1e12), lambda: None)()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_of_a_fork_watches_its_own_deadlines() -> None:
    deadlines = Deadlines()
    take_back = deadlines.add(soon(60), lambda: None)
    lock = next(iter(deadlines._watches.values()))._condition
    with lock:  # as if another thread were inside when the process forks
        child = os.fork()
        if not child:
            done = threading.Event()
            deadlines.add(time.monotonic(), done.set)
            os._exit(0 if done.wait(5) else 1)
    _, status = os.waitpid(child, 0)
    assert os.WEXITSTATUS(status) == 0
    take_back()


def test_a_thread_that_cannot_be_started_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    deadlines, first, second = Deadlines(), threading.Event(), threading.Event()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", _refuse)
        deadlines.add(soon(0), first.set)
    deadlines.add(soon(0), second.set)
    assert first.wait(5)
    assert second.wait(5)


def _refuse(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


@pytest.mark.parametrize("really_starts", [False, True])
def test_ctrl_c_while_the_thread_is_started_leaves_no_deadline_behind(
    monkeypatch: pytest.MonkeyPatch, really_starts: bool
) -> None:
    class Interrupted(threading.Thread):
        def start(self) -> None:
            if really_starts:
                super().start()
            raise KeyboardInterrupt

    deadlines, called = Deadlines(), threading.Event()
    with monkeypatch.context() as patch:
        patch.setattr("mantyx_sync.tools.deadlines.threading.Thread", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            deadlines.add(time.monotonic() + 3600, called.set)
    wait_until(lambda: not watchers(), "nothing is left to watch")
    deadlines.add(time.monotonic(), called.set)
    assert called.wait(5)
    wait_until(lambda: not watchers(), "nothing is left to watch")
