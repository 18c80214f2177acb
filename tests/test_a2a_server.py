"""Our A2A server, called as a WSGI server calls it: the card, messages and answers, streams, what is refused."""

from __future__ import annotations

import base64
import contextlib
import json
import threading
from typing import Any, Dict, Iterator, List, Optional

import pytest

from mantyx_sync import MantyxClient, MantyxConfigError, ToolResultFile, tool
from mantyx_sync.a2a import A2AApp
from mantyx_sync.a2a.reading import read_event
from mantyx_sync.a2a.server.card import write_card
from mantyx_sync.a2a.server.current import current_task
from mantyx_sync.events import ToolFile, ToolFiles
from mantyx_sync.local import Failure, LocalServer, Pause, Text, ToolUse
from tests.a2a_callers import Caller, Failed, Stream, hello, make_app, message, wait
from tests.a2a_served import Held, Serve, Served, answer_text, folded, held, record_of, serving
from tests.plain_http import Recorder
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("no_leaks")

VERSIONS = ["1.0", "0.3"]


@pytest.fixture
def serve() -> Iterator[Serve]:
    with serving() as make:
        yield make


# ---------------------------------------------------------------------------------------------------- card


def card_of(app: A2AApp, **environ: Any) -> Dict[str, Any]:
    answer = Caller(app).request("GET", "/.well-known/agent-card.json", environ=environ)
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    card: Dict[str, Any] = answer.json
    return card


def test_the_card_is_one_that_either_version_can_read(serve: Serve) -> None:
    card = card_of(serve(version="2.1", agent_id="agent_1", public_url="https://x.example/orders/").app)
    url = "https://x.example/orders/"
    assert card == {
        "name": "Helper",
        "description": "Helps.",
        "version": "2.1",
        "supportedInterfaces": [
            {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
            {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "0.3"},
        ],
        "url": url,
        "preferredTransport": "JSONRPC",
        "protocolVersion": "0.3",
        "capabilities": {"streaming": True, "pushNotifications": False},
        "defaultInputModes": card["defaultInputModes"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "helper", "name": "Helper", "description": "Helps.", "tags": ["agent"]}],
    }
    assert {"text/plain", "application/json", "image/png", "application/pdf"} <= set(card["defaultInputModes"])


def test_addresses_in_the_card_come_from_the_configuration_alone(serve: Serve) -> None:
    card = card_of(
        serve().app,
        HTTP_HOST="evil.example",
        HTTP_X_FORWARDED_HOST="evil.example",
        HTTP_X_FORWARDED_PROTO="ftp",
        SCRIPT_NAME="/elsewhere",
    )
    assert card["url"] == "https://agents.example.com/"
    assert "evil" not in json.dumps(card)


def test_the_card_is_at_both_places_below_whatever_the_app_is_mounted_at(serve: Serve) -> None:
    caller = Caller(serve().app, script_name="/agents/helper")
    new = caller.request("GET", "/.well-known/agent-card.json")
    assert caller.request("GET", "/.well-known/agent.json").body == new.body
    head = caller.request("HEAD", "/.well-known/agent-card.json")
    assert (head.status, head.body) == (200, b"")
    assert head.headers["content-length"] == str(len(new.body))


