"""Views of one run: its result, its failure, its state so far, what the server knows of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Mapping, Sequence

from mantyx_sync.display.html import Html, el, escape, facts, fold, join, one_line, prose, section
from mantyx_sync.display.parts import (
    CallShown,
    FileShown,
    call_list,
    card,
    failure,
    file_list,
    head,
    model_name,
    note,
    notice_list,
    opened,
    plan_section,
    rest_note,
    status_badge,
    token_text,
    value_block,
    written_before_end,
)
from mantyx_sync.display.state import Outcome, RunState
from mantyx_sync.display.wording import clock, count, duration, milliseconds, percent, when
from mantyx_sync.errors import MantyxRunCancelled, MantyxRunError, RateLimit
from mantyx_sync.events import AssistantMessage, LocalToolResultIn, RunEvent, ToolFiles, ToolResultEvent
from mantyx_sync.results import RunResult, RunSnapshot, RunSummary
from mantyx_sync.timing import RunTiming
from mantyx_sync.values import StructuredOutputInfo

if TYPE_CHECKING:
    from mantyx_sync.run import Run

__all__ = ["Story", "error_card", "plan_card", "result_card", "run_card", "snapshot_card", "story_of", "summary_card"]

_MAX_NOTICES = 40
_MAX_TURNS = 40


@dataclass
class Story:
    """What a run's events tell, as its views show it."""

    state: RunState
    calls: list[CallShown] = field(default_factory=list)
    files: list[FileShown] = field(default_factory=list)
    turns: list[str] = field(default_factory=list)
    """The text of each complete turn."""


def story_of(events: Sequence[RunEvent], timing: RunTiming | None = None) -> Story:
    """Fold a run's events. Without `timing` nothing is said of durations."""
    known = timing is not None and len(timing.events) == len(events)
    times: Sequence[float] = timing.events if timing is not None and known else ()
    story = Story(RunState(0.0))
    results: dict[str | None, tuple[Any, bool]] = {}
    local_times = {} if timing is None else {tool.tool_use_id: tool for tool in timing.tools}
    for place, event in enumerate(events):
        story.state.apply(event, times[place] if known else 0.0)
        if isinstance(event, LocalToolResultIn):
            results[event.tool_use_id] = (event.output, event.output is not None)
            story.files += [_file(file) for file in event.files]
        elif isinstance(event, ToolResultEvent):
            results[event.tool_use_id] = (event.result, event.result is not None)
        elif isinstance(event, ToolFiles):
            story.files += [
                FileShown(file.filename or "file", file.mime_type, file.size_bytes, file.url) for file in event.files
            ]
        elif isinstance(event, AssistantMessage) and event.text:
            story.turns.append(event.text)
    for call in story.state.tools:
        result, has_result = results.get(call.tool_use_id, (None, False)) if call.tool_use_id else (None, False)
        seconds = call.duration(call.started) if known and call.ended is not None else None
        waited = None
        local = local_times.get(call.tool_use_id or "")
        if local is not None and local.begun is not None:
            waited = local.begun - local.called
            seconds = seconds if local.ended is None else local.ended - local.begun
        story.calls.append(
            CallShown(
                name=call.name,
                state=call.state,
                args=call.args,
                kind=call.kind if call.was_called else "",
                result=result,
                has_result=has_result,
                detail=call.detail,
                seconds=seconds if call.was_called else None,
                waited=waited,
                tool_use_id=call.tool_use_id,
            )
        )
    return story


def result_card(result: RunResult, *more: object) -> Html:
    """Show a run that succeeded, and `more` that the result does not hold."""
    story = story_of(result.events, result.timing)
    return card(
        head("Run", status_badge("succeeded"), result.run_id),
        _answer(result.text, result.output, result.structured_output),
        _usage(result, result.timing),
        _structured(result.structured_output),
        plan_section(result.plan or story.state.plan),
        *_events_of(story, result.text),
        *more,
        _small_print(
            result.timing,
            ("Last event", count(result.last_seq)),
            ("Request", result.request_id),
            ("Rate limit", _rate_limit(result.rate_limit)),
        ),
    )


