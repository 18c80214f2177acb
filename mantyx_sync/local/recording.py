"""What was said between a client and a server, and the file it is kept in.

A recording is JSON lines: a header, then what happened in the order in which it happened, then a closing line.

    {"mantyx-recording": 1, "made-by": "mantyx-sync 0.1.0"}
    {"n": 1, "request": "POST /api/v1/workspaces/recorded/agent-runs", "json": {…}, "at": 0.0}
    {"n": 1, "status": 202, "headers": [["Content-Type", "application/json"]], "length": 85, "at": 0.012}
    {"n": 1, "data": "{\\"runId\\": …}", "at": 0.012}
    {"n": 1, "end": "complete", "at": 0.012}
    {"end-of-recording": true}

`n` numbers the exchanges, `at` is in seconds. A request's body is `json`, `form`, `text` or `base64`; a piece of an
answer's body, as it came off the wire, is `data`, or `base64` where it is no text. `end` says how an answer ended:
`complete`, `broken` (the connection broke off), `no_answer` (it did before a byte of the answer had come) or
`client_left`.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import math
import os
import re
import stat
import tempfile
import uuid
import zlib
from dataclasses import field
from pathlib import Path
from typing import Any, Mapping, Optional, Union
from urllib.parse import parse_qsl, urlencode

from mantyx_sync._version import __version__
from mantyx_sync.local.http import MAX_BODY_BYTES
from mantyx_sync.reprs import dataclass

__all__ = [
    "BROKEN",
    "CLIENT_LEFT",
    "COMPLETE",
    "NO_ANSWER",
    "VERSION",
    "Exchange",
    "Piece",
    "RecordingError",
    "check_target",
    "decode_body",
    "encode_body",
    "read_recording",
    "write_recording",
]

VERSION = 1

COMPLETE, BROKEN, NO_ANSWER, CLIENT_LEFT = "complete", "broken", "no_answer", "client_left"
_ENDS = (COMPLETE, BROKEN, NO_ANSWER, CLIENT_LEFT)
_BODY_FORMS = ("json", "form", "text", "base64")
_BRACKET = re.compile(r"[\[\]{}]")
MAX_DEPTH = 100
"""JSON that is nested deeper is kept as text: what goes through it calls itself for each level."""


class RecordingError(ValueError):
    """A file cannot be replayed; the text says why."""


@dataclass
class Piece:
    """Bytes of an answer's body that arrived together. `order` is the place among all that happened."""

    data: bytes
    at: float
    order: int


@dataclass
class Exchange:
    """One request and what came back for it. Times are in seconds since the recording began."""

    number: int
    method: str
    path: str
    query: list[tuple[str, str]] = field(default_factory=list)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Optional[tuple[str, Any]] = None
    """Its form (`json`, `form`, `text` or `base64`) and its content."""
    at: float = 0.0
    order: int = 0
    status: Optional[int] = None
    answer_headers: list[tuple[str, str]] = field(default_factory=list)
    length: Optional[int] = None
    """The size of the body where the answer announced it."""
    head_at: float = 0.0
    head_order: int = 0
    pieces: list[Piece] = field(default_factory=list)
    end: str = CLIENT_LEFT
    end_at: float = 0.0
    end_order: int = 0
    why: Optional[str] = None
    """What broke, in words."""

    @property
    def target(self) -> str:
        """Path and query, as in a request line."""
        return self.path + (f"?{urlencode(self.query)}" if self.query else "")

    @property
    def media_type(self) -> str:
        """The content type of the answer in lower case, without parameters."""
        kinds = [value for name, value in self.answer_headers if name.lower() == "content-type"]
        return kinds[0].partition(";")[0].strip().lower() if kinds else ""

    @property
    def is_stream(self) -> bool:
        """Whether the answer is an event stream."""
        return self.media_type == "text/event-stream"

    @property
    def answer_body(self) -> bytes:
        """The body of the answer, as far as it came."""
        return b"".join(piece.data for piece in self.pieces)

    def answer_json(self) -> Any:
        """The body of the answer decoded; `None` if it is no JSON."""
        try:
            return json.loads(self.answer_body)
        except (ValueError, RecursionError):
            return None


def decode_body(body: bytes, headers: Mapping[str, str]) -> tuple[str, Any] | None:
    """Return a request's body in the form in which it is kept and compared; `None` for an empty one.

    Args:
        headers: The request's, by names in lower case. What is packed for the way is kept unpacked.
    """
    if not body:
        return None
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if headers.get("content-encoding", "").strip().lower() in ("gzip", "x-gzip", "deflate"):
        body = _unpacked(body)
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return "base64", base64.b64encode(body).decode()
    if kind == "application/x-www-form-urlencoded":
        return "form", [list(pair) for pair in parse_qsl(text, keep_blank_values=True)]
    if _depth(text) > MAX_DEPTH:
        return "text", text
    try:
        return "json", json.loads(text)
    except (ValueError, RecursionError):
        return "text", text


