"""The live view of a run: when it is drawn, what it shows, that it never costs the run, and the line in a terminal."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import types
from typing import Any, Callable, Iterator

import pytest

from mantyx_sync import (
    MantyxClient,
    MantyxError,
    MantyxNetworkError,
    MantyxParseError,
    MantyxRunCancelled,
    MantyxRunError,
    MantyxTimeoutError,
    RunResult,
    tool,
)
from mantyx_sync.display import live as live_module
from mantyx_sync.display import watch
from mantyx_sync.display.live import CellView, LineView, Painter
from mantyx_sync.display.live_card import final_html, live_html
from mantyx_sync.display.live_line import Line, final_words, running_words
from mantyx_sync.display.notebook import Cell
from mantyx_sync.display.state import RunState
from mantyx_sync.display.terminal import cells
from mantyx_sync.events import decode
from mantyx_sync.local import Failure, LocalServer, Pause, ScriptedModel, Thinking, ToolUse
from mantyx_sync.surroundings import notebook_shell
from tests.scripted_runs import SPEC, quick_client
from tests.waiting import wait_until
from tests.wire import DEADLINE_S

pytestmark = pytest.mark.usefixtures("no_leaks")


@contextlib.contextmanager
def serving(turn: list[Any], *more: list[Any]) -> Iterator[tuple[LocalServer, MantyxClient]]:
    server = LocalServer(ScriptedModel([turn, *more]))
    with server, quick_client(server, api_key=server.api_key, workspace_slug=server.workspace_slug) as client:
        yield server, client


class Clock:
    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


class FakeView:
    """Notes what it was to draw, and takes its time."""

    ticks = (0.5, 1.0)

    def __init__(self, clock: Callable[[], float] | None = None, took: float = 0.0, size: int = 0) -> None:
        self.clock, self.took, self.size = clock, took, size
        self.drawn: list[float] = []
        self.ends: list[object] = []
        self.on_draw: Callable[[], None] = lambda: None

    def draw(self, state: RunState, now: float) -> int:
        self.drawn.append(round(now - 100, 3))
        if isinstance(self.clock, Clock):
            self.clock.time += self.took
        self.on_draw()
        return self.size

    def end(self, state: RunState, ending: RunResult | BaseException, now: float) -> None:
        self.ends.append(ending)


@pytest.fixture
def view(monkeypatch: pytest.MonkeyPatch) -> FakeView:
    found = FakeView()
    monkeypatch.setattr(live_module, "_view", lambda run_id: found)
    return found


def event(seq: int, type: str, **data: Any) -> Any:
    return decode({"seq": seq, "type": type, "data": data})


def state_of(*events: tuple[str, dict[str, Any]]) -> RunState:
    state = RunState(0.0)
    for seq, (type_, data) in enumerate(events, 1):
        state.apply(event(seq, type_, **data), float(seq))
    return state


# ------------------------------------------------------------- when it is drawn


def looked(view: FakeView, clock: Clock, seconds: float, *, step: float, changes: bool) -> list[float]:
    """Look every `step` seconds for a while, with or without something new each time; return when was drawn."""
    state = RunState(0.0)
    painter = Painter(view, state, clock)
    painter.draw()
    until = clock.time + seconds
    while clock.time < until - 1e-9:
        clock.time = round(clock.time + step, 6)
        state.version += changes
        painter.look()
    return view.drawn


def test_a_quick_run_is_drawn_ten_times_a_second() -> None:
    clock = Clock()
    drawn = looked(FakeView(clock), clock, 1.0, step=0.01, changes=True)
    assert drawn == [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]


def test_a_slow_front_end_is_drawn_on_less_often() -> None:
    clock = Clock()
    drawn = looked(FakeView(clock, took=0.2), clock, 4.0, step=0.01, changes=True)
    assert [round(after - before, 1) for before, after in zip(drawn, drawn[1:])] == [0.8] * (len(drawn) - 1)
    assert len(drawn) > 4


def test_large_cards_keep_to_what_a_notebook_server_lets_through() -> None:
    clock = Clock()
    drawn = looked(FakeView(clock, size=100_000), clock, 2.0, step=0.01, changes=True)
    assert [round(after - before, 1) for before, after in zip(drawn, drawn[1:])] == [0.4] * (len(drawn) - 1)
    assert len(drawn) > 4


def test_durations_go_on_while_nothing_comes_and_slower_when_they_count_whole_seconds() -> None:
    clock = Clock()
    drawn = looked(FakeView(clock), clock, 14.0, step=0.1, changes=False)
    assert drawn[:4] == [0.0, 0.5, 1.0, 1.5]
    assert drawn[-3:] == [12.0, 13.0, 14.0]


def test_a_view_that_breaks_is_given_up_and_the_run_goes_on(view: FakeView) -> None:
    def broken() -> None:
        raise OSError("the terminal is gone")

    view.on_draw = broken
    with serving(["Hello"]) as (_, client):
        assert watch(client.stream_agent(**SPEC)).text == "Hello"
    assert (len(view.drawn), view.ends) == (1, [])


def test_an_end_that_cannot_be_drawn_hides_neither_result_nor_error(view: FakeView) -> None:
    def end(*_: object) -> None:
        raise OSError

    view.end = end  # type: ignore[method-assign]
    with serving(["Hello"]) as (_, client):
        assert watch(client.stream_agent(**SPEC)).text == "Hello"
    with serving(["Half a", Failure("it broke")]) as (_, client), pytest.raises(MantyxRunError, match="it broke"):
        watch(client.stream_agent(**SPEC))


# ------------------------------------------------------------- the run behind it


def test_watch_returns_the_result_of_any_run_and_draws_its_end_last(view: FakeView) -> None:
    with serving(["Hello"]) as (_, client):
        first = watch(client.stream_agent(**SPEC))
        started = client.start_agent(**SPEC)
        second = watch(started)
        third = watch(client.create_session(system_prompt="Help.").stream("Hi"))
        assert watch(client.attach_run(third.run_id)).text == "Hello"
        assert watch(started) is second
    assert view.ends[:4] == [first, second, third, view.ends[3]]
    assert len({result.run_id for result in (first, second, third)}) == 3
    assert view.drawn


def test_tools_run_and_the_view_is_drawn_while_the_run_is_quiet(view: FakeView) -> None:
    drawn_meanwhile = threading.Event()

    @tool
    def wait() -> str:
        """Wait until the view was drawn again."""
        before = len(view.drawn)
        view.on_draw = lambda: drawn_meanwhile.set() if len(view.drawn) > before + 2 else None
        return "drawn" if drawn_meanwhile.wait(DEADLINE_S) else "not drawn"

    with serving([ToolUse("wait", {})], ["Done."]) as (_, client):
        view.ticks = (0.1, 0.1)
        result = watch(client.stream_agent(**SPEC, tools=[wait]))
    (answer,) = [e for e in result.events if e.type == "local_tool_result_in"]
    assert answer.data["output"] == "drawn"


@pytest.mark.parametrize("error", [KeyboardInterrupt, LookupError])
def test_leaving_early_cancels_the_run_and_frees_everything(view: FakeView, error: type[BaseException]) -> None:
    reached, never = threading.Event(), threading.Event()

    def interrupt() -> None:
        if reached.is_set():
            raise error

    with serving(["Begun. ", Pause(never, reached)]) as (server, client):
        run = client.stream_agent(**SPEC)
        polled = run.poll

        def poll(every: float) -> Iterator[Any]:
            for event in polled(every):
                interrupt()
                yield event

        run.poll = poll  # type: ignore[method-assign]
        with pytest.raises(error):
            watch(run)
        wait_until(lambda: server.runs[0].status == "cancelled", "the run was left going")
        assert run.is_over
        never.set()
    assert isinstance(view.ends[-1], error)


def test_ctrl_c_before_anything_is_shown_cancels_the_run_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(run_id: str) -> None:
        raise KeyboardInterrupt

    never = threading.Event()
    monkeypatch.setattr(live_module, "_view", interrupted)
    with serving(["Begun. ", Pause(never)]) as (server, client):
        with pytest.raises(KeyboardInterrupt):
            watch(client.stream_agent(**SPEC))
        wait_until(lambda: server.runs[0].status == "cancelled", "the run was left going")
        never.set()


def test_the_time_of_the_run_holds(view: FakeView) -> None:
    never = threading.Event()
    with serving(["Begun. ", Pause(never)]) as (server, client):
        with pytest.raises(MantyxTimeoutError):
            watch(client.stream_agent(**SPEC, timeout=0.3))
        wait_until(lambda: server.runs[0].status == "cancelled", "the run was left going")
        never.set()
    assert isinstance(view.ends[-1], MantyxTimeoutError)


def test_a_run_that_is_looped_over_already_is_refused_and_goes_on(view: FakeView) -> None:
    go = threading.Event()
    with serving(["Begun. ", Pause(go), "Ended."]) as (_, client), client.stream_agent(**SPEC) as run:
        loop = iter(run)
        next(loop)
        with pytest.raises(MantyxError, match="one loop at a time"):
            watch(run)
        go.set()
        assert [event.type for event in loop][-1] == "result"


@pytest.mark.parametrize("given", [None, "run_1", 3, []])
def test_only_a_run_can_be_watched(given: Any) -> None:
    with pytest.raises(TypeError, match="must be a Run, which stream_agent, start_agent, attach_run"):
        watch(given)


def test_where_nobody_looks_nothing_is_written(capfd: pytest.CaptureFixture[str]) -> None:
    with serving(["Hello"]) as (_, client):
        assert watch(client.stream_agent(**SPEC)).text == "Hello"
    assert capfd.readouterr() == ("", "")


# ------------------------------------------------------------- the card

BUSY: list[tuple[str, dict[str, Any]]] = [
    ("task_plan", {"steps": [{"title": "Look <it> up", "status": "done"}, {"title": "Answer", "status": "pending"}]}),
    ("thinking_delta", {"text": "The <b>customer</b> asks. "}),
    ("assistant_delta", {"text": "Let me <script>see</script>."}),
    ("local_tool_call", {"toolUseId": "t1", "name": "get_order", "args": {"id": "<17>"}}),
    ("tool_call", {"toolUseId": "t2", "name": "search", "input": {}}),
    ("tool_result", {"toolUseId": "t2", "name": "search", "ok": False, "summary": "no <hits>"}),
    ("tool_budget_exceeded", {"tool": "search", "maxCalls": 1, "callIndex": 2}),
    ("supervisor", {"action": "on_track"}),
]


def test_the_live_card_shows_everything_that_goes_on_and_escapes_it() -> None:
    html = live_html(state_of(*BUSY), "run_<1>", 6.0)
    for shown in (
        ">running<",
        "run_&lt;1&gt;",
        "6.0 s",
        "Let me &lt;script&gt;see&lt;/script&gt;.",
        ">Thought.<",
        "Plan · 1 of 2 steps done",
        "Look &lt;it&gt; up",
        "Tool calls · 2, 1 running, 1 failed",
        "get_order",
        "{&quot;id&quot;: &quot;&lt;17&gt;&quot;}",
        "2.0 s",
        "no &lt;hits&gt;",
        "Call 2 of search was turned away, its budget is 1.",
        "The supervisor finds the run on track.",
    ):
        assert shown in html, shown
    assert "<script" not in html


def test_nothing_in_the_live_card_opens_since_it_would_be_closed_by_the_next() -> None:
    assert "<details" not in live_html(state_of(*BUSY), "run_1", 6.0)


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        ('{"error": "tool_budget_exceeded", "message": "It was called often enough."}', "It was called often enough."),
        ('{"error": "x"}', "{&quot;error&quot;: &quot;x&quot;}"),
        ("[1", "[1"),
    ],
)
def test_a_refused_call_shows_the_sentence_in_its_answer(answer: str, shown: str) -> None:
    call = {"toolUseId": "t2", "name": "search"}
    html = live_html(
        state_of(("tool_call", call), ("tool_result", {**call, "ok": False, "summary": answer})), "run_1", 6.0
    )
    assert f">{shown}<" in html


def test_reasoning_is_shown_by_its_end_while_it_lasts() -> None:
    html = live_html(state_of(("thinking_delta", {"text": "Begin. " + "x " * 600 + "End."})), "run_1", 3.5)
    assert "Thinking · 2.5 s" in html
    assert "End." in html
    assert "Begin." not in html


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([], "Waiting for the run to begin."),
        ([("user_message", {})], "Waiting for the model."),
    ],
)
def test_a_card_with_nothing_in_it_says_what_is_waited_for(events: Any, words: str) -> None:
    assert words in live_html(state_of(*events), "run_1", 1.0)


def test_the_live_card_stays_small_however_large_the_run_is() -> None:
    small = len(live_html(RunState(0.0), "run_1", 1.0))
    state = state_of(
        ("assistant_delta", {"text": "early " + "<" * 200_000}),
        ("thinking_delta", {"text": "&" * 200_000}),
        *[
            ("local_tool_call", {"toolUseId": f"t{i}", "name": "n" * 500, "args": {"a": ["<"] * 9999}})
            for i in range(99)
        ],
        *[("tool_budget_exceeded", {"tool": "t" * 5000}) for _ in range(99)],
        ("assistant_delta", {"text": "late"}),
    )
    html = live_html(state, "run_1", 9.0)
    assert len(html) - small < 80_000
    assert "… 87 other calls" in html
    assert "… 93 earlier notices" in html
    assert html.count('class="mx-row"') == 12


def test_the_end_of_a_long_text_is_what_is_shown_of_it() -> None:
    html = live_html(state_of(("assistant_delta", {"text": "begin " + "x" * 7000 + " end"})), "run_1", 1.0)
    assert "1,010 characters before this" in html
    assert " end<" in html


def result_of(text: str) -> RunResult:
    return RunResult(run_id="run_1", text=text, events=())


def test_the_card_that_stays_is_the_results_with_the_reasoning_folded() -> None:
    html = final_html(state_of(*BUSY), "run_1", result_of("It is <17>."), 9.0)
    assert ">succeeded<" in html
    assert "It is &lt;17&gt;." in html
    assert "What the model thought" in html
    assert "The &lt;b&gt;customer&lt;/b&gt; asks." in html
    assert "What the model thought" not in final_html(RunState(), "run_1", result_of("x"), 9.0)


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (MantyxRunError("run_1", "error", "run run_1 failed (error): it <broke>"), [">failed<", "it &lt;broke&gt;"]),
        (MantyxRunCancelled("run_1", reason="enough"), [">cancelled<"]),
        (KeyboardInterrupt(), [">cancelled<", "The cell was interrupted, and the run was cancelled."]),
        (MantyxTimeoutError("run run_1 did not end in time"), [">cancelled<", "did not end in time"]),
        (MantyxNetworkError("no bytes for 60 s; attach again"), [">lost<", "no bytes for 60 s; attach again"]),
    ],
)
def test_the_card_that_stays_of_a_run_without_a_result_says_why(error: BaseException, shown: list[str]) -> None:
    state = state_of(*BUSY)
    state.lose(error, 9.0)
    html = final_html(state, "run_1", error, 9.0)
    for words in (*shown, "What the model had written", "Let me &lt;script&gt;", "What the model thought"):
        assert words in html, words
    assert ">running<" not in html


# ------------------------------------------------------------- the cell


class FakeHandle:
    def __init__(self, front: FakeFront) -> None:
        self.front = front

    def update(self, data: Any, *, raw: bool) -> None:
        self.front.updates.append(data)


class FakeFront:
    """What IPython is to us: a display, its handle, a shell."""

    def __init__(self) -> None:
        self.displays: list[Any] = []
        self.updates: list[Any] = []
        self.types: dict[type, Any] = {}
        self.callbacks: list[Any] = []
        self.kernel = types.SimpleNamespace(iopub_socket=object())
        self.display_formatter = types.SimpleNamespace(ipython_display_formatter=self)
        self.events = self

    def display(self, data: Any, **options: Any) -> FakeHandle:
        printer = self.types.get(type(data))
        if printer is not None:  # as IPython's formatter does
            printer(data)
        else:
            self.displays.append(data)
        return FakeHandle(self)

    def for_type(self, cls: type, function: Any) -> Any:
        before = self.types.get(cls)
        self.types[cls] = function
        return before

    def pop(self, cls: type, default: Any) -> Any:
        return self.types.pop(cls, default)

    def register(self, name: str, function: Any) -> None:
        self.callbacks.append(function)

    def unregister(self, name: str, function: Any) -> None:
        self.callbacks.remove(function)

    def end_of_cell(self) -> None:
        for function in list(self.callbacks):
            function()


@pytest.fixture
def front(monkeypatch: pytest.MonkeyPatch) -> FakeFront:
    found = FakeFront()
    ipython = types.ModuleType("IPython")
    ipython.get_ipython = lambda: found  # type: ignore[attr-defined]
    display = types.ModuleType("IPython.display")
    display.display = found.display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return found


@pytest.mark.parametrize(
    ("ipython", "is_notebook"),
    [
        (None, False),
        (types.SimpleNamespace(), False),  # IPython is being imported just now
        (types.SimpleNamespace(get_ipython=lambda: None), False),  # imported by a script
        (types.SimpleNamespace(get_ipython=lambda: types.SimpleNamespace()), False),  # in a terminal
        (types.SimpleNamespace(get_ipython=lambda: types.SimpleNamespace(kernel=None)), False),
        (types.SimpleNamespace(get_ipython=lambda: types.SimpleNamespace(kernel=object())), False),
    ],
    ids=["none", "half", "script", "terminal", "no kernel", "other kernel"],
)
def test_a_notebook_is_told_from_what_only_has_ipython(
    monkeypatch: pytest.MonkeyPatch, ipython: Any, is_notebook: bool
) -> None:
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    assert (notebook_shell() is not None) is is_notebook


def test_ipython_is_not_loaded_to_find_that_out() -> None:
    before = "IPython" in sys.modules
    notebook_shell()
    assert ("IPython" in sys.modules) is before


def test_a_cell_has_one_output_that_is_replaced_in_place(front: FakeFront) -> None:
    assert notebook_shell() is front
    with serving([Thinking("Hm."), "Hello ", "world"]) as (server, client):
        result = watch(client.stream_agent(**SPEC, reasoning_level="low"))
        assert server.runs[0].status == "succeeded"
    (first,) = front.displays
    assert set(first) == {"text/html", "text/plain"}
    assert ">running<" in first["text/html"]
    last = front.updates[-1]
    assert ">succeeded<" in last["text/html"]
    assert "Hello world" in last["text/html"]
    assert "What the model thought" in last["text/html"]
    assert last["text/plain"].startswith(f"{result.run_id} done · ")
    assert last["text/plain"].endswith("\n\nHello world")
    front.end_of_cell()


def test_the_cell_of_a_failed_run_keeps_its_error(front: FakeFront) -> None:
    with serving(["Half a", Failure("it broke")]) as (_, client), pytest.raises(MantyxRunError):
        watch(client.stream_agent(**SPEC))
    assert ">failed<" in front.updates[-1]["text/html"]
    assert "it broke" in front.updates[-1]["text/html"]
    assert not front.types, "nothing is held back"


def test_a_result_that_the_card_stands_for_is_not_shown_twice_by_the_same_cell(front: FakeFront) -> None:
    shown, other = result_of("shown"), result_of("other")
    cell = Cell(front)
    cell.show("<p>", "p")
    cell.stands_for(shown)
    front.display(shown)
    front.display(other)
    front.display(shown)
    assert front.displays[1:] == [other]
    front.end_of_cell()
    assert (front.types, front.callbacks) == ({}, [])
    front.display(shown)
    assert front.displays[1:] == [other, shown]


def test_several_results_in_one_cell_and_a_printer_of_the_users_are_all_kept_apart(front: FakeFront) -> None:
    one, two, three = result_of("1"), result_of("2"), result_of("3")
    printed: list[Any] = []
    front.for_type(RunResult, printed.append)
    for result in (one, two):
        Cell(front).stands_for(result)
    for result in (one, two, three):
        front.display(result)
    assert printed == [three]
    front.end_of_cell()
    front.display(one)
    assert printed == [three, one]


# ------------------------------------------------------------- the line


@pytest.mark.parametrize(
    ("events", "now", "words"),
    [
        ([], 0.25, "0.2 s · waits for the model"),
        ([("thinking_delta", {"text": "Let me see"})], 2.0, "2.0 s · thinks: Let me see"),
        ([("assistant_delta", {"text": "It is"})], 12.0, "12 s · It is"),
        ([("assistant_message", {"text": "It is", "turn": 0})], 12.0, "12 s · waits for the model"),
        ([("local_tool_call", {"toolUseId": "a", "name": "look"})], 4.0, "4.0 s · calls look, 3.0 s"),
        (
            [("local_tool_call", {"toolUseId": i, "name": f"look_{i}"}) for i in "abc"],
            4.0,
            "4.0 s · calls look_a and 2 more calls, 3.0 s",
        ),
        (BUSY[:1], 4.0, "4.0 s · plan 1/2 · waits for the model"),
        ([("tool_budget_exceeded", {"tool": "x"})], 4.0, "4.0 s · A call of x was turned away."),
        ([("tool_budget_exceeded", {"tool": "x"})], 9.0, "9.0 s · waits for the model"),
        ([("supervisor", {"action": "on_track"})], 1.5, "1.5 s · waits for the model"),
    ],
)
def test_the_line_says_what_goes_on_right_now(events: Any, now: float, words: str) -> None:
    assert running_words(state_of(*events), now) == words


@pytest.mark.parametrize(
    ("events", "ending", "words", "tone"),
    [
        (
            [*BUSY, ("result", {"text": "x", "turns": 2, "tokens": {"inputTokens": 1200, "outputTokens": 40}})],
            result_of("x"),
            "run_1 done · 9.0 s · 2 turns · 2 tool calls (1 failed) · 1 notice · 1,200 tokens in, 40 out",
            "good",
        ),
        (
            [("error", {"error": "it broke"})],
            MantyxRunError("run_1", "error", "x"),
            "run_1 failed · 1.0 s · it broke",
            "bad",
        ),
        ([("cancelled", {})], MantyxRunCancelled("run_1"), "run_1 cancelled · 1.0 s", "warn"),
        (
            [("result", {"text": "no JSON"})],
            MantyxParseError("not JSON", text="no JSON"),
            "run_1 done · 1.0 s · not JSON",
            "bad",
        ),
        ([], KeyboardInterrupt(), "run_1 lost · 9.5 s", "bad"),
    ],
    ids=["done", "failed", "cancelled", "not parsed", "unknown"],
)
def test_the_line_that_stays_says_how_it_went(events: Any, ending: Any, words: str, tone: str) -> None:
    assert final_words(state_of(*events), "run_1", ending, 9.5) == (words, tone)


class Terminal:
    """A pseudo-terminal of a width, and what is to be seen on it: each write is a picture of its last row."""

    def __init__(self, width: int) -> None:
        import fcntl
        import pty
        import struct
        import termios

        self._master, slave = pty.openpty()
        self._resize = lambda w: fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, w, 0, 0))
        self.stream = os.fdopen(slave, "w", encoding="utf-8")
        self.width = width
        self.rows: list[list[str]] = [[]]
        self.column = 0
        self.raw = ""
        self.resize(width)

    def resize(self, width: int) -> None:
        self.width = width
        self._resize(width)

    def close(self) -> None:
        self.stream.close()
        os.close(self._master)

    def read(self) -> list[str]:
        """Take what was written, and return the rows as they are now, without blanks at their ends."""
        mark = "\x1b[999m"
        self.stream.write(mark)
        self.stream.flush()
        text = b""
        while not text.endswith(mark.encode()):
            text += os.read(self._master, 65536)
        shown = text.decode("utf-8")[: -len(mark)]
        self.raw += shown
        self._take(shown)
        return ["".join(row).rstrip() for row in self.rows]

    def _take(self, text: str) -> None:
        at = 0
        while at < len(text):
            char = text[at]
            at += 1
            if char == "\x1b":
                end = text.index("m", at)
                at = end + 1
            elif char == "\r":
                self.column = 0
            elif char == "\n":
                self.rows.append([])
            elif char == "\b":
                self.column = max(0, self.column - 1)
            else:
                self._put(char)

    def _put(self, char: str) -> None:
        wide = cells(char)
        row = self.rows[-1]
        if wide == 0:
            if self.column:
                row[self.column - 1] += char
            return
        if self.column + wide > self.width:
            self.rows.append([])
            self.column, row = 0, self.rows[-1]
        while len(row) < self.column + wide:
            row.append(" ")
        row[self.column] = char
        for more in range(1, wide):
            row[self.column + more] = ""
        self.column += wide


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    pytest.importorskip("pty", exc_type=ImportError)
    for name in ("NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    found = Terminal(40)
    yield found
    found.close()


def test_the_line_is_written_over_and_the_last_one_stays(terminal: Terminal) -> None:
    line = Line(terminal.stream)
    line.draw("*", "a rather long line of words")
    assert terminal.read() == ["* a rather long line of words"]
    line.draw("*", "short")
    assert terminal.read() == ["* short"]
    terminal.stream.write("printed")  # by a tool: it goes on behind the words, not behind what was wiped
    terminal.stream.flush()
    assert terminal.read() == ["* shortprinted"]
    line.end("+", "over", "good")
    assert terminal.read()[1:] == [""]
    line.draw("*", "next")
    assert terminal.read()[1:] == ["* next"]


@pytest.mark.parametrize("width", [1, 2, 3, 10, 40, 200])
def test_the_line_never_takes_more_than_one_row(terminal: Terminal, width: int) -> None:
    terminal.resize(width)
    line = Line(terminal.stream)
    for words in (
        "x" * 300,
        "漢字かな交じり文" * 20,
        "e\u0301" * 200,
        "👍🏽" * 50,
        "a\nb\r\nc\td\x1b[2J\x07\u202eb",
        "",
    ):
        line.draw("⠋", words)
        (row,) = terminal.read()
        assert cells(row) <= max(0, width - 1), words
    assert "\x1b[2J" not in terminal.raw
    assert "\x07" not in terminal.raw


def test_the_width_is_asked_each_time(terminal: Terminal) -> None:
    line = Line(terminal.stream)
    line.draw("*", "x" * 100)
    assert cells(terminal.read()[-1]) == 39
    terminal.resize(20)
    terminal.rows = [[]]
    line.draw("*", "x" * 100)
    assert [cells(row) for row in terminal.read()] == [19]


def test_colours_are_for_terminals_that_want_them(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    Line(terminal.stream).draw("*", "words")
    terminal.read()
    assert terminal.raw == "\r\x1b[36m*\x1b[0m words"
    monkeypatch.setenv("NO_COLOR", "1")
    terminal.raw = ""
    Line(terminal.stream).end("+", "words", "good")
    terminal.read()
    assert "\x1b" not in terminal.raw


def test_a_terminal_that_cannot_be_written_over_gets_the_last_line_alone(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    line = Line(terminal.stream)
    line.draw("*", "words")
    assert terminal.read() == [""]
    line.end("+", "over", "good")
    terminal.read()
    assert terminal.raw == "+ over\r\n"


def test_a_run_in_a_terminal_leaves_one_line(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal.resize(60)
    monkeypatch.setattr(sys, "stderr", terminal.stream)
    with serving(["Hello ", "world"]) as (_, client):
        result = watch(client.stream_agent(**SPEC))
        (first, rest) = terminal.read()
        assert first.startswith(f"✓ {result.run_id} done · ")
        assert rest == ""
    with serving(["Half a", Failure("it broke")]) as (_, client):
        with pytest.raises(MantyxRunError):
            watch(client.stream_agent(**SPEC))
        (_, second, _) = terminal.read()
        assert second.startswith("✗ run_")
        assert " failed · " in second


def test_the_views_are_what_the_place_asks_for(front: FakeFront, terminal: Terminal, monkeypatch: Any) -> None:
    monkeypatch.setattr(sys, "stderr", terminal.stream)
    assert isinstance(live_module._view("run_1"), CellView)
    monkeypatch.setitem(sys.modules, "IPython", None)
    assert isinstance(live_module._view("run_1"), LineView)
    monkeypatch.setattr(sys, "stderr", None)
    assert live_module._view("run_1") is None