def test_requests_go_to_the_place_itself_with_or_without_a_slash(serve: Serve) -> None:
    app = serve().app
    body = json.dumps(Caller(app).envelope("SendMessage", hello())).encode()
    for script_name, path in [("", "/"), ("", ""), ("/agents", "/"), ("/agents", "")]:
        body = json.dumps(Caller(app).envelope("SendMessage", hello())).encode()
        answer = Caller(app, script_name=script_name).request("POST", path, body)
        assert answer.json["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"


def test_a_card_that_is_known_is_not_sent_again(serve: Serve) -> None:
    caller = serve().caller
    first = caller.request("GET", "/.well-known/agent-card.json")
    etag = first.headers["etag"]
    for known in (etag, f'"other", {etag}', f"W/{etag}", "*"):
        again = caller.request("GET", "/.well-known/agent-card.json", headers={"If-None-Match": known})
        assert (again.status, again.body, again.headers["etag"]) == (304, b"", etag)
    assert caller.request("GET", "/.well-known/agent-card.json", headers={"If-None-Match": '"other"'}).status == 200


@pytest.mark.parametrize(
    ("method", "path", "status", "allow"),
    [
        ("POST", "/.well-known/agent-card.json", 405, "GET, HEAD"),
        ("OPTIONS", "/", 405, "POST"),
        ("GET", "/", 405, "POST"),
        ("HEAD", "/", 405, "POST"),
        ("GET", "/other", 404, None),
        ("POST", "/rpc", 404, None),
        ("GET", "/.well-known/", 404, None),
    ],
)
def test_other_places_and_methods_are_refused(
    serve: Serve, method: str, path: str, status: int, allow: Optional[str]
) -> None:
    answer = serve().caller.request(method, path)
    assert (answer.status, answer.headers.get("allow")) == (status, allow)


def test_skills_and_further_members_of_the_card_are_the_users(serve: Serve) -> None:
    skill = {"id": "find", "name": "Find", "description": "Finds.", "tags": ["a", "b"], "examples": ["Where?"]}
    provider = {"organization": "Shop", "url": "https://shop.example"}
    card = card_of(serve(skills=[skill], card={"provider": provider, "url": "https://not.this"}).app)
    assert card["skills"] == [skill]
    assert card["provider"] == provider
    assert card["url"] == "https://agents.example.com/"


def test_security_is_written_for_either_version() -> None:
    card = write_card(
        url="https://x.example/",
        name="n",
        description="d",
        version="1",
        streaming=False,
        skills=[],
        input_modes=["text/plain"],
        output_modes=["text/plain"],
        security_schemes={
            "bearer": {"type": "http", "scheme": "bearer"},
            "key": {"type": "apiKey", "in": "header", "name": "X-Key"},
        },
        security=[{"bearer": []}, {"key": ["read"]}],
    )
    assert card["securitySchemes"]["bearer"] == {
        "type": "http",
        "scheme": "bearer",
        "httpAuthSecurityScheme": {"scheme": "bearer"},
    }
    assert card["securitySchemes"]["key"]["apiKeySecurityScheme"] == {"location": "header", "name": "X-Key"}
    assert card["security"] == [{"bearer": []}, {"key": ["read"]}]
    assert card["securityRequirements"] == [
        {"schemes": {"bearer": {"list": []}}},
        {"schemes": {"key": {"list": ["read"]}}},
    ]


def test_a_card_without_streaming_belongs_to_a_server_that_does_not_stream(serve: Serve) -> None:
    app = serve(streaming=False).app
    assert card_of(app)["capabilities"]["streaming"] is False
    for version, method in [("1.0", "SendStreamingMessage"), ("0.3", "message/stream"), ("1.0", "SubscribeToTask")]:
        with pytest.raises(Failed) as failed:
            Caller(app, version=version).stream(method, hello())
        assert failed.value.code == -32004
    assert Caller(app).send()["status"]["state"] == "TASK_STATE_COMPLETED"


# ---------------------------------------------------------------------------------------------------- sending


@pytest.mark.parametrize("version", VERSIONS)
def test_a_message_is_answered_with_its_task_when_the_run_has_ended(serve: Serve, version: str) -> None:
    task = serve([["All ", "is ", "well."]]).by(version).send("How are you?")
    assert task["status"]["state"] == ("completed" if version == "0.3" else "TASK_STATE_COMPLETED")
    assert task["status"]["timestamp"].endswith("Z")
    assert answer_text(task) == "All is well."
    (said,) = task["history"]
    assert (said["taskId"], said["contextId"]) == (task["id"], task["contextId"])
    assert said["role"] == ("user" if version == "0.3" else "ROLE_USER")


def test_the_agent_is_told_what_the_caller_says(serve: Serve) -> None:
    served = serve(name="Orders", metadata={"team": "a"}, model_id="local:recorder")
    served.caller.send("One", "Two", {"data": {"a": [1, "é"]}})
    (request,) = served.model.requests
    assert [m["content"] for m in request.messages] == ["You help.", 'One\nTwo\n{"a":[1,"é"]}']
    (session,) = served.server.sessions
    assert session.spec["name"] == "Orders"
    assert session.spec["metadata"]["team"] == "a"
    assert session.spec["modelId"] == "local:recorder"


def test_an_agent_of_the_workspace_is_run_by_its_id(serve: Serve) -> None:
    model = Recorder(["Done."])
    with LocalServer(model, agents={"agent_7": {"systemPrompt": "I am seven."}}) as server:
        serve(server=server, model=model, agent_id="agent_7").caller.send()
    assert model.requests[0].messages[0]["content"] == "I am seven."


@pytest.mark.parametrize("version", VERSIONS)
def test_a_caller_that_does_not_wait_gets_the_task_and_asks_for_it(serve: Serve, version: str) -> None:
    holding, served = held(serve)
    caller = served.by(version)
    task = caller.start()
    assert task["status"]["state"].lower().endswith(("submitted", "working"))
    wait(holding.reached, "the run did not begin")
    working = caller.get(task["id"])
    assert working["status"]["state"].lower().endswith("working")
    holding.let_go.set()
    wait(record_of(served, task).ended, "the task did not end")
    assert answer_text(caller.get(task["id"])) == "One two."


def test_a_send_that_waits_too_long_returns_the_task_as_it_is(serve: Serve) -> None:
    holding, served = held(serve, block_timeout=0.05)
    task = served.caller.send()
    assert task["status"]["state"] in ("TASK_STATE_WORKING", "TASK_STATE_SUBMITTED")
    holding.let_go.set()


@pytest.mark.parametrize(("length", "shown"), [(None, 3), (0, 0), (1, 1), (2, 2), (50, 3)])
def test_as_much_history_is_shown_as_is_asked_for(serve: Serve, length: Optional[int], shown: int) -> None:
    turns = [["First. ", ToolUse("look")], ["Then. ", ToolUse("look")], ["Last."]]
    served = serve(turns, tools=[look])
    configuration = {} if length is None else {"historyLength": length}
    task = served.caller.send(configuration=configuration)
    asked = {} if length is None else {"historyLength": length}
    for found in (task, served.caller.get(task["id"], **asked)):
        history = found.get("history", [])
        assert [m["parts"][0]["text"] for m in history] == ["Hello", "First. ", "Then. "][3 - shown :]
        assert ("history" in found) == (shown > 0)


@tool
def look() -> str:
    """Look."""
    return "seen"


def test_ids_of_the_caller_are_kept_and_missing_ones_are_made(serve: Serve) -> None:
    caller = serve().caller
    assert caller.send(contextId="ctx-1")["contextId"] == "ctx-1"
    first, second = caller.send(), caller.send()
    assert len({first["contextId"], second["contextId"], first["id"], second["id"]}) == 4


def test_a_message_that_is_sent_again_does_not_begin_another_run(serve: Serve) -> None:
    served = serve()
    params = hello()
    first = served.caller.call("SendMessage", params)["task"]
    again = served.caller.call("SendMessage", params)["task"]
    streamed = served.caller.stream("SendStreamingMessage", params).rest()
    assert [first["id"]] * 2 == [again["id"], streamed[0]["task"]["id"]]
    assert len(streamed) == 1
    assert len(served.server.runs) == 1
    for change in ({"contextId": "c"}, {"parts": [{"text": "Something else"}]}):
        other = {"message": {**params["message"], **change}}
        assert served.caller.call("SendMessage", other)["task"]["id"] != first["id"]


def test_context_variables_of_the_request_reach_the_tools(serve: Serve) -> None:
    import contextvars

    tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")

    def authorize(environ: Dict[str, Any]) -> str:
        tenant.set(environ["HTTP_X_TENANT"])
        return environ["HTTP_X_TENANT"]

    seen: List[str] = []

    @tool
    def ask() -> str:
        """Ask."""
        seen.append(tenant.get())
        return "ok"

    served = serve([[ToolUse("ask")], ["Done."]], tools=[ask], authorize=authorize)
    for name in ("ann", "bob"):
        # Each request in a context of its own, as threads of a server have.
        contextvars.copy_context().run(Caller(served.app, {"X-Tenant": name}).send)
    assert seen == ["ann", "bob"]


# ---------------------------------------------------------------------------------------------------- failures


def test_a_failed_run_is_a_failed_task_that_says_no_more_than_its_kind(serve: Serve) -> None:
    served = serve([["Half an ", Failure("secret key sk-1 at 10.0.0.7 refused", error_class="rate_limit")]])
    task = served.caller.send()
    assert task["status"]["state"] == "TASK_STATE_FAILED"
    assert task["status"]["message"]["parts"] == [{"text": "The agent could not complete the task (rate_limit)."}]
    assert answer_text(task) == "Half an "
    assert "sk-1" not in json.dumps(task)
    assert "10.0.0.7" not in json.dumps(task)


def test_what_callers_are_told_of_failures_can_be_said_otherwise(serve: Serve) -> None:
    served = serve([[Failure("boom")]], describe_failure=lambda error: f"Call 555: {type(error).__name__}")
    task = served.caller.send()
    assert task["status"]["message"]["parts"][0]["text"] == "Call 555: MantyxRunError"

    def broken(error: BaseException) -> str:
        raise ValueError("no")

    task = serve([[Failure("boom")]], describe_failure=broken).caller.send()
    assert task["status"]["message"]["parts"][0]["text"] == "The agent could not complete the task (unknown)."


def test_a_run_that_takes_too_long_fails_and_is_cancelled(serve: Serve) -> None:
    _, served = held(serve, run_timeout=0.2)
    task = served.caller.send()
    assert task["status"]["state"] == "TASK_STATE_FAILED"
    assert task["status"]["message"]["parts"][0]["text"] == "The agent did not complete the task in time."
    (run,) = served.server.runs
    wait_until(lambda: run.status == "cancelled")


def test_a_platform_that_cannot_be_reached_is_a_failed_task(serve: Serve) -> None:
    served = serve()
    served.server.stop()
    task = served.caller.send()
    assert task["status"]["state"] == "TASK_STATE_FAILED"
    assert task["status"]["message"]["parts"][0]["text"] == "The agent failed to complete the task."


# ---------------------------------------------------------------------------------------------------- refusals


def error_of(caller: Caller, body: object, **more: Any) -> Dict[str, Any]:
    answer = caller.post(body, **more)
    assert answer.status == 200
    if isinstance(body, dict) and body.get("method") in ("message/stream", "tasks/resubscribe"):
        # The official client of 0.3 reads nothing else as the answer to these.
        assert answer.headers["content-type"] == "text/event-stream"
        response = json.loads(answer.body[len("data: ") :])
    else:
        assert answer.headers["content-type"] == "application/json"
        response = answer.json
    assert response["jsonrpc"] == "2.0"
    assert "result" not in response
    return {"id": response["id"], **response["error"]}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("body", "code", "response_id"),
    [
        (b"", -32700, None),
        (b"{", -32700, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":NaN}}', -32700, None),
        (b"\xff\xfe", -32700, None),
        (b"[" * 100_000, -32700, None),
        ([], -32600, None),
        ("text", -32600, None),
        ({"id": 1, "method": "GetTask"}, -32600, 1),
        ({"jsonrpc": "1.0", "id": "a", "method": "GetTask"}, -32600, "a"),
        ({"jsonrpc": "2.0", "id": True, "method": "GetTask"}, -32600, None),
        ({"jsonrpc": "2.0", "id": 1.5, "method": "GetTask"}, -32600, None),
        ({"jsonrpc": "2.0", "id": 1}, -32600, 1),
        ({"jsonrpc": "2.0", "id": 1, "method": 7}, -32600, 1),
        ({"jsonrpc": "2.0", "id": 1, "method": "Nothing"}, -32601, 1),
        ({"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": []}, -32602, 1),
        ({"jsonrpc": "2.0", "method": "Nothing"}, -32601, None),
    ],
)
def test_what_is_no_request_is_refused_in_the_protocols_form(
    serve: Serve, body: object, code: int, response_id: object, version: str
) -> None:
    error = error_of(serve().caller, body, headers={"A2A-Version": version})
    assert (error["code"], error["id"]) == (code, response_id)
    assert error["message"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({}, "message"),
        ({"message": "Hello"}, "message"),
        ({"message": {"messageId": "1", "role": "ROLE_USER"}}, "message.parts"),
        ({"message": {"messageId": "1", "role": "ROLE_USER", "parts": []}}, "message.parts"),
        ({"message": {"messageId": "1", "parts": [{"text": "a"}]}}, "message.role"),
        ({"message": {"messageId": "1", "role": "ROLE_AGENT", "parts": [{"text": "a"}]}}, "message.role"),
        ({"message": {"role": "user", "parts": [{"kind": "text", "text": "a"}]}}, "message.messageId"),
        (
            {"message": {"messageId": "1", "role": "user", "parts": [{"kind": "text", "text": 7}]}},
            "message.parts[0].text",
        ),
        ({"message": {"messageId": "1", "role": "user", "parts": [{"kind": "hologram"}]}}, "message.parts[0]"),
        ({"message": {"messageId": "1", "role": "user", "parts": [{"text": " "}]}}, "message.parts"),
        ({"message": {"messageId": "1", "role": "user", "parts": [{"raw": "a", "url": "b"}]}}, "message.parts[0]"),
        ({"message": message("a", contextId="c" * 1025)}, "message.contextId"),
        ({"message": message("a"), "configuration": {"historyLength": -1}}, "configuration.historyLength"),
        ({"message": message("a" * 200_001)}, "message.parts"),
    ],
)
def test_parameters_that_do_not_fit_are_named(serve: Serve, params: Dict[str, Any], field: str, version: str) -> None:
    method = "message/send" if version == "0.3" else "SendMessage"
    error = error_of(serve().caller, {"jsonrpc": "2.0", "id": "r", "method": method, "params": params})
    assert error["code"] == -32602
    assert field in error["message"]
    if version == "0.3":
        assert "data" not in error
        return
    info, bad_request = error["data"]
    assert info["reason"] == "INVALID_PARAMS"
    assert bad_request["@type"] == "type.googleapis.com/google.rpc.BadRequest"
    assert [violation["field"] for violation in bad_request["fieldViolations"]] == [field]


