"""Objects -> wire, version 0.3: every object carries its `kind`. Does no I/O."""

from __future__ import annotations

from typing import Any, Dict, Mapping

from .objects import (
    Artifact,
    ArtifactUpdate,
    DataPart,
    Event,
    FilePart,
    Message,
    Part,
    SendConfiguration,
    SendParams,
    StatusUpdate,
    Task,
    TaskStatus,
    TextPart,
)
from .reading import WRAPPED

__all__ = ["write_artifact", "write_event", "write_message", "write_part", "write_send_params", "write_task"]

Wire = Dict[str, Any]


def _given(**fields: Any) -> Wire:
    return {key: value for key, value in fields.items() if value is not None and value not in ((), [])}


def write_part(part: Part) -> Wire:
    """Write a part.

    Data that is no object, which this version cannot carry, becomes `{"value": …}` and is marked as such.
    """
    if isinstance(part, TextPart):
        wire: Wire = {"kind": "text", "text": part.text}
    elif isinstance(part, FilePart):
        content = {"bytes": part.data} if part.data is not None else {"uri": part.url or ""}
        wire = {"kind": "file", "file": {**content, **_given(name=part.filename, mimeType=part.media_type)}}
    elif isinstance(part, DataPart):
        if not isinstance(part.data, Mapping):
            marked = {**(part.metadata or {}), WRAPPED: True}
            return {"kind": "data", "data": {"value": part.data}, "metadata": marked}
        wire = {"kind": "data", "data": part.data}
    else:
        return dict(part.raw)
    return {**wire, **_given(metadata=part.metadata)}


def write_message(message: Message) -> Wire:
    """Write a message."""
    return {
        "kind": "message",
        "messageId": message.message_id,
        **_given(contextId=message.context_id, taskId=message.task_id),
        "role": message.role,
        "parts": [write_part(part) for part in message.parts],
        **_given(
            metadata=message.metadata,
            extensions=list(message.extensions),
            referenceTaskIds=list(message.reference_task_ids),
        ),
    }


def write_artifact(artifact: Artifact) -> Wire:
    """Write an artifact."""
    return {
        "artifactId": artifact.artifact_id,
        **_given(name=artifact.name, description=artifact.description),
        "parts": [write_part(part) for part in artifact.parts],
        **_given(metadata=artifact.metadata, extensions=list(artifact.extensions)),
    }


def _write_status(status: TaskStatus) -> Wire:
    wire: Wire = {"state": status.state}
    if status.message is not None:
        wire["message"] = write_message(status.message)
    return {**wire, **_given(timestamp=status.timestamp)}


def write_task(task: Task) -> Wire:
    """Write a task."""
    return {
        "kind": "task",
        "id": task.id,
        "contextId": task.context_id or "",  # required in this version
        "status": _write_status(task.status),
        **_given(
            artifacts=[write_artifact(artifact) for artifact in task.artifacts],
            history=[write_message(message) for message in task.history],
            metadata=task.metadata,
        ),
    }


def write_event(event: Event) -> Wire:
    """Write the result of a send, or an event of a stream."""
    if isinstance(event, Task):
        return write_task(event)
    if isinstance(event, Message):
        return write_message(event)
    about = {"taskId": event.task_id, "contextId": event.context_id or ""}
    metadata = _given(metadata=event.metadata)
    if isinstance(event, StatusUpdate):
        status = _write_status(event.status)
        return {"kind": "status-update", **about, "status": status, "final": event.final, **metadata}
    assert isinstance(event, ArtifactUpdate)
    artifact = write_artifact(event.artifact)
    flags = {"append": event.append, "lastChunk": event.last_chunk}
    return {"kind": "artifact-update", **about, "artifact": artifact, **flags, **metadata}


def write_send_params(params: SendParams) -> Wire:
    """Write the parameters of `message/send` and `message/stream`."""
    configuration = _write_configuration(params.configuration)
    return {
        "message": write_message(params.message),
        **({"configuration": configuration} if configuration else {}),
        **_given(metadata=params.metadata),
    }


def _write_configuration(configuration: SendConfiguration) -> Wire:
    return _given(
        acceptedOutputModes=list(configuration.accepted_output_modes),
        blocking=configuration.blocking,
        historyLength=configuration.history_length,
        pushNotificationConfig=configuration.push_notification,
    )
