"""Every error this package raises: one tree, split by what the caller would do next.

The tree:

    MantyxError
        MantyxConfigError        bad input, found before anything was sent (also a ValueError)
        MantyxNetworkError       the connection failed, or what came over it cannot be used
            MantyxProtocolError  the peer answered, but not in the protocol's terms
        MantyxTimeoutError       a deadline of the caller passed (also a TimeoutError)
        MantyxAPIError           the server refused a request; one subclass per kind of refusal
        MantyxRunError           a run ended without success; MantyxRunCancelled if it was stopped
        MantyxToolError          a local tool failed
        ToolError                raised by a tool's handler: its text goes to the model
            ToolInputError       the arguments do not fit the tool
        MantyxParseError         the model's text is not what `output_schema` asked for
        MantyxOAuthError         the token endpoint refused

Attributes are plain data and every error pickles. Messages never hold credentials, prompts or model output;
the text a server gives as its reason is quoted, cut to a readable length.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Iterable, Mapping

if TYPE_CHECKING:
    from mantyx_sync.values import RunModelInfo, StructuredOutputInfo, TokenUsage

__all__ = [
    "MantyxAPIError",
    "MantyxAuthError",
    "MantyxBadRequestError",
    "MantyxConfigError",
    "MantyxConflictError",
    "MantyxError",
    "MantyxForbiddenError",
    "MantyxNetworkError",
    "MantyxNotFoundError",
    "MantyxOAuthError",
    "MantyxParseError",
    "MantyxProtocolError",
    "MantyxRateLimitError",
    "MantyxRunCancelled",
    "MantyxRunError",
    "MantyxScopeError",
    "MantyxServerError",
    "MantyxTimeoutError",
    "MantyxToolError",
    "RateLimit",
    "ToolError",
    "ToolInputError",
    "api_error",
    "rate_limit",
    "request_id",
]

_MAX_SERVER_TEXT = 500
_MAX_BODY_TEXT = 200
_MAX_KEPT_BODY = 64 * 1024


def _rebuild(cls: type[MantyxError], args: tuple[Any, ...], state: dict[str, Any]) -> MantyxError:
    """Make an unpickled error again without calling its `__init__`, whose parameters are its own."""
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(state)
    return error


class MantyxError(Exception):
    """Base of every error this package raises.

    `message` is what `str()` gives, `code` a short word to switch on, `status` the HTTP status if one was
    involved, `hint` the server's advice. `run_id` and `request_id` are `None` where they do not apply.
    """

    run_id: str | None = None
    request_id: str | None = None

    def __init__(
        self, message: str, *, code: str = "mantyx_error", status: int | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.status = status
        self.hint = hint

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)

    def __repr__(self) -> str:
        status = "" if self.status is None else f", status={self.status}"
        return f"{type(self).__name__}({self.message!r}, code={self.code!r}{status})"


class MantyxConfigError(MantyxError, ValueError):
    """Something the caller gave cannot be used; nothing was sent."""

    def __init__(self, message: str, *, code: str = "invalid_config", hint: str | None = None) -> None:
        super().__init__(message, code=code, hint=hint)


class MantyxNetworkError(MantyxError):
    """The connection failed.

    `sent` is `False` if the request surely did not arrive, `None` if that is not known. `last_seq` is the
    place in the run's stream that was reached.
    """

    def __init__(
        self,
        message: str,
        *,
        cause: BaseException | None = None,
        run_id: str | None = None,
        last_seq: int | None = None,
        sent: bool | None = None,
        code: str = "network",
    ) -> None:
        super().__init__(message, code=code)
        if cause is not None:
            self.__cause__ = cause
        self.run_id = run_id
        self.last_seq = last_seq
        self.sent = sent


class MantyxProtocolError(MantyxNetworkError):
    """The peer's answer does not follow the protocol: wrong content type, malformed or oversize event."""

    def __init__(
        self,
        message: str,
        *,
        cause: BaseException | None = None,
        run_id: str | None = None,
        last_seq: int | None = None,
        sent: bool | None = None,
        code: str = "protocol",
    ) -> None:
        super().__init__(message, cause=cause, run_id=run_id, last_seq=last_seq, sent=sent, code=code)


