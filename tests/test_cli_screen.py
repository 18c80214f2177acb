"""What a terminal shows while a run goes on: the answer above, the block that is redrawn below."""

from __future__ import annotations

import io
import os
import sys
import time
from typing import Any

import pytest

from mantyx_sync.cli.answer import Answer
from mantyx_sync.cli.screen import Screen
from mantyx_sync.cli.showing import Look
from mantyx_sync.display.notices import Notice
from mantyx_sync.display.state import RunState, ToolCallState
from mantyx_sync.display.terminal import (
    Style,
    can_redraw,
    cells,
    fit,
    glyphs_for,
    plain,
    wants_colour,
    width_of,
)
from mantyx_sync.events import decode
from mantyx_sync.values import TaskPlan, TaskPlanStep

from .terminal import Display

LOOK = Look(Style(False), glyphs_for(io.TextIOWrapper(io.BytesIO(), encoding="utf-8")), 60)


class Tty(io.StringIO):
    """A stream that is a terminal, drawn at once."""

    encoding = "utf-8"  # type: ignore[assignment]

    def __init__(self, display: Display) -> None:
        super().__init__()
        self.display = display

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return 99

    def write(self, text: str) -> int:
        self.display.feed(text.replace("\r\n", "\n").replace("\n", "\r\n"))
        return super().write(text)


@pytest.fixture
def display() -> Display:
    return Display(20, 8)


@pytest.fixture
def screen(display: Display, monkeypatch: pytest.MonkeyPatch) -> Screen:
    terminal = Tty(display)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(os, "get_terminal_size", lambda _fd: os.terminal_size((display.columns, display.height)))
    monkeypatch.setattr("mantyx_sync.cli.screen._is_same_terminal", lambda _one, _other: True)
    return Screen()


def test_the_answer_goes_on_above_the_block(screen: Screen, display: Display) -> None:
    for piece in ("One ", "two ", "three.", "\n\nFour"):
        screen.answer(piece)
        screen.block(["# writing"])
    assert display.lines == ["One two three.", "", "Four", "# writing"]
    assert (display.row, display.column) == (2, 4)
    screen.close()
    assert display.lines == ["One two three.", "", "Four"]
    assert (display.row, display.column) == (3, 0)


@pytest.mark.parametrize("first", range(16, 25))
def test_the_answer_is_whole_wherever_a_line_is_full(screen: Screen, display: Display, first: int) -> None:
    text = "x" * first + "abc\nd"
    for char in text:
        screen.answer(char)
        screen.block(["# 1", "# 2"])
    assert "".join(display.lines[:-2]) == text.replace("\n", "")
    assert display.lines[-2:] == ["# 1", "# 2"]
    screen.close()
    assert display.lines[-1] == "d"
    assert not any("#" in line for line in display.lines)


def test_the_block_stays_below_at_the_bottom_of_the_screen(screen: Screen, display: Display) -> None:
    for number in range(30):
        screen.answer(f"line {number}")
        screen.block([f"# at {number}", "# more"])
        screen.answer("\n")
    screen.close()
    assert display.lines == [f"line {number}" for number in range(30)]


def test_wide_signs_and_tabs_do_not_move_the_place(screen: Screen, display: Display) -> None:
    text = "注文は発送されました。e\u0301\tと👍 and more of it here"
    for char in text:
        screen.answer(char)
        screen.block(["# x"])
    screen.close()
    assert "".join(display.lines).replace(" ", "") == text.replace(" ", "").replace("\t", "").replace("\u0301", "")
    assert not any("#" in line for line in display.lines)


def test_lines_begin_at_the_beginning_and_the_answer_below_them(screen: Screen, display: Display) -> None:
    screen.answer("Let me look. ")
    screen.block(["# tool"])
    screen.line("+ tool 1 s")
    screen.block(["# waiting"])
    screen.answer("\n\nIt was shipped.")
    screen.gap()
    screen.line("2 s")
    screen.close()
    assert display.lines == ["Let me look.", "+ tool 1 s", "", "It was shipped.", "", "2 s"]


