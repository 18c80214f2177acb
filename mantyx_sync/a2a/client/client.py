"""`A2AClient`: ask an agent that speaks A2A, and wait for what it answers (a2a §1 to §4)."""

from __future__ import annotations

import threading
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Dict, Mapping, Sequence, Tuple

from ...checks import callbacks, integer, json_copy, kind_of, refusal, seconds, shown, whole_number
from ...errors import MantyxConfigError
from ...headers import checked_headers
from ...tools.cancellation import checked_event
from ...transport.retry import RetryPolicy
from ...transport.url import origin_of
from ..dialects import Operation
from ..objects import Event, Message, SendConfiguration, SendParams, Task
from ..reading import WrongObject, read_event, read_task
from .access import Access
from .addresses import shown_url
from .allowance import Allowance
from .card import AgentCard
from .connection import Connection
from .discovery import fetch_card
from .errors import A2ACardError, A2AError, A2AProtocolError
from .given import (
    Content,
    checked_timeout,
    checked_url,
    header_text,
    identifier,
    json_object,
    message_of,
    texts,
)
from .questions import Questions
from .replies import A2AReply
from .stream import A2AStream

if TYPE_CHECKING:
    import requests
    from requests.auth import AuthBase

__all__ = ["A2AClient", "Content"]

CARD_TIMEOUT_S = 30.0


