"""`RuleModel`: a small model made of rules, so that the embedded server can use tools without an account.

It knows nothing of the world. It compares the words of the request with the names, descriptions and schemas
of the tools it was given, takes arguments out of the request (and out of earlier results) by type and name,
calls what fits, and reports what came back. Other tools or other words give other calls.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Collection, Iterator, Mapping, Sequence

from mantyx_sync.local.facts import ACTING, WEAK, Facts, as_json, keys_of, properties_of, results_of, split_name
from mantyx_sync.local.filling import compose, fill_arguments
from mantyx_sync.local.model import ModelPart, ModelRequest, Thinking, ToolDeclaration, ToolUse

__all__ = ["RuleModel"]

MAX_CALLS_PER_TOOL = 8
MIN_SCORE = 1.0


class RuleModel:
    """Choose among the given tools by rules, call them, and answer from their results. Needs no network.

    Args:
        model_id: The catalog id that runs report.
        word_delay: Seconds between the streamed words of an answer, for a demonstration.
    """

    def __init__(self, *, model_id: str = "local:rule", word_delay: float = 0.0) -> None:
        self.model_id = model_id
        self.structured_output = "native_schema"
        self._word_delay = word_delay

    def complete(self, request: ModelRequest) -> Iterator[ModelPart]:
        """Play one turn: tool calls while some fit that were not made yet, otherwise the answer."""
        facts = Facts.of(request)
        results = results_of(request)
        called = {message["name"] for message in results}
        calls, lacking = _plan(facts, request.tools, called)
        if _wants_thinking(request.spec):
            names = ", ".join(call.name for call in calls)
            yield Thinking(f"These tools fit the request: {names}." if calls else "No further tool call is needed.")
        if calls:
            yield from calls
            return
        schema = request.output_schema
        if schema:
            text = json.dumps(compose(schema["schema"], facts, _report(request, results, lacking)))
        else:
            text = _report(request, results, lacking)
        for word in re.findall(r"\S+\s*|\s+", text):
            yield word
            if self._word_delay > 0 and request.cancelled.wait(self._word_delay):
                return


def _wants_thinking(spec: Mapping[str, Any]) -> bool:
    return spec.get("reasoningLevel") not in (None, "off", 0)


def _calls(request: ModelRequest) -> dict[str, Mapping[str, Any]]:
    """The tool calls made so far, by id."""
    return {call["id"]: call for message in request.messages for call in message.get("toolCalls") or ()}


# --------------------------------------------------------------- choosing tools


@dataclass
class _Match:
    """How well a tool fits the words of the request, and which of these words it answers to."""

    tool: ToolDeclaration
    score: float
    evidence: set[object]


def _match(tool: ToolDeclaration, facts: Facts) -> _Match:
    wanted = keys_of([token.text for token in facts.tokens if token.kind in ("word", "sign", "code")])
    name_words = split_name(tool.name)
    if name_words[:1] and name_words[0] in ACTING and not keys_of(name_words[:1]) & wanted:
        return _Match(tool, 0.0, set())  # nothing is cancelled or sent unless the request says so
    name = keys_of([word for word in name_words if word not in WEAK])
    weak = keys_of([word for word in name_words if word in WEAK])
    described = keys_of(re.findall(r"[^\W\d_]+", tool.description)) - name
    parameters: list[str] = []
    choices: list[str] = []
    for key, schema in properties_of(tool.parameters).items():
        parameters += split_name(key)
        parameters += re.findall(r"[^\W\d_]+", str(schema.get("description", "")))
        choices += [str(choice) for choice in schema.get("enum", ())]
    score = (
        3.0 * len(name & wanted)
        + 0.5 * len(weak & wanted)
        + min(3.0, 1.0 * len(described & wanted))
        + min(2.0, 0.5 * len(keys_of(parameters) & wanted))
        + 1.0 * len(keys_of(choices) & wanted)
    )
    return _Match(tool, score, (name | described | keys_of(choices)) & wanted)


def _plan(
    facts: Facts, tools: Sequence[ToolDeclaration], called: Collection[str] = ()
) -> tuple[list[ToolUse], list[str]]:
    """Return the calls that fit, and a sentence for each tool that fits but lacks an argument.

    A tool is called only if it answers to a word that no better one answers to: where `get_order` fits,
    `list_orders` adds nothing.
    """
    matches = [_match(tool, facts) for tool in tools]
    best = max((match.score for match in matches), default=0.0)
    covered: set[object] = set()
    candidates: list[tuple[bool, float, int, _Match, list[ToolUse], list[str]]] = []
    for match in matches:
        if match.tool.name in called:
            covered |= match.evidence
        elif match.score >= MIN_SCORE and match.score >= best / 3:
            calls, missing = _calls_of(match.tool, facts)
            # A tool that takes something out of the request fits it better than one that does not.
            takes = any(call.args for call in calls)
            candidates.append((not calls, -(match.score + 2.0 * takes), len(candidates), match, calls, missing))
    chosen: list[tuple[int, list[ToolUse]]] = []
    lacking: list[str] = []
    for _, _, place, match, calls, missing in sorted(candidates, key=lambda entry: entry[:3]):
        if not match.evidence - covered:
            continue
        covered |= match.evidence
        if calls:
            chosen.append((place, calls))
        else:
            lacking.append(f"I could not call {match.tool.name}: the request gives no {' and no '.join(missing)}.")
    return [call for _, calls in sorted(chosen, key=lambda entry: entry[0]) for call in calls], lacking


def _calls_of(tool: ToolDeclaration, facts: Facts) -> tuple[list[ToolUse], list[str]]:
    """Return the calls of one tool, several where the request names several things, and what is missing."""
    facts.release()  # two tools may both want the same piece of the request
    calls: list[ToolUse] = []
    while len(calls) < MAX_CALLS_PER_TOOL:
        # A second call of the same tool needs pieces of the request that the first left over.
        arguments, fresh, missing = fill_arguments(tool, facts, again=bool(calls))
        if missing and not calls:
            return [], missing
        if missing or (calls and not fresh):
            break
        calls.append(ToolUse(tool.name, arguments))
        if not fresh:
            break
    return calls, []


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
    return f"I am a small rule model without knowledge of my own, and I was given no tools. You said: {request.prompt}"


def _describe(message: Mapping[str, Any], call: Mapping[str, Any]) -> str:
    arguments = call.get("input") or {}
    given = ", ".join(f"{name} {_shown(value)}" for name, value in arguments.items())
    label = f"{message['name']} ({given})" if given else str(message["name"])
    if message.get("isError"):
        return f"{label} did not work: {_sentence(message['content'])}"
    value = as_json(message["content"])
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
