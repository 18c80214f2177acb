"""Bytes of a server's standard output -> JSON-RPC messages, one per line (mcp §3). Does no I/O.

Servers print other things as well: banners, logs, half a line without its end. What is no message is passed over, and
told apart from a message that was meant for us but cannot be read: the call that waits for that one is not left to its
deadline.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

from .messages import JSON, kind_of_message

__all__ = ["Decoded", "LineDecoder", "Unreadable"]

Message = Dict[str, Any]

_EDGE_BYTES = 1024
"""How much of either end of an overlong line is kept, to find out which call it answers."""
_MAX_CANDIDATES = 8
"""How many places of a line of text are tried as the beginning of a message."""

_BOM = b"\xef\xbb\xbf"
_VERSION = rb'"jsonrpc"\s*:\s*"2\.0"'
_ID = rb'"id"\s*:\s*"?(\d{1,18})"?'
# Members come in the order in which the server's language writes them: the id first, or behind the result. Only the
# outermost object begins where the line begins, or ends where it ends.
_ID_AT_HEAD = re.compile(rb"\{\s*(?:" + _VERSION + rb"\s*,\s*)?" + _ID + rb'\s*,\s*(?:"jsonrpc"[^,]*,\s*)?"(\w+)"')
_ID_AT_TAIL = re.compile(rb",\s*" + _ID + rb"\s*(?:,\s*" + _VERSION + rb"\s*)?\}\s*\Z")
_METHOD_AT_HEAD = re.compile(rb"\{\s*(?:" + _VERSION + rb'\s*,\s*)?"method"')
_BLANK = re.compile(r"\s*")
_decode: Callable[[str, int], Tuple[Any, int]] = JSON.raw_decode
_MESSAGE_START = re.compile(r'\{\s*"(?:jsonrpc|id|method|params|result|error)"\s*:')


@dataclass(frozen=True)
class Unreadable:
    """A line without a message in it that could be read.

    Attributes:
        why: What is wrong with it, as the end of a sentence.
        size: Its length in bytes.
        is_answer: It looks like the answer to a request.
        id: The request that it answers, where that could be made out.
    """

    why: str
    size: int
    is_answer: bool = False
    id: Optional[int] = None


Decoded = Union[Message, Unreadable]


class LineDecoder:
    """Cut a server's output into lines and read the messages in them."""

    def __init__(self, max_line_bytes: int) -> None:
        self._max_line_bytes = max_line_bytes
        self._parts: list[bytes] = []
        self._size = 0
        self._head: Optional[bytes] = None
        """The beginning of a line that is too long; what comes of it is dropped, up to the line's end."""

    def feed(self, data: bytes) -> list[Decoded]:
        """Return what the lines hold that `data` completes, in order: messages, and what could not be read."""
        first, *more = data.split(b"\n")
        self._add(first)
        found: list[Decoded] = []
        for following in more:
            found += self._end_line()
            self._add(following)
        return found

    def eof(self) -> list[Decoded]:
        """End the output. A last line without its end is read all the same: it is whole if it is JSON."""
        return self._end_line()

    def _add(self, part: bytes) -> None:
        if not part:
            return
        self._size += len(part)
        self._parts.append(part)
        if self._size > self._max_line_bytes:
            line = b"".join(self._parts)
            if self._head is None:
                self._head = line[:_EDGE_BYTES]
            self._parts = [line[-_EDGE_BYTES:]]

    def _end_line(self) -> list[Decoded]:
        line, size, head = b"".join(self._parts), self._size, self._head
        self._parts, self._size, self._head = [], 0, None
        if head is not None:
            return [_unreadable(head, line, size, f"it is longer than {self._max_line_bytes} bytes")]
        return _read_line(line)


def _read_line(line: bytes) -> list[Decoded]:
    line = line.strip()
    if line.startswith(_BOM):
        line = line[len(_BOM) :].lstrip()
    if not line:
        return []
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        # Not mended: an answer with other characters in it than the server meant is a wrong answer.
        return [_unreadable(line, line, len(line), f"its byte {error.start} is not UTF-8")]
    try:
        return _read_text(text)
    except ValueError:
        why = "it is not JSON"
    except RecursionError:
        why = "it is nested too deep"
    return _rescued(text) or [_unreadable(line, line, len(line), why)]


def _read_text(text: str) -> list[Decoded]:
    """Read the messages that a line begins with: one, or several without the line ends between them."""
    found: list[Decoded] = []
    at = 0
    while True:
        try:
            value, at = _decode(text, at)
        except (ValueError, RecursionError):
            if not found:
                raise
            break  # text behind a message
        messages = _messages_in(value)
        if not messages:
            break
        found += messages
        at = _BLANK.match(text, at).end()  # type: ignore[union-attr]  # it matches nothing as well
        if at == len(text):
            break
    return found or [Unreadable("it is JSON, but no JSON-RPC message", len(text))]


def _rescued(text: str) -> list[Decoded]:
    """Return the message at the end of a line of text: something was printed without a line end before it.

    A request is not taken from there: it may be the echo of one of ours in a log line, and would be answered.
    """
    if text.startswith("{"):
        return []
    for number, match in enumerate(_MESSAGE_START.finditer(text)):
        if number == _MAX_CANDIDATES:
            break
        try:
            value, end = _decode(text, match.start())
        except (ValueError, RecursionError):
            continue
        if end == len(text) and _is_message(value) and not ("method" in value and "id" in value):
            return [value]
    return []


def _messages_in(value: Any) -> List[Decoded]:
    # An array is a batch, which one revision of the protocol allowed.
    members = value if isinstance(value, list) else [value]
    return [member for member in members if _is_message(member)]


def _is_message(value: Any) -> bool:
    # Lines of a log may be JSON as well; only `jsonrpc` tells them apart for sure.
    return kind_of_message(value) is not None and value.get("jsonrpc") == "2.0"


def _unreadable(head: bytes, tail: bytes, size: int, why: str) -> Unreadable:
    head = head.strip()
    if head.startswith(_BOM):
        head = head[len(_BOM) :].lstrip()
    if not head.startswith(b"{") or _METHOD_AT_HEAD.match(head):
        return Unreadable(why, size)
    at_head = _ID_AT_HEAD.match(head)
    if at_head is not None:
        if at_head.group(2) == b"method":
            return Unreadable(why, size)
        return Unreadable(why, size, is_answer=True, id=int(at_head.group(1)))
    at_tail = _ID_AT_TAIL.search(tail)
    is_answer = b'"jsonrpc"' in head or b'"jsonrpc"' in tail
    return Unreadable(why, size, is_answer=is_answer, id=int(at_tail.group(1)) if at_tail and is_answer else None)
