"""Around a handler: what is told of its failure, and connections that must not grow old on its thread."""

from __future__ import annotations

import logging
import sys

from ..errors import ToolError
from ..limits import MAX_TOOL_ERROR_BYTES

__all__ = ["close_old_connections", "cut_text", "failure_text"]

log = logging.getLogger(__name__)


def failure_text(error: BaseException, name: str, where: str, logger: logging.Logger) -> str:
    """Return what the caller of a handler is told about its failure, and log the rest.

    A `ToolError` speaks for itself. The text of any other exception may hold what must not leave the process: a
    connection string, a path, a key. Only its type is told; the log has the traceback.

    Args:
        error: What the handler raised, `SystemExit` and the like included.
        name: The tool's name, as its caller knows it.
        where: The call, for the log.
        logger: Whose log it is.
    """
    if isinstance(error, ToolError):
        logger.info("%s: %s", where, type(error).__name__)
        text = str(error)
        return cut_text(text) if text.strip() else f"{name} failed"
    if isinstance(error, (SystemExit, KeyboardInterrupt, GeneratorExit)):
        logger.warning("%s: the handler raised %s; the process goes on", where, type(error).__name__)
        return f"{name} failed"
    logger.warning("%s: the handler raised", where, exc_info=error)
    return f"{name} failed with {type(error).__name__}"


def close_old_connections() -> None:
    """Do around a handler what Django does around a request: its connections are per thread, and ours live long."""
    database = sys.modules.get("django.db")
    if database is not None:
        try:
            database.close_old_connections()
        except Exception:
            log.debug("django.db.close_old_connections failed", exc_info=True)


def cut_text(text: str) -> str:
    """Return what of a failure's text is sent: all of it, unless it is too long."""
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= MAX_TOOL_ERROR_BYTES:
        return text
    return encoded[: MAX_TOOL_ERROR_BYTES - 4].decode("utf-8", "ignore") + " …"
