"""Code written for the platform's own package: the import line is changed, the rest stays.

Each program uses the calls of one part of that package's README, in the same forms. What cannot work is listed in our
README ("Coming from the platform's package"), and in `NOT_HERE` and `ELSEWHERE` with the reason.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any, Dict, List

import pytest

import mantyx_sync
from mantyx_sync.local import Failure, LocalServer, OAuthApp, ScriptedModel, ServerTool, ToolUse
from tests.a2a_agents import Agent, message_v1

PEER = os.environ.get("MANTYX_PEER_PYTHON")
needs_peer = pytest.mark.skipif(not PEER, reason="MANTYX_PEER_PYTHON names no interpreter with the platform's package")
README = Path(__file__).parent.parent / "README.md"

pytestmark = pytest.mark.usefixtures("no_leaks")


def run(program: str, server: LocalServer, monkeypatch: pytest.MonkeyPatch, **names: Any) -> Dict[str, Any]:
    """Run a program as a module, with the environment that points at the server; returns its names."""
    settings = server.client_settings()
    monkeypatch.setenv("MANTYX_API_KEY", settings["api_key"])
    monkeypatch.setenv("MANTYX_WORKSPACE_SLUG", settings["workspace_slug"])
    monkeypatch.setenv("MANTYX_BASE_URL", settings["base_url"])
    module = types.ModuleType("migrated")
    monkeypatch.setitem(sys.modules, "migrated", module)  # where type hints are looked up
    vars(module).update(names)
    try:
        exec(compile(program, "migrated", "exec", dont_inherit=True), vars(module))
    finally:
        for value in list(vars(module).values()):
            if isinstance(value, mantyx_sync.MantyxClient):
                value.close()
    return vars(module)


QUICKSTART = """
import os
from pathlib import Path

from pydantic import BaseModel
from mantyx_sync import MantyxClient, define_local_tool, mantyx_tool

class ReadFileArgs(BaseModel):
    path: str

client = MantyxClient(
    api_key=os.environ["MANTYX_API_KEY"],
    workspace_slug=os.environ["MANTYX_WORKSPACE_SLUG"],
)
read = []
def execute(args):
    read.append(args)
    return Path(args.path).read_text()

result = client.run_agent(
    system_prompt="You are a helpful assistant.",
    prompt="Read the file and sum it up.",
    tools=[
        define_local_tool(
            name="read_file", description="Read a file.", parameters=ReadFileArgs, execute=execute,
        ),
        mantyx_tool("tool_cm6abc123"),
    ],
)
text = result.text
"""


def test_quickstart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("pydantic")
    path = tmp_path / "hostname"
    path.write_text("box-17")
    script = [
        [ToolUse("read_file", {"path": str(path)})],
        [ToolUse("weather", {"city": "Bern"})],
        "It says box-17.",
    ]
    tools = {"tool_cm6abc123": ServerTool(lambda city: f"rain in {city}", name="weather")}
    with LocalServer(ScriptedModel(script), tools=tools) as server:
        found = run(QUICKSTART, server, monkeypatch)
        outputs = [e["data"].get("output") for e in server.runs[0].events if e["type"] == "local_tool_result_in"]
    assert found["text"] == "It says box-17."
    assert isinstance(found["read"][0], found["ReadFileArgs"])
    assert outputs == ["box-17"]


AGENT_BY_ID = """
import mantyx_sync as mantyx

client = mantyx.MantyxClient(api_key="mantyx_local", workspace_slug="local")
result = client.run_agent(
    agent_id="agent_cm6abc123",
    prompt="Pull the logs.",
    tools=[mantyx.define_local_tool(name="read_local_file", execute=lambda args: str(sorted(args)))],
)
session = client.create_session(agent_id="agent_cm6abc123")
answer = session.send("And now?").text
catalog = client.list_models()
lines = [f"{m.id} {m.label}" for m in catalog.models]
chosen = client.run_agent(system_prompt="x", prompt="Hi!", model_id=catalog.models[0].id)
unknown = None
try:
    client.run_agent(agent_id="agent_none", prompt="x")
except mantyx.MantyxError as error:
    unknown = error
