"""The address of an MCP server over HTTP: which headers go there, and which redirects are followed."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any, Mapping
from urllib.parse import urlsplit

from ..api_errors import api_error
from ..checks import refusal, seconds, shown
from ..errors import MantyxConfigError, MantyxNetworkError, MantyxProtocolError, MantyxTimeoutError
from ..headers import USER_AGENT, checked_headers
from ..transport.answers import Opened
from ..transport.auth import session_auth
from ..transport.body import Release
from ..transport.http import HttpTransport
from ..transport.redirects import MAX_REDIRECTS, follow, redirect_site
from ..transport.retry import RetryPolicy
from ..transport.secret import Secret
from ..transport.url import BaseURL
from .errors import McpConnectionError, McpProtocolError, McpTimeoutError

if TYPE_CHECKING:
    import requests

__all__ = ["Endpoint"]

log = logging.getLogger(__name__)

# Ours, whether a request carries them or not.
_PROTOCOL_HEADERS = re.compile(
    r"mcp-(session-id|protocol-version|method|name|param-.*)|accept|content-type|content-length|transfer-encoding|"
    r"connection|host|last-event-id",
    re.IGNORECASE,
)


class Endpoint:
    """Send requests to one URL, and to nowhere else. Every method may be called from any thread."""

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        session: requests.Session | None = None,
        connect_timeout: float = 10.0,
    ) -> None:
        """Check what was given; nothing is sent yet.

        Raises:
            MantyxConfigError: The URL, a header, the session or the time-out cannot be used.
        """
        base = _base(url)
        self._url = Secret(url.strip())  # services put keys into the query
        self._connect_timeout = seconds(connect_timeout, "connect_timeout")
        own = _own_headers(headers)
        self._transport = HttpTransport(
            base,
            auth=session_auth(session, own),
            make_error=api_error,
            timeout=self._connect_timeout,
            retry=RetryPolicy(max_retries=0),
            headers={"User-Agent": USER_AGENT, **own},
            session=session,
        )
        self._base = base
        self.label = f"MCP server {base.text}"
        """What to call the server in a sentence; without the query."""

    def __repr__(self) -> str:
        return f"Endpoint({self._base.text!r})"

    def close(self) -> None:
        """Close idle connections."""
        self._transport.close()

    def open(
        self, method: str, headers: Mapping[str, str], data: bytes | None, read_timeout: float, release: Release
    ) -> Opened:
        """Send one request and return its answer, which is no redirect. Blocks until the answer's headers are there.

        307 and 308 within the origin are followed.

        Raises:
            McpConnectionError: No answer. `sent` is false when the request surely did not arrive.
            McpTimeoutError: The answer did not begin in time.
            McpProtocolError: The server redirects elsewhere, too often, or in a way that changes the request.
        """
        try:
            opened = follow(
                self._transport,
                method,
                self._url,
                headers=headers,
                data=data,
                connect_timeout=min(self._connect_timeout, read_timeout),
                read_timeout=read_timeout,
                release=release,
                moved=self._moved,
            )
        except MantyxProtocolError:
            raise McpProtocolError(f"{self.label} redirects more than {MAX_REDIRECTS} times") from None
        except MantyxTimeoutError as error:
            raise McpTimeoutError(f"{self.label}: {error.message}", cause=error.__cause__) from error.__cause__
        except MantyxNetworkError as error:
            text = f"{self.label}: {error.message}"
            raise McpConnectionError(text, sent=error.sent, cause=error.__cause__) from error.__cause__
        if 300 <= opened.status < 400:
            opened.close()
            raise McpProtocolError(
                f"{self.label} redirects ({opened.status}) to {redirect_site(opened, self._url)}. Only 307 and 308 "
                "within the origin are followed, so that no credential leaves it; give the final address as url."
            )
        return opened

    def _moved(self, url: str) -> None:
        self._url = Secret(url)


def _base(url: Any) -> BaseURL:
    text = url.strip() if isinstance(url, str) else ""
    address, _, fragment = text.partition("#")
    address = address.partition("?")[0]
    try:
        if "@" in (urlsplit(text).netloc or address):
            raise refusal("url", "an address with credentials", "carry them in headers instead")
    except MantyxConfigError:
        raise
    except ValueError:
        pass
    if fragment:
        raise refusal("url", f"{address!r} with a fragment", "have none")
    try:
        return BaseURL(address, field="url")
    except MantyxConfigError:
        given = address if isinstance(url, str) else url
        raise refusal("url", shown(given), "be an absolute URL such as https://tools.example/mcp") from None


def _own_headers(headers: object) -> dict[str, str]:
    """Return the caller's headers without those that the protocol sets."""
    own: dict[str, str] = {}
    for name, value in checked_headers(headers).items():
        if _PROTOCOL_HEADERS.fullmatch(name):
            log.debug("header %s is set by the protocol; the one that was given is left out", name)
        else:
            own[name] = value
    return own
