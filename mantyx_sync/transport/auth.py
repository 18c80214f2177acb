"""The credential of a client: sent as a bearer token, shown nowhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable

from requests.auth import AuthBase

if TYPE_CHECKING:
    from requests import PreparedRequest

__all__ = ["BearerAuth"]


class BearerAuth(AuthBase):
    """Put `Authorization: Bearer …` on a request.

    Being an auth object, it is what requests uses instead of a `.netrc` entry for the host. The token is kept in a
    closure: neither `repr` nor `vars` of any object shows it, and a pickle of it fails.
    """

    def __init__(self, token: str) -> None:
        self._header: Callable[[], str] = lambda: f"Bearer {token}"

    def __repr__(self) -> str:
        return "BearerAuth(***)"

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        request.headers["Authorization"] = self._header()
        return request
