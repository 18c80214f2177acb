"""The cell of a notebook that is running: what is shown in it, updated in place, by Jupyter's protocol."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["Cell"]


class Cell:
    """One output of the cell that is running: made once, then replaced in place."""

    def __init__(self, shell: Any) -> None:
        """Show nothing yet.

        Args:
            shell: What `notebook_shell` returned.
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
        cls = type(value)
        withheld = _withheld.get(cls)
        if withheld is None or withheld.shell is not self._shell:
            withheld = _withheld[cls] = _Withheld(self._shell, cls)
        withheld.values.append(value)


class _Withheld:
    """Values of one class that the running cell has shown already, and what keeps IPython from showing them again."""

    def __init__(self, shell: Any, cls: type) -> None:
        self.shell = shell
        self.values: list[object] = []
        self._cls = cls
        self._events = shell.events
        self._formatter = shell.display_formatter.ipython_display_formatter
        self._before = self._formatter.for_type(cls, self._show)
        self._events.register("post_execute", self._over)

    def _show(self, value: object) -> None:
        if any(value is one for one in self.values):
            return
        self._restore()
        try:
            importlib.import_module("IPython.display").display(value)
        finally:
            self._formatter.for_type(self._cls, self._show)

    def _restore(self) -> None:
        if self._before is None:
            self._formatter.pop(self._cls, None)
        else:
            self._formatter.for_type(self._cls, self._before)

    def _over(self, *_: object) -> None:
        self._restore()
        _withheld.pop(self._cls, None)
        self._events.unregister("post_execute", self._over)


_withheld: dict[type, _Withheld] = {}
