"""A2A objects: read in whatever version they come, written in the one that is spoken, folded from events."""

from __future__ import annotations

import json
from typing import Any, Callable

import pytest

from mantyx_sync.a2a import (
    Artifact,
    ArtifactUpdate,
    DataPart,
    FilePart,
    Message,
    StatusUpdate,
    Task,
    TaskStatus,
    TextPart,
    UnknownPart,
)
from mantyx_sync.a2a.client.folding import Fold, apply_update
from mantyx_sync.a2a.client.replies import reply_to
from mantyx_sync.a2a.dialects import DIALECTS, V03, V1, Dialect, Operation, operation_of
from mantyx_sync.a2a.objects import SendConfiguration, SendParams, format_timestamp, is_settled, normal_state
from mantyx_sync.a2a.reading import WrongObject, read_event, read_message, read_part, read_send_params, read_task
from mantyx_sync.a2a.rpc import INVALID_PARAMS, REASONS, VERSION_NOT_SUPPORTED, read_error, write_error

QUESTION = Message(
    "m-1",
    "agent",
    (
        TextPart("Which one?"),
        DataPart({"options": [1, 2]}),
        FilePart(url="https://x/y.pdf", media_type="application/pdf"),
    ),
    context_id="c-1",
    task_id="t-1",
    metadata={"k": 1},
    extensions=("https://e/1",),
    reference_task_ids=("t-0",),
)
TASK = Task(
    "t-1",
    "c-1",
    TaskStatus("input-required", QUESTION, "2026-11-29T18:46:53.764Z"),
    (
        Artifact(
            "a-1",
            (TextPart("text", metadata={"p": True}), FilePart("YWJj", filename="f.bin", media_type="a/b")),
            "out",
            "what came of it",
            {"m": None},
            ("https://e/2",),
        ),
    ),
    (Message("m-0", "user", (TextPart("Hi"),)),),
    {"t": []},
)

# What the official packages send, as our notes have it.
MESSAGE_V1 = {
    "message": {"messageId": "m-1", "contextId": "c", "role": "ROLE_AGENT", "parts": [{"text": "direct reply"}]}
}
MESSAGE_V03 = {
    "contextId": "c",
    "kind": "message",
    "messageId": "m-1",
    "parts": [{"kind": "text", "text": "direct reply"}],
    "role": "agent",
}
TASK_V1 = {
    "task": {
        "id": "d7a5",
        "contextId": "3016",
        "status": {
            "state": "TASK_STATE_COMPLETED",
            "message": {"messageId": "s", "role": "ROLE_AGENT", "parts": [{"text": "all done"}]},
            "timestamp": "2026-11-29T18:46:53.764148Z",
        },
        "artifacts": [
            {
                "artifactId": "2545",
                "name": "out",
                "parts": [
                    {"text": "artifact text"},
                    {"raw": "YWJj", "filename": "f.bin", "mediaType": "application/octet-stream"},
                ],
            }
        ],
    }
}
TASK_V03 = {
    "kind": "task",
    "id": "d7a5",
    "contextId": "3016",
    "status": {
        "state": "completed",
        "message": {
            "kind": "message",
            "messageId": "s",
            "role": "agent",
            "parts": [{"kind": "text", "text": "all done"}],
        },
        "timestamp": "2026-11-29T18:46:53.764148Z",
    },
    "artifacts": [
        {
            "artifactId": "2545",
            "name": "out",
            "parts": [
                {"kind": "text", "text": "artifact text"},
                {
                    "kind": "file",
                    "file": {"bytes": "YWJj", "mimeType": "application/octet-stream", "name": "f.bin"},
                },
            ],
        }
    ],
}


# ------------------------------------------------------------------------------------------- both ways


