"""A run in time: what is in the picture, where it stands, and that it is a picture whatever it is given. Pure."""

from __future__ import annotations

import pickle
import re
import xml.etree.ElementTree as ET
from typing import Any, Sequence

import pytest

from mantyx_sync import MantyxConfigError, MantyxRunCancelled, MantyxRunError, RunResult, RunSnapshot
from mantyx_sync.display import Timeline, html_of
from mantyx_sync.display.timeline_layout import BAR, Layout, fitted, layout, text_width, ticks
from mantyx_sync.display.timeline_model import MAX_BARS, Bar, Moments, Part, moments_of
from mantyx_sync.events import RunEvent, decode
from mantyx_sync.timing import RunTiming, ToolTiming, TurnTiming
from tests.test_display_html import HOSTILE, Reading

WIDTHS = (340.0, 540.0, 880.0)


def event(kind: str, **data: Any) -> dict[str, Any]:
    return {"type": kind, "data": data}


def run_of(
    timed: Sequence[tuple[float, dict[str, Any]]],
    turns: Sequence[TurnTiming] = (),
    tools: Sequence[ToolTiming] = (),
    total: float | None = 10.0,
    **more: Any,
) -> RunResult:
    """Return a result whose events came at these times."""
    timed = sorted(timed, key=lambda one: one[0])
    events = tuple(decode({"seq": n, **payload}) for n, (_, payload) in enumerate(timed, 1))
    timing = RunTiming(
        started_at=1_700_000_000.0,
        created=0.05,
        events=tuple(at for at, _ in timed),
        turns=tuple(turns),
        tools=tuple(tools),
        ended=total,
        **more,
    )
    return RunResult("run_1", "Done.", events=events, timing=timing)


def called(number: int, name: str, at: float, until: float, error: str | None = None) -> list[Any]:
    answer = {"error": error} if error else {"output": "ok"}
    return [
        (at, event("local_tool_call", toolUseId=f"tu_{number}", name=name, args={"n": number})),
        (until, event("local_tool_result_in", toolUseId=f"tu_{number}", **answer)),
    ]


def typical() -> RunResult:
    """A run of two turns with two overlapping calls, one of which fails, and with each kind of mark."""
    plan = [{"id": "a", "title": "Look", "status": "pending"}, {"id": "b", "title": "Answer", "status": "pending"}]
    done = [{**plan[0], "status": "done"}, plan[1]]
    return run_of(
        [
            (0.1, event("task_plan", planId="p", revision=1, steps=plan)),
            (1.0, event("assistant_message", text="I look.", turn=0)),
            *called(1, "look", 1.0, 3.2),
            *called(2, "look", 1.1, 4.1, error="boom"),
            (4.2, event("tool_budget_exceeded", tool="look", maxCalls=2, callIndex=3)),
            (4.3, event("supervisor", action="on_track", reason="fine")),
            (4.4, event("task_plan", planId="p", revision=2, steps=done)),
            (4.4, event("task_plan", planId="p", revision=3, steps=done)),
            (4.5, event("model_fallback", primaryModelId="a", fallbackModelId="b")),
            (9.9, event("assistant_message", text="Done.", turn=1)),
            (10.0, event("result", text="Done.", turns=2, tokens={"inputTokens": 1204, "outputTokens": 88})),
        ],
        turns=[TurnTiming((0.3, 0.6), (0.7, 0.9), 1.0), TurnTiming(None, (5.0, 9.8), 9.9)],
        tools=[
            ToolTiming("tu_1", "look", "local", 1.0, 1.5, 3.0, 3.2),
            ToolTiming("tu_2", "look", "local", 1.1, 1.1, 4.0, 4.1, failed=True),
        ],
    )


def moments(result: RunResult) -> Moments:
    assert result.timing is not None
    return moments_of(result.events, result.timing)


# ------------------------------------------------------------------------------------------- what is in it


def test_turns_show_how_long_the_model_took_to_begin_think_and_write() -> None:
    first, second = moments(typical()).rows[0].bars
    assert [(part.kind, part.start, part.end) for part in first.parts] == [
        ("wait", 0.05, 0.3),
        ("think", 0.3, 0.7),
        ("text", 0.7, 0.9),
        ("wait", 0.9, 1.0),
    ]
    assert first.title == "Turn 1: first piece after 250 ms, thought for 400 ms, wrote for 200 ms"
    # The model is asked again when the last answer is there, not when its turn had ended.
    assert second.start == 4.1
    assert second.title == "Turn 2: first piece after 900 ms, wrote for 4.8 s"