def _unpacked(body: bytes) -> bytes:
    unpacker = zlib.decompressobj(wbits=47)  # gzip or zlib, whichever it is
    try:
        plain = unpacker.decompress(body, MAX_BODY_BYTES)
    except zlib.error:
        return body
    return plain if unpacker.eof else body


def _depth(text: str) -> int:
    """Return at most how deep brackets are nested; those within strings count as well."""
    deepest = depth = 0
    for found in _BRACKET.finditer(text):
        depth += 1 if found.group() in "[{" else -1
        deepest = max(deepest, depth)
    return deepest


def encode_body(data: bytes) -> dict[str, str]:
    """Return a piece of an answer as fields of a line."""
    try:
        return {"data": data.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


# -------------------------------------------------------------------------------------------- writing


def check_target(path: Union[str, os.PathLike[str]]) -> None:
    """Check that a recording can be written, and make the folder for it.

    Raises:
        OSError: It cannot; a sentence says why.
    """
    why = ""
    try:
        target = Path(os.path.realpath(path))
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            if not stat.S_ISREG(os.stat(target).st_mode):  # a folder, a device
                why = "it is no file"
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=target.parent):
            pass
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
    if why:
        raise OSError(f"no recording can be written to {os.fspath(path)!r}: {why}")


def write_recording(path: Union[str, os.PathLike[str]], exchanges: list[Exchange]) -> None:
    """Write a recording, replacing the file at once when all of it is written. Makes the folder if there is none.

    Raises:
        OSError: It cannot be written.
    """
    target = Path(os.path.realpath(path))  # a link stays one
    target.parent.mkdir(parents=True, exist_ok=True)
    # A name of its own and a short one: two may write the same file, and its name may be as long as names can be.
    scratch = target.with_name(f"{uuid.uuid4().hex}.part")
    try:
        with open(scratch, "x", encoding="utf-8", newline="\n") as file:
            for line in _lines(exchanges):
                file.write(_encode(line) + "\n")
        os.replace(scratch, target)
    except BaseException:
        scratch.unlink() if scratch.exists() else None
        raise


