"""Loom tasks done by MANTYX runs, against the stand-in's engine and the embedded server (loom §8)."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any, Iterator

import pytest

from mantyx_sync import LocalTool, MantyxClient, MantyxConfigError, tool
from mantyx_sync.local import LocalServer, ModelRequest, ScriptedModel, ToolUse
from mantyx_sync.loom import (
    LoomClient,
    LoomError,
    LoomTaskLost,
    LoomWorker,
    MantyxExecutor,
    TaskFailed,
    TaskStore,
    run_and_wait,
)

from .loom_double.caller import Caller
from .loom_double.pace import quick  # noqa: F401 - a fixture

pytestmark = pytest.mark.usefixtures("no_leaks")

READY = json.dumps({"outcome": "ready"})


class Recorder(ScriptedModel):
    """Plays one script a run, in turn, and keeps what it was asked."""

    def __init__(self, *scripts: list[list[Any]]) -> None:
        following = iter(scripts)
        super().__init__(lambda _request: next(following))
        self.requests: list[ModelRequest] = []

    def complete(self, request: ModelRequest) -> Iterator[Any]:
        self.requests.append(request)
        return super().complete(request)


class Bench:
    """A service whose tasks a scripted model does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.caller = Caller()
        self.loom = LoomClient(self.caller, entry="/mcp", timeout=5.0)
        self.errors: list[LoomError | None] = []
        self.requests: list[ModelRequest] = []

    def work(self, *scripts: list[list[Any]], loom: str = "release", **options: Any) -> str:
        run = self.loom.run(loom, "x").run
        assert run is not None
        model = Recorder(*scripts)
        self.requests = model.requests
        with LocalServer(model) as server, MantyxClient(**server.client_settings()) as client:
            worker = LoomWorker(
                self.loom,
                MantyxExecutor(client, **options),
                store=TaskStore(self.folder),
                on_done=lambda _task, error: self.errors.append(error),
            )
            assert worker.run_once()
        return self.loom.get_run(run.run_id).status


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_task_is_done_with_its_tools_and_its_files(bench: Bench) -> None:
    status = bench.work(
        [
            [ToolUse("read_asset", {"asset_id": "asset_0"})],
            [ToolUse("save_order", {"ids": [1, 2]})],
            [ToolUse("finish", {"word": "bye"})],
            [READY],
        ]
    )
    assert (status, bench.errors) == ("completed", [None])
    assert bench.caller.effects("save_order") == [{"ids": [1, 2]}]
    assert bench.caller.effects("complete") == [{"outcome": "ready"}]


def test_instructions_skills_and_schema_reach_the_model(bench: Bench) -> None:
    bench.work([[READY]], system_prompt="You are careful.")
    shown = str(vars(bench.requests[0]))
    for words in ("You are careful.", "Propose the order of work.", "Small things first.", "table.csv", "outcome"):
        assert words in shown
    names = {declared.name for declared in bench.requests[0].tools}
    assert {"save_order", "echo", "finish", "read_asset"} <= names


def test_refused_input_is_told_to_the_model_which_corrects_it(bench: Bench) -> None:
    status = bench.work([[ToolUse("save_order", {"ids": "x"})], [ToolUse("save_order", {"ids": [1]})], [READY]])
    assert status == "completed"
    assert bench.caller.effects("save_order") == [{"ids": [1]}]


def test_after_an_end_tool_the_model_is_told_to_give_its_result(bench: Bench) -> None:
    status = bench.work([[ToolUse("finish", {"word": "x"})], [ToolUse("echo", {"word": "late"})], [READY]])
    assert status == "completed"
    assert bench.caller.effects("echo") == []
    assert "give the result now" in str(vars(bench.requests[-1]))


def test_a_result_that_does_not_fit_is_asked_for_once_more(bench: Bench) -> None:
    assert bench.work([["no JSON"]], [[READY]]) == "completed"
    assert bench.caller.effects("complete") == [{"outcome": "ready"}]


def test_what_is_asked_for_once_more_is_the_result_alone_without_tools_and_with_what_was_done(bench: Bench) -> None:
    assert bench.work([[ToolUse("echo", {"word": "once"})], ["no JSON"]], [[READY]]) == "completed"
    assert list(bench.requests[-1].tools) == []
    prompt = bench.requests[-1].prompt
    for words in ("it is not JSON", "no JSON", 'echo({"word": "once"}) -> {"echo": {"word": "once"}}'):
        assert words in prompt


def test_a_task_that_is_taken_up_tells_the_model_what_was_done(bench: Bench) -> None:
    class Died(BaseException):
        pass

    def dies(task: Any) -> Any:
        task.call_tool("echo", {"word": "once"})
        raise Died

    bench.loom.run("release", "x")
    with pytest.raises(Died):
        LoomWorker(bench.loom, dies, store=TaskStore(bench.folder)).run_once()
    with_tools = [[ToolUse("echo", {"word": "once"})], [READY]]
    assert bench.work(with_tools) == "waiting", "the older task comes first"
    assert 'echo({"word": "once"}) -> {"echo": {"word": "once"}}' in bench.requests[0].prompt
    assert bench.caller.effects("echo") == [{"word": "once"}]


