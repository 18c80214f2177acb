"""Progress of long work: what is told, to whom, on which thread; reporters by name; none is left open, nor any run."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import pickle
import sys
import threading
import types
from typing import Any, Callable, Iterator

import pytest

from mantyx_sync import MantyxClient, MantyxConfigError, MantyxError, Progress
from mantyx_sync.local import LocalServer, ScriptedModel
from mantyx_sync.many import run_many
from mantyx_sync.progress import Reporting, _close_at_exit
from mantyx_sync.progress_bars import LineReporter, RichReporter, TqdmReporter, is_installed, reporter_named
from tests.waiting import wait_until
from tests.wire import DEADLINE_S

pytestmark = pytest.mark.usefixtures("no_leaks")

SAY: dict[str, Any] = {"system_prompt": "Help."}


def nothing() -> None:
    """Stand in for `abort_all`."""


class Reporter:
    """What a caller might write: remembers what it is told, by whom, and that it was closed."""

    def __init__(self, fails: bool = False, fails_to_close: bool = False) -> None:
        self.told: list[Progress] = []
        self.threads: set[threading.Thread] = set()
        self.closed = 0
        self._fails = fails
        self._fails_to_close = fails_to_close

    def __call__(self, progress: Progress) -> None:
        self.told.append(progress)
        self.threads.add(threading.current_thread())
        if self._fails and progress.done:
            raise ZeroDivisionError("the reporter")

    def close(self) -> None:
        self.closed += 1
        if self._fails_to_close:
            raise ZeroDivisionError("its end")


class Ref:
    """A server that is ready when a test says so."""

    kind = "mcp_local"

    def __init__(self, name: str, tools: int = 1, error: Exception | None = None) -> None:
        self.name = name
        self.ready = threading.Event()
        self.closed = threading.Event()
        self.opened = 0
        self._tools = tools
        self._error = error

    def to_wire(self) -> dict[str, Any]:
        raise AssertionError("it was not resolved")

    def resolve(self, opening: Any) -> Any:
        self.opened += 1
        opening.at_end(self.closed.set)
        assert self.ready.wait(DEADLINE_S)
        if self._error is not None:
            raise self._error
        return Resolved(self)

    @property
    def entry(self) -> dict[str, Any]:
        tools = [{"name": f"{self.name}_{n}", "inputSchema": {"type": "object"}} for n in range(self._tools)]
        return {"kind": self.kind, "name": self.name, "tools": tools}


class Resolved:
    kind = Ref.kind

    def __init__(self, ref: Ref) -> None:
        self.name = ref.name
        self._ref = ref

    def to_wire(self) -> dict[str, Any]:
        return self._ref.entry

    def register(self, registry: Any) -> None:
        """Answers nothing."""


@pytest.fixture
def server() -> Iterator[LocalServer]:
    with LocalServer(ScriptedModel(["Hello."])) as server:
        yield server


@pytest.fixture
def client(server: LocalServer) -> Iterator[MantyxClient]:
    with MantyxClient(**server.client_settings()) as client:
        yield client


# ------------------------------------------------------------------------------------------- what is told


@pytest.mark.parametrize(
    ("progress", "said"),
    [
        (Progress("runs", 0, 0, None), "runs: 0"),
        (Progress("runs", 12, 0, 50), "runs: 12 of 50"),
        (Progress("runs", 12, 2, 50), "runs: 12 of 50, 2 failed"),
        (Progress("servers", 1, 0, 2, "fs is ready"), "servers: 1 of 2 (fs is ready)"),
    ],
)
def test_progress_says_itself_in_a_line(progress: Progress, said: str) -> None:
    assert str(progress) == said
    assert pickle.loads(pickle.dumps(progress)) == progress


def test_servers_are_told_as_they_get_ready_on_the_waiting_thread(client: MantyxClient) -> None:
    slow, quick = Ref("mountains"), Ref("rivers", tools=3)
    quick.ready.set()

    class Letting(Reporter):
        def __call__(self, progress: Progress) -> None:
            super().__call__(progress)
            if progress.done == 1:
                slow.ready.set()

    reporter = Letting()
    client.with_options(progress=reporter).run_agent(prompt="Hi", tools=[slow, quick], **SAY)
    assert reporter.told == [
        Progress("servers", 0, 0, 2, "starting mountains, rivers"),
        Progress("servers", 1, 0, 2, "rivers is ready with 3 tools; starting mountains"),
        Progress("servers", 2, 0, 2, "mountains is ready with 1 tool"),
    ]
    assert reporter.threads == {threading.current_thread()}
    assert reporter.closed == 1


STARTING: dict[str, Callable[[MantyxClient, Any], object]] = {
    "run_agent": lambda client, ref: client.run_agent(prompt="Hi", tools=[ref], **SAY),
    "stream_agent": lambda client, ref: client.stream_agent(prompt="Hi", tools=[ref], **SAY).result(),
    "start_agent": lambda client, ref: client.start_agent(prompt="Hi", tools=[ref], **SAY).result(),
    "attach_run": lambda client, ref: client.attach_run(
        client.run_agent(prompt="Hi", **SAY).run_id, tools=[ref]
    ).result(),
    "create_session": lambda client, ref: client.create_session(tools=[ref], **SAY).end(),
    "resume_session": lambda client, ref: client.resume_session(client.create_session(**SAY).id, tools=[ref]).end(),
    "send": lambda client, ref: client.create_session(**SAY).send("Hi", tools=[ref]),
    "map": lambda client, ref: next(client.map(["Hi"], tools=[ref], **SAY)),
    "run_eval": lambda client, ref: client.run_eval(
        dataset={"cases": [{"input": {"prompt": "Hi"}}]}, agent={"systemPrompt": "Help."}, tools=[ref]
    ),
    "create_eval_run": lambda client, ref: client.create_eval_run(
        dataset={"cases": [{"input": {"prompt": "Hi"}}]}, agent={"systemPrompt": "Help."}, tools=[ref]
    ),
}


@pytest.mark.parametrize("call", STARTING)
def test_whoever_the_client_has_is_told_of_servers_by_every_call_that_waits_for_them(
    client: MantyxClient, call: str
) -> None:
    ref, reporter = Ref("fs"), Reporter()
    ref.ready.set()
    STARTING[call](client.with_options(progress=reporter), ref)
    assert [progress for progress in reporter.told if progress.what == "servers"] == [
        Progress("servers", 0, 0, 1, "starting fs"),
        Progress("servers", 1, 0, 1, "fs is ready with 1 tool"),
    ]
    assert reporter.closed == 1


def test_a_call_without_servers_tells_nobody_anything(client: MantyxClient) -> None:
    reporter = Reporter()
    client.with_options(progress=reporter).run_agent(prompt="Hi", **SAY)
    assert (reporter.told, reporter.closed) == ([], 0)


def test_a_loop_tells_of_its_servers_and_then_of_its_runs(client: MantyxClient) -> None:
    ref, of_one, reporter, ignored = Ref("fs"), Ref("git"), Reporter(), Reporter()
    ref.ready.set()
    of_one.ready.set()
    items = ["a", {"prompt": "b", "tools": [of_one]}, "c"]
    quiet = client.with_options(progress=ignored)
    assert len(list(quiet.map(items, tools=[ref], progress=reporter, **SAY))) == 3
    assert [(p.what, p.done) for p in reporter.told] == [
        *(("servers", done) for done in (0, 1)),
        *(("runs", done) for done in (0, 1, 2, 3)),
    ]
    assert reporter.threads == {threading.current_thread()}
    assert (of_one.opened, ignored.told) == (1, [])


def test_the_client_has_one_for_loops_and_evals_too(client: MantyxClient) -> None:
    reporter = Reporter()
    told = client.with_options(progress=reporter)
    list(told.map(["a"], **SAY))
    dataset = {"cases": [{"input": {"prompt": "Hi"}, "scorers": [{"type": "contains", "value": "nowhere"}]}]}
    told.run_eval(dataset=dataset, agent={"systemPrompt": "Help."})
    assert [p for p in reporter.told if p.what == "runs"] == [Progress("runs", 0, 0, 1), Progress("runs", 1, 0, 1)]
    assert reporter.told[-1] == Progress("eval cases", 1, 1, 1, "succeeded")
    assert reporter.closed == 2


# ------------------------------------------------------------------------------------------- the end of it


def failing(item: int) -> int:
    if item == 2:
        raise ValueError("number 2")
    return item


def leave(loop: Iterator[Any]) -> None:
    next(loop)
    loop.close()  # type: ignore[attr-defined]  # a generator


def drop(loop: Iterator[Any]) -> None:
    next(loop)


def interrupt(loop: Any) -> None:
    next(loop)
    with pytest.raises(KeyboardInterrupt):
        loop.throw(KeyboardInterrupt)


def fail(loop: Iterator[Any]) -> None:
    with pytest.raises(ValueError, match="number 2"):
        list(loop)


def zip_(loop: Iterator[Any]) -> None:
    assert list(zip(range(2), loop)) == [(0, 0), (1, 1)]


ENDS: dict[str, tuple[int, Callable[[Any], object]]] = {
    "read to its end": (2, list),
    "as long as a list beside it": (2, zip_),
    "closed": (2, leave),
    "dropped": (2, drop),
    "interrupted": (2, interrupt),
    "failed": (3, fail),
}


@pytest.mark.parametrize("how", ENDS)
def test_a_reporter_is_closed_once_however_a_loop_ends(how: str) -> None:
    count, end = ENDS[how]
    reporter = Reporter()
    loop = run_many(range(count), failing, nothing, max_workers=1, progress=reporter)
    kept = [loop] if how == "as long as a list beside it" else []
    end(loop)
    del loop
    wait_until(lambda: reporter.closed == 1, "it was not closed")
    kept.clear()
    assert reporter.closed == 1


def test_a_loop_that_never_began_told_nobody() -> None:
    reporter = Reporter()
    run_many(range(3), failing, nothing, max_workers=1, progress=reporter)
    assert (reporter.told, reporter.closed) == ([], 0)


@pytest.mark.parametrize("where", ["fails", "fails_to_close"])
def test_what_a_reporter_raises_comes_out_of_a_loop_and_no_run_is_left(
    server: LocalServer, client: MantyxClient, where: str
) -> None:
    reporter = Reporter(**{where: True})
    with pytest.raises(ZeroDivisionError):
        list(client.map(["a", "b", "c"], max_workers=2, progress=reporter, **SAY))
    assert reporter.closed == 1
    wait_until(lambda: all(run.status in ("succeeded", "cancelled") for run in server.runs), "a run was left going")


@pytest.mark.parametrize("where", ["fails", "fails_to_close"])
def test_what_a_reporter_raises_while_servers_start_closes_them_and_nothing_is_sent(
    server: LocalServer, client: MantyxClient, where: str
) -> None:
    ref, reporter = Ref("fs"), Reporter(**{where: True})
    ref.ready.set()
    with pytest.raises(ZeroDivisionError):
        client.with_options(progress=reporter).run_agent(prompt="Hi", tools=[ref], **SAY)
    assert ref.closed.wait(DEADLINE_S)
    assert (reporter.closed, list(server.runs)) == (1, [])


def test_a_server_that_cannot_be_had_is_the_error_whatever_the_reporter_does(
    client: MantyxClient, caplog: pytest.LogCaptureFixture
) -> None:
    ref, reporter = Ref("fs", error=MantyxError("it is on fire")), Reporter(fails_to_close=True)
    ref.ready.set()
    with pytest.raises(MantyxError, match="on fire"):
        client.with_options(progress=reporter).run_agent(prompt="Hi", tools=[ref], **SAY)
    assert [progress.done for progress in reporter.told] == [0], "what is raised is not told"
    assert reporter.closed == 1
    assert "closing the reporter of progress failed" in caplog.text


def test_an_eval_that_cannot_be_created_closes_its_reporter(client: MantyxClient) -> None:
    reporter = Reporter()
    with pytest.raises(MantyxError):
        client.run_eval(dataset_id="unknown", agent={"systemPrompt": "Help."}, progress=reporter)
    assert (reporter.told, reporter.closed) == ([Progress("eval cases", 0, 0, None)], 1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_of_a_fork_leaves_its_parents_reporter_open() -> None:
    reporter = Reporter()
    report = Reporting(reporter)
    report(Progress("runs", 0, 0, 1))
    child = os.fork()
    if child == 0:
        report.close()
        os._exit(reporter.closed)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    report.close()
    report.close()
    assert reporter.closed == 1


def test_at_exit_every_reporter_is_closed_whatever_another_does(caplog: pytest.LogCaptureFixture) -> None:
    reporters = [Reporter(fails_to_close=True), Reporter(fails_to_close=True)]
    reports = [Reporting(reporter) for reporter in reporters]
    for report in reports:
        report(Progress("runs", 0, 0, 1))
    _close_at_exit()
    assert [reporter.closed for reporter in reporters] == [1, 1]
    assert caplog.text.count("closing the reporter of progress failed") == 2


# ------------------------------------------------------------------------------------------- names


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that has packages look as if they were not installed."""

    def hide(*names: str) -> None:
        for name in names:
            monkeypatch.setitem(sys.modules, name, None)

    return hide


