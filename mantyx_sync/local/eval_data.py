"""What an eval of the embedded server is made of: data sets with their cases, tool mocks, overrides. Does no I/O.

The platform's notes name these and leave their form open in part: `read_dataset` says what a case's input may
be, `read_mocks` what a mock is, `scoring` what scorers there are.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, field
from typing import Any, Iterable, Mapping, Optional, Sequence

from mantyx_sync.local.checks import InvalidRequest, check_spec
from mantyx_sync.local.scoring import check_scorers
from mantyx_sync.local.store import ToolAnswer, encode_json, timestamp

__all__ = ["EvalCase", "EvalDataset", "Mocks", "apply_overrides", "read_dataset", "read_mocks", "read_overrides"]

MAX_CASES = 1000
_OVERRIDES: Mapping[str, type] = {
    "systemPrompt": str,
    "systemPromptAppend": str,
    "model": str,
    "llmProviderId": str,
    "disableTools": bool,
}


@dataclass(frozen=True)
class EvalCase:
    """One case: what is said to the agent, and how the answer is scored."""

    id: str
    name: str
    input: Mapping[str, Any]
    scorers: Sequence[Mapping[str, Any]] = ()
    tags: Sequence[str] = ()
    tool_mocks: Optional[Mapping[str, Any]] = None
    created: float = 0.0

    def to_wire(self) -> dict[str, Any]:
        """Build the case as data sets and results show it."""
        return {
            "id": self.id,
            "name": self.name,
            "input": dict(self.input),
            "scorers": list(self.scorers),
            "tags": list(self.tags),
            "toolMocks": self.tool_mocks,
            "createdAt": timestamp(self.created),
            "updatedAt": timestamp(self.created),
        }

    def turn(self) -> dict[str, Any]:
        """Return the `prompt` or `messages` of the case's run."""
        if "content" in self.input:
            return {"messages": [{"role": "user", **self.input}]}
        return {name: self.input[name] for name in ("prompt", "messages") if self.input.get(name) is not None}


@dataclass(frozen=True)
class EvalDataset:
    """A data set with its cases."""

    id: str
    name: str
    cases: Sequence[EvalCase]
    description: Optional[str] = None
    tool_mocks: Optional[Mapping[str, Any]] = None
    created: float = field(default_factory=time.time)

    def to_summary(self, run_count: int) -> dict[str, Any]:
        """Build the data set's entry in a listing."""
        return {
            "id": self.id,
            "name": self.name,
            "description": self.description,
            "caseCount": len(self.cases),
            "runCount": run_count,
            "createdAt": timestamp(self.created),
            "updatedAt": timestamp(self.created),
        }

    def to_detail(self, run_count: int) -> dict[str, Any]:
        """Build the body of `GET /eval-datasets/{id}`."""
        cases = [case.to_wire() for case in self.cases]
        return {**self.to_summary(run_count), "toolMocks": self.tool_mocks, "cases": cases}


def read_dataset(value: Any, path: str = "dataset", *, number: int | None = None) -> EvalDataset:
    """Read a data set in its wire form. Ids and names that are missing are made up, the same each time.

    Args:
        value: `{id?, name?, description?, toolMocks?, cases: [{id?, name?, input, scorers?, tags?, toolMocks?}]}`.
            A case's `input` is `{"prompt": …}`, `{"messages": […]}`, one message, or just its text.
        path: Where it stands, for messages.
        number: Its number among configured ones; None for one that came inline.

    Raises:
        InvalidRequest: What is wrong, in one sentence.
    """
    if not isinstance(value, dict):
        raise InvalidRequest(f"{path} must be an object")
    cases = value.get("cases")
    if not isinstance(cases, list) or not 1 <= len(cases) <= MAX_CASES:
        raise InvalidRequest(f"{path}.cases must be an array of 1 to {MAX_CASES} cases")
    now = time.time()
    found = [_read_case(case, f"{path}.cases[{index}]", index + 1, now) for index, case in enumerate(cases)]
    if len({case.id for case in found}) != len(found):
        raise InvalidRequest(f"{path}.cases: two cases have the same id")
    name = _optional_text(value, "name", path)
    if number is not None:
        dataset_id = _optional_text(value, "id", path) or f"ds_{number}"
    else:  # the same cases get the same id, so that two runs of them can be compared
        content = encode_json([name, [[case.id, case.name, case.input] for case in found]])
        dataset_id = f"ds_inline_{hashlib.sha256(content).hexdigest()[:16]}"
    return EvalDataset(
        dataset_id,
        name or ("inline" if number is None else dataset_id),
        found,
        _optional_text(value, "description", path),
        read_mocks(value.get("toolMocks"), f"{path}.toolMocks"),
        now,
    )


