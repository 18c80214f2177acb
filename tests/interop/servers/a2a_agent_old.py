"""An agent on the official A2A package as it was in 0.3: `a2a_agent_old.py 0.3 [stream]`.

Says `url http://…` when callers can come.
"""

import base64
import socket
import sys
import uuid
from typing import Any

import uvicorn
from a2a.server.agent_execution import AgentExecutor
from a2a.server.apps import A2AStarletteApplication
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentSkill,
    DataPart,
    FilePart,
    FileWithBytes,
    FileWithUri,
    Message,
    Part,
    Role,
    TaskState,
    TextPart,
)
from a2a.utils import new_task
from a2a_words import act


def part(kind: str, *given: Any) -> Part:
    if kind == "text":
        return Part(root=TextPart(text=given[0]))
    if kind == "data":
        return Part(root=DataPart(data=given[0]))
    content, name, media_type = given
    if kind == "link":
        return Part(root=FilePart(file=FileWithUri(uri=content, name=name, mime_type=media_type)))
    data = base64.b64encode(content).decode()
    return Part(root=FilePart(file=FileWithBytes(bytes=data, name=name, mime_type=media_type)))


class Kit:
    def __init__(self, context: Any, queue: Any) -> None:
        self.context, self.queue = context, queue
        self.text = context.get_user_input()
        self.kinds = [self.kind(item.root) for item in context.message.parts]
        self.is_continued = context.current_task is not None
        self.updater = TaskUpdater(queue, context.task_id, context.context_id)

    def kind(self, item: Any) -> str:
        if item.kind == "file":
            return "raw" if isinstance(item.file, FileWithBytes) else "url"
        return str(item.kind)

    def message(self, text: str, task_id: Any) -> Message:
        return Message(
            message_id=str(uuid.uuid4()),
            role=Role.agent,
            parts=[part("text", text)],
            context_id=self.context.context_id,
            task_id=task_id,
        )

    async def reply(self, text: str) -> None:
        await self.queue.enqueue_event(self.message(text, None))

    async def begin(self) -> None:
        await self.queue.enqueue_event(new_task(self.context.message))

    async def announce(self) -> None:
        await self.queue.enqueue_event(self.context.current_task)

    async def status(self, state: str, text: str = "") -> None:
        message = self.message(text, self.context.task_id) if text else None
        is_final = state in ("input-required", "auth-required")
        await self.updater.update_status(TaskState(state), message, final=is_final)

    async def artifact(self, parts: Any, artifact_id: Any = None, append: bool = False, last: bool = False) -> None:
        made = [part(*item) for item in parts]
        await self.updater.add_artifact(made, artifact_id, "out", append=append, last_chunk=last)


class Executor(AgentExecutor):
    async def execute(self, context: Any, event_queue: Any) -> None:
        await act(Kit(context, event_queue))

    async def cancel(self, context: Any, event_queue: Any) -> None:
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def main(streaming: bool) -> None:
    sock = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    card = AgentCard(
        name="Old agent",
        description="Does as it is told.",
        version="1.2.3",
        url=url + "/",
        capabilities=AgentCapabilities(streaming=streaming),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="s", name="S", description="d", tags=["t"])],
    )
    app = A2AStarletteApplication(card, DefaultRequestHandler(Executor(), InMemoryTaskStore())).build()
    sys.stdout.write(f"url {url}\n")
    sys.stdout.flush()
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[sock])


main("stream" in sys.argv[2:])
