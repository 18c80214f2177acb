"""OAuth 2.0 refresh (http §2): short-lived access tokens from a stored refresh token, and their revocation.

How the refresh token was obtained is the application's affair; this module starts no sign-in.
"""

from __future__ import annotations

import logging
import math
import re
import time
from dataclasses import field
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Iterable,
    Literal,
    Mapping,
    NoReturn,
    Protocol,
    Union,
    runtime_checkable,
)
from urllib.parse import urlencode

from .api_errors import api_error, request_id
from .errors import MantyxConfigError, MantyxError, MantyxOAuthError, MantyxProtocolError
from .reprs import brief, dataclass
from .settings import DEFAULT_BASE_URL, ClientSettings
from .transport.flight import SingleFlight
from .transport.secret import Secret, SecretBytes

if TYPE_CHECKING:
    import requests

    from .transport.answers import Answer

__all__ = [
    "DEFAULT_OAUTH_BASE_URL",
    "DEFAULT_REFRESH_SKEW_S",
    "MantyxOAuthClient",
    "OAuthToken",
    "RefreshTokenSource",
    "Scope",
    "TokenRequestReason",
    "TokenSource",
]

log = logging.getLogger(__name__)

DEFAULT_OAUTH_BASE_URL = DEFAULT_BASE_URL
DEFAULT_REFRESH_SKEW_S = 60.0
_LIFETIME_S = 3600
"""What access tokens live if the server does not say (http §2)."""
_SHORT_SECRET = 8
"""Fewer characters than this make a secret that may be a part of other words."""
_RETRY_EARLY_S = 10.0
"""How long an early refresh that failed is not tried again: the token in hand is still good."""
_GRACE_S = 5.0
"""How much longer than a token request may take others wait for it."""

TokenRequestReason = Literal["initial", "expired", "unauthorized"]
"""Why a token is asked for: `initial` before each request, `unauthorized` after a 401, `expired` before its time."""

Scope = Union[str, Iterable[str], None]
"""Scopes as one text with spaces, or one by one."""


@runtime_checkable
class TokenSource(Protocol):
    """Gives the access token to send. `MantyxClient(token_source=…)` takes any function of this form.

    It is called before each request, by any thread, and with `"unauthorized"` when the server did not accept the
    token: then it must get another one.
    """

    def __call__(self, reason: TokenRequestReason = "initial") -> str:
        """Return the access token; may block."""
        ...


@dataclass(frozen=True, repr=False)
class OAuthToken:
    """What the token endpoint gave. Times are in seconds, `expires_at` on the clock of `time.time()`.

    `refresh_token` is the one that was sent: it neither changes nor expires. Not to be pickled, since both tokens
    would go wherever the pickle goes: store the fields you need.
    """

    access_token: str
    refresh_token: str | None = None
    token_type: str = "Bearer"
    expires_in: int = _LIFETIME_S
    expires_at: float = math.inf
    scope: str | None = None

    def __post_init__(self) -> None:
        for name in ("access_token", "refresh_token"):
            value = getattr(self, name)
            if isinstance(value, str):  # so that not even `vars()` shows it
                object.__setattr__(self, name, Secret(value))

    def __repr__(self) -> str:
        return f"OAuthToken(***, scope={brief(self.scope, 80)}, expires_at={brief(self.expires_at, 80)})"

    def __copy__(self) -> OAuthToken:
        return self

    def __deepcopy__(self, memo: object) -> OAuthToken:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("an OAuthToken cannot be pickled: it holds credentials. Store the fields you need")


