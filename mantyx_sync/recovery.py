"""Finding a run that was created before: when the answer to creating it was lost, and by a key of the caller's.

Either way the run carries a mark: an entry of its metadata that no other run has.
"""

from __future__ import annotations

import threading
import time
import uuid
from dataclasses import dataclass, replace
from typing import Any, Iterator, Mapping

from .api import WorkspaceAPI
from .checks import json_bytes, refusal, shown
from .errors import (
    MantyxConfigError,
    MantyxError,
    MantyxNetworkError,
    MantyxProtocolError,
    MantyxServerError,
    MantyxTimeoutError,
)
from .limits import MAX_METADATA_BYTES, MAX_METADATA_ENTRIES, MAX_METADATA_VALUE_CHARS, MAX_PAGE_SIZE
from .results import RunPage, RunSummary
from .transport.url import Query

__all__ = [
    "IDEMPOTENCY_KEY",
    "RECOVERY_KEY",
    "Mark",
    "ambiguous",
    "find_keyed",
    "find_run",
    "key_mark",
    "may_exist",
    "new_mark",
]

RECOVERY_KEY = "mantyx_sync.run"
IDEMPOTENCY_KEY = "mantyx_sync.key"
_TRIES = 4
_PAUSE_S = 0.5
# More than one: a server that does not filter by metadata lists other runs, and ours is among the newest.
_LISTED = 20
_MAX_PAGES = 10
"""How many pages of runs are looked through for a key. A server that filters by metadata gives one."""


@dataclass(frozen=True)
class Mark:
    """An entry of a run's metadata by which the run is found again.

    `option` is what of the caller's has it added. Runs named in `earlier` carry it as well and are not meant.
    """

    name: str
    value: str
    option: str
    session_id: str | None = None
    """Of a caller's key: the session among whose runs it counts; `None`: among those of no session."""
    earlier: frozenset[str] = frozenset()

    @property
    def filter(self) -> str:
        """What the listing of runs is asked for."""
        return f"{self.name}:{self.value}"

    def is_on(self, run: RunSummary) -> bool:
        """Tell whether a run carries the mark, and that where the mark counts."""
        if run.metadata.get(self.name) != self.value:
            return False
        return self.name == RECOVERY_KEY or "sessionId" not in run.raw or run.session_id == self.session_id

    def put_on(self, body: dict[str, Any]) -> None:
        """Add the mark to the metadata of a run that is about to be created.

        Raises:
            MantyxConfigError: The metadata is full, has such an entry already, or is not metadata.
        """
        metadata = body.get("metadata", {})
        if not isinstance(metadata, Mapping):  # from `extra_body`, which nobody checks
            raise refusal("metadata", shown(metadata), "be a mapping of strings")
        if self.name in metadata and self.option == "idempotency_key":
            raise MantyxConfigError(
                f"metadata.{self.name}: given together with idempotency_key, must be one of the two"
            )
        if len(metadata) >= MAX_METADATA_ENTRIES:
            raise MantyxConfigError(
                f"metadata: got {len(metadata)} entries; with {self.option} at most {MAX_METADATA_ENTRIES - 1} are "
                "allowed, since one is added"
            )
        marked = {**metadata, self.name: self.value}
        size = json_bytes(marked)
        if size > MAX_METADATA_BYTES:
            raise MantyxConfigError(
                f"metadata: takes {size} bytes as JSON with what {self.option} adds; at most {MAX_METADATA_BYTES} are "
                "allowed"
            )
        body["metadata"] = marked


def new_mark() -> Mark:
    """Return a mark of this package's own for one run."""
    return Mark(RECOVERY_KEY, uuid.uuid4().hex, "recoverable_runs")


def key_mark(key: object, session_id: str | None) -> Mark:
    """Return the mark for a caller's `idempotency_key`.

    Args:
        key: The key.
        session_id: The session whose message it is; only its runs count. `None`: only runs of no session.

    Raises:
        MantyxConfigError: It is not a text of 1 to 256 printable characters.
    """
    must = f"be a text of 1 to {MAX_METADATA_VALUE_CHARS} printable characters, without spaces around it"
    if not isinstance(key, str):
        raise refusal("idempotency_key", shown(key), must)
    if len(key) > MAX_METADATA_VALUE_CHARS:
        raise refusal("idempotency_key", f"{len(key)} characters", must)
    if not key or not key.isprintable() or key != key.strip():
        raise refusal("idempotency_key", shown(key), must)
    return Mark(IDEMPOTENCY_KEY, str.__str__(key), "idempotency_key", session_id)


