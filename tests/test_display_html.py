"""Views as HTML: nothing that others wrote gets out of its place, nothing is endless, nothing fails. Pure."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from html.parser import HTMLParser
from typing import Any, Callable

import pytest

from mantyx_sync import (
    EvalDatasetDetail,
    EvalDatasetList,
    EvalRunCompare,
    EvalRunDetail,
    EvalRunList,
    MantyxRunCancelled,
    MantyxRunError,
    ModelCatalog,
    Page,
    RunPage,
    RunResult,
    RunSnapshot,
    SessionInfo,
    TaskPlan,
)
from mantyx_sync.display import html_of, page_of
from mantyx_sync.display.html import (
    Column,
    Html,
    code,
    el,
    escape,
    facts,
    fold,
    fragment,
    join,
    json_text,
    link,
    one_line,
    prose,
    table,
)
from mantyx_sync.display.style import stylesheet
from mantyx_sync.display.wording import amount, clock, count, duration, money, percent, when
from mantyx_sync.events import decode
from mantyx_sync.results import conclude
from mantyx_sync.session_info import SessionEventsPage, SessionPage
from mantyx_sync.timing import RunTiming, ToolTiming

HOSTILE = [
    "</style><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</title></pre></details></div></td></table>",
    "<!-- --> <![CDATA[ ]]> &amp; &#60;script&#62;",
    "javascript:alert(1)",
    "a\ud800b\udfffc\x00\x07\x1b[31m\x7f\x85\ufffe",
    "left \u202e\u2066 turned",
    "x" * 3000,
    "",
    "日本語 ümläut 🎉",
]
VOID = {"br", "hr", "img", "meta", "link", "wbr"}


class Reading(HTMLParser):
    """Reads HTML strictly: what is opened is closed in order, and nothing is there that acts or loads."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.hrefs: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in {"script", "iframe", "object", "embed", "img", "form", "input", "link", "base", "audio"}, tag
        self.tags.append(tag)
        for name, value in attrs:
            assert re.fullmatch(r"[a-zA-Z-]+[0-9]?", name), name
            assert not name.startswith("on"), name
            assert name not in {"src", "srcset", "action", "background"}, name
            if name == "href":
                assert (value or "").startswith(("http://", "https://")), value
                self.hrefs.append(value or "")
            if name == "style":
                assert re.fullmatch(r"width:[0-9.]+%", value or ""), value
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.words.append(data)

    def handle_decl(self, decl: str) -> None:
        assert decl == "DOCTYPE html"

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data[:50]}")

    unknown_decl = handle_pi = handle_comment

    @property
    def text(self) -> str:
        return "".join(self.words)


def read(obj: Any) -> Reading:
    """Read an object's view, in a cell and as a page."""
    page = page_of(obj)
    Reading(page).text.encode("utf-8")  # can be written to a file
    shown = html_of(obj)
    assert shown.startswith('<div class="mx-root">')
    return Reading(shown)


# ------------------------------------------------------------------------------------------- objects


def plan_of(text: str) -> dict[str, Any]:
    statuses = ["done", "in_progress", "pending", "blocked", "skipped", text]
    steps = [{"id": f"s{i}", "title": text, "status": status} for i, status in enumerate(statuses)]
    return {"planId": "p", "revision": 1, "brief": text, "steps": steps}


