"""Listing and calling the tools of a server in memory: pages, caches, headers, schemas, input, progress."""

from __future__ import annotations

import base64
import pickle
import threading
from typing import Any, Callable, Iterator

import pytest

from mantyx_sync.errors import MantyxConfigError
from mantyx_sync.mcp import (
    Cancellation,
    Era,
    McpCancelled,
    McpInputRequired,
    McpOutputError,
    McpProgress,
    McpProtocolError,
    McpRequestError,
    McpStatusError,
    McpTimeoutError,
    cancelling,
    rounds,
)

from .mcp_fake import LABEL, META, MODERN, Asked, FakeServer, RpcError, tool

BOTH_ERAS = pytest.mark.parametrize("era", [Era.STATELESS, Era.HANDSHAKE], ids=lambda era: era.value)


def in_turn(*answers: Any) -> Callable[[Asked], Any]:
    """Answer with one after the other; an exception is raised."""
    left: Iterator[Any] = iter(answers)

    def answer(asked: Asked) -> Any:
        value = next(left)
        if isinstance(value, Exception):
            raise value
        return value

    return answer


def names(listed: Any) -> list[str]:
    return [item.name for item in listed]


# Listing (mcp-client §6.1) ----------------------------------------------------------------

PAGES = {
    "one page": ([{"tools": [tool("a")]}], [None], ["a"]),
    "a null cursor": ([{"tools": [tool("a")], "nextCursor": None}], [None], ["a"]),
    "three pages": (
        [{"tools": [tool("a")], "nextCursor": "2"}, {"tools": [tool("b")], "nextCursor": "3"}, {"tools": [tool("c")]}],
        [None, "2", "3"],
        ["a", "b", "c"],
    ),
    "an empty page with a cursor": (
        [{"tools": [], "nextCursor": "2"}, {"tools": [tool("b")]}],
        [None, "2"],
        ["b"],
    ),
    "an empty string as cursor": (
        [{"tools": [tool("a")], "nextCursor": ""}, {"tools": [tool("b")]}],
        [None, ""],
        ["a", "b"],
    ),
}


@BOTH_ERAS
@pytest.mark.parametrize(("pages", "cursors", "found"), PAGES.values(), ids=PAGES)
def test_all_pages_are_read_in_order(era: Era, pages: Any, cursors: Any, found: Any) -> None:
    server = FakeServer(eras=(era,), on={"tools/list": in_turn(*pages)})
    with server.client() as client:
        assert names(client.list_tools()) == found
    assert [asked.params.get("cursor") for asked in server.calls("tools/list")] == cursors
    assert "cursor" not in server.calls("tools/list")[0].params


ENDLESS = {
    "the same cursor": (lambda asked: {"tools": [], "nextCursor": "x"}, 2, "repeats the cursor 'x'"),
    "an empty cursor for ever": (lambda asked: {"tools": [], "nextCursor": ""}, 2, "repeats the cursor ''"),
    "a cycle": (
        lambda asked: {"tools": [], "nextCursor": {None: "a", "a": "b", "b": "a"}[asked.params.get("cursor")]},
        3,
        "repeats the cursor 'a'",
    ),
    "new cursors for ever": (
        lambda asked: {"tools": [], "nextCursor": str(asked.params.get("cursor")) + "x"},
        100,
        "no end after 100 pages",
    ),
    "a cursor that is no text": (lambda asked: {"tools": [], "nextCursor": 7}, 1, "'nextCursor' of tools/list is a n"),
    "no array": (lambda asked: {"tools": {}}, 1, "'tools' of tools/list is an object, must be an array"),
    "nothing": (lambda asked: {}, 1, "'tools' of tools/list is null, must be an array"),
}


@pytest.mark.parametrize(("answer", "requests", "sentence"), ENDLESS.values(), ids=ENDLESS)
def test_a_list_without_end_or_sense_is_an_error(answer: Any, requests: int, sentence: str) -> None:
    server = FakeServer(on={"tools/list": answer})
    with server.client() as client, pytest.raises(McpProtocolError, match=sentence):
        client.list_tools()
    assert len(server.calls("tools/list")) == requests


