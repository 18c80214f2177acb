"""`RuleModel`: a small model made of rules, so that the embedded server can use tools without an account.

It knows nothing of the world. It compares the words of the request with the names, descriptions and schemas
of the tools it was given, takes arguments out of the request (and out of earlier results) by type and name,
calls what fits, and reports what came back. Other tools or other words give other calls.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Iterator, Mapping, Optional, Sequence

from mantyx_sync.local.model import ModelPart, ModelRequest, Thinking, ToolDeclaration, ToolUse

__all__ = ["RuleModel"]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


MAX_CALLS_PER_TOOL = 8
MIN_SCORE = 1.0

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
_STOP_WORDS = _words(
    "a an and are as at be by can could do does for from give have how i if in is it its let like me my need of "
    "on or our please so that the their them then there these they this those to us want was we were what when "
    "where which who why will with would you your"
)
# Words that say little about what a tool is for.
_WEAK = _words("get set list find look fetch show tell read use make run call do id number name value tool")
_LINKS = _words("number no nr id is are of to and for in on at the a an named called equals or with")
_PREPOSITIONS = _words("in for at from to about near of with on named called")
_ID_WORDS = _words("id number no code key ref reference sku serial ticket")
_TEXT_WORDS = _words(
    "query question text message prompt content input topic task request expression description sentence"
)
_NEGATIONS = _words("no not without don't never")
_SAME = [
    "add plus sum total addition +",
    "subtract minus difference -",
    "multiply times product multiplication * \u00d7",
    "divide division quotient / \u00f7",
    "weather forecast temperature rain sunny",
    "time clock hour",
    "search find lookup",
    "mail email e-mail",
    "price cost",
    "order purchase",
    "delete remove",
    "create new",
    "city town place location",
]
_SYNONYMS: dict[str, int] = {}


def _stem(word: str) -> str:
    word = word.lower().replace("\u2019", "'")
    if word.endswith("'s"):
        word = word[:-2]
    for ending, rest in (("ies", "y"), ("ing", ""), ("ed", ""), ("es", "e"), ("s", "")):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss"):
            return word[: -len(ending)] + rest
    return word


for _number, _line in enumerate(_SAME):
    for _word in _line.split():
        _SYNONYMS[_stem(_word)] = _number


def _split_name(name: str) -> list[str]:
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    return [part.lower() for part in re.split(r"[^A-Za-z0-9]+", spaced) if part]


def _keys(words: Sequence[str]) -> set[object]:
    """Stems of the words that carry meaning; a synonym stands for its whole group."""
    found: set[object] = set()
    for word in words:
        if word.lower() not in _STOP_WORDS:
            stem = _stem(word)
            found.add(_SYNONYMS.get(stem, stem))
    return found


def _labels(words: Sequence[str]) -> set[str]:
    """Stems of the words by which a request would name a parameter."""
    return {_stem(word) for word in words if word not in _ID_WORDS} or {_stem(word) for word in words}


@dataclass
class _Token:
    kind: str
    text: str
    first: bool = False  # begins a sentence
    used_by: Optional[str] = None

    @property
    def number(self) -> float | None:
        return float(self.text) if self.kind == "number" else None


@dataclass
class _Facts:
    """What arguments can be taken from: the request, piece by piece, and the fields of earlier results."""

    prompt: str
    tokens: list[_Token]
    fields: dict[str, Any] = field(default_factory=dict)
    # What the tools' parameters are about: "order" of order_id. Such a word owns the value behind it.
    labels: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, request: ModelRequest) -> _Facts:
        prompt = request.prompt
        tokens = []
        for match in _TOKEN.finditer(prompt):
            kind = match.lastgroup or "word"
            text = match.group()
            before = prompt[: match.start()].rstrip()
            tokens.append(_Token(kind, text[1:-1] if kind == "quoted" else text, not before or before[-1] in ".!?:"))
        facts = cls(prompt, tokens)
        for tool in request.tools:
            for name in _properties(tool.parameters):
                facts.labels |= _labels(_split_name(name))
        for message in _results(request):
            if not message.get("isError"):
                facts.learn(_as_json(message["content"]))
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
    return "".join(_split_name(name))


def _as_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _results(request: ModelRequest) -> list[Mapping[str, Any]]:
    """The tool results since the last user message."""
    results: list[Mapping[str, Any]] = []
    for message in reversed(request.messages):
        if message["role"] == "user":
            break
        if message["role"] == "tool":
            results.insert(0, message)
    return results


def _calls(request: ModelRequest) -> dict[str, Mapping[str, Any]]:
    """The tool calls made so far, by id."""
    return {call["id"]: call for message in request.messages for call in message.get("toolCalls") or ()}


class RuleModel:
    """Choose among the given tools by rules, call them, and answer from their results. Needs no network.

    Args:
        model_id: The catalog id that runs report.
        word_delay: Seconds between the streamed words of an answer, for a demonstration.
    """

    def __init__(self, *, model_id: str = "local:rule", word_delay: float = 0.0) -> None:
        self.model_id = model_id
        self._word_delay = word_delay

    def complete(self, request: ModelRequest) -> Iterator[ModelPart]:
        """Play one turn: tool calls while some fit that were not made yet, otherwise the answer."""
        facts = _Facts.of(request)
        results = _results(request)
        called = {message["name"] for message in results}
        calls, lacking = _plan(facts, [tool for tool in request.tools if tool.name not in called])
        if _wants_thinking(request.spec):
            names = ", ".join(call.name for call in calls)
            yield Thinking(f"These tools fit the request: {names}." if calls else "No further tool call is needed.")
        if calls:
            yield from calls
            return
        schema = request.spec.get("outputSchema")
        if schema:
            text = json.dumps(_compose(schema["schema"], facts, _report(request, results, lacking)))
        else:
            text = _report(request, results, lacking)
        for word in re.findall(r"\S+\s*|\s+", text):
            yield word
            if self._word_delay > 0 and request.cancelled.wait(self._word_delay):
                return


def _wants_thinking(spec: Mapping[str, Any]) -> bool:
    return spec.get("reasoningLevel") not in (None, "off", 0)


# --------------------------------------------------------------- choosing tools


def _score(tool: ToolDeclaration, facts: _Facts) -> float:
    """Say how well a tool fits the words of the request."""
    wanted = _keys([token.text for token in facts.tokens if token.kind in ("word", "sign")])
    name_words = _split_name(tool.name)
    name = _keys([word for word in name_words if word not in _WEAK])
    weak = _keys([word for word in name_words if word in _WEAK])
    described = _keys(re.findall(r"[^\W\d_]+", tool.description)) - name
    properties = _properties(tool.parameters)
    parameters: list[str] = []
    choices: list[str] = []
    for key, schema in properties.items():
        parameters += _split_name(key)
        parameters += re.findall(r"[^\W\d_]+", str(schema.get("description", "")))
        choices += [str(choice) for choice in schema.get("enum", ())]
    return (
        3.0 * len(name & wanted)
        + 0.5 * len(weak & wanted)
        + min(3.0, 1.0 * len(described & wanted))
        + min(2.0, 0.5 * len(_keys(parameters) & wanted))
        + 1.0 * len(_keys(choices) & wanted)
    )


def _plan(facts: _Facts, tools: Sequence[ToolDeclaration]) -> tuple[list[ToolUse], list[str]]:
    """Return the calls that fit, and a sentence for each tool that fits but lacks an argument."""
    scored = [(tool, _score(tool, facts)) for tool in tools]
    best = max((score for _, score in scored), default=0.0)
    calls: list[ToolUse] = []
    lacking: list[str] = []
    for tool, score in scored:
        if score < MIN_SCORE or score < best / 2:
            continue
        facts.release()  # two tools may both want the same piece of the request
        made = 0
        missing: list[str] = []
        while made < MAX_CALLS_PER_TOOL:
            # A second call of the same tool needs pieces of the request that the first left over.
            arguments, fresh, missing = _arguments(tool, facts, again=made > 0)
            if missing or (made > 0 and not fresh):
                break
            calls.append(ToolUse(tool.name, arguments))
            made += 1
            if not fresh:
                break
        if made == 0:
            lacking.append(f"I could not call {tool.name}: the request gives no {' and no '.join(missing)}.")
    return calls, lacking


# -------------------------------------------------------------- filling arguments


def _properties(schema: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
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


def _arguments(tool: ToolDeclaration, facts: _Facts, *, again: bool) -> tuple[dict[str, Any], bool, list[str]]:
    """Fill a tool's parameters.

    Returns:
        The arguments, whether a piece of the request was used up for a required one, and the names of the
        required ones for which nothing was found.
    """
    required = [name for name in tool.parameters.get("required") or () if isinstance(name, str)]
    arguments: dict[str, Any] = {}
    fresh = False
    # What is named in the request is settled before anything is taken by its type alone.
    properties = _properties(tool.parameters)
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

    def __init__(self, facts: _Facts, tool: ToolDeclaration, name: str, schema: Mapping[str, Any]) -> None:
        self.facts = facts
        self.tool = tool
        self.name = name
        self.schema = schema
        self.words = _split_name(name)
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
        if self.kind == "array":
            return None
        learned = self.facts.fields.get("".join(self.words))
        if learned is not None and self._fits_value(learned):
            return str(learned) if self.kind == "string" else learned
        labels = _labels(self.words)
        tokens = self.facts.tokens
        for place, token in enumerate(tokens):
            if token.kind != "word" or _stem(token.text) not in labels:
                continue
            for follower in tokens[place + 1 :]:
                if follower.kind == "sign" or (follower.kind == "word" and follower.text.lower() in _LINKS):
                    continue
                if follower.used_by == self._user and self._listed(follower):
                    continue  # "orders 17 and 21": go on behind what an earlier call took
                if follower.used_by is None and self._listed(follower):
                    return self._take(follower)
                break
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
        is_text = bool(set(self.words) & _TEXT_WORDS)
        for test in (
            lambda token: token.kind == "quoted",
            lambda token: token.kind in ("code", "number") and self._is_id() and not self._is_of_another(token),
            lambda token: token.kind == "word" and not is_text and not self._is_id() and self._is_named(token),
        ):
            value = self._first(test)
            if value is not None:
                return value
        return self.facts.prompt if is_text and not again else None

    # ------------------------------------------------------------- helpers

    @property
    def _user(self) -> str:
        return f"{self.tool.name}.{self.name}"

    def _take(self, token: _Token) -> Any:
        token.used_by = self._user
        self.used_token = True
        if self.kind == "integer":
            return int(float(token.text))
        if self.kind == "number":
            number = float(token.text)
            return int(number) if number.is_integer() and "." not in token.text else number
        return token.text

    def _first(self, test: Any) -> Any:
        for token in self.facts.tokens:
            if token.used_by is None and test(token):
                return self._take(token)
        return None

    def _is_number(self, token: _Token) -> bool:
        number = token.number
        if number is None or (self.kind == "integer" and not number.is_integer()):
            return False
        low, high = self.schema.get("minimum"), self.schema.get("maximum")
        return (low is None or number >= low) and (high is None or number <= high)

    def _is_id(self) -> bool:
        return bool(set(self.words) & _ID_WORDS)

    def _is_of_another(self, token: _Token) -> bool:
        """Whether the word before a value names another parameter, as "order" does in "order 17"."""
        tokens = self.facts.tokens
        for before in reversed(tokens[: tokens.index(token)]):
            if before.kind == "word" and before.text.lower() not in _LINKS:
                stem = _stem(before.text)
                return stem in self.facts.labels and stem not in _labels(self.words)
        return False

    def _listed(self, token: _Token) -> bool:
        """Whether a token can stand behind the parameter's name."""
        if self.kind in ("integer", "number"):
            return self._is_number(token)
        if token.kind in ("quoted", "code", "number", "email", "url", "path", "date"):
            expected = self._expected_kind()
            return expected is None or token.kind == expected
        return (
            token.kind == "word"
            and self._expected_kind() is None
            and not self._is_id()
            and (token.text[:1].isupper())
        )

    def _is_named(self, token: _Token) -> bool:
        """Whether a word looks like a name: capitalised inside a sentence, or behind a preposition."""
        place = self.facts.tokens.index(token)
        if token.text.lower() in _STOP_WORDS or token.text.lower() in _keys(_split_name(self.tool.name)):
            return False
        if token.text[0].isupper() and not token.first:
            return True
        before = self.facts.tokens[place - 1] if place else None
        return before is not None and before.kind == "word" and before.text.lower() in _PREPOSITIONS

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
        said = {_stem(token.text): token for token in self.facts.tokens}
        for choice in self.schema["enum"]:
            words = [_stem(word) for word in _split_name(str(choice))]
            if words and all(word in said for word in words):
                for word in words:
                    said[word].used_by = self._user
                return choice
        return self.schema["enum"][0] if len(self.schema["enum"]) == 1 else None

    def _mentioned(self) -> Any:
        labels = {_stem(word) for word in self.words if word not in ("is", "with", "include", "use")}
        for place, token in enumerate(self.facts.tokens):
            if token.kind == "word" and _stem(token.text) in labels:
                before = [earlier.text.lower() for earlier in self.facts.tokens[max(0, place - 2) : place]]
                return not (set(before) & _NEGATIONS)
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
        arguments, fresh, missing = _arguments(inner, self.facts, again=False)
        self.used_token = fresh
        return None if missing else arguments

    def _fits_value(self, value: Any) -> bool:
        if self.kind == "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        if self.kind == "number":
            return isinstance(value, (int, float)) and not isinstance(value, bool)
        return self.kind == "string" and isinstance(value, (str, int, float)) and not isinstance(value, bool)


