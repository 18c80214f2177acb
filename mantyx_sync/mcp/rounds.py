"""Requests that the server answers with a request of its own (`input_required`, the stateless era alone)."""

from __future__ import annotations

from typing import Any, Callable, Mapping, Sequence

from ..errors import cut
from .cancelling import pause
from .channel import Era, Waiting
from .errors import McpInputRequired, McpProtocolError
from .link_state import Line

__all__ = ["MAX_ROUNDS", "completed"]

MAX_ROUNDS = 10
"""How often a request is repeated with what the server asked for."""

_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.05, 0.25

Send = Callable[[Mapping[str, Any]], "tuple[Mapping[str, Any], Line]"]


def completed(
    send: Send,
    params: Mapping[str, Any],
    waiting: Waiting,
    *,
    roots: Sequence[Mapping[str, Any]] | None,
    label: str,
    method: str,
) -> Mapping[str, Any]:
    """Send a request, and again for as long as its result is that more is wanted; return the result that is complete.

    What is wanted may be nothing but the state handed back, after a short pause; or the roots, if there are some.

    Raises:
        McpInputRequired: The server wants what this client does not give.
        McpProtocolError: The result is neither complete nor such a wish; or the wishes have no end.
    """
    wait_s, given = _FIRST_PAUSE_S, params
    for _ in range(MAX_ROUNDS + 1):
        result, line = send(params)
        if line.era is Era.HANDSHAKE:
            return result
        kind = result.get("resultType")
        if kind is None or kind == "complete":
            return result
        if kind != "input_required":
            shown = cut(kind, 40) if isinstance(kind, str) else type(kind).__name__
            raise McpProtocolError(f"{label}: the result of {method} has the resultType {shown!r}, which is unknown")
        state, wishes = result.get("requestState"), result.get("inputRequests")
        if not wishes and state is None:
            raise McpProtocolError(f"{label}: {method} wants input, but does not say which")
        params = dict(given)
        if wishes:
            params["inputResponses"] = _responses(result, roots, label, method)
        else:
            pause(wait_s, waiting, label, f"was answering {method}")
            wait_s = min(2 * wait_s, _LAST_PAUSE_S)
        if state is not None:
            params["requestState"] = state
    raise McpProtocolError(f"{label}: {method} was not completed after {MAX_ROUNDS} rounds of input")


def _responses(
    result: Mapping[str, Any], roots: Sequence[Mapping[str, Any]] | None, label: str, method: str
) -> dict[str, Any]:
    wanted = result["inputRequests"]
    if not isinstance(wanted, Mapping):
        raise McpProtocolError(f"{label}: the inputRequests of {method} are no object")
    methods = sorted({_method_of(item) for item in wanted.values()})
    if roots is None or methods != ["roots/list"]:
        refused = [name for name in methods if roots is None or name != "roots/list"]
        raise McpInputRequired(
            f"{label} asked for {cut(', '.join(refused), 120)} while it answered {method}, which is not supported",
            methods=refused,
            raw=result,
        )
    return {key: {"roots": list(roots)} for key in wanted}


def _method_of(item: object) -> str:
    method = item.get("method") if isinstance(item, Mapping) else None
    return method if isinstance(method, str) else "something without a name"
