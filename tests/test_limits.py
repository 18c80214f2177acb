"""Every documented limit: what is just allowed goes out, what is one beyond is refused before anything is sent."""

from __future__ import annotations

import base64
from typing import Any, Dict, Iterator, List, NamedTuple, Tuple

import pytest

from mantyx_sync import MantyxClient, MantyxConfigError, RunSpec
from mantyx_sync.messages import input_file_attachment, input_file_url_attachment
from mantyx_sync.tools.refs import mantyx_plugin_tool
from mantyx_sync.wire import wire_name
from tests.request_recorder import Recorder

pytestmark = pytest.mark.usefixtures("no_leaks")

Fields = Dict[str, Any]


class Limit(NamedTuple):
    """One documented limit: fields that are just allowed, and fields that are not with the sentence that says so."""

    allowed: List[Fields]
    refused: List[Tuple[Fields, str]]


def loop(**thresholds: int) -> Fields:
    return {"loop_detection": thresholds}


def calls(number: object, name: str = "recall") -> Fields:
    return {"tool_budgets": {name: {"maxCalls": number}}}


def trigger(**values: int) -> Fields:
    return {"supervisor": {"reasoningTrigger": values}}


def schema_of(size: int) -> Fields:
    """Return an output schema that takes this many bytes as JSON."""
    empty = '{"schema":{"description":""}}'
    return {"output_schema": {"schema": {"description": "x" * (size - len(empty))}}}


def local(name: str) -> Fields:
    return {"tools": [{"kind": "local", "name": name}]}


def mcp(*names: str) -> Fields:
    return {"tools": [{"kind": "mcp_local", "name": "fs", "tools": [{"name": name} for name in names]}]}


def files(*sizes: int, mime_type: str = "text/plain") -> Fields:
    return {
        "attachments": [
            input_file_attachment(mime_type=mime_type, filename="a", data=base64.b64encode(b"x" * size).decode())
            for size in sizes
        ]
    }


def url(address: str) -> Fields:
    return {"attachments": [input_file_url_attachment(url=address)]}


def said(*messages: Tuple[str, str]) -> Fields:
    return {"messages": [{"role": role, "content": content} for role, content in messages]}


def metadata_of(size: int) -> Fields:
    """Return metadata that takes this many bytes as JSON: values of 256 characters and one that fills up."""
    found = {f"k{i:02}": "x" * 256 for i in range(15)}
    written = 2 + 15 * len('"k00":"",') + 15 * 256
    name = "n" * 40
    found[name] = "x" * (size - written - len(f'"{name}":""'))
    return {"metadata": found}


LEVELS = "must be one of off, low, medium, high, or an integer from 0 to 100"
NAMES = "must match [a-zA-Z0-9_]{1,64}"
TYPES = "a type the platform takes: audio mp4/mpeg/wav/webm, image jpeg/png/webp/gif, PDF, DOCX, JSON, XML or text/*"
ALL_TYPES = [
    "audio/mp4", "audio/mpeg", "audio/wav", "audio/webm", "image/jpeg", "image/png", "image/webp", "image/gif",
    "application/pdf", "application/vnd.openxmlformats-officedocument.wordprocessingml.document", "text/plain",
    "text/markdown", "text/csv", "text/tab-separated-values", "application/json", "application/xml", "text/html",
    "text/x-anything",
]  # fmt: skip

