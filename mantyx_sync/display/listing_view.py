"""Views of listings, sessions, conversations and model catalogs. Pure: a listing shows the page that is here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Iterable, Mapping, Sequence

from mantyx_sync.display.html import Column, Html, badge, el, escape, facts, json_text, one_line, prose, section, table
from mantyx_sync.display.parts import (
    CallShown,
    call_row,
    card,
    head,
    identity,
    notice_line,
    rest_note,
    section_of,
    status_badge,
)
from mantyx_sync.display.run_view import Story, metadata_fold, story_of
from mantyx_sync.display.wire_words import tool_names
from mantyx_sync.display.wording import count, milliseconds, money, plural, when
from mantyx_sync.eval_results import EvalDatasetSummary, EvalRunSummary
from mantyx_sync.events import RunEvent
from mantyx_sync.models import ModelCatalog, ModelInfo
from mantyx_sync.pages import Page
from mantyx_sync.reprs import brief
from mantyx_sync.results import RunSummary
from mantyx_sync.session_info import SessionEventsPage, SessionInfo, SessionSummary

if TYPE_CHECKING:
    from mantyx_sync.session import AgentSession

__all__ = [
    "catalog_card",
    "conversation",
    "events_card",
    "listing_card",
    "messages_card",
    "model_card",
    "page_card",
    "session_card",
    "session_events_card",
    "session_info_card",
    "session_summary_card",
]

MAX_ROWS = 200
MAX_MESSAGES = 200
_OF_PRICES = "Prices are US dollars per million tokens."


# ------------------------------------------------------------------------------------------- listings


def page_card(page: Page[Any]) -> Html:
    """Show the items of one page, and say whether more follow."""
    words = {RunSummary: "run", SessionSummary: "session", EvalDatasetSummary: "data set", EvalRunSummary: "eval run"}
    kind = next((words[type(item)] for item in page.items if type(item) in words), None) or _page_word(page)
    shown = plural(len(page.items), kind)
    title = f"{shown} of {page.total:,}" if page.total is not None and page.total != len(page.items) else shown
    more = "More follow: looping over the page fetches them." if page.next_cursor else None
    return card(
        head(title[:1].upper() + title[1:]),
        _rows(page.items) if page.items else el("div", "There are none.", cls="soft"),
        el("div", more, cls="soft small") if more else None,
    )


def listing_card(items: Sequence[Any]) -> Html:
    """Show a list of what listings are made of."""
    return card(_rows(items) if items else el("div", "An empty list.", cls="soft"))


def _page_word(page: Page[Any]) -> str:
    words = {"RunPage": "run", "SessionPage": "session", "EvalDatasetList": "data set", "EvalRunList": "eval run"}
    return words.get(type(page).__name__, "item")


def _rows(items: Sequence[Any]) -> Html:
    from mantyx_sync.display.eval_view import dataset_rows, eval_rows

    makers: list[tuple[type, Callable[[Sequence[Any]], Html]]] = [
        (RunSummary, run_rows),
        (SessionSummary, session_rows),
        (EvalRunSummary, eval_rows),
        (EvalDatasetSummary, dataset_rows),
        (ModelInfo, model_rows),
    ]
    shown = items[:MAX_ROWS]
    cut = rest_note(len(items) - MAX_ROWS, "more row")
    for kind, make in makers:
        if all(isinstance(item, kind) for item in items):
            return section_of(make(shown), cut)
    lines = [el("li", escape(brief(item, 300)), cls="mono") for item in shown]
    return section_of(el("ul", lines, cls="list"), cut)


def run_rows(runs: Iterable[RunSummary]) -> Html:
    """Make the table of runs."""
    columns = [
        Column("Status", "tight"),
        Column("Run"),
        Column("Asked"),
        Column("Answered"),
        Column("Turns", "num"),
        Column("Tools", "num"),
        Column("Tokens", "num"),
        Column("Took", "num"),
        Column("Created", "tight"),
    ]
    return table(
        columns,
        [
            (
                status_badge(run.status),
                _named(run.id, " · ".join(x for x in (run.spec_name, run.model_id) if x)),
                _preview(run.input_preview),
                _preview(run.error, "bad") if run.error else _preview(run.output_preview),
                count(run.turns),
                count(run.tool_call_count),
                f"{run.tokens.input_tokens + run.tokens.output_tokens:,}" if run.tokens else None,
                milliseconds(run.duration_ms),
                when(run.created_at),
            )
            for run in runs
        ],
    )


def session_rows(sessions: Iterable[SessionSummary]) -> Html:
    """Make the table of sessions."""
    columns = [
        Column("Status", "tight"),
        Column("Session"),
        Column("Begins with"),
        Column("Created", "tight"),
        Column("Last used", "tight"),
        Column("Metadata"),
    ]
    return table(
        columns,
        [
            (
                status_badge(one.status) if one.status else None,
                _named(one.session_id),
                _preview(one.summary),
                when(one.creation_date),
                when(one.last_interaction_date),
                _metadata(one.metadata),
            )
            for one in sessions
        ],
    )


def _named(name: str, more: str | None = None) -> Html:
    return el("div", identity(name), el("div", escape(more, 120), cls="soft") if more else None)


def _preview(text: str | None, tone: str = "") -> Html | None:
    return el("div", escape(one_line(text, 160)), cls=f"brief {tone}") if text else None


def _metadata(metadata: Mapping[str, Any]) -> Html | None:
    if not metadata:
        return None
    pairs = [
        f"{key}: {value if isinstance(value, str) else json_text(value, 60)[0]}" for key, value in metadata.items()
    ]
    return escape(one_line(", ".join(pairs[:10]), 120))


# ------------------------------------------------------------------------------------------- models


def catalog_card(catalog: ModelCatalog) -> Html:
    """Show the models of a workspace."""
    return card(
        head(plural(len(catalog.models), "model").capitalize()),
        section_of(model_rows(catalog.models[:MAX_ROWS], catalog.default_model_id))
        if catalog.models
        else el("div", "The workspace has none.", cls="soft"),
        el("div", _OF_PRICES, cls="soft small") if any(model.pricing for model in catalog.models) else None,
    )


def model_rows(models: Iterable[ModelInfo], default: str | None = None) -> Html:
    """Make the table of models; `default` is the id of the one that is used unless another is named."""
    columns = [
        Column("Model"),
        Column("model_id"),
        Column("Provider", "tight"),
        Column("Context", "num"),
        Column("Input", "num"),
        Column("Cached", "num"),
        Column("Output", "num"),
    ]
    return table(
        columns,
        [
            (
                el(
                    "div",
                    el("span", escape(model.label or model.vendor_model_id or model.id, 100), cls="strong"),
                    [" ", badge("default", "accent")] if default is not None and model.id == default else None,
                ),
                el("span", escape(model.id, 200), cls="mono"),
                escape(model.provider, 60),
                count(model.context_window_tokens),
                money(model.pricing.input_per_1m_usd) if model.pricing else None,
                money(model.pricing.cache_read_per_1m_usd) if model.pricing else None,
                money(model.pricing.output_per_1m_usd) if model.pricing else None,
            )
            for model in models
        ],
    )


def model_card(model: ModelInfo) -> Html:
    """Show one model."""
    price = model.pricing
    return card(
        head(escape(model.label or model.vendor_model_id or model.id, 100), None, model.id),
        facts(
            [
                ("Provider", model.provider or None),
                ("Provider's name", model.vendor_model_id or None),
                ("From", model.source.replace("_", " ") or None),
                ("Context", f"{model.context_window_tokens:,} tokens" if model.context_window_tokens else None),
                ("Input", money(price.input_per_1m_usd) if price else None),
                ("Cached input", money(price.cache_read_per_1m_usd) if price else None),
                ("Output", money(price.output_per_1m_usd) if price else None),
            ]
        ),
        el("div", _OF_PRICES, cls="soft small") if price else None,
    )


# ------------------------------------------------------------------------------------------- sessions


def session_card(session: AgentSession) -> Html:
    """Show a session as this process holds it. Asks nobody: its conversation is the server's."""
    run_id = None if session.run is None else session.run.run_id
    tools = [str(getattr(ref, "name", None) or type(ref).__name__) for ref in session.tools]
    return card(
        head("Session", status_badge("running") if run_id else None, session.id),
        facts([("Run going on", run_id), ("Tools answered here", escape(", ".join(tools), 600) if tools else "none")]),
        el("div", "info() asks the server for the conversation.", cls="soft small"),
    )


