"""What the documents ask of a client, item by item, and the tests that show it.

`CHECKLIST` is the wire protocol's list for implementers (wire §13), `LIMITS` the rows of its tables of limits, of those
of the run guards and of the HTTP notes. Every test that is named exists; the last tests of this module are those that
no other module has.
"""

from __future__ import annotations

import ast
import functools
from pathlib import Path
from typing import Any, Dict, List, Set

import pytest

from mantyx_sync import MantyxClient, MantyxParseError, MantyxRunError, define_local_tool
from mantyx_sync.events import decode
from mantyx_sync.local import LocalServer, ScriptedModel, ToolUse, TurnEnd, Verdict
from mantyx_sync.output import parse_run_output
from mantyx_sync.tools.registry import Registry
from tests.test_limits import LIMITS as SPEC_LIMITS

TESTS = Path(__file__).parent

# -- the tables

CHECKLIST: Dict[str, List[str]] = {
    "1. reasoningLevel as a word or a number, unchanged": [
        "test_spec.py::test_field_goes_out_in_its_wire_form",
        "test_limits.py::test_what_is_just_allowed_is_sent_as_it_is[reasoningLevel]",
        "test_request_matrix.py::test_both_send_the_same[reasoning_word]",
        "test_request_matrix.py::test_both_send_the_same[reasoning_zero]",
    ],
    "2. outputSchema unchanged; the text parsed and validated again, a typed error otherwise": [
        "test_request_matrix.py::test_both_send_the_same[output_schema_named]",
        "test_compliance.py::test_an_answer_is_parsed_and_validated_again",
        "test_compliance.py::test_a_truncated_answer_is_never_taken_for_the_answer",
    ],
    "3. loopDetection, toolBudgets, supervisor unchanged; omitted, cleared and off are three things": [
        "test_spec.py::test_field_goes_out_in_its_wire_form",
        "test_spec.py::test_field_that_is_not_given_is_not_sent",
        "test_documents.py::test_a_snippet_of_the_documents_runs",
        "test_documents.py::test_a_session_has_guards_and_a_message_overrides_them_for_itself",
        "test_local_guards.py::test_caller_budgets_lie_over_the_defaults",
    ],
    "4. loop_detected, tool_budget_exceeded, supervisor are for watching alone": [
        "test_compliance.py::test_events_of_guards_change_nothing_for_who_follows",
        "test_documents.py::test_the_events_of_the_page_can_be_watched_as_it_shows",
        "test_events.py::test_known_type_is_decoded_to_its_class",
    ],
    "5. plan in all its forms, task_plan as a live list, plan-only's list on the result": [
        "test_spec.py::test_field_goes_out_in_its_wire_form",
        "test_compliance.py::test_a_plan_is_followed_while_the_run_goes_on",
        "test_compliance.py::test_a_plan_alone_is_on_the_result",
        "test_results.py::test_plan_is_found_at_either_place",
    ],
    "6. one registry of callbacks, by kind and key": [
        "test_compliance.py::test_calls_are_passed_on_by_kind_and_key",
    ],
    "7. local: parameters and outputSchema as JSON Schema, longRunning": [
        "test_compliance.py::test_a_local_tool_says_all_it_can_on_the_wire",
        "test_tool_function.py::test_options_of_the_decorator_win_and_reach_the_wire",
        "test_tool_function.py::test_pydantic_fields_and_models_are_parameters",
        "test_hints.py::test_an_output_schema_has_an_object_at_its_root",
        "test_request_matrix.py::test_both_send_the_same[local_tool_flags]",
    ],
    "8. a2a_local: the Agent Card resolved here": [
        "test_a2a_run.py::test_the_card_goes_out_as_it_is_and_the_answer_comes_back",
        "test_a2a_run.py::test_a_card_that_is_given_is_not_fetched_and_a_description_overrides",
        "test_a2a_run.py::test_calls_are_found_by_name_and_else_by_the_cards_address",
        "test_tool_resolution.py::test_a_run_resolves_its_tools_before_it_is_created_and_sends_what_came_of_it",
        "test_request_matrix.py::test_both_send_the_same[a2a_local]",
        "test_spec.py::test_tool_given_as_a_mapping_goes_out_unchanged",
        "test_spec.py::test_bad_tools_are_refused",
    ],
    "9. mcp_local: Initialize and tools/list spoken here, both verbatim": [
        "test_mcp_run.py::test_the_catalog_goes_out_verbatim_the_call_comes_back_and_the_process_ends",
        "test_mcp_run.py::test_names_that_had_to_change_lead_to_the_real_tool",
        "test_mcp_run.py::test_a_catalog_that_cannot_be_used_is_refused_before_anything_is_sent",
        "test_tool_resolution.py::test_names_that_collide_are_reported_before_the_run_starts",
        "test_spec.py::test_tool_given_as_a_mapping_goes_out_unchanged",
        "test_spec.py::test_what_a_server_offers_is_checked_once_it_is_known",
    ],
    "10. local_tool_call: by kind (`local` if there is none), arguments validated, the result posted": [
        "test_run.py::test_a_local_tool_runs_and_its_result_reaches_the_model",
        "test_compliance.py::test_calls_are_passed_on_by_kind_and_key",
        "test_run_network.py::test_arguments_of_any_kind_are_answered_and_bad_ones_do_not_run_the_tool",
        "test_tool_function.py::test_what_is_no_object_of_the_schema_is_an_input_error_and_the_tool_does_not_run",
        "test_run_network.py::test_one_bad_call_does_not_spoil_the_batch",
        "test_mcp_run.py::test_arguments_are_checked_here",
    ],
    "11. the stream is closed at the terminal event": [
        "test_run_network.py::test_the_terminal_event_ends_the_run_although_the_body_stays_open",
        "test_run_network.py::test_what_follows_the_terminal_event_is_not_read",
        "test_stream.py::test_leaving_at_the_last_event_closes_the_connection_although_the_body_stays_open",
    ],
    "12. one result per toolUseId; 409 run_terminal is normal": [
        "test_ledger.py::test_a_call_is_admitted_once_however_often_it_arrives",
        "test_run_network.py::test_replayed_events_are_handed_out_once_and_replayed_tool_calls_run_once",
        "test_run_network.py::test_a_call_answered_by_somebody_else_meanwhile_gets_no_second_answer",
        "test_run_network.py::test_a_result_that_may_not_be_posted_is_reported_as_undelivered",
        "test_compliance.py::test_a_result_that_comes_too_late_harms_nothing",
    ],
    "13. reconnects with Last-Event-ID, and the log fills the gap": [
        "test_envelopes.py::test_the_resume_header_names_the_last_usable_place",
        "test_stream.py::test_it_goes_on_where_it_broke_off",
        "test_stream.py::test_every_cut_of_an_answer_leads_to_the_same_events",
        "test_run_network.py::test_silence_is_noticed_and_the_stream_taken_up_again_where_it_was",
    ],
}

