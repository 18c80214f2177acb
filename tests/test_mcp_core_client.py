"""A client and its server in memory: opening it, losing it, many threads, forks, and everything that is not a tool."""

from __future__ import annotations

import gc
import inspect
import os
import pathlib
import threading
import weakref
from typing import Any, Callable

import pytest

from mantyx_sync import _version
from mantyx_sync.errors import MantyxConfigError
from mantyx_sync.mcp import (
    Cancellation,
    Era,
    McpAuthError,
    McpCancelled,
    McpClient,
    McpConnectionError,
    McpError,
    McpProtocolError,
    McpRequestError,
    McpSessionGone,
    McpTimeoutError,
    McpVersionError,
)
from mantyx_sync.mcp.options import McpOptions

from .mcp_fake import LABEL, LEGACY, META, MODERN, Asked, FakeServer, RpcError, discovery, handshake

CLIENT_INFO = {"name": "mantyx-sync", "version": _version.__version__}


def in_threads(number: int, work: Callable[[int], Any]) -> list[Any]:
    """Do work on several threads at once; return what each returned or raised."""
    results: list[Any] = [None] * number
    start = threading.Barrier(number)

    def run(index: int) -> None:
        start.wait(10)
        try:
            results[index] = work(index)
        except Exception as error:
            results[index] = error

    threads = [threading.Thread(target=run, args=(index,)) for index in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    return results


# Opening ----------------------------------------------------------------------------------


def test_making_a_client_asks_nothing_and_the_first_use_opens_the_server() -> None:
    server = FakeServer()
    client = server.client()
    assert server.asked == []
    assert client.server.name == "fake"
    assert server.methods() == ["server/discover"]
    client.list_tools()
    assert server.methods() == ["server/discover", "tools/list"]
    client.close()


def test_every_stateless_request_says_version_client_and_capabilities() -> None:
    server = FakeServer()
    with server.client() as client:
        client.call_tool("add")
    for asked in server.asked:
        assert asked.meta == {
            f"{META}protocolVersion": MODERN,
            f"{META}clientInfo": CLIENT_INFO,
            f"{META}clientCapabilities": {},
        }
        assert (asked.request.era, asked.request.version, asked.request.generation) == (Era.STATELESS, MODERN, None)
    assert [asked.request.may_cancel for asked in server.asked] == [False, True, True]
    assert server.opened == [(Era.STATELESS, MODERN)]
    assert server.notified == []


def test_a_handshake_says_it_once() -> None:
    server = FakeServer(eras=(Era.HANDSHAKE,))
    with server.client(mode="handshake", client_info={"name": "x", "version": "2", "title": "X"}) as client:
        client.call_tool("add")
    first, *others = server.asked
    assert first.request.message["params"] == {
        "protocolVersion": LEGACY,
        "capabilities": {},
        "clientInfo": {"name": "x", "version": "2", "title": "X"},
    }
    assert (first.request.version, first.request.may_cancel, first.request.generation) == (None, False, None)
    for asked in others:
        assert "_meta" not in asked.params
        assert (asked.request.era, asked.request.version, asked.request.generation) == (Era.HANDSHAKE, LEGACY, 1)
    assert server.notified == [{"jsonrpc": "2.0", "method": "notifications/initialized"}]
    assert server.opened == [(Era.HANDSHAKE, LEGACY)]
    assert "params" not in server.calls("tools/list")[0].request.message


def test_the_version_that_the_handshake_ends_in_is_spoken() -> None:
    server = FakeServer(eras=(Era.HANDSHAKE,), on={"initialize": lambda asked: handshake("2024-11-05")})
    with server.client() as client:
        assert client.open().protocol_version == "2024-11-05"
        client.ping()
    assert server.asked[-1].request.version == "2024-11-05"


def test_roots_are_declared_and_answered() -> None:
    for server in (FakeServer(), FakeServer(eras=(Era.HANDSHAKE,))):
        with server.client(roots=["/data/a b", "file:///c", {"uri": "file:///d", "name": "D"}]) as client:
            client.list_tools()
            first = server.asked[-1]
            declared = (
                first.meta.get(f"{META}clientCapabilities") or server.calls("initialize")[0].params["capabilities"]
            )
            assert declared == {"roots": {}}
            if first.request.era is Era.HANDSHAKE:
                assert first.ask("roots/list")["result"]["roots"] == [
                    {"uri": pathlib.Path(os.path.abspath("/data/a b")).as_uri(), "name": "a b"},
                    {"uri": "file:///c"},
                    {"uri": "file:///d", "name": "D"},
                ]


def test_stateless_mode_sends_the_real_request_first() -> None:
    server = FakeServer(capabilities={})
    with server.client(mode="stateless") as client:
        assert [tool.name for tool in client.list_tools()] == ["add"]
        assert server.methods() == ["tools/list"]
        assert client.server.name == "fake"
        assert client.server.name == "fake"
    assert server.methods() == ["tools/list", "server/discover"]


@pytest.mark.parametrize(
    ("mode", "eras", "error"),
    [
        ("handshake", (Era.STATELESS,), McpVersionError),
        ("stateless", (Era.HANDSHAKE,), McpRequestError),
        ("auto", (), McpVersionError),
    ],
)
def test_a_server_that_does_not_speak_the_era_asked_for_is_an_error(mode: str, eras: Any, error: Any) -> None:
    server = FakeServer(eras=eras, on={} if eras else {"initialize": refuses(-32022, supported=["2027-01-01"])})
    with server.client(mode=mode) as client, pytest.raises(error):
        client.open()


def refuses(code: int, **data: Any) -> Callable[[Asked], Any]:
    def answer(asked: Asked) -> Any:
        raise RpcError(code, "refused", data)

    return answer


def raises(make: Callable[[], Exception]) -> Callable[[Asked], Any]:
    def answer(asked: Asked) -> Any:
        raise make()

    return answer


def test_many_threads_open_the_server_once() -> None:
    entered = threading.Event()

    def discover(asked: Asked) -> Any:
        entered.wait(0.05)  # let the others come meanwhile
        return discovery()

    server = FakeServer(on={"server/discover": discover})
    with server.client() as client:
        results = in_threads(8, lambda index: client.call_tool("add", {"index": index}).text)
    assert results == ["add ran"] * 8
    assert server.methods().count("server/discover") == 1
    assert sorted(asked.params["arguments"]["index"] for asked in server.calls()) == list(range(8))


def test_a_failed_opening_fails_all_who_wait_each_with_an_error_of_its_own_and_the_next_call_tries_anew() -> None:
    server = FakeServer(on={"server/discover": raises(lambda: McpConnectionError("refused", sent=False))})
    with server.client() as client:
        entered = threading.Event()

        def discover(asked: Asked) -> Any:
            entered.wait(0.05)
            raise McpConnectionError("refused", sent=False)

        server.on["server/discover"] = discover
        errors = in_threads(4, lambda index: client.open())
        assert [type(error) for error in errors] == [McpConnectionError] * 4
        assert len({id(error) for error in errors}) == 4
        del server.on["server/discover"]
        assert client.open().name == "fake"
        assert len(server.channels) >= 2
    assert all(channel.is_closed for channel in server.channels)


def test_a_short_time_limit_does_not_end_a_slow_start_that_others_wait_for() -> None:
    entered, release = threading.Event(), threading.Event()

    def discover(asked: Asked) -> Any:
        entered.set()
        assert release.wait(10)
        return discovery()

    server = FakeServer(on={"server/discover": discover})
    with server.client() as client:
        with pytest.raises(McpTimeoutError, match="over while it was being opened"):
            client.call_tool("add", timeout=0.05)
        assert entered.wait(10)
        release.set()
        assert client.call_tool("add").text == "add ran"
    assert server.methods().count("server/discover") == 1


def test_waiting_for_the_opening_can_be_cancelled() -> None:
    release, cancelled = threading.Event(), Cancellation()

    def discover(asked: Asked) -> Any:
        threading.Timer(0.02, cancelled.set).start()
        assert release.wait(10)
        return discovery()

    server = FakeServer(on={"server/discover": discover})
    with server.client() as client:
        with pytest.raises(McpCancelled, match="while it was being opened"):
            client.call_tool("add", cancelled=cancelled)
        release.set()
    assert server.calls() == []


def test_the_probe_gets_half_of_the_time_and_the_handshake_the_rest() -> None:
    server = FakeServer(on={"server/discover": raises(lambda: McpTimeoutError("silence"))}, eras=(Era.HANDSHAKE,))
    with server.client(start_timeout=8) as client:
        client.open()
    probe, initialize = server.asked
    assert probe.waiting.deadline is not None
    assert initialize.waiting.deadline is not None
    assert 3.5 < initialize.waiting.deadline - probe.waiting.deadline < 4.5


def test_the_probe_never_takes_more_than_ten_seconds() -> None:
    server = FakeServer(on={"server/discover": raises(lambda: McpTimeoutError("silence"))}, eras=(Era.HANDSHAKE,))
    with server.client(start_timeout=100) as client:
        client.open()
    probe, initialize = server.asked
    assert probe.waiting.deadline is not None
    assert initialize.waiting.deadline is not None
    assert 89 < initialize.waiting.deadline - probe.waiting.deadline < 91


# Losing the server (FIELD-NOTES MCP-12) ---------------------------------------------------


def test_a_session_that_is_over_is_opened_anew_once_for_all_threads_and_each_call_is_repeated_once() -> None:
    server = FakeServer(eras=(Era.HANDSHAKE,))
    with server.client() as client:
        client.call_tool("add")
        together = threading.Barrier(5)
        exchange = server.channels[0].exchange

        def late(request: Any, waiting: Any) -> Any:
            if request.message["method"] == "tools/call" and request.generation == 1:
                server.channels[0].lose()  # all of them before any goes on
                together.wait(10)
            return exchange(request, waiting)

        server.channels[0].exchange = late  # type: ignore[method-assign]
        assert in_threads(5, lambda index: client.call_tool("add", {"index": index}).text) == ["add ran"] * 5
    assert server.methods().count("initialize") == 2
    assert server.methods().count("server/discover") == 1, "the era is remembered"
    assert len(server.calls()) == 6
    assert len(server.notified) == 2
    assert {asked.request.generation for asked in server.calls()[1:]} == {2}


def test_a_session_that_is_over_again_at_once_is_an_error() -> None:
    server = FakeServer(eras=(Era.HANDSHAKE,), on={"tools/call": raises(lambda: McpSessionGone("gone", status=404))})
    with server.client() as client, pytest.raises(McpSessionGone):
        client.call_tool("add")
    assert len(server.calls()) == 2
    assert server.methods().count("initialize") == 2


def test_a_caller_who_looks_first_is_told_that_the_session_is_over_and_goes_on_over_a_new_one() -> None:
    server = FakeServer(eras=(Era.HANDSHAKE,))
    with server.client(repeat_after_session_end=False) as client:
        client.call_tool("add")
        server.channels[0].lose()
        with pytest.raises(McpSessionGone) as caught:
            client.call_tool("add")
        assert caught.value.sent is False
        assert len(server.calls()) == 1
        assert client.call_tool("add").text == "add ran"
    assert server.methods().count("initialize") == 2


def test_a_caller_who_looks_first_is_told_that_the_server_speaks_another_era_by_now() -> None:
    server = FakeServer(eras=(Era.STATELESS,))
    with server.client(repeat_after_session_end=False) as client:
        client.call_tool("add")
        server.eras = (Era.HANDSHAKE,)
        server.on["tools/call"] = refuses(-32022, supported=[LEGACY])
        with pytest.raises(McpSessionGone, match="no longer speaks version"):
            client.call_tool("add")
        del server.on["tools/call"]
        assert client.call_tool("add").text == "add ran"
        assert client.server.era is Era.HANDSHAKE


def test_a_call_that_may_have_run_is_not_repeated() -> None:
    server = FakeServer(eras=(Era.HANDSHAKE,), on={"tools/call": raises(lambda: McpConnectionError("exited"))})
    with server.client() as client:
        with pytest.raises(McpConnectionError):
            client.call_tool("add")
        assert len(server.calls()) == 1
        server.channels[0].lose()
        del server.on["tools/call"]
        assert client.call_tool("add").text == "add ran"
    assert server.methods().count("initialize") == 2


@pytest.mark.parametrize(
    "error",
    [
        McpTimeoutError("late"),
        McpConnectionError("broke"),
        McpProtocolError("odd"),
        McpAuthError("401"),
        McpCancelled("enough"),
    ],
)
@pytest.mark.parametrize("era", [Era.STATELESS, Era.HANDSHAKE])
def test_what_a_channel_raises_is_raised_and_nothing_is_sent_again(era: Era, error: Any) -> None:
    server = FakeServer(eras=(era,), on={"tools/call": raises(lambda: error)})
    with server.client() as client, pytest.raises(type(error)) as caught:
        client.call_tool("add")
    assert caught.value is error
    assert len(server.calls()) == 1


@pytest.mark.parametrize(("before", "after"), [(Era.STATELESS, Era.HANDSHAKE), (Era.HANDSHAKE, Era.STATELESS)])
def test_a_server_that_speaks_another_era_by_now_is_found_out(before: Era, after: Era) -> None:
    server = FakeServer(eras=(before,))

    def call(asked: Asked) -> Any:
        if asked.request.era not in server.eras:
            raise RpcError(-32022, "other version", {"supported": [MODERN if after is Era.STATELESS else LEGACY]})
        return {"content": []}

    server.on["tools/call"] = call
    with server.client() as client:
        client.call_tool("add")
        server.eras = (after,)
        client.call_tool("add")
        assert client.server.era is after
    assert [asked.request.era for asked in server.calls()] == [before, before, after]
    assert server.methods().count("initialize") == 1, "what was remembered is forgotten"


def test_a_version_that_is_refused_for_good_is_an_error_that_names_what_is_supported() -> None:
    server = FakeServer(on={"tools/call": refuses(-32022, supported=["2027-01-01"], requested=MODERN)})
    with (
        server.client() as client,
        pytest.raises(McpVersionError, match="it supports 2027-01-01") as caught,
    ):
        client.call_tool("add")
    assert caught.value.supported == ("2027-01-01",)
    assert len(server.calls()) == 2
    server.asked.clear()
    with server.client(mode="stateless") as client, pytest.raises(McpVersionError):
        client.call_tool("add")
    assert len(server.calls()) == 1


# Closing ----------------------------------------------------------------------------------


def test_close_is_idempotent_and_a_closed_client_says_so() -> None:
    server = FakeServer()
    client = server.client()
    client.call_tool("add")
    client.close()
    client.close()
    assert server.channels[0].closings == 1
    with pytest.raises(McpError, match="the client was closed") as caught:
        client.call_tool("add")
    assert caught.value.code == "closed"
    assert len(server.calls()) == 1


def test_a_client_that_was_never_used_closes() -> None:
    server = FakeServer()
    with server.client():
        pass
    assert server.asked == []
    assert server.channels[0].is_closed


def test_close_ends_an_opening_and_those_who_wait_for_it() -> None:
    entered, closed = threading.Event(), threading.Event()

    def discover(asked: Asked) -> Any:
        entered.set()
        assert closed.wait(10)
        raise McpConnectionError("closed meanwhile")

    server = FakeServer(on={"server/discover": discover}, eras=())
    client = server.client()
    channel = server.channels[0]
    close = channel.close

    def close_and_wake() -> None:
        close()
        closed.set()

    channel.close = close_and_wake  # type: ignore[method-assign]
    failed: list[BaseException] = []

    def call() -> None:
        try:
            client.call_tool("add")
        except McpError as error:
            failed.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    assert entered.wait(10)
    client.close()
    assert not [other for other in threading.enumerate() if other.name == "mantyx-mcp-open"]
    thread.join(10)
    assert [error.code for error in failed] == ["closed"]  # type: ignore[attr-defined]


def test_a_callback_may_close_its_client() -> None:
    done = threading.Event()
    server = FakeServer()
    client = server.client(on_tools_changed=lambda: (client.close(), done.set()))
    client.list_tools()
    server.asked[-1].notify("notifications/tools/list_changed")
    assert done.wait(10)
    client.close()


def test_a_client_that_is_dropped_lets_go_of_its_channel() -> None:
    server = FakeServer()
    client = server.client(on_log=lambda line: None)
    client.call_tool("add")
    channel = weakref.ref(server.channels[0])
    server.channels.clear()
    server.asked.clear()
    gone = weakref.ref(client)
    del client
    gc.collect()
    assert gone() is None
    assert channel() is None
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("mantyx-mcp")]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_the_child_of_a_fork_opens_a_channel_of_its_own_and_leaves_the_parents_alone() -> None:
    server = FakeServer(eras=(Era.HANDSHAKE,))
    with server.client() as client:
        client.call_tool("add")
        parent = server.channels[0]
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                client.call_tool("add")
                mine = server.channels[1]
                client.close()
                methods = server.methods()
                if not parent.is_closed and mine.is_closed and methods.count("initialize") == 2:
                    code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert client.call_tool("add").text == "add ran"
        assert len(server.channels) == 1


