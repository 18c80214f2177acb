"""Objects -> wire, version 1.0: ProtoJSON, without `kind` and without fields that have their default. Does no I/O."""

from __future__ import annotations

from typing import Any, Dict

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

__all__ = ["write_artifact", "write_event", "write_message", "write_part", "write_send_params", "write_task"]

Wire = Dict[str, Any]


def _filled(**fields: Any) -> Wire:
    """Return the fields that differ from the default their type has in ProtoJSON."""
    return {key: value for key, value in fields.items() if value is not None and value not in ("", False, [], ())}


def write_part(part: Part) -> Wire:
    """Write a part; the member that is there tells its kind."""
    if isinstance(part, TextPart):
        content: Wire = {"text": part.text}
        extra = _filled(mediaType=part.media_type)
    elif isinstance(part, FilePart):
        content = {"raw": part.data} if part.data is not None else {"url": part.url or ""}
        extra = _filled(filename=part.filename, mediaType=part.media_type)
    elif isinstance(part, DataPart):
        content = {"data": part.data}
        extra = _filled(mediaType=part.media_type)
    else:
        return dict(part.raw)
    return {**content, **extra, **_filled(metadata=part.metadata)}


def write_message(message: Message) -> Wire:
    """Write a message."""
    return {
        "messageId": message.message_id,
        **_filled(contextId=message.context_id, taskId=message.task_id),
        "role": f"ROLE_{(message.role or 'unspecified').upper()}",
        "parts": [write_part(part) for part in message.parts],
        **_filled(
            metadata=message.metadata,
            extensions=list(message.extensions),
            referenceTaskIds=list(message.reference_task_ids),
        ),
    }


def write_artifact(artifact: Artifact) -> Wire:
    """Write an artifact."""
    return {
        "artifactId": artifact.artifact_id,
        **_filled(name=artifact.name, description=artifact.description),
        "parts": [write_part(part) for part in artifact.parts],
        **_filled(metadata=artifact.metadata, extensions=list(artifact.extensions)),
    }


def _write_status(status: TaskStatus) -> Wire:
    state = "UNSPECIFIED" if status.state == "unknown" else status.state.upper().replace("-", "_")
    wire: Wire = {"state": f"TASK_STATE_{state}"}
    if status.message is not None:
        wire["message"] = write_message(status.message)
    return {**wire, **_filled(timestamp=status.timestamp)}


def write_task(task: Task) -> Wire:
    """Write a task, bare as `GetTask` answers it."""
    return {
        "id": task.id,
        **_filled(contextId=task.context_id),
        "status": _write_status(task.status),
        **_filled(
            artifacts=[write_artifact(artifact) for artifact in task.artifacts],
            history=[write_message(message) for message in task.history],
            metadata=task.metadata,
        ),
    }


def write_event(event: Event) -> Wire:
    """Write the result of a send, or an event of a stream: one member, named by the kind."""
    if isinstance(event, Task):
        return {"task": write_task(event)}
    if isinstance(event, Message):
        return {"message": write_message(event)}
    about = {"taskId": event.task_id, **_filled(contextId=event.context_id)}
    if isinstance(event, StatusUpdate):
        update = {**about, "status": _write_status(event.status), **_filled(metadata=event.metadata)}
        return {"statusUpdate": update}
    assert isinstance(event, ArtifactUpdate)
    flags = _filled(append=event.append, lastChunk=event.last_chunk, metadata=event.metadata)
    return {"artifactUpdate": {**about, "artifact": write_artifact(event.artifact), **flags}}


def write_send_params(params: SendParams) -> Wire:
    """Write the parameters of `SendMessage` and `SendStreamingMessage`."""
    configuration = _write_configuration(params.configuration)
    return {
        **_filled(tenant=params.tenant),
        "message": write_message(params.message),
        **({"configuration": configuration} if configuration else {}),
        **_filled(metadata=params.metadata),
    }


def _write_configuration(configuration: SendConfiguration) -> Wire:
    length = configuration.history_length
    return {
        **_filled(
            acceptedOutputModes=list(configuration.accepted_output_modes),
            taskPushNotificationConfig=configuration.push_notification,
            returnImmediately=configuration.blocking is False,
        ),
        **({} if length is None else {"historyLength": length}),  # 0 asks for none, nothing for all
    }
