"""The MCP client when servers that others wrote die, forget, page, answer late or speak something else."""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Iterator

import pytest
import requests

from mantyx_sync.mcp.channel import Era
from mantyx_sync.mcp.client import McpClient
from mantyx_sync.mcp.errors import (
    McpConnectionError,
    McpProtocolError,
    McpRequestError,
    McpStatusError,
    McpVersionError,
)
from tests.waiting import wait_until

from .driving import text_of
from .mcp_rows import EVERYTHING, FILESYSTEM, PYTHON, Row, running
from .peers import HERE, children, node_script, program, python_of, version_of

HTTP = [row for row in PYTHON if row.is_http]
STDIO = [row for row in PYTHON if not row.is_http]
WITH_SESSIONS = [row for row in HTTP if row.era is Era.HANDSHAKE and "stateless" not in row.words]


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    wait_until(lambda: not [t for t in threading.enumerate() if t.name.startswith("mantyx")], "a thread goes on", 3.0)


def table(rows: list[Row]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("row", rows, ids=[row.name for row in rows])


def test_the_environments_are_what_they_are_called() -> None:
    assert int(version_of("mcp-new").split(".")[0]) >= 2
    assert version_of("mcp-old").split(".")[0] == "1"


def test_the_node_project_is_there() -> None:
    for name in ("server-everything", "server-filesystem", "sdk"):
        assert version_of(name)


@table(HTTP)
def test_a_server_that_dies_in_mid_call_fails_the_call_at_once(row: Row, tmp_path: Path) -> None:
    with running(row, tmp_path) as server, server.client() as client:
        assert text_of(client, "add", a=1, b=1) == "2"
        with ThreadPoolExecutor() as pool:
            other = pool.submit(client.call_tool, "wait", {"seconds": 30, "mark": "m"})
            assert text_of(client, "noted", mark="m begun").lower() == "true"
            with pytest.raises(McpConnectionError) as caught:
                client.call_tool("die")
            assert caught.value.sent is None
            with pytest.raises(McpConnectionError):
                other.result(5.0)

        def was_sent() -> object:
            with pytest.raises(McpConnectionError) as caught:
                client.call_tool("add", {"a": 1, "b": 1})
            return caught.value.sent

        # A connection that was idle may break a moment later than the others.
        wait_until(lambda: was_sent() is False, "calls to a server that is gone are taken for sent")


@table(STDIO)
def test_a_child_that_dies_in_mid_call_fails_the_call_at_once_and_the_next_starts_another(
    row: Row, tmp_path: Path
) -> None:
    with running(row, tmp_path) as server, server.client() as client:
        assert text_of(client, "add", a=1, b=1) == "2"
        with ThreadPoolExecutor() as pool:
            other = pool.submit(client.call_tool, "wait", {"seconds": 30, "mark": "m"})
            assert text_of(client, "noted", mark="m begun").lower() == "true"
            with pytest.raises(McpConnectionError) as caught:
                client.call_tool("die")
            assert caught.value.exit_code == 3
            with pytest.raises(McpConnectionError):
                other.result(5.0)
        assert text_of(client, "add", a=1, b=1) == "2"


@pytest.mark.parametrize("package", ["server-everything", "server-filesystem"])
def test_a_node_child_that_is_killed_fails_the_call_at_once(package: str, tmp_path: Path) -> None:
    row = EVERYTHING[0] if package == "server-everything" else FILESYSTEM[0]
    with running(row, tmp_path) as server, server.client() as client:
        before = children()
        client.list_tools()
        (child,) = children() - before
        with ThreadPoolExecutor() as pool:
            if row is EVERYTHING[0]:
                arguments = {"duration": 30, "steps": 1}
                waiting = pool.submit(client.call_tool, "trigger-long-running-operation", arguments)
                wait_until(lambda: waiting.running(), "the call does not begin")
                client.ping()
                os.kill(child, signal.SIGKILL)
                with pytest.raises(McpConnectionError) as caught:
                    waiting.result(5.0)
                assert caught.value.exit_code == -9
            else:
                os.kill(child, signal.SIGKILL)
        wait_until(lambda: child not in children(), "the child is not reaped")
        assert client.list_tools(refresh=True)


@table(WITH_SESSIONS)
def test_a_session_that_was_ended_is_begun_anew_once_for_all_threads(row: Row, tmp_path: Path) -> None:
    with running(row, tmp_path) as server, server.client() as client:
        assert text_of(client, "add", a=1, b=1) == "2"
        first = server.last_session[0]
        version = client.server.protocol_version
        ended = requests.delete(
            server.url, headers={"Mcp-Session-Id": first, "MCP-Protocol-Version": version}, timeout=10
        )
        assert ended.status_code == 200
        with ThreadPoolExecutor(5) as pool:
            answers = list(pool.map(lambda number: text_of(client, "add", a=number, b=1), range(5)))
        assert answers == ["1", "2", "3", "4", "5"]
        second = server.last_session[0]
        assert second != first
        assert text_of(client, "ask", what="ping") == "pong"  # its GET stream is there as well
        assert server.last_session == [second]


def test_server_everything_that_was_restarted_is_opened_anew(tmp_path: Path) -> None:
    """It answers 400 where the specification wants 404."""
    row = EVERYTHING[2]
    with running(row, tmp_path) as server, server.client() as client:
        assert text_of(client, "echo", message="a") == "Echo: a"
        first = server.last_session[0]
        headers = {"Mcp-Session-Id": first, "MCP-Protocol-Version": "2025-11-25"}
        assert requests.delete(server.url, headers=headers, timeout=10).status_code == 200
        assert text_of(client, "echo", message="b") == "Echo: b"
        assert server.last_session[0] != first


@pytest.mark.parametrize("environment", ["mcp-new", "mcp-old"])
def test_an_answer_goes_on_after_the_server_closed_its_stream(environment: str, tmp_path: Path) -> None:
    (row,) = [row for row in HTTP if row.environment == environment and "events" in row.words]
    with running(row, tmp_path) as server, server.client() as client:
        heard: list[Any] = []
        result = client.call_tool("leave_off", on_progress=heard.append)
        assert (result.text, [each.progress for each in heard]) == ("resumed", [1])


@pytest.mark.parametrize("environment", ["mcp-new", "mcp-old"])
@pytest.mark.parametrize("mode", ["auto", "handshake"])
def test_all_pages_are_read(environment: str, mode: str) -> None:
    command = [python_of(environment), str(HERE / "servers" / "mcp_paging.py")]
    with McpClient.stdio(command, mode=mode) as client:
        assert [tool.name for tool in client.list_tools()] == ["a", "b", "c"]
        assert [resource.uri for resource in client.list_resources()] == ["memo://a", "memo://b", "memo://c"]
        with pytest.raises(McpProtocolError, match="cursor"):
            client.list_prompts()


@table([HTTP[0], HTTP[2], *[row for row in HTTP if row.environment == "mcp-old"][:1], EVERYTHING[2]])
def test_another_path_is_told(row: Row, tmp_path: Path) -> None:
    with running(row, tmp_path) as server, McpClient.http(server.url + "/nothing") as client:
        with pytest.raises((McpStatusError, McpRequestError, McpProtocolError)) as caught:
            client.list_tools()
        assert "404" in str(caught.value)


def old_transport() -> Any:
    return pytest.raises(McpProtocolError, match=r"speaks HTTP\+SSE, the transport of 2024-11-05")


def test_the_transport_that_is_no_more_is_recognised(tmp_path: Path) -> None:
    row = Row("sse", "server-everything", "everything", ("sse",), "auto", Era.HANDSHAKE)
    with running(row, tmp_path) as server, server.client() as client, old_transport():
        client.list_tools()


@pytest.mark.parametrize("environment", ["mcp-new", "mcp-old"])
def test_the_python_server_of_the_transport_that_is_no_more_is_recognised(environment: str) -> None:
    with program([python_of(environment), str(HERE / "servers" / "mcp_python.py"), "sse"]) as server:
        port = server.line("PORT ")
        with McpClient.http(f"http://127.0.0.1:{port}/sse") as client, old_transport():
            client.list_tools()


@table([row for row in PYTHON if row.environment == "mcp-old"][:3])
def test_a_server_of_the_handshake_is_told_apart_when_asked_without_one(row: Row, tmp_path: Path) -> None:
    refused = pytest.raises((McpRequestError, McpVersionError))
    with running(row, tmp_path) as server, server.client(mode="stateless") as client, refused:
        client.call_tool("add", {"a": 1, "b": 1})


@pytest.mark.parametrize("row", [EVERYTHING[0], STDIO[0], STDIO[-1]], ids=lambda row: row.name)
def test_no_child_is_left(row: Row, tmp_path: Path) -> None:
    before = children()
    for _ in range(3):
        with running(row, tmp_path) as server, server.client() as client:
            client.list_tools()
            assert len(children() - before) == 1
        assert children() == before


def test_a_script_that_is_not_there_is_told(tmp_path: Path) -> None:
    command = node_script("server-everything")
    with McpClient.stdio([*command[:1], str(tmp_path / "no-such-script.js")]) as client:
        start = time.monotonic()
        with pytest.raises(McpConnectionError) as caught:
            client.list_tools()
        assert time.monotonic() - start < 10
        assert "no-such-script.js" in caught.value.stderr_tail
        assert caught.value.exit_code == 1
