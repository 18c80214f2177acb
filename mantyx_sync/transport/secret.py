"""Text and bytes that are not shown where the values around them are: in reprs, and in dumps of a frame's locals."""

from __future__ import annotations

__all__ = ["Secret", "SecretBytes"]


class Secret(str):
    """A credential. It is the text in every way but `repr`."""

    def __repr__(self) -> str:
        return "'***'"


class SecretBytes(bytes):
    """A request body that holds a credential."""

    def __repr__(self) -> str:
        return "b'***'"