@pytest.mark.parametrize(
    ("method", "code"),
    [
        ("CreateTaskPushNotificationConfig", -32003),
        ("GetTaskPushNotificationConfig", -32003),
        ("ListTaskPushNotificationConfigs", -32003),
        ("DeleteTaskPushNotificationConfig", -32003),
        ("tasks/pushNotificationConfig/set", -32003),
        ("tasks/pushNotificationConfig/get", -32003),
        ("tasks/pushNotificationConfig/list", -32003),
        ("tasks/pushNotificationConfig/delete", -32003),
        ("GetExtendedAgentCard", -32004),
        ("agent/getAuthenticatedExtendedCard", -32004),
        ("GetTask", -32001),
        ("tasks/get", -32001),
        ("CancelTask", -32001),
        ("tasks/cancel", -32001),
        ("SubscribeToTask", -32001),
        ("tasks/resubscribe", -32001),
    ],
)
def test_what_is_not_offered_or_not_there_has_its_code(serve: Serve, method: str, code: int) -> None:
    error = error_of(serve().caller, {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"id": "nothing"}})
    assert error["code"] == code
    if "/" in method:
        assert error.get("data") is None
    else:
        assert error["data"][0]["@type"] == "type.googleapis.com/google.rpc.ErrorInfo"


def test_push_notifications_asked_for_along_with_a_message_are_refused(serve: Serve) -> None:
    served = serve()
    for key in ("taskPushNotificationConfig", "pushNotificationConfig"):
        with pytest.raises(Failed) as failed:
            served.caller.send(configuration={key: {"url": "http://169.254.169.254/"}})
        assert failed.value.code == -32003
    assert served.server.runs == []


