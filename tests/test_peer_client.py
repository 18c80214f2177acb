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
    OAuthApp,
    Pause,
    RuleModel,
    ScriptedModel,
    Thinking,
    ToolUse,
    TurnEnd,
    Usage,
)
from mantyx_sync.local.faults import answer, cut, rate_limited
from tests.plain_http import ORDER_TOOL
from tests.waiting import wait_until

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
            events = list(client.stream_agent(system_prompt="x", prompt="Tell me a story.", reasoning_level="low"))
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
        wait_until(lambda: server.runs[0].is_terminal)
    assert (shown["text"], busy.hits) == ("Done.", 1)


# ------------------------------------------------------------------------------------ sessions


def test_its_session_keeps_a_conversation_with_overrides_that_do_not_stick() -> None:
    call = [ToolUse("get_order", {"order_id": "17"})]

    def script(request: Any) -> list[Any]:
        said = [message["content"] for message in request.messages if message["role"] == "user"]
        return [call, ["It has shipped."]] if len(said) == 1 else [f"You said {', '.join(said)}."]

    with LocalServer(ScriptedModel(script)) as server:
        shown = peer(
            server,
            """
            session = client.create_session(
                system_prompt="You help.", tools=[order_tool], metadata={"customer": "acme"}, reasoning_level="low",
                supervisor={"interval": 7}, loop_detection={"consecutiveThreshold": 2, "hardCutoffThreshold": 4},
            )
            deltas = []
            first = session.send("Where is order 17?", on_assistant_delta=deltas.append)
            second = session.send(
                "And?", reasoning_level=0, loop_detection=False, tool_budgets={}, supervisor=False,
                metadata={"trace": "t1"},
            )
            third = session.send([{"role": "user", "content": "So?"}])
            info = session.info()
            show(
                id=session.id, texts=[first.text, second.text, third.text], deltas=deltas, status=info.status,
                history=[(m["role"], m["content"]) for m in session.history()], metadata=info.metadata,
                spec=info.agent_spec["supervisor"],
            )
            """,
        )
        runs = server.runs
        assert [run.session_id for run in runs] == [shown["id"]] * 3
    assert shown["texts"] == [
        "It has shipped.",
        "You said Where is order 17?, And?.",
        "You said Where is order 17?, And?, So?.",
    ]
    assert shown["deltas"] == ["It has shipped."]
    assert (shown["status"], shown["metadata"], shown["spec"]) == ("active", {"customer": "acme"}, {"interval": 7})
    assert shown["history"] == [
        ["user", "Where is order 17?"],
        ["assistant", shown["texts"][0]],
        ["user", "And?"],
        ["assistant", shown["texts"][1]],
        ["user", "So?"],
        ["assistant", shown["texts"][2]],
    ]
    guards = ("reasoningLevel", "loopDetection", "toolBudgets", "supervisor")
    assert [runs[1].spec[name] for name in guards] == [0, False, {}, False]
    assert runs[2].spec["supervisor"] == {"interval": 7}
    assert "toolBudgets" not in runs[2].spec
    assert [run.metadata for run in runs] == [
        {"customer": "acme"},
        {"customer": "acme", "trace": "t1"},
        {"customer": "acme"},
    ]


def test_its_session_is_resumed_elsewhere_replayed_in_pages_and_ended() -> None:
    with LocalServer(RuleModel()) as server:
        session_id = peer(
            server,
            """
            session = client.create_session(system_prompt="You help.", tools=[order_tool])
            session.send("Look.", attachments=[
                {"type": "input_file", "mimeType": "text/plain", "filename": "a.txt", "data": "MTIzNDU="},
            ])
            show(id=session.id)
            """,
        )["id"]
        shown = peer(
            server,
            f"""
            session = client.resume_session({session_id!r}, tools=[order_tool])
            text = session.send("Where is order 17?").text
            pages, before = [], None
            while True:
                page = session.events_page(last_messages=3, before_seq=before)
                pages.append([(e.seq, e.type) for e in page.events])
                before = page.next_before_seq
                if before is None:
                    break
            first = session.events(full=True)[0]
            session.end()
            try:
                session.send("More?")
            except MantyxError as error:
                refused = (error.status, error.code)
            show(
                text=text, pages=pages, total=page.total, truncated=page.truncated, first=first.data,
                last=[e.seq for e in session.events(last_messages=1)], refused=refused, status=session.info().status,
            )
            """,
        )
    assert shown["text"] == "get_order (order_id 17) says: order 17 has shipped."
    assert shown["pages"] == [
        [[2, "assistant_message"], [3, "user_message"], [4, "assistant_message"]],
        [[1, "user_message"]],
    ]
    assert (shown["total"], shown["truncated"], shown["last"]) == (4, False, [4])
    assert shown["first"] == {
        "text": "Look.",
        "attachments": [{"type": "input_file", "mimeType": "text/plain", "filename": "a.txt", "size": 5}],
    }
    assert (shown["refused"], shown["status"]) == ([409, "session_ended"], "ended")