def session_summary_card(one: SessionSummary) -> Html:
    """Show one line of the list of sessions on its own."""
    return card(
        head("Session", status_badge(one.status) if one.status else None, one.session_id),
        section("Begins with", prose(one.summary, 2000)) if one.summary else None,
        facts([("Created", when(one.creation_date)), ("Last used", when(one.last_interaction_date))]),
        metadata_fold(one.metadata),
    )


def session_info_card(info: SessionInfo) -> Html:
    """Show a session with its conversation."""
    spec = info.agent_spec
    names = tool_names(spec)
    system = spec.get("systemPrompt")
    return card(
        head(escape(info.name, 120) or "Session", status_badge(info.status), info.id),
        facts(
            [
                ("Created", when(info.created_at)),
                ("Last used", when(info.last_used_at)),
                ("Ended", when(info.ended_at)),
                ("Model", escape(spec["modelId"], 120) if isinstance(spec.get("modelId"), str) else None),
                ("Agent", escape(spec["agentId"], 120) if isinstance(spec.get("agentId"), str) else None),
                ("Tools", escape(", ".join(names), 600) if names else None),
            ]
        ),
        section("System prompt", prose(system, 2000)) if isinstance(system, str) and system else None,
        section("Conversation", conversation(info.messages)),
        metadata_fold(info.metadata),
    )


