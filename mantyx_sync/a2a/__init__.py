"""A2A, both ways, without an event loop: a client for agents of others, and a WSGI app that makes an agent a peer.

    with A2AClient("https://agents.example/hr", headers={"Authorization": "Bearer …"}) as peer:
        reply = peer.send("When does PTO reset?")
        while reply.needs_input:
            reply = peer.send(input(reply.text), task_id=reply.task_id, context_id=reply.context_id)
        print(reply.text)

    app = A2AApp(client, public_url="https://agents.example/hr", name="HR", description="…", system_prompt="…")

1.0 and 0.3 over JSON-RPC; `HTTP+JSON` and gRPC are not spoken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..tools.cancellation import Cancellation
from .client.card import AgentCard, AgentInterface, AgentSkill
from .client.client import A2AClient
from .client.errors import (
    A2AAuthError,
    A2ACancelled,
    A2ACardError,
    A2AConnectionError,
    A2AError,
    A2AProtocolError,
    A2ARequestError,
    A2AStatusError,
    A2ATaskError,
    A2ATimeoutError,
)
from .client.replies import A2AReply
from .client.stream import A2AStream
from .objects import (
    Artifact,
    ArtifactUpdate,
    DataPart,
    Event,
    FilePart,
    Message,
    Part,
    StatusUpdate,
    Task,
    TaskStatus,
    TextPart,
    UnknownPart,
)

if TYPE_CHECKING:
    from .server.current import CurrentTask, ask_caller, current_task
    from .server.wsgi import A2AApp

__all__ = [
    "A2AApp",
    "A2AAuthError",
    "A2ACancelled",
    "A2ACardError",
    "A2AClient",
    "A2AConnectionError",
    "A2AError",
    "A2AProtocolError",
    "A2AReply",
    "A2ARequestError",
    "A2AStatusError",
    "A2AStream",
    "A2ATaskError",
    "A2ATimeoutError",
    "AgentCard",
    "AgentInterface",
    "AgentSkill",
    "Artifact",
    "ArtifactUpdate",
    "Cancellation",
    "CurrentTask",
    "DataPart",
    "Event",
    "FilePart",
    "Message",
    "Part",
    "StatusUpdate",
    "Task",
    "TaskStatus",
    "TextPart",
    "UnknownPart",
    "ask_caller",
    "current_task",
]


def __getattr__(name: str) -> Any:
    # Who asks agents needs nothing of what serves them.
    if name == "A2AApp":
        from .server.wsgi import A2AApp

        return A2AApp
    if name in ("CurrentTask", "ask_caller", "current_task"):
        from .server import current

        return getattr(current, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
