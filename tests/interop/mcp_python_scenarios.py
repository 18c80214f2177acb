"""What the server in `servers/mcp_python.py` is driven through: every kind of content and error that it offers."""

from __future__ import annotations

import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from mantyx_sync.errors import MantyxTimeoutError, ToolError
from mantyx_sync.mcp.channel import Cancellation, Era
from mantyx_sync.mcp.client import McpClient
from mantyx_sync.mcp.content import (
    McpAudio,
    McpEmbeddedResource,
    McpImage,
    McpResourceLink,
    McpText,
)
from mantyx_sync.mcp.errors import McpCancelled, McpError, McpRequestError
from tests.waiting import wait_until

from .driving import Scenario, refusal_of, text_of
from .mcp_rows import Server

__all__ = ["SCENARIOS"]

SCENARIOS: dict[str, Scenario] = {}
BLOB = bytes(range(256))

_marks = itertools.count()


def scenario(function: Scenario) -> Scenario:
    SCENARIOS[function.__name__] = function
    return function


@scenario
def it_is_opened_in_its_era(client: McpClient, server: Server) -> None:
    found = client.server
    assert (found.name, found.era, found.instructions) == ("interop", server.row.era, "Use it well.")
    expected = "2026-07-28" if server.row.era is Era.STATELESS else "2025-11-25"
    assert found.protocol_version == expected
    assert {"tools", "resources", "prompts"} <= found.capabilities.keys()
    client.ping()


@scenario
def its_tools_are_listed_verbatim(client: McpClient, server: Server) -> None:
    tools = {tool.name: tool for tool in client.list_tools(refresh=True)}
    assert list(tools)[:4] == ["add", "everything", "nothing", "weather"]
    add = tools["add"]
    assert (add.title, add.description, add.display_name) == ("Add two numbers", "Add.", "Add two numbers")
    assert add.input_schema["required"] == ["a", "b"]
    assert add.output_schema is not None
    assert add.to_wire() == add.raw
    assert "ctx" not in tools["work"].input_schema["properties"]


@scenario
def a_number_comes_as_text_and_structured(client: McpClient, server: Server) -> None:
    result = client.call_tool("add", {"a": 40, "b": 2})
    assert (result.text, result.structured_content, result.is_error) == ("42", {"result": 42}, False)


@scenario
def structured_content_fits_its_schema(client: McpClient, server: Server) -> None:
    result = client.call_tool("weather", {"city": "Zürich"})
    assert result.structured_content == {"city": "Zürich", "degrees": 21.5}
    assert '"Zürich"' in result.text


@scenario
def a_failure_without_structured_content_keeps_its_text(client: McpClient, server: Server) -> None:
    result = client.call_tool("misfit")
    assert result.is_error
    assert "eather" in result.text  # 1.x finds fault with the structured content itself


@scenario
def every_kind_of_content_comes_through(client: McpClient, server: Server) -> None:
    result = client.call_tool("everything")
    one, image, audio, link, inner, blob, two = result.content
    assert isinstance(one, McpText)
    assert one.text == "one"
    assert isinstance(image, McpImage)
    assert (image.mime_type, image.content[:4]) == ("image/png", b"\x89PNG")
    assert isinstance(audio, McpAudio)
    assert (audio.mime_type, audio.content) == ("audio/wav", b"RIFF....WAVE")
    assert isinstance(link, McpResourceLink)
    assert (link.uri, link.name, link.description) == ("memo://text", "link", "a memo")
    assert isinstance(inner, McpEmbeddedResource)
    assert (inner.resource.uri, inner.resource.mime_type, inner.resource.text) == (
        "memo://inner", "text/plain", "inner text"
    )  # fmt: skip
    assert isinstance(blob, McpEmbeddedResource)
    assert blob.resource.content == BLOB
    assert isinstance(two, McpText)
    assert two.raw["annotations"]["priority"] == 0.5
    lines = result.text.split("\n")
    assert [lines[0], lines[1], lines[2], lines[-1]] == ["one", "link: memo://text", "inner text", "two"]
    assert [file.mime_type for file in result.files] == ["image/png", "audio/wav"]
    assert len(result.to_tool_result().files or ()) == 2


@scenario
def no_content_is_no_text(client: McpClient, server: Server) -> None:
    result = client.call_tool("nothing")
    assert (result.content, result.text, result.is_error) == ((), "", False)


