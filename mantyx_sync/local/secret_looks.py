"""What secrets look like, what the places are called in which they stand, and how they may be written. Does no I/O."""

from __future__ import annotations

import base64
import json
import re
from typing import Iterator
from urllib.parse import quote, quote_plus

__all__ = [
    "FORM_FIELDS",
    "LOOKS_SECRET",
    "SECRET_FIELD",
    "forms_of",
    "is_distinctive",
    "is_secret_field",
    "is_secret_header",
    "is_secret_parameter",
]

MIN_LEARNED_CHARS = 6
"""A shorter secret is taken out where it stands alone: looked for everywhere, it would be found in other words."""

MIN_CODED_CHARS = 8
"""Of a shorter secret too little is left in base64 to look for."""

_SECRET_HEADER = re.compile(
    r"cookie|authorization|token|secret|api-?key|credential|password|csrf|session|signature", re.IGNORECASE
)
_HARMLESS_HEADER = re.compile(r"^www-authenticate$|limit", re.IGNORECASE)  # `X-RateLimit-Remaining-Tokens`

# Tokens that are none of those that open doors: pages of a listing, and what language models call so.
_NO_TOKEN = (
    "next|page|prev|previous|continuation|sync|start|end|first|last|stop|eos|bos|pad|unk|max|min|per|input|output"
)
# Names are not looked at further than so: what stands in quotes may as well be a file in base64.
_HEAD = r"[\w-]{0,40}"
_NAME = (
    rf"(?:{_HEAD}(?:authorization|secrets?|api[_-]?keys?|secret[_-]?key|private[_-]?key|access[_-]?key|signing[_-]?key"
    r"|passwords?|passwd|passphrase|client[_-]?assertion)"
    rf"|(?!(?:{_HEAD}[_-])?(?:{_NO_TOKEN})[_-]?token){_HEAD}token|credentials|(?:set[_-]?)?cookie)"
)
_PARAMETER = rf"(?:{_NAME}|key|(?:x-amz-|x-goog-)?(?:sig|signature)|auth)"
_IS_NAME = re.compile(_NAME, re.IGNORECASE)
_IS_PARAMETER = re.compile(_PARAMETER, re.IGNORECASE)

# In JSON, and in JSON within a string of JSON, where the quotes are escaped.
SECRET_FIELD = re.compile(
    rf'(?P<name>\\*")(?:{_NAME})(?P=name)\s*:\s*(?P<quote>\\*")(?!(?P=quote))'
    r"(?P<secret>[^\n]+?)(?=(?<!\\)(?P=quote)|\n|$)",
    re.IGNORECASE,
)
FORM_FIELDS = (
    # In a form that is not declared as one, and in one of several parts.
    re.compile(rf"(?:^|[?&;]){_NAME}=(?P<secret>[^&;\s\"\\#]+)", re.IGNORECASE),
    re.compile(
        rf'\bname="?{_NAME}"?(?:;[^\r\n]*)?\r?\n(?:[^\r\n]+\r?\n)*\r?\n(?P<secret>.+?)(?=\r?\n--|$)',
        re.IGNORECASE | re.DOTALL,
    ),
)
LOOKS_SECRET = tuple(
    re.compile(pattern, re.IGNORECASE | re.DOTALL)
    for pattern in (
        r"\b(?P<secret>mantyx_(?:at|rt|oas)_[\w-]+)",
        r"\b(?P<secret>mantyx_(?=[\w-]*\d)[a-z0-9-]{16,})\b",
        r"\b(?:bearer|basic)\s+(?P<secret>(?=[^\s\"\\]*\d)[\w.~+/=-]{8,})",
        r"\b(?P<secret>sk-[\w-]{16,})",
        r"\b(?P<secret>(?:[sr]k_(?:live|test)|whsec|gh[oprsu]|github_pat)_\w{16,})",
        r"\b(?P<secret>(?:xox[a-z]|glpat)-[\w-]{16,})",
        r"\b(?P<secret>A[KS]IA[A-Z0-9]{16}|AIza[\w-]{35})\b",
        r"\b(?P<secret>eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)",
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?P<secret>.+?)(?=-----END|$)",
        r"://[^/\s:@\"\\]*:(?P<secret>[^/\s@\"\\]+)@",
        r"://(?P<secret>[^/\s@\"\\:]+)(?=@|:[^/\s@\"\\]+@)",
        rf"[?&]{_PARAMETER}=(?P<secret>[^&\s\"\\#]+)",
    )
)


def is_secret_header(name: str) -> bool:
    """Tell by its name whether a header may carry a secret."""
    return _SECRET_HEADER.search(name) is not None and not _HARMLESS_HEADER.search(name)


def is_secret_field(name: object) -> bool:
    """Tell by its name whether a field of JSON or of a form is a secret."""
    return isinstance(name, str) and _IS_NAME.fullmatch("_".join(name.split())) is not None


def is_secret_parameter(name: str) -> bool:
    """Tell by its name whether a parameter of a query is a secret."""
    return _IS_PARAMETER.fullmatch(name.strip()) is not None


def is_distinctive(value: str) -> bool:
    """Tell whether a value can be looked for everywhere: a password may be a word that others use as well."""
    if len(value) < MIN_LEARNED_CHARS:
        return False
    if value.isdecimal():
        return len(value) >= 10
    return len(value) >= 20 or re.search(r"\d", value) is not None


def forms_of(secret: str) -> set[str]:
    """Return a secret as JSON, addresses, base64 and hexadecimal digits write it."""
    forms: set[str] = set()
    for inner in (json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]):
        forms |= {secret, inner, inner.replace("/", "\\/"), json.dumps(inner)[1:-1]}
    data = secret.encode("utf-8", "surrogatepass")
    for quoted in (quote(data, safe=""), quote(data), quote_plus(data)):
        forms |= {quoted, re.sub("%..", lambda found: found.group().lower(), quoted), quote(quoted, safe="")}
    if len(data) >= MIN_CODED_CHARS:
        forms |= {data.hex(), data.hex().upper(), *_in_base64(data)}
    return forms


def _in_base64(data: bytes) -> Iterator[str]:
    """Yield what is always the same of bytes that stand anywhere in what base64 encodes."""
    for before in range(3):
        coded = base64.b64encode(bytes(before) + data)
        whole = (before + len(data)) * 8 // 6  # digits that no byte behind it changes
        text = coded[-(-before * 8 // 6) : whole].decode()
        yield text
        yield text.replace("+", "-").replace("/", "_")