def events_of(text: str) -> list[Any]:
    """Return one event of each kind with `text` wherever there can be one."""
    file = {"filename": text, "mimeType": text, "sizeBytes": 12, "url": text, "storageKey": text}
    payloads: list[tuple[str, dict[str, Any]]] = [
        ("user_message", {"content": text}),
        ("task_plan", plan_of(text)),
        ("assistant_message", {"text": text + "0", "turn": 0}),
        ("local_tool_call", {"toolUseId": "a" + text, "name": text, "args": {text: [text, {text: text}]}}),
        ("local_tool_result_in", {"toolUseId": "a" + text, "output": text, "files": [file]}),
        ("local_tool_call", {"toolUseId": "b", "name": text, "args": text, "kind": "mcp_local", "mcpServer": text}),
        ("local_tool_result_in", {"toolUseId": "b", "error": text}),
        ("tool_call", {"toolUseId": "c", "name": text, "input": [text]}),
        ("tool_result", {"toolUseId": "c", "name": text, "ok": False, "summary": text, "result": {"x": text}}),
        ("tool_files", {"name": text, "files": [file, {**file, "url": "https://example.com/" + text}]}),
        ("loop_detected", {"consecutiveCount": 3, "tools": [text]}),
        ("tool_budget_exceeded", {"tool": text, "maxCalls": 1, "callIndex": 2}),
        ("supervisor", {"action": "redirect", "reason": text, "redirect": text}),
        ("supervisor", {"action": text, "reason": text}),
        ("model_fallback", {"primaryModelId": text, "fallbackModelId": text, "errorClass": text}),
        (text or "unheard_of", {"text": text, "x": [text]}),
    ]
    return [decode({"seq": i, "type": kind, "data": data}) for i, (kind, data) in enumerate(payloads, 1)]


def result_of(text: str, **more: Any) -> RunResult:
    events = events_of(text)
    usage = {"inputTokens": 1204, "cachedTokens": 300, "reasoningTokens": 20, "outputTokens": 88}
    data = {
        "subtype": "success",
        "text": text,
        "tokens": usage,
        "turns": 2,
        "model": {"id": text, "provider": text or "p", "vendorModelId": text, "reasoningEffort": text},
        "structuredOutput": {"schemaRequested": True, "schemaEnforced": True, "enforcementMechanism": text},
        "plan": plan_of(text),
    }
    end = decode({"seq": 99, "type": "result", "data": data})
    return conclude(text or "run_1", end, [*events, end], request_id=text, **more)


def error_of(text: str) -> MantyxRunError:
    error = MantyxRunError(
        text, text, text, error_class=text, finish_reason=text, partial_text=text, retryable=True, api_code=text
    )
    error.events = tuple(events_of(text))
    return error


def run_line(text: str) -> dict[str, Any]:
    return {
        "id": text or "run_1",
        "status": text or "succeeded",
        "sessionId": text,
        "specName": text,
        "modelId": text,
        "agentId": text,
        "inputPreview": text,
        "outputPreview": text,
        "durationMs": 1234.5,
        "turns": 3,
        "toolCallCount": 2,
        "metadata": {text: text, "n": 1},
        "tokens": {"inputTokens": 1, "outputTokens": 2},
        "createdAt": "2025-03-04T05:06:07Z",
        "completedAt": text,
    }


def eval_line(text: str) -> dict[str, Any]:
    return {
        "id": text or "eval_1",
        "status": text or "succeeded",
        "datasetId": text,
        "datasetName": text,
        "agentId": text,
        "totalCases": 3,
        "completedCases": 3,
        "passedCases": 2,
        "score": 0.8333,
        "tokenUsage": {"inputTokens": 10, "outputTokens": 4},
        "error": text,
        "startedAt": text,
    }


def case_of(text: str) -> dict[str, Any]:
    return {
        "id": "c" + text,
        "name": text,
        "input": {"messages": [{"role": "user", "content": text}]},
        "scorers": [{"type": text, "value": text}],
        "tags": [text],
        "toolMocks": {text: text},
    }


def case_result(text: str, passed: bool = False) -> dict[str, Any]:
    return {
        "id": "r" + text,
        "caseId": "c" + text,
        "case": case_of(text),
        "finalText": text,
        "toolCalls": [{"name": text, "args": {text: text}, "error": text}, {"name": text, "result": text}],
        "scores": [{"type": text, "name": text, "passed": passed, "reason": text}],
        "passed": passed,
        "score": 0.5,
        "latencyMs": 12.0,
        "error": text,
    }


def session_line(text: str) -> dict[str, Any]:
    return {"sessionId": text or "ses_1", "status": text, "summary": text, "metadata": {text: text}}