def _encode(line: Mapping[str, Any]) -> str:
    text = json.dumps(line, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate, of which only the escape can be written
        text = json.dumps(line)
    return text


def _lines(exchanges: list[Exchange]) -> list[dict[str, Any]]:
    placed: list[tuple[int, int, dict[str, Any]]] = []
    for exchange in exchanges:
        placed += [(order, exchange.number, line) for order, line in _lines_of(exchange)]
    placed.sort(key=lambda entry: entry[:2])
    first = {"mantyx-recording": VERSION, "made-by": f"mantyx-sync {__version__}"}
    return [first, *(line for _, _, line in placed), {"end-of-recording": True}]


def _lines_of(exchange: Exchange) -> list[tuple[int, dict[str, Any]]]:
    request: dict[str, Any] = {"n": exchange.number, "request": f"{exchange.method} {exchange.path}"}
    if exchange.query:
        request["query"] = [list(pair) for pair in exchange.query]
    if exchange.headers:
        request["headers"] = dict(exchange.headers)
    if exchange.body is not None:
        request[exchange.body[0]] = exchange.body[1]
    request["at"] = round(exchange.at, 3)
    lines = [(exchange.order, request)]
    if exchange.status is not None:
        head: dict[str, Any] = {"n": exchange.number, "status": exchange.status}
        head["headers"] = [list(pair) for pair in exchange.answer_headers]
        if exchange.length is not None:
            head["length"] = exchange.length
        lines.append((exchange.head_order, {**head, "at": round(exchange.head_at, 3)}))
    for piece in exchange.pieces:
        lines.append((piece.order, {"n": exchange.number, **encode_body(piece.data), "at": round(piece.at, 3)}))
    end: dict[str, Any] = {"n": exchange.number, "end": exchange.end}
    if exchange.why:
        end["why"] = exchange.why
    lines.append((exchange.end_order, {**end, "at": round(exchange.end_at, 3)}))
    return lines


# -------------------------------------------------------------------------------------------- reading


def read_recording(path: Union[str, os.PathLike[str]]) -> list[Exchange]:
    """Read a recording. The order of what happened is that of the lines, whose numbers count from 1.

    Raises:
        RecordingError: There is no such file, it is none of ours, or it is damaged; a sentence says where.
    """
    name = os.fspath(path)
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")  # an editor may have put a mark before it
    except FileNotFoundError:
        raise RecordingError(f"there is no recording {name}") from None
    except UnicodeDecodeError:
        raise RecordingError(f"{name} is not a recording: it is not text") from None
    except OSError as error:
        raise RecordingError(f"the recording {name} cannot be read: {error.strerror or error}") from None
    lines = text.split("\n")
    _check_header(name, lines[0])
    if lines[-1]:
        raise RecordingError(f"the recording {name} is cut short in line {len(lines)}; record it again")
    reader = _Reader(name)
    is_closed = False
    for number, line in enumerate(lines[1:-1], 2):
        if is_closed:
            raise reader.damaged(number, "it stands behind the closing line")
        is_closed = reader.read(number, line)
    if not is_closed:
        raise RecordingError(f"the recording {name} has no closing line: its end is missing; record it again")
    return list(reader.exchanges.values())


def _check_header(name: str, line: str) -> None:
    try:
        found: Any = json.loads(line)
    except (ValueError, RecursionError):
        found = None
    header: dict[str, Any] = found if isinstance(found, dict) else {}
    version = header.get("mantyx-recording")
    if not isinstance(version, int):
        raise RecordingError(f'{name} is not a recording: its first line does not begin with {{"mantyx-recording": …')
    if version != VERSION:
        raise RecordingError(
            f"the recording {name} has version {version} of the format (made by {header.get('made-by', 'unknown')}), "
            f"and this is mantyx-sync {__version__}, which reads version {VERSION}"
        )


class _Reader:
    def __init__(self, name: str) -> None:
        self._name = name
        self.exchanges: dict[int, Exchange] = {}
        self._ended: set[int] = set()

    def damaged(self, number: int, why: str) -> RecordingError:
        return RecordingError(f"the recording {self._name} is damaged in line {number}: {why}")

    def read(self, number: int, text: str) -> bool:
        """Take in a line; tell whether it was the closing one."""
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            raise self.damaged(number, "it is no JSON") from None
        if not isinstance(line, dict):
            raise self.damaged(number, "it is no JSON object")
        if "end-of-recording" in line:
            open_ones = sorted(self.exchanges.keys() - self._ended)
            if open_ones:
                raise self.damaged(number, f"exchange {open_ones[0]} has no end")
            return True
        try:
            self._take(number, line)
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError, binascii.Error) as error:
            if isinstance(error, RecordingError):
                raise
            what = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
            raise self.damaged(number, what) from None
        return False

    def _take(self, number: int, line: dict[str, Any]) -> None:
        key, at = line["n"], float(line["at"])
        if not math.isfinite(at):
            raise self.damaged(number, f"its time is {at}")
        if "request" in line:
            if key in self.exchanges:
                raise self.damaged(number, f"exchange {key} has begun before")
            method, _, path = line["request"].partition(" ")
            if not path.startswith("/"):
                raise self.damaged(number, "its request is not of the form METHOD /path")
            forms = [form for form in _BODY_FORMS if form in line]
            self.exchanges[key] = Exchange(
                key,
                method,
                path,
                query=[(str(name), str(value)) for name, value in line.get("query", ())],
                headers=dict(line.get("headers", {})),
                body=(forms[0], _checked(forms[0], line[forms[0]])) if forms else None,
                at=at,
                order=number,
            )
            return
        exchange = self.exchanges.get(key)
        if exchange is None or key in self._ended:
            raise self.damaged(number, f"there is no exchange {key} that it could belong to")
        if "status" in line:
            exchange.status, exchange.head_at, exchange.head_order = int(line["status"]), at, number
            exchange.answer_headers = [(str(name), str(value)) for name, value in line.get("headers", ())]
            exchange.length = None if line.get("length") is None else int(line["length"])
        elif "end" in line:
            if line["end"] not in _ENDS:
                raise self.damaged(number, f"its end is {line['end']!r}, must be one of {', '.join(_ENDS)}")
            exchange.end, exchange.end_at, exchange.end_order = line["end"], at, number
            exchange.why = line.get("why")
            if exchange.status is None and exchange.end not in (NO_ANSWER, CLIENT_LEFT):
                raise self.damaged(number, f"exchange {key} ends without an answer")
            self._ended.add(key)
        else:
            data = line["data"].encode() if "data" in line else base64.b64decode(line["base64"], validate=True)
            exchange.pieces.append(Piece(data, at, number))


def _checked(form: str, content: Any) -> Any:
    """Return the content of a body that somebody may have edited."""
    if form == "form":
        for pair in content:
            if not isinstance(pair, list) or [type(part) for part in pair] != [str, str]:
                raise ValueError(f"{pair!r} is no field of a form")
    elif form == "base64":
        base64.b64decode(content, validate=True)
    elif form == "text" and not isinstance(content, str):
        raise ValueError("its text is none")
    return content
