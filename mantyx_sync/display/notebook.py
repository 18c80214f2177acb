"""The cell of a notebook that is running: what is shown in it, updated in place. IPython is found, never loaded.

Works in what speaks Jupyter's protocol, JupyterLab and VS Code among them. IPython in a terminal is a terminal.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any, Callable

__all__ = ["Cell", "running_shell"]


def running_shell() -> Any | None:
    """Return IPython's shell if this process is the kernel of a notebook, else `None`."""
    ipython = sys.modules.get("IPython")
    get_ipython: Callable[[], Any] | None = getattr(ipython, "get_ipython", None)
    shell = None if get_ipython is None else get_ipython()
    # A shell in a terminal has no kernel; one of ours, in a test say, need not have the whole of it.
    kernel = getattr(shell, "kernel", None)
    return shell if getattr(kernel, "iopub_socket", None) is not None else None


class Cell:
    """One output of the cell that is running: made once, then replaced in place."""

    def __init__(self, shell: Any) -> None:
        """Show nothing yet.

        Args:
            shell: What `running_shell` returned.
        """
        self._shell = shell
        self._handle: Any = None

    def show(self, html: str, plain: str) -> None:
        """Show this in place of what is there.

        Args:
            plain: For front ends without HTML.
        """
        data = {"text/html": html, "text/plain": plain}
        if self._handle is None:
            display = importlib.import_module("IPython.display").display
            self._handle = display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)

    def stands_for(self, value: object) -> None:
        """Have the cell not show `value` once more when it is the cell's last expression; later cells show it.

        It is the cell's value all the same, under `_` and `Out`.
        """
        formatter = self._shell.display_formatter.ipython_display_formatter
        events = self._shell.events
        cls = type(value)
        before: list[Any] = []

        def show_others(other: object) -> None:
            if other is value:
                return
            forget()
            try:
                importlib.import_module("IPython.display").display(other)
            finally:
                remember()

        def remember() -> None:
            before[:] = [formatter.for_type(cls, show_others)]

        def forget() -> None:
            if before and before[0] is not None:
                formatter.for_type(cls, before[0])
            else:
                formatter.pop(cls, None)

        def over(*_: object) -> None:
            forget()
            events.unregister("post_execute", over)

        remember()
        events.register("post_execute", over)
