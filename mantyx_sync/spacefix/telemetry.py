"""Samples of the process's health, posted every ten seconds (spacefix, "POST /agent/telemetry")."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
from typing import Any, Callable

from ..errors import MantyxError
from ..transport.bell import Bell
from ..transport.body import Release
from ..transport.http import encode_json
from ..transport.secret import SecretBytes
from .delivery import Connection
from .window import WindowFigures

__all__ = ["ProcessFigures", "Telemetry", "metrics"]

log = logging.getLogger(__name__)

_POST_TIMEOUT_S = 5.0
_MEAN_BLOCK_BYTES = 100  # of CPython's allocator, where the system does not tell what is in use
_LOADED_AT = time.time()


class ProcessFigures:
    """Reads what the operating system knows of this process: on Linux exactly, elsewhere as closely as it goes."""

    def __init__(self) -> None:
        self._cpu_s = time.process_time()
        self._at = time.monotonic()

    def read(self) -> dict[str, float]:
        """Return `uptime`, `rss`, `heapUsed`, `heapTotal` and the share of a core used since the last reading."""
        cpu_s, now = time.process_time(), time.monotonic()
        share = (cpu_s - self._cpu_s) / max(now - self._at, 1e-3)
        self._cpu_s, self._at = cpu_s, now
        memory = _memory_of_linux() or _memory()
        # Several threads may use more than one core; the scale ends at one.
        return {"uptime": round(_uptime(), 1), **memory, "cpu": round(min(max(share, 0.0), 1.0), 4)}


def metrics(process: dict[str, float], window: WindowFigures, *, tools: int, delay_ms: float) -> dict[str, Any]:
    """Put a sample together in the gateway's words. The scheduler is the pool of workers."""
    return {
        **process,
        "eventLoopDelay": round(max(delay_ms, 0.0), 1),
        "eventLoopUtilization": round(window.utilization, 4),
        "tools": tools,
        "calls": window.calls,
        "errors": window.errors,
        "inFlight": window.in_flight,
        "peakInFlight": window.peak_in_flight,
        "avgMs": round(window.avg_ms, 1),
    }


class Telemetry:
    """The thread that samples and posts. A sample that cannot be posted is not missed by anybody."""

    def __init__(
        self,
        connection: Callable[[], Connection | None],
        window: Callable[[], WindowFigures],
        post: Callable[[bytes, float, Release], None],
        *,
        interval: float,
    ) -> None:
        """Start nothing yet.

        Args:
            connection: Returns the connection that is ready, or `None`.
            window: Returns the figures since it was last asked.
            post: Posts a body within so many seconds, or raises.
        """
        self._connection = connection
        self._window = window
        self._post = post
        self._interval = interval
        self._bell = Bell()
        self._is_stopped = False
        self._release: Callable[[], None] = lambda: None
        # Owned by the agent: `stop` wakes it, wherever it waits, and the agent joins it. A daemon: nothing is lost.
        self.thread = threading.Thread(target=self._run, name="mantyx-spacefix-telemetry", daemon=True)

    def stop(self) -> None:
        """Have the thread end. Does not block."""
        self._is_stopped = True
        self._bell.ring()
        self._release()

    def _run(self) -> None:
        figures = ProcessFigures()
        while not self._is_stopped:
            due = time.monotonic() + self._interval
            self._bell.wait(self._interval)
            # How late a thread that wants to run gets to: what a scheduler's delay is here.
            late_ms = (time.monotonic() - due) * 1000
            connection = self._connection()
            if self._is_stopped or connection is None:
                continue
            tools = len(connection.registration.tools)
            sample = metrics(figures.read(), self._window(), tools=tools, delay_ms=late_ms)
            self._send(connection, {"connectionId": connection.id, "metrics": sample})

    def _send(self, connection: Connection, body: dict[str, Any]) -> None:
        with connection.releasable() as release:
            self._release = release
            if self._is_stopped:
                return
            try:
                self._post(SecretBytes(encode_json(body)), _POST_TIMEOUT_S, release)
            except MantyxError as error:
                log.debug("a sample was not taken: %s", error)
            except Exception:  # a hook of the caller's session, or its source of keys
                log.debug("a sample could not be sent", exc_info=True)


def _memory_of_linux() -> dict[str, float] | None:
    """Return resident, anonymous resident and anonymous mapped memory; `None` where there is no /proc."""
    found: dict[str, int] = {}
    with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/self/status", "rb") as status:
        for line in status:
            name, _, value = line.partition(b":")
            if name in (b"VmRSS", b"RssAnon", b"VmData"):
                found[name.decode()] = int(value.split()[0]) * 1024
    if "VmRSS" not in found:
        return None
    used = found.get("RssAnon", found["VmRSS"])
    return {"rss": found["VmRSS"], "heapUsed": used, "heapTotal": max(used, found.get("VmData", 0))}


def _memory() -> dict[str, float]:
    blocks = sys.getallocatedblocks() if hasattr(sys, "getallocatedblocks") else 0
    used = blocks * _MEAN_BLOCK_BYTES
    try:
        import resource
    except ImportError:  # Windows
        return {"rss": 0, "heapUsed": used, "heapTotal": used}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rss = peak if sys.platform == "darwin" else peak * 1024
    return {"rss": rss, "heapUsed": min(used, rss), "heapTotal": rss}


def _uptime() -> float:
    """Return the age of the process in seconds; where the system does not tell, that of this module."""
    try:
        with open("/proc/self/stat", "rb") as stat, open("/proc/uptime", "rb") as uptime:
            # The name in parentheses may hold anything; the start time is the 20th field behind it.
            ticks = int(stat.read().rpartition(b")")[2].split()[19])
            return max(0.0, float(uptime.read().split()[0]) - ticks / os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, IndexError, AttributeError):
        pass
    return time.time() - _LOADED_AT
