"""Calls that `test_request_matrix.py` makes with this package and with the platform's own: name, then source.

A call finds `mantyx` (one package or the other), `client` and `base_url`, and the name of the call as `slug`.
"""

from __future__ import annotations

from typing import Any, Dict

_LOOK_UP = {"name": "look_up", "args": {"key": "k"}}
TOOL_CALLS: Dict[str, Dict[str, Any]] = {
    "tool_text": _LOOK_UP,
    "tool_object": _LOOK_UP,
    "tool_list": _LOOK_UP,
    "tool_umlauts": _LOOK_UP,
    "tool_files": _LOOK_UP,
    "tool_model_class": {"name": "weigh", "args": {"grams": 3}},
    "tool_raises": _LOOK_UP,
    "tool_none": _LOOK_UP,
    "tool_unknown": {"name": "elsewhere", "args": {}},
    "session_tool": _LOOK_UP,
    "resumed_tool": _LOOK_UP,
    "a2a_local": {"name": "hr", "args": {"message": "Days?"}, "kind": "a2a_local"},
    "a2a_local_session": {"name": "hr", "args": {"message": "Days?"}, "kind": "a2a_local"},
    "mcp_local": {"name": "read", "args": {}, "kind": "mcp_local", "mcpServer": "fs", "mcpToolName": "read"},
}
"""The tool that the server calls in the runs of a call: what the event says."""

SCHEMA = '{"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]}'
RUN = 'client.run_agent(system_prompt="Be brief.", prompt="Go.", %s)'
SEND = 'client.create_session(system_prompt="Be brief.").send("Go.", %s)'
CITY = '{"type": "object", "properties": {"city": {"type": "string"}}}'
_AGENT = 'tools=[mantyx.define_local_a2a(name="hr", agent_card_url=base_url + "/agent-card.json")]'
PNG = 'mantyx.input_file_attachment(mime_type="image/png", filename="a.png", data="aGVsbG8=")'


def _tools(handler: str) -> str:
    """Return the source of a list of one tool."""
    return f'tools=[mantyx.define_local_tool(name="look_up", parameters={SCHEMA}, execute={handler})]'


