"""Keeping secrets out of a recording. Does no I/O.

What is a secret is found in three ways: by where it stands (a header such as `Authorization`, a field such as
`client_secret`), by what it looks like (`Bearer …`, `mantyx_at_…`, a password in a URL), and by being told. What was
found once is looked for everywhere else as well, answers and prompts included.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import json
import re
from typing import Any, Callable, Iterable, Mapping, Sequence
from urllib.parse import quote, quote_plus

from mantyx_sync.local.recording import Exchange, Piece

__all__ = ["REDACTED", "SLUG", "Redactor", "is_secret_header", "rewrite_pieces"]

REDACTED = "[redacted]"
SLUG = "recorded"
"""What stands for the workspace's slug in a recording."""

MIN_LEARNED_CHARS = 6
"""A shorter secret is taken out where it stands alone: looked for everywhere, it would be found in other words."""

_SECRET_FIELDS = (
    "authorization",
    "proxy_authorization",
    "access_token",
    "refresh_token",
    "id_token",
    "auth_token",
    "token",
    "client_secret",
    "client_assertion",
    "api_key",
    "apikey",
    "api_token",
    "x_api_key",
    "secret",
    "secret_key",
    "private_key",
    "password",
    "passwd",
    "passphrase",
    "credentials",
    "cookie",
    "set_cookie",
)
_NAMES = frozenset(name.replace("_", "") for name in _SECRET_FIELDS)
_SECRET_HEADER = re.compile(
    r"cookie|authorization|token|secret|api-?key|credential|password|csrf|session|signature", re.IGNORECASE
)
_HARMLESS_HEADER = re.compile(r"^www-authenticate$|limit", re.IGNORECASE)  # `X-RateLimit-Remaining-Tokens`
_IDENTITY = ("sub", "email", "name", "given_name", "family_name", "preferred_username", "picture")

_NAME_PATTERN = "|".join(name.replace("_", "[_-]?") for name in _SECRET_FIELDS)
# In JSON, and in JSON within a string of JSON, where the quotes are escaped.
_FIELD = re.compile(
    rf'(?P<name>\\*")(?:{_NAME_PATTERN})(?P=name)\s*:\s*(?P<quote>\\*")(?!(?P=quote))'
    r"(?P<secret>[^\n]+?)(?=(?<!\\)(?P=quote)|\n|$)",
    re.IGNORECASE,
)
_LOOKS_SECRET = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"\b(?P<secret>mantyx_(?:at|rt|oas)_[\w-]+)",
        r"\b(?P<secret>mantyx_(?=[\w-]*\d)[a-z0-9-]{16,})\b",
        r"\b(?:bearer|basic)\s+(?P<secret>(?=[^\s\"\\]*\d)[\w.~+/=-]{8,})",
        r"\b(?P<secret>sk-[\w-]{16,})",
        r"\b(?P<secret>eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)",
        r"://[^/\s:@\"\\]*:(?P<secret>[^/\s@\"\\]+)@",
        r"://(?P<secret>[^/\s@\"\\:]+)(?=@|:[^/\s@\"\\]+@)",
        rf"[?&](?:{_NAME_PATTERN}|key|sig|signature|auth)=(?P<secret>[^&\s\"\\#]+)",
    )
)


def is_secret_header(name: str) -> bool:
    """Tell by its name whether a header may carry a secret."""
    return _SECRET_HEADER.search(name) is not None and not _HARMLESS_HEADER.search(name)


def _is_distinctive(value: str) -> bool:
    """Tell whether a value can be looked for everywhere: a password may be a word that others use as well."""
    if len(value) < MIN_LEARNED_CHARS or REDACTED in value or value.isdecimal():
        return False
    return len(value) >= 20 or re.search(r"\d", value) is not None


def _hide(found: re.Match[str]) -> str:
    start, end = found.span("secret")
    return found.group()[: start - found.start()] + REDACTED + found.group()[end - found.start() :]


def _is_secret_field(name: object) -> bool:
    return isinstance(name, str) and re.sub(r"[_\-\s]", "", name).lower() in _NAMES