@pytest.mark.parametrize("dialect", DIALECTS, ids=repr)
@pytest.mark.parametrize(
    "event",
    [
        TASK,
        QUESTION,
        StatusUpdate("t-1", TASK.status, "c-1", metadata={"x": 1}),
        StatusUpdate("t-1", TaskStatus("working"), "c-1"),
        ArtifactUpdate("t-1", TASK.artifacts[0], "c-1", append=True, last_chunk=True),
        ArtifactUpdate("t-1", TASK.artifacts[0], "c-1", metadata={"x": 1}),
        Task("t", "c", TaskStatus("auth-required")),
        Task("t", "c", TaskStatus("rejected"), metadata={}),
    ],
)
def test_what_is_written_is_read_again(dialect: Dialect, event: Any) -> None:
    wire = json.loads(json.dumps(dialect.write_event(event)))
    assert read_event(wire) == event


def test_final_exists_in_the_old_version_alone() -> None:
    update = StatusUpdate("t", TaskStatus("completed"), "c", final=True)
    assert read_event(V03.write_event(update)) == update
    assert "final" not in V1.write_event(update)["statusUpdate"]
    assert V03.write_event(StatusUpdate("t", TaskStatus("working"), "c"))["final"] is False


@pytest.mark.parametrize(("new", "old"), [(MESSAGE_V1, MESSAGE_V03), (TASK_V1, TASK_V03)])
def test_both_versions_say_the_same(new: Any, old: Any) -> None:
    event = read_event(new)
    assert event is not None
    assert event == read_event(old)
    assert V1.write_event(event) == new
    assert V03.write_event(event) == old


@pytest.mark.parametrize(
    ("wire", "expected"),
    [
        (MESSAGE_V1["message"], Message),
        (TASK_V1["task"], Task),
        ({k: v for k, v in MESSAGE_V03.items() if k != "kind"}, Message),
        ({k: v for k, v in TASK_V03.items() if k != "kind"}, Task),
        ({**TASK_V03, "kind": None, "type": "task"}, Task),
        ({"taskId": "t", "status": {"state": "working"}}, StatusUpdate),
        ({"taskId": "t", "artifact": {"artifactId": "a", "parts": []}}, ArtifactUpdate),
        ({"task": None, **MESSAGE_V1}, Message),
        ({"somethingNew": {}}, type(None)),
        ({"kind": "brand-new", "id": "x"}, type(None)),
        ({"kind": 7}, type(None)),
    ],
)
def test_a_result_is_told_by_its_shape(wire: Any, expected: type) -> None:
    assert type(read_event(wire)) is expected


@pytest.mark.parametrize(
    ("wire", "part"),
    [
        ({"text": "x", "mediaType": "text/html"}, TextPart("x", "text/html")),
        ({"text": ""}, TextPart("")),
        ({"type": "text", "text": "x"}, TextPart("x")),
        ({"kind": "text", "text": "x", "metadata": {"a": 1}}, TextPart("x", metadata={"a": 1})),
        ({"raw": "YQ==", "filename": "a"}, FilePart("YQ==", filename="a")),
        ({"raw": ""}, FilePart("")),
        ({"url": "https://x", "mediaType": "image/png"}, FilePart(url="https://x", media_type="image/png")),
        ({"file": {"uri": "https://x"}}, FilePart(url="https://x")),
        ({"data": None}, DataPart(None)),
        ({"data": [1]}, DataPart([1])),
        ({"kind": "data", "data": {"a": 1}}, DataPart({"a": 1})),
        ({"text": None, "data": {"a": 1}}, DataPart({"a": 1})),
    ],
)
def test_parts_of_either_version(wire: Any, part: Any) -> None:
    assert read_part(wire) == part


def test_a_part_of_an_unknown_kind_is_kept_and_passed_on() -> None:
    wire = {"kind": "hologram", "layers": 3}
    part = read_part(wire)
    assert part == UnknownPart(wire)
    assert read_part({"text": "x", "newField": 1}).raw["newField"] == 1
    for dialect in DIALECTS:
        written = dialect.write_message(Message("m", "user", (part,)))
        assert written["parts"] == [wire]


