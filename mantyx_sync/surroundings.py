"""Where this process runs: who would see what is drawn, on a terminal or in a notebook. Loads nothing to find out."""

from __future__ import annotations

import sys
from typing import IO, Any, Callable, Optional

__all__ = ["is_terminal", "notebook_shell"]


def is_terminal(stream: Optional[IO[Any]]) -> bool:
    """Tell whether a stream is a terminal; one that is closed or is no file is none."""
    try:
        return stream is not None and bool(stream.isatty())
    except (AttributeError, ValueError, OSError):
        return False


def notebook_shell() -> Any | None:
    """Return IPython's shell if this process is the kernel of a notebook, else `None`. IPython is found, never loaded.

    Jupyter's own front ends and VS Code have such kernels. IPython in a terminal is a terminal.
    """
    ipython = sys.modules.get("IPython")
    get_ipython: Callable[[], Any] | None = getattr(ipython, "get_ipython", None)
    shell = None if get_ipython is None else get_ipython()
    # A shell in a terminal has no kernel; one of ours, in a test say, need not have the whole of it.
    kernel = getattr(shell, "kernel", None)
    return shell if getattr(kernel, "iopub_socket", None) is not None else None
