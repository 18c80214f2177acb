"""From arguments to the command they name, and from what it raises to an exit code.

The codes are those of `exits`. A mistake of whoever typed the command is told in a sentence, never in a traceback.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
from typing import Any, Iterator, Sequence

from .._version import __version__
from ..errors import MantyxError
from ..transport.signals import handling
from . import chat, evals, exits, listings, loom, recording, run, serve, spacefix
from .connecting import ENVIRONMENT, refuse_keys
from .loading import NotKept, Unusable
from .parsing import Parser
from .streams import drop_output, is_about_output, note, usable_streams

__all__ = ["run_command"]

_PROGRAM = "mantyx-sync"
_EXAMPLES = """\
examples:
  mantyx-sync run --local "Hello"                          no account needed
  mantyx-sync run "Where is order 17?" --tool shop:get_order
  mantyx-sync chat --mcp "npx -y @modelcontextprotocol/server-filesystem ."
  mantyx-sync runs --status failed
  mantyx-sync COMMAND --help                               more, with examples
"""


def run_command(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    Args:
        arguments: Without the program's name; `None` takes those of the process.

    Raises:
        SystemExit: The arguments do not parse, or ask for help; as argparse does it.
    """
    with usable_streams(), _signals(is_own=arguments is None):
        parser = _parser()
        given = list(sys.argv[1:] if arguments is None else arguments)
        if not given:
            parser.print_help(sys.stderr)
            return parser.exit(exits.USAGE)
        options, more = parser.parse_known_args(given)
        if more:
            _take_more(options, more)
        return _run(options)


def _run(options: argparse.Namespace) -> int:
    try:
        code = int(options.run(options))
        sys.stdout.flush()
        return code
    except Unusable as error:
        _say(str(error))
        return exits.USAGE
    except NotKept as error:
        _say(str(error))
        return exits.FAILED
    except MantyxError as error:
        _say(str(error) + (f" ({error.hint})" if error.hint and error.hint not in str(error) else ""))
        return exits.code_of(error) if getattr(options, "tells_apart", True) else exits.FAILED
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    except exits.Stopped as stopped:
        return 128 + stopped.number
    except BrokenPipeError:  # whoever read the output has seen enough
        drop_output()
        return exits.BROKEN_PIPE
    except OSError as error:
        if not is_about_output(error):
            raise
        drop_output()
        _say(f"the output cannot be written: {error.strerror}")
        return exits.FAILED


def _parser() -> Parser:
    parser = Parser(
        prog=_PROGRAM,
        description="Run agents, talk to them, and see what they did, from a terminal.",
        epilog=f"{_EXAMPLES}\n{exits.EXIT_CODES}\n{ENVIRONMENT}",
    )
    parser.add_argument("--version", action="version", version=f"{_PROGRAM} {__version__}")
    refuse_keys(parser)
    groups = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    run.add_commands(groups)
    chat.add_commands(groups)
    listings.add_commands(groups)
    evals.add_commands(groups)
    serve.add_commands(groups)
    recording.add_commands(groups)
    loom.add_commands(groups)
    spacefix.add_commands(groups)
    return parser


def _take_more(options: argparse.Namespace, more: Sequence[str]) -> None:
    """Take words of a prompt that stand behind an option, which argparse does not; refuse all else."""
    parser: Any = getattr(options, "parser", None)
    prompt = getattr(options, "prompt", None)
    end = more.index("--") if "--" in more else len(more)
    if isinstance(prompt, list) and all(word == "-" or not word.startswith("-") for word in more[:end]):
        prompt.extend([*more[:end], *more[end + 1 :]])  # behind -- all are words
    elif isinstance(parser, Parser):
        parser.refuse_unknown(more)
    else:
        _parser().refuse_unknown(more)


@contextlib.contextmanager
def _signals(*, is_own: bool) -> Iterator[None]:
    """Have a signal that asks for the end interrupt the block, so that what goes on is cancelled and closed.

    Args:
        is_own: The process is there for the block alone: Ctrl-C behind it ends it without a word.
    """
    with handling(
        (signal.SIGINT, *exits.stopping_signals()),
        exits.Stopper(),
        # Whoever ignores it (nohup), or has plans of its own, is left.
        replaces=lambda handler: handler in (signal.SIG_DFL, signal.default_int_handler),
        behind=signal.SIG_DFL if is_own else None,
    ):
        yield


def _say(text: str) -> None:
    note(f"{_PROGRAM}: {text}")
