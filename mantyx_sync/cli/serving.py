"""What `serve`, `record` and `replay` have in common: a server that lasts as long as a program, or until a signal."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import threading
from typing import Any, Iterator, Mapping, Sequence

from ..transport.signals import handling
from .exits import OK, Stopped, stopping_signals
from .loading import Unusable
from .parsing import whole
from .streams import note

__all__ = ["exports", "port_number", "serve", "take_program"]

_END_S = 5.0
LAST_ASKED = 3
"""A program may do with a signal what it likes, but not with the third."""


def port_number(text: str) -> int:
    """Read a port."""
    return whole(text, 0, 65_535)


def take_program(parser: Any) -> None:
    """Have all that stands behind `--` become `options.program`, untouched."""
    parse = parser.parse_known_args

    def parse_known_args(args: Sequence[str], namespace: Any = None) -> Any:
        given = list(args)
        program: list[str] = []
        if "--" in given:
            at = given.index("--")
            given, program = given[:at], given[at + 1 :]
            if not program:
                parser.error("there is no command behind --")
        options, more = parse(given, namespace)
        options.program = program
        return options, more

    parser.parse_known_args = parse_known_args


def exports(values: Mapping[str, str]) -> str:
    """Return lines for a shell that set variables."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in values.items())


def serve(program: Sequence[str], values: Mapping[str, str], what: str) -> int:
    """Run a program with these variables and return its exit code; without one, say them and wait for a signal.

    Args:
        what: What serves, for the line that a person reads.
    """
    if program:
        return _run(program, values)
    note(f"# {what}; Ctrl-C ends it")
    print(exports(values), end="", flush=True)
    with contextlib.suppress(KeyboardInterrupt, Stopped):  # a signal is how this is meant to end
        forever = threading.Event()
        while not forever.wait(3600.0):
            pass
    return OK


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Let no signal that asks for the end get between: the end is there, and something is being kept."""
    with handling((signal.SIGINT, *stopping_signals()), lambda *_: None):
        yield


def _run(program: Sequence[str], values: Mapping[str, str]) -> int:
    from ..local.api_server import proxy_exceptions

    environment = {**os.environ, **values, **proxy_exceptions(os.environ)}
    environment.pop("MANTYX_ACCESS_TOKEN", None)
    try:
        process = subprocess.Popen(list(program), env=environment)
    except FileNotFoundError:
        raise Unusable(f"there is no command {program[0]!r}") from None
    except OSError as error:
        raise Unusable(f"{program[0]!r} cannot be run: {error.strerror or error}") from None
    try:
        code = _wait(process)
    finally:
        _end(process)
    return code if code >= 0 else 128 - code


def _wait(process: subprocess.Popen[bytes]) -> int:
    asked = 0
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            asked += 1
            # A terminal sends Ctrl-C to the program as well, which decides what comes of it.
            if asked >= LAST_ASKED:
                process.kill()
            elif asked > 1 or not sys.stdin.isatty():
                process.terminate()
        except Stopped as stopped:
            asked += 1
            if asked >= LAST_ASKED:
                process.kill()
            else:
                process.send_signal(stopped.number)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
