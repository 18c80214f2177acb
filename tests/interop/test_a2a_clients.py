"""The official A2A clients, 1.x and 0.3, against our A2A app under WSGI servers that others wrote."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import struct
from dataclasses import dataclass
from typing import Any, Iterator
from urllib.parse import urlsplit

import pytest

from .a2a_serving import LINES, ServedApp, serving
from .peers import HERE, program, python_of

# WSGI server or framework; the client's environment and program, and the version it speaks.
NEW, NEW_IN_03, OLD = ("a2a-new", "a2a_new", "1.0"), ("a2a-new", "a2a_new", "0.3"), ("a2a-old", "a2a_old", "0.3")
COMBINATIONS = [
    *[("waitress", client) for client in (NEW, NEW_IN_03, OLD)],
    *[("gunicorn", client) for client in (NEW, NEW_IN_03, OLD)],
    *[(server, client) for server in ("flask", "django", "own") for client in (NEW, OLD)],
]


@dataclass
class Asked:
    """What a client found out."""

    app: ServedApp
    version: str
    is_old: bool
    found: dict[str, Any]
    statuses: list[str]


@pytest.fixture(
    scope="module",
    params=COMBINATIONS,
    ids=lambda combination: f"{combination[0]}-{combination[1][1]}-{combination[1][2]}",
)
def asked(request: pytest.FixtureRequest) -> Iterator[Asked]:
    server, (environment, script, version) = request.param
    python = python_of(environment)
    with serving(server) as app:
        with program([python, str(HERE / "clients" / f"{script}.py"), app.url, version]) as client:
            for _ in range(2):
                app.script.let_go(client.line("let go "))
            found = json.loads(client.line("result "))
        yield Asked(app, version, environment == "a2a-old", found, [run.status for run in app.platform.runs])


def kind_and_text(failure: Any) -> tuple[str, str]:
    assert failure is not None, "the call was not refused"
    kind, text = failure
    return kind, text


def test_the_card_is_read(asked: Asked) -> None:
    card, url = asked.found["card"], asked.app.url + "/"
    assert (card["name"], card["description"], card["provider"]["organization"]) == ("Helper", "Helps.", "Shop")
    assert card["capabilities"]["streaming"] is True
    if asked.is_old:
        assert card["url"] == url
        assert card["securitySchemes"] == {"bearer": {"type": "http", "scheme": "bearer"}}
        assert card["security"] == [{"bearer": []}]
    else:
        assert [(i["url"], i["protocolVersion"]) for i in card["supportedInterfaces"]] == [(url, "1.0"), (url, "0.3")]
        assert card["securitySchemes"] == {"bearer": {"httpAuthSecurityScheme": {"scheme": "bearer"}}}
        assert card["securityRequirements"] == [{"schemes": {"bearer": {}}}]


def test_a_message_is_answered_and_a_context_goes_on(asked: Asked) -> None:
    assert asked.found["send"] == {"state": "completed", "answer": ["Heard 1: Hello"], "history": 1}
    assert asked.found["more"] == {"same": True, "answer": ["Heard 2: More"]}


def test_an_answer_is_streamed(asked: Asked) -> None:
    stream = asked.found["stream"]
    assert stream["first"] == "task"
    assert stream["states"] == ["submitted", "working", "completed"]
    assert stream["answer"] == "Heard 1: Hello"
    assert "".join(stream["pieces"][:-1]) == "Heard 1: Hello"
    assert stream.get("finals", [False, True]) == [False, True]


def test_what_is_said_before_a_tool_call_is_no_part_of_the_answer(asked: Asked) -> None:
    assert asked.found["tool"]["answer"] == "I have seen."
    assert asked.found["tool"]["states"] == ["submitted", "working", "working", "completed"]


def test_files_go_both_ways(asked: Asked) -> None:
    assert asked.found["file in"]["answer"] == '["a.png"]'
    assert asked.found["file out"] == [["cGljdHVyZQ==", "seen.png", "image/png"]]


def test_line_ends_come_through_unchanged(asked: Asked) -> None:
    assert asked.found["lines"]["answer"] == LINES


def test_a_failed_run_tells_its_kind_and_no_more(asked: Asked) -> None:
    text = ["The agent could not complete the task (rate_limit)."]
    assert asked.found["fail"] == {"state": "failed", "text": text}


def test_an_agent_asks_back_and_goes_on_with_the_answer(asked: Asked) -> None:
    ask = asked.found["ask"]
    assert [state.replace("_", "-") for state in ask["states"]] == ["submitted", "working", "input-required"]
    assert ask["text"] == ["Which one?"]
    assert (ask["answer"]["states"], ask["answer"]["answer"]) == (["working", "completed"], "So it is the red one.")
    assert ask["plain"] == "So it is the blue one."


def test_a_task_can_be_polled(asked: Asked) -> None:
    assert asked.found["poll"]["at once"] in ("submitted", "working")
    assert asked.found["poll"]["then"] == "completed"


def test_a_task_is_canceled_in_mid_stream_and_its_run_with_it(asked: Asked) -> None:
    canceled = asked.found["cancel"]
    assert canceled["state"] == "canceled"
    assert canceled["states"] == ["submitted", "working", "canceled"]
    assert canceled["answer"] == "One "
    assert asked.statuses.count("cancelled") == 1
    kind, text = kind_and_text(asked.found["cancel again"])
    assert kind == ("A2AClientJSONRPCError" if asked.is_old else "TaskNotCancelableError")
    assert "The task is over (canceled)" in text


def test_a_stream_that_was_left_is_taken_up_again(asked: Asked) -> None:
    again = asked.found["resubscribe"]
    assert (again["first"], again["states"], again["answer"]) == ("task", ["working", "completed"], "One two.")
    kind, text = kind_and_text(asked.found["resubscribe again"])
    assert kind == ("A2AClientJSONRPCError" if asked.is_old else "UnsupportedOperationError")
    assert "The task is over (completed)" in text


ERRORS = [
    ("get", "TaskNotFoundError", -32001),
    ("cancel", "TaskNotFoundError", -32001),
    ("terminal", "UnsupportedOperationError", -32004),
    ("terminal stream", "UnsupportedOperationError", -32004),
    ("unknown task", "TaskNotFoundError", -32001),
    ("content", "ContentTypeNotSupportedError", -32005),
    ("no parts", "InvalidParamsError", -32602),
    ("push", "PushNotificationNotSupportedError", -32003),
]


@pytest.mark.parametrize(("what", "kind", "code"), ERRORS)
def test_errors_arrive_as_what_they_are(asked: Asked, what: str, kind: str, code: int) -> None:
    got, text = kind_and_text(asked.found["errors"][what])
    if asked.is_old:
        assert got == "A2AClientJSONRPCError"
        assert f"code={code}" in text
    else:
        assert got == kind


def test_tasks_are_listed(asked: Asked) -> None:
    if asked.version == "0.3":
        assert "list" not in asked.found  # that version has no listing
    else:
        assert asked.found["list"] == {"ids": [False, True], "total": 2}


def test_a_caller_who_is_not_let_in_is_told_so(asked: Asked) -> None:
    kind, text = kind_and_text(asked.found["stranger"])
    assert "401" in text
    assert kind == ("A2AClientHTTPError" if asked.is_old else "A2AClientError")


def test_the_server_says_nothing_on_stderr(asked: Asked) -> None:
    assert [line for line in asked.app.program.errors if "Traceback" in line or "Error" in line] == []


# ------------------------------------------------------------------------------------------- without a client


@pytest.fixture(scope="module", params=["waitress", "gunicorn"])
def served(request: pytest.FixtureRequest) -> Iterator[ServedApp]:
    with serving(request.param) as app:
        yield app


def ask(url: str, method: str, path: str = "/", body: bytes = b"") -> http.client.HTTPResponse:
    parts = urlsplit(url)
    with contextlib.closing(http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=20)) as connection:
        connection.request(method, path, body or None, {"Content-Type": "application/json"} if body else {})
        response = connection.getresponse()
        response.read()
        return response


def test_methods_and_places_that_are_not_ours_are_refused(served: ServedApp) -> None:
    card = "/.well-known/agent-card.json"
    assert [ask(served.url, method, card).status for method in ("GET", "HEAD", "OPTIONS", "POST")] == [
        200,
        200,
        405,
        405,
    ]
    assert [ask(served.url, method).status for method in ("GET", "HEAD", "OPTIONS")] == [405, 405, 405]
    assert ask(served.url, "GET", "/other").status == 404


def test_a_body_that_is_too_large_is_refused(served: ServedApp) -> None:
    assert ask(served.url, "POST", body=b" " * (11 * 1024 * 1024)).status == 413


def call(method: str, params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()


def subscribed(url: str) -> socket.socket:
    """Begin a stream that goes on for ever; return its connection when the first event is there."""
    part = {"text": "hold forever"}
    body = call("SendStreamingMessage", {"message": {"messageId": "1", "role": "ROLE_USER", "parts": [part]}})
    parts = urlsplit(url)
    connection = socket.create_connection((parts.hostname, parts.port), timeout=20)
    head = f"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.sendall(head.encode() + body)
    received = b""
    while b"data: " not in received:
        piece = connection.recv(65536)
        assert piece, received
        received += piece
    return connection


def test_streams_that_break_off_give_their_threads_back(served: ServedApp) -> None:
    for _ in range(3):  # each time as many as the server has threads
        connections = [subscribed(served.url) for _ in range(15)]
        for connection in connections:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()
    assert ask(served.url, "POST", body=call("GetTask", {"id": "x"})).status == 200