REFUSED: dict[str, tuple[Any, str]] = {
    "a number": (7, "progress: got 7, must be a function, 'auto', 'rich' or 'tqdm'"),
    "another name": ("bar", "progress: got 'bar', must be a function, 'auto', 'rich' or 'tqdm'"),
    "what is missing": ("tqdm", "progress: got 'tqdm', which is not installed: pip install tqdm, or take 'auto'"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_reporter_is_refused_before_anything_is_sent(
    server: LocalServer, client: MantyxClient, without: Any, what: str
) -> None:
    without("tqdm")
    given, said = REFUSED[what]
    calls: list[Callable[[], object]] = [
        lambda: MantyxClient(api_key="k", workspace_slug="s", progress=given),
        lambda: client.with_options(progress=given),
        lambda: client.map(["a"], progress=given, **SAY),
        lambda: client.run_eval(dataset_id="d", agent={"systemPrompt": "Help."}, progress=given),
    ]
    for call in calls:
        with pytest.raises(MantyxConfigError) as caught:
            call()
        assert caught.value.message == said
    assert not server.requests


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Gone(Terminal):
    def write(self, text: str) -> int:
        raise BrokenPipeError


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = types.SimpleNamespace(kernel=types.SimpleNamespace(iopub_socket=object()))
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))  # type: ignore[arg-type]


