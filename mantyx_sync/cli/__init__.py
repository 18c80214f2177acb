"""The command line: `python -m mantyx_sync`, also installed as `mantyx-sync`.

Where what lies:

    commands exits                            from arguments to a command, from its end to an exit code
    run chat listings evals loom spacefix     the commands: each adds its own to the parser and carries them out
    serve recording serving                   those that serve, with a program behind `--` or until a signal
    parsing connecting asking offering        what several take: options, the client, a run's fields, tools
    starting following answer                 a run from its request to its end
    screen showing tables outcomes            what is written: around a run, as a list, as JSON
    reading streams loading                   what is typed, the standard streams, modules of the caller's
"""

from __future__ import annotations

from typing import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    Args:
        arguments: Without the program's name; `None` takes those of the process.

    Raises:
        SystemExit: The arguments do not parse, or ask for help; as argparse does it.
    """
    try:
        from .commands import run_command  # takes longer than the rest of a start: Ctrl-C often comes meanwhile

        return run_command(arguments)
    except KeyboardInterrupt:
        return 130
