"""The official A2A client, 1.x, asks an agent for everything: `a2a_new.py URL 1.0|0.3`.

Says `let go PROMPT` when a task that is held may go on, and at last `result {…}`.
"""

import asyncio
import base64
import json
import sys
import uuid
from typing import Any

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import a2a_pb2 as types
from google.protobuf.json_format import MessageToDict


def message(*parts: Any, **more: Any) -> Any:
    made = [types.Part(text=part) if isinstance(part, str) else part for part in parts]
    return types.Message(message_id=str(uuid.uuid4()), role=types.Role.ROLE_USER, parts=made, **more)


def request(*parts: Any, **more: Any) -> Any:
    return types.SendMessageRequest(message=message(*parts, **more))


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def state(task: Any) -> str:
    return types.TaskState.Name(task.status.state).replace("TASK_STATE_", "").lower()


def texts(artifact: Any) -> list[str]:
    return [part.text for part in artifact.parts if part.HasField("text")]


class Folded:
    """What the events of a stream amount to."""

    def __init__(self) -> None:
        self.kinds: list[str] = []
        self.states: list[str] = []
        self.artifacts: dict[str, list[str]] = {}
        self.pieces: list[str] = []
        self.task: Any = None

    def feed(self, event: Any) -> None:
        kind = event.WhichOneof("payload")
        self.kinds.append(kind)
        if kind == "task":
            self.task = event.task
            self.states.append(state(event.task))
            self.artifacts = {a.artifact_id: texts(a) for a in event.task.artifacts}
        elif kind == "status_update":
            self.states.append(state(event.status_update))
        elif kind == "artifact_update":
            update = event.artifact_update
            found = texts(update.artifact)
            self.pieces += found
            if update.append:
                self.artifacts[update.artifact.artifact_id] += found
            else:
                self.artifacts[update.artifact.artifact_id] = found

    def outcome(self) -> dict[str, Any]:
        return {
            "first": self.kinds[0],
            "states": self.states,
            "answer": "".join(self.artifacts.get("answer", [])),
            "pieces": self.pieces,
        }


async def failure(call: Any) -> Any:
    """Return the kind of error a call ends with."""
    try:
        if hasattr(call, "__aiter__"):
            async for _ in call:
                pass
        else:
            await call
    except Exception as error:
        return type(error).__name__, str(error)
    return None


