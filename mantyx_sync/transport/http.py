"""One HTTP exchange at a time: sending, time-outs, retries, and errors in our words. Knows no MANTYX.

Requests go through a session's adapters, not through `Session.send`: no `.netrc`, no cookies, no redirects, and
half the cost. Proxies, CA files and client certificates of the session and the environment hold.
"""

from __future__ import annotations

import contextlib
import json
import logging
import random
import socket
import threading
import time
from typing import Any, Callable, Mapping, NamedTuple, Tuple, Union
from urllib.parse import urlsplit

import requests
from requests.auth import AuthBase
from requests.hooks import default_hooks
from requests.structures import CaseInsensitiveDict
from urllib3.exceptions import (
    ConnectTimeoutError,
    MaxRetryError,
    NewConnectionError,
    ProxyError,
    ReadTimeoutError,
    SSLError,
)

from ..errors import MantyxError, MantyxNetworkError, MantyxProtocolError, MantyxTimeoutError
from .adapter import announce_to
from .body import Body, Release
from .retry import Failure, Repeat, RetryPolicy, parse_retry_after
from .route import LIBRARY_ERRORS, Received, Route
from .sessions import Sessions
from .url import BaseURL, Query

__all__ = ["Answer", "HttpTransport", "MakeError", "Timeout", "encode_json"]

log = logging.getLogger(__name__)

Timeout = Union[float, Tuple[float, float]]
"""Seconds for one HTTP exchange: connecting and each wait for bytes, alike or as (connect, read)."""

MakeError = Callable[..., MantyxError]
"""Builds the error of a refused request: (status, headers, body, method=, path=, retry_after=)."""

_MAX_ERROR_BODY_BYTES = 64 * 1024


