"""Which era and version a server speaks: every row of the negotiation table, as steps of the pure state machine."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from mantyx_sync.errors import MantyxError
from mantyx_sync.mcp import (
    Era,
    McpAuthError,
    McpCancelled,
    McpConnectionError,
    McpProtocolError,
    McpRequestError,
    McpStatusError,
    McpTimeoutError,
    McpVersionError,
)
from mantyx_sync.mcp.messages import failure, success
from mantyx_sync.mcp.opening import Initialize, Opened, Opening, Probe

from .mcp_fake import LABEL, LEGACY, MODERN, discovery, handshake

PROBE, INITIALIZE = Probe(MODERN), Initialize(LEGACY)


def answer(value: Any) -> Any:
    return success(1, value)


def refuse(code: int, data: Any = None, message: str = "no") -> Any:
    response = failure(1, code, message)
    if data is not None:
        response["error"]["data"] = data
    return response


def feed(opening: Opening, *outcomes: Any) -> None:
    for outcome in outcomes:
        if isinstance(outcome, MantyxError):
            opening.failed(outcome)
        else:
            opening.answered(outcome)


def opened_by(opening: Opening, *outcomes: Any) -> Opened:
    feed(opening, *outcomes)
    assert isinstance(opening.step, Opened)
    return opening.step


def supported(*versions: Any) -> Any:
    return {"supported": list(versions), "requested": MODERN}


FALLS_BACK = {
    "no common version": answer(discovery(("2027-01-01",))),
    "no versions": answer(discovery(None)),
    "versions of a wrong type": answer(discovery("2026-07-28")),
    "capabilities of a wrong type": answer(discovery(capabilities=[])),
    "an empty result": answer({}),
    "a result that is no object": {"jsonrpc": "2.0", "id": 1, "result": 3},
    "a result that wants input": answer(discovery(resultType="input_required")),
    "-32022 with a handshake version": refuse(-32022, supported(LEGACY)),
    "-32022 with both kinds of foreign ones": refuse(-32022, supported("2027-01-01", "2024-11-05")),
    "-32022 with an older version than we know": refuse(-32022, supported("2024-10-07")),
    "-32022 without versions": refuse(-32022, supported()),
    "-32022 with rubbish": refuse(-32022, {"supported": "2026-07-28"}),
    "-32022 without data": refuse(-32022),
    "missing session": refuse(-32600, None, "Missing session ID"),
    "unsupported in words": refuse(-32600, None, "Unsupported protocol version: 2026-07-28."),
    "invalid parameters": refuse(-32602, None, "Invalid request parameters"),
    "method not found": refuse(-32601),
    "internal error": refuse(-32603),
    "code 0": refuse(0),
    "an error without a code": {"jsonrpc": "2.0", "id": None, "error": {}},
    "404 bare": McpStatusError("404", status=404),
    "400 bare": McpStatusError("400", status=400),
    "503 bare": McpStatusError("503", status=503),
    "rubbish": McpProtocolError("HTML"),
    "silence": McpTimeoutError("no response"),
    "the process died of it": McpConnectionError("exited", sent=None, exit_code=1),
}


@pytest.mark.parametrize("outcome", FALLS_BACK.values(), ids=FALLS_BACK)
def test_what_is_no_stateless_answer_leads_to_the_handshake(outcome: Any) -> None:
    opening = Opening(LABEL, "auto")
    assert opening.step == PROBE
    feed(opening, outcome)
    assert opening.step == INITIALIZE
    opened = opened_by(opening, answer(handshake()))
    assert (opened.era, opened.version) == (Era.HANDSHAKE, LEGACY)


def test_a_server_that_lists_our_stateless_version_is_spoken_to_in_it() -> None:
    opened = opened_by(Opening(LABEL, "auto"), answer(discovery(("2027-01-01", MODERN))))
    assert (opened.era, opened.version) == (Era.STATELESS, MODERN)
    server = opened.server
    assert server is not None
    assert (server.name, server.version, server.instructions) == ("fake", "1.2", "be kind")
    assert (server.era, server.protocol_version, server.capabilities) == (Era.STATELESS, MODERN, {"tools": {}})
    assert server.to_wire() == {"name": "fake", "version": "1.2"}


def test_a_stateless_server_may_keep_its_name_to_itself() -> None:
    opened = opened_by(Opening(LABEL, "auto"), answer(discovery(_meta={})))
    assert opened.server is not None
    assert opened.server.to_wire() == {"name": "", "version": ""}


def test_a_server_that_refuses_our_version_but_names_it_is_probed_once_more() -> None:
    opening = Opening(LABEL, "auto")
    feed(opening, refuse(-32022, supported(MODERN)))
    assert opening.step == PROBE
    assert opened_by(opening, answer(discovery())).era is Era.STATELESS


def test_a_server_that_goes_on_refusing_the_version_it_names_is_asked_by_the_handshake() -> None:
    opening = Opening(LABEL, "auto")
    feed(opening, refuse(-32022, supported(MODERN)), refuse(-32022, supported(MODERN)))
    assert opening.step == INITIALIZE
    with pytest.raises(McpRequestError, match="initialize"):
        feed(opening, refuse(-32601))


def test_a_server_that_speaks_only_later_versions_is_refused_by_name() -> None:
    with pytest.raises(McpVersionError, match="2027-01-01, 2028-01-01; this client speaks 2026-07-28") as caught:
        feed(Opening(LABEL, "auto"), refuse(-32022, supported("2027-01-01", "2028-01-01")))
    assert caught.value.supported == ("2027-01-01", "2028-01-01")


FINAL = {
    "401": McpAuthError("no", status=401),
    "403": McpAuthError("no", status=403),
    "refused, unknown host, bad certificate": McpConnectionError("refused", sent=False),
    "cancelled": McpCancelled("enough"),
}


@pytest.mark.parametrize("error", FINAL.values(), ids=FINAL)
@pytest.mark.parametrize("mode", ["auto", "handshake", "stateless"])
def test_where_no_other_era_can_help_the_error_is_raised_as_it_is(mode: str, error: MantyxError) -> None:
    with pytest.raises(type(error)) as caught:
        feed(Opening(LABEL, mode), error)
    assert caught.value is error


@pytest.mark.parametrize("code", [-32020, -32021])
def test_a_stateless_server_that_dislikes_the_request_is_not_asked_by_the_handshake(code: int) -> None:
    with pytest.raises(McpRequestError) as caught:
        feed(Opening(LABEL, "auto"), refuse(code, {"requiredCapabilities": {}}, "not so"))
    assert (caught.value.rpc_code, caught.value.method) == (code, "server/discover")


@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"])
def test_each_handshake_version_is_accepted(version: str) -> None:
    opening = Opening(LABEL, "handshake")
    assert opening.step == INITIALIZE
    opened = opened_by(opening, answer(handshake(version)))
    assert (opened.era, opened.version) == (Era.HANDSHAKE, version)
    assert opened.server is not None
    assert opened.server.protocol_version == version


@pytest.mark.parametrize("version", ["2026-07-28", "2024-10-07", "1.0"])
def test_a_handshake_that_ends_in_another_version_fails(version: str) -> None:
    with pytest.raises(McpVersionError, match=version) as caught:
        feed(Opening(LABEL, "handshake"), answer(handshake(version)))
    assert caught.value.supported == (version,)


BAD_HANDSHAKES = {
    "no version": ({"capabilities": {}}, "'protocolVersion' is missing"),
    "a version that is no text": (handshake(7), "'protocolVersion' is a number"),
    "capabilities that are no object": (handshake(capabilities=[]), "'capabilities' is an array"),
    "a name that is no text": (handshake(serverInfo={"name": 7}), "'name' is a number"),
}


@pytest.mark.parametrize(("result", "sentence"), BAD_HANDSHAKES.values(), ids=BAD_HANDSHAKES)
def test_a_handshake_that_cannot_be_read_names_the_field(result: Any, sentence: str) -> None:
    with pytest.raises(McpProtocolError, match=sentence):
        feed(Opening(LABEL, "handshake"), answer(result))


def test_a_handshake_without_name_and_capabilities_is_enough() -> None:
    opened = opened_by(Opening(LABEL, "handshake"), answer({"protocolVersion": LEGACY}))
    assert opened.server is not None
    assert (opened.server.name, opened.server.capabilities) == ("", {})


def test_a_slow_server_that_saw_the_probe_late_is_probed_once_more() -> None:
    opening = Opening(LABEL, "auto")
    feed(opening, McpTimeoutError("no response"), refuse(-32022, supported(MODERN)))
    assert opening.step == PROBE
    assert opened_by(opening, answer(discovery())).era is Era.STATELESS


def test_a_second_probe_that_fails_ends_in_the_error_of_initialize() -> None:
    opening = Opening(LABEL, "auto")
    feed(opening, McpTimeoutError("no response"), refuse(-32022, supported(MODERN), "locked"))
    with pytest.raises(McpRequestError, match=r"locked.*silent again"):
        feed(opening, McpTimeoutError("silent again"))


def test_initialize_that_is_refused_with_foreign_versions_names_them() -> None:
    opening = Opening(LABEL, "auto")
    feed(opening, refuse(-32601))
    with pytest.raises(McpVersionError, match="2027-01-01") as caught:
        feed(opening, refuse(-32022, supported("2027-01-01")))
    assert caught.value.supported == ("2027-01-01",)


def test_handshake_mode_passes_on_which_versions_the_server_speaks() -> None:
    with pytest.raises(McpVersionError, match=r"2026-07-28; leave mode='handshake' out") as caught:
        feed(Opening(LABEL, "handshake"), refuse(-32022, supported(MODERN)))
    assert caught.value.supported == (MODERN,)


@pytest.mark.parametrize(
    "error", [refuse(-32603, None, "broken"), McpConnectionError("broken"), McpTimeoutError("broken")]
)
def test_when_both_fail_the_error_is_that_of_initialize_and_mentions_the_probe(error: Any) -> None:
    opening = Opening(LABEL, "auto")
    feed(opening, refuse(-32600, None, "Missing session ID"))
    with pytest.raises(MantyxError, match=r"broken.*server/discover had failed before.*Missing session ID") as caught:
        feed(opening, error)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again)) == (type(caught.value), str(caught.value))


def test_a_server_that_dies_at_once_is_described_once() -> None:
    opening = Opening(LABEL, "auto")
    feed(opening, McpConnectionError("exited with code 2: usage", exit_code=2))
    with pytest.raises(McpConnectionError) as caught:
        feed(opening, McpConnectionError("exited with code 2: usage", exit_code=2))
    assert str(caught.value) == "exited with code 2: usage (the same had happened at server/discover)"
    assert caught.value.exit_code == 2


def test_stateless_mode_never_falls_back() -> None:
    opening = Opening(LABEL, "stateless")
    assert opening.step == PROBE
    with pytest.raises(McpRequestError, match="-32601"):
        feed(opening, refuse(-32601))


def test_a_server_known_for_its_handshake_is_not_probed_again() -> None:
    opening = Opening(LABEL, "auto", Era.HANDSHAKE)
    assert opening.step == INITIALIZE
    assert opened_by(opening, answer(handshake())).era is Era.HANDSHAKE


@pytest.mark.parametrize(
    "refusal", [refuse(-32022, supported(MODERN)), refuse(-32601), McpStatusError("x", status=400)]
)
def test_a_server_that_has_become_stateless_meanwhile_is_found_out(refusal: Any) -> None:
    opening = Opening(LABEL, "auto", Era.HANDSHAKE)
    feed(opening, refusal)
    assert opening.step == PROBE
    assert opened_by(opening, answer(discovery())).era is Era.STATELESS


def test_a_server_that_speaks_nothing_any_more_ends_in_the_error_of_initialize() -> None:
    opening = Opening(LABEL, "auto", Era.HANDSHAKE)
    feed(opening, refuse(-32601, None, "gone"))
    with pytest.raises(McpRequestError, match=r"refused initialize.*gone.*server/discover.*gone too"):
        feed(opening, refuse(-32601, None, "gone too"))


def test_a_stateless_server_is_probed_anew() -> None:
    assert Opening(LABEL, "auto", Era.STATELESS).step == PROBE


def test_what_a_server_says_is_quoted_shortened() -> None:
    opening = Opening(LABEL, "auto")
    feed(opening, refuse(-32600, None, "probe\n" * 10_000))
    with pytest.raises(McpRequestError) as caught:
        feed(opening, refuse(-32600, None, "initialize\n" * 10_000))
    assert len(str(caught.value)) < 1000
    assert "\n" not in str(caught.value)