class MantyxOAuthClient:
    """The token endpoint of the platform, for one OAuth app (http §2).

    Every method may be called from any thread and blocks for one request, repeated where that helps. It goes on
    working in the children of a `fork`.
    """

    def __init__(
        self,
        *,
        client_id: str,
        client_secret: str,
        base_url: str | None = None,
        timeout: float = 30.0,
        max_retries: int = 2,
        session: requests.Session | None = None,
        default_headers: Mapping[str, str] | None = None,
        app_info: str = "",
    ) -> None:
        """Check the settings; does no I/O.

        Args:
            client_id: Of the app, `mantyx_oa_…`.
            client_secret: Of the app, `mantyx_oas_…`.
            base_url: Without it `MANTYX_BASE_URL`, else the platform's own address.
            timeout: Seconds for one call, repetitions included.
            max_retries: How often a request is repeated where that may help.
            session: Your own `requests.Session`, used as `MantyxClient` uses it.
            default_headers: Sent with every request.
            app_info: Your application's name, for the User-Agent.

        Raises:
            MantyxConfigError: A setting is missing or not allowed.
        """
        secret, client_secret = _secret(client_secret), ""  # error trackers record the locals of frames
        if secret is None:
            raise MantyxConfigError("client_secret: missing, must be the secret of the OAuth app")
        if not isinstance(client_id, str) or not client_id.strip():
            raise MantyxConfigError("client_id: missing, must be the id of the OAuth app")
        if type(timeout) not in (int, float):
            raise MantyxConfigError(f"timeout: got {timeout!r}, must be a number of seconds above 0")
        settings = ClientSettings(
            timeout=timeout, max_retries=max_retries, default_headers=default_headers or {}, app_info=app_info
        )
        # Imported here, so that importing this module does not load requests and ssl: gevent wants to be first.
        import os

        from .transport.http import HttpTransport
        from .transport.retry import RetryPolicy
        from .transport.url import BaseURL

        base = BaseURL(base_url or os.environ.get("MANTYX_BASE_URL") or DEFAULT_BASE_URL)
        self.client_id = client_id.strip()
        self.base_url = base.text
        self.timeout = float(timeout)
        self._reveal: Callable[[], Secret] = lambda: secret
        self._transport = HttpTransport(
            base,
            auth=None,
            make_error=_refusal,
            timeout=self.timeout,
            retry=RetryPolicy(max_retries=max_retries),
            headers=settings.headers,
            session=session,
        )

    def __repr__(self) -> str:
        return f"MantyxOAuthClient(client_id={self.client_id!r}, base_url={self.base_url!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a MantyxOAuthClient cannot be pickled or copied: it holds a secret and connections")

    def __enter__(self) -> MantyxOAuthClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close idle connections. Later calls, also of token sources, open new ones."""
        self._transport.close()

    def refresh(self, *, refresh_token: str, scope: Scope = None) -> OAuthToken:
        """Trade a refresh token for an access token (http §2). Blocks.

        Args:
            refresh_token: `mantyx_rt_…`; it stays good.
            scope: Ask for less than was consented to.

        Raises:
            MantyxConfigError: An argument is not allowed; nothing was sent.
            MantyxOAuthError: The endpoint refused. `oauth_error == "invalid_grant"`: the token was revoked, the user
                has to sign in anew.
            MantyxNetworkError, MantyxTimeoutError: No answer.
        """
        secret, refresh_token = _secret(refresh_token), ""
        if secret is None:
            raise MantyxConfigError("refresh_token: missing, must be the refresh token of a sign-in")
        form = {"grant_type": "refresh_token", "refresh_token": secret}
        scopes = _scope_text(scope)
        if scopes:
            form["scope"] = scopes
        asked_at = time.time()
        answer = self._post("/api/oauth/token", form)
        token = _read_token(answer, asked_at)
        if token is None:
            raise MantyxOAuthError(
                "invalid_response",
                "the token endpoint's answer holds no access token",
                answer.status,
                request_id=request_id(answer.headers),
            )
        return token

    def revoke(self, *, token: str) -> None:
        """Revoke a token (http §2). Blocks. The server says yes to any token, known or not.

        Args:
            token: A refresh token, which ends with it every access token of its sign-in; or one access token.

        Raises:
            MantyxConfigError: `token` is missing; nothing was sent.
            MantyxOAuthError: The endpoint refused.
            MantyxNetworkError, MantyxTimeoutError: No answer.
        """
        secret, token = _secret(token), ""
        if secret is None:
            raise MantyxConfigError("token: missing, must be the token to revoke")
        self._post("/api/oauth/revoke", {"token": secret})

    def refresh_token_source(
        self,
        *,
        refresh_token: str,
        scope: Scope = None,
        refresh_skew_s: float = DEFAULT_REFRESH_SKEW_S,
        initial_token: OAuthToken | None = None,
        clock: Callable[[], float] = time.time,
    ) -> RefreshTokenSource:
        """Return a source of access tokens for `MantyxClient(token_source=…)`. Sends nothing yet.

        Args:
            refresh_token: `mantyx_rt_…`.
            scope: Ask for less than was consented to.
            refresh_skew_s: Seconds before its expiry at which a token is renewed.
            initial_token: A token in hand that is still good: it is used first.
            clock: Tells the time, as `time.time` does.

        Raises:
            MantyxConfigError: An argument is not allowed.
        """
        secret, refresh_token = _secret(refresh_token), ""
        if secret is None:
            raise MantyxConfigError("refresh_token: missing, must be the refresh token of a sign-in")
        scopes = _scope_text(scope)
        return RefreshTokenSource(
            lambda: self.refresh(refresh_token=secret, scope=scopes),
            max_wait=self.timeout + _GRACE_S,
            refresh_skew_s=refresh_skew_s,
            initial_token=initial_token,
            clock=clock,
        )

    def _post(self, path: str, fields: Mapping[str, str]) -> Answer:
        from .transport.retry import Repeat

        form = {**fields, "client_id": self.client_id, "client_secret": self._reveal()}
        try:
            return self._transport.request(
                "POST",
                path,
                body=SecretBytes(urlencode(form).encode("ascii")),
                content_type="application/x-www-form-urlencoded",
                # Refresh tokens stay good when used, and revoking twice changes nothing (http §2).
                repeat=Repeat.SAFE,
                deadline=time.monotonic() + self.timeout,
            )
        except MantyxOAuthError as error:
            raise _without(error, [value for value in form.values() if isinstance(value, Secret)]) from None


@dataclass
class _State:
    """What a source knows."""

    token: OAuthToken | None = None
    refusal: MantyxOAuthError | None = None
    """Ends it: the refresh token was revoked."""
    early_again_at: float = field(default=-math.inf)


class RefreshTokenSource:
    """Keeps an access token and renews it: ahead of its expiry, or when it was not accepted (http §2).

    Call it for the token. Safe to use from any thread and after a fork: however many threads ask, one refreshes, and
    the others wait for it, or go on with the token in hand while that is good. A refresh token that was revoked ends
    it: every later call raises at once, without a request.
    """

    def __init__(
        self,
        mint: Callable[[], OAuthToken],
        *,
        max_wait: float = 60.0,
        refresh_skew_s: float = DEFAULT_REFRESH_SKEW_S,
        initial_token: OAuthToken | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Take what gets a new token; `MantyxOAuthClient.refresh_token_source` makes these.

        Args:
            mint: Gets a token; blocks.
            max_wait: Seconds to wait for another thread that is at it.
        """
        is_number = isinstance(refresh_skew_s, (int, float)) and not isinstance(refresh_skew_s, bool)
        if not is_number or not 0 <= refresh_skew_s < math.inf:
            raise MantyxConfigError(f"refresh_skew_s: got {refresh_skew_s!r}, must be a number of seconds, 0 or above")
        if initial_token is not None and not isinstance(initial_token, OAuthToken):
            raise MantyxConfigError(f"initial_token: got {type(initial_token).__name__}, must be an OAuthToken")
        self._mint = mint
        self._max_wait = max_wait
        self._skew = float(refresh_skew_s)
        self._clock = clock
        self._state = _State(initial_token)
        self._flight: SingleFlight[OAuthToken] = SingleFlight("refreshing the access token")

    def __repr__(self) -> str:
        state = "ended" if self._state.refusal else "***" if self._state.token else "no token yet"
        return f"<RefreshTokenSource {state}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a RefreshTokenSource cannot be pickled or copied: it gives out credentials")

    @property
    def token(self) -> OAuthToken | None:
        """The token in hand, good or not; `None` before the first."""
        return self._state.token

    def __call__(self, reason: TokenRequestReason = "initial") -> str:
        """Return an access token. Blocks while there is none that is good.

        Args:
            reason: `"unauthorized"` gets another token, however good the one in hand looks.

        Raises:
            MantyxOAuthError: The token endpoint refused, now or, with `invalid_grant`, ever.
            MantyxNetworkError, MantyxTimeoutError: It did not answer.
        """
        state = self._state
        known = state.token
        if state.refusal is not None:
            raise _copy(state.refusal)
        is_good = False
        if reason != "unauthorized" and known is not None:
            now = self._clock()
            if now < self._renew_at(known):
                return known.access_token
            is_good = now < known.expires_at
            if is_good and (now < state.early_again_at or self._flight.is_under_way()):
                return known.access_token

        def renew() -> OAuthToken:
            # Another thread may have renewed it since this one looked.
            if state.token is not None and state.token is not known:
                return state.token
            return self._renew()

        try:
            return self._flight.do(renew, self._max_wait).access_token
        except MantyxError as error:
            if known is None or not is_good or state.refusal is not None:
                raise
            log.info("the access token could not be renewed early: %s", error)
            state.early_again_at = self._clock() + _RETRY_EARLY_S
            return known.access_token

    def _renew(self) -> OAuthToken:
        try:
            token = self._state.token = self._mint()
        except MantyxOAuthError as error:
            if error.oauth_error == "invalid_grant":
                self._state.refusal = _copy(error)
            raise
        self._state.early_again_at = -math.inf
        return token

    def _renew_at(self, token: OAuthToken) -> float:
        # A token that lives no longer than the skew would otherwise be renewed for each request.
        return token.expires_at - min(self._skew, token.expires_in / 2)