def test_data_that_is_no_object_survives_the_old_version() -> None:
    for value in ([1, 2], "x", 3, None, True):
        wire = V03.write_message(Message("m", "user", (DataPart(value, metadata={"k": 1}),)))
        assert wire["parts"][0]["data"] == {"value": value}
        assert read_message(wire).parts == (DataPart(value, metadata={"k": 1}),)


def test_fields_with_their_default_are_left_out_in_the_new_version() -> None:
    wire = V1.write_event(ArtifactUpdate("t", Artifact("a", (TextPart("x"),)), "c"))
    assert wire == {
        "artifactUpdate": {"taskId": "t", "contextId": "c", "artifact": {"artifactId": "a", "parts": [{"text": "x"}]}}
    }
    assert V1.write_task(Task("t")) == {"id": "t", "status": {"state": "TASK_STATE_UNSPECIFIED"}}


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("TASK_STATE_INPUT_REQUIRED", "input-required"),
        ("input-required", "input-required"),
        ("input_required", "input-required"),
        ("TASK_STATE_CANCELED", "canceled"),
        ("cancelled", "canceled"),
        ("working", "working"),
        ("TASK_STATE_UNSPECIFIED", "unknown"),
        ("", "unknown"),
        ("TASK_STATE_PAUSED", "paused"),
    ],
)
def test_states_have_one_spelling(text: str, state: str) -> None:
    assert normal_state(text) == state
    assert read_task({"id": "t", "status": {"state": text}}).state == state


def test_a_state_nobody_knows_counts_as_going_on() -> None:
    assert not is_settled("paused")
    assert not is_settled("unknown")
    assert not read_task({"id": "t"}).is_settled
    assert all(map(is_settled, ["completed", "failed", "canceled", "rejected", "input-required", "auth-required"]))


@pytest.mark.parametrize(
    ("read", "wire", "field"),
    [
        (read_task, [], "task"),
        (read_task, {"status": {}}, "task.id"),
        (read_task, {"id": ""}, "task.id"),
        (read_task, {"id": 7}, "task.id"),
        (read_task, {"id": "t", "status": "done"}, "task.status"),
        (read_task, {"id": "t", "status": {"state": 3}}, "task.status.state"),
        (read_task, {"id": "t", "status": {"message": 1}}, "task.status.message"),
        (read_task, {"id": "t", "artifacts": {}}, "task.artifacts"),
        (read_task, {"id": "t", "artifacts": [{"parts": [1]}]}, "task.artifacts[0].parts[0]"),
        (read_message, {"parts": [{"text": 1}]}, "message.parts[0].text"),
        (read_message, {"parts": [{"kind": "text"}]}, "message.parts[0].text"),
        (read_message, {"parts": [{"kind": "file", "file": "x"}]}, "message.parts[0].file"),
        (read_message, {"parts": [{"file": {"bytes": 1}}]}, "message.parts[0].file.bytes"),
        (read_message, {"extensions": [1]}, "message.extensions[0]"),
        (read_message, {"metadata": "x"}, "message.metadata"),
        (read_event, {"statusUpdate": {"status": {}, "final": "yes"}}, "result.statusUpdate.final"),
        (read_send_params, {}, "message"),
        (read_send_params, {"message": {}, "configuration": {"historyLength": -1}}, "configuration.historyLength"),
        (read_send_params, {"message": {}, "configuration": {"blocking": 1}}, "configuration.blocking"),
        (read_send_params, {"message": {}, "metadata": 1}, "metadata"),
    ],
)
def test_a_wrong_type_is_named(read: Callable[[Any], Any], wire: Any, field: str) -> None:
    with pytest.raises(WrongObject) as caught:
        read(wire)
    assert caught.value.field == field
    assert str(caught.value).startswith(field)


