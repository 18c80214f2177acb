"""The one stylesheet of what we show in notebooks and pages: light and dark, wide and narrow."""

from __future__ import annotations

import functools
import re

__all__ = ["PREFIX", "stylesheet"]

PREFIX = "mx-"
"""What every class of ours begins with."""

# Text on any of these backgrounds keeps a contrast of at least 4.5 to 1.
_LIGHT = """
--mx-scheme: light; --mx-bg: #ffffff; --mx-panel: #f5f6f8; --mx-line: #dde1e7; --mx-text: #1c2025; --mx-soft: #58616c;
--mx-accent: #2f4fc4; --mx-accent-bg: #e9eeff; --mx-good: #12652f; --mx-good-bg: #e5f4ea;
--mx-warn: #774b00; --mx-warn-bg: #fff2d4; --mx-bad: #a5190f; --mx-bad-bg: #fdebe9;
--mx-bar-turn: #a9b8ee; --mx-bar-text: #5f7be0; --mx-bar-think: #b593df; --mx-bar-run: #2f9e73; --mx-bar-wait: #b4bbc6;
--mx-bar-post: #8fd0b5; --mx-bar-bad: #cf4438;
"""
_DARK = """
--mx-scheme: dark; --mx-bg: #17191d; --mx-panel: #202329; --mx-line: #363b45; --mx-text: #e7e9ec; --mx-soft: #a7afba;
--mx-accent: #9db2ff; --mx-accent-bg: #232c4a; --mx-good: #7ad796; --mx-good-bg: #16321f;
--mx-warn: #e8bb55; --mx-warn-bg: #362b10; --mx-bad: #ff9d94; --mx-bad-bg: #3e1d1b;
--mx-bar-turn: #4a5890; --mx-bar-text: #6f8bf2; --mx-bar-think: #8a6cbd; --mx-bar-run: #38a87d; --mx-bar-wait: #626a77;
--mx-bar-post: #2a6f56; --mx-bar-bad: #e0584c;
"""
# A notebook's own theme outweighs what the machine prefers. JupyterLab and nbconvert; VS Code; Colab; Sphinx.
_LIGHT_PLACES = ('[data-jp-theme-light="true"]', ".vscode-light", ".vscode-high-contrast-light", "[theme=light]")
_DARK_PLACES = (
    '[data-jp-theme-light="false"]',
    ".vscode-dark",
    ".vscode-high-contrast:not(.vscode-high-contrast-light)",
    "[theme=dark]",
    '[data-theme="dark"]',
)

