"""The chat pages of the examples, served by real web servers and used in a real browser."""

from __future__ import annotations

import http.client
import itertools
import json
import os
import re
import signal
import sys
import threading
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterator

import pytest

from mantyx_sync import MantyxClient
from mantyx_sync.local import Failure, LocalServer, Pause, ScriptedModel, Thinking, ToolUse
from mantyx_sync.local.faults import answer, hold
from mantyx_sync.local.store import Run

from .browser import SCHEMES, WIDTHS, Browser, overflow
from .servers import Served, until

if TYPE_CHECKING:
    from playwright.sync_api import Page

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
# As the examples' own words say, but for the ports.
FLASK = ("env", "PORT=0", sys.executable, str(EXAMPLES / "flask_chat" / "app.py"))
DJANGO = (sys.executable, str(EXAMPLES / "django_chat" / "manage.py"), "runserver", "--noreload", "127.0.0.1:0")
GUNICORN = (sys.executable, "-m", "gunicorn", "--preload", "--bind", "127.0.0.1:0", "--log-level", "warning")
THREADS = ("--worker-class", "gthread", "--threads", "16")
FLASK_GUNICORN = (*GUNICORN, *THREADS, "--chdir", str(EXAMPLES / "flask_chat"), "app:app")
DJANGO_GUNICORN = (*GUNICORN, *THREADS, "--chdir", str(EXAMPLES / "django_chat"), "desk.wsgi")
SERVERS = {
    "Flask's own": FLASK,
    "Django's own": DJANGO,
    "Flask, gunicorn": ("env", "CHAT_SECRET=not to be guessed", *FLASK_GUNICORN),
}
_numbers = itertools.count(1)


class Stage:
    """The platform: what the agent does for each question."""

    def __init__(self) -> None:
        self._scripts: dict[str, Any] = {}
        self.server = LocalServer(ScriptedModel(lambda request: self._scripts[request.prompt]))

    def play(self, *turns: Any, question: str = "Where is my order?") -> str:
        """Return the question that these turns answer, which nobody asked before."""
        question = f"{question} ({next(_numbers)})"
        self._scripts[question] = turns
        return question

    def run(self, question: str) -> Run:
        """Return the last run of a question."""
        return [run for run in self.server.runs if run.spec["prompt"] == question][-1]

    @contextmanager
    def held_tool_result(self) -> Iterator[None]:
        """Hold back the result of the next tool call until the block ends."""
        come = threading.Event()
        self.server.faults.add(hold(come), route="tool_results")
        try:
            yield
        finally:
            come.set()


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    stage = Stage()
    with stage.server:
        yield stage


@contextmanager
def serving(command: tuple[str, ...], stage: Stage) -> Iterator[Served]:
    with Served(command, stage.server.client_settings()) as site:
        yield site
        assert "Traceback" not in site.said, site.said


@pytest.fixture(scope="module", params=SERVERS)
def site(request: pytest.FixtureRequest, stage: Stage) -> Iterator[Served]:
    with serving(SERVERS[request.param], stage) as site:
        yield site


@pytest.fixture(scope="module")
def django(stage: Stage) -> Iterator[Served]:
    with serving(("env", "CHAT_SECRET=not to be guessed", *DJANGO_GUNICORN), stage) as site:
        yield site


@contextmanager
def opened(browser: Browser, site: Served, **how: Any) -> Iterator[Page]:
    with browser.page(**how) as page:
        go(page, site)
        yield page


def go(page: Page, site: Served) -> None:
    page.goto(f"http://127.0.0.1:{site.port}/")
    page.wait_for_selector("main[aria-busy=false]")


def ask(page: Page, question: str) -> None:
    page.fill("#text", question)
    page.press("#text", "Enter")


def expect_text(page: Page, selector: str, *texts: str) -> None:
    from playwright.sync_api import expect

    expect(page.locator(selector)).to_have_text(list(texts))


def expect_end(page: Page, state: str = "done") -> None:
    """Wait until the page says that its last exchange is over."""
    page.wait_for_selector(f".turn:last-of-type[data-state={state}]")
    page.wait_for_selector("#send:visible")


