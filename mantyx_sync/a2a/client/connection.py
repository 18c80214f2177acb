"""JSON-RPC requests to one agent over HTTP, and their answers: one result, or a stream of them (a2a §2, §4)."""

from __future__ import annotations

import json
import logging
import random
import time
import uuid
from typing import Any, Dict, Mapping, Union

from ...api_errors import api_error
from ...errors import MantyxError, MantyxNetworkError, MantyxProtocolError, MantyxTimeoutError, cut
from ...transport.answers import Opened
from ...transport.http import HttpTransport, encode_json
from ...transport.redirects import follow, redirect_site
from ...transport.retry import Failure, Repeat, RetryPolicy, parse_retry_after
from ..dialects import V1, Operation
from .addresses import Guard, GuardedRelease
from .allowance import Allowance, Watch
from .card import Endpoint
from .errors import (
    A2AAuthError,
    A2ACancelled,
    A2ACardError,
    A2AConnectionError,
    A2AError,
    A2AProtocolError,
    A2AStatusError,
    A2ATimeoutError,
)
from .event_reader import EventReader, StreamBroken
from .results import given_up, request_error, result_of

__all__ = ["Connection"]

log = logging.getLogger(__name__)

SAFE = frozenset({Operation.GET, Operation.CANCEL, Operation.EXTENDED_CARD})
"""What may arrive twice without harm."""

MAX_ERROR_BYTES = 64 * 1024


