"""The scenarios: what is played, what is measured, what counts as right, and the goals."""

from __future__ import annotations

import itertools
import statistics
from dataclasses import dataclass, replace
from typing import Callable, Dict, List, Optional, Tuple

from tests.benchmarks.plays import BLOCK_BYTES, Play
from tests.benchmarks.worker import Reply, Task

__all__ = ["FULL", "MINIATURE", "QUICK", "Goal", "Scenario", "Size", "scenarios"]

MIB = 1024 * 1024
PIECE_BYTES = 4096
_groups = itertools.count(1)


@dataclass(frozen=True)
class Goal:
    """A bound on one measure of ours.

    `against` names the contender whose measure ours is divided by, or another measure of ours, or is empty for a
    bound on the bare figure. `at_least` says that more is better.
    """

    measure: str
    against: str
    bound: float
    stretch: Optional[float] = None
    at_least: bool = False
    unit: str = ""


@dataclass(frozen=True)
class Scenario:
    """Tasks of one measurement (usually one), and how to read their replies."""

    name: str
    title: str
    tasks: Callable[[], List[Task]]
    measures: Callable[[List[Reply]], Dict[str, float]]
    check: Callable[[List[Reply]], Optional[str]]  # what went wrong, or None
    goals: Tuple[Goal, ...]
    rounds: int
    cap_s: float  # a contender that needs longer for one measurement is stopped and not asked again
    warm_up: Callable[[], List[Task]] = list
    fresh: bool = False  # a new process for each measurement: freed memory would hide growth


@dataclass(frozen=True)
class Size:
    """How much of everything."""

    rounds: int
    deltas: int
    large_bytes: int
    larger_bytes: int
    large_rounds: int
    large_cap_s: float
    ticks: int
    tick_rounds: int
    round_trips: int
    outstanding: int
    outstanding_delay_s: float
    runs: int
    runs_cap_s: float
    memory_deltas: int
    stall_s: float
    imports: int
    total_s: float
    cap_s: float = 60.0


FULL = Size(
    rounds=7,
    deltas=100_000,
    large_bytes=2 * MIB,
    larger_bytes=16 * MIB,
    large_rounds=3,
    large_cap_s=15.0,
    ticks=600,
    tick_rounds=5,
    round_trips=1000,
    outstanding=64,
    outstanding_delay_s=0.05,
    runs=100,
    runs_cap_s=10.0,
    memory_deltas=500_000,
    stall_s=2.0,
    imports=15,
    total_s=480.0,
)
QUICK = replace(
    FULL,
    rounds=3,
    deltas=20_000,
    large_rounds=2,
    large_cap_s=4.0,
    ticks=120,
    tick_rounds=2,
    round_trips=300,
    runs_cap_s=3.0,
    memory_deltas=60_000,
    stall_s=0.5,
    imports=5,
    total_s=60.0,
    cap_s=6.0,
)
MINIATURE = replace(
    QUICK,
    rounds=1,
    deltas=300,
    large_bytes=64 * 1024,
    larger_bytes=256 * 1024,
    large_rounds=1,
    ticks=5,
    tick_rounds=1,
    round_trips=5,
    outstanding=8,
    outstanding_delay_s=0.001,
    runs=4,
    memory_deltas=300,
    stall_s=0.001,
    imports=1,
)


def scenarios(size: Size) -> List[Scenario]:
    """Every scenario that contenders run; what importing costs is measured apart, in `imports`."""
    return [
        *_text_scenarios(size),
        *_memory_scenarios(size),
        _large(size),
        _larger(size),
        _ticks(size),
        _round_trips(size),
        _outstanding(size),
        _many_runs(size),
    ]


# Checks


def _saw_texts(play: Play) -> Callable[[List[Reply]], Optional[str]]:
    def check(replies: List[Reply]) -> Optional[str]:
        for reply in replies:
            if reply.final_texts and reply.final_texts != [f"last {play.last_seq}"]:
                return f"final text {reply.final_texts}"
            if not reply.final_texts and reply.texts != play.count:
                return f"{reply.texts} of {play.count} texts"
        return None

    return check