def test_an_entry_that_cannot_be_read_costs_itself_and_not_the_list(caplog: Any) -> None:
    bad = [{"name": "b"}, {"inputSchema": {}}, tool("d", title=7), tool(""), "e", tool("f", outputSchema=[])]
    server = FakeServer(tools=[tool("a"), *bad, tool("z")])
    with server.client() as client:
        assert names(client.list_tools()) == ["a", "z"]
    warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == len(bad)
    assert warnings[0] == f"{LABEL}: tools[1] ('b'): field 'inputSchema' is missing, must be an object; it is left out"


def test_of_two_tools_of_one_name_the_first_counts(caplog: Any) -> None:
    server = FakeServer(tools=[tool("a", title="first"), tool("a", title="second"), tool("A")])
    with server.client() as client:
        assert [item.title for item in client.list_tools()] == ["first", None]
    assert "lists the tool 'a' twice" in caplog.text


@BOTH_ERAS
def test_a_server_that_offers_no_tools_is_not_asked_for_them(era: Era) -> None:
    server = FakeServer(eras=(era,), capabilities={"prompts": {}})
    with server.client() as client:
        assert client.list_tools() == ()
        assert client.list_resources() == ()
        assert client.list_resource_templates() == ()
        assert client.call_tool("hidden").text == "hidden ran"
    assert not {"tools/list", "resources/list", "resources/templates/list"} & set(server.methods())


TTL = {
    "long": ({"ttlMs": 60_000}, 1),
    "absent": ({}, 3),
    "zero": ({"ttlMs": 0}, 3),
    "negative": ({"ttlMs": -5}, 3),
    "rubbish": ({"ttlMs": "60000"}, 3),
    "true": ({"ttlMs": True}, 3),
    "without end": ({"ttlMs": 10**400}, 1),
    "private": ({"ttlMs": 60_000, "cacheScope": "private"}, 1),
}


@pytest.mark.parametrize(("fields", "requests"), TTL.values(), ids=TTL)
def test_a_stateless_list_is_used_again_for_as_long_as_the_server_said(fields: Any, requests: int) -> None:
    server = FakeServer(on={"tools/list": lambda asked: {"tools": [tool("a")], **fields}})
    with server.client() as client:
        for _ in range(3):
            assert names(client.list_tools()) == ["a"]
        assert len(server.calls("tools/list")) == requests
        client.list_tools(refresh=True)
        assert len(server.calls("tools/list")) == requests + 1


def test_of_several_pages_the_shortest_time_counts() -> None:
    pages = [{"tools": [], "nextCursor": "2", "ttlMs": 0}, {"tools": [], "ttlMs": 60_000}] * 2
    server = FakeServer(on={"tools/list": in_turn(*pages)})
    with server.client() as client:
        client.list_tools()
        client.list_tools()
    assert len(server.calls("tools/list")) == 4


def test_a_handshake_server_that_announces_changes_is_asked_again_after_one() -> None:
    server = FakeServer(eras=(Era.HANDSHAKE,), capabilities={"tools": {"listChanged": True}})
    changed = threading.Event()
    with server.client(on_tools_changed=changed.set) as client:
        assert names(client.list_tools()) == names(client.list_tools()) == ["add"]
        assert len(server.calls("tools/list")) == 1
        server.tools.append(tool("new"))
        server.calls("tools/list")[0].notify("notifications/tools/list_changed")
        assert names(client.list_tools()) == ["add", "new"]
        client.list_tools(refresh=True)
        assert len(server.calls("tools/list")) == 3
        assert changed.wait(10)


@pytest.mark.parametrize("capability", [{}, {"listChanged": False}, {"listChanged": "yes"}, True])
def test_a_handshake_server_that_announces_nothing_is_asked_each_time(capability: Any) -> None:
    server = FakeServer(eras=(Era.HANDSHAKE,), capabilities={"tools": capability})
    with server.client() as client:
        client.list_tools()
        client.list_tools()
    assert len(server.calls("tools/list")) == 2


def test_a_list_of_a_session_that_is_over_is_not_used_again() -> None:
    server = FakeServer(eras=(Era.HANDSHAKE,), capabilities={"tools": {"listChanged": True}})
    with server.client() as client:
        client.list_tools()
        server.channels[0].lose()
        client.call_tool("add")
        server.tools = [tool("other")]
        assert names(client.list_tools()) == ["other"]


