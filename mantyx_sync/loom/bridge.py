"""A Loom task done by a MANTYX run: instructions become the prompt, declared tools and assets local tools."""

from __future__ import annotations

import json
import logging
import mimetypes
import re
from typing import TYPE_CHECKING, Any, Callable, Mapping, NamedTuple

from ..checks import callbacks
from ..errors import MantyxConfigError, MantyxParseError, MantyxRunError, ToolError
from ..limits import is_attachment_type
from ..output import parse_run_output
from ..spec import build_spec
from ..tools.function import define_local_tool
from ..tools.results import ToolResult, ToolResultFile
from .errors import LoomRequestError, LoomTaskClosed, LoomTaskLost
from .worker import TaskFailed

if TYPE_CHECKING:
    from ..client import MantyxClient
    from ..events import RunEvent
    from ..results import RunResult
    from .task import LoomTask
    from .tasks import TaskTool

__all__ = ["MantyxExecutor"]

log = logging.getLogger(__name__)

SYSTEM_PROMPT = (
    "You do a task of a workflow. Follow its instructions with the tools you have, do nothing beyond them, and then "
    "give the result."
)
_ASSET_TOOL = "read_asset"
_WRAPPED = "value"
"""The one property of the object that stands for what is no object: models take and give objects."""


class MantyxExecutor:
    """Does Loom tasks with MANTYX runs; give it to a `LoomWorker`.

    Instructions and skills become the prompt; each declared tool becomes a local tool, and so do the assets of
    skills (`read_asset`); the task's output schema becomes the run's. After an end tool, or 256 calls, the tools answer
    the model that it is to give its result. A result that does not fit is asked for once more, without tools, with what
    was wrong with it and what was done. When the Loom run is cancelled, the MANTYX run is as well.

    A task that is taken up after a crash begins with a new run, which is told of the calls that were made. One that it
    makes again with the same input is answered with what was kept.
    """

    def __init__(
        self,
        client: MantyxClient,
        *,
        on_event: Callable[[LoomTask, RunEvent], None] | None = None,
        on_result: Callable[[LoomTask, RunResult], None] | None = None,
        timeout: float | None = None,
        **spec: Any,
    ) -> None:
        """Take a client and the fields that every run has.

        Args:
            on_event: Called with the events of the runs.
            on_result: Called with the result of each run.
            timeout: Seconds that one run may take.
            spec: As `MantyxClient.run_agent`: `model_id`, `reasoning_level`, guards, more `tools`; what the task gives
                (`prompt`, `output_schema`) is not among them. Without `agent_id` or `system_prompt` there is a short
                one.

        Raises:
            MantyxConfigError: A field is not allowed.
            TypeError: A field is unknown.
        """
        callbacks(on_event=on_event, on_result=on_result)
        for name in ("prompt", "messages", "output_schema", "plan"):
            if name in spec:
                raise MantyxConfigError(f"{name}: comes from the task, cannot be given to MantyxExecutor")
        if spec.get("agent_id") is None and spec.get("system_prompt") is None:
            spec["system_prompt"] = SYSTEM_PROMPT
        build_spec({**spec, "prompt": "-"}, purpose="run")
        self._client = client
        self._tools = list(spec.pop("tools", None) or ())
        self._spec = spec
        self._on_event = on_event
        self._on_result = on_result
        self._timeout = timeout

    def __call__(self, task: LoomTask) -> Any:
        """Do a task; returns its result. Blocks.

        Raises:
            TaskFailed: The run did not succeed, or gave no result that fits.
            LoomTaskLost: The task was lost meanwhile.
        """
        names = _Names(self._tools)
        asset_tool = names.give(_ASSET_TOOL)
        about = _about(task, asset_tool)
        wanted = None if task.output_schema is None else _as_object(task.output_schema)
        tools = [*self._tools, *(_tool(task, tool, names) for tool in task.tools), *_asset_tools(task, asset_tool)]
        result = self._run(task, tools, [about, *_made(task)], wanted)
        output, problem = _output_of(task, result, wanted)
        if problem:
            log.info("task %s: the result of run %s does not fit: %s", task.call_id, result.run_id, problem)
            again = (
                "The work is done; only its result is wanted, in the right form. What was given as the result could "
                f"not be used: {problem}\nIt was:\n{result.text}"
            )
            result = self._run(task, [], [about, *_made(task), again], wanted)
            output, problem = _output_of(task, result, wanted)
        if problem:
            raise TaskFailed(f"the model's result does not fit the task's output schema: {problem}")
        return output

    def _run(self, task: LoomTask, tools: list[Any], prompt: list[str], wanted: _AsObject | None) -> RunResult:
        fields: dict[str, Any] = {**self._spec, "tools": tools, "prompt": "\n\n".join(prompt)}
        if wanted is not None:
            fields["output_schema"] = {"schema": wanted.schema, "name": "task_result"}
        task.raise_if_lost()
        with self._client.stream_agent(timeout=self._timeout, **fields) as run:
            take_back = task.cancelled.add(run.abort)  # blocks less than a second; the thread is the worker's own
            try:
                for event in run:
                    if self._on_event is not None:
                        self._on_event(task, event)
                result = run.result()
            except MantyxRunError as error:
                task.raise_if_lost()
                raise TaskFailed(f"the agent run failed ({error.subtype})") from error
            except Exception:
                task.raise_if_lost()
                raise
            finally:
                take_back()
        if self._on_result is not None:
            self._on_result(task, result)
        return result


