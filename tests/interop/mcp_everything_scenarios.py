"""What `@modelcontextprotocol/server-everything` is driven through: every kind of content and error that it offers."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from mantyx_sync.errors import MantyxTimeoutError
from mantyx_sync.mcp.channel import Cancellation, Era
from mantyx_sync.mcp.client import McpClient
from mantyx_sync.mcp.content import McpEmbeddedResource, McpImage, McpResourceLink, McpText
from mantyx_sync.mcp.errors import McpCancelled, McpRequestError
from tests.waiting import wait_until

from .driving import Scenario, refusal_of, text_of
from .mcp_rows import Server

__all__ = ["SCENARIOS"]

SCENARIOS: dict[str, Scenario] = {}


def scenario(function: Scenario) -> Scenario:
    SCENARIOS[function.__name__] = function
    return function


@scenario
def it_is_opened(client: McpClient, server: Server) -> None:
    found = client.server
    assert (found.name, found.title) == ("mcp-servers/everything", "Everything Reference Server")
    assert (found.era, found.protocol_version) == (Era.HANDSHAKE, "2025-11-25")
    assert found.instructions
    client.ping()


@scenario
def its_tools_are_listed(client: McpClient, server: Server) -> None:
    tools = {tool.name: tool for tool in client.list_tools()}
    assert {"echo", "get-sum", "get-tiny-image", "get-structured-content"} <= tools.keys()
    assert tools["get-structured-content"].output_schema is not None
    assert tools["get-sum"].to_wire() == tools["get-sum"].raw


@scenario
def text_comes_through(client: McpClient, server: Server) -> None:
    assert text_of(client, "echo", message="grüß dich 🙂") == "Echo: grüß dich 🙂"
    assert "42" in text_of(client, "get-sum", a=40, b=2)


@scenario
def pictures_come_through(client: McpClient, server: Server) -> None:
    result = client.call_tool("get-tiny-image")
    (image,) = [block for block in result.content if isinstance(block, McpImage)]
    assert (image.mime_type, image.content[:4]) == ("image/png", b"\x89PNG")
    assert len(result.files) == 1
    assert result.text


@scenario
def annotated_content_comes_through(client: McpClient, server: Server) -> None:
    result = client.call_tool("get-annotated-message", {"messageType": "error", "includeImage": True})
    text, image = result.content
    assert isinstance(text, McpText)
    assert isinstance(image, McpImage)
    assert text.raw["annotations"]["priority"] == 1.0
    assert not result.is_error


@scenario
def links_come_through_and_can_be_read(client: McpClient, server: Server) -> None:
    result = client.call_tool("get-resource-links", {"count": 4})
    links = [block for block in result.content if isinstance(block, McpResourceLink)]
    assert len(links) == 4
    assert all(link.uri in result.text for link in links)
    for link in links:
        (part,) = client.read_resource(link.uri)
        assert part.content.startswith(b"Resource ")


@scenario
def embedded_resources_come_through(client: McpClient, server: Server) -> None:
    for kind in ("Text", "Blob"):
        result = client.call_tool("get-resource-reference", {"resourceType": kind, "resourceId": 3})
        (embedded,) = [block for block in result.content if isinstance(block, McpEmbeddedResource)]
        assert (embedded.resource.text is None) == (kind == "Blob")
        assert embedded.resource.content.startswith(b"Resource 3")


@scenario
def a_resource_of_the_session_comes_as_link_and_as_blob(client: McpClient, server: Server) -> None:
    given = {"name": "hello.gz", "data": "data:text/plain;base64,aGVsbG8="}
    (inline,) = client.call_tool("gzip-file-as-resource", {**given, "outputType": "resource"}).content
    assert isinstance(inline, McpEmbeddedResource)
    assert inline.resource.content[:2] == b"\x1f\x8b"
    (link,) = client.call_tool("gzip-file-as-resource", {**given, "outputType": "resourceLink"}).content
    assert isinstance(link, McpResourceLink)
    assert client.read_resource(link.uri)[0].content[:2] == b"\x1f\x8b"


@scenario
def structured_content_fits_its_schema(client: McpClient, server: Server) -> None:
    result = client.call_tool("get-structured-content", {"location": "Chicago"})
    assert set(result.structured_content) == {"temperature", "conditions", "humidity"}
    assert result.text.startswith("{")


@scenario
def arguments_that_do_not_fit_are_told(client: McpClient, server: Server) -> None:
    result = client.call_tool("get-structured-content", {"location": "Atlantis"})
    assert result.is_error
    assert "location" in result.text


@scenario
def a_tool_that_is_not_there_is_told(client: McpClient, server: Server) -> None:
    assert "no-such-tool" in refusal_of(client, "no-such-tool")


@scenario
def a_method_that_is_not_there_is_refused(client: McpClient, server: Server) -> None:
    with pytest.raises(McpRequestError) as caught:
        client.request("no/such/method")
    assert caught.value.rpc_code == -32601


@scenario
def progress_is_passed_on_and_extends_the_idle_time(client: McpClient, server: Server) -> None:
    heard: list[Any] = []
    arguments = {"duration": 0.9, "steps": 6}
    result = client.call_tool("trigger-long-running-operation", arguments, on_progress=heard.append, idle_timeout=0.6)
    assert "completed" in result.text
    assert [(each.progress, each.total) for each in heard] == [(step, 6) for step in range(1, 7)]


@scenario
def a_call_ends_at_its_time_limit(client: McpClient, server: Server) -> None:
    arguments = {"duration": 20, "steps": 100}
    start = time.monotonic()
    with pytest.raises(MantyxTimeoutError):
        client.call_tool("trigger-long-running-operation", arguments, timeout=0.5, on_progress=lambda _: None)
    with pytest.raises(MantyxTimeoutError, match="idle"):
        client.call_tool("trigger-long-running-operation", {"duration": 20, "steps": 2}, idle_timeout=0.3)
    assert time.monotonic() - start < 3.0
    assert text_of(client, "echo", message="on") == "Echo: on"


@scenario
def a_call_can_be_cancelled(client: McpClient, server: Server) -> None:
    cancellation, begun = Cancellation(), threading.Event()
    arguments = {"duration": 20, "steps": 200}
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(
            client.call_tool,
            "trigger-long-running-operation",
            arguments,
            on_progress=lambda _: begun.set(),
            cancelled=cancellation,
        )
        assert begun.wait(10)
        cancellation.set()
        with pytest.raises(McpCancelled):
            waiting.result(5.0)
    assert text_of(client, "echo", message="on") == "Echo: on"


@scenario
def log_lines_arrive_as_the_level_wants(client: McpClient, server: Server) -> None:
    lines: list[Any] = []
    with server.client(on_log=lines.append) as other:
        other.set_log_level("debug")
        assert "Started" in text_of(other, "toggle-simulated-logging")
        wait_until(lambda: lines, "no line came")
        assert "message" in str(lines[0].data)
        assert "Stopped" in text_of(other, "toggle-simulated-logging")


@scenario
def roots_are_answered(client: McpClient, server: Server) -> None:
    with server.client(roots=["/tmp"]) as other:
        wait_until(
            lambda: "get-roots-list" in {tool.name for tool in other.list_tools(refresh=True)}, "no tool for roots"
        )
        assert "file:///tmp" in text_of(other, "get-roots-list")


@scenario
def tools_that_need_more_of_a_client_are_not_offered(client: McpClient, server: Server) -> None:
    names = {tool.name for tool in client.list_tools(refresh=True)}
    assert "trigger-sampling-request" not in names
    assert "trigger-elicitation-request" not in names


@scenario
def large_messages_go_both_ways(client: McpClient, server: Server) -> None:
    text = "ö" * (500_000 if server.row.is_http else 4_000_000)
    assert text_of(client, "echo", message=text) == f"Echo: {text}"


@scenario
def calls_do_not_hold_each_other_up(client: McpClient, server: Server) -> None:
    with ThreadPoolExecutor(20) as pool:
        slow = pool.submit(client.call_tool, "trigger-long-running-operation", {"duration": 0.8, "steps": 1})
        answers = list(pool.map(lambda number: text_of(client, "get-sum", a=number, b=1), range(60)))
        assert all(f"{number + 1}" in answer for number, answer in enumerate(answers))
        assert "completed" in slow.result(10).text


@scenario
def resources_are_listed_and_read(client: McpClient, server: Server) -> None:
    resources = client.list_resources()
    assert len(resources) >= 5
    (document,) = client.read_resource(resources[0].uri)
    assert document.text
    assert document.mime_type == resources[0].mime_type
    templates = {template.uri_template for template in client.list_resource_templates()}
    assert templates == {"demo://resource/dynamic/text/{resourceId}", "demo://resource/dynamic/blob/{resourceId}"}


@scenario
def a_resource_that_is_not_there_is_refused(client: McpClient, server: Server) -> None:
    for uri in ("demo://resource/no/such", "demo://resource/dynamic/text/minus"):
        with pytest.raises(McpRequestError):
            client.read_resource(uri)


@scenario
def prompts_are_listed_and_got(client: McpClient, server: Server) -> None:
    prompts = {prompt.name for prompt in client.list_prompts()}
    assert prompts == {"simple-prompt", "args-prompt", "completable-prompt", "resource-prompt"}
    assert client.get_prompt("simple-prompt").messages[0].role == "user"
    assert "Bern" in client.get_prompt("args-prompt", {"city": "Bern"}).messages[0].text
    result = client.get_prompt("resource-prompt", {"resourceType": "Blob", "resourceId": "2"})
    embedded = result.messages[1].content
    assert isinstance(embedded, McpEmbeddedResource)
    assert embedded.resource.content.startswith(b"Resource 2")


@scenario
def a_prompt_that_cannot_be_made_is_refused(client: McpClient, server: Server) -> None:
    for name, arguments in (("no-such-prompt", {}), ("args-prompt", {}), ("resource-prompt", {"resourceType": "X"})):
        with pytest.raises(McpRequestError):
            client.get_prompt(name, arguments)


@scenario
def arguments_are_completed(client: McpClient, server: Server) -> None:
    found = client.complete("department", "E", prompt="completable-prompt")
    assert found.values == ("Engineering",)
    names = client.complete("name", "", prompt="completable-prompt", context={"department": "Engineering"})
    assert names.values
    template = client.complete("resourceId", "7", uri_template="demo://resource/dynamic/text/{resourceId}")
    assert template.values == ("7",)
