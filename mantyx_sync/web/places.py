"""Where in which run a browser is: what the `id:` of its events says, and its `Last-Event-ID` brings back. No I/O."""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["Place", "resume_from"]

# As much as a header should be trusted with; runs have ids of letters, digits and a few signs.
_PLACE = re.compile(r"([A-Za-z0-9_.:~-]{1,200})/(\d{1,15})", re.ASCII)


class Place(NamedTuple):
    """A run, and the last of its events that the browser has; 0 for none."""

    run_id: str
    last_seq: int

    def __str__(self) -> str:
        return f"{self.run_id}/{self.last_seq}"


def resume_from(last_event_id: str | None) -> Place | None:
    """Read where a browser that comes back left a stream. Does no I/O and never raises.

    It is the browser that says so: look whether the run is one of its user's before you show it.

    Args:
        last_event_id: The request's `Last-Event-ID`, or what your page kept of it.

    Returns:
        The run and the last event that arrived: `run_id, last_seq = place`. `None` if it says nothing of the kind.
    """
    found = _PLACE.fullmatch(last_event_id) if isinstance(last_event_id, str) else None
    if found is None or found[1] in (".", ".."):
        return None
    return Place(found[1], int(found[2]))