"""


def test_agents_of_the_workspace_and_models(monkeypatch: pytest.MonkeyPatch) -> None:
    agents = {"agent_cm6abc123": {"systemPrompt": "Stored."}}
    with LocalServer(ScriptedModel(["Done."]), agents=agents) as server:
        found = run(AGENT_BY_ID, server, monkeypatch)
    assert (found["result"].text, found["answer"], found["chosen"].text) == ("Done.", "Done.", "Done.")
    assert found["lines"][0].startswith("local:scripted ")
    assert found["unknown"].status in (403, 404)


STREAMING = """
import mantyx_sync as mantyx

client = mantyx.MantyxClient(api_key="mantyx_local", workspace_slug="local")
printed = []
for event in client.stream_agent(system_prompt="...", prompt="Tell me a story."):
    if event.type == "assistant_delta":
        printed.append(event.text)
    elif event.type == "result":
        printed.append("|")
events = list(client.stream_agent(system_prompt="...", prompt="Again."))
first = next(client.stream_agent(system_prompt="...", prompt="And again."))
deltas, seen = [], []
client.run_agent(
    system_prompt="...", prompt="...", on_assistant_delta=lambda d: deltas.append(d), on_event=seen.append,
)
data = [event.data for event in events]
rebuilt = mantyx.RunEvent(seq=events[0].seq, type=events[0].type, data=dict(events[0].data))
"""


def test_streaming(monkeypatch: pytest.MonkeyPatch) -> None:
    with LocalServer(ScriptedModel([["Once ", "upon ", "a time."]])) as server:
        found = run(STREAMING, server, monkeypatch)
    assert found["printed"] == ["Once ", "upon ", "a time.", "|"]
    assert found["deltas"] == ["Once ", "upon ", "a time."]
    assert [event.type for event in found["seen"]] == [event.type for event in found["events"]]
    assert found["data"][0]["text"] == "Once "
    assert found["data"][-1]["subtype"] == "success"
    assert (found["first"].text, found["rebuilt"].text) == ("Once ", "Once ")


SESSIONS = """
from datetime import date
from mantyx_sync import MantyxClient, define_local_tool

client = MantyxClient(api_key="mantyx_local", workspace_slug="local")
asked = []
def today_tool(parameters):
    return define_local_tool(
        name="today", description="Get the date.", parameters=parameters,
        execute=lambda _args: asked.append(1) or date.today().isoformat(),
    )
session = client.create_session(
    system_prompt="You are friendly.", tools=[today_tool(parameters)], metadata={"customer": "acme", "env": "prod"},
)
r1 = session.send("What day is it?")
r2 = session.send("And tomorrow?", metadata={"trace_id": "trace_abc"}, reasoning_level="low", plan=False)
session_id = session.id

resumed = client.resume_session(session_id, tools=[today_tool(parameters)])
r3 = resumed.send([{"role": "user", "content": "And then?"}])
streamed = [event.type for event in resumed.stream("Once more.")]
planned = resumed.run_plan("Move house.", steps=["Pack", "Drive"], brief="Move", on_assistant_delta=print)

