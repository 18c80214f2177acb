"""The chat-completions dialect: a model request as its JSON body, its stream as parts of a turn. Does no I/O.

Servers that speak it differ in the small; where they do, what is common counts and a comment says what for.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import Any, Iterator, Mapping, Optional, Sequence

from mantyx_sync.local.model import ModelFailure, ModelPart, ModelRequest, Text, Thinking, ToolUse, TurnEnd, Usage
from mantyx_sync.local.modelinfo import reasoning_effort, reasoning_number

__all__ = ["ChatStream", "chat_body", "chat_failure"]

# ------------------------------------------------------------------------ request


def chat_body(
    request: ModelRequest, model: str, *, send_reasoning: bool, extra: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Build the body of `POST /chat/completions` for one turn.

    Args:
        request: What the agent loop asks.
        model: The server's name of the model.
        send_reasoning: Send `reasoning_effort`; servers that do not know the field may refuse it.
        extra: Further fields of the body; they win.
    """
    body: dict[str, Any] = {
        "model": model,
        "messages": _messages(request.messages),
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": dict(tool.parameters),
                },
            }
            for tool in request.tools
        ]
    if request.output_schema is not None:
        body["response_format"] = {
            "type": "json_schema",
            "json_schema": {
                "name": request.output_schema.get("name") or "output",
                "strict": True,
                "schema": request.output_schema["schema"],
            },
        }
    level = request.spec.get("reasoningLevel")
    if send_reasoning and reasoning_number(level) > 0:
        body["reasoning_effort"] = reasoning_effort(level)
    body.update(extra or {})
    return body


def _messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []
    files: list[dict[str, Any]] = []
    for message in messages:
        role = message["role"]
        if files and role != "tool":
            # A tool's message holds text alone, and the messages of one batch stand together: their files follow
            # as a user's (wire §5).
            sent.append({"role": "user", "content": files})
            files = []
        if role == "tool":
            sent.append({"role": "tool", "tool_call_id": message["toolUseId"], "content": message["content"]})
            if message.get("files"):
                files.append({"type": "text", "text": f"Files that {message['name']} returned:"})
                files += [_part(entry) for entry in message["files"]]
        elif message.get("toolCalls"):
            calls = [_call(call) for call in message["toolCalls"]]
            sent.append({"role": role, "content": message["content"] or None, "tool_calls": calls})
        elif message.get("attachments"):
            parts = [{"type": "text", "text": message["content"]}]
            sent.append({"role": role, "content": parts + [_part(entry) for entry in message["attachments"]]})
        else:
            sent.append({"role": role, "content": message["content"]})
    if files:
        sent.append({"role": "user", "content": files})
    return sent


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    arguments = call["input"]
    # What the model wrote goes back as it was, even where it was no JSON.
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": text}}


