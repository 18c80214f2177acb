"""The two versions of A2A side by side: method names, writers, and what tells them apart (a2a §2). Does no I/O."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, Callable, Dict, Mapping, Tuple

from . import wire_v03, wire_v1
from .objects import Event, Message, SendParams, Task

__all__ = ["DIALECTS", "V03", "V1", "Dialect", "Operation", "operation_of"]

Wire = Dict[str, Any]


class Operation(enum.Enum):
    """What can be asked of an agent."""

    SEND = "send"
    STREAM = "stream"
    GET = "get"
    CANCEL = "cancel"
    RESUBSCRIBE = "resubscribe"
    LIST = "list"
    EXTENDED_CARD = "extended card"
    PUSH_SET = "push set"
    PUSH_GET = "push get"
    PUSH_LIST = "push list"
    PUSH_DELETE = "push delete"


@dataclass(frozen=True)
class Dialect:
    """One version of the protocol."""

    version: str
    """What the `A2A-Version` header carries."""
    methods: Mapping[Operation, str]
    write_event: Callable[[Event], Wire]
    write_task: Callable[[Task], Wire]
    write_message: Callable[[Message], Wire]
    write_send_params: Callable[[SendParams], Wire]

    def __repr__(self) -> str:
        return f"Dialect({self.version!r})"


V1 = Dialect(
    version="1.0",
    methods={
        Operation.SEND: "SendMessage",
        Operation.STREAM: "SendStreamingMessage",
        Operation.GET: "GetTask",
        Operation.CANCEL: "CancelTask",
        Operation.RESUBSCRIBE: "SubscribeToTask",
        Operation.LIST: "ListTasks",
        Operation.EXTENDED_CARD: "GetExtendedAgentCard",
        Operation.PUSH_SET: "CreateTaskPushNotificationConfig",
        Operation.PUSH_GET: "GetTaskPushNotificationConfig",
        Operation.PUSH_LIST: "ListTaskPushNotificationConfigs",
        Operation.PUSH_DELETE: "DeleteTaskPushNotificationConfig",
    },
    write_event=wire_v1.write_event,
    write_task=wire_v1.write_task,
    write_message=wire_v1.write_message,
    write_send_params=wire_v1.write_send_params,
)

V03 = Dialect(
    version="0.3",
    methods={
        Operation.SEND: "message/send",
        Operation.STREAM: "message/stream",
        Operation.GET: "tasks/get",
        Operation.CANCEL: "tasks/cancel",
        Operation.RESUBSCRIBE: "tasks/resubscribe",
        Operation.EXTENDED_CARD: "agent/getAuthenticatedExtendedCard",
        Operation.PUSH_SET: "tasks/pushNotificationConfig/set",
        Operation.PUSH_GET: "tasks/pushNotificationConfig/get",
        Operation.PUSH_LIST: "tasks/pushNotificationConfig/list",
        Operation.PUSH_DELETE: "tasks/pushNotificationConfig/delete",
    },
    write_event=wire_v03.write_event,
    write_task=wire_v03.write_task,
    write_message=wire_v03.write_message,
    write_send_params=wire_v03.write_send_params,
)

DIALECTS = (V1, V03)

_OPERATIONS = {name: (dialect, operation) for dialect in DIALECTS for operation, name in dialect.methods.items()}
# The notes (a2a §2) write the plural of this one both ways.
_OPERATIONS["ListTaskPushNotificationConfig"] = (V1, Operation.PUSH_LIST)


def operation_of(method: str) -> Tuple[Dialect, Operation] | None:
    """Return the version a method belongs to and what it asks for; `None` if no version has it."""
    return _OPERATIONS.get(method)
