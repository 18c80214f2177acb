"""The platform's own Python client, unchanged and in its own interpreter, against the embedded server.

What it makes of our answers is how we know that the server is faithful. `MANTYX_PEER_PYTHON` names an
interpreter that has the `mantyx-sdk` distribution; without it these tests are skipped.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import textwrap
import threading
from typing import Any, Iterator

import pytest

from mantyx_sync.local import (
    Failure,
    LocalServer,
    Pause,
    RuleModel,
    ScriptedModel,
    Thinking,
    ToolUse,
    TurnEnd,
    Usage,
)
from mantyx_sync.local.faults import answer, cut, rate_limited
from tests.plain_http import DEADLINE_S, wait_until

PEER = os.environ.get("MANTYX_PEER_PYTHON")
pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif(not PEER, reason="MANTYX_PEER_PYTHON names no interpreter with the platform's package"),
]

PRELUDE = """
import dataclasses, json, sys
import mantyx
from mantyx import MantyxClient, MantyxError, MantyxRunError, define_local_tool

settings = json.loads(sys.argv[1])
client = MantyxClient(**settings)

def plain(value):
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value

def show(**values):
    print(json.dumps({name: plain(value) for name, value in values.items()}), flush=True)

order_tool = define_local_tool(
    name="get_order",
    description="Look up one order.",
    parameters={"type": "object", "properties": {"order_id": {"type": "string"}}, "required": ["order_id"]},
    execute=lambda args: "order " + str(args["order_id"]) + " has shipped",
)
"""


@contextlib.contextmanager
def peer_process(server: LocalServer, script: str, **settings: str) -> Iterator[subprocess.Popen[str]]:
    """Run a script with the platform's client; it finds `client`, `order_tool` and `show(**values)`."""
    assert PEER is not None
    given = {**server.client_settings(), **settings}
    process = subprocess.Popen(
        [PEER, "-c", PRELUDE + textwrap.dedent(script), json.dumps(given)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # The client must not find this package's source, nor a proxy, between itself and the server.
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH" and not k.lower().endswith("_proxy")},
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def peer(server: LocalServer, script: str, **settings: str) -> dict[str, Any]:
    """Run a script to its end and return what it showed last."""
    with peer_process(server, script, **settings) as process:
        output, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
    shown: dict[str, Any] = json.loads(output.splitlines()[-1])
    return shown


def test_it_completes_a_run_with_a_local_tool() -> None:
    script = [
        ["Looking. ", ToolUse("get_order", {"order_id": "17"}), TurnEnd("tool_use", Usage(100, 20, 5, 3))],
        ["It has ", "shipped.", TurnEnd("end_turn", Usage(150, 10, 0, 0))],
    ]
    with LocalServer(ScriptedModel(script)) as server:
        shown = peer(
            server,
            """
            deltas = []
            result = client.run_agent(
                system_prompt="You help.", prompt="Where is order 17?", tools=[order_tool],
                reasoning_level="medium", metadata={"k": "v"}, on_assistant_delta=deltas.append,
            )
            show(result=result, deltas=deltas)
            """,
        )
        run = server.runs[0]
        assert run.status == "succeeded"
    result = shown["result"]
    assert (result["run_id"], result["text"]) == (run.id, "It has shipped.")
    assert shown["deltas"] == ["Looking. ", "It has ", "shipped."]
    assert result["tokens"]["input_tokens"] == 250
    assert result["turns"] == 2
    assert result["model"]["vendor_model_id"] == "scripted"
    assert result["model"]["reasoning_effort"] == "medium"
    mirror = next(event["data"] for event in run.events if event["type"] == "local_tool_result_in")
    assert mirror["output"] == "order 17 has shipped"
    assert [(event["seq"], event["type"]) for event in result["events"]] == [
        (event["seq"], event["type"]) for event in run.events
    ]


def test_it_completes_a_run_with_the_rule_model() -> None:
    with LocalServer(RuleModel()) as server:
        shown = peer(
            server,
            """
            result = client.run_agent(system_prompt="x", prompt="Where is order 17?", tools=[order_tool])
            show(text=result.text)
            """,
        )
    assert shown["text"] == "get_order (order_id 17) says: order 17 has shipped."


def test_it_follows_a_stream() -> None:
    with LocalServer(ScriptedModel([[Thinking("Hm. "), "Once ", "upon ", "a time."]])) as server:
        shown = peer(
            server,
            """
            events = list(client.stream_agent(system_prompt="x", prompt="Tell me a story."))
            show(events=[(e.seq, e.type, e.data.get("text")) for e in events])
            """,
        )
    assert shown["events"] == [
        [1, "thinking_delta", "Hm. "],
        [2, "assistant_delta", "Once "],
        [3, "assistant_delta", "upon "],
        [4, "assistant_delta", "a time."],
        [5, "assistant_message", "Once upon a time."],
        [6, "result", "Once upon a time."],
    ]


def test_it_resumes_a_stream_that_breaks_off() -> None:
    with LocalServer(ScriptedModel([["one ", "two ", "three"]])) as server:
        # Behind a whole frame, since it reads half a frame at the end of a body as an event.
        frame = len(
            b'id: 1\nevent: assistant_delta\ndata: {"seq":1,"type":"assistant_delta","data":{"text":"one "}}\n\n'
        )
        server.faults.add(cut(frame, "end"), route="stream")
        shown = peer(server, 'show(text=client.run_agent(system_prompt="x", prompt="y").text)')
        resumed = [request for request in server.requests if request.route == "stream"][1]
    assert shown["text"] == "one two three"
    assert (resumed.headers["last-event-id"], resumed.query["lastSeq"]) == ("1", ["1"])


def test_its_cancelled_run_ends_as_cancelled() -> None:
    reached = threading.Event()
    with LocalServer(ScriptedModel([["Thinking about it", Pause(threading.Event(), reached)]])) as server:
        script = """
            import threading
            failures = []
            def follow():
                try:
                    client.run_agent(system_prompt="x", prompt="y")
                except MantyxRunError as error:
                    failures.append(error)
            thread = threading.Thread(target=follow)
            thread.start()
            run_id = sys.stdin.readline().strip()
            client.cancel_run(run_id)
            client.cancel_run(run_id)
            thread.join()
            (error,) = failures
            show(run_id=error.run_id, subtype=error.subtype, message=error.message)
            """
        with peer_process(server, script) as process:
            assert reached.wait(60)
            output, errors = process.communicate(f"{server.runs[0].id}\n", timeout=60)
            assert process.returncode == 0, errors
        shown = json.loads(output)
        assert server.runs[0].status == "cancelled"
    assert shown == {"run_id": server.runs[0].id, "subtype": "cancelled", "message": "Run was cancelled"}


FAILED = """
try:
    client.run_agent(system_prompt="x", prompt="y")
except MantyxRunError as error:
    show(**{name: getattr(error, name) for name in (
        "run_id", "subtype", "message", "code", "error_class", "finish_reason", "partial_text", "retryable",
        "tokens", "turns", "model", "api_status", "api_code",
    )})
"""


def test_its_failed_run_carries_every_attribute() -> None:
    failure = Failure(
        "The provider is busy.",
        error_class="overloaded",
        finish_reason="refusal",
        retryable=True,
        api_status=529,
        api_code="busy",
        usage=Usage(9, 4, 3, 1),
    )
    with LocalServer(ScriptedModel([["Half an ", "answer", failure]])) as server:
        shown = peer(server, FAILED)
        run_id = server.runs[0].id
    assert shown == {
        "run_id": run_id,
        "subtype": "overloaded",
        "message": "The provider is busy.",
        "code": "overloaded",
        "error_class": "overloaded",
        "finish_reason": "refusal",
        "partial_text": "Half an answer",
        "retryable": True,
        "tokens": {"input_tokens": 9, "cached_tokens": 3, "reasoning_tokens": 1, "output_tokens": 4},
        "turns": 1,
        "model": {
            "id": "local:scripted",
            "provider": "local",
            "vendor_model_id": "scripted",
            "reasoning_effort": None,
        },
        "api_status": 529,
        "api_code": "busy",
    }


def test_its_truncated_run_keeps_the_partial_text() -> None:
    with LocalServer(ScriptedModel([['{"a": ', TurnEnd("max_tokens")]])) as server:
        shown = peer(server, FAILED)
    assert (shown["error_class"], shown["finish_reason"], shown["partial_text"]) == (
        "truncation",
        "max_tokens",
        '{"a": ',
    )


def test_its_tool_error_reaches_the_model() -> None:
    with LocalServer(ScriptedModel([[ToolUse("broken", {})], "Sorry."])) as server:
        shown = peer(
            server,
            """
            def fail(args):
                raise ValueError("no such order")
            broken = define_local_tool(name="broken", execute=fail)
            show(text=client.run_agent(system_prompt="x", prompt="y", tools=[broken]).text)
            """,
        )
        mirror = next(event["data"] for event in server.runs[0].events if event["type"] == "local_tool_result_in")
    assert shown["text"] == "Sorry."
    assert "no such order" in mirror["error"]


def test_it_lists_models_and_gives_feedback() -> None:
    with LocalServer(ScriptedModel(["Done."])) as server:
        shown = peer(
            server,
            """
            run_id = client.run_agent(system_prompt="x", prompt="y").run_id
            first = client.submit_run_feedback(run_id, "UP", explanation="good")
            second = client.submit_run_feedback(run_id, "DOWN")
            show(models=client.list_models(), first=first, second=second)
            """,
        )
    assert shown["models"]["default_model_id"] == "local:scripted"
    assert shown["models"]["models"][0]["context_window_tokens"] == 128_000
    assert (shown["first"]["verdict"], shown["second"]["verdict"]) == ("UP", "DOWN")
    assert shown["first"]["id"] == shown["second"]["id"]


REFUSED = """
try:
    client.run_agent(system_prompt="x", prompt="y")
except MantyxError as error:
    show(kind=type(error).__name__, status=error.status, code=error.code, hint=error.hint,
         scopes=list(getattr(error, "required_scopes", ())))
"""


@pytest.mark.parametrize(
    ("settings", "kind", "status", "code"),
    [
        ({"api_key": "mantyx_wrong"}, "MantyxAuthError", 401, "unauthorized"),
        ({"workspace_slug": "elsewhere"}, "MantyxError", 404, "workspace_not_found"),
        ({"api_key": "mantyx_at_reader"}, "MantyxScopeError", 403, "insufficient_scope"),
    ],
)
def test_it_understands_a_refusal(settings: dict[str, str], kind: str, status: int, code: str) -> None:
    with LocalServer(ScriptedModel(["Done."]), tokens={"mantyx_at_reader": ["runs:read"]}) as server:
        shown = peer(server, REFUSED, **settings)
    assert (shown["kind"], shown["status"], shown["code"]) == (kind, status, code)
    if status == 404:
        assert "'local'" in shown["hint"]
    if status == 403:
        assert shown["scopes"] == ["runs:write"]


def test_it_understands_a_rate_limit_and_a_busy_server() -> None:
    with LocalServer(ScriptedModel(["Done."])) as server:
        server.faults.add(rate_limited(1), route="create")
        assert peer(server, REFUSED)["code"] == "rate_limit_exceeded"
        server.faults.add(answer(503, "<html>busy</html>"), route="create")
        assert peer(server, REFUSED)["code"] == "http_503"


def test_it_repeats_a_tool_result_that_met_a_busy_server() -> None:
    with LocalServer(ScriptedModel([[ToolUse("get_order", {"order_id": "1"})], "Done."])) as server:
        busy = server.faults.add(answer(503, {"error": "busy"}), route="tool_results")
        shown = peer(server, 'show(text=client.run_agent(system_prompt="x", prompt="y", tools=[order_tool]).text)')
        wait_until(lambda: server.runs[0].is_terminal, deadline=DEADLINE_S)
    assert (shown["text"], busy.hits) == ("Done.", 1)