def info_of(text: str) -> dict[str, Any]:
    roles = ["user", "assistant", "system", "tool", text]
    messages = [{"role": role, "content": text, "attachments": [{"filename": text}]} for role in roles]
    spec = {"systemPrompt": text, "modelId": text, "tools": [{"kind": "local", "name": text}, {"kind": text}]}
    return {"status": text or "active", "name": text, "agentSpec": spec, "messages": messages, "metadata": {text: text}}


MODEL = {"id": "m", "label": "", "pricing": {"inputPer1MUsd": 3, "outputPer1MUsd": 0.25}, "contextWindowTokens": 200000}
MAKERS: dict[str, Callable[[str], Any]] = {
    "result": result_of,
    "error": error_of,
    "cancelled": lambda text: MantyxRunCancelled(text or "r", reason=text),
    "snapshot": lambda text: RunSnapshot.from_wire(
        {
            "id": text or "run_1",
            "status": text or "failed",
            "finalText": text,
            "error": text,
            "failureReason": {"errorClass": text, "finishReason": text},
            "plan": plan_of(text),
            "sessionId": text,
            "metadata": {text: text},
            "createdAt": text,
        }
    ),
    "summary": lambda text: RunPage.from_wire({"runs": [run_line(text)]}).runs[0],
    "runs": lambda text: RunPage.from_wire({"runs": [run_line(text)] * 3, "nextCursor": "x", "total": 40}),
    "no runs": lambda text: RunPage.from_wire({"runs": []}),
    "foreign page": lambda text: Page(items=(text, {text: text}, 3)),
    "plan": lambda text: result_of(text).plan,
    "empty plan": lambda text: TaskPlan(),
    "sessions": lambda text: SessionPage.from_wire({"sessions": [session_line(text)] * 2}),
    "session line": lambda text: SessionPage.from_wire({"sessions": [session_line(text)]}).items[0],
    "info": lambda text: SessionInfo.from_wire(info_of(text), text or "ses_1"),
    "history": lambda text: list(SessionInfo.from_wire(info_of(text), text or "s").messages),
    "session events": lambda text: SessionEventsPage(text, tuple(events_of(text)), total=40, next_before_seq=3),
    "events": events_of,
    "catalog": lambda text: ModelCatalog.from_wire(
        {"models": [{**MODEL, "id": text or "m", "label": text, "provider": text}, MODEL], "defaultModelId": text}
    ),
    "model": lambda text: ModelCatalog.from_wire({"models": [{**MODEL, "id": text or "m", "source": text}]}).models[0],
    "models": lambda text: list(ModelCatalog.from_wire({"models": [{**MODEL, "id": text or "m"}]})),
    "eval": lambda text: EvalRunDetail.from_wire(
        {**eval_line(text), "results": [case_result(text), case_result(text, True)]}
    ),
    "case result": lambda text: EvalRunDetail.from_wire({**eval_line(text), "results": [case_result(text)]}).results[0],
    "evals": lambda text: EvalRunList.from_wire({"runs": [eval_line(text)]}),
    "comparison": lambda text: EvalRunCompare.from_wire(
        {
            "datasetId": text,
            "datasetName": text,
            "runA": eval_line(text),
            "runB": eval_line(text),
            "cases": [
                {"caseId": text, "caseName": text, "a": case_result(text, True), "b": case_result(text)},
                {"caseId": text, "caseName": text, "a": None, "b": case_result(text)},
                {"caseId": text, "caseName": text, "a": None, "b": None},
            ],
        }
    ),
    "data sets": lambda text: EvalDatasetList.from_wire(
        {"datasets": [{"id": text or "d", "name": text, "description": text, "caseCount": 3}]}
    ),
    "data set": lambda text: EvalDatasetDetail.from_wire(
        {"id": text or "d", "name": text, "description": text, "cases": [case_of(text)]}
    ),
}


