"""What a browser is told of an error: a status, a word for scripts and a sentence, nothing of the inside. No I/O."""

from __future__ import annotations

from typing import Any, Dict, Tuple, Type

from ..errors import (
    MantyxAPIError,
    MantyxConfigError,
    MantyxConflictError,
    MantyxError,
    MantyxNetworkError,
    MantyxNotFoundError,
    MantyxRateLimitError,
    MantyxRunCancelled,
    MantyxRunError,
    MantyxServerError,
    MantyxTimeoutError,
)
from ..failures import describe_failure, public_word

__all__ = ["INTERNAL", "public_error", "public_failure"]

INTERNAL = "internal_error"

# The first that fits. What is wrong between this process and the platform is no fault of the browser's: not 401 or 403.
_STATUSES: Tuple[Tuple[Type[MantyxError], int], ...] = (
    (MantyxConfigError, 400),
    (MantyxNotFoundError, 404),
    (MantyxConflictError, 409),
    (MantyxRateLimitError, 429),
    (MantyxServerError, 503),
    (MantyxTimeoutError, 504),
    (MantyxAPIError, 502),
    (MantyxRunError, 502),
    (MantyxNetworkError, 502),
)
_RETRYABLE = (MantyxRateLimitError, MantyxServerError, MantyxNetworkError, MantyxTimeoutError, MantyxConflictError)


def public_error(error: BaseException) -> Tuple[int, Dict[str, Any]]:
    """Return the status and the JSON with which a view answers an error. Does no I/O.

    The JSON is what an `EventStream` sends as its `error` event: `error`, a sentence for the reader; `code`, the word
    of our errors (`session_busy`, `timeout`), or `internal_error` for one that is not ours; `retryable`, whether the
    same may work later; perhaps `retryAfter`, in seconds.
    """
    status = next((number for kind, number in _STATUSES if isinstance(error, kind)), 500)
    body = public_failure(describe_failure(error), error.code if isinstance(error, MantyxError) else INTERNAL)
    if isinstance(error, MantyxRunError):
        body["retryable"] = bool(error.retryable) and not isinstance(error, MantyxRunCancelled)
    else:
        body["retryable"] = isinstance(error, _RETRYABLE)
    wait = getattr(error, "retry_after", None)
    if isinstance(wait, (int, float)):
        body["retryAfter"] = wait
    return status, body


def public_failure(sentence: str, code: object, *, retryable: bool = False) -> Dict[str, Any]:
    """Return the JSON of an `error` event."""
    return {"error": sentence, "code": public_word(code) or INTERNAL, "retryable": retryable}