result = client.list_sessions(metadata={"customer": "acme"}, status="active", limit=50)
next_page = client.list_sessions(limit=50, cursor=result.next_cursor) if result.next_cursor else None
summaries = [
    (s.session_id, s.creation_date, s.last_interaction_date, s.summary, s.metadata, s.status) for s in result.sessions
]
numbers = (result.total, result.limit, result.offset)
events = client.get_session_events(result.sessions[0].session_id)
recent = client.get_session_events(result.sessions[0].session_id, last_messages=2)
page = client.get_session_events_page(result.sessions[0].session_id, last_messages=3)
older = client.get_session_events_page(session_id, before_seq=page.next_before_seq) if page.next_before_seq else None
same = session.events(full=True) == client.get_session_events(session_id, full=True)
page_facts = (page.session_id, page.total, page.truncated, len(session.events_page(last_messages=1).events))
info = client.get_session_info(session_id)
info_facts = (info.id, info.name, info.status, info.agent_spec["systemPrompt"], info.metadata, len(info.messages))
history = [(m["role"], m["content"]) for m in session.history()]
session.end()
ended = session.info().status
client.end_session(client.create_session(system_prompt="x").id)
"""


@pytest.mark.parametrize("parameters", ["none", "pydantic"])
def test_sessions(monkeypatch: pytest.MonkeyPatch, parameters: str) -> None:
    given = None
    if parameters == "pydantic":
        given = pytest.importorskip("pydantic").create_model("TodayArgs")
    script = ScriptedModel(lambda asked: [[ToolUse("today", {})], "A day."] if asked.tools else ["A day."])
    with LocalServer(script) as server:
        found = run(SESSIONS, server, monkeypatch, parameters=given)
        metadata = [run.metadata for run in server.runs]
    assert [found[name].text for name in ("r1", "r2", "r3")] == ["A day."] * 3
    assert len(found["asked"]) == 4
    assert found["streamed"][-1] == "result"
    assert [step["title"] for step in found["planned"].plan["steps"]] == ["Pack", "Drive"]
    assert metadata[1] == {"customer": "acme", "env": "prod", "trace_id": "trace_abc"}
    (summary,) = found["summaries"]
    assert (summary[0], summary[4], summary[5]) == (found["session_id"], {"customer": "acme", "env": "prod"}, "active")
    assert found["numbers"][1:] == (50, 0)
    assert {event.type for event in found["events"]} == {"user_message", "assistant_message"}
    assert (len(found["recent"]), len(found["page"].events), found["same"]) == (2, 3, True)
    assert found["older"].events[0].data["text"] == "What day is it?"
    assert found["page_facts"][0] == found["session_id"]
    assert found["info_facts"][2:5] == ("active", "You are friendly.", {"customer": "acme", "env": "prod"})
    assert found["history"][0] == ("user", "What day is it?")
    assert (found["ended"], found["next_page"]) == ("ended", None)


PLANS = """
import mantyx_sync as mantyx

client = mantyx.MantyxClient(api_key="mantyx_local", workspace_slug="local")
plans = []
tracked = client.run_agent(
    system_prompt="x", prompt="y", plan={"steps": ["One", "Two"], "brief": "Both"},
    on_event=lambda ev: ev.type == "task_plan" and plans.append(mantyx.task_plan_from_event_data(ev.data)),
)
client.run_agent(system_prompt="x", prompt="y", plan=True)
alone = client.run_plan(system_prompt="x", prompt="y", steps=["Pack", "Drive"], on_assistant_delta=print)
helped = client.run_agent(system_prompt="x", prompt="y", plan=mantyx.plan_only(steps=["Pack"], brief="Move"))
titles = [step["title"] for step in alone.plan["steps"]] + [step["title"] for step in helped.plan["steps"]]
statuses = [step["status"] for step in plans[-1]["steps"]]
brief = helped.plan.get("brief")
"""


def test_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    with LocalServer(ScriptedModel(["Done."])) as server:
        found = run(PLANS, server, monkeypatch)
    assert (found["tracked"].text, found["titles"]) == ("Done.", ["Pack", "Drive", "Pack"])
    assert (found["statuses"], found["brief"]) == (["done", "done"], "Move")


REFS = """
from mantyx_sync import MantyxClient, mantyx_a2a, mantyx_mcp, mantyx_plugin_tool, mantyx_tool

tools = [
    mantyx_a2a(
        name="billing_agent", agent_card_url="https://billing.example.com/.well-known/agent-card.json",
        description="Billing questions.", headers={"Authorization": "Bearer ..."}, context_id="c",
    ),
    mantyx_mcp(
        name="github", url="https://api.example.com/mcp", headers={"Authorization": "Bearer ..."},
        tool_filter=["create_issue", "list_issues"],
    ),
    mantyx_plugin_tool("@slack/send"),
    mantyx_tool("tool_1"),
]
facts = [
    (tools[0].name, tools[0].agent_card_url, tools[0].description, tools[0].context_id, tools[0].kind),
    (tools[1].name, tools[1].url, tools[1].tool_filter, tools[1].kind),
    (tools[2].name, tools[2].kind),
    (tools[3].id, tools[3].kind),
]
client = MantyxClient(api_key="mantyx_local", workspace_slug="local")
result = client.create_session(system_prompt="x", tools=tools)
for level in ("medium", 80):
    client.run_agent(system_prompt="...", prompt="...", reasoning_level=level)
