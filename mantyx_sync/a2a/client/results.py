"""JSON-RPC responses -> results, or the errors that are raised for them. Does no I/O."""

from __future__ import annotations

from typing import Any

from ...errors import cut
from ..rpc import read_error
from .allowance import Allowance
from .errors import A2ACancelled, A2AError, A2AProtocolError, A2ARequestError, A2ATimeoutError

__all__ = ["given_up", "request_error", "result_of"]


def result_of(response: object, label: str, method: str) -> Any:
    """Return the result in a JSON-RPC response.

    Raises:
        A2ARequestError: It holds an error.
        A2AProtocolError: It is none.
    """
    if isinstance(response, dict):
        if response.get("error") is not None:
            raise request_error(response["error"], label, method)
        if response.get("result") is not None:
            return response["result"]
    raise A2AProtocolError(f"{label}: {method}: the answer is not a JSON-RPC response")


def request_error(value: object, label: str, method: str, status: int | None = None) -> A2ARequestError:
    """Return the error for the `error` of a response, whatever its shape."""
    error = read_error(value)
    word = f" {error.reason}" if error.reason else ""
    said = error.message  # which often has what the details say again
    news = [(name, text) for name, text in error.violations[:5] if not (text and text in said and name in said)]
    fields = "; ".join(f"{name}: {text}" if name else text for name, text in news)
    text = f"{label}: {method}: error {error.code}{word}: {cut(error.message)}"
    return A2ARequestError(
        text + (f" ({cut(fields)})" if fields else ""),
        method=method,
        rpc_code=error.code,
        reason=error.reason,
        agent_message=error.message,
        violations=error.violations,
        data=error.data,
        status=status,
    )


def given_up(label: str, allowance: Allowance) -> A2AError:
    """Return the error for an exchange that was cut off because nobody waits for it any more."""
    if not allowance.is_cancelled and allowance.left <= 0:
        return A2ATimeoutError(f"{label}: no answer in the time allowed")
    return A2ACancelled(f"{label}: the call was cancelled")
