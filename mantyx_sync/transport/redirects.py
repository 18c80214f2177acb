"""Redirects that may be followed: those that keep the request as it is, and stay where its credentials may go."""

from __future__ import annotations

import logging
from typing import Callable, Mapping
from urllib.parse import urljoin

from ..errors import MantyxProtocolError
from .answers import Opened
from .body import Release
from .http import HttpTransport
from .secret import Secret
from .url import absolute, origin_of, site

__all__ = ["MAX_REDIRECTS", "follow", "redirect_site"]

log = logging.getLogger(__name__)

MAX_REDIRECTS = 3


def follow(
    transport: HttpTransport,
    method: str,
    url: str,
    *,
    headers: Mapping[str, str],
    data: bytes | None,
    connect_timeout: float,
    read_timeout: float,
    release: Release,
    moved: Callable[[str], None] | None = None,
) -> Opened:
    """Send a request, follow 307 and 308 within the origin, and return the answer, whatever its status. Blocks.

    Any other redirect is returned as it came: `redirect_site` says where it would lead.

    Args:
        moved: Told of an address that is the request's from now on (308).

    Raises:
        MantyxNetworkError, MantyxTimeoutError: As `HttpTransport.open`.
        MantyxProtocolError: There are more than `MAX_REDIRECTS`.
    """
    for _ in range(MAX_REDIRECTS + 1):
        opened = transport.open(
            method,
            url,
            headers=headers,
            data=data,
            connect_timeout=connect_timeout,
            read_timeout=read_timeout,
            release=release,
        )
        target = _followed(opened, url)
        if target is None:
            return opened
        opened.close()
        log.debug("%s: redirected (%d) within the origin", method, opened.status)
        url = target
        if opened.status == 308 and moved is not None:
            moved(target)
    raise MantyxProtocolError(f"{method}: more than {MAX_REDIRECTS} redirects")


def _followed(opened: Opened, url: str) -> Secret | None:
    """Return where to send the request instead; `None` if the answer is no redirect that may be followed."""
    location = _location(opened)
    if opened.status not in (307, 308) or not location:
        return None
    try:
        target = absolute(location, url)
    except ValueError:
        return None
    return Secret(target) if origin_of(target) == origin_of(url) else None  # services put keys into the query


def redirect_site(opened: Opened, url: str) -> str:
    """Say for a message where a redirect leads that was not followed: scheme, host and port."""
    location = _location(opened)
    try:
        return (site(urljoin(url, location)) if location else "") or "nowhere"
    except ValueError:
        return "nowhere"


def _location(opened: Opened) -> str:
    return str(opened.headers.get("Location") or "").strip()
