"""Arguments for a tool's parameters, taken from what a request says by name and by type."""

from __future__ import annotations

import re
from typing import Any, Mapping

from mantyx_sync.local.facts import (
    ID_WORDS,
    LINKS,
    NEGATIONS,
    PREPOSITIONS,
    STOP_WORDS,
    TEXT_WORDS,
    TIME_WORDS,
    Facts,
    Token,
    keys_of,
    labels_of,
    properties_of,
    split_name,
    stem_of,
)
from mantyx_sync.local.model import ToolDeclaration

__all__ = ["compose", "fill_arguments"]


def fill_arguments(tool: ToolDeclaration, facts: Facts, *, again: bool) -> tuple[dict[str, Any], bool, list[str]]:
    """Fill a tool's parameters.

    Returns:
        The arguments, whether a piece of the request was used up for a required one, and the names of the
        required ones for which nothing was found.
    """
    required = [name for name in tool.parameters.get("required") or () if isinstance(name, str)]
    arguments: dict[str, Any] = {}
    fresh = False
    # What is named in the request is settled before anything is taken by its type alone.
    properties = properties_of(tool.parameters)
    for by_name in (True, False):
        for name, schema in properties.items():
            if name in arguments or (not by_name and name not in required):
                continue
            filler = _Filler(facts, tool, name, schema)
            value = filler.by_name() if by_name else filler.by_type(again=again)
            if value is not None:
                arguments[name] = value
                fresh = fresh or (filler.used_token and name in required)
    missing = [name for name in required if name not in arguments]
    ordered = {name: arguments[name] for name in properties if name in arguments}
    return ordered, fresh, missing


