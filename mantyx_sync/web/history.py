"""A session for a page that was loaded anew: its conversation as events, and the run that is going on in it."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Dict, Mapping

from ..results import RunSummary
from .shown import Show, check_show

if TYPE_CHECKING:
    from ..client import MantyxClient
    from ..session import AgentSession

__all__ = ["history_events", "running_run"]

MAX_LOOKED_AT = 1000


def history_events(
    session: AgentSession, *, last_messages: int = 100, before_seq: int | None = None, show: Show = "public"
) -> Dict[str, Any]:
    """Return a part of a session's conversation for a JSON view. One request; blocks.

    `events` are objects with `seq`, `type` and `data`, oldest first: what the script of a page does with an event of a
    stream, it can do with these. `nextBeforeSeq` asks for the part before, if there is one.

    Args:
        session: From `create_session` or `resume_session`.
        last_messages: How many messages, at most 500.
        before_seq: Only those before this event.
        show: As for `EventStream`.

    Raises:
        MantyxConfigError: An argument is not allowed.
        MantyxError: The session could not be read.
    """
    view = check_show(show)
    page = session.events_page(last_messages=last_messages, before_seq=before_seq)
    seen = ((event, view(event)) for event in page.events)
    events = [{"seq": event.seq, "type": event.type, "data": dict(data)} for event, data in seen if data is not None]
    return {"sessionId": session.id, "events": events, "nextBeforeSeq": page.next_before_seq}


def running_run(
    client: MantyxClient, session_id: str, *, metadata: Mapping[str, str] | None = None
) -> RunSummary | None:
    """Return the run that is going on in a session, whoever started it; `None` if there is none. Blocks.

    `EventStream.attach(client, run.id)` shows it from its start.

    Args:
        client: The workspace.
        session_id: The session.
        metadata: What its runs are tagged with, if they are: the server then looks at those alone. Without it, the
            workspace's runs that are going on are looked through, at most a thousand.

    Raises:
        MantyxError: The runs could not be listed.
    """
    for status in ("queued", "running"):  # in the order in which a run has them: none slips by between two looks
        runs = client.list_runs(status=status, metadata=metadata, limit=200)
        for run in itertools.islice(runs, MAX_LOOKED_AT):
            if run.session_id == session_id:
                return run
    return None
