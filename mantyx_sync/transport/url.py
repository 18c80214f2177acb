"""Where requests may go: the base URL, paths below it, and the origin that credentials are kept to."""

from __future__ import annotations

import re
from typing import Mapping, NamedTuple, Union
from urllib.parse import quote, urlencode, urljoin, urlsplit

from ..errors import MantyxConfigError

__all__ = ["BaseURL", "Origin", "Query", "absolute", "origin_of", "segment", "site"]

Query = Mapping[str, Union[str, int, float, "list[str]", None]]

_DEFAULT_PORTS = {"http": 80, "https": 443}
_UNSAFE = re.compile(r"[\x00-\x20\x7f\\]")


class Origin(NamedTuple):
    """Scheme, host and port: what credentials are kept to."""

    scheme: str
    host: str
    port: int

    @property
    def site(self) -> str:
        """The origin as the start of a URL."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}" + ("" if self.port == _DEFAULT_PORTS[self.scheme] else f":{self.port}")


def absolute(url: str, base: str | None = None) -> str:
    """Return an http(s) URL in the form it is sent in: relative to `base` if it is, without a fragment.

    Raises:
        ValueError: It is none; the text says why, as the end of a sentence that starts with the URL.
    """
    text = url.strip()
    if _UNSAFE.search(text):
        raise ValueError("holds a character that no URL may hold")
    text = urljoin(base, text) if base else text
    try:
        parts = urlsplit(text)
        port = parts.port
        host = (parts.hostname or "").lower()
    except ValueError:
        raise ValueError("is not a URL") from None
    if parts.scheme not in _DEFAULT_PORTS or not host:
        raise ValueError("is not an absolute http(s) URL")
    if "@" in parts.netloc:
        raise ValueError("carries credentials; pass them in headers instead")
    if not host.isascii():
        try:
            host = host.encode("idna").decode("ascii")
        except UnicodeError:
            raise ValueError("has a host name that does not exist") from None
    origin = Origin(parts.scheme, host, _DEFAULT_PORTS[parts.scheme] if port is None else port)
    path = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~-._")
    query = quote(parts.query, safe="/%:@!$&'()*+,;=~-._?")
    return origin.site + path + (f"?{query}" if query else "")


def origin_of(url: str) -> Origin:
    """Return the origin of an absolute http(s) URL."""
    parts = urlsplit(url)
    port = _DEFAULT_PORTS[parts.scheme] if parts.port is None else parts.port
    return Origin(parts.scheme, parts.hostname or "", port)


def site(url: str) -> str:
    """Return where a URL that a peer named leads, for messages: no user, path or query, which may hold credentials.

    A path alone is returned as it is; either is cut to a length.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return "a broken URL"
    shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}" if parts.scheme else parts.path
    return shown[:200]


def segment(value: str) -> str:
    """Percent-encode one path segment: an id can never reach another route."""
    # A lone surrogate, in an id read from broken text, is for the server not to know: no reason to fail otherwise.
    encoded = quote(value, safe="-_~:", errors="surrogatepass")  # a lone dot would be resolved away
    return encoded.replace(".", "%2E") if value in (".", "..") else encoded


class BaseURL:
    """An absolute http(s) URL that paths are appended to."""

    def __init__(self, url: str, *, field: str = "base_url", example: str = "https://app.mantyx.io") -> None:
        """Check `url`; `example` is what a refusal shows.

        Raises:
            MantyxConfigError: It is not an absolute http(s) URL, or carries credentials, a query or a fragment.
        """
        text = url.strip() if isinstance(url, str) else ""
        try:
            parts = urlsplit(text)
            port = parts.port
        except ValueError:
            parts, port = urlsplit(""), None
        if "@" in (parts.netloc or text):  # before anything is quoted, however odd the rest of it is
            raise MantyxConfigError(f"{field}: carries credentials; pass them as api_key or access_token instead")
        if "?" in text or "#" in text:
            shown = text.partition("?")[0].partition("#")[0]
            raise MantyxConfigError(f"{field}: got {shown!r} and more, must not carry a query or a fragment")
        if parts.scheme not in _DEFAULT_PORTS or not parts.hostname or _UNSAFE.search(text):
            raise MantyxConfigError(f"{field}: got {url!r}, must be an absolute URL such as {example}")
        self.text = text.rstrip("/")
        self.path = parts.path.rstrip("/")
        port = _DEFAULT_PORTS[parts.scheme] if port is None else port
        self.origin = Origin(parts.scheme, parts.hostname.lower(), port)
        self.site = f"{parts.scheme}://{parts.netloc}"

    def __repr__(self) -> str:
        return f"BaseURL({self.text!r})"

    def join(self, path: str, query: Query | None = None) -> str:
        """Return the URL of `path`, which starts with a slash and is percent-encoded already, below this URL."""
        if path[:1] != "/":  # "@evil.example" would become another host
            raise ValueError("a path must start with a slash")
        return self.text + path + (_encode(query) if query else "")

    def has_origin_of(self, url: str) -> bool:
        """Tell whether an absolute URL goes to this scheme, host and port.

        What no valid URL holds is refused: the parser that looks here and the one that connects could read a
        backslash or a space differently, and the credential would go to another host.
        """
        try:
            parts = urlsplit(url)
            port = parts.port if parts.port is not None else _DEFAULT_PORTS.get(parts.scheme, -1)
        except ValueError:
            return False
        if _UNSAFE.search(url) or "@" in parts.netloc:
            return False
        return (parts.scheme, (parts.hostname or "").lower(), port) == self.origin


def _encode(query: Query) -> str:
    pairs = {name: _query_value(value) for name, value in query.items() if value is not None}
    return "?" + urlencode(pairs, doseq=True, errors="surrogatepass") if pairs else ""


def _query_value(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else value