AUTO: dict[str, tuple[Any, tuple[str, ...], Any]] = {
    "a terminal": (Terminal(), ("tqdm", "rich"), LineReporter),
    "a file": (io.StringIO(), (), None),
    "nothing": (None, (), None),
}


@pytest.mark.parametrize("where", AUTO)
def test_auto_shows_nothing_where_nobody_looks(monkeypatch: pytest.MonkeyPatch, without: Any, where: str) -> None:
    stream, missing, kind = AUTO[where]
    without(*missing)
    monkeypatch.setattr(sys, "stderr", stream)
    assert type(reporter_named("auto")) is (kind or type(None))
    assert Reporting("auto").is_wanted is (kind is not None)


def test_auto_takes_what_is_installed(monkeypatch: pytest.MonkeyPatch, without: Any) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    here = {"tqdm", "rich"}
    monkeypatch.setattr("mantyx_sync.progress_bars.is_installed", lambda name: name in here)
    assert isinstance(reporter_named("auto"), TqdmReporter)
    here.remove("tqdm")
    assert isinstance(reporter_named("auto"), RichReporter)
    here.remove("rich")
    assert isinstance(reporter_named("auto"), LineReporter)


@pytest.mark.usefixtures("notebook")
def test_auto_in_a_notebook_needs_a_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setattr("mantyx_sync.progress_bars.is_installed", lambda name: name == "rich")
    assert isinstance(reporter_named("auto"), RichReporter)
    monkeypatch.setattr("mantyx_sync.progress_bars.is_installed", lambda name: False)
    assert reporter_named("auto") is None


