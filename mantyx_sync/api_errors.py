"""From a response with an error status to the error that is raised (http §1). Does no I/O.

Servers, and the proxies in front of them, say what is wrong in many ways: JSON of several shapes, HTML, text, nothing.
"""

from __future__ import annotations

import json
import re
from typing import Any, Mapping

from mantyx_sync.errors import (
    MantyxAPIError,
    MantyxAuthError,
    MantyxBadRequestError,
    MantyxConflictError,
    MantyxForbiddenError,
    MantyxNotFoundError,
    MantyxRateLimitError,
    MantyxScopeError,
    MantyxServerError,
    RateLimit,
    cut,
)

__all__ = ["api_error", "rate_limit", "request_id"]

_MAX_BODY_TEXT = 200
_MAX_KEPT_BODY = 64 * 1024


def api_error(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    method: str,
    path: str,
    retry_after: float | None = None,
) -> MantyxAPIError:
    """Build the error for a response of status `status` (http §1). Does no I/O and never raises.

    Args:
        status: HTTP status of the response.
        headers: Its headers, looked up without regard to case (or with lower-case keys).
        body: Its body, in whatever form: JSON of any shape, HTML, text, nothing.
        method: Method of the request, for the message.
        path: Path of the request, for the message; a query string is left out.
        retry_after: Seconds the server asked us to wait, already parsed.
    """
    decoded = _decode_body(body)
    fields = decoded if isinstance(decoded, dict) else {}
    nested = fields.get("error")
    nested = nested if isinstance(nested, dict) else {}
    code = _code(status, fields, nested)
    hint = _text(fields.get("hint")) or _text(nested.get("hint"))
    candidates = fields.get("candidates")
    candidates = tuple(candidates) if isinstance(candidates, list) else ()
    reason = _reason(fields, nested, code) or _body_text(decoded)

    where = f"{method} {path.split('?', 1)[0]}: {status} {code}"
    message = where + (f": {cut(reason)}" if reason and reason != code else "")
    if hint:
        message += f" (hint: {cut(hint)})"
    names = [name for name in map(_candidate_name, candidates[:5]) if name]
    if names:
        message += f" (candidates: {cut(', '.join(names))})"

    details: dict[str, Any] = {
        "status": status,
        "code": code,
        "hint": hint,
        "request_id": request_id(headers),
        "body": decoded,
        "retry_after": retry_after,
        "rate_limit": rate_limit(headers),
        "candidates": candidates,
    }
    if status == 403 and "insufficient_scope" in (code, fields.get("error"), fields.get("code")):
        scopes = _scopes(fields.get("required")) or _challenge_scopes(_header(headers, "WWW-Authenticate"))
        if scopes:
            message += f" (required: {cut(' '.join(scopes))})"
        return MantyxScopeError(message, scopes, **details)
    return _error_class(status)(message, **details)


def request_id(headers: Mapping[str, str]) -> str | None:
    """Read the id under which the server knows the request, for its operators to find it by."""
    return _header(headers, "X-Request-Id") or _header(headers, "Request-Id")


def rate_limit(headers: Mapping[str, str]) -> RateLimit | None:
    """Read the `X-RateLimit-*` headers of a response; `None` if it has none that can be read."""
    found = RateLimit(
        limit=_int(_header(headers, "X-RateLimit-Limit")),
        remaining=_int(_header(headers, "X-RateLimit-Remaining")),
        reset=_float(_header(headers, "X-RateLimit-Reset")),
        bucket=_header(headers, "X-RateLimit-Bucket"),
    )
    return None if found == RateLimit() else found


_CLASSES: dict[int, type[MantyxAPIError]] = {
    400: MantyxBadRequestError,
    401: MantyxAuthError,
    403: MantyxForbiddenError,
    404: MantyxNotFoundError,
    409: MantyxConflictError,
    422: MantyxBadRequestError,
    429: MantyxRateLimitError,
}
_CODE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
_SCOPE = re.compile(r'\bscope\s*=\s*(?:"([^"]*)"|([^\s,]+))', re.IGNORECASE)
_TITLE = re.compile(r"<title[^>]*>(.*?)</title", re.IGNORECASE | re.DOTALL)


def _error_class(status: int) -> type[MantyxAPIError]:
    if status >= 500:
        return MantyxServerError
    return _CLASSES.get(status, MantyxAPIError)


def _header(headers: Mapping[str, str], name: str) -> str | None:
    value = headers.get(name)
    if value is None:
        value = headers.get(name.lower())
    return value or None


def _decode_body(body: bytes) -> Any:
    """Return the JSON value in `body`, or its text (the start of it) where there is none."""
    text = body[:_MAX_KEPT_BODY].decode("utf-8", "replace").strip()
    if not text:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _code(status: int, fields: Mapping[str, Any], nested: Mapping[str, Any]) -> str:
    for value in (fields.get("code"), nested.get("code"), nested.get("type"), fields.get("error")):
        if isinstance(value, str) and _CODE.fullmatch(value):
            return value
    return "unauthorized" if status == 401 else f"http_{status}"


def _reason(fields: Mapping[str, Any], nested: Mapping[str, Any], code: str) -> str | None:
    for value in (
        fields.get("message"),
        nested.get("message"),
        fields.get("error_description"),
        fields.get("detail"),
        fields.get("title"),
        fields.get("error"),
    ):
        text = _text(value)
        if text and text != code:
            return text
    detail = fields.get("detail") or fields.get("errors") or fields.get("issues")
    return _plain(detail) if detail else None


def _body_text(decoded: Any) -> str | None:
    """Say shortly what a body held that has no message of its own."""
    if decoded is None or isinstance(decoded, dict):
        return None
    if not isinstance(decoded, str):
        return cut(_plain(decoded), _MAX_BODY_TEXT)
    title = _TITLE.search(decoded)
    if title:
        return cut(title.group(1), _MAX_BODY_TEXT)
    return cut(decoded, _MAX_BODY_TEXT)


def _candidate_name(candidate: Any) -> str | None:
    if isinstance(candidate, dict):
        return _text(candidate.get("id")) or _text(candidate.get("name"))
    return _text(candidate)


def _scopes(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(value.split())
    if isinstance(value, list):
        return tuple(scope for item in value if isinstance(item, str) for scope in item.split())
    return ()


def _challenge_scopes(header: str | None) -> tuple[str, ...]:
    match = _SCOPE.search(header or "")
    return tuple((match.group(1) or match.group(2) or "").split()) if match else ()


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value.strip() else None


def _plain(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except RecursionError:
        return "a deeply nested value"


def _int(value: str | None) -> int | None:
    number = _float(value)
    return None if number is None else int(number)


def _float(value: str | None) -> float | None:
    try:
        number = float(value) if value is not None else None
    except ValueError:
        return None
    return number if number is not None and abs(number) < 1e18 else None
