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

import re
from typing import TYPE_CHECKING, Any, Iterable, Mapping

from mantyx_sync.reprs import brief, dataclass
from mantyx_sync.views import Timed

if TYPE_CHECKING:
    from mantyx_sync.events import RunEvent
    from mantyx_sync.timing import RunTiming
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
    "cut",
]

_UNSHOWN = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

MAX_SERVER_TEXT = 500
"""How many characters of what a server gives as its reason go into a message."""


def cut(text: str, limit: int = MAX_SERVER_TEXT) -> str:
    """Put `text` on one line and cut it to `limit` characters: a server may send anything as its reason.

    What a terminal would obey (control characters, changes of direction) and what cannot be printed is left out.
    """
    line = " ".join(_UNSHOWN.sub(" ", text[: 4 * limit]).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


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

    `args` are what the class is called with to have the error again, as far as that goes by position: Celery's JSON
    results keep the class and these, and drop the other attributes, which pickle keeps.
    """

    run_id: str | None = None
    request_id: str | None = None

    def __init__(
        self,
        message: str,
        *,
        code: str = "mantyx_error",
        status: int | None = None,
        hint: str | None = None,
        cause: BaseException | None = None,
    ) -> None:
        super().__init__(message)
        if cause is not None:
            self.__cause__ = cause
        self.message = message
        self.code = code
        self.status = status
        self.hint = hint

    def __str__(self) -> str:
        return str(self.__dict__.get("message", super().__str__()))  # a subclass of the caller's may not set it

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)

    def __repr__(self) -> str:
        status = "" if self.status is None else f", status={self.status}"
        return f"{type(self).__name__}({brief(self.message, 180)}, code={brief(self.code, 40)}{status})"


class MantyxConfigError(MantyxError, ValueError):
    """Something the caller gave cannot be used; nothing was sent."""

    def __init__(self, message: str, *, code: str = "invalid_config", hint: str | None = None) -> None:
        super().__init__(message, code=code, hint=hint)


class MantyxNetworkError(MantyxError):
    """The connection failed.

    `sent` is `False` if the request surely did not arrive, `None` if that is not known. `last_seq` is the
    place in the run's stream that was reached.
    """

    _code = "network"

    def __init__(
        self,
        message: str,
        *,
        cause: BaseException | None = None,
        run_id: str | None = None,
        last_seq: int | None = None,
        sent: bool | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message, code=code or self._code, cause=cause)
        self.run_id = run_id
        self.last_seq = last_seq
        self.sent = sent


class MantyxProtocolError(MantyxNetworkError):
    """The peer's answer does not follow the protocol: wrong content type, malformed or oversize event."""

    _code = "protocol"


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
        super().__init__(message, code="timeout", cause=cause)
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
        self.args = (message, self.required_scopes)


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


class MantyxRunError(MantyxError, Timed):
    """A run ended without success (wire §4.8).

    `subtype` (also `code`) says how; `error_class` is the platform's category. `partial_text` is whatever the
    model had written, for diagnosis: under an output schema it is usually JSON cut short. `retryable` is a
    hint. `tokens`, `turns` and `model` are `None` where the server does not report them. `events` and `timing` are
    there, as on `RunResult`, where the run was followed.
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
        self.args = (run_id, subtype, message)
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
        self.events: tuple[RunEvent, ...] = ()
        self.timing: RunTiming | None = None
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
            message = f"run {run_id} was cancelled" + (f" (reason: {cut(reason)})" if reason else "")
        super().__init__(run_id, "cancelled", message, **details)
        self.args = (run_id, message)
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
        super().__init__(f"tool {tool_name!r}: {message}", code="local_tool_failed", cause=cause)
        self.args = (tool_name, message)
        self.tool_name = tool_name
        self.run_id = run_id
        self.tool_use_id = tool_use_id


class ToolError(MantyxError):
    """Raise it in a tool's handler: the model reads the text as it is and can act on it."""

    _code = "tool_error"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message, code=code or self._code)


class ToolInputError(ToolError):
    """The model's arguments do not fit the tool; the tool did not run."""

    _code = "tool_input_invalid"


class MantyxParseError(MantyxError):
    """The model's final text is not what the output schema or type asked for.

    The text itself is in `text` alone, never in the message: an answer may be personal data.
    """

    def __init__(
        self, message: str, *, text: str = "", cause: BaseException | None = None, run_id: str | None = None
    ) -> None:
        super().__init__(message, code="output_parse_failed", cause=cause)
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
        reason = f": {cut(oauth_error_description)}" if oauth_error_description else ""
        super().__init__(f"OAuth error {cut(oauth_error)}{reason}", code=oauth_error, status=status)
        self.args = (oauth_error, oauth_error_description, status)
        self.oauth_error = oauth_error
        self.oauth_error_description = oauth_error_description
        self.request_id = request_id