def test_a_block_that_is_taller_than_the_screen_is_cut(screen: Screen, display: Display) -> None:
    screen.block([f"# {number}" for number in range(40)])
    assert len(display.lines) == 6
    screen.close()
    assert display.lines == []


def test_what_is_printed_meanwhile_appears_in_whole_lines_above_the_block(screen: Screen, display: Display) -> None:
    screen.block(["# tool"])
    with screen.taking_prints():
        print("one", end="")
        assert display.lines == ["# tool"]
        print(" two\x1b[2J\nthree", end="")
        assert not sys.stdout.isatty()
    screen.close()
    assert display.lines == ["one two[2J", "three"]


def test_of_a_progress_bar_the_last_state_is_shown_and_bytes_are_text(screen: Screen, display: Display) -> None:
    with screen.taking_prints():
        for percent in range(100):
            print(f"\r{percent} %", end="")
        print("\r100 %\r")
        for percent in range(100):
            sys.stderr.write(f"{percent} of 100\r")
        print("done\r\nand more")
        sys.stdout.buffer.write("Grö".encode())
        sys.stdout.buffer.write("ß".encode()[:1])
        sys.stdout.buffer.write("ß".encode()[1:] + b"e\n")
    assert display.lines == ["100 %", "done", "and more", "Größe"]


def test_a_tool_may_print_sign_by_sign(screen: Screen, display: Display) -> None:
    with screen.taking_prints():
        began = time.monotonic()
        for _ in range(30_000):
            sys.stdout.write("x")
        print()
        assert time.monotonic() - began < 5.0, "not longer with each sign"
    assert sum(map(len, display.lines)) == 30_000


def test_without_a_terminal_nothing_is_redrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    out, err = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    screen = Screen()
    screen.block(["# x"])
    screen.answer("a\x1b[31m")
    screen.line("about")
    screen.close()
    assert (out.getvalue(), err.getvalue()) == ("a\x1b[31m\n", "about\n"), "a program gets the answer as it is"


