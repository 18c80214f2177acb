"""One HTTP exchange at a time: sending, time-outs, retries, and errors in our words. Knows no MANTYX.

Requests go through a session's adapters, not through `Session.send`: no `.netrc`, no cookies, no redirects, and
half the cost. Proxies, CA files and client certificates of the session and the environment hold.
"""

from __future__ import annotations

import contextlib
import json
import logging
import random
import threading
import time
from typing import Callable, Mapping, Tuple, Union

import requests
from requests.auth import AuthBase
from requests.hooks import default_hooks
from requests.structures import CaseInsensitiveDict

from ..errors import MantyxConfigError, MantyxError, MantyxProtocolError, MantyxTimeoutError
from .adapter import announce_to
from .answers import Answer, Opened
from .body import Body, BodyBroken, Release, socket_of
from .cutoff import CutOff
from .failures import Failed, failed, too_late
from .retry import Failure, Repeat, RetryPolicy, parse_retry_after
from .route import LIBRARY_ERRORS, HookRaised, Received, Route
from .sessions import Sessions
from .url import BaseURL, Query, site

__all__ = ["Answer", "HttpTransport", "MakeError", "Timeout", "encode_json"]

log = logging.getLogger(__name__)

Timeout = Union[float, Tuple[float, float]]
"""Seconds for one HTTP exchange: connecting and each wait for bytes, alike or as (connect, read)."""

MakeError = Callable[..., MantyxError]
"""Builds the error of a refused request: (status, headers, body, method=, path=, retry_after=)."""

MAX_WAIT_S = 2_000_000.0
"""Longer waits are cut to this: the system counts milliseconds in 31 bits, and more would wrap round to less."""

_MAX_ERROR_BODY_BYTES = 64 * 1024


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
        self._renew: Callable[[requests.PreparedRequest], bool] | None = getattr(auth, "renew", None)
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
        content_type: str = "application/json",
        repeat: Repeat | None = None,
        timeout: Timeout | None = None,
        deadline: float | None = None,
        stop: threading.Event | None = None,
    ) -> Answer:
        """Send a request and return its answer, repeating it as the retry policy allows.

        Args:
            path: Starts with a slash, percent-encoded, below the base URL.
            body: Sent as JSON; `bytes` are sent as they are.
            content_type: What the body is.
            repeat: Whether the request may arrive twice; by default a GET may, anything else must not.
            timeout: Seconds for each exchange instead of the transport's own.
            deadline: On the monotonic clock. No try begins after it, and one that goes on is cut off, however its
                bytes trickle in.
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
            limit = self._limit(timeout, deadline, f"{method} {path}")
            cut_off = CutOff(deadline)
            try:
                with cut_off, announce_to(cut_off.release):
                    answer = self._exchange(method, path, query, data, content_type, limit, cut_off.release)
                if cut_off.release.called and not answer.has_known_end:
                    raise too_late(method, path, TimeoutError())
                return answer
            except _Refused as refused:
                delay = self.retry.after_status(refused.status, repeat, attempt, refused.retry_after, random.random())
                error = refused.error
            except Failed as failed:
                failure, error = failed.failure, failed.error
                if cut_off.release.called and failure is Failure.LOST:
                    failure, error = Failure.TIMED_OUT, too_late(method, path, error.__cause__).error
                delay = self.retry.after_failure(failure, repeat, attempt, random.random())
                if delay is not None and self._sessions.route().retries_itself:
                    delay = None
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
            MantyxProtocolError: 200 with another content type or a coding we did not ask for, a redirect, or a
                `url` of another origin. `status` is on the error.
        """
        path = self._path(url)
        wanted = {"Accept": "text/event-stream", "Accept-Encoding": "identity", "Cache-Control": "no-cache"}
        wanted.update(headers)
        try:
            received = self._send_releasably("GET", url, path, None, (connect_timeout, idle_timeout), wanted, release)
            self._check("GET", path, received)
            _check_type(path, received)
            body = Body(received, release)
        except _Refused as refused:
            error = refused.error
        except Failed as failed:
            error = failed.error
        except BodyBroken as broken:
            error = MantyxProtocolError(f"{path}: {broken}")
        else:
            log.debug("GET %s: stream opened", path)
            return body
        release.forget()  # the connection may serve others now
        raise error from error.__cause__

    def open(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        data: bytes | None = None,
        connect_timeout: float,
        read_timeout: float,
        release: Release,
    ) -> Opened:
        """Send a request once and return its answer, whatever its status, with the body still to be read.

        Blocks until the headers are there; `release` ends that wait as well as reads of the body. Redirects are
        answers like any other.

        Args:
            url: Absolute, of the base URL's origin; a query is allowed.
            read_timeout: Seconds for each wait for bytes.

        Raises:
            MantyxNetworkError: No answer. `sent` is false when the request surely did not arrive.
            MantyxTimeoutError: The answer did not begin in time.
            MantyxProtocolError: `url` is of another origin.
        """
        path = self._path(url)
        try:
            received = self._send_releasably(method, url, path, data, (connect_timeout, read_timeout), headers, release)
        except Failed as failure:
            error = failure.error
        else:
            log.debug("%s %s: %d", method, path, received.status)
            return Opened(method, path, received, release)
        release.forget()  # the connection may serve others now
        raise error from error.__cause__

    def _path(self, url: str) -> str:
        """Return the path of an absolute URL, which has to be of our origin."""
        if not self.base.has_origin_of(url):
            raise MantyxProtocolError(f"the address is at another origin ({site(url)}), where no credential is sent")
        return url[len(self.base.site) :].partition("?")[0]

    def _send_releasably(
        self,
        method: str,
        url: str,
        path: str,
        data: bytes | None,
        timeout: tuple[float, float],
        headers: Mapping[str, str],
        release: Release,
    ) -> Received:
        with announce_to(release):
            limit = (min(timeout[0], MAX_WAIT_S), min(timeout[1], MAX_WAIT_S))
            received = self._send(method, url, path, data, limit, headers)
        release.watch_socket(socket_of(received.raw))
        return received

    def _limit(self, timeout: Timeout | None, deadline: float | None, what: str) -> tuple[float, float]:
        chosen = self.timeout if timeout is None else timeout
        connect, read = chosen if isinstance(chosen, tuple) else (chosen, chosen)
        connect, read = min(connect, MAX_WAIT_S), min(read, MAX_WAIT_S)
        if deadline is None:
            return connect, read
        left = deadline - time.monotonic()
        if left <= 0:
            raise MantyxTimeoutError(f"{what}: no time left to send the request")
        return min(connect, left), min(read, left)

    def _exchange(
        self,
        method: str,
        path: str,
        query: Query | None,
        data: bytes | None,
        content_type: str,
        timeout: tuple[float, float],
        release: Release,
    ) -> Answer:
        headers = {"Accept": "application/json"}
        if data is not None:
            headers["Content-Type"] = content_type
        started = time.monotonic()
        received = self._send(method, self.base.join(path, query), path, data, timeout, headers)
        release.watch_socket(socket_of(received.raw))  # http.client lets go of a connection that is to be closed
        self._check(method, path, received)
        try:
            body = received.read()
            if method != "HEAD" and received.status != 204:
                received.check_complete(body)
        except LIBRARY_ERRORS as error:
            received.close()
            raise failed(error, method, path) from None
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
        try:
            route = self._sessions.route()
        except LIBRARY_ERRORS as error:
            if isinstance(error, MantyxError):
                raise
            raise failed(error, method, path) from None
        request = self._prepare(method, url, data, headers, route)
        received = self._transmit(route, request, path, timeout)
        if received.status == 401 and self._renew is not None:
            # Surely not carried out, so that with another token even a create goes out once more.
            try:
                is_renewed = self._renew(request)
            except BaseException:
                received.close()
                raise
            if is_renewed:
                _drop(received)
                log.info("%s %s: 401; sent once more with a new token", method, path)
                received = self._transmit(route, request, path, timeout)
        return received

    def _transmit(
        self, route: Route, request: requests.PreparedRequest, path: str, timeout: tuple[float, float]
    ) -> Received:
        try:
            return route.send(request, timeout)
        except HookRaised as raised:
            theirs = raised.error
        except LIBRARY_ERRORS as error:
            raise failed(error, request.method or "", path, f" to {self.base.site}{route.via}") from None
        raise theirs

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
        body = _drop(received)
        if status < 400:
            target = received.headers.get("Location", "")
            redirect = MantyxProtocolError(
                f"{method} {path}: the server redirects ({status}) to {site(target)!r}; redirects are not "
                "followed, so that no credential leaves its origin. Set base_url to the final address."
            )
            redirect.status = status
            raise _Refused(status, None, redirect)
        retry_after = parse_retry_after(received.headers.get("Retry-After"), time.time())
        log.debug("%s %s: %d", method, path, status)
        error = self._make_error(status, received.headers, body, method=method, path=path, retry_after=retry_after)
        raise _Refused(status, retry_after, error)


