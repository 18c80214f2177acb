"""Ctrl-C and other signals at a command line: no run is left behind unsaid, and a key pressed twice undoes nothing."""

from __future__ import annotations

import signal
import threading
from types import TracebackType
from typing import Any, Callable

import pytest

from mantyx_sync.cli import commands, exits, main, starting
from mantyx_sync.cli.detaching import StopFlag

pytestmark = pytest.mark.usefixtures("no_leaks")


class Clock:
    """A clock that is set by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr("time.monotonic", lambda: self.now)


def test_a_signal_right_behind_another_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, stopper = Clock(monkeypatch), exits.Stopper()
    with pytest.raises(KeyboardInterrupt):
        stopper(signal.SIGINT, None)
    clock.now += 0.2
    stopper(signal.SIGINT, None)
    stopper(signal.SIGTERM, None)
    clock.now += 0.4  # whoever keeps the key down is heard all the same
    with pytest.raises(exits.Stopped):
        stopper(signal.SIGTERM, None)


def test_a_signal_right_behind_another_does_not_end_an_attached_command_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended: list[int] = []
    monkeypatch.setattr("os._exit", ended.append)
    clock, flag = Clock(monkeypatch), StopFlag()
    flag.note(signal.SIGINT, None)
    flag.note(signal.SIGINT, None)
    assert (flag.number, ended) == (signal.SIGINT, [])
    clock.now += 1.0
    flag.note(signal.SIGINT, None)
    assert ended == [130]


def test_ctrl_c_while_the_command_is_being_loaded_shows_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_arguments: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "run_command", interrupted)
    assert main([]) == 130


class FakeRun:
    """A run whose server can, or cannot, be told that it is given up."""

    run_id = "run_7"
    is_over = False
    abort_timeout = 0.0

    def __init__(self, abort: Callable[[], bool] = lambda: True) -> None:
        self.abort = abort

    def __enter__(self) -> FakeRun:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        pass


def interrupted(create: Callable[[], Any]) -> list[str]:
    """Interrupt a run that is being followed; return what is said."""
    told: list[str] = []

    def follow() -> None:
        with starting.started(create, told.append) as run:
            assert run.abort_timeout >= 2.0, "patience enough for a busy server"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        follow()
    return told


def test_a_run_that_may_be_left_behind_is_named() -> None:
    assert interrupted(FakeRun) == []
    assert interrupted(lambda: FakeRun(lambda: False)) == ["run run_7 may still be going: mantyx-sync cancel run_7"]


def test_another_signal_ends_the_wait_for_the_server() -> None:
    def pressed_again() -> bool:
        raise KeyboardInterrupt

    assert interrupted(lambda: FakeRun(pressed_again)) == ["run run_7 may still be going: mantyx-sync cancel run_7"]


def test_a_run_that_is_being_created_is_waited_for_and_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, answer, aborted = threading.Event(), threading.Event(), threading.Event()

    def abort() -> bool:
        aborted.set()
        return True

    def create() -> Any:
        asked.set()
        answer.wait(10)
        return FakeRun(abort)

    def stop(slice_s: float) -> bool:
        assert asked.wait(10)
        raise KeyboardInterrupt

    def press(told: list[str], patience: float) -> None:
        begun = starting._Starting(create, patience)
        with monkeypatch.context() as patch:
            patch.setattr(begun._bell, "wait", stop)
            with pytest.raises(KeyboardInterrupt):
                begun.wait()
        told.append(begun.give_up())
        answer.set()
        begun._thread.join()

    told: list[str] = []
    press(told, 0.05)
    assert told == ["whether a run was begun is not known: mantyx-sync runs --status running"]
    assert aborted.is_set(), "it came later than that, and was cancelled then"
    answer.clear()
    aborted.clear()
    threading.Timer(0.05, answer.set).start()
    press(told, 10.0)
    assert told[1:] == [""]
    assert aborted.is_set()
