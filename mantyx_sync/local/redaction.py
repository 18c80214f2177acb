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
from typing import Any, Callable, Iterable, Mapping
from urllib.parse import quote

from mantyx_sync.local.recording import Exchange
from mantyx_sync.local.rewriting import rewrite_pieces, rewrite_words
from mantyx_sync.local.secret_looks import (
    FORM_FIELDS,
    LOOKS_SECRET,
    SECRET_FIELD,
    forms_of,
    is_distinctive,
    is_secret_field,
    is_secret_header,
    is_secret_parameter,
)

__all__ = ["REDACTED", "SLUG", "Redactor"]

REDACTED = "[redacted]"
SLUG = "recorded"
"""What stands for the workspace's slug in a recording."""

_IDENTITY = ("sub", "email", "name", "given_name", "family_name", "preferred_username", "picture")


def _hide(found: re.Match[str]) -> str:
    start, end = found.span("secret")
    return found.group()[: start - found.start()] + REDACTED + found.group()[end - found.start() :]


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
        self._forms: list[str] | None = None

    # ---------------------------------------------------------------------------------- finding

    @property
    def learned(self) -> set[str]:
        """The secrets that were found, not those that were told."""
        return set(self._learned)

    def learn_secret(self, value: object) -> None:
        """Note a secret, unless it cannot be told from other words."""
        if isinstance(value, int):
            value = str(value)
        if isinstance(value, str) and is_distinctive(value) and REDACTED not in value:
            self._learned.add(value)
            self._forms = None

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
            if is_secret_parameter(name):
                self.learn_secret(value)
        self._learn_text(exchange.answer_body.decode("utf-8", "replace"), SECRET_FIELD)
        if exchange.body is None:
            return
        form, content = exchange.body
        if form == "base64":
            self._learn_text(base64.b64decode(content).decode("latin-1"), *FORM_FIELDS)
        elif form == "text":
            self._learn_text(content, SECRET_FIELD, *FORM_FIELDS)
        else:
            self._learn_json(content if form == "json" else dict(content))
            self._learn_text(json.dumps(content, ensure_ascii=False), SECRET_FIELD)

    def _learn_text(self, text: str, *patterns: re.Pattern[str]) -> None:
        for pattern in (*patterns, *LOOKS_SECRET):
            for found in pattern.finditer(text):
                self.learn_secret(found.group("secret"))

    def _learn_json(self, value: Any) -> None:
        if isinstance(value, dict):
            for name, inner in value.items():
                if is_secret_field(name) and not isinstance(inner, dict):
                    for one in inner if isinstance(inner, list) else [inner]:
                        self.learn_secret(one)
                elif name == "headers" and isinstance(inner, dict):
                    self._learn_tool_headers(inner)
                else:
                    self._learn_json(inner)
            if _is_named_pair(value):
                self.learn_secret(value["value"])
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
        pieces = rewrite_words(exchange.pieces, self._cleaned, REDACTED) if exchange.is_stream else exchange.pieces
        change = self._cleaned
        if exchange.path.endswith("/oauth/userinfo"):
            change = self._cleaned_identity
        return dataclasses.replace(
            exchange,
            path=self.text(exchange.path),
            query=[
                (name, REDACTED if is_secret_parameter(name) else self.text(value)) for name, value in exchange.query
            ],
            headers={name: self.text(value) for name, value in exchange.headers.items()},
            body=None if exchange.body is None else self._body(*exchange.body),
            answer_headers=[
                (name, self.text(value)) for name, value in exchange.answer_headers if not is_secret_header(name)
            ],
            pieces=rewrite_pieces(pieces, change, is_stream=exchange.is_stream),
            why=None if exchange.why is None else self.text(exchange.why),
        )

    def _cleaned(self, text: str) -> str:
        return self._own(self.text(text))

    def _cleaned_identity(self, text: str) -> str:
        return self._own(_without_identity(self.text(text)))

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        text = self._without_known(text)
        for pattern in (SECRET_FIELD, *LOOKS_SECRET):
            text = pattern.sub(_hide, text)
        for slug in self._slugs:
            for form in {slug, quote(slug, safe="")}:
                text = re.sub(rf"(/workspaces/){re.escape(form)}(?![^/?#\s\"'\\])", rf"\1{SLUG}", text)
        return text

    def _without_known(self, text: str) -> str:
        for form in self._known():
            if form in text:
                text = text.replace(form, REDACTED)
        return text

    def _own(self, text: str) -> str:
        return text if self._redact is None else self._redact(text)

    def _known(self) -> list[str]:
        """All secrets, in all forms; longer ones first."""
        if self._forms is None:
            forms = {form for secret in self._told | self._learned for form in forms_of(secret)}
            self._forms = sorted(forms, key=lambda form: (-len(form), form))
        return self._forms

    def _body(self, form: str, content: Any) -> tuple[str, Any]:
        if form == "json":
            content = self._json(content)
            if self._redact is not None:
                content = self._own_json(content)
        elif form == "form":
            content = [[name, REDACTED if is_secret_field(name) else self._cleaned(value)] for name, value in content]
        elif form == "text":
            content = self._own(self._form_text(self.text(content)))
        else:
            raw = base64.b64decode(content)
            readable = raw.decode("latin-1")
            is_secret = any(form.encode("utf-8", "surrogatepass") in raw for form in self._known())
            if is_secret or self._form_text(readable) != readable:
                return "text", REDACTED
        return form, content

    def _form_text(self, text: str) -> str:
        for pattern in FORM_FIELDS:
            text = pattern.sub(_hide, text)
        return text

    def _own_json(self, content: Any) -> Any:
        text = self._own(json.dumps(content, ensure_ascii=False))
        try:
            return json.loads(text)
        except ValueError:
            raise ValueError("redact: it must turn JSON into JSON, and what it returned is none") from None

    def _json(self, value: Any) -> Any:
        if isinstance(value, dict):
            clean = {self.text(name): self._json_field(name, inner) for name, inner in value.items()}
            return {**clean, "value": REDACTED} if _is_named_pair(value) else clean
        if isinstance(value, list):
            return [self._json(inner) for inner in value]
        return self.text(value) if isinstance(value, str) else value

    def _json_field(self, name: str, value: Any) -> Any:
        if is_secret_field(name) and isinstance(value, list):
            return [REDACTED if _is_secret_value(inner) else self._json(inner) for inner in value]
        if is_secret_field(name) and _is_secret_value(value):
            return REDACTED
        if name == "headers" and isinstance(value, dict):  # of a tool that the platform dials
            return {self.text(key): REDACTED if isinstance(inner, str) else inner for key, inner in value.items()}
        if name == "data" and isinstance(value, str) and len(value) > 4096 and not value[:4096].count(" "):
            return self._without_known(value)  # an attachment in base64, in which anything may look like a secret
        return self._json(value)


def _is_secret_value(value: Any) -> bool:
    """Tell whether what stands in a field with the name of a secret is one: a schema is none."""
    if isinstance(value, int) and not isinstance(value, bool):
        return abs(value) >= 1000
    return isinstance(value, str) and value != ""


def _is_named_pair(value: Mapping[str, Any]) -> bool:
    """Tell whether this is a secret in the form of `{"name": "X-Api-Key", "value": …}`."""
    name = value.get("name", value.get("key"))
    if not isinstance(name, str) or not isinstance(value.get("value"), str):
        return False
    return is_secret_field(name) or is_secret_header(name)


def _without_identity(text: str) -> str:
    for name in _IDENTITY:
        text = re.sub(rf'("{name}"\s*:\s*")[^"]*', rf"\1{REDACTED}", text)
    return text
