"""Structured output: what `output_type` asks for, and the final text read as that, or not at all (wire §7)."""

from __future__ import annotations

import json
from functools import partial
from typing import Any, Callable, Dict, Mapping, NoReturn, get_origin

from .errors import MantyxConfigError, MantyxParseError
from .events import AssistantMessage
from .hints import compile_type
from .limits import OUTPUT_SCHEMA_NAME
from .mismatch import Mismatch
from .results import RunResult
from .schema import SchemaChecker

__all__ = ["OutputType", "parse_run_output", "read_json"]

_FENCE = "```"


class OutputType:
    """A type or JSON Schema that the final answer is to have."""

    def __init__(self, wanted: Any, *, label: str = "output_type") -> None:
        """Compile it.

        Args:
            wanted: A dataclass, TypedDict, pydantic model or any other type that hints can name; or a JSON Schema.

        Raises:
            MantyxConfigError: It has no JSON form, or is not a valid schema.
        """
        self._convert: Callable[[Any], Any]
        if isinstance(wanted, Mapping):
            if isinstance(wanted.get("schema"), Mapping) and not {"type", "properties", "$schema"} & wanted.keys():
                raise MantyxConfigError(f"{label}: got the form of output_schema=, must be the JSON Schema itself")
            checker = SchemaChecker(wanted, label=label)
            self._schema = checker.schema
            self._convert = partial(_checked, checker)
            name = wanted.get("title")
        else:
            compiled = compile_type(wanted, label=label)
            self._schema = compiled.object_schema
            self._convert = compiled.parse_object
            name = getattr(wanted, "__name__", None)
        self._name = name if isinstance(name, str) and OUTPUT_SCHEMA_NAME.fullmatch(name) else None

    def to_wire(self) -> Dict[str, Any]:
        """Return the `outputSchema` that asks for it."""
        named = {"name": self._name} if self._name else {}
        return {**named, "schema": self._schema}

    def read(self, result: RunResult) -> Any:
        """Return the result's text as a value of the type.

        Raises:
            MantyxParseError: The text is not JSON, or does not fit. It is in the error's `text`, never in its message.
        """
        value = read_json(result)
        try:
            return self._convert(value)
        except Mismatch as mismatch:
            # Without a cause: what lies behind it may be pydantic's error, whose text quotes the answer.
            _refuse(result, f"the answer does not fit: {mismatch.sentence()}", None)


def parse_run_output(result: RunResult, validator: Any = None) -> Any:
    """Parse the text of a result as JSON (wire §7).

    Args:
        validator: A function that gets the parsed value and returns what is wanted (`Model.model_validate`); or a type
            or JSON Schema, as `output_type`. `None` returns the parsed value.

    Raises:
        MantyxConfigError: The validator is neither a function nor a type or schema that can be used.
        MantyxParseError: The text is not JSON, or the validator refused it. The text is in the error's `text`; what a
            function raised is its `__cause__`, in words of its own.
    """
    if validator is None:
        return read_json(result)
    if _is_type(validator):
        return OutputType(validator, label="validator").read(result)
    value = read_json(result)
    try:
        return validator(value)
    except Exception as error:
        _refuse(result, f"the validator refused the answer ({type(error).__name__})", error)


def read_json(result: RunResult) -> Any:
    """Return the text of a result as the JSON value it is, whole or fenced as a whole; nothing is guessed.

    Raises:
        MantyxParseError: It is neither.
    """
    text = result.text.strip().lstrip("\ufeff").lstrip()
    try:
        return json.loads(_without_fence(text), parse_constant=_not_json)
    except (ValueError, RecursionError) as error:
        where = f" at character {error.pos}" if isinstance(error, json.JSONDecodeError) else ""
        _refuse(result, f"the answer is not JSON{where}", error)


def _without_fence(text: str) -> str:
    """Return what is in a fenced block, if the whole text is one, as some models have it; otherwise the text.

    The closing fence is as long as the opening one, so fences inside the JSON's strings do no harm. A block in another
    language is not JSON.
    """
    first, newline, rest = text.partition("\n")
    fence = first[: len(first) - len(first.lstrip("`"))]
    is_fenced = len(fence) >= len(_FENCE) and newline and rest.endswith(fence)
    if not is_fenced or first[len(fence) :].strip().lower() not in ("", "json"):
        return text
    return rest[: -len(fence)]


def _is_type(wanted: Any) -> bool:
    """Tell a type or schema from a function, of which some types are hard to tell apart: all of them can be called."""
    if isinstance(wanted, (type, str, Mapping)) or get_origin(wanted) is not None or hasattr(wanted, "__supertype__"):
        return True
    return not callable(wanted)


def _checked(checker: SchemaChecker, value: Any) -> Any:
    problem = checker.problem(value)
    if problem is not None:
        raise Mismatch(problem)
    return value


def _not_json(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _refuse(result: RunResult, reason: str, cause: BaseException | None) -> NoReturn:
    finish = next((e.finish_reason for e in reversed(result.events) if isinstance(e, AssistantMessage)), None)
    why = f" (finish reason: {finish})" if finish not in (None, "end_turn") else ""
    message = f"run {result.run_id}: {reason}{why}"
    raise MantyxParseError(message, text=result.text, cause=cause, run_id=result.run_id) from cause
