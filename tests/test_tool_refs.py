"""The refs of tools that the server resolves, on the wire and in a repr."""

from __future__ import annotations

import pickle

import pytest

from mantyx_sync.errors import MantyxConfigError
from mantyx_sync.tools.function import as_tool_ref, define_local_tool
from mantyx_sync.tools.refs import (
    LocalTool,
    MantyxToolRef,
    ToolRef,
    is_local_tool,
    mantyx_a2a,
    mantyx_mcp,
    mantyx_plugin_tool,
    mantyx_tool,
)

CARD = "https://peer.example.com/card"
REFS = [
    (mantyx_tool("tool_1"), {"kind": "mantyx", "id": "tool_1"}),
    (mantyx_plugin_tool("@plugin/tool"), {"kind": "mantyx_plugin", "name": "@plugin/tool"}),
    (mantyx_a2a(name="peer", agent_card_url=CARD), {"kind": "a2a", "name": "peer", "agentCardUrl": CARD}),
    (
        mantyx_a2a(name="peer", agent_card_url=CARD, description="d", headers={"X-Key": "SECRET"}, context_id="c"),
        {
            "kind": "a2a",
            "name": "peer",
            "agentCardUrl": CARD,
            "description": "d",
            "headers": {"X-Key": "SECRET"},
            "contextId": "c",
        },
    ),
    (mantyx_mcp(name="docs", url=CARD), {"kind": "mcp", "name": "docs", "url": CARD}),
    (
        mantyx_mcp(name="docs", url=CARD, headers={"X-Key": "SECRET"}, tool_filter=("search",)),
        {"kind": "mcp", "name": "docs", "url": CARD, "headers": {"X-Key": "SECRET"}, "toolFilter": ["search"]},
    ),
]


@pytest.mark.parametrize(("ref", "wire"), REFS)
def test_a_ref_says_on_the_wire_what_was_given(ref, wire):
    assert ref.to_wire() == wire
    assert ref.kind == wire["kind"]
    assert isinstance(ref, ToolRef)
    assert as_tool_ref(ref) is ref
    assert pickle.loads(pickle.dumps(ref)) == ref
    assert not is_local_tool(ref)


@pytest.mark.parametrize(("ref", "wire"), REFS)
def test_a_repr_shows_no_headers(ref, wire):
    assert "SECRET" not in repr(ref)


def test_headers_changed_later_do_not_change_the_ref():
    headers = {"X-Key": "a"}
    ref = mantyx_mcp(name="docs", url=CARD, headers=headers)
    headers["X-Key"] = "b"
    assert ref.to_wire()["headers"] == {"X-Key": "a"}
    ref.to_wire()["headers"].clear()
    assert ref.to_wire()["headers"] == {"X-Key": "a"}


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: mantyx_tool(""), "tool_id must be a text that is not empty"),
        (lambda: mantyx_tool(None), "tool_id"),
        (lambda: mantyx_plugin_tool("plugin/tool"), "'@plugin/tool'"),
        (lambda: mantyx_plugin_tool("@plugin"), "'@plugin/tool'"),
        (lambda: mantyx_plugin_tool(None), "'@plugin/tool'"),
        (lambda: mantyx_a2a(name="a b", agent_card_url=CARD), "mantyx_a2a: name must be 1 to 64"),
        (lambda: mantyx_a2a(name="a", agent_card_url=""), "agent_card_url"),
        (lambda: mantyx_a2a(name="a", agent_card_url="ftp://x"), "http"),
        (lambda: mantyx_mcp(name="é", url=CARD), "mantyx_mcp: name must be 1 to 64"),
        (lambda: mantyx_mcp(name="a", url="peer.example.com"), "http"),
        (lambda: mantyx_mcp(name="a", url=CARD, tool_filter="search"), "tool_filter must be a list"),
        (lambda: mantyx_mcp(name="a", url=CARD, tool_filter=[1]), "tool_filter must be a list"),
        (lambda: mantyx_mcp(name="a", url=CARD, headers={"X": 1}), "header 'X' must be text"),
        (lambda: mantyx_mcp(name="a", url=CARD, headers={"X": "a\r\nB: c"}), "header 'X' holds a line end"),
    ],
)
def test_a_ref_that_cannot_be_used_is_refused(make, said):
    with pytest.raises(MantyxConfigError) as caught:
        make()
    assert said in str(caught.value)


def test_a_local_tool_is_a_ref_too():
    subject = LocalTool(name="raw", execute=lambda arguments: "done")
    assert isinstance(subject, ToolRef)
    assert is_local_tool(subject)
    assert as_tool_ref(subject) is subject
    assert subject.invoke({}).result == "done"


def test_refs_are_equal_by_content_and_tools_by_identity():
    assert mantyx_tool("a") == MantyxToolRef(id="a")
    one, two = (define_local_tool(name="raw", execute=str) for _ in range(2))
    assert one != two
    assert len({one, two, one}) == 2
