"""One `requests.Session` per process and client, and the settings that it sends with."""

from __future__ import annotations

import copy
import os
import threading
from collections import OrderedDict
from typing import Any

import requests
from requests.utils import get_environ_proxies

from ..errors import MantyxConfigError
from .adapter import Adapter
from .route import Route

__all__ = ["Sessions"]


class Sessions:
    """Hand out the session of the running process; a session made before `fork` is not used after it.

    Safe to call from any thread.
    """

    def __init__(self, session: requests.Session | None, probe_url: str) -> None:
        self._given = session
        self._probe_url = probe_url
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._session: requests.Session | None = None
        self._route: Route | None = None
        if session is not None:
            _check_verify(session.verify)

    def route(self) -> Route:
        """Return how to send from this process."""
        route = self._route
        if route is not None and self._pid == os.getpid():
            return route
        if self._pid != os.getpid():
            # The parent's sockets are shared with this process: leave them alone, closing would disturb the parent.
            # The lock may have been held by a thread that does not exist here.
            self._lock = threading.Lock()
            self._route = None
            if self._given is not None:
                self._given = _without_connections(self._given)
            self._session = None
            self._pid = os.getpid()
        with self._lock:
            if self._route is None:
                self._session = self._given if self._given is not None else _new_session()
                self._route = _merge(self._session, self._probe_url)
            return self._route

    def close(self) -> None:
        """Close idle connections, unless the session is the caller's own."""
        with self._lock:
            session, self._session, self._route = self._session, None, None
        if session is not None and session is not self._given and self._pid == os.getpid():
            session.close()


def _new_session() -> requests.Session:
    session = requests.Session()
    session.headers.clear()
    session.headers["Accept-Encoding"] = "gzip, deflate"
    for prefix in ("https://", "http://"):
        session.mount(prefix, Adapter())
    return session


def _without_connections(session: requests.Session) -> requests.Session:
    clone = copy.copy(session)
    clone.adapters = OrderedDict((prefix, copy.copy(adapter)) for prefix, adapter in session.adapters.items())
    return clone


def _merge(session: requests.Session, url: str) -> Route:
    proxies: dict[str, str] = {}
    verify: Any = session.verify
    if session.trust_env:
        proxies.update(get_environ_proxies(url, no_proxy=session.proxies.get("no_proxy")))
        # requests lets the environment overrule a CA file set on the session; what was said explicitly wins here.
        if verify is True or verify is None:
            verify = os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE") or True
            _check_verify(verify)
    proxies.update(session.proxies)
    return Route(
        url,
        adapter=session.get_adapter(url),
        settings={"proxies": proxies, "verify": verify, "cert": session.cert},
        headers={name: value for name, value in session.headers.items() if isinstance(value, str)},
        response_hooks=list(session.hooks.get("response", [])),
    )


def _check_verify(verify: object) -> None:
    if isinstance(verify, (str, os.PathLike)) and not os.path.exists(verify):
        raise MantyxConfigError(f"session.verify: no CA file or folder at {os.fspath(verify)!r}")