def test_tools_that_changed_are_listed_before_the_next_call() -> None:
    server = FakeServer()
    with server.client() as client:
        client.call_tool("add")
        client.call_tool("add")
        assert server.methods().count("tools/list") == 1
        server.asked[-1].notify("notifications/tools/list_changed")
        client.call_tool("add")
        client.call_tool("add")
    assert server.methods().count("tools/list") == 2


# Calling (mcp-client §6.2) ----------------------------------------------------------------


@BOTH_ERAS
def test_a_call_sends_name_and_arguments_and_gives_the_result(era: Era) -> None:
    server = FakeServer(eras=(era,))
    with server.client() as client:
        result = client.call_tool("add", {"a": 1, "b": [None, {"c": "ü"}]})
    assert (result.text, result.is_error) == ("add ran", False)
    sent = server.calls()[0].request.message
    assert {key: sent["params"][key] for key in ("name", "arguments")} == {
        "name": "add",
        "arguments": {"a": 1, "b": [None, {"c": "ü"}]},
    }
    assert (sent["jsonrpc"], type(sent["id"])) == ("2.0", int)


def test_a_call_without_arguments_sends_an_empty_object() -> None:
    server = FakeServer()
    with server.client() as client:
        client.call_tool("add")
    assert server.calls()[0].params["arguments"] == {}


def test_no_id_is_used_twice() -> None:
    server = FakeServer(eras=(Era.HANDSHAKE,))
    with server.client() as client:
        for _ in range(5):
            client.call_tool("add")
    ids = [asked.request.message["id"] for asked in server.asked]
    assert len(set(ids)) == len(ids)


@BOTH_ERAS
def test_a_tool_that_failed_is_a_result(era: Era) -> None:
    failed = {"content": [{"type": "text", "text": "Unknown tool: nope"}], "isError": True}
    server = FakeServer(eras=(era,), on={"tools/call": lambda asked: failed})
    with server.client() as client:
        result = client.call_tool("nope")
    assert (result.is_error, result.text) == (True, "Unknown tool: nope")


@BOTH_ERAS
@pytest.mark.parametrize("code", [-32602, -32600, -32601, -32603, -32042, -32800, -32002, -32000, 0, 7])
def test_a_call_that_is_refused_raises_with_its_code(era: Era, code: int) -> None:
    server = FakeServer(eras=(era,), on={"tools/call": in_turn(RpcError(code, "not this", {"why": 1}))})
    with server.client() as client, pytest.raises(McpRequestError, match="not this") as caught:
        client.call_tool("add")
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.rpc_code, again.data, again.method) == (code, {"why": 1}, "tools/call")
    assert len(server.calls()) == 1


MISUSES = {
    "arguments": (lambda client: client.call_tool("add", [1]), "arguments: got list, must be a mapping"),
    "a value": (lambda client: client.call_tool("add", {"a": {1}}), r"arguments\.a: got set, must be a JSON value"),
    "nan": (lambda client: client.call_tool("add", {"a": float("nan")}), r"arguments\.a: got nan, must be a finite"),
    "a key": (lambda client: client.call_tool("add", {1: 2}), "arguments: got the key 1"),
    "name": (lambda client: client.call_tool(""), "name: got '', must be a non-empty string"),
    "timeout": (lambda client: client.call_tool("add", timeout=0), "timeout: got 0, must be a number of seconds"),
    "idle": (lambda client: client.call_tool("add", idle_timeout=-1), "idle_timeout: got -1"),
    "progress": (lambda client: client.call_tool("add", on_progress=7), "on_progress: got 7, must be a function"),
    "cancelled": (lambda client: client.call_tool("add", cancelled=7), "cancelled: got 7, must be a Cancellation or"),
    "uri": (lambda client: client.read_resource(""), "uri: got '', must be a non-empty string"),
    "prompt": (lambda client: client.get_prompt("p", {"a": 1}), r"arguments\.a: got 1, must be a string"),
    "prompt arguments": (lambda client: client.get_prompt("p", "a"), "arguments: got a string, must be a mapping"),
    "level": (lambda client: client.set_log_level("loud"), "level: got 'loud', must be one of debug, info"),
    "method": (lambda client: client.request(""), "method: got '', must be a non-empty string"),
    "params": (lambda client: client.request("x", [1]), "params: got list, must be a mapping"),
    "completion": (lambda client: client.complete("a", "b"), "prompt: got both or neither"),
    "completion value": (lambda client: client.complete("a", 7, prompt="p"), "value: got 7, must be a string"),
    "context": (lambda client: client.complete("a", "b", prompt="p", context={"a": 7}), r"context\.a: got 7"),
}


