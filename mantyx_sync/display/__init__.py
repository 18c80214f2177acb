"""What a run, a session or a listing looks like: HTML for notebooks and pages, a picture of a run in time.

Notebooks ask for it by themselves; `obj.to_html(path)` writes it to a file. Nothing here asks a server for anything.
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
