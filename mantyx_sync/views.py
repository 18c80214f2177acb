"""How objects are shown in a notebook or saved as a page: one door to `display`, opened when somebody looks."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Union

if TYPE_CHECKING:
    from mantyx_sync.display import Timeline

__all__ = ["Timed", "Viewable"]


class Viewable:
    """What has a view: notebooks show it by themselves, and `to_html` saves it."""

    def _repr_html_(self) -> str:
        from mantyx_sync.display import html_of

        return html_of(self)

    def to_html(self, path: Union[str, os.PathLike[str], None] = None) -> str:
        """Return the view as a whole HTML document, which needs nothing else; write it to `path` if that is given.

        Sends no request: it shows what is known here.

        Raises:
            OSError: The file cannot be written.
        """
        from mantyx_sync.display import page_of

        page = page_of(self)
        if path is not None:
            with open(path, "w", encoding="utf-8", errors="replace") as file:
                file.write(page)
        return page


class Timed(Viewable):
    """What also knows when things happened: a run, its result, its failure."""

    def timeline(self) -> Timeline:
        """Return a picture of the run in time: model turns, tool calls, guards, tokens. Sends no request.

        Raises:
            MantyxConfigError: Nobody noted the times: the run was not followed here.
        """
        from mantyx_sync.display import Timeline

        return Timeline.of(self)