@pytest.mark.parametrize(
    ("dialect", "blocking", "expected"),
    [
        (V1, True, None),
        (V1, None, None),
        (V1, False, {"returnImmediately": True}),
        (V03, True, {"blocking": True}),
        (V03, False, {"blocking": False}),
        (V03, None, None),
    ],
)
def test_blocking_is_said_as_the_version_has_it(dialect: Dialect, blocking: Any, expected: Any) -> None:
    message = Message("m", "user", (TextPart("x"),))
    wire = dialect.write_send_params(SendParams(message, SendConfiguration(blocking=blocking)))
    assert wire.get("configuration") == expected
    read = read_send_params(wire).configuration.blocking
    assert read is (blocking if expected else None)


@pytest.mark.parametrize("dialect", DIALECTS, ids=repr)
def test_the_parameters_of_a_send_survive(dialect: Dialect) -> None:
    push = {"url": "https://x/hook"}
    sent = SendParams(QUESTION, SendConfiguration(("text/plain",), 0, False, push), {"a": 1})
    assert read_send_params(dialect.write_send_params(sent)) == sent


def test_a_tenant_travels_in_the_new_version_alone() -> None:
    sent = SendParams(QUESTION, tenant="acme")
    assert V1.write_send_params(sent)["tenant"] == "acme"
    assert read_send_params(V1.write_send_params(sent)).tenant == "acme"
    assert "tenant" not in V03.write_send_params(sent)


def test_methods_tell_the_version() -> None:
    assert operation_of("SendMessage") == (V1, Operation.SEND)
    assert operation_of("message/send") == (V03, Operation.SEND)
    assert operation_of("tasks/resubscribe") == (V03, Operation.RESUBSCRIBE)
    assert operation_of("tasks/list") is None


def test_timestamps_are_utc_with_milliseconds() -> None:
    assert format_timestamp(1796000000.5) == "2026-11-30T00:53:20.500Z"
    assert format_timestamp(0) == "1970-01-01T00:00:00.000Z"


# ------------------------------------------------------------------------------------------- base64


@pytest.mark.parametrize("text", ["-_8=", "-_8", "+/8=", "+/8"])
def test_base64_of_either_alphabet_with_or_without_padding(text: str) -> None:
    assert FilePart(text).content() == b"\xfb\xff"


def test_damaged_base64_says_so() -> None:
    with pytest.raises(ValueError, match="not base64"):
        FilePart("a*b").content()
    assert FilePart(url="https://x").content() is None
    assert FilePart.from_bytes(b"abc", "f").data == "YWJj"


# ------------------------------------------------------------------------------------------- errors


def test_errors_carry_their_reason_in_the_new_version() -> None:
    wire = write_error(V1, INVALID_PARAMS, "Validation failed", [("message", "is required")])
    assert [item["@type"].rpartition(".")[2] for item in wire["data"]] == ["ErrorInfo", "BadRequest"]
    assert wire["data"][0] == {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": "INVALID_PARAMS",
        "domain": "a2a-protocol.org",
        "metadata": {},
    }
    error = read_error(wire)
    assert (error.code, error.reason, error.violations) == (-32602, "INVALID_PARAMS", (("message", "is required"),))
    assert "data" not in write_error(V03, INVALID_PARAMS, "x", [("message", "is required")])
    assert write_error(V03, VERSION_NOT_SUPPORTED, "x")["code"] == -32603
    for code in (-32601, -32700):
        assert write_error(V1, code, "x") == {"code": code, "message": "x"}


@pytest.mark.parametrize(
    ("wire", "code", "message", "reason"),
    [
        ({"code": -32001, "message": "Task not found", "data": None}, -32001, "Task not found", "TASK_NOT_FOUND"),
        ({"code": -32001, "data": "gone"}, -32001, "the agent gave no reason", "TASK_NOT_FOUND"),
        ({"code": "x", "message": "odd"}, -32603, "odd", "INTERNAL_ERROR"),
        ({"code": -1, "message": "own"}, -1, "own", None),
        ("just text", -32603, "just text", None),
        (None, -32603, "the agent gave no reason", None),
        (
            {"code": -32602, "message": "m", "data": [1, {"reason": "OTHER"}, {"fieldViolations": 3}]},
            -32602,
            "m",
            "OTHER",
        ),
    ],
)
def test_an_error_of_any_shape_is_read(wire: Any, code: int, message: str, reason: Any) -> None:
    error = read_error(wire)
    assert (error.code, error.message, error.reason) == (code, message, reason)


