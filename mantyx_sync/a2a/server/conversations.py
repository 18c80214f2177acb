"""Which MANTYX session stands for which A2A context, and of which caller (a2a §3.2, wire §2.2)."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections import OrderedDict
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Tuple

from ...errors import MantyxForbiddenError
from ...spec import OMITTED, RunSpec
from ...tools.resolution import is_resolvable

if TYPE_CHECKING:
    from ...client import MantyxClient
    from ...session import AgentSession

__all__ = ["CONTEXT_KEY", "Conversations", "spec_fields"]

log = logging.getLogger(__name__)

ContextKey = Tuple[str, str]

CONTEXT_KEY = "a2a_context"
"""The metadata of a session that tells which context it stands for."""

MAX_REMEMBERED = 10_000
MAX_IDLE_SERVERS = 32
"""Of so many contexts, those used last, servers that tools live on stay open while nothing is asked of them."""


def spec_fields(spec: RunSpec) -> dict[str, Any]:
    """Return the fields of a spec that were given, as keyword arguments."""
    given = {field.name: getattr(spec, field.name) for field in fields(spec)}
    return {name: value for name, value in given.items() if value is not OMITTED}


class Conversations:
    """The sessions of a server's contexts. Safe to use from any thread, for one context by one at a time.

    A session is found again by its metadata when this process does not know it: after a restart, or when another
    process of the server has begun the conversation. What its metadata holds is a digest: neither the caller's id
    nor the context's can be read from it.
    """

    def __init__(self, client: MantyxClient, spec: RunSpec, agent: str) -> None:
        """Ask nothing yet.

        Args:
            spec: What sessions are created with.
            agent: Which agent this is; agents do not share the sessions of a context.
        """
        self._client = client
        self._spec = spec_fields(spec)
        self._agent = agent
        has_servers = any(is_resolvable(tool) for tool in self._spec.get("tools", ()))
        self._max_idle = MAX_IDLE_SERVERS if has_servers else MAX_REMEMBERED
        self._lock = threading.Lock()
        self._sessions: dict[ContextKey, AgentSession] = {}
        self._idle: OrderedDict[ContextKey, None] = OrderedDict()  # the ones at rest, longest first

    def session(self, owner: str, context_id: str, *, is_new: bool) -> AgentSession:
        """Return the session of a context; up to three requests. It is taken until `rest` is called.

        Args:
            is_new: The context was made just now, so that there cannot be one.

        Raises:
            MantyxError: The session can neither be found nor created.
        """
        key = (owner, context_id)
        with self._lock:
            session = self._sessions.get(key)
            self._idle.pop(key, None)
        if session is None:
            session = (None if is_new else self._find(key)) or self._create(key)
            with self._lock:
                self._sessions[key] = session
        return session

    def rest(self, owner: str, context_id: str) -> None:
        """Note that nothing is asked of a context's session for now; let go of those that have rested too long."""
        key = (owner, context_id)
        dropped = []
        with self._lock:
            if key in self._sessions:
                self._idle[key] = None
                self._idle.move_to_end(key)
            while len(self._idle) > self._max_idle:
                dropped.append(self._sessions.pop(self._idle.popitem(last=False)[0]))
        for session in dropped:  # it goes on at the platform, and is found again
            session.close()

    def forget(self, owner: str, context_id: str) -> None:
        """Have the next message of a context begin a new session: the platform does not know its session any more."""
        with self._lock:
            session = self._sessions.pop((owner, context_id), None)
            self._idle.pop((owner, context_id), None)
        if session is not None:
            session.close()

    def close(self) -> None:
        """Let go of all sessions. They go on at the platform."""
        with self._lock:
            sessions = list(self._sessions.values())
            self._sessions.clear()
            self._idle.clear()
        for session in sessions:
            session.close()

    def _digest(self, key: ContextKey) -> str:
        return hashlib.sha256(json.dumps([self._agent, *key]).encode()).hexdigest()

    def _find(self, key: ContextKey) -> AgentSession | None:
        try:
            page = self._client.list_sessions(metadata={CONTEXT_KEY: self._digest(key)}, status="active", limit=1)
        except MantyxForbiddenError as error:  # a token that may create sessions and not list them
            log.info("a context's session cannot be looked up: %s", error)
            return None
        for found in page.items:
            # Looked at here as well: a server that does not know the filter would hand us somebody else's talk.
            if found.metadata.get(CONTEXT_KEY) == self._digest(key):
                return self._client.resume_session(found.session_id, tools=self._spec.get("tools"))
        return None

    def _create(self, key: ContextKey) -> AgentSession:
        fields = dict(self._spec)
        fields["metadata"] = {**(fields.get("metadata") or {}), CONTEXT_KEY: self._digest(key)}
        return self._client.create_session(**fields)
