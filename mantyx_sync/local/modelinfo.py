"""Which model a run reports: the `model` object of events, from a catalog id (wire §4.8.1)."""

from __future__ import annotations

from typing import Any, Mapping, Optional, Sequence, Union

from mantyx_sync import limits

__all__ = ["Catalog", "model_info", "reasoning_effort", "reasoning_number"]

Catalog = Optional[Sequence[Mapping[str, Any]]]


def model_info(model_id: str, catalog: Catalog = None, level: Union[str, int, None] = None) -> dict[str, Any]:
    """Build the `model` object of terminal events.

    Args:
        model_id: The catalog id, such as `local:rule`.
        catalog: Entries that say more about some ids; an unknown id is read as provider, colon, name.
        level: The run's `reasoningLevel`, for `reasoningEffort`.
    """
    provider, colon, vendor = model_id.partition(":")
    info = {
        "id": model_id,
        "provider": provider if colon else "local",
        "vendorModelId": vendor if colon else model_id,
    }
    for entry in catalog or ():
        if entry.get("id") == model_id:
            for name in ("provider", "vendorModelId"):
                info[name] = entry.get(name, info[name])
    if level is not None:
        info["reasoningEffort"] = reasoning_effort(level)
    return info


def reasoning_number(level: Union[str, int, None]) -> int:
    """Turn a `reasoningLevel` into its number from 0 to 100 (wire §6); an omitted one is 0."""
    if level is None:
        return 0
    return limits.REASONING_WORDS[level] if isinstance(level, str) else level


def reasoning_effort(level: Union[str, int, None]) -> str:
    """Name the band of a `reasoningLevel` (wire §4.8.1)."""
    number = reasoning_number(level)
    if number <= 0:
        return "off"
    return "low" if number <= 35 else "medium" if number <= 65 else "high"