CALLS: Dict[str, str] = {
    # Runs
    "plain": 'client.run_agent(system_prompt="Be brief.", prompt="Go.")',
    "stream": 'list(client.stream_agent(system_prompt="Be brief.", prompt="Go."))',
    "umlauts": 'client.run_agent(system_prompt="Kürze.", prompt="Los, 你好 \\U0001f600")',
    "agent_id": 'client.run_agent(agent_id="agent_1", prompt="Go.")',
    "agent_id_and_prompt": 'client.run_agent(agent_id="agent_1", system_prompt="Be brief.", prompt="Go.")',
    "names": RUN % 'name="nightly", model_id="platform:demo", fallback_model_id="provider:x:y"',
    "reasoning_word": RUN % 'reasoning_level="medium"',
    "reasoning_number": RUN % "reasoning_level=80",
    "reasoning_zero": RUN % "reasoning_level=0",
    "metadata": RUN % 'metadata={"customer": "acme", "env": "prod"}',
    "budgets": RUN % 'budgets={"maxToolTurns": 7, "maxToolTurnsExceeded": "finalize"}',
    "messages": """client.run_agent(system_prompt="Be brief.", messages=[
        {"role": "system", "content": "Politely."},
        {"role": "user", "content": "One"},
        {"role": "assistant", "content": "Two"},
        {"role": "user", "content": "Three"},
    ])""",
    "system_message_alone": """client.run_agent(messages=[
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Go."}
    ], agent_id="agent_1")""",
    "prompt_attachments": RUN % f"attachments=[{PNG}]",
    "url_attachment": RUN % 'attachments=[mantyx.input_file_url_attachment(url="https://example.com/a.png")]',
    "url_attachment_typed": RUN
    % 'attachments=[mantyx.input_file_url_attachment(url="https://e.com/a", mime_type="image/png", filename="a.png")]',
    "message_attachments": f"""client.run_agent(system_prompt="Be brief.", messages=[
        {{"role": "user", "content": "See", "attachments": [{PNG}]}}
    ])""",
    # Structured output
    "output_schema": RUN % f'output_schema={{"schema": {CITY}}}',
    "output_schema_named": RUN % f'output_schema={{"name": "city_report", "schema": {CITY}, "enforcement": "strict"}}',
    "output_best_effort": RUN % f'output_schema={{"schema": {CITY}, "enforcement": "best_effort"}}',
    # Guards, supervisor, plan
    "loop_detection": RUN % 'loop_detection={"consecutiveThreshold": 2, "hardCutoffThreshold": 4}',
    "loop_detection_one": RUN % 'loop_detection={"consecutiveThreshold": 2}',
    "loop_detection_off": RUN % "loop_detection=False",
    "tool_budgets": RUN % 'tool_budgets={"recall": {"maxCalls": 8}, "scary_tool": {"maxCalls": 0}}',
    "tool_budgets_cleared": RUN % "tool_budgets={}",
    "supervisor": RUN % 'supervisor={"interval": 10, "reasoningTrigger": {"chars": 5000, "ms": 60000}}',
    "supervisor_boundaries": RUN % 'supervisor={"interval": 10, "reasoningTrigger": False}',
    "supervisor_model": RUN % 'supervisor={"modelId": "platform:demo"}',
    "supervisor_off": RUN % "supervisor=False",
    "supervisor_on": RUN % "supervisor=True",
    "supervisor_defaults": RUN % "supervisor={}",
    "plan_true": RUN % "plan=True",
    "plan_false": RUN % "plan=False",
    "plan_word": RUN % 'plan="required"',
    "plan_steps": RUN % 'plan={"steps": ["Pull", "Sum"], "brief": "Compare."}',
    "plan_mode": RUN % 'plan={"mode": "auto"}',
    "plan_only": RUN % 'plan=mantyx.plan_only(steps=["Pull"], brief="Compare.")',
    "run_plan": 'client.run_plan(system_prompt="Be brief.", prompt="Go.")',
    "run_plan_steps": 'client.run_plan(system_prompt="x", prompt="Go.", steps=["Pull", "Sum"], brief="Compare.")',
    # Tool refs that the platform resolves
    "workspace_tool": RUN % 'tools=[mantyx.mantyx_tool("tool_1")]',
    "plugin_tool": RUN % 'tools=[mantyx.mantyx_plugin_tool("@slack/send")]',
    "a2a_tool": RUN % 'tools=[mantyx.mantyx_a2a(name="billing", agent_card_url="https://b.example/card.json")]',
    "a2a_tool_full": RUN
    % 'tools=[mantyx.mantyx_a2a(name="billing", agent_card_url="https://b.example/card.json", description="Bills.",'
    ' headers={"Authorization": "Bearer t"}, context_id="c1")]',
    "mcp_tool": RUN % 'tools=[mantyx.mantyx_mcp(name="github", url="https://m.example/mcp")]',
    "mcp_tool_full": RUN
    % 'tools=[mantyx.mantyx_mcp(name="github", url="https://m.example/mcp", headers={"X-Key": "k"},'
    ' tool_filter=["create_issue"])]',
    # Local tools, and what is posted for their calls
    "local_tool_bare": RUN % 'tools=[mantyx.define_local_tool(name="bare", execute=lambda args: "x")]',
    "local_tool_flags": RUN
    % f'tools=[mantyx.define_local_tool(name="job", description="Start it.", parameters={SCHEMA},'
    f" output_schema={CITY}, long_running=True, read_only=True, retain=True, execute=lambda args: 'x')]",
    "tool_text": RUN % _tools("lambda args: args['key'] + '!'"),
    "tool_object": RUN % _tools("lambda args: {'a': [1, 2.5, None, True]}"),
    "tool_list": RUN % _tools("lambda args: [1, 2]"),
    "tool_none": RUN % _tools("lambda args: None"),
    "tool_umlauts": RUN % _tools("lambda args: {'a': 'ä'}"),
    "tool_files": RUN
    % _tools("lambda args: mantyx.ToolResult('made', files=[mantyx.ToolResultFile('a.csv', 'text/csv', 'YQ==')])"),
    "tool_model_class": """
class Weight(pydantic.BaseModel):
    grams: int

tool = mantyx.define_local_tool(name="weigh", parameters=Weight, execute=lambda args: str(args.grams * 2))
client.run_agent(system_prompt="Be brief.", prompt="Go.", tools=[tool])
""",
    "tool_raises": RUN % _tools("lambda args: 1 / 0"),
    "tool_unknown": RUN % _tools("lambda args: None"),
    # Tools that live elsewhere, reached from here
    "a2a_local": RUN % _AGENT,
    "a2a_local_session": f'client.create_session(system_prompt="x", {_AGENT}).send("Go.")',
    "mcp_local": RUN % 'tools=[mantyx.define_local_mcp(name="fs", url=base_url + "/mcp")]',
    # Runs that exist
    "cancel": 'client.cancel_run("run_1")',
    "cancel_odd_id": 'client.cancel_run("run/1 ?")',
    "feedback_up": 'client.submit_run_feedback("run_1", "UP")',
    "feedback_full": 'client.submit_run_feedback("run_1", "DOWN", explanation="Wrong.", content_snapshot="The text")',
    "models": "client.list_models()",
    # Sessions
    "create_session": 'client.create_session(system_prompt="Be brief.")',
    "create_session_full": """client.create_session(
        agent_id="agent_1", name="chat", model_id="m", fallback_model_id="n", reasoning_level="low",
        loop_detection=False, tool_budgets={}, supervisor=False, plan=True, budgets={"maxToolTurns": 3},
        metadata={"customer": "acme"}, tools=[mantyx.mantyx_tool("tool_1")],
        output_schema={"schema": {"type": "object"}},
    )""",
    "send": SEND % "",
    "send_messages": 'client.create_session(system_prompt="x").send([{"role": "user", "content": "Go."}])',
    "send_stream": 'list(client.create_session(system_prompt="x").stream("Go."))',
    "send_guards": SEND % 'loop_detection={"consecutiveThreshold": 4}, tool_budgets={}, supervisor=False, plan=True',
    "send_more": SEND % 'reasoning_level=0, metadata={"trace": "t1"}, output_schema={"schema": {"type": "object"}}',
    "send_attachments": SEND % f"attachments=[{PNG}]",
    "session_plan": 'client.create_session(system_prompt="x").run_plan("Go.", steps=["Pull"], brief="Compare.")',
    "session_tool": f'client.create_session(system_prompt="x", {_tools("lambda args: args")}).send("Go.")',
    "session_end": 'client.create_session(system_prompt="x").end()',
    "end_session": 'client.end_session("s 1")',
    "resume": 'client.resume_session("s1").send("Go.")',
    "resumed_tool": f'client.resume_session("s1", {_tools("lambda args: args")}).send("Go.")',
    "session_info": 'client.get_session_info("s1")',
    "session_history": 'client.create_session(system_prompt="x").history()',
    "list_sessions": "client.list_sessions()",
    "list_sessions_full": 'client.list_sessions(metadata={"a": "1", "b": "2"}, status="active", limit=10, offset=20)',
    "list_sessions_cursor": 'client.list_sessions(limit=50, cursor="c=1")',
    "session_events": 'client.get_session_events("s1")',
    "session_events_full": 'client.get_session_events("s1", full=True)',
    "session_events_last": 'client.get_session_events("s1", last_messages=10)',
    "session_events_page": 'client.get_session_events_page("s1")',
    "session_events_older": 'client.get_session_events_page("s1", last_messages=20, before_seq=41)',
    # Evals
    "list_datasets": "client.list_eval_datasets()",
    "get_dataset": 'client.get_eval_dataset("d1")',
    "create_eval": 'client.create_eval_run(dataset_id="d1", agent_id="agent_1")',
    "create_eval_inline": """client.create_eval_run(
        dataset={"name": "d", "cases": [{"name": "c", "input": {"prompt": "Go."}, "scorers": [], "tags": ["t"]}]},
        agent={"systemPrompt": "Be brief.", "modelId": "m"}, model_id="n",
    )""",
    "create_eval_objects": """client.create_eval_run(
        dataset=mantyx.InlineEvalDatasetSpec(cases=[mantyx.InlineEvalCaseSpec(input={"prompt": "Go."}, name="c")]),
        agent_id="agent_1", tools=[mantyx.mantyx_tool("tool_1")],
        overrides=mantyx.AgentEvalOverrides(
            system_prompt="Else.", model="m", reasoning_level=10, disable_tools=True, tool_allowlist=["a"],
            disabled_mocks=["b"],
        ),
    )""",
    "create_eval_agent_tools": """client.create_eval_run(
        dataset_id="d1", agent={"systemPrompt": "Be brief."}, tools=[mantyx.mantyx_plugin_tool("@slack/send")],
    )""",
    "list_evals": "client.list_eval_runs()",
    "list_evals_full": 'client.list_eval_runs(dataset_id="d1", agent_id="a", status="failed", limit=5, offset=10)',
    "get_eval": 'client.get_eval_run("er1")',
    "compare_evals": 'client.compare_eval_runs("er1", "er2")',
    "cancel_eval": 'client.cancel_eval_run("er1")',
    "stream_eval": 'list(client.stream_eval_run("er1"))',
    "run_eval": 'client.run_eval(dataset_id="d1", agent_id="agent_1")',
    # OAuth
    "oauth_refresh": "oauth(mantyx, slug).refresh(refresh_token='mantyx_rt_1')",
    "oauth_scopes": "oauth(mantyx, slug).refresh(refresh_token='mantyx_rt_1', scope=['runs:read', 'runs:write'])",
    "oauth_scope_text": "oauth(mantyx, slug).refresh(refresh_token='mantyx_rt_1', scope='runs:read runs:write')",
    "oauth_revoke": "oauth(mantyx, slug).revoke(token='mantyx_rt_1')",
    "oauth_source": """
source = oauth(mantyx, slug).refresh_token_source(refresh_token="mantyx_rt_1")
source("initial")
source("initial")
""",
}