def test_a_dumb_terminal_gets_lines_alone(display: Display, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Tty(display)
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr("mantyx_sync.cli.screen._is_same_terminal", lambda _one, _other: True)
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setattr(sys, "stderr", terminal)
    screen = Screen()
    screen.block(["# x"])
    screen.answer("a\x1b[31mb\x07")
    screen.line(screen.style.red("about"))
    screen.close()
    assert terminal.getvalue() == "a[31mb\nabout\n"


# ------------------------------------------------------------------------------------------- the answer


class Paper:
    """A screen that keeps what is written."""

    def __init__(self) -> None:
        self.text = ""

    def answer(self, text: str) -> None:
        self.text += text

    def end_line(self) -> None:
        if self.text and not self.text.endswith("\n"):
            self.text += "\n"


@pytest.mark.parametrize(
    ("pieces", "whole", "final", "shown"),
    [
        (["It ", "was."], "It was.", "It was.", "It was.\n"),
        (["It "], "It was.", "It was.", "It was.\n"),  # a delta was missed
        ([], "It was.", "It was.", "It was.\n"),  # a server without deltas
        ([], None, "It was.", "It was.\n"),  # the run ended while nobody watched
        (["It was."], None, "It was.", "It was.\n"),
        (["was."], "It was.", "It was.", "was.\nIt was.\n"),  # taken up in the middle: whole, rather than half
        (["It was."], "It was.", "", "It was.\n"),
        (["It was.\n"], "It was.\n", "It was.\n", "It was.\n"),
    ],
)
def test_a_streamed_answer_is_whole_and_written_once(
    pieces: list[str], whole: str | None, final: str, shown: str
) -> None:
    paper: Any = Paper()
    answer = Answer(paper, is_streamed=True)
    for piece in pieces:
        answer.add(piece)
    if whole is not None:
        answer.end_turn(whole)
    answer.finish(final)
    assert paper.text == shown


def test_turns_are_lines_of_their_own() -> None:
    paper: Any = Paper()
    answer = Answer(paper, is_streamed=True)
    answer.add("Let me look.")
    answer.end_turn()
    answer.end_turn("Let me look.")
    answer.add("It was.")
    answer.finish("It was.")
    assert paper.text == "Let me look.\nIt was.\n"


# ------------------------------------------------------------------------------------------- lines


def call(**changes: Any) -> ToolCallState:
    found: dict[str, Any] = {
        "tool_use_id": "tu_1",
        "name": "get_order",
        "args": {"order_id": "17", "n": 3},
        "kind": "local",
        "state": "done",
        "started": 1.0,
        "ended": 1.5,
    }
    return ToolCallState(**{**found, **changes})


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, '✓ get_order(order_id="17", n=3)  500 ms'),
        ({"ended": 1.01}, '✓ get_order(order_id="17", n=3)'),
        ({"state": "running", "ended": None}, '⠋ get_order(order_id="17", n=3)  1.0 s'),
        ({"state": "failed", "detail": "no"}, '✗ get_order(order_id="17", n=3)  500 ms  no'),
        ({"state": "failed"}, '✗ get_order(order_id="17", n=3)  500 ms  failed'),
        (
            {"state": "failed", "detail": "a reason that is too long for what is left of the line"},
            '✗ get_order(order_id="17", n=3)  500 ms\n  a reason that is too long for what is left of the line',
        ),
        ({"args": None}, "✓ get_order()  500 ms"),
        ({"args": "text"}, '✓ get_order("text")  500 ms'),
        ({"args": {"x": "a\x1b[2J\nb" * 99}}, '✓ get_order(x="a\\u001b[2J\\nba\\u001b[2J\\nba\\u001b[2J…  500 ms'),
        ({"args": {"x": list(range(99))}}, "✓ get_order(x=list of 99)  500 ms"),
        ({"files": ("a.pdf", "b.png")}, '✓ get_order(order_id="17", n=3)  500 ms  2 files: a.pdf, b.…'),
        ({"name": "注文" * 40}, f"✓ {'注文' * 12}…  500 ms"),
    ],
)
def test_a_tool_call_is_a_line(changes: dict[str, Any], line: str) -> None:
    assert LOOK.tool(call(**changes), 2.0) == line
    assert all(cells(part) <= 60 for part in line.split("\n"))


def test_a_long_plan_is_shown_around_the_step_that_is_being_done() -> None:
    statuses = ["done"] * 8 + ["in_progress"] + ["pending"] * 11
    plan = TaskPlan(tuple(TaskPlanStep(f"Step {i}", status) for i, status in enumerate(statuses)))
    assert LOOK.plan(plan, 5) == ["  8 of 20 steps are done", "✓ Step 7", "▸ Step 8", "○ Step 9", "○ Step 10"]
    assert len(LOOK.plan(plan)) == 20
    assert LOOK.step(TaskPlanStep("Later", "skipped")) == "~ Later (skipped)"
    assert LOOK.step(TaskPlanStep("Stuck", "blocked")) == "✗ Stuck (blocked)"
    assert LOOK.step(TaskPlanStep("New", "some newer word")) == "○ New"


def test_a_notice_is_not_cut(screen: Screen) -> None:
    text = "The supervisor changed the run's course: " + "because of this and that, " * 5
    assert LOOK.notice(Notice("supervisor", text, 1.0)) == f"! {text.strip()}"
    assert LOOK.notice(Notice("supervisor", "On\ntrack.", 1.0, False)) == "· On track."


