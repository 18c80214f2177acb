"""Dates, times, durations and other `format` strings of JSON Schema: reading, checking, writing.

Type hints, JSON Schemas and tool results agree because all three come here. Reading is a little more
generous than RFC 3339, since models are: the offset of a time may be missing (the value is then naive), a
space may stand for the `T`, and seconds may be left out. `datetime.fromisoformat` is not used because what
it accepts differs from one Python version to the next.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
import uuid
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from typing import Callable, Dict, Optional

__all__ = [
    "FORMATS",
    "format_duration",
    "parse_base64",
    "parse_date",
    "parse_datetime",
    "parse_duration",
    "parse_time",
]

_DATE = r"(\d{4})-(\d\d)-(\d\d)"
_TIME = r"(\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?(Z|z|[+-]\d\d:?\d\d)?"
_DATE_RE = re.compile(_DATE, re.ASCII)
_TIME_RE = re.compile(_TIME, re.ASCII)
_DATETIME_RE = re.compile(f"{_DATE}[Tt ]{_TIME}", re.ASCII)
_DURATION_RE = re.compile(
    r"([+-])?P(?=[\dT])(?:(\d+)Y)?(?:(\d+)M)?(?:(\d+)W)?(?:(\d+)D)?"
    r"(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:[.,](\d{1,9}))?S)?)?",
    re.ASCII,
)
_EMAIL_RE = re.compile(r"[^@\s]+@[^@\s]+")
_URI_RE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S+")


def parse_date(text: str) -> date:
    """Read `2024-05-01`.

    Raises:
        ValueError: It is not a date.
    """
    match = _DATE_RE.fullmatch(text)
    if match is None:
        raise ValueError("not a date")
    return date(*map(int, match.groups()))


def parse_time(text: str) -> time:
    """Read `10:30:00`, with an optional fraction and offset.

    Raises:
        ValueError: It is not a time.
    """
    match = _TIME_RE.fullmatch(text)
    if match is None:
        raise ValueError("not a time")
    hour, minute, second, fraction, offset = match.groups()
    return time(int(hour), int(minute), int(second or 0), _microseconds(fraction), _offset(offset))


def parse_datetime(text: str) -> datetime:
    """Read `2024-05-01T10:30:00Z`.

    Raises:
        ValueError: It is not a date with a time.
    """
    match = _DATETIME_RE.fullmatch(text)
    if match is None:
        raise ValueError("not a date and time")
    year, month, day, hour, minute, second, fraction, offset = match.groups()
    return datetime(
        int(year),
        int(month),
        int(day),
        int(hour),
        int(minute),
        int(second or 0),
        _microseconds(fraction),
        _offset(offset),
    )


def parse_duration(text: str) -> timedelta:
    """Read an ISO 8601 duration of weeks, days, hours, minutes and seconds: `P1DT2H30M`.

    Raises:
        ValueError: It is not a duration, or it counts years or months, which have no fixed length.
    """
    match = _DURATION_RE.fullmatch(text)
    if match is None:
        raise ValueError("not a duration")
    sign, years, months, weeks, days, hours, minutes, seconds, fraction = match.groups()
    if years or months:
        raise ValueError("years and months have no fixed length")
    try:
        value = timedelta(
            weeks=int(weeks or 0),
            days=int(days or 0),
            hours=int(hours or 0),
            minutes=int(minutes or 0),
            seconds=int(seconds or 0),
            microseconds=_microseconds(fraction),
        )
    except OverflowError as exc:
        raise ValueError("the duration is out of range") from exc
    return -value if sign == "-" else value


def format_duration(value: timedelta) -> str:
    """Write a duration as ISO 8601, the way `parse_duration` reads it."""
    sign, value = ("-", -value) if value < timedelta(0) else ("", value)
    minutes, seconds = divmod(value.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    clock = (f"{hours}H" if hours else "") + (f"{minutes}M" if minutes else "")
    if value.microseconds:
        clock += f"{seconds}.{value.microseconds:06d}".rstrip("0") + "S"
    elif seconds:
        clock += f"{seconds}S"
    days = f"{value.days}D" if value.days else ""
    return f"{sign}P{days}{'T' + clock if clock else ''}" if days or clock else "PT0S"


def parse_base64(text: str) -> bytes:
    """Read base64 of the standard or the URL-safe alphabet.

    Raises:
        ValueError: It is not base64.
    """
    try:
        return base64.b64decode(text.replace("-", "+").replace("_", "/"), validate=True)
    except binascii.Error as exc:
        raise ValueError("not base64") from exc


def _microseconds(fraction: Optional[str]) -> int:
    return int((fraction or "0")[:6].ljust(6, "0"))


def _offset(text: Optional[str]) -> Optional[tzinfo]:
    if text is None:
        return None
    if text in ("Z", "z"):
        return timezone.utc
    delta = timedelta(hours=int(text[1:3]), minutes=int(text[-2:]))
    return timezone(-delta if text[0] == "-" else delta)


def _shaped_like(pattern: re.Pattern[str]) -> Callable[[str], object]:
    def check(text: str) -> None:
        if pattern.fullmatch(text) is None:
            raise ValueError("unlike the format")

    return check


# `format` words that are checked, each by a function that raises ValueError. Every other word is a comment,
# as JSON Schema says. Which words jsonschema itself checks depends on what else happens to be installed.
FORMATS: Dict[str, Callable[[str], object]] = {
    "date": parse_date,
    "time": parse_time,
    "date-time": parse_datetime,
    "duration": _shaped_like(_DURATION_RE),
    "email": _shaped_like(_EMAIL_RE),
    "ipv4": ipaddress.IPv4Address,
    "ipv6": ipaddress.IPv6Address,
    "uri": _shaped_like(_URI_RE),
    "uuid": uuid.UUID,
}