_ALLOWED = "test_limits.py::test_what_is_just_allowed_is_sent_as_it_is"
_BEYOND = "test_limits.py::test_what_is_beyond_is_refused_with_field_value_and_limit_and_nothing_is_sent"


def _spec(*names: str) -> List[str]:
    """Return the two tests of rows of `test_limits.LIMITS`."""
    return [f"{test}[{name}]" for name in names for test in (_ALLOWED, _BEYOND)]


LIMITS: Dict[str, List[str]] = {
    # Run guards, "Limits" (and wire §8.1, §8.2, §8.4, which say the same)
    "run guards: loopDetection.consecutiveThreshold, 2 to 100": _spec("loopDetection.consecutiveThreshold"),
    "run guards: loopDetection.hardCutoffThreshold, 3 to 100, above the other": _spec(
        "loopDetection.hardCutoffThreshold", "loopDetection: hard beyond consecutive"
    ),
    "run guards: toolBudgets, 32 entries": _spec("toolBudgets: entries"),
    "run guards: toolBudgets key, 1 to 120 characters": _spec("toolBudgets: key"),
    "run guards: toolBudgets maxCalls, 0 to 1000": _spec("toolBudgets.maxCalls"),
    "run guards: supervisor.interval, 1 to 100": _spec("supervisor.interval"),
    "run guards: supervisor.reasoningTrigger.chars, 1 to 50000": _spec("supervisor.reasoningTrigger.chars"),
    "run guards: supervisor.reasoningTrigger.ms, 1 to 600000": _spec("supervisor.reasoningTrigger.ms"),
    # Wire
    "wire §2.1.1: 20 attachments, 5 MB inline, https": _spec(
        "attachments: number", "attachments: inline bytes", "attachments: https alone", "attachments: no data: prefix"
    ),
    "wire §2.1.1: the last message that is not a system message is the user's": _spec(
        "messages: the last one", "messages: roles"
    ),
    "wire §3.1, §3.2: names of tools": _spec("tools: name"),
    "wire §3.3: names in a catalog": _spec("tools: name in an MCP catalog"),
    "wire §5: result, 2 MB": [
        "test_tool_calls.py::test_a_result_beyond_the_limit_is_an_error_the_model_can_act_on",
        "test_tool_calls.py::test_the_limit_counts_bytes_not_characters",
        "test_tool_results.py::test_a_result_larger_than_the_platform_takes_is_an_error",
    ],
    "wire §5: error, 8 KB": ["test_tool_calls.py::test_a_long_tool_error_is_cut_to_what_the_server_takes"],
    "wire §5: files, 20 of 5 MB in all, of allowed types": [
        "test_tool_results.py::test_files_within_the_limits_are_accepted",
        "test_tool_results.py::test_files_that_the_platform_refuses_are_an_error",
        "test_tool_calls.py::test_files_that_are_not_allowed_are_an_error",
    ],
    "wire §5: a call answered within 5 minutes": [
        "test_tool_calls.py::test_a_handler_beyond_its_time_out_is_answered_for_and_told_to_stop",
        "test_run_network.py::test_a_tool_that_hangs_does_not_hide_that_the_stream_is_lost",
    ],
    "wire §6: reasoningLevel, four words or 0 to 100": _spec("reasoningLevel"),
    "wire §7: outputSchema, 32 KB": _spec("outputSchema: size"),
    "wire §7: outputSchema name": _spec("outputSchema.name"),
    "wire §7: outputSchema schema, an object": _spec("outputSchema.schema"),
    "wire §8.1: thresholds": _spec(
        "loopDetection.consecutiveThreshold",
        "loopDetection.hardCutoffThreshold",
        "loopDetection: hard beyond consecutive",
    ),
    "wire §8.2: max entries": _spec("toolBudgets: entries"),
    "wire §8.2: key length": _spec("toolBudgets: key"),
    "wire §8.2: maxCalls, and maxToolTurns at 100": _spec("toolBudgets.maxCalls", "budgets.maxToolTurns"),
    "wire §8.4: interval, chars, ms": _spec(
        "supervisor.interval", "supervisor.reasoningTrigger.chars", "supervisor.reasoningTrigger.ms"
    ),
    # HTTP
    "http §3: limit of a listing, 1 to 200": [
        "test_limits.py::test_other_limits_are_refused_before_anything_is_sent",
        "test_limits.py::test_other_values_at_their_limit_are_sent",
    ],
    "http §3: explanation of feedback, 8000 characters": [
        "test_limits.py::test_other_limits_are_refused_before_anything_is_sent",
        "test_limits.py::test_other_values_at_their_limit_are_sent",
    ],
    "http §3: lastMessages, 500": [
        "test_limits.py::test_other_limits_are_refused_before_anything_is_sent",
        "test_limits.py::test_other_values_at_their_limit_are_sent",
    ],
    "http §4: agentId, systemPrompt or a system message; exactly one of prompt and messages": [
        "test_limits.py::test_other_limits_are_refused_before_anything_is_sent",
        "test_limits.py::test_other_values_at_their_limit_are_sent",
        "test_spec.py::test_fields_must_fit_together",
    ],
    "http §4: messages, 200 of 200,000 characters, three roles": _spec(
        "messages: number", "messages: content", "messages: roles", "messages: the last one"
    ),
    "http §4: attachments, 20 of 5 MB in all, https, no data: prefix": _spec(
        "attachments: number", "attachments: inline bytes", "attachments: https alone", "attachments: no data: prefix"
    ),
    "http §4: types of attachments": _spec("attachments: types"),
    "http §4: metadata, 16 entries": _spec("metadata: entries"),
    "http §4: metadata keys": _spec("metadata: key"),
    "http §4: metadata values, strings of 256": _spec("metadata: value"),
    "http §4: metadata, 4 KB": _spec("metadata: size"),
    "http §4: mcp_local, 1 to 64 tools": _spec("tools: MCP catalog"),
    "http §4: names of plugin tools": ["test_limits.py::test_a_plugin_tool_is_named_with_its_plugin"],
    "http §4: words of plan": _spec("plan: words"),
}