# Resources, prompts, completion, log, ping, anything else ----------------------------------


def test_resources_are_listed_and_read() -> None:
    server = FakeServer(
        on={
            "resources/list": lambda asked: (
                {
                    "resources": [{"uri": f"a:{asked.params.get('cursor', '0')}", "name": "n"}, {"name": "no uri"}],
                    **({} if asked.params else {"nextCursor": "1"}),
                }
                if not asked.params.get("cursor")
                else {"resources": [{"uri": "a:1", "name": "m"}]}
            ),
            "resources/templates/list": lambda asked: {"resourceTemplates": [{"uriTemplate": "a:{x}", "name": "t"}]},
            "resources/read": lambda asked: {
                "contents": [
                    {"uri": asked.params["uri"], "text": "hello", "mimeType": "text/plain"},
                    {"uri": "a:2", "blob": "AAEC"},
                ]
            },
        },
        eras=(Era.HANDSHAKE,),
    )
    with server.client() as client:
        assert [(item.uri, item.name) for item in client.list_resources()] == [("a:0", "n"), ("a:1", "m")]
        assert [item.uri_template for item in client.list_resource_templates()] == ["a:{x}"]
        text, blob = client.read_resource("a:1")
    assert (text.uri, text.text, text.mime_type, text.content) == ("a:1", "hello", "text/plain", b"hello")
    assert (blob.text, blob.content) == (None, b"\0\1\2")


