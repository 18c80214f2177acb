"""Which of the recorded requests a request is. Does no I/O."""

from __future__ import annotations

from typing import Iterable, Optional, Sequence

from mantyx_sync.local.matching import Asked, Comparison, compare, is_path, without_slug
from mantyx_sync.local.recording import Exchange
from mantyx_sync.local.redaction import REDACTED

__all__ = ["Requests"]


class Requests:
    """The recorded requests, and which of them have come again.

    Args:
        exchanges: What was recorded, in its order.
        ignore: Places that may differ, as for `compare`.
    """

    def __init__(self, exchanges: Sequence[Exchange], ignore: Iterable[str] = ()) -> None:
        self._ignore = tuple(ignore)
        self._routes: dict[tuple[str, str], list[Exchange]] = {}
        self._with_secrets: list[Exchange] = []
        for exchange in exchanges:
            if REDACTED in exchange.path:
                self._with_secrets.append(exchange)
            else:
                self._routes.setdefault((exchange.method, without_slug(exchange.path)), []).append(exchange)
        self.rewind()

    def rewind(self) -> None:
        """Have none of them come yet."""
        self._used: set[int] = set()
        self._left: dict[tuple[str, str], dict[int, Exchange]] = {}
        self._digests: dict[tuple[str, str], dict[str, list[Exchange]]] = {}

    def of_route(self, asked: Asked) -> list[Exchange]:
        """Return the requests with a method and path."""
        found = self._routes.get((asked.method, asked.path), [])
        others = [e for e in self._with_secrets if e.method == asked.method and is_path(e.path, asked.path)]
        return sorted([*found, *others], key=lambda exchange: exchange.number) if others else found

    def unused_of(self, asked: Asked) -> list[Exchange]:
        """Return those with a method and path that have not come."""
        left = self._left_of(asked)
        for number in self._used & left.keys():
            del left[number]
        return list(left.values())

    def find(self, asked: Asked) -> tuple[Exchange | None, Comparison | None]:
        """Return the request that fits, or the comparison with the one that comes closest."""
        same = self._same(asked)
        if same is not None:
            return same, compare(Asked.of(same), asked, self._ignore)
        closest: Optional[Comparison] = None
        for exchange in self.unused_of(asked):
            comparison = compare(Asked.of(exchange), asked, self._ignore)
            if not comparison.differences:
                return exchange, comparison
            comparison.line = exchange.order
            if closest is None or len(comparison.differences) < len(closest.differences):
                closest = comparison
        return None, closest

    def use(self, exchange: Exchange) -> None:
        """Note that a request has come."""
        self._used.add(exchange.number)

    def is_used(self, exchange: Exchange) -> bool:
        """Tell whether a request has come."""
        return exchange.number in self._used

    def _left_of(self, asked: Asked) -> dict[int, Exchange]:
        route = (asked.method, asked.path)
        if route not in self._left:
            self._left[route] = {e.number: e for e in self.of_route(asked) if e.number not in self._used}
        return self._left[route]

    def _same(self, asked: Asked) -> Exchange | None:
        """Return the first one that is the same in all: of thousands, not each is to be compared."""
        route = (asked.method, asked.path)
        if route not in self._digests:
            digests: dict[str, list[Exchange]] = {}
            for exchange in reversed(list(self._left_of(asked).values())):
                digests.setdefault(Asked.of(exchange).digest, []).append(exchange)
            self._digests[route] = digests
        open_ones = self._digests[route].get(asked.digest, [])
        while open_ones and open_ones[-1].number in self._used:
            open_ones.pop()
        return open_ones[-1] if open_ones else None
