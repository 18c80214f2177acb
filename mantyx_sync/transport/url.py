"""Where requests may go: the base URL, paths below it, and the origin that credentials are kept to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Mapping, Union
from urllib.parse import quote, urlencode, urlsplit

from ..errors import MantyxConfigError

if TYPE_CHECKING:
    from urllib.parse import SplitResult

__all__ = ["BaseURL", "Query", "segment"]

Query = Mapping[str, Union[str, int, float, "list[str]", None]]

_DEFAULT_PORTS = {"http": 80, "https": 443}


def segment(value: str) -> str:
    """Percent-encode one path segment: an id can never reach another route."""
    encoded = quote(value, safe="-_~:")  # a lone dot would be resolved away
    return encoded.replace(".", "%2E") if value in (".", "..") else encoded


class BaseURL:
    """An absolute http(s) URL that paths are appended to."""

    def __init__(self, url: str, *, field: str = "base_url") -> None:
        """Check `url`.

        Raises:
            MantyxConfigError: It is not an absolute http(s) URL, or carries credentials, a query or a fragment.
        """
        text = url.strip() if isinstance(url, str) else ""
        try:
            parts = urlsplit(text)
            port = parts.port
        except ValueError:
            parts, port = urlsplit(""), None
        if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
            raise MantyxConfigError(
                f"{field}: got {_shown(parts, url)!r}, must be an absolute URL such as https://app.mantyx.io"
            )
        if parts.username is not None or parts.password is not None:
            raise MantyxConfigError(f"{field}: carries credentials; pass them as api_key or access_token instead")
        if parts.query or parts.fragment:
            raise MantyxConfigError(f"{field}: got {text!r}, must not carry a query or a fragment")
        self.text = text.rstrip("/")
        self.path = parts.path.rstrip("/")
        self.origin = (parts.scheme, parts.hostname.lower(), port or _DEFAULT_PORTS[parts.scheme])
        self.site = f"{parts.scheme}://{parts.netloc}"

    def __repr__(self) -> str:
        return f"BaseURL({self.text!r})"

    def join(self, path: str, query: Query | None = None) -> str:
        """Return the URL of `path`, which starts with a slash and is percent-encoded already, below this URL."""
        return self.text + path + (_encode(query) if query else "")

    def has_origin_of(self, url: str) -> bool:
        """Tell whether an absolute URL goes to this scheme, host and port."""
        try:
            parts = urlsplit(url)
            port = parts.port or _DEFAULT_PORTS.get(parts.scheme, -1)
        except ValueError:
            return False
        return (parts.scheme, (parts.hostname or "").lower(), port) == self.origin


def _encode(query: Query) -> str:
    pairs = {name: value for name, value in query.items() if value is not None}
    return "?" + urlencode(pairs, doseq=True) if pairs else ""


def _shown(parts: SplitResult, url: object) -> object:
    return "(a URL with credentials)" if "@" in parts.netloc else url
