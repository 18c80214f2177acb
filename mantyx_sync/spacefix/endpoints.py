"""The gateway's three routes for agents, one exchange at a time (spacefix, "Overview")."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ..errors import MantyxProtocolError
from ..transport.http import HttpTransport
from ..transport.retry import RetryPolicy, parse_retry_after
from ..transport.url import site
from .errors import gateway_error

if TYPE_CHECKING:
    from typing import Mapping

    import requests
    from requests.auth import AuthBase

    from ..transport.answers import Opened
    from ..transport.body import Release
    from ..transport.url import BaseURL

__all__ = ["Endpoints"]

_MAX_ERROR_BYTES = 64 * 1024
_JSON = {"Content-Type": "application/json", "Accept": "application/json"}
_STREAM = {
    "Content-Type": "application/json",
    "Accept": "text/event-stream",
    "Accept-Encoding": "identity",
    "Cache-Control": "no-cache",
}


class Endpoints:
    """Asks one gateway with one key. Every method may be called from any thread; all block."""

    def __init__(
        self,
        base: BaseURL,
        auth: AuthBase,
        headers: Mapping[str, str],
        *,
        session: requests.Session | None,
        connect_timeout: float,
        idle_timeout: float,
    ) -> None:
        """Open nothing yet. Time-outs are in seconds; `idle_timeout` is for silence on the stream."""
        self._connect_timeout = connect_timeout
        self._idle_timeout = idle_timeout
        self._base = base
        self._transport = HttpTransport(
            base,
            auth=auth,
            make_error=gateway_error,
            timeout=(connect_timeout, connect_timeout),
            retry=RetryPolicy(max_retries=0),
            headers=headers,
            session=session,
        )

    def close(self) -> None:
        """Close idle connections."""
        self._transport.close()

    def connect(self, body: bytes, release: Release) -> Opened:
        """Register, and return the event stream. `release` ends every wait, also those for the stream's bytes.

        Raises:
            SpaceFixRegistrationError: The registration is not accepted.
            MantyxAPIError: The gateway refuses otherwise; `status` and `retry_after` say more.
            MantyxNetworkError, MantyxTimeoutError: No answer.
            MantyxProtocolError: An answer that is no event stream.
        """
        path = "/agent/connect"
        opened = self._transport.open(
            "POST",
            self._base.join(path),
            headers=_STREAM,
            data=body,
            connect_timeout=self._connect_timeout,
            read_timeout=self._idle_timeout,
            release=release,
        )
        try:
            self._refuse(path, opened)
            if opened.media_type != "text/event-stream":
                kind = opened.media_type or "none"
                raise MantyxProtocolError(f"POST {path}: the answer has content type {kind!r}, not an event stream")
        except BaseException:
            opened.close()
            raise
        return opened

    def post_result(self, body: bytes, timeout: float, release: Release) -> None:
        """Post the answer of a call.

        Args:
            timeout: Seconds to connect, and for the answer.

        Raises:
            MantyxAPIError, MantyxNetworkError, MantyxTimeoutError: It was not taken; as `connect`.
        """
        self._post("/agent/result", body, timeout, release)

    def post_telemetry(self, body: bytes, timeout: float, release: Release) -> None:
        """Post one sample; as `post_result`."""
        self._post("/agent/telemetry", body, timeout, release)

    def _post(self, path: str, body: bytes, timeout: float, release: Release) -> None:
        opened = self._transport.open(
            "POST",
            self._base.join(path),
            headers=_JSON,
            data=body,
            connect_timeout=min(timeout, self._connect_timeout),
            read_timeout=timeout,
            release=release,
        )
        self._refuse(path, opened)
        opened.read_all(_MAX_ERROR_BYTES)

    def _refuse(self, path: str, opened: Opened) -> None:
        """Raise the error of an answer that is none of success; it is closed then."""
        status = opened.status
        if status < 300:
            return
        if status < 400:
            opened.close()
            target = site(opened.headers.get("Location") or "")
            raise MantyxProtocolError(
                f"POST {path}: the gateway redirects ({status}) to {target!r}; redirects are not followed, so that "
                "the key does not leave its origin. Set SPACEFIX_URL to the final address."
            )
        body = opened.read_all(_MAX_ERROR_BYTES)
        retry_after = parse_retry_after(opened.headers.get("Retry-After"), time.time())
        raise gateway_error(status, opened.headers, body, method="POST", path=path, retry_after=retry_after)
