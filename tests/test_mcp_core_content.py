"""Blocks of content, and what a model gets of them: tables without a connection."""

from __future__ import annotations

import base64
import json
import pickle
from typing import Any

import pytest

from mantyx_sync import limits
from mantyx_sync.errors import ToolError
from mantyx_sync.mcp import (
    McpAudio,
    McpEmbeddedResource,
    McpImage,
    McpPrompt,
    McpPromptResult,
    McpProtocolError,
    McpResource,
    McpResourceContents,
    McpResourceLink,
    McpResult,
    McpServerInfo,
    McpText,
    McpTool,
    McpUnknownContent,
)
from mantyx_sync.mcp.content import content_of
from mantyx_sync.tools.results import ToolResult, ToolResultFile, tool_result

PNG = base64.b64encode(b"\x89PNG....").decode()
TEXT = {"type": "text", "text": "one"}
IMAGE = {"type": "image", "data": PNG, "mimeType": "image/png"}
AUDIO = {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}
LINK = {"name": "x", "type": "resource_link", "uri": "file:///x.txt"}
NOTE = {"type": "resource", "resource": {"mimeType": "text/plain", "text": "why", "uri": "file:///y.txt"}}
BLOB = {"type": "resource", "resource": {"mimeType": "application/pdf", "blob": "AAAA", "uri": "file:///a/b%20c.pdf"}}
NEW = {"type": "hologram", "depth": 3}


def result(*content: Any, **fields: Any) -> McpResult:
    return McpResult.from_wire({"content": list(content), **fields}, "here")


@pytest.mark.parametrize(
    ("block", "read"),
    [
        (TEXT, McpText("one", TEXT)),
        (IMAGE, McpImage(PNG, "image/png", IMAGE)),
        (AUDIO, McpAudio("AAAA", "audio/wav", AUDIO)),
        (LINK, McpResourceLink("file:///x.txt", "x", raw=LINK)),
        (
            NOTE,
            McpEmbeddedResource(
                McpResourceContents("file:///y.txt", "text/plain", "why", raw=NOTE["resource"]),
                NOTE,  # type: ignore[arg-type]
            ),
        ),
        (NEW, McpUnknownContent("hologram", NEW)),
    ],
)
def test_each_kind_of_block_is_typed(block: Any, read: Any) -> None:
    assert content_of({**block, "_meta": {"a": 1}, "annotations": {}}).raw["_meta"] == {"a": 1}
    assert content_of(block) == read


@pytest.mark.parametrize(
    "block",
    [
        {"text": "no type"},
        {"type": 7},
        {"type": "error", "error": "x"},
        {"type": "text"},
        {"type": "text", "text": None},
        {"type": "image", "data": "AAAA"},
        {"type": "audio", "mimeType": "audio/wav"},
        {"type": "resource_link", "name": "x"},
        {"type": "resource"},
        {"type": "resource", "resource": {"uri": "a:b"}},
        {"type": "resource", "resource": {"text": "no uri"}},
        {"type": "resource", "resource": "x"},
        {},
        "just text",
        None,
        [1],
    ],
)
def test_a_block_that_cannot_be_read_is_kept_and_reaches_the_model_as_json(block: Any) -> None:
    read = content_of(block)
    assert isinstance(read, McpUnknownContent)
    assert read.raw == block
    assert json.loads(result(block).text) == block


