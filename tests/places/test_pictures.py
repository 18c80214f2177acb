"""What is shown of real runs, in a real browser: readable, in its box, nothing on top of anything, untouched by a page.

With `MANTYX_PICTURES=folder` the pictures stay there, to be looked at.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator

import pytest

from mantyx_sync import (
    MantyxClient,
    MantyxError,
    MantyxRunError,
    RunResult,
    ToolError,
    tool,
)
from mantyx_sync.display import Timeline, html_of, page_of
from mantyx_sync.local import LocalServer, ModelFailure, ModelRequest, Text, Thinking, ToolUse, TurnEnd, Usage, Verdict
from tests.places.browser import SCHEMES, WIDTHS, overflow
from tests.test_display_timeline import called, event, run_of

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.places.browser import Browser

Turn = Callable[[], Iterable[Any]]


@tool(read_only=True)
def get_order(order_id: str) -> dict[str, Any]:
    """Look up one order.

    Args:
        order_id: The number printed on the receipt.
    """
    return {"order_id": order_id, "status": "shipped", "items": [{"sku": "A-114", "quantity": 2}] * 3}


@tool(read_only=True)
def track_parcel(carrier: str, parcel: str) -> str:
    """Tell where a parcel is."""
    return f"{carrier} {parcel}: left the depot at 06:12, expected between 14:00 and 16:00."


@tool(read_only=True)
def start_a_refund_for_the_customer(order_id: str, cents: int) -> str:
    """Pay back."""
    raise ToolError(f"order {order_id} is not paid for yet, so {cents} cents cannot be paid back")


def words(text: str) -> Iterator[Text]:
    for word in text.split(" "):
        yield Text(word + " ")


def looking() -> Iterator[Any]:
    yield Thinking("The customer asks for two things: where the order is, and the money back.")
    yield from words("I will look both orders up.")
    yield ToolUse("get_order", {"order_id": "17"})
    yield ToolUse("get_order", {"order_id": "18"})
    yield TurnEnd("tool_use", Usage(812, 64, 300, 20))


def acting() -> Iterator[Any]:
    yield from words("Order 17 has left the warehouse. Let me see where the parcel is.")
    yield ToolUse("track_parcel", {"carrier": "Post", "parcel": "3SABCD" + "1234567" * 12})
    yield ToolUse("start_a_refund_for_the_customer", {"order_id": "17", "cents": 4500})
    yield ToolUse("get_order", {"order_id": "17"})
    yield ToolUse("get_order", {"order_id": "18"})
    yield TurnEnd("tool_use", Usage(1204, 88, 812))


def answering() -> Iterator[Any]:
    yield from words(
        "Order 17 has been shipped and is expected between 14:00 and 16:00.\n\nA refund is not possible yet: the order "
        "has not been paid for. https://example.com/" + "a-long-address-without-a-break/" * 6
    )
    yield TurnEnd("end_turn", Usage(1620, 140, 1204))


def ticket() -> Iterator[Any]:
    yield Text('{"summary": "The parcel of order 17 is late", "urgency": "high", "order_ids": ["17", "18"]}')
    yield TurnEnd("end_turn", Usage(100, 30))


def failing() -> Iterator[Any]:
    yield from words("Order 17 has been shipped with")
    raise ModelFailure(
        "The provider answered 529: overloaded, try again in a while.",
        error_class="rate_limit",
        retryable=True,
        api_status=529,
        api_code="overloaded_error",
    )


class Playing:
    """A model that plays the turns it is told to."""

    model_id = "anthropic:large"

    def __init__(self, *turns: Turn) -> None:
        self.turns = turns

    def complete(self, request: ModelRequest) -> Iterable[Any]:
        return self.turns[min(request.turn, len(self.turns) - 1)]()


@dataclass
class Ticket:
    summary: str
    urgency: str
    order_ids: list[str]


MODELS: list[dict[str, Any]] = [
    {
        "id": "anthropic:large",
        "label": "Large",
        "provider": "anthropic",
        "vendorModelId": "large-2025",
        "contextWindowTokens": 200000,
        "pricing": {"inputPer1MUsd": 3, "outputPer1MUsd": 15, "cacheReadPer1MUsd": 0.3},
    },
    {"id": "openai:small", "label": "Small", "provider": "openai", "contextWindowTokens": 128000},
    {"id": "local:" + "a-model-with-a-long-name-" * 3, "label": "", "provider": "local"},
]
DATASET: dict[str, Any] = {
    "id": "ds_support",
    "name": "Support letters",
    "description": "Letters that customers wrote, with what a good answer says.",
    "cases": [
        {"id": "c1", "name": "Where is it?", "input": "Where?", "scorers": [{"type": "contains", "value": "shipped"}]},
        {"id": "c2", "name": "Refund", "input": "Money!", "scorers": [{"type": "contains", "value": "Sorry"}]},
    ],
}
TOOLS = [get_order, track_parcel, start_a_refund_for_the_customer]
SPEC: dict[str, Any] = {"system_prompt": "You help customers.", "tools": TOOLS}
ASKED = "Where is order 17, and can I have my money back? Compare with order 18."


def failure_of(call: Callable[[], object]) -> MantyxRunError:
    try:
        call()
    except MantyxRunError as error:
        return error
    raise AssertionError("the run did not fail")


def crowded() -> RunResult:
    """A run of an hour with many calls; nobody waits for a real one."""
    timed: list[Any] = []
    for n in range(200):
        at = (n * 37) % 180 * 20.0
        timed += called(n, f"tool_with_a_long_name_{n % 9}", at, at + 15 + n % 60, "boom" if n % 13 == 0 else None)
    for n in range(24):
        timed.append((n * 150.0, event("tool_budget_exceeded", tool="x", maxCalls=1, callIndex=n)))
        timed.append((n * 150.0 + 9, event("supervisor", action="on_track", reason="fine")))
    return run_of(timed, total=3700.0)


@pytest.fixture(scope="module")
def shown() -> dict[str, str]:
    """Views of what real runs left behind, as whole pages."""
    playing = Playing(looking, acting, answering)
    server = LocalServer(
        playing,
        models=MODELS,
        other_models={"openai:small": Playing(ticket)},
        judge=lambda review: Verdict("redirect", "The refund cannot succeed.", "Answer with what you know."),
        eval_datasets=[DATASET],
    )
    with server, MantyxClient(**server.client_settings()) as client:
        plan = {"steps": ["Look up the orders", "Track the parcel", "Write the answer"], "brief": "Parcel, then money."}
        result = client.run_agent(
            prompt=ASKED,
            plan=plan,
            tool_budgets={"get_order": {"maxCalls": 3}},
            supervisor=True,
            reasoning_level="high",
            metadata={"customer": "acme"},
            **SPEC,
        )
        made: dict[str, Any] = {
            "result": result,
            "timeline": result.timeline(),
            "crowded": Timeline.of(crowded()),
            "plan": result.plan,
            "structured": client.run_agent(
                system_prompt="x", prompt="sort", model_id="openai:small", output_type=Ticket
            ),
            "snapshot": client.get_run(result.run_id),
            "catalog": client.list_models(),
        }
        made["model"] = made["catalog"].models[0]
        run = client.start_agent(prompt=ASKED, **SPEC)
        run.cancel()
        made["cancelled"] = failure_of(run.result)
        made["run"] = run
        playing.turns = (looking, failing)
        made["error"] = failure_of(lambda: client.run_agent(prompt=ASKED, **SPEC))
        made["failed timeline"] = made["error"].timeline()
        playing.turns = (looking, acting, answering)
        session = client.create_session(metadata={"customer": "acme"}, **SPEC)
        session.send(ASKED)
        session.send("And order 18?")
        made.update(session=session, info=session.info(), history=session.history(), events=session.events_page())
        made.update(runs=client.list_runs(include_total=True), sessions=client.list_sessions())
        made["summary"] = made["runs"].items[-1]
        made["eval"] = client.run_eval(dataset_id="ds_support", agent={"system_prompt": "x"}, tools=TOOLS, timeout=60)
        playing.turns = (lambda: [Text("Sorry, no refund."), TurnEnd("end_turn")],)
        other = client.run_eval(dataset_id="ds_support", agent={"system_prompt": "x"}, tools=TOOLS, timeout=60)
        made["comparison"] = client.compare_eval_runs(made["eval"].id, other.id)
        made.update(evals=client.list_eval_runs(), datasets=client.list_eval_datasets())
        made["dataset"] = client.get_eval_dataset("ds_support")
        pages = {name: page_of(one) for name, one in made.items()}
        session.close()
    return pages


# ------------------------------------------------------------------------------------------- what is looked for

# Text whose colour stands out too little from what is behind it; what nobody sees does not count.
FAINT = """
() => {
  const parse = (value) => {
    const found = value.match(/rgba?\\(([^)]+)\\)/);
    if (!found) return [0, 0, 0, 0];
    const [r, g, b, a] = found[1].split(/[ ,/]+/).map(Number);
    return [r, g, b, a === undefined ? 1 : a];
  };
  const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3])).concat([1]);
  const light = (colour) => {
    const [r, g, b] = colour.slice(0, 3).map((v) => v / 255)
      .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) layers.push(parse(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 1]);
  };
  const faint = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let seen = 0;
  while (walker.nextNode()) {
    const node = walker.currentNode;
    const element = node.parentElement;
    if (!node.data.trim() || ["STYLE", "TITLE", "title", "desc"].includes(element.tagName)) continue;
    if (!element.checkVisibility()) continue;
    const style = getComputedStyle(element);
    const isDrawn = element.namespaceURI.endsWith("svg");
    let ground = behind(element);
    if (isDrawn && element.classList.contains("mx-t-inside")) {
      const box = element.getBoundingClientRect();
      const x = box.x + box.width / 2, y = box.y + box.height / 2;
      const bars = [...element.ownerSVGElement.querySelectorAll("rect")].filter((bar) => {
        const own = bar.getBoundingClientRect();
        return own.left <= x && own.right >= x && own.top <= y && own.bottom >= y;
      });
      if (bars.length) ground = parse(getComputedStyle(bars[bars.length - 1]).fill);
    }
    const ink = over(parse(isDrawn ? style.fill : style.color), ground);
    const [high, low] = [light(ink), light(ground)].sort((a, b) => b - a);
    const contrast = (high + 0.05) / (low + 0.05);
    seen += 1;
    if (contrast < 4.5) faint.push(`${node.data.trim().slice(0, 40)}: ${contrast.toFixed(2)}`);
  }
  return seen ? faint : ["there is no text"];
}
"""

# Elements that stick out of their card, where nothing clips or scrolls them.
OUTSIDE = """
() => [...document.querySelectorAll(".mx-card")].flatMap((card) => {
  const edge = card.getBoundingClientRect();
  return [...card.querySelectorAll("*")].filter((one) => {
    if (one.closest(".mx-scroll, .mx-code, .mx-one, .mx-ident, .mx-badge, svg")) return false;
    const box = one.getBoundingClientRect();
    return box.width && (box.right > edge.right + 0.5 || box.left < edge.left - 0.5);
  }).map((one) => `${one.tagName}.${one.className}: ${one.textContent.slice(0, 40)}`);
})
"""

# Texts of a drawing that stand on each other, or that are too small to be read.
COLLIDING = """
() => {
  const found = [];
  for (const svg of document.querySelectorAll("svg")) {
    if (!svg.checkVisibility()) continue;
    const texts = [...svg.querySelectorAll("text")].map((text) => {
      const range = document.createRange();
      const words = [...text.childNodes].find((node) => node.nodeType === 3);
      range.selectNodeContents(words);
      return [words.data, range.getBoundingClientRect()];
    });
    const frame = svg.getBoundingClientRect();
    texts.forEach(([words, box], i) => {
      if (box.left < frame.left - 1 || box.right > frame.right + 1) found.push(`${words} sticks out`);
      if (box.height < 11.5) found.push(`${words} is ${box.height} pixels high`);
      for (const [other, that] of texts.slice(i + 1)) {
        const wide = Math.min(box.right, that.right) - Math.max(box.left, that.left);
        const high = Math.min(box.bottom, that.bottom) - Math.max(box.top, that.top);
        if (wide > 0.5 && high > 4) found.push(`${words} on ${other}`);
      }
    });
  }
  return found;
}
"""
OPEN_ALL = "() => document.querySelectorAll('details').forEach((one) => { one.open = true; })"


def look(page: Page, name: str) -> None:
    assert overflow(page) == 0, name
    assert page.evaluate(FAINT) == [], name
    assert page.evaluate(OUTSIDE) == [], name
    assert page.evaluate(COLLIDING) == [], name


def keep(page: Page, path: Path) -> None:
    """Take a picture if somebody is to look at it: it takes longer than all else."""
    if os.environ.get("MANTYX_PICTURES"):
        # A drawing has no document that could be measured as a whole.
        page.screenshot(path=path, full_page=page.evaluate("() => document.contentType === 'text/html'"))


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_every_view_is_readable_and_stays_in_its_box(
    browser: Browser, shown: dict[str, str], pictures: Path, width: int, scheme: Any
) -> None:
    with browser.page(width=width, scheme=scheme) as page:
        for name, html in shown.items():
            page.set_content(html)
            look(page, name)
            keep(page, pictures / f"{name}.png")
            page.evaluate(OPEN_ALL)
            look(page, f"{name}, opened")
            keep(page, pictures / f"{name} opened.png")


def test_a_click_opens_a_tool_call(browser: Browser, shown: dict[str, str]) -> None:
    with browser.page() as page:
        page.set_content(shown["result"])
        result = page.get_by_text('"status": "shipped"').first
        assert not result.is_visible()
        page.locator("summary", has_text="get_order").first.click()
        assert result.is_visible()
        page.keyboard.press("Enter")  # the keyboard closes it again
        assert not result.is_visible()


@pytest.mark.parametrize("width", WIDTHS)
def test_one_picture_of_a_timeline_is_there_for_each_width(browser: Browser, shown: dict[str, str], width: int) -> None:
    with browser.page(width=width) as page:
        page.set_content(shown["timeline"])
        assert [one.is_visible() for one in page.locator("svg").all()].count(True) == 1
        # A narrow cell in a wide window has the narrow one: its own room counts.
        page.evaluate("() => { document.body.style.width = '360px'; }")
        assert page.locator("svg.mx-small-one").is_visible()
        assert page.evaluate(COLLIDING) == []


def test_a_standalone_svg_is_drawn(browser: Browser, tmp_path: Path, pictures: Path) -> None:
    (tmp_path / "run.svg").write_text(Timeline.of(crowded()).svg, encoding="utf-8")
    for scheme in SCHEMES:
        with browser.page(scheme=scheme) as page:
            page.goto((tmp_path / "run.svg").as_uri())
            ground = page.evaluate("() => getComputedStyle(document.querySelector('.mx-ground')).fill")
            assert ground == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(23, 25, 29)")
            assert page.locator("text").first.bounding_box() is not None
            keep(page, pictures / f"svg {scheme}.png")


# ------------------------------------------------------------------------------------------- inside a notebook

# What notebooks, and pages around them, say of the elements we use.
NOTEBOOK = """
<style>
  body { font: 13px/1.2 serif; letter-spacing: 2px; text-align: center; text-transform: uppercase; color: gold; }
  .output table { border: none; font-size: 9px; table-layout: fixed; margin: 1em auto; }
  .output td, .output th { text-align: right; padding: 0.5em; border: 3px solid red; max-width: none; }
  .output tbody tr:nth-child(odd) { background: #f5f5f5; }
  .output tr, .output td, .output th { vertical-align: middle; padding: 1em; white-space: normal; }
  .output pre, .output code { background: black; color: lime; font-size: 30px; overflow: hidden; }
  .output ol, .output ul { padding-left: 4em; list-style: square; }
  .output div { margin: 3px; padding: 7px; }
  .output span, .output dt, .output dd { font-style: italic; font-weight: 900; }
  .output details > summary { display: none; }
  .output a { color: red; }
  dl { display: grid; grid-template-columns: 1fr 1fr; }
</style>
"""
# What notebooks leave of a view that nobody vouches for: no style, no drawing but its words, a few attributes.
UNTRUSTED = """
() => {
  document.querySelectorAll("style").forEach((one) => one.remove());
  document.querySelectorAll("svg").forEach((one) => one.replaceWith(one.textContent));
  document.querySelectorAll("[role], [aria-label]").forEach((one) => {
    one.removeAttribute("role"); one.removeAttribute("aria-label");
  });
}
"""
MEASURE = """
(root) => [...document.querySelector(root).querySelectorAll("*:not(style, title, desc)")]
  .filter((one) => one.checkVisibility()).map((one) => {
  const box = one.getBoundingClientRect(), own = document.querySelector(root).getBoundingClientRect();
  const style = getComputedStyle(one);
  return [one.tagName, Math.round(box.x - own.x), Math.round(box.y - own.y), Math.round(box.width),
    Math.round(box.height), style.color, style.backgroundColor, style.fontSize, style.fontWeight, style.fontStyle,
    style.letterSpacing, style.textAlign, style.textTransform, style.display].join(" ");
})
"""


def cell(html: str, around: str = "", attributes: str = "") -> str:
    return (
        f"<!DOCTYPE html><html><head><meta charset='utf-8'>{around}</head><body {attributes}>"
        f"<table id='theirs'><tbody><tr><td>theirs</td></tr></tbody></table>"
        f"<div class='output' style='width: 900px; padding: 0; margin: 0'>{html}</div></body></html>"
    )


@pytest.fixture(scope="module")
def fragments() -> dict[str, str]:
    from tests.test_display_html import MAKERS

    made = {name: html_of(make("Where is order 17?")) for name, make in MAKERS.items()}
    return {**made, "timeline": html_of(Timeline.of(crowded()))}


def test_a_notebooks_own_style_does_not_reach_into_a_view(
    browser: Browser, fragments: dict[str, str], pictures: Path
) -> None:
    with browser.page() as page:
        for name, html in fragments.items():
            page.set_content(cell(html))
            page.evaluate(OPEN_ALL)
            alone = page.evaluate(MEASURE, ".mx-root")
            page.set_content(cell(html, NOTEBOOK))
            page.evaluate(OPEN_ALL)
            assert page.evaluate(MEASURE, ".mx-root") == alone, name
            keep(page, pictures / f"{name}.png")


def test_our_style_does_not_reach_out_of_a_view(browser: Browser, fragments: dict[str, str]) -> None:
    with browser.page() as page:
        page.set_content(cell("", NOTEBOOK))
        before = page.evaluate(MEASURE, "#theirs")
        for html in fragments.values():
            page.set_content(cell(html, NOTEBOOK))
            assert page.evaluate(MEASURE, "#theirs") == before


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(
    ("attributes", "theme"),
    [
        ('data-jp-theme-light="false"', "dark"),
        ('data-jp-theme-light="true"', "light"),
        ('class="vscode-dark"', "dark"),
        ('class="vscode-high-contrast"', "dark"),
        ('class="vscode-light"', "light"),
        ('theme="dark"', "dark"),
        ('data-theme="dark"', "dark"),
        ("", ""),
    ],
    ids=["lab dark", "lab light", "code dark", "code contrast", "code light", "colab dark", "sphinx dark", "none"],
)
def test_a_notebooks_theme_outweighs_the_machines(
    browser: Browser, fragments: dict[str, str], scheme: Any, attributes: str, theme: str
) -> None:
    with browser.page(scheme=scheme) as page:
        page.set_content(cell(fragments["result"], attributes=attributes))
        ground = page.evaluate("() => getComputedStyle(document.querySelector('.mx-card')).backgroundColor")
        assert ground == ("rgb(255, 255, 255)" if (theme or scheme) == "light" else "rgb(23, 25, 29)")
        assert page.evaluate("() => getComputedStyle(document.querySelector('.mx-root')).colorScheme") == (
            theme or scheme
        )
        page.evaluate("() => document.querySelector('#theirs').remove()")
        assert page.evaluate(FAINT) == []


def test_a_view_without_its_style_can_still_be_read(browser: Browser, fragments: dict[str, str]) -> None:
    with browser.page() as page:
        page.set_content(cell(fragments["result"]))
        page.evaluate(UNTRUSTED)
        assert page.get_by_text("Where is order 17?").first.is_visible()
        shown = page.inner_text(".output")
        assert "succeeded Run Where is order 17?\n" in shown
        assert "\n✓ Where is order 17? {" in shown  # a call's sign, name and arguments
        page.set_content(cell(fragments["timeline"]))
        drawn, plain = page.locator(".mx-drawn"), page.locator(".mx-plain")
        assert (drawn.is_visible(), plain.is_visible()) == (True, False)
        page.evaluate(UNTRUSTED)
        assert (drawn.is_visible(), plain.is_visible()) == (False, True)
        assert "x failed tool" in plain.inner_text()


def test_five_megabytes_of_results_do_not_stop_the_browser(browser: Browser) -> None:
    timed: list[Any] = []
    for n in range(300):
        timed += called(n, "search", n / 100, n / 100 + 0.1)
    result = run_of([(at, {**one, "data": {**one["data"], "output": "y" * 20_000}}) for at, one in timed])
    start = time.monotonic()
    with browser.page() as page:
        page.set_content(cell(html_of(result)))
        page.evaluate(OPEN_ALL)
        assert page.locator("details").count() > 50
    assert time.monotonic() - start < 10.0


def test_looking_at_what_is_gone_raises_nothing() -> None:
    server = LocalServer()
    with server, MantyxClient(**server.client_settings()) as client:
        session = client.create_session(system_prompt="x")
        run = client.start_agent(system_prompt="x", prompt="y")
        run.result()
    for one in (session, run, run.result()):
        assert "mx-card" in html_of(one)
    with pytest.raises(MantyxError):
        session.info()
