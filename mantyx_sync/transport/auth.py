"""The credential of a client: sent as a bearer token, shown nowhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Mapping, NoReturn

from requests.auth import AuthBase, HTTPBasicAuth

from ..errors import MantyxConfigError
from .adapter import announce_to
from .flight import SingleFlight
from .secret import Secret

if TYPE_CHECKING:
    from requests import PreparedRequest

__all__ = ["BearerAuth", "TokenAuth", "session_auth"]

RENEW_WAIT_S = 60.0
"""How long a request waits for another one that is having the token renewed."""


class BearerAuth(AuthBase):
    """Put `Authorization: Bearer …` on a request.

    Being an auth object, it is what requests uses instead of a `.netrc` entry for the host. The token is kept in a
    closure: neither `repr` nor `vars` of any object shows it, and a pickle of it fails. White space around it is
    dropped: tokens are read from files that end in a line end.
    """

    def __init__(self, token: str) -> None:
        """Take the token.

        Raises:
            MantyxConfigError: It is empty, or holds a character that no header can carry.
        """
        header = _bearer(token)
        del token  # error trackers take the locals of the frames that an error passed
        if header is None:
            raise MantyxConfigError("the API key or access token is empty or holds a character no header can carry")
        self._header: Callable[[], str] = lambda: header

    def __repr__(self) -> str:
        return "BearerAuth(***)"

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        request.headers["Authorization"] = self._header()
        return request


class TokenAuth(AuthBase):
    """Ask a token source for the token of each request; renew it once when the server does not accept it (http §2).

    The source is called with a reason: `"initial"` before a request, which is to be cheap, and `"unauthorized"` after
    a 401, which is to give another token. Any thread may call it, several at once for `"initial"`; for a token that
    was rejected, one alone asks for another and the others get what it got. What the source raises is passed on.
    """

    def __init__(self, source: Callable[[Any], str]) -> None:
        """Take the source; it is not called yet.

        Raises:
            MantyxConfigError: It cannot be called.
        """
        if not callable(source):
            raise MantyxConfigError(f"token_source: got {type(source).__name__}, must be callable with a reason")
        self._source = source
        self._renewals: SingleFlight[str] = SingleFlight("renewing the access token")

    def __repr__(self) -> str:
        return "TokenAuth(***)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a TokenAuth cannot be pickled or copied: it gives out credentials")

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        request.headers["Authorization"] = self._ask("initial")
        return request

    def renew(self, request: PreparedRequest) -> bool:
        """Put another token on a request whose own was not accepted; false if the source has no other. Blocks."""
        rejected = request.headers["Authorization"]

        def another() -> str:
            # The token may have been renewed while the request was on its way.
            header = self._ask("initial")
            return header if header != rejected else self._ask("unauthorized")

        header = self._renewals.do(another, RENEW_WAIT_S, key=rejected)
        request.headers["Authorization"] = header
        return header != rejected

    def _ask(self, reason: str) -> Secret:
        # What a source asks of a server is shared by many requests: that one of them is released must not end it.
        with announce_to(None):
            header = _bearer(self._source(reason))
        if header is None:
            raise MantyxConfigError("token_source: it must return a token that a header can carry")
        return header


def session_auth(session: object, headers: Mapping[str, str]) -> AuthBase | None:
    """Return what a caller's session authenticates with, unless a header given beside it does.

    Raises:
        MantyxConfigError: It is nothing that requests could use.
    """
    auth = getattr(session, "auth", None)
    if auth is None or any(name.lower() == "authorization" for name in headers):
        return None
    if isinstance(auth, tuple) and len(auth) == 2:
        return HTTPBasicAuth(*auth)
    if not callable(auth):
        kind = type(auth).__name__
        raise MantyxConfigError(f"session.auth: got {kind}, must be a (user, password) tuple or callable")
    return auth  # type: ignore[no-any-return]  # requests takes any callable


def _bearer(token: object) -> Secret | None:
    """Return the header that carries a token, or `None` if none can."""
    if not isinstance(token, str):
        return None
    header = Secret(f"Bearer {token.strip()}")
    return header if header != "Bearer " and header.isascii() and header.isprintable() else None