class Answer(NamedTuple):
    """A complete answer with a status below 300."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    path: str

    def json(self) -> Any:
        """Decode the body; `None` when it is empty.

        Raises:
            MantyxProtocolError: The body is not JSON (a proxy's login page, for example).
        """
        if not self.body.strip():
            return None
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError) as error:
            kind = self.headers.get("Content-Type", "no content type")
            raise MantyxProtocolError(
                f"{self.path}: the server answered {self.status} with a body that is not JSON ({kind})"
            ) from error


class HttpTransport:
    """Send requests to one base URL with one credential. Every method may be called from any thread; all block."""

    def __init__(
        self,
        base: BaseURL,
        *,
        auth: AuthBase | None,
        make_error: MakeError,
        timeout: Timeout,
        retry: RetryPolicy,
        headers: Mapping[str, str],
        session: requests.Session | None = None,
    ) -> None:
        self.base = base
        self.timeout = timeout
        self.retry = retry
        self._auth = auth
        self._make_error = make_error
        self._sessions = Sessions(session, base.text + "/")
        self._headers = dict(headers)

    def derive(self, *, timeout: Timeout, retry: RetryPolicy, headers: Mapping[str, str]) -> HttpTransport:
        """Return a transport with other settings that shares connections and credential with this one."""
        other = object.__new__(HttpTransport)
        other.__dict__.update(self.__dict__)
        other.timeout, other.retry, other._headers = timeout, retry, dict(headers)
        return other

    def close(self) -> None:
        """Close idle connections. Later requests open new ones."""
        self._sessions.close()

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: object = None,
        repeat: Repeat | None = None,
        timeout: Timeout | None = None,
        deadline: float | None = None,
        stop: threading.Event | None = None,
    ) -> Answer:
        """Send a request and return its answer, repeating it as the retry policy allows.

        Args:
            path: Starts with a slash, percent-encoded, below the base URL.
            body: Sent as JSON; `bytes` are sent as they are, as JSON too.
            repeat: Whether the request may arrive twice; by default a GET may, anything else must not.
            timeout: Seconds for each exchange instead of the transport's own.
            deadline: On the monotonic clock; bounds all tries together.
            stop: Ends the wait between two tries when set.

        Raises:
            MantyxAPIError: The server refused the request (after retries where they help).
            MantyxNetworkError: No answer. `sent` is false when the request surely did not arrive.
            MantyxTimeoutError: `deadline` passed, or the server did not answer in time.
        """
        if repeat is None:
            repeat = Repeat.SAFE if method in ("GET", "HEAD") else Repeat.ONCE
        data = body if body is None or isinstance(body, bytes) else encode_json(body)
        for attempt in range(self.retry.max_retries + 1):
            try:
                return self._exchange(method, path, query, data, self._limit(timeout, deadline, path))
            except _Refused as refused:
                delay = self.retry.after_status(refused.status, repeat, attempt, refused.retry_after, random.random())
                error = refused.error
            except _Failed as failed:
                delay = self.retry.after_failure(failed.failure, repeat, attempt, random.random())
                error = failed.error
            if delay is None or (deadline is not None and time.monotonic() + delay >= deadline):
                raise error from error.__cause__
            log.info("%s %s: %s; next try in %.2f s", method, path, type(error).__name__, delay)
            if stop is None:
                time.sleep(delay)
            elif stop.wait(delay):
                raise error from error.__cause__
        raise AssertionError("the retry policy allows no more tries than max_retries")

    def open_stream(
        self,
        url: str,
        *,
        headers: Mapping[str, str],
        connect_timeout: float,
        idle_timeout: float,
        release: Release,
    ) -> Body:
        """Ask for an event stream once, without retries, and return its body.

        Blocks until the headers are there; `release` ends that wait as well as reads of the body.

        Raises:
            MantyxAPIError, MantyxNetworkError, MantyxTimeoutError: As `request`; `status` and `retry_after` are on
                the error.
            MantyxProtocolError: 200 with another content type, or a redirect.
        """
        path = url[len(self.base.site) :].partition("?")[0]
        wanted = {"Accept": "text/event-stream", "Accept-Encoding": "identity", "Cache-Control": "no-cache"}
        wanted.update(headers)
        try:
            with announce_to(release):
                received = self._send("GET", url, path, None, (connect_timeout, idle_timeout), wanted)
            self._check("GET", path, received)
        except _Refused as refused:
            raise refused.error from None
        except _Failed as failed:
            raise failed.error from failed.error.__cause__
        kind = received.headers.get("Content-Type", "")
        media_type = kind.partition(";")[0].strip().lower()
        if received.status == 204 or media_type != "text/event-stream":
            broke_off = "text/event-stream".startswith(media_type) and _broke_off(received)
            received.close()
            if broke_off:
                raise MantyxNetworkError(f"GET {path}: the connection broke in the headers of the answer")
            raise MantyxProtocolError(
                f"{path}: the server answered {received.status} with content type {kind or 'none'!r}, "
                "not with an event stream"
            )
        log.debug("GET %s: stream opened", path)
        return Body(received, release)

    def _limit(self, timeout: Timeout | None, deadline: float | None, path: str) -> tuple[float, float]:
        chosen = self.timeout if timeout is None else timeout
        connect, read = chosen if isinstance(chosen, tuple) else (chosen, chosen)
        if deadline is None:
            return connect, read
        left = deadline - time.monotonic()
        if left <= 0:
            raise MantyxTimeoutError(f"{path}: no time left to send the request")
        return min(connect, left), min(read, left)

    def _exchange(
        self, method: str, path: str, query: Query | None, data: bytes | None, timeout: tuple[float, float]
    ) -> Answer:
        headers = {"Accept": "application/json"}
        if data is not None:
            headers["Content-Type"] = "application/json"
        started = time.monotonic()
        received = self._send(method, self.base.join(path, query), path, data, timeout, headers)
        self._check(method, path, received)
        try:
            body = received.read()
        except LIBRARY_ERRORS as error:
            raise _failed(error, method, path) from None
        log.debug("%s %s: %d in %.0f ms", method, path, received.status, (time.monotonic() - started) * 1e3)
        return Answer(received.status, received.headers, body, path)

    def _send(
        self,
        method: str,
        url: str,
        path: str,
        data: bytes | None,
        timeout: tuple[float, float],
        headers: Mapping[str, str],
    ) -> Received:
        route = self._sessions.route()
        request = self._prepare(method, url, data, headers, route)
        try:
            return route.send(request, timeout)
        except LIBRARY_ERRORS as error:
            raise _failed(error, method, path) from None

    def _prepare(
        self, method: str, url: str, data: bytes | None, headers: Mapping[str, str], route: Route
    ) -> requests.PreparedRequest:
        # Built by hand: PreparedRequest.prepare would look into .netrc and costs more than the exchange itself.
        request = requests.PreparedRequest()
        request.method = method
        request.url = url
        request.headers = CaseInsensitiveDict(route.headers)
        request.headers.update(self._headers)
        request.headers.update(headers)
        request.hooks = default_hooks()
        request.body = data
        if data is not None or method not in ("GET", "HEAD"):
            request.headers["Content-Length"] = str(len(data or b""))
        if self._auth is not None:
            request = self._auth(request)
        return request

    def _check(self, method: str, path: str, received: Received) -> None:
        status = received.status
        if status < 300:
            return
        body = b""
        with contextlib.suppress(Exception):  # the status is what counts; a broken body of an error adds nothing
            body = received.raw.read(_MAX_ERROR_BODY_BYTES, decode_content=True) or b""
        received.close()  # a body that was read to its end has given its connection back already
        if status < 400:
            target = received.headers.get("Location", "")
            raise _Refused(
                status,
                None,
                MantyxProtocolError(
                    f"{method} {path}: the server redirects ({status}) to {_site(target)!r}; redirects are not "
                    "followed, so that no credential leaves its origin. Set base_url to the final address."
                ),
            )
        retry_after = parse_retry_after(received.headers.get("Retry-After"), time.time())
        log.debug("%s %s: %d", method, path, status)
        error = self._make_error(status, received.headers, body, method=method, path=path, retry_after=retry_after)
        raise _Refused(status, retry_after, error)


class _Refused(Exception):
    def __init__(self, status: int, retry_after: float | None, error: MantyxError) -> None:
        super().__init__(status)
        self.status, self.retry_after, self.error = status, retry_after, error


class _Failed(Exception):
    def __init__(self, failure: Failure, error: MantyxError) -> None:
        super().__init__(failure)
        self.failure, self.error = failure, error


def encode_json(value: object) -> bytes:
    """Encode a request body; NaN is refused rather than sent."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:  # half of a surrogate pair: legal in JSON as an escape only
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode("ascii")


def _broke_off(received: Received) -> bool:
    """Tell whether an answer ended in its headers: http.client takes what arrived of them for all there are."""
    if received.status == 204 or received.headers.get("Content-Length", "").strip() == "0":
        return False
    try:
        return not received.raw.read(1)
    except LIBRARY_ERRORS:
        return True


def _site(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}" if parts.scheme else parts.path


def _failed(error: Exception, method: str, path: str) -> _Failed:
    """Put a library error in our words. Its text may hold the whole URL, so only its kind is told."""
    failure = _failure(error)
    call = f"{method} {path}"
    if failure is Failure.TIMED_OUT:
        return _Failed(failure, MantyxTimeoutError(f"{call}: the server did not answer in time", cause=error))
    if failure is Failure.UNSENT:
        text = f"{call}: no connection could be opened ({_cause_name(error)}); the request was not sent"
        return _Failed(failure, MantyxNetworkError(text, cause=error, sent=False))
    if failure is Failure.REFUSED:
        text = f"{call}: the request cannot be sent ({_cause_name(error)})"
        return _Failed(failure, MantyxNetworkError(text, cause=error, sent=False))
    text = f"{call}: the connection broke before the answer was complete ({_cause_name(error)})"
    return _Failed(failure, MantyxNetworkError(text, cause=error))


def _failure(error: Exception) -> Failure:
    """Sort an error of requests or urllib3; requests wraps urllib3's in its arguments."""
    inner = error.args[0] if error.args else None
    reason = inner.reason if isinstance(inner, MaxRetryError) else inner
    causes = (error, reason)
    if any(isinstance(cause, (requests.exceptions.SSLError, SSLError)) for cause in causes):
        return Failure.REFUSED if "CERTIFICATE" in str(error).upper() else Failure.LOST
    if any(isinstance(cause, _UNSENT) for cause in causes):
        return Failure.UNSENT
    if any(isinstance(cause, _TIMED_OUT) for cause in causes):
        return Failure.TIMED_OUT
    if isinstance(error, ValueError):  # requests' InvalidURL, InvalidHeader, InvalidSchema and their kin
        return Failure.REFUSED
    return Failure.LOST


_UNSENT = (
    requests.ConnectTimeout,
    requests.exceptions.ProxyError,
    ProxyError,
    NewConnectionError,
    ConnectTimeoutError,
)
_TIMED_OUT = (requests.ReadTimeout, ReadTimeoutError, socket.timeout)


def _cause_name(error: BaseException) -> str:
    """Name the innermost cause: "ConnectionRefusedError" tells more than requests' "ConnectionError"."""
    inner = error.args[0] if error.args else None
    if isinstance(inner, MaxRetryError) and inner.reason is not None:
        inner = inner.reason
    cause = inner if isinstance(inner, BaseException) else error
    while cause.__cause__ is not None or cause.__context__ is not None:
        cause = cause.__cause__ or cause.__context__ or cause
    return type(cause).__name__