def test_tool_calls_show_waiting_running_and_posting() -> None:
    row = moments(typical()).rows[1]
    assert row.label == "look ×2"  # noqa: RUF001
    assert [(part.kind, part.start, part.end) for part in row.bars[0].parts] == [
        ("queue", 1.0, 1.5),
        ("run", 1.5, 3.0),
        ("post", 3.0, 3.2),
    ]
    assert row.bars[0].title == 'look {"n": 1}: waited 500 ms for a place, ran for 1.5 s, answer posted in 200 ms'
    assert row.bars[1].is_failed
    assert "failed, ran for 2.9 s" in row.bars[1].title


def test_marks_tell_guards_reviews_and_what_moved_in_the_plan() -> None:
    assert [(mark.at, mark.kind, mark.label) for mark in moments(typical()).marks] == [
        (0.1, "plan", "plan, 2 steps"),
        (4.2, "guard", "budget"),
        (4.3, "good", "supervisor"),
        (4.4, "plan", "1/2 done"),  # once: the same plan sent again moves nothing
        (4.5, "guard", "fallback"),
    ]


def test_the_summary_counts() -> None:
    assert moments(typical()).summary == (
        "succeeded in 10 s, 2 turns, 2 tool calls (1 failed), 1,204 tokens in, 88 out"
    )


def test_tools_of_the_platform_are_timed_by_their_events() -> None:
    result = run_of(
        [
            (1.0, event("tool_call", toolUseId="p", name="search", input={"q": 1})),
            (3.0, event("tool_result", toolUseId="p", name="search", ok=True, summary="found")),
            (4.0, event("tool_call", toolUseId="q", name="search", input={})),
        ],
        total=None,
    )
    first, second = moments(result).rows[0].bars
    assert (first.start, first.end, first.is_open) == (1.0, 3.0, False)
    assert second.is_open


def test_a_run_that_goes_on_reaches_to_now() -> None:
    result = run_of(
        [*called(1, "look", 1.0, 2.0)][:1], tools=[ToolTiming("tu_1", "look", "local", 1.0, 1.2)], total=None
    )
    assert result.timing is not None
    found = moments_of(result.events, result.timing, now=7.5)
    assert found.total == 7.5
    assert found.status == "running"
    assert found.rows[0].bars[0].end == 7.5
    assert found.rows[0].bars[0].is_open
    assert found.summary.startswith("running after 7.5 s")


def test_a_run_followed_from_its_middle_says_so() -> None:
    assert moments(run_of([], is_whole=False)).notes[0].startswith("Followed from its middle")


def test_times_without_their_events_still_show_turns_and_tools() -> None:
    kept = typical()
    assert kept.timing is not None
    found = moments_of((), kept.timing)
    assert [row.label for row in found.rows] == ["model", "look ×2"]  # noqa: RUF001
    assert found.marks == ()
    found = moments_of(kept.events[:3], kept.timing)  # somebody left some out
    assert found.marks == ()


def test_hundreds_of_calls_are_drawn_together_and_that_is_said() -> None:
    names = [f"tool_{n}" for n in range(30)]
    timed: list[Any] = []
    tools = []
    for n in range(900):
        timed += called(n, names[n % 30], n / 100, n / 100 + 0.5, "boom" if n % 50 == 0 else None)
        tools.append(ToolTiming(f"tu_{n}", names[n % 30], "local", n / 100, n / 100, n / 100 + 0.4, n / 100 + 0.5))
    result = run_of(timed, tools=tools)
    found = moments(result)
    assert found.calls == 900
    assert sum(len(row.bars) for row in found.rows) <= MAX_BARS + len(found.rows)
    assert sum(bar.calls for row in found.rows for bar in row.bars) == 900
    assert found.notes == (
        "19 tools share the last row.",
        "900 tool calls: up to 4 that follow each other are drawn as one bar.",
    )
    assert len(html_of(Timeline.of(result))) < 400_000


# ------------------------------------------------------------------------------------------- where it stands