async def play(url: str, version: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    async with (
        httpx.AsyncClient(timeout=30) as http,
        httpx.AsyncClient(timeout=30, headers={"Authorization": "Bearer wrong"}) as stranger,
    ):
        card = await A2ACardResolver(http, url).get_agent_card()
        found["card"] = MessageToDict(card)
        if version == "0.3":
            for interface in [i for i in card.supported_interfaces if i.protocol_version != "0.3"]:
                card.supported_interfaces.remove(interface)

        def client(**config: Any) -> Any:
            return ClientFactory(ClientConfig(httpx_client=http, **config)).create(card)

        streaming, plain, polling = client(), client(streaming=False), client(streaming=False, polling=True)

        async def fold(events: Any) -> Folded:
            folded = Folded()
            async for event in events:
                folded.feed(event)
            return folded

        async def question(asked: Any, task_id: str) -> list[str]:
            task = await asked.get_task(types.GetTaskRequest(id=task_id))
            return [part.text for part in task.status.message.parts]

        async def last(asked: Any, events: Any) -> Any:
            """Return the task that an answer is about, as it is now."""
            folded = await fold(events)
            return await asked.get_task(types.GetTaskRequest(id=folded.task.id))

        # A plain send, and one more in its context
        (answer,) = [event async for event in plain.send_message(request("Hello"))]
        task = answer.task
        found["send"] = {"state": state(task), "answer": texts(task.artifacts[0]), "history": len(task.history)}
        (more,) = [event async for event in plain.send_message(request("More", context_id=task.context_id))]
        found["more"] = {"same": more.task.context_id == task.context_id, "answer": texts(more.task.artifacts[0])}

        # Streams
        found["stream"] = (await fold(streaming.send_message(request("Hello")))).outcome()
        folded = await fold(streaming.send_message(request("tool")))
        found["tool"] = folded.outcome()
        seen = await streaming.get_task(types.GetTaskRequest(id=folded.task.id))
        found["file out"] = [
            [base64.b64encode(p.raw).decode(), p.filename, p.media_type] for p in seen.artifacts[1].parts
        ]
        found["lines"] = (await fold(streaming.send_message(request("lines")))).outcome()
        part = types.Part(raw=b"abc", filename="a.png", media_type="image/png")
        found["file in"] = (await fold(streaming.send_message(request("files", part)))).outcome()
        failed = await last(streaming, streaming.send_message(request("fail")))
        found["fail"] = {"state": state(failed), "text": [part.text for part in failed.status.message.parts]}

        # Asked back
        folded = await fold(streaming.send_message(request("ask")))
        found["ask"] = {"states": folded.states, "text": await question(streaming, folded.task.id)}
        answer = request("the red one", task_id=folded.task.id, context_id=folded.task.context_id)
        found["ask"]["answer"] = (await fold(streaming.send_message(answer))).outcome()
        folded = await fold(plain.send_message(request("ask")))
        answer = request("the blue one", task_id=folded.task.id)
        found["ask"]["plain"] = (await fold(plain.send_message(answer))).outcome()["answer"]

        # A task that is asked for
        (answer,) = [event async for event in polling.send_message(request("hold poll"))]
        found["poll"] = {"at once": state(answer.task)}
        say("let go hold poll")
        while state(answer.task) in ("submitted", "working"):
            answer.task.CopyFrom(await polling.get_task(types.GetTaskRequest(id=answer.task.id)))
        found["poll"]["then"] = state(answer.task)

        # Cancelled in mid-stream
        folded, canceled = Folded(), None
        async for event in streaming.send_message(request("hold forever")):
            folded.feed(event)
            if folded.pieces and canceled is None:
                canceled = await streaming.cancel_task(types.CancelTaskRequest(id=folded.task.id))
        found["cancel"] = {"state": state(canceled), **folded.outcome()}
        found["cancel again"] = await failure(streaming.cancel_task(types.CancelTaskRequest(id=folded.task.id)))

        # Left in mid-stream and followed again
        folded = Folded()
        events = streaming.send_message(request(f"hold {version}"))
        async for event in events:
            folded.feed(event)
            if folded.pieces:
                break
        await events.aclose()
        again = Folded()
        async for event in streaming.subscribe(types.SubscribeToTaskRequest(id=folded.task.id)):
            if not again.kinds:
                say(f"let go hold {version}")
            again.feed(event)
        found["resubscribe"] = again.outcome()
        over = types.SubscribeToTaskRequest(id=folded.task.id)
        found["resubscribe again"] = await failure(streaming.subscribe(over))

        # Errors
        unknown = "no-such-task"
        found["errors"] = {
            "get": await failure(plain.get_task(types.GetTaskRequest(id=unknown))),
            "cancel": await failure(plain.cancel_task(types.CancelTaskRequest(id=unknown))),
            "terminal": await failure(plain.send_message(request("More", task_id=task.id))),
            "terminal stream": await failure(streaming.send_message(request("More", task_id=task.id))),
            "unknown task": await failure(plain.send_message(request("More", task_id=unknown))),
            "content": await failure(
                plain.send_message(request(types.Part(raw=b"a", media_type="application/zip", filename="a")))
            ),
            "no parts": await failure(plain.send_message(request())),
            "push": await failure(
                plain.create_task_push_notification_config(
                    types.TaskPushNotificationConfig(task_id=task.id, url="http://127.0.0.1:1/")
                )
            ),
        }
        if version == "1.0":
            page = await plain.list_tasks(types.ListTasksRequest(page_size=2, context_id=task.context_id))
            found["list"] = {"ids": [t.id == task.id for t in page.tasks], "total": page.total_size}
        refused = ClientFactory(ClientConfig(httpx_client=stranger, streaming=False)).create(card)
        found["stranger"] = await failure(refused.send_message(request("Hello")))
    return found


say("result " + json.dumps(asyncio.run(play(*sys.argv[1:]))))
