"""The routes of a workspace that runs need (http §3), as calls on values. Knows no threads."""

from __future__ import annotations

import logging
import threading
import time
from functools import partial
from typing import Any, Iterable, Mapping

from .errors import (
    MantyxConflictError,
    MantyxError,
    MantyxNetworkError,
    MantyxNotFoundError,
    MantyxProtocolError,
    MantyxTimeoutError,
)
from .limits import LOCAL_TOOL_TIMEOUT_S
from .results import RunSnapshot
from .tools.calls import Delivery, RunToolCalls, ToolResultBody
from .transport.answers import Answer
from .transport.body import Body, Release
from .transport.http import HttpTransport, Timeout
from .transport.retry import Backoff, Repeat
from .transport.url import Query, segment

__all__ = ["WorkspaceAPI"]

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 10.0
# The platform gives a call up after five minutes; a little longer, then, is as long as an answer can be of use.
_DELIVERY_LIMIT_S = LOCAL_TOOL_TIMEOUT_S + 60.0
_MAX_PAUSE_S = 60.0


class WorkspaceAPI:
    """Send requests below `/api/v1/workspaces/{slug}`. Safe to use from any thread; every method blocks."""

    def __init__(self, transport: HttpTransport, workspace_slug: str, delivery_backoff: Backoff | None = None) -> None:
        self.transport = transport
        self.prefix = f"/api/v1/workspaces/{segment(workspace_slug)}"
        self._backoff = delivery_backoff or Backoff(base=0.25, cap=5.0)

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: object = None,
        repeat: Repeat | None = None,
        timeout: Timeout | None = None,
        deadline: float | None = None,
        stop: threading.Event | None = None,
    ) -> Answer:
        """Send one request to a path of the workspace; arguments and errors are those of `HttpTransport.request`."""
        return self.transport.request(
            method,
            self.prefix + path,
            query=query,
            body=body,
            repeat=repeat,
            timeout=timeout,
            deadline=deadline,
            stop=stop,
        )

    def create_run(self, path: str, body: Mapping[str, Any], deadline: float | None) -> tuple[str, str, Answer]:
        """Create a run; return its id, the URL of its stream, and the answer.

        Raises:
            MantyxProtocolError: The answer names no run, or a stream on another origin.
        """
        answer = self.request("POST", path, body=body, deadline=deadline)
        fields = answer.json()
        run_id = fields.get("runId") if isinstance(fields, dict) else None
        if not isinstance(run_id, str) or not run_id:
            raise MantyxProtocolError(f"{answer.path}: the server's answer names no runId")
        return run_id, self.stream_url(run_id, fields.get("streamUrl")), answer

    def stream_url(self, run_id: str, offered: object = None) -> str:
        """Return where a run's stream is: what the server offered, if it is on our origin and below our base URL.

        Raises:
            MantyxProtocolError: The server offered a URL on another origin; the credential is not taken there.
        """
        base = self.transport.base
        own = base.join(f"{self.prefix}/agent-runs/{segment(run_id)}/stream")
        if not isinstance(offered, str) or not offered:
            return own
        if offered.startswith("/") and not offered.startswith("//"):
            # A server behind a path prefix does not know the prefix; then our own URL is the right one.
            return base.site + offered if offered.startswith(base.path + "/") else own
        if not base.has_origin_of(offered):
            raise MantyxProtocolError(
                f"run {run_id}: its streamUrl is on another origin than base_url ({base.site}); it was not opened, "
                "so that no credential leaves its origin",
                run_id=run_id,
            )
        return offered

    def open_stream(self, url: str, headers: Mapping[str, str], idle_timeout: float, release: Release) -> Body:
        """Open a run's stream; the place to resume from goes as header and as query (http §3)."""
        last_seq = headers.get("Last-Event-ID", "")
        if last_seq.isdigit():
            url += ("&" if "?" in url else "?") + "lastSeq=" + last_seq
        return self.transport.open_stream(
            url, headers=headers, connect_timeout=CONNECT_TIMEOUT_S, idle_timeout=idle_timeout, release=release
        )

    def get_run(self, run_id: str, timeout: Timeout | None = None) -> RunSnapshot:
        """Return what the server knows of a run (http §3)."""
        return RunSnapshot.from_wire(self.request("GET", _run_path(run_id), timeout=timeout).json(), run_id)

    def cancel_run(self, run_id: str, timeout: Timeout | None = None, deadline: float | None = None) -> None:
        """Ask the server to cancel a run (wire §9); asking twice does no harm."""
        path = _run_path(run_id) + "/cancel"
        self.request("POST", path, repeat=Repeat.SAFE, timeout=timeout, deadline=deadline)

    def give_up_run(self, run_id: str, calls: Iterable[RunToolCalls], timeout: Timeout, within: float) -> None:
        """Ask the server to cancel a run, and answer its `calls` that are at work: it would wait for them (wire §9).

        Args:
            timeout: Of each exchange.
            within: Seconds for cancelling, and half as long for the answers. What takes longer is left.

        Raises:
            MantyxError: The server could not be asked to cancel it; nothing was answered.
        """
        self.cancel_run(run_id, timeout, time.monotonic() + within)
        self.surrender_calls(calls, timeout, within / 2)

    def surrender_calls(self, calls: Iterable[RunToolCalls], timeout: Timeout, within: float) -> None:
        """Answer the calls at work of runs that are given up. Raises nothing if they cannot be."""
        deadline = time.monotonic() + within
        for of_run in calls:
            of_run.surrender(partial(self._answer_once, of_run.run_id, timeout, deadline))

    def _answer_once(self, run_id: str, timeout: Timeout, deadline: float, body: ToolResultBody) -> bool:
        try:
            self.request("POST", _run_path(run_id) + "/tool-results", body=body, timeout=timeout, deadline=deadline)
        except (MantyxNotFoundError, MantyxConflictError):
            return True  # it waits for this one no more
        except MantyxError as error:
            log.info("run %s: an open call could not be answered: %s", run_id, type(error).__name__)
            return False
        return True

    def post_tool_result(self, run_id: str, body: ToolResultBody, stop: threading.Event) -> Delivery:
        """Post a tool's answer until the server has it, will not have it, or `stop` is set (wire §5)."""
        path = _run_path(run_id) + "/tool-results"
        give_up_at = time.monotonic() + _DELIVERY_LIMIT_S
        for attempt in range(1_000_000):
            try:
                self.request("POST", path, body=body, repeat=Repeat.SAFE, stop=stop)
                return Delivery.ACCEPTED
            except MantyxError as error:
                refusal = _refusal(error, run_id)
                if refusal is not None:
                    return refusal
                delay = self._backoff.delay(attempt + 1, 1.0)
                asked = getattr(error, "retry_after", None)
                if asked is not None:
                    delay = max(delay, min(asked, _MAX_PAUSE_S))
                if time.monotonic() + delay > give_up_at or stop.is_set():
                    return Delivery.LOST
                log.info("run %s: a tool result did not arrive (%s); trying on", run_id, type(error).__name__)
                if stop.wait(delay):
                    return Delivery.LOST
        return Delivery.LOST


def _refusal(error: MantyxError, run_id: str) -> Delivery | None:
    """Return what a failed post comes to; `None` if trying on may help."""
    if isinstance(error, (MantyxNotFoundError, MantyxConflictError)):
        return Delivery.UNWANTED
    if isinstance(error, (MantyxNetworkError, MantyxTimeoutError)):
        return None
    if error.status == 429 or (error.status or 0) >= 500:  # of the server, or of where access tokens come from
        return None
    log.warning("run %s: a tool result was refused: %s", run_id, error)
    return Delivery.REFUSED if error.status in (400, 413, 422) else Delivery.LOST


def _run_path(run_id: str) -> str:
    return f"/agent-runs/{segment(run_id)}"
