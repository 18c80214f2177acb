"""The queue between the reader and the caller: quick, bounded, and never in the way of a tool."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from mantyx_sync import backlog as backlog_module
from mantyx_sync.backlog import Backlog, Gap
from mantyx_sync.events import NO_SEQ
from tests.waiting import wait_until
from tests.wire import DEADLINE_S

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog_module, "MAX_EVENTS", 4)
    monkeypatch.setattr(backlog_module, "MAX_CHARS", 1000)


def batch(*seqs: int) -> list[dict[str, Any]]:
    return [{"seq": seq, "type": "assistant_delta", "data": {}} for seq in seqs]


def soon() -> float:
    return time.monotonic() + 0.05


def drain(backlog: Backlog) -> tuple[list[int], int | None]:
    """Take everything; return the seqs and where a gap begins."""
    seqs: list[int] = []
    while True:
        item = backlog.take(time.monotonic() + DEADLINE_S)
        if item is None:
            return seqs, None
        if isinstance(item, Gap):
            return seqs, item.last_seq
        seqs += [envelope["seq"] for envelope in item]


def test_batches_come_out_in_order_and_then_the_end_for_good() -> None:
    backlog = Backlog(is_wanted=True)
    backlog.put(batch(1, 2), 10)
    backlog.put(batch(3), 10)
    backlog.end()
    assert drain(backlog) == ([1, 2, 3], None)
    assert backlog.take(None) is None
    assert backlog.take(None) is None


def test_an_empty_batch_is_not_an_item() -> None:
    backlog = Backlog(is_wanted=True)
    backlog.put([], 10)
    with pytest.raises(TimeoutError):
        backlog.take(soon())


def test_taking_ends_at_the_deadline() -> None:
    with pytest.raises(TimeoutError):
        Backlog(is_wanted=True).take(soon())


def test_a_deadline_that_has_passed_leaves_what_is_there_to_be_taken() -> None:
    backlog = Backlog(is_wanted=True)
    backlog.put(batch(1), 10)
    assert backlog.take(time.monotonic() - 1) == batch(1)


def test_nothing_is_queued_for_a_caller_who_wants_no_events() -> None:
    backlog = Backlog(is_wanted=False)
    for seq in range(100):
        backlog.put(batch(seq), 10_000)
    backlog.end()
    assert drain(backlog) == ([], None)


@pytest.mark.parametrize(("size", "kept"), [(10, 5), (400, 3)])
def test_without_a_caller_the_reader_lets_go_at_once_when_the_queue_is_full(size: int, kept: int) -> None:
    backlog = Backlog(is_wanted=True)
    began = time.monotonic()
    for seq in range(1, 101):
        backlog.put(batch(seq), size)
    assert time.monotonic() - began < backlog_module.GRACE_S
    backlog.end()
    assert drain(backlog) == (list(range(1, kept + 1)), kept)


def test_a_caller_who_stopped_looping_does_not_hold_the_reader() -> None:
    backlog = Backlog(is_wanted=True)
    backlog.put(batch(1), 10)
    backlog.take(None)
    backlog.has_taker = False
    began = time.monotonic()
    for seq in range(2, 20):
        backlog.put(batch(seq), 10)
    assert time.monotonic() - began < backlog_module.GRACE_S
    backlog.end()
    assert drain(backlog) == ([2, 3, 4, 5, 6], 6)


def test_events_without_numbers_are_kept_since_they_could_not_be_read_again() -> None:
    backlog = Backlog(is_wanted=True)
    for _ in range(100):
        backlog.put(batch(NO_SEQ), 10_000)
    backlog.end()
    assert drain(backlog) == ([NO_SEQ] * 100, None)


def putting(backlog: Backlog, seqs: range) -> threading.Thread:
    def put() -> None:
        for seq in seqs:
            backlog.put(batch(seq), 10)
        backlog.end()

    thread = threading.Thread(target=put)
    thread.start()
    return thread


def test_a_caller_who_keeps_up_gets_everything_from_the_queue() -> None:
    backlog = Backlog(is_wanted=True)
    backlog.has_taker = True
    thread = putting(backlog, range(1, 2001))
    seqs, gap = drain(backlog)
    thread.join(DEADLINE_S)
    assert (seqs, gap) == (list(range(1, 2001)), None)


def test_a_caller_who_stalls_in_his_loop_holds_the_reader_for_a_moment_only() -> None:
    backlog = Backlog(is_wanted=True)
    backlog.has_taker = True
    began = time.monotonic()
    thread = putting(backlog, range(1, 101))
    thread.join(DEADLINE_S)
    assert time.monotonic() - began < 3 * backlog_module.GRACE_S
    assert drain(backlog) == ([1, 2, 3, 4, 5], 5)


def test_a_caller_who_is_always_slow_does_not_hold_the_reader_again_and_again() -> None:
    backlog = Backlog(is_wanted=True)
    backlog.has_taker = True
    thread = putting(backlog, range(1, 101))
    seqs: list[int] = []
    pause = threading.Event()
    began = time.monotonic()
    while thread.is_alive():
        item = backlog.take(None)
        assert isinstance(item, list)
        seqs += [envelope["seq"] for envelope in item]
        pause.wait(backlog_module.GRACE_S / 4)
        assert time.monotonic() - began < 4 * backlog_module.GRACE_S, "the reader waits for a slow caller all along"
    more, gap = drain(backlog)
    assert gap is not None
    assert seqs + more == list(range(1, gap + 1))


def test_dropping_lets_a_waiting_reader_go_on_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog_module, "GRACE_S", 60.0)
    backlog = Backlog(is_wanted=True)
    backlog.has_taker = True
    thread = putting(backlog, range(1, 101))
    wait_until(lambda: backlog._is_waiting, "the reader does not wait for room")
    backlog.drop()
    thread.join(DEADLINE_S)
    assert not thread.is_alive()