def test_an_answer_is_seen_while_it_comes(browser: Browser, site: Served, stage: Stage) -> None:
    go_on = threading.Event()
    question = stage.play(
        [Thinking("The order first."), "Let me look. ", ToolUse("get_order", {"order_id": 17})],
        ["It is ", Pause(go_on), "**on its way**."],
        question="Look up order 17, then tell me where it is.",
    )
    with opened(browser, site) as page:
        assert page.get_by_role("textbox", name="Your message").evaluate("box => box === document.activeElement")
        with stage.held_tool_result():
            page.keyboard.type(question)
            page.keyboard.press("Enter")
            page.wait_for_selector(".tool[data-state=running]")
            expect_text(page, ".tool .name", "get_order")
            expect_text(page, ".tool .brief", "order_id: 17")
            expect_text(page, ".said", question)
            expect_text(page, ".plan li .title", "Look up order 17", re.compile("Tell me where it is"))  # type: ignore[arg-type]
            assert steps(page) == ["in_progress", "pending"]
            assert not page.locator(".thinking div").is_visible()  # folded
        page.wait_for_selector(".tool[data-state=done]")
        expect_text(page, ".text", "Let me look.", "It is")
        assert steps(page) == ["done", "in_progress"]
        assert re.fullmatch(r"\d+ ms|\d+(\.\d)? s", page.inner_text(".tool .took"))
        assert page.locator("main").get_attribute("aria-busy") == "true"
        go_on.set()
        expect_end(page)
        expect_text(page, ".text", "Let me look.", "It is on its way.")
        assert page.inner_text(".text strong") == "on its way"
        assert steps(page) == ["done", "done"]
        expect_text(page, "#status", "The answer is complete")
        page.click(".tool summary")
        assert '"item": "garden hose"' in page.inner_text(".tool pre.result")
        page.click(".thinking summary")
        assert page.inner_text(".thinking div") == "The order first."
        assert overflow(page) <= 0
        again = stage.play(["Yes."], question="And is it raining?")
        ask(page, again)
        expect_text(page, ".turn:nth-of-type(2) .text", "Yes.")
        expect_end(page)
    assert stage.run(question).session_id == stage.run(again).session_id
    assert stage.run(again).conversation[1]["content"] == question  # the agent remembers


def steps(page: Page) -> list[str]:
    found: list[str] = page.eval_on_selector_all(".plan li", "steps => steps.map(step => step.dataset.status)")
    return found


def test_stop_ends_the_run_and_the_page_goes_on(browser: Browser, site: Served, stage: Stage) -> None:
    question = stage.play([ToolUse("track_parcel", {"parcel": "PX-2041"}), "One, ", Pause(threading.Event()), "two."])
    with opened(browser, site) as page:
        ask(page, question)
        expect_text(page, ".text", "One,")
        page.click("#stop")
        expect_end(page, "stopped")
        assert stage.run(question).status == "cancelled"
        assert page.inner_text(".note") == "Stopped."
        assert page.locator("[data-state=running]").count() == 0
        ask(page, stage.play(["Here I am."]))
        expect_text(page, ".text", "One,", "Here I am.")
        expect_end(page)


def test_a_reload_in_the_middle_goes_on_and_shows_everything_once(browser: Browser, site: Served, stage: Stage) -> None:
    go_on = threading.Event()
    first = stage.play(["Hello!"], question="Hello")
    second = stage.play(
        [ToolUse("get_order", {"order_id": 18})], ["It is being ", Pause(go_on), "packed."], question="Order 18?"
    )
    with opened(browser, site) as page:
        ask(page, first)
        expect_end(page)
        with stage.held_tool_result():
            ask(page, second)
            page.wait_for_selector(".tool[data-state=running]")
            page.reload()  # with nothing but the page gone, its tool goes on
            page.wait_for_selector(".tool[data-state=running]")
        expect_text(page, ".text", "Hello!", "It is being")
        page.wait_for_selector(".tool[data-state=done]")
        page.reload()
        expect_text(page, ".text", "Hello!", "It is being")
        page.wait_for_selector("#stop:visible")
        go_on.set()
        expect_end(page)
        for _ in range(2):
            expect_text(page, ".said", first, second)
            expect_text(page, ".text", "Hello!", "It is being packed.")
            expect_text(page, ".tool .name", "get_order")
            page.reload()
            expect_end(page)


