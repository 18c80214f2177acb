"""Which objects of a kind are alive: a list that keeps none of them so."""

from __future__ import annotations

import weakref
from typing import Generic, TypeVar

__all__ = ["Roster"]

T = TypeVar("T")


class Roster(Generic[T]):
    """Objects that others hold. Safe to use from any thread and by the collector, without a lock."""

    def __init__(self) -> None:
        # A dictionary, since unlike a WeakSet it can be listed while other threads add to it.
        self._by_id: weakref.WeakValueDictionary[int, T] = weakref.WeakValueDictionary()

    def add(self, item: T) -> None:
        """List an object for as long as it is alive."""
        self._by_id[id(item)] = item

    def discard(self, item: T) -> None:
        """Take an object off the list, if it is there."""
        self._by_id.pop(id(item), None)

    def items(self) -> list[T]:
        """Return the objects that are alive."""
        return [item for item in (reference() for reference in self._by_id.valuerefs()) if item is not None]
