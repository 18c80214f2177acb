"""Changing the text of an answer that is kept in the pieces in which it came. Does no I/O."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Callable, Sequence, Tuple

from mantyx_sync.local.recording import Piece

__all__ = ["FRAME_END", "rewrite_pieces", "rewrite_words"]

FRAME_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")
"""What ends a frame of an event stream."""
_TEXT = re.compile(r'"text"\s*:\s*("(?:[^"\\]|\\.)*")')

_Edit = Tuple[int, int, bytes]


def rewrite_pieces(pieces: Sequence[Piece], change: Callable[[str], str], *, is_stream: bool) -> list[Piece]:
    """Pass a body through `change`, an event stream event by event, and keep it in its pieces.

    What `change` leaves alone stays where it was, byte for byte. What it changes arrives with the piece that
    completed it. Bytes that are no text are shown to `change` as the surrogates that Python has for them.
    """
    whole = b"".join(piece.data for piece in pieces)
    edits: list[_Edit] = []
    for start, end in _frames(whole) if is_stream else [(0, len(whole))]:
        text = whole[start:end].decode("utf-8", "surrogateescape")
        changed = change(text)
        if changed != text:
            edits.append((start, end, _encoded(changed)))
    return _edited(pieces, edits)


def _frames(whole: bytes) -> list[tuple[int, int]]:
    """Return where the frames of an event stream begin and end."""
    starts = [0, *(found.end() for found in FRAME_END.finditer(whole) if found.end() < len(whole))]
    return list(zip(starts, [*starts[1:], len(whole)]))


def _encoded(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a surrogate of another's making
        return text.encode("utf-8", "surrogatepass")


# -------------------------------------------------------------------------------- words over events


@dataclass(frozen=True)
class _Word:
    """The text of one event that goes on with the text of the one before it."""

    text: str
    literal: str
    start: int
    """Where the literal stands in the body."""


def rewrite_words(pieces: Sequence[Piece], change: Callable[[str], str], mark: str) -> list[Piece]:
    """Pass the words of an event stream through `change`, put together: a model says a name in two events or three.

    Each kind of `…_delta` is a text of its own. What replaces words comes with the event in which they began; events
    that have nothing left to say stay, with an empty text.

    Args:
        mark: What `change` puts in the place of words, as a rule: what is between two of them stays where it is.
    """
    whole = b"".join(piece.data for piece in pieces)
    by_kind: dict[str, list[_Word]] = {}
    for start, end in _frames(whole):
        found = _word_in(whole, start, end)
        if found is not None:
            by_kind.setdefault(found[0], []).append(found[1])
    edits: list[_Edit] = []
    for words in by_kind.values():
        text = "".join(word.text for word in words)
        changed = change(text)
        if changed != text:
            edits += _edits_of_words(words, _differences(text, changed, mark))
    return _edited(pieces, sorted(edits))


def _word_in(whole: bytes, start: int, end: int) -> tuple[str, _Word] | None:
    """Return the kind of a frame that adds to a text, and what it adds."""
    frame = whole[start:end]
    if b"_delta" not in frame:
        return None
    try:
        said = frame.decode()
        payload = "\n".join(line[5:].lstrip(" ") for line in re.split(r"\r\n|\n|\r", said) if line.startswith("data:"))
        envelope: Any = json.loads(payload)
        kind, text = envelope["type"], envelope["data"]["text"]
        literals = [found.group(1) for found in _TEXT.finditer(said) if json.loads(found.group(1)) == text]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    if not (isinstance(kind, str) and kind.endswith("_delta") and isinstance(text, str) and literals):
        return None
    return kind, _Word(text, literals[0], start + len(said[: said.index(literals[0])].encode()))


def _differences(text: str, changed: str, mark: str) -> list[tuple[int, int, str]]:
    """Return which parts of a text have become what."""
    kept = changed.split(mark)
    found: list[tuple[int, int, str]] = []
    at = len(kept[0])
    if len(kept) > 1 and text.startswith(kept[0]) and text.endswith(kept[-1]):
        for number, part in enumerate(kept[1:], 2):
            stop = text.find(part, at) if number < len(kept) else len(text) - len(part)
            if stop < at:
                break
            found.append((at, stop, mark))
            at = stop + len(part)
        else:
            return found
    # Something else was put there: all is replaced from the first difference to the last.
    start = _same(text, changed)
    same = _same(text[start:][::-1], changed[start:][::-1])
    return [(start, len(text) - same, changed[start : len(changed) - same])]


def _same(one: str, other: str) -> int:
    """Return how many characters two texts have in common at their beginning."""
    return next((i for i, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))


def _edits_of_words(words: Sequence[_Word], differences: Sequence[tuple[int, int, str]]) -> list[_Edit]:
    edits: list[_Edit] = []
    at = 0
    for number, word in enumerate(words, 1):
        stop = at + len(word.text)
        new, cursor = "", at
        for start, end, replacement in differences:
            if start >= stop and number < len(words):
                break
            new += word.text[cursor - at : max(start - at, cursor - at)]
            if start >= at:
                new += replacement
            cursor = max(cursor, min(end, stop))
        new += word.text[cursor - at :]
        if new != word.text:
            literal = json.dumps(new, ensure_ascii=word.literal.isascii())
            edits.append((word.start, word.start + len(word.literal.encode()), _encoded(literal)))
        differences = [difference for difference in differences if difference[1] > stop or difference[0] == stop]
        at = stop
    return edits


# ------------------------------------------------------------------------------------------- pieces


def _edited(pieces: Sequence[Piece], edits: Sequence[_Edit]) -> list[Piece]:
    if not edits:
        return list(pieces)
    out: list[Piece] = []
    left = list(edits)
    at = 0
    for piece in pieces:
        stop = at + len(piece.data)
        data = bytearray()
        cursor = at
        while left and left[0][0] < stop:
            start, end, new = left[0]
            data += piece.data[max(cursor, at) - at : max(start, cursor) - at]
            cursor = min(end, stop)
            if end > stop:
                break  # the rest of what is replaced comes with a later piece, and what replaces it as well
            data += new
            left.pop(0)
        if not (left and left[0][0] < cursor and left[0][1] > stop):
            data += piece.data[cursor - at :]
        if data:
            out.append(Piece(bytes(data), piece.at, piece.order))
        at = stop
    return out
