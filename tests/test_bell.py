"""Waits with a time limit end when it is over, also when it is over before the wait has begun."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from mantyx_sync.transport.bell import Bell, Inbox, Signal

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.mark.parametrize("timeout", [0.0, 1e-9, 1e-7, 1e-6, 1e-5])
def test_a_wait_that_is_over_before_it_begins_ends(timeout: float) -> None:
    ended = threading.Event()

    def wait() -> None:
        for _ in range(300):  # a queue of its own each time: the trap is in a queue's first wait
            with pytest.raises(TimeoutError):
                Inbox[int]().get(time.monotonic() + timeout)
            Signal().wait(timeout)
            assert not Bell().wait(timeout)
        ended.set()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    assert ended.wait(20)
    thread.join()


@pytest.mark.parametrize("deadline", [None, 20.0])
def test_items_come_out_in_order_whether_or_not_the_taker_waits_for_them(deadline: float | None) -> None:
    inbox: Inbox[int] = Inbox()
    go_on = threading.Semaphore(0)

    def put() -> None:
        for number in range(200):
            go_on.acquire()
            inbox.put(number)

    thread = threading.Thread(target=put)
    thread.start()
    taken = []
    for number in range(200):
        go_on.release()
        if number % 3 == 0:
            while inbox._queue.empty():
                pass
        taken.append(inbox.get(None if deadline is None else time.monotonic() + deadline))
    thread.join()
    assert taken == list(range(200))


def test_a_signal_ends_a_wait_that_goes_on_and_one_that_begins_later() -> None:
    signal = Signal()
    thread = threading.Thread(target=signal.wait, args=(60,))
    thread.start()
    signal.set()
    signal.set()
    thread.join(5)
    assert not thread.is_alive()
    signal.wait(60)
    assert signal.is_set()


def test_a_bell_that_rang_twice_ends_one_wait() -> None:
    bell = Bell()
    bell.ring()
    bell.ring()
    assert bell.wait(0)
    assert not bell.wait(0)


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="signals cannot be sent to a thread here")
def test_ctrl_c_ends_the_main_thread_s_wait_although_another_thread_gets_the_signal() -> None:
    inbox: Inbox[str] = Inbox()
    ended = threading.Event()

    def press() -> None:
        until = time.monotonic() + 1.0
        while not inbox._is_bell_wanted and time.monotonic() < until:
            ended.wait(0.01)
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        if not ended.wait(5):
            late.append(True)
            inbox.put("so that the wait ends, and the signal is seen at last")

    late: list[bool] = []
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=press)
    try:
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            inbox.get()
    finally:
        ended.set()
        thread.join()
        signal.signal(signal.SIGINT, before)
    assert not late
