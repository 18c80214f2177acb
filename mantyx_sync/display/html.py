"""HTML that cannot be broken out of: every text is escaped unless it was made here. Does no I/O."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, is_dataclass
from typing import Any, Iterable, Mapping, Sequence
from urllib.parse import urlsplit

from mantyx_sync.display.style import PREFIX, stylesheet

__all__ = [
    "MAX_TEXT",
    "Column",
    "Html",
    "badge",
    "code",
    "cut_note",
    "el",
    "escape",
    "facts",
    "fold",
    "fragment",
    "join",
    "json_text",
    "link",
    "one_line",
    "page",
    "prose",
    "section",
    "table",
]

MAX_TEXT = 20_000
"""How many characters of one text are shown; what is beyond is counted, not sent to the browser."""

_MAX_ATTRIBUTE = 8000
_MAX_FACT = 200
_MAX_CELL = 400
_VOID = frozenset({"br", "hr", "img", "meta", "link", "wbr"})
_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"}
# What HTML may not hold, what a browser cannot encode, and what would turn the text around it.
_UNSHOWN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufdd0-\ufdef\ufffe\uffff\ud800-\udfff]"
)
_SPECIAL = re.compile("[&<>\"']")


class Html(str):
    """Text that is HTML already. Only `escape` and `el` make it from what others wrote."""

    __slots__ = ()


def escape(value: object, limit: int | None = None) -> Html:
    """Turn any value into text that is safe between tags and in quoted attributes. Never raises.

    What is `Html` stays as it is. Control characters, lone surrogates and changes of direction become `\ufffd`.

    Args:
        limit: Cut the text to this many characters, with an ellipsis. `None` keeps all of it.
    """
    if isinstance(value, Html):
        return value
    text = value if isinstance(value, str) else _str(value)
    if limit is not None and len(text) > limit:
        text = text[: limit - 1] + "…"
    return Html(_SPECIAL.sub(lambda found: _ESCAPES[found[0]], _UNSHOWN.sub("\ufffd", text)))


def join(parts: Iterable[object]) -> Html:
    """Put parts side by side: `Html` as it is, text escaped and bounded, `None` left out, lists entered.

    Spans get a space between them: where our style is taken away, as in a notebook that is not trusted, they would run
    into each other, and where it is there, their row does not show it.
    """
    out: list[str] = []
    for part in parts:
        if part is None or part is False:
            continue
        made = join(part) if isinstance(part, (list, tuple)) else escape(part, MAX_TEXT)
        if made.startswith("<span") and out and out[-1].endswith("</span>"):
            out.append(" ")
        out.append(made)
    return Html("".join(out))


def el(tag: str, *children: object, cls: str = "", **attributes: object) -> Html:
    """Make an element.

    Args:
        tag: Its name.
        children: What is inside, as `join` takes it.
        cls: Classes without their prefix: `"badge good"`.
        attributes: An underscore stands for a hyphen. `None` and `False` are left out, `True` has no value.
    """
    found: list[str] = []
    if cls:
        found.append(f' class="{" ".join(PREFIX + name for name in cls.split())}"')
    for name, value in attributes.items():
        if value is None or value is False:
            continue
        named = name.rstrip("_").replace("_", "-")
        found.append(f" {named}" if value is True else f' {named}="{escape(value, _MAX_ATTRIBUTE)}"')
    opened = f"<{tag}{''.join(found)}>"
    return Html(opened if tag in _VOID else f"{opened}{join(children)}</{tag}>")


def fragment(*parts: object) -> str:
    """Return parts as what a notebook's cell shows: one block with its stylesheet, nothing from outside, no script."""
    return el("div", Html(f"<style>\n{stylesheet()}</style>"), *parts, cls="root")


def page(title: str, *parts: object) -> str:
    """Return parts as a whole document that needs nothing from outside."""
    head = join(
        [
            el("meta", charset="utf-8"),
            el("meta", name="viewport", content="width=device-width, initial-scale=1"),
            el("meta", name="color-scheme", content="light dark"),
            # A page of ours runs no script and loads nothing, whatever a model wrote into it.
            el("meta", http_equiv="Content-Security-Policy", content="default-src 'none'; style-src 'unsafe-inline'"),
            el("title", escape(title, 200)),
            Html(f"<style>\n{stylesheet(of_page=True)}</style>"),
        ]
    )
    body = el("body", el("div", *parts, cls="root"))
    return f"<!DOCTYPE html>\n{el('html', el('head', head), body, cls='page', lang='en')}\n"


def badge(text: object, tone: str = "") -> Html:
    """Make a small label. `tone`: `good`, `warn`, `bad`, `accent` or nothing."""
    return el("span", escape(text, 80), cls=f"badge {tone}")


def facts(pairs: Iterable[tuple[str, object]]) -> Html | None:
    """Make a row of names and values; values that are `None` are left out, and the row if nothing is left."""
    shown = [
        el("div", el("dt", escape(name, 60)), el("dd", escape(value, _MAX_FACT)), cls="fact")
        for name, value in pairs
        if value is not None
    ]
    return el("dl", shown, cls="facts") if shown else None


