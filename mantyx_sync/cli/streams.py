"""Standard streams that a command can rely on: they are there, and take any text."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
from typing import IO, Any, Iterator

from ..display.terminal import is_terminal, plain

__all__ = ["drop_output", "is_about_output", "json_text", "note", "usable_streams"]

_OUTPUT_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


@contextlib.contextmanager
def usable_streams() -> Iterator[None]:
    """In the block, put an empty file in place of each stream that is closed, and have output take any text.

    What an encoding does not have is replaced: half an answer is worth more than an error.
    """
    opened: list[tuple[str, IO[str]]] = []
    errors: list[tuple[Any, str]] = []
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # closed before the start: `>&-`, a service without a console
            file: IO[str] = open(os.devnull, "r" if name == "stdin" else "w", encoding="utf-8")  # noqa: SIM115
            opened.append((name, file))
            setattr(sys, name, file)
    streams: list[Any] = [sys.stdout]
    if is_terminal(sys.stderr):  # an escape there takes more room than was reckoned with
        streams.append(sys.stderr)
    for stream in streams:
        handling = getattr(stream, "errors", None)
        if handling in ("strict", "surrogateescape", "backslashreplace") and hasattr(stream, "reconfigure"):
            errors.append((stream, handling))
            stream.reconfigure(errors="replace")
    try:
        yield
    finally:
        for stream, handling in errors:
            with contextlib.suppress(OSError, ValueError):
                stream.reconfigure(errors=handling)
        for name, file in opened:
            if getattr(sys, name) is file:
                setattr(sys, name, None)
            with contextlib.suppress(OSError):
                file.close()


def json_text(value: Any, stream: IO[str], indent: int | None = None) -> str:
    """Return a value as JSON, on one line unless indented, as readable as the stream's encoding allows."""
    text = json.dumps(value, ensure_ascii=False, default=str, indent=indent)
    encoding = (getattr(stream, "encoding", None) or "utf-8").lower().replace("_", "-")
    try:
        if encoding not in ("utf-8", "utf8"):  # no other holds JSON, but for what all of them have
            encoding = "ascii"
        text.encode(encoding)
    except UnicodeEncodeError:  # also half of a surrogate pair
        return json.dumps(value, default=str, indent=indent)
    return text


def note(text: str) -> None:
    """Write a line to standard error; if nobody can be told, that is no reason to end."""
    with contextlib.suppress(OSError, ValueError):
        print(plain(text) if is_terminal(sys.stderr) else text, file=sys.stderr, flush=True)


def is_about_output(error: OSError) -> bool:
    """Tell whether an error is one of writing to standard output, not of a file with a name."""
    return error.errno in _OUTPUT_ERRORS and error.filename is None


def drop_output() -> None:
    """Have what standard output still holds go nowhere: written at the end of the process, it would fail once more."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, sys.stdout.fileno())
        finally:
            os.close(nowhere)