@pytest.mark.parametrize(
    ("result", "sentence"),
    [
        ({"contents": {}}, "'contents' is an object, must be an array"),
        ({"contents": [{"uri": "a:b"}]}, "'text' is missing, must be a string, or 'blob' one"),
        ({"contents": ["x"]}, r"contents\[0\]: got a string, must be an object"),
    ],
)
def test_contents_that_cannot_be_read_name_the_field(result: Any, sentence: str) -> None:
    server = FakeServer(on={"resources/read": lambda asked: result})
    with server.client() as client, pytest.raises(McpProtocolError, match=sentence):
        client.read_resource("a:b")


@pytest.mark.parametrize("code", [-32002, -32602])
def test_a_resource_that_is_not_there_is_refused(code: int) -> None:
    server = FakeServer(on={"resources/read": refuses(code)})
    with server.client() as client, pytest.raises(McpRequestError, match="refused resources/read"):
        client.read_resource("a:b")


def test_prompts_are_listed_and_got() -> None:
    server = FakeServer(
        on={
            "prompts/list": lambda asked: {"prompts": [{"name": "p", "arguments": [{"name": "a", "required": True}]}]},
            "prompts/get": lambda asked: {
                "description": "d",
                "messages": [{"role": "user", "content": {"type": "text", "text": str(asked.params.get("arguments"))}}],
            },
        }
    )
    with server.client() as client:
        assert [item.name for item in client.list_prompts()] == ["p"]
        assert client.get_prompt("p", {"a": "1"}).messages[0].text == "{'a': '1'}"
        assert client.get_prompt("p").messages[0].text == "None"


