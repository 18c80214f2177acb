"""Sessions of the embedded server, seen from a socket: what lasts from message to message, and what does not."""

from __future__ import annotations

import base64
import http.client
import threading
from typing import Any, Iterator, Mapping, Optional
from urllib.parse import quote

import pytest

from mantyx_sync.local import Failure, LocalServer, ModelRequest, Pause, ScriptedModel, ToolUse
from mantyx_sync.local.faults import answer, lose_answer
from mantyx_sync.local.sessions import RETAINED_RESULT_BYTES
from tests.plain_http import DEADLINE_S, ORDER_TOOL, Answer, answer_calls, request, stream
from tests.waiting import wait_until

NOTE_TOOL = {"kind": "local", "name": "note", "retain": True}
PDF = {
    "type": "input_file",
    "filename": "a.pdf",
    "mimeType": "application/pdf",
    "data": base64.b64encode(b"12345").decode(),
}
PICTURE = {"type": "input_file_url", "url": "https://example.com/a.png", "mimeType": "image/png"}


class Recorder:
    """A model that answers `reply 1`, `reply 2` and so on, and keeps what it was shown."""

    model_id = "local:recorder"

    def __init__(self) -> None:
        self.requests: list[ModelRequest] = []

    def complete(self, request: ModelRequest) -> Iterator[str]:
        self.requests.append(request)
        yield f"reply {len(self.requests)}"

    def said(self) -> list[tuple[str, str]]:
        """Role and text of what the last turn was shown."""
        return [(message["role"], message["content"]) for message in self.requests[-1].messages]


def create(server: LocalServer, **spec: Any) -> str:
    created = request(server, "POST", "/agent-sessions", {"systemPrompt": "You help.", **spec})
    assert created.status == 201, created
    return str(created.json["sessionId"])


def post(server: LocalServer, session_id: str, prompt: Optional[str] = "Hello", **body: Any) -> Answer:
    turn = {} if "messages" in body else {"prompt": prompt}
    return request(server, "POST", f"/agent-sessions/{session_id}/messages", {**turn, **body})


def begin(server: LocalServer, session_id: str, prompt: str = "Hello", **body: Any) -> str:
    accepted = post(server, session_id, prompt, **body)
    assert accepted.status == 202, accepted
    return str(accepted.json["runId"])


def send(server: LocalServer, session_id: str, prompt: str = "Hello", **body: Any) -> list[dict[str, Any]]:
    """Send a message and read its run to the end."""
    return stream(server, begin(server, session_id, prompt, **body))


def get(server: LocalServer, path: str, **query: Any) -> Any:
    found = request(server, "GET", path + ("?" if query else "") + "&".join(f"{k}={v}" for k, v in query.items()))
    assert found.status == 200, found
    return found.json


def history(server: LocalServer, session_id: str) -> list[tuple[str, str]]:
    info = get(server, f"/agent-sessions/{session_id}")
    return [(message["role"], message["content"]) for message in info["messages"]]


# ------------------------------------------------------------------------ the conversation


def test_a_session_remembers_what_was_said() -> None:
    model = Recorder()
    with LocalServer(model) as server:
        session_id = create(server)
        first = send(server, session_id, "One?")
        second = send(server, session_id, "Two?")
        assert (first[-1]["data"]["text"], second[-1]["data"]["text"]) == ("reply 1", "reply 2")
        assert history(server, session_id) == [
            ("user", "One?"),
            ("assistant", "reply 1"),
            ("user", "Two?"),
            ("assistant", "reply 2"),
        ]
        assert [run.session_id for run in server.runs] == [session_id] * 2
        assert len(server.session(session_id).messages) == 4
        assert {entry["sessionId"] for entry in get(server, "/agent-runs")["runs"]} == {session_id}
        assert get(server, f"/agent-runs/{server.runs[0].id}")["sessionId"] == session_id
        assert len(get(server, "/agent-runs", sessionId=session_id)["runs"]) == 2
        assert get(server, "/agent-runs", sessionId="ses_other")["runs"] == []
    assert model.said() == [
        ("system", "You help."),
        ("user", "One?"),
        ("assistant", "reply 1"),
        ("user", "Two?"),
    ]


