"""Finding an agent's card (a2a §1): at the address given, then at the two well-known paths below it."""

from __future__ import annotations

import json
import logging
import random
from typing import List, Mapping, Tuple

from ...errors import MantyxError, MantyxNetworkError, MantyxProtocolError
from ...transport.answers import Opened
from ...transport.http import HttpTransport
from ...transport.redirects import follow, redirect_site
from ...transport.retry import Failure, Repeat, RetryPolicy
from .addresses import GuardedRelease, shown_url
from .allowance import Allowance, Watch
from .card import AgentCard, card_addresses
from .errors import A2AAuthError, A2ACancelled, A2ACardError, A2AConnectionError, A2ATimeoutError

__all__ = ["fetch_card"]

log = logging.getLogger(__name__)

MAX_CARD_BYTES = 4 * 1024 * 1024
MAX_ERROR_BYTES = 64 * 1024
HEADERS = {"Accept": "application/json", "A2A-Version": "1.0"}


def fetch_card(
    transport: HttpTransport, url: str, allowance: Allowance, *, connect_timeout: float, retry: RetryPolicy
) -> Tuple[AgentCard, str | None]:
    """Look for the card of the agent that `url` belongs to; return it, and the zone it came from. Blocks.

    The address is tried as it is; unless it ends in `.json`, the well-known paths below it follow. 401 ends the search:
    what is behind it cannot be told from here.

    Raises:
        A2ACardError: No address answered with a card. `attempts` says what each did.
        A2AAuthError: 401, or 403 where no other address had a card either.
        A2AConnectionError, A2ATimeoutError, A2ACancelled: As their names say.
    """
    attempts: List[Tuple[str, str]] = []
    forbidden: A2AAuthError | None = None
    for address in card_addresses(url):
        opened_status, outcome, card, zone = _look(transport, address, allowance, connect_timeout, retry)
        if card is not None:
            log.debug("agent card found at %s", shown_url(address))
            return card, zone
        if opened_status in (401, 403):
            refusal = A2AAuthError(
                f"the agent card at {shown_url(address)} is not given out without credentials ({outcome}): "
                "pass them in headers",
                status=opened_status,
            )
            if opened_status == 401:
                raise refusal
            forbidden = forbidden or refusal
        attempts.append((shown_url(address), outcome))
    if forbidden is not None:
        raise forbidden
    told = "; ".join(f"{address}: {outcome}" for address, outcome in attempts)
    raise A2ACardError(f"no agent card found: {told}", code="card_not_found", attempts=attempts)


def _look(
    transport: HttpTransport, address: str, allowance: Allowance, connect_timeout: float, retry: RetryPolicy
) -> Tuple[int, str, AgentCard | None, str | None]:
    """Ask one address, again where that may help.

    Returns:
        Its status, words for that, the card if it has one, and the zone it was found in, where that could be seen.
    """
    for attempt in range(retry.max_retries + 1):
        _check(address, allowance)
        release = GuardedRelease()
        try:
            status, headers, body, words = _get(transport, address, allowance, connect_timeout, release)
        except A2AConnectionError as error:
            kind = Failure.UNSENT if error.sent is False else Failure.LOST
            delay = retry.after_failure(kind, Repeat.SAFE, attempt, random.random())
            if delay is None or delay >= allowance.left:
                raise
        else:
            if status == 200:
                return (*_card(address, body, headers), release.zone)
            delay = retry.after_status(status, Repeat.SAFE, attempt, None, random.random())
            if delay is None or delay >= allowance.left:
                return status, words, None, None
        allowance.pause(delay)
    raise AssertionError("the retry policy allows no more tries than max_retries")


def _get(
    transport: HttpTransport, address: str, allowance: Allowance, connect_timeout: float, release: GuardedRelease
) -> Tuple[int, Mapping[str, str], bytes, str]:
    opened: Opened | None = None
    try:
        with Watch(allowance, release):
            opened = follow(
                transport,
                "GET",
                address,
                headers=HEADERS,
                data=None,
                connect_timeout=min(connect_timeout, allowance.socket_timeout),
                read_timeout=allowance.socket_timeout,
                release=release,
            )
            words = f"HTTP {opened.status}"
            if 300 <= opened.status < 400:
                words = f"it redirects ({opened.status}) to {redirect_site(opened, address)}, which is not followed"
            body = opened.read_all(MAX_CARD_BYTES) if opened.status == 200 else opened.read_start(MAX_ERROR_BYTES)
        return opened.status, opened.headers, body, words
    except MantyxError as error:
        if release.called or allowance.left <= 0:
            _check(address, allowance)
            raise A2ATimeoutError(f"the agent card at {shown_url(address)} did not come in time") from None
        if isinstance(error, MantyxProtocolError):
            return error.status or 0, {}, b"", error.message
        sent = error.sent if isinstance(error, MantyxNetworkError) else None
        text = f"the agent card at {shown_url(address)}: {error.message}"
        raise A2AConnectionError(text, sent=sent, cause=error.__cause__) from error.__cause__
    finally:
        if opened is not None:
            opened.close()


def _card(address: str, body: bytes, headers: Mapping[str, str]) -> Tuple[int, str, AgentCard | None]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        kind = str(headers.get("Content-Type") or "no content type").partition(";")[0][:80]
        return 200, f"HTTP 200, but no JSON ({kind})", None
    try:
        return 200, "", AgentCard.from_wire(value, address)
    except A2ACardError:
        return 200, "HTTP 200, but no agent card (a JSON object with a name)", None


def _check(address: str, allowance: Allowance) -> None:
    if allowance.is_cancelled:
        raise A2ACancelled("the call was cancelled while the agent card was fetched")
    if allowance.left <= 0:
        raise A2ATimeoutError(f"no time left to fetch the agent card at {shown_url(address)}")