def _about(task: LoomTask, asset_tool: str) -> str:
    parts = [task.instructions]
    for skill in task.skills:
        parts += [f"# Skill: {skill.name}", skill.description, skill.content]
        if skill.assets:
            listed = "\n".join(f"- {asset.id}: {asset.name}" for asset in skill.assets)
            parts.append(f"Files of this skill, to be read with the tool {asset_tool} by their id:\n{listed}")
    return "\n\n".join(part for part in parts if part.strip()) or "Do the task."


def _made(task: LoomTask) -> list[str]:
    made = [f"- {call.tool_id}({_json(call.input)}) -> {_json(call.output)}" for call in task.made_calls]
    return ["\n".join(["These calls were made already, and their effects stand:", *made])] if made else []


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


# ------------------------------------------------------------------------------------------- tools


class _Names:
    """Names that models accept, another one for each tool."""

    def __init__(self, tools: list[Any]) -> None:
        self._taken = {getattr(tool, "name", None) for tool in tools}

    def give(self, tool_id: str) -> str:
        """Return a name for a tool."""
        base = re.sub(r"[^A-Za-z0-9_]", "_", tool_id)[:64] or "tool"
        found, count = base, 2
        while found in self._taken:
            ending = f"_{count}"
            found, count = base[: 64 - len(ending)] + ending, count + 1
        self._taken.add(found)
        return found


def _tool(task: LoomTask, tool: TaskTool, names: _Names) -> Any:
    form = _as_object(tool.input_schema or {})

    def execute(arguments: Any) -> Any:
        try:
            return task.call_tool(tool.id, form.unwrapped(arguments))
        except LoomTaskClosed as error:
            raise ToolError("the task takes no more tool calls; give the result now") from error
        except LoomTaskLost as error:
            raise ToolError("the task is not available any more") from error
        except LoomRequestError as error:
            raise ToolError(f"the call was refused: {error.server_message}") from error

    return define_local_tool(
        name=names.give(tool.id),
        description=tool.description,
        parameters=form.schema,
        execute=execute,
        max_concurrency=1,
    )


def _asset_tools(task: LoomTask, name: str) -> list[Any]:
    names = {asset.id: asset.name for skill in task.skills for asset in skill.assets}

    def execute(arguments: Any) -> Any:
        asset_id = arguments["asset_id"]
        try:
            content = task.read_asset(asset_id)
        except LoomTaskLost as error:
            raise ToolError("the task is not available any more") from error
        except LoomRequestError as error:
            raise ToolError(f"the file cannot be read: {error.server_message}") from error
        if content.text is not None:
            return content.text
        file_name = names[asset_id] or asset_id
        mime_type = mimetypes.guess_type(file_name)[0]
        if mime_type is None or not is_attachment_type(mime_type):
            return f"{file_name}: {len(content.data)} bytes of a kind that cannot be shown"
        return ToolResult(file_name, [ToolResultFile.from_bytes(content.data, file_name, mime_type)])

    schema = {
        "type": "object",
        "properties": {"asset_id": {"type": "string", "enum": sorted(names)}},
        "required": ["asset_id"],
        "additionalProperties": False,
    }
    what = "Read a file of a skill."
    return [define_local_tool(name=name, description=what, parameters=schema, execute=execute)] if names else []


# ------------------------------------------------------------------------------------------- schemas


class _AsObject(NamedTuple):
    """A JSON Schema of an object, which is the value itself or holds it."""

    schema: dict[str, Any]
    is_wrapped: bool

    def unwrapped(self, value: Any) -> Any:
        """Return the value that an object of this schema stands for."""
        return value[_WRAPPED] if self.is_wrapped else value


def _as_object(schema: Mapping[str, Any]) -> _AsObject:
    """Return a schema as models take it: of an object, so that any other is put into one."""
    others = {"$ref", "allOf", "anyOf", "const", "enum", "if", "not", "oneOf"}
    if schema.get("type", "object") == "object" and ("type" in schema or not others & schema.keys()):
        return _AsObject({"type": "object", **schema}, False)
    inner = dict(schema)
    about = ("$schema", "$defs", "definitions")  # what a `$ref` names stays where it is
    outer: dict[str, Any] = {key: inner.pop(key) for key in about if key in inner}
    body = {"type": "object", "properties": {_WRAPPED: inner}, "required": [_WRAPPED], "additionalProperties": False}
    return _AsObject({**outer, **body}, True)


def _output_of(task: LoomTask, result: RunResult, wanted: _AsObject | None) -> tuple[Any, str]:
    """Return what the model gave as result, and what is wrong with it."""
    try:
        output = parse_run_output(result)
    except MantyxParseError:
        return (result.text, "") if wanted is None else (None, "it is not JSON")
    if wanted is not None and wanted.is_wrapped:
        if not isinstance(output, dict) or _WRAPPED not in output:
            return None, f"it is not an object with {_WRAPPED!r}"
        output = wanted.unwrapped(output)
    return output, task.check_result(output) or ""
