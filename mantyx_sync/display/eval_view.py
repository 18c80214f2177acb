"""Views of evals: runs with their cases, comparisons, data sets. Pure."""

from __future__ import annotations

from typing import Any, Iterable, Mapping, Sequence

from mantyx_sync.display.html import Column, Html, badge, el, escape, facts, fold, join, one_line, prose, section, table
from mantyx_sync.display.parts import (
    CallShown,
    call_list,
    card,
    failure,
    head,
    identity,
    mark,
    rest_note,
    status_badge,
    value_block,
)
from mantyx_sync.display.wire_words import asked
from mantyx_sync.display.wording import count, milliseconds, percent, when
from mantyx_sync.eval_results import (
    EvalCase,
    EvalCaseResult,
    EvalDatasetDetail,
    EvalDatasetSummary,
    EvalRunCompare,
    EvalRunCompareCase,
    EvalRunDetail,
    EvalRunSummary,
)

__all__ = [
    "case_result_card",
    "compare_card",
    "dataset_card",
    "dataset_rows",
    "dataset_summary_card",
    "eval_card",
    "eval_rows",
]

_MAX_CASES = 200
_ROOM = 400_000  # characters for the answers of all cases together


def eval_card(run: EvalRunSummary) -> Html:
    """Show an eval run, with its cases if they are there."""
    results = run.results if isinstance(run, EvalRunDetail) else ()
    return card(
        head(run.dataset_name or "Eval run", status_badge(run.status), run.id),
        failure(run.error),
        _meter(run),
        facts(
            [
                ("Score", percent(run.score)),
                ("Passed", f"{run.passed_cases:,} of {run.total_cases:,}"),
                ("Played", None if run.completed_cases == run.total_cases else count(run.completed_cases)),
                ("Tokens", _tokens(run.token_usage)),
                ("Agent", run.agent_id or ("given inline" if run.inline_agent else None)),
                ("Started", when(run.started_at)),
                ("Ended", when(run.finished_at)),
            ]
        ),
        _cases(results) if results else None,
    )


def _meter(run: EvalRunSummary) -> Html | None:
    if not run.total_cases:
        return None
    share = min(100.0, 100 * run.passed_cases / run.total_cases)
    failing = run.passed_cases < run.completed_cases
    filled = el("span", style=f"width:{share:.2f}%")
    words = f"{run.passed_cases} of {run.total_cases} cases passed"
    return el("div", filled, cls="meter" if failing else "meter good", role="img", aria_label=words)


