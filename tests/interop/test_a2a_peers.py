"""Our A2A client against agents on the official package: 1.0, 1.0 with 0.3 beside it, and the package of 0.3."""

from __future__ import annotations

import threading
import time
import uuid
from typing import Any, Iterator, NamedTuple

import pytest

from mantyx_sync.a2a import (
    A2AAuthError,
    A2ACancelled,
    A2ACardError,
    A2AClient,
    A2AConnectionError,
    A2ARequestError,
    A2ATaskError,
    A2ATimeoutError,
    ArtifactUpdate,
    Cancellation,
    FilePart,
    Message,
    StatusUpdate,
    Task,
    TextPart,
)
from mantyx_sync.a2a.client.allowance import Allowance
from mantyx_sync.a2a.dialects import V03, V1, Operation
from mantyx_sync.a2a.objects import SendConfiguration, SendParams
from mantyx_sync.a2a.reading import read_event

from .peers import HERE, program, python_of


class Row(NamedTuple):
    """An agent, and how it is spoken to."""

    environment: str
    form: str
    streaming: bool
    speaks: str

    def __str__(self) -> str:
        return f"{self.environment} {self.form} in {self.speaks}{' streaming' if self.streaming else ''}"


ROWS = [
    Row(environment, form, streaming, speaks)
    for environment, form, speaks in [
        ("a2a-new", "1.0", "1.0"),
        ("a2a-new", "compat", "1.0"),
        ("a2a-new", "compat", "0.3"),
        ("a2a-old", "0.3", "0.3"),
    ]
    for streaming in (False, True)
]


class Peer(NamedTuple):
    row: Row
    client: A2AClient
    url: str


@pytest.fixture(scope="module", params=ROWS, ids=str)
def peer(request: pytest.FixtureRequest) -> Iterator[Peer]:
    row: Row = request.param
    script = "a2a_agent_old.py" if row.environment == "a2a-old" else "a2a_agent_new.py"
    command = [python_of(row.environment), str(HERE / "servers" / script), row.form]
    with program([*command, *(["stream"] if row.streaming else [])]) as running:
        url = running.line("url ")
        client = A2AClient(url)
        if row.form == "compat" and row.speaks == "0.3":
            # The card that serves both, as a client of 0.3 reads it.
            card = {key: value for key, value in client.card.raw.items() if key != "supportedInterfaces"}
            client = A2AClient(url, card=card)
        with client:
            yield Peer(row, client, url)


def test_the_version_is_chosen(peer: Peer) -> None:
    card = peer.client.card
    assert card.endpoint().dialect is (V1 if peer.row.speaks == "1.0" else V03)
    assert card.streaming is peer.row.streaming
    assert card.version == "1.2.3"
    assert [skill.id for skill in card.skills] == ["s"]


def test_a_message_is_an_answer(peer: Peer) -> None:
    reply = peer.client.send("message hi")
    assert (reply.state, reply.text) == ("completed", "direct reply to hi")
    assert reply.message is not None
    assert reply.message.role == "agent"
    again = peer.client.send("message again", context_id=reply.context_id)
    assert again.context_id == reply.context_id


def test_every_kind_of_part_arrives(peer: Peer) -> None:
    reply = peer.client.send("parts")
    assert reply.state == "completed"
    assert reply.text.split("\n") == [
        "artifact text",
        "[file 'y.pdf' (application/pdf): https://files.example/y.pdf]",
        '{"answer":[1.5,null,"é\u2028"]}',
    ]
    (file,) = reply.files
    assert (file.filename, file.mime_type, file.data) == ("f.txt", "text/plain", "YWJj")
    assert reply.task is not None
    assert reply.task.artifacts[0].name == "out"
    assert reply.task.status.message is not None
    assert reply.task.status.message.text == "all done"


def test_every_kind_of_part_is_understood(peer: Peer) -> None:
    parts = ["kinds", {"a": {"b": [1]}}, FilePart.from_bytes(b"abc", "f.bin"), FilePart(url="https://files.example/x")]
    assert peer.client.send(parts).text == "text data raw url"


def test_what_is_said_in_the_status_alone_is_the_answer(peer: Peer) -> None:
    assert peer.client.send("said").text == "said in the status"


def test_a_large_answer_arrives_whole(peer: Peer) -> None:
    assert peer.client.send("large").text == "x" * 3_000_000