@pytest.mark.parametrize(
    ("method", "version", "code"),
    [
        ("GetTask", None, -32001),
        ("GetTask", "", -32001),
        ("GetTask", "0.3", -32001),
        ("GetTask", "1.0", -32001),
        ("GetTask", "1.7", -32001),
        ("GetTask", "2.0", -32009),
        ("GetTask", "new", -32009),
        ("tasks/get", None, -32001),
        ("tasks/get", "1.0", -32001),
        ("tasks/get", "2.0", -32001),
    ],
)
def test_the_method_tells_the_version_and_the_header_only_one_that_nobody_speaks(
    serve: Serve, method: str, version: Optional[str], code: int
) -> None:
    headers = {} if version is None else {"A2A-Version": version}
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"id": "nothing"}}
    error = error_of(serve().caller, body, headers=headers)
    assert error["code"] == code


def test_the_version_may_be_in_the_query(serve: Serve) -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "x"}}).encode()
    assert serve().caller.request("POST", "/?A2A-Version=7.0", body).json["error"]["code"] == -32009


def test_a_request_is_read_exactly_and_no_further_than_allowed(serve: Serve) -> None:
    served = serve(max_body_bytes=2000)
    body = json.dumps(served.caller.envelope("GetTask", {"id": "x"})).encode()
    longer = served.caller.request("POST", "/", body + b"GET / HTTP/1.1", headers={"Content-Length": str(len(body))})
    assert longer.json["error"]["code"] == -32001
    cut = served.caller.request("POST", "/", body, headers={"Content-Length": str(len(body) + 5)})
    assert cut.json["error"]["code"] == -32001
    large = served.caller.post({"text": "x" * 2000})
    assert (large.status, large.json["error"]["code"]) == (413, -32600)
    chunked = {"wsgi.input_terminated": True, "CONTENT_LENGTH": ""}
    assert served.caller.request("POST", "/", body, environ=chunked).json["error"]["code"] == -32001
    assert served.caller.request("POST", "/", body * 50, environ=chunked).status == 413
    unknown = served.caller.request("POST", "/", body, environ={"CONTENT_LENGTH": ""})
    assert unknown.json["error"]["code"] == -32700


def test_a_body_that_a_web_page_could_send_from_anywhere_is_not_read(serve: Serve) -> None:
    served = serve()
    for media_type in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        answer = served.caller.post({"a": 1}, headers={"Content-Type": media_type})
        assert answer.status == 415
    body = served.caller.envelope("GetTask", {"id": "x"})
    for media_type in ("application/json; charset=utf-8", "application/a2a+json"):
        assert served.caller.post(body, headers={"Content-Type": media_type}).status == 200