def test_completions_are_asked_for() -> None:
    server = FakeServer(on={"completion/complete": lambda asked: {"completion": {"values": ["ab"], "hasMore": True}}})
    with server.client() as client:
        found = client.complete("x", "a", prompt="p", context={"y": "1"})
        client.complete("x", "a", uri_template="a:{x}")
    assert (found.values, found.total, found.has_more) == (("ab",), None, True)
    first, second = (dict(asked.params) for asked in server.calls("completion/complete"))
    del first["_meta"], second["_meta"]
    argument = {"name": "x", "value": "a"}
    assert first == {
        "ref": {"type": "ref/prompt", "name": "p"},
        "argument": argument,
        "context": {"arguments": {"y": "1"}},
    }
    assert second == {"ref": {"type": "ref/resource", "uri": "a:{x}"}, "argument": argument}


def test_ping_is_what_each_era_has_for_it() -> None:
    for era, method in ((Era.STATELESS, "server/discover"), (Era.HANDSHAKE, "ping")):
        server = FakeServer(eras=(era,))
        with server.client() as client:
            client.ping()
        assert server.methods()[-1] == method


def test_a_log_level_is_set_by_request_in_a_handshake_and_again_in_the_next_session() -> None:
    server = FakeServer(eras=(Era.HANDSHAKE,))
    with server.client() as client:
        client.set_log_level("warning")
        server.channels[0].lose()
        client.call_tool("add")
    levels = [asked.params["level"] for asked in server.calls("logging/setLevel")]
    assert levels == ["warning", "warning"]
    assert all("_meta" not in asked.params for asked in server.asked if asked.method == "tools/call")


