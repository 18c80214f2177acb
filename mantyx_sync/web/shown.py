"""What of a run's events a browser gets to see. Pure.

The default shows what the person who talks with the agent is to know: text, plan, which tools are at work and how they
end. Kept back is what may hold other people's data or how the agent is made: arguments and results of tools, the
model's reasoning, guards' reasons, models, and the words of platform and providers about a failure. What is not known
is not shown.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, FrozenSet, Mapping, Optional, Union

from ..checks import refusal, shown
from ..errors import MantyxProtocolError, MantyxRunCancelled, MantyxRunError
from ..events import TERMINAL_TYPES, RunEvent
from ..results import conclude
from .errors import public_error

__all__ = ["Show", "check_show", "public_data"]

View = Callable[[RunEvent], Optional[Mapping[str, Any]]]
Show = Union[str, View]
"""`public`, `all`, or a function from an event to the JSON object that is sent as its data; `None` keeps it back."""

# By type: the members of the data that are shown; of those that are lists of objects, their members.
_FIELDS: Dict[str, FrozenSet[str]] = {
    "assistant_delta": frozenset({"text"}),
    "assistant_message": frozenset({"text", "turn", "finishReason", "toolCalls"}),
    "tool_call": frozenset({"toolUseId", "name"}),
    "tool_result": frozenset({"toolUseId", "name", "ok"}),
    "local_tool_call": frozenset({"toolUseId", "name", "kind"}),
    "local_tool_result_in": frozenset({"toolUseId"}),
    "task_plan": frozenset({"plan", "transition", "transitionIndex", "transitionCount", "brief", "steps"}),
    "loop_detected": frozenset({"consecutiveCount", "hardCutoff", "tools"}),
    "tool_budget_exceeded": frozenset({"tool", "maxCalls", "callIndex"}),
    "supervisor": frozenset({"action", "phase"}),
    "tool_files": frozenset({"name", "files"}),
    "result": frozenset({"text", "subtype", "ok", "turns", "tokens", "plan"}),
    "cancelled": frozenset({"reason"}),
    # Of a session's history.
    "user_message": frozenset({"text", "role", "attachments"}),
    "message": frozenset({"text", "role", "attachments"}),
}
_MEMBERS: Dict[str, FrozenSet[str]] = {
    "toolCalls": frozenset({"id", "name"}),
    "files": frozenset({"filename", "mimeType", "sizeBytes"}),
    "attachments": frozenset({"filename", "mimeType", "sizeBytes"}),
}


def public_data(event: RunEvent) -> Dict[str, Any] | None:
    """Return what anybody may see of an event, with the wire's names; `None` if nothing. Does no I/O.

    The default of `show`. Add to it, or take from it, in a function of your own:

        def with_reasoning(event):
            return dict(event.data) if event.type == "thinking_delta" else public_data(event)
    """
    if event.type in TERMINAL_TYPES:
        failure = _failure(event)
        if failure is not None:
            return failure
    fields = _FIELDS.get(event.type)
    if fields is None:
        return None
    data = {name: _members(name, value) for name, value in event.data.items() if name in fields}
    if event.type == "local_tool_result_in":
        data["ok"] = event.data.get("error") is None
    return data


def check_show(show: object) -> View:
    """Return the function that `show` stands for.

    Raises:
        MantyxConfigError: It stands for none.
    """
    if show == "public":
        return public_data
    if show == "all":
        return _everything
    if callable(show):
        view: Any = show  # what it returns is looked at when it does
        return view  # type: ignore[no-any-return]
    raise refusal("show", shown(show), "be 'public', 'all' or a function of an event")


def _everything(event: RunEvent) -> Mapping[str, Any]:
    return event.data


def _failure(event: RunEvent) -> Dict[str, Any] | None:
    """Return what is said of a run that failed; `None` of one that did not, or was stopped."""
    try:
        conclude("", event)
    except MantyxRunCancelled:
        return None
    except MantyxRunError as error:
        body = public_error(error)[1]
        return body if event.type == "error" else {**body, "subtype": error.subtype, "ok": False}
    except MantyxProtocolError as error:  # an event that was handed on as it is: its fields are not what they should be
        return public_error(error)[1] if event.type == "error" else None
    return None


def _members(name: str, value: Any) -> Any:
    wanted = _MEMBERS.get(name)
    if wanted is None:
        return value
    if not isinstance(value, list):
        return []
    return [{key: item[key] for key in item if key in wanted} for item in value if isinstance(item, Mapping)]