"""


def test_tools_of_the_platform_and_reasoning(monkeypatch: pytest.MonkeyPatch) -> None:
    with LocalServer(ScriptedModel(["Done."])) as server:
        found = run(REFS, server, monkeypatch)
        levels = [run.spec["reasoningLevel"] for run in server.runs]
    assert levels == ["medium", 80]
    assert [fact[-1] for fact in found["facts"]] == ["a2a", "mcp", "mantyx_plugin", "mantyx"]
    assert list(found["facts"][1][2]) == ["create_issue", "list_issues"]


ELSEWHERE_TOOLS = """
import mantyx_sync as mantyx

client = mantyx.MantyxClient(api_key="mantyx_local", workspace_slug="local")
fs = mantyx.define_local_mcp(name="fs", command=command, args=args, env={"FOO": "bar"}, cwd=cwd, prefix=True)
hr = mantyx.define_local_a2a(name="hr", agent_card_url=card_url, headers={"Authorization": "Bearer ..."})
facts = (
    fs.name, fs.kind, fs.http, fs.stdio.command, list(fs.stdio.args), fs.stdio.env, fs.stdio.cwd,
    hr.name, hr.kind, hr.agent_card_url, hr.headers,
    mantyx.is_local_mcp_server(fs), mantyx.is_local_a2a_tool(hr), mantyx.is_local_tool(fs),
)
web = mantyx.define_local_mcp(name="web", url="http://127.0.0.1:1/mcp", headers={"Authorization": "Bearer ..."})
web_facts = (web.http.url, web.http.headers, web.stdio)
with client:
    one = client.run_agent(system_prompt="x", prompt="y", tools=[fs, hr])
    session = client.create_session(system_prompt="x", tools=[fs, hr])
    two = session.send("y")
    three = session.send("y")
    session.end()
"""


def test_tools_that_live_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = Path(__file__).parent / "mcp_servers" / "catalog_server.py"
    args = ["-S", "-E", str(program), "fs", str(tmp_path / "log"), "read_echo"]
    calls = [[ToolUse("fs_read_echo", {"text": "from fs"})], [ToolUse("hr", {"message": "Days?"})]]

    def answer(request: Any) -> str:
        return ", ".join(message["content"] for message in request.messages[-3:] if message["role"] == "tool")

    agent = Agent({"SendMessage": lambda call: {"message": message_v1("12 days")}})
    with agent, LocalServer(ScriptedModel(lambda asked: [*calls, answer])) as server:
        more = {"command": sys.executable, "args": args, "cwd": str(tmp_path), "card_url": agent.url}
        found = run(ELSEWHERE_TOOLS, server, monkeypatch, **more)
    assert [found[name].text for name in ("one", "two", "three")] == ["from fs, 12 days"] * 3
    assert found["facts"] == (
        *("fs", "mcp_local", None, sys.executable, args, {"FOO": "bar"}, str(tmp_path)),
        *("hr", "a2a_local", agent.url, {"Authorization": "Bearer ..."}, True, True, False),
    )
    assert found["web_facts"] == ("http://127.0.0.1:1/mcp", {"Authorization": "Bearer ..."}, None)


STRUCTURED = """
from pydantic import BaseModel
from mantyx_sync import MantyxClient, MantyxParseError, MantyxRunError, define_local_tool, parse_run_output

class Weather(BaseModel):
    city: str
    temperature_c: float

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "temperature_c": {"type": "number"}},
    "required": ["city", "temperature_c"],
    "additionalProperties": False,
}
client = MantyxClient(api_key="mantyx_local", workspace_slug="local")
def ask(prompt, **more):
    return client.run_agent(
        system_prompt="Return JSON.", prompt=prompt, output_schema={"name": "weather_report", "schema": SCHEMA, **more},
    )
result = ask("good", enforcement="strict")
report = parse_run_output(result, Weather.model_validate)
plain = parse_run_output(result)
info = result.structured_output
facts = (
    info.schema_requested, info.schema_enforced, info.enforcement_mechanism, info.unconstrained_fallback_occurred,
)
try:
    parse_run_output(ask("bad"), Weather.model_validate)
except MantyxParseError as error:
    lost = error.text