@pytest.mark.parametrize(("misuse", "sentence"), MISUSES.values(), ids=MISUSES)
def test_bad_input_is_refused_before_anything_is_sent(misuse: Any, sentence: str) -> None:
    server = FakeServer()
    with server.client() as client, pytest.raises(MantyxConfigError, match=sentence):
        misuse(client)
    assert server.asked == []


@pytest.mark.parametrize("error", [RpcError(-32603), McpProtocolError("odd"), McpStatusError("500", status=500)])
def test_a_tool_is_called_although_the_tools_cannot_be_listed(error: Exception) -> None:
    server = FakeServer(on={"tools/list": in_turn(error)})
    with server.client() as client:
        assert client.call_tool("add").text == "add ran"


# Structured content and its schema (FIELD-NOTES MCP-18) -----------------------------------

COUNT = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
SAID = [{"type": "text", "text": "n is 3"}]

OUTPUTS = {
    "fits": ({"content": SAID, "structuredContent": {"n": 3}}, None),
    "fits without text": ({"content": [], "structuredContent": {"n": 3}}, None),
    "fits without content": ({"structuredContent": {"n": 3}}, None),
    "does not fit": ({"content": SAID, "structuredContent": {"n": "x"}}, "'n' must be of type integer"),
    "lacks a field": ({"content": SAID, "structuredContent": {}}, "'n' is a required property"),
    "is the envelope": ({"content": SAID, "structuredContent": {"content": SAID}}, "'n' is a required property"),
    "is missing": ({"content": SAID}, "it has none"),
    "is missing and nothing else is there": ({"content": []}, "it has none"),
    "is null": ({"content": SAID, "structuredContent": None}, "the value must be of type object"),
    "failed and does not fit": ({"content": SAID, "isError": True, "structuredContent": {"error": 1}}, None),
    "failed and is missing": ({"content": SAID, "isError": True}, None),
}


@BOTH_ERAS
@pytest.mark.parametrize(("answer", "problem"), OUTPUTS.values(), ids=OUTPUTS)
def test_structured_content_is_checked_against_the_schema_of_its_tool(era: Era, answer: Any, problem: Any) -> None:
    server = FakeServer(eras=(era,), tools=[tool("n", outputSchema=COUNT)], on={"tools/call": lambda asked: answer})
    with server.client() as client:
        if problem is None:
            assert client.call_tool("n").structured_content == answer.get("structuredContent")
        else:
            with pytest.raises(McpOutputError, match=problem) as caught:
                client.call_tool("n")
            again = pickle.loads(pickle.dumps(caught.value))
            assert again.result.raw == answer
            assert again.text == caught.value.result.text
            assert again.tool_name == "n"
    assert len(server.calls()) == 1


def test_the_text_of_a_result_that_does_not_fit_is_still_there_and_not_in_the_message() -> None:
    answer = {"content": SAID, "structuredContent": {"n": "sesame"}}
    server = FakeServer(tools=[tool("n", outputSchema=COUNT)], on={"tools/call": lambda asked: answer})
    with server.client() as client, pytest.raises(McpOutputError) as caught:
        client.call_tool("n")
    assert caught.value.text == "n is 3"
    assert "sesame" not in str(caught.value)


def test_an_output_schema_may_describe_any_value() -> None:
    answer = {"structuredContent": [1, 2]}
    server = FakeServer(
        tools=[tool("n", outputSchema={"type": "array", "items": {"type": "integer"}})],
        on={"tools/call": lambda asked: answer},
    )
    with server.client() as client:
        assert client.call_tool("n").structured_content == [1, 2]


