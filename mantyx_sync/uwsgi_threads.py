"""uWSGI starts its workers without threads unless it is told otherwise: noticing that, and saying what to do."""

from __future__ import annotations

import sys
import warnings

__all__ = ["THREADS_ARE_OFF", "threads_are_off", "warn_if_threads_are_off"]

THREADS_ARE_OFF = (
    "uWSGI runs without threads, so MANTYX runs cannot be followed: set enable-threads = true (or --enable-threads)"
)

_PACKAGE = __name__.partition(".")[0]
_has_warned = False


def threads_are_off() -> bool:
    """Tell whether this is uWSGI without threads: none would ever run."""
    options = getattr(sys.modules.get("uwsgi"), "opt", None)
    if options is None:
        return False
    enabled = {key.decode() if isinstance(key, bytes) else key for key in options}
    return not enabled & {"enable-threads", "threads"}


def warn_if_threads_are_off() -> None:
    """Warn, once, if this is uWSGI without threads. The warning points at who called us."""
    global _has_warned
    if not _has_warned and threads_are_off():
        _has_warned = True
        warnings.warn(THREADS_ARE_OFF, RuntimeWarning, stacklevel=_frames_of_ours() + 1)


def _frames_of_ours() -> int:
    """Return how many calls of this package, the caller's included, lie between the user's code and here."""
    count, frame = 0, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        count, frame = count + 1, frame.f_back
    return count