def test_what_a_model_writes_stays_text(browser: Browser, django: Served, stage: Stage) -> None:
    evil = (
        '<img src=x onerror="alert(1)"> <script>alert(2)</script> **<b>bold</b>** `<i>code</i>`\n\n'
        "[here](javascript:alert(3)) [there](https://example.com/?a=1&b=2) <https://example.com>\n\n"
        "| <u>a</u> | b |\n|---|---|\n| <svg onload=alert(4)> | c |\n\n```html\n<script>alert(5)</script>\n```"
    )
    args = {"parcel": '<img src=x onerror="alert(6)">'}
    question = stage.play(
        [Thinking("<script>alert(7)</script>"), ToolUse("track_parcel", args)], [evil], question="<b>Bold?</b>"
    )
    with opened(browser, django) as page:
        page.on("dialog", lambda dialog: pytest.fail(f"a script ran: {dialog.message}"))
        ask(page, question)
        expect_end(page)
        made = page.eval_on_selector_all(
            ".turn img, .turn script, .turn b:not(.unseen), .turn i, .turn u", "all => all.length"
        )
        assert made == 0
        assert page.eval_on_selector_all(".turn [onerror], .turn [onload]", "all => all.length") == 0
        links = page.eval_on_selector_all(".turn a", "links => links.map(link => link.href)")
        assert links == ["https://example.com/?a=1&b=2", "https://example.com/"]
        assert page.inner_text(".text .code pre").strip() == "<script>alert(5)</script>"
        assert "<script>alert(2)</script>" in page.inner_text(".text p >> nth=0")
        assert page.inner_text(".said") == question
        assert "<img src=x onerror=" in page.text_content(".tool pre.args")  # type: ignore[operator]
        assert "knows no parcel <img src=x" in page.text_content(".tool pre.result")  # type: ignore[operator]


# Each is a text that a page would take seconds for, were it looked at in a careless way.
TIRING = {
    "a heading with a gap": "'# a' + ' '.repeat(9000) + 'x'",
    "a table's line with a gap": "'a|b\\n|-' + ' '.repeat(90000) + 'x'",
    "an item with a gap": "'- ' + ' '.repeat(90000) + 'x\\u2028y'",
    "backticks": "Array.from({ length: 190 }, (_, i) => '`'.repeat(i + 1)).join(' ')",
    "openings": "'[`* _a **b '.repeat(1900)",
    "fences": "'```\\n'.repeat(2000)",
    "a long list": "'- a\\n'.repeat(2000)",
    "a long table": "'a|b\\n-|-\\n' + '1|2\\n'.repeat(2000)",
    "a deep list": "Array.from({ length: 300 }, (_, i) => ' '.repeat(2 * i) + '- a').join('\\n')",
    "a long paragraph": "'word '.repeat(100000)",
}


def test_no_text_keeps_the_page_busy(browser: Browser, django: Served) -> None:
    with opened(browser, django) as page:
        slow = {}
        for name, text in TIRING.items():
            script = "import('/static/markdown.js').then(({ show }) => { const began = performance.now();"
            taken = page.evaluate(
                f"{script} show(document.createElement('div'), {text}); return performance.now() - began; }})"
            )
            if taken > 1000:
                slow[name] = taken
        assert not slow


def test_a_table_without_an_end_leaves_the_reader_time(browser: Browser, django: Served) -> None:
    with opened(browser, django) as page:
        share = page.evaluate(
            """() => import("/static/turn.js").then(async ({ Turn }) => {
              const frame = () => new Promise(requestAnimationFrame);
              const turn = new Turn("all of them");
              document.getElementById("conversation").append(turn.element);
              turn.write("text", "| a | b |\\n|---|---|\\n" + "| 1 | **2** |\\n".repeat(3000));
              await frame();
              const began = performance.now();
              let drawing = 0;
              turn.onGrowth = () => { drawing += turn.block.cost; document.body.offsetHeight; };
              while (performance.now() - began < 800) { turn.write("text", "| 3 | 4 |\\n"); await frame(); }
              return drawing / (performance.now() - began);
            })"""
        )
        assert 0 < share < 0.45, share


