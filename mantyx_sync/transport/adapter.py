"""requests' HTTP adapter with the settings that long streams and many threads need."""

from __future__ import annotations

import socket
import threading
from typing import Any

import requests.adapters
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.poolmanager import ProxyManager

from .body import Release

__all__ = ["Adapter", "announce_to"]

KEEPALIVE_IDLE_S = 45
MAX_CORKED_BYTES = 64 * 1024
POOL_SIZE = 64
"""Idle connections kept per host. More are opened as needed: a pool that blocks would deadlock streams and posts."""

_opening = threading.local()


class announce_to:  # noqa: N801 - reads as a verb: `with announce_to(release): adapter.send(…)`
    """Show the connection that the current thread sends on to `release`, so that another thread can shut it.

    Without this nobody could end a wait for the headers of an answer.
    """

    def __init__(self, release: Release) -> None:
        self._release = release

    def __enter__(self) -> None:
        _opening.release = self._release

    def __exit__(self, *_: object) -> None:
        _opening.release = None


class _Announcing:
    _corked: list[bytes] | None = None

    def request(self, method: str, url: str, body: Any = None, headers: Any = None, **kwargs: Any) -> Any:
        # http.client sends the headers and a body in two packets, which costs a system call here and a wake-up at
        # the other end for every tool result.
        if isinstance(body, bytes) and len(body) <= MAX_CORKED_BYTES:
            self._corked = []
        try:
            super().request(method, url, body=body, headers=headers, **kwargs)  # type: ignore[misc]  # mixed in
            parts = self._corked
        finally:
            self._corked = None
        if parts:
            self.send(b"".join(parts))

    def send(self, data: Any) -> Any:
        if self._corked is not None and isinstance(data, bytes):
            self._corked.append(data)
            return None
        return super().send(data)  # type: ignore[misc]  # mixed into http.client connections

    def putrequest(self, *args: Any, **kwargs: Any) -> Any:
        release = getattr(_opening, "release", None)
        if release is not None:
            release.watch_connection(self)
        return super().putrequest(*args, **kwargs)  # type: ignore[misc]  # mixed into http.client connections


class _Connection(_Announcing, HTTPConnection):
    pass


class _TLSConnection(_Announcing, HTTPSConnection):
    pass


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TLSPool(HTTPSConnectionPool):
    ConnectionCls = _TLSConnection


def _socket_options() -> list[tuple[int, int, int]]:
    options = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    # A quiet stream must outlive the idle limits of address translators. The names differ by system.
    for name, value in (("TCP_KEEPIDLE", KEEPALIVE_IDLE_S), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options


class Adapter(requests.adapters.HTTPAdapter):
    """Keep-alive probes, a pool for many threads, and connections that can be shut while they wait."""

    def __init__(self) -> None:
        super().__init__(pool_maxsize=POOL_SIZE)

    def init_poolmanager(self, connections: int, maxsize: int, block: bool = False, **kwargs: Any) -> None:
        kwargs.setdefault("socket_options", _socket_options())
        super().init_poolmanager(connections, maxsize, block, **kwargs)
        # A plain TLS connection's class check in urllib3 is by scheme, so replacing both is enough.
        self.poolmanager.pool_classes_by_scheme = {"http": _Pool, "https": _TLSPool}

    def pool_for(self, url: str, verify: Any, cert: Any) -> Any:
        """Return the connection pool that requests to `url` use without a proxy, set up for TLS as `send` would."""
        if hasattr(self, "get_connection_with_tls_context"):  # requests 2.32 and later
            request = requests.Request("GET", url).prepare()
            pool = self.get_connection_with_tls_context(request, verify, proxies={}, cert=cert)
        else:
            pool = self.get_connection(url, {})
        self.cert_verify(pool, url, verify, cert)  # type: ignore[no-untyped-call]  # requests, before 2.34 types it
        return pool

    def proxy_manager_for(self, proxy: str, **kwargs: Any) -> Any:
        kwargs.setdefault("socket_options", _socket_options())
        manager = super().proxy_manager_for(proxy, **kwargs)
        if type(manager) is ProxyManager:  # a SOCKS manager has connections of its own kind
            manager.pool_classes_by_scheme = {"http": _Pool, "https": _TLSPool}
        return manager
