"""A real browser for tests: Debian's Chromium without a screen, driven by Playwright.

    with browser.page(width=390, scheme="dark") as page:
        page.goto(url)

A page that logs an error, or that throws, fails its test.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from typing import TYPE_CHECKING, Iterator, Literal

if TYPE_CHECKING:
    from playwright.sync_api import Browser as Chromium
    from playwright.sync_api import ConsoleMessage, Page

__all__ = ["SCHEMES", "WIDTHS", "Browser", "launched", "overflow"]

WIDTHS = {1280: 900, 390: 844}
"""Width to height, in CSS pixels: a desktop's window and a telephone."""
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
DEADLINE_MS = 20_000
# What Chromium asks of the world by itself is refused on a machine without one, again and again.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]


class Browser:
    """Opens pages, each with cookies and storage of its own."""

    def __init__(self, chromium: Chromium) -> None:
        self._chromium = chromium

    @contextlib.contextmanager
    def page(
        self,
        *,
        width: int = 1280,
        scheme: Literal["light", "dark"] = "light",
        may_fail: bool = False,
        reduced_motion: bool = True,
        scripts: bool = True,
    ) -> Iterator[Page]:
        """Open a page; closing the block closes it, as somebody who leaves.

        Args:
            width: In CSS pixels; one of `WIDTHS`.
            scheme: What the reader's system prefers.
            may_fail: Errors on the page's console do not fail the test.
            reduced_motion: Whether the reader's system asks for no animations; pictures are the same each time then.
            scripts: Whether the page may run any.
        """
        context = self._chromium.new_context(
            viewport={"width": width, "height": WIDTHS[width]},
            color_scheme=scheme,
            reduced_motion="reduce" if reduced_motion else "no-preference",
            device_scale_factor=2 if width < 600 else 1,
            is_mobile=width < 600,
            has_touch=width < 600,
            java_script_enabled=scripts,
        )
        context.set_default_timeout(DEADLINE_MS)
        wrong: list[str] = []

        def note(message: ConsoleMessage) -> None:
            if message.type in ("error", "warning"):
                wrong.append(f"{message.type}: {message.text}")

        try:
            page = context.new_page()
            page.on("console", note)
            page.on("pageerror", lambda error: wrong.append(f"thrown: {error}"))
            yield page
        finally:
            context.close()
        assert may_fail or not wrong, f"the page complains: {wrong}"


@contextlib.contextmanager
def launched() -> Iterator[Browser]:
    """Start the browser; leaving the block ends it."""
    from playwright.sync_api import sync_playwright

    path = os.environ.get("MANTYX_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    assert path is not None, "Chromium is not installed: tests/places/setup installs it"
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, headless=True, args=FLAGS)
        try:
            yield Browser(chromium)
        finally:
            chromium.close()


def overflow(page: Page) -> float:
    """Return by how many pixels the page is wider than its window: 0 if nobody has to scroll sideways."""
    wider: float = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return wider