class A2AClient:
    """An agent that speaks A2A, 1.0 or 0.3, over JSON-RPC.

    Every method may be called from any thread, and the client goes on working in the children of a `fork`. Making one
    does no I/O: the card is fetched at first use and kept. Headers, `auth` and what the session carries go to the
    card's origin alone, unless `trust_other_origin`; redirects are followed within the origin only. Proxies and CA
    settings of the environment hold, `NO_PROXY` included; `.netrc` and cookies are not used.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        card: AgentCard | Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        auth: AuthBase | None = None,
        session: requests.Session | None = None,
        timeout: float | None = 300.0,
        connect_timeout: float = 10.0,
        stream_idle_timeout: float = 60.0,
        streaming: str | bool = "auto",
        trust_other_origin: bool = False,
        accepted_output_modes: Sequence[str] = (),
        extensions: Sequence[str] = (),
        max_message_bytes: int = 64 * 1024 * 1024,
        max_retries: int = 2,
    ) -> None:
        """Check the settings; does no I/O.

        Args:
            url: Where the agent's card is, or the address below which it lies at a well-known path. With `card`, where
                that card is from.
            card: The card itself, instead of fetching it.
            headers: Sent with every request, such as `Authorization`.
            auth: Puts credentials on each request; an auth object of requests.
            session: Your own `requests.Session`: its adapters, proxies, CA and client certificate settings, headers
                and response hooks are used, and its `auth` where neither `auth` nor a header `Authorization` is given;
                its cookies and redirect handling are not.
            timeout: Seconds that a call may take in all, unless it is told otherwise; `None` sets no limit.
            connect_timeout: Seconds to open a connection.
            stream_idle_timeout: Seconds of silence on a stream after which the task is asked for instead.
            streaming: `"auto"` streams where the card offers it; `False` does not.
            trust_other_origin: Trust the card: send the credentials to its endpoint wherever that is, and go to an
                address in the private network or on this machine even if the card came from further outside.
            accepted_output_modes: Media types that answers may have; without any the agent chooses.
            extensions: URIs of protocol extensions to ask for.
            max_message_bytes: No answer, and no event of a stream, may be larger.
            max_retries: How often an exchange is repeated when that is safe.

        Raises:
            MantyxConfigError: A setting cannot be used.
        """
        headers = checked_headers(headers)
        if url is None and card is None:
            raise MantyxConfigError("url: got None, must be the agent's address; or give its card")
        self._url = None if url is None else checked_url(url)
        if auth is not None and not callable(auth):
            raise refusal("auth", kind_of(auth), "be an auth object of requests")
        if streaming != "auto" and streaming is not False:
            raise refusal("streaming", shown(streaming), 'be "auto" or False')
        self.timeout = None if timeout is None else checked_timeout(timeout, "timeout")
        self._may_stream = streaming == "auto"
        self._modes = texts(accepted_output_modes, "accepted_output_modes")
        wanted = texts(extensions, "extensions")
        for extension in wanted:
            header_text(extension, "extensions")
        self._access = Access(
            headers=headers,
            auth=auth,
            session=session,
            is_trusting=bool(trust_other_origin),
            extensions=wanted,
            connect_timeout=seconds(connect_timeout, "connect_timeout"),
            idle_timeout=seconds(stream_idle_timeout, "stream_idle_timeout"),
            max_message_bytes=whole_number(max_message_bytes, "max_message_bytes", 1024),
            retry=RetryPolicy(integer(max_retries, "max_retries", 0, 100)),
        )
        self._questions = Questions()
        self._is_closed = False
        self._known: Tuple[AgentCard, Connection] | None = None
        self._given: AgentCard | None = None
        if card is not None:
            self._given = _read_card(card, self._url)
            self._given.endpoint()  # refuses a card that cannot be used
        home = self._url if self._given is None or self._url is not None else self._given.endpoint().url
        self._access.transport(origin_of(home or ""))  # refuses a session that is none

    def __repr__(self) -> str:
        where = shown_url(self._url) if self._url else f"card={self._given.name if self._given else ''!r}"
        return f"A2AClient({where!r})" if self._url else f"A2AClient({where})"

    def __enter__(self) -> A2AClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close idle connections. A closed client cannot be used again; streams that are being read go on."""
        self._is_closed = True
        self._access.close()

    # ------------------------------------------------------------------------------------------- the card

    def open(self, *, timeout: float | None = None) -> AgentCard:
        """Fetch the card now instead of at first use, and return it. Blocks, up to 30 s.

        Args:
            timeout: Seconds to wait; `None`: the client's.

        Raises:
            A2ACardError: There is none, or it cannot be used; `attempts` says what was tried.
            A2AAuthError: It is not given out without credentials.
            A2AConnectionError, A2ATimeoutError: As their names say.
        """
        return self._open(self._allowance(timeout, None).at_most(CARD_TIMEOUT_S))[0]

    @property
    def card(self) -> AgentCard:
        """The agent's card. Fetched at first use; blocks and raises then as `open` does."""
        return self.open()

    def refresh_card(self) -> AgentCard:
        """Fetch the card again and use it from now on; a card that was given stays as it is. Blocks.

        Raises:
            A2AError: As `card`. The old card stays in use.
        """
        self._known = self._look(self._allowance(None, None).at_most(CARD_TIMEOUT_S))
        return self._known[0]

    def get_extended_card(self, *, timeout: float | None = None) -> AgentCard:
        """Ask for the card that the agent shows to those it knows. It does not replace `card`. Blocks.

        Raises:
            A2ARequestError: There is none.
            A2AError: As `send`.
        """
        allowance = self._allowance(timeout, None)
        connection = self._open(allowance)[1]
        result = connection.call(Operation.EXTENDED_CARD, connection.tenanted({}), allowance)
        return AgentCard.from_wire(result, self._url)

    # ------------------------------------------------------------------------------------------- asking

    def send(
        self,
        content: Content | Message | Sequence[Content],
        *,
        context_id: str | None = None,
        task_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        history_length: int | None = None,
        timeout: float | None = None,
        on_update: Callable[[Event], None] | None = None,
        cancelled: threading.Event | None = None,
    ) -> A2AReply:
        """Send a message and wait until the agent has answered it, or asks for something.

        Blocks. A message is sent once: where its fate is not known, the error says so. A task that goes on is followed
        over a stream, or asked for at growing intervals.

        Args:
            content: Text, a part, a file, a mapping (sent as data), several of these, or a whole message.
            context_id: The conversation that this goes on with: `A2AReply.context_id`.
            task_id: The task that waits for this answer: `A2AReply.task_id` of a reply that `needs_input`.
            metadata: Passed to the agent with the request.
            history_length: How many messages of the task's history to send back at most; `None`: all.
            timeout: Seconds in all; `None`: the client's, infinity sets no limit.
            on_update: Called with every event on this thread. What it raises ends the call; the task goes on then.
            cancelled: Set it from any thread, and the call ends: at once if it is a `Cancellation`.

        Raises:
            MantyxConfigError: An argument cannot be used; nothing was sent.
            A2ATaskError: The task failed, was rejected or canceled, or waits for credentials; see its `reply`.
            A2ARequestError: The agent refused the request.
            A2ATimeoutError: The time is over; the task, if it was known, was asked to be cancelled.
            A2ACancelled: `cancelled` was set; likewise.
            A2ACardError, A2AAuthError, A2AStatusError, A2AConnectionError, A2AProtocolError: As their names say.
        """
        callbacks(on_update=on_update)
        with self.stream(
            content,
            context_id=context_id,
            task_id=task_id,
            metadata=metadata,
            history_length=history_length,
            timeout=timeout,
            cancelled=cancelled,
        ) as events:
            for event in events:
                if on_update is not None:
                    on_update(event)
            return events.result()

    def stream(
        self,
        content: Content | Message | Sequence[Content],
        *,
        context_id: str | None = None,
        task_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        history_length: int | None = None,
        timeout: float | None = None,
        cancelled: threading.Event | None = None,
    ) -> A2AStream:
        """Send a message and return the events of the answer, to be iterated over; `reply()` gives what they amount to.

        Nothing is sent before the first event is asked for, but the time runs from now. Where the agent does not
        stream, the events are what asking for the task brings. Arguments and errors as for `send`.
        """
        message = message_of(content, context_id, task_id)
        if history_length is not None:
            whole_number(history_length, "history_length", 0)
        sent = SendParams(
            message=message,
            configuration=SendConfiguration(self._modes, history_length, True),
            metadata=None if metadata is None else json_object(metadata, "metadata"),
        )

        def params(connection: Connection) -> Dict[str, Any]:
            endpoint = connection.endpoint
            return endpoint.dialect.write_send_params(replace(sent, tenant=endpoint.tenant))

        return self._stream(Operation.SEND, params, message.task_id, self._allowance(timeout, cancelled), True)

    def resubscribe(
        self,
        task_id: str,
        *,
        last_event_id: str | None = None,
        timeout: float | None = None,
        cancelled: threading.Event | None = None,
    ) -> A2AStream:
        """Follow a task that was begun before: return its events, beginning with the task as it stands.

        Works in every state: of a task that is over, or where the agent does not stream, the task is asked for.
        Leaving, also at the deadline, does not cancel the task.

        Args:
            task_id: The task's id.
            last_event_id: `A2AStream.last_event_id` of a stream that broke, for agents that resume by it.
            timeout: Seconds in all; `None`: the client's, infinity sets no limit.
            cancelled: As for `send`.

        Raises:
            MantyxConfigError: An argument cannot be used.
        """
        name = identifier(task_id, "task_id")
        if last_event_id is not None:
            header_text(last_event_id, "last_event_id")

        def params(connection: Connection) -> Dict[str, Any]:
            return connection.tenanted({"id": name})

        allowance = self._allowance(timeout, cancelled)
        return self._stream(Operation.RESUBSCRIBE, params, name, allowance, False, last_event_id)

    def get_task(self, task_id: str, *, history_length: int | None = None, timeout: float | None = None) -> Task:
        """Ask how a task stands. Blocks.

        Args:
            task_id: The task's id.
            history_length: How many messages of its history to send back at most; `None`: all.
            timeout: Seconds; `None`: the client's.

        Raises:
            A2ARequestError: -32001 (`TASK_NOT_FOUND`) for one that the agent does not know.
            A2AError: As `send`.
        """
        params: Dict[str, Any] = {"id": identifier(task_id, "task_id")}
        if history_length is not None:
            params["historyLength"] = whole_number(history_length, "history_length", 0)
        task = self._ask_for_task(Operation.GET, params, timeout)
        if history_length is not None and len(task.history) > history_length:  # agents of 0.3 take 0 for all
            task = replace(task, history=task.history[len(task.history) - history_length :])
        return task

    def cancel_task(
        self, task_id: str, *, metadata: Mapping[str, Any] | None = None, timeout: float | None = None
    ) -> Task:
        """Ask the agent to stop working on a task; return how the task stands then. Blocks.

        Raises:
            A2ARequestError: -32001 (`TASK_NOT_FOUND`), or -32002 (`TASK_NOT_CANCELABLE`) for one that is over.
            A2AError: As `send`.
        """
        params: Dict[str, Any] = {"id": identifier(task_id, "task_id")}
        if metadata is not None:
            params["metadata"] = json_object(metadata, "metadata")
        return self._ask_for_task(Operation.CANCEL, params, timeout)

    # ------------------------------------------------------------------------------------------- inside

    def _allowance(self, timeout: float | None, cancelled: threading.Event | None) -> Allowance:
        """Begin to wait, for what is asked for now."""
        if self._is_closed:
            raise A2AError(f"{self!r}: the client was closed: make another one, or close it later", code="closed")
        seconds_left = self.timeout if timeout is None else checked_timeout(timeout, "timeout")
        return Allowance.of(seconds_left, checked_event(cancelled, "cancelled"))

    def _stream(
        self,
        operation: Operation,
        params: Callable[[Connection], Dict[str, Any]],
        task_id: str | None,
        allowance: Allowance,
        cancels: bool,
        last_event_id: str | None = None,
    ) -> A2AStream:
        def may_stream() -> bool:
            return self._may_stream and self._known is not None and self._known[0].streaming

        def no_streaming() -> None:
            self._may_stream = False

        return A2AStream(
            lambda allowance: self._open(allowance)[1],
            allowance,
            operation=operation,
            params=params,
            may_stream=may_stream,
            no_streaming=no_streaming,
            questions=self._questions,
            task_id=task_id,
            cancels=cancels,
            last_event_id=last_event_id,
        )

    def _ask_for_task(self, operation: Operation, params: Dict[str, Any], timeout: float | None) -> Task:
        allowance = self._allowance(timeout, None)
        connection = self._open(allowance)[1]
        result = connection.call(operation, connection.tenanted(params), allowance)
        try:
            event = read_event(result)
            task = event if isinstance(event, Task) else read_task(result)
        except WrongObject as error:
            raise A2AProtocolError(f"{connection.label}: the answer does not follow the protocol: {error}") from None
        if task.id != params["id"]:
            raise A2AProtocolError(f"{connection.label}: it answered with another task than the one asked for")
        self._questions.note(task)
        return task

    def _open(self, allowance: Allowance) -> Tuple[AgentCard, Connection]:
        # Threads that come first at once may each fetch the card: waiting for one another would cost more.
        if self._known is None:
            self._known = self._look(allowance)
        return self._known

    def _look(self, allowance: Allowance) -> Tuple[AgentCard, Connection]:
        card_zone: str | None = None
        if self._given is not None:
            card = self._given
        else:
            assert self._url is not None
            card, card_zone = fetch_card(
                self._access.transport(origin_of(self._url)),
                self._url,
                allowance.at_most(CARD_TIMEOUT_S),
                connect_timeout=self._access.connect_timeout,
                retry=self._access.retry,
            )
        return card, self._access.connect(card, card_zone)


def _read_card(card: object, url: str | None) -> AgentCard:
    if isinstance(card, AgentCard):
        return card if url is None else replace(card, url=url)
    if not isinstance(card, Mapping):
        raise refusal("card", kind_of(card), "be an AgentCard or the card's JSON object")
    try:
        return AgentCard.from_wire(json_copy(card, "card"), url)
    except A2ACardError as error:
        raise MantyxConfigError(f"card: {error.message}") from None
