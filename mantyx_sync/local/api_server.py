"""What the embedded servers of the MANTYX API have in common: routes' names, refusals, what points a client at them."""

from __future__ import annotations

import abc
from typing import Mapping, TypedDict

from mantyx_sync.local.http import Request, Response, json_response
from mantyx_sync.local.loopback import LoopbackServer
from mantyx_sync.local.routes import match_route

__all__ = ["ApiServer", "ClientSettings", "proxy_exceptions"]

_PROXIES = ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")


class ClientSettings(TypedDict):
    """The arguments that point a `MantyxClient` at a server. A `TypedDict`, so that type checkers accept `**` of it."""

    base_url: str
    api_key: str
    workspace_slug: str


class ApiServer(LoopbackServer):
    """A loopback server with the addresses of the MANTYX API."""

    @abc.abstractmethod
    def client_settings(self) -> ClientSettings:
        """Return the arguments that point a `MantyxClient` at this server."""

    def environment(self) -> dict[str, str]:
        """Return the environment variables that point a program's `MantyxClient()` at this server."""
        settings = self.client_settings()
        return {
            "MANTYX_BASE_URL": settings["base_url"],
            "MANTYX_API_KEY": settings["api_key"],
            "MANTYX_WORKSPACE_SLUG": settings["workspace_slug"],
        }

    def _route_of(self, request: Request) -> str:
        route = match_route(request)[1]
        return route.name if route else ""

    def _refuse(self, status: int, message: str) -> Response:
        error = "internal_error" if status == 500 else "invalid_request"
        return json_response(status, {"error": error, "message": message})


def proxy_exceptions(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that keep a proxy which an environment names out of the way of servers on loopback.

    None where it names none.
    """
    if not any(environment.get(name) for name in _PROXIES):
        return {}
    names = ("NO_PROXY", "no_proxy")
    return {name: ",".join(filter(None, [environment.get(name), "127.0.0.1"])) for name in names}
