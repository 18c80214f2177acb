"""Scripts that stand in files: what a model says, in JSON or in Python."""

from __future__ import annotations

import json
import os
import runpy
import traceback
from typing import Any, Mapping, Sequence, Union

from mantyx_sync.local.model import (
    Failure,
    Model,
    ScriptedModel,
    ScriptPart,
    ScriptTurn,
    Text,
    Thinking,
    ToolUse,
    TurnEnd,
    Usage,
)
from mantyx_sync.local.scripts import RunScripts, check_turns

__all__ = ["model_of_file", "script_of_json"]

_KINDS = "a text, or an object with text, thinking, tool, failure or finish"
_USAGE = ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens")
_FAILURE_KINDS = {
    "message": str,
    "error_class": str,
    "code": str,
    "finish_reason": str,
    "retryable": bool,
    "api_status": int,
    "api_code": str,
}
_FAILURE = tuple(_FAILURE_KINDS)
_KIND_NAMES = {str: "a text", bool: "true or false", int: "a number"}


def model_of_file(path: Union[str, os.PathLike[str]]) -> Model:
    """Return the model that a file describes.

    JSON: a list of turns that every run plays, a turn being a part or a list of parts; or `{"runs": […]}`, each with
    `turns`, and perhaps `prompt` (what the run's prompt has to contain) and `times` (how many runs play it). A part is
    a text, `{"thinking": …}`, `{"tool": name, "args": {…}}`, `{"failure": message}` or
    `{"finish": reason, "usage": {"input_tokens": …}}`.

    Python: a file that sets `script` to a list of turns, to a function of the first request, or to a model.

    Raises:
        ValueError: It cannot be read, or is no script; a sentence says where.
    """
    name = os.fspath(path)
    if not os.path.isfile(name):
        raise ValueError(f"there is no script {name!r}")
    if name.endswith(".py"):
        return _model_of_python(name)
    try:
        with open(name, encoding="utf-8-sig") as file:
            content = json.load(file)
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"the script {name!r} cannot be read as JSON: {error}") from None
    try:
        return script_of_json(content)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _model_of_python(name: str) -> Model:
    try:
        script: Any = runpy.run_path(name).get("script")
    except (Exception, SystemExit) as error:
        raise ValueError(f"the script {name!r} failed{_line_of(name, error)} with {_said(error)}") from None
    if hasattr(script, "complete"):
        model: Model = script
        return model
    if callable(script):
        function: Any = script  # what it returns is looked at when it does
        return ScriptedModel(function)
    if isinstance(script, Sequence) and not isinstance(script, str):
        try:
            check_turns(script)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        return ScriptedModel(script)
    raise ValueError(
        f"{name}: it must set script to a list of turns, a function or a model, got {type(script).__name__}"
    )


def _line_of(name: str, error: BaseException) -> str:
    """Say which line of a script failed, unless the error says so itself."""
    if isinstance(error, SyntaxError):
        return ""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == name]
    return f" in line {lines[-1]}" if lines else ""


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def script_of_json(content: Any) -> Model:
    """Return the model that JSON describes; see `model_of_file`.

    Raises:
        ValueError: It is no script.
    """
    if isinstance(content, list):
        if not content:
            raise ValueError("a script must have at least one turn, got none")
        return ScriptedModel([_turn(turn, f"[{index}]") for index, turn in enumerate(content)])
    if not isinstance(content, dict) or not isinstance(content.get("runs"), list):
        raise ValueError('a script must be a list of turns, or {"runs": [{"turns": […]}, …]}')
    if not content["runs"]:
        raise ValueError("runs: got none, must be the script of at least one run")
    _refuse_unknown(content, ("runs",), "the script")
    scripts = RunScripts()
    for index, run in enumerate(content["runs"]):
        where = f"runs[{index}]"
        if not isinstance(run, dict) or not isinstance(run.get("turns"), list):
            raise ValueError(f"{where}: must be an object with a list of turns")
        _refuse_unknown(run, ("turns", "prompt", "times", "tools"), where)
        turns = [_turn(turn, f"{where}.turns[{number}]") for number, turn in enumerate(run["turns"])]
        try:
            scripts.add(*turns, prompt=run.get("prompt"), times=run.get("times"), tools=run.get("tools"))
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None
    return scripts


def _turn(content: Any, where: str) -> ScriptTurn:
    if isinstance(content, list):
        return [_part(part, f"{where}[{index}]") for index, part in enumerate(content)]
    return _part(content, where)


def _part(content: Any, where: str) -> ScriptPart:
    if isinstance(content, str):
        return content
    if not isinstance(content, dict):
        raise ValueError(f"{where}: must be {_KINDS}")
    if "text" in content:
        _refuse_unknown(content, ("text",), where)
        return Text(_text(content, "text", where))
    if "thinking" in content:
        _refuse_unknown(content, ("thinking",), where)
        return Thinking(_text(content, "thinking", where))
    if "tool" in content:
        _refuse_unknown(content, ("tool", "args", "id"), where)
        args = content.get("args", {})
        if not isinstance(args, dict):
            raise ValueError(f"{where}.args: got {args!r}, must be an object")
        return ToolUse(_text(content, "tool", where), args, _text(content, "id", where) if "id" in content else None)
    if "failure" in content:
        _refuse_unknown(content, ("failure",), where)
        given = content["failure"]
        fields: Any = {"message": given} if isinstance(given, str) else given
        if not isinstance(fields, dict):
            raise ValueError(f"{where}.failure: must be a text or an object")
        _refuse_unknown(fields, _FAILURE, f"{where}.failure")
        for field, kind in _FAILURE_KINDS.items():
            if field in fields and (
                not isinstance(fields[field], kind) or isinstance(fields[field], bool) is not (kind is bool)
            ):
                raise ValueError(f"{where}.failure.{field}: got {fields[field]!r}, must be {_KIND_NAMES[kind]}")
        return Failure(**fields)
    if "finish" in content or "usage" in content:
        _refuse_unknown(content, ("finish", "usage"), where)
        usage = content.get("usage")
        if usage is not None:
            if not isinstance(usage, dict) or not all(_is_count(number) for number in usage.values()):
                raise ValueError(f"{where}.usage: must be an object of numbers, 0 or above")
            _refuse_unknown(usage, _USAGE, f"{where}.usage")
        finish = _text(content, "finish", where) if content.get("finish") is not None else None
        return TurnEnd(finish, None if usage is None else Usage(**usage))
    raise ValueError(f"{where}: must be {_KINDS}")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _text(content: Mapping[str, Any], name: str, where: str) -> str:
    if not isinstance(content[name], str):
        raise ValueError(f"{where}.{name}: must be a text")
    return str(content[name])


def _refuse_unknown(content: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    for name in content:
        if name not in known:
            raise ValueError(f"{where}: got {name!r}, must be one of {', '.join(known)}")