class _Refused(Exception):
    def __init__(self, status: int, retry_after: float | None, error: MantyxError) -> None:
        super().__init__(status)
        self.status, self.retry_after, self.error = status, retry_after, error


def encode_json(value: object) -> bytes:
    """Encode a request body.

    Raises:
        MantyxConfigError: It holds NaN, contains itself, is nested too deep, or holds a number of too many digits.
        TypeError: It holds what JSON has no form for.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise MantyxConfigError(f"the request's body cannot be written as JSON: {error}") from None
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:  # half of a surrogate pair: legal in JSON as an escape only
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode("ascii")


def _drop(received: Received) -> bytes:
    """Close an answer that was refused and return the start of its body."""
    body = b""
    with contextlib.suppress(Exception):  # the status is what counts; a broken body of an error adds nothing
        body = received.read_start(_MAX_ERROR_BODY_BYTES)
    received.close()  # a body that was read to its end has given its connection back already
    return body


def _check_type(path: str, received: Received) -> None:
    """Refuse an answer that is not an event stream."""
    status, kind = received.status, received.headers.get("Content-Type", "")
    media_type = kind.partition(";")[0].strip().lower()
    if status != 204:
        if media_type == "text/event-stream":
            return
        if "text/event-stream".startswith(media_type):  # a head that broke off in this line or before it?
            try:
                received.check_complete(received.read_start(1))
            except LIBRARY_ERRORS as error:
                raise failed(error, "GET", path) from None
    received.close()
    refusal = MantyxProtocolError(
        f"{path}: the server answered {status} with content type {kind or 'none'!r}, not with an event stream"
    )
    refusal.status = status
    raise _Refused(status, None, refusal)