# ------------------------------------------------------------------- answering


def _report(request: ModelRequest, results: Sequence[Mapping[str, Any]], lacking: Sequence[str]) -> str:
    """Put the results into sentences; without results, say so."""
    calls = _calls(request)
    sentences = [_describe(message, calls.get(message["toolUseId"], {})) for message in results]
    sentences += lacking
    if sentences:
        return " ".join(sentences)
    if request.tools:
        names = ", ".join(tool.name for tool in request.tools)
        return f"I am a small rule model and work through tools only. None of mine ({names}) fits this request."
    return (
        f"I am a small rule model without knowledge of my own, and I was given no tools. You said: {request.prompt}"
    )


def _describe(message: Mapping[str, Any], call: Mapping[str, Any]) -> str:
    arguments = call.get("input") or {}
    given = ", ".join(f"{name} {_shown(value)}" for name, value in arguments.items())
    label = f"{message['name']} ({given})" if given else str(message["name"])
    if message.get("isError"):
        return f"{label} did not work: {_sentence(message['content'])}"
    value = _as_json(message["content"])
    if isinstance(value, Mapping):
        listed = ", ".join(f"{name} is {_shown(inner)}" for name, inner in value.items())
        return f"{label} says: {_sentence(listed or 'nothing')}"
    if isinstance(value, list):
        return f"{label} found {len(value)}: {_sentence(', '.join(_shown(inner) for inner in value[:20]))}"
    return f"{label} says: {_sentence(_shown(value))}"


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 500 else text[:497] + "..."


def _sentence(text: str) -> str:
    text = text.strip()
    return text if text.endswith((".", "!", "?")) else text + "."


def _compose(schema: Mapping[str, Any], facts: _Facts, report: str) -> Any:
    """Build a value of the run's output schema from what is known."""
    facts.release()
    composed: dict[str, Any] = {}
    tool = ToolDeclaration("output", "", schema)
    for name, inner in _properties(schema).items():
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
        return {name: _empty_value(str(s.get("type")), s, report) for name, s in _properties(schema).items()}
    return {"integer": 0, "number": 0, "boolean": False, "array": [], "null": None}.get(kind, report)