@pytest.mark.parametrize(
    ("total", "limit", "expected"),
    [
        (0.0012, 4, ["0", "0.5 ms", "1.0 ms"]),
        (0.35, 8, ["0", "50 ms", "100 ms", "150 ms", "200 ms", "250 ms", "300 ms", "350 ms"]),
        (1.7, 9, ["0", "200 ms", "400 ms", "600 ms", "800 ms", "1.0 s", "1.2 s", "1.4 s", "1.6 s"]),
        (9.0, 5, ["0", "2 s", "4 s", "6 s", "8 s"]),
        (60, 4, ["0", "15 s", "30 s", "45 s", "1:00 min"]),
        (100, 4, ["0", "30 s", "1:00 min", "1:30 min"]),
        (600, 6, ["0", "2 min", "4 min", "6 min", "8 min", "10 min"]),
        (4000, 7, ["0", "10 min", "20 min", "30 min", "40 min", "50 min", "1:00 h"]),
        (10_000, 4, ["0", "1 h", "2 h"]),
        (10_000, 6, ["0", "30 min", "1:00 h", "1:30 h", "2:00 h", "2:30 h"]),
        (200_000, 5, ["0", "12 h", "24 h", "36 h", "48 h"]),
        (1_000_000, 4, ["0", "3 d", "6 d", "9 d"]),
    ],
)
def test_the_axis_has_round_ticks(total: float, limit: int, expected: list[str]) -> None:
    assert [text for _, text in ticks(total, limit)] == expected


@pytest.mark.parametrize("limit", [2, 5, 12])
def test_there_are_some_ticks_and_never_too_many(limit: int) -> None:
    total = 0.0001
    while total < 1e8:
        found = ticks(total, limit)
        assert 1 <= len(found) <= limit + 1
        assert found[-1][0] <= total * 1.000001
        total *= 1.37


