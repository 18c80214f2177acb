"""What a run, a session or a listing looks like: HTML for notebooks and pages, a picture of a run in time.

Notebooks ask for it by themselves; `obj.to_html(path)` writes it to a file. Nothing here asks a server for anything.

Where what lies:

    views                            which object has which view; `html_of` and `page_of`
    run_view listing_view eval_view  the views, each a card; `parts` is what they share
    html style                       elements that cannot be broken out of, and the one stylesheet
    wording wire_words               how numbers, times and the wire's objects read, in HTML and in terminals
    state growing notices            what there is to see of a run so far, folded from its events
    live live_card live_line         `watch`: a card in a cell of a `notebook`, a line in a `terminal`
    timeline timeline_*              a run in time: model, then layout, then SVG; or text
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__all__ = ["Timeline", "html_of", "page_of", "watch"]

if TYPE_CHECKING:
    from mantyx_sync.display.live import watch as watch
    from mantyx_sync.display.timeline import Timeline as Timeline
    from mantyx_sync.display.views import html_of as html_of
    from mantyx_sync.display.views import page_of as page_of

_MODULE_OF = {"Timeline": "timeline", "html_of": "views", "page_of": "views", "watch": "live"}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
