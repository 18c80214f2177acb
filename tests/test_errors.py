"""Errors: the tree, pickling, and the error built from a response of any shape."""

from __future__ import annotations

import copy
import json
import pickle

import pytest

from mantyx_sync import errors
from mantyx_sync.api_errors import api_error, rate_limit
from mantyx_sync.errors import (
    MantyxAPIError,
    MantyxAuthError,
    MantyxBadRequestError,
    MantyxConfigError,
    MantyxConflictError,
    MantyxError,
    MantyxForbiddenError,
    MantyxNetworkError,
    MantyxNotFoundError,
    MantyxOAuthError,
    MantyxParseError,
    MantyxProtocolError,
    MantyxRateLimitError,
    MantyxRunCancelled,
    MantyxRunError,
    MantyxScopeError,
    MantyxServerError,
    MantyxTimeoutError,
    MantyxToolError,
    RateLimit,
    ToolError,
    ToolInputError,
    cut,
)

EXAMPLES = [
    MantyxError("m", code="c", status=400, hint="h"),
    MantyxConfigError("prompt: got None"),
    MantyxNetworkError("gone", cause=OSError("reset"), run_id="run_1", last_seq=4, sent=False),
    MantyxProtocolError("odd", last_seq=3),
    MantyxTimeoutError("late", run_id="run_1", last_seq=9),
    MantyxAPIError("no", status=418, code="teapot", hint="h", request_id="r", body={"error": "x"}),
    MantyxBadRequestError("no", status=400, candidates=["a"]),
    MantyxAuthError(),
    MantyxForbiddenError("no", status=403),
    MantyxScopeError("no", required_scopes=["runs:read"]),
    MantyxNotFoundError("no", status=404),
    MantyxConflictError("no", status=409),
    MantyxRateLimitError("no", status=429, retry_after=2.5, rate_limit=RateLimit(limit=1)),
    MantyxServerError("no", status=502, body="<html>"),
    MantyxRunError("run_1", "truncation", "cut", error_class="truncation", partial_text='{"a', turns=1),
    MantyxRunCancelled("run_1", reason="user"),
    MantyxToolError("read_file", "broke", run_id="run_1", tool_use_id="tu_1"),
    ToolError("the file is gone"),
    ToolInputError("'path' is missing"),
    MantyxParseError("not JSON", text="SECRET-ANSWER"),
    MantyxOAuthError("invalid_grant", "revoked", 400),
]


def every_error_class() -> set[type[MantyxError]]:
    found: set[type[MantyxError]] = set()
    todo = [MantyxError]
    while todo:
        cls = todo.pop()
        if cls.__module__ == errors.__name__ and cls not in found:
            found.add(cls)
            todo.extend(cls.__subclasses__())
    return found


def test_examples_cover_every_error_class() -> None:
    assert {type(example) for example in EXAMPLES} == every_error_class()


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("through", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy, copy.deepcopy])
def test_error_survives_pickle_and_copy(error, through) -> None:
    again = through(error)
    assert type(again) is type(error)
    assert str(again) == str(error) == error.message
    assert again.args == error.args
    assert again.__dict__ == error.__dict__


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda e: type(e).__name__)
def test_error_is_made_again_from_its_type_and_arguments_as_json_holds_them(error) -> None:
    again = type(error)(*json.loads(json.dumps(error.args)))  # what Celery makes of a task's error by default
    assert str(again) == str(error)
    assert again.args == tuple(error.args)
    for name in ("subtype", "tool_name", "oauth_error", "required_scopes"):
        assert getattr(again, name, None) == getattr(error, name, None)
    if isinstance(error, MantyxRunError):
        assert again.run_id == error.run_id


def test_an_error_of_the_callers_that_sets_no_message_can_be_shown() -> None:
    class TheirError(ToolError):
        def __init__(self) -> None:
            Exception.__init__(self, "theirs")

    assert str(TheirError()) == "theirs"


@pytest.mark.parametrize(
    ("error", "builtin"),
    [(MantyxConfigError("m"), ValueError), (MantyxTimeoutError("m"), TimeoutError)],
)
def test_error_is_also_the_builtin_kind(error, builtin) -> None:
    assert isinstance(error, builtin)
    assert isinstance(error, MantyxError)
    assert str(error) == "m"


def test_cause_is_chained() -> None:
    cause = OSError("reset")
    assert MantyxNetworkError("m", cause=cause).__cause__ is cause
    assert MantyxParseError("m", text="", cause=cause).__cause__ is cause
    assert MantyxTimeoutError("m", cause=cause).__cause__ is cause