class MantyxTimeoutError(MantyxError, TimeoutError):
    """A deadline the caller set has passed.

    Being a `TimeoutError` makes it an `OSError` as well: an `except OSError` around our calls takes it too.
    """

    def __init__(
        self,
        message: str,
        *,
        run_id: str | None = None,
        last_seq: int | None = None,
        cause: BaseException | None = None,
    ) -> None:
        super().__init__(message, code="timeout")
        if cause is not None:
            self.__cause__ = cause
        self.run_id = run_id
        self.last_seq = last_seq


@dataclass(frozen=True)
class RateLimit:
    """What the `X-RateLimit-*` headers said (http §1): calls allowed, calls left, time of reset, bucket."""

    limit: int | None = None
    remaining: int | None = None
    reset: float | None = None
    bucket: str | None = None


class MantyxAPIError(MantyxError):
    """The server answered with an error status (http §1).

    `body` is the decoded body, or the start of its text if it was not JSON. `retry_after` is in seconds.
    `candidates` are the server's suggestions, for instance model ids.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        code: str = "api_error",
        hint: str | None = None,
        request_id: str | None = None,
        body: Any = None,
        retry_after: float | None = None,
        rate_limit: RateLimit | None = None,
        candidates: Iterable[Any] = (),
    ) -> None:
        super().__init__(message, code=code, status=status, hint=hint)
        self.request_id = request_id
        self.body = body
        self.retry_after = retry_after
        self.rate_limit = rate_limit
        self.candidates = tuple(candidates)


class MantyxBadRequestError(MantyxAPIError):
    """400 or 422: the request as written cannot succeed; change it before trying again."""


class MantyxAuthError(MantyxAPIError):
    """401: the credential is missing, wrong or expired."""

    def __init__(
        self,
        message: str = "the API key or access token is missing or was not accepted",
        *,
        status: int | None = 401,
        code: str = "unauthorized",
        **details: Any,
    ) -> None:
        super().__init__(message, status=status, code=code, **details)


class MantyxForbiddenError(MantyxAPIError):
    """403: the credential is good, but not for this."""


class MantyxScopeError(MantyxForbiddenError):
    """403 `insufficient_scope`: the OAuth token lacks `required_scopes`; ask the user to consent to them."""

    def __init__(
        self,
        message: str,
        required_scopes: Iterable[str] | None = None,
        *,
        status: int | None = 403,
        code: str = "insufficient_scope",
        **details: Any,
    ) -> None:
        super().__init__(message, status=status, code=code, **details)
        self.required_scopes: tuple[str, ...] = tuple(required_scopes or ())


class MantyxNotFoundError(MantyxAPIError):
    """404: no such workspace, run, session or pending tool call."""


class MantyxConflictError(MantyxAPIError):
    """409: the run or session is past the point where this makes sense."""


class MantyxRateLimitError(MantyxAPIError):
    """429: too many calls; `retry_after` says how many seconds to wait, if the server did.

    A model provider's throttling is not this: it ends a run with a `MantyxRunError` of `error_class`
    `"rate_limit"`.
    """


class MantyxServerError(MantyxAPIError):
    """5xx: the server or a proxy in front of it failed."""


class MantyxRunError(MantyxError):
    """A run ended without success (wire §4.8).

    `subtype` (also `code`) says how; `error_class` is the platform's category. `partial_text` is whatever the
    model had written, for diagnosis: under an output schema it is usually JSON cut short. `retryable` is a
    hint. `tokens`, `turns` and `model` are `None` where the server does not report them.
    """

    def __init__(
        self,
        run_id: str,
        subtype: str,
        message: str,
        *,
        error_class: str | None = None,
        finish_reason: str | None = None,
        partial_text: str | None = None,
        retryable: bool | None = None,
        tokens: TokenUsage | None = None,
        turns: int | None = None,
        model: RunModelInfo | None = None,
        api_status: int | None = None,
        api_code: str | None = None,
        structured_output: StructuredOutputInfo | None = None,
        last_seq: int | None = None,
        raw: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message, code=subtype)
        self.run_id: str = run_id  # pyright: ignore[reportIncompatibleVariableOverride]  # here never None
        self.subtype = subtype
        self.error_class = error_class
        self.finish_reason = finish_reason
        self.partial_text = partial_text
        self.retryable = retryable
        self.tokens = tokens
        self.turns = turns
        self.model = model
        self.api_status = api_status
        self.api_code = api_code
        self.structured_output = structured_output
        self.last_seq = last_seq
        self.raw = raw


class MantyxRunCancelled(MantyxRunError):
    """The run was cancelled; `reason` is what the server gave for it, such as `"user"`."""

    def __init__(
        self,
        run_id: str,
        message: str | None = None,
        *,
        reason: str | None = None,
        **details: Any,
    ) -> None:
        if message is None:
            message = f"run {run_id} was cancelled" + (f" (reason: {_cut(reason)})" if reason else "")
        super().__init__(run_id, "cancelled", message, **details)
        self.reason = reason


class MantyxToolError(MantyxError):
    """A local tool failed."""

    def __init__(
        self,
        tool_name: str,
        message: str,
        *,
        run_id: str | None = None,
        tool_use_id: str | None = None,
        cause: BaseException | None = None,
    ) -> None:
        super().__init__(f"tool {tool_name!r}: {message}", code="local_tool_failed")
        if cause is not None:
            self.__cause__ = cause
        self.tool_name = tool_name
        self.run_id = run_id
        self.tool_use_id = tool_use_id


class ToolError(MantyxError):
    """Raise it in a tool's handler: the model reads the text as it is and can act on it."""

    def __init__(self, message: str, *, code: str = "tool_error") -> None:
        super().__init__(message, code=code)