def test_a_message_may_hold_several_turns_and_system_messages() -> None:
    model = Recorder()
    turns = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "A"},
        {"role": "assistant", "content": "B"},
        {"role": "user", "content": "C"},
    ]
    with LocalServer(model) as server:
        session_id = create(server)
        send(server, session_id, messages=turns)
        send(server, session_id, "D")
        assert history(server, session_id)[:4] == [(turn["role"], turn["content"]) for turn in turns]
        frames = get(server, f"/agent-sessions/{session_id}/events")["events"]
    assert model.said()[0] == ("system", "You help.\n\nBe brief.")
    assert model.said()[1:] == [
        ("user", "A"),
        ("assistant", "B"),
        ("user", "C"),
        ("assistant", "reply 1"),
        ("user", "D"),
    ]
    assert frames[0] == {"seq": 1, "type": "message", "text": "Be brief.", "role": "system"}


@pytest.mark.parametrize("how", ["fails", "is cancelled"])
def test_a_run_without_success_leaves_no_trace(how: str) -> None:
    reached = threading.Event()
    turns: list[Any] = [[Failure()]] if how == "fails" else [["a", Pause(threading.Event(), reached)]]
    scripts = iter([turns, ["Fine."]])
    with LocalServer(ScriptedModel(lambda _: next(scripts))) as server:
        session_id = create(server)
        run_id = begin(server, session_id, "Lost?")
        if how == "is cancelled":
            assert reached.wait(DEADLINE_S)
            request(server, "POST", f"/agent-runs/{run_id}/cancel")
        assert stream(server, run_id)[-1]["type"] in ("error", "cancelled")
        assert history(server, session_id) == []
        assert send(server, session_id, "Kept?")[-1]["data"]["text"] == "Fine."
        assert history(server, session_id) == [("user", "Kept?"), ("assistant", "Fine.")]


def test_a_plan_only_run_appends_no_assistant_turn() -> None:
    model = Recorder()
    with LocalServer(model) as server:
        session_id = create(server)
        terminal = send(server, session_id, "Plan it.", plan={"planOnly": True, "steps": ["Look", "Act"]})[-1]
        assert [step["title"] for step in terminal["data"]["plan"]["steps"]] == ["Look", "Act"]
        assert history(server, session_id) == [("user", "Plan it.")]
        send(server, session_id, "Do it.")
    assert model.said() == [("system", "You help."), ("user", "Plan it."), ("user", "Do it.")]


def test_the_next_message_may_follow_the_terminal_event_at_once() -> None:
    with LocalServer(ScriptedModel(["Done."])) as server:
        session_id = create(server)
        for number in range(20):  # the end is visible only when the session is free again
            assert send(server, session_id, str(number))[-1]["type"] == "result"
        assert len(history(server, session_id)) == 40


def test_attachments_are_kept_as_descriptions_and_reach_only_their_own_turn() -> None:
    model = Recorder()
    with LocalServer(model) as server:
        session_id = create(server)
        send(server, session_id, messages=[{"role": "user", "content": "See.", "attachments": [PDF, PICTURE]}])
        assert model.requests[-1].messages[-1]["attachments"] == [PDF, PICTURE]
        send(server, session_id, "And?")
        kept = [
            {"type": "input_file", "mimeType": "application/pdf", "filename": "a.pdf", "size": 5},
            {"type": "input_file_url", "url": "https://example.com/a.png", "mimeType": "image/png"},
        ]
        frames = get(server, f"/agent-sessions/{session_id}/events")["events"]
        assert frames[0] == {"seq": 1, "type": "user_message", "text": "See.", "attachments": kept}
        assert get(server, f"/agent-sessions/{session_id}")["messages"][0]["attachments"] == kept
        assert "attachments" not in frames[1]
    assert all("attachments" not in message for message in model.requests[-1].messages)


# ------------------------------------------------------------------------- retained results


def retaining(tool: Mapping[str, Any]) -> tuple[LocalServer, list[ModelRequest]]:
    seen: list[ModelRequest] = []

    def script(request: ModelRequest) -> list[Any]:
        seen.append(request)
        if len(seen) == 1:
            return [["Looking.", ToolUse(tool["name"], {"q": "x"}, "tu_1")], "Found."]
        return ["Still known."]

    return LocalServer(ScriptedModel(script)), seen


