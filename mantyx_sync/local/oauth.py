"""OAuth of the embedded server: apps, refresh tokens, access tokens and their scopes (http §2).

Tokens are issued for the `refresh_token` and `client_credentials` grants; consent in a browser is not played,
so the refresh tokens of an app are configured. Does no I/O.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import secrets
import threading
from dataclasses import field
from typing import Any, Callable, Iterable, Mapping, Optional, Sequence
from urllib.parse import parse_qs, unquote_plus

from mantyx_sync.local.http import Request, Response, json_response
from mantyx_sync.reprs import dataclass

__all__ = ["ACCESS_TOKEN_LIFETIME_S", "SCOPES", "AccessToken", "OAuthApp", "OAuthServer"]

ACCESS_TOKEN_LIFETIME_S = 3600
SCOPES = (
    "models:read",
    "runs:read",
    "runs:write",
    "feedback:write",
    "sessions:read",
    "sessions:write",
    "mantyx.identity:read",
)
"""The scopes that routes of the embedded server ask for."""
_NO_STORE = (("Cache-Control", "no-store"), ("Pragma", "no-cache"))


@dataclass(frozen=True)
class OAuthApp:
    """An application registered with the embedded server, for `LocalServer(oauth_apps=…)`.

    Args:
        client_id: Its id; the platform's begin with `mantyx_oa_`.
        client_secret: Its secret; the platform's begin with `mantyx_oas_`.
        scopes: What its tokens may do.
        refresh_tokens: The refresh tokens users have granted it; or a mapping from each to its scopes.
        allows_client_credentials: Whether it gets tokens without a user.
        user: Who granted: what `GET /api/oauth/userinfo` says about `sub` and `email`.
    """

    client_id: str
    client_secret: str = field(repr=False)
    scopes: Sequence[str] = SCOPES
    refresh_tokens: Sequence[str] | Mapping[str, Sequence[str]] = field(default=(), repr=False)
    allows_client_credentials: bool = False
    user: Mapping[str, str] = field(default_factory=lambda: {"sub": "usr_local", "email": "user@example.com"})

    def granted(self, refresh_token: str) -> tuple[str, ...] | None:
        """Return the scopes of a refresh token of this app, or None if it is not one."""
        if refresh_token not in self.refresh_tokens:
            return None
        if isinstance(self.refresh_tokens, Mapping):
            return tuple(self.refresh_tokens[refresh_token])
        return tuple(self.scopes)


@dataclass
class AccessToken:
    """An access token that was given out. `expires` is a time of the server's clock, None for never."""

    scopes: tuple[str, ...]
    expires: Optional[float] = None
    app: Optional[OAuthApp] = None
    refresh_token: Optional[str] = None


class _OAuthError(Exception):
    def __init__(self, error: str, description: str, status: int = 400) -> None:
        super().__init__(error)
        self.error = error
        self.description = description
        self.status = status