class Redactor:
    """Takes secrets out of exchanges. Feed all of them to `learn` before the first to `clean`.

    Args:
        secrets: Strings that are to appear nowhere.
        slugs: Names of workspaces, for which `SLUG` is put where they stand in an address.
        redact: A function of yours, from text to text: it gets the JSON or text of each request, and of each answer
            or event.
    """

    def __init__(
        self,
        secrets: Iterable[str] = (),
        *,
        slugs: Iterable[str] = (),
        redact: Callable[[str], str] | None = None,
    ) -> None:
        self._told = {text for text in secrets if text}
        self._learned: set[str] = set()
        self._slugs = {slug for slug in slugs if slug and slug != SLUG}
        self._redact = redact
        self._replacements: list[tuple[str, str]] | None = None

    # ---------------------------------------------------------------------------------- finding

    @property
    def learned(self) -> set[str]:
        """The secrets that were found, not those that were told."""
        return set(self._learned)

    def learn_secret(self, value: object) -> None:
        """Note a secret, unless it cannot be told from other words."""
        if isinstance(value, str) and _is_distinctive(value):
            self._learned.add(value)
            self._replacements = None

    def learn_headers(self, headers: Mapping[str, str]) -> None:
        """Note the credentials in the headers of a request."""
        for name, value in headers.items():
            if not is_secret_header(name):
                continue
            if name.lower() == "cookie":
                for pair in value.split(";"):
                    self.learn_secret(pair.partition("=")[2].strip())
                continue
            scheme, _, rest = value.strip().partition(" ")
            self.learn_secret(rest.strip() or scheme)
            if scheme.lower() == "basic":
                try:
                    user_and_password = base64.b64decode(rest.strip()).decode()
                except (ValueError, binascii.Error):
                    continue
                self.learn_secret(user_and_password.partition(":")[2])

    def learn(self, exchange: Exchange) -> None:
        """Note the secrets that stand where secrets do."""
        for name, value in exchange.query:
            if _is_secret_field(name):
                self.learn_secret(value)
        if exchange.body is not None:
            form, content = exchange.body
            if form == "json":
                self._learn_json(content)
            elif form == "form":
                for name, value in content:
                    if _is_secret_field(name):
                        self.learn_secret(value)
        texts = [exchange.answer_body.decode("utf-8", "replace")]
        if exchange.body is not None and exchange.body[0] != "base64":
            texts.append(json.dumps(exchange.body[1], ensure_ascii=False))
        for text in texts:
            for pattern in (_FIELD, *_LOOKS_SECRET):
                for found in pattern.finditer(text):
                    self.learn_secret(found.group("secret"))

    def _learn_json(self, value: Any) -> None:
        if isinstance(value, dict):
            for name, inner in value.items():
                if isinstance(inner, str) and _is_secret_field(name):
                    self.learn_secret(inner)
                elif name == "headers" and isinstance(inner, dict):
                    self._learn_tool_headers(inner)
                else:
                    self._learn_json(inner)
        elif isinstance(value, list):
            for inner in value:
                self._learn_json(inner)

    def _learn_tool_headers(self, headers: Mapping[str, Any]) -> None:
        # All of them are taken out where they stand. Not all may be looked for elsewhere: `Accept` has one, too.
        texts = {name: value for name, value in headers.items() if isinstance(value, str)}
        self.learn_headers(texts)
        for name, value in texts.items():
            if not is_secret_header(name) and len(value) >= 16 and " " not in value and "/" not in value:
                self.learn_secret(value)

    # --------------------------------------------------------------------------------- cleaning

    def clean(self, exchange: Exchange) -> Exchange:
        """Return an exchange without secrets."""
        is_identity = exchange.path.endswith("/oauth/userinfo")
        return dataclasses.replace(
            exchange,
            path=self.text(exchange.path),
            query=[(name, REDACTED if _is_secret_field(name) else self.text(value)) for name, value in exchange.query],
            headers={name: self.text(value) for name, value in exchange.headers.items()},
            body=None if exchange.body is None else self._body(*exchange.body),
            answer_headers=[
                (name, self.text(value)) for name, value in exchange.answer_headers if not is_secret_header(name)
            ],
            pieces=rewrite_pieces(
                exchange.pieces,
                lambda text: self._own(_without_identity(self.text(text)) if is_identity else self.text(text)),
                is_stream=exchange.is_stream,
            ),
            why=None if exchange.why is None else self.text(exchange.why),
        )

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        for secret, replacement in self._known():
            if secret in text:
                text = text.replace(secret, replacement)
        for pattern in (_FIELD, *_LOOKS_SECRET):
            text = pattern.sub(_hide, text)
        for slug in self._slugs:
            for form in {slug, quote(slug, safe="")}:
                text = re.sub(rf"(/workspaces/){re.escape(form)}(?![^/?#\s\"'\\])", rf"\1{SLUG}", text)
        return text

    def _own(self, text: str) -> str:
        return text if self._redact is None else self._redact(text)

    def _known(self) -> list[tuple[str, str]]:
        """All secrets, in the forms in which JSON and addresses write them; longer ones first."""
        if self._replacements is None:
            forms: set[str] = set()
            for secret in self._told | self._learned:
                for inner in (json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]):
                    forms |= {secret, inner, inner.replace("/", "\\/"), json.dumps(inner)[1:-1]}
                forms |= {quote(secret, safe=""), quote(secret), quote_plus(secret)}
            self._replacements = [(form, REDACTED) for form in sorted(forms, key=len, reverse=True)]
        return self._replacements

    def _body(self, form: str, content: Any) -> tuple[str, Any]:
        if form == "json":
            content = self._json(content)
            if self._redact is not None:
                content = self._own_json(content)
        elif form == "form":
            content = [
                [name, REDACTED if _is_secret_field(name) else self._own(self.text(value))] for name, value in content
            ]
        elif form == "text":
            content = self._own(self.text(content))
        else:
            raw = base64.b64decode(content)
            if any(secret.encode("utf-8", "surrogatepass") in raw for secret, _ in self._known()):
                return "text", REDACTED
        return form, content

    def _own_json(self, content: Any) -> Any:
        text = self._own(json.dumps(content, ensure_ascii=False))
        try:
            return json.loads(text)
        except ValueError:
            raise ValueError("redact: it must turn JSON into JSON, and what it returned is none") from None

    def _json(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {self.text(name): self._json_field(name, inner) for name, inner in value.items()}
        if isinstance(value, list):
            return [self._json(inner) for inner in value]
        return self.text(value) if isinstance(value, str) else value

    def _json_field(self, name: str, value: Any) -> Any:
        if isinstance(value, str) and value and _is_secret_field(name):
            return REDACTED
        if name == "headers" and isinstance(value, dict):  # of a tool that the platform dials
            return {self.text(key): REDACTED if isinstance(inner, str) else inner for key, inner in value.items()}
        if name == "data" and isinstance(value, str) and len(value) > 4096 and not value[:4096].count(" "):
            return value  # an attachment in base64: nothing in it can be told from a secret
        return self._json(value)


def _without_identity(text: str) -> str:
    for name in _IDENTITY:
        text = re.sub(rf'("{name}"\s*:\s*")[^"]*', rf"\1{REDACTED}", text)
    return text


# ------------------------------------------------------------------------------- bodies in pieces

_FRAME_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")


def rewrite_pieces(pieces: Sequence[Piece], change: Callable[[str], str], *, is_stream: bool) -> list[Piece]:
    """Pass a body through `change`, an event stream event by event, and keep it in its pieces.

    What `change` leaves alone stays where it was, byte for byte. What it changes arrives with the piece that
    completed it. Bytes that are no text are left alone.
    """
    whole = b"".join(piece.data for piece in pieces)
    starts = [0]
    if is_stream:
        starts += [found.end() for found in _FRAME_END.finditer(whole) if found.end() < len(whole)]
    edits: list[tuple[int, int, bytes]] = []
    for start, end in zip(starts, [*starts[1:], len(whole)]):
        try:
            text = whole[start:end].decode()
        except UnicodeDecodeError:
            continue
        changed = change(text)
        if changed != text:
            edits.append((start, end, changed.encode("utf-8", "surrogatepass")))
    if not edits:
        return list(pieces)
    return _edited(pieces, edits)


def _edited(pieces: Sequence[Piece], edits: Sequence[tuple[int, int, bytes]]) -> list[Piece]:
    out: list[Piece] = []
    left = list(edits)
    at = 0
    for piece in pieces:
        stop = at + len(piece.data)
        data = bytearray()
        cursor = at
        while left and left[0][0] < stop:
            start, end, new = left[0]
            data += piece.data[max(cursor, at) - at : max(start, cursor) - at]
            cursor = min(end, stop)
            if end > stop:
                break  # the rest of what is replaced comes with a later piece, and what replaces it as well
            data += new
            left.pop(0)
        if not (left and left[0][0] < cursor and left[0][1] > stop):
            data += piece.data[cursor - at :]
        if data:
            out.append(Piece(bytes(data), piece.at, piece.order))
        at = stop
    return out