def _cases(results: Sequence[EvalCaseResult]) -> Html:
    # What failed is what one looks for.
    ordered = sorted(results, key=lambda result: result.passed)
    shown = ordered[:_MAX_CASES]
    room = max(300, min(6000, _ROOM // (2 * len(shown))))
    return section(
        f"Cases · {len(results):,}",
        el("div", [_case(result, room) for result in shown], cls="rows"),
        rest_note(len(results) - _MAX_CASES, "more case"),
    )


def _case(result: EvalCaseResult, room: int) -> Html:
    state = "done" if result.passed else "failed"
    took = milliseconds(result.latency_ms)
    summary = join(
        [
            el("span", mark(state), cls="good" if result.passed else "bad"),
            el("span", escape(result.case.name or result.case_id, 120), cls="strong one"),
            el("span", escape(_first_reason(result), 200), cls="soft small one grow"),
            el("span", percent(result.score), cls="small tight") if result.score is not None else None,
            el("span", took, cls="soft small tight wide") if took else None,
        ]
    )
    return fold(summary, *_case_body(result, room))


def _case_body(result: EvalCaseResult, room: int) -> list[object]:
    return [
        failure(result.error),
        section("Asked", prose(asked(result.case.input), room)) if result.case.input else None,
        section("Answered", prose(result.final_text, room)) if result.final_text else None,
        _scores(result.scores),
        call_list([_call(call) for call in result.tool_calls], limit=20),
        facts(
            [
                ("Tokens", _tokens(result.tokens)),
                ("Took", milliseconds(result.latency_ms)),
                ("Tags", escape(", ".join(result.case.tags), 200) if result.case.tags else None),
            ]
        ),
    ]


def case_result_card(result: EvalCaseResult) -> Html:
    """Show one case's result on its own."""
    return card(
        head(
            escape(result.case.name or result.case_id or "Case", 120),
            badge("passed", "good") if result.passed else badge("failed", "bad"),
            result.id,
            el("span", percent(result.score), cls="end strong") if result.score is not None else None,
        ),
        *_case_body(result, 6000),
    )


def _first_reason(result: EvalCaseResult) -> str:
    if result.error:
        return one_line(result.error, 200)
    reasons = (entry.get("reason") for entry in result.scores if not entry.get("passed"))
    return one_line(next((reason for reason in reasons if isinstance(reason, str) and reason), ""), 200)


def _scores(scores: Sequence[Mapping[str, Any]]) -> Html | None:
    if not scores:
        return None
    rows = [
        el(
            "li",
            el("span", mark("done" if entry.get("passed") else "failed"), cls="good" if entry.get("passed") else "bad"),
            el(
                "span",
                escape(entry.get("name") or entry.get("type") or "scorer", 120),
                el("span", escape(f" · {one_line(entry['reason'], 300)}"), cls="soft") if entry.get("reason") else None,
                cls="what",
            ),
            cls="step",
        )
        for entry in scores[:50]
    ]
    return section("Scores", el("ul", rows, cls="plan"))


def _call(call: Mapping[str, Any]) -> CallShown:
    args = call.get("args", call.get("input"))
    failed = bool(call.get("error")) or call.get("ok") is False or call.get("isError") is True
    result = call.get("error") or call.get("result", call.get("output"))
    return CallShown(
        str(call.get("name") or "tool"),
        "failed" if failed else "done",
        args,
        result=result,
        has_result=result is not None,
    )


def _tokens(usage: Mapping[str, Any] | None) -> str | None:
    if not usage:
        return None
    given, made = usage.get("inputTokens"), usage.get("outputTokens")
    if isinstance(given, int) and isinstance(made, int):
        return f"{given:,} in · {made:,} out"
    total = usage.get("totalTokens")
    return f"{total:,}" if isinstance(total, int) else None


# ------------------------------------------------------------------------------------------- comparisons


def compare_card(compared: EvalRunCompare) -> Html:
    """Show two eval runs side by side: what changed first."""
    a, b = compared.run_a, compared.run_b
    cases = sorted(compared.cases, key=_change_order)[:_MAX_CASES]
    better = sum(case.change == "better" for case in compared.cases)
    worse = sum(case.change == "worse" for case in compared.cases)
    words = [f"{worse} worse" if worse else "", f"{better} better" if better else ""]
    columns = [Column(""), Column("Run"), Column("Status", "tight"), Column("Score", "num"), Column("Passed", "num")]
    sides = [
        (
            el("span", name, cls="strong"),
            identity(side.id),
            status_badge(side.status),
            percent(side.score),
            f"{side.passed_cases:,} of {side.total_cases:,}",
        )
        for name, side in (("A", a), ("B", b))
    ]
    return card(
        head(
            escape(compared.dataset_name or "Comparison", 120),
            None,
            compared.dataset_id,
            badge(", ".join(w for w in words if w) or "no case changed", "bad" if worse else "good" if better else ""),
        ),
        table(columns, sides),
        section(
            f"Cases · {len(compared.cases):,}",
            table(
                [
                    Column("Change", "tight"),
                    Column("Case"),
                    Column("A", "num"),
                    Column("B", "num"),
                    Column("B answered"),
                ],
                [_compared(case) for case in cases],
            ),
            rest_note(len(compared.cases) - _MAX_CASES, "more case"),
        )
        if cases
        else None,
    )


def _compared(case: EvalRunCompareCase) -> tuple[object, ...]:
    change = case.change
    tone = {"worse": "bad", "better": "good"}.get(change, "")
    answer = (case.b or {}).get("error") or (case.b or {}).get("finalText")
    return (
        badge(change, tone) if change else None,
        escape(case.case_name or case.case_id, 120),
        _side(case.a),
        _side(case.b),
        escape(one_line(answer, 160)) if answer else None,
    )


def _side(side: Mapping[str, Any] | None) -> Html | None:
    if side is None:
        return None
    score = side.get("score")
    shown = percent(score) if isinstance(score, (int, float)) else ""
    passed = bool(side.get("passed"))
    return el("span", mark("done" if passed else "failed"), " ", shown, cls="good" if passed else "bad")


def _change_order(case: EvalRunCompareCase) -> int:
    return {"worse": 0, "better": 1, "only in A": 2, "only in B": 2, "": 4}.get(case.change, 3)


# ------------------------------------------------------------------------------------------- listings


def eval_rows(runs: Iterable[EvalRunSummary]) -> Html:
    """Make the table of eval runs."""
    columns = [
        Column("Status", "tight"),
        Column("Eval run"),
        Column("Data set"),
        Column("Score", "num"),
        Column("Passed", "num"),
        Column("Agent"),
        Column("Started", "tight"),
    ]
    return table(
        columns,
        [
            (
                status_badge(run.status),
                identity(run.id),
                escape(run.dataset_name or run.dataset_id or "", 100),
                percent(run.score),
                f"{run.passed_cases:,} of {run.total_cases:,}",
                escape(run.agent_id or ("inline" if run.inline_agent else ""), 100),
                when(run.started_at or run.created_at),
            )
            for run in runs
        ],
    )


def dataset_rows(datasets: Iterable[EvalDatasetSummary]) -> Html:
    """Make the table of data sets."""
    columns = [
        Column("Data set"),
        Column("Id"),
        Column("Description"),
        Column("Cases", "num"),
        Column("Runs", "num"),
        Column("Updated", "tight"),
    ]
    return table(
        columns,
        [
            (
                el("span", escape(one.name or one.id, 100), cls="strong"),
                identity(one.id),
                escape(one_line(one.description, 200)) if one.description else None,
                count(one.case_count),
                count(one.run_count),
                when(one.updated_at),
            )
            for one in datasets
        ],
    )


def dataset_summary_card(dataset: EvalDatasetSummary) -> Html:
    """Show one line of the list of data sets on its own."""
    return card(
        head(escape(dataset.name, 120) or "Data set", None, dataset.id),
        prose(dataset.description, 2000) if dataset.description else None,
        facts(
            [
                ("Cases", count(dataset.case_count)),
                ("Runs", count(dataset.run_count)),
                ("Created", when(dataset.created_at)),
                ("Updated", when(dataset.updated_at)),
            ]
        ),
    )


def dataset_card(dataset: EvalDatasetDetail) -> Html:
    """Show a data set with its cases."""
    return card(
        head(escape(dataset.name, 120) or "Data set", None, dataset.id),
        prose(dataset.description, 2000) if dataset.description else None,
        section(
            f"Cases · {len(dataset.cases):,}",
            el("div", [_described(case) for case in dataset.cases[:_MAX_CASES]], cls="rows"),
            rest_note(len(dataset.cases) - _MAX_CASES, "more case"),
        ),
    )


def _described(case: EvalCase) -> Html:
    summary = join(
        [
            el("span", escape(case.name or case.id, 120), cls="strong one"),
            el("span", escape(one_line(asked(case.input), 200)), cls="soft small one grow"),
            el("span", escape(", ".join(case.tags), 60), cls="soft small tight wide") if case.tags else None,
        ]
    )
    return fold(
        summary,
        section("Asked", prose(asked(case.input), 4000)),
        value_block("Scorers", list(case.scorers), 3000) if case.scorers else None,
        value_block("Tool mocks", case.tool_mocks, 3000) if case.tool_mocks else None,
    )
