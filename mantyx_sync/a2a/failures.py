"""What a caller of our A2A server is told when a run fails: a short text without anything of the inside. No I/O."""

from __future__ import annotations

import re

from ..errors import (
    MantyxAPIError,
    MantyxParseError,
    MantyxRateLimitError,
    MantyxRunError,
    MantyxServerError,
    MantyxTimeoutError,
)

__all__ = ["describe_failure"]

_WORD = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def describe_failure(error: BaseException) -> str:
    """Return the text of a failed task's status.

    It names the kind of failure (`rate_limit`, `error_max_turns`) and nothing that platform, provider or tools have
    said about it: their words may name hosts, accounts or data. The log has them.
    """
    if isinstance(error, MantyxRunError):
        kind = error.error_class or error.subtype
        return "The agent could not complete the task" + (f" ({kind})." if _WORD.fullmatch(kind) else ".")
    if isinstance(error, MantyxTimeoutError):
        return "The agent did not complete the task in time."
    if isinstance(error, MantyxParseError):
        return "The agent's answer did not have the form that was asked of it."
    if isinstance(error, (MantyxRateLimitError, MantyxServerError)):
        return "The agent is not available at the moment; try again later."
    if isinstance(error, MantyxAPIError):
        kind = error.code
        return "The agent could not take on the task" + (f" ({kind})." if _WORD.fullmatch(kind) else ".")
    return "The agent failed to complete the task."
