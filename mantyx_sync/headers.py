"""Header fields that a caller gives to be sent with every request, and what this package calls itself."""

from __future__ import annotations

import platform
import re
from typing import Mapping

from ._version import __version__
from .checks import kind_of, refusal, shown
from .transport.secret import Secret

__all__ = ["HEADER_NAME", "USER_AGENT", "checked_headers"]

HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

USER_AGENT = f"mantyx-sync/{__version__} Python/{platform.python_version()}"

_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


def checked_headers(headers: object) -> dict[str, Secret]:
    """Return headers whose values no repr shows; a refusal names no value.

    Raises:
        MantyxConfigError: They are no mapping of names to text that a header can carry.
    """
    if headers is None:
        return {}
    if not isinstance(headers, Mapping):
        raise refusal("headers", kind_of(headers), "be a mapping of names to values")
    checked: dict[str, Secret] = {}
    for name, value in headers.items():
        if not isinstance(name, str) or not HEADER_NAME.fullmatch(name):
            raise refusal("headers", f"the name {shown(name)}", "be a header name")
        if not isinstance(value, str) or not _VALUE.fullmatch(value):
            raise refusal(f"headers[{name!r}]", "a value that no header can carry", "be text on one line, in Latin-1")
        checked[name] = Secret(value.strip())
    return checked