def test_short_constructor_forms_fill_code_and_status() -> None:
    auth, scope = MantyxAuthError(), MantyxScopeError("m", required_scopes=["a", "b"])
    assert (auth.code, auth.status) == ("unauthorized", 401)
    assert (scope.code, scope.status, scope.required_scopes) == ("insufficient_scope", 403, ("a", "b"))
    assert MantyxScopeError("m").required_scopes == ()
    oauth = MantyxOAuthError("invalid_grant", None, 400)
    assert (oauth.code, oauth.oauth_error, oauth.status) == ("invalid_grant", "invalid_grant", 400)
    tool = MantyxToolError("read_file", "broke")
    assert (tool.tool_name, tool.code) == ("read_file", "local_tool_failed")
    assert str(tool) == "tool 'read_file': broke"


def test_run_error_carries_the_triage_fields() -> None:
    error = MantyxRunError("run_1", "truncation", "cut short", finish_reason="max_tokens", retryable=False)
    assert (error.run_id, error.subtype, error.code) == ("run_1", "truncation", "truncation")
    assert (error.finish_reason, error.retryable) == ("max_tokens", False)
    assert error.tokens is error.turns is error.model is error.structured_output is None


def test_cancelled_says_why() -> None:
    error = MantyxRunCancelled("run_1", reason="user")
    assert error.subtype == "cancelled"
    assert str(error) == "run run_1 was cancelled (reason: user)"
    assert str(MantyxRunCancelled("run_1")) == "run run_1 was cancelled"


def test_parse_error_shows_the_text_only_as_an_attribute() -> None:
    error = MantyxParseError("the answer is not JSON", text="MARKER")
    assert error.text == "MARKER"
    assert "MARKER" not in str(error)
    assert "MARKER" not in repr(error)


@pytest.mark.parametrize(
    ("status", "cls"),
    [
        (302, MantyxAPIError),
        (400, MantyxBadRequestError),
        (401, MantyxAuthError),
        (402, MantyxAPIError),
        (403, MantyxForbiddenError),
        (404, MantyxNotFoundError),
        (408, MantyxAPIError),
        (409, MantyxConflictError),
        (413, MantyxAPIError),
        (422, MantyxBadRequestError),
        (429, MantyxRateLimitError),
        (500, MantyxServerError),
        (502, MantyxServerError),
        (599, MantyxServerError),
    ],
)
@pytest.mark.parametrize("body", [b"", b"<html>", b'{"error":"some_code"}', b"[]", b"null", b"\xff"])
def test_status_decides_the_class_whatever_the_body_is(status, cls, body) -> None:
    error = api_error(status, {}, body, method="GET", path="/models")
    assert type(error) is cls
    assert error.status == status
    assert str(error).startswith(f"GET /models: {status} ")


@pytest.mark.parametrize(
    ("body", "code", "text"),
    [
        (b'{"error":"invalid_model"}', "invalid_model", "POST /agent-runs: 400 invalid_model"),
        (
            b'{"error":"invalid_model","message":"no model x"}',
            "invalid_model",
            "POST /agent-runs: 400 invalid_model: no model x",
        ),
        (
            b'{"error":"Model not found","code":"bad_model"}',
            "bad_model",
            "POST /agent-runs: 400 bad_model: Model not found",
        ),
        (b'{"error":"Not a word"}', "http_400", "POST /agent-runs: 400 http_400: Not a word"),
        (
            b'{"error":{"code":"bad_key","message":"wrong"}}',
            "bad_key",
            "POST /agent-runs: 400 bad_key: wrong",
        ),
        (b'{"error":{"type":"overloaded"}}', "overloaded", "POST /agent-runs: 400 overloaded"),
        (b'{"detail":"nope, no"}', "http_400", "POST /agent-runs: 400 http_400: nope, no"),
        (
            b'{"detail":[{"loc":["body","x"],"msg":"bad"}]}',
            "http_400",
            'POST /agent-runs: 400 http_400: [{"loc": ["body", "x"], "msg": "bad"}]',
        ),
        (b"[]", "http_400", "POST /agent-runs: 400 http_400: []"),
        (b'"text"', "http_400", "POST /agent-runs: 400 http_400: text"),
        (b"", "http_400", "POST /agent-runs: 400 http_400"),
        (b"{}", "http_400", "POST /agent-runs: 400 http_400"),
        (
            b"<html><title>\n 502  Bad\nGateway</title><body>x</body></html>",
            "http_400",
            "POST /agent-runs: 400 http_400: 502 Bad Gateway",
        ),
        (b"upstream\r\n gone", "http_400", "POST /agent-runs: 400 http_400: upstream gone"),
        (
            b'{"error":"x","hint":"use slug acme"}',
            "x",
            "POST /agent-runs: 400 x (hint: use slug acme)",
        ),
        (
            b'{"error":"x","candidates":["m1",{"id":"m2","label":"M"},7]}',
            "x",
            "POST /agent-runs: 400 x (candidates: m1, m2)",
        ),
    ],
)
def test_message_says_what_the_server_said(body, code, text) -> None:
    error = api_error(400, {}, body, method="POST", path="/agent-runs?metadata=a:b")
    assert error.code == code
    assert str(error) == text