def test_the_block_says_what_goes_on() -> None:
    state = RunState(0.0)

    def take(seq: int, kind: str, **data: Any) -> str:
        state.apply(decode({"seq": seq, "type": kind, "data": data}), float(seq))
        return LOOK.block(state, float(seq), 24)[-1][2:]

    assert LOOK.block(state, 0.0, 24) == ["⠋ waiting for the model · 0 s"]
    assert take(1, "thinking_delta", text="Hm, let me\x1b[2J see.") == "thinking · 1 s · Hm, let me[2J see."
    assert take(2, "assistant_delta", text="Well") == "writing · 2 s"
    for seq in range(3, 11):
        last = take(seq, "local_tool_call", toolUseId=f"tu_{seq}", name="look", args={})
    assert last == "waiting for 8 tools · 10 s"
    assert LOOK.block(state, 11.0, 24)[-2] == "  and 3 more"
    assert take(99, "assistant_message", text="Well", turn=0).endswith("1 min 39 s")


# ------------------------------------------------------------------------------------------- the terminal


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("plain\n\ttext", "plain\n\ttext"),
        ("\x1b]0;title\x07\x1b[31mred\x9b2J\x00", "]0;title[31mred2J"),
        ("a\r\nb\rc", "a\nbc"),
        ("\u202eevil\u2066x\u2069", "evilx"),
        ("half \ud800", "half "),
        ("family 👨\u200d👩\u200d👧 x\u0301", "family 👨\u200d👩\u200d👧 x\u0301"),
        ("a\u2028b", "a\nb"),
    ],
)
def test_text_cannot_command_a_terminal(text: str, seen: str) -> None:
    assert plain(text) == seen
    assert "".join(map(plain, text.replace("\r\n", "\n"))) == seen, "nor in pieces"


@pytest.mark.parametrize(
    ("text", "wide"), [("abc", 3), ("注文", 4), ("e\u0301", 1), ("👍", 2), ("", 0), ("a\u200bb", 2), ("ﾊﾝ", 2)]
)
def test_the_width_of_text_is_known(text: str, wide: int) -> None:
    assert cells(text) == wide


def test_text_is_cut_to_a_width() -> None:
    assert fit("one\n two\tthree", 80) == "one two three"
    assert fit("one two three", 8) == "one two…"
    assert fit("注文は発送", 6) == "注文…"
    assert fit("abc", 3) == "abc"
    assert fit("abc", 0) == ""


@pytest.mark.parametrize(
    ("environment", "is_tty", "colour"),
    [
        ({"TERM": "xterm"}, True, True),
        ({"TERM": "xterm"}, False, False),
        ({"TERM": "dumb"}, True, False),
        ({}, True, False),
        ({"TERM": "xterm", "NO_COLOR": "1"}, True, False),
        ({"TERM": "xterm", "NO_COLOR": ""}, True, True),
        ({"TERM": "xterm", "CLICOLOR": "0"}, True, False),
        ({"CLICOLOR_FORCE": "1"}, False, True),
        ({"FORCE_COLOR": "3"}, False, True),
        ({"FORCE_COLOR": "0"}, False, False),
        ({"CLICOLOR_FORCE": "1", "NO_COLOR": "1"}, True, False),
    ],
)
def test_the_environment_decides_about_colours(environment: dict[str, str], is_tty: bool, colour: bool) -> None:
    stream = Tty(Display()) if is_tty else io.StringIO()
    assert wants_colour(stream, environment) is colour
    if "NO_COLOR" in environment and is_tty and "TERM" in environment:
        assert can_redraw(stream, environment), "without colours is not without redrawing"


def test_odd_streams_are_no_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setenv("COLUMNS", "33")
    for stream in (None, closed, io.BytesIO()):
        assert not can_redraw(stream, {"TERM": "xterm"})
        assert width_of(stream) == 33
    assert glyphs_for(io.TextIOWrapper(io.BytesIO(), encoding="ascii")).done == "+"
    assert glyphs_for(None).done == "+"