try:
    ask("bad", enforcement="strict")
except MantyxRunError as error:
    strict = (error.error_class, error.structured_output.schema_enforced)
refused = []
for wrong in ({"name": "a b", "schema": SCHEMA}, {"schema": []}, {"schema": {"d": "x" * 40000}}):
    try:
        client.run_agent(system_prompt="x", prompt="y", output_schema=wrong)
    except ValueError as error:
        refused.append(str(error))

class KickOffArgs(BaseModel):
    dataset: str

class KickOffResult(BaseModel):
    job_id: str
    status: str

tool = define_local_tool(
    name="kick_off_export", description="Start a job.", parameters=KickOffArgs, output_schema=KickOffResult,
    long_running=True, read_only=True, execute=lambda args: KickOffResult(job_id=args.dataset, status="pending"),
)
attributes = (tool.name, tool.description, tool.long_running, tool.read_only, tool.retain, tool.kind)
client.run_agent(system_prompt="x", prompt="tool", tools=[tool])
"""


def test_structured_output(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pydantic")
    good = '{"city": "Bern", "temperature_c": 3.5}'
    script = ScriptedModel(
        lambda asked: (
            [[ToolUse("kick_off_export", {"dataset": "d1"})], "Started."]
            if asked.prompt == "tool"
            else [good if asked.prompt == "good" else "rainy"]
        )
    )
    with LocalServer(script) as server:
        found = run(STRUCTURED, server, monkeypatch)
        output = next(e["data"]["output"] for e in server.runs[-1].events if e["type"] == "local_tool_result_in")
    assert (found["report"].city, found["report"].temperature_c) == ("Bern", 3.5)
    assert found["plain"] == json.loads(good)
    assert found["facts"] == (True, True, "native_schema", False)
    assert (found["lost"], found["strict"]) == ("rainy", ("structured_output_not_enforced", False))
    assert len(found["refused"]) == 3
    assert found["attributes"] == ("kick_off_export", "Start a job.", True, True, False, "local")
    assert json.loads(output) == {"job_id": "d1", "status": "pending"}


ERRORS = """
import mantyx_sync as mantyx
from mantyx_sync import (
    MantyxAuthError, MantyxClient, MantyxError, MantyxNetworkError, MantyxOAuthError, MantyxParseError, MantyxRunError,
    MantyxScopeError, MantyxToolError,
)
def failure(client, **call):
    try:
        client.run_agent(**{"system_prompt": "x", "prompt": "y", **call})
    except MantyxError as error:
        return error
run_failed = failure(MantyxClient(api_key="mantyx_local", workspace_slug="local"))
names = (
    "run_id", "subtype", "message", "code", "error_class", "finish_reason", "partial_text", "retryable", "tokens",
    "turns", "model", "api_status", "api_code", "structured_output",
)
attributes = {name: getattr(run_failed, name) for name in names}
wrong_key = failure(MantyxClient(api_key="mantyx_wrong", workspace_slug="local"))
wrong_slug = failure(MantyxClient(api_key="mantyx_local", workspace_slug="elsewhere"))
scope = failure(MantyxClient(access_token="mantyx_at_reader", workspace_slug="local"))
elsewhere = failure(MantyxClient(api_key="k", workspace_slug="local", base_url="http://127.0.0.1:9", timeout=5.0))
made = [
    MantyxError("text", code="c", status=400, hint="h"), MantyxAuthError(), MantyxAuthError("text"),
    MantyxScopeError("text", required_scopes=["runs:write"]), MantyxScopeError("text", ["a"]),
    MantyxNetworkError("text", cause=OSError()), MantyxRunError("run_1", "error", "text", error_class="server"),
    MantyxToolError("tool", "text"), MantyxParseError("text", text="raw"),
    MantyxOAuthError("invalid_grant", "gone", 400),
]
"""


def test_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    failing = Failure("Busy.", error_class="overloaded", retryable=True, api_status=529, api_code="busy")
    with LocalServer(ScriptedModel([["Half", failing]]), tokens={"mantyx_at_reader": ["runs:read"]}) as server:
        monkeypatch.delenv("MANTYX_ACCESS_TOKEN", raising=False)
        found = run(ERRORS.replace('access_token="', 'api_key=None, access_token="'), server, monkeypatch)
    attributes = found["attributes"]
    assert (attributes["subtype"], attributes["code"]) == ("overloaded", "overloaded")
    assert (attributes["partial_text"], attributes["retryable"], attributes["api_status"]) == ("Half", True, 529)
    assert attributes["tokens"].output_tokens >= 0
    assert isinstance(found["wrong_key"], mantyx_sync.MantyxAuthError)
    assert (found["wrong_key"].status, found["wrong_slug"].status) == (401, 404)
    assert "'local'" in found["wrong_slug"].hint
    assert list(found["scope"].required_scopes) == ["runs:write"]
    assert isinstance(found["elsewhere"], mantyx_sync.MantyxNetworkError)
    made = found["made"]
    assert (made[0].code, made[0].status, made[0].hint) == ("c", 400, "h")
    assert [list(error.required_scopes) for error in made[3:5]] == [["runs:write"], ["a"]]
    assert (made[6].run_id, made[7].tool_name, made[8].text) == ("run_1", "tool", "raw")
    assert (made[9].oauth_error, made[9].oauth_error_description, made[9].status) == ("invalid_grant", "gone", 400)
    assert all(isinstance(error, mantyx_sync.MantyxError) for error in made)


OAUTH = """
import os
from mantyx_sync import MantyxClient, MantyxOAuthClient, MantyxOAuthError