class _Filler:
    """Finds the value of one parameter."""

    def __init__(self, facts: Facts, tool: ToolDeclaration, name: str, schema: Mapping[str, Any]) -> None:
        self.facts = facts
        self.tool = tool
        self.name = name
        self.schema = schema
        self.words = split_name(name)
        kind = schema.get("type")
        if isinstance(kind, list):
            kind = next((entry for entry in kind if entry != "null"), None)
        self.kind = kind if isinstance(kind, str) else "string"
        self.used_token = False

    def by_name(self) -> Any:
        """Take what the request or an earlier result names like the parameter."""
        if "const" in self.schema:
            return self.schema["const"]
        if "enum" in self.schema:
            return self._choice()
        if self.kind == "boolean":
            return self._mentioned()
        if self.kind in ("array", "object"):
            return None
        learned = self.facts.fields.get("".join(self.words))
        if learned is not None and self._fits_value(learned):
            return str(learned) if self.kind == "string" else learned
        labels = labels_of(self.words)
        tokens = self.facts.tokens
        for place, token in enumerate(tokens):
            if token.kind != "word" or stem_of(token.text) not in labels:
                continue
            for follower in tokens[place + 1 :]:
                if follower.kind == "sign" or (follower.kind == "word" and follower.text.lower() in LINKS):
                    continue
                if follower.used_by == self._user and self._listed(follower):
                    continue  # "orders 17 and 21": go on behind what an earlier call took
                if follower.used_by is None and self._listed(follower):
                    return self._take(follower)
                break
            before = tokens[place - 1] if place else None
            if before is not None and before.used_by is None and self._is_number(before) and not self._is_id():
                return self._take(before)  # "20 sides"
        return None

    def by_type(self, *, again: bool) -> Any:
        """Take the first piece of the request that the type allows."""
        if self.kind == "array":
            return self._many()
        if self.kind == "object":
            return self._nested()
        if self.kind in ("integer", "number"):
            return self._first(lambda token: self._is_number(token))
        if self.kind != "string":
            return self.schema.get("default", False if self.kind == "boolean" else None)
        expected = self._expected_kind()
        if expected is not None:
            return self._first(lambda token: token.kind == expected)
        is_text = bool(set(self.words) & TEXT_WORDS)
        for test in (
            lambda token: token.kind == "quoted",
            lambda token: token.kind in ("code", "number") and self._is_id() and not self._is_of_another(token),
            lambda token: token.kind == "word" and not is_text and not self._is_id() and self._is_named(token),
        ):
            value = self._first(test)
            if value is not None:
                return value
        return self._whole_text() if is_text and not again else None

    # ------------------------------------------------------------- helpers

    def _whole_text(self) -> str:
        if set(self.words) & {"query", "topic"}:
            behind = re.search(r"\b(?:for|about)\s+(.+?)[.?!]*$", self.facts.prompt, re.DOTALL)
            if behind:
                return behind.group(1)
        return self.facts.prompt

    @property
    def _user(self) -> str:
        return f"{self.tool.name}.{self.name}"

    def _take(self, token: Token) -> Any:
        token.used_by = self._user
        self.used_token = True
        if self.kind == "integer":
            return int(float(token.text))
        if self.kind == "number":
            number = float(token.text)
            return int(number) if number.is_integer() and "." not in token.text else number
        return self._with_followers(token) if token.kind == "word" else token.text

    def _with_followers(self, token: Token) -> str:
        """Take the words that belong to a name as well: New York, san francisco."""
        tokens = self.facts.tokens
        end = token.end
        for follower in tokens[tokens.index(token) + 1 :][:2]:
            gap = self.facts.prompt[end : follower.start]
            word = follower.text.lower()
            if (
                follower.kind != "word"
                or gap.strip()
                or word in STOP_WORDS
                or word in TIME_WORDS
                or follower.text[0].isupper() != token.text[0].isupper()
            ):
                break
            follower.used_by = self._user
            end = follower.end
        return self.facts.prompt[token.start : end]

    def _first(self, test: Any) -> Any:
        for token in self.facts.tokens:
            if token.used_by is None and test(token):
                return self._take(token)
        return None

    def _is_number(self, token: Token) -> bool:
        if self.kind not in ("integer", "number"):
            return False
        number = token.number
        if number is None or (self.kind == "integer" and not number.is_integer()):
            return False
        low, high = self.schema.get("minimum"), self.schema.get("maximum")
        return (low is None or number >= low) and (high is None or number <= high)

    def _is_id(self) -> bool:
        return bool(set(self.words) & ID_WORDS)

    def _is_of_another(self, token: Token) -> bool:
        """Whether the word before a value names another parameter, as "order" does in "order 17"."""
        tokens = self.facts.tokens
        for before in reversed(tokens[: tokens.index(token)]):
            if before.kind == "word" and before.text.lower() not in LINKS:
                stem = stem_of(before.text)
                return stem in self.facts.labels and stem not in labels_of(self.words)
        return False

    def _listed(self, token: Token) -> bool:
        """Whether a token can stand behind the parameter's name."""
        if self.kind in ("integer", "number"):
            return self._is_number(token)
        if token.kind in ("quoted", "code", "number", "email", "url", "path", "date"):
            expected = self._expected_kind()
            return expected is None or token.kind == expected
        return (
            token.kind == "word" and self._expected_kind() is None and not self._is_id() and (token.text[:1].isupper())
        )

    def _is_named(self, token: Token) -> bool:
        """Whether a word looks like a name: capitalised inside a sentence, or behind a preposition."""
        place = self.facts.tokens.index(token)
        if token.text.lower() in STOP_WORDS or token.text.lower() in keys_of(split_name(self.tool.name)):
            return False
        if token.text[0].isupper() and not token.first:
            return True
        before = self.facts.tokens[place - 1] if place else None
        return before is not None and before.kind == "word" and before.text.lower() in PREPOSITIONS

    def _expected_kind(self) -> str | None:
        form = str(self.schema.get("format", ""))
        words = set(self.words)
        if form == "email" or words & {"email", "mail", "recipient"}:
            return "email"
        if form in ("uri", "url") or words & {"url", "uri", "link"}:
            return "url"
        if form in ("date", "date-time") or words & {"date", "day"}:
            return "date"
        if words & {"path", "file", "filename", "directory"}:
            return "path"
        return None

    def _choice(self) -> Any:
        """Take the allowed value that the request names first and no other parameter took."""
        said = {
            stem_of(token.text): token for token in reversed(self.facts.tokens) if token.used_by in (None, self._user)
        }
        named = []
        for choice in self.schema["enum"]:
            words = [stem_of(word) for word in split_name(str(choice))]
            if words and all(word in said for word in words):
                named.append((said[words[0]].start, choice, [said[word] for word in words]))
        if named:
            _, choice, tokens = min(named, key=lambda entry: entry[0])
            for token in tokens:
                token.used_by = self._user
            return choice
        return self.schema["enum"][0] if len(self.schema["enum"]) == 1 else None

    def _mentioned(self) -> Any:
        labels = {stem_of(word) for word in self.words if word not in ("is", "with", "include", "use")}
        for place, token in enumerate(self.facts.tokens):
            if token.kind == "word" and stem_of(token.text) in labels:
                before = [earlier.text.lower() for earlier in self.facts.tokens[max(0, place - 2) : place]]
                return not (set(before) & NEGATIONS)
        return None

    def _many(self) -> Any:
        items = self.schema.get("items")
        inner = _Filler(self.facts, self.tool, self.name, items if isinstance(items, Mapping) else {})
        values: list[Any] = []
        while len(values) < 100:
            value = inner.by_type(again=True)
            if value is None or (inner.kind == "boolean"):
                break
            values.append(value)
        self.used_token = inner.used_token
        return values or None

    def _nested(self) -> Any:
        inner = ToolDeclaration(self.tool.name, "", self.schema)
        arguments, fresh, missing = fill_arguments(inner, self.facts, again=False)
        self.used_token = fresh
        return None if missing else arguments

    def _fits_value(self, value: Any) -> bool:
        if self.kind == "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        if self.kind == "number":
            return isinstance(value, (int, float)) and not isinstance(value, bool)
        return self.kind == "string" and isinstance(value, (str, int, float)) and not isinstance(value, bool)


def compose(schema: Mapping[str, Any], facts: Facts, report: str) -> Any:
    """Build a value of the run's output schema from what is known."""
    facts.release()
    composed: dict[str, Any] = {}
    tool = ToolDeclaration("output", "", schema)
    for name, inner in properties_of(schema).items():
        filler = _Filler(facts, tool, name, inner)
        value = filler.by_name()
        if value is None:
            value = filler.by_type(again=True)
        if value is None:
            value = _empty_value(filler.kind, inner, report)
        composed[name] = value
    return composed


def _empty_value(kind: str, schema: Mapping[str, Any], report: str) -> Any:
    if "default" in schema:
        return schema["default"]
    if schema.get("enum"):
        return schema["enum"][0]
    if kind == "object":
        return {name: _empty_value(str(s.get("type")), s, report) for name, s in properties_of(schema).items()}
    return {"integer": 0, "number": 0, "boolean": False, "array": [], "null": None}.get(kind, report)
