"""The door to the views: `html_of` for a notebook's cell, `page_of` for a document. Does no I/O."""

from __future__ import annotations

import importlib
from typing import Any, Callable, Mapping, Optional

from mantyx_sync.display.html import Html, el, escape, fragment, one_line, page
from mantyx_sync.reprs import brief

__all__ = ["html_of", "page_of"]

# By the class's module and name, so that showing a plan loads no client.
_VIEWS: Mapping[str, str] = {
    "results.RunResult": "run_view.result_card",
    "errors.MantyxRunError": "run_view.error_card",
    "run.Run": "run_view.run_card",
    "results.RunSnapshot": "run_view.snapshot_card",
    "results.RunSummary": "run_view.summary_card",
    "values.TaskPlan": "run_view.plan_card",
    "pages.Page": "listing_view.page_card",
    "session.AgentSession": "listing_view.session_card",
    "session_info.SessionInfo": "listing_view.session_info_card",
    "session_info.SessionSummary": "listing_view.session_summary_card",
    "session_info.SessionEventsPage": "listing_view.session_events_card",
    "models.ModelCatalog": "listing_view.catalog_card",
    "models.ModelInfo": "listing_view.model_card",
    "eval_results.EvalRunSummary": "eval_view.eval_card",
    "eval_results.EvalCaseResult": "eval_view.case_result_card",
    "eval_results.EvalRunCompare": "eval_view.compare_card",
    "eval_results.EvalDatasetDetail": "eval_view.dataset_card",
    "eval_results.EvalDatasetSummary": "eval_view.dataset_summary_card",
    "display.timeline.Timeline": "timeline.timeline_card",
}


def html_of(obj: Any) -> str:
    """Return how an object looks, as one block of HTML for a notebook's cell.

    Sends no request, reads no file, waits for nothing. All text is escaped and bounded; what is left out is counted.
    An object that cannot be drawn, since something in it is not what it should be, is shown by its short repr.

    Args:
        obj: A result, a run or its error, a snapshot, a plan, a page of a listing, a session and what the server tells
            of it, a model catalog, an eval and its parts, a timeline; or a list of messages, events or such lines.

    Raises:
        TypeError: There is no view for such an object.
    """
    return fragment(_drawn(obj))


def page_of(obj: Any) -> str:
    """Return how an object looks, as a whole HTML document that needs nothing else.

    Args and errors are those of `html_of`.
    """
    return page(_title(obj), _drawn(obj))


def _drawn(obj: Any) -> Html:
    view = _view(obj)
    if view is None:
        raise TypeError(
            f"html_of: there is no view for {_a(type(obj).__name__)}; results, runs, sessions, plans, listings, "
            "model catalogs and evals have one"
        )
    try:
        return view(obj)
    except Exception:  # whatever is wrong in it: looking at an object must not fail
        return el("div", el("pre", escape(brief(obj, 300)), cls="code"), cls="card")


def _view(obj: Any) -> Optional[Callable[[Any], Html]]:
    for cls in type(obj).__mro__:
        package, _, module = cls.__module__.partition(".")
        if package == "mantyx_sync" and f"{module}.{cls.__qualname__}" in _VIEWS:
            name, _, function = _VIEWS[f"{module}.{cls.__qualname__}"].partition(".")
            found: Callable[[Any], Html] = getattr(importlib.import_module(f"mantyx_sync.display.{name}"), function)
            return found
    return _view_of_list(obj) if isinstance(obj, (list, tuple)) and obj else None


def _view_of_list(items: Any) -> Optional[Callable[[Any], Html]]:
    from mantyx_sync.display import listing_view
    from mantyx_sync.events import RunEvent

    if all(isinstance(item, RunEvent) for item in items):
        return listing_view.events_card
    if all(isinstance(item, Mapping) and "role" in item for item in items):
        return listing_view.messages_card
    return listing_view.listing_card if all(_view(item) is not None for item in items) else None


def _title(obj: Any) -> str:
    for name in ("run_id", "session_id", "name", "label", "id"):
        value = obj.__dict__.get(name) if hasattr(obj, "__dict__") else None
        if isinstance(value, str) and value:
            return f"{_words(type(obj).__name__)} {one_line(value, 80)}"
    return _words(type(obj).__name__)


def _words(name: str) -> str:
    spaced = "".join(f" {char.lower()}" if char.isupper() else char for char in name).strip()
    return spaced.replace("mantyx ", "").capitalize()


def _a(name: str) -> str:
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"
