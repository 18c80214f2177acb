"""Whether a request is the one that was recorded, and if not, what is different. Does no I/O.

Compared are method, path, query and body; the workspace's slug, the user agent and the order of keys are not. What
the recording lacks, since it was secret, fits anything, and so does what clients make up anew for each run.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Iterable, Mapping, Sequence

from mantyx_sync.local.recording import Exchange
from mantyx_sync.local.redaction import REDACTED, SLUG

__all__ = ["GENERATED_KEY", "Asked", "Comparison", "compare", "is_path", "short_path", "without_slug"]

GENERATED_KEY = "mantyx_sync.run"
"""The metadata entry by which a client that has lost an answer finds its run again: different in every process."""

MAX_SHOWN_CHARS = 120
MAX_DIFFERENCES = 12
_SLUG = re.compile(r"^(/api/v1/workspaces/)[^/]+")
_ABSENT = object()


@dataclass(frozen=True)
class Asked:
    """A request, as far as it is compared."""

    method: str
    path: str
    query: Mapping[str, Sequence[str]]
    body: tuple[str, Any] | None

    @property
    def digest(self) -> str:
        """The same text for the same request, whatever a client makes up anew for each run."""
        form, content = self.body or ("json", None)
        if form == "json" and isinstance(content, dict) and isinstance(content.get("metadata"), dict):
            metadata = content["metadata"]
            content = {**content, "metadata": {**metadata, **dict.fromkeys({GENERATED_KEY} & metadata.keys())}}
        return json.dumps([self.query, form, self.body is None, content], sort_keys=True)

    @classmethod
    def of(cls, exchange: Exchange) -> Asked:
        """Return what was asked in a recorded exchange."""
        query: dict[str, list[str]] = {}
        for name, value in exchange.query:
            query.setdefault(name, []).append(value)
        return cls(exchange.method, without_slug(exchange.path), query, exchange.body)

    def __str__(self) -> str:
        return f"{self.method} {short_path(self.path)}"


def without_slug(path: str) -> str:
    """Return a path with the same slug for every workspace."""
    return _SLUG.sub(rf"\g<1>{SLUG}", path)


def is_path(recorded: str, given: str) -> bool:
    """Tell whether a path is the recorded one, whatever the slug, and whatever stood where a secret did."""
    recorded = without_slug(recorded)
    if REDACTED not in recorded:
        return recorded == given
    parts, others = recorded.split("/"), given.split("/")
    return len(parts) == len(others) and all(
        one == other or _fits_redacted(one, other) for one, other in zip(parts, others)
    )


def short_path(path: str) -> str:
    """Return a path as people speak of it: below the workspace."""
    return _SLUG.sub("", path) or path


@dataclass
class Comparison:
    """What is different, a sentence each, and what the recording calls otherwise than this client."""

    differences: list[str] = field(default_factory=list)
    renamed: dict[str, str] = field(default_factory=dict)
    line: int = 0
    """Where the recorded request stands in its file."""

    def add(self, where: str, recorded: object, given: object) -> None:
        """Note a difference."""
        if isinstance(recorded, str) and isinstance(given, str):
            self.differences.append(f"{where}: {_difference_of_texts(recorded, given)}")
        elif recorded is _ABSENT:
            self.differences.append(f"{where}: not in the recording, now {_shown(given)}")
        elif given is _ABSENT:
            self.differences.append(f"{where}: missing, recorded {_shown(recorded)}")
        else:
            self.differences.append(f"{where}: recorded {_shown(recorded)}, now {_shown(given)}")

    def __str__(self) -> str:
        lines = self.differences[:MAX_DIFFERENCES]
        if len(self.differences) > len(lines):
            lines.append(f"and {len(self.differences) - len(lines)} more")
        return "\n".join(f"  {line}" for line in lines)


def compare(recorded: Asked, given: Asked, ignore: Iterable[str] = ()) -> Comparison:
    """Compare two requests of the same method and path.

    Args:
        ignore: Places that may differ, with dots: `metadata.trace_id`, `tools.*.description`, `query.limit`.
    """
    comparison = Comparison()
    walker = _Walker(comparison, [tuple(place.split(".")) for place in ignore])
    walker.walk(("query",), dict(recorded.query), dict(given.query))
    form: str
    content: Any
    given_content: Any
    form, content = recorded.body or ("json", _ABSENT)
    given_form, given_content = given.body or ("json", _ABSENT)
    if form == "form" and given_form == "form":
        content, given_content = dict(content), dict(given_content)
    elif form != given_form and _ABSENT not in (content, given_content) and content != REDACTED:
        comparison.differences.append(f"the body: recorded as {form}, now {given_form}")
        return comparison
    walker.walk((), content, given_content)
    return comparison


class _Walker:
    def __init__(self, comparison: Comparison, ignored: Sequence[tuple[str, ...]]) -> None:
        self._found = comparison
        self._ignored = ignored

    def _is_ignored(self, place: tuple[str, ...]) -> bool:
        return any(
            len(pattern) == len(place) and all(want in ("*", part) for want, part in zip(pattern, place))
            for pattern in self._ignored
        )

    def walk(self, place: tuple[str, ...], recorded: Any, given: Any) -> None:
        if place and self._is_ignored(place):
            return
        if isinstance(recorded, dict) and isinstance(given, dict):
            for name in dict.fromkeys([*recorded, *given]):
                self.walk((*place, str(name)), recorded.get(name, _ABSENT), given.get(name, _ABSENT))
        elif isinstance(recorded, list) and isinstance(given, list):
            for index in range(max(len(recorded), len(given))):
                one = recorded[index] if index < len(recorded) else _ABSENT
                other = given[index] if index < len(given) else _ABSENT
                self.walk((*place, str(index)), one, other)
        elif isinstance(recorded, str) and isinstance(given, str):
            if not self._fits(place, recorded, given):
                self._found.add(_written(place), recorded, given)
        elif recorded is _ABSENT or given is _ABSENT:
            if recorded is not given and recorded != REDACTED:
                self._found.add(_written(place), recorded, given)
        elif recorded != REDACTED and not _equal(recorded, given):
            self._found.add(_written(place), recorded, given)

    def _fits(self, place: tuple[str, ...], recorded: str, given: str) -> bool:
        if recorded == given:
            return True
        if place == ("metadata", GENERATED_KEY):
            self._found.renamed[recorded] = given
            return True
        prefix = f"{GENERATED_KEY}:"
        if place[:2] == ("query", "metadata") and recorded.startswith(prefix) and given.startswith(prefix):
            self._found.renamed[recorded[len(prefix) :]] = given[len(prefix) :]
            return True
        return _fits_redacted(recorded, given)


def _fits_redacted(recorded: str, given: str) -> bool:
    """Tell whether a text is the recorded one with something where secrets stood."""
    # Not a regular expression: with `.*` several times, a long text that does not fit would take for ever.
    first, *parts = recorded.split(REDACTED)
    if not parts or not given.startswith(first) or not given.endswith(parts[-1]):
        return False
    at, stop = len(first), len(given) - len(parts[-1])
    for part in parts[:-1]:
        found = given.find(part, at, stop)
        if found < 0:
            return False
        at = found + len(part)
    return at <= stop


def _equal(recorded: object, given: object) -> bool:
    """Compare two values of JSON, to which 1 and true are not the same."""
    return isinstance(recorded, bool) is isinstance(given, bool) and recorded == given


def _written(place: tuple[str, ...]) -> str:
    text = ""
    for part in place:
        text += f"[{part}]" if part.isdigit() else f".{part}" if text else part
    return text or "the body"


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= MAX_SHOWN_CHARS else text[: MAX_SHOWN_CHARS - 1] + "…"


def _difference_of_texts(recorded: str, given: str) -> str:
    """Show two texts from a little before the place where they part."""
    at = next(
        (i for i, (one, other) in enumerate(zip(recorded, given)) if one != other), min(len(recorded), len(given))
    )
    start = 0 if max(len(recorded), len(given)) <= MAX_SHOWN_CHARS else max(0, at - 30)
    lead = "…" if start else ""
    one, other = _shown(lead + recorded[start:]), _shown(lead + given[start:])
    return f"recorded {one}, now {other}" + (f" (from character {at})" if start else "")