def _answered(play: Play, runs: int = 1) -> Callable[[List[Reply]], Optional[str]]:
    expected = [f"answered {play.count} wrong 0"] * runs

    def check(replies: List[Reply]) -> Optional[str]:
        return None if replies[0].final_texts == expected else f"final texts {replies[0].final_texts[:3]}"

    return check


# Text


def _text_scenarios(size: Size) -> List[Scenario]:
    found = []
    for framing, block, goals in (
        (
            "event",
            0,
            (Goal("events/s", "peer", 3.0, 6.0, at_least=True), Goal("cpu us/event", "peer", 0.33, 0.18)),
        ),
        (
            "64k",
            BLOCK_BYTES,
            (Goal("events/s", "peer", 3.0, 4.0, at_least=True), Goal("cpu us/event", "peer", 0.30)),
        ),
    ):
        play = Play("text", count=size.deltas, block_bytes=block)
        how = "one event per HTTP chunk" if framing == "event" else "64 KiB chunks"
        for do, what in (("text", "final result only"), ("iterate", "iterating")):
            found.append(
                Scenario(
                    name=f"text-{framing}-{'final' if do == 'text' else 'iterate'}",
                    title=f"text deltas, {how}, {what}",
                    tasks=_once(Task(do, play)),
                    warm_up=_once(Task(do, replace(play, count=min(500, size.deltas)))),
                    measures=_per_event(play.count),
                    check=_saw_texts(play),
                    goals=goals,
                    rounds=size.rounds,
                    cap_s=size.cap_s,
                )
            )
    return found


def _once(task: Task) -> Callable[[], List[Task]]:
    return lambda: [task]


def _per_event(count: int) -> Callable[[List[Reply]], Dict[str, float]]:
    def measures(replies: List[Reply]) -> Dict[str, float]:
        return {"events/s": count / replies[0].wall_s, "cpu us/event": replies[0].cpu_s / count * 1e6}

    return measures


# Large events


def _large(size: Size) -> Scenario:
    task = _large_task(size.large_bytes)
    return Scenario(
        name="large-2",
        title="one 2 MiB event in 4 KiB pieces",
        tasks=_once(task),
        warm_up=_once(_large_task(PIECE_BYTES)),
        measures=lambda replies: {"wall s": replies[0].wall_s, "cpu s": replies[0].cpu_s},
        check=_whole_message([size.large_bytes]),
        goals=(Goal("wall s", "floor", 2.0),),
        rounds=size.large_rounds,
        cap_s=size.cap_s,
    )


def _larger(size: Size) -> Scenario:
    sizes = [size.large_bytes, size.larger_bytes]
    return Scenario(
        name="large-16",
        title="one 16 MiB event, and its time over that of 2 MiB",
        tasks=lambda: [_large_task(one) for one in sizes],
        warm_up=_once(_large_task(PIECE_BYTES)),
        # By CPU time: one neighbour that wakes up during the shorter of the two would spoil their ratio.
        measures=lambda replies: {"wall s": replies[1].wall_s, "t(16)/t(2)": replies[1].cpu_s / replies[0].cpu_s},
        check=_whole_message(sizes),
        goals=(Goal("t(16)/t(2)", "", 10.0, unit="x"),),
        rounds=size.large_rounds,
        cap_s=size.large_cap_s,
    )


def _large_task(size_bytes: int) -> Task:
    return Task("iterate", Play("large", size_bytes=size_bytes, block_bytes=PIECE_BYTES))


def _whole_message(sizes: List[int]) -> Callable[[List[Reply]], Optional[str]]:
    def check(replies: List[Reply]) -> Optional[str]:
        lengths = [reply.length for reply in replies]
        return None if lengths == sizes else f"lengths {lengths} instead of {sizes}"

    return check


# Latency