def test_every_code_has_its_reason() -> None:
    assert set(REASONS) == {-32600, -32602, -32603, *range(-32009, -32000)}


# ------------------------------------------------------------------------------------------- folding


def chunk(*texts: str, append: bool = False, artifact_id: str = "a") -> ArtifactUpdate:
    return ArtifactUpdate("t", Artifact(artifact_id, tuple(map(TextPart, texts))), "c", append)


def status(state: str, final: bool = False) -> StatusUpdate:
    return StatusUpdate("t", TaskStatus(state), "c", final)


def folded(*events: Any) -> Fold:
    fold = Fold()
    for event in events:
        assert not fold.is_over
        fold.feed(event)
    return fold


def test_updates_make_the_task() -> None:
    fold = folded(Task("t", "c", TaskStatus("submitted")), status("working"), chunk("one"), status("completed"))
    assert fold.task == Task("t", "c", TaskStatus("completed"), (Artifact("a", (TextPart("one"),)),))
    assert fold.is_over


def test_a_later_artifact_replaces_and_others_are_added() -> None:
    fold = folded(Task("t"), chunk("one"), chunk("x", artifact_id="b"), chunk("two"))
    assert fold.task is not None
    assert [(a.artifact_id, a.text) for a in fold.task.artifacts] == [("a", "two"), ("b", "x")]


def test_appended_text_goes_on_where_it_broke_off() -> None:
    fold = folded(Task("t"), chunk("Hel"), chunk("lo", append=True), chunk(", ", "you", append=True))
    assert fold.task is not None
    assert fold.task.artifacts[0].parts == (TextPart("Hello, "), TextPart("you"))


def test_appended_parts_of_other_kinds_stay_apart() -> None:
    start = Task("t", artifacts=(Artifact("a", (TextPart("x", "text/html"),), metadata={"n": 1}),))
    for part in (TextPart("y"), DataPart(1), FilePart("YQ=="), TextPart("y", "text/html", {"m": 1})):
        update = ArtifactUpdate("t", Artifact("a", (part,), metadata={"m": 2}), append=True)
        artifact = apply_update(start, update).artifacts[0]
        assert artifact.parts == (*start.artifacts[0].parts, part)
        assert artifact.metadata == {"n": 1, "m": 2}


def test_appending_to_nothing_adds() -> None:
    fold = folded(Task("t"), chunk("x", append=True))
    assert fold.task is not None
    assert fold.task.artifacts[0].text == "x"


def test_an_update_without_a_task_makes_one() -> None:
    fold = folded(status("working"), chunk("x"), status("completed"))
    assert fold.task is not None
    assert (fold.task.id, fold.task.context_id, fold.task.state) == ("t", "c", "completed")


def test_a_terminal_state_is_never_left() -> None:
    done = Task("t", status=TaskStatus("completed"))
    assert apply_update(done, status("working")).state == "completed"


def test_a_message_and_final_end_an_answer() -> None:
    assert folded(QUESTION).message == QUESTION
    assert folded(QUESTION).is_over
    assert folded(Task("t"), status("working", final=True)).is_over
    assert folded(Task("t"), status("input-required")).is_over


# ------------------------------------------------------------------------------------------- replies


def task(state: str = "completed", said: str = "", *parts: Any, history: Any = ()) -> Task:
    message = Message("s", "agent", (TextPart(said),)) if said else None
    artifacts = tuple(Artifact(f"a{i}", (part,)) for i, part in enumerate(parts))
    return Task("t", "c", TaskStatus(state, message), artifacts, history)


