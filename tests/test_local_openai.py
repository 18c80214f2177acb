"""`OpenAICompatibleModel`: what it sends, what it reads, and runs over a chat-completions server on loopback."""

from __future__ import annotations

import base64
import json
import socket
import threading
from typing import Any, Optional

import pytest

from mantyx_sync.local import (
    LocalServer,
    ModelFailure,
    ModelRequest,
    OpenAICompatibleModel,
    Text,
    Thinking,
    ToolDeclaration,
    ToolUse,
    TurnEnd,
    Usage,
    Verdict,
)
from mantyx_sync.local.chat import ChatStream, chat_body, chat_failure
from tests.chat_server import ChatServer, Reply, call, chat_server, delta, usage
from tests.plain_http import DEADLINE_S, ORDER_TOOL, answer_calls, of_type, request, run_to_end, start, stream, types

pytestmark = pytest.mark.usefixtures("no_leaks")

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
OUTPUT = {"name": "report", "schema": SCHEMA}


def model_of(chat: ChatServer, **settings: Any) -> OpenAICompatibleModel:
    return OpenAICompatibleModel(chat.url, "tiny", **settings)


# --------------------------------------------------------------------------- requests


def request_of(*messages: dict[str, Any], **fields: Any) -> ModelRequest:
    given: dict[str, Any] = {"tools": [], "spec": {}, "turn": 0, "run_id": "run_1", **fields}
    return ModelRequest(messages, **given)


def sent(*messages: dict[str, Any]) -> list[dict[str, Any]]:
    body = chat_body(request_of(*messages), "tiny", send_reasoning=False)
    found: list[dict[str, Any]] = body["messages"]
    return found


def test_a_plain_request_asks_for_a_stream_with_usage() -> None:
    body = chat_body(request_of({"role": "user", "content": "Hi"}), "tiny", send_reasoning=False)
    assert body == {
        "model": "tiny",
        "messages": [{"role": "user", "content": "Hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_tools_schema_reasoning_and_extra_fields_are_sent() -> None:
    tool = ToolDeclaration("t", "Does it.", {"type": "object", "properties": {}})
    asked = request_of(
        {"role": "user", "content": "Hi"}, tools=[tool], output_schema=OUTPUT, spec={"reasoningLevel": "high"}
    )
    body = chat_body(asked, "tiny", send_reasoning=True, extra={"temperature": 0, "stream_options": None})
    assert body["tools"] == [
        {"type": "function", "function": {"name": "t", "description": "Does it.", "parameters": tool.parameters}}
    ]
    assert body["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "report", "strict": True, "schema": SCHEMA},
    }
    assert (body["reasoning_effort"], body["temperature"], body["stream_options"]) == ("high", 0, None)
    off = chat_body(request_of(spec={"reasoningLevel": 0}), "tiny", send_reasoning=True)
    assert "reasoning_effort" not in off


def test_calls_and_results_go_back_in_the_dialect() -> None:
    assert sent(
        {
            "role": "assistant",
            "content": "",
            "toolCalls": [{"id": "a", "name": "t", "input": {"x": 1}}, {"id": "b", "name": "t", "input": "{broken"}],
        },
        {"role": "tool", "toolUseId": "a", "name": "t", "content": "fine", "isError": False},
        {"role": "user", "content": "Go on.", "steering": True},
    ) == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "t", "arguments": '{"x": 1}'}},
                {"id": "b", "type": "function", "function": {"name": "t", "arguments": "{broken"}},
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "fine"},
        {"role": "user", "content": "Go on."},
    ]