class Connection:
    """The way to one agent. Every method may be called from any thread; all block."""

    def __init__(
        self,
        transport: HttpTransport,
        endpoint: Endpoint,
        *,
        label: str,
        guard: Guard | None = None,
        headers: Mapping[str, str] | None = None,
        is_without_credentials: bool = False,
        connect_timeout: float = 10.0,
        idle_timeout: float = 60.0,
        max_message_bytes: int = 64 * 1024 * 1024,
        retry: RetryPolicy | None = None,
    ) -> None:
        """Take what is needed to reach the agent; nothing is sent yet.

        Args:
            label: What to call the agent in a sentence.
            guard: What the address has to satisfy at the time of each request.
            headers: Sent with each request, beside the transport's own.
            is_without_credentials: The caller's were held back, since the endpoint is at another origin.
            idle_timeout: Seconds of silence on a stream after which the task is asked for instead.
        """
        self.endpoint = endpoint
        self.label = label
        self._transport = transport
        self._guard = guard
        self._headers = {"Content-Type": "application/json", "A2A-Version": endpoint.dialect.version, **(headers or {})}
        self._is_without_credentials = is_without_credentials
        self._connect_timeout = connect_timeout
        self.idle_timeout = idle_timeout
        self._max_bytes = max_message_bytes
        self._retry = retry or RetryPolicy()

    def call(self, operation: Operation, params: Dict[str, Any], allowance: Allowance) -> Any:
        """Ask and return the result.

        Raises:
            A2ARequestError, A2AAuthError, A2AStatusError, A2AConnectionError, A2AProtocolError: As their names say.
            A2ATimeoutError, A2ACancelled: The time is over, or the call was cancelled.
        """
        answer = self.ask(operation, params, allowance)
        if not isinstance(answer, EventReader):
            return answer
        try:  # a stream where one result was to be
            result = answer.next(allowance)
        except StreamBroken as broken:
            raise A2AConnectionError(f"{self.label}: {broken}", cause=broken) from None
        finally:
            answer.close()
        if result is None:
            raise A2AProtocolError(f"{self.label}: the answer to {self._method(operation)} is an empty stream")
        return result

    def ask(
        self,
        operation: Operation,
        params: Dict[str, Any],
        allowance: Allowance,
        headers: Mapping[str, str] | None = None,
    ) -> Union[Any, EventReader]:
        """Ask and return the result, or a reader of results if the agent answers with a stream.

        A request that surely was not carried out is sent again, one that may have been only if that does no harm.

        Raises:
            As `call`.
        """
        repeat = Repeat.SAFE if operation in SAFE else Repeat.ONCE
        for attempt in range(self._retry.max_retries + 1):
            try:
                return self._ask_once(operation, params, allowance, headers or {})
            except A2AStatusError as error:
                delay = self._retry.after_status(error.status or 0, repeat, attempt, error.retry_after, random.random())
                failure: A2AError = error
            except A2AConnectionError as error:
                kind = Failure.UNSENT if error.sent is False else Failure.LOST
                delay = self._retry.after_failure(kind, repeat, attempt, random.random())
                failure = error
            if delay is None or delay >= allowance.left:
                raise failure from failure.__cause__
            log.info("%s: %s; next try in %.2f s", self.label, type(failure).__name__, delay)
            allowance.pause(delay)
            self.check(allowance)
        raise AssertionError("the retry policy allows no more tries than max_retries")

    def check(self, allowance: Allowance) -> None:
        """Return at once if there is time left.

        Raises:
            A2ATimeoutError, A2ACancelled: The time is over, or the call was cancelled.
        """
        if allowance.is_cancelled:
            raise A2ACancelled(f"{self.label}: the call was cancelled")
        if allowance.left <= 0:
            raise A2ATimeoutError(f"{self.label}: no answer in the time allowed")

    def _method(self, operation: Operation) -> str:
        return self.endpoint.dialect.methods[operation]

    def _ask_once(
        self, operation: Operation, params: Dict[str, Any], allowance: Allowance, extra: Mapping[str, str]
    ) -> Union[Any, EventReader]:
        self.check(allowance)
        method = self._method(operation)
        body = encode_json({"jsonrpc": "2.0", "id": str(uuid.uuid4()), "method": method, "params": params})
        is_stream = operation in (Operation.STREAM, Operation.RESUBSCRIBE)
        wanted = {"Accept": "application/json"}
        if is_stream:  # what compresses a stream tends to hold it back
            wanted = {"Accept": "text/event-stream, application/json", "Accept-Encoding": "identity"}
        release = GuardedRelease(self._guard)
        opened: Opened | None = None
        is_handed_on = False
        try:
            with Watch(allowance, release):
                opened = follow(
                    self._transport,
                    "POST",
                    self.endpoint.url,
                    headers={**wanted, **self._headers, **extra},
                    data=body,
                    connect_timeout=min(self._connect_timeout, allowance.socket_timeout),
                    read_timeout=allowance.socket_timeout,
                    release=release,
                )
                if opened.status >= 300:
                    raise self._refused(opened, method)
                if opened.media_type == "text/event-stream":
                    is_handed_on = True
                    return EventReader(opened, release, self.label, method, self._max_bytes)
                data = opened.read_all(self._max_bytes)
            return self._result(data, opened, method)
        except A2AError:
            raise
        except MantyxError as error:
            raise self._translated(error, release, allowance) from error.__cause__
        finally:
            if opened is not None and not is_handed_on:
                opened.close()

    def _translated(self, error: MantyxError, release: GuardedRelease, allowance: Allowance) -> A2AError:
        if release.has_refused:
            return A2ACardError(
                f"{self.label}: its name has come to lead to an address that its card must not name; nothing was sent",
                code="address_refused",
            )
        if release.called or allowance.left <= 0:
            return given_up(self.label, allowance)
        text = f"{self.label}: {error.message}"
        if isinstance(error, MantyxProtocolError):
            return A2AProtocolError(text, status=error.status, cause=error.__cause__)
        if isinstance(error, MantyxTimeoutError):
            return A2AConnectionError(text, cause=error.__cause__)
        sent = error.sent if isinstance(error, MantyxNetworkError) else None
        return A2AConnectionError(text, sent=sent, cause=error.__cause__)

    def _refused(self, opened: Opened, method: str) -> A2AError:
        """Return the error for a status that is none of success; reads the body's start."""
        status, headers = opened.status, opened.headers
        if status < 400:
            where = redirect_site(opened, self.endpoint.url)
            return A2AProtocolError(
                f"{self.label}: {method}: it redirects ({status}) to {where}, which is not followed", status=status
            )
        body = opened.read_start(MAX_ERROR_BYTES)
        try:
            decoded = json.loads(body)
        except (ValueError, RecursionError):
            decoded = None
        # JSON-RPC errors belong into a 200, but many servers send them with a status of their own.
        if status not in (401, 403) and isinstance(decoded, dict) and "error" in decoded and "jsonrpc" in decoded:
            return request_error(decoded["error"], self.label, method, status)
        retry_after = parse_retry_after(headers.get("Retry-After"), time.time())
        reason = api_error(status, headers, body, method="POST", path=method, retry_after=retry_after)
        text = f"{self.label}: {reason.message}"
        if status in (401, 403):
            if self._is_without_credentials:
                text += (
                    ". The endpoint is at another origin than the card, so no headers were sent to it; "
                    "trust_other_origin=True sends them"
                )
            return A2AAuthError(text, status=status, www_authenticate=headers.get("WWW-Authenticate"))
        return A2AStatusError(text, status=status, body=reason.body, retry_after=retry_after)

    def _result(self, data: bytes, opened: Opened, method: str) -> Any:
        try:
            response = json.loads(data)
        except (ValueError, RecursionError):
            kind = opened.headers.get("Content-Type", "no content type")
            raise A2AProtocolError(
                f"{self.label}: {method}: it answered {opened.status} with a body that is not JSON ({cut(kind, 80)})",
                status=opened.status,
            ) from None
        return result_of(response, self.label, method)

    def tenanted(self, params: Dict[str, Any]) -> Dict[str, Any]:
        """Return parameters with the tenant that the card asks each request to carry."""
        tenant = self.endpoint.tenant
        return {"tenant": tenant, **params} if tenant and self.endpoint.dialect is V1 else params
