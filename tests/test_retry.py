"""The policies of trying again: tables of numbers, no clock and no socket."""

from __future__ import annotations

from email.utils import formatdate

import pytest

from mantyx_sync.transport.retry import Backoff, Failure, Reconnect, Repeat, RetryPolicy, parse_retry_after

SAFE, ONCE = Repeat.SAFE, Repeat.ONCE
FULL = 1.0  # the "random" number that makes every delay as long as it may get


@pytest.mark.parametrize(
    ("attempt", "longest"), [(0, 0.25), (1, 0.5), (2, 1.0), (3, 2.0), (6, 16.0), (7, 20.0), (10_000, 20.0)]
)
def test_delays_double_up_to_a_cap_with_full_jitter(attempt: int, longest: float) -> None:
    backoff = Backoff(base=0.25, cap=20.0)
    assert backoff.delay(attempt, FULL) == longest
    assert backoff.delay(attempt, 0.5) == longest / 2
    assert backoff.delay(attempt, 0.0) == 0.0


@pytest.mark.parametrize(
    ("status", "repeat", "retry_after", "repeated"),
    [
        (400, SAFE, None, False),
        (401, SAFE, None, False),
        (402, SAFE, None, False),
        (403, SAFE, None, False),
        (404, SAFE, None, False),
        (408, ONCE, None, True),
        (409, SAFE, None, False),
        (409, SAFE, 1.0, False),
        (410, SAFE, None, False),
        (413, SAFE, None, False),
        (422, SAFE, None, False),
        (429, ONCE, None, True),
        (429, SAFE, 3.0, True),
        (500, SAFE, None, True),
        (500, ONCE, None, False),
        (501, SAFE, None, False),
        (502, SAFE, None, True),
        (502, ONCE, None, False),
        (502, ONCE, 1.0, False),
        (503, SAFE, None, True),
        (503, ONCE, None, False),
        (503, ONCE, 1.0, True),
        (504, SAFE, None, True),
        (504, ONCE, None, False),
        (505, SAFE, None, False),
    ],
)
def test_which_answers_are_asked_for_again(
    status: int, repeat: Repeat, retry_after: float | None, repeated: bool
) -> None:
    delay = RetryPolicy(max_retries=2).after_status(status, repeat, 0, retry_after, 0.5)
    assert (delay is not None) is repeated


@pytest.mark.parametrize(
    ("failure", "repeat", "repeated"),
    [
        (Failure.UNSENT, SAFE, True),
        (Failure.UNSENT, ONCE, True),
        (Failure.LOST, SAFE, True),
        (Failure.LOST, ONCE, False),
        (Failure.TIMED_OUT, SAFE, False),
        (Failure.TIMED_OUT, ONCE, False),
        (Failure.REFUSED, SAFE, False),
        (Failure.REFUSED, ONCE, False),
    ],
)
def test_which_failures_are_tried_again(failure: Failure, repeat: Repeat, repeated: bool) -> None:
    delay = RetryPolicy(max_retries=2).after_failure(failure, repeat, 0, 0.5)
    assert (delay is not None) is repeated


@pytest.mark.parametrize("max_retries", [0, 1, 2, 5])
def test_no_more_tries_than_allowed(max_retries: int) -> None:
    policy = RetryPolicy(max_retries=max_retries)
    delays = [policy.after_status(503, SAFE, attempt, None, FULL) for attempt in range(8)]
    assert [delay is not None for delay in delays] == [attempt < max_retries for attempt in range(8)]
    assert policy.after_failure(Failure.UNSENT, SAFE, max_retries, FULL) is None


def test_retry_after_is_a_floor_with_a_little_jitter() -> None:
    policy = RetryPolicy(max_retries=5, backoff=Backoff(base=0.25))
    assert policy.after_status(429, ONCE, 0, 3.0, 0.0) == 3.0
    assert policy.after_status(429, ONCE, 4, 3.0, FULL) == 3.125
    assert policy.after_status(429, ONCE, 0, 0.0, 0.0) == 0.0


def test_a_longer_pause_than_allowed_is_left_to_the_caller() -> None:
    policy = RetryPolicy(max_retry_after=60.0)
    assert policy.after_status(429, SAFE, 0, 60.0, 0.0) == 60.0
    assert policy.after_status(429, SAFE, 0, 60.5, 0.0) is None


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("", None),
        ("0", 0.0),
        ("120", 120.0),
        (" 2 ", 2.0),
        ("1.5", 1.5),
        ("-3", 0.0),
        ("nan", None),
        ("inf", None),
        ("1e400", None),
        ("soon", None),
        (formatdate(1_000_030, usegmt=True), 30.0),
        (formatdate(999_000, usegmt=True), 0.0),
        ("Mon, 99 Foo 2020 00:00:00 GMT", None),
        ("Fri, 31 Dec 99999 23:59:59 GMT", None),
        ("9" * 5000, None),
    ],
)
def test_retry_after_is_read_in_both_forms(value: str | None, seconds: float | None) -> None:
    assert parse_retry_after(value, now=1_000_000.0) == seconds


