"""The package's logger: silent unless the application, or `MANTYX_LOG`, says otherwise."""

from __future__ import annotations

import logging
import os

__all__ = ["set_up"]

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

_logger = logging.getLogger("mantyx_sync")
_logger.addHandler(logging.NullHandler())


def set_up() -> None:
    """Write our own log lines to standard error if `MANTYX_LOG` names a level. Other loggers are left alone."""
    level = _LEVELS.get(os.environ.get("MANTYX_LOG", "").strip().lower())
    if level is None or any(getattr(handler, "is_mantyx_log", False) for handler in _logger.handlers):
        return
    handler = logging.StreamHandler()
    handler.is_mantyx_log = True  # type: ignore[attr-defined]  # marks it, so that it is added once
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    _logger.addHandler(handler)
    _logger.setLevel(level)