oauth = MantyxOAuthClient(client_id="mantyx_oa_1", client_secret="mantyx_oas_1")
stored = "mantyx_rt_1"
client = MantyxClient(token_source=oauth.refresh_token_source(refresh_token=stored), workspace_slug="local")
first = client.run_agent(system_prompt="x", prompt="y").text
expire()
second = client.run_agent(system_prompt="x", prompt="y").text
token = oauth.refresh(refresh_token=stored)
seeded = MantyxClient(
    token_source=oauth.refresh_token_source(refresh_token=stored, initial_token=token, refresh_skew_s=30.0),
    workspace_slug="local",
)
third = seeded.run_agent(system_prompt="x", prompt="y").text
one_shot = MantyxClient(api_key=None, access_token=token.access_token, workspace_slug="local")
fourth = one_shot.run_agent(system_prompt="x", prompt="y").text
def own_source(reason="initial"):
    return token.access_token
fifth = MantyxClient(token_source=own_source, workspace_slug="local")
fifth_text = fifth.run_agent(system_prompt="x", prompt="y").text
facts = (token.token_type, token.refresh_token, token.expires_in, token.scope, token.expires_at > 0)
oauth.revoke(token=stored)
try:
    oauth.refresh(refresh_token=stored)
except MantyxOAuthError as error:
    refused = (error.oauth_error, error.status)
oauth.close()
"""


def test_oauth(monkeypatch: pytest.MonkeyPatch) -> None:
    app = OAuthApp("mantyx_oa_1", "mantyx_oas_1", scopes=["runs:read", "runs:write"], refresh_tokens=["mantyx_rt_1"])
    with LocalServer(ScriptedModel(["Done."]), oauth_apps=[app]) as server:
        found = run(OAUTH, server, monkeypatch, expire=server.expire_tokens)
    assert [found[name] for name in ("first", "second", "third", "fourth", "fifth_text")] == ["Done."] * 5
    assert found["facts"][:3] == ("Bearer", "mantyx_rt_1", 3600)
    assert found["refused"] == ("invalid_grant", 400)


OTHERS = """
import mantyx_sync as mantyx

client = mantyx.MantyxClient(api_key="mantyx_local", workspace_slug="local", timeout=60.0)
def chart(args):
    return mantyx.ToolResult(result="made", files=[
        mantyx.ToolResultFile(filename="a.csv", mime_type="text/csv", data="YQ=="),
    ])
