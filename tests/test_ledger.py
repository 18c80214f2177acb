"""The ledger of tool calls: each is run once and answered once, whatever is replayed."""

from __future__ import annotations

import threading

import pytest

from mantyx_sync.tools.ledger import Ledger


def test_a_call_is_admitted_once_however_often_it_arrives() -> None:
    ledger: Ledger[str] = Ledger()
    assert [ledger.admit("a", "call"), ledger.admit("a", "call"), ledger.admit("b", "call")] == [True, False, True]


@pytest.mark.parametrize("how", ["done", "undelivered", "answered by another"])
def test_a_call_that_is_over_is_not_admitted_again(how: str) -> None:
    ledger: Ledger[str] = Ledger()
    ledger.admit("a", "call")
    if how == "answered by another":
        ledger.answered("a")
    else:
        ledger.claim("a")
        ledger.close("a", delivered=how == "done")
    assert not ledger.admit("a", "call")
    assert not ledger.claim("a")


def test_claiming_all_takes_what_is_open_and_nothing_else() -> None:
    ledger: Ledger[str] = Ledger()
    for key in ("open", "claimed", "done", "answered"):
        ledger.admit(key, "call")
    ledger.claim("claimed")
    ledger.claim("done")
    ledger.close("done", delivered=True)
    ledger.answered("answered")
    assert ledger.claim_all() == ["open"]
    assert ledger.claim_all() == []
    assert not ledger.claim("open")
    ledger.close("open", delivered=True)
    ledger.close("claimed", delivered=True)
    assert not ledger.is_busy


def test_claiming_all_takes_held_calls_as_well_and_ends_holding() -> None:
    ledger: Ledger[str] = Ledger(hold=True)
    for key in ("a", "b"):
        ledger.admit(key, "call")
    ledger.answered("a")
    assert ledger.claim_all() == ["b"]
    assert ledger.is_busy
    assert not ledger.has_held
    assert ledger.settle() == []
    ledger.close("b", delivered=True)
    assert not ledger.is_busy
    assert ledger.admit("c", "call"), "what still comes is not held"


def test_one_of_many_who_claim_a_call_at_once_gets_it() -> None:
    ledger: Ledger[str] = Ledger()
    ledger.admit("a", "call")
    barrier, won = threading.Barrier(8), []

    def claim() -> None:
        barrier.wait(10)
        won.append(ledger.claim("a"))

    threads = [threading.Thread(target=claim) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert sorted(won) == [False] * 7 + [True]


def test_a_call_that_was_never_admitted_cannot_be_claimed() -> None:
    assert not Ledger().claim("a")


def test_a_call_answered_elsewhere_meanwhile_cannot_be_claimed() -> None:
    ledger: Ledger[str] = Ledger()
    ledger.admit("a", "call")
    ledger.answered("a")
    assert not ledger.claim("a")
    assert not ledger.is_busy


def test_an_answer_reported_before_its_call_keeps_the_call_from_running() -> None:
    ledger: Ledger[str] = Ledger()
    ledger.answered("a")
    assert not ledger.admit("a", "call")
    assert not ledger.is_busy


def test_it_is_busy_from_admission_until_the_answer_is_delivered_or_lost() -> None:
    ledger: Ledger[str] = Ledger()
    assert not ledger.is_busy
    ledger.admit("a", "call")
    ledger.admit("b", "call")
    ledger.claim("a")
    assert ledger.is_busy
    ledger.close("a", delivered=True)
    assert ledger.is_busy
    ledger.claim("b")
    ledger.close("b", delivered=False)
    assert not ledger.is_busy


def test_our_own_answer_reported_before_it_is_acknowledged_is_counted_once() -> None:
    ledger: Ledger[str] = Ledger()
    ledger.admit("a", "call")
    ledger.admit("b", "call")
    ledger.claim("a")
    ledger.answered("a")
    ledger.close("a", delivered=False)
    assert ledger.is_busy, "b is still at work"
    assert ledger.undelivered == (), "the server said that it has the answer"
    ledger.claim("b")
    ledger.close("b", delivered=True)
    assert not ledger.is_busy


def test_undelivered_answers_are_named_until_the_server_reports_them() -> None:
    ledger: Ledger[str] = Ledger()
    for name in "abc":
        ledger.admit(name, "call")
        ledger.claim(name)
        ledger.close(name, delivered=name == "b")
    assert ledger.undelivered == ("a", "c")
    ledger.answered("c")
    assert ledger.undelivered == ("a",)


def test_while_holding_calls_wait_and_those_answered_meanwhile_never_run() -> None:
    ledger: Ledger[str] = Ledger(hold=True)
    assert not any([ledger.admit("a", "call a"), ledger.admit("b", "call b"), ledger.admit("c", "call c")])
    assert ledger.is_holding
    assert not ledger.is_busy
    ledger.answered("b")
    assert not ledger.claim("a"), "a held call is not at work"
    assert ledger.settle() == ["call a", "call c"]
    assert not ledger.is_holding
    assert ledger.is_busy
    assert ledger.claim("a")
    assert not ledger.claim("b")


def test_what_settled_once_runs_later_calls_at_once_and_held_ones_no_second_time() -> None:
    ledger: Ledger[str] = Ledger(hold=True)
    ledger.admit("a", "call a")
    assert ledger.settle() == ["call a"]
    assert ledger.settle() == []
    assert not ledger.admit("a", "call a")
    assert ledger.admit("b", "call b")