def test_a_text_keeps_its_form(browser: Browser, django: Served) -> None:
    with opened(browser, django) as page:

        def shown(text: str) -> str:
            made: str = page.evaluate(
                "text => import('/static/markdown.js').then(({ show }) => {"
                " const box = document.createElement('div'); show(box, text); return box.innerHTML; })",
                text,
            )
            return made.replace(' dir="auto"', "")

        assert shown("## Two ##\n#tag\nC#") == "<h4>Two</h4><p>#tag\nC#</p>"
        assert shown("``a`b`` and `c` and `d") == "<p><code>a`b</code> and <code>c</code> and `d</p>"
        assert shown("**a *b* c** _d_ snake_case_name 2*3*4") == (
            "<p><strong>a <em>b</em> c</strong> <em>d</em> snake_case_name 2*3*4</p>"
        )
        assert shown("> a\n> **b**") == "<blockquote>a\n<strong>b</strong></blockquote>"
        assert "<td>2</td>" in shown("a | b\n :-: | -\n1 | 2")
        assert shown("[x](javascript:y) [z](data:text/html,1)") == "<p>[x](javascript:y) [z](data:text/html,1)</p>"
        assert '<pre tabindex="0"><code>open **still**</code></pre>' in shown(
            "```py\nopen **still**"
        )  # it is streaming


def test_words_from_right_to_left_stand_on_the_right(browser: Browser, django: Served, stage: Stage) -> None:
    question = stage.play(
        ["\u05e9\u05dc\u05d5\u05dd **\u05e2\u05d5\u05dc\u05dd**.\n\n- \u05d0\n\nAnd English."],
        question="\u05d4\u05d0\u05dd?",
    )
    with opened(browser, django) as page:
        ask(page, question)
        expect_end(page)
        ways = page.eval_on_selector_all(".said, .text > *", "all => all.map(one => getComputedStyle(one).direction)")
        assert ways == ["rtl", "rtl", "rtl", "ltr"]


def test_two_quick_clicks_send_once_and_stop_nothing(browser: Browser, django: Served, stage: Stage) -> None:
    question = stage.play(["Here it is."])
    with opened(browser, django) as page:
        page.fill("#text", question)
        page.dblclick("#send")
        expect_end(page)
        expect_text(page, ".text", "Here it is.")
        assert page.locator(".turn").count() == 1


def test_enter_that_ends_a_composition_sends_nothing(browser: Browser, django: Served) -> None:
    with opened(browser, django) as page:
        page.fill("#text", "\u306b\u307b\u3093")
        for how in ("isComposing: true", "keyCode: 229"):  # Safari tells of it after its end
            event = f"new KeyboardEvent('keydown', {{ key: 'Enter', bubbles: true, cancelable: true, {how} }})"
            assert page.evaluate(f"document.getElementById('text').dispatchEvent({event})"), "it was taken"
        assert page.locator(".turn").count() == 0


def test_a_page_that_was_kept_shows_what_came_meanwhile(browser: Browser, django: Served, stage: Stage) -> None:
    with opened(browser, django) as page:
        ask(page, stage.play(["Hello!"]))
        expect_end(page)
        page.context.request.get(f"http://127.0.0.1:{django.port}/")
        page.evaluate("document.querySelector('.turn').remove()")  # as a page that missed it
        page.evaluate("dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true }))")
        expect_text(page, ".text", "Hello!")


def test_fingers_meet_what_they_aim_at(browser: Browser, django: Served, stage: Stage) -> None:
    question = stage.play([Thinking("Hm."), ToolUse("get_order", {"order_id": 17})], ["```text\nx\n```"])
    with opened(browser, django, width=390) as page:
        ask(page, question)
        expect_end(page)
        low = page.eval_on_selector_all(
            "button, summary, textarea",
            "all => all.filter(one => one.checkVisibility()).map(one => [one.textContent.trim() || one.id,"
            " one.getBoundingClientRect().height]).filter(([, height]) => height < 40)",
        )
        assert low == []


def test_a_page_without_scripts_says_what_it_lacks(browser: Browser, django: Served) -> None:
    with browser.page(scripts=False) as page:
        page.goto(f"http://127.0.0.1:{django.port}/")
        assert page.inner_text("main") == "This page needs JavaScript."
        assert not page.locator("#composer").is_visible()


def test_on_paper_there_is_the_conversation_alone(browser: Browser, django: Served, stage: Stage) -> None:
    with opened(browser, django, scheme="dark") as page:
        ask(page, stage.play(["Here it is."]))
        expect_end(page)
        page.emulate_media(media="print")
        assert not page.locator(".dock").is_visible()
        assert page.evaluate("getComputedStyle(document.body).color") == "rgb(24, 32, 28)"


