"""The credential of a client: sent as a bearer token, shown nowhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable

from requests.auth import AuthBase

from ..errors import MantyxConfigError

if TYPE_CHECKING:
    from requests import PreparedRequest

__all__ = ["BearerAuth"]


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
        header = _Secret(f"Bearer {token.strip()}")
        del token  # error trackers take the locals of the frames that an error passed
        if header == "Bearer " or not header.isascii() or not header.isprintable():
            raise MantyxConfigError("the API key or access token is empty or holds a character no header can carry")
        self._header: Callable[[], str] = lambda: header

    def __repr__(self) -> str:
        return "BearerAuth(***)"

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        request.headers["Authorization"] = self._header()
        return request


class _Secret(str):
    """A text that is not shown where the headers it stands in are."""

    def __repr__(self) -> str:
        return "'***'"