# Each rule is scoped by `_scoped`, so that none can reach what is not ours. No comma inside a selector.
_RULES = """
& {
  all: initial; color-scheme: var(--mx-scheme);
  display: block; box-sizing: border-box; max-width: 1040px; margin: 4px 0; container: mx / inline-size;
  contain-intrinsic-inline-size: 300px; background: none; color: var(--mx-text); font: 14px/1.5 system-ui,
  -apple-system, "Segoe UI", Roboto, "Noto Sans", "Helvetica Neue", Arial, sans-serif; text-align: start;
  overflow-wrap: anywhere;
}
* { box-sizing: border-box; }
style { display: none; }
.mx-card {
  display: flex; flex-direction: column; gap: 14px; background: var(--mx-bg); border: 1px solid var(--mx-line);
  border-radius: 10px; padding: 16px 18px;
}
.mx-card > *, .mx-section > *, .mx-inside > * { min-width: 0; max-width: 100%; }
.mx-card + .mx-card { margin-top: 12px; }
.mx-head { display: flex; flex-wrap: wrap; align-items: baseline; gap: 4px 10px; }
.mx-title { font-size: 15px; font-weight: 650; }
.mx-id { font-family: var(--mx-mono); font-size: 12.5px; color: var(--mx-soft); }
.mx-soft { color: var(--mx-soft); }
.mx-small { font-size: 12.5px; }
.mx-strong { font-weight: 600; }
.mx-mono { font-family: var(--mx-mono); font-size: 12.5px; }
.mx-one { flex: 0 1 auto; min-width: 0; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.mx-grow { flex: 1 1 auto; min-width: 0; }
.mx-one.mx-grow { flex: 1 1 0; }
.mx-tight { flex: none; white-space: nowrap; }
.mx-end { margin-inline-start: auto; }
.mx-badge {
  display: inline-block; padding: 1px 8px; border-radius: 999px; font-size: 12px; font-weight: 600; line-height:
  18px; white-space: nowrap; max-width: 100%; overflow: hidden; text-overflow: ellipsis; vertical-align: baseline;
  color: var(--mx-soft); background: var(--mx-panel); border: 1px solid var(--mx-line);
}
.mx-badge.mx-good { color: var(--mx-good); background: var(--mx-good-bg); border-color: transparent; }
.mx-badge.mx-warn { color: var(--mx-warn); background: var(--mx-warn-bg); border-color: transparent; }
.mx-badge.mx-bad { color: var(--mx-bad); background: var(--mx-bad-bg); border-color: transparent; }
.mx-badge.mx-accent { color: var(--mx-accent); background: var(--mx-accent-bg); border-color: transparent; }
.mx-good { color: var(--mx-good); }
.mx-warn { color: var(--mx-warn); }
.mx-bad { color: var(--mx-bad); }
.mx-accent { color: var(--mx-accent); }
.mx-facts { display: flex; flex-wrap: wrap; gap: 4px 20px; margin: 0; padding: 0; }
.mx-fact { display: flex; flex-wrap: wrap; gap: 0 6px; font-size: 12.5px; }
.mx-fact dt { color: var(--mx-soft); font-weight: 400; margin: 0; }
.mx-fact dd { margin: 0; font-variant-numeric: tabular-nums; }
.mx-section { display: flex; flex-direction: column; gap: 6px; }
.mx-label { display: block; font-size: 12px; font-weight: 650; color: var(--mx-soft); letter-spacing: 0.02em; }
.mx-prose {
  display: block; max-width: 76ch; margin: 0; font: inherit; font-size: 15px; line-height: 1.6; white-space:
  pre-wrap; overflow-wrap: anywhere;
}
.mx-code {
  display: block; margin: 0; padding: 10px 12px; max-height: 360px; overflow: auto; background: var(--mx-panel);
  color: var(--mx-text); border: 0; border-radius: 6px; font-family: var(--mx-mono); font-size: 12.5px;
  line-height: 1.5; white-space: pre-wrap; overflow-wrap: anywhere; tab-size: 2;
}
.mx-cut { display: block; font-size: 12.5px; color: var(--mx-soft); font-style: italic; }
.mx-note {
  display: flex; gap: 8px; padding: 7px 11px; border-radius: 6px; background: var(--mx-panel);
  border-inline-start: 3px solid var(--mx-line); font-size: 13px;
}
.mx-note + .mx-note { margin-top: 6px; }
.mx-note.mx-warn { color: var(--mx-text); background: var(--mx-warn-bg); border-color: var(--mx-warn); }
.mx-note.mx-bad { color: var(--mx-text); background: var(--mx-bad-bg); border-color: var(--mx-bad); }
.mx-note.mx-accent { color: var(--mx-text); background: var(--mx-accent-bg); border-color: var(--mx-accent); }
.mx-note > .mx-mark { font-weight: 700; }
.mx-note.mx-warn > .mx-mark { color: var(--mx-warn); }
.mx-note.mx-bad > .mx-mark { color: var(--mx-bad); }
.mx-fold { display: block; margin: 0; padding: 0; }
.mx-fold > summary {
  display: flex; flex-wrap: nowrap; align-items: baseline; gap: 8px; cursor: pointer; list-style: none; padding:
  3px 0; border-radius: 4px;
}
.mx-fold > summary::-webkit-details-marker { display: none; }
.mx-fold > summary::before {
  content: ""; flex: none; width: 0; height: 0; align-self: center; border: 4.5px solid transparent;
  border-inline-start: 6px solid var(--mx-soft); border-inline-end: 0;
}
.mx-fold[open] > summary::before { transform: rotate(90deg); }
.mx-fold > summary:hover { background: var(--mx-panel); }
.mx-fold > summary:focus-visible { outline: 2px solid var(--mx-accent); outline-offset: 2px; }
.mx-fold > .mx-inside { display: flex; flex-direction: column; gap: 10px; padding: 6px 0 10px 14px; }
.mx-list { display: block; margin: 0; padding: 0; list-style: none; }
.mx-rows > * { border-top: 1px solid var(--mx-line); }
.mx-rows > *:last-child { border-bottom: 1px solid var(--mx-line); }
.mx-rows > .mx-fold > summary { padding: 6px 4px; }
.mx-rows .mx-mark { display: inline-block; width: 1.2em; text-align: center; }
.mx-row { display: flex; flex-wrap: nowrap; align-items: baseline; gap: 8px; padding: 6px 4px 6px 18px; }
.mx-thought {
  display: flex; flex-direction: column; justify-content: flex-end; max-height: 4.65em; padding: 0 0 0 12px; overflow:
  hidden; border-inline-start: 3px solid var(--mx-line); color: var(--mx-soft); font-size: 13px; line-height: 1.55;
  white-space: pre-wrap;
}
.mx-plan { display: block; margin: 0; padding: 0; list-style: none; }
.mx-step { display: flex; gap: 9px; align-items: baseline; padding: 2px 0; }
.mx-step > .mx-mark { flex: none; width: 1.2em; text-align: center; font-weight: 700; color: var(--mx-soft); }
.mx-step.mx-done > .mx-mark { color: var(--mx-good); }
.mx-step.mx-active > .mx-mark { color: var(--mx-accent); }
.mx-step.mx-active > .mx-what { font-weight: 600; }
.mx-step.mx-failed > .mx-mark { color: var(--mx-bad); }
.mx-step.mx-skipped > .mx-what { color: var(--mx-soft); text-decoration: line-through; }
.mx-meter { display: block; height: 5px; border-radius: 3px; background: var(--mx-line); overflow: hidden; }
.mx-meter > span { display: block; height: 5px; border-radius: 3px; background: var(--mx-accent); }
.mx-meter.mx-good > span { background: var(--mx-good); }
.mx-meter.mx-bad > span { background: var(--mx-bad); }
.mx-scroll { display: block; max-width: 100%; overflow-x: auto; }
.mx-table {
  display: table; width: 100%; margin: 0; border-collapse: collapse; border: 0; font-size: 13px; line-height:
  1.45; table-layout: auto;
}
.mx-table th {
  padding: 5px 12px 5px 0; border: 0; border-bottom: 1px solid var(--mx-line); text-align: start; vertical-align:
  bottom; font-weight: 600; font-size: 12px; color: var(--mx-soft); white-space: nowrap;
}
.mx-table td {
  padding: 6px 12px 6px 0; border: 0; border-bottom: 1px solid var(--mx-line); text-align: start; vertical-align:
  top; max-width: 420px;
}
.mx-table tr:last-child > td { border-bottom: 0; }
.mx-table .mx-num { text-align: end; white-space: nowrap; font-variant-numeric: tabular-nums; }
.mx-table .mx-tight { white-space: nowrap; }
.mx-table .mx-badge { vertical-align: top; margin: -1px 0; }
.mx-ident {
  display: block; max-width: 26ch; overflow: hidden; text-overflow: ellipsis; white-space: nowrap;
  font-family: var(--mx-mono); font-size: 12.5px;
}
.mx-brief { display: -webkit-box; -webkit-box-orient: vertical; -webkit-line-clamp: 3; overflow: hidden; }
.mx-table tr > *:last-child { padding-inline-end: 0; }
.mx-chat { display: block; }
.mx-said {
  width: fit-content; max-width: 94%; padding: 9px 13px; border-radius: 9px; background: var(--mx-panel);
}
.mx-said + .mx-said { margin-top: 8px; }
.mx-said.mx-user { background: var(--mx-accent-bg); margin-inline-start: auto; max-width: 88%; }
.mx-said > .mx-label { margin-bottom: 2px; }
a { color: var(--mx-accent); text-decoration: underline; text-underline-offset: 2px; }
"""