def test_a_log_level_that_cannot_be_set_again_costs_nothing_else() -> None:
    server = FakeServer(eras=(Era.HANDSHAKE,))
    with server.client() as client:
        client.set_log_level("warning")
        server.channels[0].lose()
        server.on["logging/setLevel"] = raises(lambda: McpProtocolError("odd"))
        assert client.call_tool("add").text == "add ran"


def test_a_log_level_is_said_in_each_stateless_request() -> None:
    server = FakeServer()
    key = f"{META}logLevel"
    with server.client() as client:
        client.call_tool("add")
        client.set_log_level("error")
        client.call_tool("add")
    assert [asked.meta.get(key) for asked in server.calls()] == [None, "error"]
    assert "logging/setLevel" not in server.methods()
    lines: list[Any] = []
    got = threading.Event()
    server = FakeServer(
        on={"tools/call": lambda asked: asked.notify("notifications/message", {"level": "info", "data": 1}) or {}}
    )
    with server.client(on_log=lambda line: (lines.append(line), got.set())) as client:
        client.call_tool("add")
        assert got.wait(10)
    assert server.calls()[0].meta[key] == "info"
    assert [(line.level, line.data) for line in lines] == [("info", 1)]


def test_any_other_request_can_be_sent() -> None:
    server = FakeServer(on={"x/new": lambda asked: {"got": dict(asked.params)}})
    with server.client() as client:
        got = client.request("x/new", {"a": [1], "_meta": {"traceparent": "00-1"}})["got"]
    assert got["a"] == [1]
    assert got["_meta"]["traceparent"] == "00-1"
    assert got["_meta"][f"{META}protocolVersion"] == MODERN