def test_bytes_are_decoded_also_where_the_base64_is_broken_into_lines() -> None:
    assert McpImage("AAEC\r\nAw==", "image/png").content == b"\0\1\2\3"
    assert McpAudio("AAEC", "audio/wav").content == b"\0\1\2"
    assert McpResourceContents("a:b", blob="AAEC").content == b"\0\1\2"
    assert McpResourceContents("a:b", text="ü\ud800").content == "ü?".encode()
    with pytest.raises(ValueError, match="not base64"):
        _ = McpImage("!!", "image/png").content


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ([], ""),
        ([TEXT], "one"),
        ([TEXT, TEXT], "one\none"),
        ([TEXT, LINK, NOTE], "one\nx: file:///x.txt\nwhy"),
        ([{"type": "resource_link", "uri": "a:b"}], "a:b"),
        ([TEXT, NEW], 'one\n{"type":"hologram","depth":3}'),
        ([TEXT, IMAGE], "one"),
        ([IMAGE, AUDIO, BLOB], "[image-1.png: image/png]\n[audio-2.wav: audio/wav]\n[b c.pdf: application/pdf]"),
        ([{"type": "text", "text": ""}], "[no text]"),
        (
            [{"type": "image", "data": "!", "mimeType": "image/png"}],
            "[image: image/png, left out: its data is not base64]",
        ),
        (
            [TEXT, {"type": "image", "data": "AAAA", "mimeType": "image/x-odd"}],
            "one\n[image: image/x-odd, 3 bytes, left out: files of this type are not accepted]",
        ),
        (
            [{"type": "resource", "resource": {"uri": "x:/y", "blob": "AAAA"}}],
            "[resource x:/y: application/octet-stream, 3 bytes, left out: files of this type are not accepted]",
        ),
        (
            [{"type": "image", "data": "AAAA", "mimeType": ""}],
            "[image: of no type, 3 bytes, left out: files of this type are not accepted]",
        ),
    ],
)
def test_blocks_become_text_and_content_never_reads_as_empty(content: Any, text: str) -> None:
    read = result(*content)
    assert read.text == text
    assert read.to_tool_result().result == text


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"structuredContent": {"result": 3, "ü": None}}, '{"result":3,"ü":null}'),
        ({"structuredContent": [1, 2]}, "[1,2]"),
        ({"structuredContent": None}, "null"),
        ({"structuredContent": 0}, "0"),
    ],
)
def test_structured_content_speaks_where_no_text_does(fields: Any, text: str) -> None:
    assert result(**fields).text == text
    assert result({"type": "text", "text": ""}, **fields).text == text
    assert result(IMAGE, **fields).text == text
    assert result(TEXT, **fields).text == "one"
    assert result(**fields).has_structured_content


def test_images_sounds_and_binary_resources_become_files() -> None:
    files = result(TEXT, IMAGE, AUDIO, BLOB, NOTE).files
    assert files == [
        ToolResultFile("image-1.png", "image/png", PNG),
        ToolResultFile("audio-2.wav", "audio/wav", "AAAA"),
        ToolResultFile("b c.pdf", "application/pdf", "AAAA"),
    ]
    checked = tool_result(result(TEXT, IMAGE, AUDIO, BLOB).to_tool_result(), "x")
    assert checked == ToolResult("one", files)


@pytest.mark.parametrize(
    ("uri", "name"),
    [
        ("file:///a/b.pdf", "b.pdf"),
        ("x:/a/..%2f..%2fetc%2fpasswd", "passwd"),
        ("x:/a\\b\\c.pdf", "c.pdf"),
        ("x:/%00%0a.pdf", "pdf"),
        ("x:/", "resource-1.pdf"),
        ("http://[", "resource-1.pdf"),
        ("x:/" + "n" * 300 + ".pdf", "n" * 96 + ".pdf"),
        ("x:/Zürich.pdf?token=1", "Zürich.pdf"),
    ],
)
def test_a_uri_gives_a_file_a_plain_name(uri: str, name: str) -> None:
    block = {"type": "resource", "resource": {"uri": uri, "mimeType": "application/pdf", "blob": "AAAA"}}
    assert [item.filename for item in result(block).files] == [name]


def test_files_of_the_same_name_are_told_apart() -> None:
    assert [item.filename for item in result(BLOB, BLOB, BLOB).files] == ["b c.pdf", "b c-2.pdf", "b c-3.pdf"]


def test_the_type_of_a_resource_without_one_follows_from_its_uri() -> None:
    block = {"type": "resource", "resource": {"uri": "x:/a.png", "blob": "AAAA"}}
    assert result(block).files == [ToolResultFile("a.png", "image/png", "AAAA")]


def test_files_beyond_the_number_and_size_that_are_taken_leave_a_note() -> None:
    many = result(*[IMAGE] * (limits.MAX_TOOL_RESULT_FILES + 2))
    assert len(many.files) == limits.MAX_TOOL_RESULT_FILES
    assert many.text.count("left out: too many or too large files") == 2
    large = base64.b64encode(bytes(limits.MAX_TOOL_RESULT_FILE_BYTES - 10)).decode()
    huge = "A" * (4 * limits.MAX_TOOL_RESULT_FILE_BYTES)
    read = result({**IMAGE, "data": large}, {**IMAGE, "data": huge}, AUDIO, {**AUDIO, "data": "AAAA" * 10})
    assert [item.filename for item in read.files] == ["image-1.png", "audio-2.wav"]
    assert read.text.count("left out: too many or too large") == 2
    tool_result(read.to_tool_result(), "x")


