"""What `@modelcontextprotocol/server-filesystem` is driven through: every kind of content and error that it offers."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mantyx_sync.mcp.channel import Era
from mantyx_sync.mcp.client import McpClient
from mantyx_sync.mcp.content import McpAudio, McpImage
from tests.waiting import wait_until

from .driving import Scenario, refusal_of, text_of
from .mcp_rows import Server

__all__ = ["SCENARIOS"]

SCENARIOS: dict[str, Scenario] = {}


def scenario(function: Scenario) -> Scenario:
    SCENARIOS[function.__name__] = function
    return function


def path_of(server: Server, name: str) -> str:
    return str(Path(os.path.realpath(server.folder)) / name)


@scenario
def it_is_opened_and_lists_its_tools(client: McpClient, server: Server) -> None:
    assert client.server.name == "secure-filesystem-server"
    assert client.server.era is Era.HANDSHAKE
    tools = {tool.name: tool for tool in client.list_tools()}
    assert len(tools) >= 13
    assert tools["read_text_file"].annotations["readOnlyHint"] is True
    assert client.list_resources() == ()
    assert client.list_prompts() == ()
    client.ping()


@scenario
def files_are_written_and_read(client: McpClient, server: Server) -> None:
    path = path_of(server, "grüße.txt")
    assert "wrote" in text_of(client, "write_file", path=path, content="eins\nzwei\n").lower()
    assert Path(path).read_text(encoding="utf-8") == "eins\nzwei\n"
    result = client.call_tool("read_text_file", {"path": path})
    assert result.text == "eins\nzwei\n"
    assert result.structured_content == {"content": "eins\nzwei\n"}
    assert "grüße.txt" in text_of(client, "list_directory", path=path_of(server, ""))
    assert "size: 10" in text_of(client, "get_file_info", path=path)


@scenario
def pictures_and_sounds_come_through(client: McpClient, server: Server) -> None:
    Path(path_of(server, "a.png")).write_bytes(b"\x89PNG not a picture")
    Path(path_of(server, "a.wav")).write_bytes(b"RIFF not a sound")
    Path(path_of(server, "a.bin")).write_bytes(bytes(range(256)))
    (image,) = client.call_tool("read_media_file", {"path": path_of(server, "a.png")}).content
    assert isinstance(image, McpImage)
    assert image.content == b"\x89PNG not a picture"
    (sound,) = client.call_tool("read_media_file", {"path": path_of(server, "a.wav")}).content
    assert isinstance(sound, McpAudio)
    assert sound.content == b"RIFF not a sound"
    other = client.call_tool("read_media_file", {"path": path_of(server, "a.bin")})
    assert other.content
    assert other.text or other.files


@scenario
def a_path_outside_is_refused_in_words(client: McpClient, server: Server) -> None:
    result = client.call_tool("read_text_file", {"path": "/etc/passwd"})
    assert result.is_error
    assert "denied" in result.text.lower()


@scenario
def a_file_that_is_not_there_is_told(client: McpClient, server: Server) -> None:
    result = client.call_tool("read_text_file", {"path": path_of(server, "no-such-file")})
    assert result.is_error
    assert "ENOENT" in result.text


@scenario
def arguments_that_do_not_fit_are_told(client: McpClient, server: Server) -> None:
    result = client.call_tool("read_text_file", {})
    assert result.is_error
    assert "path" in result.text


@scenario
def a_tool_that_is_not_there_is_told(client: McpClient, server: Server) -> None:
    assert "no_such_tool" in refusal_of(client, "no_such_tool")


@scenario
def large_files_go_both_ways(client: McpClient, server: Server) -> None:
    path, text = path_of(server, "large.txt"), "ä" * 5_000_000
    text_of(client, "write_file", path=path, content=text)
    assert text_of(client, "read_text_file", path=path) == text


@scenario
def calls_of_many_threads_get_their_own_answers(client: McpClient, server: Server) -> None:
    for number in range(20):
        Path(path_of(server, f"{number}.txt")).write_text(f"text {number}", encoding="utf-8")
    with ThreadPoolExecutor(20) as pool:
        paths = [path_of(server, f"{number % 20}.txt") for number in range(60)]
        answers = list(pool.map(lambda path: text_of(client, "read_text_file", path=path), paths))
    assert answers == [f"text {number % 20}" for number in range(60)]


@scenario
def roots_of_the_client_are_what_it_allows(client: McpClient, server: Server) -> None:
    inner = Path(path_of(server, "inner"))
    inner.mkdir(exist_ok=True)
    with server.client(roots=[inner]) as other:
        wait_until(
            lambda: text_of(other, "list_allowed_directories").split("\n")[1:] == [str(inner)],
            "the server does not take the client's roots",
        )
        assert other.call_tool("list_directory", {"path": path_of(server, "")}).is_error