tool = mantyx.define_local_tool(name="chart", execute=chart, retain=True)
result = client.run_agent(
    system_prompt="x", prompt="See.", tools=[tool],
    attachments=[mantyx.input_file_attachment(mime_type="text/plain", filename="a.txt", data="YQ==")],
    loop_detection=mantyx.LoopDetection(consecutiveThreshold=2, hardCutoffThreshold=4),
    tool_budgets={"chart": mantyx.ToolBudget(maxCalls=3)},
    supervisor=mantyx.Supervisor(interval=3, reasoningTrigger=mantyx.ReasoningTrigger(chars=10)),
    budgets=mantyx.RunBudgets(maxToolTurns=9),
    plan=mantyx.PlanOptions(steps=["One"], planOnly=False),
    output_schema=mantyx.OutputSchema(schema={"type": "object"}, enforcement="best_effort"),
)
usage = (result.tokens.input_tokens, result.turns, result.model.vendor_model_id, len(result.events) > 0)
feedback = client.submit_run_feedback(result.run_id, "UP", explanation="Good.")
kept = (feedback.id, feedback.verdict, feedback.target_kind, feedback.agent_run_id)
client.cancel_run(result.run_id)
detail = client.run_eval(
    dataset=mantyx.InlineEvalDatasetSpec(cases=[mantyx.InlineEvalCaseSpec(input={"prompt": "Hi"}, name="c")], name="d"),
    agent={"systemPrompt": "x"}, overrides=mantyx.AgentEvalOverrides(system_prompt_append="Be kind."),
    poll_interval_s=0.02,
)
case = detail.results[0]
facts = (detail.status, detail.total_cases, detail.completed_cases, case.case.name, case.final_text)
accepted = client.create_eval_run(dataset={"cases": [{"input": {"prompt": "Hi"}}]}, agent={"systemPrompt": "x"})
streamed = [event.type for event in client.stream_eval_run(accepted.run_id)]
listed = [run.id for run in client.list_eval_runs(limit=10).runs]
cancelled = client.cancel_eval_run(accepted.run_id)
compared = client.compare_eval_runs(detail.id, detail.id)
sides = (compared.run_a.id, compared.run_b.id, compared.cases[0].case_name)
datasets = client.list_eval_datasets().datasets
version = mantyx.__version__ == mantyx.SDK_VERSION
constants = (mantyx.DEFAULT_BASE_URL, mantyx.DEFAULT_OAUTH_BASE_URL, mantyx.DEFAULT_REFRESH_SKEW_S)
local = [mantyx.is_local_tool(t) for t in (tool, mantyx.mantyx_tool("t"))]
"""


def test_everything_else(monkeypatch: pytest.MonkeyPatch) -> None:
    script = ScriptedModel(lambda asked: [[ToolUse("chart", {})], "{}"] if asked.tools else ["{}"])
    with LocalServer(script) as server:
        found = run(OTHERS, server, monkeypatch)
        spec = server.runs[0].spec
    assert spec["loopDetection"] == {"consecutiveThreshold": 2, "hardCutoffThreshold": 4}
    assert spec["supervisor"] == {"interval": 3, "reasoningTrigger": {"chars": 10}}
    assert (spec["toolBudgets"], spec["budgets"]) == ({"chart": {"maxCalls": 3}}, {"maxToolTurns": 9})
    assert spec["plan"] == {"steps": ["One"], "planOnly": False}
    assert found["usage"][1:3] == (2, "scripted")
    assert found["kept"][1:3] == ("UP", "agent_run")
    assert found["facts"][:4] == ("succeeded", 1, 1, "c")
    assert found["streamed"][-1] == "run_completed"
    assert found["accepted"].run_id in found["listed"]
    assert found["cancelled"] == {"ok": True}
    assert found["sides"] == (found["detail"].id, found["detail"].id, "c")
    assert (found["version"], found["local"]) == (True, [True, False])
    assert found["constants"] == ("https://app.mantyx.io", "https://app.mantyx.io", 60.0)


# -- name by name

_ASYNC = "there is no async client: the package is for code without an event loop"
_HTTPX = "httpx is not used: give a requests.Session as `session`"

NOT_HERE: Dict[str, str] = {
    "AsyncAgentSession": _ASYNC,
    "AsyncMantyxClient": _ASYNC,
    "AsyncTokenSource": _ASYNC,
    "MantyxOAuthClient.aclose": _ASYNC,
    "MantyxOAuthClient.arefresh": _ASYNC,
    "MantyxOAuthClient.arevoke": _ASYNC,
    "MantyxOAuthClient.async_refresh_token_source": _ASYNC,
}
"""Names of the platform's package that this one does not have, and why."""