def test_what_is_no_object_is_put_into_one_for_the_model(bench: Bench) -> None:
    assert bench.work([[ToolUse("rank_all", {"value": [2, 1]})], [READY]]) == "completed"
    assert bench.caller.effects("rank all") == [[2, 1]]
    declared = next(tool for tool in bench.requests[0].tools if tool.name == "rank_all")
    assert declared.parameters["properties"]["value"]["items"] == {"$ref": "#/definitions/id"}
    assert declared.parameters["definitions"] == {"id": {"type": "integer"}}
    assert bench.work([['{"value": "yes"}']], loom="word") == "completed"
    assert bench.caller.effects("complete")[-1] == "yes"


def test_a_tool_of_the_callers_own_keeps_its_name(bench: Bench) -> None:
    @tool
    def echo(word: str) -> str:
        """Say it here."""
        return f"here: {word}"

    scripts = [[ToolUse("echo", {"word": "a"}), ToolUse("echo_2", {"word": "b"})], [READY]]
    assert bench.work(scripts, tools=[echo]) == "completed"
    assert bench.caller.effects("echo") == [{"word": "b"}]


def test_a_picture_is_shown_and_what_cannot_be_shown_or_read_is_said(bench: Bench) -> None:
    uses = [ToolUse("read_asset", {"asset_id": f"asset_{number}"}) for number in (1, 2)]
    assert bench.work([uses, [READY]]) == "completed"
    said = str(vars(bench.requests[-1]))
    assert "picture.png" in said
    assert "the file cannot be read: the asset is larger than 1 MiB" in said


def test_an_agent_of_the_workspace_may_do_tasks() -> None:
    with MantyxClient(api_key="k", workspace_slug="w", base_url="http://127.0.0.1:1") as client:
        MantyxExecutor(client, agent_id="agent_1")
        MantyxExecutor(client, model_id="m", reasoning_level="low")


def test_a_result_that_never_fits_fails_the_task_and_is_not_submitted(bench: Bench) -> None:
    assert bench.work([['{"outcome": "maybe"}']], [['{"outcome": "perhaps"}']]) == "failed"
    assert bench.caller.effects("complete") == []
    assert isinstance(bench.errors[0], TaskFailed)


def test_events_and_results_are_visible(bench: Bench) -> None:
    events: list[str] = []
    results: list[str] = []
    bench.work(
        [[ToolUse("echo", {"word": "x"})], [READY]],
        on_event=lambda task, event: events.append(event.type),
        on_result=lambda task, result: results.append(result.text),
    )
    assert "local_tool_call" in events
    assert results == [READY]


def test_tools_of_the_callers_own_stand_beside_those_of_the_task(bench: Bench) -> None:
    used: list[str] = []

    @tool
    def look_up(word: str) -> str:
        """Look a word up."""
        used.append(word)
        return "found"

    assert isinstance(look_up, LocalTool)
    assert bench.work([[ToolUse("look_up", {"word": "x"})], [READY]], tools=[look_up]) == "completed"
    assert used == ["x"]


def test_cancelling_the_loom_run_cancels_the_mantyx_run(bench: Bench) -> None:
    def cancel_soon(task: Any, event: Any) -> None:
        if event.type == "local_tool_call":
            cancel.start()

    def cancel_run() -> None:
        bench.loom.cancel_run(bench.loom.list_runs("release")[0].run_id)

    cancel = threading.Thread(target=cancel_run)
    status = bench.work([[ToolUse("long", {"word": "x"})], [READY]], on_event=cancel_soon)
    cancel.join(5)
    lost = bench.errors[0]
    assert isinstance(lost, LoomTaskLost)
    assert (status, lost.reason) == ("failed", "cancelled")


@pytest.mark.parametrize("field", ["prompt", "messages", "output_schema"])
def test_what_the_task_gives_cannot_be_given_to_the_executor(field: str) -> None:
    with MantyxClient(api_key="k", workspace_slug="w", base_url="http://127.0.0.1:1") as client:
        with pytest.raises(MantyxConfigError, match=f"{field}: comes from the task"):
            MantyxExecutor(client, **{field: "x"})
        with pytest.raises(TypeError, match="model_id"):
            MantyxExecutor(client, model_idd="x")


def test_a_workflow_of_three_tasks_with_questions_between_them(bench: Bench) -> None:
    plan = [[ToolUse("echo", {"word": "plan"})], [READY]]
    check = [[ToolUse("finish", {"word": "ok"})], [READY]]
    with LocalServer(Recorder(plan, [[READY]], check)) as server, MantyxClient(**server.client_settings()) as client:
        worker = LoomWorker(bench.loom, MantyxExecutor(client), store=TaskStore(bench.folder))
        thread = threading.Thread(target=worker.run_forever)
        thread.start()
        try:
            run = run_and_wait(
                bench.loom,
                "three",
                "2.4",
                on_action=lambda run, action: {"when": "Monday", "note": "no"} if action.questions else True,
                timeout=30,
            )
        finally:
            worker.stop()
            thread.join(10)
    assert run.status == "completed"
    assert len(bench.caller.effects("complete")) == 3
    artifact = bench.loom.get_artifact(loom_name="three", stage_name="publish")
    assert artifact is not None
    assert artifact.data == {"published": True}