def test_a_failed_answer_says_so_and_is_asked_for_again(browser: Browser, django: Served, stage: Stage) -> None:
    attempts = iter([["Well, ", Failure("provider.internal: quota", error_class="overloaded")], ["Here it is."]])
    question = stage.play(lambda request: next(attempts))
    with opened(browser, django) as page:
        ask(page, question)
        expect_end(page, "failed")
        assert "very busy" in page.inner_text(".notice .what")
        assert "provider.internal" not in page.content()
        page.reload()
        expect_end(page, "failed")
        page.get_by_role("button", name="Try again").click()
        expect_text(page, ".text", "Here it is.")
        expect_end(page)
        expect_text(page, ".said", question)
        assert page.locator(".notice").count() == 0


def test_a_conversation_that_has_ended_is_begun_anew(browser: Browser, django: Served, stage: Stage) -> None:
    first, second = stage.play(["Hello!"]), stage.play(["Hello again!"])
    with opened(browser, django) as page:
        ask(page, first)
        expect_end(page)
        with MantyxClient(**stage.server.client_settings()) as client:
            client.end_session(stage.run(first).session_id or "")
        ask(page, second)
        expect_end(page, "failed")
        assert "has ended" in page.inner_text(".notice .what")
        page.get_by_role("button", name="Try again").click()
        expect_text(page, ".text", "Hello!", "Hello again!")
        expect_end(page)
    assert stage.run(first).session_id != stage.run(second).session_id


def test_nothing_is_sent_before_the_conversation_is_there(browser: Browser, django: Served, stage: Stage) -> None:
    question = stage.play(["Hello!"])
    with browser.page(may_fail=True) as page:  # the refused request is on the console
        held: list[Any] = []
        page.route("**/conversation", lambda route: held.append(route))
        page.goto(f"http://127.0.0.1:{django.port}/")
        page.wait_for_selector("#text:focus")
        while not held:
            page.wait_for_timeout(10)  # lets the route be called
        ask(page, question)
        assert page.locator(".turn").count() == 0
        assert page.input_value("#text") == question
        held.pop().abort()
        page.unroute("**/conversation")
        page.get_by_role("button", name="Try again").click()  # the page could not be filled
        page.wait_for_selector("#welcome:visible")
        page.press("#text", "Enter")
        expect_text(page, ".text", "Hello!")
        expect_end(page)


def test_a_lost_connection_is_shown_and_taken_up_again(browser: Browser, django: Served, stage: Stage) -> None:
    go_on = threading.Event()
    question = stage.play(["One, ", Pause(go_on), "two."])
    # What Chromium writes to the console when a connection breaks is part of the game.
    with opened(browser, django, may_fail=True) as page:
        ask(page, question)
        expect_text(page, ".text", "One,")
        page.evaluate(
            "void new MutationObserver(([{ target }]) => { window.wasShown ||= !target.hidden; })"
            ".observe(document.getElementById('connection'), { attributes: true })"
        )
        [worker] = django.processes - {django.process.pid}
        os.kill(worker, signal.SIGKILL)
        until(lambda: page.evaluate("window.wasShown"), "the loss was shown")
        page.wait_for_selector("#connection", state="hidden")
        go_on.set()
        expect_text(page, ".text", "One, two.")
        expect_end(page)


def test_a_message_that_got_no_answer_is_said_once(browser: Browser, django: Served, stage: Stage) -> None:
    question = stage.play(["Here you are."])
    with opened(browser, django, may_fail=True) as page:
        refused = itertools.count()

        def pass_on(route: Any) -> None:
            """Lose the first message on its way there, and the answer to the second."""
            number = next(refused)
            if number == 1:
                route.fetch()
            route.abort() if number < 2 else route.continue_()

        page.route("**/messages", pass_on)
        ask(page, question)
        expect_text(page, ".text", "Here you are.")
        expect_end(page)
        expect_text(page, ".said", question)
    assert [run.spec["prompt"] for run in stage.server.runs].count(question) == 1