LIMITS: Dict[str, Limit] = {
    "loopDetection.consecutiveThreshold": Limit(
        [loop(consecutiveThreshold=2), loop(consecutiveThreshold=100)],
        [
            (
                loop(consecutiveThreshold=n),
                f"loop_detection.consecutive_threshold: got {n}, must be an integer from 2 to 100",
            )
            for n in (1, 101)
        ],
    ),
    "loopDetection.hardCutoffThreshold": Limit(
        [loop(hardCutoffThreshold=3), loop(hardCutoffThreshold=100)],
        [
            (
                loop(hardCutoffThreshold=n),
                f"loop_detection.hard_cutoff_threshold: got {n}, must be an integer from 3 to 100",
            )
            for n in (2, 101)
        ],
    ),
    "loopDetection: hard beyond consecutive": Limit(
        [loop(consecutiveThreshold=4, hardCutoffThreshold=5)],
        [
            (
                loop(consecutiveThreshold=4, hardCutoffThreshold=4),
                "loop_detection.hard_cutoff_threshold: got 4, must be greater than consecutive_threshold (4)",
            ),
        ],
    ),
    "toolBudgets: entries": Limit(
        [{"tool_budgets": {f"t{i}": {"maxCalls": 1} for i in range(32)}}],
        [
            (
                {"tool_budgets": {f"t{i}": {"maxCalls": 1} for i in range(33)}},
                "tool_budgets: got 33 entries, must have at most 32",
            )
        ],
    ),
    "toolBudgets: key": Limit(
        [calls(1, "k"), calls(1, "k" * 120)],
        [
            (
                calls(1, ""),
                "tool_budgets: got the key '', must have keys that are strings of 1 to 120 characters",
            ),
            (
                calls(1, "k" * 121),
                f"tool_budgets: got the key '{'k' * 79}…', must have keys that are strings of 1 to 120 characters",
            ),
        ],
    ),
    "toolBudgets.maxCalls": Limit(
        [calls(0), calls(1000)],
        [
            (calls(n), f"tool_budgets['recall'].max_calls: got {n}, must be an integer from 0 to 1000")
            for n in (-1, 1001)
        ],
    ),
    "supervisor.interval": Limit(
        [{"supervisor": {"interval": 1}}, {"supervisor": {"interval": 100}}],
        [
            ({"supervisor": {"interval": n}}, f"supervisor.interval: got {n}, must be an integer from 1 to 100")
            for n in (0, 101)
        ],
    ),
    "supervisor.reasoningTrigger.chars": Limit(
        [trigger(chars=1), trigger(chars=50_000)],
        [
            (trigger(chars=n), f"supervisor.reasoning_trigger.chars: got {n}, must be an integer from 1 to 50000")
            for n in (0, 50_001)
        ],
    ),
    "supervisor.reasoningTrigger.ms": Limit(
        [trigger(ms=1), trigger(ms=600_000)],
        [
            (trigger(ms=n), f"supervisor.reasoning_trigger.ms: got {n}, must be an integer from 1 to 600000")
            for n in (0, 600_001)
        ],
    ),
    "reasoningLevel": Limit(
        [{"reasoning_level": level} for level in ("off", "low", "medium", "high", 0, 100)],
        [
            ({"reasoning_level": level}, f"reasoning_level: got {level!r}, {LEVELS}")
            for level in (-1, 101, 50.0, "extreme", True)
        ],
    ),
    "outputSchema: size": Limit(
        [schema_of(32 * 1024)],
        [(schema_of(32 * 1024 + 1), "output_schema: got 32769 bytes, must take at most 32768 bytes as JSON")],
    ),
    "outputSchema.name": Limit(
        [{"output_schema": {"schema": {}, "name": name}} for name in ("a", "Az-0_" + "x" * 59)],
        [
            (
                {"output_schema": {"schema": {}, "name": name}},
                f"output_schema.name: got {name!r}, must match [a-zA-Z0-9_-]{{1,64}}",
            )
            for name in ("", "x" * 65, "a b", "ä")
        ],
    ),
    "outputSchema.schema": Limit(
        [{"output_schema": {"schema": {"type": "object"}}}],
        [
            (
                {"output_schema": {"schema": schema}},
                f"output_schema.schema: got {shown}, must be a JSON Schema whose root is an object",
            )
            for schema, shown in ((None, "None"), ([], "list"), ("x", "'x'"))
        ],
    ),
    "budgets.maxToolTurns": Limit(
        [{"budgets": {"maxToolTurns": 0}}, {"budgets": {"maxToolTurns": 100}}],
        [
            ({"budgets": {"maxToolTurns": n}}, f"budgets.max_tool_turns: got {n}, must be an integer from 0 to 100")
            for n in (-1, 101)
        ],
    ),
    "plan: words": Limit(
        [{"plan": word} for word in ("off", "auto", "required")],
        [({"plan": "always"}, "plan: got 'always', must be one of off, auto, required")],
    ),
    "tools: name": Limit(
        [local("a"), local("Az_09" + "x" * 59)],
        [(local(name), f"tools[0].name: got {name!r}, {NAMES}") for name in ("x" * 65, "a-b", "ä")],
    ),
    "tools: name in an MCP catalog": Limit(
        [mcp("x" * 64)],
        [(mcp(name), f"tools[0].tools[0].name: got {name!r}, {NAMES}") for name in ("", "x" * 65, "a.b")],
    ),
    "tools: MCP catalog": Limit(
        [mcp("a"), mcp(*(f"t{i}" for i in range(64)))],
        [
            (mcp(), "tools[0].tools: got 0 tools, must be a list of 1 to 64 tools"),
            (mcp(*(f"t{i}" for i in range(65))), "tools[0].tools: got 65 tools, must be a list of 1 to 64 tools"),
        ],
    ),
    "messages: number": Limit(
        [said(*[("user", "x")] * 200)],
        [(said(*[("user", "x")] * 201), "messages: got 201 messages, must have at most 200")],
    ),
    "messages: content": Limit(
        [said(("user", "x" * 200_000))],
        [(said(("user", "x" * 200_001)), "messages[0].content: got 200001 characters, must have at most 200000")],
    ),
    "messages: roles": Limit(
        [said(("system", "x"), ("user", "x"), ("assistant", "x"), ("user", "x"))],
        [
            (
                said(("tool", "x"), ("user", "x")),
                "messages[0].role: got 'tool', must be one of user, assistant, system",
            )
        ],
    ),
    "messages: the last one": Limit(
        [said(("user", "x"), ("system", "x"))],
        [
            (
                said(("user", "x"), ("assistant", "x"), ("system", "x")),
                "messages: got 'assistant' as the last message, must end with a user message (system messages aside)",
            )
        ],
    ),
    "attachments: number": Limit(
        [files(*[1] * 20)],
        [(files(*[1] * 21), "attachments: got 21 attachments, must have at most 20")],
    ),
    "attachments: inline bytes": Limit(
        [files(5 * 1024 * 1024 - 2, 2)],
        [
            (
                files(5 * 1024 * 1024 - 1, 2),
                "attachments: got 5242881 bytes of files, must be at most 5242880 bytes in all",
            )
        ],
    ),
    "attachments: types": Limit(
        [files(1, mime_type=mime_type) for mime_type in ALL_TYPES],
        [
            (files(1, mime_type=mime_type), f"attachments[0].mime_type: got {mime_type!r}, must be {TYPES}")
            for mime_type in ("application/zip", "video/mp4", "image/tiff", "audio/ogg")
        ],
    ),
    "attachments: https alone": Limit(
        [url("https://example.com/a.png")],
        [
            (url(address), "attachments[0].url: got a string, must be an https:// URL")
            for address in ("http://example.com/a.png", "file:///etc/passwd")
        ],
    ),
    "attachments: no data: prefix": Limit(
        [files(3)],
        [
            (
                {
                    "attachments": [
                        input_file_attachment(mime_type="text/plain", filename="a", data="data:text/plain;base64,eA==")
                    ]
                },
                "attachments[0].data: got a data: URL, must be the base64 text alone",
            )
        ],
    ),
    "metadata: entries": Limit(
        [{"metadata": {f"k{i}": "v" for i in range(16)}}],
        [({"metadata": {f"k{i}": "v" for i in range(17)}}, "metadata: got 17 entries, must have at most 16")],
    ),
    "metadata: key": Limit(
        [{"metadata": {"k": "v"}}, {"metadata": {"Az09._-" + "k" * 57: "v"}}],
        [
            (
                {"metadata": {key: "v"}},
                f"metadata: got the key {key!r}, must have keys that match [A-Za-z0-9._-]{{1,64}}",
            )
            for key in ("", "k" * 65, "a b", "a:b")
        ],
    ),
    "metadata: value": Limit(
        [{"metadata": {"k": ""}}, {"metadata": {"k": "x" * 256}}],
        [
            ({"metadata": {"k": "x" * 257}}, "metadata.k: got 257 characters, must have at most 256"),
            ({"metadata": {"k": 5}}, "metadata.k: got 5, must be a string"),
        ],
    ),
    "metadata: size": Limit(
        [metadata_of(4096)],
        [(metadata_of(4097), "metadata: got 4097 bytes, must take at most 4096 bytes as JSON")],
    ),
}
"""The limits of what a spec holds, by what the documents call them."""

