"""Wire -> objects, for either version of A2A. Does no I/O.

What came is told by its shape, not by the version one believes to speak (a2a §4.2): agents in between are in use.
Fields that are not known stay in `raw`; `null` counts as missing; a field of a wrong type raises and is named.
"""

from __future__ import annotations

from typing import Any, Callable, Mapping, Optional, Tuple, TypeVar

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
    UnknownPart,
    normal_state,
)

__all__ = [
    "WRAPPED",
    "WrongObject",
    "read_artifact",
    "read_event",
    "read_message",
    "read_part",
    "read_send_params",
    "read_task",
]

WRAPPED = "data_part_compat"
"""Marks a 0.3 data part whose value is no object and lies under `value`; the official package has it so."""

ItemT = TypeVar("ItemT")
Json = Mapping[str, Any]


class WrongObject(ValueError):
    """What came is not an object of the protocol: `field` (`message.parts[0].text`) is not as `problem` says."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field} {problem}")
        self.field = field
        self.problem = problem


def read_part(value: object, where: str = "part") -> Part:
    """Read a part of a message or artifact.

    Raises:
        WrongObject: A field has a wrong type.
    """
    wire = _object(value, where)
    kind = wire.get("kind") if wire.get("kind") is not None else wire.get("type")  # `type`: agents before 0.2
    metadata = _opt_object(wire, "metadata", where)
    media_type = _opt_text(wire, "mediaType", where)
    if kind == "file" or (kind is None and isinstance(wire.get("file"), Mapping)):
        file = _object(wire.get("file"), f"{where}.file")
        inner = f"{where}.file"
        return FilePart(
            data=_opt_text(file, "bytes", inner),
            url=_opt_text(file, "uri", inner),
            filename=_opt_text(file, "name", inner),
            media_type=_opt_text(file, "mimeType", inner),
            metadata=metadata,
            raw=wire,
        )
    # In 1.0 the member that is there tells the kind.
    if kind == "text" or (kind is None and wire.get("text") is not None):
        return TextPart(_text(wire, "text", where), media_type, metadata, wire)
    if kind is None and (wire.get("raw") is not None or wire.get("url") is not None):
        return FilePart(
            data=_opt_text(wire, "raw", where),
            url=_opt_text(wire, "url", where),
            filename=_opt_text(wire, "filename", where),
            media_type=media_type,
            metadata=metadata,
            raw=wire,
        )
    if (kind is None or kind == "data") and "data" in wire:
        if metadata is not None and metadata.get(WRAPPED) is True and isinstance(wire["data"], Mapping):
            others = {key: value for key, value in metadata.items() if key != WRAPPED}
            return DataPart(wire["data"].get("value"), media_type, others or None, wire)
        return DataPart(wire["data"], media_type, metadata, wire)
    return UnknownPart(wire)


def read_message(value: object, where: str = "message") -> Message:
    """Read a message.

    Raises:
        WrongObject: It is not one, or a field has a wrong type.
    """
    wire = _object(value, where)
    role = (_opt_text(wire, "role", where) or "").strip().lower()
    role = role[len("role_") :] if role.startswith("role_") else role
    return Message(
        message_id=_opt_text(wire, "messageId", where) or "",
        role="" if role == "unspecified" else role,
        parts=_list(wire, "parts", where, read_part),
        context_id=_opt_text(wire, "contextId", where) or None,
        task_id=_opt_text(wire, "taskId", where) or None,
        metadata=_opt_object(wire, "metadata", where),
        extensions=_list(wire, "extensions", where, _as_text),
        reference_task_ids=_list(wire, "referenceTaskIds", where, _as_text),
        raw=wire,
    )


def read_artifact(value: object, where: str = "artifact") -> Artifact:
    """Read an artifact.

    Raises:
        WrongObject: It is not one, or a field has a wrong type.
    """
    wire = _object(value, where)
    return Artifact(
        artifact_id=_opt_text(wire, "artifactId", where) or "",
        parts=_list(wire, "parts", where, read_part),
        name=_opt_text(wire, "name", where),
        description=_opt_text(wire, "description", where),
        metadata=_opt_object(wire, "metadata", where),
        extensions=_list(wire, "extensions", where, _as_text),
        raw=wire,
    )


def read_task(value: object, where: str = "task") -> Task:
    """Read a task.

    Raises:
        WrongObject: It is not one, or a field has a wrong type.
    """
    wire = _object(value, where)
    task_id = _text(wire, "id", where)
    if not task_id:
        raise WrongObject(f"{where}.id", "must not be empty")
    return Task(
        id=task_id,
        context_id=_opt_text(wire, "contextId", where) or None,
        status=_status(wire, where),
        artifacts=_list(wire, "artifacts", where, read_artifact),
        history=_list(wire, "history", where, read_message),
        metadata=_opt_object(wire, "metadata", where),
        raw=wire,
    )


def read_event(value: object, where: str = "result") -> Optional[Event]:
    """Read the result of a send, or an event of a stream; `None` if it is of a kind that is not known here.

    Raises:
        WrongObject: It is not an object, or a field has a wrong type.
    """
    wire = _object(value, where)
    for member, read in _BY_MEMBER.items():
        if isinstance(wire.get(member), Mapping):
            return read(wire[member], f"{where}.{member}")
    kind = wire.get("kind") if wire.get("kind") is not None else wire.get("type")
    if kind is not None:
        reader = _BY_KIND.get(kind) if isinstance(kind, str) else None
        return None if reader is None else reader(wire, where)
    if "messageId" in wire:
        return read_message(wire, where)
    if "artifact" in wire:
        return _artifact_update(wire, where)
    if "id" in wire:
        return read_task(wire, where)
    if "status" in wire:
        return _status_update(wire, where)
    return None


def read_send_params(value: object, where: str = "params") -> SendParams:
    """Read the parameters of a send. Fields are named as in `message.parts[0].text`, without `params`.

    Raises:
        WrongObject: The message is missing, or a field has a wrong type.
    """
    wire = _object(value, where)
    if wire.get("message") is None:
        raise WrongObject("message", "is required")
    return SendParams(
        message=read_message(wire["message"], "message"),
        configuration=_configuration(wire.get("configuration")),
        metadata=_opt_object(wire, "metadata", ""),
        tenant=_opt_text(wire, "tenant", "") or None,
    )


def _configuration(value: object) -> SendConfiguration:
    where = "configuration"
    if value is None:
        return SendConfiguration()
    wire = _object(value, where)
    length = wire.get("historyLength")
    if length is not None and (isinstance(length, bool) or not isinstance(length, int) or length < 0):
        raise WrongObject(f"{where}.historyLength", "must be a whole number, 0 or above")
    blocking = _opt_bool(wire, "blocking", where)
    at_once = _opt_bool(wire, "returnImmediately", where)
    push = _opt_object(wire, "taskPushNotificationConfig", where)
    return SendConfiguration(
        accepted_output_modes=_list(wire, "acceptedOutputModes", where, _as_text),
        history_length=length,
        blocking=blocking if at_once is None else not at_once,
        push_notification=push if push is not None else _opt_object(wire, "pushNotificationConfig", where),
        raw=wire,
    )


def _status(wire: Json, where: str) -> TaskStatus:
    value = wire.get("status")
    where = f"{where}.status"
    if value is None:
        return TaskStatus()
    status = _object(value, where)
    message = status.get("message")
    return TaskStatus(
        state=normal_state(_opt_text(status, "state", where) or ""),
        message=None if message is None else read_message(message, f"{where}.message"),
        timestamp=_opt_text(status, "timestamp", where),
        raw=status,
    )


def _status_update(value: object, where: str) -> StatusUpdate:
    wire = _object(value, where)
    return StatusUpdate(
        task_id=_opt_text(wire, "taskId", where) or "",
        status=_status(wire, where),
        context_id=_opt_text(wire, "contextId", where) or None,
        final=bool(_opt_bool(wire, "final", where)),
        metadata=_opt_object(wire, "metadata", where),
        raw=wire,
    )


def _artifact_update(value: object, where: str) -> ArtifactUpdate:
    wire = _object(value, where)
    return ArtifactUpdate(
        task_id=_opt_text(wire, "taskId", where) or "",
        artifact=read_artifact(wire.get("artifact"), f"{where}.artifact"),
        context_id=_opt_text(wire, "contextId", where) or None,
        append=bool(_opt_bool(wire, "append", where)),
        last_chunk=bool(_opt_bool(wire, "lastChunk", where)),
        metadata=_opt_object(wire, "metadata", where),
        raw=wire,
    )


_BY_MEMBER: Mapping[str, Callable[[object, str], Event]] = {
    "task": read_task,
    "message": read_message,
    "statusUpdate": _status_update,
    "artifactUpdate": _artifact_update,
}
_BY_KIND: Mapping[str, Callable[[object, str], Event]] = {
    "task": read_task,
    "message": read_message,
    "status-update": _status_update,
    "artifact-update": _artifact_update,
}


def _in(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key


def _object(value: object, where: str) -> Json:
    if not isinstance(value, Mapping):
        raise WrongObject(where, "must be an object")
    return value


def _opt_object(wire: Json, key: str, where: str) -> Json | None:
    value = wire.get(key)
    return None if value is None else _object(value, _in(where, key))


def _text(wire: Json, key: str, where: str) -> str:
    value = wire.get(key)
    if value is None:
        raise WrongObject(_in(where, key), "is required")
    return _as_text(value, _in(where, key))


def _as_text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise WrongObject(where, "must be a string")
    return value


def _opt_text(wire: Json, key: str, where: str) -> str | None:
    value = wire.get(key)
    return None if value is None else _as_text(value, _in(where, key))


def _opt_bool(wire: Json, key: str, where: str) -> bool | None:
    value = wire.get(key)
    if value is not None and not isinstance(value, bool):
        raise WrongObject(_in(where, key), "must be true or false")
    return value


def _list(wire: Json, key: str, where: str, read: Callable[[object, str], ItemT]) -> Tuple[ItemT, ...]:
    value = wire.get(key)
    if value is None:
        return ()
    name = _in(where, key)
    if not isinstance(value, list):
        raise WrongObject(name, "must be an array")
    return tuple(read(item, f"{name}[{i}]") for i, item in enumerate(value))