def test_a_second_window_follows_along(browser: Browser, django: Served, stage: Stage) -> None:
    go_on = threading.Event()
    first = stage.play(["Hello!"])
    second = stage.play(["One, ", Pause(go_on), "two."])
    with opened(browser, django) as page:
        ask(page, first)
        expect_end(page)
        other = page.context.new_page()
        go(other, django)
        expect_text(other, ".text", "Hello!")
        ask(page, second)
        expect_text(other, ".text", "Hello!", "One,")
        go_on.set()
        for each in (page, other):
            expect_end(each)
            expect_text(each, ".text", "Hello!", "One, two.")
        other.get_by_role("button", name="New conversation").click()
        other.wait_for_selector("#welcome:visible")
        other.reload()
        other.wait_for_selector("#welcome:visible")


@pytest.mark.parametrize("on_leave", ["finish", "cancel"])
def test_one_setting_says_what_leaving_does(on_leave: str, browser: Browser, stage: Stage) -> None:
    go_on = threading.Event()
    question = stage.play(["One, ", ToolUse("get_order", {"order_id": 17}), Pause(go_on)], ["two."])
    with serving(("env", f"CHAT_ON_LEAVE={on_leave}", *FLASK_GUNICORN), stage) as site:
        with opened(browser, site) as page:
            ask(page, question)
            expect_text(page, ".text", "One,")
        run = stage.run(question)
        if on_leave == "finish":
            go_on.set()
        until(lambda: run.is_terminal, "the run is over")
        assert run.status == ("succeeded" if on_leave == "finish" else "cancelled")
        assert run.final_text == ("two." if on_leave == "finish" else None)


def test_the_reader_is_not_dragged_along(browser: Browser, django: Served, stage: Stage) -> None:
    go_on = threading.Event()
    lines = [f"{number}. line\n" for number in range(1, 80)]
    question = stage.play(["".join(lines), Pause(go_on), "".join(lines)])
    with opened(browser, django) as page:
        ask(page, question)
        page.wait_for_selector(".text li >> nth=78")

        def below() -> float:
            found: float = page.evaluate("document.documentElement.scrollHeight - innerHeight - scrollY")
            return found

        until(lambda: below() < 2, "scrolled along with the text")
        page.mouse.move(600, 400)
        page.mouse.wheel(0, -400)
        until(lambda: below() > 300, "scrolled up")
        before = page.evaluate("scrollY")
        go_on.set()
        expect_end(page)
        assert page.evaluate("scrollY") == before
        page.get_by_role("button", name="Latest").click()
        until(lambda: below() < 2, "scrolled down")


def test_keys_do_what_is_expected_of_them(browser: Browser, django: Served, stage: Stage) -> None:
    with opened(browser, django) as page:
        low = page.locator("#text").bounding_box()
        assert page.locator("#send").is_disabled()
        page.keyboard.type("One")
        page.keyboard.press("Shift+Enter")
        page.keyboard.type("two")
        assert page.input_value("#text") == "One\ntwo"
        high = page.locator("#text").bounding_box()
        assert low is not None
        assert high is not None
        assert high["height"] > low["height"]
        assert page.locator(".turn").count() == 0
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.id") == "send"


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_it_fits_and_can_be_looked_at(
    width: int, scheme: Any, browser: Browser, django: Served, stage: Stage, pictures: Path
) -> None:
    answer = (
        "Order 17 is **with the courier** and comes tomorrow before noon. [Follow it](https://example.com/PX-2041).\n\n"
        "| Day | Place | Note |\n|---|---|---|\n| Monday | Shop | picked up |\n| Tuesday | Depot in the north of town "
        "| sorted, on the van of the early round |\n\n- Be at home, or\n- leave a note with `order 17` on it:\n\n"
        "```text\nPlease leave the garden hose, which is 25 m long and heavy, with the neighbours at number nine.\n```"
    )
    with browser.page(width=width, scheme=scheme) as page:

        def picture(name: str) -> None:
            assert overflow(page) <= 0
            page.screenshot(path=pictures / f"{name}.png")

        go(page, django)
        picture("empty")
        middle = threading.Event()
        question = stage.play(
            [Thinking("The order, then its parcel."), "Let me look both up.", ToolUse("get_order", {"order_id": 17}),
             ToolUse("track_parcel", {"parcel": "PX-2041"})],
            [Pause(middle), answer],
            question="Look up order 17, then track parcel PX-2041, then sum it up.",
        )  # fmt: skip
        ask(page, question)
        page.wait_for_selector(".tool[data-state=done]")
        page.wait_for_selector(".tool[data-state=running]")
        picture("in the middle")
        middle.set()
        expect_end(page)
        picture("finished")
        ask(page, stage.play(["Order 99 ", Failure(error_class="overloaded")], question="And order 99?"))
        expect_end(page, "failed")
        picture("failed")
        ask(page, stage.play(["The cold frame is ", Pause(threading.Event())], question="And order 19?"))
        page.wait_for_selector(".turn:last-of-type .text:has-text('The cold frame is')")
        page.click("#stop")
        expect_end(page, "stopped")
        picture("stopped")


