"""Every Python snippet of the source documents runs against the embedded server and asks for what it says."""

from __future__ import annotations

from typing import Any, Dict, Iterator, Tuple

import pytest

from mantyx_sync import MantyxClient
from mantyx_sync.local import LocalServer
from tests.document_snippets import SESSION_SNIPPETS, SNIPPETS

pytestmark = pytest.mark.usefixtures("no_leaks")

GUARDS = ("loopDetection", "toolBudgets", "supervisor")


@pytest.fixture
def place() -> Iterator[Tuple[LocalServer, MantyxClient]]:
    with LocalServer() as server, MantyxClient(**server.client_settings()) as client:
        yield server, client


def guards(spec: Any) -> Dict[str, Any]:
    return {name: spec[name] for name in GUARDS if name in spec}


@pytest.mark.parametrize(("title", "source", "sent"), SNIPPETS, ids=[title for title, _, _ in SNIPPETS])
def test_a_snippet_of_the_documents_runs(
    place: Tuple[LocalServer, MantyxClient], title: str, source: str, sent: Dict[str, Any]
) -> None:
    server, client = place
    exec(compile(source, title, "exec", dont_inherit=True), {"client": client})
    (run,) = server.runs
    assert run.status == "succeeded"
    assert guards(run.spec) == sent


def test_the_result_of_a_snippet_is_the_answer(place: Tuple[LocalServer, MantyxClient]) -> None:
    names: Dict[str, Any] = {"client": place[1]}
    exec(SNIPPETS[0][1], names)
    assert names["result"].text
    assert names["result"].run_id == place[0].runs[0].id


def test_a_session_has_guards_and_a_message_overrides_them_for_itself(place: Tuple[LocalServer, MantyxClient]) -> None:
    server, client = place
    create, defaults, send, overrides = SESSION_SNIPPETS
    names: Dict[str, Any] = {"client": client, "prompt": "Hello"}
    exec(create, names)
    exec(send, names)
    names["session"].send("And now?")
    assert [guards(run.spec) for run in server.runs] == [overrides, defaults]
    assert guards(names["session"].info().agent_spec) == defaults


def test_the_events_of_the_page_can_be_watched_as_it_shows(place: Tuple[LocalServer, MantyxClient]) -> None:
    # The page's handler is TypeScript; this is the same with the attributes that events have here.
    from mantyx_sync.local import ScriptedModel, ToolUse, Verdict

    script = ScriptedModel([[ToolUse("recall", {"q": 1})]] * 4 + ["Done."])
    notes = []

    def on_event(ev: Any) -> None:
        if ev.type == "loop_detected":
            notes.append(f"looping on {', '.join(ev.tools)} (x{ev.consecutive_count})")
        elif ev.type == "tool_budget_exceeded":
            notes.append(f"tool {ev.tool} hit cap {ev.max_calls} on call #{ev.call_index}")
        elif ev.type == "supervisor":
            notes.append(f"supervisor [{ev.phase or 'turn_boundary'}] {ev.action}: {ev.reason}")

    def recall(q: int) -> str:
        return "nothing"

    server = LocalServer(script, judge=lambda _: Verdict("redirect", "Stuck.", "Answer."))
    with server, MantyxClient(**server.client_settings()) as client:
        client.run_agent(
            system_prompt="...",
            prompt="...",
            tools=[recall],
            loop_detection={"consecutiveThreshold": 3, "hardCutoffThreshold": 6},
            tool_budgets={"recall": {"maxCalls": 1}},
            supervisor={"interval": 3},
            on_event=on_event,
        )
    assert "looping on recall (x3)" in notes
    assert "tool recall hit cap 1 on call #2" in notes
    assert "supervisor [turn_boundary] redirect: Stuck." in notes
