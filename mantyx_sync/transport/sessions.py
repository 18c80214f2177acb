"""One `requests.Session` per process and client, and the settings that it sends with."""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from typing import Any

import requests
from requests.adapters import BaseAdapter, HTTPAdapter
from requests.utils import get_environ_proxies

from ..errors import MantyxConfigError
from .adapter import Adapter, make_releasable
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
        self._opened: weakref.finalize[Any, Any] | None = None
        self._route: Route | None = None
        if session is not None:
            if not isinstance(session, requests.Session):
                raise MantyxConfigError(
                    f"session: got {type(session).__name__}, must be an instance of requests.Session"
                )
            _check_verify(session.verify)
            _check_cert(session.cert)

    def route(self) -> Route:
        """Return how to send from this process."""
        route = self._route
        if route is not None and self._pid == os.getpid():
            return route
        self._leave_parent()
        with self._lock:
            if self._route is None:
                session = self._given if self._given is not None else _new_session()
                route = self._route = _merge(session, self._probe_url)
                if self._given is None:
                    # Closed with this object and at exit: urllib3 1.26 leaves idle connections to the collector.
                    self._opened = weakref.finalize(self, _close, session, route, os.getpid())
            return self._route

    def close(self) -> None:
        """Close idle connections, unless the session is the caller's own."""
        self._leave_parent()
        with self._lock:
            opened, self._opened, self._route = self._opened, None, None
        _close_now(opened)

    def _leave_parent(self) -> None:
        """After a fork: drop what belongs to the parent."""
        if self._pid == os.getpid():
            return
        # The lock may have been held by a thread that does not exist here.
        self._lock = threading.Lock()
        self._route = None
        _close_now(self._opened)
        self._opened = None
        if self._given is not None:
            self._given = _without_connections(self._given)
        self._pid = os.getpid()


def _new_session() -> requests.Session:
    session = requests.Session()
    session.headers.clear()
    session.headers["Accept-Encoding"] = "gzip, deflate"
    for prefix in ("https://", "http://"):
        session.mount(prefix, Adapter())
    return session


def _close_now(opened: weakref.finalize[Any, Any] | None) -> None:
    # Not by calling it: a finalizer does nothing any more once the interpreter has begun to end.
    left = opened.detach() if opened is not None else None
    if left is not None:
        _close(*left[2])


def _close(session: requests.Session, route: Route, pid: int) -> None:
    """Close the idle connections of a session of ours that the process `pid` made."""
    if pid == os.getpid():
        session.close()
        route.close()
        return
    # Inherited by a fork. The parent goes on using its sockets, which closing ours does not disturb; but the locks
    # of urllib3's pools may be held by a thread that does not exist here. So what is idle is closed past them.
    for adapter in session.adapters.values():
        pools = getattr(getattr(adapter, "poolmanager", None), "pools", None)
        for pool in list(getattr(pools, "_container", {}).values()):
            for connection in list(getattr(pool.pool, "queue", ())):
                sock = getattr(connection, "sock", None)
                if sock is not None:
                    sock.close()


def _without_connections(session: requests.Session) -> requests.Session:
    clone: requests.Session = _shallow_copy(session)
    clone.adapters = OrderedDict((prefix, _unconnected(adapter)) for prefix, adapter in session.adapters.items())
    return clone


def _unconnected(adapter: BaseAdapter) -> BaseAdapter:
    if not isinstance(adapter, HTTPAdapter):
        return adapter
    clone: Any = _shallow_copy(adapter)
    clone.proxy_manager = {}
    clone.init_poolmanager(clone._pool_connections, clone._pool_maxsize, block=clone._pool_block)
    return clone  # type: ignore[no-any-return]


def _shallow_copy(value: Any) -> Any:
    # Not copy.copy: requests' classes would leave out the attributes that a subclass of the caller's added.
    clone = object.__new__(type(value))
    clone.__dict__.update(value.__dict__)
    return clone


def _merge(session: requests.Session, url: str) -> Route:
    proxies: dict[str, str] = {}
    verify: Any = session.verify
    if url.lower().startswith("https:"):  # they may be others than when the client was made
        _check_verify(verify)
        _check_cert(session.cert)
    if session.trust_env:
        proxies.update(get_environ_proxies(url, no_proxy=session.proxies.get("no_proxy")))
        # requests lets the environment overrule a CA file set on the session; what was said explicitly wins here.
        if verify is True or verify is None:
            name = next((name for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE") if os.environ.get(name)), None)
            verify = os.environ[name] if name else True
            if name and url.lower().startswith("https:"):
                _check_verify(verify, name)
    proxies.update(session.proxies)
    adapter = session.get_adapter(url)
    make_releasable(getattr(adapter, "poolmanager", None))
    headers: Any = session.headers.items()  # bytes are fine as values, and None leaves a header out
    return Route(
        url,
        adapter=adapter,
        settings={"proxies": proxies, "verify": verify, "cert": session.cert},
        headers={name: value for name, value in headers if value is not None},
        response_hooks=session.hooks if session.hooks.get("response") else {},
    )


def _check_cert(cert: object) -> None:
    for path in cert if isinstance(cert, (tuple, list)) else (cert,):
        if isinstance(path, (str, os.PathLike)) and not os.path.exists(path):
            raise MantyxConfigError(f"session.cert: no file at {os.fspath(path)!r}")


def _check_verify(verify: object, field: str = "session.verify") -> None:
    if isinstance(verify, (str, os.PathLike)) and not os.path.exists(verify):
        raise MantyxConfigError(f"{field}: no CA file or folder at {os.fspath(verify)!r}")
