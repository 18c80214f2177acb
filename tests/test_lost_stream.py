"""A run or eval whose stream is lost: what counts for more, the stream's end or what the record says."""

from __future__ import annotations

from typing import Any, Callable

import pytest

from mantyx_sync.errors import (
    MantyxAuthError,
    MantyxError,
    MantyxForbiddenError,
    MantyxNetworkError,
    MantyxNotFoundError,
    MantyxOAuthError,
    MantyxProtocolError,
    MantyxRunError,
    MantyxServerError,
)
from mantyx_sync.lost_stream import end_without_stream
from mantyx_sync.transport.stream import StreamLost

# Made anew for each test: an error that is raised remembers where.
ERRORS: dict[str, Callable[[], MantyxError]] = {
    "broke": lambda: MantyxNetworkError("the connection broke."),
    "odd": lambda: MantyxProtocolError("no event stream"),
    "refused": lambda: MantyxForbiddenError("not yours", status=403),
    "no stream": lambda: MantyxNotFoundError("no such stream", status=404),
    "no record": lambda: MantyxNotFoundError("no such run", status=404),
    "bad key": lambda: MantyxAuthError("no such key", status=401),
    "revoked": lambda: MantyxOAuthError("invalid_grant"),
    "down": lambda: MantyxServerError("try later", status=503),
    "failed": lambda: MantyxRunError("run_1", "error", "it failed"),
}


def raises(error: Exception) -> Callable[[], Any]:
    def look() -> Any:
        raise error

    return look


def end(lost: MantyxError, look: Callable[[], Any], gone: bool = False) -> Any:
    return end_without_stream(StreamLost(lost, gone=gone), look, "run run_1", "run_1", "; it may go on.")


CASES = {
    # Why the stream was lost, what asking for the record raises, which of the two comes out if either does.
    "a record that tells no end": ("broke", None, None),
    "no record to be had": ("broke", "down", None),
    "a stream refused": ("refused", None, "refused"),
    "tokens that ended": ("revoked", None, "revoked"),
    "no stream, and a record that tells no end": ("no stream", None, None),
    "no stream and no run": ("no stream", "no record", "no record"),
    "a broken stream of no run": ("broke", "no record", "no record"),
    "a broken stream, and a key that ended": ("broke", "bad key", "bad key"),
    "a broken stream, and tokens that ended": ("broke", "revoked", "revoked"),
    "no event stream, and no end": ("odd", None, "odd"),
    "no event stream, and no record to be had": ("odd", "down", "odd"),
    "no event stream of no run": ("odd", "no record", "no record"),
    "a broken stream of a run that failed": ("broke", "failed", "failed"),
    "no event stream of a run that failed": ("odd", "failed", "failed"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_the_server_says_of_a_run_counts_for_more_than_how_its_stream_broke(case: str) -> None:
    names = CASES[case]
    lost, failure = ERRORS[names[0]](), None if names[1] is None else ERRORS[names[1]]()
    with pytest.raises(MantyxError) as caught:
        end(lost, (lambda: None) if failure is None else raises(failure), names[0] == "no stream")
    assert caught.value.run_id == "run_1"
    if names[2] is not None:
        assert caught.value is (lost if names[2] == names[0] else failure)
    else:
        assert type(caught.value) is MantyxNetworkError
        assert caught.value.message == f"run run_1: {lost.message.rstrip('.')}; it may go on."
        assert caught.value.__cause__ is lost


@pytest.mark.parametrize("why", ["broke", "odd", "no stream"])
def test_an_end_that_the_record_tells_is_the_end(why: str) -> None:
    assert end(ERRORS[why](), lambda: "the end", why == "no stream") == "the end"


@pytest.mark.parametrize("why", ["refused", "revoked", "down"])
def test_of_a_stream_that_was_refused_no_record_is_asked_for(why: str) -> None:
    def look() -> Any:
        raise AssertionError("it was asked for")

    lost = ERRORS[why]()
    with pytest.raises(type(lost)):
        end(lost, look)
