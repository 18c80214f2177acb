"""A timeline's layout as SVG text. Pure; needs nothing from outside, holds no script."""

from __future__ import annotations

from typing import Iterable

from mantyx_sync.display.html import Html, el, escape, join
from mantyx_sync.display.style import stylesheet
from mantyx_sync.display.timeline_layout import Box, Label, Layout, Sign

__all__ = ["drawing", "standalone"]


def drawing(picture: Layout, title: str, desc: str, *, cls: str = "") -> Html:
    """Draw a layout as an element inside a page that has the stylesheet."""
    return el(
        "svg",
        el("title", escape(title, 200)),
        el("desc", escape(desc, 2000)),
        el("g", _marks(picture), cls="tl"),
        cls=f"picture {cls}",
        viewBox=f"0 0 {_n(picture.width)} {_n(picture.height)}",
        role="img",
        xmlns="http://www.w3.org/2000/svg",
        preserveAspectRatio="xMinYMin meet",
    )


def standalone(picture: Layout, title: str, desc: str, heading: str) -> str:
    """Draw a layout as a file of its own, with a heading and its colours."""
    top = 26.0
    height = picture.height + top + 6
    return el(
        "svg",
        el("title", escape(title, 200)),
        el("desc", escape(desc, 2000)),
        Html(f"<style>\n{stylesheet(of_picture=True)}</style>"),
        el("rect", width="100%", height="100%", cls="ground"),
        el("g", el("text", escape(heading, 300), x=6, y=19, cls="heading"), cls="tl"),
        el("g", _marks(picture), cls="tl", transform=f"translate(0 {_n(top)})"),
        cls="root",
        xmlns="http://www.w3.org/2000/svg",
        width=_n(picture.width),
        height=_n(height),
        viewBox=f"0 0 {_n(picture.width)} {_n(height)}",
        role="img",
    )


def _marks(picture: Layout) -> Html:
    rules = [
        el("line", x1=_n(x), x2=_n(x), y1=_n(picture.top), y2=_n(picture.bottom), cls="rule") for x in picture.rules
    ]
    signs = [_sign(sign) for sign in picture.signs]
    labels = [_label(label) for label in picture.labels]
    return join([rules, list(_bars(picture.boxes)), signs, labels])


def _bars(boxes: Iterable[Box]) -> Iterable[Html]:
    """Draw the boxes of a bar together, so that they share its words."""
    group: list[Box] = []
    for box in boxes:
        if group and group[-1].bar != box.bar:
            yield _bar(group)
            group = []
        group.append(box)
    if group:
        yield _bar(group)


def _bar(boxes: list[Box]) -> Html:
    rects = [
        el(
            "rect",
            x=_n(box.x),
            y=_n(box.y),
            width=_n(box.width),
            height=_n(box.height),
            rx=2 if box.width >= 6 else None,
            cls=f"bar b-{box.kind}",
        )
        for box in boxes
    ]
    return el("g", el("title", escape(boxes[0].title, 400)), rects)


def _label(label: Label) -> Html:
    return el(
        "text",
        el("title", escape(label.title, 400)) if label.title else None,
        escape(label.text),
        x=_n(label.x),
        y=_n(label.y),
        text_anchor=None if label.anchor == "start" else label.anchor,
        cls=f"t-{label.kind}",
    )


def _sign(sign: Sign) -> Html:
    title = el("title", escape(sign.title, 400)) if sign.title else None
    x, y = sign.x, sign.y
    kind = sign.kind
    if kind == "key-bad":
        shapes: list[Html] = [_swatch(x, y, "bad"), _cross(x + 12, y, 3)]
    elif kind.startswith("key-") and kind[4:] not in ("guard", "good", "plan", "open", "cross"):
        shapes = [_swatch(x, y, kind[4:])]
    else:
        shapes = _shape(kind.replace("key-", ""), x, y)
    return el("g", title, shapes)


def _swatch(x: float, y: float, kind: str) -> Html:
    return el("rect", x=_n(x - 6), y=_n(y - 5), width=12, height=10, rx=2, cls=f"bar b-{kind}")


def _shape(kind: str, x: float, y: float) -> list[Html]:
    if kind == "cross":
        return [_cross(x, y, 3.5)]
    if kind == "open":
        return [el("path", d=f"M{_n(x - 3)} {_n(y - 4)}L{_n(x + 2)} {_n(y)}L{_n(x - 3)} {_n(y + 4)}", cls="s-open")]
    if kind == "plan":
        return [el("circle", cx=_n(x), cy=_n(y), r=4.5, cls="s-plan")]
    if kind == "good":
        return [el("path", d=f"M{_n(x - 5)} {_n(y)}L{_n(x - 1.5)} {_n(y + 4)}L{_n(x + 5)} {_n(y - 4)}", cls="s-good")]
    # A guard: a triangle on its base.
    return [el("path", d=f"M{_n(x)} {_n(y - 6)}L{_n(x + 6)} {_n(y + 5)}L{_n(x - 6)} {_n(y + 5)}Z", cls="s-guard")]


def _cross(x: float, y: float, size: float) -> Html:
    a, b, c, d = _n(x - size), _n(x + size), _n(y - size), _n(y + size)
    return el("path", d=f"M{a} {c}L{b} {d}M{b} {c}L{a} {d}", cls="s-cross")


def _n(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