def test_results_of_a_retain_tool_are_shown_to_later_turns() -> None:
    server, seen = retaining(NOTE_TOOL)
    with server:
        session_id = create(server, tools=[NOTE_TOOL])
        answer_calls(server, begin(server, session_id, "Look."), {"note": "the result"})
        send(server, session_id, "Again?")
        send(server, session_id, "And again?")
        assert history(server, session_id)[:2] == [("user", "Look."), ("assistant", "Found.")]
    for request_seen in seen[1:]:
        messages = list(request_seen.messages)
        call = {"id": "tu_1", "name": "note", "input": {"q": "x"}}
        assert messages[2]["toolCalls"] == [call]
        assert (messages[3]["role"], messages[3]["toolUseId"], messages[3]["content"]) == ("tool", "tu_1", "the result")
        assert messages[4] == {"role": "assistant", "content": "Found."}
    assert sum(message["role"] == "tool" for message in seen[2].messages) == 1  # once, however often it is shown


def test_a_retained_result_is_cut_at_eight_kilobytes() -> None:
    server, seen = retaining(NOTE_TOOL)
    with server:
        session_id = create(server, tools=[NOTE_TOOL])
        answer_calls(server, begin(server, session_id, "Look."), {"note": "ä" * RETAINED_RESULT_BYTES})
        send(server, session_id, "Again?")
    shown = next(message["content"] for message in seen[1].messages if message["role"] == "tool")
    assert shown == "ä" * (RETAINED_RESULT_BYTES // 2) + f"\n[cut: {2 * RETAINED_RESULT_BYTES} bytes in all]"


def test_results_of_other_tools_and_errors_are_not_retained() -> None:
    for tool, body in ((ORDER_TOOL, {"result": "shipped"}), (NOTE_TOOL, {"error": "no luck"})):
        arguments = {"order_id": "1"} if tool is ORDER_TOOL else {}
        script = iter([[[ToolUse(str(tool["name"]), arguments, "tu_1")], "Done."], ["Again."]])
        with LocalServer(ScriptedModel(lambda _, script=script: next(script))) as server:  # type: ignore[misc]
            session_id = create(server, tools=[tool])
            run_id = begin(server, session_id)
            wait_until(lambda run_id=run_id, server=server: server.run(run_id).pending_calls())
            request(server, "POST", f"/agent-runs/{run_id}/tool-results", {"toolUseId": "tu_1", **body})
            stream(server, run_id)
            run = server.run(begin(server, session_id))
            assert run.wait(DEADLINE_S)
            assert all(message["role"] != "tool" for message in run.history)


# --------------------------------------------------------------------------------- overrides

DEFAULTS: dict[str, Any] = {
    "tools": [ORDER_TOOL],
    "reasoningLevel": "low",
    "outputSchema": {"schema": {"type": "object"}},
    "loopDetection": {"consecutiveThreshold": 2, "hardCutoffThreshold": 4},
    "toolBudgets": {"get_order": {"maxCalls": 1}},
    "supervisor": {"interval": 9},
    "plan": {"steps": ["One"]},
    "modelId": "local:one",
    "fallbackModelId": "local:three",
    "budgets": {"maxToolTurns": 3},
}
OVERRIDES: dict[str, Any] = {
    "tools": [],
    "reasoningLevel": 0,
    "outputSchema": {"schema": {"type": "object", "title": "other"}},
    "loopDetection": False,
    "toolBudgets": {},
    "supervisor": False,
    "plan": False,
    "modelId": "local:two",
    "fallbackModelId": "local:four",
    "budgets": {"maxToolTurns": 5},
}


@pytest.mark.parametrize("name", sorted(DEFAULTS))
def test_what_a_message_overrides_holds_for_its_run_alone(name: str) -> None:
    with LocalServer(ScriptedModel(['{"a": 1}'])) as server:
        session_id = create(server, **DEFAULTS)
        send(server, session_id)
        send(server, session_id, **{name: OVERRIDES[name]})
        send(server, session_id)
        first, second, third = (run.spec for run in server.runs)
        assert first[name] == third[name] == DEFAULTS[name]
        assert second[name] == OVERRIDES[name]
        assert {key: value for key, value in second.items() if key != name} == {
            key: value for key, value in first.items() if key != name
        }
        assert get(server, f"/agent-sessions/{session_id}")["agentSpec"][name] == DEFAULTS[name]


def test_an_override_of_null_is_none() -> None:
    with LocalServer(ScriptedModel(["Done."])) as server:
        session_id = create(server, supervisor={"interval": 9})
        send(server, session_id, supervisor=None, modelId=None)
        assert server.runs[0].spec["supervisor"] == {"interval": 9}
        assert "modelId" not in server.runs[0].spec


def test_the_metadata_of_a_message_is_merged_over_the_sessions() -> None:
    with LocalServer(ScriptedModel(["Done."])) as server:
        session_id = create(server, metadata={"customer": "acme", "env": "prod"})
        send(server, session_id, metadata={"env": "test", "trace": "t1"})
        send(server, session_id)
        assert [run.metadata for run in server.runs] == [
            {"customer": "acme", "env": "test", "trace": "t1"},
            {"customer": "acme", "env": "prod"},
        ]
        assert get(server, f"/agent-sessions/{session_id}")["metadata"] == {"customer": "acme", "env": "prod"}
        too_many = post(server, session_id, metadata={f"k{number}": "v" for number in range(15)})
        assert (too_many.status, "17 entries" in too_many.json["message"]) == (400, True)


def test_identity_in_a_message_changes_nothing() -> None:
    model = Recorder()
    with LocalServer(model) as server:
        session_id = create(server)
        send(server, session_id, systemPrompt="You hinder.", name="other")
        assert "name" not in server.runs[0].spec
    assert model.said()[0] == ("system", "You help.")


def test_a_session_of_an_agent_runs_that_agent_with_the_callers_tools_on_top() -> None:
    model = Recorder()
    agents = {"agt_1": {"systemPrompt": "Known.", "modelId": "openai:x", "tools": [NOTE_TOOL]}}
    with LocalServer(model, agents=agents) as server:
        session_id = create(server, agentId="agt_1", systemPrompt="Ignored.", tools=[ORDER_TOOL])
        send(server, session_id)
        assert [tool.name for tool in model.requests[0].tools] == ["note", "get_order"]
        assert model.said()[0] == ("system", "Known.")
        assert server.runs[0].model["id"] == "openai:x"
        missing = request(server, "POST", "/agent-sessions", {"agentId": "agt_2"})
        assert (missing.status, missing.json["error"]) == (404, "not_found")


# --------------------------------------------------------------------- one at a time, and the end


def test_a_message_while_a_run_goes_on_gets_409_and_names_the_run() -> None:
    gate, reached = threading.Event(), threading.Event()
    with LocalServer(ScriptedModel([[Pause(gate, reached), "Done."]])) as server:
        session_id = create(server)
        run_id = begin(server, session_id)
        assert reached.wait(DEADLINE_S)
        busy = post(server, session_id)
        assert (busy.status, busy.json["error"], busy.json["code"]) == (409, "session_busy", "session_busy")
        assert busy.json["runId"] == run_id
        gate.set()
        stream(server, run_id)
        assert post(server, session_id).status == 202
        assert len(server.runs) == 2


def test_of_many_messages_at_once_one_is_taken() -> None:
    gate = threading.Event()
    with LocalServer(ScriptedModel([[Pause(gate), "Done."]])) as server:
        session_id = create(server)
        statuses: list[int] = []
        threads = [threading.Thread(target=lambda: statuses.append(post(server, session_id).status)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_S)
        assert sorted(statuses) == [202] + [409] * 7
        gate.set()


def test_ending_a_session_cancels_its_run_and_refuses_more() -> None:
    reached = threading.Event()
    with LocalServer(ScriptedModel([["a", Pause(threading.Event(), reached)]])) as server:
        session_id = create(server)
        run_id = begin(server, session_id)
        assert reached.wait(DEADLINE_S)
        assert request(server, "DELETE", f"/agent-sessions/{session_id}").status == 200
        assert stream(server, run_id)[-1]["type"] == "cancelled"
        refused = post(server, session_id)
        assert (refused.status, refused.json["code"]) == (409, "session_ended")
        info = get(server, f"/agent-sessions/{session_id}")
        assert info["status"] == "ended"
        assert info["endedAt"] is not None
        assert request(server, "DELETE", f"/agent-sessions/{session_id}").status == 200
        assert get(server, f"/agent-sessions/{session_id}")["endedAt"] == info["endedAt"]


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", ""), ("DELETE", ""), ("GET", "/events"), ("POST", "/messages")],
)
def test_an_unknown_session_gets_404(method: str, path: str) -> None:
    with LocalServer(ScriptedModel()) as server:
        missing = request(server, method, f"/agent-sessions/ses_none{path}", {"prompt": "x"})
        assert (missing.status, missing.json["error"]) == (404, "not_found")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"systemPrompt": "x", "prompt": "y"}, "neither prompt nor messages"),
        ({"systemPrompt": "x", "messages": [{"role": "user", "content": "y"}]}, "neither prompt nor messages"),
        ({}, "needs agentId, systemPrompt"),
        ({"systemPrompt": "x", "reasoningLevel": 101}, "reasoningLevel"),
    ],
)
def test_a_session_with_a_bad_spec_is_not_created(body: dict[str, Any], message: str) -> None:
    with LocalServer(ScriptedModel()) as server:
        refused = request(server, "POST", "/agent-sessions", body)
        assert (refused.status, refused.json["error"]) == (400, "invalid_request")
        assert message in refused.json["message"]
        assert server.sessions == []