def _read_case(value: Any, path: str, number: int, now: float) -> EvalCase:
    if not isinstance(value, dict):
        raise InvalidRequest(f"{path} must be an object")
    given = value.get("input")
    if isinstance(given, str):
        given = {"prompt": given}
    if not isinstance(given, dict):
        raise InvalidRequest(f"{path}.input must be an object")
    tags = value.get("tags") or []
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise InvalidRequest(f"{path}.tags must be an array of strings")
    case = EvalCase(
        _optional_text(value, "id", path) or f"case_{number}",
        _optional_text(value, "name", path) or f"Case {number}",
        given,
        check_scorers(value.get("scorers"), f"{path}.scorers"),
        tags,
        read_mocks(value.get("toolMocks"), f"{path}.toolMocks"),
        now,
    )
    try:
        check_spec(case.turn(), needs_identity=False)
    except InvalidRequest as problem:
        raise InvalidRequest(f"{path}.input: {problem}") from None
    return case


def read_mocks(value: Any, path: str) -> Mapping[str, Any] | None:
    """Check tool mocks: by the tool's name, the result its calls get instead of being made.

    A mock is `{"result": …}` or `{"error": text}`, or a list of these for one call after the other, of which the
    last stays; any other JSON value is itself the result.

    Raises:
        InvalidRequest: They are no object, or one is an empty list or an error without a text.
    """
    if value is None:
        return None
    if not isinstance(value, dict):
        raise InvalidRequest(f"{path} must be an object")
    for name, mock in value.items():
        answers = mock if isinstance(mock, list) else [mock]
        if not answers:
            raise InvalidRequest(f"{path}.{name} must not be empty")
        for answer in answers:
            if isinstance(answer, dict) and "error" in answer and not isinstance(answer["error"], str):
                raise InvalidRequest(f"{path}.{name}.error must be a string")
    return value


def _optional_text(value: Mapping[str, Any], name: str, path: str) -> str | None:
    text = value.get(name)
    if text is not None and not isinstance(text, str):
        raise InvalidRequest(f"{path}.{name} must be a string")
    return text or None


class Mocks:
    """The mocks of one case; counts the calls of each tool."""

    def __init__(self, mocks: Mapping[str, Any]) -> None:
        self._mocks = mocks
        self._calls: dict[str, int] = {}

    def __call__(self, name: str, _arguments: Any) -> ToolAnswer | None:
        if name not in self._mocks:
            return None
        mock = self._mocks[name]
        call = self._calls.get(name, 0)
        self._calls[name] = call + 1
        if isinstance(mock, list):
            mock = mock[min(call, len(mock) - 1)]
        if isinstance(mock, dict) and "error" in mock:
            return ToolAnswer(mock["error"], is_error=True)
        result = mock["result"] if isinstance(mock, dict) and "result" in mock else mock
        return ToolAnswer(result if isinstance(result, str) else encode_json(result).decode())


# ------------------------------------------------------------------ overrides of the agent


def read_overrides(value: Any) -> Mapping[str, Any] | None:
    """Check the `overrides` of an eval run. Raises `InvalidRequest`."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise InvalidRequest("overrides must be an object")
    for name, kind in _OVERRIDES.items():
        if value.get(name) is not None and not isinstance(value[name], kind):
            raise InvalidRequest(f"overrides.{name} must be a {'boolean' if kind is bool else 'string'}")
    for name in ("toolAllowlist", "disabledMocks"):
        names = value.get(name)
        if names is not None and not (isinstance(names, list) and all(isinstance(n, str) for n in names)):
            raise InvalidRequest(f"overrides.{name} must be an array of strings")
    if value.get("reasoningLevel") is not None:
        check_spec({"reasoningLevel": value["reasoningLevel"]}, needs_input=False, needs_identity=False)
    return value


def apply_overrides(spec: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec of an agent as an eval wants it."""
    changed = dict(spec)
    if overrides.get("systemPrompt") is not None:
        changed["systemPrompt"] = overrides["systemPrompt"]
    if overrides.get("systemPromptAppend"):
        parts = (changed.get("systemPrompt"), overrides["systemPromptAppend"])
        changed["systemPrompt"] = "\n\n".join(part for part in parts if part)
    if overrides.get("model"):
        changed["modelId"] = overrides["model"]
    if overrides.get("reasoningLevel") is not None:
        changed["reasoningLevel"] = overrides["reasoningLevel"]
    if overrides.get("disableTools"):
        changed["tools"] = []
    elif overrides.get("toolAllowlist") is not None:
        changed["tools"] = list(_allowed(changed.get("tools") or (), overrides["toolAllowlist"]))
    return changed


def _allowed(tools: Iterable[Mapping[str, Any]], names: Sequence[str]) -> Iterable[Mapping[str, Any]]:
    """Keep the tools an allow list names: by the name the model calls, by id, or a server by its label."""
    for ref in tools:
        if ref.get("name") in names or ref.get("id") in names:
            yield ref
        elif ref["kind"] == "mcp_local":
            kept = [entry for entry in ref["tools"] if entry["name"] in names]
            if kept:
                yield {**ref, "tools": kept}
