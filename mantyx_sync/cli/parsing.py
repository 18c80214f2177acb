"""What several commands need of the parser: its help, its hints, and arguments that are more than text."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import re
import sys
import traceback
from typing import Any, Callable, Iterator, NoReturn, Sequence, Tuple

from ..checks import closest

__all__ = [
    "Parser",
    "add_command",
    "add_json_option",
    "add_noise_options",
    "key_value",
    "log_shown",
    "log_to_stderr",
    "positive",
    "seconds",
    "share",
    "speed",
    "time_limit",
    "whole",
]

_LOG_FORMAT = "%(asctime)s %(levelname)s %(message)s"

_KEY_CHARS = 20
_CHOICE = re.compile(
    r"argument (?P<what>[^:]*): invalid choice: '(?P<given>[^']*)' \(choose from (?P<known>.*)\)", re.S
)


class _Help(argparse.RawDescriptionHelpFormatter):
    """Keeps the line ends of examples, and gives the options some room."""

    def __init__(self, prog: str, **settings: Any) -> None:
        super().__init__(prog, max_help_position=28, **settings)


class Parser(argparse.ArgumentParser):
    """A parser that takes no abbreviations, names the command that was meant, and repeats no value it was given."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        settings.setdefault("formatter_class", _Help)
        settings.setdefault("allow_abbrev", False)
        super().__init__(*arguments, **settings)

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, how the command is used, and end with exit code 2."""
        found = _CHOICE.match(message)
        if found is not None:
            what, given, choices = found.groups()
            known = re.findall(r"[^\s',]+", choices)
            near = closest(given, known)
            hint = f"; did you mean {near!r}?" if near else f" (there are: {', '.join(known)})"
            # What is as long as a key is not repeated: the option before it may not be one.
            shown = repr(given) if len(given) < _KEY_CHARS else "of that name"
            message = f"there is no {'command' if what == 'COMMAND' else what} {shown}{hint}"
        self.print_usage(sys.stderr)
        self.exit(2, f"{self.prog.split()[0]}: {message}\n")

    def refuse_unknown(self, words: Sequence[str]) -> NoReturn:
        """Say which of the arguments nobody knows."""
        options = [word.partition("=")[0] for word in words if word.startswith("-") and word != "-"]
        if not options:
            self.error("there are more arguments than the command takes; is a text with spaces not in quotes?")
        # Compared without the dashes, which all of them share.
        known = {name.lstrip("-"): name for action in self._actions for name in action.option_strings}
        near = known.get(closest(options[0].lstrip("-"), known) or "")
        self.error(f"there is no option {options[0]}" + (f"; did you mean {near}?" if near else ""))


def add_command(
    commands: Any,
    name: str,
    run: Callable[[argparse.Namespace], int],
    what: str,
    *,
    details: str = "",
    examples: str = "",
    words: str | None = None,
) -> argparse.ArgumentParser:
    """Add a command to a group of them.

    Args:
        run: What carries it out and returns the exit code.
        what: A line that says what it does, in lower case and without a full stop.
        details: More for its own help.
        examples: Command lines, one each line.
        words: What it takes beside options, for a usage that does not name them all.
    """
    description = what[0].upper() + what[1:] + "." + (f"\n\n{details.strip()}" if details else "")
    epilog = (
        "examples:\n" + "".join(f"  {line.strip()}\n" for line in examples.strip().splitlines()) if examples else None
    )
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=what,
        description=description,
        epilog=epilog,
        usage=None if words is None else f"%(prog)s [options] {words}".rstrip(),
    )
    parser.set_defaults(run=run, parser=parser, command=name)
    return parser


def add_json_option(command: argparse.ArgumentParser) -> None:
    """Add the option of commands that print things, one after the other."""
    command.add_argument("--json", action="store_true", help="print JSON, one object a line")


def add_noise_options(command: argparse._ActionsContainer, *, quiet: str, verbose: str) -> None:
    """Add the options that say how much is told beside the answer.

    Args:
        quiet: What `--quiet` does, for the help.
        verbose: What `--verbose` does.
    """
    noise = command.add_mutually_exclusive_group()
    noise.add_argument("-q", "--quiet", action="store_true", help=quiet)
    noise.add_argument("-v", "--verbose", action="store_true", help=verbose)


def seconds(text: str) -> float:
    """Read a duration."""
    value = _number(text, text, "a number of seconds")
    if not 0 <= value <= 86_400:
        raise argparse.ArgumentTypeError(f"got {text!r}, must be from 0 to 86400 seconds")
    return value


def time_limit(text: str) -> float:
    """Read how long something may take."""
    value = seconds(text)
    if value == 0:
        raise argparse.ArgumentTypeError("got '0', must be above 0 seconds")
    return value


def positive(text: str) -> int:
    """Read a number of things."""
    return whole(text, 1)


def whole(text: str, low: int, high: int | None = None) -> int:
    """Read a whole number within bounds."""
    must = f"{low} or more" if high is None else f"from {low} to {high}"
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"got {text!r}, must be a whole number, {must}") from None
    if value < low or (high is not None and value > high):
        raise argparse.ArgumentTypeError(f"got {text!r}, must be {must}")
    return value


def share(text: str) -> float:
    """Read a share: `0.9` or `90%`."""
    percent = text.endswith("%")
    value = _number(text[:-1] if percent else text, text, "a number") / (100 if percent else 1)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"got {text!r}, must be from 0 to 1, or from 0% to 100%")
    return value


def _number(digits: str, given: str, what: str) -> float:
    try:
        return float(digits)
    except ValueError:
        raise argparse.ArgumentTypeError(f"got {given!r}, must be {what}") from None


def speed(text: str) -> float:
    """Read how many times as fast."""
    value = _number(text, text, "a number above 0")
    if not value > 0:
        raise argparse.ArgumentTypeError(f"got {text!r}, must be above 0")
    return value


def key_value(text: str) -> Tuple[str, str]:
    """Read `KEY=VALUE`."""
    key, sign, value = text.partition("=")
    if not sign or not key:
        raise argparse.ArgumentTypeError("must be of the form KEY=VALUE")
    return key, value


def log_to_stderr(level: int) -> None:
    """Show what the package logs, unless the caller's module has set logging up."""
    logger = logging.getLogger("mantyx_sync")
    if _has_log(logger):
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(_LOG_FORMAT))
    logger.addHandler(handler)
    logger.setLevel(level)


