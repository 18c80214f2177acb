"""What the gateway refuses, in this package's words (spacefix, "Errors on connect"). Does no I/O.

Most refusals are errors of the common tree, told apart by what one would do next: `MantyxAuthError` (401: replace
the key), `MantyxForbiddenError` (403: a client's key, or the project is suspended), `MantyxRateLimitError` (429) and
`MantyxServerError` (5xx). A registration that cannot be accepted has an error of its own.
"""

from __future__ import annotations

import json
import re
from typing import Any, Mapping

from ..api_errors import api_error
from ..errors import MantyxAPIError, MantyxBadRequestError, cut

__all__ = ["SpaceFixRegistrationError", "gateway_error"]

_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_REGISTRATION_STATUSES = frozenset({400, 413, 415})


class SpaceFixRegistrationError(MantyxBadRequestError):
    """The gateway does not take what the agent registers; it will not before that is changed.

    `item` is the name of the tool or prompt, or the address of the resource, that it names; `None` where it names
    none.
    """

    item: str | None = None


def gateway_error(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    method: str,
    path: str,
    retry_after: float | None = None,
) -> MantyxAPIError:
    """Build the error for an answer of the gateway with an error status. Does no I/O and never raises.

    Args:
        body: `{"error": "…"}`, or an error in the shape of JSON-RPC where a project is suspended; a proxy's page
            does no harm.
        retry_after: Seconds the gateway asked us to wait, already parsed.
    """
    if status not in _REGISTRATION_STATUSES or not path.endswith("/agent/connect"):
        return api_error(status, headers, body, method=method, path=path, retry_after=retry_after)
    reason = _reason(body)
    error = SpaceFixRegistrationError(
        f"the gateway does not take this agent's registration ({status})" + (f": {cut(reason)}" if reason else ""),
        status=status,
        code="registration_refused",
        body=_decode(body),
    )
    error.item = _item(reason)
    return error


def _item(reason: str) -> str | None:
    """Find what a refusal is about: the first quoted word, except where that is an annotation or a list."""
    quoted = _QUOTED.findall(reason)
    if reason.startswith("Annotation"):
        quoted = quoted[1:]
    return quoted[0] if quoted and quoted[0] not in ("tools", "resources", "prompts") else None


def _reason(body: bytes) -> str:
    decoded = _decode(body)
    found = decoded.get("error") if isinstance(decoded, dict) else decoded
    return found.strip() if isinstance(found, str) else ""


def _decode(body: bytes) -> Any:
    text = body[: 64 * 1024].decode("utf-8", "replace")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text or None