def test_the_servers_requests_are_answered_while_a_call_is_pending() -> None:
    answers = {}

    def call(asked: Asked) -> Any:
        for method in ("ping", "roots/list", "sampling/createMessage", "elicitation/create", "tasks/list", "x/new"):
            answers[method] = asked.ask(method, asked.request.message["id"])  # their ids are their own
        asked.notify("notifications/new")
        return {"content": []}

    server = FakeServer(eras=(Era.HANDSHAKE,), on={"tools/call": call})
    with server.client() as client:
        client.call_tool("add")
    number = server.calls()[0].request.message["id"]
    assert answers.pop("ping") == {"jsonrpc": "2.0", "id": number, "result": {}}
    assert {answer["error"]["code"] for answer in answers.values()} == {-32601}


# Options ----------------------------------------------------------------------------------

BAD_OPTIONS = {
    "mode": ({"mode": "legacy"}, "mode: got 'legacy', must be one of 'auto', 'handshake', 'stateless'"),
    "timeout": ({"timeout": 0}, "timeout: got 0, must be a number of seconds above 0"),
    "idle_timeout": ({"idle_timeout": "5"}, "idle_timeout: got '5'"),
    "start_timeout": ({"start_timeout": None}, "start_timeout: got None"),
    "on_progress": ({"on_progress": 1}, "on_progress: got 1, must be a function"),
    "on_log": ({"on_log": 1}, "on_log: got 1, must be a function"),
    "on_tools_changed": ({"on_tools_changed": 1}, "on_tools_changed: got 1, must be a function"),
    "client_info": ({"client_info": "me"}, "client_info: got a string, must be a mapping with a name"),
    "client_info name": ({"client_info": {"version": "1"}}, r"client_info\.name: got None, must be a non-empty"),
    "max_message_bytes": ({"max_message_bytes": 1}, "max_message_bytes: got 1, must be a whole number, 1024 or above"),
    "roots": ({"roots": "/data"}, "roots: got a string, must be a list of folders"),
    "repetition": ({"repeat_after_session_end": 1}, "repeat_after_session_end: got 1, must be True or False"),
    "a root": ({"roots": [7]}, r"roots\[0\]: got 7, must be a folder"),
    "an empty root": ({"roots": [""]}, r"roots\[0\]: got '', must be a folder"),
    "a root's uri": ({"roots": [{"uri": "http://x"}]}, r"roots\[0\]\.uri: got 'http://x', must be a file:// uri"),
}