def test_it_lists_sessions_by_metadata_and_cursor() -> None:
    with LocalServer(ScriptedModel(["ok"])) as server:
        shown = peer(
            server,
            """
            ids = [
                client.create_session(system_prompt="x", metadata={"k": str(n % 2), "n": "a:b c"}).id for n in range(6)
            ]
            client.end_session(ids[0])
            found, page = [], client.list_sessions(metadata={"k": "0", "n": "a:b c"}, limit=2)
            total = page.total
            while True:
                found += [s.session_id for s in page.sessions]
                if page.next_cursor is None:
                    break
                page = client.list_sessions(metadata={"k": "0"}, limit=2, cursor=page.next_cursor)
            ended = [s.session_id for s in client.list_sessions(status="ended").sessions]
            show(ids=ids, found=found, total=total, ended=ended, metadata=page.sessions[0].metadata)
            """,
        )
    assert shown["found"] == shown["ids"][4::-2]
    assert (shown["total"], shown["ended"]) == (3, shown["ids"][:1])
    assert shown["metadata"] == {"k": "0", "n": "a:b c"}


def test_its_plan_only_turn_leaves_no_answer_in_the_session() -> None:
    with LocalServer(ScriptedModel(["Done."])) as server:
        shown = peer(
            server,
            """
            session = client.create_session(system_prompt="x")
            plan = session.run_plan("Move house.", steps=["Pack", "Drive"], brief="Move").plan
            text = session.send("Do it.").text
            show(plan=plan, text=text, history=[(m["role"], m["content"]) for m in session.history()])
            """,
        )
    assert [step["title"] for step in shown["plan"]["steps"]] == ["Pack", "Drive"]
    assert shown["history"] == [["user", "Move house."], ["user", "Do it."], ["assistant", "Done."]]


# --------------------------------------------------------------------------------------- OAuth

APP = OAuthApp("mantyx_oa_1", "mantyx_oas_1", scopes=["runs:read", "runs:write"], refresh_tokens=["mantyx_rt_1"])
OAUTH = """
from mantyx import MantyxOAuthClient, MantyxOAuthError, MantyxScopeError
oauth = MantyxOAuthClient(client_id="mantyx_oa_1", client_secret="mantyx_oas_1", base_url=settings["base_url"])
source = oauth.refresh_token_source(refresh_token="mantyx_rt_1")
client = MantyxClient(
    token_source=source, workspace_slug=settings["workspace_slug"], base_url=settings["base_url"]
)
"""


def test_it_refreshes_its_access_token_when_one_expires() -> None:
    with LocalServer(ScriptedModel(["Done."]), oauth_apps=[APP]) as server:
        script = (
            OAUTH
            + """
first = client.run_agent(system_prompt="x", prompt="y").text
print("ready", flush=True)
sys.stdin.readline()
second = client.run_agent(system_prompt="x", prompt="y").text
token = oauth.refresh(refresh_token="mantyx_rt_1", scope=["runs:read"])
show(texts=[first, second], token=token)
"""
        )
        with peer_process(server, script) as process:
            assert process.stdout is not None
            assert process.stdin is not None
            assert process.stdout.readline() == "ready\n"
            assert server.expire_tokens() == 1
            output, errors = process.communicate("go\n", timeout=60)
            assert process.returncode == 0, errors
        routes = [request.route for request in server.requests]
    shown = json.loads(output.splitlines()[-1])
    assert shown["texts"] == ["Done.", "Done."]
    assert routes.count("oauth_token") == 3
    token = shown["token"]
    assert (token["refresh_token"], token["expires_in"], token["scope"]) == ("mantyx_rt_1", 3600, "runs:read")


def test_it_understands_a_revoked_grant_and_a_missing_scope() -> None:
    with LocalServer(ScriptedModel(["Done."]), oauth_apps=[APP]) as server:
        shown = peer(
            server,
            OAUTH
            + """
try:
    client.list_models()
except MantyxScopeError as error:
    scopes = list(error.required_scopes)
oauth.revoke(token="mantyx_rt_1")
failures = []
for call in (lambda: oauth.refresh(refresh_token="mantyx_rt_1"),
             lambda: client.run_agent(system_prompt="x", prompt="y")):
    try:
        call()
    except MantyxOAuthError as error:
        failures.append((error.oauth_error, error.status))
show(scopes=scopes, failures=failures)
""",
        )
    assert shown["scopes"] == ["models:read"]
    assert shown["failures"] == [["invalid_grant", 400]] * 2


# --------------------------------------------------------------------------------------- evals

ORDERS = {
    "id": "ds_orders",
    "name": "Orders",
    "toolMocks": {"get_order": "order 17 is lost"},
    "cases": [
        {
            "id": "c1",
            "name": "finds",
            "input": {"role": "user", "content": "Where is order 17?"},
            "scorers": [
                {"type": "tool_called", "tool": "get_order", "args": {"order_id": "17"}},
                {"type": "contains", "value": "has shipped"},
            ],
        }
    ],
}


