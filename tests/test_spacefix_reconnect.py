"""When an agent connects again: the document's delays, and what a fleet of a hundred does together."""

from __future__ import annotations

import bisect
import heapq
import random

import pytest

from mantyx_sync.spacefix.reconnect import ReconnectPolicy, Trouble

NEARLY_ONE = 0.999999


def delays(trouble: Trouble, count: int, chance: float) -> list[float]:
    policy = ReconnectPolicy()
    found = [policy.failed(trouble, chance) for _ in range(count)]
    return [round(delay, 3) for delay in found if delay is not None]


def test_the_delays_double_up_to_thirty_seconds() -> None:
    assert delays(Trouble.LOST, 8, NEARLY_ONE) == [1, 2, 4, 8, 16, 30, 30, 30]


def test_between_half_and_all_of_a_delay_is_waited() -> None:
    assert delays(Trouble.LOST, 7, 0.0) == [0.5, 1, 2, 4, 8, 15, 15]


def test_ready_makes_the_delays_start_over() -> None:
    policy = ReconnectPolicy()
    for _ in range(5):
        policy.failed(Trouble.LIMITED, 0.5, 30.0)
    policy.ready()
    assert policy.failures == 0
    assert policy.failed(Trouble.LOST, 0.0) == 0.5


@pytest.mark.parametrize("trouble", [Trouble.LOST, Trouble.LIMITED, Trouble.UNAUTHORISED])
@pytest.mark.parametrize("chance", [0.0, 0.5, NEARLY_ONE])
def test_at_least_what_retry_after_says_is_waited(trouble: Trouble, chance: float) -> None:
    delay = ReconnectPolicy().failed(trouble, chance, 90.0)
    assert delay is not None
    assert delay >= 90.0


def test_a_short_retry_after_does_not_shorten_the_delay() -> None:
    policy = ReconnectPolicy()
    for _ in range(6):
        policy.failed(Trouble.LOST, 0.0)
    assert policy.failed(Trouble.LOST, 0.0, 2.0) == 15.0


def test_a_key_that_is_refused_is_tried_slowly_but_for_ever() -> None:
    assert delays(Trouble.UNAUTHORISED, 6, NEARLY_ONE) == [60, 120, 240, 300, 300, 300]
    assert delays(Trouble.UNAUTHORISED, 1, 0.0) == [30]


def test_ready_makes_the_delays_of_a_refused_key_start_over() -> None:
    policy = ReconnectPolicy()
    for _ in range(3):
        policy.failed(Trouble.UNAUTHORISED, 0.0)
    policy.ready()
    assert policy.failed(Trouble.UNAUTHORISED, 0.0) == 30


def test_a_registration_that_is_refused_is_not_tried_again() -> None:
    assert ReconnectPolicy().failed(Trouble.REFUSED, 0.5) is None


def test_too_many_connections_without_retry_after_is_a_failure_like_others() -> None:
    assert delays(Trouble.LIMITED, 3, NEARLY_ONE) == [1, 2, 4]


# ------------------------------------------------------------------------------------------- a fleet

AGENTS = 100
PER_MINUTE = 60


class Project:
    """The gateway's view of a project, by the clock of the simulation: every attempt spends a token."""

    def __init__(self, *, connections: int = AGENTS, down_until: float = 0.0, spent: int = 0) -> None:
        self.attempts: list[float] = []
        self.connected = 0
        self._connections = connections
        self._down_until = down_until
        self._window_began = 0.0
        self._spent = spent

    def connect(self, now: float) -> tuple[Trouble, float | None] | None:
        """Return why an attempt fails and what `Retry-After` says; `None` for one that is served."""
        if now < self._down_until:
            return Trouble.LOST, None
        self.attempts.append(now)
        if now >= self._window_began + 60.0:
            self._window_began, self._spent = now, 0
        self._spent += 1
        if self._spent > PER_MINUTE:
            return Trouble.LIMITED, self._window_began + 60.0 - now
        if self.connected >= self._connections:
            return Trouble.LIMITED, None
        self.connected += 1
        return None

    def most_in_a_minute(self, since: float) -> int:
        times = [at for at in self.attempts if at > since]
        return max((bisect.bisect_right(times, at + 60.0) - i for i, at in enumerate(times)), default=0)


def play(project: Project, seed: int, minutes: float) -> tuple[list[float], float]:
    """Have all agents lose their streams at 0; return their first attempts, and when the last was first told."""
    chance = random.Random(seed)
    policies = [ReconnectPolicy() for _ in range(AGENTS)]
    due: list[tuple[float, int]] = []
    for number, policy in enumerate(policies):
        delay = policy.failed(Trouble.LOST, chance.random())
        assert delay is not None
        heapq.heappush(due, (delay, number))
    first = sorted(at for at, _ in due)
    told: dict[int, float] = {}
    while due and due[0][0] < minutes * 60:
        now, number = heapq.heappop(due)
        refused = project.connect(now)
        if refused is None:
            policies[number].ready()
            continue
        if refused[1] is not None:
            told.setdefault(number, now)
        delay = policies[number].failed(refused[0], chance.random(), refused[1])
        assert delay is not None
        heapq.heappush(due, (now + delay, number))
    return first, max(told.values(), default=0.0)


@pytest.mark.parametrize("seed", range(20))
def test_a_fleet_that_loses_the_gateway_at_once_spreads_out(seed: int) -> None:
    project = Project()
    first, told = play(project, seed, 20)
    # The first attempts are spread over the half second that the document's jitter gives.
    assert first[0] < 0.55
    assert first[-1] > 0.95
    assert all(sum(at <= other < at + 0.05 for other in first) <= 25 for at in first)
    # Sixty got in at once. The others were told, and came back below the limit: nobody was turned away twice.
    assert project.most_in_a_minute(since=told) <= PER_MINUTE
    assert project.connected == AGENTS
    assert len(project.attempts) == AGENTS + AGENTS - PER_MINUTE


@pytest.mark.parametrize("seed", range(20))
def test_a_fleet_that_is_told_as_a_whole_comes_back_within_the_limit(seed: int) -> None:
    project = Project(spent=PER_MINUTE)
    _, told = play(project, seed, 20)
    assert project.most_in_a_minute(since=told) <= PER_MINUTE
    assert project.connected == AGENTS
    assert project.attempts[-1] < 5 * 60


@pytest.mark.parametrize("seed", range(10))
def test_a_fleet_behind_a_long_outage_comes_back_within_the_limit(seed: int) -> None:
    project = Project(down_until=600.0)
    _, told = play(project, seed, 40)
    assert project.most_in_a_minute(since=told) <= PER_MINUTE
    assert project.connected == AGENTS


@pytest.mark.parametrize("seed", range(10))
def test_a_fleet_larger_than_the_plan_stays_within_the_limit(seed: int) -> None:
    project = Project(connections=32)
    _, told = play(project, seed, 60)
    assert project.connected == 32
    assert project.most_in_a_minute(since=told) <= PER_MINUTE