# What is drawn; of a picture that is a file of its own this is all there is.
_DRAWN = """
.mx-tl text {
  font: 12px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Helvetica Neue", Arial, sans-serif;
  fill: var(--mx-text); stroke: var(--mx-bg); stroke-width: 3px; stroke-linejoin: round; paint-order: stroke;
}
.mx-tl .mx-t-inside { stroke: none; }
.mx-tl .mx-t-axis { font-size: 11px; fill: var(--mx-soft); }
.mx-tl .mx-t-mark, .mx-tl .mx-t-inside { font-size: 11px; }
.mx-tl .mx-heading { font-weight: 600; }
.mx-ground { fill: var(--mx-bg); }
.mx-tl .mx-rule { stroke: var(--mx-line); stroke-width: 1; shape-rendering: crispEdges; }
.mx-tl .mx-b-wait { fill: var(--mx-bar-turn); }
.mx-tl .mx-b-think { fill: var(--mx-bar-think); }
.mx-tl .mx-b-text { fill: var(--mx-bar-text); }
.mx-tl .mx-b-queue { fill: var(--mx-bar-wait); }
.mx-tl .mx-b-run { fill: var(--mx-bar-run); }
.mx-tl .mx-b-post { fill: var(--mx-bar-post); }
.mx-tl .mx-b-bad { fill: var(--mx-bar-bad); }
.mx-tl .mx-b-many { fill: var(--mx-bar-post); stroke: var(--mx-bar-run); stroke-width: 1.5; }
.mx-tl .mx-s-cross { fill: none; stroke: var(--mx-bad); stroke-width: 2; stroke-linecap: round; }
.mx-tl .mx-s-open { fill: none; stroke: var(--mx-soft); stroke-width: 2; stroke-linecap: round; }
.mx-tl .mx-s-good { fill: none; stroke: var(--mx-good); stroke-width: 2; stroke-linecap: round; }
.mx-tl .mx-s-guard { fill: var(--mx-warn-bg); stroke: var(--mx-warn); stroke-width: 1.5; stroke-linejoin: round; }
.mx-tl .mx-s-plan { fill: var(--mx-accent-bg); stroke: var(--mx-accent); stroke-width: 1.5; }
"""
_PICTURES = """
.mx-picture { display: block; width: 100%; height: auto; }
.mx-drawn { display: block !important; }
.mx-plain { display: none; }
.mx-small-one, .mx-middle-one { display: none; }
"""
_MIDDLE = """
.mx-wide-one { display: none; }
.mx-middle-one { display: block; max-width: 680px; }
"""
_SMALL = """
.mx-middle-one { display: none; }
.mx-small-one { display: block; max-width: 460px; }
"""