SAID_BEFORE = (
    Message("1", "agent", (TextPart("early"),)),
    Message("2", "agent", (TextPart("late"),)),
    Message("3", "user", (TextPart("mine"),)),
)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (task("completed", "status", TextPart("one"), TextPart("two")), "one\ntwo"),
        (task("completed", "status"), "status"),
        (task("completed", history=SAID_BEFORE), "late"),
        (task("completed"), ""),
        (task("completed", "status", DataPart({"ä": [1, 2]})), '{"ä":[1,2]}'),
        (task("completed", "status", TextPart("see"), FilePart(url="https://x/a%20b.pdf")), "see\n[file 'a b.pdf': https://x/a%20b.pdf]"),
        (task("completed", "", FilePart(url="https://x/y", filename="n", media_type="a/b")), "[file 'n' (a/b): https://x/y]"),
        (task("completed", "here it is", FilePart("YWJj", filename="f.txt")), "here it is"),
        (task("completed", "", FilePart("*", filename="f")), "[file 'f' is damaged: its content is not base64]"),
        (task("input-required", "Which?", TextPart("draft")), "Which?"),
        (task("input-required", history=SAID_BEFORE), "late"),
        (task("failed", "disk full", TextPart("half")), "disk full"),
        (task("failed", history=SAID_BEFORE), ""),
        (task("completed", "", UnknownPart({"kind": "x"}), TextPart("y")), "y"),
    ],
)  # fmt: skip
def test_the_text_for_the_model(answer: Task, text: str) -> None:
    reply = reply_to(answer, None)
    assert reply.text == text
    assert (reply.state, reply.task_id, reply.context_id) == (answer.state, "t", "c")
    assert reply.needs_input is (answer.state == "input-required")


def test_a_message_is_a_completed_answer() -> None:
    message = Message("m", "agent", (TextPart("a"), TextPart("b"), DataPart(1)), "c")
    reply = reply_to(None, message)
    assert (reply.state, reply.text, reply.context_id, reply.task_id) == ("completed", "a\nb\n1", "c", None)
    assert reply.parts == message.parts


@pytest.mark.parametrize(
    ("part", "name", "mime_type"),
    [
        (FilePart("YWJj", filename="a.png"), "a.png", "image/png"),
        (FilePart("YWJj", filename="a.png", media_type="application/octet-stream"), "a.png", "image/png"),
        (FilePart("YWJj", filename="a.bin", media_type="image/png"), "a.bin", "image/png"),
        (FilePart("YWJj", media_type="application/pdf"), "file-1.pdf", "application/pdf"),
        (FilePart("YWJj"), "file-1.bin", "application/octet-stream"),
        (FilePart("YWJj", filename="../../etc/passwd"), ".._.._etc_passwd", "application/octet-stream"),
    ],
)
def test_files_have_a_name_and_a_type(part: FilePart, name: str, mime_type: str) -> None:
    (file,) = reply_to(task("completed", "", part), None).files
    assert (file.filename, file.mime_type, file.data) == (name, mime_type, "YWJj")


def test_a_tool_result_holds_what_the_platform_takes_and_names_the_rest() -> None:
    large = FilePart.from_bytes(b"x" * (5 * 1024 * 1024), "large.txt")
    reply = reply_to(
        task("completed", "", TextPart("t"), FilePart("YWJj", filename="a.png"), FilePart("YWJj"), large), None
    )
    result = reply.to_tool_result()
    assert [item.filename for item in result.files or ()] == ["a.png"]
    assert result.result.splitlines()[0] == "t"
    assert "'file-2.bin' (application/octet-stream, 3 bytes)" in result.result
    assert "'large.txt' (5242880 bytes)" in result.result
    assert len(reply.files) == 3

    many = reply_to(task("completed", "", *[FilePart("YWJj", filename=f"{i}.txt") for i in range(21)]), None)
    assert len(many.to_tool_result().files or ()) == 20
    assert many.to_tool_result().result == "[file '20.txt' is left out: there are too many]"
    assert reply_to(task("completed", "just text"), None).to_tool_result().files is None
