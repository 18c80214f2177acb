"""What a server writes to standard error: drained for as long as it lives, and its last lines kept."""

from __future__ import annotations

import threading

from .alive import rest_in_child
from .pipes import Inlet

__all__ = ["StderrTail", "last_lines"]

KEPT_BYTES = 8192
_QUOTED_CHARS = 600
_JOIN_S = 1.0


class StderrTail:
    """Reads a pipe on a thread of its own, so that the server never blocks on it, whatever else we are at."""

    def __init__(self, inlet: Inlet, name: str) -> None:
        """Take the pipe; `name` is the thread's."""
        self._inlet = inlet
        self._kept = bytearray()
        self._is_cut = False
        self._is_ending = self._is_left = False
        # Owned by this object; `end` wakes and joins it. A daemon, as the interpreter's end is what calls `end`.
        self._thread = threading.Thread(target=self._drain, name=name, daemon=True)

    def start(self) -> None:
        """Begin to read.

        Raises:
            RuntimeError: There is no thread to be had.
        """
        self._thread.start()

    def text(self, wait_s: float = 0.0) -> str:
        """Return what was kept; wait for the end of it, which is near when the server has exited."""
        if self._thread.is_alive():
            self._thread.join(wait_s)
        text = bytes(self._kept).decode("utf-8", "replace")
        if self._is_cut:  # not from the middle of a line
            text = text.partition("\n")[2] or text
        return text

    def end(self) -> None:
        """Stop reading and free the pipe. Blocks shortly."""
        self._is_ending = True
        self._inlet.wake()
        if self._thread.ident is not None:
            self._thread.join(_JOIN_S)
        self._inlet.close()

    def forget(self) -> None:
        """Free the pipe in a child of a fork. Takes no lock."""
        self._is_ending = self._is_left = True
        self._inlet.forget()

    def _drain(self) -> None:
        while not self._is_ending:
            data = self._inlet.read()
            if self._is_left:
                rest_in_child()
            if data == b"":
                return
            if data:
                self._kept += data
                if len(self._kept) > 2 * KEPT_BYTES:
                    del self._kept[:-KEPT_BYTES]
                    self._is_cut = True


def last_lines(text: str) -> str:
    """Return the end of a text for a sentence: on one line, without what is no text."""
    lines = [" ".join("".join(c if c.isprintable() else " " for c in line).split()) for line in text.splitlines()]
    shown = " / ".join(line for line in lines if line)
    return shown if len(shown) <= _QUOTED_CHARS else "…" + shown[1 - _QUOTED_CHARS :]