def test_our_own_faults_are_logged_and_say_nothing(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from mantyx_sync.a2a.server.service import AgentService

    def broken(*args: Any) -> None:
        raise RuntimeError("the inside")

    monkeypatch.setattr(AgentService, "get", broken)
    error = error_of(serve().caller, {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": "x"}})
    assert (error["code"], error["message"]) == (-32603, "The agent failed to answer.")
    assert "the inside" in caplog.text


# ---------------------------------------------------------------------------------------------------- content


PIXEL = base64.b64encode(b"\x89PNG pixel").decode()


@pytest.mark.parametrize(
    ("version", "part"),
    [
        ("1.0", {"raw": PIXEL, "filename": "a.png", "mediaType": "image/png"}),
        ("1.0", {"raw": PIXEL.rstrip("="), "filename": "a.png"}),
        ("0.3", {"kind": "file", "file": {"bytes": PIXEL, "name": "a.png", "mimeType": "image/png"}}),
        ("0.3", {"kind": "file", "file": {"bytes": PIXEL, "name": "a.png"}}),
    ],
)
def test_files_of_a_message_go_along_as_attachments(serve: Serve, version: str, part: Dict[str, Any]) -> None:
    served = serve()
    served.by(version).send("What is it?", part)
    (attachment,) = served.model.requests[0].messages[-1]["attachments"]
    assert {key: attachment[key] for key in ("type", "mimeType", "filename", "data")} == {
        "type": "input_file",
        "mimeType": "image/png",
        "filename": "a.png",
        "data": PIXEL,
    }


def test_files_may_have_no_name_and_be_the_whole_message(serve: Serve) -> None:
    served = serve()
    served.caller.send({"raw": PIXEL, "mediaType": "image/png"}, {"url": "https://x.example/a", "filename": "b.pdf"})
    one, two = served.model.requests[0].messages[-1]["attachments"]
    assert one["filename"] == "file-1.png"
    assert two["url"] == "https://x.example/a"


@pytest.mark.parametrize(
    ("part", "code"),
    [
        ({"raw": PIXEL, "filename": "a.exe", "mediaType": "application/x-msdownload"}, -32005),
        ({"raw": PIXEL}, -32602),
        ({"raw": "%%%", "mediaType": "image/png"}, -32602),
        ({"url": "http://x.example/a.png"}, -32602),
        ({"url": "file:///etc/passwd", "mediaType": "text/plain"}, -32602),
        ({"url": "https://x.example/a", "filename": "a.zip"}, -32005),
        ({"raw": base64.b64encode(bytes(5 * 1024 * 1024 + 1)).decode(), "mediaType": "image/png"}, -32602),
    ],
    ids=["type", "no type", "no base64", "http", "file", "type of a link", "size"],
)
def test_files_that_the_platform_does_not_take_are_refused(serve: Serve, part: Dict[str, Any], code: int) -> None:
    served = serve()
    with pytest.raises(Failed) as failed:
        served.caller.send("Look", part)
    assert failed.value.code == code
    assert "message.parts[1]" in failed.value.message
    assert served.server.runs == []


def test_too_many_files_are_refused(serve: Serve) -> None:
    with pytest.raises(Failed, match="20") as failed:
        serve().caller.send(*[{"raw": PIXEL, "mediaType": "image/png"}] * 21)
    assert failed.value.code == -32602


def test_an_agent_may_take_less_than_the_platform_does(serve: Serve) -> None:
    served = serve(input_modes=["text/plain", "image/*"])
    assert card_of(served.app)["defaultInputModes"] == ["text/plain", "image/*"]
    served.caller.send("a", {"raw": PIXEL, "mediaType": "image/png"}, {"raw": PIXEL, "mediaType": "text/markdown"})
    for part in ({"data": {"a": 1}}, {"raw": PIXEL, "mediaType": "application/pdf"}):
        with pytest.raises(Failed) as failed:
            served.caller.send("a", part)
        assert failed.value.code == -32005


def test_half_a_character_does_no_harm(serve: Serve) -> None:
    served = serve()
    assert served.caller.send("a\ud800b")["status"]["state"] == "TASK_STATE_COMPLETED"
    assert served.model.requests[0].messages[-1]["content"] == "a\ufffdb"


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_by_a_schema_is_data(serve: Serve, version: str) -> None:
    served = serve([['{"n":', " 7}"]], output_schema={"schema": SCHEMA})
    assert card_of(served.app)["defaultOutputModes"] == ["application/json", "text/plain"]
    (part,) = served.by(version).send()["artifacts"][0]["parts"]
    assert part["data"] == {"n": 7}
    assert "text" not in part


def test_a_caller_that_takes_text_alone_gets_the_data_as_text(serve: Serve) -> None:
    served = serve([['{"n": 7}']], output_type=Dict[str, int])
    task = served.caller.send(configuration={"acceptedOutputModes": ["text/plain"]})
    assert answer_text(task) == '{"n": 7}'
    task = served.caller.send(configuration={"acceptedOutputModes": ["text/plain", "application/json"]})
    assert task["artifacts"][0]["parts"][0]["data"] == {"n": 7}


@pytest.mark.parametrize("text", ['{"n": NaN}', "[1]", "seven", '{"n": 1'])
def test_an_answer_that_is_no_json_object_goes_out_as_text(serve: Serve, text: str) -> None:
    served = serve([[text]], output_schema={"schema": SCHEMA})
    assert answer_text(served.caller.send()) == text


def test_an_answer_by_a_schema_is_not_streamed_in_pieces(serve: Serve) -> None:
    events = serve([['{"n":', " 7}"]], output_schema={"schema": SCHEMA}).caller
    updates = [
        e["artifactUpdate"] for e in events.stream("SendStreamingMessage", hello()).rest() if "artifactUpdate" in e
    ]
    assert [update["artifact"]["parts"] for update in updates] == [
        [{"data": {"n": 7}, "mediaType": "application/json"}]
    ]


def test_an_answer_that_is_not_of_the_type_is_a_failed_task(serve: Serve) -> None:
    task = serve([["seven"]], output_type=Dict[str, int]).caller.send()
    assert task["status"]["state"] == "TASK_STATE_FAILED"
    assert "form" in task["status"]["message"]["parts"][0]["text"]


def test_files_that_the_platforms_tools_make_are_artifacts(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    files = (
        ToolFile("a.png", "image/png", 3, "key/a", "https://files.example/a.png"),
        ToolFile("b.png", "image/png", 3, "key/b", "/api/files/b.png"),
        ToolFile("c.txt", "text/plain", 3, "key/c", None),
    )
    played = [ToolFiles(1, "tool_files", name="draw", files=files)]
    assert relayed(played) == [
        {"url": "https://files.example/a.png", "filename": "a.png", "mediaType": "image/png"},
    ]
    found = {"a.png": "https://mine.example/a", "b.png": b"abc", "c.txt": None}
    assert relayed(played, fetch_file=lambda file: found[str(file.filename)]) == [
        {"url": "https://mine.example/a", "filename": "a.png", "mediaType": "image/png"},
        {"raw": "YWJj", "filename": "b.png", "mediaType": "image/png"},
    ]


def relayed(events: List[Any], fetch_file: Any = None) -> List[Dict[str, Any]]:
    from mantyx_sync.a2a.dialects import V1
    from mantyx_sync.a2a.reading import read_message
    from mantyx_sync.a2a.server.relay import Relay
    from mantyx_sync.a2a.server.tasks import TaskRecord

    said = read_message({**message("Hello"), "taskId": "t", "contextId": "c"})
    record = TaskRecord(said, "", on_change=lambda record: None)
    relay = Relay(record, is_structured=False, accepts_data=True, fetch_file=fetch_file)
    for event in events:
        relay.feed(event)
    return [part for artifact in V1.write_task(record.task()).get("artifacts", []) for part in artifact["parts"]]


def test_a_tool_can_tell_who_asks_and_hand_files_to_them(serve: Serve) -> None:
    @tool
    def draw() -> str:
        """Draw."""
        task = current_task()
        assert task is not None
        task.share(ToolResultFile.from_bytes(b"abc", "a.png"), ToolResultFile.from_bytes(b"abc", "b.txt"))
        with pytest.raises(TypeError, match="share takes ToolResultFile objects, not str"):
            task.share("a.png")  # type: ignore[arg-type]
        return f"drawn for {task.caller}, {task.context_id}, {task.id}"

    served = serve([[ToolUse("draw")], ["Here."]], tools=[draw], authorize=lambda environ: "ann")
    task = served.caller.send(contextId="ctx")
    assert [artifact["artifactId"] for artifact in task["artifacts"]] == ["answer", "files-1"]
    assert task["artifacts"][1]["parts"] == [
        {"raw": "YWJj", "filename": "a.png", "mediaType": "image/png"},
        {"raw": "YWJj", "filename": "b.txt", "mediaType": "text/plain"},
    ]
    assert served.model.requests[1].messages[-1]["content"] == f"drawn for ann, ctx, {task['id']}"
    assert current_task() is None


# ---------------------------------------------------------------------------------------------------- streams


def stream_of(served: Served, version: str = "1.0", **more: Any) -> Stream:
    method = "message/stream" if version == "0.3" else "SendStreamingMessage"
    return served.by(version).stream(method, {"message": message("Hello", version=version), **more})


def kind_of(wire: Dict[str, Any]) -> str:
    kinds = {"statusUpdate": "status-update", "artifactUpdate": "artifact-update", "task": "task"}
    return wire.get("kind") or kinds[next(iter(wire))]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_stream_is_the_task_then_its_updates_then_the_end(serve: Serve, version: str) -> None:
    served = serve([["One ", "two."]])
    stream = stream_of(served, version)
    assert stream.headers["cache-control"] == "no-cache, no-transform"
    assert stream.headers["x-accel-buffering"] == "no"
    events = stream.rest()
    assert kind_of(events[0]) == "task"
    assert [kind_of(e) for e in events[1:]].count("status-update") == 2
    assert kind_of(events[-1]) == "status-update"
    fold = folded(events)
    assert fold.is_over
    assert fold.task is not None
    assert (fold.task.state, [a.text for a in fold.task.artifacts]) == ("completed", ["One two."])
    asked = served.by(version).get(fold.task.id)
    assert asked["artifacts"][0]["parts"][0]["text"] == "One two."


def test_in_03_the_last_status_alone_is_final(serve: Serve) -> None:
    events = stream_of(serve([["One ", "two."]]), "0.3").rest()
    finals = [event["final"] for event in events if event["kind"] == "status-update"]
    assert finals == [False] * (len(finals) - 1) + [True]
    assert all("lastChunk" in event for event in events if event["kind"] == "artifact-update")


def test_what_the_agent_says_goes_out_as_it_is_written(serve: Serve) -> None:
    holding, served = held(serve)
    with contextlib.closing(stream_of(served)) as stream:
        first = next(stream)
        assert first["task"]["status"]["state"] == "TASK_STATE_SUBMITTED"
        assert next(stream)["statusUpdate"]["status"]["state"] == "TASK_STATE_WORKING"
        piece = next(stream)["artifactUpdate"]
        assert piece["artifact"] == {"artifactId": "answer", "name": "answer", "parts": [{"text": "One "}]}
        assert not piece.get("append")
        holding.let_go.set()
        piece = next(stream)["artifactUpdate"]
        assert (piece["artifact"]["parts"], piece["append"]) == ([{"text": "two."}], True)
        whole = next(stream)["artifactUpdate"]
        assert whole["artifact"]["parts"] == [{"text": "One two."}]
        assert whole["lastChunk"] is True
        assert "append" not in whole
        assert next(stream)["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
        assert next(stream, None) is None


def test_text_before_a_tool_call_is_a_status_and_the_answer_begins_anew(serve: Serve) -> None:
    served = serve([["Let me look. ", ToolUse("look")], ["It is ", "there."]], tools=[look])
    events = stream_of(served).rest()
    said = [
        e["statusUpdate"]["status"]["message"]["parts"]
        for e in events
        if "message" in e.get("statusUpdate", {}).get("status", {})
    ]
    assert said == [[{"text": "Let me look. "}]]
    pieces = [e["artifactUpdate"] for e in events if "artifactUpdate" in e]
    begins_anew = [p["artifact"]["parts"][0]["text"] for p in pieces if not p.get("append") and not p.get("lastChunk")]
    assert [text.split()[0] for text in begins_anew] == ["Let", "It"]
    fold = folded(events)
    assert fold.task is not None
    assert [a.text for a in fold.task.artifacts] == ["It is there."]


TEXTS = ["a\nb", "a\r\nb", "a\rb", "a\u2028b\u2029c", "a\x85b", "\n\n", "data: x\n\nid: 7\n\n", "é漢🎉\x00"]


@pytest.mark.parametrize("version", VERSIONS)
def test_line_ends_of_every_kind_come_through_a_stream_unchanged(serve: Serve, version: str) -> None:
    served = serve(lambda request: [[Text(text) for text in TEXTS]])
    stream = stream_of(served, version)
    fold = folded(stream.rest())
    assert fold.task is not None
    assert fold.task.artifacts[0].text == "".join(TEXTS)
    assert all(piece.isascii() for piece in stream.pieces)


def test_a_failed_run_ends_its_stream_with_the_reason(serve: Serve) -> None:
    fold = folded(stream_of(serve([["Half ", Failure("no", error_class="overloaded")]])).rest())
    assert fold.task is not None
    assert fold.task.state == "failed"
    assert fold.task.status.message is not None
    assert "overloaded" in fold.task.status.message.text
    assert fold.task.artifacts[0].text == "Half "


@pytest.mark.parametrize("version", VERSIONS)
def test_errors_known_before_a_stream_begins_reach_the_caller(serve: Serve, version: str) -> None:
    method = "message/stream" if version == "0.3" else "SendStreamingMessage"
    with pytest.raises(Failed) as failed:
        serve().by(version).stream(method, {"message": message("Hello", version=version, taskId="nothing")})
    assert failed.value.code == -32001


@pytest.mark.parametrize("version", VERSIONS)
def test_a_fault_of_ours_in_mid_stream_ends_it_with_an_error(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, version: str
) -> None:
    from mantyx_sync.a2a.server.tasks import Subscription

    def broken(self: Subscription, deadline: float) -> None:
        raise RuntimeError("the inside")

    monkeypatch.setattr(Subscription, "next", broken)
    body = json.dumps(Caller(serve().app).envelope("SendStreamingMessage", hello())).encode()
    if version == "0.3":
        body = body.replace(b"SendStreamingMessage", b"message/stream")
    first, last, *rest = Caller(serve().app).request("POST", "/", body).body.split(b"\n\n")
    assert first.startswith(b"data: ")
    assert rest == [b""]
    head, _, data = last.rpartition(b"data: ")
    assert head == (b"event: error\n" if version == "1.0" else b"")
    assert json.loads(data)["error"]["code"] == -32603
    assert b"the inside" not in last
    assert "the inside" in caplog.text


def test_a_quiet_stream_is_kept_alive_by_comments(serve: Serve) -> None:
    holding, served = held(serve, heartbeat=0.02)
    with contextlib.closing(stream_of(served)) as stream:
        next(stream)
        wait(holding.reached, "the run did not begin")
        stream.beat()
        stream.beat()
        holding.let_go.set()
        assert folded([{"task": served.caller.get(task_id(served))}, *stream]).is_over
    assert stream.comments >= 2


def task_id(served: Served) -> str:
    (task,) = served.caller.call("ListTasks")["tasks"]
    found: str = task["id"]
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_a_caller_that_leaves_a_stream_leaves_the_task_going(serve: Serve, version: str) -> None:
    holding, served = held(serve)
    method = "tasks/resubscribe" if version == "0.3" else "SubscribeToTask"
    stream = stream_of(served, version)
    first = read_event(next(stream))
    stream.close()
    wait(holding.reached, "the run did not begin")
    assert first is not None
    assert record_of(served, {"id": first.id})._followers.items() == []  # type: ignore[union-attr]

    wait_until(lambda: served.by(version).get(first.id).get("artifacts"))  # type: ignore[union-attr]
    again = served.by(version).stream(method, {"id": first.id})  # type: ignore[union-attr]
    events = [next(again)]
    now = read_event(events[0])
    assert now is not None
    assert now.artifacts[0].text == "One "  # type: ignore[union-attr]  # what was missed is in the task
    holding.let_go.set()
    fold = folded([*events, *again.rest()])
    assert fold.task is not None
    assert (fold.task.state, fold.task.artifacts[0].text) == ("completed", "One two.")

    with pytest.raises(Failed) as failed:
        served.by(version).stream(method, {"id": first.id})  # type: ignore[union-attr]
    assert failed.value.code == -32004
    assert answer_text(served.by(version).get(first.id)) == "One two."  # type: ignore[union-attr]


def test_many_can_follow_one_task(serve: Serve) -> None:
    holding, served = held(serve)
    task = served.caller.start()
    streams = [
        served.by(v).stream(m, {"id": task["id"]})
        for v, m in 5 * [("1.0", "SubscribeToTask"), ("0.3", "tasks/resubscribe")]
    ]
    holding.let_go.set()
    for stream in streams:
        fold = folded(stream.rest())
        assert fold.task is not None
        assert (fold.task.state, fold.task.artifacts[-1].text) == ("completed", "One two.")


def test_streams_that_nobody_reads_or_closes_are_in_nobodys_way(serve: Serve) -> None:
    holding, served = held(serve)
    task = served.caller.start()
    wait(holding.reached, "the run did not begin")
    record = record_of(served, task)
    body = json.dumps(served.caller.envelope("SubscribeToTask", {"id": task["id"]})).encode()
    environ = {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": "/",
        "CONTENT_TYPE": "application/json",
        "CONTENT_LENGTH": str(len(body)),
    }
    import io

    for _ in range(200):  # without the validator, which wants to see them closed
        served.app({**environ, "wsgi.input": io.BytesIO(body)}, lambda status, headers: None)
    assert record._followers.items() == []
    holding.let_go.set()
    wait(record.ended, "the task did not end")


def test_pieces_that_pile_up_are_joined(serve: Serve) -> None:
    holding, served = Held(), None
    holding.turns = [["a", Pause(holding.let_go, holding.reached), *"bcdefgh"]]
    served = serve(holding.turns)
    stream = stream_of(served)
    events = [next(stream)]
    holding.let_go.set()
    wait(record_of(served, {"id": events[0]["task"]["id"]}).ended, "the task did not end")
    events += stream.rest()
    pieces = [e["artifactUpdate"] for e in events if "artifactUpdate" in e]
    assert len(pieces) <= 3
    assert "".join(p["artifact"]["parts"][0]["text"] for p in pieces if not p.get("lastChunk")) == "abcdefgh"
    fold = folded(events)
    assert fold.task is not None
    assert fold.task.artifacts[0].text == "abcdefgh"


# ---------------------------------------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"name": None}, "name: got None, must be a non-empty string"),
        ({"name": ""}, "name: got '', must be a non-empty string"),
        ({"description": ""}, "description: got '', must"),
        ({"public_url": "agents.example.com"}, "public_url: got 'agents.example.com', must be an absolute URL"),
        ({"public_url": "https://u:p@x.example"}, "public_url: carries credentials"),
        ({"public_url": "https://x.example/?a=1"}, "public_url: "),
        ({"system_prompt": None}, "agent_id: not given"),
        ({"prompt": "Hello"}, "prompt: given, but it is the callers who say something here"),
        ({"attachments": []}, "attachments: given, but"),
        ({"contexts": "memory"}, "contexts: got 'memory', must be 'sessions' or 'stateless'"),
        ({"authorize": "token"}, "authorize: got 'token', must be a function"),
        ({"run_timeout": 0}, "run_timeout: got 0, must be a number of seconds above 0"),
        ({"heartbeat": -1}, "heartbeat: got -1, must"),
        ({"max_running": 0}, "max_running: got 0, must"),
        ({"max_tasks": 0}, "max_tasks: got 0, must"),
        ({"max_body_bytes": 10}, "max_body_bytes: got 10, must"),
        ({"skills": []}, "skills: got an empty list, must"),
        ({"skills": [{"id": "a"}]}, r"skills\[0\].name: got None, must"),
        (
            {"skills": [{"id": "a", "name": "A", "description": "d", "tags": "x"}]},
            r"skills\[0\].tags: got a string, must",
        ),
        ({"skills": 2 * [{"id": "a", "name": "A", "description": "d"}]}, "two skills with the id 'a'"),
        ({"input_modes": []}, "input_modes: got an empty list, must"),
        ({"card": ["x"]}, "card: got list, must be a mapping"),
        ({"output_type": int, "output_schema": {"schema": SCHEMA}}, "output_schema: given together with output_type"),
        ({"metadata": {f"k{i}": "v" for i in range(16)}}, "metadata: got 17 entries"),
        ({"tools": [look, look]}, r"tools\[1\]"),
    ],
)
def test_settings_that_cannot_be_are_refused_with_a_sentence(settings: Dict[str, Any], says: str) -> None:
    client = MantyxClient(api_key="k", workspace_slug="w")
    with pytest.raises(MantyxConfigError, match=says):
        make_app(client, **settings)


def test_something_else_than_a_client_is_refused_without_being_shown() -> None:
    with pytest.raises(MantyxConfigError, match="client: got a string, must be a MantyxClient"):
        make_app("mantyx_key")  # type: ignore[arg-type]


def test_a_taken_port_is_named(serve: Serve) -> None:
    first, second = serve(public_url=None).app, serve(public_url=None).app
    with first.serve() as server:
        assert repr(server) == f"<DevServer of A2A agent 'Helper' at {server.url}>"
        port = int(server.url.rpartition(":")[2])
        with pytest.raises(OSError, match=rf"127\.0\.0\.1 port {port} \(port 0 takes a free one\)"):
            second.serve(port=port)
    assert repr(server).endswith(", closed>")
    assert repr(first) == "<A2AApp 'Helper' at no public_url, closed>"
    with pytest.raises(MantyxConfigError, match="public_url: not given"):
        first.url  # noqa: B018 - nobody is there any more


def test_a_place_that_was_given_is_the_apps_when_a_development_server_is_closed(serve: Serve) -> None:
    app = serve(public_url="https://agents.example/helper").app
    with app.serve():
        pass
    assert app.url == "https://agents.example/helper/"


def test_a_name_that_is_no_field_is_a_type_error() -> None:
    client = MantyxClient(api_key="k", workspace_slug="w")
    with pytest.raises(TypeError, match="did you mean 'system_prompt'"):
        make_app(client, sytem_prompt="x")


def test_without_a_public_url_there_is_no_card_to_give(serve: Serve) -> None:
    app = serve(public_url=None).app
    with pytest.raises(MantyxConfigError, match="public_url: not given"):
        Caller(app).request("GET", "/.well-known/agent-card.json")


def test_an_app_cannot_be_pickled_and_shows_no_credential(serve: Serve) -> None:
    import copy
    import pickle

    app = serve().app
    for copying in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match="A2AApp cannot be pickled or copied"):
            copying(app)
    assert repr(app) == "<A2AApp 'Helper' at https://agents.example.com/>"


def test_making_an_app_starts_no_thread_and_sends_nothing(serve: Serve) -> None:
    before = threading.active_count()
    served = serve()
    card_of(served.app)
    assert threading.active_count() == before + 1  # the embedded server's
    assert list(served.server.requests) == []
