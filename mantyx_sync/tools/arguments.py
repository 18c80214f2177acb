"""Read the arguments a model sent (wire §4.3), which are not always what they should be."""

from __future__ import annotations

import json
from typing import Any, Mapping, NoReturn

from mantyx_sync.errors import ToolInputError
from mantyx_sync.mismatch import TOO_DEEP
from mantyx_sync.wire import json_type

__all__ = ["read_arguments"]


def read_arguments(arguments: object, tool_name: str) -> Mapping[str, Any]:
    """Return the arguments as an object.

    Nothing at all (`None`, an empty text) means no arguments. A text is taken as the JSON of an object. Whatever
    else comes is refused rather than taken as "no arguments": a tool must not run on a guess.

    Raises:
        ToolInputError: They are not an object. The text does not quote them.
    """
    if isinstance(arguments, Mapping):
        return arguments
    if arguments is None:
        return {}
    if isinstance(arguments, str):
        if not arguments.strip():
            return {}
        arguments = _parse(arguments, tool_name)
        if isinstance(arguments, dict):
            return arguments
    raise ToolInputError(f"tool '{tool_name}': its arguments must be an object, not {json_type(arguments)}")


def _parse(text: str, tool_name: str) -> object:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as exc:
        reason = f"{exc.msg} at character {exc.pos} of {len(text)}"
    except RecursionError:
        reason = TOO_DEEP
    except ValueError as exc:  # NaN, or a number with too many digits
        reason = str(exc)
    raise ToolInputError(f"tool '{tool_name}': its arguments are not valid JSON ({reason})")


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")