@pytest.mark.parametrize("body", [{}, {"prompt": "x", "messages": []}, {"prompt": "x", "supervisor": {"interval": 0}}])
def test_a_bad_message_starts_no_run(body: dict[str, Any]) -> None:
    with LocalServer(ScriptedModel()) as server:
        session_id = create(server)
        assert request(server, "POST", f"/agent-sessions/{session_id}/messages", body).status == 400
        assert server.runs == []


def test_info_shows_the_spec_without_secrets() -> None:
    remote = {"kind": "mcp", "name": "m", "url": "https://x", "headers": {"X-Key": "s3cret"}}
    with LocalServer(ScriptedModel()) as server:
        info = get(server, f"/agent-sessions/{create(server, name='desk', tools=[remote])}")
        assert set(info) == {
            "id", "name", "status", "createdAt", "lastUsedAt", "endedAt", "agentSpec", "messages", "metadata",
        }  # fmt: skip
        assert (info["name"], info["status"], info["endedAt"], info["messages"]) == ("desk", "active", None, [])
        assert info["agentSpec"]["tools"][0]["headers"] == {"X-Key": "***"}
        assert get(server, f"/agent-sessions/{create(server)}")["name"] == "ephemeral"


# ------------------------------------------------------------------------------------- replay


def conversation(server: LocalServer, messages: int) -> str:
    """Make a session with an even number of messages."""
    session_id = create(server)
    for number in range(messages // 2):
        send(server, session_id, f"m{2 * number + 1}")
    return session_id


@pytest.mark.parametrize("query", [{}, {"full": "1"}, {"full": "true", "lastMessages": 2}, {"lastMessages": 500}])
def test_all_events_of_a_session_are_replayed(query: dict[str, Any]) -> None:
    with LocalServer(ScriptedModel(["ok"])) as server:
        session_id = conversation(server, 4)
        page = get(server, f"/agent-sessions/{session_id}/events", **query)
    assert page == {
        "sessionId": session_id,
        "total": 4,
        "events": [
            {"seq": 1, "type": "user_message", "text": "m1"},
            {"seq": 2, "type": "assistant_message", "text": "ok"},
            {"seq": 3, "type": "user_message", "text": "m3"},
            {"seq": 4, "type": "assistant_message", "text": "ok"},
        ],
        "nextBeforeSeq": None,
        "truncated": False,
    }


def test_pages_go_backwards_and_stay_where_they_are_while_the_session_grows() -> None:
    with LocalServer(ScriptedModel(["ok"])) as server:
        session_id = conversation(server, 8)
        path = f"/agent-sessions/{session_id}/events"
        page = get(server, path, lastMessages=3)
        assert ([e["seq"] for e in page["events"]], page["nextBeforeSeq"], page["truncated"]) == ([6, 7, 8], 6, True)
        send(server, session_id, "m9")
        page = get(server, path, lastMessages=3, beforeSeq=page["nextBeforeSeq"])
        assert ([e["seq"] for e in page["events"]], page["nextBeforeSeq"], page["truncated"]) == ([3, 4, 5], 3, True)
        assert page["total"] == 10
        page = get(server, path, lastMessages=3, beforeSeq=page["nextBeforeSeq"])
        assert ([e["seq"] for e in page["events"]], page["nextBeforeSeq"], page["truncated"]) == ([1, 2], None, False)
        assert get(server, path, beforeSeq=1)["events"] == []
        assert [e["seq"] for e in get(server, path, beforeSeq=3)["events"]] == [1, 2]


@pytest.mark.parametrize(
    "query", ["lastMessages=0", "lastMessages=501", "lastMessages=x", "beforeSeq=0", "beforeSeq=-1"]
)
def test_replay_refuses_what_it_cannot_read(query: str) -> None:
    with LocalServer(ScriptedModel()) as server:
        refused = request(server, "GET", f"/agent-sessions/{create(server)}/events?{query}")
        assert (refused.status, refused.json["error"]) == (400, "invalid_request")


# ------------------------------------------------------------------------------------ listing


def test_a_listing_has_the_most_recently_used_first() -> None:
    with LocalServer(ScriptedModel(["ok"])) as server:
        first, second = create(server), create(server, metadata={"k": "v"})
        page = get(server, "/agent-sessions")
        assert [entry["sessionId"] for entry in page["sessions"]] == [second, first]
        send(server, first, "How do I reset my password?")
        page = get(server, "/agent-sessions")
        assert (page["total"], page["limit"], page["offset"], page["nextCursor"]) == (2, 50, 0, None)
        newest, older = page["sessions"]
        assert (newest["sessionId"], newest["summary"]) == (first, "How do I reset my password?")
        assert (older["summary"], older["metadata"], older["status"]) == ("", {"k": "v"}, "active")
        assert newest["lastInteractionDate"] >= newest["creationDate"]
        assert set(newest) == {
            "sessionId", "creationDate", "lastInteractionDate", "summary", "metadata", "status",
        }  # fmt: skip


def test_a_very_short_opening_is_summarized_with_what_follows() -> None:
    with LocalServer(ScriptedModel(["Hello!"])) as server:
        session_id = create(server)
        send(server, session_id, "Hi")
        send(server, session_id, "x" * 300)
        assert get(server, "/agent-sessions")["sessions"][0]["summary"] == "Hi Hello! " + "x" * 109 + "…"


@pytest.mark.parametrize("by", ["cursor", "offset"])
def test_a_listing_pages_through_all_sessions(by: str) -> None:
    with LocalServer(ScriptedModel(["ok"])) as server:
        made = [create(server) for _ in range(7)]
        found: list[str] = []
        query: dict[str, Any] = {"limit": 3, "includeTotal": 1}
        while True:
            page = get(server, "/agent-sessions", **query)
            assert page["total"] == 7
            found += [entry["sessionId"] for entry in page["sessions"]]
            if page["nextCursor"] is None:
                break
            if by == "cursor":
                query["cursor"] = page["nextCursor"]
                if len(found) == 3:
                    send(server, made[6])  # moves to the front: no later page repeats or loses one for it
            else:
                query["offset"] = len(found)
        assert found == made[::-1]


def test_a_listing_filters_by_metadata_and_status() -> None:
    with LocalServer(ScriptedModel()) as server:
        both = create(server, metadata={"customer": "acme", "env": "prod"})
        one = create(server, metadata={"customer": "acme", "note": "a:b c"})
        none = create(server)
        request(server, "DELETE", f"/agent-sessions/{none}")

        def listed(query: str) -> list[str]:
            answer = request(server, "GET", f"/agent-sessions?{query}")
            return sorted(entry["sessionId"] for entry in answer.json["sessions"])

        assert listed("metadata=customer:acme") == sorted([both, one])
        assert listed("metadata=customer:acme&metadata=env:prod") == [both]
        assert listed(f"metadata={quote('note:a:b c')}") == [one]
        assert listed("metadata=env:test") == []
        assert listed("status=ended") == [none]
        assert listed("status=active&metadata=env:prod") == [both]


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=201", "limit=x", "offset=-1", "status=open", "metadata=x", "cursor=zz", "cursor=YzE6MQ"],
)
def test_a_listing_refuses_what_it_cannot_read(query: str) -> None:
    with LocalServer(ScriptedModel()) as server:
        refused = request(server, "GET", f"/agent-sessions?{query}")
        assert (refused.status, refused.json["error"]) == (400, "invalid_request")


