"""What becomes of a run or eval whose stream cannot be kept up: its record tells the end, or an error how to go on."""

from __future__ import annotations

import logging
from typing import Callable, TypeVar

from .errors import (
    MantyxAPIError,
    MantyxAuthError,
    MantyxError,
    MantyxForbiddenError,
    MantyxNetworkError,
    MantyxNotFoundError,
    MantyxOAuthError,
    MantyxProtocolError,
    MantyxRunError,
)
from .transport.stream import StreamLost

__all__ = ["end_without_stream"]

log = logging.getLogger(__name__)

EndT = TypeVar("EndT")


def end_without_stream(
    lost: StreamLost, look: Callable[[], EndT | None], label: str, run_id: str, and_now: str
) -> EndT:
    """Return the end that the record tells. Blocks for as long as `look` does.

    Args:
        lost: Why there is no stream.
        look: Asks for the record: returns the end, or `None` if there is none yet.
        label: What to call it in a sentence: `run run_7f3`.
        run_id: Of the run or eval, for the error.
        and_now: What to say behind why the stream was lost, where the record is not to be had either.

    Raises:
        MantyxRunError: The record tells of a bad end.
        MantyxAPIError, MantyxOAuthError: The server refuses the stream, or the record: it counts for more than how the
            stream broke.
        MantyxProtocolError: The server sent what is no stream, and the record tells no end.
        MantyxNetworkError: Neither is to be had.
    """
    cause = lost.error
    if isinstance(cause, (MantyxAPIError, MantyxOAuthError)) and not lost.gone:
        cause.run_id = run_id
        raise cause
    try:
        found = look()
    except MantyxRunError:
        raise
    except (MantyxAuthError, MantyxForbiddenError, MantyxNotFoundError, MantyxOAuthError) as error:
        error.run_id = run_id
        raise
    except MantyxError as error:
        log.info("%s: its record is not to be had either: %s", label, error)
    else:
        if found is not None:
            log.info("%s: its stream was lost, its record tells the end", label)
            return found
    if isinstance(cause, MantyxProtocolError):
        cause.run_id = run_id
        raise cause
    raise MantyxNetworkError(f"{label}: {str(cause).rstrip('.')}{and_now}", cause=cause, run_id=run_id) from cause