def test_what_stands_in_a_packages_place_is_not_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tqdm", types.SimpleNamespace(__spec__=None))  # type: ignore[arg-type]
    assert not is_installed("tqdm")


# ------------------------------------------------------------------------------------------- our own line


def drawn(*given: Progress, columns: int = 80, seconds: float = 1.0) -> str:
    """Return what a line writes, so many seconds being between what it is told."""
    stream, clock = Terminal(), itertools.count(0.0, seconds)
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stderr(stream):
        patch.setenv("COLUMNS", str(columns))
        reporter = LineReporter(lambda: next(clock))
        for progress in given:
            reporter(progress)
        reporter.close()
        reporter.close()
    return stream.getvalue()


RUNS = [Progress("runs", 9, 1, 10), Progress("runs", 10, 0, 10)]


def test_a_line_is_written_over_and_ended_once() -> None:
    assert drawn(*RUNS) == "\rruns: 9 of 10, 1 failed\rruns: 10 of 10         \n"


def test_a_line_is_not_written_more_often_than_it_can_be_read_and_ends_with_the_last_state() -> None:
    many = [Progress("runs", done, 0, 100) for done in range(101)]
    written = drawn(*many, seconds=0.01).split("\r")[1:]
    assert len(written) <= 12
    assert (written[0], written[-1]) == ("runs: 0 of 100", "runs: 100 of 100\n")