def test_cursor_and_offset_exclude_each_other() -> None:
    with LocalServer(ScriptedModel()) as server:
        create(server)
        create(server)
        cursor = get(server, "/agent-sessions", limit=1)["nextCursor"]
        assert get(server, "/agent-sessions", cursor=cursor, offset=0)["nextCursor"] is None
        assert request(server, "GET", f"/agent-sessions?cursor={cursor}&offset=1").status == 400


# ------------------------------------------------------------------- scopes, limits and faults


@pytest.mark.parametrize(
    ("method", "path", "scope"),
    [
        ("POST", "/agent-sessions", "sessions:write"),
        ("GET", "/agent-sessions", "sessions:read"),
        ("GET", "/agent-sessions/s", "sessions:read"),
        ("GET", "/agent-sessions/s/events", "sessions:read"),
        ("POST", "/agent-sessions/s/messages", "sessions:write"),
        ("DELETE", "/agent-sessions/s", "sessions:write"),
    ],
)
def test_an_access_token_needs_the_scope_of_the_route(method: str, path: str, scope: str) -> None:
    others = ["models:read", "runs:read", "runs:write", "sessions:read", "sessions:write"]
    others.remove(scope)
    with LocalServer(ScriptedModel(), tokens={"mantyx_at_none": others, "mantyx_at_one": [scope]}) as server:
        refused = request(server, method, path, {}, token="mantyx_at_none")
        assert (refused.status, refused.json["error"], refused.json["required"]) == (403, "insufficient_scope", scope)
        assert refused.headers["www-authenticate"] == f'Bearer error="insufficient_scope", scope="{scope}"'
        assert request(server, method, path, {}, token="mantyx_at_one").status != 403


