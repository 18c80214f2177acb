"""What others are told when a run fails: a short text without anything of the inside. Does no I/O."""

from __future__ import annotations

import re

from .errors import (
    MantyxAPIError,
    MantyxConfigError,
    MantyxConflictError,
    MantyxParseError,
    MantyxRateLimitError,
    MantyxRunError,
    MantyxServerError,
    MantyxTimeoutError,
)

__all__ = ["describe_failure", "public_word"]

_WORD = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def describe_failure(error: BaseException) -> str:
    """Return the sentence that callers of an agent, or the reader of a page, get to see.

    It names the kind of failure (`rate_limit`, `error_max_turns`) and nothing that platform, provider or tools have
    said about it: their words may name hosts, accounts or data. The log has them.
    """
    if isinstance(error, MantyxRunError):
        return _with_kind("The agent could not complete the task", error.error_class or error.subtype)
    if isinstance(error, MantyxTimeoutError):
        return "The agent did not complete the task in time."
    if isinstance(error, MantyxParseError):
        return "The agent's answer did not have the form that was asked of it."
    if isinstance(error, (MantyxRateLimitError, MantyxServerError)):
        return "The agent is not available at the moment; try again later."
    if isinstance(error, MantyxConflictError) and error.code == "session_busy":
        return "The agent is still busy with the message before this one."
    if isinstance(error, (MantyxAPIError, MantyxConfigError)):
        return _with_kind("The agent could not take on the task", error.code)
    return "The agent failed to complete the task."


def public_word(word: object) -> str | None:
    """Return a word that a server gave for a kind of failure, if it is one: it may be shown then."""
    return word if isinstance(word, str) and _WORD.fullmatch(word) else None


def _with_kind(sentence: str, kind: str) -> str:
    return sentence + (f" ({kind})." if public_word(kind) else ".")
