"""For the same call, this package and the platform's own send the same requests: method, path, query and body.

The calls are in `request_calls.py`. Headers do not count. Where the two differ on purpose, `DIFFERENCES` says why and
what exactly is different: anything else fails. The platform's package runs in its own interpreter (see
`test_peer_client.py`); without it these tests are skipped.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from dataclasses import replace
from typing import Any, Callable, Dict, List, NamedTuple, Optional

import pytest

import mantyx_sync
from tests.request_calls import CALLS, TOOL_CALLS
from tests.request_recorder import Recorder, Sent

PEER = os.environ.get("MANTYX_PEER_PYTHON")
pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif(not PEER, reason="MANTYX_PEER_PYTHON names no interpreter with the platform's package"),
]

PROGRAM = """
import json, sys
import mantyx, pydantic

base_url, calls = json.load(sys.stdin)
failed = {}
for slug, source in calls.items():
    def oauth(package, client_id):
        return package.MantyxOAuthClient(client_id=client_id, client_secret="s", base_url=base_url)
    with mantyx.MantyxClient(api_key="mantyx_k", workspace_slug=slug, base_url=base_url) as client:
        try:
            names = {"mantyx": mantyx, "client": client, "slug": slug, "oauth": oauth, "pydantic": pydantic}
            exec(source, {**names, "base_url": base_url})
        except Exception as error:
            failed[slug] = f"{type(error).__name__}: {error}"
methods = [name for name in vars(mantyx.MantyxClient) if not name.startswith("_")]
methods += [f"session.{name}" for name in vars(mantyx.AgentSession) if not name.startswith("_")]
print(json.dumps({"failed": failed, "methods": methods}))
"""


class Difference(NamedTuple):
    """What is different on purpose: `change` makes the platform's requests of a call into ours."""

    why: str
    change: Callable[[List[Sent]], List[Sent]]
    refused_by_the_platform: str = ""


def body_of(index: int, change: Callable[[Dict[str, Any]], None]) -> Callable[[List[Sent]], List[Sent]]:
    """Change the body of one request."""

    def changed(sent: List[Sent]) -> List[Sent]:
        body = json.loads(json.dumps(sent[index].body))
        change(body)
        return [*sent[:index], replace(sent[index], body=body), *sent[index + 1 :]]

    return changed


def added(**fields: Any) -> Callable[[List[Sent]], List[Sent]]:
    """Return what a plain run sends, with these fields in its spec: for a call that the platform's package refuses."""
    spec = {"systemPrompt": "Be brief.", "prompt": "Go.", **fields}
    return lambda _: [Sent("POST", "agent-runs", {}, spec), Sent("GET", "agent-runs/run_1/stream", {}, None)]


_CATALOG = {
    "kind": "mcp_local",
    "name": "fs",
    "serverInfo": {"name": "recorded", "version": "1"},
    "tools": [{"name": "read", "description": "Reads.", "inputSchema": {"type": "object"}}],
}
DIFFERENCES: Dict[str, Difference] = {
    "supervisor_on": Difference(
        "`supervisor: true` is a form of wire §8.4 that the platform's package does not know yet.",
        added(supervisor=True),
        refused_by_the_platform="ValueError",
    ),
    "supervisor_model": Difference(
        "`supervisor.modelId` is in wire §8.4; the platform's package drops it.",
        body_of(0, lambda body: body.update(supervisor={"modelId": "platform:demo"})),
    ),
    "local_tool_bare": Difference(
        "A tool without parameters is sent without them (they are optional, wire §3.1), not with an empty schema.",
        body_of(0, lambda body: body["tools"][0].pop("parameters")),
    ),
    "tool_model_class": Difference(
        "The schema of a pydantic model goes out as pydantic makes it, its title included.",
        body_of(0, lambda body: body["tools"][0]["parameters"].update(title="Weight")),
    ),
    "tool_umlauts": Difference(
        "JSON that a tool returns is text for the model: characters instead of \\u escapes.",
        body_of(2, lambda body: body.update(result='{"a": "ä"}')),
    ),
    "tool_raises": Difference(
        "The text of an exception may hold paths and credentials: the model is told its type alone.",
        body_of(2, lambda body: body.update(error="look_up failed with ZeroDivisionError")),
    ),
    "tool_unknown": Difference(
        "The model is told which tools there are.",
        body_of(2, lambda body: body.update(error="no tool named 'elsewhere' is offered here; there are: look_up")),
    ),
    "mcp_local": Difference(
        "The platform's synchronous client cannot connect to an MCP server. The catalog goes out verbatim (wire §12).",
        lambda _: [
            *added(tools=[_CATALOG])([]),
            Sent("POST", "agent-runs/run_1/tool-results", {}, {"toolUseId": "tu_1", "result": "a line"}),
        ],
        refused_by_the_platform="RuntimeError",
    ),
    "a2a_local_session": Difference(
        "The session has its tools since it was created (wire §2.2): they are not repeated with each message.",
        body_of(1, lambda body: body.pop("tools")),
    ),
    "session_tool": Difference(
        "The session has its tools since it was created (wire §2.2): they are not repeated with each message.",
        body_of(1, lambda body: body.pop("tools")),
    ),
    "run_eval": Difference(
        "An eval is followed by its stream; the platform's package asks for the record again and again.",
        lambda sent: [sent[0], Sent("GET", "eval-runs/er1/stream", {}, None), *sent[1:]],
    ),
}

