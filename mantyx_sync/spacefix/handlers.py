"""What tools, resources and prompts have in common: a name, limits, and a function that is called with a context."""

from __future__ import annotations

from typing import Any

from ..checks import refusal, seconds, shown, whole_number
from ..hints.docstrings import DocInfo, read_docstring
from ..limits import SPACEFIX_NAME
from ..tools.arguments import read_arguments
from ..tools.binding import Binding, innermost, refuse_async, too_deep
from ..tools.context import ToolContext

__all__ = ["NAME_RULE", "call_handler", "characters", "check_limits", "check_name", "own_name", "read_handler"]

NAME_RULE = "be 1 to 64 letters, digits, _ and -"


def check_name(name: object, where: str) -> str:
    """Return a name that the gateway takes.

    Raises:
        MantyxConfigError: It takes none such.
    """
    if not isinstance(name, str) or SPACEFIX_NAME.fullmatch(name) is None:
        raise refusal(where, shown(name), NAME_RULE)
    return name


def characters(value: str) -> int:
    """Count characters as the gateway does: those beyond the first 65,536 code points are two."""
    return len(value.encode("utf-16-le", "surrogatepass")) // 2


def check_limits(where: str, timeout: object, max_concurrency: object) -> None:
    """Refuse what is no time-out or no number of places."""
    if timeout is not None:
        seconds(timeout, f"{where}: timeout")
    if max_concurrency is not None:
        whole_number(max_concurrency, f"{where}: max_concurrency", 1)


def call_handler(handler: Any, binding: Binding, args: object, context: ToolContext, name: str) -> Any:
    """Check arguments against the binding, and call the handler with them. Blocks; raises what the handler raises."""
    try:
        found = args if type(args) is dict else read_arguments(args, name)
        positional, named = binding.bind(found, context, name)
    except RecursionError:
        raise too_deep(name) from None
    return handler(*positional, **named)


def read_handler(handler: Any, where: str) -> DocInfo:
    """Refuse what cannot be called from a thread, and return what its docstring says."""
    if not callable(handler) or isinstance(handler, type):
        raise refusal(f"{where}: handler", shown(handler), "be a function")
    refuse_async(handler, where)
    found = getattr(innermost(handler), "__doc__", None)
    return read_docstring(found if isinstance(found, str) else None)


def own_name(handler: Any) -> str:
    """Return the name that a handler was defined under."""
    return str(getattr(innermost(handler), "__name__", "") or type(handler).__name__)