@pytest.mark.parametrize("name", MAKERS)
def test_hostile_text_stays_text_in_every_view(name: str) -> None:
    for text in HOSTILE:
        read(MAKERS[name](text))


@pytest.mark.parametrize("name", MAKERS)
def test_every_view_shows_what_it_is_given(name: str) -> None:
    seen = read(MAKERS[name]("Where is order 17?")).text
    if name in ("no runs", "empty plan"):
        assert seen
    elif name == "cancelled":
        assert "Where is order 17?" in seen
    else:
        assert "Where is order 17?" in seen, seen


@pytest.mark.parametrize("name", MAKERS)
def test_no_view_is_larger_than_a_notebook_can_bear(name: str) -> None:
    text = "<&\"'>" * 200_000
    start = time.perf_counter()
    obj = MAKERS[name](text)
    built = time.perf_counter()
    assert len(html_of(obj)) < 1_500_000
    assert time.perf_counter() - built < 2.0 + (built - start)


# ------------------------------------------------------------------------------------------- bounds


def call(number: int, args: object, output: object) -> list[Any]:
    return [
        decode(
            {
                "seq": 2 * number + 1,
                "type": "local_tool_call",
                "data": {"toolUseId": f"tu_{number}", "name": "search", "args": args},
            }
        ),
        decode(
            {
                "seq": 2 * number + 2,
                "type": "local_tool_result_in",
                "data": {"toolUseId": f"tu_{number}", "output": output},
            }
        ),
    ]


def test_a_result_of_five_megabytes_says_how_much_is_not_shown() -> None:
    result = RunResult("run_1", "Done.", events=tuple(call(0, {"q": "x"}, "y" * 5_000_000)))
    shown = html_of(result)
    assert len(shown) < 60_000
    assert "4,994,000 more characters are not shown here" in Reading(shown).text


def test_a_long_answer_is_cut_and_counted() -> None:
    seen = read(RunResult("run_1", "a" * 100_000)).text
    assert "80,000 more characters are not shown here" in seen


def test_hundreds_of_tool_calls_are_counted_and_kept_small() -> None:
    events = [event for number in range(700) for event in call(number, {"n": number}, "z" * 5000)]
    seen = read(RunResult("run_1", "Done.", events=tuple(events)))
    assert seen.tags.count("details") < 110
    assert "Tool calls · 700" in seen.text
    assert "600 more calls not shown here" in seen.text
    assert len(html_of(RunResult("run_1", "Done.", events=tuple(events)))) < 600_000


def test_a_deep_or_strange_value_is_shown_without_failing() -> None:
    deep: Any = []
    for _ in range(5000):
        deep = [deep]
    loop: dict[str, Any] = {}
    loop["self"] = loop
    for value in (deep, loop, {1: object()}, b"abc", float("nan"), {("a", "b"): 1}):
        read(RunResult("run_1", "Done.", events=tuple(call(0, value, "ok"))))
        read(RunResult("run_1", "Done.", output=value))


def test_json_is_laid_out_no_further_than_it_is_shown() -> None:
    text, length = json_text({"rows": list(range(200_000))}, 500)
    assert len(text) == 500
    assert length > 1_000_000
    assert text.startswith('{\n  "rows": [\n    0,\n    1,')
    assert json_text({"a": 1}) == ('{\n  "a": 1\n}', 12)
    assert json_text("plain", 3) == ("pla", 5)


# ------------------------------------------------------------------------------------------- what is shown


def test_a_result_shows_plan_calls_durations_and_usage() -> None:
    timing = RunTiming(
        1_700_000_000.0,
        0.1,
        (0.2, 0.5),
        (),
        (ToolTiming("tu_0", "search", "local", 0.2, 0.25, 0.45, 0.5),),
        ended=61.0,
    )
    result = RunResult(
        "run_1",
        "Shipped.",
        events=tuple(call(0, {"q": "order 17"}, '{"status":"shipped"}')),
        timing=timing,
        turns=2,
        plan=TaskPlan.read(None),
    )
    seen = read(result).text
    assert "200 ms" in seen
    assert "Waited 50 ms for a free place." in seen
    assert "1 min 01 s" in seen
    assert '"status": "shipped"' in seen  # JSON in a text is opened
    assert "2023-11-14 22:13:20 UTC" in seen


