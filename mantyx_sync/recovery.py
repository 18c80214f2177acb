"""When the answer to creating a run was lost: what is known, and finding the run again by a tag in its metadata."""

from __future__ import annotations

import threading
import time
import uuid
from typing import Any

from .api import WorkspaceAPI
from .errors import (
    MantyxConfigError,
    MantyxError,
    MantyxNetworkError,
    MantyxProtocolError,
    MantyxServerError,
    MantyxTimeoutError,
)
from .limits import MAX_METADATA_ENTRIES
from .results import RunPage
from .transport.url import Query

__all__ = ["RECOVERY_KEY", "ambiguous", "find_run", "may_exist", "tag_run"]

RECOVERY_KEY = "mantyx_sync.run"
_TRIES = 4
_PAUSE_S = 0.5
# More than one: a server that does not filter by metadata lists other runs, and ours is among the newest.
_LISTED = 20


def tag_run(body: dict[str, Any]) -> str:
    """Put a tag into the metadata of a run that is about to be created; return it.

    Raises:
        MantyxConfigError: The metadata is full.
    """
    tag = uuid.uuid4().hex
    metadata = body.get("metadata", {})
    if len(metadata) >= MAX_METADATA_ENTRIES:
        raise MantyxConfigError(
            f"metadata: got {len(metadata)} entries; with recoverable_runs at most {MAX_METADATA_ENTRIES - 1} are "
            "allowed, since one is added"
        )
    body["metadata"] = {**metadata, RECOVERY_KEY: tag}
    return tag


def may_exist(error: MantyxError) -> bool:
    """Tell whether a run may exist although creating it failed with `error`."""
    if isinstance(error, MantyxTimeoutError):
        return error.__cause__ is not None  # without a cause, the time was over before anything was sent
    if isinstance(error, MantyxNetworkError):
        redirected = error.status is not None and 300 <= error.status < 400
        return error.sent is not False and error.run_id is None and not redirected
    # A proxy that gave up waiting, or a server that broke while it worked on it.
    return isinstance(error, MantyxServerError) and error.retry_after is None


def find_run(api: WorkspaceAPI, tag: str, lost: MantyxError, deadline: float | None) -> str:
    """Look for the run with the tag, a few times; return its id.

    Raises:
        MantyxError: It is not to be found; an error that says so where `lost` does not settle the matter.
    """
    answered = isinstance(lost, MantyxServerError)
    for attempt in range(2 if answered else _TRIES):
        if attempt:
            threading.Event().wait(_PAUSE_S * attempt)
        if deadline is not None and time.monotonic() >= deadline:
            break
        query: Query = {"limit": _LISTED, "metadata": [f"{RECOVERY_KEY}:{tag}"]}
        try:
            page = RunPage.from_wire(api.request("GET", "/agent-runs", query=query, deadline=deadline).json())
        except MantyxError:
            continue
        for run in page.items:
            if run.metadata.get(RECOVERY_KEY) == tag:
                return run.id
    raise lost if answered else ambiguous(lost, tag)


def ambiguous(error: MantyxError, tag: str | None) -> MantyxError:
    """Return `error` with the words that it is not known whether the run exists, and how to find out."""
    advice = (
        f"look for it with list_runs(metadata={{{RECOVERY_KEY!r}: {tag!r}}})"
        if tag is not None
        else "look for it with list_runs(), or make the client with recoverable_runs=True"
    )
    text = f"{str(error).rstrip('.')}. Whether the run was created is not known, so it was not tried again: {advice}."
    if isinstance(error, MantyxTimeoutError):
        return MantyxTimeoutError(text, cause=error)
    kind = MantyxProtocolError if isinstance(error, MantyxProtocolError) else MantyxNetworkError
    return kind(text, cause=error)