@contextlib.contextmanager
def log_shown(*, is_verbose: bool) -> Iterator[None]:
    """Show warnings that the package logs in the block as a line each; with `is_verbose` all there is to know.

    Like `log_to_stderr` it leaves alone a logger that was set up by the caller's module.
    """
    logger = logging.getLogger("mantyx_sync")
    if _has_log(logger) or os.environ.get("MANTYX_LOG"):  # which the client goes by
        yield
        return
    handler, level = _Stderr(), logger.level
    handler.setFormatter(logging.Formatter(_LOG_FORMAT) if is_verbose else _OneLine())
    logger.addHandler(handler)
    logger.setLevel(logging.INFO if is_verbose else logging.WARNING)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def _has_log(logger: logging.Logger) -> bool:
    if logging.getLogger().handlers:
        return True
    return any(type(handler) is not logging.NullHandler for handler in logger.handlers)


class _Stderr(logging.StreamHandler):  # type: ignore[type-arg]  # generic for type checkers alone, before Python 3.11
    """Writes to what `sys.stderr` is at the time."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> Any:
        """Where to write."""
        return sys.stderr


class _OneLine(logging.Formatter):
    """A warning in a line; of a traceback no more than the error and its place in the caller's code."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line = f"{record.levelname.lower()}: {record.getMessage()}"
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            frames = traceback.extract_tb(error.__traceback__)
            place = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
            line += f": {type(error).__name__}{f': {error}' if str(error) else ''}{place}"
        return line
