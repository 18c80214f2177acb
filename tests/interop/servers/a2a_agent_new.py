"""An agent on the official A2A package of today: `a2a_agent_new.py FORM [stream]`, FORM `1.0`, or `compat` with 0.3.

Says `url http://…` when callers can come. `KEY` in the environment is asked for as `X-Key`, if there is one.
"""

import os
import socket
import sys
from typing import Any

import uvicorn
from a2a.helpers import (
    new_data_part,
    new_message,
    new_raw_part,
    new_task_from_user_message,
    new_text_part,
    new_url_part,
)
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandlerV2
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types.a2a_pb2 import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, TaskState
from a2a_words import act
from starlette.applications import Starlette
from starlette.responses import JSONResponse


def part(kind: str, *given: Any) -> Any:
    if kind == "text":
        return new_text_part(*given)
    if kind == "data":
        return new_data_part(*given)
    content, name, media_type = given
    make = new_raw_part if kind == "file" else new_url_part
    return make(content, media_type=media_type, filename=name)


class Kit:
    def __init__(self, context: Any, queue: Any) -> None:
        self.context, self.queue = context, queue
        self.text = context.get_user_input()
        self.kinds = [item.WhichOneof("content") for item in context.message.parts]
        self.is_continued = context.current_task is not None
        self.updater = TaskUpdater(queue, context.task_id, context.context_id)

    def message(self, text: str) -> Any:
        return new_message([new_text_part(text)], context_id=self.context.context_id, task_id=self.context.task_id)

    async def reply(self, text: str) -> None:
        message = new_message([new_text_part(text)], context_id=self.context.context_id)
        await self.queue.enqueue_event(message)

    async def begin(self) -> None:
        await self.queue.enqueue_event(new_task_from_user_message(self.context.message))

    async def announce(self) -> None:
        await self.queue.enqueue_event(self.context.current_task)

    async def status(self, state: str, text: str = "") -> None:
        value = TaskState.Value("TASK_STATE_" + state.upper().replace("-", "_"))
        await self.updater.update_status(value, self.message(text) if text else None)

    async def artifact(self, parts: Any, artifact_id: Any = None, append: bool = False, last: bool = False) -> None:
        made = [part(*item) for item in parts]
        await self.updater.add_artifact(made, artifact_id, "out", append=append, last_chunk=last)


class Executor(AgentExecutor):
    async def execute(self, context: Any, event_queue: Any) -> None:
        await act(Kit(context, event_queue))

    async def cancel(self, context: Any, event_queue: Any) -> None:
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def main(form: str, streaming: bool) -> None:
    sock = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    versions = ["1.0", "0.3"] if form == "compat" else ["1.0"]
    card = AgentCard(
        name="New agent",
        description="Does as it is told.",
        version="1.2.3",
        supported_interfaces=[
            AgentInterface(url=url + "/rpc", protocol_binding="JSONRPC", protocol_version=version)
            for version in versions
        ],
        capabilities=AgentCapabilities(streaming=streaming),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="s", name="S", description="d", tags=["t"])],
    )
    handler = DefaultRequestHandlerV2(Executor(), InMemoryTaskStore(), card)
    routes = [
        *create_agent_card_routes(card),
        *create_jsonrpc_routes(handler, "/rpc", enable_v0_3_compat=form == "compat"),
    ]
    app: Any = Starlette(routes=routes)
    key = os.environ.get("KEY")

    async def guarded(scope: Any, receive: Any, send: Any) -> None:
        if key and scope["type"] == "http" and dict(scope["headers"]).get(b"x-key", b"").decode() != key:
            await JSONResponse({"error": "no key, no answer"}, 401)(scope, receive, send)
            return
        await app(scope, receive, send)

    sys.stdout.write(f"url {url}\n")
    sys.stdout.flush()
    uvicorn.Server(uvicorn.Config(guarded, log_level="warning")).run(sockets=[sock])


main(sys.argv[1], "stream" in sys.argv[2:])
