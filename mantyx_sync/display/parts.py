"""Parts that several views share: a card's head, a plan's checklist, tool calls, notices, files. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Iterable, Sequence

from mantyx_sync.display.html import (
    MAX_TEXT,
    Html,
    badge,
    code,
    cut_note,
    el,
    escape,
    fold,
    join,
    json_text,
    link,
    one_line,
    prose,
    section,
)
from mantyx_sync.display.notices import Notice
from mantyx_sync.display.wording import amount, duration, plural
from mantyx_sync.values import RunModelInfo, TaskPlan, TokenUsage

__all__ = [
    "CALL_KINDS",
    "CALL_TONES",
    "MAX_CALLS",
    "STATUS_TONES",
    "CallShown",
    "FileShown",
    "call_list",
    "call_row",
    "card",
    "checklist",
    "failure",
    "file_list",
    "head",
    "identity",
    "mark",
    "model_name",
    "note",
    "notice_line",
    "notice_list",
    "opened",
    "plan_section",
    "rest_note",
    "section_of",
    "status_badge",
    "token_text",
    "value_block",
    "written_before_end",
]

MAX_CALLS = 100
"""How many tool calls a view shows; the others are counted."""
_MAX_STEPS = 200
_MAX_OPENED = 200_000
_ROOM = 240_000  # characters for the arguments and results of all calls together

STATUS_TONES = {
    "succeeded": "good",
    "done": "good",
    "active": "good",
    "failed": "bad",
    "lost": "bad",
    "blocked": "bad",
    "cancelled": "warn",
    "running": "accent",
    "queued": "",
}
CALL_TONES = {"done": "good", "failed": "bad", "stopped": "soft"}
CALL_KINDS = {"a2a_local": "A2A agent", "mcp_local": "MCP", "platform": "platform"}
"""Who answers a call, where it is no function of this process."""
_MARKS = {
    "done": "✓",
    "failed": "✕",
    "running": "…",
    "stopped": "■",
    "pending": "○",
    "in_progress": "●",
    "blocked": "✕",
    "skipped": "»",
}
_STEP_CLASSES = {"done": "done", "in_progress": "active", "blocked": "failed", "skipped": "skipped"}
_STATE_WORDS = {"in_progress": "in progress"}


def card(*parts: object) -> Html:
    """Make the box that a view is."""
    return el("div", *parts, cls="card")


def head(title: object, status: object = None, named: str | None = None, *more: object) -> Html:
    """Make the first line of a card: its status, what it is, its id, and what stands at the end."""
    return el(
        "div",
        status,
        el("span", escape(title, 120), cls="title"),
        el("span", escape(named, 120), cls="id") if named else None,
        *more,
        cls="head",
    )


def identity(text: str) -> Html:
    """Make an id in a table, cut to the room there is; pointing at it shows all of it."""
    return el("span", escape(text, 200), cls="ident", title=escape(text, 200))


def section_of(*parts: object) -> Html:
    """Put parts below each other without a heading."""
    return el("div", *parts, cls="section")


def status_badge(status: str) -> Html:
    """Make a status readable by its colour and its word."""
    return badge(status.replace("_", " "), STATUS_TONES.get(status, ""))


def mark(state: str) -> Html:
    """Make the sign of a state; readers of the screen hear the word."""
    word = _STATE_WORDS.get(state, state)
    return el("span", _MARKS.get(state, "·"), cls="mark", role="img", aria_label=word, title=escape(word, 60))


def note(tone: str, text: object, sign: str = "!") -> Html:
    """Make a sentence that stands out. `tone`: `warn`, `bad`, `accent` or nothing."""
    return el("div", el("span", sign, cls="mark", aria_hidden="true"), el("span", text, cls="grow"), cls=f"note {tone}")


def failure(text: str | None, *, is_cancelled: bool = False) -> Html | None:
    """Make the sentence that says why something ended badly; `None` if there is none."""
    if not text:
        return None
    return note("warn" if is_cancelled else "bad", escape(text, 3000), _MARKS["stopped" if is_cancelled else "failed"])


def written_before_end(text: str | None) -> Html | None:
    """Make what opens to the text of a run that ended badly; `None` if there is none."""
    return fold("What the model had written", prose(text)) if text else None


def rest_note(number: int, what: str) -> Html | None:
    """Say that so many more are not shown: `rest_note(3, "more call")`; `None` if all are."""
    return el("span", f"… {plural(number, what)} not shown here", cls="cut") if number > 0 else None


def notice_line(notice: Notice) -> Html:
    """Make the sentence of something that stepped in."""
    if notice.is_warning:
        return note("warn", escape(notice.text, 1500))
    return note("", escape(notice.text, 1500), _MARKS["done"])


def notice_list(notices: Sequence[Notice], limit: int) -> Html | None:
    """Make the list of what stepped in, the last `limit` of them; `None` if nothing did."""
    if not notices:
        return None
    return section(
        "Notices", rest_note(len(notices) - limit, "earlier notice"), [notice_line(one) for one in notices[-limit:]]
    )


def model_name(model: RunModelInfo | None) -> str | None:
    """Return what to call a model; `None` if it is not known."""
    if model is None:
        return None
    name = model.id or ":".join(part for part in (model.provider, model.vendor_model_id) if part)
    return f"{name} ({model.reasoning_effort} reasoning)" if name and model.reasoning_effort else name or None


def token_text(tokens: TokenUsage | None) -> str | None:
    """Say how many tokens went in and came out, and what they contain."""
    if tokens is None:
        return None
    cached = f" ({tokens.cached_tokens:,} cached)" if tokens.cached_tokens else ""
    reasoned = f" ({tokens.reasoning_tokens:,} reasoning)" if tokens.reasoning_tokens else ""
    return f"{tokens.input_tokens:,} in{cached} · {tokens.output_tokens:,} out{reasoned}"


# ------------------------------------------------------------------------------------------- plans


def checklist(plan: TaskPlan) -> Html:
    """Make the list of a plan's steps."""
    steps = [
        el(
            "li",
            mark(step.status),
            el("span", escape(step.title, 500) if step.title else el("em", "a step without a title"), cls="what"),
            badge("blocked", "bad") if step.status == "blocked" else None,
            cls=f"step {_STEP_CLASSES.get(step.status, '')}",
        )
        for step in plan.steps[:_MAX_STEPS]
    ]
    return join([el("ol", steps, cls="plan"), rest_note(len(plan.steps) - _MAX_STEPS, "more step")])


