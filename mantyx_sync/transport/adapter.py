"""requests' HTTP adapter with the settings that long streams and many threads need."""

from __future__ import annotations

import functools
import socket
import threading
from typing import Any

import requests.adapters

from .body import Release
from .secret import SecretBytes

__all__ = ["Adapter", "announce_to", "make_releasable"]

KEEPALIVE_IDLE_S = 45
MAX_CORKED_BYTES = 64 * 1024
POOL_SIZE = 256
"""Idle connections kept per host. More are opened as needed: a pool that blocks would deadlock streams and posts."""

_opening = threading.local()


class announce_to:  # noqa: N801 - reads as a verb: `with announce_to(release): adapter.send(…)`
    """Show the connection that the current thread sends on to `release`, so that another thread can shut it.

    Without this nobody could end a wait for the headers of an answer. `None` hides an exchange inside another one.
    """

    def __init__(self, release: Release | None) -> None:
        self._release = release

    def __enter__(self) -> None:
        self._outer = getattr(_opening, "release", None)
        _opening.release = self._release

    def __exit__(self, *_: object) -> None:
        _opening.release = self._outer


class _Releasable:
    """Mixed into the connections of urllib3's pools."""

    debuglevel = 0
    """Whatever http.client is set to: it would print the headers, and the credential with them."""
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
            self.send(SecretBytes(b"".join(parts)))

    def send(self, data: Any) -> None:
        if self._corked is not None and isinstance(data, bytes):
            self._corked.append(SecretBytes(data))  # a list that a dump of a frame's locals may show
            return
        if isinstance(data, bytes) and len(data) > MAX_CORKED_BYTES:
            # A socket's time-out is for all that one call sends; on a slow line a large body needs one per piece.
            view = memoryview(data)
            for at in range(0, len(view), MAX_CORKED_BYTES):
                super().send(view[at : at + MAX_CORKED_BYTES])  # type: ignore[misc]  # mixed in
            return
        super().send(data)  # type: ignore[misc]  # mixed in

    def connect(self) -> None:
        super().connect()  # type: ignore[misc]  # mixed in
        release = getattr(_opening, "release", None)
        if release is not None:  # it may have been called meanwhile, when there was no socket to shut
            release.watch_connection(self)

    def putrequest(self, *args: Any, **kwargs: Any) -> Any:
        release = getattr(_opening, "release", None)
        if release is not None:
            release.watch_connection(self)
        return super().putrequest(*args, **kwargs)  # type: ignore[misc]  # mixed in


def make_releasable(manager: Any) -> None:
    """Let the connections that a urllib3 pool manager (also one for a proxy) opens from now on be released."""
    classes = getattr(manager, "pool_classes_by_scheme", None)
    if classes:
        manager.pool_classes_by_scheme = {scheme: _releasable(pool) for scheme, pool in classes.items()}


@functools.cache
def _releasable(pool: Any) -> Any:
    connection = pool.ConnectionCls
    if issubclass(connection, _Releasable):
        return pool
    mixed = type(connection.__name__, (_Releasable, connection), {})
    return type(pool.__name__, (pool,), {"ConnectionCls": mixed})


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
        make_releasable(self.poolmanager)

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
        make_releasable(manager)
        return manager
