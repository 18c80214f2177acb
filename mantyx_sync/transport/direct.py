"""A session for services on this machine: no proxy of the environment stands between, and it closes when it is told."""

from __future__ import annotations

from typing import Callable

import requests

from .adapter import Adapter

__all__ = ["direct_session"]


def direct_session(url: str) -> tuple[requests.Session, Callable[[], None]]:
    """Return a session for requests to `url`, and what closes it with its idle connections."""
    session, adapter = requests.Session(), Adapter()
    session.trust_env = False
    for prefix in ("https://", "http://"):
        session.mount(prefix, adapter)

    def close() -> None:
        adapter.pool_for(url, session.verify, session.cert).close()  # urllib3 2 leaves that to the garbage collector
        session.close()

    return session, close
