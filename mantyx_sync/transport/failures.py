"""What requests, urllib3 and http.client raise, put in our words and sorted by what it means for a retry."""

from __future__ import annotations

import socket
import ssl

import requests
from urllib3.exceptions import (
    ClosedPoolError,
    ConnectTimeoutError,
    EmptyPoolError,
    NewConnectionError,
    ProxyError,
    ReadTimeoutError,
    SSLError,
)

from ..errors import MantyxError, MantyxNetworkError, MantyxTimeoutError
from .retry import Failure

__all__ = ["Failed", "failed", "too_late"]


class Failed(Exception):
    """An exchange brought no answer: `error` is what the caller gets to see."""

    def __init__(self, failure: Failure, error: MantyxError) -> None:
        super().__init__(failure)
        self.failure, self.error = failure, error


def too_late(method: str, path: str, cause: BaseException | None) -> Failed:
    """Return the failure of an exchange that was cut off at its deadline."""
    error = MantyxTimeoutError(f"{method} {path}: the server's answer was not complete in time", cause=cause)
    return Failed(Failure.TIMED_OUT, error)


def failed(error: Exception, method: str, path: str, to: str = "") -> Failed:
    """Put a library error in our words. Its text may hold the whole URL, so only its kind is told."""
    chain = _chain(error)
    for link in chain:  # the frames of the libraries hold the request with its credential, as wire bytes too
        link.__traceback__ = None
    failure, name, call = _failure(chain), type(chain[-1]).__name__, f"{method} {path}"
    if failure is Failure.TIMED_OUT:
        return Failed(failure, MantyxTimeoutError(f"{call}: the server did not answer in time", cause=error))
    if failure is Failure.UNSENT:
        text = f"{call}: no connection{to} could be opened ({name}); the request was not sent"
        return Failed(failure, MantyxNetworkError(text, cause=error, sent=False))
    if failure is Failure.REFUSED:
        # The text of such an error may quote a header; its name has to do.
        cause = None if isinstance(error, ValueError) else error
        text = f"{call}: the request cannot be sent{to} ({name})"
        return Failed(failure, MantyxNetworkError(text, cause=cause, sent=False))
    text = f"{call}: the connection broke before the answer was complete ({name})"
    return Failed(failure, MantyxNetworkError(text, cause=error))


def _chain(error: BaseException) -> list[BaseException]:
    """Return an error and those it wraps, the outermost first.

    The context of an error may be one that the caller was handling when it called us. Only urllib3's own errors have
    their cause there.
    """
    chain = [error]
    while len(chain) < 10:
        last = chain[-1]
        wrapped = [getattr(last, "reason", None), getattr(last, "original_error", None), *last.args, last.__cause__]
        if type(last).__module__.startswith("urllib3."):
            wrapped.append(last.__context__)
        following = [link for link in wrapped if isinstance(link, BaseException) and link not in chain]
        if not following:
            break
        chain.append(following[0])
    return chain


def _failure(chain: list[BaseException]) -> Failure:
    """Sort an error of requests or urllib3 by what it wraps."""

    def has(*kinds: type[BaseException]) -> bool:
        return any(isinstance(link, kinds) for link in chain)

    if has(requests.exceptions.SSLError, SSLError, ssl.SSLError):
        is_distrust = has(ssl.SSLCertVerificationError) or "CERTIFICATE" in str(chain[-1]).upper()
        return Failure.REFUSED if is_distrust else Failure.LOST
    if has(requests.ConnectTimeout, NewConnectionError, ConnectTimeoutError, ClosedPoolError, EmptyPoolError):
        return Failure.UNSENT
    # urllib3 1.26 gives any error behind a proxy this name, also one that came after the request was sent.
    if has(requests.exceptions.ProxyError, ProxyError) and "unnel connection failed" in str(chain[-1]):
        return Failure.UNSENT
    if has(requests.ReadTimeout, ReadTimeoutError, socket.timeout):
        return Failure.TIMED_OUT
    # requests' InvalidURL, InvalidHeader, InvalidSchema and their kin; the retries of the caller's adapter gave up.
    if isinstance(chain[0], (ValueError, requests.exceptions.RetryError)):
        return Failure.REFUSED
    return Failure.LOST