PROMPT: Fields = {"prompt": "Go."}
TURN = {"messages", "attachments"}


@pytest.fixture(scope="module")
def server() -> Iterator[Recorder]:
    with Recorder() as recorder:
        yield recorder


def client_of(server: Recorder, slug: str) -> MantyxClient:
    return MantyxClient(api_key="k", workspace_slug=slug, base_url=server.base_url)


def completed(fields: Fields) -> Fields:
    return {"agent_id": "a", **({} if "messages" in fields else PROMPT), **fields}


@pytest.mark.parametrize("name", LIMITS)
def test_what_is_just_allowed_is_sent_as_it_is(server: Recorder, name: str) -> None:
    for number, fields in enumerate(LIMITS[name].allowed):
        slug = f"allowed-{list(LIMITS).index(name)}-{number}"
        with client_of(server, slug) as client:
            client.run_agent(**completed(fields))
        body = server.requests(slug)[0].body
        ((field, value),) = fields.items()
        if field == "attachments":
            assert body["messages"][-1]["attachments"] == value
        else:
            assert body[wire_name(field)] == value


@pytest.mark.parametrize("name", LIMITS)
def test_what_is_beyond_is_refused_with_field_value_and_limit_and_nothing_is_sent(server: Recorder, name: str) -> None:
    slug = f"beyond-{list(LIMITS).index(name)}"
    with client_of(server, slug) as client:
        session = client.create_session(agent_id="a")
        before = server.requests(slug)
        for fields, sentence in LIMITS[name].refused:
            whole = completed(fields)
            said_in_session = {key: value for key, value in whole.items() if key != "agent_id"}
            ways: List[Any] = [
                lambda whole=whole: client.run_agent(**whole),
                lambda whole=whole: client.stream_agent(**whole),
                lambda whole=whole: client.start_agent(**whole),
                lambda whole=whole: RunSpec(**whole).to_wire(),
                lambda said=said_in_session: session.send(**said),
                lambda said=said_in_session: session.stream(**said),
            ]
            if not TURN & fields.keys():
                ways.append(lambda fields=fields: client.create_session(agent_id="a", **fields))
            for way in ways:
                with pytest.raises(MantyxConfigError) as caught:
                    way()
                assert str(caught.value) == sentence
        assert server.requests(slug) == before


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda client: client.submit_run_feedback("r", "UP", explanation="x" * 8001),
            "explanation: got 8001 characters, at most 8000 are allowed",
        ),
        (lambda client: client.submit_run_feedback("r", "MAYBE"), "verdict: got 'MAYBE', must be 'UP' or 'DOWN'"),
        (lambda client: client.list_runs(limit=0), "limit: got 0, must be a whole number from 1 to 200"),
        (lambda client: client.list_runs(limit=201), "limit: got 201, must be a whole number from 1 to 200"),
        (lambda client: client.list_sessions(limit=0), "limit: got 0, must be a whole number from 1 to 200"),
        (lambda client: client.list_sessions(limit=201), "limit: got 201, must be a whole number from 1 to 200"),
        (
            lambda client: client.get_session_events("s", last_messages=501),
            "last_messages: got 501, must be a whole number from 1 to 500",
        ),
        (
            lambda client: client.get_session_events_page("s", last_messages=0),
            "last_messages: got 0, must be a whole number from 1 to 500",
        ),
        (
            lambda client: client.run_agent(agent_id="a", prompt="p", messages=[{"role": "user", "content": "p"}]),
            "prompt: given together with messages, must be one of the two",
        ),
        (lambda client: client.run_agent(agent_id="a"), "prompt: not given, must be given (or messages)"),
        (
            lambda client: client.run_agent(prompt="p"),
            "agent_id: not given, must be given (or system_prompt or a system message)",
        ),
    ],
)
def test_other_limits_are_refused_before_anything_is_sent(server: Recorder, call: Any, sentence: str) -> None:
    with client_of(server, "others") as client, pytest.raises(MantyxConfigError) as caught:
        call(client)
    assert str(caught.value) == sentence
    assert server.requests("others") == []


def test_other_values_at_their_limit_are_sent(server: Recorder) -> None:
    with client_of(server, "edges") as client:
        client.submit_run_feedback("r", "DOWN", explanation="x" * 8000)
        client.list_sessions(limit=1)
        client.list_sessions(limit=200)
        client.get_session_events("s", last_messages=500)
        client.get_session_events_page("s", last_messages=1)
        client.run_agent(messages=[{"role": "system", "content": "x"}, {"role": "user", "content": "p"}])
    sent = server.requests("edges")
    assert sent[0].body == {"verdict": "DOWN", "explanation": "x" * 8000}
    assert [dict(request.query) for request in sent[1:5]] == [
        {"limit": ["1"]},
        {"limit": ["200"]},
        {"lastMessages": ["500"]},
        {"lastMessages": ["1"]},
    ]
    assert len(sent) == 7


@pytest.mark.parametrize("name", ["send", "@slack", "@/send", "slack/send", "@slack/send/more"])
def test_a_plugin_tool_is_named_with_its_plugin(name: str) -> None:
    assert mantyx_plugin_tool("@slack/send").name == "@slack/send"
    with pytest.raises(MantyxConfigError, match="must look like '@plugin/tool', got "):
        mantyx_plugin_tool(name)