@scenario
def a_tool_that_fails_is_a_result(client: McpClient, server: Server) -> None:
    result = client.call_tool("fail", {"text": "the disk is full"})
    assert result.is_error
    assert "fail" in result.text
    with pytest.raises(ToolError):
        result.to_tool_result()


@scenario
def a_tool_that_is_not_there_is_told(client: McpClient, server: Server) -> None:
    assert "no_such_tool" in refusal_of(client, "no_such_tool")


@scenario
def arguments_that_do_not_fit_are_told(client: McpClient, server: Server) -> None:
    result = client.call_tool("add", {"a": "many"})
    assert result.is_error
    assert "a" in result.text
    assert "Field required" in result.text


@scenario
def a_method_that_is_not_there_is_refused(client: McpClient, server: Server) -> None:
    with pytest.raises(McpRequestError) as caught:
        client.request("no/such/method")
    assert caught.value.rpc_code in (-32601, -32602)


@scenario
def progress_is_passed_on(client: McpClient, server: Server) -> None:
    heard: list[Any] = []
    assert client.call_tool("work", {"steps": 5}, on_progress=heard.append).text == "worked"
    expected = [(step, 5, f"step {step}") for step in range(1, 6)] if server.row.can("streams") else []
    assert [(each.progress, each.total, each.message) for each in heard] == expected


@scenario
def progress_extends_the_idle_time(client: McpClient, server: Server) -> None:
    if server.row.can("streams"):
        assert client.call_tool("work", {"steps": 30}, idle_timeout=0.3).text == "worked"
    else:
        with pytest.raises(MantyxTimeoutError, match="idle"):
            client.call_tool("work", {"steps": 30}, idle_timeout=0.3)


@scenario
def log_lines_arrive(client: McpClient, server: Server) -> None:
    lines: list[Any] = []
    with server.client(on_log=lines.append) as other:
        assert text_of(other, "talk") == "talked"
        if not server.row.can("streams"):
            return
        wait_until(lambda: lines and lines[-1].level == "warning", f"only {lines}")
        said = [(line.level, line.data, line.logger) for line in lines]
        assert said[-2:] == [("info", "a info line", "talker"), ("warning", "a warning line", "talker")]


@scenario
def a_call_ends_at_its_time_limit_and_is_cancelled(client: McpClient, server: Server) -> None:
    mark = f"limit{next(_marks)}"
    start = time.monotonic()
    with pytest.raises(MantyxTimeoutError):
        client.call_tool("wait", {"seconds": 30, "mark": mark}, timeout=0.5)
    assert time.monotonic() - start < 2.0
    expected = "True" if server.row.can("cancels") else "False"
    assert text_of(client, "noted", mark=f"{mark} cancelled").lower() == expected.lower()
    assert text_of(client, "add", a=1, b=1) == "2"


@scenario
def a_call_can_be_cancelled(client: McpClient, server: Server) -> None:
    mark = f"cancel{next(_marks)}"
    cancellation = Cancellation()
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(client.call_tool, "wait", {"seconds": 30, "mark": mark}, cancelled=cancellation)
        assert text_of(client, "noted", mark=f"{mark} begun").lower() == "true"
        cancellation.set()
        with pytest.raises(McpCancelled):
            waiting.result(5.0)
    expected = "True" if server.row.can("cancels") else "False"
    assert text_of(client, "noted", mark=f"{mark} cancelled").lower() == expected.lower()


@scenario
def large_messages_go_both_ways(client: McpClient, server: Server) -> None:
    assert text_of(client, "large", size=2_000_000) == "ä" * 2_000_000
    text = "ö" * 1_000_000
    assert text_of(client, "echo", text=text) == text


@scenario
def a_message_too_large_for_the_server_is_told(client: McpClient, server: Server) -> None:
    text = "x" * 5_000_000
    if server.row.is_http:
        with pytest.raises(McpError) as caught:
            client.call_tool("echo", {"text": text})
        assert "413" in str(caught.value) or "large" in str(caught.value).lower()
        assert text_of(client, "add", a=1, b=1) == "2"
    else:
        assert text_of(client, "echo", text=text) == text


@scenario
def an_answer_larger_than_allowed_is_refused(client: McpClient, server: Server) -> None:
    with server.client(max_message_bytes=100_000) as other:
        with pytest.raises(McpError, match=r"(larger|longer) than"):
            other.call_tool("large", {"size": 1_000_000})
        assert text_of(other, "add", a=1, b=1) == "2"