def _ticks(size: Size) -> Scenario:
    play = Play("ticks", count=size.ticks, interval_s=0.005)

    def measures(replies: List[Reply]) -> Dict[str, float]:
        waits = sorted(replies[0].arrivals_ns)
        return {
            "p50 us": statistics.median(waits) / 1000,
            "p99 us": waits[min(len(waits) - 1, len(waits) * 99 // 100)] / 1000,
            "cpu us/event": replies[0].cpu_s / len(waits) * 1e6,
        }

    def check(replies: List[Reply]) -> Optional[str]:
        seen = len(replies[0].arrivals_ns)
        return None if seen == play.count else f"{seen} of {play.count} events"

    return Scenario(
        name="latency",
        title="an event every 5 ms, arrival to caller",
        tasks=_once(Task("arrivals", play)),
        warm_up=_once(Task("arrivals", replace(play, count=5))),
        measures=measures,
        check=check,
        goals=(Goal("p50 us", "peer", 1.1, 0.95),),
        rounds=size.tick_rounds,
        cap_s=size.cap_s,
    )


# Tools


def _round_trips(size: Size) -> Scenario:
    play = Play("calls", count=size.round_trips)
    return Scenario(
        name="tools-sequential",
        title=f"{size.round_trips:,} tool round trips, one after the other",
        tasks=_once(Task("tool", play)),
        warm_up=_once(Task("tool", replace(play, count=min(20, play.count)))),
        measures=lambda replies: {
            "calls/s": play.count / replies[0].wall_s,
            "cpu us/call": replies[0].cpu_s / play.count * 1e6,
        },
        check=_answered(play),
        goals=(Goal("calls/s", "peer", 1.5, at_least=True), Goal("cpu us/call", "peer", 0.65)),
        rounds=size.rounds,
        cap_s=size.cap_s,
    )


def _outstanding(size: Size) -> Scenario:
    play = Play("calls", count=size.outstanding, at_once=size.outstanding)
    return Scenario(
        name="tools-parallel",
        title=f"{size.outstanding} outstanding read-only calls of 50 ms",
        tasks=_once(Task("tool", play, delay_s=size.outstanding_delay_s)),
        warm_up=_once(Task("tool", replace(play, count=1))),
        measures=lambda replies: {"wall s": replies[0].wall_s, "cpu s": replies[0].cpu_s},
        check=_answered(play),
        goals=(Goal("wall s", "peer", 0.12),),
        rounds=size.rounds,
        cap_s=size.cap_s,
    )


def _many_runs(size: Size) -> Scenario:
    # The handlers wait, as handlers do; the server starts the runs together, when the last stream is open.
    play = Play("calls", count=3, group_size=size.runs)

    def tasks() -> List[Task]:
        # A group of its own: a run that an earlier, stopped contender left behind must not let this one start.
        group = f"group {next(_groups)}"
        return [Task("many", replace(play, group=group), delay_s=size.outstanding_delay_s, runs=size.runs)]

    return Scenario(
        name="runs-at-once",
        title=f"{size.runs} runs at once on one client, three tool calls of 50 ms each",
        tasks=tasks,
        warm_up=_once(Task("tool", Play("calls", count=2))),
        measures=lambda replies: {
            "wall s": replies[0].wall_s,
            "cpu ms/run": replies[0].cpu_s / size.runs * 1000,
            "threads/run": replies[0].threads / size.runs,
        },
        check=_answered(play, size.runs),
        goals=(Goal("wall s", "floor", 2.5), Goal("threads/run", "", 3.0)),
        rounds=size.rounds,
        cap_s=size.runs_cap_s,
    )


# Memory


def _memory_scenarios(size: Size) -> List[Scenario]:
    found = []
    play = Play("text", count=size.memory_deltas)
    for name, what, task in (
        ("final", "final result only", Task("text", play)),
        ("iterate", "iterating", Task("iterate", play)),
        ("stall", f"caller stalls {size.stall_s:g} s", Task("iterate", play, stall_s=size.stall_s)),
    ):
        found.append(
            Scenario(
                name=f"memory-{name}",
                title=f"memory, {size.memory_deltas:,} deltas, {what}",
                tasks=_once(task),
                warm_up=_once(replace(task, play=replace(play, count=min(200, play.count)), stall_s=0.0)),
                measures=lambda replies: {"growth MiB": replies[0].peak_bytes / MIB},
                check=_saw_texts(play),
                goals=(Goal("growth MiB", "", 8.0, unit="MiB"),),
                rounds=1,
                cap_s=size.cap_s,
                fresh=True,
            )
        )
    return found