def requested(site: Served, method: str, path: str, body: str | None = None, **headers: str) -> Any:
    with closing(http.client.HTTPConnection("127.0.0.1", site.port, timeout=20)) as connection:
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        got = connection.getresponse()
        return got.status, got.headers, got.read()


def test_conversations_are_their_browsers_own(browser: Browser, site: Served, stage: Stage) -> None:
    question = stage.play(["A secret."])
    with opened(browser, site) as page:
        ask(page, question)
        expect_end(page)
        [cookie] = [cookie for cookie in page.context.cookies() if cookie.get("name") == "chat"]
    assert cookie.get("httpOnly")
    assert cookie.get("sameSite") == "Lax"
    value = cookie.get("value", "")
    run = stage.run(question)

    def told(cookie: str) -> bytes:
        place = f"{run.id}/0"
        answers = [
            requested(site, "GET", "/conversation", Cookie=f"chat={cookie}"),
            requested(site, "GET", "/events", Cookie=f"chat={cookie}", Last_Event_ID=place),
        ]
        return b"".join(answer[2] for answer in answers)

    assert b"A secret." in told(value)
    others = {"limit": 10, "runs": [{**run.to_summary(), "metadata": {"chat": "ses_other", "turn": "0"}}]}
    stage.server.faults.add(answer(200, others), route="list")  # as of a server that does not know the filter
    assert requested(site, "GET", "/events", Cookie=f"chat={value}")[0] == 400
    assert b"A secret." not in told("")
    assert b"A secret." not in told(run.session_id or "")
    assert b"A secret." not in told(value[:-10] + ("A" if value[-10] != "A" else "B") + value[-9:])


def test_other_sites_cannot_post(site: Served, stage: Stage) -> None:
    before = len(stage.server.sessions)
    body = json.dumps({"text": "Hello", "id": "1"})
    status, _, _ = requested(site, "POST", "/messages", body, Content_Type="text/plain")
    assert status in (403, 415)
    assert len(stage.server.sessions) == before


def test_what_is_no_message_is_refused(site: Served, stage: Stage) -> None:
    _, headers, _ = requested(site, "GET", "/")
    token = re.search("csrftoken=([^;]*)", headers.get("Set-Cookie", ""))
    sent = {"Content_Type": "application/json"}
    if token is not None:
        sent.update(Cookie=token[0], X_CSRFToken=token[1])
    before = len(stage.server.sessions)
    bodies = ["", "[]", "{", '{"text": " ", "id": "1"}', '{"text": 1, "id": "1"}', '{"text": "x"}', "[" * 60_000]
    for body in [*bodies, *(json.dumps({"text": "x", "id": name}) for name in ("", "a\r\nb", "\u00fc", "x" * 65))]:
        status, _, answer = requested(site, "POST", "/messages", body, **sent)
        assert status == 400, (body[:80], answer)
        assert json.loads(answer)["code"] == "invalid_message"
    status, _, _ = requested(site, "POST", "/messages", json.dumps({"text": "x" * 70_000, "id": "1"}), **sent)
    assert status == 413  # before it is read
    assert len(stage.server.sessions) == before


def test_every_answer_has_the_headers_that_protect_it(site: Served, stage: Stage) -> None:
    asked = ["GET /", "HEAD /", "GET /conversation", "GET /static/chat.js", "GET /events", "GET /messages"]
    statuses = []
    for what in [*asked, "POST /messages", "GET /nowhere", "GET /static/nothing.js"]:
        method, path = what.split()
        status, headers, _ = requested(site, method, path)
        statuses.append(status)
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';"), (path, policy)
        assert "frame-ancestors 'none'" in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert "no-cache" in headers["Cache-Control"], path
    assert statuses[:6] == [200, 200, 200, 200, 400, 405]
    assert statuses[6] in (403, 415)
    assert statuses[7:] == [404, 404]
