"""How a request leaves: through a session's adapter, or straight through the connection pool below our own.

`HTTPAdapter.send` looks its pool up anew and wraps every answer, which costs as much as the exchange itself; a tool
result posted for every call feels that. Only our own adapter is passed by: a session of the caller's keeps its say.
"""

from __future__ import annotations

from http.client import HTTPException
from typing import Any, Mapping

import requests
from requests.adapters import BaseAdapter
from requests.hooks import dispatch_hook
from requests.utils import select_proxy
from urllib3 import Retry, Timeout
from urllib3.exceptions import HTTPError, ProtocolError

from .adapter import Adapter

__all__ = ["LIBRARY_ERRORS", "HookRaised", "Received", "Route"]

LIBRARY_ERRORS = (requests.RequestException, HTTPError, HTTPException, OSError, ValueError)
"""What requests, urllib3 and http.client raise while sending and reading."""


_NO_RETRIES = Retry(False, redirect=False)  # what urllib3 makes of False for every request anew


class HookRaised(Exception):
    """A hook of the caller's session raised `error`, which is theirs: it is passed on as it is."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


class Received:
    """Status and headers of an answer whose body has not been read."""

    def __init__(self, status: int, headers: Mapping[str, str], raw: Any, response: requests.Response | None) -> None:
        self.status = status
        self.headers = headers
        self.raw = raw
        """urllib3's response, or whatever an adapter of the caller's put in its place."""
        self._response = response

    def read(self) -> bytes:
        """Return the whole body, decoded; the connection is free for others then. Blocks."""
        if self._response is not None:
            return self._response.content or b""
        body: bytes = self.raw.read(decode_content=True)
        return body

    def read_start(self, size: int) -> bytes:
        """Return the first `size` bytes of the body, decoded. Blocks."""
        if self._response is not None and getattr(self._response, "_content", False) is not False:
            return (self._response.content or b"")[:size]  # a hook has read it
        try:
            body: bytes = self.raw.read(size, decode_content=True)
        except TypeError:  # a plain file
            body = self.raw.read(size)
        return body or b""

    def check_complete(self, body: bytes) -> None:
        """Raise an error of urllib3 if `body`, as it was read, is less than the server sent.

        http.client takes what arrived of a head that breaks off for all of it, and urllib3 1.26 takes a short body.
        """
        answer: Any = getattr(self.raw, "_fp", None)
        if not hasattr(answer, "will_close"):
            return  # not read off a connection
        if answer.length:
            raise ProtocolError(f"{answer.length} bytes of the body are missing")
        if not body and "Content-Length" not in self.headers and "Transfer-Encoding" not in self.headers:
            raise ProtocolError("the answer has neither a length nor a body")

    def close(self) -> None:
        """Close the connection, unless the body was read to its end."""
        if self._response is not None:
            self._response.close()
        else:
            self.raw.close()
            self.raw.release_conn()


def _host(proxy: str) -> str:
    """Return host and port of a proxy's URL, which may hold a password."""
    return proxy.rpartition("@")[2].rpartition("://")[2].partition("/")[0]


class Route:
    """The way to one origin. Its settings are merged once, since merging costs more than sending."""

    def __init__(
        self,
        url: str,
        adapter: BaseAdapter,
        settings: dict[str, Any],
        headers: dict[str, str],
        response_hooks: Mapping[str, Any],
    ) -> None:
        """Take what was merged for `url`; `settings` are keyword arguments of `adapter.send`."""
        retries = getattr(adapter, "max_retries", None)
        self.retries_itself = any(getattr(retries, name, None) for name in ("total", "connect", "read"))
        """The caller's adapter sends again by itself where no answer came: doing so here as well would multiply."""
        self.headers = headers
        self._adapter = adapter
        self._settings = settings
        self._response_hooks = response_hooks
        self._pool: Any = None
        proxy = select_proxy(url, settings["proxies"])
        self.via = f" through the proxy {_host(proxy)}" if proxy else ""
        """Words for messages: nobody suspects a proxy that the environment names."""
        if type(adapter) is Adapter and not response_hooks and not proxy:
            self._pool = adapter.pool_for(url, settings["verify"], settings["cert"])

    def close(self) -> None:
        """Close idle connections; urllib3 2 would leave that to the garbage collector."""
        if self._pool is not None:
            self._pool.close()

    def send(self, request: requests.PreparedRequest, timeout: tuple[float, float]) -> Received:
        """Send a request and return once its answer's headers are there. Blocks.

        Raises:
            LIBRARY_ERRORS: No answer came.
            HookRaised: A hook of the session raised.
        """
        if self._pool is not None:
            raw = self._pool.urlopen(
                request.method,
                request.path_url,
                body=request.body,
                headers=dict(request.headers),
                retries=_NO_RETRIES,
                redirect=False,
                timeout=Timeout(connect=timeout[0], read=timeout[1]),
                preload_content=False,
                decode_content=False,
            )
            return Received(raw.status, raw.headers, raw, None)
        response = self._adapter.send(request, stream=True, timeout=timeout, **self._settings)
        if self._response_hooks:
            try:
                details = {"timeout": timeout, "stream": True, **self._settings}
                response = dispatch_hook("response", self._response_hooks, response, **details)  # type: ignore[no-untyped-call]
            except BaseException as error:
                response.close()
                raise HookRaised(error) from None
        return Received(response.status_code, response.headers, response.raw, response)
