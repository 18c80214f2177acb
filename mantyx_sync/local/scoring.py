"""How the embedded server scores a case of an eval: by the answer's text and the tool calls made. Does no I/O.

The platform's notes name scorers without saying what they hold; these are the embedded server's own:

- `{"type": "exact", "value": text}`: the answer is this text, white space around both left aside.
- `{"type": "contains", "value": text}` or `"values": [text, …]`: the answer contains all of them.
- `{"type": "regex", "pattern": pattern}`: the pattern is found in the answer.
- `{"type": "json_schema", "schema": schema}`: the answer is JSON that the schema accepts.
- `{"type": "tool_called", "tool": name, "args"?: {…}, "times"?: n}`: the tool was called, with at least these
  arguments, exactly so often.

The first three take `"ignoreCase": true`; every scorer may have a `name` and a `weight` (1).
"""

from __future__ import annotations

import json
import re
from typing import Any, Mapping, Sequence

from mantyx_sync.local.checks import InvalidRequest

__all__ = ["SCORER_TYPES", "check_scorers", "score_case"]

SCORER_TYPES = ("exact", "contains", "regex", "json_schema", "tool_called")


def check_scorers(value: Any, path: str) -> list[dict[str, Any]]:
    """Check the scorers of a case. Raises `InvalidRequest`."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise InvalidRequest(f"{path} must be an array")
    for index, scorer in enumerate(value):
        here = f"{path}[{index}]"
        if not isinstance(scorer, dict):
            raise InvalidRequest(f"{here} must be an object")
        kind = scorer.get("type")
        if kind not in SCORER_TYPES:
            raise InvalidRequest(f"{here}.type must be one of {', '.join(SCORER_TYPES)}")
        weight = scorer.get("weight", 1)
        if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not weight > 0:
            raise InvalidRequest(f"{here}.weight must be a number above 0")
        _CHECKS[kind](scorer, here)
    return value


def score_case(
    scorers: Sequence[Mapping[str, Any]], text: str, tool_calls: Sequence[Mapping[str, Any]]
) -> tuple[list[dict[str, Any]], float]:
    """Return the scores of a case that ran to its end, and their weighted mean; 1 where nothing was asked."""
    scores = []
    total = weights = 0.0
    for scorer in scorers:
        reason = _SCORES[scorer["type"]](scorer, text, tool_calls)
        value = 0.0 if reason else 1.0
        scores.append(
            {
                "type": scorer["type"],
                "name": scorer.get("name") or scorer["type"],
                "score": value,
                "passed": not reason,
                "reason": reason or None,
            }
        )
        weight = float(scorer.get("weight", 1))
        total += weight * value
        weights += weight
    return scores, total / weights if weights else 1.0


# ------------------------------------------------------------------ what they hold


def _texts(scorer: Mapping[str, Any]) -> list[Any]:
    return list(scorer["values"]) if isinstance(scorer.get("values"), list) else [scorer.get("value")]


def _check_text(scorer: Mapping[str, Any], path: str) -> None:
    texts = _texts(scorer)
    if not texts or not all(isinstance(text, str) for text in texts):
        raise InvalidRequest(f"{path}.value must be a string")


def _check_exact(scorer: Mapping[str, Any], path: str) -> None:
    if not isinstance(scorer.get("value"), str):
        raise InvalidRequest(f"{path}.value must be a string")


def _check_regex(scorer: Mapping[str, Any], path: str) -> None:
    try:
        re.compile(scorer["pattern"])
    except (KeyError, TypeError, re.error, RecursionError, OverflowError):
        raise InvalidRequest(f"{path}.pattern must be a regular expression") from None


def _check_schema(scorer: Mapping[str, Any], path: str) -> None:
    from mantyx_sync.schema import SchemaChecker  # jsonschema takes its time: only who scores by it pays

    if not isinstance(scorer.get("schema"), dict):
        raise InvalidRequest(f"{path}.schema must be a JSON Schema object")
    try:
        SchemaChecker(scorer["schema"], label=f"{path}.schema")
    except ValueError as error:
        raise InvalidRequest(str(error)) from None


def _check_tool(scorer: Mapping[str, Any], path: str) -> None:
    if not isinstance(scorer.get("tool"), str):
        raise InvalidRequest(f"{path}.tool must be a string")
    if not isinstance(scorer.get("args", {}), dict):
        raise InvalidRequest(f"{path}.args must be an object")
    times = scorer.get("times", 1)
    if isinstance(times, bool) or not isinstance(times, int) or times < 0:
        raise InvalidRequest(f"{path}.times must be an integer from 0")


_CHECKS = {
    "exact": _check_exact,
    "contains": _check_text,
    "regex": _check_regex,
    "json_schema": _check_schema,
    "tool_called": _check_tool,
}

# ---------------------------------------------- what they say: a reason, or nothing where all is well


def _folded(scorer: Mapping[str, Any], text: str) -> str:
    return text.casefold() if scorer.get("ignoreCase") else text


def _exact(scorer: Mapping[str, Any], text: str, _calls: Sequence[Mapping[str, Any]]) -> str:
    same = _folded(scorer, text).strip() == _folded(scorer, scorer["value"]).strip()
    return "" if same else "the answer is another text"


def _contains(scorer: Mapping[str, Any], text: str, _calls: Sequence[Mapping[str, Any]]) -> str:
    where = _folded(scorer, text)
    missing = [wanted for wanted in _texts(scorer) if _folded(scorer, wanted) not in where]
    return f"the answer lacks {missing[0][:100]!r}" if missing else ""


def _regex(scorer: Mapping[str, Any], text: str, _calls: Sequence[Mapping[str, Any]]) -> str:
    flags = re.IGNORECASE if scorer.get("ignoreCase") else 0
    return "" if re.search(scorer["pattern"], text, flags) else "the pattern is not found in the answer"


def _json_schema(scorer: Mapping[str, Any], text: str, _calls: Sequence[Mapping[str, Any]]) -> str:
    from mantyx_sync.schema import SchemaChecker

    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return "the answer is not JSON"
    problems = SchemaChecker(scorer["schema"], label="a scorer", foreign=True).problems(value)
    return problems[0] if problems else ""


def _tool_called(scorer: Mapping[str, Any], _text: str, calls: Sequence[Mapping[str, Any]]) -> str:
    wanted = scorer.get("args", {})
    made = [
        call
        for call in calls
        if call["name"] == scorer["tool"]
        and isinstance(call["input"], Mapping)
        and all(name in call["input"] and call["input"][name] == value for name, value in wanted.items())
    ]
    if "times" in scorer:
        return "" if len(made) == scorer["times"] else f"{scorer['tool']} was called so {len(made)} times"
    return "" if made else f"{scorer['tool']} was not called so"


_SCORES = {
    "exact": _exact,
    "contains": _contains,
    "regex": _regex,
    "json_schema": _json_schema,
    "tool_called": _tool_called,
}