@pytest.mark.parametrize("schema", [{"type": 7}, {"$ref": "http://127.0.0.1:9/schema"}, {"$ref": "#/nowhere"}])
def test_a_schema_that_cannot_be_used_is_not_checked_against(schema: Any, caplog: Any) -> None:
    answer = {"structuredContent": {"n": 3}}
    server = FakeServer(tools=[tool("n", outputSchema=schema)], on={"tools/call": lambda asked: answer})
    with server.client() as client:
        for _ in range(3):
            assert client.call_tool("n").text == '{"n":3}'
    assert caplog.text.count("values are not checked") == 1


def test_a_schema_that_has_changed_meanwhile_is_listed_anew_before_a_result_is_refused() -> None:
    server = FakeServer(
        tools=[tool("n", outputSchema=COUNT)],
        on={"tools/call": lambda asked: {"structuredContent": {"text": "three"}}},
    )
    with server.client() as client:
        client.list_tools()
        server.tools = [tool("n", outputSchema={"type": "object", "required": ["text"]})]
        assert client.call_tool("n").structured_content == {"text": "three"}
        assert server.methods().count("tools/list") == 2
        server.on["tools/call"] = lambda asked: {"structuredContent": {}}
        server.on["tools/list"] = in_turn(McpTimeoutError("silent"))
        with pytest.raises(McpOutputError, match="'text' is a required property"):
            client.call_tool("n")


# Arguments in headers (mcp-client §6.3) ---------------------------------------------------

REGION = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
BROKEN = {"type": "object", "properties": {"region": {"type": "object", "x-mcp-header": "Region"}}}


def test_stateless_requests_carry_the_headers_that_proxies_route_by() -> None:
    server = FakeServer(tools=[tool("plän", inputSchema=REGION)], on={"resources/read": lambda asked: {"contents": []}})
    with server.client() as client:
        client.call_tool("plän", {"region": "Zürich"})
        client.call_tool("plän", {"region": None})
        client.read_resource("a:b c")
        client.ping()
    sent = [dict(asked.request.headers) for asked in server.asked]
    name = "=?base64?" + base64.b64encode("plän".encode()).decode() + "?="
    assert sent == [
        {"Mcp-Method": "server/discover"},
        {"Mcp-Method": "tools/list"},
        {"Mcp-Method": "tools/call", "Mcp-Name": name, "Mcp-Param-Region": "=?base64?WsO8cmljaA==?="},
        {"Mcp-Method": "tools/call", "Mcp-Name": name},
        {"Mcp-Method": "resources/read", "Mcp-Name": "a:b c"},
        {"Mcp-Method": "server/discover"},
    ]
    assert {asked.request.version for asked in server.asked} == {MODERN}


def test_a_handshake_server_and_a_process_get_no_such_headers() -> None:
    for server, options in (
        (FakeServer(eras=(Era.HANDSHAKE,), tools=[tool("a", inputSchema=REGION)]), {}),
        (FakeServer(tools=[tool("a", inputSchema=REGION)]), {"sends_headers": False}),
    ):
        with server.client(**options) as client:
            client.call_tool("a", {"region": "x"})
        assert [dict(asked.request.headers) for asked in server.calls()] == [{}]


def test_a_tool_that_breaks_the_rules_for_headers_is_left_out_where_they_are_sent(caplog: Any) -> None:
    tools = [tool("bad", inputSchema=BROKEN), tool("good")]
    with FakeServer(tools=tools).client() as client:
        assert names(client.list_tools()) == ["good"]
    assert "tool 'bad' is left out: x-mcp-header of 'region': its type must be" in caplog.text
    with FakeServer(tools=tools).client(sends_headers=False) as client:
        assert names(client.list_tools()) == ["bad", "good"]
    with FakeServer(eras=(Era.HANDSHAKE,), tools=tools).client() as client:
        assert names(client.list_tools()) == ["bad", "good"]


def test_a_call_refused_for_its_headers_is_repeated_once_with_those_of_a_new_list() -> None:
    server = FakeServer()

    def call(asked: Asked) -> Any:
        if "Mcp-Param-Region" not in asked.request.headers:
            raise RpcError(-32020, "Mcp-Param-Region is missing")
        return {"content": []}

    server.on["tools/call"] = call
    with server.client() as client:
        client.list_tools()
        server.tools = [tool("add", inputSchema=REGION)]
        client.call_tool("add", {"region": "eu"})
    assert server.methods()[1:] == ["tools/list", "tools/call", "tools/list", "tools/call"]


