"""Text that grows by small pieces. Pure."""

from __future__ import annotations

__all__ = ["Text"]

_PIECES = 512


class Text:
    """Text that grows by small pieces. Adding one takes the same short time however long the text is."""

    __slots__ = ("_blocks", "_pieces", "length")

    def __init__(self, text: str = "") -> None:
        self._blocks: list[str] = [text] if text else []
        self._pieces: list[str] = []  # a string of its own for each delta would take ten times the room of its text
        self.length = len(text)

    def add(self, piece: str) -> None:
        """Append a piece."""
        self._pieces.append(piece)
        self.length += len(piece)
        if len(self._pieces) >= _PIECES:
            self._blocks.append("".join(self._pieces))
            self._pieces.clear()

    def tail(self, chars: int) -> str:
        """Return the last `chars` characters, or all there are, without touching the rest."""
        found: list[str] = []
        for part in (*reversed(self._pieces), *reversed(self._blocks)):
            if chars <= 0:
                break
            found.append(part[-chars:])
            chars -= len(part)
        return "".join(reversed(found))

    def __str__(self) -> str:
        if len(self._blocks) + len(self._pieces) > 1:
            self._blocks = ["".join((*self._blocks, *self._pieces))]
            self._pieces.clear()
        return self._blocks[0] if self._blocks else "".join(self._pieces)

    def __len__(self) -> int:
        return self.length

    def __repr__(self) -> str:
        return f"<Text of {self.length} characters>"
