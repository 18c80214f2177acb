"""Listings: what is asked for, and one page of items that, looped over, walks on into the next ones."""

from __future__ import annotations

from dataclasses import field
from typing import Any, Callable, Generic, Iterable, Iterator, Mapping, Optional, Tuple, TypeVar

from mantyx_sync.checks import refusal, whole_number
from mantyx_sync.errors import MantyxProtocolError
from mantyx_sync.limits import MAX_PAGE_SIZE
from mantyx_sync.reprs import dataclass
from mantyx_sync.views import Viewable
from mantyx_sync.wire import Fields, wire_name

__all__ = ["Page", "listing_query"]

T = TypeVar("T")
_PageT = TypeVar("_PageT", bound="Page[Any]")


def listing_query(
    *, limit: int | None, metadata: Mapping[str, str] | None, include_total: bool, **filters: str | None
) -> dict[str, str | int | list[str] | None]:
    """Return the query of a listing of runs or sessions (http §3); what is `None` in it is not sent.

    Args:
        limit: Items a page.
        metadata: Only items whose metadata has all of these.
        include_total: Have the server count all that match.
        filters: What else the items are to be; named as in Python.

    Raises:
        MantyxConfigError: `limit` or `metadata` is not allowed.
    """
    if limit is not None:
        whole_number(limit, "limit", 1, MAX_PAGE_SIZE)
    if metadata is not None and not isinstance(metadata, Mapping):
        raise refusal("metadata", f"a {type(metadata).__name__}", "be a mapping of names to texts")
    return {
        "limit": limit,
        "metadata": [f"{key}:{value}" for key, value in metadata.items()] if metadata else None,
        "includeTotal": 1 if include_total else None,
        **{wire_name(name): value for name, value in filters.items()},
    }


@dataclass(frozen=True)
class Page(Viewable, Generic[T]):
    """One page of a listing.

    Looping over it yields its items and then those of the pages after it, fetching each when it is reached; so
    there is no `len()`. `items` are those of this page alone. `total` is `None` unless it was asked for.
    """

    items: Tuple[T, ...]
    next_cursor: Optional[str] = None
    total: Optional[int] = None
    limit: Optional[int] = None
    raw: Mapping[str, Any] = field(repr=False, compare=False, hash=False, default_factory=dict)
    fetch_next: Optional[Callable[[str], Page[T]]] = field(repr=False, compare=False, hash=False, default=None)

    @classmethod
    def read(
        cls: type[_PageT],
        fields: Fields,
        items: Iterable[Any],
        fetch_next: Callable[[str], Page[Any]] | None,
        **more: Any,
    ) -> _PageT:
        """Build a page from the fields of an answer and the items that were read from it.

        Args:
            fetch_next: Gets the page that a cursor stands for.
            more: Fields that a kind of page adds, or has from elsewhere than the answer.
        """
        found = {
            "next_cursor": fields.opt_text("nextCursor"),
            "total": fields.opt_int("total"),
            "limit": fields.opt_int("limit"),
            **more,
        }
        return cls(items=tuple(items), raw=fields.data, fetch_next=fetch_next, **found)

    def next_page(self) -> Page[T] | None:
        """Fetch the page after this one; `None` if this is the last. Blocks for one request.

        Raises:
            MantyxProtocolError: The server's next page points back at itself: walking on would never end.
        """
        if not self.next_cursor or self.fetch_next is None:
            return None
        page = self.fetch_next(self.next_cursor)
        if page.next_cursor == self.next_cursor:
            raise MantyxProtocolError("listing: the next page carries the cursor that led to it")
        return page

    def pages(self) -> Iterator[Page[T]]:
        """Yield this page and those after it, fetching each when it is reached."""
        page: Page[T] | None = self
        while page is not None:
            yield page
            page = page.next_page()

    def __iter__(self) -> Iterator[T]:
        for page in self.pages():
            yield from page.items

    def __getstate__(self) -> dict[str, Any]:
        # The way to the next page is a client's, which is not data: a page that was pickled ends with itself.
        return {**self.__dict__, "fetch_next": None}