def test_a_call_refused_twice_for_its_headers_fails() -> None:
    server = FakeServer(on={"tools/call": in_turn(RpcError(-32020, "first"), RpcError(-32020, "second"))})
    with server.client() as client, pytest.raises(McpRequestError, match="second"):
        client.call_tool("add")
    assert len(server.calls()) == 2


# More input wanted (mcp-client §6.4) ------------------------------------------------------

ELICIT = {"method": "elicitation/create", "params": {"message": "name?", "mode": "form"}}
ROOTS = {"method": "roots/list"}


def wants(state: Any = None, requests: Any = None) -> dict[str, Any]:
    wish: dict[str, Any] = {"resultType": "input_required"}
    if state is not None:
        wish["requestState"] = state
    if requests is not None:
        wish["inputRequests"] = requests
    return wish


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "_FIRST_PAUSE_S", 0.0001)
    monkeypatch.setattr(rounds, "_LAST_PAUSE_S", 0.001)


def test_a_server_that_wants_its_state_back_gets_it_byte_for_byte_in_a_new_request() -> None:
    server = FakeServer(
        on={"tools/call": in_turn(wants("v1.ü=="), wants("v2", {}), {"resultType": "complete", "content": SAID})}
    )
    with server.client() as client:
        assert client.call_tool("add", {"a": 1}).text == "n is 3"
    calls = server.calls()
    assert [asked.params.get("requestState") for asked in calls] == [None, "v1.ü==", "v2"]
    assert all(asked.params["arguments"] == {"a": 1} for asked in calls)
    assert all("inputResponses" not in asked.params for asked in calls)
    assert len({asked.request.message["id"] for asked in calls}) == 3
    assert all(asked.request.headers["Mcp-Name"] == "add" for asked in calls)


def test_each_round_answers_the_last_wish_alone() -> None:
    given: dict[str, Any] = {"r": ROOTS}
    server = FakeServer(
        on={"tools/call": in_turn(wants("one", given), wants("", {}), wants(None, given), wants("four"), {})}
    )
    with server.client(roots=[]) as client:
        client.call_tool("add")
    answered = [(asked.params.get("requestState"), asked.params.get("inputResponses")) for asked in server.calls()]
    roots = {"r": {"roots": []}}
    assert answered == [(None, None), ("one", roots), ("", None), (None, roots), ("four", None)]


def test_the_pauses_between_rounds_double_up_to_a_quarter_of_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.undo()
    monkeypatch.setattr(rounds, "pause", lambda seconds, *rest: pauses.append(seconds))
    server = FakeServer(on={"tools/call": in_turn(*[wants("s")] * 5, {})})
    with server.client() as client:
        client.call_tool("add")
    assert pauses == [0.05, 0.1, 0.2, 0.25, 0.25]


def test_rounds_without_end_are_an_error() -> None:
    server = FakeServer(on={"tools/call": lambda asked: wants("again")})
    with server.client() as client, pytest.raises(McpProtocolError, match="not completed after 10 rounds"):
        client.call_tool("add")
    assert len(server.calls()) == 11


WISHES = {
    "elicitation": ({"who": ELICIT}, ["elicitation/create"]),
    "sampling": ({"x": {"method": "sampling/createMessage"}}, ["sampling/createMessage"]),
    "roots": ({"x": ROOTS}, ["roots/list"]),
    "several": ({"x": ROOTS, "who": ELICIT}, ["elicitation/create", "roots/list"]),
    "nameless": ({"x": {}, "y": 7}, ["something without a name"]),
}


@pytest.mark.parametrize(("requests", "methods"), WISHES.values(), ids=WISHES)
def test_a_server_that_asks_for_what_we_cannot_give_fails_the_call_by_name(requests: Any, methods: Any) -> None:
    server = FakeServer(on={"tools/call": lambda asked: wants("s", requests)})
    with server.client() as client, pytest.raises(McpInputRequired) as caught:
        client.call_tool("add")
    assert caught.value.methods == tuple(methods)
    assert f"asked for {', '.join(methods)} while it answered tools/call, which is not supported" in str(caught.value)
    assert pickle.loads(pickle.dumps(caught.value)).raw["inputRequests"] == requests
    assert len(server.calls()) == 1


