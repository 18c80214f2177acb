"""JSON-RPC messages, arguments in headers and what a server sends unasked: tables without a connection."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from mantyx_sync.mcp import Era, McpLogMessage, McpProtocolError, McpRequestError
from mantyx_sync.mcp.incoming import MAX_WAITING, Incoming
from mantyx_sync.mcp.messages import (
    Kind,
    answer_id,
    decode,
    encode,
    kind_of_message,
    members,
    notification,
    progress_id,
    request,
    response_result,
)
from mantyx_sync.mcp.params import BadHeaderParam, HeaderParam, header_params, header_text, param_headers

from .mcp_fake import LABEL

# Messages ---------------------------------------------------------------------------------


def test_empty_params_are_left_out() -> None:
    assert request(1, "ping", {}) == {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    assert request(1, "ping") == {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    assert notification("a", None) == {"jsonrpc": "2.0", "method": "a"}


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ({"jsonrpc": "2.0", "id": 1, "method": "ping"}, Kind.REQUEST),
        ({"jsonrpc": "2.0", "id": "a", "method": "ping", "new": 1}, Kind.REQUEST),
        ({"jsonrpc": "2.0", "id": 0, "method": "ping"}, Kind.REQUEST),
        ({"method": "notifications/x"}, Kind.NOTIFICATION),
        ({"id": None, "method": "notifications/x"}, Kind.NOTIFICATION),
        ({"id": 1, "result": {}}, Kind.RESPONSE),
        ({"id": 1, "result": None}, Kind.RESPONSE),
        ({"id": None, "error": {"code": 1}}, Kind.RESPONSE),
        ({"error": {}}, Kind.RESPONSE),
        ({"id": 1, "error": None}, Kind.RESPONSE),
        ({"id": 1, "error": "no"}, Kind.RESPONSE),
        ({"jsonrpc": "2.0", "id": 1}, Kind.RESPONSE),
        ({"jsonrpc": "2.0", "id": None}, None),
        ({"id": 1}, None),
        ({"method": 7, "result": {}}, None),
        ({}, None),
        ([], None),
        ("ready", None),
        (None, None),
    ],
)
def test_messages_are_told_apart(message: Any, kind: Any) -> None:
    assert kind_of_message(message) is kind


def test_an_array_holds_messages_and_rubbish_in_it_is_left_out() -> None:
    one, two = {"id": 1, "result": {}}, {"method": "notifications/x"}
    assert list(members([one, 7, two, {}])) == [one, two]
    assert list(members(one)) == [one]
    assert list(members("ready")) == []


@pytest.mark.parametrize(
    ("given", "ours"),
    [
        (7, 7),
        ("7", 7),
        (7.0, 7),
        ("007", 7),
        (7.5, None),
        (True, None),
        (None, None),
        ("server-error", None),
        ("-7", None),
        ("", None),
        ("²", None),
        ("9" * 5000, None),
        ([7], None),
    ],
)
def test_an_id_is_recognised_as_text_too(given: Any, ours: Any) -> None:
    assert answer_id({"id": given, "result": {}}) == ours
    assert progress_id({"method": "notifications/progress", "params": {"progressToken": given}}) == ours


@pytest.mark.parametrize(
    "message",
    [
        {"method": "notifications/message", "params": {"progressToken": 7}},
        {"method": "notifications/progress"},
        {"method": "notifications/progress", "params": [7]},
    ],
)
def test_only_a_progress_notification_names_a_request(message: Any) -> None:
    assert progress_id(message) is None


def test_a_message_is_written_on_one_line_of_utf_8() -> None:
    line = encode({"text": "Zürich\n\u2028 \ud800"})
    assert line == '{"text":"Zürich\\n\u2028 \ufffd"}'.encode()
    assert b"\n" not in line
    assert encode({"pair": "\ud83d\ude00"}).decode() == '{"pair":"😀"}'


def test_a_message_that_is_no_json_is_not_written() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode({"x": float("nan")})


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b'\xef\xbb\xbf{"a":1}', {"a": 1}),
        (b'{"a":NaN,"b":-Infinity}', {"a": None, "b": None}),
        ('{"a":"\u2028"}'.encode(), {"a": "\u2028"}),
        ("[1]", [1]),
    ],
)
def test_json_is_read_leniently(data: Any, value: Any) -> None:
    assert decode(data) == value


@pytest.mark.parametrize("data", [b"ready", b"", b"\xff\xfe", b"[" * 200_000, b'{"a":1} {"b":2}'])
def test_what_is_no_json_raises_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError):
        decode(data)


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        ({"code": -32602, "message": "Unknown tool: nope"}, -32602, "with error -32602: Unknown tool: nope"),
        ({"code": 0, "message": "boom"}, 0, "with error 0: boom"),
        ({"code": "x", "message": 7}, 0, "with error 0, without a message"),
        ({"code": -32042, "message": " "}, -32042, "with error -32042, without a message"),
        ("no", 0, "with error 0: no"),
    ],
)
def test_an_error_response_is_raised_with_code_and_words(error: Any, code: int, sentence: str) -> None:
    with pytest.raises(McpRequestError) as caught:
        response_result({"id": 1, "error": error}, "tools/call", LABEL)
    assert str(caught.value) == f"{LABEL} refused tools/call {sentence}"
    assert (caught.value.rpc_code, caught.value.method) == (code, "tools/call")


def test_an_error_keeps_its_data_and_its_whole_message() -> None:
    with pytest.raises(McpRequestError) as caught:
        response_result({"id": 1, "error": {"code": 1, "message": "x" * 2000, "data": {"a": 1}}}, "m", LABEL)
    assert (caught.value.data, len(caught.value.server_message)) == ({"a": 1}, 2000)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("result", [None, 3, "text", [1]])
def test_a_result_is_an_object(result: Any) -> None:
    with pytest.raises(McpProtocolError, match=r"the result of ping is .*, must be an object"):
        response_result({"id": 1, "result": result}, "ping", LABEL)


# Arguments in headers (mcp-client §6.3) ---------------------------------------------------


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


REGION = {"type": "string", "x-mcp-header": "Region"}


def test_arguments_for_headers_are_found_through_properties_alone() -> None:
    found = header_params(
        schema(
            region=REGION,
            deep={"type": "object", "properties": {"count": {"type": "integer", "x-mcp-header": "Count"}}},
            dry={"type": "boolean", "x-mcp-header": "X-Dry_Run!"},
            plain={"type": "string", "default": {"x-mcp-header": "is a value here"}},
        )
        | {"properties_of": {"x-mcp-header": 1}}
    )
    assert set(found) == {
        HeaderParam("Region", ("region",)),
        HeaderParam("Count", ("deep", "count")),
        HeaderParam("X-Dry_Run!", ("dry",)),
    }


def test_a_property_that_is_called_like_the_annotation_is_none() -> None:
    assert header_params(schema(**{"x-mcp-header": {"type": "string"}})) == ()


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        (schema(a={"type": "string", "x-mcp-header": ""}), "'a' is not the name of a header"),
        (schema(a={"type": "string", "x-mcp-header": "two words"}), "not the name of a header"),
        (schema(a={"type": "string", "x-mcp-header": "Ä"}), "not the name of a header"),
        (schema(a={"type": "string", "x-mcp-header": "a\n"}), "not the name of a header"),
        (schema(a={"type": "string", "x-mcp-header": 7}), "not the name of a header"),
        (schema(a=REGION, b={"type": "string", "x-mcp-header": "rEGION"}), "is used twice"),
        (schema(a={"x-mcp-header": "A"}), "'a': its type must be"),
        (schema(a={"type": "number", "x-mcp-header": "A"}), "its type must be"),
        (schema(a={"type": ["string", "null"], "x-mcp-header": "A"}), "its type must be"),
        (schema(a={"type": "object", "x-mcp-header": "A"}), "its type must be"),
        ({"type": "string", "x-mcp-header": "A"}, "outside of properties"),
        (schema(a={"type": "array", "items": REGION}), "outside of properties"),
        (schema(a={"items": [REGION]}), "outside of properties"),
        (schema(a={"anyOf": [REGION]}), "outside of properties"),
        (schema(a={"oneOf": [{"properties": {"b": REGION}}]}), "outside of properties"),
        ({"allOf": [schema(a=REGION)]}, "outside of properties"),
        ({"not": REGION}, "outside of properties"),
        ({"if": schema(a=REGION)}, "outside of properties"),
        ({"then": schema(a=REGION)}, "outside of properties"),
        ({"else": schema(a=REGION)}, "outside of properties"),
        ({"$defs": {"a": REGION}}, "outside of properties"),
        ({"definitions": {"a": REGION}}, "outside of properties"),
        ({"patternProperties": {"a": REGION}}, "outside of properties"),
        ({"additionalProperties": REGION}, "outside of properties"),
    ],
)
def test_a_schema_that_breaks_the_rules_is_refused_with_a_reason(bad: Any, sentence: str) -> None:
    with pytest.raises(BadHeaderParam, match=sentence):
        header_params(bad)


def test_a_schema_without_end_is_refused() -> None:
    deep: dict[str, Any] = {}
    for _ in range(10_000):
        deep = {"properties": {"a": deep}}
    with pytest.raises(BadHeaderParam, match="nested too deep"):
        header_params(deep)


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("eu-west", "eu-west"),
        ("", ""),
        ("a b", "a b"),
        ("Zürich", "=?base64?WsO8cmljaA==?="),
        (" a", "=?base64?IGE=?="),
        ("a ", "=?base64?YSA=?="),
        ("a\nb", "=?base64?YQpi?="),
        ("a\tb", "=?base64?YQli?="),
        ("=?base64?YQ==?=", "=?base64?PT9iYXNlNjQ/WVE9PT89?="),
        ("=?base64?", "=?base64?"),
        ("\x7f", "=?base64?fw==?="),
        ("\ud800", "=?base64?Pw==?="),
    ],
)
def test_text_is_written_so_that_a_header_can_carry_it(text: str, header: str) -> None:
    assert header_text(text) == header


@pytest.mark.parametrize(
    ("value", "header"),
    [
        ("Zürich", "=?base64?WsO8cmljaA==?="),
        (3, "3"),
        (-3, "-3"),
        (3.0, "3"),
        (True, "true"),
        (False, "false"),
        ("", ""),
        (None, None),
        ([1], None),
        ({"a": 1}, None),
        (3.5, None),
        (10**400, None),
    ],
)
def test_a_value_has_a_header_if_it_is_there_and_a_scalar(value: Any, header: Any) -> None:
    params = (HeaderParam("X", ("a", "b")),)
    expected = {} if header is None else {"Mcp-Param-X": header}
    assert param_headers(params, {"a": {"b": value}}) == expected


@pytest.mark.parametrize("arguments", [{}, {"a": None}, {"a": 3}, {"a": {"c": 1}}, {"b": 1}])
def test_an_argument_that_is_absent_has_no_header(arguments: Any) -> None:
    assert param_headers((HeaderParam("X", ("a", "b")),), arguments) == {}


# What a server sends unasked (mcp-client §7) ----------------------------------------------


def ask(incoming: Incoming, method: str, era: Era = Era.HANDSHAKE, request_id: Any = 1) -> Any:
    return incoming.received({"jsonrpc": "2.0", "id": request_id, "method": method}, era)


def tell(incoming: Incoming, method: str, params: Any = None) -> Any:
    return incoming.received({"jsonrpc": "2.0", "method": method, "params": params or {}}, Era.HANDSHAKE)


def test_ping_is_answered_with_the_id_it_came_with() -> None:
    assert ask(Incoming(), "ping", request_id="a-7") == {"jsonrpc": "2.0", "id": "a-7", "result": {}}


REFUSED = ["roots/list", "sampling/createMessage", "elicitation/create", "tasks/get", "x/new"]


@pytest.mark.parametrize("method", REFUSED)
def test_every_other_request_is_refused(method: str) -> None:
    error = {"code": -32601, "message": "Method not found"}
    assert ask(Incoming(), method) == {"jsonrpc": "2.0", "id": 1, "error": error}


@pytest.mark.parametrize("method", ["ping", *REFUSED])
def test_a_stateless_server_gets_no_response_at_all(method: str) -> None:
    assert ask(Incoming(roots=[]), method, Era.STATELESS) is None


def test_roots_are_told_if_there_are_any() -> None:
    roots = [{"uri": "file:///a", "name": "a"}]
    assert ask(Incoming(roots=roots), "roots/list")["result"] == {"roots": roots}
    assert ask(Incoming(roots=[]), "roots/list")["result"] == {"roots": []}


@pytest.mark.parametrize(
    "method",
    ["notifications/progress", "notifications/cancelled", "notifications/resources/list_changed", "notifications/new"],
)
def test_other_notifications_are_ignored(method: str) -> None:
    incoming = Incoming(on_log=pytest.fail, on_tools_changed=lambda: pytest.fail("nothing changed"))
    assert tell(incoming, method) is None
    assert incoming.tool_changes == 0


def test_log_lines_arrive_in_order_on_another_thread_and_their_text_is_not_logged_here(caplog: Any) -> None:
    got, done, threads = [], threading.Event(), set()

    def on_log(line: McpLogMessage) -> None:
        threads.add(threading.current_thread())
        got.append((line.level, line.data, line.logger))
        if len(got) == 100:
            done.set()

    incoming = Incoming(on_log=on_log)
    with caplog.at_level("DEBUG", "mantyx_sync"):
        for number in range(100):
            tell(incoming, "notifications/message", {"level": "info", "data": f"secret {number}", "logger": "x"})
        assert done.wait(10)
    incoming.close(10)
    assert got == [("info", f"secret {number}", "x") for number in range(100)]
    assert threading.current_thread() not in threads
    assert "secret" not in caplog.text


def test_a_log_line_that_cannot_be_read_is_dropped() -> None:
    incoming = Incoming(on_log=pytest.fail)
    tell(incoming, "notifications/message", {"data": "no level"})
    tell(incoming, "notifications/message")
    incoming.close(10)


def test_a_callback_that_raises_is_logged_and_the_next_one_runs(caplog: Any) -> None:
    done = threading.Event()
    incoming = Incoming(on_log=lambda line: 1 / 0, on_tools_changed=done.set)
    tell(incoming, "notifications/message", {"level": "info", "data": "x"})
    tell(incoming, "notifications/tools/list_changed")
    assert done.wait(10)
    incoming.close(10)
    assert "a callback of an MCP client raised" in caplog.text


def test_no_callback_runs_after_close_and_the_thread_is_gone() -> None:
    entered, release = threading.Event(), threading.Event()
    ran = []

    def slow() -> None:
        ran.append(1)
        entered.set()
        release.wait(10)

    incoming = Incoming(on_tools_changed=slow)
    tell(incoming, "notifications/tools/list_changed")
    tell(incoming, "notifications/tools/list_changed")
    assert entered.wait(10)
    incoming.close(0.01)
    release.set()
    incoming.close(10)
    tell(incoming, "notifications/tools/list_changed")
    assert ran == [1]
    assert not [thread for thread in threading.enumerate() if thread.name == "mantyx-mcp-callbacks"]


def test_a_flood_of_log_lines_is_bounded() -> None:
    entered, release = threading.Event(), threading.Event()
    got = []

    def on_log(line: McpLogMessage) -> None:
        entered.set()
        release.wait(10)
        got.append(line)

    incoming = Incoming(on_log=on_log)
    params = {"level": "info", "data": "x"}
    tell(incoming, "notifications/message", params)
    assert entered.wait(10)
    for _ in range(MAX_WAITING + 500):
        tell(incoming, "notifications/message", params)
    incoming._callbacks.put(lambda: None)  # dropped as well
    release.set()
    last = threading.Event()
    while not incoming._callbacks.put(last.set):
        pass
    assert last.wait(10)
    incoming.close(10)
    assert len(got) == MAX_WAITING + 1


def test_messages_of_any_shape_are_survived() -> None:
    incoming = Incoming()
    for value in ({}, {"id": 1}, {"method": "x", "params": [1]}, {"method": "notifications/message", "params": None}):
        assert incoming.received(json.loads(json.dumps(value)), Era.HANDSHAKE) is None