def overlaps(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one[0] < other[1] - 0.01 and other[0] < one[1] - 0.01


def check(picture: Layout) -> None:
    """Nothing stands outside the picture, no two texts or bars on each other."""
    for box in picture.boxes:
        assert box.width > 0
        assert box.x >= 0
        assert box.x + box.width <= picture.width
        assert box.y + box.height <= picture.height
    bars: dict[int, tuple[float, float, float]] = {}
    for box in picture.boxes:
        y, left, right = bars.get(box.bar, (box.y, box.x, box.x))
        bars[box.bar] = (y, min(left, box.x), max(right, box.x + box.width))
    spans = list(bars.values())
    for i, (y, left, right) in enumerate(spans):
        for other_y, other_left, other_right in spans[i + 1 :]:
            assert y != other_y or not overlaps((left + 4, right), (other_left + 4, other_right))
    texts = [(label.y, label.left, label.left + label.width, label.text) for label in picture.labels]
    for i, (y, left, right, text) in enumerate(texts):
        assert left >= -0.01, text
        assert right <= picture.width + 0.01, text
        for other_y, other_left, other_right, other in texts[i + 1 :]:
            assert abs(y - other_y) > 9 or not overlaps((left, right), (other_left, other_right)), (text, other)
    for sign in picture.signs:
        assert 0 <= sign.x <= picture.width
        if sign.kind in ("guard", "good", "plan"):
            for y, left, right, text in texts:
                assert abs(y - 4 - sign.y) > 9 or not overlaps((sign.x - 5, sign.x + 5), (left, right)), text


@pytest.mark.parametrize("width", WIDTHS)
def test_a_typical_run_has_nothing_on_top_of_anything(width: float) -> None:
    check(layout(moments(typical()), width))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("total", [0.01, 3.0, 7200.0])
def test_a_crowded_run_has_nothing_on_top_of_anything(width: float, total: float) -> None:
    timed: list[Any] = []
    tools = []
    for n in range(120):
        at = total * ((n * 37) % 100) / 110
        until = min(total, at + total * (n % 7) / 30)
        timed += called(n, f"a_rather_long_tool_name_{n % 5}", at, until, "boom" if n % 9 == 0 else None)
        tools.append(ToolTiming(f"tu_{n}", f"a_rather_long_tool_name_{n % 5}", "local", at, at, until, until))
    for n in range(50):
        timed.append((total * n / 50, event("tool_budget_exceeded", tool="x", maxCalls=1, callIndex=n)))
        timed.append((total * n / 50, event("supervisor", action="on_track")))
    picture = layout(moments(run_of(timed, tools=tools, total=total)), width)
    check(picture)
    assert picture.crowded > 0
    lanes = {box.y for box in picture.boxes}
    assert len(lanes) <= 5 * 9


def test_calls_that_overlap_are_in_lanes_and_others_share_one() -> None:
    timed = [*called(1, "a", 0, 4), *called(2, "a", 2, 6), *called(3, "a", 6.5, 9)]
    tools = [
        ToolTiming("tu_1", "a", "local", 0, 0, 4, 4),
        ToolTiming("tu_2", "a", "local", 2, 2, 6, 6),
        ToolTiming("tu_3", "a", "local", 6.5, 6.5, 9, 9),
    ]
    picture = layout(moments(run_of(timed, tools=tools)), 880.0)
    by_bar = {box.bar: box.y for box in picture.boxes}
    first, second, third = (
        by_bar[n] for n in sorted(by_bar, key=lambda n: min(b.x for b in picture.boxes if b.bar == n))
    )
    assert second > first + BAR
    assert third == first


def test_a_bar_too_thin_for_its_parts_has_the_colour_of_what_was_done() -> None:
    timed = [*called(1, "a", 1000, 1000.3), *called(2, "b", 1000, 1000.3, error="boom")]
    tools = [
        ToolTiming("tu_1", "a", "local", 1000, 1000, 1000.1, 1000.3),
        ToolTiming("tu_2", "b", "local", 1000, 1000.2, 1000.2, 1000.3, failed=True),
    ]
    turns = [TurnTiming(None, (1000.0, 1000.0), 1000.0)]
    picture = layout(moments(run_of(timed, turns, tools, total=5000.0)), 340.0)
    assert [(box.kind, box.width) for box in picture.boxes] == [("wait", 63.4), ("run", 3.0), ("bad", 3.0)]


def test_a_picture_of_nothing_is_a_picture() -> None:
    for total in (0.0, None, float("nan"), 5.0):
        result = run_of([], total=total)
        for width in WIDTHS:
            check(layout(moments(result), width))
        assert str(Timeline.of(result))


def test_names_are_cut_to_their_room() -> None:
    assert fitted("short", 100, 12) == "short"
    cut = fitted("m" * 100, 100, 12)
    assert cut.endswith("…")
    assert text_width(cut, 12) <= 100
    assert text_width("日本", 10) > text_width("ab", 10)


def test_the_names_beside_the_bars_have_the_room_they_need() -> None:
    short, long = (
        layout(moments(run_of(called(0, name, 0.0, 1.0), total=2.0)), 880.0)
        for name in ("find", "look_up_the_order_of_a_customer")
    )
    assert short.left < 100 < 200 < long.left < 0.3 * 880 + 1
    assert "look_up_the_order_of_a_customer" in [label.text for label in long.labels]
    check(long)


# ------------------------------------------------------------------------------------------- the pictures


def svg_of(text: str) -> ET.Element:
    root = ET.fromstring(text)
    for element in root.iter():
        name = element.tag.rpartition("}")[2]
        assert name in {"svg", "g", "rect", "line", "text", "title", "desc", "path", "circle", "style"}, name
        assert not [key for key in element.attrib if key.startswith("on") or "href" in key]
    return root


def test_the_svg_stands_alone_and_says_what_it_shows() -> None:
    root = svg_of(Timeline.of(typical()).svg)
    ns = "{http://www.w3.org/2000/svg}"
    assert root.get("role") == "img"
    title, desc = root.find(f"{ns}title"), root.find(f"{ns}desc")
    assert title is not None
    assert title.text == "Timeline of run run_1"
    assert desc is not None
    assert "after 4.2 s: budget" in (desc.text or "")
    words = [text.text for text in root.iter(f"{ns}text") if text.text]
    assert "Run run_1: succeeded in 10 s, 2 turns, 2 tool calls (1 failed), 1,204 tokens in, 88 out" in words
    assert "failed tool" in words
    assert "s-cross" in Timeline.of(typical()).svg  # a failure is not told by its colour alone


def test_the_view_has_a_picture_for_each_width() -> None:
    shown = Timeline.of(typical())._repr_html_()
    Reading(shown)
    for picture in re.findall(r"<svg .*?</svg>", shown, re.DOTALL):
        svg_of(picture)
    assert shown.count("<svg ") == 3
    assert '<div class="mx-drawn" hidden="hidden">' in shown  # until the style shows it, and the plain picture instead
    assert "# tool" in shown
    assert "1,204 in · 88 out" in shown


@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_hostile_names_and_texts_stay_texts(number: int) -> None:
    text = HOSTILE[number]
    error = MantyxRunError(text or "run", "x", "y")
    error.events = tuple(
        decode({"seq": n, **payload})
        for n, payload in enumerate(
            [
                event("task_plan", planId="p", brief=text, steps=[{"id": "a", "title": text, "status": text}]),
                event("local_tool_call", toolUseId="t", name=text, args={text: text}),
                event("local_tool_result_in", toolUseId="t", error=text),
                event("supervisor", action="redirect", redirect=text),
                event("loop_detected", tools=[text]),
            ],
            1,
        )
    )
    error.timing = RunTiming(
        0.0, 0.1, (0.1, 0.2, 0.3, 0.4, 0.5), (), (ToolTiming("t", text, "local", 0.2, 0.2, 0.3, 0.3, True),), 1.0
    )
    timeline = error.timeline()
    svg_of(timeline.svg)
    Reading(html_of(timeline))
    lines = str(timeline).splitlines()
    assert all(line.isprintable() for line in lines)
    assert "\n" not in repr(timeline)
    assert len(repr(timeline)) <= 300


def test_the_terminal_gets_a_picture_of_eighty_columns() -> None:
    lines = str(Timeline.of(typical())).splitlines()
    assert lines[0] == ("Run run_1: succeeded in 10 s, 2 turns, 2 tool calls (1 failed), 1,204 tokens in, 88 out")
    body = lines[1:]
    assert max(len(line) for line in body) <= 80
    text = "\n".join(body)
    assert re.search(r"^model +\.+~+=+", text, re.MULTILINE)
    assert re.search(r"^look ×2 +\.+#+-", text, re.MULTILINE)  # noqa: RUF001
    assert re.search(r"^ +x+", text, re.MULTILINE)
    assert "! guard" in text
    assert "! 4.2 s: Call 3 of look was turned away, its budget is 2." in text
    assert max(len(line) for line in Timeline.of(typical()).text(40).splitlines()[1:4]) <= 40


def test_reprs_are_short() -> None:
    timeline = Timeline.of(typical())
    assert repr(timeline) == (
        "<Timeline of run run_1: succeeded in 10 s, 2 turns, 2 tool calls (1 failed), 1,204 tokens in, 88 out>"
    )
    assert pickle.loads(pickle.dumps(timeline)) == timeline


def test_a_page_of_it_is_written(tmp_path: Any) -> None:
    page = Timeline.of(typical()).to_html(tmp_path / "t.html")
    assert (tmp_path / "t.html").read_text(encoding="utf-8") == page
    Reading(page)


# ------------------------------------------------------------------------------------------- of what


def test_failures_have_a_timeline_too() -> None:
    kept = typical()
    for error, status in (
        (MantyxRunError("run_1", "error", "boom"), "failed"),
        (MantyxRunCancelled("run_1"), "cancelled"),
    ):
        error.events, error.timing = (
            kept.events[:-1],
            kept.timing and kept.timing.__class__(**{**kept.timing.__dict__, "events": kept.timing.events[:-1]}),
        )
        assert error.timeline().moments.status == status


def test_without_times_a_sentence_says_why() -> None:
    with pytest.raises(MantyxConfigError, match=r"run run_1 was not followed here .* so nobody noted when"):
        RunResult("run_1", "x").timeline()
    with pytest.raises(MantyxConfigError, match="was not followed here"):
        MantyxRunError("run_1", "error", "boom").timeline()


@pytest.mark.parametrize(
    "value", [None, 3, "run_1", RunSnapshot("run_1", "succeeded")], ids=["none", "n", "id", "snap"]
)
def test_what_is_no_run_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="must be a run, its result, or its error"):
        Timeline.of(value)


def test_a_bar_knows_its_ends() -> None:
    bar = Bar((Part("queue", 1, 2), Part("run", 2, 5)), "x")
    assert (bar.start, bar.end) == (1, 5)


def test_events_are_not_changed_by_being_drawn() -> None:
    kept = typical()
    before = [repr(one) for one in kept.events]
    html_of(Timeline.of(kept))
    assert [repr(one) for one in kept.events] == before
    assert all(isinstance(one, RunEvent) for one in kept.events)