def error_card(error: MantyxRunError, *more: object) -> Html:
    """Show a run that failed or was cancelled, and `more` that the error does not hold."""
    story = story_of(error.events, error.timing)
    is_cancelled = isinstance(error, MantyxRunCancelled)
    kind = error.error_class or (None if error.subtype in ("cancelled", "error") else error.subtype)
    advice = None
    if error.retryable is not None:
        advice = "trying again may help" if error.retryable else "trying again as it is will not help"
    return card(
        head("Run", status_badge("cancelled" if is_cancelled else "failed"), error.run_id),
        failure(error.message, is_cancelled=is_cancelled),
        facts(
            [
                ("Kind", kind),
                ("Finish reason", error.finish_reason),
                ("Provider's status", count(error.api_status)),
                ("Provider's code", error.api_code),
                ("Advice", advice),
            ]
        ),
        written_before_end(error.partial_text),
        _usage(error, error.timing),
        plan_section(story.state.plan),
        *_events_of(story, error.partial_text or ""),
        *more,
        _small_print(error.timing, ("Last event", count(error.last_seq)), ("Request", error.request_id)),
    )


def run_card(run: Run) -> Html:
    """Show what has arrived of a run so far. Asks nobody, and waits for nothing."""
    events, timing = run.events_so_far, run.timing
    story = story_of(events, timing)
    state = story.state
    status = state.outcome.kind if state.outcome is not None else "running"
    lost = None
    if state.outcome is None and run.is_over:
        status = "lost" if run.is_done else "closed"
        error = run.error
        lost = None if error is None else str(error) or type(error).__name__
    text = state.text
    return card(
        head("Run", status_badge(status), run.run_id),
        failure(lost),
        _why(state.outcome),
        prose(text) if text else None,
        el("div", "No turn is complete yet.", cls="soft") if not text and status == "running" else None,
        facts(
            [
                ("Tokens", token_text(state.tokens)),
                ("Turns", count(state.turn_count if state.turn_count is not None else len(story.turns) or None)),
                ("Model", model_name(state.model)),
                ("Took", duration(timing.ended) or None),
                ("Last event", count(run.last_seq or None)),
            ]
        ),
        plan_section(state.plan),
        *_events_of(story, text),
        _small_print(timing, ("Request", run.request_id), ("Rate limit", _rate_limit(run.rate_limit))),
    )


def _why(outcome: Outcome | None) -> Html | None:
    if outcome is None or not outcome.reason:
        return None
    if outcome.kind == "cancelled":
        return failure(f"Cancelled: {outcome.reason}", is_cancelled=True)
    return failure(outcome.reason)


def snapshot_card(snapshot: RunSnapshot) -> Html:
    """Show what the server knew of a run."""
    reason = snapshot.failure_reason
    failed = snapshot.status not in ("queued", "running", "succeeded", "cancelled")
    return card(
        head("Run", status_badge(snapshot.status), snapshot.id),
        failure(snapshot.error),
        written_before_end(snapshot.final_text)
        if failed
        else _answer(snapshot.final_text or "", None, snapshot.structured_output),
        facts(
            [
                ("Kind", reason.error_class if reason else None),
                ("Finish reason", reason.finish_reason if reason else None),
                ("Tokens", token_text(snapshot.tokens)),
                ("Turns", count(snapshot.turns)),
                ("Model", model_name(snapshot.model)),
                ("Session", snapshot.session_id),
                ("Created", when(snapshot.created_at)),
                ("Ended", when(snapshot.completed_at)),
            ]
        ),
        _structured(snapshot.structured_output),
        plan_section(snapshot.plan),
        metadata_fold(snapshot.metadata),
    )