@functools.cache
def functions_of(module: str) -> Set[str]:
    """Return the names of the test functions of a module, without running it."""
    tree = ast.parse((TESTS / module).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


@pytest.mark.parametrize(("item", "named"), [*CHECKLIST.items(), *LIMITS.items()], ids=[*CHECKLIST, *LIMITS])
def test_every_item_names_tests_that_exist(item: str, named: List[str]) -> None:
    assert named
    for node in named:
        module, _, rest = node.partition("::")
        test, _, case = rest.partition("[")
        assert test in functions_of(module), node
        if test in (_ALLOWED.split("::")[1], _BEYOND.split("::")[1]):
            assert case[:-1] in SPEC_LIMITS, node
        elif module == "test_request_matrix.py":
            from tests.request_calls import CALLS

            assert case[:-1] in CALLS, node


def test_every_limit_of_a_spec_is_in_the_table() -> None:
    named = {node.partition("[")[2][:-1] for nodes in LIMITS.values() for node in nodes if "[" in node}
    assert named == SPEC_LIMITS.keys()
    assert len(CHECKLIST) == 13


# -- what no other module shows

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def client_of(server: LocalServer) -> MantyxClient:
    return MantyxClient(**server.client_settings())


@pytest.mark.parametrize("text", ["Bern", '{"city": ', '{"city": 5}', "[]", "null", ""])
def test_an_answer_is_parsed_and_validated_again(no_leaks: None, text: str) -> None:
    script = ScriptedModel(lambda asked: ['{"city": "Bern"}' if asked.prompt == "good" else text])
    with LocalServer(script) as server, client_of(server) as client:
        assert client.run_agent(system_prompt="x", prompt="good", output_type=CITY).output == {"city": "Bern"}
        with pytest.raises(MantyxParseError) as caught:
            client.run_agent(system_prompt="x", prompt="bad", output_type=CITY)
        assert caught.value.text == text
        plain = client.run_agent(system_prompt="x", prompt="bad", output_schema={"schema": CITY})
        with pytest.raises(MantyxParseError):
            parse_run_output(plain, CITY)
        assert [run.spec["outputSchema"] for run in server.runs] == [{"schema": CITY}] * 3


def test_a_truncated_answer_is_never_taken_for_the_answer(no_leaks: None) -> None:
    with LocalServer(ScriptedModel([['{"city": "Be', TurnEnd("max_tokens")]])) as server, client_of(server) as client:
        with pytest.raises(MantyxRunError) as caught:
            client.run_agent(system_prompt="x", prompt="y", output_type=CITY)
        snapshot = client.get_run(caught.value.run_id)
    error = caught.value
    assert (error.error_class, error.finish_reason, error.partial_text) == ("truncation", "max_tokens", '{"city": "Be')
    assert '{"city"' not in str(error)
    assert snapshot.status == "failed"


def test_events_of_guards_change_nothing_for_who_follows(no_leaks: None) -> None:
    script = ScriptedModel([[ToolUse("recall", {"q": 1})]] * 4 + ["Done."])
    recall = define_local_tool(name="recall", execute=lambda args: "nothing")
    with LocalServer(script, judge=lambda _: Verdict("redirect", "Stuck.", "Answer.")) as server:
        with client_of(server) as client:
            run = client.start_agent(
                system_prompt="x",
                prompt="y",
                tools=[recall],
                loop_detection={"consecutiveThreshold": 3},
                tool_budgets={"recall": {"maxCalls": 1}},
                supervisor={"interval": 2},
            )
            seen = [event.type for event in run]
            assert run.result().text == "Done."
        posted = [request for request in server.requests if request.route == "tool_results"]
    assert {"loop_detected", "tool_budget_exceeded", "supervisor"} <= set(seen)
    assert seen[-1] == "result"
    # Intercepted calls are answered by the platform, not by us.
    assert len(posted) == seen.count("local_tool_call") == 1


def test_a_plan_is_followed_while_the_run_goes_on(no_leaks: None) -> None:
    with LocalServer(ScriptedModel(["Done."])) as server, client_of(server) as client:
        plans = []
        result = client.run_agent(
            system_prompt="x",
            prompt="y",
            plan={"steps": ["One", "Two"], "brief": "Both"},
            on_event=lambda event: plans.append(event) if event.type == "task_plan" else None,
        )
    assert [event.plan.brief for event in plans] == ["Both"] * len(plans)
    assert [step.status for step in plans[0].plan.steps] == ["in_progress", "pending"]
    assert [step.status for step in plans[-1].plan.steps] == ["done", "done"]
    assert result.text == "Done."


def test_a_plan_alone_is_on_the_result(no_leaks: None) -> None:
    with LocalServer(ScriptedModel(["Done."])) as server, client_of(server) as client:
        own = client.run_plan(system_prompt="x", prompt="Move house.", steps=["Pack", "Drive"], brief="Move")
        planned = client.run_plan(system_prompt="x", prompt="Read the log, then find the error.")
        declined = client.run_plan(system_prompt="x", prompt="Hello")
    assert [[step.title for step in result.plan.steps] for result in (own, planned, declined) if result.plan] == [
        ["Pack", "Drive"],
        ["Read the log", "Find the error"],
        [],
    ]
    assert own.turns == 0
    assert declined.text


def test_calls_are_passed_on_by_kind_and_key() -> None:
    class Peer:
        timeout = max_concurrency = limiter = None

        def answer(self, call: Any, context: Any) -> Any:
            raise NotImplementedError

    tool = define_local_tool(name="hr", execute=lambda args: "")
    registry, a2a, mcp = Registry([tool]), Peer(), Peer()
    registry.add("a2a_local", "hr", a2a)
    registry.add("mcp_local", "fs", mcp)

    def found(**data: Any) -> object:
        return registry.find(decode({"seq": 1, "type": "local_tool_call", "data": {"toolUseId": "t", **data}}))

    assert found(name="hr", kind="a2a_local") is a2a
    assert found(name="read", kind="mcp_local", mcpServer="fs") is mcp
    assert found(name="hr", kind="local") is found(name="hr")
    assert found(name="hr") not in (None, a2a, mcp)
    assert found(name="fs") is None
    assert found(name="hr", kind="brand_new") is None


def test_a_local_tool_says_all_it_can_on_the_wire() -> None:
    schema = {"type": "object", "properties": {"tags": {"type": "array", "items": {"enum": ["a", "b"]}}}}
    tool = define_local_tool(
        name="job",
        description="Start it.",
        parameters=schema,
        output_schema=CITY,
        long_running=True,
        read_only=True,
        retain=True,
        execute=lambda args: "",
    )
    assert tool.to_wire() == {
        "kind": "local",
        "name": "job",
        "description": "Start it.",
        "parameters": schema,
        "outputSchema": CITY,
        "longRunning": True,
        "readOnly": True,
        "retain": True,
    }
    assert define_local_tool(name="bare", execute=lambda args: "").to_wire() == {"kind": "local", "name": "bare"}


def test_a_result_that_comes_too_late_harms_nothing(no_leaks: None) -> None:
    from mantyx_sync.local.faults import answer

    script = ScriptedModel([[ToolUse("recall", {})], "Done."])
    recall = define_local_tool(name="recall", execute=lambda args: "late")
    with LocalServer(script, local_tool_timeout=0.3) as server, client_of(server) as client:
        server.faults.add(answer(409, {"error": "run_terminal"}), route="tool_results")
        result = client.run_agent(system_prompt="x", prompt="y", tools=[recall])
        posted = [request for request in server.requests if request.route == "tool_results"]
    assert result.text == "Done."
    assert len(posted) == 1