class OAuthServer:
    """Gives out and takes back access tokens. Safe to use from several threads.

    Args:
        apps: The registered applications.
        tokens: Access tokens that exist from the start and do not expire by themselves, with their scopes.
        clock: The time in seconds.
    """

    def __init__(
        self,
        apps: Iterable[OAuthApp],
        tokens: Mapping[str, Sequence[str]],
        clock: Callable[[], float],
    ) -> None:
        self._apps = {app.client_id: app for app in apps}
        self._clock = clock
        self._tokens = {token: AccessToken(tuple(scopes)) for token, scopes in tokens.items()}
        self._revoked: set[str] = set()
        self._lock = threading.Lock()

    def lookup(self, token: str) -> AccessToken | None:
        """Return an access token that is valid now."""
        with self._lock:
            found = self._tokens.get(token)
            if found is None or (found.expires is not None and self._clock() >= found.expires):
                return None
            return found

    def expire_all(self) -> int:
        """Let every access token expire now, and return how many were valid until now."""
        with self._lock:
            now = self._clock()
            valid = [token for token in self._tokens.values() if token.expires is None or token.expires > now]
            for token in valid:
                token.expires = now
            return len(valid)

    # --------------------------------------------------------------- routes

    def token(self, request: Request) -> Response:
        """Answer `POST /api/oauth/token` (RFC 6749 §§4.4, 5, 6)."""
        try:
            form = _read_form(request)
            app = self._client(request, form)
            grant = form.get("grant_type")
            if grant == "refresh_token":
                payload = self._refresh(app, form)
            elif grant == "client_credentials":
                payload = self._client_credentials(app, form)
            elif not grant:
                raise _OAuthError("invalid_request", "grant_type is missing")
            else:
                raise _OAuthError("unsupported_grant_type", f"the grant type {grant[:60]!r} is not supported")
        except _OAuthError as problem:
            return _error(request, problem)
        return json_response(200, payload, *_NO_STORE)

    def revoke(self, request: Request) -> Response:
        """Answer `POST /api/oauth/revoke` (RFC 7009): 200 for a token nobody knows as well.

        A refresh token takes the access tokens with it that were issued for it.
        """
        try:
            form = _read_form(request)
            app = self._client(request, form)
            token = form.get("token")
            if not token:
                raise _OAuthError("invalid_request", "token is missing")
        except _OAuthError as problem:
            return _error(request, problem)
        with self._lock:
            if app.granted(token) is not None:
                self._revoked.add(token)
                for name in [name for name, held in self._tokens.items() if held.refresh_token == token]:
                    del self._tokens[name]
            elif token in self._tokens and self._tokens[token].app in (app, None):
                del self._tokens[token]
        return json_response(200, {}, *_NO_STORE)

    def _client(self, request: Request, form: Mapping[str, str]) -> OAuthApp:
        given = _read_basic(request) or (form.get("client_id", ""), form.get("client_secret", ""))
        app = self._apps.get(given[0])
        if app is None or not hmac.compare_digest(app.client_secret.encode(), given[1].encode()):
            raise _OAuthError("invalid_client", "unknown client or wrong secret", 401)
        return app

    def _refresh(self, app: OAuthApp, form: Mapping[str, str]) -> dict[str, Any]:
        refresh_token = form.get("refresh_token")
        if not refresh_token:
            raise _OAuthError("invalid_request", "refresh_token is missing")
        granted = app.granted(refresh_token)
        if granted is None or refresh_token in self._revoked:
            raise _OAuthError("invalid_grant", "the refresh token is unknown or was revoked")
        payload = self._issue(app, form, granted, refresh_token)
        return {**payload, "refresh_token": refresh_token}  # the same: refresh tokens do not rotate

    def _client_credentials(self, app: OAuthApp, form: Mapping[str, str]) -> dict[str, Any]:
        if not app.allows_client_credentials:
            raise _OAuthError("unauthorized_client", "this client may not use client_credentials")
        return self._issue(app, form, tuple(app.scopes), None)

    def _issue(
        self, app: OAuthApp, form: Mapping[str, str], granted: tuple[str, ...], refresh_token: str | None
    ) -> dict[str, Any]:
        wanted = tuple(form.get("scope", "").split()) or granted
        lacking = [scope for scope in wanted if scope not in granted]
        if lacking:
            raise _OAuthError("invalid_scope", f"not granted: {' '.join(lacking)[:200]}")
        token = f"mantyx_at_{secrets.token_urlsafe(32)}"
        with self._lock:
            expires = self._clock() + ACCESS_TOKEN_LIFETIME_S
            self._tokens[token] = AccessToken(wanted, expires, app, refresh_token)
        return {
            "access_token": token,
            "token_type": "Bearer",
            "expires_in": ACCESS_TOKEN_LIFETIME_S,
            "scope": " ".join(wanted),
        }


def _error(request: Request, problem: _OAuthError) -> Response:
    headers: tuple[tuple[str, str], ...] = _NO_STORE
    if problem.status == 401 and "authorization" in request.headers:
        headers = (*headers, ("WWW-Authenticate", "Basic"))
    return json_response(problem.status, {"error": problem.error, "error_description": problem.description}, *headers)


def _read_form(request: Request) -> dict[str, str]:
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/x-www-form-urlencoded":
        raise _OAuthError("invalid_request", "the body must be application/x-www-form-urlencoded")
    try:
        fields = parse_qs(request.body.decode("utf-8"), keep_blank_values=True)
    except ValueError:
        raise _OAuthError("invalid_request", "the body cannot be read") from None
    repeated = [name for name, values in fields.items() if len(values) > 1]
    if repeated:
        raise _OAuthError("invalid_request", f"{repeated[0][:60]} is given more than once")
    return {name: values[0] for name, values in fields.items()}


def _read_basic(request: Request) -> tuple[str, str] | None:
    """Read client credentials from the Authorization header, the other place RFC 6749 §2.3.1 has for them."""
    scheme, _, encoded = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        name, colon, secret = base64.b64decode(encoded.strip(), validate=True).decode("utf-8").partition(":")
    except (binascii.Error, ValueError):
        return None
    return (unquote_plus(name), unquote_plus(secret)) if colon else None
