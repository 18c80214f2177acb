"""Tool calls of a run, end to end: whatever a handler does, the model gets one answer and the run goes on."""

from __future__ import annotations

import contextvars
import datetime
import json
import logging
import math
import sys
import threading
import types
from typing import Any, Callable, Dict, List, Optional

import pytest

from mantyx_sync import (
    LocalTool,
    MantyxClient,
    MantyxConfigError,
    MantyxRunCancelled,
    RunResult,
    ToolContext,
    ToolError,
    ToolResult,
    ToolResultFile,
    define_local_tool,
    tool,
)
from mantyx_sync.events import LocalToolCall
from mantyx_sync.limits import MAX_TOOL_ERROR_BYTES, MAX_TOOL_RESULT_BYTES
from mantyx_sync.local import LocalServer, ModelRequest, ScriptedModel, ToolUse
from mantyx_sync.tools.calls import Delivery, RunToolCalls
from mantyx_sync.tools.deadlines import Deadlines
from mantyx_sync.tools.executor import ToolExecutor
from mantyx_sync.tools.registry import Registry
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("no_leaks")

DEADLINE_S = 10.0
SECRET = "hunter2-secret"


class Stage:
    """An embedded server whose model plays a script, and a client of it."""

    def __init__(self, *turns: Any, **settings: Any) -> None:
        self.heard: list[ModelRequest] = []
        script = ScriptedModel(self._choose)
        self._turns = turns
        self.server = LocalServer(script)
        self._settings = settings

    def _choose(self, request: ModelRequest) -> list[Any]:
        def last(request: ModelRequest) -> str:
            self.heard.append(request)
            return "Done."

        turns = self._turns[0](request) if len(self._turns) == 1 and callable(self._turns[0]) else self._turns
        return [*turns, last]

    def __enter__(self) -> Stage:
        self.server.start()
        self.client = MantyxClient(**self.server.client_settings(), **self._settings)
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self.server.stop()

    def run(self, *tools: Any, timeout: float = 30.0) -> RunResult:
        return self.client.run_agent(system_prompt="x", prompt="y", tools=tools, timeout=timeout)

    def answers(self) -> list[dict[str, Any]]:
        """What was posted, in the order of the calls."""
        posted = [json.loads(r.body) for r in self.server.requests if r.route == "tool_results"]
        return sorted(posted, key=lambda body: str(body["toolUseId"]))

    def answer(self) -> dict[str, Any]:
        (only,) = self.answers()
        return only

    def told(self) -> list[Any]:
        """What the model heard of its tools."""
        return [message for message in self.heard[-1].messages if message["role"] == "tool"]


def once(name: str = "act", **args: Any) -> list[Any]:
    return [ToolUse(name, args)]


def answer_of(handler: Callable[..., Any], **args: Any) -> dict[str, Any]:
    """Run an agent that calls `handler` once; return the body that was posted. The run must succeed."""
    local = handler if isinstance(handler, LocalTool) else define_local_tool(name="act", execute=handler)
    with Stage(once(**args)) as stage:
        assert stage.run(local).text == "Done."
        return stage.answer()


# --------------------------------------------------------------------------- handlers that fail


def overflow(args: object) -> object:
    return overflow(args)


def raising(error: BaseException) -> Callable[[object], object]:
    def handler(args: object) -> object:
        raise error

    return handler