def test_parsed_output_is_shown_instead_of_its_text() -> None:
    seen = read(RunResult("run_1", '{"urgency":"high"}', output={"urgency": "high"})).text
    assert '{\n  "urgency": "high"\n}' in seen
    assert "As the model wrote it" in seen


def test_a_call_that_was_turned_away_is_no_call_of_the_platform() -> None:
    refused = decode(
        {
            "seq": 1,
            "type": "tool_result",
            "data": {"toolUseId": "t", "name": "get_order", "ok": False, "summary": "over budget"},
        }
    )
    seen = read(RunResult("run_1", "x", events=(refused,))).text
    assert "platform" not in seen
    assert "over budget" in seen


def test_credentials_in_addresses_are_not_shown() -> None:
    file = {"filename": "report", "url": "https://user:sk-MARKER@example.com/x"}
    event = decode({"seq": 1, "type": "tool_files", "data": {"files": [file]}})
    shown = html_of(RunResult("run_1", "x", events=(event,)))
    assert "sk-MARKER" not in shown
    assert "report" in shown


@pytest.mark.parametrize(
    ("url", "is_link"),
    [
        ("https://example.com/a?b=c&d", True),
        ("http://example.com", True),
        ("HTTPS://EXAMPLE.COM", True),
        ("javascript:alert(1)", False),
        ("java\nscript:alert(1)", False),
        ("data:text/html,<script>", False),
        ("file:///etc/passwd", False),
        ("//example.com", False),
        ("https:", False),
        ("https://[bad", False),
        ("", False),
    ],
)
def test_only_web_addresses_become_links(url: str, is_link: bool) -> None:
    made = link(url, "text")
    assert ("<a " in made) == is_link
    if is_link:
        assert 'rel="noopener noreferrer nofollow"' in made


def test_a_broken_object_is_shown_by_its_repr() -> None:
    broken = RunResult("run_1", None)  # type: ignore[arg-type]
    assert "run_1" in read(broken).text

    class Odd(RunResult):
        def __repr__(self) -> str:
            raise RuntimeError("no")

    assert "Odd" in read(Odd("run_1", 3)).text  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "value",
    [object(), 3, "text", None, [], [1], {}, RunResult],
    ids=["object", "number", "text", "none", "empty", "list", "dict", "class"],
)
def test_other_objects_have_no_view(value: object) -> None:
    with pytest.raises(TypeError, match=r"there is no view for an? "):
        html_of(value)
    with pytest.raises(TypeError, match="there is no view"):
        page_of(value)


def test_a_page_is_a_whole_document() -> None:
    page = page_of(RunResult("run_1", "Hello"))
    assert page.startswith("<!DOCTYPE html>\n<html ")
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in page
    assert '<meta name="color-scheme" content="light dark">' in page
    assert "<title>Run result run_1</title>" in page
    assert "default-src &#39;none&#39;" in page


