"""What the embedded server refuses with `400 invalid_request`: the limits of a spec and of a tool result.

The numbers are those of `mantyx_sync.limits`. Does no I/O. A field that the documents do not name passes.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, Callable, Mapping, Optional

from mantyx_sync import limits
from mantyx_sync.local.store import ToolAnswer, encode_json

__all__ = ["InvalidRequest", "check_spec", "read_feedback", "read_tool_result"]

_KINDS = ("mantyx", "mantyx_plugin", "local", "a2a", "a2a_local", "mcp", "mcp_local")
_PLAN_WORDS = ("off", "auto", "required")


class InvalidRequest(Exception):
    """The body breaks a documented rule. The text names the field, the value and the limit."""


def check_spec(spec: Mapping[str, Any], *, needs_input: bool = True, needs_identity: bool = True) -> None:
    """Check an agent spec against the documented limits (http §4, wire §§2, 3, 6 to 8).

    Args:
        spec: The request body.
        needs_input: Exactly one of `prompt` and `messages` is required, as on a run or a session's message.
        needs_identity: One of `agentId`, `systemPrompt` and a system message is required.

    Raises:
        InvalidRequest: What is wrong, in one sentence.
    """
    for name in ("name", "agentId", "systemPrompt", "modelId", "fallbackModelId", "prompt"):
        _optional(spec, name, str, "a string")
    messages = spec.get("messages")
    if needs_input and (spec.get("prompt") is None) == (messages is None):
        raise InvalidRequest("exactly one of prompt and messages is required")
    has_system = _check_messages(messages) if messages is not None else False
    if needs_identity and not (spec.get("agentId") or spec.get("systemPrompt") or has_system):
        raise InvalidRequest("a spec needs agentId, systemPrompt or a non-empty system message")
    for name, check in _CHECKS.items():
        if name in spec:
            check(spec[name])


# -------------------------------------------------------------------- small tools


def _optional(holder: Mapping[str, Any], name: str, kind: type, words: str, path: str = "") -> Any:
    value = holder.get(name)
    if value is not None and not isinstance(value, kind):
        raise InvalidRequest(f"{path}{name} must be {words}, got {_short(value)}")
    return value


def _object(value: Any, path: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InvalidRequest(f"{path} must be an object, got {_short(value)}")
    return value


def _list(value: Any, path: str) -> list[Any]:
    if not isinstance(value, list):
        raise InvalidRequest(f"{path} must be an array, got {_short(value)}")
    return value


def _integer(value: Any, path: str, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidRequest(f"{path} must be an integer from {low} to {high}, got {_short(value)}")
    return value


def _named(value: Any, path: str) -> str:
    if not isinstance(value, str) or not limits.TOOL_NAME.fullmatch(value):
        raise InvalidRequest(f"{path} must match {limits.TOOL_NAME.pattern}, got {_short(value)}")
    return value


def _text(value: Any, path: str) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidRequest(f"{path} must be a non-empty string, got {_short(value)}")
    return value


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=True, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


# ----------------------------------------------------------------- parts of a spec


def _check_messages(value: Any) -> bool:
    messages = _list(value, "messages")
    if not 1 <= len(messages) <= limits.MAX_MESSAGES:
        raise InvalidRequest(f"messages must have 1 to {limits.MAX_MESSAGES} entries, got {len(messages)}")
    has_system = False
    last_role = None
    inline = 0
    for index, message in enumerate(messages):
        path = f"messages[{index}]"
        role = _object(message, path).get("role")
        if role not in ("user", "assistant", "system"):
            raise InvalidRequest(f"{path}.role must be user, assistant or system, got {_short(role)}")
        content = message.get("content")
        if not isinstance(content, str):
            raise InvalidRequest(f"{path}.content must be a string, got {_short(content)}")
        if len(content) > limits.MAX_MESSAGE_CHARS:
            raise InvalidRequest(
                f"{path}.content has {len(content)} characters, the limit is {limits.MAX_MESSAGE_CHARS}"
            )
        if message.get("attachments") is not None:
            inline += _check_attachments(message["attachments"], f"{path}.attachments")
        if role == "system":
            has_system = has_system or bool(content)
        else:
            last_role = role
    if last_role != "user":
        raise InvalidRequest("the last message that is not a system message must be a user message")
    if inline > limits.MAX_INLINE_ATTACHMENT_BYTES:
        raise InvalidRequest(
            f"attachments hold {inline} bytes inline, the limit is {limits.MAX_INLINE_ATTACHMENT_BYTES}"
        )
    return has_system


def _check_attachments(value: Any, path: str) -> int:
    entries = _list(value, path)
    if len(entries) > limits.MAX_ATTACHMENTS:
        raise InvalidRequest(f"{path} has {len(entries)} entries, the limit is {limits.MAX_ATTACHMENTS}")
    inline = 0
    for index, entry in enumerate(entries):
        here = f"{path}[{index}]"
        kind = _object(entry, here).get("type")
        if kind == "input_file":
            _text(entry.get("filename"), f"{here}.filename")
            _check_mime(entry.get("mimeType"), f"{here}.mimeType")
            inline += _decoded_size(entry.get("data"), f"{here}.data")
        elif kind == "input_file_url":
            if not _text(entry.get("url"), f"{here}.url").lower().startswith("https://"):
                raise InvalidRequest(f"{here}.url must be an https URL")
            if entry.get("mimeType") is not None:
                _check_mime(entry["mimeType"], f"{here}.mimeType")
        else:
            raise InvalidRequest(f"{here}.type must be input_file or input_file_url, got {_short(kind)}")
    return inline


def _check_mime(value: Any, path: str) -> None:
    if not limits.is_attachment_type(_text(value, path)):
        raise InvalidRequest(f"{path} {_short(value)} is not an allowed attachment type")


def _decoded_size(value: Any, path: str) -> int:
    text = _text(value, path)
    try:
        return len(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError):
        raise InvalidRequest(f"{path} must be base64 without a data: prefix") from None


def _check_tools(value: Any) -> None:
    names: set[str] = set()
    for index, ref in enumerate(_list(value, "tools")):
        path = f"tools[{index}]"
        kind = _object(ref, path).get("kind")
        if kind not in _KINDS:
            raise InvalidRequest(f"{path}.kind must be one of {', '.join(_KINDS)}, got {_short(kind)}")
        for name in _check_tool(ref, path):
            if name in names:
                raise InvalidRequest(f"{path}: there are two tools named {name!r}")
            names.add(name)


def _check_tool(ref: Mapping[str, Any], path: str) -> list[str]:
    kind = ref["kind"]
    if kind == "mantyx":
        _text(ref.get("id"), f"{path}.id")
        return []
    if kind == "mantyx_plugin":
        _text(ref.get("name"), f"{path}.name")
        return []
    if kind == "mcp_local":
        _text(ref.get("name"), f"{path}.name")
        entries = _list(ref.get("tools"), f"{path}.tools")
        if not 1 <= len(entries) <= limits.MAX_MCP_TOOLS:
            raise InvalidRequest(f"{path}.tools must have 1 to {limits.MAX_MCP_TOOLS} entries, got {len(entries)}")
        return [
            _named(_object(entry, f"{path}.tools[{place}]").get("name"), f"{path}.tools[{place}].name")
            for place, entry in enumerate(entries)
        ]
    name = _named(ref.get("name"), f"{path}.name")
    _optional(ref, "description", str, "a string", f"{path}.")
    if kind == "local":
        _optional(ref, "parameters", dict, "a JSON Schema object", f"{path}.")
        _optional(ref, "outputSchema", dict, "a JSON Schema object", f"{path}.")
        for flag in ("longRunning", "readOnly", "retain"):
            _optional(ref, flag, bool, "a boolean", f"{path}.")
    elif kind == "a2a_local":
        _object(ref.get("agentCard"), f"{path}.agentCard")
    else:
        _text(ref.get("url" if kind == "mcp" else "agentCardUrl"), f"{path}.url")
        _optional(ref, "headers", dict, "an object", f"{path}.")
    return [name]


def _check_reasoning(value: Any) -> None:
    if isinstance(value, str) and value in limits.REASONING_WORDS:
        return
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= limits.MAX_REASONING_LEVEL:
        raise InvalidRequest(
            f"reasoningLevel must be {', '.join(limits.REASONING_WORDS)} or an integer from 0 to "
            f"{limits.MAX_REASONING_LEVEL}, got {_short(value)}"
        )


def _check_budgets(value: Any) -> None:
    budgets = _object(value, "budgets")
    if budgets.get("maxToolTurns") is not None:
        _integer(budgets["maxToolTurns"], "budgets.maxToolTurns", 0, limits.MAX_TOOL_TURNS)
    exceeded = budgets.get("maxToolTurnsExceeded")
    if exceeded not in (None, "finalize", "error"):
        raise InvalidRequest(f"budgets.maxToolTurnsExceeded must be finalize or error, got {_short(exceeded)}")


def _check_output_schema(value: Any) -> None:
    schema = _object(value, "outputSchema")
    _object(schema.get("schema"), "outputSchema.schema")
    name = schema.get("name")
    if name is not None and not (isinstance(name, str) and limits.OUTPUT_SCHEMA_NAME.fullmatch(name)):
        raise InvalidRequest(f"outputSchema.name must match {limits.OUTPUT_SCHEMA_NAME.pattern}, got {_short(name)}")
    if schema.get("enforcement") not in (None, "best_effort", "strict"):
        raise InvalidRequest(
            f"outputSchema.enforcement must be best_effort or strict, got {_short(schema['enforcement'])}"
        )
    size = len(encode_json(value))
    if size > limits.MAX_OUTPUT_SCHEMA_BYTES:
        raise InvalidRequest(f"outputSchema has {size} bytes, the limit is {limits.MAX_OUTPUT_SCHEMA_BYTES}")


def _check_loop_detection(value: Any) -> None:
    if value is False or value is None:
        return
    guard = _object(value, "loopDetection")
    soft = _integer(
        guard.get("consecutiveThreshold", 3),
        "loopDetection.consecutiveThreshold",
        limits.MIN_CONSECUTIVE_THRESHOLD,
        limits.MAX_LOOP_THRESHOLD,
    )
    hard = _integer(
        guard.get("hardCutoffThreshold", 6),
        "loopDetection.hardCutoffThreshold",
        limits.MIN_HARD_CUTOFF_THRESHOLD,
        limits.MAX_LOOP_THRESHOLD,
    )
    if hard <= soft:
        raise InvalidRequest(f"loopDetection.hardCutoffThreshold ({hard}) must exceed consecutiveThreshold ({soft})")


def _check_tool_budgets(value: Any) -> None:
    if value is None:
        return
    budgets = _object(value, "toolBudgets")
    if len(budgets) > limits.MAX_TOOL_BUDGETS:
        raise InvalidRequest(f"toolBudgets has {len(budgets)} entries, the limit is {limits.MAX_TOOL_BUDGETS}")
    for name, budget in budgets.items():
        if not 1 <= len(name) <= limits.MAX_TOOL_BUDGET_KEY_CHARS:
            raise InvalidRequest(
                f"toolBudgets: a key must have 1 to {limits.MAX_TOOL_BUDGET_KEY_CHARS} characters, got {_short(name)}"
            )
        path = f"toolBudgets.{name}"
        _integer(_object(budget, path).get("maxCalls"), f"{path}.maxCalls", 0, limits.MAX_TOOL_CALLS)


def _check_supervisor(value: Any) -> None:
    if value is None or isinstance(value, bool):
        return
    supervisor = _object(value, "supervisor")
    if supervisor.get("interval") is not None:
        _integer(supervisor["interval"], "supervisor.interval", 1, limits.MAX_SUPERVISOR_INTERVAL)
    _optional(supervisor, "modelId", str, "a string", "supervisor.")
    trigger = supervisor.get("reasoningTrigger")
    if trigger is None or trigger is False:
        return
    trigger = _object(trigger, "supervisor.reasoningTrigger")
    for name, high in (
        ("chars", limits.MAX_REASONING_TRIGGER_CHARS),
        ("ms", limits.MAX_REASONING_TRIGGER_MS),
    ):
        if trigger.get(name) is not None:
            _integer(trigger[name], f"supervisor.reasoningTrigger.{name}", 1, high)


def _check_plan(value: Any) -> None:
    if value is None or isinstance(value, bool) or value in _PLAN_WORDS:
        return
    if isinstance(value, str):
        raise InvalidRequest(f"plan must be {', '.join(_PLAN_WORDS)}, got {_short(value)}")
    plan = _object(value, "plan")
    if plan.get("mode") is not None and plan["mode"] not in _PLAN_WORDS:
        raise InvalidRequest(f"plan.mode must be {', '.join(_PLAN_WORDS)}, got {_short(plan['mode'])}")
    _optional(plan, "planOnly", bool, "a boolean", "plan.")
    _optional(plan, "brief", str, "a string", "plan.")
    steps = plan.get("steps")
    if steps is not None and not all(isinstance(step, str) for step in _list(steps, "plan.steps")):
        raise InvalidRequest("plan.steps must be an array of strings")


def _check_metadata(value: Any) -> None:
    if value is None:
        return
    metadata = _object(value, "metadata")
    if len(metadata) > limits.MAX_METADATA_ENTRIES:
        raise InvalidRequest(f"metadata has {len(metadata)} entries, the limit is {limits.MAX_METADATA_ENTRIES}")
    for key, entry in metadata.items():
        if not limits.METADATA_KEY.fullmatch(key):
            raise InvalidRequest(f"metadata key {_short(key)} must match {limits.METADATA_KEY.pattern}")
        if not isinstance(entry, str) or len(entry) > limits.MAX_METADATA_VALUE_CHARS:
            raise InvalidRequest(
                f"metadata.{key} must be a string of at most {limits.MAX_METADATA_VALUE_CHARS} characters"
            )
    size = len(encode_json(metadata))
    if size > limits.MAX_METADATA_BYTES:
        raise InvalidRequest(f"metadata has {size} bytes, the limit is {limits.MAX_METADATA_BYTES}")


_CHECKS: Mapping[str, Callable[[Any], None]] = {
    "tools": _check_tools,
    "reasoningLevel": _check_reasoning,
    "budgets": _check_budgets,
    "outputSchema": _check_output_schema,
    "loopDetection": _check_loop_detection,
    "toolBudgets": _check_tool_budgets,
    "supervisor": _check_supervisor,
    "plan": _check_plan,
    "metadata": _check_metadata,
}


# ------------------------------------------------------------------- other bodies


def read_tool_result(body: Any) -> tuple[str, ToolAnswer]:
    """Read the body of a tool-result POST (wire §5). Raises `InvalidRequest`."""
    fields = _object(body, "the body")
    tool_use_id = _text(fields.get("toolUseId"), "toolUseId")
    result, error = fields.get("result"), fields.get("error")
    if (result is None) == (error is None):
        raise InvalidRequest("exactly one of result and error is required")
    name, value, limit = (
        ("result", result, limits.MAX_TOOL_RESULT_BYTES)
        if error is None
        else ("error", error, limits.MAX_TOOL_ERROR_BYTES)
    )
    if not isinstance(value, str):
        raise InvalidRequest(f"{name} must be a string, got {_short(value)}")
    # Counting the bytes of a result that is far below the limit would be work for nothing.
    if len(value) * 4 > limit:
        size = len(value.encode("utf-8", "surrogatepass"))
        if size > limit:
            raise InvalidRequest(f"{name} has {size} bytes, the limit is {limit}")
    files: tuple[Mapping[str, Any], ...] = ()
    if error is None and fields.get("files") is not None:
        files = _read_files(fields["files"])
    return tool_use_id, ToolAnswer(value, is_error=error is not None, files=files)


def _read_files(value: Any) -> tuple[Mapping[str, Any], ...]:
    entries = _list(value, "files")
    if len(entries) > limits.MAX_TOOL_RESULT_FILES:
        raise InvalidRequest(f"files has {len(entries)} entries, the limit is {limits.MAX_TOOL_RESULT_FILES}")
    files = []
    total = 0
    for index, entry in enumerate(entries):
        path = f"files[{index}]"
        _text(_object(entry, path).get("filename"), f"{path}.filename")
        _check_mime(entry.get("mimeType"), f"{path}.mimeType")
        size = _decoded_size(entry.get("data"), f"{path}.data")
        total += size
        files.append({**entry, "sizeBytes": size})
    if total > limits.MAX_TOOL_RESULT_FILE_BYTES:
        raise InvalidRequest(f"files hold {total} bytes, the limit is {limits.MAX_TOOL_RESULT_FILE_BYTES}")
    return tuple(files)


def read_feedback(body: Any) -> tuple[str, Optional[str], Optional[str]]:
    """Read the body of a feedback POST: verdict, explanation, content snapshot (http §3)."""
    fields = _object(body, "the body")
    verdict = fields.get("verdict")
    if verdict not in ("UP", "DOWN"):
        raise InvalidRequest(f"verdict must be UP or DOWN, got {_short(verdict)}")
    explanation = _optional(fields, "explanation", str, "a string")
    if explanation is not None and len(explanation) > limits.MAX_FEEDBACK_CHARS:
        raise InvalidRequest(f"explanation has {len(explanation)} characters, the limit is {limits.MAX_FEEDBACK_CHARS}")
    return verdict, explanation, _optional(fields, "contentSnapshot", str, "a string")
