"""What a client is set to: arguments checked, environment read, every bad value refused in a sentence."""

from __future__ import annotations

import os
import re
import threading
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Callable, Mapping, Optional, Tuple, Union

from .checks import seconds, shown, whole_number
from .errors import MantyxConfigError
from .headers import HEADER_NAME, USER_AGENT
from .progress import check_progress
from .transport.secret import Secret, SecretBytes

if TYPE_CHECKING:
    from .oauth import TokenSource
    from .progress import ProgressTo
    from .transport.http import Timeout

__all__ = ["DEFAULT_BASE_URL", "ClientSettings", "Credentials", "check_timeout", "hidden", "read_credentials"]

DEFAULT_BASE_URL = "https://app.mantyx.io"

_HEADER_VALUE = re.compile(r"[\x20-\x7e\t]*")


@dataclass(frozen=True)
class ClientSettings:
    """Settings that `with_options` can change. Times are in seconds."""

    timeout: Union[float, Tuple[float, float]] = (10.0, 60.0)
    """One HTTP exchange: connecting, and each wait for bytes of the answer. Not a bound on a run."""
    max_retries: int = 2
    """How often an exchange is repeated when that is safe."""
    stream_idle_timeout: float = 60.0
    """Silence on a run's stream after which it is opened anew."""
    reconnect_timeout: float = 300.0
    """How long a stream may bring nothing new before the run's snapshot decides."""
    recoverable_runs: bool = False
    """Tag each run's metadata, so that a run whose creation was not answered can be found again."""
    keep_deltas: bool = False
    """Keep text deltas in `RunResult.events` as well."""
    default_headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Sent with every request; `Authorization` cannot be among them."""
    app_info: str = ""
    """Name of the application, for the User-Agent: `"billing/1.2"`."""
    progress: Optional[ProgressTo] = None
    """Whom long work is told to that has nobody of its own."""

    def __post_init__(self) -> None:
        for name in ("stream_idle_timeout", "reconnect_timeout"):
            _check_seconds(name, getattr(self, name))
        check_timeout(self.timeout)
        whole_number(self.max_retries, "max_retries", 0, 20)
        headers: object = self.default_headers
        if not isinstance(headers, Mapping):
            kind = type(headers).__name__
            raise MantyxConfigError(f"default_headers: got a {kind}, must be a mapping of names to values")
        object.__setattr__(self, "default_headers", dict(self.default_headers))
        for header, value in self.default_headers.items():
            _check_header(header, value)
        if not isinstance(self.app_info, str) or not _HEADER_VALUE.fullmatch(self.app_info):
            raise MantyxConfigError(f"app_info: got {self.app_info!r}, must be printable ASCII text")
        check_progress(self.progress)

    def changed(self, options: Mapping[str, Any]) -> ClientSettings:
        """Return a copy with other values.

        Raises:
            TypeError: An option has no such name.
            MantyxConfigError: A value is not allowed.
        """
        unknown = options.keys() - {f.name for f in fields(self)}
        if unknown:
            raise TypeError(f"no such option: {', '.join(sorted(unknown))}")
        return replace(self, **options)

    @property
    def http_timeout(self) -> Timeout:
        """The time-out in the transport's form."""
        return self.timeout if isinstance(self.timeout, tuple) else float(self.timeout)

    @property
    def headers(self) -> dict[str, str]:
        """The headers of every request, without the credential."""
        return {"User-Agent": f"{USER_AGENT} {self.app_info}".rstrip(), **self.default_headers}


class Credentials:
    """Who asks, and which workspace: masked in every repr."""

    def __init__(self, token: str, workspace_slug: str, base_url: str, token_source: TokenSource | None = None) -> None:
        secret = Secret(token)
        self.reveal: Callable[[], str] = lambda: secret
        self.token_source = token_source
        """Where access tokens come from, instead of one that stays the same."""
        self.workspace_slug = workspace_slug
        self.base_url = base_url

    def __repr__(self) -> str:
        return f"Credentials(***, workspace_slug={self.workspace_slug!r})"


