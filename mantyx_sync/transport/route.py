"""How a request leaves: through a session's adapter, or straight through the connection pool below our own.

`HTTPAdapter.send` looks its pool up anew and wraps every answer, which costs as much as the exchange itself; a tool
result posted for every call feels that. Only our own adapter is passed by: a session of the caller's keeps its say.
"""

from __future__ import annotations

from typing import Any, Callable, Mapping

import requests
from requests.adapters import BaseAdapter
from requests.utils import select_proxy
from urllib3 import Timeout
from urllib3.exceptions import HTTPError

from .adapter import Adapter

__all__ = ["LIBRARY_ERRORS", "Received", "Route"]

LIBRARY_ERRORS = (requests.RequestException, HTTPError, OSError)
"""What requests and urllib3 raise while sending and reading."""


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

    def close(self) -> None:
        """Close the connection, unless the body was read to its end."""
        if self._response is not None:
            self._response.close()
        else:
            self.raw.close()
            self.raw.release_conn()


class Route:
    """The way to one origin. Its settings are merged once, since merging costs more than sending."""

    def __init__(
        self,
        url: str,
        adapter: BaseAdapter,
        settings: dict[str, Any],
        headers: dict[str, str],
        response_hooks: list[Callable[..., Any]],
    ) -> None:
        """Take what was merged for `url`; `settings` are keyword arguments of `adapter.send`."""
        self.headers = headers
        self._adapter = adapter
        self._settings = settings
        self._response_hooks = response_hooks
        self._pool: Any = None
        if type(adapter) is Adapter and not response_hooks and not select_proxy(url, settings["proxies"]):
            self._pool = adapter.pool_for(url, settings["verify"], settings["cert"])

    def send(self, request: requests.PreparedRequest, timeout: tuple[float, float]) -> Received:
        """Send a request and return once its answer's headers are there. Blocks.

        Raises:
            LIBRARY_ERRORS: No answer came.
        """
        if self._pool is not None:
            raw = self._pool.urlopen(
                request.method,
                request.path_url,
                body=request.body,
                headers=dict(request.headers),
                retries=False,
                redirect=False,
                timeout=Timeout(*timeout),
                preload_content=False,
                decode_content=False,
            )
            return Received(raw.status, raw.headers, raw, None)
        response = self._adapter.send(request, stream=True, timeout=timeout, **self._settings)
        for hook in self._response_hooks:
            response = hook(response) or response
        return Received(response.status_code, response.headers, response.raw, response)