def section(title: str, *body: object) -> Html:
    """Make a part of a card with a heading of its own."""
    return el("div", el("span", escape(title, _MAX_FACT), cls="label"), *body, cls="section")


def fold(summary: object, *body: object, is_open: bool = False) -> Html:
    """Make something that is opened by a click, without a script."""
    return el(
        "details",
        el("summary", summary if isinstance(summary, (list, tuple)) else escape(summary, _MAX_CELL)),
        el("div", *body, cls="inside"),
        cls="fold",
        open=is_open,
    )


def prose(text: str, limit: int = MAX_TEXT) -> Html:
    """Make a block of running text that keeps its line ends; what is beyond `limit` characters is counted."""
    return join([el("div", text[:limit], cls="prose"), cut_note(len(text), limit)])


def code(text: str, limit: int = MAX_TEXT) -> Html:
    """Make a block of preformatted text that scrolls in its box; what is beyond `limit` characters is counted."""
    return join([el("pre", text[:limit], cls="code", tabindex="0"), cut_note(len(text), limit)])


def cut_note(length: int, limit: int) -> Html | None:
    """Say how much of a text of `length` characters is not shown; `None` if all of it is."""
    if length <= limit:
        return None
    return el("span", f"… {length - limit:,} more characters are not shown here", cls="cut")


def link(url: str, text: str | None = None) -> Html:
    """Make a link of an http or https address; any other is text. An address that holds a password is not shown."""
    try:
        parts = urlsplit(url)
        has_user, is_web = "@" in parts.netloc, parts.scheme in ("http", "https") and bool(parts.netloc)
    except ValueError:
        has_user, is_web = "@" in url, False
    if has_user:
        return el("span", text or "an address with credentials", cls="soft")
    shown = escape(text or url, 120)
    if not is_web or len(url) > _MAX_ATTRIBUTE:
        return shown
    return el("a", shown, href=url, target="_blank", rel="noopener noreferrer nofollow")


class Column:
    """One column of a table: its heading and how its cells stand."""

    def __init__(self, name: str, kind: str = "") -> None:
        """Describe it.

        Args:
            name: The heading; in a narrow place it stands before each value.
            kind: `num` for numbers, `tight` for what must not be broken, or nothing.
        """
        self.name = name
        self.kind = kind


def table(columns: Sequence[Column], rows: Iterable[Sequence[object]]) -> Html:
    """Make a table that becomes a list of cards where it is narrow. Columns without any value are left out."""
    body = [list(row) for row in rows]
    used = [i for i in range(len(columns)) if any(row[i] not in (None, "") for row in body)]
    head = el("tr", [el("th", columns[i].name, cls=columns[i].kind, scope="col") for i in used])
    lines = [
        el("tr", [el("td", _cell(row[i]), cls=columns[i].kind, data_label=columns[i].name) for i in used])
        for row in body
    ]
    return el("div", el("table", el("thead", head), el("tbody", lines), cls="table cards"), cls="scroll")


def json_text(value: object, limit: int = MAX_TEXT) -> tuple[str, int]:
    """Write a value as indented JSON, for reading; text is given as it is. Never raises.

    Returns:
        At most `limit` characters, and how many there would be in all.
    """
    if isinstance(value, str):
        return value[:limit], len(value)
    try:
        length = len(json.dumps(value, ensure_ascii=False, default=_plain))
        out: list[str] = []
        size = 0
        # Piece by piece: a large value is not laid out beyond what is shown.
        for piece in json.JSONEncoder(ensure_ascii=False, indent=2, default=_plain).iterencode(value):
            out.append(piece)
            size += len(piece)
            if size > limit:
                break
    except Exception:  # too deep, in a circle, keys that JSON has no form for: a picture of it is no reason to fail
        text = one_line(value, limit)
        return text, len(text)
    return "".join(out)[:limit], size if size <= limit else max(size, length)


def one_line(value: object, limit: int = 160) -> str:
    """Return a value on one line of at most `limit` characters. Never raises."""
    if isinstance(value, str):
        text = value[: 4 * limit]
    else:
        try:
            text = json.dumps(value, ensure_ascii=False, default=_plain)[: 4 * limit]
        except Exception:  # as in `json_text`
            text = _str(value)[: 4 * limit]
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _cell(value: object) -> object:
    return "" if value is None else value if isinstance(value, (list, tuple)) else escape(value, _MAX_CELL)


def _plain(value: object) -> Any:
    """Give what JSON does not know a form that it knows."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (set, frozenset, tuple)):
        return list(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return f"{len(value):,} bytes"
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if callable(dump) else _str(value)


def _str(value: object) -> str:
    try:
        return str(value)
    except Exception:  # somebody else's __str__
        return f"<{type(value).__name__}>"