@pytest.mark.parametrize(("options", "sentence"), BAD_OPTIONS.values(), ids=BAD_OPTIONS)
def test_a_bad_option_is_refused_when_the_client_is_made(options: Any, sentence: str) -> None:
    with pytest.raises(MantyxConfigError, match=sentence):
        FakeServer().client(**options)


def test_a_client_made_without_saying_how_is_told_the_two_ways() -> None:
    with pytest.raises(MantyxConfigError, match=r"got a string, .* use McpClient\.http\(url\) or McpClient\.stdio"):
        McpClient("http://127.0.0.1/mcp")  # type: ignore[arg-type]


def test_an_option_that_does_not_exist_is_a_type_error_that_suggests_the_right_one() -> None:
    with pytest.raises(TypeError, match="no such option: 'time_out'; did you mean 'timeout'"):
        FakeServer().client(time_out=3)


@pytest.mark.parametrize("make", [McpClient.stdio, McpClient.http, McpClient])
def test_signatures_show_every_option_with_its_default(make: Any) -> None:
    shown = inspect.signature(make).parameters
    assert {name: shown[name].default for name in ("mode", "timeout", "start_timeout", "max_message_bytes")} == {
        "mode": "auto",
        "timeout": 60.0,
        "start_timeout": 30.0,
        "max_message_bytes": 64 * 1024 * 1024,
    }
    assert "options" not in shown
    described = inspect.getdoc(make.__init__ if isinstance(make, type) else make) or ""
    assert [name for name in inspect.signature(McpOptions).parameters if f"\n    {name}: " not in described] == []
    assert "**options" not in described


def test_a_repr_names_the_server() -> None:
    with FakeServer().client() as client:
        assert repr(client) == f"<McpClient of {LABEL}>"
    assert repr(client) == f"<McpClient of {LABEL}, closed>"