def test_it_runs_an_eval_with_a_local_tool() -> None:
    with LocalServer(RuleModel(), eval_datasets=[ORDERS]) as server:
        shown = peer(
            server,
            """
            events = []
            detail = client.run_eval(
                dataset_id="ds_orders", agent={"systemPrompt": "x"}, tools=[order_tool],
                overrides={"disabledMocks": ["get_order"]}, on_event=events.append, poll_interval_s=0.02,
            )
            show(detail=detail, events=[e.type for e in events], last=events[-1].data)
            """,
        )
    detail = shown["detail"]
    assert (detail["status"], detail["dataset_name"], detail["inline_agent"]) == ("succeeded", "Orders", True)
    assert (detail["total_cases"], detail["passed_cases"], detail["score"]) == (1, 1, 1.0)
    (result,) = detail["results"]
    assert (result["case_id"], result["case"]["name"], result["passed"]) == ("c1", "finds", True)
    assert result["tool_calls"][0]["output"] == "order 17 has shipped"
    assert [score["passed"] for score in result["scores"]] == [True, True]
    assert "local_tool_call" in shown["events"]
    assert (shown["events"][0], shown["events"][-1]) == ("snapshot", "run_completed")
    assert shown["last"]["passedCases"] == 1


def test_it_reads_data_sets_and_compares_streams_and_cancels_evals() -> None:
    agents = {"agt_1": {"systemPrompt": "x", "tools": [ORDER_TOOL]}}
    with LocalServer(RuleModel(), eval_datasets=[ORDERS], agents=agents) as server:
        shown = peer(
            server,
            """
            from mantyx import AgentEvalOverrides, InlineEvalCaseSpec, InlineEvalDatasetSpec
            datasets = client.list_eval_datasets().datasets
            dataset = client.get_eval_dataset(datasets[0].id)
            runs = [
                client.run_eval(dataset_id="ds_orders", agent_id="agt_1", poll_interval_s=0.02),
                client.run_eval(
                    dataset_id="ds_orders", agent_id="agt_1", poll_interval_s=0.02,
                    overrides=AgentEvalOverrides(disable_tools=True, system_prompt_append="Be kind."),
                ),
            ]
            compared = client.compare_eval_runs(runs[0].id, runs[1].id)
            inline = client.create_eval_run(
                dataset=InlineEvalDatasetSpec(cases=[InlineEvalCaseSpec(input={"prompt": "Hi"})]),
                agent={"systemPrompt": "x"},
            )
            events = [e.type for e in client.stream_eval_run(inline.run_id)]
            cancelled = client.cancel_eval_run(inline.run_id)
            listed = client.list_eval_runs(dataset_id="ds_orders", status="succeeded", limit=10)
            show(datasets=datasets, dataset=dataset, runs=runs, compared=compared, events=events,
                 cancelled=cancelled, inline=inline, listed=listed)
            """,
        )
        assert server.eval_run(shown["inline"]["run_id"]).status == "succeeded"
    assert (shown["datasets"][0]["case_count"], shown["datasets"][0]["run_count"]) == (1, 0)
    assert shown["dataset"]["tool_mocks"] == ORDERS["toolMocks"]
    assert shown["dataset"]["cases"][0]["scorers"] == ORDERS["cases"][0]["scorers"]  # type: ignore[index]
    first, second = shown["runs"]
    assert first["results"][0]["tool_calls"][0]["output"] == "order 17 is lost"
    assert second["results"][0]["tool_calls"] == []
    assert second["agent_overrides"] == {"disableTools": True, "systemPromptAppend": "Be kind."}
    compared = shown["compared"]
    assert (compared["run_a"]["id"], compared["run_b"]["id"]) == (first["id"], second["id"])
    assert compared["cases"][0]["case_name"] == "finds"
    assert compared["cases"][0]["a"]["score"] == 0.5
    assert (shown["events"][0], shown["events"][-1]) == ("snapshot", "run_completed")
    assert shown["cancelled"] == {"ok": True}
    assert [run["id"] for run in shown["listed"]["runs"]] == [second["id"], first["id"]]


def test_its_cancelled_eval_ends_as_cancelled() -> None:
    reached = threading.Event()
    with LocalServer(ScriptedModel([[Pause(threading.Event(), reached)]])) as server:
        script = """
            accepted = client.create_eval_run(
                dataset={"cases": [{"input": {"prompt": "Hi"}}]}, agent={"systemPrompt": "x"})
            sys.stdin.readline()
            client.cancel_eval_run(accepted.run_id)
            events = [e.type for e in client.stream_eval_run(accepted.run_id)]
            show(last=events[-1], status=client.get_eval_run(accepted.run_id).status)
            """
        with peer_process(server, script) as process:
            assert reached.wait(60)
            output, errors = process.communicate("go\n", timeout=60)
            assert process.returncode == 0, errors
    assert json.loads(output) == {"last": "run_cancelled", "status": "cancelled"}