def test_roots_are_given_if_there_are_any() -> None:
    server = FakeServer(on={"tools/call": in_turn(wants("s", {"r": ROOTS}), {"content": SAID})})
    with server.client(roots=["file:///data"]) as client:
        assert client.call_tool("add").text == "n is 3"
    second = server.calls()[1].params
    assert second["inputResponses"] == {"r": {"roots": [{"uri": "file:///data"}]}}
    assert second["requestState"] == "s"
    assert second["_meta"][f"{META}clientCapabilities"] == {"roots": {}}


def test_roots_do_not_answer_other_wishes() -> None:
    server = FakeServer(on={"tools/call": in_turn(wants(None, {"r": ROOTS, "who": ELICIT}))})
    with server.client(roots=[]) as client, pytest.raises(McpInputRequired) as caught:
        client.call_tool("add")
    assert caught.value.methods == ("elicitation/create",)


@pytest.mark.parametrize(
    ("result", "sentence"),
    [
        ({"resultType": "partial"}, "the resultType 'partial', which is unknown"),
        ({"resultType": 7}, "the resultType 'int', which is unknown"),
        (wants(), "wants input, but does not say which"),
        (wants(None, {}), "wants input, but does not say which"),
        (wants(None, ["x"]), "the inputRequests of tools/call are no object"),
    ],
)
def test_a_result_of_an_unknown_type_is_invalid(result: Any, sentence: str) -> None:
    server = FakeServer(on={"tools/call": lambda asked: result})
    with server.client() as client, pytest.raises(McpProtocolError, match=sentence):
        client.call_tool("add")


def test_a_handshake_server_knows_no_result_types() -> None:
    answer = {"resultType": "input_required", "content": SAID}
    server = FakeServer(eras=(Era.HANDSHAKE,), on={"tools/call": lambda asked: answer})
    with server.client() as client:
        assert client.call_tool("add").text == "n is 3"


@pytest.mark.parametrize("method", ["prompts/get", "resources/read"])
def test_prompts_and_resources_may_want_input_as_well(method: str) -> None:
    server = FakeServer(on={method: lambda asked: wants("s", {"who": ELICIT})})
    with server.client() as client, pytest.raises(McpInputRequired, match=method):
        client.get_prompt("p") if method == "prompts/get" else client.read_resource("a:b")


def test_a_pause_between_rounds_ends_with_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "_FIRST_PAUSE_S", 60.0)
    cancelled = Cancellation()

    def call(asked: Asked) -> Any:
        threading.Timer(0.05, cancelled.set).start()
        return wants("s")

    server = FakeServer(on={"tools/call": call})
    with server.client() as client:
        with pytest.raises(McpCancelled):
            client.call_tool("add", cancelled=cancelled)
        server.on["tools/call"] = lambda asked: wants("s")
        with pytest.raises(McpTimeoutError):
            client.call_tool("add", timeout=0.05)


# Progress, time limits and cancelling as the channel sees them (mcp-client §6.5) -----------


def test_a_progress_token_is_sent_where_progress_is_of_use_and_is_the_id() -> None:
    server = FakeServer()
    with server.client() as client:
        client.call_tool("add")
        client.call_tool("add", on_progress=print)
        client.call_tool("add", idle_timeout=5)
    ids = [asked.request.message["id"] for asked in server.calls()]
    assert [asked.meta.get("progressToken") for asked in server.calls()] == [None, ids[1], ids[2]]


def test_the_progress_of_a_call_is_not_that_of_the_list_before_it() -> None:
    server = FakeServer()
    with server.client() as client:
        client.call_tool("add", on_progress=print)
    assert "progressToken" not in server.calls("tools/list")[0].meta
    assert "progressToken" in server.calls()[0].meta


