"""From arguments to the command they name, and from what it raises to an exit code.

Exit codes: 0 for a command that did what it was asked, 1 for one that failed, 2 for arguments that cannot be used.
A mistake of whoever typed the command is told in a sentence, never in a traceback.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Sequence

from .._version import __version__
from ..errors import MantyxError
from . import loom, spacefix
from .loading import Unusable

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    Args:
        arguments: Without the program's name; `None` takes those of the process.

    Raises:
        SystemExit: The arguments do not parse, or ask for help; as argparse does it.
    """
    options = _parser().parse_args(arguments)
    try:
        code = int(options.run(options))
        sys.stdout.flush()
        return code
    except Unusable as error:
        print(f"{_program()}: {error}", file=sys.stderr)
        return 2
    except MantyxError as error:
        print(f"{_program()}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left is not flushed into the pipe
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=_program(), description="Tools of mantyx-sync.")
    parser.add_argument("--version", action="version", version=f"mantyx-sync {__version__}")
    groups = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    loom.add_commands(groups)
    spacefix.add_commands(groups)
    return parser


def _program() -> str:
    return "mantyx-sync"