def _part(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Turn an attachment, or a file of a tool result, into a content part."""
    mime = str(entry.get("mimeType") or "").split(";", 1)[0].strip().lower()
    name = str(entry.get("filename") or "file")
    url = entry.get("url")
    if url is not None:
        if mime.startswith("image/") or (not mime and url.lower().endswith((".png", ".jpg", ".jpeg", ".webp", ".gif"))):
            return {"type": "image_url", "image_url": {"url": url}}
        return {"type": "text", "text": f"[{name} is at {url}]"}
    data = str(entry.get("data", ""))
    if mime.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": f"data:{mime};base64,{data}"}}
    if mime in ("audio/wav", "audio/mpeg"):
        return {"type": "input_audio", "input_audio": {"data": data, "format": "wav" if mime == "audio/wav" else "mp3"}}
    if mime.startswith("text/") or mime in ("application/json", "application/xml"):
        # Few servers take files, all take text.
        text = base64.b64decode(data).decode("utf-8", "replace")
        return {"type": "text", "text": f"{name}:\n{text}"}
    return {"type": "file", "file": {"filename": name, "file_data": f"data:{mime};base64,{data}"}}


# ------------------------------------------------------------------------- answer

_FINISH_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}


@dataclass
class _Call:
    id: Optional[str] = None
    name: str = ""
    pieces: list[str] = field(default_factory=list)
    whole: Any = None  # arguments that came as JSON instead of as text

    def to_part(self) -> ToolUse:
        arguments: Any = self.whole
        if arguments is None:
            text = "".join(self.pieces)
            try:
                arguments = json.loads(text) if text.strip() else {}
            except (ValueError, RecursionError):
                arguments = text  # the loop tells the model that this is no object
        return ToolUse(self.name, arguments, self.id)


class ChatStream:
    """Takes the chunks of one answer in order and gives the parts of the turn. `finish` gives the last ones."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._by_index: dict[object, _Call] = {}
        self._finish: Optional[str] = None
        self._usage: Optional[Usage] = None
        self._refused = False

    @property
    def is_complete(self) -> bool:
        """Whether the server has said why the model stopped."""
        return self._finish is not None

    def feed(self, chunk: Any) -> Iterator[ModelPart]:
        """Take one decoded chunk, or a whole answer from a server that does not stream.

        Raises:
            ModelFailure: The chunk is an error.
        """
        if not isinstance(chunk, Mapping):
            return
        if chunk.get("error"):
            raise chat_failure(None, chunk)
        if isinstance(chunk.get("usage"), Mapping):
            self._usage = _usage(chunk["usage"])
        for choice in chunk.get("choices") or ():  # the last chunk may have none, or null
            if not isinstance(choice, Mapping) or choice.get("index") not in (None, 0):
                continue
            yield from self._read(choice.get("delta") or choice.get("message") or {})
            if choice.get("finish_reason"):
                self._finish = str(choice["finish_reason"])

    def _read(self, delta: Mapping[str, Any]) -> Iterator[ModelPart]:
        thought = delta.get("reasoning_content") or delta.get("reasoning")
        if isinstance(thought, str) and thought:
            yield Thinking(thought)
        content = delta.get("content")
        if isinstance(content, str) and content:
            yield content
        elif isinstance(content, list):
            for entry in content:
                if isinstance(entry, Mapping) and entry.get("text"):
                    yield Text(str(entry["text"]))
        refusal = delta.get("refusal")
        if isinstance(refusal, str) and refusal:
            self._refused = True
            yield refusal
        for place, entry in enumerate(delta.get("tool_calls") or ()):
            if isinstance(entry, Mapping):
                self._read_call(entry, place)

    def _read_call(self, entry: Mapping[str, Any], place: int) -> None:
        function = entry.get("function") or {}
        index = entry.get("index", place)
        call = self._by_index.get(index)
        given = entry.get("id")
        # Some servers number every call of a turn 0: another id begins another call.
        if call is None or (given and call.id and given != call.id):
            call = self._by_index[index] = _Call()
            self._calls.append(call)
        call.id = call.id or (str(given) if given else None)
        call.name = call.name or str(function.get("name") or "")
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            call.pieces.append(arguments)
        elif arguments is not None:
            call.whole = arguments

    def finish(self) -> Iterator[ModelPart]:
        """Give the tool calls and the end of the turn."""
        yield from (call.to_part() for call in self._calls)
        reason = _FINISH_REASONS.get(self._finish or "stop", (self._finish or "stop").lower())
        if self._refused:
            reason = "refusal"
        elif self._calls and reason == "end_turn":  # some servers say "stop" for calls, too
            reason = "tool_use"
        yield TurnEnd(reason, self._usage)


def _usage(value: Mapping[str, Any]) -> Usage:
    return Usage(
        _count(value, "prompt_tokens"),
        _count(value, "completion_tokens"),
        _count(value.get("prompt_tokens_details"), "cached_tokens"),
        _count(value.get("completion_tokens_details"), "reasoning_tokens"),
    )


def _count(holder: Any, name: str) -> int:
    found = holder.get(name) if isinstance(holder, Mapping) else None
    return found if isinstance(found, int) else 0


# ------------------------------------------------------------------------- errors

_CLASS_OF_STATUS = {
    401: "auth",
    403: "auth",
    408: "timeout",
    413: "context_window",
    429: "rate_limit",
    503: "overloaded",
    504: "upstream_deadline",
    529: "overloaded",
}
_RETRYABLE = frozenset({"rate_limit", "overloaded", "server", "timeout", "upstream_deadline"})
_TOO_LONG = ("context length", "context_length", "context window", "context size", "maximum context", "too many tokens")
_NO_SCHEMA = ("response_format", "json_schema", "json schema", "grammar", "structured output")
MAX_MESSAGE_CHARS = 500


def chat_failure(status: int | None, body: Any, *, with_schema: bool = False) -> ModelFailure:
    """Turn an error of the server into the run's failure (wire §4.8).

    Args:
        status: The HTTP status; None for an error inside a stream.
        body: The decoded body, or its text where that is no JSON.
        with_schema: An output schema was sent: a refusal that speaks of it is its rejection.
    """
    error = body.get("error", body) if isinstance(body, Mapping) else body
    message, code, kind = error, None, None
    if isinstance(error, Mapping):
        message = error.get("message") or error.get("detail") or "no reason given"
        code, kind = error.get("code"), error.get("type")
    text = " ".join(str(message).split())[:MAX_MESSAGE_CHARS] or "no reason given"
    if status is None and isinstance(code, int):  # some put the status into an error inside the stream
        status = code
    words = f"{text} {code} {kind}".lower()
    error_class = "server" if status is None or status >= 500 else "invalid_request"
    error_class = _CLASS_OF_STATUS.get(status or 0, error_class)
    if error_class in ("invalid_request", "server") and any(word in words for word in _TOO_LONG):
        error_class = "context_window"
    elif error_class == "invalid_request" and with_schema and any(word in words for word in _NO_SCHEMA):
        error_class = "structured_output_schema_rejected"
    return ModelFailure(
        f"The model server answered {status}: {text}" if status is not None else f"The model server failed: {text}",
        error_class=error_class,
        retryable=error_class in _RETRYABLE and code != "insufficient_quota",
        api_status=status,
        api_code=None if code is None else str(code),
    )
