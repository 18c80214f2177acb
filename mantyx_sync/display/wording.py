"""How numbers, times and sizes read, in HTML, in terminals and in plain text. Pure."""

from __future__ import annotations

import math
from datetime import datetime, timezone

from mantyx_sync.values import TokenUsage

__all__ = [
    "amount",
    "calls_made",
    "clock",
    "count",
    "duration",
    "milliseconds",
    "money",
    "percent",
    "plural",
    "spent",
    "ticking",
    "when",
]


def duration(seconds: float | None) -> str:
    """Say how long something took: `340 ms`, `3.4 s`, `2 min 05 s`, `1 h 02 min`. Empty for `None`."""
    if seconds is None or not math.isfinite(seconds):
        return ""
    seconds = max(0.0, seconds)
    if seconds < 0.0005:
        return "0 ms" if seconds == 0 else "under 1 ms"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = int(seconds + 0.5)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = int(seconds / 60 + 0.5)
    return f"{minutes // 60:,} h {minutes % 60:02d} min"


def milliseconds(number: float | None) -> str | None:
    """Say how long so many milliseconds are, as `duration` does; `None` stays `None`."""
    return None if number is None else duration(number / 1000)


def ticking(seconds: float) -> str:
    """Say how long something has been going on, in steps that can be watched: `0.3 s`, `12 s`, `2 min 05 s`."""
    return f"{max(0.0, seconds):.1f} s" if seconds < 9.95 else duration(seconds)


def count(number: float | None) -> str | None:
    """Write a number with its thousands apart; `None` stays `None`."""
    if number is None:
        return None
    return f"{number:,}" if isinstance(number, int) else f"{number:,g}"


def plural(number: int, one: str, many: str | None = None) -> str:
    """Say how many there are: `1 run`, `2 runs`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def calls_made(number: int, failed: int = 0) -> str:
    """Say how many tools were called: `12 tool calls (1 failed)`."""
    return plural(number, "tool call") + (f" ({failed:,} failed)" if failed else "")


def spent(tokens: TokenUsage | None) -> str:
    """Say how many tokens a run took: `1,204 tokens in, 310 out`. Empty for `None`."""
    return "" if tokens is None else f"{tokens.input_tokens:,} tokens in, {tokens.output_tokens:,} out"


def amount(size_bytes: int | None) -> str | None:
    """Say how large something is: `512 bytes`, `3.4 kB`, `5.1 MB`."""
    if size_bytes is None:
        return None
    if size_bytes < 1000:
        return plural(size_bytes, "byte")
    size, unit = size_bytes / 1000, "kB"
    for larger in ("MB", "GB", "TB"):
        if size < 999.5:
            break
        size, unit = size / 1000, larger
    return f"{size:.1f} {unit}" if size < 99.5 else f"{size:,.0f} {unit}"


def percent(share: float | None) -> str | None:
    """Write a share of 1 as per cent."""
    return None if share is None or not math.isfinite(share) else f"{100 * share:.1f}".replace(".0", "") + " %"


def money(dollars: float | None) -> str | None:
    """Write a price in US dollars, with as many digits as it has, two at least."""
    if dollars is None:
        return None
    text = f"{dollars:,.4f}".rstrip("0")
    whole, _, cents = text.partition(".")
    return f"${whole}.{cents.ljust(2, '0')}"


def when(text: str | None) -> str | None:
    """Shorten an ISO 8601 time to the minute, in UTC; what is no such time stays as it is."""
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith("Z") else text)
        if found.tzinfo is not None:
            found = found.astimezone(timezone.utc)
    except (ValueError, OverflowError):
        return text
    return found.strftime("%Y-%m-%d %H:%M")


def clock(seconds: float) -> str:
    """Write a time since 1970 as a date and time in UTC; empty if there is no such date."""
    try:
        return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return ""