def test_events_come_as_the_agent_works(peer: Peer) -> None:
    events = list(peer.client.stream("chunks"))
    artifacts = [event for event in events if isinstance(event, ArtifactUpdate)]
    states = [event.status.state for event in events if isinstance(event, (StatusUpdate, Task))]
    assert states[-1] == "completed"
    if peer.row.streaming:
        assert isinstance(events[0], Task)
        assert [(event.artifact.text, event.append, event.last_chunk) for event in artifacts] == [
            ("Hel", False, False),
            ("lo, ", True, False),
            ("world", True, True),
        ]
        assert states[:2] == ["submitted", "working"]
        assert peer.client.send("chunks").text == "Hello, world"
    else:
        assert artifacts == []
        assert peer.client.send("chunks").text.replace("\n", "") == "Hello, world"


def test_a_slow_task_is_waited_for(peer: Peer) -> None:
    started = time.monotonic()
    assert peer.client.send("slow").text == "slow but sure"
    assert time.monotonic() - started >= 0.7


def test_a_task_is_polled(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask for an answer at once, as an agent gives it that does not block."""

    def at_once(modes: Any, length: Any, blocking: Any) -> SendConfiguration:
        return SendConfiguration(modes, length, False)

    monkeypatch.setattr("mantyx_sync.a2a.client.client.SendConfiguration", at_once)
    with A2AClient(peer.url, card=peer.client.card, streaming=False) as client:
        updates: list[Any] = []
        assert client.send("slow", on_update=updates.append).text == "slow but sure"
        states = [update.state for update in updates if isinstance(update, Task)]
        assert states[0] in ("submitted", "working")
        assert states[-1] == "completed"


def test_a_question_is_answered_and_the_task_goes_on(peer: Peer) -> None:
    reply = peer.client.send("ask")
    assert (reply.state, reply.text, reply.needs_input) == ("input-required", "Which one?", True)
    assert reply.task_id is not None
    final = peer.client.send("the red one", task_id=reply.task_id, context_id=reply.context_id)
    assert (final.state, final.text) == ("completed", "you chose the red one")
    assert (final.task_id, final.context_id) == (reply.task_id, reply.context_id)


def test_the_old_question_is_not_taken_for_the_answer(peer: Peer) -> None:
    if peer.row.environment == "a2a-old":
        pytest.skip("the package of 0.3 loses what an agent does after it has announced such a task once more")
    reply = peer.client.send("ask")
    final = peer.client.send("re-announced blue", task_id=reply.task_id, context_id=reply.context_id)
    assert (final.state, final.text) == ("completed", "you chose re-announced blue")


@pytest.mark.parametrize(
    ("word", "state", "said"),
    [
        ("failed", "failed", "disk full"),
        ("rejected", "rejected", "not for you"),
        ("auth", "auth-required", "who are you?"),
    ],
)
def test_a_task_without_success_says_why(peer: Peer, word: str, state: str, said: str) -> None:
    with pytest.raises(A2ATaskError) as caught:
        peer.client.send(word)
    assert (caught.value.state, caught.value.text) == (state, said)
    task = caught.value.reply.task
    assert task is not None
    assert [artifact.text for artifact in task.artifacts] == (["half of it"] if word == "failed" else [])


def test_an_agent_that_falls_over_is_an_error(peer: Peer) -> None:
    with pytest.raises((A2ARequestError, A2AConnectionError)) as caught:
        peer.client.send("crash", timeout=10.0)
    if isinstance(caught.value, A2ARequestError):
        assert caught.value.rpc_code == -32603
        assert "the agent fell over" in caught.value.agent_message
    else:  # the package of 0.3 breaks the stream off
        assert peer.row.environment == "a2a-old"
        assert peer.row.streaming


def test_unknown_and_finished_tasks_have_their_errors(peer: Peer) -> None:
    client = peer.client
    for call in (client.get_task, client.cancel_task):
        with pytest.raises(A2ARequestError) as caught:
            call("no-such-task")
        assert (caught.value.rpc_code, caught.value.reason) == (-32001, "TASK_NOT_FOUND")
    with pytest.raises(A2ARequestError) as caught:
        client.send("said", task_id="no-such-task")
    assert caught.value.rpc_code == -32001
    done = client.send("said")
    assert done.task_id is not None
    with pytest.raises(A2ARequestError) as caught:
        client.cancel_task(done.task_id)
    assert (caught.value.rpc_code, caught.value.reason) == (-32002, "TASK_NOT_CANCELABLE")
    with pytest.raises(A2ARequestError) as caught:
        client.send("more", task_id=done.task_id)
    assert caught.value.rpc_code in (-32004, -32602)
    assert client.get_task(done.task_id).state == "completed"
    assert client.get_task(done.task_id, history_length=0).history == ()


def begun(peer: Peer, word: str) -> str:
    """Begin a task that goes on, and leave it; return its id."""
    if peer.row.streaming:
        with peer.client.stream(word) as events:
            for event in events:
                if isinstance(event, (StatusUpdate, Task)) and event.status.state == "working":
                    break
            assert events.task is not None
            return events.task.id
    connection = peer.client._open(Allowance.of(10.0))[1]
    message = Message(str(uuid.uuid4()), "user", (TextPart(word),))
    params = connection.endpoint.dialect.write_send_params(SendParams(message, SendConfiguration(blocking=False)))
    task = read_event(connection.call(Operation.SEND, params, Allowance.of(10.0)))
    assert isinstance(task, Task)
    return task.id


def test_a_running_task_can_be_cancelled(peer: Peer) -> None:
    task_id = begun(peer, "forever")
    assert peer.client.cancel_task(task_id).state == "canceled"
    assert peer.client.get_task(task_id).state == "canceled"
    with pytest.raises(A2ARequestError) as caught:
        peer.client.cancel_task(task_id)
    assert caught.value.rpc_code == -32002


def test_the_deadline_is_kept_and_the_task_cancelled(peer: Peer) -> None:
    started = time.monotonic()
    with pytest.raises(A2ATimeoutError) as caught:
        peer.client.send("forever", timeout=0.7)
    assert time.monotonic() - started < 3.0
    if peer.row.streaming:
        assert "it was cancelled" in str(caught.value)
        assert caught.value.task_id is not None
        assert peer.client.get_task(caught.value.task_id).state == "canceled"


def test_cancelling_ends_the_wait(peer: Peer) -> None:
    cancelled = Cancellation()
    timer = threading.Timer(0.3, cancelled.set)
    timer.start()
    with pytest.raises(A2ACancelled):
        peer.client.send("forever", cancelled=cancelled)
    timer.join()


def test_a_task_is_followed_again_after_the_stream_was_left(peer: Peer) -> None:
    task_id = begun(peer, "slow")
    reply = peer.client.resubscribe(task_id, timeout=10.0).reply()
    assert reply.state == "completed"
    assert reply.text == "slow but sure"
    # Over by now: the state is had all the same.
    assert peer.client.resubscribe(task_id, timeout=10.0).reply().text == "slow but sure"


def test_many_threads_ask_at_once(peer: Peer) -> None:
    texts: list[str] = []

    def work(n: int) -> None:
        for i in range(3):
            texts.append(peer.client.send(f"message {n}-{i}").text)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30.0)
    assert sorted(texts) == sorted(f"direct reply to {n}-{i}" for n in range(6) for i in range(3))


def test_credentials_are_asked_for_and_used() -> None:
    command = [python_of("a2a-new"), str(HERE / "servers" / "a2a_agent_new.py"), "1.0", "stream"]
    with program(command, env={"KEY": "k3y"}) as running:
        url = running.line("url ")
        with A2AClient(url) as client, pytest.raises(A2AAuthError, match="credentials"):
            client.send("message hi")
        with A2AClient(url, headers={"X-Key": "k3y"}) as client:
            assert client.send("message hi").text == "direct reply to hi"
            card = client.card
        with A2AClient(card=card, headers={"X-Key": "wrong"}) as client:
            with pytest.raises(A2AAuthError, match="no key, no answer") as caught:
                client.send("message hi")
            assert caught.value.status == 401


def test_a_card_is_missed_where_there_is_none() -> None:
    command = [python_of("a2a-old"), str(HERE / "servers" / "a2a_agent_old.py"), "0.3"]
    with program(command) as running:
        url = running.line("url ")
        with A2AClient(url + "/elsewhere") as client, pytest.raises(A2ACardError) as caught:
            client.send("message hi")
        assert len(caught.value.attempts) == 3
        for path in ("/.well-known/agent-card.json", "/.well-known/agent.json"):
            with A2AClient(url + path) as client:
                assert client.send("message hi").text == "direct reply to hi"