def test_files_of_results_follow_behind_the_whole_batch() -> None:
    file = {"filename": "a.png", "mimeType": "image/png", "data": "QQ=="}
    messages = sent(
        {"role": "tool", "toolUseId": "a", "name": "t", "content": "", "isError": False, "files": [file]},
        {"role": "tool", "toolUseId": "b", "name": "u", "content": "", "isError": False},
    )
    assert [m["role"] for m in messages] == ["tool", "tool", "user"]
    assert messages[2]["content"] == [
        {"type": "text", "text": "Files that t returned:"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,QQ=="}},
    ]


@pytest.mark.parametrize(
    ("attachment", "part"),
    [
        (
            {"type": "input_file", "filename": "n.txt", "mimeType": "text/plain; charset=utf-8", "data": "SGk="},
            {"type": "text", "text": "n.txt:\nHi"},
        ),
        (
            {"type": "input_file", "filename": "a.wav", "mimeType": "audio/wav", "data": "QQ=="},
            {"type": "input_audio", "input_audio": {"data": "QQ==", "format": "wav"}},
        ),
        (
            {"type": "input_file", "filename": "a.pdf", "mimeType": "application/pdf", "data": "QQ=="},
            {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,QQ=="}},
        ),
        (
            {"type": "input_file_url", "url": "https://x/a.JPG"},
            {"type": "image_url", "image_url": {"url": "https://x/a.JPG"}},
        ),
        (
            {"type": "input_file_url", "url": "https://x/doc", "mimeType": "application/pdf", "filename": "doc"},
            {"type": "text", "text": "[doc is at https://x/doc]"},
        ),
    ],
)
def test_attachments_become_content_parts(attachment: dict[str, Any], part: dict[str, Any]) -> None:
    (message,) = sent({"role": "user", "content": "See.", "attachments": [attachment]})
    assert message["content"] == [{"type": "text", "text": "See."}, part]


# ---------------------------------------------------------------------------- answers


@pytest.mark.parametrize(
    ("chunks", "parts"),
    [
        ([delta(content="Hel"), delta(content="lo"), delta("stop")], ["Hel", "lo", TurnEnd("end_turn")]),
        ([delta(role="assistant", content=""), delta("stop", content="x")], ["x", TurnEnd("end_turn")]),
        ([delta(reasoning_content="hm"), delta("stop")], [Thinking("hm"), TurnEnd("end_turn")]),
        ([delta(reasoning="hm"), delta("stop")], [Thinking("hm"), TurnEnd("end_turn")]),
        ([delta(content=[{"type": "text", "text": "x"}]), delta("stop")], [Text("x"), TurnEnd("end_turn")]),
        ([delta("length", content="x")], ["x", TurnEnd("max_tokens")]),
        ([delta("content_filter")], [TurnEnd("refusal")]),
        ([delta(refusal="No."), delta("stop")], ["No.", TurnEnd("refusal")]),
        ([delta("SOMETHING_NEW")], [TurnEnd("something_new")]),
        (
            [call(0, "t", '{"x"', "a"), call(0, arguments=": 1}"), delta("tool_calls")],
            [ToolUse("t", {"x": 1}, "a"), TurnEnd("tool_use")],
        ),
        (
            [call(0, "t", "{}", "a"), call(1, "u", "{", "b"), call(1, arguments="}"), delta("tool_calls")],
            [ToolUse("t", {}, "a"), ToolUse("u", {}, "b"), TurnEnd("tool_use")],
        ),
        # Every call numbered 0, the end called "stop", no id, arguments as an object: all seen in the wild.
        (
            [call(0, "t", "{}", "a"), call(0, "u", "{}", "b"), delta("stop")],
            [ToolUse("t", {}, "a"), ToolUse("u", {}, "b"), TurnEnd("tool_use")],
        ),
        ([call(0, "t", {"x": 1}), delta("tool_calls")], [ToolUse("t", {"x": 1}), TurnEnd("tool_use")]),
        ([call(0, "t", "", "a"), delta("tool_calls")], [ToolUse("t", {}, "a"), TurnEnd("tool_use")]),
        ([call(0, "t", "{oops", "a"), delta("tool_calls")], [ToolUse("t", "{oops", "a"), TurnEnd("tool_use")]),
        (
            [
                delta("stop", content="x"),
                usage(
                    9, 4, prompt_tokens_details={"cached_tokens": 3}, completion_tokens_details={"reasoning_tokens": 1}
                ),
            ],
            ["x", TurnEnd("end_turn", Usage(9, 4, 3, 1))],
        ),
        (
            [delta("stop", content="x"), {"choices": None, "usage": {"prompt_tokens": None}}],
            ["x", TurnEnd("end_turn", Usage())],
        ),
        ([[], "x", {"choices": ["x"]}, {"choices": [{"index": 1, "delta": {"content": "no"}}]}], [TurnEnd("end_turn")]),
        (
            [{"choices": [{"index": 0, "message": {"content": "whole"}, "finish_reason": "stop"}]}],
            ["whole", TurnEnd("end_turn")],
        ),
    ],
)
def test_chunks_become_the_parts_of_a_turn(chunks: list[Any], parts: list[Any]) -> None:
    reading = ChatStream()
    found = [part for chunk in chunks for part in reading.feed(chunk)]
    assert [*found, *reading.finish()] == parts


@pytest.mark.parametrize(
    ("status", "body", "error_class", "retryable"),
    [
        (400, {"error": {"message": "bad", "code": "x"}}, "invalid_request", False),
        (400, {"error": {"message": "too long", "code": "context_length_exceeded"}}, "context_window", False),
        (400, {"error": {"message": "exceeds the available context size"}}, "context_window", False),
        (500, {"error": {"message": "exceeds the available context size"}}, "context_window", False),
        (400, {"error": {"message": "response_format is not supported"}}, "structured_output_schema_rejected", False),
        (401, "no key", "auth", False),
        (403, {}, "auth", False),
        (404, {"error": "model not found"}, "invalid_request", False),
        (408, "", "timeout", True),
        (413, "", "context_window", False),
        (429, {"error": {"message": "slow down"}}, "rate_limit", True),
        (429, {"error": {"message": "pay", "code": "insufficient_quota"}}, "rate_limit", False),
        (500, "<html>", "server", True),
        (503, {"error": {"message": "loading"}}, "overloaded", True),
        (504, "", "upstream_deadline", True),
        (529, "", "overloaded", True),
        (None, {"error": {"message": "mid-stream"}}, "server", True),
        (None, {"error": {"message": "mid-stream", "code": 429}}, "rate_limit", True),
    ],
)
def test_errors_have_their_class(status: Optional[int], body: Any, error_class: str, retryable: bool) -> None:
    failure = chat_failure(status, body, with_schema=True)
    assert (failure.error_class, failure.retryable) == (error_class, retryable)


def test_a_refusal_that_speaks_of_a_schema_is_its_rejection_only_if_one_was_sent() -> None:
    body = {"error": {"message": "json_schema what?", "code": "bad"}}
    assert chat_failure(400, body).error_class == "invalid_request"
    failure = chat_failure(400, body, with_schema=True)
    assert (failure.error_class, failure.api_status, failure.api_code) == (
        "structured_output_schema_rejected",
        400,
        "bad",
    )


@pytest.mark.parametrize("url", ["127.0.0.1:80/v1", "ftp://x/v1", "http://"])
def test_a_base_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="base_url"):
        OpenAICompatibleModel(url, "tiny")


def test_the_key_is_not_shown() -> None:
    assert "sk-secret" not in repr(OpenAICompatibleModel("http://127.0.0.1:1/v1", "tiny", "sk-secret"))


# --------------------------------------------------------------------- runs over HTTP


def test_a_run_streams_text_and_counts_tokens() -> None:
    reply = Reply(delta(role="assistant", content="Hel"), ": a comment", delta("stop", content="lo"), usage(7, 2))
    with chat_server(reply) as chat, LocalServer(model_of(chat, api_key="sk-1")) as server:
        events = run_to_end(server)
    assert [e["text"] for e in of_type(events, "assistant_delta")] == ["Hel", "lo"]
    done = events[-1]["data"]
    assert done["text"] == "Hello"
    assert done["tokens"] == {"inputTokens": 7, "cachedTokens": 0, "reasoningTokens": 0, "outputTokens": 2}
    assert done["model"] == {"id": "local:tiny", "provider": "local", "vendorModelId": "tiny"}
    path, headers, body = chat.requests[0]
    assert (path, headers["authorization"], body["model"]) == ("/v1/chat/completions", "Bearer sk-1", "tiny")


def test_a_run_uses_tools() -> None:
    first = Reply(call(0, "get_order", '{"order_id":', "tu_1"), call(0, arguments='"17"}'), delta("tool_calls"))
    second = Reply(delta("stop", content="It has shipped."))
    with chat_server(first, second) as chat, LocalServer(model_of(chat)) as server:
        run_id = start(server, prompt="Where is 17?", tools=[ORDER_TOOL])
        events = answer_calls(server, run_id, {"get_order": '{"status":"shipped"}'})
    assert of_type(events, "local_tool_call")[0]["args"] == {"order_id": "17"}
    assert events[-1]["data"]["text"] == "It has shipped."
    assert "authorization" not in chat.requests[0][1]
    assert chat.bodies[0]["tools"][0]["function"]["name"] == "get_order"
    assert chat.bodies[1]["messages"][2:] == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "tu_1",
                    "type": "function",
                    "function": {"name": "get_order", "arguments": '{"order_id": "17"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "tu_1", "content": '{"status":"shipped"}'},
    ]


def test_a_server_that_does_not_stream_is_understood() -> None:
    body = json.dumps({"choices": [{"index": 0, "message": {"content": "whole"}, "finish_reason": "stop"}]})
    reply = Reply(body=body, content_type="application/json")
    with chat_server(reply) as chat, LocalServer(model_of(chat)) as server:
        assert run_to_end(server)[-1]["data"]["text"] == "whole"


def test_structured_output_goes_out_and_is_reported() -> None:
    with chat_server(Reply(delta("stop", content='{"city": "Rome"}'))) as chat, LocalServer(model_of(chat)) as server:
        done = run_to_end(server, outputSchema=OUTPUT)[-1]["data"]
    assert chat.bodies[0]["response_format"]["json_schema"]["schema"] == SCHEMA
    assert done["structuredOutput"] == {
        "schemaRequested": True,
        "schemaEnforced": True,
        "enforcementMechanism": "native_schema",
        "unconstrainedFallbackOccurred": False,
    }


REJECTED = json.dumps({"error": {"message": "response_format json_schema is not supported", "code": "bad_format"}})


def test_a_rejected_schema_is_dropped_when_best_effort_will_do() -> None:
    rejected = Reply(status=400, body=REJECTED, content_type="application/json")
    with chat_server(rejected, Reply(delta("stop", content="Rome"))) as chat, LocalServer(model_of(chat)) as server:
        events = run_to_end(server, outputSchema=OUTPUT)
    assert ["response_format" in body for body in chat.bodies] == [True, False]
    done = events[-1]["data"]
    assert (done["text"], done["turns"]) == ("Rome", 2)
    assert done["structuredOutput"] == {
        "schemaRequested": True,
        "schemaEnforced": False,
        "enforcementMechanism": "none",
        "unconstrainedFallbackOccurred": True,
    }


def test_a_rejected_schema_fails_a_strict_run() -> None:
    rejected = Reply(status=400, body=REJECTED, content_type="application/json")
    with chat_server(rejected) as chat, LocalServer(model_of(chat)) as server:
        done = run_to_end(server, outputSchema={**OUTPUT, "enforcement": "strict"})[-1]
    assert done["type"] == "error"
    assert done["data"]["errorClass"] == "structured_output_schema_rejected"
    assert (done["data"]["apiStatus"], done["data"]["apiCode"]) == (400, "bad_format")


def test_a_server_known_to_ignore_schemas_is_not_sent_one() -> None:
    reply = Reply(delta("stop", content="Rome"))
    with chat_server(reply) as chat, LocalServer(model_of(chat, structured_output="none")) as server:
        run_to_end(server, outputSchema=OUTPUT)
    assert "response_format" not in chat.bodies[0]


def test_an_answer_cut_off_is_a_truncation() -> None:
    with chat_server(Reply(delta("length", content='{"city'))) as chat, LocalServer(model_of(chat)) as server:
        done = run_to_end(server, outputSchema=OUTPUT)[-1]["data"]
    assert (done["errorClass"], done["partialText"]) == ("truncation", '{"city')


@pytest.mark.parametrize(
    ("reply", "error_class", "partial"),
    [
        (Reply(status=429, body='{"error":{"message":"slow"}}', content_type="application/json"), "rate_limit", None),
        (Reply(status=500, body="<html>oops</html>", content_type="text/html"), "server", None),
        (Reply(delta(content="Half"), {"error": {"message": "out of memory"}}), "server", "Half"),
        (Reply(delta(content="Half"), done=False), "server", "Half"),
        (Reply(delta(content="Half"), "data: {oops"), "server", "Half"),
        (Reply(status=302, body="", content_type="text/html"), "invalid_request", None),
    ],
)
def test_what_goes_wrong_there_fails_the_run_with_a_class(
    reply: Reply, error_class: str, partial: Optional[str]
) -> None:
    with chat_server(reply) as chat, LocalServer(model_of(chat)) as server:
        done = run_to_end(server)[-1]
    assert (done["type"], done["data"]["errorClass"]) == ("error", error_class)
    assert done["data"].get("partialText") == partial


def test_a_server_that_is_not_there_fails_the_run() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with LocalServer(OpenAICompatibleModel(f"http://127.0.0.1:{port}/v1", "tiny")) as server:
            done = run_to_end(server)[-1]["data"]
    assert (done["errorClass"], done["code"], done["retryable"]) == ("server", "server", True)


def test_a_silent_server_is_given_up() -> None:
    release = threading.Event()
    reply = Reply(delta(content="Half"), lambda: release.wait(DEADLINE_S))
    with chat_server(reply) as chat, LocalServer(model_of(chat, timeout=0.1)) as server:
        done = run_to_end(server)[-1]["data"]
        release.set()
    assert (done["errorClass"], done["partialText"], done["retryable"]) == ("timeout", "Half", True)


def test_cancelling_a_run_wakes_a_call_that_waits_for_the_server() -> None:
    waiting, release = threading.Event(), threading.Event()
    # Silent for longer than the test waits for the end of the run.
    reply = Reply(delta(content="Half"), waiting.set, lambda: release.wait(3 * DEADLINE_S))
    with chat_server(reply) as chat, LocalServer(model_of(chat)) as server:
        run_id = start(server)
        assert waiting.wait(DEADLINE_S)
        request(server, "POST", f"/agent-runs/{run_id}/cancel")
        ended = server.run(run_id).wait(DEADLINE_S / 2)
        release.set()
        assert ended
        assert types(stream(server, run_id))[-1] == "cancelled"


def test_stopping_the_server_wakes_a_call_that_waits() -> None:
    waiting, release = threading.Event(), threading.Event()
    with chat_server(Reply(waiting.set, lambda: release.wait(3 * DEADLINE_S))) as chat:
        with LocalServer(model_of(chat)) as server:
            run_id = start(server)
            assert waiting.wait(DEADLINE_S)
        ended = server.run(run_id).is_terminal  # `stop` waits for the run's thread, but not for ever
        release.set()
    assert ended


def test_a_supervisor_breaks_off_reasoning_and_the_connection_with_it() -> None:
    release = threading.Event()
    padding = [delta(reasoning_content="x" * 4096)] * 2000  # more than the sockets hold
    first = Reply(delta(reasoning_content="round and round"), lambda: release.wait(DEADLINE_S), *padding)

    def judge(_: Any) -> Verdict:
        return Verdict("redirect", "Overthinking.", "Answer.")

    with chat_server(first, Reply(delta("stop", content="Done."))) as chat:
        with LocalServer(model_of(chat), judge=judge) as server:
            supervisor = {"reasoningTrigger": {"chars": 5}}
            done = run_to_end(server, supervisor=supervisor, reasoningLevel="high")[-1]["data"]
        release.set()
        assert chat.gone.wait(DEADLINE_S)
    assert (done["text"], done["turns"]) == ("Done.", 2)
    assert chat.bodies[1]["messages"][-1] == {"role": "user", "content": "Answer."}


def test_an_attachment_reaches_the_model_server() -> None:
    file = {
        "type": "input_file",
        "filename": "n.txt",
        "mimeType": "text/plain",
        "data": base64.b64encode(b"Hi").decode(),
    }
    messages = [{"role": "user", "content": "See.", "attachments": [file]}]
    with chat_server(Reply(delta("stop", content="Seen."))) as chat, LocalServer(model_of(chat)) as server:
        run_to_end(server, messages=messages)
    assert chat.bodies[0]["messages"][-1]["content"][1] == {"type": "text", "text": "n.txt:\nHi"}


def test_a_failure_says_what_the_server_said() -> None:
    failure = chat_failure(400, {"error": {"message": "bad\n thing"}})
    assert isinstance(failure, ModelFailure)
    assert str(failure) == "The model server answered 400: bad thing"