def test_a_tool_that_failed_says_why() -> None:
    read = result(TEXT, isError=True)
    assert read.is_error
    assert read.text == "one"
    with pytest.raises(ToolError, match=r"^one$"):
        read.to_tool_result()
    with pytest.raises(ToolError, match="without saying why"):
        result(isError=True).to_tool_result()


@pytest.mark.parametrize("wire", [{}, {"content": None}, {"content": [], "isError": None}, {"_meta": {}, "new": 1}])
def test_a_result_without_content_is_an_empty_one(wire: Any) -> None:
    read = McpResult.from_wire(wire, "here")
    assert (read.content, read.is_error, read.text, read.files) == ((), False, "", [])
    assert not read.has_structured_content
    assert read.raw == wire


@pytest.mark.parametrize(
    ("wire", "sentence"),
    [
        ({"content": {}}, "here: field 'content' is an object, must be an array"),
        ({"content": "x"}, "here: field 'content' is a string, must be an array"),
        ({"content": [], "isError": "yes"}, "here: field 'isError' is a string, must be a boolean"),
    ],
)
def test_a_result_that_cannot_be_read_names_the_field(wire: Any, sentence: str) -> None:
    with pytest.raises(McpProtocolError) as caught:
        McpResult.from_wire(wire, "here")
    assert str(caught.value) == sentence


def test_bulk_and_foreign_text_stay_out_of_reprs_and_everything_pickles() -> None:
    read = result(TEXT, IMAGE, AUDIO, BLOB, NOTE, LINK, NEW, structuredContent={"secret": "sesame"})
    assert pickle.loads(pickle.dumps(read)) == read
    assert PNG not in repr(read)
    assert "sesame" not in repr(read)


def test_a_tool_is_read_with_all_it_says() -> None:
    wire = {
        "name": "get.order-1",
        "title": "Get",
        "description": "d",
        "inputSchema": {"type": "object"},
        "outputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True, "title": "Hinted"},
        "icons": [],
        "execution": {},
    }
    tool = McpTool.from_wire(wire, "here")
    assert (tool.name, tool.title, tool.description, tool.input_schema) == (
        "get.order-1",
        "Get",
        "d",
        {"type": "object"},
    )
    assert (tool.output_schema, tool.annotations["readOnlyHint"]) == ({"type": "object"}, True)
    assert tool.to_wire() == wire
    assert tool.display_name == "Get"
    assert McpTool.from_wire({**wire, "title": None}, "x").display_name == "Hinted"
    assert McpTool("a", annotations={"title": 7}).display_name == "a"
    assert McpTool("a").to_wire() == {"name": "a", "inputSchema": {}}


def test_resources_and_prompts_are_read() -> None:
    resource = McpResource.from_wire({"uri": "a:b", "name": "n", "mimeType": "text/plain", "size": 3.0}, "here")
    assert (resource.uri, resource.name, resource.mime_type, resource.size) == ("a:b", "n", "text/plain", 3)
    prompt = McpPrompt.from_wire({"name": "p", "arguments": [{"name": "a", "required": True}, {"name": "b"}]}, "here")
    assert [(item.name, item.required) for item in prompt.arguments] == [("a", True), ("b", False)]
    with pytest.raises(McpProtocolError, match=r"here: arguments\[0\]: field 'name' is missing"):
        McpPrompt.from_wire({"name": "p", "arguments": [{}]}, "here")


def test_the_messages_of_a_prompt_have_roles_and_content() -> None:
    read = McpPromptResult.from_wire(
        {"description": "d", "messages": [{"role": "user", "content": TEXT}, {"role": "assistant", "content": IMAGE}]},
        "here",
    )
    assert [(item.role, item.text) for item in read.messages] == [
        ("user", "one"),
        ("assistant", "[image-1.png: image/png]"),
    ]
    assert read.description == "d"
    with pytest.raises(McpProtocolError, match="'role' is missing"):
        McpPromptResult.from_wire({"messages": [{"content": TEXT}]}, "here")


def test_a_server_names_itself_with_all_it_says() -> None:
    raw = {"protocolVersion": "2025-11-25", "serverInfo": {"name": "n", "version": "1", "icons": []}}
    info = McpServerInfo.of_handshake(raw, "here")
    assert info.to_wire() == {"name": "n", "version": "1", "icons": []}