class Clock:
    """Plays connections of a stream against a `Reconnect` and notes the longest delay before each."""

    def __init__(self, give_up_after: float = 1000.0, cap: float = 20.0) -> None:
        self.now = 5000.0
        self.reconnect = Reconnect(give_up_after, self.now, Backoff(base=0.25, cap=cap))

    def refused(self, retry_after: float | None = None) -> float | None:
        """A connection cannot be opened."""
        return self._failed(retry_after)

    def closed(self, after: float, *, progress: bool = False, heard: bool = False) -> float | None:
        """A connection is accepted, lasts `after` seconds, and may have brought something at its end."""
        self.reconnect.opened(self.now)
        self.now += after
        if heard:
            self.reconnect.heard(self.now)
        if progress:
            self.reconnect.progressed(self.now)
        return self._failed(None)

    def _failed(self, retry_after: float | None) -> float | None:
        delay = self.reconnect.failed(self.now, FULL, retry_after)
        self.now += delay or 0.0
        return delay


def test_delays_grow_while_no_connection_opens() -> None:
    clock = Clock()
    assert [clock.refused() for _ in range(9)] == [0.25, 0.5, 1, 2, 4, 8, 16, 20, 20]
    assert clock.reconnect.attempts == 9


def test_delays_grow_against_a_server_that_goes_away_after_a_good_minute() -> None:
    clock = Clock()
    assert clock.closed(60, progress=True) == 0.25
    assert [clock.refused() for _ in range(6)] == [0.5, 1, 2, 4, 8, 16]


def test_delays_grow_against_a_server_that_accepts_and_closes() -> None:
    clock = Clock()
    assert [clock.closed(0.01) for _ in range(6)] == [0.25, 0.5, 1, 2, 4, 8]


def test_an_event_before_each_close_does_not_end_the_growth_at_once() -> None:
    clock = Clock()
    delays = [clock.closed(0.01, progress=True) for _ in range(6)]
    assert delays == [0.25, 0.5, 1, 1, 1, 1]


def test_a_connection_that_lasted_starts_the_delays_over() -> None:
    clock = Clock()
    for _ in range(6):
        clock.refused()
    assert clock.closed(5.0, progress=True) == 0.25
    for _ in range(6):
        clock.refused()
    assert clock.closed(4.9, progress=True) == 1.0


def test_silence_on_a_connection_does_not_start_the_delays_over() -> None:
    clock = Clock(give_up_after=1000)
    assert [clock.closed(60.0) for _ in range(5)] == [0.25, 0.5, 1, 2, 4]


def test_it_gives_up_after_the_time_without_progress() -> None:
    clock = Clock(give_up_after=30)
    started = clock.now
    while clock.refused() is not None:
        pass
    assert clock.now - started == 30  # the last try is made at the very end of the time


def test_progress_starts_the_time_over() -> None:
    clock = Clock(give_up_after=30)
    for _ in range(20):
        assert clock.closed(20, progress=True) is not None
        assert clock.refused() is not None


@pytest.mark.parametrize("kind", ["silent", "heartbeats", "progress"])
def test_a_connection_that_breaks_late_is_tried_again_before_giving_up(kind: str) -> None:
    clock = Clock(give_up_after=30)
    assert clock.closed(600, progress=kind == "progress", heard=kind == "heartbeats") is not None


def test_a_quiet_run_on_connections_that_last_is_not_given_up() -> None:
    clock = Clock(give_up_after=30)
    for _ in range(20):
        assert clock.closed(60, heard=True) == 0.25


def test_heartbeats_on_connections_that_do_not_last_are_given_up() -> None:
    clock = Clock(give_up_after=30)
    tries = 0
    while clock.closed(1, heard=True) is not None:
        tries += 1
        assert tries < 40


def test_a_server_that_stays_silent_is_given_up() -> None:
    clock = Clock(give_up_after=120)
    for _ in range(2):
        assert clock.closed(60) is not None
    assert clock.closed(60) is None


def test_no_time_to_reconnect_means_no_try() -> None:
    assert Clock(give_up_after=0).refused() is None


@pytest.mark.parametrize(
    ("asked", "delay"), [(0.0, 0.25), (0.001, 0.25), (0.2, 0.25), (3.0, 3.0), (29.0, 29.0), (99999.0, 30.0)]
)
def test_the_retry_field_is_a_floor_between_limits(asked: float, delay: float) -> None:
    clock = Clock()
    clock.reconnect.server_retry = asked
    assert clock.refused() == delay


def test_the_retry_field_never_means_at_once() -> None:
    reconnect = Reconnect(1000, 0.0)
    reconnect.server_retry = 0.0
    assert reconnect.failed(0.0, random=0.0) == 0.1


def test_retry_after_is_waited_for_but_not_beyond_the_time_of_giving_up() -> None:
    assert Clock().refused(retry_after=7) == 7
    assert Clock(give_up_after=40).refused(retry_after=3600) == 40
    assert Clock(give_up_after=5).refused(retry_after=3600) == 5