def test_sessions_count_into_their_buckets() -> None:
    limits = {"run_starts": 120, "lifecycle": 600, "mutations": 2}
    with LocalServer(ScriptedModel(["ok"]), rate_limits=limits) as server:
        created = request(server, "POST", "/agent-sessions", {"systemPrompt": "x"})
        session_id = created.json["sessionId"]
        assert created.headers["x-ratelimit-bucket"] == "mutations"
        assert post(server, session_id).headers["x-ratelimit-bucket"] == "run_starts"
        ended = request(server, "DELETE", f"/agent-sessions/{session_id}")
        assert (ended.headers["x-ratelimit-bucket"], ended.headers["x-ratelimit-remaining"]) == ("mutations", "0")
        assert request(server, "POST", "/agent-sessions", {"systemPrompt": "x"}).status == 429
        assert "x-ratelimit-bucket" not in request(server, "GET", "/agent-sessions").headers


@pytest.mark.parametrize(
    ("route", "method", "path"),
    [
        ("sessions_create", "POST", ""),
        ("sessions_list", "GET", ""),
        ("session_get", "GET", "/{}"),
        ("session_events", "GET", "/{}/events"),
        ("session_messages", "POST", "/{}/messages"),
        ("session_end", "DELETE", "/{}"),
    ],
)
def test_faults_strike_the_routes_of_sessions(route: str, method: str, path: str) -> None:
    with LocalServer(ScriptedModel(["ok"])) as server:
        session_id = create(server)
        fault = server.faults.add(answer(503, {"error": "busy"}), route=route)
        path = "/agent-sessions" + path.format(session_id)
        body = {"prompt": "x"} if route == "session_messages" else {"systemPrompt": "x"}
        assert request(server, method, path, body).status == 503
        assert fault.hits == 1
        assert request(server, method, path, body).status < 300


def test_a_message_whose_answer_is_lost_was_taken() -> None:
    with LocalServer(ScriptedModel(["ok"])) as server:
        session_id = create(server)
        server.faults.add(lose_answer(), route="session_messages")
        with pytest.raises((OSError, http.client.HTTPException)):
            post(server, session_id)
        assert server.runs[0].wait(DEADLINE_S)
        assert len(history(server, session_id)) == 2
