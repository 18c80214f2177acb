"""Runs whose browser has left and that go on all the same: held here until their end, so that their tools are answered.

Each has a thread that waits for its end. It is a daemon: when the process ends, the run is let go of and goes on at the
server, where another process can attach to it.
"""

from __future__ import annotations

import logging
import threading
from typing import Dict

from ..errors import MantyxError
from ..run import Run

__all__ = ["MAX_LEFT", "finish"]

log = logging.getLogger(__name__)

MAX_LEFT = 256
"""How many runs of browsers that have left are held at once; those beyond are cancelled."""

_left: Dict[int, Run] = {}


def finish(run: Run, keep: object, timeout: float) -> None:
    """Let a run go on without its reader. Does not wait for it.

    Args:
        keep: What the run's tools need, such as the session it belongs to; held until the run's end.
        timeout: Seconds until the run is cancelled. Its own time-out holds as well.
    """
    if len(_left) >= MAX_LEFT:
        log.warning("run %s: %d runs go on without a reader already; it is cancelled", run.run_id, MAX_LEFT)
        run.abort()
        return
    _left[id(run)] = run
    # Owned by the run: its end, and its release when the interpreter exits, end the wait. Nothing has to join it.
    thread = threading.Thread(
        target=_wait, args=(run, keep, timeout), name=f"mantyx-web-finish-{run.run_id}", daemon=True
    )
    try:
        thread.start()
    except BaseException as error:  # the interpreter is ending, or there are too many threads
        _left.pop(id(run), None)
        run.let_go()
        if not isinstance(error, RuntimeError):
            raise
        log.warning("run %s goes on at the server, and nobody here answers its tools: %s", run.run_id, error)


def _wait(run: Run, keep: object, timeout: float) -> None:
    try:
        run.result(timeout)
    except MantyxError as error:
        log.info("run %s ended after its reader had left: %s", run.run_id, type(error).__name__)
    except Exception:
        log.exception("run %s: could not be followed to its end", run.run_id)
    finally:
        _left.pop(id(run), None)
        run.close()
        del keep