ELSEWHERE: Dict[str, str] = {
    "MantyxClient.__init__(http_client)": _HTTPX,
    "MantyxOAuthClient.__init__(http_client)": _HTTPX,
    "MantyxOAuthClient.__init__(async_http_client)": _ASYNC,
    "AgentSession.send(prompt_or_messages)": "what is said comes first, without a name",
    "AgentSession.stream(prompt_or_messages)": "what is said comes first, without a name",
    "AgentSession.run_plan(prompt_or_messages)": "what is said comes first, without a name",
    "is_local_a2a_tool(t)": "the tool comes first, without a name",
    "is_local_mcp_server(t)": "the tool comes first, without a name",
    "is_local_tool(t)": "the tool comes first, without a name",
}
"""Parameters that are not taken by their name, and why."""

INSPECT = """
import dataclasses, inspect, json
import mantyx

found = {"names": list(mantyx.__all__), "parameters": {}, "fields": {}}

def keep(name, function):
    parameters = [p.name for p in inspect.signature(function).parameters.values() if p.name != "self"]
    found["parameters"][name] = parameters

for name in mantyx.__all__:
    value = getattr(mantyx, name)
    if inspect.isfunction(value):
        keep(name, value)
    elif dataclasses.is_dataclass(value):
        found["fields"][name] = [f.name for f in dataclasses.fields(value) if not f.name.startswith("_")]
    elif inspect.isclass(value) and issubclass(value, dict):
        found["fields"][name] = []
    elif inspect.isclass(value) and value.__module__.startswith("mantyx") and name != "AgentSession":
        for method, function in vars(value).items():
            if inspect.isfunction(function) and (method == "__init__" or not method.startswith("_")):
                keep(f"{name}.{method}", function)
for method, function in vars(mantyx.AgentSession).items():
    if inspect.isfunction(function) and not method.startswith("_"):
        keep(f"AgentSession.{method}", function)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def platform() -> Dict[str, Any]:
    assert PEER is not None
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    process = subprocess.run([PEER, "-c", INSPECT], capture_output=True, text=True, timeout=60, env=env)
    assert process.returncode == 0, process.stderr
    found: Dict[str, Any] = json.loads(process.stdout)
    return found


@needs_peer
@pytest.mark.peer
def test_every_name_is_here_or_its_absence_has_a_reason(platform: Dict[str, Any]) -> None:
    missing = [name for name in platform["names"] if name not in mantyx_sync.__all__]
    assert sorted(missing) == sorted(name for name in NOT_HERE if "." not in name)


@needs_peer
@pytest.mark.peer
def test_every_parameter_is_taken_or_its_absence_has_a_reason(platform: Dict[str, Any]) -> None:
    absent: List[str] = []
    for name, parameters in platform["parameters"].items():
        if name in NOT_HERE or name.partition(".")[0] in NOT_HERE:
            continue
        ours: Any = mantyx_sync
        for part in name.split("."):
            ours = getattr(ours, part)
        taken = inspect.signature(ours).parameters
        absent += [f"{name}({parameter})" for parameter in parameters if parameter not in taken]
    assert sorted(absent) == sorted(ELSEWHERE)


@needs_peer
@pytest.mark.peer
def test_every_attribute_is_here(platform: Dict[str, Any]) -> None:
    for name, attributes in platform["fields"].items():
        if name in NOT_HERE:
            continue
        ours = getattr(mantyx_sync, name)
        have = {f.name for f in dataclasses.fields(ours)} if dataclasses.is_dataclass(ours) else set()
        assert [a for a in attributes if a not in have and not hasattr(ours, a)] == [], name


def test_what_is_not_here_says_so() -> None:
    for name in NOT_HERE:
        if "." not in name:
            assert not hasattr(mantyx_sync, name)
    with pytest.raises(AttributeError, match="'AsyncMantyxClient': this package is synchronous"):
        _ = mantyx_sync.AsyncMantyxClient
    section = README.read_text(encoding="utf-8").split("## Coming from the platform's package")[1].split("\n## ")[0]
    for words in ("AsyncMantyxClient", "a2a_server", "http_client"):
        assert words in section
    assert "by position" in section