def test_looking_at_a_plan_loads_no_client() -> None:
    program = (
        "import sys\nfrom mantyx_sync import TaskPlan\nfrom mantyx_sync.display import html_of\nhtml_of(TaskPlan())\n"
        "assert 'requests' not in sys.modules and 'mantyx_sync.client' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


# ------------------------------------------------------------------------------------------- pieces


def test_escaping_leaves_made_html_alone_and_nothing_else() -> None:
    assert escape("<a b=\"c\" d='e'>&") == "&lt;a b=&quot;c&quot; d=&#39;e&#39;&gt;&amp;"
    assert escape(Html("<b>")) == "<b>"
    assert escape("\x00\ud800\u202e") == "\ufffd\ufffd\ufffd"
    assert escape("a\tb\nc") == "a\tb\nc"
    assert escape("abcdef", 4) == "abc…"
    assert escape(3) == "3"

    class Odd:
        def __str__(self) -> str:
            raise RuntimeError("no")

    assert escape(Odd()) == "&lt;Odd&gt;"


def test_elements_are_built_from_escaped_parts() -> None:
    assert el("p", "<", None, False, ["a", [Html("<b></b>")]], cls="x y") == '<p class="mx-x mx-y">&lt;a<b></b></p>'
    assert el("meta", name='"') == '<meta name="&quot;">'
    assert el("details", open=True, title=None, data_label="a") == '<details open data-label="a"></details>'
    assert join([1, None, "<"]) == "1&lt;"
    assert facts([("a", None)]) is None
    assert "<details" in fold("s", "b")
    assert prose("y" * 10, 4).count("y") == 4
    assert "6 more characters" in code("x" * 10, 4)
    assert Reading(fragment(el("p", "x"))).tags == ["div", "style", "p"]


def test_a_table_leaves_out_columns_without_values() -> None:
    made = table([Column("A"), Column("B", "num"), Column("C")], [("1", None, ""), (None, 2, None)])
    assert Reading(made).text == "AB12"
    assert 'data-label="B"' in made


def test_one_line_is_one_line() -> None:
    assert one_line("a\n\tb", 10) == "a b"
    assert one_line({"a": [1, None]}) == '{"a": [1, null]}'
    assert len(one_line("x" * 10_000_000, 50)) == 50
    assert one_line(object())


def test_every_rule_is_below_our_root() -> None:
    css = stylesheet()
    assert "@import" not in css
    assert "url(" not in css
    assert "</" not in css
    bare = re.sub(r"@(media|container|supports)[^{]*\{", "", css)
    for selectors in re.findall(r"([^{}]+)\{[^{}]*\}", bare):
        for selector in re.split(r",(?![^(]*\))", selectors):
            assert ".mx-root" in selector, selector
    assert css.count("{") == css.count("}")


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (duration(0), "0 ms"),
        (duration(0.0001), "under 1 ms"),
        (duration(0.3404), "340 ms"),
        (duration(0.9996), "1.0 s"),
        (duration(9.94), "9.9 s"),
        (duration(9.96), "10 s"),
        (duration(59.6), "1 min 00 s"),
        (duration(125), "2 min 05 s"),
        (duration(3600), "1 h 00 min"),
        (duration(-5), "0 ms"),
        (duration(None), ""),
        (duration(float("nan")), ""),
        (duration(float("inf")), ""),
        (amount(1), "1 byte"),
        (amount(999), "999 bytes"),
        (amount(3400), "3.4 kB"),
        (amount(999_600), "1.0 MB"),
        (amount(5_100_000_000), "5.1 GB"),
        (amount(None), None),
        (money(3), "$3.00"),
        (money(0.075), "$0.075"),
        (money(None), None),
        (percent(0.8333), "83.3 %"),
        (percent(1.0), "100 %"),
        (percent(None), None),
        (count(1234567), "1,234,567"),
        (when("2025-03-04T05:06:07Z"), "2025-03-04 05:06"),
        (when("2025-03-04T05:06:07.123456+02:00"), "2025-03-04 03:06"),
        (when("yesterday"), "yesterday"),
        (when(""), None),
        (clock(0), "1970-01-01 00:00:00 UTC"),
        (clock(1e20), ""),
    ],
)
def test_numbers_read_well(made: object, expected: object) -> None:
    assert made == expected


def test_only_a_part_of_a_conversation_says_of_how_many() -> None:
    events = tuple(events_of("x"))
    assert f"{len(events)} events." in html_of(SessionEventsPage("ses_1", events, total=len(events)))
    assert f"{len(events)} events of 40." in html_of(SessionEventsPage("ses_1", events, total=40))


def test_what_stands_side_by_side_is_parted_where_the_style_is_taken_away() -> None:
    assert join([el("span", "a"), [el("span", "b")], "c", el("b", "d")]) == ("<span>a</span> <span>b</span>c<b>d</b>")