EVERYWHERE = {
    "`tools` without any tool": "A spec without tools has no `tools`: what is not given is not sent.",
    "`description` without text": "Likewise the description of a local tool, which is optional (wire §3.1).",
}
"""Differences of every call, and why."""


def without_empty_fields(sent: Sent) -> Sent:
    """Leave out of a request what `EVERYWHERE` lists."""
    if not isinstance(sent.body, dict):
        return sent
    body = json.loads(json.dumps(sent.body))
    if body.get("tools") == []:
        del body["tools"]
    for tool in body.get("tools", ()):
        if tool.get("description") == "":
            del tool["description"]
    return replace(sent, body=body)


class Outcome(NamedTuple):
    sent: Dict[str, List[Sent]]
    failed: Dict[str, str]
    methods: List[str]


@pytest.fixture(scope="module")
def platform() -> Outcome:
    """What the platform's package sends."""
    assert PEER is not None
    with Recorder(TOOL_CALLS) as server:
        process = subprocess.run(
            [PEER, "-c", PROGRAM],
            input=json.dumps([server.base_url, CALLS]),
            capture_output=True,
            text=True,
            timeout=60,
            env={k: v for k, v in os.environ.items() if k != "PYTHONPATH" and not k.lower().endswith("_proxy")},
        )
        assert process.returncode == 0, process.stderr
        told = json.loads(process.stdout)
        return Outcome({name: server.requests(name) for name in CALLS}, told["failed"], told["methods"])


@pytest.fixture(scope="module")
def ours() -> Outcome:
    """What this package sends."""
    pydantic: Optional[Any] = None
    with contextlib.suppress(ImportError):
        import pydantic
    failed = {}
    with Recorder(TOOL_CALLS) as server:

        def oauth(package: Any, client_id: str) -> Any:
            return package.MantyxOAuthClient(client_id=client_id, client_secret="s", base_url=server.base_url)

        for slug, source in CALLS.items():
            settings = {"api_key": "mantyx_k", "workspace_slug": slug, "base_url": server.base_url}
            with mantyx_sync.MantyxClient(**settings) as client:
                names = {"mantyx": mantyx_sync, "client": client, "slug": slug, "oauth": oauth, "pydantic": pydantic}
                names["base_url"] = server.base_url
                try:
                    exec(compile(source, slug, "exec", dont_inherit=True), names)
                except Exception as error:
                    failed[slug] = f"{type(error).__name__}: {error}"
        return Outcome({name: server.requests(name) for name in CALLS}, failed, [])


@pytest.mark.parametrize("name", CALLS)
def test_both_send_the_same(name: str, platform: Outcome, ours: Outcome) -> None:
    if "pydantic" in CALLS[name]:
        pytest.importorskip("pydantic")
    difference = DIFFERENCES.get(name)
    refusal = difference.refused_by_the_platform if difference else ""
    assert ours.failed.get(name) is None
    assert platform.failed.get(name, "").partition(":")[0] == refusal
    theirs = [without_empty_fields(sent) for sent in platform.sent[name]]
    if difference is not None:
        changed = difference.change(theirs)
        assert changed != theirs, f"no longer different: {difference.why}"
        theirs = changed
    assert ours.sent[name]
    assert ours.sent[name] == theirs


def test_the_matrix_is_large_enough() -> None:
    assert len(CALLS) - len(DIFFERENCES) >= 40
    assert DIFFERENCES.keys() <= CALLS.keys()


def test_each_difference_has_its_reason(platform: Outcome, ours: Outcome) -> None:
    assert all(difference.why.endswith(".") for difference in DIFFERENCES.values())
    assert all(why.endswith(".") for why in EVERYWHERE.values())
    bodies = [sent.body for sent in platform.sent["plain"] + platform.sent["tool_text"] if sent.body]
    assert bodies[0]["tools"] == []
    assert bodies[1]["tools"][0]["description"] == ""
    assert all(without_empty_fields(sent) == sent for requests in ours.sent.values() for sent in requests)


def test_every_method_that_sends_is_among_the_calls(platform: Outcome) -> None:
    sources = " ".join(CALLS.values())
    silent = {"close", "session.info", "session.events", "session.events_page"}  # and what is the client's as well
    for method in platform.methods:
        if method not in silent:
            assert f".{method.rpartition('.')[2]}(" in sources, method