def find_keyed(api: WorkspaceAPI, mark: Mark, deadline: float | None) -> tuple[str | None, Mark]:
    """Look for the run that a key of the caller's stands for; return its id, and the mark for another one.

    That is one that succeeded, else one that goes on; of several the oldest, so that all who look find the same. A
    run that failed or was cancelled gave no answer and is passed over. Where the server does not filter by metadata,
    its newest runs are looked through.

    Raises:
        MantyxError: The server cannot be asked, so nothing must be created.
    """
    going: str | None = None
    earlier: set[str] = set()
    succeeded: str | None = None
    for page in _pages(api, mark, deadline):
        for run in page.items:  # newest first
            if not mark.is_on(run):
                continue
            earlier.add(run.id)
            if run.status == "succeeded":
                succeeded = run.id
            elif run.status in ("queued", "running") or not (
                run.status in ("failed", "cancelled") or run.completed_at is not None
            ):
                going = run.id
        if succeeded is not None or going is not None:
            break
    return succeeded or going, replace(mark, earlier=frozenset(earlier))


def _pages(api: WorkspaceAPI, mark: Mark, deadline: float | None) -> Iterator[RunPage]:
    cursor: str | None = None
    for _ in range(_MAX_PAGES):
        query: Query = {"limit": MAX_PAGE_SIZE, "metadata": [mark.filter], "cursor": cursor}
        page = RunPage.from_wire(api.request("GET", "/agent-runs", query=query, deadline=deadline).json())
        yield page
        cursor = page.next_cursor
        if cursor is None:
            return


def may_exist(error: MantyxError) -> bool:
    """Tell whether a run may exist although creating it failed with `error`."""
    if isinstance(error, MantyxTimeoutError):
        return error.__cause__ is not None  # without a cause, the time was over before anything was sent
    if isinstance(error, MantyxNetworkError):
        redirected = error.status is not None and 300 <= error.status < 400
        return error.sent is not False and error.run_id is None and not redirected
    # A proxy that gave up waiting, or a server that broke while it worked on it.
    return isinstance(error, MantyxServerError) and error.retry_after is None


def find_run(api: WorkspaceAPI, mark: Mark, lost: MantyxError, deadline: float | None) -> str:
    """Look for the run with the mark, a few times; return its id.

    Raises:
        MantyxError: It is not to be found; an error that says so where `lost` does not settle the matter.
    """
    answered = isinstance(lost, MantyxServerError)
    for attempt in range(2 if answered else _TRIES):
        left = threading.TIMEOUT_MAX if deadline is None else deadline - time.monotonic()
        if attempt and left > 0:
            threading.Event().wait(min(_PAUSE_S * attempt, left))
        if deadline is not None and time.monotonic() >= deadline:
            break
        query: Query = {"limit": _LISTED, "metadata": [mark.filter]}
        try:
            page = RunPage.from_wire(api.request("GET", "/agent-runs", query=query, deadline=deadline).json())
        except MantyxError:
            continue
        for run in page.items:
            if mark.is_on(run) and run.id not in mark.earlier:
                return run.id
    raise lost if answered else ambiguous(lost, mark)


def ambiguous(error: MantyxError, mark: Mark | None) -> MantyxError:
    """Return `error` with the words that it is not known whether the run exists, and how to find out."""
    if mark is None:
        advice = "look for it with list_runs(), or make the client with recoverable_runs=True"
    elif mark.name == IDEMPOTENCY_KEY:
        advice = "call again with the same idempotency_key, which follows it if it is there"
    else:
        advice = f"look for it with list_runs(metadata={{{mark.name!r}: {mark.value!r}}})"
    text = f"{str(error).rstrip('.')}. Whether the run was created is not known, so it was not tried again: {advice}."
    if isinstance(error, MantyxTimeoutError):
        return MantyxTimeoutError(text, cause=error)
    kind = MantyxProtocolError if isinstance(error, MantyxProtocolError) else MantyxNetworkError
    return kind(text, cause=error)