def summary_card(run: RunSummary) -> Html:
    """Show one line of the list of runs on its own."""
    return card(
        head(run.spec_name or "Run", status_badge(run.status), run.id),
        failure(run.error),
        section("Input", prose(run.input_preview, 2000)) if run.input_preview else None,
        section("Output", prose(run.output_preview, 2000)) if run.output_preview else None,
        facts(
            [
                ("Tokens", token_text(run.tokens)),
                ("Turns", count(run.turns)),
                ("Tool calls", count(run.tool_call_count)),
                ("Took", milliseconds(run.duration_ms)),
                ("Model", run.model_id),
                ("Agent", run.agent_id),
                ("Session", run.session_id),
                ("Created", when(run.created_at)),
                ("Ended", when(run.completed_at)),
            ]
        ),
        metadata_fold(run.metadata),
    )


def plan_card(plan: Any) -> Html:
    """Show a plan on its own."""
    shown = plan_section(plan)
    return card(shown if shown is not None else el("div", "A plan without steps.", cls="soft"))


def metadata_fold(metadata: Mapping[str, Any]) -> Html | None:
    """Show metadata as a row of facts; `None` if there is none."""
    if not metadata:
        return None
    pairs = [(escape(key, 60), escape(one_line(value, 200))) for key, value in list(metadata.items())[:50]]
    return section("Metadata", facts(pairs))


# ------------------------------------------------------------------------------------------- pieces


def _answer(text: str, output: object, info: StructuredOutputInfo | None) -> Html:
    """Show the answer: what it was parsed to, or its text."""
    if output is not None and not isinstance(output, str):
        kind = "" if isinstance(output, (dict, list, int, float, bool)) else f" · {type(output).__name__}"
        return join(
            [value_block(f"Output{kind}", output), fold("As the model wrote it", prose(text)) if text else None]
        )
    if info is not None and info.schema_requested:
        found = opened(text)
        if found is not text:
            return value_block("Output", found)
    return prose(text) if text else el("div", "The answer is empty.", cls="soft")


def _usage(run: RunResult | MantyxRunError, timing: RunTiming | None) -> Html | None:
    return facts(
        [
            ("Tokens", token_text(run.tokens)),
            ("Turns", count(run.turns)),
            ("Model", model_name(run.model)),
            ("Took", duration(timing.ended) or None if timing is not None else None),
        ]
    )


def _structured(info: StructuredOutputInfo | None) -> Html | None:
    if info is None or not info.schema_requested:
        return None
    if info.schema_enforced and not info.unconstrained_fallback_occurred:
        how = "" if info.enforcement_mechanism == "none" else f" ({info.enforcement_mechanism.replace('_', ' ')})"
        return el("div", escape(f"The platform held the model to the output schema{how}.", 200), cls="soft small")
    return note("warn", "The platform did not hold the model to the output schema all the way.")


def _events_of(story: Story, final: str) -> list[Html | None]:
    earlier = [text for text in story.turns if text != final]
    shown = [section(f"Turn {n}", prose(text, 4000)) for n, text in enumerate(earlier[:_MAX_TURNS], 1)]
    more = rest_note(len(earlier) - _MAX_TURNS, "more turn")
    return [
        notice_list(story.state.notices, _MAX_NOTICES),
        call_list(story.calls),
        file_list(story.files),
        fold(f"What the model said in between · {len(earlier)}", shown, more) if earlier else None,
    ]


def _small_print(timing: RunTiming | None, *pairs: tuple[str, object]) -> Html | None:
    started = ("Started", clock(timing.started_at) or None) if timing is not None else ("Started", None)
    shown = facts(
        [started, *((name, escape(value, 120) if isinstance(value, str) else value) for name, value in pairs)]
    )
    return fold(el("span", "Details", cls="soft small"), shown) if shown is not None else None


def _rate_limit(limit: RateLimit | None) -> str | None:
    if limit is None or limit.limit is None or limit.remaining is None:
        return None
    share = percent(limit.remaining / limit.limit) if limit.limit else None
    return f"{limit.remaining:,} of {limit.limit:,} calls left" + (f" ({share})" if share else "")


def _file(file: Mapping[str, Any]) -> FileShown:
    def text(name: str) -> str | None:
        value = file.get(name)
        return value if isinstance(value, str) else None

    size = file.get("sizeBytes", file.get("size"))
    return FileShown(text("filename") or "file", text("mimeType"), size if isinstance(size, int) else None, text("url"))