@pytest.mark.parametrize(
    ("handler", "kind"),
    [
        (raising(ValueError(f"cannot reach postgres://me:{SECRET}@db")), "ValueError"),
        (raising(KeyError(SECRET)), "KeyError"),
        (raising(BaseException(SECRET)), "BaseException"),
        (raising(MemoryError(SECRET)), "MemoryError"),
        (raising(TimeoutError(SECRET)), "TimeoutError"),
        (raising(StopIteration(SECRET)), "StopIteration"),
        (raising(MantyxConfigError(SECRET)), "MantyxConfigError"),
        (overflow, "RecursionError"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_exception_becomes_a_short_error_without_its_text(
    handler: Callable[..., Any], kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "mantyx_sync"):
        answer = answer_of(handler)
    assert answer["error"] == f"act failed with {kind}"
    assert "result" not in answer
    # logged here, with its traceback
    assert any(record.exc_info and record.exc_info[0].__name__ == kind for record in caplog.records)  # type: ignore[union-attr]


@pytest.mark.parametrize("error", [SystemExit(3), SystemExit(SECRET), KeyboardInterrupt(), GeneratorExit()])
def test_a_handler_cannot_end_the_process(error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "mantyx_sync"):
        assert answer_of(raising(error))["error"] == "act failed"
    assert type(error).__name__ in caplog.text


def test_a_tool_error_is_told_in_the_handlers_own_words() -> None:
    assert answer_of(raising(ToolError("There is no order 17; try 18.")))["error"] == "There is no order 17; try 18."


def test_a_long_tool_error_is_cut_to_what_the_server_takes() -> None:
    error = answer_of(raising(ToolError("é" * 100_000)))["error"]
    assert len(error.encode()) <= MAX_TOOL_ERROR_BYTES
    assert error.startswith("éé")
    assert error.endswith("…")


@pytest.mark.parametrize("text", ["", "   "])
def test_a_tool_error_without_a_text_still_says_something(text: str) -> None:
    assert answer_of(raising(ToolError(text)))["error"].strip()


class Mute(ToolError):
    def __str__(self) -> str:
        raise RuntimeError(SECRET)


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError(SECRET)


@pytest.mark.parametrize("error", [Mute("x"), Unspeakable()])
def test_an_error_that_has_no_text_is_still_answered(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    answer = answer_of(raising(error))
    assert "act failed" in answer["error"]
    assert SECRET not in answer["error"]


def test_a_log_filter_that_raises_does_not_cost_the_run_its_answer() -> None:
    def refuse(record: logging.LogRecord) -> bool:
        raise RuntimeError("broken filter")

    logger = logging.getLogger("mantyx_sync.tools.calls")
    logger.addFilter(refuse)
    try:
        assert answer_of(raising(ValueError("x")))["error"] == "act failed"
    finally:
        logger.removeFilter(refuse)


# --------------------------------------------------------------------------- results


class Opaque:
    pass


def looped() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize("value", [Opaque(), looped(), {"x": Opaque()}, Opaque], ids=["object", "loop", "in", "class"])
def test_a_result_that_has_no_json_form_is_an_error_naming_tool_and_type(value: object) -> None:
    error = answer_of(lambda args: value)["error"]
    assert "act" in error
    assert "0x" not in error  # no address of an object


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is", "as it is"),
        ({"a": 1, "when": datetime.date(2026, 1, 2)}, '{"a":1,"when":"2026-01-02"}'),
        ([1, 2.5, None, True], "[1,2.5,null,true]"),
        ("\ud800 half", "\ufffd half"),
        ("nul \0 inside", "nul \0 inside"),
    ],
)
def test_results_arrive_as_text(value: object, text: str) -> None:
    result = answer_of(lambda args: value)["result"]
    assert result.replace(" ", "") == text.replace(" ", "")


def test_nothing_is_a_result_too() -> None:
    assert isinstance(answer_of(lambda args: None)["result"], str)


@pytest.mark.parametrize(
    ("size", "fits"), [(MAX_TOOL_RESULT_BYTES, True), (MAX_TOOL_RESULT_BYTES + 1, False), (20_000_000, False)]
)
def test_a_result_beyond_the_limit_is_an_error_the_model_can_act_on(size: int, fits: bool) -> None:
    with Stage(once()) as stage:
        stage.run(define_local_tool(name="act", execute=lambda args: "x" * size))
        if fits:
            assert len(stage.told()[0]["content"]) == size
            return
        answer = stage.answer()
    assert str(size) in answer["error"]
    assert str(MAX_TOOL_RESULT_BYTES) in answer["error"]
    assert "Ask for less" in answer["error"]


def test_the_limit_counts_bytes_not_characters() -> None:
    assert "error" in answer_of(lambda args: "é" * (MAX_TOOL_RESULT_BYTES // 2 + 1))


def test_files_of_a_result_are_posted_and_told_to_the_model() -> None:
    chart = ToolResultFile.from_bytes(b"\x89PNG", "chart.png", "image/png")
    local = define_local_tool(name="act", execute=lambda args: ToolResult("see the chart", files=[chart]))
    with Stage(once()) as stage:
        stage.run(local)
        answer = stage.answer()
        assert answer["result"] == "see the chart"
        assert [(f["filename"], f["mimeType"]) for f in answer["files"]] == [("chart.png", "image/png")]
        assert stage.told()[0]["files"]


@pytest.mark.parametrize(
    "files",
    [
        [ToolResultFile.from_bytes(b"x", f"{n}.txt", "text/plain") for n in range(21)],
        [ToolResultFile("big.txt", "text/plain", "A" * 7_000_000)],
        [ToolResultFile("x.bin", "application/x-executable", "AAAA")],
        ["not a file"],
    ],
    ids=["too many", "too large", "type", "no file"],
)
def test_files_that_are_not_allowed_are_an_error(files: list[Any]) -> None:
    answer = answer_of(lambda args: ToolResult("x", files=files))
    assert answer["error"]
    assert "files" not in answer


# --------------------------------------------------------------------------- arguments


def test_one_bad_call_does_not_spoil_the_batch(caplog: pytest.LogCaptureFixture) -> None:
    runs: list[int] = []

    @tool(read_only=True)
    def good(n: int) -> int:
        runs.append(n)
        return n

    def duplicate(request: ModelRequest) -> object:
        return [ToolUse("good", {"n": 1}, id="tu_3")]

    with Stage([ToolUse("good", {"n": 1}, id="tu_1"), ToolUse("good", {"n": "x"}, id="tu_2")], duplicate) as stage:
        assert stage.run(good).text == "Done."
        told = stage.told()
    assert [message["isError"] for message in told] == [False, True, False]
    assert runs == [1, 1]


def test_a_call_of_a_tool_that_is_not_here_is_answered_with_those_that_are(caplog: pytest.LogCaptureFixture) -> None:
    with Stage(once("elsewhere")) as stage:
        known = define_local_tool(name="act", execute=lambda args: "ok")
        other = {"kind": "local", "name": "elsewhere", "parameters": {"type": "object"}}
        assert stage.run(known, other).text == "Done."
        assert stage.answer()["error"] == "no tool named 'elsewhere' is offered here; there are: act"


def calls_of(executor: ToolExecutor, *tools: LocalTool) -> RunToolCalls:
    return RunToolCalls("run_1", Registry(tools), executor, Deadlines(), lambda *_: Delivery.ACCEPTED)


def test_open_calls_are_given_up_one_by_one_until_the_server_is_not_to_be_had() -> None:
    begun, release = threading.Semaphore(0), threading.Event()

    @tool
    def work() -> str:
        begun.release()
        release.wait(DEADLINE_S)
        return "late"

    executor, posted = ToolExecutor(4), []

    def post(body: Any) -> bool:
        posted.append(body["toolUseId"])
        return len(posted) < 2

    calls = calls_of(executor, work)
    for key in "abcd":
        calls.start(LocalToolCall(1, "local_tool_call", {}, {}, key, "work"))
        assert begun.acquire(timeout=DEADLINE_S)
    calls.answered("a")  # by another process, while the handler is at work
    calls.surrender(post)
    assert posted == ["b", "c"]
    assert calls.undelivered == ("c", "d")
    assert not calls.is_busy
    assert calls.times["a"].answered is None, "its handler has not ended"
    release.set()
    executor.close()


# --------------------------------------------------------------------------- time and places


@pytest.mark.parametrize("timeout", [math.inf, 1e300, 10**400], ids=["infinite", "huge", "beyond a float"])
def test_a_time_out_without_end_is_none(timeout: float) -> None:
    @tool(timeout=timeout)
    def quick() -> str:
        return "quick"

    with Stage(once("quick")) as stage:
        assert stage.run(quick).text == "Done."
        assert stage.answer()["result"] == "quick"


def test_a_time_out_that_is_no_number_is_refused() -> None:
    with pytest.raises(MantyxConfigError, match="timeout must be a number of seconds above 0, got nan"):
        tool(name="x", timeout=math.nan)(lambda: "x")


def test_a_handler_beyond_its_time_out_is_answered_for_and_told_to_stop(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[ToolContext] = []
    ended = threading.Event()

    @tool(timeout=0.1)
    def slow(context: ToolContext) -> str:
        seen.append(context)
        assert context.cancelled.wait(DEADLINE_S)
        ended.set()
        return "too late"

    with Stage(once("slow")) as stage:
        assert stage.run(slow).text == "Done."
        assert stage.answer()["error"] == "slow did not finish within 0.1 seconds"
        assert ended.wait(DEADLINE_S)
        assert seen[0].deadline is not None
        wait_until(lambda: len(stage.answers()) == 1, "one answer")
    assert "its thread is left to itself" in caplog.text


def test_stuck_handlers_do_not_eat_the_pool() -> None:
    release, ended = threading.Event(), threading.Semaphore(0)

    @tool(timeout=0.05, read_only=True)
    def stuck(n: int) -> str:
        release.wait(DEADLINE_S)
        ended.release()
        return "too late"

    @tool
    def quick() -> str:
        return "quick"

    calls = [ToolUse("stuck", {"n": n}) for n in range(5)]
    with Stage(calls, once("quick"), max_tool_workers=2) as stage:
        try:
            assert stage.run(stuck, quick).text == "Done."
            errors = [answer.get("error", "") for answer in stage.answers()]
            assert sum("did not finish" in error for error in errors) == 5
            assert [answer["result"] for answer in stage.answers() if "result" in answer] == ["quick"]
        finally:
            release.set()
            for _ in range(5):
                assert ended.acquire(timeout=DEADLINE_S)


def test_a_tools_own_limit_holds_over_all_runs_of_a_client() -> None:
    lock, state = threading.Lock(), {"now": 0, "most": 0, "other": 0}
    barrier = threading.Barrier(2)

    @tool(max_concurrency=2, read_only=True)
    def narrow(n: int) -> int:
        with lock:
            state["now"] += 1
            state["most"] = max(state["most"], state["now"])
        barrier.wait(DEADLINE_S)  # two at once are needed to go on
        with lock:
            state["now"] -= 1
        return n

    with Stage([ToolUse("narrow", {"n": n}) for n in range(4)]) as stage:
        runs = [stage.client.start_agent(system_prompt="x", prompt="y", tools=[narrow]) for _ in range(3)]
        for run in runs:
            assert run.result(30).text == "Done."
            run.close()
    assert state["most"] == 2


def test_sixty_four_calls_run_at_once() -> None:
    barrier = threading.Barrier(64)

    @tool(read_only=True)
    def meet(n: int) -> int:
        barrier.wait(DEADLINE_S)
        return n

    with Stage([ToolUse("meet", {"n": n}) for n in range(64)]) as stage:
        assert stage.run(meet).text == "Done."
        assert sorted(int(answer["result"]) for answer in stage.answers()) == list(range(64))


@pytest.mark.parametrize("workers", [1, 2])
def test_runs_inside_handlers_do_not_starve(workers: int) -> None:
    def turns(request: ModelRequest) -> list[Any]:
        depth = int(request.prompt)
        return [[ToolUse("deeper", {"depth": depth, "n": n}) for n in range(2)]] if depth else []

    with Stage(turns, max_tool_workers=workers) as stage:

        @tool(read_only=True)
        def deeper(depth: int, n: int) -> str:
            return stage.client.run_agent(
                system_prompt="x", prompt=str(depth - 1), tools=[deeper] if depth > 1 else [], timeout=20
            ).text

        result = stage.client.run_agent(system_prompt="x", prompt="3", tools=[deeper], timeout=20)
        assert result.text == "Done."
        assert len(stage.answers()) == 2 + 4 + 8


# --------------------------------------------------------------------------- context


def test_each_call_sees_the_context_variables_of_its_caller() -> None:
    tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")
    barrier = threading.Barrier(4)

    @tool(read_only=True)
    def who(n: int) -> str:
        barrier.wait(DEADLINE_S)  # two runs with two calls each, all at once
        seen = tenant.get()
        tenant.set("changed by a handler")
        return seen

    seen: dict[str, list[str]] = {}
    with Stage([ToolUse("who", {"n": 1}), ToolUse("who", {"n": 2})]) as stage:

        def use(name: str) -> None:
            tenant.set(name)
            result = stage.run(who)
            seen[name] = [
                json.loads(r.body)["result"]
                for r in stage.server.requests
                if r.route == "tool_results" and result.run_id in r.target
            ]
            seen[name].append(tenant.get())

        threads = [threading.Thread(target=use, args=(name,)) for name in ("a", "b")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_S)
    assert seen == {"a": ["a", "a", "a"], "b": ["b", "b", "b"]}


def test_a_handler_may_ask_about_its_call() -> None:
    seen: list[ToolContext] = []

    @tool
    def act(context: ToolContext) -> str:
        seen.append(context)
        return "ok"

    with Stage([ToolUse("act", {}, id="tu_mine")]) as stage:
        result = stage.run(act)
    (context,) = seen
    assert (context.run_id, context.tool_use_id, context.name) == (result.run_id, "tu_mine", "act")
    assert context.deadline is None


Ending = Callable[[Any, MantyxClient], None]


@pytest.mark.parametrize(
    ("end", "answers"),
    [
        (lambda run, client: run.close(), []),
        (lambda run, client: client.close(), []),
        (lambda run, client: run.abort(), ["the run was given up"]),
        (lambda run, client: run.__exit__(None, None, None), ["the run was given up"]),
    ],
    ids=["close", "client.close", "abort", "with"],
)
def test_a_handler_hears_that_its_answer_is_not_wanted_any_more(end: Ending, answers: list[str]) -> None:
    started, heard = threading.Event(), threading.Event()

    @tool
    def wait(context: ToolContext) -> str:
        started.set()
        assert context.cancelled.wait(DEADLINE_S)
        heard.set()
        with pytest.raises(ToolError, match="cancelled"):
            context.raise_if_cancelled()
        return "nobody reads this"

    with Stage(once("wait")) as stage:
        run = stage.client.start_agent(system_prompt="x", prompt="y", tools=[wait])
        assert started.wait(DEADLINE_S)
        end(run, stage.client)
        assert heard.wait(DEADLINE_S)
        run.close()
        assert [answer.get("error") for answer in stage.answers()] == answers


def test_a_handler_of_a_cancelled_run_hears_of_it_and_its_answer_still_ends_the_run() -> None:
    # The server ends a cancelled run between two turns: it waits for the calls of this one.
    started = threading.Event()

    @tool
    def wait(context: ToolContext) -> str:
        started.set()
        assert context.cancelled.wait(DEADLINE_S)
        return "stopped"

    for cancel in (lambda run, client: run.cancel(), lambda run, client: client.cancel_run(run.run_id)):
        started.clear()
        with Stage(once("wait")) as stage:
            run = stage.client.start_agent(system_prompt="x", prompt="y", tools=[wait])
            assert started.wait(DEADLINE_S)
            cancel(run, stage.client)  # type: ignore[no-untyped-call]
            with pytest.raises(MantyxRunCancelled):
                run.result(DEADLINE_S)
            run.close()
            assert stage.answer()["result"] == "stopped"


def test_a_handler_that_starts_after_the_cancel_is_told_at_once() -> None:
    started, waited = threading.Event(), []

    @tool(read_only=True)
    def wait(context: ToolContext) -> str:
        waited.append(context.cancelled.is_set())
        started.set()
        assert context.cancelled.wait(DEADLINE_S)
        return "stopped"

    with Stage([ToolUse("wait", {}), ToolUse("wait", {})], max_tool_workers=1) as stage:
        run = stage.client.start_agent(system_prompt="x", prompt="y", tools=[wait])
        assert started.wait(DEADLINE_S)
        run.cancel()
        with pytest.raises(MantyxRunCancelled):
            run.result(DEADLINE_S)
        run.close()
    assert waited == [False, True]


def test_giving_up_a_run_that_has_ended_asks_the_server_for_nothing() -> None:
    with Stage() as stage:
        run = stage.client.start_agent(system_prompt="x", prompt="y")
        run.result(DEADLINE_S)
        run.abort()
        assert [r.route for r in stage.server.requests if r.route == "cancel"] == []


def test_a_handler_hears_that_the_time_of_its_run_is_over() -> None:
    heard = threading.Event()

    @tool
    def wait(context: ToolContext) -> str:
        assert context.cancelled.wait(DEADLINE_S)
        heard.set()
        return ""

    with Stage(once("wait")) as stage:
        with pytest.raises(TimeoutError):
            stage.run(wait, timeout=0.3)
        assert heard.wait(DEADLINE_S)


# --------------------------------------------------------------------------- Django


@pytest.fixture
def django_db(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    module = types.ModuleType("django.db")
    module.threads = []  # type: ignore[attr-defined]

    def close_old_connections() -> None:
        module.threads.append(threading.current_thread().name)  # type: ignore[attr-defined]

    module.close_old_connections = close_old_connections  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "django", types.ModuleType("django"))
    monkeypatch.setitem(sys.modules, "django.db", module)
    return module


@pytest.mark.parametrize("fails", [False, True])
def test_djangos_connections_are_closed_around_a_call_in_its_thread(django_db: types.ModuleType, fails: bool) -> None:
    during: list[tuple[int, str]] = []

    def handler(args: object) -> str:
        during.append((len(django_db.threads), threading.current_thread().name))
        if fails:
            raise SystemExit
        return "ok"

    answer_of(handler)
    ((before, name),) = during
    assert before == 1
    assert django_db.threads == [name, name]


def test_django_without_a_configured_database_is_no_obstacle(django_db: types.ModuleType) -> None:
    def refuse() -> None:
        raise RuntimeError("settings are not configured")

    django_db.close_old_connections = refuse  # type: ignore[attr-defined]
    assert answer_of(lambda args: "ok")["result"] == "ok"


# --------------------------------------------------------------------------- callbacks and threads


def test_callbacks_run_on_the_callers_thread_and_handlers_on_others() -> None:
    callbacks: set[threading.Thread] = set()
    handlers: set[threading.Thread] = set()

    @tool
    def act() -> str:
        handlers.add(threading.current_thread())
        return "ok"

    with Stage(once()) as stage:
        stage.client.run_agent(
            system_prompt="x",
            prompt="y",
            tools=[act],
            on_event=lambda event: callbacks.add(threading.current_thread()),
            on_assistant_delta=lambda text: callbacks.add(threading.current_thread()),
        )
    assert callbacks == {threading.current_thread()}
    assert handlers
    assert all(thread.name.startswith("mantyx-tool") for thread in handlers)


def test_a_handler_starts_when_its_event_arrives_although_nobody_reads() -> None:
    started = threading.Event()

    @tool
    def act() -> str:
        started.set()
        return "ok"

    with Stage(once()) as stage:
        with stage.client.stream_agent(system_prompt="x", prompt="y", tools=[act]) as run:
            assert started.wait(DEADLINE_S)
            wait_until(lambda: run.is_done, "the run should end although nobody loops")
            assert [event.type for event in run][-1] == "result"
        assert len(stage.answers()) == 1


def test_a_method_and_a_partial_and_a_class_with_call_are_handlers_too() -> None:
    import functools

    class Desk:
        def __call__(self, args: Dict[str, Any]) -> str:
            return "called"

    def add(extra: int, args: Dict[str, Any]) -> int:
        return extra + 1

    assert answer_of(Desk())["result"] == "called"
    assert answer_of(functools.partial(add, 41))["result"] == "42"


def test_arguments_arrive_as_their_types() -> None:
    seen: List[Any] = []

    @tool
    def act(when: datetime.datetime, tags: Optional[List[str]] = None) -> str:
        seen.append((when, tags))
        return "ok"

    assert answer_of(act, when="2026-03-01T10:00:00Z")["result"] == "ok"
    assert seen[0][0].tzinfo is not None
    assert seen[0][1] is None
