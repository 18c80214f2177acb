"""Read what a docstring says about a function and its parameters: Google, NumPy, reST and Epydoc styles.

Descriptions steer the model, and losing one is silent. So the reader is lenient about blank lines,
indentation and types in parentheses, and it never lets a raw parameter block leak into the description.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, field
from typing import Dict, List, Optional, Tuple

__all__ = ["DocInfo", "read_docstring"]

_PARAMETERS = "args|arguments|params|parameters|keyword args|keyword arguments|kwargs|other parameters"
_FIELDS = "attributes|fields"
_OTHER = "returns?|yields?|raises|except|exceptions|throws|examples?|see also|references|todo|methods|warns|usage"
_GOOGLE_HEADER = re.compile(rf"({_PARAMETERS}|{_FIELDS}|{_OTHER})\s*:\s*", re.IGNORECASE)
_NUMPY_HEADER = re.compile(r"[A-Za-z][A-Za-z ]*")
_UNDERLINE = re.compile(r"-{3,}|={3,}")
_DESCRIBES = re.compile(rf"{_PARAMETERS}|{_FIELDS}", re.IGNORECASE)
_ENDS_TEXT = re.compile(rf"{_PARAMETERS}|{_FIELDS}|{_OTHER}|notes?|warnings?", re.IGNORECASE)
# `name: text`, `name (type): text`, `*args: text`, `a, b: text`
_GOOGLE_ITEM = re.compile(r"(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?:\((.*?)\)\s*)?:(?:\s+(.*)|$)")
# `name : type`, `name`, `a, b : type`
_NUMPY_ITEM = re.compile(r"(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?")
_FIELD = re.compile(r"[:@](\w+)(?:[ \t]+([^:]*?))?[ \t]*:(?:\s+(.*)|$)")
_FIELD_WORDS = {"param", "parameter", "arg", "argument", "key", "keyword", "ivar", "var", "cvar", "attr"}
_OTHER_FIELD = re.compile("type|rtype|returns?|raises?|except|exception|yields?")


@dataclass
class DocInfo:
    """What a docstring says: the text before its first section, and a text per parameter."""

    description: str = ""
    parameters: Dict[str, str] = field(default_factory=dict)


def read_docstring(doc: Optional[str]) -> DocInfo:
    """Read a docstring. Never raises; what is not understood is left out."""
    info = DocInfo()
    if not doc or not isinstance(doc, str):
        return info
    lines = inspect.cleandoc(doc).splitlines()
    text: List[str] = []
    position = 0
    in_text = True
    while position < len(lines):
        line = lines[position]
        stripped = line.strip()
        google = _GOOGLE_HEADER.fullmatch(stripped)
        field_line = _FIELD.fullmatch(stripped)
        if _is_numpy_header(lines, position):
            in_text = in_text and _ENDS_TEXT.fullmatch(stripped) is None
            position += 2
            if _DESCRIBES.fullmatch(stripped):
                position = _read_numpy(lines, position, info)
        elif google:
            in_text = False
            position += 1
            if _DESCRIBES.fullmatch(google.group(1)):
                # The first line has lost its indentation: its items may seem to stand as far left.
                position = _read_google(lines, position, _indent(line) if position > 1 else -1, info)
        elif field_line and _is_field_word(field_line.group(1)):
            in_text = False
            position = _read_field(lines, position, field_line, info)
        else:
            if in_text:
                text.append(line)
            position += 1
    info.description = "\n".join(text).strip()
    return info


def _read_google(lines: List[str], position: int, header_indent: int, info: DocInfo) -> int:
    """Read the items of an `Args:` block; return where it ends."""
    item_indent: Optional[int] = None
    current: Tuple[str, ...] = ()
    while position < len(lines):
        line = lines[position]
        stripped = line.strip()
        indent = _indent(line)
        if stripped:
            if indent <= header_indent or (_GOOGLE_HEADER.fullmatch(stripped) and indent < (item_indent or 1)):
                break
            item = _GOOGLE_ITEM.fullmatch(stripped)
            if item_indent is None:
                item_indent = indent
            if item and indent <= item_indent:
                current = _names(item.group(1))
                _describe(info, current, item.group(3) or "")
            elif indent > item_indent:
                _describe(info, current, stripped)
            else:
                current = ()  # a line at the items' level that is not one
        position += 1
    return position


def _read_numpy(lines: List[str], position: int, info: DocInfo) -> int:
    """Read the items under an underlined header; return where they end."""
    base = next((_indent(line) for line in lines[position:] if line.strip()), 0)
    current: Tuple[str, ...] = ()
    while position < len(lines) and not _is_numpy_header(lines, position):
        line = lines[position]
        stripped = line.strip()
        if stripped and _indent(line) <= base:
            item = _NUMPY_ITEM.fullmatch(stripped)
            current = _names(item.group(1)) if item else ()
        elif stripped:
            _describe(info, current, stripped)
        position += 1
    return position


def _read_field(lines: List[str], position: int, match: re.Match[str], info: DocInfo) -> int:
    """Read `:param name: text` with the indented lines that continue it."""
    word, argument, text = match.groups()
    # `:param int count: text` names the type first.
    names = (argument.split()[-1].lstrip("*"),) if argument and word in _FIELD_WORDS else ()
    _describe(info, names, text or "")
    base = _indent(lines[position])
    position += 1
    while position < len(lines) and lines[position].strip() and _indent(lines[position]) > base:
        _describe(info, names, lines[position].strip())
        position += 1
    return position


def _is_numpy_header(lines: List[str], position: int) -> bool:
    if position + 1 >= len(lines):
        return False
    title = lines[position].strip()
    return bool(_NUMPY_HEADER.fullmatch(title) and _UNDERLINE.fullmatch(lines[position + 1].strip()))


def _names(text: str) -> Tuple[str, ...]:
    return tuple(name.strip().lstrip("*") for name in text.split(","))


def _describe(info: DocInfo, names: Tuple[str, ...], text: str) -> None:
    for name in names:
        info.parameters[name] = f"{info.parameters.get(name, '')} {text}".strip()


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _is_field_word(word: str) -> bool:
    return word in _FIELD_WORDS or _OTHER_FIELD.fullmatch(word) is not None