def hidden(value: Any) -> Any:
    """Return a credential in a form that no repr shows; what is none is returned as it is."""
    if isinstance(value, bytes):  # refused later on, and not to be shown then
        return SecretBytes(value)
    return Secret(value) if isinstance(value, str) else value


def read_credentials(
    api_key: str | None,
    access_token: str | None,
    token_source: TokenSource | None,
    workspace_slug: str | None,
    base_url: str | None,
) -> Credentials:
    """Complete what the caller gave from the environment.

    Raises:
        MantyxConfigError: Something is missing, given twice, or not usable as a header or URL.
    """
    given = {"api_key": api_key, "access_token": access_token, "token_source": token_source}
    names = [name for name, value in given.items() if value]
    if len(names) > 1:
        raise MantyxConfigError(f"{' and '.join(names)}: got {len(names)}, give one of them")
    token = api_key or access_token
    if not token and token_source is None:
        token = hidden(os.environ.get("MANTYX_API_KEY") or os.environ.get("MANTYX_ACCESS_TOKEN"))
        if not token and not (workspace_slug or os.environ.get("MANTYX_WORKSPACE_SLUG")):
            raise MantyxConfigError(
                "api_key and workspace_slug: missing; pass them, or set MANTYX_API_KEY and MANTYX_WORKSPACE_SLUG. "
                "Without an account, mantyx_sync.local.LocalServer has client_settings() that do."
            )
    slug = _slug(workspace_slug)
    base_url = base_url or os.environ.get("MANTYX_BASE_URL") or DEFAULT_BASE_URL
    if token_source is not None:
        return Credentials("", slug, base_url, token_source)
    if not token:
        raise MantyxConfigError(
            "api_key: missing; pass api_key= or access_token=, or set MANTYX_API_KEY or MANTYX_ACCESS_TOKEN"
        )
    if not isinstance(token, str) or not re.fullmatch(r"[\x21-\x7e]+", token.strip()):
        raise MantyxConfigError(
            f"{names[0] if names else 'api_key'}: holds characters that an HTTP header cannot carry"
        )
    return Credentials(Secret(token.strip()), slug, base_url)


def _slug(workspace_slug: str | None) -> str:
    slug = workspace_slug or os.environ.get("MANTYX_WORKSPACE_SLUG")
    if not slug or not isinstance(slug, str) or not slug.strip():
        raise MantyxConfigError("workspace_slug: missing; pass workspace_slug= or set MANTYX_WORKSPACE_SLUG")
    return slug.strip()


def check_timeout(timeout: object) -> None:
    """Refuse what is no time-out of an HTTP exchange.

    Raises:
        MantyxConfigError: It is neither seconds nor (connect, read).
    """
    parts = timeout if isinstance(timeout, tuple) else (timeout, timeout)
    if len(parts) != 2:
        raise MantyxConfigError(f"timeout: got {timeout!r}, must be seconds or (connect, read)")
    for part in parts:
        _check_seconds("timeout", part)


def _check_seconds(name: str, value: object) -> None:
    if seconds(value, name) > threading.TIMEOUT_MAX:
        limit = int(threading.TIMEOUT_MAX)
        raise MantyxConfigError(f"{name}: got {shown(value)}, must be at most {limit} seconds")


def _check_header(name: object, value: object) -> None:
    if not isinstance(name, str) or not HEADER_NAME.fullmatch(name):
        raise MantyxConfigError(f"default_headers: {name!r} is not a header name")
    if name.lower() == "authorization":
        raise MantyxConfigError("default_headers: must not hold Authorization; pass api_key= or access_token=")
    if not isinstance(value, str) or not _HEADER_VALUE.fullmatch(value):
        raise MantyxConfigError(f"default_headers: the value of {name!r} must be printable ASCII text")
