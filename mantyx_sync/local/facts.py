"""What a request says, piece by piece: the words, numbers, names and dates that the rule model works with."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Mapping, Optional, Sequence

from mantyx_sync.local.model import ModelRequest

__all__ = [
    "ACTING",
    "ID_WORDS",
    "LINKS",
    "NEGATIONS",
    "PREPOSITIONS",
    "STOP_WORDS",
    "TEXT_WORDS",
    "TIME_WORDS",
    "WEAK",
    "Facts",
    "Token",
    "as_json",
    "keys_of",
    "labels_of",
    "properties_of",
    "results_of",
    "split_name",
    "stem_of",
]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_TOKEN = re.compile(
    r"""(?P<quoted>"[^"]+"|“[^”]+”|`[^`]+`|(?<!\w)'[^']+'(?!\w))
      | (?P<url>https?://[^\s"'<>]+)
      | (?P<email>[\w.+-]+@[\w-]+(?:\.[\w-]+)+)
      | (?P<date>\d{4}-\d{2}-\d{2}(?:T[\d:.]+(?:Z|[+-]\d{2}:?\d{2})?)?)
      | (?P<path>(?:~|\.{1,2})?/[\w./-]+)
      | (?P<code>[A-Za-z]+[-_]?\d[\w-]*|\d+[A-Za-z_][\w-]*)
      | (?P<number>(?<![\w.])-?\d+(?:\.\d+)?)
      | (?P<word>[^\W\d_][\w'\u2019-]*)
      | (?P<sign>[+*/\u00d7\u00f7=%-])""",
    re.VERBOSE,
)
STOP_WORDS = _words(
    "a an and are as at be by can could do does for from give have how i if in is it its let like me my need of "
    "on or our please so that the their them then there these they this those to us want was we were what when "
    "where which who why will with would you your"
)
# Words that say little about what a tool is for.
WEAK = _words("get set list find look fetch show tell read use make run call do id number name value tool")
# Tools whose name begins with one of these change something.
ACTING = _words(
    "cancel delete remove create send update refund pay buy book write post close approve reject archive "
    "move rename upload publish insert drop reset restart shutdown transfer"
)
TIME_WORDS = _words("today tomorrow now please right currently tonight yesterday again")
LINKS = _words("number no nr id is are of to and for in on at the a an named called equals or with")
PREPOSITIONS = _words("in for at from to about near of with on named called")
ID_WORDS = _words("id number no code key ref reference sku serial ticket")
TEXT_WORDS = _words(
    "query question text message prompt content input topic task request expression description sentence"
)
NEGATIONS = _words("no not without don't never")
_SAME = [
    "add plus sum total addition +",
    "subtract minus difference -",
    "multiply times product multiplication * \u00d7",
    "divide division quotient / \u00f7",
    "weather forecast temperature rain sunny",
    "time clock hour",
    "search find lookup",
    "mail email e-mail send",
    "price cost",
    "order purchase",
    "delete remove",
    "create new",
    "city town place location",
]
_SYNONYMS: dict[str, int] = {}


def stem_of(word: str) -> str:
    """Take off the endings that English grammar adds, roughly."""
    word = word.lower().replace("\u2019", "'")
    if word.endswith("'s"):
        word = word[:-2]
    for ending, rest in (("ies", "y"), ("ing", ""), ("ed", ""), ("es", "e"), ("s", "")):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss"):
            return word[: -len(ending)] + rest
    return word


for _number, _line in enumerate(_SAME):
    for _word in _line.split():
        _SYNONYMS[stem_of(_word)] = _number


def split_name(name: str) -> list[str]:
    """Split a snake_case or camelCase name into its words, in lower case."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    return [part.lower() for part in re.split(r"[^A-Za-z0-9]+", spaced) if part]


def keys_of(words: Sequence[str]) -> set[object]:
    """Stems of the words that carry meaning; a synonym stands for its whole group."""
    found: set[object] = set()
    for word in words:
        if word.lower() not in STOP_WORDS:
            stem = stem_of(word)
            found.add(_SYNONYMS.get(stem, stem))
    return found


def labels_of(words: Sequence[str]) -> set[str]:
    """Stems of the words by which a request would name a parameter."""
    return {stem_of(word) for word in words if word not in ID_WORDS} or {stem_of(word) for word in words}


@dataclass
class Token:
    """One piece of the request. `kind` is a group of `_TOKEN`; `used_by` names the parameter that took it."""

    kind: str
    text: str
    start: int = 0
    end: int = 0
    first: bool = False  # begins a sentence
    used_by: Optional[str] = None

    @property
    def number(self) -> float | None:
        return float(self.text) if self.kind == "number" else None


@dataclass
class Facts:
    """What arguments can be taken from: the request, piece by piece, and the fields of earlier results."""

    prompt: str
    tokens: list[Token]
    fields: dict[str, Any] = field(default_factory=dict)
    # What the tools' parameters are about: "order" of order_id. Such a word owns the value behind it.
    labels: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, request: ModelRequest) -> Facts:
        prompt = request.prompt
        tokens = []
        for match in _TOKEN.finditer(prompt):
            kind = match.lastgroup or "word"
            text = match.group()
            before = prompt[: match.start()].rstrip()
            text = text[1:-1] if kind == "quoted" else text
            tokens.append(Token(kind, text, match.start(), match.end(), not before or before[-1] in ".!?:"))
        facts = cls(prompt, tokens)
        for tool in request.tools:
            for name in properties_of(tool.parameters):
                facts.labels |= labels_of(split_name(name))
        for message in results_of(request):
            if not message.get("isError"):
                facts.learn(as_json(message["content"]))
        return facts

    def learn(self, value: Any, name: str = "") -> None:
        """Remember the scalar fields of a result by name."""
        if isinstance(value, Mapping):
            for key, inner in value.items():
                self.learn(inner, str(key))
        elif isinstance(value, list):
            for inner in value[:1]:
                self.learn(inner, name)
        elif name and value is not None:
            self.fields.setdefault(_plain(name), value)

    def release(self) -> None:
        for token in self.tokens:
            token.used_by = None


def _plain(name: str) -> str:
    return "".join(split_name(name))


def as_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def results_of(request: ModelRequest) -> list[Mapping[str, Any]]:
    """The tool results since the user's last message."""
    results: list[Mapping[str, Any]] = []
    for message in reversed(request.messages):
        if message["role"] == "user" and not message.get("steering"):
            break
        if message["role"] == "tool":
            results.insert(0, message)
    return results


def properties_of(schema: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    found = schema.get("properties")
    if not isinstance(found, Mapping):
        return {}
    root = schema.get("$defs") or schema.get("definitions") or {}
    return {key: _resolve(value, root) for key, value in found.items() if isinstance(value, Mapping)}


def _resolve(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    reference = schema.get("$ref")
    if isinstance(reference, str):
        return {**root.get(reference.rsplit("/", 1)[-1], {}), **{k: v for k, v in schema.items() if k != "$ref"}}
    for branch in schema.get("anyOf") or schema.get("oneOf") or ():
        if isinstance(branch, Mapping) and branch.get("type") != "null":
            return {**_resolve(branch, root), **{k: v for k, v in schema.items() if k not in ("anyOf", "oneOf")}}
    return schema