class ToolInputError(ToolError):
    """The model's arguments do not fit the tool; the tool did not run."""

    def __init__(self, message: str, *, code: str = "tool_input_invalid") -> None:
        super().__init__(message, code=code)


class MantyxParseError(MantyxError):
    """The model's final text is not what the output schema or type asked for.

    The text itself is in `text` alone, never in the message: an answer may be personal data.
    """

    def __init__(
        self, message: str, *, text: str, cause: BaseException | None = None, run_id: str | None = None
    ) -> None:
        super().__init__(message, code="output_parse_failed")
        if cause is not None:
            self.__cause__ = cause
        self.text = text
        self.run_id = run_id


class MantyxOAuthError(MantyxError):
    """The token endpoint refused (http §2).

    `oauth_error` is RFC 6749's word. `invalid_grant` means the refresh token was revoked: asking again with
    it cannot succeed, the user has to sign in anew.
    """

    def __init__(
        self,
        oauth_error: str,
        oauth_error_description: str | None = None,
        status: int | None = None,
        *,
        request_id: str | None = None,
    ) -> None:
        reason = f": {_cut(oauth_error_description)}" if oauth_error_description else ""
        super().__init__(f"OAuth error {_cut(oauth_error)}{reason}", code=oauth_error, status=status)
        self.oauth_error = oauth_error
        self.oauth_error_description = oauth_error_description
        self.request_id = request_id


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
    message = where + (f": {_cut(reason)}" if reason and reason != code else "")
    if hint:
        message += f" (hint: {_cut(hint)})"
    names = [name for name in map(_candidate_name, candidates[:5]) if name]
    if names:
        message += f" (candidates: {_cut(', '.join(names))})"

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
            message += f" (required: {_cut(' '.join(scopes))})"
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
        return _cut(_plain(decoded), _MAX_BODY_TEXT)
    title = _TITLE.search(decoded)
    if title:
        return _cut(title.group(1), _MAX_BODY_TEXT)
    return _cut(decoded, _MAX_BODY_TEXT)


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


def _cut(text: str, limit: int = _MAX_SERVER_TEXT) -> str:
    """Put `text` on one line and cut it to `limit` characters: a server may send anything as its reason."""
    line = " ".join(text[: 4 * limit].split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def _int(value: str | None) -> int | None:
    number = _float(value)
    return None if number is None else int(number)


def _float(value: str | None) -> float | None:
    try:
        number = float(value) if value is not None else None
    except ValueError:
        return None
    return number if number is not None and abs(number) < 1e18 else None