# In a narrow cell or on a telephone: less air, and a table's rows become cards with their columns' names.
_NARROW = """
.mx-card { padding: 12px 13px; }
.mx-cards { display: block; }
.mx-cards > thead { display: none; }
.mx-cards > tbody { display: block; }
.mx-cards > tbody > tr { display: block; padding: 8px 0; border-bottom: 1px solid var(--mx-line); }
.mx-cards > tbody > tr:last-child { border-bottom: 0; }
.mx-table.mx-cards > tbody > tr > td {
  display: flex; gap: 12px; align-items: baseline; padding: 1px 0; border: 0; max-width: none;
  text-align: start; white-space: normal;
}
.mx-cards > tbody > tr > td::before {
  content: attr(data-label); flex: none; width: 104px; color: var(--mx-soft); font-size: 12.5px;
}
.mx-table.mx-cards > tbody > tr > td:empty { display: none; }
.mx-table.mx-cards .mx-ident { max-width: none; white-space: normal; }
.mx-cards > tbody > tr > td > * { min-width: 0; }
.mx-fold > .mx-inside { padding-inline-start: 4px; }
.mx-wide { display: none; }
"""

_MONO = '--mx-mono: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", "Liberation Mono", monospace;'
# The class more than once: what a notebook says of the rows of tables and of preformatted text weighs less.
_ROOT = ".mx-root.mx-root"
_PAGE = """
html.mx-page { color-scheme: light dark; background: #f5f6f8; -webkit-text-size-adjust: 100%; }
html.mx-page > body { margin: 0 auto; max-width: 1040px; padding: 20px 16px 40px; }
@media (prefers-color-scheme: dark) { html.mx-page { background: #0f1114; } }
@media (max-width: 600px) { html.mx-page > body { padding: 8px 8px 24px; } }
@media print { html.mx-page .mx-code { max-height: none !important; overflow: visible !important; } }
"""


@functools.cache
def stylesheet(*, of_page: bool = False, of_picture: bool = False) -> str:
    """Return the rules; every one is of `.mx-root` or below it.

    Args:
        of_page: Add what a page of our own needs around its roots.
        of_picture: Only what a picture needs that stands in a file of its own.
    """
    colours = [
        f".mx-root {{ {_MONO} {_flat(_LIGHT)} }}\n",
        f"@media (prefers-color-scheme: dark) {{ .mx-root {{ {_flat(_DARK)} }} }}\n",
    ]
    if of_picture:
        return "".join([*colours, _scoped(_DRAWN)])
    return "".join(
        [
            # What the notebook says of elements ends at our door; what is inside a picture has attributes to keep.
            f"{_ROOT}.mx-root *:not(svg, svg *) {{ all: revert; }}\n",
            *colours,
            f"{_inside(_LIGHT_PLACES)} {{ {_flat(_LIGHT)} }}\n",
            f"{_inside(_DARK_PLACES)} {{ {_flat(_DARK)} }}\n",
            _scoped(_RULES + _DRAWN + _PICTURES),
            _where("800px", _MIDDLE),
            _where("560px", _NARROW),
            _where("480px", _SMALL),
            _PAGE.lstrip() if of_page else "",
        ]
    )


def _where(width: str, rules: str) -> str:
    """Apply rules where there is less room than `width`."""
    # The second is for browsers that cannot ask how wide their container is.
    return (
        f"@container mx (max-width: {width}) {{\n{_scoped(rules)}}}\n"
        f"@supports not (container-type: inline-size) {{ @media (max-width: {width}) {{\n{_scoped(rules)}}} }}\n"
    )


def _flat(declarations: str) -> str:
    return " ".join(declarations.split())


def _inside(places: tuple[str, ...]) -> str:
    return ", ".join(f"{place} .mx-root" for place in places)


def _scoped(rules: str) -> str:
    found = re.findall(r"([^{}]+)\{([^{}]*)\}", rules)
    return "".join(
        f"{', '.join(_below_root(one.strip()) for one in selectors.split(','))} {{ {_flat(body)} }}\n"
        for selectors, body in found
    )


def _below_root(selector: str) -> str:
    # `*` and bare elements weigh less than our classes, and must outweigh `all: revert`.
    return f"{_ROOT}.mx-root" if selector == "&" else f"{_ROOT}.mx-root.mx-root {selector}"
