"""The command line: `python -m mantyx_sync`, also installed as `mantyx-sync`."""

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