def test_a_line_is_never_longer_than_the_terminal_is_wide() -> None:
    written = drawn(Progress("servers", 0, 0, 9, "starting " + ", ".join("abcdefgh")), columns=20)
    assert written.split("\r")[1] == "servers: 0 of 9 ..."


def test_the_line_of_servers_makes_way_for_that_of_runs() -> None:
    written = drawn(Progress("servers", 1, 0, 1), *RUNS[1:])
    assert written == "\rservers: 1 of 1\r               \r\rruns: 10 of 10\n"


@pytest.mark.parametrize("stream", [Gone(), None], ids=["nobody reads", "no stream"])
def test_a_line_that_cannot_be_written_breaks_nothing(monkeypatch: pytest.MonkeyPatch, stream: Any) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    found = run_many(range(3), lambda item: item, nothing, max_workers=1, progress=LineReporter())
    assert list(found) == [0, 1, 2]


# ------------------------------------------------------------------------------------------- theirs, played


class FakeBar:
    """As much of tqdm's bar as is used."""

    made: list[FakeBar] = []

    def __init__(self, total: int | None, desc: str, unit: str, leave: bool, miniters: int) -> None:
        self.total, self.desc, self.leave = total, desc, leave
        self.n, self.start_t, self.disable = 0, 5.0, False
        self.steps: list[Any] = []
        self.made.append(self)

    def set_postfix_str(self, text: str, refresh: bool) -> None:
        self.steps.append(text)

    def update(self, n: int) -> bool:
        self.n += n
        return n > 0

    def reset(self, total: int | None) -> None:
        self.n, self.start_t = 0, 9.0
        self.total = total

    def refresh(self) -> None:
        self.steps.append("drawn")

    def close(self) -> None:
        self.steps.append("closed")


def test_a_bar_of_tqdm_is_kept_at_what_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeBar, "made", [])
    monkeypatch.setattr("mantyx_sync.progress_bars._tqdm_class", lambda: FakeBar)
    reporter = TqdmReporter()
    reporter.close()
    for progress in [
        Progress("servers", 0, 0, 1, "starting fs"),
        Progress("servers", 1, 0, 1, "fs is ready"),
        Progress("runs", 0, 0, None),
        Progress("runs", 3, 1, None),
        Progress("runs", 5, 1, 6),
    ]:
        reporter(progress)
    reporter.close()
    reporter.close()
    servers, runs = FakeBar.made
    assert (servers.n, servers.total, servers.desc, servers.leave) == (1, 1, "servers", False)
    assert servers.steps == ["starting fs", "drawn", "fs is ready", "closed"]
    assert (runs.n, runs.total, runs.desc, runs.leave, runs.start_t) == (5, 6, "runs", True, 5.0)
    assert runs.steps == ["1 failed", "closed"]


def test_a_display_of_rich_is_kept_at_what_was_told_and_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[Any] = []

    def display(is_transient: bool) -> Any:
        steps.append("transient" if is_transient else "lasting")
        return types.SimpleNamespace(
            start=lambda: steps.append("started"),
            stop=lambda: steps.append("stopped"),
            add_task=lambda what, **fields: steps.append((what, *fields.values())),
            update=lambda task, **fields: steps.append(tuple(fields.values())),
        )

    monkeypatch.setattr("mantyx_sync.progress_bars._rich_display", display)
    clock = itertools.count(0.0, 0.06)
    reporter = RichReporter(lambda: next(clock))
    reporter(Progress("servers", 0, 0, 1, "starting fs"))
    reporter(Progress("runs", 0, 0, None))
    reporter(Progress("runs", 3, 1, 9))
    reporter(Progress("runs", 4, 1, 9))
    reporter.close()
    reporter.close()
    assert steps == [
        *("transient", "started", ("servers", 0, 1, "starting fs"), "stopped"),
        *("lasting", "started", ("runs", 0, None, ""), (3, 9, "1 failed", False), (4, 9, "1 failed", True), "stopped"),
    ]
