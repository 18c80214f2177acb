"""One HTTP exchange with an agent: redirects within its origin are followed, others are told of."""

from __future__ import annotations

from typing import List, Mapping

from ..errors import MantyxProtocolError
from ..transport.answers import Opened
from ..transport.body import BodyBroken, BodyIdle, Release
from ..transport.http import HttpTransport
from .addresses import absolute, origin_of, shown_url

__all__ = ["follow", "redirect_words", "start_of"]

MAX_REDIRECTS = 3
MAX_ERROR_BODY_BYTES = 64 * 1024


def is_followed(opened: Opened, url: str) -> str | None:
    """Return where to send the request instead; `None` if the answer is no redirect that may be followed.

    Only redirects that keep method and body, and stay at the origin, are: nothing secret leaves it.
    """
    if opened.status not in (307, 308):
        return None
    try:
        target = absolute(str(opened.headers.get("Location") or ""), url)
    except ValueError:
        return None
    return target if origin_of(target) == origin_of(url) else None


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
) -> Opened:
    """Send a request and follow redirects within the origin; return the answer, whatever its status. Blocks.

    Raises:
        MantyxNetworkError, MantyxTimeoutError: As `HttpTransport.open`.
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
        target = is_followed(opened, url)
        if target is None:
            return opened
        opened.close()
        url = target
    raise MantyxProtocolError(f"{method} {shown_url(url)}: more than {MAX_REDIRECTS} redirects")


def redirect_words(opened: Opened, url: str) -> str:
    """Say of a redirect that is not followed where it leads."""
    try:
        site = origin_of(absolute(str(opened.headers.get("Location") or ""), url)).site
    except ValueError:
        site = "nowhere"
    return f"redirects ({opened.status}) to {site}, which is not followed"


def start_of(opened: Opened) -> bytes:
    """Return the start of an error's body, whose end frees the connection; what is wrong with it adds nothing."""
    pieces: List[bytes] = []
    size = 0
    try:
        while size < MAX_ERROR_BODY_BYTES:
            piece = opened.read()
            if not piece:
                break
            pieces.append(piece)
            size += len(piece)
    except (BodyBroken, BodyIdle):
        pass
    return b"".join(pieces)[:MAX_ERROR_BODY_BYTES]