def messages_card(messages: Sequence[Mapping[str, Any]]) -> Html:
    """Show a conversation on its own, as `AgentSession.history` returns it."""
    return card(head(plural(len(messages), "message").capitalize()), conversation(messages))


def conversation(messages: Sequence[Mapping[str, Any]]) -> Html:
    """Make a conversation of messages with `role` and `content`; the last ones, where there are many."""
    if not messages:
        return el("div", "Nothing has been said yet.", cls="soft")
    shown = messages[-MAX_MESSAGES:]
    room = max(400, min(20_000, 400_000 // len(shown)))
    cut = rest_note(len(messages) - MAX_MESSAGES, "earlier message")
    return el("div", cut, [_message(message, room) for message in shown], cls="chat")


def _message(message: Mapping[str, Any], room: int) -> Html:
    role, content = message.get("role"), message.get("content")
    text, _ = json_text(content, room + 1) if content is not None else ("", 0)
    names = {"user": "User", "assistant": "Assistant", "system": "System", "tool": "Tool"}
    attached = message.get("attachments")
    files = [one_line(_file_name(file), 60) for file in attached] if isinstance(attached, (list, tuple)) else []
    return el(
        "div",
        el("span", escape(names.get(str(role), role), 40), cls="label"),
        prose(content if isinstance(content, str) else text, room),
        el("div", escape("Attached: " + ", ".join(files), 300), cls="soft small") if files else None,
        cls="said user" if role == "user" else "said",
    )


def _file_name(file: object) -> str:
    found = file.get("filename") if isinstance(file, Mapping) else None
    return found if isinstance(found, str) else "a file"


def session_events_card(page: SessionEventsPage) -> Html:
    """Show a part of a session's conversation."""
    total = "" if page.total in (None, len(page.events)) else f" of {page.total:,}"
    return card(
        head("Session", None, page.session_id),
        el("div", f"{plural(len(page.events), 'event')}{total}.", cls="soft small"),
        event_list(page.events),
        el("div", "There is more before: pages_back() fetches it.", cls="soft small")
        if page.next_before_seq is not None
        else None,
    )


def events_card(events: Sequence[RunEvent]) -> Html:
    """Show events of a run or of a session."""
    return card(head(plural(len(events), "event").capitalize()), event_list(events))


def event_list(events: Sequence[RunEvent]) -> Html:
    """Make what was said and done of events, in their order."""
    shown = events[-MAX_MESSAGES:]
    story = story_of(shown)
    calls = _calls_of(story, shown)
    parts: list[Html | None] = [rest_note(len(events) - MAX_MESSAGES, "earlier event")]
    room = max(400, min(20_000, 400_000 // max(1, len(shown))))
    for place, event in enumerate(shown):
        if event.type == "user_message":
            parts.append(_message({"role": "user", "content": event.data.get("content", event.text)}, room))
        elif event.type == "assistant_message" and event.text:
            parts.append(_message({"role": "assistant", "content": event.text}, room))
        elif place in calls:
            parts.append(call_row(calls[place], room=min(room, 3000)))
    parts += map(notice_line, story.state.notices)
    return el("div", parts, cls="chat")


def _calls_of(story: Story, events: Sequence[RunEvent]) -> dict[int, CallShown]:
    """Return what became of each call, by the place of the event that opened it."""
    by_id = {call.tool_use_id: call for call in story.calls if call.tool_use_id}
    unnamed = iter([call for call in story.calls if not call.tool_use_id])
    found: dict[int, CallShown] = {}
    for place, event in enumerate(events):
        if event.type in ("tool_call", "local_tool_call"):
            tool_use_id = getattr(event, "tool_use_id", None)
            call = by_id.pop(tool_use_id, None) if tool_use_id else next(unnamed, None)
            if call is not None:
                found[place] = call
    return found