@scenario
def calls_do_not_hold_each_other_up(client: McpClient, server: Server) -> None:
    mark = f"slow{next(_marks)}"
    with ThreadPoolExecutor(20) as pool:
        slow = pool.submit(client.call_tool, "wait", {"seconds": 1.0, "mark": mark})
        answers = list(pool.map(lambda number: text_of(client, "add", a=number, b=1), range(60)))
        assert answers == [str(number + 1) for number in range(60)]
        assert slow.result(10).text == "waited"


@scenario
def its_requests_are_answered(client: McpClient, server: Server) -> None:
    row = server.row
    with server.client(roots=["/tmp"]) as other:
        if not row.can("tries"):
            for what in ("ping", "roots"):
                assert text_of(other, "ask", what=what).startswith("refused: ")
        elif not row.can("asks"):
            with pytest.raises(MantyxTimeoutError):
                other.call_tool("ask", {"what": "ping"}, timeout=0.5)
        else:
            assert text_of(other, "ask", what="ping") == "pong"
            assert text_of(other, "ask", what="roots").startswith("file:///tmp")
            assert text_of(client, "ask", what="roots").startswith("refused: ")


@scenario
def its_questions_to_a_person_are_refused(client: McpClient, server: Server) -> None:
    ask = {"what": "name"}
    if server.row.can("asks") and server.row.can("asks inside"):
        assert text_of(client, "ask", **ask).startswith("refused: ")
    else:
        with pytest.raises(MantyxTimeoutError):
            client.call_tool("ask", ask, timeout=0.5)


@scenario
def resources_are_listed_and_read(client: McpClient, server: Server) -> None:
    found = {resource.uri: resource for resource in client.list_resources()}
    assert found["memo://text"].mime_type == "text/plain"
    assert found["memo://text"].description == "A memo"
    (memo,) = client.read_resource("memo://text")
    assert (memo.text, memo.mime_type) == ("memo: grüß dich", "text/plain")
    (raw,) = client.read_resource("memo://bytes")
    assert (raw.text, raw.content) == (None, BLOB)
    (template,) = client.list_resource_templates()
    assert template.uri_template == "memo://items/{number}"
    assert client.read_resource("memo://items/7")[0].text == "item 7"


@scenario
def a_resource_that_is_not_there_is_refused(client: McpClient, server: Server) -> None:
    with pytest.raises(McpRequestError) as caught:
        client.read_resource("memo://no-such-thing")
    assert caught.value.rpc_code in (0, -32002, -32602)


@scenario
def prompts_are_listed_and_got(client: McpClient, server: Server) -> None:
    prompts = {prompt.name: prompt for prompt in client.list_prompts()}
    assert set(prompts) == {"greet", "talk_over"}
    assert (prompts["greet"].title, prompts["greet"].arguments[0].name) == ("Greeting", "name")
    (message,) = client.get_prompt("greet", {"name": "Ada"}).messages
    assert (message.role, message.text) == ("user", "Say hello to Ada.")
    look, picture, answer = client.get_prompt("talk_over").messages
    assert (look.role, answer.role, answer.text) == ("user", "assistant", "I see.")
    assert isinstance(picture.content, McpImage)


@scenario
def a_prompt_that_cannot_be_made_is_refused(client: McpClient, server: Server) -> None:
    for name, arguments in (("no_such_prompt", {}), ("greet", {})):
        with pytest.raises(McpRequestError):
            client.get_prompt(name, arguments)


@scenario
def arguments_are_completed(client: McpClient, server: Server) -> None:
    found = client.complete("name", "A", prompt="greet")
    assert (found.values, found.total, found.has_more) == (("Ada", "Alan"), 2, False)


@scenario
def a_new_tool_is_announced(client: McpClient, server: Server) -> None:
    changed = threading.Event()
    with server.client(on_tools_changed=changed.set) as other:
        before = {tool.name for tool in other.list_tools()}
        assert text_of(other, "grow") == "grown"
        if server.row.can("pushes"):
            assert changed.wait(10)
        after = {tool.name for tool in other.list_tools(refresh=not server.row.can("pushes"))}
        assert "grown" in after
        assert before <= after
        assert text_of(other, "grown", text="hello") == "hello"


@scenario
def arguments_go_in_headers_where_the_tool_wants_them(client: McpClient, server: Server) -> None:
    assert text_of(client, "where", region="Zürich", depth=3) == "Zürich 3"
    assert text_of(client, "where", region=" =?base64?eA==?= ") == " =?base64?eA==?=  0"
