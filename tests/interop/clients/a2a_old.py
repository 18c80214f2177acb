"""The official A2A client, 0.3, asks an agent for everything: `a2a_old.py URL 0.3`; says what `a2a_new.py` says."""

import asyncio
import base64
import json
import sys
import uuid
from typing import Any

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import (
    DataPart,
    FilePart,
    FileWithBytes,
    Message,
    Part,
    PushNotificationConfig,
    Role,
    TaskIdParams,
    TaskPushNotificationConfig,
    TaskQueryParams,
    TextPart,
)


def message(*parts: Any, **more: Any) -> Message:
    made = [Part(root=TextPart(text=part) if isinstance(part, str) else part) for part in parts]
    return Message(message_id=str(uuid.uuid4()), role=Role.user, parts=made, **more)


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def texts(artifact: Any) -> list[str]:
    return [part.root.text for part in artifact.parts if part.root.kind == "text"]


class Folded:
    """What the events of a stream amount to; the client itself puts the task together."""

    def __init__(self) -> None:
        self.kinds: list[str] = []
        self.states: list[str] = []
        self.finals: list[bool] = []
        self.pieces: list[str] = []
        self.task: Any = None

    def feed(self, event: Any) -> None:
        self.task, update = event
        self.kinds.append("task" if update is None else update.kind)
        if update is None:
            self.states.append(self.task.status.state.value)
        elif update.kind == "status-update":
            self.states.append(update.status.state.value)
            self.finals.append(update.final)
        else:
            self.pieces += texts(update.artifact)

    def outcome(self) -> dict[str, Any]:
        answers = [a for a in self.task.artifacts or [] if a.artifact_id == "answer"]
        return {
            "first": self.kinds[0],
            "states": self.states,
            "answer": "".join(texts(answers[0])) if answers else "",
            "pieces": self.pieces,
            "finals": self.finals,
        }


async def failure(call: Any) -> Any:
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
        found["card"] = card.model_dump(mode="json", by_alias=True, exclude_none=True)

        def client(**config: Any) -> Any:
            return ClientFactory(ClientConfig(httpx_client=http, **config)).create(card)

        streaming, plain, polling = client(), client(streaming=False), client(streaming=False, polling=True)

        async def fold(events: Any) -> Folded:
            folded = Folded()
            async for event in events:
                folded.feed(event)
            return folded

        ((task, _),) = [event async for event in plain.send_message(message("Hello"))]
        found["send"] = {
            "state": task.status.state.value,
            "answer": texts(task.artifacts[0]),
            "history": len(task.history),
        }
        ((more, _),) = [event async for event in plain.send_message(message("More", context_id=task.context_id))]
        found["more"] = {"same": more.context_id == task.context_id, "answer": texts(more.artifacts[0])}

        found["stream"] = (await fold(streaming.send_message(message("Hello")))).outcome()
        folded = await fold(streaming.send_message(message("tool")))
        found["tool"] = folded.outcome()
        seen = await streaming.get_task(TaskQueryParams(id=folded.task.id))
        found["file out"] = [
            [p.root.file.bytes, p.root.file.name, p.root.file.mime_type] for p in seen.artifacts[1].parts
        ]
        found["lines"] = (await fold(streaming.send_message(message("lines")))).outcome()
        file = FileWithBytes(bytes=base64.b64encode(b"abc").decode(), name="a.png", mime_type="image/png")
        found["file in"] = (await fold(streaming.send_message(message("files", FilePart(file=file))))).outcome()
        found["data in"] = (await fold(streaming.send_message(message(DataPart(data={"a": 1}))))).outcome()
        failed = (await fold(streaming.send_message(message("fail")))).task
        found["fail"] = {
            "state": failed.status.state.value,
            "text": [part.root.text for part in failed.status.message.parts],
        }

        folded = await fold(streaming.send_message(message("ask")))
        text = [part.root.text for part in folded.task.status.message.parts]
        found["ask"] = {"states": folded.states, "text": text}
        answer = message("the red one", task_id=folded.task.id, context_id=folded.task.context_id)
        found["ask"]["answer"] = (await fold(streaming.send_message(answer))).outcome()
        folded = await fold(plain.send_message(message("ask")))
        answer = message("the blue one", task_id=folded.task.id)
        found["ask"]["plain"] = (await fold(plain.send_message(answer))).outcome()["answer"]

        ((asked, _),) = [event async for event in polling.send_message(message("hold poll"))]
        found["poll"] = {"at once": asked.status.state.value}
        say("let go hold poll")
        while asked.status.state.value in ("submitted", "working"):
            asked = await polling.get_task(TaskQueryParams(id=asked.id))
        found["poll"]["then"] = asked.status.state.value

        folded, canceled = Folded(), None
        async for event in streaming.send_message(message("hold forever")):
            folded.feed(event)
            if folded.pieces and canceled is None:
                canceled = await streaming.cancel_task(TaskIdParams(id=folded.task.id))
        found["cancel"] = {"state": canceled.status.state.value, **folded.outcome()}
        found["cancel again"] = await failure(streaming.cancel_task(TaskIdParams(id=folded.task.id)))

        folded = Folded()
        events = streaming.send_message(message("hold old"))
        async for event in events:
            folded.feed(event)
            if folded.pieces:
                break
        await events.aclose()
        again = Folded()
        async for event in streaming.resubscribe(TaskIdParams(id=folded.task.id)):
            if not again.kinds:
                say("let go hold old")
            again.feed(event)
        found["resubscribe"] = again.outcome()
        found["resubscribe again"] = await failure(streaming.resubscribe(TaskIdParams(id=folded.task.id)))

        unknown = "no-such-task"
        zipped = FilePart(file=FileWithBytes(bytes="YQ==", name="a", mime_type="application/zip"))
        config = PushNotificationConfig(url="http://127.0.0.1:1/")
        found["errors"] = {
            "get": await failure(plain.get_task(TaskQueryParams(id=unknown))),
            "cancel": await failure(plain.cancel_task(TaskIdParams(id=unknown))),
            "terminal": await failure(plain.send_message(message("More", task_id=task.id))),
            "terminal stream": await failure(streaming.send_message(message("More", task_id=task.id))),
            "unknown task": await failure(plain.send_message(message("More", task_id=unknown))),
            "content": await failure(plain.send_message(message(zipped))),
            "no parts": await failure(plain.send_message(message())),
            "push": await failure(
                plain.set_task_callback(TaskPushNotificationConfig(task_id=task.id, push_notification_config=config))
            ),
        }
        refused = ClientFactory(ClientConfig(httpx_client=stranger, streaming=False)).create(card)
        found["stranger"] = await failure(refused.send_message(message("Hello")))
    return found


say("result " + json.dumps(asyncio.run(play(*sys.argv[1:]))))