def plan_section(plan: TaskPlan | None) -> Html | None:
    """Make the part of a run that shows its plan; `None` if there is none."""
    if plan is None or not (plan.steps or plan.brief):
        return None
    done = sum(step.status == "done" for step in plan.steps)
    return section(
        f"Plan · {done} of {plural(len(plan.steps), 'step')} done",
        el("div", escape(plan.brief, 600), cls="soft small") if plan.brief else None,
        checklist(plan),
    )


# ------------------------------------------------------------------------------------------- tool calls


@dataclass(frozen=True)
class FileShown:
    """A file as it is listed."""

    name: str
    mime_type: str | None = None
    size_bytes: int | None = None
    url: str | None = None


@dataclass(frozen=True)
class CallShown:
    """A tool call as it is listed. `state` as a `ToolCallState` has it; `seconds`: how long it took, if known."""

    name: str
    state: str
    args: Any = None
    kind: str = "local"
    result: Any = None
    has_result: bool = False
    detail: str = ""
    seconds: float | None = None
    waited: float | None = None
    tool_use_id: str | None = None


def call_list(calls: Sequence[CallShown], *, limit: int = MAX_CALLS) -> Html | None:
    """Make the list of tool calls, each to be opened; `None` if there are none."""
    if not calls:
        return None
    shown = calls[:limit]
    room = max(300, min(6000, _ROOM // (2 * len(shown))))
    failed = sum(call.state == "failed" for call in calls)
    title = f"Tool calls · {len(calls):,}" + (f", {failed:,} failed" if failed else "")
    return section(
        title,
        el("div", [call_row(call, room=room) for call in shown], cls="rows"),
        rest_note(len(calls) - limit, "more call"),
    )


def call_row(call: CallShown, *, room: int = 6000, is_open: bool = False) -> Html:
    """Make one tool call that opens to its arguments and result.

    Args:
        room: How many characters of the arguments, and of the result, are shown.
    """
    tone = CALL_TONES.get(call.state, "accent")
    args = "" if call.args is None else one_line(call.args, 200)
    summary = join(
        [
            el("span", mark(call.state), cls=tone),
            el("span", escape(call.name, 80), cls="mono strong one", title=escape(call.name, 300)),
            badge(CALL_KINDS[call.kind]) if call.kind in CALL_KINDS else None,
            el("span", "" if args in ("{}", "null") else args, cls="mono soft one grow"),
            el("span", duration(call.seconds), cls="soft small tight") if call.seconds is not None else None,
        ]
    )
    has_detail = bool(call.detail) and call.detail != call.result
    waited = call.waited if call.waited is not None and call.waited >= 0.01 else None
    return fold(
        summary,
        value_block("Arguments", call.args, room) if call.args is not None else None,
        value_block("Error" if call.state == "failed" else "Result", opened(call.result), room)
        if call.has_result
        else None,
        note("bad", escape(call.detail, 2000), "✕") if call.state == "failed" and has_detail else None,
        el("div", escape(call.detail, 2000), cls="soft small") if call.state != "failed" and has_detail else None,
        el("div", f"Waited {duration(waited)} for a free place.", cls="soft small") if waited is not None else None,
        is_open=is_open,
    )


def opened(value: Any) -> Any:
    """Return what a text of JSON holds, since tools and models answer in it; any other value as it is."""
    if not isinstance(value, str) or len(value) > _MAX_OPENED or value.lstrip()[:1] not in ("{", "["):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def value_block(title: str, value: object, limit: int = MAX_TEXT) -> Html:
    """Make a value readable: text as it is, anything else as JSON."""
    text, length = json_text(value, limit)
    if not text:
        return section(title, el("span", "empty text", cls="soft small"))
    return section(title, code(text, limit), cut_note(length, limit))


def file_list(files: Iterable[FileShown]) -> Html | None:
    """Make the list of files; `None` if there are none."""
    rows = [
        el(
            "li",
            link(file.url, file.name) if file.url else escape(file.name, 200),
            " ",
            el("span", " · ".join(x for x in (file.mime_type, amount(file.size_bytes)) if x), cls="soft small"),
        )
        for file in list(files)[:MAX_CALLS]
    ]
    return section(f"Files · {len(rows)}", el("ul", rows, cls="list")) if rows else None