def _secret(value: object) -> Secret | None:
    """Return a credential without the white space around it, or `None` if there is none."""
    return (Secret(value.strip()) or None) if isinstance(value, str) else None


def _scope_text(scope: object) -> str | None:
    if scope is None:
        return None
    names: list[str] = []
    for name in [scope] if isinstance(scope, str) or not isinstance(scope, Iterable) else scope:
        if not isinstance(name, str):
            raise MantyxConfigError(f"scope: got {type(name).__name__}, must be text or a list of texts")
        names += name.split()
    return " ".join(names) or None


def _read_token(answer: Answer, asked_at: float) -> OAuthToken | None:
    """Read the endpoint's answer; `None` if it holds no token. Raises nothing, so that no frame shows the token."""
    try:
        fields = answer.json()
    except MantyxProtocolError:
        return None
    access_token = fields.get("access_token") if isinstance(fields, Mapping) else None
    if not isinstance(access_token, str) or not access_token:
        return None
    refresh_token, scope, kind = (fields.get(name) for name in ("refresh_token", "scope", "token_type"))
    lifetime = _seconds(fields.get("expires_in"))
    return OAuthToken(
        access_token=access_token,
        refresh_token=refresh_token if isinstance(refresh_token, str) else None,
        token_type=kind if isinstance(kind, str) and kind else "Bearer",
        expires_in=lifetime,
        expires_at=asked_at + lifetime,
        scope=scope if isinstance(scope, str) else None,
    )