def test_progress_arrives_in_order_on_the_callers_thread_before_the_result() -> None:
    def call(asked: Asked) -> Any:
        for number in range(10_000):
            asked.progress(progress=number, total=10_000, message=f"step {number}")
        return {"content": []}

    got: list[McpProgress] = []
    threads = set()

    def on_progress(progress: McpProgress) -> None:
        got.append(progress)
        threads.add(threading.get_ident())

    with FakeServer(on={"tools/call": call}).client() as client:
        client.call_tool("add", on_progress=on_progress)
    assert [progress.progress for progress in got] == list(range(10_000))
    assert got[7] == McpProgress(7, 10_000, "step 7", "tools/call", "add")
    assert threads == {threading.get_ident()}


def test_a_progress_callback_may_raise_and_may_call_another_tool(caplog: Any) -> None:
    def call(asked: Asked) -> Any:
        if asked.params["name"] == "add":
            asked.progress(progress=1)
            asked.progress(progress=2)
            asked.progress(progress="x")
            asked.progress()
        return {"content": SAID}

    texts = []
    with FakeServer(on={"tools/call": call}).client() as client:

        def on_progress(progress: McpProgress) -> None:
            texts.append(client.call_tool("other").text)
            raise ValueError

        assert client.call_tool("add", on_progress=on_progress).text == "n is 3"
    assert texts == ["n is 3"] * 2
    assert caplog.text.count("the progress callback of an MCP call raised") == 2


def test_the_clients_own_progress_callback_takes_what_calls_have_none_for() -> None:
    got = []
    server = FakeServer(on={"tools/call": lambda asked: asked.progress(progress=1) or {}})
    with server.client(on_progress=got.append) as client:
        client.call_tool("add")
        client.call_tool("add", on_progress=lambda progress: None)
        client.list_tools(refresh=True)
    assert got == [McpProgress(1, method="tools/call", name="add")]
    assert server.calls("tools/list")[-1].waiting.on_progress is None


def test_time_limits_and_cancelling_reach_the_channel() -> None:
    cancelled = Cancellation()
    server = FakeServer()
    with server.client(timeout=100, idle_timeout=7) as client:
        client.call_tool("add")
        client.call_tool("add", timeout=5, idle_timeout=3, cancelled=cancelled)
    with server.client(timeout=None) as client:
        client.call_tool("add")
        client.call_tool("add", timeout=float("inf"))
    first, second, third, fourth = (asked.waiting for asked in server.calls())
    assert (first.idle_timeout, second.idle_timeout, third.idle_timeout) == (7, 3, None)
    assert (first.cancelled, second.cancelled) == (None, cancelled)
    assert first.deadline is not None
    assert second.deadline is not None
    assert 90 < first.deadline - second.deadline < 100
    assert third.deadline is fourth.deadline is None


def test_any_event_cancels_a_call() -> None:
    event, entered = threading.Event(), threading.Event()

    def call(asked: Asked) -> Any:
        assert asked.waiting.cancelled is not None
        gone = threading.Event()
        asked.waiting.cancelled.add(gone.set)
        entered.set()
        assert gone.wait(10)
        raise McpCancelled("gone")

    threading.Thread(target=lambda: entered.wait(10) and event.set()).start()
    with FakeServer(on={"tools/call": call}).client() as client:
        with pytest.raises(McpCancelled):
            client.call_tool("add", cancelled=event)
        with pytest.raises(McpCancelled):
            client.call_tool("add", cancelled=event)  # set before the call


def test_an_event_is_watched_for_no_longer_than_the_call_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cancelling, "_POLL_S", 60.0)
    event = threading.Event()
    with FakeServer().client() as client:
        client.call_tool("add", cancelled=event)
        assert not [thread for thread in threading.enumerate() if thread.name == "mantyx-mcp-cancel"]
        event.set()
    server = FakeServer()
    with server.client() as client, pytest.raises(McpCancelled, match="while it was being opened"):
        client.call_tool("add", cancelled=event)
    assert server.calls() == []


def test_a_cancellation_keeps_nothing_of_calls_that_are_over() -> None:
    cancelled = Cancellation()
    server = FakeServer(on={"tools/call": in_turn(wants("s"), {})})
    with server.client() as client:
        client.call_tool("add", cancelled=cancelled)
    assert cancelled._callbacks == []