def test_details_of_the_response_are_attributes() -> None:
    headers = {
        "X-Request-Id": "req_1",
        "X-RateLimit-Limit": "120",
        "X-RateLimit-Remaining": "0",
        "X-RateLimit-Reset": "1700000000.5",
        "X-RateLimit-Bucket": "runs",
    }
    body = {"error": "rate_limit_exceeded", "hint": "slow down", "candidates": ["a"]}
    error = api_error(429, headers, json.dumps(body).encode(), method="POST", path="/agent-runs", retry_after=7.0)
    assert isinstance(error, MantyxRateLimitError)
    assert error.request_id == "req_1"
    assert error.retry_after == 7.0
    assert error.rate_limit == RateLimit(limit=120, remaining=0, reset=1700000000.5, bucket="runs")
    assert error.body == body
    assert error.hint == "slow down"
    assert error.candidates == ("a",)


@pytest.mark.parametrize("name", ["X-Request-Id", "x-request-id", "Request-Id", "request-id"])
def test_request_id_is_found_under_its_usual_names(name) -> None:
    assert api_error(500, {name: "req_1"}, b"", method="GET", path="/models").request_id == "req_1"


@pytest.mark.parametrize("value", ["", "soon", "nan", "inf", "9" * 400])
def test_unreadable_rate_limit_headers_are_left_out(value) -> None:
    assert rate_limit({"X-RateLimit-Limit": value, "X-RateLimit-Reset": value}) is None


@pytest.mark.parametrize(
    ("body", "challenge", "scopes"),
    [
        ({"error": "insufficient_scope", "required": "runs:write"}, None, ("runs:write",)),
        ({"error": "insufficient_scope", "required": ["a", "b"]}, None, ("a", "b")),
        ({"error": "insufficient_scope", "required": "a b"}, None, ("a", "b")),
        (
            {"error": "insufficient_scope"},
            'Bearer error="insufficient_scope", scope="a b"',
            ("a", "b"),
        ),
        ({"error": "x", "code": "insufficient_scope"}, "Bearer scope=a, realm=x", ("a",)),
        ({"error": "insufficient_scope"}, None, ()),
    ],
)
def test_missing_scopes_are_read_from_body_or_challenge(body, challenge, scopes) -> None:
    headers = {"WWW-Authenticate": challenge} if challenge else {}
    error = api_error(403, headers, json.dumps(body).encode(), method="GET", path="/agent-runs")
    assert isinstance(error, MantyxScopeError)
    assert error.required_scopes == scopes
    assert error.code == "insufficient_scope"
    assert all(scope in str(error) for scope in scopes)


def test_other_refusals_are_not_scope_errors() -> None:
    body = b'{"error":"forbidden","code":"api_keys_plan","hint":"upgrade"}'
    error = api_error(403, {}, body, method="GET", path="/agent-runs")
    assert type(error) is MantyxForbiddenError
    assert (error.code, error.hint) == ("api_keys_plan", "upgrade")


@pytest.mark.parametrize(
    "body",
    [
        b"x" * 1_000_000,
        b'{"message":"' + b"y" * 1_000_000 + b'"}',
        b"[" * 100_000,
        b'{"message":' + b"[" * 50_000,
        b"<html>" + b"z" * 500_000,
        b"{" + b'"a":1,' * 3,
        b"\x00\x01\xfe",
    ],
)
def test_odd_and_huge_bodies_make_short_messages(body) -> None:
    error = api_error(502, {}, body, method="GET", path="/models")
    assert isinstance(error, MantyxServerError)
    assert len(str(error)) < 700
    assert "\n" not in str(error)


def test_body_nested_as_deep_as_the_parser_takes_makes_an_error() -> None:
    # Writing such a value needs a little more stack than reading it: every depth around the limit is tried.
    for depth in range(1, 1100):
        error = api_error(500, {}, b"[" * depth + b"]" * depth, method="GET", path="/models")
        assert isinstance(error, MantyxServerError)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("a\x1b[2Jb", "a [2Jb"),
        ("a\r\n\tb\x00\x9b", "a b"),
        ("\u202egnp.exe\u2066", "gnp.exe"),
        ("bad \ud800 half", "bad half"),
        ("Zürich \N{FAMILY}\u200d", "Zürich \N{FAMILY}\u200d"),
    ],
)
def test_the_words_of_a_server_move_no_terminal_and_can_be_printed(given: str, shown: str) -> None:
    assert cut(given) == shown
    assert cut(given).encode()