def _seconds(value: object) -> int:
    try:
        return max(0, int(float(value)))  # type: ignore[arg-type]  # whatever it is not, it raises
    except (TypeError, ValueError, OverflowError):
        return _LIFETIME_S


def _refusal(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    method: str,
    path: str,
    retry_after: float | None = None,
) -> MantyxOAuthError:
    """Build the error of an answer of the endpoint (RFC 6749 §5.2)."""
    # The same tolerance for odd bodies as everywhere; its body is not kept, an endpoint may echo what it was sent.
    refused = api_error(status, headers, body, method=method, path=path, retry_after=retry_after)
    fields: Any = refused.body if isinstance(refused.body, dict) else {}
    word, description = fields.get("error"), fields.get("error_description")
    if not isinstance(word, str) or not word:
        word = f"http_{status}"
    if not isinstance(description, str):
        description = refused.message if word == f"http_{status}" else None
    return MantyxOAuthError(word, description, status, request_id=refused.request_id)


def _without(error: MantyxOAuthError, secrets: Iterable[str]) -> MantyxOAuthError:
    """Return the error without the secrets that the server may have quoted."""
    word, description = error.oauth_error, error.oauth_error_description
    for secret in secrets:
        around = ("", "") if len(secret) >= _SHORT_SECRET else (r"(?<!\w)", r"(?!\w)")
        quoted = re.compile(around[0] + re.escape(secret) + around[1])
        word = quoted.sub("***", word)
        description = quoted.sub("***", description) if description else description
    return MantyxOAuthError(word, description, error.status, request_id=error.request_id)


def _copy(error: MantyxOAuthError) -> MantyxOAuthError:
    return _without(error, ())
