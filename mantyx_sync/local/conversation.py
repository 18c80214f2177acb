"""The conversation of one run, as the model is shown it.

Messages are mappings as in `ModelRequest.messages`. Does no I/O.
"""

from __future__ import annotations

from typing import Any, Mapping, Sequence

from mantyx_sync.local.model import ToolUse
from mantyx_sync.local.store import ToolAnswer

__all__ = ["Conversation"]


class Conversation:
    """Everything said so far. `messages` grows while the run goes on.

    Args:
        spec: The run's spec: `systemPrompt`, `prompt` or `messages`.
        history: What earlier runs of the session left, oldest first.
    """

    def __init__(self, spec: Mapping[str, Any], history: Sequence[Mapping[str, Any]] = ()) -> None:
        given: list[Mapping[str, Any]] = list(spec.get("messages") or ())
        if spec.get("prompt") is not None:
            given.append({"role": "user", "content": spec["prompt"]})
        system = [spec["systemPrompt"]] if spec.get("systemPrompt") else []
        talk: list[dict[str, Any]] = []
        # System messages are merged after `systemPrompt` (wire §2.1.1), those of earlier turns before new ones.
        newest: Mapping[str, Any] = {}
        for message in (*history, *given):
            if message["role"] != "system":
                newest = message
                talk.append(_without_attachments(message))
            elif message["content"]:
                system.append(message["content"])
        if given and newest.get("attachments"):
            talk[-1]["attachments"] = newest["attachments"]
        self.messages = [{"role": "system", "content": "\n\n".join(system)}, *talk] if system else talk

    @property
    def prompt(self) -> str:
        """The text of the user's last message."""
        last = self._last_user()
        return "" if last is None else str(last.get("asked", last["content"]))

    def add_plan(self, text: str) -> None:
        """Put a task plan behind the user's words (wire §8.5)."""
        last = self._last_user()
        if last is not None:
            last["asked"] = last["content"]
            last["content"] = f"{last['content']}\n\nWork through this plan:\n{text}"

    def add_assistant(self, text: str, calls: Sequence[ToolUse] = ()) -> list[dict[str, Any]]:
        """Add what the model said; returns its tool calls in wire form."""
        message: dict[str, Any] = {"role": "assistant", "content": text}
        listed = [{"id": call.id, "name": call.name, "input": call.args} for call in calls]
        if listed:
            message["toolCalls"] = listed
        self.messages.append(message)
        return listed

    def add_result(self, call: ToolUse, answer: ToolAnswer) -> None:
        """Add the result of a tool call."""
        message: dict[str, Any] = {
            "role": "tool",
            "toolUseId": call.id,
            "name": call.name,
            "content": answer.text,
            "isError": answer.is_error,
        }
        if answer.files:
            message["files"] = list(answer.files)
        self.messages.append(message)

    def steer(self, text: str) -> None:
        """Add a user message that a guard wrote."""
        self.messages.append({"role": "user", "content": text, "steering": True})

    def _last_user(self) -> dict[str, Any] | None:
        message: dict[str, Any]
        for message in reversed(self.messages):
            if message["role"] == "user" and not message.get("steering"):
                return message
        return None


def _without_attachments(message: Mapping[str, Any]) -> dict[str, Any]:
    """Only the attachments of the newest user message reach the model (http §4)."""
    if "attachments" not in message:
        return dict(message)
    return {name: value for name, value in message.items() if name != "attachments"}
